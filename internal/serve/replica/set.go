// Package replica makes one leaf of several that hold the same data. A Set chooses a replica for each call, hedges and retries by a
// hedge.Policy, and leaves alone replicas that keep failing.
//
// # Choice
//
// Of two fit replicas drawn at random the better one is taken (Mitzenmacher, The Power of Two Choices, 2001): always taking the best
// one would send every caller to the same place until it is the worst. Better is the smaller score
//
//	latency · (1 + inFlight/Parallel)³
//
// after C3 (Suresh et al., NSDI 2015): the cube makes a long queue cost more than a fast server can make up for. C3 also has the
// servers report their queues and service times; here the caller knows only its own calls, so the latency is what it saw, queue
// included, and the calls in flight are its own. A replica without a known latency counts like the other one drawn. A latency fades
// while nothing renews it, so that a slow replica is tried again after some time: once in about Fade·ln(how many times slower it is).
//
// # Health
//
//	        Faults in a row,                  the time is over and
//	        Losses in a row                   one call is made there
//	fit ----------------------> probation ----------------------> probe
//	 ^                           ^                                 | |
//	 |                           +------ it fails: twice as long --+ |
//	 +------------------------------- it answers: slow start --------+
//
// A replica on probation gets one probe, a real call, when its time is over: it takes a probe from no one, as that call is hedged and
// retried like any other. When the probe was refused for want of room, or told nothing, the next one waits for BusyFor. Calls that are not safe to repeat make a probe only when no safe one came by for MaxProbation. A replica
// that refused for want of room is Busy: not at fault, but chosen only when no other is left for a short while. With no fit replica
// the busy ones are asked, then those with the shortest probation: a set is never empty. What a cancelled call says about its replica
// is written at the fields of Options; that its caller left says nothing.
//
// A Set and everything else here is safe for concurrent use.
package replica

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
)

// MaxReplicas is how many a set may have.
const MaxReplicas = 64

// Replica is one member of a Set.
type Replica[Q, R any] struct {
	// Name is unique in the set. What is known of a replica is kept under it when the members change.
	Name string
	Leaf serve.Leaf[Q, R]
}

// Order is how a Set chooses among the replicas that are fit.
type Order uint8

// The orders.
const (
	// Adaptive takes the better of two drawn at random.
	Adaptive Order = iota
	// Preferred takes the first in the order of the list, such as the nearest; hedges and retries go down the list.
	Preferred
)

// Standing is what the owner of a set says about a replica, besides what the set sees for itself.
type Standing uint8

// The standings.
const (
	Good Standing = iota
	Last          // it may lack something: asked when no other is left but those on probation, and never for a hedge
	Out           // it must not be asked, unless all replicas are Out
)

// Verdict is what an error says about the replica that returned it.
type Verdict uint8

// The verdicts.
const (
	Fine   Verdict = iota // the replica works: the request is at fault
	Busy                  // it refused for want of room
	Faulty                // it could not do its work
)

// JudgeOutcome is the default of Options.Judge: Refused is Busy; TimedOut (of a time that is not the caller's), Unavailable and Failed
// are Faulty.
func JudgeOutcome(err error) Verdict {
	switch serve.OutcomeOf(err) {
	case serve.Answered, serve.Skipped:
		return Fine
	case serve.Refused:
		return Busy
	}
	return Faulty
}

