package write

import (
	"context"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// PutIndex is leaf.Member.PutIndex: it makes an index at every member, or adds fields to it. The first member of group 0 that can be reached
// decides; Meta.Below names the members that did not follow, which are given the schema before their next document. Documents, segments
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
	// Fields that the first member lacks because it was away come before new ones.
	whole, err := ix.survey(ctx, targets(st.Groups...), 0)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if !whole.absent && !ix.has(st.Groups[0].Members[0].Addr, whole) {
		if _, _, err := ix.putFirst(ctx, st, whole.sdl); err != nil {
			return nil, err
		}
	}
	first, reply, err := ix.putFirst(ctx, st, sdl)
	if err != nil {
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
	out := &leaf.PutIndexReply{Made: reply.Made && whole.absent, Info: sumInfos(reply.Info, infos)}
	out.Meta = leaf.Meta{Snapshot: reply.Snapshot, Timings: watch.laps, Below: a.below()}
	return out, nil
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
	list, err := fan(ctx, ix.w, targets(st.Groups...), ix.w.o.Limits.CallTimeout, func(ctx context.Context, t target) (*dropped, error) {
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
