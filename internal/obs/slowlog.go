package obs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// SlowLog writes a line for each search that took at least a threshold, without the query's text or any document: what was
// asked for stays with the caller. It writes at most a few lines a second and counts what it left out.
type SlowLog struct {
	log       *slog.Logger
	threshold time.Duration
	total     Counter

	mu struct {
		sync.Mutex
		window  time.Time // start of the current second
		lines   int       // written in it
		dropped uint64    // left out since the last line
	}
}

// slowLinesPerSecond bounds the log when everything is slow.
const slowLinesPerSecond = 10

// NewSlowLog returns a log of searches slower than threshold; a threshold of 0 turns it off.
func NewSlowLog(log *slog.Logger, threshold time.Duration, total Counter) *SlowLog {
	return &SlowLog{log: log, threshold: threshold, total: total}
}

// Record writes a line if took reaches the threshold.
func (s *SlowLog) Record(ctx context.Context, took time.Duration, attrs ...slog.Attr) {
	if s.threshold <= 0 || took < s.threshold {
		return
	}
	s.total.Inc()
	now := time.Now()
	s.mu.Lock()
	if now.Sub(s.mu.window) >= time.Second {
		s.mu.window, s.mu.lines = now, 0
	}
	if s.mu.lines >= slowLinesPerSecond {
		s.mu.dropped++
		s.mu.Unlock()
		return
	}
	s.mu.lines++
	dropped := s.mu.dropped
	s.mu.dropped = 0
	s.mu.Unlock()

	attrs = append(attrs, slog.Duration("took", took), slog.String("request_id", RequestID(ctx)))
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("dropped_lines", dropped))
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "slow search", attrs...)
}
