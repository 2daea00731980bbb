package search

import (
	"context"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/shard/exec"
)

// find ranks: by the query, by vectors, or by both.
func (x *execution) find(ctx context.Context) error {
	switch {
	case x.req.KNN == nil:
		return x.findLexical(ctx)
	case x.query.Everything:
		return x.findNearest(ctx)
	}
	return x.findHybrid(ctx)
}

// root is the query as shards are asked for it; nil: every document.
func (x *execution) root() query.Node {
	if x.query.Everything {
		return nil
	}
	return x.query.Root
}

// lenient is how shards are asked.
var lenient = leaf.View{Lenient: true}

// lexicalRequest is the request of a ranking by the query.
func (x *execution) lexicalRequest(limit int) *leaf.SearchRequest {
	return &leaf.SearchRequest{
		Index: x.req.Index, View: lenient, Query: x.root(), Filters: x.req.Filters, DefaultFields: x.prepared.fields,
		Limit: limit, Total: exec.TotalNone, AllowPartial: x.req.AllowPartial == api.Yes,
	}
}

// findLexical ranks by the query. As many hits are asked of every shard as stand before the end of the page, and one more, which tells
// whether another page follows.
func (x *execution) findLexical(ctx context.Context) error {
	req, b := x.req, x.prepared.bound
	r := x.lexicalRequest(0)
	if req.Limit > 0 {
		r.Limit = req.Offset + req.Limit + 1
		r.KeepStats = x.stats == nil && b.Scored
	}
	r.Sort, r.After, r.TotalFloor = b.Sort.Keys, b.Page.After, req.TotalFloor
	switch req.Total {
	case api.TotalExact:
		r.Total = exec.TotalExact
	case api.TotalAtLeast:
		r.Total = exec.TotalAtLeast
	}
	if x.inline() {
		r.Show = &leaf.Show{Source: true, Fields: req.Fields, First: brought(req.Limit, int(x.s.shards.Load()))}
	}
	reply, err := x.lexical(ctx, r, req.DFS)
	if err != nil {
		return err
	}
	x.rank.total, x.rank.relation, x.rank.docs = reply.Total, reply.TotalRelation, reply.Docs
	hits := reply.Hits[min(req.Offset, len(reply.Hits)):]
	if x.rank.more = len(hits) > req.Limit; x.rank.more {
		hits = hits[:req.Limit]
	}
	x.rank.hits = hits
	if len(reply.Shown) >= len(hits) && req.Offset == 0 && r.Show != nil {
		x.rank.shown = reply.Shown[:len(hits)]
	}
	return nil
}

// neighbours runs the vector search of the request, for k neighbours.
func (x *execution) neighbours(ctx context.Context, k int) (*leaf.KNNReply, error) {
	q := *x.req.KNN
	q.K = k
	return x.s.member.KNN(ctx, &leaf.KNNRequest{
		Index: x.req.Index, View: lenient, KNN: q, Filters: x.req.Filters, DefaultFields: x.prepared.fields, AllowPartial: x.req.AllowPartial == api.Yes,
	})
}

// near takes what came of a vector search.
func (x *execution) near(reply *leaf.KNNReply, err error) (*leaf.KNNReply, error) {
	if err != nil {
		if !x.tolerate(err) {
			return nil, err
		}
		x.phases.missed(x, err)
		return &leaf.KNNReply{}, nil
	}
	for i := range reply.Hits {
		if prob := bound.CheckScore(reply.Hits[i].Similarity); prob != nil {
			return nil, prob
		}
	}
	x.rank.graph = x.rank.graph || slices.Contains(reply.Approximate, leaf.ApproximateGraph)
	x.phases.searched(x, &reply.Meta, reply.Docs, reply.Partial)
	return reply, nil
}

// findNearest ranks by similarity alone.
func (x *execution) findNearest(ctx context.Context) error {
	reply, err := x.neighbours(ctx, x.req.KNN.K)
	x.lap(bound.StageKNN, metaOf(reply))
	if reply, err = x.near(reply, err); err != nil {
		return err
	}
	x.rank.nearest = reply.Hits
	for _, h := range bound.Window(reply.Hits, x.req.Offset, x.req.Limit) {
		x.rank.hits = append(x.rank.hits, leaf.Hit{ID: h.ID, Score: h.Similarity})
	}
	x.settle(len(reply.Hits))
	return nil
}

// metaOf is the Meta of a reply; nil without one.
func metaOf(r *leaf.KNNReply) *leaf.Meta {
	if r == nil {
		return nil
	}
	return &r.Meta
}

// settle sets the total of a ranking that is there as a whole.
func (x *execution) settle(total int) {
	x.rank.total, x.rank.relation = uint64(total), exec.Exactly
	if x.rank.partial {
		x.rank.relation = exec.AtLeast
	}
}

// findHybrid ranks by the query and by vectors, each over all shards and to the depth of the pool, and fuses the two. The query is scored
// with the statistics of the whole: its ranking is one of the whole index.
func (x *execution) findHybrid(ctx context.Context) error {
	req := x.req
	pool := max(req.Pool, req.Offset+req.Limit)
	if req.KNN.GivenK {
		x.rank.notes.Add(bound.NoteIdleK)
	}
	type nearest struct {
		reply *leaf.KNNReply
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan nearest, 1)
	go func() {
		reply, err := x.neighbours(ctx, pool)
		done <- nearest{reply, err}
	}()
	lexical, err := x.lexical(ctx, x.lexicalRequest(pool), true)
	if err != nil {
		cancel()
	}
	n := <-done
	cancel()
	if err != nil {
		return err
	}
	x.lap(bound.StageKNN, nil)
	vectors, err := x.near(n.reply, n.err)
	if err != nil {
		return err
	}
	fused, err := bound.Fuse(req.Fusion, req.Weights, rankedHits(lexical.Hits), rankedNeighbours(vectors.Hits))
	if err != nil {
		return err
	}
	x.settle(len(fused))
	for _, f := range bound.Window(fused, req.Offset, req.Limit) {
		x.rank.hits = append(x.rank.hits, leaf.Hit{ID: f.ID, Score: f.Score})
		x.rank.votes = append(x.rank.votes, f.Votes)
	}
	x.watch.UpTo(bound.StageFuse)
	return nil
}

func rankedHits(hits []leaf.Hit) []bound.Ranked[string] {
	out := make([]bound.Ranked[string], len(hits))
	for i := range hits {
		out[i] = bound.Ranked[string]{Doc: hits[i].ID, ID: hits[i].ID, Score: hits[i].Score}
	}
	return out
}

func rankedNeighbours(hits []leaf.Neighbour) []bound.Ranked[string] {
	out := make([]bound.Ranked[string], len(hits))
	for i := range hits {
		out[i] = bound.Ranked[string]{Doc: hits[i].ID, ID: hits[i].ID, Score: hits[i].Similarity}
	}
	return out
}
