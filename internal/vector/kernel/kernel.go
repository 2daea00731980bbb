// Package kernel has the inner loops of vector search: dot products and squared distances of float32 vectors, read in
// place from stored records of three element types, exact dot products of signed bytes, and Hamming distances.
//
// # One order of arithmetic
//
// A sum of floats depends on the order of its additions, so the order is fixed. Component j belongs to lane j mod 32.
// Each lane starts at +0 and adds its components in ascending order; every product and every sum is rounded to
// float32 by itself, never fused. With n a multiple of 32 all lanes hold equally many components; else the last
// lanes hold one less, which is the same as adding a product +0, since a lane is never -0. The lanes are then added
// as a tree:
//
//	s[i] = (lane[i] + lane[i+8]) + (lane[i+16] + lane[i+24])   i = 0..7
//	t[i] = s[i] + s[i+4]                                       i = 0..3
//	sum  = (t[0] + t[2]) + (t[1] + t[3])
//
// The lanes are four AVX2 registers of eight. Assembly and portable Go give the same bits for every input on every
// machine; only which NaN a sum of NaNs gives is open.
//
// # Records
//
// A record is a slice of bytes, little-endian, at any alignment: n float32, n IEEE half floats, or n unsigned bytes
// that stand for lo + step·u, product and sum each rounded to float32. A kernel over a record gives what decoding it
// and calling [Dot] or [L2] gives, bit for bit.
//
// # Lengths
//
// The first argument says how many components there are. The second must hold as many; the caller sees to it. What it
// holds beyond is not read. If it is shorter, whatever its capacity, the function panics with an index out of range before
// it reads anything.
//
// Functions keep no state, allocate nothing and are safe at once.
package kernel

//go:generate go run ./gen -dir .

import "unsafe"

// The assembly needs at least so many components; what is shorter takes the portable way.
const (
	leastFloats = 8
	leastBytes  = 16
)

// Dot is the dot product of a and b.
func Dot(a, b []float32) float32 {
	b = b[:len(a):len(b)]
	if useASM && len(a) >= leastFloats {
		return dotF32AVX2(&a[0], (*byte)(unsafe.Pointer(&b[0])), len(a))
	}
	return dotScalar(a, b)
}

// L2 is the squared Euclidean distance of a and b.
func L2(a, b []float32) float32 {
	b = b[:len(a):len(b)]
	if useASM && len(a) >= leastFloats {
		return l2F32AVX2(&a[0], (*byte)(unsafe.Pointer(&b[0])), len(a))
	}
	return l2Scalar(a, b)
}

// DotF32 is the dot product of q and a record of 4·len(q) bytes.
func DotF32(q []float32, rec []byte) float32 {
	rec = rec[: 4*len(q) : len(rec)]
	if useASM && len(q) >= leastFloats {
		return dotF32AVX2(&q[0], &rec[0], len(q))
	}
	return recordScalar(q, rec, f32, 0, 0, false)
}

// L2F32 is the squared Euclidean distance of q and a record of 4·len(q) bytes.
func L2F32(q []float32, rec []byte) float32 {
	rec = rec[: 4*len(q) : len(rec)]
	if useASM && len(q) >= leastFloats {
		return l2F32AVX2(&q[0], &rec[0], len(q))
	}
	return recordScalar(q, rec, f32, 0, 0, true)
}

// DotF16 is the dot product of q and a record of half floats, 2·len(q) bytes.
func DotF16(q []float32, rec []byte) float32 {
	rec = rec[: 2*len(q) : len(rec)]
	if useASM && len(q) >= leastFloats {
		return dotF16AVX2(&q[0], &rec[0], len(q))
	}
	return recordScalar(q, rec, f16, 0, 0, false)
}

// L2F16 is the squared Euclidean distance of q and a record of half floats, 2·len(q) bytes.
func L2F16(q []float32, rec []byte) float32 {
	rec = rec[: 2*len(q) : len(rec)]
	if useASM && len(q) >= leastFloats {
		return l2F16AVX2(&q[0], &rec[0], len(q))
	}
	return recordScalar(q, rec, f16, 0, 0, true)
}

// DotU8 is the dot product of q and the record of len(q) bytes whose component u stands for lo + step·u.
func DotU8(q []float32, rec []byte, lo, step float32) float32 {
	rec = rec[:len(q):len(rec)]
	if useASM && len(q) >= leastFloats {
		return dotU8AVX2(&q[0], &rec[0], len(q), lo, step)
	}
	return recordScalar(q, rec, u8, lo, step, false)
}

// L2U8 is the squared Euclidean distance of q and the record of len(q) bytes whose component u stands for lo + step·u.
func L2U8(q []float32, rec []byte, lo, step float32) float32 {
	rec = rec[:len(q):len(rec)]
	if useASM && len(q) >= leastFloats {
		return l2U8AVX2(&q[0], &rec[0], len(q), lo, step)
	}
	return recordScalar(q, rec, u8, lo, step, true)
}

