package kernel

import (
	"math"
	"testing"
)

// Every half float decodes to its value and is found again by encoding it.
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
