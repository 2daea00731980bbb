package coordinator

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
)

func (c *Coordinator) searchLimits() api.SearchLimits {
	return api.SearchLimits{Hits: c.cfg.Limits.Hits, Timeout: c.cfg.Limits.SearchTimeout, Pool: c.cfg.Pool}
}

func (c *Coordinator) search(call *front.Call) *api.Problem {
	req, prob := api.ParseSearch(call.Params(), c.searchLimits())
	if prob != nil {
		return prob
	}
	return c.runSearch(call, req)
}

func (c *Coordinator) searchBody(call *front.Call) *api.Problem {
	if _, prob := call.Wants(front.TypeJSON); prob != nil {
		return prob
	}
	var index string
	if call.Params().Has(indexParam) {
		var prob *api.Problem
		if index, prob = call.Index(); prob != nil {
			return prob
		}
	}
	body, held, prob := call.Body(c.cfg.Limits.SearchBytes)
	if prob != nil {
		return prob
	}
	defer held.Release()
	req, prob := api.ParseSearchBody(body, index, c.searchLimits())
	if prob != nil {
		return prob
	}
	return c.runSearch(call, req)
}

// runSearch answers a search. Its deadline counts from the first byte of the request.
func (c *Coordinator) runSearch(call *front.Call, req *api.SearchRequest) *api.Problem {
	watch := &front.Stopwatch{Began: call.Start(), Laps: make([]api.Timing, 0, len(bound.Stages()))}
	ctx := call.Context()
	timeout := req.Timeout
	if timeout == 0 {
		timeout = c.cfg.Limits.SearchTimeout
	}
	ctx, cancel := context.WithDeadlineCause(ctx, call.Start().Add(timeout), front.ErrTimeout)
	defer cancel()
	if c.members.State() == nil {
		return notReady()
	}
	watch.Lap(bound.StageParse)
	place, err := c.searches.Enter(ctx, 1)
	if err != nil {
		return c.problem(ctx, err)
	}
	defer func() { call.LeaveRead(place) }()
	watch.Lap(bound.StageQueue)
	reply, prob := c.searcher.Search(ctx, req, watch)
	record := func(total uint64, outcome string) {
		c.recordSearch(ctx, watch, slog.String("index", req.Index), slog.Int("query_bytes", len(req.Q)), slog.Int("limit", req.Limit), slog.Int("offset", req.Offset),
			slog.Uint64("total", total), slog.String("outcome", outcome))
	}
	if prob != nil {
		record(0, string(prob.Code))
		return prob
	}
	outcome := "answered"
	if !reply.Coverage.Complete {
		outcome = "partial"
		c.cfg.Metrics.Partial.Inc()
	}
	body := reply.AppendJSON(make([]byte, 0, len(reply.Hits)+len(reply.Facets)+len(reply.Aggs)+2048))
	record(reply.Total, outcome)
	return call.JSON(http.StatusOK, body)
}

// recordSearch counts the stages and logs a slow search, without its text.
func (c *Coordinator) recordSearch(ctx context.Context, watch *front.Stopwatch, attrs ...slog.Attr) {
	for _, t := range watch.Laps {
		if h, ok := c.stages[t.Stage]; ok {
			h.Observe(time.Duration(t.Micros) * time.Microsecond)
		}
	}
	took := time.Since(watch.Began)
	if c.cfg.SlowSearch <= 0 || took < c.cfg.SlowSearch {
		return
	}
	for _, t := range watch.Laps {
		attrs = append(attrs, slog.Duration(t.Stage, time.Duration(t.Micros)*time.Microsecond))
	}
	c.slow.Record(ctx, took, attrs...)
}
