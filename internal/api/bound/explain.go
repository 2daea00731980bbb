package bound

import (
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/vector"
)

// LongTrees is the problem of explanations that are longer than a reply may be.
func LongTrees(most int64) *api.Problem {
	return api.NewProblem(api.ReplyTooLarge, "the explanations of the hits are longer than the reply may be; ask for fewer hits").On("limit").Within(most)
}

// AppendFused appends how the score of a hit of a hybrid search was made. lexical and vector append how its score in each ranking was;
// each is called only if the hit is in that ranking.
func AppendFused(b []byte, req *api.SearchRequest, fused float32, v *Votes, lexical, vector func(b []byte) ([]byte, error)) ([]byte, error) {
	b = append(b, `{"kind":`...)
	b = api.AppendString(b, req.Fusion.String())
	b = append(b, `,"value":`...)
	b = api.AppendScore(b, fused)
	if req.Fusion == api.RRF {
		b = append(b, `,"k":`...)
		b = strconv.AppendInt(b, RankConstant, 10)
	}
	b = append(b, `,"parts":[`...)
	var err error
	if v.LexicalRank > 0 {
		b = appendRanking(b, "lexical", v.LexicalPart, v.LexicalRank, req.Weights[LexicalBranch], v.LexicalScore)
		if b, err = lexical(b); err != nil {
			return nil, err
		}
		b = append(b, ']', '}')
	}
	if v.VectorRank > 0 {
		if v.LexicalRank > 0 {
			b = append(b, ',')
		}
		b = appendRanking(b, "vector", v.VectorPart, v.VectorRank, req.Weights[VectorBranch], v.VectorScore)
		if b, err = vector(b); err != nil {
			return nil, err
		}
		b = append(b, ']', '}')
	}
	return append(b, ']', '}'), nil
}

// appendRanking appends what one ranking adds to a fused score, up to its parts.
func appendRanking(b []byte, name string, value float32, rank uint32, weight, own float32) []byte {
	b = append(b, `{"kind":"ranking","ranking":`...)
	b = api.AppendString(b, name)
	b = append(b, `,"value":`...)
	b = api.AppendScore(b, value)
	b = append(b, `,"rank":`...)
	b = strconv.AppendUint(b, uint64(rank), 10)
	b = append(b, `,"weight":`...)
	b = api.AppendScore(b, weight)
	b = append(b, `,"score":`...)
	b = api.AppendScore(b, own)
	return append(b, `,"parts":[`...)
}

// AppendExplanation appends how a text score was made, with its parts.
func AppendExplanation(b []byte, e *exec.Explanation) []byte {
	b = append(b, `{"kind":`...)
	b = api.AppendString(b, e.Kind)
	b = append(b, `,"value":`...)
	b = appendFinite(b, e.Value)
	b = append(b, `,"match":`...)
	b = strconv.AppendBool(b, e.Match)
	if e.Field != "" {
		b = append(b, `,"field":`...)
		b = api.AppendString(b, e.Field)
	}
	if e.Text != "" {
		b = append(b, `,"text":`...)
		b = api.AppendString(b, e.Text)
	}
	if e.Kind == exec.ExplainBoost {
		b = append(b, `,"factor":`...)
		b = appendFinite(b, e.Factor)
	}
	if p := e.BM25; p != nil {
		b = append(b, `,"bm25":{"tf":`...)
		b = strconv.AppendUint(b, uint64(p.TF), 10)
		b = append(b, `,"len":`...)
		b = strconv.AppendUint(b, uint64(p.Len), 10)
		b = append(b, `,"avg":`...)
		b = appendFinite(b, p.Avg)
		b = append(b, `,"docs":`...)
		b = strconv.AppendUint(b, p.Docs, 10)
		b = append(b, `,"df":`...)
		b = strconv.AppendUint(b, p.DF, 10)
		b = append(b, `,"idf":`...)
		b = appendFinite(b, p.IDF)
		b = append(b, `,"k1":`...)
		b = appendFinite(b, p.K1)
		b = append(b, `,"b":`...)
		b = appendFinite(b, p.B)
		b = append(b, `,"sum":`...)
		b = strconv.AppendUint(b, p.SumLen, 10)
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, p.DocsWithText, 10)
		b = append(b, '}')
	}
	if len(e.Parts) > 0 {
		b = append(b, `,"parts":[`...)
		for i, part := range e.Parts {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendExplanation(b, part)
		}
		b = append(b, ']')
	}
	if e.More > 0 {
		b = append(b, `,"more":`...)
		b = strconv.AppendInt(b, int64(e.More), 10)
	}
	return append(b, '}')
}

// appendFinite appends a number, or 0 in place of one that JSON does not have: parts of a boosted sum may overflow and yet be
// left out of the score.
func appendFinite(b []byte, f float32) []byte {
	if !api.Finite(f) {
		f = 0
	}
	return api.AppendScore(b, f)
}

