package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
)

// TestAggregationsStayWithinTheirMemory: one search is refused when what it gathers grows too large.
func TestAggregationsStayWithinTheirMemory(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{AggBytes: 32 << 10, QueueWait: 20 * time.Millisecond}})
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"tag\":\"value number %d\",\"n\":%d}\n", i, i, i)
	}
	s.do("POST", "/index/bulk", "application/x-ndjson", b.String()).want(200)
	if p := s.do("GET", "/search?facets=tag&limit=0", "", "").problem(400, api.AggregationLimit); p["limit"] == nil || p["field"] == nil {
		t.Errorf("a refusal without its limit or field: %v", p)
	}
	s.do("GET", "/search?aggs=a:stats(n)&limit=0", "", "").want(200)
	if used := s.node.aggregations.Used(); used != 0 {
		t.Errorf("%d bytes are held by searches that are over", used)
	}
}

// manyNumbers is a server whose index has distinct numbers in m, and few in n, of 300 documents.
func manyNumbers(t *testing.T, each int, l Limits) *server {
	t.Helper()
	s := newServer(t, Config{Limits: l})
	s.every = 20
	s.do("PUT", "/indexes/default", "text/plain", "index default { field m: u64 [stored<multi>, fast] field n: u64 [fast] field k: text<raw> [fast] }").want(201)
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, `{"id":"%d","n":%d,"k":"k%d","m":[%d`, i, i%7, i%5, i*each)
		for j := 1; j < each; j++ {
			fmt.Fprintf(&b, ",%d", i*each+j)
		}
		b.WriteString("]}\n")
	}
	s.do("POST", "/index/bulk", "application/x-ndjson", b.String()).want(200)
	return s
}

// TestOnlyLargeAggregationsWaitForMemory: those of few values have room in the place of their search; the others share a room, beyond
// which they go one at a time, and are refused when that takes too long.
func TestOnlyLargeAggregationsWaitForMemory(t *testing.T) {
	s := manyNumbers(t, 400, Limits{QueueWait: 20 * time.Millisecond})
	const large = "/search?facets=m&limit=0&q=nothing%20OR%20*"
	s.do("GET", large, "", "").want(200)
	room, err := s.node.aggregations.TryEnter(s.node.aggregations.Limit())
	if err != nil {
		t.Fatal(err)
	}
	s.do("GET", large, "", "").want(200)
	beyond, err := s.node.aggBeyond.TryEnter(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, small := range []string{"aggs=a:stats(m),b:stats(n)", "facets=n,k", "aggs=a:terms(k),b:range(m,..7,7..),c:histogram(m,1000),d:percentiles(n)", "aggs=f:filter(k:k1),c:cardinality(k)"} {
		s.do("GET", "/search?limit=0&"+small, "", "").want(200)
	}
	p := s.do("GET", large, "", "").problem(429, api.RequestMemoryFull)
	if p["retry_after_ms"] == nil || p["limit"] != float64(s.node.aggregations.Limit()) || !strings.Contains(p["detail"].(string), "aggregations") {
		t.Errorf("refused as %v", p)
	}
	room.Release()
	s.do("GET", large, "", "").want(200)
	beyond.Release()
	if used := s.node.aggregations.Used() + s.node.aggBeyond.Used() + s.node.memory.Used(); used != 0 {
		t.Errorf("%d bytes are held by searches that are over", used)
	}
}

// TestWaitingForAggregationMemoryIsQueueTime: it is not counted as the time that the aggregations took.
func TestWaitingForAggregationMemoryIsQueueTime(t *testing.T) {
	s := manyNumbers(t, 400, Limits{})
	room, err := s.node.aggregations.TryEnter(s.node.aggregations.Limit())
	if err != nil {
		t.Fatal(err)
	}
	defer room.Release()
	beyond, err := s.node.aggBeyond.TryEnter(1)
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan *answer, 1)
	go func() { answers <- s.do("GET", "/search?facets=m&limit=0", "", "") }()
	until(t, "the search waits", func() bool { return s.node.aggBeyond.Waiting() == 1 })
	const wait = 100 * time.Millisecond // from now, so that the search waits longer
	time.AfterFunc(wait, beyond.Release)
	m := (<-answers).want(200).json()
	times := m["timings"].(map[string]any)
	if q := times["queue_ms"].(float64); q < float64(wait.Milliseconds()-1) {
		t.Errorf("after a wait of %v and more: %v", wait, times)
	}
	sum := 0.0
	for stage, ms := range times {
		if stage != "slowest_shard" {
			sum += ms.(float64)
		}
	}
	if took := m["took_ms"].(float64); sum-took > 0.01 || took-sum > 0.01 {
		t.Errorf("took %v, the stages %v", took, sum)
	}
}

