package serve

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrInsufficientShards is matched by the error of a Coordinator whose children answered too seldom for its Floor.
var ErrInsufficientShards = errors.New("too few shards answered")

// InsufficientError says which floor was missed and what became of each child. It matches ErrInsufficientShards.
type InsufficientError struct {
	Floor    Floor
	Tally    Tally           // the leaves at the bottom of the tree
	Outcomes []Outcome       // of the children, by index
	Errs     []error         // of the children, by index; nil where one answered or was skipped
	Took     []time.Duration // of the children, by index
}

// Error implements error.
func (e *InsufficientError) Error() string {
	return fmt.Sprintf("%v: %v", ErrInsufficientShards, e.Tally)
}

// Is reports that the error is ErrInsufficientShards.
func (e *InsufficientError) Is(target error) bool { return target == ErrInsufficientShards }

// Outcome is the one that most of the missing leaves had.
func (e *InsufficientError) Outcome() Outcome { return e.Tally.mostMissing() }

// Crash tells whether a child crashed.
func (e *InsufficientError) Crash() bool {
	for _, err := range e.Errs {
		if Crashed(err) {
			return true
		}
	}
	return false
}

// Floor is the good-enough cutoff: how many leaves have to be covered for an answer to be given. Both must hold. The zero Floor asks for
// nothing more than what always holds: that at least one leaf is covered, where there are any.
type Floor struct {
	Fraction float64 // of all leaves, from 0 to 1
	Shards   int     // a count of leaves
}

// Validate complains of values out of range.
func (f Floor) Validate() error {
	var errs []error
	if !(f.Fraction >= 0 && f.Fraction <= 1) {
		errs = append(errs, fmt.Errorf("floor: fraction %v is not between 0 and 1", f.Fraction))
	}
	if f.Shards < 0 {
		errs = append(errs, fmt.Errorf("floor: %d shards is below 0", f.Shards))
	}
	return errors.Join(errs...)
}

// Holds tells whether a tally passes the floor.
func (f Floor) Holds(t Tally) bool {
	if t.Total() > 0 && t.Covered() == 0 {
		return false
	}
	return t.Covered() >= f.Shards && t.Fraction() >= f.Fraction
}

// CoordinatorOptions are what a Coordinator is made of. Only Merge is required.
type CoordinatorOptions[Q, R any] struct {
	// Children are the leaves or further coordinators. A shard that nobody holds has a place here too, with a leaf that fails as
	// Unavailable, so that it counts as missing.
	Children []Leaf[Q, R]
	// Merge makes one reply of those that the children gave. It is called when the floor holds, on the goroutine of Call. What is
	// missing is in g; g.Tally belongs in the reply, for a reply that does not say what is missing looks whole. It may keep g. Its
	// error is that of the call.
	Merge func(ctx context.Context, req Q, g *Gathered[R]) (R, error)
	// Tally reads from the reply of a child what Merge put there: the leaves below the child. It makes the floor, and the tally of
	// this coordinator, speak of leaves and not of the coordinators between. A tally with a count below 0 makes the child Failed.
	// nil, or the zero Tally: a reply stands for all leaves of its child.
	Tally func(r R) Tally

	Parallel int    // as in ScatterOptions
	Budget   Budget // as in ScatterOptions
	// Floor is the floor of a request for which FloorOf is nil.
	Floor Floor
	// FloorOf is the floor of one request, where callers set their own.
	FloorOf func(req Q) Floor
	// Split makes the request for child i; nil gives req to all. It is called from several goroutines.
	Split func(req Q, i int) Q
	// Skip tells of child i whether it is proven that nothing in it can match req; nil skips none.
	Skip func(req Q, i int) bool

	// Canary, if not nil, guards the children against queries of a class that crashed one of them. Class is needed with it.
	Canary *Canary
	// Class is the fingerprint of a request for the Canary.
	Class func(req Q) uint64
}

// Coordinator is an inner node of the serving tree: it asks its children, leaves out the slow tail by the sub-deadline of its Budget,
// and merges the rest if enough have answered. It implements Leaf, so that the root over aggregators and an aggregator over leaves are
// the same type. It is immutable and safe for concurrent use; when the children change, a new one is made.
type Coordinator[Q, R any] struct {
	o      CoordinatorOptions[Q, R]
	leaves []int // below each child; nil if each child is one leaf
}

// Sized is implemented by a Leaf that stands for several leaves, as a Coordinator does and as the client of a remote one should: so
// that all of them count as missing when it does not answer.
type Sized interface {
	// Leaves is the number of leaves below; it does not change.
	Leaves() int
}

