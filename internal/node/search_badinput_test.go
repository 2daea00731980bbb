package node

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
)

// TestBadSearches walks what a caller can get wrong about the fields of an index: each problem names the field and, where there is
// one, the limit, in a URL and in a body alike.
func TestBadSearches(t *testing.T) {
	m := newModel(t, 9)
	m.every = 0
	m.do("PUT", "/indexes/m", "text/plain", strings.Replace(modelSchema, "default_fields", "field \"plain\": i64 [stored]\n  field blob: bytes [stored]\n  field stored_v: dense_vector<2> [stored]\n  default_fields", 1)).want(200)
	m.fill(20)
	const none = -1
	for _, tt := range []struct {
		params string
		code   api.Code
		field  string
		limit  float64
	}{
		{"knn=v:1,2,3", api.InvalidVector, "v", 4},
		{"knn=v:1,2,3,4,5", api.InvalidVector, "v", 4},
		{"knn=v:0,0,0,0", api.InvalidVector, "v", none},
		{"knn=v:NaN,0,0,0", api.InvalidParameter, "v", none},
		{"knn=v:1,0,0,1e400", api.InvalidParameter, "v", none},
		{"knn=sp:" + strings.TrimSuffix(strings.Repeat("1=1,", api.MaxPairs+1), ","), api.InvalidVector, "sp", api.MaxPairs},
		{"knn=bits:0xff", api.InvalidVector, "bits", 16},
		{"knn=bits:1,2", api.InvalidVector, "bits", none},
		{"knn=v:0xffff", api.InvalidVector, "v", none},
		{"knn=sp:1,2", api.InvalidVector, "sp", none},
		{"knn=title:1", api.FieldNotVector, "title", none},
		{"knn=stored_v:1,2", api.FieldNotVector, "stored_v", none},
		{"knn=nope:1", api.UnknownField, "nope", none},
		{"knn=v:1,2,3,4&knn_k=10001", api.InvalidParameter, "knn_k", 10_000},
		{"q=warp&knn=v:1,2,3,4&pool=10001", api.InvalidParameter, "pool", 10_000},
		{"knn=v:1,2,3,4&sort=n", api.InvalidParameter, "sort", none},

		{"sort=nope", api.UnknownField, "nope", none},
		{"sort=title", api.FieldNotSortable, "title", none},
		{"sort=v", api.FieldNotSortable, "v", none},
		{"sort=bits:desc", api.FieldNotSortable, "bits", none},
		{"sort=sp", api.FieldNotSortable, "sp", none},
		{"sort=blob", api.FieldNotSortable, "blob", none},
		{"sort=plain", api.FieldNotSortable, "plain", none},
		{"sort=num:tag", api.FieldNotSortable, "tag", none},
		{"sort=n:up", api.UnknownField, "n:up", none},
		{"sort=n,n,n,n,n,n,n,n,n", api.InvalidParameter, "sort", api.MaxSortKeys},

		{"facets=nope", api.UnknownField, "nope", none},
		{"facets=title", api.FieldNotFast, "title", none},
		{"facets=v", api.InvalidField, "v", none},
		{"aggs=a:stats(tag)", api.InvalidField, "tag", none},
		{"aggs=a:terms(title)", api.FieldNotFast, "title", none},
		{"aggs=a:nope(n)", api.InvalidAggregation, "", none},
		{"aggs=a:histogram(n,0)", api.InvalidAggregation, "n", none},
		{"aggs=a:histogram(n,-1)", api.InvalidAggregation, "n", none},
		{"aggs=a:histogram(n,0.00001)", api.AggregationLimit, "n", 100_000},
		{"aggs=a:percentiles(n,101)", api.InvalidAggregation, "n", none},
		{"aggs=a:percentiles(n,-1)", api.InvalidAggregation, "n", none},
		{"aggs=a:stats(n),a:stats(f)", api.InvalidAggregation, "", none},

		{"filter=nope:1", api.UnknownField, "nope", none},
		{"filter=n:abc", api.InvalidBound, "n", none},
		{"filter=n:[a+TO+b]", api.InvalidBound, "n", none},
		{"filter=plain:>1", api.FieldNotFast, "plain", none},
		{"filter=(", api.InvalidQuery, "filter", none},
		{"highlight=nope", api.UnknownField, "nope", none},
		{"highlight=n", api.InvalidField, "n", none},
		{"after=zzz", api.InvalidCursor, "after", none},
		{"limit=10000&offset=1", api.InvalidParameter, "offset", 10_000},
		{"explain=true&limit=101", api.InvalidParameter, "limit", bound.MaxExplained},
	} {
		for _, params := range []string{"index=m&" + tt.params} {
			p := m.do("GET", "/search?"+params, "", "").problem(400, tt.code)
			if tt.field != "" && p["field"] != tt.field {
				t.Errorf("%.200s: field %v, want %s: %v", params, p["field"], tt.field, p["detail"])
			}
			if tt.limit != none && p["limit"] != tt.limit {
				t.Errorf("%.200s: limit %v, want %v: %v", params, p["limit"], tt.limit, p["detail"])
			}
			if detail := p["detail"].(string); tt.field != "" && !strings.Contains(detail, tt.field) {
				t.Errorf("%.200s: %q does not name %s", params, detail, tt.field)
			}
		}
	}
	for body, want := range map[string]api.Code{
		`{"index":"m","aggs":{"a":{"kind":"terms"}}}`:                                                     api.InvalidAggregation,
		`{"index":"m","aggs":{"a":{"kind":"terms","field":"tag","filter":"("}}}`:                          api.InvalidQuery,
		`{"index":"m","aggs":{"a":{"kind":"terms","field":"tag","filter":{"term":{"field":"n"}}}}}`:       api.InvalidParameter,
		`{"index":"m","aggs":{"a":{"kind":"terms","field":"tag","nope":1}}}`:                              api.InvalidAggregation,
		`{"index":"m","filter":{"range":{"field":"at","gte":"yesterday"}}}`:                               api.InvalidBound,
		`{"index":"m","filter":{"term":{"field":"title","value":"warp"}}}`:                                api.FieldNotFast,
		`{"index":"m","knn":{"field":"v","vector":[1,2,3,4],"combiner":"max","k":20000}}`:                 api.InvalidParameter,
		`{"index":"m","aggs":{"a":{"kind":"filter","filter":{"exists":{"field":"gone"}}}}}`:               api.UnknownField,
		`{"index":"m","filter":{"terms":{"field":"n","values":[` + strings.Repeat("1,", 65_536) + `1]}}}`: api.QueryLimit,
	} {
		m.do("POST", "/search", "application/json", body).problem(400, want)
	}
	p := m.do("PUT", "/indexes/other", "text/plain", "index other { field v: dense_vector<2> [indexed<metric: manhattan>] }").problem(400, api.InvalidSchema)
	if !strings.Contains(p["detail"].(string), "manhattan") && !strings.Contains(p["detail"].(string), "metric") {
		t.Errorf("an unknown metric: %v", p["detail"])
	}
	// The place of a fault is that in its own text.
	if p := m.do("GET", "/search?index=m&q=warp&filter="+url.QueryEscape("tag:a AND nope:1"), "", "").problem(400, api.UnknownField); p["position"] != 10.0 {
		t.Errorf("position %v of a part of a filter", p["position"])
	}
}

