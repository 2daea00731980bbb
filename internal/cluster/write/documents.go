package write

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema/jsondoc"
)

// freeBody is the length of a document up to which taking it apart is not charged.
const freeBody = 64 << 10

// Index is leaf.Leaf.Index: it writes one document to every member of its group. The reply is OK only if all have it.
func (w *Writer) Index(caller context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	if most := w.o.Limits.DocumentBytes; int64(len(req.Body)) > most {
		return nil, api.NewProblem(api.DocumentTooLarge, fmt.Sprintf("the body is longer than %d bytes", most)).Within(most)
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(req.Body) > freeBody {
		place, err := w.charge(ctx, 4*int64(len(req.Body)))
		if err != nil {
			return nil, err
		}
		defer place.Release()
	}
	one := &writing{w: w, ix: w.schemas.of(w, name), body: req.Body, existing: req.Existing, watch: newStopwatch()}
	return byState(ctx, w, func(st *members.State) (*leaf.IndexReply, error) { return one.run(ctx, st) })
}

// writing is the write of one document.
type writing struct {
	w    *Writer
	ix   *index
	body []byte
	// existing says that the index has to be there.
	existing bool
	watch    *stopwatch

	fresh    bool // the schema was asked for since the write began
	remade   int  // how often the index was deleted under it
	ty       *typing
	key      string
	mark     leaf.Mark // of the write as it is under way: a repetition has another
	sum      leaf.Sum
	inferred []api.InferredField
}

func (d *writing) run(ctx context.Context, st *members.State) (*leaf.IndexReply, error) {
	for {
		if err := d.take(ctx, st); err != nil {
			return nil, err
		}
		d.watch.lap(StageType)
		to := targets(st.Writers(d.key)...)
		d.mark = leaf.NewMark()
		list, err := fan(ctx, d.w, to, func(ctx context.Context, t target) (*leaf.IndexReply, error) {
			return attended(ctx, d.w, t, "Index", d.w.o.Limits.CallTimeout, true, func(ctx context.Context) (*leaf.IndexReply, error) { return d.put(ctx, st, t) })
		})
		if err != nil {
			return nil, err
		}
		d.watch.lap(StageWrite)
		in := applied(list)
		if len(in) > 0 {
			return d.finish(ctx, st, list, in)
		}
		if maybe(list) && len(list) > 1 {
			for i := range list {
				d.w.doubt(list[i].Addr, d.ix.name, []string{d.key})
			}
		}
		err = verdict(ctx, "Index", list)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || !fault(p) {
			return nil, err
		}
		if p.Code == api.IndexNotFound && d.remade < retypeAttempts {
			d.remade++ // it was deleted, and this write makes it anew
		} else if d.fresh {
			return nil, err
		}
		// The members refuse what the schema takes: it is not theirs any more.
		for i := range list {
			d.ix.forget(list[i].Addr)
		}
		if err := d.refresh(ctx, st); err != nil {
			return nil, err
		}
	}
}

// put writes the document at one member.
func (d *writing) put(ctx context.Context, st *members.State, t target) (*leaf.IndexReply, error) {
	reply, err := writeAt(ctx, d.ix, st, t, d.ty, func() (*leaf.IndexReply, error) {
		return leaf.MarkedIndex(ctx, t.Leaf, leaf.IndexRequest{Index: d.ix.name, View: leaf.View{Epoch: st.Epoch()}, Body: d.body, Existing: true, Mark: d.mark})
	})
	if err != nil {
		return nil, err
	}
	if !reply.OK {
		return nil, &partialError{reply.Members.FailedAddresses}
	}
	if len(reply.Inferred) > 0 {
		// It lacked fields all the same: it is not the member that it was.
		d.ix.forget(t.Addr)
	}
	return reply, nil
}

// finish compares the members that have the document, and makes the reply.
func (d *writing) finish(ctx context.Context, st *members.State, list, in []got[leaf.IndexReply]) (*leaf.IndexReply, error) {
	ids := []string{d.key}
	var a account
	noteAll(&a, list)
	for i := range list {
		if list[i].err != nil {
			d.w.hint(list[i].Addr, d.ix.name, ids)
		}
	}
	if !uncrossed(in) {
		own := &own{map[string]leaf.Sum{d.key: d.sum}, func(string) []byte { return d.body }, d.mark}
		if err := d.w.settleAt(ctx, st, d.ix, d.ty, ids, own, nil, where(in), &a); err != nil {
			return nil, err
		}
	}
	d.watch.lap(StageSettle)
	if err := a.left(ctx, "Index"); err != nil {
		return nil, err
	}
	reply := &leaf.IndexReply{Meta: leaf.Meta{Snapshot: in[0].reply.Snapshot, Timings: d.watch.laps, Below: a.below()}}
	reply.WriteReply = api.WriteReply{OK: !a.failed(), ID: d.key, Members: a.members(), Inferred: d.inferred}
	return reply, nil
}

// uncrossed tells whether a write cannot have crossed with another that does not see that. Either nothing had been done with the id at any
// member for longer than writes are under way; or it came directly behind the same write at all of them. So whatever else is written to it comes
// behind this one at all of them, or was behind something else at one, and whoever wrote that compares the members in turn.
func uncrossed(in []got[leaf.IndexReply]) bool {
	behind := in[0].reply.Behind
	return !slices.ContainsFunc(in, func(g got[leaf.IndexReply]) bool { return !g.reply.Fresh }) ||
		behind != 0 && !slices.ContainsFunc(in, func(g got[leaf.IndexReply]) bool { return g.reply.Behind != behind })
}

// settleAt settles documents at the members that have taken them, and adds to the account which are not equal.
func (w *Writer) settleAt(ctx context.Context, st *members.State, ix *index, ty *typing, ids []string, own *own, again *repetition, to []target, a *account) error {
	odd, err := w.settle(ctx, st, ix, ty, ids, own, again, to)
	if err != nil {
		if again, ok := errors.AsType[*staleError](err); ok {
			return again
		}
		return ended("Sums", err, true)
	}
	for _, o := range odd {
		a.note(o.target, o.err, 0)
	}
	return nil
}

// where are the members of a list.
func where[R any](list []got[R]) []target {
	out := make([]target, len(list))
	for i := range list {
		out[i] = list[i].target
	}
	return out
}

// refresh asks for the schema again.
func (d *writing) refresh(ctx context.Context, st *members.State) error {
	ty, err := d.ix.current(ctx, st, time.Now(), true)
	if err != nil {
		return err
	}
	d.ty, d.fresh = ty, true
	return nil
}

// take types the document and adds the fields that it brings to the schema.
func (d *writing) take(ctx context.Context, st *members.State) error {
	if d.ty == nil {
		var err error
		if d.ty, err = d.ix.current(ctx, st, time.Now().Add(-d.w.o.Limits.SchemaAge), false); err != nil {
			return err
		}
	}
	for range retypeAttempts {
		p := d.ty.parser(d.w.o.Limits)
		doc, found, derr := p.Parse(d.body)
		d.ty.put(p)
		if derr != nil {
			if !d.fresh && ofSchema(derr) {
				if err := d.refresh(ctx, st); err != nil {
					return err
				}
				continue
			}
			prob := api.DocProblem(derr)
			prob.Line = 1
			if prob.HasPosition { // a document sent alone may have lines
				prob.Line += bytes.Count(d.body[:min(prob.Position, len(d.body))], []byte{'\n'})
			}
			return prob
		}
		d.key, d.sum = doc.Key, leaf.SumOf(doc.Source)
		if d.existing && d.ty.absent {
			if d.fresh {
				return noIndex(d.ix.name)
			}
			if err := d.refresh(ctx, st); err != nil {
				return err
			}
			continue
		}
		if len(found) == 0 && !d.ty.absent {
			return nil
		}
		ty, settled, err := d.ix.agree(ctx, st, d.ty, fields(found))
		if err != nil {
			return err
		}
		d.ty, d.fresh = ty, true
		if settled {
			d.inferred = api.AddInferred(d.inferred, found)
			return nil
		}
	}
	return errFieldsMove(d.ix.name)
}

// share is the part of a request that goes to the same groups.
type share struct {
	groups []*members.Group
	at     []int // places in the request, ascending
}

// shares divides ids by the groups that write them, in the order of the groups.
func shares(st *members.State, n int, id func(i int) string) []share {
	var out []share
	byGroups := map[[2]int]int{}
	for i := range n {
		groups := st.Writers(id(i))
		d := destination(groups)
		k, ok := byGroups[d]
		if !ok {
			k = len(out)
			byGroups[d] = k
			out = append(out, share{groups: groups})
		}
		out[k].at = append(out[k].at, i)
	}
	slices.SortFunc(out, func(a, b share) int {
		x, y := destination(a.groups), destination(b.groups)
		return cmp.Or(x[0]-y[0], x[1]-y[1])
	})
	return out
}

// destination names the groups that write a document: the second is -1 but while it is moved.
func destination(groups []*members.Group) [2]int {
	d := [2]int{groups[0].Ordinal, -1}
	if len(groups) > 1 {
		d[1] = groups[1].Ordinal
	}
	return d
}

// DeleteMany is leaf.Leaf.DeleteMany: it deletes documents at every member of their groups. Who has done so is in Meta.Below, see Members;
// the reply is whole only if no one has failed there. Where documents of several groups are deleted and all members of one cannot be
// reached, that is in Meta.Below too.
func (w *Writer) DeleteMany(caller context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	ids := make([]string, 0, len(req.IDs))
	seen := make(map[string]bool, len(req.IDs))
	for i, id := range req.IDs {
		if prob := api.CheckID(id); prob != nil {
			prob.Field, prob.Detail = "ids", fmt.Sprintf("ids: %d: %s", i+1, prob.Detail)
			return nil, prob
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	watch := newStopwatch()
	return byState(ctx, w, func(st *members.State) (*leaf.DeleteReply, error) { return w.deleteMany(ctx, st, name, ids, watch) })
}

// Delete deletes one document, as DELETE /index does. The reply is OK only if no member of its group has failed.
func (w *Writer) Delete(caller context.Context, index, id string) (*api.DeleteReply, error) {
	reply, err := w.DeleteMany(caller, &leaf.DeleteRequest{Index: index, IDs: []string{id}})
	if err != nil {
		return nil, err
	}
	m := Members(&reply.Meta)
	return &api.DeleteReply{OK: m.OK == m.Total, Deleted: int(reply.Deleted), Members: m}, nil
}

// deleted is what a member says about a deletion. A member without the index has nothing to delete.
type deleted struct {
	n        uint64
	absent   bool
	snapshot leaf.Snapshot
}

func (w *Writer) deleteMany(ctx context.Context, st *members.State, name string, ids []string, watch *stopwatch) (*leaf.DeleteReply, error) {
	parts := shares(st, len(ids), func(i int) string { return ids[i] })
	if len(parts) == 0 {
		// Nothing is to be deleted, and it is the index that is asked about.
		ty, err := w.schemas.of(w, name).current(ctx, st, time.Now(), true)
		if err != nil {
			return nil, err
		}
		if ty.absent {
			return nil, noIndex(name)
		}
		watch.lap(StageWrite)
		return &leaf.DeleteReply{Meta: leaf.Meta{Timings: watch.laps, Below: &leaf.Below{}}}, nil
	}
	lists := make([][]got[deleted], len(parts))
	errs := make([]error, len(parts))
	odd := make([]account, len(parts))
	ix := w.schemas.of(w, name)
	each(len(parts), func(i int) {
		own := make([]string, len(parts[i].at))
		for k, at := range parts[i].at {
			own[k] = ids[at]
		}
		lists[i], errs[i] = w.deleteAt(ctx, st, ix, own, targets(parts[i].groups...), &odd[i])
	})
	watch.lap(StageWrite)
	if err := worst(errs); err != nil {
		return nil, err
	}
	reply := &leaf.DeleteReply{}
	var a account
	absent, any := true, false
	var why error
	for i, list := range lists {
		noteAll(&a, list)
		for k, t := range odd[i].list {
			a.note(t, odd[i].errs[k], 0)
		}
		in := applied(list)
		if len(in) == 0 {
			if why == nil {
				why = verdict(ctx, "DeleteMany", list)
			}
			continue
		}
		// The first member that has the deletion decides what was there, and the group in which readers see the document.
		reply.Deleted += in[0].reply.n
		if !any {
			reply.Snapshot = in[0].reply.snapshot
		}
		any = true
		for k := range in {
			absent = absent && in[k].reply.absent
		}
	}
	switch {
	case !any:
		return nil, why
	case absent && why == nil:
		return nil, noIndex(name)
	case absent:
		return nil, why // the groups that have not answered may have the index
	}
	if err := a.left(ctx, "DeleteMany"); err != nil {
		return nil, err
	}
	reply.Timings, reply.Below = watch.laps, a.below()
	return reply, nil
}

// worst is the error that ends a call made of several parts, nil if no part has one.
func worst(errs []error) error {
	var first error
	applied := false
	for _, err := range errs {
		again, ok := errors.AsType[*staleError](err)
		applied = applied || err == nil || ok && again.applied
		if ok && first == nil {
			first = again
		}
	}
	if again, ok := first.(*staleError); ok {
		return &staleError{cause: again.cause, applied: applied}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteAt deletes documents of one share.
func (w *Writer) deleteAt(ctx context.Context, st *members.State, ix *index, ids []string, to []target, odd *account) ([]got[deleted], error) {
	list, err := fan(ctx, w, to, func(ctx context.Context, t target) (*deleted, error) {
		reply, err := attended(ctx, w, t, "DeleteMany", w.o.Limits.CallTimeout, true, func(ctx context.Context) (*leaf.DeleteReply, error) {
			return t.Leaf.DeleteMany(ctx, &leaf.DeleteRequest{Index: ix.name, View: leaf.View{Epoch: st.Epoch()}, IDs: ids})
		})
		switch {
		case hasCode(err, api.IndexNotFound):
			return &deleted{absent: true}, nil
		case err != nil:
			return nil, err
		}
		if err := partial(&reply.Meta); err != nil {
			return nil, err
		}
		return &deleted{n: reply.Deleted, snapshot: reply.Snapshot}, nil
	})
	if err != nil {
		return nil, err
	}
	in := applied(list)
	if len(in) > 0 || maybe(list) && len(list) > 1 {
		for i := range list {
			switch {
			case list[i].err == nil:
			case len(in) > 0:
				w.hint(list[i].Addr, ix.name, ids)
			default:
				w.doubt(list[i].Addr, ix.name, ids)
			}
		}
	}
	return list, w.settleAt(ctx, st, ix, ix.known(time.Time{}), ids, deletedOwn(ids), nil, where(in), odd)
}

// tooMany is the refusal of a list over its limit.
func tooMany(field string, have, limit int) *api.Problem {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: %d are given, %d are allowed", field, have, limit)).On(field).Within(int64(limit))
}

// Sync is leaf.Member.Sync: each item is put or deleted at every member of its group, if the first of these that can be reached has what is
// expected. It is applied only if all members have it in the end; where one cannot be reached, it is not, and Meta.Below says so.
func (w *Writer) Sync(caller context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	if len(req.Items) > leaf.MaxSync {
		return nil, tooMany("items", len(req.Items), leaf.MaxSync)
	}
	seen := make(map[string]bool, len(req.Items))
	var size int64
	for i := range req.Items {
		it := &req.Items[i]
		if prob := api.CheckID(it.ID); prob != nil {
			prob.Field, prob.Detail = "items", fmt.Sprintf("items: %d: %s", i+1, prob.Detail)
			return nil, prob
		}
		if seen[it.ID] {
			return nil, api.NewProblem(api.InvalidParameter, fmt.Sprintf("items: %d: the id %q is given twice", i+1, api.Clip(it.ID))).On("items")
		}
		seen[it.ID] = true
		size += int64(len(it.Body))
	}
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	s := &syncing{w: w, ix: w.schemas.of(w, name), items: req.Items, fence: req.Fence, watch: newStopwatch()}
	return byState(ctx, w, func(st *members.State) (*leaf.SyncReply, error) { return s.run(ctx, st) })
}

// syncing is a Sync under way.
type syncing struct {
	w     *Writer
	ix    *index
	items []leaf.SyncItem
	fence uint64 // of FencedSums; 0: it names none
	watch *stopwatch
	ty    *typing
	own   []*api.Problem // of documents that do not fit; nil if there are none
}

func (s *syncing) run(ctx context.Context, st *members.State) (*leaf.SyncReply, error) {
	if err := s.take(ctx, st); err != nil {
		return nil, err
	}
	s.watch.lap(StageType)
	todo := make([]int, 0, len(s.items))
	for i := range s.items {
		if s.own == nil || s.own[i] == nil {
			todo = append(todo, i)
		}
	}
	reply := &leaf.SyncReply{Applied: make([]bool, len(s.items)), Sums: make([]leaf.Sum, len(s.items)), Problems: slices.Clone(s.own)}
	parts := shares(st, len(todo), func(i int) string { return s.items[todo[i]].ID })
	errs := make([]error, len(parts))
	why := make([]error, len(parts))
	accounts := make([]account, len(parts))
	snapshots := make([]leaf.Snapshot, len(parts))
	problems := make([]*api.Problem, len(s.items))
	each(len(parts), func(i int) {
		at := make([]int, len(parts[i].at))
		for k, p := range parts[i].at {
			at[k] = todo[p]
		}
		p := &syncPart{s: s, st: st, at: at, reply: reply, problems: problems, a: &accounts[i]}
		snapshots[i], why[i], errs[i] = p.run(ctx, parts[i].groups)
	})
	s.watch.lap(StageWrite)
	if err := worst(errs); err != nil {
		return nil, err
	}
	var a account
	any := len(parts) == 0
	for i := range accounts {
		for k, t := range accounts[i].list {
			a.note(t, accounts[i].errs[k], accounts[i].took[k])
		}
		if why[i] == nil && !any {
			any, reply.Snapshot = true, snapshots[i]
		}
	}
	if !any {
		return nil, cmp.Or(why...)
	}
	for i, p := range problems {
		if p != nil {
			if reply.Problems == nil {
				reply.Problems = make([]*api.Problem, len(s.items))
			}
			reply.Problems[i] = p
		}
	}
	if err := a.left(ctx, "Sync"); err != nil {
		return nil, err
	}
	reply.Timings, reply.Below = s.watch.laps, a.below()
	return reply, nil
}

// take types the documents of the items, and adds the fields that they bring to the schema: a member never guesses a type.
func (s *syncing) take(ctx context.Context, st *members.State) error {
	var err error
	if s.ty, err = s.ix.current(ctx, st, time.Now(), true); err != nil {
		return err
	}
	for range retypeAttempts {
		if s.ty.absent {
			return noIndex(s.ix.name) // it is not for a copy to make an index
		}
		found, err := s.typed()
		if err != nil || len(found) == 0 {
			return err
		}
		ty, settled, err := s.ix.agree(ctx, st, s.ty, fields(found))
		if err != nil {
			return err
		}
		if s.ty = ty; settled {
			return nil
		}
	}
	return errFieldsMove(s.ix.name)
}

// typed takes the documents apart by the schema and returns the fields that it lacks.
func (s *syncing) typed() ([]jsondoc.Inference, error) {
	s.own = nil
	p := jsondoc.NewParser(s.ty.schema, s.w.o.Limits.doc())
	var all []jsondoc.Inference
	for i := range s.items {
		it := &s.items[i]
		if it.Body == nil {
			continue
		}
		doc, found, derr := p.Parse(it.Body)
		var prob *api.Problem
		switch {
		case derr != nil:
			prob = api.DocProblem(derr)
		case doc.Key != it.ID:
			prob = api.NewProblem(api.InvalidID, fmt.Sprintf("the document has the id %q, the item %q", api.Clip(doc.Key), api.Clip(it.ID))).On("id")
		}
		if prob != nil {
			if s.own == nil {
				s.own = make([]*api.Problem, len(s.items))
			}
			s.own[i] = prob
			continue
		}
		if len(found) > 0 {
			sch, err := jsondoc.Merge(p.Schema(), found)
			if err != nil {
				if p := api.SchemaProblem(err); p != nil {
					return nil, p
				}
				return nil, fmt.Errorf("type item %d: %w", i+1, err)
			}
			p.SetSchema(sch)
			all = append(all, found...)
		}
	}
	return all, nil
}

// syncPart is the part of a Sync that goes to the same groups.
type syncPart struct {
	s  *syncing
	st *members.State
	at []int // places of its items

	// Of the whole Sync; the part writes at its own places.
	reply    *leaf.SyncReply
	problems []*api.Problem
	a        *account // of the part
}

// run applies the items at the group in which readers see them, and makes the other one equal where they are being moved. why says why no
// member has taken them.
func (p *syncPart) run(ctx context.Context, groups []*members.Group) (snapshot leaf.Snapshot, why, err error) {
	s, w := p.s, p.s.w
	items := make([]leaf.SyncItem, len(p.at))
	ids := make([]string, len(p.at))
	for k, i := range p.at {
		items[k], ids[k] = s.items[i], s.items[i].ID
	}
	list, err := fan(ctx, w, targets(groups[0]), func(ctx context.Context, t target) (*leaf.SyncReply, error) {
		reply, err := attended(ctx, w, t, "Sync", w.o.Limits.CallTimeout, true, func(ctx context.Context) (*leaf.SyncReply, error) {
			if err := s.ix.ready(ctx, p.st, t, s.ty); err != nil {
				return nil, err
			}
			return t.Leaf.Sync(ctx, &leaf.SyncRequest{
				Index: s.ix.name, View: leaf.View{Epoch: p.st.Epoch()}, Items: items, Fence: w.fences.below(s.fence, t.Addr),
			})
		})
		if err == nil && (len(reply.Applied) != len(items) || len(reply.Sums) != len(items) || reply.Problems != nil && len(reply.Problems) != len(items)) {
			err = fmt.Errorf("%s answers %d of %d items", t.Addr, len(reply.Applied), len(items))
		}
		if err == nil {
			err = partial(&reply.Meta)
		}
		return reply, err
	})
	if err != nil {
		return snapshot, nil, err
	}
	noteAll(p.a, list)
	in := applied(list)
	for i := range list {
		switch {
		case list[i].err == nil:
		case len(in) > 0:
			w.hint(list[i].Addr, s.ix.name, ids)
		case maybe(list) && len(list) > 1:
			w.doubt(list[i].Addr, s.ix.name, ids)
		}
	}
	if len(in) == 0 {
		return snapshot, verdict(ctx, "Sync", list), nil
	}
	ref := in[0].reply
	var differ []string
	for k, id := range ids {
		for _, g := range in[1:] {
			if g.reply.Sums[k] != ref.Sums[k] {
				differ = append(differ, id)
				break
			}
		}
	}
	to := where(in)
	if len(groups) > 1 {
		differ, to = ids, append(to, targets(groups[1])...)
		for _, t := range targets(groups[1]) {
			p.a.at(t)
		}
	}
	var odd account
	if err := w.settleAt(ctx, p.st, s.ix, s.ty, differ, nil, nil, to, &odd); err != nil {
		return snapshot, nil, err
	}
	for i, t := range odd.list {
		p.a.note(t, odd.errs[i], 0)
	}
	for k, i := range p.at {
		p.reply.Applied[i] = ref.Applied[k] && !p.a.failed()
		p.reply.Sums[i] = ref.Sums[k]
		if ref.Problems != nil {
			p.problems[i] = ref.Problems[k]
		}
	}
	return ref.Snapshot, nil, nil
}
