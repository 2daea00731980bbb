package api

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
)

var testLimits = SearchLimits{Hits: 10_000, Timeout: time.Minute}

func TestEveryCodeHasStatusAndTitle(t *testing.T) {
	titles := map[string]Code{}
	for code, info := range Codes {
		if info.Status < 400 || info.Status > 599 || info.Title == "" {
			t.Errorf("%s: status %d, title %q", code, info.Status, info.Title)
		}
		if other, twice := titles[info.Title]; twice {
			t.Errorf("%s and %s have one title", code, other)
		}
		titles[info.Title] = code
		if string(code) != strings.ToLower(string(code)) || strings.ContainsAny(string(code), " -") {
			t.Errorf("%q is not lower_snake", code)
		}
	}
}

func TestProblemDocument(t *testing.T) {
	p := NewProblem(InvalidQuery, "expected a \"word\"").On("q").At(0).Within(7)
	p.Line, p.Expected, p.RetryAfterMS, p.RequestID, p.Extra = 2, "a word", 5, "r", []byte(`"failed":1`)
	var got map[string]any
	if err := json.Unmarshal(p.AppendJSON(nil), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "urn:weft:problem:invalid_query", "title": "The query cannot be read", "status": 400.0, "detail": "expected a \"word\"", "code": "invalid_query",
		"field": "q", "line": 2.0, "position": 0.0, "expected": "a word", "limit": 7.0, "retry_after_ms": 5.0, "request_id": "r", "failed": 1.0,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := string(NewProblem("no_such_code", "\xff").AppendJSON(nil)); !json.Valid([]byte(got)) || !strings.Contains(got, `"status":500`) {
		t.Errorf("problem of an unknown code: %s", got)
	}
}

func TestScoresReadBackToTheSameBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		f := math.Float32frombits(rng.Uint32())
		if !Finite(f) {
			continue
		}
		text := AppendScore(nil, f)
		var viaJSON float32
		if err := json.Unmarshal(text, &viaJSON); err != nil {
			t.Fatalf("%s is not JSON: %v", text, err)
		}
		if math.Float32bits(viaJSON) != math.Float32bits(f) {
			t.Fatalf("%x was written as %s and read as %x", math.Float32bits(f), text, math.Float32bits(viaJSON))
		}
	}
}

func TestMillis(t *testing.T) {
	for micros, want := range map[int64]string{0: "0", 1: "0.001", 10: "0.01", 100: "0.1", 999: "0.999", 1000: "1", 1500: "1.5", 6_300: "6.3", 12_345_678: "12345.678", -1: "0", -7_258_118_400_185_001: "0"} {
		if got := string(AppendMillis(nil, micros)); got != want {
			t.Errorf("%d µs: %s, want %s", micros, got, want)
		}
	}
}

