package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/front/grpcfront"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/wire/grpcconn"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// Protocol is the name of the services in "listening …".
const Protocol front.Protocol = "summa"

// Limits bound what callers and nodes may take. A zero field means its default.
type Limits struct {
	// SearchDecode and IndexDecode are the longest messages in bytes that the two services take, SearchEncode and IndexEncode the longest
	// that they send: 4, 256, 256 and 64 MiB. All are lengths on the wire; a compressed request may not be longer than that inside either.
	SearchDecode, SearchEncode, IndexDecode, IndexEncode int
	// BackendDecode and BackendEncode are the longest messages that come from nodes and go to them: 256 MiB each.
	BackendDecode, BackendEncode int
	// Conns is the number of connections of clients: 1,024; Calls that of calls under way whose message is there, and of others whose message
	// is not: 1,024 each; Streams that of calls with many messages: 1,024.
	Conns, Calls, Streams int
	// Silence is how long a stream, or a call whose message is not there, may say nothing while others wait for its place: 10 s.
	Silence time.Duration
	// Stall is the longest wait for the next part of a message, and for a client to take some of a reply: 1 min. Wait is that of a reply for
	// room beside others: 5 s.
	Stall, Wait time.Duration
	// Replies is the room in bytes for replies that clients have not read yet: 512 MiB.
	Replies int64
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// WithDefaults returns the limits with every zero replaced.
func (l Limits) WithDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.SearchDecode, 4*mib)
	set(&l.SearchEncode, 256*mib)
	set(&l.IndexDecode, 256*mib)
	set(&l.IndexEncode, 64*mib)
	set(&l.BackendDecode, 256*mib)
	set(&l.BackendEncode, 256*mib)
	set(&l.Conns, 1024)
	set(&l.Calls, 1024)
	set(&l.Streams, 1024)
	if l.Silence <= 0 {
		l.Silence = 10 * time.Second
	}
	if l.Stall <= 0 {
		l.Stall = time.Minute
	}
	if l.Wait <= 0 {
		l.Wait = 5 * time.Second
	}
	if l.Replies <= 0 {
		l.Replies = 512 * mib
	}
	return l
}

// Target is who answers a call: a node, or the service itself.
type Target struct {
	// Node gets the call as it came.
	Node *grpcraw.Node
	// Serve answers instead, where Node is nil.
	Serve func(c *Call) error
	// Done, where not nil, is called once when the call has ended, before the client is told. err is what the client is told; outcome tells of
	// Node alone.
	Done func(outcome Outcome, err error)
}

// Config says what is served and within what.
type Config struct {
	// Route says who answers a unary call, whose message is there; its error is the answer to the client, as package status has it.
	Route func(c *Call) (Target, error)
	// Stream serves the calls with many messages, which it takes with Call.Next; it answers with Call.Reply.
	Stream func(c *Call) error
	// Enter counts a call in and says whether it may begin; Leave counts it out.
	Enter func() bool
	Leave func()
	// Charge takes more bytes of memory beside the have that the call holds, or waits for them. Nil: nothing is charged.
	Charge func(ctx context.Context, have, more int64) (given int64, release func(), err error)
	// Register adds further services, and names them with those of Summa in the health service. It may be nil.
	Register func(g *grpc.Server)
	// Health, where not nil, is told the health service when it is made, for a broker that is not healthy as soon as it listens.
	Health func(h *health.Server)
	Limits Limits // with defaults
	Log    *slog.Logger
	// Cut is told of each connection that was ended because its client takes nothing, and Panicked of each call that panicked. They may be nil.
	Cut, Panicked func()
}

// Server takes the calls.
type Server struct {
	cfg       Config
	calls     atomic.Int64 // under way, with their message
	arriving  *places      // of calls whose message is not there
	streams   *places
	replies   *grpcmsg.Outgoing
	inflating chan struct{}
	ahead     chan struct{} // has one while a call goes on without room for its message
	failures  obs.LineLimit
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg, replies: grpcmsg.NewOutgoing(cfg.Limits.Replies),
		arriving: newPlaces(cfg.Limits.Calls, cfg.Limits.Silence), streams: newPlaces(cfg.Limits.Streams, cfg.Limits.Silence),
		inflating: make(chan struct{}, 2*runtime.GOMAXPROCS(0)), ahead: make(chan struct{}, 1),
	}
}

// Binding is for front.Server.Listen, once.
func (s *Server) Binding(addr string) front.Binding {
	return front.Binding{Protocol: Protocol, Addr: addr, Server: s.listening}
}

// The services, by their full names.
const (
	searchService = "summa.SearchService"
	indexService  = "summa.IndexService"
)

func (s *Server) listening(lis net.Listener) *front.Listening {
	listening, _ := grpcfront.Listen(lis, grpcfront.Config{
		Services: []string{searchService, indexService}, New: s.grpcServer, Conns: s.cfg.Limits.Conns, Log: s.cfg.Log,
	})
	return listening
}

func (s *Server) grpcServer(more ...grpc.ServerOption) (*grpc.Server, *health.Server) {
	own := append(grpcmsg.ServerOptions(s.cfg.Limits.Stall, max(s.cfg.Limits.SearchEncode, s.cfg.Limits.IndexEncode), s.cfg.Cut),
		// Goroutines that are kept have stacks as large as calls need.
		grpc.NumStreamWorkers(uint32(8*runtime.GOMAXPROCS(0))),
		grpc.WriteBufferSize(128*kib),
	)
	g := grpc.NewServer(append(own, more...)...)
	for _, d := range s.descs() {
		g.RegisterService(d, nil)
	}
	if s.cfg.Register != nil {
		s.cfg.Register(g)
	}
	h := health.NewServer()
	healthpb.RegisterHealthServer(g, h)
	reflection.Register(g)
	if s.cfg.Health != nil {
		s.cfg.Health(h)
	}
	return g, h
}

