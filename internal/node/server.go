package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/obs"
)

// Content types of replies.
const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// call is one request under way.
type call struct {
	w      *replyWriter
	r      *http.Request
	ctx    context.Context // of the request, with its id; handlers may narrow it
	start  time.Time
	params url.Values
	conn   *http.ResponseController

	read    bool           // the body was read to its end
	stalled bool           // its sender was too slow
	ready   *reply         // the answer of the handler, to be sent when it has given back what it held
	size    int            // of the answer, or of the long part of a problem document
	kept    []*admit.Place // held until the answer is sent

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

// smallReply is the length up to which an answer goes into the buffers of the connection, whether its caller reads or not.
const smallReply = 64 << 10

// replyStall is how long a caller may take for the next smallReply bytes of an answer.
const replyStall = 10 * time.Second

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

// newHandler builds the HTTP surface of the node.
func (n *Node) newHandler() http.Handler {
	mux := http.NewServeMux()
	byPath := map[string]map[string]*endpoint{}
	var paths []string
	metrics := map[string]*obs.Route{}
	for _, rt := range routes() {
		if byPath[rt.path] == nil {
			byPath[rt.path] = map[string]*endpoint{}
			paths = append(paths, rt.path)
		}
		if metrics[rt.name] == nil {
			metrics[rt.name] = n.cfg.Metrics.Route(rt.name)
		}
		byPath[rt.path][rt.method] = &endpoint{route: rt, metrics: metrics[rt.name]}
	}
	none := &endpoint{metrics: n.cfg.Metrics.Route("none"), route: route{name: "none", always: true}}
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
				n.serve(w, r, e, nil)
				return
			}
			w.Header().Set("Allow", allowed)
			n.serve(w, r, none, api.NewProblem(api.MethodNotAllowed, "this path takes "+allowed))
		})
	}
	notFound := func(w http.ResponseWriter, r *http.Request) {
		n.serve(w, r, none, api.NewProblem(api.NotFound, "see /openapi.json for the paths that there are"))
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
	route
	metrics *obs.Route
}

// serve runs one call from its id to its last byte. A given problem is the answer.
func (n *Node) serve(w http.ResponseWriter, r *http.Request, e *endpoint, prob *api.Problem) {
	seen := e.metrics.Begin()
	id := obs.AcceptRequestID(r.Header.Get(obs.RequestIDHeader))
	rw := &replyWriter{ResponseWriter: w}
	c := &call{w: rw, r: r, ctx: obs.WithRequestID(r.Context(), id), start: seen.Start(), conn: http.NewResponseController(rw)}
	rw.Header().Set(obs.RequestIDHeader, id)
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() {
		status := rw.status
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				seen.End(api.StatusCallerGone)
				panic(p)
			}
			n.cfg.Metrics.Panics.Inc()
			n.log.Error("panic in request", "request_id", id, "route", e.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if status == 0 {
				c.fail(n, api.NewProblem(api.Internal, "the server failed; its log has more under the request id"))
			} else {
				// Part of a reply is out: only a broken connection can tell that the rest will not come.
				seen.End(http.StatusInternalServerError)
				panic(http.ErrAbortHandler)
			}
			status = rw.status
		}
		took := seen.End(status)
		n.log.LogAttrs(c.ctx, slog.LevelDebug, "request", slog.String("route", e.name), slog.Int("status", status),
			slog.Duration("took", took), slog.String("request_id", id))
	}()
	if prob == nil {
		if !e.always {
			if !n.drain.enter() {
				c.fail(n, n.problem(c.ctx, errClosing))
				return
			}
			defer n.drain.leave()
		}
		defer c.letGo()
		prob = n.answer(c, e)
	}
	switch {
	case prob != nil:
		c.fail(n, prob)
	case c.ready != nil:
		c.reply(n, c.ready.status, typeJSON, c.ready.body)
	}
}

