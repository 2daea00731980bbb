// Package latency keeps what a caller knows of how long its calls take: a Digest answers quantiles of the last minute, an Average
// follows one server.
//
// Both learn from calls that were given up as well. A call that was cancelled after t is not a call that took t, and not nothing
// either: it is known to take at least t. Leaving such calls out would forget exactly the slow ones (a hedged call cancels its
// slowest attempt), so that the quantile sinks, more calls are hedged, and it sinks further. The Digest therefore estimates
// quantiles with the product-limit estimator of Kaplan and Meier (Nonparametric Estimation from Incomplete Observations, 1958),
// which is made for observations that end early; without any it gives the plain quantile.
//
// Everything is safe for concurrent use. The clock is passed in: the caller has read it to know how long the call took.
package latency

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Buckets are log-linear: values under 2^(subBits+1) ns have a bucket of their own, every power of two above is cut into 2^subBits.
// A value above the last bucket counts there.
const (
	subBits = 5
	subs    = 1 << subBits
	topBits = 42 // 2^42 ns are 73 minutes
	buckets = (topBits - subBits + 1) * subs
)

// MaxError is how far a quantile may lie above the exact one, as a fraction of it. It never lies below.
const MaxError = 1.0 / subs

// bucketOf is the bucket of a duration; a negative one counts as 0.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subs {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return min(shift*subs+int(v>>shift), buckets-1)
}

// upper is the largest duration of a bucket.
func upper(bucket int) time.Duration {
	if bucket < 2*subs {
		return time.Duration(bucket)
	}
	shift := bucket/subs - 1
	return time.Duration(uint64(bucket%subs+subs+1)<<shift - 1)
}

// Options of a Digest. The zero value means the defaults.
type Options struct {
	// Window is how long a value counts at least; it counts for at most Window·(1 + 1/Slots). Default: a minute.
	Window time.Duration
	// Slots is in how many steps the oldest values of a window are forgotten. A digest takes about 10 KiB for each. Default: 6, at
	// most 64.
	Slots int
}

// Digest is a histogram of the durations of the last Window. Record takes no lock and does not allocate.
type Digest struct {
	base  time.Time
	width time.Duration // of a slot
	slots []slot

	turning sync.Mutex // held by whoever empties a slot for a new time
}

// slot holds the values of the times [epoch·width, (epoch+1)·width). epoch is -1 while it is being emptied or was never used.
type slot struct {
	epoch   atomic.Int64
	took    [buckets]atomic.Uint32 // calls that ended by themselves
	atLeast [buckets]atomic.Uint32 // calls that were given up
}

// New returns an empty digest.
func New(o Options) *Digest {
	if o.Window <= 0 {
		o.Window = time.Minute
	}
	if o.Slots <= 0 {
		o.Slots = 6
	}
	o.Slots = min(o.Slots, 64)
	// One slot more than the window has: the newest one is only begun.
	d := &Digest{base: time.Now(), width: max(o.Window/time.Duration(o.Slots), 1), slots: make([]slot, o.Slots+1)}
	for i := range d.slots {
		d.slots[i].epoch.Store(-1)
	}
	return d
}

// epoch numbers the slot of a time. A time before the digest was made counts as its first.
func (d *Digest) epoch(now time.Time) int64 { return max(int64(now.Sub(d.base)/d.width), 0) }

// slotAt returns the slot of now, emptied if it held an older time. A recorder that is slower than a whole window may put its value
// into a newer slot than its own; it is one value.
func (d *Digest) slotAt(now time.Time) *slot {
	e := d.epoch(now)
	s := &d.slots[e%int64(len(d.slots))]
	if s.epoch.Load() >= e {
		return s
	}
	d.turning.Lock()
	defer d.turning.Unlock()
	if s.epoch.Load() < e {
		s.epoch.Store(-1)
		for i := range s.took {
			s.took[i].Store(0)
			s.atLeast[i].Store(0)
		}
		s.epoch.Store(e)
	}
	return s
}

