package frame

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrServerClosed is returned by Serve after Shutdown or Close, and is the cause of the contexts that Close cancels.
	ErrServerClosed = errors.New("frame server closed")
	// ErrReceiving is why a body is refused that would take more than Limits.Receiving.
	ErrReceiving = errors.New("too much is being received")
	// ErrPeerGone is matched by the cause of a handler's context after the peer has reset the connection.
	ErrPeerGone = errors.New("peer is gone")
)

// Reply is what a Handler answers.
type Reply struct {
	// Body is the body of the frame that is sent. It is read until it is sent and must not change before Release, or without that before
	// the connection's next request or its end.
	Body []byte
	// Close ends the connection after the reply: for a frame that shows that the peer cannot be trusted to speak the protocol.
	Close bool
	// Apart says that Body is not in the memory of the request: that is given back before the reply is sent, which a peer may take its
	// time to read.
	Apart bool
	// Release, if it is set, gives back the memory that Body was charged for. It is called once: after the last byte of the reply was
	// handed to the system, or when it is known that the reply will not be sent. It is not called for a Handler that panicked.
	Release func()
}

// Handler answers one request. It appends the reply to reply, which is empty and may have room, as append does; Body may as well be any
// other slice, such as the request or memory that is shared.
//
// request and reply are the server's and are used again after the reply was sent. A peer decides how fast it takes a reply, within
// Limits: memory of long ones has to be charged until Release, not until Handler returns. The context belongs to the connection: it ends
// when the peer resets it (cause matching ErrPeerGone) or the server is cut off (cause ErrServerClosed), and not when Handler returns; it
// has no deadline. Handler must return soon after its context ends. It is called from many goroutines, never twice at once for one
// connection.
type Handler func(ctx context.Context, request, reply []byte) Reply

// Reason says why the server itself answers.
type Reason uint8

// The reasons, and what happens to the connection after the reply.
const (
	TooManyConnections Reason = iota + 1 // over Limits.MaxConns; closed
	FrameTooLong                         // over Limits.MaxFrame; closed
	NoMemory                             // Admit refused, or Limits.Receiving is full; open if at most Limits.Discard bytes of the body are missing, else closed
	ReplyTooLong                         // the handler's reply is over Limits.MaxReply; open
	Panicked                             // the handler panicked; closed
)

// Refusal is what the server knows when it answers in place of the handler.
type Refusal struct {
	Reason Reason
	Limit  int64 // connections or bytes; 0 for NoMemory and Panicked
	Length int64 // the length of the frame or of the reply; 0 for TooManyConnections and Panicked
	Err    error // for NoMemory: Admit's error, or ErrReceiving
	Close  bool  // the connection ends after this reply
}

// Limits are the bounds of a Server. The zero value of a field is its default.
type Limits struct {
	MaxConns    int           // connections at once, see Server; 1024
	MaxRefusing int           // connections over MaxConns that are being told so; those over this too are closed unanswered; 32
	MaxFrame    int           // bytes of a request's body; DefaultMaxFrame
	MaxReply    int           // bytes of a reply's body; DefaultMaxFrame
	Small       int           // a body of more bytes than this is charged to Admit as it comes; 64 KiB
	Receiving   int           // bytes of bodies over Small that are being received, over all connections; one that is alone may take more; 4 MaxFrame
	Discard     int           // of a refused body at most this many bytes are read and thrown away to keep the connection; 1 MiB
	First       time.Duration // from the beginning of a connection to the first byte of its first request; 30 s
	Idle        time.Duration // between a reply and the first byte of the next request; 5 min
	Stall       time.Duration // without one more byte of a frame; 10 s
	MinRate     int           // bytes a second: a frame of n bytes must be through after Stall + n/MinRate, both ways; 64 KiB
	LongRate    int           // bytes a second that a request must keep to beyond its first MiB, see Server; 1 MiB
	ReplyTime   time.Duration // until a reply must be through, however long it is; 1 min
	DrainBytes  int           // how much input is thrown away after a last reply so that the peer can read it; 256 KiB
	DrainTime   time.Duration // and for how long; 2 s
}

