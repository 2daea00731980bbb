package write

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// A load that has a name is known to its members chunk by chunk, and which chunks it has depends on which groups own its documents. So a
// load that is sent again after documents were moved would be taken for another one, and undo what was written since. Therefore the
// members of the first group remember of each such load by which placement it was begun, and whether it went on by another one. They do
// so with empty loads whose keys say it; a load of one line that is no document asks for such a key without leaving anything behind.
const (
	claimBegun  = "begun"     // the load was begun
	claimPlaced = "placed by" // with a placement behind it: it was begun by that
	claimMoved  = "moved"     // it went on by another placement than it was begun by
)

const noDocument = "-\n"

// claim is what is known of the claim of a load.
type claim struct {
	placed string // the placement by which it was made; empty: it is to be made
	again  bool   // it had been made before: the load is sent again
	moved  bool   // that it went on by another one is written down
	failed error  // why nothing of the load may be sent
}

// placementOf names where documents are written to.
func placementOf(st *members.State) string {
	var b strings.Builder
	for _, s := range st.Map.Writes() {
		s = s.Normal()
		b.WriteString(string(s.Rule) + " " + strconv.Itoa(s.Shards) + " " + strconv.Itoa(s.VNodes) + ";")
	}
	return b.String()
}

// claimed sees to it that a chunk of the load may be sent by a shard map. Its error is a *staleError, or why nothing of the load may be sent.
func (l *load) claimed(ctx context.Context, st *members.State, ch *chunk) error {
	if l.key == "" {
		return nil
	}
	now := placementOf(st)
	l.claiming.Lock()
	defer l.claiming.Unlock()
	c := &l.claim
	if c.failed != nil {
		return c.failed
	}
	var err error
	if c.placed == "" {
		err = l.begin(ctx, st, ch.ty, now)
	}
	// A chunk that was cut by another map than it is sent by is not one that the load would have if it was cut by this one.
	if err == nil && (c.placed != now || ch.cut != now) {
		switch {
		case c.again:
			// Members would not know it, and apply it over what was written since.
			err = loadMoved()
		case !c.moved:
			// Its chunks are not those that it would have if it was sent again, whichever placement there will be then.
			_, err = l.mark(ctx, st, ch.ty, true, claimMoved)
			c.moved = err == nil
		}
	}
	if _, again := errors.AsType[*staleError](err); !again {
		c.failed = err
	}
	return err
}

// loadMoved refuses a load that is sent again, or what is left of it.
func loadMoved() *api.Problem {
	return api.NewProblem(api.LoadMoved, "a load with this key was begun when documents were placed otherwise: what of it is in cannot be told")
}

// begin makes the claim, or finds it made by the same placement.
func (l *load) begin(ctx context.Context, st *members.State, ty *typing, now string) error {
	begun, err := l.mark(ctx, st, ty, false, claimBegun)
	if err != nil {
		return err
	}
	if begun {
		here, err := l.mark(ctx, st, ty, false, claimPlaced, now)
		if err != nil {
			return err
		}
		moved, err := l.mark(ctx, st, ty, false, claimMoved)
		if err != nil {
			return err
		}
		if !here || moved {
			return loadMoved()
		}
	}
	// In this order: a claim of which only the first half was made is none. Members that missed an earlier one are given it.
	if _, err := l.mark(ctx, st, ty, true, claimPlaced, now); err != nil {
		return err
	}
	if _, err := l.mark(ctx, st, ty, true, claimBegun); err != nil {
		return err
	}
	l.claim.placed, l.claim.again = now, begun
	return nil
}

