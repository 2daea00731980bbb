package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fleet is a row of leaves that crash, fail, or are late on the classes they are told to. A request is its class.
type fleet struct {
	mu    sync.Mutex
	on    map[int]map[int]stubOptions // by shard and class
	asked []int                       // shards, in the order of the calls
	n     int
}

func newFleet(n int) *fleet { return &fleet{n: n, on: map[int]map[int]stubOptions{}} }

func (f *fleet) set(shard, class int, s stubOptions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on[shard] == nil {
		f.on[shard] = map[int]stubOptions{}
	}
	f.on[shard][class] = s
}

// take returns which shards were asked since it was called last.
func (f *fleet) take() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.asked
	f.asked = nil
	return out
}

func (f *fleet) coordinator(t *testing.T, c *Canary, o pages) *Coordinator[int, page] {
	o.Children = make([]Leaf[int, page], f.n)
	for i := range o.Children {
		o.Children[i] = LeafFunc[int, page](func(ctx context.Context, class int) (page, error) {
			f.mu.Lock()
			f.asked = append(f.asked, i)
			s := f.on[i][class]
			f.mu.Unlock()
			st := stub{after: s.after, err: s.err, panic: s.panic}
			_, err := st.Call(ctx, class)
			return page{Tally: TallyOf(Answered, 1)}, err
		})
	}
	o.Canary, o.Class = c, func(class int) uint64 { return uint64(class) }
	return coordinator(t, o)
}

var (
	crash = stubOptions{err: &crashError{true}}
	gone  = stubOptions{err: outcomeError(Unavailable)}
)

func wantAsked(t *testing.T, f *fleet, n int, first ...int) {
	t.Helper()
	got := f.take()
	if len(got) != n || len(got) < len(first) || !slices.Equal(got[:len(first)], first) {
		t.Fatalf("asked %v; want %d calls, first %v", got, n, first)
	}
}

