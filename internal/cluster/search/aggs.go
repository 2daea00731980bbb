package search

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
)

// NoteAggsLost says that there are no facets and aggregations.
const NoteAggsLost = "no shard answered for the facets and aggregations; the reply has none"

// aggregation makes the facets and aggregations of a search, beside it.
type aggregation struct {
	x      *execution
	cancel context.CancelFunc
	done   chan struct{} // nil: nothing was begun

	// Read when done is closed.
	answers []answer
	below   *leaf.Below // of the call that lost most
	err     error
}

// answer is a list of aggregations with what is known of them.
type answer struct {
	*bound.Aggregations
	state *agg.State
}

// chunkIDs and chunkBytes bound the ids of one call for aggregations over given documents.
const (
	chunkIDs   = 10_000
	chunkBytes = 2 << 20
)

// lists are what is asked for.
func (a *aggregation) lists() []*bound.Aggregations {
	var out []*bound.Aggregations
	for _, l := range []*bound.Aggregations{a.x.prepared.facets, a.x.prepared.aggs} {
		if l != nil {
			out = append(out, l)
		}
	}
	return out
}

// start begins. over are the documents to aggregate; nil: those that match.
func (a *aggregation) start(ctx context.Context, over []leaf.Neighbour) {
	lists := a.lists()
	if len(lists) == 0 {
		return
	}
	x := a.x
	req := leaf.AggregateRequest{
		Index: x.req.Index, View: lenient, Query: x.root(), Filters: x.req.Filters, DefaultFields: x.prepared.fields, DefaultOp: x.req.DefaultOp,
	}
	if x.prepared.survey.Chosen {
		req.Stats = x.stats
	}
	var parts [][]query.Node // filters of each call
	if x.req.KNN != nil && x.query.Everything {
		req.Query = nil
		parts = idFilters(x.prepared.sch, over)
	} else {
		parts = [][]query.Node{req.Filters}
	}
	ctx, a.cancel = context.WithCancel(ctx)
	a.done = make(chan struct{})
	go func() {
		defer close(a.done)
		a.answers, a.err = a.collect(ctx, lists, req, parts)
	}()
}

// idFilters are filters for documents with these ids, in parts that a call takes; none without ids.
func idFilters(sch *schema.Schema, hits []leaf.Neighbour) [][]query.Node {
	key := sch.PrimaryField()
	if key < 0 {
		return nil
	}
	var out [][]query.Node
	terms, size := (*query.Terms)(nil), 0
	for i := range hits {
		id := hits[i].ID
		if terms == nil || len(terms.Values) == chunkIDs || size+len(id) > chunkBytes {
			terms, size = &query.Terms{Field: sch.Fields[key].Name}, 0
			out = append(out, []query.Node{terms})
		}
		terms.Values, size = append(terms.Values, id), size+len(id)
	}
	return out
}

// wait ends what is under way.
func (a *aggregation) wait() {
	if a.done != nil {
		a.cancel()
		<-a.done
	}
}

// collect asks for all lists in one call, and one by one where together they are more than a call may ask for: each has limits of its own.
func (a *aggregation) collect(ctx context.Context, lists []*bound.Aggregations, req leaf.AggregateRequest, parts [][]query.Node) ([]answer, error) {
	if len(lists) > 1 {
		out, err := a.together(ctx, lists, req, parts)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.HTTPStatus() != http.StatusBadRequest {
			return out, err
		}
	}
	var out []answer
	for i := range lists {
		one, err := a.together(ctx, lists[i:i+1], req, parts)
		if err != nil {
			return nil, reworded(err, lists[i])
		}
		out = append(out, one...)
	}
	return out, nil
}

// together asks for some lists in one call for each part of the documents.
func (a *aggregation) together(ctx context.Context, lists []*bound.Aggregations, req leaf.AggregateRequest, parts [][]query.Node) ([]answer, error) {
	req.Specs = renamed(lists)
	var sum *agg.State
	for _, filters := range parts {
		req.Filters = filters
		reply, err := a.x.s.member.Aggregate(ctx, &req)
		if err != nil {
			return nil, err
		}
		if lost(reply.Below) && (a.below == nil || reply.Below.Shards.Failed > a.below.Shards.Failed) {
			a.below = reply.Below
		}
		switch {
		case reply.State == nil: // no shard has anything
		case sum == nil:
			sum = reply.State
		default:
			if err := sum.Merge(ctx, reply.State); err != nil {
				return nil, bound.AggError(lists[0].Param, err)
			}
		}
	}
	out := make([]answer, len(lists))
	from := 0
	for i, l := range lists {
		out[i] = answer{l, l.Plan.NewState()}
		if sum != nil {
			var err error
			if out[i].state, err = l.Plan.Adopt(sum, from); err != nil {
				return nil, bound.AggError(l.Param, err)
			}
		}
		from += len(l.Specs)
	}
	return out, nil
}

