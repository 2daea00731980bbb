package frame

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers with "re:" and the request; "close" ends the connection too, "panic" panics.
func echo(_ context.Context, request, reply []byte) Reply {
	switch string(request) {
	case "panic":
		panic("as asked")
	case "close":
		return Reply{Body: append(reply, "bye"...), Close: true}
	}
	return Reply{Body: append(append(reply, "re:"...), request...)}
}

// refuse answers with the reason.
func refuse(dst []byte, r Refusal) []byte {
	names := map[Reason]string{
		TooManyConnections: "too many", FrameTooLong: "too long", NoMemory: "no memory", ReplyTooLong: "reply too long", Panicked: "internal",
	}
	return append(dst, names[r.Reason]...)
}

// pipeListener is a listener of in-memory connections, for bubbles of virtual time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start serves on l and ends the server with the test.
func start(t testing.TB, s *Server, l net.Listener) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
}

// startTCP serves on a free port of the loopback.
func startTCP(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start(t, s, l)
	return l.Addr().String()
}

func dialTCP(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func send(t testing.TB, w io.Writer, body string) {
	t.Helper()
	if _, err := w.Write(Append(nil, []byte(body))); err != nil {
		t.Fatalf("send %q: %v", body, err)
	}
}

func wantReply(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got, err := Read(r, 0, nil)
	if err != nil || string(got) != want {
		t.Fatalf("reply %q, %v; want %q", got, err, want)
	}
}

func wantEnd(t testing.TB, r io.Reader) {
	t.Helper()
	if got, err := Read(r, 0, nil); !errors.Is(err, io.EOF) {
		t.Fatalf("%q, %v where the connection should end", got, err)
	}
}

func TestGoldenBytes(t *testing.T) {
	for body, want := range map[string][]byte{
		"":              {0, 0, 0, 0},
		`{"op":"ping"}`: append([]byte{13, 0, 0, 0}, `{"op":"ping"}`...),
		"\xd0\xb6":      {2, 0, 0, 0, 0xd0, 0xb6},
	} {
		var b bytes.Buffer
		if err := Write(&b, []byte(body)); err != nil || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("write %q: % x, %v", body, b.Bytes(), err)
		}
		if got := Append([]byte("x"), []byte(body)); !bytes.Equal(got[1:], want) {
			t.Errorf("append %q: % x", body, got)
		}
		if got, err := Read(&b, 0, nil); err != nil || string(got) != body {
			t.Errorf("read back %q: %q, %v", body, got, err)
		}
	}
	long := Append(nil, make([]byte, 0x010203))
	if !bytes.Equal(long[:4], []byte{3, 2, 1, 0}) {
		t.Errorf("header of 0x010203 bytes: % x", long[:4])
	}
}

func TestReadErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    string
		limit int
		want  error
	}{
		{"between frames", "", 0, io.EOF},
		{"in the header", "\x05\x00", 0, io.ErrUnexpectedEOF},
		{"before the body", "\x05\x00\x00\x00", 0, io.ErrUnexpectedEOF},
		{"in the body", "\x05\x00\x00\x00abcd", 0, io.ErrUnexpectedEOF},
		{"whole", "\x05\x00\x00\x00abcde", 5, nil},
	} {
		if _, err := Read(bytes.NewReader([]byte(c.in)), c.limit, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	r := bytes.NewReader([]byte("\x06\x00\x00\x80abcdef"))
	_, err := Read(r, 5, nil)
	long, ok := errors.AsType[*TooLongError](err)
	if !ok || long.Length != 0x80000006 || long.Limit != 5 || r.Len() != 6 {
		t.Errorf("over the limit: %v with %d bytes unread", err, r.Len())
	}
}

// measured counts what was read and knows how much memory the reader offered beyond that.
type measured struct {
	r        io.Reader
	got      int
	overhang int
}

func (m *measured) Read(p []byte) (int, error) {
	m.overhang = max(m.overhang, len(p)-m.got)
	n, err := m.r.Read(p)
	m.got += n
	return n, err
}

func TestBodyGrowsWithWhatArrives(t *testing.T) {
	// A header that claims 60 MB and three bytes.
	in := &measured{r: bytes.NewReader([]byte{0, 0, 0x94, 3, 'a', 'b', 'c'})}
	if _, err := Read(in, 0, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if in.overhang > smallFrame {
		t.Errorf("%d bytes allocated for 3", in.overhang)
	}
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	got, err := Read(bytes.NewReader(Append(nil, body)), 0, nil)
	if err != nil || !bytes.Equal(got, body) || cap(got) > 2*len(body) {
		t.Errorf("%d bytes in %d, %v", len(got), cap(got), err)
	}
	// Into the memory that is given, if it is enough.
	buf := make([]byte, 3, 100)
	if got, err := Read(bytes.NewReader(Append(nil, body[:100])), 0, buf); err != nil || &got[0] != &buf[0] {
		t.Errorf("memory was not used: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestReaderWithoutProgress(t *testing.T) {
	in := io.MultiReader(bytes.NewReader([]byte{9, 0, 0, 0}), stuck{})
	if _, err := Read(in, 0, nil); !errors.Is(err, io.ErrNoProgress) {
		t.Fatal(err)
	}
}

// FuzzRead reads frames from any bytes, in pieces of any size: nothing is allocated beyond what arrived, and what is read is what
// was written.
func FuzzRead(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(Append(Append(nil, []byte("one")), nil), uint8(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2}, uint8(3))
	f.Add([]byte{0, 0, 0, 2, 1, 2}, uint8(200))
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		const limit = 32 << 20
		var frames [][]byte
		var buf []byte
		src := bytes.NewReader(in)
		for {
			r := &measured{r: pieces{src, int(piece) + 1}}
			got, err := Read(r, limit, buf)
			if r.overhang > r.got+smallFrame {
				t.Fatalf("%d bytes allocated beyond %d", r.overhang, r.got)
			}
			if err != nil {
				whole := len(in) - src.Len()
				_, long := errors.AsType[*TooLongError](err)
				if !long && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				if errors.Is(err, io.EOF) && whole != len(in) {
					t.Fatalf("end after %d of %d", whole, len(in))
				}
				break
			}
			frames = append(frames, slices.Clone(got))
			buf = got
		}
		var again []byte
		for _, b := range frames {
			again = Append(again, b)
		}
		if !bytes.HasPrefix(in, again) {
			t.Fatalf("% x is not the beginning of % x", again, in)
		}
	})
}

// pieces reads at most n bytes at once.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

// within fails the test if c does not happen soon in real time. It bounds a failure; no test waits for it.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}
