// Package cache keeps answers and makes each of them once: a seam for caches with two implementations behind it, keys that name the
// snapshot an answer was read from, and a Loader that turns any number of callers that want the same answer into one load.
//
// Goals: an entry can never be served for another snapshot than its own, so that a commit invalidates by construction; everything
// above the seam is right with a cache that drops every Set; a popular answer that leaves the cache costs one load and not one for
// each caller; nobody's deadline but a caller's own ends that caller's wait; no number here grows without a bound.
//
// Everything in this package is safe for concurrent use. Values are shared by all who get them: nobody may change one that was
// given to a cache or came out of one.
package cache

import "time"

// Cache is the seam. An implementation keeps what it likes of what it is given, within its bounds.
//
// The contract: Get returns the value of the latest Set of the key or nothing, never an earlier value, and nothing once a Delete of
// the key has returned or the entry's time is over. A Set may be dropped; then the key holds nothing. No method blocks for longer
// than its own bookkeeping, and none calls back.
type Cache[K comparable, V any] interface {
	// Get returns the value of a key. A hit does not allocate.
	Get(key K) (V, bool)
	// Set offers a value. cost is how many bytes the value holds; EntryOverhead is charged on top, and a negative cost counts as zero.
	// After ttl the entry is gone; zero means that it has no such time, and with a negative ttl nothing is kept.
	Set(key K, value V, cost int64, ttl time.Duration)
	// Delete removes a key, if it is there.
	Delete(key K)
	// Usage says what the cache holds and what has left it.
	Usage() Usage
	// Close stops what runs behind the cache and waits for it. The cache must not be used afterwards.
	Close()
}

// EntryOverhead is what an entry is charged beside the cost of its value, in bytes: key, links, and its part of the tables, as measured. It also
// bounds how many entries there can be where nothing else does.
const EntryOverhead = 200

// Usage is the state of a cache. Sizes may include entries whose time is over but which have not been removed yet.
type Usage struct {
	Entries int
	Bytes   int64 // costs and overhead
	// Evicted counts entries that had to leave for others, those included that were never let in for good.
	Evicted uint64
	// Expired counts entries that were removed because their time was over.
	Expired uint64
	// Dropped counts values that were not kept because they were larger than the whole cache or had no time to live.
	Dropped uint64
}

// charge is what an entry costs in all.
func charge(cost int64) int64 {
	if cost = max(cost, 0); cost > maxCost {
		return maxCost + EntryOverhead
	}
	return cost + EntryOverhead
}

// maxCost is the largest cost that is told apart; a larger one is as good as infinite. It keeps sums far from overflowing.
const maxCost = 1 << 60