// combinerNames are the names of the combiners in requests.
var combinerNames = [...]string{score.LogSumExp: "log_sum_exp", score.Max: "max", score.Avg: "avg", score.Sum: "sum", score.WeightedTopK: "weighted_top_k"}

// maxExplainedValues bounds the vectors of a document that its explanation names.
const maxExplainedValues = 100

// AppendVector appends how a similarity was made of those of the vectors of a document.
func AppendVector(b []byte, sch *schema.Schema, q *api.KNN, similarity float32, values []knn.Value) []byte {
	b = append(b, `{"kind":"vector","value":`...)
	b = api.AppendScore(b, similarity)
	b = append(b, `,"field":`...)
	b = api.AppendString(b, q.Field)
	b = append(b, `,"metric":`...)
	b = api.AppendString(b, metric(sch, q.Field))
	b = append(b, `,"combiner":`...)
	b = api.AppendString(b, combinerNames[q.Combiner.Kind])
	b = append(b, `,"values":[`...)
	for i, v := range values[:min(len(values), maxExplainedValues)] {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"ordinal":`...)
		b = strconv.AppendInt(b, int64(v.Ordinal), 10)
		b = append(b, `,"similarity":`...)
		b = api.AppendScore(b, v.Similarity)
		b = append(b, '}')
	}
	b = append(b, ']')
	if more := len(values) - maxExplainedValues; more > 0 {
		b = append(b, `,"more":`...)
		b = strconv.AppendInt(b, int64(more), 10)
	}
	return append(b, '}')
}

// metric names how the vectors of a field are compared.
func metric(sch *schema.Schema, field string) string {
	f, ok := sch.Lookup(field)
	if !ok {
		return ""
	}
	switch fd := &sch.Fields[f]; {
	case fd.Type == schema.BinaryVector:
		return "hamming"
	case fd.Type == schema.SparseVector:
		return "dot"
	case fd.Metric == "":
		return "unit"
	default:
		return fd.Metric
	}
}

// AppendSearch appends what a search was taken for and how its vector search was planned; plan is nil without one.
func AppendSearch(b []byte, q *Query, filters []query.Node, plan *knn.Plan) []byte {
	b = append(b, `{"query":`...)
	b = api.AppendString(b, q.Root.String())
	b = append(b, `,"filters":`...)
	b = api.AppendStrings(b, nodeTexts(filters))
	if plan != nil {
		b = append(b, `,"knn":`...)
		b = AppendPlan(b, plan)
	}
	return append(b, '}')
}

func nodeTexts(list []query.Node) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.String()
	}
	return out
}

// AppendPlan appends how a vector search was planned, and the work that it took.
func AppendPlan(b []byte, p *knn.Plan) []byte {
	b = append(b, `{"path":`...)
	b = api.AppendString(b, string(p.Path))
	b = append(b, `,"docs":`...)
	b = strconv.AppendUint(b, p.Docs, 10)
	b = append(b, `,"matching":`...)
	b = strconv.AppendUint(b, p.Matching, 10)
	b = append(b, `,"selectivity":`...)
	b = strconv.AppendFloat(b, p.Selectivity, 'g', -1, 64)
	b = append(b, `,"approximate":`...)
	b = strconv.AppendBool(b, p.Approximate)
	b = appendWork(b, p.Work)
	b = append(b, `,"leaves":[`...)
	for i := range p.Leaves {
		l := &p.Leaves[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"path":`...)
		b = api.AppendString(b, string(l.Path))
		b = append(b, `,"docs":`...)
		b = strconv.AppendUint(b, uint64(l.Docs), 10)
		b = append(b, `,"matching":`...)
		b = strconv.AppendUint(b, uint64(l.Matching), 10)
		b = append(b, `,"vectors":`...)
		b = strconv.AppendInt(b, int64(l.Vectors), 10)
		b = append(b, `,"estimate":`...)
		b = strconv.AppendUint(b, l.Estimate, 10)
		b = append(b, `,"scan_cost":`...)
		b = strconv.AppendFloat(b, l.ScanCost, 'f', 0, 64)
		b = append(b, `,"graph_cost":`...)
		b = strconv.AppendFloat(b, l.GraphCost, 'f', 0, 64)
		b = append(b, `,"approximate":`...)
		b = strconv.AppendBool(b, l.Approximate)
		b = appendWork(b, l.Work)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func appendWork(b []byte, w vector.Work) []byte {
	b = append(b, `,"work":{"visited":`...)
	b = strconv.AppendUint(b, w.Visited, 10)
	b = append(b, `,"distances":`...)
	b = strconv.AppendUint(b, w.Distances, 10)
	b = append(b, `,"rescored":`...)
	b = strconv.AppendUint(b, w.Rescored, 10)
	return append(b, '}')
}
