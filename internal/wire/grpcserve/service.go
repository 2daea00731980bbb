package grpcserve

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

// Services are those that are served by generated code, as with a grpc.Server but for interceptors. Their messages are short, and at
// most 32 of their calls are under way on a connection.
type Services struct {
	// Most is the longest message that they take, in bytes; Stall the longest wait for the rest of one. Both have to be set.
	Most  int
	Stall time.Duration

	byName map[string]*service
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

// RegisterService implements grpc.ServiceRegistrar. It is not called any more when calls are served. impl may be nil for a service whose
// methods are served elsewhere: it is told of to clients, and its other methods are those that nobody knows.
func (r *Services) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if r.byName == nil {
		r.byName = map[string]*service{}
	}
	r.byName[desc.ServiceName] = &service{desc, impl}
}

// GetServiceInfo implements the rest of reflection.GRPCServer.
func (r *Services) GetServiceInfo() map[string]grpc.ServiceInfo {
	out := map[string]grpc.ServiceInfo{}
	for name, s := range r.byName {
		info := grpc.ServiceInfo{Metadata: s.desc.Metadata}
		for _, m := range s.desc.Methods {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
		}
		for _, m := range s.desc.Streams {
			info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams})
		}
		out[name] = info
	}
	return out
}

// Find is for Options.Find. What is not known is UNIMPLEMENTED, as a grpc.Server has it.
func (r *Services) Find(path string) Handler {
	refuse := func(format string, a ...any) Handler {
		err := status.Errorf(codes.Unimplemented, format, a...)
		return func(*Stream) error { return err }
	}
	name := strings.TrimPrefix(path, "/")
	at := strings.LastIndexByte(name, '/')
	if at < 0 {
		return refuse("malformed method name: %q", shown(path))
	}
	name, method := name[:at], name[at+1:]
	s := r.byName[name]
	if s == nil {
		return refuse("unknown service %v", shown(name))
	}
	if i := slices.IndexFunc(s.desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == method }); i >= 0 && s.impl != nil {
		return func(st *Stream) error { return r.unary(st, s.impl, &s.desc.Methods[i]) }
	}
	if i := slices.IndexFunc(s.desc.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == method }); i >= 0 && s.impl != nil {
		return func(st *Stream) error { return r.stream(st, s.impl, &s.desc.Streams[i]) }
	}
	return refuse("unknown method %v for service %v", shown(method), name)
}

// serverStream is a call as generated code has it.
type serverStream struct {
	s   *Stream
	ctx context.Context
	in  grpcmsg.Incoming
}

// mostServed is how many calls of a connection Services serve at once. Nobody charges for what they hold, and streams last for as long as
// clients like.
const mostServed = 32

var errServed = status.Errorf(codes.ResourceExhausted, "%d calls of services like this one are under way on the connection", mostServed)

func (r *Services) open(s *Stream, patient bool) (*serverStream, error) {
	md, err := s.more.metadata()
	if err != nil {
		return nil, err
	}
	if s.c.served.Add(1) > mostServed {
		s.c.served.Add(-1)
		return nil, errServed
	}
	ss := &serverStream{s: s, in: grpcmsg.Incoming{
		Stream: s, Cancel: s.cancel, Stall: r.Stall, Most: r.Most, Need: func(int64) error { return nil }, Patient: patient,
	}}
	ss.ctx = grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(s.ctx, md), ss)
	return ss, nil
}

// close has to be called at the end of a call that was opened.
func (ss *serverStream) close() { ss.s.c.served.Add(-1) }

func (r *Services) unary(s *Stream, impl any, m *grpc.MethodDesc) error {
	ss, err := r.open(s, false)
	if err != nil {
		return err
	}
	defer ss.close()
	reply, err := m.Handler(impl, ss.ctx, func(in any) error {
		err := ss.RecvMsg(in)
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Internal, "Missing request message.")
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	return ss.send(reply, true)
}

var errShutdown = status.Error(codes.Unavailable, "the server is shutting down")

func (r *Services) stream(s *Stream, impl any, m *grpc.StreamDesc) error {
	ss, err := r.open(s, true)
	if err != nil {
		return err
	}
	defer ss.close()
	// It would go on as long as its client likes.
	unhook := context.AfterFunc(s.c.srv.draining, func() { s.cancel(errShutdown) })
	defer unhook()
	return m.Handler(impl, streamed{ss})
}

// Method implements grpc.ServerTransportStream.
func (ss *serverStream) Method() string { return ss.s.path }

// SetHeader implements grpc.ServerStream.
func (ss *serverStream) SetHeader(md metadata.MD) error {
	ss.s.SetHeader(md)
	return nil
}

// SendHeader implements grpc.ServerStream. The headers go out with what follows.
func (ss *serverStream) SendHeader(md metadata.MD) error { return ss.SetHeader(md) }

// SetTrailer implements grpc.ServerTransportStream.
func (ss *serverStream) SetTrailer(md metadata.MD) error {
	ss.s.SetTrailer(md)
	return nil
}

// streamed is a serverStream as grpc.ServerStream has it, whose SetTrailer returns nothing.
type streamed struct{ *serverStream }

// SetTrailer implements grpc.ServerStream.
func (st streamed) SetTrailer(md metadata.MD) { st.s.SetTrailer(md) }

// Context implements grpc.ServerStream.
func (st streamed) Context() context.Context { return st.ctx }

// SendMsg implements grpc.ServerStream.
func (st streamed) SendMsg(m any) error { return st.send(m, false) }

func (ss *serverStream) send(m any, last bool) error {
	p, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "the reply is no message of Protocol Buffers but a %T", m)
	}
	b, err := proto.Marshal(p)
	if err != nil {
		return status.Error(codes.Internal, "the reply cannot be encoded")
	}
	return ss.s.Write(mem.BufferSlice{mem.SliceBuffer(grpcmsg.Header(false, len(b))), mem.SliceBuffer(b)}, last)
}

// RecvMsg implements grpc.ServerStream.
func (ss *serverStream) RecvMsg(m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "the request is no message of Protocol Buffers but a %T", m)
	}
	header, data, err := ss.in.Receive()
	if err != nil {
		return err
	}
	defer data.Free()
	b := data.Materialize()
	if header[0] == 1 {
		if b, err = inflate(ss.s.encoding, data, ss.in.Most); err != nil {
			return err
		}
	}
	if err := proto.Unmarshal(b, p); err != nil {
		return status.Error(codes.Internal, "failed to decode Protobuf message")
	}
	return nil
}

func inflate(encoding string, data mem.BufferSlice, most int) ([]byte, error) {
	in := data.Reader()
	defer in.Close()
	z, done, err := grpcmsg.Decompressor(encoding, in)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := io.ReadAll(io.LimitReader(z, int64(most)+1))
	if err != nil {
		return nil, grpcmsg.ErrDamaged
	}
	if len(b) > most {
		return nil, grpcmsg.TooLongInside(most)
	}
	return b, nil
}
