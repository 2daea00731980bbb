package sparse

import (
	"math/bits"

	"github.com/weft-search/weft/internal/vector/topk"
)

// checkEvery is the number of vectors or entries of lists between two calls of Options.Check.
const checkEvery = 1 << 14

// Exhaustive scores every document that has a vector and may be returned, and appends the best to dst, best first: by score descending,
// then as o.Before says. The error is that of o.Check or of o.Combiner.
func (x *Index) Exhaustive(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	var w Work
	if err := o.Combiner.Check(); err != nil {
		return dst, w, err
	}
	if o.K <= 0 {
		return dst, w, nil
	}
	top := topk.Heap{Hits: dst[len(dst):], K: o.K, Before: o.Before}
	if err := x.scan(q, o, &top, &w); err != nil {
		return dst, w, err
	}
	return top.AppendTo(dst), w, nil
}

// scan offers every matching document that may be returned.
func (x *Index) scan(q *Query, o Options, top *topk.Heap, w *Work) error {
	s := scratchPool.Get().(*scratch)
	defer scratchPool.Put(s)
	pending := 0
	visit := func(doc uint32, from, to int) error {
		if v, ok := x.combined(q, o.Combiner, from, to, s); ok {
			top.Push(Hit{Doc: doc, Score: v})
		}
		w.Visited += uint64(to - from)
		w.Distances += uint64(to - from)
		if pending += to - from; pending >= checkEvery && o.Check != nil {
			n := pending
			pending = 0
			return o.Check(n)
		}
		return nil
	}
	switch {
	case x.docs != nil:
		// By vectors: they name their documents, while finding the vectors of a document takes a search.
		for from := 0; from < x.n; {
			doc, to := x.docs[from], from+1
			for to < x.n && x.docs[to] == doc {
				to++
			}
			if accepts(o.Accept, doc) {
				if err := visit(doc, from, to); err != nil {
					return err
				}
			}
			from = to
		}
	case o.Accept == nil:
		for doc := range x.numDocs {
			if from, to := x.Range(doc); from < to {
				if err := visit(doc, from, to); err != nil {
					return err
				}
			}
		}
	default:
		for i, word := range o.Accept[:min(len(o.Accept), (int(x.numDocs)+63)/64)] {
			for ; word != 0; word &= word - 1 {
				doc := uint32(i*64 + bits.TrailingZeros64(word))
				if from, to := x.Range(doc); from < to {
					if err := visit(doc, from, to); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// accepts tells whether a document may be returned.
func accepts(set []uint64, doc uint32) bool {
	return set == nil || int(doc>>6) < len(set) && set[doc>>6]>>(doc&63)&1 != 0
}
