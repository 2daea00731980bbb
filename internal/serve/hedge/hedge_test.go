package hedge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// plan is what one replica does with a call: it takes its place after queue, and ends after that and work, well or with an error.
type plan struct {
	queue, work time.Duration
	err         error
	silent      bool // it does not say that it has begun
}

// fleet plays replicas by their plans and notes what happens to them.
type fleet struct {
	plans []plan
	began time.Time

	mu     sync.Mutex
	events []event
	live   int
}

type event struct {
	index  int
	sent   time.Duration
	ended  time.Duration
	begun  bool
	cause  error // with which its context ended
	answer bool
}

func newFleet(plans ...plan) *fleet { return &fleet{plans: plans, began: time.Now()} }

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fleet) call(ctx context.Context, i int) (int, error) {
	f.mu.Lock()
	place := len(f.events)
	f.events = append(f.events, event{index: i, sent: time.Since(f.began)})
	f.live++
	f.mu.Unlock()
	p := f.plans[i]
	var begun bool
	err := wait(ctx, p.queue)
	if err == nil {
		begun = true
		if !p.silent {
			serve.Begun(ctx)
		}
		err = wait(ctx, p.work)
	}
	cause := context.Cause(ctx)
	if err == nil {
		err = p.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &f.events[place]
	e.ended, e.begun, e.cause, e.answer = time.Since(f.began), begun, cause, err == nil
	f.live--
	return i, err
}

// expect compares what replicas saw with lines of the form "index sent-ended cause".
func (f *fleet) expect(t *testing.T, want ...string) {
	t.Helper()
	if f.live != 0 {
		t.Errorf("%d attempts still run", f.live)
	}
	var got []string
	for _, e := range f.events {
		how := "failed"
		switch {
		case e.answer:
			how = "answered"
		case errors.Is(e.cause, ErrOvertaken):
			how = "overtaken"
		case errors.Is(e.cause, ErrLost):
			how = "lost"
		case errors.Is(e.cause, ErrSkipped):
			how = "skipped"
		case e.cause != nil:
			how = "left"
		}
		got = append(got, fmt.Sprintf("%d %v-%v %s", e.index, e.sent, e.ended, how))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("replicas saw\n%q, want\n%q", got, want)
	}
}

var (
	errBroken = errors.New("broken")
	errOther  = errors.New("also broken")
)

func TestBackupAtTheDelayAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 100 * ms}, plan{work: 20 * ms}, plan{})
		var report Report
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Report: &report}, f.call)
		if got != 1 || err != nil || time.Since(f.began) != 30*ms {
			t.Errorf("replica %d, %v after %v", got, err, time.Since(f.began))
		}
		f.expect(t, "0 0s-30ms overtaken", "1 10ms-30ms answered")
		want := "{10ms false [{0 first 0s 30ms true lost an attempt that was sent later answered first} {1 backup 10ms 20ms true won <nil>}]}"
		if fmt.Sprint(report) != want {
			t.Errorf("report %v", report)
		}
	})
}

func TestNoBackupForAQuickLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 9 * ms}, plan{})
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms}, f.call)
		if got != 0 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-9ms answered")
	})
}

func TestSlowLeaderMayStillWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 15 * ms}, plan{work: 20 * ms})
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms}, f.call)
		if got != 0 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-15ms answered", "1 10ms-15ms lost")
	})
}

func TestEachDelayFreesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: time.Hour}, plan{work: time.Hour}, plan{work: time.Hour}, plan{work: ms})
		got, err := Hedge(t.Context(), 4, Options{Delay: 10 * ms}, f.call)
		if got != 3 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-31ms overtaken", "1 10ms-31ms overtaken", "2 20ms-31ms overtaken", "3 30ms-31ms answered")
	})
}

func TestFailureFreesTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 2 * ms, err: errBroken}, plan{work: 3 * ms})
		got, err := Hedge(t.Context(), 2, Options{Delay: time.Second}, f.call)
		if got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-2ms failed", "1 2ms-5ms answered")
	})
	// The delay counts from the attempt that was sent last.
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 5 * ms, err: errBroken}, plan{work: time.Hour}, plan{work: ms})
		got, err := Hedge(t.Context(), 3, Options{Delay: 10 * ms}, f.call)
		if got != 2 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-5ms failed", "1 5ms-16ms overtaken", "2 15ms-16ms answered")
	})
	// A backup that fails frees the next as well, on its own lane.
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: time.Hour}, plan{work: ms, err: errBroken}, plan{work: ms})
		got, err := Hedge(t.Context(), 3, Options{Delay: 10 * ms}, f.call)
		if got != 2 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-12ms overtaken", "1 10ms-11ms failed", "2 11ms-12ms answered")
	})
}

func TestLastErrorOnceAllHaveReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The backup fails first: the error waits for the leader, and is the leader's.
		f := newFleet(plan{work: 50 * ms, err: errBroken}, plan{work: 5 * ms, err: errOther})
		_, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms}, f.call)
		if err != errBroken || time.Since(f.began) != 50*ms {
			t.Errorf("%v after %v", err, time.Since(f.began))
		}
		f.expect(t, "0 0s-50ms failed", "1 10ms-15ms failed")
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{err: errBroken}, plan{err: errBroken}, plan{err: errOther})
		_, err := Hedge(t.Context(), 3, Options{Delay: 10 * ms}, f.call)
		if err != errOther || time.Since(f.began) != 0 {
			t.Errorf("%v after %v", err, time.Since(f.began))
		}
	})
}

func TestErrorThatMayNotBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(err error) bool { return err != errBroken }
		f := newFleet(plan{work: ms, err: errBroken}, plan{})
		if _, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Retryable: never}, f.call); err != errBroken {
			t.Errorf("%v", err)
		}
		f.expect(t, "0 0s-1ms failed")

		// What runs already may still answer; nothing more is sent.
		f = newFleet(plan{work: 12 * ms, err: errBroken}, plan{work: 50 * ms}, plan{})
		if got, err := Hedge(t.Context(), 3, Options{Delay: 10 * ms, Retryable: never}, f.call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-12ms failed", "1 10ms-60ms answered")
	})
}

func TestWithoutDelayAllRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 30 * ms}, plan{work: 5 * ms}, plan{work: ms, err: errBroken})
		got, err := Hedge(t.Context(), 3, Options{}, f.call)
		if got != 1 || err != nil || time.Since(f.began) != 5*ms {
			t.Errorf("replica %d, %v after %v", got, err, time.Since(f.began))
		}
		if len(f.events) != 3 || f.events[0].sent+f.events[1].sent+f.events[2].sent != 0 {
			t.Errorf("events %v", f.events)
		}
	})
}

func TestOneReplicaIsAPlainCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		for _, o := range []Options{{}, {Delay: ms}, {Delay: ms, Tied: true}} {
			got, err := Hedge(ctx, 1, o, func(in context.Context, i int) (string, error) {
				if in != ctx || i != 0 {
					t.Error("not the caller's context, or not the first")
				}
				return "result", errBroken
			})
			if got != "result" || err != errBroken {
				t.Errorf("%q, %v", got, err)
			}
		}
		var report Report
		f := newFleet(plan{work: 5 * ms, err: errBroken})
		if _, err := Hedge(ctx, 1, Options{Delay: ms, Report: &report}, f.call); err != errBroken {
			t.Error(err)
		}
		f.expect(t, "0 0s-5ms failed")
		if fmt.Sprint(report) != "{0s false [{0 first 0s 5ms true failed broken}]}" {
			t.Errorf("report %v", report)
		}
		if _, err := Hedge(ctx, 0, Options{}, f.call); err != ErrNoReplica {
			t.Error(err)
		}
	})
}

func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(25*ms, func() { cancel(why) })
		f := newFleet(plan{work: time.Hour}, plan{work: time.Hour}, plan{work: time.Hour}, plan{})
		_, err := Hedge(ctx, 4, Options{Delay: 10 * ms}, f.call)
		if err != why || time.Since(f.began) != 25*ms {
			t.Errorf("%v after %v", err, time.Since(f.began))
		}
		f.expect(t, "0 0s-25ms left", "1 10ms-25ms left", "2 20ms-25ms left")
		// A failure that is due to the end of the context frees nobody.
		f = newFleet(plan{err: errBroken}, plan{})
		if _, err := Hedge(ctx, 2, Options{Delay: 10 * ms}, f.call); err != errBroken {
			t.Error(err)
		}
		f.expect(t, "0 0s-0s left")
	})
}

func TestTieSkipsTheOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The leader waits in its queue; the backup begins at 12 ms.
		f := newFleet(plan{queue: 40 * ms, work: 5 * ms}, plan{queue: 2 * ms, work: 30 * ms})
		var report Report
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Tied: true, Report: &report}, f.call)
		if got != 1 || err != nil || time.Since(f.began) != 42*ms {
			t.Errorf("replica %d, %v after %v", got, err, time.Since(f.began))
		}
		// It is slow: after the delay the leader is asked again.
		f.expect(t, "0 0s-12ms skipped", "1 10ms-42ms answered", "0 22ms-42ms lost")
		if report.Attempts[0].End != Skipped || report.Attempts[0].Begun {
			t.Errorf("report %v", report)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// The leader begins after the backup was sent: the backup is skipped.
		f := newFleet(plan{queue: 11 * ms, work: 5 * ms}, plan{queue: 2 * ms, work: ms})
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Tied: true}, f.call)
		if got != 0 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-16ms answered", "1 10ms-11ms skipped")
	})
}

