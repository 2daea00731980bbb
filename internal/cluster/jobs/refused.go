package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// Some documents a member never takes: they do not fit a schema of its own, or are longer than it allows. Such a document steps aside
// (hints.Queue.SetAside), so that what else is kept for the member can be given to it. While it is aside
//
//   - the member lacks what others have acknowledged: it is behind, read from last, and others are told so (missed.go);
//   - the member waits for it: others may have it in a later state. So it is taken from the member by no comparison or move, and by a replay only where
//     all others wait for it, too, and the member has the last state (right.go). Every other document is taken from it;
//   - where another coordinator has put it aside the member is the reference of no comparison in the background here;
//   - it is looked at again now and then, after a repair, and after a start. It comes back once the member is equal to another, because the
//     document was written anew, deleted, or can be taken by now. Before it is changed then others are heard once more: the one that refuses may have
//     taken a later state, which the other one has missed.
//
// A document that a member does not refuse, and that no other has for certain, is tried again soon. Where others differ, or the member has the last state
// itself and others are to be given that, it stays in the queue, behind everything else, for disputedFor; after that it steps aside, too, while there is room, and is looked
// at again after seconds. Where it is not known yet who has the last state it stays in the queue.
//
// A document of which each member of a group refuses a state of its own stays as it is until one takes the last of these, it is written anew, or a
// repair says who is right.

const (
	refusedEvery  = 5 * time.Minute // between two looks at what a member refuses
	loggedRefused = 10              // documents that are named at once
	// unknownEvery is the first wait before another look at what nobody has for certain, and mostUnknown the longest.
	unknownEvery = 2 * time.Second
	mostUnknown  = 15 * time.Second
	// disputedFor is how long documents stay among those to be given of which other members have different states, before they step aside, too: mostly
	// a write is under way, or another coordinator is about to give one of these what it has missed.
	disputedFor = time.Minute
)

var (
	// errNoneKnows is why a document is put aside that the member does not refuse.
	errNoneKnows = errors.New("no other member has it for certain: each has missed or refused something")
	// errDisputed is that of a document of which the others have different states.
	errDisputed = fmt.Errorf("%w, and they differ", errNoneKnows)
)

// asideClock says when what members refuse is looked at again, and, sooner, what they do not refuse and nobody else has for certain.
type asideClock struct {
	mu       sync.Mutex
	at       map[string]time.Time // by member: of the last look; none: at once
	unknown  map[string]*unknown  // by member
	disputed map[string]map[hints.Entry]time.Time
	open     map[string]time.Time // by member: since when something that it has missed waits until others have told what they keep
}

// unknown are the documents of a member that are aside though it does not refuse them.
type unknown struct {
	entries map[hints.Entry]bool
	away    // when they are looked at again
}

func (c *asideClock) due(addr string) (all, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.at[addr]
	all = !ok || time.Since(at) >= refusedEvery
	u := c.unknown[addr]
	return all, all || u != nil && !time.Now().Before(u.until)
}

func (c *asideClock) looked(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[string]time.Time{}
	}
	c.at[addr] = time.Now()
	maps.DeleteFunc(c.at, func(_ string, at time.Time) bool { return time.Since(at) >= missedRemembered })
}

// isUnknown tells whether a document that is aside is not known to be refused.
func (c *asideClock) isUnknown(addr string, e hints.Entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.unknown[addr]
	return u != nil && u.entries[e]
}

// saw notes what a look at documents has found: those that are not in refused are not aside any more.
func (c *asideClock) saw(addr string, looked []hints.Entry, refused map[hints.Entry]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.unknown[addr]
	if u == nil {
		u = &unknown{entries: map[hints.Entry]bool{}}
	}
	for _, e := range looked {
		switch {
		case !errors.Is(refused[e], errNoneKnows):
			delete(u.entries, e)
		case !u.entries[e]:
			u.entries[e], u.tries = true, 0
		}
	}
	if len(u.entries) == 0 {
		delete(c.unknown, addr)
		return
	}
	u.tries++
	u.until = time.Now().Add(backoff(u.tries, unknownEvery, mostUnknown))
	if c.unknown == nil {
		c.unknown = map[string]*unknown{}
	}
	c.unknown[addr] = u
}

