package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/obs"
)

// Content types of replies.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
)

// IndexParam is the parameter of every call that is about an index.
const IndexParam = "index"

// Call is one request under way, for its handler. The handler returns the problem that is the answer, or makes another answer and returns
// nil. A call is for one goroutine at a time, and dies when the handler returns.
type Call struct {
	s      *Server
	w      *replyWriter
	r      *http.Request
	ctx    context.Context // of the request, with its id
	start  time.Time
	params url.Values
	conn   *http.ResponseController

	read    bool           // the body was read to its end
	stalled bool           // its sender was too slow
	ready   *reply         // the answer of the handler, to be sent when it has given back what it held
	size    int            // of the answer, or of the long part of a problem document
	kept    []*admit.Place // held until the answer is sent
	instead *api.Problem   // of the answer, for which there is no room

	// cut says that reading the body was interrupted: net/http may take the connection for broken, so that it serves no further call.
	cut atomic.Bool
}

// discardTime is how long the server may spend on what a handler left of a body, so that its sender comes to reading the reply.
// net/http bounds the bytes and not the time.
const discardTime = 2 * time.Second

// reply is an answer that stands ready.
type reply struct {
	status int
	body   []byte
}

// SmallReply is the length in bytes up to which an answer goes into the buffers of the connection, whether its caller reads or not.
const SmallReply = 64 << 10

// ReplyStall is how long a caller may take for the next SmallReply bytes of an answer.
const ReplyStall = 10 * time.Second

// replyWriter remembers whether and how a reply was begun.
type replyWriter struct {
	http.ResponseWriter
	status int // 0 until the header is written
}

func (w *replyWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *replyWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *replyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// newHandler builds the HTTP surface of the routes.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	byPath := map[string]map[string]*endpoint{}
	var paths []string
	metrics := map[string]*obs.Route{}
	for _, rt := range s.cfg.Routes {
		if byPath[rt.Path] == nil {
			byPath[rt.Path] = map[string]*endpoint{}
			paths = append(paths, rt.Path)
		}
		if metrics[rt.Name] == nil {
			metrics[rt.Name] = s.cfg.Metrics.Route(rt.Name)
		}
		byPath[rt.Path][rt.Method] = &endpoint{Route: rt, metrics: metrics[rt.Name]}
	}
	none := &endpoint{metrics: s.cfg.Metrics.Route("none"), Route: Route{Name: "none", Always: true}}
	for _, p := range paths {
		methods := byPath[p]
		allow := make([]string, 0, len(methods)+1)
		for m := range methods {
			allow = append(allow, m)
		}
		if methods[http.MethodGet] != nil {
			allow = append(allow, http.MethodHead)
		}
		slices.Sort(allow)
		allowed := strings.Join(allow, ", ")
		mux.HandleFunc(p, func(w http.ResponseWriter, r *http.Request) {
			method := r.Method
			if method == http.MethodHead {
				method = http.MethodGet // net/http leaves the body out
			}
			if e := methods[method]; e != nil {
				s.serve(w, r, e, nil)
				return
			}
			w.Header().Set("Allow", allowed)
			s.serve(w, r, none, api.NewProblem(api.MethodNotAllowed, "this path takes "+allowed))
		})
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, none, api.NewProblem(api.NotFound, "see /openapi.json for the paths that there are"))
	}
	mux.HandleFunc("/", notFound)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would answer these by itself, with a redirect or in plain text.
		if !cleanPath(r.URL.EscapedPath()) {
			notFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// cleanPath tells whether a path is absolute and has no empty, "." or ".." element; it may end in a slash.
func cleanPath(p string) bool {
	return p == "/" || strings.HasPrefix(p, "/") && path.Clean(p) == strings.TrimSuffix(p, "/")
}

// endpoint is a route with its metrics.
type endpoint struct {
	Route
	metrics *obs.Route
}

// serve runs one call from its id to its last byte. A given problem is the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, e *endpoint, prob *api.Problem) {
	seen := e.metrics.Begin()
	id := obs.AcceptRequestID(r.Header.Get(obs.RequestIDHeader))
	rw := &replyWriter{ResponseWriter: w}
	c := &Call{s: s, w: rw, r: r, ctx: obs.WithRequestID(r.Context(), id), start: seen.Start(), conn: http.NewResponseController(rw)}
	rw.Header().Set(obs.RequestIDHeader, id)
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() {
		status := rw.status
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				seen.End(api.StatusCallerGone)
				panic(p)
			}
			s.cfg.Metrics.Panics.Inc()
			s.log.Error("panic in request", "request_id", id, "route", e.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if status == 0 {
				c.fail(api.NewProblem(api.Internal, internalDetail))
			} else {
				// Part of a reply is out: only a broken connection can tell that the rest will not come.
				seen.End(http.StatusInternalServerError)
				panic(http.ErrAbortHandler)
			}
			status = rw.status
		}
		took := seen.End(status)
		s.log.LogAttrs(c.ctx, slog.LevelDebug, "request", slog.String("route", e.Name), slog.Int("status", status),
			slog.Duration("took", took), slog.String("request_id", id))
	}()
	if prob == nil {
		if !e.Always {
			if !s.drain.Enter() {
				c.fail(s.Problem(c.ctx, ErrClosing))
				return
			}
			defer s.drain.Leave()
		}
		defer c.letGo()
		if prob = s.answer(c, e); prob == nil {
			prob = c.instead
		}
	}
	switch {
	case prob != nil:
		c.fail(prob)
	case c.ready != nil:
		c.reply(c.ready.status, TypeJSON, c.ready.body)
	}
}

