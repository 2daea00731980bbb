package obs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Quantiles are never below those of all times of late, and above them by a 32nd at most.
func TestSummariesTellQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	for _, n := range []int{0, 1, 2, 10, 1000, 20_000} {
		var s summary
		var all []time.Duration
		sum := 0.0
		for i := range n {
			took := time.Duration(math.Exp(r.Float64()*30) * 10) // from nothing to hours
			if i == 0 {
				took = 0
			}
			at := start
			if i%2 == 1 {
				at = start.Add(half + time.Second) // in the window that follows, as far as it is later
			}
			if i%2 == 0 && s.since.After(start) {
				at = s.since
			}
			s.observeAt(at, took)
			all = append(all, took)
			sum += took.Seconds()
		}
		slices.Sort(all)
		count, got, values := s.read(start.Add(half + 2*time.Second))
		if count != uint64(n) || math.Abs(got-sum) > 1e-9*sum {
			t.Errorf("%d times: %d, sum %v, want %v", n, count, got, sum)
		}
		for _, q := range told {
			if n == 0 {
				if !math.IsNaN(values[q]) {
					t.Errorf("of no times the quantile %v is %v", q, values[q])
				}
				continue
			}
			exact := all[max(int(math.Ceil(q*float64(n))), 1)-1]
			if v := values[q]; v < exact.Seconds() || v > exact.Seconds()*(1+1.0/32)+1e-9 {
				t.Errorf("%d times: the quantile %v is %v, want %v", n, q, v, exact.Seconds())
			}
		}
	}
}

// What is older than the window does not count in the quantiles, and counts in the sums.
func TestSummariesForgetOldTimes(t *testing.T) {
	var s summary
	at := time.Now()
	s.observeAt(at, time.Second)
	s.observeAt(at.Add(half+time.Second), time.Millisecond)
	if _, _, v := s.read(at.Add(half + 2*time.Second)); v[0.99] < 1 {
		t.Errorf("%v", v)
	}
	if _, _, v := s.read(at.Add(2*half + 2*time.Second)); v[0.99] > 0.002 || v[0.5] < 0.001 {
		t.Errorf("%v", v)
	}
	count, sum, v := s.read(at.Add(5 * half))
	if count != 2 || sum < 1 || !math.IsNaN(v[0.5]) {
		t.Errorf("%d, %v, %v", count, sum, v)
	}
}

func TestBucketsHoldTheirTimes(t *testing.T) {
	last := uint16(0)
	for d := time.Duration(1); d > 0; d += d/50 + 1 {
		b := bucketOf(d)
		if b < last || upper(b) < d || float64(upper(b)) > float64(d)*(1+1.0/32) || bucketOf(upper(b)) != b {
			t.Fatalf("%d is in bucket %d, up to %d", d, b, upper(b))
		}
		last = b
	}
	if bucketOf(-1) != 0 || upper(bucketOf(math.MaxInt64)) != math.MaxInt64 {
		t.Error("the ends")
	}
}

// A hundred thousand indexes that are searched take bounded memory.
func TestMemoryOfManySummaries(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const n = 20_000
	before := heap()
	m := NewMetrics("v")
	b := m.SummaBroker()
	for i := range n {
		index := fmt.Sprintf("index-%06d", i)
		for j := range 20 {
			b.Searched(index, "ok", time.Duration(1000+j*j*37)*time.Microsecond)
		}
	}
	each := (heap() - before) / n
	t.Logf("a searched index takes %d bytes", each)
	if each > 3000 {
		t.Errorf("a searched index takes %d bytes", each)
	}
	metrics := make(chan prometheus.Metric, n)
	b.searchSeconds.Collect(metrics)
	if len(metrics) != n {
		t.Errorf("%d summaries", len(metrics))
	}
}
