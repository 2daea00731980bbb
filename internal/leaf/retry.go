package leaf

import (
	"errors"
	"net/http"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/serve/replica"
)

// RetryRead tells whether a call that writes nothing and failed with err may be tried on another member. It is for hedge.Class.Retryable.
func RetryRead(err error) bool { return ClassOf(err) != Never }

// RetryWrite tells whether a write that failed with err is known to have had no effect, and may do better on another member: it was
// refused before it began, or never reached the node. It is for hedge.Class.Retryable.
func RetryWrite(err error) bool {
	if e, ok := errors.AsType[*TransportError](err); ok {
		return !e.MaybeApplied && ClassOf(err) != Never
	}
	p, ok := errors.AsType[*api.Problem](err)
	return ok && (p.HTTPStatus() == http.StatusTooManyRequests || p.HTTPStatus() == http.StatusServiceUnavailable)
}

// Judge is what an error of a Leaf says about the member that it came from. It is for replica.Options.Judge.
func Judge(err error) replica.Verdict {
	switch ClassOf(err) {
	case Here:
		return replica.Busy
	case Elsewhere:
		return replica.Faulty
	}
	return replica.Fine
}
