package serve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stub is a leaf that takes its time and then says what it was told to.
type stub struct {
	after time.Duration
	reply int
	err   error
	panic any

	calls atomic.Int64
	ended atomic.Int64 // calls that were ended by their context
}

func (s *stub) Call(ctx context.Context, req int) (int, error) {
	s.calls.Add(1)
	if s.after > 0 {
		t := time.NewTimer(s.after)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			s.ended.Add(1)
			return 0, context.Cause(ctx)
		}
	}
	if s.panic != nil {
		panic(s.panic)
	}
	return s.reply + req, s.err
}

func leaves(stubs ...*stub) []Leaf[int, int] {
	out := make([]Leaf[int, int], len(stubs))
	for i, s := range stubs {
		out[i] = s
	}
	return out
}

// outcomeError is an error that knows its outcome.
type outcomeError Outcome

func (e outcomeError) Error() string    { return "says " + Outcome(e).String() }
func (e outcomeError) Outcome() Outcome { return Outcome(e) }

func TestScatterGathersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*stub
		for i := range 9 {
			all = append(all, &stub{after: time.Duration(9-i) * time.Second, reply: 100 * i})
		}
		begin := time.Now()
		g := Scatter(t.Context(), leaves(all...), 7, ScatterOptions{})
		if d := time.Since(begin); d != 9*time.Second {
			t.Errorf("took %v: the calls did not run side by side", d)
		}
		for i := range all {
			if g.Results[i] != 100*i+7 || g.Outcomes[i] != Answered || g.Errs[i] != nil || g.Took[i] != all[i].after {
				t.Errorf("shard %d: %v %v %v %v", i, g.Results[i], g.Outcomes[i], g.Errs[i], g.Took[i])
			}
		}
		if g.Answered() != 9 || !g.Complete() || g.Fraction() != 1 || g.Slowest() != 0 {
			t.Errorf("%d answered, complete %v, slowest %d", g.Answered(), g.Complete(), g.Slowest())
		}
	})
}

func TestScatterOfNothing(t *testing.T) {
	g := Scatter(t.Context(), leaves(), 7, ScatterOptions{Parallel: 3})
	if len(g.Outcomes) != 0 || !g.Complete() || g.Slowest() != -1 || g.Tally().Total() != 0 {
		t.Fatalf("%+v", g)
	}
	if g := Fan[int](t.Context(), -1, ScatterOptions{}, nil); len(g.Outcomes) != 0 {
		t.Fatalf("%+v", g)
	}
}

// TestScatterErrorsAreData has every kind of failure beside a slow call that must live through all of them.
func TestScatterErrorsAreData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		slow := &stub{after: 10 * time.Second, reply: 1}
		all := []*stub{
			{err: broken},
			{err: outcomeError(Refused)},
			{err: fmt.Errorf("at host: %w", outcomeError(Unavailable))},
			{panic: "boom"},
			{after: time.Hour},
			slow,
			{err: outcomeError(Skipped)},
		}
		g := Scatter(t.Context(), leaves(all...), 0, ScatterOptions{Budget: Budget{Total: 20 * time.Second}})
		want := []Outcome{Failed, Refused, Unavailable, Failed, TimedOut, Answered, Skipped}
		if !slices.Equal(g.Outcomes, want) {
			t.Fatalf("got %v, want %v", g.Outcomes, want)
		}
		if g.Results[5] != 1 || slow.ended.Load() != 0 {
			t.Error("a sibling ended the slow call")
		}
		if !errors.Is(g.Errs[0], broken) || !errors.Is(g.Errs[4], context.DeadlineExceeded) || g.Errs[5] != nil || g.Errs[6] != nil {
			t.Errorf("errors: %v", g.Errs)
		}
		p, ok := errors.AsType[*PanicError](g.Errs[3])
		if !ok || p.Value != "boom" || !Crashed(p) || !strings.Contains(string(p.Stack), "stub") {
			t.Errorf("the panic became %v", g.Errs[3])
		}
		if g.Took[4] != 20*time.Second || g.Slowest() != 4 {
			t.Errorf("slowest is %d", g.Slowest())
		}
		if got := g.Tally().String(); got != "2 of 7 covered: 1 answered, 1 skipped, 1 timed_out, 1 refused, 1 unavailable, 2 failed" {
			t.Error(got)
		}
	})
}

