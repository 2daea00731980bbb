package grpcserve

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is a pool that knows what is out.
type counting struct{ out atomic.Int64 }

// Get implements mem.BufferPool.
func (p *counting) Get(n int) *[]byte {
	p.out.Add(1)
	b := make([]byte, n, max(n, 2048)) // shorter ones are never given back
	return &b
}

// Put implements mem.BufferPool. What is written after that is seen.
func (p *counting) Put(b *[]byte) {
	p.out.Add(-1)
	for i := range *b {
		(*b)[i] = 0xee
	}
}

func (p *counting) buffer(b []byte) mem.Buffer {
	own := p.Get(len(b))
	copy(*own, b)
	return mem.NewBuffer(own, p)
}

// pieces is a message as a reply in pieces of n bytes.
func (p *counting) pieces(message []byte, n int) (out mem.BufferSlice) {
	b := append(grpcmsg.Header(false, len(message)), message...)
	for len(b) > 0 {
		k := min(n, len(b))
		out = append(out, p.buffer(b[:k]))
		b = b[k:]
	}
	return out
}

// server serves some methods of /t/.
type server struct {
	*Server
	at    string
	pool  counting
	cuts  atomic.Int64
	noted atomic.Int64
	came  chan *Stream // of hang
	left  chan error
	serve sync.WaitGroup
}

// noise is n bytes of which no two parts are alike.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// receive takes a message.
func receive(s *Stream, most int) ([]byte, error) {
	in := grpcmsg.Incoming{Stream: s, Cancel: s.Cancel, Stall: time.Minute, Most: most, Need: func(int64) error { return nil }}
	_, data, err := in.Receive()
	if err != nil {
		return nil, err
	}
	defer data.Free()
	return bytes.Clone(data.Materialize()), nil
}

func (sv *server) handlers() map[string]Handler {
	return map[string]Handler{
		// echo answers with what it got.
		"/t/echo": func(s *Stream) error {
			b, err := receive(s, 64<<20)
			if err != nil {
				return err
			}
			s.SetHeader(metadata.MD{"x-head": {"h"}, "x-raw-bin": {"\x00\xff"}})
			s.SetTrailer(metadata.MD{"x-tail": {"t"}})
			return s.Write(sv.pool.pieces(b, 5000), true)
		},
		// long answers with as many bytes as it is asked for.
		"/t/long": func(s *Stream) error {
			b, err := receive(s, 100)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(b))
			if err != nil {
				return status.Error(codes.InvalidArgument, "no length")
			}
			all := sv.pool.pieces(noise(n), 16<<10)
			for len(all) > 0 {
				k := min(len(all), 4)
				if err := s.Write(all[:k:k], k == len(all)); err != nil {
					all[k:].Free()
					return err
				}
				all = all[k:]
			}
			return nil
		},
		// count takes messages to their end.
		"/t/count": func(s *Stream) error {
			n := 0
			for {
				_, err := receive(s, 1<<20)
				if err == io.EOF {
					return s.Write(sv.pool.pieces([]byte(strconv.Itoa(n)), 1), true)
				}
				if err != nil {
					return err
				}
				n++
			}
		},
		"/t/hang": func(s *Stream) error {
			sv.came <- s
			<-s.Context().Done()
			sv.left <- s.Context().Err()
			return s.Context().Err()
		},
		"/t/fail": func(s *Stream) error {
			s.SetTrailer(metadata.MD{"x-tail": {"t"}})
			return status.Error(codes.FailedPrecondition, "not näw: 100 %")
		},
		"/t/time": func(s *Stream) error {
			d, ok := s.Timeout()
			_, has := s.Context().Deadline()
			if ok != has {
				return errors.New("a time without a deadline")
			}
			return status.Errorf(codes.Aborted, "%v %v", d, ok)
		},
		// note counts.
		"/t/note": func(s *Stream) error {
			b, err := receive(s, 1000)
			if err != nil {
				return err
			}
			sv.noted.Add(1)
			return s.Write(sv.pool.pieces(b, 5000), true)
		},
		"/t/utf8":  func(*Stream) error { return status.Error(codes.Aborted, "a\xffb") },
		"/t/panic": func(*Stream) error { panic("asked for") },
	}
}

func start(t testing.TB, o Options) *server {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sv := &server{at: lis.Addr().String(), came: make(chan *Stream, 10_000), left: make(chan error, 10_000)}
	services := &Services{Most: 1 << 10, Stall: time.Minute}
	h := health.NewServer()
	h.SetServingStatus("t", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(services, h)
	reflection.Register(services)
	own := sv.handlers()
	o.Find = func(path string) Handler {
		if h := own[path]; h != nil {
			return h
		}
		return services.Find(path)
	}
	o.Accepts = "zstd,gzip,identity"
	o.Cut = func() { sv.cuts.Add(1) }
	o.Log = slog.New(slog.DiscardHandler)
	sv.Server = New(o)
	sv.serve.Go(func() {
		if err := sv.Serve(lis); !errors.Is(err, ErrClosed) {
			t.Errorf("the end of serving: %v", err)
		}
	})
	t.Cleanup(func() {
		sv.Close()
		sv.serve.Wait()
		if n := sv.pool.out.Load(); n != 0 {
			t.Errorf("%d buffers were not freed", n)
		}
		if n := sv.Handlers(); n != 0 {
			t.Errorf("%d handlers are under way", n)
		}
	})
	return sv
}

// peer is a client that says what a test tells it to.
type peer struct {
	net.Conn
	in   *bufio.Reader
	t    testing.TB
	enc  *hpack.Encoder
	out  bytes.Buffer
	dec  *hpack.Decoder
	last map[string]string
}

func (sv *server) dial(t testing.TB) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", sv.at)
	if err != nil {
		t.Fatal(err)
	}
	return sv.over(t, nc)
}

