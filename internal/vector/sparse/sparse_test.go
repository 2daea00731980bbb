package sparse

import (
	"testing"

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
	for seed := range uint64(60) {
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
		s := &set{numDocs: uint32(1 + r.IntN(3000))}
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
