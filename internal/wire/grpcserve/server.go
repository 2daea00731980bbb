package grpcserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Handler serves a call. Its error is the answer to the client; one without a status is Unknown.
type Handler func(s *Stream) error

// Options say what is served and within what. A zero field means its default.
type Options struct {
	// Find says who serves the calls of a path, /package.Service/Method. It has to be set, and returns no nil.
	Find func(path string) Handler
	// Conn makes something for each connection, which Stream.Conn returns. It may be nil.
	Conn func() any
	// Accepts are the encodings of messages that are taken, with commas. Clients are told where a call with another one is UNIMPLEMENTED.
	Accepts string
	// Streams is the number of streams of a connection at once: 256. HeaderList is the longest list of headers, as HTTP/2 counts: 16 KiB.
	Streams, HeaderList int
	// Window is how much of all requests may be on its way on a connection, in bytes: 4 MiB.
	Window int
	// Hello is the longest time until a client has said what HTTP/2 begins with: 10 s. A client that says nothing for Ping is asked whether it
	// is there, and has Pong to answer: 30 s and 10 s. Stall is the longest time in which one may take nothing of a reply: 1 min.
	Hello, Ping, Pong, Stall time.Duration
	// Farewell is how long clients have to hear that the server drains, and to take the end of a connection: 1 s.
	Farewell time.Duration
	// Workers is the number of goroutines that are kept for calls: 16. Further calls have one of their own.
	Workers int
	// Cut is told of each connection that was ended because its client takes nothing. It may be nil.
	Cut func()
	// Log has calls that panic. It has to be set.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	number(&o.Streams, 256)
	number(&o.HeaderList, 16<<10)
	number(&o.Window, 4<<20)
	number(&o.Workers, 16)
	set(&o.Hello, 10*time.Second)
	set(&o.Ping, 30*time.Second)
	set(&o.Pong, 10*time.Second)
	set(&o.Stall, time.Minute)
	set(&o.Farewell, time.Second)
	return o
}

// ErrClosed is what Serve returns when the server was told to end.
var ErrClosed = errors.New("the server has ended")

// Server serves the connections of a listener.
type Server struct {
	o        Options
	wg       sync.WaitGroup
	work     chan *Stream
	stop     chan struct{} // closed by Close
	draining context.Context
	drain    context.CancelFunc
	handlers atomic.Int64 // under way

	mu     sync.Mutex
	lis    net.Listener
	conns  map[*conn]struct{}
	ending bool          // no connection is taken any more
	empty  chan struct{} // closed when there is none while it is ending
	closed bool
}

// New returns a server that serves nothing yet. It has to be closed.
func New(o Options) *Server {
	s := &Server{o: o.withDefaults(), work: make(chan *Stream), stop: make(chan struct{}), conns: map[*conn]struct{}{}, empty: make(chan struct{})}
	s.draining, s.drain = context.WithCancel(context.Background())
	for range s.o.Workers {
		s.wg.Go(s.worker)
	}
	return s
}

func (s *Server) worker() {
	for {
		select {
		case st := <-s.work:
			s.serve(st)
		case <-s.stop:
			return
		}
	}
}

// begin serves a call on a goroutine that is there, or another one.
func (s *Server) begin(st *Stream) {
	s.handlers.Add(1)
	select {
	case s.work <- st:
	default:
		s.wg.Go(func() { s.serve(st) })
	}
}

var errPanicked = status.Error(codes.Internal, "Internal error")

func (s *Server) serve(st *Stream) {
	defer s.handlers.Add(-1)
	st.finish(s.call(st))
}

func (s *Server) call(st *Stream) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.o.Log.Error("call failed", "call", st.path, "error", fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
			err = errPanicked
		}
	}()
	return st.handler(st)
}

// Serve takes connections until the server ends, or the listener fails.
func (s *Server) Serve(lis net.Listener) error {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return errors.Join(ErrClosed, lis.Close())
	}
	s.lis = lis
	s.mu.Unlock()
	for {
		nc, err := lis.Accept()
		if err != nil {
			s.mu.Lock()
			ending := s.ending
			s.mu.Unlock()
			if ending {
				return ErrClosed
			}
			var again interface{ Temporary() bool }
			if errors.As(err, &again) && again.Temporary() {
				// No descriptors are left, for example: some will be.
				if s.pause() {
					continue
				}
				return ErrClosed
			}
			return fmt.Errorf("take a connection: %w", err)
		}
		s.take(nc)
	}
}

// again is the pause after a connection that could not be taken.
const again = 50 * time.Millisecond

func (s *Server) pause() bool {
	t := time.NewTimer(again)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.draining.Done():
		return false
	}
}

func (s *Server) take(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		// What closing finds is nothing that anybody could do something about.
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(c.run)
}

// left takes a connection off that has ended.
func (s *Server) left(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.check()
}

// check is called with the lock held.
func (s *Server) check() {
	if s.ending && len(s.conns) == 0 {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// all ends the taking of connections and returns those there are.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.ending = true
		if s.lis != nil {
			// Its owner closes it as well.
			_ = s.lis.Close()
		}
	}
	s.check()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

// Drain takes no call any more and waits until those under way have ended, or ctx has; then the error is its cause. Streams of services are
// ended.
func (s *Server) Drain(ctx context.Context) error {
	s.drain()
	for _, c := range s.all() {
		c.leave()
	}
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Interrupt ends the contexts of all calls under way with a cause. They may still answer, until Close.
func (s *Server) Interrupt(cause error) {
	for _, c := range s.all() {
		c.interrupt(cause)
	}
}

// Close ends all connections at once, and waits for everything that the server started: handlers, too.
func (s *Server) Close() {
	s.drain()
	for _, c := range s.all() {
		c.end(ErrClosed)
	}
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	s.wg.Wait()
}

// Handlers is the number of calls under way, those included whose clients have left.
func (s *Server) Handlers() int64 { return s.handlers.Load() }
