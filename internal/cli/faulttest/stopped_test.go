//go:build linux

package faulttest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A member is stopped for longer than any wait that is documented, while a few readers that set no time of their own go on one after the
// other. The other member of its group has everything: soon after the stop answers come in time again, and whole. So do writers: once
// it is known that the member is stopped nothing waits for it, and it is named as the one that missed what it missed.
func TestAStoppedMemberHoldsUpNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	const (
		stopped = 15 * time.Second
		grace   = 5 * time.Second // from the stop on
		longest = 3 * time.Second
		known   = 11 * time.Second       // the same of writes: one of each broker waits for 8 s
		pause   = 100 * time.Millisecond // between two calls of a reader or a writer: the cluster is quiet
	)
	seed := drawSeed(t)
	c := open(t, rand.New(rand.NewPCG(seed, 7)), shape{groups: 2, replicas: 2, keeping: mixed})
	l := c.ready(seed)
	m := c.members[c.rng.IntN(len(c.members))]
	if err := m.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		late  int
		worst time.Duration
		after int // writes
		short int // of them, those that the member missed
	)
	for _, b := range c.brokers {
		wg.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			by := "writer of " + b.name
			for n := 0; time.Since(began) < stopped; n++ {
				<-tick.C
				at := time.Now()
				id, value := liveID(n%liveIDs), l.value(by)
				w := l.h.begin(by, id, value)
				a := b.call(ctx, http.MethodPost, "/index", url.Values{"index": {index}}, "application/json", newDoc("live", id, value).json(), "")
				l.h.end(w, outcomeOf(a))
				l.note("put", b, a)
				l.honest("put", b, a)
				if at.Sub(began) < known {
					continue
				}
				mu.Lock()
				after++
				if a.err == nil && a.status == http.StatusMultiStatus {
					short++
				}
				mu.Unlock()
				if took := time.Since(at); took > longest || a.err != nil || a.status/100 != 2 {
					t.Errorf("%v after %s was stopped a write to %s took %v: %v", at.Sub(began).Round(time.Millisecond), m.name, b.name, took.Round(time.Millisecond), a)
				}
			}
		})
		wg.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for n := 0; time.Since(began) < stopped; n++ {
				<-tick.C
				at := time.Now()
				whole := true
				if id := stableID(n * 7 % stableDocs); n%2 == 0 {
					d, ok := l.get(ctx, b, id)
					whole = ok && *d == newDoc("stable", id, "")
				} else {
					f := l.search(ctx, b, url.Values{"q": {"kind:stable"}, "limit": {"0"}, "aggs": {"b:terms(bucket,0)"}, "dfs": {strconv.FormatBool(n%4 == 1)}})
					if whole = f != nil && f.whole(); whole {
						l.count(b.name, f)
					}
				}
				took := time.Since(at)
				if at.Sub(began) < grace {
					continue
				}
				mu.Lock()
				late++
				worst = max(worst, took)
				mu.Unlock()
				if took > longest || !whole {
					t.Errorf("%v after %s was stopped a read of %s took %v; whole: %t", at.Sub(began).Round(time.Millisecond), m.name, b.name, took.Round(time.Millisecond), whole)
				}
			}
		})
	}
	wg.Wait()
	if err := m.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.healthy()
	for _, w := range l.wrong {
		t.Error(w)
	}
	if least := 3 * len(c.brokers); late < least {
		t.Errorf("%d reads from %v after the stop on, fewer than %d", late, grace, least)
	}
	if after < 3*len(c.brokers) || short == 0 {
		t.Errorf("%d writes from %v after the stop on, and %d of them not in at the member that was stopped", after, known, short)
	}
	t.Logf("%d reads from %v after the stop of %s on, the longest of %v", late, grace, m.name, worst.Round(time.Millisecond))
	l.report()
}
