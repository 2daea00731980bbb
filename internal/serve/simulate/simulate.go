// Package simulate measures what hedged calls, tied requests and the choice of replicas do to the tail of a wide fan-out.
//
// It runs the serving tree itself (serve.Coordinator, replica.Set, hedge.Policy) over replicas that are queues with random times,
// seeded. In a bubble of testing/synctest the clock is virtual: a query over a thousand leaves costs the work of its goroutines and no
// waiting. Results are made by the tests of this package: short ones that hold the tree to its aim, and the table of
// docs/performance.md (make tail).
//
// Each replica, each set and the arrivals draw from generators of their own, so that a run depends on the order of goroutines only
// where that order is a result: which of the calls that come at one instant is first in a queue. Two runs with one seed differ
// little, but they may differ.
package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/serve/hedge"
	"github.com/weft-search/weft/internal/serve/replica"
)

// Variant is a way of calling replicas.
type Variant struct {
	Name string
	// Hedged calls replicas that have not been asked when one is slow, by the default policy but for what depends on the tree: each
	// replica may be asked, and the bucket of the budget holds what ten queries put in.
	Hedged bool
	// Tied takes the calls that another one has made needless out of their queues.
	Tied bool
	// Adaptive chooses replicas by what is known of them; otherwise each call takes one at random, so that the load is even.
	Adaptive bool
}

// Variants returns those of the tables. The first is the baseline.
func Variants() []Variant {
	return []Variant{
		{Name: "none"},
		{Name: "hedged", Hedged: true},
		{Name: "hedged, tied", Hedged: true, Tied: true},
		{Name: "hedged, tied, adaptive", Hedged: true, Tied: true, Adaptive: true},
		{Name: "adaptive", Adaptive: true},
	}
}

// policy returns the options of the policy for a setup.
func policy(s Setup) hedge.PolicyOptions {
	if !s.Variant.Hedged {
		return hedge.PolicyOptions{Share: -1}
	}
	return hedge.PolicyOptions{
		Untied:      !s.Variant.Tied,
		MaxAttempts: s.Replicas,
		// A query puts its share in for all shards at one instant. What a small bucket cannot hold of that is lost, and with it a
		// part of the 5 %.
		Burst: max(16, s.Shards/2),
	}
}

// Setup is what one simulation runs.
type Setup struct {
	Model    Model
	Variant  Variant
	Shards   int
	Replicas int // of each shard
	WarmUp   int // queries before the measured ones: latencies have to be known before calls are hedged
	Queries  int // measured
	Seed     uint64
}

// width is the most children that a coordinator gets; above it there is a level of coordinators between the root and the leaves.
const width = 100

// streams of random numbers beside those of the replicas, which have the numbers from 0.
const (
	arrivals  = 1<<63 + iota
	rotation            // plus 256 times the number of the shard
	choices             // the same
	slowTimes = 1 << 62 // plus the number of the replica
)

// Run simulates on the clock of package time; it returns when every query has been answered and nothing it started is running. It is
// meant for a bubble of testing/synctest, where it does not wait for real.
func Run(ctx context.Context, s Setup) (*Result, error) {
	t, err := newTree(s)
	if err != nil {
		return nil, err
	}
	all := s.WarmUp + s.Queries
	took := make([]time.Duration, all)
	errs := make([]error, all)
	r := rand.New(rand.NewPCG(s.Seed, arrivals))
	between := float64(s.Model.between(s.Replicas))
	var wg sync.WaitGroup
	var next time.Duration
	for q := range all {
		next += time.Duration(r.ExpFloat64() * between)
		if err := wait(ctx, next-time.Since(t.start)); err != nil {
			wg.Wait()
			return nil, err
		}
		wg.Go(func() {
			begin := time.Now()
			covered, err := t.root.Call(ctx, Query(q))
			took[q] = time.Since(begin)
			if err == nil && covered != s.Shards {
				err = fmt.Errorf("%d of %d shards are covered", covered, s.Shards)
			}
			errs[q] = err
		})
	}
	wg.Wait()
	for q, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("query %d: %w", q, err)
		}
	}
	sent, executed := t.counts()
	needed := s.Shards * s.Queries
	return &Result{
		Setup:     s,
		Latencies: sorted(took[s.WarmUp:]),
		Sent:      beyond(sent, needed), Executed: beyond(executed, needed),
		Policy: t.policy.Stats(),
	}, nil
}

