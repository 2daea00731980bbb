package serve

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// hit is a ranked result as the tests use it: best score first, equals by id.
type hit struct {
	Score float64
	ID    int
	from  int // the list, which the order does not look at
}

func compareHits(a, b *hit) int {
	if a.Score != b.Score {
		return cmp.Compare(b.Score, a.Score)
	}
	return cmp.Compare(a.ID, b.ID)
}

// mergeOracle sorts everything: stable, so that equals stay in the order of their lists.
func mergeOracle[T any](lists [][]T, compare func(a, b *T) int) []T {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b T) int { return compare(&a, &b) })
	return all
}

// mergeHeap is the other way to merge, by a binary heap of lists, kept to be compared with.
func mergeHeap[T any](dst []T, lists [][]T, k int, compare func(a, b *T) int) []T {
	at := make([]int32, len(lists))
	heap := make([]int32, 0, len(lists))
	for i, l := range lists {
		if len(l) > 0 {
			heap = append(heap, int32(i))
		}
	}
	before := func(a, b int32) bool {
		c := compare(&lists[a][at[a]], &lists[b][at[b]])
		return c < 0 || c == 0 && a < b
	}
	down := func(i int) {
		for {
			least := i
			if l := 2*i + 1; l < len(heap) && before(heap[l], heap[least]) {
				least = l
			}
			if r := 2*i + 2; r < len(heap) && before(heap[r], heap[least]) {
				least = r
			}
			if least == i {
				return
			}
			heap[i], heap[least] = heap[least], heap[i]
			i = least
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(i)
	}
	for range k {
		if len(heap) == 0 {
			break
		}
		top := heap[0]
		dst = append(dst, lists[top][at[top]])
		if at[top]++; int(at[top]) == len(lists[top]) {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		down(0)
	}
	return dst
}

// randomLists makes sorted lists of several shapes: some empty, with few scores (ties), with the same hits in several lists.
func randomLists(r *rand.Rand, lists, longest, scores, ids int) [][]hit {
	out := make([][]hit, lists)
	for i := range out {
		if r.IntN(4) == 0 {
			continue
		}
		for range r.IntN(longest + 1) {
			out[i] = append(out[i], hit{Score: float64(r.IntN(scores)), ID: r.IntN(ids), from: i})
		}
		slices.SortStableFunc(out[i], func(a, b hit) int { return compareHits(&a, &b) })
	}
	return out
}

func TestMergeTopKMatchesOracleAtEveryK(t *testing.T) {
	type shape struct{ lists, longest, scores, ids int }
	shapes := []shape{
		{0, 0, 1, 1},
		{1, 12, 3, 3},
		{2, 9, 1, 1},
		{3, 5, 2, 4},
		{7, 6, 1000, 1000},
		{8, 4, 1, 2},
		{9, 3, 2, 2},
		{33, 3, 5, 10},
		{stackLists, 2, 50, 5},
		{stackLists * 2, 2, 3, 1000},
	}
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			for seed := range uint64(12) {
				r := rand.New(rand.NewPCG(seed, 7))
				lists := randomLists(r, s.lists, s.longest, s.scores, s.ids)
				want := mergeOracle(lists, compareHits)
				for k := 0; k <= len(want)+2; k++ {
					got, err := MergeTopK(nil, lists, k, compareHits)
					if err != nil {
						t.Fatalf("seed %d k %d: %v", seed, k, err)
					}
					if !slices.Equal(got, want[:min(k, len(want))]) {
						t.Fatalf("seed %d k %d:\n got %v\nwant %v", seed, k, got, want[:min(k, len(want))])
					}
					if heap := mergeHeap(nil, lists, k, compareHits); !slices.Equal(heap, got) {
						t.Fatalf("seed %d k %d: a heap gives %v", seed, k, heap)
					}
				}
			}
		})
	}
}

// TestMergeTopKDependsOnHitsAlone deals the same hits to shards in many ways: where the order tells all hits apart, the page is one.
func TestMergeTopKDependsOnHitsAlone(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 11))
		hits := make([]hit, 60)
		for i := range hits {
			hits[i] = hit{Score: float64(r.IntN(5)), ID: i}
		}
		want := mergeOracle([][]hit{hits}, compareHits)[:20]
		for _, shards := range []int{1, 2, 5, 60, 200} {
			lists := make([][]hit, shards)
			for _, h := range hits {
				i := r.IntN(shards)
				lists[i] = append(lists[i], h)
			}
			for _, l := range lists {
				slices.SortFunc(l, func(a, b hit) int { return compareHits(&a, &b) })
			}
			got, err := MergeTopK(nil, lists, 20, compareHits)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, %d shards: %v, %v", seed, shards, got, err)
			}
		}
	}
}

