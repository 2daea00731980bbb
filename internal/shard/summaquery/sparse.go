package summaquery

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/text/subword"
)

func (c *compiler) sparse(q *summapb.SparseVectorQuery) (*part, error) {
	id, f, err := c.vectorField("SparseVectorQuery", q.GetField(), schema.SparseVector, "sparse_vector")
	switch {
	case err != nil:
		return nil, err
	case q.GetText() == "" && len(q.GetIndices()) != len(q.GetValues()):
		return nil, invalid("Sparse query indices and values must have the same length (%d vs %d)", len(q.GetIndices()), len(q.GetValues()))
	case q.GetText() == "" && !finite(q.GetValues()):
		return nil, invalid("Sparse query values must be finite")
	}
	if p := float64(q.GetPruning()); math.IsNaN(p) || p < 0 || p > 1 {
		return nil, invalid("Sparse query pruning must be finite and in [0, 1], got %s", trim(p))
	}
	comb, err := combiner(q.GetCombiner(), q.GetCombinerTemperature(), q.GetCombinerTopK(), q.GetCombinerDecay())
	if err != nil {
		return nil, err
	}
	options := summa.QueryOptions(f)
	indices, values := q.GetIndices(), q.GetValues()
	if q.GetText() != "" {
		if options == nil {
			return nil, invalid("Field '%s' has no query config", f.Name)
		}
		if indices, values, err = c.sparseText(id, f, options, q.GetText()); err != nil {
			return nil, err
		}
	}
	indices, weights := sparseQuery(indices, values, chosenDims(q, options))
	if len(indices) == 0 {
		return &part{kind: kindNothing}, nil
	}
	return &part{kind: kindVector, field: id, vector: knn.Request{Field: f.Name, Indices: indices, Weights: weights, Combiner: comb}}, nil
}

// dimsChosen says which dimensions of a sparse query take part.
type dimsChosen struct {
	least float32 // weights below it do not
	most  int     // of the heaviest
	share float32 // of all, the heaviest; 0: all
}

// chosenDims are what a query says, and what it does not say of what its field does.
func chosenDims(q *summapb.SparseVectorQuery, options map[string]string) dimsChosen {
	number := func(given float32, name string) float32 {
		if given > 0 {
			return given
		}
		v, err := strconv.ParseFloat(options[name], 32)
		if err != nil || v < 0 {
			return 0
		}
		return float32(v)
	}
	out := dimsChosen{least: number(q.GetWeightThreshold(), "weight_threshold"), most: maxSparseTerms, share: number(q.GetPruning(), "pruning")}
	if n := q.GetMaxQueryDims(); n > 0 {
		out.most = int(min(n, maxSparseTerms))
	} else if n, err := strconv.Atoi(options["max_dims"]); err == nil && n > 0 {
		out.most = min(n, maxSparseTerms)
	}
	return out
}

// sparseQuery returns the dimensions of a sparse query that take part, ascending: equal ones added up, those that weigh too little left
// out, and of the rest the heaviest.
func sparseQuery(dims []uint32, values []float32, chosen dimsChosen) (indices []uint32, weights []float32) {
	type pair struct {
		i uint32
		w float32
	}
	var pairs []pair
	for k, i := range dims {
		pairs = append(pairs, pair{i, values[k]})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.i, b.i) })
	out := pairs[:0]
	for _, p := range pairs {
		if n := len(out); n > 0 && out[n-1].i == p.i {
			out[n-1].w += p.w
			continue
		}
		out = append(out, p)
	}
	abs := func(w float32) float32 { return float32(math.Abs(float64(w))) }
	out = slices.DeleteFunc(out, func(p pair) bool { return p.w == 0 || abs(p.w) < chosen.least })
	most := chosen.most
	if p := chosen.share; p > 0 && p < 1 {
		most = min(most, max(int(math.Ceil(float64(p)*float64(len(out)))), 1))
	}
	if most < len(out) {
		slices.SortStableFunc(out, func(a, b pair) int { return cmp.Compare(abs(b.w), abs(a.w)) })
		out = out[:most]
		slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.i, b.i) })
	}
	for _, p := range out {
		indices, weights = append(indices, p.i), append(weights, p.w)
	}
	return indices, weights
}

// sparseText makes the dimensions of a text: each token that it has, once, with a weight by the declared rule.
func (c *compiler) sparseText(id int, f *schema.Field, options map[string]string, s string) (indices []uint32, values []float32, err error) {
	name, err := strconv.Unquote(options["tokenizer"])
	if err != nil || name == "" {
		return nil, nil, invalid("Field '%s' has no tokenizer in its query config", f.Name)
	}
	if c.ix.Models == nil {
		return nil, nil, invalid("Field '%s': the tokenizer '%s' is not here: this server was given no folder of tokenizers", f.Name, name)
	}
	tok, err := c.ix.Models.Tokenizer(name)
	if err != nil {
		return nil, nil, modelFault(f, name, "tokenizer", err)
	}
	toks, err := tok.Tokens(s, nil)
	if err != nil {
		return nil, nil, modelFault(f, name, "tokenizer", err)
	}
	if f.Element == "u16" { // no vector has the others
		toks = slices.DeleteFunc(toks, func(t uint32) bool { return t > math.MaxUint16 })
	}
	slices.Sort(toks)
	indices = slices.Compact(toks)
	values = make([]float32, len(indices))
	switch options["weighting"] {
	case "idf":
		return indices, values, c.inverseFrequencies(id, indices, values)
	case "idf_file":
		w, err := c.ix.Models.Weights(name)
		if err != nil {
			return nil, nil, modelFault(f, name, "idf.json", err)
		}
		for i, t := range indices {
			values[i] = w.Of(t)
		}
	default:
		for i := range values {
			values[i] = 1
		}
	}
	return indices, values, nil
}

func modelFault(f *schema.Field, name, what string, err error) error {
	if _, ok := errors.AsType[*subword.NotFoundError](err); ok {
		return invalid("Field '%s': the %s of '%s' is not in the folder of tokenizers", f.Name, what, name)
	}
	if bad, ok := errors.AsType[*subword.FormatError](err); ok {
		return invalid("Field '%s': the %s of '%s' cannot be used: %s", f.Name, what, name, strings.TrimSpace(bad.Reason))
	}
	return err
}

// inverseFrequencies are ln(N/df) over the live values of the field. What no value has has the weight of none: it finds nothing.
func (c *compiler) inverseFrequencies(id int, dims []uint32, values []float32) error {
	var all uint64
	counts := make([]uint64, len(dims))
	for _, l := range c.ix.Leaves {
		x := l.SparseVectors(id)
		if x == nil {
			continue
		}
		n, err := x.Count(dims, l.Live(), func(int) error { return c.ctx.Err() }, counts)
		if err != nil {
			return err
		}
		all += n
	}
	for i, df := range counts {
		if values[i] = 0; df > 0 {
			values[i] = float32(math.Log(float64(all) / float64(df)))
		}
	}
	return nil
}
