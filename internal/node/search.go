package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weft-search/weft/internal/node/admit"
	"github.com/weft-search/weft/internal/node/api"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/text"
)

// Stages of a search, in order. Their times add up to the whole.
const (
	stageParse      = "parse"      // reading the request and the query string
	stageQueue      = "queue"      // waiting for a place
	stageStatistics = "statistics" // only with profile=true, else part of search
	stageSearch     = "search"
	stageFetch      = "fetch" // reading sources
	stageRender     = "render"
)

var searchStages = []string{stageParse, stageQueue, stageStatistics, stageSearch, stageFetch, stageRender}

// stopwatch splits the time of a call into stages that add up to it.
type stopwatch struct {
	start time.Time
	last  int64 // microseconds since start
	laps  []api.Timing
}

// lap ends a stage.
func (s *stopwatch) lap(stage string) {
	now := api.Micros(time.Since(s.start))
	s.laps = append(s.laps, api.Timing{Stage: stage, Micros: now - s.last})
	s.last = now
}

func (n *Node) searchLimits() api.SearchLimits {
	return api.SearchLimits{Hits: n.cfg.Limits.Hits, Timeout: n.cfg.Limits.SearchTimeout}
}

func (n *Node) search(c *call) *api.Problem {
	req, prob := api.ParseSearch(c.params, n.searchLimits())
	if prob != nil {
		return prob
	}
	return n.runSearch(c, req)
}

func (n *Node) searchBody(c *call) *api.Problem {
	if _, prob := c.wants(typeJSON); prob != nil {
		return prob
	}
	var index string
	if c.params.Has(indexParam) {
		var prob *api.Problem
		if index, prob = c.index(); prob != nil {
			return prob
		}
	}
	body, held, prob := c.body(n, n.cfg.Limits.SearchBytes)
	if prob != nil {
		return prob
	}
	defer held.release()
	req, prob := api.ParseSearchBody(body, index, n.searchLimits())
	if prob != nil {
		return prob
	}
	return n.runSearch(c, req)
}

// placed is problem with the place in the query of the part that the index refuses.
func (n *Node) placed(ctx context.Context, err error, at map[query.Node]int) *api.Problem {
	p := n.problem(ctx, err)
	if e, ok := errors.AsType[*exec.QueryError](err); ok && e.Node != nil {
		if pos, ok := at[e.Node]; ok {
			p.At(pos)
		}
	}
	return p
}

// runSearch answers a search. Its deadline counts from the first byte of the request.
func (n *Node) runSearch(c *call, req *api.SearchRequest) *api.Problem {
	watch := &stopwatch{start: c.start, laps: make([]api.Timing, 0, len(searchStages))}
	ctx := c.ctx
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, c.start.Add(req.Timeout), errTimeout)
		defer cancel()
	}
	at := map[query.Node]int{}
	root, err := query.Parse(req.Q, query.ParseOptions{DefaultOp: req.DefaultOp, Positions: at})
	if err != nil {
		return n.problem(ctx, err)
	}
	watch.lap(stageParse)

	place, err := n.searches.Enter(ctx, 1)
	if err != nil {
		return n.problem(ctx, err)
	}
	defer func() { c.leave(n, place) }()
	l, err := n.catalog.use(ctx, req.Index)
	if err != nil {
		return n.problem(ctx, err)
	}
	defer l.release()
	ctx, stop := l.within(ctx)
	defer stop()
	watch.lap(stageQueue)

	snap := l.eng.Snapshot()
	defer snap.Release()
	reply, prob := n.execute(ctx, l, snap, root, at, req, watch)
	if prob != nil {
		n.recordSearch(c, req, watch, 0, string(prob.Code))
		return prob
	}
	outcome := "answered"
	if !reply.Coverage.Complete {
		outcome = "partial"
		n.cfg.Metrics.Partial.Inc()
	}
	body := reply.AppendJSON(make([]byte, 0, len(reply.Hits)+2048))
	n.recordSearch(c, req, watch, reply.Total, outcome)
	return c.json(n, http.StatusOK, body)
}

// within returns a context that also ends when the index is dropped or the node gives up waiting.
func (l lease) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if cause := context.Cause(l.ctx); cause != nil {
		cancel(cause)
	}
	unhook := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// recordSearch counts the stages and logs a slow search, without its text.
func (n *Node) recordSearch(c *call, req *api.SearchRequest, watch *stopwatch, total uint64, outcome string) {
	for _, t := range watch.laps {
		n.stages[t.Stage].Observe(time.Duration(t.Micros) * time.Microsecond)
	}
	took := time.Since(watch.start)
	if n.cfg.SlowSearch <= 0 || took < n.cfg.SlowSearch {
		return
	}
	attrs := []slog.Attr{
		slog.String("index", req.Index), slog.Int("query_bytes", len(req.Q)), slog.Int("limit", req.Limit), slog.Int("offset", req.Offset),
		slog.Uint64("total", total), slog.String("outcome", outcome),
	}
	for _, t := range watch.laps {
		attrs = append(attrs, slog.Duration(t.Stage, time.Duration(t.Micros)*time.Microsecond))
	}
	n.slow.Record(c.ctx, took, attrs...)
}

