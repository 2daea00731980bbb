package node

import (
	"context"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/shard/exec"
)

// find ranks: by the query, by vectors, or by both.
func (x *execution) find(ctx context.Context) error {
	x.rank.notes.AddIdle(x.req.Idle)
	switch {
	case x.req.KNN == nil:
		return x.findLexical(ctx)
	case x.query.Everything:
		return x.findNearest(ctx)
	}
	return x.findHybrid(ctx)
}

// lexical runs the query.
func (x *execution) lexical(ctx context.Context, r exec.Request) (*exec.Result, error) {
	r.Query, r.Filters = x.query.Root, x.req.Filters
	res, err := x.search(ctx, r)
	if err != nil {
		return nil, err
	}
	x.rank.notes = append(x.rank.notes, res.Notes...)
	return res, nil
}

func (x *execution) findLexical(ctx context.Context) error {
	req := x.req
	r := exec.Request{Limit: req.Limit, Offset: req.Offset, TotalFloor: req.TotalFloor, Sort: x.bound.Sort.Keys, After: x.bound.Page.After}
	switch req.Total {
	case api.TotalExact:
		r.Total = exec.TotalExact
	case api.TotalAtLeast:
		r.Total = exec.TotalAtLeast
	case api.TotalNone:
		r.Total = exec.TotalNone
	}
	if r.Limit > 0 {
		r.Limit++                                      // one more tells whether there is a next page
		r.KeepStats = x.stats == nil && x.bound.Scored // which is scored as this one
	}
	res, err := x.lexical(ctx, r)
	if err != nil {
		return err
	}
	x.rank.hits, x.rank.total, x.rank.relation = res.Hits, res.Total, res.TotalRelation
	if res.Stats != nil {
		x.stats = res.Stats
	}
	if len(res.Hits) > req.Limit {
		x.rank.hits, x.rank.more = res.Hits[:req.Limit], true
	}
	return nil
}

// neighbours runs the vector search of the request, for k neighbours.
func (x *execution) neighbours(ctx context.Context, k int) ([]exec.Hit, error) {
	hits, plan, err := x.nearest(ctx, x.vectorRequest(x.req.KNN, k, x.req.Filters))
	if plan != nil {
		x.rank.plan = plan
	}
	return hits, err
}

// findNearest ranks by similarity alone.
func (x *execution) findNearest(ctx context.Context) error {
	hits, err := x.neighbours(ctx, x.req.KNN.K)
	if err != nil {
		return err
	}
	x.rank.nearest = hits
	x.rank.hits = bound.Window(hits, x.req.Offset, x.req.Limit)
	x.settle(len(hits))
	return nil
}

// settle sets the total of a ranking that is there as a whole.
func (x *execution) settle(total int) {
	x.rank.total, x.rank.relation = uint64(total), exec.Exactly
	if x.partial {
		x.rank.relation = exec.AtLeast
	}
}

// place is a document in the snapshot.
type place struct {
	leaf int
	doc  uint32
}

// findHybrid ranks by the query and by vectors, each to the depth of the pool, and fuses the two.
func (x *execution) findHybrid(ctx context.Context) error {
	req := x.req
	pool := max(req.Pool, req.Offset+req.Limit)
	if req.KNN.GivenK {
		x.rank.notes.Add(bound.NoteIdleK)
	}
	lexical, err := x.lexical(ctx, exec.Request{Limit: pool, Total: exec.TotalNone})
	if err != nil {
		return err
	}
	vectors, err := x.neighbours(ctx, pool)
	if err != nil {
		return err
	}
	fused, err := bound.Fuse(req.Fusion, req.Weights, ranked(lexical.Hits), ranked(vectors))
	if err != nil {
		return err
	}
	x.settle(len(fused))
	for _, f := range bound.Window(fused, req.Offset, req.Limit) {
		x.rank.hits = append(x.rank.hits, exec.Hit{Leaf: f.Doc.leaf, Doc: f.Doc.doc, Score: f.Score, Key: f.ID})
		x.rank.votes = append(x.rank.votes, f.Votes)
	}
	x.watch.Lap(bound.StageFuse)
	return nil
}

// ranked is a list of hits as one ranking of two.
func ranked(hits []exec.Hit) []bound.Ranked[place] {
	out := make([]bound.Ranked[place], len(hits))
	for i := range hits {
		h := &hits[i]
		out[i] = bound.Ranked[place]{Doc: place{h.Leaf, h.Doc}, ID: h.Key, Score: h.Score}
	}
	return out
}
