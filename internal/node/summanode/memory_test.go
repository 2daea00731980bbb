package summanode

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/admit"
)

// loaded is a message of so many bytes that arrives, and takes twice that, and works for a while.
func loaded(ctx context.Context, m *memory, size int64, work time.Duration) error {
	const step = 1 << 20
	c := &claim{most: 3 * size}
	defer m.shrink(c, 0, 0)
	for c.held < 2*size {
		if err := m.take(ctx, c, step, 5*time.Second, time.Minute); err != nil {
			return err
		}
		<-time.After(time.Millisecond)
	}
	<-time.After(work)
	return nil
}

// TestMessagesThatArriveTogetherDoNotBlockEachOther has more messages arrive at once than there is memory for. Each takes memory piece by
// piece, and all of them end.
func TestMessagesThatArriveTogetherDoNotBlockEachOther(t *testing.T) {
	for _, c := range []struct {
		calls int
		size  int64
	}{{8, 30 << 20}, {4, 60 << 20}, {20, 25 << 20}} {
		synctest.Test(t, func(t *testing.T) {
			h := &emptyHost{limit: 256 << 20}
			m := newMemory(h)
			var calls sync.WaitGroup
			began := time.Now()
			for range c.calls {
				calls.Go(func() {
					if err := loaded(t.Context(), m, c.size, 900*time.Millisecond); err != nil {
						t.Errorf("%d of %d bytes: %v after %v", c.calls, c.size, err, time.Since(began))
					}
				})
			}
			calls.Wait()
			if m.held != 0 || h.charged != 0 || len(m.holds)+len(m.queue) != 0 || h.most > h.limit {
				t.Errorf("%d bytes are held, %d are charged, %d at most", m.held, h.charged, h.most)
			}
		})
	}
}

// TestAPromiseKeepsNobodyOut has a call that says that it needs everything, and takes little for a long time: others go on meanwhile.
func TestAPromiseKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(&emptyHost{limit: 256 << 20})
		slow := &claim{most: 1 << 40}
		if err := m.take(t.Context(), slow, 4<<20, time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 6 {
			calls.Go(func() {
				if err := loaded(t.Context(), m, 100<<20, 100*time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		m.shrink(slow, 0, 0)
	})
}

// TestMemoryThatDoesNotComeFree is waited for only so long, and longer where some comes free now and then; who leaves waits no longer.
func TestMemoryThatDoesNotComeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(&emptyHost{limit: 100})
		all := &claim{}
		for range 10 {
			if err := m.take(t.Context(), all, 10, time.Second, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		c := &claim{}
		began := time.Now()
		err := m.take(t.Context(), c, 50, time.Second, time.Minute)
		if !errors.Is(err, admit.ErrRefused) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		if err := m.take(gone, c, 50, time.Second, time.Minute); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		began = time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := m.take(t.Context(), c, 50, time.Second, time.Minute); err != nil || time.Since(began) != 4500*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
		for left := int64(90); left >= 50; left -= 10 {
			<-time.After(900 * time.Millisecond)
			m.shrink(all, left, 0)
		}
		calls.Wait()
		m.shrink(c, 0, 0)
		m.shrink(all, 0, 0)
		if m.held != 0 || len(m.queue) != 0 {
			t.Errorf("%d bytes are held, %d wait", m.held, len(m.queue))
		}
	})
}
