package oracletest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	summapb "github.com/weft-search/weft/api/summa"
)

// sdl has every kind of field. What stands for %s are options of one of them.
const sdl = `index o {
	field id: text<raw> [primary, stored]
	field none: text<simple> [indexed, stored]
	field token: text<en_stem> [indexed<token_position%s>, stored<multi>]
	field ord: text<en_stop> [indexed<ordinal>, stored<multi>, fast]
	field pos: text<en_stem_stop> [indexed<positions, k1: 0.9, b: 0.4>, stored]
	field tag: text<raw> [indexed, stored<multi>, fast]
	field column: text<raw> [stored, fast]
	field kept: text<simple> [stored]
	field chunk: text<en_stem> [indexed<chunked, token_position>, stored<multi>]
	field chunkfast: text<simple> [indexed<chunked, token_position, k1: 2, b: 0.5>, stored<multi>, fast]
	field chunkplain: text<en_stop> [indexed<chunked>, stored<multi>]
	field lang: text<raw> [stored<multi>]
	field lex: text<lex(by: lang, default: en)> [indexed<positions>, stored<multi>]
	field lexchunk: text<lex(by: lang, default: de, variants: true)> [indexed<chunked, token_position>, stored<multi>]
	field u: u64 [indexed, stored, fast]
	field i: i64 [indexed, stored, fast]
	field f: f64 [indexed, stored, fast]
	field us: u64 [indexed, stored<multi>, fast]
	field is: i64 [indexed, stored<multi>, fast]
	field fs: f64 [indexed, stored<multi>, fast]
	field slow: u64 [indexed, stored]
	field dense: dense_vector<4> [indexed<flat>, stored]
	field denses: dense_vector<12> [indexed<flat>, stored<multi>]
	field bits: binary_dense_vector<16> [indexed<flat>, stored<multi>]
	field half: dense_vector<12, f16> [indexed<flat>, stored<multi>]
	field bytes: dense_vector<8, uint8> [indexed<flat>, stored<multi>]
	field sparse: sparse_vector [indexed<format: maxscore>, stored<multi>]
	field sparse16: sparse_vector<u16> [indexed<format: maxscore, quantization: float16>, stored<multi>]
	field sparse8: sparse_vector [indexed<format: maxscore, quantization: uint8>, stored<multi>]
	field sparse4: sparse_vector [indexed<format: maxscore, quantization: uint4>, stored<multi>]
}`

var (
	plainFields   = []string{"none", "token", "ord", "pos", "tag", "lex"}
	chunkedFields = []string{"chunk", "chunkfast", "chunkplain", "lexchunk"}
	numberFields  = []string{"u", "i", "f", "us", "is", "fs"}
	denseFields   = []string{"dense", "denses", "half", "bytes"}
	sparseFields  = []string{"sparse", "sparse16", "sparse8", "sparse4"}
	dims          = map[string]int{"dense": 4, "denses": 12, "half": 12, "bytes": 8}
)

var words = []string{"car", "cart", "Carton", "run", "running", "runs", "the", "of", "and", "lamp", "Lamps", "blue", "sea", "seas", "x1", "über", "knot", "日本語", "бегущий", "Häuser"}

// SDL is the schema of an index named o with every kind of field, which documents and requests are of. Options go to a field of words.
func SDL(options string) string { return fmt.Sprintf(sdl, options) }

// World makes documents and requests by chance.
type World struct {
	*rand.Rand
}

// NewWorld makes the world of a round of a test.
func NewWorld(seed, round uint64) World { return World{rand.New(rand.NewPCG(seed, round))} }

// One chooses one of a list.
func (w World) One(list []string) string { return list[w.IntN(len(list))] }

func (w World) word() string {
	// The first ones are frequent.
	return words[min(w.IntN(len(words)), w.IntN(len(words)))]
}

func (w World) words(most int) string {
	out := make([]string, w.IntN(most+1))
	for i := range out {
		out[i] = w.word()
		if w.IntN(6) == 0 && i > 0 {
			out[i] = out[i-1]
		}
	}
	return strings.Join(out, w.One([]string{" ", " ", " ", ", ", " - "}))
}

