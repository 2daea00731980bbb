package summaquery

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/shard/passage"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/text"
)

// Bounds of the contract that need the schema.
const (
	maxMatchTerms  = 64    // of one MatchQuery that score
	stdMatchTerms  = 20    // of those where nobody says
	maxShould      = 64    // clauses of one Boolean that score
	maxProbes      = 65536 // of a vector query
	maxSparseTerms = 64    // dimensions of a sparse query that take part
)

// kind says how a part is run.
type kind uint8

const (
	kindNothing  kind = iota // matches nothing
	kindStops                // of stop words only: a Boolean leaves it out
	kindFilter               // range, prefix, all: matches with score 1
	kindExact                // a term on a text field with a column and no index: score 1
	kindText                 // words of a plain text field
	kindPassages             // words or a phrase of a chunked one
	kindVector
	kindBool
	kindBoost
)

// part is a compiled query.
type part struct {
	kind  kind
	field int
	node  query.Node // kindFilter, kindExact and kindText: what package exec runs

	terms    []token // kindText, and kindPassages: the words, in the order of the text
	term     bool    // it is a TermQuery of one word
	match    bool    // it is a MatchQuery
	phrase   bool
	slop     uint32
	maxTerms int // of a match; 0: no bound
	near     *proximity

	vector knn.Request // kindVector, without K

	must, should, not []*part // kindBool
	of                *part   // kindBoost
	factor            float32
}

// token is a word of a query text.
type token struct {
	text   string
	times  int    // in the text
	offset uint32 // in the written form, from that of the first word
}

// proximity asks for words that stand near each other.
type proximity struct {
	weight float32
	window uint32
}

func refuse(format string, args ...any) error {
	return &summa.Error{Code: codes.InvalidArgument, Text: fmt.Sprintf(format, args...)}
}

// invalid is the refusal of a query that does not fit the schema.
func invalid(format string, args ...any) error { return refuse("Invalid query: "+format, args...) }

// failed is the refusal of a query that cannot be run.
func failed(format string, args ...any) error { return refuse("Query error: "+format, args...) }

// compiler compiles the queries of one request.
type compiler struct {
	ctx     context.Context
	ix      *Index
	limits  summa.Limits
	scratch text.Scratch
}

// typeNames are those of the reference.
var typeNames = map[schema.Type]string{
	schema.Text: "Text", schema.U64: "U64", schema.I64: "I64", schema.F64: "F64", schema.Date: "Date", schema.Bytes: "Bytes",
	schema.JSON: "Json", schema.DenseVector: "DenseVector", schema.SparseVector: "SparseVector", schema.BinaryVector: "BinaryDenseVector",
}

func (c *compiler) lookup(name string) (int, *schema.Field, bool) {
	id, ok := c.ix.Schema.Lookup(name)
	if !ok {
		return 0, nil, false
	}
	return id, &c.ix.Schema.Fields[id], true
}

// textField finds the field of a text query.
func (c *compiler) textField(what, name string) (int, *schema.Field, error) {
	id, f, ok := c.lookup(name)
	switch {
	case !ok:
		return 0, nil, invalid("Field '%s' not found", name)
	case f.Type != schema.Text:
		return 0, nil, invalid("%s requires a text field, but '%s' is %s. Use RangeQuery for numeric fields.", what, name, typeNames[f.Type])
	}
	return id, f, nil
}

