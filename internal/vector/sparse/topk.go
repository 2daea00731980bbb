package sparse

import "math"

// topK keeps the best hits of a search as a heap with the worst at its root.
type topK struct {
	h      []Hit
	k      int
	before func(a, b uint32) bool
}

// full says that a hit has to beat the worst to be kept.
func (t *topK) full() bool { return len(t.h) >= t.k }

// better says that a ranks before b.
func (t *topK) better(a, b Hit) bool {
	if a.Score != b.Score {
		return a.Score > b.Score
	}
	if t.before != nil {
		return t.before(a.Doc, b.Doc)
	}
	return a.Doc < b.Doc
}

// push offers a hit.
func (t *topK) push(h Hit) {
	if !t.full() {
		t.h = append(t.h, h)
		for i := len(t.h) - 1; i > 0; {
			up := (i - 1) / 2
			if !t.better(t.h[up], t.h[i]) {
				return
			}
			t.h[up], t.h[i] = t.h[i], t.h[up]
			i = up
		}
		return
	}
	if h.Score < t.h[0].Score || !t.better(h, t.h[0]) {
		return
	}
	t.h[0] = h
	t.down(0, len(t.h))
}

func (t *topK) down(i, n int) {
	for {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && t.better(t.h[c], t.h[c+1]) {
			c++
		}
		if !t.better(t.h[i], t.h[c]) {
			return
		}
		t.h[i], t.h[c] = t.h[c], t.h[i]
		i = c
	}
}

// sort puts the hits in order, best first.
func (t *topK) sort() {
	for n := len(t.h) - 1; n > 0; n-- {
		t.h[0], t.h[n] = t.h[n], t.h[0]
		t.down(0, n)
	}
}

// finite makes a score that can be compared and printed of any float.
func finite(s float32) float32 {
	switch {
	case s-s == 0:
		return s
	case s > 0:
		return math.MaxFloat32
	}
	return -math.MaxFloat32
}
