package framed

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// exact compares to the bit.
var exact = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
	cmpopts.IgnoreUnexported(agg.Spec{}),
}

// sent reads a request that write wrote, as a server does.
func sent(t interface{ Fatalf(string, ...any) }, op, index string, write func(w *writer)) *message {
	w := begin([]byte("kept")[:0], op, index, time.Duration(len(index))*time.Millisecond)
	write(w)
	b, prob := w.end()
	if prob != nil {
		t.Fatalf("write: %v", prob)
	}
	m, prob, broken := parseMessage(b)
	if prob != nil || broken {
		t.Fatalf("%s: %v, %v", b, prob, broken)
	}
	if m.check(operations[op].members); m.prob != nil || m.op != op || m.index != index || m.timeout != time.Duration(len(index))*time.Millisecond {
		t.Fatalf("%s: %+v, %v", b, m, m.prob)
	}
	return m
}

// same1 compares what was sent with what was read.
func equal[T any](t *rapid.T, m *message, want, got T) {
	if m != nil && m.prob != nil {
		t.Fatalf("read: %v", m.prob)
	}
	if d := cmp.Diff(want, got, exact); d != "" {
		t.Fatalf("−sent +read\n%s", d)
	}
}

// ok takes what a reader of replies returns.
func ok[R any](t *rapid.T, b []byte) func(r R, prob *api.Problem, err error) R {
	return func(r R, prob *api.Problem, err error) R {
		if prob != nil || err != nil {
			t.Fatalf("%s: %v, %v", b, prob, err)
		}
		return r
	}
}

var (
	text   = rapid.OneOf(rapid.StringMatching(`[a-z]{1,8}`), rapid.SampledFrom([]string{"é\"\\", "a\u2028b\x00\n", "日本 語", "𝄞", "n:1", "t:", "<&>"}))
	anyStr = rapid.OneOf(text, rapid.Just(""))
	index  = rapid.SampledFrom([]string{"", "books", "a.b-c"})
	u64    = rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 1 << 53, 1<<53 + 1, math.MaxUint64}))
	f32    = rapid.Custom(func(t *rapid.T) float32 {
		for {
			if f := math.Float32frombits(rapid.Uint32().Draw(t, "bits")); api.Finite(f) {
				return f
			}
		}
	})
	micros = rapid.OneOf(rapid.Int64Range(0, 1<<40), rapid.Int64Range(0, 2_000))
	list   = rapid.SliceOfN(anyStr, 0, 5)
	ids    = rapid.SliceOfN(text, 0, 5)
)

var metas = rapid.Custom(func(t *rapid.T) leaf.Meta {
	var m leaf.Meta
	if rapid.Bool().Draw(t, "snapshot") {
		m.Snapshot = leaf.Snapshot{Instance: u64.Draw(t, "instance"), Version: u64.Draw(t, "version"), CommitTS: u64.Draw(t, "ts")}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "timings") {
		m.Timings = append(m.Timings, api.Timing{Stage: fmt.Sprint(text.Draw(t, "stage"), i), Micros: micros.Draw(t, "micros")})
	}
	m.Approximate = list.Draw(t, "approximate")
	return m
})