// Prefixes of the names under which lists travel together. The name of a facet is that of a field, which no wire takes in full length.
const (
	facetPrefix = "f"
	aggPrefix   = "a"
)

// renamed are the specs of all lists under short names that differ.
func renamed(lists []*bound.Aggregations) []agg.Spec {
	var out []agg.Spec
	for _, l := range lists {
		specs := agg.Unplaced(l.Specs)
		for i := range specs {
			specs[i].Name = prefixOf(l) + strconv.Itoa(i)
		}
		out = append(out, specs...)
	}
	return out
}

func prefixOf(l *bound.Aggregations) string {
	if l.Facets() {
		return facetPrefix
	}
	return aggPrefix
}

// reworded is a problem that a shard has with a list as the caller of the search knows the list.
func reworded(err error, l *bound.Aggregations) error {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return err
	}
	const asked, named = "aggs", "aggregation " // of every call of a shard
	detail, ok := strings.CutPrefix(p.Detail, asked+": ")
	if !ok {
		return err
	}
	own := *p
	if own.Field == asked {
		own.Field = l.Param
	}
	own.Detail = l.Param + ": " + detail
	quoted, ok := strings.CutPrefix(detail, named)
	if !ok {
		return &own
	}
	name, err := strconv.QuotedPrefix(quoted)
	if err != nil {
		return &own
	}
	rest := quoted[len(name):]
	path, err := strconv.Unquote(name)
	if err != nil {
		return &own
	}
	outer, inner, nested := strings.Cut(path, ">")
	at, err := strconv.Atoi(strings.TrimPrefix(outer, prefixOf(l)))
	if err != nil || at < 0 || at >= len(l.Specs) {
		return &own
	}
	spec := &l.Specs[at]
	if path = spec.Name; nested {
		path += ">" + inner
		if i := slices.IndexFunc(spec.Aggs, func(s agg.Spec) bool { return s.Name == inner }); i >= 0 {
			spec = &spec.Aggs[i]
		}
	}
	if pos := spec.Position(); pos >= 0 {
		own.At(pos)
	}
	if own.Detail = l.Param + ": " + named + strconv.Quote(path) + rest; l.Facets() {
		own.Detail = l.Param + rest // the field says which one
	}
	return &own
}

// finish waits for the answers and puts them into the reply.
func (a *aggregation) finish(ctx context.Context, reply *api.SearchReply) *api.Problem {
	if a.done == nil {
		return nil
	}
	x := a.x
	<-a.done
	defer x.watch.UpTo(bound.StageAggregate)
	err := a.err
	if err == nil {
		for _, one := range a.answers {
			if err = a.print(ctx, one, reply); err != nil {
				break
			}
		}
	}
	switch {
	case err == nil:
		x.phases.aggs = a.below
		return nil
	case x.tolerate(err):
		x.rank.partial = true
		x.rank.notes.Add(bound.NoteNoAggs)
	case x.unreachable(err):
		x.phases.aggs = x.belowOf(err)
		x.rank.notes.Add(NoteAggsLost)
	default:
		return x.placed(ctx, err)
	}
	reply.Facets, reply.Aggs = nil, nil
	return nil
}

// print renders the answers of one list.
func (a *aggregation) print(ctx context.Context, one answer, reply *api.SearchReply) error {
	x := a.x
	held := int64(0)
	for _, o := range a.answers {
		held += int64(o.state.Bytes())
	}
	if err := x.s.aggRoom(ctx, &x.memory, held); err != nil {
		return err
	}
	out, err := one.Print(one.state.Finish(), bound.Printing{
		Most: x.s.o.ReplyBytes, Before: len(reply.Facets),
		Room: func(answers, besides int64) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := x.s.aggRoom(ctx, &x.memory, held+besides); err != nil {
				return err
			}
			if x.s.o.Memory == nil {
				return nil
			}
			return x.memory.answers.Grow(x.s.o.Memory, answers)
		},
	})
	if err != nil {
		return err
	}
	if one.Facets() {
		reply.Facets = out
	} else {
		reply.Aggs = out
	}
	return nil
}
