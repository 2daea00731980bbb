package sparse

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector/topk"
)

// How a block is searched.
//
// Every dimension of the query has a list in the block, cut into tiers. An entry of a tier with weights in [least, greatest] adds to the
// score of its vector something between q·least and q·greatest. Such products are counted in units of δ, a power of two so chosen that the
// greatest absolute sum S = Σ |q|·max|w| is below 2^28 δ: product (of two float32, in a float64) and scaling are exact, so low = ⌊min/δ⌋
// and high = ⌈max/δ⌉ are bounds in whole numbers, and sums of them have no error and fit into 32 bits.
//
// Tiers are walked in the order of how much they can still change, and each adds its low to the accumulators of its entries. At any
// time let, for each dimension d,
//
//	gap(d)     be the greatest high − low of its walked tiers,
//	best(d)    the greatest high of the others, at least 0,
//	worst(d)   the least low of the others, at most 0.
//
// A vector has at most one entry in the lists of d. If that was walked, d's part of its score exceeds what the accumulator got by at most
// gap(d); else the accumulator got nothing and the part is in [worst(d), best(d)], where 0 stands for no entry at all. So with
//
//	E = Σ max(gap(d), best(d))    F = Σ worst(d)
//
// the real sum of the products of a vector with accumulator a, touched or not, is in [(a+F)·δ, (a+E)·δ].
//
// The score is that sum rounded: n products and n sums, each with a relative error of at most u = 2^-24, differ from the real sum by no
// more than γ·Σ|q·w| ≤ γ·S, γ = (n+1)u/(1−(n+1)u), n ≤ 4096 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). Products below
// the normal float32 lose at most 2^-150 each, far below δ as S is at least 10^-25. With S < 2^28 δ this is less than
// 1.001·(n+1)·16 units, for which slack = 17·(n+2) stands.
//
// If K vectors of different documents have a ≥ t, t ≥ 1, they were touched, so they match, and their scores are at least
// (t+F−slack)·δ. The K-th best score is then at least that, and it is at least the K-th best of the blocks before. A vector with
// a + E + slack below the larger of the two cannot come in, not even as a tie. The others are the survivors. When there are few of them, or
// nothing is left to walk, they are scored from their records, those of the highest accumulators first, as long as the K-th best
// score does not exclude the rest. What has been walked decides only how many survivors there are, never who wins.
//
// Documents with several vectors are bounded through them. MAX: by their best vector, both ways; a value that does not survive is below
// the K-th score and so is not needed to know that the document is out. The other combiners are bounded only if no entry adds a negative
// number: the means (AVG, LOG_SUM_EXP, WEIGHTED_TOP_K) of the matching values are at most the greatest value and, as each weighs greater
// values at least as much as smaller ones, at least the sum divided by the number of all values; SUM is the sum. Their own rounding, for
// up to manyValues values, is below 2^-12 of the result: sums of n terms err by n·2^-24 at most, and the exponentials of LOG_SUM_EXP by
// their rounded argument, |x|·2^-23 ≤ 2^-16 where they are not 0. With negative parts, every matching document is scored.

const (
	unitBits   = 28       // S is below 2^unitBits units
	poison     = -1 << 30 // accumulator of a vector that may not be returned: no walk can make it positive
	manyValues = 256
	tooMany    = 1 << 46 // bound of a document with more values
	histBits   = 11
	// rescoreCost is what it costs to score a survivor, in entries walked.
	rescoreCost = 300
	keepHits    = 1 << 16
	fewEntries  = 128
)

// cursor is the list of one dimension of the query in a block.
type cursor struct {
	list
	q           float64
	a, z        int   // tiers not walked: a ≤ i < z; a short list is one
	oa, oz      int   // their entries
	best, worst int64 // bounds of what they add, 0 included
	gap         int64 // of the walked
}

// key is how much the list can still change the score of a vector, -1 if all of it was walked. A list of zeros, which codes can
// stand for, changes nothing but still has to come before those.
func (c *cursor) key() int64 {
	if c.a == c.z {
		return -1
	}
	return max(c.best, -c.worst)
}

