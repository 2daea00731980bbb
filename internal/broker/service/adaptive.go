package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// Reads that are balanced adaptively go to the better of two copies drawn at random, by what they took so far and what they are at, and once more to another
// one when the first is slower than nearly all were before: package replica has the rules, and what bounds the second tries.

// copies are the sets of copies that reads choose from.
type copies struct {
	policy *hedge.Policy

	mu sync.Mutex
	by map[where]*copySet
}

// where is an index on a shard.
type where struct{ index, shard string }

// copySet is the copies of an index on a shard, as a view of the fleet has them.
type copySet struct {
	mu   sync.Mutex
	view *route.View
	set  *replica.Set[*asking, *relay.Begun]
	n    int
}

// mostCopySets bounds the sets. Beyond, some are forgotten, with what is known of their copies.
const mostCopySets = 4096

// firstDelay is after how long a read goes to a second copy while it is not known how long reads take: until 64 were answered within a minute. It is
// longer than most reads take, and what it costs where it is not is within the bound of second tries; without it a read would wait for a copy that
// hangs for as long as its caller does.
const firstDelay = 100 * time.Millisecond

func newCopies(first time.Duration) *copies {
	return &copies{policy: hedge.NewPolicy(hedge.PolicyOptions{MaxAttempts: 2, InitialDelay: first}), by: map[where]*copySet{}}
}

// asking is one read that is asked of copies.
type asking struct {
	b      *Broker
	method string
	start  *relay.Starter

	mu    sync.Mutex
	over  bool // one has been chosen
	begun []*attempt
}

// attempt is a copy whose reply has begun.
type attempt struct {
	*relay.Begun
	release func()
}

// add keeps an attempt; false: another one was chosen already.
func (q *asking) add(a *attempt) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return false
	}
	q.begun = append(q.begun, a)
	return true
}

// choose ends all attempts but one, nil for all, and returns what ends that one.
func (q *asking) choose(won *relay.Begun) (end func()) {
	q.mu.Lock()
	q.over = true
	list := q.begun
	q.mu.Unlock()
	end = func() {}
	for _, a := range list {
		if a.Begun == won {
			end = a.end
		} else {
			a.end()
		}
	}
	return end
}

func (a *attempt) end() {
	a.Close()
	a.release()
}

// errElsewhere is that a copy cannot be asked now; another may be.
var errElsewhere = errors.New("the copy cannot be asked")

// copyLeaf asks one copy.
type copyLeaf struct {
	k    *backend
	node *route.Node
}

// Call implements serve.Leaf.
func (l *copyLeaf) Call(ctx context.Context, q *asking) (*relay.Begun, error) {
	if !l.k.enter() {
		return nil, errElsewhere
	}
	if !q.start.Takes(l.k.node) {
		l.k.leave()
		return nil, errElsewhere
	}
	release := l.k.leave
	if q.method == "Search" {
		place, err := l.k.searches.TryEnter(1)
		if err != nil {
			l.k.leave()
			return nil, errSearch
		}
		release = func() {
			place.Release()
			l.k.leave()
		}
	}
	began := time.Now()
	begun, err := q.start.Begin(ctx, l.k.node)
	l.k.calls.Called(rpcs[q.method], codeName(err), time.Since(began))
	if err != nil {
		release()
		if e, ok := errors.AsType[*grpcraw.Error](err); ok && e.Transport {
			q.b.fleet.Failed(l.node.ID)
		}
		return nil, err
	}
	if a := (&attempt{begun, release}); !q.add(a) {
		a.end()
		return nil, hedge.ErrLost
	}
	return begun, nil
}

// judge says what an error tells of a copy.
func judge(err error) replica.Verdict {
	switch {
	case errors.Is(err, errSearch), errors.Is(err, errElsewhere):
		return replica.Busy
	case status.Code(err) == codes.Unavailable, status.Code(err) == codes.DeadlineExceeded, status.Code(err) == codes.Internal:
		return replica.Faulty
	}
	return replica.Fine
}

// of is the set of copies of an index on a shard; nil where fewer than two can be asked.
func (s *copies) of(p *picture, index, shard string) *replica.Set[*asking, *relay.Begun] {
	name, ok := p.Known(index)
	if !ok {
		return nil
	}
	s.mu.Lock()
	at := where{name, shard}
	c := s.by[at]
	if c == nil {
		for other := range s.by {
			if len(s.by) < mostCopySets {
				break
			}
			delete(s.by, other)
		}
		c = &copySet{}
		s.by[at] = c
	}
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view != p.View {
		var list []replica.Replica[*asking, *relay.Begun]
		for _, n := range p.Replicas(nil, index, shard) {
			if k := p.backends[n.Address]; k != nil && len(list) < replica.MaxReplicas {
				list = append(list, replica.Replica[*asking, *relay.Begun]{Name: n.Address, Leaf: &copyLeaf{k, n}})
			}
		}
		if c.n = len(list); c.n > 0 {
			var err error
			if c.set == nil {
				c.set, err = replica.NewSet(list, replica.Options[*asking]{
					Name: index,
					Calls: func(q *asking) *hedge.Calls {
						return s.policy.Calls(hedge.Class{Name: q.method, Safe: true, Retryable: retryable})
					},
					Judge: judge,
				})
			} else {
				err = c.set.Update(list)
			}
			if err != nil {
				c.set, c.n = nil, 0
			}
		}
		c.view = p.View
	}
	if c.n < 2 {
		return nil
	}
	return c.set
}

// retryable tells whether a read that failed may be tried at another copy: where this one was not reached, has no room, or cannot be asked.
func retryable(err error) bool {
	if errors.Is(err, errSearch) || errors.Is(err, errElsewhere) {
		return true
	}
	e, ok := errors.AsType[*grpcraw.Error](err)
	return ok && e.Transport
}

// readAmong answers a read by the copy of a set that answers first. Where none of them takes it as it came, the one that it was routed to gets it in
// another way.
func (b *Broker) readAmong(set *replica.Set[*asking, *relay.Begun], p *picture, to *route.Node, method string) func(c *relay.Call) error {
	return func(c *relay.Call) error {
		start, err := c.Starter()
		if err != nil {
			return err
		}
		q := &asking{b: b, method: method, start: start}
		won, err := set.Call(c.Context(), q)
		end := q.choose(won)
		defer end()
		switch {
		case errors.Is(err, errElsewhere):
			return b.readAt(c, p, to, method)
		case errors.Is(err, errSearch):
			b.metrics.Rejected(p.labelOf(c.Index()), "backend")
			return errSearch
		case err != nil:
			return err
		}
		_, err = c.Finish(won)
		return err
	}
}

// readAt answers a read by one node, which takes a place at it if it is a search.
func (b *Broker) readAt(c *relay.Call, p *picture, n *route.Node, method string) error {
	k := p.backends[n.Address]
	if k == nil || !k.enter() {
		return errGone
	}
	defer k.leave()
	if method == "Search" {
		place, err := k.searches.TryEnter(1)
		if err != nil {
			b.metrics.Rejected(p.labelOf(c.Index()), "backend")
			return errSearch
		}
		defer place.Release()
	}
	began := time.Now()
	outcome, err := c.Forward(k.node)
	k.calls.Called(rpcs[method], codeName(status.Error(outcome.Code, "")), time.Since(began))
	if outcome.Transport {
		b.fleet.Failed(n.ID)
	}
	return err
}
