package jobs

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// clean deletes every document that stands on a group that readers do not look for it on, at every member. Its owner is asked first, and all
// members of that have to answer, with the same state of the document:
//
//   - while a move is cleaned away, the owner is right. It was seen to have every document before the cutover, or, where a move is given
//     up, never ceased to own it; what it does not have was deleted there since, and writers write nowhere else: every member refuses who
//     goes by a map of before;
//     Where all members of the owner may have lost their documents, it is as with adopt;
//   - with adopt, nobody knows where the document comes from. If the owner does not have it, it gets it before it is deleted elsewhere.
func (j *running) clean(ctx context.Context, w *work, adopt bool) error {
	phase := string(shardmap.Cleaning)
	if adopt {
		phase = string(stageSweep)
	}
	if j.snapshot().Cursor.Phase != phase {
		j.note(func(p *progress) { p.Cursor = cursor{Phase: phase} })
	}
	count := adopt && j.snapshot().From == j.snapshot().To
	for {
		if adopt {
			j.note(func(p *progress) { p.Deferred = 0 })
		}
		found, err := j.cleanOnce(ctx, w, adopt, count)
		if err != nil {
			return err
		}
		if p := j.snapshot(); adopt && p.Deferred > 0 {
			return &failure{fmt.Sprintf("%d documents stay on a group that does not own them: %s", p.Deferred, p.Why)}
		}
		if found == 0 {
			return nil
		}
		j.note(func(p *progress) { p.Cursor = cursor{Phase: phase} }) // once more, to see that nothing is left
	}
}

// cleanOnce goes through all members from the cursor on. It returns how many documents stood where they do not belong, and 1 at least if
// it did not begin at the first.
func (j *running) cleanOnce(ctx context.Context, w *work, adopt, count bool) (found int, err error) {
	names, err := w.names(ctx, everyone(w.st)...)
	if err != nil {
		return 0, err
	}
	if at := j.snapshot().Cursor; at.Index != "" {
		found = 1
	}
	for _, name := range names {
		for g, group := range w.st.Groups {
			for k := range group.Members {
				at := j.snapshot().Cursor
				if name < at.Index || name == at.Index && (g < at.Group || g == at.Group && k < at.Member) {
					continue
				}
				after := ""
				if name == at.Index && g == at.Group && k == at.Member {
					after = at.After
				}
				n, err := j.cleanMember(ctx, w, name, g, k, after, adopt, count)
				if err != nil {
					return 0, fmt.Errorf("put documents of the index %q in order that group %d does not own: %w", name, g, err)
				}
				found += n
			}
		}
	}
	return found, nil
}

func (j *running) cleanMember(ctx context.Context, w *work, index string, group, member int, after string, adopt, count bool) (found int, err error) {
	m := w.st.Groups[group].Members[member]
	visible := w.st.Visible()
	for {
		l, err := w.list(ctx, index, m, after, j.r.tune.list, func(id string) bool { return visible.Shard(id) != group })
		if err != nil {
			return 0, err
		}
		done := j.snapshot().Done
		for at := 0; at < len(l.ids); {
			end := min(at+j.r.tune.batch, len(l.ids))
			left, err := w.resolve(ctx, index, w.st.Groups[group], l.ids[at:end], adopt)
			if err != nil {
				return 0, err
			}
			refused, why := w.refusedFor(index, left)
			if len(left) > refused || refused > 0 && !adopt {
				return 0, j.stuck(w, index, left)
			}
			j.note(func(p *progress) {
				p.Error = ""
				if count {
					p.Moved += uint64(end - at - refused)
				}
				if refused > 0 {
					p.Deferred += uint64(refused)
					p.Why = api.ClipDetail(why.Error())
				}
				p.Cursor.Index, p.Cursor.Group, p.Cursor.Member, p.Cursor.After = index, group, member, l.ids[end-1]
			})
			at = end
		}
		found += len(l.ids)
		j.note(func(p *progress) {
			p.Error = ""
			if count && member == 0 {
				p.Done = done + l.all
				p.Total = max(p.Total, p.Done)
			}
			if l.end {
				p.Cursor.Index, p.Cursor.Group, p.Cursor.Member, p.Cursor.After = index, group, member+1, ""
			}
		})
		if l.end {
			return found, nil
		}
		after = l.ids[len(l.ids)-1]
	}
}

// stuck is the error of documents that could not be put in order.
func (j *running) stuck(w *work, index string, left []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range left {
		if err := w.refused[hints.Entry{Index: index, ID: id}]; err != nil {
			return fmt.Errorf("%d documents stay where they are: %w", len(left), err)
		}
	}
	return errUnequal
}

