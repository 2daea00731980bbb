package grpcmsg

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func squeezed(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if name == Zstd {
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
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

// TestInflatingAsksBeforeItTakes: what a message of any length takes was asked for, and one that is too long, cut, or finds no room ends at once.
func TestInflatingAsksBeforeItTakes(t *testing.T) {
	none := errors.New("no room")
	for _, name := range []string{Gzip, Zstd} {
		for _, size := range []int{0, 1, FreeBytes - 1, FreeBytes, FreeBytes + 1, 3 * FreeBytes, MaxStep, 5*MaxStep + 17} {
			plain := make([]byte, size)
			rand.NewChaCha8([32]byte{byte(size)}).Read(plain[:size/3]) //nolint:errcheck // it never fails
			packed := squeezed(t, name, plain)
			var asked int64
			need := func(bytes int64) error {
				asked = max(asked, bytes)
				return nil
			}
			got, err := Inflate(name, bytes.NewReader(packed), size, need)
			if err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%s, %d bytes: %d, %v", name, size, len(got), err)
			}
			least := int64(size)
			if size > FreeBytes {
				least *= 2 // the parts and the whole
			}
			if asked < least || asked > max(2*int64(size)+MaxStep, FreeBytes) {
				t.Errorf("%s, %d bytes: %d were asked for", name, size, asked)
			}
			if size == 0 {
				continue
			}
			asked = 0
			if _, err := Inflate(name, bytes.NewReader(packed), size-1, need); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s, %d bytes of %d: %v", name, size, size-1, err)
			}
			if _, err := Inflate(name, bytes.NewReader(packed[:len(packed)-1]), size, need); status.Code(err) != codes.Internal {
				t.Errorf("%s, %d bytes, cut: %v", name, size, err)
			}
			_, err = Inflate(name, bytes.NewReader(packed), size, func(bytes int64) error {
				if bytes > int64(size)/2 {
					return none
				}
				return nil
			})
			if !errors.Is(err, none) {
				t.Errorf("%s, %d bytes without room: %v", name, size, err)
			}
		}
		// A bomb: little on the wire, much inside.
		bomb := squeezed(t, name, make([]byte, 64<<20))
		var asked int64
		if _, err := Inflate(name, bytes.NewReader(bomb), 1<<20, func(bytes int64) error { asked = max(asked, bytes); return nil }); status.Code(err) != codes.ResourceExhausted || asked > 3<<20 {
			t.Errorf("%s: %d bytes were asked for, %v", name, asked, err)
		}
	}
}
