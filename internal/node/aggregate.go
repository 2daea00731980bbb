package node

import (
	"context"
	"errors"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
)

// aggregate computes facets and aggregations over the documents that match: those of the query and the filters, or, of a search by
// vectors alone, the nearest.
func (x *execution) aggregate(ctx context.Context, reply *api.SearchReply) *api.Problem {
	if len(x.req.Facets)+len(x.req.Aggs) == 0 {
		return nil
	}
	defer x.watch.lap(stageAggregate)
	prob := x.collect(ctx, reply)
	if prob != nil && prob.Code == api.Timeout && x.req.AllowPartial == api.Yes {
		x.partial, prob = true, nil
		reply.Facets, reply.Aggs = nil, nil
		x.note("timeout_ms passed before the facets and aggregations were made; the reply has none")
	}
	return prob
}

// wanted is a list of aggregations under way.
type wanted struct {
	param string
	plan  *agg.Plan
	state *agg.State
	bytes int64        // that the state has asked for
	sets  []*documents // of the plan's filters
}

// bindAggs holds aggregations against the schema. Errors are *api.Problem, of the parameter, or others.
func (v *view) bindAggs(param string, specs []agg.Spec, o agg.Options) (*wanted, error) {
	o.StateBytes = int(v.node.cfg.Limits.AggBytes)
	plan, err := agg.Bind(specs, v.sch, o)
	if err != nil {
		return nil, aggError(param, err)
	}
	return &wanted{param: param, plan: plan, state: plan.NewState()}, nil
}

// aggError is an error of package agg as a problem with a parameter, if it is one.
func aggError(param string, err error) error {
	if prob := api.AggProblem(param, err); prob != nil {
		return prob
	}
	return err
}

// chargeAggs charges what the states of all lists take together, as they grow.
func (v *view) chargeAggs(lists []*wanted) {
	for _, w := range lists {
		w.state.Charge(func(ctx context.Context, bytes int) error {
			w.bytes = max(w.bytes, int64(bytes))
			v.aggUsed = 0
			for _, o := range lists {
				v.aggUsed += o.bytes
			}
			return v.aggRoom(ctx, v.aggUsed)
		})
	}
}

// fill collects the documents into the states of all lists. op is the operator of query strings inside of aggregations.
func (v *view) fill(ctx context.Context, lists []*wanted, docs *documents, op query.Op) error {
	for _, w := range lists {
		for _, e := range w.plan.Filters() {
			filter, prob := api.ParseFilter(w.param, &e, op)
			if prob != nil {
				return prob
			}
			set, err := v.match(ctx, nil, []query.Node{filter})
			if err != nil {
				return err
			}
			w.sets = append(w.sets, set)
		}
	}
	for li, l := range v.leaves {
		words, all := docs.of(li)
		if !all && words == nil {
			continue
		}
		for _, w := range lists {
			if err := w.state.Collect(ctx, &aggLeaf{l, li, w.sets}, words, all); err != nil {
				return aggError(w.param, err)
			}
		}
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (x *execution) collect(ctx context.Context, reply *api.SearchReply) *api.Problem {
	var lists []*wanted
	var facets, aggs *wanted
	if len(x.req.Facets) > 0 {
		specs, err := agg.Facets(x.req.Facets)
		if err != nil {
			return x.node.problem(ctx, aggError("facets", err))
		}
		if facets, err = x.bindAggs("facets", specs, agg.Options{}); err != nil {
			return x.node.problem(ctx, err)
		}
		lists = append(lists, facets)
	}
	if len(x.req.Aggs) > 0 {
		var err error
		if aggs, err = x.bindAggs("aggs", x.req.Aggs, agg.Options{}); err != nil {
			return x.node.problem(ctx, err)
		}
		lists = append(lists, aggs)
	}
	x.chargeAggs(lists)
	docs, err := x.matching(ctx)
	if err == nil {
		err = x.fill(ctx, lists, docs, x.req.DefaultOp)
	}
	if err != nil {
		return x.placed(ctx, err)
	}
	var prob *api.Problem
	if facets != nil {
		if reply.Facets, prob = x.print(ctx, facets, agg.Results.AppendFacets, 0); prob != nil {
			return prob
		}
	}
	if aggs != nil {
		if reply.Aggs, prob = x.print(ctx, aggs, agg.Results.AppendJSON, len(reply.Facets)); prob != nil {
			return prob
		}
	}
	return nil
}

// print renders answers for a reply that has taken before bytes of them already.
func (x *execution) print(ctx context.Context, w *wanted, printed func(r agg.Results, b []byte, o agg.Printing) ([]byte, error), before int) ([]byte, *api.Problem) {
	most := x.node.cfg.Limits.ReplyBytes
	out, err := printed(w.state.Finish(), nil, agg.Printing{
		Limit: max(1, int(most)-before), // 0 would be no limit
		Check: func(answers, besides int) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := x.aggRoom(ctx, x.aggUsed+int64(besides)); err != nil {
				return err
			}
			return x.printing.grow(x.node.memory, int64(before+answers))
		},
	})
	switch {
	case errors.Is(err, agg.ErrTooLong):
		return nil, api.NewProblem(api.ReplyTooLarge, w.param+": facets and aggregations are longer than the reply may be; ask for fewer buckets").On(w.param).Within(most)
	case err != nil:
		return nil, x.node.problem(ctx, err)
	}
	return out, nil
}

// documents is a set of live documents of a snapshot.
type documents struct {
	leaves []exec.Leaf
	sets   []bitset.Set // nil: see every
	every  bool         // a nil set is every live document, not none
	count  uint64       // of a set that match has found
}

// newDocuments is the empty set.
func newDocuments(leaves []exec.Leaf) *documents {
	return &documents{leaves: leaves, sets: make([]bitset.Set, len(leaves))}
}

// of returns the documents of a leaf: words, or all of them if there are no dead ones to leave out.
func (d *documents) of(li int) (words []uint64, all bool) {
	if set := d.sets[li]; set != nil {
		return set, false
	}
	if !d.every {
		return nil, false
	}
	if live := d.leaves[li].Live(); live != nil {
		return live, false
	}
	return nil, true
}

// matching is the set that aggregations are made over.
func (x *execution) matching(ctx context.Context) (*documents, error) {
	if x.req.KNN == nil || !x.everything {
		q := x.root
		if x.everything {
			q = nil
		}
		return x.match(ctx, q, x.req.Filters)
	}
	if err := x.charge(x.setBytes()); err != nil {
		return nil, err
	}
	d := newDocuments(x.leaves)
	for _, h := range x.rank.nearest {
		if d.sets[h.Leaf] == nil {
			d.sets[h.Leaf] = bitset.New(int(x.leaves[h.Leaf].NumDocs()))
		}
		d.sets[h.Leaf].Add(h.Doc)
	}
	return d, nil
}

// aggLeaf shows a leaf to package agg.
type aggLeaf struct {
	exec.Leaf
	at      int
	filters []*documents
}

// NumColumn and StrColumn are nil where the leaf has none; a nil column in an interface of another type would not be.
func (l *aggLeaf) NumColumn(field int) agg.NumColumn {
	if c := l.Leaf.NumColumn(field); c != nil {
		return c
	}
	return nil
}

func (l *aggLeaf) StrColumn(field int) agg.StrColumn {
	if c := l.Leaf.StrColumn(field); c != nil {
		return c
	}
	return nil
}

func (l *aggLeaf) Filter(i int) (docs []uint64, all bool) { return l.filters[i].of(l.at) }
