package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/serve"
)

// Stages of the calls of a leaf that are not those of a search.
const (
	stageRead  = "read"  // what the answer is made of
	stageSend  = "send"  // waiting for the caller to take a part of the answer
	stageWrite = "write" // until what was written is durable and visible
)

// leafOp is a method of leaf.Member.
type leafOp uint8

const (
	opPing leafOp = iota
	opInfo
	opDocs
	opSearch
	opStats
	opAggregate
	opKNN
	opIDs
	opExport
	opHas
	opDeleteMany
	opIndex
	opBulk
	opFetch
	opIndexes
	opPutIndex
	opDropIndex
	opSums
	opDigest
	opSync
	opPlace
	opPlaced
	leafOps
)

// leafRoutes are the names of the methods in metrics and logs.
var leafRoutes = [leafOps]string{
	"ping", "info", "docs", "search", "stats", "agg", "knn", "ids", "export", "has",
	"delete_many", "index", "bulk",
	"fetch", "indexes", "put_index", "drop_index", "sums", "digest", "sync", "place", "placed",
}

// writes tells whether a call changes what an index holds, or which indexes there are.
func (op leafOp) writes() bool {
	switch op {
	case opDeleteMany, opIndex, opBulk, opPutIndex, opDropIndex, opSync:
		return true
	}
	return false
}

// shardLeaf is the node as a leaf of a serving tree.
type shardLeaf struct {
	node   *Node
	closed context.Context // ends with Close
	cancel context.CancelCauseFunc
}

// Leaf returns the node as a leaf and a member of a cluster, for callers in the same process and for the servers of the shard protocols.
// Its calls are admitted and counted like those over HTTP, and fail with the same problems. Closing it ends its calls, not the node.
func (n *Node) Leaf() leaf.Member {
	l := &shardLeaf{node: n}
	l.closed, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Close implements leaf.Leaf.
func (l *shardLeaf) Close() error {
	l.cancel(leaf.ErrClosed)
	return nil
}

// leafCall is one call of a leaf under way.
type leafCall struct {
	node    *Node
	ctx     context.Context // of the call; ends with the leaf and, once it is read, the index too
	name    string          // of the index
	asked   leaf.View       // how the call looks at it
	watch   *front.Stopwatch
	reading *reading // nil until the index is read
	view    view
	place   *admit.Place // nil until the call is admitted
}

// callLeaf runs one call from its arrival to its answer. Whoever goes by an older shard map than the node is refused before run.
func callLeaf[R any](ctx context.Context, l *shardLeaf, op leafOp, index string, asked leaf.View, run func(c *leafCall) (*R, error)) (reply *R, err error) {
	n := l.node
	seen := n.leafRoutes[op].Begin()
	id := obs.AcceptRequestID(obs.RequestID(ctx))
	status := http.StatusOK
	caller := ctx
	defer func() {
		if p := recover(); p != nil {
			n.cfg.Metrics.Panics.Inc()
			n.log.Error("panic in request", "request_id", id, "call", leafRoutes[op], "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			reply, err = nil, &api.Problem{Code: api.Internal, Detail: "the server failed; its log has more under the request id", RequestID: id}
			status = http.StatusInternalServerError
		}
		took := seen.End(status)
		n.log.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("call", leafRoutes[op]), slog.Int("status", status),
			slog.Duration("took", took), slog.String("request_id", id))
	}()
	if op.writes() && op != opDropIndex {
		ctx = withShardWrite(ctx)
	}
	ctx, cancel := context.WithCancelCause(obs.WithRequestID(ctx, id))
	defer cancel(nil)
	unhook := context.AfterFunc(l.closed, func() { cancel(leaf.ErrClosed) })
	defer unhook()

	c := &leafCall{node: n, ctx: ctx, name: index, asked: asked, watch: &front.Stopwatch{Began: seen.Start()}}
	defer c.release()
	switch {
	case caller.Err() != nil:
		err = context.Cause(caller)
	case l.closed.Err() != nil:
		err = leaf.ErrClosed
	case !n.front.Drain().Enter():
		err = front.ErrClosing
	default:
		defer n.front.Drain().Leave()
		var done func()
		if done, err = n.placed.enter(asked.Epoch, op.writes()); err != nil {
			break
		}
		defer done()
		if reply, err = run(c); err == nil {
			return reply, nil
		}
	}
	reply = nil
	status, err = c.failed(caller, l.closed, id, err)
	return reply, err
}

// failed is what a call ends with: the cause of its end where the caller or the closing of the leaf ended it, else a problem. An
// error of the caller's own function passes as it is, and so does a *leaf.TransportError, which knows more.
func (c *leafCall) failed(caller, closed context.Context, id string, err error) (status int, answer error) {
	if e, ok := err.(pageError); ok {
		if caller.Err() == nil {
			return http.StatusOK, e.error // the caller has what it wanted
		}
		return api.StatusCallerGone, e.error
	}
	if e, ok := err.(*leaf.TransportError); ok {
		return api.StatusCallerGone, e
	}
	p := c.node.problem(c.ctx, err)
	ended := p.Code == api.CallerGone || p.Code == api.Timeout
	if caller.Err() != nil {
		if cause := context.Cause(caller); ended || errors.Is(p, cause) || errors.Is(err, cause) {
			if errors.Is(cause, context.DeadlineExceeded) {
				return http.StatusGatewayTimeout, cause
			}
			return api.StatusCallerGone, cause
		}
	}
	if closed.Err() != nil && (ended || errors.Is(p, leaf.ErrClosed)) {
		return api.StatusCallerGone, leaf.ErrClosed
	}
	p.RequestID = id
	c.node.front.CountFailure(p)
	return p.HTTPStatus(), p
}

// release gives back what the call held.
func (c *leafCall) release() {
	c.view.release()
	if c.reading != nil {
		c.reading.release()
	}
	c.place.Release()
}

// index checks the name of the index.
func (c *leafCall) index() *api.Problem {
	if c.name == "" {
		c.name = api.DefaultIndex
		return nil
	}
	return api.CheckIndexName(c.name)
}

// enter waits for a place of the gate, nil for none, and says that the call has begun.
func (c *leafCall) enter(gate *admit.Gate) (err error) {
	if gate != nil {
		if c.place, err = gate.Enter(c.ctx, 1); err != nil {
			return err
		}
	}
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	serve.Begun(c.ctx)
	return nil
}

// read admits the call and takes a snapshot of its index. The index of the call has to be checked.
func (c *leafCall) read(gate *admit.Gate) (*view, error) {
	if prob := c.index(); prob != nil {
		return nil, prob
	}
	if err := c.enter(gate); err != nil {
		return nil, err
	}
	ctx, r, err := c.node.read(c.ctx, c.name)
	if err != nil {
		return nil, err
	}
	c.ctx, c.reading = ctx, r
	// Documents may be on their way out as soon as every member has a newer map: what was let in before it must not look after that.
	if have := c.node.placed.current().Epoch; c.asked.Epoch != 0 && c.asked.Epoch < have {
		return nil, olderEpoch(have, c.asked.Epoch)
	}
	c.watch.Lap(bound.StageQueue)
	if err := r.narrow(ctx, c.node, c.asked.Owned); err != nil {
		return nil, err
	}
	c.view.node, c.view.watch, c.view.lenient = c.node, c.watch, c.asked.Lenient
	if err := c.view.show(r.lease.index, r.snap); err != nil {
		return nil, err
	}
	return &c.view, nil
}

// ended is what has ended the call. It looks at the index itself as well, whose end reaches the context of the call a moment later.
func (c *leafCall) ended() error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	return context.Cause(c.reading.lease.ctx)
}

