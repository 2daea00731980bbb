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
	"sync"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/passage"
	"github.com/weft-search/weft/internal/text/subword"
)

// Index is a snapshot of an index to search. Its fields must not change while a call runs.
type Index struct {
	Schema    *schema.Schema
	Analyzers exec.Analyzers
	Leaves    []exec.Leaf
	Segments  []string       // the id of each leaf, 32 hex digits; ascending, as equals stand by it
	Cache     *Cache         // may be nil
	Models    *subword.Store // of texts that are searched for in sparse vectors; nil: there are none
	// Charge is told of what a reply takes in memory before it is made; its error ends the search. Nil: nobody counts.
	Charge func(bytes int) error
	// Hold is told of what a search takes in memory beside its reply, before it is made: the scores of the values of documents, candidates
	// and what ranks them; with a negative number of what it has no more. Its error ends the search. All of it is gone when Search returns.
	// Limits.MaxSearchHeldBytes bounds it for one search; nil: nobody counts.
	Hold func(bytes int) error
}

// Cache remembers of segments what searches would else count each time. One serves any number of indexes. The zero value is ready for
// use.
type Cache struct {
	passages passage.Cache

	mu   sync.Mutex
	docs map[docsKey]uint64
}

type docsKey struct {
	leaf  uint64
	field int
}

// mostCached bounds the segments and fields that a Cache remembers the documents of.
const mostCached = 1 << 16

func (c *Cache) ofPassages() *passage.Cache {
	if c == nil {
		return nil
	}
	return &c.passages
}

// counted returns the number of documents, dead or not, that count makes for a field of a leaf, and remembers it.
func (c *Cache) counted(l exec.Leaf, field int, count func() (uint64, error)) (uint64, error) {
	k := docsKey{l.Identity(), field}
	if c == nil || k.leaf == 0 {
		return count()
	}
	c.mu.Lock()
	n, ok := c.docs[k]
	c.mu.Unlock()
	if ok {
		return n, nil
	}
	n, err := count()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.docs == nil || len(c.docs) >= mostCached {
		c.docs = map[docsKey]uint64{}
	}
	c.docs[k] = n
	return n, nil
}
