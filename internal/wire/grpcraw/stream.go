package grpcraw

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/weft-search/weft/internal/wire/h2"
)

// Call is what a node is asked.
type Call struct {
	Method   string        // /package.Service/Method
	Encoding string        // of the message, where its header says that it is compressed
	Accept   string        // encodings of replies that are taken, with commas; empty: none but identity
	Timeout  time.Duration // sent with the call, and the time after which it ends; 0: none
	// Message is the request with the five bytes in front of it. It is read until the stream is closed, and stays the caller's.
	Message mem.BufferSlice
}

// stream is a call on a connection.
type stream struct {
	c     *conn
	id    uint32
	call  *Call
	noted bool // of the reader of the connection

	// Under the lock of the connection.
	left    int   // bytes of the message that are not queued
	room    int64 // send window
	blocked bool
	piece   int // of the message, and the place in it
	off     int
	ahead   int64 // see turns
	wants   int64

	signal chan struct{} // has one when something is new
	place  int           // among calls

	mu     sync.Mutex
	calls  *Calls // who is told in place of signal
	begun  bool
	head   Head
	queue  mem.BufferSlice
	spare  mem.BufferSlice // what Read has returned, for the next queue
	window int64           // how much may still come
	queued int             // bytes
	came   bool            // something has
	packed bool            // it seems to begin with a compressed message: nobody waits with undoing that, though what came be read by now
	coming int64           // that are still to come of a reply whose length is known; 0: it is not
	wakeAt int             // bytes that are queued, where the length is known
	end    *End
	err    error
	over   bool // end or err is set, or nobody waits
}

func (s *stream) wake() {
	s.mu.Lock()
	calls, well := s.calls, s.over && s.end != nil && s.end.Code == codes.OK && !s.packed
	s.mu.Unlock()
	if calls != nil {
		calls.note(s.place, well)
		return
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// next appends the next n bytes of the message.
func (s *stream) next(out []byte, n int) []byte {
	for n > 0 {
		b := s.call.Message[s.piece].ReadOnlyData()[s.off:]
		if len(b) > n {
			s.off += n
			return append(out, b[:n]...)
		}
		out = append(out, b...)
		n -= len(b)
		s.piece, s.off = s.piece+1, 0
	}
	return out
}

// wakeBytes is how much of a long reply wakes its caller: less of it is of no use to anybody before the rest is there. It is never more than
// half of what may come ahead, below which more is let come: so that the node and the caller do not wait for each other.
const (
	wakeBytes  = 256 << 10
	wakePieces = wakeBytes / h2.MaxFrame * 3 / 2 // about as many as they come in
	maxPieces  = 256
)

// deliver takes a piece of the reply, and tells whether the caller should know; taken is false if that is more than may come.
func (s *stream) deliver(piece mem.Buffer) (taken, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := piece.Len()
	if int64(n) > s.window {
		return false, false
	}
	s.window -= int64(n)
	if n > 0 && !s.came {
		s.came, s.packed = true, piece.ReadOnlyData()[0] != 0
	}
	if s.over {
		piece.Free()
		return true, false
	}
	if len(s.queue) == 0 && s.coming > 0 {
		pieces := wakePieces
		if s.wakeAt == math.MaxInt {
			pieces = int(s.coming/h2.MaxFrame+1) * 3 / 2
		}
		if cap(s.queue) < pieces {
			s.queue = make(mem.BufferSlice, 0, min(pieces, maxPieces))
		}
	}
	if !s.gather(piece) {
		s.queue = append(s.queue, piece)
	}
	s.queued += n
	if s.coming == 0 {
		return true, true
	}
	s.coming -= int64(n)
	return true, s.queued >= s.wakeAt || s.coming <= 0
}

// gathered is the length of short pieces that are put together.
const gathered = 4 << 10

// gather puts a short piece, which has memory of its own, with one before it that nobody has read. Frames may be as short as a byte, and each on
// its own would take many times as much. Called with the lock held.
func (s *stream) gather(piece mem.Buffer) bool {
	short, ok := piece.(mem.SliceBuffer)
	if !ok || len(s.queue) == 0 {
		return false
	}
	last, ok := s.queue[len(s.queue)-1].(mem.SliceBuffer)
	if !ok || len(last)+len(short) > gathered {
		return false
	}
	if cap(last)-len(last) < len(short) {
		last = append(make(mem.SliceBuffer, 0, min(2*(len(last)+len(short)), gathered)), last...)
	}
	s.queue[len(s.queue)-1] = append(last, short...)
	return true
}

// fail ends the call with an error, unless it has ended.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over, s.err = true, err
	}
}

