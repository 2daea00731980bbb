package obs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LineLimit bounds the log lines that requests can cause, and counts what was left out. The zero value is ready.
type LineLimit struct {
	mu struct {
		sync.Mutex
		window  time.Time // start of the current second
		lines   int       // allowed in it
		dropped uint64    // refused since the last allowed one
	}
}

// linesPerSecond is what one LineLimit allows.
const linesPerSecond = 10

// Allow tells whether a line may be written now, and how many were left out since the last one.
func (l *LineLimit) Allow() (dropped uint64, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.mu.window) >= time.Second {
		l.mu.window, l.mu.lines = now, 0
	}
	if l.mu.lines >= linesPerSecond {
		l.mu.dropped++
		return 0, false
	}
	l.mu.lines++
	dropped, l.mu.dropped = l.mu.dropped, 0
	return dropped, true
}

// SlowLog writes a line for each search that took at least a threshold, without the query's text or any document: what was
// asked for stays with the caller. It writes at most a few lines a second and counts what it left out.
type SlowLog struct {
	log       *slog.Logger
	threshold time.Duration
	total     Counter
	limit     LineLimit
}

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
	dropped, ok := s.limit.Allow()
	if !ok {
		return
	}
	attrs = append(attrs, slog.Duration("took", took), slog.String("request_id", RequestID(ctx)))
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("dropped_lines", dropped))
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "slow search", attrs...)
}
