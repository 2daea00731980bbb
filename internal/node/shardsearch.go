package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
)

// checkTrees holds a query, nil for none, and filters against the limits of trees that no parser made.
func checkTrees(q query.Node, filters []query.Node) *api.Problem {
	if len(filters) > exec.MaxFilters {
		return api.NewProblem(api.QueryLimit, fmt.Sprintf("filter: a search takes at most %d filters", exec.MaxFilters)).On("filter").Within(exec.MaxFilters)
	}
	if q != nil {
		if err := query.Check(q, query.Limits{}); err != nil {
			return api.QueryProblem("q", -1, err)
		}
	}
	for i, f := range filters {
		if err := query.Check(f, query.Limits{}); err != nil {
			return api.QueryProblem("filter", i, err)
		}
	}
	return nil
}

// checkStats refuses statistics that no documents have: with them, scores would be below 0, or none.
func checkStats(st *score.Stats) *api.Problem {
	if st == nil {
		return nil
	}
	bad := func(reason string) *api.Problem {
		return api.NewProblem(api.InvalidParameter, "stats: "+reason).On("stats")
	}
	for _, df := range st.DF {
		if df > st.Docs {
			return bad("a term has more documents than there are")
		}
	}
	short := false
	for _, f := range st.Fields {
		if f.Docs > st.Docs {
			return bad("a field has more documents than there are")
		}
		short = short || f.SumLen < f.Docs
	}
	if short {
		return bad("a field has more documents with a token than tokens")
	}
	return nil
}

// everythingIf is the query of a call that may have none.
func everythingIf(q query.Node) query.Node {
	if q == nil {
		return &query.All{}
	}
	return q
}

// Search implements leaf.Leaf.
func (l *shardLeaf) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return callLeaf(ctx, l, opSearch, req.Index, req.View, func(c *leafCall) (*leaf.SearchReply, error) {
		if req.Limit < 0 || req.Limit > exec.MaxWindow {
			return nil, outside("limit", req.Limit, exec.MaxWindow)
		}
		if len(req.Sort) > exec.MaxSortKeys {
			return nil, tooMany("sort", len(req.Sort), exec.MaxSortKeys)
		}
		if req.Show != nil && req.Show.Explain && req.Limit > mostExplained {
			return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("limit: it is at most %d with explain", mostExplained)).On("limit").Within(mostExplained)
		}
		if req.Show != nil && (req.Show.First < 0 || req.Show.First > exec.MaxWindow) {
			return nil, outside("first", req.Show.First, exec.MaxWindow)
		}
		if prob := checkTrees(req.Query, req.Filters); prob != nil {
			return nil, prob
		}
		if prob := checkStats(req.Stats); prob != nil {
			return nil, prob
		}
		v, err := c.read(c.node.searches)
		if err != nil {
			return nil, err
		}
		reply, err := c.search(v, req)
		c.searched(opSearch, err, slog.Int("limit", req.Limit))
		return reply, err
	})
}

