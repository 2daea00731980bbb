package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
)

// Source gives the state of the cluster. It is safe for concurrent use.
type Source interface {
	// State is the state of the moment; nil while there is none.
	State() *members.State
	// Stale is called when a member refused the map of seen: it returns a newer state, or why there is none. It honours ctx.
	Stale(ctx context.Context, seen *members.State) (*members.State, error)
}

// DefaultReserve is the Budget.Reserve of Options that set none.
const DefaultReserve = 20 * time.Millisecond

// DefaultCallTimeout is the CallTimeout of Options that set none.
const DefaultCallTimeout = 30 * time.Second

// DefaultStreamIdle is the StreamIdle of Options that set none.
const DefaultStreamIdle = 30 * time.Second

// DefaultHung is the Hung of Options that set none.
const DefaultHung = members.DefaultHung

// maxStale is how often a call is repeated because its shard map was refused.
const maxStale = 3

// Options of a Reader. The zero value means the defaults.
type Options struct {
	// Node and Version are what Ping and Info say of the coordinator itself.
	Node, Version string
	// Order is how a member is chosen among those of a group. Default: replica.Adaptive.
	Order replica.Order
	// Standing, if not nil, is asked at each call what is to be thought of each member. It has to be quick. A group all of whose members are
	// replica.Out is not asked, and counts as failed.
	Standing func(addr string) replica.Standing
	// Vouch, if not nil, is asked whether an answer of a member can be taken that speaks of an instance of an index. Its error sends the call
	// to another member. It is not asked of answers of members that are coordinators. Before a stream, and of a member that says it does not have an
	// index, the instance is 0, and it is asked each time.
	Vouch func(ctx context.Context, m *members.Member, index string, instance uint64) error
	// Policy decides on hedges and retries, for all calls together. Default: one whose burst is half the number of shards, at least
	// that of package hedge, and with as many attempts as a group has members, as of the first state.
	Policy *hedge.Policy
	// Budget divides the time of a call between the groups and what follows. Of Reserve no more is kept back than an eighth of
	// what is left. Default of Reserve: DefaultReserve; negative: none.
	Budget serve.Budget
	// CallTimeout bounds a call whose caller sets no deadline, but for IDs and Export, which take as long as their caller reads.
	// Default: DefaultCallTimeout.
	CallTimeout time.Duration
	// Hung is how long a call, other than IDs and Export, runs before its member is pinged. One that leaves two pings in a row unanswered,
	// for half of that each, is taken for one that cannot be reached, however much time the call has: a process that is stopped, or a host
	// that is gone without a word. Default: DefaultHung.
	Hung time.Duration
	// StreamIdle bounds how long a member may give nothing of IDs and Export: then another one of its group goes on where it was. The time
	// that what came waits for its caller does not count. Where there is no other, the call fails as if the member could not be reached.
	// Default: DefaultStreamIdle.
	StreamIdle time.Duration
	// Parallel is how many groups are asked at once; 0 is all.
	Parallel int
	// Canary, if not nil, keeps a query that brought one member down from being sent to all of them again.
	Canary *serve.Canary
}

// Reader reads from the groups of a cluster. Its methods are those of leaf.Member that read. It does not own the members.
type Reader struct {
	src   Source
	o     Options
	plans plans
	sizes sizes

	policyOnce sync.Once
	policy     *hedge.Policy
	classes    [numClasses]*hedge.Calls

	duplicates atomic.Uint64
	stale      atomic.Uint64
	askedAgain atomic.Uint64 // vector searches of which some group was asked twice

	mu     sync.Mutex
	closed bool
	calls  map[*running]struct{}
}

// New returns a Reader, or an error that says what is wrong with the options.
func New(src Source, o Options) (*Reader, error) {
	if src == nil {
		return nil, errors.New("read: there is no source of states")
	}
	switch {
	case o.Budget.Reserve == 0:
		o.Budget.Reserve = DefaultReserve
	case o.Budget.Reserve < 0:
		o.Budget.Reserve = 0
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = DefaultCallTimeout
	}
	if o.StreamIdle <= 0 {
		o.StreamIdle = DefaultStreamIdle
	}
	if o.Hung <= 0 {
		o.Hung = DefaultHung
	}
	if err := o.Budget.Validate(); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if o.Order != replica.Adaptive && o.Order != replica.Preferred {
		return nil, fmt.Errorf("read: there is no order %d", o.Order)
	}
	return &Reader{src: src, o: o, calls: map[*running]struct{}{}}, nil
}

// Close ends the calls under way; they and later ones fail with leaf.ErrClosed. The members stay open. It does not wait for callers.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for c := range r.calls {
		c.cancel()
	}
	return nil
}

// Duplicates counts the ids that came from two shards in one answer, and were given once. It grows only while a copy of a document
// stands where it does not belong.
func (r *Reader) Duplicates() uint64 { return r.duplicates.Load() }

