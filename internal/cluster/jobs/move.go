package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

const (
	comparePass  = 4               // comparisons of two groups by digests before ids that were seen equal one by one have to do
	hintPasses   = 3               // comparisons of all groups because members had missed something
	placeTime    = 2 * time.Minute // of a call of Place, which waits for the writes under way
	mostUnsound  = 20              // rounds of these in which members that documents are taken from had missed something
	restartPause = 20 * time.Millisecond
)

// Errors of a step of a rebalance.
var (
	// errMoved says that the shard map is not what the step goes by any more: it begins anew.
	errMoved = errors.New("the shard map has changed meanwhile")
	// errUnequal says that documents could not be made equal, since others keep writing them.
	errUnequal = errors.New("documents keep changing")
	// errSuspect says that a member may have lost its documents meanwhile.
	errSuspect = errors.New("a member may have lost its documents")
	// errAllSuspect says so of all members of a group that documents are to be copied from.
	errAllSuspect = errors.New("every member of the group may have lost its documents; cancel the move, and those that were copied are given back")
)

// rebalance does what the shard map and the documents say is to be done, step by step, until it is done. Whatever ends it at any place,
// it can be begun again, here or elsewhere.
func (j *running) rebalance(ctx context.Context) error {
	for try := 1; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		st, err := j.r.refresh(ctx)
		done := false
		if err == nil {
			done, err = j.take(ctx, st)
		}
		_, isFailure := errors.AsType[*failure](err)
		switch {
		case err == nil && done:
			j.waits(ctx, nil)
			return nil
		case err == nil:
			try = 1
			j.waits(ctx, nil)
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isFailure, errors.Is(err, errCancelled), errors.Is(err, errLeaseLost), errors.Is(err, errPaused):
			return err
		case errors.Is(err, errAsked):
			try = 1
			continue
		}
		wait := backoff(try, leastBackoff, mostBackoff)
		if _, away := errors.AsType[*awayError](err); away {
			wait = min(wait, awayBackoff)
		}
		if try++; members.IsStale(err) || errors.Is(err, errMoved) || errors.Is(err, shardmap.ErrRefused) {
			wait = min(wait, restartPause*time.Duration(try)) // another map is in force by now
		}
		if try > 2 {
			j.waits(ctx, err)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// refresh reads the shard map where it is agreed on. What is concluded from it may end a job, so an older one will not do.
func (r *Runner) refresh(ctx context.Context) (*members.State, error) {
	var epoch uint64
	_, err := r.c.Change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		epoch = m.Epoch
		return nil, errAsItIs
	})
	if !errors.Is(err, errAsItIs) {
		return nil, cmp.Or(err, errMoved)
	}
	if st := r.c.State(); st != nil && st.Epoch() >= epoch {
		return st, nil
	}
	return nil, members.ErrNotReady
}