func (c *leafCall) search(v *view, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	v.defaultFields, v.allowPartial, v.stats = req.DefaultFields, req.AllowPartial, req.Stats
	if prob := v.checkDefaultFields(); prob != nil {
		return nil, prob
	}
	var show *showing
	if req.Show != nil {
		var err error
		if show, err = v.bindShow(req.Show, req.Query, req.Filters, nil); err != nil {
			return nil, err
		}
	}
	if err := v.chargeFilters(len(req.Filters)); err != nil {
		return nil, err
	}
	r := exec.Request{
		Query: everythingIf(req.Query), Filters: req.Filters, Limit: req.Limit, Sort: req.Sort, After: req.After,
		Total: req.Total, TotalFloor: req.TotalFloor, KeepStats: req.KeepStats,
	}
	if req.LocalStats {
		r.LocalStats = leaf.MaxLocalStats
	}
	res, err := v.search(c.ctx, r)
	if err != nil {
		return nil, err
	}
	if prob := bound.CheckScores(res.Hits); prob != nil {
		return nil, prob
	}
	reply := &leaf.SearchReply{Hits: make([]leaf.Hit, len(res.Hits)), Docs: v.snap.Docs(), Total: res.Total, TotalRelation: res.TotalRelation}
	var size int64
	for i := range res.Hits {
		h := &res.Hits[i]
		reply.Hits[i] = leaf.Hit{ID: h.Key, Score: h.Score, Sort: h.Sort}
		size += int64(len(h.Key))
		for k := range h.Sort {
			size += int64(len(h.Sort[k].Text))
		}
	}
	if most := c.node.cfg.Limits.ReplyBytes; size > most {
		return nil, api.NewProblem(api.ReplyTooLarge, fmt.Sprintf("the ids and sort values of the hits are longer than %d bytes; ask for fewer hits", most)).On("limit").Within(most)
	}
	if res.Scored {
		reply.Stats, reply.LocalStats = res.Stats, res.LocalStats
	}
	notes := bound.Notes(res.Notes)
	if show != nil {
		first := len(res.Hits)
		if show.First > 0 {
			first = min(first, show.First)
		}
		if reply.Shown, err = show.render(c.ctx, v, res.Hits[:first], &notes); err != nil {
			return nil, err
		}
		reply.Shown = append(reply.Shown, make([]leaf.Shown, len(res.Hits)-first)...)
		reply.Plan = show.plan()
	}
	reply.Notes, reply.Partial = notes, v.partial
	var approximate []string
	if v.partial {
		approximate = append(approximate, leaf.ApproximateTime)
	}
	if res.CappedPrefix {
		approximate = append(approximate, leaf.ApproximatePrefix)
	}
	if res.TotalRelation == exec.AtLeast && !v.partial {
		approximate = append(approximate, leaf.ApproximateTotal)
	}
	if req.Stats == nil && res.Scored && len(res.Hits) > 0 {
		approximate = append(approximate, leaf.ApproximateLocal)
	}
	reply.Meta = c.meta(bound.StageSearch, approximate...)
	return reply, nil
}

// Stats implements leaf.Leaf.
func (l *shardLeaf) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return callLeaf(ctx, l, opStats, req.Index, req.View, func(c *leafCall) (*leaf.StatsReply, error) {
		if len(req.Terms) > leaf.MaxTerms {
			return nil, tooMany("terms", len(req.Terms), leaf.MaxTerms)
		}
		if prob := checkTrees(req.Query, nil); prob != nil {
			return nil, prob
		}
		v, err := c.read(c.node.searches)
		if err != nil {
			return nil, err
		}
		v.defaultFields = req.DefaultFields
		if prob := v.checkDefaultFields(); prob != nil {
			return nil, prob
		}
		stats, err := v.termStats(c.ctx, req.Terms)
		if err != nil {
			return nil, err
		}
		if req.Query != nil {
			more, err := exec.Statistics(c.ctx, v.leaves, v.sch, v.analyzers, exec.Request{Query: req.Query, DefaultFields: req.DefaultFields, Lenient: v.lenient})
			if err != nil {
				return nil, err
			}
			maps.Copy(stats.Fields, more.Fields)
			maps.Copy(stats.DF, more.DF)
		}
		return &leaf.StatsReply{Meta: c.meta(bound.StageStatistics), Stats: *stats}, nil
	})
}

// lookEveryDocs is how many documents a loop visits between two looks at its context.
const lookEveryDocs = 256

// termStats are the statistics of tokens. Fields that the index does not have, and tokens that no live document holds, are left out.
func (v *view) termStats(ctx context.Context, terms []score.Term) (*score.Stats, error) {
	stats := &score.Stats{Docs: v.snap.Docs(), Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	check := func(int) error { return context.Cause(ctx) }
	for i, t := range terms {
		if i%lookEveryDocs == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f, ok := v.sch.Lookup(t.Field)
		if !ok {
			continue
		}
		if fd := &v.sch.Fields[f]; fd.Type != schema.Text || !fd.Indexed {
			return nil, &api.Problem{Code: api.FieldNotSearchable, Field: t.Field, Detail: fmt.Sprintf("terms: field %q has no text index", t.Field)}
		}
		if _, seen := stats.Fields[t.Field]; !seen {
			var sum score.FieldStats
			for _, l := range v.leaves {
				sum.Add(l.FieldStats(f))
			}
			stats.Fields[t.Field] = sum
		}
		var df uint64
		for _, l := range v.leaves {
			n, err := l.DocFreq(f, []byte(t.Text), check)
			if err != nil {
				return nil, err
			}
			df += n
		}
		if df > 0 {
			stats.DF[t] = df
		}
	}
	return stats, nil
}

// KNN implements leaf.Leaf.
func (l *shardLeaf) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return callLeaf(ctx, l, opKNN, req.Index, req.View, func(c *leafCall) (*leaf.KNNReply, error) {
		q := &req.KNN
		if q.K < 0 || q.K > knn.MaxK {
			return nil, outside("k", q.K, knn.MaxK)
		}
		if q.Ef < 0 || q.Ef > knn.MaxEf {
			return nil, outside("ef", q.Ef, knn.MaxEf)
		}
		if prob := checkTrees(nil, req.Filters); prob != nil {
			return nil, prob
		}
		v, err := c.read(c.node.searches)
		if err != nil {
			return nil, err
		}
		v.defaultFields, v.allowPartial = req.DefaultFields, req.AllowPartial
		reply, err := c.nearest(v, req)
		c.searched(opKNN, err, slog.Int("limit", q.K))
		return reply, err
	})
}

