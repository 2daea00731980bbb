package agg

import (
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/schema"
)

// A sum of float64s is kept whole, so that it does not depend on the order or grouping of its parts, and is rounded once, at the
// end. It is a number in units of 2^-1074, the least float64, cut into chunks of 32 bits; chunks are signed 64-bit integers, so
// that carries can wait (R. Neal, "Fast exact summation using small and large superaccumulators", 2015). Only the chunks that the
// values reach are kept.
type exactSum struct {
	base   int     // of chunks[0], which counts 2^(32·base) units
	chunks []int64 // below each but the last: 0 ≤ chunk < 2^32, once carried
	adds   int     // since the last carry
}

const (
	sumChunks   = 68      // 64 for the exponents, the rest for 2^48 values of the greatest
	sumMaxAdds  = 1 << 9  // each adds less than 2^53 to a chunk
	sumMaxBytes = 8 * 34  // of the magnitude of a sum
	maxCount    = 1 << 48 // of documents or values that a state from outside may speak of
)

// add adds a finite number.
func (s *exactSum) add(v float64) {
	b := math.Float64bits(v)
	exp := int(b >> 52 & 0x7ff)
	m := b & (1<<52 - 1)
	if exp == 0 {
		exp = 1
	} else {
		m |= 1 << 52
	}
	exp-- // v = ±m · 2^exp units
	k, sh := exp>>5, uint(exp&31)
	lo, hi := int64(m<<sh&0xffff_ffff), int64(m>>(32-sh))
	sign := int64(b) >> 63 // 0 or −1
	i := k - s.base
	if uint(i) >= uint(len(s.chunks)) || i+1 >= len(s.chunks) {
		s.reach(k, k+1)
		i = k - s.base
	}
	s.chunks[i] += (lo ^ sign) - sign
	s.chunks[i+1] += (hi ^ sign) - sign
	if s.adds++; s.adds >= sumMaxAdds {
		s.carry()
	}
}

// addAll adds encoded numbers to a sum that has room for every chunk.
func (s *exactSum) addAll(vals []uint64) {
	for len(vals) > 0 {
		if s.adds > 0 {
			s.carry()
		}
		n := min(len(vals), sumMaxAdds)
		chunks := (*[sumChunks]int64)(s.chunks)
		for _, v := range vals[:n] {
			b := math.Float64bits(schema.DecodeF64(v))
			exp := b >> 52 & 0x7ff
			m := b & (1<<52 - 1)
			if exp != 0 {
				m |= 1 << 52
				exp--
			}
			k, sh := exp>>5, exp&31
			sign := int64(b) >> 63
			chunks[k] += (int64(m<<sh&0xffff_ffff) ^ sign) - sign
			chunks[k+1] += (int64(m>>(32-sh)) ^ sign) - sign
		}
		s.adds = n
		vals = vals[n:]
	}
}

// reach makes room for the chunks from lo to hi.
func (s *exactSum) reach(lo, hi int) {
	if len(s.chunks) == 0 {
		s.base = lo
		s.chunks = make([]int64, hi-lo+1, hi-lo+2)
		return
	}
	if lo < s.base {
		s.chunks = slices.Insert(s.chunks, 0, make([]int64, s.base-lo)...)
		s.base = lo
	}
	for len(s.chunks) <= hi-s.base {
		// The last chunk is signed; what stands in it stays there, and is carried on later.
		s.chunks = append(s.chunks, 0)
	}
}

// carry brings every chunk but the last into 0 ≤ chunk < 2^32, and the last below 2^32 in magnitude.
func (s *exactSum) carry() {
	s.adds = 0
	c := int64(0)
	for i := range s.chunks {
		v := s.chunks[i] + c
		if i == len(s.chunks)-1 {
			s.chunks[i] = v
			break
		}
		s.chunks[i], c = v&0xffff_ffff, v>>32
	}
	for n := len(s.chunks); n > 0; n++ {
		last := s.chunks[n-1]
		if last > -1<<32 && last < 1<<32 {
			break
		}
		s.chunks[n-1] = last & 0xffff_ffff
		s.chunks = append(s.chunks, last>>32)
	}
}

