package grpcraw

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/h2"
)

// Error is the end of a call without a status of the node. Its text is for callers: what is behind it is in Unwrap.
type Error struct {
	Code codes.Code
	Text string
	// Transport says that the connection failed, or none could be made: nothing is known of the node but that it is not reached.
	Transport bool
	Cause     error
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// GRPCStatus is for package status.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Text) }

// unreachable is the error of calls without a connection, or whose connection is lost. A connection that ends is no end of a reply, so io.EOF is not
// behind it.
func unreachable(text string, cause error) *Error {
	if errors.Is(cause, io.EOF) {
		cause = io.ErrUnexpectedEOF
	}
	return &Error{Code: codes.Unavailable, Text: text, Transport: true, Cause: cause}
}

func internal(format string, a ...any) *Error {
	return &Error{Code: codes.Internal, Text: fmt.Sprintf(format, a...)}
}

// ErrClosed is behind the errors of calls on a node that is closed.
var ErrClosed = errors.New("the node is closed")

var (
	// errUnprocessed is for calls that the peer says it has not begun.
	errUnprocessed = errors.New("the node did not begin the call")
	errTaken       = errors.New("the connection takes no more calls")
	errCanceled    = errors.New("the node canceled the call")
	errLate        = &Error{Code: codes.DeadlineExceeded, Text: "the node did not answer in time"}
)

// ended is the error of a call whose context has ended.
func ended(ctx context.Context) *Error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Error{Code: codes.DeadlineExceeded, Text: "the deadline passed before the node answered", Cause: cause}
	}
	return &Error{Code: codes.Canceled, Text: "the call was canceled", Cause: cause}
}

// resetError is the status of a stream that the peer reset, by the mapping of gRPC.
func resetError(code uint32) error {
	e := &Error{Code: codes.Internal, Text: fmt.Sprintf("the node gave the call up with HTTP/2 error %d", code)}
	switch code {
	case h2.CodeRefused:
		return errUnprocessed
	case h2.CodeCancel:
		e.Code, e.Cause = codes.Canceled, errCanceled
	case h2.CodeEnhanceYourCalm:
		e.Code = codes.ResourceExhausted
	case h2.CodeInadequateSecurity:
		e.Code = codes.PermissionDenied
	}
	return e
}

// httpCode is the status of a reply that is not of gRPC, by the mapping of gRPC.
func httpCode(status string) codes.Code {
	switch status {
	case "400":
		return codes.Internal
	case "401":
		return codes.Unauthenticated
	case "403":
		return codes.PermissionDenied
	case "404":
		return codes.Unimplemented
	case "429", "502", "503", "504":
		return codes.Unavailable
	}
	return codes.Unknown
}
