package node

import (
	"context"

	"github.com/weft-search/weft/internal/node/api"
)

// bindHighlight resolves the fields to highlight.
func (x *execution) bindHighlight() *api.Problem { return nil }

// highlight renders the marked fragments of each hit; nil without highlighting.
func (x *execution) highlight(_ context.Context, _ *replyMemory) ([][]byte, *api.Problem) {
	return nil, nil
}
