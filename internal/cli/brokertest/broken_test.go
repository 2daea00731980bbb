package brokertest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// way leads to a node, and breaks in the ways that a test says.
type way struct {
	addr string

	mu    sync.Mutex
	how   breakage
	conns map[net.Conn]bool // of who comes
}

type breakage int

const (
	whole   breakage = iota
	cut              // connections end at once
	garbage          // those that come are told what is no frame, and so are those that are there
)

const nonsense = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>this is no frame"

func leading(t *testing.T, to string) *way {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{addr: lis.Addr().String(), conns: map[net.Conn]bool{}}
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			carrying.Go(func() { w.carry(c, to) })
		}
	})
	t.Cleanup(func() {
		lis.Close()
		w.breaks(cut)
		carrying.Wait()
	})
	return w
}

// breaks says what happens from now on, also on connections that are there.
func (w *way) breaks(how breakage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.how = how
	for c := range w.conns {
		w.hurtLocked(c)
	}
}

func (w *way) hurtLocked(c net.Conn) {
	switch w.how {
	case cut:
		c.Close()
	case garbage:
		io.WriteString(c, nonsense) //nolint:errcheck // whoever is gone is gone
	}
}

func (w *way) carry(c net.Conn, to string) {
	defer c.Close()
	w.mu.Lock()
	w.conns[c] = true
	w.hurtLocked(c)
	broken := w.how
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, c)
	}()
	if broken != whole {
		io.Copy(io.Discard, c) //nolint:errcheck // until who came has had enough
		return
	}
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer c.Close()
		io.Copy(c, up) //nolint:errcheck // whoever is gone is gone
	})
	io.Copy(up, c) //nolint:errcheck // likewise
	up.Close()
	back.Wait()
}

// TestNodesThatFlapAndSpeakNonsenseDelayNobody has one whose connections end every few milliseconds and one that speaks another protocol. Their calls
// fail at once, or are answered; calls of another node are answered as before; and both are used again when they are well.
func TestNodesThatFlapAndSpeakNonsenseDelayNobody(t *testing.T) {
	servers := append(two(t), startServer(t, t.TempDir(), "127.0.0.1:0"))
	odd, flapping := leading(t, servers[1].addr), leading(t, servers[2].addr)
	servers[1], servers[2] = &server{addr: odd.addr}, &server{addr: flapping.addr}
	b := before(t, servers, "--placement", "a*=0", "--placement", "b*=1", "--placement", "c*=2", "--backend-unreachable-grace-secs", "600")
	for _, index := range []string{"a1", "b1", "c1"} {
		b.fill(t, index, 3)
	}
	odd.breaks(garbage)
	enough := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for how := cut; ; how = cut - how {
			flapping.breaks(how)
			select {
			case <-every.C:
			case <-enough:
				return
			}
		}
	})
	// A call that is under way at a node must not outlive what becomes of the node: there are no deadlines here.
	failed := map[string]int{}
	var mu sync.Mutex
	for _, index := range []string{"b1", "c1"} {
		for range 4 {
			beside.Go(func() {
				for range 100 {
					got, err := b.search.Search(t.Context(), all(index))
					code := status.Code(err)
					if code == codes.ResourceExhausted && index == "c1" {
						// Calls that were cut off run on at the node for as long as it does not know: it may have no room for another.
						code = codes.Unavailable
					}
					if err != nil && code != codes.Unavailable || err == nil && len(got.Hits) != 3 {
						t.Errorf("%s: %v, %v", index, got, err)
					}
					mu.Lock()
					if err != nil {
						failed[index]++
					}
					mu.Unlock()
				}
			})
		}
	}
	var took times
	for range 300 {
		at := time.Now()
		if got, err := b.search.Search(t.Context(), all("a1")); err != nil || len(got.Hits) != 3 {
			t.Fatalf("the other node: %v, %v", got, err)
		}
		took = append(took, time.Since(at))
	}
	b.becomes(t, "b", "suspect")
	if n := b.nodes(t)["a"]; n.Health != "healthy" || n.ConsecutiveFailures != 0 {
		t.Errorf("the other node is %v", n)
	}
	close(enough)
	beside.Wait()
	t.Logf("calls of the other node: %v; of 400 calls each failed %v", took, failed)
	if failed["b1"] == 0 {
		t.Error("all calls of the node that speaks nonsense were answered")
	}
	for _, w := range []*way{odd, flapping} {
		w.breaks(cut) // what was said amiss on a connection stays amiss
		w.breaks(whole)
	}
	for id, index := range map[string]string{"b": "b1", "c": "c1"} {
		b.becomes(t, id, "healthy")
		soon(t, index+" is answered again", func() bool {
			got, err := b.search.Search(t.Context(), all(index))
			return err == nil && len(got.Hits) == 3
		})
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}