func TestParseSearch(t *testing.T) {
	base := SearchRequest{Index: "default", Limit: 10, Pool: 200, Weights: [2]float32{0.5, 0.5}}
	with := func(f func(*SearchRequest)) SearchRequest { r := base; f(&r); return r }
	filters := func(list ...query.Node) SearchRequest {
		return with(func(r *SearchRequest) { r.Filters = list })
	}
	keys := func(list ...SortKey) SearchRequest { return with(func(r *SearchRequest) { r.Sort = list }) }
	price, title := SortKey{By: ByField, Field: "price"}, SortKey{By: ByField, Field: "title"}
	desc := func(k SortKey) SortKey { k.Desc, k.Pick = true, Greatest; return k }
	vectors := func(f func(k *KNN)) SearchRequest {
		k := &KNN{Field: "v", K: 10, Combiner: score.Combiner{Kind: score.Max}}
		f(k)
		return with(func(r *SearchRequest) { r.KNN = k })
	}
	marks := func(f func(h *Highlight)) SearchRequest {
		h := &Highlight{Fields: []string{"title"}, FragmentSize: 150, Fragments: 3, Pre: "<em>", Post: "</em>"}
		f(h)
		return with(func(r *SearchRequest) { r.Highlight = h })
	}
	exactly := func(field string, values ...string) query.Node { return &query.Terms{Field: field, Values: values} }
	tests := []struct {
		name, url, body string
		want            SearchRequest
	}{
		{"nothing", "", `{}`, base},
		{"query", "q=a+b", `{"q":"a b"}`, with(func(r *SearchRequest) { r.Q = "a b" })},
		{"index", "index=books", `{"index":"books"}`, with(func(r *SearchRequest) { r.Index = "books" })},
		{"operator", "default_op=and", `{"default_op":"and"}`, with(func(r *SearchRequest) { r.DefaultOp = query.And })},
		{"lists", "default_fields=a,b&fields=c", `{"default_fields":["a","b"],"fields":["c"]}`, with(func(r *SearchRequest) { r.DefaultFields, r.Fields = []string{"a", "b"}, []string{"c"} })},
		{"no source", "fields=", `{"fields":[]}`, with(func(r *SearchRequest) { r.Fields = []string{} })},
		{"window", "limit=0&offset=10000", `{"limit":0,"offset":10000}`, with(func(r *SearchRequest) { r.Limit, r.Offset = 0, 10_000 })},
		{"total none", "track_total=none", `{"track_total":"none"}`, with(func(r *SearchRequest) { r.Total = TotalNone })},
		{"total floor", "track_total=100", `{"track_total":100}`, with(func(r *SearchRequest) { r.Total, r.TotalFloor = TotalAtLeast, 100 })},
		{"total floor as text", "track_total=100", `{"track_total":"100"}`, with(func(r *SearchRequest) { r.Total, r.TotalFloor = TotalAtLeast, 100 })},
		{"time", "timeout_ms=1500", `{"timeout_ms":1500}`, with(func(r *SearchRequest) { r.Timeout = 1500 * time.Millisecond })},
		{"completeness", "allow_partial=true&min_coverage=0.5", `{"allow_partial":true,"min_coverage":0.5}`, with(func(r *SearchRequest) { r.AllowPartial, r.MinCoverage = Yes, 0.5 })},
		{"flags", "allow_partial=false&dfs=true&profile=true", `{"allow_partial":false,"dfs":true,"profile":true}`, with(func(r *SearchRequest) { r.AllowPartial, r.DFS, r.Profile = No, true, true })},
		{"order", "sort=score&order=desc", `{"sort":"score:desc","order":"desc"}`, base},
		{"cursor", "after=abc", `{"after":"abc"}`, with(func(r *SearchRequest) { r.After = "abc" })},
		{"filters", "filter=a:b&filter=c:d", `{"filter":["a:b","c:d"]}`, filters(&query.Term{Field: "a", Text: "b"}, &query.Term{Field: "c", Text: "d"})},
		{"filter text", "filter=tag:x", `{"filter":"tag:x"}`, filters(&query.Term{Field: "tag", Text: "x"})},
		{"filter operator", "filter=a+b&default_op=and", `{"filter":["a b"],"default_op":"and"}`, with(func(r *SearchRequest) {
			r.DefaultOp = query.And
			r.Filters = []query.Node{&query.Bool{Must: []query.Node{&query.Term{Text: "a"}, &query.Term{Text: "b"}}}}
		})},
		{"filter term", "", `{"filter":{"term":{"field":"tag","value":"x"}}}`, filters(exactly("tag", "x"))},
		{"filter terms", "", `{"filter":[{"terms":{"field":"n","values":[1,"2",true]}}]}`, filters(exactly("n", "1", "2", "true"))},
		{"filter range", "", `{"filter":{"range":{"field":"n","gte":1,"lt":"2"}}}`, filters(&query.Range{Field: "n", Min: &query.Bound{Value: "1"}, Max: &query.Bound{Value: "2", Exclusive: true}})},
		{"filter open range", "", `{"filter":{"range":{"field":"n","gt":1.5}}}`, filters(&query.Range{Field: "n", Min: &query.Bound{Value: "1.5", Exclusive: true}})},
		{"filter exists", "", `{"filter":{"exists":{"field":"n"}}}`, filters(&query.Exists{Field: "n"})},
		{"filter prefix", "", `{"filter":{"prefix":{"field":"t","value":"we"}}}`, filters(&query.Prefix{Field: "t", Text: "we"})},
		{"filter bool", "", `{"filter":{"bool":{"must":{"exists":{"field":"a"}},"should":["b:c"],"must_not":[{"term":{"field":"d","value":"e"}}]}}}`, filters(&query.Bool{
			Must:    []query.Node{&query.Exists{Field: "a"}},
			Should:  []query.Node{&query.Bool{Filter: []query.Node{&query.Term{Field: "b", Text: "c"}}}},
			MustNot: []query.Node{exactly("d", "e")},
		})},
		{"no filter", "", `{"filter":[]}`, base},
		{"sort", "sort=price,title:desc,id:desc,score", `{"sort":["price",{"key":"title","order":"desc"},"id:desc",{"key":"score"}]}`, keys(price, desc(title), SortKey{By: ByID, Desc: true}, SortKey{By: ByScore, Desc: true})},
		{"sort by text of JSON", "sort=price,title", `{"sort":"price,title"}`, keys(price, title)},
		{"sort numeric", "sort=num:price", `{"sort":"num:price"}`, keys(SortKey{By: ByField, Field: "price", Numeric: true})},
		{"sort modes", "sort=price:desc:min,title:max", `{"sort":[{"field":"price","order":"desc","mode":"min"},{"field":"title","mode":"max"}]}`, keys(
			SortKey{By: ByField, Field: "price", Desc: true}, SortKey{By: ByField, Field: "title", Pick: Greatest})},
		{"sort order", "sort=price,title:asc&order=desc", `{"sort":["price","title:asc"],"order":"desc"}`, keys(desc(price), title)},
		{"sort missing", "sort=price&missing=first", `{"sort":{"field":"price","missing":"first"}}`, keys(SortKey{By: ByField, Field: "price", MissingFirst: true})},
		{"sort by a field named score", "", `{"sort":{"field":"score"}}`, keys(SortKey{By: ByField, Field: "score"})},
		{"order alone", "order=asc", `{"order":"asc"}`, keys(SortKey{By: ByScore})},
		{"no sort", "sort=", `{"sort":[]}`, base},
		{"facets", "facets=a,b", `{"facets":["a","b"]}`, with(func(r *SearchRequest) { r.Facets = []string{"a", "b"} })},
		{"vector", "knn=v:1,-2.5,3e2", `{"knn":{"field":"v","vector":[1,-2.5,3e2]}}`, vectors(func(k *KNN) { k.Dense = []float32{1, -2.5, 300} })},
		{"vector as text of JSON", "knn=v:1,2", `{"knn":"v:1,2"}`, vectors(func(k *KNN) { k.Dense = []float32{1, 2} })},
		{"field with a colon", "knn=a:v:1", `{"knn":{"field":"a:v","vector":[1]}}`, vectors(func(k *KNN) { k.Field, k.Dense = "a:v", []float32{1} })},
		{"sparse vector", "knn=v:7=0.5,1=2", `{"knn":{"field":"v","indices":[7,1],"values":[0.5,2]}}`, vectors(func(k *KNN) { k.Indices, k.Weights = []uint32{7, 1}, []float32{0.5, 2} })},
		{"binary vector", "knn=v:0x00ff", `{"knn":{"field":"v","bits":"AP8="}}`, vectors(func(k *KNN) { k.Bits = []byte{0, 255} })},
		{"vector options", "knn=v:1&knn_k=3&knn_exact=true", `{"knn":{"field":"v","vector":[1],"k":3,"exact":true}}`, vectors(func(k *KNN) { k.Dense, k.K, k.GivenK, k.Exact = []float32{1}, 3, true, true })},
		{"vector graph options", "", `{"knn":{"field":"v","vector":[1],"ef":50,"combiner":"weighted_top_k","top_k":3,"decay":0.5}}`, vectors(func(k *KNN) {
			k.Dense, k.Ef, k.Combiner = []float32{1}, 50, score.Combiner{Kind: score.WeightedTopK, TopK: 3, Decay: 0.5}
		})},
		{"softmax", "", `{"knn":{"field":"v","vector":[1],"combiner":"log_sum_exp","temperature":2}}`, vectors(func(k *KNN) {
			k.Dense, k.Combiner = []float32{1}, score.Combiner{Kind: score.LogSumExp, Temperature: 2}
		})},
		{"fusion", "fusion=weighted&weights=0.25,2&pool=50", `{"fusion":"weighted","weights":[0.25,2],"pool":50}`, with(func(r *SearchRequest) {
			r.Fusion, r.Weights, r.Pool = Weighted, [2]float32{0.25, 2}, 50
			r.Idle = []string{"fusion", "pool", "weights"} // there is no knn
		})},
		{"highlight", "highlight=title", `{"highlight":["title"]}`, marks(func(*Highlight) {})},
		{"highlight options", "", `{"highlight":{"fields":["a","*"],"fragment_size":40,"fragments":1,"pre":"[","post":"","escape":"none"}}`, marks(func(h *Highlight) {
			*h = Highlight{Fields: []string{"a", "*"}, FragmentSize: 40, Fragments: 1, Pre: "[", Raw: true}
		})},
		{"explain", "explain=true&profile=true", `{"explain":true,"profile":true}`, with(func(r *SearchRequest) { r.Explain, r.Profile = true, true })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := url.ParseQuery(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			places := cmpopts.IgnoreFields(SearchRequest{}, "FilterPlaces")
			if tt.url != "" || tt.body == "{}" {
				got, prob := ParseSearch(v, testLimits)
				if prob != nil {
					t.Fatal(prob)
				}
				if d := cmp.Diff(tt.want, *got, places); d != "" {
					t.Error("URL:", d)
				}
			}
			got, prob := ParseSearchBody([]byte(tt.body), "", testLimits)
			if prob != nil {
				t.Fatal(prob)
			}
			if d := cmp.Diff(tt.want, *got, places); d != "" {
				t.Error("body:", d)
			}
		})
	}
}