func (w World) float() float32 {
	return float32(w.IntN(9)-4) / 2
}

func (w World) vector(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(w.NormFloat64())
		if w.IntN(3) == 0 {
			out[i] = w.float()
		}
	}
	return out
}

func (w World) sparse(field string, n int) (indices []uint32, values []float32) {
	for range n {
		i := uint32(w.IntN(12)) * uint32(1+w.IntN(2)*70000)
		if field == "sparse16" {
			i %= 1 << 16
		}
		indices = append(indices, i)
		values = append(values, w.float()+float32(w.IntN(2))/3)
	}
	return indices, values
}

func (w World) bits() []byte {
	b := []byte{byte(w.IntN(4)), byte(w.IntN(256))}
	return b
}

var oddNumbers = []float64{0, math.Copysign(0, -1), 1, -1, 2, 2.5, -2.5, 3, 1 << 53, 1<<53 + 2, 1 << 62, math.MaxInt64, -1 << 63, 1e300, -1e300, 5e-324}

func (w World) f64() float64 {
	if w.IntN(3) == 0 {
		return oddNumbers[w.IntN(len(oddNumbers))]
	}
	return float64(w.IntN(21)-10) / 2
}

func (w World) u64() uint64 {
	if w.IntN(5) == 0 {
		return []uint64{0, 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64}[w.IntN(7)]
	}
	return uint64(w.IntN(12))
}

func (w World) i64() int64 {
	if w.IntN(5) == 0 {
		return []int64{math.MinInt64, math.MaxInt64, -1<<53 - 1, 1<<53 + 1, -1}[w.IntN(5)]
	}
	return int64(w.IntN(13) - 6)
}

// Document makes the fields of one document.
func (w World) Document(key string) []*summapb.FieldEntry {
	out := []*summapb.FieldEntry{{Name: "id", Value: Text(key)}}
	// most values of a field; also several where the schema does not say multi, which the wire allows.
	several := func(name string, n, most int, make func() *summapb.FieldValue) {
		if w.IntN(n) == 0 {
			return
		}
		for range 1 + min(w.IntN(most), w.IntN(most)) {
			out = append(out, &summapb.FieldEntry{Name: name, Value: make()})
		}
	}
	several("lang", 2, 2, func() *summapb.FieldValue { return Text(w.One([]string{"de", "ru", "en", "en,ru", "xx", ""})) })
	for _, f := range []string{"none", "token", "ord", "pos", "lex"} {
		several(f, 4, 3, func() *summapb.FieldValue { return Text(w.words(7)) })
	}
	for _, f := range []string{"tag", "column", "kept"} {
		several(f, 3, 3, func() *summapb.FieldValue { return Text(w.words(1)) })
	}
	for _, f := range chunkedFields {
		several(f, 4, 5, func() *summapb.FieldValue {
			if w.IntN(40) == 0 {
				return Text(w.words(300))
			}
			return Text(w.words(9))
		})
	}
	for _, f := range []string{"u", "us", "slow"} {
		several(f, 3, 3, func() *summapb.FieldValue { return &summapb.FieldValue{Value: &summapb.FieldValue_U64{U64: w.u64()}} })
	}
	for _, f := range []string{"i", "is"} {
		several(f, 3, 3, func() *summapb.FieldValue { return &summapb.FieldValue{Value: &summapb.FieldValue_I64{I64: w.i64()}} })
	}
	for _, f := range []string{"f", "fs"} {
		several(f, 3, 3, func() *summapb.FieldValue { return &summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: w.f64()}} })
	}
	dense := func(n int) func() *summapb.FieldValue {
		return func() *summapb.FieldValue {
			return &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: w.vector(n)}}}
		}
	}
	several("dense", 4, 2, dense(4))
	for _, f := range denseFields[1:] {
		several(f, 4, 5, dense(dims[f]))
	}
	several("bits", 4, 4, func() *summapb.FieldValue {
		return &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: w.bits()}}
	})
	for _, f := range sparseFields {
		several(f, 4, 4, func() *summapb.FieldValue {
			// An empty one is not counted among the values, see summa.Documents; whether it should have an ordinal nobody has recorded.
			x, v := w.sparse(f, 1+w.IntN(5))
			return &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: &summapb.SparseVector{Indices: x, Values: v}}}
		})
	}
	w.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Text is a value of text.
