package grpcconn

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// guard can end a call from outside, with everything in it that waits: gRPC has no time limit for a single message.
type guard struct{ cancel context.CancelCauseFunc }

type guardKey struct{}

// Tap is for grpc.InTapHandle: it puts a guard around each call before gRPC makes it.
func Tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	g := &guard{}
	ctx = context.WithValue(ctx, guardKey{}, g)
	ctx, g.cancel = context.WithCancelCause(ctx)
	return ctx, nil
}

// EndCall returns what ends a call from outside; false where the server has no Tap.
func EndCall(ctx context.Context) (context.CancelCauseFunc, bool) {
	g, ok := ctx.Value(guardKey{}).(*guard)
	if !ok {
		return nil, false
	}
	return g.cancel, true
}

// OtherStreams is for the streams that end when their caller wants, those of health and reflection: all whose method does not begin with
// one of own. It ends them when draining does, because a server that ends in good order would wait for them to the end of its time.
func OtherStreams(draining context.Context, own ...string) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		for _, prefix := range own {
			if strings.HasPrefix(info.FullMethod, prefix) {
				return handler(srv, ss)
			}
		}
		ctx, cancel := context.WithCancel(ss.Context())
		defer cancel()
		unhook := context.AfterFunc(draining, cancel)
		defer unhook()
		s := &otherStream{ServerStream: ss, ctx: ctx}
		if in, ok := infoOf(ctx); ok && in.conn.replies != nil {
			s.of = in.conn.replies
			s.o = s.of.enter()
			defer s.of.leave(s.o)
		}
		return handler(srv, s)
	}
}

// otherStream is a stream of another service, which ends with a context of its own.
type otherStream struct {
	grpc.ServerStream
	ctx context.Context
	of  *replies // of its connection, nil where they are not followed
	o   *other   // it, there
}

// Context implements grpc.ServerStream.
func (s *otherStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *otherStream) SendMsg(m any) error {
	if s.of != nil {
		s.of.sends(s.o)
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg waits for a message on a goroutine that ends with the stream, which ends when its handler has the error. In gRPC itself a
// message that is waited for ends with a status that says nothing of the server.
func (s *otherStream) RecvMsg(m any) error {
	got := make(chan error, 1)
	go func() { got <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-got:
		return err
	case <-s.ctx.Done():
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}
