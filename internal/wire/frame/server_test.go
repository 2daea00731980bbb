package frame

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a server on an in-memory listener in virtual time.
func inBubble(t *testing.T, s *Server, f func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		start(t, s, l)
		f(t, func() net.Conn {
			c, err := l.dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		})
	})
}

func TestConnectionIsReused(t *testing.T) {
	inBubble(t, &Server{Handler: echo, Refuse: refuse}, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		for _, q := range []string{"a", "", strings.Repeat("long", 50_000), "b"} {
			send(t, c, q)
			wantReply(t, c, "re:"+q)
		}
		send(t, c, "close")
		wantReply(t, c, "bye")
		wantEnd(t, c)
	})
}

func TestPanicIsAnswered(t *testing.T) {
	var told atomic.Value
	s := &Server{Handler: echo, Refuse: refuse, Panic: func(v any, stack []byte) {
		if bytes.Contains(stack, []byte("frame.echo")) {
			told.Store(v)
		}
		panic("the hook too")
	}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "panic")
		wantReply(t, c, "internal")
		wantEnd(t, c)
		if told.Load() != "as asked" || s.Stats().Panics != 2 {
			t.Errorf("told %v, %+v", told.Load(), s.Stats())
		}
		c = dial()
		send(t, c, "x")
		wantReply(t, c, "re:x")
	})
}

func TestPanicOfAHookEndsItsConnectionOnly(t *testing.T) {
	s := &Server{Handler: echo, Refuse: func([]byte, Refusal) []byte { panic("refuse") }, Limits: Limits{MaxFrame: 5}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		if _, err := c.Write([]byte{6, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, c)
		c = dial()
		send(t, c, "x")
		wantReply(t, c, "re:x")
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	inBubble(t, &Server{Handler: echo, Limits: Limits{Idle: time.Minute}}, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		begun := time.Now()
		send(t, c, "x")
		wantReply(t, c, "re:x")
		wantEnd(t, c)
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("closed after %v", d)
		}
	})
}

func TestStalledFrameIsCutOff(t *testing.T) {
	for _, in := range []string{"\x05", "\x05\x00\x00\x00", "\x05\x00\x00\x00abcd"} {
		s := &Server{Handler: echo, Limits: Limits{Stall: 3 * time.Second}}
		inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			if _, err := io.WriteString(c, in); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			wantEnd(t, c)
			if d := time.Since(begun); d < 2*time.Second || d > 4*time.Second || s.Stats().Cut != 1 {
				t.Errorf("%q: cut off after %v, %+v", in, d, s.Stats())
			}
		})
	}
}

func TestTricklingSenderIsCutOff(t *testing.T) {
	s := &Server{Handler: echo, Limits: Limits{Stall: 3 * time.Second, MinRate: 100}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		// A byte each second never stalls; 1,000 bytes may take 3 + 10 seconds.
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		begun := time.Now()
		if _, err := c.Write([]byte{0xe8, 3, 0, 0}); err != nil {
			t.Fatal(err)
		}
		sent := 0
		for ; ; sent++ {
			<-tick.C
			if _, err := c.Write([]byte{'x'}); err != nil {
				break
			}
		}
		if d := time.Since(begun); d < 12*time.Second || d > 15*time.Second || s.Stats().Cut != 1 {
			t.Errorf("cut off after %v and %d bytes, %+v", d, sent, s.Stats())
		}
		// At the rate, it is heard.
		c = dial()
		for in := Append(nil, make([]byte, 1000)); len(in) > 0; in = in[min(len(in), 100):] {
			<-tick.C
			if _, err := c.Write(in[:min(len(in), 100)]); err != nil {
				t.Fatal(err)
			}
		}
		wantReply(t, c, "re:"+string(make([]byte, 1000)))
	})
}

