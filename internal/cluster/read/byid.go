package read

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/leaf"
)

// split says which of a list of ids each group owns.
type split struct {
	owner []int // of each id, by place in the list
	at    []int // the place of each id in the list of its owner
	ids   [][]string
}

// splitIDs gives ids to the groups in which readers see the documents with them.
func splitIDs(p *plan, ids []string) *split {
	s := &split{owner: make([]int, len(ids)), at: make([]int, len(ids)), ids: make([][]string, len(p.groups))}
	for i, id := range ids {
		g := p.state.Owner(id).Ordinal
		s.owner[i], s.at[i] = g, len(s.ids[g])
		s.ids[g] = append(s.ids[g], id)
	}
	return s
}

// toOwners asks each group that owns ids of a list about them. with is the request for the ids of one group, a copy of the caller's.
func toOwners[Q, R any](r *Reader, c *running, p *plan, o *op[Q, R], s *split, req *Q, with func(q *Q, ids []string)) (*gathered[R], error) {
	rd := &round{p: p, each: make([]task, len(p.groups))}
	for i, g := range p.groups {
		if len(s.ids[i]) == 0 {
			continue
		}
		q := *looking(o, req, g.view)
		with(&q, s.ids[i])
		rd.each[i] = &typed[Q, R]{o, &q}
	}
	rd.print = fingerprint(r, o, req)
	return gather(r, c, o, o.index(req), rd)
}

// Has is leaf.Leaf.Has. It fails where a shard that owns one of the ids is missing.
func (r *Reader) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	return answer(ctx, r, func(c *running, p *plan) (*leaf.HasReply, error) {
		s := splitIDs(p, req.IDs)
		g, err := toOwners(r, c, p, opHas, s, req, func(q *leaf.HasRequest, ids []string) { q.IDs = ids })
		if err != nil {
			return nil, err
		}
		missing := make([]map[string]bool, len(p.groups))
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				missing[i] = make(map[string]bool, len(of.Missing))
				for _, id := range of.Missing {
					missing[i][id] = true
				}
			}
		}
		out := &leaf.HasReply{}
		for i, id := range req.IDs {
			if own := s.owner[i]; g.parts[own].reply == nil || missing[own][id] {
				out.Missing = append(out.Missing, id)
			}
		}
		out.Meta = describe(r, opHas, g)
		return out, nil
	})
}

// Fetch is leaf.Member.Fetch. A document whose shard is missing is Missing; Meta.Below tells that it is.
func (r *Reader) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	if len(req.IDs) > leaf.MaxFetch {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxFetch)
	}
	return answer(ctx, r, func(c *running, p *plan) (*leaf.FetchReply, error) {
		s := splitIDs(p, req.IDs)
		g, err := toOwners(r, c, p, opFetch, s, req, func(q *leaf.FetchRequest, ids []string) { q.IDs = ids })
		if err != nil {
			return nil, err
		}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil && len(of.Docs) != len(s.ids[i]) {
				g.parts[i].fail(fmt.Errorf("%d documents came for %d ids", len(of.Docs), len(s.ids[i])))
				if err := anyAnswer(r, c, opFetch, g); err != nil {
					return nil, err
				}
			}
		}
		out := &leaf.FetchReply{Docs: make([]leaf.Shown, len(req.IDs))}
		for i := range req.IDs {
			if of := g.parts[s.owner[i]].reply; of != nil {
				out.Docs[i] = of.Docs[s.at[i]]
			} else {
				out.Docs[i].Missing = true
			}
		}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				out.Notes = unite(out.Notes, of.Notes)
				if out.Plan == nil {
					out.Plan = of.Plan
				}
			}
		}
		out.Meta = describe(r, opFetch, g)
		return out, nil
	})
}

// Sums is leaf.Member.Sums. It fails where a shard is missing.
func (r *Reader) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	if req.Range == nil {
		return r.sumsOf(ctx, req)
	}
	if req.Limit < 1 || req.Limit > leaf.MaxIDs {
		return nil, outside("limit", req.Limit, 1, leaf.MaxIDs)
	}
	return answer(ctx, r, func(c *running, p *plan) (*leaf.SumsReply, error) {
		g, err := everywhere(r, c, p, opSums, req)
		if err != nil {
			return nil, err
		}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil && (len(of.Sums) != len(of.IDs) || !slices.IsSorted(of.IDs)) {
				g.parts[i].fail(fmt.Errorf("%d checksums came for %d ids, in order: %t", len(of.Sums), len(of.IDs), slices.IsSorted(of.IDs)))
				return nil, uncovered(r, c, opSums, g)
			}
		}
		out := mergeSums(p, g, req.Limit)
		out.Meta = describe(r, opSums, g)
		return out, nil
	})
}

// mergeSums merges lists of checksums by id. Of an id that stands in several, that of its owner holds.
func mergeSums(p *plan, g *gathered[leaf.SumsReply], limit int) *leaf.SumsReply {
	at := make([]int, len(g.parts))
	// Of a group that gave only a part of its list nothing is known behind that.
	horizon, cut := "", false
	for i := range g.parts {
		if of := g.parts[i].reply; of != nil && of.Next != "" && (!cut || of.Next < horizon) {
			horizon, cut = of.Next, true
		}
	}
	out := &leaf.SumsReply{}
	for {
		least, found := "", false
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil && at[i] < len(of.IDs) && (!found || of.IDs[at[i]] < least) {
				least, found = of.IDs[at[i]], true
			}
		}
		if !found || cut && least > horizon {
			if cut {
				out.Next = horizon
			}
			return out
		}
		if len(out.IDs) == limit {
			out.Next = out.IDs[limit-1]
			return out
		}
		owner := p.state.Owner(least).Ordinal
		var sum leaf.Sum
		own := false
		for i := range g.parts {
			of := g.parts[i].reply
			if of == nil || at[i] >= len(of.IDs) || of.IDs[at[i]] != least {
				continue
			}
			if !own {
				sum, own = of.Sums[at[i]], i == owner
			}
			at[i]++
		}
		out.IDs, out.Sums = append(out.IDs, least), append(out.Sums, sum)
	}
}

// sumsOf gives the checksums of documents by id.
func (r *Reader) sumsOf(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	return answer(ctx, r, func(c *running, p *plan) (*leaf.SumsReply, error) {
		s := splitIDs(p, req.IDs)
		g, err := toOwners(r, c, p, opSums, s, req, func(q *leaf.SumsRequest, ids []string) { q.IDs = ids })
		if err != nil {
			return nil, err
		}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil && len(of.Sums) != len(s.ids[i]) {
				g.parts[i].fail(fmt.Errorf("%d checksums came for %d ids", len(of.Sums), len(s.ids[i])))
				return nil, uncovered(r, c, opSums, g)
			}
		}
		out := &leaf.SumsReply{Sums: make([]leaf.Sum, len(req.IDs))}
		for i := range req.IDs {
			if of := g.parts[s.owner[i]].reply; of != nil {
				out.Sums[i] = of.Sums[s.at[i]]
			}
		}
		out.Meta = describe(r, opSums, g)
		return out, nil
	})
}
