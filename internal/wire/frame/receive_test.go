package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// gate is memory that is given out.
type gate struct {
	sync.Mutex
	room, held int
}

var errFull = errors.New("full")

func (g *gate) admit(_ context.Context, n int) (func(), error) {
	g.Lock()
	defer g.Unlock()
	if g.held+n > g.room {
		return nil, errFull
	}
	g.held += n
	return func() {
		g.Lock()
		defer g.Unlock()
		g.held -= n
	}, nil
}

func (g *gate) now() int {
	g.Lock()
	defer g.Unlock()
	return g.held
}

// announce sends the header of a frame, and so many bytes of its body.
func announce(t testing.TB, c net.Conn, length, sent int) {
	t.Helper()
	if _, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(length)), make([]byte, sent)...)); err != nil {
		t.Fatal(err)
	}
}

// more sends so many bytes of a body.
func more(t testing.TB, c net.Conn, n int) {
	t.Helper()
	if _, err := c.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// A peer that announces a long frame holds no more than twice what it has sent.
func TestBodyIsChargedAsItArrives(t *testing.T) {
	const length = 10_000_000
	g := &gate{room: 1 << 30}
	s := &Server{Refuse: refuse, Admit: g.admit}
	during := 0
	s.Handler = func(_ context.Context, request, reply []byte) Reply {
		during = g.now()
		return Reply{Body: append(reply, "read"...)}
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		announce(t, c, length, 3)
		sent := 3
		for _, n := range []int{50_000, 100_000, 1 << 20, 5 << 20} {
			synctest.Wait()
			if held := g.now(); held > 2*sent || sent <= 64<<10 && held != 0 || held != int(s.receiving.Load()) {
				t.Errorf("%d bytes are held of %d that came, %d are said to be received", held, sent, s.receiving.Load())
			}
			more(t, c, n)
			sent += n
		}
		more(t, c, length-sent)
		wantReply(t, c, "read")
		synctest.Wait()
		if during != length || g.now() != 0 || s.receiving.Load() != 0 {
			t.Errorf("%d were held during the request and %d after it, %d are being received", during, g.now(), s.receiving.Load())
		}
		// A peer that leaves gives back what it held.
		announce(t, c, length, 1<<20)
		synctest.Wait()
		if g.now() == 0 {
			t.Error("nothing is held")
		}
		c.Close()
		synctest.Wait()
		if g.now() != 0 || s.receiving.Load() != 0 {
			t.Errorf("%d are held and %d are being received of a peer that left", g.now(), s.receiving.Load())
		}
	})
}

// When memory runs out in the middle of a frame, it is refused there: the connection goes on if little of the frame is missing.
func TestMemoryEndsInTheMiddleOfAFrame(t *testing.T) {
	g := &gate{room: 1 << 20}
	var told Refusal
	s := &Server{Handler: echo, Admit: g.admit, Refuse: func(dst []byte, r Refusal) []byte {
		told = r
		if g.now() != 0 {
			t.Errorf("%d bytes are held of a frame that is refused", g.now())
		}
		return refuse(dst, r)
	}}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		for range 2 {
			send(t, c, strings.Repeat("x", 3<<19)) // refused when the first MiB was read
			wantReply(t, c, "no memory")
			if told != (Refusal{Reason: NoMemory, Length: 3 << 19, Err: errFull}) {
				t.Errorf("%+v", told)
			}
		}
		send(t, c, strings.Repeat("x", 1<<20))
		wantReply(t, c, "re:"+strings.Repeat("x", 1<<20))
		announce(t, c, 10<<20, 1<<20)
		wantReply(t, c, "no memory")
		wantEnd(t, c)
		if told != (Refusal{Reason: NoMemory, Length: 10 << 20, Err: errFull, Close: true}) || s.Stats().NoMemory != 3 || g.now() != 0 || s.receiving.Load() != 0 {
			t.Errorf("%+v, %+v, %d held, %d being received", told, s.Stats(), g.now(), s.receiving.Load())
		}
	})
}

