package jobs

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// Whose state of a document is right, of the members of a group:
//
//  1. A member that does not wait for it, as far as it is kept here and told by others, has all that was acknowledged.
//  2. Where all wait for it, the one whose last missed write is the earliest has all that came after that one, and among it what was written
//     last: whoever missed the last write missed it later. What was missed when is told by stamps (hints.Queue.Heard): a write that was missed
//     when its coordinator had heard of another miss came after that or crossed it. Where neither had heard of the other, some seconds lie
//     between them mostly, and the calendars of the coordinators decide.
//     After a start of a coordinator what it kept before has the times at which it was written down, and what is found by the comparison of a
//     member that had missed more than was kept counts as missed before everything else: a guess then, and the same for all coordinators.
//  3. Of members that missed something last at the same time it is the first in the order of the group.
//
// Whether a member waits for a document is not known of one that has overflowed, or of which another coordinator tells no list, or a list that
// was cut. What hangs on that waits: until it is known, or mostElsewhere. Then such a member is taken as if it did not wait.

// errWaits says that it is not known yet which member has the present state of a document, or that the member that waits for it has that
// itself and others are to be given it first.
var errWaits = errors.New("others of its group may have it in another state, and are given that or told of it first")

// and is what two know of one member and one document.
func and(a, b hints.Waiting) hints.Waiting {
	return hints.Waiting{Wait: max(a.Wait, b.Wait), Last: max(a.Last, b.Last)}
}

// waiting is what the others have told of a member and a document.
func (ws *witnesses) waiting(addr string, hash uint64) hints.Waiting {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	out := hints.Waiting{}
	for _, w := range ws.of {
		if !w.gone() && w.has(addr) {
			out = and(out, w.docs[addr].waiting(hash))
		}
	}
	return out
}

// latest is the latest stamp of a document that they keep for another member than one; 0: they keep it for none.
func (ws *witnesses) latest(but string, hash uint64) (last uint64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.of {
		for addr, d := range w.docs {
			if addr != but && !w.gone() {
				last = max(last, d.waiting(hash).Last)
			}
		}
	}
	return last
}

// unlisted tells whether any of them keeps something for a member and does not say what.
func (ws *witnesses) unlisted(addr string) bool {
	return ws.any(func(w *witness) bool { return w.has(addr) && w.docs[addr] == nil })
}

// waiting is what is known here of a member and a document.
func (r *Runner) waiting(addr string, e hints.Entry) hints.Waiting {
	out := r.others.waiting(addr, hints.Hash(e))
	if r.o.Hints != nil {
		out = and(out, r.o.Hints.Waiting(addr, e))
	}
	return out
}

// unlisted tells whether a member may wait for any document.
func (r *Runner) unlisted(addr string) bool {
	return r.others.unlisted(addr) || r.unlistedHere(addr)
}

// unlistedHere is unlisted by what is kept here.
func (r *Runner) unlistedHere(addr string) bool {
	if r.o.Hints == nil {
		return false
	}
	_, _, ok := r.o.Hints.Kept(addr, 0)
	return !ok
}

// verdict says how a member was found to be right.
type verdict uint8

const (
	isClean   verdict = iota // it does not wait for the document
	isOrdered                // all wait for it, and it has missed nothing of it for the longest time
	isUnknown                // that cannot be told yet; there is no member
)