// merge adds another sum.
func (s *exactSum) merge(o *exactSum) {
	if len(o.chunks) == 0 {
		return
	}
	s.carry()
	o.carry()
	s.reach(o.base, o.base+len(o.chunks)-1)
	for i, c := range o.chunks {
		s.chunks[o.base-s.base+i] += c
	}
	s.carry()
}

// magnitude returns sign and magnitude in units of 2^(8·shift−1074), little-endian, without a zero byte at either end.
func (s *exactSum) magnitude() (neg bool, shift int, mag []byte) {
	s.carry()
	if len(s.chunks) == 0 {
		return false, 0, nil
	}
	neg = s.chunks[len(s.chunks)-1] < 0
	carry := int64(0)
	mag = make([]byte, 0, 4*len(s.chunks)+4)
	for _, c := range s.chunks {
		if neg {
			c = -c
		}
		c += carry
		carry = c >> 32
		mag = append(mag, byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
	}
	mag = append(mag, byte(carry), byte(carry>>8), byte(carry>>16), byte(carry>>24))
	for len(mag) > 0 && mag[len(mag)-1] == 0 {
		mag = mag[:len(mag)-1]
	}
	lead := 0
	for lead < len(mag) && mag[lead] == 0 {
		lead++
	}
	if lead == len(mag) {
		return false, 0, nil
	}
	return neg, 4*s.base + lead, mag[lead:]
}

// setMagnitude is the inverse of magnitude.
func (s *exactSum) setMagnitude(neg bool, shift int, mag []byte) {
	*s = exactSum{base: shift / 4}
	if len(mag) == 0 {
		s.base = 0
		return
	}
	lead := shift % 4
	s.chunks = make([]int64, (lead+len(mag)+3)/4, (lead+len(mag)+3)/4+1)
	for i, b := range mag {
		at := lead + i
		c := int64(b) << (8 * (at % 4))
		if neg {
			c = -c
		}
		s.chunks[at/4] += c
	}
	s.carry()
}

// big returns the sum in units of 2^-1074.
func (s *exactSum) big() *big.Int {
	neg, shift, mag := s.magnitude()
	be := slices.Clone(mag)
	slices.Reverse(be)
	x := new(big.Int).SetBytes(be)
	x.Lsh(x, uint(8*shift))
	if neg {
		x.Neg(x)
	}
	return x
}

// quotient returns num·2^exp/den rounded to nearest, ties to even, once; infinite if it is beyond the greatest float64. den is
// above 0.
func quotient(num *big.Int, exp int, den uint64) float64 {
	if num.Sign() == 0 {
		return 0
	}
	// Enough bits that the rounding sees the quotient and whether there is more behind it.
	shift := max(0, 66+bits.Len64(den)-num.BitLen())
	q := new(big.Int).Abs(num)
	q.Lsh(q, uint(shift))
	r := new(big.Int)
	q.QuoRem(q, new(big.Int).SetUint64(den), r)
	if r.Sign() != 0 {
		q.SetBit(q, 0, 1)
	}
	f := new(big.Float).SetInt(q)
	f.SetMantExp(f, exp-shift)
	v, _ := f.Float64()
	if num.Sign() < 0 {
		v = -v
	}
	return v
}

// trim lets go of chunks at both ends that are 0.
func (s *exactSum) trim() {
	s.carry()
	lo, hi := 0, len(s.chunks)
	for hi > 0 && s.chunks[hi-1] == 0 {
		hi--
	}
	for lo < hi && s.chunks[lo] == 0 {
		lo++
	}
	if hi-lo < len(s.chunks) {
		s.base, s.chunks = s.base+lo, slices.Clone(s.chunks[lo:hi])
	}
	if len(s.chunks) == 0 {
		s.base = 0
	}
}