// searcher is the memory of a search.
type searcher struct {
	x       *Index
	q       *Query
	o       Options
	w       Work
	top     topk.Heap
	scratch scratch
	pending int

	b        *block
	acc      [blockVectors]int32
	seen     [blockVectors / 64]uint64
	hist     [1 << histBits]uint32
	cursors  []cursor
	order    []int32 // heap of cursors, greatest key first
	cands    []uint64
	each     bool    // every document has at most one vector
	inv      float64 // 1/δ
	slack    int64
	e, f     int64
	t        int64 // the K-th best score is at least t·δ, if t is positive
	negative bool  // some entry adds a negative number
}

var searchers = sync.Pool{New: func() any { return new(searcher) }}

// Search appends the best documents to dst exactly as Exhaustive does: by score descending, then as o.Before says. The error is that of
// o.Check or o.Combiner, or a *CorruptError.
func (x *Index) Search(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	if len(x.blocks) == 0 || o.K <= 0 {
		return x.Exhaustive(q, o, dst)
	}
	if err := o.Combiner.Check(); err != nil {
		return dst, Work{}, err
	}
	if o.Accept != nil {
		n := 0
		for _, word := range o.Accept {
			n += bits.OnesCount64(word)
		}
		// Any walk looks at every vector; a scan of few documents does not.
		if n*x.scanCost() < x.n {
			return x.Exhaustive(q, o, dst)
		}
	}
	s := searchers.Get().(*searcher)
	s.x, s.q, s.o, s.w, s.each, s.pending = x, q, o, Work{}, x.docs == nil || x.having == x.n, 0
	s.top = topk.Heap{Hits: s.top.Hits[:0], K: o.K, Before: o.Before}
	var err error
	for i := range x.blocks {
		if err = s.block(&x.blocks[i]); err != nil {
			break
		}
	}
	if err == nil {
		s.top.Sort()
		dst = append(dst, s.top.Hits...)
	}
	w := s.w
	s.release()
	return dst, w, err
}

// release gives the memory back for another search.
func (s *searcher) release() {
	if cap(s.top.Hits) > keepHits {
		s.top.Hits = nil
	}
	if cap(s.cands) > blockVectors {
		s.cands = nil
	}
	clear(s.cursors)
	s.x, s.q, s.o, s.b, s.top.Before = nil, nil, Options{}, nil, nil
	searchers.Put(s)
}

// scanCost is what it costs to score a document, in entries walked.
func (x *Index) scanCost() int { return 60 + int(x.nonzeros/uint64(max(1, x.having))) }

// worked tells o.Check of n more vectors or entries.
func (s *searcher) worked(n int) error {
	if s.pending += n; s.pending < checkEvery || s.o.Check == nil {
		return nil
	}
	n, s.pending = s.pending, 0
	return s.o.Check(n)
}

// block offers all that can come in of a block.
func (s *searcher) block(b *block) error {
	s.b = b
	if !b.listed {
		return s.offer(0, b.n)
	}
	left, sum, err := s.find()
	if err != nil || left == 0 {
		return err
	}
	if !(sum > 1e-25 && sum < 1e33) {
		return s.offerMatching(false)
	}
	s.prepare(sum)
	kind := s.o.Combiner.Kind
	if !s.each && kind != score.Max && s.negative {
		return s.offerMatching(false)
	}
	clear(s.acc[:b.n])
	if s.o.Accept != nil {
		n := 0
		for i := range b.n {
			if accepts(s.o.Accept, s.x.Doc(b.first+i)) {
				n++
			} else {
				s.acc[i] = poison
			}
		}
		if n*s.x.scanCost() < left {
			return s.offer(0, b.n)
		}
	}
	all, since, wait := s.e, 0, max(b.n/2, left/8)
	for {
		n := s.walk(&s.cursors[s.order[0]])
		s.fix(0)
		left -= n
		since += n
		s.w.Visited += uint64(n)
		if err := s.worked(n); err != nil {
			return err
		}
		// Counting survivors costs a look at every vector, and there is no use in it while those untouched are among them.
		if left > 0 && (since < wait || s.e > max(s.threshold(), all/2)) {
			continue
		}
		since, wait = 0, wait+wait/4
		if s.each {
			cut, n := s.survivors()
			if left == 0 && cut < 1 {
				return s.offerMatching(true)
			}
			if left == 0 || cut >= 1 && n*rescoreCost <= left {
				return s.offerSurvivors(cut)
			}
		} else {
			n := s.groupSurvivors()
			_, untouched := s.bounds(0, 0, 1)
			if left == 0 && (s.t < 1 || untouched >= s.t) {
				return s.offerMatching(true)
			}
			if left == 0 || s.t >= 1 && untouched < s.t && n*rescoreCost <= left {
				return s.offerGroups()
			}
		}
	}
}

