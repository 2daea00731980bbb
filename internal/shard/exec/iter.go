package exec

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// iterator walks the documents of a leaf that match a part of a query, dead ones included.
//
// Laws: seek(t) returns the first match at or after t, or noDoc; targets never go down, and a target at or below the current
// match returns that match. score is that of the match seek returned last.
type iterator interface {
	seek(target uint32) uint32
	score() float32
	cost() int // about how many documents it has
}

// generic searches a leaf with iterators: any shape, no pruning but that of phrases.
func (s *searcher) generic(l Leaf, li int, root *node, res *Result, wantCount bool) error {
	if s.top.k == 0 && !wantCount {
		return nil
	}
	if wantCount && s.top.k == 0 {
		switch root.kind {
		case kindAll:
			res.Total += uint64(s.liveN)
			return nil
		case kindPrefix:
			return s.countPrefix(l, li, root, res)
		}
	}
	it, err := s.iterator(l, li, root)
	if err != nil {
		return err
	}
	if it == nil {
		return nil
	}
	ph, _ := it.(*phraseIter)
	if s.req.Exhaustive {
		ph = nil
	}
	live := s.live
	for doc := it.seek(nextIn(live, 0)); doc != noDoc; doc = it.seek(doc + 1) {
		if err := s.check(8); err != nil {
			return err
		}
		if live != nil && !live.Has(doc) {
			doc = nextIn(live, doc)
			if doc == noDoc {
				break
			}
			doc-- // the iterator goes on to the next live document
			continue
		}
		if wantCount {
			res.Total++
			if s.req.Total == TotalAtLeast && res.Total >= s.req.TotalFloor {
				res.TotalRelation = AtLeast
				wantCount = false
			}
		}
		if s.top.k > 0 {
			s.top.add(li, doc, it.score())
			if ph != nil && !wantCount && len(s.top.heap) == s.top.k {
				ph.floor = s.top.thr
			}
		} else if !wantCount {
			break
		}
	}
	return s.failed
}

// iterator builds the iterator of a node on a leaf; nil when nothing can match.
func (s *searcher) iterator(l Leaf, li int, n *node) (iterator, error) {
	it, err := s.bare(l, li, n)
	if err != nil || it == nil || !n.boosted || n.kind == kindTerm {
		return it, err // a term's cursor has its factor
	}
	return &boostIter{it, n.boost}, nil
}

func (s *searcher) bare(l Leaf, li int, n *node) (iterator, error) {
	switch n.kind {
	case kindNone:
		return nil, nil
	case kindAll:
		return &rangeOfDocs{n: l.NumDocs()}, nil
	case kindTerm:
		t := &s.terms[n.term]
		if !t.posts[li].ok {
			return nil, nil
		}
		return (*termIter)(s.newCursor(l, li, n, t, t.idf)), nil
	case kindBool:
		return s.boolIter(l, li, n)
	case kindPhrase:
		return s.phraseIter(l, li, n)
	case kindPrefix:
		return s.prefixIter(l, li, n)
	case kindGiven:
		return s.givenIter(li, n), nil
	case kindExists:
		if has := l.Present(n.field); has != nil {
			return &filterIter{s: s, n: l.NumDocs(), has: has, live: s.live}, nil
		}
		return nil, nil
	case kindNumRange, kindNumTerms, kindStrRange, kindStrTerms:
		if c := newColumnTest(l, n); c != nil {
			return &filterIter{s: s, n: l.NumDocs(), has: c.has, skip: c.skip, live: s.live}, nil
		}
		return nil, nil
	}
	return nil, fmt.Errorf("search: no iterator for a node of kind %d", n.kind)
}

type termIter cursor

func (t *termIter) seek(target uint32) uint32 {
	c := (*cursor)(t)
	return c.seek(target)
}
func (t *termIter) score() float32 { return (*cursor)(t).score() }
func (t *termIter) cost() int      { return t.df }

type boostIter struct {
	iterator
	factor float32
}

func (b *boostIter) score() float32 { return float32(b.factor * b.iterator.score()) }

