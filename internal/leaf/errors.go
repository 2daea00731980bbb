package leaf

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/serve"
)

// ErrClosed is matched by the error of every call on a leaf that was closed, and of those that Close interrupted.
var ErrClosed = errors.New("the leaf is closed")

// TransportError says that a node could not be reached, or that its reply did not come or could not be read.
type TransportError struct {
	Address string
	Call    string // the method of Leaf
	// MaybeApplied says of a write that the node may have applied it. Of calls that write nothing it is false.
	MaybeApplied bool
	// Crashed says that the node had begun to answer, or had an open connection, and went away: the request may be what ended it.
	Crashed bool
	Cause   error
}

// Error implements error.
func (e *TransportError) Error() string {
	return fmt.Sprintf("%s at %s: %v", e.Call, e.Address, e.Cause)
}

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Cause }

// Crash tells whether the request may have ended the node, for serve.Canary.
func (e *TransportError) Crash() bool { return e.Crashed }

// Outcome is serve.Unavailable, or serve.TimedOut where the end of the caller's context is behind it.
func (e *TransportError) Outcome() serve.Outcome {
	if errors.Is(e.Cause, context.DeadlineExceeded) || errors.Is(e.Cause, context.Canceled) {
		return serve.TimedOut
	}
	return serve.Unavailable
}

// OutcomeOf is the outcome of a call that ended with err, an error of a Leaf or nil. It is serve.OutcomeOf: a problem and a
// *TransportError say themselves what they are (see api.Problem.Outcome), so that a method of a Leaf is a serve.LeafFunc as it is.
func OutcomeOf(err error) serve.Outcome { return serve.OutcomeOf(err) }

// Class says where a call that failed may be tried again. Whether a write may have been applied is another question, which
// TransportError.MaybeApplied answers.
type Class uint8

// Classes of errors.
const (
	Never     Class = iota // the request is at fault, or its caller gave up: it fails everywhere
	Here                   // the node refused for want of room: the same node later, or another now
	Elsewhere              // this node cannot answer: another member may
)

// ClassOf is the class of an error of a Leaf.
func ClassOf(err error) Class {
	if errors.Is(err, context.Canceled) {
		return Never
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		switch status := p.HTTPStatus(); {
		case status == http.StatusTooManyRequests:
			return Here
		case status >= http.StatusInternalServerError:
			return Elsewhere
		}
		return Never
	}
	return Elsewhere
}
