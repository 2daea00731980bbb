package obs

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("scrape: status %d", rec.Code)
	}
	return rec.Body.String()
}

func TestLoggerFormats(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, LogJSON, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Info("seen", "n", 3)
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("one JSON line expected, got %q: %v", b.String(), err)
	}
	if line["msg"] != "seen" || line["n"] != 3.0 {
		t.Fatalf("line %v", line)
	}
	if _, err := NewLogger(&b, "xml", 0); err == nil {
		t.Fatal("unknown format accepted")
	}
	for s, want := range map[string]slog.Level{"": slog.LevelInfo, "DEBUG": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError} {
		if got, err := ParseLevel(s); err != nil || got != want {
			t.Errorf("level %q: %v, %v", s, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("unknown level accepted")
	}
}

func TestRequestID(t *testing.T) {
	if got := AcceptRequestID("abc-1.2:x_Y"); got != "abc-1.2:x_Y" {
		t.Errorf("a good id was replaced by %q", got)
	}
	for _, bad := range []string{"", "a b", "a\nb", "ä", strings.Repeat("a", 65)} {
		if got := AcceptRequestID(bad); got == bad || len(got) != 32 {
			t.Errorf("%q: got %q", bad, got)
		}
	}
	ctx := WithRequestID(context.Background(), "x")
	if RequestID(ctx) != "x" || RequestID(context.Background()) != "" {
		t.Error("the id does not travel with its context")
	}
}

func TestRouteCountsConcurrently(t *testing.T) {
	m := NewMetrics("v1")
	r := m.Route("search")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				r.Begin().End(200)
				r.Begin().End(429)
			}
		})
	}
	r.Begin().End(99999)
	wg.Wait()
	out := scrape(t, m)
	for _, want := range []string{
		`weft_http_requests_total{code="200",route="search"} 800`,
		`weft_http_requests_total{code="429",route="search"} 800`,
		`weft_http_requests_total{code="500",route="search"} 1`,
		`weft_http_requests_in_flight{route="search"} 0`,
		`weft_build_info{version="v1"} 1`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %s", want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { r.Begin().End(200) }); n != 0 {
		t.Errorf("counting a request allocates %v times", n)
	}
}

func TestIndexSamples(t *testing.T) {
	m := NewMetrics("v1")
	m.WatchIndexes(func(emit func(IndexSample)) {
		emit(IndexSample{Index: "a", Docs: 3, Merges: 2})
		emit(IndexSample{Index: "b", ReadOnly: true})
	})
	out := scrape(t, m)
	for _, want := range []string{
		`weft_index_docs{index="a"} 3`, `weft_merges_total{index="a"} 2`, `weft_index_read_only{index="b"} 1`, `weft_index_read_only{index="a"} 0`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %s", want)
		}
	}
}

func TestSlowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, err := NewLogger(&b, LogText, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		m := NewMetrics("v1")
		s := NewSlowLog(log, 100*time.Millisecond, m.SlowQueries)
		ctx := WithRequestID(context.Background(), "r1")
		s.Record(ctx, 99*time.Millisecond)
		if b.Len() != 0 {
			t.Fatalf("a fast search was logged: %s", b.String())
		}
		for range 15 {
			s.Record(ctx, time.Second, slog.String("index", "books"))
		}
		if n := strings.Count(b.String(), "slow search"); n != linesPerSecond {
			t.Fatalf("%d lines in one second", n)
		}
		// The bubble's clock moves when everything in it waits.
		<-time.After(time.Second)
		b.Reset()
		s.Record(ctx, time.Second)
		if got := b.String(); !strings.Contains(got, "dropped_lines=5") || !strings.Contains(got, "request_id=r1") {
			t.Fatalf("line %q", got)
		}
		NewSlowLog(log, 0, m.SlowQueries).Record(ctx, time.Hour)
		if strings.Count(b.String(), "\n") != 1 {
			t.Fatal("a log that is off wrote a line")
		}
	})
}
