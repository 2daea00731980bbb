package grpcconn

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func appendFrame(b []byte, f frame) []byte {
	b = append(b, byte(f.length>>16), byte(f.length>>8), byte(f.length), f.kind, f.flags)
	b = binary.BigEndian.AppendUint32(b, f.stream)
	return append(b, make([]byte, f.length)...)
}

// Frames are told in whatever pieces they come.
func TestFramesInPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var want, got []frame
		b := make([]byte, prefaceBytes)
		for range rng.IntN(20) {
			f := frame{byte(rng.IntN(10)), byte(rng.IntN(256)), rng.Uint32() >> 1, rng.IntN(40)}
			want, b = append(want, f), appendFrame(b, f)
		}
		f := frames{skip: prefaceBytes}
		for len(b) > 0 {
			n := 1 + rng.IntN(min(len(b), 30))
			f.feed(b[:n], func(f frame) { got = append(got, f) })
			b = b[n:]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}