// Server answers frames. Its fields are set before the first call of Serve and not changed after it.
//
// A connection over Limits.MaxConns takes the place of one that has no request under way: of those that have sent none yet, the one that
// was opened first, else the one whose last request is the longest ago. A client that sends its request when it has connected is
// therefore heard however many connections are silent. When all are busy, the new one is refused.
//
// What a long request holds is what has come of it, at most doubled: its memory grows, and is charged, with the bytes that arrive and not
// with the length that the header promises. When the charge fails in the middle, the request is refused there. Its first MiB may come at
// MinRate. From then on the peer has to be ahead of LongRate: when m MiB beyond the first have come, the next byte must be there
// Stall + 1 MiB/MinRate + m MiB/LongRate after the beginning. A sender of two MB a second passes with a frame of any length.
type Server struct {
	// Handler answers the requests; required.
	Handler Handler
	// Refuse appends the reply that the server gives in place of the handler to dst, as a Handler does; nil closes the connection without
	// a reply.
	Refuse func(dst []byte, r Refusal) []byte
	// Admit is asked before the body of a request takes so many bytes more, if that makes it more than Limits.Small. It returns what gives
	// the memory back, which is called once when the reply is sent (see Reply.Apart) or the request refused, or an error. It is asked several times for a
	// long body, as that comes. It should answer at once: a refusal is what keeps the memory bounded. nil admits everything.
	Admit func(ctx context.Context, bytes int) (release func(), err error)
	// Panic is told the value and the stack of a handler's panic, if it is set.
	Panic func(value any, stack []byte)
	// Limits bound what peers can take.
	Limits Limits

	once     sync.Once
	limits   Limits    // with the defaults
	epoch    time.Time // what the times of connections count from
	ended    chan struct{}
	draining atomic.Bool // set with mu held, before the connections are looked at
	group    sync.WaitGroup

	receiving atomic.Int64 // bytes charged for bodies that are being received

	mu struct {
		sync.Mutex
		closed    bool
		listeners map[net.Listener]struct{}
		conns     map[*serverConn]struct{} // refused ones too
		open      int
		refusing  int
	}
	count struct {
		accepted, refused, evicted, requests, tooLong, noMemory, cut, watched, peersGone, panics atomic.Uint64
	}
}

func (s *Server) init() {
	l := s.Limits
	l.MaxConns = cmp.Or(l.MaxConns, 1024)
	l.MaxRefusing = cmp.Or(l.MaxRefusing, 32)
	l.MaxFrame = cmp.Or(l.MaxFrame, DefaultMaxFrame)
	l.MaxReply = cmp.Or(l.MaxReply, DefaultMaxFrame)
	l.Small = cmp.Or(l.Small, smallFrame)
	l.Receiving = cmp.Or(l.Receiving, 4*l.MaxFrame)
	l.Discard = cmp.Or(l.Discard, 1<<20)
	l.First = cmp.Or(l.First, 30*time.Second)
	l.Idle = cmp.Or(l.Idle, 5*time.Minute)
	l.Stall = cmp.Or(l.Stall, 10*time.Second)
	l.MinRate = cmp.Or(l.MinRate, 64<<10)
	l.LongRate = cmp.Or(l.LongRate, 1<<20)
	l.ReplyTime = cmp.Or(l.ReplyTime, time.Minute)
	l.DrainBytes = cmp.Or(l.DrainBytes, 256<<10)
	l.DrainTime = cmp.Or(l.DrainTime, 2*time.Second)
	s.limits = l
	s.epoch = time.Now()
	s.ended = make(chan struct{})
	s.mu.listeners = map[net.Listener]struct{}{}
	s.mu.conns = map[*serverConn]struct{}{}
}

// Serve accepts connections from l until Shutdown or Close, which close l, and then returns ErrServerClosed. It may be called for
// several listeners at once. Any other error is that of the listener, which is closed then too; connections that were accepted go on.
func (s *Server) Serve(l net.Listener) error {
	s.once.Do(s.init)
	if s.Handler == nil {
		return errors.Join(errors.New("frame server has no handler"), l.Close())
	}
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return errors.Join(ErrServerClosed, l.Close())
	}
	s.mu.listeners[l] = struct{}{}
	s.group.Add(1)
	s.mu.Unlock()
	defer s.group.Done()

	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.take(nc)
			continue
		}
		select {
		case <-s.ended:
			return ErrServerClosed
		default:
		}
		// Out of descriptors or of memory, or a connection that was gone before it was taken: all of them pass.
		if t, ok := err.(interface{ Temporary() bool }); !ok || !t.Temporary() {
			s.mu.Lock()
			delete(s.mu.listeners, l)
			s.mu.Unlock()
			return errors.Join(err, l.Close())
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.ended:
			timer.Stop()
			return ErrServerClosed
		}
	}
}

