package vector

// Decode appends the components of a dense record to dst: the values that scores are made of, which differ from the given ones
// by the rounding of the element type.
func Decode(p Params, dst []float32, rec []byte) []float32 {
	n := len(dst)
	dst = append(dst, make([]float32, p.Dim)...)
	decode(p, rec, dst[n:])
	return dst
}
