package node

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// Indexes implements leaf.Member.
func (l *shardLeaf) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return callLeaf(ctx, l, opIndexes, "", leaf.View{}, func(c *leafCall) (*leaf.IndexesReply, error) {
		if err := c.enter(nil); err != nil {
			return nil, err
		}
		reply := &leaf.IndexesReply{}
		for _, i := range c.node.catalog.list() {
			reply.Indexes = append(reply.Indexes, c.node.info(i))
		}
		c.watch.Lap(stageRead)
		reply.Timings = c.watch.Laps
		return reply, nil
	})
}

// PutIndex implements leaf.Member. It is PUT /indexes/{name} with SDL.
func (l *shardLeaf) PutIndex(ctx context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return callLeaf(ctx, l, opPutIndex, req.Index, leaf.View{Epoch: req.Epoch}, func(c *leafCall) (*leaf.PutIndexReply, error) {
		if prob := c.index(); prob != nil {
			return nil, prob
		}
		n := c.node
		// Whatever schema another member has come to have is taken.
		if most := max(n.cfg.Limits.SchemaBytes, schema.MaxSourceBytes); int64(len(req.Schema)) > most {
			return nil, api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the schema is longer than %d bytes", most)).On("schema").Within(most)
		}
		if len(req.Schema) > 0 {
			held, err := n.memory.Enter(c.ctx, int64(len(req.Schema)))
			if err != nil {
				return nil, err
			}
			defer held.Release()
		}
		sch, prob := api.ReadSchema(c.name, false, []byte(req.Schema), text.Check)
		if prob != nil {
			return nil, prob
		}
		if err := c.enter(n.writes); err != nil {
			return nil, err
		}
		c.watch.Lap(bound.StageQueue)
		lease, made, err := n.declare(c.ctx, c.name, sch, req.Schema != "", "")
		if err != nil {
			return nil, err
		}
		defer lease.release()
		return &leaf.PutIndexReply{Meta: c.metaAfter(lease.state()), Made: made, Info: n.info(lease.index)}, nil
	})
}

// DropIndex implements leaf.Member. It is DELETE /indexes/{name}.
func (l *shardLeaf) DropIndex(ctx context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return callLeaf(ctx, l, opDropIndex, req.Index, leaf.View{Epoch: req.Epoch}, func(c *leafCall) (*leaf.DropIndexReply, error) {
		if prob := c.index(); prob != nil {
			return nil, prob
		}
		if err := c.enter(c.node.writes); err != nil {
			return nil, err
		}
		c.watch.Lap(bound.StageQueue)
		info, err := c.node.drop(c.ctx, c.name)
		if err != nil {
			return nil, err
		}
		return &leaf.DropIndexReply{Meta: c.metaAfter(leaf.Snapshot{}), Info: info}, nil
	})
}
