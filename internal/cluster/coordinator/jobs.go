package coordinator

import (
	"context"
	"net/http"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/jobs"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
)

// flag reads a parameter that is true or false.
func flag(call *front.Call, name string, otherwise bool) (bool, *api.Problem) {
	if !call.Params().Has(name) {
		return otherwise, nil
	}
	switch call.Params().Get(name) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, api.NewProblem(api.InvalidParameter, name+": it is true or false").On(name)
}

// untilLeaving returns a context that also ends when the coordinator begins to close. A job goes on without who waits for it.
func (c *Coordinator) untilLeaving(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.leaving, func() { cancel(context.Cause(c.leaving)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// rebalance moves documents to the shards that own them. from is over how many groups they are placed, to over how many they are to
// be, by default all of the map. With wait=false it answers at once with the job.
func (c *Coordinator) rebalance(call *front.Call) *api.Problem {
	if _, prob := c.state(); prob != nil {
		return prob
	}
	// Another coordinator may have added the groups a moment ago.
	s, err := c.members.Refresh(call.Context())
	if err != nil {
		if call.Context().Err() != nil {
			return c.problem(call.Context(), err)
		}
		return &api.Problem{Code: api.NotReady, RetryAfterMS: 1000, Detail: "the shard map cannot be read where it is kept", Cause: err}
	}
	var prob *api.Problem
	p := call.Params()
	from, to := s.Map.Placed, len(s.Groups)
	if p.Has("from") {
		if from, prob = api.ParseCount("from", p.Get("from"), 1, placement.MaxShards); prob != nil {
			return prob
		}
	}
	if p.Has("to") {
		if to, prob = api.ParseCount("to", p.Get("to"), 1, placement.MaxShards); prob != nil {
			return prob
		}
	}
	wait, prob := flag(call, "wait", true)
	if prob != nil {
		return prob
	}
	if !wait {
		id, err := c.jobs.StartRebalance(call.Context(), from, to)
		if err != nil {
			return c.problem(call.Context(), err)
		}
		return c.document(call, http.StatusAccepted, map[string]string{"job": id})
	}
	ctx, stop := c.untilLeaving(call.Context())
	defer stop()
	reply, err := c.jobs.Rebalance(ctx, from, to)
	if err != nil {
		return c.problem(ctx, err)
	}
	return c.document(call, statusOf(reply.OK), reply)
}

// repair makes all members of each group equal to their primary; with force=true also to one that may have lost its documents.
func (c *Coordinator) repair(call *front.Call) *api.Problem {
	if _, prob := c.state(); prob != nil {
		return prob
	}
	wait, prob := flag(call, "wait", true)
	if prob != nil {
		return prob
	}
	force, prob := flag(call, "force", false)
	if prob != nil {
		return prob
	}
	if !wait {
		id, err := c.jobs.StartRepair(call.Context(), force)
		if err != nil {
			return c.problem(call.Context(), err)
		}
		return c.document(call, http.StatusAccepted, map[string]string{"job": id})
	}
	ctx, stop := c.untilLeaving(call.Context())
	defer stop()
	before := c.members.Suspects()
	reply, err := c.jobs.Repair(ctx, force)
	if err != nil {
		return c.problem(ctx, err)
	}
	c.trust(before, reply)
	return c.document(call, statusOf(reply.OK), reply)
}

// trust takes members that were suspect before a repair for what it has made of them: another coordinator may have done it.
func (c *Coordinator) trust(before []string, reply *jobs.RepairReply) {
	s := c.members.State()
	if s == nil || reply.Deferred > 0 {
		return
	}
	for _, done := range reply.Groups {
		if len(done.Failed) > 0 || done.Group >= len(s.Groups) || s.Groups[done.Group].Members[0].Addr != done.Primary {
			continue
		}
		for _, m := range s.Groups[done.Group].Members {
			if slices.Contains(before, m.Addr) {
				c.members.Trust(m.Addr)
			}
		}
	}
}

func (c *Coordinator) listJobs(call *front.Call) *api.Problem {
	list, err := c.jobs.Jobs(call.Context())
	if err != nil {
		return c.problem(call.Context(), err)
	}
	return c.document(call, http.StatusOK, map[string]any{"jobs": list})
}

func (c *Coordinator) getJob(call *front.Call) *api.Problem {
	j, err := c.jobs.Job(call.Context(), call.Request().PathValue("id"))
	if err != nil {
		return c.problem(call.Context(), err)
	}
	return c.document(call, http.StatusOK, j)
}

func (c *Coordinator) changeJob(call *front.Call) *api.Problem {
	j, err := c.jobs.Act(call.Context(), call.Request().PathValue("id"), call.Params().Get("action"))
	if err != nil {
		return c.problem(call.Context(), err)
	}
	return c.document(call, http.StatusOK, j)
}

// incomplete is the refusal of what needs all shards.
func (c *Coordinator) incomplete(b *leaf.Below, detail string) *api.Problem {
	extra := append([]byte(nil), `"shards":`...)
	return &api.Problem{Code: api.Incomplete, Detail: detail, Extra: b.Shards.AppendJSON(extra)}
}
