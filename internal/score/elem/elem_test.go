package elem

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed testdata/values.txt
var values []byte

var unary = map[string]struct {
	f   func(float64) float64
	std func(float64) float64
}{
	"exp": {Exp, math.Exp}, "expm1": {Expm1, math.Expm1}, "log": {Log, math.Log}, "log2": {Log2, math.Log2}, "log10": {Log10, math.Log10},
	"log1p": {Log1p, math.Log1p}, "sin": {Sin, math.Sin}, "cos": {Cos, math.Cos}, "tan": {Tan, math.Tan}, "asin": {Asin, math.Asin},
	"acos": {Acos, math.Acos}, "atan": {Atan, math.Atan}, "sinh": {Sinh, math.Sinh}, "cosh": {Cosh, math.Cosh}, "tanh": {Tanh, math.Tanh},
	"asinh": {Asinh, math.Asinh}, "acosh": {Acosh, math.Acosh}, "atanh": {Atanh, math.Atanh}, "cbrt": {Cbrt, math.Cbrt},
}

var twoArgs = map[string]struct {
	f   func(a, b float64) float64
	std func(a, b float64) float64
}{"pow": {Pow, math.Pow}, "atan2": {Atan2, math.Atan2}}

// ulps returns how many binary64 numbers lie between a and b.
func ulps(a, b float64) uint64 {
	if a == b || a != a && b != b {
		return 0
	}
	if a != a || b != b {
		return math.MaxUint64
	}
	order := func(x float64) uint64 {
		u := math.Float64bits(x)
		if u>>63 != 0 {
			return ^u
		}
		return u | 1<<63
	}
	x, y := order(a), order(b)
	return max(x, y) - min(x, y)
}

