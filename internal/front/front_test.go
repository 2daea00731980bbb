package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/obs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer returns a server that has what the config lacks.
func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	cfg.Metrics = obs.NewMetrics("test")
	l := &cfg.Limits
	for _, v := range []*time.Duration{&l.QueueWait, &l.BodyStall, &l.ReplyTime, &l.IdleTime} {
		if *v == 0 {
			*v = time.Minute
		}
	}
	for _, v := range []*int{&l.URLBytes, &l.HeaderBytes, &l.RequestQueue} {
		if *v == 0 {
			*v = 1 << 10
		}
	}
	for _, v := range []*int64{&l.RequestBytes, &l.ReplyRoom} {
		if *v == 0 {
			*v = 16 << 20
		}
	}
	return New(cfg)
}

// role is a role of a server with one call: it takes a body, holds a place of its gate, and answers.
type role struct {
	server *Server
	gate   *admit.Gate
	began  chan struct{} // where not nil: told of each call
	ends   chan struct{} // where not nil: calls end when it is closed, or with their context
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newRole(t *testing.T, cfg Config) *role {
	r := &role{gate: admit.New(GateSearches, 1, 0, time.Minute)}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	t.Cleanup(func() { r.cancel(nil) })
	cfg.Routes = []Route{
		{Name: "echo", Method: http.MethodPost, Path: "/echo", Params: []string{IndexParam, "id"}, Handler: r.echo},
		{Name: "alive", Method: http.MethodGet, Path: "/alive", Params: []string{}, Always: true, Handler: func(c *Call) *api.Problem { return c.JSON(200, []byte("{}")) }},
		{Name: "breaks", Method: http.MethodGet, Path: "/breaks", Handler: func(*Call) *api.Problem { panic("a defect") }},
		{Name: "metrics", Method: http.MethodGet, Path: "/metrics", Params: []string{}, Handler: func(c *Call) *api.Problem { return c.Serve(r.server.cfg.Metrics.Handler()) }},
	}
	r.server = newServer(t, cfg)
	return r
}

func (r *role) echo(c *Call) *api.Problem {
	if _, prob := c.Index(); prob != nil {
		return prob
	}
	if _, prob := c.ID(); prob != nil {
		return prob
	}
	if _, prob := c.Wants(TypeJSON); prob != nil {
		return prob
	}
	body, held, prob := c.Body(100 << 10)
	if prob != nil {
		return prob
	}
	defer held.Release()
	place, err := r.gate.Enter(c.Context(), 1)
	if err != nil {
		return r.server.Problem(c.Context(), err)
	}
	defer func() { c.Leave(place) }()
	if r.ends != nil {
		r.began <- struct{}{}
		select {
		case <-r.ends:
		case <-r.ctx.Done():
			return r.server.Problem(r.ctx, context.Canceled)
		}
	}
	return c.JSON(http.StatusOK, body)
}

// do sends a request to the handler.
func (r *role) do(method, target, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	r.server.Handler().ServeHTTP(rec, req)
	return rec
}

func TestCallsAreCheckedAndAnswered(t *testing.T) {
	r := newRole(t, Config{})
	long := strings.Repeat("x", 2<<10)
	for _, tt := range []struct {
		method, target, body string
		status               int
		holds                string
	}{
		{"POST", "/echo?id=1", `{"a":1}`, 200, `{"a":1}`},
		{"POST", "/echo?id=1", strings.Repeat("x", 90<<10), 200, "xxx"},
		{"HEAD", "/alive", "", 200, ""},
		{"POST", "/echo", "", 400, string(api.MissingParameter)},
		{"POST", "/echo?id=1&index=%2F", "", 400, string(api.InvalidIndexName)},
		{"POST", "/echo?id=1&id=2", "", 400, string(api.RepeatedParameter)},
		{"POST", "/echo?id=1&is=2", "", 400, string(api.UnknownParameter)},
		{"POST", "/echo?id=%FF", "", 400, string(api.InvalidUTF8)},
		{"POST", "/echo?id=%F", "", 400, string(api.InvalidParameter)},
		{"POST", "/echo?id=1", strings.Repeat("x", 101<<10), 413, string(api.BodyTooLarge)},
		{"POST", "/echo?id=" + long, "", 414, string(api.URITooLong)},
		{"GET", "/echo?id=1", "", 405, string(api.MethodNotAllowed)},
		{"GET", "/nothing", "", 404, string(api.NotFound)},
		{"GET", "//alive", "", 404, string(api.NotFound)},
		{"GET", "/breaks", "", 500, string(api.Internal)},
	} {
		rec := r.do(tt.method, tt.target, tt.body)
		if rec.Code != tt.status || !strings.Contains(rec.Body.String(), tt.holds) {
			t.Errorf("%s %.40s: %d %.100s, want %d with %s", tt.method, tt.target, rec.Code, rec.Body.String(), tt.status, tt.holds)
		}
		if rec.Header().Get(obs.RequestIDHeader) == "" {
			t.Errorf("%s %.40s: no id", tt.method, tt.target)
		}
		if r.gate.Used()+r.server.Memory().Used()+r.server.Replies().Used() != 0 || r.server.Drain().UnderWay() != 0 {
			t.Fatalf("%s %.40s: something was not given back", tt.method, tt.target)
		}
	}
	place, err := r.gate.TryEnter(1)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Release()
	if rec := r.do("POST", "/echo?id=1", "{}"); rec.Code != 429 || rec.Header().Get("Retry-After") == "" {
		t.Errorf("without a place: %d %s", rec.Code, rec.Body.String())
	}
	page := r.do("GET", "/metrics", "").Body.String()
	for _, want := range []string{`weft_refused_total{cause="too_many_searches"} 1`, "weft_admitted_request_bytes 0", "weft_panics_total 1"} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// slowWriter is a caller that takes nothing of an answer until it is let go.
type slowWriter struct {
	*httptest.ResponseRecorder
	begun chan struct{} // told of the first bytes
	takes chan struct{} // closed: they are taken
	once  sync.Once
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { w.begun <- struct{}{} })
	<-w.takes
	return w.ResponseRecorder.Write(b)
}

// TestLongAnswersOfReadsAreBounded: those that find no room keep their places, as many as have room once more, and the next is refused.
func TestLongAnswersOfReadsAreBounded(t *testing.T) {
	const long = 2 * SmallReply
	gate := admit.New(GateSearches, 100, 0, time.Minute)
	var s *Server
	s = newServer(t, Config{Limits: Limits{ReplyRoom: 2 * long}, Routes: []Route{{Name: "long", Method: http.MethodGet, Path: "/long", Params: []string{}, Handler: func(c *Call) *api.Problem {
		place, err := gate.Enter(c.Context(), 1)
		if err != nil {
			return s.Problem(c.Context(), err)
		}
		defer func() { c.LeaveRead(place) }()
		return c.JSON(http.StatusOK, make([]byte, long))
	}}}})
	w := &slowWriter{begun: make(chan struct{}), takes: make(chan struct{})}
	var callers sync.WaitGroup
	var list []*slowWriter
	for i := range 4 {
		one := &slowWriter{ResponseRecorder: httptest.NewRecorder(), begun: w.begun, takes: w.takes}
		list = append(list, one)
		callers.Go(func() { s.Handler().ServeHTTP(one, httptest.NewRequest("GET", "/long", nil)) })
		<-w.begun
		if places, want := gate.Used(), int64(max(0, i-1)); places != want {
			t.Errorf("with %d answers under way %d places are kept, want %d", i+1, places, want)
		}
	}
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/long", nil))
	if rec.Code != 429 || !strings.Contains(rec.Body.String(), string(api.RequestMemoryFull)) || rec.Header().Get("Retry-After") == "" || gate.Used() != 2 {
		t.Errorf("one more: %d %.200s, %d places", rec.Code, rec.Body.String(), gate.Used())
	}
	close(w.takes)
	callers.Wait()
	for _, one := range list {
		if one.Code != 200 || one.Body.Len() != long {
			t.Errorf("%d with %d bytes", one.Code, one.Body.Len())
		}
	}
	if gate.Used()+s.Replies().Used()+s.late.Used() != 0 {
		t.Error("something was not given back")
	}
	rec = httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/long", nil))
	if rec.Code != 200 {
		t.Errorf("afterwards: %d", rec.Code)
	}
}

// TestABodyThatTricklesEnds: a byte now and then is not enough, however long it is until the next. Where much has come before, it is.
func TestABodyThatTricklesEnds(t *testing.T) {
	r := newRole(t, Config{Limits: Limits{BodyStall: time.Second}}) // far more than a busy machine lets a goroutine wait
	if err := r.server.Listen(t.Context(), r.server.HTTP("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	r.server.Serve()
	for _, tt := range []struct {
		name       string
		first, all int
		status     string
	}{
		{"from the first byte", 0, 1000, "HTTP/1.1 408"},
		{"behind much", 10_000, 10_070, "HTTP/1.1 200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", r.server.Addr(HTTP))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}()
			if _, err := fmt.Fprintf(conn, "POST /echo?id=1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", tt.all, strings.Repeat("x", tt.first)); err != nil {
				t.Fatal(err)
			}
			answered := make(chan string, 1)
			go func() {
				b := make([]byte, len(tt.status))
				_, err := io.ReadFull(conn, b)
				answered <- fmt.Sprint(string(b), err)
			}()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for sent := tt.first; ; {
				select {
				case got := <-answered:
					if got != tt.status+"<nil>" {
						t.Errorf("after %d bytes: %q, want %s", sent, got, tt.status)
					}
					return
				case <-tick.C:
					if sent == tt.all {
						continue
					}
					if _, err := conn.Write([]byte{'x'}); err != nil {
						t.Log(err) // it was cut off
					}
					sent++
				}
			}
		})
	}
	if err := r.server.Shutdown(t.Context(), func() {}); err != nil {
		t.Error(err)
	}
	r.server.Wait()
}

