package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// rollTime is how long a member may take to say that it is there.
const rollTime = 2 * time.Second

// memberError is what a member failed with.
type memberError struct {
	addr, call string
	err        error
}

// Error is one sentence for whoever gave the order: it names the member once, and not the call. What connections fail with names the
// address again and again.
func (e *memberError) Error() string {
	if p, ok := errors.AsType[*api.Problem](e.err); ok {
		return fmt.Sprintf("%s answers with the error %s", e.addr, p.Error())
	}
	if why, silent := leaf.Silent(e.err); silent {
		return fmt.Sprintf("%s does not answer: %s", e.addr, why)
	}
	return fmt.Sprintf("%s: %v", e.addr, e.err)
}

func (e *memberError) Unwrap() error { return e.err }

// awayError says which members do not answer.
type awayError struct{ members []*memberError }

func (e *awayError) Error() string {
	if len(e.members) == 1 {
		return e.members[0].Error()
	}
	return fmt.Sprintf("%d members do not answer: %s", len(e.members), strings.Join(e.addresses(), ", "))
}

func (e *awayError) Unwrap() []error {
	out := make([]error, len(e.members))
	for i, m := range e.members {
		out[i] = m
	}
	return out
}

func (e *awayError) addresses() []string {
	out := make([]string, len(e.members))
	for i, m := range e.members {
		out[i] = m.addr
	}
	return out
}

// roll asks all members of a state at once whether they are there. Its error is the end of the context, or an *awayError in the order of
// the map.
func roll(ctx context.Context, st *members.State) error { return rollOf(ctx, everyone(st)) }

// silentOf are those of members that do not answer. The error is the end of the context.
func silentOf(ctx context.Context, of []*members.Member) ([]string, error) {
	err := rollOf(ctx, of)
	if away, ok := errors.AsType[*awayError](err); ok {
		return away.addresses(), nil
	}
	return nil, err
}

// rollOf is roll for some members.
func rollOf(ctx context.Context, all []*members.Member) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, rollTime)
			defer cancel()
			_, errs[i] = m.Leaf.Ping(ctx)
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	away := &awayError{}
	for i, m := range all {
		// One that refuses the question is there.
		if errs[i] != nil && leaf.ClassOf(errs[i]) == leaf.Elsewhere {
			away.members = append(away.members, &memberError{m.Addr, "Ping", errs[i]})
		}
	}
	if len(away.members) == 0 {
		return nil
	}
	return away
}

// away lists the members that a job waits for, in the order of the map: those that do not answer, and the one that err is about, if it may
// do better later.
func (r *Runner) away(ctx context.Context, err error) []string {
	all, ok := errors.AsType[*awayError](err)
	if ok {
		return all.addresses()
	}
	st := r.c.State()
	if st == nil {
		return nil
	}
	var found []string
	if all, ok = errors.AsType[*awayError](roll(ctx, st)); ok {
		found = all.addresses()
	}
	one, ok := errors.AsType[*memberError](err)
	if !ok || leaf.ClassOf(one.err) != leaf.Elsewhere || slices.Contains(found, one.addr) {
		return found
	}
	var out []string
	for _, m := range everyone(st) {
		if m.Addr == one.addr || slices.Contains(found, m.Addr) {
			out = append(out, m.Addr)
		}
	}
	return out
}
