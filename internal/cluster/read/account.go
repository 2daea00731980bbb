package read

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// Stages of a call on a coordinator, besides those of the shard that took longest.
const (
	StageNetwork = "network" // from the first request to the last reply, but for what the slowest shard accounts for
	StageMerge   = "merge"   // making one answer of many
)

// sizes remembers how large the shards of each index were when they last answered, so that it is known what is missing when they do
// not.
type sizes struct {
	mu      sync.Mutex
	indexes map[string][]size // by ordinal of the group
}

// size is what a group last said.
type size struct {
	docs   uint64
	leaves int  // shards at the bottom of the tree below it; 0: unknown
	sized  bool // docs is known
}

// maxSizes bounds the indexes that are remembered: those that were deleted are not taken out one by one.
const maxSizes = 4096

// of returns the sizes of an index for so many groups. The lock is held.
func (s *sizes) of(index string, groups int) []size {
	if index == "" {
		index = api.DefaultIndex
	}
	known := s.indexes[index]
	if len(known) >= groups {
		return known
	}
	if s.indexes == nil || len(s.indexes) >= maxSizes {
		s.indexes = map[string][]size{}
	}
	known = append(known, make([]size, groups-len(known))...)
	s.indexes[index] = known
	return known
}

// outcome is what package api calls an outcome of package serve.
func outcome(o serve.Outcome) api.Outcome {
	switch o {
	case serve.Answered:
		return api.Answered
	case serve.Skipped:
		return api.Skipped
	case serve.TimedOut:
		return api.TimedOut
	case serve.Refused:
		return api.Refused
	case serve.Unavailable:
		return api.Unavailable
	}
	return api.Failed
}

// below is the accounting of a call: every shard at the bottom of the tree once, numbered from 0.
func below[Q, R any](r *Reader, o *op[Q, R], g *gathered[R]) *leaf.Below {
	out := &leaf.Below{}
	out.Shards.Outcomes = make([]api.ShardOutcome, 0, len(g.parts))
	r.sizes.mu.Lock()
	defer r.sizes.mu.Unlock()
	known := r.sizes.of(g.index, len(g.parts))
	for i := range g.parts {
		of := &g.parts[i]
		size := &known[i]
		if of.reply != nil {
			account(out, o, g, i, size)
			continue
		}
		grp := g.plan.groups[i]
		one := api.ShardOutcome{Address: grp.joined, Outcome: outcome(of.outcome), Micros: api.Micros(of.took)}
		if of.from != nil {
			one.Address = of.from.Addr
		}
		if of.absent {
			*size = known0
		}
		// Shards that a coordinator stands for are missing with it.
		for range max(size.leaves, 1) {
			one.Shard = len(out.Shards.Outcomes)
			out.Shards.Outcomes = append(out.Shards.Outcomes, one)
			out.Shards.Total++
			if of.outcome.Covered() {
				out.Shards.OK++
			} else {
				out.Shards.Failed++
			}
		}
		switch {
		case !of.outcome.Covered():
			out.Shards.FailedAddresses = append(out.Shards.FailedAddresses, grp.addresses...)
			out.DocsTotal += size.docs
			out.Unsized = out.Unsized || !size.sized
		case grp.visible:
			out.DocsCovered += size.docs
			out.DocsTotal += size.docs
		}
	}
	return out
}

var known0 = size{sized: true} // of a group without the index

// account adds what group i said.
func account[Q, R any](out *leaf.Below, o *op[Q, R], g *gathered[R], i int, size *size) {
	of := &g.parts[i]
	tree := o.meta(of.reply).Below
	if tree == nil {
		one := api.ShardOutcome{
			Shard: len(out.Shards.Outcomes), Address: g.plan.groups[i].joined, Outcome: api.Answered, Micros: api.Micros(of.took),
		}
		if of.from != nil { // of a stream that was not read to its end it is not known
			one.Address = of.from.Addr
		}
		size.leaves = 1
		if o.docs != nil {
			size.docs, size.sized = o.docs(of.reply), true
		}
		if slices.Contains(o.meta(of.reply).Approximate, leaf.ApproximateTime) {
			// How far the shard came is not known by document, so none is counted as covered.
			one.Outcome = api.TimedOut
		} else {
			out.DocsCovered += size.docs
		}
		out.DocsTotal += size.docs
		out.Shards.Count(one)
		return
	}
	for _, one := range tree.Shards.Outcomes {
		one.Shard = len(out.Shards.Outcomes)
		out.Shards.Outcomes = append(out.Shards.Outcomes, one)
	}
	out.Shards.Total += tree.Shards.Total
	out.Shards.OK += tree.Shards.OK
	out.Shards.Failed += tree.Shards.Failed
	out.Shards.FailedAddresses = append(out.Shards.FailedAddresses, tree.Shards.FailedAddresses...)
	out.DocsCovered += min(tree.DocsCovered, tree.DocsTotal)
	size.leaves = max(len(tree.Shards.Outcomes), 1)
	if tree.Unsized && size.sized && size.docs >= tree.DocsTotal {
		// The coordinator does not know what it misses, as after a restart; here it is known from before.
		out.DocsTotal += size.docs
		return
	}
	out.DocsTotal += tree.DocsTotal
	out.Unsized = out.Unsized || tree.Unsized
	size.docs, size.sized = tree.DocsTotal, !tree.Unsized
}

// describe is the Meta of a reply that is ready but for that.
func describe[Q, R any](r *Reader, o *op[Q, R], g *gathered[R]) leaf.Meta {
	m := leaf.Meta{Below: below(r, o, g)}
	var slowest *part[R]
	for i := range g.parts {
		of := &g.parts[i]
		if slowest == nil || of.took > slowest.took {
			slowest = of
		}
		if of.reply == nil {
			continue
		}
		one := o.meta(of.reply)
		m.Approximate = unite(m.Approximate, one.Approximate)
		s := one.Snapshot
		for _, v := range [3]uint64{uint64(i), s.Instance, s.Version} {
			hi, lo := bits.Mul64(m.Snapshot.Instance^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
			m.Snapshot.Instance = hi ^ lo
		}
		m.Snapshot.Version += s.Version
		m.Snapshot.CommitTS = max(m.Snapshot.CommitTS, s.CommitTS)
	}
	m.Timings = timings(g.began, g.took, func() *leaf.Meta {
		if slowest == nil || slowest.reply == nil {
			return nil
		}
		return o.meta(slowest.reply)
	}())
	return m
}

// timings are the stages of a call: those of the slowest shard, nil where it did not answer, what is between, and the merge.
func timings(began time.Time, took time.Duration, slowest *leaf.Meta) []api.Timing {
	wait, stages := api.Micros(took), 2
	if slowest != nil {
		stages += len(slowest.Timings)
	}
	out := make([]api.Timing, 0, stages)
	network := wait
	if slowest != nil {
		for _, t := range slowest.Timings {
			// The stages of two clocks are not to add up to more than the time that has passed.
			t.Micros = max(min(t.Micros, network), 0)
			network -= t.Micros
			out = append(out, t)
		}
	}
	return append(out, api.Timing{Stage: StageNetwork, Micros: network}, api.Timing{Stage: StageMerge, Micros: max(api.Micros(time.Since(began))-wait, 0)})
}

// unite appends those texts that are not there yet.
func unite(have, more []string) []string {
	for _, s := range more {
		if !slices.Contains(have, s) {
			have = append(have[:len(have):len(have)], s)
		}
	}
	return have
}