// right is the member that has the present state of a document, of some that are not suspect, at least one. With now it is one in any case, though
// it may not be known.
func (r *Runner) right(of []*members.Member, e hints.Entry, now bool) (*members.Member, verdict) {
	have := make([]hints.Waiting, len(of))
	var able []*members.Member
	for i, m := range of {
		if have[i] = r.waiting(m.Addr, e); have[i].Wait == hints.Not {
			able = append(able, m)
		}
	}
	if len(able) > 0 {
		return r.mostTrusted(able), isClean
	}
	least := uint64(math.MaxUint64)
	for _, h := range have {
		if h.Wait == hints.Does {
			least = min(least, h.Last)
		}
	}
	var first *members.Member
	open := false
	for i, h := range have {
		if h.Last > least {
			continue // another one has what it missed last
		}
		if first == nil {
			first = of[i]
		}
		if h.Wait == hints.May {
			open = true
			if !r.lacks(of[i].Addr) {
				able = append(able, of[i])
			}
		}
	}
	switch {
	case !open:
		return first, isOrdered
	case !now:
		return nil, isUnknown
	case len(able) > 0:
		return r.mostTrusted(able), isOrdered
	}
	return first, isOrdered
}

// sound are those of members that have not lost their documents.
func (r *Runner) sound(of []*members.Member) []*members.Member {
	return slices.DeleteFunc(slices.Clone(of), func(m *members.Member) bool { return r.suspect(m.Addr) })
}

// truthOf is the member of a group whose state of a document is taken.
func (r *Runner) truthOf(g *members.Group, e hints.Entry) *members.Member {
	if of := r.sound(g.Members); len(of) > 0 {
		m, _ := r.right(of, e, true)
		return m
	}
	return r.mostTrusted(g.Members)
}

// origin says what is to be done about a document that a member has missed.
type origin uint8

const (
	certain   origin = iota // it is taken from a member that does not wait for it
	byOrder                 // it is taken from one that waits for it, too, and has the last state
	notOwned                // the member's group is not to have the document
	asItIs                  // there is no other, or all others may have lost their documents: what the member has stays
	itself                  // the member has the last state, and the others are to be given it
	undecided               // it is not known yet
)

// source is the member that has the present state of a document for another that has missed it: one of the group that readers see it in. With now
// it is one also where that cannot be known. nil where there is none.
func (r *Runner) source(st *members.State, m *memberOf, e hints.Entry, now bool) (*members.Member, origin) {
	if !slices.Contains(st.Writers(e.ID), m.group) {
		return nil, notOwned
	}
	// Not the group that the document is being moved to: it may not have it yet.
	owner := st.Owner(e.ID)
	of := r.sound(owner.Members)
	others := slices.DeleteFunc(slices.Clone(of), func(o *members.Member) bool { return o == m.Member })
	if len(others) > 0 {
		if from, how := r.right(others, e, now); how == isClean {
			return from, certain
		}
	}
	if st.Map.Move != nil && st.Map.Move.Phase == shardmap.Switching {
		// What was written since the cutover is at the old owner, too.
		for _, g := range st.Writers(e.ID) {
			for _, o := range g.Members {
				if g != owner && o != m.Member && !r.suspect(o.Addr) && r.waiting(o.Addr, e).Wait == hints.Not {
					return o, certain
				}
			}
		}
	}
	if len(others) == 0 {
		return nil, asItIs
	}
	switch from, how := r.right(of, e, now); {
	case how == isUnknown:
		return nil, undecided
	case from == m.Member:
		return nil, itself
	default:
		return from, byOrder
	}
}

// blind tells whether every other member of the group of one may wait for any document: nothing can be known of what that one has missed.
func (r *Runner) blind(m *memberOf) bool {
	others := slices.DeleteFunc(r.sound(m.group.Members), func(o *members.Member) bool { return o == m.Member })
	return len(others) > 0 && !slices.ContainsFunc(others, func(o *members.Member) bool { return !r.unlisted(o.Addr) })
}

// late tells whether what a member has missed has waited long enough for others to tell what they keep.
func (c *asideClock) late(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.open[addr]
	return ok && time.Since(since) >= mostElsewhere
}

// waits notes whether what a member has missed waits for others.
func (c *asideClock) waits(addr string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch _, ok := c.open[addr]; {
	case !is:
		delete(c.open, addr)
	case !ok && c.open == nil:
		c.open = map[string]time.Time{addr: time.Now()}
	case !ok:
		c.open[addr] = time.Now()
	}
}
