package leaftest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

func testRead(t *testing.T, e Env) {
	fill(t, e, 300)
	t.Run("Ping", func(t *testing.T) { testPing(t, e) })
	t.Run("Info", func(t *testing.T) { testInfo(t, e) })
	t.Run("Search", func(t *testing.T) { testSearch(t, e) })
	t.Run("Orders", func(t *testing.T) { testOrders(t, e) })
	t.Run("Stats", func(t *testing.T) { testStats(t, e) })
	t.Run("Prefixes", func(t *testing.T) { testPrefixes(t, e) })
	t.Run("Aggregate", func(t *testing.T) { testAggregate(t, e) })
	t.Run("KNN", func(t *testing.T) { testKNN(t, e) })
	t.Run("Concurrent", func(t *testing.T) { testConcurrent(t, e) })
}

func testPing(t *testing.T, e Env) {
	got, err := e.Leaf.Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := e.Node.Leaf().Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Node != want.Node && (!e.Wire.NoNodeID || got.Node != "") {
		t.Errorf("node %q, want %q", got.Node, want.Node)
	}
}

func testInfo(t *testing.T, e Env) {
	info, err := both(t, e, "info", func(l leaf.Leaf) (*leaf.InfoReply, error) {
		return l.Info(t.Context(), &leaf.InfoRequest{Index: corpusIndex})
	})
	if err == nil && (info.Index.Name != corpusIndex || info.Index.Docs == 0 || !strings.Contains(info.Index.Schema, "dense_vector") || info.Snapshot.Instance == 0) {
		t.Errorf("%+v", info)
	}
	docs, err := both(t, e, "docs", func(l leaf.Leaf) (*leaf.DocsReply, error) {
		return l.Docs(t.Context(), &leaf.DocsRequest{Index: corpusIndex})
	})
	if err == nil && docs.Docs != info.Index.Docs {
		t.Errorf("%d documents, %d in the description", docs.Docs, info.Index.Docs)
	}
}

// queryStrings stand for every kind of query that the language has.
var queryStrings = []string{
	"", "*", "warp", "warp weft loom", "title:warp", "+warp -loom", "warp AND weft", "NOT warp", "-warp -weft", "nosuchword", "écru 織物",
	`title:"warp weft"`, `"warp weft"~3`, `title:"reed 𝄞𝄢"`, "title:w*", "w* -ya*", "title:é*", "body:loom^2.5", "(warp OR reed)^0.5 AND NOT shed", "warp^0", "warp^-1",
	"(warp^1.1)^3e-5 (weft (loom (reed shed)))",
	"i:[1 TO 5]", "i:{-3 TO 3}", "i:[-9223372036854775808 TO *]", "i:<=-9223372036854775808", "u:>=18446744073709551615", "u:[* TO 17}", "f:<0", "f:[-1.5 TO 2.25]",
	"at:[2024-01-01 TO 2024-06-01}", "at:>2024-03-01T12:00:00Z", "tag:[t2 TO t4}", "tag:t1", `tag:="t1"`, `tag:=("t1" "t3" "say \"when\"")`, `i:=("0" "7")`, `id:=("both" "𝄞𝄢" "\\")`,
	"_exists_:f", "body:*", "warp AND i:[0 TO *] AND _exists_:at",
}