func (c *leafCall) nearest(v *view, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	if prob := v.checkDefaultFields(); prob != nil {
		return nil, prob
	}
	sch := v.sch
	if v.lenient {
		sch = v.lenientSchema([]string{req.KNN.Field})
	}
	if prob := bound.CheckVector(sch, &req.KNN); prob != nil {
		return nil, prob
	}
	if err := v.chargeFilters(len(req.Filters)); err != nil {
		return nil, err
	}
	hits, plan, err := v.nearest(c.ctx, v.vectorRequest(&req.KNN, req.KNN.K, req.Filters))
	if err != nil {
		return nil, err
	}
	if prob := bound.CheckScores(hits); prob != nil {
		return nil, prob
	}
	reply := &leaf.KNNReply{Hits: make([]leaf.Neighbour, len(hits)), Docs: v.snap.Docs(), Partial: v.partial}
	for i := range hits {
		reply.Hits[i] = leaf.Neighbour{ID: hits[i].Key, Similarity: hits[i].Score}
	}
	var approximate []string
	if plan != nil && plan.Approximate {
		approximate = append(approximate, leaf.ApproximateGraph)
	}
	if v.partial {
		approximate = append(approximate, leaf.ApproximateTime)
	}
	reply.Meta = c.meta(bound.StageKNN, approximate...)
	return reply, nil
}

// Aggregate implements leaf.Leaf.
func (l *shardLeaf) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return callLeaf(ctx, l, opAggregate, req.Index, req.View, func(c *leafCall) (*leaf.AggregateReply, error) {
		if len(req.Values) > leaf.MaxValues {
			return nil, tooMany("values", len(req.Values), leaf.MaxValues)
		}
		if prob := checkTrees(req.Query, req.Filters); prob != nil {
			return nil, prob
		}
		if prob := checkStats(req.Stats); prob != nil {
			return nil, prob
		}
		v, err := c.read(c.node.searches)
		if err != nil {
			return nil, err
		}
		v.defaultFields, v.stats = req.DefaultFields, req.Stats
		reply, err := c.aggregate(v, req)
		c.searched(opAggregate, err)
		return reply, err
	})
}

func (c *leafCall) aggregate(v *view, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	if prob := v.checkDefaultFields(); prob != nil {
		return nil, prob
	}
	fields, prob := v.valueFields(req.Values)
	if prob != nil {
		return nil, prob
	}
	o := c.node.aggOptions()
	o.AllowUnknown = true
	aggs, err := bound.BindAggs(agg.Unplaced(req.Specs), v.sch, o)
	if err != nil {
		return nil, err
	}
	w := want(aggs)
	lists := []*wanted{w}
	v.chargeAggs(lists)
	if err := v.chargeFilters(len(req.Filters)); err != nil {
		return nil, err
	}
	docs, err := v.match(c.ctx, req.Query, req.Filters)
	if err != nil {
		return nil, err
	}
	if err := v.fill(c.ctx, lists, docs, req.DefaultOp); err != nil {
		return nil, err
	}
	reply := &leaf.AggregateReply{State: w.state, Docs: v.snap.Docs(), Matched: docs.count}
	if reply.Values, err = v.values(c.ctx, fields, docs); err != nil {
		return nil, err
	}
	var approximate []string
	if w.state.Estimated() {
		approximate = append(approximate, leaf.ApproximateDistinct)
	}
	reply.Meta = c.meta(bound.StageAggregate, approximate...)
	return reply, nil
}