func TestReaderThatStallsIsCutOff(t *testing.T) {
	s := &Server{Limits: Limits{Stall: 3 * time.Second, MinRate: 1 << 20}}
	s.Handler = func(_ context.Context, _, reply []byte) Reply {
		return Reply{Body: append(reply, make([]byte, 4<<20)...)}
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "x")
		begun := time.Now()
		synctest.Wait()
		for s.Stats().Open > 0 {
			<-time.After(100 * time.Millisecond)
		}
		if d := time.Since(begun); d < 3*time.Second || d > 4*time.Second || s.Stats().Cut != 1 {
			t.Errorf("a reader that never reads: cut off after %v, %+v", d, s.Stats())
		}
		// A trickle has no stall and is too slow: 4 MiB may take 3 + 4 seconds.
		c = dial()
		send(t, c, "x")
		begun = time.Now()
		buf := make([]byte, 64<<10)
		for {
			<-time.After(200 * time.Millisecond)
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
		if d := time.Since(begun); d < 6*time.Second || d > 8*time.Second || s.Stats().Cut != 2 {
			t.Errorf("a slow reader: cut off after %v, %+v", d, s.Stats())
		}
	})
}

func TestFrameOverTheLimit(t *testing.T) {
	var heard Refusal
	s := &Server{Handler: echo, Limits: Limits{MaxFrame: 5}, Refuse: func(dst []byte, r Refusal) []byte {
		heard = r
		return refuse(dst, r)
	}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "12345")
		wantReply(t, c, "re:12345")
		if _, err := c.Write([]byte{6, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		wantReply(t, c, "too long")
		wantEnd(t, c)
		if heard != (Refusal{Reason: FrameTooLong, Limit: 5, Length: 6, Close: true}) || s.Stats().TooLong != 1 || s.Stats().Requests != 1 {
			t.Errorf("%+v, %+v", heard, s.Stats())
		}
	})
}

func TestAdmissionBeforeTheBody(t *testing.T) {
	var held, asked atomic.Int64
	none := errors.New("no room")
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{Small: 10, Discard: 1000, MaxFrame: 5000}}
	s.Admit = func(_ context.Context, n int) (func(), error) {
		asked.Add(1)
		if held.Add(int64(n)) > 100 {
			held.Add(-int64(n))
			return nil, none
		}
		return func() { held.Add(-int64(n)) }, nil
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "0123456789")
		wantReply(t, c, "re:0123456789")
		if asked.Load() != 0 {
			t.Error("a small frame was charged")
		}
		send(t, c, strings.Repeat("x", 100))
		wantReply(t, c, "re:"+strings.Repeat("x", 100))
		synctest.Wait()
		if asked.Load() != 1 || held.Load() != 0 {
			t.Errorf("asked %d times, holds %d", asked.Load(), held.Load())
		}
		// Discarded, and the connection goes on.
		send(t, c, strings.Repeat("x", 1000))
		wantReply(t, c, "no memory")
		send(t, c, "y")
		wantReply(t, c, "re:y")
		// Too much to discard: only the header is read.
		if _, err := c.Write([]byte{0xe9, 3, 0, 0}); err != nil {
			t.Fatal(err)
		}
		wantReply(t, c, "no memory")
		wantEnd(t, c)
		if n := s.Stats().NoMemory; n != 2 {
			t.Errorf("%d refused", n)
		}
	})
}

func TestReplyOverTheLimit(t *testing.T) {
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{MaxReply: 8}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "123456")
		wantReply(t, c, "reply too long")
		send(t, c, "12345")
		wantReply(t, c, "re:12345")
	})
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	inBubble(t, &Server{Handler: func(ctx context.Context, request, reply []byte) Reply {
		// Long enough for the watch to read what comes next.
		<-time.After(10 * time.Millisecond)
		return echo(ctx, request, reply)
	}}, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		want := []string{"a", strings.Repeat("b", 3000), "", strings.Repeat("c", 9000), "d"}
		var in []byte
		for _, q := range want {
			in = Append(in, []byte(q))
		}
		go func() {
			for part := range slices.Chunk(in, 700) {
				if _, err := c.Write(part); err != nil {
					t.Error(err)
				}
			}
		}()
		for _, q := range want {
			wantReply(t, c, "re:"+q)
		}
	})
}

