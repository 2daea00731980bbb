package grpcserve

import (
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/h2"
)

// also serves a path by a handler of its own.
func (sv *server) also(path string, h Handler) {
	find := sv.o.Find
	sv.o.Find = func(p string) Handler {
		if p == path {
			return h
		}
		return find(p)
	}
}

// only is the connection of a server that has one.
func (sv *server) only(t *testing.T) (c *conn) {
	t.Helper()
	soon(t, "there is a connection", func() bool {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		for c = range sv.conns {
			return true
		}
		return false
	})
	return c
}

// is looks at a connection under its lock.
func (c *conn) is(what func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return what()
}

// held is how many bytes wait to be written when what is being written is.
func (c *conn) held() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.segs {
		if n += len(s.b); s.buf != nil {
			n += s.buf.Len() - len(s.b)
		}
	}
	return n
}

// TestAnswersThatNobodyReadsAreBounded has clients that do not read and go on with calls that end at once, each with an answer that is many
// times as long as the call.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	var n atomic.Int64
	const per = 100
	differs := func() string { return strings.Repeat(strconv.Itoa(int(n.Add(1))), 2000) }
	for name, c := range map[string]struct {
		h     Handler
		reset bool
	}{
		"status": {func(*Stream) error { return status.Error(codes.Aborted, differs()) }, false},
		"headers and reset": {func(s *Stream) error {
			s.SetHeader(metadata.MD{"x-long": {differs()}})
			if err := s.Write(mem.BufferSlice{mem.SliceBuffer("x")}, false); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sv := start(t, Options{})
			sv.also("/t/differs", c.h)
			p := sv.dial(t).hello()
			p.frame(h2.Window, 0, 0, word(1<<30))
			conn := sv.only(t)
			most := 0
			id := uint32(1)
			for range 40 {
				var b []byte
				for range per {
					b = h2.AppendHeaders(b, id, p.block(":method", "POST", ":scheme", "http", ":path", "/t/differs", ":authority", "t", "content-type", typeGRPC), !c.reset, h2.MaxFrame)
					id += 2
				}
				if _, err := p.Write(b); err != nil {
					break
				}
				soon(t, "they are there", func() bool { return conn.is(func() bool { return conn.last == id-2 || conn.leaving == left }) })
				if c.reset {
					soon(t, "they are answered", func() bool {
						return conn.is(func() bool {
							for _, s := range conn.streams {
								if !s.headed {
									return false
								}
							}
							return true
						})
					})
					b = b[:0]
					for i := range per {
						b = h2.AppendReset(b, id-2*uint32(i+1), h2.CodeCancel)
					}
					p.Write(b)
				}
				soon(t, "they are over", func() bool { most = max(most, conn.held()); return conn.is(func() bool { return conn.running == 0 }) })
				if conn.is(func() bool { return conn.leaving == left }) {
					break
				}
			}
			t.Logf("%d bytes were held, after %d calls", most, id/2)
			if want := maxBlocks + per*20_000; most > want {
				t.Errorf("%d bytes were held, and %d are as many as should be", most, want)
			}
		})
	}
}

// TestRefusalsOfOneReadAreBounded has a client with many requests that are no calls of gRPC, each with an answer that is many times as long.
func TestRefusalsOfOneReadAreBounded(t *testing.T) {
	sv := start(t, Options{})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	c := newConn(sv.Server, ours)
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := uint32(1); ; id += 2 {
		c.req = head{method: "POST", scheme: "http", path: "/", authorities: 1, wrongType: strings.Repeat("ä", 2000)}
		if err := c.begin(id, true); err != nil {
			break
		}
		if n := len(c.arena); n > 2*maxControl {
			t.Fatalf("%d bytes answer %d requests", n, id/2+1)
		}
	}
}

