package node

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// ghosts are fields that one index of TestLenient has declared and the other lacks; no document has a value in any of them.
const ghosts = `
  field ghost: text<standard> [indexed<token_position>, stored<multi>, fast]
  field "ghost.sub": text<standard> [indexed<token_position>, stored<multi>, fast]
  field gk: text<raw> [indexed, stored, fast]
  field gi: i64 [stored, fast]
  field gf: f64 [stored<multi>, fast]
  field gd: date [stored, fast]
  field gv: dense_vector<3> [indexed, stored]
  field gb: binary_dense_vector<16> [indexed, stored]
  field gs: sparse_vector [indexed, stored]`

// queryMaker makes queries over fields that are there and ghosts.
type queryMaker struct {
	*rand.Rand
	text bool // of the ghosts only those of text, which answers with explanations and statistics are the same for
}

func (m *queryMaker) oneOf(list ...string) string { return list[m.IntN(len(list))] }

func (m *queryMaker) words() string {
	list := make([]string, 1+m.IntN(3))
	for i := range list {
		list[i] = m.oneOf("warp", "weft", "loom", "reed", "…", "nosuch", "a1 b2")
	}
	return strings.Join(list, " ")
}

func (m *queryMaker) field() string {
	return m.oneOf("title", "title", "body", "tag", "", "ghost", "ghost", "ghost.sub")
}

func (m *queryMaker) leaf() query.Node {
	bound := func(list ...string) *query.Bound {
		if m.IntN(4) == 0 {
			return nil
		}
		return &query.Bound{Value: m.oneOf(list...), Exclusive: m.IntN(2) == 0}
	}
	kinds := 11
	if m.text {
		kinds = 8
	}
	switch m.IntN(kinds) {
	case 0:
		return &query.Term{Field: m.field(), Text: m.words()}
	case 1:
		return &query.Match{Field: m.field(), Text: m.words(), All: m.IntN(2) == 0, MaxTerms: m.IntN(3)}
	case 2:
		return &query.Phrase{Field: m.oneOf("title", "ghost", "body", "ghost.sub"), Text: m.words(), Slop: uint32(m.IntN(3))}
	case 3:
		return &query.Prefix{Field: m.field(), Text: m.oneOf("w", "lo", "x", "…")}
	case 4:
		return &query.Exists{Field: m.oneOf("title", "i", "ghost", "ghost.sub")}
	case 5:
		return &query.Range{Field: m.oneOf("tag", "ghost"), Min: bound("a", "t1"), Max: bound("t3", "z")}
	case 6:
		return &query.Terms{Field: m.oneOf("tag", "ghost"), Values: []string{"t1", "t2", "warp"}[:m.IntN(4)]}
	case 7:
		return &query.Range{Field: "i", Min: bound("-3", "2"), Max: bound("7")}
	case 8:
		return &query.Range{Field: m.oneOf("gi", "gf"), Min: bound("-3", "2"), Max: bound("7")}
	case 9:
		return &query.Terms{Field: m.oneOf("gi", "gf", "i"), Values: []string{"1", "2", "3"}[:m.IntN(4)]}
	}
	return []query.Node{
		&query.Term{Field: "gi", Text: "7"}, &query.Term{Field: "gk", Text: "some thing"}, &query.Phrase{Field: "gk", Text: "some thing"}, &query.Prefix{Field: "gk", Text: "so"},
		&query.Exists{Field: "gv"}, &query.Exists{Field: "gs"}, &query.Range{Field: "gd", Min: &query.Bound{Value: "2024-01-01"}}, &query.Term{Field: "gd", Text: "2024-01-01"},
	}[m.IntN(8)]
}

