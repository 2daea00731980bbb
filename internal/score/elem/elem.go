// Package elem holds the elementary functions of binary64 with the same bits on every machine.
//
// The standard library does not promise that: math.Exp and math.Log are assembly on some architectures (exp on amd64, arm64, s390x and
// others, log on amd64 and s390x, nearly all of the rest on s390x), and the portable code is compiled with fused multiply-add where the
// machine has it. This package uses only what IEEE 754 rounds correctly: + − × ÷, square root and math.FMA, which is exact on every
// machine, with every product rounded by a conversion, so that no compiler may fuse it with what it is added to.
//
// Intermediate results are sums of two binary64 numbers (Dekker 1971, Shewchuk 1997), so a result is almost always the exact value
// rounded: errors stay below 0.55 units in the last place, those of subnormal results of Exp and Pow below 1. Special
// cases (zeros, infinities, NaN) are those of C's Annex F.
//
// All functions are pure.
package elem

import "math"

// dd is an unevaluated sum h + l with |l| at most half a unit in the last place of h.
type dd struct{ h, l float64 }

// sum2 returns a + b exactly.
func sum2(a, b float64) dd {
	s := a + b
	t := s - a
	return dd{s, (a - (s - t)) + (b - t)}
}

// fast2 returns a + b exactly if |a| ≥ |b| or a is 0.
func fast2(a, b float64) dd {
	s := a + b
	return dd{s, b - (s - a)}
}

// mul2 returns a·b exactly, but for underflow.
func mul2(a, b float64) dd {
	p := float64(a * b)
	return dd{p, math.FMA(a, b, -p)}
}

func (a dd) neg() dd { return dd{-a.h, -a.l} }

func (a dd) add(b dd) dd {
	s := sum2(a.h, b.h)
	t := sum2(a.l, b.l)
	s = fast2(s.h, s.l+t.h)
	return fast2(s.h, s.l+t.l)
}

func (a dd) mul(b dd) dd {
	p := mul2(a.h, b.h)
	return fast2(p.h, p.l+(float64(a.h*b.l)+float64(a.l*b.h)))
}

func (a dd) scale(f float64) dd {
	p := mul2(a.h, f)
	return fast2(p.h, p.l+float64(a.l*f))
}

func (a dd) div(b dd) dd {
	q := a.h / b.h
	r := math.FMA(-q, b.h, a.h) + (a.l - float64(q*b.l))
	return fast2(q, r/b.h)
}

func (a dd) sqrt() dd {
	if a.h <= 0 {
		return dd{}
	}
	s := math.Sqrt(a.h)
	r := math.FMA(-s, s, a.h) + a.l
	return fast2(s, r/float64(2*s))
}

// pow2 returns 2^k for −1022 ≤ k ≤ 1023.
func pow2(k int) float64 { return math.Float64frombits(uint64(k+1023) << 52) }

// ldexp returns x·2^k, |k| < 4000, rounded once where the result is normal.
func ldexp(x float64, k int) float64 {
	for k > 1023 {
		x = float64(x * pow2(1023))
		k -= 1023
	}
	for k < -1022 {
		x = float64(x * pow2(-1022))
		k += 1022
	}
	return float64(x * pow2(k))
}

// reduceExp returns j, k and r with x = (32k + j)·ln2/32 + r, 0 ≤ j < 32 and |r| a little above ln2/64 at most. |x| < 1100.
func reduceExp(x dd) (j, k int, r dd) {
	const round = 0x1.8p52 // adding it rounds to an integer
	n := float64(x.h*invLn2By32) + round
	n -= round
	i := int(n)
	s := sum2(x.h-float64(n*ln2By32p1), -float64(n*ln2By32p2))
	return i & 31, i >> 5, fast2(s.h, s.l+(x.l-float64(n*ln2By32p3)))
}

// smallExpm1 returns e^r − 1 for |r| of reduceExp, from its Taylor series.
func smallExpm1(r dd) dd {
	x := r.h
	p := float64(x*(1.0/5040)) + 1.0/720
	p = float64(x*p) + 1.0/120
	p = float64(x*p) + 1.0/24
	p = float64(x*p) + 1.0/6
	p = float64(x*p) + 0.5
	return fast2(x, float64(float64(x*x)*p)+(r.l+float64(x*r.l)))
}

