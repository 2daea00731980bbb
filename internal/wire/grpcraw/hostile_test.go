package grpcraw

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/h2"
)

// TestPeersThatBreakTheProtocol lose their connection, and the next call has another one.
func TestPeersThatBreakTheProtocol(t *testing.T) {
	word := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for name, run := range map[string]func(p *peer, id uint32){
		"garbage":            func(p *peer, _ uint32) { p.Write(bytes.Repeat([]byte("nonsense"), 100)) },
		"long frame":         func(p *peer, id uint32) { p.frame(h2.Data, 0, id, make([]byte, h2.MaxFrame+1)) },
		"stream that is not": func(p *peer, id uint32) { p.head(id + 2) },
		"stream of a server": func(p *peer, _ uint32) { p.head(2) },
		"data of no stream":  func(p *peer, _ uint32) { p.frame(h2.Data, 0, 0, nil) },
		"push":               func(p *peer, id uint32) { p.frame(h2.Push, h2.EndHeaders, id, word(2)) },
		"padding":            func(p *peer, id uint32) { p.frame(h2.Data, h2.Padded, id, []byte{9, 1}) },
		"no padding":         func(p *peer, id uint32) { p.frame(h2.Data, h2.Padded, id, nil) },
		"headers' padding":   func(p *peer, id uint32) { p.frame(h2.Headers, h2.Padded|h2.EndHeaders, id, []byte{9, 1}) },
		"headers without":    func(p *peer, id uint32) { p.frame(h2.Headers, h2.Padded|h2.EndHeaders, id, nil) },
		"headers' priority":  func(p *peer, id uint32) { p.frame(h2.Headers, h2.WithPriority|h2.EndHeaders, id, []byte{9, 1}) },
		"damaged headers": func(p *peer, id uint32) {
			p.frame(h2.Headers, h2.EndHeaders, id, []byte{0xff, 0xff, 0xff, 0xff, 0xff})
		},
		"frame within headers":   func(p *peer, id uint32) { p.frame(h2.Headers, 0, id, nil); p.frame(h2.Ping, 0, 0, make([]byte, 8)) },
		"continuation of none":   func(p *peer, id uint32) { p.frame(h2.Continuation, h2.EndHeaders, id, nil) },
		"window of nothing":      func(p *peer, _ uint32) { p.frame(h2.Window, 0, 0, word(0)) },
		"window too large":       func(p *peer, _ uint32) { p.frame(h2.Window, 0, 0, word(h2.MaxWindow)) },
		"settings with a stream": func(p *peer, id uint32) { p.frame(h2.Settings, 0, id, nil) },
		"settings cut":           func(p *peer, _ uint32) { p.frame(h2.Settings, 0, 0, make([]byte, 5)) },
		"settings' window": func(p *peer, _ uint32) {
			p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingWindow}, word(1<<31)...))
		},
		"settings' frame": func(p *peer, _ uint32) { p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingFrame}, word(1)...)) },
		"ping":            func(p *peer, _ uint32) { p.frame(h2.Ping, 0, 0, make([]byte, 7)) },
		"reset":           func(p *peer, id uint32) { p.frame(h2.Reset, 0, id, nil) },
		"farewell":        func(p *peer, _ uint32) { p.frame(h2.GoAway, 0, 0, nil) },
		"continuations": func(p *peer, id uint32) {
			p.frame(h2.Headers, 0, id, nil)
			for p.frame(h2.Continuation, 0, id, make([]byte, 1<<10)) == nil {
			}
		},
		"empty continuations": func(p *peer, id uint32) {
			p.frame(h2.Headers, 0, id, nil)
			for p.frame(h2.Continuation, 0, id, nil) == nil {
			}
		},
		"empty data": func(p *peer, id uint32) {
			p.head(id)
			for p.frame(h2.Data, 0, id, nil) == nil {
			}
		},
		"unknown frames": func(p *peer, id uint32) {
			for p.frame(0x77, 0, id, nil) == nil {
			}
		},
		"pings that are not read": func(p *peer, _ uint32) {
			b := bytes.Repeat(append(h2.AppendFrame(nil, h2.Ping, 0, 0, 8), make([]byte, 8)...), 1000)
			for {
				if _, err := p.Write(b); err != nil {
					return
				}
			}
		},
		"end": func(*peer, uint32) {},
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			n := newNode(t, serve(t, func(p *peer) {
				p.hello()
				if !broken.CompareAndSwap(false, true) {
					p.answering("good")
					return
				}
				id, ok := p.call()
				if ok {
					run(p, id)
				}
				if name == "end" {
					return
				}
				if name != "pings that are not read" {
					io.Copy(io.Discard, p)
				}
			}), Options{})
			_, err := do(t, n, 0)
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != codes.Unavailable || !e.Transport {
				t.Errorf("%v", err)
			}
			if got, err := do(t, n, 0); got != "good" || err != nil {
				t.Errorf("the next call: %q, %v", got, err)
			}
		})
	}
}

