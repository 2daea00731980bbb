package simulate

import (
	"math"
	"strings"
	"testing"
	"time"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %v, want %v within %v %%", what, got, want, 100*tolerance)
	}
}

func TestServiceTimesAreThoseOfTheModel(t *testing.T) {
	m := SlowCalls()
	d := newDrawer(m, 1, 2)
	r := &Result{}
	slow := 0
	var sum time.Duration
	const n = 200_000
	for range n {
		service, more := d.call(0)
		r.Latencies = append(r.Latencies, service)
		sum += service
		switch more {
		case 0:
		case m.Slow:
			slow++
		default:
			t.Fatalf("a slow call takes %v longer, want %v", more, m.Slow)
		}
	}
	sorted(r.Latencies)
	near(t, "median", float64(r.Quantile(0.5)), float64(m.Median), 0.02)
	near(t, "p99", float64(r.Quantile(0.99)), float64(3*m.Median), 0.02)
	near(t, "mean", float64(sum/n), float64(m.service()), 0.02)
	near(t, "slow calls", float64(slow)/n, m.Share, 0.1)
}

func TestReplicasAreSlowForTheirShareOfTheTime(t *testing.T) {
	m := SlowReplicas()
	const (
		replicas = 400
		step     = 500 * time.Millisecond
		steps    = 4000
	)
	slow, turns, atFirst := 0, 0, 0
	for r := range replicas {
		d := newDrawer(m, 7, uint64(r))
		was := false
		for i := range steps {
			_, more := d.call(time.Duration(i) * step)
			is := more > 0
			if is {
				slow++
			}
			if is && i == 0 {
				atFirst++
			}
			if is && !was {
				turns++
			}
			was = is
		}
	}
	near(t, "slow share", float64(slow)/(replicas*steps), m.Share, 0.15)
	near(t, "mean length in seconds", float64(slow)*step.Seconds()/float64(turns), m.Episode.Seconds(), 0.15)
	if atFirst == 0 || atFirst > replicas/20 {
		t.Errorf("%d of %d replicas are slow at the start, want about 1 in 100", atFirst, replicas)
	}
}

func TestDrawsDependOnSeedAndStreamOnly(t *testing.T) {
	m := SlowCalls()
	first := func(seed, stream uint64) time.Duration {
		service, _ := newDrawer(m, seed, stream).call(0)
		return service
	}
	want := first(1, 2)
	if got := first(1, 2); got != want {
		t.Errorf("the same seed and stream draw %v and %v", want, got)
	}
	if first(1, 3) == want || first(2, 2) == want {
		t.Error("another seed or stream draws the same time")
	}
	a, b := source(1, 2), source(1, 2)
	for range 10 {
		if a() != b() {
			t.Fatal("the same source draws different numbers")
		}
	}
}

func TestArrivalsLoadTheWorkersAsStated(t *testing.T) {
	m := SlowCalls()
	m.Workers = 4
	perReplica := m.between(3).Seconds() * 3
	near(t, "utilisation", m.service().Seconds()/(perReplica*4), m.Utilisation, 0.001)
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	r := &Result{}
	for i := range 1000 {
		r.Latencies = append(r.Latencies, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.0005: 1, 0.5: 500, 0.99: 990, 0.999: 999, 0.9991: 1000, 1: 1000} {
		if got := r.Quantile(q); got != want {
			t.Errorf("quantile %v of 1 to 1000: %d, want %d", q, got, want)
		}
	}
	one := &Result{Latencies: []time.Duration{5}}
	if got := one.Quantile(0.999); got != 5 {
		t.Errorf("quantile of one value: %d, want it", got)
	}
}

func TestTable(t *testing.T) {
	result := func(v Variant, shards int, ms ...int) *Result {
		r := &Result{Setup: Setup{Model: SlowReplicas(), Variant: v, Shards: shards, Replicas: 3, Queries: len(ms)}, Sent: 0.0123, Executed: 0.004}
		for _, n := range ms {
			r.Latencies = append(r.Latencies, time.Duration(n)*time.Millisecond)
		}
		return r
	}
	v := Variants()
	var b strings.Builder
	if err := WriteTable(&b, []*Result{result(v[0], 1, 8, 1000), result(v[1], 1, 8, 40), result(v[0], 10, 500)}); err != nil {
		t.Fatal(err)
	}
	want := `| slow | leaves | replicas | queries | | p50 | p99 | p99.9 | p99.9 lower by | extra sent | extra executed |
|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|
| 1 % of replicas | 1 | 3 | 2 | none | 8.0 ms | 1000 ms | 1000 ms | 1.0 | 1.23 % | 0.40 % |
| | | | | hedged | 8.0 ms | 40.0 ms | 40.0 ms | 25.0 | 1.23 % | 0.40 % |
| 1 % of replicas | 10 | 3 | 1 | none | 500 ms | 500 ms | 500 ms | 1.0 | 1.23 % | 0.40 % |
`
	if b.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", b.String(), want)
	}
}
