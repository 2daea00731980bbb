package obs

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSummaMetrics(t *testing.T) {
	m := NewMetrics("v")
	s := m.Summa([]string{"Search"})
	s.WatchMemory(func(emit func(IndexSample)) { emit(IndexSample{Index: "a", MemtableBytes: 7}) })
	s.Searched("a", true, time.Millisecond)
	s.Searched("unknown", false, time.Millisecond)
	s.Rejected()
	s.Begin("Search").End("not_found")
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`summa_search_requests_total{index="a",status="ok"} 1`, `summa_search_requests_total{index="unknown",status="error"} 1`,
		`summa_search_duration_seconds{index="a",status="ok",quantile="0.99"} `, `summa_search_admission_rejected_total{index="unknown"} 1`,
		`summa_index_memory_bytes{index="a",kind="indexing_buffer"} 7`, `summa_memory_allocator_bytes{kind="allocated"} `, `summa_memory_allocator_bytes{kind="retained"} `, `weft_summa_calls_total{call="Search",code="not_found"} 1`, `weft_summa_calls_in_flight{call="Search"} 0`,
	} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// What was counted of an index that is gone is forgotten: else every index that ever was would stay.
func TestSummaMetricsForgetIndexesThatAreGone(t *testing.T) {
	m := NewMetrics("v")
	s := m.Summa(nil)
	there := []string{"a", "b"}
	s.WatchMemory(func(emit func(IndexSample)) {
		for _, index := range there {
			emit(IndexSample{Index: index})
		}
	})
	for _, index := range []string{"a", "b", UnknownIndex} {
		s.Searched(index, true, time.Millisecond)
	}
	page := func() string {
		rec := httptest.NewRecorder()
		m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		return rec.Body.String()
	}
	page()
	there = there[:1]
	page()
	got := page()
	for index, want := range map[string]bool{"a": true, "b": false, UnknownIndex: true} {
		for _, name := range []string{"summa_search_requests_total", "summa_search_duration_seconds_count"} {
			if strings.Contains(got, name+`{index="`+index+`"`) != want {
				t.Errorf("%s of %s: there %t", name, index, !want)
			}
		}
	}
}

// Where nobody reads the metrics, indexes that come and go do not add up.
func TestSummaMetricsOfIndexesAreBoundedWithoutAScrape(t *testing.T) {
	s := NewMetrics("v").Summa(nil)
	now := ""
	s.WatchMemory(func(emit func(IndexSample)) { emit(IndexSample{Index: now}) })
	for i := range 10 * leastSweep {
		now = fmt.Sprint("i", i)
		s.Searched(now, true, time.Millisecond)
		if n := len(s.indexes); n > leastSweep+1 {
			t.Fatalf("%d indexes are counted", n)
		}
	}
}

// What is counted of an index or a node that is gone is forgotten, also where a call counts once more.
func TestSummaBrokerMetricsForget(t *testing.T) {
	m := NewMetrics("v")
	b := m.SummaBroker()
	count := func(index string) {
		b.Searched(index, "ok", time.Millisecond)
		b.Searched(index, "not_found", time.Millisecond)
		b.Rejected(index, "global")
		b.Ambiguous(index)
		b.WriteRejected(index, "not_found")
		b.Flushed(index)
		b.Partial(index, "search", "1")
		b.Partial(index, "search", "2")
	}
	for _, index := range []string{"a", "b", UnknownIndex} {
		count(index)
	}
	lines := func(label string) (n int) {
		rec := httptest.NewRecorder()
		m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		for line := range strings.Lines(rec.Body.String()) {
			if strings.Contains(line, label) {
				n++
			}
		}
		return n
	}
	all := lines(`index="b"`)
	if all == 0 {
		t.Fatal("nothing is counted")
	}
	b.ForgetIndexes(func(index string) bool { return index == "a" })
	for index, want := range map[string]int{"a": all, "b": 0, UnknownIndex: all} {
		if got := lines(`index="` + index + `"`); got != want {
			t.Errorf("%s: %d lines, want %d", index, got, want)
		}
	}
	count("b")
	if got := lines(`index="b"`); got != all {
		t.Errorf("an index that came back has %d lines", got)
	}
	n := b.Backend("n")
	n.Called("search", "ok", time.Millisecond)
	n.Called("search", "unavailable", time.Millisecond)
	n.Stale()
	n.Polled("ok")
	if lines(`backend="n"`) == 0 {
		t.Error("nothing is counted of a node")
	}
	n.Forget()
	n.Called("search", "ok", time.Millisecond)
	n.Stale()
	n.Polled("ok")
	if got := lines(`backend="n"`); got != 0 {
		t.Errorf("%d lines of a node that is gone", got)
	}
}

func TestProcessMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(path, []byte("Name:\tweft\nVmLck:\t       0 kB\nRssAnon:\t    1234 kB\nRssFile:\t nonsense kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := processMemory(path)
	if len(got) != 2 || got["rss_anon"] != 1234*1024 || got["locked"] != 0 {
		t.Errorf("%v", got)
	}
	if got := processMemory(path + "none"); got != nil {
		t.Errorf("%v", got)
	}
}

// The kinds of the allocator's memory are of one state: each is part of those that it is of.
func TestAllocatorMemory(t *testing.T) {
	at := allocatorMemory()
	if at["allocated"] <= 0 || at["metadata"] <= 0 || at["allocated"] > at["active"] || at["active"] > at["mapped"] || at["mapped"] > at["resident"] || at["retained"] < 0 {
		t.Errorf("%v", at)
	}
}
