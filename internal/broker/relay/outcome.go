package relay

import (
	"errors"

	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// outcomeOf is how a call ended that no status of the node has ended.
func outcomeOf(err error) Outcome {
	e, ok := errors.AsType[*grpcraw.Error](err)
	return Outcome{Code: status.Code(err), Transport: ok && e.Transport}
}
