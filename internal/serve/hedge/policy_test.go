package hedge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

// warm makes a class whose calls took 1 to 100 ms, each as often.
func warm(p *Policy, c Class) *Calls {
	calls := p.Calls(c)
	for i := range 1000 {
		calls.digest.Record(time.Now(), time.Duration(i/10+1)*ms)
	}
	return calls
}

// The delays that follow from warm with a full budget, at 80 %, with one token less, at 82.5 %, and half full, at 95 %: the ends of the
// buckets of 80, 83 and 95 ms.
const (
	tail80 = 81788927 * time.Nanosecond
	tail82 = 83886079 * time.Nanosecond
	tail95 = 96468991 * time.Nanosecond
)

func TestDelayFollowsTheLiveQuantile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{})
		c := p.Calls(Class{Name: "search", Safe: true})
		if d := c.Delay(); d != 0 {
			t.Errorf("nothing is known, and the delay is %v", d)
		}
		for range 63 {
			c.digest.Record(time.Now(), 10*ms)
		}
		<-time.After(100 * ms)
		if d := c.Delay(); d != 0 {
			t.Errorf("too little is known, and the delay is %v", d)
		}
		c.digest.Record(time.Now(), 10*ms)
		if d := c.Delay(); d != 0 {
			t.Errorf("a delay of %v before it is due for a refresh", d)
		}
		<-time.After(100 * ms)
		// Calls that take as long as all others are not hedged.
		if d := c.Delay(); d < 10*ms || d > 10*ms+10*ms/32 {
			t.Errorf("the delay is %v", d)
		}
		<-time.After(2 * time.Minute)
		if d := c.Delay(); d != 0 {
			t.Errorf("all is forgotten, and the delay is %v", d)
		}
		if d := warm(p, Class{Name: "other", Safe: true}).Delay(); d != tail80 {
			t.Errorf("of another class: %d", d)
		}
	})
}

func TestDelayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{MinDelay: 200 * ms})
		if d := warm(p, Class{Name: "search", Safe: true}).Delay(); d != 200*ms {
			t.Errorf("not under 200 ms: %v", d)
		}
		p = NewPolicy(PolicyOptions{MaxDelay: 20 * ms, InitialDelay: 5 * ms})
		if d := p.Calls(Class{Name: "new", Safe: true}).Delay(); d != 5*ms {
			t.Errorf("initially: %v", d)
		}
		if d := warm(p, Class{Name: "search", Safe: true}).Delay(); d != 20*ms {
			t.Errorf("not over 20 ms: %v", d)
		}
		for _, c := range []*Calls{
			warm(p, Class{Name: "write"}),
			warm(NewPolicy(PolicyOptions{Share: -1}), Class{Name: "search", Safe: true}),
			warm(NewPolicy(PolicyOptions{MaxAttempts: 1}), Class{Name: "search", Safe: true}),
		} {
			if d := c.Delay(); d != 0 {
				t.Errorf("%+v is never hedged, but the delay is %v", c.class, d)
			}
		}
	})
}

func TestDoHedgesAtTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{})
		c := warm(p, Class{Name: "search", Safe: true})
		f := newFleet(plan{work: time.Second}, plan{work: time.Second}, plan{work: ms}, plan{})
		got, err := Do(t.Context(), c, 4, DoOptions{}, f.call)
		if got != 2 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		end := tail80 + tail82 + ms
		f.expect(t, fmt.Sprintf("0 0s-%v overtaken", end), fmt.Sprintf("1 %v-%v overtaken", tail80, end),
			fmt.Sprintf("2 %v-%v answered", end-ms, end))
		if s := p.Stats(); s != (Stats{Calls: 1, Hedges: 2, HedgesWon: 1}) {
			t.Errorf("%+v", s)
		}
		// Three attempts because of slowness are the most.
		f = newFleet(plan{work: time.Second}, plan{work: time.Second}, plan{work: time.Second}, plan{})
		if got, err := Do(t.Context(), c, 4, DoOptions{}, f.call); got != 0 || err != nil || len(f.events) != 3 {
			t.Errorf("replica %d, %v, %v", got, err, f.events)
		}
		// Two of them are fit.
		f = newFleet(plan{work: time.Second}, plan{work: time.Second}, plan{})
		if got, err := Do(t.Context(), c, 3, DoOptions{Fit: 2}, f.call); got != 0 || err != nil || len(f.events) != 2 {
			t.Errorf("replica %d, %v, %v", got, err, f.events)
		}
		// One in time costs nothing.
		f = newFleet(plan{work: 81 * ms}, plan{})
		if got, err := Do(t.Context(), c, 2, DoOptions{}, f.call); got != 0 || err != nil || len(f.events) != 1 {
			t.Errorf("replica %d, %v, %v", got, err, f.events)
		}
		// No timer is set that would fire after the caller's time.
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		f = newFleet(plan{work: time.Second}, plan{})
		var report Report
		if _, err := Do(ctx, c, 2, DoOptions{Report: &report}, f.call); !errors.Is(err, context.DeadlineExceeded) || report.Delay != 0 {
			t.Errorf("%v, %+v", err, report)
		}
	})
}

func TestUnsafeIsNeverSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{InitialDelay: ms})
		c := warm(p, Class{Name: "write"})
		f := newFleet(plan{work: time.Hour}, plan{})
		if got, err := Do(t.Context(), c, 2, DoOptions{}, f.call); got != 0 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		f.expect(t, "0 0s-1h0m0s answered")
		f = newFleet(plan{work: ms, err: errBroken}, plan{})
		if _, err := Do(t.Context(), c, 2, DoOptions{}, f.call); err != errBroken {
			t.Errorf("%v", err)
		}
		f.expect(t, "0 0s-1ms failed")

		// Only what is known to have had no effect moves on.
		refused := errors.New("refused")
		c = p.Calls(Class{Name: "careful write", Retryable: func(err error) bool { return err == refused }})
		f = newFleet(plan{work: ms, err: refused}, plan{work: 3 * ms, err: errBroken}, plan{})
		var report Report
		if _, err := Do(t.Context(), c, 3, DoOptions{Report: &report}, f.call); err != errBroken {
			t.Errorf("%v", err)
		}
		f.expect(t, "0 0s-1ms failed", "1 1ms-4ms failed")
		if fmt.Sprint(report) != "{0s false [{0 first 0s 1ms true failed refused} {1 retry 1ms 3ms true failed broken}]}" {
			t.Errorf("%v", report)
		}
		if s := p.Stats(); s.Hedges != 0 || s.Retries != 1 {
			t.Errorf("%+v", s)
		}
		defer func() {
			if recover() == nil {
				t.Error("a class became safe")
			}
		}()
		p.Calls(Class{Name: "write", Safe: true})
	})
}

func TestBudgetHoldsWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Burst: 10, InitialDelay: 5 * ms})
		c := p.Calls(Class{Name: "search", Safe: true})
		// Every replica is slow: all 400 calls would be hedged twice.
		var wg sync.WaitGroup
		for range 400 {
			wg.Go(func() {
				f := newFleet(plan{work: time.Second}, plan{work: time.Second}, plan{work: time.Second})
				if _, err := Do(t.Context(), c, 3, DoOptions{}, f.call); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s := p.Stats()
		if s.Calls != 400 || s.Hedges > 10+20 || s.Hedges < 10 || s.HedgesDenied == 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestBudgetIsSharedByClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Burst: 1, InitialDelay: ms})
		a, b := p.Calls(Class{Name: "a", Safe: true}), p.Calls(Class{Name: "b", Safe: true})
		slow := func(c *Calls) (events int, denied bool) {
			f := newFleet(plan{work: 10 * ms}, plan{work: 20 * ms})
			var report Report
			if _, err := Do(t.Context(), c, 2, DoOptions{Report: &report}, f.call); err != nil {
				t.Error(err)
			}
			return len(f.events), report.Denied
		}
		if n, denied := slow(a); n != 2 || denied {
			t.Errorf("the first: %d attempts", n)
		}
		if n, denied := slow(b); n != 1 || !denied {
			t.Errorf("another class, of an empty budget: %d attempts", n)
		}
		for range 18 {
			if _, err := Do(t.Context(), b, 2, DoOptions{}, newFleet(plan{}).call); err != nil {
				t.Error(err)
			}
		}
		// 20 calls later, this one included, there is a token again.
		if n, denied := slow(a); n != 2 || denied {
			t.Errorf("later: %d attempts", n)
		}
	})
}

func TestDeniedCallAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Burst: 1, Share: 0.5, InitialDelay: 10 * ms})
		c := p.Calls(Class{Name: "search", Safe: true})
		if !p.hedge() {
			t.Fatal("no token")
		}
		time.AfterFunc(25*ms, func() { p.begin() })
		f := newFleet(plan{work: time.Second}, plan{work: ms})
		if got, err := Do(t.Context(), c, 2, DoOptions{}, f.call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		// Half a token came with the call itself: refused at 10 and 20 ms, asked again at 30.
		f.expect(t, "0 0s-31ms overtaken", "1 30ms-31ms answered")
		if s := p.Stats(); s.HedgesDenied != 1 || s.Hedges != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Where one call in a hundred is slow, an empty budget asks for the latency of a slow one. A call must not sleep until then when the
// budget is filled before.
func TestNoCallSleepsThroughABudgetThatFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{})
		c := p.Calls(Class{Name: "search", Safe: true})
		for i := range 1000 {
			took := 10 * ms
			if i%100 == 0 {
				took = time.Second
			}
			c.digest.Record(time.Now(), took)
		}
		for p.hedge() {
		}
		if d := c.Delay(); d < time.Second {
			t.Errorf("with no budget the delay is %v", d)
		}
		filled := 40 * ms
		time.AfterFunc(filled, func() { p.hedges.tokens.Store(p.hedges.full) })
		f := newFleet(plan{work: time.Second}, plan{work: ms})
		if got, err := Do(t.Context(), c, 2, DoOptions{}, f.call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		if sent := f.events[1].sent; sent < filled || sent > filled*3/2+ms {
			t.Errorf("sent at %v, and there was budget at %v", sent, filled)
		}
	})
}

func TestScarceBudgetGoesToTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Burst: 100})
		c := warm(p, Class{Name: "search", Safe: true})
		last := c.Delay()
		if last != tail80 {
			t.Errorf("with a full budget: %v", last)
		}
		for range 50 {
			p.hedge()
		}
		if d := c.Delay(); d != tail95 {
			t.Errorf("with half a budget: %v", d)
		}
		for p.hedge() {
			if d := c.Delay(); d < last {
				t.Errorf("the delay sinks from %v to %v as the budget does", last, d)
			} else {
				last = d
			}
		}
		if last <= 99*ms {
			t.Errorf("with no budget: %v", last)
		}
		// A timer that was set while there was plenty waits for the delay of now.
		p.hedges.tokens.Store(p.hedges.full)
		time.AfterFunc(50*ms, func() { p.hedges.tokens.Store(10 * token) })
		f := newFleet(plan{work: time.Second}, plan{work: ms})
		if got, err := Do(t.Context(), c, 2, DoOptions{}, f.call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		// With a tenth of the tokens the fifth part of 5 % is asked for: some 99 ms.
		if sent := f.events[1].sent; sent <= 98*ms || sent > 102*ms+20*time.Microsecond {
			t.Errorf("sent at %v", sent)
		}
	})
}

