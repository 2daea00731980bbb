package search

import (
	"context"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// execution is one search on its way through the cluster. What a later phase needs of an earlier one stands here. It is for one goroutine,
// but for what runs beside it, which says so.
type execution struct {
	s     *Searcher
	req   *api.SearchRequest
	watch *front.Stopwatch

	query    *bound.Query
	prepared *prepared // nil until the request was held against the schema
	fresh    bool      // against that of the moment

	rank   ranking
	phases accounting
	memory memory

	// stats are those that the scores were made with, where it is one set for all shards; nil: those of each shard.
	stats *score.Stats
	// whole are all statistics of the query, for the profile.
	whole   *score.Stats
	rounds  int  // searches that were made
	inexact bool // the statistics are not those of the whole, though they should be
}

// ranking is what was found, best first.
type ranking struct {
	hits     []leaf.Hit
	votes    []bound.Votes // of hits, for a hybrid search only
	nearest  []leaf.Neighbour
	shown    []leaf.Shown // of hits, where the search brought them along
	more     bool         // hits follow behind those
	docs     uint64       // live documents
	total    uint64
	relation string
	notes    bound.Notes
	graph    bool // neighbours were found by a graph
	local    bool // each of several shards scored with its own statistics
	partial  bool // the deadline passed before everything was searched
}

// Search answers a search. watch has the stages that have ended so far; nil: the call begins here. The deadline is that of ctx; its cause
// should be front.ErrTimeout or wrap context.DeadlineExceeded. Errors are those of a node, and incomplete or group_unavailable where
// shards are missing that may not be.
func (s *Searcher) Search(ctx context.Context, req *api.SearchRequest, watch *front.Stopwatch) (*api.SearchReply, *api.Problem) {
	if watch == nil {
		watch = &front.Stopwatch{Began: time.Now()}
	}
	x := &execution{s: s, req: req, watch: watch}
	q, err := bound.Parse(req)
	if err != nil {
		return nil, s.problem(ctx, err)
	}
	x.query = q
	watch.UpTo(bound.StageParse)
	defer x.memory.release()
	if prob := x.prepare(ctx); prob != nil {
		return nil, prob
	}
	watch.UpTo(bound.StageQueue)
	reply, prob := x.run(ctx)
	if prob == nil || x.fresh || !ofSchema(prob.Code) {
		return reply, prob
	}
	// A shard knows the index otherwise than it is remembered here, as when it was made anew.
	before := x.prepared.sch
	again := &execution{s: s, req: req, watch: watch, query: q}
	defer again.memory.release()
	if prob := again.hold(ctx, true); prob != nil {
		return nil, prob
	}
	watch.UpTo(bound.StageQueue)
	if before == again.prepared.sch || before.SDL() == again.prepared.sch.SDL() {
		return nil, prob
	}
	return again.run(ctx)
}

// ofSchema tells whether a problem says that a request does not fit a schema.
func ofSchema(code api.Code) bool {
	switch code {
	case api.UnknownField, api.InvalidField, api.FieldNotSearchable, api.FieldNotFast, api.NoPositions, api.InvalidBound, api.FieldNotSortable,
		api.FieldNotVector, api.InvalidVector, api.TypeConflict, api.InvalidCursor:
		return true
	}
	return false
}

// run asks the shards and renders what they say.
func (x *execution) run(ctx context.Context) (*api.SearchReply, *api.Problem) {
	// What runs beside the search ends with it.
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = x.s.charged(ctx, &x.memory, cancel)
	beside := &aggregation{x: x}
	defer func() {
		cancel(nil)
		beside.wait()
	}()
	x.stats = x.prepared.bound.Page.Stats
	x.rank.notes.AddIdle(x.req.Idle)
	if err := x.know(ctx); err != nil {
		return nil, x.placed(ctx, err)
	}
	nearest := x.req.KNN != nil && x.query.Everything
	if !nearest {
		beside.start(ctx, nil)
	}
	if err := x.find(ctx); err != nil {
		return nil, x.placed(ctx, err)
	}
	if nearest {
		beside.start(ctx, x.rank.nearest)
	}
	if prob := x.checkScores(); prob != nil {
		return nil, prob
	}
	reply := &api.SearchReply{Total: x.rank.total, Relation: x.rank.relation, DFS: x.req.DFS && !x.inexact}
	if x.req.Total == api.TotalNone {
		reply.Total, reply.Relation = 0, api.RelationNone
	}
	if prob := beside.finish(ctx, reply); prob != nil {
		return nil, prob
	}
	shown, prob := x.fetch(ctx)
	if prob != nil {
		return nil, prob
	}
	if x.rank.partial {
		x.rank.notes.Add(bound.NotePartial)
	}
	if prob := x.phases.settle(x, reply); prob != nil {
		return nil, prob
	}
	if prob := x.next(ctx, reply); prob != nil {
		return nil, prob
	}
	x.render(reply, shown)
	x.watch.UpTo(bound.StageRender)
	reply.Timings = x.watch.Laps
	x.s.counts.searched(x)
	return reply, nil
}

// searched counts a search that was answered.
func (c *counts) searched(x *execution) {
	switch {
	case x.inexact:
		c.inexact.Add(1)
	case x.rank.local:
		c.local.Add(1)
	case x.stats != nil:
		c.exact.Add(1)
	}
}

// checkScores refuses scores that are no numbers.
func (x *execution) checkScores() *api.Problem {
	for i := range x.rank.hits {
		if prob := bound.CheckScore(x.rank.hits[i].Score); prob != nil {
			return prob
		}
	}
	return nil
}

// tolerate tells whether an error only means that the time was over and the caller takes what was reached.
func (x *execution) tolerate(err error) bool {
	return x.req.AllowPartial == api.Yes && isTimeout(err)
}

// next sets the cursor behind the last hit if more hits follow.
func (x *execution) next(ctx context.Context, reply *api.SearchReply) *api.Problem {
	if !x.rank.more || x.rank.partial {
		return nil
	}
	b := x.prepared.bound
	var stats *score.Stats
	if b.Scored {
		stats = x.stats
		if stats == nil && !x.prepared.survey.Scored {
			stats = &score.Stats{Docs: x.rank.docs} // no words score, and so there are no others
		}
		if stats != nil && b.Page.Stats == nil && !x.req.Profile {
			// Of a prefix only the words that score go into the cursor.
			var err error
			r := exec.Request{Query: x.query.Root, DefaultFields: x.prepared.fields, Stats: stats}
			if stats, err = exec.Scoring(ctx, x.prepared.sch, x.prepared.analyzers, r); err != nil {
				return x.placed(ctx, err)
			}
		}
	}
	last := &x.rank.hits[len(x.rank.hits)-1]
	var ok bool
	if reply.Next, ok = b.Page.Next(exec.AfterHit(&exec.Hit{Key: last.ID, Score: last.Score, Sort: last.Sort}), stats); !ok {
		x.rank.notes.Add(bound.NoteLongCursor)
	}
	return nil
}

// render writes the hits and what was asked for besides.
func (x *execution) render(reply *api.SearchReply, shown []bound.Shown) {
	for i := range shown {
		reply.Hits = x.prepared.bound.AppendHit(reply.Hits, shown[i])
	}
	if x.rank.graph {
		reply.Approximate = append(reply.Approximate, "knn")
	}
	if x.rank.local {
		reply.Approximate = append(reply.Approximate, leaf.ApproximateLocal)
	}
	if x.inexact {
		reply.Approximate = append(reply.Approximate, bound.StageStatistics)
	}
	reply.Notes = x.rank.notes
	if x.req.Explain {
		reply.Explain = bound.AppendSearch(nil, x.query, x.req.Filters, nil)
	}
	if x.req.Profile {
		reply.Profile = x.profile(reply)
	}
}

// lap ends a stage that a call of the member was, and takes out of it what was no work of a shard.
func (x *execution) lap(stage string, meta *leaf.Meta) {
	before := x.watch.Last()
	x.watch.UpTo(stage)
	took := x.watch.Last() - before
	if meta == nil {
		return
	}
	for _, part := range []string{StageNetwork, StageMerge} {
		for _, t := range meta.Timings {
			if t.Stage == part {
				took -= x.move(stage, part, min(t.Micros, took))
			}
		}
	}
}

// move makes so many microseconds of one stage those of another, and returns them.
func (x *execution) move(from, to string, micros int64) int64 {
	if micros <= 0 {
		return 0
	}
	at := slices.IndexFunc(x.watch.Laps, func(t api.Timing) bool { return t.Stage == from })
	x.watch.Laps[at].Micros -= micros
	if at = slices.IndexFunc(x.watch.Laps, func(t api.Timing) bool { return t.Stage == to }); at >= 0 {
		x.watch.Laps[at].Micros += micros
	} else {
		x.watch.Laps = append(x.watch.Laps, api.Timing{Stage: to, Micros: micros})
	}
	return micros
}
