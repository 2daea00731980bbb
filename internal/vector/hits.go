package vector

import "github.com/weft-search/weft/internal/score"

// Hit is a document found.
type Hit struct {
	Doc   uint32
	Score float32
}

// Options says what a search returns.
type Options struct {
	// K is the most documents to return.
	K int
	// Accept holds the documents that may be returned, document d as bit d%64 of word d/64; nil means all. Documents
	// beyond its end may not.
	Accept []uint64
	// Before says which of two documents of equal score comes first; nil means that with the lower number.
	Before func(a, b uint32) bool
	// Ef is the number of candidates that a graph search keeps; 0 means a default that suits K.
	Ef int
	// Combiner makes the score of a document with several vectors.
	Combiner score.Combiner
	// Check, if not nil, is told now and then how many vectors were compared since it was called last. Its error ends the
	// search, which returns it as it is.
	Check func(n int) error
}

// Work counts what a search did.
type Work struct {
	Visited   uint64 // vectors or nodes of a graph that were looked at
	Distances uint64 // comparisons with stored vectors, or with their codes in a graph
	Rescored  uint64 // vectors scored exactly after a graph had proposed them
}

// Add adds o to w.
func (w *Work) Add(o Work) {
	w.Visited += o.Visited
	w.Distances += o.Distances
	w.Rescored += o.Rescored
}

// topK keeps the best hits of a search as a heap with the worst on top.
type topK struct {
	h      []Hit
	k      int
	before func(a, b uint32) bool
}

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

// push offers a hit and says whether it is among the best so far.
func (t *topK) push(h Hit) bool {
	if len(t.h) < t.k {
		t.h = append(t.h, h)
		for i := len(t.h) - 1; i > 0; {
			up := (i - 1) / 2
			if !t.better(t.h[up], t.h[i]) {
				break
			}
			t.h[up], t.h[i] = t.h[i], t.h[up]
			i = up
		}
		return true
	}
	if h.Score < t.h[0].Score || !t.better(h, t.h[0]) {
		return false
	}
	t.h[0] = h
	t.down(0, len(t.h))
	return true
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