// AskedAgain counts the vector searches of which some group was asked twice, because all that it gave first was among the nearest.
func (r *Reader) AskedAgain() uint64 { return r.askedAgain.Load() }

// Stale counts the calls that were repeated because a member had a newer shard map.
func (r *Reader) Stale() uint64 { return r.stale.Load() }

// Hedging are the counters of the policy of hedges and retries; zero before the first call.
func (r *Reader) Hedging() hedge.Stats {
	if p := r.plans.current.Load(); p == nil {
		return hedge.Stats{}
	}
	return r.policy.Stats()
}

// Replicas is what is known of the members of each group, in order of the groups; nil before the first call.
func (r *Reader) Replicas() [][]replica.Stats {
	p := r.plans.current.Load()
	if p == nil {
		return nil
	}
	out := make([][]replica.Stats, len(p.groups))
	for i, g := range p.groups {
		out[i] = g.calls.Stats()
	}
	return out
}

// running is a call under way.
type running struct {
	caller context.Context // the context that the caller gave
	ctx    context.Context // that of the calls that are made for it; ends a little sooner
	cancel context.CancelFunc
}

// enter begins a call; it must be left once. limit bounds one whose caller sets no deadline; 0: nothing does.
func (r *Reader) enter(caller context.Context, limit time.Duration) (*running, error) {
	if caller.Err() != nil {
		return nil, context.Cause(caller)
	}
	c := &running{caller: caller}
	now := time.Now()
	if end, ok := r.o.Budget.End(caller, now); ok {
		// A reserve beyond what is left would leave no time for the call itself.
		end = end.Add(-min(r.o.Budget.Reserve, end.Sub(now)/8))
		c.ctx, c.cancel = context.WithDeadline(caller, end)
	} else if limit > 0 {
		c.ctx, c.cancel = context.WithTimeout(caller, limit)
	} else {
		c.ctx, c.cancel = context.WithCancel(caller)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		c.cancel()
		return nil, leaf.ErrClosed
	}
	r.calls[c] = struct{}{}
	return c, nil
}

func (r *Reader) leave(c *running) {
	r.mu.Lock()
	delete(r.calls, c)
	r.mu.Unlock()
	c.cancel()
}

// ended is what has ended a call other than its time, nil if nothing has: its caller left, or the Reader was closed.
func (r *Reader) ended(c *running) error {
	if errors.Is(c.caller.Err(), context.Canceled) {
		return context.Cause(c.caller)
	}
	if c.caller.Err() == nil && errors.Is(c.ctx.Err(), context.Canceled) {
		return leaf.ErrClosed
	}
	return nil
}

// answer makes a call by the state of the moment, and again by a newer one as long as its map is refused.
func answer[R any](caller context.Context, r *Reader, run func(c *running, p *plan) (*R, error)) (*R, error) {
	return answerWithin(caller, r, r.o.CallTimeout, run)
}

// answerWithin is answer with another bound of a call whose caller sets no deadline; 0: nothing bounds it.
func answerWithin[R any](caller context.Context, r *Reader, limit time.Duration, run func(c *running, p *plan) (*R, error)) (*R, error) {
	c, err := r.enter(caller, limit)
	if err != nil {
		return nil, err
	}
	defer r.leave(c)
	st := r.src.State()
	for tries := 0; ; tries++ {
		p, err := r.planOf(st)
		if err != nil {
			return nil, err
		}
		reply, err := run(c, p)
		if err == nil {
			return reply, nil
		}
		if why := r.ended(c); why != nil {
			return nil, why
		}
		refused, ok := errors.AsType[*staleError](err)
		if !ok {
			return nil, err
		}
		if tries == maxStale {
			// Not as it is: to the caller it would be the refusal of its own map.
			return nil, &api.Problem{Code: api.NotReady, Detail: "the shard map changes again and again", RetryAfterMS: 1000, Cause: refused}
		}
		r.stale.Add(1)
		if st, err = r.newer(c, st, refused); err != nil {
			return nil, err
		}
	}
}

// newer asks for a state with a map that the members do not refuse.
func (r *Reader) newer(c *running, seen *members.State, refused error) (*members.State, error) {
	st, err := r.src.Stale(c.ctx, seen)
	if err == nil {
		return st, nil
	}
	if why := r.ended(c); why != nil {
		return nil, why
	}
	if c.ctx.Err() != nil {
		return nil, fmt.Errorf("read the shard map again: %w", context.Cause(c.ctx))
	}
	return nil, &api.Problem{
		Code: api.NotReady, Detail: "the shard map is out of date, and the newer one cannot be read", RetryAfterMS: 1000, Cause: errors.Join(err, refused),
	}
}

// staleError says that a member refused the shard map of a call.
type staleError struct{ cause error }

func (e *staleError) Error() string { return fmt.Sprintf("the shard map was refused: %v", e.cause) }