func Text(s string) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}
}

func (w World) queryText(most int) string {
	s := w.words(most)
	if w.IntN(12) == 0 {
		s = string([]rune(w.word())[:2]) + "*"
	}
	return s
}

func (w World) textField() string {
	if w.IntN(2) == 0 {
		return w.One(chunkedFields)
	}
	return w.One(plainFields)
}

func ptr[T any](v T) *T { return &v }

func (w World) rangeQuery() *summapb.RangeQuery {
	q := &summapb.RangeQuery{Field: w.One(numberFields)}
	if w.IntN(8) == 0 {
		q.Field = w.One([]string{"tag", "column", "ord", "chunkfast"})
		return q
	}
	kind := strings.Index("uif", q.Field[:1])
	if w.IntN(4) == 0 {
		kind = w.IntN(3)
	}
	both := w.IntN(4)
	switch kind {
	case 0:
		if both != 0 {
			q.MinU64 = ptr(w.u64())
		}
		if both != 1 {
			q.MaxU64 = ptr(w.u64())
		}
	case 1:
		if both != 0 {
			q.MinI64 = ptr(w.i64())
		}
		if both != 1 {
			q.MaxI64 = ptr(w.i64())
		}
	case 2:
		if both != 0 {
			q.MinF64 = ptr(w.f64())
		}
		if both != 1 {
			q.MaxF64 = ptr(w.f64())
		}
	}
	if w.IntN(10) == 0 {
		return &summapb.RangeQuery{Field: q.Field}
	}
	return q
}

func (w World) combiner() (c summapb.MultiValueCombiner, temperature float32, topK uint32, decay float32) {
	return summapb.MultiValueCombiner(w.IntN(7)), []float32{0, 0, 0.5, 3, -1}[w.IntN(5)], uint32(w.IntN(4)), []float32{0, 0.5, 1}[w.IntN(3)]
}

func (w World) hint() string { return w.One([]string{"", "", "ru", "de,en", "zz"}) }

// leafQuery is one that has no others within.
func (w World) leafQuery() *summapb.Query {
	switch w.IntN(14) {
	case 0, 1, 2:
		q := &summapb.TermQuery{Field: w.textField(), Term: w.word(), TokenizerHint: w.hint()}
		switch w.IntN(6) {
		case 0:
			q.Term = w.words(3) + " sea"
		case 1:
			q.Field = w.One([]string{"column", "kept"})
		}
		return &summapb.Query{Query: &summapb.Query_Term{Term: q}}
	case 3, 4, 5:
		q := &summapb.MatchQuery{Field: w.textField(), Text: w.queryText(6), TokenizerHint: w.hint()}
		if strings.HasSuffix(q.Text, "*") {
			q.Field = w.One(plainFields)
		}
		if w.IntN(3) == 0 {
			q.MaxTerms = uint32(1 + w.IntN(3))
		}
		if w.IntN(3) == 0 {
			q.ProximityWeight = []float32{0.5, 1, 3}[w.IntN(3)]
			q.ProximityWindow = []uint32{0, 1, 2, 50, math.MaxUint32}[w.IntN(5)]
		}
		if w.IntN(12) == 0 {
			q.Field = "column"
		}
		return &summapb.Query{Query: &summapb.Query_Match{Match: q}}
	case 6, 7:
		q := &summapb.PhraseQuery{Field: w.One([]string{"token", "pos", "chunk", "chunkfast", "lex", "lexchunk"}), TokenizerHint: w.hint(), Text: w.words(3), Slop: uint32(max(0, w.IntN(6)-2))}
		if w.IntN(10) == 0 {
			q.Slop = math.MaxUint32
		}
		return &summapb.Query{Query: &summapb.Query_Phrase{Phrase: q}}
	case 8:
		return &summapb.Query{Query: &summapb.Query_Prefix{Prefix: &summapb.PrefixQuery{Field: w.One(plainFields), Prefix: w.One([]string{"c", "car", "ru", "LAM", "s", "zz", "ü"})}}}
	case 9, 10:
		return &summapb.Query{Query: &summapb.Query_Range{Range: w.rangeQuery()}}
	case 11:
		if w.IntN(2) == 0 {
			return &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
		}
	}
	return w.vectorQuery()
}

