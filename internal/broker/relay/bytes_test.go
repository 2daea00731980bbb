package relay

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// response is a reply of about n bytes with maps in an order of its own and fields that nobody knows.
func response(t *testing.T, n int) []byte {
	t.Helper()
	hit := &summapb.SearchHit{Score: 1, Fields: map[string]*summapb.FieldValueList{}}
	for i := range 5 {
		hit.Fields[fmt.Sprintf("field%d", i)] = &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: strings.Repeat("t", n/20)}}}}
	}
	b, err := proto.Marshal(&summapb.SearchResponse{Hits: []*summapb.SearchHit{hit, hit}, TotalHits: 2})
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, padded(max(n-len(b)-8, 0))...)
	noise := rand.New(rand.NewPCG(1, 2))
	for i := len(b) - max(n-len(b), 0); i < len(b); i++ {
		b[i] = byte(noise.Uint32())
	}
	return b
}

// TestBytesPass has every compression of requests and replies with everything that a client may offer.
func TestBytesPass(t *testing.T) {
	type reply struct {
		encoding string
		message  []byte
	}
	var next reply
	var got struct {
		flag     byte
		encoding string
		message  []byte
	}
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got.flag, got.encoding, got.message = b[0], r.Header.Get("Grpc-Encoding"), b[5:]
		answer(w, next.encoding, next.message)
	})
	b := serving(t, at, grpcraw.Options{})
	client := dial(t, b.addr)
	sizes := []int{100, 10_000, 1 << 20}
	if !raceEnabled {
		sizes = append(sizes, 16<<20)
	}
	for _, size := range sizes {
		plain := response(t, size)
		for _, in := range []string{"", "gzip", "zstd"} {
			for _, out := range []string{"", "gzip", "zstd"} {
				for _, accept := range []string{"", "gzip", "zstd", "zstd,gzip", "deflate, gzip"} {
					name := fmt.Sprintf("%d bytes, request %q, reply %q, accept %q", size, in, out, accept)
					request := compress(t, in, named("x", padded(size/10)))
					next = reply{out, compress(t, out, plain)}
					r, data, err := ask(t, client, &grpcraw.Call{Encoding: in, Accept: accept, Message: framed(in != "", request)})
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if got.encoding != in || (got.flag == 1) != (in != "") || !bytes.Equal(got.message, request) {
						t.Errorf("%s: the node got another request", name)
					}
					passes := out == "" || strings.Contains(accept, out)
					switch {
					case passes && (!bytes.Equal(data, next.message) || r.Compressed != (out != "") || out != "" && r.Head.Encoding != out):
						t.Errorf("%s: the client got other bytes", name)
					case !passes && (!bytes.Equal(data, plain) || r.Compressed):
						t.Errorf("%s: the client got another message", name)
					}
				}
			}
		}
	}
}

// TestLongRepliesPass has replies of up to 200 MiB, of which no more than a window is held.
func TestLongRepliesPass(t *testing.T) {
	size := 200 << 20
	if raceEnabled {
		size = 24 << 20
	}
	var sum hash.Hash
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		encoding := r.Header.Get("Grpc-Accept-Encoding")
		ok(w)
		if encoding != "" {
			w.Header().Set("Grpc-Encoding", encoding)
		}
		out := io.MultiWriter(w, sum)
		out.Write(grpcmsg.Header(encoding != "", size))
		noise := rand.NewChaCha8([32]byte{1})
		io.CopyN(out, noise, int64(size))
		w.Header().Set("grpc-status", "0")
	})
	b := serving(t, at, grpcraw.Options{})
	client := dial(t, b.addr)
	for _, encoding := range []string{"", "gzip", "zstd"} {
		sum = sha256.New()
		s, err := client.Start(t.Context(), &grpcraw.Call{Method: search, Accept: encoding, Message: framed(false, named("x", nil))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Head(); err != nil {
			t.Fatal(err)
		}
		s.Expect(int64(size)+5, 1<<20)
		have, n := sha256.New(), 0
		for {
			q, err := s.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			for _, p := range q {
				have.Write(p.ReadOnlyData())
			}
			n += q.Len()
			q.Free()
		}
		if end := s.End(); n != size+5 || end.Code != codes.OK || !bytes.Equal(have.Sum(nil), sum.Sum(nil)) {
			t.Errorf("%q: %d bytes, %v", encoding, n, end)
		}
		s.Close()
	}
	soon(t, "all is given back", func() bool { return b.charged.Load() == 0 })
	if most := b.most.Load(); most > 2*replyWindow {
		t.Errorf("%d bytes were held", most)
	}
}

// TestLongRequestsPass sends one of 100 MiB.
func TestLongRequestsPass(t *testing.T) {
	size := 100 << 20
	if raceEnabled {
		size = 12 << 20
	}
	var sum []byte
	at := node(t, func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		io.Copy(h, r.Body)
		sum = h.Sum(nil)
		answer(w, "", []byte("x"))
	})
	b := serving(t, at, grpcraw.Options{})
	message := named("x", padded(size))
	_, _, err := ask(t, dial(t, b.addr), &grpcraw.Call{Method: "/summa.IndexService/BatchIndexDocuments", Message: framed(false, message)})
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	h.Write(grpcmsg.Header(false, len(message)))
	h.Write(message)
	if !bytes.Equal(h.Sum(nil), sum) {
		t.Error("the node got another request")
	}
}
