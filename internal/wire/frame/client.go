package frame

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
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
	// Room, if not nil, is asked before the reply gets memory for so many bytes in all. Its error is the cause of that of Do.
	Room Room
}

// Room is asked for memory.
type Room interface {
	Grow(bytes int) error
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

	once   sync.Once
	slots  chan struct{} // one token for each request that has or makes a connection
	life   context.Context
	end    context.CancelCauseFunc
	group  sync.WaitGroup // calls of Do; added to with mu held and closed unset
	expire alarm          // closes idle sockets that are too old

	mu struct {
		sync.Mutex
		closed bool
		idle   []*clientConn // the one used last at the end
		busy   []*clientConn // each knows its place
	}
	count struct {
		requests, dials, reuses, stale, retries, errors atomic.Uint64
	}
}

func (c *Client) init() {
	if c.Dial == nil {
		d := &net.Dialer{Timeout: 10 * time.Second}
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	c.MaxIdle = max(cmp.Or(c.MaxIdle, 8), 0)
	c.MaxConns = cmp.Or(c.MaxConns, 64)
	c.MaxRequest = cmp.Or(c.MaxRequest, DefaultMaxFrame)
	c.MaxReply = cmp.Or(c.MaxReply, DefaultMaxFrame)
	c.IdleAge = cmp.Or(c.IdleAge, time.Minute)
	c.slots = make(chan struct{}, c.MaxConns)
	c.expire.call = c.closeOld
	c.life, c.end = context.WithCancelCause(context.Background())
}

// Do sends a request and returns the reply. The request is only read, and not after Do has returned. The reply is the caller's: it
// is in o.Buf's memory if that is large enough and in new memory otherwise.
//
// A request that fails on a socket that was used before is sent once more, on a fresh connection, if it is Safe or the server cannot have
// had all of it; a failure on a fresh connection is reported.
//
// The error is always an *Error. When ctx ends, the socket is reset, so that the server stops its work, and the error unwraps to the
// cause of ctx.
func (c *Client) Do(ctx context.Context, request []byte, o Options) ([]byte, error) {
	c.once.Do(c.init)
	c.count.requests.Add(1)
	reply, err := c.do(ctx, request, o)
	if err != nil {
		c.count.errors.Add(1)
		return nil, err // not the typed nil
	}
	return reply, nil
}

func (c *Client) do(ctx context.Context, request []byte, o Options) ([]byte, *Error) {
	if len(request) > c.MaxRequest {
		return nil, &Error{Addr: c.Addr, Op: OpWrite, Cause: &TooLongError{Length: int64(len(request)), Limit: int64(c.MaxRequest)}}
	}
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil, &Error{Addr: c.Addr, Op: OpWait, Cause: ErrClientClosed}
	}
	c.group.Add(1)
	c.mu.Unlock()
	defer c.group.Done()

	if ctx.Err() != nil {
		return nil, c.fail(ctx, OpWait, nil)
	}
	select {
	case c.slots <- struct{}{}:
	default:
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, c.fail(ctx, OpWait, nil)
		case <-c.life.Done():
			return nil, c.fail(ctx, OpWait, nil)
		}
	}
	defer func() { <-c.slots }()

	k := c.takeIdle()
	if k != nil {
		c.count.reuses.Add(1)
		reply, err := c.try(ctx, k, request, o)
		if err == nil {
			return reply, nil
		}
		err.Reused = true
		if !err.again(o) {
			return nil, err
		}
		c.count.retries.Add(1)
		if reply, second := c.fresh(ctx, request, o); second != nil {
			second.MaybeApplied = second.MaybeApplied || err.MaybeApplied
			return nil, second
		} else {
			return reply, nil
		}
	}
	return c.fresh(ctx, request, o)
}

// again reports whether the request of an error on a reused socket may be sent again: the socket itself failed, and doing the request
// twice is harmless or impossible.
func (e *Error) again(o Options) bool {
	if e.ended != nil || errors.Is(e.Cause, ErrClientClosed) {
		return false
	}
	if _, long := errors.AsType[*TooLongError](e.Cause); long {
		return false // the server did answer
	}
	return o.Safe || !e.MaybeApplied
}

// fail makes the error of a request: the end of the client or of ctx, where that is why, is the cause in place of err.
func (c *Client) fail(ctx context.Context, op Op, err error) *Error {
	e := &Error{Addr: c.Addr, Op: op, Cause: err}
	if ended := ctx.Err(); ended != nil {
		e.Cause, e.ended = context.Cause(ctx), ended
	} else if c.life.Err() != nil {
		e.Cause = ErrClientClosed
	}
	return e
}

// fresh sends the request on a new connection.
func (c *Client) fresh(ctx context.Context, request []byte, o Options) ([]byte, *Error) {
	k, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return c.try(ctx, k, request, o)
}

func (c *Client) dial(ctx context.Context) (*clientConn, *Error) {
	c.count.dials.Add(1)
	dctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	nc, err := c.Dial(dctx, c.Addr)
	stop()
	cancel()
	if err == nil && ctx.Err() != nil {
		reset(nc)
		err = ctx.Err()
	}
	if err != nil {
		return nil, c.fail(ctx, OpDial, err)
	}
	k := newClientConn(nc)
	var extra *clientConn
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		reset(nc)
		return nil, c.fail(ctx, OpDial, ErrClientClosed)
	}
	c.begin(k)
	// A dial in place of a dead socket does not use an idle one: keep to the bound all the same.
	if len(c.mu.idle) > 0 && len(c.mu.busy)+len(c.mu.idle) > c.MaxConns {
		extra = c.mu.idle[0]
		c.mu.idle = append(c.mu.idle[:0], c.mu.idle[1:]...)
	}
	c.mu.Unlock()
	if extra != nil {
		extra.nc.Close()
	}
	return k, nil
}

