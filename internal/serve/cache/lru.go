package cache

import (
	"sync"
	"time"
)

// LRU is the reference implementation of Cache: it admits every Set that fits, evicts what was used longest ago, and what it holds
// depends on nothing but the calls and the clock. A scan flushes it; see TinyLFU for the one to serve from.
type LRU[K comparable, V any] struct {
	maxBytes   int64
	maxEntries int

	mu      sync.Mutex
	entries map[K]*lruEntry[K, V]
	// ring.next was used last, ring.prev longest ago.
	ring  lruEntry[K, V]
	usage Usage
}

type lruEntry[K comparable, V any] struct {
	prev, next *lruEntry[K, V]
	key        K
	value      V
	bytes      int64
	until      time.Time // zero: no limit
}

// NewLRU makes an LRU of at most maxBytes, EntryOverhead of each entry included, and maxEntries entries. With zero of either it
// keeps nothing.
func NewLRU[K comparable, V any](maxBytes int64, maxEntries int) *LRU[K, V] {
	c := &LRU[K, V]{maxBytes: maxBytes, maxEntries: maxEntries, entries: map[K]*lruEntry[K, V]{}}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// Get implements Cache.
func (c *LRU[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		var none V
		return none, false
	}
	if !e.until.IsZero() && !time.Now().Before(e.until) {
		c.removeLocked(e)
		c.usage.Expired++
		var none V
		return none, false
	}
	e.unlink()
	c.pushLocked(e)
	return e.value, true
}

// Set implements Cache.
func (c *LRU[K, V]) Set(key K, value V, cost int64, ttl time.Duration) {
	bytes := charge(cost)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.removeLocked(e)
	}
	if bytes > c.maxBytes || c.maxEntries <= 0 || ttl < 0 {
		c.usage.Dropped++
		return
	}
	for c.usage.Bytes+bytes > c.maxBytes || c.usage.Entries+1 > c.maxEntries {
		c.removeLocked(c.ring.prev)
		c.usage.Evicted++
	}
	e := &lruEntry[K, V]{key: key, value: value, bytes: bytes}
	if ttl > 0 {
		e.until = time.Now().Add(ttl)
	}
	c.entries[key] = e
	c.pushLocked(e)
	c.usage.Entries++
	c.usage.Bytes += bytes
}

// Delete implements Cache.
func (c *LRU[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.removeLocked(e)
	}
}

// Usage implements Cache.
func (c *LRU[K, V]) Usage() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage
}

// Close implements Cache. Nothing runs behind an LRU.
func (c *LRU[K, V]) Close() {}

func (c *LRU[K, V]) pushLocked(e *lruEntry[K, V]) {
	e.prev, e.next = &c.ring, c.ring.next
	e.prev.next, e.next.prev = e, e
}

func (c *LRU[K, V]) removeLocked(e *lruEntry[K, V]) {
	e.unlink()
	delete(c.entries, e.key)
	c.usage.Entries--
	c.usage.Bytes -= e.bytes
}

func (e *lruEntry[K, V]) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}
