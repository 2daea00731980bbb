package serve

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// ScatterOptions are what Scatter and Fan go by. The zero value asks every shard at once and passes the caller's deadline on.
type ScatterOptions struct {
	// Parallel is how many calls may be under way at once; 0 or less is all of them. A call that waits for its turn gets its deadline
	// from the Budget when it starts. One that is still waiting when the caller's time is over, or the caller leaves, is not started
	// and counts as TimedOut, with an error that matches ErrNotStarted.
	Parallel int
	// Budget gives the calls their deadlines.
	Budget Budget
	// Skip tells of a shard whether it is proven that it cannot match; it is not asked then, and counts as Skipped. It is called once
	// for each shard, in order, before the first call. nil skips none.
	Skip func(i int) bool
}

// Scatter makes the same call of every leaf and gathers what becomes of each; it is Fan with one request.
func Scatter[Q, R any](ctx context.Context, leaves []Leaf[Q, R], req Q, o ScatterOptions) *Gathered[R] {
	return Fan(ctx, len(leaves), o, func(ctx context.Context, i int) (R, error) { return leaves[i].Call(ctx, req) })
}

// Fan makes a call for each of n shards and gathers what becomes of each. A call that fails, is late, or panics is data: it never
// ends a sibling, and what a hole means is for the caller to decide. Fan returns after every call has returned, so nothing that it
// started outlives it; it relies on calls returning promptly once their context has ended. A call that replies without an error has
// answered, also if its time was over.
//
// Each call has a context of its own, with the deadline that the Budget gives, which ends when the call returns. Calls run on up to
// Parallel goroutines that draw the next shard when they are done with one; the caller's own goroutine is one of them.
func Fan[R any](ctx context.Context, n int, o ScatterOptions, call func(ctx context.Context, i int) (R, error)) *Gathered[R] {
	f := newFan(ctx, n, o, call)
	f.rest()
	return f.g
}

// fan is a fan-out under way. Workers write only to the elements of the shards that they have drawn, and the end of a worker comes
// before the end of fan.rest, so that nothing needs a lock.
type fan[R any] struct {
	ctx    context.Context
	call   func(ctx context.Context, i int) (R, error)
	budget Budget
	most   int // calls at once
	g      *Gathered[R]

	start  time.Time // times are counted from here: a look at the monotonic clock alone costs half of one at both clocks
	end    time.Time // when the level has to be done
	timed  bool      // there is an end
	live   int       // shards that are neither skipped nor asked yet, between the calls of one and rest
	calls  []callContext
	next   atomic.Int64
	wg     sync.WaitGroup
	worker func() // f.work, made once for all goroutines

	// What all calls share that start at once.
	shared context.Context
	last   time.Time // their deadline, if timed
	starts bool      // there is time for them
}

func newFan[R any](ctx context.Context, n int, o ScatterOptions, call func(ctx context.Context, i int) (R, error)) *fan[R] {
	n = max(n, 0)
	f := &fan[R]{
		ctx: ctx, call: call, budget: o.Budget, most: o.Parallel, live: n,
		g: &Gathered[R]{
			Results: make([]R, n), Outcomes: make([]Outcome, n), Errs: make([]error, n), Took: make([]time.Duration, n),
		},
		calls: make([]callContext, n),
	}
	f.start = time.Now()
	f.end, f.timed = o.Budget.End(ctx, f.start)
	if o.Skip != nil {
		for i := range n {
			if o.Skip(i) {
				f.g.Outcomes[i] = Skipped
				f.live--
			}
		}
	}
	return f
}

// share makes what the calls that start now have in common. Its cancel is called when they are all over.
func (f *fan[R]) share(b Budget) context.CancelFunc {
	f.shared, f.starts = f.ctx, true
	if !f.timed {
		return nil
	}
	f.last, f.starts = b.Deadline(f.end, f.start.Add(time.Since(f.start)))
	if d, ok := f.ctx.Deadline(); !f.starts || ok && !f.last.Before(d) {
		return nil
	}
	var cancel context.CancelFunc
	f.shared, cancel = context.WithDeadline(f.ctx, f.last)
	return cancel
}

