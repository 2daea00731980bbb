// Package topk keeps the best documents of a vector search: by score descending, equals in an order of the caller's.
package topk

import "math"

// Hit is a document found.
type Hit struct {
	Doc   uint32
	Score float32
}

// Heap keeps the K best hits that were offered, the worst at the root. It is not safe for concurrent use.
type Heap struct {
	Hits []Hit
	K    int
	// Before says which of two documents of equal score comes first; nil means that with the lower number.
	Before func(a, b uint32) bool
}

// Full says that a hit has to beat the worst to be kept.
func (t *Heap) Full() bool { return len(t.Hits) >= t.K }

// Better says that a ranks before b.
func (t *Heap) Better(a, b Hit) bool {
	if a.Score != b.Score {
		return a.Score > b.Score
	}
	if t.Before != nil {
		return t.Before(a.Doc, b.Doc)
	}
	return a.Doc < b.Doc
}

// Push offers a hit and says whether it is among the best so far. K is above 0.
func (t *Heap) Push(h Hit) bool {
	if !t.Full() {
		t.Hits = append(t.Hits, h)
		for i := len(t.Hits) - 1; i > 0; {
			up := (i - 1) / 2
			if !t.Better(t.Hits[up], t.Hits[i]) {
				break
			}
			t.Hits[up], t.Hits[i] = t.Hits[i], t.Hits[up]
			i = up
		}
		return true
	}
	if h.Score < t.Hits[0].Score || !t.Better(h, t.Hits[0]) {
		return false
	}
	t.Hits[0] = h
	t.down(0, len(t.Hits))
	return true
}

func (t *Heap) down(i, n int) {
	for {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && t.Better(t.Hits[c], t.Hits[c+1]) {
			c++
		}
		if !t.Better(t.Hits[i], t.Hits[c]) {
			return
		}
		t.Hits[i], t.Hits[c] = t.Hits[c], t.Hits[i]
		i = c
	}
}

// Sort puts the hits in order, best first. Nothing may be pushed after it.
func (t *Heap) Sort() {
	for n := len(t.Hits) - 1; n > 0; n-- {
		t.Hits[0], t.Hits[n] = t.Hits[n], t.Hits[0]
		t.down(0, n)
	}
}

// AppendTo is Sort, and appends the hits to dst. Hits may be the free end of dst; for an empty dst it returns them without a copy.
func (t *Heap) AppendTo(dst []Hit) []Hit {
	t.Sort()
	if len(dst) == 0 {
		return t.Hits
	}
	return append(dst, t.Hits...)
}

// Finite makes a score that can be compared and printed of any float.
func Finite(s float32) float32 {
	switch {
	case s-s == 0:
		return s
	case s > 0:
		return math.MaxFloat32
	}
	return -math.MaxFloat32
}
