package graph

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// plane is points with real coordinates, compared by squared distance.
type plane [][]float32

func (p plane) Len() int { return len(p) }

func (p plane) distance(a, b []float32) float32 {
	var d float32
	for i := range a {
		x := a[i] - b[i]
		d += float32(x * x)
	}
	return d
}

func (p plane) Between(a uint32, ids []uint32, out []float32) {
	for i, id := range ids {
		out[i] = p.distance(p[a], p[id])
	}
}

// from is a target at any place.
type from struct {
	p plane
	v []float32
}

func (f *from) Distances(ids []uint32, out []float32) {
	for i, id := range ids {
		out[i] = f.p.distance(f.v, f.p[id])
	}
}

func points(r *rand.Rand, n, dim, clusters int, spread float64) plane {
	centres := make(plane, clusters)
	for i := range centres {
		for range dim {
			centres[i] = append(centres[i], float32(r.NormFloat64()))
		}
	}
	p := make(plane, n)
	for i := range p {
		for _, c := range centres[r.IntN(clusters)] {
			p[i] = append(p[i], c+float32(spread*r.NormFloat64()))
		}
	}
	return p
}

func build(t *testing.T, p Points, m, efc, workers int) *Graph {
	t.Helper()
	g, err := Build(context.Background(), p, m, efc, workers)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// check holds a graph to its documentation.
func check(t *testing.T, g *Graph, n, m int) {
	t.Helper()
	if g.N != n || g.M != m || len(g.Base) != n*2*m || len(g.Upper) != len(Levels(n, m)) {
		t.Fatalf("graph of %d nodes, M %d, %d levels", g.N, g.M, len(g.Upper))
	}
	if got := g.Reachable(); got != n {
		t.Errorf("%d of %d nodes are reachable", got, n)
	}
	rows := func(links []uint32, degree int) {
		for i := 0; i < len(links)/degree; i++ {
			list := links[i*degree : (i+1)*degree]
			if end := slices.Index(list, None); end >= 0 {
				for _, u := range list[end:] {
					if u != None {
						t.Fatalf("list %d goes on after its end: %v", i, list)
					}
				}
				list = list[:end]
			}
			sorted := slices.Sorted(slices.Values(list))
			if len(slices.Compact(sorted)) != len(list) || slices.Contains(list, uint32(i)) || len(list) > 0 && int(slices.Max(list)) >= len(links)/degree {
				t.Fatalf("list %d: %v", i, list)
			}
		}
	}
	rows(g.Base, 2*m)
	for _, links := range g.Upper {
		rows(links, m)
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		n, m int
		want []int
	}{{0, 16, nil}, {1, 4, nil}, {32, 16, nil}, {33, 16, []int{3}}, {100000, 16, []int{6250, 391, 25}}, {1000, 4, []int{250, 63, 16}}} {
		if got := Levels(c.n, c.m); !slices.Equal(got, c.want) {
			t.Errorf("Levels(%d, %d) = %v, want %v", c.n, c.m, got, c.want)
		}
	}
	order := Order(1000, 1000)
	if sorted := slices.Sorted(slices.Values(order)); sorted[0] != 0 || sorted[999] != 999 || len(slices.Compact(sorted)) != 1000 {
		t.Error("the order is not one of all nodes")
	}
	if slices.IsSorted(order) || !slices.Equal(Order(1000, 10), order[:10]) {
		t.Error("the order is that of the numbers, or its start another")
	}
}

// Candidates sort by distance and then by number, and give back what went in.
func TestCandidates(t *testing.T) {
	inf := float32(math.Inf(1))
	ds := []float32{-inf, -math.MaxFloat32, -1, -1e-45, 0, 1e-45, 1, math.MaxFloat32, inf, float32(math.NaN())}
	var keys []uint64
	for _, d := range ds {
		for _, id := range []uint32{0, 1, MaxNodes} {
			key := candidate(d, id)
			if node(key) != id || d == d && distance(key) != d {
				t.Errorf("%v %d comes back as %v %d", d, id, distance(key), node(key))
			}
			keys = append(keys, key)
		}
	}
	if !slices.IsSorted(keys) {
		t.Error("candidates are not in order")
	}
	if candidate(float32(math.Copysign(float64(math.NaN()), -1)), 0) < candidate(inf, MaxNodes) {
		t.Error("what is not a number is near")
	}
}

// Graphs of many shapes hold to their documentation, whatever the number of workers, and all nodes can be reached even where
// clusters are far apart and lists short.
func TestBuild(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	line := make(plane, 300)
	for i := range line {
		line[i] = []float32{float32(i)}
	}
	powers := make(plane, 300)
	for i := range powers {
		powers[i] = []float32{float32(math.Exp2(float64(i%120 - 60))), float32(i)}
	}
	for name, p := range map[string]plane{
		"none": {}, "one": points(r, 1, 3, 1, 1), "two": points(r, 2, 3, 1, 1), "one level": points(r, 32, 3, 1, 1), "two levels": points(r, 33, 3, 1, 1),
		"clusters": points(r, 600, 6, 40, 1e-4), "cloud": points(r, 500, 12, 1, 1), "line": line, "powers": powers,
		"equal": slices.Repeat(plane{{1, 2}}, 150), "pairs": append(slices.Repeat(plane{{1, 2}}, 90), slices.Repeat(plane{{7, 2}}, 90)...),
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range []int{4, 16} {
				g := build(t, p, m, 24, 1)
				check(t, g, len(p), m)
				other := build(t, p, m, 24, 3)
				if !slices.Equal(g.Base, other.Base) || !slices.Equal(g.Nodes, other.Nodes) || len(g.Upper) != len(other.Upper) {
					t.Fatal("the graph depends on the number of workers")
				}
				for l := range g.Upper {
					if !slices.Equal(g.Upper[l], other.Upper[l]) {
						t.Fatalf("level %d depends on the number of workers", l+1)
					}
				}
			}
		})
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	cancel(why)
	for _, workers := range []int{1, 3} {
		if _, err := Build(ctx, points(rand.New(rand.NewPCG(1, 1)), 100, 2, 1, 1), 4, 10, workers); !errors.Is(err, why) {
			t.Error(err)
		}
	}
}

