package front

import (
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
)

// Stopwatch splits the time of a call into stages that add up to it. It is for one goroutine at a time.
type Stopwatch struct {
	Began time.Time    // of the call
	Laps  []api.Timing // stages that have ended, in the order in which they first did

	last   int64 // microseconds since Began at which the last lap ended
	queued int64 // what Waited has counted, in microseconds
}

// Lap ends a stage.
func (s *Stopwatch) Lap(stage string) {
	now := api.Micros(time.Since(s.Began))
	s.Laps = append(s.Laps, api.Timing{Stage: stage, Micros: now - s.last})
	s.last = now
}

// UpTo ends a stage that a call may come back to: the time since the last lap is added to the lap of that name.
func (s *Stopwatch) UpTo(stage string) {
	for i := range s.Laps {
		if s.Laps[i].Stage == stage {
			now := api.Micros(time.Since(s.Began))
			s.Laps[i].Micros += now - s.last
			s.last = now
			return
		}
	}
	s.Lap(stage)
}

// Waited counts time that passed in the stage that is under way as time in bound.StageQueue, which is an earlier stage. Without that
// stage it does nothing.
func (s *Stopwatch) Waited(d time.Duration) {
	for i := range s.Laps {
		if s.Laps[i].Stage == bound.StageQueue {
			s.Laps[i].Micros += api.Micros(d)
			s.last += api.Micros(d)
			s.queued += api.Micros(d)
			return
		}
	}
}

// Last is when the last lap ended, in microseconds since Began.
func (s *Stopwatch) Last() int64 { return s.last }

// Queued is what Waited has counted, in microseconds.
func (s *Stopwatch) Queued() int64 { return s.queued }