func (m *queryMaker) query(depth int) query.Node {
	if depth == 0 || m.IntN(3) == 0 {
		return m.leaf()
	}
	if m.IntN(5) == 0 {
		return &query.Boost{Query: m.query(depth - 1), Factor: []float32{0, 0.5, 2.5, -1}[m.IntN(4)]}
	}
	some := func(n int) (list []query.Node) {
		for range m.IntN(n) {
			list = append(list, m.query(depth-1))
		}
		return list
	}
	return &query.Bool{Must: some(3), Should: some(4), MustNot: some(2), Filter: some(2)}
}

// TestLenient holds an index that lacks fields against one that has them declared and no document with a value in them.
func TestLenient(t *testing.T) {
	s := newServer(t, Config{})
	m := s.node.Leaf()
	ctx := t.Context()
	const known = `
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text<standard> [indexed<token_position>, stored]
  field body: text [indexed<token_position>, stored]
  field tag: text<raw> [indexed, stored<multi>, fast]
  field i: i64 [stored<multi>, fast]
  field v: dense_vector<3> [indexed, stored]`
	r := rand.New(rand.NewPCG(3, 14))
	for index, fields := range map[string]string{"less": known, "more": known + ghosts} {
		if _, err := m.PutIndex(ctx, &leaf.PutIndexRequest{Index: index, Schema: "index x {" + fields + "\n}"}); err != nil {
			t.Fatal(err)
		}
	}
	q := &queryMaker{Rand: r}
	for part := range 3 { // two segments and a memtable
		var docs strings.Builder
		for i := range 60 {
			fmt.Fprintf(&docs, `{"id":"d%d","title":%q,"body":%q,"tag":["t%d","t%d"]`, part*50+i, q.words(), q.words(), r.IntN(4), r.IntN(4))
			if r.IntN(2) == 0 {
				fmt.Fprintf(&docs, `,"i":[%d,%d],"v":[%d,1,%d]`, r.IntN(10)-5, r.IntN(10), r.IntN(5), r.IntN(5))
			}
			docs.WriteString("}\n")
		}
		for _, index := range []string{"less", "more"} {
			reply, err := m.Bulk(ctx, &leaf.BulkRequest{Index: index}, strings.NewReader(docs.String()))
			if err != nil || !reply.OK {
				t.Fatalf("%+v, %v", reply, err)
			}
			if _, err := m.DeleteMany(ctx, &leaf.DeleteRequest{Index: index, IDs: []string{"d3", fmt.Sprint("d", 50*part+7)}}); err != nil {
				t.Fatal(err)
			}
			if part < 2 {
				l, err := s.node.catalog.use(ctx, index)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.eng.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				l.release()
			}
		}
	}
	// Nothing is known of the lengths of texts that nothing has; the kind of a field that is lacking is not known.
	same := cmp.Options{
		cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal)),
		cmpopts.IgnoreFields(leaf.Meta{}, "Timings", "Snapshot"), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(leaf.AggregateReply{}, "State"),
		cmpopts.IgnoreFields(leaf.FieldValues{}, "Type"), cmpopts.IgnoreMapEntries(func(f string, st score.FieldStats) bool { return f[0] == 'g' && st == score.FieldStats{} }),
	}
	var answers, found int
	ask := func(what string, o cmp.Options, call func(index string, v leaf.View) (any, error)) (reply any) {
		t.Helper()
		want, err := call("more", leaf.View{})
		if err != nil {
			t.Fatalf("%s: with the fields: %v", what, err)
		}
		got, err := call("less", leaf.View{Lenient: true})
		if err != nil {
			t.Fatalf("%s: without them: %v", what, err)
		}
		if d := cmp.Diff(want, got, same, o); d != "" {
			t.Errorf("%s: −with the fields +without\n%s", what, d)
		}
		answers++
		return want
	}
	orders := [][]exec.SortKey{
		nil, nil,
		{{By: exec.ByField, Field: "ghost"}},
		{{By: exec.ByField, Field: "gi", Desc: true, MissingFirst: true}, {By: exec.ByScore, Desc: true}},
		{{By: exec.ByField, Field: "i"}, {By: exec.ByField, Field: "gd", Mode: exec.Greatest}, {By: exec.ByID, Desc: true}},
		{{By: exec.ByScore, Desc: true}, {By: exec.ByField, Field: "gf"}},
	}
	// What depends on the kind of a field: whether words were scored, and so what is said of that.
	loose := cmp.Options{cmpopts.IgnoreFields(leaf.SearchReply{}, "Stats", "LocalStats"), cmpopts.IgnoreFields(leaf.Meta{}, "Approximate")}
	for i := range 600 {
		q := &queryMaker{Rand: r, text: i%2 == 0}
		req := leaf.SearchRequest{Query: q.query(3), Limit: 1 + r.IntN(80), Sort: orders[r.IntN(len(orders))], KeepStats: true, LocalStats: true}
		var o cmp.Options
		if !q.text {
			o = loose
		}
		for range max(0, r.IntN(4)-2) {
			req.Filters = append(req.Filters, q.query(2))
		}
		switch r.IntN(4) {
		case 0:
			req.DefaultFields = []string{"ghost", "title"}
		case 1:
			req.DefaultFields = []string{"ghost.sub"}
		case 2:
			req.DefaultFields = []string{"body"}
		}
		if req.DefaultFields == nil { // else it is every field, and the index has more
			req.DefaultFields = []string{"title", "body", "tag"}
		}
		if r.IntN(3) == 0 {
			req.Stats = &score.Stats{
				Docs: 1000, Fields: map[string]score.FieldStats{"ghost": {SumLen: 4000, Docs: 900}, "title": {SumLen: 3000, Docs: 1000}},
				DF: map[score.Term]uint64{{Field: "ghost", Text: "warp"}: 100, {Field: "ghost", Text: "weft"}: 7, {Field: "title", Text: "warp"}: 300},
			}
		}
		req.Show = &leaf.Show{
			Source: true, Fields: [][]string{nil, {"ghost"}, {"ghost", "title"}, {"gi", "i"}, {"ghost.sub"}}[r.IntN(5)],
			Highlight: &api.Highlight{Fields: [][]string{{"ghost", "title"}, {api.EveryField}, {"body"}}[r.IntN(3)]}, Explain: q.text,
		}
		if !q.text {
			req.Show.Highlight = nil
		}
		what := fmt.Sprintf("search %d for %v by %v with %v, default %v", i, req.Query, req.Sort, req.Filters, req.DefaultFields)
		search := func(index string, v leaf.View) (any, error) {
			r := req
			r.Index, r.View = index, v
			return m.Search(ctx, &r)
		}
		reply := ask(what, o, search).(*leaf.SearchReply)
		found += len(reply.Hits)
		if k := len(reply.Hits); k > 1 { // on from the middle, and from places that no document of this shard has
			h := reply.Hits[k/2]
			req.After = exec.AfterHit(&exec.Hit{Key: h.ID, Score: h.Score, Sort: h.Sort})
			for j, key := range req.Sort {
				if key.By == exec.ByField && key.Field[0] == 'g' && r.IntN(2) == 0 {
					req.After.Values = slices.Clone(req.After.Values)
					req.After.Values[j] = exec.SortValue{Kind: exec.NumberValue, Number: schema.EncodeI64(5)}
					if key.Field == "ghost" {
						req.After.Values[j] = exec.SortValue{Kind: exec.TextValue, Text: "m"}
					}
				}
			}
			ask(what+", on from the middle", o, search)
			req.After = nil
		}
		switch i % 5 {
		case 0:
			ask("statistics: "+what, nil, func(index string, v leaf.View) (any, error) {
				return m.Stats(ctx, &leaf.StatsRequest{Index: index, View: v, Query: req.Query, DefaultFields: req.DefaultFields})
			})
		case 1:
			knn := []api.KNN{
				{Field: "v", Dense: []float32{1, 2, 3}}, {Field: "gv", Dense: []float32{1, 2, 3}}, {Field: "gb", Bits: []byte{1, 2}}, {Field: "gs", Indices: []uint32{1}, Weights: []float32{1}},
			}[r.IntN(4)]
			knn.K, knn.Combiner = 10, score.Combiner{Kind: score.Max}
			ask("neighbours: "+what, nil, func(index string, v leaf.View) (any, error) {
				return m.KNN(ctx, &leaf.KNNRequest{Index: index, View: v, KNN: knn, Filters: req.Filters, DefaultFields: req.DefaultFields})
			})
			ask("fetch: "+what, nil, func(index string, v leaf.View) (any, error) {
				f := &leaf.FetchRequest{Index: index, View: v, IDs: []string{"d1", "d20", "d70", "d3"}, Show: *req.Show, Query: req.Query, DefaultFields: req.DefaultFields, KNN: &knn}
				return m.Fetch(ctx, f)
			})
		case 2:
			specs, err := agg.ParseJSON([]byte(`{"g":{"kind":"terms","field":"ghost"},"t":{"kind":"terms","field":"tag","filter":"NOT ghost:warp AND NOT gi:>3","aggs":{"s":{"kind":"stats","field":"gi"}}},
				"x":{"kind":"filter","filter":"ghost.sub:warp OR title:warp","aggs":{"i":{"kind":"stats","field":"i"}}}}`))
			if err != nil {
				t.Fatal(err)
			}
			var states []string
			ask("aggregations: "+what, nil, func(index string, v leaf.View) (any, error) {
				reply, err := m.Aggregate(ctx, &leaf.AggregateRequest{
					Index: index, View: v, Query: req.Query, Filters: req.Filters, DefaultFields: req.DefaultFields, Specs: specs, Values: []string{"ghost", "i", "gi"},
				})
				if err == nil {
					b, err := reply.State.Finish().AppendJSON(nil, agg.Printing{})
					if err != nil {
						return nil, err
					}
					states = append(states, string(b))
				}
				return reply, err
			})
			if states[0] != states[1] {
				t.Errorf("aggregations: %s: with the fields %s, without %s", what, states[0], states[1])
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if found < 3_000 {
		t.Errorf("%d answers have %d hits", answers, found)
	}
}

// TestLenientCache has filters over a field that is lacking remembered, and then the field appear.
func TestLenientCache(t *testing.T) {
	s := newServer(t, Config{})
	m := s.node.Leaf()
	ctx := context.Background()
	total := func(filter query.Node) uint64 {
		t.Helper()
		reply, err := m.Search(ctx, &leaf.SearchRequest{Index: "a", View: leaf.View{Lenient: true}, Filters: []query.Node{filter}, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return reply.Total
	}
	index := func(doc string) {
		t.Helper()
		if _, err := m.Index(ctx, &leaf.IndexRequest{Index: "a", Body: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
		l, err := s.node.catalog.use(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer l.release()
		if err := l.eng.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	index(`{"id":"1","t":"warp"}`)
	filters := []query.Node{
		&query.Term{Field: "x", Text: "loom"}, &query.Term{Field: "y", Text: "loom"}, &query.Exists{Field: "x"}, &query.Exists{Field: "y"},
		&query.Bool{MustNot: []query.Node{&query.Term{Field: "x", Text: "loom"}}}, &query.Bool{MustNot: []query.Node{&query.Exists{Field: "y"}}},
	}
	check := func(want ...uint64) {
		t.Helper()
		for range 3 { // the second time a filter is remembered
			for i, f := range filters {
				if got := total(f); got != want[i] {
					t.Errorf("%v: %d, want %d", f, got, want[i])
				}
			}
		}
	}
	check(0, 0, 0, 0, 1, 1)
	index(`{"id":"2","y":"loom"}`)
	check(0, 1, 0, 1, 2, 1)
	index(`{"id":"3","x":"loom"}`)
	check(1, 1, 1, 1, 2, 2)
}