// EncodeF16 writes v as half floats to the first 2·len(v) bytes of dst, rounded to the nearest, ties to even. What is
// too large becomes an infinity; a NaN stays one and becomes quiet.
func EncodeF16(dst []byte, v []float32) {
	dst = dst[: 2*len(v) : len(dst)]
	if useASM && len(v) >= 8 {
		n := len(v) &^ 7
		encodeF16AVX2(&dst[0], &v[0], n)
		dst, v = dst[2*n:], v[n:]
	}
	encodeF16Scalar(dst, v)
}

// DecodeF16 sets dst to the half floats at the start of rec, which holds 2·len(dst) bytes. A NaN becomes quiet.
func DecodeF16(dst []float32, rec []byte) {
	rec = rec[: 2*len(dst) : len(rec)]
	if useASM && len(dst) >= 8 {
		n := len(dst) &^ 7
		decodeF16AVX2(&dst[0], &rec[0], n)
		dst, rec = dst[n:], rec[2*n:]
	}
	decodeF16Scalar(dst, rec)
}

// MaxI8 is the largest length [DotI8] takes. A product of two int8 is 2^14 at most, so a sum of 2^16 is 2^30 at most
// and no partial sum leaves the range of int32.
const MaxI8 = 1 << 16

// DotI8 is the exact dot product of a and b. It panics if a has more than MaxI8 components.
func DotI8(a, b []int8) int32 {
	checkI8(len(a))
	b = b[:len(a):len(b)]
	if useASM && len(a) >= leastBytes {
		return dotI8AVX2(&a[0], &b[0], len(a))
	}
	return dotI8Scalar(a, b)
}

// DotI8List sets out[i] to the exact dot product of q and the len(q) components of codes that begin at
// stride·ids[i]. It takes half to a third of the time of as many calls of [DotI8]: four codes at a time, while those
// that come next are fetched. It panics if q has more than MaxI8 components, if stride is negative, if out is shorter
// than ids, or if a code does not lie within codes.
func DotI8List(q, codes []int8, stride int, ids []uint32, out []int32) {
	checkI8(len(q))
	out = out[:len(ids):len(out)]
	n := len(q)
	if !useASM || n < leastBytes {
		for i, id := range ids {
			out[i] = dotI8Scalar(q, codes[stride*int(id):][:n:len(codes)-stride*int(id)])
		}
		return
	}
	// So many codes are under way; more gained nothing for 128 components, in the last cache and out of it, and less
	// lost a tenth.
	const ahead = 8
	for i := 0; i < ahead && i+4 <= len(ids); i += 4 {
		at := (*[4]uint32)(ids[i:])
		fetch4(&codes[stride*int(at[0])], &codes[stride*int(at[1])], &codes[stride*int(at[2])], &codes[stride*int(at[3])])
	}
	var rest [4]int32
	for i := 0; i < len(ids); i += 4 {
		if i+ahead+4 <= len(ids) {
			at := (*[4]uint32)(ids[i+ahead:])
			fetch4(&codes[stride*int(at[0])], &codes[stride*int(at[1])], &codes[stride*int(at[2])], &codes[stride*int(at[3])])
		}
		var at *[4]uint32
		sums := &rest
		if i+4 <= len(ids) {
			at, sums = (*[4]uint32)(ids[i:]), (*[4]int32)(out[i:])
		} else {
			last := ids[len(ids)-1] // more than once, to make four
			at = &[4]uint32{ids[i], ids[min(i+1, len(ids)-1)], last, last}
		}
		b0, b1 := codes[stride*int(at[0]):], codes[stride*int(at[1]):]
		b2, b3 := codes[stride*int(at[2]):], codes[stride*int(at[3]):]
		_, _, _, _ = b0[n-1], b1[n-1], b2[n-1], b3[n-1]
		dotI8x4AVX2(&q[0], &b0[0], &b1[0], &b2[0], &b3[0], n, sums)
	}
	copy(out[len(out)&^3:], rest[:])
}

func checkI8(n int) {
	if n > MaxI8 {
		panic("kernel: more than 65,536 int8 components")
	}
}

// Int8s is b seen as signed bytes, without a copy.
func Int8s(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}

// Hamming is the number of bits in which a and the first len(a) bytes of b differ.
func Hamming(a, b []byte) int {
	b = b[:len(a):len(b)]
	if n := len(a) &^ 7; useASM && n >= 32 {
		return hammingAVX2(&a[0], &b[0], n) + hammingScalar(a[n:], b[n:])
	}
	return hammingScalar(a, b)
}
