package grpcraw

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/h2"
)

// manners are what a peer may do with a call, by what it is called.
var manners = map[string]func(p *peer, id uint32, nth int){
	"good":   func(p *peer, id uint32, _ int) { p.answer(id, "short") },
	"empty":  func(p *peer, id uint32, _ int) { p.answer(id, "") },
	"pieces": func(p *peer, id uint32, _ int) { p.head(id); p.bytes(id, message("in pieces"), 1); p.tail(id, "0") },
	"long":   func(p *peer, id uint32, _ int) { p.head(id); p.bytes(id, message(long), h2.MaxFrame); p.tail(id, "0") },
	"compressed": func(p *peer, id uint32, _ int) {
		p.head(id)
		b := message("as it is")
		b[0] = 1
		p.frame(h2.Data, 0, id, b)
		p.tail(id, "0")
	},
	"no message": func(p *peer, id uint32, _ int) { p.head(id); p.tail(id, "0") },
	"two": func(p *peer, id uint32, _ int) {
		p.head(id)
		p.bytes(id, append(message("a"), message("b")...), 100)
		p.tail(id, "0")
	},
	"status": func(p *peer, id uint32, _ int) { p.head(id); p.tail(id, "5") },
	"half":   func(p *peer, id uint32, _ int) { p.head(id); p.frame(h2.Data, 0, id, message("half")); p.tail(id, "8") },
	"only a status": func(p *peer, id uint32, _ int) {
		p.frame(h2.Headers, h2.EndHeaders|h2.EndStream, id, p.block(":status", "200", "content-type", "application/grpc", "grpc-status", "14"))
	},
	"too long": func(p *peer, id uint32, _ int) {
		p.head(id)
		p.frame(h2.Data, 0, id, []byte{0, 0, 0x7f, 0, 0, 1, 2, 3})
	},
	"reset": func(p *peer, id uint32, _ int) {
		p.frame(h2.Reset, 0, id, binary.BigEndian.AppendUint32(nil, h2.CodeInternal))
	},
	"refused once": func(p *peer, id uint32, nth int) {
		if nth == 0 {
			p.frame(h2.Reset, 0, id, binary.BigEndian.AppendUint32(nil, h2.CodeRefused))
			return
		}
		p.answer(id, "the second time")
	},
	"refused": func(p *peer, id uint32, _ int) {
		p.frame(h2.Reset, 0, id, binary.BigEndian.AppendUint32(nil, h2.CodeRefused))
	},
	"lost": func(p *peer, _ uint32, _ int) { p.Close() },
	"leaves": func(p *peer, id uint32, _ int) {
		p.frame(h2.GoAway, 0, 0, binary.BigEndian.AppendUint64(nil, uint64(id)<<32))
		p.answer(id, "the last")
	},
	"silent": func(*peer, uint32, int) {},
}

var long = strings.Repeat("0123456789", 20_000)

// bytes sends bytes in frames, as far as a client lets them come.
func (p *peer) bytes(id uint32, b []byte, each int) {
	for room := FreeWindow; len(b) > 0; {
		n := min(each, len(b), room)
		p.frame(h2.Data, 0, id, b[:n])
		b, room = b[n:], room-n
		for room == 0 && len(b) > 0 {
			_, of, more, ok := p.next(h2.Window)
			if !ok {
				return
			}
			if of == id {
				room += int(binary.BigEndian.Uint32(more))
			}
		}
	}
}

// behaving is a peer with one manner.
func behaving(t *testing.T, manner string) *Node {
	n := newNode(t, serve(t, func(p *peer) {
		p.hello()
		for nth := 0; ; nth++ {
			id, ok := p.call()
			if !ok {
				return
			}
			manners[manner](p, id, nth)
		}
	}), Options{})
	return n
}

// plain is what a test makes of an outcome.
func plain(r *Reply, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer r.Data.Free()
	if err := r.End.Err(); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%t %s", r.Compressed, r.Data.Materialize()), nil
}

func gather() Gather {
	return Gather{
		Take:  func(_ int, r *Reply, err error) ([]byte, error) { return plain(r, err) },
		Fault: func(v any) error { panic(v) },
	}
}

func question() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(message("ask"))} }

