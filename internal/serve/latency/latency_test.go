package latency

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

func TestBucketsHoldWhatTheySay(t *testing.T) {
	for b := range buckets {
		u := upper(b)
		if bucketOf(u) != b {
			t.Fatalf("the end of bucket %d, %v, is in bucket %d", b, u, bucketOf(u))
		}
		if b+1 < buckets && bucketOf(u+1) != b+1 {
			t.Fatalf("what follows bucket %d is in bucket %d", b, bucketOf(u+1))
		}
	}
	if bucketOf(-1) != 0 || bucketOf(math.MaxInt64) != buckets-1 {
		t.Fatal("the ends")
	}
}

// exact is the ⌈q·n⌉-th smallest value.
func exact(values []time.Duration, q float64) time.Duration {
	slices.Sort(values)
	return values[max(int(math.Ceil(q*float64(len(values))-1e-9)), 1)-1]
}

func within(t interface{ Fatalf(string, ...any) }, got, want time.Duration, q float64) {
	if got < want || float64(got) > float64(want)*(1+MaxError) {
		t.Fatalf("quantile %v is %v, exactly %v", q, got, want)
	}
}

func TestQuantilesAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New(Options{})
		now := time.Now()
		// Up to an hour, evenly over the powers of two.
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(1)<<rapid.IntRange(0, 41).Draw(t, "bits")).Draw(t, "value"))
		}), 1, 300).Draw(t, "values")
		for _, v := range values {
			d.Record(now, v)
		}
		for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			within(t, d.Quantile(now, q), exact(values, q), q)
		}
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		within(t, d.Quantile(now, q), exact(values, q), q)
	})
}

func TestEmpty(t *testing.T) {
	d := New(Options{})
	if q := d.Quantile(time.Now(), 0.95); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	d.RecordAtLeast(time.Now(), 50*ms)
	if q := d.Quantile(time.Now(), 0.5); q < 50*ms || q > 52*ms {
		t.Errorf("all that is known is 50 ms: %v", q)
	}
}

func TestForgets(t *testing.T) {
	d := New(Options{Window: time.Minute, Slots: 6})
	at := d.base
	for range 100 {
		d.Record(at, time.Second)
	}
	for range 10 {
		d.Record(at.Add(30*time.Second), ms)
	}
	count := func(now time.Time) uint64 {
		var s Snapshot
		d.Read(now, &s)
		return s.Took
	}
	for _, c := range []struct {
		after time.Duration
		want  uint64
	}{
		{30 * time.Second, 110},
		{time.Minute, 110},
		{time.Minute + 10*time.Second - 1, 110}, // Window·(1 + 1/Slots)
		{time.Minute + 10*time.Second, 10},
		{90 * time.Second, 10},
		{2 * time.Minute, 0},
		{time.Hour, 0},
	} {
		if got := count(at.Add(c.after)); got != c.want {
			t.Errorf("after %v: %d values, want %d", c.after, got, c.want)
		}
	}
	if q := d.Quantile(at.Add(80*time.Second), 0.95); q > 2*ms {
		t.Errorf("the slow ones are forgotten, but the quantile is %v", q)
	}
	// A slot is used again without what it held, and a clock before the digest is its beginning.
	d.Record(at.Add(70*time.Second), 2*ms)
	if got := count(at.Add(70 * time.Second)); got != 11 {
		t.Errorf("%d values", got)
	}
	d.Record(at.Add(-time.Hour), ms)
}

// TestGivenUpCallsDoNotHideTheTail: a quarter of calls is cancelled at a random time, as by a hedge that answers. The estimate stays
// where it is without cancelling; leaving cancelled calls out, or taking them as ended, sinks it.
func TestGivenUpCallsDoNotHideTheTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	censored, dropped, taken := New(Options{}), New(Options{}), New(Options{})
	var all []time.Duration
	for range 200_000 {
		v := time.Duration(rng.ExpFloat64() * float64(10*ms))
		all = append(all, v)
		// Whoever waits longer than 20 ms may be cancelled after an independent time.
		cut := 20*ms + time.Duration(rng.ExpFloat64()*float64(10*ms))
		if v <= cut {
			censored.Record(now, v)
			dropped.Record(now, v)
			taken.Record(now, v)
			continue
		}
		censored.RecordAtLeast(now, cut)
		taken.Record(now, cut)
	}
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99} {
		want := float64(exact(all, q))
		got := float64(censored.Quantile(now, q))
		if math.Abs(got-want)/want > 0.05 {
			t.Errorf("quantile %v: %v, exactly %v", q, time.Duration(got), time.Duration(want))
		}
		t.Logf("q %v: exact %v, estimated %v, dropped %v, taken as ended %v", q, time.Duration(want), time.Duration(got),
			dropped.Quantile(now, q), taken.Quantile(now, q))
	}
	if q := dropped.Quantile(now, 0.99); float64(q) > 0.9*float64(exact(all, 0.99)) {
		t.Errorf("the test does not bite: %v", q)
	}
}