// tree is a serving tree over simulated replicas.
type tree struct {
	start   time.Time
	root    serve.Leaf[Query, int]
	servers []*server
	policy  *hedge.Policy
}

func newTree(s Setup) (*tree, error) {
	t := &tree{start: time.Now(), policy: hedge.NewPolicy(policy(s))}
	calls := t.policy.Calls(hedge.Class{Name: "search", Safe: true})
	var leaves []serve.Leaf[Query, int]
	for shard := range s.Shards {
		l, err := t.shard(s, uint64(shard), calls)
		if err != nil {
			return nil, err
		}
		leaves = append(leaves, l)
	}
	for len(leaves) > width {
		var above []serve.Leaf[Query, int]
		for len(leaves) > 0 {
			n := min(width, len(leaves))
			c, err := coordinator(leaves[:n])
			if err != nil {
				return nil, err
			}
			above = append(above, c)
			leaves = leaves[n:]
		}
		leaves = above
	}
	var err error
	t.root, err = coordinator(leaves)
	return t, err
}

// shard makes the servers of one shard and the leaf that chooses between them.
func (t *tree) shard(s Setup, number uint64, calls *hedge.Calls) (serve.Leaf[Query, int], error) {
	var members []replica.Replica[Query, int]
	for r := range s.Replicas {
		sv := newServer(s.Model, s.Seed, number*uint64(s.Replicas)+uint64(r), t.start, Query(s.WarmUp))
		t.servers = append(t.servers, sv)
		members = append(members, replica.Replica[Query, int]{Name: strconv.Itoa(r), Leaf: sv})
	}
	o := replica.Options[Query]{
		Calls:    func(Query) *hedge.Calls { return calls },
		Order:    replica.Adaptive,
		Parallel: s.Model.Workers,
		Rand:     source(s.Seed, choices+number<<8),
	}
	if s.Variant.Adaptive {
		return replica.NewSet(members, o)
	}
	// A set in preferred order always begins with the same replica: there is one for each, and a query draws the set.
	o.Order = replica.Preferred
	sets := make([]*replica.Set[Query, int], s.Replicas)
	for r := range sets {
		var err error
		if sets[r], err = replica.NewSet(append(members[r:len(members):len(members)], members[:r]...), o); err != nil {
			return nil, err
		}
	}
	draw := source(s.Seed, rotation+number<<8)
	return serve.LeafFunc[Query, int](func(ctx context.Context, q Query) (int, error) {
		return sets[draw()%uint64(len(sets))].Call(ctx, q)
	}), nil
}

// coordinator asks for all leaves: an answer with a hole in it would be fast for the wrong reason.
func coordinator(leaves []serve.Leaf[Query, int]) (serve.Leaf[Query, int], error) {
	return serve.NewCoordinator(serve.CoordinatorOptions[Query, int]{
		Children: leaves,
		Floor:    serve.Floor{Fraction: 1},
		Merge: func(_ context.Context, _ Query, g *serve.Gathered[int]) (int, error) {
			sum := 0
			for _, n := range g.Results {
				sum += n
			}
			return sum, nil
		},
	})
}

// counts adds up the calls of measured queries.
func (t *tree) counts() (sent, begun int) {
	for _, sv := range t.servers {
		s, b := sv.counts()
		sent += s
		begun += b
	}
	return sent, begun
}

// source returns a generator that is safe for concurrent use: SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number
// generators, 2014), whose state is a counter.
func source(seed, stream uint64) func() uint64 {
	var state atomic.Uint64
	state.Store(rand.New(rand.NewPCG(seed, stream)).Uint64())
	return func() uint64 {
		z := state.Add(0x9e3779b97f4a7c15)
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
}