// TestCallsAtOnceEndAsOneByOneWould: each ends as Do ends, whatever the others do.
func TestCallsAtOnceEndAsOneByOneWould(t *testing.T) {
	var names []string
	for name := range manners {
		if name != "silent" {
			names = append(names, name)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 60 {
		n := 1 + r.IntN(20)
		asks, alone, what := make([]Ask, n), make([]*Node, n), make([]string, n)
		for i := range n {
			what[i] = names[r.IntN(len(names))]
			asks[i] = Ask{Node: behaving(t, what[i]), Message: question(), Most: 1 << 20}
			alone[i] = behaving(t, what[i])
			if r.IntN(3) > 0 { // there is a connection
				asks[i].Node.mu.Lock()
				asks[i].Node.dial()
				done := asks[i].Node.dialing
				asks[i].Node.mu.Unlock()
				<-done
			}
		}
		g := gather()
		g.Early = round%2 == 0
		call := Call{Method: "/s/m", Timeout: time.Duration(r.IntN(2)) * time.Minute}
		cs := Begin(t.Context(), call, asks, g)
		seen := make([]bool, n)
		for range n {
			i, out, err, ok := cs.Next(nil)
			if !ok || seen[i] {
				t.Fatalf("call %d: %t, %t", i, ok, seen[i])
			}
			seen[i] = true
			one := call
			one.Message = question()
			reply, wantErr := alone[i].Do(t.Context(), &one, 1<<20, nil)
			want, wantErr := plain(reply, wantErr)
			if string(out) != string(want) || status.Code(err) != status.Code(wantErr) || status.Convert(err).Message() != status.Convert(wantErr).Message() {
				t.Errorf("%s: %.40q, %v; one by one it is %.40q, %v", what[i], out, err, want, wantErr)
			}
		}
		cs.Close()
		for i := range asks {
			if _, calls := asks[i].Node.Counts(); calls != 0 {
				t.Errorf("%s: %d calls are left", what[i], calls)
			}
			asks[i].Node.Close()
			alone[i].Close()
		}
	}
}

// TestCallsAtOnceWithAnErrorOfTheirOwnAreNotSent: they end with it.
func TestCallsAtOnceWithAnErrorOfTheirOwnAreNotSent(t *testing.T) {
	none := errors.New("there is no node")
	cs := Begin(t.Context(), Call{Method: "/s/m"}, []Ask{{Err: none}, {Node: behaving(t, "good"), Message: question(), Most: 100}}, gather())
	defer cs.Close()
	for range 2 {
		if i, out, err, ok := cs.Next(nil); !ok || i == 0 && err != none || i == 1 && string(out) != "false short" {
			t.Errorf("call %d: %q, %v, %t", i, out, err, ok)
		}
	}
}

// TestCallsAtOnceEndWithWhatEndsThem: the time that they have, their context, and each by itself; over ends the waiting only.
func TestCallsAtOnceEndWithWhatEndsThem(t *testing.T) {
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected=%t", connected), func(t *testing.T) {
			begin := func(ctx context.Context, timeout time.Duration) *Calls {
				var asks []Ask
				for range 3 {
					n := behaving(t, "silent")
					if !connected {
						n = newNode(t, "127.0.0.1:1", Options{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
							<-ctx.Done()
							return nil, ctx.Err()
						}})
					} else {
						n.mu.Lock()
						n.dial()
						done := n.dialing
						n.mu.Unlock()
						<-done
					}
					asks = append(asks, Ask{Node: n, Message: question(), Most: 100})
				}
				return Begin(ctx, Call{Method: "/s/m", Timeout: timeout}, asks, gather())
			}
			all := func(cs *Calls, n int, code codes.Code) {
				t.Helper()
				for range n {
					if i, _, err, ok := cs.Next(nil); !ok || status.Code(err) != code {
						t.Errorf("call %d: %v, %t, want %s", i, err, ok, code)
					}
				}
			}
			cs := begin(t.Context(), 20*time.Millisecond)
			all(cs, 3, codes.DeadlineExceeded)
			cs.Close()

			ctx, cancel := context.WithCancel(t.Context())
			cs = begin(ctx, time.Minute)
			cancel()
			all(cs, 3, codes.Canceled)
			cs.Close()

			over := make(chan time.Time)
			close(over)
			cs = begin(t.Context(), 0)
			if i, _, err, ok := cs.Next(over); ok {
				t.Errorf("call %d has ended: %v", i, err)
			}
			cs.Cancel(1)
			if i, _, err, ok := cs.Next(nil); !ok || i != 1 || status.Code(err) != codes.Canceled {
				t.Errorf("call %d: %v, %t", i, err, ok)
			}
			cs.Cancel(1) // it has ended
			cs.Close()
			all(cs, 2, codes.Canceled)
		})
	}
}

