package rpc

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
)

// statusCodes is the one table from the HTTP status of a problem to the code of a gRPC status, for callers that know no problems.
// Client goes by the problem.
var statusCodes = map[int]codes.Code{
	http.StatusBadRequest:                  codes.InvalidArgument,
	http.StatusNotFound:                    codes.NotFound,
	http.StatusMethodNotAllowed:            codes.Unimplemented,
	http.StatusRequestTimeout:              codes.DeadlineExceeded,
	http.StatusConflict:                    codes.FailedPrecondition,
	http.StatusRequestEntityTooLarge:       codes.InvalidArgument,
	http.StatusRequestURITooLong:           codes.InvalidArgument,
	http.StatusUnsupportedMediaType:        codes.InvalidArgument,
	http.StatusTooManyRequests:             codes.ResourceExhausted,
	http.StatusRequestHeaderFieldsTooLarge: codes.InvalidArgument,
	api.StatusCallerGone:                   codes.Canceled,
	http.StatusInternalServerError:         codes.Internal,
	http.StatusServiceUnavailable:          codes.Unavailable,
	http.StatusGatewayTimeout:              codes.DeadlineExceeded,
	http.StatusInsufficientStorage:         codes.ResourceExhausted,
}

// statusCode is the code for a problem with an HTTP status.
func statusCode(status int) codes.Code {
	if c, ok := statusCodes[status]; ok {
		return c
	}
	if status >= http.StatusInternalServerError {
		return codes.Internal
	}
	return codes.InvalidArgument
}

// maxProblem is the size in bytes above which a problem loses its further members. They travel in the trailers of a call, which a
// client takes only up to its limit for headers.
const maxProblem = 256 << 10

// maxMessage is the length above which the message of a status is cut: the detail has it whole.
const maxMessage = 1 << 10

// packProblem makes the status of a call that ended with a problem.
func packProblem(p *api.Problem) *status.Status {
	m := problemMessage(p, maxProblem)
	s := status.New(statusCode(p.HTTPStatus()), cut(m.Code+": "+m.Detail, maxMessage))
	if full, err := s.WithDetails(m); err == nil { // texts are UTF-8 and the code is not OK: nothing can be wrong with it
		return full
	}
	return s
}

// trailerKey is the trailer with the Problem of a call that the node ended while gRPC waited for the caller: gRPC makes the status then.
const trailerKey = "weft-problem-bin"

func problemTrailer(p *api.Problem) metadata.MD {
	b, err := proto.Marshal(problemMessage(p, maxProblem))
	if err != nil { // never, as above
		return nil
	}
	return metadata.Pairs(trailerKey, string(b))
}

// trailedProblem returns the problem of a trailer, nil if it has none.
func trailedProblem(md metadata.MD) *api.Problem {
	v := md.Get(trailerKey)
	var m pb.Problem
	if len(v) != 1 || decodeOptions.Unmarshal([]byte(v[0]), &m) != nil {
		return nil
	}
	return problemOf(&m)
}

// problemMessage makes the message of a problem. One of more than most bytes loses its further members, and the ends of its texts.
func problemMessage(p *api.Problem, most int) *pb.Problem {
	m := &pb.Problem{
		Code: utf8(string(p.Code)), Detail: utf8(p.Detail), Status: int32(p.Status), Field: utf8(p.Field), Line: int64(p.Line), Column: int64(p.Column),
		Expected: utf8(p.Expected), RetryAfterMs: p.RetryAfterMS, RequestId: utf8(p.RequestID), Extra: p.Extra,
	}
	if p.HasPosition {
		position := int64(p.Position)
		m.Position = &position
	}
	if p.HasLimit {
		m.Limit = &p.Limit
	}
	if len(m.Detail)+len(m.Expected)+len(m.Field)+len(m.Extra) > most {
		m.Extra = nil
		m.Detail, m.Expected, m.Field = cut(m.Detail, most/4), cut(m.Expected, most/4), cut(m.Field, most/4)
	}
	return m
}

func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// cut shortens a text to at most n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// unpackProblem returns the problem of a status, nil if it has none.
func unpackProblem(s *status.Status) *api.Problem {
	for _, d := range s.Details() {
		if m, ok := d.(*pb.Problem); ok {
			return problemOf(m)
		}
	}
	return nil
}

func problemOf(m *pb.Problem) *api.Problem {
	p := &api.Problem{
		Code: api.Code(m.Code), Detail: m.Detail, Status: int(m.Status), Field: m.Field, Line: int(m.Line), Column: int(m.Column),
		Position: int(m.GetPosition()), HasPosition: m.Position != nil, Expected: m.Expected, Limit: m.GetLimit(), HasLimit: m.Limit != nil,
		RetryAfterMS: m.RetryAfterMs, RequestID: m.RequestId,
	}
	if len(m.Extra) > 0 {
		p.Extra = m.Extra
	}
	return p
}
