package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Defaults of LoaderOptions.
const (
	DefaultTimeout      = 10 * time.Second
	DefaultNegativeTTL  = time.Second
	DefaultMaxNegatives = 4096
	DefaultMaxLoads     = 256
)

// LoaderOptions are the numbers of a Loader. The zero value takes all defaults.
type LoaderOptions struct {
	// Timeout is what a load may take, whoever waits for it; zero means DefaultTimeout.
	Timeout time.Duration
	// TTL is how long a value is kept that does not say so itself; zero means until it is evicted, which is right where the answer
	// depends on the key alone.
	TTL time.Duration
	// NegativeTTL is how long it is remembered that there is nothing; zero means DefaultNegativeTTL, negative that it is not.
	NegativeTTL time.Duration
	// MaxNegatives is how many such keys are remembered; zero means DefaultMaxNegatives, negative none. They have room of their own,
	// so that a scan of unknown keys pushes out nothing but its like.
	MaxNegatives int
	// MaxLoads is how many loads may run at once, those included that nobody waits for; zero means DefaultMaxLoads.
	MaxLoads int
	// MaxOrphans is how many loads may go on when their last waiter has left; one that is too many is cancelled. Zero means a quarter
	// of MaxLoads, but at least one, so that callers who come and leave cannot take up all the loads; negative means none.
	MaxOrphans int
}

func (o LoaderOptions) withDefaults() LoaderOptions {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.NegativeTTL == 0 {
		o.NegativeTTL = DefaultNegativeTTL
	}
	if o.MaxNegatives == 0 {
		o.MaxNegatives = DefaultMaxNegatives
	}
	if o.MaxLoads <= 0 {
		o.MaxLoads = DefaultMaxLoads
	}
	if o.MaxOrphans == 0 {
		o.MaxOrphans = max(o.MaxLoads/4, 1)
	}
	return o
}

// Loaded is what a load found.
type Loaded[V any] struct {
	// Value is the answer. It is shared and must not be changed afterwards.
	Value V
	// Cost is how many bytes Value holds.
	Cost int64
	// TTL is how long it may be kept; zero means LoaderOptions.TTL, negative that it may not.
	TTL time.Duration
	// Snapshot is the one that was read. If it is not the key's, because the index has moved on, the waiters get the answer, but it
	// is not kept. It is required unless Uncached is set.
	Snapshot Snapshot
	// NotFound says that there is nothing: waiters get ErrNotFound, and it is remembered for a short time.
	NotFound bool
	// Uncached says that the answer is good for those who wait but not for anybody later, as one with a shard missing.
	Uncached bool
}

// Load makes the answer of a key. It must return promptly when its context ends. The context is the Loader's: its deadline is
// LoaderOptions.Timeout away and it carries no value of any caller's context; what a load needs of the caller, a trace to link to for
// instance, is in the request. A panic becomes an error of those who wait.
type Load[Q, V any] func(ctx context.Context, key Key, req Q) (Loaded[V], error)

// Origin says where an answer comes from.
type Origin uint8

// Origins of an answer.
const (
	Hit        Origin = iota // it was in the cache
	ByLoad                   // a load that this caller began
	ByOthers                 // a load that was under way when this caller came
	FromNobody               // there is no answer: the caller was refused or never got to wait
)

var originNames = [...]string{"hit", "load", "joined", "none"}

// String is the name of an origin: hit, load, joined or none.
func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return fmt.Sprintf("origin %d", uint8(o))
}

// Counters are what a Loader has done. Hits, Misses and NegativeHits add up to the calls of Get with a valid key.
type Counters struct {
	Hits         uint64 // answers from the cache
	NegativeHits uint64 // ErrNotFound from memory
	Misses       uint64 // all other calls; they loaded, joined, were refused, or came with a context that had ended
	Loads        uint64 // loads begun
	Joined       uint64 // calls that waited for a load that another had begun
	Abandoned    uint64 // waits that ended with the caller's context and not with the load
	Cancelled    uint64 // loads cancelled because nobody waited and no more might go on
	Errors       uint64 // loads that failed, panics included; finding nothing is no failure
	Panics       uint64 // loads that panicked
	Refused      uint64 // calls that hit MaxLoads
	Moved        uint64 // answers not kept because they were read from another snapshot than the key's
	Forgotten    uint64 // answers not kept because of a Forget during the load

	Running int // loads that run now
	Orphans int // those of them that nobody waits for
	Cache   Usage
}

