package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// UncoveredError says of a call that no shard, or not every shard that it needs, answered, what became of each. It is the cause of a
// problem, or comes with the end of the call's time.
type UncoveredError struct {
	Below *leaf.Below
	Errs  []error // of the groups, by ordinal; nil where one answered or was not asked
}

// Error implements error.
func (e *UncoveredError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d shards did not answer", e.Below.Shards.Failed, e.Below.Shards.Total)
	for i, err := range e.Errs {
		if err != nil {
			fmt.Fprintf(&b, "; group %d: %v", i, err)
		}
	}
	return b.String()
}

// timeoutError is the end of the time of a call, with what had become of the shards until then.
type timeoutError struct {
	cause     error
	uncovered *UncoveredError
}

func (e *timeoutError) Error() string   { return fmt.Sprintf("read from the groups: %v", e.cause) }
func (e *timeoutError) Unwrap() []error { return []error{e.cause, e.uncovered} }

// hasCode tells whether an error is the problem with the code.
func hasCode(err error, code api.Code) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == code
}

// problemOf is the problem in an error that has one.
func problemOf(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	return err
}

// refusal tells whether a problem is the fault of the request, so that every shard would say the like.
func refusal(p *api.Problem) bool {
	switch p.Code {
	case api.CallerGone, api.BodyTimeout, api.StaleMap, api.IndexNotFound:
		return false
	}
	status := p.HTTPStatus()
	return status < http.StatusInternalServerError && status != http.StatusTooManyRequests
}

// noAnswer is the error of a call whose round ended as a whole.
func (r *Reader) noAnswer(c *running, err error) error {
	if why := r.ended(c); why != nil {
		return why
	}
	if suspect, ok := errors.AsType[*serve.SuspectError](err); ok {
		return &api.Problem{
			Code: api.Internal, Detail: "a query like this has ended a member before; it is not sent to others", Cause: suspect,
		}
	}
	return err
}

// uncovered is the error of a call to which too much is missing.
func uncovered[Q, R any](r *Reader, c *running, o *op[Q, R], g *gathered[R]) error {
	u := &UncoveredError{Below: below(r, o, g), Errs: make([]error, len(g.parts))}
	timedOut, refused := true, true
	var first *api.Problem // of the first group that has none
	alike := true
	missing := ""
	for i := range g.parts {
		of := &g.parts[i]
		if of.outcome.Covered() {
			continue
		}
		u.Errs[i] = of.err
		timedOut = timedOut && of.outcome == serve.TimedOut
		refused = refused && of.outcome == serve.Refused
		p, ok := errors.AsType[*api.Problem](of.err)
		if missing == "" {
			missing, first = g.plan.groups[i].joined, p
		}
		alike = alike && ok && first != nil && p.Code == first.Code
	}
	if timedOut {
		cause := error(context.DeadlineExceeded)
		if c.caller.Err() != nil {
			cause = context.Cause(c.caller)
		}
		return &timeoutError{cause, u}
	}
	p := &api.Problem{
		Code: api.GroupUnavailable, Detail: fmt.Sprintf("no member of %d of the %d groups answered", u.Below.Shards.Failed, u.Below.Shards.Total),
		RetryAfterMS: 1000,
	}
	// What all of them say is more than that there is no answer.
	if alike && first != nil || refused && first != nil {
		own := *first
		p = &own
	}
	p.Cause = u
	p.Extra = appendExtra(p.Extra, u.Below)
	return p
}

// appendExtra appends the accounting as members of a problem document.
func appendExtra(b []byte, below *leaf.Below) []byte {
	b = b[:len(b):len(b)]
	if len(b) > 0 {
		b = append(b, ',')
	}
	b = append(b, `"shards":`...)
	b = below.Shards.AppendJSON(b)
	b = append(b, `,"coverage":`...)
	cover := Coverage(below)
	return cover.AppendJSON(b)
}

// Coverage is what an accounting comes to.
func Coverage(below *leaf.Below) api.Coverage {
	c := api.Coverage{
		Shards: 1, DocsCovered: below.DocsCovered, DocsTotal: below.DocsTotal, AtLeast: below.Unsized, Complete: below.Shards.Failed == 0,
	}
	if below.Shards.Total > 0 {
		c.Shards = float64(below.Shards.OK) / float64(below.Shards.Total)
	}
	return c
}
