// Package knn plans and runs nearest-neighbour searches over the leaves of a snapshot.
//
// A search prepares the query vector for its field, resolves the filters to sets of documents, and then chooses for each leaf,
// from the number of documents that really match, how to find the nearest: an exact scan of the matching ones, a graph walk that
// looks at the filter on the way, or a graph walk with the eligibility checked at the end. The choice changes time and recall,
// never which documents may be returned nor their scores: those are computed exactly from the stored vectors on every path.
//
// Nothing is kept between calls; leaves must not change while a search runs. Safe for concurrent use.
package knn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/longsort"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// Limits of one search.
const (
	MaxK  = 10_000 // Request.K where Request.Most does not say otherwise
	MaxEf = 20_000 // Request.Ef
)

// Request is one nearest-neighbour search. Of Dense, Bits and Indices with Weights exactly the one that the field's type takes
// must be given.
type Request struct {
	Field   string
	Dense   []float32 // dense_vector
	Bits    []byte    // binary_dense_vector, dimension/8 bytes
	Indices []uint32  // sparse_vector, with Weights
	Weights []float32

	K        int            // neighbours wanted, 0 to MaxK, or to Most
	Most     int            // bound of K of callers who have another than MaxK; 0: MaxK
	Exact    bool           // compare with every matching vector
	Ef       int            // candidates of a graph walk, up to MaxEf; 0 = chosen from K
	Combiner score.Combiner // makes one score of those of a document's vectors

	// Filters must all match; DefaultFields are searched by their words without a field, as in exec.Request.
	Filters       []query.Node
	DefaultFields []string
	// Lenient is as in exec.Request: in a field that the schema does not have, no document has a vector.
	Lenient bool
	Cache   *exec.FilterCache // may be nil
}

// Path is how the nearest vectors of a leaf are found.
type Path string

// Paths.
const (
	Scan     Path = "exact"          // every matching vector is compared
	Masked   Path = "graph_masked"   // the graph is walked with the filter in sight
	Unmasked Path = "graph_unmasked" // the graph is walked as it is, eligibility is checked at the end
	Lists    Path = "impact_lists"   // sparse: inverted lists by falling impact, exact
	Empty    Path = "empty"          // no document with a vector can match
)

// LeafPlan is what was decided for one leaf and what it took.
type LeafPlan struct {
	Path        Path
	Docs        uint32  // live documents
	Matching    uint32  // of them, those that match the filters: counted, not guessed
	Vectors     int     // vectors of the leaf, of dead documents too
	Estimate    uint64  // vectors that a scan of the matching documents would compare
	ScanCost    float64 // of that scan, in vectors compared
	GraphCost   float64 // of the walk that would be made, in the same unit; 0 when there is no graph to walk
	Work        vector.Work
	Approximate bool
}

// Plan is how a search was carried out.
type Plan struct {
	Path        Path // that of the leaf with the most vectors
	Docs        uint64
	Matching    uint64
	Selectivity float64 // Matching / Docs, 1 when there are no documents
	Approximate bool    // some leaf was searched by its graph
	Work        vector.Work
	Leaves      []LeafPlan
}

// Result is the answer of Search.
type Result struct {
	Hits []exec.Hit // similarity descending, then key ascending; Key is set
	Plan Plan
}

// Codes of the *exec.QueryError of this package, beside those of exec.
const (
	CodeNotVector = "field_not_vector"
	CodeVector    = "invalid_vector"
)

// prepared is a query vector made ready for its field: one of the two is set.
type prepared struct {
	field  int
	params vector.Params
	dense  *vector.Query
	sparse *sparse.Query
}

