package grpcraw

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/weft-search/weft/internal/wire/h2"
)

// queued returns the calls that were let come since, with how much, in their order.
func queued(c *conn) (out []string) {
	for b := c.out; len(b) > 0; b = b[h2.FrameHeaderBytes+4:] {
		if b[3] == h2.Window {
			out = append(out, fmt.Sprint(binary.BigEndian.Uint32(b[5:]), ":", binary.BigEndian.Uint32(b[9:])))
		}
	}
	c.out = nil
	return out
}

// waiting is a connection with calls 1 to n, whose timer does not run.
func waiting(n int) (*conn, []*stream) {
	c := &conn{streams: map[uint32]*stream{}, turns: turns{running: true}}
	all := make([]*stream, n+1)
	for i := 1; i <= n; i++ {
		all[i] = &stream{c: c, id: uint32(i)}
		c.streams[uint32(i)] = all[i]
	}
	return c, all
}

// TestLongRepliesTakeTurns has the next one come when the one before it has, or ends.
func TestLongRepliesTakeTurns(t *testing.T) {
	const long = turnBytes - 10
	c, s := waiting(5)
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"the first", func() { c.let(s[1], long) }, fmt.Sprint("1:", long)},
		{"a short one goes with it", func() { c.let(s[2], 10) }, "2:10"},
		{"there is no room for more", func() { c.let(s[3], long) }, ""},
		{"nor for what comes later, though it would have room", func() { c.arrived(s[2], 10); c.let(s[3], 5) }, ""},
		{"part of the first has come", func() { c.arrived(s[1], long-20) }, ""},
		{"all of it, and more of what was there before anyway", func() { c.arrived(s[1], 1000) }, fmt.Sprint("3:", long+5)},
		{"two wait", func() { c.let(s[4], long); c.let(s[5], long) }, ""},
		{"one of them ends", func() { c.remove(s[4]) }, ""},
		{"and the one under way", func() { c.remove(s[3]) }, fmt.Sprint("5:", long)},
		{"a second time", func() { c.remove(s[3]) }, ""},
		{"the last", func() { c.arrived(s[5], long) }, ""},
		{"one that is longer than all counts half", func() { c.let(s[1], 3*turnBytes) }, fmt.Sprint("1:", 3*turnBytes)},
		{"so that another one has its turn before it is whole", func() { c.let(s[2], turnBytes/2) }, fmt.Sprint("2:", turnBytes/2)},
	}
	for _, step := range steps {
		step.do()
		if got := strings.Join(queued(c), " "); got != step.want {
			t.Fatalf("%s: %q, want %q", step.what, got, step.want)
		}
	}
	// What comes of a reply that nobody waits for is no sign of those that are.
	c, s = waiting(2)
	c.let(s[1], long)
	if c.arrived(s[2], 100); c.turns.came {
		t.Error("a short reply counts as part of a long one")
	}
	if c.arrived(s[1], 100); !c.turns.came {
		t.Error("a part of a long reply does not count")
	}
}

// TestShortRepliesDoNotKeepALongOneWaiting for ever, when they come all the time.
func TestShortRepliesDoNotKeepALongOneWaiting(t *testing.T) {
	const short = 100 << 10
	c, s := waiting(100)
	c.let(s[1], short)
	c.let(s[2], turnBytes)
	got := queued(c)
	for i := 3; i < 100 && !slices.Contains(got, fmt.Sprint("2:", turnBytes)); i++ {
		c.let(s[i], short)
		got = append(got, queued(c)...)
		// One of them is always under way.
		for j := 1; j < i-1; j++ {
			c.arrived(s[j], short)
		}
		got = append(got, queued(c)...)
	}
	if want := []string{fmt.Sprint("1:", short), fmt.Sprint("2:", turnBytes)}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if c.arrived(s[2], turnBytes); !slices.Equal(queued(c), []string{fmt.Sprint("3:", short)}) {
		t.Error("the one that waited behind it does not come")
	}
}

