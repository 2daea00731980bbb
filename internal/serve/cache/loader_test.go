package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// work is what the loads of these tests are asked for.
type work struct {
	takes time.Duration // how long the load takes, unless its context ends
	deaf  bool          // it takes as long whatever its context says
	found Loaded[string]
	err   error
	do    func(ctx context.Context) // called first
}

func runWork(ctx context.Context, key Key, w *work) (Loaded[string], error) {
	if w.do != nil {
		w.do(ctx)
	}
	end := time.NewTimer(w.takes)
	defer end.Stop()
	ended := ctx.Done()
	if w.deaf {
		ended = nil
	}
	select {
	case <-end.C:
	case <-ended:
		return Loaded[string]{}, fmt.Errorf("work on %s: %w", key.Index(), ctx.Err())
	}
	return w.found, w.err
}

// value is work of a second whose result is v, read from the snapshot of the keys of keyOf.
func value(v string) *work {
	return &work{takes: time.Second, found: Loaded[string]{Value: v, Cost: int64(len(v)), Snapshot: benchSnapshot}}
}

// overCaches runs a test in a bubble with a loader over each kind of cache.
func overCaches(t *testing.T, o LoaderOptions, test func(t *testing.T, l *Loader[*work, string], keeps bool)) {
	for name, c := range map[string]func() Cache[Key, string]{
		"lru":      func() Cache[Key, string] { return NewLRU[Key, string](1<<20, 1000) },
		"tinylfu":  func() Cache[Key, string] { return NewTinyLFU[Key, string](1 << 20) },
		"dropping": func() Cache[Key, string] { return dropping[Key, string]{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := c()
				defer c.Close()
				l := NewLoader(c, runWork, o)
				defer l.Close()
				test(t, l, name != "dropping")
				synctest.Wait()
				if n := l.Counters(); n.Orphans < 0 || n.Orphans > n.Running || n.Running != len(running(l)) {
					t.Errorf("at the end: %+v", n)
				}
			})
		})
	}
}

// running are the flights that can be joined; for tests that let none be detached.
func running(l *Loader[*work, string]) map[Key]*flight[string] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.flights
}

// got is what a call of Get has returned.
type got struct {
	v      string
	origin Origin
	err    error
	at     time.Time
}

// ask calls Get on a goroutine of its own and returns once it waits, or has its answer.
func ask(ctx context.Context, l *Loader[*work, string], key Key, w *work) <-chan got {
	c := make(chan got, 1)
	go func() {
		v, origin, err := l.Get(ctx, key, w)
		c <- got{v, origin, err, time.Now()}
	}()
	synctest.Wait()
	return c
}

func get(l *Loader[*work, string], key Key, w *work) got {
	return <-ask(context.Background(), l, key, w)
}

func (g got) check(t *testing.T, what, v string, origin Origin, err error) {
	t.Helper()
	if g.v != v || g.origin != origin || !errors.Is(g.err, err) || (g.err != nil) != (err != nil) {
		t.Errorf("%s: %q from %v, error %v; want %q from %v, error %v", what, g.v, g.origin, g.err, v, origin, err)
	}
}

func TestFiftyWaitersMakeOneLoad(t *testing.T) {
	overCaches(t, LoaderOptions{}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		begin := time.Now()
		var all []<-chan got
		for range 50 {
			all = append(all, ask(t.Context(), l, keyOf(1), value("a")))
		}
		for i, c := range all {
			origin := ByOthers
			if i == 0 {
				origin = ByLoad
			}
			g := <-c
			g.check(t, fmt.Sprint("caller ", i), "a", origin, nil)
			if g.at.Sub(begin) != time.Second {
				t.Errorf("caller %d waited for %v", i, g.at.Sub(begin))
			}
		}
		n := l.Counters()
		if n.Loads != 1 || n.Joined != 49 || n.Misses != 50 || n.Hits != 0 || n.Running != 0 {
			t.Errorf("%+v", n)
		}
		again := get(l, keyOf(1), value("b"))
		if keeps {
			again.check(t, "afterwards", "a", Hit, nil)
		} else {
			again.check(t, "afterwards", "b", ByLoad, nil)
		}
		get(l, keyOf(2), value("c")).check(t, "another key", "c", ByLoad, nil)
	})
}