// take does one step. done says that there is none left.
func (j *running) take(caller context.Context, st *members.State) (done bool, err error) {
	ctx, end := j.step(caller)
	defer end()
	defer func() {
		if err != nil && caller.Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	m, p := st.Map, j.snapshot()
	switch {
	case m.Move != nil && m.Move.Job != j.id && m.Move.Job != p.Adopts:
		return false, &failure{fmt.Sprintf("the job %s moves documents to %d groups", m.Move.Job, m.Move.To)}
	case m.Move != nil && !m.CutOver() && m.Move.To != m.Placed:
		if j.asked() {
			return false, j.abort(caller, st) // not by ctx, which is of those that are asked to end
		}
		if m.Move.Phase == shardmap.Preparing {
			return false, j.preparing(ctx, st)
		}
		return false, j.copying(ctx, st)
	case m.Move != nil && m.Move.Phase == shardmap.Switching:
		return false, j.switching(caller, st)
	case m.Move != nil:
		return false, j.cleaning(caller, st)
	case p.Stage == stageMove && p.Refused != "" && m.Placed == p.From:
		return false, &failure{p.Refused}
	case j.asked() && m.Placed == p.From && (p.From != p.To || p.Stage != stageMove), p.Stage == stageMove && p.From == p.To:
		return false, errCancelled
	case p.Stage == stageMove && m.Placed == p.To:
		return true, nil
	case m.Placed != p.From && m.Placed != p.To:
		return false, &failure{fmt.Sprintf("documents are placed over %d groups by now, not over %d", m.Placed, p.From)}
	case p.Stage != stageMove:
		if err := j.sweep(ctx, st); err != nil {
			return false, err
		}
		if m.Placed == p.To {
			return true, nil
		}
	}
	return false, j.begin(ctx, st)
}

// change changes the map, and tells that the writes of whoever went by an older one are fenced off.
func (j *running) change(ctx context.Context, fn func(m *shardmap.Map) (*shardmap.Map, error)) (*members.State, error) {
	var epoch uint64
	st, err := j.r.c.Change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		next, err := fn(m)
		if err == nil {
			epoch = next.Epoch
		}
		return next, err
	})
	if err != nil {
		return nil, err
	}
	if st.Epoch() != epoch {
		return nil, errMoved
	}
	j.fenced = epoch
	return st, nil
}

// fence sees to it that no write is under way any more that this job, or another that did it before, has begun and not seen the end of:
// the map gets a new epoch, with nothing else changed, and all members take it. Where one is away nothing is begun: each call of it would
// take its whole time.
func (j *running) fence(ctx context.Context, st *members.State) (*members.State, error) {
	// Before roll, which a second name of a member does not answer either.
	if err := j.r.distinct(ctx); err != nil {
		return nil, err
	}
	if err := roll(ctx, st); err != nil {
		return nil, err
	}
	if j.fenced != st.Epoch() {
		was := st.Map
		next, err := j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
			if m.Epoch != was.Epoch {
				return nil, errMoved
			}
			next := m.Clone()
			next.Epoch++
			if next.Move != nil {
				next.Move.Job = j.id
			}
			return next, nil
		})
		if err != nil {
			return nil, err
		}
		st = next
	}
	return st, placeAll(ctx, st)
}

// placeAll gives the map to every member. When it returns nil, no write that goes by an older one is under way anywhere, and no read that
// does looks at anything that happens from now on.
func placeAll(ctx context.Context, st *members.State) error {
	b, err := st.Map.Encode()
	if err != nil {
		return fmt.Errorf("write shard map: %w", err)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, group := range st.Groups {
		for _, m := range group.Members {
			g.Go(func() error {
				_, err := ask(gctx, m, "Place", placeTime, nil, func(ctx context.Context) (*leaf.PlaceReply, error) {
					return m.Leaf.Place(ctx, &leaf.PlaceRequest{Epoch: st.Epoch(), Map: b})
				})
				if hasCode(err, api.MethodNotAllowed) {
					return nil // it keeps no map
				}
				return err
			})
		}
	}
	return g.Wait()
}

// settle takes over from some work whether a write may be under way yet.
func (j *running) settle(w *work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.uncertain {
		j.fenced = 0
	}
}

// stage writes down that a part of the job begins.
func (j *running) stage(ctx context.Context, s stage) error {
	j.note(func(p *progress) {
		if p.Stage != s {
			p.Stage, p.Cursor = s, cursor{}
		}
	})
	return j.saved(ctx)
}

// saved is save, and says when the job is to be given up.
func (j *running) saved(ctx context.Context) error {
	if err := j.save(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// sweep puts documents in order that stand where they do not belong, so that a move hides none that were to be seen before.
func (j *running) sweep(ctx context.Context, st *members.State) error {
	if err := j.stage(ctx, stageSweep); err != nil {
		return err
	}
	if j.fresh {
		j.fresh, j.fenced = false, st.Epoch()
	}
	st, err := j.fence(ctx, st)
	if err != nil {
		return err
	}
	w := j.r.work(st)
	defer j.settle(w)
	if err := j.heedAll(ctx, st); err != nil {
		return err
	}
	if err := j.r.oneSided(st.Groups); err != nil {
		return err
	}
	if err := w.mend(ctx); err != nil {
		return err
	}
	return j.clean(ctx, w, true)
}

// heedAll hears what others keep, and waits for them where a group has no member that can be taken at its word.
func (j *running) heedAll(ctx context.Context, st *members.State) error {
	if err := j.r.heed(ctx); err != nil {
		return err
	}
	return j.elsewhere(st.Groups)
}

// begin begins the move.
func (j *running) begin(ctx context.Context, st *members.State) error {
	if err := j.stage(ctx, stageMove); err != nil {
		return err
	}
	p := j.snapshot()
	_, err := j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		if m.Epoch != st.Epoch() || m.Placed != p.From {
			return nil, errMoved
		}
		return m.BeginMove(p.To, j.id)
	})
	return err
}

// preparing lets writers write to the new owners, too, once every member knows that there is a move: while one does not, whoever goes by the
// map of before may look at it as a whole, and see there again what the old owners have.
func (j *running) preparing(ctx context.Context, st *members.State) error {
	st, err := j.fence(ctx, st)
	if err != nil {
		return err
	}
	_, err = j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		if m.Epoch != st.Epoch() {
			return nil, errMoved
		}
		return m.BeginCopying()
	})
	return err
}

