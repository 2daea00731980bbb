package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	shardv1 "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/wire/frame"
)

// Protocol is what a listener of a node speaks.
type Protocol string

// The protocols, by their names in "listening …".
const (
	HTTP  Protocol = "http"
	GRPC  Protocol = "grpc"
	Shard Protocol = "shard" // framed JSON
)

// protocols is the order in which listeners are bound and told.
var protocols = [...]Protocol{HTTP, GRPC, Shard}

// listening is one listener and what serves it.
type listening struct {
	protocol Protocol
	lis      net.Listener
	serve    func() error // returns when the server ends; nil or an error of closed marks an end in good order
	closed   error
	// shutdown stops accepting and waits for calls until ctx ends; close cuts off what is left. Either may be called after the other.
	shutdown func(ctx context.Context) error
	close    func() error
}

// servers are the listeners of a node.
type servers struct {
	list   []*listening
	health *health.Server // of gRPC; nil without it
	leaf   leaf.Leaf      // what the shard protocols serve; nil without them

	end  sync.Once
	done chan struct{} // closed when a server has ended
	err  error         // why it ended by itself; set before done is closed
}

// listen binds every address that the config has and makes its server. Nothing is accepted yet. After an error nothing is bound.
func (n *Node) listen(ctx context.Context) (err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, s := range n.servers.list {
			err = errors.Join(err, s.lis.Close())
		}
		n.servers.list = nil
	}()
	for _, p := range protocols {
		addr := map[Protocol]string{HTTP: n.cfg.HTTPAddr, GRPC: n.cfg.GRPCAddr, Shard: n.cfg.ShardAddr}[p]
		if addr == "" {
			continue
		}
		var lc net.ListenConfig
		lis, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("listen for %s on %s: %w", p, addr, err)
		}
		var s *listening
		switch p {
		case HTTP:
			s = n.httpServer(lis)
		case GRPC:
			s = n.grpcServer(lis)
		case Shard:
			s = n.frameServer(lis)
		}
		s.protocol = p
		n.servers.list = append(n.servers.list, s)
	}
	return nil
}

// serveAll accepts calls on every listener.
func (n *Node) serveAll() {
	for _, s := range n.servers.list {
		n.wg.Go(func() {
			err := s.serve()
			n.servers.end.Do(func() {
				if err != nil && !errors.Is(err, s.closed) {
					n.servers.err = fmt.Errorf("serve %s on %s: %w", s.protocol, s.lis.Addr(), err)
				}
				close(n.servers.done)
			})
		})
	}
}

