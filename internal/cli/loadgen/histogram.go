package loadgen

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in log-linear buckets: every power of two is cut into subBuckets equal parts, so a quantile is
// read back to within one part in subBuckets (0.8 %) from a nanosecond to the largest duration, in constant memory. The
// layout is that of HdrHistogram (http://hdrhistogram.org) with a significance of seven bits.
//
// The zero value is empty and ready. It is not safe for concurrent use: give each worker its own and Add them up.
type Histogram struct {
	counts   [numBuckets]uint64
	n        uint64
	sum      float64 // nanoseconds
	min, max int64
}

const (
	subBits    = 7
	subBuckets = 1 << subBits
	// Values below 2·subBuckets have a bucket each; each further power of two adds subBuckets.
	numBuckets = 2*subBuckets + (63-subBits-1)*subBuckets
)

func bucketOf(v int64) int {
	shift := bits.Len64(uint64(v)) - (subBits + 1)
	if shift <= 0 {
		return int(v)
	}
	return shift*subBuckets + int(v>>shift)
}

// bucketMax is the largest value that falls into the bucket.
func bucketMax(b int) int64 {
	if b < 2*subBuckets {
		return int64(b)
	}
	shift := b/subBuckets - 1
	return int64(b-shift*subBuckets+1)<<shift - 1
}

// Record counts one duration; a negative one counts as zero.
func (h *Histogram) Record(d time.Duration) {
	v := max(int64(d), 0)
	h.counts[bucketOf(v)]++
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.n++
	h.sum += float64(v)
}

// Add counts everything that o has counted.
func (h *Histogram) Add(o *Histogram) {
	if o.n == 0 {
		return
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Count returns the number of durations recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the longest duration recorded, exactly; 0 when there is none.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Min returns the shortest duration recorded, exactly; 0 when there is none.
func (h *Histogram) Min() time.Duration { return time.Duration(h.min) }

// Mean returns the arithmetic mean, 0 when nothing was recorded.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile returns a duration that at least the share q of the recorded ones do not exceed (nearest rank), never below the
// true one and at most 0.8 % above it; 0 when nothing was recorded. q is cut to 0…1.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(h.n)))
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for b, c := range h.counts {
		if seen += c; seen >= rank {
			return time.Duration(min(bucketMax(b), h.max))
		}
	}
	return time.Duration(h.max)
}