var statistics = rapid.Custom(func(t *rapid.T) *score.Stats {
	st := &score.Stats{Docs: u64.Draw(t, "docs"), Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	for range rapid.IntRange(0, 4).Draw(t, "n") {
		st.Fields[anyStr.Draw(t, "field")] = score.FieldStats{SumLen: u64.Draw(t, "sum"), Docs: u64.Draw(t, "count")}
		st.DF[score.Term{Field: anyStr.Draw(t, "field"), Text: anyStr.Draw(t, "term")}] = u64.Draw(t, "df")
	}
	return st
})

// trees are queries as a parser returns them.
var trees = rapid.Custom(func(t *rapid.T) query.Node { return drawTree(t, 3) })

func drawTree(t *rapid.T, depth int) query.Node {
	field := rapid.SampledFrom([]string{"", "title", "f:g", "über feld"}).Draw(t, "field")
	named := rapid.SampledFrom([]string{"title", "n*m", "TO"}).Draw(t, "named")
	bound := func() *query.Bound {
		if rapid.Bool().Draw(t, "open") {
			return nil
		}
		return &query.Bound{Value: anyStr.Draw(t, "bound"), Exclusive: rapid.Bool().Draw(t, "exclusive")}
	}
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 {
		kind %= 7
	}
	switch kind {
	case 0:
		return &query.Term{Field: field, Text: text.Draw(t, "text")}
	case 1:
		return &query.Phrase{Field: field, Text: anyStr.Draw(t, "text"), Slop: rapid.Uint32Range(0, 9).Draw(t, "slop")}
	case 2:
		return &query.Prefix{Field: field, Text: text.Draw(t, "text")}
	case 3:
		return &query.Range{Field: named, Min: bound(), Max: bound()}
	case 4:
		return &query.Terms{Field: named, Values: rapid.SliceOfN(anyStr, 1, 4).Draw(t, "values")}
	case 5:
		return &query.Exists{Field: named}
	case 6:
		return &query.All{}
	case 7:
		return &query.Boost{Query: drawTree(t, depth-1), Factor: f32.Draw(t, "factor")}
	}
	some := func(name string) []query.Node {
		var out []query.Node
		for range rapid.IntRange(0, 3).Draw(t, name) {
			out = append(out, drawTree(t, depth-1))
		}
		return out
	}
	b := &query.Bool{Must: some("must"), Should: some("should"), MustNot: some("must not")}
	if len(b.Must)+len(b.Should)+len(b.MustNot) == 0 {
		b.Should = []query.Node{&query.All{}}
	}
	return b
}

func maybe[T any](t *rapid.T, name string, g *rapid.Generator[T]) T {
	var none T
	if rapid.Bool().Draw(t, name+"?") {
		return none
	}
	return g.Draw(t, name)
}

// meaning compares trees by what they mean.
var meaning = cmp.Comparer(func(a, b query.Node) bool { return a == nil && b == nil || a != nil && b != nil && same(a, b) })

func TestSearchRequestIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := leaf.SearchRequest{
			Index: index.Draw(t, "index"), Query: maybe(t, "query", trees), Filters: rapid.SliceOfN(trees, 0, 3).Draw(t, "filters"),
			DefaultFields: maybe(t, "fields", ids), Limit: rapid.IntRange(0, exec.MaxWindow).Draw(t, "limit"), Stats: maybe(t, "stats", statistics),
			KeepStats: rapid.Bool().Draw(t, "keep"), AllowPartial: rapid.Bool().Draw(t, "partial"), Sort: drawOrder(t),
			Total: exec.TotalMode(rapid.IntRange(0, 2).Draw(t, "total")),
		}
		if want.Total == exec.TotalAtLeast {
			want.TotalFloor = u64.Draw(t, "floor")
		}
		if rapid.Bool().Draw(t, "after") {
			want.After = &exec.After{Key: text.Draw(t, "id"), Values: drawValues(t, max(1, len(want.Sort)))}
		}
		m := sent(t, opSearch, want.Index, func(w *writer) { appendSearchRequest(w, &want) })
		c := readSearchRequest(m)
		if m.prob != nil {
			t.Fatalf("%v", m.prob)
		}
		if prob := c.bindAfter(nil); prob != nil {
			t.Fatalf("%v", prob)
		}
		got := c.SearchRequest
		if c.byScore {
			got.Sort = []exec.SortKey{{By: exec.ByScore, Desc: true}}
		}
		for i := range want.Sort { // what the mode is when it is not said
			if k := &want.Sort[i]; k.By == exec.ByField && k.Mode == exec.AnyMode {
				k.Mode = exec.Least
				if k.Desc {
					k.Mode = exec.Greatest
				}
			}
		}
		if d := cmp.Diff(want, got, exact, meaning); d != "" {
			t.Fatalf("−sent +read\n%s", d)
		}
	})
}

func drawOrder(t *rapid.T) []exec.SortKey {
	var keys []exec.SortKey
	for range rapid.IntRange(0, 4).Draw(t, "keys") {
		k := exec.SortKey{By: exec.SortBy(rapid.IntRange(0, 2).Draw(t, "by")), Desc: rapid.Bool().Draw(t, "desc")}
		if k.By == exec.ByField {
			k.Field, k.MissingFirst, k.Mode = rapid.SampledFrom([]string{"price", "score", "id", "num:x", "a,b:desc"}).Draw(t, "field"), rapid.Bool().Draw(t, "first"), exec.Mode(rapid.IntRange(0, 2).Draw(t, "mode"))
		}
		keys = append(keys, k)
	}
	return keys
}

