package framed

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

const opKNN = "knn"

// vectorMembers are those of a vector search that are read as knn of a search over HTTP.
var vectorMembers = []string{"field", "vector", "bits", "indices", "values", "exact", "combiner", "temperature", "top_k", "decay"}

var (
	knnMembers = viewed(append([]string{"k", "ef", filtersMember, fieldsMember, defaultOp, partialMember}, vectorMembers...)...)
	// fetchVector are the members of the vector search in a request to explain one.
	fetchVector = append([]string{"k", "ef"}, vectorMembers...)
)

// combinerNames are the names of the combiners in requests.
var combinerNames = map[score.CombinerKind]string{
	score.LogSumExp: "log_sum_exp", score.Max: "max", score.Avg: "avg", score.Sum: "sum", score.WeightedTopK: "weighted_top_k",
}

// appendKNNRequest writes a vector search.
func appendKNNRequest(w *writer, r *leaf.KNNRequest) {
	w.view(&r.View)
	w.knn(&r.KNN)
	w.filters(r.Filters)
	w.defaultFields(r.DefaultFields)
	w.yes(partialMember, r.AllowPartial)
}

// knn writes a vector and how to search with it.
func (w *writer) knn(k *api.KNN) {
	w.text("field", k.Field)
	forms := 0
	for _, given := range [...]bool{k.Dense != nil, k.Bits != nil, k.Indices != nil || k.Weights != nil} {
		if given {
			forms++
		}
	}
	if forms > 1 { // one of them would get lost
		field := api.Clip(k.Field)
		w.fail(&api.Problem{Code: api.InvalidVector, Field: field, Detail: fmt.Sprintf("knn: field %q: it has one of vector, bits, and indices with values", field)})
		return
	}
	switch {
	case k.Bits != nil:
		if len(k.Bits) > schema.MaxBinaryBits/8 {
			w.fail(tooMany("bits", 8*len(k.Bits), schema.MaxBinaryBits))
			return
		}
		w.name("bits")
		w.b = append(w.b, '"')
		w.b = base64.StdEncoding.AppendEncode(w.b, k.Bits)
		w.b = append(w.b, '"')
	case k.Indices != nil || k.Weights != nil:
		if max(len(k.Indices), len(k.Weights)) > api.MaxPairs {
			w.fail(tooMany("indices", max(len(k.Indices), len(k.Weights)), api.MaxPairs))
			return
		}
		w.name("indices")
		w.b = append(w.b, '[')
		for i, n := range k.Indices {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = strconv.AppendUint(w.b, uint64(n), 10)
		}
		w.b = append(w.b, ']')
		w.floats("values", k.Weights)
	default:
		if len(k.Dense) > schema.MaxDenseDims {
			w.fail(tooMany("vector", len(k.Dense), schema.MaxDenseDims))
			return
		}
		w.floats("vector", k.Dense)
	}
	w.whole("k", k.K)
	w.yes("exact", k.Exact)
	if k.Ef != 0 {
		w.whole("ef", k.Ef)
	}
	name, ok := combinerNames[k.Combiner.Kind]
	if !ok {
		w.fail(invalid("combiner", "it is none that is known"))
		return
	}
	w.text("combiner", name)
	if c := k.Combiner; !(c.Temperature <= 0) { // 0 or less is the default
		w.float("temperature", c.Temperature)
	}
	if k.Combiner.TopK != 0 {
		w.whole("top_k", k.Combiner.TopK)
	}
	if k.Combiner.Decay != 0 {
		w.float("decay", k.Combiner.Decay)
	}
}

func (w *writer) float(name string, f float32) {
	w.name(name)
	w.number(name, f)
}

// number appends a number of a member that no text must get lost of.
func (w *writer) number(name string, f float32) {
	if !api.Finite(f) {
		w.fail(invalid(name, "it has a number that is not finite"))
		return
	}
	w.b = api.AppendScore(w.b, f)
}

