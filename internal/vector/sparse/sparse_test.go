package sparse

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/score"
)

// kinds are the weights that the random sets have.
var kinds = []struct {
	name   string
	signed bool
	whole  bool
	scale  float32
}{
	{"floats", false, false, 1},
	{"whole", false, true, 6},
	{"signed", true, false, 1},
	{"whole signed", true, true, 3},
	{"tiny", true, false, 1e-30},
	{"large", true, false, 1e15},
}

func TestSearchEqualsTheOracle(t *testing.T) {
	combiners := []score.Combiner{
		{Kind: score.Max},
		{Kind: score.Sum},
		{Kind: score.Avg},
		{},
		{Temperature: 40},
		{Kind: score.WeightedTopK},
		{Kind: score.WeightedTopK, TopK: 2, Decay: 0.3},
	}
	seeds := uint64(60)
	if raceEnabled {
		seeds = 12
	}
	for seed := range seeds {
		r := newRand(seed)
		kind := kinds[seed%uint64(len(kinds))]
		weight := func(uint32) float32 {
			w := float32(r.ExpFloat64()) * kind.scale
			if kind.whole {
				w = float32(int(w)) // 0 now and then
			}
			if kind.signed && r.IntN(2) == 0 {
				w = -w
			}
			return w
		}
		s := &set{numDocs: uint32(1 + r.IntN(2000))}
		s.lim = standard
		if seed%3 > 0 { // lists with tiers, and several blocks
			s.lim = limits{vectors: 300 + r.IntN(3000), weights: 20_000 + r.IntN(100_000), short: 4 + r.IntN(60)}
		}
		shape := r.IntN(4) // 0: one vector for each document
		dims := 1 + r.IntN(2000)
		if r.IntN(4) == 0 {
			dims = 100_000
		}
		for d := range s.numDocs {
			n := 1
			if shape == 1 {
				n = r.IntN(2)
			} else if shape > 1 {
				n = r.IntN(5)
			}
			for range n {
				s.add(d, draw(r, r.IntN(30), dims, weight)...)
			}
		}
		disk, memory := s.open(t), s.inMemory()
		if err := disk.verify(s.lim); err != nil {
			t.Fatal(err)
		}
		if disk.Len() != memory.Len() || disk.Docs() != memory.Docs() {
			t.Fatalf("seed %d: lengths %d and %d, documents %d and %d", seed, disk.Len(), memory.Len(), disk.Docs(), memory.Docs())
		}
		for range 12 {
			pairs := draw(r, 1+r.IntN(30), dims, weight)
			pairs = append(pairs, pairs[:r.IntN(len(pairs)+1)]...) // equal indices add up
			pairs = append(pairs, pair{uint32(r.IntN(dims)), 0.5 * kind.scale})
			q := query(t, s.p, pairs)
			o := Options{K: []int{1, 1, 3, 10, 10, 100, 5000}[r.IntN(7)], Combiner: combiners[r.IntN(len(combiners))]}
			if r.IntN(2) == 0 {
				o.Before = func(a, b uint32) bool { return a*2654435761 < b*2654435761 }
			}
			if r.IntN(2) == 0 {
				o.Accept = make([]uint64, r.IntN(int(s.numDocs)/64+2))
				share := r.Float64()
				for d := range min(int(s.numDocs), 64*len(o.Accept)) {
					if r.Float64() < share {
						o.Accept[d/64] |= 1 << (d % 64)
					}
				}
			}
			want := s.oracle(pairs, o.Combiner, o.Accept, o.Before, o.K)
			for _, run := range []struct {
				name   string
				search func(*Query, Options, []Hit) ([]Hit, Work, error)
			}{{"lists", disk.Search}, {"section", disk.Exhaustive}, {"memory", memory.Search}} {
				got, _, err := run.search(q, o, nil)
				if err != nil {
					t.Fatal(err)
				}
				if at, same := diff(got, want); !same {
					t.Fatalf("seed %d, %s, %s, k %d, combiner %v: differs at %d\n got %v\nwant %v", seed, kind.name, run.name, o.K, o.Combiner, at, got[min(at, len(got)):], want[min(at, len(want)):])
				}
			}
			for _, h := range want {
				for _, x := range []*Index{disk, memory} {
					if got, ok := x.Score(q, o.Combiner, h.Doc); !ok || got != h.Score {
						t.Fatalf("seed %d: document %d scores %v, %v, not %v", seed, h.Doc, got, ok, h.Score)
					}
				}
			}
		}
	}
}

