package node

import (
	"context"
	"errors"
	"time"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/node/admit"
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

func (x *execution) collect(ctx context.Context, reply *api.SearchReply) *api.Problem {
	n := x.node
	var lists []*wanted
	bind := func(param string, specs []agg.Spec) (*wanted, *api.Problem) {
		plan, err := agg.Bind(specs, x.sch, agg.Options{StateBytes: int(n.cfg.Limits.AggBytes)})
		if err != nil {
			if prob := api.AggProblem(param, err); prob != nil {
				return nil, prob
			}
			return nil, n.problem(ctx, err)
		}
		w := &wanted{param: param, plan: plan, state: plan.NewState()}
		lists = append(lists, w)
		return w, nil
	}
	var facets, aggs *wanted
	var prob *api.Problem
	if len(x.req.Facets) > 0 {
		specs, err := agg.Facets(x.req.Facets)
		if err != nil {
			if prob := api.AggProblem("facets", err); prob != nil {
				return prob
			}
			return n.problem(ctx, err)
		}
		if facets, prob = bind("facets", specs); prob != nil {
			return prob
		}
	}
	if len(x.req.Aggs) > 0 {
		if aggs, prob = bind("aggs", x.req.Aggs); prob != nil {
			return prob
		}
	}
	for _, w := range lists {
		w.state.Charge(func(ctx context.Context, bytes int) error {
			w.bytes = max(w.bytes, int64(bytes))
			x.aggUsed = 0
			for _, o := range lists {
				x.aggUsed += o.bytes
			}
			return x.aggRoom(ctx, x.aggUsed)
		})
	}
	docs, err := x.matching(ctx)
	if err != nil {
		return x.placed(ctx, err)
	}
	for _, w := range lists {
		for _, e := range w.plan.Filters() {
			filter, prob := api.ParseFilter(w.param, &e, x.req.DefaultOp)
			if prob != nil {
				return prob
			}
			set, err := x.match(ctx, nil, []query.Node{filter})
			if err != nil {
				return x.placed(ctx, err)
			}
			w.sets = append(w.sets, set)
		}
	}
	for li := range x.leaves {
		words, all := docs.of(li)
		if !all && words == nil {
			continue
		}
		for _, w := range lists {
			if err := w.state.Collect(ctx, &aggLeaf{x.leaves[li], li, w.sets}, words, all); err != nil {
				if prob := api.AggProblem(w.param, err); prob != nil {
					return prob
				}
				return n.problem(ctx, err)
			}
		}
		if err := x.leaves[li].Err(); err != nil {
			return n.problem(ctx, err)
		}
	}
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

// aggStep is the memory that facets and aggregations are charged at once. The first step belongs to the place of the search, so that
// those of few values and buckets never wait.
const aggStep = 1 << 20

// aggRoom charges the facets and aggregations of the search for bytes in all. Searches that find no room go beyond it one at a
// time, so that none waits for memory that is held by another that waits.
func (x *execution) aggRoom(ctx context.Context, bytes int64) error {
	if bytes <= x.aggCharged+aggStep || x.aggBeyond {
		return nil
	}
	more := (bytes - x.aggCharged - 1) / aggStep * aggStep
	p, err := x.node.aggregations.TryEnter(more)
	if err == nil {
		x.held = append(x.held, p)
		x.aggCharged += more
		return nil
	}
	began := time.Now()
	p, err = x.node.aggBeyond.Enter(ctx, 1)
	x.watch.waited(time.Since(began))
	if err != nil {
		if r, ok := errors.AsType[*admit.Refusal](err); ok {
			r.Limit = x.node.aggregations.Limit()
		}
		return err
	}
	x.held = append(x.held, p)
	x.aggBeyond = true
	return nil
}

// documents is a set of live documents of a snapshot.
type documents struct {
	leaves []exec.Leaf
	sets   []bitset.Set // nil: see every
	every  bool         // a nil set is every live document, not none
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

// match finds the documents of a query and filters.
func (x *execution) match(ctx context.Context, q query.Node, filters []query.Node) (*documents, error) {
	if err := x.charge(x.setBytes()); err != nil {
		return nil, err
	}
	m, err := exec.Match(ctx, x.leaves, x.sch, x.analyzers, q, filters, exec.MatchOptions{DefaultFields: x.req.DefaultFields, Cache: x.node.filters, Stats: x.stats})
	if err != nil {
		return nil, err
	}
	d := &documents{leaves: x.leaves, sets: make([]bitset.Set, len(x.leaves)), every: true}
	for li := range m.Leaves {
		d.sets[li] = m.Leaves[li].Set
	}
	return d, nil
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
	d := &documents{leaves: x.leaves, sets: make([]bitset.Set, len(x.leaves))}
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
