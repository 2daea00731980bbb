package replica

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/weft-search/weft/internal/serve"
)

// Detached is a leaf that keeps the contract of a leaf for one that does not: its calls return as soon as their context ends, whether
// or not the call below does. It owns those that were left behind: Close waits for them. Each call costs a goroutine.
//
// A call that is left behind goes on reading its request: it must not be changed afterwards.
type Detached[Q, R any] struct {
	leaf serve.Leaf[Q, R]
	max  int

	mu     sync.Mutex
	closed bool
	left   int // calls left behind that still run
	all    sync.WaitGroup
}

// Detach wraps a leaf. While max calls or more are left behind, further ones are refused: the leaf hangs.
func Detach[Q, R any](leaf serve.Leaf[Q, R], maxLeft int) *Detached[Q, R] {
	return &Detached[Q, R]{leaf: leaf, max: max(maxLeft, 1)}
}

// ErrHangs is matched by the error of a call that was not made because too many before it hang, and ErrClosed by that of a call after
// Close.
var (
	ErrHangs  = errors.New("the leaf hangs")
	ErrClosed = errors.New("the leaf is closed")
)

// notCalled is an error with the outcome unavailable.
type notCalled struct{ error }

func (notCalled) Outcome() serve.Outcome { return serve.Unavailable }
func (e notCalled) Unwrap() error        { return e.error }

// Call implements serve.Leaf.
func (d *Detached[Q, R]) Call(ctx context.Context, req Q) (R, error) {
	var none R
	if err := d.enter(); err != nil {
		return none, notCalled{err}
	}
	type reply struct {
		value R
		err   error
	}
	replies := make(chan reply)
	leave := make(chan struct{})
	go func() {
		defer d.all.Done()
		var r reply
		whole := false
		// Deferred, for a call may panic, which nobody above could catch on this goroutine, or end the goroutine.
		defer func() {
			if !whole {
				r = reply{err: &serve.PanicError{Value: recover(), Stack: debug.Stack()}}
			}
			select {
			case replies <- r:
			case <-leave:
				d.mu.Lock()
				d.left--
				d.mu.Unlock()
			}
		}()
		r.value, r.err = d.leaf.Call(ctx, req)
		whole = true
	}()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-ctx.Done():
		d.mu.Lock()
		d.left++
		d.mu.Unlock()
		close(leave)
		return none, context.Cause(ctx)
	}
}

func (d *Detached[Q, R]) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if d.left >= d.max {
		return fmt.Errorf("%w: %d calls have not returned", ErrHangs, d.left)
	}
	d.all.Add(1)
	return nil
}

// Left is how many calls were left behind and still run.
func (d *Detached[Q, R]) Left() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left
}

// Close refuses further calls and waits for those that run.
func (d *Detached[Q, R]) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.all.Wait()
}
