package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeChunk is how much of a reply is handed to the system under one deadline.
	writeChunk = 256 << 10
	// A connection that is refused is answered within refuseTime, and at most refuseDrain bytes of its input are thrown away.
	refuseTime  = time.Second
	refuseDrain = 64 << 10
	// lastWait is how long a connection is kept when its peer sends more than is thrown away.
	lastWait = 100 * time.Millisecond
)

// past is a deadline that ends a read at once, whatever the calendar says: with one before 1970 the beginning of 1970 is still to come.
var past = time.Time{}.Add(1)

// The states of a connection. The goroutine that moves it from idle decides what becomes of it.
const (
	idle  int32 = iota // between requests
	busy               // from the first byte of a request to the end of its reply
	ended              // closed by the server
)

// serverConn is one connection of a Server. Its goroutine is run; watch runs beside a handler that takes longer than watchAfter.
type serverConn struct {
	stream
	s       *Server
	refused bool // over MaxConns
	evicted bool // another connection has its place; with s.mu held

	ctx    context.Context // of the handler: that of the connection
	cancel context.CancelCauseFunc
	state  atomic.Int32
	used   atomic.Bool  // a request has begun
	since  atomic.Int64 // the beginning of the connection or the end of its last request, in nanoseconds since s.epoch

	begun  time.Time // when the frame that is being read was first waited for; zero before that
	length int       // of its body; 0 until it is known
	got    int       // bytes of its body that were read
	unread int       // of a body that was refused
	held   held

	watchman watchman
	watched  struct {
		done chan struct{} // watch sends once at its end
		sync.Mutex
		stopped bool
	}
	gone bool // watch saw that the peer is gone; read after watch has ended
}

func (c *serverConn) run() {
	defer c.s.drop(c)
	defer c.nc.Close()
	defer c.cancel(nil)
	defer func() {
		if p := recover(); p != nil { // a hook's
			c.panicked(p)
		}
	}()
	if c.refused {
		c.refuseConn()
		return
	}
	for c.next() {
	}
}

// panicked tells of a panic. It must not panic again, whatever the hook does.
func (c *serverConn) panicked(value any) {
	c.s.count.panics.Add(1)
	if c.s.Panic != nil {
		stack := debug.Stack()
		defer func() {
			if recover() != nil {
				c.s.count.panics.Add(1)
			}
		}()
		c.s.Panic(value, stack)
	}
}

// next serves one request and reports whether the connection goes on.
func (c *serverConn) next() bool {
	l := &c.s.limits
	c.begun, c.length, c.got = time.Time{}, 0, 0
	if c.r == c.w {
		c.r, c.w = 0, 0
		quiet := l.Idle
		if !c.used.Load() {
			quiet = l.First
		}
		if c.nc.SetReadDeadline(time.Now().Add(quiet)) != nil {
			return false
		}
		n, err := c.nc.Read(c.buf)
		if n == 0 && err != nil {
			return false // the peer has closed, or was idle for too long
		}
		c.w = n
	}
	if !c.state.CompareAndSwap(idle, busy) {
		return false
	}
	if !c.used.Load() {
		c.used.Store(true)
	}
	goOn := c.request()
	// The order matters: whoever shuts down sets draining and then looks for idle connections, so one of the two sees the other.
	if goOn {
		c.since.Store(int64(time.Since(c.s.epoch)))
		c.state.Store(idle)
		if !c.s.draining.Load() || !c.state.CompareAndSwap(idle, ended) {
			return true
		}
		if c.r == c.w {
			var p prober
			if p.init(c.nc); c.nc.SetReadDeadline(time.Time{}) == nil && p.look() != waiting {
				return false
			}
		}
	}
	c.linger(c.unread+l.DrainBytes, l.DrainTime)
	return false
}

