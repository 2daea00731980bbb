package search

import (
	"context"
	"sync"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// prepared is a request held against the schema of the whole index.
type prepared struct {
	sch       *schema.Schema
	analyzers exec.Analyzers
	bound     *bound.Bound
	fields    []string // that words without a field search
	survey    exec.Survey

	facets, aggs *bound.Aggregations // nil: not asked for
}

// prepare holds the request against the schema. A field that it does not have may be newer than what is remembered of the schema.
func (x *execution) prepare(ctx context.Context) *api.Problem {
	prob := x.hold(ctx, false)
	if prob != nil && prob.Code == api.UnknownField {
		prob = x.hold(ctx, true)
	}
	return prob
}

// hold holds the request against the schema; with fresh against that of the moment.
func (x *execution) hold(ctx context.Context, fresh bool) *api.Problem {
	sch, err := x.s.o.Schemas(ctx, x.req.Index, fresh)
	if err != nil {
		return x.s.problem(ctx, err)
	}
	x.fresh = fresh
	p := &prepared{sch: sch}
	if p.analyzers, err = x.s.analyzers.of(sch); err != nil {
		return x.s.problem(ctx, err)
	}
	var prob *api.Problem
	if p.bound, prob = bound.Bind(x.req, x.query, sch, bound.Options{LocalStats: !x.req.DFS}); prob != nil {
		return prob
	}
	if p.fields = x.req.DefaultFields; p.fields == nil {
		p.fields = exec.DefaultFields(sch)
	}
	x.prepared = p
	if prob := x.examine(ctx); prob != nil {
		return prob
	}
	return x.bindAggregations(ctx)
}

// examine makes the problems that the query and the vector have with the schema.
func (x *execution) examine(ctx context.Context) *api.Problem {
	req, p := x.req, x.prepared
	var err error
	lexical := req.KNN == nil || !x.query.Everything
	if lexical {
		p.survey, err = exec.Examine(ctx, p.sch, p.analyzers, exec.Request{
			Query: x.query.Root, Filters: req.Filters, DefaultFields: req.DefaultFields, Sort: p.bound.Sort.Keys, After: p.bound.Page.After,
		})
	}
	if err == nil && req.KNN != nil {
		_, err = knn.Search(ctx, nil, p.sch, p.analyzers, vectorRequest(req.KNN, req.Filters, req.DefaultFields))
	}
	if err != nil {
		return x.placed(ctx, err)
	}
	return nil
}

// vectorRequest is the vector search of a request as package knn takes it.
func vectorRequest(q *api.KNN, filters []query.Node, fields []string) knn.Request {
	return knn.Request{
		Field: q.Field, Dense: q.Dense, Bits: q.Bits, Indices: q.Indices, Weights: q.Weights, K: q.K, Exact: q.Exact, Ef: q.Ef, Combiner: q.Combiner,
		Filters: filters, DefaultFields: fields,
	}
}

// placed is the problem of an error with the place in the query or filter of the part that the index refuses.
func (x *execution) placed(ctx context.Context, err error) *api.Problem {
	return x.query.Placed(x.s.problem(ctx, err), err)
}

// bindAggregations holds facets and aggregations against the schema, with the filters inside of them.
func (x *execution) bindAggregations(ctx context.Context) *api.Problem {
	p := x.prepared
	var err error
	if p.facets, p.aggs, err = bound.BindAggregations(x.req, p.sch, agg.Options{StateBytes: int(x.s.o.AggBytes)}); err != nil {
		return x.s.problem(ctx, err)
	}
	for _, a := range []*bound.Aggregations{p.facets, p.aggs} {
		if a == nil {
			continue
		}
		for _, e := range a.Plan.Filters() {
			filter, prob := api.ParseFilter(a.Param, &e, x.req.DefaultOp)
			if prob != nil {
				return prob
			}
			_, err := exec.Match(ctx, nil, p.sch, p.analyzers, nil, []query.Node{filter}, exec.MatchOptions{DefaultFields: x.req.DefaultFields})
			if err != nil {
				return x.placed(ctx, err)
			}
		}
	}
	return nil
}

// analyzerCache keeps the analyzers of schemas that were used last.
type analyzerCache struct {
	mu  sync.Mutex
	set map[*schema.Schema]exec.Analyzers
}

// maxAnalyzers bounds the schemas whose analyzers are kept.
const maxAnalyzers = 1024

// of returns the analyzers of a schema.
func (c *analyzerCache) of(sch *schema.Schema) (exec.Analyzers, error) {
	c.mu.Lock()
	a, ok := c.set[sch]
	c.mu.Unlock()
	if ok {
		return a, nil
	}
	a, err := exec.NewAnalyzers(sch)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set == nil || len(c.set) >= maxAnalyzers {
		c.set = map[*schema.Schema]exec.Analyzers{}
	}
	c.set[sch] = a
	return a, nil
}
