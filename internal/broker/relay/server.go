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
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/front/grpcfront"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
	"github.com/weft-search/weft/internal/wire/grpcserve"
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
	Register func(g grpc.ServiceRegistrar)
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
	serving   *grpcserve.Server // nil before it listens
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

// Interrupt ends the calls under way: each is told that the broker shuts down.
func (s *Server) Interrupt() {
	if s.serving != nil {
		s.serving.Interrupt(errClosing)
	}
}

// The services, by their full names.
const (
	searchService = "summa.SearchService"
	indexService  = "summa.IndexService"
)

func (s *Server) listening(lis net.Listener) *front.Listening {
	services := &grpcserve.Services{Most: maxOther, Stall: s.cfg.Limits.Stall}
	own := map[string]grpcserve.Handler{}
	for _, d := range []*grpc.ServiceDesc{&summapb.SearchService_ServiceDesc, &summapb.IndexService_ServiceDesc} {
		services.RegisterService(d, nil)
		s.methods(d, own)
	}
	if s.cfg.Register != nil {
		s.cfg.Register(services)
	}
	h := health.NewServer()
	healthpb.RegisterHealthServer(services, h)
	reflection.Register(services)
	if s.cfg.Health != nil {
		s.cfg.Health(h)
	}
	g := grpcserve.New(grpcserve.Options{
		Find: func(path string) grpcserve.Handler {
			if h := own[path]; h != nil {
				return h
			}
			return services.Find(path)
		},
		Conn:    func() any { return grpcmsg.NewShare() },
		Accepts: grpcraw.Accepted + "," + encoding.Identity,
		Stall:   s.cfg.Limits.Stall, Cut: s.cfg.Cut, Log: s.cfg.Log,
		// Goroutines that are kept have stacks as large as calls need.
		Workers: 8 * runtime.GOMAXPROCS(0),
	})
	s.serving = g
	listening, _ := grpcfront.ListenOwn(lis, []string{searchService, indexService}, g, h, s.cfg.Limits.Conns, s.cfg.Log)
	return listening
}

// streamAhead is how much of a stream of messages may come before it is read, so that far clients need not wait after each few of them.
const streamAhead = 256 << 10

// maxOther is the longest message of services that do not take their own.
const maxOther = 64 << 10

// Method is one of a service.
type Method struct {
	Service, Name string
	Path          string // /Service/Name
	Stream        bool   // it takes many messages
}

// methods adds the handlers of a service by their paths.
func (s *Server) methods(d *grpc.ServiceDesc, to map[string]grpcserve.Handler) {
	add := func(name string, stream bool) {
		m := &Method{Service: d.ServiceName, Name: name, Path: "/" + d.ServiceName + "/" + name, Stream: stream}
		to[m.Path] = func(ss *grpcserve.Stream) error { return s.handle(m, ss) }
	}
	for _, m := range d.Methods {
		add(m.MethodName, false)
	}
	for _, m := range d.Streams {
		add(m.StreamName, true)
	}
}

var (
	errClosing = status.Error(codes.Unavailable, "Summa broker is shutting down")
	errCalls   = status.Error(codes.ResourceExhausted, "too many calls are under way; retry later")
	// errPanicked is what is told of a call that panics.
	errPanicked = status.Error(codes.Internal, "Internal error")
	errMissing  = status.Error(codes.Internal, "Missing request message.")
)

// handle runs a call from its arrival to its end.
func (s *Server) handle(m *Method, ss *grpcserve.Stream) (err error) {
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
	c := &Call{s: s, method: m, ctx: ctx, ss: ss, conn: ss.Conn().(*grpcmsg.Share), deadline: arrived(ss), offers: ss.Accepts(), decode: s.cfg.Limits.SearchDecode, encode: s.cfg.Limits.SearchEncode}
	if m.Service == indexService {
		c.decode, c.encode = s.cfg.Limits.IndexDecode, s.cfg.Limits.IndexEncode
	}
	c.in = grpcmsg.Incoming{Stream: ss, Cancel: ss.Cancel, Stall: s.cfg.Limits.Stall, Most: c.decode, Need: c.arrives, Patient: m.Stream}
	defer c.unload()
	// Who has sent nothing yet takes no place of those who have, neither of the connection nor of all.
	if m.Stream {
		if c.place, err = s.streams.enter(ss.Cancel); err != nil {
			return err
		}
		defer c.place.leave()
		defer c.leave()
		ss.Ahead(streamAhead)
		return s.cfg.Stream(c)
	}
	if err := s.take(c, ss.Cancel); err != nil {
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
