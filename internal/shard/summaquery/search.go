package summaquery

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/summa"
)

// ErrNotBuilt says that a search asks for what this package does not do yet.
var ErrNotBuilt = &summa.Error{Code: codes.Unimplemented, Text: "l1, score_export, tracing, include_rrf_scores and FUSION_CANDIDATES are not served yet"}

// Search answers a request that summa.Limits.CheckSearch found within w. Errors are *summa.Error where the client caused them.
func Search(ctx context.Context, ix *Index, req *summapb.SearchRequest, w summa.Window, limits summa.Limits) (*summapb.SearchResponse, error) {
	began := time.Now()
	fusion := req.GetQuery().GetFusion()
	if req.GetL1() != nil || req.GetScoreExport() != nil || req.GetIncludeRrfScores() || req.GetTracing() || fusion.GetMethod() == summapb.FusionMethod_FUSION_CANDIDATES {
		return nil, ErrNotBuilt
	}
	if ms := req.GetTimeBudgetMs(); ms > 0 && fusion == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(min(ms, math.MaxInt32))*time.Millisecond, errBudget)
		defer cancel()
	}
	out := &summapb.SearchResponse{Timings: &summapb.SearchTimings{}}
	c := &compiler{ix: ix}
	rerank, err := c.reranker(req.GetReranker())
	if err != nil {
		return nil, err
	}
	r := newRunner(ctx, ix, req.GetTextStats())
	var hits []hit
	if fusion != nil {
		hits, out.TotalHits, err = r.fuse(c, fusion, w)
	} else {
		hits, out.TotalHits, err = r.one(c, req.GetQuery(), w)
	}
	if err != nil {
		if fusion == nil && errors.Is(context.Cause(ctx), errBudget) {
			out.Truncated = true // nothing was ranked to its end
			return out, nil
		}
		return nil, err
	}
	searched := time.Now()
	if rerank != nil {
		if hits, err = r.rerank(rerank, hits); err != nil {
			return nil, err
		}
	}
	reranked := time.Now()
	hits = hits[min(w.Offset, len(hits)):]
	hits = hits[:min(w.Limit, len(hits))]
	if out.Hits, err = load(ix, hits, req.GetFieldsToLoad(), limits); err != nil {
		return nil, err
	}
	done := time.Now()
	t := out.Timings
	t.SearchUs, t.LoadUs, t.TotalUs = micros(began, searched), micros(reranked, done), micros(began, done)
	if rerank != nil {
		t.RerankUs = micros(searched, reranked)
	}
	out.TookMs = t.TotalUs / 1000
	return out, nil
}

var errBudget = errors.New("the time budget of the search is spent")

func micros(from, to time.Time) uint64 { return uint64(to.Sub(from).Microseconds()) }

// one runs a query that is no fusion.
func (r *runner) one(c *compiler, q *summapb.Query, w summa.Window) ([]hit, uint64, error) {
	p, err := c.query(q)
	if err != nil {
		return nil, 0, err
	}
	if err := r.prepare(p); err != nil {
		return nil, 0, err
	}
	return r.run(p, nil, w.Candidates)
}

// fuse runs the branches of a fusion and ranks their union.
func (r *runner) fuse(c *compiler, f *summapb.FusionQuery, w summa.Window) ([]hit, uint64, error) {
	var branches, filters []*part
	for _, q := range f.GetQueries() {
		if q.GetQuery() == nil {
			return nil, 0, refuse("Fusion sub-query is missing")
		}
		p, err := c.query(q.GetQuery())
		if err != nil {
			return nil, 0, within("Invalid fusion sub-query: ", err)
		}
		branches = append(branches, p)
	}
	for _, q := range f.GetFilters() {
		p, err := c.query(q)
		if err != nil {
			return nil, 0, within("Invalid fusion filter: ", err)
		}
		filters = append(filters, p)
	}
	if err := r.prepare(append(slices.Clone(branches), filters...)...); err != nil {
		return nil, 0, err
	}
	total := uint64(0)
	lists := make([]score.Branch[place], len(branches))
	for i, p := range branches {
		hits, n, err := r.run(p, filters, w.Depth)
		if err != nil {
			return nil, 0, err
		}
		_ = n
		total += uint64(len(hits))
		lists[i].Weight = cmp.Or(f.GetQueries()[i].GetWeight(), 1)
		for _, h := range hits {
			at := place{int32(h.leaf), h.doc}
			if len(h.rows) == 0 {
				lists[i].Hits = append(lists[i].Hits, score.Hit[place]{Doc: at, Score: h.score})
			}
			for _, row := range h.rows {
				lists[i].Hits = append(lists[i].Hits, score.Hit[place]{Doc: at, Ordinal: row.Ordinal, Score: row.Score})
			}
		}
	}
	how := score.Fusion{Method: score.RRF, K: f.GetRrfK(), Combiner: score.Combiner{Kind: score.CombinerKind(f.GetCombiner())}}
	if f.GetMethod() == summapb.FusionMethod_FUSION_NORMALIZED_WEIGHTED_SUM {
		how.Method = score.WeightedSum
	}
	fused, err := score.Fuse(how, lists, func(a, b place) int { return cmp.Or(cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc)) })
	if err != nil {
		return nil, 0, failed("%v", err)
	}
	hits := make([]hit, 0, min(len(fused), w.Candidates))
	for _, d := range fused[:min(len(fused), w.Candidates)] {
		hits = append(hits, hit{int(d.Doc.leaf), d.Doc.doc, d.Score, d.Passages})
	}
	return hits, total, nil
}

