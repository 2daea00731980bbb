package jobs

import (
	"errors"
	"slices"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
)

// A coordinator that is not heard any more (missed.go) may never come back, and then nobody gives members what it kept for them: a disk that is lost
// takes along which documents these are. Others have them yet, but a member that counted as one that lacks nothing could be taken for right, and what
// it missed be undone at the others. So every coordinator that keeps something itself takes over what is left: it compares the member as a whole with
// another one of its group, as if more had been missed than is kept (hints), and takes nothing from it before that. That is on its disk before it
// leaves the one that is gone out of the object; until then it comes out of the object again, after a start too. If it does come back, it finds nothing
// to be given any more.
//
// It waits for two things, at most mostElsewhere: until the member was given what is kept for it here, which is known better than a comparison could
// tell, and until it is known which documents the others of its group wait for: those are not taken from them.

// left tells whether something that a member missed is left to this coordinator, which has not taken it over yet.
func (r *Runner) left(addr string) bool {
	return r.o.Hints != nil && r.others.left(addr)
}

func (ws *witnesses) left(addr string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.of {
		if w.leaves(addr) && !w.taken[addr] && !w.spent {
			return true
		}
	}
	return false
}

// legacy is what a coordinator leaves.
type legacy struct {
	of      *witness
	members []string // for which it kept something, and which are not taken over yet
	late    bool     // it has been left for long
}

// legacies are what coordinators leave that is not taken over, of all members of a state.
func (ws *witnesses) legacies(st *members.State) []legacy {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var out []legacy
	for _, w := range ws.of {
		l := legacy{of: w, late: w.quiet >= mostElsewhere}
		for _, m := range everyone(st) {
			if w.leaves(m.Addr) && !w.taken[m.Addr] {
				l.members = append(l.members, m.Addr)
			}
		}
		if len(l.members) > 0 || w.gone() && !w.spent {
			out = append(out, l)
		}
	}
	return out
}

// take notes that what a coordinator left of some members was taken over, and whether that was all.
func (ws *witnesses) take(l legacy, members []string, all bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if l.of.taken == nil {
		l.of.taken = map[string]bool{}
	}
	for _, addr := range members {
		l.of.taken[addr] = true
	}
	l.of.spent = l.of.spent || all && l.of.gone()
}

// spent tells whether a coordinator is known to be gone, and all that it kept was taken over.
func (ws *witnesses) spent(id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.of[id]
	return w != nil && w.spent
}

// inherit takes over what coordinators leave.
func (r *Runner) inherit() error {
	st := r.c.State()
	if r.o.Hints == nil || st == nil {
		return nil
	}
	legacies := r.others.legacies(st)
	if len(legacies) == 0 {
		return nil
	}
	var errs []error
	kept := map[string]hints.MemberPending{}
	for _, p := range r.o.Hints.Pending() {
		kept[p.Member] = p
	}
	for _, l := range legacies {
		var took []string
		for _, addr := range l.members {
			m, p := memberAt(st, addr), kept[addr]
			switch {
			case len(m.group.Members) == 1, p.Overflowed && !p.Comparing: // there is nobody else, or it is to be compared
				took = append(took, addr)
				continue
			case p.Comparing: // documents may have been looked at before it missed them
				continue
			case (p.Count > 0 || r.unheard(m)) && !l.late:
				continue
			}
			if _, err := r.o.Hints.Compare(addr); err != nil {
				errs = append(errs, err)
				continue
			}
			r.log.Info("a coordinator that kept writes for a member is not heard any more; the member is compared as a whole", "member", addr, "coordinator", l.of.ID)
			kept[addr] = hints.MemberPending{Member: addr, Overflowed: true}
			took = append(took, addr)
		}
		r.others.take(l, took, len(took) == len(l.members))
	}
	return errors.Join(errs...)
}

// unheard tells whether others keep something for all other members of the group of one, and do not tell which documents of any of them.
func (r *Runner) unheard(m *memberOf) bool {
	return !slices.ContainsFunc(m.group.Members, func(o *members.Member) bool { return o != m.Member && !r.others.unlisted(o.Addr) })
}