func drawValues(t *rapid.T, n int) []exec.SortValue {
	out := make([]exec.SortValue, n)
	for i := range out {
		switch v := &out[i]; exec.ValueKind(rapid.IntRange(0, 3).Draw(t, "kind")) {
		case exec.NumberValue:
			*v = exec.SortValue{Kind: exec.NumberValue, Number: u64.Draw(t, "number")}
		case exec.TextValue:
			*v = exec.SortValue{Kind: exec.TextValue, Text: anyStr.Draw(t, "text")}
		case exec.ScoreValue:
			*v = exec.SortValue{Kind: exec.ScoreValue, Score: f32.Draw(t, "score")}
		}
	}
	return out
}

func TestSearchReplyIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := leaf.SearchRequest{Sort: drawOrder(t), Limit: rapid.IntRange(0, 20).Draw(t, "limit")}
		want := &leaf.SearchReply{
			Meta: metas.Draw(t, "meta"), Docs: u64.Draw(t, "docs"), Partial: rapid.Bool().Draw(t, "partial"), Notes: list.Draw(t, "notes"),
			Stats: maybe(t, "stats", statistics),
		}
		for range rapid.IntRange(0, req.Limit).Draw(t, "hits") {
			h := leaf.Hit{ID: text.Draw(t, "id"), Score: f32.Draw(t, "score")}
			if len(req.Sort) > 0 {
				h.Sort = drawValues(t, len(req.Sort))
			}
			want.Hits = append(want.Hits, h)
		}
		if rel := rapid.SampledFrom([]string{"", exec.Exactly, exec.AtLeast}).Draw(t, "relation"); rel != "" {
			want.Total, want.TotalRelation = u64.Draw(t, "total"), rel
		}
		c := &searchCall{SearchRequest: req, typed: true}
		b, prob := appendSearchReply(nil, c, want, nil)
		if prob != nil {
			t.Fatal(prob)
		}
		equal(t, nil, want, ok[*leaf.SearchReply](t, b)(readSearchReply(b, &req)))
	})
}

// A hit as a reply has it is what the next request goes on behind: typed or plain.
func TestAfterAHitOfAReply(t *testing.T) {
	kinds := &types{fields: map[string]schema.Type{"u": schema.U64, "i": schema.I64, "f": schema.F64, "d": schema.Date, "t": schema.Text}}
	rapid.Check(t, func(t *rapid.T) {
		c := &searchCall{typed: rapid.Bool().Draw(t, "typed")}
		h := leaf.Hit{ID: text.Draw(t, "id"), Score: f32.Draw(t, "score")}
		want := &exec.After{Key: h.ID, Values: []exec.SortValue{{Kind: exec.ScoreValue, Score: h.Score}}}
		var sort []string
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			f := rapid.SampledFrom([]string{"u", "i", "f", "d", "t", "id", "score"}).Draw(t, "field")
			v := exec.SortValue{Kind: exec.NumberValue, Number: u64.Draw(t, "number")}
			k := exec.SortKey{By: exec.ByField, Field: f, Mode: exec.Least}
			switch f {
			case "f":
				v.Number = schema.EncodeF64(rapid.Float64().Draw(t, "float"))
			case "t", "id":
				v = exec.SortValue{Kind: exec.TextValue, Text: anyStr.Draw(t, "text")}
			case "score":
				v = exec.SortValue{Kind: exec.ScoreValue, Score: h.Score}
				k = exec.SortKey{By: exec.ByScore}
			}
			if f == "id" {
				k = exec.SortKey{By: exec.ByID}
			} else if f != "score" && rapid.IntRange(0, 4).Draw(t, "missing") == 0 {
				v = exec.SortValue{}
			}
			c.Sort, h.Sort, sort = append(c.Sort, k), append(h.Sort, v), append(sort, f+":asc")
		}
		if len(sort) > 0 {
			want.Values = h.Sort
		}
		b, prob := appendSearchReply(nil, c, &leaf.SearchReply{Hits: []leaf.Hit{h}}, kinds)
		if prob != nil {
			t.Fatal(prob)
		}
		var hit string
		if _, rest, found := strings.Cut(string(b), `"hits":[`); found {
			hit, _, _ = strings.Cut(rest, `],"docs"`)
		}
		request := fmt.Sprintf(`{"op":"search","typed":%v,"sort":"%s","after":%s}`, c.typed, strings.Join(sort, ","), hit)
		m, prob, _ := parseMessage([]byte(request))
		if prob != nil {
			t.Fatalf("%s: %v", request, prob)
		}
		got := readSearchRequest(m)
		if m.prob == nil {
			m.failed(got.bindAfter(kinds))
		}
		equal(t, m, want, got.After)
	})
}

func TestStatsIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &leaf.StatsRequest{Index: index.Draw(t, "index"), Query: maybe(t, "query", trees), DefaultFields: maybe(t, "fields", ids)}
		for range rapid.IntRange(0, 4).Draw(t, "terms") {
			want.Terms = append(want.Terms, score.Term{Field: anyStr.Draw(t, "field"), Text: anyStr.Draw(t, "text")})
		}
		m := sent(t, opStats, want.Index, func(w *writer) { appendStatsRequest(w, want) })
		got := readStatsRequest(m)
		if d := cmp.Diff(want, got, exact, meaning); d != "" || m.prob != nil {
			t.Fatalf("%v, −sent +read\n%s", m.prob, d)
		}
		reply := &leaf.StatsReply{Meta: metas.Draw(t, "meta"), Stats: *statistics.Draw(t, "stats")}
		b := appendStatsReply(nil, reply)
		equal(t, nil, reply, ok[*leaf.StatsReply](t, b)(readStatsReply(b)))

		// The whole reply is what a search takes.
		m, prob, _ := parseMessage([]byte(`{"op":"search","stats":` + string(b) + `}`))
		if prob != nil {
			t.Fatal(prob)
		}
		c := readSearchRequest(m)
		equal(t, m, &reply.Stats, c.Stats)
	})
}

