package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/wire/grpcconn"
)

// maxOther is the size of the largest message that services other than Shard read, which are health and reflection.
const maxOther = 64 << 10

// messageOverhead is what a message may have around the document or the lines that it carries.
const messageOverhead = 64 << 10

// ServerOptions bound what a Server takes. A zero field means its default.
type ServerOptions struct {
	// MaxMessage is the largest document, or piece of a bulk load, in bytes: 64 MiB. A message may have 64 KiB more.
	MaxMessage int
	// MaxRequest is the largest message in bytes of calls that carry no document: 16 MiB, room for 10,000 ids or a query at its limits.
	MaxRequest int
	// MaxReply is the largest reply, or message of a stream of replies, in bytes: 64 MiB. A larger one becomes a problem.
	MaxReply int
	// Memory bounds, in bytes, the messages of all calls from their arrival to the end of the call, and those of replies until they are
	// written out: 1 GiB. It is at least MaxMessage. The first 16 KiB of what a message takes are not counted, and the first 256 KiB of a
	// bulk load. There are at most as many bulk loads as take half of it with their largest messages.
	Memory int64
	// MemoryWait is how long a call waits for room in Memory before it is refused: 5 s. A reply that is no list does not wait, because the
	// leaf has made it already, beside which its message is to stand; one that tells of a write is sent in any case.
	MemoryWait time.Duration
	// Calls is the number of calls that are worked on at once: 1,024; one more is refused. As many again may wait for their callers, to
	// send a message or to take one; of more, those of the caller who keeps most of them waiting are ended.
	Calls int
	// ReceiveTime is how long the one message of a call may take to arrive: 10 s.
	ReceiveTime time.Duration
	// StallTime is how long a call waits for its other side to take a message or to send one of a bulk load: 1 min. A body that has been
	// waited for that long has to come with 1 KiB a second from then on. A reply that is still there after it once more, or a connection
	// that takes no byte for so long, ends the connection.
	StallTime time.Duration
	// Query bounds the trees of requests; zero: the defaults of package query.
	Query query.Limits

	Streams      uint32 // calls at once on one connection: 256
	StreamWindow int32  // bytes of a call that are taken in before somebody reads them: 64 KiB
	ConnWindow   int32  // bytes on their way on one connection: 4 MiB
	HeaderBytes  uint32 // request headers of a call: 16 KiB
	// ConnectTime is how long a new connection may take for its handshakes: 10 s.
	ConnectTime time.Duration
	// PingTime is how long a connection is silent before the server asks whether the client lives, which has PingTimeout to answer: 30 s
	// and 10 s.
	PingTime, PingTimeout time.Duration
	// MinPing is the shortest time between two such questions of a client: 5 s. A client that asks more often is cut off.
	MinPing time.Duration
	// MaxAge ends a connection that is older, once its calls are done or MaxAgeGrace is over, so that clients spread anew; 0: never.
	MaxAge, MaxAgeGrace time.Duration

	// TLS secures the connections; nil: none.
	TLS *tls.Config
	// Reflection lets callers ask for the description of the service.
	Reflection bool
	// Failed, where not nil, is told of calls that ended with an internal error or a panic. It may be called at once from many calls.
	Failed func(call string, err error)
}

func orDefault[T comparable](v *T, deft T) {
	var zero T
	if *v == zero {
		*v = deft
	}
}

func (o ServerOptions) withDefaults() ServerOptions {
	orDefault(&o.MaxMessage, 64<<20)
	orDefault(&o.MaxRequest, 16<<20)
	orDefault(&o.MaxReply, 64<<20)
	orDefault(&o.Memory, 1<<30)
	o.Memory = max(o.Memory, int64(o.largest()))
	orDefault(&o.MemoryWait, 5*time.Second)
	orDefault(&o.Calls, 1024)
	orDefault(&o.ReceiveTime, 10*time.Second)
	orDefault(&o.StallTime, time.Minute)
	orDefault(&o.Streams, 256)
	orDefault(&o.StreamWindow, 64<<10)
	orDefault(&o.ConnWindow, 4<<20)
	orDefault(&o.HeaderBytes, 16<<10)
	orDefault(&o.ConnectTime, 10*time.Second)
	orDefault(&o.PingTime, 30*time.Second)
	orDefault(&o.PingTimeout, 10*time.Second)
	orDefault(&o.MinPing, 5*time.Second)
	return o
}