func TestParseSearchRefuses(t *testing.T) {
	urls := []struct {
		url   string
		code  Code
		field string
	}{
		{"nope=1", UnknownParameter, "nope"},
		{"q=a&q=b", RepeatedParameter, "q"},
		{"q=%ff", InvalidUTF8, "q"},
		{"index=", InvalidIndexName, "index"},
		{"index=a%2Fb", InvalidIndexName, "index"},
		{"index=-a", InvalidIndexName, "index"},
		{"index=" + strings.Repeat("a", 256), InvalidIndexName, "index"},
		{"default_op=xor", InvalidParameter, "default_op"},
		{"default_fields=", InvalidParameter, "default_fields"},
		{"fields=a,,b", InvalidParameter, "fields"},
		{"limit=-1", InvalidParameter, "limit"},
		{"limit=1.5", InvalidParameter, "limit"},
		{"limit=10001", InvalidParameter, "limit"},
		{"limit=99999999999999999999", InvalidParameter, "limit"},
		{"limit=10000&offset=1", InvalidParameter, "offset"},
		{"track_total=some", InvalidParameter, "track_total"},
		{"track_total=-1", InvalidParameter, "track_total"},
		{"timeout_ms=0", InvalidParameter, "timeout_ms"},
		{"timeout_ms=60001", InvalidParameter, "timeout_ms"},
		{"allow_partial=yes", InvalidParameter, "allow_partial"},
		{"min_coverage=NaN", InvalidParameter, "min_coverage"},
		{"min_coverage=1.5", InvalidParameter, "min_coverage"},
		{"order=up", InvalidParameter, "order"},
		{"after=x&offset=1", InvalidParameter, "offset"},
		{"after=" + strings.Repeat("a", 1<<19+1), InvalidCursor, "after"},
		{"filter=(", InvalidQuery, "filter"},
		{"filter=a&filter=", "", ""},
		{strings.Repeat("filter=a&", MaxFilters) + "filter=a", InvalidParameter, "filter"},
		{"filter=" + strings.Repeat("a+", 600), QueryLimit, "filter"},
		{"sort=,", InvalidParameter, "sort"},
		{"sort=:asc", InvalidParameter, "sort"},
		{"sort=num:", InvalidParameter, "sort"},
		{"sort=score:min", InvalidParameter, "sort"},
		{"sort=id:desc:max", InvalidParameter, "sort"},
		{"sort=a,b,c,d,e,f,g,h,i", InvalidParameter, "sort"},
		{"missing=middle", InvalidParameter, "missing"},
		{"facets=a,,b", InvalidParameter, "facets"},
		{"facets=" + manyNames(MaxFacets+1), InvalidParameter, "facets"},
		{"knn=v", InvalidParameter, "knn"},
		{"knn=v:", InvalidParameter, "knn"},
		{"knn=:1", InvalidParameter, "knn"},
		{"knn=v:1,,2", InvalidParameter, "v"},
		{"knn=v:NaN", InvalidParameter, "v"},
		{"knn=v:1,Inf", InvalidParameter, "v"},
		{"knn=v:1e39", InvalidParameter, "v"},
		{"knn=v:0x", InvalidParameter, "v"},
		{"knn=v:0xabc", InvalidParameter, "v"},
		{"knn=v:1=2,3", InvalidParameter, "v"},
		{"knn=v:-1=2", InvalidParameter, "v"},
		{"knn=v:1=NaN", InvalidParameter, "v"},
		{"knn=v:1&knn_k=0", InvalidParameter, "knn_k"},
		{"knn=v:1&knn_k=10001", InvalidParameter, "knn_k"},
		{"knn=v:1&sort=price", InvalidParameter, "sort"},
		{"knn=v:1&order=asc", InvalidParameter, "sort"},
		{"knn=v:1&after=x", InvalidParameter, "after"},
		{"knn_exact=1", InvalidParameter, "knn_exact"},
		{"fusion=max", InvalidParameter, "fusion"},
		{"weights=1", InvalidParameter, "weights"},
		{"weights=1,2,3", InvalidParameter, "weights"},
		{"weights=1,-2", InvalidParameter, "weights"},
		{"weights=0,0", InvalidParameter, "weights"},
		{"weights=1,1e7", InvalidParameter, "weights"},
		{"weights=a,b", InvalidParameter, "weights"},
		{"pool=0", InvalidParameter, "pool"},
		{"pool=10001", InvalidParameter, "pool"},
		{"highlight=", InvalidParameter, "highlight"},
		{"highlight=a,,b", InvalidParameter, "highlight"},
		{"highlight=" + manyNames(MaxHighlight+1), InvalidParameter, "highlight"},
		{"explain=yes", InvalidParameter, "explain"},
	}
	for _, tt := range urls {
		v, err := url.ParseQuery(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		_, prob := ParseSearch(v, testLimits)
		if tt.code == "" && prob == nil {
			continue
		}
		if prob == nil || prob.Code != tt.code || prob.Field != tt.field {
			t.Errorf("%.60s: got %+v, want %s on %s", tt.url, prob, tt.code, tt.field)
		}
	}
	bodies := []struct {
		body     string
		code     Code
		field    string
		line, at int
	}{
		{``, InvalidJSON, "", 1, 0},
		{`[]`, InvalidJSON, "", 1, 0},
		{"{\n\"q\": }", InvalidJSON, "", 2, 7},
		{`{"q":"a","q":"b"}`, InvalidJSON, "", 1, 9},
		{`{"q":"a"} x`, InvalidJSON, "", 1, 10},
		{`{"q":"a"} {}`, InvalidJSON, "", 1, 10},
		{`{"q":"a"`, InvalidJSON, "", 1, 8},
		{"{\"q\":\"\xff\"}", InvalidUTF8, "", 1, 6},
		{`{"q":"\ud800"}`, InvalidUTF8, "", 1, 6},
		{`{"q":1}`, InvalidParameter, "q", 0, 5},
		{`{"limit":"1"}`, InvalidParameter, "limit", 0, 9},
		{`{"limit":1e3}`, InvalidParameter, "limit", 0, 9},
		{`{"fields":"a"}`, InvalidParameter, "fields", 0, 10},
		{`{"fields":[1]}`, InvalidParameter, "fields", 0, 10},
		{`{"fields":[["a"]]}`, InvalidParameter, "fields", 0, 10},
		{`{"dfs":1}`, InvalidParameter, "dfs", 0, 7},
		{`{"track_total":true}`, InvalidParameter, "track_total", 0, 15},
		{`{"nope":1}`, UnknownParameter, "nope", 0, 7},
		{`{"filter":1}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":[{"term":{"field":"a","value":"b"},"exists":{"field":"c"}}]}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"fuzzy":{}}}`, UnknownParameter, "filter", 0, 10},
		{`{"filter":{"term":{"field":"a"}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"term":{"value":"a"}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"term":{"field":"","value":"a"}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"term":{"field":"a","value":null}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"term":{"field":"a","value":"b","boost":1}}}`, UnknownParameter, "filter", 0, 10},
		{`{"filter":{"terms":{"field":"a","values":"b"}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"terms":{"field":"a","values":[[]]}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"range":{"field":"a"}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"range":{"gte":1}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"range":{"field":"a","gte":1,"gt":1}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"range":{"field":"a","from":1}}}`, UnknownParameter, "filter", 0, 10},
		{`{"filter":{"bool":{}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"bool":{"filter":[]}}}`, UnknownParameter, "filter", 0, 10},
		{`{"filter":{"prefix":{"field":"a","value":""}}}`, InvalidParameter, "filter", 0, 10},
		{`{"filter":{"query":"("}}`, InvalidQuery, "filter", 0, 1},
		{`{"filter":` + strings.Repeat(`{"bool":{"must":`, 40) + `"a"` + strings.Repeat(`}}`, 40) + `}`, QueryLimit, "filter", 0, 10},
		{`{"sort":1}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":[1]}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":{"order":"asc"}}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":{"key":"a","field":"b"}}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":{"key":"a","order":"up"}}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":{"key":"a","mode":"avg"}}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":{"key":"score","missing":"first"}}`, InvalidParameter, "sort", 0, 8},
		{`{"sort":{"key":"a","nulls":"last"}}`, UnknownParameter, "sort", 0, 8},
		{`{"knn":1}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"vector":[1]}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v"}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","vector":["1"]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","vector":[1e39]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"bits":"AA=="}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"vector":[1e39],"field":"v"}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","indices":[` + strings.Repeat("1,", MaxPairs) + `1],"values":[]}}`, InvalidVector, "v", 0, 7},
		{`{"knn":{"field":"v","bits":"!"}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","indices":[1]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","indices":[1],"values":[1,2]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","indices":[-1],"values":[1]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","indices":[4294967296],"values":[1]}}`, InvalidParameter, "v", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"k":0}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"ef":20001}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"combiner":"mean"}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"decay":1.5}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"temperature":0}}`, InvalidParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"nprobe":3}}`, UnknownParameter, "knn", 0, 7},
		{`{"knn":{"field":"v","vector":[1],"k":3},"knn_k":4}`, RepeatedParameter, "knn_k", 0, 0},
		{`{"weights":[1,"2"]}`, InvalidParameter, "weights", 0, 11},
		{`{"highlight":{"fields":["a"],"fragments":0}}`, InvalidParameter, "highlight", 0, 13},
		{`{"highlight":{"fields":["a"],"fragment_size":19}}`, InvalidParameter, "highlight", 0, 13},
		{`{"highlight":{"fields":["a"],"pre":"` + strings.Repeat("x", 257) + `"}}`, InvalidParameter, "highlight", 0, 13},
		{`{"highlight":{"fields":["a"],"fragment_size":10001}}`, InvalidParameter, "highlight", 0, 13},
		{`{"highlight":{"fields":["a"],"escape":"xml"}}`, InvalidParameter, "highlight", 0, 13},
		{`{"highlight":{"fields":["a"],"style":1}}`, UnknownParameter, "highlight", 0, 13},
		{`{"highlight":{"fields":[]}}`, InvalidParameter, "highlight", 0, 13},
		{`{"highlight":true}`, InvalidParameter, "highlight", 0, 13},
		{`{"index":"other"}`, RepeatedParameter, "index", 0, 0},
	}
	for _, tt := range bodies {
		_, prob := ParseSearchBody([]byte(tt.body), "named", testLimits)
		if prob == nil || prob.Code != tt.code || prob.Field != tt.field || prob.Line != tt.line || prob.Position != tt.at {
			t.Errorf("%s: got %+v, want %s on %q at line %d, position %d", tt.body, prob, tt.code, tt.field, tt.line, tt.at)
		}
	}
}

