package grpcraw

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a server that says what a test tells it to.
type peer struct {
	net.Conn
	t    *testing.T
	enc  *hpack.Encoder
	out  bytes.Buffer
	dec  *hpack.Decoder
	last map[string]string
}

// serve runs a peer for each connection.
func serve(t *testing.T, run func(p *peer)) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			nc, err := lis.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, nc)
			mu.Unlock()
			wg.Go(func() {
				defer nc.Close()
				p := &peer{Conn: nc, t: t}
				p.enc = hpack.NewEncoder(&p.out)
				p.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) { p.last[f.Name] = f.Value })
				run(p)
			})
		}
	})
	t.Cleanup(func() {
		lis.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return lis.Addr().String()
}

// hello takes the h2.Preface and settings of a client, and sends settings.
func (p *peer) hello(settings ...uint32) {
	io.ReadFull(p, make([]byte, len(h2.Preface)))
	var b []byte
	for i := 0; i+1 < len(settings); i += 2 {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, uint16(settings[i])), settings[i+1])
	}
	p.frame(h2.Settings, 0, 0, b)
}

func (p *peer) frame(kind, flags byte, id uint32, b []byte) error {
	_, err := p.Write(append(h2.AppendFrame(nil, kind, flags, id, len(b)), b...))
	return err
}

// next reads frames to the next one of a kind; false at the end.
func (p *peer) next(kind byte) (flags byte, id uint32, b []byte, ok bool) {
	for {
		got, flags, id, b, ok := p.any()
		if !ok || got == kind {
			return flags, id, b, ok
		}
	}
}

// any reads the next frame; false at the end.
func (p *peer) any() (kind, flags byte, id uint32, b []byte, ok bool) {
	var h [h2.FrameHeaderBytes]byte
	if _, err := io.ReadFull(p, h[:]); err != nil {
		return 0, 0, 0, nil, false
	}
	b = make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
	if _, err := io.ReadFull(p, b); err != nil {
		return 0, 0, 0, nil, false
	}
	if h[3] == h2.Headers {
		p.last = map[string]string{}
		p.dec.Write(b)
		p.dec.Close()
	}
	return h[3], h[4], binary.BigEndian.Uint32(h[5:]), b, true
}

// call reads to the next call.
func (p *peer) call() (id uint32, ok bool) {
	_, id, _, ok = p.next(h2.Headers)
	return id, ok
}

func (p *peer) block(fields ...string) []byte {
	p.out.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.out.Bytes())
}

func (p *peer) head(id uint32) error {
	return p.frame(h2.Headers, h2.EndHeaders, id, p.block(":status", "200", "content-type", "application/grpc"))
}

func (p *peer) tail(id uint32, code string) error {
	return p.frame(h2.Headers, h2.EndHeaders|h2.EndStream, id, p.block("grpc-status", code))
}

func message(b string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// answer is a whole good reply.
func (p *peer) answer(id uint32, text string) error {
	p.head(id)
	p.frame(h2.Data, 0, id, message(text))
	return p.tail(id, "0")
}

// answering answers every call on the connection.
func (p *peer) answering(text string) {
	for {
		id, ok := p.call()
		if !ok || p.answer(id, text) != nil {
			return
		}
	}
}

func newNode(t *testing.T, at string, o Options) *Node {
	n := NewNode(at, o)
	t.Cleanup(n.Close)
	return n
}

func do(t *testing.T, n *Node, timeout time.Duration) (string, error) {
	t.Helper()
	r, err := n.Do(t.Context(), &Call{Method: "/s/m", Timeout: timeout, Message: mem.BufferSlice{mem.SliceBuffer(message("ask"))}}, 1<<20, nil)
	if err != nil {
		return "", err
	}
	defer r.Data.Free()
	return string(r.Data.Materialize()), r.End.Err()
}

func want(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != code || st.Message() != text {
		t.Errorf("%s: got %s %q, want %s %q", what, st.Code(), st.Message(), code, text)
	}
}

// fuzzDial makes connections to a peer that says its settings, and then something.
func fuzzDial(said []byte) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs) // to the end of the connection
		go func() {
			theirs.Write(h2.AppendFrame(nil, h2.Settings, 0, 0, 0))
			theirs.Write(said)
			theirs.Close()
		}()
		return ours, nil
	}
}
