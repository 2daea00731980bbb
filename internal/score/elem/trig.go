package elem

import (
	"math"
	"math/bits"
)

// reduceTrig returns n modulo 4 and r with x = n·π/2 + r and |r| a little above π/4 at most, for a finite x.
func reduceTrig(x float64) (n int, r dd) {
	a := math.Abs(x)
	switch {
	case a <= 0.785398163397448:
		return 0, dd{x, 0}
	case a < 1<<20:
		const round = 0x1.8p52
		f := float64(x*twoByPi) + round
		f -= round
		// Cody and Waite: the parts of π/2 have 33 bits and f has 20, so products are exact; so is the first difference.
		s := sum2(x-float64(f*halfPi1), -float64(f*halfPi2))
		t := sum2(s.h, -float64(f*halfPi3))
		u := sum2(t.h, s.l+t.l)
		return int(f) & 3, fast2(u.h, u.l-float64(f*halfPi4))
	}
	n, r = reduceHuge(a)
	if x < 0 {
		return -n & 3, r.neg()
	}
	return n, r
}

// reduceHuge is reduceTrig for x ≥ 2^20, after Payne and Hanek: x·2/π modulo 4 from those bits of 2/π that matter.
func reduceHuge(x float64) (n int, r dd) {
	b := math.Float64bits(x)
	m := b&(1<<52-1) | 1<<52
	e := int(b>>52) - 1023 - 52 // x = m·2^e, e ≥ −32
	// Bits of 2/π that stand for 2^(2−e) and more give multiples of 4. Take 256 bits from there (192 that count and 64 to shift in).
	from := e - 2 // the first bit that counts is number from+1 after the point
	var w [4]uint64
	at, sh := 0, 0
	if from > 0 {
		at, sh = from/64, from%64
	}
	for i := range w {
		w[i] = twoByPiBits[at+i] << sh
		if sh > 0 {
			w[i] |= twoByPiBits[at+i+1] >> (64 - sh)
		}
	}
	// p = m·w modulo 2^256; as a fraction it is x·2/π / 4 modulo 1, up to the shift when from is negative.
	var p [4]uint64
	var carry uint64
	for i := 3; i >= 0; i-- {
		hi, lo := bits.Mul64(m, w[i])
		var c uint64
		p[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
	if from < 0 {
		// m·w has weight 2^(e) / 2^256: bring the point to two bits below the top.
		s := uint(-from)
		top := carry
		for i := 0; i < 4; i++ {
			v := p[i]
			p[i] = v>>s | top<<(64-s)
			top = v
		}
	}
	n = int(p[0] >> 62)
	f := [3]uint64{p[0]<<2 | p[1]>>62, p[1]<<2 | p[2]>>62, p[2]<<2 | p[3]>>62} // the fraction of x·2/π
	neg := f[0]>>63 == 1                                                       // above ½: go to the next multiple
	if neg {
		n++
		var c uint64
		f[2], c = bits.Add64(^f[2], 1, 0)
		f[1], c = bits.Add64(^f[1], 0, c)
		f[0], _ = bits.Add64(^f[0], 0, c)
	}
	// No binary64 comes so near to a multiple of π/2 that more than 62 leading bits are 0, so 130 bits are left.
	z := bits.LeadingZeros64(f[0])
	if z > 0 {
		f[0] = f[0]<<z | f[1]>>(64-z)
		f[1] = f[1]<<z | f[2]>>(64-z)
	}
	h := float64(float64(f[0]>>11) * 0x1p-53)
	l := float64(float64(f[0]<<53>>1|f[1]>>12) * 0x1p-116)
	q := fast2(float64(h*pow2(-z)), float64(l*pow2(-z))).mul(dd{halfPiHi, halfPiLo})
	if neg {
		q = q.neg()
	}
	return n & 3, q
}

// sind returns sin r for |r| ≤ π/4, from its Taylor series.
func sind(r dd) dd {
	x := r.h
	z := float64(x * x)
	p := float64(z*(1.0/355687428096000)) - 1.0/1307674368000
	p = float64(z*p) + 1.0/6227020800
	p = float64(z*p) - 1.0/39916800
	p = float64(z*p) + 1.0/362880
	p = float64(z*p) - 1.0/5040
	p = float64(z*p) + 1.0/120
	// r³/6 counts for so much that it is taken as a sum.
	c := mul2(x, x).scale(x).mul(dd{thirdHi / 2, thirdLo / 2})
	s := fast2(x, -c.h)
	return fast2(s.h, s.l+(float64(float64(float64(z*z)*x)*p)-c.l+float64(r.l*(1-float64(0.5*z)))))
}

// cosd returns cos r for |r| ≤ π/4, from its Taylor series.
func cosd(r dd) dd {
	x := r.h
	z := float64(x * x)
	p := float64(z*(-1.0/6402373705728000)) + 1.0/20922789888000
	p = float64(z*p) - 1.0/87178291200
	p = float64(z*p) + 1.0/479001600
	p = float64(z*p) - 1.0/3628800
	p = float64(z*p) + 1.0/40320
	p = float64(z*p) - 1.0/720
	p = float64(z*p) + 1.0/24
	c := mul2(x, x)
	s := fast2(1, -float64(0.5*c.h))
	return fast2(s.h, s.l+(float64(float64(z*z)*p)-float64(0.5*c.l)-float64(x*r.l)))
}

// Sin returns the sine of x radians.
func Sin(x float64) float64 {
	if x == 0 || x-x != 0 {
		return x * (x - x + 1) // ±0, or NaN for an infinity
	}
	n, r := reduceTrig(x)
	var s dd
	if n&1 == 0 {
		s = sind(r)
	} else {
		s = cosd(r)
	}
	if n&2 != 0 {
		return -s.h
	}
	return s.h
}

// Cos returns the cosine of x radians.
func Cos(x float64) float64 {
	if x-x != 0 {
		return math.NaN()
	}
	n, r := reduceTrig(x)
	var s dd
	if n&1 == 0 {
		s = cosd(r)
	} else {
		s = sind(r)
	}
	if n == 1 || n == 2 {
		return -s.h
	}
	return s.h
}

// Tan returns the tangent of x radians.
func Tan(x float64) float64 {
	if x == 0 || x-x != 0 {
		return x * (x - x + 1)
	}
	n, r := reduceTrig(x)
	s, c := sind(r), cosd(r)
	if n&1 == 0 {
		return s.div(c).h
	}
	return -c.div(s).h
}

// atand returns atan(y/x) for 0 ≤ y ≤ x, x not 0.
func atand(y, x dd) dd {
	t := y.div(x)
	j := int(float64(t.h*16) + 0.5)
	var base dd
	if j > 0 {
		c := float64(j) / 16
		base = dd{atanTable[j][0], atanTable[j][1]}
		t = t.add(dd{-c, 0}).div(t.scale(c).add(dd{1, 0}))
	}
	z := float64(t.h * t.h) // at most 1/32²
	p := float64(z*(1.0/13)) - 1.0/11
	p = float64(z*p) + 1.0/9
	p = float64(z*p) - 1.0/7
	p = float64(z*p) + 1.0/5
	p = float64(z*p) - 1.0/3
	return base.add(fast2(t.h, float64(float64(t.h*z)*p)+t.l))
}

// atan2d returns the angle of (x, y) for y ≥ 0, x ≥ 0, not both 0.
func atan2d(y, x dd) dd {
	if y.h <= x.h {
		return atand(y, x)
	}
	return atand(x, y).neg().add(dd{halfPiHi, halfPiLo})
}

// Atan returns the arc tangent of x.
func Atan(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-28 || x != x:
		return x
	case a > 0x1p60:
		return math.Copysign(halfPiHi, x)
	}
	return math.Copysign(atan2d(dd{a, 0}, dd{1, 0}).h, x)
}

// Asin returns the arc sine of x.
func Asin(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-28:
		return x
	case a > 1 || x != x:
		return math.NaN()
	}
	return math.Copysign(atan2d(dd{a, 0}, leg(a)).h, x)
}

