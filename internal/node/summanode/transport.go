package summanode

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/front/grpcfront"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/summa"
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
	// Conns is the number of connections: 1,024; Calls that of calls under way: 1,024; Streams that of calls of IndexDocuments, which are
	// counted apart: 1,024; Arriving that of calls of which no message has begun to arrive: 8,192.
	Conns, Calls, Streams, Arriving int
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
	set(&l.Streams, 1024)
	set(&l.Arriving, 8192)
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
	arriving  *admit.Gate
	streams   *admit.Gate
	quiet     quiet       // streams that wait for their callers
	refused   *admit.Gate // bytes of the errors of streams
	memory    *memory
	replies   *grpcmsg.Outgoing
	sources   sync.Pool // *[]byte, of documents that are read for GetDocument
	metrics   *obs.Summa
	draining  context.Context // ends when the server does
	drain     func()
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
		arriving:  admit.New("summa_arriving", int64(cfg.Limits.Arriving), 0, 0),
		streams:   admit.New("summa_streams", int64(cfg.Limits.Streams), cfg.Limits.Streams, cfg.Limits.Wait),
		refused:   admit.New("summa_refused", max(cfg.Host.MemoryLimit()/4, runStep), 0, 0),
		memory:    newMemory(cfg.Host),
		replies:   grpcmsg.NewOutgoing(max(leastReplies, replyRoom*int64(max(cfg.Limits.SearchEncode, cfg.Limits.IndexEncode)))),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.memory.watch(cfg.Metrics)
	s.metrics.WatchMemory(cfg.Host.Samples)
	return s
}

// tcpKeepAlive is that of the contract. Pings of HTTP/2 find a lost client earlier.
const tcpKeepAlive = time.Minute

// Binding is for front.Server.Listen, once.
func (s *Server) Binding(addr string) front.Binding {
	return front.Binding{Protocol: Protocol, Addr: addr, KeepAlive: tcpKeepAlive, Server: s.listening}
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
	// Streams end when the server does: their callers may go on for ever.
	shutdown, end := listening.Shutdown, listening.Close
	listening.Shutdown = func(ctx context.Context) error {
		s.drain()
		return shutdown(ctx)
	}
	listening.Close = func() error {
		s.drain()
		return end()
	}
	s.metrics.Watch(func() float64 { open, _ := conns.Count(); return float64(open) }, func() float64 { return float64(s.replies.Held()) })
	return listening
}

func (s *Server) grpcServer(more ...grpc.ServerOption) (*grpc.Server, *health.Server) {
	own := grpcmsg.ServerOptions(s.cfg.Limits.Stall, max(s.cfg.Limits.SearchEncode, s.cfg.Limits.IndexEncode), s.metrics.Cut)
	g := grpc.NewServer(append(own, more...)...)
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
