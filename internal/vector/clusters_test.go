package vector

import (
	"context"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/schema"
)

// slice is a source of records in memory, one for each document.
type slice struct {
	records []byte
	size    int
	docs    []uint32
}

func (s *slice) Len() int { return len(s.records) / s.size }
func (s *slice) Doc(ord int) uint32 {
	if s.docs == nil {
		return uint32(ord)
	}
	return s.docs[ord]
}
func (s *slice) Record(ord int) []byte { return s.records[ord*s.size : (ord+1)*s.size] }

func encodeAll(p Params, vecs [][]float32) *slice {
	s := &slice{size: p.RecordSize()}
	var b []byte
	for _, v := range vecs {
		b = schema.AppendDense(b[:0], v)
		s.records = Encode(p, s.records, b)
	}
	return s
}

// clustered makes n vectors around centres, which are normal with deviation 1; members deviate by spread.
func clustered(r *rand.Rand, n, dim, clusters int, spread float64) (vecs [][]float32, of []int) {
	centres := make([][]float64, clusters)
	for i := range centres {
		centres[i] = make([]float64, dim)
		for j := range centres[i] {
			centres[i][j] = r.NormFloat64()
		}
	}
	for range n {
		c := r.IntN(clusters)
		v := make([]float32, dim)
		for j := range v {
			v[j] = float32(centres[c][j] + spread*r.NormFloat64())
		}
		vecs, of = append(vecs, v), append(of, c)
	}
	return vecs, of
}

func section(t testing.TB, p Params, numDocs int, src Source) *Index {
	t.Helper()
	var b bytes.Buffer
	if err := Write(context.Background(), &b, p, uint32(numDocs), src); err != nil {
		t.Fatal(err)
	}
	x, err := Open(b.Bytes(), uint32(numDocs))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func recall(want, got []Hit) float64 {
	if len(want) == 0 {
		return 1
	}
	in := map[uint32]bool{}
	for _, h := range want {
		in[h.Doc] = true
	}
	n := 0
	for _, h := range got {
		if in[h.Doc] {
			n++
		}
	}
	return float64(n) / float64(len(want))
}

func TestExperiment(t *testing.T) {
	if os.Getenv("EXP") == "" {
		t.Skip()
	}
	n, dim := 100000, 128
	for _, cfg := range []struct {
		clusters int
		spread   float64
	}{{1000, 0.3}, {100, 0.1}, {1000, 1}, {100, .01}} {
		r := rand.New(rand.NewPCG(1, 2))
		vecs, _ := clustered(r, n+200, dim, cfg.clusters, cfg.spread)
		p := Params{Dim: dim, Metric: L2, Graph: true}
		src := encodeAll(p, vecs[:n])
		start := time.Now()
		x := section(t, p, n, src)
		build := time.Since(start)
		var truth [][]Hit
		var qs []*Query
		start = time.Now()
		for _, v := range vecs[n:] {
			q, _ := NewQuery(p, v, nil)
			qs = append(qs, q)
			h, _, _ := x.Exact(q, Options{K: 10}, nil)
			truth = append(truth, h)
		}
		exact := time.Since(start) / 200
		fmt.Printf("clusters %d spread %v: build %.0f/s degree %.1f exact %v\n", cfg.clusters, cfg.spread, float64(n)/build.Seconds(), x.g.degree, exact)
		for _, ef := range []int{32, 64, 100, 200, 400} {
			var rec float64
			var w Work
			for i, q := range qs {
				h, w1, _ := x.Unmasked(q, Options{K: 10, Ef: ef}, nil)
				rec += recall(truth[i], h)
				w.Add(w1)
			}
			var buf []Hit
			start = time.Now()
			for range 3 {
				for _, q := range qs {
					buf, _, _ = x.Unmasked(q, Options{K: 10, Ef: ef}, buf[:0])
				}
			}
			el := time.Since(start) / 600
			fmt.Printf("  ef %d recall %.4f time %v (%.0fx) visited %d dist %d rescored %d\n", ef, rec/200, el, float64(exact)/float64(el), w.Visited/200, w.Distances/200, w.Rescored/200)
		}
	}
}