// TestValuesAreRounded holds every function against values computed with 400 bits.
func TestValuesAreRounded(t *testing.T) {
	wrong, all := map[string]int{}, map[string]int{}
	in := bufio.NewScanner(bytes.NewReader(values))
	for in.Scan() {
		line := in.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		part := strings.Fields(line)
		var n []float64
		for _, p := range part[1:] {
			u, err := strconv.ParseUint(p, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			n = append(n, math.Float64frombits(u))
		}
		want := n[len(n)-1]
		var got float64
		if f, ok := unary[part[0]]; ok {
			got = f.f(n[0])
		} else {
			got = twoArgs[part[0]].f(n[0], n[1])
		}
		all[part[0]]++
		switch d := ulps(got, want); {
		case d > 1:
			t.Errorf("%s%v = %v, want %v (%d ulps)", part[0], n[:len(n)-1], got, want, d)
		case d == 1:
			wrong[part[0]]++
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	for f, n := range wrong {
		if n*25 > all[f] {
			t.Errorf("%s: %d of %d values are not the nearest", f, n, all[f])
		}
	}
}

// TestAgreesWithTheStandardLibrary looks for blunders where no exact value is at hand: Go's functions are good to an ulp or a few.
func TestAgreesWithTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	special := []float64{0, math.Copysign(0, -1), 1, -1, 2, 0.5, -0.5, 3, -3, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, -math.MaxFloat64, 5e-324, 1e-310, 0x1p53, 0x1p64, 0x1p65, 709.8, -745.2, 710, 712}
	pick := func() float64 {
		switch r.IntN(4) {
		case 0:
			return special[r.IntN(len(special))]
		case 1:
			return float64(r.IntN(41) - 20)
		case 2:
			return (r.Float64() - 0.5) * math.Exp(r.Float64()*10)
		}
		return math.Float64frombits(r.Uint64())
	}
	near := func(got, want float64) bool {
		// Results near the subnormals may be rounded twice; math.Sin, Cos and Tan lose digits near multiples of π/2.
		return ulps(got, want) <= 8 || math.Abs(got-want) < 1e-300 || math.Abs(got-want) < 1e-9*math.Abs(want)
	}
	const n = 30_000
	for range n {
		x, y := pick(), pick()
		for name, f := range unary {
			if x != 0 && math.Abs(x) < 0x1p-1022 {
				continue // Go's logarithm in assembly for amd64 takes subnormals for larger numbers
			}
			if a := math.Abs(x); (name == "sinh" || name == "cosh") && a > 709.78 && a < 710.5 {
				continue // math.Sinh and math.Cosh overflow too early
			}
			got, want := f.f(x), f.std(x)
			if !near(got, want) {
				t.Fatalf("%s(%v) = %v, math has %v", name, x, got, want)
			}
			if got == 0 && want == 0 && math.Signbit(got) != math.Signbit(want) {
				t.Fatalf("%s(%v) = %v, math has %v: sign of zero", name, x, got, want)
			}
		}
		for name, f := range twoArgs {
			if name == "atan2" && x != 0 && x/y == 0 || name == "pow" && x != 0 && math.Abs(x) < 0x1p-1022 {
				continue // math.Atan2 loses the sign of an angle that is nearly ±π; math.Pow uses the logarithm above
			}
			got, want := f.f(x, y), f.std(x, y)
			if ulps(got, want) > 64 && !near(got, want) { // math.Pow is off by some ulps for large exponents
				t.Fatalf("%s(%v, %v) = %v, math has %v", name, x, y, got, want)
			}
			if got == 0 && want == 0 && math.Signbit(got) != math.Signbit(want) {
				t.Fatalf("%s(%v, %v) = %v, math has %v: sign of zero", name, x, y, got, want)
			}
		}
	}
}

// TestBitsAreTheSameEverywhere pins the bits of many results: another machine or compiler that rounds otherwise changes the sum.
func TestBitsAreTheSameEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	h := fnv.New64a()
	put := func(x float64) {
		if x != x {
			x = math.Inf(1) // the bits of a NaN are not fixed
		}
		h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
	}
	for range 5000 {
		x, y := (r.Float64()-0.5)*40, (r.Float64()-0.5)*8
		z := math.Float64frombits(r.Uint64()&^(0x7ff<<52) | (1000+r.Uint64N(60))<<52)
		for _, name := range slices.Sorted(maps.Keys(unary)) {
			put(unary[name].f(x))
			put(unary[name].f(z))
		}
		put(Pow(math.Abs(x), y))
		put(Atan2(x, y))
	}
	if got, want := h.Sum64(), uint64(0xbc0ed024130bf9cc); got != want {
		t.Errorf("sum over all results %#x, want %#x", got, want)
	}
}

func TestExactValues(t *testing.T) {
	for i := -30; i <= 30; i++ {
		if got := Log2(math.Ldexp(1, i)); got != float64(i) {
			t.Errorf("Log2(2^%d) = %v", i, got)
		}
		if got := Pow(2, float64(i)); got != math.Ldexp(1, i) {
			t.Errorf("2^%d = %v", i, got)
		}
	}
	p := 1.0
	for i := 0; i <= 22; i++ {
		if got := Log10(p); got != float64(i) {
			t.Errorf("Log10(1e%d) = %v", i, got)
		}
		if got := Pow(10, float64(i)); got != p {
			t.Errorf("10^%d = %v", i, got)
		}
		p *= 10
	}
	for i := 1; i < 200; i++ {
		x := float64(i)
		if got := Cbrt(x * x * x); got != x {
			t.Errorf("Cbrt(%v³) = %v", x, got)
		}
		if got := Pow(x, 3); got != x*x*x {
			t.Errorf("%v³ = %v", x, got)
		}
	}
}

var sink float64

func BenchmarkElem(b *testing.B) {
	for name, f := range map[string]func(float64) float64{"exp": Exp, "log": Log, "log1p": Log1p, "sin": Sin, "tanh": Tanh, "atan": Atan, "pow": func(x float64) float64 { return Pow(x, 1.7) }} {
		b.Run(name, func(b *testing.B) {
			x := 0.3
			for b.Loop() {
				sink += f(x)
				x += 0.001
			}
		})
	}
}