// manyNames is a comma list of so many different names.
func manyNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "f" + strconv.Itoa(i)
	}
	return strings.Join(names, ",")
}

func TestReplyIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := SearchReply{Total: rapid.Uint64().Draw(t, "total"), Relation: "eq", Notes: rapid.SliceOf(rapid.String()).Draw(t, "notes")}
		ids := rapid.SliceOfN(rapid.String(), 0, 4).Draw(t, "ids")
		for i, id := range ids {
			if i > 0 {
				r.Hits = append(r.Hits, ',')
			}
			h := Hit{ID: id, Score: rapid.Float32Range(-10, 10).Draw(t, "score"), Source: []byte(`{"a":1}`), VectorRank: uint32(i)}
			h.Sort = rapid.SampledFrom([][]byte{nil, []byte(`[1,"a",null]`)}).Draw(t, "sort")
			r.Hits = h.AppendJSON(r.Hits)
		}
		var sum int64
		for _, s := range []string{"parse", "queue", "search"} {
			us := rapid.Int64Range(0, 1e9).Draw(t, s)
			sum += us
			r.Timings = append(r.Timings, Timing{s, us})
		}
		r.Shards.Count(ShardOutcome{Address: "a", Outcome: Answered})
		r.Shards.Count(ShardOutcome{Shard: 1, Address: "b", Outcome: TimedOut})
		var got struct {
			Total   uint64
			TookMS  json.Number `json:"took_ms"`
			Hits    []struct{ ID string }
			Shards  struct{ Total, OK, Failed int }
			Timings map[string]float64
		}
		text := r.AppendJSON(nil)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got.Total != r.Total || len(got.Hits) != len(ids) || got.Shards.OK+got.Shards.Failed != got.Shards.Total {
			t.Fatalf("%s", text)
		}
		if got.TookMS.String() != string(AppendMillis(nil, sum)) {
			t.Fatalf("took %s, timings add up to %d µs", got.TookMS, sum)
		}
	})
}

