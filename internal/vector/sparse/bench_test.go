package sparse

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/score"
)

// benchSet is made once: 100,000 vectors of 120 weights in 30,000 dimensions, which are used by Zipf's law, as words are. Weights are
// exponential around a mean that is smaller for frequent dimensions, as the weights of learned sparse models are.
var benchSet = sync.OnceValue(func() *set {
	r := newRand(1)
	s := &set{numDocs: 100_000}
	for d := range s.numDocs {
		s.add(d, drawExactly(r, 120, 30_000)...)
	}
	return s
})

func drawExactly(r *rand.Rand, n, dims int) []pair {
	var out []pair
	seen := map[uint32]bool{}
	for len(out) < n {
		d := zipf(r, dims)
		if seen[d] {
			continue
		}
		seen[d] = true
		out = append(out, pair{d, float32(r.ExpFloat64() * (0.2 + math.Log10(float64(d)+1)/4))})
	}
	slices.SortFunc(out, compareDims)
	return out
}

func benchQueries(tb testing.TB, n int) (qs []*Query) {
	r := newRand(2)
	for range n {
		qs = append(qs, query(tb, Params{}, drawExactly(r, 40, 30_000)))
	}
	return qs
}

func BenchmarkSearch(b *testing.B) {
	s := benchSet()
	begin := time.Now()
	x := s.open(b)
	b.Logf("written and opened in %v: %d bytes, %d of them records, %d blocks", time.Since(begin), len(x.raw), len(x.records), len(x.blocks))
	qs := benchQueries(b, 64)
	for _, run := range []struct {
		name   string
		k      int
		search func(*Query, Options, []Hit) ([]Hit, Work, error)
	}{{"lists/k=10", 10, x.Search}, {"lists/k=100", 100, x.Search}, {"lists/k=1000", 1000, x.Search}, {"scan/k=10", 10, x.Exhaustive}} {
		b.Run(run.name, func(b *testing.B) {
			var dst []Hit
			var sum Work
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var w Work
				var err error
				if dst, w, err = run.search(qs[i%len(qs)], Options{K: run.k, Combiner: score.Combiner{Kind: score.Max}}, dst[:0]); err != nil {
					b.Fatal(err)
				}
				sum.Add(w)
			}
			n := float64(b.N)
			b.ReportMetric(float64(sum.Visited)/n, "visited/op")
			b.ReportMetric(float64(sum.Distances)/n, "scored/op")
		})
	}
}
