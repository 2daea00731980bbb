package coordinator

import (
	"context"
	"errors"
	"path"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/jobs"
	"github.com/weft-search/weft/internal/cluster/search"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
)

// schema is the schema of an index for searches. An index that no member has may be one that a group has lost: readers ask who they are.
func (c *Coordinator) schema(ctx context.Context, index string, fresh bool) (*schema.Schema, error) {
	sch, err := c.write.Schema(ctx, index, fresh)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.IndexNotFound {
		if _, lost := c.read.Info(ctx, &leaf.InfoRequest{Index: index}); lost != nil {
			return nil, lost
		}
	}
	return sch, err
}

// openWork makes what writes, searches and works in the background, on what New has made before.
func (c *Coordinator) openWork(undo *[]func() error) (err error) {
	l := c.cfg.Limits
	wo := write.Options{
		Store: c.cfg.Store, Memory: c.front.Memory(), BodyProblem: c.front.BodyProblem, Log: c.log,
		Limits: write.Limits{DocumentBytes: l.DocumentBytes, BulkIDs: l.BulkIDs, BulkErrors: l.BulkErrors, BulkStall: l.BulkStall},
	}
	if c.hints != nil {
		wo.Hints = c.hints
	}
	if c.write, err = write.New(c.members, wo); err != nil {
		return err
	}
	*undo = append(*undo, c.write.Close)
	c.whole = &whole{c.read, c.write, &c.above}
	c.leaf = &clusterLeaf{c: c, w: c.whole}
	c.searcher, err = search.New(search.Options{
		Member: c.whole, Schemas: c.schema, ReplyBytes: l.ReplyBytes, AggBytes: l.AggBytes, Memory: c.front.Memory(),
	})
	if err != nil {
		return err
	}
	jo := jobs.Options{
		Store: c.cfg.Store, FS: c.cfg.FS, Hints: c.hints, RepairEvery: c.cfg.RepairEvery,
		DocsPerSec: c.cfg.MoveDocsPerSec, BytesPerSec: c.cfg.MoveBytesPerSec, Log: c.log, Metrics: c.cfg.Metrics,
	}
	if c.cfg.DataDir != "" {
		jo.Dir = path.Join(c.cfg.DataDir, "jobs")
	}
	if c.jobs, err = jobs.New(c.members, jo); err != nil {
		return err
	}
	*undo = append(*undo, c.jobs.Close)
	return nil
}
