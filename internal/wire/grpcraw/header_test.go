package grpcraw

import (
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/weft-search/weft/internal/wire/h2"
)

// TestBinaryHeadersPutTogether are those of one name whose values something on the way has put into one, with and without padding.
func TestBinaryHeadersPutTogether(t *testing.T) {
	var b block
	for _, f := range []hpack.HeaderField{{Name: "x-bin", Value: "AP8=,AQ, Ag=="}, {Name: "x-bin", Value: ""}, {Name: "y", Value: "a,b"}} {
		b.take(f)
	}
	if want := (metadata.MD{"x-bin": {"\x00\xff", "\x01", "\x02", ""}, "y": {"a,b"}}); b.bad != "" || !reflect.DeepEqual(b.head.Meta, want) {
		t.Errorf("%q, %q", b.head.Meta, b.bad)
	}
	if b.take(hpack.HeaderField{Name: "x-bin", Value: strings.Repeat(",", 4000)}); b.bad == "" || len(b.head.Meta["x-bin"]) != 4 {
		t.Errorf("values without number are taken: %q", b.bad)
	}
	b = block{}
	if b.take(hpack.HeaderField{Name: "x-bin", Value: "AQ,?"}); b.bad == "" {
		t.Error("a damaged one is taken")
	}
}

// TestShortFramesHoldLittle has a reply in frames of any length that nobody reads: what waits takes about what it is long, and is what came.
func TestShortFramesHoldLittle(t *testing.T) {
	s := &stream{window: 1 << 20}
	var want []byte
	for i := 0; len(want) < 100_000; i++ {
		n := 1
		if i%1000 == 999 {
			n = h2.MaxFrame
		}
		b := make([]byte, n)
		for j := range b {
			b[j] = byte(len(want) + j)
		}
		want = append(want, b...)
		if taken, _ := s.deliver(mem.Copy(b, mem.DefaultBufferPool())); !taken {
			t.Fatal("it is not taken")
		}
	}
	took := 0
	for _, b := range s.queue {
		if short, ok := b.(mem.SliceBuffer); ok {
			took += cap(short)
		} else {
			took += b.Len()
		}
	}
	if len(s.queue) > 60 || took > 2*len(want) || s.queued != len(want) {
		t.Errorf("%d pieces that take %d bytes hold %d of %d", len(s.queue), took, s.queued, len(want))
	}
	if got := s.queue.Materialize(); string(got) != string(want) {
		t.Error("other bytes came")
	}
	s.queue.Free()
}
