package node

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
)

// highlight renders the marked fragments of each hit; nil without highlighting.
func (x *execution) highlight(ctx context.Context) ([][]byte, *api.Problem) {
	if x.req.Highlight == nil {
		return nil, nil
	}
	defer x.watch.Lap(bound.StageHighlight)
	h, err := x.bound.Highlighter(x.req, x.query, x.sch, x.analyzers)
	if err != nil {
		return nil, x.node.problem(ctx, err)
	}
	out := make([][]byte, len(x.rank.hits))
	var source []byte
	var size int64
	for i := range x.rank.hits {
		hit := &x.rank.hits[i]
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			if x.tolerate(cause) {
				return nil, nil
			}
			return nil, x.node.problem(ctx, cause)
		}
		if source, err = x.leaves[hit.Leaf].Source(hit.Doc, source[:0]); err != nil {
			return nil, x.node.problem(ctx, fmt.Errorf("read source of a hit: %w", err))
		}
		fields, err := h.Fragments(source)
		if err != nil {
			return nil, x.node.problem(ctx, err)
		}
		out[i] = bound.AppendFragments(nil, fields, &x.rank.notes)
		if size += int64(len(out[i])); size > x.node.cfg.Limits.ReplyBytes {
			return nil, bound.LongFragments(x.node.cfg.Limits.ReplyBytes)
		}
	}
	if err := x.charge(front.ReplyCopies * size); err != nil {
		return nil, x.node.problem(ctx, err)
	}
	return out, nil
}
