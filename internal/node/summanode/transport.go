package summanode

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/tap"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/summa"
)

// Protocol is the name of the services in "listening …".
const Protocol front.Protocol = "summa"

// Limits bound what the callers of the services may take. A zero field means its default.
type Limits struct {
	Query summa.Limits
	// Searches are admitted at once; one more is refused. An eighth of the processors, from 1 to 8.
	Searches int
	// SearchDecode and IndexDecode are the longest messages in bytes that the two services take, SearchEncode and IndexEncode the longest
	// that they send: 4, 256, 256 and 64 MiB.
	SearchDecode, SearchEncode, IndexDecode, IndexEncode int
	// Conns is the number of connections: 1,024; Calls that of calls under way: 1,024.
	Conns, Calls int
	// Stall is the longest wait for the next part of a message: 1 min. Wait is that of a reply for room beside others: 5 s.
	Stall, Wait time.Duration
	// Documents bound one document.
	Documents jsondoc.Limits
}

// Messages of one call.
const (
	mib = 1 << 20
	// mutations is how many deletions and upserts run at once.
	mutations = 4
	// maxOther is the longest message of the services of health and reflection.
	maxOther = 64 << 10
)

// WithDefaults returns the limits with every zero replaced. cpus is the number of processors.
func (l Limits) WithDefaults(cpus int) Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	l.Query = l.Query.WithDefaults()
	set(&l.Searches, min(max(cpus/8, 1), 8))
	set(&l.SearchDecode, 4*mib)
	set(&l.SearchEncode, 256*mib)
	set(&l.IndexDecode, 256*mib)
	set(&l.IndexEncode, 64*mib)
	set(&l.Conns, 1024)
	set(&l.Calls, 1024)
	if l.Stall <= 0 {
		l.Stall = time.Minute
	}
	if l.Wait <= 0 {
		l.Wait = 5 * time.Second
	}
	return l
}

// Config says what is served and within what.
type Config struct {
	Host     Host
	Searcher Searcher // nil: searches are UNIMPLEMENTED
	Limits   Limits   // with defaults
	Log      *slog.Logger
	Metrics  *obs.Metrics
}

// Server answers the calls of the services.
type Server struct {
	cfg       Config
	searches  *admit.Gate
	mutations *admit.Gate
	calls     *admit.Gate
	replies   *outgoing
	metrics   *obs.Summa
	keys      keyMaker
	failures  obs.LineLimit
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	var methods []string
	for _, d := range serviceDescs() {
		for _, m := range d.Streams {
			methods = append(methods, m.StreamName)
		}
	}
	s := &Server{
		cfg: cfg, metrics: cfg.Metrics.Summa(methods),
		searches:  admit.New("summa_searches", int64(cfg.Limits.Searches), 0, 0),
		mutations: admit.New("summa_mutations", mutations, 0, 0),
		calls:     admit.New("summa_calls", int64(cfg.Limits.Calls), 0, 0),
		replies:   newOutgoing(max(leastReplies, replyRoom*int64(max(cfg.Limits.SearchEncode, cfg.Limits.IndexEncode)))),
	}
	s.metrics.WatchMemory(cfg.Host.Samples)
	return s
}

// Binding is for front.Server.Listen, once.
func (s *Server) Binding(addr string) front.Binding {
	return front.Binding{Protocol: Protocol, Addr: addr, Server: s.listening}
}

// Replies that are not read yet have room for replyRoom of the longest, and for leastReplies.
const (
	replyRoom    = 2
	leastReplies = 64 << 20
)

// The services, by their full names.
const (
	searchService = "summa.SearchService"
	indexService  = "summa.IndexService"
)

// helloHTTP2 is the least that a client sends before the server takes its calls: the preface and the header of its settings.
const helloHTTP2 = 24 + 9

