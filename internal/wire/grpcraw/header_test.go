package grpcraw

import (
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
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
