package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/front"
)

// Metrics is the protocol of a listener that serves /metrics and nothing else.
const Metrics front.Protocol = "metrics"

// metricsServer serves the metrics alone, for whoever is not to see the rest.
func (n *Node) metricsServer(lis net.Listener) *front.Listening {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.cfg.Metrics.Handler())
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: n.cfg.Limits.ReplyTime, IdleTimeout: n.cfg.Limits.IdleTime, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	conns := front.NewConns(lis, maxMetricsConns, 1, n.log)
	return &front.Listening{
		Listener: conns, Serve: func() error { return srv.Serve(conns) }, Closed: http.ErrServerClosed,
		Shutdown: func(ctx context.Context) error {
			conns.EndSilent()
			return srv.Shutdown(ctx)
		},
		Close: srv.Close,
	}
}

// maxMetricsConns bounds the connections of those who read metrics.
const maxMetricsConns = 64