// A tie must not leave a call with nothing but slow attempts: those skipped do not count as sent.
func TestSkippedIsSentAgainWhenTheOtherIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first two are slow in their work, and the third has a queue and is quick.
		f := newFleet(plan{work: time.Second}, plan{queue: 15 * ms, work: time.Second}, plan{queue: 20 * ms, work: ms})
		var report Report
		p := NewPolicy(PolicyOptions{InitialDelay: 10 * ms, MaxAttempts: 3})
		got, err := Do(t.Context(), p.Calls(Class{Name: "search", Safe: true}), 3, DoOptions{Report: &report}, f.call)
		if got != 2 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-56ms overtaken", "1 10ms-56ms overtaken", "2 20ms-25ms skipped", "2 35ms-56ms answered")
		if s := p.Stats(); s.Hedges != 3 || s.Skipped != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestTieNeverCancelsWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{work: 50 * ms}, plan{queue: ms, work: 50 * ms})
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Tied: true}, f.call)
		if got != 0 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-50ms answered", "1 10ms-50ms lost")
		// Without the word of a server there is no tie, and untied calls have none either.
		for _, tied := range []bool{true, false} {
			f = newFleet(plan{queue: 30 * ms, work: 10 * ms, silent: tied}, plan{work: 35 * ms, silent: tied})
			if got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Tied: tied}, f.call); got != 0 || err != nil {
				t.Errorf("replica %d, %v", got, err)
			}
			f.expect(t, "0 0s-40ms answered", "1 10ms-40ms lost")
		}
	})
}

func TestSkippedIsSentAgainWhenTheOtherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{queue: 12 * ms, work: 5 * ms}, plan{queue: ms, work: 3 * ms, err: errBroken})
		got, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms, Tied: true}, f.call)
		if got != 0 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-11ms skipped", "1 10ms-14ms failed", "0 14ms-31ms answered")
	})
}

func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		defer func() {
			if p := recover(); p != "leader" || !errors.Is(ended, ErrLost) {
				t.Errorf("recovered %v; the backup ended by %v", p, ended)
			}
		}()
		_, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms}, func(ctx context.Context, i int) (int, error) {
			if i == 0 {
				if err := wait(ctx, 20*ms); err != nil {
					t.Error(err)
				}
				panic("leader")
			}
			ended = wait(ctx, time.Hour)
			return 0, ended
		})
		t.Errorf("returned %v", err)
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := Hedge(t.Context(), 3, Options{Delay: 10 * ms}, func(ctx context.Context, i int) (int, error) {
			if i == 1 {
				panic("backup")
			}
			return 0, errors.Join(errBroken, wait(ctx, 15*ms))
		})
		var p *serve.PanicError
		if !errors.As(err, &p) || p.Value != "backup" {
			t.Errorf("the leader's error hides the panic: %v", err)
		}
		_, err = Hedge(t.Context(), 3, Options{Delay: 10 * ms}, func(ctx context.Context, i int) (int, error) {
			if i == 1 {
				if err := wait(ctx, 15*ms); err != nil {
					t.Error(err)
				}
				panic("backup")
			}
			return 0, errors.Join(errBroken, wait(ctx, 15*ms))
		})
		if !errors.As(err, &p) || p.Value != "backup" || len(p.Stack) == 0 {
			t.Errorf("got %v", err)
		}
	})
}

func TestAttemptThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := Hedge(t.Context(), 2, Options{Delay: 10 * ms}, func(ctx context.Context, i int) (int, error) {
			if i == 1 {
				runtime.Goexit()
			}
			return 0, errors.Join(errBroken, wait(ctx, 15*ms))
		})
		var p *serve.PanicError
		if !errors.As(err, &p) || p.Value != nil {
			t.Errorf("got %v", err)
		}
	})
}