// TestScatterCallEndsItsGoroutine: a call that ends its goroutine ends no more than its own call, unless the goroutine is the
// caller's.
func TestScatterCallEndsItsGoroutine(t *testing.T) {
	g := Fan(t.Context(), 50, ScatterOptions{Parallel: 3}, func(context.Context, int) (int, error) {
		runtime.Gosched()
		if stack := string(debug.Stack()); !strings.Contains(stack, "serve.Fan[") {
			runtime.Goexit()
		}
		return 1, nil
	})
	for i, err := range g.Errs {
		p, ok := errors.AsType[*PanicError](err)
		if ok != (g.Outcomes[i] == Failed) || !ok && g.Outcomes[i] != Answered || ok && (p.Value != nil || !Crashed(p) || p.Error() == "") {
			t.Errorf("call %d: %v, %v", i, g.Outcomes[i], err)
		}
	}

	// When the caller's goroutine is ended, no call is left running, and the others were made.
	var calls atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		Fan(t.Context(), 20, ScatterOptions{Parallel: 3}, func(context.Context, int) (int, error) {
			calls.Add(1)
			runtime.Goexit()
			return 0, nil
		})
		t.Error("Fan returned")
	})
	wg.Wait()
	if calls.Load() != 20 {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestScatterSubDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		var deadlines [4]time.Time
		o := ScatterOptions{Parallel: 2, Budget: Budget{Reserve: 2 * time.Second, Share: 0.5}}
		g := Fan(ctx, 4, o, func(ctx context.Context, i int) (int, error) {
			deadlines[i], _ = ctx.Deadline()
			<-ctx.Done()
			return 0, ctx.Err()
		})
		// The first two get half of 8 s; the next two start then, and get half of the 4 s that are left.
		for i, d := range deadlines {
			want := 4 * time.Second
			if i >= 2 {
				want = 6 * time.Second
			}
			if got := d.Sub(begin); got != want {
				t.Errorf("call %d: deadline after %v, want %v", i, got, want)
			}
		}
		if d := time.Since(begin); d != 6*time.Second {
			t.Errorf("took %v", d)
		}
		if g.Tally().Count(TimedOut) != 4 {
			t.Error(g.Tally())
		}
	})
}

func TestScatterDeadlineOnlyShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			above  time.Duration
			budget Budget
			want   time.Duration // 0 is none
		}{
			"absent stays absent":          {0, Budget{Reserve: time.Second, Share: 0.5}, 0},
			"the caller's":                 {time.Minute, Budget{}, time.Minute},
			"the caller's, not the longer": {time.Minute, Budget{Total: time.Hour}, time.Minute},
			"own where there is none":      {0, Budget{Total: time.Hour}, time.Hour},
			"own where it is shorter":      {time.Hour, Budget{Total: time.Minute, Reserve: time.Second}, 59 * time.Second},
			"reserve":                      {time.Minute, Budget{Reserve: 10 * time.Second}, 50 * time.Second},
		} {
			for _, parallel := range []int{0, 1, 2} {
				ctx, cancel := t.Context(), func() {}
				if c.above > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.above)
				}
				begin := time.Now()
				Fan(ctx, 3, ScatterOptions{Parallel: parallel, Budget: c.budget}, func(ctx context.Context, i int) (int, error) {
					d, ok := ctx.Deadline()
					if ok != (c.want > 0) || ok && d.Sub(begin) != c.want {
						t.Errorf("%s: call %d has deadline %v after the beginning, %v", name, i, d.Sub(begin), ok)
					}
					return 0, nil
				})
				cancel()
			}
		}
	})
}

func TestScatterParentDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		all := []*stub{{after: time.Second}, {after: time.Hour}, {after: time.Hour}, {}, {}}
		begin := time.Now()
		g := Scatter(ctx, leaves(all...), 0, ScatterOptions{Parallel: 2, Budget: Budget{Share: 1}})
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("took %v", d)
		}
		// One worker was held by call 1 and the other by call 2 until the end; the rest never had a turn.
		if want := []Outcome{Answered, TimedOut, TimedOut, TimedOut, TimedOut}; !slices.Equal(g.Outcomes, want) {
			t.Fatalf("%v", g.Outcomes)
		}
		for i := range all {
			if not := i >= 3; not != errors.Is(g.Errs[i], ErrNotStarted) || not != (all[i].calls.Load() == 0) {
				t.Errorf("call %d: %v, %d calls", i, g.Errs[i], all[i].calls.Load())
			}
			if i > 0 && !errors.Is(g.Errs[i], context.DeadlineExceeded) {
				t.Errorf("call %d: %v", i, g.Errs[i])
			}
		}
		if g.Slowest() != 1 {
			t.Errorf("slowest is %d", g.Slowest())
		}
	})
}

func TestScatterCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(why) })
		all := []*stub{{after: time.Hour}, {after: time.Hour}, {}, {}}
		begin := time.Now()
		g := Scatter(ctx, leaves(all...), 0, ScatterOptions{Parallel: 2})
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("took %v", d)
		}
		for i := range all {
			if g.Outcomes[i] != TimedOut || !errors.Is(g.Errs[i], why) || (i >= 2) != errors.Is(g.Errs[i], ErrNotStarted) {
				t.Errorf("call %d: %v, %v", i, g.Outcomes[i], g.Errs[i])
			}
		}
		// A caller that has left already starts nothing.
		g = Scatter(ctx, leaves(&stub{panic: "called"}), 0, ScatterOptions{})
		if !errors.Is(g.Errs[0], ErrNotStarted) || g.Slowest() != -1 {
			t.Errorf("%v", g.Errs)
		}
	})
}

func TestScatterNoTimeLeftIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		for _, c := range []struct {
			budget  Budget
			started bool
		}{
			{Budget{}, true},
			{Budget{Reserve: 9 * time.Millisecond}, true},
			{Budget{Reserve: 9*time.Millisecond + 1}, false},
			{Budget{Reserve: 9*time.Millisecond + 1, Least: -1}, true},
			{Budget{Reserve: 10 * time.Millisecond, Least: -1}, false},
			{Budget{Reserve: time.Second}, false},
			{Budget{Least: 10*time.Millisecond + 1}, false},
			{Budget{Reserve: 8 * time.Millisecond, Share: 0.4}, false},
		} {
			begin := time.Now()
			g := Scatter(ctx, leaves(&stub{}, &stub{}), 0, ScatterOptions{Budget: c.budget})
			if time.Since(begin) != 0 {
				t.Errorf("%+v: not at once", c.budget)
			}
			if got := g.Complete(); got != c.started {
				t.Errorf("%+v: %v", c.budget, g.Tally())
			}
			if !c.started && (!errors.Is(g.Errs[0], ErrNotStarted) || !errors.Is(g.Errs[0], context.DeadlineExceeded) || g.Outcomes[0] != TimedOut) {
				t.Errorf("%+v: %v", c.budget, g.Errs[0])
			}
		}
	})
}

// TestScatterWaitingCallsRunOutOfTime: the turn of the later calls comes when less than Least is left.
func TestScatterWaitingCallsRunOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []*stub{{after: 6 * time.Second}, {after: 3500 * time.Millisecond}, {}}
		o := ScatterOptions{Parallel: 1, Budget: Budget{Total: 10 * time.Second, Least: time.Second}}
		g := Scatter(t.Context(), leaves(all...), 0, o)
		if want := []Outcome{Answered, Answered, TimedOut}; !slices.Equal(g.Outcomes, want) {
			t.Fatal(g.Outcomes)
		}
		if !errors.Is(g.Errs[2], ErrNotStarted) || all[2].calls.Load() != 0 {
			t.Errorf("%v", g.Errs[2])
		}
	})
}

func TestScatterBoundsItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, parallel := range []int{1, 3, 40, 0} {
			var now, most atomic.Int64
			begin := time.Now()
			g := Fan(t.Context(), 40, ScatterOptions{Parallel: parallel}, func(context.Context, int) (int, error) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-time.After(time.Second)
				now.Add(-1)
				return 0, nil
			})
			want := parallel
			if want == 0 {
				want = 40
			}
			if int(most.Load()) != want || !g.Complete() {
				t.Errorf("parallel %d: %d at once, %v", parallel, most.Load(), g.Tally())
			}
			if d := time.Since(begin); d != time.Duration((40+want-1)/want)*time.Second {
				t.Errorf("parallel %d: took %v", parallel, d)
			}
		}
	})
}

