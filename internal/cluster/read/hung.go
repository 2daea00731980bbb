package read

import (
	"context"

	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// run makes the call of the member, and ends it where the member does not even answer pings. While it answers none the call is not made, but for one
// in an eighth of Hung, which pings it before.
func (l memberLeaf) run(ctx context.Context, t task) (any, error) {
	switch t.(type) {
	case streamTask, pingTask: // those have bounds of their own
		return t.run(ctx, l.m.Leaf)
	}
	hung := &leaf.TransportError{Address: l.m.Addr, Call: classNames[t.class()], Cause: members.ErrHung}
	if l.m.Gone(ctx, l.hung) && ctx.Err() == nil {
		return nil, hung
	}
	a := l.m.Attend(ctx, l.hung)
	v, err := t.run(a.Context(), l.m.Leaf)
	if a.End(err) && ctx.Err() == nil {
		err = hung
	}
	return v, err
}
