package coordinate

import (
	"cmp"
	"errors"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/score/formula"
)

// Bounds of a search that the broker ranks.
const (
	maxWindow      = 10_000    // offset + limit
	maxBranches    = 16        // of a fusion
	maxNominations = 200_000   // of all shards together
	maxUnion       = 10_000    // documents that a node is asked for
	maxExportRows  = 65_536    // passages of a document in an export
	maxMatrix      = 2_000_000 // values of features
	maxBranchName  = 128       // bytes
	defaultLimit   = 10        // what limit 0 means
	bareRows       = 8         // ordinal_scores of a hit where no export is asked for
	topKRows       = 5         // rows that the best-k combiner needs
)

// Ranking methods of replies.
const (
	methodRRF        = "global_rrf_v1"
	methodSum        = "global_weighted_sum_v1"
	methodFormula    = "formula_v1"
	methodExport     = "feature_export_v2"
	methodCandidates = "fusion_candidates_v1"
)

// way is how a search is ranked.
type way int

const (
	byScore      way = iota // as nodes scored it
	byFusion                // over the passages of all shards
	byFormula               // as nodes scored it, which is computed again
	byRRFFormula            // by a formula over ranks among all shards
)

// Plan is a search that was admitted.
type Plan struct {
	req    *summapb.SearchRequest
	fusion *summapb.FusionQuery // nil: the query is none
	way    way

	limit, window int
	depth         int  // of each branch
	nominating    int  // branches
	votes         bool // of reciprocal ranks, which are told
	tracing       bool
	seed          bool
	scored        bool // l1 or an export: votes of documents are for no passage
	export        bool
	exported      int    // rows of a document that the answer has, at most
	needed        int    // rows of a document that its score needs; 0: all
	expected      string // method that nodes have to answer by; "": any
	method        score.Method
	combiner      score.Combiner
	program       *formula.Program
	variables     []int // branches of the program's variables; -1: rrf
	missing       map[string]float64
	names         map[string]int // branches by name
}