func TestKNNRecall(t *testing.T) {
	m := newModel(t, 11)
	m.every = 0
	m.fill(60)
	got := m.do("GET", "/knn_recall?index=m&field=v&k=5&samples=7", "", "").want(200).json()
	if got["recall"] != 1.0 || got["k"] != 5.0 || got["samples"] != 7.0 || got["approximate"] != false {
		t.Errorf("recall of an exact search: %v", got)
	}
	if got := m.do("GET", "/knn_recall?index=m&field=bits", "", "").want(200).json(); got["k"] != 10.0 || got["recall"] != 1.0 {
		t.Errorf("recall with defaults: %v", got)
	}
	for params, want := range map[string]api.Code{
		"":                        api.MissingParameter,
		"field=nope":              api.UnknownField,
		"field=title":             api.FieldNotVector,
		"field=sp":                api.FieldNotVector,
		"field=v&k=0":             api.InvalidParameter,
		"field=v&k=1001":          api.InvalidParameter,
		"field=v&samples=1001":    api.InvalidParameter,
		"field=v&samples=x":       api.InvalidParameter,
		"field=v&ef=20001":        api.InvalidParameter,
		"field=v&timeout_ms=0":    api.InvalidParameter,
		"field=v&nope=1":          api.UnknownParameter,
		"field=v&field=v":         api.RepeatedParameter,
		"field=v&k=5&index=a%2Fb": api.InvalidIndexName,
	} {
		target := "/knn_recall?index=m&" + params
		if strings.Contains(params, "index=") {
			target = "/knn_recall?" + params
		}
		m.do("GET", target, "", "").problem(400, want)
	}
	m.do("GET", "/knn_recall?index=nope&field=v", "", "").problem(404, api.IndexNotFound)
}