func TestCanaryGoesFirst(t *testing.T) {
	f, c := newFleet(5), NewCanary(CanaryOptions{})
	root := f.coordinator(t, c, pages{})
	f.set(3, 7, crash)

	// The first query of the class goes to all and loses the one that crashes; that is data like any other failure.
	p, err := root.Call(t.Context(), 7)
	if err != nil || p.Tally.Count(Failed) != 1 || !c.Suspect(7) {
		t.Fatal(p.Tally, err)
	}
	wantAsked(t, f, 5)

	// From then on the leaf that crashed is asked alone, and no other.
	for range 3 {
		_, err = root.Call(t.Context(), 7)
		s, ok := errors.AsType[*SuspectError](err)
		if !ok || s.Class != 7 || !Crashed(err) || OutcomeOf(err) != Failed || s.Error() == "" {
			t.Fatal(err)
		}
		wantAsked(t, f, 1, 3)
		if !c.Suspect(7) {
			t.Fatal("not suspect any more")
		}
	}

	// Other classes go to all at once.
	if _, err := root.Call(t.Context(), 8); err != nil || c.Suspect(8) {
		t.Fatal(err)
	}
	wantAsked(t, f, 5)

	// When the leaf has been mended the canary lives, and the rest are asked: so three times, then the class is clear.
	f.set(3, 7, stubOptions{})
	for i := range DefaultCanaryClear {
		if !c.Suspect(7) {
			t.Fatalf("clear after %d", i)
		}
		p, err := root.Call(t.Context(), 7)
		if err != nil || !p.Tally.Complete() || p.Tally.Total() != 5 {
			t.Fatal(p.Tally, err)
		}
		wantAsked(t, f, 5, 3)
	}
	if c.Suspect(7) {
		t.Fatal("still suspect")
	}
	if got, want := c.Stats(), (CanaryStats{Asked: 6, Refused: 3, Crashes: 4}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

// TestCanaryLivesAndAnotherCrashes: a crash behind a canary that lived makes the class suspect anew, with that leaf in front.
func TestCanaryLivesAndAnotherCrashes(t *testing.T) {
	f, c := newFleet(4), NewCanary(CanaryOptions{Clear: 2})
	root := f.coordinator(t, c, pages{})
	f.set(0, 1, crash)
	call := func() {
		t.Helper()
		if _, err := root.Call(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	call()
	f.set(0, 1, stubOptions{})
	call() // one without a crash
	f.set(2, 1, stubOptions{panic: "boom"})
	call() // the canary, leaf 0, lives; leaf 2 crashes
	f.set(2, 1, stubOptions{})
	f.take()
	call()
	wantAsked(t, f, 4, 2)
	if !c.Suspect(1) {
		t.Fatal("the count did not begin anew")
	}
	call()
	if c.Suspect(1) {
		t.Fatal("still suspect")
	}
}

func TestCanaryWithoutVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(6), NewCanary(CanaryOptions{Tries: 2})
		root := f.coordinator(t, c, pages{Budget: Budget{Total: 8 * time.Second}})
		c.crash(1, 4)

		// The leaf that crashed is away: the next one is asked in its place.
		f.set(4, 1, gone)
		p, err := root.Call(t.Context(), 1)
		if err != nil || p.Tally.Count(Unavailable) != 1 || p.Tally.Covered() != 5 {
			t.Fatal(p.Tally, err)
		}
		wantAsked(t, f, 6, 4, 5)

		// So is that, and no more are tried.
		f.set(5, 1, gone)
		_, err = root.Call(t.Context(), 1)
		if s, ok := errors.AsType[*SuspectError](err); !ok || Crashed(err) || OutcomeOf(s) != Unavailable {
			t.Fatal(err)
		}
		wantAsked(t, f, 2, 4, 5)

		// A canary that is late takes half of the time; the others have what is left.
		f.set(4, 1, stubOptions{after: time.Hour})
		f.set(5, 1, stubOptions{})
		f.set(0, 1, stubOptions{after: 3 * time.Second})
		begin := time.Now()
		p, err = root.Call(t.Context(), 1)
		if err != nil || p.Tally.Count(TimedOut) != 1 || time.Since(begin) != 7*time.Second {
			t.Fatal(p.Tally, err, time.Since(begin))
		}
		wantAsked(t, f, 6, 4, 5)

		// A leaf that says what is wrong with the request has lived through it.
		c.crash(2, 0)
		f.set(0, 2, stubOptions{err: errors.New("no such field")})
		if _, err := root.Call(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		wantAsked(t, f, 6, 0)
	})
}

func TestCanaryCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(3), NewCanary(CanaryOptions{})
		root := f.coordinator(t, c, pages{})
		c.crash(1, 0)
		f.set(0, 1, stubOptions{after: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := root.Call(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		wantAsked(t, f, 1, 0)
		// The next is not held up by what that one left.
		f.set(0, 1, stubOptions{})
		if _, err := root.Call(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := root.Call(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// TestCanaryAlone: of many queries of a suspect class at once, one asks its canary; the others go by what it showed.
func TestCanaryAlone(t *testing.T) {
	for name, c := range map[string]struct {
		canary stubOptions
		calls  int // of leaves, in all
		failed int // queries
	}{
		"crashes":    {stubOptions{after: time.Second, err: &crashError{true}}, 1, 10},
		"lives":      {stubOptions{after: time.Second}, 1 + 3 + 9*4, 0},
		"no verdict": {stubOptions{after: time.Second, err: outcomeError(Refused)}, 2 + 2 + 9*4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, canary := newFleet(4), NewCanary(CanaryOptions{Clear: 100})
				root := f.coordinator(t, canary, pages{})
				canary.crash(1, 2)
				f.set(2, 1, c.canary)
				var wg sync.WaitGroup
				errs := make([]error, 10)
				impatient := make(chan error, 1)
				for i := range errs {
					wg.Go(func() { _, errs[i] = root.Call(t.Context(), 1) })
				}
				synctest.Wait()
				if got := f.take(); !slices.Equal(got, []int{2}) {
					t.Fatalf("asked %v at once", got)
				}
				// One that has less time than the verdict takes gives up by itself, and another class does not wait.
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					_, err := root.Call(ctx, 1)
					impatient <- err
				}()
				if err := <-impatient; !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if _, err := root.Call(t.Context(), 5); err != nil {
					t.Error(err)
				}
				f.take()
				wg.Wait()
				failed := 0
				for _, err := range errs {
					if err != nil {
						failed++
						if _, ok := errors.AsType[*SuspectError](err); !ok || !Crashed(err) {
							t.Error(err)
						}
					}
				}
				if calls := 1 + len(f.take()); failed != c.failed || calls != c.calls {
					t.Errorf("%d failed, %d calls", failed, calls)
				}
			})
		})
	}
}

// TestCanaryNoVerdictPassesTheTurn: when a canary's caller leaves, one of those that wait asks next.
func TestCanaryNoVerdictPassesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(2), NewCanary(CanaryOptions{})
		root := f.coordinator(t, c, pages{})
		c.crash(1, 0)
		f.set(0, 1, stubOptions{after: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := root.Call(ctx, 1); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		f.set(0, 1, stubOptions{})
		begin := time.Now()
		if _, err := root.Call(t.Context(), 1); err != nil || time.Since(begin) != time.Second {
			t.Error(err, time.Since(begin))
		}
		wg.Wait()
	})
}

func TestCanaryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCanary(CanaryOptions{Classes: 3, Expiry: time.Minute})
		for class := range uint64(5) {
			c.crash(class, 0)
			<-time.After(time.Second)
		}
		// The two whose crash is longest ago have made room.
		for class := range uint64(5) {
			if got := c.Suspect(class); got != (class >= 2) {
				t.Errorf("class %d: %v", class, got)
			}
		}
		c.crash(2, 0) // it crashes again: now class 3 is the oldest
		c.crash(9, 0)
		if !c.Suspect(2) || c.Suspect(3) || c.Stats().Suspects != 3 || len(c.classes) != 3 {
			t.Errorf("%+v", c.Stats())
		}
		<-time.After(time.Minute)
		for _, class := range []uint64{2, 4, 9} {
			if c.Suspect(class) {
				t.Errorf("class %d does not expire", class)
			}
		}
		if c.Stats().Suspects != 0 || len(c.classes) != 0 {
			t.Errorf("%+v", c.Stats())
		}
		c.success(77) // of a class that nobody knows
	})
}

