package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A schedule is a list of calls, each at a time of its own. No two things happen at the same time: within a tick of a thousand
// microseconds, calls happen in the first 200, loads end in the next 200, waiters leave in the next, then loads time out and
// entries expire, each at an offset that belongs to the call that caused it.
const (
	tick         = 1000 * time.Microsecond
	loadEnds     = 200 * time.Microsecond
	waiterLeaves = 400 * time.Microsecond
	loadTimesOut = 600 * time.Microsecond
	entryExpires = 600 * time.Microsecond // on top of the 200 of loadEnds
)

type outcome uint8

const (
	goodLoad outcome = iota
	failedLoad
	nothingFound
	uncachedLoad
	movedLoad
	panickingLoad
	outcomes
)

// call is one step of a schedule. What its load would do is in it too.
type call struct {
	at     time.Duration
	key    uint64
	forget bool
	wait   time.Duration // how long the caller waits; 0: for ever
	load   outcome
	takes  time.Duration
}

func schedule(rng *rand.Rand) []call {
	calls := make([]call, 200)
	for i := range calls {
		calls[i] = call{
			at:     time.Duration(rng.IntN(120))*tick + time.Duration(i)*time.Microsecond,
			key:    uint64(rng.IntN(6)),
			forget: rng.IntN(12) == 0,
			load:   outcome(max(rng.IntN(int(outcomes)+4)-4, 0)), // half of them good
			takes:  time.Duration(rng.IntN(14))*tick + loadEnds,
		}
		if rng.IntN(2) == 0 {
			calls[i].wait = time.Duration(rng.IntN(12))*tick + waiterLeaves
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })
	return calls
}

// answer is what a call of Get returns, and when.
type answer struct {
	value  int // the call whose load made the value
	origin Origin
	err    string
	at     time.Duration
}

func (a answer) String() string { return fmt.Sprintf("%d/%v/%s at %v", a.value, a.origin, a.err, a.at) }

func modelOptions() LoaderOptions {
	return LoaderOptions{
		Timeout:     10*tick + loadTimesOut,
		TTL:         30*tick + entryExpires,
		NegativeTTL: 8*tick + entryExpires,
		MaxLoads:    4,
		MaxOrphans:  2,
	}
}

// modelFlight is a load of the model.
type modelFlight struct {
	by       int // the call that began it
	key      uint64
	end      time.Duration
	late     bool // it ends because its time is over
	waiters  map[int]bool
	orphan   bool
	detached bool
	stopped  bool
}

// model works out what a loader has to answer, event by event, without a goroutine.
func model(calls []call, keeps bool) ([]answer, Counters) {
	o := modelOptions()
	type entry struct {
		value int
		until time.Duration
	}
	var n Counters
	answers := make([]answer, len(calls))
	cached, nothing := map[uint64]entry{}, map[uint64]entry{}
	var flights []*modelFlight
	joinable := func(key uint64) *modelFlight {
		for _, f := range flights {
			if f.key == key && !f.detached {
				return f
			}
		}
		return nil
	}
	remove := func(f *modelFlight) {
		flights = slices.DeleteFunc(flights, func(g *modelFlight) bool { return g == f })
		n.Running--
		if f.orphan {
			n.Orphans--
		}
	}
	// stop is what happens when a load is cancelled; it hears of it at once.
	stop := func(f *modelFlight) {
		f.detached, f.stopped = true, true
		n.Cancelled++
		n.Errors++
		remove(f)
	}
	end := func(f *modelFlight) {
		c, now := calls[f.by], f.end
		a := answer{value: -1, at: now}
		switch {
		case f.late:
			a.err = "timeout"
			n.Errors++
		case c.load == failedLoad:
			a.err = "failed"
			n.Errors++
		case c.load == panickingLoad:
			a.err = "panic"
			n.Errors++
			n.Panics++
		default:
			a.value = f.by
			if c.load == nothingFound {
				a.value, a.err = -1, "not found"
			}
			switch {
			case c.load == uncachedLoad:
			case f.detached:
				n.Forgotten++
			case c.load == movedLoad:
				n.Moved++
			case c.load == nothingFound:
				nothing[f.key] = entry{until: now + o.NegativeTTL}
			case keeps:
				cached[f.key] = entry{f.by, now + o.TTL}
			}
		}
		for w := range f.waiters {
			a.origin = ByOthers
			if w == f.by {
				a.origin = ByLoad
			}
			answers[w] = a
		}
		remove(f)
	}
	leave := func(w int, f *modelFlight) {
		origin := ByOthers
		if w == f.by {
			origin = ByLoad
		}
		answers[w] = answer{-1, origin, "left", calls[w].at + calls[w].wait}
		n.Abandoned++
		delete(f.waiters, w)
		switch {
		case len(f.waiters) > 0:
		case !f.detached && n.Orphans < o.MaxOrphans:
			f.orphan = true
			n.Orphans++
		default:
			stop(f)
		}
	}
	// advance lets everything happen that happens before a time.
	advance := func(to time.Duration) {
		for {
			at, next := to, func() {}
			for _, f := range flights {
				if f.end < at {
					at, next = f.end, func() { end(f) }
				}
				for w := range f.waiters {
					if calls[w].wait > 0 && calls[w].at+calls[w].wait < at {
						at, next = calls[w].at+calls[w].wait, func() { leave(w, f) }
					}
				}
			}
			if at == to {
				return
			}
			next()
		}
	}
	for i, c := range calls {
		advance(c.at)
		f := joinable(c.key)
		if c.forget {
			delete(cached, c.key)
			delete(nothing, c.key)
			if f != nil {
				f.detached = true
				if f.orphan {
					stop(f)
				}
			}
			continue
		}
		if e, ok := cached[c.key]; ok && c.at < e.until {
			n.Hits++
			answers[i] = answer{e.value, Hit, "", c.at}
			continue
		}
		if e, ok := nothing[c.key]; ok && c.at < e.until && f == nil {
			n.NegativeHits++
			answers[i] = answer{-1, Hit, "not found", c.at}
			continue
		}
		n.Misses++
		switch {
		case f != nil:
			n.Joined++
			if f.orphan {
				f.orphan = false
				n.Orphans--
			}
			f.waiters[i] = true
		case n.Running >= o.MaxLoads:
			n.Refused++
			answers[i] = answer{-1, FromNobody, "refused", c.at}
		default:
			n.Loads++
			n.Running++
			f := &modelFlight{by: i, key: c.key, end: c.at + c.takes, waiters: map[int]bool{i: true}}
			if c.takes > o.Timeout {
				f.end, f.late = c.at+o.Timeout, true
			}
			flights = append(flights, f)
		}
	}
	advance(1 << 40)
	return answers, n
}