// take begins to serve a connection, or to refuse it.
func (s *Server) take(nc net.Conn) {
	c := &serverConn{s: s}
	s.mu.Lock()
	switch {
	case s.mu.closed:
		s.mu.Unlock()
		reset(nc)
		return
	case s.mu.open < s.limits.MaxConns:
		s.mu.open++
	case s.evict(): // and its place is the new one's
	case s.Refuse != nil && s.mu.refusing < s.limits.MaxRefusing:
		s.mu.refusing++
		c.refused = true
	default:
		s.mu.Unlock()
		s.count.refused.Add(1)
		reset(nc)
		return
	}
	c.init(nc)
	c.since.Store(int64(time.Since(s.epoch)))
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	s.mu.conns[c] = struct{}{}
	s.group.Add(1)
	s.mu.Unlock()
	if c.refused {
		s.count.refused.Add(1)
	} else {
		s.count.accepted.Add(1)
	}
	go c.run()
}

func (s *Server) drop(c *serverConn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	switch {
	case c.refused:
		s.mu.refusing--
	case !c.evicted:
		s.mu.open--
	}
	s.mu.Unlock()
	s.group.Done()
}

// evict closes the connection that can best be done without, if any has no request under way. mu is held. It looks at every connection
// once, which costs little beside accepting one, and spares the requests a list that all of them would have to lock.
func (s *Server) evict() bool {
	for range 3 { // one that was chosen may have got its next request meanwhile
		var worst *serverConn
		var fresh bool
		var since int64
		for c := range s.mu.conns {
			if c.refused || c.evicted || c.state.Load() != idle {
				continue
			}
			f, t := !c.used.Load(), c.since.Load()
			if worst == nil || f && !fresh || f == fresh && t < since {
				worst, fresh, since = c, f, t
			}
		}
		if worst == nil {
			return false
		}
		if worst.state.CompareAndSwap(idle, ended) {
			worst.evicted = true
			worst.nc.Close()
			s.count.evicted.Add(1)
			return true
		}
	}
	return false
}

// Shutdown ends the server in good order: listeners and idle connections are closed at once, requests under way are finished and
// answered, and their connections closed after that. When ctx ends first, what is left is cut as by Close and the cause of ctx is
// returned; else the error is that of closing the listeners. All goroutines of the server have ended when Shutdown returns.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.stop(func(c *serverConn) { c.endIdle() })
	done := make(chan struct{})
	go func() {
		s.group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	err = errors.Join(context.Cause(ctx), err, s.stop((*serverConn).cut))
	<-done
	return err
}

// Close ends the server at once: the contexts of handlers are cancelled and connections reset. All goroutines of the server have
// ended when Close returns. The error is that of closing the listeners.
func (s *Server) Close() error {
	err := s.stop((*serverConn).cut)
	s.group.Wait()
	return err
}

// stop takes nothing more and calls end for each connection.
func (s *Server) stop(end func(*serverConn)) error {
	s.once.Do(s.init)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.ended)
	}
	s.draining.Store(true)
	var errs []error
	for l := range s.mu.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	clear(s.mu.listeners)
	for c := range s.mu.conns {
		end(c)
	}
	return errors.Join(errs...)
}

// ServerStats counts what a server did.
type ServerStats struct {
	Open      int    // connections now, without those that are being refused
	Accepted  uint64 // connections
	Refused   uint64 // connections over MaxConns that found no place
	Evicted   uint64 // connections without a request that were closed for another
	Requests  uint64 // frames given to the handler
	TooLong   uint64 // frames over MaxFrame
	NoMemory  uint64 // frames that Admit refused, or for which Limits.Receiving had no room
	Cut       uint64 // connections cut off for a peer that stalled or was slow in the middle of a frame
	Watched   uint64 // requests that ran long enough for their peer to be watched
	PeersGone uint64 // requests whose peer reset the connection while they ran
	Panics    uint64 // of the handler or a hook
}

// Stats returns the counts so far.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	open := s.mu.open
	s.mu.Unlock()
	n := &s.count
	return ServerStats{
		Open: open, Accepted: n.accepted.Load(), Refused: n.refused.Load(), Evicted: n.evicted.Load(), Requests: n.requests.Load(), TooLong: n.tooLong.Load(),
		NoMemory: n.noMemory.Load(), Cut: n.cut.Load(), Watched: n.watched.Load(), PeersGone: n.peersGone.Load(), Panics: n.panics.Load(),
	}
}
