package front

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrClosing is the cause of contexts that end because the server closes.
var ErrClosing = errors.New("the server is closing")

// DrainError says that a closing server did not wait for everything to end. It matches the cause of the end of waiting.
type DrainError struct {
	Calls int // calls that were interrupted; if none, connections were closed that had sent a part of a request or not taken a reply
	Cause error
}

func (e *DrainError) Error() string {
	switch e.Calls {
	case 0:
		return "connections were still busy when the time to end was over, and were closed"
	case 1:
		return "1 call had not ended when the time for it was over, and was cut off"
	}
	return fmt.Sprintf("%d calls had not ended when the time for them was over, and were cut off", e.Calls)
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Cause }

// Drain counts calls under way, and refuses new ones once it has begun.
type Drain struct {
	idle chan struct{} // closed when closing and no call is left
	mu   struct {
		sync.Mutex
		calls   int
		leaving bool // closing will follow
		closing bool
	}
}

func newDrain() *Drain { return &Drain{idle: make(chan struct{})} }

// Enter counts a call in; it returns false once the drain has begun, and then the call is to fail with ErrClosing.
func (d *Drain) Enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closing {
		return false
	}
	d.mu.calls++
	return true
}

// Leave counts a call out that Enter has counted in.
func (d *Drain) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.calls--
	if d.mu.closing && d.mu.calls == 0 {
		close(d.idle)
	}
}

// UnderWay is the number of calls that have not ended.
func (d *Drain) UnderWay() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.calls
}

// announce says that the drain is about to begin.
func (d *Drain) announce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.leaving = true
}

func (d *Drain) announced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.leaving
}

func (d *Drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closing {
		return
	}
	d.mu.leaving, d.mu.closing = true, true
	if d.mu.calls == 0 {
		close(d.idle)
	}
}

func (d *Drain) wait(ctx context.Context) error {
	select {
	case <-d.idle:
		return nil
	default:
	}
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