// TestStreamsThatAreOverLeaveTheTurns also where the one in front of them waits for the window of the connection.
func TestStreamsThatAreOverLeaveTheTurns(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello(h2.SettingWindow, h2.MaxWindow)
	c := sv.only(t)
	p.ask(1, "/t/long", "200000")
	soon(t, "the window is used", func() bool { return c.is(func() bool { return c.room == 0 && len(c.ready) == 1 }) })
	for id := uint32(3); id < 200; id += 2 {
		p.ask(id, "/t/echo", "x")
		soon(t, "it waits", func() bool { return c.is(func() bool { s := c.streams[id]; return s != nil && s.listed }) })
		p.frame(h2.Reset, 0, id, word(h2.CodeCancel))
	}
	soon(t, "all but one are over", func() bool { return c.is(func() bool { return len(c.streams) == 1 }) })
	if n := len(c.ready) - c.first; n > 1 {
		t.Errorf("%d streams have their turn", n)
	}
	p.frame(h2.Window, 0, 0, word(1<<20))
	if a := p.answer(1); len(a.data) != 200_005-h2.DefaultWindow && len(a.data) != 200_005 || a.tail["grpc-status"] != "0" {
		t.Errorf("%d bytes, %v", len(a.data), a.tail)
	}
}

// TestPiecesOfStreamsThatAreOverAreBounded has a client that takes a byte of each reply and gives it up, and does not read: of each a piece is
// needed until that byte is written.
func TestPiecesOfStreamsThatAreOverAreBounded(t *testing.T) {
	sv := start(t, Options{})
	sv.also("/t/one", func(s *Stream) error { return s.Write(mem.BufferSlice{sv.pool.buffer(make([]byte, 256<<10))}, true) })
	p := sv.dial(t).hello(h2.SettingWindow, h2.MaxWindow)
	p.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	p.frame(h2.Window, 0, 0, word(h2.MaxWindow-h2.DefaultWindow))
	c := sv.only(t)
	id := uint32(1)
	for blocked := 0; blocked < 5; id += 2 {
		p.ask(id, "/t/long", "8000")
		soon(t, "it is queued", func() bool { return c.is(func() bool { return c.last == id && len(c.streams) == 0 }) })
		if blocked++; c.is(func() bool { return !c.flushing }) {
			blocked = 0
		}
	}
	p.frame(h2.Settings, 0, 0, append([]byte{0, h2.SettingWindow}, word(1)...))
	most := 0
	for range 50 {
		p.ask(id, "/t/one", "x")
		soon(t, "it waits", func() bool { return c.is(func() bool { s := c.streams[id]; return s != nil && s.pending > 0 }) })
		p.frame(h2.Reset, 0, id, word(h2.CodeCancel))
		most = max(most, c.held())
		id += 2
	}
	if want := 2*maxQueued + 256<<10; most > want {
		t.Errorf("%d bytes are held, and %d are as many as should be", most, want)
	}
}

// TestPiecesAreLetGoWithNothingToWrite has a batch of nothing but a piece that was written in part before its stream was over.
func TestPiecesAreLetGoWithNothingToWrite(t *testing.T) {
	sv := start(t, Options{})
	ours, theirs := net.Pipe() // what it does not take at once is what everything is
	sv.take(ours)
	c := sv.only(t)
	p := sv.over(t, theirs)
	p.hello(h2.SettingWindow, 1000)
	p.ask(1, "/t/long", "2000")
	soon(t, "a part of it is written", func() bool { return c.is(func() bool { return c.flushing }) })
	for n := 0; n < 1000; {
		f, ok := p.next(h2.Data)
		if !ok {
			t.Fatal("the connection ended")
		}
		n += len(f.b)
	}
	soon(t, "nothing is written", func() bool { return c.is(func() bool { return !c.flushing }) })
	c.mu.Lock()
	c.over(c.streams[1])
	writes := len(c.segs) > 0 && !c.flushing
	if writes {
		c.flushing = true
		c.swap()
		c.rest = c.now.vec
		c.srv.wg.Go(c.writeOn)
	}
	c.mu.Unlock()
	if !writes {
		t.Fatal("no piece is queued")
	}
	soon(t, "it is let go", func() bool { return sv.pool.out.Load() == 0 })
	p.good(3)
}

