// Package admit decides whether a request may begin: it gives out a bounded number of places and keeps a bounded queue of those
// that wait for one.
//
// Goals: a refusal is immediate when the queue is full, says when to come back, and happens before the request has had any
// effect; whoever waits is served in the order of coming; a waiter that gives up leaves no trace. A place is weighted, so that
// the same gate counts requests (weight 1) or bytes.
//
// A Gate is safe for concurrent use.
package admit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrRefused is matched by the error of a request that found no place.
var ErrRefused = errors.New("no place")

// Refusal says which limit a request hit and when a place is likely. It matches ErrRefused.
type Refusal struct {
	Gate       string        // the name of the gate
	Limit      int64         // what the gate gives out in all
	Queue      int           // how many may wait
	RetryAfter time.Duration // an estimate from how long places are and were held
	Waited     bool          // the request waited in the queue until its time there was over
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: no place among %d, retry after %v", r.Gate, r.Limit, r.RetryAfter)
}

// Is reports that the error is an ErrRefused.
func (r *Refusal) Is(target error) bool { return target == ErrRefused }

// Gate gives out places.
type Gate struct {
	name  string
	limit int64
	queue int64
	wait  time.Duration

	sem     *semaphore.Weighted
	waiting atomic.Int64
	used    atomic.Int64 // weight given out
	places  atomic.Int64 // requests that hold a place
	// held is a moving average of how long a place is held, in nanoseconds: 7/8 old + 1/8 new.
	held atomic.Int64

	// holders are the places that are given out, oldest first.
	holders struct {
		sync.Mutex
		first, last *Place
	}
}

// New returns a gate with limit places, a queue of at most queue waiters and a longest wait.
func New(name string, limit int64, queue int, wait time.Duration) *Gate {
	return &Gate{name: name, limit: limit, queue: int64(queue), wait: wait, sem: semaphore.NewWeighted(limit)}
}

// Place is what an admitted request holds. It must be released once; releasing again does nothing.
type Place struct {
	gate   *Gate
	weight int64
	since  time.Time
	done   atomic.Bool

	before, after *Place // in gate.holders
}

// Enter waits for weight places. The error is a *Refusal, or the cause of ctx if that ended first.
func (g *Gate) Enter(ctx context.Context, weight int64) (*Place, error) {
	if weight > g.limit {
		return nil, g.refuse(false)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if !g.sem.TryAcquire(weight) {
		if g.waiting.Add(1) > g.queue {
			g.waiting.Add(-1)
			return nil, g.refuse(false)
		}
		wait, cancel := context.WithTimeout(ctx, g.wait)
		err := g.sem.Acquire(wait, weight)
		cancel()
		g.waiting.Add(-1)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, g.refuse(true)
		}
	}
	return g.place(weight), nil
}

// TryEnter takes weight places if they are free now, without waiting. The error is a *Refusal.
func (g *Gate) TryEnter(weight int64) (*Place, error) {
	if weight > g.limit || !g.sem.TryAcquire(weight) {
		return nil, g.refuse(false)
	}
	return g.place(weight), nil
}

func (g *Gate) place(weight int64) *Place {
	g.used.Add(weight)
	g.places.Add(1)
	p := &Place{gate: g, weight: weight}
	g.holders.Lock()
	defer g.holders.Unlock()
	p.since = time.Now()
	if p.before = g.holders.last; p.before != nil {
		p.before.after = p
	} else {
		g.holders.first = p
	}
	g.holders.last = p
	return p
}

// forget takes the place off the list of holders.
func (p *Place) forget() {
	h := &p.gate.holders
	h.Lock()
	defer h.Unlock()
	if p.before != nil {
		p.before.after = p.after
	} else {
		h.first = p.after
	}
	if p.after != nil {
		p.after.before = p.before
	} else {
		h.last = p.before
	}
	p.before, p.after = nil, nil
}

// oldest is how long the place that is held longest has been held so far; 0 if none is.
func (g *Gate) oldest() time.Duration {
	g.holders.Lock()
	defer g.holders.Unlock()
	if g.holders.first == nil {
		return 0
	}
	return time.Since(g.holders.first.since)
}

// Release gives the place back.
func (p *Place) Release() {
	if p == nil || p.done.Swap(true) {
		return
	}
	p.forget()
	held := int64(time.Since(p.since))
	old := p.gate.held.Load()
	// Two releases at once may lose one sample; it is an estimate.
	p.gate.held.Store(old - old/8 + held/8)
	p.gate.used.Add(-p.weight)
	p.gate.places.Add(-1)
	p.gate.sem.Release(p.weight)
}

// Bounds of the estimate of when to retry.
const (
	minRetry = 10 * time.Millisecond
	maxRetry = 10 * time.Second
)

func (g *Gate) refuse(waited bool) *Refusal {
	// With every place taken for that long and waiters in front, this is when a place would have come up. The average knows only
	// places that were given back; one that is still held is known to take longer than it has so far.
	held := max(g.held.Load(), int64(g.oldest()))
	after := time.Duration(float64(held) * float64(g.waiting.Load()+1) / float64(max(g.places.Load(), 1)))
	return &Refusal{Gate: g.name, Limit: g.limit, Queue: int(g.queue), RetryAfter: min(max(after, minRetry), maxRetry), Waited: waited}
}

// Used is how much of the limit is given out.
func (g *Gate) Used() int64 { return g.used.Load() }

// Waiting is how many requests wait for a place.
func (g *Gate) Waiting() int64 { return g.waiting.Load() }

// Limit is what the gate gives out in all.
func (g *Gate) Limit() int64 { return g.limit }
