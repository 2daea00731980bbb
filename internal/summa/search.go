package summa

import (
	"errors"
	"math"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/score/formula"
)

// Window is how much a search returns and looks at, with the defaults filled in.
type Window struct {
	Limit      int // hits to return
	Offset     int // hits to leave out before them
	Candidates int // documents that the first stage keeps; at least Offset + Limit
	Depth      int // of each branch of a fusion; else Candidates
	// Formula ranks, where l1 asks for it; it is bound to the names of the branches.
	Formula *formula.Program
}

// Hits is the number of hits that a search ranks: Offset + Limit.
func (w Window) Hits() int { return w.Offset + w.Limit }

// CheckSearch says whether a search keeps to the limits, and makes sense as far as the request alone tells. It is to be asked before the
// index is looked up and before admission. The order of the checks is part of the contract.
func (l Limits) CheckSearch(req *summapb.SearchRequest) (Window, error) {
	var w Window
	l = l.WithDefaults()
	if req.Query == nil {
		return w, invalid("Query is required")
	}
	if err := l.checkName(req.IndexName); err != nil {
		return w, err
	}
	if err := l.checkFields(req.FieldsToLoad); err != nil {
		return w, err
	}
	fusion := req.Query.GetFusion()
	if err := checkDiagnostics(req, fusion); err != nil {
		return w, err
	}
	var err error
	if w.Formula, err = checkRanking(req, fusion); err != nil {
		return w, err
	}
	b := budget{Limits: l}
	if err := b.query(req.Query, 1); err != nil {
		return w, err
	}
	if err := b.reranker(req.Reranker); err != nil {
		return w, err
	}
	if err := l.window(req, &w); err != nil {
		return w, err
	}
	if fusion != nil {
		if err := l.checkFusion(fusion, &w); err != nil {
			return w, err
		}
	}
	return w, nil
}

// CheckTextStats is CheckSearch for a request of statistics. One Boolean may have as many clauses as the whole tree, since a broker puts
// the leaves of a query into one.
func (l Limits) CheckTextStats(req *summapb.GetTextStatsRequest) error {
	l = l.WithDefaults()
	if err := l.checkName(req.IndexName); err != nil {
		return err
	}
	if req.Query == nil {
		return invalid("query is required")
	}
	l.MaxBooleanClauses = l.MaxQueryClauses
	b := budget{Limits: l}
	return b.query(req.Query, 1)
}

func (l Limits) checkName(name string) error {
	if name == "" || len(name) > l.MaxIndexNameBytes {
		return invalid("index_name must contain 1..=%d bytes", l.MaxIndexNameBytes)
	}
	return nil
}

func (l Limits) checkFields(names []string) error {
	if len(names) > l.MaxFieldsToLoad {
		return invalid("SearchRequest.fields_to_load supports at most %d names (got %d)", l.MaxFieldsToLoad, len(names))
	}
	total := 0
	for i, n := range names {
		if len(n) > l.MaxFieldNameBytes {
			return invalid("SearchRequest.fields_to_load[%d] must not exceed %d bytes", i, l.MaxFieldNameBytes)
		}
		total += len(n)
	}
	if total > l.MaxFieldsToLoadNameBytes {
		return invalid("SearchRequest.fields_to_load names must total at most %d bytes (got %d)", l.MaxFieldsToLoadNameBytes, total)
	}
	return nil
}

func checkDiagnostics(req *summapb.SearchRequest, fusion *summapb.FusionQuery) error {
	if req.IncludeRrfScores && (fusion == nil || req.TimeBudgetMs != 0) {
		return invalid("RRF diagnostics require top-level fusion and complete nomination without time_budget_ms")
	}
	if req.IncludeRrfScores || req.Tracing {
		for _, q := range fusion.GetQueries() {
			if len(q.Name) > maxBranchName {
				return invalid("diagnostic branch names exceed %d bytes", maxBranchName)
			}
		}
	}
	return nil
}

// checkRanking checks what l1, score_export and FUSION_CANDIDATES ask of the branches.
func checkRanking(req *summapb.SearchRequest, fusion *summapb.FusionQuery) (*formula.Program, error) {
	if req.L1 == nil && req.ScoreExport == nil {
		return nil, checkNominations(req, fusion)
	}
	if fusion == nil {
		return nil, invalid("l1/score_export require named fusion branches")
	}
	if len(fusion.Queries) > maxFusionBranches {
		return nil, invalid("too many fusion branches")
	}
	noBackfill := req.L1 != nil && req.L1.Backfill != nil && !*req.L1.Backfill
	chunked, nominating := false, false
	for _, q := range fusion.Queries {
		chunked = chunked || q.Scope == summapb.ScoreScope_SCORE_SCOPE_CHUNK
		nominating = nominating || !q.ScoreOnly
	}
	if req.ScoreExport.GetSeedDocumentPassages() && (noBackfill || !chunked) {
		return nil, invalid("seed_document_passages requires backfill and a chunk-scoped feature")
	}
	names := make([]string, 0, maxFusionBranches)
	for _, q := range fusion.Queries {
		if !goodBranchName(q.Name) || contains(names, q.Name) {
			return nil, invalid("l1/score_export require unique, nonempty branch names")
		}
		if q.Scope != summapb.ScoreScope_SCORE_SCOPE_DOCUMENT && q.Scope != summapb.ScoreScope_SCORE_SCOPE_CHUNK {
			return nil, invalid("l1/score_export require explicit document/chunk scopes")
		}
		names = append(names, q.Name)
	}
	if !nominating {
		return nil, invalid("at least one branch must nominate candidates")
	}
	var f *formula.Program
	if req.L1 != nil {
		if noBackfill && req.ScoreExport.GetAllPassages() {
			return nil, invalid("all_passages diagnostics require backfill")
		}
		var err error
		if f, err = compile(req.L1, names); err != nil {
			return nil, err
		}
		legacy := fusion.Method != summapb.FusionMethod_FUSION_RRF || fusion.RrfK != 0 || req.Reranker.GetRrfK() != 0
		for _, q := range fusion.Queries {
			legacy = legacy || q.Weight != 0
		}
		if legacy {
			return nil, invalid("l1 directly determines ranking; legacy fusion weights/method/rrf_k must be unset")
		}
	}
	switch {
	case req.TimeBudgetMs != 0:
		return nil, invalid("l1/score_export require complete scoring; time_budget_ms must be unset")
	case req.L1 == nil && (req.Offset != 0 || req.Reranker != nil):
		return nil, invalid("export-only requests require offset=0 and no reranker")
	case req.ScoreExport.GetPassagesPerDocument() > maxExportPassages:
		return nil, invalid("score_export passages_per_document exceeds %d", maxExportPassages)
	}
	return f, nil
}

