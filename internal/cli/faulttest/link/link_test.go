package link

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// patience is how long a step may take on a slow machine.
const patience = 30 * time.Second

// server answers each byte with itself, and tells of what it got.
type server struct {
	net.Listener
	got  chan byte
	ends chan error
	wg   sync.WaitGroup
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, got: make(chan byte, 1<<16), ends: make(chan error, 100)}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						s.ends <- errors.Join(err, c.Close())
						return
					}
					s.got <- b[0]
					if _, err := c.Write(b); err != nil {
						s.ends <- errors.Join(err, c.Close())
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		s.wg.Wait()
	})
	return s
}

// proxy is a proxy before a server; every connection is of "a".
func proxy(t *testing.T, s *server) *Proxy {
	t.Helper()
	p, err := Listen(func(net.Addr, net.Addr) string { return "a" })
	if err != nil {
		t.Fatal(err)
	}
	p.Point(s.Addr().String())
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// say sends a text.
func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// hear reads so many bytes within the time.
func hear(t *testing.T, c net.Conn, n int, d time.Duration) (string, error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	got, err := io.ReadFull(c, b)
	return string(b[:got]), err
}

// mustHear is hear of exactly this.
func mustHear(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if got, err := hear(t, c, len(text), patience); got != text || err != nil {
		t.Fatalf("heard %q, %v, want %q", got, err, text)
	}
}

// mustGet takes what has reached the server.
func (s *server) mustGet(t *testing.T, text string) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for i := range len(text) {
		select {
		case b := <-s.got:
			if b != text[i] {
				t.Fatalf("the server got %q, want %q", b, text[i])
			}
		case <-late.C:
			t.Fatalf("the server did not get %q", text[i:])
		}
	}
}

func TestBytesPassBothWays(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	c := dial(t, p)
	say(t, c, "hello")
	mustHear(t, c, "hello")
	set(t, p, "b", Fault{Refuse: true, Back: Way{Loss: Stall}}) // of somebody else
	say(t, c, "again")
	mustHear(t, c, "again")
}

func TestADelayHoldsEachPiece(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	c := dial(t, p)
	const delay = 40 * time.Millisecond
	set(t, p, "a", Fault{There: Way{Delay: delay}, Back: Way{Delay: delay / 2, Jitter: delay / 2}})
	began := time.Now()
	say(t, c, "x")
	mustHear(t, c, "x")
	if took := time.Since(began); took < delay+delay/2 {
		t.Errorf("there and back took %v", took)
	}
}

// A partition one way lets requests through and no replies, or the other way round; both go on when it is over.
func TestPartitionsOneWay(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	c := dial(t, p)
	say(t, c, "a")
	mustHear(t, c, "a")
	s.mustGet(t, "a")

	set(t, p, "a", Fault{Back: Way{Loss: Stall}})
	say(t, c, "b")
	s.mustGet(t, "b")
	if got, err := hear(t, c, 1, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v", got, err)
	}
	set(t, p, "a", Fault{There: Way{Loss: Stall}})
	mustHear(t, c, "b")
	say(t, c, "c")
	if got, err := hear(t, c, 1, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || len(s.got) > 0 {
		t.Errorf("heard %q, %v", got, err)
	}
	set(t, p, "a", Fault{})
	mustHear(t, c, "c")
}

// What was held arrives although its sender has given up.
func TestHeldBytesArriveLate(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	holds := make(chan struct{}, 10)
	p.onHold = func() { holds <- struct{}{} }
	for _, abrupt := range []bool{false, true} {
		c := dial(t, p)
		say(t, c, "0")
		mustHear(t, c, "0")
		s.mustGet(t, "0")
		set(t, p, "a", Fault{There: Way{Loss: Stall, After: 2}})
		say(t, c, "12")
		s.mustGet(t, "12")
		mustHear(t, c, "12") // whoever leaves without reading all resets
		say(t, c, "345")
		// A reset throws away what the proxy has not read yet.
		late := time.NewTimer(patience)
		select {
		case <-holds:
		case <-late.C:
			t.Fatal("nothing was held")
		}
		if abrupt {
			reset(c.(*net.TCPConn))
		} else if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if len(s.got) > 0 {
			t.Error("bytes passed that had to be held")
		}
		set(t, p, "a", Fault{})
		s.mustGet(t, "345")
		late.Reset(patience)
		select {
		case <-s.ends:
		case <-late.C:
			t.Error("the server was not told that the sender left")
		}
		late.Stop()
	}
}

func TestAConnectionIsResetAfterSomeBytes(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	c := dial(t, p)
	say(t, c, "before")
	mustHear(t, c, "before")
	set(t, p, "a", Fault{Back: Way{Loss: Reset, After: 3}})
	say(t, c, "12345")
	if got, err := hear(t, c, 4, patience); len(got) > 3 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v", got, err)
	}
}

func TestCutAndRefuse(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	c := dial(t, p)
	say(t, c, "x")
	mustHear(t, c, "x")
	set(t, p, "a", Fault{Refuse: true})
	say(t, c, "y")
	mustHear(t, c, "y") // what is open stays open
	p.Cut("a")
	if got, err := hear(t, c, 1, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v", got, err)
	}
	if d, err := net.Dial("tcp", p.Addr()); err == nil { // or it is reset before that returns
		if got, err := hear(t, d, 1, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("heard %q, %v", got, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	set(t, p, "a", Fault{})
	e := dial(t, p)
	say(t, e, "z")
	mustHear(t, e, "z")
}

// New connections go where the server is now.
func TestTheServerMoves(t *testing.T) {
	one, two := serve(t), serve(t)
	p := proxy(t, one)
	c := dial(t, p)
	say(t, c, "x")
	one.mustGet(t, "x")
	p.Point(two.Addr().String())
	d := dial(t, p)
	say(t, d, "y")
	two.mustGet(t, "y")
	say(t, c, "z")
	one.mustGet(t, "z")
}

// set sets a fault.
func set(t *testing.T, p *Proxy, who string, f Fault) {
	t.Helper()
	if err := p.Set(who, f); err != nil {
		t.Fatal(err)
	}
}
