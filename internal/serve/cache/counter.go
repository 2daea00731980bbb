package cache

import (
	"math/rand/v2"
	"sync/atomic"
)

// counter counts on a path that many processors take at once: each adds to a cache line of its own, as a rule.
type counter struct {
	stripes [16]struct {
		n atomic.Uint64
		_ [120]byte // two lines, which processors fetch together
	}
}

func (c *counter) add() { c.stripes[rand.Uint32()%uint32(len(c.stripes))].n.Add(1) }

func (c *counter) load() uint64 {
	var sum uint64
	for i := range c.stripes {
		sum += c.stripes[i].n.Load()
	}
	return sum
}
