package read

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard/knn"
)

// KNN is leaf.Leaf.KNN. Where it is known how large the groups are, each is first asked for its share of the neighbours, with as many
// candidates as go with that (knn.Share), and for all of them only where the answer of another would not show that it has no more.
func (r *Reader) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.KNNReply, error) {
		g, best, err := r.nearest(c, p, req)
		if err != nil {
			return nil, err
		}
		out := &leaf.KNNReply{Hits: make([]leaf.Neighbour, len(best))}
		for i, b := range best {
			out.Hits[i] = *b.item
		}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				out.Docs += of.Docs
				out.Partial = out.Partial || of.Partial
			}
		}
		out.Meta = describe(r, opKNN, g)
		return out, nil
	})
}

// nearest asks the groups for neighbours and ranks them.
func (r *Reader) nearest(c *running, p *plan, req *leaf.KNNRequest) (*gathered[leaf.KNNReply], []ranked[leaf.Neighbour], error) {
	shares := r.shares(p, req)
	if shares == nil {
		g, err := everywhere(r, c, p, opKNN, req)
		if err != nil {
			return nil, nil, err
		}
		best, err := r.rankNearest(c, g, req, true)
		return g, best, err
	}
	rd := &round{p: p, each: make([]task, len(p.groups)), print: fingerprint(r, opKNN, req)}
	for i, grp := range p.groups {
		if grp.visible {
			rd.each[i] = &typed[leaf.KNNRequest, leaf.KNNReply]{opKNN, looking(opKNN, shares[i], grp.view)}
		}
	}
	g, err := gather(r, c, opKNN, req.Index, rd)
	if err != nil {
		return nil, nil, err
	}
	best, err := r.rankNearest(c, g, req, false)
	if err != nil {
		return nil, nil, err
	}
	again := &round{p: p, each: make([]task, len(p.groups)), print: rd.print}
	more := false
	for i := range g.parts {
		of := g.parts[i].reply
		if of == nil || of.Partial || shares[i].KNN.K == req.KNN.K || len(of.Hits) < shares[i].KNN.K {
			continue
		}
		if len(best) == req.KNN.K && compareNeighbours(&of.Hits[len(of.Hits)-1], best[len(best)-1].item) >= 0 {
			continue
		}
		// All that it gave is among the best: it may have more of them.
		again.each[i] = &typed[leaf.KNNRequest, leaf.KNNReply]{opKNN, looking(opKNN, req, p.groups[i].view)}
		more = true
	}
	if more {
		r.askedAgain.Add(1)
		if err := r.askAgain(c, g, req.Index, again); err != nil {
			return nil, nil, err
		}
	}
	best, err = r.rankNearest(c, g, req, true)
	return g, best, err
}

// rankNearest ranks what the groups gave. whole says that it is the answer.
func (r *Reader) rankNearest(c *running, g *gathered[leaf.KNNReply], req *leaf.KNNRequest, whole bool) ([]ranked[leaf.Neighbour], error) {
	hits := func(r *leaf.KNNReply) []leaf.Neighbour { return r.Hits }
	best, twice, err := mergeTop(r, c, opKNN, g, req.KNN.K, hits, compareNeighbours, func(n *leaf.Neighbour) string { return n.ID })
	if whole && err == nil {
		r.duplicates.Add(uint64(twice))
	}
	return best, err
}

// shares are the requests of the groups for their shares, by ordinal; nil where all are to be asked for everything.
func (r *Reader) shares(p *plan, req *leaf.KNNRequest) []*leaf.KNNRequest {
	if req.KNN.Exact || req.KNN.K < 2 || len(p.groups) < 2 {
		return nil // a scan costs the same for one
	}
	docs := make([]uint64, len(p.groups))
	total := uint64(0)
	r.sizes.mu.Lock()
	known := r.sizes.of(req.Index, len(p.groups))
	for i, grp := range p.groups {
		if !grp.visible {
			continue
		}
		if !known[i].sized {
			r.sizes.mu.Unlock()
			return nil
		}
		docs[i] = known[i].docs
		total += docs[i]
	}
	r.sizes.mu.Unlock()
	if total == 0 {
		return nil
	}
	out := make([]*leaf.KNNRequest, len(p.groups))
	fewer := false
	for i, grp := range p.groups {
		if !grp.visible {
			continue
		}
		one := *req
		one.KNN.K, one.KNN.Ef = knn.Share(req.KNN.K, req.KNN.Ef, float64(docs[i])/float64(total))
		if one.KNN.K == req.KNN.K {
			one.KNN.Ef = req.KNN.Ef
		} else {
			fewer = true
		}
		out[i] = &one
	}
	if !fewer {
		return nil
	}
	return out
}

// askAgain makes a second round of some groups and puts what they say in the place of what they said before. A group that fails now has
// failed: what it has besides is missing.
func (r *Reader) askAgain(c *running, g *gathered[leaf.KNNReply], index string, rd *round) error {
	second, err := gather(r, c, opKNN, index, rd)
	if err != nil {
		_, stale := errors.AsType[*staleError](err)
		p, refused := errors.AsType[*api.Problem](err)
		if stale || refused && refusal(p) || r.ended(c) != nil {
			return err
		}
	}
	for i := range g.parts {
		of := &g.parts[i]
		switch took := of.took; {
		case rd.each[i] == nil:
		case second == nil:
			of.reply, of.outcome, of.err = nil, serve.OutcomeOf(err), err
		default:
			before := of.reply
			*of = second.parts[i]
			of.took += took
			if of.reply != nil && of.reply.Partial && len(of.reply.Hits) < len(before.Hits) {
				of.reply.Hits = before.Hits // what the time was enough for
			}
		}
	}
	if second != nil {
		g.took += second.took
	}
	return anyAnswer(r, c, opKNN, g)
}

func compareNeighbours(a, b *leaf.Neighbour) int {
	return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), strings.Compare(a.ID, b.ID))
}