// TestAdaptiveDelayBeatsFirstCome plays bursts: calls arrive together, more of them slow than the budget allows. The tail after
// hedging must be better than with a quantile that does not move.
func TestAdaptiveDelayBeatsFirstCome(t *testing.T) {
	run := func(maxQuantile float64) (over int, s Stats) {
		synctest.Test(t, func(t *testing.T) {
			p := NewPolicy(PolicyOptions{MaxQuantile: maxQuantile, Burst: 16, Window: time.Hour})
			c := p.Calls(Class{Name: "search", Safe: true})
			rng := rand.New(rand.NewPCG(5, 6))
			var mu sync.Mutex
			for round := range 200 {
				var wg sync.WaitGroup
				for range 50 {
					// Every tenth round is a burst: half of its calls are slowed a little, and a few are truly slow.
					work := time.Duration(5+rng.IntN(15)) * ms
					if round%10 >= 8 && rng.IntN(2) == 0 {
						work += 20 * ms
					}
					if rng.IntN(100) == 0 {
						work = time.Second
					}
					wg.Go(func() {
						f := newFleet(plan{work: work}, plan{work: 10 * ms})
						if _, err := Do(t.Context(), c, 2, DoOptions{}, f.call); err != nil {
							t.Error(err)
						}
						// The first rounds only fill the digest.
						if round >= 20 && time.Since(f.began) > 100*ms {
							mu.Lock()
							over++
							mu.Unlock()
						}
					})
				}
				wg.Wait()
			}
			s = p.Stats()
		})
		return over, s
	}
	fixed, fs := run(0.95)
	adaptive, as := run(0.999)
	t.Logf("calls over 100 ms: %d with a fixed quantile (%+v), %d with the adaptive one (%+v)", fixed, fs, adaptive, as)
	if adaptive > fixed {
		t.Errorf("%d calls stay slow with the adaptive quantile, %d with a fixed one", adaptive, fixed)
	}
	for _, s := range []Stats{fs, as} {
		if float64(s.Hedges) > 16+0.05*float64(s.Calls) {
			t.Errorf("over the budget: %+v", s)
		}
	}
}

func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{RetryBurst: 10})
		c := p.Calls(Class{Name: "search", Safe: true})
		sent, denied := 0, 0
		for range 100 {
			f := newFleet(plan{err: errBroken}, plan{err: errBroken}, plan{err: errOther})
			var report Report
			if _, err := Do(t.Context(), c, 3, DoOptions{Report: &report}, f.call); err == nil {
				t.Error("no error")
			}
			sent += len(f.events)
			if report.Denied {
				denied++
			}
		}
		s := p.Stats()
		if s.Retries > 10+20 || s.Retries < 28 || sent != 100+int(s.Retries) || denied != int(s.RetriesDenied) || denied == 0 {
			t.Errorf("%+v, %d attempts", s, sent)
		}
	})
	// The same while hedges are possible, and none at all.
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{RetryShare: -1, InitialDelay: 10 * ms})
		c := p.Calls(Class{Name: "search", Safe: true})
		f := newFleet(plan{work: ms, err: errBroken}, plan{})
		var report Report
		if _, err := Do(t.Context(), c, 2, DoOptions{Report: &report}, f.call); err != errBroken || !report.Denied {
			t.Errorf("%v, %+v", err, report)
		}
		f.expect(t, "0 0s-1ms failed")
	})
}

type crash struct{ error }

func (crash) Crash() bool { return true }

func TestNoThirdReplicaForACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, delay := range []time.Duration{0, 10 * ms} {
			p := NewPolicy(PolicyOptions{InitialDelay: delay})
			c := p.Calls(Class{Name: "search", Safe: true})
			f := newFleet(plan{err: crash{errBroken}}, plan{work: ms, err: crash{errOther}}, plan{})
			if _, err := Do(t.Context(), c, 3, DoOptions{}, f.call); !errors.Is(err, crash{errOther}) {
				t.Errorf("%v", err)
			}
			f.expect(t, "0 0s-0s failed", "1 0s-1ms failed")
		}
	})
}

