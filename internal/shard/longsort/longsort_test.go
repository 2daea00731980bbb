package longsort

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSortsLikeTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var spare []int
	for _, n := range []int{0, 1, 2, Step - 1, Step, Step + 1, 2 * Step, 2*Step + 1, 3 * Step, 5*Step - 1, 5*Step + 7, 20_000} {
		for _, different := range []int{1, 3, 1 << 30} {
			list := make([]int, n)
			for i := range list {
				list[i] = r.IntN(different)
			}
			want := slices.Sorted(slices.Values(list))
			compares, most := 0, 0
			got, other, err := Sort(list, spare, func(a, b int) int {
				compares++
				most = max(most, compares)
				return cmp.Compare(a, b)
			}, func() error {
				compares = 0
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d of %d: %v, %d elements", n, different, err, len(got))
			}
			if most > 20*Step {
				t.Errorf("%d of %d: %d comparisons between two looks", n, different, most)
			}
			if spare = other; n > Step && len(spare) != n {
				t.Errorf("%d of %d: %d spare elements", n, different, len(spare))
			}
		}
	}
}

func TestLookEndsIt(t *testing.T) {
	const n = 5*Step + 7
	left := errors.New("left")
	looks := 0
	if _, _, err := Sort(make([]int, n), nil, cmp.Compare, func() error { looks++; return nil }); err != nil {
		t.Fatal(err)
	}
	for at := range looks {
		list := rand.New(rand.NewPCG(5, uint64(at))).Perm(n)
		seen := 0
		got, _, err := Sort(list, nil, cmp.Compare, func() error {
			if seen++; seen > at {
				return left
			}
			return nil
		})
		if err != left || seen != at+1 {
			t.Fatalf("error %v after %d looks, want one at %d", err, seen, at+1)
		}
		slices.Sort(got)
		for i, v := range got {
			if i != v {
				t.Fatalf("look %d: element %d is lost", at, i)
			}
		}
	}
}