// place is a document of a leaf.
type place struct {
	leaf int32
	doc  uint32
}

// within puts what a refusal is about in the place of "Invalid query: ".
func within(what string, err error) error {
	if e, ok := errors.AsType[*summa.Error](err); ok {
		if text, ok := cutPrefix(e.Text, "Invalid query: "); ok {
			return &summa.Error{Code: e.Code, Text: what + text}
		}
	}
	return err
}

func cutPrefix(s, p string) (string, bool) {
	if len(s) < len(p) || s[:len(p)] != p {
		return s, false
	}
	return s[len(p):], true
}

// reranker is a second stage: the exact similarity of a vector.
type reranker struct {
	part *part
	k    float32 // of reciprocal ranks; 0: by similarity alone
}

func (c *compiler) reranker(q *summapb.Reranker) (*reranker, error) {
	if q == nil {
		return nil, nil
	}
	bad := func(format string, args ...any) (*reranker, error) {
		return nil, refuse("Invalid reranker: "+format, args...)
	}
	id, f, ok := c.lookup(q.GetField())
	if !ok {
		return bad("Reranker field '%s' not found", q.GetField())
	}
	kind, topK, decay := q.GetCombiner(), q.GetCombinerTopK(), q.GetCombinerDecay()
	if kind == 0 && q.GetCombinerTemperature() == 0 {
		kind, topK, decay = summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K, cmp.Or(topK, 3), cmp.Or(decay, 0.7)
	}
	comb, err := combiner(kind, q.GetCombinerTemperature(), topK, decay)
	if err != nil {
		return nil, err
	}
	if k := float64(q.GetRrfK()); math.IsNaN(k) || math.IsInf(k, 0) || k < 0 {
		return bad("Reranker rrf_k must be finite and non-negative")
	}
	p := &part{kind: kindVector, field: id, vector: knn.Request{Field: f.Name, Combiner: comb}}
	switch f.Type {
	case schema.DenseVector:
		switch {
		case len(q.GetVector()) == 0:
			return bad("Reranker vector must not be empty for dense_vector field")
		case len(q.GetVector()) != f.Dim:
			return bad("Reranker vector length %d does not match field '%s' dimension %d", len(q.GetVector()), f.Name, f.Dim)
		case !finite(q.GetVector()):
			return bad("Reranker vector must contain only finite values")
		}
		p.vector.Dense = q.GetVector()
	case schema.BinaryVector:
		switch {
		case len(q.GetBinaryVector()) == 0:
			return bad("Reranker binary_vector must not be empty for binary_dense_vector field")
		case len(q.GetBinaryVector()) != f.Dim/8:
			return bad("Reranker binary_vector length %d does not match field '%s' byte length %d", len(q.GetBinaryVector()), f.Name, f.Dim/8)
		}
		p.vector.Bits = q.GetBinaryVector()
	default:
		return bad("Reranker field '%s' must be dense_vector or binary_dense_vector, got %s", f.Name, typeNames[f.Type])
	}
	return &reranker{part: p, k: q.GetRrfK()}, nil
}

// rerank orders candidates by a second stage. Those without a vector fall away.
func (r *runner) rerank(s *reranker, hits []hit) ([]hit, error) {
	type ranked struct {
		hit
		first int
	}
	var list []ranked
	var sims []float32
	for i, h := range hits {
		rows, err := r.values(s.part, h.leaf, h.doc)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			continue
		}
		sims = sims[:0]
		for _, row := range rows {
			sims = append(sims, row.Score)
		}
		h.score = s.part.vector.Combiner.Combine(sims)
		slices.SortStableFunc(rows, func(a, b score.Passage) int { return cmp.Compare(b.Score, a.Score) })
		h.rows = rows
		list = append(list, ranked{h, i + 1})
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return order(a.hit, b.hit) })
	out := make([]hit, len(list))
	for i, e := range list {
		if s.k > 0 {
			e.score = 1/float32(s.k+float32(e.first)) + 1/float32(s.k+float32(i+1))
		}
		out[i] = e.hit
	}
	if s.k > 0 {
		slices.SortStableFunc(out, order)
	}
	return out, nil
}

// load makes the hits of a reply.
func load(ix *Index, hits []hit, names []string, limits summa.Limits) ([]*summapb.SearchHit, error) {
	fields, room := summa.SelectFields(ix.Schema, names), limits.Room()
	out := make([]*summapb.SearchHit, len(hits))
	var src []byte
	for i, h := range hits {
		sh := &summapb.SearchHit{Address: &summapb.DocAddress{SegmentId: ix.Segments[h.leaf], DocId: h.doc}, Score: h.score}
		for _, row := range h.rows {
			sh.OrdinalScores = append(sh.OrdinalScores, &summapb.OrdinalScore{Ordinal: row.Ordinal, Score: row.Score})
		}
		if !fields.Nothing() {
			var err error
			if src, err = ix.Leaves[h.leaf].Source(h.doc, src[:0]); err != nil {
				return nil, err
			}
			if sh.Fields, err = fields.Read(src, room); err != nil {
				return nil, err
			}
		}
		out[i] = sh
	}
	return out, nil
}
