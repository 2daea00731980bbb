package grpcmsg

import (
	"bytes"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestDamagedCompression(t *testing.T) {
	for name, in := range map[string][]byte{
		"zstd": []byte("nonsense"), "gzip": []byte("nonsense"), "zstd ": nil, "br": []byte("x"),
	} {
		r, done, err := Decompressor(string(bytes.TrimSpace([]byte(name))), bytes.NewReader(in))
		if err == nil {
			_, err = io.ReadAll(r)
			done()
		}
		if len(in) > 0 && err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestCompressedWithoutAnEncoding has a message that says that it is compressed, of a call that does not say how.
func TestCompressedWithoutAnEncoding(t *testing.T) {
	for name, want := range map[string]codes.Code{"": codes.Internal, "identity": codes.Internal, "br": codes.Unimplemented} {
		if _, _, err := Decompressor(name, bytes.NewReader([]byte("x"))); status.Code(err) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