func FuzzParseSearchBody(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"q":"a","limit":3}`, `{"fields":["a",["b"]]}`, `{"track_total":1e9}`, "{\"q\":\"\xff\"}", `{"q":"a"} 1`,
		`{"filter":[{"bool":{"must":["a:b",{"terms":{"field":"x","values":[1,"b"]}}]}}],"sort":[{"key":"num:a","mode":"max"},"b:desc"],"after":"x"}`,
		`{"knn":{"field":"v","indices":[1,2],"values":[1,0.5],"k":3,"combiner":"avg"},"fusion":"rrf","weights":[1,2],"aggs":{"a":{"kind":"terms","field":"x"}}}`,
		`{"knn":{"field":"v","bits":"AAE="},"highlight":{"fields":["*"],"pre":"<b>"},"facets":["a"]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, prob := ParseSearchBody(body, "", testLimits)
		if prob != nil {
			if _, ok := Codes[prob.Code]; !ok || prob.Position > len(body) || !json.Valid(prob.AppendJSON(nil)) {
				t.Fatalf("problem %+v", prob)
			}
			return
		}
		if r.Limit < 0 || r.Offset < 0 || r.Limit+r.Offset > testLimits.Hits || CheckIndexName(r.Index) != nil {
			t.Fatalf("request %+v", r)
		}
	})
}

