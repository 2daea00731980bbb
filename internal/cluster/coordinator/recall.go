package coordinator

import (
	"context"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/search"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/shard/knn"
)

// Parameters of a measurement of recall, as those of a node, and what holds where they are absent.
const (
	recallK       = 10
	recallSamples = 100
	mostRecallK   = 1000
)

var recallParams = []string{indexParam, "field", "k", "samples", "ef", "timeout_ms"}

// knnRecall measures how well the search of a vector field over all shards finds what an exact search finds. It runs as one search.
func (c *Coordinator) knnRecall(call *front.Call) *api.Problem {
	name, prob := call.Index()
	if prob != nil {
		return prob
	}
	p := call.Params()
	if !p.Has("field") {
		return &api.Problem{Code: api.MissingParameter, Field: "field", Detail: "field is missing: the vector field to measure"}
	}
	req := search.RecallRequest{Index: name, Field: p.Get("field"), K: recallK, Samples: recallSamples}
	timeout := int(c.cfg.Limits.SearchTimeout.Milliseconds())
	for _, n := range []struct {
		name string
		into *int
		most int
	}{
		{"k", &req.K, mostRecallK},
		{"samples", &req.Samples, knn.MaxSamples},
		{"ef", &req.Ef, knn.MaxEf},
		{"timeout_ms", &timeout, timeout},
	} {
		if p.Has(n.name) {
			if *n.into, prob = api.ParseCount(n.name, p.Get(n.name), 1, n.most); prob != nil {
				return prob
			}
		}
	}
	ctx, cancel := context.WithDeadlineCause(call.Context(), call.Start().Add(time.Duration(timeout)*time.Millisecond), front.ErrTimeout)
	defer cancel()
	place, err := c.searches.Enter(ctx, 1)
	if err != nil {
		return c.problem(ctx, err)
	}
	defer func() { call.LeaveRead(place) }()
	reply, prob := c.searcher.Recall(ctx, req)
	if prob != nil {
		return prob
	}
	return call.JSON(http.StatusOK, reply.AppendJSON(nil))
}