// largest is the largest message of any call.
func (o *ServerOptions) largest() int { return max(o.MaxMessage, o.MaxRequest) + messageOverhead }

// Counters count what happened since the server was made.
type Counters struct {
	Running int64 // calls under way, those that wait for their callers included
	Bulks   int64 // bulk loads among them
	Calls   int64 // calls that came, refused ones among them
	Refused int64 // for want of room, or ended for it while they waited for their callers
	Stalled int64 // cut off because their other side took or sent nothing
	Panics  int64
}

// Server serves a leaf, which may be a leaf.Member. It does not close it.
type Server struct {
	leaf     leaf.Leaf
	o        ServerOptions
	memory   *semaphore.Weighted
	lobby    lobby
	maxBulks int64
	crowded  *api.Problem // ends calls that have to leave the lobby

	working                                         atomic.Int64 // calls that the leaf works on
	others                                          atomic.Int64 // streams of other services
	running, bulks, calls, refused, stalled, panics atomic.Int64
}

// NewServer returns a server of l. If l is no leaf.Member, the calls of one are refused with api.MethodNotAllowed.
func NewServer(l leaf.Leaf, o ServerOptions) *Server {
	o = o.withDefaults()
	s := &Server{leaf: l, o: o, memory: semaphore.NewWeighted(o.Memory), maxBulks: max(1, o.Memory/int64(o.largest())/2)}
	s.lobby = lobby{most: o.Calls, peers: make(map[*peer]struct{})}
	s.crowded = api.NewProblem(api.TooManySearches, "too many calls wait for their callers to send or take messages").Within(int64(o.Calls))
	s.crowded.RetryAfterMS = 100
	return s
}

// Counters returns the counters.
func (s *Server) Counters() Counters {
	return Counters{
		Running: s.running.Load(), Bulks: s.bulks.Load(), Calls: s.calls.Load(),
		Refused: s.refused.Load(), Stalled: s.stalled.Load(), Panics: s.panics.Load(),
	}
}

// streamWorkers run calls one after the other, so that their stacks are large enough already: a goroutine for each call has to grow its own
// first, a tenth of the processor time of a shard. Calls beyond have a goroutine each.
const streamWorkers = 16

// GRPC returns a gRPC server that serves the leaf, with the health service and, if asked for, reflection. The caller serves listeners
// with it and ends it with Stop or GracefulStop, which return when every call has. The health server says SERVING until the caller says
// otherwise. Further options must not set a codec, a tap or what ServerOptions sets.
func (s *Server) GRPC(more ...grpc.ServerOption) (*grpc.Server, *health.Server) {
	o := &s.o
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(theCodec),
		grpc.InTapHandle(grpcconn.Tap),
		grpc.ChainStreamInterceptor(s.otherStreams),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(maxOther),
		grpc.Creds(s.handshake()),
		grpc.MaxConcurrentStreams(o.Streams),
		grpc.StaticStreamWindowSize(o.StreamWindow),
		grpc.StaticConnWindowSize(o.ConnWindow),
		grpc.MaxHeaderListSize(o.HeaderBytes),
		grpc.ConnectionTimeout(o.ConnectTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: o.PingTime, Timeout: o.PingTimeout, MaxConnectionAge: o.MaxAge, MaxConnectionAgeGrace: o.MaxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.MinPing, PermitWithoutStream: true}),
	}
	g := grpc.NewServer(append(opts, more...)...)
	g.RegisterService(&serviceDesc, s)
	h := health.NewServer()
	h.SetServingStatus(serviceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(g, h)
	if o.Reflection {
		reflection.Register(g)
	}
	return g, h
}

