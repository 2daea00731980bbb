package kernel

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The portable kernels. A pass over the vector fills eight lanes, kept in registers; four passes fill all. The tail,
// shorter than eight, is left to the caller of a pass.
//
// Products are converted to float32 where they are added: without, the compiler may fuse the two on some machines.

const lanes = 32

// reduce adds the lanes in the order of the package.
func reduce(l *[lanes]float32) float32 {
	var s [8]float32
	for i := range s {
		s[i] = (l[i] + l[i+8]) + (l[i+16] + l[i+24])
	}
	t0, t1, t2, t3 := s[0]+s[4], s[1]+s[5], s[2]+s[6], s[3]+s[7]
	return (t0 + t2) + (t1 + t3)
}

func dotScalar(a, b []float32) float32 {
	n := len(a)
	b = b[:n]
	var l [lanes]float32
	for r := 0; r < lanes; r += 8 {
		var s0, s1, s2, s3, s4, s5, s6, s7 float32
		for i := r; i <= n-8; i += lanes {
			p, q := (*[8]float32)(a[i:]), (*[8]float32)(b[i:])
			s0 += float32(p[0] * q[0])
			s1 += float32(p[1] * q[1])
			s2 += float32(p[2] * q[2])
			s3 += float32(p[3] * q[3])
			s4 += float32(p[4] * q[4])
			s5 += float32(p[5] * q[5])
			s6 += float32(p[6] * q[6])
			s7 += float32(p[7] * q[7])
		}
		*(*[8]float32)(l[r:]) = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	}
	for j := n &^ 7; j < n; j++ {
		l[j%lanes] += float32(a[j] * b[j])
	}
	return reduce(&l)
}

func l2Scalar(a, b []float32) float32 {
	n := len(a)
	b = b[:n]
	var l [lanes]float32
	for j, x := range a {
		d := x - b[j]
		l[j%lanes] += float32(d * d)
	}
	return reduce(&l)
}

func float32At(rec []byte, j int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(rec[4*j:]))
}

func dotF32Scalar(q []float32, rec []byte) float32 {
	var l [lanes]float32
	for j, x := range q {
		l[j%lanes] += float32(x * float32At(rec, j))
	}
	return reduce(&l)
}

func l2F32Scalar(q []float32, rec []byte) float32 {
	var l [lanes]float32
	for j, x := range q {
		d := x - float32At(rec, j)
		l[j%lanes] += float32(d * d)
	}
	return reduce(&l)
}

func float16At(rec []byte, j int) float32 {
	return fromF16(binary.LittleEndian.Uint16(rec[2*j:]))
}

func dotF16Scalar(q []float32, rec []byte) float32 {
	var l [lanes]float32
	for j, x := range q {
		l[j%lanes] += float32(x * float16At(rec, j))
	}
	return reduce(&l)
}

func l2F16Scalar(q []float32, rec []byte) float32 {
	var l [lanes]float32
	for j, x := range q {
		d := x - float16At(rec, j)
		l[j%lanes] += float32(d * d)
	}
	return reduce(&l)
}

func dotU8Scalar(q []float32, rec []byte, lo, step float32) float32 {
	var l [lanes]float32
	for j, x := range q {
		v := lo + float32(step*float32(rec[j]))
		l[j%lanes] += float32(x * v)
	}
	return reduce(&l)
}

func l2U8Scalar(q []float32, rec []byte, lo, step float32) float32 {
	var l [lanes]float32
	for j, x := range q {
		v := lo + float32(step*float32(rec[j]))
		d := x - v
		l[j%lanes] += float32(d * d)
	}
	return reduce(&l)
}

func decodeF16Scalar(dst []float32, rec []byte) {
	for j := range dst {
		dst[j] = float16At(rec, j)
	}
}

func encodeF16Scalar(dst []byte, v []float32) {
	for j, x := range v {
		binary.LittleEndian.PutUint16(dst[2*j:], toF16(x))
	}
}

func dotI8Scalar(a, b []int8) int32 {
	b = b[:len(a)]
	var s int32
	for j, x := range a {
		s += int32(x) * int32(b[j])
	}
	return s
}

func hammingScalar(a, b []byte) int {
	b = b[:len(a)]
	n := 0
	for len(a) >= 8 {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(a) ^ binary.LittleEndian.Uint64(b))
		a, b = a[8:], b[8:]
	}
	for j, x := range a {
		n += bits.OnesCount8(x ^ b[j])
	}
	return n
}
