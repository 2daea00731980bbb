package node

import (
	"context"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// execution is one search on its way through one snapshot. Its phases run one after the other in run; what a later phase needs of
// an earlier one stands here.
type execution struct {
	view
	req *api.SearchRequest

	query *bound.Query
	bound *bound.Bound // nil until the request was held against the schema

	rank     ranking
	printing front.ReplyMemory // of facets and aggregations as they are rendered
}

// ranking is what was found, best first.
type ranking struct {
	hits    []exec.Hit
	votes   []bound.Votes // of hits, for a hybrid search only
	nearest []exec.Hit
	// more tells whether hits follow behind those.
	more     bool
	total    uint64
	relation string
	notes    bound.Notes
	plan     *knn.Plan // of the vector search; nil without one
}

// newExecution reads the query of a request. What the search is charged is the caller's to release.
func (n *Node) newExecution(req *api.SearchRequest, watch *front.Stopwatch) (*execution, error) {
	q, err := bound.Parse(req)
	if err != nil {
		return nil, err
	}
	return &execution{
		view: view{node: n, watch: watch, defaultFields: req.DefaultFields, allowPartial: req.AllowPartial == api.Yes},
		req:  req, query: q,
	}, nil
}

// run searches a snapshot of the index and renders the hits.
func (x *execution) run(ctx context.Context, i *index, snap *shard.Snapshot) (*api.SearchReply, *api.Problem) {
	n, req := x.node, x.req
	err := x.show(i, snap)
	if prob := x.bind(); prob != nil {
		return nil, prob
	}
	if err != nil {
		return nil, n.problem(ctx, err)
	}
	if req.Profile {
		x.trace = &exec.Trace{}
		if x.stats == nil {
			if x.stats, err = exec.Statistics(ctx, x.leaves, x.sch, x.analyzers, exec.Request{Query: x.query.Root, DefaultFields: req.DefaultFields}); err != nil {
				return nil, x.placed(ctx, err)
			}
		}
		x.watch.Lap(bound.StageStatistics)
	}
	began := x.watch.Last()
	if err := x.chargeFilters(len(req.Filters)); err != nil {
		return nil, n.problem(ctx, err)
	}
	if err := x.find(ctx); err != nil {
		return nil, x.placed(ctx, err)
	}
	if prob := bound.CheckScores(x.rank.hits); prob != nil {
		return nil, prob
	}
	reply := &api.SearchReply{Total: x.rank.total, Relation: x.rank.relation, DFS: req.DFS}
	if req.Total == api.TotalNone {
		reply.Total, reply.Relation = 0, api.RelationNone
	}
	if prob := x.aggregate(ctx, reply); prob != nil {
		return nil, prob
	}
	shardMicros := x.watch.Last() - began - x.watch.Queued()

	sources, fetched, prob := n.fetch(ctx, x.leaves, x.rank.hits, x.bound.Pick)
	defer fetched.Release()
	if prob != nil {
		return nil, prob
	}
	x.watch.Lap(bound.StageFetch)
	marks, prob := x.highlight(ctx)
	if prob != nil {
		return nil, prob
	}
	trees, prob := x.explain(ctx)
	if prob != nil {
		return nil, prob
	}

	outcome := api.ShardOutcome{Address: n.address(), Outcome: api.Answered, Micros: shardMicros}
	reply.Coverage = api.Coverage{Shards: 1, DocsCovered: x.snap.Docs(), DocsTotal: x.snap.Docs(), Complete: true}
	if x.partial {
		// How far the search came is not known by document, so none is counted as covered.
		outcome.Outcome = api.TimedOut
		reply.Coverage = api.Coverage{DocsTotal: x.snap.Docs()}
		x.rank.notes.Add(bound.NotePartial)
	}
	reply.Shards.Count(outcome)
	if prob := bound.Floor(reply, req.MinCoverage); prob != nil {
		return nil, prob
	}
	x.next(reply)
	reply.Notes = x.rank.notes
	x.render(reply, sources, marks, trees)
	x.watch.Lap(bound.StageRender)
	reply.Timings = x.watch.Laps
	return reply, nil
}

// release gives back the memory that the search was charged.
func (x *execution) release() {
	x.view.release()
	x.printing.Release()
}

// placed is the problem of an error with the place in the query or filter of the part that the index refuses.
func (x *execution) placed(ctx context.Context, err error) *api.Problem {
	return x.query.Placed(x.node.problem(ctx, err), err)
}

// bind holds the request against the schema.
func (x *execution) bind() (prob *api.Problem) {
	if x.bound, prob = bound.Bind(x.req, x.query, x.sch, bound.Options{}); prob != nil {
		return prob
	}
	x.stats = x.bound.Page.Stats
	return nil
}

// next sets the cursor behind the last hit if more hits follow.
func (x *execution) next(reply *api.SearchReply) {
	if !x.rank.more || x.partial {
		return
	}
	var stats *score.Stats
	if x.bound.Scored {
		stats = x.stats
	}
	var ok bool
	if reply.Next, ok = x.bound.Page.Next(exec.AfterHit(&x.rank.hits[len(x.rank.hits)-1]), stats); !ok {
		x.rank.notes.Add(bound.NoteLongCursor)
	}
}

// render writes the hits and what was asked for besides.
func (x *execution) render(reply *api.SearchReply, sources, marks, trees [][]byte) {
	for i := range x.rank.hits {
		h := &x.rank.hits[i]
		shown := bound.Shown{ID: h.Key, Score: h.Score, Sort: h.Sort, Source: sources[i]}
		if x.rank.votes != nil {
			shown.Votes = &x.rank.votes[i]
		}
		if marks != nil {
			shown.Highlight = marks[i]
		}
		if trees != nil {
			shown.Explain = trees[i]
		}
		reply.Hits = x.bound.AppendHit(reply.Hits, shown)
	}
	if x.rank.plan != nil && x.rank.plan.Approximate {
		reply.Approximate = append(reply.Approximate, "knn")
	}
	if x.req.Explain {
		reply.Explain = bound.AppendSearch(nil, x.query, x.req.Filters, x.rank.plan)
	}
	if x.req.Profile {
		reply.Profile = x.profile()
	}
}
