package summaquery

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/score/formula"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/summa"
)

// Search answers a request that summa.Limits.CheckSearch found within w. Errors are *summa.Error where the client caused them.
func Search(ctx context.Context, ix *Index, req *summapb.SearchRequest, w summa.Window, limits summa.Limits) (*summapb.SearchResponse, error) {
	began := time.Now()
	fused := req.GetQuery().GetFusion()
	s := &search{ix: ix, req: req, w: w, room: limits.Room().Shared(ix.Charge), out: &summapb.SearchResponse{Timings: &summapb.SearchTimings{}}}
	c := &compiler{ctx: ctx, ix: ix, limits: limits}
	var err error
	if s.second, err = c.reranker(req.GetReranker()); err != nil {
		return nil, err
	}
	s.r = newRunner(ctx, ix, req.GetTextStats())
	s.r.room = &room{most: limits.WithDefaults().MaxSearchHeldBytes, tell: ix.Hold}
	if ms := req.GetTimeBudgetMs(); ms > 0 && fused == nil {
		budget := time.Duration(min(ms, math.MaxInt32)) * time.Millisecond
		rest, cancel := context.WithTimeout(ctx, budget+budget/restShare)
		defer cancel()
		scoring, cancel := context.WithTimeout(rest, budget)
		defer cancel()
		s.r.ctx, s.r.rest, s.r.budget = scoring, rest, true
	}
	if fused != nil {
		err = s.fusion(c, fused)
	} else {
		err = s.one(c)
	}
	if err = s.r.inBudget(err); err != nil {
		return nil, err
	}
	done := time.Now()
	s.out.Truncated = s.r.truncated
	if s.searched.IsZero() { // the budget was spent before anything was found
		s.searched, s.reranked, s.loading = done, done, done
	}
	t := s.out.Timings
	t.SearchUs, t.TotalUs = micros(began, s.searched), micros(began, done)
	if s.second != nil {
		t.RerankUs = micros(s.searched, s.reranked)
	}
	if !s.scored.IsZero() {
		t.CandidateScoringUs = micros(s.searched, s.scored)
	}
	t.LoadUs = micros(s.loading, done)
	s.out.TookMs = t.TotalUs / 1000
	return s.out, nil
}

// restShare is which part of a time budget there is besides, when it is spent, for what is computed of the documents that were found.
const restShare = 4

// search is the state of one search.
type search struct {
	ix     *Index
	req    *summapb.SearchRequest
	w      summa.Window
	room   *summa.Room // of the reply
	second *reranker
	r      *runner
	out    *summapb.SearchResponse

	searched, reranked, scored, loading time.Time
}

// one answers a query that is no fusion.
func (s *search) one(c *compiler) error {
	p, err := c.query(s.req.GetQuery())
	if err != nil {
		return err
	}
	if err := s.r.prepare(p); err != nil {
		return err
	}
	s.r.wait = !s.req.GetTracing() // a trace has the rows of all that were found, the reply those of a page
	hits, total, err := s.r.run(p, nil, s.w.Candidates)
	if err != nil {
		return err
	}
	s.out.TotalHits, s.out.Truncated, s.searched = total, s.r.truncated, time.Now()
	found := hits
	if hits, err = s.rerank(hits); err != nil {
		return err
	}
	page, err := s.page(hits)
	if err != nil {
		return err
	}
	s.out.Truncated = s.r.truncated
	if s.req.GetTracing() {
		list, err := candidatesOf(s.ix, s.room, found)
		if err != nil {
			return err
		}
		return s.trace([]*summapb.QueryTrace{{
			Query: s.req.GetQuery(), CandidateDepth: uint32(s.w.Candidates), TotalSeen: uint32(min(total, math.MaxUint32)), Candidates: list,
		}}, page, nil)
	}
	return nil
}