// meta ends the last stage and describes a reply about the snapshot that was read.
func (c *leafCall) meta(stage string, approximate ...string) leaf.Meta {
	c.watch.UpTo(stage)
	s := c.reading.snap
	state := leaf.Snapshot{Instance: c.reading.lease.instance, Version: s.Version(), CommitTS: s.CommitTS()}
	return leaf.Meta{Snapshot: state, Timings: c.watch.Laps, Approximate: approximate}
}

// metaAfter is meta for a reply to a write.
func (c *leafCall) metaAfter(after leaf.Snapshot) leaf.Meta {
	c.watch.UpTo(stageWrite)
	return leaf.Meta{Snapshot: after, Timings: c.watch.Laps}
}

// searched counts the stages and the outcome of a call that searched and ended with err, and logs a slow one.
func (c *leafCall) searched(op leafOp, err error, attrs ...slog.Attr) {
	outcome := "answered"
	switch {
	case err != nil:
		outcome = string(c.node.problem(c.ctx, err).Code)
	case c.view.partial:
		outcome = "partial"
		c.node.cfg.Metrics.Partial.Inc()
	}
	c.node.recordSearch(c.ctx, c.watch, append(attrs, slog.String("route", leafRoutes[op]), slog.String("index", c.name), slog.String("outcome", outcome))...)
}

// tooMany is the refusal of a list over its limit.
func tooMany(field string, have, limit int) *api.Problem {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: %d are given, %d are allowed", field, have, limit)).On(field).Within(int64(limit))
}

// outside is the refusal of a number that is not from 0 to most.
func outside(field string, have, most int) *api.Problem {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: it is a number from 0 to %d (got %d)", field, most, have)).On(field).Within(int64(most))
}

// Ping implements leaf.Leaf. A node that is closing does not answer.
func (l *shardLeaf) Ping(ctx context.Context) (*leaf.PingReply, error) {
	return callLeaf(ctx, l, opPing, "", leaf.View{}, func(c *leafCall) (*leaf.PingReply, error) {
		serve.Begun(c.ctx)
		return &leaf.PingReply{Node: c.node.self.ID}, nil
	})
}

// Info implements leaf.Leaf.
func (l *shardLeaf) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return callLeaf(ctx, l, opInfo, req.Index, leaf.View{}, func(c *leafCall) (*leaf.InfoReply, error) {
		if _, err := c.read(nil); err != nil {
			return nil, err
		}
		reply := &leaf.InfoReply{Node: c.node.self.ID, Version: c.node.cfg.Version, Index: describe(c.reading.lease.index, c.reading.snap)}
		reply.Meta = c.meta(stageRead)
		return reply, nil
	})
}

// Docs implements leaf.Leaf.
func (l *shardLeaf) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return callLeaf(ctx, l, opDocs, req.Index, req.View, func(c *leafCall) (*leaf.DocsReply, error) {
		v, err := c.read(nil)
		if err != nil {
			return nil, err
		}
		return &leaf.DocsReply{Meta: c.meta(stageRead), Docs: v.snap.Docs()}, nil
	})
}
