package vector

import (
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector/topk"
)

// Hit is a document found.
type Hit = topk.Hit

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
