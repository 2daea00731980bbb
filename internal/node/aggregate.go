package node

import (
	"context"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
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
	defer x.watch.Lap(bound.StageAggregate)
	prob := x.collect(ctx, reply)
	if prob != nil && prob.Code == api.Timeout && x.req.AllowPartial == api.Yes {
		x.partial, prob = true, nil
		reply.Facets, reply.Aggs = nil, nil
		x.rank.notes.Add(bound.NoteNoAggs)
	}
	return prob
}

// wanted is a list of aggregations under way.
type wanted struct {
	*bound.Aggregations
	state *agg.State
	bytes int64        // that the state has asked for
	sets  []*documents // of the plan's filters
}

func want(a *bound.Aggregations) *wanted {
	return &wanted{Aggregations: a, state: a.Plan.NewState()}
}

// aggOptions are the bounds of aggregations.
func (n *Node) aggOptions() agg.Options {
	return agg.Options{StateBytes: int(n.cfg.Limits.AggBytes)}
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
		for _, e := range w.Plan.Filters() {
			filter, prob := api.ParseFilter(w.Param, &e, op)
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
				return bound.AggError(w.Param, err)
			}
		}
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (x *execution) collect(ctx context.Context, reply *api.SearchReply) *api.Problem {
	facets, aggs, err := bound.BindAggregations(x.req, x.sch, x.node.aggOptions())
	if err != nil {
		return x.node.problem(ctx, err)
	}
	var lists []*wanted
	for _, a := range []*bound.Aggregations{facets, aggs} {
		if a != nil {
			lists = append(lists, want(a))
		}
	}
	x.chargeAggs(lists)
	docs, err := x.matching(ctx)
	if err == nil {
		err = x.fill(ctx, lists, docs, x.req.DefaultOp)
	}
	if err != nil {
		return x.placed(ctx, err)
	}
	for _, w := range lists {
		out, prob := x.print(ctx, w, len(reply.Facets))
		if prob != nil {
			return prob
		}
		if w.Aggregations == facets {
			reply.Facets = out
		} else {
			reply.Aggs = out
		}
	}
	return nil
}

// print renders answers for a reply that has taken before bytes of them already.
func (x *execution) print(ctx context.Context, w *wanted, before int) ([]byte, *api.Problem) {
	out, err := w.Print(w.state.Finish(), bound.Printing{
		Most: x.node.cfg.Limits.ReplyBytes, Before: before,
		Room: func(answers, besides int64) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := x.aggRoom(ctx, x.aggUsed+besides); err != nil {
				return err
			}
			return x.printing.Grow(x.node.memory, answers)
		},
	})
	if err != nil {
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
	if x.req.KNN == nil || !x.query.Everything {
		q := x.query.Root
		if x.query.Everything {
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