func prepare(sch *schema.Schema, req *Request) (*prepared, error) {
	if most := cmp.Or(req.Most, MaxK); req.K < 0 || req.K > most {
		return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: fmt.Sprintf("the number of neighbours is from 0 to %d", most), Limit: int64(most)}
	}
	if req.Ef < 0 || req.Ef > MaxEf {
		return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: fmt.Sprintf("ef is from 0 to %d", MaxEf), Limit: MaxEf}
	}
	if err := req.Combiner.Check(); err != nil {
		return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: err.Error()}
	}
	f, ok := sch.Lookup(req.Field)
	if !ok && req.Lenient {
		return &prepared{field: len(sch.Fields)}, nil // no leaf has anything there
	}
	if !ok {
		return nil, &exec.QueryError{Code: "unknown_field", Field: req.Field, Reason: "the index has no such field"}
	}
	fd := &sch.Fields[f]
	p := &prepared{field: f}
	switch fd.Type {
	case schema.DenseVector, schema.BinaryVector, schema.SparseVector:
		if !fd.Indexed {
			return nil, &exec.QueryError{Code: CodeNotVector, Field: req.Field, Reason: "the vectors of the field are not indexed"}
		}
	default:
		return nil, &exec.QueryError{Code: CodeNotVector, Field: req.Field, Reason: "it is a " + fd.Type.String() + " field, not a vector field"}
	}
	if reason := mismatch(fd, req); reason != "" {
		return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: reason}
	}
	var err error
	if fd.Type == schema.SparseVector {
		sp, perr := sparse.ParamsOf(fd)
		if perr != nil {
			return nil, fmt.Errorf("field %q: %w", fd.Name, perr)
		}
		p.sparse, err = sparse.NewQuery(sp, req.Indices, req.Weights)
	} else {
		if p.params, err = vector.ParamsOf(fd); err != nil {
			return nil, fmt.Errorf("field %q: %w", fd.Name, err)
		}
		p.dense, err = vector.NewQuery(p.params, req.Dense, req.Bits)
	}
	if err != nil {
		if bad, ok := errors.AsType[*vector.QueryError](err); ok {
			return nil, &exec.QueryError{Code: CodeVector, Field: req.Field, Reason: bad.Reason, Limit: int64(bad.Limit)}
		}
		return nil, fmt.Errorf("query vector of field %q: %w", fd.Name, err)
	}
	return p, nil
}

// mismatch says why the kind of vector given does not fit the field.
func mismatch(f *schema.Field, req *Request) string {
	dense, bits, pairs := req.Dense != nil, req.Bits != nil, req.Indices != nil || req.Weights != nil
	switch {
	case f.Type == schema.DenseVector && (!dense || bits || pairs):
		return "a dense vector field takes a list of numbers"
	case f.Type == schema.BinaryVector && (!bits || dense || pairs):
		return "a binary vector field takes bits"
	case f.Type == schema.SparseVector && (!pairs || dense || bits):
		return "a sparse vector field takes indices and values"
	}
	return ""
}

// Search returns the K nearest documents that match the filters.
//
// It fails with a *exec.QueryError when the vector or a filter does not fit the schema, with the context's error when that ended
// first, and with the leaf's error on damage.
func Search(ctx context.Context, leaves []exec.Leaf, sch *schema.Schema, an exec.Analyzers, req Request) (*Result, error) {
	p, err := prepare(sch, &req)
	if err != nil {
		return nil, err
	}
	match, err := exec.Match(ctx, leaves, sch, an, nil, req.Filters, exec.MatchOptions{DefaultFields: req.DefaultFields, Lenient: req.Lenient, Cache: req.Cache})
	if err != nil {
		return nil, fmt.Errorf("filters of the vector search: %w", err)
	}
	return search(ctx, leaves, match, p, &req)
}