// Method is one of a service.
type Method struct {
	Service, Name string
	Path          string // /Service/Name
	Stream        bool   // it takes many messages
}

// descs are those of the generated code with every method as a stream: see package grpcmsg.
func (s *Server) descs() []*grpc.ServiceDesc {
	of := func(from *grpc.ServiceDesc) *grpc.ServiceDesc {
		d := &grpc.ServiceDesc{ServiceName: from.ServiceName, HandlerType: (*any)(nil), Metadata: from.Metadata}
		add := func(name string, stream bool) {
			m := &Method{Service: from.ServiceName, Name: name, Path: "/" + from.ServiceName + "/" + name, Stream: stream}
			d.Streams = append(d.Streams, grpc.StreamDesc{
				StreamName: name, ClientStreams: stream, Handler: func(_ any, ss grpc.ServerStream) error { return s.handle(m, ss) },
			})
		}
		for _, m := range from.Methods {
			add(m.MethodName, false)
		}
		for _, m := range from.Streams {
			add(m.StreamName, true)
		}
		return d
	}
	return []*grpc.ServiceDesc{of(&summapb.SearchService_ServiceDesc), of(&summapb.IndexService_ServiceDesc)}
}

var (
	errClosing = status.Error(codes.Unavailable, "Summa broker is shutting down")
	errCalls   = status.Error(codes.ResourceExhausted, "too many calls are under way; retry later")
	// errPanicked is what is told of a call that panics.
	errPanicked = status.Error(codes.Internal, "Internal error")
	errMissing  = status.Error(codes.Internal, "Missing request message.")
)

// handle runs a call from its arrival to its end.
func (s *Server) handle(m *Method, ss grpc.ServerStream) (err error) {
	ctx := ss.Context()
	defer func() {
		if v := recover(); v != nil {
			if s.cfg.Panicked != nil {
				s.cfg.Panicked()
			}
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		err = s.status(ctx, m, err)
	}()
	if !s.cfg.Enter() {
		return errClosing
	}
	defer s.cfg.Leave()
	conn, bound := grpcmsg.ConnOf(ctx)
	in, reads := grpcmsg.StreamOf(ctx)
	end, guarded := grpcconn.EndCall(ctx)
	if !bound || !reads || !guarded {
		return grpcmsg.ErrNotBound
	}
	c := &Call{s: s, method: m, ctx: ctx, ss: ss, conn: conn, deadline: arrived(ctx), decode: s.cfg.Limits.SearchDecode, encode: s.cfg.Limits.SearchEncode}
	if m.Service == indexService {
		c.decode, c.encode = s.cfg.Limits.IndexDecode, s.cfg.Limits.IndexEncode
	}
	if c.offers, err = grpc.ClientSupportedCompressors(ctx); err != nil {
		return err
	}
	c.in = grpcmsg.Incoming{Stream: in, Cancel: end, Stall: s.cfg.Limits.Stall, Most: c.decode, Need: c.arrives, Patient: m.Stream}
	defer c.unload()
	// Who has sent nothing yet takes no place of those who have, neither of the connection nor of all.
	if m.Stream {
		if c.place, err = s.streams.enter(end); err != nil {
			return err
		}
		defer c.place.leave()
		defer c.leave()
		return s.cfg.Stream(c)
	}
	if err := s.take(c, end); err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if s.calls.Add(1) > int64(s.cfg.Limits.Calls) {
		s.calls.Add(-1)
		return errCalls
	}
	defer s.calls.Add(-1)
	t, err := s.cfg.Route(c)
	if err != nil {
		return err
	}
	return s.answer(c, t)
}

// take takes the message of a unary call.
func (s *Server) take(c *Call, end context.CancelCauseFunc) (err error) {
	if c.place, err = s.arriving.enter(end); err != nil {
		return err
	}
	defer c.place.leave()
	if err := c.receive(); err != io.EOF {
		return err
	}
	return errMissing
}

// answer lets the target answer, and tells it of the end in any case.
func (s *Server) answer(c *Call, t Target) (err error) {
	outcome := Outcome{Code: codes.Internal}
	if t.Done != nil {
		err = errPanicked
		defer func() {
			err = s.status(c.ctx, c.method, err)
			t.Done(outcome, err)
		}()
	}
	if t.Node == nil {
		outcome = Outcome{}
		err = t.Serve(c)
		return err
	}
	outcome, err = c.Forward(t.Node)
	return err
}

// status is what the client is told.
func (s *Server) status(ctx context.Context, m *Method, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*grpcraw.Error](err); ok {
		return status.Error(e.Code, e.Text)
	}
	if ctx.Err() != nil {
		if st, ok := status.FromError(context.Cause(ctx)); ok {
			return st.Err()
		}
		if st, ok := status.FromError(err); ok {
			return st.Err()
		}
		return status.FromContextError(ctx.Err()).Err()
	}
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	if dropped, ok := s.failures.Allow(); ok {
		s.cfg.Log.Error("call failed", "call", m.Path, "error", err, "dropped_lines", dropped)
	}
	return status.Error(codes.Internal, "Internal error")
}
