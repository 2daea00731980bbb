package framed

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
)

// retryMS is when a refusal for want of room says to try again, in milliseconds.
const retryMS = 100

// problemMembers are the members of an error that have a meaning of their own.
var problemMembers = []string{"ok", "code", "error", "status", "field", "line", "column", "position", "expected", "limit", "retry_after_ms", "request_id"}

// appendProblem appends the reply that says why a request failed.
func appendProblem(b []byte, p *api.Problem) []byte {
	return append(appendProblemMembers(append(b, `{"ok":false,`...), p), '}')
}

// appendProblemMembers appends the members of an error but for ok.
func appendProblemMembers(b []byte, p *api.Problem) []byte {
	b = append(b, `"code":`...)
	b = api.AppendString(b, string(p.Code))
	b = append(b, `,"error":`...)
	b = api.AppendString(b, p.Detail)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.HTTPStatus()), 10)
	text := func(name, s string) {
		if s != "" {
			b = append(b, ',', '"')
			b = append(b, name...)
			b = append(b, '"', ':')
			b = api.AppendString(b, s)
		}
	}
	number := func(name string, n int64, given bool) {
		if given {
			b = append(b, ',', '"')
			b = append(b, name...)
			b = append(b, '"', ':')
			b = strconv.AppendInt(b, n, 10)
		}
	}
	text("field", p.Field)
	number("line", int64(p.Line), p.Line > 0)
	number("column", int64(p.Column), p.Column > 0)
	number("position", int64(p.Position), p.HasPosition)
	text("expected", p.Expected)
	number("limit", p.Limit, p.HasLimit)
	number("retry_after_ms", p.RetryAfterMS, p.RetryAfterMS > 0)
	text("request_id", p.RequestID)
	return appendExtra(b, p.Extra)
}

// appendExtra appends the further members of a problem but those that an error of this protocol has already.
func appendExtra(b, extra []byte) []byte {
	if len(extra) == 0 {
		return b
	}
	from := len(b)
	s := newScanner(append(append([]byte{'{'}, extra...), '}'), false)
	s.object(func(name []byte) {
		value := s.value()
		for _, known := range problemMembers {
			if known == string(name) {
				return
			}
		}
		b = append(b, ',')
		b = api.AppendString(b, string(name))
		b = append(b, ':')
		b = append(b, value...)
	})
	if s.end() != nil {
		return b[:from]
	}
	return b
}

// failure is an error of a reply, as it is read.
type failure struct {
	problem api.Problem
	extra   []byte // the members that are not those of an error, as in api.Problem.Extra
}

// member reads a member of an error, if name is one.
func (f *failure) member(s *scanner, name []byte) bool {
	p := &f.problem
	number := func() int64 {
		n := s.u64()
		if n > 1<<62 {
			s.fail("a number is too large")
		}
		return int64(n)
	}
	switch string(name) {
	case "ok":
		s.bool()
	case "code":
		p.Code = api.Code(s.str())
	case "error":
		p.Detail = s.str()
	case "status":
		if p.Status = int(number()); p.Status < 400 || p.Status > 599 {
			s.fail("the status of an error is not one")
		}
	case "field":
		p.Field = s.str()
	case "line":
		p.Line = int(number())
	case "column":
		p.Column = int(number())
	case "position":
		p.At(int(number()))
	case "expected":
		p.Expected = s.str()
	case "limit":
		p.Within(number())
	case "retry_after_ms":
		p.RetryAfterMS = number()
	case "request_id":
		p.RequestID = s.str()
	default:
		return false
	}
	return true
}

// readReply reads a reply: member reads the members that the operation has, and reports whether name is one of them. ok is the member
// of that name; a reply that is not ok and names no code is one to a write that was not complete. A reply that is an error is returned
// as a problem; err is that of a reply that cannot be read.
func readReply(s *scanner, member func(name []byte) bool) (ok bool, prob *api.Problem, err error) {
	told, code := false, false
	s.object(func(name []byte) {
		switch {
		case string(name) == "ok":
			ok, told = s.bool(), true
		case !member(name):
			code = code || string(name) == "code"
			s.value()
		}
	})
	switch err := s.end(); {
	case err != nil && !code:
		return false, nil, err
	case err != nil: // members of an error may be none of the operation
	case !told:
		return false, nil, fmt.Errorf("%w: it has no ok", errMalformed)
	case ok || !code:
		return ok, nil, nil
	}
	prob, err = readProblem(s.b)
	return false, prob, err
}