func parse(t testing.TB, text string) query.Node {
	t.Helper()
	q, err := query.Parse(text, query.ParseOptions{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return q
}

// trees are queries that the language cannot say.
var trees = []query.Node{
	&query.Match{Field: "title", Text: "warp weft loom"},
	&query.Match{Field: "body", Text: "loom warp loom", All: true},
	&query.Match{Text: "reed shed yarn wale", MaxTerms: 2},
	&query.Bool{Must: []query.Node{&query.Term{Text: "warp"}}, Filter: []query.Node{&query.Range{Field: "i", Min: &query.Bound{Value: "0"}}}},
	&query.Bool{Filter: []query.Node{&query.Term{Field: "tag", Text: "t1"}}, Should: []query.Node{&query.Term{Text: "loom"}}, MustNot: []query.Node{&query.Exists{Field: "f"}}},
	&query.Bool{Should: []query.Node{&query.Boost{Query: &query.Terms{Field: "tag", Values: awkward}, Factor: 1.5}, &query.Terms{Field: "tag"}}},
	&query.Phrase{Field: "title", Text: `reed say "when"`, Slop: 1},
	&query.Bool{},
}

func queries(t testing.TB, e Env) []query.Node {
	t.Helper()
	list := []query.Node{nil}
	for _, text := range queryStrings {
		list = append(list, parse(t, text))
	}
	if !e.Wire.QueryStrings {
		list = append(list, trees...)
	}
	return list
}

func search(ctx context.Context, req leaf.SearchRequest) func(l leaf.Leaf) (*leaf.SearchReply, error) {
	return func(l leaf.Leaf) (*leaf.SearchReply, error) { return l.Search(ctx, &req) }
}

func testSearch(t *testing.T, e Env) {
	filters := [][]query.Node{nil, {parse(t, "i:[0 TO *]")}, {parse(t, "tag:t1 OR tag:t2"), parse(t, "NOT body:loom"), parse(t, "f:>-3")}}
	for i, q := range queries(t, e) {
		req := leaf.SearchRequest{Index: corpusIndex, Query: q, Limit: 10, Filters: filters[i%len(filters)], KeepStats: i%2 == 0}
		switch i % 5 {
		case 1:
			req.Total, req.TotalFloor = exec.TotalAtLeast, 5
		case 2:
			req.Total = exec.TotalNone
		case 3:
			req.Limit = 0
		case 4:
			req.Limit, req.DefaultFields = exec.MaxWindow, []string{"body"}
		}
		what := fmt.Sprintf("query %v with %d filters", q, len(req.Filters))
		if _, err := both(t, e, what, search(t.Context(), req)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Counting stops at the same number whatever the order is called.
	for i, keys := range orders {
		for _, text := range []string{"", "warp", "warp OR reed", "title:w*", "i:[-5 TO 9]", "_exists_:f", `tag:=("t1" "t3")`} {
			for _, floor := range []uint64{0, 11, 1000} {
				req := leaf.SearchRequest{Index: corpusIndex, Query: parse(t, text), Sort: keys, Limit: 10, Total: exec.TotalAtLeast, TotalFloor: floor}
				what := fmt.Sprintf("order %d of %q, counted to %d", i, text, floor)
				got, err := both(t, e, what, search(t.Context(), req))
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if i == 1 { // the order that there is without one
					req.Sort = nil
					plain, err := e.Leaf.Search(t.Context(), &req)
					if err != nil {
						t.Fatal(err)
					}
					if got.Total != plain.Total || got.TotalRelation != plain.TotalRelation || !slices.Equal(got.Approximate, plain.Approximate) {
						t.Errorf("%s: total %s %d, %v; without a name for the order %s %d, %v", what, got.TotalRelation, got.Total, got.Approximate, plain.TotalRelation, plain.Total, plain.Approximate)
					}
				}
			}
		}
	}
	// Statistics of no documents, and terms of none, leave scores what they can be.
	for _, st := range []score.Stats{{}, {Docs: 1}, {Docs: 1, DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: 0}}, {Docs: 2, Fields: map[string]score.FieldStats{"title": {SumLen: 2, Docs: 2}, "body": {}}}} {
		got, err := both(t, e, "few statistics", search(t.Context(), leaf.SearchRequest{Index: corpusIndex, Query: parse(t, "warp OR reed"), Limit: exec.MaxWindow, Stats: &st}))
		if err != nil || len(got.Hits) < 100 {
			t.Fatalf("%+v: %v", st, err)
		}
		for _, h := range got.Hits {
			if !(h.Score > 0) {
				t.Fatalf("%+v: a score of %v", st, h.Score)
			}
		}
	}
	// What is not exact is said.
	for _, c := range []struct {
		req  leaf.SearchRequest
		want []string
	}{
		{leaf.SearchRequest{Query: parse(t, "warp"), Limit: 5}, []string{leaf.ApproximateLocal}},
		{leaf.SearchRequest{Query: parse(t, "warp")}, nil},
		{leaf.SearchRequest{Query: parse(t, "i:>0"), Limit: 5}, nil},
		{leaf.SearchRequest{Limit: 5}, nil},
		{leaf.SearchRequest{Query: parse(t, "warp"), Limit: 1, Total: exec.TotalAtLeast, TotalFloor: 1}, []string{leaf.ApproximateTotal, leaf.ApproximateLocal}},
		{leaf.SearchRequest{Query: parse(t, "warp"), Limit: 5, Stats: &score.Stats{Docs: 1000}}, nil},
	} {
		c.req.Index = corpusIndex
		got, err := both(t, e, "approximate", search(t.Context(), c.req))
		if err != nil || !slices.Equal(got.Approximate, c.want) {
			t.Errorf("%v: approximate %v, want %v (%v)", c.req.Query, got.Approximate, c.want, err)
		}
	}
}

// orders sort by every kind of value, in both directions, with those that have none first and last.
var orders = [][]exec.SortKey{
	nil,
	{{By: exec.ByScore, Desc: true}},
	{{By: exec.ByScore}},
	{{By: exec.ByID}},
	{{By: exec.ByID, Desc: true}},
	{{By: exec.ByField, Field: "i"}},
	{{By: exec.ByField, Field: "i", Desc: true, MissingFirst: true}},
	{{By: exec.ByField, Field: "i", Desc: true, Mode: exec.Least}, {By: exec.ByField, Field: "u", Desc: true}},
	{{By: exec.ByField, Field: "u", Desc: true}, {By: exec.ByScore, Desc: true}},
	{{By: exec.ByField, Field: "f", MissingFirst: true}},
	{{By: exec.ByField, Field: "f", Desc: true}},
	{{By: exec.ByField, Field: "at"}, {By: exec.ByID, Desc: true}},
	{{By: exec.ByField, Field: "tag", Mode: exec.Greatest}},
	{{By: exec.ByField, Field: "tag", Desc: true}, {By: exec.ByScore, Desc: true}, {By: exec.ByField, Field: "f"}, {By: exec.ByField, Field: "i", MissingFirst: true}},
}

// testOrders pages through every order, and compares with the whole list.
func testOrders(t *testing.T, e Env) {
	for i, keys := range orders {
		for _, text := range []string{"", "warp OR reed"} {
			q := parse(t, text)
			what := fmt.Sprintf("order %d of %q", i, text)
			whole, err := both(t, e, what, search(t.Context(), leaf.SearchRequest{Index: corpusIndex, Query: q, Sort: keys, Limit: exec.MaxWindow, KeepStats: true}))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if len(whole.Hits) < 100 || uint64(len(whole.Hits)) != whole.Total {
				t.Fatalf("%s: %d hits of %d", what, len(whole.Hits), whole.Total)
			}
			var paged []leaf.Hit
			var after *exec.After
			for len(paged) <= len(whole.Hits) {
				page, err := e.Leaf.Search(t.Context(), &leaf.SearchRequest{
					Index: corpusIndex, Query: q, Sort: keys, Limit: 29, After: after, Total: exec.TotalNone, Stats: whole.Stats,
				})
				if err != nil {
					t.Fatalf("%s: after %d hits: %v", what, len(paged), err)
				}
				if len(page.Hits) == 0 {
					break
				}
				paged = append(paged, page.Hits...)
				last := page.Hits[len(page.Hits)-1]
				after = exec.AfterHit(&exec.Hit{Key: last.ID, Score: last.Score, Sort: last.Sort})
			}
			if d := diff(whole.Hits, paged); d != "" {
				t.Errorf("%s: −whole +paged\n%s", what, d)
			}
			for k := range whole.Hits[1:] {
				if leaf.CompareHits(keys, &whole.Hits[k], &whole.Hits[k+1]) >= 0 {
					t.Errorf("%s: hits %d and %d are not in order", what, k, k+1)
				}
			}
		}
	}
}

func testStats(t *testing.T, e Env) {
	terms := []score.Term{{Field: "title", Text: "warp"}, {Field: "body", Text: "warp"}, {Field: "title", Text: "nosuchword"}, {Field: "title", Text: "𝄞"}, {Field: "tag", Text: `say "when"`}, {Field: "nosuchfield", Text: "x"}, {Field: "title", Text: ""}}
	for i, q := range queries(t, e) {
		req := leaf.StatsRequest{Index: corpusIndex, Query: q}
		if i%3 == 0 {
			req.Terms = terms
		}
		if i%4 == 0 {
			req.DefaultFields = []string{"body"}
		}
		what := fmt.Sprintf("statistics of %v and %d terms", q, len(req.Terms))
		got, err := both(t, e, what, func(l leaf.Leaf) (*leaf.StatsReply, error) { return l.Stats(t.Context(), &req) })
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		// Installed in a search they give what the node gives by itself.
		own, err := e.Node.Leaf().Search(t.Context(), &leaf.SearchRequest{Index: corpusIndex, Query: q, DefaultFields: req.DefaultFields, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		installed, err := e.Leaf.Search(t.Context(), &leaf.SearchRequest{Index: corpusIndex, Query: q, DefaultFields: req.DefaultFields, Limit: 1000, Stats: &got.Stats})
		if err != nil {
			t.Fatalf("%s: search with them: %v", what, err)
		}
		if d := diff(own.Hits, installed.Hits); d != "" {
			t.Errorf("%s: −own +installed\n%s", what, d)
		}
	}
	// Others than its own give other scores.
	global := score.Stats{
		Docs: 1 << 40, Fields: map[string]score.FieldStats{"title": {SumLen: 1 << 42, Docs: 1 << 39}, "body": {SumLen: 17, Docs: 3}},
		DF: map[score.Term]uint64{{Field: "title", Text: "warp"}: 1 << 38, {Field: "body", Text: "織物"}: 2, {Field: "title", Text: awkward[0]}: 1},
	}
	both(t, e, "global statistics", search(t.Context(), leaf.SearchRequest{Index: corpusIndex, Query: parse(t, "warp 織物 loom"), Limit: 50, Stats: &global, KeepStats: true}))
}

// testPrefixes searches for prefixes of more words than score.
func testPrefixes(t *testing.T, e Env) {
	var docs []document
	for i := range exec.MaxPrefixTerms/4 + 40 {
		docs = append(docs, document{ID: fmt.Sprint(i), Title: fmt.Sprintf("p%d p%d p%d p%d", 4*i, 4*i+1, 4*i+2, 4*i+3)})
	}
	const index = "prefixes"
	e.Node.Create(t, index, strings.Replace(corpusSDL, corpusIndex, index, 1))
	load(t, e.Node.Leaf(), index, docs)
	got, err := both(t, e, "a broad prefix", search(t.Context(), leaf.SearchRequest{Index: index, Query: parse(t, "title:p*"), Limit: 20}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.Approximate, leaf.ApproximatePrefix) || len(got.Notes) == 0 || got.Total != uint64(len(docs)) {
		t.Errorf("approximate %v, notes %q, total %d", got.Approximate, got.Notes, got.Total)
	}
	stats, err := both(t, e, "all words of a prefix", func(l leaf.Leaf) (*leaf.StatsReply, error) {
		return l.Stats(t.Context(), &leaf.StatsRequest{Index: index, Query: parse(t, "title:p*")})
	})
	if err != nil || len(stats.Stats.DF) != 4*len(docs) {
		t.Errorf("%d words of %d: %v", len(stats.Stats.DF), 4*len(docs), err)
	}
}

// specs are aggregations of every kind.
const specs = `{
	"tags":{"kind":"terms","field":"tag","size":3}, "all":{"kind":"terms","field":"i","size":0}, "us":{"kind":"terms","field":"u","size":5},
	"s":{"kind":"stats","field":"f"}, "si":{"kind":"stats","field":"i"}, "h":{"kind":"histogram","field":"f","interval":0.5,"filter":"f:[-10 TO 10]"},
	"d":{"kind":"date_histogram","field":"at","interval":"1y"}, "r":{"kind":"range","field":"i","ranges":["-5..0","0..","..3"]},
	"p":{"kind":"percentiles","field":"u","percents":[0,12.5,50,99.9,100]}, "c":{"kind":"cardinality","field":"tag"},
	"x":{"kind":"filter","filter":"warp AND NOT loom","aggs":{"n":{"kind":"stats","field":"u"}}},
	"j \"𝄞\\":{"kind":"terms","field":"tag","filter":{"range":{"field":"i","gte":0}},"aggs":{"f":{"kind":"histogram","field":"f","interval":2,"filter":"body:reed AND f:[-10 TO 10]"},"k":{"kind":"cardinality","field":"i"}}},
	"unseen":{"kind":"terms","field":"not_seen_yet"}
}`

func aggregate(ctx context.Context, req leaf.AggregateRequest) func(l leaf.Leaf) (*leaf.AggregateReply, error) {
	return func(l leaf.Leaf) (*leaf.AggregateReply, error) { return l.Aggregate(ctx, &req) }
}

func parseSpecs(t testing.TB, text string) []agg.Spec {
	t.Helper()
	list, err := agg.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func testAggregate(t *testing.T, e Env) {
	list := parseSpecs(t, specs)
	facets, err := agg.Facets([]string{"tag", "i"})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"i", "u", "f", "at", "tag", "not_seen_yet"}
	for i, q := range queries(t, e) {
		req := leaf.AggregateRequest{Index: corpusIndex, Query: q, Specs: list, Values: all}
		switch i % 4 {
		case 1:
			req.Filters = []query.Node{parse(t, "tag:t1 OR i:>5"), parse(t, "NOT body:shed")}
		case 2:
			req.Specs, req.Values = facets, nil
		case 3:
			req.Specs, req.DefaultOp, req.DefaultFields = list[:1], query.And, []string{"title"}
		}
		if _, err := both(t, e, fmt.Sprintf("aggregations over %v", q), aggregate(t.Context(), req)); err != nil {
			t.Errorf("%v: %v", q, err)
		}
	}
	got, err := both(t, e, "values", aggregate(t.Context(), leaf.AggregateRequest{Index: corpusIndex, Values: all}))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Values) != len(all) || len(got.Values[0].Numbers) == 0 || len(got.Values[4].Texts) == 0 || got.Matched != got.Docs ||
		!slices.Contains(got.Values[1].Numbers, math.MaxUint64) || !slices.Contains(got.Values[4].Texts, awkward[3]) {
		t.Errorf("values %+v of %d documents", got.Values, got.Matched)
	}
	// A number of distinct values that is estimated is said to be.
	var docs []document
	for i := range agg.ExactValues + 100 {
		docs = append(docs, document{ID: fmt.Sprint(i), I: []int64{int64(i)}})
	}
	const index = "distinct"
	e.Node.Create(t, index, strings.Replace(corpusSDL, corpusIndex, index, 1))
	load(t, e.Node.Leaf(), index, docs)
	for text, want := range map[string]bool{
		`{"c":{"kind":"cardinality","field":"i"}}`:                                                                                    true,
		`{"c":{"kind":"cardinality","field":"i","filter":"i:<100"}}`:                                                                  false,
		`{"x":{"kind":"filter","filter":"*","aggs":{"c":{"kind":"cardinality","field":"i"}}}}`:                                        true,
		`{"x":{"kind":"filter","filter":"i:<1000","aggs":{"c":{"kind":"cardinality","field":"i"}}},"y":{"kind":"stats","field":"i"}}`: false,
	} {
		got, err := both(t, e, text, aggregate(t.Context(), leaf.AggregateRequest{Index: index, Specs: parseSpecs(t, text)}))
		if err != nil || slices.Contains(got.Approximate, leaf.ApproximateDistinct) != want {
			t.Errorf("%s: approximate %v, want %v (%v)", text, got.Approximate, want, err)
		}
	}
}

func testKNN(t *testing.T, e Env) {
	best := score.Combiner{Kind: score.Max}
	for i, q := range []api.KNN{
		{Field: "v", Dense: []float32{1, 2, -3, 0.1}, K: 10, Combiner: best},
		{Field: "v", Dense: []float32{-1, 0, 0, math.SmallestNonzeroFloat32}, K: 500, Exact: true, Combiner: best},
		{Field: "v", Dense: []float32{0.1, 0.2, 0.3, 0.4}, K: 20, Ef: 64, Combiner: score.Combiner{Kind: score.LogSumExp, Temperature: 1.5}},
		{Field: "v", Dense: []float32{4, 3, 2, 1}, K: 7, Combiner: score.Combiner{Kind: score.WeightedTopK, TopK: 2, Decay: 0.5}},
		{Field: "v", Dense: []float32{4, 3, 2, 1}, K: 7, Combiner: score.Combiner{Kind: score.Avg}},
		{Field: "bits", Bits: []byte{0xf0, 0x0f}, K: 12, Combiner: best},
		{Field: "sp", Indices: []uint32{0, 3, 5}, Weights: []float32{1, 0.25, 3}, K: 12, Combiner: best},
		{Field: "v", Dense: []float32{1, 0, 0, 0}, K: 0, Combiner: best},
	} {
		for _, filters := range [][]query.Node{nil, {parse(t, "i:[0 TO *]"), parse(t, "warp")}} {
			req := &leaf.KNNRequest{Index: corpusIndex, KNN: q, Filters: filters}
			if i%2 == 1 {
				req.DefaultFields = []string{"title"}
			}
			what := fmt.Sprintf("neighbours %d with %d filters", i, len(filters))
			got, err := both(t, e, what, func(l leaf.Leaf) (*leaf.KNNReply, error) { return l.KNN(t.Context(), req) })
			if err != nil || (len(got.Hits) == 0) != (q.K == 0) {
				t.Errorf("%s: %d hits, %v", what, len(got.Hits), err)
			}
		}
	}
}

// testConcurrent makes calls of all kinds at once.
func testConcurrent(t *testing.T, e Env) {
	list := queries(t, e)
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			for i := range 12 {
				q := list[(5*g+i)%len(list)]
				what := fmt.Sprintf("caller %d, call %d: %v", g, i, q)
				switch i % 4 {
				case 0:
					both(t, e, what, aggregate(t.Context(), leaf.AggregateRequest{Index: corpusIndex, Query: q, Values: []string{"i", "tag"}}))
				case 1:
					both(t, e, what, func(l leaf.Leaf) (*leaf.IDsReply, error) {
						return l.IDs(t.Context(), &leaf.IDsRequest{Index: corpusIndex, Limit: 100}, func([]string) error { return nil })
					})
				default:
					both(t, e, what, search(t.Context(), leaf.SearchRequest{Index: corpusIndex, Query: q, Limit: 1000}))
				}
			}
		})
	}
	wg.Wait()
}
