package grpcserve

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/h2"
)

// FirstWindow is how much of a request may come before somebody reads it, in bytes.
const FirstWindow = h2.DefaultWindow

// lowPending is how much of a reply may wait for windows when Write returns.
const lowPending = 64 << 10

// Stream is a call.
type Stream struct {
	c       *conn
	id      uint32
	path    string
	handler Handler
	ctx     context.Context
	cancel  context.CancelCauseFunc
	release context.CancelFunc // of the time; nil: there is none
	timeout time.Duration
	limited bool // timeout is one

	contentType, encoding, accepts string
	more                           head // of which only further headers are kept, where the handler wants them

	// Of the handler.
	header, trailer metadata.MD
	compression     string
	got             chan struct{} // has one when there is something to read
	room            chan struct{} // has one when there is less to write

	// The rest is under the lock of the connection. Of the request:
	recv   mem.BufferSlice
	tail   []byte // that short pieces are gathered in, with what readers have of it
	open   bool   // the last of recv is the end of tail
	have   int    // bytes of recv
	window int64  // how much may still come
	ahead  int64  // how much may come before it is asked for
	need   int    // bytes that the handler waits for; 0: it does not
	ended  bool   // the client has ended its side

	// And of the reply:
	headed    bool // headers are queued
	pend      mem.BufferSlice
	at        int // of pend, the first piece that is not queued
	off       int // of that, what is queued of it
	pending   int // bytes
	send      int64
	listed    bool // it stands among those that can go on
	waits     bool // the handler waits until there is less
	done      bool // the handler has returned
	status    *status.Status
	dead      bool      // the stream is over
	stuck     bool      // something is pending
	since     time.Time // from when on it is
	moved     time.Time // when some of it was queued last
	sentSince int64     // of the connection, then
}

// Path is /package.Service/Method.
func (s *Stream) Path() string { return s.path }

// Context ends with the call, the time of the client, or by Cancel.
func (s *Stream) Context() context.Context { return s.ctx }

// Cancel ends the context with a cause.
func (s *Stream) Cancel(cause error) { s.cancel(cause) }

// Timeout is the time that the client gave, as it was when the call came; false if it gave none.
func (s *Stream) Timeout() (time.Duration, bool) { return s.timeout, s.limited }

// Conn is what Options.Conn has made for the connection.
func (s *Stream) Conn() any { return s.c.own }

// RecvCompress is the encoding of messages that say that they are compressed.
func (s *Stream) RecvCompress() string { return s.encoding }

// Accepts are the encodings that the client takes.
func (s *Stream) Accepts() []string { return lists(s.accepts) }

// SetHeader adds headers to the reply, before its first bytes. Names are in lower case.
func (s *Stream) SetHeader(md metadata.MD) { s.header = join(s.header, md) }

// SetTrailer adds trailers.
func (s *Stream) SetTrailer(md metadata.MD) { s.trailer = join(s.trailer, md) }

func join(have, more metadata.MD) metadata.MD {
	if have == nil {
		return more
	}
	return metadata.Join(have, more)
}

// SetSendCompress says how messages of the reply that say so are compressed, before its first bytes.
func (s *Stream) SetSendCompress(encoding string) { s.compression = encoding }

// Ahead says how much of a request may come before it is read, in place of FirstWindow: what that takes is the caller's to charge.
func (s *Stream) Ahead(bytes int) {
	c := s.c
	c.mu.Lock()
	s.ahead = max(int64(bytes), FirstWindow)
	c.let(s, 0)
	c.mu.Unlock()
	c.flush()
}

// let lets more of a request come: what ahead allows, and n bytes in any case. Called with the lock held.
func (c *conn) let(s *Stream, n int) {
	if s.ended || s.dead {
		return
	}
	have := int64(s.have) + s.window
	more := max(s.ahead, int64(n)) - have
	if have < int64(n) || more >= s.ahead/2 {
		s.window += more
		c.window(s.id, more)
	}
}

// Buffered tells whether n bytes of the request are there, or no more will come.
func (s *Stream) Buffered(n int) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.have >= n || s.ended || s.dead
}

