package read

import (
	"context"

	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// run makes the call of the member, and ends it where the member does not even answer pings.
func (l memberLeaf) run(ctx context.Context, t task) (any, error) {
	switch t.(type) {
	case streamTask, pingTask: // those have bounds of their own
		return t.run(ctx, l.m.Leaf)
	}
	a := l.m.Attend(ctx, l.hung)
	v, err := t.run(a.Context(), l.m.Leaf)
	if a.End(err) && ctx.Err() == nil {
		err = &leaf.TransportError{Address: l.m.Addr, Call: classNames[t.class()], Cause: members.ErrHung}
	}
	return v, err
}
