package serve

import (
	"fmt"
	"slices"
	"sync"
)

// UnsortedError says that a list given to MergeTopK is not sorted: its element at Position comes before the one in front of it. What
// was merged would have been in the wrong order, so nothing is.
type UnsortedError struct {
	List     int // index of the list
	Position int // index in the list
}

// Error implements error.
func (e *UnsortedError) Error() string {
	return fmt.Sprintf("list %d is not sorted at position %d", e.List, e.Position)
}

// Outcome is Failed: the shard that sent the list is wrong rather than late.
func (e *UnsortedError) Outcome() Outcome { return Failed }

// MergeTopK appends to dst the first k elements of the lists in the order of compare, and returns it.
//
// Each list must be sorted already: compare(&list[i], &list[i+1]) ≤ 0. The lists are read as far as the result needs, and one element
// beyond the last that was taken of each; when those are not in order, MergeTopK returns dst as it was and an *UnsortedError. Elements
// that compare as equal come in the order of their lists, and within a list in its order; nothing is left out as a duplicate. So the
// result depends on the lists alone and not on when they arrived. Where it must not depend on which shard holds what either, compare
// must tell all elements apart, as by their ids. compare must be a total order of its arguments and must not keep the pointers.
//
// It takes O(s + k log s) comparisons for s lists, and allocates at most once, for the result, if the capacity of dst does not suffice.
// dst must not overlap a list. k below 1 is no result. MergeTopK is safe for concurrent use on the same lists.
func MergeTopK[T any](dst []T, lists [][]T, k int, compare func(a, b *T) int) ([]T, error) {
	total, nonempty := 0, 0
	for _, l := range lists {
		total += len(l)
		if len(l) > 0 {
			nonempty++
		}
	}
	k = min(k, total)
	if k <= 0 {
		return dst, nil
	}
	var stack [4 * stackLists]int32
	space := stack[:]
	if nonempty > stackLists {
		pooled := mergeSpace.Get().(*[]int32)
		defer mergeSpace.Put(pooled)
		*pooled = slices.Grow((*pooled)[:0], 4*nonempty)
		space = (*pooled)[:cap(*pooled)]
	}
	return mergeLoser(dst, lists, k, nonempty, space, compare)
}

// stackLists is how many lists are merged with all bookkeeping on the stack.
const stackLists = 128

// mergeSpace holds the bookkeeping of wider merges.
var mergeSpace = sync.Pool{New: func() any { return new([]int32) }}

// mergeLoser merges by a tree of losers (Knuth, The Art of Computer Programming, volume 3, 5.4.1): every inner node keeps the loser of
// the match between its two sides, so that putting the next element of the winner's list in its place takes one comparison for each
// level, where a heap takes two. Players are the lists that are not empty, in their order; player p is the leaf n+p of the tree.
func mergeLoser[T any](dst []T, lists [][]T, k, n int, space []int32, compare func(a, b *T) int) ([]T, error) {
	list, at, tree, winners := space[:n], space[n:2*n], space[2*n:3*n], space[3*n:4*n]
	p := 0
	for i := range lists {
		if len(lists[i]) > 0 {
			list[p], at[p] = int32(i), 0
			p++
		}
	}
	// before tells whether the head of player a comes before that of player b. A list that is used up comes last.
	before := func(a, b int32) bool {
		la, lb := lists[list[a]], lists[list[b]]
		if int(at[a]) >= len(la) {
			return false
		}
		if int(at[b]) >= len(lb) {
			return true
		}
		c := compare(&la[at[a]], &lb[at[b]])
		return c < 0 || c == 0 && a < b
	}
	champion := int32(0)
	for node := n - 1; node >= 1; node-- {
		player := func(child int) int32 {
			if child >= n {
				return int32(child - n)
			}
			return winners[child]
		}
		a, b := player(2*node), player(2*node+1)
		if !before(a, b) {
			a, b = b, a
		}
		winners[node], tree[node] = a, b
		champion = a
	}
	out := slices.Grow(dst, k)
	for range k {
		l, pos := lists[list[champion]], int(at[champion])
		out = append(out, l[pos])
		if pos++; pos < len(l) && compare(&l[pos-1], &l[pos]) > 0 {
			return dst, &UnsortedError{List: int(list[champion]), Position: pos}
		}
		at[champion] = int32(pos)
		for node := (n + int(champion)) / 2; node >= 1; node /= 2 {
			if before(tree[node], champion) {
				champion, tree[node] = tree[node], champion
			}
		}
	}
	return out, nil
}