// answer checks what every route checks and runs the handler.
func (n *Node) answer(c *call, e *endpoint) *api.Problem {
	if most := n.cfg.Limits.URLBytes; len(c.r.RequestURI) > most {
		return api.NewProblem(api.URITooLong, fmt.Sprintf("the request target has %d bytes, %d are allowed; long queries go into the body of POST /search",
			len(c.r.RequestURI), most)).Within(int64(most))
	}
	if most, have := n.cfg.Limits.HeaderBytes, headerBytes(c.r); have > most {
		return api.NewProblem(api.HeadersTooLarge, fmt.Sprintf("the headers have %d bytes, %d are allowed", have, most)).Within(int64(most))
	}
	params, prob := readParams(c.r.URL.RawQuery)
	if prob != nil {
		return prob
	}
	if e.params != nil {
		for _, name := range sortedNames(params) {
			if !slices.Contains(e.params, name) {
				return api.UnknownParam(name)
			}
			if len(params[name]) > 1 {
				return &api.Problem{Code: api.RepeatedParameter, Field: name, Detail: name + " is given more than once"}
			}
		}
	}
	c.params = params
	return e.handler(n, c)
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

// readParams reads the query part of a URL.
func readParams(raw string) (url.Values, *api.Problem) {
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

// index is the index that the call names.
func (c *call) index() (string, *api.Problem) {
	if !c.params.Has(indexParam) {
		return api.DefaultIndex, nil
	}
	name := c.params.Get(indexParam)
	return name, api.CheckIndexName(name)
}

// id is the document that the call names.
func (c *call) id() (string, *api.Problem) {
	if !c.params.Has("id") {
		return "", &api.Problem{Code: api.MissingParameter, Field: "id", Detail: "id is missing"}
	}
	id := c.params.Get("id")
	return id, api.CheckID(id)
}

// json makes body the answer. It is sent when the handler has returned: a caller that does not read keeps no place, no index and
// no snapshot. Its memory is charged until it is sent.
func (c *call) json(n *Node, status int, body []byte) *api.Problem {
	c.ready, c.size = &reply{status, body}, len(body)
	return nil
}

// leave gives a place back at the end of a handler. When the answer is long and the memory of the answers that are being sent is
// full, the place is kept until the answer was sent: that bounds how many there are.
func (c *call) leave(n *Node, place *admit.Place) {
	if c.size > smallReply {
		room, err := n.replies.TryEnter(int64(c.size))
		if err != nil {
			room, place = place, nil
		}
		c.kept = append(c.kept, room)
	}
	place.Release()
}

// letGo gives back what was kept for the answer.
func (c *call) letGo() {
	for _, p := range c.kept {
		p.Release()
	}
	c.kept = nil
}

func (c *call) reply(n *Node, status int, ctype string, body []byte) {
	end := time.Now().Add(n.cfg.Limits.ReplyTime)
	if !c.read && c.r.ContentLength != 0 {
		until := time.Now()
		if !c.stalled {
			until = until.Add(discardTime)
		}
		if err := c.conn.SetReadDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			n.log.Debug("bound the rest of a body", "error", err)
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
		part := body[:min(len(body), smallReply)]
		body = body[len(part):]
		c.writeBy(n, end)
		if _, err := c.w.Write(part); err != nil {
			n.log.Debug("write reply", "error", err, "request_id", obs.RequestID(c.ctx))
			return
		}
	}
}

// writeBy sets the deadline of the next write: end, or earlier if the caller takes nothing.
func (c *call) writeBy(n *Node, end time.Time) {
	if stall := time.Now().Add(replyStall); stall.Before(end) {
		end = stall
	}
	// Recorders of tests and in-process callers have no deadlines.
	if err := c.conn.SetWriteDeadline(end); err != nil && !errors.Is(err, http.ErrNotSupported) {
		n.log.Debug("set write deadline", "error", err)
	}
}

// fail sends a problem document, also to a caller that is thought to be gone: the server would send an empty 200 in its place.
func (c *call) fail(n *Node, p *api.Problem) {
	p.RequestID = obs.RequestID(c.ctx)
	status := p.HTTPStatus()
	n.countFailure(p)
	if p.RetryAfterMS > 0 {
		c.w.Header().Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	c.reply(n, status, typeProblem, p.AppendJSON(nil))
}

// countFailure counts a refusal, and logs why a call failed that should not have.
func (n *Node) countFailure(p *api.Problem) {
	status := p.HTTPStatus()
	if status >= http.StatusInternalServerError && p.Cause != nil {
		if dropped, ok := n.failures.Allow(); ok {
			n.log.Error("request failed", "request_id", p.RequestID, "code", string(p.Code), "error", p.Cause, "dropped_lines", dropped)
		}
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		n.refusal(p.Code).Inc()
	}
}

// wants checks the content type and encoding of a body; allowed[0] is assumed where none is given. It returns the type.
func (c *call) wants(allowed ...string) (string, *api.Problem) {
	if enc := c.r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return "", api.NewProblem(api.UnsupportedEncoding, "send the body without a content encoding").On("Content-Encoding")
	}
	given := c.r.Header.Get("Content-Type")
	if given == "" {
		return allowed[0], nil
	}
	kind, args, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(allowed, kind) {
		return "", wrongType(given, kind, allowed)
	}
	if set := args["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return "", api.NewProblem(api.UnsupportedMediaType, "the charset is "+strconv.Quote(api.Clip(set))+"; send utf-8").On("Content-Type")
	}
	return kind, nil
}

// wrongType is the refusal of a content type. Most often it is what a client adds that was not told.
func wrongType(given, kind string, allowed []string) *api.Problem {
	why := "the content type is " + strconv.Quote(api.Clip(given))
	if kind == "application/x-www-form-urlencoded" {
		why += ", which curl adds by itself"
	}
	return api.NewProblem(api.UnsupportedMediaType, why+"; send "+strings.Join(allowed, " or ")+" (curl: -H 'Content-Type: "+allowed[0]+"')").On("Content-Type")
}

// firstCharge is the memory that a body is charged before its first byte. The rest is charged when this much has come: a caller
// that announces a long body and sends nothing keeps nobody else out.
const firstCharge = 1 << 20

// charges are the places of one body. A nil one holds nothing.
type charges []*admit.Place

func (c charges) release() {
	for _, p := range c {
		p.Release()
	}
}

// body reads the whole body, at most limit bytes, into memory that it holds until the returned charges are released.
func (c *call) body(n *Node, limit int64) ([]byte, charges, *api.Problem) {
	tooLarge := func() *api.Problem {
		return api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the body is longer than %d bytes", limit)).Within(limit)
	}
	length := c.r.ContentLength
	if length > limit {
		return nil, nil, tooLarge()
	}
	charge := length
	if charge < 0 {
		charge = limit // the length is not known before the end
	}
	if charge == 0 {
		return nil, nil, nil
	}
	place, err := n.memory.Enter(c.ctx, min(charge, firstCharge))
	if err != nil {
		return nil, nil, n.problem(c.ctx, err)
	}
	held := charges{place}
	src, stop := c.timed(n, c.ctx)
	defer stop()
	b, err := readSome(src, make([]byte, 0, min(charge, firstCharge)), length)
	if err == nil && charge > firstCharge && int64(len(b)) == firstCharge {
		// More may come. What waits here holds little, and is refused when no room comes free.
		if place, err = n.memory.Enter(c.ctx, charge-firstCharge); err != nil {
			held.release()
			return nil, nil, n.problem(c.ctx, err)
		}
		held = append(held, place)
		b, err = readSome(src, append(make([]byte, 0, charge), b...), length)
	}
	if err == nil && length < 0 && int64(len(b)) == limit {
		var more [1]byte
		var k int
		if k, err = io.ReadFull(src, more[:]); k > 0 {
			held.release()
			return nil, nil, tooLarge()
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		held.release()
		return nil, nil, n.bodyProblem(c.ctx, err)
	}
	c.read = c.read || int64(len(b)) == length
	return b, held, nil
}

// readSome appends what comes to b until its capacity is used, length bytes are there, or, for a length below 0, the stream ends.
func readSome(src io.Reader, b []byte, length int64) ([]byte, error) {
	for len(b) < cap(b) && int64(len(b)) != length {
		k, err := src.Read(b[len(b):cap(b)])
		b = b[:len(b)+k]
		if errors.Is(err, io.EOF) && int64(len(b)) != length {
			if length >= 0 {
				return b, io.ErrUnexpectedEOF
			}
			return b, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return b, err
		}
	}
	return b, nil
}

// timed returns the request's body as a reader on which no single read waits longer than the configured stall, and which
// fails at once when ctx ends. stop must be called when reading is over, before the reply; calling it again does nothing.
func (c *call) timed(n *Node, ctx context.Context) (src io.Reader, stop func()) {
	t := &timedReader{node: n, call: c, ctx: ctx, stall: n.cfg.Limits.BulkStall}
	unhook := context.AfterFunc(ctx, t.interrupt)
	c.writeBy(n, time.Now().Add(t.stall)) // the first read may ask the caller to go on, and an earlier reply has left its deadline
	return t, func() {
		unhook()
		t.end()
	}
}

// timedReader is a body with a deadline that moves.
//
// At the end of a body net/http begins to read on by itself, to learn whether the caller hangs up. A deadline that this reading
// meets ends the context of the connection, and with it every later call on it: from the end on there must be none.
type timedReader struct {
	node  *Node
	call  *call
	ctx   context.Context
	stall time.Duration
	next  time.Time // when the deadline is to be moved again

	mu   sync.Mutex
	over bool // no deadline is set any more; under mu
}

// interrupt makes a read under way fail, and all that follow.
func (t *timedReader) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.call.cut.Store(true) // the read may meet the end of the body all the same
	if err := t.call.conn.SetReadDeadline(time.Unix(1, 0)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		t.node.log.Debug("interrupt body", "error", err)
	}
}

// end takes the deadline away, for good.
func (t *timedReader) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	if err := t.call.conn.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		t.node.log.Debug("clear read deadline", "error", err)
	}
}