// TestCallsWithoutABodyTakeNone: what a caller says where it is not read must not be taken for something else.
func TestCallsWithoutABodyTakeNone(t *testing.T) {
	did := 0
	s := newServer(t, Config{Routes: []Route{{Name: "do", Method: http.MethodPost, Path: "/do", Params: []string{}, Bodyless: true, Handler: func(c *Call) *api.Problem {
		did++
		return c.JSON(http.StatusOK, []byte("{}"))
	}}}})
	for _, tt := range []struct {
		name   string
		body   io.Reader
		length int64
		status int
	}{
		{"none", nil, 0, 200},
		{"empty, of a length that is not told", strings.NewReader(""), -1, 200},
		{"a byte", strings.NewReader("x"), 1, 400},
		{"a byte, of a length that is not told", strings.NewReader("x"), -1, 400},
	} {
		did = 0
		req := httptest.NewRequest("POST", "/do", tt.body)
		req.ContentLength = tt.length
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, req)
		if rec.Code != tt.status || (rec.Code == 200) != (did == 1) || rec.Code != 200 && !strings.Contains(rec.Body.String(), string(api.InvalidBody)) {
			t.Errorf("%s: %d %s, done %d times", tt.name, rec.Code, rec.Body.String(), did)
		}
	}
}

func TestErrorsThatEveryRoleMeets(t *testing.T) {
	ended, end := context.WithCancelCause(context.Background())
	end(ErrClosing)
	late, over := context.WithCancelCause(context.Background())
	over(ErrTimeout)
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		code api.Code
	}{
		{context.Background(), api.NewProblem(api.InvalidID, "an own problem"), api.InvalidID},
		{context.Background(), &admit.Refusal{Gate: GateReplies}, api.RequestMemoryFull},
		{context.Background(), ErrClosing, api.ShuttingDown},
		{context.Background(), context.Canceled, api.CallerGone},
		{ended, context.Canceled, api.ShuttingDown},
		{ended, api.NewProblem(api.InvalidID, "an own problem"), api.InvalidID},
		{late, context.DeadlineExceeded, api.Timeout},
		{late, errors.New("a defect"), api.Internal},
	} {
		p := Problem(tt.ctx, fmt.Errorf("do: %w", tt.err))
		if p.Code != tt.code {
			t.Errorf("%v: %s, want %s", tt.err, p.Code, tt.code)
		}
		if p.HTTPStatus() == 429 && p.RetryAfterMS == 0 {
			t.Errorf("%v: a refusal without retry_after_ms", tt.err)
		}
	}
}