func TestAWaitersDeadlineFreesOnlyThatWaiter(t *testing.T) {
	overCaches(t, LoaderOptions{}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		begin := time.Now()
		first := ask(t.Context(), l, keyOf(1), value("a"))
		short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer stop()
		second := ask(short, l, keyOf(1), value("a"))
		why := errors.New("hung up")
		gone, leave := context.WithCancelCause(t.Context())
		third := ask(gone, l, keyOf(1), value("a"))
		last := ask(t.Context(), l, keyOf(1), value("a"))
		time.AfterFunc(100*time.Millisecond, func() { leave(why) })

		g := <-third
		g.check(t, "one that hung up", "", ByOthers, why)
		if g.at.Sub(begin) != 100*time.Millisecond {
			t.Errorf("it was freed after %v", g.at.Sub(begin))
		}
		g = <-second
		g.check(t, "one with a deadline", "", ByOthers, context.DeadlineExceeded)
		if _, ok := errors.AsType[*TimeoutError](g.err); ok || g.at.Sub(begin) != 300*time.Millisecond {
			t.Errorf("it was freed after %v with %v", g.at.Sub(begin), g.err)
		}
		(<-first).check(t, "the first", "a", ByLoad, nil)
		(<-last).check(t, "the last", "a", ByOthers, nil)
		if n := l.Counters(); n.Loads != 1 || n.Abandoned != 2 || n.Cancelled != 0 || n.Errors != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestTheFirstCallerIsNotTheLoad(t *testing.T) {
	overCaches(t, LoaderOptions{Timeout: 5 * time.Second}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		type secret struct{}
		ctx, stop := context.WithTimeout(context.WithValue(t.Context(), secret{}, 1), 100*time.Millisecond)
		defer stop()
		w := value("a")
		w.do = func(ctx context.Context) {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) != 5*time.Second {
				t.Errorf("deadline %v, %v", d, ok)
			}
			if ctx.Value(secret{}) != nil {
				t.Error("the load sees a value of its caller")
			}
		}
		first := ask(ctx, l, keyOf(1), w)
		second := ask(t.Context(), l, keyOf(1), w)
		(<-first).check(t, "the first", "", ByLoad, context.DeadlineExceeded)
		(<-second).check(t, "the second", "a", ByOthers, nil)
	})
}

// When all have left, the load goes on and its result is there for the next; one who comes meanwhile joins.
func TestALoadGoesOnAlone(t *testing.T) {
	overCaches(t, LoaderOptions{}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		for key := range uint64(2) {
			(<-ask(ctx, l, keyOf(key), value("a"))).check(t, "one who leaves", "", []Origin{ByLoad, FromNobody}[key], context.DeadlineExceeded)
		}
		if n := l.Counters(); n.Loads != 1 || n.Orphans != 1 || n.Running != 1 || n.Misses != 2 || n.Abandoned != 1 {
			t.Errorf("%+v", n)
		}
		back := ask(t.Context(), l, keyOf(0), value("b"))
		if n := l.Counters(); n.Orphans != 0 || n.Running != 1 {
			t.Errorf("with one who came back: %+v", n)
		}
		(<-back).check(t, "one who came back", "a", ByOthers, nil)

		ctx2, stop2 := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop2()
		(<-ask(ctx2, l, keyOf(5), value("c"))).check(t, "one who leaves", "", ByLoad, context.DeadlineExceeded)
		<-time.After(2 * time.Second)
		if keeps {
			get(l, keyOf(5), value("d")).check(t, "later", "c", Hit, nil)
		}
		if n := l.Counters(); n.Orphans != 0 || n.Running != 0 || n.Cancelled != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestOrphansAreBounded(t *testing.T) {
	overCaches(t, LoaderOptions{MaxLoads: 10, MaxOrphans: 2}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		var causes [4]error
		leave := make([]context.CancelFunc, 4)
		for i := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			leave[i] = cancel
			w := value("a")
			w.do = func(ctx context.Context) {
				context.AfterFunc(ctx, func() { causes[i] = context.Cause(ctx) })
			}
			ask(ctx, l, keyOf(uint64(i)), w)
		}
		for i := range 4 {
			leave[i]()
			synctest.Wait()
		}
		if n := l.Counters(); n.Orphans != 2 || n.Running != 2 || n.Cancelled != 2 || n.Abandoned != 4 {
			t.Errorf("%+v", n)
		}
		if causes[0] != nil || causes[1] != nil || causes[2] != ErrAbandoned || causes[3] != ErrAbandoned {
			t.Errorf("%v", causes)
		}
		// Who comes for a load that was cancelled gets one of its own.
		get(l, keyOf(3), value("b")).check(t, "afterwards", "b", ByLoad, nil)
		synctest.Wait()
		if n := l.Counters(); n.Orphans != 0 || n.Running != 0 || n.Loads != 5 {
			t.Errorf("%+v", n)
		}
	})
	overCaches(t, LoaderOptions{MaxOrphans: -1}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		ctx, cancel := context.WithCancel(t.Context())
		// A load that takes its time to stop is still not joined.
		w := value("old")
		w.deaf = true
		c := ask(ctx, l, keyOf(1), w)
		cancel()
		(<-c).check(t, "one who leaves", "", ByLoad, context.Canceled)
		if n := l.Counters(); n.Running != 1 || n.Orphans != 0 || n.Cancelled != 1 {
			t.Errorf("%+v", n)
		}
		get(l, keyOf(1), value("new")).check(t, "at once", "new", ByLoad, nil)
		synctest.Wait()
		if n := l.Counters(); n.Running != 0 || n.Loads != 2 || n.Forgotten != 1 {
			t.Errorf("%+v", n)
		}
		if keeps {
			get(l, keyOf(1), value("newer")).check(t, "afterwards", "new", Hit, nil)
		}
	})
}