// serviceDesc is that of the generated code with every method as a stream, because gRPC reads the message of a unary method
// before its handler is called, whatever its length. On the wire there is no difference.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: pb.Shard_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Metadata:    pb.Shard_ServiceDesc.Metadata,
	Streams: []grpc.StreamDesc{
		unary("Ping", reads, (*Server).ping),
		unary("Info", reads, (*Server).info),
		unary("Docs", reads, (*Server).docs),
		unary("Search", reads, (*Server).search),
		unary("Stats", reads, (*Server).stats),
		unary("Aggregate", reads, (*Server).aggregate),
		unary("KNN", reads, (*Server).knn),
		unary("Has", reads, (*Server).has),
		unary("DeleteMany", writes, (*Server).deleteMany),
		unary("Index", documents, (*Server).index),
		stream("IDs", (*Server).ids),
		stream("Export", (*Server).export),
		stream("Fetch", (*Server).fetch),
		clusterCall("Indexes", reads, serveIndexes),
		clusterCall("PutIndex", writes, servePutIndex),
		clusterCall("DropIndex", writes, serveDropIndex),
		clusterCall("Sums", reads, serveSums),
		clusterCall("Digest", reads, serveDigest),
		clusterCall("Sync", documents, serveSync),
		clusterCall("Place", writes, servePlace),
		clusterCall("Placed", reads, servePlaced),
		{StreamName: "Bulk", Handler: handleBulk, ClientStreams: true},
	},
}

// kind is what a method carries.
type kind uint8

const (
	reads     kind = iota
	writes         // small messages that change something
	documents      // messages with documents
	bulks          // many messages, with pieces of a load
)

// message is a pointer to a generated message M.
type message[M any] interface {
	*M
	proto.Message
}

func unary[M any, P message[M]](name string, k kind, serve func(*Server, context.Context, P) (proto.Message, error)) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, Handler: func(srv any, ss grpc.ServerStream) error {
		s := srv.(*Server)
		return s.handle(name, k, ss, P(new(M)), func(c *call, m proto.Message) error {
			reply, err := serve(s, c.ctx, m.(P))
			if err != nil {
				return err
			}
			c.unload()
			return c.send(reply)
		})
	}}
}

func stream[M any, P message[M]](name string, serve func(*Server, *call, P) error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, ss grpc.ServerStream) error {
		s := srv.(*Server)
		return s.handle(name, reads, ss, P(new(M)), func(c *call, m proto.Message) error {
			c.lists = true
			return serve(s, c, m.(P))
		})
	}}
}

func handleBulk(srv any, ss grpc.ServerStream) error {
	s := srv.(*Server)
	return s.handle("Bulk", bulks, ss, &pb.BulkRequest{}, func(c *call, m proto.Message) error { return s.bulk(c, m.(*pb.BulkRequest)) })
}

// call is one call under way. It belongs to its handler, and its methods are not called at once, but for end.
type call struct {
	s      *Server
	peer   *peer
	ss     grpc.ServerStream
	in     transportStream
	ctx    context.Context // of the stream, with Begun
	cancel context.CancelCauseFunc
	waiter waiter
	watch  *time.Timer
	doing  *api.Problem                // what watch ends the call with
	ended  atomic.Pointer[api.Problem] // what it was ended with from outside
	works  bool                        // it is one of Server.working
	kind   kind
	lists  bool // its reply is a list of messages
	cut    bool // its connection goes with it; the lobby's

	free, charged int64  // for messages that were received
	sent          *reply // the message sent last, if gRPC has not written it out yet
}

// wait runs something that waits for the other side, for at most limit; late says what is wrong after that.
func (c *call) wait(limit time.Duration, late *api.Problem, what func() error) error {
	if p := c.ended.Load(); p != nil {
		return p
	}
	c.doing = late
	if c.watch == nil {
		c.watch = time.AfterFunc(limit, func() { c.expire() })
	} else {
		c.watch.Reset(limit)
	}
	c.s.lobby.enter(&c.waiter)
	err := what()
	c.s.lobby.leave(&c.waiter)
	if !c.watch.Stop() {
		// The timer has fired or is about to: what ended because of it, or just before, ends the call all the same.
		return c.expire()
	}
	if p := c.ended.Load(); p != nil {
		return p
	}
	return err
}

func (c *call) expire() error { return c.end(c.doing, &c.s.stalled) }