// find reads the lists of the query's dimensions. left is the number of their entries, sum the greatest absolute sum of products.
func (s *searcher) find() (left int, sum float64, err error) {
	s.cursors = s.cursors[:0]
	at := 0
	for i, dim := range s.q.dims {
		k, ok := slices.BinarySearch(s.b.dims[at:], dim)
		if at += k; !ok {
			continue
		}
		l, err := s.b.list(at)
		if err != nil {
			return 0, 0, err
		}
		q := float64(s.q.weights[i])
		s.cursors = append(s.cursors, cursor{list: l, q: q, z: max(1, len(l.tiers)), oz: len(l.ords)})
		left += len(l.ords)
		sum += math.Abs(q) * max(math.Abs(float64(l.greatest())), math.Abs(float64(l.least())))
	}
	return left, sum, nil
}

// prepare sets the unit and the bounds before the first tier.
func (s *searcher) prepare(sum float64) {
	_, exp := math.Frexp(sum)
	s.inv = math.Ldexp(1, unitBits-exp)
	s.slack = int64(len(s.cursors)+2) * 17
	s.e, s.f, s.t, s.negative = 0, 0, 0, false
	s.order = s.order[:0]
	for i := range s.cursors {
		c := &s.cursors[i]
		s.rest(c)
		s.e += c.best
		s.f += c.worst
		s.negative = s.negative || c.worst < 0
		s.order = append(s.order, int32(i))
	}
	for i := len(s.order)/2 - 1; i >= 0; i-- {
		s.fix(i)
	}
}

// rest computes the bounds of a cursor's tiers that were not walked.
func (s *searcher) rest(c *cursor) {
	c.best, c.worst = 0, 0
	if c.a == c.z {
		return
	}
	hi, lo := c.greatest(), c.least()
	if c.tiers != nil {
		hi, lo = c.tiers[c.a].greatest, c.tiers[c.z-1].least
	}
	low, high := s.units(c.q, lo, hi)
	c.best, c.worst = max(0, high), min(0, low)
}

// units bounds q·w for w between lo and hi in units.
func (s *searcher) units(q float64, lo, hi float32) (low, high int64) {
	a, b := q*float64(lo)*s.inv, q*float64(hi)*s.inv
	return int64(math.Floor(min(a, b))), int64(math.Ceil(max(a, b)))
}