// rangeOfDocs matches every document with score 1.
type rangeOfDocs struct{ n uint32 }

func (r *rangeOfDocs) seek(target uint32) uint32 {
	if target >= r.n {
		return noDoc
	}
	return target
}
func (r *rangeOfDocs) score() float32 { return 1 }
func (r *rangeOfDocs) cost() int      { return int(r.n) }

// filterIter tests documents one after the other; it scores 1. skip, where there is one, jumps over documents that cannot match.
// Documents outside live are not tested: no search returns them, whatever part of the query this is.
type filterIter struct {
	s    *searcher
	n    uint32
	cur  uint32
	on   bool
	has  func(doc uint32) bool
	skip func(doc uint32) uint32
	live bitset.Set // nil: all
}

func (f *filterIter) seek(target uint32) uint32 {
	if f.on && target <= f.cur {
		return f.cur
	}
	f.on = true
	for d := target; d < f.n; d++ {
		if f.skip != nil {
			if d = f.skip(d); d >= f.n {
				break
			}
		}
		if err := f.s.check(1); err != nil {
			f.s.failed = err
			break
		}
		if f.live != nil && !f.live.Has(d) {
			d = nextIn(f.live, d)
			if d == noDoc {
				break
			}
			d-- // it is looked at in the next round, after skip
			continue
		}
		if f.has(d) {
			f.cur = d
			return d
		}
	}
	f.cur = noDoc
	return noDoc
}
func (f *filterIter) score() float32 { return 1 }
func (f *filterIter) cost() int      { return int(f.n) }

// givenIter walks a list of documents with scores.
type givenIter struct {
	docs   []uint32
	scores []float32
	i      int
}

func (s *searcher) givenIter(li int, n *node) iterator {
	g := s.req.Given[n.given]
	if li >= len(g) || len(g[li].Docs) == 0 {
		return nil
	}
	return &givenIter{docs: g[li].Docs, scores: g[li].Scores}
}

func (g *givenIter) seek(target uint32) uint32 {
	// Most moves are short: the reach doubles until it is behind the target.
	lo, hi := g.i, g.i
	for step := 1; hi < len(g.docs) && g.docs[hi] < target; step *= 2 {
		lo, hi = hi+1, hi+step
	}
	i, _ := slices.BinarySearch(g.docs[lo:min(hi, len(g.docs))], target)
	if g.i = lo + i; g.i == len(g.docs) {
		return noDoc
	}
	return g.docs[g.i]
}
func (g *givenIter) score() float32 { return g.scores[g.i] }
func (g *givenIter) cost() int      { return len(g.docs) }

// boolIter matches where every required part does and no prohibited one.
type boolIter struct {
	lead    []iterator // required, cheapest first
	must    []iterator // required that score, in order of summation
	should  []iterator
	not     []iterator
	cur     uint32
	on      bool
	noScore bool
}

func (s *searcher) boolIter(l Leaf, li int, n *node) (iterator, error) {
	b := &boolIter{}
	for _, k := range n.must {
		it, err := s.iterator(l, li, k)
		if err != nil || it == nil {
			return nil, err
		}
		b.must = append(b.must, it)
		b.lead = append(b.lead, it)
	}
	for _, k := range n.filter {
		it, err := s.iterator(l, li, k)
		if err != nil || it == nil {
			return nil, err
		}
		b.lead = append(b.lead, it)
	}
	for _, k := range n.should {
		it, err := s.iterator(l, li, k)
		if err != nil {
			return nil, err
		}
		if it != nil {
			b.should = append(b.should, it)
		}
	}
	for _, k := range n.not {
		it, err := s.iterator(l, li, k)
		if err != nil {
			return nil, err
		}
		if it != nil {
			b.not = append(b.not, it)
		}
	}
	if len(n.must)+len(n.filter) == 0 {
		switch {
		case len(n.should) > 0 && len(b.should) == 0:
			return nil, nil
		case len(n.should) > 0:
			u := &unionIter{kids: b.should, at: make([]uint32, len(b.should))}
			if len(b.not) == 0 {
				return u, nil
			}
			b.must, b.lead, b.should = []iterator{u}, []iterator{u}, nil
		case len(n.not) > 0: // every other document, score 0
			b.lead = []iterator{&rangeOfDocs{n: l.NumDocs()}}
			b.noScore = true
		default:
			return nil, nil
		}
	}
	slices.SortStableFunc(b.lead, func(x, y iterator) int { return x.cost() - y.cost() })
	return b, nil
}

