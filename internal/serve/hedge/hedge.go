// Package hedge sends a call again, to another replica, when the first attempt is slow or fails, and takes the first answer.
//
// Hedge is the mechanism with a delay that the caller chose. Do is the same with everything taken from a Policy: the delay from the
// live latencies of the class of calls, a budget that all classes share, a bound of its own for retries. The rules are those of the
// serving tree's design and of Dean and Barroso, The Tail at Scale (CACM 2013):
//
//   - the first attempt is sent at once, the next one when no reply came within the delay, and so on; the first success is the answer;
//   - an attempt that fails does not wait for the delay: it frees the next replica at once;
//   - an error is returned only when every attempt that was sent has reported: the last one;
//   - losers are cancelled through their context, with a cause (ErrLost, ErrOvertaken, ErrSkipped);
//   - tied attempts: when one has begun (serve.Begun on the context of the attempt), those still waiting in some other queue are
//     cancelled, and the cancellation tells their servers that they may skip them. An attempt that has begun is never cancelled by this;
//     when it is slow itself, those that were skipped are sent again.
//
// # Who runs what, and who waits
//
// The first attempt runs on the goroutine of the caller, and so does the retry after it failed: a call that is answered in time costs
// a timer that is stopped again, and no goroutine. Each hedge runs on the goroutine of the timer that decided for it.
//
// Nothing outlives the call: Hedge and Do return when every attempt has returned. That leans on the contract of a leaf, which returns
// promptly when its context ends, and buys that there is no straggler to own, to bound and to wait for at shutdown, that the report of
// a call is complete, and that a request may be reused afterwards. What may hang regardless of its context is wrapped by
// replica.Detach, which pays a goroutine for each call to be able to leave it behind.
//
// Everything is safe for concurrent use; the function that is called must be too, as attempts run at the same time.
package hedge

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/serve"
)

// Causes with which attempts are cancelled; context.Cause of the context of an attempt tells which. Their outcome is that of a call
// whose caller has left.
var (
	// ErrLost is the cause when another attempt succeeded.
	ErrLost error = &failure{"another attempt answered first", serve.TimedOut, nil}
	// ErrOvertaken is the cause, and matches ErrLost, when the one that succeeded was sent later: the cancelled one was slow.
	ErrOvertaken error = &failure{"an attempt that was sent later answered first", serve.TimedOut, ErrLost}
	// ErrSkipped is the cause when a tied attempt has begun and this one had not.
	ErrSkipped error = &failure{"a tied attempt has begun", serve.TimedOut, nil}
)

// ErrNoReplica is the error of a call of no replica. Its outcome is that the shard is unavailable.
var ErrNoReplica error = &failure{"there is no replica to call", serve.Unavailable, nil}

// failure is an error with an outcome, which may be a kind of another one.
type failure struct {
	text    string
	outcome serve.Outcome
	kind    error
}

func (f *failure) Error() string          { return f.text }
func (f *failure) Outcome() serve.Outcome { return f.outcome }
func (f *failure) Unwrap() error          { return f.kind }

// Options of Hedge.
type Options struct {
	// Delay is how long to wait for the attempt sent last before the next one is sent. With 0 every attempt is sent at once.
	Delay time.Duration
	// Tied cancels attempts that have not begun when another one begins.
	Tied bool
	// Retryable tells whether a call that failed with err may be tried elsewhere. nil: always. After an error that may not, nothing
	// more is sent, but attempts that run may still answer.
	Retryable func(err error) bool
	// Report, if not nil, is filled with what each attempt did.
	Report *Report
}

// End is how an attempt ended.
type End uint8

// The ends of an attempt.
const (
	Won     End = iota + 1 // its result is the answer
	Lost                   // another answered first: it was cancelled, or came too late
	Skipped                // it was cancelled before it had begun, because a tied attempt had
	Failed                 // it returned an error of its own, or its caller left
)

// String is the name of the end in reports.
func (e End) String() string {
	return [...]string{"running", "won", "lost", "skipped", "failed"}[min(e, Failed)]
}

// Kind is why an attempt was sent.
type Kind uint8

// The kinds of attempts.
const (
	First  Kind = iota + 1 // the call itself
	Backup                 // those before it did not answer in time
	Retry                  // one before it failed
)

