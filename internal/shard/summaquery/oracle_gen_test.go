package summaquery_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// oracleSDL has every kind of field. What stands for %s are options of one of them.
const oracleSDL = `index o {
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
	field sparse: sparse_vector [indexed<format: maxscore>, stored<multi>]
}`

var (
	plainFields   = []string{"none", "token", "ord", "pos", "tag", "lex"}
	chunkedFields = []string{"chunk", "chunkfast", "chunkplain", "lexchunk"}
	numberFields  = []string{"u", "i", "f", "us", "is", "fs"}
	denseFields   = []string{"dense", "denses"}
)

var oracleWords = []string{"car", "cart", "Carton", "run", "running", "runs", "the", "of", "and", "lamp", "Lamps", "blue", "sea", "seas", "x1", "über", "knot", "日本語", "бегущий", "Häuser"}

// world makes documents and requests by chance.
type world struct {
	*rand.Rand
}

func (w world) one(list []string) string { return list[w.IntN(len(list))] }

func (w world) word() string {
	// The first ones are frequent.
	return oracleWords[min(w.IntN(len(oracleWords)), w.IntN(len(oracleWords)))]
}

func (w world) words(most int) string {
	out := make([]string, w.IntN(most+1))
	for i := range out {
		out[i] = w.word()
		if w.IntN(6) == 0 && i > 0 {
			out[i] = out[i-1]
		}
	}
	return strings.Join(out, w.one([]string{" ", " ", " ", ", ", " - "}))
}

func (w world) float() float32 {
	return float32(w.IntN(9)-4) / 2
}

func (w world) vector(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(w.NormFloat64())
		if w.IntN(3) == 0 {
			out[i] = w.float()
		}
	}
	return out
}

func (w world) sparse(n int) (indices []uint32, values []float32) {
	for range n {
		indices = append(indices, uint32(w.IntN(12))*uint32(1+w.IntN(2)*70000))
		values = append(values, w.float()+float32(w.IntN(2))/3)
	}
	return indices, values
}

func (w world) bits() []byte {
	b := []byte{byte(w.IntN(4)), byte(w.IntN(256))}
	return b
}

var oddNumbers = []float64{0, math.Copysign(0, -1), 1, -1, 2, 2.5, -2.5, 3, 1 << 53, 1<<53 + 2, 1 << 62, math.MaxInt64, -1 << 63, 1e300, -1e300, 5e-324}

func (w world) f64() float64 {
	if w.IntN(3) == 0 {
		return oddNumbers[w.IntN(len(oddNumbers))]
	}
	return float64(w.IntN(21)-10) / 2
}

func (w world) u64() uint64 {
	if w.IntN(5) == 0 {
		return []uint64{0, 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64}[w.IntN(7)]
	}
	return uint64(w.IntN(12))
}

func (w world) i64() int64 {
	if w.IntN(5) == 0 {
		return []int64{math.MinInt64, math.MaxInt64, -1<<53 - 1, 1<<53 + 1, -1}[w.IntN(5)]
	}
	return int64(w.IntN(13) - 6)
}

// document makes the fields of one document.
func (w world) document(key string) []*summapb.FieldEntry {
	out := []*summapb.FieldEntry{{Name: "id", Value: textValue(key)}}
	// most values of a field; also several where the schema does not say multi, which the wire allows.
	several := func(name string, n, most int, make func() *summapb.FieldValue) {
		if w.IntN(n) == 0 {
			return
		}
		for range 1 + min(w.IntN(most), w.IntN(most)) {
			out = append(out, &summapb.FieldEntry{Name: name, Value: make()})
		}
	}
	several("lang", 2, 2, func() *summapb.FieldValue { return textValue(w.one([]string{"de", "ru", "en", "en,ru", "xx", ""})) })
	for _, f := range []string{"none", "token", "ord", "pos", "lex"} {
		several(f, 4, 3, func() *summapb.FieldValue { return textValue(w.words(7)) })
	}
	for _, f := range []string{"tag", "column", "kept"} {
		several(f, 3, 3, func() *summapb.FieldValue { return textValue(w.words(1)) })
	}
	for _, f := range chunkedFields {
		several(f, 4, 5, func() *summapb.FieldValue {
			if w.IntN(40) == 0 {
				return textValue(w.words(300))
			}
			return textValue(w.words(9))
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
	several("denses", 4, 5, dense(12))
	several("bits", 4, 4, func() *summapb.FieldValue {
		return &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: w.bits()}}
	})
	several("sparse", 4, 4, func() *summapb.FieldValue {
		// An empty one is not counted among the values, see summa.Documents; whether it should have an ordinal nobody has recorded.
		x, v := w.sparse(1 + w.IntN(5))
		return &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: &summapb.SparseVector{Indices: x, Values: v}}}
	})
	w.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func textValue(s string) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}
}

