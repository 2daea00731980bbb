package simulate

import (
	"math"
	"math/rand/v2"
	"time"
)

// Model is how long calls take. The numbers and their reasons are in SlowCalls.
type Model struct {
	// Name says in the table what is slow.
	Name string

	// Median and Sigma are of the service time of an ordinary call, which is lognormal: the time that one worker of a replica
	// is busy with it. The quantile of the normal number z is Median·exp(Sigma·z).
	Median time.Duration
	Sigma  float64

	// Share of the calls, or of the time of each replica if there is an Episode, is slow.
	Share float64
	// Episode, if not 0, makes slow all calls that begin on a replica during one of its slow times. Their lengths are exponential with
	// this mean, as are the times between them. If it is 0 each call is slow or not by itself.
	Episode time.Duration
	// Slow is how much longer a slow call takes.
	Slow time.Duration
	// Holds says that a slow call keeps its worker during Slow, so that those behind it wait too; otherwise the reply is late
	// and the worker is free.
	Holds bool

	// Workers is how many calls a replica serves at once; the others wait in order of coming.
	Workers int
	// Utilisation is the share of their time that workers spend on ordinary service when each query is one call for each shard,
	// spread evenly over its replicas. The rate of the queries follows from it.
	Utilisation float64
}

// SlowCalls is the model in which each call is slow or not by itself, whatever replica it is on: a lost packet, a page that is not in
// memory.
func SlowCalls() Model {
	return Model{
		Name: "1 % of calls",
		// A search of one shard in memory and its way there and back; at the 99th percentile three times the median, the spread
		// between light and heavy queries: exp(2.326·Sigma) = 3.
		Median: 7 * time.Millisecond,
		Sigma:  math.Log(3) / 2.326,
		// The aim is stated for one in a hundred.
		Share: 0.01,
		// TCP's timer for a packet whose round trip has not been measured (RFC 6298, section 2.1); a stopped disk or process is
		// of the same order. More than a hundred ordinary calls.
		Slow: time.Second,
		// One worker makes waiting for another call as likely as it can be at this load.
		Workers: 1,
		// A serving tier is kept far from saturation for its tail's sake, but a quarter of the calls wait for another, so that
		// extra calls cost the others something.
		Utilisation: 0.25,
	}
}

// SlowReplicas is SlowCalls but for what is slow: a replica for some time, with all its calls. A neighbour on the machine, a disk that
// is being rebuilt, a bad link.
func SlowReplicas() Model {
	m := SlowCalls()
	m.Name = "1 % of replicas"
	// Ten times Slow: long enough that the slowness can be learned from calls that end, short enough that it has to be learned
	// again and again, and forgotten.
	m.Episode = 10 * time.Second
	return m
}

// StandingReplicas is SlowReplicas in which a slow call keeps the worker: the replica all but stands, and what comes meanwhile waits in
// its queue. Without hedging the waiting grows with the length of the slow time, which flatters what is compared with it; SlowReplicas
// does not.
func StandingReplicas() Model {
	m := SlowReplicas()
	m.Name = "1 % of replicas stand"
	m.Holds = true
	return m
}

// service is the mean time that a worker spends on a call that is not slow.
func (m *Model) service() time.Duration {
	return time.Duration(float64(m.Median) * math.Exp(m.Sigma*m.Sigma/2))
}

// between is the mean time between two queries to shards of so many replicas.
func (m *Model) between(replicas int) time.Duration {
	return time.Duration(float64(m.service()) / (m.Utilisation * float64(m.Workers*replicas)))
}

// drawer draws the times of one replica. It is not safe for concurrent use. Each replica has its own, from a seed and its own
// number, so that what one replica draws does not depend on the order in which others are called.
type drawer struct {
	m    Model
	r    *rand.Rand    // of calls
	when *rand.Rand    // of slow times, which are the same however many calls are made
	slow bool          // in a slow time; without those, the last call was slow
	till time.Duration // the end of the slow time, or of the time before the next one
}

func newDrawer(m Model, seed, stream uint64) *drawer {
	d := &drawer{m: m, r: rand.New(rand.NewPCG(seed, stream)), when: rand.New(rand.NewPCG(seed, stream+slowTimes))}
	if m.Episode > 0 {
		d.slow = d.when.Float64() < m.Share
		d.till = d.length()
	}
	return d
}

// length draws the length of the present state.
func (d *drawer) length() time.Duration {
	mean := float64(d.m.Episode)
	if !d.slow {
		mean *= (1 - d.m.Share) / d.m.Share
	}
	return time.Duration(d.when.ExpFloat64() * mean)
}

// call draws a call that begins at a time, counted from the start of the simulation and never before that of an earlier one:
// how long its service takes and what slowness adds.
func (d *drawer) call(at time.Duration) (service, slow time.Duration) {
	service = time.Duration(float64(d.m.Median) * math.Exp(d.m.Sigma*d.r.NormFloat64()))
	if d.m.Episode == 0 {
		d.slow = d.r.Float64() < d.m.Share
	} else {
		for d.till <= at {
			d.slow = !d.slow
			d.till += d.length()
		}
	}
	if d.slow {
		slow = d.m.Slow
	}
	return service, slow
}