// String is the name of the kind in reports.
func (k Kind) String() string {
	return [...]string{"unknown", "first", "backup", "retry"}[min(k, Retry)]
}

// Attempt is what became of one attempt.
type Attempt struct {
	Index int           // the number that was given to the function that is called
	Kind  Kind          // why it was sent
	Sent  time.Duration // when, since the call began
	Took  time.Duration // how long it ran
	Begun bool          // its server said that it began
	End   End
	Err   error // what it returned; nil for a success, also a late one
}

// Report is what the attempts of one call did, in the order in which they were sent.
type Report struct {
	Delay    time.Duration // after which the first hedge was due; 0 if there was to be none
	Denied   bool          // the budget refused a hedge or a retry
	Attempts []Attempt
}

// Hedge calls one of n replicas, the next ones as the options say, and returns the first success. call is given the number of the
// replica, from 0. Each is called at most once, except that one which was skipped because a tied attempt had begun is called again
// when that fails, or has not answered after another delay. With n = 1 it is a plain call. When all fail it returns the last error.
//
// A panic of an attempt on the caller's goroutine goes up to the caller. One elsewhere frees nobody, and unless an attempt that runs
// already answers, it is the error of the call, as a *serve.PanicError.
func Hedge[R any](ctx context.Context, n int, o Options, call func(ctx context.Context, attempt int) (R, error)) (R, error) {
	if n == 1 && o.Report == nil {
		return call(ctx, 0)
	}
	r := &run[R]{ctx: ctx, call: call, n: n, delay: o.Delay, hedges: n - 1, tied: o.Tied, retryable: o.Retryable, report: o.Report}
	return r.do(time.Now())
}

// run is one call. The mutex guards what is below it, and the decision to send is taken with it held, so that nothing is sent after a
// success.
type run[R any] struct {
	ctx       context.Context // the caller's
	call      func(ctx context.Context, attempt int) (R, error)
	n         int
	delay     time.Duration // before the first hedge
	tied      bool
	retryable func(err error) bool // nil: always
	calls     *Calls               // nil: fixed delay, no budgets
	report    *Report
	began     time.Time

	// wait counts the timer while it is armed, and every lane but the caller's.
	wait sync.WaitGroup

	mu       sync.Mutex
	timer    *time.Timer
	armed    bool
	due      time.Time // when the timer is to fire; it may have been set to fire earlier
	lastSent time.Time // or when the last attempt began in place of others
	hedges   int       // how many may still be sent
	noHedge  bool      // the budget refused a hedge
	noRetry  bool      // and a retry
	fresh    int       // the next number that was never sent
	again    []int     // numbers that were skipped and may be sent again
	running  int       // attempts
	over     bool      // nothing more is sent
	won      bool
	winner   int // its place, if won
	value    R
	err      error // the last failure, or the panic
	panicked bool  // of an attempt on a side lane
	crashes  crashes
	attempts []attempt
	room     [1]attempt // for attempts: most calls make one
}

// attempt is a sent attempt. It is referred to by its place in attempts, which may move.
type attempt struct {
	Attempt
	sent   time.Time
	cancel context.CancelCauseFunc
	cause  error // with which it was cancelled
	done   bool
}

// sent is what a lane needs of an attempt.
type sent struct {
	ctx   context.Context
	place int // in attempts
	index int
}

func (r *run[R]) do(now time.Time) (R, error) {
	var none R
	if r.n <= 0 {
		return none, ErrNoReplica
	}
	r.began = now
	r.attempts = r.room[:0]
	// Also when a call panics, what was sent is cancelled and waited for.
	defer r.finish()
	r.mu.Lock()
	first := r.send(First, now)
	if r.delay > 0 {
		r.arm(now, r.next())
	}
	for r.delay <= 0 && r.hedges > 0 && r.more() {
		r.hedges--
		s := r.send(Backup, now)
		r.wait.Go(func() { r.side(s) })
	}
	r.mu.Unlock()
	r.lane(first)
	r.wait.Wait()
	// Whatever ran has been waited for: no lock is needed.
	if r.won {
		return r.value, nil
	}
	return none, r.err
}