// skewed is a set whose weights fall steeply, so that few entries decide a search.
func skewed(n int) *set {
	r := newRand(5)
	s := &set{numDocs: uint32(n), lim: limits{vectors: 5000, weights: 1 << 20, short: 100}}
	for d := range s.numDocs {
		s.add(d, draw(r, 60, 3000, func(uint32) float32 { return float32(math.Exp(2 * r.NormFloat64())) })...)
	}
	return s
}

func TestSearchLeavesOutMostOfSkewedLists(t *testing.T) {
	if raceEnabled {
		t.Skip("nothing here runs at once")
	}
	s := skewed(10_000)
	x := s.open(t)
	r := newRand(6)
	for _, k := range []int{1, 10, 100} {
		var entries int
		var w Work
		for range 8 {
			pairs := draw(r, 30, 3000, func(uint32) float32 { return float32(math.Exp(r.NormFloat64())) })
			q := query(t, s.p, pairs)
			o := Options{K: k, Combiner: score.Combiner{Kind: score.Max}}
			got, work, err := x.Search(q, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if at, same := diff(got, s.oracle(pairs, o.Combiner, nil, nil, k)); !same {
				t.Fatalf("k %d: differs at %d", k, at)
			}
			w.Add(work)
			for i := range x.blocks {
				n, _, err := (&searcher{q: q, b: &x.blocks[i]}).find()
				if err != nil {
					t.Fatal(err)
				}
				entries += n
			}
		}
		t.Logf("k %d: %d of %d entries, %d vectors scored of %d", k, w.Visited, entries, w.Rescored, 8*x.Len())
		if k <= 10 && int(w.Visited) > entries/3 || int(w.Rescored) > x.Len() || w.Distances != w.Rescored {
			t.Errorf("k %d: walked %d of %d entries and scored %d vectors", k, w.Visited, entries, w.Rescored)
		}
	}
}

func TestSearchAllocatesNothingOnceWarm(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	s := skewed(3000)
	x := s.open(t)
	q := query(t, s.p, draw(newRand(7), 30, 3000, func(uint32) float32 { return 1 }))
	accept := make([]uint64, 3000/64+1)
	for i := range accept {
		accept[i] = 0x5555555555555555
	}
	dst := make([]Hit, 0, 200)
	for _, o := range []Options{{K: 10}, {K: 100, Accept: accept}, {K: 10, Combiner: score.Combiner{Kind: score.Sum}}} {
		if n := testing.AllocsPerRun(50, func() {
			if _, _, err := x.Search(q, o, dst); err != nil {
				t.Fatal(err)
			}
		}); n > 1 { // a pool may be emptied by a collection
			t.Errorf("%v allocations", n)
		}
		if n := testing.AllocsPerRun(50, func() {
			if _, _, err := x.Exhaustive(q, o, dst); err != nil {
				t.Fatal(err)
			}
		}); n > 1 {
			t.Errorf("a scan: %v allocations", n)
		}
	}
}

func TestHitsAreAppended(t *testing.T) {
	s := skewed(500)
	x := s.open(t)
	q := query(t, s.p, []pair{{1, 1}, {5, 2}})
	first := Hit{Doc: 77, Score: 3}
	for _, search := range []func(*Query, Options, []Hit) ([]Hit, Work, error){x.Search, x.Exhaustive} {
		alone, _, err := search(q, Options{K: 5}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := search(q, Options{K: 5}, []Hit{first})
		if err != nil || len(got) != 6 || got[0] != first {
			t.Fatalf("got %v, %v", got, err)
		}
		if at, same := diff(got[1:], alone); !same {
			t.Errorf("differs at %d", at)
		}
	}
}

func TestTiesAtTheBoundary(t *testing.T) {
	// All documents score the same, so every order is one of ties.
	s := &set{numDocs: 4000, lim: limits{vectors: 1500, weights: 1 << 20, short: 50}}
	for d := range s.numDocs {
		s.add(d, pair{d % 7, 0.1}, pair{100, 0.25}, pair{200 + d%3, 0.7})
	}
	x := s.open(t)
	pairs := []pair{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {100, 3}, {200, 0.3}, {201, 0.3}, {202, 0.3}}
	q := query(t, s.p, pairs)
	for _, before := range []func(a, b uint32) bool{nil, func(a, b uint32) bool { return a > b }, func(a, b uint32) bool { return a*40503&0xffff < b*40503&0xffff }} {
		for _, k := range []int{1, 7, 1000, 3999, 4000, 9000} {
			o := Options{K: k, Before: before, Combiner: score.Combiner{Kind: score.Max}}
			got, _, err := x.Search(q, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if at, same := diff(got, s.oracle(pairs, o.Combiner, nil, before, k)); !same {
				t.Errorf("k %d: differs at %d", k, at)
			}
		}
	}
}

func TestNegativeWeightsWalkFromTheOtherEnd(t *testing.T) {
	r := newRand(8)
	s := &set{numDocs: 5000, lim: limits{vectors: 5000, weights: 1 << 20, short: 50}}
	for d := range s.numDocs {
		s.add(d, draw(r, 20, 60, func(uint32) float32 { return float32(r.NormFloat64() - 1) })...)
	}
	x := s.open(t)
	for range 20 {
		pairs := draw(r, 10, 60, func(uint32) float32 { return -float32(r.ExpFloat64()) })
		got, _, err := x.Search(query(t, s.p, pairs), Options{K: 10}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, same := diff(got, s.oracle(pairs, score.Combiner{}, nil, nil, 10)); !same {
			t.Errorf("differs at %d", at)
		}
	}
}

func TestCombinersSeeMatchingValuesOnly(t *testing.T) {
	s := &set{numDocs: 2}
	s.add(0, pair{1, 4})
	s.add(0, pair{2, 100})
	s.add(0, pair{1, -2}, pair{3, 1})
	s.add(1, pair{2, 1})
	q := query(t, s.p, []pair{{1, 1}, {9, 1}})
	for _, x := range []*Index{s.open(t), s.inMemory()} {
		if got, ok := x.Score(q, score.Combiner{Kind: score.Avg}, 0); !ok || got != 1 {
			t.Errorf("average %v, %v, want 1", got, ok)
		}
		if got, ok := x.Score(q, score.Combiner{Kind: score.Avg}, 1); ok || got != 0 {
			t.Errorf("a document that does not match scores %v", got)
		}
		if _, ok := x.Score(q, score.Combiner{}, 2); ok {
			t.Error("a document that is not there matches")
		}
		if got := x.Ordinals(q, 0, nil); !slices.Equal(got, []float32{4, 0, -2}) {
			t.Errorf("ordinals %v", got)
		}
		if got := x.Matching(q, 0, nil); !slices.Equal(got, []uint32{0, 2}) {
			t.Errorf("matching values %v", got)
		}
		hits, _, err := x.Search(q, Options{K: 5, Combiner: score.Combiner{Kind: score.Sum}}, nil)
		if err != nil || len(hits) != 1 || hits[0] != (Hit{Doc: 0, Score: 2}) {
			t.Errorf("hits %v, %v", hits, err)
		}
	}
}

func TestListsOfWeightsThatBecameZero(t *testing.T) {
	s := &set{p: Params{Weights: Uint8}, numDocs: 3}
	for d := range s.numDocs {
		s.add(d, pair{1, -1}, pair{2, 1e-9}, pair{3, 1.55})
	}
	if got := decoded(t, s.records[0]); got[1] != (pair{2, 0}) {
		t.Fatalf("the weights are %v, one was to become 0", got)
	}
	x := s.open(t)
	for _, pairs := range [][]pair{{{2, 1}}, {{2, 1}, {3, 1}}, {{1, 1}, {2, 1}, {3, 1}}} {
		q := query(t, s.p, pairs)
		for _, k := range []int{1, 9} {
			got, _, err := x.Search(q, Options{K: k}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, _, err := x.Exhaustive(q, Options{K: k}, nil)
			if err != nil || len(want) != min(k, 3) {
				t.Fatalf("%d hits, %v", len(want), err)
			}
			if at, same := diff(got, want); !same {
				t.Errorf("query %v, k %d: differs at %d", pairs, k, at)
			}
		}
	}
}

func TestDocumentsWithVeryManyValues(t *testing.T) {
	r := newRand(9)
	weight := func(uint32) float32 { return float32(r.ExpFloat64()) }
	s := &set{numDocs: 40, lim: limits{vectors: 500, weights: 3000, short: 20}}
	for d := range s.numDocs {
		n := r.IntN(40)
		switch d {
		case 7: // beyond a block by vectors, so it has no lists
			n = 501
		case 9: // bounded by tooMany
			n = 300
		}
		for range n {
			s.add(d, draw(r, 5, 50, weight)...)
		}
		if d == 20 { // beyond a block by weights
			s.add(d, draw(r, 30_000, 100_000, weight)...)
		}
	}
	x := s.open(t)
	if err := x.verify(s.lim); err != nil {
		t.Fatal(err)
	}
	unlisted := 0
	for _, b := range x.blocks {
		if !b.listed {
			unlisted++
		}
	}
	if unlisted != 2 {
		t.Fatalf("%d blocks without lists, want 2", unlisted)
	}
	for i := range 100 {
		pairs := draw(r, 8, 50, weight)
		o := Options{K: 1 + i%12, Combiner: score.Combiner{Kind: score.CombinerKind(i % 5)}}
		got, _, err := x.Search(query(t, s.p, pairs), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, same := diff(got, s.oracle(pairs, o.Combiner, nil, nil, o.K)); !same {
			t.Fatalf("combiner %v, k %d: differs at %d", o.Combiner.Kind, o.K, at)
		}
	}
}

func TestSearchEnds(t *testing.T) {
	s := skewed(20_000)
	x := s.open(t)
	stop := errors.New("stop")
	q := query(t, s.p, draw(newRand(10), 30, 3000, func(uint32) float32 { return 1 }))
	for _, search := range []func(*Query, Options, []Hit) ([]Hit, Work, error){x.Search, x.Exhaustive} {
		told := 0
		if _, _, err := search(q, Options{K: 2000, Check: func(n int) error { told += n; return stop }}, nil); !errors.Is(err, stop) || told < checkEvery {
			t.Errorf("error %v after %d", err, told)
		}
	}
	bad := Options{K: 1, Combiner: score.Combiner{Kind: score.WeightedTopK, Decay: 2}}
	for _, search := range []func(*Query, Options, []Hit) ([]Hit, Work, error){x.Search, x.Exhaustive} {
		var ce *score.CombinerError
		if _, _, err := search(q, bad, nil); !errors.As(err, &ce) {
			t.Errorf("a combiner that cannot be used: %v", err)
		}
		if hits, _, err := search(q, Options{}, nil); len(hits) != 0 || err != nil {
			t.Errorf("K of 0: %v, %v", hits, err)
		}
	}
}

// brightDoc is a document of the data set hybrid-bright-a.
type brightDoc struct {
	ID     string             `json:"_id"`
	Splade map[string]float32 `json:"splade"`
}

// eachLine decodes the JSON lines of a gzipped file.
func eachLine[T any](t *testing.T, file string, fn func(T)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); ; {
		var v T
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		fn(v)
	}
}

func TestNearestOfRealTermWeights(t *testing.T) {
	dir := corpus.Dir(t, "hybrid-bright-a")
	var docs []brightDoc
	eachLine(t, filepath.Join(dir, "docs.jsonl.gz"), func(d brightDoc) { docs = append(docs, d) })
	vocabulary := map[string]uint32{}
	type nearest struct {
		ID     string   `json:"_id"`
		Sparse [][2]any `json:"sparse_dot"`
	}
	var truths []nearest
	eachLine(t, filepath.Join(dir, "truth-top20.jsonl.gz"), func(n nearest) { truths = append(truths, n) })
	for _, weights := range []Weights{Float32, Uint8} { // whole weights up to 255 stay exact in bytes
		s := &set{p: Params{Weights: weights}, numDocs: uint32(len(docs)), lim: limits{vectors: 250, weights: blockWeights, short: 32}}
		for i, d := range docs {
			var pairs []pair
			for token, w := range d.Splade {
				if _, ok := vocabulary[token]; !ok {
					vocabulary[token] = uint32(len(vocabulary))
				}
				pairs = append(pairs, pair{vocabulary[token], w})
			}
			slices.SortFunc(pairs, compareDims)
			s.add(uint32(i), pairs...)
		}
		x := s.open(t)
		if err := x.verify(s.lim); err != nil {
			t.Fatal(err)
		}
		for i, truth := range truths {
			accept := make([]uint64, len(docs)/64+1)
			for j := range docs {
				if j != i {
					accept[j/64] |= 1 << (j % 64)
				}
			}
			got, _, err := x.Search(query(t, s.p, s.values[i]), Options{K: 20, Accept: accept}, nil)
			if err != nil || docs[i].ID != truth.ID || len(got) != len(truth.Sparse) {
				t.Fatalf("document %d: %d hits of %d, %v", i, len(got), len(truth.Sparse), err)
			}
			for k, h := range got {
				if id, dot := truth.Sparse[k][0], truth.Sparse[k][1]; docs[h.Doc].ID != id || float64(h.Score) != dot {
					t.Fatalf("%s: hit %d is %s with %v, not %v with %v", truth.ID, k, docs[h.Doc].ID, h.Score, id, dot)
				}
			}
		}
	}
}

func TestSearchesAtOnce(t *testing.T) {
	s := skewed(2000)
	x := s.open(t)
	q := query(t, s.p, draw(newRand(14), 30, 3000, func(uint32) float32 { return 1 }))
	want, _, err := x.Exhaustive(q, Options{K: 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				got, _, err := x.Search(q, Options{K: 20}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if at, same := diff(got, want); !same {
					t.Errorf("differs at %d", at)
				}
			}
		})
	}
	wg.Wait()
}
