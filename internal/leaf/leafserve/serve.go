// Package leafserve serves a leaf over the two shard protocols, shard gRPC and framed JSON, on listeners that a front.Server keeps beside
// its own: a node does so with the shards that it holds, a coordinator with the cluster that it stands for.
package leafserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	shardv1 "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/front/grpcfront"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/wire/frame"
)

// The protocols, by their names in "listening …".
const (
	GRPC  front.Protocol = "grpc"
	Shard front.Protocol = "shard" // framed JSON
)

// Limits bound what the peers may take.
type Limits struct {
	Conns         int           // connections of framed JSON, and again of shard gRPC
	Calls         int           // calls of shard gRPC under way; of framed JSON there is one on each connection
	RequestBytes  int64         // memory for the messages of shard gRPC; a half of it for frames that are being received
	QueueWait     time.Duration // longest wait for that of shard gRPC
	DocumentBytes int64         // one document, as JSON
	FrameBytes    int64         // one frame of framed JSON
	SearchTimeout time.Duration // longest timeout that a request of framed JSON may have
	BodyStall     time.Duration // longest wait of shard gRPC for a peer to take or send the next message
	ReplyTime     time.Duration // longest time to take a reply of framed JSON off the socket
}

// Config says what is served and within what. All of it has to be set.
type Config struct {
	Leaf leaf.Leaf
	// Front has the memory that frames and their replies are charged to, and says what the refusals of it are.
	Front   *front.Server
	Log     *slog.Logger
	Metrics *obs.Metrics
	Limits  Limits
}

// Servers makes the servers of the shard protocols. GRPC and Framed are for front.Server.Listen, once each.
type Servers struct{ cfg Config }

// New returns servers of which none listens yet.
func New(cfg Config) *Servers { return &Servers{cfg} }

// GRPC is the binding of shard gRPC. Its health service tells what front.Server.Ready and Shutdown do.
func (s *Servers) GRPC(addr string) front.Binding {
	return front.Binding{Protocol: GRPC, Addr: addr, Server: s.grpcServer}
}

// Framed is the binding of framed JSON.
func (s *Servers) Framed(addr string) front.Binding {
	return front.Binding{Protocol: Shard, Addr: addr, Server: s.frameServer}
}

func (s *Servers) grpcServer(lis net.Listener) *front.Listening {
	l, log := s.cfg.Limits, s.cfg.Log
	srv := rpc.NewServer(s.cfg.Leaf, rpc.ServerOptions{
		MaxMessage: int(l.DocumentBytes), Memory: l.RequestBytes, MemoryWait: l.QueueWait, Calls: l.Calls,
		StallTime: l.BodyStall, Reflection: true,
		Failed: func(call string, err error) { log.Error("shard gRPC call failed", "call", call, "error", err) },
	})
	listening, conns := grpcfront.Listen(lis, grpcfront.Config{
		Services: []string{shardv1.Shard_ServiceDesc.ServiceName}, New: srv.GRPC, Conns: l.Conns, Log: log,
	})
	m := s.cfg.Metrics
	m.GaugeFunc("weft_shard_grpc_calls", "Calls of shard gRPC that are under way.", func() float64 { return float64(srv.Counters().Running) })
	m.CounterFunc("weft_shard_grpc_refused_total", "Calls of shard gRPC that were refused for want of room.", func() float64 { return float64(srv.Counters().Refused) })
	m.CounterFunc("weft_shard_grpc_stalled_total", "Calls of shard gRPC that were cut off for a peer that took or sent nothing.", func() float64 { return float64(srv.Counters().Stalled) })
	m.GaugeFunc("weft_shard_grpc_connections", "Connections of shard gRPC.", func() float64 {
		open, _ := conns.Count()
		return float64(open)
	})
	return listening
}

func (s *Servers) frameServer(lis net.Listener) *front.Listening {
	l, f, log, m := s.cfg.Limits, s.cfg.Front, s.cfg.Log, s.cfg.Metrics
	charge := func(ctx context.Context, gate *admit.Gate, bytes int64) (func(), error) {
		place, err := gate.TryEnter(bytes)
		if err != nil {
			prob := f.Problem(ctx, err)
			f.CountFailure(prob)
			return nil, prob
		}
		return place.Release, nil
	}
	admitted := func(ctx context.Context, bytes int) (func(), error) { return charge(ctx, f.Memory(), int64(bytes)) }
	// The room of the replies over HTTP is one for all. There, a reply that finds none keeps the place of its search; here it has been
	// given back, and the reply is refused. One that is longer than all the room has it to itself.
	sent := func(ctx context.Context, bytes int) (func(), error) {
		return charge(ctx, f.Replies(), min(int64(bytes), f.Replies().Limit()))
	}
	handler := framed.NewHandler(s.cfg.Leaf, framed.HandlerOptions{
		MaxTimeout: l.SearchTimeout, MaxReply: int(l.FrameBytes), MaxRequest: int(min(framed.MaxRequest, l.RequestBytes/2/framed.ParseFactor)),
		Admit: admitted, Send: sent,
	})
	srv := &frame.Server{
		Handler: handler.Handle,
		Refuse: func(dst []byte, r frame.Refusal) []byte {
			if errors.Is(r.Err, frame.ErrReceiving) { // the other refusals of memory are counted where it is asked for
				f.CountFailure(api.NewProblem(api.RequestMemoryFull, r.Err.Error()))
			}
			return framed.Refuse(dst, r)
		},
		Admit: admitted,
		Panic: func(value any, stack []byte) {
			m.Panics.Inc()
			log.Error("panic in request", "route", "frame", "panic", fmt.Sprint(value), "stack", string(stack))
		},
		Limits: frame.Limits{
			MaxConns: l.Conns, MaxFrame: int(l.FrameBytes), MaxReply: int(l.FrameBytes),
			Receiving: int(l.RequestBytes / frameShare),
			First:     frameFirst, Idle: frameIdle, ReplyTime: l.ReplyTime,
		},
	}
	m.GaugeFunc("weft_shard_frame_connections", "Connections of framed JSON.", func() float64 { return float64(srv.Stats().Open) })
	for _, c := range []struct {
		name, help string
		read       func(s frame.ServerStats) uint64
	}{
		{"connections_evicted", "Connections of framed JSON without a request that were closed for another one.", func(s frame.ServerStats) uint64 { return s.Evicted }},
		{"connections_refused", "Connections of framed JSON beyond those that are allowed.", func(s frame.ServerStats) uint64 { return s.Refused }},
		{"connections_cut", "Connections cut off for a peer that was slow in the middle of a frame.", func(s frame.ServerStats) uint64 { return s.Cut }},
		{"frames_refused", "Frames over the limit or without memory for them.", func(s frame.ServerStats) uint64 { return s.TooLong + s.NoMemory }},
	} {
		m.CounterFunc("weft_shard_frame_"+c.name+"_total", c.help, func() float64 { return float64(c.read(srv.Stats())) })
	}
	return &front.Listening{
		Listener: lis, Serve: func() error { return srv.Serve(lis) }, Closed: frame.ErrServerClosed, Shutdown: srv.Shutdown, Close: srv.Close,
	}
}

// frameShare is the part of Limits.RequestBytes that frames may have while they are being received: a half, so that slow senders leave
// the rest to those whose requests are there.
const frameShare = 2

// frameIdle is how long a connection of framed JSON is kept between requests: longer than clients keep theirs, so that it is a client
// that ends one, and never in the middle of a request.
const frameIdle = 10 * time.Minute

// frameFirst is how long a connection may be silent before its first request. Clients connect when they have one to send.
const frameFirst = 30 * time.Second