// headers takes a header block. last says that the stream ends with it.
func (s *stream) headers(b *block, last bool) error {
	if b.bad != "" {
		return internal("the node sent %s", b.bad)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	if !s.begun {
		if len(b.httpStatus) == 3 && b.httpStatus[0] == '1' && !last {
			return nil
		}
		if b.httpStatus != "200" {
			return &Error{Code: httpCode(b.httpStatus), Text: "the node answered with an HTTP status that is not 200"}
		}
		if !b.grpc {
			return &Error{Code: httpCode(b.httpStatus), Text: "the node's answer is not one of gRPC"}
		}
		s.begun, s.head = true, b.head
		if last {
			s.head.Meta = nil
		}
	} else if !last {
		return internal("the node sent headers within a reply")
	}
	if !last {
		return nil
	}
	end, err := b.trailer()
	if err != nil {
		return err
	}
	s.over, s.end = true, end
	return nil
}

// Stream is a call under way.
type Stream struct {
	n     *Node
	ctx   context.Context
	call  *Call
	s     *stream
	late  *time.Timer // nil: no time limit, or somebody else has it
	until time.Time   // where there is a limit
	tries int
	sent  bool   // the message is known to be queued
	calls *Calls // that it is one of; nil: it is waited for by itself
	place int    // among them

	have    int64 // of the reply, in all, that was let come
	read    int64 // of it, read
	total   int64 // that is wanted
	most    int64 // at once
	expects bool
}

// maxTries is how often a call is begun that no node began.
const maxTries = 3

// Start begins a call. The error is an *Error. What it returns has to be closed.
func (n *Node) Start(ctx context.Context, call *Call) (*Stream, error) {
	s := &Stream{n: n, ctx: ctx, call: call}
	if call.Timeout > 0 {
		s.until = time.Now().Add(call.Timeout)
		s.late = time.NewTimer(call.Timeout)
	}
	if err := s.begin(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stream) begin() error {
	for s.tries < maxTries {
		c, err := s.n.pick(s.ctx, s.late)
		if err != nil {
			return err
		}
		if s.on(c) {
			return nil
		}
	}
	return unreachable("no connection to the node takes the call", errTaken)
}

// on begins the call on a connection; false if that takes no more.
func (s *Stream) on(c *conn) bool {
	s.s = &stream{c: c, call: s.call, left: s.call.Message.Len(), window: FreeWindow, calls: s.calls, place: s.place}
	if s.calls == nil {
		s.s.signal = make(chan struct{}, 1)
	}
	s.have, s.sent = FreeWindow, false
	if c.open(s.s) == nil {
		return true
	}
	s.s = nil
	s.n.give(c)
	s.n.drop(c)
	s.tries++
	return false
}

// wait waits until there is something new.
func (s *Stream) wait() error {
	if s.late == nil {
		select {
		case <-s.s.signal:
			return nil
		case <-s.ctx.Done():
			return ended(s.ctx)
		}
	}
	select {
	case <-s.s.signal:
		return nil
	case <-s.ctx.Done():
		return ended(s.ctx)
	case <-s.late.C:
		s.late.Reset(0)
		return errLate
	}
}

// push sends more of the message, if it waits for that.
func (s *Stream) push() {
	if s.sent {
		return
	}
	c := s.s.c
	c.mu.Lock()
	more := s.s.left > 0 && c.streams[s.s.id] == s.s
	if more {
		c.sendSome(s.s)
	}
	s.sent = s.s.left == 0
	c.mu.Unlock()
	if more {
		c.flush()
	}
}

// Head waits for the first headers. The error is an *Error.
func (s *Stream) Head() (Head, error) {
	for {
		h, ok, err := s.headNow()
		switch {
		case err == errUnprocessed:
			if err := s.again(); err != nil {
				return Head{}, err
			}
			continue
		case err != nil || ok:
			return h, err
		}
		if err := s.wait(); err != nil {
			return Head{}, err
		}
	}
}

// headNow is Head without waiting; ok is false where there are none yet. The error errUnprocessed asks for another try.
func (s *Stream) headNow() (h Head, ok bool, err error) {
	in := s.s
	in.mu.Lock()
	begun, head, over, err := in.begun, in.head, in.over, in.err
	in.mu.Unlock()
	switch {
	case begun:
		return head, true, nil
	case over && errors.Is(err, errUnprocessed) && s.tries+1 < maxTries:
		return Head{}, false, errUnprocessed
	case over:
		return Head{}, false, s.failure(err)
	}
	s.push()
	return Head{}, false, nil
}

// again begins the call anew.
func (s *Stream) again() error {
	s.tries++
	s.leave()
	return s.begin()
}

// failure is what callers are told.
func (s *Stream) failure(err error) error {
	if errors.Is(err, errCanceled) && !s.until.IsZero() && time.Until(s.until) <= time.Millisecond {
		// Nodes count the time as well, and some give a call up when it is over.
		return errLate
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return unreachable("the node began the call on no connection", err)
}

// Expect says that the reply is total bytes long, with what is in front of messages, of which most may wait to be read. It raises what may
// come, and has to be called once where a reply is longer than FreeWindow: the node waits for it.
func (s *Stream) Expect(total, most int64) {
	s.total, s.most, s.expects = total, max(most, FreeWindow), true
	s.s.mu.Lock()
	// What is queued was counted before anybody knew.
	s.s.coming = max(total-s.read-int64(s.s.queued), 0)
	s.s.wakeAt = int(min(wakeBytes, s.most/2))
	if s.most >= total {
		// It is of no use before it is whole.
		s.s.wakeAt = math.MaxInt
	}
	s.s.mu.Unlock()
	s.let(s.most - (s.have - s.read))
}

// grant lets more of the reply come when much of what may come has.
func (s *Stream) grant() {
	ahead := s.have - s.read
	if !s.expects || s.have >= s.total || ahead > s.most/2 {
		return
	}
	s.let(s.most - ahead)
}

// let lets n bytes more come, if there are so many.
func (s *Stream) let(n int64) {
	if n = min(n, s.total-s.have); n <= 0 {
		return
	}
	s.have += n
	s.s.mu.Lock()
	s.s.window += n
	over := s.s.over
	s.s.mu.Unlock()
	if over {
		return
	}
	c := s.s.c
	c.mu.Lock()
	if c.streams[s.s.id] == s.s {
		c.let(s.s, n)
	}
	c.mu.Unlock()
	c.flush()
}

// Read waits for the next bytes of the reply, which are the caller's to free; the slice is until the next Read. The error is io.EOF after the
// last ones, when End tells the status, or an *Error.
func (s *Stream) Read() (mem.BufferSlice, error) {
	for {
		q, err := s.readNow()
		if len(q) > 0 || err != nil {
			return q, err
		}
		if err := s.wait(); err != nil {
			return nil, err
		}
	}
}

// readNow is Read without waiting: nothing means that nothing is there yet.
func (s *Stream) readNow() (mem.BufferSlice, error) {
	in := s.s
	in.mu.Lock()
	q, over, err := in.queue, in.over, in.err
	if len(q) > 0 {
		in.queue, in.spare, in.queued = in.spare[:0], q, 0
	}
	in.mu.Unlock()
	switch {
	case len(q) > 0:
		s.read += int64(q.Len())
		s.grant()
		return q, nil
	case over && err != nil:
		return nil, s.failure(err)
	case over:
		return nil, io.EOF
	}
	// The rest of a message goes on also when the reply has begun.
	s.push()
	return nil, nil
}

// End is the status of the call; nil before Read has ended with io.EOF.
func (s *Stream) End() *End {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if !s.s.over || len(s.s.queue) > 0 {
		return nil
	}
	return s.s.end
}

// leave lets go of the connection.
func (s *Stream) leave() {
	in := s.s
	if in == nil {
		return
	}
	in.mu.Lock()
	over := in.over
	in.over = true
	q := in.queue
	in.queue = nil
	in.mu.Unlock()
	q.Free()
	// A call that has ended is off its connection already, or about to be.
	if !over {
		in.c.forget(in)
	} else {
		in.c.detach(in)
	}
	s.n.give(in.c)
	s.s = nil
}

// Close ends the call, also at the node if that has not ended it, and lets go of what has come of it.
func (s *Stream) Close() {
	if s.late != nil {
		s.late.Stop()
	}
	s.leave()
}
