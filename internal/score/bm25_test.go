package score

import (
	"math"
	"math/rand/v2"
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

func TestWeightHasTheBitsOfTheFormula(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 200_000 {
		idf, avg := IDF(uint64(r.IntN(1e6)+1), uint64(r.IntN(1000))), 1+r.Float32()*300
		k1, b := []float32{1.2, 0.9, 0, 2}[r.IntN(4)], []float32{0.75, 0.4, 0, 1}[r.IntN(4)]
		w := NewWeight(idf, avg, k1, b)
		tf, length := uint32(r.IntN(40)+1), uint16(r.IntN(1<<16))
		got, want := w.Score(tf, length), TF(idf, float32(tf), k1, Norm(uint32(length), avg, k1, b))
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("idf %v avg %v k1 %v b %v tf %d length %d: %v, the formula gives %v", idf, avg, k1, b, tf, length, got, want)
		}
	}
}