// nearest is the ef nearest accepted nodes.
func nearest(p plane, v []float32, ef int, accepts func(id uint32) bool) []uint32 {
	var keys []uint64
	for i := range p {
		if accepts(uint32(i)) {
			keys = append(keys, candidate(p.distance(v, p[i]), uint32(i)))
		}
	}
	slices.Sort(keys)
	var ids []uint32
	for _, key := range keys[:min(ef, len(keys))] {
		ids = append(ids, node(key))
	}
	return ids
}

type filterFunc func(node uint32) bool

func (f filterFunc) Accepts(node uint32) bool { return f(node) }

func TestSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := points(r, 2000, 8, 30, 0.3)
	g := build(t, p, 8, 80, 2)
	all := func(uint32) bool { return true }
	var s Searcher
	var plain, masked float64
	for i := range 60 {
		target := &from{p, p[r.IntN(len(p))]}
		if err := g.Search(&s, target, 50, nil); err != nil {
			t.Fatal(err)
		}
		plain += overlap(t, &s, target, nearest(p, target.v, 50, all))
		// A filter of one in a hundred, by turns anywhere and where the query is not.
		accepts := func(id uint32) bool { return id%100 == 7 }
		if i%2 == 0 {
			accepts = func(id uint32) bool { return p[id][0] > 1.5 }
		}
		var seeds []uint32
		for id := range uint32(len(p)) {
			if accepts(id) && len(seeds) < 8 {
				seeds = append(seeds, id)
			}
		}
		if err := g.SearchMasked(&s, target, 20, filterFunc(accepts), seeds, nil); err != nil {
			t.Fatal(err)
		}
		for k := range s.Len() {
			if !accepts(s.At(k)) {
				t.Fatalf("node %d is not accepted", s.At(k))
			}
		}
		masked += overlap(t, &s, target, nearest(p, target.v, 20, accepts))
	}
	if plain/60 < 0.98 || masked/60 < 0.95 {
		t.Errorf("recall %.4f, masked %.4f", plain/60, masked/60)
	}
}

// overlap is the share of want that was found, in order.
func overlap(t *testing.T, s *Searcher, target *from, want []uint32) float64 {
	t.Helper()
	n := 0
	for i := range s.Len() {
		if slices.Contains(want, s.At(i)) {
			n++
		}
		if i > 0 && target.p.distance(target.v, target.p[s.At(i-1)]) > target.p.distance(target.v, target.p[s.At(i)]) {
			t.Fatal("nodes are out of order")
		}
	}
	if len(want) == 0 {
		return 1
	}
	return float64(n) / float64(len(want))
}

// A graph whose numbers are damaged gives wrong nodes, but only such as there are.
func TestSearchOfADamagedGraph(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	p := points(r, 500, 4, 10, 0.3)
	g := build(t, p, 4, 20, 1)
	var s Searcher
	for range 300 {
		bad := &Graph{N: g.N, M: g.M, Base: slices.Clone(g.Base), Nodes: slices.Clone(g.Nodes)}
		for _, links := range g.Upper {
			bad.Upper = append(bad.Upper, slices.Clone(links))
		}
		for _, part := range append([][]uint32{bad.Base, bad.Nodes}, bad.Upper...) {
			for range 1 + len(part)/10 {
				part[r.IntN(len(part))] = r.Uint32() >> r.IntN(32)
			}
		}
		target := &from{p, p[r.IntN(len(p))]}
		if err := bad.Search(&s, target, 10, nil); err != nil {
			t.Fatal(err)
		}
		if err := bad.SearchMasked(&s, target, 10, filterFunc(func(id uint32) bool { return id%3 == 0 }), []uint32{r.Uint32() >> (2 + r.IntN(30)) * 3}, nil); err != nil {
			t.Fatal(err)
		}
		for i := range s.Len() {
			if s.At(i)%3 != 0 || int(s.At(i)) >= g.N {
				t.Fatalf("node %d", s.At(i))
			}
		}
		bad.Reachable()
	}
}

func TestCheckOfASearch(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	p := points(r, 3000, 3, 1, 1)
	g := build(t, p, 8, 20, 1)
	var s Searcher
	stop := errors.New("stop")
	target := &from{p, p[0]}
	if err := g.Search(&s, target, 2000, func(int) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	told := 0
	s.Distances = 0
	if err := g.Search(&s, target, 2000, func(n int) error { told += n; return nil }); err != nil || told == 0 || uint64(told) > s.Distances {
		t.Errorf("told of %d of %d: %v", told, s.Distances, err)
	}
}

func BenchmarkBuild(b *testing.B) {
	p := points(rand.New(rand.NewPCG(1, 1)), 2000, 8, 20, 0.3)
	for b.Loop() {
		if _, err := Build(context.Background(), p, 16, 128, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	p := points(rand.New(rand.NewPCG(1, 1)), 5000, 8, 20, 0.3)
	g, err := Build(context.Background(), p, 16, 128, 1)
	if err != nil {
		b.Fatal(err)
	}
	var s Searcher
	target := &from{p: p}
	for i := 0; b.Loop(); i++ {
		target.v = p[i%len(p)]
		if err := g.Search(&s, target, 64, nil); err != nil {
			b.Fatal(err)
		}
	}
}