// abort gives the move up: what was copied is cleaned away then.
func (j *running) abort(ctx context.Context, st *members.State) error {
	_, err := j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		if m.Epoch != st.Epoch() {
			return nil, errMoved
		}
		return m.AbortMove()
	})
	return err
}

// copying copies what is to be moved, compares all of it, and cuts over.
func (j *running) copying(ctx context.Context, st *members.State) error {
	st, err := j.fence(ctx, st)
	if err != nil {
		return err
	}
	w := j.r.work(st)
	defer j.settle(w)
	if _, err := j.sources(ctx, w); err != nil {
		return err
	}
	if err := w.mend(ctx); err != nil {
		return err
	}
	suspects := w.suspects()
	for _, g := range st.Groups[:st.Map.Placed] {
		if j.r.lost(g) {
			return fmt.Errorf("copy from group %d: %w", g.Ordinal, errAllSuspect)
		}
	}
	if err := j.copy(ctx, w); err != nil {
		return err
	}
	j.waits(ctx, nil)
	for pass := 1; ; pass++ {
		if err := j.r.replayAll(ctx, st); err != nil {
			return err
		}
		sound, err := j.verifySound(ctx, w)
		if err != nil {
			return err
		}
		if sound && (pass == hintPasses || !j.r.missing(st)) {
			break
		}
		if pass == hintPasses {
			if j.unsound++; j.unsound >= mostUnsound {
				j.r.log.Warn("a move goes on though members keep missing writes that another coordinator keeps for them", "job", j.id)
				break
			}
			return errBehind
		}
	}
	// What was compared was so only if nobody has lost it meanwhile.
	if err := j.r.identify(ctx, everyone(st)...); err != nil {
		return err
	}
	if !slices.Equal(suspects, w.suspects()) {
		return errSuspect
	}
	for _, g := range st.Groups[min(st.Map.Placed, st.Map.Move.To):st.Map.Move.To] {
		for _, m := range g.Members {
			j.r.trust(m.Addr) // it was to have nothing but what it was given
		}
	}
	if err := j.saved(ctx); err != nil {
		return err
	}
	_, err = j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		if m.Epoch != st.Epoch() {
			return nil, errMoved
		}
		return m.Cutover()
	})
	return err
}

// truth is the member of a group whose documents are taken: the first that has missed nothing, as far as it is known. What others keep for
// it counts less than what is kept here.
func (w *work) truth(group int) *members.Member { return w.r.mostTrusted(w.st.Groups[group].Members) }