// exp2d returns e^x as (m)·2^k with m between 0.98 and 2.03.
func exp2d(x dd) (m dd, k int) {
	j, k, r := reduceExp(x)
	p := smallExpm1(r)
	t := &exp2Table[j]
	q := mul2(t[0], p.h)
	s := fast2(t[0], q.h)
	return fast2(s.h, s.l+(q.l+(t[1]+(float64(t[0]*p.l)+float64(t[1]*p.h))))), k
}

const (
	maxExp = 709.79  // e^x is +Inf above
	minExp = -745.14 // e^x is 0 below
)

// Exp returns e^x.
func Exp(x float64) float64 {
	switch {
	case x != x || x > maxExp:
		return x * math.Inf(1) // NaN or +Inf
	case x < minExp:
		return 0
	}
	// exp2d with less care: the parts that are small beside the result are no sums.
	const round = 0x1.8p52
	n := float64(x*invLn2By32) + round
	n -= round
	i := int(n)
	r := (x - float64(n*ln2By32p1)) - float64(n*(ln2By32p2+ln2By32p3))
	p := float64(r*(1.0/5040)) + 1.0/720
	p = float64(r*p) + 1.0/120
	p = float64(r*p) + 1.0/24
	p = float64(r*p) + 1.0/6
	p = float64(r*p) + 0.5
	p = float64(float64(r*r)*p) + r
	t := &exp2Table[i&31]
	m, k := t[0]+(float64(t[0]*p)+t[1]), i>>5
	if -1022 <= k && k <= 1023 {
		return float64(m * pow2(k))
	}
	return ldexp(m, k)
}

// expm1d returns e^x − 1 for |x| < 700.
func expm1d(x dd) dd {
	if math.Abs(x.h) < 0.0108 {
		return smallExpm1(x)
	}
	m, k := exp2d(x)
	return dd{ldexp(m.h, k), ldexp(m.l, k)}.add(dd{-1, 0})
}

// Expm1 returns e^x − 1.
func Expm1(x float64) float64 {
	switch {
	case x == 0:
		return x
	case x != x || x > 690:
		return Exp(x)
	case x < -60:
		return -1
	}
	return expm1d(dd{x, 0}).h
}

// split returns m and k with x = m·2^k and √½ ≤ m < √2 for a finite positive x.
func split(x float64) (m float64, k int) {
	b := math.Float64bits(x)
	if b < 1<<52 {
		b = math.Float64bits(float64(x * 0x1p54))
		k = -54
	}
	k += int(b>>52) - 1023
	m = math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m = float64(m * 0.5)
		k++
	}
	return m, k
}

// ratio returns (m−1)/(m+1) for √½ ≤ m < √2; it is 0.1716 at most. ln m is twice its area hyperbolic tangent.
func ratio(m float64) dd {
	f := m - 1 // exact
	g := sum2(m, 1)
	q, inv := f/g.h, 1/g.h
	return dd{q, float64((math.FMA(-q, g.h, f) - float64(q*g.l)) * inv)}
}

// artanhTail returns (artanh s / s − 1 − z/3)/z² for z = s² from the Taylor series.
func artanhTail(z float64) float64 {
	p := float64(z*(1.0/27)) + 1.0/25
	p = float64(z*p) + 1.0/23
	p = float64(z*p) + 1.0/21
	p = float64(z*p) + 1.0/19
	p = float64(z*p) + 1.0/17
	p = float64(z*p) + 1.0/15
	p = float64(z*p) + 1.0/13
	p = float64(z*p) + 1.0/11
	p = float64(z*p) + 1.0/9
	p = float64(z*p) + 1.0/7
	return float64(z*p) + 1.0/5
}

// logm returns ln m for √½ ≤ m < √2 with a relative error below 2⁻⁵⁸.
func logm(m float64) dd {
	s := ratio(m)
	z := float64(s.h * s.h)
	w := float64(z * (float64(z*artanhTail(z)) + 1.0/3))
	return fast2(float64(2*s.h), float64(2*(float64(s.h*w)+s.l)))
}

