package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/longsort"
	"github.com/weft-search/weft/internal/text"
)

// checkEvery is the work, in postings or documents, between two looks at the context. At some tens of millions of postings a
// second a caller that left stops costing CPU in about a millisecond.
const checkEvery = 1 << 15

// MaxWindow bounds Offset+Limit of one request that does not say otherwise.
const MaxWindow = 50_000

// searcher is the state of one search. It is pooled: nothing in it outlives the call.
type searcher struct {
	ctx       context.Context
	leaves    []Leaf
	schema    *schema.Schema // that of the index, and behind its fields those that a lenient request names besides
	known     int            // fields of the index
	analyzers Analyzers
	req       *Request

	scratch       text.Scratch
	arena         []byte
	terms         []term
	postArena     []leafPostings
	params        []fieldParams
	prefixes      []*node
	capped        []cappedMatch
	notes         []string
	defaultFields []int
	termIndex     map[termKey]int // nil while there are few terms
	tokenCount    int             // of the text leaves planned before
	leafTokens    int             // of the one being planned, the most of any field
	termCount     int
	slots         int
	docs          uint64
	collect       *score.Stats      // receives the statistics, if not nil
	local         *score.Stats      // those of the leaves alone, when they were wanted
	cappedPrefix  bool              // not every term of a prefix scores
	uncapped      bool              // of a prefix every term counts, not only those that score
	checker       func(n int) error // check, for leaves to call

	nodes       []*node // reused from search to search; the first inUse are this one's
	inUse       int
	sh          shape
	found       [][]leafExpansion      // terms of a prefix by leaf
	keptLists   []segment.Postings     // and the lists of the first of them
	expansions  int                    // terms of all prefixes
	sums        []float32              // by document, zero between prefixes
	leafSets    map[termKey]*scoredSet // of the prefixes on one leaf
	setsOf      Leaf                   // that leaf
	prefixBytes int                    // of their scores
	union       []expansion            // and over all

	fs       *searcher    // of the filters, nil without any
	parts    []filterPart // the filters
	accepted docSet       // what live is made of, when it is made for this leaf
	live     bitset.Set   // documents of the leaf that may be returned; nil: all
	liveN    uint32       // how many they are
	filtered bool         // they are fewer than the live documents, which statistics speak of
	exact    bool         // phrases are counted, not only found
	spare    []bitset.Set // sets for reuse
	so       sorter
	block    *[ColumnBlock]uint64

	top    topk
	slack  float32
	work   int
	failed error // what stopped an iterator

	free     []*cursor // cursors of earlier leaves
	used     []*cursor
	slotCur  []*cursor
	req_     []*cursor
	opt      []*cursor
	not      []*cursor
	order    []*cursor
	bits     bitset.Set
	docsScr  [segment.BlockSize]uint32
	freqsScr [segment.BlockSize]uint32
}

var searchers = sync.Pool{New: newSearcherState}

// newSearcherState makes a searcher with the function that leaves call, which would else be allocated for each search.
func newSearcherState() any {
	s := new(searcher)
	s.checker = s.check
	return s
}

func newSearcher(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, req *Request) *searcher {
	s := searchers.Get().(*searcher)
	s.ctx, s.leaves, s.schema, s.known, s.analyzers, s.req = ctx, leaves, sch, len(sch.Fields), an, req
	return s
}

