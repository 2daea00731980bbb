package hedge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/latency"
)

// PolicyOptions are the numbers of a Policy. The zero value means the defaults.
type PolicyOptions struct {
	// Quantile is after which quantile of the live latencies of its class an attempt is followed by a hedge, with a budget that is
	// half full: of the calls, 1 - Quantile get so far. Default: 0.95 (Dean and Barroso, CACM 2013). With a full budget it is
	// four times as far from 1: 0.80.
	Quantile float64
	// MaxQuantile is what the quantile rises to as the budget runs dry. Default: 0.999.
	MaxQuantile float64
	// Share is how many hedges may be sent for each call, all classes together. Default: 0.05. Negative: none.
	Share float64
	// Burst is how many hedges may be sent beyond Share: after c calls, at most Burst + Share·c have been sent. Default: 16. All
	// calls of a fan-out put their share in at once, and what the budget cannot hold is lost: give a root over many shards
	// several times Share·shards, such as half as many as there are shards.
	Burst int
	// PerSecond is how many hedges, and how many retries, each second allows besides, as long as the budget is not full: where calls are few
	// their shares do not fill a budget that ran empty, and a call would wait for a replica that hangs for as long as its caller does.
	// Default 0: none.
	PerSecond float64
	// RetryShare and RetryBurst bound retries after failures in the same way. Defaults: 0.2 and 32. A negative share: none, and no
	// burst either.
	RetryShare float64
	RetryBurst int
	// MaxAttempts is how many attempts of one call may be sent because of slowness, with the first. Default: 3.
	MaxAttempts int
	// MinSamples is how many answered calls of a class must be known before its quantile is used. Default: 64.
	MinSamples int
	// InitialDelay is used in place of the quantile until then. Default 0: no hedge.
	InitialDelay time.Duration
	// MinDelay and MaxDelay bound the delay. Defaults: 1 ms, and no upper bound.
	MinDelay, MaxDelay time.Duration
	// Window is how long a latency is remembered. Default: a minute.
	Window time.Duration
	// Refresh is how old a delay may be before it is taken anew from the latencies. Default: 100 ms.
	Refresh time.Duration
	// Untied leaves the attempts of a call in their queues when another one begins.
	Untied bool
}

func (o *PolicyOptions) ensureDefaults() {
	o.Quantile = number(o.Quantile, 0.95)
	o.MaxQuantile = max(number(o.MaxQuantile, 0.999), o.Quantile)
	o.Share = number(o.Share, 0.05)
	o.Burst = number(o.Burst, 16)
	o.RetryShare = number(o.RetryShare, 0.2)
	o.RetryBurst = number(o.RetryBurst, 32)
	o.MaxAttempts = number(o.MaxAttempts, 3)
	o.MinSamples = number(o.MinSamples, 64)
	o.MinDelay = number(o.MinDelay, time.Millisecond)
	o.Refresh = number(o.Refresh, 100*time.Millisecond)
}

// number is a setting or, if that is zero, its default.
func number[N int | float64 | time.Duration](set, otherwise N) N {
	if set == 0 {
		return otherwise
	}
	return set
}

// Class is a kind of calls that take about as long and may be treated alike. Classes are few and come from the program, not from
// its users.
type Class struct {
	// Name is unique within a policy.
	Name string
	// Safe says that a call may run twice, at once or one after the other, with the effect of once. Only safe calls are hedged.
	Safe bool
	// Retryable tells whether a call that failed with err may be tried on another replica. nil: always if Safe, never if not. For
	// calls that are not safe it must be true of nothing but failures known to have had no effect, such as a connection that was
	// never made or a refusal before the first side effect.
	Retryable func(err error) bool
}

// Policy decides, for all classes together, when calls are sent again. Goals, in this order: never more load than the budget allows,
// whatever happens; never twice what is not safe to repeat; the budget goes to the calls that wait longest.
//
// The budget is a bucket of tokens: each call puts in Share, each hedge takes 1, and it holds at most Burst. At the 95th percentile
// just the 5 % that the budget allows are slow enough, on average; but not at every time. Slowness comes in bursts, and a bucket that
// ran dry at the start of one was spent on whoever came first, not on whoever waits longest. And where more calls than 5 % are slow
// the 95th percentile is itself slow, and waiting for it leaves the budget unused when it is needed most. So the quantile follows the
// bucket: the fraction of calls that is to be hedged goes with the square of what it holds, from none to four times 1 - Quantile,
// which is once 1 - Quantile when it is half full, and the bucket settles where demand equals supply. A call that waits for more than
// most asks again and again, at growing distances, whether the bucket now allows what it did not. Rejected: a fixed quantile with a hard
// stop (the above); a timer set once for the delay of the moment, for where slow calls are rare the delay of an empty bucket is the
// latency of a slow one, and the call slept through the tokens that came in time; and a controller that integrates, which has a time
// constant to tune and lags behind a burst.
type Policy struct {
	o       PolicyOptions
	hedges  bucket
	retries bucket
	base    time.Time

	mu      sync.Mutex
	classes map[string]*Calls

	calls, hedged, hedgesWon, hedgesDenied atomic.Uint64
	retried, retriesDenied, skipped        atomic.Uint64
}

