package grpcserve

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/h2"
)

// TestClientsThatBreakTheProtocol are told so and lose their connection; others do not notice.
func TestClientsThatBreakTheProtocol(t *testing.T) {
	sv := start(t, Options{})
	other := sv.dial(t).hello()
	id := uint32(1)
	forever := func(p *peer, b []byte) {
		b = bytes.Repeat(b, 100)
		for {
			if _, err := p.Write(b); err != nil {
				return
			}
		}
	}
	raw := func(kind, flags byte, id uint32, p []byte) []byte {
		return append(h2.AppendFrame(nil, kind, flags, id, len(p)), p...)
	}
	for name, c := range map[string]struct {
		run  func(p *peer)
		code int
	}{
		"HTTP/1":              {func(p *peer) { p.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) }, h2.CodeProtocol},
		"no settings":         {func(p *peer) { io.WriteString(p, h2.Preface); p.frame(h2.Ping, 0, 0, make([]byte, 8)) }, h2.CodeProtocol},
		"acknowledged first":  {func(p *peer) { io.WriteString(p, h2.Preface); p.frame(h2.Settings, h2.Ack, 0, nil) }, h2.CodeProtocol},
		"long frame":          {func(p *peer) { p.hello().frame(h2.Data, 0, 1, make([]byte, h2.MaxFrame+1)) }, h2.CodeFrameSize},
		"even stream":         {func(p *peer) { p.hello().open(2, "/t/echo") }, h2.CodeProtocol},
		"stream 0":            {func(p *peer) { p.hello().open(0, "/t/echo") }, h2.CodeProtocol},
		"data of none":        {func(p *peer) { p.hello().frame(h2.Data, 0, 0, nil) }, h2.CodeProtocol},
		"data of an idle one": {func(p *peer) { p.hello().frame(h2.Data, 0, 1, nil) }, h2.CodeProtocol},
		"reset of an idle one": {
			func(p *peer) { p.hello().frame(h2.Reset, 0, 1, word(8)) },
			h2.CodeProtocol,
		},
		"reset of none":         {func(p *peer) { p.hello().frame(h2.Reset, 0, 0, word(8)) }, h2.CodeProtocol},
		"reset cut":             {func(p *peer) { p.hello().frame(h2.Reset, 0, 1, nil) }, h2.CodeFrameSize},
		"window of an idle one": {func(p *peer) { p.hello().frame(h2.Window, 0, 1, word(8)) }, h2.CodeProtocol},
		"window of nothing":     {func(p *peer) { p.hello().frame(h2.Window, 0, 0, word(0)) }, h2.CodeProtocol},
		"window cut":            {func(p *peer) { p.hello().frame(h2.Window, 0, 0, word(0)[:3]) }, h2.CodeFrameSize},
		"window too large":      {func(p *peer) { p.hello().frame(h2.Window, 0, 0, word(h2.MaxWindow)) }, h2.CodeFlowControl},
		"setting's window":      {func(p *peer) { p.hello(h2.SettingWindow, 1<<31) }, h2.CodeFlowControl},
		"setting's frame":       {func(p *peer) { p.hello(h2.SettingFrame, 1) }, h2.CodeProtocol},
		"setting's push":        {func(p *peer) { p.hello(h2.SettingPush, 2) }, h2.CodeProtocol},
		"settings cut":          {func(p *peer) { p.hello().frame(h2.Settings, 0, 0, make([]byte, 5)) }, h2.CodeFrameSize},
		"settings of a stream":  {func(p *peer) { p.hello().frame(h2.Settings, 0, 1, nil) }, h2.CodeProtocol},
		"acknowledged with more": {
			func(p *peer) { p.hello().frame(h2.Settings, h2.Ack, 0, make([]byte, 6)) },
			h2.CodeFrameSize,
		},
		"windows that grow too large": {func(p *peer) {
			p.hello().ask(1, "/t/hang", "")
			p.frame(h2.Window, 0, 1, word(1<<30))
			p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingWindow}, word(1<<31-1)...))
		}, h2.CodeFlowControl},
		"ping of a stream":   {func(p *peer) { p.hello().frame(h2.Ping, 0, 1, make([]byte, 8)) }, h2.CodeProtocol},
		"ping cut":           {func(p *peer) { p.hello().frame(h2.Ping, 0, 0, make([]byte, 7)) }, h2.CodeFrameSize},
		"farewell cut":       {func(p *peer) { p.hello().frame(h2.GoAway, 0, 0, make([]byte, 7)) }, h2.CodeFrameSize},
		"farewell of one":    {func(p *peer) { p.hello().frame(h2.GoAway, 0, 1, make([]byte, 8)) }, h2.CodeProtocol},
		"priority of none":   {func(p *peer) { p.hello().frame(h2.Priority, 0, 0, make([]byte, 5)) }, h2.CodeProtocol},
		"priority cut":       {func(p *peer) { p.hello().frame(h2.Priority, 0, 1, make([]byte, 4)) }, h2.CodeFrameSize},
		"push":               {func(p *peer) { p.hello().frame(h2.Push, h2.EndHeaders, 1, word(2)) }, h2.CodeProtocol},
		"continuation":       {func(p *peer) { p.hello().frame(h2.Continuation, h2.EndHeaders, 1, nil) }, h2.CodeProtocol},
		"padding":            {func(p *peer) { p.hello().open(1, "/t/hang"); p.frame(h2.Data, h2.Padded, 1, []byte{9, 1}) }, h2.CodeProtocol},
		"no padding":         {func(p *peer) { p.hello().open(1, "/t/hang"); p.frame(h2.Data, h2.Padded, 1, nil) }, h2.CodeFrameSize},
		"headers' padding":   {func(p *peer) { p.hello().frame(h2.Headers, h2.Padded|h2.EndHeaders, 1, []byte{9, 1}) }, h2.CodeProtocol},
		"headers without":    {func(p *peer) { p.hello().frame(h2.Headers, h2.Padded|h2.EndHeaders, 1, nil) }, h2.CodeFrameSize},
		"headers' priority":  {func(p *peer) { p.hello().frame(h2.Headers, h2.WithPriority|h2.EndHeaders, 1, []byte{9, 1}) }, h2.CodeFrameSize},
		"damaged headers":    {func(p *peer) { p.hello().frame(h2.Headers, h2.EndHeaders, 1, bytes.Repeat([]byte{0xff}, 9)) }, h2.CodeCompression},
		"headers interleft":  {func(p *peer) { p.hello().frame(h2.Headers, 0, 1, nil); p.frame(h2.Ping, 0, 0, make([]byte, 8)) }, h2.CodeProtocol},
		"another's continue": {func(p *peer) { p.hello().frame(h2.Headers, 0, 1, nil); p.frame(h2.Continuation, 0, 3, nil) }, h2.CodeProtocol},
		"endless headers": {func(p *peer) {
			p.hello().frame(h2.Headers, 0, 1, nil)
			forever(p, raw(h2.Continuation, 0, 1, make([]byte, 1<<10)))
		}, h2.CodeEnhanceYourCalm},
		"empty continuations": {func(p *peer) {
			p.hello().frame(h2.Headers, 0, 1, nil)
			forever(p, raw(h2.Continuation, 0, 1, nil))
		}, h2.CodeEnhanceYourCalm},
		"empty data": {func(p *peer) {
			p.hello().open(1, "/t/hang")
			forever(p, raw(h2.Data, 0, 1, nil))
		}, h2.CodeEnhanceYourCalm},
		"padding alone": {func(p *peer) {
			p.hello().open(1, "/t/hang")
			forever(p, raw(h2.Data, h2.Padded, 1, []byte{1, 0}))
		}, h2.CodeEnhanceYourCalm},
		"priorities":              {func(p *peer) { p.hello(); forever(p, raw(h2.Priority, 0, 1, make([]byte, 5))) }, h2.CodeEnhanceYourCalm},
		"unknown frames":          {func(p *peer) { p.hello(); forever(p, raw(0x77, 0, 1, nil)) }, h2.CodeEnhanceYourCalm},
		"stream before another's": {func(p *peer) { p.hello().ask(5, "/t/fail", ""); p.ask(3, "/t/fail", "") }, h2.CodeProtocol},
		"ends of what has ended": {func(p *peer) {
			p.hello().ask(1, "/t/fail", "")
			forever(p, raw(h2.Data, h2.EndStream, 1, nil))
		}, h2.CodeEnhanceYourCalm},
		"resets of what has ended": {func(p *peer) {
			p.hello().ask(1, "/t/fail", "")
			forever(p, raw(h2.Reset, 0, 1, word(8)))
		}, h2.CodeEnhanceYourCalm},
		"more than the connection takes": {func(p *peer) {
			p.hello()
			// The calls are over, and nobody reads what comes for them; what is given back is not enough.
			for id := uint32(1); id < 100; id += 2 {
				p.open(id, "/t/fail")
			}
			forever(p, raw(h2.Data, 0, 1, make([]byte, h2.MaxFrame)))
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := sv.dial(t)
			var wg sync.WaitGroup
			wg.Go(func() { c.run(p) })
			if c.code >= 0 {
				if code := p.away(); code != c.code {
					t.Errorf("the farewell says %d, want %d", code, c.code)
				}
			}
			p.Close()
			wg.Wait()
			other.good(id)
			id += 2
		})
	}
}