// release gives the memory back for the next search, without what it named: a pooled searcher keeps no segment alive.
func (s *searcher) release() {
	s.freeCursors()
	for _, c := range s.free {
		c.post, c.lens, c.node = segment.Postings{}, nil, nil
	}
	if len(s.free) > 256 {
		s.free = slices.Clone(s.free[:256])
	}
	clear(s.terms)
	clear(s.postArena)
	clear(s.slotCur)
	s.ctx, s.leaves, s.schema, s.analyzers, s.req, s.collect, s.local = nil, nil, nil, nil, nil, nil, nil
	s.uncapped, s.cappedPrefix = false, false
	s.expansions, s.leafSets, s.setsOf, s.prefixBytes = 0, nil, nil, 0
	clear(s.keptLists)
	if s.keptLists = s.keptLists[:0]; cap(s.keptLists) > 4*keepLists {
		s.keptLists = nil
	}
	if cap(s.sums) > 1<<20 {
		s.sums = nil
	}
	if cap(s.top.heap) > 2*MaxWindow {
		s.top.heap, s.top.spare = nil, nil
	}
	s.arena, s.terms, s.postArena, s.params = s.arena[:0], s.terms[:0], s.postArena[:0], s.params[:0]
	s.prefixes, s.capped, s.notes, s.defaultFields, s.termIndex = nil, nil, nil, nil, nil
	s.tokenCount, s.leafTokens, s.termCount, s.slots, s.docs, s.work, s.failed = 0, 0, 0, 0, 0, 0, nil
	for _, n := range s.nodes[:s.inUse] {
		*n = node{must: n.must[:0], should: n.should[:0], not: n.not[:0], filter: n.filter[:0]}
	}
	s.inUse = 0
	if len(s.nodes) > 4096 {
		s.nodes = slices.Clone(s.nodes[:4096])
	}
	for i := range s.found { // what a broad prefix needed is not kept
		if cap(s.found[i]) > 4*keepLists {
			s.found[i] = nil
		}
		clear(s.found[i])
		s.found[i] = s.found[i][:0]
	}
	if cap(s.union) > 4*keepLists {
		s.union = nil
	}
	clear(s.union)
	s.union = s.union[:0]
	if s.fs != nil {
		s.fs.release()
		s.fs = nil
	}
	clear(s.parts)
	s.parts, s.accepted, s.live, s.exact = s.parts[:0], docSet{}, nil, false
	s.sh = shape{req: s.sh.req[:0], fil: s.sh.fil[:0], opt: s.sh.opt[:0], not: s.sh.not[:0]}
	s.so.reset()
	s.top.leaves, s.top.after = nil, nil
	s.slotCur = s.slotCur[:0]
	searchers.Put(s)
}

// node returns a node that lives as long as the search.
func (s *searcher) node(v node) *node {
	if s.inUse == len(s.nodes) {
		s.nodes = append(s.nodes, new(node))
	}
	n := s.nodes[s.inUse]
	s.inUse++
	if v.must == nil {
		v.must = n.must
	}
	v.should, v.not, v.filter = n.should, n.not, n.filter
	*n = v
	return n
}

