package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
)

const (
	repairPasses = 3           // comparisons of a member with its primary
	repairTries  = 3           // of what failed at a member, before the member counts as failed
	dropLook     = time.Second // between two looks at an index that no primary has, before it is deleted elsewhere
)

// suspectError says that a primary has far fewer documents than another member of its group. Nobody has asked for a repair: the primary may
// have lost its documents, and making others equal to it would lose them for good.
type suspectError struct {
	primary, member, index string
	has, other             uint64
}

func (e *suspectError) Error() string {
	return fmt.Sprintf("%s has %d documents of the index %q and %s has %d: it may have lost them; POST /_repair?force=true makes others equal to it",
		e.primary, e.has, e.index, e.member, e.other)
}

// repair makes the members of each group equal to its primary. A primary that may have lost its documents is given those of another member first,
// unless the job is forced.
func (j *running) repair(ctx context.Context) error {
	var st *members.State
	for try := 1; st == nil; try++ {
		var err error
		if st, err = j.r.refresh(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			j.waits(ctx, err)
			if err := pause(ctx, backoff(try, leastBackoff, mostBackoff)); err != nil {
				return err
			}
		}
	}
	j.note(func(p *progress) { p.Error, p.Total = "", uint64(len(st.Groups)) })
	var done tally // in the group that is under way, by maps that are out of date
	for try := 1; ; {
		w := j.r.work(st)
		w.asAsked, w.forced = true, j.force
		p := j.snapshot()
		if len(p.Groups) >= len(st.Groups) {
			if p.Failed {
				return &failure{p.Why}
			}
			return nil
		}
		err := j.r.distinct(ctx)
		var own *survey
		if err == nil {
			own, err = w.survey(ctx)
		}
		if err == nil {
			err = j.repairGroup(ctx, w, own, st.Groups[len(p.Groups)], &done)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			try, done.copied, done.removed = 1, 0, 0
			continue
		case !members.IsStale(err):
			j.waits(ctx, err)
		}
		if err := pause(ctx, backoff(try, leastBackoff, mostBackoff)); err != nil {
			return err
		}
		try++
		if next, err := j.r.refresh(ctx); err == nil {
			st = next
		}
	}
}

// survey is what the primaries say about indexes.
type survey struct {
	schemas []map[string]string        // of the primary of each group, by index; nil: it does not answer
	first   map[string]*members.Member // the first primary that has an index
	whole   bool                       // all primaries have answered
}

// survey asks all primaries for their indexes.
func (w *work) survey(ctx context.Context) (*survey, error) {
	s := &survey{schemas: make([]map[string]string, len(w.st.Groups)), first: map[string]*members.Member{}, whole: true}
	errs := make([]error, len(w.st.Groups))
	var g errgroup.Group
	for i, group := range w.st.Groups {
		g.Go(func() error {
			s.schemas[i], errs[i] = w.indexes(ctx, group.Members[0])
			return nil
		})
	}
	if err := errors.Join(g.Wait(), context.Cause(ctx)); err != nil {
		return nil, err
	}
	for i, group := range w.st.Groups {
		if members.IsStale(errs[i]) {
			return nil, errs[i]
		}
		s.whole = s.whole && errs[i] == nil
		for name := range s.schemas[i] {
			if s.first[name] == nil {
				s.first[name] = group.Members[0]
			}
		}
	}
	return s, nil
}

// tried runs something at members several times. The error is that of the last try, or at once that of a map that is out of date.
func tried(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if _, suspect := errors.AsType[*suspectError](err); err == nil || suspect || try == repairTries || members.IsStale(err) || ctx.Err() != nil {
			return err
		}
		if perr := pause(ctx, backoff(try, leastBackoff, mostBackoff)); perr != nil {
			return err
		}
	}
}