// Record counts a call that ended now after took.
func (d *Digest) Record(now time.Time, took time.Duration) {
	d.slotAt(now).took[bucketOf(took)].Add(1)
}

// RecordAtLeast counts a call that was given up now: all that is known is that it takes longer than waited.
func (d *Digest) RecordAtLeast(now time.Time, waited time.Duration) {
	d.slotAt(now).atLeast[bucketOf(waited)].Add(1)
}

// Quantile is the duration that the fraction q of calls does not exceed: Read, and Quantile of what was read. Who asks often keeps a
// Snapshot and reads into that.
func (d *Digest) Quantile(now time.Time, q float64) time.Duration {
	var s Snapshot
	d.Read(now, &s)
	return s.Quantile(q)
}

// Snapshot is what a Digest held at one time. It is large: pass pointers.
type Snapshot struct {
	// Took and AtLeast are how many calls ended, and how many were given up.
	Took, AtLeast uint64

	took, atLeast [buckets]uint64
}

// Read fills dst with what counts at now. While others record it may miss the values of this instant.
func (d *Digest) Read(now time.Time, dst *Snapshot) {
	*dst = Snapshot{}
	newest := d.epoch(now)
	oldest := newest - int64(len(d.slots)) + 1
	for i := range d.slots {
		s := &d.slots[i]
		if e := s.epoch.Load(); e < 0 || e < oldest || e > newest {
			continue
		}
		for b := range s.took {
			if n := uint64(s.took[b].Load()); n > 0 {
				dst.took[b] += n
				dst.Took += n
			}
			if n := uint64(s.atLeast[b].Load()); n > 0 {
				dst.atLeast[b] += n
				dst.AtLeast += n
			}
		}
	}
}

// Quantile is the duration that the fraction q (0 to 1) of calls does not exceed. Without calls that were given up it is at least
// the exact quantile (the ⌈q·n⌉-th smallest value) and at most MaxError above it: whoever waits so long does not give up on a call
// that is as fast as the others. Where so many calls were given up that q cannot be known, it is the longest that any call was
// seen to run. It is 0 if nothing is remembered.
func (s *Snapshot) Quantile(q float64) time.Duration {
	var out [1]time.Duration
	s.Quantiles(out[:], q)
	return out[0]
}

// Quantiles writes the quantile of each q to dst, in one pass. qs must rise.
func (s *Snapshot) Quantiles(dst []time.Duration, qs ...float64) {
	if s.AtLeast == 0 {
		s.exact(dst, qs)
		return
	}
	// At each bucket, of the calls still running when it begins, those that end in it divide the survivors; those given up in it
	// leave afterwards.
	running := s.Took + s.AtLeast
	alive := 1.0
	longest := 0
	next := 0
	for b := 0; b < buckets && running > 0 && next < len(qs); b++ {
		ended, gone := s.took[b], s.atLeast[b]
		if ended|gone == 0 {
			continue
		}
		longest = b
		alive *= 1 - float64(ended)/float64(running)
		running -= ended + gone
		// Rounding may leave alive a hair over 1-q where it is equal.
		for next < len(qs) && ended > 0 && alive <= 1-qs[next]+1e-12 {
			dst[next] = upper(b)
			next++
		}
	}
	for ; next < len(qs); next++ {
		dst[next] = upper(longest)
	}
}

// exact is Quantiles where every call ended: whole numbers, so that no rounding moves a rank.
func (s *Snapshot) exact(dst []time.Duration, qs []float64) {
	var below uint64
	next := 0
	for b := 0; b < buckets && next < len(qs); b++ {
		if s.took[b] == 0 {
			continue
		}
		below += s.took[b]
		for next < len(qs) && below >= rank(qs[next], s.Took) {
			dst[next] = upper(b)
			next++
		}
	}
	for ; next < len(qs); next++ {
		dst[next] = 0
	}
}

// rank is the place, from 1, of the quantile q among n values.
func rank(q float64, n uint64) uint64 {
	r := math.Ceil(min(max(q, 0), 1)*float64(n) - 1e-9)
	return max(uint64(r), 1)
}
