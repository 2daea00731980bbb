package frame

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func startClient(t testing.TB, c *Client) *Client {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func ask(t testing.TB, c *Client, q string) {
	t.Helper()
	got, err := c.Do(t.Context(), []byte(q), Options{})
	if err != nil || string(got) != "re:"+q {
		t.Fatalf("%q: %q, %v", q, got, err)
	}
}

// asError is the *Error that every error of Do is.
func asError(t testing.TB, err error) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%v is no *Error", err)
	}
	return e
}

func TestSocketsAreReused(t *testing.T) {
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: echo})})
	for _, q := range []string{"a", "", strings.Repeat("b", 5<<20), "c"} {
		ask(t, c, q)
	}
	if n := c.Stats(); n != (ClientStats{Open: 1, Idle: 1, Requests: 4, Dials: 1, Reuses: 3}) {
		t.Errorf("%+v", n)
	}
	none := startClient(t, &Client{Addr: c.Addr, MaxIdle: -1})
	ask(t, none, "a")
	ask(t, none, "b")
	if n := none.Stats(); n != (ClientStats{Requests: 2, Dials: 2}) {
		t.Errorf("%+v", n)
	}
}

// The memory of the reply is the caller's: in Buf if there is room, and never used again by the client.
func TestReplyBelongsToTheCaller(t *testing.T) {
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: echo})})
	buf := make([]byte, 0, 100)
	first, err := c.Do(t.Context(), []byte("first"), Options{Buf: buf})
	if err != nil || &first[0] != &buf[:1][0] {
		t.Fatalf("%q, %v", first, err)
	}
	second, err := c.Do(t.Context(), []byte("other"), Options{})
	if err != nil || string(first) != "re:first" || string(second) != "re:other" {
		t.Errorf("%q, %q, %v", first, second, err)
	}
}

func TestEightIdleSockets(t *testing.T) {
	w := newWatched()
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: w.handle})})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := c.Do(t.Context(), []byte("wait"), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 20 {
		within(t, "a request", w.begun)
	}
	close(w.goOn)
	all.Wait()
	if n := c.Stats(); n.Idle != 8 || n.Open != 8 || n.Dials != 20 {
		t.Errorf("%+v", n)
	}
}

func TestBoundOnConnections(t *testing.T) {
	w := newWatched()
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: w.handle}), MaxConns: 2})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := c.Do(t.Context(), []byte("wait"), Options{}); err != nil {
				t.Error(err)
			}
		})
		within(t, "a request", w.begun)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := c.Do(ctx, []byte("x"), Options{})
	if e := asError(t, err); e.Op != OpWait || e.MaybeApplied || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%#v", e)
	}
	waiter := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), []byte("x"), Options{})
		waiter <- err
	}()
	close(w.goOn)
	if err := within(t, "the waiter's turn", waiter); err != nil {
		t.Error(err)
	}
	all.Wait()
	if n := c.Stats(); n.Dials != 2 || n.Open > 2 {
		t.Errorf("%+v", n)
	}
}

func TestRestartUnderAWarmPool(t *testing.T) {
	for _, safe := range []bool{true, false} {
		for _, blind := range []bool{false, true} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			s := &Server{Handler: echo}
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			c := startClient(t, &Client{Addr: addr})
			ask(t, c, "warm")
			if blind { // on a system where a socket does not tell its state
				c.mu.idle[0].prober = prober{}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			<-done
			if l, err = net.Listen("tcp", addr); err != nil {
				t.Fatal(err)
			}
			start(t, &Server{Handler: echo}, l)
			got, err := c.Do(t.Context(), []byte("x"), Options{Safe: safe})
			n := c.Stats()
			switch {
			case !blind:
				if err != nil || string(got) != "re:x" || n.Stale != 1 || n.Retries != 0 || n.Dials != 2 {
					t.Errorf("safe %v: %q, %v, %+v", safe, got, err, n)
				}
			case safe:
				if err != nil || string(got) != "re:x" || n.Retries != 1 || n.Dials != 2 {
					t.Errorf("safe, unnoticed: %q, %v, %+v", got, err, n)
				}
			case err == nil:
				// The reset was there before the first byte was written: nothing was applied, and it was sent again.
				if n.Retries != 1 || n.Dials != 2 {
					t.Errorf("unsafe, unnoticed: %+v", n)
				}
			default:
				if e := asError(t, err); !e.MaybeApplied || !e.Reused || n.Retries != 0 || n.Dials != 1 {
					t.Errorf("unsafe, unnoticed: %#v, %+v", e, n)
				}
			}
		}
	}
}

