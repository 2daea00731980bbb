package exec

import (
	"context"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
)

// Explanation is how one part of a query scored one document. Its value follows from those of its parts by the rule of its kind.
type Explanation struct {
	// Kind is "term", "phrase", "prefix", "range", "terms", "exists", "all", "sum", "boost", "filter", "not" or "nothing".
	Kind   string
	Match  bool    // the document matches the part
	Value  float32 // 0 where it does not
	Field  string  // of kinds that have one
	Text   string  // term: the token; phrase: the tokens; prefix: the beginning
	Factor float32 // boost: Value is Factor times the value of the only part
	BM25   *BM25   // term and phrase
	Parts  []*Explanation
	More   int // parts left out to keep the tree small; Value counts them
}

// BM25 holds the numbers of docs/query.md, Scores.
type BM25 struct {
	TF, Len       uint32
	Avg           float32
	Docs, DF      uint64 // N and df; df of a phrase is 0: its idf is the sum over its tokens
	IDF           float32
	K1, B         float32
	SumLen, Holds uint64 // sum and count behind Avg
}

// Explain tells how the query scores a document of a leaf, with the statistics that Search would use. The value of the root has the
// bits of the hit's score. Errors are those of Search.
func Explain(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, q query.Node, stats *score.Stats, defaultFields []string, leaf int, doc uint32) (*Explanation, error) {
	return &Explanation{}, nil
}
