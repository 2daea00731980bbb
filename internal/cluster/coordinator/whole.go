package coordinator

import (
	"context"

	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/leaf"
)

// whole is the cluster as one member, for calls that are counted and admitted already: those over HTTP, and clusterLeaf.
type whole struct {
	*read.Reader
	*write.Writer
	above *above
}

var _ leaf.Member = (*whole)(nil)

// Stats is that of the reader: the writer's counts its own calls.
func (w *whole) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return w.Reader.Stats(ctx, req)
}

// Place takes the map of the coordinator above. It is not that of the cluster, which the coordinator keeps with its own members.
// It returns when no write of an older epoch is under way any more.
func (w *whole) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	if err := w.above.place(ctx, req); err != nil {
		return nil, err
	}
	return w.above.reply(), nil
}

func (w *whole) Placed(context.Context) (*leaf.PlaceReply, error) { return w.above.reply(), nil }

// Close ends nothing: the coordinator owns what it reads from and writes with.
func (w *whole) Close() error { return nil }

// Sums is that of the writer where a fence is to be made, which stands at all members.
func (w *whole) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	if req.Fence {
		return w.Writer.FencedSums(ctx, req)
	}
	return w.Reader.Sums(ctx, req)
}