// TestStreamsThatGoWrong end alone.
func TestStreamsThatGoWrong(t *testing.T) {
	sv := start(t, Options{})
	fields := func(p *peer, id uint32, f ...string) {
		p.frame(h2.Headers, h2.EndHeaders|h2.EndStream, id, p.block(f...))
	}
	const none = 1 << 31
	for name, c := range map[string]struct {
		run    func(p *peer, id uint32)
		reset  uint32
		http   string
		status string
	}{
		"upper case":     {func(p *peer, id uint32) { p.open(id, "/t/echo", "X-Large", "1") }, h2.CodeProtocol, "", ""},
		"no name":        {func(p *peer, id uint32) { p.open(id, "/t/echo", "", "1") }, h2.CodeProtocol, "", ""},
		"a line break":   {func(p *peer, id uint32) { p.open(id, "/t/echo", "x-a", "1\r\nx-b: 2") }, h2.CodeProtocol, "", ""},
		"a zero":         {func(p *peer, id uint32) { p.open(id, "/t/e\x00cho") }, h2.CodeProtocol, "", ""},
		"connection":     {func(p *peer, id uint32) { p.open(id, "/t/echo", "connection", "close") }, h2.CodeProtocol, "", ""},
		"te":             {func(p *peer, id uint32) { p.open(id, "/t/echo", "te", "gzip") }, h2.CodeProtocol, "", ""},
		"late pseudo":    {func(p *peer, id uint32) { p.open(id, "/t/echo", ":scheme", "http") }, h2.CodeProtocol, "", ""},
		"unknown pseudo": {func(p *peer, id uint32) { fields(p, id, ":method", "POST", ":what", "x") }, h2.CodeProtocol, "", ""},
		"pseudo of a reply": {
			func(p *peer, id uint32) { fields(p, id, ":status", "200") },
			h2.CodeProtocol, "", "",
		},
		"two paths": {func(p *peer, id uint32) {
			fields(p, id, ":method", "POST", ":scheme", "http", ":path", "/t/echo", ":path", "/t/long", "content-type", "application/grpc")
		}, h2.CodeProtocol, "", ""},
		"no path":   {func(p *peer, id uint32) { fields(p, id, ":method", "POST", ":scheme", "http") }, h2.CodeProtocol, "", ""},
		"no method": {func(p *peer, id uint32) { fields(p, id, ":path", "/t/echo", ":scheme", "http") }, h2.CodeProtocol, "", ""},
		"long headers": {func(p *peer, id uint32) {
			p.open(id, "/t/echo", "a", long, "b", long, "c", long, "d", long, "e", long)
		}, h2.CodeEnhanceYourCalm, "", ""},
		"GET": {func(p *peer, id uint32) {
			fields(p, id, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "x", "content-type", "application/grpc")
		}, none, "405", "13"},
		"page": {func(p *peer, id uint32) {
			fields(p, id, ":method", "POST", ":scheme", "http", ":path", "/", ":authority", "x", "content-type", "text/html")
		}, none, "415", "3"},
		"no host": {func(p *peer, id uint32) {
			fields(p, id, ":method", "POST", ":scheme", "http", ":path", "/t/echo", "content-type", "application/grpc")
		}, none, "400", "13"},
		"two hosts": {func(p *peer, id uint32) {
			fields(p, id, ":method", "POST", ":scheme", "http", ":path", "/t/echo", ":authority", "x", "host", "x", "host", "y", "content-type", "application/grpc")
		}, none, "400", "13"},
		"trailers without end": {func(p *peer, id uint32) {
			p.open(id, "/t/hang")
			p.frame(h2.Headers, h2.EndHeaders, id, p.block("x", "y"))
		}, h2.CodeProtocol, "", ""},
		"data after the end": {func(p *peer, id uint32) {
			p.ask(id, "/t/hang", "x")
			p.frame(h2.Data, 0, id, []byte("more"))
		}, h2.CodeStreamClosed, "", ""},
		"headers after the end": {func(p *peer, id uint32) {
			p.ask(id, "/t/hang", "x")
			p.frame(h2.Headers, h2.EndHeaders|h2.EndStream, id, p.block("x", "y"))
		}, h2.CodeStreamClosed, "", ""},
		"window of nothing": {func(p *peer, id uint32) {
			p.ask(id, "/t/hang", "x")
			p.frame(h2.Window, 0, id, word(0))
		}, h2.CodeProtocol, "", ""},
		"window too large": {func(p *peer, id uint32) {
			p.ask(id, "/t/hang", "x")
			p.frame(h2.Window, 0, id, word(h2.MaxWindow))
		}, h2.CodeFlowControl, "", ""},
		"more than the window": {func(p *peer, id uint32) {
			p.open(id, "/t/hang")
			for range FirstWindow/h2.MaxFrame + 1 {
				p.frame(h2.Data, 0, id, make([]byte, h2.MaxFrame))
			}
		}, h2.CodeFlowControl, "", ""},
		"no message":       {func(p *peer, id uint32) { p.open(id, "/t/echo"); p.frame(h2.Data, h2.EndStream, id, nil) }, none, "200", "2"},
		"half a prefix":    {func(p *peer, id uint32) { p.open(id, "/t/echo"); p.frame(h2.Data, h2.EndStream, id, []byte{0, 0}) }, none, "200", "13"},
		"half a message":   {func(p *peer, id uint32) { p.open(id, "/t/echo"); p.frame(h2.Data, h2.EndStream, id, message("x")[:5]) }, none, "200", "13"},
		"a panic":          {func(p *peer, id uint32) { p.ask(id, "/t/panic", "") }, none, "200", "13"},
		"an unknown one":   {func(p *peer, id uint32) { p.ask(id, "/t/other", "") }, none, "200", "12"},
		"no service":       {func(p *peer, id uint32) { p.ask(id, "nothing", "") }, none, "200", "12"},
		"an error":         {func(p *peer, id uint32) { p.ask(id, "/t/fail", "") }, none, "200", "9"},
		"binary of health": {func(p *peer, id uint32) { p.ask(id, "/grpc.health.v1.Health/Check", "", "x-bin", "§") }, none, "200", "13"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sv.dial(t).hello()
			c.run(p, 1)
			a := p.answer(1)
			if c.reset != none {
				if a.reset != c.reset {
					t.Errorf("reset with %d, want %d: %+v", a.reset, c.reset, a)
				}
			} else if a.head == nil && a.tail[":status"] != c.http || a.tail["grpc-status"] != c.status {
				t.Errorf("%+v", a)
			}
			p.good(3)
		})
	}
}

