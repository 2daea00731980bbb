package vector

import (
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector/topk"
)

// Source gives the vectors of a section in order.
type Source interface {
	// Len is the number of vectors.
	Len() int
	// Doc is the document of a vector. It ascends with ord and is equal for the values of one document.
	Doc(ord int) uint32
	// Record is the record of a vector, valid until the next call.
	Record(ord int) []byte
}

// Index is the vectors of one field of a set of documents, numbered from 0 in the order of the documents.
type Index struct {
	p       Params
	numDocs uint32
	n       int
	size    int // of a record
	records []byte
	ends    []uint32 // by document: running number of vectors; nil if every document has exactly one
	docs    []uint32 // by vector: its document; nil where ends is, and in memory
	most    int      // most vectors of one document, at least 1; 0 if not known
	having  atomic.Int64
	g       *graphPart // nil without a graph
	always  bool       // search the graph even where a scan costs less; for tests
	bytes   int        // of its section; 0 in memory
}

// InMemory returns an index of records that are not in a section, such as those of a memtable. ends gives for each of the
// numDocs documents the running number of vectors, its own included; records holds them in that order. Neither may change
// while the index is in use. It has no graph.
func InMemory(p Params, numDocs uint32, ends []uint32, records []byte) *Index {
	x := &Index{p: p, numDocs: numDocs, size: p.RecordSize(), records: records, ends: ends[:numDocs:numDocs]}
	if numDocs > 0 {
		x.n = int(ends[numDocs-1])
	}
	x.having.Store(-1)
	return x
}

// Params returns the parameters the vectors were stored with; GraphFrom is 0.
func (x *Index) Params() Params { return x.p }

// Len is the number of vectors.
func (x *Index) Len() int { return x.n }

// Bytes is what the index takes: its section, with the graph, or the records and numbers in memory.
func (x *Index) Bytes() int {
	if x.bytes > 0 {
		return x.bytes
	}
	return len(x.records) + 4*len(x.ends)
}

// Docs is the number of documents with a vector.
func (x *Index) Docs() int {
	if x.ends == nil {
		return x.n
	}
	if n := x.having.Load(); n >= 0 {
		return int(n)
	}
	n, last := 0, uint32(0)
	for _, e := range x.ends {
		if e > last {
			n, last = n+1, e
		}
	}
	x.having.Store(int64(n))
	return n
}

// Range returns the vectors of a document: from ≤ ord < to; from = to if it has none.
func (x *Index) Range(doc uint32) (from, to int) {
	if doc >= x.numDocs {
		return 0, 0
	}
	if x.ends == nil {
		return int(doc), int(doc) + 1
	}
	if doc > 0 {
		from = int(x.ends[doc-1])
	}
	to = int(x.ends[doc])
	// Only a damaged section has ends that do not ascend.
	if from > to || to > x.n {
		return 0, 0
	}
	return from, to
}

// Doc is the document of a vector.
func (x *Index) Doc(ord int) uint32 {
	switch {
	case x.docs != nil:
		return x.docs[ord]
	case x.ends == nil:
		return uint32(ord)
	default:
		return uint32(sort.Search(len(x.ends), func(i int) bool { return int(x.ends[i]) > ord }))
	}
}

// Record is the record of a vector. It must not be changed and lives as long as the index.
func (x *Index) Record(ord int) []byte {
	return x.records[ord*x.size : (ord+1)*x.size : (ord+1)*x.size]
}

// HasGraph says whether Masked and Unmasked search a graph. Without one they scan and are exact.
func (x *Index) HasGraph() bool { return x.g != nil }

// scores is scratch memory for the scores of a document's values.
type scores struct{ v []float32 }

var scorePool = sync.Pool{New: func() any { return new(scores) }}

// Score is the exact score of a document, false if it has no vector.
func (x *Index) Score(q *Query, c score.Combiner, doc uint32) (float32, bool) {
	from, to := x.Range(doc)
	if from == to {
		return 0, false
	}
	if to-from == 1 {
		return q.score(x.Record(from)), true
	}
	s := scorePool.Get().(*scores)
	v := x.combined(q, c, from, to, s)
	scorePool.Put(s)
	return v, true
}

// Ordinals appends the exact score of each vector of a document, in order.
func (x *Index) Ordinals(q *Query, doc uint32, dst []float32) []float32 {
	from, to := x.Range(doc)
	for i := from; i < to; i++ {
		dst = append(dst, q.score(x.Record(i)))
	}
	return dst
}

// combined is the score of a document with the vectors from ≤ ord < to, of which there is at least one.
func (x *Index) combined(q *Query, c score.Combiner, from, to int, s *scores) float32 {
	if to-from == 1 {
		return q.score(x.Record(from))
	}
	s.v = s.v[:0]
	for i := from; i < to; i++ {
		s.v = append(s.v, q.score(x.Record(i)))
	}
	return topk.Finite(c.Combine(s.v))
}

// checkEvery is the number of comparisons between two calls of Options.Check.
const checkEvery = 256

// Exact scores every document that has a vector and may be returned, and appends the best to dst, best first: by score
// descending, then as o.Before says.
func (x *Index) Exact(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	var w Work
	if o.K <= 0 || x.n == 0 {
		return dst, w, nil
	}
	top := topk.Heap{Hits: dst[len(dst):], K: min(o.K, int(x.numDocs)), Before: o.Before}
	s := scorePool.Get().(*scores)
	defer scorePool.Put(s)
	pending := 0
	visit := func(doc uint32, from, to int) error {
		top.Push(Hit{Doc: doc, Score: x.combined(q, o.Combiner, from, to, s)})
		w.Distances += uint64(to - from)
		if pending += to - from; pending >= checkEvery && o.Check != nil {
			n := pending
			pending = 0
			return o.Check(n)
		}
		return nil
	}
	if o.Accept == nil {
		for doc := range x.numDocs {
			if from, to := x.Range(doc); from < to {
				if err := visit(doc, from, to); err != nil {
					return dst, w, err
				}
			}
		}
	} else {
		for i, word := range o.Accept[:min(len(o.Accept), (int(x.numDocs)+63)/64)] {
			for ; word != 0; word &= word - 1 {
				doc := uint32(i*64 + bits.TrailingZeros64(word))
				if from, to := x.Range(doc); from < to {
					if err := visit(doc, from, to); err != nil {
						return dst, w, err
					}
				}
			}
		}
	}
	w.Visited = w.Distances
	return top.AppendTo(dst), w, nil
}
