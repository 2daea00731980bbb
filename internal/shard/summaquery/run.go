package summaquery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/shard/passage"
	"github.com/weft-search/weft/internal/vector"
)

// hit is a document that a branch found.
type hit struct {
	leaf  int
	doc   uint32
	score float32
	rows  []score.Passage // scores of its values; see the contract for which parts have any
}

// order is that of hits: score descending, segment, document.
func order(a, b hit) int {
	return cmp.Or(cmpScores(b.score, a.score), cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc))
}

// cmpScores compares finite scores; of the two zeros the negative one is the lesser.
func cmpScores(a, b float32) int {
	if a == 0 && b == 0 {
		return int(math.Float32bits(b)>>31) - int(math.Float32bits(a)>>31)
	}
	return cmp.Compare(a, b)
}

// runner runs the parts of one request.
type runner struct {
	ctx   context.Context // of what is scored: it may end before that of the call
	rest  context.Context // of what is computed of documents that were found: it may go on for a while after ctx
	whole context.Context // of the call
	ix    *Index
	given *summapb.TextStats // of the request, or nil

	plain    *score.Stats           // made of given, for plain text; nil without
	own      *score.Stats           // with which plain text is scored, of the words of rows
	passages map[int]*passage.Stats // by field
	scorers  map[*part]*passage.Scorer
	placed   []exec.Leaf
	lists    map[listKey]exec.Given // what vectors nominated within larger queries

	budget    bool // ctx ends with the time budget: what was found until then is the answer
	truncated bool // it did

	room *room              // of what the search holds
	work int                // since the last look
	late func(h *hit) error // computes the rows of a hit that run left without, as they are wanted of few; nil: all have theirs
	wait bool               // run may do so
}

// lookEvery is the work, in values and places of words, between two looks at the caller.
const lookEvery = 1 << 15

func newRunner(ctx context.Context, ix *Index, given *summapb.TextStats) *runner {
	r := &runner{ctx: ctx, rest: ctx, whole: ctx, ix: ix, room: &room{most: math.MaxInt}, given: given, passages: map[int]*passage.Stats{}, scorers: map[*part]*passage.Scorer{}, lists: map[listKey]exec.Given{}}
	r.installPlain()
	return r
}

// inBudget tells whether an error ends the search: that the time budget is spent does not.
func (r *runner) inBudget(err error) error {
	if err != nil && r.budget && r.whole.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		r.truncated = true
		return nil
	}
	return err
}

// left is the error of a caller that left. What is done for each hit asks for it, or for pressed: hits are many where clients want many.
func (r *runner) left() error { return ended(r.whole) }

// pressed is the error of a caller that left, or whose time is over by so much that nothing more is computed of what was found.
func (r *runner) pressed() error { return ended(r.rest) }

// did counts work, and asks for pressed after much of it: one hit can have as many values as there are hits.
func (r *runner) did(n int) error {
	if r.work += n; r.work < lookEvery {
		return nil
	}
	r.work = 0
	return r.pressed()
}

func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("search: %w: %w", err, cause)
	}
	return fmt.Errorf("search: %w", err)
}

// prepare gathers the statistics that the parts need, once for all of them.
func (r *runner) prepare(parts ...*part) error {
	terms := map[int][]string{}
	var words []query.Node
	var walk func(p *part)
	walk = func(p *part) {
		switch p.kind {
		case kindPassages:
			for _, t := range p.terms {
				terms[p.field] = append(terms[p.field], t.text)
			}
		case kindText:
			if !p.phrase {
				words = append(words, r.wordsOf(p))
			}
		case kindBoost:
			walk(p.of)
		}
		for _, list := range [][]*part{p.must, p.should, p.not} {
			for _, k := range list {
				walk(k)
			}
		}
	}
	for _, p := range parts {
		walk(p)
	}
	for field, list := range terms {
		slices.Sort(list)
		st, err := passage.Statistics(r.ctx, r.ix.Leaves, field, slices.Compact(list), r.ix.Cache.ofPassages())
		if err != nil {
			return err
		}
		r.installPassages(r.ix.Schema.Fields[field].Name, st)
		r.passages[field] = st
	}
	if err := r.countDocs(parts); err != nil {
		return err
	}
	if len(words) == 0 {
		return nil
	}
	own, err := exec.Statistics(r.ctx, r.ix.Leaves, r.ix.Schema, r.ix.Analyzers, exec.Request{Query: &query.Bool{Should: words}})
	if err != nil {
		return err
	}
	if ext := r.plain; ext != nil {
		for name, st := range ext.Fields {
			own.Fields[name] = st
		}
		for t, df := range ext.DF {
			own.DF[t] = df
		}
		own.Corpus = ext.Corpus
	}
	r.own = own
	return nil
}

