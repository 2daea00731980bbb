// Package summaquery answers the searches of the Summa wire over one snapshot of an index: branches of text, passages, vectors and
// filters, with the scores of the values of each hit.
//
// What a query means is that of the Summa wire contract ("Node: query semantics"), with the differences on purpose that its list names.
// A query is compiled to parts. Parts of plain text and filters are run by package exec, passages by package passage, vectors by package
// knn; where they stand together in one query, what passages and vectors find goes into exec as lists of documents with scores.
//
// Two kinds of parts nominate: text ranked over the passages of one field, and vectors, find their best documents and no more than
// were asked for. Everything else finds every match.
//
// Errors that a client caused are *summa.Error; others are those of the context, or damage. Nothing is kept between calls; all
// functions are safe for concurrent use.
package summaquery

import (
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/passage"
)

// Index is a snapshot of an index to search. Its fields must not change while a call runs.
type Index struct {
	Schema    *schema.Schema
	Analyzers exec.Analyzers
	Leaves    []exec.Leaf
	Segments  []string       // the id of each leaf, 32 hex digits; ascending, as equals stand by it
	Passages  *passage.Cache // may be nil
}