// Frames that are being received have a share of the memory, which a frame that is there counts for no longer.
func TestFramesThatAreBeingReceivedHaveAShare(t *testing.T) {
	goOn := make(chan struct{})
	var told atomic.Value
	s := &Server{Limits: Limits{Receiving: 1 << 20, Stall: time.Minute}, Refuse: func(dst []byte, r Refusal) []byte {
		told.Store(r.Err)
		return refuse(dst, r)
	}}
	s.Handler = func(_ context.Context, request, reply []byte) Reply {
		<-goOn
		return Reply{Body: append(reply, "read"...)}
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		goOn = make(chan struct{}) // of the bubble
		slow, other := dial(), dial()
		announce(t, slow, 1<<20, 600<<10)
		synctest.Wait()
		if s.receiving.Load() != 1<<20 {
			t.Fatalf("%d are being received", s.receiving.Load())
		}
		announce(t, other, 200<<10, 200<<10)
		wantReply(t, other, "no memory")
		if told.Load() != ErrReceiving {
			t.Errorf("told %v", told.Load())
		}
		// Short ones pass.
		announce(t, other, 64<<10, 64<<10)
		goOn <- struct{}{}
		wantReply(t, other, "read")
		// One that is there, and answered slowly, leaves the share to others; one that is alone may have more.
		more(t, slow, 424<<10)
		synctest.Wait()
		announce(t, other, 3<<20, 3<<20)
		synctest.Wait()
		if s.receiving.Load() != 0 {
			t.Errorf("%d are being received", s.receiving.Load())
		}
		close(goOn)
		wantReply(t, slow, "read")
		wantReply(t, other, "read")
	})
}

// The memory of a request whose reply is apart from it is given back before the reply is sent.
func TestReplyApartFromItsRequest(t *testing.T) {
	g := &gate{room: 1 << 20}
	s := &Server{Refuse: refuse, Admit: g.admit}
	s.Handler = func(_ context.Context, request, _ []byte) Reply {
		return Reply{Body: make([]byte, 1<<20), Apart: request[0] == 'a'}
	}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		apart, within := dial(), dial()
		send(t, apart, strings.Repeat("a", 1<<19))
		synctest.Wait()
		if g.now() != 0 {
			t.Errorf("%d bytes are held by a reply that is not read", g.now())
		}
		send(t, within, strings.Repeat("w", 1<<19))
		synctest.Wait()
		if g.now() != 1<<19 {
			t.Errorf("%d bytes are held by a reply that may be in its request", g.now())
		}
		for _, c := range []net.Conn{apart, within} {
			wantReply(t, c, string(make([]byte, 1<<20)))
		}
		synctest.Wait()
		if g.now() != 0 {
			t.Errorf("%d bytes are held", g.now())
		}
	})
}

// slowConn sends so many bytes a second.
type slowConn struct {
	net.Conn
	rate int
}

func (c *slowConn) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		part := p[sent:min(len(p), sent+c.rate/10)]
		<-time.After(time.Duration(len(part)) * time.Second / time.Duration(c.rate))
		n, err := c.Conn.Write(part)
		if sent += n; err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// A frame of 64 MiB at the least rate would take 17 minutes.
func TestLongFrameThatTricklesIsCutOff(t *testing.T) {
	g := &gate{room: 256 << 20}
	s := &Server{Handler: echo, Admit: g.admit}
	inBubble(t, s, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		begun := time.Now()
		n, err := (&slowConn{c, 70 << 10}).Write(Append(nil, make([]byte, 63<<20)))
		if err == nil {
			t.Fatal("it was read whole")
		}
		if d := time.Since(begun); d > 30*time.Second || n > 3<<20 || s.Stats().Cut != 1 || g.now() != 0 {
			t.Errorf("cut off after %v and %d bytes, %+v, %d held", d, n, s.Stats(), g.now())
		}
	})
}

// A client with a slow uplink passes, with the longest frame there is.
func TestSlowUplinkPasses(t *testing.T) {
	for _, rate := range []int{2_000_000, 1<<20 + 1<<17} {
		synctest.Test(t, func(t *testing.T) {
			l := newPipeListener()
			s := &Server{Refuse: refuse}
			s.Handler = func(_ context.Context, request, reply []byte) Reply {
				return Reply{Body: binary.AppendUvarint(reply, uint64(len(request))), Apart: true}
			}
			start(t, s, l)
			c := startClient(t, &Client{Addr: "a", Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				nc, err := l.dial(ctx, addr)
				if err != nil {
					return nil, err
				}
				return &slowConn{nc, rate}, nil
			}})
			for _, n := range []int{4 << 20, DefaultMaxFrame} {
				begun := time.Now()
				reply, err := c.Do(t.Context(), make([]byte, n), Options{})
				if got, _ := binary.Uvarint(reply); err != nil || got != uint64(n) {
					t.Errorf("%d bytes at %d a second: %d came, %v after %v", n, rate, got, err, time.Since(begun))
				}
			}
		})
	}
}
