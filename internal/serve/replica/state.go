package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/serve/latency"
)

// state is what is known of a replica. Its times count from the base of the set.
type state struct {
	name     string
	inFlight atomic.Int64
	average  latency.Average

	calls, faults, losses, refusals atomic.Uint64

	busyUntil atomic.Int64
	slowUntil atomic.Int64 // end of the slow start
	probation atomic.Int64 // its end; 0: not on probation. Changed with mu held
	shaky     atomic.Bool  // faultRow or lossRow is not 0: spares a success the lock

	mu       sync.Mutex
	faultRow int           // faults with no answer between
	lossRow  int           // losses with no answer between
	length   time.Duration // of the probation, before it is jittered
	left     int64         // when the last probation was left; 0: never
	probing  bool          // a probe is under way
}

// take begins a probe if one is due at now and none is under way.
func (st *state) take(now int64) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	until := st.probation.Load()
	if until == 0 || until > now || st.probing {
		return false
	}
	st.probing = true
	return true
}

// probeAgain ends a probe that told nothing. The next one has to wait: where callers have little time and the replica hangs, each of
// them would be a probe, and have no time left for another replica.
func (s *Set[Q, R]) probeAgain(st *state, at time.Time) {
	st.busyUntil.Store(s.since(at) + int64(s.o.BusyFor))
	st.mu.Lock()
	st.probing = false
	st.mu.Unlock()
}

// judge counts a call that ended with a verdict on the replica.
func (s *Set[Q, R]) judge(st *state, at time.Time, v Verdict, probe bool) {
	now := s.since(at)
	switch v {
	case Busy:
		st.refusals.Add(1)
		st.busyUntil.Store(now + int64(s.o.BusyFor))
		// It lives, but has not shown that it can answer.
		if probe {
			s.probeAgain(st, at)
		}
	case Faulty:
		st.faults.Add(1)
		st.mu.Lock()
		defer st.mu.Unlock()
		st.faultRow++
		s.failedLocked(st, now, probe, st.faultRow >= s.o.Faults)
	default:
		if !probe && !st.shaky.Load() && st.probation.Load() == 0 {
			return
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		st.faultRow, st.lossRow = 0, 0
		st.shaky.Store(false)
		if probe {
			st.probing = false
		}
		if st.probation.Load() != 0 {
			st.probation.Store(0)
			st.left = now
			st.slowUntil.Store(now + int64(max(s.o.SlowStart, 0)))
		}
	}
}

// overtaken counts a call that another replica answered although it was asked later.
func (s *Set[Q, R]) overtaken(st *state, at time.Time, probe bool) {
	st.losses.Add(1)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.lossRow++
	s.failedLocked(st, s.since(at), probe, s.o.Losses > 0 && st.lossRow >= s.o.Losses)
}

// failedLocked puts a replica on probation if it has failed often enough, or on a longer one if it failed a probe.
func (s *Set[Q, R]) failedLocked(st *state, now int64, probe, enough bool) {
	st.shaky.Store(true)
	if probe {
		st.probing = false
	}
	switch on := st.probation.Load() != 0; {
	case on && probe:
		st.length = min(2*st.length, s.o.MaxProbation)
	case on || !enough:
		// A call that was sent before the probation began, or because there was no one else, does not prolong it.
		return
	case st.left != 0 && now-st.left < int64(max(s.o.SlowStart, 0)):
		st.length = min(2*st.length, s.o.MaxProbation)
	default:
		st.length = s.o.Probation
	}
	jittered := float64(st.length) * (0.8 + 0.4*float64(s.o.Rand()>>11)/(1<<53))
	st.probation.Store(now + int64(jittered))
}