func (w World) vectorQuery() *summapb.Query {
	c, t, k, d := w.combiner()
	switch w.IntN(3) {
	case 0:
		q := &summapb.DenseVectorQuery{Field: w.One(denseFields), Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d}
		q.Vector = w.vector(dims[q.Field])
		if w.IntN(10) == 0 {
			clear(q.Vector)
		}
		return &summapb.Query{Query: &summapb.Query_DenseVector{DenseVector: q}}
	case 1:
		return &summapb.Query{Query: &summapb.Query_BinaryDenseVector{BinaryDenseVector: &summapb.BinaryDenseVectorQuery{
			Field: "bits", Vector: w.bits(), Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d,
		}}}
	}
	q := &summapb.SparseVectorQuery{Field: w.One(sparseFields), Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d}
	q.Indices, q.Values = w.sparse(q.Field, 1+w.IntN(6))
	if w.IntN(4) == 0 {
		q.WeightThreshold = 0.6
	}
	if w.IntN(4) == 0 {
		q.MaxQueryDims = uint32(1 + w.IntN(3))
	}
	if w.IntN(4) == 0 {
		q.Pruning = []float32{0.3, 0.5, 1}[w.IntN(3)]
	}
	return &summapb.Query{Query: &summapb.Query_SparseVector{SparseVector: q}}
}

func (w World) query(depth int) *summapb.Query {
	switch n := w.IntN(10); {
	case depth == 0 || n < 5:
		return w.leafQuery()
	case n < 6:
		return &summapb.Query{Query: &summapb.Query_Boost{Boost: &summapb.BoostQuery{Query: w.query(depth - 1), Boost: []float32{0, 0.5, 2, -1, -2, 1.3}[w.IntN(6)]}}}
	}
	b := &summapb.BooleanQuery{}
	list := func(n int) (out []*summapb.Query) {
		for range n {
			out = append(out, w.query(depth-1))
		}
		return out
	}
	switch w.IntN(7) {
	case 0: // a ranking among the documents of filters
		b.Must = []*summapb.Query{{Query: &summapb.Query_Range{Range: w.rangeQuery()}}}
		b.Should = list(1 + w.IntN(2))
	case 1:
		b.MustNot = list(1)
	case 2: // words of one field
		f := w.textField()
		for range 2 + w.IntN(3) {
			b.Should = append(b.Should, &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: f, Term: w.word()}}})
		}
		b.MustNot = list(w.IntN(2))
	default:
		b.Must, b.Should = list(w.IntN(3)), list(w.IntN(3))
		if w.IntN(3) == 0 {
			b.MustNot = list(1)
		}
	}
	if w.IntN(40) == 0 { // more clauses than take part
		f := w.One([]string{"none", "chunk"})
		for range 70 {
			b.Should = append(b.Should, &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: f, Term: w.word()}}})
		}
	}
	return &summapb.Query{Query: &summapb.Query_Boolean{Boolean: b}}
}

