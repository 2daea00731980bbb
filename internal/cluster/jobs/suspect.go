package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
)

// doubter is a Cluster that knows which members may lack documents of their group as a whole: those that are new in it, and those whose
// disk was replaced. A *members.Cluster is one.
type doubter interface {
	Suspect(addr string) bool
	// Trust says that a member was compared with the others of its group and lacks nothing, or is to be taken as it is.
	Trust(addr string)
	// Vouch asks a member who it is, if it has not answered from that instance of an index before. An error says that it cannot be asked, or
	// has just become suspect.
	Vouch(ctx context.Context, m *members.Member, index string, instance uint64) error
}

// teller is a Cluster that knows who members are, and notices when two of them are one node under two names. A *members.Cluster is one. What
// is deleted at one of the two is gone at the other, so no work changes documents then: errors match members.ErrTwins.
type teller interface {
	// Distinct asks all members who they are.
	Distinct(ctx context.Context) error
	// Alone asks one, and goes by what is known of the others.
	Alone(ctx context.Context, addr string) error
}

// distinct is an error if two members are one node.
func (r *Runner) distinct(ctx context.Context) error {
	if t, ok := r.c.(teller); ok {
		return t.Distinct(ctx)
	}
	return nil
}

// single is distinct where one member is to be changed.
func (r *Runner) single(ctx context.Context, m *members.Member) error {
	if t, ok := r.c.(teller); ok {
		return t.Alone(ctx, m.Addr)
	}
	return nil
}

// startable refuses a job while two members are one node: it would wait for an operator.
func (r *Runner) startable(ctx context.Context) error {
	err := r.distinct(ctx)
	if errors.Is(err, members.ErrTwins) {
		return api.NewProblem(api.JobConflict, api.ClipDetail(err.Error()+". Take the second name out of the map first (weft topology remove-member or remove-group)"))
	}
	return err
}

// suspect tells whether a member is to be compared as a whole before anything is taken from it.
func (r *Runner) suspect(addr string) bool {
	d, ok := r.c.(doubter)
	return ok && d.Suspect(addr)
}

func (r *Runner) trust(addr string) {
	if d, ok := r.c.(doubter); ok {
		d.Trust(addr)
	}
}

// lacks tells whether a member may lack documents of which nobody can say which: nothing is taken from it while there is another. What it refuses
// is known one by one, see refuses.
func (r *Runner) lacks(addr string) bool { return r.suspect(addr) || r.short(addr) || r.left(addr) }

// identify asks members who they are, so that suspect holds as of now: whoever has lost its documents before is suspect after that.
func (r *Runner) identify(ctx context.Context, of ...*members.Member) error {
	d, ok := r.c.(doubter)
	if !ok {
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, m := range of {
		g.Go(func() error {
			// An instance that nobody has seen makes it a question.
			if err := d.Vouch(gctx, m, "", rand.Uint64()); err != nil && !d.Suspect(m.Addr) {
				return &memberError{m.Addr, "Placed", err}
			}
			return nil
		})
	}
	return g.Wait()
}

// lost tells whether all members of a group may lack documents.
func (r *Runner) lost(g *members.Group) bool {
	return !slices.ContainsFunc(g.Members, func(m *members.Member) bool { return !r.suspect(m.Addr) })
}

// suspects are the members of all groups that may lack documents.
func (w *work) suspects() []string {
	var out []string
	for _, m := range everyone(w.st) {
		if w.r.suspect(m.Addr) {
			out = append(out, m.Addr)
		}
	}
	return out
}

// mend makes members that may lack documents equal to one of their group that does not.
func (w *work) mend(ctx context.Context) error {
	if err := w.r.identify(ctx, everyone(w.st)...); err != nil {
		return err
	}
	for _, g := range w.st.Groups {
		from := w.truth(g.Ordinal)
		if w.r.suspect(from.Addr) {
			continue // all are
		}
		for _, m := range g.Members {
			if !w.r.suspect(m.Addr) {
				continue
			}
			left, err := w.repairMember(ctx, nil, from, m, seen)
			if err == nil && len(left) > 0 {
				err = errUnequal
			}
			if err != nil {
				return fmt.Errorf("give %s the documents of its group: %w", m.Addr, err)
			}
			w.r.trust(m.Addr)
		}
	}
	return nil
}