// Loader answers from a cache, and loads what is not in it: once, for all who ask for it meanwhile.
//
// A load belongs to the Loader and not to the caller who happened to come first. It runs under a deadline of its own, and a caller
// who leaves frees only itself. When the last one has left, the load goes on, so that the work is not wasted and the next caller
// finds its result; how many such loads there may be is bounded (MaxOrphans), and a caller who comes back joins one. An error goes
// to all who wait for it and is not kept.
//
// The cache has to be right for the contract of Cache only: with one that drops everything, calls at the same time still share a load.
type Loader[Q, V any] struct {
	cache Cache[Key, V]
	load  Load[Q, V]
	opts  LoaderOptions

	base   context.Context // of all loads
	cancel context.CancelCauseFunc
	loads  sync.WaitGroup
	epoch  time.Time
	hits   counter

	mu struct {
		sync.Mutex
		closed  bool
		flights map[Key]*flight[V]
		none    *LRU[Key, struct{}] // keys that hold nothing
		// count holds all counters but Hits.
		count Counters
		// held is a moving average of how long a load takes: 7/8 old + 1/8 new. begun is the sum over all running loads of when they
		// began; it may wrap around, differences stay right.
		held  time.Duration
		begun time.Duration
	}
}

// flight is a load that runs. value and err are written before done is closed; the rest needs Loader.mu.
type flight[V any] struct {
	done  chan struct{}
	value V
	err   error

	cancel  context.CancelCauseFunc
	begun   time.Duration // since Loader.epoch
	waiters int
	over    bool
	orphan  bool
	// detached says that nobody may join any more and that the result is not kept: the key was forgotten or the load cancelled.
	detached bool
}

// NewLoader makes a loader over a cache, which stays the caller's to close, after the loader.
func NewLoader[Q, V any](cache Cache[Key, V], load Load[Q, V], o LoaderOptions) *Loader[Q, V] {
	l := &Loader[Q, V]{cache: cache, load: load, opts: o.withDefaults(), epoch: time.Now()}
	l.base, l.cancel = context.WithCancelCause(context.Background())
	l.mu.flights = map[Key]*flight[V]{}
	l.mu.none = NewLRU[Key, struct{}](maxCost, l.opts.MaxNegatives)
	return l
}

// Get returns the answer of a key, from the cache or by a load, and says where it comes from. req is what the key's Request is the
// fingerprint of: a load may use it after Get has returned, so it must not be changed.
//
// Errors are the load's, as it returned it or in a *TimeoutError or with ErrClosed around it; *PanicError; ErrNotFound; ErrNoSnapshot;
// *RefusedError and ErrClosed before a load begins; and the cause of ctx when that ends first. A hit is served whatever ctx says.
func (l *Loader[Q, V]) Get(ctx context.Context, key Key, req Q) (V, Origin, error) {
	var none V
	if key.snapshot.IsZero() {
		return none, FromNobody, ErrNoSnapshot
	}
	if v, ok := l.cache.Get(key); ok {
		l.hits.add()
		return v, Hit, nil
	}
	f, v, origin, err := l.join(ctx, key, req)
	if f == nil {
		return v, origin, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		if l.leave(key, f) {
			return none, origin, context.Cause(ctx)
		}
		<-f.done
	}
	return f.value, origin, f.err
}

// join makes the caller a waiter of the key's load, which it begins if there is none; or, without a flight, it returns what Get
// must return.
func (l *Loader[Q, V]) join(ctx context.Context, key Key, req Q) (f *flight[V], v V, origin Origin, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.mu.count
	f = l.mu.flights[key]
	if f == nil {
		// A load may have ended since the cache was asked.
		if v, ok := l.cache.Get(key); ok {
			l.hits.add()
			return nil, v, Hit, nil
		}
		if _, ok := l.mu.none.Get(key); ok {
			n.NegativeHits++
			return nil, v, Hit, ErrNotFound
		}
	}
	n.Misses++
	if err := context.Cause(ctx); err != nil {
		return nil, v, FromNobody, err
	}
	if f != nil {
		n.Joined++
		if f.orphan {
			f.orphan = false
			n.Orphans--
		}
		f.waiters++
		return f, v, ByOthers, nil
	}
	if l.mu.closed {
		return nil, v, FromNobody, ErrClosed
	}
	if n.Running >= l.opts.MaxLoads {
		n.Refused++
		return nil, v, FromNobody, l.refuseLocked()
	}
	return l.beginLocked(key, req), v, ByLoad, nil
}

func (l *Loader[Q, V]) beginLocked(key Key, req Q) *flight[V] {
	parent, cancel := context.WithCancelCause(l.base)
	ctx, stop := context.WithTimeout(parent, l.opts.Timeout)
	f := &flight[V]{done: make(chan struct{}), cancel: cancel, begun: time.Since(l.epoch), waiters: 1}
	l.mu.flights[key] = f
	l.mu.begun += f.begun
	l.mu.count.Loads++
	l.mu.count.Running++
	l.loads.Go(func() {
		defer cancel(nil)
		defer stop()
		l.run(ctx, key, req, f)
	})
	return f
}

