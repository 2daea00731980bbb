package serve

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Tally counts leaves by how their calls ended. In a nested tree it speaks of the leaves at the bottom and not of the coordinators
// between. Covered + Missing = Total, by construction.
type Tally [numOutcomes]int

// TallyOf counts n leaves with one outcome.
func TallyOf(o Outcome, n int) Tally {
	var t Tally
	if o >= numOutcomes {
		o = 0
	}
	t[o] = n
	return t
}

// Count is the number of leaves with outcome o.
func (t Tally) Count(o Outcome) int {
	if o >= numOutcomes {
		return 0
	}
	return t[o]
}

// Plus is the sum of two tallies.
func (t Tally) Plus(other Tally) Tally {
	for i, n := range other {
		t[i] += n
	}
	return t
}

// Total is the number of leaves.
func (t Tally) Total() int {
	n := 0
	for _, c := range t {
		n += c
	}
	return n
}

// Covered is the number of leaves of which nothing is missing: those that answered and those that were skipped with proof.
func (t Tally) Covered() int { return t[Answered] + t[Skipped] }

// Missing is the number of the other leaves.
func (t Tally) Missing() int { return t.Total() - t.Covered() }

// Complete tells whether no leaf is missing.
func (t Tally) Complete() bool { return t.Missing() == 0 }

// Fraction is the covered part of all leaves, from 0 to 1; of no leaves at all it is 1.
func (t Tally) Fraction() float64 {
	total := t.Total()
	if total == 0 {
		return 1
	}
	return float64(t.Covered()) / float64(total)
}

// String is the tally as "3 of 4 covered: 3 answered, 1 timed_out".
func (t Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d covered", t.Covered(), t.Total())
	sep := ": "
	for _, o := range [...]Outcome{Answered, Skipped, TimedOut, Refused, Unavailable, Failed, 0} {
		if t[o] != 0 {
			fmt.Fprintf(&b, "%s%d %v", sep, t[o], o)
			sep = ", "
		}
	}
	return b.String()
}

// maxTally bounds each count of a tally that came with a reply, so that sums over any fan-out do not overflow.
const maxTally = 1 << 32

func (t Tally) valid() bool {
	for _, n := range t {
		if n < 0 || n > maxTally {
			return false
		}
	}
	return true
}

// lost is the tally of leaves whose answers were thrown away because the call that gathered them ended with o.
func (t Tally) lost(o Outcome) Tally {
	n := t.Covered()
	t[Answered], t[Skipped] = 0, 0
	t[o] += n
	return t
}

// mostMissing is the outcome that most of the missing leaves had, the later in the list of outcomes among equals; Unavailable if
// none is missing.
func (t Tally) mostMissing() Outcome {
	best, n := Unavailable, 0
	for o := TimedOut; o < numOutcomes; o++ {
		if t[o] > 0 && t[o] >= n {
			best, n = o, t[o]
		}
	}
	return best
}

// Gathered is what a fan-out brought: for each shard what became of it. The slices have one element for each shard, at its index. A
// Gathered belongs to whoever called; it is safe to read from several goroutines.
type Gathered[R any] struct {
	Results  []R             // the replies; the zero R where the shard did not answer
	Outcomes []Outcome       // how the calls ended
	Errs     []error         // what the calls failed with; nil where the shard answered or was skipped
	Took     []time.Duration // how long the calls took; 0 where none was made

	// tallies, if not nil, are the leaves below each shard.
	tallies []Tally
}

// Answered is the number of shards that replied.
func (g *Gathered[R]) Answered() int {
	n := 0
	for _, o := range g.Outcomes {
		if o == Answered {
			n++
		}
	}
	return n
}

// Tally counts the outcomes, of the leaves at the bottom of the tree where the shards are trees themselves (see
// CoordinatorOptions.Tally), else of the shards.
func (g *Gathered[R]) Tally() Tally {
	var t Tally
	for i := range g.Outcomes {
		t = t.Plus(g.TallyOf(i))
	}
	return t
}

// TallyOf counts the outcomes of the leaves below shard i: one if the shard is a leaf.
func (g *Gathered[R]) TallyOf(i int) Tally {
	if g.tallies != nil {
		return g.tallies[i]
	}
	return TallyOf(g.Outcomes[i], 1)
}

// Fraction is the covered part of Tally, from 0 to 1.
func (g *Gathered[R]) Fraction() float64 { return g.Tally().Fraction() }

// Complete tells whether nothing is missing: every shard, down to the leaves, answered or was skipped with proof.
func (g *Gathered[R]) Complete() bool { return g.Tally().Complete() }

// Slowest is the index of the shard whose call took longest, the first among equals; -1 if no call was made.
func (g *Gathered[R]) Slowest() int {
	at := -1
	for i, d := range g.Took {
		if g.Outcomes[i] == Skipped || errors.Is(g.Errs[i], ErrNotStarted) {
			continue
		}
		if at < 0 || d > g.Took[at] {
			at = i
		}
	}
	return at
}
