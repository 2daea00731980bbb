// Package exec runs queries over the leaves of a snapshot: segments with their live documents, and memtables.
//
// It analyses the text leaves of a query, gathers integer statistics, plans an iterator for each leaf and keeps the best
// documents in one order, score descending then key ascending. Pruning skips only what provably cannot enter the answer, so
// a pruned search and an exhaustive one return the same documents with the same bits.
//
// A search holds no state between calls; leaves must not change while it runs.
package exec

import (
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// Leaf is one searchable part of a snapshot.
type Leaf interface {
	// NumDocs is the bound of document numbers: they run from 0 to NumDocs−1.
	NumDocs() uint32
	// Live is the set of live documents; nil when all are.
	Live() bitset.Set
	// LiveDocs is the number of live documents.
	LiveDocs() uint32
	// KeyOrdered tells whether document order is key order.
	KeyOrdered() bool
	// FieldStats are those of the live documents.
	FieldStats(field int) score.FieldStats
	// DocFreq is the number of live documents that hold the term. Where it has to read the list it calls check with the number of
	// postings read, every few thousand; an error of check ends it.
	DocFreq(field int, term []byte, check func(n int) error) (uint64, error)
	// Postings finds the list of a term; it may name dead documents.
	Postings(field int, term []byte) (segment.Postings, bool)
	// ScanPostings calls fn for each term with the prefix, ascending, with its list, until fn returns false. The bytes of the term
	// die when fn returns; the list does not.
	ScanPostings(field int, prefix []byte, fn func(term []byte, p segment.Postings) bool) error
	// Lengths holds the tokens of each document in the field, for every document number; nil if the leaf has none.
	Lengths(field int) []uint16
	// Present returns a test for documents that have a value for the field; nil when none has.
	Present(field int) func(doc uint32) bool
	// NumColumn and StrColumn return a field's column; nil when the leaf has none.
	NumColumn(field int) NumColumn
	StrColumn(field int) StrColumn
	// Vectors and SparseVectors return the vectors of a field, those of dead documents among them; nil when the leaf has none.
	Vectors(field int) *vector.Index
	SparseVectors(field int) *sparse.Index
	// Identity is a number of the leaf's set of documents, dead or not, that no other set of this process ever has: the same for every
	// snapshot of a segment. 0 for a set that still changes, as a memtable does.
	Identity() uint64
	// Key appends the primary key of a document to dst.
	Key(doc uint32, dst []byte) []byte
	// Source appends the stored source of a document to dst; nil if none is kept.
	Source(doc uint32, dst []byte) ([]byte, error)
	// Err is the first damage met while reading the leaf.
	Err() error
}

// NumColumn holds numbers in the order-preserving encoding of package schema.
type NumColumn interface {
	// Values appends the values of a document.
	Values(doc uint32, dst []uint64) []uint64
	// NumBlocks counts the blocks of ColumnBlock documents.
	NumBlocks() int
	// BlockRange gives the least and greatest value of a block; ok is false when it has none.
	BlockRange(b int) (lo, hi uint64, ok bool)
}

// ColumnBlock is the number of documents in a block of a column.
const ColumnBlock = 1024

// StrColumn holds text values as ordinals of a sorted dictionary.
type StrColumn interface {
	NumOrds() int
	// Seek returns the first ordinal whose value is not below value, and whether it is equal.
	Seek(value []byte) (ord int, exact bool)
	// Lookup appends the value of an ordinal.
	Lookup(ord int, dst []byte) []byte
	// Ords appends the ordinals of a document's values, in the order they were given.
	Ords(doc uint32, dst []uint32) []uint32
}

// TotalMode says how exactly the number of matches is wanted.
type TotalMode uint8

// Total modes.
const (
	TotalExact   TotalMode = iota // every match is counted
	TotalAtLeast                  // counting may stop at Request.TotalFloor
	TotalNone                     // the caller wants no total
)

// Request is one search.
type Request struct {
	Query  query.Node
	Limit  int // hits returned at most
	Offset int // hits left out before the first returned one
	Window int // bound of Offset + Limit of callers who have another than MaxWindow; 0: MaxWindow

	Total      TotalMode
	TotalFloor uint64

	// Stats replaces the statistics of the leaves: for the fields and terms it has, and N. A term in no document is one that it does not
	// have. No term counts for more documents than N.
	Stats *score.Stats
	// AllowPartial returns what was reached when the context's deadline passes, instead of an error.
	AllowPartial bool
	// DefaultFields are searched by terms without a field; nil means every indexed text field in schema order.
	DefaultFields []string
	// Lenient takes a field that the schema does not have for one in which no document has a value: nothing matches there, and a key of
	// Sort over it is missing for every document. Its text is taken apart as that of an inferred text field.
	Lenient bool
	// NoKeys leaves Hit.Key empty, for callers that read it from the leaf when they need it.
	NoKeys bool
	// Exhaustive turns pruning off: every match is scored. The answer is the same.
	Exhaustive bool

	// Given are the documents and scores of the query.Given nodes of the query.
	Given []Given
	// ByPlace orders equals by leaf and document number, not by id. It takes neither Sort nor After.
	ByPlace bool

	// Filters narrow the answer and its total to the documents that each of them finds; they change no score and no statistics.
	Filters []query.Node
	// Cache keeps the documents of filters that recur; nil evaluates every filter each time.
	Cache *FilterCache
	// Sort is the order of the answer; empty means by score descending. Equals stand by id ascending, always.
	Sort []SortKey
	// After leaves out every document up to and including the one it describes. Offset counts from there; totals do not change.
	After *After
	// KeepStats fills Result.Stats: with them installed, another search scores like this one whatever was written meanwhile.
	KeepStats bool
	// LocalStats, if not 0, fills Result.LocalStats, unless they have more terms than this.
	LocalStats int
	// NoScores leaves Hit.Score 0 where no key of Sort is by score, and saves the statistics. Without it, and with such an order, the
	// scores of the returned hits are computed, those of no other document.
	NoScores bool
	// Trace, where not nil, receives how each leaf was searched.
	Trace *Trace
}

// Given lists documents with scores: of each leaf, in the order of the leaves. A leaf that has none may be left out at the end.
type Given []GivenLeaf

// GivenLeaf lists documents of one leaf, ascending, and the score of each. Dead ones are passed over.
type GivenLeaf struct {
	Docs   []uint32
	Scores []float32
}

// Hit is one document of an answer.
type Hit struct {
	Leaf  int
	Doc   uint32
	Score float32
	Key   string
	// Sort holds the document's value for each key of Request.Sort; nil when that is empty.
	Sort []SortValue
}

// Total relations.
const (
	Exactly = "eq"
	AtLeast = "gte"
)

// Result is the answer of Search.
type Result struct {
	Hits          []Hit
	Total         uint64
	TotalRelation string // Exactly or AtLeast; empty when no total was asked for
	// Entered is how many documents were among the best at some time, as they were met leaf by leaf in the order of their numbers; only
	// with ByPlace.
	Entered uint64
	Partial bool // the deadline passed before everything was searched
	Notes   []string
	Stats   *score.Stats // what the scores were made with, of the terms that score; nil without Request.KeepStats or scores
	// LocalStats are what Statistics gives for the query, whatever the scores were made with; nil without Request.LocalStats or scores.
	LocalStats   *score.Stats
	Scored       bool // scores of the hits come from words, and so from statistics
	CappedPrefix bool // a prefix has more than MaxPrefixTerms words, and only the most frequent of them score
}