// NewPolicy returns a policy with full budgets.
func NewPolicy(o PolicyOptions) *Policy {
	o.ensureDefaults()
	p := &Policy{o: o, base: time.Now(), classes: map[string]*Calls{}}
	p.hedges.init(o.Share, o.Burst)
	p.retries.init(o.RetryShare, o.RetryBurst)
	p.hedges.rate, p.retries.rate = o.PerSecond, o.PerSecond
	return p
}

// hedge takes the place of a hedge from the budget.
func (p *Policy) hedge() bool {
	if !p.hedges.take() {
		return false
	}
	p.hedged.Add(1)
	return true
}

// retry takes the place of a retry from its budget.
func (p *Policy) retry() bool {
	if p.retries.rate > 0 {
		p.retries.drip(time.Since(p.base))
	}
	if !p.retries.take() {
		return false
	}
	p.retried.Add(1)
	return true
}

// begin counts a call.
func (p *Policy) begin() {
	p.calls.Add(1)
	p.hedges.deposit()
	p.retries.deposit()
}

// Calls returns the live state of a class, which is made when its name is first used. To use the name again with another Safe is a
// mistake of the program, and panics.
func (p *Policy) Calls(c Class) *Calls {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.classes[c.Name]; known != nil {
		if known.class.Safe != c.Safe {
			panic(fmt.Sprintf("hedge: class %q is both safe and unsafe to repeat", c.Name))
		}
		return known
	}
	if c.Retryable == nil {
		safe := c.Safe
		c.Retryable = func(error) bool { return safe }
	}
	made := &Calls{policy: p, class: c, digest: latency.New(latency.Options{Window: p.o.Window}), base: time.Now()}
	// So that the first calls, which come together, have the initial delay while one of them makes the next.
	made.refresh(made.base)
	made.refreshed.Store(-1)
	p.classes[c.Name] = made
	return made
}

// Stats are counters of a policy since it was made.
type Stats struct {
	Calls         uint64 // calls begun
	Hedges        uint64 // attempts sent because of slowness
	HedgesWon     uint64 // of these, those whose result was the answer
	HedgesDenied  uint64 // calls that had a hedge refused by the budget, at least for a while
	Retries       uint64 // attempts sent because of a failure
	RetriesDenied uint64 // calls that had a retry refused by its budget
	Skipped       uint64 // attempts cancelled before they had begun
}

// Stats returns the counters.
func (p *Policy) Stats() Stats {
	return Stats{
		Calls: p.calls.Load(), Hedges: p.hedged.Load(), HedgesWon: p.hedgesWon.Load(), HedgesDenied: p.hedgesDenied.Load(),
		Retries: p.retried.Load(), RetriesDenied: p.retriesDenied.Load(), Skipped: p.skipped.Load(),
	}
}

// tails are the parts of 1 - Quantile for which a delay is kept, from a full budget to an empty one.
var tails = [...]float64{4, 3.5, 3, 2.5, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02}

// lookLevel is the place in tails of 2: twice as many calls look at the budget as it is made for.
const lookLevel = 4

// Calls is the live state of one class: its latencies and the delays that follow from them. Safe for concurrent use.
type Calls struct {
	policy *Policy
	class  Class
	digest *latency.Digest
	base   time.Time

	refreshed atomic.Int64 // when the delays were last made, in ns since base; -1 before the first time
	delays    [len(tails)]atomic.Int64

	refreshing sync.Mutex // guards snapshot
	snapshot   latency.Snapshot
}

// record counts the end of an attempt. One that failed, or was cancelled, would have taken at least so long to answer.
func (c *Calls) record(now time.Time, took time.Duration, err error) {
	if err == nil {
		c.digest.Record(now, took)
	} else {
		c.digest.RecordAtLeast(now, took)
	}
}

// Delay is after how long an attempt that is sent now would be followed by a hedge; 0 if it would not be.
func (c *Calls) Delay() time.Duration {
	if !c.class.Safe || c.policy.o.Share < 0 || c.policy.o.MaxAttempts < 2 {
		return 0
	}
	return c.delay(time.Now())
}

// current is the delay as of the last refresh, for what the budget holds now; 0 if there is none.
func (c *Calls) current() time.Duration {
	fill := c.policy.hedges.fill()
	part := 4 * fill * fill
	level := 0
	for level < len(tails)-1 && tails[level] > part {
		level++
	}
	return time.Duration(c.delays[level].Load())
}

// look is after how long, as of the last refresh, a call that waits looks at the budget though its delay be longer.
func (c *Calls) look() time.Duration { return time.Duration(c.delays[lookLevel].Load()) }

