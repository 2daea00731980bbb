package service

import (
	"context"
	"time"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/coordinate"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
)

// coordinated serves a search that the broker ranks itself ("When the broker coordinates"): checks, statistics where the index is on several
// shards, nominations, ranking. The places that the search has are given back by who calls it, when it has returned: ranking has ended then,
// also where the client is gone.
func (b *Broker) coordinated(p *picture, r route.Route, shape *partition.Shape, began time.Time) func(c *relay.Call) error {
	return func(c *relay.Call) error {
		to := r
		if !r.Partitioned {
			to = route.Route{Parts: []route.Target{r.Target}}
		}
		g := b.gather(c, p, c.Index(), &to)
		defer g.end()
		s := &ranked{gathering: g, one: !r.Partitioned}
		replies, left, err := s.rounds(c.Context(), b.reads(), shape)
		if err != nil {
			return err
		}
		limits := coordinate.Limits{Transfer: b.cfg.Transfer, Hold: g.held.room(c.Context()), Blame: g.blame}
		answer, err := s.plan.Answer(c.Context(), replies, len(left), began, limits, s.fault)
		if err != nil {
			return err
		}
		b.leftOut(p, g.ix, "search", left)
		return c.Reply(bytesOf(answer))
	}
}

// ranked is one search that the broker ranks.
type ranked struct {
	*gathering
	one  bool // the index is on one shard: its node's errors are the client's as they are
	plan *coordinate.Plan
}

// rounds asks the nodes.
func (s *ranked) rounds(ctx context.Context, reads partition.Reads, shape *partition.Shape) (replies []coordinate.Reply, left []int, err error) {
	if s.one {
		request, err := s.admit(1)
		if err != nil {
			return nil, nil, err
		}
		req, err := request(nil)
		if err != nil {
			return nil, nil, err
		}
		reply, err := s.Call(ctx, 0, summapb.SearchService_Search_FullMethodName, req)
		if err != nil {
			return nil, nil, err
		}
		return []coordinate.Reply{s.reply(0, reply)}, nil, nil
	}
	got, left, err := partition.Rounds(ctx, s.ix, s, reads, shape, s.admit)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range got {
		replies = append(replies, s.reply(g.Part, g.Message))
	}
	return replies, left, nil
}

// admit checks the search, for so many partitions that are asked, and bounds what each of them may answer.
func (s *ranked) admit(partitions int) (request func(stats []byte) ([]byte, error), err error) {
	req := &summapb.SearchRequest{}
	if err := s.c.Decode(req); err != nil {
		return nil, err
	}
	if s.plan, err = coordinate.Admit(req, partitions); err != nil {
		return nil, err
	}
	s.most = min(s.most, s.b.cfg.Transfer/partitions)
	return s.plan.Request, nil
}

func (s *ranked) reply(part int, message []byte) coordinate.Reply {
	return coordinate.Reply{Part: part, Shard: s.ix.Shards[part], Backend: s.to[part].Node.ID, Message: message}
}

// fault tells whose fault something is.
func (s *ranked) fault(part int, err error) error {
	if s.one {
		return err
	}
	return s.ix.Fault(part, err)
}

// Call implements partition.Caller.
func (s *ranked) Call(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
	out, whole, err := s.ask(ctx, part, method, req)
	if whole != nil && s.one {
		s.c.Beside(whole.Head.Meta, whole.End.Meta)
	}
	return out, err
}