// The request, the reply's own room and memory of the handler may all be returned; nothing is mixed up when they are used again.
func TestHandlerMayReturnAnyMemory(t *testing.T) {
	shared := []byte(strings.Repeat("shared", 30))
	inBubble(t, &Server{Handler: func(_ context.Context, request, reply []byte) Reply {
		switch request[0] {
		case 's':
			return Reply{Body: shared}
		case 'r':
			return Reply{Body: request}
		}
		return Reply{Body: append(reply, request...)}
	}}, func(t *testing.T, dial func() net.Conn) {
		var all sync.WaitGroup
		for i := range 8 {
			c := dial()
			all.Go(func() {
				for n := range 200 {
					q := string("srx"[(i+n)%3]) + strings.Repeat(string('a'+rune(i)), 20+n)
					want := q
					if q[0] == 's' {
						want = strings.Repeat("shared", 30)
					}
					if _, err := c.Write(Append(nil, []byte(q))); err != nil {
						t.Error(err)
						return
					}
					if got, err := Read(c, 0, nil); err != nil || string(got) != want {
						t.Errorf("%q, %v", got, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

func TestConnectionsOverTheLimit(t *testing.T) {
	goOn := make(chan struct{})
	s := &Server{Refuse: refuse, Limits: Limits{MaxConns: 2, MaxRefusing: 1, Idle: time.Hour}}
	s.Handler = func(ctx context.Context, request, reply []byte) Reply {
		if string(request) == "wait" {
			<-goOn
		}
		return echo(ctx, request, reply)
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		goOn = make(chan struct{}) // of the bubble
		a, b := dial(), dial()
		send(t, a, "wait")
		send(t, b, "wait")
		synctest.Wait()
		c := dial()
		wantReply(t, c, "too many")
		wantEnd(t, c)
		// One that does not read its refusal holds the only place for refusals, for a second; the next one is just closed.
		synctest.Wait()
		deaf := dial()
		synctest.Wait()
		d := dial()
		wantEnd(t, d)
		<-time.After(2 * time.Second)
		wantEnd(t, deaf)
		c = dial()
		wantReply(t, c, "too many")
		// A place comes free.
		close(goOn)
		wantReply(t, a, "re:wait")
		wantReply(t, b, "re:wait")
		a.Close()
		synctest.Wait()
		c = dial()
		send(t, c, "c")
		wantReply(t, c, "re:c")
		if n := s.Stats(); n.Open != 2 || n.Accepted != 3 || n.Refused != 4 || n.Evicted != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// When all places are taken, whoever connects gets that of a connection that asks for nothing: one that never has before one that did,
// and of those the one that has been quiet for longest.
func TestFullServerMakesRoom(t *testing.T) {
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{MaxConns: 3, Idle: time.Hour, First: time.Hour}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		ask := func(c net.Conn, q string) {
			t.Helper()
			send(t, c, q)
			wantReply(t, c, "re:"+q)
			synctest.Wait()
			<-time.After(time.Second)
		}
		a, b := dial(), dial()
		ask(a, "a")
		ask(b, "b")
		ask(a, "a")
		silent := dial()
		<-time.After(time.Second)
		younger := dial()
		wantEnd(t, silent)
		<-time.After(time.Second)
		c := dial()
		wantEnd(t, younger)
		ask(c, "c")
		d := dial() // b asked longest ago
		wantEnd(t, b)
		ask(d, "d")
		ask(a, "a")
		ask(c, "c")
		ask(d, "d")
		// A connection in the middle of a frame is not taken for one that is quiet.
		for _, half := range []net.Conn{a, c, d} {
			if _, err := half.Write([]byte{1, 0}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		e := dial()
		wantReply(t, e, "too many")
		if n := s.Stats(); n.Open != 3 || n.Accepted != 6 || n.Refused != 1 || n.Evicted != 3 {
			t.Errorf("%+v", n)
		}
	})
}

// However many connections say nothing, one that asks is heard.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	const limit = 100
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{MaxConns: limit}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		silent := func(n int) {
			for range n {
				dial()
				<-time.After(time.Millisecond)
			}
		}
		silent(3 * limit)
		c := dial()
		<-time.After(time.Millisecond)
		silent(50)
		send(t, c, "x")
		wantReply(t, c, "re:x")
		silent(3 * limit)
		send(t, c, "y")
		wantReply(t, c, "re:y")
		synctest.Wait()
		if n := s.Stats(); n.Open != limit || n.Refused != 0 || n.Evicted != 6*limit+51-limit {
			t.Errorf("%+v", n)
		}
		// Without anyone in want of a place, they go before those that have asked.
		<-time.After(time.Minute)
		if n := s.Stats(); n.Open != 1 {
			t.Errorf("%+v", n)
		}
		send(t, c, "z")
		wantReply(t, c, "re:z")
	})
}

func TestConnectionWithoutARequestIsClosedSoon(t *testing.T) {
	inBubble(t, &Server{Handler: echo, Limits: Limits{Idle: time.Minute, First: 7 * time.Second}}, func(t *testing.T, dial func() net.Conn) {
		begun := time.Now()
		wantEnd(t, dial())
		if d := time.Since(begun); d != 7*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

// What a reply is charged is given back when it is sent, or when that has failed, and once.
func TestReleaseWhenTheReplyIsSent(t *testing.T) {
	var released atomic.Int64
	s := &Server{Refuse: refuse, Limits: Limits{Stall: 3 * time.Second, MaxReply: 1 << 20}}
	s.Handler = func(_ context.Context, request, _ []byte) Reply {
		n := map[string]int{"fits": 1 << 20, "too long": 1<<20 + 1}[string(request)]
		return Reply{Body: make([]byte, n), Release: func() { released.Add(1) }}
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "fits")
		if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil { // all but the last 4 bytes
			t.Fatal(err)
		}
		synctest.Wait()
		if n := released.Load(); n != 0 {
			t.Errorf("released %d times before the end of the reply", n)
		}
		if _, err := io.ReadFull(c, make([]byte, HeaderSize)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := released.Load(); n != 1 {
			t.Errorf("released %d times", n)
		}
		send(t, c, "too long")
		wantReply(t, c, "reply too long")
		synctest.Wait()
		if n := released.Load(); n != 2 {
			t.Errorf("released %d times", n)
		}
		// One that is not read, and one whose peer leaves.
		send(t, c, "fits")
		gone := dial()
		send(t, gone, "fits")
		synctest.Wait()
		if n := released.Load(); n != 2 {
			t.Errorf("released %d times, two replies are under way", n)
		}
		gone.Close()
		synctest.Wait()
		if n := released.Load(); n != 3 {
			t.Errorf("released %d times", n)
		}
		<-time.After(time.Minute)
		if n := released.Load(); n != 4 || s.Stats().Open != 0 {
			t.Errorf("released %d times, %+v", n, s.Stats())
		}
	})
}

// A reader at the least rate would keep a reply of 64 MiB for 17 minutes.
func TestReplyTimeBoundsASlowReader(t *testing.T) {
	s := &Server{Limits: Limits{ReplyTime: 20 * time.Second}}
	s.Handler = func(context.Context, []byte, []byte) Reply { return Reply{Body: make([]byte, 32<<20)} }
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "x")
		begun := time.Now()
		buf := make([]byte, 256<<10)
		for {
			<-time.After(time.Second)
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
		if d := time.Since(begun); d < 20*time.Second || d > 22*time.Second || s.Stats().Cut != 1 {
			t.Errorf("cut off after %v, %+v", d, s.Stats())
		}
	})
}

func TestTenThousandSlowSenders(t *testing.T) {
	const peers, limit = 10_000, 50
	s := &Server{Handler: echo, Refuse: refuse, Limits: Limits{MaxConns: limit, Stall: 5 * time.Second}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		for i := range peers {
			c := dial()
			// Half a header, and then nothing; those over the limit find their connection closed, or nobody who reads.
			err := c.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if err == nil {
				_, err = c.Write([]byte{255, 0})
			}
			if err != nil && i < limit {
				t.Fatal(err)
			}
			if i < limit {
				synctest.Wait() // until it is seen to have begun a frame
			}
			if n := s.Stats().Open; n > limit {
				t.Fatalf("%d connections are open", n)
			}
			s.mu.Lock()
			all := len(s.mu.conns)
			s.mu.Unlock()
			if all > limit+s.limits.MaxRefusing {
				t.Fatalf("%d connections are held", all)
			}
		}
		<-time.After(6 * time.Second)
		synctest.Wait()
		if n := s.Stats(); n.Open != 0 || n.Accepted+n.Refused != peers || n.Cut != n.Accepted {
			t.Errorf("%+v", n)
		}
		c := dial()
		send(t, c, "x")
		wantReply(t, c, "re:x")
	})
}

func TestShutdownFinishesWhatIsUnderWay(t *testing.T) {
	goOn := make(chan struct{})
	begun := make(chan struct{})
	s := &Server{Handler: func(ctx context.Context, request, reply []byte) Reply {
		if string(request) == "wait" {
			close(begun)
			select {
			case <-goOn:
			case <-ctx.Done():
				t.Error("cancelled")
			}
		}
		return echo(ctx, request, reply)
	}}
	addr := startTCP(t, s)
	idleConn, active, half := dialTCP(t, addr), dialTCP(t, addr), dialTCP(t, addr)
	send(t, idleConn, "x")
	wantReply(t, idleConn, "re:x")
	send(t, active, "wait")
	within(t, "the request", begun)
	down := make(chan error, 1)
	// A frame that has begun is under way too.
	if _, err := half.Write([]byte("\x03\x00")); err != nil {
		t.Fatal(err)
	}
	for begun := false; !begun; yield() {
		for c := range serverConns(s) {
			begun = begun || c.nc.RemoteAddr().String() == half.LocalAddr().String() && c.state.Load() == busy
		}
	}
	go func() { down <- s.Shutdown(context.Background()) }()
	wantEnd(t, idleConn)
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("a connection was taken during the shutdown")
	}
	select {
	case err := <-down:
		t.Fatalf("shut down with a request under way: %v", err)
	default:
	}
	if _, err := half.Write([]byte("\x00\x00abc")); err != nil {
		t.Fatal(err)
	}
	wantReply(t, half, "re:abc")
	wantEnd(t, half)
	close(goOn)
	wantReply(t, active, "re:wait")
	wantEnd(t, active)
	if err := within(t, "the shutdown", down); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(newPipeListener()); !errors.Is(err, ErrServerClosed) {
		t.Errorf("serve again: %v", err)
	}
}

func TestShutdownThatTakesTooLongCuts(t *testing.T) {
	begun := make(chan struct{})
	cause := make(chan error, 1)
	s := &Server{Handler: func(ctx context.Context, _, reply []byte) Reply {
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return Reply{Body: reply}
	}}
	c := dialTCP(t, startTCP(t, s))
	send(t, c, "x")
	within(t, "the request", begun)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(enough)
	if err := s.Shutdown(ctx); !errors.Is(err, enough) {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-cause; !errors.Is(err, ErrServerClosed) {
		t.Errorf("the handler was told %v", err)
	}
	if _, err := Read(c, 0, nil); err == nil {
		t.Error("a reply came")
	}
}

type flaky struct {
	net.Listener
	errs []error
}

type passing struct{ error }

func (passing) Temporary() bool { return true }

func (f *flaky) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	return f.Listener.Accept()
}

func TestListenerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s := &Server{Handler: echo}
		start(t, s, &flaky{l, []error{passing{io.ErrNoProgress}, passing{io.ErrNoProgress}}})
		c, err := l.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, "x")
		wantReply(t, c, "re:x")
		c.Close()
		broken := errors.New("broken")
		if err := s.Serve(&flaky{newPipeListener(), []error{broken}}); !errors.Is(err, broken) {
			t.Errorf("serve: %v", err)
		}
		if err := new(Server).Serve(newPipeListener()); err == nil {
			t.Error("no handler, and it serves")
		}
	})
}
