package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// target is a member that a write goes to.
type target struct {
	*members.Member
	group int // its ordinal
}

// targets are all members of groups, in their order.
func targets(groups ...*members.Group) []target {
	n := 0
	for _, g := range groups {
		n += len(g.Members)
	}
	out := make([]target, 0, n)
	for _, g := range groups {
		for _, m := range g.Members {
			out = append(out, target{m, g.Ordinal})
		}
	}
	return out
}

// got is what became of a write at one member.
type got[R any] struct {
	target
	reply *R
	err   error
	took  time.Duration
}

// each runs fn for every number below n at once and waits for all.
func each(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		wg.Go(func() {
			serve.Deepen()
			fn(i)
		})
	}
	if n > 0 {
		fn(0) // the caller has nothing else to do
	}
	wg.Wait()
}

// fan makes one call, which bounds its own time, at every target at once. A call that is known to have had no effect is made once more, but for refusals for want of
// room that all targets agree on: these are the answer. The error is a *staleError; what else went wrong is in the list.
func fan[R any](ctx context.Context, w *Writer, to []target, call func(ctx context.Context, t target) (*R, error)) ([]got[R], error) {
	list := make([]got[R], len(to))
	one := func(i int) {
		g := &list[i]
		g.target = to[i]
		began := time.Now()
		g.reply, g.err = call(ctx, to[i])
		g.took += time.Since(began)
		if g.err != nil {
			g.reply = nil
			w.faults.note(g.Addr, g.err)
		}
	}
	each(len(to), one)
	if err := stale(list); err != nil {
		return nil, err
	}
	again, wait := retries(list)
	if len(again) == 0 || pause(ctx, wait) != nil {
		return list, nil
	}
	w.count.retried.Add(uint64(len(again)))
	each(len(again), func(k int) { one(again[k]) })
	return list, stale(list)
}

// stale is the refusal of the shard map by any of the members, nil if there is none.
func stale[R any](list []got[R]) error {
	var refused *staleError
	applied := false
	for i := range list {
		switch err := list[i].err; {
		case members.IsStale(err):
			if refused == nil {
				refused = &staleError{cause: err}
			}
		case !refusal(err):
			applied = true
		}
	}
	if refused == nil {
		return nil
	}
	refused.applied = applied
	return refused
}

// Bounds of the wait before a call is made again.
const (
	leastWait = 5 * time.Millisecond
	mostWait  = 250 * time.Millisecond
)

// retries are the calls to be made again, and how long to wait before.
func retries[R any](list []got[R]) (again []int, wait time.Duration) {
	full := 0
	for i := range list {
		if err := list[i].err; leaf.RetryWrite(err) && !errors.Is(err, members.ErrHung) {
			again = append(again, i)
			p, ok := errors.AsType[*api.Problem](err)
			if ok {
				full++
				wait = max(wait, min(time.Duration(p.RetryAfterMS)*time.Millisecond, mostWait), leastWait)
			}
		}
	}
	if full == len(list) {
		return nil, 0
	}
	return again, wait
}

// refusal tells whether an error of a member says that a write had no effect there.
func refusal(err error) bool {
	if err == nil {
		return false
	}
	if leaf.RetryWrite(err) {
		return true
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Code == api.DiskFull || fault(p) || p.Code == api.LoadUnderWay
	}
	// Without MaybeApplied a member that was not reached has nothing, also where its caller ran out of time.
	e, ok := errors.AsType[*leaf.TransportError](err)
	return ok && !e.MaybeApplied
}

// fault tells whether a problem is that of the request or its document, so that it had no effect and never will.
func fault(p *api.Problem) bool {
	status := p.HTTPStatus()
	return status >= http.StatusBadRequest && status < api.StatusCallerGone && status != http.StatusTooManyRequests &&
		status != http.StatusRequestTimeout && p.Code != api.StaleMap && p.Code != api.LoadUnderWay
}

// partialError says that a member is a coordinator whose own members did not all apply a write.
type partialError struct{ failed []string }

func (e *partialError) Error() string {
	return "the write is not in at all members below: " + strings.Join(e.failed, ", ")
}

// Outcome implements serve.Outcomer.
func (e *partialError) Outcome() serve.Outcome { return serve.Failed }

// partial is the error of a reply whose accounting has failures; nil if it has none.
func partial(meta *leaf.Meta) error {
	if b := meta.Below; b != nil && b.Shards.Failed > 0 {
		return &partialError{b.Shards.FailedAddresses}
	}
	return nil
}

// applied are the replies of the members that applied a write, in order.
func applied[R any](list []got[R]) []got[R] {
	out := make([]got[R], 0, len(list))
	for i := range list {
		if list[i].err == nil {
			out = append(out, list[i])
		}
	}
	return out
}

// maybe tells whether any member may have a write.
func maybe[R any](list []got[R]) bool {
	return slices.ContainsFunc(list, func(g got[R]) bool { return !refusal(g.err) })
}

