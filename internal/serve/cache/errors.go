package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

var (
	// ErrNotFound is what a load's NotFound becomes for its callers: there is no such thing in this snapshot.
	ErrNotFound = errors.New("not found")
	// ErrRefused is matched by the error of a caller whose load may not begin because too many run.
	ErrRefused = errors.New("too many loads")
	// ErrNoSnapshot says that a key names no snapshot, or that a load did not say which one it read. It is a mistake of the program.
	ErrNoSnapshot = errors.New("no snapshot")
	// ErrClosed says that the loader is closed. Its outcome is that the shard is unavailable.
	ErrClosed error = closedError{}
	// ErrAbandoned is the cause with which a load is cancelled that nobody waits for and that may not go on. No caller gets it.
	ErrAbandoned = errors.New("nobody waits for the load")

	errNoResult = errors.New("load ended without a result")
)

type closedError struct{}

func (closedError) Error() string          { return "loader is closed" }
func (closedError) Outcome() serve.Outcome { return serve.Unavailable }

// RefusedError says which limit a caller hit and when a load is likely to end. It matches ErrRefused.
type RefusedError struct {
	Limit      int           // how many loads may run at once
	RetryAfter time.Duration // an estimate from how long loads took and take
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%d loads run already, retry after %v", e.Limit, e.RetryAfter)
}

// Is reports that the error is an ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Outcome is Refused.
func (e *RefusedError) Outcome() serve.Outcome { return serve.Refused }

// TimeoutError says that a load did not end within its own time. It matches context.DeadlineExceeded; a caller whose own context
// is still alive can tell from that that it was not its own deadline.
type TimeoutError struct {
	Limit time.Duration // what a load may take
	Err   error         // what the load said
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("load did not end within %v: %v", e.Limit, e.Err)
}

// Is reports that a deadline has passed.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Outcome is TimedOut, whatever the load said.
func (e *TimeoutError) Outcome() serve.Outcome { return serve.TimedOut }

// Unwrap returns what the load said.
func (e *TimeoutError) Unwrap() error { return e.Err }

// PanicError says that a load panicked. The value and the stack are for the log: the message shows neither.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the load's goroutine
}

// Error implements error.
func (e *PanicError) Error() string { return "load crashed" }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Outcome is Failed, whatever it panicked with.
func (e *PanicError) Outcome() serve.Outcome { return serve.Failed }

// Crash says that whatever the load was asked to do is dangerous to ask again; see serve.Canary.
func (e *PanicError) Crash() bool { return true }
