package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// find ranks: by the query, by vectors, or by both.
func (x *execution) find(ctx context.Context) error {
	if idle := x.req.Idle; len(idle) > 0 {
		verb := "has"
		if len(idle) > 1 {
			verb = "have"
		}
		x.note(strings.Join(idle, ", ") + " " + verb + " no effect without knn")
	}
	switch {
	case x.req.KNN == nil:
		return x.findLexical(ctx)
	case x.everything:
		return x.findNearest(ctx)
	}
	return x.findHybrid(ctx)
}

// lexical runs the query.
func (x *execution) lexical(ctx context.Context, r exec.Request) (*exec.Result, error) {
	r.Query, r.Filters = x.root, x.req.Filters
	res, err := x.search(ctx, r)
	if err != nil {
		return nil, err
	}
	x.rank.notes = append(x.rank.notes, res.Notes...)
	return res, nil
}

func (x *execution) findLexical(ctx context.Context) error {
	req := x.req
	r := exec.Request{Limit: req.Limit, Offset: req.Offset, TotalFloor: req.TotalFloor, Sort: x.sort, After: x.page.after}
	switch req.Total {
	case api.TotalExact:
		r.Total = exec.TotalExact
	case api.TotalAtLeast:
		r.Total = exec.TotalAtLeast
	case api.TotalNone:
		r.Total = exec.TotalNone
	}
	if r.Limit > 0 {
		r.Limit++                                  // one more tells whether there is a next page
		r.KeepStats = x.stats == nil && x.scored() // which is scored as this one
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
	x.rank.hits = window(hits, x.req.Offset, x.req.Limit)
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

// window is the part of a list that a page shows.
func window[T any](list []T, offset, limit int) []T {
	list = list[min(offset, len(list)):]
	return list[:min(limit, len(list))]
}

// Branches of a hybrid search, in the order in which their contributions add up.
const (
	lexicalBranch = iota
	vectorBranch
	branches
)

// rankConstant is k of reciprocal rank fusion.
const rankConstant = score.DefaultRankConstant

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
		x.note("knn_k (k of knn) has no effect beside q: each of the two rankings is pool deep")
	}
	lexical, err := x.lexical(ctx, exec.Request{Limit: pool, Total: exec.TotalNone})
	if err != nil {
		return err
	}
	vectors, err := x.neighbours(ctx, pool)
	if err != nil {
		return err
	}
	known := make(map[place]*fusing, len(lexical.Hits)+len(vectors))
	lists := make([]score.Branch[place], branches)
	for b, hits := range [branches][]exec.Hit{lexicalBranch: lexical.Hits, vectorBranch: vectors} {
		lists[b] = score.Branch[place]{Weight: req.Weights[b], Hits: make([]score.Hit[place], len(hits))}
		for i, h := range hits {
			if !api.Finite(h.Score) {
				return api.NewProblem(api.ScoreOverflow, "the boosts of the query make a score that no number can hold").On("q")
			}
			at := place{h.Leaf, h.Doc}
			lists[b].Hits[i] = score.Hit[place]{Doc: at, Score: h.Score}
			f := known[at]
			if f == nil {
				f = &fusing{hit: h}
				known[at] = f
			}
			if b == lexicalBranch {
				f.lexicalScore = h.Score
			} else {
				f.vectorScore = h.Score
			}
		}
	}
	how := score.Fusion{Method: score.RRF, K: rankConstant, Ranked: true, Combiner: score.Combiner{Kind: score.Max}}
	if req.Fusion == api.Weighted {
		how.Method = score.WeightedSum
	}
	fused, err := score.Fuse(how, lists, func(a, b place) int { return strings.Compare(known[a].hit.Key, known[b].hit.Key) })
	if err != nil {
		if f, ok := errors.AsType[*score.FusionError](err); ok {
			return &api.Problem{Code: api.InvalidParameter, Field: "weights", Detail: "weights: " + api.ClipDetail(f.Reason), Cause: err}
		}
		return fmt.Errorf("fuse rankings: %w", err)
	}
	x.settle(len(fused))
	for _, f := range window(fused, req.Offset, req.Limit) {
		k := known[f.Doc]
		k.hit.Score = f.Score
		lexical, vector := f.Vote(lexicalBranch), f.Vote(vectorBranch)
		k.lexicalRank, k.lexicalPart = lexical.Rank, lexical.Score
		k.vectorRank, k.vectorPart = vector.Rank, vector.Score
		x.rank.hits = append(x.rank.hits, k.hit)
		x.rank.votes = append(x.rank.votes, k.votes)
	}
	x.watch.lap(stageFuse)
	return nil
}

// fusing is a document of one of the two rankings, or of both.
type fusing struct {
	hit exec.Hit
	votes
}