// TestEveryPhaseEndsWithItsTime runs a search with everything in it against a clock that runs out after so many looks at it: it is
// either answered in full, or refused, or says that it is not whole.
func TestEveryPhaseEndsWithItsTime(t *testing.T) {
	m := newModel(t, 12)
	m.fill(150)
	l, err := m.node.catalog.use(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	run := func(looks int, partial string) (*api.SearchReply, *api.Problem) {
		t.Helper()
		req, prob := api.ParseSearchBody([]byte(`{"q":"warp weft","knn":{"field":"v","vector":[1,2,0,0]},"filter":["tag:t1 OR n:>-8",{"exists":{"field":"title"}}],
			"facets":["tag","n"],"aggs":{"x":{"kind":"histogram","field":"f","interval":1,"aggs":{"y":{"kind":"stats","field":"n"}}}},
			"explain":true,"profile":true,"allow_partial":`+partial+`}`), "m", m.node.searchLimits())
		if prob != nil {
			t.Fatal(prob)
		}
		x, err := m.node.newExecution(req, &front.Stopwatch{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.release()
		snap := l.eng.Snapshot()
		defer snap.Release()
		return x.run(&countdown{context.Background(), looks, context.DeadlineExceeded}, l.index, snap)
	}
	var refused, partial int
	for looks := range 400 {
		r, prob := run(looks, "false")
		whole := prob == nil
		switch {
		case prob != nil && prob.Code == api.Timeout:
			refused++
		case prob != nil:
			t.Fatalf("after %d looks: %+v", looks, prob)
		case !r.Coverage.Complete || r.Facets == nil || r.Aggs == nil:
			t.Fatalf("after %d looks an answer that is not whole was given", looks)
		}
		r, prob = run(looks, "true")
		if prob != nil {
			t.Fatalf("after %d looks with allow_partial: %+v", looks, prob)
		}
		if !r.Coverage.Complete {
			partial++
			if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "timeout_ms") }) || r.Coverage.DocsCovered != 0 {
				t.Fatalf("after %d looks: notes %q, covered %d", looks, r.Notes, r.Coverage.DocsCovered)
			}
		} else if whole && looks > 50 {
			break // from here on the clock does not run out
		} else if r.Facets == nil || r.Aggs == nil {
			t.Fatalf("after %d looks an answer without its facets says that it is whole", looks)
		}
	}
	if refused < 3 || partial < 3 {
		t.Errorf("%d were refused and %d partial: the clock did not run out in the phases", refused, partial)
	}
}