// request reads a request and answers it. It reports whether the connection goes on; if it does not, what the peer may still be sending
// is to be drained.
func (c *serverConn) request() bool {
	l := &c.s.limits
	for c.w-c.r < HeaderSize {
		c.compact()
		n, err := c.receive(c.buf[c.w:])
		c.w += n
		if err != nil && c.w < HeaderSize {
			return c.broken(err)
		}
	}
	n, err := bodyLength(c.buf[c.r:c.r+HeaderSize], l.MaxFrame)
	c.r += HeaderSize
	if err != nil {
		c.s.count.tooLong.Add(1)
		long := Refusal{Reason: FrameTooLong, Limit: int64(l.MaxFrame), Close: true}
		if t, ok := errors.AsType[*TooLongError](err); ok {
			long.Length = t.Length
		}
		return c.refuse(long)
	}
	c.length = n
	request := takeBuffer()
	defer request.give()
	defer c.release()
	body, err := readBody(c, request.b, n, c.room)
	c.received()
	if none, ok := errors.AsType[*noRoomError](err); ok {
		c.release()
		c.s.count.noMemory.Add(1)
		left := n - c.got
		r := Refusal{Reason: NoMemory, Length: int64(n), Err: none.err, Close: left > l.Discard}
		if r.Close {
			c.unread = left
		} else if err := c.discard(left); err != nil {
			return c.broken(err)
		}
		return c.refuse(r)
	}
	if err != nil {
		return c.broken(err)
	}
	request.b = body
	own := takeBuffer()
	defer own.give()
	c.s.count.requests.Add(1)
	answer, ok := c.call(body, own.b[:0])
	if answer.Release != nil {
		defer answer.Release()
	}
	if c.ctx.Err() != nil { // nobody waits for a reply, or the server is cut off
		if c.gone {
			c.s.count.peersGone.Add(1)
		}
		reset(c.nc)
		return false
	}
	if !ok {
		return c.refuse(Refusal{Reason: Panicked, Close: true})
	}
	if answer.Apart && len(c.held.release) > 0 {
		request.b = nil
		c.release()
	}
	own.adopt(answer.Body)
	if n := len(answer.Body); n > l.MaxReply {
		if !c.refuse(Refusal{Reason: ReplyTooLong, Limit: int64(l.MaxReply), Length: int64(n), Close: answer.Close}) {
			return false
		}
	} else if err := c.reply(answer.Body); err != nil {
		return c.broken(err)
	}
	return !answer.Close
}

// held is what a request is charged.
type held struct {
	bytes     int // of memory for its body
	receiving int // of Server.receiving
	release   []func()
}

// noRoomError is the refusal of memory for a body.
type noRoomError struct{ err error }

func (e *noRoomError) Error() string { return "no room for a frame: " + e.err.Error() }

// room charges a body that gets room for so many bytes in all.
func (c *serverConn) room(bytes int) error {
	h, l := &c.held, &c.s.limits
	more := bytes - h.bytes
	if bytes <= l.Small || more <= 0 {
		return nil
	}
	h.receiving += more
	if all := c.s.receiving.Add(int64(more)); all > int64(l.Receiving) && all > int64(h.receiving) {
		return &noRoomError{ErrReceiving}
	}
	if c.s.Admit != nil {
		release, err := c.s.Admit(c.ctx, more)
		if err != nil {
			return &noRoomError{err}
		}
		if release != nil {
			h.release = append(h.release, release)
		}
	}
	h.bytes = bytes
	return nil
}

// received says that the body is being received no longer.
func (c *serverConn) received() {
	c.s.receiving.Add(-int64(c.held.receiving))
	c.held.receiving = 0
}

// release gives back what the request was charged.
func (c *serverConn) release() {
	c.received()
	all := c.held.release
	c.held = held{}
	for _, f := range all {
		f()
	}
}

// call calls the handler and watches the connection meanwhile. ok is false if the handler panicked.
func (c *serverConn) call(request, dst []byte) (reply Reply, ok bool) {
	c.startWatch()
	defer func() {
		c.stopWatch()
		if p := recover(); p != nil {
			c.panicked(p)
			reply, ok = Reply{}, false
		}
	}()
	return c.s.Handler(c.ctx, request, dst), true
}

func (c *serverConn) startWatch() {
	w := &c.watched
	c.compact()
	if w.done == nil {
		w.done = make(chan struct{}, 1)
		c.watchman.watch = c.watch
	}
	w.stopped = false
	c.watchman.begin()
}

func (c *serverConn) stopWatch() {
	if !c.watchman.end() {
		return
	}
	w := &c.watched
	w.Lock()
	w.stopped = true
	// The next read sets a deadline of its own. Should this fail, the connection is closed, which ends the read as well.
	if c.nc.SetReadDeadline(past) != nil {
		c.nc.Close()
	}
	w.Unlock()
	<-w.done
}

// watch waits for the connection to break and cancels the handler's context then. Input that comes meanwhile belongs to the next
// requests and is kept; when there is no more room for it, the peer is watched no longer. An end of the input is no break: the peer may
// have shut down its sending side only and wait for its reply.
func (c *serverConn) watch() {
	w := &c.watched
	defer func() { w.done <- struct{}{} }()
	w.Lock()
	if w.stopped || c.nc.SetReadDeadline(time.Time{}) != nil {
		w.Unlock()
		return
	}
	w.Unlock()
	c.s.count.watched.Add(1)
	for c.w < len(c.buf) {
		n, err := c.nc.Read(c.buf[c.w:])
		c.w += n
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return
		default:
			c.gone = true
			c.cancel(fmt.Errorf("%w: %w", ErrPeerGone, err))
			return
		}
	}
}

