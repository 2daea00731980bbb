package front

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
)

func TestWhatOthersAreToBlameForIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newServer(t, Config{Log: slog.New(slog.NewTextHandler(&out, nil))})
		lines := func(level slog.Level) (n int) {
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, "level="+level.String()) && strings.Contains(line, "request failed") {
					n++
				}
			}
			return n
		}
		away := &api.Problem{Code: api.GroupUnavailable, Cause: errors.New("connection refused")}
		for range 100 {
			s.CountFailure(away)
			<-time.After(500 * time.Millisecond)
		}
		if w, e := lines(slog.LevelWarn), lines(slog.LevelError); w != 1 || e != 0 {
			t.Errorf("%d warnings and %d errors in 50 s of one state", w, e)
		}
		// Another code is another state, and a fault of this process is an error each time.
		s.CountFailure(&api.Problem{Code: api.NotReady, Cause: errors.New("the map cannot be read")})
		for range 3 {
			s.CountFailure(&api.Problem{Code: api.Internal, Cause: errors.New("a defect")})
		}
		if w, e := lines(slog.LevelWarn), lines(slog.LevelError); w != 2 || e != 3 {
			t.Errorf("%d warnings and %d errors", w, e)
		}
		<-time.After(10 * time.Second)
		s.CountFailure(away)
		if w := lines(slog.LevelWarn); w != 3 || !strings.Contains(out.String(), "dropped_lines=99") {
			t.Errorf("%d warnings after a minute:\n%s", w, out.String())
		}
	})
}