// store is a shard with the documents that should be in it.
type store struct {
	t    testing.TB
	s    *shard.Shard
	sch  *schema.Schema
	conv *summa.Documents
	memo *summaquery.Cache
	live map[string][]*summapb.FieldEntry
}

func newStore(t testing.TB, sdl string) *store {
	t.Helper()
	sch, err := summa.ParseSchema(sdl)
	if err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &store{t, s, sch, summa.NewDocuments(sch, jsondoc.Limits{}), &summaquery.Cache{}, map[string][]*summapb.FieldEntry{}}
}

func (s *store) apply(ops ...shard.Op) {
	s.t.Helper()
	if len(ops) == 0 {
		return
	}
	if _, err := s.s.Apply(s.t.Context(), ops); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) put(key string, fields []*summapb.FieldEntry) shard.Op {
	s.t.Helper()
	doc, _, err := s.conv.Convert(fields)
	if err != nil {
		s.t.Fatal(err)
	}
	s.live[key] = fields
	return shard.Op{Doc: doc}
}

func (s *store) drop(key string) shard.Op {
	delete(s.live, key)
	return shard.Op{Delete: true, Key: key}
}

func (s *store) flush() {
	s.t.Helper()
	if err := s.s.Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) merge(n int) {
	s.t.Helper()
	if err := s.s.Merge(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
}

// index is what a search of the store sees, with an oracle for it.
func (s *store) index() (*summaquery.Index, *oracle) {
	s.t.Helper()
	sn := s.s.Snapshot()
	s.t.Cleanup(sn.Release)
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		s.t.Fatal(err)
	}
	ix := &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves(), Cache: s.memo}
	for i := range ix.Leaves {
		ix.Segments = append(ix.Segments, fmt.Sprintf("%032x", i+1))
	}
	o := newOracle(sn.Schema(), an)
	for key, fields := range s.live {
		leaf, doc, ok := sn.Find(key)
		if !ok {
			s.t.Fatalf("document %s is lost", key)
		}
		o.add(key, leaf, doc, fields)
	}
	if sn.Docs() != uint64(len(s.live)) {
		s.t.Fatalf("%d documents, want %d", sn.Docs(), len(s.live))
	}
	o.ready()
	return ix, o
}

// fill makes n documents by chance, spread over leaves by flushes, merges, deletes and replacements.
func (s *store) fill(w world, n int) {
	s.t.Helper()
	keys := slices.Sorted(maps.Keys(s.live))
	for len(s.live) < n {
		var ops []shard.Op
		for range 1 + w.IntN(1+n/4) {
			key := fmt.Sprintf("k%03d", w.IntN(3*n))
			if len(keys) > 0 && w.IntN(5) == 0 {
				key = keys[w.IntN(len(keys))]
				if w.IntN(2) == 0 {
					ops = append(ops, s.drop(key))
					continue
				}
			}
			keys = append(keys, key)
			ops = append(ops, s.put(key, w.document(key)))
		}
		s.apply(ops...)
		switch w.IntN(5) {
		case 0, 1:
			s.flush()
		case 2:
			if w.IntN(3) == 0 {
				s.merge(1 + w.IntN(3))
			}
		}
	}
	for range 1 + n/10 { // dead documents in segments
		s.apply(s.drop(keys[w.IntN(len(keys))]))
	}
}