func (n *Node) httpServer(lis net.Listener) *listening {
	srv := &http.Server{
		Handler: n.handler,
		// The handler refuses what is over the limits, in words; this is where reading ends.
		MaxHeaderBytes: 2 * (n.cfg.Limits.HeaderBytes + n.cfg.Limits.URLBytes),
		// Bodies have a deadline that moves while bytes come and replies get theirs when they are ready, so that a long bulk
		// load is not cut and a silent peer is.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       n.cfg.Limits.IdleTime,
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	conns := &connListener{Listener: lis, hello: 1, log: n.log}
	return &listening{
		lis: conns, serve: func() error { return srv.Serve(conns) }, closed: http.ErrServerClosed,
		shutdown: func(ctx context.Context) error {
			conns.endSilent()
			return srv.Shutdown(ctx)
		},
		close: srv.Close,
	}
}

// servedLeaf is what the shard protocols serve.
func (n *Node) servedLeaf() leaf.Leaf {
	if n.servers.leaf == nil {
		n.servers.leaf = n.Leaf()
	}
	return n.servers.leaf
}

// grpcServer serves shard gRPC. Its health service tells what /readyz does.
func (n *Node) grpcServer(lis net.Listener) *listening {
	l := n.cfg.Limits
	srv := rpc.NewServer(n.servedLeaf(), rpc.ServerOptions{
		MaxMessage: int(l.DocumentBytes), Memory: l.RequestBytes, MemoryWait: l.QueueWait, Calls: l.ShardCalls,
		StallTime: l.BulkStall, Reflection: true,
		Failed: func(call string, err error) { n.log.Error("shard gRPC call failed", "call", call, "error", err) },
	})
	draining, drain := context.WithCancel(context.Background())
	g, h := srv.GRPC(grpc.ChainStreamInterceptor(endless(draining)))
	for _, name := range []string{"", shardv1.Shard_ServiceDesc.ServiceName} {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	n.servers.health = h
	m := n.cfg.Metrics
	m.GaugeFunc("weft_shard_grpc_calls", "Calls of shard gRPC that are under way.", func() float64 { return float64(srv.Counters().Running) })
	m.CounterFunc("weft_shard_grpc_refused_total", "Calls of shard gRPC that were refused for want of room.", func() float64 { return float64(srv.Counters().Refused) })
	m.CounterFunc("weft_shard_grpc_stalled_total", "Calls of shard gRPC that were cut off for a peer that took or sent nothing.", func() float64 { return float64(srv.Counters().Stalled) })
	conns := &connListener{Listener: lis, room: make(chan struct{}, l.ShardConns), hello: helloHTTP2, log: n.log}
	m.GaugeFunc("weft_shard_grpc_connections", "Connections of shard gRPC.", func() float64 { return float64(len(conns.room)) })
	// Stop waits for connections on which the handshake has not ended, for as long as one may take. All connections are its own.
	cut := func() {
		conns.endAll()
		g.Stop()
	}
	return &listening{
		lis: conns, serve: func() error { return g.Serve(conns) }, closed: grpc.ErrServerStopped,
		shutdown: func(ctx context.Context) error {
			drain()
			conns.endSilent()
			stop := context.AfterFunc(ctx, cut)
			g.GracefulStop()
			if stop() {
				return nil
			}
			return context.Cause(ctx)
		},
		close: func() error {
			drain()
			cut()
			return nil
		},
	}
}

// helloHTTP2 is the least that a client of HTTP/2 sends before the server takes its calls: the preface and the header of its settings (RFC
// 9113, sections 3.4 and 6.5).
const helloHTTP2 = 24 + 9

// frameServer serves framed JSON.
func (n *Node) frameServer(lis net.Listener) *listening {
	l := n.cfg.Limits
	charge := func(ctx context.Context, gate *admit.Gate, bytes int64) (func(), error) {
		place, err := gate.TryEnter(bytes)
		if err != nil {
			prob := n.problem(ctx, err)
			n.countFailure(prob)
			return nil, prob
		}
		return place.Release, nil
	}
	admitted := func(ctx context.Context, bytes int) (func(), error) { return charge(ctx, n.memory, int64(bytes)) }
	// The room of the replies over HTTP is one for all. There, a reply that finds none keeps the place of its search; here it has been
	// given back, and the reply is refused. One that is longer than all the room has it to itself.
	sent := func(ctx context.Context, bytes int) (func(), error) {
		return charge(ctx, n.replies, min(int64(bytes), n.replies.Limit()))
	}
	handler := framed.NewHandler(n.servedLeaf(), framed.HandlerOptions{
		MaxTimeout: l.SearchTimeout, MaxReply: int(l.FrameBytes), MaxRequest: int(min(framed.MaxRequest, l.RequestBytes/2/framed.ParseFactor)),
		Admit: admitted, Send: sent,
	})
	srv := &frame.Server{
		Handler: handler.Handle,
		Refuse: func(dst []byte, r frame.Refusal) []byte {
			if errors.Is(r.Err, frame.ErrReceiving) { // the other refusals of memory are counted where it is asked for
				n.countFailure(api.NewProblem(api.RequestMemoryFull, r.Err.Error()))
			}
			return framed.Refuse(dst, r)
		},
		Admit: admitted,
		Panic: func(value any, stack []byte) {
			n.cfg.Metrics.Panics.Inc()
			n.log.Error("panic in request", "route", "frame", "panic", fmt.Sprint(value), "stack", string(stack))
		},
		Limits: frame.Limits{
			MaxConns: l.ShardConns, MaxFrame: int(l.FrameBytes), MaxReply: int(l.FrameBytes),
			Receiving: int(l.RequestBytes / frameShare),
			First:     frameFirst, Idle: frameIdle, ReplyTime: l.ReplyTime,
		},
	}
	m := n.cfg.Metrics
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
	return &listening{lis: lis, serve: func() error { return srv.Serve(lis) }, closed: frame.ErrServerClosed, shutdown: srv.Shutdown, close: srv.Close}
}

// frameShare is the part of Limits.RequestBytes that frames may have while they are being received: a half, so that slow senders leave
// the rest to those whose requests are there.
const frameShare = 2

// frameIdle is how long a connection of framed JSON is kept between requests: longer than clients keep theirs, so that it is a client
// that ends one, and never in the middle of a request.
const frameIdle = 10 * time.Minute

// frameFirst is how long a connection may be silent before its first request. Clients connect when they have one to send.
const frameFirst = 30 * time.Second

// endless is for the streams that end when their caller wants: those that watch the health of the server, and those of reflection. It
// ends them when the server drains, which would wait for them to the end of its time.
func endless(draining context.Context) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if strings.HasPrefix(info.FullMethod, "/"+shardv1.Shard_ServiceDesc.ServiceName+"/") {
			return handler(srv, ss)
		}
		ctx, cancel := context.WithCancel(ss.Context())
		defer cancel()
		unhook := context.AfterFunc(draining, cancel)
		defer unhook()
		return handler(srv, &endingStream{ss, ctx})
	}
}

