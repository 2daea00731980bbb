package read

import (
	"context"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// MemberHealth says whether a member answers.
type MemberHealth struct {
	Address string
	Group   int
	Node    string // UUID, where the wire carries it
	Took    time.Duration
	Err     error // nil: it answers
}

// Ping is leaf.Leaf.Ping: a coordinator answers if it can reach a member of any group.
func (r *Reader) Ping(ctx context.Context) (*leaf.PingReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.PingReply, error) {
		rd := &round{p: p, same: pingTask{}}
		_, err := p.tree.Call(c.ctx, rd)
		if err == nil {
			return &leaf.PingReply{Node: r.o.Node}, nil
		}
		if why := r.ended(c); why != nil {
			return nil, why
		}
		if c.caller.Err() != nil {
			return nil, context.Cause(c.caller)
		}
		return nil, &api.Problem{Code: api.GroupUnavailable, Detail: "no member of any group answers", RetryAfterMS: 1000, Cause: err}
	})
}

type pingTask struct{}

func (pingTask) class() class { return classBrief }

func (pingTask) run(ctx context.Context, m leaf.Member) (any, error) { return m.Ping(ctx) }

func (pingTask) said(any) (string, *leaf.Meta) { return "", nil }

// Health asks every member whether it answers, in the order of the map.
func (r *Reader) Health(ctx context.Context) ([]MemberHealth, error) {
	out, err := answer(ctx, r, func(c *running, p *plan) (*[]MemberHealth, error) {
		var all []*members.Member
		var out []MemberHealth
		for i, g := range p.groups {
			for _, m := range g.Members {
				all = append(all, m)
				out = append(out, MemberHealth{Address: m.Addr, Group: i})
			}
		}
		g := serve.Fan(c.ctx, len(all), serve.ScatterOptions{Parallel: r.o.Parallel}, func(ctx context.Context, i int) (*leaf.PingReply, error) {
			return all[i].Leaf.Ping(ctx)
		})
		for i := range out {
			out[i].Took, out[i].Err = g.Took[i], g.Errs[i]
			if g.Results[i] != nil {
				out[i].Node = g.Results[i].Node
			}
		}
		return &out, nil
	})
	if err != nil {
		return nil, err
	}
	return *out, nil
}