// fusion answers a fusion.
func (s *search) fusion(c *compiler, q *summapb.FusionQuery) error {
	l1, export := s.req.GetL1(), s.req.GetScoreExport()
	scored := l1 != nil || export != nil
	f, err := s.r.newFusion(c, q, s.w, scored)
	if err != nil {
		return err
	}
	s.out.TotalHits, s.searched = f.total(), time.Now()
	var hits []hit
	var cands map[place]*candidate
	most := 0
	switch {
	case scored:
		most = int(cmp.Or(export.GetPassagesPerDocument(), stdExportRows))
		backfill := l1 == nil || l1.Backfill == nil || l1.GetBackfill()
		list, err := f.candidates(backfill, export.GetAllPassages(), export.GetSeedDocumentPassages())
		if err != nil {
			return err
		}
		if l1 != nil {
			s.out.RankingMethod = methodFormula
			exported := 0
			if export != nil {
				exported = most
			}
			if hits, err = f.rank(l1, s.w.Formula, list, exported); err != nil {
				return err
			}
			if finiteHits(hits) != nil { // of the combiner: the formula looks for itself
				return l1Fault(&formula.NonFiniteError{})
			}
		} else {
			s.out.RankingMethod = methodExport
			if s.w.Limit < len(list) {
				return refuse("feature export needs limit >= complete candidate union (%d documents)", len(list))
			}
			for i := range list {
				hits = append(hits, hit{leaf: int(list[i].leaf), doc: list[i].doc, rows: bare(list[i].organic)})
			}
		}
		s.out.SeededDocumentPassages = export.GetSeedDocumentPassages()
		cands = make(map[place]*candidate, len(list))
		for i := range list {
			cands[list[i].place] = &list[i]
		}
		s.scored = time.Now()
	case q.GetMethod() == summapb.FusionMethod_FUSION_CANDIDATES:
		s.out.RankingMethod = methodCandidates
		if hits = f.union(); s.w.Limit < len(hits) {
			return refuse("candidate export needs limit >= complete union (%d documents)", len(hits))
		}
		if s.out.FusionCandidates, err = f.candidateLists(s.room); err != nil {
			return err
		}
	default:
		if hits, err = f.ranked(); err == nil {
			err = finiteHits(hits)
		}
		if err != nil {
			return err
		}
	}
	if s.req.GetIncludeRrfScores() && s.out.FusionCandidates == nil {
		if s.out.FusionCandidates, err = f.candidateLists(s.room); err != nil {
			return err
		}
	}
	if hits, err = s.rerank(hits); err != nil {
		return err
	}
	page, err := s.page(hits)
	if err != nil {
		return err
	}
	if export != nil {
		for i, h := range page {
			c := cands[place{int32(h.leaf), h.doc}]
			if err := s.r.did(1 + len(c.passages)); err != nil {
				return err
			}
			if err := s.room.Take(f.exportCost(c, most)); err != nil {
				return err
			}
			one, omitted := f.export(c, most, l1 != nil)
			if omitted > 0 && l1 == nil {
				return failed("feature export would omit %d passages of document %d; increase export_passages or supply l1", omitted, h.doc)
			}
			s.out.Hits[i].CandidateScores = one
		}
	}
	if s.req.GetIncludeRrfScores() {
		if err := f.diagnose(page, s.out.Hits, scored, s.room); err != nil {
			return err
		}
	}
	if s.req.GetTracing() {
		queries, err := f.trace(s.room)
		if err != nil {
			return err
		}
		return s.trace(queries, page, q.GetFilters())
	}
	return nil
}

// exportCost is what the scores of a candidate take that export makes, as each of them was of every branch.
func (f *fusion) exportCost(c *candidate, most int) int {
	one := summa.PassageCost
	for _, q := range f.req.GetQueries() {
		one += summa.CellCost + len(q.GetName())
	}
	return one * (1 + min(most, len(c.passages)))
}

// bare are the rows of a hit that nothing ranked: its best scores by any branch.
func bare(rows []score.Passage) []score.Passage {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b score.Passage) int { return cmp.Compare(b.Score, a.Score) })
	return rows[:min(len(rows), bareRows)]
}

// rerank applies the second stage, if there is one.
func (s *search) rerank(hits []hit) ([]hit, error) {
	s.reranked = time.Now()
	if s.second == nil {
		return hits, nil
	}
	hits, err := s.r.rerank(s.second, hits)
	if err == nil {
		err = finiteHits(hits)
	}
	s.reranked = time.Now()
	return hits, err
}

// page cuts the hits of the reply out of the ranking and loads their fields.
func (s *search) page(hits []hit) ([]hit, error) {
	s.loading = time.Now()
	hits = hits[min(s.w.Offset, len(hits)):]
	hits = hits[:min(s.w.Limit, len(hits))]
	if late := s.r.late; late != nil {
		s.r.wait = false
		if err := s.r.fill(hits, late); err != nil {
			return nil, err
		}
	}
	err := finiteHits(hits)
	if err != nil {
		return nil, err
	}
	s.out.Hits, err = s.r.load(hits, s.req.GetFieldsToLoad(), s.room)
	return hits, err
}

func (s *search) trace(queries []*summapb.QueryTrace, page []hit, filters []*summapb.Query) error {
	selected, err := candidatesOf(s.ix, s.room, page)
	if err != nil {
		return err
	}
	s.out.Trace = &summapb.SearchTrace{Shards: []*summapb.ShardSearchTrace{{
		IndexName: s.req.GetIndexName(), Queries: queries, Selected: selected, RankingMethod: s.out.RankingMethod,
		Truncated: s.out.Truncated, Filters: filters,
	}}}
	return nil
}

func micros(from, to time.Time) uint64 { return uint64(to.Sub(from).Microseconds()) }

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
	r.late = func(h *hit) error {
		h.rows = nil
		err := r.valuesOf(s.part, h)
		slices.SortStableFunc(h.rows, func(a, b score.Passage) int { return cmp.Compare(b.Score, a.Score) })
		return err
	}
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
		h.score, h.rows = s.part.vector.Combiner.Combine(sims), nil
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
func (r *runner) load(hits []hit, names []string, room *summa.Room) ([]*summapb.SearchHit, error) {
	ix := r.ix
	fields := summa.SelectFields(ix.Schema, names)
	if err := room.Take(summa.HitCost*len(hits) + rowsCost(hits)); err != nil {
		return nil, err
	}
	out := make([]*summapb.SearchHit, len(hits))
	var src []byte
	for i, h := range hits {
		sh := &summapb.SearchHit{Address: address(ix, h), Score: h.score, OrdinalScores: ordinals(h.rows)}
		if !fields.Nothing() {
			err := r.left()
			if err != nil {
				return nil, err
			}
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
