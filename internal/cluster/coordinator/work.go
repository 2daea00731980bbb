package coordinator

import (
	"github.com/weft-search/weft/internal/cluster/jobs"
	"github.com/weft-search/weft/internal/cluster/search"
	"github.com/weft-search/weft/internal/cluster/write"
)

// openWork makes what writes, searches and works in the background, on what New has made before.
func (c *Coordinator) openWork(undo *[]func() error) (err error) {
	l := c.cfg.Limits
	wo := write.Options{
		Memory: c.front.Memory(), BodyProblem: c.front.BodyProblem, Log: c.log,
		Limits: write.Limits{DocumentBytes: l.DocumentBytes, BulkIDs: l.BulkIDs, BulkErrors: l.BulkErrors, BulkStall: l.BulkStall},
	}
	if c.hints != nil {
		wo.Hints = c.hints
	}
	if c.write, err = write.New(c.members, wo); err != nil {
		return err
	}
	*undo = append(*undo, c.write.Close)
	c.leaf = &clusterLeaf{c: c, r: c.read, w: c.write}
	c.searcher, err = search.New(search.Options{
		Member: c.leaf, Schemas: c.write.Schema, ReplyBytes: l.ReplyBytes, AggBytes: l.AggBytes, Memory: c.front.Memory(),
	})
	if err != nil {
		return err
	}
	c.jobs = &jobs.Runner{}
	*undo = append(*undo, c.jobs.Close)
	return nil
}
