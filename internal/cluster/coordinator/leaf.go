package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/serve"
)

// clusterLeaf is the cluster as one member: what the coordinator serves over the shard protocols, so that it can stand as one shard of
// another coordinator. Calls are counted and admitted like those over HTTP, and refused when the coordinator closes.
type clusterLeaf struct {
	c *Coordinator
	w *whole
}

var _ leaf.Member = (*clusterLeaf)(nil)

// leafCalls are the names of the calls in metrics and logs.
var leafCalls = []string{
	"ping", "info", "docs", "search", "stats", "agg", "knn", "ids", "export", "has", "delete_many", "index", "bulk",
	"fetch", "indexes", "put_index", "drop_index", "sums", "digest", "sync", "place", "placed",
}

// leafCall is one kind of call of the leaf.
type leafCall struct {
	name  string
	gate  *admit.Gate // that it takes a place of; nil: none
	epoch uint64      // of the map of the coordinator above, which is another one than that of the cluster; 0: the call has none
	// writes: the coordinator above is told that its map is taken when no such call of an older one is under way any more.
	writes bool
	// unplaced calls are taken also while the map of the cluster is not known.
	unplaced bool
}

// through runs a call from its arrival to its answer.
func through[Q, R any](ctx context.Context, l *clusterLeaf, o leafCall, req *Q, run func(context.Context, *Q) (*R, error)) (reply *R, err error) {
	c := l.c
	seen := c.leafRoutes[o.name].Begin()
	id := obs.AcceptRequestID(obs.RequestID(ctx))
	ctx = obs.WithRequestID(ctx, id)
	defer func() {
		if p := recover(); p != nil {
			c.cfg.Metrics.Panics.Inc()
			c.log.Error("panic in request", "request_id", id, "call", o.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			reply, err = nil, &api.Problem{Code: api.Internal, Detail: "the server failed; its log has more under the request id", RequestID: id}
		}
		status := leafStatus(err)
		took := seen.End(status)
		c.log.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("call", o.name), slog.Int("status", status),
			slog.Duration("took", took), slog.String("request_id", id))
	}()
	if !c.front.Drain().Enter() {
		return nil, c.problem(ctx, errClosing)
	}
	defer c.front.Drain().Leave()
	done, err := c.above.enter(o.epoch, o.writes)
	if err != nil {
		return nil, err
	}
	defer done()
	if !o.unplaced && c.members.State() == nil {
		return nil, notReady()
	}
	if o.gate != nil {
		place, err := o.gate.Enter(ctx, 1)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, c.problem(ctx, err)
		}
		defer place.Release()
	}
	serve.Begun(ctx)
	reply, err = run(ctx, req)
	if err == nil && !o.writes {
		err = c.above.takes(o.epoch)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// charged is run with the replies of shards charged as they arrive, like those of a search over HTTP. What they are merged into is charged by
// the server of the shard protocol, which sends it.
func charged[Q, R any](c *Coordinator, run func(context.Context, *Q) (*R, error)) func(context.Context, *Q) (*R, error) {
	return func(ctx context.Context, req *Q) (*R, error) {
		ctx, release := c.searcher.Charged(ctx)
		defer release()
		reply, err := run(ctx, req)
		if _, full := errors.AsType[*admit.Refusal](err); full {
			p := c.problem(ctx, err)
			c.front.CountFailure(p)
			return nil, p
		}
		return reply, err
	}
}

// leafStatus is the HTTP status that the outcome of a call is counted under.
func leafStatus(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.HTTPStatus()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusGatewayTimeout
	}
	return api.StatusCallerGone
}

// nothing is the request of calls that have none.
type nothing struct{}

func (l *clusterLeaf) Ping(ctx context.Context) (*leaf.PingReply, error) {
	return through(ctx, l, leafCall{name: "ping", unplaced: true}, &nothing{}, func(context.Context, *nothing) (*leaf.PingReply, error) {
		return &leaf.PingReply{Node: l.c.id}, nil
	})
}

func (l *clusterLeaf) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return through(ctx, l, leafCall{name: "info"}, req, l.w.Info)
}

func (l *clusterLeaf) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return through(ctx, l, leafCall{name: "docs", epoch: req.Epoch}, req, l.w.Docs)
}

func (l *clusterLeaf) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return through(ctx, l, leafCall{name: "search", gate: l.c.searches, epoch: req.Epoch}, req, charged(l.c, l.w.Search))
}

func (l *clusterLeaf) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return through(ctx, l, leafCall{name: "stats", gate: l.c.searches, epoch: req.Epoch}, req, l.w.Stats)
}

