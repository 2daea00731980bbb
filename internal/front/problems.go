package front

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
)

// ErrTimeout is the cause of a context whose timeout_ms is over.
var ErrTimeout = fmt.Errorf("timeout_ms is over: %w", context.DeadlineExceeded)

// Names of gates. Their refusals have codes and words here; each role has those that it needs.
const (
	GateSearches = "searches"
	GateWrites   = "writes"
	GateBulks    = "bulk loads"
	GateScans    = "scans"
	GateMemory   = "bytes of bodies"
	GateAnalyses = "bytes for long documents"
	GateReplies  = "bytes of replies"
	GateAggs     = "bytes for aggregations"
)

// gateCodes names the refusal of each gate.
var gateCodes = map[string]api.Code{
	GateSearches: api.TooManySearches,
	GateWrites:   api.TooManyWrites,
	GateBulks:    api.TooManyBulks,
	GateScans:    api.TooManySearches,
	GateMemory:   api.RequestMemoryFull,
	GateAnalyses: api.RequestMemoryFull,
	GateAggs:     api.RequestMemoryFull,
	GateReplies:  api.RequestMemoryFull,
}

// RefusalProblem is what the caller is told whom a gate of the names above has refused.
func RefusalProblem(r *admit.Refusal) *api.Problem {
	p := &api.Problem{Code: gateCodes[r.Gate], Limit: r.Limit, HasLimit: true, RetryAfterMS: RetryMS(r.RetryAfter)}
	switch r.Gate {
	case GateMemory:
		p.Detail = fmt.Sprintf("the bodies of all requests may take %d bytes together, and no room came free", r.Limit)
	case GateAggs:
		p.Detail = fmt.Sprintf("facets and aggregations of all searches may need %d bytes together, and no room came free", r.Limit)
	case GateReplies:
		p.Detail = fmt.Sprintf("the long replies that are being sent may take %d bytes together, and no room came free", r.Limit)
	case GateAnalyses:
		p.Detail = fmt.Sprintf("taking long documents apart may need %d bytes together, and no room came free", r.Limit)
	default:
		p.Detail = fmt.Sprintf("%d %s run at once and %d may wait, and no place came free", r.Limit, r.Gate, r.Queue)
	}
	return p
}

// RetryMS is d for Problem.RetryAfterMS: whole milliseconds, rounded up, and at least one.
func RetryMS(d time.Duration) int64 { return max(1, (d + time.Millisecond - 1).Milliseconds()) }

// Problem is the problem document of an error that any role can meet. A role with errors of its own asks FirstProblem, then looks at its
// own, then asks LastProblem. Details are made here, never taken from an error that could hold a path.
func Problem(ctx context.Context, err error) *api.Problem {
	p, err := FirstProblem(ctx, err)
	if p == nil {
		p = LastProblem(err)
	}
	return p
}

// FirstProblem is the problem of an error that says what it is: a problem, the refusal of a gate, or what is wrong with a query or with
// aggregations. For others it is nil, and cause is err, or the cause of ctx where that explains err better.
func FirstProblem(ctx context.Context, err error) (p *api.Problem, cause error) {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p, err
	}
	// What ended the context explains the error better than the error does.
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = cause
	}
	if r, ok := errors.AsType[*admit.Refusal](err); ok {
		return RefusalProblem(r), err
	}
	if p := api.QueryProblem("q", -1, err); p != nil {
		return p, err
	}
	return api.AggProblem("aggs", err), err
}

// LastProblem is the problem of an error that nothing else explains: the closing of the server, the end of the time or of the caller. Any
// other is internal.
func LastProblem(err error) *api.Problem {
	switch {
	case errors.Is(err, ErrClosing):
		return ShuttingDown()
	case errors.Is(err, context.DeadlineExceeded):
		return api.NewProblem(api.Timeout, "the time given to the request is over").On("timeout_ms")
	case errors.Is(err, context.Canceled):
		return api.NewProblem(api.CallerGone, "the caller hung up")
	}
	return &api.Problem{Code: api.Internal, Detail: internalDetail, Cause: err}
}

const internalDetail = "the server failed; its log has more under the request id"

// ShuttingDown is the refusal of a call that came too late.
func ShuttingDown() *api.Problem {
	return &api.Problem{Code: api.ShuttingDown, RetryAfterMS: 1000, Detail: "the server is shutting down"}
}