func (s *Server) listening(lis net.Listener) *front.Listening {
	draining, drain := context.WithCancel(context.Background())
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec(s.replies)),
		experimental.BufferPool(s.replies),
		grpc.Creds(newHandshake()),
		grpc.InTapHandle(guardCall),
		grpc.ChainStreamInterceptor(endless(draining)),
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxOther),
		grpc.MaxSendMsgSize(max(s.cfg.Limits.SearchEncode, s.cfg.Limits.IndexEncode)),
		grpc.MaxConcurrentStreams(256),
		grpc.InitialWindowSize(2*mib),
		grpc.InitialConnWindowSize(4*mib),
		grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	for _, d := range serviceDescs() {
		g.RegisterService(d, s)
	}
	h := health.NewServer()
	healthpb.RegisterHealthServer(g, h)
	reflection.Register(g)
	tell := func(st healthpb.HealthCheckResponse_ServingStatus) {
		for _, name := range []string{"", searchService, indexService} {
			h.SetServingStatus(name, st)
		}
	}
	tell(healthpb.HealthCheckResponse_NOT_SERVING)
	conns := front.NewConns(lis, s.cfg.Limits.Conns, helloHTTP2, s.cfg.Log)
	s.metrics.Watch(func() float64 { open, _ := conns.Count(); return float64(open) }, func() float64 { return float64(s.replies.held.Load()) })
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
	}
}

// guard can end a call from outside, with everything in it that waits: gRPC has no time limit for a single message.
type guard struct{ cancel context.CancelCauseFunc }

type guardKey struct{}

// guardCall puts a guard around each call before gRPC makes it.
func guardCall(ctx context.Context, _ *tap.Info) (context.Context, error) {
	g := &guard{}
	ctx = context.WithValue(ctx, guardKey{}, g)
	ctx, g.cancel = context.WithCancelCause(ctx)
	return ctx, nil
}

var errDraining = errors.New("the server drains")

// endless ends the streams that end when their caller wants, those of health and reflection, when the server drains.
func endless(draining context.Context) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		g, ok := ss.Context().Value(guardKey{}).(*guard)
		if ok && !strings.HasPrefix(info.FullMethod, "/summa.") {
			unhook := context.AfterFunc(draining, func() { g.cancel(errDraining) })
			defer unhook()
		}
		return handler(srv, ss)
	}
}

// serviceDescs are those of the generated code with every method as a stream, because gRPC reads the message of a unary method before its
// handler is called, whatever its length. On the wire there is no difference.
func serviceDescs() []*grpc.ServiceDesc {
	return []*grpc.ServiceDesc{
		{
			ServiceName: searchService, HandlerType: (*any)(nil), Metadata: summapb.SearchService_ServiceDesc.Metadata,
			Streams: []grpc.StreamDesc{
				unary(searchService, "Search", (*Server).search),
				unary(searchService, "GetDocument", (*Server).getDocument),
				unary(searchService, "GetIndexInfo", (*Server).getIndexInfo),
				unary(searchService, "GetTextStats", (*Server).getTextStats),
			},
		},
		{
			ServiceName: indexService, HandlerType: (*any)(nil), Metadata: summapb.IndexService_ServiceDesc.Metadata,
			Streams: []grpc.StreamDesc{
				unary(indexService, "CreateIndex", (*Server).createIndex),
				unary(indexService, "BatchIndexDocuments", (*Server).batchIndexDocuments),
				unary(indexService, "DeleteDocuments", (*Server).deleteDocuments),
				unary(indexService, "UpsertDocuments", (*Server).upsertDocuments),
				unary(indexService, "Commit", (*Server).commit),
				unary(indexService, "ForceMerge", (*Server).forceMerge),
				unary(indexService, "Reorder", (*Server).reorder),
				unary(indexService, "DeleteIndex", (*Server).deleteIndex),
				unary(indexService, "ListIndexes", (*Server).listIndexes),
				unary(indexService, "RetrainVectorIndex", (*Server).retrainVectorIndex),
				unary(indexService, "AlterVectorIndex", (*Server).alterVectorIndex),
				{StreamName: "IndexDocuments", ClientStreams: true, Handler: handleIndexDocuments},
			},
		},
	}
}