// TestClientsThatAskAndDoNotRead lose their connection, and what they ask for is bounded.
func TestClientsThatAskAndDoNotRead(t *testing.T) {
	sv := start(t, Options{})
	for name, b := range map[string][]byte{
		"pings":    append(h2.AppendFrame(nil, h2.Ping, 0, 0, 8), make([]byte, 8)...),
		"settings": h2.AppendFrame(nil, h2.Settings, 0, 0, 0),
	} {
		p := sv.dial(t).hello()
		b = bytes.Repeat(b, 1000)
		for {
			if _, err := p.Write(b); err != nil {
				if e, ok := err.(net.Error); ok && e.Timeout() {
					t.Errorf("%s: the server goes on", name)
				}
				break
			}
		}
	}
}

// TestRapidResets has a client that begins calls and gives them up at once: no more of them are under way than it may have, whether it loses its
// connection for that or not.
func TestRapidResets(t *testing.T) {
	sv := start(t, Options{Streams: 10})
	p := sv.dial(t).hello()
	most := int64(0)
	for i := range uint32(5000) {
		id := 2*i + 1
		p.ask(id, "/t/hang", "")
		p.frame(h2.Reset, 0, id, word(h2.CodeCancel))
		most = max(most, sv.Handlers())
	}
	// Twice as many as streams, and those that are about to return.
	if most > 200 {
		t.Errorf("%d handlers were under way", most)
	}
	soon(t, "the calls end", func() bool { return sv.Handlers() == 0 })
	sv.dial(t).hello().good(1)
}

