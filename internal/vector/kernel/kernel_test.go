package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// floats is a random vector: mostly ordinary numbers of many sizes, at times special ones.
func floats(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v
}

func f32Record(v []float32) []byte {
	var rec []byte
	for _, x := range v {
		rec = binary.LittleEndian.AppendUint32(rec, math.Float32bits(x))
	}
	return rec
}

var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 65504, 65519.996, 65520, 65536, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 1e-40, 1e-38, 0x1p-14, 0x1p-15, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1p-26, 0x3p-25,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// specials is a vector with special numbers; rare says how rare these are, 1 is all.
func specials(rng *rand.Rand, n, rare int) []float32 {
	v := floats(rng, n)
	for i := range v {
		if rng.IntN(rare) == 0 {
			v[i] = special[rng.IntN(len(special))]
		}
	}
	return v
}

// same says whether two sums have the same bits, all NaNs taken as one.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// plain is the order of the package written down: the oracle.
func plain(n int, product func(j int) float32) float32 {
	var l [32]float32
	for j := range (n + 31) / 32 * 32 {
		var p float32
		if j < n {
			p = product(j)
		}
		l[j%32] += p
	}
	for w := 16; w >= 8; w /= 2 {
		if w == 16 {
			for i := range 8 {
				l[i], l[i+16] = l[i]+l[i+8], l[i+16]+l[i+24]
			}
			continue
		}
		for i := range 8 {
			l[i] += l[i+16]
		}
	}
	for w := 4; w >= 1; w /= 2 {
		for i := range w {
			l[i] += l[i+w]
		}
	}
	return l[0]
}

// lengths are all short ones and a few long ones.
func lengths() []int {
	var n []int
	for i := range 301 {
		n = append(n, i)
	}
	return append(n, 384, 511, 768, 1000, 1024, 1536, 4095, 4096, 10007)
}

// place copies b to a place off bytes behind an 8-byte boundary, with nothing behind it.
func place(b []byte, off int) []byte {
	buf := make([]byte, off+len(b))
	copy(buf[off:], b)
	return buf[off:len(buf):len(buf)]
}