// TestTheEndWaitsForCalls: calls under way are answered, those that come later are refused, and those that are always answered are so to
// the end.
func TestTheEndWaitsForCalls(t *testing.T) {
	r := newRole(t, Config{})
	r.began, r.ends = make(chan struct{}), make(chan struct{})
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- r.do("POST", "/echo?id=1", "{}") }()
	<-r.began
	down := make(chan error)
	interrupted := false
	go func() { down <- r.server.Shutdown(context.Background(), func() { interrupted = true }) }()
	for !r.server.Closing() {
		runtime.Gosched()
	}
	if rec := r.do("POST", "/echo?id=1", "{}"); rec.Code != 503 || !strings.Contains(rec.Body.String(), string(api.ShuttingDown)) {
		t.Errorf("a call that came late: %d %s", rec.Code, rec.Body.String())
	}
	if rec := r.do("GET", "/alive", ""); rec.Code != 200 {
		t.Errorf("a call that is always answered: %d", rec.Code)
	}
	close(r.ends)
	if rec := <-first; rec.Code != 200 {
		t.Errorf("the call under way: %d %s", rec.Code, rec.Body.String())
	}
	if err := <-down; err != nil || !interrupted {
		t.Errorf("%v, interrupted %v", err, interrupted)
	}
	r.server.Wait()
}