// byHand serves each connection to a port of the loopback with f.
func byHand(t testing.TB, f func(n int, c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				f(n, c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// The first request of each connection is answered; the second is read, and then the connection is lost.
func loseSecond(got *atomic.Int64) func(int, *net.TCPConn) {
	return func(_ int, c *net.TCPConn) {
		for n := range 2 {
			q, err := Read(c, 0, nil)
			if err != nil {
				return
			}
			got.Add(1)
			if n == 0 && Write(c, append([]byte("re:"), q...)) != nil {
				return
			}
		}
	}
}

func TestLostReply(t *testing.T) {
	var got atomic.Int64
	c := startClient(t, &Client{Addr: byHand(t, loseSecond(&got))})
	ask(t, c, "a")
	_, err := c.Do(t.Context(), []byte("write"), Options{})
	e := asError(t, err)
	if !e.MaybeApplied || !e.Reused || e.Op != OpRead || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%#v", e)
	}
	if n := c.Stats(); n.Retries != 0 || n.Dials != 1 || n.Errors != 1 || n.Open != 0 || got.Load() != 2 {
		t.Errorf("%+v, the server had %d requests", n, got.Load())
	}
	ask(t, c, "b")
	if reply, err := c.Do(t.Context(), []byte("read"), Options{Safe: true}); err != nil || string(reply) != "re:read" {
		t.Errorf("%q, %v", reply, err)
	}
	if n := c.Stats(); n.Retries != 1 || n.Dials != 3 || got.Load() != 5 {
		t.Errorf("%+v, the server had %d requests", n, got.Load())
	}
}

func TestFailureOfAFreshConnectionIsReported(t *testing.T) {
	var conns atomic.Int64
	addr := byHand(t, func(_ int, c *net.TCPConn) {
		conns.Add(1)
		if _, err := Read(c, 0, nil); err != nil {
			t.Error(err)
		}
	})
	c := startClient(t, &Client{Addr: addr})
	_, err := c.Do(t.Context(), []byte("x"), Options{Safe: true})
	if e := asError(t, err); e.Reused || !e.MaybeApplied || e.Op != OpRead || conns.Load() != 1 || c.Stats().Retries != 0 {
		t.Errorf("%#v after %d connections, %+v", e, conns.Load(), c.Stats())
	}
	// Nobody listens.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c = startClient(t, &Client{Addr: l.Addr().String()})
	_, err = c.Do(t.Context(), []byte("x"), Options{Safe: true})
	if e := asError(t, err); e.Op != OpDial || e.MaybeApplied || c.Stats().Dials != 1 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%#v, %+v", e, c.Stats())
	}
}

// failing is a connection whose writes fail once it is told to, after some bytes.
type failing struct {
	net.Conn
	left atomic.Int64 // bytes; negative for any number
}

func (f *failing) Write(p []byte) (int, error) {
	left := f.left.Load()
	if left < 0 || int64(len(p)) < left {
		return f.Conn.Write(p)
	}
	n, err := f.Conn.Write(p[:left])
	return n, errors.Join(err, syscall.ECONNRESET, f.Conn.Close())
}

// For every byte of the frame: a request that was not written whole is sent again though it is not safe, one that was is not.
func TestUnsafeRequestIsRepeatedOnlyIfItWasNotWrittenWhole(t *testing.T) {
	const q = "write"
	for at := range int64(HeaderSize + len(q)) {
		synctest.Test(t, func(t *testing.T) {
			l := newPipeListener()
			var had atomic.Int64
			start(t, &Server{Handler: func(ctx context.Context, request, reply []byte) Reply {
				if string(request) == q {
					had.Add(1)
				}
				return echo(ctx, request, reply)
			}}, l)
			var first *failing
			c := startClient(t, &Client{Addr: "pipe", Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				nc, err := l.dial(ctx, addr)
				f := &failing{Conn: nc}
				f.left.Store(-1)
				if first == nil {
					first = f
				}
				return f, err
			}})
			ask(t, c, "warm")
			first.left.Store(at)
			ask(t, c, q)
			if n := c.Stats(); n.Retries != 1 || n.Dials != 2 || had.Load() != 1 {
				t.Errorf("at byte %d: %+v, the server had it %d times", at, n, had.Load())
			}
		})
	}
}

