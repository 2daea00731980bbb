package node

import (
	"bytes"
	"context"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// maxExplained bounds the hits of a search with explain: a tree is much longer than a hit.
const maxExplained = 100

// explain renders how the score of each hit was made; nil without explain.
func (x *execution) explain(ctx context.Context) ([][]byte, *api.Problem) {
	if !x.req.Explain {
		return nil, nil
	}
	defer x.watch.lap(stageExplain)
	trees, err := x.trees(ctx)
	switch {
	case err == nil:
		return trees, nil
	case x.tolerate(err):
		return nil, nil
	}
	return nil, x.placed(ctx, err)
}

// trees renders how the score of each hit was made. What they take is charged as they grow.
func (x *execution) trees(ctx context.Context) ([][]byte, error) {
	trees := make([][]byte, len(x.rank.hits))
	var lexical *exec.Explainer // nil where no hit has a text score
	if len(trees) > 0 && (x.req.KNN == nil || !x.everything) {
		var err error
		lexical, err = exec.NewExplainer(ctx, x.leaves, x.sch, x.analyzers, x.root, x.stats, x.req.DefaultFields, x.rank.hits)
		if err != nil {
			return nil, err
		}
		defer lexical.Close()
	}
	var scratch []byte
	var size, charged int64
	for i := range trees {
		var err error
		if scratch, err = x.appendTree(scratch[:0], lexical, i); err != nil {
			return nil, err
		}
		trees[i] = bytes.Clone(scratch)
		if size += int64(len(scratch)); size > x.node.cfg.Limits.ReplyBytes {
			most := x.node.cfg.Limits.ReplyBytes
			return nil, api.NewProblem(api.ReplyTooLarge, "the explanations of the hits are longer than the reply may be; ask for fewer hits").On("limit").Within(most)
		}
		if more := replyCopies * (size - charged); more >= chargeFrom {
			if err := x.charge(more); err != nil {
				return nil, err
			}
			charged = size
		}
	}
	return trees, nil
}

// appendTree appends how the score of hit i was made.
func (x *execution) appendTree(b []byte, lexical *exec.Explainer, i int) ([]byte, error) {
	h := &x.rank.hits[i]
	if x.req.KNN == nil {
		return appendLexical(b, lexical, i)
	}
	if x.everything {
		return x.vectorTree(b, h, h.Score)
	}
	v := &x.rank.votes[i]
	b = append(b, `{"kind":`...)
	b = api.AppendString(b, x.req.Fusion.String())
	b = append(b, `,"value":`...)
	b = api.AppendScore(b, h.Score)
	if x.req.Fusion == api.RRF {
		b = append(b, `,"k":`...)
		b = strconv.AppendInt(b, rankConstant, 10)
	}
	b = append(b, `,"parts":[`...)
	if v.lexicalRank > 0 {
		b = appendRanking(b, "lexical", v.lexicalPart, v.lexicalRank, x.req.Weights[lexicalBranch], v.lexicalScore)
		var err error
		if b, err = appendLexical(b, lexical, i); err != nil {
			return nil, err
		}
		b = append(b, ']', '}')
	}
	if v.vectorRank > 0 {
		if v.lexicalRank > 0 {
			b = append(b, ',')
		}
		b = appendRanking(b, "vector", v.vectorPart, v.vectorRank, x.req.Weights[vectorBranch], v.vectorScore)
		var err error
		if b, err = x.vectorTree(b, h, v.vectorScore); err != nil {
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

func appendLexical(b []byte, lexical *exec.Explainer, i int) ([]byte, error) {
	e, err := lexical.Explain(i)
	if err != nil {
		return nil, err
	}
	return appendExplanation(b, e), nil
}

func appendExplanation(b []byte, e *exec.Explanation) []byte {
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
			b = appendExplanation(b, part)
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

func (x *execution) vectorTree(b []byte, h *exec.Hit, similarity float32) ([]byte, error) {
	q := x.req.KNN
	values, err := knn.Values(x.leaves, x.sch, x.vectorRequest(x.req.KNN, 0, x.req.Filters), h.Leaf, h.Doc)
	if err != nil {
		return nil, err
	}
	b = append(b, `{"kind":"vector","value":`...)
	b = api.AppendScore(b, similarity)
	b = append(b, `,"field":`...)
	b = api.AppendString(b, q.Field)
	b = append(b, `,"metric":`...)
	b = api.AppendString(b, x.metric(q.Field))
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
	return append(b, '}'), nil
}

// metric names how the vectors of a field are compared.
func (x *execution) metric(field string) string {
	f, ok := x.sch.Lookup(field)
	if !ok {
		return ""
	}
	switch fd := &x.sch.Fields[f]; {
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

// searchPlan renders what the search was taken for and how its vector search was planned.
func (x *execution) searchPlan() []byte {
	b := append([]byte(nil), `{"query":`...)
	b = api.AppendString(b, x.root.String())
	b = append(b, `,"filters":`...)
	b = api.AppendStrings(b, nodeTexts(x.req.Filters))
	if x.rank.plan != nil {
		b = append(b, `,"knn":`...)
		b = appendPlan(b, x.rank.plan)
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