func (t *timedReader) Read(b []byte) (int, error) {
	if now := time.Now(); now.After(t.next) && !t.call.read {
		// Moved once for a while of reading, not for every read: a read waits at least stall, at most an eighth longer.
		t.next = now.Add(t.stall / 8)
		if err := t.call.conn.SetReadDeadline(t.next.Add(t.stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
	}
	if err := context.Cause(t.ctx); err != nil {
		return 0, err
	}
	n, err := t.call.r.Body.Read(b)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		t.call.read = true
		t.end()
		return n, err
	}
	t.call.stalled = errors.Is(err, os.ErrDeadlineExceeded)
	// The server cancels the request's context when a read fails, so that a plain cancellation says no more than err does. Any
	// other cause is why the read was interrupted.
	if cause := context.Cause(t.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return n, cause
	}
	return n, err
}

// bodyProblem says why a body could not be read to its end.
func (n *Node) bodyProblem(ctx context.Context, err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		again := *p
		return &again
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &api.Problem{Code: api.BodyTimeout, Detail: fmt.Sprintf("no byte of the body came for %v", n.cfg.Limits.BulkStall), Cause: err}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &api.Problem{Code: api.InvalidBody, Detail: "the body ended before the length that was announced", Cause: err}
	case context.Cause(ctx) != nil:
		return n.problem(ctx, context.Cause(ctx))
	}
	return &api.Problem{Code: api.InvalidBody, Detail: "the body could not be read to its end", Cause: err}
}