func checkNominations(req *summapb.SearchRequest, fusion *summapb.FusionQuery) error {
	if fusion == nil {
		return nil
	}
	scoreOnly := false
	for _, q := range fusion.Queries {
		scoreOnly = scoreOnly || q.ScoreOnly
	}
	if fusion.Method == summapb.FusionMethod_FUSION_CANDIDATES {
		if req.Offset != 0 || req.Reranker != nil || req.TimeBudgetMs != 0 || scoreOnly {
			return invalid("candidate export requires offset=0, complete nomination, no reranker and no score_only branches without score_export")
		}
		return nil
	}
	if fusion.CandidateDepth != 0 || scoreOnly {
		return invalid("candidate_depth/score_only require l1 or score_export")
	}
	return nil
}

func goodBranchName(n string) bool {
	for _, c := range []byte(n) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return n != "" && len(n) <= maxBranchName
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// compile makes the program of an l1 over the named branches. Its refusals are the formula's own, as those of an engine.
func compile(m *summapb.L1Ranking, names []string) (*formula.Program, error) {
	tooLong := len(m.MissingValues) > maxFusionBranches
	for n := range m.MissingValues {
		tooLong = tooLong || len(n) > maxBranchName
	}
	if tooLong {
		return nil, invalid("l1 missing defaults exceed branch/name limits")
	}
	p, err := formula.Compile(m.Formula)
	if err != nil {
		return nil, formulaError(err)
	}
	if _, err := p.Bind(names); err != nil {
		return nil, formulaError(err)
	}
	if _, err := p.NewBatch(m.MissingValues); err != nil {
		return nil, formulaError(err)
	}
	return p, nil
}

func formulaError(err error) error {
	var bad *formula.Error
	if errors.As(err, &bad) {
		return invalid("Query error: %s", bad.Msg)
	}
	return invalid("Query error: %s", err)
}

func (l Limits) window(req *summapb.SearchRequest, w *Window) error {
	w.Limit, w.Offset = int(req.Limit), int(req.Offset)
	if w.Limit == 0 {
		w.Limit = l.DefaultSearchLimit
	}
	if w.Limit > l.MaxSearchLimit {
		return invalid("SearchRequest.limit must not exceed %d (got %d)", l.MaxSearchLimit, w.Limit)
	}
	if w.Hits() > l.MaxSearchWindow {
		return invalid("SearchRequest.offset + limit must not exceed %d (got %d + %d = %d)", l.MaxSearchWindow, w.Offset, w.Limit, w.Hits())
	}
	w.Candidates = int(req.CandidateLimit)
	if w.Candidates == 0 {
		w.Candidates = w.Hits()
	}
	if most := l.mostCandidates(*w); w.Candidates > most {
		return invalid("SearchRequest.candidate_limit must not exceed %d (got %d)", most, w.Candidates)
	}
	if w.Candidates < w.Hits() {
		return invalid("SearchRequest.candidate_limit must be at least offset + limit (%d)", w.Hits())
	}
	w.Depth = w.Candidates
	return nil
}

func (l Limits) mostCandidates(w Window) int { return min(2*w.Hits(), l.MaxCandidateLimit) }

func (l Limits) checkFusion(f *summapb.FusionQuery, w *Window) error {
	if len(f.Queries) == 0 {
		return invalid("FusionQuery requires at least one sub-query")
	}
	if !finiteAndNotNegative(f.RrfK) {
		return invalid("FusionQuery.rrf_k must be finite and non-negative (got %s)", number(float64(f.RrfK), 32))
	}
	for i, q := range f.Queries {
		if !finiteAndNotNegative(q.Weight) {
			return invalid("FusionQuery.queries[%d].weight must be finite and non-negative (got %s)", i, number(float64(q.Weight), 32))
		}
	}
	if f.CandidateDepth != 0 {
		w.Depth = int(f.CandidateDepth)
	}
	if most := l.mostCandidates(*w); w.Depth > most {
		return invalid("fusion candidate_depth exceeds %d", most)
	}
	if slots := w.Depth * len(f.Queries); slots > maxFusionSlots {
		return invalid("FusionQuery candidate budget must not exceed %d (candidate_limit %d x %d sub-queries = %d)",
			maxFusionSlots, w.Candidates, len(f.Queries), slots)
	}
	return nil
}

func finiteAndNotNegative(f float32) bool { return f >= 0 && !math.IsInf(float64(f), 0) }