// repairGroup repairs one group and notes what became of it, with what was done before. The error is that of the end of the context, or of a map
// that is out of date; what was done is in done then.
func (j *running) repairGroup(ctx context.Context, w *work, own *survey, group *members.Group, done *tally) error {
	defer func() { done.add(&w.tally) }()
	primary := group.Members[0]
	out := GroupRepair{Group: group.Ordinal, Primary: primary.Addr, Failed: []string{}}
	var deferred uint64
	var refused error // one of those that were deferred
	why := ""
	if err := j.r.identify(ctx, primary); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var equal []string
	fail := func(m *members.Member, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if members.IsStale(err) {
			return err
		}
		out.Failed = append(out.Failed, m.Addr)
		why = err.Error()
		j.r.log.Warn("repair a member", "job", j.id, "member", m.Addr, "error", err)
		return nil
	}
	ready := func() error {
		if err := w.readyPrimary(ctx, own, group); err != nil || j.force || !j.r.suspect(primary.Addr) {
			return err
		}
		return j.fill(ctx, w.st, group, done)
	}
	if err := tried(ctx, ready); err != nil {
		if err := fail(primary, err); err != nil {
			return err
		}
		silent, err := silentOf(ctx, group.Members[1:])
		if err != nil {
			return err
		}
		out.Failed = append(out.Failed, silent...)
	} else {
		for _, m := range group.Members[1:] {
			var left []hints.Entry
			err := tried(ctx, func() (err error) {
				if !j.force && j.r.suspect(primary.Addr) { // it has lost them since
					if err := ready(); err != nil {
						return err
					}
				}
				left, err = w.repairMember(ctx, own, primary, m, seen)
				return err
			})
			deferred += uint64(len(left))
			for _, e := range left {
				if _, no := w.refusedFor(e.Index, []string{e.ID}); no != nil {
					refused = cmp.Or(refused, no)
					break
				}
			}
			if err == nil && len(left) == 0 {
				equal = append(equal, m.Addr)
			}
			if err != nil {
				if err := fail(m, err); err != nil {
					return err
				}
			}
		}
	}
	j.r.lookAgain()
	// Who is made equal to a primary that may lack documents is no better than that, for as long as there is another that may have them. It is what
	// force asks for that they are as it is.
	if doubted := j.r.suspect(primary.Addr); !doubted || j.force && len(out.Failed) == 0 {
		for _, addr := range append(equal, primary.Addr) {
			j.r.trust(addr)
		}
	}
	out.Copied, out.Removed = done.copied+w.tally.copied, done.removed+w.tally.removed
	j.note(func(p *progress) {
		p.Groups = append(p.Groups, out)
		p.Done = uint64(len(p.Groups))
		p.Deferred += deferred
		p.Failed = p.Failed || len(out.Failed) > 0 || deferred > 0
		p.Error = ""
		if why == "" && deferred > 0 {
			why = fmt.Sprintf("%d documents of group %d could not be made equal", deferred, group.Ordinal)
			if refused != nil {
				why += ", among them " + refused.Error()
			}
		}
		if p.Why == "" {
			p.Why = api.ClipDetail(why)
		}
	})
	return nil
}

// fill gives a primary that may have lost its documents those of its group.
func (j *running) fill(ctx context.Context, st *members.State, group *members.Group, done *tally) error {
	if err := j.r.heed(ctx); err != nil {
		return err
	}
	if m, unsure := j.r.unsettled(group); unsure {
		return fmt.Errorf("%s may have lost its documents, and %s is to be given the writes first that it has missed", group.Members[0].Addr, m.Addr)
	}
	w := j.r.work(st)
	w.background = true
	defer func() { done.add(&w.tally) }()
	if err := w.refill(ctx, group); err != nil {
		return fmt.Errorf("%s may have lost its documents, and could not be given those of its group: %w", group.Members[0].Addr, err)
	}
	return nil
}

// unsettled is a member of a group for which missed writes are kept: what it lacks is known, and comes of itself.
func (r *Runner) unsettled(g *members.Group) (*members.Member, bool) {
	for _, m := range g.Members {
		if r.short(m.Addr) || r.others.keeps(m.Addr) || r.left(m.Addr) {
			return m, true
		}
	}
	return nil, false
}