// delay is current, after a refresh if one is due. One caller makes it; others take the old delays meanwhile.
func (c *Calls) delay(now time.Time) time.Duration {
	at := max(int64(now.Sub(c.base)), 0)
	if last := c.refreshed.Load(); (last < 0 || at-last >= int64(c.policy.o.Refresh)) && c.refreshing.TryLock() {
		if c.refreshed.CompareAndSwap(last, at) {
			c.refresh(now)
		}
		c.refreshing.Unlock()
	}
	return c.current()
}

// refresh makes the delays anew.
func (c *Calls) refresh(now time.Time) {
	o := &c.policy.o
	var qs [len(tails)]float64
	var delays [len(tails)]time.Duration
	c.digest.Read(now, &c.snapshot)
	known := c.snapshot.Took >= uint64(max(o.MinSamples, 1))
	if known {
		for i, part := range tails {
			qs[i] = min(max(1-(1-o.Quantile)*part, 0), o.MaxQuantile)
		}
		c.snapshot.Quantiles(delays[:], qs[:]...)
	} else {
		for i := range delays {
			delays[i] = o.InitialDelay
		}
	}
	for i, d := range delays {
		// 0 stands for no delay, which is not what calls quicker than the clock can tell have.
		if known || d > 0 {
			d = max(d, o.MinDelay, 1)
			if o.MaxDelay > 0 {
				d = min(d, o.MaxDelay)
			}
		}
		c.delays[i].Store(int64(d))
	}
}

// DoOptions are what Do takes for one call.
type DoOptions struct {
	// Fit is how many of the replicas are worth a hedge, with the one that is called first; failures may go to all. 0: all.
	Fit int
	// Now is the time, if the caller has just read it.
	Now time.Time
	// Report, if not nil, is filled with what each attempt did.
	Report *Report
}

// Do is Hedge by the policy of a class: delay and budgets are live, only a Safe class is hedged, and each retry after a failure must
// be Retryable and within the budget of retries. After a second error that serve.Crashed recognises nothing more is sent. A call that is not to be hedged costs no goroutine, no timer and no context.
func Do[R any](ctx context.Context, c *Calls, n int, o DoOptions, call func(ctx context.Context, attempt int) (R, error)) (R, error) {
	p := c.policy
	p.begin()
	hedges := min(p.o.MaxAttempts, n)
	if o.Fit > 0 {
		hedges = min(hedges, o.Fit)
	}
	hedges--
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	var delay time.Duration
	if hedges > 0 && c.class.Safe && p.o.Share >= 0 {
		delay = c.delay(now)
	}
	if deadline, ok := ctx.Deadline(); ok && delay > 0 && deadline.Sub(now) <= delay {
		delay = 0
	}
	if delay <= 0 {
		return inTurn(ctx, c, n, o.Report, now, call)
	}
	r := &run[R]{
		ctx: ctx, call: call, n: n, delay: delay, hedges: hedges, tied: !p.o.Untied, retryable: c.class.Retryable, calls: c,
		report: o.Report,
	}
	v, err := r.do(now)
	if err == nil && r.attempts[r.winner].Kind == Backup {
		p.hedgesWon.Add(1)
	}
	return v, err
}

// inTurn calls one replica after the other until one answers or the failure may not be tried elsewhere.
func inTurn[R any](
	ctx context.Context, c *Calls, n int, report *Report, began time.Time, call func(ctx context.Context, attempt int) (R, error),
) (R, error) {
	if report != nil {
		*report = Report{}
	}
	var none R
	if n <= 0 {
		return none, ErrNoReplica
	}
	now, kind := began, First
	var crashed crashes
	for i := 0; ; i++ {
		own, begun := ctx, (*atomic.Bool)(nil)
		if report != nil {
			own, begun = watch(ctx)
		}
		v, err := call(own, i)
		a := Attempt{Index: i, Kind: kind, Sent: now.Sub(began), End: Won, Err: err}
		end := time.Now()
		a.Took = end.Sub(now)
		now, kind = end, Retry
		c.record(now, a.Took, err)
		if err != nil {
			a.End = Failed
		}
		if report != nil {
			a.Begun = begun.Load()
			report.Attempts = append(report.Attempts, a)
		}
		if err == nil {
			return v, nil
		}
		if i+1 >= n || ctx.Err() != nil || !c.class.Retryable(err) || crashed.second(err) {
			return none, err
		}
		if !c.policy.retry() {
			c.policy.retriesDenied.Add(1)
			if report != nil {
				report.Denied = true
			}
			return none, err
		}
	}
}

// watch returns a context on which serve.Begun sets the flag.
func watch(ctx context.Context) (context.Context, *atomic.Bool) {
	begun := new(atomic.Bool)
	return serve.WithBegun(ctx, func() { begun.Store(true) }), begun
}

// Safe tells whether calls of the class may run twice.
func (c *Calls) Safe() bool { return c.class.Safe }
