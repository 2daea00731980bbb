package write

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/store"
)

// Source gives the state of the cluster. It is safe for concurrent use.
type Source interface {
	// State is the state of the moment; nil while there is none.
	State() *members.State
	// Stale is called when a member refused the map of seen: it returns a newer state, or why there is none. It honours ctx.
	Stale(ctx context.Context, seen *members.State) (*members.State, error)
}

// Hints keeps the ids of documents that a member has missed. It is safe for concurrent use.
type Hints interface {
	// Add notes that the member may have another state of these documents than the others of its group. full says that there was no
	// room for all of them: the member needs a repair of the whole index then.
	Add(member, index string, ids []string) (full bool, err error)
}

// DoubtfulHints are Hints that tell apart what no member has confirmed: it does not say that one member has what another lacks.
type DoubtfulHints interface {
	// AddUnacknowledged is Add of writes that neither the member nor another has confirmed.
	AddUnacknowledged(member, index string, ids []string) (full bool, err error)
}

// Limits of a Writer. A zero field means its default.
type Limits struct {
	DocumentBytes int64         // a document; 16 MiB
	BulkIDs       int           // ids that a load remembers to count duplicates; 8 Mi
	BulkErrors    int           // rejected documents listed in one reply; 10,000
	LoadBytes     int64         // documents of one load that wait or are on their way; 32 MiB, and at least twice a document
	CallTimeout   time.Duration // one call of a member that is not a bulk load; 10 s
	ChunkTimeout  time.Duration // one chunk of a load at a member; 90 s
	BulkStall     time.Duration // longest wait of a load for room at a member; 1 min
	SchemaAge     time.Duration // for how long a schema is taken for the newest; 1 s
	SettleTimeout time.Duration // settling what a caller did not wait for; 10 s
	// Hung is how long a call of a member runs before the member is pinged; one that leaves two pings in a row unanswered, for half of that each, is
	// not waited for, and while it answers none it is not written to; 4 s.
	Hung time.Duration
}

func (l Limits) withDefaults() Limits {
	defaults := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if l.DocumentBytes <= 0 {
		l.DocumentBytes = 16 << 20
	}
	if l.BulkIDs <= 0 {
		l.BulkIDs = 8 << 20
	}
	if l.BulkErrors <= 0 {
		l.BulkErrors = 10_000
	}
	if l.LoadBytes <= 0 {
		l.LoadBytes = 32 << 20
	}
	l.LoadBytes = max(l.LoadBytes, 2*l.DocumentBytes)
	defaults(&l.CallTimeout, 10*time.Second)
	defaults(&l.ChunkTimeout, 90*time.Second)
	defaults(&l.BulkStall, time.Minute)
	defaults(&l.SchemaAge, time.Second)
	defaults(&l.SettleTimeout, 10*time.Second)
	defaults(&l.Hung, members.DefaultHung)
	return l
}

// Options of a Writer. The zero value means the defaults.
type Options struct {
	Hints  Hints // nil: none are kept
	Limits Limits
	// Store is where coordinators agree on new fields before any member is given them. nil: the first member of group 0 that each of them
	// reaches decides, which two that reach different ones decide in two ways.
	Store store.Store
	// Memory gives out bytes: Limits.LoadBytes to each load, and four times the length of a document over 64 KiB while it is taken apart.
	// nil: they are not counted. Its refusals have the words of front.GateMemory.
	Memory *admit.Gate
	// BodyProblem says why the stream of a load could not be read to its end. nil: in general words.
	BodyProblem func(ctx context.Context, err error) *api.Problem
	Log         *slog.Logger // nil: nothing is logged
}

// Stats counts what is out of the ordinary.
type Stats struct {
	Stale    uint64 // writes that were repeated because a member had a newer shard map
	Retried  uint64 // calls of members that were made again
	Crossed  uint64 // documents that members had in different states after they had all taken a write
	Settled  uint64 // documents that were put or deleted at a member to make it equal to another
	Undone   uint64 // documents that were put once more because copies may have undone them at all members
	Hinted   uint64 // ids that were noted for members
	Unhinted uint64 // ids that could not be noted
}

// counters are Stats under way.
type counters struct {
	stale, retried, crossed, settled, undone, hinted, unhinted atomic.Uint64
}

// Writer writes to the groups of a cluster. Its methods are those of leaf.Member that write. It does not own the members.
type Writer struct {
	src      Source
	o        Options
	log      *slog.Logger
	count    counters
	schemas  schemas
	faults   faults
	book     *book // nil without a store
	loads    loads
	fences   fences
	finisher chan struct{} // holds a token for each settling in the background

	chunkDocs int // documents in a chunk of a load

	closed context.Context // ends with Close
	cancel context.CancelCauseFunc
	mu     sync.Mutex // held while a call is counted in, and while Close ends that
	calls  sync.WaitGroup
}