// execute searches one snapshot and renders the hits.
func (n *Node) execute(ctx context.Context, l lease, snap *shard.Snapshot, root query.Node, at map[query.Node]int, req *api.SearchRequest, watch *stopwatch) (*api.SearchReply, *api.Problem) {
	sch, leaves := snap.Schema(), snap.Leaves()
	if prob := checkDefaultFields(sch, req); prob != nil {
		return nil, prob
	}
	pick, prob := selectorOf(sch, req.Fields)
	if prob != nil {
		return nil, prob
	}
	ereq := exec.Request{
		Query: root, Limit: req.Limit, Offset: req.Offset, TotalFloor: req.TotalFloor,
		AllowPartial: req.AllowPartial == api.Yes, DefaultFields: req.DefaultFields,
	}
	switch req.Total {
	case api.TotalExact:
		ereq.Total = exec.TotalExact
	case api.TotalAtLeast:
		ereq.Total = exec.TotalAtLeast
	case api.TotalNone:
		ereq.Total = exec.TotalNone
	}
	analyzers, err := l.analyzersOf(sch)
	if err != nil {
		return nil, n.problem(ctx, err)
	}
	if req.Profile {
		stats, err := exec.Statistics(ctx, leaves, sch, analyzers, root, req.DefaultFields)
		if err != nil {
			return nil, n.placed(ctx, err, at)
		}
		ereq.Stats = stats
		watch.lap(stageStatistics)
	}
	began := watch.last
	res, err := exec.Search(ctx, leaves, sch, analyzers, ereq)
	watch.lap(stageSearch)
	if err != nil && ereq.AllowPartial && errors.Is(err, context.DeadlineExceeded) {
		res, err = &exec.Result{Partial: true, TotalRelation: exec.AtLeast}, nil // nothing was reached
	}
	if err != nil {
		return nil, n.placed(ctx, err, at)
	}
	shardMicros := watch.last - began

	sources, held, prob := n.fetch(ctx, leaves, res.Hits, pick)
	defer held.release()
	if prob != nil {
		return nil, prob
	}
	watch.lap(stageFetch)

	reply := &api.SearchReply{Total: res.Total, Relation: res.TotalRelation, DFS: req.DFS, Notes: res.Notes}
	if reply.Relation == "" {
		reply.Relation = api.RelationNone
	}
	outcome := api.ShardOutcome{Address: n.address(), Outcome: api.Answered, Micros: shardMicros}
	reply.Coverage = api.Coverage{Shards: 1, DocsCovered: snap.Docs(), DocsTotal: snap.Docs(), Complete: true}
	if res.Partial {
		// How far the search came is not known by document, so none is counted as covered.
		outcome.Outcome = api.TimedOut
		reply.Coverage = api.Coverage{DocsTotal: snap.Docs()}
		reply.Notes = append(reply.Notes, "timeout_ms passed before the whole index was searched; hits and total speak of what was reached")
	}
	reply.Shards.Count(outcome)
	if prob := floor(reply, req.MinCoverage); prob != nil {
		return nil, prob
	}
	for i, h := range res.Hits {
		if !api.Finite(h.Score) {
			return nil, api.NewProblem(api.ScoreOverflow, "the boosts of the query make a score that no number can hold").On("q")
		}
		if i > 0 {
			reply.Hits = append(reply.Hits, ',')
		}
		reply.Hits = api.AppendHit(reply.Hits, h.Key, h.Score, sources[i])
	}
	if req.Profile {
		reply.Profile = profile(snap, ereq.Stats)
	}
	watch.lap(stageRender)
	reply.Timings = watch.laps
	return reply, nil
}

// floor refuses an answer that covers less than its caller accepts.
func floor(reply *api.SearchReply, least float64) *api.Problem {
	if reply.Coverage.Docs() >= least {
		return nil
	}
	extra := append([]byte(nil), `"shards":`...)
	extra = reply.Shards.AppendJSON(extra)
	extra = append(extra, `,"coverage":`...)
	extra = reply.Coverage.AppendJSON(extra)
	return &api.Problem{Code: api.Incomplete, Field: "min_coverage", Extra: extra, Detail: "the answer covers less of the index than min_coverage asks for"}
}

// checkDefaultFields checks the fields that the request wants searched.
func checkDefaultFields(sch *schema.Schema, req *api.SearchRequest) *api.Problem {
	for _, name := range req.DefaultFields {
		f, ok := sch.Lookup(name)
		if !ok {
			return unknownField(name, "default_fields")
		}
		if sch.Fields[f].Type != schema.Text || !sch.Fields[f].Indexed {
			return &api.Problem{Code: api.FieldNotSearchable, Field: name, Detail: fmt.Sprintf("default_fields: field %q has no text index", name)}
		}
	}
	return nil
}

func unknownField(name, param string) *api.Problem {
	name = api.Clip(name)
	return &api.Problem{Code: api.UnknownField, Field: name, Detail: fmt.Sprintf("%s: the index has no field %q", param, name)}
}

