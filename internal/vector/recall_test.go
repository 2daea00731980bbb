package vector

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
)

func gunzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectors reads rows of float32 or of bytes.
func vectors(t *testing.T, dir, name string, width int) [][]float32 {
	t.Helper()
	b := gunzip(t, filepath.Join(dir, name))
	n, dim := int(le.Uint32(b)), int(le.Uint32(b[4:]))
	b = b[8:]
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = make([]float32, dim)
		for j := range rows[i] {
			if width == 1 {
				rows[i][j] = float32(b[0])
			} else {
				rows[i][j] = math.Float32frombits(le.Uint32(b))
			}
			b = b[width:]
		}
	}
	return rows
}

// dataSet is vectors, queries and the true neighbours of each query.
type dataSet struct {
	base, queries [][]float32
	truth         [][]uint32
	self          bool // queries are the vectors, which are not their own neighbours
}

func truthFile(t *testing.T, dir, name string) [][]uint32 {
	t.Helper()
	b := gunzip(t, filepath.Join(dir, name))
	n, k := int(le.Uint32(b)), int(le.Uint32(b[4:]))
	b = b[8:]
	truth := make([][]uint32, n)
	for i := range truth {
		for range k {
			truth[i] = append(truth[i], le.Uint32(b))
			b = b[4:]
		}
	}
	return truth
}

// truthLines reads the neighbours of documents, by name, from lines of JSON.
func truthLines(t *testing.T, path string) [][]uint32 {
	t.Helper()
	type line struct {
		ID  string   `json:"_id"`
		Cos [][2]any `json:"dense_cos"`
	}
	var lines []line
	number := map[string]uint32{}
	z := gunzip(t, path)
	for dec := json.NewDecoder(bufio.NewReader(bytes.NewReader(z))); dec.More(); {
		var l line
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		number[l.ID] = uint32(len(lines))
		lines = append(lines, l)
	}
	truth := make([][]uint32, len(lines))
	for i, l := range lines {
		for _, n := range l.Cos {
			truth[i] = append(truth[i], number[n[0].(string)])
		}
	}
	return truth
}

// The graph, forced on sets that are too small for one by default, finds 95 of 100 true neighbours at least.
func TestRecallOnRealVectors(t *testing.T) {
	if testing.Short() {
		t.Skip("builds several graphs")
	}
	ann := func(name, suffix, truth string, width int) func(*testing.T) dataSet {
		return func(t *testing.T) dataSet {
			dir := corpus.Dir(t, name)
			return dataSet{
				base: vectors(t, dir, "base."+suffix, width), queries: vectors(t, dir, "query."+suffix, width),
				truth: truthFile(t, dir, truth),
			}
		}
	}
	hybrid := func(name, file, truth string) func(*testing.T) dataSet {
		return func(t *testing.T) dataSet {
			dir := corpus.Dir(t, name)
			base := vectors(t, dir, file, 4)
			return dataSet{base: base, queries: base, truth: truthLines(t, filepath.Join(dir, truth)), self: true}
		}
	}
	for _, s := range []struct {
		name    string
		load    func(*testing.T) dataSet
		metrics []Metric
	}{
		{"deep", ann("vec-deep-96-l2", "fbin.gz", "truth-l2-k100.ibin.gz", 4), []Metric{L2, Dot}},
		{"glove", ann("vec-glove-100-cos", "fbin.gz", "truth-cos-k100.ibin.gz", 4), []Metric{Cosine, Unit}},
		{"mnist", ann("vec-mnist-784-l2", "u8bin.gz", "truth-l2-k100.ibin.gz", 1), []Metric{L2}},
		{"bright", hybrid("hybrid-bright-a", "bge-large-1024.fbin.gz", "truth-top20.jsonl.gz"), []Metric{Cosine, Unit}},
		{"fiori", hybrid("hybrid-fiori-docs", "minilm-384.fbin.gz", "truth-cos-top20.jsonl.gz"), []Metric{Cosine, Unit}},
	} {
		t.Run(s.name, func(t *testing.T) {
			elements := []Element{F32, F16, Int8}
			if raceEnabled {
				// The detector makes builds ten times slower; two sets are enough to find a race.
				if s.name != "bright" && s.name != "fiori" {
					t.Skip("large for the race detector")
				}
				s.metrics, elements = s.metrics[:1], elements[2:]
			}
			d := s.load(t)
			for _, metric := range s.metrics {
				for _, element := range elements {
					p := Params{Dim: len(d.base[0]), Metric: metric, Element: element, Graph: true, GraphFrom: 1}
					x := section(t, p, len(d.base), encodeAll(p, d.base))
					x.always = true
					got, scan, w := d.recall(t, x, p)
					t.Logf("metric %d element %d: recall@10 %.4f, of an exact scan %.4f; %d codes compared and %d vectors scored of %d",
						metric, element, got, scan, w.Distances/uint64(len(d.queries)), w.Rescored/uint64(len(d.queries)), x.Len())
					if got < 0.95 {
						t.Errorf("metric %d element %d: recall@10 %.4f", metric, element, got)
					}
				}
			}
		})
	}
}

