package grpcmsg

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepliesWaitForRoom holds buffers and lets replies wait for them.
func TestRepliesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOutgoing(4 << 20)
		ctx := context.Background()
		if err := o.Wait(ctx, 16<<20, time.Second); err != nil {
			t.Errorf("longer than all the room, alone: %v", err)
		}
		held := int64(3 << 20)
		o.take(held)
		if err := o.Wait(ctx, FreeReply, time.Second); err != nil {
			t.Errorf("a short one: %v", err)
		}
		if err := o.Wait(ctx, 4<<20-int(held), time.Second); err != nil {
			t.Errorf("one that fits: %v", err)
		}
		began := time.Now()
		if err := o.Wait(ctx, 2<<20, time.Second); !errors.Is(err, ErrUnread) || time.Since(began) != time.Second {
			t.Errorf("without room: %v after %v", err, time.Since(began))
		}
		time.AfterFunc(100*time.Millisecond, func() { o.give(held) })
		began = time.Now()
		if err := o.Wait(ctx, 2<<20, time.Second); err != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("with room in time: %v after %v", err, time.Since(began))
		}
		if n := o.held.Load(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		o.take(4 << 20)
		if err := o.Wait(gone, 2<<20, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who left: %v", err)
		}
		o.give(4 << 20)
	})
}