// TestShortPiecesBesideLongOnes take about what they are long as well.
func TestShortPiecesBesideLongOnes(t *testing.T) {
	s, took := &Stream{}, 0
	for range 7 {
		s.recv, s.open = append(s.recv, mem.SliceBuffer(make([]byte, gathered+1))), false
		s.have += gathered + 1
		s.gather([]byte{1})
		s.have++
		took += cap(s.tail)
	}
	if took > gathered {
		t.Errorf("%d bytes hold those of 7 frames of a byte", took)
	}
}

// TestBinaryHeadersPutTogether are those of one name whose values something on the way has put into one, with and without padding.
func TestBinaryHeadersPutTogether(t *testing.T) {
	h := head{more: []hpack.HeaderField{{Name: "x-bin", Value: "AP8=,AQ, Ag=="}, {Name: "x-bin", Value: ""}, {Name: "y", Value: "a,b"}, {Name: "z-bin", Value: strings.Repeat(",", 1000)}}}
	got, err := h.metadata()
	if n := len(got["z-bin"]); n != mostFields {
		t.Errorf("%d values are kept, want %d", n, mostFields)
	}
	delete(got, "z-bin")
	if want := (metadata.MD{"x-bin": {"\x00\xff", "\x01", "\x02", ""}, "y": {"a,b"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestServicesServeSomeCallsOfAConnection at once: what they hold is charged by nobody.
func TestServicesServeSomeCallsOfAConnection(t *testing.T) {
	sv := start(t, Options{})
	p := sv.dial(t).hello()
	c := sv.only(t)
	const watch = "/grpc.health.v1.Health/Watch"
	id := uint32(1)
	for range mostServed {
		p.open(id, watch)
		id += 2
	}
	soon(t, "they are under way", func() bool { return c.served.Load() == mostServed })
	p.open(id, watch)
	if a := p.answer(id); a.tail["grpc-status"] != "8" {
		t.Errorf("one more: %+v", a)
	}
	p.good(id + 2) // others do not count
	p.frame(h2.Reset, 0, 1, word(h2.CodeCancel))
	soon(t, "one has ended", func() bool { return c.served.Load() == mostServed-1 })
	p.ask(id+4, "/grpc.health.v1.Health/Check", "")
	if a := p.answer(id + 4); a.tail["grpc-status"] != "0" && a.tail["grpc-status"] != "5" {
		t.Errorf("when one has ended: %+v", a)
	}
}

// TestHeadersOfConnectionsAreLeftOut of replies, which would be malformed with them.
func TestHeadersOfConnectionsAreLeftOut(t *testing.T) {
	sv := start(t, Options{})
	sv.also("/t/names", func(s *Stream) error {
		for _, name := range []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "content-length", "te", "grpc-status", "X-Large", "a b", ""} {
			s.SetHeader(metadata.MD{name: {"1"}})
			s.SetTrailer(metadata.MD{name: {"1"}})
		}
		s.SetHeader(metadata.MD{"x-good": {"1", "a\nb"}})
		return status.Error(codes.Aborted, "x")
	})
	p := sv.dial(t).hello()
	p.ask(1, "/t/names", "")
	a := p.answer(1)
	if len(a.head) != 3 || a.head["x-good"] != "1" || len(a.tail) != 2 || a.tail["grpc-status"] != "10" {
		t.Errorf("%+v", a)
	}
}

// TestListsOfNames are short, however many names a client has.
func TestListsOfNames(t *testing.T) {
	var all []string
	for i := range 5000 {
		all = append(all, fmt.Sprint(i))
	}
	if got := lists("zstd, gzip,,zstd," + strings.Join(all, ",")); len(got) != mostNames || got[0] != grpcmsg.Zstd || got[1] != grpcmsg.Gzip || got[2] != "0" {
		t.Errorf("%q", got)
	}
}