// Statistics that a search installs are bounded before they are held, by who asks and by who is asked.
func TestStatisticsOverTheLimitAreRefused(t *testing.T) {
	some := func(terms, fields int) *score.Stats {
		st := &score.Stats{Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
		for i := range terms {
			st.DF[score.Term{Field: "f", Text: fmt.Sprint(i)}] = 1
		}
		for i := range fields {
			st.Fields[fmt.Sprint(i)] = score.FieldStats{SumLen: 1, Docs: 1}
		}
		return st
	}
	for _, c := range []struct {
		terms, fields int
		limit         int64
		detail        string
	}{
		{leaf.MaxStatsTerms, leaf.MaxStatsFields, 0, ""},
		{leaf.MaxStatsTerms + 2, 1, leaf.MaxStatsTerms, "stats: 65538 terms are given, 65536 are allowed"},
		{1, leaf.MaxStatsFields + 1, leaf.MaxStatsFields, "stats: 4097 fields are given, 4096 are allowed"},
	} {
		st := some(c.terms, c.fields)
		raw := append(api.AppendStatistics([]byte{'{'}, st), '}')
		for op, read := range map[string]func(m *message) *score.Stats{
			opSearch: func(m *message) *score.Stats { return readSearchRequest(m).Stats },
			opAgg:    func(m *message) *score.Stats { return readAggRequest(m).Stats },
		} {
			m, prob, _ := parseMessage(fmt.Appendf(nil, `{"op":%q,"stats":%s}`, op, raw))
			if prob != nil {
				t.Fatal(prob)
			}
			got := read(m)
			if c.detail == "" {
				if m.prob != nil || len(got.DF) != c.terms || len(got.Fields) != c.fields {
					t.Errorf("%s: %v", op, m.prob)
				}
			} else if m.prob == nil || m.prob.Code != api.InvalidParameter || m.prob.Field != "stats" || m.prob.Detail != c.detail || m.prob.Limit != c.limit {
				t.Errorf("%s: %+v", op, m.prob)
			}
			if len(got.DF) > leaf.MaxStatsTerms || len(got.Fields) > leaf.MaxStatsFields {
				t.Errorf("%s: %d terms and %d fields were held", op, len(got.DF), len(got.Fields))
			}
		}
		for op, write := range map[string]func(w *writer){
			opSearch: func(w *writer) { appendSearchRequest(w, &leaf.SearchRequest{Stats: st}) },
			opAgg:    func(w *writer) { appendAggRequest(w, &leaf.AggregateRequest{Stats: st}) },
		} {
			w := begin(nil, op, "a", 0)
			write(w)
			if (w.prob == nil) != (c.detail == "") || w.prob != nil && (w.prob.Detail != c.detail || w.prob.Limit != c.limit) {
				t.Errorf("write %s: %+v", op, w.prob)
			}
		}
	}
}

// A vector in several forms is refused, not sent in one of them.
func TestVectorInSeveralFormsIsRefused(t *testing.T) {
	for _, k := range []api.KNN{
		{Dense: []float32{1}, Bits: []byte{1}},
		{Dense: []float32{1}, Indices: []uint32{1}, Weights: []float32{1}},
		{Bits: []byte{1}, Weights: []float32{1}},
		{Bits: []byte{1}, Dense: []float32{}},
	} {
		k.Field, k.K = "v", 3
		w := begin(nil, opKNN, "a", 0)
		appendKNNRequest(w, &leaf.KNNRequest{KNN: k})
		if w.prob == nil || w.prob.Code != api.InvalidVector || w.prob.Field != "v" {
			t.Errorf("%+v: %+v", k, w.prob)
		}
	}
	for _, forms := range []string{`"vector":[1],"bits":"AQ=="`, `"vector":[1],"indices":[1],"values":[1]`, `"bits":"AQ==","values":[1]`} {
		m, prob, _ := parseMessage([]byte(`{"op":"knn","field":"v",` + forms + `}`))
		if prob != nil {
			t.Fatal(prob)
		}
		if readKNNRequest(m); m.prob == nil || !strings.Contains(m.prob.Detail, "one of vector, bits, and indices with values") {
			t.Errorf("%s: %+v", forms, m.prob)
		}
	}
}

// What decides whether a query may travel as text sees every difference that there can be between two trees.
func TestSameSeesEveryDifference(t *testing.T) {
	bound := func(v string, open bool) *query.Bound { return &query.Bound{Value: v, Exclusive: open} }
	a, b := &query.Term{Field: "f", Text: "a"}, &query.Term{Field: "f", Text: "b"}
	list := func(n ...query.Node) []query.Node { return n }
	different := []query.Node{
		a, b, &query.Term{Field: "g", Text: "a"},
		&query.Phrase{Field: "f", Text: "a"}, &query.Phrase{Field: "g", Text: "a"}, &query.Phrase{Field: "f", Text: "b"}, &query.Phrase{Field: "f", Text: "a", Slop: 1},
		&query.Prefix{Field: "f", Text: "a"}, &query.Prefix{Field: "g", Text: "a"}, &query.Prefix{Field: "f", Text: "b"},
		&query.Range{Field: "f", Min: bound("1", false), Max: bound("2", false)}, &query.Range{Field: "g", Min: bound("1", false), Max: bound("2", false)},
		&query.Range{Field: "f", Min: bound("1", true), Max: bound("2", false)}, &query.Range{Field: "f", Min: bound("1", false), Max: bound("2", true)},
		&query.Range{Field: "f", Min: bound("3", false), Max: bound("2", false)}, &query.Range{Field: "f", Min: bound("1", false), Max: bound("3", false)},
		&query.Range{Field: "f", Min: bound("1", false)}, &query.Range{Field: "f", Max: bound("2", false)},
		&query.Terms{Field: "f", Values: []string{"a", "b"}}, &query.Terms{Field: "g", Values: []string{"a", "b"}}, &query.Terms{Field: "f", Values: []string{"b", "a"}},
		&query.Exists{Field: "f"}, &query.Exists{Field: "g"}, &query.All{},
		&query.Boost{Query: a, Factor: 2}, &query.Boost{Query: b, Factor: 2}, &query.Boost{Query: a, Factor: 3},
		&query.Bool{Must: list(a, b)}, &query.Bool{Must: list(b, a)}, &query.Bool{Should: list(a, b)}, &query.Bool{Must: list(a), Should: list(b)},
		&query.Bool{MustNot: list(a)}, &query.Bool{MustNot: list(b)}, &query.Bool{Must: list(a), MustNot: list(b)},
	}
	for i, x := range different {
		for k, y := range different {
			if same(x, y) != (i == k) {
				t.Errorf("%v and %v: %t", x, y, same(x, y))
			}
		}
		if !same(x, &query.Bool{Must: list(&query.Bool{Should: list(x)})}) {
			t.Errorf("%v is not what a list of it means", x)
		}
	}
	for _, x := range []query.Node{&query.Match{Field: "f", Text: "a"}, &query.Bool{Must: list(a), Filter: list(b)}} {
		if same(x, x) {
			t.Errorf("%v has a text", x)
		}
	}
}

func TestAggIsRead(t *testing.T) {
	sch := &schema.Schema{Fields: []schema.Field{{Name: "n", Type: schema.I64, Fast: true}, {Name: "k", Type: schema.Text, Fast: true}}}
	rapid.Check(t, func(t *rapid.T) {
		want := &leaf.AggregateRequest{
			Index: index.Draw(t, "index"), Query: maybe(t, "query", trees), Filters: rapid.SliceOfN(trees, 0, 2).Draw(t, "filters"),
			DefaultFields: maybe(t, "fields", ids), DefaultOp: query.Op(rapid.IntRange(0, 1).Draw(t, "op")), Stats: maybe(t, "stats", statistics),
			Values: rapid.SliceOfN(text, 0, 3).Draw(t, "values"),
		}
		var err error
		if want.Specs, err = agg.Parse(rapid.SampledFrom([]string{"a:terms(k)", "a:terms(k,0),b:stats(n),c:filter(n:>1),d:histogram(n,2.5)"}).Draw(t, "specs")); err != nil {
			t.Fatal(err)
		}
		m := sent(t, opAgg, want.Index, func(w *writer) { appendAggRequest(w, want) })
		got := readAggRequest(m)
		if d := cmp.Diff(want, got, exact, meaning); d != "" || m.prob != nil {
			t.Fatalf("%v, −sent +read\n%s", m.prob, d)
		}

		plan, err := agg.Bind(want.Specs, sch, agg.Options{})
		if err != nil {
			t.Fatal(err)
		}
		reply := &leaf.AggregateReply{Meta: metas.Draw(t, "meta"), Docs: u64.Draw(t, "docs"), Matched: u64.Draw(t, "matched"), State: plan.NewState()}
		have := map[string]leaf.FieldValues{}
		for _, f := range want.Values {
			v, again := have[f]
			if !again {
				v = drawFieldValues(t, f)
				have[f] = v
			}
			reply.Values = append(reply.Values, v)
		}
		b := appendAggReply(nil, reply)
		back := ok[*leaf.AggregateReply](t, b)(readAggReply(b, want, agg.Options{}))
		if w, g := reply.State.AppendBinary(nil), back.State.AppendBinary(nil); string(w) != string(g) {
			t.Fatalf("state %x, sent %x", g, w)
		}
		back.State, reply.State = nil, nil
		equal(t, nil, reply, back)
	})
}

func drawFieldValues(t *rapid.T, field string) leaf.FieldValues {
	v := leaf.FieldValues{Field: field, Type: rapid.SampledFrom([]schema.Type{0, schema.Text, schema.U64, schema.I64, schema.F64, schema.Date}).Draw(t, "type")}
	n := rapid.IntRange(0, 5).Draw(t, "n")
	for range n {
		switch v.Type {
		case 0:
		case schema.Text:
			v.Texts = append(v.Texts, anyStr.Draw(t, "text"))
		case schema.F64:
			v.Numbers = append(v.Numbers, schema.EncodeF64(rapid.Float64().Draw(t, "float")))
		default:
			v.Numbers = append(v.Numbers, u64.Draw(t, "number"))
		}
	}
	return v
}

func TestKNNIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &leaf.KNNRequest{
			Index: index.Draw(t, "index"), Filters: rapid.SliceOfN(trees, 0, 2).Draw(t, "filters"), DefaultFields: maybe(t, "fields", ids),
			AllowPartial: rapid.Bool().Draw(t, "partial"),
			KNN: api.KNN{
				Field: text.Draw(t, "field"), K: rapid.IntRange(-1, 100).Draw(t, "k"), GivenK: true, Exact: rapid.Bool().Draw(t, "exact"),
				Ef: rapid.IntRange(-1, 100).Draw(t, "ef"),
			},
		}
		k := &want.KNN
		floats := rapid.SliceOfN(f32, 1, 5)
		switch rapid.IntRange(0, 2).Draw(t, "vector") {
		case 0:
			k.Dense = floats.Draw(t, "dense")
		case 1:
			k.Bits = rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "bits")
		default:
			k.Weights = floats.Draw(t, "weights")
			for range k.Weights {
				k.Indices = append(k.Indices, rapid.Uint32().Draw(t, "index"))
			}
		}
		k.Combiner.Kind = score.CombinerKind(rapid.IntRange(0, 4).Draw(t, "combiner"))
		if rapid.Bool().Draw(t, "parameters") {
			k.Combiner.Temperature, k.Combiner.TopK, k.Combiner.Decay = 0.5, 7, 0.25
		}
		m := sent(t, opKNN, want.Index, func(w *writer) { appendKNNRequest(w, want) })
		got := readKNNRequest(m)
		if d := cmp.Diff(want, got, exact, meaning); d != "" || m.prob != nil {
			t.Fatalf("%v, −sent +read\n%s", m.prob, d)
		}
		reply := &leaf.KNNReply{Meta: metas.Draw(t, "meta"), Docs: u64.Draw(t, "docs"), Partial: rapid.Bool().Draw(t, "partial")}
		for range rapid.IntRange(0, max(0, k.K)).Draw(t, "hits") {
			reply.Hits = append(reply.Hits, leaf.Neighbour{ID: text.Draw(t, "id"), Similarity: f32.Draw(t, "similarity")})
		}
		b, prob := appendKNNReply(nil, reply)
		if prob != nil {
			t.Fatal(prob)
		}
		equal(t, nil, reply, ok[*leaf.KNNReply](t, b)(readKNNReply(b, want)))
	})
}

func TestListsAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := index.Draw(t, "index")
		after := &leaf.IDsRequest{Index: name, After: anyStr.Draw(t, "after"), Limit: rapid.IntRange(-1, 1<<40).Draw(t, "limit")}
		m := sent(t, opIDs, name, func(w *writer) { appendIDsRequest(w, after) })
		equal(t, m, after, readIDsRequest(m))

		page := &idsPage{IDsReply: leaf.IDsReply{Meta: metas.Draw(t, "meta"), Next: anyStr.Draw(t, "next")}, ids: ids.Draw(t, "ids")}
		b := beginIDsReply(nil)
		for i, id := range page.ids {
			if i > 0 {
				b = append(b, ',')
			}
			b = api.AppendString(b, id)
		}
		b = endIDsReply(b, &page.IDsReply)
		got := ok[*idsPage](t, b)(readIDsReply(b, len(page.ids)))
		equal(t, nil, page.IDsReply, got.IDsReply)
		equal(t, nil, page.ids, got.ids)

		some := list.Draw(t, "ids")
		export := &leaf.ExportRequest{Index: name, IDs: some}
		m = sent(t, opExport, name, func(w *writer) { appendExportRequest(w, export) })
		call := readExportRequest(m)
		equal(t, m, *export, call.ExportRequest)
		if !call.rest {
			t.Fatalf("the rest is not wanted")
		}
		out := &exportPage{ExportReply: leaf.ExportReply{Meta: metas.Draw(t, "meta"), Missing: ids.Draw(t, "missing")}, rest: ids.Draw(t, "rest")}
		for range rapid.IntRange(0, 3).Draw(t, "docs") {
			out.docs = append(out.docs, leaf.ExportedDoc{ID: text.Draw(t, "id"), Source: []byte(rapid.SampledFrom([]string{`{"id":"1"}`, `{"a":[{"b":null},-1.5e+7,"\u00e9\n"],"c":true}`}).Draw(t, "source"))})
		}
		b = appendExportReply(nil, out)
		exported := ok[*exportPage](t, b)(readExportReply(b, 5))
		equal(t, nil, out.ExportReply, exported.ExportReply)
		equal(t, nil, out.docs, exported.docs)
		equal(t, nil, out.rest, exported.rest)

		has := &leaf.HasRequest{Index: name, IDs: some}
		m = sent(t, opHas, name, func(w *writer) { appendHasRequest(w, has) })
		equal(t, m, has, readHasRequest(m))
		missing := &leaf.HasReply{Meta: metas.Draw(t, "meta"), Missing: ids.Draw(t, "missing")}
		b = appendHasReply(nil, missing)
		equal(t, nil, missing, ok[*leaf.HasReply](t, b)(readHasReply(b, 5)))

		del := &leaf.DeleteRequest{Index: name, IDs: some}
		m = sent(t, opDeleteMany, name, func(w *writer) { appendDeleteRequest(w, del) })
		equal(t, m, del, readDeleteRequest(m))
		deleted := &leaf.DeleteReply{Meta: metas.Draw(t, "meta"), Deleted: u64.Draw(t, "deleted")}
		b = appendDeleteReply(nil, deleted)
		equal(t, nil, deleted, ok[*leaf.DeleteReply](t, b)(readDeleteReply(b)))
	})
}