func (s *searcher) note(text string) {
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// check counts work and looks at the context now and then. There it also lets others have the processor: with as many searches as there
// are places, a write, whose way leads through several goroutines, else waited for each of them in turn as long as the scheduler lets
// a goroutine run.
func (s *searcher) check(n int) error {
	if s.work += n; s.work < checkEvery {
		return nil
	}
	runtime.Gosched()
	err := s.ended()
	if err == nil {
		// When it has ended every check says so: a query of many parts must not do the work between two looks for each of them.
		s.work = 0
	}
	return err
}

// ended returns why the context ended, nil while it has not.
func (s *searcher) ended() error {
	err := s.ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(cause, err) {
		return fmt.Errorf("search: %w: %w", err, cause)
	}
	return fmt.Errorf("search: %w", err)
}

func (s *searcher) newCursor(l Leaf, li int, n *node, t *term, idf float32) *cursor {
	var c *cursor
	if k := len(s.free); k > 0 {
		c, s.free = s.free[k-1], s.free[:k-1]
	} else {
		c = new(cursor)
	}
	s.used = append(s.used, c)
	c.reset(t.posts[li].p, l.Lengths(t.field), &s.params[t.field], idf, n)
	return c
}

func (s *searcher) freeCursors() {
	s.free = append(s.free, s.used...)
	s.used = s.used[:0]
}

// termCursor returns the cursor of a term node, or nil if the leaf lacks the term.
func (s *searcher) termCursor(l Leaf, li int, n *node) *cursor {
	t := &s.terms[n.term]
	if !t.posts[li].ok {
		return nil
	}
	c := s.newCursor(l, li, n, t, t.idf)
	s.slotCur[n.slot] = c
	return c
}

// Search returns the best documents of the leaves and, if asked for, how many match.
//
// It fails with a *QueryError when the query does not fit the schema, with the context's cause when that ended first (unless
// partial answers are allowed and its deadline passed), and with the leaf's error on damage.
func Search(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, req Request) (*Result, error) {
	if most := cmp.Or(req.Window, MaxWindow); req.Limit < 0 || req.Offset < 0 || req.Limit+req.Offset > most {
		return nil, fmt.Errorf("search: offset %d + limit %d outside 0..%d", req.Offset, req.Limit, most)
	}
	s := newSearcher(ctx, leaves, sch, an, &req)
	defer s.release()
	if err := s.ended(); err != nil {
		return nil, err
	}
	if req.ByPlace && (len(req.Sort) > 0 || req.After != nil) {
		return nil, errors.New("search: the order by place takes neither keys nor a place to go on from")
	}
	so, err := s.readOrder()
	if err != nil {
		return nil, err
	}
	root, err := s.plan(req.Query)
	if err != nil {
		return nil, err
	}
	res := &Result{TotalRelation: Exactly}
	if err := s.planFilters(req.Filters, req.Cache); err != nil {
		return res.or(s.partial(res, err))
	}
	sh := s.shape(root)
	if so == nil {
		so = s.constantOrder(sh.root)
	}
	if so == nil || so.needStats(s) {
		if req.KeepStats {
			s.collect = &score.Stats{Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
		}
		if err := s.statistics(); err != nil {
			return res.or(s.partial(res, err))
		}
		if len(s.capped) > 0 {
			sh = s.shape(root) // only now it is known which words of a Match with MaxTerms count
		}
		if res.Stats = s.collect; res.Stats != nil {
			res.Stats.Docs = s.docs
		}
		if res.Scored, res.CappedPrefix = scores(sh.root), s.cappedPrefix; res.Scored {
			res.LocalStats = s.local
		}
	}
	if req.Trace != nil {
		req.Trace.Leaves = make([]LeafTrace, len(leaves))
	}
	if so != nil {
		err = s.sorted(so, sh.root, res)
	} else {
		err = s.ranked(sh, res)
	}
	if err != nil {
		return nil, err
	}
	if req.Total == TotalNone {
		res.Total, res.TotalRelation = 0, ""
	}
	res.Notes = s.notes
	return res, nil
}

// scores tells whether words give scores in a query.
func scores(n *node) bool {
	switch n.kind {
	case kindTerm, kindPhrase, kindPrefix:
		return true
	}
	return slices.ContainsFunc(n.must, scores) || slices.ContainsFunc(n.should, scores)
}

// window is the number of best documents that are kept.
func (s *searcher) window() int {
	if s.req.Limit == 0 {
		return 0
	}
	return s.req.Limit + s.req.Offset
}

// ranked finds the hits by score.
func (s *searcher) ranked(sh *shape, res *Result) error {
	req, leaves := s.req, s.leaves
	s.slack = 1 + float32(s.slots+8)*0x1p-23
	k := s.window()
	s.top.reset(k, leaves, &s.work)
	s.top.byPlace = req.ByPlace
	if req.After != nil {
		s.top.after = &afterScore{score: req.After.Values[0].Score, key: []byte(req.After.Key), leaf: -1}
	}
	err := s.eachLeaf(func(li int, tr *LeafTrace) error { return s.leaf(li, sh, res, tr) })
	if err != nil {
		if err = s.partial(res, err); err != nil {
			return err
		}
	}
	if req.ByPlace {
		res.Entered = s.top.entered
	}
	best, err := s.top.sorted(s.look)
	if err != nil {
		return err
	}
	best = best[min(req.Offset, len(best)):]
	res.Hits = make([]Hit, len(best))
	for i, e := range best {
		if i%longsort.Step == longsort.Step-1 {
			if err := s.look(); err != nil {
				return err
			}
		}
		h := &res.Hits[i]
		*h = Hit{Leaf: int(e.leaf), Doc: e.doc, Score: e.score}
		if !req.NoKeys || len(req.Sort) > 1 {
			s.top.ka = leaves[e.leaf].Key(e.doc, s.top.ka[:0])
			h.Key = string(s.top.ka)
		}
		if len(req.Sort) > 0 { // by score, and perhaps by id
			h.Sort = scoreValues(req.Sort, h)
		}
	}
	return nil
}

// scoreValues are the values of a hit in an order by score, and perhaps by id.
func scoreValues(order []SortKey, h *Hit) []SortValue {
	return []SortValue{{Kind: ScoreValue, Score: h.Score}, {Kind: TextValue, Text: h.Key}}[:len(order)]
}

// eachLeaf calls fn with every leaf entered, until an error.
func (s *searcher) eachLeaf(fn func(li int, tr *LeafTrace) error) error {
	for li, l := range s.leaves {
		var tr *LeafTrace
		if s.req.Trace != nil {
			tr = &s.req.Trace.Leaves[li]
		}
		err := s.enter(li, tr)
		if err == nil {
			err = fn(li, tr)
		}
		if err == nil {
			err = l.Err()
		}
		s.leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// or is the answer unless there is an error.
func (r *Result) or(err error) (*Result, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// look looks at the context where an answer is made of what was found. A passed deadline does not end that where what was reached is an
// answer; there are no more hits to make it of than the window has.
func (s *searcher) look() error {
	runtime.Gosched()
	err := s.ended()
	if s.passedInPart(err) {
		return nil
	}
	return err
}

// partial decides what an error leaves of the answer: a passed deadline gives what was reached where the caller allowed it.
func (s *searcher) partial(res *Result, err error) error {
	if s.passedInPart(err) {
		res.Partial = true
		res.TotalRelation = AtLeast
		return nil
	}
	return err
}

// passedInPart tells whether an error says that the deadline passed, in a search whose caller takes what was reached.
func (s *searcher) passedInPart(err error) bool {
	return s.req.AllowPartial && errors.Is(err, context.DeadlineExceeded)
}

// Statistics returns the integer statistics that a search for the query uses, over the live documents of the leaves: to be summed over
// shards and installed in Request.Stats. Terms that no live document holds are left out. Of the request only Query, DefaultFields and
// Lenient are read.
func Statistics(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, req Request) (*score.Stats, error) {
	req.Stats, req.LocalStats = nil, 0
	s := newSearcher(ctx, leaves, sch, an, &req)
	defer s.release()
	s.collect, s.uncapped = &score.Stats{Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}, true
	if _, err := s.plan(req.Query); err != nil {
		return nil, err
	}
	if err := s.statistics(); err != nil {
		return nil, err
	}
	for _, l := range leaves {
		if err := l.Err(); err != nil {
			return nil, err
		}
	}
	s.collect.Docs = s.docs
	return s.collect, nil
}

// shape is what a query looks like to the planner: the same for every leaf.
type shape struct {
	root *node
	flat bool    // required, optional and prohibited terms, nothing else
	req  []*node // terms that must match
	fil  []*node // terms that must match and do not score
	opt  []*node // terms that add; with neither req nor fil one must match
	not  []*node
}

// shape unwraps what changes nothing and sees whether a query is flat. Nested sums of terms stay flat: they match like one
// list, and the tree is evaluated, in its own order, for those that may enter the answer.
func (s *searcher) shape(root *node) *shape {
	for root.kind == kindBool && !root.boosted && len(root.not)+len(root.filter) == 0 {
		if len(root.must) == 1 && len(root.should) == 0 {
			root = root.must[0]
		} else if len(root.should) == 1 && len(root.must) == 0 {
			root = root.should[0]
		} else {
			break
		}
	}
	sh := &s.sh
	*sh = shape{root: root, req: sh.req[:0], fil: sh.fil[:0], opt: sh.opt[:0], not: sh.not[:0]}
	if s.req.Exhaustive {
		return sh
	}
	switch root.kind {
	case kindTerm:
		sh.req = append(sh.req, root)
		sh.flat = fit(root)
	case kindBool:
		if root.boosted {
			return sh
		}
		sh.flat = true
		for _, n := range root.must {
			sh.flat = sh.flat && gather(n, true, &sh.req)
		}
		for _, n := range root.filter {
			sh.flat = sh.flat && gather(n, true, &sh.fil)
		}
		for _, n := range root.should {
			sh.flat = sh.flat && gather(n, false, &sh.opt)
		}
		for _, n := range root.not {
			sh.flat = sh.flat && gather(n, false, &sh.not)
		}
		if len(sh.req)+len(sh.fil)+len(sh.opt) == 0 {
			sh.flat = false
		}
	}
	return sh
}

// fit tells whether the bounds of a term hold: not under a factor that is negative or that overflows.
func fit(n *node) bool { return !n.boosted || (n.boost >= 0 && n.boost < 0x1p60) }

func gather(n *node, all bool, out *[]*node) bool {
	if n.kind == kindTerm && fit(n) {
		*out = append(*out, n)
		return true
	}
	if n.kind != kindBool || n.boosted || len(n.not)+len(n.filter) > 0 {
		return false
	}
	kids, other := n.should, n.must
	if all {
		kids, other = n.must, n.should
	}
	if len(other) > 0 || len(kids) == 0 {
		return false
	}
	for _, k := range kids {
		if !gather(k, all, out) {
			return false
		}
	}
	return true
}

// eval is the score of the tree for a document on which every cursor that holds it stands.
func (s *searcher) eval(n *node, doc uint32) (float32, bool) {
	if n.kind == kindTerm {
		c := s.slotCur[n.slot]
		if c == nil || c.cur != doc {
			return 0, false
		}
		return c.score(), true
	}
	var sum float32
	hit := false
	for _, k := range n.must {
		v, ok := s.eval(k, doc)
		sum += v
		hit = hit || ok
	}
	for _, k := range n.should {
		if v, ok := s.eval(k, doc); ok {
			sum += v
			hit = true
		}
	}
	return sum, hit
}

// leaf searches one leaf: the best documents first, then the count where that pass did not give it.
func (s *searcher) leaf(li int, sh *shape, res *Result, tr *LeafTrace) error {
	l := s.leaves[li]
	if s.liveN == 0 {
		return nil
	}
	if tr != nil {
		before := s.top.offered
		defer func() { tr.Offered = s.top.offered - before }()
	}
	wantCount := s.req.Total != TotalNone
	if s.req.Total == TotalAtLeast && res.Total >= s.req.TotalFloor && res.Total > 0 {
		res.TotalRelation = AtLeast
		wantCount = false
	}
	s.startSlots()
	lead := sh.flat && s.filterLeads(l, li, sh)
	if tr != nil {
		tr.Path = pathOf(sh, lead, s.top.k)
	}
	if !sh.flat || lead {
		return s.generic(l, li, sh.root, res, wantCount)
	}
	if s.top.k > 0 {
		n, counted, err := s.topFlat(l, li, sh, wantCount && s.req.Total == TotalExact)
		if err != nil {
			return err
		}
		if counted {
			res.Total += n
			return nil
		}
		s.freeCursors()
		clear(s.slotCur)
	}
	if !wantCount {
		return nil
	}
	limit := uint64(math.MaxUint64)
	if s.req.Total == TotalAtLeast {
		limit = s.req.TotalFloor - min(res.Total, s.req.TotalFloor)
		limit = max(limit, 1)
	}
	n, whole, err := s.countFlat(l, li, sh, limit)
	res.Total += n
	if !whole {
		res.TotalRelation = AtLeast
	}
	return err
}

// startSlots makes room for the cursors of a leaf.
func (s *searcher) startSlots() {
	if cap(s.slotCur) < s.slots {
		s.slotCur = make([]*cursor, s.slots)
	}
	s.slotCur = s.slotCur[:s.slots]
	clear(s.slotCur)
}

// pathOf names how a leaf is searched, for its trace.
func pathOf(sh *shape, lead bool, k int) string {
	switch {
	case lead:
		return "filter"
	case !sh.flat:
		return "walk"
	case k > 0:
		return "pruned"
	}
	return "count"
}

// topFlat offers the best documents of a flat query. It counts the matches on the way where counting is wanted and the best
// documents are found by visiting them.
func (s *searcher) topFlat(l Leaf, li int, sh *shape, counting bool) (n uint64, counted bool, err error) {
	s.req_, s.opt, s.not = s.req_[:0], s.opt[:0], s.not[:0]
	for _, n := range sh.req {
		c := s.termCursor(l, li, n)
		if c == nil {
			return 0, true, nil
		}
		s.req_ = append(s.req_, c)
	}
	scoring := len(s.req_)
	for _, n := range sh.fil {
		c := s.termCursor(l, li, n)
		if c == nil {
			return 0, true, nil
		}
		c.weight = score.NewWeight(0, 1, 0, 0) // a filter adds nothing; eval never reads it
		s.req_ = append(s.req_, c)
	}
	for _, n := range sh.opt {
		if c := s.termCursor(l, li, n); c != nil {
			s.opt = append(s.opt, c)
		}
	}
	for _, n := range sh.not {
		if c := s.termCursor(l, li, n); c != nil {
			s.not = append(s.not, c)
		}
	}
	switch {
	case len(s.req_) == 0:
		switch len(s.opt) {
		case 0:
			return 0, true, nil
		case 1:
			if len(s.not) == 0 {
				return 0, false, s.topTerm(l, li, s.opt[0])
			}
		}
		return 0, false, s.topAny(l, li, sh)
	case len(s.req_) == 1 && scoring == 1 && len(s.opt) == 0 && len(s.not) == 0:
		return 0, false, s.topTerm(l, li, s.req_[0])
	}
	if len(s.req_) == 1 && len(s.not) == 0 && !s.filtered {
		counting = false // the list's frequency is the count
	}
	n, err = s.topAll(l, li, sh, counting)
	return n, counting, err
}
