package schema

import "math"

// EncodeI64 maps v so that unsigned comparison of the results is signed comparison of the inputs.
func EncodeI64(v int64) uint64 { return uint64(v) ^ 1<<63 }

// DecodeI64 is the inverse of EncodeI64.
func DecodeI64(u uint64) int64 { return int64(u ^ 1<<63) }

// EncodeF64 maps v so that unsigned comparison of the results is numeric comparison of the inputs; −0 and +0 become equal. v must not be NaN.
func EncodeF64(v float64) uint64 {
	b := math.Float64bits(v + 0) // −0 + 0 = +0
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}

// DecodeF64 is the inverse of EncodeF64.
func DecodeF64(u uint64) float64 {
	if u>>63 != 0 {
		return math.Float64frombits(u &^ (1 << 63))
	}
	return math.Float64frombits(^u)
}
