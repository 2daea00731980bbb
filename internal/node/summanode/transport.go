package summanode

import (
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/front/grpcfront"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/wire/grpcconn"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
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
	// Stall is the longest wait for the next part of a message, and for a caller to take some of a reply: 1 min. Wait is that of a reply for room beside others: 5 s.
	Stall, Wait time.Duration
	// Documents bound one document.
	Documents jsondoc.Limits
}

// Messages of one call.
const (
	mib = 1 << 20
	// mutations is how many deletions and upserts run at once.
	mutations = 4
	// documents is how many documents are read at once for GetDocument.
	documents = 8
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
	documents *admit.Gate // those being read for GetDocument
	calls     *admit.Gate
	replies   *grpcmsg.Outgoing
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
		documents: admit.New("summa_documents", documents, cfg.Limits.Calls, cfg.Limits.Wait),
		calls:     admit.New("summa_calls", int64(cfg.Limits.Calls), 0, 0),
		replies:   grpcmsg.NewOutgoing(max(leastReplies, replyRoom*int64(max(cfg.Limits.SearchEncode, cfg.Limits.IndexEncode)))),
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

func (s *Server) listening(lis net.Listener) *front.Listening {
	listening, conns := grpcfront.Listen(lis, grpcfront.Config{
		Services: []string{searchService, indexService}, New: s.grpcServer, Conns: s.cfg.Limits.Conns, Log: s.cfg.Log,
	})
	s.metrics.Watch(func() float64 { open, _ := conns.Count(); return float64(open) }, func() float64 { return float64(s.replies.Held()) })
	return listening
}

func (s *Server) grpcServer(more ...grpc.ServerOption) (*grpc.Server, *health.Server) {
	g := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(encoding.GetCodecV2(protocodec.Name)),
		grpc.Creds(grpcmsg.Credentials(insecure.NewCredentials(), grpcconn.Options{Stall: s.cfg.Limits.Stall, Replies: true, Cut: s.metrics.Cut})),
		grpc.InTapHandle(grpcconn.Tap),
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxOther),
		grpc.MaxSendMsgSize(max(s.cfg.Limits.SearchEncode, s.cfg.Limits.IndexEncode)),
		grpc.MaxConcurrentStreams(256),
		grpc.InitialWindowSize(2 * mib),
		grpc.InitialConnWindowSize(4 * mib),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}, more...)...)
	for _, d := range serviceDescs() {
		g.RegisterService(d, s)
	}
	h := health.NewServer()
	healthpb.RegisterHealthServer(g, h)
	reflection.Register(g)
	return g, h
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