// sentBefore asks the members of a chunk of a load that is sent again which of them took it then. Where some did and some did not, the
// replies say who; else, and of a load that is new, there are none.
//
// Those who did not may have what was written since, for that came to all of them. They must not apply what is older: it would stand
// there until the members are compared, and for good if this process ends before that.
func (l *load) sentBefore(ctx context.Context, st *members.State, to []target, c *chunk, key string) []got[leaf.BulkReply] {
	l.claiming.Lock()
	again := l.claim.again
	l.claiming.Unlock()
	if !again || len(to) < 2 {
		return nil
	}
	asked := make([]got[leaf.BulkReply], len(to))
	each(len(to), func(i int) {
		g := &asked[i]
		g.target = to[i]
		g.reply, g.err = l.sendTo(ctx, to[i], func() (*leaf.BulkReply, error) {
			return l.bulkAt(ctx, st, to[i], c.ty, key, []byte(noDocument))
		})
	})
	took := 0
	for i := range asked {
		if asked[i].err == nil && asked[i].reply.Repeated {
			took++
		}
	}
	if took == 0 || took == len(to) {
		return nil
	}
	return asked
}

// errTakenBefore is the failure of a member that did not take a chunk before, where those who did do not answer.
var errTakenBefore = errors.New("members that took this part of the load before do not answer")

// adopt gives members that did not take a chunk before, and were not sent it again, the word of one that did: they are made equal to it.
func adopt(list, asked []got[leaf.BulkReply]) {
	from := slices.IndexFunc(list, func(g got[leaf.BulkReply]) bool { return g.reply != nil && g.reply.Repeated })
	for i := range list {
		switch {
		case asked[i].err != nil:
			list[i].err = asked[i].err
		case asked[i].reply.Repeated:
		case from < 0:
			list[i].err = &leaf.TransportError{Address: list[i].Addr, Call: "Bulk", Cause: errTakenBefore}
		default:
			reply := *list[from].reply
			reply.Repeated = false
			list[i].reply = &reply
		}
	}
}

// mark asks the members of the first group whether they know something of the load and, with set, makes them know it.
func (l *load) mark(ctx context.Context, st *members.State, ty *typing, set bool, what ...string) (known bool, err error) {
	h := xxh3.New()
	for _, part := range append([]string{"claim", l.key}, what...) {
		h.WriteString(part)   //nolint:errcheck // it never fails
		h.WriteString("\x00") //nolint:errcheck // it never fails
	}
	sum := h.Sum128().Bytes()
	return l.tell(ctx, st, ty, hex.EncodeToString(sum[:]), set)
}

// tell asks the members of the first group whether they know a key and, with set, makes them know it. One that answers is enough.
func (l *load) tell(ctx context.Context, st *members.State, ty *typing, key string, set bool) (known bool, err error) {
	body := noDocument
	if set {
		body = ""
	}
	to := slices.DeleteFunc(targets(st.Groups[0]), func(t target) bool { return l.isHung(t.Addr) })
	giveUp := time.Now().Add(l.w.o.Limits.BulkStall)
	for {
		list, err := fan(ctx, l.w, to, func(ctx context.Context, t target) (*leaf.BulkReply, error) {
			return l.bulkAt(ctx, st, t, ty, key, []byte(body))
		})
		if err != nil {
			return false, err
		}
		in := applied(list)
		if len(in) > 0 {
			return slices.ContainsFunc(in, func(g got[leaf.BulkReply]) bool { return g.reply.Repeated }), nil
		}
		err = verdict(ctx, "Bulk", list)
		wait, full := roomIn(err)
		if !full || time.Now().Add(wait).After(giveUp) {
			return false, asProblem(ctx, err)
		}
		if cause := pause(ctx, wait); cause != nil {
			return false, asProblem(ctx, err)
		}
	}
}

// relay is a load without a document, with a key, that came from a coordinator above: it is a mark of that one, and it is kept where the
// marks of this one are.
func (l *load) relay(ctx context.Context) error {
	ty, err := l.ix.current(ctx, l.st, time.Now(), true)
	if err != nil || ty.absent {
		return err
	}
	for try := 0; ; try++ {
		known, err := l.tell(ctx, l.st, ty, l.key, l.reply.Failed == 0)
		if members.IsStale(err) && try < maxStale {
			if l.st, err = l.w.src.Stale(ctx, l.st); err == nil {
				continue
			}
		}
		if err == nil && known {
			l.sent, l.repeated, l.reply.Failed, l.failures, l.listed = 1, 1, 0, nil, 0
		}
		return err
	}
}