// readyPrimary sees to it that a primary has the indexes that other primaries have, with all their fields.
func (w *work) readyPrimary(ctx context.Context, own *survey, group *members.Group) error {
	primary := group.Members[0]
	if err := answers(ctx, primary); err != nil {
		return err
	}
	have, err := w.indexes(ctx, primary)
	if err != nil {
		return err
	}
	own.schemas[group.Ordinal] = have
	for name, from := range own.first {
		if from == primary {
			continue
		}
		if sdl := own.schemas[w.groupOf(from)][name]; have[name] != sdl {
			if _, err := w.prepare(ctx, name, from, primary); err != nil {
				return fmt.Errorf("give a primary the schema of the index %q: %w", name, err)
			}
		}
	}
	own.schemas[group.Ordinal], err = w.indexes(ctx, primary)
	return err
}

// groupOf is the ordinal of the group whose primary a member is.
func (w *work) groupOf(primary *members.Member) int {
	return slices.IndexFunc(w.st.Groups, func(g *members.Group) bool { return g.Members[0] == primary })
}

// repairMember makes a member equal to another of its group in all that the other holds, and returns the documents that it could not. A schema
// that the member refuses keeps nothing from its other indexes.
func (w *work) repairMember(ctx context.Context, own *survey, ref, m *members.Member, how manner) (left []hints.Entry, err error) {
	if err := w.r.single(ctx, m); err != nil {
		return nil, err
	}
	if err := answers(ctx, m); err != nil {
		return nil, err
	}
	have, err := w.indexes(ctx, ref)
	if err != nil {
		return nil, err
	}
	theirs, err := w.indexes(ctx, m)
	if err != nil {
		return nil, err
	}
	var refused error
	for _, name := range slices.Sorted(maps.Keys(have)) {
		found, err := w.prepare(ctx, name, ref, m)
		if err != nil {
			err = fmt.Errorf("give a replica the schema of the index %q: %w", name, err)
			if schemaRefused(err, m.Addr) {
				refused = cmp.Or(refused, err)
				continue
			}
			return left, err
		}
		if !found {
			continue // it was deleted meanwhile
		}
		some, err := w.repairIndex(ctx, name, ref, m, how)
		for _, id := range some {
			left = append(left, hints.Entry{Index: name, ID: id})
		}
		if err != nil {
			return left, fmt.Errorf("compare the index %q: %w", name, err)
		}
	}
	for name := range theirs {
		if _, ok := have[name]; ok || own == nil {
			continue
		}
		if w.background {
			n, err := w.docs(ctx, name, m)
			if err == nil && n > 0 {
				err = &suspectError{primary: ref.Addr, member: m.Addr, index: name, other: n}
			}
			if err != nil {
				return left, err
			}
			continue
		}
		if err := w.dropLeft(ctx, own, name, m); err != nil {
			return left, err
		}
	}
	return left, refused
}

// dropLeft deletes an index that no primary has. It looks twice, for one that is just being made has not reached all of them yet.
func (w *work) dropLeft(ctx context.Context, own *survey, name string, m *members.Member) error {
	if !own.whole || own.first[name] != nil {
		return nil
	}
	if err := pause(ctx, dropLook); err != nil {
		return err
	}
	again, err := w.survey(ctx)
	if err != nil {
		return err
	}
	if !again.whole || again.first[name] != nil {
		return nil
	}
	if !w.forced {
		// Is it that somebody has deleted it, or that a primary has lost it?
		for _, g := range w.st.Groups {
			primary := g.Members[0]
			if err := w.r.identify(ctx, primary); err != nil {
				return err
			}
			if w.r.suspect(primary.Addr) {
				return fmt.Errorf("delete the index %q that no primary has: %s: %w", name, primary.Addr, errSuspect)
			}
		}
	}
	n, err := w.docs(ctx, name, m)
	if err != nil {
		return err
	}
	if err := w.dropIndex(ctx, name, m); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.removed += n
	w.r.count.removed.Add(n)
	return nil
}

// repairIndex makes one index of a member equal to that of another, and returns the documents that it could not.
func (w *work) repairIndex(ctx context.Context, name string, ref, m *members.Member, how manner) (left []string, err error) {
	for range repairPasses {
		c, some, err := w.reconcile(ctx, name, ref, []*members.Member{m}, nil, how)
		if err != nil {
			return nil, err
		}
		if left = some; c.ranges == 0 {
			return nil, nil
		}
	}
	return left, nil
}

