package summanode

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/weft-search/weft/internal/obs"
)

// TestTransportSettings reads what a server says of itself on a connection: its windows, how many streams it takes, when it pings, and how long
// it waits for the answer.
func TestTransportSettings(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Host: &emptyHost{limit: 1 << 30}, Limits: Limits{}.WithDefaults(2), Log: slog.New(slog.DiscardHandler), Metrics: obs.NewMetrics("test")})
			lis := bufconn.Listen(64 << 10)
			b := s.Binding("")
			if b.KeepAlive != time.Minute {
				t.Errorf("TCP asks silent clients after %v", b.KeepAlive)
			}
			l := b.Server(lis)
			done := make(chan error, 1)
			go func() { done <- l.Serve() }()
			conn, err := lis.Dial()
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
				t.Fatal(err)
			}
			settings := map[uint16]uint32{}
			window := uint32(65_535) // of a connection, RFC 9113, section 6.9.2
			var pings []time.Duration
			for len(pings) < 3 {
				var h [9]byte
				if _, err := io.ReadFull(conn, h[:]); err != nil {
					break
				}
				b := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
				if _, err := io.ReadFull(conn, b); err != nil {
					break
				}
				switch h[3] {
				case 4:
					for i := 0; i+6 <= len(b); i += 6 {
						settings[binary.BigEndian.Uint16(b[i:])] = binary.BigEndian.Uint32(b[i+2:])
					}
				case 8:
					if binary.BigEndian.Uint32(h[5:]) == 0 {
						window += binary.BigEndian.Uint32(b)
					}
				case 6:
					pings = append(pings, time.Since(began))
					if answers {
						if _, err := conn.Write(append([]byte{0, 0, 8, 6, 1, 0, 0, 0, 0}, b...)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			const mostStreams, streamWindow, mostHeaders = 3, 4, 6
			if settings[mostStreams] != 256 || settings[streamWindow] != 2<<20 || window != 4<<20 || settings[mostHeaders] != 16<<10 {
				t.Errorf("settings %v, window %d", settings, window)
			}
			switch {
			case answers && (len(pings) != 3 || pings[0] != 30*time.Second || pings[1] != 60*time.Second):
				t.Errorf("pings at %v", pings)
			case !answers && (len(pings) != 1 || pings[0] != 30*time.Second || time.Since(began) != 40*time.Second):
				t.Errorf("pings at %v, closed after %v", pings, time.Since(began))
			}
			if err := errors.Join(l.Close(), conn.Close()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil && !errors.Is(err, l.Closed) {
				t.Error(err)
			}
		})
	}
}
