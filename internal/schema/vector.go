package schema

import (
	"encoding/binary"
	"math"
)

// Vectors stand in Values.Bytes little-endian, one entry for each vector:
//
//   - dense: Dim float32, whatever Element says (Element is how an index stores them);
//   - sparse: pairs of uint32 index and float32 weight, by index ascending, no index twice;
//   - binary: Dim/8 bytes as given.

// AppendDense appends a dense vector.
func AppendDense(dst []byte, v []float32) []byte {
	for _, x := range v {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
	}
	return dst
}

// Dense appends the components of a stored dense vector to dst.
func Dense(dst []float32, b []byte) []float32 {
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return dst
}

// AppendSparse appends one pair of a sparse vector.
func AppendSparse(dst []byte, index uint32, weight float32) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, index)
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(weight))
}

// SparseLen returns the number of pairs of a stored sparse vector.
func SparseLen(b []byte) int { return len(b) / 8 }

// SparseAt returns pair i of a stored sparse vector.
func SparseAt(b []byte, i int) (index uint32, weight float32) {
	p := b[8*i : 8*i+8]
	return binary.LittleEndian.Uint32(p), math.Float32frombits(binary.LittleEndian.Uint32(p[4:]))
}
