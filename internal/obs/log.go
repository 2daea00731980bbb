// Package obs is how a weft process is seen from outside: structured logs, metrics and request ids.
//
// Metrics belong to a value, not to the process: several nodes in one process each have their own registry. Everything here is
// safe for concurrent use. Label values come only from sets that the program knows (routes, causes, indexes that exist), never
// from what a caller sent, so the number of series is bounded.
package obs

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// LogFormat is the shape of log lines.
type LogFormat string

// Log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// NewLogger returns a logger that writes lines of the given format, at level and above, to w. An empty format means text.
func NewLogger(w io.Writer, format LogFormat, level slog.Level) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case LogText, "":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case LogJSON:
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("log format %q: known are %s and %s", format, LogText, LogJSON)
}

// ParseLevel reads debug, info, warn or error, in any case.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q: known are debug, info, warn and error", s)
}

// Discard returns a logger that writes nothing.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
