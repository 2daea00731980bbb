package hedge

import (
	"context"
	"errors"
	"time"
)

// Causes with which attempts are cancelled; context.Cause of an attempt's context tells which.
var (
	// ErrLost is the cause of an attempt that is cancelled because another one succeeded.
	ErrLost = errors.New("another attempt answered first")
	// ErrOvertaken is the cause, and an ErrLost, when the one that succeeded was sent later: the cancelled one was slow.
	ErrOvertaken error = overtaken{}
	// ErrSkipped is the cause of an attempt that is cancelled because, of two tied attempts, the other one has begun.
	ErrSkipped = errors.New("a tied attempt has begun")
)

type overtaken struct{}

func (overtaken) Error() string        { return "an attempt that was sent later answered first" }
func (overtaken) Is(target error) bool { return target == ErrLost }

// Options of Hedge.
type Options struct {
	// Delay is how long to wait for an attempt before the next one is sent. With 0 every attempt is sent at once.
	Delay time.Duration
	// Tied cancels, when one attempt has begun, those sent but not begun.
	Tied bool
	// Retryable says whether a call that failed with err may be tried elsewhere. nil: always.
	Retryable func(err error) bool
	// Report, if not nil, is filled with what each attempt did.
	Report *Report
}

// End is how an attempt ended.
type End uint8

// The ends of an attempt.
const (
	Won     End = iota // its result is the answer
	Lost               // another answered first; it was cancelled, or came too late
	Skipped            // it was cancelled before it had begun, because a tied attempt had
	Failed             // it returned an error of its own, or the caller left
)

// Kind is why an attempt was sent.
type Kind uint8

// The kinds of attempts.
const (
	First  Kind = iota // the call itself
	Hedged             // because those before it did not answer in time
	Retry              // because the one before it failed
)

// Attempt is what became of one attempt.
type Attempt struct {
	Index int           // the number that call was given
	Kind  Kind          // why it was sent
	Sent  time.Duration // when, since the call began
	Took  time.Duration // how long it ran
	Begun bool          // its server said that it has begun
	End   End
	Err   error // unless Won
}

// Report is what the attempts of one call did, in the order in which they were sent.
type Report struct {
	Delay    time.Duration // after which a hedge was to be sent; 0 if none was possible
	Denied   bool          // the budget refused a hedge or a retry
	Attempts []Attempt
}

// Hedge calls one of n replicas and, if that is slow or fails, others.
func Hedge[R any](ctx context.Context, n int, o Options, call func(ctx context.Context, attempt int) (R, error)) (R, error) {
	return call(ctx, 0)
}

// Do is Hedge with delay and budgets from the live state of a class.
func Do[R any](ctx context.Context, c *Calls, n int, o DoOptions, call func(ctx context.Context, attempt int) (R, error)) (R, error) {
	return call(ctx, 0)
}

// DoOptions are what Do takes for one call.
type DoOptions struct {
	// Spare is how many of the n replicas are fit for a hedge beside the first; negative: n - 1.
	Spare int
	// Report, if not nil, is filled with what each attempt did.
	Report *Report
}
