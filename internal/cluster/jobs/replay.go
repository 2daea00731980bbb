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
	addrs map[string]bool      // whether there is more for it than what it refuses
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

// Behind tells whether a member has missed writes that are kept for it here, or lacks some that it refuses. Readers ask it last.
func (r *Runner) Behind(addr string) bool {
	behind, _ := r.missedHere(addr)
	return behind
}

// short tells whether a member has missed writes that are kept for it here and are to be given to it yet.
func (r *Runner) short(addr string) bool {
	_, short := r.missedHere(addr)
	return short
}

func (r *Runner) missedHere(addr string) (behind, short bool) {
	if r.o.Hints == nil {
		return false, false
	}
	c := &r.behind
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.addrs == nil || now.Sub(c.at) >= behindAge {
		c.at, c.addrs = now, map[string]bool{}
		for _, p := range r.o.Hints.Pending() {
			c.addrs[p.Member] = p.Short()
		}
	}
	short, behind = c.addrs[addr]
	return behind, short
}

// missing tells whether a member of the state has missed something that it is to be given, as of now.
func (r *Runner) missing(st *members.State) bool {
	if r.o.Hints == nil {
		return false
	}
	for _, p := range r.o.Hints.Pending() {
		if p.Short() && memberAt(st, p.Member) != nil {
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
			most := mostAway
			if errors.Is(err, errDisputed) {
				most = mostUnknown
			}
			if never(err) {
				most = refusedEvery // what it does not take it may never: each try is a comparison of all
			}
			a.until = time.Now().Add(backoff(a.tries, replayEvery, most))
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

// errOthersFirst says that a primary has missed writes, and so has every other member of its group.
var errOthersFirst = errors.New("the others of its group have missed writes, too, and are given them first")

// replayAll gives all members of a state what they have missed. What one does not take keeps nothing from those behind it, nor does one
// that waits for these.
func (r *Runner) replayAll(ctx context.Context, st *members.State) error {
	if r.o.Hints == nil {
		return nil
	}
	var refused error
	list := r.o.Hints.Pending()
	once := len(list)
	for i := 0; i < len(list); i++ {
		p := list[i]
		if memberAt(st, p.Member) == nil {
			continue
		}
		err := r.replay(ctx, st, p.Member)
		if errors.Is(err, errOthersFirst) && i < once {
			list = append(list, p)
			continue
		}
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
	if _, due := r.aside.due(addr); !due && !r.awaits(addr) {
		return nil
	}
	if err := answers(ctx, m.Member); err != nil {
		return err
	}
	again := map[hints.Entry]bool{}
	for range replayRounds {
		b, err := r.o.Hints.Next(addr, r.tune.batch)
		if err != nil && !errors.Is(err, hints.ErrCorrupt) {
			return err
		}
		if len(b.Entries) > 0 {
			refused, err := r.replayBatch(ctx, st, m, b.Entries, false)
			if err != nil {
				return err
			}
			// Aside, or at the end of the queue, before they leave it: at each moment the member is known to lack them.
			late := r.aside.again(addr, b.Entries, refused)
			if err := r.requeue(addr, late); err != nil {
				return err
			}
			if _, err := r.putAside(addr, refused); err != nil {
				return err
			}
			r.behind.gave(addr)
			if err := r.o.Hints.Done(b); err != nil {
				return err
			}
			seen := len(again)
			for _, e := range late {
				again[e] = true
			}
			if len(late) == len(b.Entries) && len(again) == seen {
				return errDisputed // there is nothing else
			}
			continue
		}
		at := slices.IndexFunc(r.o.Hints.Pending(), func(p hints.MemberPending) bool { return p.Member == addr && p.Overflowed })
		if at < 0 {
			if err := r.replayAside(ctx, st, m); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				r.log.Debug("look again at what a member refuses", "member", addr, "error", err) // all else it has
			}
			return nil
		}
		if err := r.compareMember(ctx, st, m); err != nil {
			return err
		}
	}
	return nil
}

// requeue keeps documents of a member for another try, behind everything else.
func (r *Runner) requeue(addr string, list []hints.Entry) error {
	byIndex := map[string][]string{}
	for _, e := range list {
		byIndex[e.Index] = append(byIndex[e.Index], e.ID)
	}
	for index, ids := range byIndex {
		if _, err := r.o.Hints.Add(addr, index, ids); err != nil {
			return err
		}
	}
	return nil
}

// replayBatch looks at documents that a member has missed writes of. It returns those that the member refuses for a reason that will stay, with the
// reason, and those of which nobody can tell the state, since all others refuse them. Of documents that are aside already, those that
// cannot be looked at now are among them, too.
func (r *Runner) replayBatch(ctx context.Context, st *members.State, m *memberOf, entries []hints.Entry, aside bool) (refused map[hints.Entry]error, err error) {
	w := r.work(st)
	// What is aside may be old: the member may have taken a later write since, that the other one missed and a third keeps for that.
	w.background = aside
	if err := r.heed(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.log.Debug("hear what others keep", "error", err) // it can be told without a store, if less surely
	}
	type part struct {
		index string
		from  *members.Member
	}
	parts := map[part][]string{}
	refused = map[hints.Entry]error{}
	for _, e := range entries {
		switch from, why := r.source(st, m, e); {
		case from != nil && (!aside || !r.lacks(from.Addr)):
			p := part{e.Index, from}
			parts[p] = append(parts[p], e.ID)
		case why == notOwned:
		case aside, why == noneKnows:
			refused[e] = errNoneKnows
		case why == othersFirst:
			return nil, errOthersFirst
		}
	}
	for p, ids := range parts {
		if r.doubts(p.from.Addr) >= refuses && !aside {
			disputed, err := w.disputed(ctx, p.index, p.from, m.Member, ids)
			if err != nil {
				return nil, err
			}
			for id := range disputed {
				refused[hints.Entry{Index: p.index, ID: id}] = errDisputed
			}
			if ids = slices.DeleteFunc(ids, func(id string) bool { return disputed[id] }); len(ids) == 0 {
				continue
			}
		}
		found, err := w.prepare(ctx, p.index, p.from, m.Member)
		if schemaRefused(err, m.Addr) {
			for _, id := range ids {
				refused[hints.Entry{Index: p.index, ID: id}] = err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if !found {
			continue // the index was deleted
		}
		left, err := w.equalize(ctx, p.index, p.from, []*members.Member{m.Member}, ids, seen)
		if aside && errors.Is(err, errBehind) {
			left, err = ids, nil
			for _, id := range ids {
				w.refused[hints.Entry{Index: p.index, ID: id}] = errBehind
			}
		}
		if err != nil {
			return nil, err
		}
		for _, id := range left {
			e := hints.Entry{Index: p.index, ID: id}
			switch err := w.refused[e]; {
			case never(err):
				refused[e] = err
			case r.refuses(p.from.Addr, e), errors.Is(err, errBehind):
				refused[e] = errNoneKnows
			case err != nil:
				return nil, fmt.Errorf("%d documents are not taken: %w", len(left), err)
			default:
				return nil, errUnequal
			}
		}
	}
	r.count.replayed.Add(uint64(len(entries)))
	return refused, nil
}

// Why there is no source.
type sourceless uint8

const (
	hasSource   sourceless = iota
	notOwned               // the member's group is not to have the document
	asItIs                 // there is none, or it may have lost its documents: what the member has stays
	othersFirst            // it is the first, and the others are to be given what they have missed before
	noneKnows              // the others refuse the document, and may have it in an older state
)

// source is the member that has the present state of a document for another that has missed it: one of the group that readers see it in,
// and that has missed nothing, and not refused this document. If all there have missed something it is the first; the first itself waits until
// one of the others has been given what it missed. nil where there is none, with the reason.
func (r *Runner) source(st *members.State, m *memberOf, e hints.Entry) (*members.Member, sourceless) {
	if !slices.Contains(st.Writers(e.ID), m.group) {
		return nil, notOwned
	}
	refusing := false
	able := func(o *members.Member) bool {
		if o != m.Member && r.refuses(o.Addr, e) {
			refusing = true
			return false
		}
		return o != m.Member && !r.lacks(o.Addr)
	}
	// Not the group that the document is being moved to: it may not have it yet.
	owner := st.Owner(e.ID)
	others := slices.DeleteFunc(slices.Clone(owner.Members), func(o *members.Member) bool { return !able(o) })
	if len(others) > 0 {
		return r.mostTrusted(others), hasSource
	}
	if st.Map.Move != nil && st.Map.Move.Phase == shardmap.Switching {
		// What was written since the cutover is at the old owner, too.
		for _, g := range st.Writers(e.ID) {
			for _, o := range g.Members {
				if g != owner && able(o) {
					return o, hasSource
				}
			}
		}
	}
	if first := owner.Members[0]; first != m.Member && !r.suspect(first.Addr) && !r.refuses(first.Addr, e) {
		return first, hasSource
	}
	if refusing {
		return nil, noneKnows
	}
	if owner.Members[0] == m.Member && slices.ContainsFunc(owner.Members, func(o *members.Member) bool { return o != m.Member && !r.suspect(o.Addr) && r.short(o.Addr) }) {
		return nil, othersFirst
	}
	return nil, asItIs
}

// compareMember compares all documents of a member that has missed more than was kept.
func (r *Runner) compareMember(ctx context.Context, st *members.State, m *memberOf) error {
	c, err := r.o.Hints.Compare(m.Addr)
	if err != nil {
		return err
	}
	if err := r.heed(ctx); err != nil {
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
	if from != nil && (m.Member != m.group.Members[0] || !r.short(from.Addr)) {
		w := r.work(st)
		w.unsure = r.others.refused(from.Addr)
		left, err := w.repairMember(ctx, nil, from, m.Member, seen)
		if err != nil {
			return err
		}
		refused := map[hints.Entry]error{}
		for _, e := range left {
			switch err := w.refused[e]; {
			case never(err):
				refused[e] = err
			case r.refuses(from.Addr, e), w.unsure:
				refused[e] = errNoneKnows
			default:
				return errUnequal
			}
		}
		if full, err := r.putAside(m.Addr, refused); err != nil {
			return err
		} else if full {
			for _, err := range refused {
				return fmt.Errorf("%d documents are not taken: %w", len(left), err)
			}
		}
		if len(refused) == 0 {
			r.trust(m.Addr)
		}
	}
	if _, err := r.o.Hints.Compared(c); err != nil {
		return err
	}
	return nil // if it has overflowed again meanwhile, that is seen at the next look
}