// TestLongAnswersOfAggregationsEndEarly: an answer that cannot fit, or whose time is over, is not worked out first, and the problem names
// the parameter that asked for it.
func TestLongAnswersOfAggregationsEndEarly(t *testing.T) {
	s := manyNumbers(t, 400, Limits{ReplyBytes: 1 << 20})
	for target, field := range map[string]string{
		"facets=m":                               "facets",
		"aggs=a:terms(m,0)":                      "aggs",
		"facets=n&aggs=a:terms(m,0)":             "aggs",
		"facets=m&aggs=a:terms(n)":               "facets",
		"aggs=a:terms(m,30000),b:terms(m,30000)": "aggs",
	} {
		if p := s.do("GET", "/search?limit=0&"+target, "", "").problem(400, api.ReplyTooLarge); p["field"] != field || p["limit"] != float64(1<<20) {
			t.Errorf("%s: %v", target, p)
		}
	}
	s.do("GET", "/search?limit=0&facets=n&aggs=a:terms(m,10000)", "", "").want(200)
}

// TestLargeSetsAreCharged: sets of documents that are large count against the memory of requests.
func TestLargeSetsAreCharged(t *testing.T) {
	s := newServer(t, Config{})
	x := &execution{view: view{node: s.node}}
	if err := x.charge(chargeFrom - 1); err != nil || s.node.memory.Used() != 0 {
		t.Errorf("a small set: %v, %d charged", err, s.node.memory.Used())
	}
	if err := x.charge(5 << 20); err != nil || s.node.memory.Used() != 5<<20 {
		t.Errorf("a large set: %v, %d charged", err, s.node.memory.Used())
	}
	if err := x.charge(s.node.memory.Limit()); err == nil {
		t.Error("more than there is was charged")
	} else if p := s.node.problem(context.Background(), err); p.Code != api.RequestMemoryFull {
		t.Errorf("refused as %s", p.Code)
	}
	x.release()
	if used := s.node.memory.Used(); used != 0 {
		t.Errorf("%d bytes are held after the search", used)
	}
}

// TestSearchesOfAllKindsAtOnce runs them beside writes, flushes and each other.
func TestSearchesOfAllKindsAtOnce(t *testing.T) {
	m := newModel(t, 14)
	m.fill(90)
	bodies := []string{
		`{"q":"warp weft","filter":["tag:t1 OR n:>0","_exists_:title"],"sort":["tag:desc","score"],"facets":["tag","n"]}`,
		`{"q":"loom reed","knn":{"field":"v","vector":[1,2,-1,0]},"filter":"tag:t1 OR n:>0","explain":true,"highlight":["*"],"fusion":"weighted"}`,
		`{"knn":{"field":"bits","bits":"AP8=","k":30},"filter":"_exists_:title","facets":["tag"]}`,
		`{"knn":{"field":"sp","indices":[0,4],"values":[1,2]},"profile":true}`,
		`{"filter":{"exists":{"field":"f"}},"sort":"f:desc","aggs":"a:stats(f),b:percentiles(n,10,50),c:date_histogram(at,1w),d:cardinality(tag)"}`,
	}
	var wg sync.WaitGroup
	for _, body := range bodies {
		wg.Go(func() {
			for range 25 {
				req := httptest.NewRequest(http.MethodPost, "/search?index=m", strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				rec := httptest.NewRecorder()
				m.node.Handler().ServeHTTP(rec, req)
				if rec.Code != 200 {
					t.Errorf("%s: %d %s", body, rec.Code, rec.Body)
					return
				}
			}
		})
	}
	for i := range 10 {
		m.write(fmt.Sprintf("d%03d", i), fmt.Sprintf("new%d", i))
		m.remove(fmt.Sprintf("d%03d", 40+i))
		if i%4 == 3 {
			m.flush()
		}
	}
	wg.Wait()
}

// TestPagesOfABroadPrefix pages through a prefix with more words than score, while documents bring more of them.
func TestPagesOfABroadPrefix(t *testing.T) {
	s := newServer(t, Config{})
	s.every = 50
	load := func(from, to int) {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "{\"id\":\"%04d\",\"t\":\"w%d w%d w%d\"}\n", i, i, i%700, i%61)
		}
		s.do("POST", "/index/bulk", "application/x-ndjson", b.String()).want(200)
	}
	load(0, 1500)
	scores := func(target string) (ids []string, texts []string, next string) {
		var m struct {
			Hits []struct {
				ID    string
				Score json.Number
			}
			Next string
		}
		if err := json.Unmarshal(s.do("GET", target, "", "").want(200).body, &m); err != nil {
			t.Fatal(err)
		}
		for _, h := range m.Hits {
			ids, texts = append(ids, h.ID), append(texts, h.Score.String())
		}
		return ids, texts, m.Next
	}
	wantIDs, wantScores, _ := scores("/search?q=w*&limit=1500&fields=")
	var ids, texts []string
	target := "/search?q=w*&limit=200&fields="
	next := ""
	for page := 0; ; page++ {
		after := ""
		if next != "" {
			after = "&after=" + next
		}
		var i, x []string
		i, x, next = scores(target + after)
		if len(next) > 40<<10 {
			t.Fatalf("a cursor of %d characters", len(next))
		}
		for k := range i {
			if i[k] < "1500" {
				ids, texts = append(ids, i[k]), append(texts, x[k])
			}
		}
		if next == "" {
			break
		}
		load(1500+40*page, 1540+40*page)
	}
	if !slices.Equal(ids, wantIDs) || !slices.Equal(texts, wantScores) {
		t.Errorf("%d hits in pages, %d at first; or in another order, or with other scores", len(ids), len(wantIDs))
	}
}