// query compiles a query. The request was checked (summa.Limits), so its size is bounded.
func (c *compiler) query(q *summapb.Query) (*part, error) {
	switch q := q.GetQuery().(type) {
	case *summapb.Query_Term:
		return c.term(q.Term)
	case *summapb.Query_Match:
		return c.match(q.Match)
	case *summapb.Query_Phrase:
		return c.phrase(q.Phrase)
	case *summapb.Query_Prefix:
		return c.prefix(q.Prefix)
	case *summapb.Query_Range:
		return c.rangeOf(q.Range)
	case *summapb.Query_All:
		return &part{kind: kindFilter, node: &query.All{}}, nil
	case *summapb.Query_Boolean:
		return c.boolean(q.Boolean)
	case *summapb.Query_Boost:
		return c.boost(q.Boost)
	case *summapb.Query_DenseVector:
		return c.dense(q.DenseVector)
	case *summapb.Query_BinaryDenseVector:
		return c.binary(q.BinaryDenseVector)
	case *summapb.Query_SparseVector:
		return c.sparse(q.SparseVector)
	case *summapb.Query_Fusion:
		return nil, refuse("FusionQuery is only supported at the top level")
	}
	return nil, refuse("Query type is required")
}

// tokens makes the words of a query text, each once, with how often it stands there.
func (c *compiler) tokens(what string, field int, hint, value string) ([]token, error) {
	a := c.ix.Analyzers(field)
	if hint != "" && a.HintField() != "" {
		a = a.WithHint(hint)
	}
	toks := a.Query(&c.scratch, value)
	if err := c.limits.CheckTokens(what, len(toks)); err != nil {
		return nil, err
	}
	var out []token
	at := make(map[string]int, len(toks))
	for _, t := range toks {
		if i, ok := at[string(t.Text)]; ok {
			out[i].times++
			continue
		}
		at[string(t.Text)] = len(out)
		out = append(out, token{text: string(t.Text), times: 1})
	}
	return out, nil
}

