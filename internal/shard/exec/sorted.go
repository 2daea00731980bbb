package exec

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/longsort"
)

// sorter finds the first documents in an order that is not the one by score.
//
// On a leaf every key of a document becomes a code, smaller for what stands earlier: numbers and scores as they are, texts as
// places in the leaf's dictionary, so that documents of one leaf compare as integers. What the leaves before left as the last
// document that still counts, and the place behind which the caller wants to go on, are put into the codes of each leaf in turn.
type sorter struct {
	s      *searcher
	keys   []sortKey
	n      int  // keys that decide; those behind one by id do not
	idDesc bool // the id, which decides last, descends
	scored bool // one of the first n is by score
	named  bool // any key is
	all    []SortKey
	k      int
	after  *After
	best   []Hit // of the leaves so far, in order, at most k
	merged []Hit // room for the next best

	// The leaf that is searched.
	l       Leaf
	li      int
	ordered bool
	it      iterator // standing on the document that is offered, when scored
	cols    []sortColumn
	limit   place // of the last of best once there are k
	from    place // of after
	heap    []int32
	spare   []int32 // to sort it with
	codes   []code  // n for each slot, and those of the candidate behind them
	docs    []uint32
	scores  []float32
	cand    []code
	sc      float32 // score of the candidate
	offered uint64
	blocks  []sortBlock
	vals    []uint64
	ords    []uint32
	ka, kb  []byte
}

// sortKey is a key with its field.
type sortKey struct {
	SortKey
	field    int
	text     bool
	greatest bool
}

// sortColumn is the column of a key on the leaf; neither is set when it has none, or for a key by score.
type sortColumn struct {
	nums NumColumn
	strs StrColumn
}

// code is a value as a number, in its class: first the documents that stand before all values, then values, then those behind.
type code struct {
	v     uint64
	class uint8
}

const (
	classFirst = iota
	classValue
	classLast
)

func (a code) cmp(b code) int {
	switch {
	case a == b:
		return 0
	case a.class != b.class:
		return int(a.class) - int(b.class)
	case a.v < b.v:
		return -1
	}
	return 1
}

// place is a point of the order on one leaf.
type place struct {
	on    bool
	codes []code
	key   []byte
	doc   uint32 // in a leaf ordered by key: the first document whose key is not below
	same  bool   // and it is that document's
}

// readOrder reads the order of a request; nil is the one by score descending.
func (s *searcher) readOrder() (*sorter, error) {
	req := s.req
	if len(req.Sort) > MaxSortKeys {
		return nil, &QueryError{Code: "too_many_sort_keys", Field: "sort", Reason: fmt.Sprintf("an order has at most %d keys", MaxSortKeys), Limit: MaxSortKeys}
	}
	if len(req.Sort) == 0 && req.After == nil {
		return nil, nil
	}
	so := &s.so
	so.s, so.all, so.n, so.after = s, req.Sort, len(req.Sort), req.After
	decided := false
	for i, k := range req.Sort {
		sk := sortKey{SortKey: k}
		switch k.By {
		case ByScore:
			so.named, so.scored = true, so.scored || !decided
		case ByID:
			if !decided {
				so.n, so.idDesc, decided = i, k.Desc, true
			}
		case ByField:
			f, err := s.lookup(k.Field)
			if err != nil {
				return nil, err
			}
			fd := &s.schema.Fields[f]
			switch fd.Type {
			case schema.Text:
				sk.text = true
			case schema.U64, schema.I64, schema.F64, schema.Date:
			default:
				return nil, &QueryError{Code: "field_not_sortable", Field: fd.Name, Reason: describe(fd) + " has no order; sort by a number, a date or a text with a column"}
			}
			if !fd.Fast {
				return nil, &QueryError{Code: "field_not_sortable", Field: fd.Name, Reason: "a sort needs a column; declare the field as fast"}
			}
			sk.field = f
			sk.greatest = k.Mode == Greatest || k.Mode == AnyMode && k.Desc
		default:
			return nil, fmt.Errorf("search: sort key %d is of no known kind", i+1)
		}
		so.keys = append(so.keys, sk)
	}
	if err := so.checkAfter(); err != nil {
		return nil, err
	}
	byScore := len(req.Sort) == 0 || req.Sort[0].By == ByScore && req.Sort[0].Desc && (len(req.Sort) == 1 || len(req.Sort) == 2 && req.Sort[1].By == ByID && !req.Sort[1].Desc)
	if byScore || req.Limit == 0 {
		so.reset()
		return nil, nil
	}
	so.k = s.window()
	return so, nil
}