// end ends the call from outside, and says with what. It may be called at once.
func (c *call) end(p *api.Problem, counter *atomic.Int64) error {
	if c.ended.CompareAndSwap(nil, p) {
		counter.Add(1)
		// What waits in gRPC ends with a status of gRPC's own; the problem goes beside it.
		c.ss.SetTrailer(problemTrailer(p))
		c.cancel(p)
	}
	return c.ended.Load()
}

// evict ends a call that has to leave the lobby. It is refused only if nothing was done for it.
func (c *call) evict() {
	p := c.doing
	if p == errSenderStalled && !c.works {
		p = c.s.crowded
	}
	c.cut = p == errReaderStalled
	c.end(p, &c.s.refused)
}

// work takes one of the places of calls that are worked on.
func (c *call) work(k kind) error {
	if n := c.s.working.Add(1); n > int64(c.s.o.Calls) {
		c.s.working.Add(-1)
		return c.s.refuse(k, "calls under way", int64(c.s.o.Calls))
	}
	c.works = true
	return nil
}

// rest gives back the place and the memory for messages that were received: what is left is to send the reply.
func (c *call) rest() {
	c.unload()
	if c.works {
		c.works = false
		c.s.working.Add(-1)
	}
}

// close is the end of the call's handler.
func (c *call) close() {
	c.rest()
	if c.sent != nil {
		c.sent.leave(c.ended.Load() == nil && c.ctx.Err() != nil, c.cut)
	}
}

// What ends calls whose other side is too slow. They are never changed.
var (
	errReaderStalled = api.NewProblem(api.Timeout, "the caller took no message for too long")
	errSenderStalled = api.NewProblem(api.BodyTimeout, "the request did not arrive in time")
	errUnguarded     = errors.New("the server was not made by Server.GRPC")
)

// handle runs a call: it reads its message, takes a place for it, and turns what goes wrong into a status.
func (s *Server) handle(name string, k kind, ss grpc.ServerStream, m proto.Message, serveCall func(*call, proto.Message) error) (err error) {
	s.calls.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	defer func() {
		if v := recover(); v != nil {
			s.panics.Add(1)
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		err = s.status(ss.Context(), name, err)
	}()
	c, err := s.newCall(ss)
	if err != nil {
		return err
	}
	defer c.close()
	// The headers tell the client that the call has begun. An error means that they are on their way already or that nobody waits for
	// them any more.
	c.ctx = serve.WithBegun(ss.Context(), func() { errors.Join(ss.SendHeader(nil)) })
	most := s.o.MaxRequest
	if k != reads && k != writes {
		most = s.o.largest()
	}
	c.kind, c.free = k, freeRequest
	if k == bulks {
		c.free = freeBulk
	}
	if _, _, err := c.receive(m, most, s.o.ReceiveTime); err != nil {
		if err == io.EOF {
			return api.NewProblem(api.InvalidBody, "the call has no message")
		}
		return err
	}
	if err := c.work(k); err != nil {
		return err
	}
	if err := serveCall(c, m); err != nil {
		return err
	}
	c.rest()
	return c.settle()
}

// newCall returns the call of a stream.
func (s *Server) newCall(ss grpc.ServerStream) (*call, error) {
	ctx := ss.Context()
	end, guarded := grpcconn.EndCall(ctx)
	in, reads := grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	p, known := grpcconn.Of[*peer](ctx)
	if !guarded || !reads || !known {
		return nil, errUnguarded
	}
	c := &call{s: s, peer: p, ss: ss, in: in, ctx: ctx, cancel: end}
	c.waiter = waiter{peer: p, evict: c.evict}
	return c, nil
}

// charge takes room for a message.
func (s *Server) charge(ctx context.Context, bytes int64, wait time.Duration) error {
	if bytes == 0 || s.memory.TryAcquire(bytes) {
		return nil
	}
	if wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if s.memory.Acquire(ctx, bytes) == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.refused.Add(1)
	p := api.NewProblem(api.RequestMemoryFull, "no memory is left for the message").Within(s.o.Memory)
	p.RetryAfterMS = 1000
	return p
}

func (s *Server) refuse(k kind, what string, limit int64) error {
	s.refused.Add(1)
	code := api.TooManySearches
	if k != reads {
		code = api.TooManyWrites
	}
	p := api.NewProblem(code, fmt.Sprintf("there are %d %s already", limit, what)).Within(limit)
	p.RetryAfterMS = 100
	return p
}

// status is the status of a call that ended with err. What is no problem and not the end of the context is internal, and its text is
// not for callers.
func (s *Server) status(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		// Whoever ended the call did not do so without a reason: it explains more than the error of what was cut short.
		if cause := context.Cause(ctx); cause != nil {
			if p, ok = errors.AsType[*api.Problem](cause); !ok {
				return status.FromContextError(ctx.Err()).Err()
			}
		}
	}
	if !ok {
		// A connection that ends while a message is sent shows here before it ends the context.
		if st, of := status.FromError(err); of && (st.Code() == codes.Canceled || st.Code() == codes.Unavailable) {
			return st.Err()
		}
		p = &api.Problem{Code: api.Internal, Detail: "the node failed; its log has more", Cause: err}
	}
	if p.HTTPStatus() == api.Codes[api.Internal].Status && s.o.Failed != nil {
		s.o.Failed(name, errors.Join(err, p.Cause))
	}
	return packProblem(p).Err()
}

