package cache

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// TinyLFU is the Cache to serve from. A new entry has to have been asked for more often than the one that would leave for it, as
// counted by a small sketch that forgets with time, so that a scan of things asked for once does not push out what is asked for
// all the time (Einziger, Friedman, Manes: TinyLFU, A Highly Efficient Cache Admission Policy, ACM ToS 2017). The policy is
// otter's; its loader is not used, Loader has its own deadlines and waiters.
//
// Reads take no lock. Bookkeeping of reads and writes is done in batches by whoever calls next; the bound may be exceeded by one
// batch in between, a few hundred entries. The only goroutine looks for expired entries once a second; Close ends it.
type TinyLFU[K comparable, V any] struct {
	cache    *otter.Cache[K, box[V]] // nil if it keeps nothing
	maxBytes int64

	evicted, expired, dropped atomic.Uint64
}

// box is a value with what otter asks about it.
type box[V any] struct {
	value V
	ttl   time.Duration
	bytes uint32
}

// forever is the time to live of entries without one.
const forever = time.Duration(math.MaxInt64)

// NewTinyLFU makes a cache of at most maxBytes, EntryOverhead of each entry included. With zero it keeps nothing. No entry may cost
// 4 GiB or more.
func NewTinyLFU[K comparable, V any](maxBytes int64) *TinyLFU[K, V] {
	c := &TinyLFU[K, V]{maxBytes: maxBytes}
	if maxBytes <= 0 {
		return c
	}
	c.cache = otter.Must(&otter.Options[K, box[V]]{
		MaximumWeight:    uint64(maxBytes),
		Weigher:          func(_ K, b box[V]) uint32 { return b.bytes },
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[K, box[V]]) time.Duration { return e.Value.ttl }),
		// Called under locks of the cache: it may only count.
		OnAtomicDeletion: func(e otter.DeletionEvent[K, box[V]]) {
			switch e.Cause {
			case otter.CauseOverflow:
				c.evicted.Add(1)
			case otter.CauseExpiration:
				c.expired.Add(1)
			}
		},
		// On the goroutine of the caller, so that there is none without an owner.
		Executor: func(task func()) { task() },
	})
	return c
}

// Get implements Cache.
func (c *TinyLFU[K, V]) Get(key K) (V, bool) {
	if c.cache == nil {
		var none V
		return none, false
	}
	b, ok := c.cache.GetIfPresent(key)
	return b.value, ok
}

// Set implements Cache.
func (c *TinyLFU[K, V]) Set(key K, value V, cost int64, ttl time.Duration) {
	bytes := charge(cost)
	if bytes > c.maxBytes || bytes > math.MaxUint32 || ttl < 0 {
		c.Delete(key)
		c.dropped.Add(1)
		return
	}
	if ttl == 0 {
		ttl = forever
	}
	c.cache.Set(key, box[V]{value: value, ttl: ttl, bytes: uint32(bytes)})
}

// Delete implements Cache.
func (c *TinyLFU[K, V]) Delete(key K) {
	if c.cache != nil {
		c.cache.Invalidate(key)
	}
}

// Usage implements Cache. It does the bookkeeping that is due, so that the sizes are exact if nobody else calls.
func (c *TinyLFU[K, V]) Usage() Usage {
	u := Usage{Evicted: c.evicted.Load(), Expired: c.expired.Load(), Dropped: c.dropped.Load()}
	if c.cache != nil {
		c.cache.CleanUp()
		u.Entries, u.Bytes = c.cache.EstimatedSize(), int64(c.cache.WeightedSize())
	}
	return u
}

// Close implements Cache.
func (c *TinyLFU[K, V]) Close() {
	if c.cache != nil {
		c.cache.StopAllGoroutines()
		c.cache.InvalidateAll()
	}
}