// fineLogm returns ln m for √½ ≤ m < √2 with a relative error below 2⁻⁶⁴: Pow multiplies it.
func fineLogm(m float64) dd {
	r := ratio(m)
	z := mul2(r.h, r.h)
	z.l += float64(2 * float64(r.h*r.l))
	x := z.h
	u := mul2(x, thirdHi)
	u.l += float64(x*thirdLo) + float64(z.l*thirdHi)
	w := fast2(u.h, float64(float64(x*x)*artanhTail(x))+u.l)
	v := mul2(r.h, w.h)
	s := fast2(r.h, v.h)
	s = fast2(s.h, s.l+(v.l+(r.l+(float64(r.h*w.l)+float64(r.l*w.h)))))
	return dd{float64(2 * s.h), float64(2 * s.l)}
}

// logd returns ln x for a finite positive x.
func logd(x float64) dd {
	m, k := split(x)
	return addLn2(k, logm(m))
}

// addLn2 returns k·ln 2 + l.
func addLn2(k int, l dd) dd {
	if k == 0 {
		return l
	}
	n := float64(k)
	s := sum2(float64(n*ln2p1), l.h)
	return fast2(s.h, s.l+(l.l+float64(n*ln2p2)+float64(n*ln2p3)))
}

// logd1 returns ln(x.h + x.l) for a positive x.
func logd1(x dd) dd {
	r := logd(x.h)
	s := fast2(r.h, x.l/x.h)
	return fast2(s.h, s.l+r.l)
}

// Log returns the natural logarithm of x.
func Log(x float64) float64 {
	if r, ok := logSpecial(x); ok {
		return r
	}
	return logd(x).h
}

func logSpecial(x float64) (float64, bool) {
	switch {
	case x == 0:
		return math.Inf(-1), true
	case x != x || x > math.MaxFloat64:
		return x, true
	case x < 0:
		return math.NaN(), true
	}
	return 0, false
}

// Log2 returns the binary logarithm of x; it is exact for powers of two.
func Log2(x float64) float64 {
	if r, ok := logSpecial(x); ok {
		return r
	}
	m, k := split(x)
	return logm(m).mul(dd{log2EHi, log2ELo}).add(dd{float64(k), 0}).h
}

// Log10 returns the decimal logarithm of x; it is exact for powers of ten.
func Log10(x float64) float64 {
	if r, ok := logSpecial(x); ok {
		return r
	}
	return logd(x).mul(dd{log10EHi, log10ELo}).h
}

// log1pd returns ln(1 + x) for finite x above −1.
func log1pd(x dd) dd {
	y := sum2(1, x.h)
	if y.h == 1 { // |x| ≤ 2⁻⁵³
		return x
	}
	return logd1(fast2(y.h, y.l+x.l))
}

// Log1p returns ln(1 + x).
func Log1p(x float64) float64 {
	switch {
	case x == -1:
		return math.Inf(-1)
	case x != x || x > math.MaxFloat64 || x == 0:
		return x
	case x < -1:
		return math.NaN()
	}
	return log1pd(dd{x, 0}).h
}

// Pow returns x to the power of y.
func Pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case y == 1:
		return x
	case y == 2:
		return float64(x * x)
	case x != x || y != y:
		return math.NaN()
	case y == 0.5 && x > 0:
		return math.Sqrt(x)
	}
	whole := math.Trunc(y) == y
	odd := whole && math.Abs(y) < 1<<53 && int64(y)&1 == 1
	sign := 1.0
	if odd && math.Signbit(x) {
		sign = -1
	}
	a := math.Abs(x)
	switch {
	case x == 0 || a > math.MaxFloat64:
		if (x == 0) == (y > 0) {
			return sign * 0
		}
		return sign * math.Inf(1)
	case math.Abs(y) > math.MaxFloat64:
		switch {
		case a == 1:
			return 1
		case (a > 1) == (y > 0):
			return math.Inf(1)
		}
		return 0
	case x < 0 && !whole:
		return math.NaN()
	case math.Abs(y) > 0x1p64:
		// a differs from 1 by 2⁻⁵³ at least, so that y·ln a is beyond ±1000 unless a is 1.
		if a == 1 {
			return 1
		}
		if (a > 1) == (y > 0) {
			return math.Inf(1)
		}
		return 0
	}
	b, n := split(a)
	p := addLn2(n, fineLogm(b)).scale(y)
	switch {
	case p.h > maxExp:
		return sign * math.Inf(1)
	case p.h < minExp:
		return sign * 0
	}
	m, k := exp2d(p)
	return float64(sign * ldexp(m.h, k))
}