func TestBasicsAndWritesAreRead(t *testing.T) {
	counts := rapid.IntRange(0, 1<<40)
	members := rapid.Custom(func(t *rapid.T) api.Members {
		return api.Members{OK: counts.Draw(t, "ok"), Total: counts.Draw(t, "total"), FailedAddresses: list.Draw(t, "addresses")}
	})
	inferred := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.InferredField {
		return api.InferredField{Name: text.Draw(t, "name"), Type: text.Draw(t, "type"), From: text.Draw(t, "from")}
	}), 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		ping := &leaf.PingReply{Node: anyStr.Draw(t, "node")}
		b := appendPingReply(nil, ping)
		equal(t, nil, ping, ok[*leaf.PingReply](t, b)(readPingReply(b)))

		docs := &leaf.DocsReply{Meta: metas.Draw(t, "meta"), Docs: u64.Draw(t, "docs")}
		b = appendDocsReply(nil, docs)
		equal(t, nil, docs, ok[*leaf.DocsReply](t, b)(readDocsReply(b)))

		info := &leaf.InfoReply{Meta: metas.Draw(t, "meta"), Node: anyStr.Draw(t, "node"), Version: anyStr.Draw(t, "version"), Index: api.IndexInfo{
			Name: anyStr.Draw(t, "name"), Docs: u64.Draw(t, "docs"), Segments: counts.Draw(t, "segments"), Bytes: int64(counts.Draw(t, "bytes")),
			Schema: anyStr.Draw(t, "schema"), Dynamic: rapid.Bool().Draw(t, "dynamic"), State: anyStr.Draw(t, "state"), Reason: anyStr.Draw(t, "reason"),
		}}
		b = appendInfoReply(nil, info)
		equal(t, nil, info, ok[*leaf.InfoReply](t, b)(readInfoReply(b)))

		body := []byte(anyStr.Draw(t, "body"))
		m := sent(t, opIndex, "", func(w *writer) { appendBody(w, body) })
		equal(t, m, body, m.bytes("body"))
		write := &leaf.IndexReply{Meta: metas.Draw(t, "meta"), WriteReply: api.WriteReply{OK: rapid.Bool().Draw(t, "ok"), ID: text.Draw(t, "id"), Members: members.Draw(t, "members"), Inferred: inferred.Draw(t, "inferred")}}
		b = appendIndexReply(nil, write)
		equal(t, nil, write, ok[*leaf.IndexReply](t, b)(readIndexReply(b)))

		bulk := &leaf.BulkReply{Meta: metas.Draw(t, "meta"), BulkReply: api.BulkReply{
			OK: rapid.Bool().Draw(t, "ok"), Indexed: u64.Draw(t, "indexed"), Failed: u64.Draw(t, "failed"), Duplicates: u64.Draw(t, "duplicates"),
			DuplicatesAtLeast: rapid.Bool().Draw(t, "at least"), Shards: counts.Draw(t, "shards"), Members: members.Draw(t, "members"),
			TookMicros: micros.Draw(t, "took"), ErrorsOmitted: u64.Draw(t, "omitted"), Inferred: inferred.Draw(t, "inferred"),
			Errors: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.DocFailure {
				return api.DocFailure{Line: counts.Draw(t, "line"), ID: anyStr.Draw(t, "id"), Code: text.Draw(t, "code"), Reason: anyStr.Draw(t, "reason")}
			}), 0, 3).Draw(t, "errors"),
		}}
		b = appendBulkReply(nil, bulk)
		equal(t, nil, bulk, ok[*leaf.BulkReply](t, b)(readBulkReply(b, 10)))
	})
}