func TestPolicyTies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, untied := range []bool{false, true} {
			p := NewPolicy(PolicyOptions{InitialDelay: 10 * ms, Untied: untied})
			c := p.Calls(Class{Name: "search", Safe: true})
			f := newFleet(plan{queue: 40 * ms, work: 5 * ms}, plan{queue: 2 * ms, work: 40 * ms})
			got, err := Do(t.Context(), c, 2, DoOptions{}, f.call)
			want, skipped := 1, uint64(1)
			if untied {
				want, skipped = 0, 0
			}
			if got != want || err != nil || p.Stats().Skipped != skipped {
				t.Errorf("untied %v: replica %d, %v, %+v", untied, got, err, p.Stats())
			}
		}
	})
}

func TestLosersAreRecordedAsAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{InitialDelay: 10 * ms})
		c := p.Calls(Class{Name: "search", Safe: true})
		f := newFleet(plan{work: time.Second}, plan{work: 5 * ms})
		if _, err := Do(t.Context(), c, 2, DoOptions{}, f.call); err != nil {
			t.Error(err)
		}
		c.digest.Read(time.Now(), &c.snapshot)
		if s := &c.snapshot; s.Took != 1 || s.AtLeast != 1 || s.Quantile(0.9) < 15*ms {
			t.Errorf("%d took, %d at least, 90 %%: %v", s.Took, s.AtLeast, s.Quantile(0.9))
		}
	})
}

// TestDelayDoesNotCollapse hedges for a long time with a slow replica that always loses: its latencies stay known.
func TestDelayDoesNotCollapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Window: 10 * time.Second, Refresh: time.Second})
		c := p.Calls(Class{Name: "search", Safe: true})
		rng := rand.New(rand.NewPCG(3, 4))
		for range 3000 {
			work := time.Duration(10+rng.IntN(10)) * ms
			if rng.IntN(30) == 0 {
				work = 500 * ms
			}
			f := newFleet(plan{work: work}, plan{work: time.Duration(10+rng.IntN(10)) * ms})
			if _, err := Do(t.Context(), c, 2, DoOptions{}, f.call); err != nil {
				t.Error(err)
			}
		}
		s := p.Stats()
		if d := c.Delay(); d < 18*ms || d > 60*ms || s.Hedges > 16+150 || s.Hedges < 90 {
			t.Errorf("delay %v, %+v", d, s)
		}
		t.Logf("delay %v, %+v", c.Delay(), s)
	})
}

// TestBudgetIsUsedWhereMuchIsSlow has more slow calls than the budget allows to hedge: their latency is the 95th percentile, but
// waiting for it would help none of them.
func TestBudgetIsUsedWhereMuchIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Refresh: time.Second})
		c := p.Calls(Class{Name: "search", Safe: true})
		rng := rand.New(rand.NewPCG(3, 4))
		for range 3000 {
			work := time.Duration(10+rng.IntN(10)) * ms
			if rng.IntN(12) == 0 {
				work = 500 * ms
			}
			f := newFleet(plan{work: work}, plan{work: time.Duration(10+rng.IntN(10)) * ms})
			if _, err := Do(t.Context(), c, 2, DoOptions{}, f.call); err != nil {
				t.Error(err)
			}
		}
		if s := p.Stats(); s.Hedges > 16+150 || s.HedgesWon < 120 {
			t.Errorf("%+v", s)
		}
		t.Logf("delay %v, %+v", c.Delay(), p.Stats())
	})
}

func TestBegunIsReported(t *testing.T) {
	c := NewPolicy(PolicyOptions{}).Calls(Class{Name: "write"})
	for _, want := range []bool{true, false} {
		var report Report
		if _, err := Do(t.Context(), c, 2, DoOptions{Report: &report}, func(ctx context.Context, _ int) (int, error) {
			if want {
				serve.Begun(ctx)
			}
			return 0, nil
		}); err != nil || report.Attempts[0].Begun != want {
			t.Errorf("%v, %+v", err, report)
		}
	}
	if _, err := Do(t.Context(), c, 0, DoOptions{}, func(context.Context, int) (int, error) { return 0, nil }); err != ErrNoReplica {
		t.Error(err)
	}
}