// TestTooManyStreams has them refused, so that clients may begin them elsewhere; who goes on and on loses the connection.
func TestTooManyStreams(t *testing.T) {
	sv := start(t, Options{Streams: 3})
	p := sv.dial(t).hello()
	for id := uint32(1); id <= 7; id += 2 {
		p.ask(id, "/t/hang", "")
	}
	if a := p.answer(7); a.reset != h2.CodeRefused {
		t.Errorf("the fourth: %+v", a)
	}
	(<-sv.came).Cancel(nil)
	for {
		f, ok := p.next(h2.Headers)
		if !ok || f.flags&h2.EndStream != 0 {
			break
		}
	}
	p.ask(9, "/t/hang", "")
	for range 2 {
		<-sv.came
	}
	soon(t, "the next is taken", func() bool { return len(sv.came) == 1 })
	for id := uint32(11); ; id += 2 {
		if p.frame(h2.Headers, h2.EndHeaders, id, p.asks("/t/hang")) != nil {
			break
		}
	}
}

// TestClientsThatDoNotRead are cut, and what they have asked for is let go; one that reads slowly is as well, one that reads is not.
func TestClientsThatDoNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		settings []uint32
		run      func(p *peer)
		cut      bool
	}{
		"no window":          {[]uint32{h2.SettingWindow, 0}, func(p *peer) { io.Copy(io.Discard, p) }, true},
		"no window any more": {nil, func(p *peer) { io.Copy(io.Discard, p) }, true},
		"a trickle": {nil, func(p *peer) {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if p.frame(h2.Window, 0, 1, word(1)) != nil || p.frame(h2.Window, 0, 0, word(1)) != nil {
					return
				}
			}
		}, true},
		"no byte": {[]uint32{h2.SettingWindow, h2.MaxWindow}, func(p *peer) { p.frame(h2.Window, 0, 0, word(h2.MaxWindow-h2.DefaultWindow)) }, true},
		"all": {[]uint32{h2.SettingWindow, h2.MaxWindow}, func(p *peer) {
			p.frame(h2.Window, 0, 0, word(h2.MaxWindow-h2.DefaultWindow))
			if a := p.answer(1); len(a.data) != 12<<20+5 || a.tail["grpc-status"] != "0" {
				t.Errorf("%d bytes, %v", len(a.data), a.tail)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Stall: 200 * time.Millisecond}
			if !c.cut {
				o.Stall = 5 * time.Second // the machine may pause as well
			}
			sv := start(t, o)
			p := sv.dial(t).hello(c.settings...)
			p.ask(1, "/t/long", strconv.Itoa(12<<20))
			c.run(p)
			if c.cut {
				soon(t, "it is cut", func() bool { return sv.cuts.Load() == 1 })
			}
			soon(t, "the call ends", func() bool { return sv.Handlers() == 0 && sv.pool.out.Load() == 0 })
			if n := sv.cuts.Load(); n > 1 || !c.cut && n > 0 {
				t.Errorf("%d connections were cut", n)
			}
		})
	}
}