// TestFacetsOfFieldsWithLongNames: the name of a facet is that of its field, and as long as that may be.
func TestFacetsOfFieldsWithLongNames(t *testing.T) {
	s := newServer(t, Config{})
	name := strings.Repeat("long_", 50) + "name"
	s.do("PUT", "/indexes/default", "text/plain", "index default { field "+name+": u64 [fast] }").want(201)
	s.put("default", `{"id":"1","`+name+`":7}`)
	got := s.do("GET", "/search?limit=0&facets="+name, "", "").want(200).json()["facets"].(map[string]any)
	if len(got[name].([]any)) != 1 {
		t.Errorf("facets are %v", got)
	}
	s.do("GET", "/search?limit=0&aggs="+name+":terms("+name+")", "", "").problem(400, api.AggregationLimit)
}

// TestHybridSaysThatItHasNoUseForK: the neighbours that a search by vectors alone finds are not what a hybrid search looks for.
func TestHybridSaysThatItHasNoUseForK(t *testing.T) {
	m := newModel(t, 15)
	m.fill(5)
	for body, want := range map[string]bool{
		`{"q":"warp","knn":{"field":"v","vector":[1,2,-1,0],"k":3}}`:         true,
		`{"q":"warp","knn":{"field":"v","vector":[1,2,-1,0]},"knn_k":3}`:     true,
		`{"q":"warp","knn":{"field":"v","vector":[1,2,-1,0]}}`:               false,
		`{"knn":{"field":"v","vector":[1,2,-1,0],"k":3}}`:                    false,
		`{"q":"*","knn":{"field":"v","vector":[1,2,-1,0],"k":3},"limit":10}`: false,
	} {
		r := m.do("POST", "/search?index=m", "application/json", body).want(200).json()
		if notes, got := r["notes"].([]any); got != want || got && notes[0] != "knn_k (k of knn) has no effect beside q: each of the two rankings is pool deep" {
			t.Errorf("%s: notes are %v", body, r["notes"])
		}
	}
}

// TestParametersOfVectorsWithoutKNNAreNoted: they mean nothing then, which may be a slip of whoever wrote them.
func TestParametersOfVectorsWithoutKNNAreNoted(t *testing.T) {
	m := newModel(t, 15)
	m.fill(5)
	for params, want := range map[string]string{
		"q=warp&knn_k=3": "knn_k has no effect without knn",
		"q=warp&weights=1,1&fusion=rrf&pool=9&knn_exact=true": "fusion, knn_exact, pool, weights have no effect without knn",
		"pool=9&knn=v:1,2,-1,0":                               "",
		"q=warp":                                              "",
	} {
		r := m.do("GET", "/search?index=m&"+params, "", "").want(200).json()
		notes, _ := r["notes"].([]any)
		if got := len(notes) == 1 && notes[0] == want; got != (want != "") || want == "" && len(notes) > 0 {
			t.Errorf("%s: notes are %v", params, r["notes"])
		}
	}
	if r := m.do("POST", "/search?index=m", "application/json", `{"q":"warp","pool":9}`).want(200).json(); len(r["notes"].([]any)) != 1 {
		t.Errorf("notes are %v", r["notes"])
	}
}

// TestPlacesOfFiltersAreTold: a place within a filter is not taken for one within the query.
func TestPlacesOfFiltersAreTold(t *testing.T) {
	m := newModel(t, 15)
	m.fill(5)
	for params, want := range map[string]string{
		"q=warp&filter=nowhere:x": `filter: field "nowhere": the index has no such field`,
		"q=nowhere:x":             `field "nowhere": the index has no such field`,
	} {
		p := m.do("GET", "/search?index=m&"+params, "", "").want(400).json()
		if p["detail"] != want || p["position"] != 0.0 {
			t.Errorf("%s: got %v", params, p)
		}
	}
}