// valueField is a field whose values are wanted one by one.
type valueField struct {
	name string
	id   int // in the schema; −1: the index does not have the field
	typ  schema.Type
}

func (v *view) valueFields(names []string) ([]valueField, *api.Problem) {
	fields := make([]valueField, len(names))
	for i, name := range names {
		f := &fields[i]
		f.name, f.id = name, -1
		id, ok := v.sch.Lookup(name)
		if !ok {
			continue // this shard has seen no document with it
		}
		fd := &v.sch.Fields[id]
		switch fd.Type {
		case schema.U64, schema.I64, schema.F64, schema.Date, schema.Text:
		default:
			return nil, &api.Problem{Code: api.InvalidField, Field: name, Detail: fmt.Sprintf("values: field %q of type %s has no values to be listed", name, fd.Type)}
		}
		if !fd.Fast {
			return nil, &api.Problem{Code: api.FieldNotFast, Field: name, Detail: fmt.Sprintf("values: field %q has no column", name)}
		}
		f.id, f.typ = id, fd.Type
	}
	return fields, nil
}

// values lists the values that the documents have in each field.
func (v *view) values(ctx context.Context, fields []valueField, docs *documents) ([]leaf.FieldValues, error) {
	out := make([]leaf.FieldValues, len(fields))
	held := &front.ReplyMemory{}
	defer func() { v.held = append(v.held, held.Places()...) }()
	var count int
	var size int64
	room := func(values int, bytes int64) error {
		count, size = count+values, size+bytes
		if count > leaf.MaxRawCount {
			return api.NewProblem(api.AggregationLimit, fmt.Sprintf("values: the matching documents have more than %d values; filter them", leaf.MaxRawCount)).On("values").Within(leaf.MaxRawCount)
		}
		if most := v.node.cfg.Limits.ReplyBytes; size > most {
			return api.NewProblem(api.ReplyTooLarge, fmt.Sprintf("values: those of the matching documents take more than %d bytes; filter them", most)).On("values").Within(most)
		}
		return held.Grow(v.node.memory, size)
	}
	for i, f := range fields {
		out[i].Field, out[i].Type = f.name, f.typ
		if f.id < 0 {
			continue
		}
		for li, l := range v.leaves {
			if err := appendValues(ctx, &out[i], l, f, docs, li, room); err != nil {
				return nil, err
			}
			if err := l.Err(); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// textHead is what a text takes besides its bytes.
const textHead = 16

// appendValues appends the values of one leaf. room is asked before each document's are kept.
func appendValues(ctx context.Context, to *leaf.FieldValues, l exec.Leaf, f valueField, docs *documents, li int, room func(values int, bytes int64) error) error {
	if f.typ != schema.Text {
		col := l.NumColumn(f.id)
		if col == nil {
			return nil
		}
		var vals []uint64
		return eachDoc(ctx, docs, li, l.NumDocs(), func(doc uint32) error {
			vals = col.Values(doc, vals[:0])
			if err := room(len(vals), int64(8*len(vals))); err != nil {
				return err
			}
			to.Numbers = append(to.Numbers, vals...)
			return nil
		})
	}
	col := l.StrColumn(f.id)
	if col == nil {
		return nil
	}
	var ords []uint32
	var buf []byte
	known := map[uint32]string{}
	return eachDoc(ctx, docs, li, l.NumDocs(), func(doc uint32) error {
		ords = col.Ords(doc, ords[:0])
		for _, o := range ords {
			text, ok := known[o]
			if !ok {
				buf = col.Lookup(int(o), buf[:0])
				text = string(buf)
				known[o] = text
			}
			if err := room(1, textHead+int64(len(text))); err != nil {
				return err
			}
			to.Texts = append(to.Texts, text)
		}
		return nil
	})
}

// eachDoc calls fn for the documents of a set on one leaf, ascending.
func eachDoc(ctx context.Context, docs *documents, li int, n uint32, fn func(doc uint32) error) error {
	words, all := docs.of(li)
	visit := func(doc uint32) error {
		if doc%lookEveryDocs == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fn(doc)
	}
	if all {
		for doc := range n {
			if err := visit(doc); err != nil {
				return err
			}
		}
		return nil
	}
	for w, word := range words {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for ; word != 0; word &= word - 1 {
			if err := fn(uint32(w<<6 + bits.TrailingZeros64(word))); err != nil {
				return err
			}
		}
	}
	return nil
}