// Every float kernel gives the bits of the oracle, with and without assembly, for every length and alignment.
func TestFloatKernels(t *testing.T) {
	for _, asm := range []bool{true, false} {
		if !setASM(t, asm) {
			continue
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range lengths() {
			for round := range 4 {
				q, v := specials(rng, n, []int{1 << 30, 100, 10, 1}[round]), specials(rng, n, []int{1 << 30, 100, 10, 1}[round])
				off := rng.IntN(8)
				checkFloats(t, asm, q, v, off, rng)
			}
		}
	}
}

func checkFloats(t *testing.T, asm bool, q, v []float32, off int, rng *rand.Rand) {
	t.Helper()
	n := len(q)
	check := func(name string, got, want float32) {
		t.Helper()
		if !same(got, want) {
			t.Fatalf("%s, assembly %v, length %d, offset %d: %v (%#08x), want %v (%#08x)", name, asm, n, off,
				got, math.Float32bits(got), want, math.Float32bits(want))
		}
	}
	dot := func(v []float32) float32 { return plain(n, func(j int) float32 { return float32(q[j] * v[j]) }) }
	l2 := func(v []float32) float32 {
		return plain(n, func(j int) float32 { d := q[j] - v[j]; return float32(d * d) })
	}
	check("Dot", Dot(q, v), dot(v))
	check("L2", L2(q, v), l2(v))
	rec := place(f32Record(v), off)
	check("DotF32", DotF32(q, rec), dot(v))
	check("L2F32", L2F32(q, rec), l2(v))

	rec = place(make([]byte, 2*n), off)
	EncodeF16(rec, v)
	dec := make([]float32, n)
	for j, x := range v {
		h := toF16(x)
		if got := binary.LittleEndian.Uint16(rec[2*j:]); got != h {
			t.Fatalf("EncodeF16, assembly %v: %v becomes %#04x, want %#04x", asm, x, got, h)
		}
		dec[j] = fromF16(h)
	}
	got := make([]float32, n)
	DecodeF16(got, rec)
	for j := range got {
		if math.Float32bits(got[j]) != math.Float32bits(dec[j]) {
			t.Fatalf("DecodeF16, assembly %v: %v, want %v", asm, got[j], dec[j])
		}
	}
	check("DotF16", DotF16(q, rec), dot(dec))
	check("L2F16", L2F16(q, rec), l2(dec))

	rec = rec[:n:n]
	lo, step := float32(rng.NormFloat64()), float32(rng.Float64())
	if rng.IntN(8) == 0 {
		lo, step = special[rng.IntN(len(special))], special[rng.IntN(len(special))]
	}
	for j := range rec {
		rec[j] = byte(rng.Uint32())
		p := float32(step * float32(rec[j]))
		dec[j] = lo + p
	}
	check("DotU8", DotU8(q, rec, lo, step), dot(dec))
	check("L2U8", L2U8(q, rec, lo, step), l2(dec))
	check("Dot after decoding", Dot(q, dec), dot(dec))
}

// Bits written down, so that machines agree with each other and not only each with itself. The sums change if a product
// is fused with a sum or if lanes are added in another order.
func TestBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	n := 1003
	q, v, u := make([]float32, n), make([]float32, n), make([]byte, n)
	for i := range q {
		q[i], v[i] = float32(int32(rng.Uint32()))/(1<<30), float32(int32(rng.Uint32()))/(1<<30)
		u[i] = byte(rng.Uint32())
	}
	half := make([]byte, 2*n)
	EncodeF16(half, v)
	for _, asm := range []bool{true, false} {
		if !setASM(t, asm) {
			continue
		}
		for _, c := range []struct {
			name string
			got  float32
			want uint32
		}{
			{"Dot", Dot(q, v), 0x429505a4},
			{"L2", L2(q, v), 0x451e2407},
			{"DotF16", DotF16(q, half), 0x429505ec},
			{"L2F16", L2F16(q, half), 0x451e2492},
			{"DotU8", DotU8(q, u, -1.3, 0.011), 0xc0cbfd6c},
			{"L2U8", L2U8(q, u, -1.3, 0.011), 0x44fff495},
		} {
			if got := math.Float32bits(c.got); got != c.want {
				t.Errorf("%s, assembly %v: %#08x, want %#08x", c.name, asm, got, c.want)
			}
		}
	}
}

// Every half float decodes to its value and is found again by encoding it, whatever way is taken.
func TestHalfRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		v := fromF16(uint16(h))
		e, f := h>>10&31, h&1023
		want := math.Ldexp(1+float64(f)/1024, e-15)
		switch {
		case e == 31 && f != 0:
			if v == v {
				t.Fatalf("%#04x is %v, not NaN", h, v)
			}
			continue
		case e == 31:
			want = math.Inf(1)
		case e == 0:
			want = math.Ldexp(float64(f), -24)
		}
		if h>>15 == 1 {
			want = -want
		}
		if float64(v) != want || math.Signbit(float64(v)) != math.Signbit(want) {
			t.Fatalf("%#04x is %v, want %v", h, v, want)
		}
		if got := toF16(v); got != uint16(h) {
			t.Fatalf("%#04x comes back as %#04x", h, got)
		}
	}
}

// Rounding to a half float takes the nearest, at a tie the even one; checked by distance around every boundary.
func TestHalfRounding(t *testing.T) {
	for h := range 0x7bff { // up to the last pair of finite ones
		a, b := float64(fromF16(uint16(h))), float64(fromF16(uint16(h+1)))
		mid := float32((a + b) / 2) // exact: a half float has 11 bits
		even := uint16(h + h&1)
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{math.Nextafter32(mid, 0), uint16(h)},
			{mid, even},
			{math.Nextafter32(mid, 1e9), uint16(h + 1)},
		} {
			if got := toF16(c.x); got != c.want {
				t.Fatalf("%v becomes %#04x, want %#04x", c.x, got, c.want)
			}
			if got := toF16(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v becomes %#04x, want %#04x", -c.x, got, c.want|0x8000)
			}
		}
	}
}

