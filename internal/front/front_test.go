package front

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/obs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer returns a server that has what the config lacks.
func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	cfg.Metrics = obs.NewMetrics("test")
	l := &cfg.Limits
	for _, v := range []*time.Duration{&l.QueueWait, &l.BodyStall, &l.ReplyTime, &l.IdleTime} {
		if *v == 0 {
			*v = time.Minute
		}
	}
	for _, v := range []*int{&l.URLBytes, &l.HeaderBytes, &l.RequestQueue} {
		if *v == 0 {
			*v = 1 << 10
		}
	}
	for _, v := range []*int64{&l.RequestBytes, &l.ReplyRoom} {
		if *v == 0 {
			*v = 16 << 20
		}
	}
	return New(cfg)
}