// TestACallAtOnceThatPanicsIsAnError: on the goroutine of who waits as on one that nobody else guards.
func TestACallAtOnceThatPanicsIsAnError(t *testing.T) {
	fault := errors.New("a fault")
	for _, manner := range []string{"good", "compressed", "status", "lost", "silent"} {
		g := gather()
		g.Take = func(int, *Reply, error) ([]byte, error) { panic("oh") }
		g.Fault = func(v any) error { return fmt.Errorf("%w: %v", fault, v) }
		cs := Begin(t.Context(), Call{Method: "/s/m"}, []Ask{{Node: behaving(t, manner), Message: question(), Most: 100}}, g)
		if manner == "silent" {
			cs.Cancel(0)
		}
		if _, _, err, _ := cs.Next(nil); !errors.Is(err, fault) {
			t.Errorf("%s: %v", manner, err)
		}
		cs.Close()
	}
}

// TestCallsAtOnceWakeWhoWaitsOnce: replies that are short and good are handed out when all are there, or early where that is asked for.
func TestCallsAtOnceWakeWhoWaitsOnce(t *testing.T) {
	for _, early := range []bool{false, true} {
		first, held := behaving(t, "good"), make(chan struct{})
		second := newNode(t, serve(t, func(p *peer) {
			p.hello()
			id, _ := p.call()
			<-held
			p.answer(id, "later")
			p.call()
		}), Options{})
		for _, n := range []*Node{first, second} {
			n.mu.Lock()
			n.dial()
			done := n.dialing
			n.mu.Unlock()
			<-done
		}
		g := gather()
		g.Early = early
		cs := Begin(t.Context(), Call{Method: "/s/m"}, []Ask{{Node: first, Message: question(), Most: 100}, {Node: second, Message: question(), Most: 100}}, g)
		left := 2
		if early {
			left--
			if i, _, err, _ := cs.Next(nil); i != 0 || err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for { // the reader has seen it
			cs.mu.Lock()
			going := cs.going
			cs.mu.Unlock()
			if going == 1 {
				break
			}
			runtime.Gosched()
		}
		if len(cs.signal) > 0 && !early {
			t.Error("who waits is told of one")
		}
		close(held)
		for range left {
			if _, _, err, _ := cs.Next(nil); err != nil {
				t.Error(err)
			}
		}
		cs.Close()
	}
}

// TestACompressedReplyIsNotLeftWaitingForOthers: also where what came of it was read before its end came. What is in it may be the end of the call,
// which another node may never answer.
func TestACompressedReplyIsNotLeftWaitingForOthers(t *testing.T) {
	held := make(chan struct{})
	packed := newNode(t, serve(t, func(p *peer) {
		p.hello()
		id, _ := p.call()
		p.head(id)
		b := message("packed")
		b[0] = 1
		p.frame(h2.Data, 0, id, b)
		<-held
		p.tail(id, "0")
		p.call()
	}), Options{})
	silent := behaving(t, "silent")
	for _, n := range []*Node{packed, silent} {
		n.mu.Lock()
		n.dial()
		done := n.dialing
		n.mu.Unlock()
		<-done
	}
	bad := errors.New("it cannot be unpacked")
	g := gather()
	g.Take = func(_ int, r *Reply, err error) ([]byte, error) {
		if err == nil && r.Compressed {
			r.Data.Free()
			return nil, bad
		}
		return plain(r, err)
	}
	cs := Begin(t.Context(), Call{Method: "/s/m"}, []Ask{{Node: packed, Message: question(), Most: 100}, {Node: silent, Message: question(), Most: 100}}, g)
	defer cs.Close()
	for cs.list[0].u.have == 0 { // what came is read
		cs.look()
		runtime.Gosched()
	}
	close(held)
	if i, _, err, ok := cs.Next(time.After(10 * time.Second)); !ok || i != 0 || !errors.Is(err, bad) {
		t.Errorf("call %d, %v: %v", i, ok, err)
	}
}