// TestTheEndCutsCallsOff: when the time to wait is over, calls are interrupted, and what they say is still sent.
func TestTheEndCutsCallsOff(t *testing.T) {
	r := newRole(t, Config{})
	r.began, r.ends = make(chan struct{}), make(chan struct{})
	if err := r.server.Listen(t.Context(), r.server.HTTP("127.0.0.1:0"), Binding{Protocol: "none"}); err != nil {
		t.Fatal(err)
	}
	r.server.Serve()
	if l := r.server.Listeners(); len(l) != 1 || l[0] != (Listener{HTTP, r.server.Addr(HTTP)}) || r.server.Addr("none") != "" {
		t.Errorf("listeners %v", l)
	}
	type answer struct {
		status int
		err    error
	}
	answered := make(chan answer)
	go func() {
		resp, err := http.Post("http://"+r.server.Addr(HTTP)+"/echo?id=1", TypeJSON, strings.NewReader("{}"))
		if err != nil {
			answered <- answer{0, err}
			return
		}
		answered <- answer{resp.StatusCode, resp.Body.Close()}
	}()
	<-r.began
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := r.server.Shutdown(over, func() { r.cancel(ErrClosing) })
	if late, ok := errors.AsType[*DrainError](err); !ok || late.Calls != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("end: %v", err)
	}
	r.server.Wait()
	if a := <-answered; a.err != nil || a.status != 503 {
		t.Errorf("the call that was interrupted: %+v", a)
	}
	<-r.server.Done()
	if err := r.server.Err(); err != nil {
		t.Errorf("the listener ended with %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestAListenerThatFails ends the server by itself, with the reason.
func TestAListenerThatFails(t *testing.T) {
	s := newServer(t, Config{})
	defect := errors.New("a defect")
	failing := Binding{Protocol: "other", Addr: "127.0.0.1:0", Server: func(lis net.Listener) *Listening {
		return &Listening{
			Listener: lis, Serve: func() error { return defect }, Closed: net.ErrClosed,
			Shutdown: func(context.Context) error { return nil }, Close: lis.Close,
		}
	}}
	if err := s.Listen(t.Context(), failing); err != nil {
		t.Fatal(err)
	}
	s.Ready()
	if s.Err() != nil {
		t.Error("an error before the end")
	}
	s.Serve()
	<-s.Done()
	if err := s.Err(); !errors.Is(err, defect) || !strings.Contains(err.Error(), "serve other on 127.0.0.1") {
		t.Errorf("ended with %v", err)
	}
	if err := s.Shutdown(t.Context(), func() {}); err != nil {
		t.Error(err)
	}
	s.Wait()
}

// TestLameDuck: for a while the end is told and nothing else happens.
func TestLameDuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRole(t, Config{LameDuck: time.Minute})
		began := time.Now()
		down := make(chan error)
		go func() { down <- r.server.Shutdown(t.Context(), func() {}) }()
		half := time.NewTimer(30 * time.Second)
		<-half.C
		if rec := r.do("POST", "/echo?id=1", "{}"); rec.Code != 200 || !r.server.Closing() {
			t.Errorf("status %d, closing %v", rec.Code, r.server.Closing())
		}
		if err := <-down; err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Stopwatch{Began: time.Now()}
		pass := func(n int) {
			t := time.NewTimer(time.Duration(n) * time.Microsecond)
			<-t.C
		}
		w.Waited(time.Second) // there is no such stage yet
		pass(3)
		w.Lap(bound.StageQueue)
		pass(5)
		w.UpTo("send")
		pass(7)
		w.UpTo("read")
		pass(11)
		w.UpTo("send")
		pass(13)
		w.Waited(2 * time.Microsecond)
		w.Lap("render")
		want := []api.Timing{{Stage: bound.StageQueue, Micros: 5}, {Stage: "send", Micros: 16}, {Stage: "read", Micros: 7}, {Stage: "render", Micros: 11}}
		if !slices.Equal(w.Laps, want) || w.Last() != 39 || w.Queued() != 2 {
			t.Errorf("%v, last %d, queued %d", w.Laps, w.Last(), w.Queued())
		}
		var sum int64
		for _, l := range w.Laps {
			sum += l.Micros
		}
		if sum != api.Micros(time.Since(w.Began)) {
			t.Errorf("the stages add up to %d", sum)
		}
	})
}

func TestReplyMemory(t *testing.T) {
	const step = ReplyCopies * replyStep
	gate := admit.New(GateMemory, 2*step, 0, 0)
	m := &ReplyMemory{}
	for _, tt := range []struct{ bytes, used int64 }{{0, 0}, {replyStep, 0}, {replyStep + 1, step}, {2 * replyStep, step}, {3 * replyStep, 2 * step}, {1, 2 * step}} {
		if err := m.Grow(gate, tt.bytes); err != nil || gate.Used() != tt.used {
			t.Errorf("%d bytes: %v, %d charged, want %d", tt.bytes, err, gate.Used(), tt.used)
		}
	}
	if err := m.Grow(gate, 3*replyStep+1); !errors.Is(err, admit.ErrRefused) {
		t.Errorf("over the limit: %v", err)
	}
	if len(m.Places()) != 2 {
		t.Errorf("%d places", len(m.Places()))
	}
	m.Release()
	if gate.Used() != 0 {
		t.Errorf("%d are charged at the end", gate.Used())
	}
}