// TestCanaryForgetsClassesThatNeverComeAgain: one look at any class lets go of all whose time is over, so that the next costs no lock.
func TestCanaryForgetsClassesThatNeverComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(2), NewCanary(CanaryOptions{Expiry: time.Minute})
		root := f.coordinator(t, c, pages{})
		for class := range uint64(10) {
			c.crash(class, 0)
		}
		<-time.After(30 * time.Second)
		c.crash(3, 0)
		<-time.After(30 * time.Second)
		call := func(left int64) {
			t.Helper()
			if _, err := root.Call(t.Context(), 77); err != nil {
				t.Error(err)
			}
			if n := c.suspects.Load(); n != left || len(c.classes) != int(left) || c.order.Len() != int(left) {
				t.Errorf("%d suspects, want %d", n, left)
			}
		}
		call(1)
		if !c.Suspect(3) {
			t.Error("the one that crashed again is forgotten")
		}
		<-time.After(30 * time.Second)
		if n := c.Stats().Suspects; n != 0 {
			t.Errorf("%d suspects in the counts", n)
		}
		call(0)
	})
}

// TestCanaryEvictedUnderWay: a class that has made room while its canary was under way still gives those that wait their verdict.
func TestCanaryEvictedUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(2), NewCanary(CanaryOptions{Classes: 1})
		root := f.coordinator(t, c, pages{})
		c.crash(1, 0)
		f.set(0, 1, stubOptions{after: time.Second})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := root.Call(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		<-time.After(500 * time.Millisecond)
		c.crash(2, 1)
		wg.Wait()
		if c.Suspect(1) || !c.Suspect(2) {
			t.Error("the wrong class is suspect")
		}
	})
}

