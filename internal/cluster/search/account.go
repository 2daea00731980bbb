package search

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard/exec"
)

// accounting says what became of the shards in each phase.
type accounting struct {
	search *leaf.Below // of search and knn together
	aggs   *leaf.Below // nil: nothing was aggregated, or no shard is missing
	lost   []api.PhaseLoss
}

// searched accounts for an answer to a search or a vector search.
func (a *accounting) searched(x *execution, meta *leaf.Meta, docs uint64, partial bool) {
	x.rank.partial = x.rank.partial || partial
	b := meta.Below
	if b == nil {
		one := api.ShardOutcome{Address: x.s.o.Address, Outcome: api.Answered, Micros: meta.Micros()}
		b = &leaf.Below{DocsCovered: docs, DocsTotal: docs}
		if partial {
			// How far the search came is not known by document, so none is counted as covered.
			one.Outcome, b.DocsCovered = api.TimedOut, 0
		}
		b.Shards.Count(one)
	}
	a.add(b)
}

// missed accounts for a search that nobody answered in time.
func (a *accounting) missed(x *execution, err error) {
	x.rank.partial = true
	a.add(x.belowOf(err))
}

// belowOf is the accounting of a call that nobody answered.
func (x *execution) belowOf(err error) *leaf.Below {
	if u, ok := errors.AsType[*read.UncoveredError](err); ok {
		return u.Below
	}
	if known := x.phases.search; known != nil {
		// The time was over before it was said who would be asked: the shards that took part until then.
		b := &leaf.Below{DocsTotal: known.DocsTotal, Unsized: known.Unsized}
		for _, one := range known.Shards.Outcomes {
			b.Shards.Count(api.ShardOutcome{Shard: one.Shard, Address: one.Address, Outcome: outcomeOf(err)})
		}
		b.Shards.FailedAddresses = nil
		for _, one := range known.Shards.Outcomes { // one that had failed before has the addresses of all its members
			b.Shards.FailedAddresses = append(b.Shards.FailedAddresses, strings.Split(one.Address, "|")...)
		}
		return b
	}
	b := &leaf.Below{Unsized: true}
	b.Shards.Count(api.ShardOutcome{Address: x.s.o.Address, Outcome: outcomeOf(err)})
	if x.s.o.Address == "" {
		b.Shards.FailedAddresses = nil // there is none to name
	}
	return b
}

// outcomeOf is how a shard ended that failed with err.
func outcomeOf(err error) api.Outcome {
	if isTimeout(err) {
		return api.TimedOut
	}
	return api.Unavailable
}

// isTimeout tells whether an error says that there was no time left.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || hasCode(err, api.Timeout)
}

// hasCode tells whether an error is the problem with the code.
func hasCode(err error, code api.Code) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == code
}

// add joins the accounting of one ranking with that of another: a shard took part only if it did in both.
func (a *accounting) add(b *leaf.Below) {
	if a.search == nil {
		a.search = b
		return
	}
	first := a.search
	if len(first.Shards.Outcomes) != len(b.Shards.Outcomes) {
		// The cluster was changed between the two.
		if b.Shards.Failed > first.Shards.Failed {
			a.search = b
		}
		return
	}
	out := &leaf.Below{
		DocsCovered: min(first.DocsCovered, b.DocsCovered), DocsTotal: max(first.DocsTotal, b.DocsTotal), Unsized: first.Unsized || b.Unsized,
	}
	var missing []string
	for i, one := range first.Shards.Outcomes {
		other := b.Shards.Outcomes[i]
		if ok(one.Outcome) && !ok(other.Outcome) {
			one.Address, one.Outcome = other.Address, other.Outcome
		}
		one.Micros = max(one.Micros, other.Micros)
		out.Shards.Count(one)
	}
	// A shard that no member answered for is named by all of them.
	for _, list := range [][]string{first.Shards.FailedAddresses, b.Shards.FailedAddresses} {
		for _, addr := range list {
			if !slices.Contains(missing, addr) {
				missing = append(missing, addr)
			}
		}
	}
	out.Shards.FailedAddresses = missing
	a.search = out
}

// ok tells whether a shard counts as having taken part.
func ok(o api.Outcome) bool { return o == api.Answered || o == api.Skipped }

// lose says that a phase lost shards.
func (a *accounting) lose(phase string, b *leaf.Below) {
	if !lost(b) {
		return
	}
	a.regain(phase)
	a.lost = append(a.lost, api.PhaseLoss{Phase: phase, Shards: b.Shards})
}

// regain says that what a phase had lost was found.
func (a *accounting) regain(phase string) {
	a.lost = slices.DeleteFunc(a.lost, func(l api.PhaseLoss) bool { return l.Phase == phase })
}

// settle accounts for the whole in the reply, and refuses what covers less than its caller accepts.
func (a *accounting) settle(x *execution, reply *api.SearchReply) *api.Problem {
	reply.Shards, reply.Coverage = a.search.Shards, read.Coverage(a.search)
	if x.rank.partial {
		reply.Coverage.Complete = false
	}
	if lost(a.search) && reply.Relation == exec.Exactly {
		reply.Relation = exec.AtLeast // what is missing may match
	}
	for i := range reply.Shards.Outcomes {
		if reply.Shards.Outcomes[i].Micros > reply.Shards.Outcomes[reply.Slowest].Micros {
			reply.Slowest = i
		}
	}
	reply.Lost = a.lost
	if a.aggs != nil {
		reply.AggFailedAddresses = a.aggs.Shards.FailedAddresses
	}
	if len(reply.Lost)+len(reply.AggFailedAddresses) > 0 {
		reply.Coverage.Complete = false
	}
	if x.req.AllowPartial == api.No {
		if prob := bound.Whole(reply); prob != nil {
			return prob
		}
	}
	if prob := bound.Floor(reply, x.req.MinCoverage); prob != nil {
		return prob
	}
	if a.aggs != nil && read.Coverage(a.aggs).Docs() < x.req.MinCoverage {
		return bound.Incomplete(reply, "min_coverage", "the facets and aggregations cover less of the index than min_coverage asks for")
	}
	return nil
}