// begin and finish keep the list of connections in use. mu is held.
func (c *Client) begin(k *clientConn) {
	k.place = len(c.mu.busy)
	c.mu.busy = append(c.mu.busy, k)
}

func (c *Client) finish(k *clientConn) {
	last := len(c.mu.busy) - 1
	moved := c.mu.busy[last]
	c.mu.busy[k.place], moved.place = moved, k.place
	c.mu.busy[last] = nil
	c.mu.busy = c.mu.busy[:last]
}

// takeIdle returns the idle socket that was used last and is alive as far as can be told, or nil.
func (c *Client) takeIdle() *clientConn {
	for {
		c.mu.Lock()
		last := len(c.mu.idle) - 1
		if last < 0 || c.mu.closed {
			c.mu.Unlock()
			return nil
		}
		k := c.mu.idle[last]
		c.mu.idle[last] = nil
		c.mu.idle = c.mu.idle[:last]
		c.begin(k)
		c.mu.Unlock()
		if time.Since(k.used) < c.IdleAge {
			// Input on an idle socket belongs to no request of ours.
			if l := k.prober.look(); l == quiet || l == unknown {
				return k
			}
			c.count.stale.Add(1)
		}
		c.mu.Lock()
		c.finish(k)
		c.mu.Unlock()
		k.nc.Close()
	}
}

// try sends the request on a connection that is in use, and gives that back or closes it.
func (c *Client) try(ctx context.Context, k *clientConn, request []byte, o Options) ([]byte, *Error) {
	reply, op, err := k.exchange(ctx, request, c.MaxReply, o)
	keep := err == nil && op == OpRead && k.r == k.w
	k.used = time.Now()
	c.mu.Lock()
	c.finish(k)
	if keep = keep && !c.mu.closed && c.MaxIdle > 0; keep {
		c.mu.idle = append(c.mu.idle, k)
		k = nil
		if len(c.mu.idle) > c.MaxIdle {
			k = c.mu.idle[0]
			c.mu.idle = append(c.mu.idle[:0], c.mu.idle[1:]...)
		}
		c.expire.set(c.IdleAge)
	}
	c.mu.Unlock()
	if k != nil {
		if err != nil {
			reset(k.nc)
		} else {
			k.nc.Close()
		}
	}
	if err != nil {
		e := c.fail(ctx, op, err)
		e.MaybeApplied = op == OpRead
		return nil, e
	}
	return reply, nil
}

// closeOld closes the idle sockets that are too old.
func (c *Client) closeOld() {
	c.mu.Lock()
	c.expire.fired()
	n := 0
	var left time.Duration
	for ; n < len(c.mu.idle); n++ {
		if left = c.IdleAge - time.Since(c.mu.idle[n].used); left > 0 {
			break
		}
	}
	old := append([]*clientConn(nil), c.mu.idle[:n]...)
	c.mu.idle = append(c.mu.idle[:0], c.mu.idle[n:]...)
	if len(c.mu.idle) > 0 && !c.mu.closed {
		c.expire.set(left)
	}
	c.mu.Unlock()
	for _, k := range old {
		k.nc.Close()
	}
}

// Close cuts the requests under way, closes all sockets and waits until every call of Do has returned. Requests fail from then on. Its
// error is always nil.
func (c *Client) Close() error {
	c.once.Do(c.init)
	c.mu.Lock()
	c.mu.closed = true
	c.end(ErrClientClosed)
	for _, k := range c.mu.busy {
		reset(k.nc)
	}
	for _, k := range c.mu.idle {
		k.nc.Close()
	}
	c.mu.idle = nil
	c.expire.stop()
	c.mu.Unlock()
	c.group.Wait()
	c.expire.wait()
	return nil
}

// ClientStats counts what a client did.
type ClientStats struct {
	Open, Idle int    // sockets now, and those of them that no request uses
	Requests   uint64 // calls of Do
	Dials      uint64 // connections asked for
	Reuses     uint64 // requests that were sent on a socket used before
	Stale      uint64 // sockets found dead before they were used again
	Retries    uint64 // requests sent again on a fresh connection
	Errors     uint64 // calls of Do that failed
}

// Stats returns the counts so far.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	busy, idle := len(c.mu.busy), len(c.mu.idle)
	c.mu.Unlock()
	n := &c.count
	return ClientStats{
		Open: busy + idle, Idle: idle, Requests: n.requests.Load(), Dials: n.dials.Load(), Reuses: n.reuses.Load(), Stale: n.stale.Load(),
		Retries: n.retries.Load(), Errors: n.errors.Load(),
	}
}

func (s *ClientStats) add(o ClientStats) {
	s.Open += o.Open
	s.Idle += o.Idle
	s.Requests += o.Requests
	s.Dials += o.Dials
	s.Reuses += o.Reuses
	s.Stale += o.Stale
	s.Retries += o.Retries
	s.Errors += o.Errors
}