func TestScatterSkip(t *testing.T) {
	all := []*stub{{}, {panic: "asked"}, {}, {panic: "asked"}}
	var asked []int
	g := Scatter(t.Context(), leaves(all...), 0, ScatterOptions{Skip: func(i int) bool {
		asked = append(asked, i)
		return i%2 == 1
	}})
	if want := []Outcome{Answered, Skipped, Answered, Skipped}; !slices.Equal(g.Outcomes, want) || !g.Complete() || g.Answered() != 2 {
		t.Fatal(g.Outcomes)
	}
	if !slices.Equal(asked, []int{0, 1, 2, 3}) {
		t.Fatal(asked)
	}
	g = Scatter(t.Context(), leaves(all...), 0, ScatterOptions{Skip: func(int) bool { return true }})
	if g.Tally() != TallyOf(Skipped, 4) || g.Slowest() != -1 {
		t.Fatal(g.Tally())
	}
}

// TestCallContextEndsWithItsCall: what a call registered with its context goes when the call returns, though siblings go on.
func TestCallContextEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept [3]context.Context
		var child context.Context
		var stop context.CancelFunc
		var after, stays atomic.Bool
		slow := func(ctx context.Context) (int, error) {
			<-time.After(time.Second)
			synctest.Wait()
			if kept[0].Err() == nil || child.Err() == nil || !after.Load() {
				t.Errorf("the first call is over: %v, %v, %v", kept[0].Err(), child.Err(), after.Load())
			}
			if ctx.Err() != nil || stays.Load() {
				t.Error("a call that runs has lost its context")
			}
			return 0, nil
		}
		g := Fan(t.Context(), 3, ScatterOptions{Budget: Budget{Total: time.Hour}}, func(ctx context.Context, i int) (int, error) {
			kept[i] = ctx
			switch i {
			case 0:
				child, stop = context.WithCancel(ctx)
				context.AfterFunc(ctx, func() { after.Store(true) })
				return 0, nil
			case 1:
				context.AfterFunc(ctx, func() { stays.Store(true) })
				return slow(ctx)
			}
			return 0, nil
		})
		if !g.Complete() {
			t.Fatal(g.Errs)
		}
		stop()
		for i, ctx := range kept {
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("call %d: context is %v", i, ctx.Err())
			}
			select {
			case <-ctx.Done():
			default:
				t.Errorf("call %d: context is not done", i)
			}
			late, cancel := context.WithCancel(ctx)
			if late.Err() == nil {
				t.Errorf("call %d: derived from afterwards, a context lives", i)
			}
			cancel()
		}
		synctest.Wait()
		if !stays.Load() {
			t.Error("the function of the second call was not run at its end")
		}
	})
}

// TestCallContextThatNobodyAskedEnds: so does one that was only handed on, with no deadline above it.
func TestCallContextThatNobodyAskedEnds(t *testing.T) {
	var kept context.Context
	Fan(t.Context(), 1, ScatterOptions{}, func(ctx context.Context, _ int) (int, error) {
		kept = ctx
		if ctx.Err() != nil {
			t.Error(ctx.Err())
		}
		return 0, nil
	})
	if !errors.Is(kept.Err(), context.Canceled) || !errors.Is(context.Cause(kept), context.Canceled) {
		t.Error(kept.Err())
	}
	if <-kept.Done(); !errors.Is(kept.Err(), context.Canceled) {
		t.Error(kept.Err())
	}
}

// TestSharedContextEnds: nothing stays registered with the caller's context, nor any timer.
func TestSharedContextEnds(t *testing.T) {
	f := newFan(t.Context(), 3, ScatterOptions{Budget: Budget{Total: time.Hour}}, func(ctx context.Context, _ int) (int, error) {
		return 0, ctx.Err()
	})
	f.one(1, f.budget)
	alone := f.shared
	f.rest()
	if alone.Err() == nil || f.shared == alone || f.shared.Err() == nil || !f.g.Complete() {
		t.Fatal(alone.Err(), f.shared.Err(), f.g.Errs)
	}
}

func TestCallContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
		Fan(ctx, 1, ScatterOptions{Budget: Budget{Total: time.Minute}}, func(c context.Context, _ int) (int, error) {
			check := func(want error) {
				t.Helper()
				if c.Value(key{}) != "v" || !errors.Is(c.Err(), want) || !errors.Is(context.Cause(c), want) && !errors.Is(context.Cause(c), why) {
					t.Errorf("%v %v %v", c.Value(key{}), c.Err(), context.Cause(c))
				}
				if d, ok := c.Deadline(); !ok || time.Until(d) != time.Minute {
					t.Errorf("deadline %v %v", d, ok)
				}
			}
			check(nil)
			// Several goroutines ask for Done at once, and get one channel.
			var done [8]<-chan struct{}
			var wg sync.WaitGroup
			for i := range done {
				wg.Go(func() { done[i] = c.Done() })
			}
			wg.Wait()
			for _, d := range done {
				if d != done[0] {
					t.Error("two channels")
				}
			}
			check(nil)
			child, stop := context.WithTimeout(c, time.Hour)
			defer stop()
			cancel(why)
			<-child.Done()
			check(context.Canceled)
			if context.Cause(c) != why || context.Cause(child) != why {
				t.Errorf("causes %v, %v", context.Cause(c), context.Cause(child))
			}
			return 0, nil
		})
	})
}

// TestCallContextRaces lets a call go on asking for its context while it returns.
func TestCallContextRaces(t *testing.T) {
	var wg sync.WaitGroup
	for range 200 {
		Fan(t.Context(), 4, ScatterOptions{Budget: Budget{Total: time.Hour}}, func(ctx context.Context, _ int) (int, error) {
			for range 2 {
				wg.Go(func() {
					<-ctx.Done()
					if ctx.Err() == nil {
						t.Error("done without an error")
					}
				})
			}
			return 0, nil
		})
	}
	wg.Wait()
}

// TestScatterAccountsForEveryShard: whatever the leaves do and however the caller ends, covered and missing make the total, the tally
// is that of the outcomes, and no call outlives the fan-out.
func TestScatterAccountsForEveryShard(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 17))
			all := make([]*stub, r.IntN(30))
			for i := range all {
				s := &stub{reply: i}
				switch r.IntN(9) {
				case 0:
					s.err = errors.New("broken")
				case 1:
					s.err = outcomeError(r.IntN(int(numOutcomes) + 2))
				case 2:
					s.panic = i
				case 3, 4:
					s.after = time.Duration(r.IntN(3000)) * time.Millisecond
				case 5:
					s.after = time.Hour
				}
				all[i] = s
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			switch r.IntN(3) {
			case 0:
				defer time.AfterFunc(time.Duration(r.IntN(2000))*time.Millisecond, cancel).Stop()
			case 1:
				var stop func()
				ctx, stop = context.WithTimeout(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
				defer stop()
			}
			o := ScatterOptions{
				Parallel: r.IntN(6),
				Budget: Budget{
					Total: time.Duration(r.IntN(4)) * time.Second, Reserve: time.Duration(r.IntN(300)) * time.Millisecond,
					Share: []float64{0, 0.3, 1}[r.IntN(3)],
				},
			}
			if r.IntN(2) == 0 {
				o.Skip = func(i int) bool { return i%3 == 0 }
			}
			if o.Budget.Total == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Minute)
				defer cancel()
			}
			g := Scatter(ctx, leaves(all...), 0, o)
			y := g.Tally()
			if y.Covered()+y.Missing() != len(all) || y.Total() != len(all) || y.Count(0) != 0 {
				t.Fatalf("seed %d: %v", seed, y)
			}
			if g.Answered() != y.Count(Answered) || g.Complete() != (y.Missing() == 0) {
				t.Fatalf("seed %d: %v", seed, y)
			}
			for i, s := range all {
				if o := g.Outcomes[i]; (g.Errs[i] == nil) != o.Covered() {
					t.Fatalf("seed %d: shard %d is %v with %v", seed, i, o, g.Errs[i])
				}
				if n := s.calls.Load(); n > 1 || (n == 0) != (o.Skip != nil && i%3 == 0 || errors.Is(g.Errs[i], ErrNotStarted)) {
					t.Fatalf("seed %d: shard %d was called %d times: %v %v", seed, i, n, g.Outcomes[i], g.Errs[i])
				}
				if g.Outcomes[i] == Answered && g.Results[i] != i || g.Outcomes[i] != Answered && g.Results[i] != 0 {
					t.Fatalf("seed %d: shard %d is %v with reply %d", seed, i, g.Outcomes[i], g.Results[i])
				}
			}
		})
	}
}