// countDocs puts into the statistics, of plain text fields that have values without a token, the average over all documents with a
// value: the reference counts those too.
func (r *runner) countDocs(parts []*part) error {
	seen := map[int]bool{}
	var err error
	var walk func(p *part)
	walk = func(p *part) {
		if p.kind == kindText && !seen[p.field] && err == nil {
			seen[p.field] = true
			err = r.countField(p.field)
		}
		if p.of != nil {
			walk(p.of)
		}
		for _, list := range [][]*part{p.must, p.should, p.not} {
			for _, k := range list {
				walk(k)
			}
		}
	}
	for _, p := range parts {
		walk(p)
	}
	return err
}

func (r *runner) countField(field int) error {
	name := r.ix.Schema.Fields[field].Name
	if r.plain != nil {
		if _, given := r.plain.Fields[name]; given {
			return nil
		}
	}
	st, changed, err := fieldStats(r.ctx, r.ix, field)
	if err != nil || !changed {
		return err
	}
	if r.plain == nil {
		r.plain = &score.Stats{Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
		for _, l := range r.ix.Leaves {
			r.plain.Docs += uint64(l.LiveDocs())
		}
	}
	r.plain.Fields[name] = st
	return nil
}

// wordsOf is a part of plain text as package exec takes it.
func (r *runner) wordsOf(p *part) *query.Words {
	return &query.Words{Field: r.ix.Schema.Fields[p.field].Name, Words: words(p.terms), Phrase: p.phrase, Slop: p.slop}
}

func words(list []token) []query.Word {
	out := make([]query.Word, len(list))
	for i, t := range list {
		out[i] = query.Word{Text: t.text, Times: t.times, Offset: t.offset}
	}
	return out
}

// scorer returns that of a part over passages; of a match the words that score.
func (r *runner) scorer(p *part) *passage.Scorer {
	if s := r.scorers[p]; s != nil {
		return s
	}
	s := r.newScorer(p)
	r.scorers[p] = s
	return s
}

func (r *runner) newScorer(p *part) *passage.Scorer {
	st := r.passages[p.field]
	c := p.clause(&r.ix.Schema.Fields[p.field])
	if p.maxTerms > 0 && len(c.Terms) > p.maxTerms {
		rank := func(t passage.Term) uint64 {
			if df := st.DF[t.Text]; df > 0 {
				return df
			}
			return 1<<64 - 1
		}
		keep := slices.Clone(c.Terms)
		slices.SortStableFunc(keep, func(a, b passage.Term) int { return cmp.Compare(rank(a), rank(b)) })
		keep = keep[:p.maxTerms]
		c.Terms = slices.DeleteFunc(c.Terms, func(t passage.Term) bool { return !slices.Contains(keep, t) })
	}
	return passage.NewScorer(c, st)
}

// nomination is a query of which only the best documents are found: a part that ranks, among the documents of some others.
type nomination struct {
	rank    *part
	filters []*part
	not     []*part
}

// nominates tells whether a part is one: text over the passages of one field or one vector, alone or with filters.
func (r *runner) nominates(p *part) (nomination, bool) {
	switch p.kind {
	case kindPassages:
		return nomination{rank: p}, true
	case kindVector:
		return nomination{rank: p}, true
	case kindBool:
	default:
		return nomination{}, false
	}
	n := nomination{not: p.not}
	for _, m := range p.must {
		if !r.filters(m) {
			return nomination{}, false
		}
		n.filters = append(n.filters, m)
	}
	switch {
	case len(p.should) == 0:
		return nomination{}, false
	case len(p.should) == 1 && (p.should[0].kind == kindPassages || p.should[0].kind == kindVector):
		n.rank = p.should[0]
		return n, true
	}
	// Words of one chunked field score together, passage by passage.
	n.rank = &part{kind: kindPassages, field: p.should[0].field, match: true}
	for _, s := range p.should {
		if s.kind != kindPassages || s.phrase || s.match || s.field != n.rank.field {
			return nomination{}, false
		}
		if i := slices.IndexFunc(n.rank.terms, func(t token) bool { return t.text == s.terms[0].text }); i >= 0 {
			n.rank.terms[i].times++
			continue
		}
		n.rank.terms = append(n.rank.terms, s.terms[0])
	}
	if len(n.rank.terms) > maxShould {
		n.rank.maxTerms = maxShould
	}
	return n, true
}

// filters tells whether a required part only filters, where something else scores.
func (r *runner) filters(p *part) bool {
	switch p.kind {
	case kindFilter, kindExact:
		return true
	case kindText, kindPassages:
		return p.term && r.ix.Schema.Fields[p.field].Fast
	}
	return false
}

// whole tells whether what a boost stands around has a score of its own only when it is run for itself: ranked passages, vectors, and
// words with their proximity.
func (p *part) whole() bool {
	return p.kind == kindPassages && p.match || p.kind == kindVector || p.near != nil || p.kind == kindBoost && p.of.whole()
}

// run finds the best k documents of a part among those that all filters find, and how many match. All scores are finite.
func (r *runner) run(p *part, filters []*part, k int) ([]hit, uint64, error) {
	hits, total, err := r.runPart(p, filters, k)
	if err == nil {
		err = finiteHits(hits)
	}
	if err != nil {
		return nil, 0, err
	}
	return hits, total, nil
}

func (r *runner) runPart(p *part, filters []*part, k int) ([]hit, uint64, error) {
	if p.kind == kindNothing || p.kind == kindStops {
		return nil, 0, nil
	}
	if p.kind == kindBoost && p.of.whole() {
		hits, total, err := r.run(p.of, filters, k)
		boost := func(h *hit) {
			for j := range h.rows {
				h.rows[j].Score = float32(p.factor * h.rows[j].Score)
			}
		}
		for i := range hits {
			hits[i].score = float32(p.factor * hits[i].score)
			boost(&hits[i])
		}
		if of := r.late; of != nil {
			r.late = func(h *hit) error {
				err := of(h)
				boost(h)
				return err
			}
		}
		slices.SortStableFunc(hits, order)
		return hits, total, err
	}
	if r.nominatesEach(p) {
		return r.eachNominates(p, filters, k)
	}
	if n, ok := r.nominates(p); ok {
		n.filters = append(n.filters[:len(n.filters):len(n.filters)], filters...)
		hits, err := r.nominate(n, k)
		return hits, uint64(len(hits)), err
	}
	return r.search(p, filters, k)
}

// nominatesEach tells whether a part is a Boolean whose required clauses only filter, and whose optional ones nominate each for itself.
func (r *runner) nominatesEach(p *part) bool {
	if p.kind != kindBool || len(p.must) == 0 || len(p.should) < 2 || slices.ContainsFunc(p.must, func(m *part) bool { return !r.filters(m) }) {
		return false
	}
	if slices.ContainsFunc(p.should, func(s *part) bool { return s.kind == kindFilter || s.kind == kindBool || s.kind == kindBoost }) {
		return false
	}
	_, together := r.nominates(p)
	return !together
}

// eachNominates finds the best k documents of each optional clause, and of those the ones with the best sums.
func (r *runner) eachNominates(p *part, filters []*part, k int) ([]hit, uint64, error) {
	type sum struct {
		hit
		rows []row
	}
	at := map[place]int{}
	var sums []sum
	wait := r.wait
	r.wait = false // which clause gave a row is known here only
	defer func() { r.wait = wait }()
	for _, s := range r.someShould(p) {
		hits, _, err := r.run(&part{kind: kindBool, must: p.must, should: []*part{s}, not: p.not}, filters, k)
		if err != nil {
			return nil, 0, err
		}
		for _, h := range hits {
			if h.score == 0 && len(h.rows) == 0 && s.kind == kindText {
				continue // it only passes the filters
			}
			i, ok := at[place{int32(h.leaf), h.doc}]
			if !ok {
				i = len(sums)
				at[place{int32(h.leaf), h.doc}] = i
				sums = append(sums, sum{hit: hit{leaf: h.leaf, doc: h.doc}})
			}
			sums[i].score += h.score
			if err := r.hold(rowBytes * len(h.rows)); err != nil {
				return nil, 0, err
			}
			sums[i].rows = appendRows(sums[i].rows, s.field, h.rows)
		}
	}
	hits := make([]hit, len(sums))
	x := newRows(r)
	for i := range sums {
		hits[i] = sums[i].hit
		list, err := x.sum(sums[i].rows)
		if err != nil {
			return nil, 0, err
		}
		if len(list) > 0 {
			hits[i].rows = passagesOf(list)
		}
		sums[i].rows = nil
	}
	slices.SortFunc(hits, order)
	return hits[:min(k, len(hits))], uint64(len(hits)), nil
}

// nominate finds the best k documents of a nomination. A vector nominates before the filters are looked at.
func (r *runner) nominate(n nomination, k int) ([]hit, error) {
	accept, err := r.accept(n.filters, n.not)
	if err != nil {
		return nil, err
	}
	if n.rank.kind == kindVector {
		hits, err := r.nearest(n.rank, k)
		if accept != nil {
			hits = slices.DeleteFunc(hits, func(h hit) bool { return accept[h.leaf] != nil && !accept[h.leaf].Has(h.doc) })
		}
		return hits, err
	}
	if n.rank.near != nil {
		return r.nearPassages(n.rank, accept, k)
	}
	top, err := r.scorer(n.rank).Top(r.ctx, r.ix.Leaves, accept, k, r.holdPassages)
	if err = r.inBudget(err); err != nil {
		return nil, err
	}
	return passageHits(top), nil
}

func passageHits(top []passage.Hit) []hit {
	out := make([]hit, len(top))
	for i, h := range top {
		out[i] = hit{h.Leaf, h.Doc, h.Score, h.Rows}
	}
	return out
}

// accept returns the live documents of each leaf that all of some parts find and none of others; nil where it is all. A nil list: no
// part asks.
func (r *runner) accept(filters, not []*part) ([]bitset.Set, error) {
	if len(filters)+len(not) == 0 {
		return nil, nil
	}
	given := lists{r: r}
	defer given.free()
	q := &query.Bool{}
	for _, list := range []struct {
		in  []*part
		out *[]query.Node
	}{{filters, &q.Filter}, {not, &q.MustNot}} {
		for _, p := range list.in {
			n, err := r.node(p, &given, 0)
			if err != nil {
				return nil, err
			}
			*list.out = append(*list.out, n)
		}
	}
	m, err := exec.Match(r.ctx, r.ix.Leaves, r.ix.Schema, r.ix.Analyzers, q, nil, exec.MatchOptions{Given: given.given, Stats: r.plain})
	if err != nil {
		return nil, queryFault(err)
	}
	out := make([]bitset.Set, len(m.Leaves))
	for i := range m.Leaves {
		if out[i] = m.Leaves[i].Set; out[i] == nil {
			out[i] = r.ix.Leaves[i].Live()
		}
	}
	return out, nil
}

// mostNearest is how many documents a vector finds where no number is wanted of it.
const mostNearest = exec.MaxWindow

// nearest finds the k documents nearest to a vector, with the scores of all their values.
func (r *runner) nearest(p *part, k int) ([]hit, error) {
	if p.pointsNowhere() {
		return r.first(p, k), nil
	}
	req := p.vector
	req.K, req.Most = k, k
	res, err := knn.Search(r.ctx, r.byPlace(), r.ix.Schema, r.ix.Analyzers, req)
	if err != nil {
		return nil, queryFault(err)
	}
	hits := make([]hit, len(res.Hits))
	for i, h := range res.Hits {
		hits[i] = hit{leaf: h.Leaf, doc: h.Doc, score: h.Score}
	}
	slices.SortFunc(hits, order)
	return hits, r.fill(hits, func(h *hit) error { return r.valuesOf(p, h) })
}

// valuesOf makes the rows of a hit of the vectors of its document.
func (r *runner) valuesOf(p *part, h *hit) error {
	err := r.pressed()
	if err == nil {
		h.rows, err = r.values(p, h.leaf, h.doc)
	}
	if err == nil {
		err = r.hold(passageBytes * len(h.rows))
	}
	return err
}

// fill computes the rows of hits, or leaves that for those that they are wanted of. Where the time is over meanwhile the others have none.
func (r *runner) fill(hits []hit, rows func(h *hit) error) error {
	if r.wait {
		r.late = rows
		return nil
	}
	for i := range hits {
		if err := rows(&hits[i]); err != nil {
			return r.inBudget(err)
		}
	}
	return nil
}

// listKey names a list of the documents nearest to a vector.
type listKey struct {
	p *part
	k int
}

// nearestList is nearest as package exec takes it; k 0 is as many as may be. Within one search it is found once.
func (r *runner) nearestList(p *part, k int) (exec.Given, error) {
	k = cmp.Or(k, mostNearest)
	g, ok := r.lists[listKey{p, k}]
	if ok {
		return g, nil
	}
	of := *r
	of.wait, of.late = true, nil // a list has no rows
	hits, err := of.nearest(p, k)
	if err != nil {
		return nil, err
	}
	if err := finiteHits(hits); err != nil {
		return nil, err
	}
	if err := r.hold(listBytes * len(hits)); err != nil {
		return nil, err
	}
	g = listOf(hits, len(r.ix.Leaves))
	r.lists[listKey{p, k}] = g
	return g, nil
}

// pointsNowhere tells whether a dense query is of zeros: it has no direction, and everything scores 0.
func (p *part) pointsNowhere() bool {
	return p.vector.Dense != nil && !slices.ContainsFunc(p.vector.Dense, func(x float32) bool { return x != 0 })
}

// zeros are the scores of the vectors of a document for such a query.
func zeros(x *vector.Index, doc uint32) (rows []score.Passage) {
	if x == nil {
		return nil
	}
	from, to := x.Range(doc)
	for i := range to - from {
		rows = append(rows, score.Passage{Ordinal: uint32(i)})
	}
	return rows
}

// first are the first k documents that have a vector, with score 0: all are as near to a query of zeros, which has no direction.
func (r *runner) first(p *part, k int) (hits []hit) {
	for li, l := range r.ix.Leaves {
		x := l.Vectors(p.field)
		if x == nil {
			continue
		}
		for at := 0; at < x.Len() && len(hits) < k; {
			doc := x.Doc(at)
			if live := l.Live(); live == nil || live.Has(doc) {
				hits = append(hits, hit{leaf: li, doc: doc, rows: zeros(x, doc)})
			}
			_, at = x.Range(doc)
		}
	}
	return hits
}

// values are the similarities of the vectors of a document.
func (r *runner) values(p *part, leaf int, doc uint32) ([]score.Passage, error) {
	if err := r.left(); err != nil {
		return nil, err
	}
	if p.pointsNowhere() {
		return zeros(r.ix.Leaves[leaf].Vectors(p.field), doc), nil
	}
	vals, err := knn.Values(r.ix.Leaves, r.ix.Schema, p.vector, leaf, doc)
	if err != nil {
		return nil, queryFault(err)
	}
	rows := make([]score.Passage, len(vals))
	for i, v := range vals {
		rows[i] = score.Passage{Ordinal: uint32(v.Ordinal), Score: v.Similarity}
	}
	return rows, nil
}

// search runs a part with every match, and the filters.
func (r *runner) search(p *part, filters []*part, k int) ([]hit, uint64, error) {
	if err := r.checkReach(p, k); err != nil {
		return nil, 0, err
	}
	given := lists{r: r}
	defer given.free()
	n, err := r.node(p, &given, k)
	if err != nil {
		return nil, 0, err
	}
	if len(filters) > 0 {
		b := &query.Bool{Must: []query.Node{n}}
		for _, f := range filters {
			fn, err := r.node(f, &given, 0)
			if err != nil {
				return nil, 0, err
			}
			b.Filter = append(b.Filter, fn)
		}
		n = b
	}
	want := k
	if p.near != nil {
		want = nearWanted(k)
	}
	res, err := exec.Search(r.ctx, r.ix.Leaves, r.ix.Schema, r.ix.Analyzers, exec.Request{
		Query: n, Limit: want, Window: want, Stats: r.plain, Given: given.given, ByPlace: true, NoKeys: true, AllowPartial: r.budget,
	})
	if err != nil {
		return nil, 0, queryFault(err)
	}
	r.truncated = r.truncated || res.Partial
	hits := make([]hit, len(res.Hits))
	for i, h := range res.Hits {
		hits[i] = hit{leaf: h.Leaf, doc: h.Doc, score: h.Score}
	}
	if p.near != nil {
		if hits, err = r.addNear(p, hits); err != nil {
			return nil, 0, err
		}
		slices.SortStableFunc(hits, order)
		hits = hits[:min(k, len(hits))]
	}
	rows := newRows(r)
	rows.k = k
	err = r.fill(hits, func(h *hit) (err error) {
		h.rows, err = rows.of(p, h.leaf, h.doc)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	total := res.Total
	switch {
	case p.match || p.kind == kindFilter && isPrefix(p.node):
		total = uint64(len(hits)) // ranked, not counted
	case p.phrase:
		total = res.Entered // counted as the reference does, which passes over what cannot be among the best any more
	}
	return hits, total, nil
}

func isPrefix(n query.Node) bool {
	_, ok := n.(*query.Prefix)
	return ok
}

// node makes what package exec runs of a part; k is how many documents a vector within it nominates, 0: as many as may be.
func (r *runner) node(p *part, given *lists, k int) (query.Node, error) {
	switch p.kind {
	case kindNothing, kindStops:
		return &query.Bool{}, nil
	case kindExact:
		return p.node, nil
	case kindFilter:
		f := &r.ix.Schema.Fields[p.field]
		if rg, ok := p.node.(*query.Range); ok && f.Type != schema.Text {
			several, err := r.severalValues(p.field)
			if err != nil {
				return nil, err
			}
			if !several {
				return p.node, nil
			}
			l, err := r.firstValues(p.field, f, rg)
			if err != nil {
				return nil, err
			}
			return given.put(l.given, l.held), nil
		}
		if isPrefix(p.node) { // it scores 1 here, not by its words
			return &query.Bool{Must: []query.Node{&query.All{}}, Filter: []query.Node{p.node}}, nil
		}
		return p.node, nil
	case kindText:
		w := r.wordsOf(p)
		if kept := r.keptText(p); len(kept) < len(p.terms) {
			w.Words = words(kept)
		}
		return w, nil
	case kindPassages:
		l, err := r.everyPassage(p)
		if err != nil {
			return nil, err
		}
		return given.put(l.given, l.held), nil
	case kindVector:
		g, err := r.nearestList(p, k)
		if err != nil {
			return nil, err
		}
		return given.put(g, 0), nil // it is kept
	case kindBoost:
		n, err := r.node(p.of, given, k)
		return &query.Boost{Query: n, Factor: p.factor}, err
	}
	b := &query.Bool{}
	for _, list := range []struct {
		in  []*part
		out *[]query.Node
	}{{r.scoring(p), &b.Must}, {r.filtering(p), &b.Filter}, {r.someShould(p), &b.Should}, {p.not, &b.MustNot}} {
		for _, kid := range list.in {
			n, err := r.node(kid, given, k)
			if err != nil {
				return nil, err
			}
			*list.out = append(*list.out, n)
		}
	}
	return b, nil
}

// scoring and filtering divide the required parts of a Boolean: a filter adds nothing where anything else scores.
func (r *runner) scoring(p *part) []*part {
	if r.onlyFilters(p) {
		return p.must
	}
	return slices.DeleteFunc(slices.Clone(p.must), r.filters)
}

func (r *runner) filtering(p *part) []*part {
	if r.onlyFilters(p) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.must), func(m *part) bool { return !r.filters(m) })
}

func (r *runner) onlyFilters(p *part) bool {
	return len(p.should) == 0 && !slices.ContainsFunc(p.must, func(m *part) bool { return !r.filters(m) })
}

// someShould are the optional clauses that take part: of very many, those with the rarest words, or the first ones.
func (r *runner) someShould(p *part) []*part {
	if len(p.should) <= maxShould {
		return p.should
	}
	df := func(k *part) (uint64, bool) {
		if len(k.terms) != 1 {
			return 0, false
		}
		if k.kind == kindPassages {
			return r.passages[k.field].DF[k.terms[0].text], true
		}
		if r.own == nil {
			return 0, false
		}
		return r.own.DF[score.Term{Field: r.ix.Schema.Fields[k.field].Name, Text: k.terms[0].text}], true
	}
	if slices.ContainsFunc(p.should, func(k *part) bool { _, ok := df(k); return !ok }) {
		return p.should[:maxShould]
	}
	at := make([]int, len(p.should))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int {
		x, _ := df(p.should[a])
		y, _ := df(p.should[b])
		return cmp.Compare(x-1, y-1) // those in no document last
	})
	at = at[:maxShould]
	sort.Ints(at)
	out := make([]*part, len(at))
	for i, n := range at {
		out[i] = p.should[n]
	}
	return out
}