// Options of a Set. The zero value of each field but Calls means the default.
type Options[Q any] struct {
	// Name of the set in reports.
	Name string
	// Calls returns the class of a request, with its policy. Required.
	Calls func(req Q) *hedge.Calls
	// Order of choice. Default: Adaptive.
	Order Order
	// Standing, if not nil, is asked at each call what is to be thought of each replica. It has to be quick.
	Standing func(name string) Standing
	// Judge tells what an error says about its replica. Default: JudgeOutcome.
	Judge func(err error) Verdict
	// Parallel is how many calls a replica works on at once before they wait for each other. Default: 4.
	Parallel int
	// Fade is after how long without a call a known latency is down to 1/e. Default: 10 s.
	Fade time.Duration
	// Faults in a row put a replica on probation. Default: 3.
	Faults int
	// Losses in a row do so too: calls in which an attempt that was sent later, elsewhere, answered first, with no answer between.
	// Default: 8. Negative: never.
	Losses int
	// Probation is how long the first one lasts. Each failed probe doubles it, up to MaxProbation; so does a return to probation
	// during the slow start. Each is drawn from ±20 %, so that callers do not probe in step. Defaults: 1 s and 30 s.
	Probation, MaxProbation time.Duration
	// BusyFor is for how long a replica that refused is chosen only when no other is left, and how long after a probe without a result
	// the next one is made. Default: 100 ms.
	BusyFor time.Duration
	// Hang is how long a call must have run for it to be a fault that the time of its caller ended: an impatient caller says nothing
	// about a replica. Default: 100 ms.
	Hang time.Duration
	// SlowStart is for how long a replica that joined a running set, or is back from probation, gets less than its share: a tenth at
	// first, rising to all. Default: 10 s. Negative: none.
	SlowStart time.Duration
	// Rand is the source of randomness, safe for concurrent use. Default: rand.Uint64 of math/rand/v2.
	Rand func() uint64
}