// TestRandomSchedules holds runs with random replicas against the rules.
func TestRandomSchedules(t *testing.T) {
	seeds := 1000
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		n := 1 + rng.IntN(5)
		o := Options{Delay: time.Duration(rng.IntN(5)*5) * ms, Tied: rng.IntN(2) == 0}
		plans := make([]plan, n)
		for i := range plans {
			// Odd microseconds: no two things happen at one instant, so that the order is certain.
			plans[i] = plan{
				queue: time.Duration(rng.IntN(20))*ms + time.Duration(10*i+1)*time.Microsecond,
				work:  time.Duration(rng.IntN(30))*ms + time.Duration(1000/(i+2))*time.Microsecond,
			}
			if rng.IntN(3) == 0 {
				plans[i].err = fmt.Errorf("replica %d", i)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(plans...)
			var report Report
			o.Report = &report
			got, err := Hedge(t.Context(), n, o, f.call)
			took := time.Since(f.began)
			check(t, f, o, got, err, took, &report)
			if t.Failed() {
				t.Fatalf("seed %d: %d replicas, %+v, plans %v, events %+v: replica %d, %v after %v", seed, n, o, plans, f.events, got, err, took)
			}
		})
	}
}

func check(t *testing.T, f *fleet, o Options, got int, err error, took time.Duration, report *Report) {
	t.Helper()
	first := event{ended: time.Hour}
	seen := map[int]int{}
	for i, e := range f.events {
		// Those of one instant may have begun in another order than they were sent.
		a, times := Attempt{}, 0
		for _, r := range report.Attempts {
			if r.Index == e.index {
				if a = r; times == seen[e.index] {
					break
				}
				times++
			}
		}
		seen[e.index]++
		if e.answer && e.ended < first.ended {
			first = e
		}
		if errors.Is(e.cause, ErrSkipped) && e.begun && !o.Tied {
			t.Error("an untied attempt was skipped")
		}
		if a.Index != e.index || a.Sent != e.sent || a.Took != e.ended-e.sent {
			t.Errorf("attempt %d: reported %+v, was %+v", i, a, e)
		}
		if a.End == Skipped && (a.Begun || e.begun) {
			t.Errorf("attempt %d was skipped after it had begun", i)
		}
		if a.Kind == Backup && o.Delay > 0 && e.sent < o.Delay {
			t.Errorf("attempt %d is a backup before the delay", i)
		}
	}
	skips := map[int]int{}
	for _, a := range report.Attempts {
		if a.End == Skipped {
			skips[a.Index]++
		}
	}
	for index, times := range seen {
		if times > 1+skips[index] || times > len(f.plans) || skips[index] > 0 && !o.Tied {
			t.Errorf("replica %d was called %d times", index, times)
		}
	}
	for _, e := range f.events {
		if e.sent > first.ended {
			t.Error("an attempt after a success")
		}
		if e.ended > took {
			t.Error("an attempt outlived the call")
		}
	}
	if err == nil {
		if got != first.index || took != first.ended {
			t.Error("not the first success")
		}
		return
	}
	if first.ended != time.Hour {
		t.Error("an error in spite of a success")
	}
	if len(seen) != len(f.plans) {
		t.Error("failed, though not all replicas were tried")
	}
	last := f.events[0]
	for _, e := range f.events {
		if e.ended > last.ended {
			last = e
		}
	}
	if took != last.ended || err != f.plans[last.index].err {
		t.Error("not the last error")
	}
}

// TestTimersOfRealTime lets timers fire while attempts end, on real goroutines: in virtual time the two never meet.
func TestTimersOfRealTime(t *testing.T) {
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 13))
			for range 250 {
				n := 2 + rng.IntN(3)
				spins := make([]int, n)
				fails := make([]bool, n)
				failing := 0
				for i := range spins {
					spins[i] = rng.IntN(200)
					if fails[i] = rng.IntN(3) == 0; fails[i] {
						failing++
					}
				}
				var running atomic.Int32
				o := Options{Delay: time.Duration(1+rng.IntN(30_000)) * time.Nanosecond, Tied: rng.IntN(2) == 0}
				got, err := Hedge(t.Context(), n, o, func(ctx context.Context, i int) (int, error) {
					running.Add(1)
					defer running.Add(-1)
					for s := range spins[i] {
						if s == spins[i]/2 {
							serve.Begun(ctx)
						}
						if ctx.Err() != nil {
							return 0, context.Cause(ctx)
						}
						runtime.Gosched()
					}
					if fails[i] {
						return 0, errBroken
					}
					return i, nil
				})
				if running.Load() != 0 {
					t.Error("an attempt outlived the call")
				}
				if err == nil && fails[got] || err != nil && (err != errBroken || failing != n) {
					t.Errorf("replica %d, %v; fails %v", got, err, fails)
				}
			}
		})
	}
	group.Wait()
}
