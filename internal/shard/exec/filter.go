package exec

// FilterCache keeps the documents that recurring filters find, one set for each filter and segment. Safe for concurrent use.
type FilterCache struct{}

// FilterCacheStats counts what a cache did, and what it holds.
type FilterCacheStats struct {
	Hits, Misses, Evictions uint64
	Sets                    int
	Bytes                   int64
}

// NewFilterCache returns a cache of at most so many bytes.
func NewFilterCache(bytes int64) *FilterCache { return &FilterCache{} }

// Stats returns the counters.
func (c *FilterCache) Stats() FilterCacheStats { return FilterCacheStats{} }