func (c *compiler) term(q *summapb.TermQuery) (*part, error) {
	id, f, err := c.textField("TermQuery", q.GetField())
	if err != nil {
		return nil, err
	}
	toks, err := c.tokens("TermQuery", id, q.GetTokenizerHint(), q.GetTerm())
	if err != nil {
		return nil, err
	}
	if len(toks) == 0 {
		return nil, invalid("No tokens in term '%s'", q.GetTerm())
	}
	var all []*part
	for _, t := range toks {
		for range t.times {
			all = append(all, c.word(id, f, t))
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return &part{kind: kindBool, must: all}, nil
}

// word is the part of one word.
func (c *compiler) word(id int, f *schema.Field, t token) *part {
	switch {
	case !f.Indexed && !f.Fast:
		return &part{kind: kindNothing}
	case !f.Indexed:
		return &part{kind: kindExact, field: id, node: &query.Terms{Field: f.Name, Values: []string{t.text}}}
	case f.Chunked:
		return &part{kind: kindPassages, field: id, terms: []token{{text: t.text, times: 1}}, term: true}
	}
	return &part{kind: kindText, field: id, terms: []token{{text: t.text, times: 1}}, term: true}
}

func (c *compiler) match(q *summapb.MatchQuery) (*part, error) {
	id, f, err := c.textField("MatchQuery", q.GetField())
	if err != nil {
		return nil, err
	}
	if h := float64(q.GetHeapFactor()); math.IsNaN(h) || h < 0 || h > 1 {
		return nil, invalid("MatchQuery heap_factor must be finite and between 0 and 1")
	}
	if w := float64(q.GetProximityWeight()); math.IsNaN(w) || math.IsInf(w, 0) || w < 0 {
		return nil, invalid("MatchQuery proximity_weight must be finite and non-negative")
	}
	if prefix, ok := strings.CutSuffix(q.GetText(), "*"); ok {
		if f.Chunked {
			return nil, invalid("Prefix queries are not supported on chunked text field '%s'; use a MatchQuery or PhraseQuery", f.Name)
		}
		if prefix = c.ix.Analyzers(id).Normalize(prefix); prefix == "" {
			return nil, invalid("Prefix query must not be empty")
		}
		return c.prefixOf(id, f, prefix)
	}
	toks, err := c.tokens("MatchQuery", id, q.GetTokenizerHint(), q.GetText())
	if err != nil {
		return nil, err
	}
	if len(toks) == 0 {
		return &part{kind: kindStops}, nil
	}
	if !f.Indexed {
		any := &part{kind: kindBool}
		for _, t := range toks {
			any.should = append(any.should, c.word(id, f, t))
		}
		return any, nil
	}
	p := &part{kind: kindText, field: id, terms: toks, match: true, maxTerms: stdMatchTerms}
	if f.Chunked {
		p.kind = kindPassages
	}
	if n, err := strconv.Atoi(summa.QueryOptions(f)["max_terms"]); err == nil {
		p.maxTerms = n
	}
	if n := q.GetMaxTerms(); n > 0 {
		p.maxTerms = int(min(n, maxMatchTerms))
	}
	p.maxTerms = min(max(p.maxTerms, 1), maxMatchTerms)
	if w := q.GetProximityWeight(); w > 0 && len(toks) > 1 && (f.Positions >= schema.TokenPositions) {
		p.near = &proximity{weight: w, window: cmp.Or(q.GetProximityWindow(), 8)}
	}
	return p, nil
}

func (c *compiler) phrase(q *summapb.PhraseQuery) (*part, error) {
	id, f, err := c.textField("PhraseQuery", q.GetField())
	if err != nil {
		return nil, err
	}
	a := c.ix.Analyzers(id)
	if hint := q.GetTokenizerHint(); hint != "" && a.HintField() != "" {
		a = a.WithHint(hint)
	}
	toks := a.Exact(&c.scratch, q.GetText())
	if err := c.limits.CheckTokens("PhraseQuery", len(toks)); err != nil {
		return nil, err
	}
	switch {
	case len(toks) == 0:
		return &part{kind: kindStops}, nil
	case len(toks) == 1:
		p := c.word(id, f, token{text: string(toks[0].Text), times: 1})
		p.term = false // it has no rows for plain text
		return p, nil
	case f.Positions < schema.TokenPositions || !f.Indexed:
		return nil, failed("phrase queries on field %q require token positions; rebuild with indexed<token_position> or use AND for unordered terms", f.Name)
	}
	p := &part{kind: kindText, field: id, phrase: true, slop: q.GetSlop()}
	if f.Chunked {
		p.kind = kindPassages
	} else {
		p.node = &query.Phrase{Field: f.Name, Text: q.GetText(), Slop: q.GetSlop()}
	}
	for _, t := range toks {
		p.terms = append(p.terms, token{text: string(t.Text), times: 1, offset: t.Pos - toks[0].Pos})
	}
	return p, nil
}

func (c *compiler) prefix(q *summapb.PrefixQuery) (*part, error) {
	id, f, ok := c.lookup(q.GetField())
	switch {
	case !ok:
		return nil, invalid("Field '%s' not found", q.GetField())
	case f.Type != schema.Text || !f.Indexed:
		return nil, failed("PrefixQuery requires an indexed text field, but '%s' is %s (indexed=%t)", f.Name, typeNames[f.Type], f.Indexed)
	case f.Chunked:
		return nil, failed("PrefixQuery is not supported on chunked text field '%s'; use a MatchQuery or PhraseQuery", f.Name)
	case q.GetPrefix() == "":
		return nil, invalid("Prefix query must not be empty")
	}
	return c.prefixOf(id, f, c.ix.Analyzers(id).Normalize(q.GetPrefix()))
}

func (c *compiler) prefixOf(id int, f *schema.Field, prefix string) (*part, error) {
	if !f.Indexed {
		return nil, failed("PrefixQuery requires an indexed text field, but '%s' is %s (indexed=%t)", f.Name, typeNames[f.Type], f.Indexed)
	}
	return &part{kind: kindFilter, field: id, node: &query.Prefix{Field: f.Name, Text: prefix}}, nil
}

func (c *compiler) rangeOf(q *summapb.RangeQuery) (*part, error) {
	id, f, ok := c.lookup(q.GetField())
	switch {
	case !ok:
		return nil, invalid("Range query field '%s' not found", q.GetField())
	case !f.Fast || f.Type == schema.Bytes || f.Type == schema.JSON:
		return nil, invalid("Range query field '%s' must have fast=true in schema", f.Name)
	}
	r := &query.Range{Field: f.Name}
	bound := func(s string) *query.Bound { return &query.Bound{Value: s} }
	switch {
	case q.MinU64 != nil || q.MaxU64 != nil:
		if q.MinU64 != nil {
			r.Min = bound(wholeBound(f, new(big.Int).SetUint64(q.GetMinU64()), true))
		}
		if q.MaxU64 != nil {
			r.Max = bound(wholeBound(f, new(big.Int).SetUint64(q.GetMaxU64()), false))
		}
	case q.MinI64 != nil || q.MaxI64 != nil:
		if q.MinI64 != nil {
			r.Min = bound(wholeBound(f, big.NewInt(q.GetMinI64()), true))
		}
		if q.MaxI64 != nil {
			r.Max = bound(wholeBound(f, big.NewInt(q.GetMaxI64()), false))
		}
	case q.MinF64 != nil || q.MaxF64 != nil:
		for _, v := range []*float64{q.MinF64, q.MaxF64} {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
				return nil, invalid("Range query bounds must be finite")
			}
		}
		if q.MinF64 != nil {
			r.Min = bound(decimal(q.GetMinF64()))
		}
		if q.MaxF64 != nil {
			r.Max = bound(decimal(q.GetMaxF64()))
		}
	}
	if r.Min == nil && r.Max == nil {
		return &part{kind: kindFilter, field: id, node: &query.Exists{Field: f.Name}}, nil
	}
	if f.Type == schema.Text {
		return nil, invalid("Range query bounds are numbers, but '%s' is %s", f.Name, typeNames[f.Type])
	}
	return &part{kind: kindFilter, field: id, node: r}, nil
}

// decimal prints a bound so that it means the same to a field of whole numbers: all digits of those that have no fraction for certain.
func decimal(v float64) string {
	if math.Abs(v) >= 1<<53 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// wholeBound prints a whole number as the bound of a field. To one of floats that does not have it, it is the next one inward.
func wholeBound(f *schema.Field, n *big.Int, lower bool) string {
	if f.Type != schema.F64 {
		return n.String()
	}
	exact := new(big.Float).SetInt(n)
	v, _ := exact.Float64()
	switch at := big.NewFloat(v).Cmp(exact); {
	case lower && at < 0:
		v = math.Nextafter(v, math.Inf(1))
	case !lower && at > 0:
		v = math.Nextafter(v, math.Inf(-1))
	}
	return decimal(v)
}

func (c *compiler) boolean(q *summapb.BooleanQuery) (*part, error) {
	p := &part{kind: kindBool}
	for _, list := range []struct {
		in  []*summapb.Query
		out *[]*part
	}{{q.GetMust(), &p.must}, {q.GetShould(), &p.should}, {q.GetMustNot(), &p.not}} {
		for _, one := range list.in {
			k, err := c.query(one)
			if err != nil {
				return nil, err
			}
			if k.kind != kindStops {
				*list.out = append(*list.out, k)
			}
		}
	}
	switch {
	case len(p.must)+len(p.should)+len(p.not) == 0:
		p.kind = kindNothing
	case len(p.must) == 1 && len(p.should)+len(p.not) == 0:
		return p.must[0], nil
	case len(p.should) == 1 && len(p.must)+len(p.not) == 0:
		return p.should[0], nil
	}
	return p, nil
}

func (c *compiler) boost(q *summapb.BoostQuery) (*part, error) {
	if q.GetQuery() == nil {
		return nil, refuse("BoostQuery requires an inner query")
	}
	if f := float64(q.GetBoost()); math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, invalid("Boost must be a finite number")
	}
	of, err := c.query(q.GetQuery())
	if err != nil {
		return nil, err
	}
	if of.kind == kindNothing || of.kind == kindStops {
		return of, nil
	}
	return &part{kind: kindBoost, of: of, factor: q.GetBoost()}, nil
}

// combiner is that of a vector query.
func combiner(kind summapb.MultiValueCombiner, temperature float32, topK uint32, decay float32) (score.Combiner, error) {
	c := score.Combiner{Kind: score.CombinerKind(kind), Temperature: temperature, TopK: int(min(topK, 1<<30)), Decay: decay}
	if kind < 0 || c.Kind > score.WeightedTopK {
		c.Kind = score.LogSumExp
	}
	if d := float64(decay); c.Kind == score.WeightedTopK && (math.IsNaN(d) || d < 0 || d > 1) {
		return c, failed("WeightedTopK decay must be finite and in [0, 1], got %s", trim(d))
	}
	if t := float64(temperature); math.IsNaN(t) || math.IsInf(t, 0) {
		c.Temperature = 0
	}
	return c, nil
}

func trim(f float64) string { return strconv.FormatFloat(f, 'f', -1, 32) }

func (c *compiler) vectorField(what, name string, want schema.Type, kindName string) (int, *schema.Field, error) {
	id, f, ok := c.lookup(name)
	switch {
	case !ok:
		return 0, nil, invalid("Field '%s' not found", name)
	case f.Type != want:
		return 0, nil, invalid("%s requires a %s field, but '%s' is %s", what, kindName, name, typeNames[f.Type])
	}
	return id, f, nil
}

func (c *compiler) dense(q *summapb.DenseVectorQuery) (*part, error) {
	id, f, err := c.vectorField("DenseVectorQuery", q.GetField(), schema.DenseVector, "dense_vector")
	switch {
	case err != nil:
		return nil, err
	case len(q.GetVector()) != f.Dim:
		return nil, invalid("Dense query vector length %d does not match field '%s' dimension %d", len(q.GetVector()), f.Name, f.Dim)
	case !finite(q.GetVector()):
		return nil, invalid("Dense query vector must contain only finite values")
	case q.GetNprobe() > maxProbes:
		return nil, invalid("Dense query nprobe must be at most %d, got %d", maxProbes, q.GetNprobe())
	}
	comb, err := combiner(q.GetCombiner(), q.GetCombinerTemperature(), q.GetCombinerTopK(), q.GetCombinerDecay())
	if err != nil {
		return nil, err
	}
	return &part{kind: kindVector, field: id, vector: knn.Request{Field: f.Name, Dense: q.GetVector(), Combiner: comb}}, nil
}

func finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) })
}