// replyMemory is the memory that is charged for the sources of a reply, in steps: how large they are is known only when they are
// read. The first step belongs to the place of the search.
type replyMemory struct {
	places  []*admit.Place
	charged int64
}

const (
	replyStep   = 1 << 20
	replyCopies = 3 // as read, rendered, and in the reply
)

func (m *replyMemory) grow(gate *admit.Gate, bytes int64) error {
	for m.charged+replyStep < bytes {
		p, err := gate.TryEnter(replyCopies * replyStep)
		if err != nil {
			return err
		}
		m.places = append(m.places, p)
		m.charged += replyStep
	}
	return nil
}

func (m *replyMemory) release() {
	for _, p := range m.places {
		p.Release()
	}
}

// fetch reads the sources of the hits; a nil entry is a document whose source is not kept or not asked for. The memory is the
// caller's to release, also after an error.
func (n *Node) fetch(ctx context.Context, leaves []exec.Leaf, hits []exec.Hit, pick selector) ([][]byte, *replyMemory, *api.Problem) {
	sources, held := make([][]byte, len(hits)), &replyMemory{}
	if pick.mode == pickNothing {
		return sources, held, nil
	}
	var buf []byte
	for i, h := range hits {
		if i%64 == 63 && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return nil, held, n.problem(ctx, context.Cause(ctx))
		}
		// The buffer grows by one source after the other: the slices into an earlier, smaller one stay as they are.
		from := len(buf)
		out, err := leaves[h.Leaf].Source(h.Doc, buf)
		if err != nil {
			return nil, held, n.problem(ctx, fmt.Errorf("read source of a hit: %w", err))
		}
		if len(out) <= from {
			continue
		}
		buf = out
		if most := n.cfg.Limits.ReplyBytes; int64(len(buf)) > most {
			return nil, held, api.NewProblem(api.ReplyTooLarge, fmt.Sprintf("the sources of the hits are longer than %d bytes; ask for fewer hits, or for no more than you need with fields",
				most)).On("limit").Within(most)
		}
		if err := held.grow(n.memory, int64(len(buf))); err != nil {
			return nil, held, n.problem(ctx, err)
		}
		src := buf[from:len(buf):len(buf)]
		if src, err = pick.apply(src); err != nil {
			return nil, held, n.problem(ctx, fmt.Errorf("filter source of a hit: %w", err))
		}
		sources[i] = src
	}
	return sources, held, nil
}

// analyzerSet is the analyzers of one schema, by field.
type analyzerSet struct {
	schema *schema.Schema
	list   []*text.Analyzer
}

func (a *analyzerSet) of(field int) *text.Analyzer { return a.list[field] }

// analyzersOf returns the analyzers of a schema of the index. The set of the schema that was used last is kept: a schema is
// immutable, and a new generation takes the place of the old one.
func (i *index) analyzersOf(sch *schema.Schema) (exec.Analyzers, error) {
	if set := i.analyzers.Load(); set != nil && set.schema == sch {
		return set.of, nil
	}
	set := &analyzerSet{schema: sch, list: make([]*text.Analyzer, len(sch.Fields))}
	for k := range sch.Fields {
		if f := &sch.Fields[k]; f.Type == schema.Text {
			a, err := text.Lookup(f.Tokenizer)
			if err != nil {
				return nil, fmt.Errorf("analyzer of field %q: %w", f.Name, err)
			}
			set.list[k] = a
		}
	}
	i.analyzers.Store(set)
	return set.of, nil
}

// profile renders the statistics that the scores were made with and the layout that was searched.
func profile(snap *shard.Snapshot, stats *score.Stats) []byte {
	b := append([]byte(nil), `{"segments":`...)
	b = strconv.AppendInt(b, int64(snap.Segments()), 10)
	b = append(b, `,"leaves":`...)
	b = strconv.AppendInt(b, int64(len(snap.Leaves())), 10)
	b = append(b, `,"statistics":{"docs":`...)
	b = strconv.AppendUint(b, stats.Docs, 10)
	b = append(b, `,"terms":[`...)
	terms := make([]score.Term, 0, len(stats.DF))
	for t := range stats.DF {
		terms = append(terms, t)
	}
	slices.SortFunc(terms, func(x, y score.Term) int {
		return cmp.Or(cmp.Compare(x.Field, y.Field), cmp.Compare(x.Text, y.Text))
	})
	for i, t := range terms {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"term":`...)
		b = api.AppendString(b, t.Text)
		b = append(b, `,"field":`...)
		b = api.AppendString(b, t.Field)
		b = append(b, `,"df":`...)
		b = strconv.AppendUint(b, stats.DF[t], 10)
		b = append(b, '}')
	}
	b = append(b, `],"fields":{`...)
	names := make([]string, 0, len(stats.Fields))
	for name := range stats.Fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = api.AppendString(b, name)
		b = append(b, `:{"sum":`...)
		b = strconv.AppendUint(b, stats.Fields[name].SumLen, 10)
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, stats.Fields[name].Docs, 10)
		b = append(b, '}')
	}
	return append(b, "}}}"...)
}