// NewCoordinator returns a Coordinator, or an error that lists what is wrong with the options.
func NewCoordinator[Q, R any](o CoordinatorOptions[Q, R]) (*Coordinator[Q, R], error) {
	errs := []error{o.Budget.Validate(), o.Floor.Validate()}
	if o.Merge == nil {
		errs = append(errs, errors.New("coordinator: merge is missing"))
	}
	if o.Canary != nil && o.Class == nil {
		errs = append(errs, errors.New("coordinator: a canary needs a class"))
	}
	c := &Coordinator[Q, R]{o: o}
	for i, child := range o.Children {
		if child == nil {
			errs = append(errs, fmt.Errorf("coordinator: child %d is missing", i))
			continue
		}
		sized, ok := child.(Sized)
		if !ok {
			continue
		}
		if c.leaves == nil {
			c.leaves = make([]int, len(o.Children))
			for j := range c.leaves {
				c.leaves[j] = 1
			}
		}
		n := sized.Leaves()
		if n < 0 || n > maxTally {
			errs = append(errs, fmt.Errorf("coordinator: child %d has %d leaves", i, n))
			continue
		}
		c.leaves[i] = n
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// Leaves is the number of leaves at the bottom of the tree below.
func (c *Coordinator[Q, R]) Leaves() int {
	if c.leaves == nil {
		return len(c.o.Children)
	}
	n := 0
	for _, l := range c.leaves {
		n += l
	}
	return n
}

// Call implements Leaf. When the caller has left, the error is what ended ctx (it matches context.Canceled, and the cause) and never an
// *InsufficientError: a client that went away is another failure than a fleet that does not answer. When only the caller's time is
// over, what was gathered by then is merged if the floor holds. Otherwise the error is an *InsufficientError, a *SuspectError, or that
// of Merge. Nothing that Call started runs on after it has returned.
func (c *Coordinator[Q, R]) Call(ctx context.Context, req Q) (R, error) {
	var zero R
	g, err := c.gather(ctx, req)
	if err != nil {
		return zero, err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return zero, ended(ctx)
	}
	c.account(g)
	floor := c.o.Floor
	if c.o.FloorOf != nil {
		floor = c.o.FloorOf(req)
	}
	if t := g.Tally(); !floor.Holds(t) {
		return zero, &InsufficientError{Floor: floor, Tally: t, Outcomes: g.Outcomes, Errs: g.Errs, Took: g.Took}
	}
	return c.o.Merge(ctx, req, g)
}

// gather asks the children, one of them first if the class of req is suspect.
func (c *Coordinator[Q, R]) gather(ctx context.Context, req Q) (*Gathered[R], error) {
	o := ScatterOptions{Parallel: c.o.Parallel, Budget: c.o.Budget}
	if c.o.Skip != nil {
		o.Skip = func(i int) bool { return c.o.Skip(req, i) }
	}
	call := func(ctx context.Context, i int) (R, error) {
		if c.o.Split != nil {
			return c.o.Children[i].Call(ctx, c.o.Split(req, i))
		}
		return c.o.Children[i].Call(ctx, req)
	}
	canary := c.o.Canary
	if canary == nil {
		return Fan(ctx, len(c.o.Children), o, call), nil
	}
	class := c.o.Class(req)
	w, err := canary.enter(ctx, class)
	if err != nil {
		return nil, err
	}
	// Whatever happens, those that wait for this verdict go on.
	defer canary.settle(class, &w, noVerdict, nil)
	f := newFan(ctx, len(c.o.Children), o, call)
	if w.run != nil && f.live > 0 {
		what, i := f.canary(ctx, canary, w.shard)
		if what == crashed {
			canary.crash(class, i)
		}
		canary.settle(class, &w, what, f.g.Errs[i])
		switch {
		case what == crashed:
			return nil, canary.refuse(class, f.g.Errs[i])
		case what == noVerdict && ctx.Err() != nil:
			return nil, ended(ctx)
		case what == noVerdict:
			return nil, canary.refuse(class, fmt.Errorf("%w: %w", errNoVerdict, f.g.Errs[i]))
		}
	}
	f.rest()
	for i, err := range f.g.Errs {
		if Crashed(err) {
			canary.crash(class, i)
			return f.g, nil
		}
	}
	if w.suspect && f.g.Answered() > 0 {
		canary.success(class)
	}
	return f.g, nil
}

// canary asks one shard after another, first the one that is given, until one lives through it or crashes. It returns the last that
// it asked.
func (f *fan[R]) canary(ctx context.Context, c *Canary, first int) (canaryVerdict, int) {
	n := len(f.calls)
	b := f.budget
	b.Share = b.share() * c.o.Share
	asked := first % n
	for i, tries := 0, 0; i < n && tries < c.o.Tries && ctx.Err() == nil; i++ {
		shard := (first%n + i) % n
		if f.g.Outcomes[shard] != 0 {
			continue
		}
		tries++
		asked = shard
		f.one(shard, b)
		if !errors.Is(f.g.Errs[shard], ErrNotStarted) {
			c.asked.Add(1)
		}
		if Crashed(f.g.Errs[shard]) {
			return crashed, shard
		}
		switch f.g.Outcomes[shard] {
		case Answered, Skipped, Failed:
			// It came to the end of the request, be it to an error.
			return lived, shard
		}
	}
	return noVerdict, asked
}

// account notes the leaves below each child.
func (c *Coordinator[Q, R]) account(g *Gathered[R]) {
	if c.leaves == nil && c.o.Tally == nil {
		return
	}
	g.tallies = make([]Tally, len(g.Outcomes))
	for i, o := range g.Outcomes {
		n := 1
		if c.leaves != nil {
			n = c.leaves[i]
		}
		t := TallyOf(o, n)
		if o == Answered && c.o.Tally != nil {
			switch below := c.o.Tally(g.Results[i]); {
			case !below.valid():
				var zero R
				g.Results[i], g.Outcomes[i], g.Errs[i] = zero, Failed, errBadTally
				t = TallyOf(Failed, n)
			case below != Tally{}:
				t = below
			}
		}
		if below, ok := errors.AsType[*InsufficientError](g.Errs[i]); ok && below.Tally.valid() {
			t = below.Tally.lost(o)
		}
		g.tallies[i] = t
	}
}

var errBadTally = errors.New("the reply counts leaves that cannot be")

// ended is the error for a caller whose context has ended: the cause, which matches what ctx.Err says too.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
