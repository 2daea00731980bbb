package serve

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultLeast is the Least of a Budget that sets none.
const DefaultLeast = time.Millisecond

// Budget divides the time of a caller between the calls that are made for it and the work that comes after them. Sub-deadlines come
// from what is left of the caller's time at the moment a call starts, never from a constant, so that every level of a tree keeps
// something back: a call's deadline is
//
//	now + (left − Reserve) · Share
//
// and never later than the caller's. Deadlines only shrink on the way down. Where the caller has none and Total sets none, the call
// has none. The zero Budget passes the caller's deadline on as it is.
type Budget struct {
	// Total is the longest that the level may take, counted from its beginning. It bounds callers that allow more, or set no deadline.
	// 0 or less is no bound.
	Total time.Duration
	// Reserve is kept back for what follows the calls: the merge, and the way back to the caller.
	Reserve time.Duration
	// Share is the part of the rest that a call gets, above 0 and at most 1; 0 stands for 1. Below 1 it leaves time to try elsewhere.
	Share float64
	// Least is the shortest time that is worth beginning with: a call that would get less is not started and counts as timed out at
	// once. 0 stands for DefaultLeast; below 0, any time above none is enough.
	Least time.Duration
}

// Validate complains of values out of range, all at once.
func (b Budget) Validate() error {
	var errs []error
	if b.Reserve < 0 {
		errs = append(errs, fmt.Errorf("budget: reserve %v is below 0", b.Reserve))
	}
	if !(b.Share >= 0 && b.Share <= 1) {
		errs = append(errs, fmt.Errorf("budget: share %v is not between 0 and 1", b.Share))
	}
	return errors.Join(errs...)
}

// End is when a level that begins now for the caller of ctx has to be done: the caller's deadline, or Total from now if that is
// sooner. It is false if there is no such time.
func (b Budget) End(ctx context.Context, now time.Time) (time.Time, bool) {
	end, ok := ctx.Deadline()
	if b.Total > 0 {
		if own := now.Add(b.Total); !ok || own.Before(end) {
			return own, true
		}
	}
	return end, ok
}

// Deadline is the deadline of a call that starts now, on a level that has to be done by end. It is false when too little time is left
// to start the call at all.
func (b Budget) Deadline(end, now time.Time) (time.Time, bool) {
	d := end.Add(-max(b.Reserve, 0))
	left := d.Sub(now)
	if share := b.share(); share < 1 {
		left = time.Duration(float64(left) * share)
		d = now.Add(left)
	}
	return d, left > 0 && left >= b.least()
}

func (b Budget) share() float64 {
	if b.Share > 0 && b.Share < 1 {
		return b.Share
	}
	return 1
}

func (b Budget) least() time.Duration {
	if b.Least == 0 {
		return DefaultLeast
	}
	return b.Least
}
