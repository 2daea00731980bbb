package framed

import (
	"context"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
)

// HandlerOptions are the choices of a Handler. The zero value of a field is its default.
type HandlerOptions struct {
	MaxTimeout time.Duration // the longest that a request may take, whatever its timeout_ms; none by default
	MaxReply   int           // bytes of a reply: the server's Limits.MaxReply; frame.DefaultMaxFrame
	MaxFrame   int           // bytes of a request: the server's Limits.MaxFrame; frame.DefaultMaxFrame
}

// Handler answers the operations of framed JSON with a leaf.Leaf.
type Handler struct {
	leaf leaf.Leaf
	o    HandlerOptions
}

// NewHandler returns a handler that serves l. It does not close it.
func NewHandler(l leaf.Leaf, o HandlerOptions) *Handler {
	return &Handler{leaf: l, o: o}
}

// Handle is the frame.Handler.
func (h *Handler) Handle(ctx context.Context, request, reply []byte) ([]byte, frame.Verdict) {
	return reply, frame.Close
}

// Refuse writes what a frame.Server says in place of the handler, for frame.Server.Refuse.
func Refuse(dst []byte, r frame.Refusal) []byte { return dst }