// reset keeps the memory of a sorter for the next search, and nothing else.
func (so *sorter) reset() {
	clear(so.best)
	clear(so.merged)
	clear(so.cols)
	clear(so.keys)
	*so = sorter{
		keys: so.keys[:0], best: small(so.best), merged: small(so.merged), cols: so.cols[:0],
		limit: place{codes: so.limit.codes, key: so.limit.key}, from: place{codes: so.from.codes, key: so.from.key},
		heap: small(so.heap), spare: small(so.spare), codes: small(so.codes), docs: small(so.docs), scores: small(so.scores), cand: so.cand,
		blocks: so.blocks[:0], vals: small(so.vals), ords: small(so.ords), ka: small(so.ka), kb: small(so.kb),
	}
}

// small empties a slice and lets go of one that is too large to be kept.
func small[T any](s []T) []T {
	if cap(s) > 1024 {
		return nil
	}
	return s[:0]
}

// checkAfter refuses a place that is not one of this order.
func (so *sorter) checkAfter() error {
	a := so.after
	if a == nil {
		return nil
	}
	bad := func(reason string) error { return &QueryError{Code: "invalid_after", Field: "after", Reason: reason} }
	if want := max(1, len(so.keys)); len(a.Values) != want {
		return bad(fmt.Sprintf("the place to go on from has %d values, the order %d keys", len(a.Values), want))
	}
	for i, v := range a.Values {
		want := ScoreValue
		if i < len(so.keys) {
			switch k := &so.keys[i]; {
			case k.By == ByID:
				want = TextValue
			case k.By == ByField && k.text:
				want = TextValue
			case k.By == ByField:
				want = NumberValue
			}
			if so.keys[i].By == ByField && v.Kind == MissingValue {
				continue
			}
		}
		if i < len(so.keys) && so.keys[i].By == ByField && so.keys[i].field >= so.s.known {
			if v.Kind == NumberValue || v.Kind == TextValue { // what kind of field it is, is not known here
				continue
			}
		}
		if v.Kind != want || v.Score != v.Score {
			return bad(fmt.Sprintf("value %d of the place to go on from is not one of the order's key", i+1))
		}
	}
	return nil
}

// constantOrder is the order by score of a query that gives every match the same score, or nil: only the id decides, and no document
// has to be scored to find the first.
func (s *searcher) constantOrder(root *node) *sorter {
	if s.req.Exhaustive || s.req.Limit == 0 || s.req.ByPlace {
		return nil
	}
	switch root.kind {
	case kindAll, kindExists, kindNumRange, kindStrRange, kindNumTerms, kindStrTerms:
	default:
		return nil
	}
	so := &s.so
	so.s, so.k, so.after = s, s.window(), nil
	if a := s.req.After; a != nil {
		c := float32(1)
		if root.boosted {
			c = float32(root.boost * 1)
		}
		switch {
		case a.Values[0].Score == c:
			so.after = a
		case a.Values[0].Score < c:
			so.k = 0 // every match stands before
		}
	}
	return so
}

// needStats tells whether anything of the answer depends on statistics.
func (so *sorter) needStats(s *searcher) bool {
	return so.named || !s.req.NoScores || len(s.capped) > 0
}

