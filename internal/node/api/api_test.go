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
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/query"
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
	for micros, want := range map[int64]string{0: "0", 1: "0.001", 10: "0.01", 100: "0.1", 999: "0.999", 1000: "1", 1500: "1.5", 6_300: "6.3", 12_345_678: "12345.678"} {
		if got := string(AppendMillis(nil, micros)); got != want {
			t.Errorf("%d µs: %s, want %s", micros, got, want)
		}
	}
}

func TestParseSearch(t *testing.T) {
	base := SearchRequest{Index: "default", Limit: 10}
	with := func(f func(*SearchRequest)) SearchRequest { r := base; f(&r); return r }
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := url.ParseQuery(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			got, prob := ParseSearch(v, testLimits)
			if prob != nil {
				t.Fatal(prob)
			}
			if d := cmp.Diff(tt.want, *got); d != "" {
				t.Error("URL:", d)
			}
			got, prob = ParseSearchBody([]byte(tt.body), "", testLimits)
			if prob != nil {
				t.Fatal(prob)
			}
			if d := cmp.Diff(tt.want, *got); d != "" {
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
		{"index=" + strings.Repeat("a", 65), InvalidIndexName, "index"},
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
		{"order=asc", UnsupportedParameter, "order"},
		{"sort=price", UnsupportedParameter, "sort"},
		{"facets=a", UnsupportedParameter, "facets"},
		{"aggs=x", UnsupportedParameter, "aggs"},
		{"knn=v:1,2", UnsupportedParameter, "knn"},
		{"filter=a", UnsupportedParameter, "filter"},
		{"after=x", UnsupportedParameter, "after"},
		{"highlight=true", UnsupportedParameter, "highlight"},
		{"explain=true", UnsupportedParameter, "explain"},
	}
	for _, tt := range urls {
		v, err := url.ParseQuery(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		_, prob := ParseSearch(v, testLimits)
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
		{`{"aggs":{}}`, UnsupportedParameter, "aggs", 0, 7},
		{`{"index":"other"}`, RepeatedParameter, "index", 0, 0},
	}
	for _, tt := range bodies {
		_, prob := ParseSearchBody([]byte(tt.body), "named", testLimits)
		if prob == nil || prob.Code != tt.code || prob.Field != tt.field || prob.Line != tt.line || prob.Position != tt.at {
			t.Errorf("%s: got %+v, want %s on %q at line %d, position %d", tt.body, prob, tt.code, tt.field, tt.line, tt.at)
		}
	}
}

func TestReplyIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := SearchReply{Total: rapid.Uint64().Draw(t, "total"), Relation: "eq", Notes: rapid.SliceOf(rapid.String()).Draw(t, "notes")}
		ids := rapid.SliceOfN(rapid.String(), 0, 4).Draw(t, "ids")
		for i, id := range ids {
			if i > 0 {
				r.Hits = append(r.Hits, ',')
			}
			r.Hits = AppendHit(r.Hits, id, rapid.Float32Range(-10, 10).Draw(t, "score"), []byte(`{"a":1}`))
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
	for _, s := range []string{`{}`, `{"q":"a","limit":3}`, `{"fields":["a",["b"]]}`, `{"track_total":1e9}`, "{\"q\":\"\xff\"}", `{"q":"a"} 1`} {
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