// TestShortFramesHoldLittle has a request in frames of one byte: what waits to be read takes about what it is long.
func TestShortFramesHoldLittle(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello()
	p.open(1, "/t/hang")
	s := <-sv.came
	one := append(h2.AppendFrame(nil, h2.Data, 0, 1, 1), 'x')
	if _, err := p.Write(bytes.Repeat(one, FirstWindow)); err != nil {
		t.Fatal(err)
	}
	soon(t, "all is there", func() bool { return s.Buffered(FirstWindow) })
	s.c.mu.Lock()
	pieces, took := len(s.recv), 0
	for _, b := range s.recv {
		took += cap(b.(mem.SliceBuffer))
	}
	s.c.mu.Unlock()
	if pieces > 40 || took > 2*FirstWindow {
		t.Errorf("%d pieces that take %d bytes hold %d", pieces, took, FirstWindow)
	}
	p.frame(h2.Reset, 0, 1, word(h2.CodeCancel))
	<-sv.left
}

// TestIdleConnectionsHoldLittle has many of them after a call each.
func TestIdleConnectionsHoldLittle(t *testing.T) {
	const conns = 300
	sv := start(t, Options{})
	heap := func() int64 {
		var m runtime.MemStats
		for range 2 { // what is in a sync.Pool goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	sv.dial(t).hello().good(1)
	before := heap()
	for range conns {
		p := sv.dial(t).hello()
		p.ask(1, "/t/echo", string(make([]byte, 16_000)))
		if a := p.answer(1); len(a.data) != 16_005 {
			t.Fatalf("%d bytes", len(a.data))
		}
		p.in, p.enc, p.dec, p.last = nil, nil, nil, nil
		p.out = bytes.Buffer{}
	}
	each := (heap() - before) / conns
	t.Logf("%d bytes for a connection with the socket of its client", each)
	if most := int64(32 << 10); each > most {
		t.Errorf("%d bytes for a connection, and %d are as many as there should be", each, most)
	}
}

// TestHalfOpenClients take a connection and say nothing, at once or from some time on.
func TestHalfOpenClients(t *testing.T) {
	sv := start(t, Options{Hello: 100 * time.Millisecond, Ping: 100 * time.Millisecond, Pong: 100 * time.Millisecond})
	sv.dial(t).away()
	p := sv.dial(t)
	io.WriteString(p, h2.Preface)
	p.away()
	sv.dial(t).hello().away()
	p = sv.dial(t).hello()
	for range 3 {
		f, ok := p.next(h2.Ping)
		if !ok {
			t.Fatal("who answers pings is not cut")
		}
		p.frame(h2.Ping, h2.Ack, 0, f.b)
	}
	p.good(1)
}

// TestClientsThatGo end their calls, and nothing stays of them.
func TestClientsThatGo(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello()
	p.open(1, "/t/hang")
	p.ask(3, "/t/long", "10000000")
	p.open(5, "/t/echo")
	p.frame(h2.Data, 0, 5, append(grpcmsg.Header(false, 1<<20), make([]byte, 10_000)...))
	<-sv.came
	soon(t, "all are under way", func() bool { return sv.Handlers() == 3 })
	p.frame(h2.Reset, 0, 1, word(h2.CodeCancel))
	<-sv.left
	soon(t, "one has ended", func() bool { return sv.Handlers() == 2 })
	p.Close()
	soon(t, "all have", func() bool { return sv.Handlers() == 0 && sv.pool.out.Load() == 0 })
}

// FuzzClient says anything after the settings: calls end, and nothing stays.
func FuzzClient(f *testing.F) {
	var out bytes.Buffer
	enc := hpack.NewEncoder(&out)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/t/echo"}, {":authority", "t"}, {"content-type", "application/grpc"}} {
		enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	open := append(h2.AppendFrame(nil, h2.Headers, h2.EndHeaders, 1, out.Len()), out.Bytes()...)
	with := func(more ...[]byte) []byte { return bytes.Join(append([][]byte{open}, more...), nil) }
	data := append(h2.AppendFrame(nil, h2.Data, h2.EndStream, 1, 10), message("hello")...)
	f.Add(with(data))
	f.Add(with(h2.AppendReset(nil, 1, 8)))
	f.Add(with(h2.AppendWindow(nil, 1, 1<<20), data))
	f.Add(with(append(h2.AppendFrame(nil, h2.Settings, 0, 0, 6), 0, 4, 0, 0, 0, 0), data, h2.AppendWindow(nil, 1, 3)))
	f.Add(with(append(h2.AppendFrame(nil, h2.Data, h2.Padded, 1, 3), 1, 2, 3)))
	f.Add(h2.AppendGoAway(nil, 0, 0))
	f.Fuzz(func(t *testing.T, said []byte) {
		sv := &server{came: make(chan *Stream, 1000), left: make(chan error, 1000)}
		own := sv.handlers()
		services := &Services{Most: 1 << 10, Stall: time.Minute}
		ours, theirs := net.Pipe()
		s := New(Options{Log: discard, Find: func(path string) Handler {
			if h := own[path]; h != nil && path != "/t/panic" {
				return h
			}
			return services.Find(path)
		}})
		s.take(ours)
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, theirs) })
		io.WriteString(theirs, h2.Preface)
		theirs.Write(h2.AppendFrame(nil, h2.Settings, 0, 0, 0))
		theirs.Write(said)
		theirs.Close()
		s.Close()
		wg.Wait()
		if n := sv.pool.out.Load(); n != 0 {
			t.Errorf("%d buffers were not freed", n)
		}
	})
}