// resolve deletes documents at all members of a group that does not own them, see clean. It returns those that it could not.
func (w *work) resolve(ctx context.Context, index string, at *members.Group, ids []string, adopt bool) (left []string, err error) {
	byOwner := map[int][]string{}
	for _, id := range ids {
		o := w.st.Visible().Shard(id)
		byOwner[o] = append(byOwner[o], id)
	}
	parts := make([][]string, len(w.st.Groups))
	g, gctx := errgroup.WithContext(ctx)
	for o, own := range byOwner {
		g.Go(func() (err error) {
			parts[o], err = w.resolveTo(gctx, index, at, w.st.Groups[o], own, adopt)
			return err
		})
	}
	err = g.Wait()
	return slices.Concat(parts...), err
}

// found is where a document stands.
type found struct {
	id    string
	here  []leaf.Sum // at the members that do not own it
	owner []leaf.Sum
}

func (w *work) resolveTo(ctx context.Context, index string, at, owner *members.Group, ids []string, adopt bool) ([]string, error) {
	all := slices.Concat(at.Members, owner.Members)
	known := false // the members of the owner have said who they are
	lost := false  // all of them may have lost their documents
	for range equalRounds {
		if err := w.r.pace.wait(ctx); err != nil {
			return nil, err
		}
		sums, by, err := w.fenced(ctx, index, all, ids)
		if err != nil {
			return nil, err
		}
		var uneven []string
		homeless := make([][]differing, len(at.Members)) // by the member that has it
		var gone []found
		var pending []string
		for i, id := range ids {
			f := found{id: id}
			for k := range all {
				if k < len(at.Members) {
					f.here = append(f.here, sums[k][i])
				} else {
					f.owner = append(f.owner, sums[k][i])
				}
			}
			first := slices.IndexFunc(f.here, func(s leaf.Sum) bool { return s != leaf.Sum{} })
			if first < 0 {
				continue
			}
			pending = append(pending, id)
			none := !slices.ContainsFunc(f.owner, func(s leaf.Sum) bool { return s != leaf.Sum{} })
			switch {
			case lost && slices.Contains(f.owner, leaf.Sum{}), adopt && none:
				d := differing{id: id, want: f.here[first], have: slices.Clone(f.owner)}
				for k := range d.have {
					if d.have[k] != (leaf.Sum{}) {
						d.have[k] = d.want // what is there stays
					}
				}
				homeless[first] = append(homeless[first], d)
			case slices.ContainsFunc(f.owner, func(s leaf.Sum) bool { return s != f.owner[0] }):
				uneven = append(uneven, id)
			default:
				gone = append(gone, f)
			}
		}
		if len(pending) == 0 {
			return nil, nil
		}
		ids = pending
		if !known && (len(uneven) > 0 || slices.ContainsFunc(gone, func(f found) bool { return f.owner[0] == leaf.Sum{} })) {
			// Is it that somebody has deleted them, or that a member has lost them?
			if err := w.r.identify(ctx, owner.Members...); err != nil {
				return nil, err
			}
			known = true
			if lost = w.r.lost(owner); lost {
				continue
			}
			if slices.ContainsFunc(owner.Members, func(m *members.Member) bool { return w.r.suspect(m.Addr) }) {
				return nil, errSuspect // it is given what it lacks first
			}
		}
		if err := w.deleteAll(ctx, index, at, gone, by); err != nil {
			return nil, err
		}
		if len(uneven) > 0 {
			right := map[*members.Member][]string{} // who is right may be another one where a member refuses a document
			for _, id := range uneven {
				truth := w.r.truthOf(owner, hints.Entry{Index: index, ID: id})
				right[truth] = append(right[truth], id)
			}
			for truth, ids := range right {
				others := slices.DeleteFunc(slices.Clone(owner.Members), func(m *members.Member) bool { return m == truth })
				if _, err := w.equalize(ctx, index, truth, others, ids, seen); err != nil {
					return nil, err
				}
			}
		}
		for k, docs := range homeless {
			if _, err := w.give(ctx, index, at.Members[k], owner.Members, docs, by); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// deleteAll deletes documents at the members that do not own them, if they still have what they were seen to have.
func (w *work) deleteAll(ctx context.Context, index string, at *members.Group, gone []found, by fences) error {
	g, gctx := errgroup.WithContext(ctx)
	for k, m := range at.Members {
		g.Go(func() error {
			var items []leaf.SyncItem
			for i := range gone {
				if gone[i].here[k] != (leaf.Sum{}) {
					items = append(items, leaf.SyncItem{ID: gone[i].id, Expect: gone[i].here[k]})
				}
			}
			_, err := w.sync(gctx, index, m, items, by)
			return err
		})
	}
	return g.Wait()
}