// run loads. Whatever the load does, panic and Goexit included, its waiters are told.
func (l *Loader[Q, V]) run(ctx context.Context, key Key, req Q, f *flight[V]) {
	var out Loaded[V]
	err := errNoResult
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		l.end(ctx, key, f, out, err)
	}()
	out, err = l.load(ctx, key, req)
}

// end makes the result of a load known, and keeps it if it may be kept.
func (l *Loader[Q, V]) end(ctx context.Context, key Key, f *flight[V], out Loaded[V], err error) {
	if err == nil && !out.Uncached && out.Snapshot.IsZero() {
		err = fmt.Errorf("load named %w", ErrNoSnapshot)
	}
	if err != nil {
		switch {
		case l.base.Err() != nil:
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		case errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = &TimeoutError{Limit: l.opts.Timeout, Err: err}
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.mu.count
	switch {
	case err != nil:
		n.Errors++
		if _, ok := errors.AsType[*PanicError](err); ok {
			n.Panics++
		}
	case out.Uncached:
	case f.detached:
		n.Forgotten++
	case out.Snapshot != key.snapshot:
		n.Moved++
	default:
		l.keepLocked(key, out)
	}
	if err == nil && out.NotFound {
		err = ErrNotFound
	}
	if err == nil {
		f.value = out.Value
	}
	f.err = err

	f.over = true
	if !f.detached {
		delete(l.mu.flights, key)
	}
	if f.orphan {
		n.Orphans--
	}
	n.Running--
	l.mu.begun -= f.begun
	l.mu.held += (time.Since(l.epoch) - f.begun - l.mu.held) / 8
	close(f.done)
}

// keepLocked puts a result away, under the lock that Forget takes: what is forgotten cannot come back. The key holds nothing else,
// or there had been no load.
func (l *Loader[Q, V]) keepLocked(key Key, out Loaded[V]) {
	if out.NotFound {
		ttl := l.opts.NegativeTTL
		if out.TTL != 0 {
			ttl = min(ttl, out.TTL)
		}
		l.mu.none.Set(key, struct{}{}, 0, ttl)
		return
	}
	ttl := out.TTL
	if ttl == 0 {
		ttl = l.opts.TTL
	}
	l.cache.Set(key, out.Value, out.Cost, ttl)
}

// leave takes a waiter away whose context has ended. It reports false if the load has ended too: then its result stands.
func (l *Loader[Q, V]) leave(key Key, f *flight[V]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.over {
		return false
	}
	n := &l.mu.count
	n.Abandoned++
	f.waiters--
	switch {
	case f.waiters > 0:
	case !f.detached && n.Orphans < l.opts.MaxOrphans:
		f.orphan = true
		n.Orphans++
	default:
		// Too many, or forgotten, so that its result would be of use to nobody.
		n.Cancelled++
		l.detachLocked(key, f)
		f.cancel(ErrAbandoned)
	}
	return true
}

// detachLocked makes the next caller begin a load of its own.
func (l *Loader[Q, V]) detachLocked(key Key, f *flight[V]) {
	if !f.detached {
		f.detached = true
		delete(l.mu.flights, key)
	}
}

// Forget removes the answer of a key, and keeps a load that is under way from putting it back. Those who wait for that load get its
// result; whoever calls Get after Forget has returned does not.
func (l *Loader[Q, V]) Forget(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.mu.flights[key]; f != nil {
		l.detachLocked(key, f)
		if f.orphan {
			f.orphan = false
			l.mu.count.Orphans--
			l.mu.count.Cancelled++
			f.cancel(ErrAbandoned)
		}
	}
	l.mu.none.Delete(key)
	l.cache.Delete(key)
}

// Bounds of the estimate of when to retry.
const (
	minRetry = 10 * time.Millisecond
	maxRetry = 10 * time.Second
)

func (l *Loader[Q, V]) refuseLocked() *RefusedError {
	running := time.Duration(l.mu.count.Running)
	// The average knows only loads that have ended; those that run are known to take longer than they have so far.
	age := (time.Since(l.epoch)*running - l.mu.begun) / running
	after := max(l.mu.held, age) / running
	return &RefusedError{Limit: l.opts.MaxLoads, RetryAfter: min(max(after, minRetry), maxRetry)}
}

// Counters are what the loader has done so far and does now.
func (l *Loader[Q, V]) Counters() Counters {
	l.mu.Lock()
	n := l.mu.count
	l.mu.Unlock()
	n.Hits = l.hits.load()
	n.Cache = l.cache.Usage()
	return n
}

// Close cancels the loads with ErrClosed as the cause and waits for them; those who wait get their errors. Afterwards only what is in
// the cache is served. It may be called twice, but not from a load.
func (l *Loader[Q, V]) Close() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.cancel(ErrClosed)
	l.loads.Wait()
}