// TestTurnsLoseNobody has replies of all lengths that come, pause and end: each is let come, and nothing is counted in the end.
func TestTurnsLoseNobody(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, s := waiting(20)
		s = s[1:]
		left := map[uint32]int64{} // let come and not come
		asked := map[uint32]int64{}
		see := func() {
			for _, w := range queued(c) {
				var id uint32
				var n int64
				fmt.Sscanf(w, "%d:%d", &id, &n)
				left[id] += n
				asked[id] -= n
			}
		}
		for step := 0; len(s) > 0; step++ {
			i := r.IntN(len(s))
			one := s[i]
			switch r.IntN(5) {
			case 0:
				if step < 1000 {
					n := 1 + r.Int64N(turnBytes*5/4)
					asked[one.id] += n
					c.let(one, n)
				}
			case 1:
				if step > 500 {
					c.remove(one)
					delete(left, one.id)
					delete(asked, one.id)
					s = slices.Delete(s, i, i+1)
				}
			default:
				n := min(left[one.id], 1+r.Int64N(turnBytes/2))
				left[one.id] -= n
				c.arrived(one, n)
			}
			see()
			sum := int64(0)
			for _, n := range left {
				sum += n
			}
			if waits := len(c.turns.queue) > 0; waits && sum == 0 {
				t.Fatalf("seed %d: nothing comes and %d wait", seed, len(c.turns.queue))
			}
			for id, n := range asked {
				if n < 0 {
					t.Fatalf("seed %d: %d more bytes of %d were let come than asked for", seed, -n, id)
				}
			}
		}
		if c.turns.ahead != 0 || len(c.turns.queue) != 0 {
			t.Fatalf("seed %d: %+v is left", seed, c.turns)
		}
	}
}

// TestRepliesThatStopHoldUpNoOther has a node that begins a long reply and leaves it, while short ones come all the time.
func TestRepliesThatStopHoldUpNoOther(t *testing.T) {
	const size = turnBytes - 100
	came := make(chan struct{})
	at := serve(t, func(p *peer) {
		p.hello()
		first, _ := p.call()
		p.head(first)
		p.frame(h2.Data, 0, first, message(strings.Repeat("x", size))[:100])
		<-came // it is waited for
		second, _ := p.call()
		p.head(second)
		body, window := message(strings.Repeat("x", size)), FreeWindow
		for len(body) > 0 {
			// Calls come all the time, and are answered.
			for window == 0 {
				kind, _, id, b, ok := p.any()
				switch {
				case !ok:
					return
				case kind == h2.Headers:
					if p.answer(id, "short") != nil {
						return
					}
				case kind == h2.Window && id == second:
					window += int(binary.BigEndian.Uint32(b))
				}
			}
			k := min(window, len(body), 10_000)
			p.frame(h2.Data, 0, second, body[:k])
			body, window = body[k:], window-k
		}
		p.tail(second, "0")
		p.answering("short")
	})
	n := newNode(t, at, Options{Conns: 1})
	start := func() *Stream {
		s, err := n.Start(t.Context(), &Call{Method: "/s/m", Timeout: 20 * time.Second, Message: mem.BufferSlice{mem.SliceBuffer(message("ask"))}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Head(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := start()
	defer first.Close()
	q, err := first.Read()
	if err != nil {
		t.Fatal(err)
	}
	q.Free()
	first.Expect(size+PrefixBytes, size+PrefixBytes)
	close(came)
	second := start()
	ended := make(chan struct{})
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		for {
			select {
			case <-ended:
				return
			default:
				if got, err := do(t, n, 20*time.Second); got != "short" {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		}
	}()
	got := 0
	for {
		q, err := second.Read()
		if err != nil {
			break
		}
		if got == 0 {
			second.Expect(size+PrefixBytes, size+PrefixBytes)
		}
		got += q.Len()
		q.Free()
	}
	close(ended)
	<-busy
	if e := second.End(); e == nil || e.Err() != nil || got != size+PrefixBytes {
		t.Errorf("%d bytes of the second came, %v", got, e)
	}
	second.Close()
}
