package brokertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/cli/proctest"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

const searchPath = "/summa.SearchService/Search"

// prefix is what stands in front of a message.
func prefix(compressed bool, n int) []byte {
	b := make([]byte, grpcraw.PrefixBytes)
	if compressed {
		b[0] = 1
	}
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	return b
}

// scripted is a node whose every byte is said: an HTTP server that knows nothing of gRPC but how to tell that it has the index x.
func scripted(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	indexes, err := proto.Marshal(&summapb.ListIndexesResponse{IndexNames: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if strings.HasSuffix(r.URL.Path, "/ListIndexes") {
			w.Write(append(prefix(false, len(indexes)), indexes...))
			w.Header().Set("Grpc-Status", "0")
			return
		}
		serve(w, r)
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
	})
	return lis.Addr().String()
}

// plain is the program as it is delivered, by the name of a Summa broker.
func plain(t *testing.T) string {
	t.Helper()
	bin, err := proctest.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "summa-broker")
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// plainBroker starts a broker as it is delivered before a scripted node, and returns it and a client whose every byte is said.
func plainBroker(t *testing.T, node string, flags ...string) (*broker, *grpcraw.Node) {
	t.Helper()
	args := append([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--discovery", "static", "--backend", "id=a,addr=" + node + ",shard=0"}, flags...)
	p := process(t, 2, exec.Command(plain(t), args...))
	b := &broker{p, dial(t, p.Listening["summa"])}
	b.becomes(t, "a", "healthy")
	c := grpcraw.NewNode(p.Listening["summa"], grpcraw.Options{})
	t.Cleanup(c.Close)
	return b, c
}

// question is a search of x with a field that nobody knows.
func question() mem.BufferSlice {
	b := []byte("\x0a\x01x\xc2\x3e\x03any")
	return mem.BufferSlice{mem.SliceBuffer(prefix(false, len(b))), mem.SliceBuffer(b)}
}

// reply is a search's reply of about n bytes with maps and with fields that nobody knows.
func reply(t *testing.T, n int) []byte {
	t.Helper()
	hit := &summapb.SearchHit{Score: 1, Fields: map[string]*summapb.FieldValueList{}}
	for i := range 7 {
		hit.Fields[fmt.Sprint("f", i)] = &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_U64{U64: uint64(i)}}}}
	}
	b, err := proto.MarshalOptions{}.Marshal(&summapb.SearchResponse{Hits: []*summapb.SearchHit{hit}, TotalHits: 1})
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, max(n-len(b)-10, 1))
	source := rand.NewChaCha8([32]byte{byte(n)})
	source.Read(noise[:len(noise)/2]) //nolint:errcheck // it never fails; the other half can be compressed
	b = slices.Grow(b, len(noise)+20)
	b = binary.AppendUvarint(b, 1000<<3|2)
	b = binary.AppendUvarint(b, uint64(len(noise)))
	return append(b, noise...)
}