// TestStreamsThatGoWrong end their call and leave the connection to others.
func TestStreamsThatGoWrong(t *testing.T) {
	reset := func(code uint32) func(p *peer, id uint32) {
		return func(p *peer, id uint32) { p.frame(h2.Reset, 0, id, binary.BigEndian.AppendUint32(nil, code)) }
	}
	for name, c := range map[string]struct {
		run  func(p *peer, id uint32)
		code codes.Code
		text string
	}{
		"internal": {reset(2), codes.Internal, "the node gave the call up with HTTP/2 error 2"},
		"cancel":   {reset(h2.CodeCancel), codes.Canceled, "the node gave the call up with HTTP/2 error 8"},
		"calm":     {reset(h2.CodeEnhanceYourCalm), codes.ResourceExhausted, "the node gave the call up with HTTP/2 error 11"},
		"security": {reset(h2.CodeInadequateSecurity), codes.PermissionDenied, "the node gave the call up with HTTP/2 error 12"},
		"window": {func(p *peer, id uint32) {
			p.frame(h2.Window, 0, id, binary.BigEndian.AppendUint32(nil, h2.MaxWindow))
		}, codes.Internal, "the node gave the call too large a window"},
		"headers again": {func(p *peer, id uint32) { p.head(id); p.head(id) }, codes.Internal, "the node sent headers within a reply"},
		"many headers": {func(p *peer, id uint32) {
			// Short on the wire, and long in the table.
			long := strings.Repeat("x", 3000)
			fields := []string{":status", "200", "content-type", "application/grpc"}
			for range 30 {
				fields = append(fields, "long", long)
			}
			p.frame(h2.Headers, h2.EndHeaders, id, p.block(fields...))
		}, codes.Internal, "the node sent too many headers"},
		"binary": {func(p *peer, id uint32) {
			p.frame(h2.Headers, h2.EndHeaders, id, p.block(":status", "200", "content-type", "application/grpc", "x-bin", "§"))
		}, codes.Internal, "the node sent damaged binary header"},
		"data and end": {func(p *peer, id uint32) {
			p.head(id)
			p.frame(h2.Data, h2.EndStream, id, message("x"))
		}, codes.Internal, "the node ended the call without a status"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, serve(t, func(p *peer) {
				p.hello()
				if id, ok := p.call(); ok {
					c.run(p, id)
				}
				p.answering("good")
			}), Options{Conns: 1})
			_, err := do(t, n, 0)
			want(t, name, err, c.code, c.text)
			if got, err := do(t, n, 0); got != "good" || err != nil {
				t.Errorf("the next call: %q, %v", got, err)
			}
			if conns, _ := n.Counts(); conns != 1 {
				t.Errorf("%d connections", conns)
			}
		})
	}
}

// TestNodesThatGiveUpInTimeAreLate has a node that counts the time of the call itself and cancels it then: the caller is told of the time, however
// close the two are, and else of the node.
func TestNodesThatGiveUpInTimeAreLate(t *testing.T) {
	const limit = 40 * time.Millisecond
	wait := make(chan bool, 1)
	at := serve(t, func(p *peer) {
		p.hello()
		for {
			id, ok := p.call()
			if !ok {
				return
			}
			if <-wait {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				<-ctx.Done()
				cancel()
			}
			if p.frame(h2.Reset, 0, id, []byte{0, 0, 0, h2.CodeCancel}) != nil {
				return
			}
		}
	})
	n := newNode(t, at, Options{})
	for range 20 {
		wait <- true
		if _, err := do(t, n, limit); status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("late: %v", err)
		}
	}
	wait <- false
	_, err := do(t, n, time.Minute)
	want(t, "early", err, codes.Canceled, "the node gave the call up with HTTP/2 error 8")
	wait <- false
	_, err = do(t, n, 0)
	want(t, "without a time", err, codes.Canceled, "the node gave the call up with HTTP/2 error 8")
}

