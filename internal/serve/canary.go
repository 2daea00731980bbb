package serve

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of CanaryOptions.
const (
	DefaultCanaryClasses = 1024
	DefaultCanaryExpiry  = 10 * time.Minute
	DefaultCanaryClear   = 3
	DefaultCanaryTries   = 3
	DefaultCanaryShare   = 0.5
)

// CanaryOptions are the bounds of a Canary. A value of 0 or less stands for the default.
type CanaryOptions struct {
	Classes int           // how many suspect classes are remembered; the one whose last crash is longest ago makes room. DefaultCanaryClasses
	Expiry  time.Duration // how long after its last crash a class is suspect at most. DefaultCanaryExpiry
	Clear   int           // after how many fan-outs without a crash a class is no longer suspect. DefaultCanaryClear
	Tries   int           // how many leaves are asked in turn for a verdict, where one is late or out of reach. DefaultCanaryTries
	Share   float64       // the part of the time for the calls that a canary call may take, above 0 and below 1. DefaultCanaryShare
}

// Canary remembers classes of queries that crashed a leaf, and keeps the next query of such a class from crashing all of them.
//
// A class is a fingerprint that the caller computes; queries of one class are expected to take the same paths through a leaf. A class
// becomes suspect when a call of it fails with an error for which Crashed is true. While it is suspect, a fan-out of it first asks one
// leaf alone: the one that crashed last. When that one lives, that is, replies or says what is wrong, the rest are asked. When it crashes,
// they are not, and the fan-out fails with a *SuspectError. When it gives no verdict, because it is late, full or out of reach, the next leaf is asked, up to Tries; with
// no verdict from any of them the fan-out fails as well: nothing has shown that going on is safe.
//
// Concurrent fan-outs of one suspect class: one of them asks its canary, the others wait for the verdict, each no longer than its own
// context lives, and go by it: on to all leaves if it lived, refused at once if it crashed. With no verdict one of those that wait asks
// next. Other classes are not touched: while no class is suspect at all, a Canary costs one atomic read.
//
// A Canary is safe for concurrent use and may be shared by the coordinators of one process whose children are the same shards.
type Canary struct {
	o CanaryOptions

	suspects atomic.Int64 // len(classes)
	asked    atomic.Uint64
	refused  atomic.Uint64
	crashes  atomic.Uint64

	mu      sync.Mutex
	classes map[uint64]*suspect
	order   list.List // of *suspect, by their last crash
}

// suspect is what is remembered of a class.
type suspect struct {
	class   uint64
	place   *list.Element // in order
	shard   int           // the child that crashed last
	crashed time.Time
	lived   int      // fan-outs without a crash since then
	running *verdict // of the canary that is under way, if one is
}

// verdict is what a canary call showed. Its fields are set before done is closed.
type verdict struct {
	done chan struct{}
	what canaryVerdict
	err  error
}

type canaryVerdict uint8

const (
	noVerdict canaryVerdict = iota
	lived
	crashed
)

// CanaryStats are counts since the Canary was made.
type CanaryStats struct {
	Suspects int    // classes that are suspect now
	Asked    uint64 // calls of one leaf alone
	Refused  uint64 // fan-outs that failed with a *SuspectError
	Crashes  uint64 // fan-outs and canary calls in which a leaf crashed
}

// NewCanary returns a Canary to which no class is suspect.
func NewCanary(o CanaryOptions) *Canary {
	if o.Classes <= 0 {
		o.Classes = DefaultCanaryClasses
	}
	if o.Expiry <= 0 {
		o.Expiry = DefaultCanaryExpiry
	}
	if o.Clear <= 0 {
		o.Clear = DefaultCanaryClear
	}
	if o.Tries <= 0 {
		o.Tries = DefaultCanaryTries
	}
	if !(o.Share > 0 && o.Share < 1) {
		o.Share = DefaultCanaryShare
	}
	return &Canary{o: o, classes: map[uint64]*suspect{}}
}

// Suspect tells whether a fan-out of class would ask one leaf first.
func (c *Canary) Suspect(class uint64) bool {
	if c.suspects.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(class) != nil
}

// Stats returns the counts.
func (c *Canary) Stats() CanaryStats {
	c.mu.Lock()
	c.expire()
	c.mu.Unlock()
	return CanaryStats{
		Suspects: int(c.suspects.Load()), Asked: c.asked.Load(), Refused: c.refused.Load(), Crashes: c.crashes.Load(),
	}
}

