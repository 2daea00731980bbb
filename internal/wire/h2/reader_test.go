package h2

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
)

// log is a sink that writes down what it is told.
type log struct {
	r    *Reader
	said []string
	data []byte
	id   uint32
	keep mem.BufferSlice // what it was given, to the end
}

func (l *log) add(format string, a ...any) { l.said = append(l.said, fmt.Sprintf(format, a...)) }

func (l *log) DataBegins(id uint32, n, pad int) error {
	l.body()
	l.add("data of %d: %d, %d of it padding", id, n, pad)
	l.id = id
	return nil
}

func (l *log) Data(id uint32, n int) error {
	if id != l.id {
		return errors.New("data of another stream")
	}
	b := l.r.Take(n)
	l.data = append(l.data, b.ReadOnlyData()...)
	l.keep = append(l.keep, b)
	return nil
}

// body is what has come of a frame.
func (l *log) body() {
	if len(l.data) > 0 {
		l.add("%x", l.data)
		l.data = nil
	}
}

func (l *log) DataEnds(id uint32) error {
	l.body()
	l.add("end of %d", id)
	return nil
}

func (l *log) HeadersBegin(id uint32, endStream bool) error {
	l.body()
	l.add("headers of %d, %v", id, endStream)
	return nil
}

func (l *log) Field(f hpack.HeaderField) { l.add("%q: %q", f.Name, f.Value) }

func (l *log) Headers(id uint32, endStream bool) error {
	l.add("end of headers of %d, %v", id, endStream)
	return nil
}

func (l *log) Frame(kind, flags byte, id uint32, p []byte) error {
	l.body()
	if kind == Window {
		// The first bit means nothing, and x/net takes it off.
		p = append([]byte{p[0] & 0x7f}, p[1:]...)
	}
	l.add("%d, %d, %d: %x", kind, flags, id, p)
	return nil
}

// conn reads bytes some at a time.
type conn struct {
	net.Conn
	b    []byte
	most int
}

func (c *conn) Read(b []byte) (int, error) {
	n := copy(b, c.b[:min(len(c.b), c.most)])
	c.b = c.b[n:]
	return n, nil
}

// parse reads all of b, most bytes at a time.
func parse(b []byte, most int, preface bool) (said []string, err error) {
	l := &log{}
	var r Reader
	l.r = &r
	r.Init(&conn{b: b, most: most}, nil, l, ReaderOptions{Preface: preface, MaxBlock: 1 << 10, MaxString: 1 << 10, Pinned: 8})
	for err == nil {
		var n int
		if n, err = r.Read(); n == 0 {
			break
		}
		err = r.Parse()
	}
	if r.body.on {
		// Of a frame that is not whole as much is told as is of use.
		l.data = nil
	}
	r.Close()
	l.keep.Free()
	l.body()
	if err != nil {
		l.add("%v", err)
	}
	return l.said, err
}

// FuzzReader reads the same of bytes however they are cut, and what x/net/http2 reads where both take them.
func FuzzReader(f *testing.F) {
	settings := AppendFrame(nil, Settings, 0, 0, 0)
	with := func(more ...[]byte) []byte { return bytes.Join(append([][]byte{settings}, more...), nil) }
	frame := func(kind, flags byte, id uint32, p ...byte) []byte {
		return append(AppendFrame(nil, kind, flags, id, len(p)), p...)
	}
	f.Add(with(frame(Data, EndStream, 1, 1, 2, 3), frame(Data, Padded, 3, 2, 1, 0, 0)), uint8(1))
	f.Add(with(frame(Headers, EndHeaders|EndStream, 1, 0x88), frame(Headers, 0, 3, 0x40, 1, 'a'), frame(Continuation, EndHeaders, 3, 1, 'b')), uint8(3))
	f.Add(with(frame(Headers, Padded|WithPriority|EndHeaders, 1, 1, 0, 0, 0, 0, 9, 0x88, 0)), uint8(2))
	f.Add(with(frame(Ping, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8), AppendWindow(nil, 0, 5), AppendReset(nil, 1, 8), AppendGoAway(nil, 7, 1)), uint8(4))
	f.Add(with(frame(Settings, 0, 0, 0, 4, 0, 0, 0, 9), frame(0x77, 1, 2, 3)), uint8(9))
	f.Add(with(make([]byte, 5000)), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, most uint8) {
		whole, err := parse(b, len(b)+1, false)
		cut, _ := parse(b, int(most)+1, false)
		if strings.Join(whole, "\n") != strings.Join(cut, "\n") {
			t.Fatalf("as a whole:\n%s\nand cut:\n%s", strings.Join(whole, "\n"), strings.Join(cut, "\n"))
		}
		if err == nil {
			same(t, b, whole)
		}
	})
}