func TestTheLoadHasADeadline(t *testing.T) {
	overCaches(t, LoaderOptions{Timeout: 3 * time.Second}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		begin := time.Now()
		w := value("a")
		w.takes = time.Hour
		first, second := ask(t.Context(), l, keyOf(1), w), ask(t.Context(), l, keyOf(1), w)
		for _, c := range []<-chan got{first, second} {
			g := <-c
			timeout, ok := errors.AsType[*TimeoutError](g.err)
			if !ok || timeout.Limit != 3*time.Second || !errors.Is(g.err, context.DeadlineExceeded) || g.at.Sub(begin) != 3*time.Second {
				t.Errorf("after %v: %v", g.at.Sub(begin), g.err)
			}
			if !strings.Contains(timeout.Error(), "3s") || !strings.Contains(timeout.Unwrap().Error(), "work on books") {
				t.Error(timeout)
			}
		}
		get(l, keyOf(1), value("b")).check(t, "once more", "b", ByLoad, nil)
		// A deadline inside of the load is the load's own matter.
		w = value("")
		w.err = fmt.Errorf("shard 3: %w", context.DeadlineExceeded)
		if g := get(l, keyOf(2), w); g.err != w.err {
			t.Errorf("%v", g.err)
		}
		if n := l.Counters(); n.Errors != 2 || n.Loads != 3 {
			t.Errorf("%+v", n)
		}
	})
}