// endingStream is a stream that ends with a context of its own.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *endingStream) Context() context.Context { return s.ctx }

// RecvMsg waits for a message on a goroutine that ends with the stream, which ends when its handler has the error.
func (s *endingStream) RecvMsg(m any) error {
	got := make(chan error, 1)
	go func() { got <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-got:
		return err
	case <-s.ctx.Done():
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}

// ready tells the callers of shard gRPC that the node takes calls.
func (s *servers) ready() {
	if s.health == nil {
		return
	}
	for _, name := range []string{"", shardv1.Shard_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
}

// leaving tells them that it will not for long, for good.
func (s *servers) leaving() {
	if s.health != nil {
		s.health.Shutdown()
	}
}

// shutdown stops accepting calls, and waits for those under way until ctx ends.
func (s *servers) shutdown(ctx context.Context) error {
	errs := make([]error, len(s.list))
	var wg sync.WaitGroup
	for i, srv := range s.list {
		wg.Go(func() { errs[i] = srv.shutdown(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// close cuts off what is left.
func (s *servers) close() error {
	var errs []error
	for _, srv := range s.list {
		if err := srv.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", srv.protocol, err))
		}
	}
	if s.leaf != nil {
		errs = append(errs, s.leaf.Close())
	}
	return errors.Join(errs...)
}

// Listener is where a node listens, and for what.
type Listener struct {
	Protocol Protocol
	Addr     string // host:port
}

// Listeners are those of a node that was started, in the order HTTP, GRPC, Shard.
func (n *Node) Listeners() []Listener {
	out := make([]Listener, len(n.servers.list))
	for i, s := range n.servers.list {
		out[i] = Listener{s.protocol, s.lis.Addr().String()}
	}
	return out
}

// Addr is the address that the node listens on for HTTP, empty if it does not.
func (n *Node) Addr() string {
	for _, s := range n.servers.list {
		if s.protocol == HTTP {
			return s.lis.Addr().String()
		}
	}
	return ""
}

// address names the node in replies: where it listens, or its id.
func (n *Node) address() string {
	for _, s := range n.servers.list {
		return s.lis.Addr().String()
	}
	return n.self.ID
}

// Done is closed when a server has ended, by Close or by a failure that Err tells. It is never closed on a node that does not listen.
func (n *Node) Done() <-chan struct{} { return n.servers.done }

// Err is why a server ended by itself; nil before Done is closed and after Close.
func (n *Node) Err() error {
	select {
	case <-n.servers.done:
		return n.servers.err
	default:
		return nil
	}
}
