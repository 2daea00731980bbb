package score

import (
	"math"
	"testing"
)

func TestLnIsRoundedLogarithm(t *testing.T) {
	for i := 0; i < 2_000_000; i++ {
		x := math.Float32frombits(0x3f800000 + uint32(i)*37) // 1 upward
		if x > 1e9 {
			break
		}
		if got, want := Ln(x), float32(math.Log(float64(x))); got != want {
			t.Fatalf("Ln(%g) = %g, want %g", x, got, want)
		}
	}
}

func TestBM25Golden(t *testing.T) {
	// By hand: idf = ln(990.5/10.5 + 1), norm = 1.2·(0.25 + 0.75·50/100) = 0.75, s = idf·6.6/3.75.
	idf := IDF(1000, 10)
	norm := Norm(50, AvgLen(FieldStats{SumLen: 100000, Docs: 1000}), 1.2, 0.75)
	if got := TF(idf, 3, 1.2, norm); math.Abs(float64(got)-8.02099) > 1e-5 {
		t.Fatalf("score %v", got)
	}
}
