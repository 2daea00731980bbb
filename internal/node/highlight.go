package node

import (
	"context"
	"fmt"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/highlight"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/summa"
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
	marks, err := x.fragments(ctx, h, x.rank.hits, &x.rank.notes)
	if err != nil {
		return nil, x.node.problem(ctx, err)
	}
	return marks, nil
}

// fragments renders the marked fragments of hits; nil when the time was over and the caller takes what was reached. What there is to say
// of them goes to notes.
func (v *view) fragments(ctx context.Context, h *highlight.Highlighter, hits []exec.Hit, notes *bound.Notes) ([][]byte, error) {
	out := make([][]byte, len(hits))
	var source []byte
	var size int64
	var written *summa.Documents
	for i := range hits {
		hit := &hits[i]
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			if v.tolerate(cause) {
				return nil, nil
			}
			return nil, cause
		}
		var err error
		if source, err = v.leaves[hit.Leaf].Source(hit.Doc, source[:0]); err != nil {
			return nil, fmt.Errorf("read source of a hit: %w", err)
		}
		fields, err := h.Fragments(source)
		if err != nil {
			// What came over Summa may have several values where the schema says one, or of another kind than it says.
			if written == nil {
				written = summa.NewDocuments(v.sch, jsondoc.Limits{})
			}
			doc, other := written.Reread(source)
			if other != nil {
				return nil, err
			}
			fields = h.Document(doc)
		}
		out[i] = bound.AppendFragments(nil, fields, notes)
		if size += int64(len(out[i])); size > v.node.cfg.Limits.ReplyBytes {
			return nil, bound.LongFragments(v.node.cfg.Limits.ReplyBytes)
		}
	}
	if err := v.charge(front.ReplyCopies * size); err != nil {
		return nil, err
	}
	return out, nil
}
