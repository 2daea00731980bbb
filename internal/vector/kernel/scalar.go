package kernel

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// The portable kernels. A pass over the vector fills eight lanes, kept in registers; four passes fill all. Components
// behind the last full eight are added to their lanes afterwards.
//
// Products are converted to float32 where they are added: without, the compiler may fuse the two on some machines.

const lanes = 32

// sums are the lanes; component j is in lane j mod 32.
type sums [lanes]float32

// total adds the lanes in the order of the package.
func (l *sums) total() float32 {
	var s [8]float32
	for i := range s {
		s[i] = (l[i] + l[i+8]) + (l[i+16] + l[i+24])
	}
	t0, t1, t2, t3 := s[0]+s[4], s[1]+s[5], s[2]+s[6], s[3]+s[7]
	return (t0 + t2) + (t1 + t3)
}

func dotScalar(a, b []float32) float32 {
	var l sums
	l.dot(a, b)
	return l.total()
}

func l2Scalar(a, b []float32) float32 {
	var l sums
	l.l2(a, b)
	return l.total()
}

// dot adds the products of a and b to the lanes, the first to lane 0.
func (l *sums) dot(a, b []float32) {
	b = b[:len(a)]
	full := len(a) &^ 7
	for r := 0; r < lanes; r += 8 {
		lane := (*[8]float32)(l[r:])
		s0, s1, s2, s3, s4, s5, s6, s7 := lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], lane[6], lane[7]
		for i := r; i < full; i += lanes {
			x, v := (*[8]float32)(a[i:]), (*[8]float32)(b[i:])
			s0 += float32(x[0] * v[0])
			s1 += float32(x[1] * v[1])
			s2 += float32(x[2] * v[2])
			s3 += float32(x[3] * v[3])
			s4 += float32(x[4] * v[4])
			s5 += float32(x[5] * v[5])
			s6 += float32(x[6] * v[6])
			s7 += float32(x[7] * v[7])
		}
		*lane = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	}
	for j := full; j < len(a); j++ {
		l[j%lanes] += float32(a[j] * b[j])
	}
}

// l2 adds the squared differences of a and b to the lanes, the first to lane 0.
func (l *sums) l2(a, b []float32) {
	b = b[:len(a)]
	full := len(a) &^ 7
	for r := 0; r < lanes; r += 8 {
		lane := (*[8]float32)(l[r:])
		s0, s1, s2, s3, s4, s5, s6, s7 := lane[0], lane[1], lane[2], lane[3], lane[4], lane[5], lane[6], lane[7]
		for i := r; i < full; i += lanes {
			x, v := (*[8]float32)(a[i:]), (*[8]float32)(b[i:])
			s0 += square(x[0] - v[0])
			s1 += square(x[1] - v[1])
			s2 += square(x[2] - v[2])
			s3 += square(x[3] - v[3])
			s4 += square(x[4] - v[4])
			s5 += square(x[5] - v[5])
			s6 += square(x[6] - v[6])
			s7 += square(x[7] - v[7])
		}
		*lane = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	}
	for j := full; j < len(a); j++ {
		l[j%lanes] += square(a[j] - b[j])
	}
}

func square(d float32) float32 { return float32(d * d) }

// element says how the components of a record are stored; its value is the size of one in bytes.
type element int

const (
	f32 element = 4
	f16 element = 2
	u8  element = 1
)

// recordScalar is the dot product of q and a record, or the squared distance: decoded a part at a time, and added to
// the lanes as if there had been no parts.
func recordScalar(q []float32, rec []byte, e element, lo, step float32, l2 bool) float32 {
	var l sums
	var part [8 * lanes]float32
	for len(q) > 0 {
		k := min(len(q), len(part))
		v := part[:k]
		switch e {
		case f32:
			decodeF32(v, rec)
		case f16:
			decodeF16Scalar(v, rec)
		case u8:
			decodeU8(v, rec, lo, step)
		}
		if l2 {
			l.l2(q[:k], v)
		} else {
			l.dot(q[:k], v)
		}
		q, rec = q[k:], rec[k*int(e):]
	}
	return l.total()
}

// decodeF32 copies bytes where the machine has their order, so that their alignment does not matter.
func decodeF32(dst []float32, rec []byte) {
	rec = rec[:4*len(dst)]
	if !cpu.IsBigEndian {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), rec)
		return
	}
	for j := range dst {
		dst[j] = math.Float32frombits(binary.LittleEndian.Uint32(rec[4*j:]))
	}
}

func decodeF16Scalar(dst []float32, rec []byte) {
	rec = rec[:2*len(dst)]
	for j := range dst {
		h := uint32(binary.LittleEndian.Uint16(rec[2*j:]))
		if e := h & 0x7c00; e == 0 || e == 0x7c00 {
			dst[j] = fromF16(uint16(h))
			continue
		}
		dst[j] = math.Float32frombits(h&0x8000<<16 | (h&0x7fff<<13 + (127-15)<<23))
	}
}

func encodeF16Scalar(dst []byte, v []float32) {
	dst = dst[:2*len(v)]
	for j, x := range v {
		binary.LittleEndian.PutUint16(dst[2*j:], toF16(x))
	}
}

func decodeU8(dst []float32, rec []byte, lo, step float32) {
	rec = rec[:len(dst)]
	for j, u := range rec {
		dst[j] = lo + float32(step*float32(u))
	}
}

func dotI8Scalar(a, b []int8) int32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 int32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]int8)(a), (*[8]int8)(b)
		s0 += int32(x[0])*int32(y[0]) + int32(x[4])*int32(y[4])
		s1 += int32(x[1])*int32(y[1]) + int32(x[5])*int32(y[5])
		s2 += int32(x[2])*int32(y[2]) + int32(x[6])*int32(y[6])
		s3 += int32(x[3])*int32(y[3]) + int32(x[7])*int32(y[7])
		a, b = a[8:], b[8:]
	}
	for j, x := range a {
		s0 += int32(x) * int32(b[j])
	}
	return s0 + s1 + s2 + s3
}

func hammingScalar(a, b []byte) int {
	b = b[:len(a)]
	n := 0
	for len(a) >= 32 && len(b) >= 32 {
		x, y := (*[32]byte)(a), (*[32]byte)(b)
		n += bits.OnesCount64(binary.LittleEndian.Uint64(x[0:])^binary.LittleEndian.Uint64(y[0:])) +
			bits.OnesCount64(binary.LittleEndian.Uint64(x[8:])^binary.LittleEndian.Uint64(y[8:])) +
			bits.OnesCount64(binary.LittleEndian.Uint64(x[16:])^binary.LittleEndian.Uint64(y[16:])) +
			bits.OnesCount64(binary.LittleEndian.Uint64(x[24:])^binary.LittleEndian.Uint64(y[24:]))
		a, b = a[32:], b[32:]
	}
	for len(a) >= 8 && len(b) >= 8 {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(a) ^ binary.LittleEndian.Uint64(b))
		a, b = a[8:], b[8:]
	}
	for j, x := range a {
		n += bits.OnesCount8(x ^ b[j])
	}
	return n
}
