package vector

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestScale measures recall and speed on as many generated vectors of 128 dimensions as WEFT_VECTORS says, in clusters that
// are wide, narrow and very narrow beside their distances: 20 times the searches of an exact scan at a recall of 0.99.
func TestScale(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("WEFT_VECTORS"))
	if err != nil {
		t.Skip("WEFT_VECTORS is the number of vectors, such as 100000")
	}
	const queries, rounds, k = 200, 5, 10
	for _, c := range []struct {
		clusters int
		spread   float64
	}{{1000, 0.3}, {100, 0.1}, {100, 0.01}} {
		vecs, _ := clustered(rand.New(rand.NewPCG(1, 2)), n+queries, 128, c.clusters, c.spread)
		p := Params{Dim: 128, Metric: L2, Graph: true}
		src := encodeAll(p, vecs[:n])
		start := time.Now()
		x := section(t, p, n, src)
		build := time.Since(start)
		qs := make([]*Query, queries)
		truth := make([][]Hit, queries)
		for i, v := range vecs[n:] {
			qs[i] = query(t, p, v, nil)
		}
		start = time.Now()
		for i, q := range qs {
			if truth[i], _, err = x.Exact(q, Options{K: k}, nil); err != nil {
				t.Fatal(err)
			}
		}
		scan := time.Since(start) / queries
		t.Logf("%d clusters, spread %v: %.0f vectors/s built, fine %v, degree %.1f, scan %v", c.clusters, c.spread, float64(n)/build.Seconds(), x.g.fine, x.g.degree, scan)
		for _, ef := range []int{32, 64, 0, 200, 400} {
			var sum float64
			var buf []Hit
			var w Work
			start = time.Now()
			for range rounds {
				for i, q := range qs {
					var one Work
					if buf, one, err = x.Unmasked(q, Options{K: k, Ef: ef}, buf[:0]); err != nil {
						t.Fatal(err)
					}
					w.Add(one)
					sum += recall(truth[i], buf)
				}
			}
			each, got := time.Since(start)/(queries*rounds), sum/(queries*rounds)
			t.Logf("  ef %3d: recall %.4f, %v, %.0f times the scan's speed, %d codes compared, %d vectors scored",
				ef, got, each, float64(scan)/float64(each), w.Distances/(queries*rounds), w.Rescored/(queries*rounds))
			if ef == 0 && got < 0.99 {
				t.Errorf("recall %.4f", got)
			}
		}
		for _, every := range []int{100, 10, 2} {
			accept := setOf(n, func(d int) bool { return d%every == 0 })
			o := Options{K: k, Accept: accept}
			start = time.Now()
			for i, q := range qs {
				if truth[i], _, err = x.Exact(q, o, nil); err != nil {
					t.Fatal(err)
				}
			}
			scan := time.Since(start) / queries
			for name, search := range map[string]func(*Query, Options, []Hit) ([]Hit, Work, error){"masked": x.Masked, "unmasked": x.Unmasked} {
				for _, x.always = range []bool{true, false} {
					var sum float64
					var buf []Hit
					var w Work
					start = time.Now()
					for i, q := range qs {
						var one Work
						if buf, one, err = search(q, o, buf[:0]); err != nil {
							t.Fatal(err)
						}
						w.Add(one)
						sum += recall(truth[i], buf)
					}
					t.Logf("  one in %d, %s, graph forced %v: recall %.4f, %v against %v, %d visited, %d codes compared, %d vectors scored", every, name, x.always,
						sum/queries, time.Since(start)/queries, scan, w.Visited/queries, w.Distances/queries, w.Rescored/queries)
				}
			}
			x.always = false
		}
	}
}

func benchIndex(b *testing.B) (*Index, []*Query) {
	const n, queries = 10000, 100
	vecs, _ := clustered(rand.New(rand.NewPCG(1, 2)), n+queries, 128, 100, 0.2)
	p := Params{Dim: 128, Metric: L2, Graph: true}
	x := section(b, p, n, encodeAll(p, vecs[:n]))
	qs := make([]*Query, queries)
	for i := range qs {
		qs[i] = query(b, p, vecs[n+i], nil)
	}
	return x, qs
}

func BenchmarkSearch(b *testing.B) {
	x, qs := benchIndex(b)
	tenth := setOf(x.Len(), func(d int) bool { return d%10 == 0 })
	half := setOf(x.Len(), func(d int) bool { return d%2 == 0 })
	for _, c := range []struct {
		name   string
		search func(*Query, Options, []Hit) ([]Hit, Work, error)
		accept []uint64
	}{
		{"exact", x.Exact, nil},
		{"graph", x.Unmasked, nil},
		{"exact of a tenth", x.Exact, tenth},
		{"masked tenth", x.Masked, tenth},
		{"masked half", x.Masked, half},
		{"unmasked half", x.Unmasked, half},
	} {
		b.Run(c.name, func(b *testing.B) {
			var buf []Hit
			var err error
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if buf, _, err = c.search(qs[i%len(qs)], Options{K: 10, Accept: c.accept}, buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	x, _ := benchIndex(b)
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		if err := Write(context.Background(), &out, x.Params(), uint32(x.Len()), x); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(x.Len())/b.Elapsed().Seconds(), "vectors/s")
}
