package latency

import (
	"math"
	"sync/atomic"
	"time"
)

// Average follows the latency of one server: an exponentially weighted mean. While calls are frequent each counts for a tenth (as
// in C3, Suresh et al., NSDI 2015); after a pause the new value counts more, for what was known has aged, and without any call the
// value fades, so that a server that was slow and is left alone is asked again. The zero value is empty and ready.
type Average struct {
	// Fade is how fast: a value that was not renewed for so long is down to 1/e. Default: 10 s. Set it before the first use.
	Fade time.Duration

	// The mean in nanoseconds as a float32 in the upper half, and when it was last changed in the lower: milliseconds since epoch,
	// which wrap after 49 days, so that an age over 24 days may read as none. One word, so that one compare-and-swap changes both.
	// 0 is empty.
	word atomic.Uint64
}

const (
	weight      = 0.1 // of one value among frequent ones
	defaultFade = 10 * time.Second
)

// epoch is where the milliseconds of Average count from: any fixed time.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func stamp(now time.Time) uint32 { return uint32(now.UnixMilli() - epoch.UnixMilli()) }

func pack(mean float64, at uint32) uint64 {
	// At least 1 ns: a mean of 0 at stamp 0 would read as empty.
	return uint64(math.Float32bits(float32(max(mean, 1))))<<32 | uint64(at)
}

// unpack returns the mean and its age in units of Fade.
func (a *Average) unpack(word uint64, now uint32) (mean, age float64) {
	fade := a.Fade
	if fade <= 0 {
		fade = defaultFade
	}
	// A clock that stepped back by a little gives an age of 0, not of 49 days.
	elapsed := max(int32(now-uint32(word)), 0)
	return float64(math.Float32frombits(uint32(word >> 32))), float64(elapsed) * float64(time.Millisecond) / float64(fade)
}

// Record counts a call that ended now after took.
func (a *Average) Record(now time.Time, took time.Duration) { a.record(now, took, false) }

// RecordAtLeast counts a call that was given up now after waited: it can only raise the mean.
func (a *Average) RecordAtLeast(now time.Time, waited time.Duration) { a.record(now, waited, true) }

func (a *Average) record(now time.Time, took time.Duration, raise bool) {
	at := stamp(now)
	for {
		old := a.word.Load()
		mean := float64(max(took, 0))
		if old != 0 {
			was, age := a.unpack(old, at)
			if raise && mean <= was {
				return
			}
			w := weight
			if age > 0 {
				w = max(w, 1-math.Exp(-age))
			}
			mean = was + (mean-was)*w
		}
		if a.word.CompareAndSwap(old, pack(mean, at)) {
			return
		}
	}
}

// Value is the mean, faded by the time since the last value; 0 if there was none.
func (a *Average) Value(now time.Time) time.Duration {
	word := a.word.Load()
	if word == 0 {
		return 0
	}
	mean, age := a.unpack(word, stamp(now))
	if age > 0 {
		mean *= math.Exp(-age)
	}
	return max(time.Duration(mean), 1)
}