// verdict is the error of a write that no member has confirmed.
func verdict[R any](ctx context.Context, call string, list []got[R]) error {
	if cause := context.Cause(ctx); cause != nil {
		return ended(call, cause, maybe(list))
	}
	errs := make([]error, len(list))
	addrs := make([]string, len(list))
	for i := range list {
		errs[i], addrs[i] = list[i].err, list[i].Addr
	}
	// What is wrong with the request is said before who is busy, and that before who is not there.
	var best *api.Problem
	for _, err := range errs {
		p, ok := errors.AsType[*api.Problem](err)
		if ok && refusal(err) && (best == nil || urgency(p) > urgency(best)) {
			best = p
		}
	}
	if best != nil && (fault(best) || !maybe(list)) {
		p := *best
		for _, err := range errs {
			if other, ok := errors.AsType[*api.Problem](err); ok && other.Code == p.Code {
				p.RetryAfterMS = max(p.RetryAfterMS, other.RetryAfterMS)
			}
		}
		return &p
	}
	if maybe(list) {
		return &api.Problem{
			Code: api.WriteUncertain, Cause: errors.Join(errs...),
			Detail: "no member has confirmed the write, and some may have applied it: " + strings.Join(addrs, ", "),
		}
	}
	return unavailable(addrs, errors.Join(errs...))
}

// urgency orders refusals by how much they tell.
func urgency(p *api.Problem) int {
	switch {
	case fault(p):
		return 3
	case p.HTTPStatus() == http.StatusTooManyRequests:
		return 2
	case p.Code == api.DiskFull:
		return 1
	}
	return 0
}

// unavailable is the refusal of a write to a group of which no member can be reached.
func unavailable(addrs []string, cause error) *api.Problem {
	return &api.Problem{
		Code: api.GroupUnavailable, RetryAfterMS: 1000, Cause: cause,
		Detail: fmt.Sprintf("no member of the group can be reached: %s", strings.Join(addrs, ", ")),
	}
}

// account is what became of a write at each of its members.
type account struct {
	list  []target
	index map[string]int
	errs  []error // nil: applied
	took  []time.Duration
}

func (a *account) at(t target) int {
	if i, ok := a.index[t.Addr]; ok {
		return i
	}
	if a.index == nil {
		a.index = map[string]int{}
	}
	a.index[t.Addr] = len(a.list)
	a.list, a.errs, a.took = append(a.list, t), append(a.errs, nil), append(a.took, 0)
	return len(a.list) - 1
}

// note adds a call; the first error of a member stays.
func (a *account) note(t target, err error, took time.Duration) {
	i := a.at(t)
	if a.took[i] += took; a.errs[i] == nil {
		a.errs[i] = err
	}
}

func noteAll[R any](a *account, list []got[R]) {
	for i := range list {
		a.note(list[i].target, list[i].err, list[i].took)
	}
}

// failed tells whether any member has failed.
func (a *account) failed() bool {
	return slices.ContainsFunc(a.errs, func(err error) bool { return err != nil })
}

// left is the error of a write that is not in at all members and whose caller has left: nobody is there to be told by whom it was missed.
func (a *account) left(ctx context.Context, call string) error {
	if cause := context.Cause(ctx); cause != nil && a.failed() {
		return ended(call, cause, true)
	}
	return nil
}

// below describes the account: every member that the write was for, with the ordinal of its group.
func (a *account) below() *leaf.Below {
	order := make([]int, len(a.list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return a.list[x].group - a.list[y].group })
	b := &leaf.Below{}
	for _, i := range order {
		one := api.ShardOutcome{Shard: a.list[i].group, Address: a.list[i].Addr, Outcome: api.Answered, Micros: api.Micros(a.took[i])}
		if a.errs[i] != nil {
			one.Outcome = outcome(leaf.OutcomeOf(a.errs[i]))
		}
		b.Shards.Count(one)
	}
	return b
}

func (a *account) members() api.Members { return membersOf(a.below()) }

// outcome is how the call of a member that failed is told of.
func outcome(o serve.Outcome) api.Outcome {
	switch o {
	case serve.TimedOut:
		return api.TimedOut
	case serve.Refused:
		return api.Refused
	case serve.Unavailable:
		return api.Unavailable
	}
	return api.Failed
}

func membersOf(b *leaf.Below) api.Members {
	return api.Members{OK: b.Shards.OK, Total: b.Shards.Total, FailedAddresses: b.Shards.FailedAddresses}
}

// Members says who applied a write, by the Meta of a reply of a Writer, or of a node, which is the only member of its group.
func Members(m *leaf.Meta) api.Members {
	if m.Below == nil {
		return api.Members{OK: 1, Total: 1}
	}
	return membersOf(m.Below)
}

// errUnequal is the failure of a member that could not be made equal to the first of its group.
var errUnequal = errors.New("the member has another state of the document than the first, and could not be made equal to it")
