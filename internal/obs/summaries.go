package obs

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// summaries are summaries of times by two labels. One takes some hundred bytes, where one of the library takes 70 KB from the start: there is one
// for each index, and for each call of each node.
type summaries struct {
	desc *prometheus.Desc

	mu sync.RWMutex
	by map[[2]string]*summary
}

func newSummaries(name, help string, labels ...string) *summaries {
	return &summaries{desc: prometheus.NewDesc(name, help, labels, nil), by: map[[2]string]*summary{}}
}

// of returns the summary of labels, which is made if it is not there.
func (s *summaries) of(a, b string) *summary {
	key := [2]string{a, b}
	s.mu.RLock()
	one := s.by[key]
	s.mu.RUnlock()
	if one != nil {
		return one
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one = s.by[key]; one == nil {
		one = &summary{}
		s.by[key] = one
	}
	return one
}

// forget drops the summaries of which gone says so.
func (s *summaries) forget(gone func(a, b string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.by {
		if gone(key[0], key[1]) {
			delete(s.by, key)
		}
	}
}

// Describe implements prometheus.Collector.
func (s *summaries) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements prometheus.Collector.
func (s *summaries) Collect(ch chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := time.Now()
	for key, one := range s.by {
		count, sum, values := one.read(now)
		ch <- prometheus.MustNewConstSummary(s.desc, count, sum, values, key[:]...)
	}
}

// told are the quantiles that a summary tells.
var told = []float64{0.5, 0.9, 0.95, 0.99, 0.999}

// half is how long observations are gathered before those before them are forgotten: quantiles are those of the last 5 to 10 minutes.
const half = 5 * time.Minute

// summary counts times, and knows their quantiles of late to some 3 %.
type summary struct {
	mu    sync.Mutex
	count uint64
	sum   float64
	now   []tally // by bucket
	old   []tally
	since time.Time // of now
}

// tally is how many times are in a bucket.
type tally struct {
	bucket uint16
	n      uint32
}

// Buckets are log-linear: every power of two of nanoseconds is cut into 32.
const subBits = 5

func bucketOf(d time.Duration) uint16 {
	v := uint64(max(d, 0))
	if v < 1<<subBits {
		return uint16(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return uint16(shift<<subBits + int(v>>shift))
}

// upper is the largest time of a bucket.
func upper(bucket uint16) time.Duration {
	if bucket < 2<<subBits {
		return time.Duration(bucket)
	}
	shift := bucket>>subBits - 1
	return time.Duration((uint64(bucket&(1<<subBits-1))+1<<subBits+1)<<shift - 1)
}

// observe counts a time.
func (s *summary) observe(took time.Duration) { s.observeAt(time.Now(), took) }

func (s *summary) observeAt(now time.Time, took time.Duration) {
	bucket := bucketOf(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	s.count++
	s.sum += took.Seconds()
	i, ok := slices.BinarySearchFunc(s.now, bucket, func(t tally, b uint16) int { return int(t.bucket) - int(b) })
	if !ok {
		s.now = slices.Insert(s.now, i, tally{bucket: bucket})
	}
	if s.now[i].n < math.MaxUint32 {
		s.now[i].n++
	}
}

// turn forgets what is too old. Called with the lock held.
func (s *summary) turn(now time.Time) {
	switch age := now.Sub(s.since); {
	case age < half:
		return
	case age < 2*half:
		s.old = s.now
	default:
		s.old = nil
	}
	s.now, s.since = nil, now
}

// read is what a summary tells. Where there were no times of late, the quantiles are no numbers.
func (s *summary) read(now time.Time) (count uint64, sum float64, values map[float64]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	total := uint64(0)
	for _, t := range s.now {
		total += uint64(t.n)
	}
	for _, t := range s.old {
		total += uint64(t.n)
	}
	values = make(map[float64]float64, len(told))
	a, b := s.now, s.old
	passed, last := uint64(0), math.NaN()
	for _, q := range told {
		rank := max(uint64(math.Ceil(q*float64(total))), 1)
		for total > 0 && passed < rank {
			// The lower bucket of the two lists comes next.
			from := &a
			if len(a) == 0 || len(b) > 0 && b[0].bucket < a[0].bucket {
				from = &b
			}
			passed += uint64((*from)[0].n)
			last = upper((*from)[0].bucket).Seconds()
			*from = (*from)[1:]
		}
		values[q] = last
	}
	return s.count, s.sum, values
}
