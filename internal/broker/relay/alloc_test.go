package relay

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
	"github.com/weft-search/weft/internal/wire/h2"
)

// frugal is one end of a connection of HTTP/2 that takes no memory for what it reads.
type frugal struct {
	net.Conn
	in   *bufio.Reader
	head [h2.FrameHeaderBytes]byte
	word [4]byte
}

// next reads a frame and throws away what is in it, but for the first bytes.
func (f *frugal) next() (kind, flags byte, id uint32, word uint32, n int, err error) {
	if _, err = io.ReadFull(f.in, f.head[:]); err != nil {
		return
	}
	n = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	k := min(n, len(f.word))
	if _, err = io.ReadFull(f.in, f.word[:k]); err == nil {
		_, err = f.in.Discard(n - k)
	}
	return f.head[3], f.head[4], binary.BigEndian.Uint32(f.head[5:]), binary.BigEndian.Uint32(f.word[:]), n, err
}

// greet makes a connection to a broker, which has all the windows that there are.
func greet(t *testing.T, at string) *frugal {
	t.Helper()
	nc, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	f := &frugal{Conn: nc, in: bufio.NewReaderSize(nc, 4<<10)}
	io.WriteString(nc, h2.Preface)
	settings := binary.BigEndian.AppendUint32([]byte{0, h2.SettingWindow}, h2.MaxWindow)
	nc.Write(append(h2.AppendFrame(nil, h2.Settings, 0, 0, len(settings)), settings...))
	nc.Write(h2.AppendWindow(nil, 0, 1<<30))
	return f
}

func asks(path string) []byte {
	return blockOf(":method", "POST", ":scheme", "http", ":path", path, ":authority", "x", "content-type", "application/grpc", "te", "trailers")
}

// open begins a call.
func (f *frugal) open(id uint32, path string) {
	f.Write(h2.AppendHeaders(nil, id, asks(path), false, h2.MaxFrame))
}

func blockOf(fields ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// frugalNode answers every call with the reply that *body is then.
func frugalNode(t *testing.T, body *[]byte) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	head := blockOf(":status", "200", "content-type", "application/grpc")
	tail := blockOf("grpc-status", "0")
	var wg sync.WaitGroup
	wg.Go(func() {
		nc, err := lis.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		f := &frugal{Conn: nc, in: bufio.NewReaderSize(nc, 4<<10)}
		if _, err := f.in.Discard(len(h2.Preface)); err != nil {
			return
		}
		out := h2.AppendFrame(make([]byte, 0, 1<<10), h2.Settings, 0, 0, 0)
		nc.Write(out)
		var left []byte
		var of uint32
		room := int64(h2.DefaultWindow) // of the connection
		var mine int64
		frame := make([]byte, 0, h2.MaxFrame+100)
		for {
			kind, flags, id, word, _, err := f.next()
			if err != nil {
				return
			}
			switch {
			case kind == h2.Settings && flags&h2.Ack == 0:
				nc.Write(h2.AppendFrame(out[:0], h2.Settings, h2.Ack, 0, 0))
			case kind == h2.Window && id == 0:
				room += int64(word)
			case kind == h2.Window && id == of:
				mine += int64(word)
			case kind == h2.Headers:
				of, left, mine = id, *body, h2.DefaultWindow
				nc.Write(h2.AppendHeaders(out[:0], id, head, false, h2.MaxFrame))
			}
			for len(left) > 0 && room > 0 && mine > 0 {
				n := min(int64(len(left)), room, mine, h2.MaxFrame)
				frame = append(h2.AppendFrame(frame[:0], h2.Data, 0, of, int(n)), left[:n]...)
				if left = left[n:]; len(left) == 0 {
					frame = h2.AppendHeaders(frame, of, tail, true, h2.MaxFrame)
				}
				if _, err := nc.Write(frame); err != nil {
					return
				}
				room -= n
				mine -= n
			}
		}
	})
	t.Cleanup(func() {
		lis.Close()
		wg.Wait()
	})
	return lis.Addr().String()
}

// TestAllocationsDoNotGrowWithTheReply has replies of 100 bytes to 64 MiB handed on with about the same number of allocations. A hundred for each
// MiB would be 6,400.
func TestAllocationsDoNotGrowWithTheReply(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates as well")
	}
	var body []byte
	b := serving(t, frugalNode(t, &body), grpcraw.Options{Conns: 1}, func(c *Config) {
		c.Limits.SearchEncode, c.Limits.BackendDecode = 100<<20, 100<<20
		route := c.Route
		c.Route = func(c *Call) (Target, error) {
			to, err := route(c)
			to.Done = nil
			return to, err
		}
	})
	f := greet(t, b.addr)
	head := asks(search)
	request := framed(false, named("x", nil)).Materialize()
	out := make([]byte, 0, 1<<10)
	id := uint32(1)
	owed := 0
	call := func() {
		out = h2.AppendHeaders(out[:0], id, head, false, h2.MaxFrame)
		out = append(h2.AppendFrame(out, h2.Data, h2.EndStream, id, len(request)), request...)
		if owed > 0 {
			out = h2.AppendWindow(out, 0, int64(owed))
			owed = 0
		}
		f.Write(out)
		got := 0
		for {
			kind, flags, of, _, n, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			if kind == h2.Data && of == id {
				got += n
			}
			if kind == h2.Headers && flags&h2.EndStream != 0 {
				break
			}
		}
		if got != len(body) {
			t.Fatalf("%d bytes came, want %d", got, len(body))
		}
		owed += got
		id += 2
	}
	each := func(size, calls int) float64 {
		body = append(grpcmsg.Header(false, size), make([]byte, size)...)
		call()
		call()
		runtime.GC()
		// It would take what is in pools.
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			call()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(calls)
	}
	short := each(100, 1000)
	// Windows, and the pieces of queues that grow to their bounds.
	const more = 80
	for _, c := range []struct{ size, calls int }{{10_000, 1000}, {100_000, 200}, {1 << 20, 100}, {4 << 20, 40}, {16 << 20, 10}, {64 << 20, 6}} {
		n := each(c.size, c.calls)
		t.Logf("%d bytes: %.1f allocations", c.size, n)
		if n > short+more {
			t.Errorf("%d bytes: %.1f allocations, and %.1f for a short reply", c.size, n, short)
		}
	}
}