func BenchmarkDo(b *testing.B) {
	for _, bench := range []struct {
		name string
		n    int
		safe bool
	}{{"hedgeable", 3, true}, {"one", 1, true}, {"unsafe", 3, false}} {
		b.Run(bench.name, func(b *testing.B) {
			c := warm(NewPolicy(PolicyOptions{Window: time.Hour}), Class{Name: "search", Safe: bench.safe})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Do(ctx, c, bench.n, DoOptions{}, func(ctx context.Context, i int) (int, error) { return i, nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What calls put in while the bucket is full is lost: however many came in time before, a burst has no more than Burst.
func TestBudgetsHoldNoMoreThanTheirBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{Burst: 10, RetryBurst: 10, InitialDelay: 5 * ms})
		c := p.Calls(Class{Name: "search", Safe: true})
		quick := func(_ context.Context, i int) (int, error) { return i, nil }
		for range 400 {
			if _, err := Do(t.Context(), c, 3, DoOptions{}, quick); err != nil {
				t.Error(err)
			}
		}
		const calls = 100
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				f := newFleet(plan{work: time.Second}, plan{work: time.Second}, plan{work: time.Second})
				if _, err := Do(t.Context(), c, 3, DoOptions{}, f.call); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s := p.Stats(); s.Hedges < 10 || float64(s.Hedges) > 10+0.05*calls {
			t.Errorf("%+v", s)
		}
		for range calls {
			f := newFleet(plan{err: errBroken}, plan{err: errBroken}, plan{err: errBroken})
			if _, err := Do(t.Context(), c, 3, DoOptions{}, f.call); err != errBroken {
				t.Error(err)
			}
		}
		if s := p.Stats(); s.Retries < 10 || float64(s.Retries) > 10+0.2*calls {
			t.Errorf("%+v", s)
		}
	})
}

// A call may outlive what is known of its class. Without a delay there is no hedge.
func TestNoHedgeWhenTheClassHasLostItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{MinSamples: 4, Window: 6 * time.Second})
		c := p.Calls(Class{Name: "search", Safe: true})
		for range 64 {
			c.digest.Record(time.Now(), 10*time.Second)
		}
		time.AfterFunc(8*time.Second, func() {
			if d := c.Delay(); d != 0 {
				t.Errorf("all is forgotten, and the delay is %v", d)
			}
		})
		// And it is hedged when the class is known again.
		time.AfterFunc(30*time.Second, func() {
			for range 64 {
				c.digest.Record(time.Now(), 5*time.Second)
			}
			if d := c.Delay(); d < 5*time.Second {
				t.Errorf("all is known again, and the delay is %v", d)
			}
		})
		f := newFleet(plan{work: time.Hour}, plan{work: ms})
		if got, err := Do(t.Context(), c, 2, DoOptions{}, f.call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		if sent := f.events[1].sent; sent < 30*time.Second || sent > 46*time.Second {
			t.Errorf("hedged at %v", sent)
		}
		if s := p.Stats(); s.Hedges != 1 || s.HedgesDenied != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The first calls of a fan-out come together, and one of them makes the delays: the others have the initial one, and not none.
func TestFirstCallsHaveTheInitialDelay(t *testing.T) {
	c := NewPolicy(PolicyOptions{InitialDelay: 5 * ms}).Calls(Class{Name: "search", Safe: true})
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	if d := c.Delay(); d != 5*ms {
		t.Errorf("while another makes the delays: %v", d)
	}
}

// No time at all is a delay, and not the lack of one.
func TestCallsQuickerThanTheClockAreHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewPolicy(PolicyOptions{MinDelay: 2 * ms}).Calls(Class{Name: "search", Safe: true})
		for range 64 {
			c.digest.Record(time.Now(), 0)
		}
		if d := c.Delay(); d != 2*ms {
			t.Errorf("the delay is %v", d)
		}
	})
}

func TestDenialsAreCountedOnceForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{RetryShare: -1, Burst: 2, InitialDelay: 10 * ms})
		c := p.Calls(Class{Name: "search", Safe: true})
		// Two attempts run when the budget of hedges is empty. The first failure has a retry refused, and so has the second.
		f := newFleet(plan{work: 15 * ms, err: errBroken}, plan{work: 20 * ms, err: errBroken}, plan{work: 30 * ms}, plan{})
		var report Report
		if got, err := Do(t.Context(), c, 4, DoOptions{Report: &report}, f.call); got != 2 || err != nil || !report.Denied {
			t.Errorf("replica %d, %v, %+v", got, err, report)
		}
		if s := p.Stats(); s.Hedges != 2 || s.RetriesDenied != 1 || s.HedgesDenied != 0 {
			t.Errorf("%+v", s)
		}
		// A refused retry does not hide that a hedge is refused as well.
		for p.hedge() {
		}
		p.hedges.tokens.Store(token)
		f = newFleet(plan{work: 15 * ms, err: errBroken}, plan{work: 50 * ms}, plan{})
		if got, err := Do(t.Context(), c, 3, DoOptions{}, f.call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		if s := p.Stats(); s.RetriesDenied != 2 || s.HedgesDenied != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestErrorsHaveOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want serve.Outcome
	}{
		{ErrNoReplica, serve.Unavailable}, {ErrLost, serve.TimedOut}, {ErrOvertaken, serve.TimedOut}, {ErrSkipped, serve.TimedOut},
	} {
		if got := serve.OutcomeOf(fmt.Errorf("shard 7: %w", c.err)); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if !errors.Is(ErrOvertaken, ErrLost) || errors.Is(ErrLost, ErrOvertaken) || errors.Is(ErrSkipped, ErrLost) {
		t.Error("to be overtaken is to lose, and no more")
	}
}

// Where calls are few a call does not wait for a replica that hangs until others have filled the budget; and a second allows no more than it is said to.
func TestAnEmptyBudgetFillsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{InitialDelay: 10 * ms, PerSecond: 2, Burst: 4})
		c := p.Calls(Class{Name: "search", Safe: true})
		for p.hedge() {
		}
		hung := plan{work: time.Hour}
		began := time.Now()
		if got, err := Do(t.Context(), c, 2, DoOptions{}, newFleet(hung, plan{}).call); got != 1 || err != nil {
			t.Errorf("replica %d, %v", got, err)
		}
		if took := time.Since(began); took < 400*ms || took > time.Second {
			t.Errorf("it took %v", took)
		}
		// What is not taken does not add up beyond Burst.
		<-time.After(time.Hour)
		p.hedges.drip(time.Since(p.base))
		n := 0
		for p.hedge() {
			n++
		}
		if n != 4 {
			t.Errorf("%d hedges after an hour", n)
		}
		began = time.Now()
		for i := range 20 {
			if _, err := Do(t.Context(), c, 2, DoOptions{}, newFleet(hung, plan{}).call); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		// 20 hedges need 20 tokens, of which 20 calls put in one.
		if took := time.Since(began); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("twenty took %v", took)
		}
		// Retries likewise.
		for p.retry() {
		}
		<-time.After(600 * ms)
		if !p.retry() || p.retry() {
			t.Error("0.6 s allow one retry")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := NewPolicy(PolicyOptions{InitialDelay: 10 * ms})
		for p.hedge() {
		}
		<-time.After(time.Hour)
		if p.hedges.drip(time.Since(p.base)); p.hedge() {
			t.Error("by default time allows nothing")
		}
	})
}