// answer checks what every route checks and runs the handler.
func (s *Server) answer(c *Call, e *endpoint) *api.Problem {
	if most := s.cfg.Limits.URLBytes; len(c.r.RequestURI) > most {
		return api.NewProblem(api.URITooLong, fmt.Sprintf("the request target has %d bytes, %d are allowed; long queries go into the body of POST /search",
			len(c.r.RequestURI), most)).Within(int64(most))
	}
	if most, have := s.cfg.Limits.HeaderBytes, headerBytes(c.r); have > most {
		return api.NewProblem(api.HeadersTooLarge, fmt.Sprintf("the headers have %d bytes, %d are allowed", have, most)).Within(int64(most))
	}
	params, prob := ReadParams(c.r.URL.RawQuery)
	if prob != nil {
		return prob
	}
	if e.Params != nil {
		for _, name := range sortedNames(params) {
			if !slices.Contains(e.Params, name) {
				return api.UnknownParam(name)
			}
			if len(params[name]) > 1 {
				return &api.Problem{Code: api.RepeatedParameter, Field: name, Detail: name + " is given more than once"}
			}
		}
	}
	c.params = params
	if e.Bodyless && c.hasBody() {
		return api.NewProblem(api.InvalidBody, "the call takes no body; its parameters go into the URL")
	}
	return e.Handler(c)
}

// hasBody tells whether the caller sends a body. Of one whose length is not told the first byte is waited for, or its end.
func (c *Call) hasBody() bool {
	if c.r.ContentLength >= 0 {
		return c.r.ContentLength > 0
	}
	src, stop := c.Timed(c.ctx)
	defer stop()
	n, err := io.ReadFull(src, make([]byte, 1))
	return n > 0 || !errors.Is(err, io.EOF)
}

// headerBytes is the length of the headers as they are sent.
func headerBytes(r *http.Request) int {
	n := len("Host: \r\n") + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(": \r\n") + len(v)
		}
	}
	return n
}

// ReadParams reads the query part of a URL.
func ReadParams(raw string) (url.Values, *api.Problem) {
	params, err := url.ParseQuery(raw)
	if err != nil {
		return nil, api.NewProblem(api.InvalidParameter, "the query part of the URL cannot be read: it has a bad escape or a semicolon")
	}
	for name, values := range params {
		if !utf8.ValidString(name) {
			return nil, api.NewProblem(api.InvalidUTF8, "the name of a parameter is not valid UTF-8")
		}
		for _, v := range values {
			if !utf8.ValidString(v) {
				return nil, api.NewProblem(api.InvalidUTF8, "parameter "+strconv.Quote(api.Clip(name))+" is not valid UTF-8").On(api.Clip(name))
			}
		}
	}
	return params, nil
}