// fix lets the cursor at i of the heap sink to its place.
func (s *searcher) fix(i int) {
	h := s.order
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && s.cursors[h[c+1]].key() > s.cursors[h[c]].key() {
			c++
		}
		if s.cursors[h[i]].key() >= s.cursors[h[c]].key() {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// walk adds the next tier of a cursor to the accumulators and returns the number of its entries.
func (s *searcher) walk(c *cursor) int {
	s.e -= max(c.gap, c.best)
	s.f -= c.worst
	n := 0
	switch {
	case c.tiers == nil:
		for i, o := range c.ords {
			s.acc[o] += int32(math.Floor(c.q * float64(c.weights[i]) * s.inv))
		}
		n, c.a, c.gap = len(c.ords), c.z, 1
	default:
		// From the end with the greater weights, signs aside: of a list with signs now this one, now the other. Small tiers are not worth
		// a look at the other lists after each.
		for c.a < c.z && n < fewEntries {
			var t tier
			var ords []uint16
			if abs(c.tiers[c.a].greatest) >= abs(c.tiers[c.z-1].least) {
				t = c.tiers[c.a]
				ords = c.ords[c.oa : c.oa+int(t.n)]
				c.a++
				c.oa += int(t.n)
			} else {
				t = c.tiers[c.z-1]
				ords = c.ords[c.oz-int(t.n) : c.oz]
				c.z--
				c.oz -= int(t.n)
			}
			low, high := s.units(c.q, t.least, t.greatest)
			add := int32(low)
			for _, o := range ords {
				s.acc[o] += add
			}
			n += len(ords)
			c.gap = max(c.gap, high-low)
		}
	}
	s.rest(c)
	s.e += max(c.gap, c.best)
	s.f += c.worst
	return n
}

// threshold is the greatest t known: the K-th best score is at least t·δ. It is 0 as long as nothing is known.
func (s *searcher) threshold() int64 {
	if s.top.Full() {
		s.t = max(s.t, s.worstUnits())
	}
	return s.t
}

// worstUnits is the K-th best score so far in units.
func (s *searcher) worstUnits() int64 {
	return int64(max(-1<<50, min(1<<50, math.Floor(float64(s.top.Hits[0].Score)*s.inv))))
}

// survivors raises the threshold and counts the vectors that survive it, which have an accumulator of at least cut. The number may be
// too high; without a positive cut all do.
func (s *searcher) survivors() (cut int64, n int) {
	// What is below base neither survives nor raises the threshold.
	base := max(1, s.threshold()-s.e-s.slack)
	shift := unitBits + 1 - histBits
	from := int32(min(base, math.MaxInt32))
	clear(s.hist[:])
	for _, a := range s.acc[:s.b.n] {
		if a >= from {
			s.hist[(a-from)>>shift&(1<<histBits-1)]++
		}
	}
	if k := s.o.K; k <= s.b.n {
		for i := len(s.hist) - 1; i >= 0; i-- {
			if k -= int(s.hist[i]); k <= 0 {
				s.t = max(s.t, base+int64(i)<<shift+s.f-s.slack)
				break
			}
		}
	}
	cut = s.t - s.e - s.slack
	if cut < 1 {
		return cut, s.b.n
	}
	for i := max(0, cut-base) >> shift; i < int64(len(s.hist)); i++ {
		n += int(s.hist[i])
	}
	return cut, n
}

// offerSurvivors scores the vectors whose accumulators are at least cut.
func (s *searcher) offerSurvivors(cut int64) error {
	s.cands = s.cands[:0]
	if cut > math.MaxInt32 {
		return nil
	}
	for i, a := range s.acc[:s.b.n] {
		if a >= int32(cut) {
			s.cands = append(s.cands, uint64(int64(a)+s.e+s.slack)<<16|uint64(i))
		}
	}
	return s.offerBest()
}

// offerBest scores the candidates, those with the highest bounds first. A candidate is its bound and the first vector of its document.
func (s *searcher) offerBest() error {
	slices.Sort(s.cands)
	for i := len(s.cands) - 1; i >= 0; i-- {
		c := s.cands[i]
		if s.top.Full() && int64(c>>16) < s.worstUnits() {
			return nil
		}
		first := int(uint16(c))
		end := s.groupEnd(first)
		s.w.Rescored += uint64(end - first)
		if err := s.offerGroup(first, end); err != nil {
			return err
		}
	}
	return nil
}

// groupEnd is the end of the vectors of the document whose first is vector i of the block.
func (s *searcher) groupEnd(i int) int {
	if s.each {
		return i + 1
	}
	docs := s.x.docs[s.b.first:][:s.b.n]
	j := i + 1
	for j < len(docs) && docs[j] == docs[i] {
		j++
	}
	return j
}

// offerGroup scores the document of the vectors from ≤ i < to of the block.
func (s *searcher) offerGroup(from, to int) error {
	s.w.Distances += uint64(to - from)
	if v, ok := s.x.combined(s.q, s.o.Combiner, s.b.first+from, s.b.first+to, &s.scratch); ok {
		s.top.Push(Hit{Doc: s.x.Doc(s.b.first + from), Score: v})
	}
	return s.worked(to - from)
}

// offer scores all documents of the vectors from ≤ i < to of the block that may be returned.
func (s *searcher) offer(from, to int) error {
	for i := from; i < to; {
		j := s.groupEnd(i)
		if accepts(s.o.Accept, s.x.Doc(s.b.first+i)) {
			s.w.Visited += uint64(j - i)
			if err := s.offerGroup(i, j); err != nil {
				return err
			}
		}
		i = j
	}
	return nil
}

// offerMatching scores every document that shares a dimension with the query and may be returned. With bounds, it leaves out those
// whose accumulators exclude them.
func (s *searcher) offerMatching(bounded bool) error {
	clear(s.seen[:])
	for i := range s.cursors {
		for _, o := range s.cursors[i].ords {
			s.seen[o>>6] |= 1 << (o & 63)
		}
		s.w.Visited += uint64(len(s.cursors[i].ords))
		if err := s.worked(len(s.cursors[i].ords)); err != nil {
			return err
		}
	}
	for i := 0; i < s.b.n; {
		if i&63 == 0 && s.seen[i>>6] == 0 && s.each {
			i += 64
			continue
		}
		j := s.groupEnd(i)
		touched := false
		for k := i; k < j && !touched; k++ {
			touched = s.seen[k>>6]>>(k&63)&1 != 0
		}
		if touched && accepts(s.o.Accept, s.x.Doc(s.b.first+i)) && !(bounded && s.each && s.top.Full() && int64(s.acc[i])+s.e+s.slack < s.worstUnits()) {
			s.w.Rescored += uint64(j - i)
			if err := s.offerGroup(i, j); err != nil {
				return err
			}
		}
		i = j
	}
	return nil
}

// bounds gives bounds in units of the score of a document with the vectors i ≤ k < j of the block, or with one untouched vector if i is j:
// low is a bound only if it is positive.
func (s *searcher) bounds(i, j, n int) (low, high int64) {
	top, sum := int64(0), int64(0)
	if i < j {
		n, top = j-i, math.MinInt64
	}
	for _, a := range s.acc[i:j] {
		top, sum = max(top, int64(a)), sum+int64(a)
	}
	switch {
	case top <= poison/2:
		return 0, 0
	case n == 1 || s.o.Combiner.Kind == score.Max:
		if low = 0; top > 0 {
			low = top + s.f - s.slack
		}
		return low, top + s.e + s.slack
	case n > manyValues:
		return 0, tooMany
	case s.o.Combiner.Kind == score.Sum:
		low, high = sum-int64(n)*s.slack, sum+int64(n)*(s.e+s.slack)
	default:
		low, high = sum/int64(n)-s.slack, top+s.e+s.slack
	}
	return low - low>>12, high + high>>12 + 1
}

// groupSurvivors raises the threshold and counts the documents that survive it.
func (s *searcher) groupSurvivors() (n int) {
	base, most, docs := max(1, s.threshold()), int64(0), 0
	for i := 0; i < s.b.n; docs++ {
		j := s.groupEnd(i)
		low, _ := s.bounds(i, j, 0)
		most = max(most, low)
		i = j
	}
	if k := s.o.K; k <= docs && most >= base {
		shift := max(0, bits.Len64(uint64(most-base))-histBits)
		clear(s.hist[:])
		for i := 0; i < s.b.n; {
			j := s.groupEnd(i)
			if low, _ := s.bounds(i, j, 0); low >= base {
				s.hist[(low-base)>>shift]++
			}
			i = j
		}
		for i := len(s.hist) - 1; i >= 0; i-- {
			if k -= int(s.hist[i]); k <= 0 {
				s.t = max(s.t, base+int64(i)<<shift)
				break
			}
		}
	}
	for i := 0; i < s.b.n; {
		j := s.groupEnd(i)
		if _, high := s.bounds(i, j, 0); high >= s.t {
			n++
		}
		i = j
	}
	return n
}

// offerGroups scores the documents that survive the threshold.
func (s *searcher) offerGroups() error {
	s.cands = s.cands[:0]
	for i := 0; i < s.b.n; {
		j := s.groupEnd(i)
		if _, high := s.bounds(i, j, 0); high >= s.t {
			s.cands = append(s.cands, uint64(min(max(high, 0), tooMany))<<16|uint64(i))
		}
		i = j
	}
	return s.offerBest()
}
