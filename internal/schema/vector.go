package schema

import (
	"encoding/binary"
	"fmt"
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

// Bounds of an indexed vector. Within the first no sum of products of two vectors leaves the range of float32; below the second a
// length is not exact enough to divide by.
const (
	MaxVectorLength = 1e19
	MinCosineLength = 1e-18
)

const (
	maxF16  = 65_520          // from here on a number rounds to infinity as a 16-bit float
	zeroF16 = 1.0 / (1 << 25) // up to here to zero
	maxSqr  = MaxVectorLength * MaxVectorLength
	minSqr  = MinCosineLength * MinCosineLength
)

// VectorShapeFault says why bytes are no value of a vector field at all: it checks lengths and the order of indices, which memory
// safety depends on. It returns the empty string for a good value and for a field of another type.
func (f *Field) VectorShapeFault(b []byte) string {
	switch f.Type {
	case DenseVector:
		if len(b) != 4*f.Dim {
			return fmt.Sprintf("a vector has %d components of 4 bytes, found %d bytes", f.Dim, len(b))
		}
	case BinaryVector:
		if len(b) != f.Dim/8 {
			return fmt.Sprintf("a vector has %d bytes, found %d", f.Dim/8, len(b))
		}
	case SparseVector:
		if len(b) == 0 || len(b)%8 != 0 {
			return fmt.Sprintf("a sparse vector has pairs of 8 bytes and at least one, found %d bytes", len(b))
		}
		last := int64(-1)
		for i := range SparseLen(b) {
			index, _ := SparseAt(b, i)
			if int64(index) <= last {
				return fmt.Sprintf("the indices of a sparse vector ascend, found %d after %d", index, last)
			}
			last = int64(index)
		}
		if top := f.MaxSparseIndex(); last > int64(top) {
			return fmt.Sprintf("an index is a whole number from 0 to %d, found %d", top, last)
		}
	}
	return ""
}

// MaxSparseIndex is the greatest index of a sparse vector field.
func (f *Field) MaxSparseIndex() uint32 {
	if f.Element == "u16" {
		return math.MaxUint16
	}
	return math.MaxUint32
}

// VectorFault says why bytes cannot be a value of a vector field: what VectorShapeFault says, components that are not finite, and for
// an indexed field values that no similarity can be computed of. It returns the empty string for a good value and for a field of
// another type.
func (f *Field) VectorFault(b []byte) string {
	if reason := f.VectorShapeFault(b); reason != "" {
		return reason
	}
	step, first := 4, 0
	switch f.Type {
	case DenseVector:
	case SparseVector:
		step, first = 8, 4
	default:
		return ""
	}
	sum, top := 0.0, 0.0
	for i := first; i < len(b); i += step {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return "a component of a vector has to be finite as a 32-bit float"
		}
		sum += x * x
		top = max(top, math.Abs(x))
	}
	half := f.Type == DenseVector && f.Element == "f16"
	switch {
	case !f.Indexed:
		return ""
	case sum >= maxSqr:
		return fmt.Sprintf("the length of an indexed vector must be below %.0e", MaxVectorLength)
	case half && top >= maxF16:
		return fmt.Sprintf("a component has to be below %d as a 16-bit float", maxF16)
	case f.Metric == "cosine" && (sum < minSqr || half && top <= zeroF16):
		return fmt.Sprintf("cosine similarity is not defined for a vector of the length 0, nor computed below %.0e", MinCosineLength)
	}
	return ""
}