// play runs a schedule for real.
func play(t *testing.T, calls []call, c Cache[Key, int]) ([]answer, Counters) {
	begin := time.Now()
	bad := errors.New("failed")
	l := NewLoader(c, func(ctx context.Context, key Key, i int) (Loaded[int], error) {
		end := time.NewTimer(calls[i].takes)
		defer end.Stop()
		select {
		case <-end.C:
		case <-ctx.Done():
			return Loaded[int]{}, ctx.Err()
		}
		out := Loaded[int]{Value: i, Cost: 8, Snapshot: key.Snapshot()}
		switch calls[i].load {
		case failedLoad:
			return out, bad
		case nothingFound:
			out.NotFound = true
		case uncachedLoad:
			out.Uncached = true
		case movedLoad:
			out.Snapshot.lo++
		case panickingLoad:
			panic("oh")
		}
		return out, nil
	}, modelOptions())
	answers := make([]answer, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() {
			<-time.After(c.at)
			if c.forget {
				l.Forget(keyOf(c.key))
				return
			}
			ctx := t.Context()
			left := errors.New("left")
			if c.wait > 0 {
				short, cancel := context.WithTimeoutCause(ctx, c.wait, left)
				defer cancel()
				ctx = short
			}
			v, origin, err := l.Get(ctx, keyOf(c.key), i)
			a := answer{v, origin, "", time.Since(begin)}
			if err != nil {
				if v != 0 {
					t.Errorf("call %d: a value with an error: %d, %v", i, v, err)
				}
				a.value = -1
				var timeout *TimeoutError
				var crash *PanicError
				switch {
				case err == bad, err == left:
					a.err = err.Error()
				case err == ErrNotFound:
					a.err = "not found"
				case errors.As(err, &timeout):
					a.err = "timeout"
				case errors.As(err, &crash):
					a.err = "panic"
				case errors.Is(err, ErrRefused):
					a.err = "refused"
				default:
					t.Errorf("call %d: %v", i, err)
				}
			}
			answers[i] = a
		})
	}
	wg.Wait()
	<-time.After(time.Second) // loads that nobody waits for
	n := l.Counters()
	l.Close()
	return answers, n
}

func TestLoaderIsTheModel(t *testing.T) {
	var all Counters
	for name, makeCache := range map[string]func() Cache[Key, int]{
		"lru":      func() Cache[Key, int] { return NewLRU[Key, int](1<<20, 1000) },
		"tinylfu":  func() Cache[Key, int] { return NewTinyLFU[Key, int](1 << 20) },
		"dropping": func() Cache[Key, int] { return dropping[Key, int]{} },
	} {
		for seed := range uint64(40) {
			synctest.Test(t, func(t *testing.T) {
				calls := schedule(rand.New(rand.NewPCG(seed, 8)))
				want, wantCount := model(calls, name != "dropping")
				c := makeCache()
				defer c.Close()
				got, count := play(t, calls, c)
				for i := range calls {
					if got[i] != want[i] {
						t.Fatalf("%s, seed %d: call %d, %+v: got %v, want %v", name, seed, i, calls[i], got[i], want[i])
					}
				}
				count.Cache = Usage{}
				if count != wantCount {
					t.Errorf("%s, seed %d: counters\n%+v, want\n%+v", name, seed, count, wantCount)
				}
				all.Hits += count.Hits
				all.NegativeHits += count.NegativeHits
				all.Joined += count.Joined
				all.Abandoned += count.Abandoned
				all.Cancelled += count.Cancelled
				all.Refused += count.Refused
				all.Moved += count.Moved
				all.Forgotten += count.Forgotten
				all.Panics += count.Panics
			})
		}
	}
	if min(all.Hits, all.NegativeHits, all.Joined, all.Abandoned, all.Cancelled, all.Refused, all.Moved, all.Forgotten, all.Panics) < 30 {
		t.Errorf("the schedules hardly test some cases: %+v", all)
	}
	t.Logf("%+v", all)
}
