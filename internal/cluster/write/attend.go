package write

import (
	"context"
	"time"

	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// attended makes one call of a member, of documents, within a time. It is not made where the member has answered no pings lately and still does not:
// that would wait for nothing, and be taken up when the process goes on, long after others have written. And it is ended where the member does
// not answer pings while it is under way. What the member misses so is given to it later, as where it cannot be reached.
func attended[R any](ctx context.Context, w *Writer, t target, name string, limit time.Duration, writes bool, call func(ctx context.Context) (*R, error)) (*R, error) {
	ctx, cancel := within(ctx, limit)
	defer cancel()
	if t.Gone(ctx, w.o.Limits.Hung) {
		return nil, &leaf.TransportError{Address: t.Addr, Call: name, Cause: members.ErrHung}
	}
	a := t.Attend(ctx, w.o.Limits.Hung)
	reply, err := call(a.Context())
	if a.End(err) && ctx.Err() == nil {
		return nil, &leaf.TransportError{Address: t.Addr, Call: name, MaybeApplied: writes, Cause: members.ErrHung}
	}
	return reply, err
}
