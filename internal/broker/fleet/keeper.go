package fleet

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/summa"
)

const (
	failuresToDoubt = 2                      // failed calls that bring a poll forward
	doubtGap        = time.Second            // from one poll to another that failed calls brought forward
	refreshGap      = time.Second            // from one poll of everybody to the next
	discoveryGap    = 50 * time.Millisecond  // for which changes of discovery are gathered
	youth           = 250 * time.Millisecond // for which a poll counts as young
	maxIndexes      = 100_000                // that one node may tell of
	maxLines        = 32                     // of the log about one change of discovery
	idle            = time.Hour

	// After a view was made and taken by Published, the next is not made for this many times as long as that took, at most longestRest.
	rest        = 4
	longestRest = 500 * time.Millisecond
)

// member is a node of the fleet. Besides failed it belongs to the loop.
type member struct {
	node    Node
	known   *route.Node // as it is to stand in the view
	health  health
	indexes []string
	learned time.Time
	odd     int // names that it told of and that are none

	running *poll     // nil: none
	began   time.Time // when the last poll did
	wanted  time.Time // when another poll is wanted after the running one; zero: when it is due anyway
	waiting []*learn  // for the next poll

	due  time.Time // of the next poll, where slot is not negative
	slot int       // in the heap; -1: not there

	failed atomic.Int32 // calls that failed since the last poll began
}

// poll is one question to a node. Its goroutine fills in the answer before it hands the poll to the loop.
type poll struct {
	member  *member
	node    Node
	began   time.Time
	cancel  context.CancelFunc
	young   bool
	waiting []*learn
	before  []string // what the node told of last

	indexes []string
	odd     int
	err     error
}

// keeper is the loop of Run: everything here belongs to one goroutine.
type keeper struct {
	*Fleet
	ctx     context.Context // of polls and of the source
	wg      sync.WaitGroup
	results chan *poll
	ended   chan error // of the source

	all     map[string]*member
	order   []*member // by shard and id, as in the view
	queue   dueQueue
	recent  []*poll // in the order in which they began; those that count as young are among them
	young   int
	settled []*learn // waiting for the next view only
	dirty   bool     // the view is to be made anew
	serving bool

	discoverAfter, refreshAfter, publishAfter time.Time
}

func newKeeper(f *Fleet) *keeper {
	return &keeper{Fleet: f, results: make(chan *poll, 64), ended: make(chan error, 1), all: map[string]*member{}}
}

func (k *keeper) run(ctx context.Context) error {
	var cancel context.CancelFunc
	k.ctx, cancel = context.WithCancel(ctx)
	defer k.wg.Wait()
	defer cancel()
	k.wg.Go(func() { k.ended <- k.o.Source.Run(k.ctx, k.tell) })

	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		k.step(time.Now())
		timer.Reset(k.pause(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case err := <-k.ended:
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				err = errors.New("it ended")
			}
			return fmt.Errorf("discovery: %w", err)
		case p := <-k.results:
			k.answered(p)
			for len(k.results) > 0 { // one view for all that is there
				k.answered(<-k.results)
			}
		case <-k.wake:
		case <-timer.C:
		}
	}
}

// step does all that can be done at this moment.
func (k *keeper) step(now time.Time) {
	k.discover(now)
	if !now.Before(k.refreshAfter) && k.refresh.Swap(false) {
		k.refreshAfter = now.Add(refreshGap)
		for _, m := range k.order {
			k.want(m, now)
		}
	}
	if k.doubt.Swap(false) {
		for _, m := range k.order {
			if m.failed.Load() >= failuresToDoubt {
				k.want(m, m.began.Add(doubtGap))
			}
		}
	}
	k.learn(now)

	for len(k.recent) > 0 && (!k.recent[0].young || now.Sub(k.recent[0].began) >= youth) {
		k.age(k.recent[0])
		k.recent[0] = nil
		k.recent = k.recent[1:]
	}
	for len(k.queue) > 0 && k.young < k.o.Polls && !now.Before(k.queue[0].due) {
		k.poll(k.queue[0], now)
	}
	k.publish(now)
}

// pause is how long nothing is to be done unless somebody wakes the loop.
func (k *keeper) pause(now time.Time) time.Duration {
	next := now.Add(idle)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(k.queue) > 0 {
		if k.young < k.o.Polls {
			earlier(k.queue[0].due)
		} else {
			earlier(k.recent[0].began.Add(youth))
		}
	}
	if k.dirty {
		earlier(k.publishAfter)
	}
	if k.refresh.Load() {
		earlier(k.refreshAfter)
	}
	k.mu.Lock()
	if k.fresh {
		earlier(k.discoverAfter)
	}
	k.mu.Unlock()
	return max(0, next.Sub(now))
}