func (l *clusterLeaf) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return through(ctx, l, leafCall{name: "agg", gate: l.c.searches, epoch: req.Epoch}, req, charged(l.c, l.w.Aggregate))
}

func (l *clusterLeaf) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return through(ctx, l, leafCall{name: "knn", gate: l.c.searches, epoch: req.Epoch}, req, charged(l.c, l.w.KNN))
}

func (l *clusterLeaf) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	return through(ctx, l, leafCall{name: "ids", gate: l.c.scans, epoch: req.Epoch}, req, func(ctx context.Context, req *leaf.IDsRequest) (*leaf.IDsReply, error) {
		return l.w.IDs(ctx, req, func(ids []string) error {
			if err := l.c.above.takes(req.Epoch); err != nil {
				return err
			}
			return page(ids)
		})
	})
}

func (l *clusterLeaf) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return through(ctx, l, leafCall{name: "export", gate: l.c.scans, epoch: req.Epoch}, req, func(ctx context.Context, req *leaf.ExportRequest) (*leaf.ExportReply, error) {
		return l.w.Export(ctx, req, func(doc leaf.ExportedDoc) error {
			if err := l.c.above.takes(req.Epoch); err != nil {
				return err
			}
			return each(doc)
		})
	})
}

func (l *clusterLeaf) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	return through(ctx, l, leafCall{name: "has", epoch: req.Epoch}, req, l.w.Has)
}

func (l *clusterLeaf) Fetch(ctx context.Context, req *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return through(ctx, l, leafCall{name: "fetch", gate: l.c.searches, epoch: req.Epoch}, req, charged(l.c, l.w.Fetch))
}

func (l *clusterLeaf) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return through(ctx, l, leafCall{name: "sums", epoch: req.Epoch}, req, l.w.Sums)
}

func (l *clusterLeaf) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return through(ctx, l, leafCall{name: "digest", gate: l.c.scans, epoch: req.Epoch}, req, l.w.Digest)
}

func (l *clusterLeaf) Indexes(ctx context.Context, req *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return through(ctx, l, leafCall{name: "indexes"}, req, l.w.Indexes)
}

func (l *clusterLeaf) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return through(ctx, l, leafCall{name: "put_index", gate: l.c.writes, epoch: req.Epoch, writes: true}, req, l.w.PutIndex)
}

func (l *clusterLeaf) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return through(ctx, l, leafCall{name: "drop_index", gate: l.c.writes, epoch: req.Epoch, writes: true}, req, l.w.DropIndex)
}

func (l *clusterLeaf) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	reply, err := through(ctx, l, leafCall{name: "delete_many", gate: l.c.writes, epoch: req.Epoch, writes: true}, req, l.w.DeleteMany)
	if err == nil {
		l.c.documents.deleted.Add(reply.Deleted)
	}
	return reply, err
}

func (l *clusterLeaf) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	reply, err := through(ctx, l, leafCall{name: "index", gate: l.c.writes, epoch: req.Epoch, writes: true}, req, l.w.Index)
	l.c.countIndex(err)
	return reply, err
}

func (l *clusterLeaf) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	reply, err := through(ctx, l, leafCall{name: "bulk", gate: l.c.bulks, epoch: req.Epoch, writes: true}, req, func(ctx context.Context, req *leaf.BulkRequest) (*leaf.BulkReply, error) {
		return l.w.Bulk(ctx, req, body)
	})
	l.c.countLoad(reply)
	return reply, err
}

func (l *clusterLeaf) Sync(ctx context.Context, req *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return through(ctx, l, leafCall{name: "sync", gate: l.c.writes, epoch: req.Epoch, writes: true}, req, l.w.Sync)
}

func (l *clusterLeaf) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	reply, err := through(ctx, l, leafCall{name: "place", unplaced: true}, req, l.w.Place)
	l.c.divides()
	return reply, err
}

func (l *clusterLeaf) Placed(ctx context.Context) (*leaf.PlaceReply, error) {
	l.c.divides() // the map here may be another one by now, or not have been known before
	return through(ctx, l, leafCall{name: "placed", unplaced: true}, &nothing{}, func(ctx context.Context, _ *nothing) (*leaf.PlaceReply, error) {
		return l.w.Placed(ctx)
	})
}

// Close ends nothing: the coordinator owns what the leaf reads from.
func (l *clusterLeaf) Close() error { return nil }

func notReady() *api.Problem {
	return &api.Problem{Code: api.NotReady, RetryAfterMS: 500, Detail: "the coordinator does not know the shard map yet"}
}