// New returns a Writer, or an error that says what is wrong with the options. Close must be called.
func New(src Source, o Options) (*Writer, error) {
	if src == nil {
		return nil, errors.New("write: there is no source of states")
	}
	o.Limits = o.Limits.withDefaults()
	if m := o.Memory; m != nil && m.Limit() < o.Limits.LoadBytes {
		return nil, fmt.Errorf("write: memory of %d bytes is less than that of one load, %d", m.Limit(), o.Limits.LoadBytes)
	}
	if o.Log == nil {
		o.Log = obs.Discard()
	}
	if o.BodyProblem == nil {
		o.BodyProblem = bodyProblem
	}
	w := &Writer{src: src, o: o, log: o.Log, finisher: make(chan struct{}, maxFinishing), chunkDocs: chunkDocs}
	if o.Store != nil {
		w.book = &book{s: o.Store}
	}
	w.closed, w.cancel = context.WithCancelCause(context.Background())
	return w, nil
}

// Close ends the calls under way and waits for them; they and later ones fail with leaf.ErrClosed. The members stay open.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.cancel(leaf.ErrClosed)
	w.mu.Unlock()
	w.calls.Wait()
	return nil
}

// Stats counts since the Writer was made.
func (w *Writer) Stats() Stats {
	c := &w.count
	return Stats{
		Stale: c.stale.Load(), Retried: c.retried.Load(), Crossed: c.crossed.Load(), Settled: c.settled.Load(),
		Undone: c.undone.Load(), Hinted: c.hinted.Load(), Unhinted: c.unhinted.Load(),
	}
}

// enter begins a call; leave must be called once. ctx ends with that of the caller or when the Writer is closed.
func (w *Writer) enter(caller context.Context) (ctx context.Context, leave func(), err error) {
	if caller.Err() != nil {
		return nil, nil, context.Cause(caller)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Err() != nil {
		return nil, nil, leaf.ErrClosed
	}
	w.calls.Add(1)
	serve.Begun(caller)
	ctx, stop := w.until(caller)
	return ctx, func() {
		stop()
		w.calls.Done()
	}, nil
}

// until is a context that ends with ctx or with the Writer.
func (w *Writer) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(w.closed, func() { cancel(leaf.ErrClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// within bounds one call of a member. It ends a little before its caller's time does, so that there is time to tell what became of it.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		limit = min(limit, left-min(left/8, 50*time.Millisecond))
	}
	return context.WithTimeout(ctx, limit)
}

// pause waits, or returns what ended the context.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxStale is how often a write is repeated because its shard map was refused.
const maxStale = 8

// staleError says that a member refused the shard map of a write.
type staleError struct {
	cause error
	// applied says that other members may have applied the write under that map.
	applied bool
}

func (e *staleError) Error() string { return fmt.Sprintf("the shard map was refused: %v", e.cause) }
func (e *staleError) Unwrap() error { return e.cause }

// byState makes a write by the state of the moment, and again by a newer one as long as its map is refused.
func byState[R any](ctx context.Context, w *Writer, run func(st *members.State) (*R, error)) (*R, error) {
	st := w.src.State()
	if st == nil {
		return nil, notReady()
	}
	applied := false
	for try := 0; ; try++ {
		reply, err := run(st)
		if err == nil {
			return reply, nil
		}
		refused, ok := errors.AsType[*staleError](err)
		if !ok {
			if applied {
				err = uncertain(err)
			}
			return nil, err
		}
		applied = applied || refused.applied
		if try == maxStale {
			return nil, staleProblem("the shard map changes again and again", applied, refused)
		}
		w.count.stale.Add(1)
		next, err := w.src.Stale(ctx, st)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, ended("", cause, applied)
			}
			return nil, staleProblem("the shard map is out of date, and the newer one cannot be read", applied, errors.Join(err, refused))
		}
		st = next
	}
}

func notReady() *api.Problem {
	return &api.Problem{Code: api.NotReady, RetryAfterMS: 500, Detail: "the coordinator does not know the shard map yet"}
}

// staleProblem is the refusal of a write whose shard map nobody takes. It is not api.StaleMap: to a caller that is a coordinator itself that
// would be the refusal of its own map.
func staleProblem(detail string, applied bool, cause error) *api.Problem {
	if applied {
		return &api.Problem{Code: api.WriteUncertain, Detail: detail + "; some members may have applied the write", Cause: cause}
	}
	return &api.Problem{Code: api.NotReady, Detail: detail, RetryAfterMS: 1000, Cause: cause}
}

