package coordinator

import (
	"context"
	"io"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/leaf"
)

// clusterLeaf is the cluster as one member: what the coordinator serves over the shard protocols, so that it can stand as one shard of
// another coordinator. Calls are counted with those over HTTP and refused when the coordinator closes.
type clusterLeaf struct {
	c *Coordinator
	r *read.Reader
	w *write.Writer
}

var _ leaf.Member = (*clusterLeaf)(nil)

// begin counts a call in and checks the epoch of the map of the coordinator above, which is another one than that of the cluster.
func (l *clusterLeaf) begin(epoch uint64) (end func(), err error) {
	if !l.c.front.Drain().Enter() {
		return nil, l.c.problem(context.Background(), errClosing)
	}
	if err := l.c.above.check(epoch); err != nil {
		l.c.front.Drain().Leave()
		return nil, err
	}
	if l.c.members.State() == nil {
		l.c.front.Drain().Leave()
		return nil, notReady()
	}
	return l.c.front.Drain().Leave, nil
}

// through runs a call of the cluster.
func through[Q, R any](ctx context.Context, l *clusterLeaf, epoch uint64, req Q, call func(context.Context, Q) (R, error)) (R, error) {
	end, err := l.begin(epoch)
	if err != nil {
		var zero R
		return zero, err
	}
	defer end()
	return call(ctx, req)
}

func (l *clusterLeaf) Ping(ctx context.Context) (*leaf.PingReply, error) {
	if l.c.front.Closing() {
		return nil, l.c.problem(ctx, errClosing)
	}
	return &leaf.PingReply{Node: l.c.id}, nil
}

func (l *clusterLeaf) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return through(ctx, l, 0, req, l.r.Info)
}

func (l *clusterLeaf) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Docs)
}

func (l *clusterLeaf) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Search)
}

func (l *clusterLeaf) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Stats)
}

func (l *clusterLeaf) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Aggregate)
}

func (l *clusterLeaf) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.KNN)
}

func (l *clusterLeaf) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	return through(ctx, l, req.Epoch, req, func(ctx context.Context, req *leaf.IDsRequest) (*leaf.IDsReply, error) {
		return l.r.IDs(ctx, req, page)
	})
}

func (l *clusterLeaf) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return through(ctx, l, req.Epoch, req, func(ctx context.Context, req *leaf.ExportRequest) (*leaf.ExportReply, error) {
		return l.r.Export(ctx, req, each)
	})
}

func (l *clusterLeaf) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Has)
}

func (l *clusterLeaf) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Fetch)
}

func (l *clusterLeaf) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Sums)
}

func (l *clusterLeaf) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return through(ctx, l, req.Epoch, req, l.r.Digest)
}

func (l *clusterLeaf) Indexes(ctx context.Context, req *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return through(ctx, l, 0, req, l.r.Indexes)
}

func (l *clusterLeaf) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return through(ctx, l, req.Epoch, req, l.w.PutIndex)
}

func (l *clusterLeaf) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return through(ctx, l, req.Epoch, req, l.w.DropIndex)
}

func (l *clusterLeaf) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return through(ctx, l, req.Epoch, req, l.w.DeleteMany)
}

func (l *clusterLeaf) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return through(ctx, l, req.Epoch, req, l.w.Index)
}

func (l *clusterLeaf) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	return through(ctx, l, req.Epoch, req, func(ctx context.Context, req *leaf.BulkRequest) (*leaf.BulkReply, error) {
		return l.w.Bulk(ctx, req, body)
	})
}

func (l *clusterLeaf) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return through(ctx, l, req.Epoch, req, l.w.Sync)
}

// Place takes the map of the coordinator above. It is not that of the cluster, which the coordinator keeps with its own members.
func (l *clusterLeaf) Place(_ context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	if err := l.c.above.place(req); err != nil {
		return nil, err
	}
	return l.c.above.reply(), nil
}

func (l *clusterLeaf) Placed(context.Context) (*leaf.PlaceReply, error) {
	return l.c.above.reply(), nil
}

// Close ends nothing: the coordinator owns what the leaf reads from.
func (l *clusterLeaf) Close() error { return nil }

func notReady() *api.Problem {
	return &api.Problem{Code: api.NotReady, RetryAfterMS: 500, Detail: "the coordinator does not know the shard map yet"}
}
