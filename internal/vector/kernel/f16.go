package kernel

import "math"

// Half floats (IEEE 754 binary16): sign, 5 bits of exponent biased by 15, 10 of fraction. The conversions give the bits
// of the instructions VCVTPH2PS and VCVTPS2PH with rounding to nearest even.

// fromF16 is the value of a half float; it is exact. A NaN keeps its fraction and becomes quiet.
func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	rest := uint32(h & 0x7fff)
	switch {
	case rest >= 0x7c00: // infinity, NaN
		b := sign | 0x7f800000 | rest&0x3ff<<13
		if rest > 0x7c00 {
			b |= 1 << 22
		}
		return math.Float32frombits(b)
	case rest >= 0x0400:
		return math.Float32frombits(sign | (rest<<13 + (127-15)<<23))
	default: // subnormal: rest units of 2^-24
		v := float32(rest) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	}
}

// toF16 is the half float nearest to x, ties to even; see [EncodeF16].
func toF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // from 65,520 on, half way to 2^16: infinity
		return sign | 0x7c00
	case b >= 0x38800000: // normal: from 2^-14 on
		b -= (127 - 15) << 23
		return sign | uint16((b+0xfff+b>>13&1)>>13)
	case b > 0x33000000: // subnormal: over 2^-25, half a unit
		// The fraction with its hidden bit, in units of 2^(e-150), is shifted down to units of 2^-24.
		shift := 126 - b>>23
		m := b&0x7fffff | 1<<23
		return sign | uint16((m+(1<<(shift-1)-1)+m>>shift&1)>>shift)
	default:
		return sign
	}
}