func TestBegun(t *testing.T) {
	Begun(t.Context()) // nobody asked
	var outer, inner int
	ctx := WithBegun(t.Context(), func() { outer++ })
	first := WithBegun(ctx, func() { inner++ })
	second := WithBegun(ctx, func() { inner += 10 })
	g := Fan(first, 3, ScatterOptions{Parallel: 1}, func(ctx context.Context, _ int) (int, error) {
		Begun(ctx)
		return 0, nil
	})
	if !g.Complete() || outer != 1 || inner != 1 {
		t.Fatalf("outer %d, inner %d", outer, inner)
	}
	Begun(second)
	if outer != 1 || inner != 11 {
		t.Fatalf("outer %d, inner %d", outer, inner)
	}
}

// answers is a leaf in this process that has its answer ready.
func answers(_ context.Context, req int) (int, error) { return req, nil }

func scatterAllocs(n int, o ScatterOptions, leaf LeafFunc[int, int]) float64 {
	all := make([]Leaf[int, int], n)
	for i := range all {
		all[i] = leaf
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	// The scheduler makes a new goroutine now and then: the least of several runs is what the code itself does.
	least := -1.0
	for range 10 {
		if a := testing.AllocsPerRun(20, func() { Scatter(ctx, all, 1, o) }); least < 0 || a < least {
			least = a
		}
	}
	return least
}

// TestScatterAllocs states the bound: a fan-out makes at most 16 allocations, however many leaves there are, four more for each leaf
// that waits for its context or derives from it, and six more for each that starts later with a deadline of its own.
func TestScatterAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	budget := Budget{Reserve: time.Second}
	for name, o := range map[string]ScatterOptions{
		"plain":   {},
		"budget":  {Budget: budget},
		"bounded": {Budget: budget, Parallel: 8},
	} {
		for _, n := range []int{1, 10, 100, 1000} {
			// A few goroutines may be new to the scheduler.
			if got := scatterAllocs(n, o, answers); got > 16+float64(n)/20 {
				t.Errorf("%s, %d leaves: %v allocations", name, n, got)
			}
		}
	}
	waits := func(ctx context.Context, req int) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		default:
			return req, nil
		}
	}
	if got := scatterAllocs(100, ScatterOptions{Budget: budget}, waits); got > 16+4*100 {
		t.Errorf("with leaves that wait: %v allocations", got)
	}
	if got := scatterAllocs(100, ScatterOptions{Budget: Budget{Share: 0.5}, Parallel: 2}, answers); got > 16+6*100 {
		t.Errorf("with deadlines of their own: %v allocations", got)
	}
}

func BenchmarkScatter(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		all := make([]Leaf[int, int], n)
		for i := range all {
			all[i] = LeafFunc[int, int](answers)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for _, c := range []struct {
			name string
			o    ScatterOptions
		}{
			{"all at once", ScatterOptions{}},
			{"all at once, sub-deadline", ScatterOptions{Budget: Budget{Reserve: time.Second}}},
			{"8 at once, sub-deadline", ScatterOptions{Parallel: 8, Budget: Budget{Reserve: time.Second}}},
			{"2 at once, sub-deadline of a share", ScatterOptions{Parallel: 2, Budget: Budget{Share: 0.5}}},
		} {
			b.Run(fmt.Sprintf("%d leaves, %s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if g := Scatter(ctx, all, 1, c.o); g.Answered() != n {
						b.Fatal(g.Tally())
					}
				}
			})
		}
	}
}