// Acos returns the arc cosine of x.
func Acos(x float64) float64 {
	a := math.Abs(x)
	if a > 1 || x != x {
		return math.NaN()
	}
	r := atan2d(leg(a), dd{a, 0})
	if x < 0 {
		r = r.neg().add(dd{piHi, piLo})
	}
	return r.h
}

// leg returns √(1−a²) for 0 ≤ a ≤ 1.
func leg(a float64) dd { return sum2(1, -a).mul(sum2(1, a)).sqrt() }

// Atan2 returns the angle of the point (x, y), −π to π.
func Atan2(y, x float64) float64 {
	a, b := math.Abs(y), math.Abs(x)
	var r dd
	switch {
	case x != x || y != y:
		return math.NaN()
	case a == 0 || b > math.MaxFloat64 && a <= math.MaxFloat64:
		// r is 0
	case b == 0 || a > math.MaxFloat64 && b <= math.MaxFloat64:
		r = dd{halfPiHi, halfPiLo}
	case a > math.MaxFloat64: // both are infinite
		r = dd{halfPiHi / 2, halfPiLo / 2}
	default:
		// Keep clear of overflow and underflow in the division: an angle below 2⁻¹⁰⁰⁰ only needs the quotient.
		_, e := math.Frexp(a)
		_, f := math.Frexp(b)
		switch {
		case e-f > 900:
			r = dd{halfPiHi, halfPiLo}
		case f-e > 900:
			if !math.Signbit(x) {
				return y / x
			}
		default:
			s := max(e, f)
			r = atan2d(dd{ldexp(a, -s), 0}, dd{ldexp(b, -s), 0})
		}
	}
	if math.Signbit(x) {
		r = r.neg().add(dd{piHi, piLo})
	}
	return math.Copysign(r.h, y)
}
