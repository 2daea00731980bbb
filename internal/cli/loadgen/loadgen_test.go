package loadgen

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBucketsCoverEveryValueOnce(t *testing.T) {
	for b := range numBuckets {
		top := bucketMax(b)
		if bucketOf(top) != b {
			t.Fatalf("largest value %d of bucket %d falls into %d", top, b, bucketOf(top))
		}
		if b+1 < numBuckets && bucketOf(top+1) != b+1 {
			t.Fatalf("value %d after bucket %d falls into %d", top+1, b, bucketOf(top+1))
		}
	}
	if bucketMax(numBuckets-1) != math.MaxInt64 {
		t.Fatalf("the last bucket ends at %d", bucketMax(numBuckets-1))
	}
}

func TestQuantilesAgainstSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 300).Draw(t, "values")
		var whole, left, right Histogram
		for i, v := range values {
			whole.Record(time.Duration(v))
			if i%3 == 0 {
				left.Record(time.Duration(v))
			} else {
				right.Record(time.Duration(v))
			}
		}
		left.Add(&right)
		if left != whole {
			t.Fatalf("the sum of two histograms differs from the histogram of all")
		}
		slices.Sort(values)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
			rank := max(int(math.Ceil(q*float64(len(values)))), 1)
			want := values[rank-1]
			got := int64(whole.Quantile(q))
			if got < want || float64(got) > float64(want)*(1+1.0/subBuckets) {
				t.Fatalf("quantile %v of %d values is %d, want %d", q, len(values), got, want)
			}
		}
		if int64(whole.Max()) != values[len(values)-1] || int64(whole.Min()) != values[0] {
			t.Fatalf("least and greatest are %d and %d", whole.Min(), whole.Max())
		}
	})
}

func TestStallIsChargedToEveryCallDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One worker, 100 calls a second, and the 11th stalls for half a second: the fifty calls due meanwhile waited too.
		r, err := Run(context.Background(), Config{Rate: 100, Duration: time.Second, Concurrency: 1, Drain: time.Minute},
			func(_ context.Context, i uint64) error {
				if i == 10 {
					<-time.After(500 * time.Millisecond)
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if r.Due != 100 || r.Done != 100 || r.Failed != 0 || r.Unsent != 0 {
			t.Fatalf("got %d due, %d done, %d failed, %d unsent", r.Due, r.Done, r.Failed, r.Unsent)
		}
		if p := r.Latency.Quantile(0.8); p < 250*time.Millisecond {
			t.Errorf("p80 of latency is %v: the stall was left out", p)
		}
		if p := r.Service.Quantile(0.8); p > time.Millisecond {
			t.Errorf("p80 of service time is %v", p)
		}
		if r.Latency.Max() != 500*time.Millisecond {
			t.Errorf("longest is %v", r.Latency.Max())
		}
	})
}

func TestOverloadEndsAndCountsWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Run(context.Background(), Config{Rate: 100, Duration: time.Second, Concurrency: 2, Drain: time.Second, Progress: func(uint64, uint64) {}},
			func(ctx context.Context, i uint64) error {
				<-time.After(100 * time.Millisecond)
				if i%2 == 1 {
					return errors.New("odd")
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if r.Done+r.Failed+r.Unsent != r.Due || r.Unsent == 0 || r.Failed == 0 || r.Errors["odd"] != r.Failed {
			t.Errorf("got %d due, %d done, %d failed, %d unsent, errors %v", r.Due, r.Done, r.Failed, r.Unsent, r.Errors)
		}
		if r.Elapsed > 2200*time.Millisecond {
			t.Errorf("took %v", r.Elapsed)
		}
	})
}

func TestCancelStopsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := Run(ctx, Config{Rate: 1000, Duration: time.Hour, Concurrency: 4}, func(ctx context.Context, i uint64) error {
			if i == 100 {
				cancel()
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || r == nil || r.Done < 90 || r.Done > 104 {
			t.Errorf("got %+v, %v", r.Done, err)
		}
	})
}

func TestValidate(t *testing.T) {
	for _, c := range []Config{{}, {Rate: math.NaN(), Duration: 1, Concurrency: 1}, {Rate: 1, Concurrency: 1}, {Rate: 1, Duration: 1}, {Rate: 1, Duration: 1, Concurrency: 1, Drain: -1}, {Rate: math.Inf(1), Duration: 1, Concurrency: 1}, {Rate: 1, Duration: 25 * time.Hour, Concurrency: 1}, {Rate: 1, Duration: 1, Concurrency: 1 << 20}} {
		if _, err := Run(context.Background(), c, nil); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	b.ReportAllocs()
	for i := range b.N {
		h.Record(time.Duration(i))
	}
}