// TestMoreThanTheWindow is sent by a peer that does not wait until somebody says how much there is room for.
func TestMoreThanTheWindow(t *testing.T) {
	n := newNode(t, serve(t, func(p *peer) {
		p.hello()
		if id, ok := p.call(); ok {
			p.head(id)
			for range FreeWindow/h2.MaxFrame + 1 {
				p.frame(h2.Data, 0, id, make([]byte, h2.MaxFrame))
			}
		}
		p.answering("good")
	}), Options{Conns: 1})
	s, err := n.Start(t.Context(), &Call{Method: "/s/m", Message: mem.BufferSlice{mem.SliceBuffer(message("ask"))}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var q mem.BufferSlice
		q, err = s.Read()
		q.Free()
	}
	want(t, "too much", err, codes.Internal, "the node sent more than it was asked for")
	s.Close()
	if got, err := do(t, n, 0); got != "good" || err != nil {
		t.Errorf("the next call: %q, %v", got, err)
	}
}

// TestHalfOpenPeers take a connection and say nothing, at once or from some time on.
func TestHalfOpenPeers(t *testing.T) {
	quick := Options{Connect: 100 * time.Millisecond, Ping: 100 * time.Millisecond, Pong: 100 * time.Millisecond}
	n := newNode(t, serve(t, func(p *peer) { io.Copy(io.Discard, p) }), quick)
	_, err := do(t, n, 0)
	want(t, "no word", err, codes.Unavailable, "the node cannot be reached")
	n = newNode(t, serve(t, func(p *peer) {
		p.hello()
		io.Copy(io.Discard, p)
	}), quick)
	_, err = do(t, n, 0)
	want(t, "no answer to pings", err, codes.Unavailable, "the connection to the node is lost")
	if !errors.Is(err, errSilent) {
		t.Errorf("the cause is %v", errors.Unwrap(err))
	}
	// Who answers pings may take its time.
	n = newNode(t, serve(t, func(p *peer) {
		p.hello()
		id, _ := p.call()
		for range 3 {
			_, _, b, ok := p.next(h2.Ping)
			if !ok {
				return
			}
			p.frame(h2.Ping, h2.Ack, 0, b)
		}
		p.answer(id, "late")
		io.Copy(io.Discard, p)
	}), quick)
	if got, err := do(t, n, 0); got != "late" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestPeersThatTalkAreAskedToo whether they are there: one that talks up to a moment may be gone behind it.
func TestPeersThatTalkAreAskedToo(t *testing.T) {
	n := newNode(t, serve(t, func(p *peer) {
		p.hello()
		id, _ := p.call()
		asked := make(chan struct{})
		var talk sync.WaitGroup
		talk.Go(func() {
			every := time.NewTicker(time.Millisecond)
			defer every.Stop()
			for {
				select {
				case <-every.C:
					p.frame(h2.Window, 0, 0, []byte{0, 0, 0, 1})
				case <-asked:
					return
				}
			}
		})
		_, _, b, ok := p.next(h2.Ping)
		close(asked)
		talk.Wait()
		if ok {
			p.frame(h2.Ping, h2.Ack, 0, b)
			p.answer(id, "asked")
		}
		io.Copy(io.Discard, p)
	}), Options{Ping: 20 * time.Millisecond, Pong: time.Minute})
	if got, err := do(t, n, time.Minute); got != "asked" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestPeersThatDoNotRead keep nobody whose time is over.
func TestPeersThatDoNotRead(t *testing.T) {
	release := make(chan struct{})
	n := newNode(t, serve(t, func(p *peer) {
		p.hello(h2.SettingWindow, h2.MaxWindow)
		p.frame(h2.Window, 0, 0, binary.BigEndian.AppendUint32(nil, h2.MaxWindow-h2.DefaultWindow))
		<-release
	}), Options{Stall: 500 * time.Millisecond})
	long := mem.BufferSlice{mem.SliceBuffer(make([]byte, 64<<20))}
	var wg sync.WaitGroup
	for _, timeout := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} {
		wg.Go(func() {
			_, err := n.Do(t.Context(), &Call{Method: "/s/m", Timeout: timeout, Message: long}, 1, nil)
			want(t, timeout.String(), err, codes.DeadlineExceeded, "the node did not answer in time")
		})
	}
	wg.Wait()
	_, err := n.Do(t.Context(), &Call{Method: "/s/m", Message: long}, 1, nil)
	want(t, "no limit", err, codes.Unavailable, "the connection to the node is lost")
	close(release)
}

// TestPeersThatPause do not read for a while, and then do: their connection goes on, also when it is older than a write may take.
func TestPeersThatPause(t *testing.T) {
	release := make(chan struct{})
	var conns atomic.Int32
	n := newNode(t, serve(t, func(p *peer) {
		conns.Add(1)
		p.hello(h2.SettingWindow, h2.MaxWindow)
		p.frame(h2.Window, 0, 0, binary.BigEndian.AppendUint32(nil, h2.MaxWindow-h2.DefaultWindow))
		<-release
		for {
			id, ok := p.call()
			if !ok {
				return
			}
			for flags := byte(0); flags&h2.EndStream == 0; {
				if flags, _, _, ok = p.next(h2.Data); !ok {
					return
				}
			}
			p.answer(id, "good")
		}
	}), Options{Stall: 300 * time.Millisecond})
	var wg sync.WaitGroup
	wg.Go(func() {
		long := mem.BufferSlice{mem.SliceBuffer(make([]byte, 32<<20))}
		r, err := n.Do(t.Context(), &Call{Method: "/s/m", Message: long}, 100, nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.Data.Free()
	})
	pause := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
	}
	pause(100 * time.Millisecond)
	close(release)
	wg.Wait()
	pause(400 * time.Millisecond)
	if got, err := do(t, n, 0); got != "good" || err != nil || conns.Load() != 1 {
		t.Errorf("%q, %v, on %d connections", got, err, conns.Load())
	}
}

// TestCallsThatWereNotBegun are sent again, and no others.
func TestCallsThatWereNotBegun(t *testing.T) {
	var conns, calls atomic.Int32
	refuse := func(how func(p *peer, id uint32)) string {
		conns.Store(0)
		calls.Store(0)
		return serve(t, func(p *peer) {
			p.hello()
			first := conns.Add(1) == 1
			for {
				id, ok := p.call()
				if !ok {
					return
				}
				calls.Add(1)
				if first {
					how(p, id)
					first = false
					continue
				}
				p.answer(id, "good")
			}
		})
	}
	away := func(last uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), h2.CodeNone)
	}
	for name, c := range map[string]struct {
		how   func(p *peer, id uint32)
		calls int32
		fails bool
	}{
		"refused":     {func(p *peer, id uint32) { p.frame(h2.Reset, 0, id, binary.BigEndian.AppendUint32(nil, h2.CodeRefused)) }, 2, false},
		"left before": {func(p *peer, id uint32) { p.frame(h2.GoAway, 0, 0, away(id-1)) }, 2, false},
		"left and answered": {func(p *peer, id uint32) {
			p.frame(h2.GoAway, 0, 0, away(id))
			p.answer(id, "good")
		}, 1, false},
		"lost": {func(p *peer, _ uint32) { p.Close() }, 1, true},
	} {
		n := newNode(t, refuse(c.how), Options{})
		got, err := do(t, n, 0)
		if (err != nil) != c.fails || !c.fails && got != "good" || calls.Load() != c.calls {
			t.Errorf("%s: %q, %v after %d calls", name, got, err, calls.Load())
		}
		if got, err := do(t, n, 0); got != "good" || err != nil {
			t.Errorf("%s: the next call: %q, %v", name, got, err)
		}
	}
	// Who refuses always is not asked for ever.
	calls.Store(0)
	n := newNode(t, serve(t, func(p *peer) {
		p.hello()
		for {
			id, ok := p.call()
			if !ok {
				return
			}
			calls.Add(1)
			p.frame(h2.Reset, 0, id, binary.BigEndian.AppendUint32(nil, h2.CodeRefused))
		}
	}), Options{})
	if _, err := do(t, n, 0); status.Code(err) != codes.Unavailable || calls.Load() != maxTries {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

// TestLimitsOfThePeer has windows of some bytes and one call at a time.
func TestLimitsOfThePeer(t *testing.T) {
	var inside, most atomic.Int32
	n := newNode(t, serve(t, func(p *peer) {
		p.hello(h2.SettingStreams, 1, h2.SettingWindow, 3)
		for {
			id, ok := p.call()
			if !ok {
				return
			}
			if k := inside.Add(1); k > most.Load() {
				most.Store(k)
			}
			var whole []byte
			for {
				flags, _, b, ok := p.next(h2.Data)
				if !ok {
					return
				}
				if len(b) > 3 {
					t.Errorf("%d bytes in a window of 3", len(b))
				}
				if whole = append(whole, b...); flags&h2.EndStream != 0 {
					break
				}
				p.frame(h2.Window, 0, id, binary.BigEndian.AppendUint32(nil, 3))
			}
			inside.Add(-1)
			p.answer(id, string(whole[5:]))
		}
	}), Options{Conns: 1})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := do(t, n, 0); got != "ask" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d calls at once", most.Load())
	}
}

// TestBackoff counts how often a node that is not there is tried.
func TestBackoff(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := lis.Addr().String()
	lis.Close()
	n := newNode(t, at, Options{Backoff: time.Hour, MaxBackoff: time.Hour})
	_, first := do(t, n, 0)
	_, second := do(t, n, 0)
	if first == nil || first != second {
		t.Errorf("%v, and then another try: %v", first, second)
	}
	n = newNode(t, at, Options{Backoff: time.Nanosecond, MaxBackoff: time.Nanosecond})
	_, first = do(t, n, 0)
	_, second = do(t, n, 0)
	if first == nil || first == second {
		t.Errorf("%v, and no other try", first)
	}
}

// TestCloseEndsEverything has calls in all states when a node goes.
func TestCloseEndsEverything(t *testing.T) {
	n := NewNode(serve(t, func(p *peer) {
		p.hello()
		io.Copy(io.Discard, p)
	}), Options{})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := do(t, n, 0)
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != codes.Unavailable || !errors.Is(err, ErrClosed) {
				t.Errorf("%v", err)
			}
		})
	}
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		if _, calls := n.Counts(); calls == 10 {
			break
		}
		select {
		case <-late.C:
			t.Fatal("the calls do not begin")
		case <-every.C:
		}
	}
	n.Close()
	wg.Wait()
	if conns, calls := n.Counts(); conns != 0 || calls != 0 {
		t.Errorf("%d connections, %d calls", conns, calls)
	}
	_, err := do(t, n, 0)
	want(t, "after the end", err, codes.Unavailable, "the node has left")
}

