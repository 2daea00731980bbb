package admit

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustEnter(t *testing.T, g *Gate, weight int64) *Place {
	t.Helper()
	p, err := g.Enter(context.Background(), weight)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestQueueIsBoundedAndServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New("searches", 1, 2, time.Second)
		first := mustEnter(t, g, 1)
		got := make(chan int, 2)
		var places [2]*Place
		for i := range 2 {
			go func() {
				p, err := g.Enter(context.Background(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				places[i] = p
				got <- i
			}()
			synctest.Wait()
		}
		if g.Waiting() != 2 {
			t.Fatalf("%d wait", g.Waiting())
		}
		_, err := g.Enter(context.Background(), 1)
		var r *Refusal
		if !errors.As(err, &r) || !errors.Is(err, ErrRefused) || r.Waited || r.Limit != 1 || r.Queue != 2 || r.RetryAfter < minRetry {
			t.Fatalf("with a full queue: %v", err)
		}
		first.Release()
		if i := <-got; i != 0 {
			t.Fatalf("waiter %d was served first", i)
		}
		places[0].Release()
		places[0].Release() // again: nothing happens
		if i := <-got; i != 1 {
			t.Fatalf("waiter %d was served second", i)
		}
		places[1].Release()
		if g.Used() != 0 || g.Waiting() != 0 {
			t.Fatalf("%d used, %d waiting at the end", g.Used(), g.Waiting())
		}
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New("writes", 1, 4, 5*time.Second)
		held := mustEnter(t, g, 1)
		begin := time.Now()
		_, err := g.Enter(context.Background(), 1)
		var r *Refusal
		if !errors.As(err, &r) || !r.Waited || time.Since(begin) != 5*time.Second {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}

		why := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, err := g.Enter(ctx, 1); !errors.Is(err, why) {
			t.Fatalf("a caller that left: %v", err)
		}
		if _, err := g.Enter(ctx, 1); !errors.Is(err, why) {
			t.Fatalf("a caller that had left: %v", err)
		}
		if g.Waiting() != 0 {
			t.Fatal("a waiter that gave up is still counted")
		}
		held.Release()
		mustEnter(t, g, 1).Release()
	})
}

func TestWeightAboveTheLimitIsRefused(t *testing.T) {
	g := New("bytes", 100, 4, time.Hour)
	if _, err := g.Enter(context.Background(), 101); !errors.Is(err, ErrRefused) {
		t.Fatalf("got %v", err)
	}
	p := mustEnter(t, g, 60)
	if _, err := g.TryEnter(41); !errors.Is(err, ErrRefused) {
		t.Fatalf("got %v", err)
	}
	q, err := g.TryEnter(40)
	if err != nil {
		t.Fatal(err)
	}
	q.Release()
	p.Release()
	mustEnter(t, g, 100).Release()
}

func TestRetryFollowsHoldingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New("searches", 1, 1, time.Millisecond)
		for range 40 {
			p := mustEnter(t, g, 1)
			<-time.After(2 * time.Second)
			p.Release()
		}
		p := mustEnter(t, g, 1)
		defer p.Release()
		_, err := g.Enter(context.Background(), 1)
		var r *Refusal
		if !errors.As(err, &r) || r.RetryAfter < time.Second || r.RetryAfter > 4*time.Second {
			t.Fatalf("places are held for 2 s: %v", err)
		}
	})
}

func TestRetryFollowsTheOldestHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := func(g *Gate) time.Duration {
			t.Helper()
			_, err := g.TryEnter(1)
			var r *Refusal
			if !errors.As(err, &r) {
				t.Fatalf("got %v", err)
			}
			return r.RetryAfter
		}
		g := New("bulk loads", 2, 1, time.Millisecond)
		long, short := mustEnter(t, g, 1), mustEnter(t, g, 1)
		if got := retry(g); got != minRetry {
			t.Errorf("places that were just given out: %v", got)
		}
		<-time.After(4 * time.Second)
		short.Release()
		short = mustEnter(t, g, 1)
		if got := retry(g); got != 2*time.Second {
			t.Errorf("one of two places is held for 4 s: %v", got)
		}
		<-time.After(time.Hour)
		if got := retry(g); got != maxRetry {
			t.Errorf("held for an hour: %v", got)
		}
		// Whichever goes first, the list of holders stays whole.
		long.Release()
		long = mustEnter(t, g, 1)
		short.Release()
		long.Release()
		if g.holders.first != nil || g.holders.last != nil || g.oldest() != 0 {
			t.Error("a place that was given back is still listed")
		}
	})
}

func TestNeverMoreThanTheLimit(t *testing.T) {
	g := New("bytes", 10, 64, time.Minute)
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for range 200 {
				w := 1 + rng.Int64N(5)
				p, err := g.Enter(context.Background(), w)
				if err != nil {
					t.Error(err)
					return
				}
				now := inside.Add(w)
				for {
					m := most.Load()
					if now <= m || most.CompareAndSwap(m, now) {
						break
					}
				}
				inside.Add(-w)
				p.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() > 10 || g.Used() != 0 {
		t.Fatalf("%d at once, %d used at the end", most.Load(), g.Used())
	}
}