func sortedNames(v url.Values) []string {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Context is that of the request, with its id. It ends when the caller hangs up.
func (c *Call) Context() context.Context { return c.ctx }

// Start is when the request began.
func (c *Call) Start() time.Time { return c.start }

// Params are those of the URL's query part.
func (c *Call) Params() url.Values { return c.params }

// Request is the request. Its body is read with Body or Timed alone.
func (c *Call) Request() *http.Request { return c.r }

// Index is the index that the call names, api.DefaultIndex if none.
func (c *Call) Index() (string, *api.Problem) {
	if !c.params.Has(IndexParam) {
		return api.DefaultIndex, nil
	}
	name := c.params.Get(IndexParam)
	return name, api.CheckIndexName(name)
}

// ID is the document that the call names.
func (c *Call) ID() (string, *api.Problem) {
	if !c.params.Has("id") {
		return "", &api.Problem{Code: api.MissingParameter, Field: "id", Detail: "id is missing"}
	}
	id := c.params.Get("id")
	return id, api.CheckID(id)
}

// JSON makes body the answer. It is sent when the handler has returned: a caller that does not read keeps no place, no index and
// no snapshot. Its memory is charged until it is sent. The problem is always nil, for handlers to return.
func (c *Call) JSON(status int, body []byte) *api.Problem {
	c.ready, c.size = &reply{status, body}, len(body)
	return nil
}

// Long returns p, whose Extra may be long: Leave treats it like an answer of that length.
func (c *Call) Long(p *api.Problem) *api.Problem {
	c.size = len(p.Extra)
	return p
}

// Serve lets another handler answer at once. The problem is always nil, for handlers to return.
func (c *Call) Serve(h http.Handler) *api.Problem {
	c.writeBy(time.Now().Add(c.s.cfg.Limits.ReplyTime))
	h.ServeHTTP(c.w, c.r)
	return nil
}

// OpenAPI answers with the OpenAPI document.
func OpenAPI(c *Call) *api.Problem { return c.JSON(http.StatusOK, api.OpenAPI) }

// Leave gives a place back at the end of a handler. When the answer is long and the memory of the answers that are being sent is
// full, the place is kept until the answer was sent: that bounds how many there are.
func (c *Call) Leave(place *admit.Place) {
	if c.size > SmallReply {
		room, err := c.s.replies.TryEnter(int64(c.size))
		if err != nil {
			room, place = place, nil
		}
		c.kept = append(c.kept, room)
	}
	place.Release()
}

// LeaveRead is Leave for calls that have no effect, where many may hold a place. Long answers for which the memory of the answers that are
// being sent is full may take as much again while they keep their places; the answer of a call that finds no room there either is a refusal.
func (c *Call) LeaveRead(place *admit.Place) {
	if c.size > SmallReply {
		weight := int64(c.size)
		if room, err := c.s.replies.TryEnter(weight); err == nil {
			c.kept = append(c.kept, room)
		} else if room, err = c.s.late.TryEnter(min(weight, c.s.late.Limit())); err == nil {
			c.kept = append(c.kept, room, place)
			return
		} else {
			c.ready, c.size, c.instead = nil, 0, c.s.Problem(c.ctx, err)
		}
	}
	place.Release()
}

// letGo gives back what was kept for the answer.
func (c *Call) letGo() {
	for _, p := range c.kept {
		p.Release()
	}
	c.kept = nil
}

func (c *Call) reply(status int, ctype string, body []byte) {
	end := time.Now().Add(c.s.cfg.Limits.ReplyTime)
	if !c.read && c.r.ContentLength != 0 {
		until := time.Now()
		if !c.stalled {
			until = until.Add(discardTime)
		}
		if err := c.conn.SetReadDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			c.s.log.Debug("bound the rest of a body", "error", err)
		}
	}
	h := c.w.Header()
	if c.cut.Load() {
		h.Set("Connection", "close")
	}
	h.Set("Content-Type", ctype)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	for first := true; first || len(body) > 0; first = false {
		part := body[:min(len(body), SmallReply)]
		body = body[len(part):]
		c.writeBy(end)
		if _, err := c.w.Write(part); err != nil {
			c.s.log.Debug("write reply", "error", err, "request_id", obs.RequestID(c.ctx))
			return
		}
	}
}

// writeBy sets the deadline of the next write: end, or earlier if the caller takes nothing.
func (c *Call) writeBy(end time.Time) {
	if stall := time.Now().Add(ReplyStall); stall.Before(end) {
		end = stall
	}
	// Recorders of tests and in-process callers have no deadlines.
	if err := c.conn.SetWriteDeadline(end); err != nil && !errors.Is(err, http.ErrNotSupported) {
		c.s.log.Debug("set write deadline", "error", err)
	}
}

// fail sends a problem document, also to a caller that is thought to be gone: the server would send an empty 200 in its place.
func (c *Call) fail(p *api.Problem) {
	p.RequestID = obs.RequestID(c.ctx)
	status := p.HTTPStatus()
	c.s.CountFailure(p)
	if p.RetryAfterMS > 0 {
		c.w.Header().Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	c.reply(status, TypeProblem, p.AppendJSON(nil))
}
