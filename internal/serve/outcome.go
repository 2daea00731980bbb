package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Outcome is how the call of one shard ended. Every shard of a fan-out ends in exactly one. The zero value is none of them and counts
// as missing, so that a shard that was forgotten is never taken for one that answered.
type Outcome uint8

// The outcomes of a call. Answered and Skipped cover the shard; the others leave it missing.
const (
	Answered    Outcome = iota + 1 // it replied without an error
	Skipped                        // it was not asked, with proof that nothing in it can match
	TimedOut                       // the time of its caller was over, or its caller had left, before it replied
	Refused                        // it had no place for the call; it may have one later, or a replica may have one now
	Unavailable                    // it could not be reached, or is not ready
	Failed                         // anything else
)

// numOutcomes is one more than the last Outcome.
const numOutcomes = Failed + 1

var outcomeNames = [numOutcomes]string{"unknown", "answered", "skipped", "timed_out", "refused", "unavailable", "failed"}

// String is the name of the outcome as replies print it: answered, skipped, timed_out, refused, unavailable or failed.
func (o Outcome) String() string {
	if o >= numOutcomes {
		o = 0
	}
	return outcomeNames[o]
}

// Covered tells whether nothing of the shard is missing from the answer.
func (o Outcome) Covered() bool { return o == Answered || o == Skipped }

// OutcomeOf is the outcome that the error of a call stands for; no error is Answered. The first error in the chain (joined errors
// depth first, as errors.As goes) with a method Outcome() Outcome decides. Without one, the end of a context and the passing of a
// connection's deadline are TimedOut, and everything else is Failed. An error that calls itself Answered, or nothing, is Failed.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Answered
	}
	if e, ok := errors.AsType[interface {
		error
		Outcome() Outcome
	}](err); ok {
		if o := e.Outcome(); o > Answered && o < numOutcomes {
			return o
		}
		return Failed
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		return TimedOut
	}
	return Failed
}

// outcomeIn is OutcomeOf for the error of a call that was given ctx: an error that is the cause of ctx's end, whatever its type, is
// the end of ctx.
func outcomeIn(ctx context.Context, err error) Outcome {
	o := OutcomeOf(err)
	if o == Failed && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return TimedOut
	}
	return o
}

// Crashed tells whether an error somewhere in the tree of err says of itself, by a method Crash() bool, that the request may have
// brought down what should have answered it. It looks at every branch of joined errors.
func Crashed(err error) bool {
	for err != nil {
		if c, ok := err.(interface{ Crash() bool }); ok && c.Crash() {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				if Crashed(one) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}

// ErrNotStarted is matched by the error of a call that was never made, because the caller's time was over, or the caller had left,
// before its turn came. The error matches what ended the caller's context too, or context.DeadlineExceeded where too little time was
// left to begin.
var ErrNotStarted = errors.New("the call was not started")

type notStarted struct{ cause error }

func (e *notStarted) Error() string        { return ErrNotStarted.Error() + ": " + e.cause.Error() }
func (e *notStarted) Unwrap() error        { return e.cause }
func (e *notStarted) Is(target error) bool { return target == ErrNotStarted }
func (e *notStarted) Outcome() Outcome     { return TimedOut }

// PanicError is the error of a call that panicked, or that ended its goroutine. The process lives on; the shard counts as Failed.
type PanicError struct {
	Value any    // what it panicked with; nil if it ended its goroutine by runtime.Goexit
	Stack []byte // of the goroutine at that point, for the log: never for a client
}

// Error implements error.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the call ended its goroutine"
	}
	return fmt.Sprintf("the call panicked: %v", e.Value)
}

// Outcome is Failed.
func (e *PanicError) Outcome() Outcome { return Failed }

// Crash is true: in a process that did not catch it, the panic would have been the end.
func (e *PanicError) Crash() bool { return true }
