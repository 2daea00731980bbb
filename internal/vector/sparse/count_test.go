package sparse

import (
	"errors"
	"slices"
	"testing"
)

// Counts are those of looking at each record.
func TestCountsAreThoseOfTheRecords(t *testing.T) {
	for seed := range uint64(60) {
		r := newRand(seed)
		s := &set{p: Params{Weights: []Weights{Float32, Float16, Uint8, Uint4}[seed%4]}, numDocs: uint32(1 + r.IntN(400)), lim: standard}
		if seed%3 > 0 {
			s.lim = limits{vectors: 20 + r.IntN(100), weights: 100 + r.IntN(4000), short: 2 + r.IntN(10)}
		}
		span := []int{5, 300, 100_000}[r.IntN(3)]
		one := r.IntN(3) == 0
		for doc := range s.numDocs {
			n := r.IntN(4)
			if one {
				n = 1
			}
			for range n {
				s.add(doc, draw(r, r.IntN(20), span, func(uint32) float32 { return float32(r.IntN(9)) - 3 })...)
			}
		}
		var accept []uint64
		if r.IntN(2) == 0 {
			accept = make([]uint64, (s.numDocs+63)/64-uint32(r.IntN(2)))
			for i := range accept {
				accept[i] = r.Uint64()
			}
		}
		var dims []uint32
		for range r.IntN(12) {
			dims = append(dims, zipf(r, span))
		}
		slices.Sort(dims)
		dims = slices.Compact(dims)
		var all uint64
		want := make([]uint64, len(dims))
		for i, rec := range s.records {
			if !accepts(accept, s.docs[i]) {
				continue
			}
			all++
			for _, x := range decoded(t, rec) {
				if d, ok := slices.BinarySearch(dims, x.dim); ok {
					want[d]++
				}
			}
		}
		for name, x := range map[string]*Index{"section": s.open(t), "memory": s.inMemory()} {
			got := make([]uint64, len(dims))
			n, err := x.Count(dims, accept, nil, got)
			if err != nil || n != all || !slices.Equal(got, want) {
				t.Errorf("seed %d, %s: %d vectors, %v, %v; want %d, %v", seed, name, n, got, err, all, want)
			}
			for i, rec := range s.records {
				if got, want := x.Terms(i), len(decoded(t, rec)); got != want {
					t.Errorf("seed %d, %s: vector %d has %d terms, want %d", seed, name, i, got, want)
				}
			}
		}
	}
}

func TestCountsEndWithTheirCheck(t *testing.T) {
	s := &set{numDocs: 3 * checkEvery}
	for doc := range s.numDocs {
		s.add(doc, pair{1, 1})
	}
	bad := errors.New("enough")
	if _, err := s.inMemory().Count([]uint32{1}, nil, func(int) error { return bad }, make([]uint64, 1)); !errors.Is(err, bad) {
		t.Error(err)
	}
}
