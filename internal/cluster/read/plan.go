package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
)

// class is a kind of calls that take about as long.
type class uint8

const (
	classBrief class = iota // answered from what is in memory
	classSearch
	classStats
	classAggregate
	classKNN
	classFetch
	classSums
	classStream // IDs and Export
	numClasses
)

var classNames = [numClasses]string{"brief", "search", "stats", "aggregate", "knn", "fetch", "sums", "stream"}

// ensurePolicy makes the policy, with the first state.
func (r *Reader) ensurePolicy(st *members.State) {
	r.policyOnce.Do(func() {
		if r.policy = r.o.Policy; r.policy == nil {
			most := 2
			for _, g := range st.Groups {
				most = max(most, len(g.Members))
			}
			// All calls of a fan-out put their share in at once; what the budget cannot hold is lost.
			r.policy = hedge.NewPolicy(hedge.PolicyOptions{Burst: max(16, len(st.Groups)/2), MaxAttempts: most, InitialDelay: firstDelay, PerSecond: hedgesPerSecond})
		}
		for i, name := range classNames {
			c := hedge.Class{Name: name, Safe: true, Retryable: leaf.RetryRead}
			if class(i) == classStream {
				// A stream goes on at another member where it failed, but does not run twice at once.
				c.Safe, c.Retryable = false, retryStream
			}
			r.classes[i] = r.policy.Calls(c)
		}
	})
}

// firstDelay is after how long a call goes to a second member while it is not known how long calls take: until 64 of its class were answered
// within a minute. It is longer than most take, and what it costs where it is not is within the budget of hedges; without it a call would
// wait for a member that hangs for as long as its caller does.
const firstDelay = 100 * time.Millisecond

// hedgesPerSecond is how many hedges the budget gets by time, where calls are few.
const hedgesPerSecond = 1

// retryStream tells whether a stream may go on at another member. One that lacks the index may have missed that it was made.
func retryStream(err error) bool { return leaf.RetryRead(err) || hasCode(err, api.IndexNotFound) }

// reply is what a member said, and who it was.
type reply struct {
	value any
	from  *members.Member
}

// task is a call of one member, whatever its kind.
type task interface {
	class() class
	run(ctx context.Context, m leaf.Member) (any, error)
	// said is the index that an answer speaks of, and what it says besides; nil where that is not known.
	said(value any) (index string, meta *leaf.Meta)
}

type (
	replicaSet = replica.Set[task, reply]
	tree       = serve.Coordinator[*round, reply]
)

// group is one shard of a plan.
type group struct {
	*members.Group
	addresses []string
	joined    string // the addresses as one
	view      leaf.View
	visible   bool

	calls   *replicaSet
	streams *replicaSet // apart, for how long a stream takes says nothing about calls
}

// plan is a state, ready to be asked.
type plan struct {
	state  *members.State
	groups []*group
	alike  bool // all groups that are visible are looked at alike
	view   leaf.View
	tree   *tree
}

// plans keeps the plan of the latest state, and what is known of members from state to state.
type plans struct {
	current atomic.Pointer[plan]

	mu   sync.Mutex
	sets []*sets // by ordinal of the group
}

// sets are the replicas of one group.
type sets struct {
	members []*members.Member // as they were last set
	calls   *replicaSet
	streams *replicaSet
}

// planOf is the plan of a state.
func (r *Reader) planOf(st *members.State) (*plan, error) {
	if st == nil || len(st.Groups) == 0 {
		return nil, &api.Problem{Code: api.NotReady, Detail: "there is no shard map yet", RetryAfterMS: 1000}
	}
	if p := r.plans.current.Load(); p != nil && p.state == st {
		return p, nil
	}
	r.plans.mu.Lock()
	defer r.plans.mu.Unlock()
	old := r.plans.current.Load()
	if old != nil && old.state == st {
		return old, nil
	}
	r.ensurePolicy(st)
	p := &plan{state: st, groups: make([]*group, len(st.Groups)), alike: true}
	first := true
	for i, g := range st.Groups {
		pg := &group{Group: g}
		for _, m := range g.Members {
			pg.addresses = append(pg.addresses, m.Addr)
		}
		pg.joined = strings.Join(pg.addresses, "|")
		pg.view, pg.visible = st.View(i)
		if pg.visible {
			if first {
				p.view, first = pg.view, false
			}
			p.alike = p.alike && len(pg.view.Owned) == 0
		}
		s, err := r.setsOf(i, g)
		if err != nil {
			return nil, fmt.Errorf("read from group %d: %w", i, err)
		}
		pg.calls, pg.streams = s.calls, s.streams
		p.groups[i] = pg
	}
	var err error
	if p.tree, err = r.treeOf(p); err != nil {
		return nil, fmt.Errorf("read from the groups: %w", err)
	}
	// A call that began before the latest state goes by its own plan to its end, and leaves the latest in its place.
	if old == nil || old.state.Epoch() <= st.Epoch() {
		r.plans.current.Store(p)
	}
	return p, nil
}

