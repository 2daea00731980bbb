package node

import (
	"context"
	"fmt"
	"io"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// DeleteMany implements leaf.Leaf.
func (l *shardLeaf) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return callLeaf(ctx, l, opDeleteMany, req.Index, req.View, func(c *leafCall) (*leaf.DeleteReply, error) {
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
		if prob := c.index(); prob != nil {
			return nil, prob
		}
		if err := c.enter(c.node.writes); err != nil {
			return nil, err
		}
		c.watch.Lap(bound.StageQueue)
		// As many ids as there may be fit into one batch of a shard, however long they are.
		deleted, _, after, err := c.node.deleteDocuments(c.ctx, c.name, ids)
		if err != nil {
			return nil, err
		}
		return &leaf.DeleteReply{Meta: c.metaAfter(after), Deleted: uint64(deleted)}, nil
	})
}

// Index implements leaf.Leaf.
func (l *shardLeaf) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return callLeaf(ctx, l, opIndex, req.Index, req.View, func(c *leafCall) (*leaf.IndexReply, error) {
		if prob := c.index(); prob != nil {
			return nil, prob
		}
		n := c.node
		if most := n.cfg.Limits.DocumentBytes; int64(len(req.Body)) > most {
			return nil, api.NewProblem(api.DocumentTooLarge, fmt.Sprintf("the body is longer than %d bytes", most)).Within(most)
		}
		if prob := req.Mark.Check(); prob != nil {
			return nil, prob
		}
		if len(req.Body) > 0 {
			held, err := n.memory.Enter(c.ctx, int64(len(req.Body)))
			if err != nil {
				return nil, err
			}
			defer held.Release()
		}
		leave, err := n.enterWrite(c.ctx, len(req.Body))
		if err != nil {
			return nil, err
		}
		defer leave()
		serve.Begun(c.ctx)
		c.watch.Lap(bound.StageQueue)
		reply, after, prob := n.writeDocument(c.ctx, c.name, req.Body, req.Existing, req.Mark)
		if prob != nil {
			return nil, prob
		}
		reply.Meta = c.metaAfter(after)
		return reply, nil
	})
}

// Bulk implements leaf.Leaf. How long the stream may stand still is bounded by who calls, as far as it is not room in a memtable that
// it waits for.
func (l *shardLeaf) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	return callLeaf(ctx, l, opBulk, req.Index, req.View, func(c *leafCall) (*leaf.BulkReply, error) {
		if len(req.Key) > leaf.MaxBulkKey {
			return nil, tooMany("key", len(req.Key), leaf.MaxBulkKey)
		}
		if prob := c.index(); prob != nil {
			return nil, prob
		}
		if err := c.enter(c.node.bulks); err != nil {
			return nil, err
		}
		c.watch.Lap(bound.StageQueue)
		load, prob := c.node.load(c.ctx, loading{name: c.name, key: req.Key, start: c.watch.Began, existing: req.Existing}, func(ctx context.Context) (io.Reader, func()) { return &boundReader{ctx, body}, func() {} })
		if prob != nil {
			return nil, prob
		}
		if broken := load.broken; broken != nil {
			// Whoever reads the reply has to be there still: else the error says what is known.
			cause := context.Cause(ctx)
			if cause == nil {
				cause = context.Cause(l.closed)
			}
			if cause != nil && load.applied {
				return nil, &leaf.TransportError{Address: c.node.address(), Call: "Bulk", MaybeApplied: true, Cause: cause}
			}
			if !load.applied {
				return nil, broken
			}
		}
		// Documents that were refused one by one are no error, also when none was left.
		if p := load.refused(); p != nil && p.Code != api.NothingApplied {
			return nil, p
		}
		reply := &leaf.BulkReply{Meta: c.metaAfter(load.after), BulkReply: load.reply, Repeated: load.repeated}
		if load.reply.DuplicatesAtLeast {
			reply.Approximate = []string{leaf.ApproximateRepeats}
		}
		return reply, nil
	})
}

// boundReader is not read any more when its context has ended.
type boundReader struct {
	ctx context.Context
	src io.Reader
}

func (r *boundReader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	n, err := r.src.Read(b)
	if cause := context.Cause(r.ctx); err != nil && err != io.EOF && cause != nil {
		err = cause
	}
	return n, err
}