func TestProblemIsRead(t *testing.T) {
	codes := make([]api.Code, 0, len(api.Codes))
	for c := range api.Codes {
		codes = append(codes, c)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := &api.Problem{
			Code: rapid.SampledFrom(codes).Draw(t, "code"), Detail: anyStr.Draw(t, "detail"), Field: anyStr.Draw(t, "field"),
			Line: rapid.IntRange(0, 9).Draw(t, "line"), Column: rapid.IntRange(0, 9).Draw(t, "column"), Expected: anyStr.Draw(t, "expected"),
			RetryAfterMS: rapid.Int64Range(0, 1<<40).Draw(t, "retry"), RequestID: anyStr.Draw(t, "id"),
		}
		if rapid.Bool().Draw(t, "at") {
			want.At(rapid.IntRange(0, 1<<40).Draw(t, "position"))
		}
		if rapid.Bool().Draw(t, "within") {
			want.Within(rapid.Int64Range(0, 1<<60).Draw(t, "limit"))
		}
		if rapid.Bool().Draw(t, "extra") {
			want.Extra = []byte(`"failed":3,"errors":[{"line":1}]`)
		}
		if rapid.Bool().Draw(t, "status") {
			want.Status = 418
		}
		b := appendProblem(nil, want)
		_, got, err := readDocsReply(b)
		if err != nil || got == nil {
			t.Fatalf("%s: %v", b, err)
		}
		got.Cause = nil
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s: −sent +read\n%s", b, d)
		}
	})
}
