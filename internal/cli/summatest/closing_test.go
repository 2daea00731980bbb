package summatest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/cli/proctest"
)

// startWithHTTP is start of a node that serves HTTP as well, for its metrics.
func startWithHTTP(t *testing.T, dir string, flags ...string) *started {
	t.Helper()
	p, err := proctest.Start(2, append([]string{"node", "--summa", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir", dir}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return connected(t, p)
}

// metric waits until the page of metrics has a line.
func (s *started) metric(t *testing.T, line string) {
	t.Helper()
	for t.Context().Err() == nil {
		resp, err := http.Get("http://" + s.Listening["http"] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(page), "\n"+line+"\n") {
			return
		}
	}
	t.Fatalf("the metrics never had %s", line)
}

// terminate ends the process and returns how long that took. Its exit code tells whether calls had to be cut off.
func (s *started) terminate(t *testing.T) (took time.Duration, cutOff bool) {
	t.Helper()
	began := time.Now()
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.Exited
	if said := s.Stderr.String(); strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") {
		t.Fatalf("%v\n%s", s.Err, said)
	}
	return time.Since(began), s.Err != nil
}

// dial connects to the node by hand, and speaks the beginning of HTTP/2. With window 0 the node may send nothing of a reply.
func (s *started) dial(t *testing.T) (send func(kind, flags byte, stream uint32, b []byte)) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listening["summa"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	var mu sync.Mutex
	send = func(kind, flags byte, stream uint32, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		h := []byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b)), kind, flags}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(h, stream), b...)); err != nil {
			t.Log(err) // the node ends at some time
		}
	}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	send(4, 0, 0, []byte{0, 4, 0, 0, 0, 0})
	acked := make(chan struct{})
	go func() {
		for {
			var h [9]byte
			if _, err := io.ReadFull(conn, h[:]); err != nil {
				return
			}
			b := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
			switch {
			case h[3] == 4 && h[4] == 1: // our settings were taken
				close(acked)
			case h[3] == 6 && h[4] == 0: // a ping
				send(6, 1, 0, b)
			}
		}
	}()
	<-acked
	return send
}

// headers are those of a call.
func headers(path string) (b []byte) {
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "node"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		b = append(b, 0, byte(len(f[0])))
		b = append(append(b, f[0]...), byte(len(f[1])))
		b = append(b, f[1]...)
	}
	return b
}

// TestStagedWritesAreCommittedAtTheEnd ends a node in good order while one caller does not do its part: what is staged shows at the next
// start, and the node does not wait for what never comes.
func TestStagedWritesAreCommittedAtTheEnd(t *testing.T) {
	const drain, soon = 15 * time.Second, 12 * time.Second // half a message has five
	for _, c := range []struct {
		name, seen string
		play       func(send func(kind, flags byte, stream uint32, b []byte))
		most       time.Duration
		cutOff     bool
	}{
		{name: "nobody", most: soon},
		{name: "a call without a message", seen: `weft_summa_calls_in_flight{call="Commit"} 1`, play: func(send func(byte, byte, uint32, []byte)) {
			send(1, 4, 1, headers("/summa.IndexService/Commit"))
		}, most: soon},
		{name: "a stream without a message", seen: `weft_summa_calls_in_flight{call="IndexDocuments"} 1`, play: func(send func(byte, byte, uint32, []byte)) {
			send(1, 4, 1, headers("/summa.IndexService/IndexDocuments"))
		}, most: soon},
		{name: "half a batch", seen: `weft_summa_calls_in_flight{call="BatchIndexDocuments"} 1`, play: func(send func(byte, byte, uint32, []byte)) {
			send(1, 4, 1, headers("/summa.IndexService/BatchIndexDocuments"))
			send(0, 0, 1, append([]byte{0, 0, 0x10, 0, 0}, make([]byte, 4000)...))
		}, most: soon},
		{name: "a reply that nobody reads", seen: `weft_summa_calls_total{call="ListIndexes",code="ok"} 1`, play: func(send func(byte, byte, uint32, []byte)) {
			send(1, 4, 1, headers("/summa.IndexService/ListIndexes"))
			send(0, 1, 1, []byte{0, 0, 0, 0, 0})
		}, most: 2 * drain, cutOff: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := startWithHTTP(t, dir, "--drain-timeout", drain.String())
			s.make(t)
			s.batch(t, 0, 300, "staged")
			if c.play != nil {
				c.play(s.dial(t))
				s.metric(t, c.seen)
			}
			took, cutOff := s.terminate(t)
			if took > c.most || cutOff != c.cutOff {
				t.Errorf("it took %v, at most %v; cut off %t\n%s", took, c.most, cutOff, s.Stderr)
			}
			again := start(t, dir)
			if n := again.total(t); n != 300 {
				t.Errorf("%d documents show, want 300", n)
			}
			if err := again.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCallersLearnOfTheEnd has a call without a message when the node ends: its caller is told why it ends.
func TestCallersLearnOfTheEnd(t *testing.T) {
	s := startWithHTTP(t, t.TempDir())
	conn, err := grpc.NewClient(s.Listening["summa"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	st, err := conn.NewStream(context.WithoutCancel(t.Context()), &grpc.StreamDesc{ClientStreams: true}, "/summa.SearchService/Search")
	if err != nil {
		t.Fatal(err)
	}
	s.metric(t, `weft_summa_calls_in_flight{call="Search"} 1`)
	if _, cutOff := s.terminate(t); cutOff {
		t.Errorf("%v", s.Err)
	}
	if err := st.RecvMsg(&summapb.SearchResponse{}); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "Summa server is shutting down" {
		t.Error(err)
	}
}
