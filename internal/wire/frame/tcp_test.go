package frame

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// yield lets others run while a test looks for a state that comes at once.
func yield() { runtime.Gosched() }

// serverConns are the connections that a server has now.
func serverConns(s *Server) iter.Seq[*serverConn] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*serverConn
	for c := range s.mu.conns {
		all = append(all, c)
	}
	return func(yield func(*serverConn) bool) {
		for _, c := range all {
			if !yield(c) {
				return
			}
		}
	}
}

// watched is a handler that tells when it has begun and how its context ended.
type watched struct {
	begun chan struct{}
	goOn  chan struct{}
	ended chan error
}

func newWatched() *watched {
	return &watched{make(chan struct{}, 10), make(chan struct{}), make(chan error, 10)}
}

func (w *watched) handle(ctx context.Context, request, reply []byte) Reply {
	if !strings.HasPrefix(string(request), "wait") {
		return echo(ctx, request, reply)
	}
	w.begun <- struct{}{}
	select {
	case <-ctx.Done():
		w.ended <- context.Cause(ctx)
	case <-w.goOn:
	}
	return echo(ctx, request, reply)
}

func TestResetCancelsTheHandler(t *testing.T) {
	w := newWatched()
	s := &Server{Handler: w.handle}
	addr := startTCP(t, s)
	for _, next := range []string{"", "next", strings.Repeat("n", 3000)} {
		c := dialTCP(t, addr)
		send(t, c, "wait")
		within(t, "the request", w.begun)
		if next != "" {
			send(t, c, next) // pipelined input does not hide the reset
		}
		if err := c.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := within(t, "the cancellation", w.ended); !errors.Is(err, ErrPeerGone) {
			t.Errorf("cause %v", err)
		}
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats(); n.PeersGone != 3 || n.Requests != 3 {
		t.Errorf("%+v", n)
	}
}

func TestHalfClosedPeerGetsItsReplies(t *testing.T) {
	w := newWatched()
	addr := startTCP(t, &Server{Handler: w.handle})
	c := dialTCP(t, addr)
	send(t, c, "wait")
	send(t, c, "next")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	within(t, "the request", w.begun)
	close(w.goOn)
	wantReply(t, c, "re:wait")
	wantReply(t, c, "re:next")
	wantEnd(t, c)
	select {
	case err := <-w.ended:
		t.Errorf("cancelled: %v", err)
	default:
	}
	// In the middle of a frame there is nothing to answer.
	for _, in := range []string{"\x03", "\x03\x00\x00\x00ab"} {
		c := dialTCP(t, addr)
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, c)
	}
}

// A peer that sends its whole frame before it reads must find the refusal, though the server did not want the body.
func TestRefusalOutlivesTheUnreadBody(t *testing.T) {
	none := errors.New("none")
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{MaxFrame: 8 << 20, Discard: 1 << 20}}
	s.Admit = func(context.Context, int) (func(), error) { return nil, none }
	addr := startTCP(t, s)
	for _, c := range []struct {
		size  int
		reply string
		end   bool
	}{{8<<20 + 1, "too long", true}, {4 << 20, "no memory", true}, {1 << 20, "no memory", false}} {
		conn := dialTCP(t, addr)
		// No more than a little is read of a frame over the limit: what the system does not hold cannot be sent.
		if _, err := conn.Write(Append(nil, make([]byte, c.size))); err != nil && c.size < 8<<20 {
			t.Fatal(err)
		}
		wantReply(t, conn, c.reply)
		if c.end {
			wantEnd(t, conn)
		} else {
			send(t, conn, "x")
			wantReply(t, conn, "re:x")
		}
	}
	// The same with a connection that is one too many.
	w := newWatched()
	one := &Server{Handler: w.handle, Refuse: refuse, Limits: Limits{MaxConns: 1}}
	addr = startTCP(t, one)
	send(t, dialTCP(t, addr), "wait")
	within(t, "the request", w.begun)
	second := dialTCP(t, addr)
	send(t, second, "x")
	wantReply(t, second, "too many")
	wantEnd(t, second)
}

// counted counts what is read from the connections of a listener.
type counted struct {
	net.Listener
	read atomic.Int64
}

type countedConn struct {
	*net.TCPConn
	read *atomic.Int64
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{c.(*net.TCPConn), &l.read}, nil
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A frame over the limit is not read, but for the little that lets its sender find the refusal.
func TestLittleIsReadOfAFrameOverTheLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &counted{Listener: inner}
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{MaxFrame: 32 << 20}}
	start(t, s, l)
	for range 3 {
		conn := dialTCP(t, inner.Addr().String())
		l.read.Store(0)
		sent := make(chan struct{})
		go func() { // a sender that does not stop for a reply
			defer close(sent)
			if _, err := conn.Write(Append(nil, make([]byte, 48<<20))); err == nil {
				t.Error("all of the frame was taken")
			}
		}()
		wantReply(t, conn, "too long")
		within(t, "the end of the sender", sent)
		conn.Close()
		for s.Stats().Open > 0 {
			yield()
		}
		if n := l.read.Load(); n > 256<<10+readAhead {
			t.Errorf("%d bytes were read", n)
		}
	}
	// A client that sends all of its frame first has the refusal too.
	c := &Client{Addr: inner.Addr().String()}
	defer c.Close()
	reply, err := c.Do(t.Context(), make([]byte, 48<<20), Options{})
	if string(reply) != "too long" || err != nil {
		t.Errorf("%q, %v", reply, err)
	}
}

func TestCloseVerdictWithInputLeft(t *testing.T) {
	addr := startTCP(t, &Server{Handler: echo})
	c := dialTCP(t, addr)
	in := Append(nil, []byte("close"))
	for range 100 {
		in = Append(in, []byte(strings.Repeat("more", 1000)))
	}
	if _, err := c.Write(in); err != nil {
		t.Fatal(err)
	}
	wantReply(t, c, "bye")
	wantEnd(t, c)
}

func TestCloseResetsConnections(t *testing.T) {
	w := newWatched()
	s := &Server{Handler: w.handle}
	c := dialTCP(t, startTCP(t, s))
	send(t, c, "wait")
	within(t, "the request", w.begun)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-w.ended; !errors.Is(err, ErrServerClosed) {
		t.Errorf("cause %v", err)
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(c, 0, nil); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the peer sees %v, not a reset", err)
	}
}

// echoBytes sends back what comes, as it comes.
func echoBytes(t testing.TB) string {
	return byHand(t, func(_ int, c *net.TCPConn) {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

// A server whose calendar is before 1970 waited for its clients to send something before it answered them.
func TestADeadlineInThePastIsSoForEveryCalendar(t *testing.T) {
	if past.IsZero() || !past.Before(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("it is %v", past)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(past); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read gives %d, %v", n, err)
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}
