package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

const (
	replayEvery  = time.Second            // how often it is looked whether members have missed something
	mostAway     = 30 * time.Second       // between two looks whether a member is there again
	behindAge    = 100 * time.Millisecond // for how long it is remembered who has missed something
	replayRounds = 64                     // batches of one member in a row, before others have their turn
)

// behindCache remembers who has missed something: every read asks.
type behindCache struct {
	mu    sync.Mutex
	at    time.Time
	addrs map[string]bool
	given map[string]time.Time // by member: when it was last given something that it had missed
}

func (c *behindCache) gave(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.given == nil {
		c.given = map[string]time.Time{}
	}
	c.given[addr] = time.Now()
	maps.DeleteFunc(c.given, func(_ string, at time.Time) bool { return time.Since(at) >= missedRemembered })
}

// caught adds to a sorted list the members that were given something since a moment.
func (c *behindCache) caught(list []string, since time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, at := range c.given {
		if !at.Before(since) {
			list = append(list, addr)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// caughtUp tells whether a member was given something since a moment.
func (c *behindCache) caughtUp(addr string, since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.given[addr]
	return ok && !at.Before(since)
}

// Behind tells whether a member has missed writes that are kept for it here. Readers ask it last.
func (r *Runner) Behind(addr string) bool {
	if r.o.Hints == nil {
		return false
	}
	c := &r.behind
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.addrs == nil || now.Sub(c.at) >= behindAge {
		c.at, c.addrs = now, map[string]bool{}
		for _, p := range r.o.Hints.Pending() {
			c.addrs[p.Member] = true
		}
	}
	return c.addrs[addr]
}

// missing tells whether a member of the state has missed something, as of now.
func (r *Runner) missing(st *members.State) bool {
	if r.o.Hints == nil {
		return false
	}
	for _, p := range r.o.Hints.Pending() {
		if memberAt(st, p.Member) != nil {
			return true
		}
	}
	return false
}

// memberOf is a member with its group.
type memberOf struct {
	*members.Member
	group *members.Group
}

// memberAt finds a member by its address; nil if the map has none.
func memberAt(st *members.State, addr string) *memberOf {
	for _, g := range st.Groups {
		for _, m := range g.Members {
			if m.Addr == addr {
				return &memberOf{m, g}
			}
		}
	}
	return nil
}

// away is when a member that did not answer is looked at again.
type away struct {
	tries int
	until time.Time
}

// replayLoop gives members what they have missed as soon as they are there again.
func (r *Runner) replayLoop() {
	absent := map[string]away{}
	t := time.NewTicker(replayEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-r.ctx.Done():
			return
		}
		st := r.c.State()
		if st == nil {
			continue
		}
		for _, p := range r.o.Hints.Pending() {
			if a := absent[p.Member]; time.Now().Before(a.until) {
				continue
			}
			err := r.replay(r.ctx, st, p.Member)
			if r.ctx.Err() != nil {
				return
			}
			if err == nil {
				delete(absent, p.Member)
				continue
			}
			a := absent[p.Member]
			a.tries++
			a.until = time.Now().Add(backoff(a.tries, replayEvery, mostAway))
			absent[p.Member] = a
			if a.tries == 1 {
				r.log.Info("give a member what it has missed", "member", p.Member, "error", err)
			}
			if members.IsStale(err) {
				if _, err := r.refresh(r.ctx); err != nil {
					r.log.Debug("read the shard map", "error", err)
				}
			}
		}
	}
}

// replayAll gives all members of a state what they have missed. What one does not take keeps nothing from those behind it.
func (r *Runner) replayAll(ctx context.Context, st *members.State) error {
	if r.o.Hints == nil {
		return nil
	}
	var refused error
	for _, p := range r.o.Hints.Pending() {
		if memberAt(st, p.Member) == nil {
			continue
		}
		err := r.replay(ctx, st, p.Member)
		if err != nil {
			err = fmt.Errorf("give %s what it has missed: %w", p.Member, err)
		}
		switch {
		case err != nil && !never(err):
			return err
		case refused == nil:
			refused = err
		}
	}
	return refused
}

// replay gives a member what it has missed. Two at once for one member do the same work twice and no harm.
func (r *Runner) replay(ctx context.Context, st *members.State, addr string) error {
	m := memberAt(st, addr)
	if m == nil {
		r.log.Info("a member has left; what it has missed is forgotten", "member", addr)
		return r.o.Hints.Forget(addr)
	}
	if err := answers(ctx, m.Member); err != nil {
		return err
	}
	for range replayRounds {
		b, err := r.o.Hints.Next(addr, r.tune.batch)
		if err != nil && !errors.Is(err, hints.ErrCorrupt) {
			return err
		}
		if len(b.Entries) > 0 {
			if err := r.replayBatch(ctx, st, m, b.Entries); err != nil {
				return err
			}
			r.behind.gave(addr)
			if err := r.o.Hints.Done(b); err != nil {
				return err
			}
			continue
		}
		at := slices.IndexFunc(r.o.Hints.Pending(), func(p hints.MemberPending) bool { return p.Member == addr && p.Overflowed })
		if at < 0 {
			return nil
		}
		if err := r.compareMember(ctx, st, m); err != nil {
			return err
		}
	}
	return nil
}

// replayBatch looks at documents that a member has missed writes of.
func (r *Runner) replayBatch(ctx context.Context, st *members.State, m *memberOf, entries []hints.Entry) error {
	w := r.work(st)
	type part struct {
		index string
		from  *members.Member
	}
	parts := map[part][]string{}
	for _, e := range entries {
		if from := r.source(st, m, e.ID); from != nil {
			p := part{e.Index, from}
			parts[p] = append(parts[p], e.ID)
		}
	}
	for p, ids := range parts {
		found, err := w.prepare(ctx, p.index, p.from, m.Member)
		if err != nil {
			return err
		}
		if !found {
			continue // the index was deleted
		}
		left, err := w.equalize(ctx, p.index, p.from, []*members.Member{m.Member}, ids, seen)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			for _, id := range left {
				if err := w.refused[id]; err != nil {
					return fmt.Errorf("%d documents are not taken: %w", len(left), err)
				}
			}
			return errUnequal
		}
	}
	r.count.replayed.Add(uint64(len(entries)))
	return nil
}

// source is the member that has the present state of a document for another that has missed it: one of the group that readers see it in,
// and that has missed nothing. If all there have missed something it is the first, and the document of the first stays as it is: nil. nil
// also where the member's group is not to have the document.
func (r *Runner) source(st *members.State, m *memberOf, id string) *members.Member {
	if !slices.Contains(st.Writers(id), m.group) {
		return nil
	}
	// Not the group that the document is being moved to: it may not have it yet.
	owner := st.Owner(id)
	others := slices.DeleteFunc(slices.Clone(owner.Members), func(o *members.Member) bool { return o == m.Member || r.lacks(o.Addr) })
	if len(others) > 0 {
		return r.mostTrusted(others)
	}
	if st.Map.Move != nil && st.Map.Move.Phase == shardmap.Switching {
		// What was written since the cutover is at the old owner, too.
		for _, g := range st.Writers(id) {
			for _, o := range g.Members {
				if g != owner && o != m.Member && !r.lacks(o.Addr) {
					return o
				}
			}
		}
	}
	if first := owner.Members[0]; first != m.Member && !r.suspect(first.Addr) {
		return first
	}
	return nil
}

// compareMember compares all documents of a member that has missed more than was kept.
func (r *Runner) compareMember(ctx context.Context, st *members.State, m *memberOf) error {
	c, err := r.o.Hints.Compare(m.Addr)
	if err != nil {
		return err
	}
	var from *members.Member
	for _, o := range m.group.Members {
		if o != m.Member && !r.suspect(o.Addr) && (from == nil || r.doubts(o.Addr) < r.doubts(from.Addr)) {
			from = o
		}
	}
	if from == nil && len(m.group.Members) > 1 {
		return errNoReference
	}
	if from != nil && (m.Member != m.group.Members[0] || !r.Behind(from.Addr)) {
		w := r.work(st)
		left, err := w.repairMember(ctx, nil, from, m.Member, seen)
		if err != nil {
			return err
		}
		if left > 0 {
			return errUnequal
		}
		r.trust(m.Addr)
	}
	if _, err := r.o.Hints.Compared(c); err != nil {
		return err
	}
	return nil // if it has overflowed again meanwhile, that is seen at the next look
}