func search(ctx context.Context, leaves []exec.Leaf, match *exec.MatchSet, p *prepared, req *Request) (*Result, error) {
	res := &Result{Plan: Plan{Path: Empty, Leaves: make([]LeafPlan, len(leaves))}}
	s := &searching{ctx: ctx, leaves: leaves, match: match, p: p, req: req}
	all := uint64(0) // documents that match, where there are vectors
	for li, l := range leaves {
		lp := &res.Plan.Leaves[li]
		if *lp = plan(l, match.Leaves[li], p, req); lp.Path != Empty {
			all += uint64(lp.Matching)
		}
	}
	asked := make([]int, len(leaves)) // for how many each leaf was searched
	last := make([]exec.Hit, len(leaves))
	for li := range leaves {
		lp := &res.Plan.Leaves[li]
		if lp.Path == Empty || req.K == 0 {
			continue
		}
		k, ef := req.K, req.Ef
		if lp.Approximate { // a scan costs the same for all of them
			k, ef = Share(req.K, req.Ef, float64(lp.Matching)/float64(all))
		}
		n, worst, err := s.leaf(li, lp, k, ef)
		if err != nil {
			return nil, err
		}
		if asked[li] = k; n < k {
			asked[li] = req.K // there are no more
		}
		last[li] = worst
	}
	for li := range leaves {
		// A leaf all of whose hits are among the best may have more of them.
		if asked[li] == 0 || asked[li] == req.K || len(s.best) == req.K && compareHits(&last[li], &s.best[req.K-1]) >= 0 {
			continue
		}
		if _, _, err := s.leaf(li, &res.Plan.Leaves[li], req.K, req.Ef); err != nil {
			return nil, err
		}
	}
	most := -1
	for li := range leaves {
		res.Plan.add(li, res.Plan.Leaves[li], &most)
	}
	res.Plan.Selectivity = 1
	if res.Plan.Docs > 0 {
		res.Plan.Selectivity = float64(res.Plan.Matching) / float64(res.Plan.Docs)
	}
	res.Hits = s.best
	return res, nil
}

// searching is a search under way.
type searching struct {
	ctx    context.Context
	leaves []exec.Leaf
	match  *exec.MatchSet
	p      *prepared
	req    *Request
	best   []exec.Hit // so far, of all leaves
	hits   []vector.Hit
}

// leaf searches a leaf for k and adds what it finds to the best. It returns how many that were, and the worst of them.
func (s *searching) leaf(li int, lp *LeafPlan, k, ef int) (n int, worst exec.Hit, err error) {
	l := s.leaves[li]
	o := vector.Options{K: k, Ef: ef, Combiner: s.req.Combiner, Accept: accept(l, s.match.Leaves[li]), Before: before(l), Check: checker(s.ctx)}
	var work vector.Work
	if s.hits, work, err = run(l, s.p, lp.Path, o, s.hits[:0]); err == nil {
		err = l.Err()
	}
	if err != nil {
		return 0, worst, fmt.Errorf("vector search of field %q: %w", s.req.Field, err)
	}
	lp.Work.Add(work)
	if lp.Approximate && work.Rescored == 0 { // the walk found too little and ended in a scan
		lp.Path, lp.Approximate = Scan, false
	}
	if n = len(s.hits); n > 0 {
		h := s.hits[n-1]
		worst = exec.Hit{Leaf: li, Doc: h.Doc, Score: h.Score, Key: string(l.Key(h.Doc, nil))}
	}
	s.best, err = merge(s.ctx, s.leaves, s.best, li, s.hits, s.req.K)
	return n, worst, err
}

// compareHits is the order of a ranking: similarity descending, then key ascending.
func compareHits(a, b *exec.Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Key, b.Key))
}

func (p *Plan) add(li int, lp LeafPlan, most *int) {
	p.Leaves[li] = lp
	p.Docs += uint64(lp.Docs)
	p.Matching += uint64(lp.Matching)
	p.Approximate = p.Approximate || lp.Approximate
	p.Work.Add(lp.Work)
	if lp.Path != Empty && lp.Vectors > *most {
		*most, p.Path = lp.Vectors, lp.Path
	}
}

// accept is the set of documents of a leaf that may be returned; nil: all.
func accept(l exec.Leaf, m exec.LeafMatch) bitset.Set {
	if m.Set == nil {
		return l.Live()
	}
	return m.Set
}

func run(l exec.Leaf, p *prepared, path Path, o vector.Options, dst []vector.Hit) ([]vector.Hit, vector.Work, error) {
	if p.sparse != nil {
		return l.SparseVectors(p.field).Search(p.sparse, o, dst)
	}
	x := l.Vectors(p.field)
	switch path {
	case Masked:
		return x.Masked(p.dense, o, dst)
	case Unmasked:
		return x.Unmasked(p.dense, o, dst)
	}
	return x.Exact(p.dense, o, dst)
}

