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

// TestBM25Golden has bits that another implementation of the formula in binary32 gave, step by step.
func TestBM25Golden(t *testing.T) {
	for _, c := range []struct {
		docs, df, sum uint64
		tf            float32
		length        uint32
		idf, score    uint32
	}{
		{docs: 1000, df: 10, sum: 100000, tf: 3, length: 50, idf: 0x4091d60e, score: 0x410055f8},
		{docs: 31724, df: 31000, sum: 2000000, tf: 1, length: 63, idf: 0x3cbd3fcd, score: 0x3cbd4d8f},
		{docs: 1, df: 1, sum: 1, tf: 1, length: 1, idf: 0x3e934b12, score: 0x3e934b12},
		{docs: 5, df: 1, sum: 20, tf: 2, length: 9, idf: 0x3fb17218, score: 0x3fb485d5},
	} {
		idf := IDF(c.docs, c.df)
		got := TF(idf, c.tf, 1.2, Norm(c.length, AvgLen(FieldStats{SumLen: c.sum, Docs: c.docs}), 1.2, 0.75))
		if math.Float32bits(idf) != c.idf || math.Float32bits(got) != c.score {
			t.Errorf("%+v: idf %#x, score %#x", c, math.Float32bits(idf), math.Float32bits(got))
		}
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