// finish ends the call if a panic went past the lane of the caller; otherwise everything has ended already.
func (r *run[R]) finish() {
	r.mu.Lock()
	r.over = true
	r.disarm()
	for i := range r.attempts {
		r.cancel(i, ErrLost)
	}
	r.mu.Unlock()
	r.wait.Wait()
	if r.report != nil {
		r.report.Delay, r.report.Denied = 0, r.noHedge || r.noRetry
		if r.n > 1 {
			r.report.Delay = max(r.delay, 0)
		}
		r.report.Attempts = make([]Attempt, len(r.attempts))
		for i := range r.attempts {
			r.report.Attempts[i] = r.attempts[i].Attempt
		}
	}
}

// more tells whether there is a number to send.
func (r *run[R]) more() bool { return r.fresh < r.n || len(r.again) > 0 }

// send notes a new attempt and makes its context. The caller makes the call.
func (r *run[R]) send(kind Kind, now time.Time) sent {
	index := r.fresh
	if index < r.n {
		r.fresh++
	} else {
		index, r.again = r.again[0], r.again[1:]
	}
	place := len(r.attempts)
	ctx, cancel := context.WithCancelCause(r.ctx)
	if r.tied || r.report != nil {
		ctx = serve.WithBegun(ctx, func() { r.begun(place) })
	}
	r.attempts = append(r.attempts, attempt{
		Attempt: Attempt{Index: index, Kind: kind, Sent: now.Sub(r.began)},
		sent:    now, cancel: cancel,
	})
	r.running++
	r.lastSent = now
	return sent{ctx, place, index}
}

// cancel ends an attempt that has not returned, unless it was cancelled before.
func (r *run[R]) cancel(place int, cause error) {
	if a := &r.attempts[place]; !a.done && a.cause == nil {
		a.cause = cause
		a.cancel(cause)
	}
}

// side is a lane on a goroutine of its own. A panic there would end the process, and the caller could not catch it.
func (r *run[R]) side(s sent) {
	whole := false
	defer func() {
		if whole {
			return
		}
		err := &serve.PanicError{Value: recover(), Stack: debug.Stack()}
		r.mu.Lock()
		r.err, r.panicked, r.over = err, true, true
		r.mu.Unlock()
		var none R
		r.ended(s, none, err)
	}()
	for more := true; more; {
		v, err := r.call(s.ctx, s.index)
		s, more = r.ended(s, v, err)
	}
	whole = true
}

// lane makes attempts, one after the other, until one succeeds or there is none to send.
func (r *run[R]) lane(s sent) {
	for more := true; more; {
		v, err := r.call(s.ctx, s.index)
		s, more = r.ended(s, v, err)
	}
}

// ended takes the result of an attempt and returns the one that it freed, if any.
func (r *run[R]) ended(s sent, v R, err error) (next sent, ok bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.attempts[s.place]
	a.done, a.Took, a.Err = true, now.Sub(a.sent), err
	a.cancel(nil)
	r.running--
	if r.calls != nil {
		r.calls.record(now, a.Took, err)
	}
	switch {
	case err == nil && !r.won:
		a.End = Won
		r.won, r.winner, r.value, r.over = true, s.place, v, true
		for i := range r.attempts {
			if i < s.place {
				r.cancel(i, ErrOvertaken)
			} else {
				r.cancel(i, ErrLost)
			}
		}
	case r.won:
		a.End = Lost
	case a.cause == ErrSkipped:
		a.End = Skipped
	default:
		a.End = Failed
		if !r.panicked {
			r.err = err
		}
		if r.ctx.Err() != nil || r.retryable != nil && !r.retryable(err) || r.calls != nil && r.crashes.second(err) {
			r.over = true
		}
		if !r.over && r.more() {
			if r.calls == nil || r.calls.policy.retry() {
				next, ok = r.send(Retry, now), true
				r.arm(now, r.next())
			} else if !r.noRetry {
				r.noRetry = true
				r.calls.policy.retriesDenied.Add(1)
			}
		}
	}
	if r.running == 0 {
		r.over = true
	}
	if r.over {
		r.disarm()
	}
	return next, ok
}

