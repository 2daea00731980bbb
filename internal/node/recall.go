package node

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/shard/knn"
)

// Parameters of a measurement of recall, and what holds where they are absent.
const (
	recallK       = 10
	recallSamples = 100
	mostRecallK   = 1000
)

var recallParams = []string{indexParam, "field", "k", "samples", "ef", "timeout_ms"}

// knnRecall measures on the live index how well the search of a vector field finds what an exact search finds. It runs as one search.
func (n *Node) knnRecall(c *front.Call) *api.Problem {
	name, prob := c.Index()
	if prob != nil {
		return prob
	}
	if !c.Params().Has("field") {
		return &api.Problem{Code: api.MissingParameter, Field: "field", Detail: "field is missing: the vector field to measure"}
	}
	req := knn.RecallRequest{Field: c.Params().Get("field"), K: recallK, Samples: recallSamples}
	timeout := 0
	for _, p := range []struct {
		name string
		into *int
		most int
	}{
		{"k", &req.K, mostRecallK},
		{"samples", &req.Samples, knn.MaxSamples},
		{"ef", &req.Ef, knn.MaxEf},
		{"timeout_ms", &timeout, int(n.cfg.Limits.SearchTimeout.Milliseconds())},
	} {
		if c.Params().Has(p.name) {
			if *p.into, prob = api.ParseCount(p.name, c.Params().Get(p.name), 1, p.most); prob != nil {
				return prob
			}
		}
	}
	ctx := c.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, c.Start().Add(time.Duration(timeout)*time.Millisecond), front.ErrTimeout)
		defer cancel()
	}
	place, err := n.searches.Enter(ctx, 1)
	if err != nil {
		return n.problem(ctx, err)
	}
	defer func() { c.Leave(place) }()
	ctx, r, err := n.read(ctx, name)
	if err != nil {
		return n.problem(ctx, err)
	}
	defer r.release()
	res, err := knn.Recall(ctx, r.snap.Leaves(), r.snap.Schema(), req)
	if err != nil {
		return n.problem(ctx, fmt.Errorf("measure recall: %w", err))
	}
	reply := api.RecallReply{Recall: res.Recall, K: res.K, Samples: res.Samples, Approximate: res.Approximate}
	return c.JSON(http.StatusOK, reply.AppendJSON(nil))
}
