package topk

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The heap keeps what sorting everything would put first, whatever the order of offers.
func TestHeapKeepsTheBestInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		all := make([]Hit, r.IntN(60))
		for i := range all {
			all[i] = Hit{Doc: uint32(i), Score: float32(r.IntN(8))}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		h := Heap{K: 1 + r.IntN(20)}
		order := func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Doc, b.Doc)) }
		if r.IntN(2) == 0 {
			h.Before = func(a, b uint32) bool { return a > b }
			order = func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.Doc, a.Doc)) }
		}
		dst := make([]Hit, r.IntN(2), 100)
		h.Hits = dst[len(dst):]
		for _, x := range all {
			before := slices.Clone(h.Hits)
			if kept := h.Push(x); kept != slices.Contains(h.Hits, x) {
				t.Fatalf("Push(%v) = %v: %v became %v", x, kept, before, h.Hits)
			}
		}
		got := h.AppendTo(dst)[len(dst):]
		slices.SortFunc(all, order)
		if want := all[:min(h.K, len(all))]; !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestFiniteLeavesNumbersAndReplacesTheRest(t *testing.T) {
	inf := float32(math.Inf(1))
	for in, want := range map[float32]float32{1.5: 1.5, -3: -3, inf: math.MaxFloat32, -inf: -math.MaxFloat32} {
		if got := Finite(in); got != want {
			t.Errorf("Finite(%v) = %v", in, got)
		}
	}
	if got := Finite(float32(math.NaN())); got != -math.MaxFloat32 {
		t.Errorf("Finite(NaN) = %v", got)
	}
}
