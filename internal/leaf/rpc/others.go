package rpc

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/api"
)

// maxOthers is how many streams of services other than Shard there may be.
const maxOthers = 1024

// otherStreams holds the streams of health and reflection to the same bounds for what they send.
func (s *Server) otherStreams(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/"+serviceDesc.ServiceName+"/") {
		return handler(srv, ss)
	}
	defer s.others.Add(-1)
	if s.others.Add(1) > maxOthers {
		return status.Errorf(codes.ResourceExhausted, "there are %d streams already", maxOthers)
	}
	c, err := s.newCall(ss)
	if err != nil {
		return err
	}
	defer c.close()
	if err = handler(srv, &otherStream{ss, c}); err == nil {
		err = c.settle()
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return packProblem(p).Err()
	}
	return err
}

type otherStream struct {
	grpc.ServerStream
	call *call
}

// SendMsg implements grpc.ServerStream.
func (s *otherStream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Error(codes.Internal, "what is sent is no message")
	}
	err := s.call.send(message)
	if cause := context.Cause(s.Context()); err != nil && err == cause {
		return status.FromContextError(s.Context().Err()).Err()
	}
	return err
}