// verifySound is verify, and tells whether those whose documents were moved had missed nothing: a write that was acknowledged meanwhile, and that
// such a member did not get, may have been undone at its new owners. What another coordinator keeps is heard of a moment later.
func (j *running) verifySound(ctx context.Context, w *work) (bool, error) {
	began := time.Now()
	from, err := j.sources(ctx, w)
	if err != nil {
		return false, err
	}
	sure := slices.DeleteFunc(slices.Clone(from), func(m *members.Member) bool { return j.r.doubts(m.Addr) > lately })
	if err := j.verify(ctx, w, from); err != nil {
		return false, err
	}
	if j.r.o.Store != nil {
		if err := pause(ctx, missedWait); err != nil {
			return false, err
		}
	}
	if err := j.r.heed(ctx); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(sure, func(m *members.Member) bool { return j.r.missedSince(m.Addr, began) }), nil
}

// truths are those of the first groups.
func (w *work) truths(groups int) []*members.Member {
	out := make([]*members.Member, groups)
	for g := range out {
		out[g] = w.truth(g)
	}
	return out
}

// sources are the members whose documents are moved, as of what others know now.
func (j *running) sources(ctx context.Context, w *work) ([]*members.Member, error) {
	if err := j.r.heed(ctx); err != nil {
		return nil, err
	}
	groups := w.st.Groups[:w.st.Map.Placed]
	if err := errors.Join(j.elsewhere(groups), j.r.oneSided(groups)); err != nil {
		return nil, err
	}
	return w.truths(w.st.Map.Placed), nil
}

