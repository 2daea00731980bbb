package summanode

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/weft-search/weft/internal/obs"
)

// deaf is a client that speaks HTTP/2 by hand: it reads what comes and answers pings, and opens windows only when it is told to.
type deaf struct {
	t     testing.TB
	conn  net.Conn
	mu    sync.Mutex // of writing
	next  uint32
	takes string                     // compressors
	got   func(stream uint32, n int) // told of each piece of a message; may be nil
	gone  chan struct{}              // closed when the server has closed the connection
}

// deafDial connects. The server may send window bytes on each stream.
func deafDial(t testing.TB, lis *bufconn.Listener, window uint32, got func(d *deaf, stream uint32, n int)) *deaf {
	t.Helper()
	conn, err := lis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{t: t, conn: conn, next: 1, gone: make(chan struct{})}
	if got != nil {
		d.got = func(stream uint32, n int) { got(d, stream, n) }
	}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	d.frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window))
	go d.read()
	return d
}

func (d *deaf) read() {
	defer close(d.gone)
	for {
		var h [9]byte
		if _, err := io.ReadFull(d.conn, h[:]); err != nil {
			return
		}
		b := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(d.conn, b); err != nil {
			return
		}
		switch {
		case h[3] == 6 && h[4] == 0:
			d.frame(6, 1, 0, b)
		case h[3] == 0 && d.got != nil:
			d.got(binary.BigEndian.Uint32(h[5:]), len(b))
		}
	}
}

func (d *deaf) frame(kind, flags byte, stream uint32, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := []byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b)), kind, flags}
	if _, err := d.conn.Write(append(binary.BigEndian.AppendUint32(h, stream), b...)); err != nil {
		d.t.Log(err) // the test says what should have happened to the connection
	}
}

// call sends a whole call, with a message of those bytes.
func (d *deaf) call(path string, message ...byte) (stream uint32) {
	stream = d.begin(path)
	d.frame(0, 1, stream, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
	return stream
}

// begin sends the beginning of a call, without a message.
func (d *deaf) begin(path string) (stream uint32) {
	var b []byte
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "node"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"grpc-accept-encoding", d.takes},
	} {
		b = append(b, 0, byte(len(f[0])))
		b = append(append(b, f[0]...), byte(len(f[1])))
		b = append(b, f[1]...)
	}
	stream = d.next
	d.next += 2
	d.frame(1, 4, stream, b)
	return stream
}

// open opens the windows of the connection and of a stream.
func (d *deaf) open(stream uint32, n int) {
	w := binary.BigEndian.AppendUint32(nil, uint32(n))
	d.frame(8, 0, 0, w)
	d.frame(8, 0, stream, w)
}

// TestRepliesThatNobodyTakes has clients that answer pings and do not take what they asked for: their connections end, with the memory of
// the replies. Those that take it slowly, give it up, or wait for something that may take long, keep theirs.
func TestRepliesThatNobodyTakes(t *testing.T) {
	const list, watch = "/summa.IndexService/ListIndexes", "/grpc.health.v1.Health/Watch"
	short, long := []string{"a"}, slices.Repeat([]string{strings.Repeat("n", 250)}, 32<<10)
	mixed := slices.Clone(long)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range mixed {
		b := make([]byte, 250)
		for k := range b {
			b[k] = 'a' + byte(rng.IntN(26))
		}
		mixed[i] = string(b)
	}
	for _, c := range []struct {
		name   string
		names  []string
		window uint32
		got    func(d *deaf, stream uint32, n int)
		play   func(d *deaf)
		cut    time.Duration // 0: not at all
	}{
		{name: "long replies", names: long, window: 1 << 16, play: func(d *deaf) {
			for range 3 {
				d.call(list)
			}
		}, cut: time.Minute},
		{name: "compressed replies", names: mixed, window: 1 << 16, play: func(d *deaf) {
			d.takes = "zstd"
			d.call(list)
			d.call(list)
		}, cut: time.Minute},
		{name: "short replies without any window", names: short, play: func(d *deaf) { d.call(list) }, cut: time.Minute},
		{name: "a short reply", names: short, window: 1000, play: func(d *deaf) { d.call(list) }},
		{name: "an error", names: short, play: func(d *deaf) { d.call("/summa.IndexService/Commit") }},
		{
			name: "a long reply that is taken slowly", names: long, window: 1 << 16,
			got: func(d *deaf, stream uint32, n int) {
				<-time.After(time.Duration(n) * time.Second / (100 << 10))
				d.open(stream, n)
			},
			play: func(d *deaf) { d.call(list) },
		},
		{name: "long replies that are given up", names: long, window: 1 << 16, play: func(d *deaf) {
			for range 3 {
				stream := d.call(list)
				synctest.Wait()
				d.frame(3, 0, stream, []byte{0, 0, 0, 8})
			}
		}},
		{name: "long replies of a client that hangs up", names: long, window: 1 << 16, play: func(d *deaf) {
			d.call(list)
			d.call(list)
			synctest.Wait()
			if err := d.conn.Close(); err != nil {
				d.t.Error(err)
			}
		}, cut: time.Nanosecond},
		{name: "pings without end", names: short, window: 1 << 16, play: func(d *deaf) {
			for range 200 {
				d.frame(6, 0, 0, make([]byte, 8))
				<-time.After(time.Millisecond)
			}
			d.call(list)
		}},
		{name: "a stream of health", window: 1 << 16, play: func(d *deaf) { d.call(watch) }},
		{name: "a reply beside a stream of health", names: long, window: 1 << 16, play: func(d *deaf) {
			d.call(watch)
			d.call(list)
		}, cut: time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &emptyHost{names: c.names, limit: 1 << 30}
				s := New(Config{Host: h, Limits: Limits{}.WithDefaults(2), Log: slog.New(slog.DiscardHandler), Metrics: obs.NewMetrics("test")})
				lis := bufconn.Listen(64 << 10)
				l := s.Binding("").Server(lis)
				done := make(chan error, 1)
				go func() { done <- l.Serve() }()
				d := deafDial(t, lis, c.window, c.got)
				began := time.Now()
				c.play(d)
				synctest.Wait()
				if c.cut >= time.Minute && len(c.names) > 1 && s.replies.Held() < 4<<20 {
					t.Errorf("%d bytes are held", s.replies.Held())
				}
				select {
				case <-d.gone:
					if took := time.Since(began); c.cut == 0 || took < c.cut && c.cut >= time.Minute || took > c.cut+2*time.Second {
						t.Errorf("cut off after %v, want %v", took, c.cut)
					}
				case <-time.After(10 * time.Minute):
					if c.cut > 0 {
						t.Error("not cut off")
					}
				}
				synctest.Wait()
				if n := s.replies.Held(); c.cut > 0 && n != 0 {
					t.Errorf("%d bytes are still held", n)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := l.Shutdown(ctx); err != nil && c.cut > 0 {
					t.Errorf("shutdown: %v", err)
				}
				if err := errors.Join(l.Close(), d.conn.Close()); err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil && !errors.Is(err, l.Closed) {
					t.Error(err)
				}
				<-d.gone
				synctest.Wait()
				if n := s.replies.Held(); n != 0 {
					t.Errorf("%d bytes are held at the end", n)
				}
			})
		})
	}
}
