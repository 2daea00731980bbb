package replica

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

func TestDetachedReturnsWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		d := Detach(serve.LeafFunc[int, int](func(_ context.Context, req int) (int, error) {
			if req == 0 {
				<-hang
			}
			if req < 0 {
				panic("negative")
			}
			return req, nil
		}), 2)
		if got, err := d.Call(t.Context(), 7); got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		var p *serve.PanicError
		if _, err := d.Call(t.Context(), -1); !errors.As(err, &p) || p.Value != "negative" {
			t.Errorf("%v", err)
		}
		why := errors.New("enough")
		for range 2 {
			ctx, cancel := context.WithCancelCause(t.Context())
			begin := time.Now()
			time.AfterFunc(ms, func() { cancel(why) })
			if _, err := d.Call(ctx, 0); err != why || time.Since(begin) != ms {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		}
		_, err := d.Call(t.Context(), 7)
		if !errors.Is(err, ErrHangs) || serve.OutcomeOf(err) != serve.Unavailable || d.Left() != 2 {
			t.Errorf("with two left behind: %v", err)
		}
		closed := make(chan struct{})
		go func() {
			d.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before the calls have returned")
		default:
		}
		if _, err := d.Call(t.Context(), 7); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		close(hang)
		<-closed
		if d.Left() != 0 {
			t.Errorf("%d left", d.Left())
		}
	})
}

func TestDetachedCallThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		linger := make(chan struct{})
		d := Detach(serve.LeafFunc[bool, int](func(_ context.Context, hang bool) (int, error) {
			if hang {
				<-linger
			}
			runtime.Goexit()
			return 0, nil
		}), 1)
		// The caller has all the time in the world, and is told at once.
		begin := time.Now()
		var p *serve.PanicError
		if _, err := d.Call(t.Context(), false); !errors.As(err, &p) || p.Value != nil || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		// One that was left behind does not count for ever.
		ctx, cancel := context.WithTimeout(t.Context(), ms)
		defer cancel()
		if _, err := d.Call(ctx, true); !errors.Is(err, context.DeadlineExceeded) || d.Left() != 1 {
			t.Errorf("%v, %d left", err, d.Left())
		}
		close(linger)
		d.Close()
		if d.Left() != 0 {
			t.Errorf("%d left", d.Left())
		}
	})
}
