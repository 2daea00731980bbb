package obs

import (
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