// discover takes over what the source told last.
func (k *keeper) discover(now time.Time) {
	if now.Before(k.discoverAfter) {
		return
	}
	k.mu.Lock()
	nodes, fresh := k.found, k.fresh
	k.found, k.fresh = nil, false
	k.mu.Unlock()
	if !fresh {
		return
	}
	k.discoverAfter = now.Add(discoveryGap)

	there := make(map[string]bool, len(nodes))
	var found, gone []*member
	for _, n := range nodes {
		if n.ID == "" || n.Address == "" || n.Shard == "" || there[n.ID] {
			k.o.Log.Warn("discovery tells of a node that is incomplete or there twice", "node", n.ID, "address", n.Address, "shard", n.Shard)
			continue
		}
		there[n.ID] = true
		m := k.all[n.ID]
		if m != nil && m.node == n {
			continue
		}
		if m != nil && (m.node.Address != n.Address || m.node.Shard != n.Shard) {
			gone = append(gone, m)
			m = nil
		}
		if m == nil {
			m = &member{slot: -1}
			k.all[n.ID] = m
			found = append(found, m)
		}
		if n.Ready && !m.node.Ready && m.health.state == route.Suspect {
			m.health.since = now // grace is given to polls that fail, and there were none
		}
		m.node = n
		if n.Ready {
			k.want(m, now)
		} else {
			k.drop(m)
		}
		k.touch(m)
	}
	for id, m := range k.all {
		if !there[id] {
			delete(k.all, id)
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, func(a, b *member) int { return strings.Compare(a.node.ID, b.node.ID) })
	for _, m := range gone {
		k.drop(m)
	}
	if len(found)+len(gone) > 0 {
		k.restock()
		k.dirty = true
		k.added.Add(uint64(len(found)))
		k.removed.Add(uint64(len(gone)))
		k.report("node gone", gone)
		k.report("node found", found)
	}
}

// restock makes anew what hangs on which members there are.
func (k *keeper) restock() {
	members := make(map[string]*member, len(k.all))
	k.order = k.order[:0:0]
	for id, m := range k.all {
		members[id] = m
		k.order = append(k.order, m)
	}
	slices.SortFunc(k.order, func(a, b *member) int {
		return cmp.Or(strings.Compare(a.node.Shard, b.node.Shard), strings.Compare(a.node.ID, b.node.ID))
	})
	k.members.Store(&members)
}

func (k *keeper) report(what string, members []*member) {
	for i, m := range members {
		if i == maxLines {
			k.o.Log.Info(what, "more", len(members)-i)
			return
		}
		k.o.Log.Info(what, "node", m.node.ID, "address", m.node.Address, "shard", m.node.Shard, "role", m.node.Role.String(), "ready", m.node.Ready)
	}
}

// drop ends what is under way for a member that is not to be polled any more.
func (k *keeper) drop(m *member) {
	if m.slot >= 0 {
		heap.Remove(&k.queue, m.slot)
	}
	if m.running != nil {
		m.running.cancel()
		k.settle(m.running.waiting)
		m.running.waiting = nil
		m.running = nil
	}
	k.settle(m.waiting)
	m.waiting, m.wanted = nil, time.Time{}
}

// want has a ready member polled at a moment, or before; after the running poll, if one is.
func (k *keeper) want(m *member, at time.Time) {
	switch {
	case !m.node.Ready:
	case m.running != nil:
		if m.wanted.IsZero() || at.Before(m.wanted) {
			m.wanted = at
		}
	case m.slot < 0:
		m.due = at
		heap.Push(&k.queue, m)
	case at.Before(m.due):
		m.due = at
		heap.Fix(&k.queue, m.slot)
	}
}

// learn takes over the calls of Learn that came in.
func (k *keeper) learn(now time.Time) {
	k.mu.Lock()
	learns := k.learns
	k.learns = nil
	k.mu.Unlock()
	for _, l := range learns {
		l.left = 1 // so that it is not done before all are counted
		for _, id := range l.ids {
			m := k.all[id]
			if m == nil || !m.node.Ready {
				continue
			}
			m.waiting = append(m.waiting, l)
			l.left++
			k.want(m, now)
			if m.running == nil {
				k.poll(m, now)
			}
		}
		k.settle([]*learn{l})
	}
}

// settle counts an answer for each; those that have all are done with the next view.
func (k *keeper) settle(learns []*learn) {
	for _, l := range learns {
		if l.left--; l.left == 0 {
			k.settled = append(k.settled, l)
		}
	}
}

// poll begins to ask a member that stands in the queue.
func (k *keeper) poll(m *member, now time.Time) {
	heap.Remove(&k.queue, m.slot)
	ctx, cancel := context.WithTimeout(k.ctx, k.o.ListTimeout)
	p := &poll{member: m, node: m.node, began: now, cancel: cancel, young: true, waiting: m.waiting, before: m.indexes}
	m.running, m.began, m.waiting, m.wanted = p, now, nil, time.Time{}
	m.failed.Store(0)
	k.recent = append(k.recent, p)
	k.young++
	k.wg.Go(func() {
		defer cancel()
		names, err := k.o.List(ctx, p.node)
		if err == nil {
			err = p.take(names, k.View())
		}
		p.err = err
		select {
		case k.results <- p:
		case <-k.ctx.Done():
		}
	})
}

// take checks the names that a node told of, and brings them in order. They are kept in the strings that the view has of them.
func (p *poll) take(names []string, v *route.View) error {
	if len(names) > maxIndexes {
		return status.Errorf(codes.ResourceExhausted, "the node tells of more than %d indexes", maxIndexes)
	}
	kept := make([]string, 0, len(names))
	for _, name := range names {
		known, ok := v.Known(name)
		switch {
		case ok:
			kept = append(kept, known)
		case summa.CheckIndexName(name) == nil:
			kept = append(kept, strings.Clone(name)) // which may be a piece of a larger reply
		default:
			p.odd++
		}
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	if slices.Equal(kept, p.before) {
		kept = p.before
	}
	p.indexes = kept
	return nil
}

// age makes a poll count as young no longer.
func (k *keeper) age(p *poll) {
	if p.young {
		p.young = false
		k.young--
	}
}

// answered takes over the outcome of a poll.
func (k *keeper) answered(p *poll) {
	k.age(p)
	m := p.member
	if m.running != p {
		return // it was dropped
	}
	now := time.Now()
	m.running = nil
	was := m.health.state
	m.health.observe(p.err == nil, now, k.o.Grace)
	if p.err == nil {
		m.indexes, m.learned = p.indexes, now
		if p.odd != m.odd && p.odd > 0 {
			k.o.Log.Warn("node tells of names that no index can have", "node", m.node.ID, "names", p.odd)
		}
		m.odd = p.odd
	}
	if is := m.health.state; is != was {
		level, why := slog.LevelInfo, []any(nil)
		if p.err != nil {
			level, why = slog.LevelWarn, []any{"error", p.err}
		}
		k.o.Log.Log(k.ctx, level, "node is "+is.String(),
			append([]any{"node", m.node.ID, "shard", m.node.Shard, "was", was.String(), "code", code(p.err).String()}, why...)...)
	}
	k.touch(m)

	interval := k.o.ProbeInterval
	if m.health.state == route.Healthy {
		interval = k.o.PollInterval
	}
	due := p.began.Add(interval)
	if !m.wanted.IsZero() && m.wanted.Before(due) {
		due = m.wanted
	}
	k.want(m, due)
	if len(m.waiting) > 0 {
		k.poll(m, now)
	}
	k.settle(p.waiting)
}

// touch makes anew how a member stands in the view.
func (k *keeper) touch(m *member) {
	m.known = &route.Node{
		ID: m.node.ID, Address: m.node.Address, Shard: m.node.Shard, Role: m.node.Role, Ready: m.node.Ready,
		Health: m.health.state, Indexes: m.indexes, Learned: m.learned, Failures: m.health.failures,
	}
	k.dirty = true
}

// publish puts a new view in place, if there is something new and the last one was not too much work.
func (k *keeper) publish(now time.Time) {
	if k.dirty {
		if now.Before(k.publishAfter) {
			return
		}
		k.dirty = false
		nodes := make([]*route.Node, len(k.order))
		for i, m := range k.order {
			nodes[i] = m.known
		}
		begin := time.Now()
		v := k.View().Next(nodes)
		k.view.Store(v)
		if k.o.Published != nil {
			k.o.Published(v)
		}
		end := time.Now()
		k.publishAfter = end.Add(min(rest*end.Sub(begin), longestRest))
		if s := v.Serving(); s != k.serving {
			k.serving = s
			if k.o.Serving != nil {
				k.o.Serving(s)
			}
		}
	}
	for _, l := range k.settled {
		close(l.done)
	}
	k.settled = nil
}

// code is the gRPC code of a poll's outcome.
func code(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// dueQueue is a heap of members by when they are due.
type dueQueue []*member

// Len implements heap.Interface.
func (q dueQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q dueQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].slot, q[j].slot = i, j
}

// Push implements heap.Interface.
func (q *dueQueue) Push(x any) {
	m := x.(*member)
	m.slot = len(*q)
	*q = append(*q, m)
}

// Pop implements heap.Interface.
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	m.slot = -1
	return m
}