// over is dial for a connection that is there.
func (sv *server) over(t testing.TB, nc net.Conn) *peer {
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	p := &peer{Conn: nc, in: bufio.NewReaderSize(nc, 64<<10), t: t}
	p.enc = hpack.NewEncoder(&p.out)
	p.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) { p.last[f.Name] = f.Value })
	return p
}

// hello begins a connection with settings, names and values in turn.
func (p *peer) hello(settings ...uint32) *peer {
	var b []byte
	for i := 0; i+1 < len(settings); i += 2 {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, uint16(settings[i])), settings[i+1])
	}
	io.WriteString(p, h2.Preface)
	p.frame(h2.Settings, 0, 0, b)
	return p
}

func (p *peer) frame(kind, flags byte, id uint32, b []byte) error {
	_, err := p.Write(append(h2.AppendFrame(nil, kind, flags, id, len(b)), b...))
	return err
}

type frame struct {
	kind, flags byte
	id          uint32
	b           []byte
}

// read reads a frame; false at the end.
func (p *peer) read() (f frame, ok bool) {
	var h [h2.FrameHeaderBytes]byte
	if _, err := io.ReadFull(p.in, h[:]); err != nil {
		return f, false
	}
	f = frame{h[3], h[4], binary.BigEndian.Uint32(h[5:]), make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))}
	if _, err := io.ReadFull(p.in, f.b); err != nil {
		return f, false
	}
	if f.kind == h2.Headers {
		p.last = map[string]string{}
		if _, err := p.dec.Write(f.b); err != nil {
			p.t.Errorf("headers of the server: %v", err)
		}
		p.dec.Close()
	}
	return f, true
}

// next reads frames to the next one of a kind; false at the end.
func (p *peer) next(kind byte) (frame, bool) {
	for {
		f, ok := p.read()
		if !ok || f.kind == kind {
			return f, ok
		}
	}
}

func (p *peer) block(fields ...string) []byte {
	p.out.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.out.Bytes())
}

// asks are the headers of a call.
func (p *peer) asks(path string, more ...string) []byte {
	return p.block(append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "t", "content-type", "application/grpc", "te", "trailers"}, more...)...)
}

func (p *peer) open(id uint32, path string, more ...string) {
	p.Write(h2.AppendHeaders(nil, id, p.asks(path, more...), false, h2.MaxFrame))
}

func message(b string) []byte { return append(grpcmsg.Header(false, len(b)), b...) }

// ask begins a call with its message.
func (p *peer) ask(id uint32, path, text string, more ...string) {
	p.open(id, path, more...)
	p.frame(h2.Data, h2.EndStream, id, message(text))
}

// answer is all that comes on a stream, to its end.
type answer struct {
	data   []byte
	head   map[string]string // nil: only trailers
	tail   map[string]string // nil: none
	reset  uint32            // code; 1<<31: none
	frames int               // of data
}

func (p *peer) answer(id uint32) (a answer) {
	p.t.Helper()
	a.reset = 1 << 31
	for {
		f, ok := p.read()
		switch {
		case !ok:
			p.t.Errorf("the connection ended before the answer of %d", id)
			return a
		case f.id != id:
			continue
		}
		switch f.kind {
		case h2.Data:
			a.data = append(a.data, f.b...)
			a.frames++
		case h2.Headers:
			if f.flags&h2.EndStream != 0 {
				a.tail = p.last
				return a
			}
			a.head = p.last
		case h2.Reset:
			a.reset = binary.BigEndian.Uint32(f.b)
			return a
		}
	}
}

// good tells whether a call is answered as it should.
func (p *peer) good(id uint32) {
	p.t.Helper()
	p.ask(id, "/t/echo", "hello")
	if a := p.answer(id); string(a.data) != string(message("hello")) || a.tail["grpc-status"] != "0" || a.head["x-head"] != "h" || a.tail["x-tail"] != "t" {
		p.t.Errorf("call %d: %+v", id, a)
	}
}

// away waits for the end of the connection and tells the code of the farewell; -1 if there was none.
func (p *peer) away() int {
	code := -1
	for {
		f, ok := p.read()
		if !ok {
			return code
		}
		if f.kind == h2.GoAway && f.b[7] != 0 {
			code = int(binary.BigEndian.Uint32(f.b[4:]))
		}
	}
}

// soon waits for something that comes by itself.
func soon(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for !is() {
		select {
		case <-every.C:
		case <-late.C:
			t.Errorf("not in time: %s", what)
			return
		}
	}
}

func word(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

var (
	long    = strings.Repeat("x", 4000)
	discard = slog.New(slog.DiscardHandler)
)