// before orders equals of a leaf by key; nil where document order is key order.
func before(l exec.Leaf) func(a, b uint32) bool {
	if l.KeyOrdered() {
		return nil
	}
	var ka, kb []byte
	return func(a, b uint32) bool {
		ka, kb = l.Key(a, ka[:0]), l.Key(b, kb[:0])
		return bytes.Compare(ka, kb) < 0
	}
}

// checkEvery is the work, in vectors, between two looks at the context: a fraction of a millisecond.
const checkEvery = 1 << 10

// checker returns a function that counts work and looks at the context now and then.
func checker(ctx context.Context) func(n int) error {
	work := 0
	return func(n int) error {
		if work += n; work < checkEvery {
			return nil
		}
		work = 0
		runtime.Gosched() // see exec: what takes long lets others have the processor
		return ended(ctx)
	}
}

// ended is why the context ended, nil while it has not.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// merge adds the hits of a leaf, best first, to those of the leaves before and keeps the k best. Those of the leaf that are there already
// stay as they are.
func merge(ctx context.Context, leaves []exec.Leaf, best []exec.Hit, li int, hits []vector.Hit, k int) ([]exec.Hit, error) {
	if len(best) == k && len(hits) > 0 && k > 0 { // hits below the last cannot enter; those equal to it may, by key
		last := best[k-1].Score
		n, _ := slices.BinarySearchFunc(hits, last, func(h vector.Hit, s float32) int {
			if h.Score >= s {
				return -1
			}
			return 1
		})
		hits = hits[:n]
	}
	var had map[uint32]struct{}
	for i := range best {
		if best[i].Leaf == li {
			if had == nil {
				had = make(map[uint32]struct{}, len(best)-i)
			}
			had[best[i].Doc] = struct{}{}
		}
	}
	var key []byte
	for _, h := range hits {
		if _, twice := had[h.Doc]; twice {
			continue
		}
		key = leaves[li].Key(h.Doc, key[:0])
		best = append(best, exec.Hit{Leaf: li, Doc: h.Doc, Score: h.Score, Key: string(key)})
	}
	best, _, err := longsort.Sort(best, nil, func(a, b exec.Hit) int { return compareHits(&a, &b) }, func() error { return ended(ctx) })
	if err != nil {
		return nil, err
	}
	return best[:min(k, len(best))], nil
}

// Value is the similarity of one vector of a document.
type Value struct {
	Ordinal    int // its number among the vectors of the document, from 0
	Similarity float32
}

// Similarity is the exact similarity of a document, as that of a hit of Search; ok is false if it has no vector that the combiner of the
// request sees.
func Similarity(leaves []exec.Leaf, sch *schema.Schema, req Request, leaf int, doc uint32) (similarity float32, ok bool, err error) {
	p, err := prepare(sch, &req)
	if err != nil {
		return 0, false, err
	}
	if x := leaves[leaf].SparseVectors(p.field); x != nil && p.sparse != nil {
		similarity, ok = x.Score(p.sparse, req.Combiner, doc)
	} else if x := leaves[leaf].Vectors(p.field); x != nil && p.dense != nil {
		similarity, ok = x.Score(p.dense, req.Combiner, doc)
	}
	return similarity, ok, leaves[leaf].Err()
}

// Values returns the exact similarity of each vector of a document that the combiner of the request sees: all of a dense or binary
// field, those that share a dimension with the query of a sparse one.
func Values(leaves []exec.Leaf, sch *schema.Schema, req Request, leaf int, doc uint32) ([]Value, error) {
	p, err := prepare(sch, &req)
	if err != nil {
		return nil, err
	}
	if p.sparse != nil {
		x := leaves[leaf].SparseVectors(p.field)
		if x == nil {
			return nil, nil
		}
		all := x.Ordinals(p.sparse, doc, nil)
		var out []Value
		for _, i := range x.Matching(p.sparse, doc, nil) {
			out = append(out, Value{int(i), all[i]})
		}
		return out, nil
	}
	x := leaves[leaf].Vectors(p.field)
	if x == nil {
		return nil, nil
	}
	var out []Value
	for i, s := range x.Ordinals(p.dense, doc, nil) {
		out = append(out, Value{i, s})
	}
	return out, nil
}