// Read reads from the body of a frame: what was read ahead, then the connection, which must not stall.
func (c *serverConn) Read(p []byte) (int, error) {
	if c.r < c.w {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		c.got += n
		return n, nil
	}
	n, err := c.receive(p)
	c.got += n
	return n, err
}

// receive reads from the connection in the middle of a frame.
func (c *serverConn) receive(p []byte) (int, error) {
	now := time.Now()
	if c.begun.IsZero() {
		c.begun = now
	}
	whole := c.allowed(min(c.length, slowBytes)) + at(max(0, c.got-slowBytes), c.s.limits.LongRate)
	if err := c.nc.SetReadDeadline(earlier(now.Add(c.s.limits.Stall), c.begun.Add(whole))); err != nil {
		return 0, err
	}
	return c.nc.Read(p)
}

// slowBytes is how much of a request may come at MinRate; the rest must come at LongRate.
const slowBytes = 1 << 20

// allowed is how long a frame of n bytes may take at MinRate.
func (c *serverConn) allowed(n int) time.Duration {
	l := &c.s.limits
	return l.Stall + at(n, l.MinRate)
}

// at is how long n bytes take at a rate in bytes a second.
func at(n, rate int) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}

// discard reads n bytes and throws them away.
func (c *serverConn) discard(n int) error {
	b := takeBuffer()
	defer b.give()
	if cap(b.b) < readAhead {
		b.b = make([]byte, readAhead)
	}
	b.b = b.b[:cap(b.b)]
	for n > 0 {
		m, err := c.Read(b.b[:min(n, len(b.b))])
		if n -= m; err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// reply sends a frame to a peer that must not stall.
func (c *serverConn) reply(body []byte) error {
	now := time.Now()
	last := now.Add(min(c.allowed(len(body)), c.s.limits.ReplyTime))
	part := body[:min(len(body), writeChunk)]
	if err := c.nc.SetWriteDeadline(earlier(last, now.Add(c.allowed(len(part))))); err != nil {
		return err
	}
	if _, err := c.begin(len(body), part); err != nil {
		return err
	}
	for at := len(part); at < len(body); at += len(part) {
		part = body[at:min(len(body), at+writeChunk)]
		if err := c.nc.SetWriteDeadline(earlier(last, time.Now().Add(c.allowed(len(part))))); err != nil {
			return err
		}
		if _, err := c.nc.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// broken ends a connection that failed in the middle of a frame. It returns false.
func (c *serverConn) broken(err error) bool {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return false // the peer has ended its side; ours ends in peace
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.s.count.cut.Add(1)
	}
	reset(c.nc)
	return false
}

// refuse answers in place of the handler and reports whether the connection goes on.
func (c *serverConn) refuse(r Refusal) bool {
	if c.s.Refuse == nil {
		return false
	}
	b := takeBuffer()
	defer b.give()
	answer := c.s.Refuse(b.b[:0], r)
	b.adopt(answer)
	if err := c.reply(answer); err != nil {
		return c.broken(err)
	}
	return !r.Close
}

// refuseConn answers a connection that is one too many.
func (c *serverConn) refuseConn() {
	b := takeBuffer()
	defer b.give()
	answer := c.s.Refuse(b.b[:0], Refusal{Reason: TooManyConnections, Limit: int64(c.s.limits.MaxConns), Close: true})
	b.adopt(answer)
	if c.nc.SetWriteDeadline(time.Now().Add(refuseTime)) != nil {
		return
	}
	if _, err := c.begin(len(answer), answer); err != nil {
		return
	}
	c.linger(refuseDrain, refuseTime)
}

// linger says that nothing more will be sent and throws away what the peer still sends until it closes: a socket that is closed with
// unread input resets the connection, and the reset can destroy a reply that the peer has not read yet. Of a peer that sends more than
// most bytes no more is read; it has a moment to find the reply before the reset tells it that nobody listens.
func (c *serverConn) linger(most int, long time.Duration) {
	h, ok := c.nc.(interface{ CloseWrite() error })
	end := time.Now().Add(long)
	if !ok || h.CloseWrite() != nil || c.nc.SetReadDeadline(end) != nil {
		return
	}
	b := takeBuffer()
	defer b.give()
	if cap(b.b) < 4*readAhead {
		b.b = make([]byte, 4*readAhead)
	}
	b.b = b.b[:cap(b.b)]
	for most > 0 {
		n, err := c.nc.Read(b.b[:min(most, len(b.b))])
		if most -= n; err != nil {
			return
		}
	}
	timer := time.NewTimer(min(time.Until(end), lastWait))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// endIdle closes the connection if no request is under way on it.
func (c *serverConn) endIdle() {
	if !c.refused && c.state.CompareAndSwap(idle, ended) {
		c.nc.Close()
	}
}

// cut ends the connection whatever it does.
func (c *serverConn) cut() {
	c.cancel(ErrServerClosed)
	reset(c.nc)
}