// find needs the lock.
func (c *Canary) find(class uint64) *suspect {
	c.expire()
	return c.classes[class]
}

// expire drops the classes whose time is over, whichever was asked for: a class that never comes again must not cost the others the lock
// for ever. There are no more of them to drop than there were crashes. It needs the lock.
func (c *Canary) expire() {
	for e := c.order.Front(); e != nil; e = c.order.Front() {
		s := e.Value.(*suspect)
		if time.Since(s.crashed) < c.o.Expiry {
			return
		}
		c.drop(s)
	}
}

// drop needs the lock.
func (c *Canary) drop(s *suspect) {
	c.order.Remove(s.place)
	delete(c.classes, s.class)
	c.suspects.Store(int64(len(c.classes)))
}

// crash remembers that child shard crashed on a query of class.
func (c *Canary) crash(class uint64, shard int) {
	c.crashes.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.find(class)
	if s == nil {
		if len(c.classes) >= c.o.Classes {
			c.drop(c.order.Front().Value.(*suspect))
		}
		s = &suspect{class: class}
		s.place = c.order.PushBack(s)
		c.classes[class] = s
		c.suspects.Store(int64(len(c.classes)))
	}
	s.shard, s.crashed, s.lived = shard, time.Now(), 0
	c.order.MoveToBack(s.place)
}

// success counts a fan-out of class in which nothing crashed.
func (c *Canary) success(class uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.find(class)
	if s == nil {
		return
	}
	if s.lived++; s.lived >= c.o.Clear {
		c.drop(s)
	}
}

// watch is the part of one fan-out in the Canary.
type watch struct {
	suspect bool     // the class was suspect when the fan-out began
	shard   int      // the child to ask first
	run     *verdict // set: this fan-out asks one leaf first and owes the verdict
}

// enter decides how a fan-out of class begins. The error is a *SuspectError, or the cause of ctx's end.
func (c *Canary) enter(ctx context.Context, class uint64) (watch, error) {
	for c.suspects.Load() > 0 {
		c.mu.Lock()
		s := c.find(class)
		if s == nil {
			c.mu.Unlock()
			break
		}
		v := s.running
		if v == nil {
			v = &verdict{done: make(chan struct{})}
			s.running = v
			w := watch{suspect: true, shard: s.shard, run: v}
			c.mu.Unlock()
			return w, nil
		}
		c.mu.Unlock()
		select {
		case <-v.done:
		case <-ctx.Done():
			return watch{}, ended(ctx)
		}
		switch v.what {
		case lived:
			return watch{suspect: true}, nil
		case crashed:
			return watch{}, c.refuse(class, v.err)
		}
	}
	return watch{}, nil
}

// settle gives the verdict of the canary, once; later ones are ignored.
func (c *Canary) settle(class uint64, w *watch, what canaryVerdict, err error) {
	if w.run == nil {
		return
	}
	w.run.what, w.run.err = what, err
	c.mu.Lock()
	if s := c.classes[class]; s != nil && s.running == w.run {
		s.running = nil
	}
	c.mu.Unlock()
	close(w.run.done)
	w.run = nil
}

func (c *Canary) refuse(class uint64, err error) error {
	c.refused.Add(1)
	return &SuspectError{Class: class, Err: err}
}

// errNoVerdict is in the SuspectError of a fan-out whose canaries neither answered nor crashed.
var errNoVerdict = errors.New("no leaf gave a verdict")

// SuspectError says that a fan-out was not made because its class is suspect: one leaf was asked first and crashed, or none of those
// that were asked answered.
type SuspectError struct {
	Class uint64 // fingerprint of the queries
	Err   error  // what the canary failed with
}

// Error implements error.
func (e *SuspectError) Error() string {
	return fmt.Sprintf("queries of class %016x are suspect of crashing leaves: %v", e.Class, e.Err)
}

// Unwrap returns what the canary failed with.
func (e *SuspectError) Unwrap() error { return e.Err }

// Outcome is Failed if the canary crashed, else what became of it.
func (e *SuspectError) Outcome() Outcome {
	if o := OutcomeOf(e.Err); !Crashed(e.Err) && !o.Covered() {
		return o
	}
	return Failed
}