// take waits for n bytes of the request. It is fewer with io.EOF.
func (s *Stream) take(n int) (out mem.BufferSlice, err error) {
	c := s.c
	for {
		c.mu.Lock()
		if s.dead {
			c.mu.Unlock()
			return nil, s.gone()
		}
		if s.have >= n || s.ended {
			m := min(n, s.have)
			out = s.cut(m)
			s.need = 0
			c.mu.Unlock()
			if m < n {
				err = io.EOF
			}
			return out, err
		}
		s.need = n
		before := len(c.arena)
		c.let(s, n)
		more := len(c.arena) > before
		c.mu.Unlock()
		if more {
			c.flush()
		}
		select {
		case <-s.got:
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
	}
}

// cut takes n bytes off what has come. Called with the lock held.
func (s *Stream) cut(n int) (out mem.BufferSlice) {
	s.have -= n
	k := 0
	for k < len(s.recv) && n >= s.recv[k].Len() {
		n -= s.recv[k].Len()
		k++
	}
	out, s.recv = s.recv[:k:k], s.recv[k:]
	if n > 0 {
		first, rest := mem.SplitUnsafe(s.recv[0], n)
		out, s.recv[0] = append(out, first), rest
	}
	if len(s.recv) == 0 {
		s.recv, s.open = nil, false
	}
	return out
}

// ReadMessageHeader reads the five bytes before a message; io.EOF means that the client has closed its side.
func (s *Stream) ReadMessageHeader(header []byte) error {
	b, err := s.take(len(header))
	n := 0
	for _, p := range b {
		n += copy(header[n:], p.ReadOnlyData())
	}
	b.Free()
	if err == io.EOF && n > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Read reads exactly n bytes of the message, which are the caller's to free. They are let come if they have not been.
func (s *Stream) Read(n int) (mem.BufferSlice, error) {
	b, err := s.take(n)
	if err != nil {
		b.Free()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}

var errGone = status.Error(codes.Canceled, "the call has ended")

// gone is the error of a stream that is over.
func (s *Stream) gone() error {
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	return errGone
}

// Write sends pieces of the reply, with what is in front of messages. They are the stream's from then on, also with an error. It waits while the client takes less than comes. last says that no more will come: the pieces may go out with the status.
func (s *Stream) Write(data mem.BufferSlice, last bool) error {
	n := data.Len()
	if n == 0 {
		data.Free()
		return nil
	}
	c := s.c
	c.mu.Lock()
	if s.dead || c.err != nil {
		c.mu.Unlock()
		data.Free()
		return s.gone()
	}
	c.head(s)
	if s.dead {
		c.mu.Unlock()
		data.Free()
		c.flush()
		return s.gone()
	}
	if s.at > 0 && len(s.pend)+len(data) > cap(s.pend) {
		k := copy(s.pend, s.pend[s.at:])
		clear(s.pend[k:])
		s.pend, s.at = s.pend[:k], 0
	}
	s.pend = append(s.pend, data...)
	s.pending += n
	c.list(s)
	c.pump()
	c.pends(s)
	s.waits = s.pending > lowPending
	full := s.waits
	hold := last && !full && c.queued < holdBytes
	c.mu.Unlock()
	if !hold {
		c.flush()
	}
	for full {
		select {
		case <-s.room:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
		c.mu.Lock()
		dead := s.dead
		full = s.pending > lowPending
		s.waits = full
		c.mu.Unlock()
		if dead {
			return s.gone()
		}
	}
	return nil
}

// holdBytes is how much may wait for the status of a call.
const holdBytes = 128 << 10

// finish ends the call with what its handler returned.
func (s *Stream) finish(err error) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	c := s.c
	c.mu.Lock()
	c.running--
	s.done = true
	s.recv.Free()
	s.recv, s.tail, s.have, s.open = nil, nil, 0, false
	if !s.dead && c.err == nil {
		s.status = st
		if st.Code() != codes.OK {
			// What is pending is of a message that nobody will have.
			c.dropPending(s)
		}
		if s.pending == 0 {
			c.tail(s)
		}
	}
	c.mu.Unlock()
	s.cancel(nil)
	if s.release != nil {
		s.release()
	}
	c.flush()
}