// copyOf makes another store with the same live documents, in another layout: all in memory, or each few of them a segment.
func (s *store) copyOf(w world, sdl string, each int) *store {
	s.t.Helper()
	c := newStore(s.t, sdl)
	keys := make([]string, 0, len(s.live))
	for k := range s.live {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	w.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, k := range keys {
		if w.IntN(8) == 0 {
			c.apply(c.put(k, w.document(k))) // to be replaced
		}
		c.apply(c.put(k, s.live[k]))
		if each > 0 && i%each == each-1 {
			c.flush()
		}
	}
	return c
}

func (w world) queryText(most int) string {
	s := w.words(most)
	if w.IntN(12) == 0 {
		s = string([]rune(w.word())[:2]) + "*"
	}
	return s
}

func (w world) textField() string {
	if w.IntN(2) == 0 {
		return w.one(chunkedFields)
	}
	return w.one(plainFields)
}

func ptr[T any](v T) *T { return &v }

func (w world) rangeQuery() *summapb.RangeQuery {
	q := &summapb.RangeQuery{Field: w.one(numberFields)}
	if w.IntN(8) == 0 {
		q.Field = w.one([]string{"tag", "column", "ord", "chunkfast"})
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

func (w world) combiner() (c summapb.MultiValueCombiner, temperature float32, topK uint32, decay float32) {
	return summapb.MultiValueCombiner(w.IntN(7)), []float32{0, 0, 0.5, 3, -1}[w.IntN(5)], uint32(w.IntN(4)), []float32{0, 0.5, 1}[w.IntN(3)]
}

func (w world) hint() string { return w.one([]string{"", "", "ru", "de,en", "zz"}) }

// leafQuery is one that has no others within.
func (w world) leafQuery() *summapb.Query {
	switch w.IntN(14) {
	case 0, 1, 2:
		q := &summapb.TermQuery{Field: w.textField(), Term: w.word(), TokenizerHint: w.hint()}
		switch w.IntN(6) {
		case 0:
			q.Term = w.words(3) + " sea"
		case 1:
			q.Field = w.one([]string{"column", "kept"})
		}
		return &summapb.Query{Query: &summapb.Query_Term{Term: q}}
	case 3, 4, 5:
		q := &summapb.MatchQuery{Field: w.textField(), Text: w.queryText(6), TokenizerHint: w.hint()}
		if strings.HasSuffix(q.Text, "*") {
			q.Field = w.one(plainFields)
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
		q := &summapb.PhraseQuery{Field: w.one([]string{"token", "pos", "chunk", "chunkfast", "lex", "lexchunk"}), TokenizerHint: w.hint(), Text: w.words(3), Slop: uint32(max(0, w.IntN(6)-2))}
		if w.IntN(10) == 0 {
			q.Slop = math.MaxUint32
		}
		return &summapb.Query{Query: &summapb.Query_Phrase{Phrase: q}}
	case 8:
		return &summapb.Query{Query: &summapb.Query_Prefix{Prefix: &summapb.PrefixQuery{Field: w.one(plainFields), Prefix: w.one([]string{"c", "car", "ru", "LAM", "s", "zz", "ü"})}}}
	case 9, 10:
		return &summapb.Query{Query: &summapb.Query_Range{Range: w.rangeQuery()}}
	case 11:
		if w.IntN(2) == 0 {
			return &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
		}
	}
	return w.vectorQuery()
}

func (w world) vectorQuery() *summapb.Query {
	c, t, k, d := w.combiner()
	switch w.IntN(3) {
	case 0:
		q := &summapb.DenseVectorQuery{Field: w.one(denseFields), Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d}
		q.Vector = w.vector(map[string]int{"dense": 4, "denses": 12}[q.Field])
		if w.IntN(10) == 0 {
			clear(q.Vector)
		}
		return &summapb.Query{Query: &summapb.Query_DenseVector{DenseVector: q}}
	case 1:
		return &summapb.Query{Query: &summapb.Query_BinaryDenseVector{BinaryDenseVector: &summapb.BinaryDenseVectorQuery{
			Field: "bits", Vector: w.bits(), Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d,
		}}}
	}
	q := &summapb.SparseVectorQuery{Field: "sparse", Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d}
	q.Indices, q.Values = w.sparse(1 + w.IntN(6))
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

func (w world) query(depth int) *summapb.Query {
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
		f := w.one([]string{"none", "chunk"})
		for range 70 {
			b.Should = append(b.Should, &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: f, Term: w.word()}}})
		}
	}
	return &summapb.Query{Query: &summapb.Query_Boolean{Boolean: b}}
}

// request makes one by chance; all asks for every document.
func (w world) request(docs int, all bool) *summapb.SearchRequest {
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
		for range 1 + w.IntN(3) {
			f.Queries = append(f.Queries, &summapb.WeightedQuery{Query: w.query(1), Weight: []float32{0, 1, 0.3, 2}[w.IntN(4)]})
		}
		for range max(0, w.IntN(4)-1) {
			f.Filters = append(f.Filters, w.query(1))
		}
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
	return req
}

// textStats are statistics of an index that is larger.
func (w world) textStats() *summapb.TextStats {
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
