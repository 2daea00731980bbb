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
	Lenient       bool         // as in Request
	Stats         *score.Stats // as in Request: they choose the words of a Match with MaxTerms
	Trace         *Trace       // as in Request
	Given         []Given      // as in Request
}

// MatchSet is the documents that a query and filters find.
type MatchSet struct {
	Leaves []LeafMatch // one for each leaf
	Count  uint64      // of all leaves
}

// LeafMatch is the documents found on one leaf.
type LeafMatch struct {
	Set   bitset.Set // live documents; nil: every live document of the leaf. Not to be written to
	Count uint32
}

// Match returns the live documents that q (nil: every document) and every filter find, without scores and statistics. A prefix may
// have any number of words. Errors are those of Search; nothing is returned with one, also after a deadline.
func Match(ctx context.Context, leaves []Leaf, sch *schema.Schema, an Analyzers, q query.Node, filters []query.Node, o MatchOptions) (*MatchSet, error) {
	req := Request{Query: q, DefaultFields: o.DefaultFields, Lenient: o.Lenient, Stats: o.Stats, Cache: o.Cache, Trace: o.Trace, Given: o.Given}
	s := newSearcher(ctx, leaves, sch, an, &req)
	defer s.release()
	if err := s.ended(); err != nil {
		return nil, err
	}
	root, err := s.plan(q)
	if err != nil {
		return nil, err
	}
	if err := s.planFilters(filters, o.Cache); err != nil {
		return nil, err
	}
	if len(s.capped) > 0 {
		if err := s.statistics(); err != nil {
			return nil, err
		}
	}
	if req.Trace != nil {
		req.Trace.Leaves = make([]LeafTrace, len(leaves))
	}
	out := &MatchSet{Leaves: make([]LeafMatch, len(leaves))}
	err = s.eachLeaf(func(li int, tr *LeafTrace) error {
		if s.liveN == 0 {
			out.Leaves[li].Set = bitset.New(int(leaves[li].NumDocs()))
			return nil
		}
		if tr != nil {
			tr.Path = "set"
		}
		set, n, err := s.matches(li, root)
		if err != nil {
			return err
		}
		m := &out.Leaves[li]
		m.Count = n
		out.Count += uint64(n)
		switch {
		case n == leaves[li].LiveDocs():
			s.drop(set)
		case n == 0:
			s.drop(set)
			m.Set = bitset.New(int(leaves[li].NumDocs()))
		case set.shared && !s.accepted.shared:
			m.Set, s.accepted = set.bits, docSet{} // not to be used again
		default:
			m.Set = set.bits
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