// read reads the reply of an operation that is done or fails. One that is done has all members of needed: a reply to something else must
// not read as one that says nothing.
func read(s *scanner, member func(name []byte) bool, needed ...string) (*api.Problem, error) {
	seen := 0 // a bit for each of needed
	ok, prob, err := readReply(s, func(name []byte) bool {
		for i, n := range needed {
			if string(name) == n {
				seen |= 1 << i
			}
		}
		return member(name)
	})
	switch {
	case prob != nil || err != nil:
	case !ok:
		err = fmt.Errorf("%w: it is not ok and has no code", errMalformed)
	default:
		for i, n := range needed {
			if seen&(1<<i) == 0 {
				return nil, fmt.Errorf("%w: it has no %s", errMalformed, n)
			}
		}
	}
	return prob, err
}

// readProblem reads an error.
func readProblem(b []byte) (*api.Problem, error) {
	var f failure
	s := newScanner(b, false)
	s.object(func(name []byte) {
		if f.member(s, name) {
			return
		}
		if len(f.extra) > 0 {
			f.extra = append(f.extra, ',')
		}
		f.extra = api.AppendString(f.extra, string(name))
		f.extra = append(f.extra, ':')
		f.extra = append(f.extra, s.value()...)
	})
	if err := s.end(); err != nil {
		return nil, err
	}
	if f.problem.Code == "" {
		return nil, fmt.Errorf("%w: it is not ok and has no code", errMalformed)
	}
	p := f.problem
	p.Extra = f.extra
	if info, known := api.Codes[p.Code]; known && info.Status == p.Status {
		p.Status = 0
	}
	if p.Code == api.Timeout {
		p.Cause = context.DeadlineExceeded
	}
	return &p, nil
}

// maybeApplied is a further member of the error of a write that may have been applied in part.
var maybeApplied = []byte(`"maybe_applied":true`)

// problemOf is what a server says about an error of a leaf.
func problemOf(ctx context.Context, err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	t, ok := errors.AsType[*leaf.TransportError](err)
	var extra []byte
	if ok && t.MaybeApplied {
		extra = maybeApplied
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(cause, context.DeadlineExceeded):
		return &api.Problem{Code: api.Timeout, Detail: "the time that the request gave is over", Extra: extra, Cause: err}
	case errors.Is(cause, frame.ErrServerClosed), errors.Is(err, leaf.ErrClosed):
		return &api.Problem{Code: api.ShuttingDown, Detail: "the server is shutting down", RetryAfterMS: retryMS, Extra: extra, Cause: err}
	case cause != nil, errors.Is(err, context.Canceled):
		return &api.Problem{Code: api.CallerGone, Detail: "the caller hung up", Extra: extra, Cause: err}
	}
	if ok {
		return &api.Problem{Code: api.IndexUnavailable, Detail: "the node that holds the index did not answer", RetryAfterMS: retryMS, Extra: extra, Cause: err}
	}
	return &api.Problem{Code: api.Internal, Detail: "an internal error occurred", Cause: err}
}

// replyTooLarge is the problem of a reply that does not fit into a frame.
func replyTooLarge(detail string, limit int) *api.Problem {
	return api.NewProblem(api.ReplyTooLarge, detail).Within(int64(limit))
}

// Refuse writes what a frame.Server says in place of the handler; it is for frame.Server.Refuse. An Err that is an *api.Problem is
// told as it is.
func Refuse(dst []byte, r frame.Refusal) []byte {
	var p *api.Problem
	switch r.Reason {
	case frame.TooManyConnections:
		p = api.NewProblem(api.NotReady, fmt.Sprintf("there are %d connections, which is as many as may be", r.Limit)).Within(r.Limit)
		p.RetryAfterMS = retryMS
	case frame.FrameTooLong:
		p = api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the frame has %d bytes, at most %d are allowed", r.Length, r.Limit)).Within(r.Limit)
	case frame.NoMemory:
		if given, ok := errors.AsType[*api.Problem](r.Err); ok {
			p = given
			break
		}
		p = api.NewProblem(api.RequestMemoryFull, fmt.Sprintf("no memory is left for a frame of %d bytes", r.Length))
		p.RetryAfterMS = retryMS
	case frame.ReplyTooLong:
		p = replyTooLarge(fmt.Sprintf("the reply has %d bytes, at most %d are allowed; ask for less at once", r.Length, r.Limit), int(r.Limit))
	default:
		p = api.NewProblem(api.Internal, "an internal error occurred")
	}
	return appendProblem(dst, p)
}