func (c *compiler) binary(q *summapb.BinaryDenseVectorQuery) (*part, error) {
	id, f, err := c.vectorField("BinaryDenseVectorQuery", q.GetField(), schema.BinaryVector, "binary_dense_vector")
	switch {
	case err != nil:
		return nil, err
	case len(q.GetVector()) != f.Dim/8:
		return nil, invalid("Binary query byte length %d does not match field '%s' byte length %d", len(q.GetVector()), f.Name, f.Dim/8)
	case q.GetNprobe() > maxProbes:
		return nil, refuse("binary nprobe exceeds maximum %d", maxProbes)
	case q.GetPrefixRerank() > 0 && !slices.ContainsFunc(f.Options, func(o schema.Option) bool { return o.Name == "prefix_bits" }):
		return nil, invalid("binary prefix_rerank requires an IVF field with prefix_bits")
	}
	comb, err := combiner(q.GetCombiner(), q.GetCombinerTemperature(), q.GetCombinerTopK(), q.GetCombinerDecay())
	if err != nil {
		return nil, err
	}
	return &part{kind: kindVector, field: id, vector: knn.Request{Field: f.Name, Bits: q.GetVector(), Combiner: comb}}, nil
}

// clause is what package passage looks for.
func (p *part) clause(f *schema.Field) passage.Clause {
	c := passage.Clause{Field: p.field, K1: f.K1, B: f.B, Phrase: p.phrase, Slop: p.slop}
	for _, t := range p.terms {
		c.Terms = append(c.Terms, passage.Term{Text: t.text, Boost: float32(t.times), Offset: t.offset})
	}
	return c
}