func (s *Server) ping(ctx context.Context, _ *pb.PingRequest) (proto.Message, error) {
	r, err := s.leaf.Ping(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.PingReply{Node: r.Node}, nil
}

func (s *Server) info(ctx context.Context, m *pb.InfoRequest) (proto.Message, error) {
	r, err := s.leaf.Info(ctx, &leaf.InfoRequest{Index: m.Index})
	if err != nil {
		return nil, err
	}
	return packInfo(r), nil
}

func (s *Server) docs(ctx context.Context, m *pb.DocsRequest) (proto.Message, error) {
	req, err := unpackDocs(m)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.Docs(ctx, req)
	if err != nil {
		return nil, err
	}
	return &pb.DocsReply{Meta: packMeta(&r.Meta), Docs: r.Docs}, nil
}

func (s *Server) search(ctx context.Context, m *pb.SearchRequest) (proto.Message, error) {
	req, err := unpackSearch(m, s.o.Query)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.Search(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := s.shownFits(r.Shown); err != nil {
		return nil, err
	}
	return packSearchReply(r, len(req.Sort)), nil
}

func (s *Server) stats(ctx context.Context, m *pb.StatsRequest) (proto.Message, error) {
	req, err := unpackStatsRequest(m, s.o.Query)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.Stats(ctx, req)
	if err != nil {
		return nil, err
	}
	return packStatsReply(r), nil
}

func (s *Server) aggregate(ctx context.Context, m *pb.AggregateRequest) (proto.Message, error) {
	req, err := unpackAggregate(m, s.o.Query)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.Aggregate(ctx, req)
	if err != nil {
		return nil, err
	}
	return packAggregateReply(r), nil
}

func (s *Server) knn(ctx context.Context, m *pb.KNNRequest) (proto.Message, error) {
	req, err := unpackKNN(m, s.o.Query)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.KNN(ctx, req)
	if err != nil {
		return nil, err
	}
	return packKNNReply(r), nil
}

func (s *Server) has(ctx context.Context, m *pb.HasRequest) (proto.Message, error) {
	req, err := unpackHas(m)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.Has(ctx, req)
	if err != nil {
		return nil, err
	}
	return &pb.HasReply{Meta: packMeta(&r.Meta), Missing: packTexts(r.Missing)}, nil
}

func (s *Server) deleteMany(ctx context.Context, m *pb.DeleteManyRequest) (proto.Message, error) {
	req, err := unpackDelete(m)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.DeleteMany(ctx, req)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteManyReply{Meta: packMeta(&r.Meta), Deleted: r.Deleted}, nil
}

func (s *Server) index(ctx context.Context, m *pb.IndexRequest) (proto.Message, error) {
	req, err := unpackIndex(m)
	if err != nil {
		return nil, err
	}
	r, err := s.leaf.Index(ctx, req)
	if err != nil {
		return nil, err
	}
	return packIndexReply(r), nil
}