// uncertain is the error of a write that was repeated under a newer map and refused then, after members may have applied it under the
// older one.
func uncertain(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		if p.Code == api.WriteUncertain {
			return err
		}
		return &api.Problem{
			Code: api.WriteUncertain, Cause: err,
			Detail: "some members may have applied the write under an older shard map; under the newer one it was refused: " + api.ClipDetail(p.Detail),
		}
	}
	e, ok := errors.AsType[*leaf.TransportError](err)
	if !ok {
		return ended("", err, true)
	}
	maybe := *e
	maybe.MaybeApplied = true
	return &maybe
}

// ended is the error of a write whose context has ended.
func ended(call string, cause error, applied bool) error {
	if applied {
		return &leaf.TransportError{Address: "the cluster", Call: call, MaybeApplied: true, Cause: cause}
	}
	return cause
}

// indexName is the name of the index of a request.
func indexName(name string) (string, error) {
	if name == "" {
		return api.DefaultIndex, nil
	}
	if p := api.CheckIndexName(name); p != nil {
		return "", p
	}
	return name, nil
}

// noIndex is the problem of an index that no member has.
func noIndex(name string) *api.Problem {
	return api.NewProblem(api.IndexNotFound, fmt.Sprintf("there is no index %q; the first write to it, or PUT /indexes/{name}, makes it", api.Clip(name))).On(front.IndexParam)
}

// charge takes memory of the gate, if there is one.
func (w *Writer) charge(ctx context.Context, bytes int64) (*admit.Place, error) {
	if w.o.Memory == nil || bytes <= 0 {
		return nil, nil
	}
	place, err := w.o.Memory.Enter(ctx, min(bytes, w.o.Memory.Limit()))
	if err != nil {
		return nil, asProblem(ctx, err)
	}
	return place, nil
}

// hint notes that a member may lack the last writes of documents, which another has confirmed.
func (w *Writer) hint(member, index string, ids []string) {
	if w.o.Hints != nil {
		w.keep(w.o.Hints.Add, member, index, ids)
	}
}

// doubt notes that a member may lack the last writes of documents, which none has confirmed.
func (w *Writer) doubt(member, index string, ids []string) {
	if h, ok := w.o.Hints.(DoubtfulHints); ok {
		w.keep(h.AddUnacknowledged, member, index, ids)
	} else {
		w.hint(member, index, ids)
	}
}

func (w *Writer) keep(add func(member, index string, ids []string) (bool, error), member, index string, ids []string) {
	if len(ids) == 0 {
		return
	}
	full, err := add(member, index, ids)
	if err != nil {
		w.count.unhinted.Add(uint64(len(ids)))
		w.log.Error("keep a hint for a member", "member", member, "index", index, "ids", len(ids), "error", err)
		return
	}
	if full {
		w.log.Warn("hints of a member are full; it needs a repair", "member", member, "index", index)
	}
	w.count.hinted.Add(uint64(len(ids)))
}

// StageWrite is the stage of a write in Meta.Timings: from its arrival until every member has answered.
const StageWrite = "write"

// Stages of a write besides StageWrite.
const (
	StageType   = "type"   // taking documents apart, and what that needs of the schema
	StageSettle = "settle" // comparing the members
)

// stopwatch measures the stages of a call.
type stopwatch struct {
	start time.Time
	last  int64
	laps  []api.Timing
}

func newStopwatch() *stopwatch { return &stopwatch{start: time.Now()} }

// lap ends a stage. Stages of one name are added up.
func (s *stopwatch) lap(stage string) {
	now := api.Micros(time.Since(s.start))
	took := now - s.last
	s.last = now
	for i := range s.laps {
		if s.laps[i].Stage == stage {
			s.laps[i].Micros += took
			return
		}
	}
	s.laps = append(s.laps, api.Timing{Stage: stage, Micros: took})
}

// asProblem is what a caller is told of an error of work on its behalf.
func asProblem(ctx context.Context, err error) *api.Problem {
	p, cause := front.FirstProblem(ctx, err)
	switch {
	case p != nil:
		return p
	case errors.Is(cause, leaf.ErrClosed):
		return front.ShuttingDown()
	}
	return front.LastProblem(cause)
}

// bodyProblem says in general words why a stream could not be read to its end.
func bodyProblem(ctx context.Context, err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		again := *p
		return &again
	}
	if cause := context.Cause(ctx); cause != nil {
		return asProblem(ctx, cause)
	}
	return &api.Problem{Code: api.InvalidBody, Detail: "the body could not be read to its end", Cause: err}
}
