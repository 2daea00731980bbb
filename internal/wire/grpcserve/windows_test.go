package grpcserve

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/wire/h2"
)

// TestWindowsOfAnyClient has clients that open windows, change and shrink them, and give calls up at random: no window is ever exceeded, and
// every reply that is not given up is whole.
func TestWindowsOfAnyClient(t *testing.T) {
	sv := start(t, Options{})
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		initial := int64(r.IntN(1 << r.IntN(17)))
		p := sv.dial(t).hello(h2.SettingWindow, uint32(initial), h2.SettingFrame, uint32(h2.MaxFrame+r.IntN(100_000)))
		type stream struct {
			window int64
			want   int
			got    []byte
			gone   bool
			status string
		}
		streams := map[uint32]*stream{}
		var ids []uint32
		conn := int64(h2.DefaultWindow)
		var shrinks []int64 // that are not acknowledged, in order; others are 0
		acks := 0
		var mu sync.Mutex
		done := make(chan struct{})
		over := func() bool {
			for _, s := range streams {
				if !s.gone && s.status == "" {
					return false
				}
			}
			return true
		}
		asked := false
		go func() {
			defer close(done)
			for {
				f, ok := p.read()
				if !ok {
					t.Errorf("seed %d: the connection ended", seed)
					return
				}
				mu.Lock()
				switch f.kind {
				case h2.Settings:
					if f.flags&h2.Ack != 0 {
						if acks++; acks > 1 {
							d := shrinks[0]
							shrinks = shrinks[1:]
							for _, s := range streams {
								s.window -= d
							}
							initial -= d
						}
					}
				case h2.Data:
					s := streams[f.id]
					s.window -= int64(len(f.b))
					conn -= int64(len(f.b))
					if !s.gone && s.window < 0 || conn < 0 {
						t.Errorf("seed %d: windows %d and %d after %d bytes", seed, s.window, conn, len(f.b))
					}
					s.got = append(s.got, f.b...)
				case h2.Headers:
					if f.flags&h2.EndStream != 0 {
						streams[f.id].status = p.last["grpc-status"]
					}
				case h2.GoAway:
					t.Errorf("seed %d: farewell %x", seed, f.b)
				}
				end := asked && over()
				mu.Unlock()
				if end {
					return
				}
			}
		}()
		next := uint32(1)
		for range 300 {
			mu.Lock()
			switch k := r.IntN(10); {
			case k < 3 && len(ids) < 200:
				n := r.IntN(1 << r.IntN(19))
				streams[next] = &stream{window: initial, want: n}
				ids = append(ids, next)
				p.ask(next, "/t/long", strconv.Itoa(n))
				next += 2
			case k < 4:
				w := int64(r.IntN(1 << r.IntN(18)))
				pending, d := initial, int64(0) // what the server has by then, and what it takes off
				for _, before := range shrinks {
					pending -= before
				}
				if w > pending {
					for _, s := range streams {
						s.window += w - pending
					}
					initial += w - pending
				} else {
					d = pending - w
				}
				shrinks = append(shrinks, d)
				p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingWindow}, word(uint32(w))...))
			case k < 6:
				n := 1 + r.IntN(1<<r.IntN(20))
				conn += int64(n)
				p.frame(h2.Window, 0, 0, word(uint32(n)))
			case k < 9 && len(ids) > 0:
				id := ids[r.IntN(len(ids))]
				n := 1 + r.IntN(1<<r.IntN(18))
				streams[id].window += int64(n)
				p.frame(h2.Window, 0, id, word(uint32(n)))
			case len(ids) > 0 && r.IntN(3) == 0:
				id := ids[r.IntN(len(ids))]
				if streams[id].status == "" {
					streams[id].gone = true
					p.frame(h2.Reset, 0, id, word(h2.CodeCancel))
				}
			}
			mu.Unlock()
		}
		mu.Lock()
		conn += 1 << 30
		p.frame(h2.Window, 0, 0, word(1<<30))
		for _, id := range ids {
			streams[id].window += 1 << 29
			p.frame(h2.Window, 0, id, word(1<<29))
		}
		p.ask(next, "/t/echo", "x")
		p.frame(h2.Window, 0, next, word(1<<20))
		streams[next] = &stream{window: initial + 1<<20, want: -1}
		asked = true
		mu.Unlock()
		<-done
		for id, s := range streams {
			if s.want < 0 || s.gone {
				continue
			}
			if want := message(string(noise(s.want))); s.status != "0" || !bytes.Equal(s.got, want) {
				t.Errorf("seed %d: %d: status %q, %d bytes, want %d", seed, id, s.status, len(s.got), len(want))
			}
		}
		// What is counted wrong would hold up a connection after many calls.
		soon(t, "nothing is counted as queued", func() bool {
			sv.mu.Lock()
			defer sv.mu.Unlock()
			for c := range sv.conns {
				if !c.is(func() bool {
					return c.queued == 0 && c.blocks == 0 && c.stuck == 0 && c.first == len(c.ready) && c.running == 0
				}) {
					return false
				}
			}
			return true
		})
		p.Close()
	}
}
