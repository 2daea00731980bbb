package segment

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

var le = binary.LittleEndian

// viewU16, viewU32 and viewU64 read aligned little-endian bytes as integers without copying.
func viewU16(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

func viewU32(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func viewU64(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// stringBytes lends the bytes of s, which must not be written.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// uvarint reads an unsigned varint at b[i:] and returns it with the place after it, which is negative for damaged bytes. A
// negative i gives a negative place, so a chain of reads needs one check at its end.
func uvarint(b []byte, i int) (uint64, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return uvarintLong(b, i)
}

func uvarintLong(b []byte, i int) (uint64, int) {
	if i < 0 {
		return 0, -1
	}
	var v uint64
	for s := uint(0); s < 64; s += 7 {
		if i >= len(b) {
			return 0, -1
		}
		c := b[i]
		i++
		if c < 0x80 {
			if s == 63 && c > 1 {
				return 0, -1
			}
			return v | uint64(c)<<s, i
		}
		v |= uint64(c&0x7f) << s
	}
	return 0, -1
}

// skipVarints returns the place after n varints that start at b[i:], negative if the bytes end before.
func skipVarints(b []byte, i, n int) int {
	if i < 0 || n == 0 {
		return i
	}
	for n >= 8 && i+8 <= len(b) {
		// Bytes without the high bit end a varint. No more than n of them are in 8 bytes, so none is skipped too far.
		n -= bits.OnesCount64(^le.Uint64(b[i:]) & 0x8080808080808080)
		i += 8
	}
	if n == 0 {
		// The last 8 bytes may reach into the varint after the n-th: step back to the end of the n-th.
		for i > 0 && b[i-1] >= 0x80 {
			i--
		}
		return i
	}
	for ; n > 0; i++ {
		if i >= len(b) {
			return -1
		}
		if b[i] < 0x80 {
			n--
		}
	}
	return i
}

// bigPrefix returns the first 8 bytes of b as a number that orders as they do; missing bytes count as zero.
func bigPrefix(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (56 - 8*i)
	}
	return v
}

// commonPrefix returns how many leading bytes a and b share.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := le.Uint64(a[i:]) ^ le.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for ; i < n && a[i] == b[i]; i++ {
	}
	return i
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// pad appends zeros until the length is a multiple of to.
func pad(b []byte, to int) []byte {
	for len(b)%to != 0 {
		b = append(b, 0)
	}
	return b
}
