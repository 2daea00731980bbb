package write

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/text"
)

// PutIndex is leaf.Member.PutIndex: it makes an index at every member, or adds fields to it. What is new is agreed on in
// Options.Store first; then the first member of group 0 that can be reached decides. Meta.Below names the members that did not follow, which are given the schema before their next document. Documents, segments
// and bytes are those of one member of each group.
func (w *Writer) PutIndex(caller context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	ix, watch := w.schemas.of(w, name), newStopwatch()
	return byState(ctx, w, func(st *members.State) (*leaf.PutIndexReply, error) { return ix.put(ctx, st, req.Schema, watch) })
}

func (ix *index) put(ctx context.Context, st *members.State, sdl string, watch *stopwatch) (*leaf.PutIndexReply, error) {
	if err := ix.lock(ctx); err != nil {
		return nil, err
	}
	defer ix.unlock()
	acc, made, err := ix.announce(ctx, st, sdl)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	first, reply, err := ix.putFirst(ctx, st, sdl)
	if err != nil {
		if p, ok := errors.AsType[*api.Problem](err); ok && p.HTTPStatus() < 500 && p.HTTPStatus() != http.StatusTooManyRequests && !members.IsStale(p) {
			ix.takeBack(ctx, acc)
		}
		return nil, err
	}
	ty, err := ix.adopt(reply.Info.Schema, began, first)
	if err != nil {
		return nil, err
	}
	infos := make([]*api.IndexInfo, len(st.Groups))
	infos[first.group] = &reply.Info
	var a account
	for _, t := range targets(st.Groups...) {
		a.at(t)
	}
	for _, g := range ix.spread(ctx, st, first, ty) {
		a.note(g.target, g.err, g.took)
		if members.IsStale(g.err) {
			return nil, &staleError{cause: g.err, applied: true}
		}
		if g.err == nil && infos[g.group] == nil {
			infos[g.group] = &g.reply.Info
		}
	}
	if err := a.left(ctx, "PutIndex"); err != nil {
		return nil, err
	}
	watch.lap(StageWrite)
	out := &leaf.PutIndexReply{Made: made || acc.first && reply.Made, Info: sumInfos(reply.Info, infos)}
	out.Meta = leaf.Meta{Snapshot: reply.Snapshot, Timings: watch.laps, Below: a.below()}
	return out, nil
}

// announce agrees with other coordinators on what a schema adds to an index, and gives members before that what they lack of what others
// have agreed on. made tells whether that has made the index.
func (ix *index) announce(ctx context.Context, st *members.State, sdl string) (acc *accord, made bool, err error) {
	given, prob := api.ReadSchema(ix.name, false, []byte(sdl), text.Check)
	if prob != nil {
		return nil, false, prob
	}
	for range retypeAttempts {
		// Fields that the first member lacks because it was away come before new ones.
		whole, err := ix.survey(ctx, targets(st.Groups...), 0)
		if err != nil {
			return nil, false, err
		}
		want := given
		if !whole.absent {
			if !ix.has(st.Groups[0].Members[0].Addr, whole) {
				if _, _, err := ix.putFirst(ctx, st, whole.sdl); err != nil {
					return nil, false, err
				}
			}
			want = whole.schema
			if sdl != "" {
				want, err = whole.schema.AddFields(given.Fields)
			}
			if p := api.SchemaProblem(err); p != nil && ix.w.book != nil {
				return nil, false, p
			}
			if err != nil || want == whole.schema {
				return &accord{}, made, nil // there is nothing new; or the member says what is wrong with it
			}
		}
		acc, err := ix.settle(ctx, whole, want)
		if err != nil {
			return nil, false, err
		}
		acc.first = whole.absent
		if acc.ok {
			return acc, made, nil
		}
		began := time.Now()
		first, reply, err := ix.putFirst(ctx, st, acc.schema.SDL())
		if hasCode(err, api.SchemaConflict) {
			continue // another coordinator was first, which may have no store
		}
		if err != nil {
			return nil, false, err
		}
		made = made || reply.Made && whole.absent
		ty, err := ix.adopt(reply.Info.Schema, began, first)
		if err != nil {
			return nil, false, err
		}
		for _, g := range ix.spread(ctx, st, first, ty) {
			if members.IsStale(g.err) {
				return nil, false, &staleError{cause: g.err, applied: true}
			}
		}
	}
	return nil, false, errFieldsMove(ix.name)
}

// sumInfos describes an index that stands in several groups: base with the sums over those that are known.
func sumInfos(base api.IndexInfo, infos []*api.IndexInfo) api.IndexInfo {
	base.Docs, base.Segments, base.Bytes = 0, 0, 0
	for _, info := range infos {
		if info != nil {
			base.Docs += info.Docs
			base.Segments += info.Segments
			base.Bytes += info.Bytes
		}
	}
	return base
}

// DropIndex is leaf.Member.DropIndex: it deletes an index at every member. A member that does not have it counts as one that has deleted it,
// as long as any has it. Meta.Below names those that did not.
func (w *Writer) DropIndex(caller context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	name, err := indexName(req.Index)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := w.enter(caller)
	if err != nil {
		return nil, err
	}
	defer leave()
	ix, watch := w.schemas.of(w, name), newStopwatch()
	return byState(ctx, w, func(st *members.State) (*leaf.DropIndexReply, error) { return ix.dropAt(ctx, st, watch) })
}

// dropped is what a member says about the deletion of an index.
type dropped struct {
	info   api.IndexInfo
	absent bool
}

func (ix *index) dropAt(ctx context.Context, st *members.State, watch *stopwatch) (*leaf.DropIndexReply, error) {
	if err := ix.lock(ctx); err != nil {
		return nil, err
	}
	defer ix.unlock()
	if b := ix.w.book; b != nil {
		if err := b.forget(ctx, ix.name); err != nil {
			return nil, ix.undecided(ctx, "it cannot be deleted where coordinators agree on its fields", err)
		}
	}
	list, err := fan(ctx, ix.w, targets(st.Groups...), func(ctx context.Context, t target) (*dropped, error) {
		ctx, cancel := within(ctx, ix.w.o.Limits.CallTimeout)
		defer cancel()
		reply, err := t.Leaf.DropIndex(ctx, &leaf.DropIndexRequest{Index: ix.name, Epoch: st.Epoch()})
		switch {
		case hasCode(err, api.IndexNotFound):
			return &dropped{absent: true}, nil
		case err != nil:
			return nil, err
		}
		return &dropped{info: reply.Info}, partial(&reply.Meta)
	})
	ix.drop()
	if err != nil {
		return nil, err
	}
	var a account
	noteAll(&a, list)
	infos := make([]*api.IndexInfo, len(st.Groups))
	var base *api.IndexInfo
	for i := range list {
		g := &list[i]
		if g.err == nil && !g.reply.absent && infos[g.group] == nil {
			infos[g.group] = &g.reply.info
			if base == nil {
				base = &g.reply.info
			}
		}
	}
	watch.lap(StageWrite)
	if err := a.left(ctx, "DropIndex"); err != nil {
		return nil, err
	}
	if base != nil {
		out := &leaf.DropIndexReply{Info: sumInfos(*base, infos)}
		out.Meta = leaf.Meta{Timings: watch.laps, Below: a.below()}
		return out, nil
	}
	if !a.failed() {
		return nil, noIndex(ix.name)
	}
	// Those that have answered do not have it; the others may.
	silent := list[:0]
	for i := range list {
		if list[i].err != nil {
			silent = append(silent, list[i])
		}
	}
	return nil, verdict(ctx, "DropIndex", silent)
}