func TestMergeTopKDetectsUnsortedLists(t *testing.T) {
	asc := func(a, b *int) int { return cmp.Compare(*a, *b) }
	for name, c := range map[string]struct {
		lists [][]int
		k     int
		want  *UnsortedError
	}{
		"first two":           {[][]int{{1, 9}, {5, 3}}, 3, &UnsortedError{1, 1}},
		"behind the last":     {[][]int{{4, 3}}, 1, &UnsortedError{0, 1}},
		"two behind the last": {[][]int{{4, 4, 3}}, 1, nil},
		"in the middle":       {[][]int{{}, {1, 2, 4, 3, 5}}, 5, &UnsortedError{1, 3}},
		"never read":          {[][]int{{1, 2, 3}, {9, 1}}, 3, nil},
		"equals":              {[][]int{{1, 1, 1}, {1, 1}}, 5, nil},
		"no result":           {[][]int{{4, 3}}, 0, nil},
		"negative":            {[][]int{{4, 3}}, -1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dst := []int{-7}
			got, err := MergeTopK(dst, c.lists, c.k, asc)
			if c.want == nil {
				if err != nil || len(got) != 1+max(c.k, 0) {
					t.Fatalf("got %v, %v", got, err)
				}
				return
			}
			u, ok := errors.AsType[*UnsortedError](err)
			if !ok || *u != *c.want {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if !slices.Equal(got, dst) {
				t.Fatalf("dst is %v", got)
			}
			if OutcomeOf(err) != Failed {
				t.Fatal(OutcomeOf(err))
			}
		})
	}
}

// TestMergeTopKFindsAnySwapItReads swaps neighbours in sorted lists and merges everything: no such list may pass.
func TestMergeTopKFindsAnySwapItReads(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 13))
		lists := randomLists(r, 1+r.IntN(6), 8, 6, 50)
		i := r.IntN(len(lists))
		l := lists[i]
		if len(l) < 2 {
			continue
		}
		p := 1 + r.IntN(len(l)-1)
		if compareHits(&l[p-1], &l[p]) == 0 {
			continue
		}
		l[p-1], l[p] = l[p], l[p-1]
		_, err := MergeTopK(nil, lists, 1<<40, compareHits)
		if u, ok := errors.AsType[*UnsortedError](err); !ok || u.List != i {
			t.Fatalf("seed %d: swapped at %d of list %d: %v", seed, p, i, err)
		}
	}
}

func TestMergeTopKAppends(t *testing.T) {
	dst := append(make([]int, 0, 8), 100)
	got, err := MergeTopK(dst, [][]int{{3}, {1, 2}}, 2, func(a, b *int) int { return *a - *b })
	if err != nil || !slices.Equal(got, []int{100, 1, 2}) || &got[0] != &dst[0] {
		t.Fatalf("%v, %v", got, err)
	}
}

func benchLists(lists, hits int) [][]hit {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([][]hit, lists)
	for i := range out {
		out[i] = make([]hit, hits)
		for j := range out[i] {
			out[i][j] = hit{Score: r.Float64(), ID: i*hits + j}
		}
		slices.SortFunc(out[i], func(a, b hit) int { return compareHits(&a, &b) })
	}
	return out
}

func TestMergeAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	for _, n := range []int{1, 10, 100, stackLists, 1000} {
		lists := benchLists(n, 200)
		dst := make([]hit, 0, 1000)
		for _, k := range []int{1, 10, 1000} {
			merge := func(dst []hit) float64 {
				return testing.AllocsPerRun(50, func() {
					if _, err := MergeTopK(dst, lists, k, compareHits); err != nil {
						t.Fatal(err)
					}
				})
			}
			if a := merge(dst); a != 0 {
				t.Errorf("%d lists, k %d: %v allocations into a slice with room", n, k, a)
			}
			if a := merge(nil); a > 1 {
				t.Errorf("%d lists, k %d: %v allocations", n, k, a)
			}
		}
	}
}

func BenchmarkMergeTopK(b *testing.B) {
	for _, c := range []struct{ lists, hits, k int }{{100, 200, 10}, {100, 200, 200}, {1000, 20, 10}, {4, 200, 10}} {
		lists := benchLists(c.lists, c.hits)
		dst := make([]hit, 0, c.k)
		name := fmt.Sprintf("%dx%d to %d", c.lists, c.hits, c.k)
		b.Run("losers/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := MergeTopK(dst, lists, c.k, compareHits); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("heap/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mergeHeap(dst, lists, c.k, compareHits)
			}
		})
	}
}
