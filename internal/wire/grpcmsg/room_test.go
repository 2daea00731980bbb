package grpcmsg

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

// TestRoomIsTakenBeforeItIsUsed lets replies take room at once: together they never have more than there is.
func TestRoomIsTakenBeforeItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOutgoing(16 * mib)
		var calls sync.WaitGroup
		var mu sync.Mutex
		refused, had := 0, 0
		for range 50 {
			calls.Go(func() {
				r := o.Room()
				defer r.Give()
				for range 4 {
					if err := r.Take(t.Context(), 2*mib, time.Second, nil); err != nil {
						mu.Lock()
						defer mu.Unlock()
						refused++
						return
					}
					if n := o.Held(); n > 16*mib {
						t.Errorf("%d bytes are held", n)
					}
				}
				mu.Lock()
				had++
				mu.Unlock()
				<-time.After(100 * time.Millisecond)
			})
		}
		calls.Wait()
		if had == 0 || had+refused != 50 {
			t.Errorf("%d had what they wanted, %d were refused", had, refused)
		}
		if o.Held() != 0 || o.waiting != 0 || len(o.queue) != 0 {
			t.Errorf("%d bytes are held, %d by %d that wait", o.Held(), o.waiting, len(o.queue))
		}
	})
}

func TestRoomIsWaitedForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOutgoing(8 * mib)
		unread := o.Room()
		if err := unread.Take(t.Context(), 7*mib, 0, nil); err != nil {
			t.Fatal(err)
		}
		var order []int
		waits := 0
		var mu sync.Mutex
		var calls sync.WaitGroup
		for k := range 3 {
			calls.Go(func() {
				r := o.Room()
				r.Hold(100 << 10)
				if err := r.Take(t.Context(), 2*mib, time.Minute, func() {
					mu.Lock()
					waits++
					mu.Unlock()
				}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, k)
				mu.Unlock()
				r.Give()
			})
			synctest.Wait()
		}
		// A short one does not wait behind long ones; one that has too much in hand is refused at once, and one that is late or left after that.
		short := o.Room()
		if err := short.Take(t.Context(), FreeReply, time.Minute, nil); err != nil {
			t.Error(err)
		}
		short.Give()
		heavy := o.Room()
		heavy.Hold(4 * mib)
		if err := heavy.Take(t.Context(), mib, time.Minute, func() { t.Error("it waits") }); !errors.Is(err, ErrUnread) {
			t.Error(err)
		}
		heavy.Give()
		late := o.Room()
		began := time.Now()
		if err := late.Take(t.Context(), mib, time.Second, nil); !errors.Is(err, ErrUnread) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := late.Take(gone, mib, time.Second, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if waits != 3 || len(order) != 0 {
			t.Errorf("%d wait, %v are done", waits, order)
		}
		unread.Give()
		calls.Wait()
		if len(order) != 3 || o.Held() != 0 || o.waiting != 0 {
			t.Errorf("%v, %d bytes are held", order, o.Held())
		}
		// One that is longer than all the room has it to itself.
		long := o.Room()
		if err := long.Take(t.Context(), 20*mib, 0, nil); err != nil {
			t.Error(err)
		}
		long.Give()
	})
}

// TestBuffersUseTheRoomOfTheirReply counts nothing twice.
func TestBuffersUseTheRoomOfTheirReply(t *testing.T) {
	o := NewOutgoing(8 * mib)
	var conn Replies
	room := o.Room()
	if err := room.Take(t.Context(), 2*mib, 0, nil); err != nil {
		t.Fatal(err)
	}
	r := conn.BeginIn(room)
	a, b := r.Get(mib), r.Get(mib)
	if n := o.Held(); n < 2*mib || n > int64(cap(*a)+cap(*b)) {
		t.Errorf("%d bytes are held for buffers of %d and %d", n, cap(*a), cap(*b))
	}
	r.Seal()
	room.Give()
	r.Put(a)
	r.Put(b)
	if n := o.Held(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}
