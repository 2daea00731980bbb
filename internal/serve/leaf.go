package serve

import (
	"context"
	"sync/atomic"
)

// Leaf is the seam of the tree: whatever answers a request, be it a shard in this process, a node behind a wire, a set of replicas or
// a Coordinator over further leaves.
//
// Contract: Call is safe for concurrent use; it returns promptly once ctx has ended, with an error, and leaves nothing running that
// ctx does not own; it does not change req. A list of ranked results in the reply is SORTED already, best first, by the order by which
// the coordinator merges: the coordinator interleaves lists and never sorts one. MergeTopK detects a list that is not.
//
// The context is the call's own and ends with it: a leaf that goes on with something after Call has returned uses context.WithoutCancel.
type Leaf[Q, R any] interface {
	Call(ctx context.Context, req Q) (R, error)
}

// LeafFunc is a function as a Leaf.
type LeafFunc[Q, R any] func(ctx context.Context, req Q) (R, error)

// Call implements Leaf.
func (f LeafFunc[Q, R]) Call(ctx context.Context, req Q) (R, error) { return f(ctx, req) }

// begunKey is the context key of a *begun.
type begunKey struct{}

type begun struct {
	said  atomic.Bool
	fn    func()
	above *begun
}

// Begun tells whoever waits for the call that it has left its queue and started: the server of a leaf calls it when it has got its
// place. It costs a look-up in ctx when nobody asked. It may be called more than once and from any goroutine.
func Begun(ctx context.Context) {
	b, ok := ctx.Value(begunKey{}).(*begun)
	if !ok {
		return
	}
	for ; b != nil; b = b.above {
		if !b.said.Swap(true) {
			b.fn()
		}
	}
}

// WithBegun returns a context whose first Begun calls fn, on the goroutine that says Begun; fn must not block. A Begun deeper in the
// tree reaches every WithBegun above it: when a part of a call has begun, the call has.
func WithBegun(ctx context.Context, fn func()) context.Context {
	above, _ := ctx.Value(begunKey{}).(*begun)
	return context.WithValue(ctx, begunKey{}, &begun{fn: fn, above: above})
}
