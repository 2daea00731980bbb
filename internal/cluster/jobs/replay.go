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
	since time.Time // of the first failure
	until time.Time
	told  time.Time // when it was logged last that this goes on
	waits bool      // for others to tell something,
	news  uint64    // and what they had told then
}

// How long a member is not given what it has missed before that is logged as a warning, and between two of these.
const (
	worrying = time.Minute
	worried  = 10 * time.Minute
)

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
			news := r.others.heardNews()
			if a := absent[p.Member]; time.Now().Before(a.until) && !(a.waits && a.news != news) {
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
			a.waits, a.news = errors.Is(err, errWaits), news
			if a.tries++; a.tries == 1 {
				a.since = time.Now()
			}
			if time.Since(a.since) >= worrying && (a.told.IsZero() || time.Since(a.told) >= worried) {
				a.told = time.Now()
				r.log.Warn("a member still lacks writes that it missed", "member", p.Member, "for", time.Since(a.since).Round(time.Second).String(), "entries", p.Count, "overflowed", p.Overflowed, "error", err)
			}
			most := mostAway
			if errors.Is(err, errDisputed) || errors.Is(err, errWaits) {
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
		if (errors.Is(err, errWaits) || errors.Is(err, errDisputed)) && i < once {
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
	waits := false
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
			stuck := 0
			for _, err := range refused {
				if errors.Is(err, errWaits) {
					stuck++
				}
			}
			if waits = waits || stuck > 0; stuck == len(b.Entries) && r.blind(m) {
				r.aside.waits(addr, true) // and so does everything behind these: they need not be written anew
				return errWaits
			}
			// Aside, or at the end of the queue, before they leave it: at each moment the member is known to lack them.
			late := r.aside.again(addr, b.Entries, refused, hints.MaxAside/2-len(r.o.Hints.Aside(addr)))
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
			if len(late) == len(b.Entries) && len(again) == seen { // there is nothing else
				if waits {
					r.aside.waits(addr, true)
					return errWaits
				}
				return errDisputed
			}
			continue
		}
		r.aside.waits(addr, waits)
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
			if errors.Is(err, errFilled) {
				return nil
			}
			return err
		}
	}
	return nil
}

// requeue keeps documents of a member for another try, behind everything else.
func (r *Runner) requeue(addr string, list []hints.Entry) error {
	return byIndex(list, func(index string, ids []string) error {
		_, err := r.o.Hints.Requeue(addr, index, ids)
		return err
	})
}

// byIndex gives the ids of documents, those of each index at once.
func byIndex(list []hints.Entry, fn func(index string, ids []string) error) error {
	of := map[string][]string{}
	for _, e := range list {
		of[e.Index] = append(of[e.Index], e.ID)
	}
	for index, ids := range of {
		if err := fn(index, ids); err != nil {
			return err
		}
	}
	return nil
}

// replayBatch looks at documents that a member has missed writes of. It returns those that the member refuses for a reason that will stay, with the
// reason, and those of which nobody can tell the state, or not yet. Of documents that are aside already, those that cannot be looked at now are
// among them, too.
func (r *Runner) replayBatch(ctx context.Context, st *members.State, m *memberOf, entries []hints.Entry, aside bool) (refused map[hints.Entry]error, err error) {
	w := r.work(st)
	if err := r.heed(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.log.Debug("hear what others keep", "error", err)
	}
	type part struct {
		index string
		from  *members.Member
		// listens says that others are heard once more: where all wait for the document one of them may have been written at just now, and what is
		// aside may be old, so that the member may have taken a later write since, which the other one has missed.
		listens bool
		ordered bool
	}
	parts := map[part][]string{}
	refused = map[hints.Entry]error{}
	now := r.aside.late(m.Addr)
	blind := !aside && !now && r.blind(m)
	for _, e := range entries {
		if blind {
			refused[e] = errWaits
			continue
		}
		switch from, how := r.source(st, m, e, now); how {
		case certain, byOrder:
			p := part{e.Index, from, aside || how == byOrder, how == byOrder}
			parts[p] = append(parts[p], e.ID)
		case itself:
			refused[e] = errDisputed
		case undecided:
			if refused[e] = errWaits; aside {
				refused[e] = errNoneKnows
			}
		}
	}
	for p, ids := range parts {
		w.listens, w.chosen = p.listens, nil
		if p.listens {
			w.chosen = func(e hints.Entry) bool {
				if r.waiting(p.from.Addr, e).Wait == hints.Not {
					return true
				}
				from, _ := r.source(st, m, e, now)
				return from == p.from
			}
		}
		if !p.ordered && (aside || r.doubts(p.from.Addr) >= refuses) {
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
		if err != nil {
			return nil, err
		}
		for _, id := range left {
			e := hints.Entry{Index: p.index, ID: id}
			switch err := w.refused[e]; {
			case never(err):
				refused[e] = err
			case errors.Is(err, errWaits) && !aside:
				refused[e] = errWaits
			case r.refuses(p.from.Addr, e), errors.Is(err, errWaits):
				refused[e] = errNoneKnows
			case err != nil:
				return nil, fmt.Errorf("%d documents are not taken: %w", len(left), err)
			default:
				return nil, errUnequal
			}
		}
	}
	if err := r.settled(ctx, st, m, refused); err != nil {
		return nil, err
	}
	r.count.replayed.Add(uint64(len(entries) - len(refused)))
	return refused, nil
}

// errFilled says that there is somebody now whom a member can be compared with, as soon as all go by that.
var errFilled = errors.New("the others of its group had lost their documents and have been given those that it has")

// fillOthers makes the other members of the group of one equal to it, which all may have lost their documents: it has missed some, and has all others.
// After that, an errFilled, it can be compared with them.
func (r *Runner) fillOthers(ctx context.Context, st *members.State, m *memberOf) error {
	if r.suspect(m.Addr) {
		return errNoReference
	}
	var errs []error
	filled := false
	for _, o := range m.group.Members {
		if o == m.Member {
			continue
		}
		left, err := r.work(st).repairMember(ctx, nil, m.Member, o, seen)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && len(left) > 0:
			err = errUnequal
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.log.Info("a member that may have lost its documents has those of another that has missed some", "member", o.Addr, "from", m.Addr)
		r.trust(o.Addr)
		filled = true
	}
	if filled {
		return errFilled
	}
	return errors.Join(errs...)
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
		return r.fillOthers(ctx, st, m)
	}
	// Where both may wait for any document the first is right.
	if from != nil && (m.Member != m.group.Members[0] || !r.unlistedHere(from.Addr)) {
		w := r.work(st)
		w.unsure = r.others.refused(from.Addr) && r.others.unlisted(from.Addr)
		w.chosen = func(e hints.Entry) bool { return r.waiting(from.Addr, e).Wait != hints.Does }
		left, err := w.repairMember(ctx, nil, from, m.Member, seen)
		if err != nil {
			return err
		}
		refused := map[hints.Entry]error{}
		var wait []hints.Entry
		for _, e := range left {
			switch err := w.refused[e]; {
			case errors.Is(err, errWaits):
				wait = append(wait, e)
			case never(err):
				refused[e] = err
			case r.refuses(from.Addr, e), w.unsure:
				refused[e] = errNoneKnows
			default:
				return errUnequal
			}
		}
		// The other one waits for them. Of this one it is not known that it has missed them: what was dropped counts as missed before.
		if err := byIndex(wait, func(index string, ids []string) error {
			_, err := r.o.Hints.AddUnacknowledged(m.Addr, index, ids)
			return err
		}); err != nil {
			return err
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
