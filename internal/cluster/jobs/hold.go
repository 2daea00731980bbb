package jobs

import (
	"context"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// hold keeps documents that the reference does not have, and that are to be deleted at others for that, from being written there as if
// nobody had looked: what is on its way to the reference may be what the others have already, and whoever writes it compares the members
// then, finds it deleted at some, and puts it there again. It returns the documents without those that have come to the reference since it was
// looked at, which the next look shows.
func (w *work) hold(ctx context.Context, index string, ref *members.Member, todo []differing, by fences) ([]differing, error) {
	var items []leaf.SyncItem
	for i := range todo {
		if todo[i].want == (leaf.Sum{}) {
			items = append(items, leaf.SyncItem{ID: todo[i].id})
		}
	}
	if len(items) == 0 {
		return todo, nil
	}
	come := map[string]bool{}
	for part := range slices.Chunk(items, leaf.MaxSync) {
		reply, err := ask(ctx, ref, "Sync", briefTime, func(r *leaf.SyncReply) *leaf.Meta { return &r.Meta }, func(ctx context.Context) (*leaf.SyncReply, error) {
			return ref.Leaf.Sync(ctx, &leaf.SyncRequest{Index: index, View: w.view(), Items: part, Fence: by[ref.Addr]})
		})
		switch {
		case hasCode(err, api.IndexNotFound):
			continue // whatever makes it there takes no document for fresh that was deleted meanwhile
		case err != nil:
			return nil, err
		case len(reply.Applied) != len(part):
			return nil, &memberError{ref.Addr, "Sync", errLength}
		}
		for i, applied := range reply.Applied {
			if !applied {
				come[part[i].ID] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(todo), func(d differing) bool { return come[d.id] }), nil
}
