package simulate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

// exactly 10 ms for each call.
func exact() Model {
	return Model{Median: 10 * time.Millisecond, Slow: time.Second, Workers: 1, Utilisation: 0.25}
}

func TestCallsWaitForAWorkerInTheOrderOfComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := exact()
		m.Workers = 2
		s := newServer(m, 1, 0, time.Now(), 0)
		start := time.Now()
		began := make([]time.Duration, 5)
		ended := make([]time.Duration, 5)
		var wg sync.WaitGroup
		for i := range began {
			wg.Go(func() {
				ctx := serve.WithBegun(t.Context(), func() { began[i] = time.Since(start) })
				if n, err := s.Call(ctx, 0); n != 1 || err != nil {
					t.Errorf("call: %d, %v", n, err)
				}
				ended[i] = time.Since(start)
			})
			synctest.Wait()
		}
		wg.Wait()
		for i, want := range []time.Duration{0, 0, 10, 10, 20} {
			if want *= time.Millisecond; began[i] != want || ended[i] != want+10*time.Millisecond {
				t.Errorf("call %d: began at %v and ended at %v, want %v and 10 ms later", i, began[i], ended[i], want)
			}
		}
		if sent, begun := s.counts(); sent != 5 || begun != 5 {
			t.Errorf("%d calls came and %d began, want 5 and 5", sent, begun)
		}
	})
}

func TestACancelledCallLeavesTheQueueOrItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(exact(), 1, 0, time.Now(), 0)
		start := time.Now()
		var wg sync.WaitGroup
		cause := errors.New("not needed")
		cancels := make([]context.CancelCauseFunc, 4)
		ended := make([]time.Duration, 4)
		errs := make([]error, 4)
		for i := range ended {
			var ctx context.Context
			ctx, cancels[i] = context.WithCancelCause(t.Context())
			wg.Go(func() {
				_, errs[i] = s.Call(ctx, 0)
				ended[i] = time.Since(start)
			})
			synctest.Wait()
		}
		// The second leaves the queue, the first its worker: the third begins at 5 ms.
		cancels[1](cause)
		<-time.After(5 * time.Millisecond)
		cancels[0](cause)
		wg.Wait()
		for i, want := range []time.Duration{5, 0, 15, 25} {
			if ended[i] != want*time.Millisecond {
				t.Errorf("call %d ended at %v, want %v ms", i, ended[i], int(want))
			}
			if i < 2 != errors.Is(errs[i], cause) {
				t.Errorf("call %d: error %v", i, errs[i])
			}
			cancels[i](nil)
		}
		if sent, begun := s.counts(); sent != 4 || begun != 3 {
			t.Errorf("%d calls came and %d began, want 4 and 3", sent, begun)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Call(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose context has ended: %v", err)
		}
		// A worker given to a call at the moment in which it is cancelled is passed on.
		for round := range 100 {
			first, cancelFirst := context.WithCancelCause(t.Context())
			second, cancelSecond := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			for _, ctx := range []context.Context{first, second} {
				wg.Go(func() {
					if _, err := s.Call(ctx, 0); !errors.Is(err, cause) {
						t.Errorf("round %d: %v, want the cause", round, err)
					}
				})
				synctest.Wait()
			}
			cancelFirst(cause)
			cancelSecond(cause)
			wg.Wait()
		}
		if s.mu.idle != 1 || len(s.mu.waiting) != 0 {
			t.Errorf("%d idle workers and %d that wait, want 1 and 0", s.mu.idle, len(s.mu.waiting))
		}
	})
}

func TestASlowCallKeepsItsWorkerOnlyIfTheModelSaysSo(t *testing.T) {
	for _, holds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := exact()
			m.Share, m.Holds = 1, holds
			s := newServer(m, 1, 0, time.Now(), 0)
			start := time.Now()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if _, err := s.Call(t.Context(), 0); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			want := 1020 * time.Millisecond
			if holds {
				want = 2020 * time.Millisecond
			}
			if took := time.Since(start); took != want {
				t.Errorf("two slow calls that hold their worker (%v) took %v, want %v", holds, took, want)
			}
		})
	}
}

func TestQueriesOfTheWarmUpAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(exact(), 1, 0, time.Now(), 2)
		for q := range 5 {
			if _, err := s.Call(t.Context(), Query(q)); err != nil {
				t.Fatal(err)
			}
		}
		if sent, begun := s.counts(); sent != 3 || begun != 3 {
			t.Errorf("%d calls came and %d began, want 3 and 3", sent, begun)
		}
	})
}