// The conversions of all half floats, and of floats over the whole range, are the same with and without assembly.
func TestHalfConversionsAgree(t *testing.T) {
	if !setASM(t, true) {
		t.Skip("no assembly")
	}
	all := make([]byte, 0, 1<<17)
	for h := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(h))
	}
	a, b := make([]float32, 1<<16), make([]float32, 1<<16)
	DecodeF16(a, all)
	decodeF16Scalar(b, all)
	for h := range a {
		if math.Float32bits(a[h]) != math.Float32bits(b[h]) {
			t.Fatalf("%#04x: %#08x with assembly, %#08x without", h, math.Float32bits(a[h]), math.Float32bits(b[h]))
		}
	}
	rng := rand.New(rand.NewPCG(3, 3))
	x, y := make([]byte, 1<<17), make([]byte, 1<<17)
	for range 16 {
		for i := range a {
			a[i] = math.Float32frombits(rng.Uint32())
		}
		EncodeF16(x, a)
		encodeF16Scalar(y, a)
		for i := range a {
			if g, w := binary.LittleEndian.Uint16(x[2*i:]), binary.LittleEndian.Uint16(y[2*i:]); g != w {
				t.Fatalf("%#08x: %#04x with assembly, %#04x without", math.Float32bits(a[i]), g, w)
			}
		}
	}
}

// signed is a random code; when extreme, made of the ends of the range only.
func signed(rng *rand.Rand, n int, extreme bool) []int8 {
	v := make([]int8, n)
	for i := range v {
		v[i] = int8(rng.Uint32())
		if extreme {
			v[i] = []int8{-128, -128, -128, 127, -127}[rng.IntN(5)]
		}
	}
	return v
}

func plainI8(a, b []int8) int32 {
	var s int64
	for j := range a {
		s += int64(a[j]) * int64(b[j])
	}
	return int32(s)
}

func TestDotI8(t *testing.T) {
	for _, asm := range []bool{true, false} {
		if !setASM(t, asm) {
			continue
		}
		rng := rand.New(rand.NewPCG(4, 4))
		for _, n := range append(lengths(), MaxI8) {
			for _, extreme := range []bool{false, true} {
				off := rng.IntN(8)
				stride := n + rng.IntN(5)
				q, codes := signed(rng, n, extreme), signed(rng, off+9*stride+n, extreme)[off:]
				if got, want := DotI8(q, codes), plainI8(q, codes); got != want {
					t.Fatalf("assembly %v, length %d: %d, want %d", asm, n, got, want)
				}
				ids := make([]uint32, rng.IntN(12))
				for i := range ids {
					ids[i] = uint32(rng.IntN(10))
				}
				out := make([]int32, len(ids)+1)
				out[len(ids)] = 77
				DotI8List(q, codes, stride, ids, out)
				for i, id := range ids {
					if want := plainI8(q, codes[stride*int(id):][:n]); out[i] != want {
						t.Fatalf("assembly %v, length %d, code %d of %d: %d, want %d", asm, n, i, len(ids), out[i], want)
					}
				}
				if out[len(ids)] != 77 {
					t.Fatal("DotI8List wrote behind its results")
				}
			}
		}
	}
}

// The largest sum fits.
func TestDotI8Bound(t *testing.T) {
	a := slices.Repeat([]int8{-128}, MaxI8)
	for _, asm := range []bool{true, false} {
		if !setASM(t, asm) {
			continue
		}
		if got := DotI8(a, a); got != 1<<30 {
			t.Fatalf("assembly %v: %d, want 2^30", asm, got)
		}
	}
}

func TestHamming(t *testing.T) {
	for _, asm := range []bool{true, false} {
		if !setASM(t, asm) {
			continue
		}
		rng := rand.New(rand.NewPCG(5, 5))
		for _, n := range lengths() {
			for round := range 3 {
				a, b := place(make([]byte, n), rng.IntN(8)), place(make([]byte, n), rng.IntN(8))
				want := 0
				for j := range a {
					a[j], b[j] = byte(rng.Uint32()), byte(rng.Uint32())
					if round == 0 {
						a[j], b[j] = 0xff, 0
					}
					for k := range 8 {
						want += int((a[j] ^ b[j]) >> k & 1)
					}
				}
				if got := Hamming(a, b); got != want {
					t.Fatalf("assembly %v, length %d: %d, want %d", asm, n, got, want)
				}
			}
		}
	}
}