// TestCanaryOfAnEarlierTimeSettlesNothing: a class that was forgotten and crashed again is not settled by a canary from before.
func TestCanaryOfAnEarlierTimeSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(2), NewCanary(CanaryOptions{Classes: 1})
		root := f.coordinator(t, c, pages{})
		var wg sync.WaitGroup
		call := func() {
			wg.Go(func() {
				if _, err := root.Call(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		c.crash(1, 0)
		f.set(0, 1, stubOptions{after: time.Second})
		call()
		c.crash(2, 0)
		c.crash(1, 1)
		f.set(1, 1, stubOptions{after: time.Minute})
		call()
		wantAsked(t, f, 2, 0, 1)
		f.set(1, 1, stubOptions{})
		<-time.After(2 * time.Second)
		synctest.Wait()
		wantAsked(t, f, 1, 1) // the rest of the first
		call()                // waits for the second
		wantAsked(t, f, 0)
		wg.Wait()
	})
}

// TestCanaryCountsThoseThatWaited: every fan-out without a crash is a success, not only that whose canary it was.
func TestCanaryCountsThoseThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFleet(2), NewCanary(CanaryOptions{Clear: 3})
		root := f.coordinator(t, c, pages{})
		c.crash(1, 0)
		f.set(0, 1, stubOptions{after: time.Second})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := root.Call(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if c.Suspect(1) {
			t.Error("still suspect")
		}
	})
}

// TestCanarySkipsAndEmptyFleets: a canary is never a shard that is skipped, and with no shard to ask there is nothing to fear.
func TestCanarySkipsAndEmptyFleets(t *testing.T) {
	f, c := newFleet(3), NewCanary(CanaryOptions{})
	c.crash(1, 2)
	root := f.coordinator(t, c, pages{Skip: func(_, i int) bool { return i == 2 }})
	if p, err := root.Call(t.Context(), 1); err != nil || p.Tally.Count(Skipped) != 1 {
		t.Fatal(p, err)
	}
	wantAsked(t, f, 2, 0)
	root = f.coordinator(t, c, pages{Skip: func(_, i int) bool { return true }})
	if _, err := root.Call(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	wantAsked(t, f, 0)
	// Fewer children than when it crashed.
	small := newFleet(2)
	if _, err := small.coordinator(t, c, pages{}).Call(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := newFleet(0).coordinator(t, c, pages{}).Call(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// TestCanaryOfTrees: the crash that stopped an aggregator's fan-out makes the class suspect to the root as well.
func TestCanaryOfTrees(t *testing.T) {
	f, inner, outer := newFleet(3), NewCanary(CanaryOptions{}), NewCanary(CanaryOptions{})
	sub := f.coordinator(t, inner, pages{})
	root := coordinator(t, pages{
		Children: []Leaf[int, page]{sub, sub},
		Canary:   outer, Class: func(class int) uint64 { return uint64(class) },
		Parallel: 1,
	})
	inner.crash(1, 0)
	f.set(0, 1, crash)
	if _, err := root.Call(t.Context(), 1); !errors.Is(err, ErrInsufficientShards) || !Crashed(err) {
		t.Fatal(err)
	}
	wantAsked(t, f, 2, 0, 0)
	if !outer.Suspect(1) {
		t.Fatal("the root has not noticed")
	}
	_, err := root.Call(t.Context(), 1)
	if _, ok := errors.AsType[*SuspectError](err); !ok {
		t.Fatal(err)
	}
	wantAsked(t, f, 1, 0)
}
