package link

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// told is what the kernel tells of a connection.
func told(t *testing.T, c *net.TCPConn) *unix.TCPInfo {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	var serr error
	if err := raw.Control(func(fd uintptr) { info, serr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	return info
}

// Packets that are lost are sent again by the sender's TCP: all bytes arrive, later.
func TestLostPacketsAreSentAgain(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	for _, f := range []Fault{{There: Way{Drop: 0.4}}, {Back: Way{Drop: 0.4}}, {There: Way{Drop: 0.2}, Back: Way{Drop: 0.2}}} {
		set(t, p, "a", Fault{})
		c := dial(t, p).(*net.TCPConn)
		say(t, c, "0")
		mustHear(t, c, "0")
		set(t, p, "a", f)
		// Until some were lost for certain: the kernel draws.
		text := strings.Repeat("what is said", 50)
		deadline := time.Now().Add(patience)
		for lost := false; !lost; {
			say(t, c, text)
			mustHear(t, c, text)
			lost = told(t, c).Total_retrans > 0
			if f.There.Drop == 0 { // it is the server that sends again, which shows at the proxy as what comes behind a gap
				p.mu.Lock()
				for k := range p.conns {
					if k.in.RemoteAddr().String() == c.LocalAddr().String() {
						lost = told(t, k.out).Rcv_ooopack > 0
					}
				}
				p.mu.Unlock()
			}
			if time.Now().After(deadline) {
				t.Fatalf("with %+v nothing was ever sent again", f)
			}
		}
	}
}

// Where every packet is lost nothing passes, and what was sent meanwhile arrives when that is over.
func TestALinkThatLosesEverythingHeals(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	c := dial(t, p)
	say(t, c, "a")
	mustHear(t, c, "a")
	s.mustGet(t, "a")
	set(t, p, "a", Fault{There: Way{Drop: 1}})
	say(t, c, "b")
	if got, err := hear(t, c, 1, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || len(s.got) > 0 {
		t.Errorf("heard %q, %v", got, err)
	}
	set(t, p, "a", Fault{})
	mustHear(t, c, "b")
	s.mustGet(t, "b")
}

// A connection that is made under a fault has it, and its handshake with the server, too.
func TestNewConnectionsLosePacketsAsWell(t *testing.T) {
	s := serve(t)
	p := proxy(t, s)
	set(t, p, "a", Fault{Back: Way{Drop: 1}})
	c := dial(t, p)
	say(t, c, "x")
	if got, err := hear(t, c, 1, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || len(s.got) > 0 {
		t.Errorf("heard %q, %v", got, err)
	}
	set(t, p, "a", Fault{})
	d := dial(t, p)
	say(t, d, "y")
	mustHear(t, d, "y")
}