func TestErrorsReachAllAndAreNotKept(t *testing.T) {
	overCaches(t, LoaderOptions{}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		bad := errors.New("disk on fire")
		w := value("half")
		w.err, w.found.NotFound = bad, true // what comes with an error says nothing
		first, second := ask(t.Context(), l, keyOf(1), w), ask(t.Context(), l, keyOf(1), w)
		(<-first).check(t, "the first", "", ByLoad, bad)
		(<-second).check(t, "the second", "", ByOthers, bad)
		get(l, keyOf(1), value("a")).check(t, "once more", "a", ByLoad, nil)
		if n := l.Counters(); n.Errors != 1 || n.Loads != 2 || n.Panics != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func notFound() *work {
	return &work{found: Loaded[string]{NotFound: true, Snapshot: benchSnapshot}}
}

func TestNothingIsRememberedBriefly(t *testing.T) {
	overCaches(t, LoaderOptions{NegativeTTL: 2 * time.Second, MaxNegatives: 10}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		get(l, keyOf(1), notFound()).check(t, "the first", "", ByLoad, ErrNotFound)
		<-time.After(2*time.Second - 1)
		get(l, keyOf(1), value("a")).check(t, "shortly after", "", Hit, ErrNotFound)
		<-time.After(1)
		get(l, keyOf(1), value("a")).check(t, "later", "a", ByLoad, nil)
		if keeps {
			get(l, keyOf(1), notFound()).check(t, "then", "a", Hit, nil)
		}
		// A load may ask for less, not for more, and for nothing.
		w := notFound()
		w.found.TTL = time.Second
		get(l, keyOf(2), w).check(t, "with a time of its own", "", ByLoad, ErrNotFound)
		w = notFound()
		w.found.TTL = time.Hour
		get(l, keyOf(3), w).check(t, "with a long time", "", ByLoad, ErrNotFound)
		w = notFound()
		w.found.TTL = -1
		get(l, keyOf(4), w).check(t, "with no time", "", ByLoad, ErrNotFound)
		get(l, keyOf(4), value("b")).check(t, "after one with no time", "b", ByLoad, nil)
		<-time.After(time.Second)
		get(l, keyOf(2), value("b")).check(t, "after its own time", "b", ByLoad, nil)
		<-time.After(time.Second)
		get(l, keyOf(3), value("b")).check(t, "after a long time", "b", ByLoad, nil)
		if n := l.Counters(); n.NegativeHits != 1 || n.Errors != 0 {
			t.Errorf("%+v", n)
		}
	})
	overCaches(t, LoaderOptions{NegativeTTL: -1}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		get(l, keyOf(1), notFound()).check(t, "the first", "", ByLoad, ErrNotFound)
		get(l, keyOf(1), value("a")).check(t, "the second", "a", ByLoad, nil)
	})
	overCaches(t, LoaderOptions{MaxNegatives: -1}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		get(l, keyOf(1), notFound()).check(t, "the first", "", ByLoad, ErrNotFound)
		get(l, keyOf(1), value("a")).check(t, "the second", "a", ByLoad, nil)
	})
}

func TestAScanOfUnknownKeysPushesOutItsLike(t *testing.T) {
	overCaches(t, LoaderOptions{NegativeTTL: time.Hour, MaxNegatives: 10}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		for i := range uint64(20) {
			get(l, keyOf(i), value("a"))
		}
		for i := range uint64(2000) {
			get(l, keyOf(100+i), notFound()).check(t, "a scan", "", ByLoad, ErrNotFound)
		}
		if keeps {
			for i := range uint64(20) {
				get(l, keyOf(i), value("b")).check(t, "after the scan", "a", Hit, nil)
			}
			if u := l.Counters().Cache; u.Entries != 20 || u.Evicted != 0 {
				t.Errorf("%+v", u)
			}
		}
		get(l, keyOf(100+1990), value("b")).check(t, "the tenth last", "", Hit, ErrNotFound)
		get(l, keyOf(100+1989), value("b")).check(t, "the one before", "b", ByLoad, nil)
	})
}

func TestTheSnapshotDecides(t *testing.T) {
	overCaches(t, LoaderOptions{}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		newer := Snapshot{hi: 1, lo: 3}
		old, next := keyOf(1), NewKey("books", newer, keyOf(1).Request())
		// A load for the old snapshot is under way when a commit makes a new one: nobody who asks for the new one gets it.
		w := value("old")
		w.takes = 5 * time.Second
		before := ask(t.Context(), l, old, w)
		w = value("new")
		w.found.Snapshot = newer
		get(l, next, w).check(t, "after the commit", "new", ByLoad, nil)
		(<-before).check(t, "before the commit", "old", ByLoad, nil)
		if keeps {
			get(l, next, nil).check(t, "later", "new", Hit, nil)
			get(l, old, nil).check(t, "later, of the old snapshot", "old", Hit, nil)
		}
		// A load that reads a newer snapshot than it was asked for answers, and is not kept under a name that is not its own.
		w = value("moved")
		w.found.Snapshot = newer
		get(l, keyOf(2), w).check(t, "a load that reads another snapshot", "moved", ByLoad, nil)
		get(l, keyOf(2), value("a")).check(t, "the next", "a", ByLoad, nil)
		w = notFound()
		w.found.Snapshot = newer
		get(l, keyOf(3), w).check(t, "nothing in another snapshot", "", ByLoad, ErrNotFound)
		get(l, keyOf(3), value("a")).check(t, "the next", "a", ByLoad, nil)
		if n := l.Counters(); n.Moved != 2 {
			t.Errorf("%+v", n)
		}
		// What names no snapshot does not pass.
		get(l, NewKey("books", Snapshot{}, Request{1}), value("a")).check(t, "a key without a snapshot", "", FromNobody, ErrNoSnapshot)
		w = value("a")
		w.found.Snapshot = Snapshot{}
		get(l, keyOf(4), w).check(t, "a load without a snapshot", "", ByLoad, ErrNoSnapshot)
		// It may if it is for nobody else.
		w.found.Uncached = true
		get(l, keyOf(4), w).check(t, "a load that is not to be kept", "a", ByLoad, nil)
		get(l, keyOf(4), value("b")).check(t, "the next", "b", ByLoad, nil)
	})
}

