package grpcmsg

import (
	"bytes"
	"io"
	"testing"
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