// one makes the call of one shard alone, on the caller's goroutine.
func (f *fan[R]) one(i int, b Budget) {
	if cancel := f.share(b); cancel != nil {
		defer cancel()
	}
	f.live--
	f.run(i, time.Since(f.start), true)
}

// rest makes all calls that have not been made, and waits for them.
func (f *fan[R]) rest() {
	if f.live == 0 {
		return
	}
	if cancel := f.share(f.budget); cancel != nil {
		defer cancel()
	}
	most := f.live
	if f.most > 0 {
		most = min(most, f.most)
	}
	// Also when a call on this goroutine ends it.
	defer f.wg.Wait()
	if most > 1 {
		f.worker = f.work
		for range most - 1 {
			// Where leaves answer at once, the first goroutines have drawn all shards before the last is started.
			if int(f.next.Load()) >= len(f.calls) {
				break
			}
			f.wg.Add(1)
			go f.worker()
		}
	}
	f.draw(true)
}

// work is a goroutine of rest.
func (f *fan[R]) work() {
	Deepen()
	f.workAs(true)
}

// stackRoom is about what a call takes of the stack from here down to a socket.
const stackRoom = 12 << 10

// Deepen makes room on the stack of a new goroutine at once, for one that makes a call. Otherwise it is doubled several times on the way
// down, and what is on it by then is moved each time: a twelfth of the processor time of a broker.
//
//go:noinline
func Deepen() {
	var room [stackRoom]byte
	touch(&room)
}

// touch keeps the compiler from leaving out the array.
//
//go:noinline
func touch(room *[stackRoom]byte) { room[0] = 1 }

func (f *fan[R]) workAs(first bool) {
	done := false
	defer func() {
		if done {
			f.wg.Done()
			return
		}
		// A call has ended the goroutine by runtime.Goexit. Another takes its place, so that no shard goes without an outcome.
		go f.workAs(false)
	}()
	f.draw(first)
	done = true
}

// draw makes calls until none is left. The first of a goroutine that started with the others has the deadline of all.
func (f *fan[R]) draw(first bool) {
	now := time.Since(f.start)
	for {
		i := int(f.next.Add(1)) - 1
		if i >= len(f.calls) {
			return
		}
		if f.g.Outcomes[i] != 0 {
			continue
		}
		now = f.run(i, now, first)
		first = false
	}
}

// run makes the call of shard i, or tells why not. Times are counted from f.start; it returns that of the end.
func (f *fan[R]) run(i int, now time.Duration, first bool) (end time.Duration) {
	c := &f.calls[i]
	if f.ctx.Err() != nil {
		f.g.Outcomes[i], f.g.Errs[i] = TimedOut, &notStarted{context.Cause(f.ctx)}
		return now
	}
	c.above = f.shared
	starts := f.starts
	if f.timed && !first {
		var d time.Time
		if d, starts = f.budget.Deadline(f.end, f.start.Add(now)); starts && !d.Equal(f.last) {
			ctx, cancel := context.WithDeadline(f.ctx, d)
			c.own.Store(&ownContext{ctx, cancel})
		}
	}
	if !starts {
		f.g.Outcomes[i], f.g.Errs[i] = TimedOut, &notStarted{context.DeadlineExceeded}
		return now
	}
	returned := false
	defer func() {
		if !returned {
			p := &PanicError{Value: recover(), Stack: debug.Stack()}
			f.g.Outcomes[i], f.g.Errs[i] = Failed, p
		}
		c.finish()
		end = time.Since(f.start)
		f.g.Took[i] = end - now
	}()
	r, err := f.call(c, i)
	returned = true
	if err != nil {
		o := outcomeIn(c, err)
		f.g.Outcomes[i], f.g.Errs[i] = o, err
		if o == Skipped {
			f.g.Errs[i] = nil
		}
		return now
	}
	f.g.Results[i], f.g.Outcomes[i] = r, Answered
	return now
}