func packed(t *testing.T, encoding string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	out.Grow(len(b)) // a third of it can be taken away, about
	var w io.WriteCloser
	switch encoding {
	case "":
		return b
	case "gzip":
		z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	case "zstd":
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// memory is the most that a process has taken so far, in bytes; 0 where the system does not tell.
func memory(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 && err == nil {
			return kb << 10
		}
	}
	return 0
}

// TestRepliesPassToTheByte sends replies of 100 bytes to 200 MiB, plain, gzip and zstd, through a broker as it is delivered. It holds no more
// than a window of each.
func TestRepliesPassToTheByte(t *testing.T) {
	if _, err := proctest.BuildPlain(); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	sizes := []int{100, 10_000, 1 << 20, 200 << 20}
	if testing.Short() {
		sizes = sizes[:3]
	}
	var said atomic.Pointer[[]byte]
	node := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		now := *said.Load()
		encoding := r.Header.Get("Grpc-Accept-Encoding") // one, or none
		if encoding != "" {
			w.Header().Set("Grpc-Encoding", encoding)
		}
		w.Write(prefix(encoding != "", len(now)))
		w.Write(now)
		w.Header().Set("Grpc-Status", "0")
	})
	b, client := plainBroker(t, node)
	for _, size := range sizes {
		message := reply(t, size)
		for _, encoding := range []string{"", "gzip", "zstd"} {
			now := packed(t, encoding, message)
			said.Store(&now)
			s, err := client.Start(t.Context(), &grpcraw.Call{Method: searchPath, Accept: encoding, Message: question()})
			if err != nil {
				t.Fatal(err)
			}
			head, err := s.Head()
			if err != nil || head.Encoding != encoding {
				t.Fatalf("%d bytes, %q: %+v, %v", size, encoding, head, err)
			}
			s.Expect(int64(len(now)+grpcraw.PrefixBytes), 1<<20)
			got, n := sha256.New(), 0
			for {
				q, err := s.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%d bytes, %q: %v", size, encoding, err)
				}
				for _, piece := range q {
					got.Write(piece.ReadOnlyData())
				}
				n += q.Len()
				q.Free()
			}
			if err := s.End().Err(); err != nil {
				t.Errorf("%d bytes, %q: %v", size, encoding, err)
			}
			s.Close()
			want := sha256.New()
			want.Write(prefix(encoding != "", len(now)))
			want.Write(now)
			if n != len(now)+grpcraw.PrefixBytes || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				t.Errorf("%d bytes, %q: other bytes came, %d of %d", size, encoding, n, len(now))
			}
		}
	}
	if most := memory(t, b.Cmd.Process.Pid); most > 128<<20 {
		t.Errorf("the broker took %d MiB", most>>20)
	} else {
		t.Logf("the broker took %d MiB at most", most>>20)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestTimesCancelsAndMetadataPass has what is told beside messages: the time that is left, that the caller has gone, headers, trailers and
// details of a status.
func TestTimesCancelsAndMetadataPass(t *testing.T) {
	times := make(chan string, 1)
	gone := make(chan struct{})
	var how atomic.Value
	how.Store("answer")
	node := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch how.Load() {
		case "answer":
			times <- r.Header.Get("Grpc-Timeout")
			if r.Header.Get("X-Secret") != "" {
				t.Error("a header of the caller came through")
			}
			w.Header().Set("Trailer", "Grpc-Status, X-Tail, X-Tail-Bin")
			w.Header().Set("X-Head", "head")
			w.Write(prefix(false, 0))
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set("X-Tail", "tail")
			w.Header().Set("X-Tail-Bin", "AQID")
		case "refuse":
			w.Header().Set("Trailer", "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("Grpc-Status", "9")
			w.Header().Set("Grpc-Message", "not%20now: %E2%82%AC")
			w.Header().Set("Grpc-Status-Details-Bin", "CAkSB25vdCBub3c")
		case "wait":
			times <- r.Header.Get("Grpc-Timeout")
			<-r.Context().Done()
			close(gone)
		}
	})
	b, client := plainBroker(t, node)
	ask := func(ctx context.Context, timeout time.Duration) (*grpcraw.Reply, error) {
		return client.Do(ctx, &grpcraw.Call{Method: searchPath, Timeout: timeout, Message: question()}, 1<<20, nil)
	}
	for _, c := range []struct {
		given, least, most time.Duration
	}{
		{0, 0, 0},
		{30 * time.Second, 20 * time.Second, 29950 * time.Millisecond},
		{24 * time.Hour, 23 * time.Hour, 24*time.Hour - 50*time.Millisecond},
	} {
		r, err := ask(t.Context(), c.given)
		if err != nil || r.End.Err() != nil {
			t.Fatalf("%v: %v, %+v", c.given, err, r)
		}
		got := <-times
		if c.given == 0 {
			if got != "" {
				t.Errorf("no time was given, and the node got %q", got)
			}
			continue
		}
		if left, err := grpcraw.ParseTimeout(got); err != nil || left < c.least || left > c.most {
			t.Errorf("of %v the node got %q", c.given, got)
		}
		if r.Head.Meta.Get("x-head")[0] != "head" || r.End.Meta.Get("x-tail")[0] != "tail" || r.End.Meta.Get("x-tail-bin")[0] != "\x01\x02\x03" {
			t.Errorf("headers %v, trailers %v", r.Head.Meta, r.End.Meta)
		}
	}
	how.Store("refuse")
	r, err := ask(t.Context(), 0)
	if err != nil || r.End.Code != codes.FailedPrecondition || r.End.Message != "not now: €" || r.End.Details != "\x08\x09\x12\x07not now" {
		t.Errorf("a refusal with details: %+v, %v", r, err)
	}
	how.Store("wait")
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := ask(ctx, 0)
		ended <- err
	}()
	if got := <-times; got != "" {
		t.Errorf("no time was given, and the node got %q", got)
	}
	leave()
	<-gone
	if err := <-ended; status.Code(err) == codes.OK {
		t.Error("a call that was given up was answered")
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestNodesThatTakeNoCompression has two copies that refuse zstd, as they say with the list of what they take. A caller that sends zstd is
// answered all the same, however reads are balanced.
func TestNodesThatTakeNoCompression(t *testing.T) {
	refusals := make(chan string, 100)
	serve := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Grpc-Accept-Encoding", "identity,gzip")
		message, err := io.ReadAll(r.Body)
		if encoding := r.Header.Get("Grpc-Encoding"); encoding == "zstd" {
			refusals <- r.Host
			w.Header().Set("Grpc-Status", "12")
			return
		}
		if want := question().Materialize(); err != nil || !bytes.Equal(message, want) {
			t.Errorf("a node got %x, %v", message, err)
		}
		w.Write(prefix(false, 0))
		w.Header().Set("Grpc-Status", "0")
	}
	nodes := []string{scripted(t, serve), scripted(t, serve)}
	message := packed(t, "zstd", question().Materialize()[grpcraw.PrefixBytes:])
	for _, flags := range [][]string{nil, {"--adaptive-reads"}} {
		b, client := plainBroker(t, nodes[0], append([]string{"--backend", "id=b,addr=" + nodes[1] + ",shard=0"}, flags...)...)
		b.becomes(t, "b", "healthy")
		for i := range 20 {
			r, err := client.Do(t.Context(), &grpcraw.Call{
				Method: searchPath, Encoding: "zstd", Message: mem.BufferSlice{mem.SliceBuffer(prefix(true, len(message))), mem.SliceBuffer(message)},
			}, 1<<20, nil)
			if err != nil || r.End.Err() != nil {
				t.Fatalf("%v, call %d: %v, %+v", flags, i, err, r.End)
			}
		}
		if n := len(refusals); n > 2 {
			t.Errorf("%v: nodes were asked %d times for what they do not take", flags, n)
		}
		for len(refusals) > 0 {
			<-refusals
		}
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}
}