// keptTerms are the words of a match that score.
func (r *runner) keptTerms(p *part) []token {
	if p.maxTerms == 0 || len(p.terms) <= p.maxTerms {
		return p.terms
	}
	df := func(t token) uint64 { return r.passages[p.field].DF[t.text] - 1 } // those in no passage last
	keep := slices.Clone(p.terms)
	slices.SortStableFunc(keep, func(a, b token) int { return cmp.Compare(df(a), df(b)) })
	keep = keep[:p.maxTerms]
	return slices.DeleteFunc(slices.Clone(p.terms), func(t token) bool { return !slices.Contains(keep, t) })
}

func listOf(hits []hit, leaves int) exec.Given {
	hits = slices.Clone(hits)
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Or(cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc)) })
	g := make(exec.Given, leaves)
	for _, h := range hits {
		g[h.leaf].Docs, g[h.leaf].Scores = append(g[h.leaf].Docs, h.doc), append(g[h.leaf].Scores, h.score)
	}
	return g
}

// severalValues tells whether a document has more than one value in a field of numbers: the wire allows it whatever the schema says.
func (r *runner) severalValues(field int) (bool, error) {
	for _, l := range r.ix.Leaves {
		col := l.NumColumn(field)
		if col == nil {
			continue
		}
		n, err := r.ix.Cache.counted(l, field, func() (n uint64, err error) {
			var vals []uint64
			for doc := range l.NumDocs() {
				if doc%(1<<15) == 0 && r.ctx.Err() != nil {
					return 0, fmt.Errorf("look for several values: %w", context.Cause(r.ctx))
				}
				if vals = col.Values(doc, vals[:0]); len(vals) > 1 {
					n++
				}
			}
			return n, nil
		})
		if n > 0 || err != nil {
			return n > 0, err
		}
	}
	return false, nil
}

// firstValues lists the documents whose first value lies in a range, with score 1.
func (r *runner) firstValues(field int, f *schema.Field, rg *query.Range) (*list, error) {
	// Which documents have any value there is what package exec finds; the first value decides.
	m, err := exec.Match(r.ctx, r.ix.Leaves, r.ix.Schema, r.ix.Analyzers, rg, nil, exec.MatchOptions{})
	if err != nil {
		return nil, queryFault(err)
	}
	out := r.newList()
	lo, hi, some, err := exec.NumBounds(f, rg)
	if err != nil {
		return nil, queryFault(err)
	}
	if !some {
		return out, nil
	}
	var vals []uint64
	for li, l := range r.ix.Leaves {
		col := l.NumColumn(field)
		if col == nil {
			continue
		}
		for doc := range l.NumDocs() {
			if doc%(1<<15) == 0 {
				if err := r.left(); err != nil {
					return nil, err
				}
			}
			if set := m.Leaves[li].Set; set != nil && !set.Has(doc) {
				continue
			}
			if vals = col.Values(doc, vals[:0]); len(vals) > 0 && vals[0] >= lo && vals[0] <= hi {
				if err := out.add(li, doc, 1); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}