func (w *writer) floats(name string, list []float32) {
	w.name(name)
	w.b = append(w.b, '[')
	for i, f := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.number(name, f)
	}
	w.b = append(w.b, ']')
}

// vectorBytes is how long each member of a vector may be: 32 bytes for each number of the longest.
const vectorBytes = 32 * schema.MaxDenseDims

// readKNNRequest reads it.
func readKNNRequest(m *message) *leaf.KNNRequest {
	r := &leaf.KNNRequest{Index: m.index}
	m.view(&r.View)
	r.KNN = m.knn()
	op := m.operator(defaultOp, query.Or)
	r.Filters = m.filters(op)
	r.DefaultFields = m.defaultFields()
	r.AllowPartial = m.yes(partialMember)
	return r
}

// knn reads a vector and how to search with it with the parser of searches over HTTP, so that there is one syntax.
func (m *message) knn() api.KNN {
	m.need("field")
	size := 0
	for _, name := range vectorMembers {
		m.fits(name, vectorBytes)
		size += len(name) + len(m.get(name)) + len(`,"":`)
	}
	if m.prob != nil {
		return api.KNN{}
	}
	body := append(make([]byte, 0, size+len(`{"knn":{}}`)), `{"knn":{`...)
	from := len(body)
	for _, name := range vectorMembers {
		if raw := m.get(name); raw != nil {
			if len(body) > from {
				body = append(body, ',')
			}
			body = append(body, '"')
			body = append(body, name...)
			body = append(body, '"', ':')
			body = append(body, raw...)
		}
	}
	body = append(body, '}', '}')
	parsed, prob := api.ParseSearchBody(body, "", api.SearchLimits{Hits: exec.MaxWindow})
	if prob != nil {
		prob.HasPosition, prob.Position, prob.Line = false, 0, 0 // of the text that was made for the parser
		m.failed(prob)
		return api.KNN{}
	}
	k := *parsed.KNN
	k.K = m.whole("k", api.DefaultK)
	k.Ef = m.whole("ef", 0)
	k.GivenK = m.has("k")
	return k
}

// appendKNNReply appends the reply to a vector search.
func appendKNNReply(b []byte, r *leaf.KNNReply) ([]byte, *api.Problem) {
	b = append(b, `{"ok":true,"hits":[`...)
	for i := range r.Hits {
		if !api.Finite(r.Hits[i].Similarity) {
			return nil, api.NewProblem(api.ScoreOverflow, "a similarity is too large for a number").On("vector")
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = api.AppendString(b, r.Hits[i].ID)
		b = append(b, ',')
		b = api.AppendScore(b, r.Hits[i].Similarity)
		b = append(b, ']')
	}
	b = append(b, `],"docs":`...)
	b = strconv.AppendUint(b, r.Docs, 10)
	if r.Partial {
		b = append(b, `,"partial":true`...)
	}
	return append(appendMeta(b, &r.Meta), '}'), nil
}

// readKNNReply reads it.
func readKNNReply(b []byte, r *leaf.KNNRequest) (*leaf.KNNReply, *api.Problem, error) {
	const neighbourBytes = 7 // ["",0],
	out := &leaf.KNNReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "hits":
			s.expect('[')
			if room := min(r.KNN.K, (len(s.b)-s.i)/neighbourBytes+1); room > 0 {
				out.Hits = make([]leaf.Neighbour, 0, room)
			}
			for first := true; s.next(&first, ']'); {
				if len(out.Hits) == r.KNN.K {
					s.fail("there are more hits than were asked for")
					break
				}
				var h leaf.Neighbour
				s.expect('[')
				h.ID = s.str()
				s.expect(',')
				h.Similarity = s.float32()
				s.expect(']')
				out.Hits = append(out.Hits, h)
			}
		case "docs":
			out.Docs = s.u64()
		case "partial":
			out.Partial = s.bool()
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "hits", "docs")
	return out, prob, err
}