func TestCancelReachesTheHandler(t *testing.T) {
	w := newWatched()
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: w.handle})})
	gone := errors.New("nobody waits")
	for range 2 { // on a fresh connection, then on one that was used
		ask(t, c, "x")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := c.Do(ctx, []byte("wait"), Options{Safe: true})
			failed <- err
		}()
		within(t, "the request", w.begun)
		cancel(gone)
		if err := within(t, "the cancellation", w.ended); !errors.Is(err, ErrPeerGone) {
			t.Errorf("the handler was told %v", err)
		}
		err := within(t, "the return", failed)
		if e := asError(t, err); !errors.Is(err, gone) || !errors.Is(err, context.Canceled) || !e.MaybeApplied || e.Cause != gone {
			t.Errorf("%#v", e)
		}
	}
	if n := c.Stats(); n.Retries != 0 || n.Open != 0 {
		t.Errorf("%+v", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(ctx, []byte("x"), Options{}); !errors.Is(err, context.Canceled) || asError(t, err).MaybeApplied {
		t.Error(err)
	}
}

func TestDeadlineOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		start(t, &Server{Handler: func(ctx context.Context, _, reply []byte) Reply {
			<-ctx.Done()
			return Reply{Body: reply}
		}}, l)
		c := startClient(t, &Client{Addr: "pipe", Dial: l.dial})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := c.Do(ctx, []byte("x"), Options{Safe: true})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestLimitsOfTheClient(t *testing.T) {
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: echo}), MaxRequest: 10, MaxReply: 8})
	_, err := c.Do(t.Context(), []byte("0123456789a"), Options{})
	if long, ok := errors.AsType[*TooLongError](err); !ok || *long != (TooLongError{11, 10}) || asError(t, err).MaybeApplied || c.Stats().Dials != 0 {
		t.Errorf("%v, %+v", err, c.Stats())
	}
	ask(t, c, "01234")
	_, err = c.Do(t.Context(), []byte("012345"), Options{Safe: true})
	if long, ok := errors.AsType[*TooLongError](err); !ok || *long != (TooLongError{9, 8}) || !asError(t, err).MaybeApplied || c.Stats().Retries != 0 || c.Stats().Open != 0 {
		t.Errorf("%v, %+v", err, c.Stats())
	}
}

// A server that refuses a frame by its header answers before it has read the body, and closes: the client that still writes gets
// that answer.
func TestAnswerBeforeTheRequestWasRead(t *testing.T) {
	addr := byHand(t, func(_ int, c *net.TCPConn) {
		var h [HeaderSize]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			t.Error(err)
		}
		if err := Write(c, []byte("too long")); err != nil {
			t.Error(err)
		}
	})
	c := startClient(t, &Client{Addr: addr})
	got, err := c.Do(t.Context(), make([]byte, 32<<20), Options{})
	if err != nil || string(got) != "too long" {
		t.Errorf("%q, %v", got, err)
	}
	if n := c.Stats(); n.Open != 0 {
		t.Errorf("%+v", n)
	}
}

