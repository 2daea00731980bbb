package hostiletest

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// soon is within what callers leave.
const soon = 50 * time.Millisecond

// goroutines are those of each process.
func (f *fleet) goroutines(t *testing.T) []float64 {
	t.Helper()
	var out []float64
	for _, s := range append([]*site{f.broker}, f.nodes...) {
		out = append(out, s.metric("go_goroutines"))
	}
	return out
}

// leave sends a request, waits for a while at most for a byte of the answer, and goes.
func leave(t *testing.T, s *site, text string, within time.Duration, polite bool) {
	t.Helper()
	c := connect(t, s)
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		t.Error(err)
	}
	_, err := io.WriteString(c, text)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	if !polite {
		c.leave()
	} else if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// leavers makes requests by callers who are gone before long, several at once.
func (f *fleet) leavers(t *testing.T, n int, requests []string) {
	t.Helper()
	rng := testRand(t)
	type one struct {
		text   string
		within time.Duration
		polite bool
	}
	work := make(chan one)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for o := range work {
				leave(t, f.broker, o.text, o.within, o.polite)
			}
		})
	}
	for i := range n {
		text := requests[i%len(requests)]
		if rng.IntN(8) == 0 {
			text = text[:rng.IntN(len(text))]
		}
		work <- one{text, 1 + time.Duration(rng.Int64N(int64(soon))), rng.IntN(2) == 0}
	}
	close(work)
	wg.Wait()
}

// callersThatLeave send searches and loads and leave. Whatever was held for them comes back, here and at the shards.
func callersThatLeave(t *testing.T, f *fleet) {
	n := 150
	if testing.Short() {
		n = 60
	}
	if full {
		n = 20_000
	}
	var requests []string
	for _, params := range searches {
		p := url.Values{"index": {"docs"}}
		for name, v := range params {
			p[name] = v
		}
		requests = append(requests, request("GET", target("/search", p), "", ""))
	}
	load := docs(1, count) // the same again: what is there does not change
	requests = append(requests,
		request("POST", "/index/bulk?index=docs", ndjson, load),
		request("POST", "/index/bulk?index=docs", ndjson, load[:len(load)/8]),
		request("POST", "/index?index=docs", asJSON, load[:strings.IndexByte(load, '\n')]),
		request("POST", "/search?index=docs", asJSON, `{"q":"w* loom","dfs":true,"limit":1000}`),
		request("GET", "/_plan?shards=5", "", ""),
		request("GET", "/knn_recall?index=docs&field=dense&samples=200", "", ""),
		request("GET", "/doc?index=docs&id=d00007", "", ""),
		request("GET", "/_topology", "", ""),
	)
	// What is kept for good, as connections are, is there before.
	f.leavers(t, len(requests), requests)
	f.idle(t)
	before := f.goroutines(t)
	f.leavers(t, n, requests)
	took := f.idle(t)
	t.Logf("%d callers left, and all was given back %v after the last", n, took)
	f.calm(t, before)
	f.whole(t)
}

// calm waits until there are no more goroutines than before, but for a few connections.
func (f *fleet) calm(t *testing.T, before []float64) {
	t.Helper()
	began := time.Now()
	var now []float64
	eventually(t, "goroutines end", func() bool {
		now = f.goroutines(t)
		for i := range now {
			if now[i] > before[i]+12 {
				return false
			}
		}
		return true
	})
	t.Logf("goroutines %v, before %v, after %v", now, before, time.Since(began))
}

// whole looks whether all documents are found, by a search of the whole.
func (f *fleet) whole(t *testing.T) {
	t.Helper()
	o := f.broker.must(200, "GET", "/search?index=docs&q=*&limit=0", "", "").object(t)
	if number(t, o, "total") != count || o["coverage"].(map[string]any)["complete"] != true {
		t.Errorf("%v", o)
	}
}

// callersOfJobsThatLeave give orders for jobs and leave. The jobs go on, one at a time, and nothing is held for who is gone.
func callersOfJobsThatLeave(t *testing.T, f *fleet) {
	before := f.goroutines(t)
	rng := rand.New(rand.NewPCG(1, 2))
	order := func(to string) {
		t.Helper()
		for range 12 {
			leave(t, f.broker, request("POST", to, "", ""), 1+time.Duration(rng.Int64N(int64(soon))), rng.IntN(2) == 0)
		}
	}
	done := func() {
		t.Helper()
		eventually(t, "jobs end", func() bool {
			body := string(f.broker.must(200, "GET", "/_jobs", "", "").body)
			return !strings.Contains(body, `"state":"running"`) && !strings.Contains(body, `"state":"paused"`)
		})
	}
	placed := func() int {
		t.Helper()
		return number(t, f.broker.must(200, "GET", "/_topology", "", "").object(t), "map", "placed")
	}
	for _, step := range []struct {
		order  string
		placed int
	}{
		{"/_rebalance?from=3&to=2", 2},
		{"/_repair", 2},
		{"/_rebalance?from=2&to=3", 3},
		{"/_repair?wait=false", 3},
	} {
		order(step.order)
		took := f.idle(t)
		done()
		f.idle(t)
		if p := placed(); p != step.placed {
			// Nobody was there for long enough for the order to be heard.
			f.broker.must(200, "POST", step.order, "", "")
			if p = placed(); p != step.placed {
				t.Errorf("%s: placed over %d", step.order, p)
			}
		}
		t.Logf("%s: idle after %v", step.order, took)
		f.whole(t)
	}
	f.calm(t, before)
}
