package node

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
)

func (n *Node) searchLimits() api.SearchLimits {
	return api.SearchLimits{Hits: n.cfg.Limits.Hits, Timeout: n.cfg.Limits.SearchTimeout}
}

func (n *Node) search(c *front.Call) *api.Problem {
	req, prob := api.ParseSearch(c.Params(), n.searchLimits())
	if prob != nil {
		return prob
	}
	return n.runSearch(c, req)
}

func (n *Node) searchBody(c *front.Call) *api.Problem {
	if _, prob := c.Wants(front.TypeJSON); prob != nil {
		return prob
	}
	var index string
	if c.Params().Has(indexParam) {
		var prob *api.Problem
		if index, prob = c.Index(); prob != nil {
			return prob
		}
	}
	body, held, prob := c.Body(n.cfg.Limits.SearchBytes)
	if prob != nil {
		return prob
	}
	defer held.Release()
	req, prob := api.ParseSearchBody(body, index, n.searchLimits())
	if prob != nil {
		return prob
	}
	return n.runSearch(c, req)
}

// runSearch answers a search. Its deadline counts from the first byte of the request.
func (n *Node) runSearch(c *front.Call, req *api.SearchRequest) *api.Problem {
	watch := &front.Stopwatch{Began: c.Start(), Laps: make([]api.Timing, 0, len(bound.Stages()))}
	ctx := c.Context()
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, c.Start().Add(req.Timeout), front.ErrTimeout)
		defer cancel()
	}
	x, err := n.newExecution(req, watch)
	if err != nil {
		return n.problem(ctx, err)
	}
	watch.Lap(bound.StageParse)

	place, err := n.searches.Enter(ctx, 1)
	if err != nil {
		return n.problem(ctx, err)
	}
	defer func() { c.Leave(place) }()
	ctx, r, err := n.read(ctx, req.Index)
	if err != nil {
		return n.problem(ctx, err)
	}
	defer r.release()
	watch.Lap(bound.StageQueue)

	defer x.release()
	reply, prob := x.run(ctx, r.lease.index, r.snap)
	record := func(total uint64, outcome string) {
		n.recordSearch(ctx, watch, slog.String("index", req.Index), slog.Int("query_bytes", len(req.Q)), slog.Int("limit", req.Limit), slog.Int("offset", req.Offset),
			slog.Uint64("total", total), slog.String("outcome", outcome))
	}
	if prob != nil {
		record(0, string(prob.Code))
		return prob
	}
	outcome := "answered"
	if !reply.Coverage.Complete {
		outcome = "partial"
		n.cfg.Metrics.Partial.Inc()
	}
	body := reply.AppendJSON(make([]byte, 0, len(reply.Hits)+len(reply.Facets)+len(reply.Aggs)+2048))
	record(reply.Total, outcome)
	return c.JSON(http.StatusOK, body)
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
func (n *Node) recordSearch(ctx context.Context, watch *front.Stopwatch, attrs ...slog.Attr) {
	for _, t := range watch.Laps {
		if h, ok := n.stages[t.Stage]; ok {
			h.Observe(time.Duration(t.Micros) * time.Microsecond)
		}
	}
	took := time.Since(watch.Began)
	if n.cfg.SlowSearch <= 0 || took < n.cfg.SlowSearch {
		return
	}
	for _, t := range watch.Laps {
		attrs = append(attrs, slog.Duration(t.Stage, time.Duration(t.Micros)*time.Microsecond))
	}
	n.slow.Record(ctx, took, attrs...)
}
