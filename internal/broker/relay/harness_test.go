package relay

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node whose every byte is said: an HTTP server that knows nothing of gRPC.
func node(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: serve, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(lis) })
	t.Cleanup(func() {
		srv.Close()
		wg.Wait()
	})
	return lis.Addr().String()
}

// broker is a relay before the node of an address.
type broker struct {
	addr    string
	node    *grpcraw.Node
	server  *Server
	charged atomic.Int64
	most    atomic.Int64
	calls   atomic.Int64
	done    chan Outcome
}

type option func(*Config)

func serving(t *testing.T, at string, o grpcraw.Options, options ...option) *broker {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{addr: lis.Addr().String(), node: grpcraw.NewNode(at, o), done: make(chan Outcome, 10_000)}
	cfg := Config{
		Route: func(c *Call) (Target, error) {
			if c.Index() == "absent" {
				return Target{}, status.Errorf(codes.NotFound, "index '%s' is not present on any healthy backend", c.Index())
			}
			return Target{Node: b.node, Done: func(o Outcome, _ error) { b.done <- o }}, nil
		},
		Stream: func(c *Call) error { return status.Error(codes.Unimplemented, "no streams here") },
		Enter:  func() bool { b.calls.Add(1); return true }, Leave: func() { b.calls.Add(-1) },
		Charge: func(_ context.Context, _, more int64) (int64, func(), error) {
			if n := b.charged.Add(more); n > b.most.Load() {
				b.most.Store(n)
			}
			return more, func() { b.charged.Add(-more) }, nil
		},
		Log: slog.New(slog.DiscardHandler),
	}
	for _, option := range options {
		option(&cfg)
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	b.server = New(cfg)
	l := b.server.Binding("").Server(lis)
	var wg sync.WaitGroup
	wg.Go(func() { l.Serve() })
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
		b.node.Close()
		if n := b.charged.Load(); n != 0 {
			t.Errorf("%d bytes stayed charged", n)
		}
		if n := b.calls.Load(); n != 0 {
			t.Errorf("%d calls are still counted", n)
		}
		if n := b.server.replies.Held(); n != 0 {
			t.Errorf("%d bytes of replies stayed counted", n)
		}
	})
	return b
}

// dial is a client whose every byte is said.
func dial(t *testing.T, at string) *grpcraw.Node {
	n := grpcraw.NewNode(at, grpcraw.Options{})
	t.Cleanup(n.Close)
	return n
}

const search = "/summa.SearchService/Search"

// named is a message for an index with more behind the name.
func named(index string, more []byte) []byte {
	b := append([]byte{1<<3 | 2}, binary.AppendUvarint(nil, uint64(len(index)))...)
	return append(append(b, index...), more...)
}

// padded is an unknown field of n bytes and something.
func padded(n int) []byte {
	b := binary.AppendUvarint(nil, 1000<<3|2)
	b = binary.AppendUvarint(b, uint64(n))
	return append(b, make([]byte, n)...)
}

func framed(compressed bool, message []byte) mem.BufferSlice {
	return mem.BufferSlice{mem.SliceBuffer(grpcmsg.Header(compressed, len(message))), mem.SliceBuffer(message)}
}

func encodeBinary(v string) string { return base64.RawStdEncoding.EncodeToString([]byte(v)) }

func compress(t *testing.T, encoding string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "":
		return b
	case "gzip":
		w = gzip.NewWriter(&out)
	case "zstd":
		w, _ = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ok begins a good reply of HTTP.
func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "grpc-status")
}

// answer sends one message and a good status.
func answer(w http.ResponseWriter, encoding string, message []byte) {
	ok(w)
	if encoding != "" {
		w.Header().Set("Grpc-Encoding", encoding)
	}
	w.Write(grpcmsg.Header(encoding != "", len(message)))
	w.Write(message)
	w.Header().Set("grpc-status", "0")
}

// refuse answers with a status alone.
func refuse(w http.ResponseWriter, code codes.Code, text string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("grpc-status", string('0'+rune(code/10))+string('0'+rune(code%10)))
	w.Header().Set("grpc-message", text)
}

// ask makes a call and takes all of the reply.
func ask(t *testing.T, n *grpcraw.Node, call *grpcraw.Call) (*grpcraw.Reply, []byte, error) {
	t.Helper()
	if call.Method == "" {
		call.Method = search
	}
	if call.Message == nil {
		call.Message = framed(false, named("x", nil))
	}
	r, err := n.Do(t.Context(), call, 1<<30, nil)
	if err != nil {
		return nil, nil, err
	}
	data := r.Data.Materialize()
	r.Data.Free()
	return r, data, r.End.Err()
}

func want(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != code || st.Message() != text {
		t.Errorf("got %s %q, want %s %q", st.Code(), st.Message(), code, text)
	}
}

// soon waits for something that comes by itself.
func soon(t *testing.T, what string, is func() bool) {
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
