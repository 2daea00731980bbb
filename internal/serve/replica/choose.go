package replica

import (
	"math"
	"math/bits"
	"time"
)

// tiers sorts members by how willingly they are chosen; a bit for each.
type tiers struct {
	fit, busy, last, probation uint64
	due                        uint64 // of those on probation, whose time is over: a probe may go there
}

// stand asks for the standing of the members, and returns how many are not to be chosen.
func (c *call[Q, R]) stand() int {
	out := uint64(0)
	for i, m := range c.members {
		switch c.set.o.Standing(m.name) {
		case Good:
		case Last:
			c.last |= 1 << i
		case Out:
			out |= 1 << i
		}
	}
	n := bits.OnesCount64(out)
	if n == len(c.members) {
		return 0
	}
	c.tried |= out
	return n
}

// tiers looks at the members that have not been tried.
func (c *call[Q, R]) tiers(now int64) (t tiers) {
	for i, m := range c.members {
		bit := uint64(1) << i
		if c.tried&bit != 0 {
			continue
		}
		switch until := m.probation.Load(); {
		case until != 0:
			t.probation |= bit
			if until <= now && m.busyUntil.Load() <= now && c.last&bit == 0 {
				t.due |= bit
			}
		case c.last&bit != 0:
			t.last |= bit
		case m.busyUntil.Load() > now:
			t.busy |= bit
		default:
			t.fit |= bit
		}
	}
	return t
}

// choose notes the member for an attempt, and returns it.
func (c *call[Q, R]) choose(attempt int, at time.Time, t *tiers) int {
	now := c.set.since(at)
	i := -1
	if attempt == 0 && t.due != 0 {
		i = c.takeProbe(now, t.due)
	}
	switch {
	case i >= 0:
		c.probe = true
	case t.fit != 0:
		i = c.best(at, now, t.fit)
	case t.busy != 0:
		i = c.best(at, now, t.busy)
	case t.last != 0:
		i = c.best(at, now, t.last)
	default:
		i = c.best(at, now, c.leastBad(t.probation))
	}
	c.tried |= 1 << i
	c.chosen[attempt] = int8(i + 1)
	return i
}

// takeProbe returns a member whose probation is over, if this call is the one to probe it, or -1.
func (c *call[Q, R]) takeProbe(now int64, due uint64) int {
	patience := int64(0)
	if !c.safe {
		patience = int64(c.set.o.MaxProbation)
	}
	for ; due != 0; due &= due - 1 {
		i := bits.TrailingZeros64(due)
		if m := c.members[i]; m.take(now - patience) {
			return i
		}
	}
	return -1
}

// leastBad are those of the members on probation whose probation is shortest.
func (c *call[Q, R]) leastBad(among uint64) uint64 {
	var out uint64
	least := time.Duration(math.MaxInt64)
	for rest := among; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		m := c.members[i]
		m.mu.Lock()
		length := m.length
		m.mu.Unlock()
		if length < least {
			least, out = length, 0
		}
		if length == least {
			out |= 1 << i
		}
	}
	return out
}

// best is a member of a tier that is not empty, by the order of the set.
func (c *call[Q, R]) best(at time.Time, now int64, among uint64) int {
	n := bits.OnesCount64(among)
	if n == 1 {
		return bits.TrailingZeros64(among)
	}
	draw := c.set.o.Rand()
	if c.set.o.Order == Preferred {
		for rest := among; rest != 0; rest &= rest - 1 {
			if i := bits.TrailingZeros64(rest); !c.holdsBack(i, now, draw) {
				return i
			}
		}
		return bits.TrailingZeros64(among)
	}
	// Two different ones: 24 bits of the draw for each, the rest for the slow start.
	a := int(draw >> 40 * uint64(n) >> 24)
	b := int(draw >> 16 & (1<<24 - 1) * uint64(n-1) >> 24)
	if b >= a {
		b++
	}
	a, b = nth(among, a), nth(among, b)
	switch backA, backB := c.holdsBack(a, now, draw), c.holdsBack(b, now, draw); {
	case backA && !backB:
		return b
	case backB && !backA:
		return a
	}
	if latA, latB := c.latency(a, at), c.latency(b, at); score(latB, latA, c.queue(b)) < score(latA, latB, c.queue(a)) {
		return b
	}
	return a
}

// nth is the place of the nth bit that is set.
func nth(mask uint64, n int) int {
	for ; n > 0; n-- {
		mask &= mask - 1
	}
	return bits.TrailingZeros64(mask)
}

// holdsBack tells whether a member in its slow start leaves this call to others. The low 16 bits of draw decide.
func (c *call[Q, R]) holdsBack(i int, now int64, draw uint64) bool {
	left := c.members[i].slowUntil.Load() - now
	if left <= 0 {
		return false
	}
	share := max(1-float64(left)/float64(c.set.o.SlowStart), 0.1)
	return float64(draw&(1<<16-1)) >= share*(1<<16)
}

func (c *call[Q, R]) latency(i int, at time.Time) float64 {
	return float64(c.members[i].average.Value(at))
}

// queue is how long the queue of a member is for the calls of this set, the next one included.
func (c *call[Q, R]) queue(i int) float64 {
	return 1 + float64(c.members[i].inFlight.Load())/float64(c.set.o.Parallel)
}

// score is what a member costs; other is the latency to assume if its own is not known.
func score(latency, other, queue float64) float64 {
	if latency == 0 {
		latency = max(other, 1)
	}
	return latency * queue * queue * queue
}