// Cbrt returns the cube root of x.
func Cbrt(x float64) float64 {
	if x == 0 || x-x != 0 {
		return x
	}
	a, unit := math.Abs(x), 1.0
	switch {
	case a < 0x1p-700:
		a, unit = float64(a*0x1p300), 0x1p-100
	case a > 0x1p700:
		a, unit = float64(a*0x1p-300), 0x1p100
	}
	l := logd(a)
	m, k := exp2d(dd{l.h / 3, l.l / 3})
	y := ldexp(m.h, k)
	// One step of Newton's method, with the cube taken exactly enough.
	c := mul2(y, y).scale(y)
	y -= ((c.h - a) + c.l) / float64(3*float64(y*y))
	return math.Copysign(float64(y*unit), x)
}

// Sinh returns the hyperbolic sine of x.
func Sinh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-28 || x-x != 0:
		return x
	case a > 711:
		return math.Copysign(math.Inf(1), x)
	case a > 40:
		m, k := exp2d(dd{a, 0})
		return math.Copysign(ldexp(m.h, k-1), x)
	}
	t := expm1d(dd{a, 0})
	s := t.add(t.div(t.add(dd{1, 0})))
	return math.Copysign(s.h/2, x)
}

// Cosh returns the hyperbolic cosine of x.
func Cosh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x:
		return x
	case a > 711:
		return math.Inf(1)
	}
	m, k := exp2d(dd{a, 0})
	if a > 40 {
		return ldexp(m.h, k-1)
	}
	e := dd{ldexp(m.h, k), ldexp(m.l, k)}
	return e.add(dd{1, 0}.div(e)).h / 2
}

// Tanh returns the hyperbolic tangent of x.
func Tanh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-28 || x != x:
		return x
	case a > 22:
		return math.Copysign(1, x)
	}
	t := expm1d(dd{float64(2 * a), 0})
	return math.Copysign(t.div(t.add(dd{2, 0})).h, x)
}

// Asinh returns the inverse hyperbolic sine of x.
func Asinh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-28 || x-x != 0:
		return x
	case a > 0x1p60: // the 1 under the root is lost
		return math.Copysign(logd(a).add(ln2()).h, x)
	}
	// ln(a + √(a²+1)) = ln(1 + (a + a²/(1 + √(a²+1))))
	z := mul2(a, a)
	r := z.add(dd{1, 0}).sqrt().add(dd{1, 0})
	return math.Copysign(log1pd(z.div(r).add(dd{a, 0})).h, x)
}

func ln2() dd { return fast2(ln2p1, ln2p2+ln2p3) }

// Acosh returns the inverse hyperbolic cosine of x.
func Acosh(x float64) float64 {
	switch {
	case x < 1 || x != x:
		return math.NaN()
	case x > math.MaxFloat64:
		return x
	case x > 0x1p60:
		return logd(x).add(ln2()).h
	}
	// With t = x − 1, exact enough as a sum: ln(x + √(x²−1)) = ln(1 + (t + √(t·(t+2))))
	t := sum2(x, -1)
	return log1pd(t.mul(t.add(dd{2, 0})).sqrt().add(t)).h
}

// Atanh returns the inverse hyperbolic tangent of x.
func Atanh(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a < 0x1p-28:
		return x
	case a == 1:
		return math.Copysign(math.Inf(1), x)
	case a > 1 || x != x:
		return math.NaN()
	}
	return math.Copysign(log1pd(dd{float64(2 * a), 0}.div(sum2(1, -a))).h/2, x)
}