func refuse(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Admit holds a search against the rules, in the order of the contract, for so many shards that are asked. The plan keeps the request, and
// changes it: nobody else may use it afterwards.
func Admit(req *summapb.SearchRequest, shards int) (*Plan, error) {
	p := &Plan{
		req: req, fusion: req.GetQuery().GetFusion(), votes: req.GetIncludeRrfScores(), tracing: req.GetTracing(),
		seed: req.GetScoreExport().GetSeedDocumentPassages(), scored: req.L1 != nil || req.ScoreExport != nil, export: req.ScoreExport != nil,
		limit: int(cmp.Or(req.GetLimit(), defaultLimit)),
	}
	if p.window = int(req.GetOffset()) + p.limit; p.window > maxWindow {
		return nil, refuse("coordinator result window exceeds %d", maxWindow)
	}
	if p.fusion == nil {
		if req.L1 != nil || p.votes || p.export {
			return nil, refuse("coordinator ranking requires FusionQuery")
		}
		_, err := p.candidates()
		return p, err
	}
	if err := p.admitFusion(shards); err != nil {
		return nil, err
	}
	if err := p.admitScoring(); err != nil {
		return nil, err
	}
	return p, nil
}

// candidates is the candidate limit of the request with its default.
func (p *Plan) candidates() (int, error) {
	n := int(cmp.Or(p.req.GetCandidateLimit(), uint32(p.window)))
	if n < p.window || n > 2*p.window {
		return 0, refuse("candidate_limit must cover the requested window within the engine candidate bound")
	}
	return n, nil
}

// admitFusion checks what concerns nominations, and finds the way.
func (p *Plan) admitFusion(shards int) error {
	req, q := p.req, p.fusion
	if n := len(q.GetQueries()); n == 0 || n > maxBranches {
		return refuse("fusion requires 1..%d branches", maxBranches)
	}
	if p.votes || p.tracing {
		for _, b := range q.GetQueries() {
			if len(b.GetName()) > maxBranchName {
				return refuse("diagnostic branch names exceed %d bytes", maxBranchName)
			}
		}
	}
	if req.GetTimeBudgetMs() != 0 || req.Reranker != nil && (req.L1 != nil || !p.votes && !p.tracing) {
		return refuse("coordinator fusion requires complete scoring without a legacy reranker")
	}
	good := notNegative(q.GetRrfK())
	scoreOnly := false
	for _, b := range q.GetQueries() {
		good = good && notNegative(b.GetWeight())
		if scoreOnly = scoreOnly || b.GetScoreOnly(); !b.GetScoreOnly() {
			p.nominating++
		}
	}
	if !good {
		return refuse("fusion weights and rank constant must be finite and nonnegative")
	}
	candidates, err := p.candidates()
	if err != nil {
		return err
	}
	p.depth = candidates
	if d := q.GetCandidateDepth(); d != 0 {
		p.depth = int(d)
	}
	if p.depth > 2*p.window || p.nominating == 0 || p.depth*p.nominating*shards > maxNominations {
		return refuse("combined shard nomination budget exceeded")
	}
	if scoreOnly && !p.scored {
		return refuse("score_only requires feature backfill")
	}
	p.combiner = combinerOf(q)
	switch {
	case req.L1 != nil:
		p.way, p.expected = byFormula, methodFormula
		// What is wrong with the formula is told where its turn has come.
		if f, err := formula.Compile(req.L1.GetFormula()); err == nil && f.UsesRRF() {
			p.way = byRRFFormula
		}
	case p.export:
		p.expected = methodExport
	case q.GetMethod() == summapb.FusionMethod_FUSION_CANDIDATES:
		p.expected = methodCandidates
	case req.Reranker == nil:
		p.way, p.expected = byFusion, methodCandidates
		switch q.GetMethod() {
		case summapb.FusionMethod_FUSION_RRF:
			p.method = score.RRF
		case summapb.FusionMethod_FUSION_NORMALIZED_WEIGHTED_SUM:
			p.method = score.WeightedSum
		default:
			return refuse("unknown fusion method")
		}
	}
	if p.depth*p.nominating > maxUnion {
		switch p.way {
		case byFusion:
			return refuse("per-shard branch union exceeds the %d-document response window", maxUnion)
		case byRRFFormula:
			return refuse("RRF L1 requires a complete shard union within %d documents", maxUnion)
		case byScore, byFormula:
		}
	}
	return nil
}

func notNegative(v float32) bool { return v >= 0 && !math.IsInf(float64(v), 0) }

// combinerOf is the combiner of a fusion: LogSumExp and what is unknown are Max ("Fusion arithmetic").
func combinerOf(q *summapb.FusionQuery) score.Combiner {
	c := score.Combiner{Kind: score.CombinerKind(q.GetCombiner())}
	if n := q.GetCombiner(); n <= 0 || n > summapb.MultiValueCombiner(score.WeightedTopK) {
		c.Kind = score.Max
	}
	return c
}

// admitScoring checks an export and a formula.
func (p *Plan) admitScoring() error {
	l1, export := p.req.L1, p.req.ScoreExport
	p.exported = bareRows
	if export != nil {
		if export.GetPassagesPerDocument() > maxExportRows {
			return refuse("score export exceeds %d passages per document", maxExportRows)
		}
		p.exported = int(cmp.Or(export.GetPassagesPerDocument(), maxExportRows))
	}
	bare := l1 != nil && l1.Backfill != nil && !l1.GetBackfill()
	chunked := false
	for _, b := range p.fusion.GetQueries() {
		chunked = chunked || b.GetScope() == summapb.ScoreScope_SCORE_SCOPE_CHUNK
	}
	if p.seed && (bare || !chunked) {
		return refuse("seed_document_passages requires backfill and a chunk-scoped feature")
	}
	if export.GetAllPassages() && bare {
		return refuse("all_passages diagnostics require backfill")
	}
	if l1 == nil {
		return nil
	}
	legacy := p.fusion.GetMethod() != summapb.FusionMethod_FUSION_RRF || p.fusion.GetRrfK() != 0
	for _, b := range p.fusion.GetQueries() {
		legacy = legacy || b.GetWeight() != 0
	}
	if legacy {
		return refuse("l1 directly determines ranking; legacy fusion weights/method/rrf_k must be unset")
	}
	names := make([]string, 0, len(p.fusion.GetQueries()))
	p.names = make(map[string]int, len(p.fusion.GetQueries()))
	for i, b := range p.fusion.GetQueries() {
		scope := b.GetScope()
		_, twice := p.names[b.GetName()]
		if twice || !goodName(b.GetName()) || scope != summapb.ScoreScope_SCORE_SCOPE_DOCUMENT && scope != summapb.ScoreScope_SCORE_SCOPE_CHUNK {
			return refuse("L1 branches need unique names and explicit document/chunk scope")
		}
		p.names[b.GetName()] = i
		names = append(names, b.GetName())
	}
	long := len(l1.GetMissingValues()) > maxBranches
	for n := range l1.GetMissingValues() {
		long = long || len(n) > maxBranchName
	}
	if long {
		return refuse("L1 missing defaults exceed the %d-branch bound", maxBranches)
	}
	p.missing = l1.GetMissingValues()
	var err error
	if p.program, err = formula.Compile(l1.GetFormula()); err != nil {
		return formulaFault(err)
	}
	if p.variables, err = p.program.Bind(names); err != nil {
		return formulaFault(err)
	}
	if _, err = p.program.NewBatch(p.missing); err != nil {
		return formulaFault(err)
	}
	switch p.combiner.Kind {
	case score.Max:
		p.needed = 1
	case score.WeightedTopK:
		p.needed = topKRows
	case score.Avg, score.Sum, score.LogSumExp:
		p.needed = 0
	}
	if p.way == byRRFFormula {
		p.needed = 0
	}
	return nil
}

// goodName tells whether L1 takes the name of a branch.
func goodName(n string) bool {
	for _, c := range []byte(n) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return n != "" && n != formula.RRF && len(n) <= maxBranchName
}

// formulaFault is the refusal of a formula, or of what it gives (B7).
func formulaFault(err error) error {
	if e, ok := errors.AsType[*formula.Error](err); ok {
		return refuse("Query error: %s", e.Msg)
	}
	if _, ok := errors.AsType[*formula.NonFiniteError](err); ok {
		return refuse("Query error: %s", (&formula.NonFiniteError{}).Error())
	}
	return refuse("Query error: %s", err)
}