func TestSocketWithMoreThanAReplyIsNotReused(t *testing.T) {
	more := make(chan struct{})
	addr := byHand(t, func(n int, c *net.TCPConn) {
		for {
			q, err := Read(c, 0, nil)
			if err != nil {
				return
			}
			out := Append(nil, append([]byte("re:"), q...))
			if n == 0 {
				out = append(out, 0)
			}
			if _, err := c.Write(out); err != nil {
				return
			}
			if n == 1 { // later, on the idle socket
				<-more
				if _, err := c.Write([]byte{0}); err != nil {
					return
				}
				more <- struct{}{}
			}
		}
	})
	c := startClient(t, &Client{Addr: addr})
	ask(t, c, "a")
	if n := c.Stats(); n.Idle != 0 {
		t.Errorf("%+v", n)
	}
	ask(t, c, "b")
	more <- struct{}{}
	<-more
	ask(t, c, "c")
	if n := c.Stats(); n.Dials != 3 || n.Stale != 1 || n.Retries != 0 {
		t.Errorf("%+v", n)
	}
}

func TestIdleSocketsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		start(t, &Server{Handler: echo}, l)
		c := startClient(t, &Client{Addr: "pipe", Dial: l.dial, IdleAge: time.Minute})
		ask(t, c, "a")
		<-time.After(40 * time.Second)
		ask(t, c, "b") // now it is young again
		<-time.After(40 * time.Second)
		ask(t, c, "c")
		if n := c.Stats(); n.Dials != 1 || n.Reuses != 2 {
			t.Errorf("%+v", n)
		}
		<-time.After(61 * time.Second)
		synctest.Wait()
		if n := c.Stats(); n.Open != 0 || n.Idle != 0 {
			t.Errorf("%+v", n)
		}
		ask(t, c, "d")
	})
}

func TestCloseOfAClient(t *testing.T) {
	w := newWatched()
	c := startClient(t, &Client{Addr: startTCP(t, &Server{Handler: w.handle}), MaxConns: 1})
	failed := make(chan error, 2)
	go func() {
		_, err := c.Do(context.Background(), []byte("wait"), Options{Safe: true})
		failed <- err
	}()
	within(t, "the request", w.begun)
	go func() {
		_, err := c.Do(context.Background(), []byte("waits for its turn"), Options{})
		failed <- err
	}()
	for c.Stats().Requests < 2 {
		yield()
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, ErrClientClosed) {
			t.Error(err)
		}
	}
	within(t, "the cancellation", w.ended)
	if _, err := c.Do(context.Background(), nil, Options{}); !errors.Is(err, ErrClientClosed) {
		t.Error(err)
	}
	if n := c.Stats(); n.Open != 0 {
		t.Errorf("%+v", n)
	}
}

func TestDialThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := startClient(t, &Client{Addr: "nowhere", Dial: blocked})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Do(ctx, nil, Options{Safe: true})
		if e := asError(t, err); e.Op != OpDial || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%#v", e)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), nil, Options{})
			failed <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-failed; !errors.Is(err, ErrClientClosed) {
			t.Error(err)
		}
	})
}

func TestPoolOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		start(t, &Server{Handler: echo}, l)
		made := 0
		p := &Pool{Unused: time.Minute, New: func(addr string) *Client {
			made++
			return &Client{Addr: addr, Dial: l.dial}
		}}
		for _, addr := range []string{"a", "b", "a"} {
			if got, err := p.Do(t.Context(), addr, []byte("x"), Options{}); err != nil || string(got) != "re:x" {
				t.Fatal(got, err)
			}
		}
		if n := p.Stats(); made != 2 || n != (ClientStats{Open: 2, Idle: 2, Requests: 3, Dials: 2, Reuses: 1}) {
			t.Errorf("%d clients, %+v", made, n)
		}
		<-time.After(40 * time.Second)
		if _, err := p.Do(t.Context(), "a", nil, Options{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(40 * time.Second)
		synctest.Wait()
		if n := p.Stats(); len(p.mu.clients) != 1 || n.Open != 1 || n.Requests != 4 {
			t.Errorf("%d clients are left, %+v", len(p.mu.clients), n)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Do(t.Context(), "a", nil, Options{}); !errors.Is(err, ErrClientClosed) {
			t.Error(err)
		}
		if n := p.Stats(); n.Open != 0 || n.Requests != 4 {
			t.Errorf("%+v", n)
		}
	})
}
