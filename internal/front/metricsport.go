package front

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Metrics is the protocol of a listener that serves /metrics and nothing else.
const Metrics Protocol = "metrics"

// maxMetricsConns bounds the connections of those who read metrics.
const maxMetricsConns = 64

// MetricsPort serves the metrics alone, for whoever is not to see the rest. reply is the longest time to take a page, idle that between two.
func MetricsPort(addr string, page http.Handler, reply, idle time.Duration, log *slog.Logger) Binding {
	return Binding{Protocol: Metrics, Addr: addr, Server: func(lis net.Listener) *Listening {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", page)
		srv := &http.Server{
			Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: reply, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		}
		conns := NewConns(lis, maxMetricsConns, 1, log)
		return &Listening{
			Listener: conns, Serve: func() error { return srv.Serve(conns) }, Closed: http.ErrServerClosed,
			Shutdown: func(ctx context.Context) error {
				conns.EndSilent()
				return srv.Shutdown(ctx)
			},
			Close: srv.Close,
		}
	}}
}
