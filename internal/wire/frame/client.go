package frame

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrClientClosed is the cause of the errors of a Client or a Pool that has been closed.
var ErrClientClosed = errors.New("frame client closed")

// Op is the stage of a request in which it failed.
type Op string

// The stages.
const (
	OpWait  Op = "wait"  // for one of the connections that an address may have
	OpDial  Op = "dial"  // for a new connection
	OpWrite Op = "write" // the request was not handed to the system whole, so the server cannot have applied it
	OpRead  Op = "read"  // the request was, and no whole reply came
)

// Error is the error of a request. It unwraps to Cause and, when a context ended, to the context's error too.
type Error struct {
	Addr string
	Op   Op
	// Reused says that the last attempt was made on a socket that an earlier request had used.
	Reused bool
	// MaybeApplied says that the server may have had the whole request and may have acted on it. If it is false, the server has not.
	MaybeApplied bool
	// Cause is the error of the socket, a *TooLongError, ErrClientClosed, or the cause of the context.
	Cause error

	ended error // the context's own error, if it ended
}

func (e *Error) Error() string { return fmt.Sprintf("frame %s %s: %v", e.Op, e.Addr, e.Cause) }

// Unwrap returns what the error is made of.
func (e *Error) Unwrap() []error {
	if e.ended != nil && !errors.Is(e.Cause, e.ended) {
		return []error{e.Cause, e.ended}
	}
	return []error{e.Cause}
}

// Options are the choices of one request.
type Options struct {
	// Safe says that the request may be applied twice without harm, as a read may.
	Safe bool
	// Buf is memory for the reply. It belongs to Do until that returns.
	Buf []byte
}

// Client sends requests to one address. Its fields are set before the first request and not changed after it; the zero value of a
// field is its default.
type Client struct {
	// Addr is the address as Dial takes it; required.
	Addr string
	// Dial opens a connection; a TCP dialer that gives up after 10 s by default. It must return soon after ctx ends.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// MaxIdle is how many sockets are kept for the next requests: 8 by default, none if negative.
	MaxIdle int
	// MaxConns is how many requests are under way at once, each on a socket of its own; others wait; 64.
	MaxConns int
	// MaxRequest and MaxReply are the longest bodies in bytes; DefaultMaxFrame.
	MaxRequest, MaxReply int
	// IdleAge is how long an unused socket is kept; 1 min. It should be shorter than the server's Limits.Idle.
	IdleAge time.Duration
}

// Do sends a request and returns the reply. The request is only read, and not after Do has returned. The reply is the caller's: it
// is in o.Buf's memory if that is large enough and in new memory otherwise.
//
// The error is always an *Error. When ctx ends, the socket is reset, so that the server stops its work, and the error unwraps to the
// cause of ctx.
func (c *Client) Do(ctx context.Context, request []byte, o Options) ([]byte, error) {
	return nil, &Error{Addr: c.Addr, Op: OpWait, Cause: ErrClientClosed}
}

// Close cuts the requests under way, closes all sockets and waits until every call of Do has returned. Requests fail from then on.
func (c *Client) Close() error { return nil }

// ClientStats counts what a client did.
type ClientStats struct {
	Open, Idle int64  // sockets now, and those of them that no request uses
	Requests   uint64 // calls of Do
	Dials      uint64 // connections asked for
	Reuses     uint64 // requests that were sent on a socket used before
	Stale      uint64 // sockets found dead before they were used again
	Retries    uint64 // requests sent again on a fresh connection
	Errors     uint64 // calls of Do that failed
}

// Stats returns the counts so far.
func (c *Client) Stats() ClientStats { return ClientStats{} }
