// Package grpcfront puts a gRPC server onto a listener that a front.Server keeps, and ends it as the others end.
//
// # Contract
//
// The health of "" and of the services of the server says NOT_SERVING until Ready and from Leaving on. A shutdown takes no connection any
// more, closes those that have not said enough to be in use, ends the streams of health and reflection, and waits for the calls under way;
// when its context ends, or on Close, what is left is cut off.
package grpcfront

import (
	"context"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/wire/grpcconn"
	"github.com/weft-search/weft/internal/wire/grpcserve"
)

// helloHTTP2 is the least that a client of HTTP/2 sends before the server takes its calls: the preface and the header of its settings (RFC
// 9113, sections 3.4 and 6.5).
const helloHTTP2 = 24 + 9

// Config says what is served. All of it has to be set.
type Config struct {
	// Services are the full names of the services that the server is for, beside health and reflection.
	Services []string
	// New makes the server with further options, and its health.
	New   func(more ...grpc.ServerOption) (*grpc.Server, *health.Server)
	Conns int // connections at once
	Log   *slog.Logger
}

// Listen makes the server for a listener. conns counts the connections.
func Listen(lis net.Listener, cfg Config) (l *front.Listening, conns *front.Conns) {
	draining, drain := context.WithCancel(context.Background())
	own := make([]string, len(cfg.Services))
	for i, name := range cfg.Services {
		own[i] = "/" + name + "/"
	}
	g, h := cfg.New(grpc.ChainStreamInterceptor(grpcconn.OtherStreams(draining, own...)))
	tell := telling(h, cfg.Services)
	conns = front.NewConns(lis, cfg.Conns, helloHTTP2, cfg.Log)
	// Stop waits for connections on which the handshake has not ended, for as long as one may take. All connections are its own.
	cut := func() {
		conns.EndAll()
		g.Stop()
	}
	return &front.Listening{
		Listener: conns, Serve: func() error { return g.Serve(conns) }, Closed: grpc.ErrServerStopped,
		Ready:   func() { tell(healthpb.HealthCheckResponse_SERVING) },
		Leaving: h.Shutdown,
		Shutdown: func(ctx context.Context) error {
			drain()
			conns.EndSilent()
			stop := context.AfterFunc(ctx, cut)
			g.GracefulStop()
			if stop() {
				return nil
			}
			return context.Cause(ctx)
		},
		Close: func() error {
			drain()
			cut()
			return nil
		},
	}, conns
}

// telling makes what tells the health of a server, which is not healthy yet.
func telling(h *health.Server, services []string) func(healthpb.HealthCheckResponse_ServingStatus) {
	tell := func(status healthpb.HealthCheckResponse_ServingStatus) {
		h.SetServingStatus("", status)
		for _, name := range services {
			h.SetServingStatus(name, status)
		}
	}
	tell(healthpb.HealthCheckResponse_NOT_SERVING)
	return tell
}

// ListenOwn is Listen for a server that is not one of grpc-go.
func ListenOwn(lis net.Listener, services []string, s *grpcserve.Server, h *health.Server, most int, log *slog.Logger) (l *front.Listening, conns *front.Conns) {
	tell := telling(h, services)
	conns = front.NewConns(lis, most, helloHTTP2, log)
	return &front.Listening{
		Listener: conns, Serve: func() error { return s.Serve(conns) }, Closed: grpcserve.ErrClosed,
		Ready:   func() { tell(healthpb.HealthCheckResponse_SERVING) },
		Leaving: h.Shutdown,
		Shutdown: func(ctx context.Context) error {
			conns.EndSilent()
			if err := s.Drain(ctx); err != nil {
				return err
			}
			s.Close()
			return nil
		},
		Close: func() error {
			conns.EndAll()
			s.Close()
			return nil
		},
	}, conns
}
