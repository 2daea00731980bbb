package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard"
)

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		runtime.Gosched()
	}
}

func TestAdmission(t *testing.T) {
	limits := Limits{Searches: 1, SearchQueue: 1, Writes: 1, WriteQueue: 1, Bulks: 1, BulkQueue: 1, QueueWait: time.Hour}
	s := newServer(t, Config{Limits: limits})
	s.put("default", `{"id":"1","t":"x"}`)
	tests := []struct {
		name string
		gate *admit.Gate
		code api.Code
		do   func() *answer
	}{
		{"search", s.node.searches, api.TooManySearches, func() *answer { return s.do("GET", "/search?q=x", "", "") }},
		{"document", s.node.searches, api.TooManySearches, func() *answer { return s.do("GET", "/doc?id=1", "", "") }},
		{"write", s.node.writes, api.TooManyWrites, func() *answer { return s.do("POST", "/index", "application/json", `{"id":"2"}`) }},
		{"delete", s.node.writes, api.TooManyWrites, func() *answer { return s.do("DELETE", "/index?id=9", "", "") }},
		{"new index", s.node.writes, api.TooManyWrites, func() *answer { return s.do("PUT", "/indexes/more", "", "") }},
		{"bulk", s.node.bulks, api.TooManyBulks, func() *answer { return s.bulk("default", `{"id":"3"}`) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			place, err := tt.gate.Enter(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			// One waits, the next is refused at once, and the one that waits is served when there is room.
			waited := make(chan *answer)
			go func() { waited <- tt.do() }()
			until(t, "a request waits", func() bool { return tt.gate.Waiting() == 1 })
			a := tt.do()
			p := a.problem(429, tt.code)
			if p["retry_after_ms"].(float64) < 1 || p["limit"] != 1.0 || a.header.Get("Retry-After") == "" {
				t.Errorf("refusal %v, Retry-After %q", p, a.header.Get("Retry-After"))
			}
			place.Release()
			if got := <-waited; got.status/100 != 2 {
				t.Errorf("the one that waited: %d %s", got.status, got.body)
			}
			if tt.gate.Used() != 0 || tt.gate.Waiting() != 0 {
				t.Error("a place was not given back")
			}
		})
	}
	page := string(s.do("GET", "/metrics", "", "").want(200).body)
	for _, want := range []string{`weft_refused_total{cause="too_many_searches"} 2`, `weft_refused_total{cause="too_many_writes"} 3`, `weft_refused_total{cause="too_many_bulks"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestBodiesAreChargedBeforeTheyAreRead(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{DocumentBytes: 1 << 20, RequestBytes: 20 << 20, QueueWait: time.Millisecond}})
	place, err := s.node.memory.Enter(context.Background(), 20<<20)
	if err != nil {
		t.Fatal(err)
	}
	body := &countingReader{Reader: strings.NewReader(`{"id":"1"}`)}
	req, err := http.NewRequest("POST", "/index", body)
	if err != nil {
		t.Fatal(err)
	}
	req.RequestURI, req.ContentLength = "/index", 10
	rec := newRecorder()
	s.node.Handler().ServeHTTP(rec, req)
	if rec.status != 429 || !strings.Contains(rec.body.String(), string(api.RequestMemoryFull)) || body.n != 0 {
		t.Errorf("status %d, %d bytes were read: %s", rec.status, body.n, rec.body.String())
	}
	s.bulk("default", `{"id":"1"}`).problem(429, api.RequestMemoryFull)
	place.Release()
	s.put("default", `{"id":"1"}`)
}

// TestIdleBodiesKeepNobodyOut announces bodies that together are far over the memory for bodies, and sends next to nothing of them.
func TestIdleBodiesKeepNobodyOut(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", Limits: Limits{RequestBytes: 64 << 20, QueueWait: time.Hour}})
	const idle = 20
	for i := range idle {
		conn, err := net.Dial("tcp", s.node.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		length := "Content-Length: 16000000\r\n\r\n{"
		if i%2 == 0 {
			length = "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
		}
		if _, err := io.WriteString(conn, "POST /index HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+length); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all have begun", func() bool { return s.node.memory.Used() == idle*front.FirstCharge })
	s.put("default", `{"id":"1"}`)
	s.bulk("default", `{"id":"2"}`).want(200)
}

// TestBodiesOfEveryLength sends documents around the sizes at which a body is charged and limited.
func TestBodiesOfEveryLength(t *testing.T) {
	const limit = 2 << 20
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", Limits: Limits{DocumentBytes: limit}})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	const head, tail = `{`, `"id":"1"}`
	for _, size := range []int{100, front.FirstCharge - 1, front.FirstCharge, front.FirstCharge + 1, limit - 1, limit, limit + 1, 2 * limit} {
		for _, chunked := range []bool{false, true} {
			text := head + strings.Repeat(" ", size-len(head)-len(tail)) + tail
			var body io.Reader = strings.NewReader(text)
			if chunked {
				body = io.MultiReader(body) // of a length that the client does not know
			}
			resp, err := client.Post("http://"+s.node.Addr()+"/index", "application/json", body)
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			reply, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				t.Fatal(err)
			}
			want := 200
			if size > limit {
				want = 413
			}
			if resp.StatusCode != want {
				t.Errorf("%d bytes, chunked %v: %d %s", size, chunked, resp.StatusCode, reply)
			}
		}
	}
	until(t, "all memory is given back", func() bool { return s.node.memory.Used() == 0 })
}

type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

func (c *countingReader) Close() error { return nil }

// recorder is a ResponseWriter that can be looked at.
type recorder struct {
	status int
	header http.Header
	body   strings.Builder
}

func newRecorder() *recorder                         { return &recorder{header: http.Header{}} }
func (r *recorder) Header() http.Header              { return r.header }
func (r *recorder) WriteHeader(status int)           { r.status = status }
func (r *recorder) Write(b []byte) (int, error)      { return r.body.Write(b) }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func TestMemtablesOfAllIndexesAreBounded(t *testing.T) {
	s := newServer(t, Config{Engine: Engine{AllMemtableBytes: 1}})
	s.put("a", `{"id":"1","t":"x"}`)
	until(t, "memory is looked at again", func() bool {
		s.node.memtables.mu.Lock()
		defer s.node.memtables.mu.Unlock()
		s.node.memtables.mu.looked = time.Time{}
		return true
	})
	// The one document in memory is over the limit: writes are refused until it was written out, which the refusal begins.
	refused := false
	until(t, "there is room again", func() bool {
		a := s.do("POST", "/index?index=b", "application/json", `{"id":"1"}`)
		if a.status == 429 {
			refused = true
			if p := a.problem(429, api.MemtableFull); p["retry_after_ms"] == nil || p["limit"] != 1.0 {
				t.Errorf("refusal %v", p)
			}
			return false
		}
		a.want(200)
		return true
	})
	if !refused {
		t.Log("the memtable was written out before the second write")
	}
}

func TestTimeoutWhileWaiting(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{Searches: 1}})
	s.put("default", `{"id":"1","t":"x"}`)
	place, err := s.node.searches.Enter(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Release()
	s.do("GET", "/search?q=x&timeout_ms=5", "", "").problem(504, api.Timeout)
}

// bigIndex has enough documents for the engine to look at its context while it searches.
const bigDocs = 40_000

func bigIndex(t *testing.T, s *server) {
	t.Helper()
	var b strings.Builder
	for i := range bigDocs {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"t\":\"x y%d\"}\n", i, i%2)
	}
	s.bulk("default", b.String()).want(200)
}

// countdown is a context that ends when it has been looked at a number of times: a clock that counts work.
type countdown struct {
	context.Context
	left int
	err  error
}

func (c *countdown) Err() error {
	if c.left > 0 {
		c.left--
		return nil
	}
	return c.err
}

func TestTimeIsOverWhileSearching(t *testing.T) {
	s := newServer(t, Config{})
	bigIndex(t, s)
	l, err := s.node.catalog.use(context.Background(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	run := func(ctx context.Context, params string) (*api.SearchReply, *api.Problem) {
		t.Helper()
		snap := l.eng.Snapshot()
		defer snap.Release()
		values, prob := front.ReadParams(params)
		if prob != nil {
			t.Fatal(prob)
		}
		req, prob := api.ParseSearch(values, s.node.searchLimits())
		if prob != nil {
			t.Fatal(prob)
		}
		x, err := s.node.newExecution(req, &front.Stopwatch{Began: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		defer x.release()
		return x.run(ctx, l.index, snap)
	}
	late := func(looks int) context.Context {
		return &countdown{context.Background(), looks, context.DeadlineExceeded}
	}
	const q = "q=x+AND+(y0+OR+y1)+NOT+zz"
	if _, prob := run(late(0), q); prob == nil || prob.Code != api.Timeout {
		t.Errorf("not allowed: %+v", prob)
	}
	if _, prob := run(late(1), q+"&allow_partial=false"); prob == nil || prob.Code != api.Timeout {
		t.Errorf("refused: %+v", prob)
	}
	// However late the time is over, the answer is either whole or says that it is not.
	partial := 0
	for looks := range 1000 {
		r, prob := run(late(looks), q+"&allow_partial=true")
		if prob != nil {
			t.Fatalf("after %d looks: %+v", looks, prob)
		}
		if r.Coverage.Complete {
			if r.Total != bigDocs || r.Relation != "eq" || r.Shards.OK != 1 {
				t.Errorf("a complete answer %+v", r)
			}
			break
		}
		partial++
		if r.Coverage.DocsCovered != 0 || r.Coverage.DocsTotal != bigDocs || r.Shards.Failed != 1 || r.Shards.OK != 0 ||
			r.Shards.Outcomes[0].Outcome != api.TimedOut || r.Relation != "gte" || r.Total > bigDocs || len(r.Notes) == 0 {
			t.Errorf("a partial answer after %d looks: %+v", looks, r)
		}
	}
	if partial < 2 {
		t.Errorf("only %d partial answers", partial)
	}
	if _, prob := run(late(0), q+"&allow_partial=true&min_coverage=0.5"); prob == nil || prob.Code != api.Incomplete || !strings.Contains(string(prob.Extra), `"complete":false`) {
		t.Errorf("below the floor: %+v", prob)
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	if _, prob := run(gone, q+"&allow_partial=true"); prob == nil || prob.Code != api.CallerGone {
		t.Errorf("a caller that hung up: %+v", prob)
	}
	if r, prob := run(context.Background(), q+"&min_coverage=1"); prob != nil || r.Total != bigDocs || !r.Coverage.Complete {
		t.Errorf("in time: %+v %+v", r, prob)
	}
}

func TestCallerHangsUpWhileWaiting(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", Limits: Limits{Searches: 1, QueueWait: time.Hour}})
	s.put("default", `{"id":"1","t":"x"}`)
	place, err := s.node.searches.Enter(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Release()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx, hangUp := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.node.Addr()+"/search?q=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			err = errors.Join(errors.New("answered"), resp.Body.Close())
		}
		ended <- err
	}()
	until(t, "the search waits", func() bool { return s.node.searches.Waiting() == 1 })
	hangUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	until(t, "the search is gone", func() bool { return s.node.searches.Waiting() == 0 })
	until(t, "it is counted", func() bool {
		return strings.Contains(string(s.do("GET", "/metrics", "", "").body), `weft_http_requests_total{code="499",route="search"} 1`)
	})
}

func TestSlowBodyEnds(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", Limits: Limits{BulkStall: 50 * time.Millisecond}})
	for name, tt := range map[string]struct {
		head, body, want string
	}{
		"one document":       {"POST /index HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n", `{"id":`, "HTTP/1.1 408"},
		"bulk, nothing yet":  {"POST /index/bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", `{"id":"1"`, "HTTP/1.1 408"},
		"bulk, some applied": {"POST /index/bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", "{\"id\":\"1\"}\n{\"id\":", "HTTP/1.1 207"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", s.node.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}()
			if _, err := io.WriteString(conn, tt.head+tt.body); err != nil {
				t.Fatal(err)
			}
			status, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.HasPrefix(status, tt.want) {
				t.Fatalf("%q, %v; want %s", status, err, tt.want)
			}
		})
	}
}

func TestHeadersAreBounded(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", Limits: Limits{HeaderBytes: 4 << 10, URLBytes: 4 << 10}})
	// Over the limit by a little: a problem document says so.
	p := s.sendHeader("GET", "/healthz", http.Header{"X-Much": {strings.Repeat("a", 4<<10)}}, "").problem(431, api.HeadersTooLarge)
	if p["limit"] != 4096.0 {
		t.Errorf("refusal %v", p)
	}
	s.sendHeader("GET", "/healthz", http.Header{"X-Much": {strings.Repeat("a", 3<<10)}}, "").want(200)
	conn, err := net.Dial("tcp", s.node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Much: "+strings.Repeat("a", 8<<10)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answered := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answered, nil)
	if err != nil || resp.StatusCode != 431 || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%+v, %v", resp, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	// Far over it reading ends. The server may close before all of it was taken: only the reply matters.
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Much: "+strings.Repeat("a", 64<<10)+"\r\n\r\n"); err != nil {
			t.Logf("send: %v", err)
		}
	}()
	status, err := answered.ReadString('\n')
	if err != nil || !strings.HasPrefix(status, "HTTP/1.1 431") {
		t.Fatalf("%q, %v", status, err)
	}
	<-sent
}

func TestPanicBecomesAProblem(t *testing.T) {
	var log strings.Builder
	s := startServer(t, Config{DataDir: t.TempDir(), Log: textLogger(&log)}, withApply(func(context.Context, []shard.Op, func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		panic("a bug")
	}))
	p := s.do("POST", "/index", "application/json", `{"id":"1"}`).problem(500, api.Internal)
	if strings.Contains(fmt.Sprint(p), "a bug") {
		t.Errorf("the panic shows: %v", p)
	}
	if got := log.String(); strings.Count(got, "panic in request") != 1 || !strings.Contains(got, p["request_id"].(string)) || !strings.Contains(got, "a bug") {
		t.Errorf("log %s", got)
	}
	if page := s.do("GET", "/metrics", "", "").want(200); !strings.Contains(string(page.body), "weft_panics_total 1") {
		t.Error("the panic is not counted")
	}
	if s.node.writes.Used() != 0 || s.node.memory.Used() != 0 {
		t.Error("the panic kept its place")
	}
	s.do("GET", "/healthz", "", "").want(200)
}

// withOpen replaces how engines are opened.
func withOpen(open func(ctx context.Context, cfg shard.Config, next func() (engine, error)) (engine, error)) func(*Node) {
	return func(n *Node) {
		real := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			return open(ctx, cfg, func() (engine, error) { return real(ctx, cfg) })
		}
	}
}

func TestDamagedIndexIsNamedAndOthersServe(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	s.put("good", `{"id":"1","t":"x"}`)
	s.put("bad", `{"id":"1","t":"x"}`)
	if err := s.node.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, Config{DataDir: dir}, withOpen(func(_ context.Context, cfg shard.Config, next func() (engine, error)) (engine, error) {
		if cfg.Collection == "bad" {
			return nil, fmt.Errorf("read /srv/data/x: %w", segment.ErrCorrupt)
		}
		return next()
	}))
	ready := s.do("GET", "/readyz", "", "").want(200)
	if !strings.Contains(string(ready.body), `"failed":[{"index":"bad","reason":"a file of it is damaged`) || strings.Contains(string(ready.body), "/srv") {
		t.Errorf("%s", ready.body)
	}
	s.do("GET", "/search?index=bad", "", "").problem(503, api.IndexUnavailable)
	s.do("POST", "/index?index=bad", "application/json", `{"id":"2"}`).problem(503, api.IndexUnavailable)
	s.bulk("bad", `{"id":"2"}`).problem(503, api.IndexUnavailable)
	s.do("GET", "/doc?index=bad&id=1", "", "").problem(503, api.IndexUnavailable)
	if _, total := s.ids("/search?index=good&q=x"); total != 1 {
		t.Errorf("the other index has %v", total)
	}
	if list := s.do("GET", "/indexes", "", "").want(200); !strings.Contains(string(list.body), `"name":"bad","docs":0,"segments":0,"bytes":0,"schema":"","dynamic":false,"state":"unavailable"`) {
		t.Errorf("%s", list.body)
	}
	s.do("DELETE", "/indexes/bad", "", "").want(200)
	s.do("GET", "/search?index=bad", "", "").problem(404, api.IndexNotFound)
}

func TestReadinessShowsProgress(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	s.put("quick", `{"id":"1"}`)
	s.put("slow", `{"id":"1"}`)
	if err := s.node.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	withOpen(func(_ context.Context, cfg shard.Config, next func() (engine, error)) (engine, error) {
		if cfg.Collection == "slow" {
			<-release
		}
		return next()
	})(n)
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s = &server{t: t, node: n}
	until(t, "one of two is open", func() bool { return n.Ready().Open == 1 })
	p := s.do("GET", "/readyz", "", "").problem(503, api.NotReady)
	if p["ready"] != false || p["indexes"].(map[string]any)["total"] != 2.0 || p["indexes"].(map[string]any)["open"] != 1.0 {
		t.Errorf("progress %v", p)
	}
	if _, total := s.ids("/search?index=quick"); total != 1 {
		t.Errorf("the open one has %v", total)
	}
	// A call to the one that is not there yet waits for it.
	got := make(chan *answer)
	go func() { got <- s.do("GET", "/search?index=slow", "", "") }()
	close(release)
	if a := <-got; a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	<-n.Opened()
	s.do("GET", "/readyz", "", "").want(200)
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestShutdownDrains(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	s := startServer(t, Config{DataDir: t.TempDir(), HTTPAddr: "127.0.0.1:0"}, withApply(
		func(_ context.Context, _ []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
			close(inside)
			<-release
			return next()
		}))
	got := make(chan *answer)
	go func() { got <- s.do("POST", "/index", "application/json", `{"id":"1"}`) }()
	<-inside
	closed := make(chan error)
	go func() { closed <- s.node.Close(context.Background()) }()
	until(t, "the node is closing", func() bool { return s.node.Ready().Closing })
	s.do("GET", "/readyz", "", "").problem(503, api.ShuttingDown)
	s.do("GET", "/search", "", "").problem(503, api.ShuttingDown)
	s.do("GET", "/healthz", "", "").want(200)
	close(release)
	if a := <-got; a.status != 200 {
		t.Errorf("the call under way: %d %s", a.status, a.body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	<-s.node.Done()
	if err := s.node.Err(); err != nil {
		t.Error(err)
	}
}

// TestLameDuck closes a node that is to go on for a while: it says that it is not ready and answers everything else.
func TestLameDuck(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0", LameDuck: time.Hour})
	s.put("default", `{"id":"1","t":"x"}`)
	ctx, enough := context.WithCancel(context.Background())
	closed := make(chan error)
	go func() { closed <- s.node.Close(ctx) }()
	until(t, "the node is closing", func() bool { return s.node.Ready().Closing })
	if p := s.do("GET", "/readyz", "", "").problem(503, api.ShuttingDown); p["ready"] != false {
		t.Errorf("%v", p)
	}
	s.put("default", `{"id":"2","t":"x"}`)
	resp, err := http.Get("http://" + s.node.Addr() + "/search?q=x")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
		t.Errorf("a search on a new connection: %d, %v", resp.StatusCode, err)
	}
	http.DefaultClient.CloseIdleConnections()
	enough() // ends the waiting: nothing is under way
	if err := <-closed; err != nil {
		if _, ok := errors.AsType[*DrainError](err); !ok {
			t.Error(err)
		}
	}
	s.do("GET", "/search", "", "").problem(503, api.ShuttingDown)
}

func TestShutdownInterruptsWhatDoesNotEnd(t *testing.T) {
	inside := make(chan struct{})
	n, err := New(Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	withApply(func(ctx context.Context, _ []shard.Op, _ func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		close(inside)
		<-ctx.Done()
		return nil, ctx.Err()
	})(n)
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, node: n}
	got := make(chan *answer)
	go func() { got <- s.do("POST", "/index", "application/json", `{"id":"1"}`) }()
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no patience
	err = n.Close(ctx)
	late, ok := errors.AsType[*DrainError](err)
	if !ok || late.Calls != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	// One sentence, which speaks of no part of the program.
	if got := err.Error(); got != "1 call had not ended when the time for it was over, and was cut off" {
		t.Errorf("message %q", got)
	}
	(<-got).problem(503, api.ShuttingDown)
}

// TestBulkHearsOfTheShutdown cuts off a bulk load whose sender has not ended: the reply tells what is in.
func TestBulkHearsOfTheShutdown(t *testing.T) {
	s := newServer(t, Config{HTTPAddr: "127.0.0.1:0"})
	s.put("default", `{"id":"0"}`)
	conn, err := net.Dial("tcp", s.node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := io.WriteString(conn, "POST /index/bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"id\":\"1\"}\n{\"id\":\"2\"}\n"); err != nil {
		t.Fatal(err)
	}
	until(t, "the load is under way", func() bool { return s.node.bulks.Used() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no patience
	if late, ok := errors.AsType[*DrainError](s.node.Close(ctx)); !ok || late.Calls != 1 {
		t.Errorf("close: %v", late)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	// Whether the lines were read before the end is a matter of time; what was not is named.
	if !strings.Contains(string(body), string(api.ShuttingDown)) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestDeletingAnIndexEndsItsCalls(t *testing.T) {
	inside := make(chan struct{})
	s := startServer(t, Config{DataDir: t.TempDir()}, withApply(func(ctx context.Context, _ []shard.Op, _ func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		close(inside)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	got := make(chan *answer)
	go func() { got <- s.do("POST", "/index", "application/json", `{"id":"1"}`) }()
	<-inside
	s.do("DELETE", "/indexes/default", "", "").want(200)
	(<-got).problem(409, api.IndexDeleted)
}

func TestConcurrentCallsOfAllKinds(t *testing.T) {
	s := newServer(t, Config{})
	var wg sync.WaitGroup
	const workers, rounds = 4, 15
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				id := fmt.Sprintf("%d-%d", w, i)
				s.put("default", `{"id":"`+id+`","t":"common w`+fmt.Sprint(w)+`"}`)
				s.do("GET", "/doc?id="+id, "", "").want(200)
				// What was acknowledged is in the next search, also beside other writers.
				if _, total := s.ids("/search?limit=1&q=w" + fmt.Sprint(w)); total != float64(i+1) {
					t.Errorf("worker %d finds %v after %d writes", w, total, i+1)
				}
				s.do("GET", "/indexes", "", "").want(200)
				name := fmt.Sprintf("own%d", w)
				s.put(name, `{"id":"1"}`)
				if i%5 == 4 {
					s.do("DELETE", "/indexes/"+name, "", "").want(200)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range rounds {
				s.do("GET", "/metrics", "", "").want(200)
				s.do("GET", "/readyz", "", "").want(200)
			}
		})
	}
	wg.Wait()
	if _, total := s.ids("/search?q=common"); total != workers*rounds {
		t.Errorf("%v documents at the end", total)
	}
}

// TestOneIndexForManyFirstWriters creates an index from many calls at once.
func TestOneIndexForManyFirstWriters(t *testing.T) {
	s := newServer(t, Config{})
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() { s.put("new", fmt.Sprintf(`{"id":"%d","f%d":"x"}`, w, w)) })
	}
	wg.Wait()
	if _, total := s.ids("/search?index=new"); total != 12 {
		t.Errorf("%v documents", total)
	}
	if list := s.do("GET", "/indexes", "", "").want(200).json()["indexes"].([]any); len(list) != 1 {
		t.Errorf("%d indexes", len(list))
	}
}

// deafWriter is a caller that does not read: the first byte of its reply waits for hears.
type deafWriter struct {
	*recorder
	began, hears chan struct{}
	once         sync.Once
}

func newDeafWriter() *deafWriter {
	return &deafWriter{recorder: newRecorder(), began: make(chan struct{}), hears: make(chan struct{})}
}

func (d *deafWriter) Write(b []byte) (int, error) {
	d.once.Do(func() { close(d.began) })
	<-d.hears
	return d.recorder.Write(b)
}

// TestCallersThatDoNotReadHoldNothing lets calls of all kinds wait for their callers, and deletes the index under them.
func TestCallersThatDoNotReadHoldNothing(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{Searches: 1, Writes: 1, Bulks: 1, SearchQueue: 1, WriteQueue: 1, BulkQueue: 1, QueueWait: time.Hour}})
	long := `{"id":"1","t":"` + strings.Repeat("x ", front.SmallReply) + `"}`
	s.put("default", long)
	var calls sync.WaitGroup
	var deaf []*deafWriter
	for _, tt := range []struct{ method, target, body string }{
		{"GET", "/search?q=x", ""},
		{"POST", "/search", `{"q":"x"}`},
		{"GET", "/doc?id=1", ""},
		{"POST", "/index", `{"id":"2"}`},
		{"DELETE", "/index?id=2", ""},
		{"POST", "/index/bulk", `{"id":"2"}`},
		{"POST", "/index/bulk", strings.Repeat("x\n", 5000)},
		{"PUT", "/indexes/default", ""},
		{"GET", "/indexes/default", ""},
		{"GET", "/indexes", ""},
	} {
		w := newDeafWriter()
		deaf = append(deaf, w)
		req, err := http.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.RequestURI = tt.target
		calls.Go(func() { s.node.Handler().ServeHTTP(w, req) })
		<-w.began
		for name, gate := range map[string]*admit.Gate{"searches": s.node.searches, "writes": s.node.writes, "bulks": s.node.bulks, "memory": s.node.memory} {
			if used := gate.Used(); used != 0 {
				t.Errorf("%s %s: the gate of %s has given out %d", tt.method, tt.target, name, used)
			}
		}
	}
	if s.node.front.Replies().Used() < 4*front.SmallReply {
		t.Errorf("only %d bytes of long replies are charged", s.node.front.Replies().Used())
	}
	s.do("DELETE", "/indexes/default", "", "").want(200)
	for _, w := range deaf {
		close(w.hears)
	}
	calls.Wait()
	for i, w := range deaf {
		if w.body.Len() == 0 || w.status >= 500 {
			t.Errorf("call %d: %d %.100s", i, w.status, w.body.String())
		}
	}
	if s.node.front.Replies().Used() != 0 {
		t.Error("the memory of a reply was not given back")
	}
}

// TestLongRepliesAreBounded: when the memory of replies is full a search keeps its place until its reply was taken.
func TestLongRepliesAreBounded(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1","t":"`+strings.Repeat("x ", front.SmallReply)+`"}`)
	full, err := s.node.front.Replies().Enter(context.Background(), s.node.front.Replies().Limit())
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	send := func(target string) *deafWriter {
		w := newDeafWriter()
		req := httptest.NewRequest("GET", target, nil)
		calls.Go(func() { s.node.Handler().ServeHTTP(w, req) })
		<-w.began
		return w
	}
	long, short := send("/search?q=x"), send("/search?q=x&limit=0")
	if used := s.node.searches.Used(); used != 1 {
		t.Errorf("%d places are held, want that of the long reply", used)
	}
	full.Release()
	close(long.hears)
	close(short.hears)
	calls.Wait()
	if used := s.node.searches.Used(); used != 0 || s.node.front.Replies().Used() != 0 {
		t.Errorf("%d places are held at the end", used)
	}
}

// TestLongDocumentsAreAnalysedWithinTheirMemory sends long documents at once, alone and in a load, while the engine holds on to
// each: the memory that they are charged stays within the limit, and short ones pass.
func TestLongDocumentsAreAnalysedWithinTheirMemory(t *testing.T) {
	entered, goOn := make(chan int), make(chan struct{})
	limits := Limits{DocumentBytes: 2 << 20, RequestBytes: 64 << 20, QueueWait: time.Hour}
	s := startServer(t, Config{DataDir: t.TempDir(), Limits: limits}, withApply(
		func(_ context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
			if size := len(ops[0].Doc.Source); size > longDocument {
				entered <- size
				<-goOn
			}
			return next()
		}))
	s.put("default", `{"id":"0","t":"x"}`)
	const n = 6
	replies := make(chan *answer, n)
	for i := range n {
		// From a part of the memory to more than there is.
		doc := fmt.Sprintf(`{"id":"%d","t":["%s"]}`, i, strings.Repeat("abcdefghi ", (i+1)*(300<<10)/10))
		go func() {
			if i%2 == 0 {
				replies <- s.do("POST", "/index", "application/json", doc)
			} else {
				replies <- s.bulk("default", doc)
			}
		}()
	}
	for range n {
		size := <-entered
		// Up to front.LongLine, a line of a load belongs to what the load is charged.
		if used := s.node.analyses.Used(); used > limits.RequestBytes || size > front.LongLine && used < analysisFactor*(300<<10) {
			t.Errorf("%d bytes are charged, with a document of %d", used, size)
		}
		s.put("default", `{"id":"short","t":"x"}`)
		goOn <- struct{}{}
	}
	for range n {
		(<-replies).want(200)
	}
	if used := s.node.analyses.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
}

// slowReader takes the parts of a reply and remembers by when each had to be taken.
type slowReader struct {
	*recorder
	by     time.Time
	limits []time.Duration
}

func (s *slowReader) SetWriteDeadline(at time.Time) error {
	s.by = at
	return nil
}

func (s *slowReader) Write(b []byte) (int, error) {
	s.limits = append(s.limits, time.Until(s.by))
	return s.recorder.Write(b)
}

// TestRepliesHaveATimeToBeTaken looks at the deadlines of a long reply: one for each part, and one for all of them.
func TestRepliesHaveATimeToBeTaken(t *testing.T) {
	for _, whole := range []time.Duration{time.Minute, time.Second} {
		s := newServer(t, Config{Limits: Limits{ReplyTime: whole}})
		s.put("default", `{"id":"1","t":"`+strings.Repeat("x ", 2*front.SmallReply)+`"}`)
		w := &slowReader{recorder: newRecorder()}
		s.node.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/search?q=x", nil))
		if len(w.limits) != 5 || w.status != 200 {
			t.Fatalf("status %d, %d parts", w.status, len(w.limits))
		}
		for _, limit := range w.limits {
			if most := min(whole, front.ReplyStall); limit > most || limit < most/2 {
				t.Errorf("a part may take %v, want nearly %v", limit, most)
			}
		}
		if m := (&answer{t: t, body: []byte(w.body.String())}).json(); m["total"] != 1.0 {
			t.Errorf("the parts make %.200s", w.body.String())
		}
	}
}

// TestIndexMadeBeforeTheOthersAreOpened: a call may be faster than the start, and what it makes is opened once.
func TestIndexMadeBeforeTheOthersAreOpened(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	s := startServer(t, cfg, nil)
	s.put("old", `{"id":"1","t":"x"}`)
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, cfg, func(n *Node) { (&server{t: t, node: n}).put("new", `{"id":"1","t":"x"}`) })
	for _, index := range []string{"old", "new"} {
		if _, total := again.ids("/search?q=x&index=" + index); total != 1 {
			t.Errorf("%s: %v documents", index, total)
		}
	}
	if r := again.node.Ready(); !r.Ready || r.Open != 2 {
		t.Errorf("%+v", r)
	}
}