func (b *boolIter) seek(target uint32) uint32 {
	if b.on && target <= b.cur { // the prohibited parts may have gone on, so it cannot be found again
		return b.cur
	}
	b.on = true
	doc := b.lead[0].seek(target)
next:
	for doc != noDoc {
		for _, it := range b.lead[1:] {
			if d := it.seek(doc); d != doc {
				doc = b.lead[0].seek(d)
				continue next
			}
		}
		for _, it := range b.not {
			if it.seek(doc) == doc {
				doc = b.lead[0].seek(doc + 1)
				continue next
			}
		}
		break
	}
	b.cur = doc
	return doc
}

func (b *boolIter) score() float32 {
	var sum float32
	if b.noScore {
		return 0
	}
	for _, it := range b.must {
		sum += it.score()
	}
	for _, it := range b.should {
		if it.seek(b.cur) == b.cur {
			sum += it.score()
		}
	}
	return sum
}

func (b *boolIter) cost() int { return b.lead[0].cost() }

// unionIter matches where any part does; the score is the sum over those, in order.
type unionIter struct {
	kids []iterator
	at   []uint32
	cur  uint32
	on   bool
}

func (u *unionIter) seek(target uint32) uint32 {
	if u.on && target <= u.cur {
		return u.cur
	}
	best := uint32(noDoc)
	for i, k := range u.kids {
		if !u.on || u.at[i] < target {
			u.at[i] = k.seek(target)
		}
		best = min(best, u.at[i])
	}
	u.on, u.cur = true, best
	return best
}

func (u *unionIter) score() float32 {
	var sum float32
	for i, k := range u.kids {
		if u.at[i] == u.cur {
			sum += k.score()
		}
	}
	return sum
}

func (u *unionIter) cost() int {
	n := 0
	for _, k := range u.kids {
		n += k.cost()
	}
	return n
}

// scoredSet is a set of documents with their scores.
type scoredSet struct {
	docs bitset.Set
	rank []uint32  // of every eighth word of docs: members before it
	sc   []float32 // by rank
	cur  uint32
	n    int
}

func (p *scoredSet) seek(target uint32) uint32 {
	p.cur = nextIn(p.docs, target)
	return p.cur
}

func (p *scoredSet) score() float32 {
	w := int(p.cur >> 6)
	i := int(p.rank[w/rankWords])
	for _, x := range p.docs[w/rankWords*rankWords : w] {
		i += bits.OnesCount64(x)
	}
	return p.sc[i+bits.OnesCount64(p.docs[w]&(1<<(p.cur&63)-1))]
}

func (p *scoredSet) cost() int { return p.n }

// rankWords is the number of words of a scoredSet between two ranks.
const rankWords = 8

// nextIn returns the first member at or after target, noDoc when there is none. A nil set has every document.
func nextIn(set bitset.Set, target uint32) uint32 {
	if set == nil {
		return target
	}
	w := int(target >> 6)
	if w >= len(set) {
		return noDoc
	}
	x := set[w] >> (target & 63) << (target & 63)
	for x == 0 {
		if w++; w >= len(set) {
			return noDoc
		}
		x = set[w]
	}
	return uint32(w<<6 + bits.TrailingZeros64(x))
}

// forEach calls fn for every member, ascending.
func forEach(set bitset.Set, fn func(doc uint32) error) error {
	for w, x := range set {
		for ; x != 0; x &= x - 1 {
			if err := fn(uint32(w<<6 + bits.TrailingZeros64(x))); err != nil {
				return err
			}
		}
	}
	return nil
}