// TestProductLimitByHand is the example of a table: 6 calls, of which those at 3 and 5 ns were given up.
func TestProductLimitByHand(t *testing.T) {
	d := New(Options{})
	now := time.Now()
	for _, v := range []time.Duration{1, 2, 4, 6} {
		d.Record(now, v)
	}
	d.RecordAtLeast(now, 3)
	d.RecordAtLeast(now, 5)
	// Survivors: after 1 5/6, after 2 4/6, after 4 4/6·2/3 = 4/9, after 6 0.
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.1, 1}, {1.0 / 6, 1}, {0.17, 2}, {1.0 / 3, 2}, {0.34, 4}, {0.55, 4}, {0.56, 6}, {1, 6}} {
		if got := d.Quantile(now, c.q); got != c.want {
			t.Errorf("quantile %v is %d, want %d", c.q, got, c.want)
		}
	}
}

func TestConcurrentRecordsAreAllCounted(t *testing.T) {
	d := New(Options{Window: time.Hour})
	now := time.Now()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				d.Record(now, time.Duration(g*i))
				if i%100 == 0 {
					d.RecordAtLeast(now, ms)
					d.Quantile(now, 0.9)
				}
			}
		})
	}
	wg.Wait()
	var s Snapshot
	d.Read(now, &s)
	if s.Took != 40_000 || s.AtLeast != 400 {
		t.Fatalf("%d and %d values", s.Took, s.AtLeast)
	}
	// Slots that turn while others record.
	for range 8 {
		wg.Go(func() {
			for i := range 2000 {
				d.Record(now.Add(time.Duration(i)*time.Minute), ms)
			}
		})
	}
	wg.Wait()
}

func TestRecordDoesNotAllocate(t *testing.T) {
	d := New(Options{})
	var a Average
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() {
		d.Record(now, ms)
		d.RecordAtLeast(now, ms)
		a.Record(now, ms)
		a.Value(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if math.Abs(float64(got-want)) > 0.001*float64(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestAverage(t *testing.T) {
	var a Average
	now := time.Now()
	if a.Value(now) != 0 {
		t.Error("not empty")
	}
	a.Record(now, 10*ms)
	near(t, "the first", a.Value(now), 10*ms)
	a.Record(now, 20*ms)
	near(t, "a tenth of the way", a.Value(now), 11*ms)
	a.RecordAtLeast(now, 5*ms)
	near(t, "at least less than the mean is no news", a.Value(now), 11*ms)
	a.RecordAtLeast(now, 21*ms)
	near(t, "at least more raises it", a.Value(now), 12*ms)
	near(t, "faded", a.Value(now.Add(10*time.Second)), time.Duration(float64(12*ms)*math.Exp(-1)))
	// After a long pause the new value is nearly all.
	now = now.Add(time.Minute)
	a.Record(now, 100*ms)
	if v := a.Value(now); v < 99*ms || v > 100*ms {
		t.Errorf("after a pause: %v", v)
	}
	// A clock that steps back does not fade anything.
	near(t, "earlier", a.Value(now.Add(-5*time.Second)), a.Value(now))
	a.Record(now, 0)
	if a.Value(now) <= 0 {
		t.Error("a mean that is known is not 0")
	}
}

func TestAverageRecovers(t *testing.T) {
	a := Average{Fade: time.Second}
	now := time.Now()
	for range 100 {
		a.Record(now, time.Second)
	}
	for range 50 {
		now = now.Add(10 * ms)
		a.Record(now, 10*ms)
	}
	if v := a.Value(now); v > 20*ms {
		t.Errorf("50 quick calls after a slow time: %v", v)
	}
}

func BenchmarkRecord(b *testing.B) {
	d := New(Options{})
	now := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d.Record(now, time.Duration(i)*time.Microsecond)
	}
}

func BenchmarkQuantiles(b *testing.B) {
	d := New(Options{})
	now := time.Now()
	for i := range 10_000 {
		d.Record(now, time.Duration(i)*time.Microsecond)
		d.RecordAtLeast(now, time.Duration(i)*time.Microsecond)
	}
	var s Snapshot
	var out [3]time.Duration
	b.ReportAllocs()
	for b.Loop() {
		d.Read(now, &s)
		s.Quantiles(out[:], 0.5, 0.95, 0.99)
	}
}

func BenchmarkAverage(b *testing.B) {
	var a Average
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(ms)
		a.Record(now, ms)
		a.Value(now.Add(ms))
	}
}
