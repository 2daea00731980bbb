package sparse

import (
	"slices"
	"sort"
	"sync"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/topk"
)

// What a search takes and gives has the types of package vector.
type (
	// Hit is a document found.
	Hit = vector.Hit
	// Options says what a search returns; Ef means nothing here. Check is told of vectors and of entries of lists.
	Options = vector.Options
	// Work counts what a search did: Visited are entries of lists and records read, Distances records scored, and Rescored those of them
	// that were survivors of the lists.
	Work = vector.Work
	// Source gives the vectors of a section in order. Write reads each record more than once.
	Source = vector.Source
	// CorruptError says how damage of a section showed.
	CorruptError = vector.CorruptError
)

// Index is the sparse vectors of one field of a set of documents, numbered from 0 in the order of the documents.
type Index struct {
	p       Params
	numDocs uint32
	n       int
	having  int      // documents with a vector
	docs    []uint32 // by vector: its document; nil if every document has exactly one, and in memory
	ends    []uint32 // in memory: by document, the running number of vectors
	offs    []uint64 // by vector: where its record ends
	records []byte
	blocks  []block // none in memory
	raw     []byte  // the whole section, for Verify
	// nonzeros is the number of weights of all records, in a section.
	nonzeros uint64
}

// InMemory returns an index of records that are not in a section, such as those of a memtable. ends gives for each of the numDocs
// documents the running number of vectors, its own included; offs gives for each vector the place in records where its record ends,
// so that the record of vector i is records[offs[i-1]:offs[i]], the first beginning at 0. What is given must not change while the
// index is in use. It has no lists: Search scans.
func InMemory(p Params, numDocs uint32, ends []uint32, offs []uint64, records []byte) *Index {
	x := &Index{p: p, numDocs: numDocs, ends: ends[:numDocs:numDocs], records: records}
	if numDocs > 0 {
		x.n = int(ends[numDocs-1])
	}
	x.offs = offs[:x.n:x.n]
	last := uint32(0)
	for _, e := range x.ends {
		if e > last {
			x.having, last = x.having+1, e
		}
	}
	return x
}

// Params returns the parameters that the index was opened or made with.
func (x *Index) Params() Params { return x.p }

// Len is the number of vectors.
func (x *Index) Len() int { return x.n }

// Docs is the number of documents with a vector.
func (x *Index) Docs() int { return x.having }

// Bytes is what the index takes: its section, or the records and numbers in memory.
func (x *Index) Bytes() int {
	if x.raw != nil {
		return len(x.raw)
	}
	return len(x.records) + 4*len(x.ends) + 8*len(x.offs)
}

// Range returns the vectors of a document: from ≤ ord < to; from = to if it has none.
func (x *Index) Range(doc uint32) (from, to int) {
	switch {
	case doc >= x.numDocs:
		return 0, 0
	case x.ends != nil:
		if doc > 0 {
			from = int(x.ends[doc-1])
		}
		return from, int(x.ends[doc])
	case x.docs != nil:
		from, ok := slices.BinarySearch(x.docs, doc)
		if !ok {
			return 0, 0
		}
		for to = from + 1; to < x.n && x.docs[to] == doc; to++ {
		}
		return from, to
	case x.n == 0:
		return 0, 0
	}
	return int(doc), int(doc) + 1
}

// Doc is the document of a vector.
func (x *Index) Doc(ord int) uint32 {
	switch {
	case x.docs != nil:
		return x.docs[ord]
	case x.ends != nil:
		return uint32(sort.Search(len(x.ends), func(i int) bool { return int(x.ends[i]) > ord }))
	}
	return uint32(ord)
}

// Record is the record of a vector. It must not be changed and lives as long as the index.
func (x *Index) Record(ord int) []byte {
	from := uint64(0)
	if ord > 0 {
		from = x.offs[ord-1]
	}
	to := x.offs[ord]
	return x.records[from:to:to]
}

// scratch is memory for the scores of a document's values.
type scratch struct{ scores []float32 }

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// Score is the exact score of a document, false if none of its values shares a dimension with the query.
func (x *Index) Score(q *Query, c score.Combiner, doc uint32) (float32, bool) {
	from, to := x.Range(doc)
	if to-from == 1 {
		return q.score(x.Record(from))
	}
	s := scratchPool.Get().(*scratch)
	v, ok := x.combined(q, c, from, to, s)
	scratchPool.Put(s)
	return v, ok
}

// Ordinals appends the exact score of each vector of a document, in order; one that shares no dimension with the query has 0.
// Matching says which those are.
func (x *Index) Ordinals(q *Query, doc uint32, dst []float32) []float32 {
	from, to := x.Range(doc)
	for i := from; i < to; i++ {
		s, _ := q.score(x.Record(i))
		dst = append(dst, s)
	}
	return dst
}

// Matching appends the numbers of the values of a document, from 0, that share a dimension with the query: the ones that its combiner
// sees.
func (x *Index) Matching(q *Query, doc uint32, dst []uint32) []uint32 {
	from, to := x.Range(doc)
	for i := from; i < to; i++ {
		if _, ok := q.score(x.Record(i)); ok {
			dst = append(dst, uint32(i-from))
		}
	}
	return dst
}

// combined is the score of a document with the vectors from ≤ ord < to.
func (x *Index) combined(q *Query, c score.Combiner, from, to int, s *scratch) (float32, bool) {
	if to-from == 1 {
		return q.score(x.Record(from))
	}
	s.scores = s.scores[:0]
	for i := from; i < to; i++ {
		if v, ok := q.score(x.Record(i)); ok {
			s.scores = append(s.scores, v)
		}
	}
	if len(s.scores) == 0 {
		return 0, false
	}
	return topk.Finite(c.Combine(s.scores)), true
}