func FuzzParseSearch(f *testing.F) {
	f.Add("q=a&limit=3")
	f.Add("filter=a:b&filter=c&sort=num:a:desc:min,score&order=asc&aggs=x:terms(a,3)&facets=a,b")
	f.Add("knn=v:1=2,3=4&weights=1,2&highlight=a&after=xx")
	f.Add("knn=v:0xff&knn_k=3")
	f.Add("fields=&track_total=" + strconv.Itoa(math.MaxInt))
	f.Fuzz(func(t *testing.T, raw string) {
		v, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		if _, prob := ParseSearch(v, testLimits); prob != nil && !json.Valid(prob.AppendJSON(nil)) {
			t.Fatalf("problem %+v", prob)
		}
	})
}

// TestQueryLimitsAreToldInWords goes through every limit of a query.
func TestQueryLimitsAreToldInWords(t *testing.T) {
	for what, want := range map[string]string{
		query.LimitDepth:   "the query is nested 33 levels deep or more; at most 32 are allowed",
		query.LimitNodes:   "the query has 33 parts or more; at most 32 are allowed",
		query.LimitClauses: "the query has 33 clauses or more; at most 32 are allowed",
		query.LimitText:    "the query has 33 bytes of text; at most 32 are allowed",
		query.LimitValues:  "the query has 33 exact values or more; at most 32 are allowed",
		query.LimitBytes:   "the query has 33 bytes of exact values; at most 32 are allowed",
	} {
		if got := queryLimit(&query.LimitError{What: what, Got: 33, Limit: 32}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