// Request makes one by chance, of an index of so many documents; all asks for every document.
func (w World) Request(docs int, all bool) *summapb.SearchRequest {
	req := &summapb.SearchRequest{IndexName: "o", Limit: uint32(1 + w.IntN(docs/2+1)), Offset: uint32(w.IntN(2) * w.IntN(6))}
	if all {
		req.Limit, req.Offset = uint32(4*docs+10), 0
	}
	if w.IntN(4) == 0 {
		req.CandidateLimit = req.Limit + req.Offset + uint32(w.IntN(int(req.Limit+req.Offset)+1))
	}
	if w.IntN(4) == 0 {
		f := &summapb.FusionQuery{RrfK: []float32{0, 1, 60}[w.IntN(3)], Combiner: summapb.MultiValueCombiner(w.IntN(6))}
		f.Method = summapb.FusionMethod(w.IntN(2))
		if all {
			f.Method = 1
		}
		w.branches(f)
		req.Query = &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}
	} else {
		req.Query = w.query(2 + w.IntN(2))
	}
	if w.IntN(8) == 0 {
		c, t, k, d := w.combiner()
		r := &summapb.Reranker{Field: "bits", Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d}
		if w.IntN(2) == 0 {
			r.Field, r.Vector = "denses", w.vector(12)
		} else {
			r.BinaryVector = w.bits()
		}
		if !all {
			r.RrfK = []float32{0, 0, 1, 60}[w.IntN(4)]
		}
		req.Reranker = r
	}
	if w.IntN(4) == 0 {
		req.TextStats = w.textStats()
	}
	if w.IntN(6) == 0 { // time enough; a fusion does not ask for it
		req.TimeBudgetMs = 3_600_000
	}
	return req
}

// branches gives a fusion its branches and filters.
func (w World) branches(f *summapb.FusionQuery) {
	for range 1 + w.IntN(3) {
		f.Queries = append(f.Queries, &summapb.WeightedQuery{Query: w.query(1), Weight: []float32{0, 1, 0.3, 2}[w.IntN(4)]})
	}
	for range max(0, w.IntN(4)-1) {
		f.Filters = append(f.Filters, w.query(1))
	}
}

// Nominations makes a request for what each branch of a fusion nominates, which Request makes none of. Some have room for too few.
func (w World) Nominations(docs int) *summapb.SearchRequest {
	f := &summapb.FusionQuery{Method: summapb.FusionMethod_FUSION_CANDIDATES, Combiner: summapb.MultiValueCombiner(w.IntN(5))}
	w.branches(f)
	req := &summapb.SearchRequest{IndexName: "o", Limit: uint32(1 + w.IntN(2*docs)), Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}}
	if w.IntN(2) == 0 {
		f.CandidateDepth = 1 + uint32(w.IntN(int(req.Limit)))
	}
	if w.IntN(4) == 0 {
		req.TextStats = w.textStats()
	}
	return req
}

// textStats are statistics of an index that is larger.
func (w World) textStats() *summapb.TextStats {
	st := &summapb.TextStats{TotalDocs: uint64(w.IntN(1000))}
	for _, f := range append(slices.Clone(plainFields), chunkedFields...) {
		if w.IntN(3) == 0 {
			continue
		}
		fs := &summapb.TextFieldStats{Field: f, CorpusSize: uint64(20 + w.IntN(1000)), AvgLen: float32(w.IntN(40)) / 3}
		for _, word := range []string{"car", "cart", "carton", "run", "the", "of", "and", "lamp", "lamps", "blue", "sea", "seas", "x1", "über", "knot", "running", "runs", "Lamps", "Carton"} {
			if w.IntN(5) > 0 {
				fs.Terms = append(fs.Terms, &summapb.TermDocFreq{Term: []byte(word), DocFreq: uint64(1 + w.IntN(20))})
			}
		}
		if w.IntN(2) == 0 {
			fs.TotalTokens, fs.DocsWithField = uint64(w.IntN(10000)), uint64(1+w.IntN(1000))
			if slices.Contains(chunkedFields, f) {
				fs.ChunkLengths, fs.ChunkCounts = []uint32{2, 5, 9}, []uint64{10, uint64(w.IntN(50)), 3}
			}
		}
		st.Fields = append(st.Fields, fs)
	}
	return st
}