// same reads bytes as x/net/http2 does.
func same(t *testing.T, b []byte, said []string) {
	l := &log{}
	dec := hpack.NewDecoder(4096, l.Field)
	fr := http2.NewFramer(nil, bytes.NewReader(b))
	ended := false
	var frags []byte
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			break
		}
		h := f.Header()
		switch f := f.(type) {
		case *http2.DataFrame:
			l.DataBegins(h.StreamID, int(h.Length), int(h.Length)-len(f.Data()))
			l.data = append(l.data, f.Data()...)
			if f.StreamEnded() {
				l.DataEnds(h.StreamID)
			}
		case *http2.HeadersFrame:
			ended = f.StreamEnded()
			l.HeadersBegin(h.StreamID, ended)
			frags = append(frags, f.HeaderBlockFragment()...)
			if f.HeadersEnded() {
				dec.Write(frags)
				frags = nil
				l.Headers(h.StreamID, ended)
			}
		case *http2.ContinuationFrame:
			frags = append(frags, f.HeaderBlockFragment()...)
			if f.HeadersEnded() {
				dec.Write(frags)
				frags = nil
				l.Headers(h.StreamID, ended)
			}
		case *http2.WindowUpdateFrame:
			l.Frame(Window, byte(h.Flags), h.StreamID, word(f.Increment))
		case *http2.RSTStreamFrame:
			l.Frame(Reset, byte(h.Flags), h.StreamID, word(uint32(f.ErrCode)))
		case *http2.PingFrame:
			l.Frame(Ping, byte(h.Flags), h.StreamID, f.Data[:])
		}
	}
	l.body()
	// Kinds that tell nothing, and those whose contents x/net has taken apart.
	ours := func(s string) bool { return !strings.HasPrefix(s, "4, ") && !strings.HasPrefix(s, "7, ") }
	var want []string
	for _, s := range said {
		if ours(s) {
			want = append(want, s)
		}
	}
	// It stops where a frame is cut, of which we tell as far as it goes, and where it finds what a Reader leaves to its sink.
	for i, s := range l.said {
		if i >= len(want) || want[i] != s {
			t.Fatalf("x/net reads:\n%s\nand a Reader:\n%s", strings.Join(l.said, "\n"), strings.Join(want, "\n"))
		}
	}
}

func word(n uint32) []byte { return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }

// TestPreface has a client's first bytes in all pieces.
func TestPreface(t *testing.T) {
	good := append([]byte(Preface), AppendFrame(nil, Settings, 0, 0, 0)...)
	for most := 1; most <= len(good); most++ {
		if said, err := parse(good, most, true); err != nil || len(said) != 1 {
			t.Errorf("%d at a time: %v, %v", most, said, err)
		}
	}
	for i := range good[:len(Preface)] {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		var b *Broken
		if said, err := parse(bad, 5, true); !errors.As(err, &b) || b.Code != CodeProtocol || len(said) != 1 {
			t.Errorf("byte %d: %v, %v", i, said, err)
		}
	}
}

// TestPiecesKeepLittle has pieces of a message that are handed out of the chunk or copied, and bytes that stay as they were when more is read.
func TestPiecesKeepLittle(t *testing.T) {
	b := AppendFrame(nil, Settings, 0, 0, 0)
	var want []byte
	for i := range 200 {
		n := 1 + i*83
		if n > MaxFrame {
			n = MaxFrame
		}
		p := bytes.Repeat([]byte{byte(i)}, n)
		want = append(want, p...)
		b = append(AppendFrame(b, Data, 0, 1, n), p...)
	}
	l := &log{}
	var r Reader
	l.r = &r
	r.Init(&conn{b: b, most: 100_000}, nil, l, ReaderOptions{MaxBlock: 1, MaxString: 1, Pinned: 8})
	for {
		n, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if err := r.Parse(); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	if !bytes.Equal(l.keep.Materialize(), want) {
		t.Error("bytes that were handed out have changed")
	}
	l.keep.Free()
}
