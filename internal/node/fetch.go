package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/shard/exec"
)

// fetch reads the sources of the hits; a nil entry is a document whose source is not kept or not asked for. The memory is the
// caller's to release, also after an error.
func (n *Node) fetch(ctx context.Context, leaves []exec.Leaf, hits []exec.Hit, pick bound.Selector) ([][]byte, *front.ReplyMemory, *api.Problem) {
	sources, held := make([][]byte, len(hits)), &front.ReplyMemory{}
	if pick.Nothing() {
		return sources, held, nil
	}
	var buf []byte
	for i, h := range hits {
		if i%64 == 63 && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return nil, held, n.problem(ctx, context.Cause(ctx))
		}
		// The buffer grows by one source after the other: the slices into an earlier, smaller one stay as they are.
		from := len(buf)
		out, err := leaves[h.Leaf].Source(h.Doc, buf)
		if err != nil {
			return nil, held, n.problem(ctx, fmt.Errorf("read source of a hit: %w", err))
		}
		if len(out) <= from {
			continue
		}
		buf = out
		if most := n.cfg.Limits.ReplyBytes; int64(len(buf)) > most {
			return nil, held, bound.LongSources(most)
		}
		if err := held.Grow(n.memory, int64(len(buf))); err != nil {
			return nil, held, n.problem(ctx, err)
		}
		src := buf[from:len(buf):len(buf)]
		if src, err = pick.Apply(src); err != nil {
			return nil, held, n.problem(ctx, fmt.Errorf("filter source of a hit: %w", err))
		}
		sources[i] = src
	}
	return sources, held, nil
}
