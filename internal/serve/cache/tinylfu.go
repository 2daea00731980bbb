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
// batch in between, a few hundred entries. Entries whose time is over leave when they are asked for or when others need the room,
// so nothing runs behind the cache and a hit reads the clock only if its entry has a time.
type TinyLFU[K comparable, V any] struct {
	cache    *otter.Cache[K, box[V]] // nil if it keeps nothing
	maxBytes int64
	epoch    time.Time

	evicted, expired, dropped atomic.Uint64
}

// box is a value with what has to be known of it.
type box[V any] struct {
	value V
	until time.Duration // since TinyLFU.epoch; forever: no limit
	bytes uint32
}

const forever = time.Duration(math.MaxInt64)

// NewTinyLFU makes a cache of at most maxBytes, EntryOverhead of each entry included. With zero it keeps nothing. No entry may cost
// 4 GiB or more.
func NewTinyLFU[K comparable, V any](maxBytes int64) *TinyLFU[K, V] {
	c := &TinyLFU[K, V]{maxBytes: maxBytes, epoch: time.Now()}
	if maxBytes <= 0 {
		return c
	}
	c.cache = otter.Must(&otter.Options[K, box[V]]{
		MaximumWeight: uint64(maxBytes),
		Weigher:       func(_ K, b box[V]) uint32 { return b.bytes },
		// Called under locks of the cache: it may only count.
		OnAtomicDeletion: func(e otter.DeletionEvent[K, box[V]]) {
			if e.Cause == otter.CauseOverflow {
				c.evicted.Add(1)
			}
		},
		// On the goroutine of the caller, so that there is none without an owner.
		Executor: func(task func()) { task() },
	})
	return c
}

// Get implements Cache.
func (c *TinyLFU[K, V]) Get(key K) (V, bool) {
	var none V
	if c.cache == nil {
		return none, false
	}
	b, ok := c.cache.GetIfPresent(key)
	if !ok {
		return none, false
	}
	if b.until != forever && time.Since(c.epoch) >= b.until {
		c.expire(key)
		return none, false
	}
	return b.value, true
}

// expire removes an entry whose time is over, but not one that has taken its place.
func (c *TinyLFU[K, V]) expire(key K) {
	c.cache.ComputeIfPresent(key, func(b box[V]) (box[V], otter.ComputeOp) {
		if b.until == forever || time.Since(c.epoch) < b.until {
			return b, otter.CancelOp
		}
		c.expired.Add(1)
		return b, otter.InvalidateOp
	})
}

// Set implements Cache.
func (c *TinyLFU[K, V]) Set(key K, value V, cost int64, ttl time.Duration) {
	bytes := charge(cost)
	if bytes > c.maxBytes || bytes > math.MaxUint32 || ttl < 0 {
		c.Delete(key)
		c.dropped.Add(1)
		return
	}
	until := forever
	if ttl > 0 {
		if now := time.Since(c.epoch); ttl < forever-now {
			until = now + ttl
		}
	}
	c.cache.Set(key, box[V]{value: value, until: until, bytes: uint32(bytes)})
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

// Close implements Cache. It lets go of the entries; nothing runs behind the cache.
func (c *TinyLFU[K, V]) Close() {
	if c.cache != nil {
		c.cache.InvalidateAll()
	}
}