// An argument that is too short ends in a panic of Go, never in a read behind it.
func TestShortArguments(t *testing.T) {
	// All have the capacity that they lack in length.
	q, c, b, out := make([]float32, 40), make([]int8, 60), make([]byte, 160), make([]int32, 4)
	for name, f := range map[string]func(){
		"Dot":         func() { Dot(q, q[:39]) },
		"L2":          func() { L2(q, q[:39]) },
		"DotF32":      func() { DotF32(q, b[:159]) },
		"L2F32":       func() { L2F32(q, b[:159]) },
		"DotF16":      func() { DotF16(q, b[:79]) },
		"L2F16":       func() { L2F16(q, b[:79]) },
		"DotU8":       func() { DotU8(q, b[:39], 0, 1) },
		"L2U8":        func() { L2U8(q, b[:39], 0, 1) },
		"EncodeF16":   func() { EncodeF16(b[:79], q) },
		"DecodeF16":   func() { DecodeF16(q, b[:79]) },
		"DotI8":       func() { DotI8(c[:40], c[:39]) },
		"DotI8 long":  func() { DotI8(make([]int8, MaxI8+1), make([]int8, MaxI8+1)) },
		"DotI8List 1": func() { DotI8List(c[:20], c[:40], 1, []uint32{0, 1, 2, 21}, out) },
		"DotI8List 2": func() { DotI8List(c[:20], c[:40], 1, []uint32{21}, out) },
		"DotI8List 3": func() { DotI8List(c[:20], c[:40], 1, []uint32{1, 1}, out[:1]) },
		"DotI8List 4": func() { DotI8List(c[:20], c[:40], -1, []uint32{1, 1, 1, 1}, out) },
		"DotI8List 5": func() { DotI8List(c[:8], c[:40], 1, []uint32{33}, out) },
		"Hamming":     func() { Hamming(b[:40], b[:39]) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestAllocs(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	n := 133
	q, v := floats(rng, n), floats(rng, n)
	rec, half, c := f32Record(v), make([]byte, 2*n), signed(rng, n, false)
	ids, out := make([]uint32, 7), make([]int32, 7)
	if got := testing.AllocsPerRun(10, func() {
		sinkF = Dot(q, v) + L2(q, v) + DotF32(q, rec) + L2F32(q, rec)
		EncodeF16(half, v)
		sinkF += DotF16(q, half) + L2F16(q, half) + DotU8(q, rec, 0, 1) + L2U8(q, rec, 0, 1)
		DecodeF16(v, half)
		sinkI = DotI8(c, c)
		DotI8List(c, c, 0, ids, out)
		sinkN = Hamming(rec, rec)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// Any bytes as numbers: the ways agree.
func FuzzKernels(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(f32Record(special), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, off uint8) {
		n := min(len(b)/8, 4096)
		q, v := make([]float32, n), make([]float32, n)
		decodeF32(q, b)
		decodeF32(v, b[4*n:])
		rng := rand.New(rand.NewPCG(uint64(off), 7))
		for _, asm := range []bool{true, false} {
			if !setASM(t, asm) {
				continue
			}
			checkFloats(t, asm, q, v, int(off%8), rng)
			c := Int8s(b)
			h := len(b) / 2
			if h <= MaxI8 {
				if got, want := DotI8(c[:h], c[h:]), plainI8(c[:h], c[h:]); got != want {
					t.Fatalf("DotI8, assembly %v, length %d: %d, want %d", asm, h, got, want)
				}
			}
			if got, want := Hamming(b[:h], b[h:]), hammingScalar(b[:h], b[h:]); got != want {
				t.Fatalf("Hamming, assembly %v, length %d: %d, want %d", asm, h, got, want)
			}
		}
	})
}