func (o *Options[Q]) ensureDefaults() {
	if o.Judge == nil {
		o.Judge = JudgeOutcome
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	set(&o.Parallel, 4)
	set(&o.Fade, 10*time.Second)
	set(&o.Faults, 3)
	set(&o.Losses, 8)
	set(&o.Probation, time.Second)
	set(&o.MaxProbation, 30*time.Second)
	o.MaxProbation = max(o.MaxProbation, o.Probation)
	set(&o.BusyFor, 100*time.Millisecond)
	set(&o.Hang, 100*time.Millisecond)
	set(&o.SlowStart, 10*time.Second)
}

// set gives a setting that is zero its default.
func set[N int | time.Duration](setting *N, otherwise N) {
	if *setting == 0 {
		*setting = otherwise
	}
}

// Set is a leaf made of replicas.
type Set[Q, R any] struct {
	o    Options[Q]
	base time.Time // the times of states count from here

	update  sync.Mutex // held to change members
	members atomic.Pointer[[]member[Q, R]]
}

type member[Q, R any] struct {
	leaf serve.Leaf[Q, R]
	*state
}

// NewSet returns a set of 1 to MaxReplicas replicas with unique names.
func NewSet[Q, R any](replicas []Replica[Q, R], o Options[Q]) (*Set[Q, R], error) {
	if o.Calls == nil {
		return nil, errors.New("a set needs the class of its calls")
	}
	if o.Parallel < 0 || o.Fade < 0 || o.Faults < 0 || o.Probation < 0 || o.MaxProbation < 0 || o.BusyFor < 0 || o.Hang < 0 {
		return nil, errors.New("a setting of the set is negative")
	}
	o.ensureDefaults()
	s := &Set[Q, R]{o: o, base: time.Now()}
	if err := s.change(replicas, 0); err != nil {
		return nil, err
	}
	return s, nil
}

// Update replaces the members. Those whose name stays keep what is known of them; new ones begin slowly. Calls that are under way go
// on with the members that they began with.
func (s *Set[Q, R]) Update(replicas []Replica[Q, R]) error {
	return s.change(replicas, s.since(time.Now())+int64(max(s.o.SlowStart, 0)))
}

// change replaces the members; the slow start of new ones ends at slowUntil.
func (s *Set[Q, R]) change(replicas []Replica[Q, R], slowUntil int64) error {
	if len(replicas) == 0 || len(replicas) > MaxReplicas {
		return fmt.Errorf("a set has 1 to %d replicas, not %d", MaxReplicas, len(replicas))
	}
	s.update.Lock()
	defer s.update.Unlock()
	known := map[string]*state{}
	if old := s.members.Load(); old != nil {
		for _, m := range *old {
			known[m.name] = m.state
		}
	}
	next := make([]member[Q, R], len(replicas))
	seen := map[string]bool{}
	for i, r := range replicas {
		if seen[r.Name] {
			return fmt.Errorf("two replicas are named %q", r.Name)
		}
		seen[r.Name] = true
		if r.Leaf == nil {
			return fmt.Errorf("replica %q has no leaf", r.Name)
		}
		st := known[r.Name]
		if st == nil {
			st = &state{name: r.Name}
			st.average.Fade = s.o.Fade
			st.slowUntil.Store(slowUntil)
		}
		next[i] = member[Q, R]{r.Leaf, st}
	}
	s.members.Store(&next)
	return nil
}

// since is a time as states keep it: nanoseconds, at least 1.
func (s *Set[Q, R]) since(now time.Time) int64 { return max(int64(now.Sub(s.base)), 0) + 1 }

// Call implements serve.Leaf: it returns the answer of the first replica that has one, or the last error.
func (s *Set[Q, R]) Call(ctx context.Context, req Q) (R, error) {
	now := time.Now()
	c := &call[Q, R]{set: s, members: *s.members.Load(), ctx: ctx, req: req, began: now}
	class := s.o.Calls(req)
	c.safe = class.Safe()
	report, _ := ctx.Value(reportKey{}).(func(*Report))
	o := hedge.DoOptions{Now: now}
	if report != nil {
		o.Report = &hedge.Report{}
	}
	n := len(c.members)
	if s.o.Standing != nil {
		n -= c.stand()
	}
	// The first choice is made here, for it decides how many replicas are left for hedges.
	tiers := c.tiers(s.since(now))
	o.Fit = bits.OnesCount64(tiers.fit)
	if tiers.fit&(1<<c.choose(0, now, &tiers)) == 0 {
		o.Fit++
	}
	v, err := hedge.Do(ctx, class, n, o, c.attempt)
	if report != nil {
		report(c.report(o.Report))
	}
	return v, err
}

// call is one call of a set.
type call[Q, R any] struct {
	set     *Set[Q, R]
	members []member[Q, R]
	ctx     context.Context // the caller's
	req     Q
	began   time.Time
	safe    bool
	last    uint64 // a bit for each member that is Last

	mu     sync.Mutex
	tried  uint64            // a bit for each member that was chosen, or is not to be
	chosen [MaxReplicas]int8 // the member of each attempt, counted from 1; 0: it has not chosen
	first  bool              // the first attempt has begun
	probe  bool              // the first attempt is one
}

// attempt is what hedge.Do calls. An attempt that is made again, after it was skipped, goes to the same member. Attempts run on
// goroutines of their own and may come here in another order than they were sent.
func (c *call[Q, R]) attempt(ctx context.Context, i int) (R, error) {
	s := c.set
	c.mu.Lock()
	began := c.began
	if i == 0 && !c.first {
		// It begins with the call.
		c.first = true
	} else {
		began = time.Now()
	}
	at := int(c.chosen[i]) - 1
	if at < 0 {
		tiers := c.tiers(s.since(began))
		at = c.choose(i, began, &tiers)
	}
	m := c.members[at]
	// Only its first time is the probe.
	probe := i == 0 && c.probe
	c.probe = c.probe && !probe
	c.mu.Unlock()

	m.inFlight.Add(1)
	m.calls.Add(1)
	ended := false
	defer func() {
		// A panic goes up; the count must not stay.
		if !ended {
			m.inFlight.Add(-1)
			s.judge(m.state, time.Now(), Faulty, probe)
		}
	}()
	v, err := m.leaf.Call(ctx, c.req)
	ended = true
	m.inFlight.Add(-1)
	now := time.Now()
	took := now.Sub(began)
	if err == nil {
		m.average.Record(now, took)
		s.judge(m.state, now, Fine, probe)
		return v, nil
	}
	m.average.RecordAtLeast(now, took)
	switch v := s.verdict(c.ctx, ctx, err, now, took); v {
	case unknown:
		if probe {
			s.probeAgain(m.state, now)
		}
	case overtaken:
		s.overtaken(m.state, now, probe)
	default:
		s.judge(m.state, now, v, probe)
	}
	return v, err
}

// Verdicts on calls that did not end by themselves.
const (
	unknown   Verdict = iota + Faulty + 1
	overtaken         // a later attempt elsewhere answered first
)

// verdict tells what the error of an attempt says. caller and own are the contexts of the call and of the attempt.
func (s *Set[Q, R]) verdict(caller, own context.Context, err error, now time.Time, took time.Duration) Verdict {
	// Of an attempt that the hedge ended, the end of the caller's time says nothing, though it may have come too before the attempt
	// returned. Where both have the same cause an outer hedge ended the caller.
	switch why := context.Cause(own); {
	case why == nil || why == context.Cause(caller):
	case why == hedge.ErrOvertaken:
		return overtaken
	case why == hedge.ErrLost || why == hedge.ErrSkipped:
		return unknown
	}
	// A transport may notice the end of the time a moment before the context does.
	if at, ok := caller.Deadline(); ok && !now.Before(at) || errors.Is(caller.Err(), context.DeadlineExceeded) {
		if took >= s.o.Hang {
			return Faulty
		}
		return unknown
	}
	if caller.Err() != nil {
		return unknown
	}
	return s.o.Judge(err)
}

// Report is what one call of a set did.
type Report struct {
	Set      string
	Delay    time.Duration // after which the first hedge was due; 0 if there was to be none
	Denied   bool          // the budget refused a hedge or a retry
	Attempts []Attempt     // in the order in which they were sent
}

// Attempt is one attempt of a call, with the replica that it went to.
type Attempt struct {
	Replica string
	hedge.Attempt
}

func (c *call[Q, R]) report(r *hedge.Report) *Report {
	out := &Report{Set: c.set.o.Name, Delay: r.Delay, Denied: r.Denied, Attempts: make([]Attempt, len(r.Attempts))}
	for i, a := range r.Attempts {
		out.Attempts[i] = Attempt{c.members[c.chosen[a.Index]-1].name, a}
	}
	return out
}

// WithReport returns a context with which each Set that is called gives fn, when its call is done, a report. fn may be called from
// several goroutines at once, as the sets of a fan-out are.
func WithReport(ctx context.Context, fn func(*Report)) context.Context {
	return context.WithValue(ctx, reportKey{}, fn)
}

type reportKey struct{}

// Stats is the state of one replica.
type Stats struct {
	Name      string
	InFlight  int64
	Latency   time.Duration // its moving average; 0 if unknown
	Calls     uint64        // attempts made
	Faults    uint64        // attempts that it failed
	Losses    uint64        // attempts that were overtaken
	Refusals  uint64        // attempts that it refused for want of room
	Probation time.Duration // for how much longer it is on probation; negative when a probe is due; 0 if it is not
}

// Stats returns the state of every replica, in the order of the list.
func (s *Set[Q, R]) Stats() []Stats {
	members := *s.members.Load()
	now := time.Now()
	out := make([]Stats, len(members))
	for i, m := range members {
		out[i] = Stats{
			Name: m.name, InFlight: m.inFlight.Load(), Latency: m.average.Value(now),
			Calls: m.calls.Load(), Faults: m.faults.Load(), Losses: m.losses.Load(), Refusals: m.refusals.Load(),
		}
		if until := m.probation.Load(); until != 0 {
			if out[i].Probation = time.Duration(until - s.since(now)); out[i].Probation == 0 {
				out[i].Probation = -1
			}
		}
	}
	return out
}