// FuzzPeer has a peer that says anything after its settings: calls end, and nothing stays.
func FuzzPeer(f *testing.F) {
	good := h2.AppendFrame(nil, h2.Headers, h2.EndHeaders, 1, 2)
	f.Add(append(good, 0x88, 0x5f))
	f.Add(append(h2.AppendFrame(nil, h2.Data, h2.Padded, 1, 3), 1, 2, 3))
	f.Add(append(h2.AppendFrame(nil, h2.Reset, 0, 1, 4), 0, 0, 0, 7))
	f.Add(append(h2.AppendFrame(nil, h2.GoAway, 0, 0, 8), make([]byte, 8)...))
	f.Add(append(h2.AppendFrame(nil, h2.Settings, 0, 0, 6), 0, 4, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, said []byte) {
		n := NewNode("peer", Options{Conns: 1, Dial: fuzzDial(said)})
		defer n.Close()
		r, err := n.Do(t.Context(), &Call{Method: "/s/m", Timeout: time.Second, Message: mem.BufferSlice{mem.SliceBuffer(message("ask"))}}, 1<<16, nil)
		if err == nil {
			r.Data.Free()
		}
	})
}

// FuzzTimeout holds times against what is made of them.
func FuzzTimeout(f *testing.F) {
	for _, s := range []string{"1S", "99999999H", "00000001n", "", "S", "-1S", "+1S", "1 S", "123456789m", "1x", "1s"} {
		f.Add(s, int64(1))
	}
	f.Fuzz(func(t *testing.T, s string, n int64) {
		if d, err := ParseTimeout(s); err == nil && (d < 0 || len(s) < 2 || len(s) > 9) {
			t.Errorf("%q is %v", s, d)
		}
		if n <= 0 {
			return
		}
		d := time.Duration(n)
		got, err := ParseTimeout(FormatTimeout(d))
		if err != nil || got < d && got != 1<<63-1 || got-d > d/1e6+time.Nanosecond {
			t.Errorf("%v became %q and %v, %v", d, FormatTimeout(d), got, err)
		}
	})
}

func TestTimeouts(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"1S": time.Second, "950m": 950 * time.Millisecond, "1H": time.Hour, "2M": 2 * time.Minute, "7u": 7 * time.Microsecond, "00000009n": 9,
		"99999999H": 1<<63 - 1, "": -1, "S": -1, "1": -1, "1s": -1, "-1S": -1, "+1S": -1, "123456789n": -1, "1.5S": -1, " 1S": -1,
	} {
		got, err := ParseTimeout(s)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %v, want %v", s, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Second: "1S", 950 * time.Millisecond: "950m", 90 * time.Minute: "90M", 1: "1n", 1234567891 * time.Nanosecond: "1234568u", 1<<63 - 1: "2562048H",
	} {
		if got := FormatTimeout(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