// sorted finds the hits of an order.
func (s *searcher) sorted(so *sorter, root *node, res *Result) error {
	err := s.eachLeaf(func(li int, tr *LeafTrace) error { return so.leaf(li, root, res, tr) })
	if err != nil {
		if err = s.partial(res, err); err != nil {
			return err
		}
	}
	best := so.best[min(s.req.Offset, len(so.best)):]
	res.Hits = append(make([]Hit, 0, len(best)), best...)
	if !so.scored && (so.named || !s.req.NoScores || len(so.keys) == 0) {
		if err := s.scoreHits(root, res.Hits); err != nil {
			if err = s.partial(res, err); err != nil {
				return err
			}
			res.Hits = res.Hits[:0] // found, but without the scores that were asked for
		}
	}
	if len(so.keys) == 0 && len(s.req.Sort) > 0 { // by the score that all have, and perhaps by id
		for i := range res.Hits {
			res.Hits[i].Sort = scoreValues(s.req.Sort, &res.Hits[i])
		}
	}
	for i := range res.Hits {
		h := &res.Hits[i]
		for j := range so.keys {
			if so.keys[j].By == ByScore {
				h.Sort[j].Score = h.Score
			}
		}
	}
	return nil
}

// scoreHits computes the scores of hits, leaf by leaf.
func (s *searcher) scoreHits(root *node, hits []Hit) error {
	order := make([]int, len(hits))
	for i := range order {
		order[i] = i
	}
	order, _, err := longsort.Sort(order, nil, func(a, b int) int {
		if hits[a].Leaf != hits[b].Leaf {
			return hits[a].Leaf - hits[b].Leaf
		}
		return int(hits[a].Doc) - int(hits[b].Doc)
	}, s.ended)
	if err != nil {
		return err
	}
	s.exact = true
	for len(order) > 0 {
		li := hits[order[0]].Leaf
		l := s.leaves[li]
		s.live, s.liveN, s.filtered = l.Live(), l.LiveDocs(), false
		s.startSlots()
		it, err := s.iterator(l, li, root)
		if err != nil {
			return err
		}
		for len(order) > 0 && hits[order[0]].Leaf == li {
			if err := s.check(8); err != nil {
				return err
			}
			h := &hits[order[0]]
			if it == nil || it.seek(h.Doc) != h.Doc {
				if s.failed != nil {
					return s.failed
				}
				if err := l.Err(); err != nil {
					return err
				}
				return fmt.Errorf("search: document %d of leaf %d was found and is not found again", h.Doc, li)
			}
			h.Score = it.score()
			order = order[1:]
		}
		s.leave()
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// leaf searches one leaf.
func (so *sorter) leaf(li int, root *node, res *Result, tr *LeafTrace) error {
	s := so.s
	if s.liveN == 0 {
		return nil
	}
	so.l, so.li = s.leaves[li], li
	if so.k > 0 {
		so.start()
	}
	if tr != nil {
		tr.Path = "set"
		if so.scored {
			tr.Path = "walk"
		}
		before := so.offered
		defer func() { tr.Offered = so.offered - before }()
	}
	var err error
	if so.scored {
		err = so.walk(root, res)
	} else {
		err = so.bySet(root, res)
	}
	if so.k > 0 && (err == nil || s.passedInPart(err)) {
		if failed := so.merge(); failed != nil {
			return failed
		}
	}
	return err
}

// walk visits the matches with their scores.
func (so *sorter) walk(root *node, res *Result) error {
	s := so.s
	s.exact = true
	s.startSlots()
	it, err := s.iterator(so.l, so.li, root)
	if err != nil || it == nil {
		return err
	}
	so.it = it
	for doc := it.seek(nextIn(s.live, 0)); doc != noDoc; doc = it.seek(doc + 1) {
		if err := s.check(8); err != nil {
			return err
		}
		if s.live != nil && !s.live.Has(doc) {
			if doc = nextIn(s.live, doc); doc == noDoc {
				break
			}
			doc-- // the iterator goes on to the next live document
			continue
		}
		res.Total++
		so.offer(doc)
	}
	return s.failed
}

// bySet finds all matches at once and then looks at their columns.
func (so *sorter) bySet(root *node, res *Result) error {
	s := so.s
	set, n, err := s.matches(so.li, root)
	if err != nil {
		return err
	}
	defer s.drop(set)
	res.Total += uint64(n)
	if so.k == 0 || n == 0 {
		return nil
	}
	members := set.bits
	if set.all {
		members = nil
	}
	if so.n == 0 {
		return so.byID(members)
	}
	return so.byColumn(members)
}

// matches returns the accepted documents of a leaf that a node finds, and their number. all says that every document of the leaf is one.
func (s *searcher) matches(li int, n *node) (docSet, uint32, error) {
	l := s.leaves[li]
	have := docSet{all: true}
	if s.live != nil {
		have = docSet{bits: s.live, shared: true}
	}
	set, err := s.intersect(l, li, have, n, s.findCost(l, li, n), true)
	if err != nil || set.empty() {
		return docSet{}, 0, err
	}
	return set, set.count(l), nil
}

// byID offers documents of a leaf in the order that ends soonest.
func (so *sorter) byID(members bitset.Set) error {
	num := so.l.NumDocs()
	if so.ordered && so.idDesc {
		for d := num; d > 0; d-- {
			if members != nil {
				word := members[(d-1)>>6] << (63 - (d-1)&63)
				if word == 0 {
					d = (d-1)&^63 + 1 // the loop goes on below this word
					continue
				}
				d -= uint32(bits.LeadingZeros64(word))
			}
			if err := so.s.check(1); err != nil {
				return err
			}
			if so.offer(d - 1); len(so.heap) == so.k {
				return nil
			}
		}
		return nil
	}
	first := uint32(0)
	if so.ordered && !so.idDesc {
		if so.from.on {
			first = so.from.doc
		}
		if so.limit.on {
			num = min(num, so.limit.doc)
		}
	}
	for d := nextIn(members, first); d < num; d = nextIn(members, d+1) {
		if err := so.s.check(1); err != nil {
			return err
		}
		if so.offer(d); so.ordered && len(so.heap) == so.k {
			return nil
		}
	}
	return nil
}

// byColumn offers documents block by block of the first key's column and leaves out blocks that have nothing for the answer.
func (so *sorter) byColumn(members bitset.Set) error {
	s, k, col := so.s, &so.keys[0], so.cols[0]
	var reader BlockReader
	var rangeOf func(b int) (lo, hi uint64, ok bool)
	switch {
	case col.nums != nil:
		reader, _ = col.nums.(BlockReader)
		rangeOf = col.nums.BlockRange
	case col.strs != nil:
		reader, _ = col.strs.(BlockReader)
		if b, ok := col.strs.(ordBlocks); ok {
			rangeOf = func(i int) (uint64, uint64, bool) {
				lo, hi, ok := b.BlockRange(i)
				return 2*uint64(lo) + 1, 2*uint64(hi) + 1, ok
			}
		}
	}
	if reader != nil && s.block == nil {
		s.block = new([ColumnBlock]uint64)
	}
	num := int(so.l.NumDocs())
	so.blocks = so.blocks[:0]
	for b := 0; b*ColumnBlock < num; b++ {
		best := code{} // no bound
		if rangeOf != nil && !k.MissingFirst {
			lo, hi, ok := rangeOf(b)
			switch {
			case !ok:
				best = k.missing()
			case k.Desc:
				best = k.code(hi)
			default:
				best = k.code(lo)
			}
		}
		so.blocks = append(so.blocks, sortBlock{best, b})
	}
	// The best blocks first: once they fill the answer the others are left out.
	slices.SortFunc(so.blocks, func(a, b sortBlock) int { return cmp.Or(a.best.cmp(b.best), a.b-b.b) })
	for _, blk := range so.blocks {
		b := blk.b
		first, end := b*ColumnBlock, min((b+1)*ColumnBlock, num)
		if so.useless(blk.best, uint32(first)) {
			continue
		}
		words := members
		n := end - first
		if members != nil {
			words = members[first/64 : (end+63)/64]
			if n = words.Count(); n == 0 {
				continue
			}
		}
		if err := s.check(n); err != nil {
			return err
		}
		if reader != nil && n >= ColumnBlock/16 {
			if got, ok := reader.ReadBlock(b, s.block); ok {
				for i, v := range s.block[:min(got, end-first)] {
					if members != nil && words[i>>6]>>(i&63)&1 == 0 {
						continue
					}
					if k.text {
						v = 2*v + 1
					}
					so.offerCode(uint32(first+i), k.code(v))
				}
				continue
			}
		}
		for d := nextIn(members, uint32(first)); d < uint32(end); d = nextIn(members, d+1) {
			so.offer(d)
		}
	}
	return nil
}

// sortBlock is a block of the first key's column and the best code that a document in it can have; the zero code is a bound of all.
type sortBlock struct {
	best code
	b    int
}

// useless tells whether no document from first on whose first code is not below best can enter the answer.
func (so *sorter) useless(best code, first uint32) bool {
	if so.limit.on && best.cmp(so.limit.codes[0]) > 0 {
		return true
	}
	if len(so.heap) < so.k {
		return false
	}
	root := so.heap[0]
	c := best.cmp(so.codes[int(root)*so.n])
	return c > 0 || c == 0 && so.n == 1 && so.ordered && !so.idDesc && first > so.docs[root]
}

// code is the code of a value: a number, or a place in the dictionary.
func (k *sortKey) code(v uint64) code {
	if k.Desc {
		v = ^v
	}
	return code{v, classValue}
}

func (k *sortKey) missing() code {
	if k.MissingFirst {
		return code{0, classFirst}
	}
	return code{0, classLast}
}

func scoreCode(f float32) uint64 {
	u := math.Float32bits(f + 0) // −0 + 0 = +0
	if u>>31 != 0 {
		return uint64(^u)
	}
	return uint64(u | 1<<31)
}

// codeOf is the code of key i for a document; for a key by score, the one that the iterator stands on.
func (so *sorter) codeOf(i int, doc uint32) code {
	k, c := &so.keys[i], so.cols[i]
	switch {
	case k.By == ByScore:
		so.sc = so.it.score()
		return k.code(scoreCode(so.sc))
	case c.nums != nil:
		so.vals = c.nums.Values(doc, so.vals[:0])
		if len(so.vals) > 0 {
			if k.greatest {
				return k.code(slices.Max(so.vals))
			}
			return k.code(slices.Min(so.vals))
		}
	case c.strs != nil:
		so.ords = c.strs.Ords(doc, so.ords[:0])
		if len(so.ords) > 0 {
			o := slices.Min(so.ords)
			if k.greatest {
				o = slices.Max(so.ords)
			}
			return k.code(2*uint64(o) + 1)
		}
	}
	return k.missing()
}

// start prepares for a leaf.
func (so *sorter) start() {
	so.ordered = so.l.KeyOrdered()
	so.it = nil
	so.heap, so.docs, so.codes, so.scores = so.heap[:0], so.docs[:0], so.codes[:0], so.scores[:0]
	so.cols = so.cols[:0]
	for i := range so.keys {
		var c sortColumn
		switch k := &so.keys[i]; {
		case k.By != ByField:
		case k.text:
			c.strs = so.l.StrColumn(k.field)
		default:
			c.nums = so.l.NumColumn(k.field)
		}
		so.cols = append(so.cols, c)
	}
	so.cand = slices.Grow(so.cand[:0], so.n)[:so.n]
	so.limit.on, so.from.on = false, false
	if len(so.best) == so.k {
		last := &so.best[so.k-1]
		so.limit = so.placeOf(so.limit, last.Sort, last.Key)
	}
	if so.after != nil {
		so.from = so.placeOf(so.from, so.after.Values, so.after.Key)
	}
}

// placeOf puts a place of the order into the codes of the leaf.
func (so *sorter) placeOf(p place, values []SortValue, key string) place {
	p.on = true
	p.codes = p.codes[:0]
	for i := range so.keys[:so.n] {
		k, v := &so.keys[i], &values[i]
		switch v.Kind {
		case MissingValue:
			p.codes = append(p.codes, k.missing())
		case ScoreValue:
			p.codes = append(p.codes, k.code(scoreCode(v.Score)))
		case NumberValue:
			p.codes = append(p.codes, k.code(v.Number))
		case TextValue:
			at := uint64(0)
			if c := so.cols[i].strs; c != nil {
				ord, exact := c.Seek([]byte(v.Text))
				if at = 2 * uint64(ord); exact {
					at++
				}
			}
			p.codes = append(p.codes, k.code(at))
		}
	}
	p.key = append(p.key[:0], key...)
	if so.ordered {
		p.doc, p.same = seekKey(so.l, p.key, false)
	}
	return p
}

// offer considers a document.
func (so *sorter) offer(doc uint32) {
	if so.k == 0 {
		return
	}
	var c code
	if so.n > 0 {
		c = so.codeOf(0, doc)
	}
	so.offerCode(doc, c)
}

// offerCode considers a document whose first code is known.
func (so *sorter) offerCode(doc uint32, first code) {
	so.offered++
	full := len(so.heap) == so.k
	if so.n > 0 {
		if full && first.cmp(so.codes[int(so.heap[0])*so.n]) > 0 ||
			so.limit.on && first.cmp(so.limit.codes[0]) > 0 ||
			so.from.on && first.cmp(so.from.codes[0]) < 0 {
			return
		}
		so.cand[0] = first
		for i := 1; i < so.n; i++ {
			so.cand[i] = so.codeOf(i, doc)
		}
	}
	if so.from.on && so.atPlace(doc, &so.from) <= 0 || so.limit.on && so.atPlace(doc, &so.limit) >= 0 {
		return
	}
	if full {
		root := so.heap[0]
		if so.cmpCodes(so.cand, so.slotCodes(root), doc, so.docs[root]) > 0 {
			return
		}
		so.s.work += heapWork(so.k)
		so.fill(root, doc)
		so.sift(0)
		return
	}
	so.s.work += heapWork(len(so.heap))
	slot := int32(len(so.docs))
	so.docs = append(so.docs, 0)
	so.scores = append(so.scores, 0)
	so.codes = append(so.codes, so.cand...)
	so.fill(slot, doc)
	so.heap = append(so.heap, slot)
	for i := len(so.heap) - 1; i > 0; {
		p := (i - 1) / 2
		if !so.worse(so.heap[i], so.heap[p]) {
			break
		}
		so.heap[i], so.heap[p] = so.heap[p], so.heap[i]
		i = p
	}
}

func (so *sorter) slotCodes(slot int32) []code {
	return so.codes[int(slot)*so.n : (int(slot)+1)*so.n]
}

func (so *sorter) fill(slot int32, doc uint32) {
	so.docs[slot], so.scores[slot] = doc, so.sc
	copy(so.slotCodes(slot), so.cand)
}

// cmpCodes compares two documents of the leaf.
func (so *sorter) cmpCodes(a, b []code, da, db uint32) int {
	for i := range a {
		if c := a[i].cmp(b[i]); c != 0 {
			return c
		}
	}
	var c int
	if so.ordered {
		c = int(da) - int(db)
	} else {
		so.ka, so.kb = so.l.Key(da, so.ka[:0]), so.l.Key(db, so.kb[:0])
		c = bytes.Compare(so.ka, so.kb)
	}
	if so.idDesc {
		return -c
	}
	return c
}

// atPlace compares the candidate with a place.
func (so *sorter) atPlace(doc uint32, p *place) int {
	for i := range so.cand {
		if c := so.cand[i].cmp(p.codes[i]); c != 0 {
			return c
		}
	}
	var c int
	switch {
	case !so.ordered:
		so.ka = so.l.Key(doc, so.ka[:0])
		c = bytes.Compare(so.ka, p.key)
	case doc < p.doc:
		c = -1
	case doc > p.doc || !p.same:
		c = 1
	}
	if so.idDesc {
		return -c
	}
	return c
}

func (so *sorter) worse(a, b int32) bool {
	return so.cmpCodes(so.slotCodes(a), so.slotCodes(b), so.docs[a], so.docs[b]) > 0
}

func (so *sorter) sift(i int) {
	h := so.heap
	for {
		l := 2*i + 1
		if l >= len(h) {
			return
		}
		if r := l + 1; r < len(h) && so.worse(h[r], h[l]) {
			l = r
		}
		if !so.worse(h[l], h[i]) {
			return
		}
		h[i], h[l] = h[l], h[i]
		i = l
	}
}

// merge takes the documents of the leaf into the answer, those of them that are among the first k.
func (so *sorter) merge() (err error) {
	so.heap, so.spare, err = longsort.Sort(so.heap, so.spare, func(a, b int32) int {
		return so.cmpCodes(so.slotCodes(a), so.slotCodes(b), so.docs[a], so.docs[b])
	}, so.s.look)
	if err != nil || len(so.heap) == 0 {
		return err
	}
	old, slots := so.best, so.heap
	out := slices.Grow(so.merged[:0], min(so.k, len(old)+len(slots)))
	var next Hit // of slots[0], once it is made
	var values []SortValue
	i, made := 0, false
	for n := len(so.keys); len(out) < so.k && (i < len(old) || len(slots) > 0); {
		if len(out)%longsort.Step == longsort.Step-1 {
			if err := so.s.look(); err != nil {
				return err
			}
		}
		if !made && len(slots) > 0 {
			if len(values) < n {
				values = make([]SortValue, n*min(len(slots), 64))
			}
			next, made, values = so.hit(slots[0], values[:n:n]), true, values[n:]
		}
		if i < len(old) && (!made || CompareHits(so.all, &old[i], &next) <= 0) {
			out = append(out, old[i])
			i++
			continue
		}
		out, made, slots = append(out, next), false, slots[1:]
	}
	clear(old)
	so.best, so.merged = out, old[:0]
	return nil
}

// hit makes a hit of a document of the leaf, with room for its values.
func (so *sorter) hit(slot int32, values []SortValue) Hit {
	so.ka = so.l.Key(so.docs[slot], so.ka[:0])
	h := Hit{Leaf: so.li, Doc: so.docs[slot], Score: so.scores[slot], Key: string(so.ka)}
	if len(so.keys) > 0 {
		h.Sort = values
		for i := range so.keys {
			h.Sort[i] = so.value(i, slot, h.Key)
		}
	}
	return h
}

// value is what a document of the leaf has for a key.
func (so *sorter) value(i int, slot int32, key string) SortValue {
	k := &so.keys[i]
	switch k.By {
	case ByScore: // one behind the id is filled in later
		return SortValue{Kind: ScoreValue, Score: so.scores[slot]}
	case ByID:
		return SortValue{Kind: TextValue, Text: key}
	}
	c := code{}
	if i < so.n {
		c = so.slotCodes(slot)[i]
	} else {
		c = so.codeOf(i, so.docs[slot])
	}
	if c.class != classValue {
		return SortValue{}
	}
	v := k.code(c.v).v // undoes itself
	if !k.text {
		return SortValue{Kind: NumberValue, Number: v}
	}
	so.kb = so.cols[i].strs.Lookup(int((v-1)/2), so.kb[:0])
	return SortValue{Kind: TextValue, Text: string(so.kb)}
}