// again are those of the documents of a batch that are to be given yet though others have different states of them, or it is not known yet who
// has the present one, and takes them out of refused. Of the former it is known since when, and they are not among them for ever, where there is
// room for so many to step aside.
func (c *asideClock) again(addr string, batch []hints.Entry, refused map[hints.Entry]error, room int) (again []hints.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.disputed[addr]
	for _, e := range batch {
		if errors.Is(refused[e], errWaits) {
			delete(refused, e)
			again = append(again, e)
			continue
		}
		if !errors.Is(refused[e], errDisputed) {
			delete(d, e)
			continue
		}
		if d == nil {
			d = map[hints.Entry]time.Time{}
		}
		since, ok := d[e]
		if !ok {
			since = time.Now()
			d[e] = since
		}
		if time.Since(since) >= disputedFor && room > 0 {
			room--
			delete(d, e)
			continue
		}
		delete(refused, e)
		again = append(again, e)
	}
	if len(d) == 0 {
		delete(c.disputed, addr)
		return again
	}
	if c.disputed == nil {
		c.disputed = map[string]map[hints.Entry]time.Time{}
	}
	c.disputed[addr] = d
	return again
}

// lookAgain lets what members refuse be looked at now.
func (r *Runner) lookAgain() {
	r.aside.mu.Lock()
	defer r.aside.mu.Unlock()
	clear(r.aside.at)
	clear(r.aside.unknown)
}

// refuses tells whether a member is known here to refuse a document in the state that others have.
func (r *Runner) refuses(addr string, e hints.Entry) bool {
	return r.o.Hints != nil && r.o.Hints.IsAside(addr, e)
}

// schemaRefused tells whether an error says that a member does not take the schema of an index, for a reason that will stay.
func schemaRefused(err error, addr string) bool {
	m, ok := errors.AsType[*memberError](err)
	if !ok || m.addr != addr || m.call != "PutIndex" {
		return false
	}
	return slices.ContainsFunc([]api.Code{api.SchemaConflict, api.InvalidSchema, api.TypeConflict, api.TooManyFields, api.InvalidFieldName},
		func(c api.Code) bool { return hasCode(m.err, c) })
}

// putAside puts documents of a member aside, with why. full says that they are too many: the member has overflowed instead.
func (r *Runner) putAside(addr string, refused map[hints.Entry]error) (full bool, err error) {
	if len(refused) == 0 {
		return false, nil
	}
	order := func(a, b hints.Entry) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID)) }
	all := slices.SortedFunc(maps.Keys(refused), order)
	fresh := slices.DeleteFunc(slices.Clone(all), func(e hints.Entry) bool { return r.refuses(addr, e) })
	if full, err = r.o.Hints.SetAside(addr, all); err != nil || full {
		return full, err
	}
	r.aside.looked(addr)
	r.aside.saw(addr, all, refused)
	known := len(fresh)
	fresh = slices.DeleteFunc(fresh, func(e hints.Entry) bool { return errors.Is(refused[e], errNoneKnows) })
	if n := known - len(fresh); n > 0 {
		r.log.Info("a member has missed documents that no other has for certain; they are looked at again soon", "member", addr, "documents", n)
	}
	r.count.refused.Add(uint64(len(fresh)))
	for _, e := range fresh[:min(len(fresh), loggedRefused)] {
		r.log.Warn("a member refuses a document that it has missed", "member", addr, "index", e.Index, "id", api.Clip(e.ID), "error", refused[e])
	}
	if more := len(fresh) - loggedRefused; more > 0 {
		r.log.Warn("a member refuses more documents that it has missed", "member", addr, "documents", more)
	}
	return false, nil
}