// next is the delay of a hedge after the attempt that is sent now, or of the first look at the budget if that is sooner.
func (r *run[R]) next() time.Duration {
	if r.calls == nil {
		return r.delay
	}
	if d := r.calls.current(); d > 0 {
		return min(d, r.patience(r.lastSent))
	}
	return r.delay
}

// patience is for how long a call that waits for the budget does not look at it again. The budget may soon allow what it did not when
// the timer was set, and where slow calls are rare, an empty budget asks for the latency of a slow one: a call that slept until then
// would be as slow itself. It grows with the wait, so that many that wait at an empty budget do not keep each other busy.
func (r *run[R]) patience(now time.Time) time.Duration {
	return max(r.calls.look(), now.Sub(r.lastSent)/2, time.Millisecond)
}

// crashes counts errors that say that the request may have brought the replica down.
type crashes int

// second tells whether err is the second of them in one call: a request that may have ended two replicas is not given a third.
func (c *crashes) second(err error) bool {
	if serve.Crashed(err) {
		*c++
	}
	return *c >= 2
}

// begun notes that an attempt has begun, and cancels those tied to it that have not.
func (r *run[R]) begun(place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.attempts[place]
	if a.Begun || a.done || a.cause != nil {
		return
	}
	a.Begun = true
	if !r.tied {
		return
	}
	skipped := 0
	for i := range r.attempts {
		if b := &r.attempts[i]; i != place && !b.Begun && !b.done && b.cause == nil {
			r.cancel(i, ErrSkipped)
			r.again = append(r.again, b.Index)
			skipped++
			if r.calls != nil {
				r.calls.policy.skipped.Add(1)
			}
		}
	}
	if skipped > 0 && !r.over {
		// The one that has begun may be slow too, and was sent in their place: they may be sent again, after the delay from now.
		r.hedges += skipped
		r.lastSent = time.Now()
		r.arm(r.lastSent, r.next())
	}
}

// arm sets the timer for the next hedge, if there may be one: d after now.
func (r *run[R]) arm(now time.Time, d time.Duration) {
	if r.delay <= 0 || r.hedges <= 0 || !r.more() {
		r.disarm()
		return
	}
	r.due = now.Add(d)
	switch {
	case r.armed && !r.timer.Stop():
		// It is firing and waits for the lock: it will see that it is too early.
		return
	case !r.armed:
		r.armed = true
		r.wait.Add(1)
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(d, r.fire)
	} else {
		r.timer.Reset(d)
	}
}

// disarm stops the timer. If it is firing it will see that there is nothing to do.
func (r *run[R]) disarm() {
	if r.armed && r.timer.Stop() {
		r.armed = false
		r.wait.Done()
	}
}

// fire runs on the goroutine of the timer, and becomes the lane of the hedge.
func (r *run[R]) fire() {
	s, ok := r.fired()
	if ok {
		// Deferred, for a call may also end its goroutine.
		defer r.wait.Done()
		r.side(s)
	}
}

// fired decides what becomes of a timer that fired. If it does not return an attempt it has set the timer again, or let go of it.
func (r *run[R]) fired() (s sent, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.hedges <= 0 || !r.more() || r.ctx.Err() != nil {
		r.armed = false
		r.wait.Done()
		return s, false
	}
	now := time.Now()
	if now.Before(r.due) {
		r.timer.Reset(r.due.Sub(now))
		return s, false
	}
	if r.calls != nil {
		r.calls.policy.hedges.drip(now.Sub(r.calls.policy.base))
		// What the budget allows may have changed since the timer was set, and the class may have lost its delay.
		left := time.Duration(math.MaxInt64)
		if delay := r.calls.current(); delay > 0 {
			left = delay - now.Sub(r.lastSent)
		}
		if left <= 0 && !r.calls.policy.hedge() {
			if !r.noHedge {
				r.noHedge = true
				r.calls.policy.hedgesDenied.Add(1)
			}
			left = math.MaxInt64
		}
		if left > 0 {
			left = min(left, r.patience(now))
			r.due = now.Add(left)
			r.timer.Reset(left)
			return s, false
		}
	}
	r.hedges--
	s = r.send(Backup, now)
	r.armed = false
	r.arm(now, r.next())
	return s, true
}
