package serve

import (
	"context"
	"sync/atomic"
	"time"
)

// callContext is the context of one call: that of all calls which started together, and ended when the call is over. Making a
// cancelable context for each call would cost allocations and the lock of the parent also for a call that only looks at Err or hands
// the context on; so it is made when the call first asks for Done, which everything does that waits or derives from it.
type callContext struct {
	above context.Context
	own   atomic.Pointer[ownContext]
	over  atomic.Bool
}

type ownContext struct {
	context.Context
	cancel context.CancelFunc
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) {
	if own := c.own.Load(); own != nil {
		return own.Deadline()
	}
	return c.above.Deadline()
}

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	own := c.own.Load()
	if own == nil {
		ctx, cancel := context.WithCancel(c.above)
		own = &ownContext{ctx, cancel}
		if !c.own.CompareAndSwap(nil, own) {
			cancel()
			own = c.own.Load()
		}
		// Either finish sees own, or this sees over.
		if c.over.Load() {
			own.cancel()
		}
	}
	return own.Done()
}

// Err implements context.Context.
func (c *callContext) Err() error {
	if own := c.own.Load(); own != nil {
		return own.Err()
	}
	if err := c.above.Err(); err != nil {
		return err
	}
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context. It asks the context that was made, if there is one, because package context recognises its own
// contexts by a value: that is how a child is registered with its parent without a goroutine between them.
func (c *callContext) Value(key any) any {
	if own := c.own.Load(); own != nil {
		return own.Value(key)
	}
	return c.above.Value(key)
}

// finish ends the context.
func (c *callContext) finish() {
	c.over.Store(true)
	if own := c.own.Load(); own != nil {
		own.cancel()
	}
}