// recall is the share of true neighbours among the 10 found, by the graph and by an exact scan. What is as near as the tenth
// is as good as it.
func (d *dataSet) recall(t *testing.T, x *Index, p Params) (found, scan float64, work Work) {
	const k = 10
	var g, e, all int
	for i, v := range d.queries {
		q := query(t, p, v, nil)
		o := Options{K: k}
		if d.self {
			o.K++
		}
		last, _ := x.Score(q, o.Combiner, d.truth[i][k-1])
		good := map[uint32]bool{}
		for _, id := range d.truth[i][:k] {
			good[id] = true
		}
		count := func(hits []Hit) int {
			n := 0
			for _, h := range hits {
				if (good[h.Doc] || h.Score >= last) && !(d.self && int(h.Doc) == i) {
					n++
				}
			}
			return min(n, k)
		}
		hits, w, err := x.Unmasked(q, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		work.Add(w)
		g += count(hits)
		hits, _, err = x.Exact(q, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		e += count(hits)
		all += k
	}
	return float64(g) / float64(all), float64(e) / float64(all), work
}

// hills is clustered vectors with a graph, made once.
var hills = sync.OnceValue(func() *landscape {
	r := rand.New(rand.NewPCG(11, 12))
	l := &landscape{p: Params{Dim: 32, Metric: L2, Graph: true}, n: 20000}
	queries := 100
	if raceEnabled {
		l.n, queries = 2500, 20
		l.p.GraphFrom = l.n
	}
	vecs, of := clustered(r, l.n+queries, l.p.Dim, 100, 0.4)
	l.of = of
	l.src = encodeAll(l.p, vecs[:l.n])
	l.queries = vecs[l.n:]
	return l
})

type landscape struct {
	p       Params
	n       int
	of      []int // cluster of each vector, then of each query
	src     *list
	queries [][]float32
	x       *Index
}

func (l *landscape) index(t *testing.T) *Index {
	if l.x == nil {
		l.x = section(t, l.p, l.n, l.src)
	}
	return l.x
}

// Filtered graph searches find what an exact scan of the accepted documents finds, whether the filter has nothing to do with
// the query or accepts only what is far from it.
func TestFilteredRecall(t *testing.T) {
	l := hills()
	x := l.index(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, percent := range []int{1, 10, 50} {
		random := setOf(l.n, func(int) bool { return r.IntN(100) < percent })
		for _, kind := range []string{"random", "far clusters"} {
			var masked, unmasked, planned float64
			for i, v := range l.queries {
				q, accept := query(t, l.p, v, nil), random
				if kind != "random" {
					// The clusters after that of the query; clusters are equally far from one another.
					c := l.of[l.n+i]
					accept = setOf(l.n, func(d int) bool { after := (l.of[d] - c + 99) % 100; return after < percent })
				}
				o := Options{K: 10, Accept: accept}
				want, _, err := x.Exact(q, o, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, forced := range []bool{true, false} {
					x.always = forced
					for name, search := range map[string]func(*Query, Options, []Hit) ([]Hit, Work, error){"m": x.Masked, "u": x.Unmasked} {
						if name == "u" && forced && percent == 1 && i%20 != 0 {
							continue // wide searches are slow
						}
						got, _, err := search(q, o, nil)
						if err != nil {
							t.Fatal(err)
						}
						for _, h := range got {
							if !has(accept, h.Doc) {
								t.Fatalf("document %d is not accepted", h.Doc)
							}
						}
						switch {
						case !forced:
							planned += recall(want, got) / 2
						case name == "m":
							masked += recall(want, got)
						case percent == 1:
							unmasked += 20 * recall(want, got)
						default:
							unmasked += recall(want, got)
						}
					}
				}
			}
			x.always = false
			n := float64(len(l.queries))
			t.Logf("%2d %% %-12s masked %.4f unmasked %.4f as planned %.4f", percent, kind, masked/n, unmasked/n, planned/n)
			if masked/n < 0.95 || unmasked/n < 0.95 || planned/n < 0.95 {
				t.Errorf("%d %% %s: recall masked %.4f unmasked %.4f as planned %.4f", percent, kind, masked/n, unmasked/n, planned/n)
			}
		}
	}
}

// Recall of graphs over kinds of data that are hard for them.
func TestRecallOnHardData(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	n := 6000
	if raceEnabled {
		n = 600
	}
	tight, _ := clustered(r, n, 24, 20, 0.002)
	for _, v := range tight[:n/2] {
		copy(v, tight[r.IntN(20)]) // half are copies of a few
	}
	norms, _ := clustered(r, n, 24, 1, 0)
	for i, v := range norms {
		scale := math.Exp(3 * r.NormFloat64())
		for j := range v {
			v[j] = float32(scale * r.NormFloat64())
		}
		norms[i] = v
	}
	sorted := make([][]float32, n)
	for i := range sorted {
		sorted[i] = []float32{float32(i), float32(i % 7)}
	}
	shifted, _ := clustered(r, n, 24, 30, 0.3)
	for _, v := range shifted {
		v[3] += 500 // one component that is far from the others
	}
	for _, c := range []struct {
		name    string
		vecs    [][]float32
		metrics []Metric
	}{
		{"tight clusters and copies", tight, []Metric{L2, Cosine, Dot}},
		{"lengths of all sizes", norms, []Metric{L2, Cosine, Dot}},
		{"sorted", sorted, []Metric{L2}},
		{"one large component", shifted, []Metric{L2, Cosine, Dot}},
	} {
		for _, metric := range c.metrics {
			p := Params{Dim: len(c.vecs[0]), Metric: metric, Graph: true, GraphFrom: 1}
			x := section(t, p, n, encodeAll(p, c.vecs))
			x.always = true
			if err := x.Verify(); err != nil {
				t.Fatal(err)
			}
			sum, queries := 0.0, n/50
			for range queries {
				v := append([]float32(nil), c.vecs[r.IntN(n)]...)
				for j := range v {
					v[j] += float32(r.NormFloat64() * 0.001)
				}
				q := query(t, p, v, nil)
				want, _, err := x.Exact(q, Options{K: 10}, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, _, err := x.Unmasked(q, Options{K: 10}, nil)
				if err != nil {
					t.Fatal(err)
				}
				// As good as the tenth is as good as it.
				good := 0
				for _, h := range got {
					if h.Score >= want[len(want)-1].Score {
						good++
					}
				}
				sum += float64(good) / float64(len(want))
			}
			t.Logf("%s, metric %d: recall %.4f, %d nodes of degree %.1f", c.name, metric, sum/float64(queries), x.g.g.N, x.g.degree)
			if sum/float64(queries) < 0.95 {
				t.Errorf("%s, metric %d: recall %.4f", c.name, metric, sum/float64(queries))
			}
		}
	}
}