// untilRepair is the time until the next comparison in the background, ten percent more or less.
func (r *Runner) untilRepair() time.Duration {
	every := r.o.RepairEvery
	if every <= 0 {
		return 0
	}
	return every - every/10 + rand.N(every/5+1)
}

// inBackground compares the members of all groups, and makes what differs equal. It ends when a job is there to be done. The lease is
// taken, and is given back.
func (r *Runner) inBackground(ctx context.Context) {
	bctx, end := context.WithCancelCause(ctx)
	rest := func(end context.CancelCauseFunc) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rest = end
	}
	rest(end)
	defer rest(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.beat(bctx, r.yield, end)
	}()
	if err := r.compareAll(bctx); err != nil && bctx.Err() == nil {
		r.log.Info("compare members in the background", "error", err)
	}
	whole := bctx.Err() == nil
	end(nil)
	<-done
	if errors.Is(context.Cause(bctx), errLeaseLost) {
		return
	}
	r.lastWord(func(ctx context.Context) error {
		_, err := r.ledger.update(ctx, func(b *book) error {
			if b.Lease == nil || b.Lease.Owner != r.id {
				return errAsItIs
			}
			b.Lease = nil
			if whole {
				b.Compared = time.Now().UnixMilli()
			}
			return nil
		})
		return err
	})
}

// yield keeps the lease, and tells whether a job is waiting.
func (r *Runner) yield(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	waiting := false
	_, err := r.ledger.update(ctx, func(b *book) error {
		if b.Lease == nil || b.Lease.Owner != r.id {
			return errLeaseLost
		}
		b.Lease.Beat++
		a := b.active()
		waiting = a != nil && a.State == Running
		return nil
	})
	if err == nil && waiting {
		err = errYield
	}
	return err
}

// compareAll compares the members of all groups.
func (r *Runner) compareAll(ctx context.Context) error {
	st := r.c.State()
	if st == nil {
		return members.ErrNotReady
	}
	if err := r.distinct(ctx); err != nil {
		return err
	}
	w := r.work(st)
	w.background = true
	own, err := w.survey(ctx)
	if err != nil {
		return err
	}
	if err := r.heed(ctx); err != nil {
		return err
	}
	var errs []error
	for _, g := range st.Groups {
		if _, unsure := r.unsettled(g); unsure {
			continue
		}
		if r.others.refused(g.Members[0].Addr) {
			continue // another one knows which documents the primary refuses, and is to leave alone
		}
		if r.suspect(g.Members[0].Addr) {
			// It may have lost its documents: it is made equal to another, never the others to it.
			if err := w.refill(ctx, g); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				r.count.held.Add(1)
				errs = append(errs, fmt.Errorf("compare %s: %w", g.Members[0].Addr, err))
				continue
			}
		}
		for _, m := range g.Members[1:] {
			left, err := w.repairMember(ctx, own, g.Members[0], m, seen)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil && len(left) == 0 {
				r.trust(m.Addr)
			}
			if suspect, ok := errors.AsType[*suspectError](err); ok {
				r.count.held.Add(1)
				r.log.Warn("a primary looks as if it had lost documents", "error", suspect)
			} else if err != nil && !errors.Is(err, errBehind) {
				errs = append(errs, fmt.Errorf("compare %s with %s: %w", m.Addr, g.Members[0].Addr, err))
			}
		}
	}
	return errors.Join(errs...)
}

// errNoReference says that all members of a group may have lost their documents.
var errNoReference = errors.New("every member of the group may have lost them; weft topology accept says which of them counts")

// refill makes the primary of a group equal to a member that is not suspect.
func (w *work) refill(ctx context.Context, group *members.Group) error {
	primary := group.Members[0]
	for _, m := range group.Members[1:] {
		if w.r.suspect(m.Addr) {
			continue
		}
		left, err := w.repairMember(ctx, nil, m, primary, seen)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return errUnequal
		}
		w.r.trust(primary.Addr)
		return nil
	}
	return errNoReference
}
