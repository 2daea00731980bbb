package store

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/segment/bitset"
)

func TestDeletesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	id, err := NewID()
	if err != nil || !validID(id) {
		t.Fatal(id, err)
	}
	for _, docs := range []uint32{1, 63, 64, 65, 1000, 70000} {
		for _, share := range []float64{0, 0.001, 0.05, 0.2, 0.9, 1} {
			d := DeleteSet{Segment: id, Generation: rng.Uint64(), Docs: docs, Dead: bitset.New(int(docs))}
			for doc := range docs {
				if rng.Float64() < share {
					d.Dead.Add(doc)
				}
			}
			b := EncodeDeletes(d)
			if limit := deletesHeader + deletesFooter + len(d.Dead)*8; len(b) > limit {
				t.Errorf("%d of %d documents take %d bytes, more than a plain bitset's %d", d.Dead.Count(), docs, len(b), limit)
			}
			got, err := DecodeDeletes("d", b)
			if err != nil || !cmp.Equal(got, d) {
				t.Fatalf("%d of %d: %v %s", d.Dead.Count(), docs, err, cmp.Diff(d, got))
			}
		}
	}
}

// reseal makes the checksum of a damaged file right again.
func reseal(b []byte) []byte {
	if len(b) < deletesHeader+deletesFooter {
		return b
	}
	body := b[:len(b)-deletesFooter]
	return binary.LittleEndian.AppendUint64(append([]byte(nil), body...), xxh3.Hash(body))
}

func FuzzDecodeDeletes(f *testing.F) {
	for _, members := range [][]uint32{nil, {0}, {5, 6, 99}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}} {
		d := DeleteSet{Segment: "0f8fad5b-d9cb-469f-a165-70867728950e", Generation: 1, Docs: 100, Dead: bitset.New(100)}
		for _, m := range members {
			d.Dead.Add(m)
		}
		f.Add(EncodeDeletes(d))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, reseal(b)} {
			d, err := decodeDeletes("d", b, 1<<20)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			again, err := decodeDeletes("d", EncodeDeletes(d), 1<<20)
			if err != nil || !cmp.Equal(again, d) {
				t.Fatalf("%v %s", err, cmp.Diff(d, again))
			}
		}
	})
}
