package exec

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/weft-search/weft/internal/shard/longsort"
)

// entry is a document kept for the answer.
type entry struct {
	score float32
	leaf  int32
	doc   uint32
}

// topk keeps the best documents: score descending, then key ascending. The worst kept stands at the root of a binary heap.
type topk struct {
	k      int
	heap   []entry
	spare  []entry // to sort with
	thr    float32 // a score below it cannot enter; −Inf until k are kept
	leaves []Leaf
	ka, kb []byte

	byPlace bool // equals stand by leaf and document number

	offered uint64
	entered uint64      // those that were kept, if not to the end
	work    *int        // of the search
	after   *afterScore // documents up to this place are not wanted; nil: all are
}

// afterScore is a place in the order by score.
type afterScore struct {
	score float32
	key   []byte
	leaf  int    // that doc is of, −1 for none
	doc   uint32 // first document of the leaf, which is ordered by key, whose key is above
}

// behind tells whether a document stands behind the place.
func (a *afterScore) behind(t *topk, leaf int, doc uint32, score float32) bool {
	if score != a.score {
		return score < a.score
	}
	l := t.leaves[leaf]
	if !l.KeyOrdered() {
		t.ka = l.Key(doc, t.ka[:0])
		return bytes.Compare(t.ka, a.key) > 0
	}
	if a.leaf != leaf {
		a.leaf = leaf
		a.doc, _ = seekKey(l, a.key, true)
	}
	return doc >= a.doc
}

// seekKey returns the first document of a leaf ordered by key whose key is not below the given one, or with above is above it, and
// whether its key is the same.
func seekKey(l Leaf, key []byte, above bool) (doc uint32, same bool) {
	var buf []byte
	doc = uint32(sort.Search(int(l.NumDocs()), func(d int) bool {
		buf = l.Key(uint32(d), buf[:0])
		c := bytes.Compare(buf, key)
		return c > 0 || c == 0 && !above
	}))
	if !above && doc < l.NumDocs() {
		same = bytes.Equal(l.Key(doc, buf[:0]), key)
	}
	return doc, same
}

func (t *topk) reset(k int, leaves []Leaf, work *int) {
	t.k, t.leaves, t.work = k, leaves, work
	t.heap = t.heap[:0]
	t.thr = float32(math.Inf(-1))
	t.offered, t.entered, t.after = 0, 0, nil
}

// worse tells whether a comes after b in the answer.
func (t *topk) worse(a, b entry) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	if t.byPlace && a.leaf != b.leaf {
		return a.leaf > b.leaf
	}
	if a.leaf == b.leaf && (t.byPlace || t.leaves[a.leaf].KeyOrdered()) {
		return a.doc > b.doc
	}
	t.ka = t.leaves[a.leaf].Key(a.doc, t.ka[:0])
	t.kb = t.leaves[b.leaf].Key(b.doc, t.kb[:0])
	return bytes.Compare(t.ka, t.kb) > 0
}

// heapWork is the work of putting a document into a heap of so many: on each of its levels two are compared, whose keys may have to be
// read.
func heapWork(n int) int { return 16 * bits.Len(uint(n)) }

// add offers a document.
func (t *topk) add(leaf int, doc uint32, score float32) {
	t.offered++
	if t.after != nil && !t.after.behind(t, leaf, doc, score) {
		return
	}
	e := entry{score, int32(leaf), doc}
	if len(t.heap) < t.k {
		t.entered++
		*t.work += heapWork(len(t.heap))
		t.heap = append(t.heap, e)
		i := len(t.heap) - 1
		for i > 0 {
			p := (i - 1) / 2
			if !t.worse(t.heap[i], t.heap[p]) {
				break
			}
			t.heap[i], t.heap[p] = t.heap[p], t.heap[i]
			i = p
		}
		if len(t.heap) == t.k {
			t.thr = t.heap[0].score
		}
		return
	}
	if t.k == 0 || score < t.thr || !t.worse(t.heap[0], e) {
		return
	}
	t.entered++
	*t.work += heapWork(len(t.heap))
	t.heap[0] = e
	t.sift(0)
	t.thr = t.heap[0].score
}

func (t *topk) sift(i int) {
	h := t.heap
	for {
		l := 2*i + 1
		if l >= len(h) {
			return
		}
		if r := l + 1; r < len(h) && t.worse(h[r], h[l]) {
			l = r
		}
		if !t.worse(h[l], h[i]) {
			return
		}
		h[i], h[l] = h[l], h[i]
		i = l
	}
}

// sorted makes a list in answer order of the heap, which is lost. An error of look ends it.
func (t *topk) sorted(look func() error) ([]entry, error) {
	if len(t.heap) > longsort.Step && len(t.leaves) > 1 {
		// Documents of one leaf compare without their keys, so they come together first.
		t.spare = slices.Grow(t.spare[:0], len(t.heap))
		for li := range t.leaves {
			for _, e := range t.heap {
				if e.leaf == int32(li) {
					t.spare = append(t.spare, e)
				}
			}
		}
		t.heap, t.spare = t.spare, t.heap
	}
	var err error
	t.heap, t.spare, err = longsort.Sort(t.heap, t.spare, func(a, b entry) int {
		switch {
		case a == b:
			return 0
		case t.worse(a, b):
			return 1
		}
		return -1
	}, look)
	return t.heap, err
}