// setsOf brings the replicas of a group up to date. A call that goes by a former state may go to members of this one: they refuse its
// map.
func (r *Reader) setsOf(ordinal int, g *members.Group) (*sets, error) {
	for len(r.plans.sets) <= ordinal {
		r.plans.sets = append(r.plans.sets, nil)
	}
	s := r.plans.sets[ordinal]
	if s != nil && slices.Equal(s.members, g.Members) {
		return s, nil
	}
	replicas := make([]replica.Replica[task, reply], len(g.Members))
	for i, m := range g.Members {
		replicas[i] = replica.Replica[task, reply]{Name: m.Addr, Leaf: memberLeaf{m, r.o.Vouch, r.o.Hung}}
	}
	if s != nil {
		if err := s.calls.Update(replicas); err != nil {
			return nil, err
		}
		if err := s.streams.Update(replicas); err != nil {
			return nil, err
		}
		s.members = g.Members
		return s, nil
	}
	o := replica.Options[task]{
		Name: fmt.Sprint(ordinal), Order: r.o.Order, Judge: leaf.Judge, Standing: r.o.Standing,
		Calls: func(t task) *hedge.Calls { return r.classes[t.class()] },
	}
	s = &sets{members: g.Members}
	var err error
	if s.calls, err = replica.NewSet(replicas, o); err != nil {
		return nil, err
	}
	if s.streams, err = replica.NewSet(replicas, o); err != nil {
		return nil, err
	}
	r.plans.sets[ordinal] = s
	return s, nil
}

// memberLeaf is a member as a leaf of the serving tree.
type memberLeaf struct {
	m     *members.Member
	vouch func(ctx context.Context, m *members.Member, index string, instance uint64) error // nil: everything is taken
	hung  time.Duration                                                                     // Options.Hung
}

// Call implements serve.Leaf.
func (l memberLeaf) Call(ctx context.Context, t task) (reply, error) {
	if _, streams := t.(streamTask); streams && l.vouch != nil {
		// What a stream gives is taken before its end tells which index it came from, and what it did not give is not missed.
		if err := l.vouch(ctx, l.m, "", 0); err != nil {
			return reply{}, err
		}
	}
	v, err := l.run(ctx, t)
	if stalled, ok := errors.AsType[*StalledError](err); ok {
		err = &leaf.TransportError{Address: l.m.Addr, Call: classNames[t.class()], Cause: stalled}
	}
	if l.vouch != nil && hasCode(err, api.IndexNotFound) {
		// One whose disk was replaced a moment ago says so of every index.
		if err := l.vouch(ctx, l.m, "", 0); err != nil {
			return reply{}, err
		}
	}
	if err != nil {
		return reply{}, err
	}
	if l.vouch != nil {
		if index, meta := t.said(v); meta != nil && meta.Below == nil && meta.Snapshot.Instance != 0 {
			if err := l.vouch(ctx, l.m, index, meta.Snapshot.Instance); err != nil {
				return reply{}, err
			}
		}
	}
	return reply{v, l.m}, nil
}

// treeOf makes the coordinator over the groups. What is gathered is kept in the round: the kinds of calls differ in how they merge.
func (r *Reader) treeOf(p *plan) (*tree, error) {
	o := serve.CoordinatorOptions[*round, reply]{
		Parallel: r.o.Parallel, Budget: serve.Budget{Share: r.o.Budget.Share, Least: r.o.Budget.Least},
		Skip: func(rd *round, i int) bool { return rd.task(i) == nil },
		Merge: func(_ context.Context, rd *round, g *serve.Gathered[reply]) (reply, error) {
			rd.gathered = g
			return reply{}, nil
		},
		Canary: r.o.Canary,
	}
	if r.o.Canary != nil {
		o.Class = func(rd *round) uint64 { return rd.print }
	}
	for i := range p.groups {
		o.Children = append(o.Children, groupLeaf{p, i, r.o.Standing})
	}
	return serve.NewCoordinator(o)
}

// groupLeaf is a group as a leaf of the serving tree.
type groupLeaf struct {
	p        *plan
	i        int
	standing func(addr string) replica.Standing // nil: all are good
}

// Call implements serve.Leaf.
func (l groupLeaf) Call(ctx context.Context, rd *round) (reply, error) {
	g, t := l.p.groups[l.i], rd.task(l.i)
	if _, ping := t.(pingTask); !ping { // that asks who is there, and not for documents
		if err := g.lost(l.standing); err != nil {
			return reply{}, err
		}
	}
	return g.calls.Call(ctx, t)
}

// lost is the error of reading from a group all of whose members may have lost documents; nil where there is one that has not. What they would
// answer is not whole, and nobody could say what is missing.
func (g *group) lost(standing func(addr string) replica.Standing) error {
	if standing == nil {
		return nil
	}
	for _, m := range g.Members {
		if standing(m.Addr) != replica.Out {
			return nil
		}
	}
	return &api.Problem{
		Code: api.GroupUnavailable, RetryAfterMS: 1000,
		Detail: fmt.Sprintf("no member of shard %d holds its documents for certain (%s): see GET /_topology for why; POST /_topology?action=accept&member= (weft topology accept) says of one that what it has counts", g.Ordinal, g.joined),
	}
}

// round is one fan-out.
type round struct {
	p        *plan
	same     task   // for every group that is visible; nil: each
	each     []task // by group; nil entries are not asked
	print    uint64 // of the query, for the canary
	gathered *serve.Gathered[reply]
}

// task is what group i is asked; nil: nothing.
func (rd *round) task(i int) task {
	if rd.same == nil {
		return rd.each[i]
	}
	if !rd.p.groups[i].visible {
		return nil
	}
	return rd.same
}
