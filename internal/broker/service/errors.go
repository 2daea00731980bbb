package service

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

var (
	errMemory   = status.Error(codes.ResourceExhausted, "too much memory is in use by other calls; retry later")
	errSearch   = status.Error(codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	errInternal = status.Error(codes.Internal, "Internal error")
	errGone     = status.Error(codes.Unavailable, "the node is not in the fleet any more; retry")
)

// codeName is the code of an error in metrics.
func codeName(err error) string { return grpcmsg.CodeName(status.Code(err)) }