func TestTimeToLiveOfValues(t *testing.T) {
	overCaches(t, LoaderOptions{TTL: time.Minute}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		if !keeps {
			return
		}
		get(l, keyOf(1), value("a"))
		w := value("a")
		w.found.TTL = time.Hour
		get(l, keyOf(2), w)
		w = value("a")
		w.found.TTL = -1
		get(l, keyOf(3), w)
		get(l, keyOf(3), value("b")).check(t, "one that may not be kept", "b", ByLoad, nil)
		<-time.After(time.Minute)
		get(l, keyOf(1), value("b")).check(t, "after the usual time", "b", ByLoad, nil)
		get(l, keyOf(2), value("b")).check(t, "with a time of its own", "a", Hit, nil)
	})
}

func TestPanics(t *testing.T) {
	overCaches(t, LoaderOptions{}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		bad := errors.New("index out of range")
		w := &work{do: func(context.Context) {
			<-time.After(time.Second)
			panic(bad)
		}}
		first, second := ask(t.Context(), l, keyOf(1), w), ask(t.Context(), l, keyOf(1), w)
		for _, c := range []<-chan got{first, second} {
			g := <-c
			p, ok := errors.AsType[*PanicError](g.err)
			if !ok || p.Value != any(bad) || !errors.Is(g.err, bad) || !p.Crash() || !strings.Contains(string(p.Stack), "TestPanics") {
				t.Fatalf("%v", g.err)
			}
			if strings.Contains(g.err.Error(), "range") {
				t.Errorf("the message says too much: %v", g.err)
			}
		}
		w = &work{do: func(context.Context) { panic("no error") }}
		if p, ok := errors.AsType[*PanicError](get(l, keyOf(1), w).err); !ok || p.Unwrap() != nil {
			t.Errorf("%v", p)
		}
		get(l, keyOf(1), &work{do: func(context.Context) { runtime.Goexit() }}).check(t, "a load that ends its goroutine", "", ByLoad, errNoResult)
		get(l, keyOf(1), value("a")).check(t, "once more", "a", ByLoad, nil)
		if n := l.Counters(); n.Panics != 2 || n.Errors != 3 || n.Running != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestRefusal(t *testing.T) {
	overCaches(t, LoaderOptions{MaxLoads: 3, Timeout: time.Minute}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		begun := time.Now()
		var all []<-chan got
		for i := range uint64(3) {
			w := value("a")
			w.takes = 30 * time.Second
			all = append(all, ask(t.Context(), l, keyOf(i), w))
		}
		retry := func() time.Duration {
			t.Helper()
			at := time.Now()
			g := get(l, keyOf(9), value("b"))
			r, ok := errors.AsType[*RefusedError](g.err)
			if !ok || r.Limit != 3 || g.origin != FromNobody || !errors.Is(g.err, ErrRefused) || !g.at.Equal(at) || r.Error() == "" {
				t.Fatalf("%v: %v", g.origin, g.err)
			}
			return r.RetryAfter
		}
		if got := retry(); got != minRetry {
			t.Errorf("retry after %v of loads that have just begun", got)
		}
		// A load that runs may be joined at the bound.
		all = append(all, ask(t.Context(), l, keyOf(0), value("b")))
		<-time.After(12 * time.Second)
		if got := retry(); got != 4*time.Second {
			t.Errorf("retry after %v of three loads that have run for 12 s", got)
		}
		for i, c := range all {
			(<-c).check(t, "one that was let in", "a", []Origin{ByLoad, ByLoad, ByLoad, ByOthers}[i], nil)
		}
		if d := time.Since(begun); d != 30*time.Second {
			t.Errorf("it took %v", d)
		}
		get(l, keyOf(9), value("b")).check(t, "afterwards", "b", ByLoad, nil)
		if n := l.Counters(); n.Refused != 2 || n.Loads != 4 || n.Running != 0 || l.mu.begun != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestForget(t *testing.T) {
	overCaches(t, LoaderOptions{NegativeTTL: time.Hour}, func(t *testing.T, l *Loader[*work, string], keeps bool) {
		get(l, keyOf(1), value("a"))
		l.Forget(keyOf(1))
		get(l, keyOf(1), value("b")).check(t, "a value that was forgotten", "b", ByLoad, nil)
		get(l, keyOf(2), notFound())
		l.Forget(keyOf(2))
		get(l, keyOf(2), value("b")).check(t, "a nothing that was forgotten", "b", ByLoad, nil)

		// Forgotten while it is loaded: it is not kept, and who comes later does not join.
		w := value("before")
		w.takes = 3 * time.Second
		first := ask(t.Context(), l, keyOf(3), w)
		l.Forget(keyOf(3))
		second := ask(t.Context(), l, keyOf(3), value("after"))
		third := ask(t.Context(), l, keyOf(3), value("no"))
		(<-second).check(t, "after it was forgotten", "after", ByLoad, nil)
		(<-third).check(t, "joined after that", "after", ByOthers, nil)
		(<-first).check(t, "before it was forgotten", "before", ByLoad, nil)
		if keeps {
			get(l, keyOf(3), value("no")).check(t, "in the end", "after", Hit, nil)
		}
		if n := l.Counters(); n.Forgotten != 1 || n.Cancelled != 0 {
			t.Errorf("%+v", n)
		}

		// A load that is forgotten and that nobody waits for is of no use.
		for i, forget := range []bool{true, false} {
			key := keyOf(uint64(10 + i))
			ctx, cancel := context.WithCancel(t.Context())
			w := value("no")
			w.takes = 9 * time.Second
			c := ask(ctx, l, key, w)
			if forget {
				l.Forget(key)
			}
			cancel()
			<-c
			if !forget {
				l.Forget(key)
			}
			synctest.Wait()
			if n := l.Counters(); n.Running != 0 || n.Orphans != 0 || n.Cancelled != uint64(i+1) {
				t.Errorf("%+v", n)
			}
		}
	})
}

func TestClose(t *testing.T) {
	for _, takes := range []time.Duration{0, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := NewLRU[Key, string](1<<20, 100)
			l := NewLoader(c, runWork, LoaderOptions{})
			get(l, keyOf(1), value("a"))
			begin := time.Now()
			var cause error
			w := value("b")
			w.do = func(ctx context.Context) {
				context.AfterFunc(ctx, func() { cause = context.Cause(ctx) })
			}
			if takes > 0 {
				w.deaf, w.takes = true, takes
			}
			waiter := ask(t.Context(), l, keyOf(2), w)
			gone, cancel := context.WithCancel(t.Context())
			alone := *w
			alone.do = nil
			orphan := ask(gone, l, keyOf(3), &alone)
			cancel()
			<-orphan
			var closers sync.WaitGroup
			for range 2 {
				closers.Go(func() {
					l.Close()
					if d := time.Since(begin); d != takes {
						t.Errorf("close took %v", d)
					}
				})
			}
			closers.Wait()
			synctest.Wait()
			if cause != ErrClosed {
				t.Errorf("cause %v", cause)
			}
			if takes == 0 {
				g := <-waiter
				g.check(t, "a waiter", "", ByLoad, ErrClosed)
				if !strings.Contains(g.err.Error(), "work on") {
					t.Error(g.err)
				}
			} else {
				(<-waiter).check(t, "a waiter of a load that ended all the same", "b", ByLoad, nil)
				get(l, keyOf(2), nil).check(t, "its value", "b", Hit, nil)
			}
			get(l, keyOf(1), nil).check(t, "a hit afterwards", "a", Hit, nil)
			get(l, keyOf(8), nil).check(t, "a miss afterwards", "", FromNobody, ErrClosed)
			if n := l.Counters(); n.Running != 0 || n.Orphans != 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// meddling lets something happen between a Get of the cache and what its caller does next.
type meddling struct {
	Cache[Key, string]
	then func()
}

func (c *meddling) Get(key Key) (string, bool) {
	v, ok := c.Cache.Get(key)
	if f := c.then; f != nil {
		c.then = nil
		f()
	}
	return v, ok
}

// A load that ends after a caller has missed, and before it could join, is not repeated.
func TestALoadThatJustEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &meddling{Cache: NewLRU[Key, string](1<<20, 10)}
		l := NewLoader(Cache[Key, string](c), runWork, LoaderOptions{NegativeTTL: time.Hour})
		defer l.Close()
		// Not by get, which may not be called while it waits itself.
		other := func(key Key, w *work) got {
			v, origin, err := l.Get(t.Context(), key, w)
			return got{v: v, origin: origin, err: err}
		}
		c.then = func() { other(keyOf(1), value("a")).check(t, "the other", "a", ByLoad, nil) }
		get(l, keyOf(1), value("b")).check(t, "the one", "a", Hit, nil)
		c.then = func() { other(keyOf(2), notFound()).check(t, "the other", "", ByLoad, ErrNotFound) }
		get(l, keyOf(2), value("b")).check(t, "the one", "", Hit, ErrNotFound)
		if n := l.Counters(); n.Loads != 2 || n.Hits != 1 || n.NegativeHits != 1 || n.Misses != 2 {
			t.Errorf("%+v", n)
		}
	})
}

// lateContext is alive until it is waited for, and has ended then.
type lateContext struct {
	context.Context
	until func()
}

func (c *lateContext) Done() <-chan struct{} {
	c.until()
	done := make(chan struct{})
	close(done)
	return done
}

// A caller whose context ends when the load has ended too gets what was loaded, whichever it hears of first.
func TestTheResultComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoader(Cache[Key, string](dropping[Key, string]{}), runWork, LoaderOptions{})
		defer l.Close()
		for range 50 {
			ctx := &lateContext{t.Context(), func() { <-time.After(2 * time.Second) }}
			(<-ask(ctx, l, keyOf(1), value("a"))).check(t, "both have ended", "a", ByLoad, nil)
		}
		if n := l.Counters(); n.Abandoned != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestOriginString(t *testing.T) {
	if s := fmt.Sprint(Hit, ByLoad, ByOthers, FromNobody, Origin(9)); s != "hit load joined none origin 9" {
		t.Error(s)
	}
}

// Real goroutines in real time: every caller gets the value of its key, and no key is loaded twice at once.
func TestLoaderUnderRace(t *testing.T) {
	for name, c := range map[string]Cache[Key, uint64]{
		"lru":      NewLRU[Key, uint64](40*EntryOverhead, 1000),
		"tinylfu":  NewTinyLFU[Key, uint64](40 * EntryOverhead),
		"moody":    newMoody(1, Cache[Key, uint64](NewLRU[Key, uint64](40*EntryOverhead, 1000))),
		"dropping": dropping[Key, uint64]{},
	} {
		var at [100]atomic.Int32
		l := NewLoader(c, func(ctx context.Context, key Key, i uint64) (Loaded[uint64], error) {
			if at[i].Add(1) != 1 {
				t.Errorf("%s: key %d is loaded twice at once", name, i)
			}
			defer at[i].Add(-1)
			for range i {
				runtime.Gosched()
			}
			if i%10 == 3 {
				return Loaded[uint64]{}, errors.New("three")
			}
			return Loaded[uint64]{Value: i, Snapshot: key.Snapshot(), NotFound: i%10 == 4}, ctx.Err()
		}, LoaderOptions{})
		var wg sync.WaitGroup
		var calls atomic.Uint64
		for g := range uint64(8) {
			wg.Go(func() {
				for j := range uint64(800) {
					i := (g*31 + j*j) % 100
					ctx, cancel := context.WithCancel(context.Background())
					if j%7 == 0 {
						go cancel()
					}
					v, _, err := l.Get(ctx, keyOf(i), i)
					calls.Add(1)
					switch {
					case j%7 == 0 && err == context.Canceled:
					case i%10 == 3:
						if err == nil || err.Error() != "three" {
							t.Errorf("%s: key %d: %v", name, i, err)
						}
					case i%10 == 4:
						if err != ErrNotFound {
							t.Errorf("%s: key %d: %v", name, i, err)
						}
					case err != nil || v != i:
						t.Errorf("%s: key %d: %d, %v", name, i, v, err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		l.Close()
		n := l.Counters()
		if n.Hits+n.NegativeHits+n.Misses != calls.Load() || n.Running != 0 || n.Orphans != 0 {
			t.Errorf("%s: %d calls, %+v", name, calls.Load(), n)
		}
		c.Close()
	}
}