// replayAside looks again at what a member refuses, when that is due.
func (r *Runner) replayAside(ctx context.Context, st *members.State, m *memberOf) error {
	list := r.o.Hints.Aside(m.Addr)
	everything, some := r.aside.due(m.Addr)
	if len(list) == 0 || !some {
		return nil
	}
	if everything {
		r.aside.looked(m.Addr)
	}
	var entries []hints.Entry
	for i := range list {
		if everything || r.aside.isUnknown(m.Addr, list[i].Entry) {
			entries = append(entries, list[i].Entry)
		}
	}
	found := map[hints.Entry]error{}
	for _, e := range entries {
		found[e] = errNoneKnows // unless the look comes to an end
	}
	defer func() { r.aside.saw(m.Addr, entries, found) }()
	for some := range slices.Chunk(entries, r.tune.batch) {
		refused, err := r.replayBatch(ctx, st, m, some, true)
		if err != nil {
			return err
		}
		for e, why := range refused {
			r.log.Debug("a member still refuses a document", "member", m.Addr, "index", e.Index, "id", api.Clip(e.ID), "error", why)
		}
		for _, e := range some {
			delete(found, e)
		}
		maps.Copy(found, refused)
		taken := slices.DeleteFunc(slices.Clone(some), func(e hints.Entry) bool { _, no := refused[e]; return no })
		if len(taken) == 0 {
			continue
		}
		r.behind.gave(m.Addr)
		if err := r.o.Hints.TakeBack(m.Addr, taken); err != nil {
			return err
		}
		r.log.Info("a member has documents that it refused before", "member", m.Addr, "documents", len(taken))
	}
	return nil
}

// disputed are the documents of which other members of a group than the one that is to be given them have different states, though they do not wait for
// them: somebody may have acknowledged a write just now, and not told yet who has missed it. Who does not answer is not asked.
func (w *work) disputed(ctx context.Context, index string, from, to *members.Member, ids []string) (map[string]bool, error) {
	out := map[string]bool{}
	first := map[string]leaf.Sum{}
	for _, o := range memberAt(w.st, from.Addr).group.Members {
		if o == to || w.r.suspect(o.Addr) {
			continue
		}
		ids := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			return w.r.waiting(o.Addr, hints.Entry{Index: index, ID: id}).Wait != hints.Not
		})
		if len(ids) == 0 {
			continue
		}
		have, err := w.sums(ctx, index, []*members.Member{o}, ids)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			if o == from || members.IsStale(err) {
				return nil, err
			}
			continue
		}
		for i, id := range ids {
			if sum, ok := first[id]; !ok {
				first[id] = have[0][i]
			} else if sum != have[0][i] {
				out[id] = true
			}
		}
	}
	return out, nil
}

// settled takes documents of which it cannot be told, or not yet, which member has the last state out of refused where all members of the group have
// the same: whoever missed which write of them, there is nothing left to be put right. While one of the members does not answer that is not known.
func (r *Runner) settled(ctx context.Context, st *members.State, m *memberOf, refused map[hints.Entry]error) error {
	of := map[string][]string{}
	for e, why := range refused {
		if groups := st.Writers(e.ID); len(groups) == 1 && groups[0] == m.group && (errors.Is(why, errNoneKnows) || errors.Is(why, errWaits)) {
			of[e.Index] = append(of[e.Index], e.ID)
		}
	}
	w := r.work(st)
	for index, ids := range of {
		have, err := w.sums(ctx, index, m.group.Members, ids)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case members.IsStale(err):
			return err
		case err != nil:
			r.log.Debug("look whether members have the same", "member", m.Addr, "index", index, "error", err)
			continue
		}
		for i, id := range ids {
			if !slices.ContainsFunc(have, func(of []leaf.Sum) bool { return of[i] != have[0][i] }) {
				delete(refused, hints.Entry{Index: index, ID: id})
			}
		}
	}
	return nil
}

// oneSidedError says that every member of a group lacks documents that it refuses: whichever is taken for right, some are lost.
type oneSidedError struct {
	group  int
	member string
}

func (e *oneSidedError) Error() string {
	return fmt.Sprintf("every member of group %d may lack documents that others of it have, %s such that it refuses; see its log and `behind` in /_topology: "+
		"write or delete these documents anew, or POST /_repair to make all equal to the primary", e.group, e.member)
}

// oneSided returns a *oneSidedError if some of groups have no member that lacks nothing, and the best lacks what it refuses.
func (r *Runner) oneSided(groups []*members.Group) error {
	for _, g := range groups {
		if best := r.mostTrusted(g.Members); r.doubts(best.Addr) == refuses {
			return &oneSidedError{g.Ordinal, best.Addr}
		}
	}
	return nil
}