// names are the indexes that any of some members have, sorted.
func (w *work) names(ctx context.Context, of ...*members.Member) ([]string, error) {
	lists := make([]map[string]string, len(of))
	g, gctx := errgroup.WithContext(ctx)
	for i, m := range of {
		g.Go(func() (err error) {
			lists[i], err = w.indexes(gctx, m)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, l := range lists {
		for name := range l {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// everyone are the members of all groups.
func everyone(st *members.State) []*members.Member {
	var out []*members.Member
	for _, g := range st.Groups {
		out = append(out, g.Members...)
	}
	return out
}

// copy copies the documents that another group will own to all members of it.
func (j *running) copy(ctx context.Context, w *work) error {
	from, err := placement.New(w.st.Map.Visible())
	if err != nil {
		return err
	}
	to, err := placement.New(spec(w.st.Map, w.st.Map.Move.To))
	if err != nil {
		return err
	}
	sources := w.truths(w.st.Map.Placed)
	names, err := w.names(ctx, sources...)
	if err != nil {
		return err
	}
	if at := j.snapshot().Cursor; at.Phase != string(shardmap.Copying) {
		var total uint64
		for _, name := range names {
			for _, m := range sources {
				n, err := w.docs(ctx, name, m)
				if err != nil {
					return err
				}
				total += n
			}
		}
		j.note(func(p *progress) {
			p.Cursor = cursor{Phase: string(shardmap.Copying)}
			p.Total, p.Done, p.Moved, p.Missing = total, 0, 0, 0
		})
	}
	if j.snapshot().Cursor.Ended {
		return nil
	}
	for _, name := range names {
		for g, m := range sources {
			if at := j.snapshot().Cursor; name < at.Index || name == at.Index && g < at.Group {
				continue
			}
			if err := j.copyFrom(ctx, w, name, g, m, from, to); err != nil {
				return fmt.Errorf("copy documents of the index %q from group %d: %w", name, g, err)
			}
		}
	}
	j.note(func(p *progress) { p.Cursor.Ended = true })
	return nil
}

// spec places by the rule of a map over so many groups.
func spec(m *shardmap.Map, groups int) placement.Spec {
	s := m.Visible()
	s.Shards = groups
	return s
}

// copyFrom copies the documents of one index that leave one group.
func (j *running) copyFrom(ctx context.Context, w *work, index string, group int, m *members.Member, from, to *placement.Placement) error {
	after := ""
	if at := j.snapshot().Cursor; at.Index == index && at.Group == group {
		after = at.After
	}
	for {
		l, err := w.list(ctx, index, m, after, j.r.tune.list, func(id string) bool {
			h := placement.Hash(id)
			return from.ShardOfHash(h) == group && to.ShardOfHash(h) != group
		})
		if err != nil {
			return err
		}
		done := j.snapshot().Done
		for at := 0; at < len(l.ids); {
			end := min(at+4*j.r.tune.batch, len(l.ids))
			byGroup := map[int][]string{}
			for _, id := range l.ids[at:end] {
				o := to.Shard(id)
				byGroup[o] = append(byGroup[o], id)
			}
			gone := w.tally.gone.Load()
			g, gctx := errgroup.WithContext(ctx)
			for o, ids := range byGroup {
				g.Go(func() error {
					// What is left over is seen again when everything is compared.
					_, err := w.equalize(gctx, index, m, w.st.Groups[o].Members, ids, unseen)
					return err
				})
			}
			if err := g.Wait(); err != nil {
				return err
			}
			missing := w.tally.gone.Load() - gone
			j.note(func(p *progress) {
				p.Error = ""
				p.Missing += missing
				p.Moved += uint64(end-at) - missing
				p.Done = done + l.seen[end-1]
				p.Cursor.Index, p.Cursor.Group, p.Cursor.After = index, group, l.ids[end-1]
			})
			at = end
		}
		j.note(func(p *progress) {
			p.Error = ""
			p.Done = done + l.all
			if l.end {
				p.Cursor.Index, p.Cursor.Group, p.Cursor.After = index, group+1, ""
			}
		})
		if l.end {
			return nil
		}
		after = l.ids[len(l.ids)-1]
	}
}

// moves tells whether a placement over one number of groups may give documents of a group to another one over another number. Rings and
// rendezvous take documents only for groups that are added, and give away only those of groups that go.
func moves(rule placement.Rule, from, to, source, dest int) bool {
	switch {
	case source == dest:
		return false
	case rule == placement.Modulo:
		return true
	case to > from:
		return dest >= from
	}
	return source >= to
}

// verify compares all that is moved between each two groups, as members from have it, and makes it equal where it is not: deletions and changes that passed by
// while it was copied. When it returns nil, every document was seen equal at every member that will own it, at some moment since
// all writers write to both groups.
func (j *running) verify(ctx context.Context, w *work, from []*members.Member) error {
	m := w.st.Map
	to := m.Move.To
	var of []*members.Member
	for _, g := range w.st.Groups[:max(m.Placed, to)] {
		of = append(of, g.Members...)
	}
	names, err := w.names(ctx, of...)
	if err != nil {
		return err
	}
	for _, name := range names {
		for source := range m.Placed {
			for dest := range to {
				if !moves(m.Rule, m.Placed, to, source, dest) {
					continue
				}
				if err := j.verifyPair(ctx, w, name, from[source], source, dest); err != nil {
					return fmt.Errorf("compare documents of the index %q that go from group %d to group %d: %w", name, source, dest, err)
				}
			}
		}
	}
	return nil
}

func (j *running) verifyPair(ctx context.Context, w *work, index string, from *members.Member, source, dest int) error {
	owned := []placement.Share{{Spec: w.st.Map.Visible(), Ordinal: source}, {Spec: spec(w.st.Map, w.st.Map.Move.To), Ordinal: dest}}
	for range comparePass {
		c, left, err := w.reconcile(ctx, index, from, w.st.Groups[dest].Members, owned, unseen)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return j.unequal(w, index, left)
		}
		if c.ranges == 0 {
			return nil
		}
	}
	return nil // writers go on, and everything that differed was seen equal after that
}

// refusedFor counts those of some documents that a member does not take for a reason that will stay, and returns one such.
func (w *work) refusedFor(index string, ids []string) (n int, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if err := w.refused[hints.Entry{Index: index, ID: id}]; never(err) {
			n++
			why = fmt.Errorf("%q: %w", api.Clip(id), err)
		}
	}
	return n, why
}

// never tells whether a member refuses something for a reason that will stay.
func never(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && leaf.ClassOf(p) == leaf.Never
}

// unequal is the error of documents that could not be made equal. Where a member does not take one for a reason that will stay, the move
// is given up.
func (j *running) unequal(w *work, index string, left []string) error {
	refused, why := w.refusedFor(index, left)
	if refused == 0 {
		return errUnequal
	}
	j.note(func(p *progress) {
		p.Deferred = uint64(refused)
		p.Refused = "the move was given up, for a shard does not take a document: " + api.ClipDetail(why.Error())
	})
	j.ask()
	return errAsked
}

// switching lets writers leave the old owners out, once every member knows that readers look at the new ones: while one does not, whoever
// still goes by the map of before may read from it.
func (j *running) switching(ctx context.Context, st *members.State) error {
	st, err := j.fence(ctx, st)
	if err != nil {
		return err
	}
	// While the old owners have the writes that a new one has missed, they can be had from there. What it does not take it never will, and is aside.
	if err := j.r.replayAll(ctx, st); err != nil && !never(err) {
		return err
	}
	if err := j.r.heed(ctx); err != nil {
		return err
	}
	if err := j.elsewhere(st.Groups[:st.Map.Move.To]); err != nil {
		return err
	}
	if err := j.saved(ctx); err != nil {
		return err
	}
	_, err = j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		if m.Epoch != st.Epoch() {
			return nil, errMoved
		}
		return m.BeginCleaning()
	})
	return err
}

// cleaning deletes what stands where readers and writers do not look any more, and ends the move.
func (j *running) cleaning(ctx context.Context, st *members.State) error {
	st, err := j.fence(ctx, st)
	if err != nil {
		return err
	}
	w := j.r.work(st)
	if err := j.heedAll(ctx, st); err != nil {
		return err
	}
	if err := w.mend(ctx); err != nil {
		return err
	}
	if err := j.clean(ctx, w, false); err != nil {
		return err
	}
	if err := j.saved(ctx); err != nil {
		return err
	}
	last, err := j.change(ctx, func(m *shardmap.Map) (*shardmap.Map, error) {
		if m.Epoch != st.Epoch() {
			return nil, errMoved
		}
		return m.EndMove()
	})
	if err != nil {
		return err
	}
	if err := placeAll(ctx, last); err != nil {
		j.r.log.Info("a member has not taken the map after the move; it is given it later", "error", err)
	}
	return nil
}

// unmoved counts the documents that a move has not copied yet, as far as their members answer.
func (r *Runner) unmoved(ctx context.Context, rec *record) uint64 {
	st := r.c.State()
	if st == nil || rec.Kind != Rebalance || rec.From == rec.To || st.Map.CutOver() || st.Map.Placed != rec.From || rec.To > len(st.Groups) {
		return 0
	}
	w := r.work(st)
	from, to := st.Map.Visible(), spec(st.Map, rec.To)
	var n uint64
	for g := range st.Map.Placed {
		m := w.truth(g)
		names, err := w.indexes(ctx, m)
		if err != nil {
			r.log.Debug("count documents to be moved", "error", err)
			continue
		}
		for name := range names {
			owned := []placement.Share{{Spec: from, Ordinal: g}}
			all, err := w.docs(ctx, name, m, owned...)
			if err != nil {
				continue
			}
			stay := uint64(0)
			if g < rec.To {
				if stay, err = w.docs(ctx, name, m, append(owned, placement.Share{Spec: to, Ordinal: g})...); err != nil {
					continue
				}
			}
			n += all - min(stay, all)
		}
	}
	return n - min(n, rec.Moved)
}
