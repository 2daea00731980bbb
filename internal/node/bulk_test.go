package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/shard"
)

const ndjson = "application/x-ndjson"

// testChunk is the size of a bulk chunk in these tests, in documents.
const testChunk = 200

func smallChunks(n *Node) { n.chunkDocs = testChunk }

func (s *server) bulk(index, body string) *answer {
	s.t.Helper()
	return s.do("POST", "/index/bulk?index="+index, ndjson, body)
}

// failures lists line, id and code of the errors of a bulk reply.
func failures(m map[string]any) []string {
	var out []string
	for _, e := range m["errors"].([]any) {
		f := e.(map[string]any)
		out = append(out, fmt.Sprintf("%v %v %v", f["line"], f["id"], f["code"]))
	}
	return out
}

func TestBulk(t *testing.T) {
	tests := []struct {
		name, body                  string
		status                      int
		indexed, failed, duplicates float64
		errors                      []string
	}{
		{"nothing", "", 200, 0, 0, 0, nil},
		{"blank lines only", "\n  \r\n\t\n", 200, 0, 0, 0, nil},
		{"one", `{"id":"1","t":"x"}`, 200, 1, 0, 0, nil},
		{"line ends, blank lines, a byte order mark", "\xEF\xBB\xBF{\"id\":\"1\"}\r\n\n  {\"id\":\"2\"}  \n", 200, 2, 0, 0, nil},
		{"duplicates", "{\"id\":\"1\",\"t\":\"a\"}\n{\"id\":\"2\"}\n{\"id\":\"1\",\"t\":\"b\"}\n{\"id\":\"1\",\"t\":\"c\"}\n", 200, 4, 0, 2, nil},
		{"some", "{\"id\":\"1\",\"n\":1}\n\nnope\n{\"id\":\"2\",\"n\":\"text\"}\n{\"n\":2}\n{\"id\":\"3\",\"n\":3}\n", 207, 2, 3, 0, []string{"3  invalid_json", "4 2 type_conflict", "5  missing_id"}},
		{"types within one bulk", "{\"id\":\"1\",\"a\":1}\n{\"id\":\"2\",\"b\":true}\n{\"id\":\"3\",\"a\":true}\n", 207, 2, 1, 0, []string{"3 3 type_conflict"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, Config{})
			m := s.bulk("default", tt.body).want(tt.status).json()
			if m["indexed"] != tt.indexed || m["failed"] != tt.failed || m["duplicates"] != tt.duplicates || m["ok"] != (tt.failed == 0) {
				t.Errorf("reply %v", m)
			}
			groups := min(tt.indexed, 1)
			if m["shards"] != groups || m["members"] != groups || m["members_ok"] != groups {
				t.Errorf("members of %v", m)
			}
			if d := cmp.Diff(tt.errors, failures(m)); d != "" {
				t.Error(d)
			}
			if tt.indexed > 0 {
				if _, total := s.ids("/search"); total != tt.indexed-tt.duplicates {
					t.Errorf("%v documents are there", total)
				}
			}
		})
	}
}

func TestBulkOfOnlyBadDocuments(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{BulkErrors: 2}})
	p := s.bulk("fresh", "{}\n[]\n1\nnope\n").problem(400, api.NothingApplied)
	if p["failed"] != 4.0 || p["indexed"] != 0.0 || len(p["errors"].([]any)) != 2 || p["errors_omitted"] != 2.0 || p["ok"] != false {
		t.Errorf("problem %v", p)
	}
	s.do("GET", "/indexes/fresh", "", "").problem(404, api.IndexNotFound)
}

func TestBulkTheLaterOfTwoWins(t *testing.T) {
	s := newServer(t, Config{})
	s.bulk("default", "{\"id\":\"1\",\"t\":\"old\"}\n{\"id\":\"1\",\"t\":\"new\"}\n").want(200)
	if got := s.do("GET", "/doc?id=1", "", "").want(200); !strings.Contains(string(got.body), "new") {
		t.Errorf("%s", got.body)
	}
}

func TestBulkOfManyChunks(t *testing.T) {
	s := startServer(t, Config{DataDir: t.TempDir(), Limits: Limits{BulkIDs: 5000}}, smallChunks)
	var b strings.Builder
	const docs = 6007
	for i := range docs {
		if i%1000 == 999 {
			b.WriteString("broken\n")
			continue
		}
		fmt.Fprintf(&b, `{"id":"%d","t":"word%d common","f%d":%d}`+"\n", i, i%10, i/1000, i)
	}
	a := s.bulk("default", b.String()).want(207)
	m := a.json()
	const bad = docs / 1000
	if m["indexed"] != float64(docs-bad) || m["failed"] != float64(bad) || m["duplicates_relation"] != "gte" {
		t.Fatalf("%.300s", a.body)
	}
	if got := failures(m); len(got) != bad || got[3] != "4000  invalid_json" {
		t.Errorf("failures %v", got)
	}
	if n := len(m["inferred"].([]any)); n != 8 { // t, f0 … f6
		t.Errorf("%d fields inferred: %v", n, m["inferred"])
	}
	if _, total := s.ids("/search?q=common"); total != docs-bad {
		t.Errorf("%v found", total)
	}
	if _, total := s.ids("/search?q=f3:%3E%3D0"); total != 999 {
		t.Errorf("%v with f3", total)
	}
}

func TestBulkLongLines(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{DocumentBytes: 3 << 19, RequestBytes: 32 << 20}})
	word := func(n int) string { return strings.Repeat("abcdefghi ", n/10) }
	body := `{"id":"1","t":"` + word(5<<18) + `"}` + "\n" + `{"id":"2","t":"` + word(2<<20) + `"}` + "\n" + `{"id":"3","t":"b"}` + "\n" + `{"id":"4","t":"` + word(3<<20)
	m := s.bulk("default", body).want(207).json()
	if d := cmp.Diff([]string{"2  document_too_large", "4  document_too_large"}, failures(m)); d != "" || m["indexed"] != 2.0 {
		t.Errorf("%v %s", m["indexed"], d)
	}
	if used := s.node.memory.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
}

// TestBulkIsStreamed sees documents of a bulk whose end has not been sent.
func TestBulkIsStreamed(t *testing.T) {
	s := startServer(t, Config{DataDir: t.TempDir(), HTTPAddr: "127.0.0.1:0"}, smallChunks)
	r, w := io.Pipe()
	req, err := http.NewRequest("POST", "http://"+s.node.Addr()+"/index/bulk", r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", ndjson)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	type result struct {
		body string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			done <- result{err: err}
			return
		}
		b, err := io.ReadAll(resp.Body)
		done <- result{string(b), errors.Join(err, resp.Body.Close())}
	}()
	out := bufio.NewWriter(w)
	line := func(i int) {
		if _, err := fmt.Fprintf(out, "{\"id\":\"%d\",\"t\":\"x\"}\n", i); err != nil {
			t.Error(err)
		}
	}
	for i := range testChunk + 1000 { // some more, so that what the pipe and the reader hold back does not matter
		line(i)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		if a := s.do("GET", "/search?limit=0", "", ""); a.status == 200 && a.json()["total"].(float64) >= testChunk {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("no chunk was applied before the stream ended")
		}
	}
	line(1_000_000)
	if err := errors.Join(out.Flush(), w.Close()); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || !strings.Contains(got.body, `"indexed":`+strconv.Itoa(testChunk+1001)) {
		t.Fatalf("%+v", got)
	}
}

// faulty is an engine whose Apply a test can steer.
type faulty struct {
	engine
	apply func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error)
}

func (f *faulty) Apply(ctx context.Context, ops []shard.Op) ([]shard.OpResult, error) {
	return f.apply(ctx, ops, func() ([]shard.OpResult, error) { return f.engine.Apply(ctx, ops) })
}

// withApply makes every engine of a node faulty.
func withApply(apply func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error)) func(*Node) {
	return func(n *Node) {
		smallChunks(n)
		open := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			eng, err := open(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return &faulty{eng, apply}, nil
		}
	}
}

func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%d\"}\n", i)
	}
	return b.String()
}

func TestBulkWaitsForRoom(t *testing.T) {
	var calls atomic.Int64
	s := startServer(t, Config{DataDir: t.TempDir()}, withApply(func(_ context.Context, _ []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		if calls.Add(1)%3 != 0 {
			return nil, &shard.OverloadError{Limit: "memtable_bytes", Max: 1, RetryAfter: time.Millisecond}
		}
		return next()
	}))
	m := s.bulk("default", manyLines(2*testChunk)).want(200).json()
	if m["indexed"] != float64(2*testChunk) || calls.Load() != 6 {
		t.Errorf("%v indexed in %d calls", m["indexed"], calls.Load())
	}
}

func TestBulkGivesUp(t *testing.T) {
	full := &shard.OverloadError{Limit: "memtable_bytes", Max: 77, RetryAfter: time.Millisecond}
	disk := &shard.ReadOnlyError{Cause: fmt.Errorf("append: %w", syscall.ENOSPC)}
	broken := &shard.ReadOnlyError{Cause: errors.New("fsync failed")}
	tests := []struct {
		name   string
		err    error
		after  int64 // Apply calls that succeed before
		status int
		code   api.Code
	}{
		{"full from the start", full, 0, 429, api.MemtableFull},
		{"full in the middle", full, 1, 207, api.MemtableFull},
		{"disk full from the start", disk, 0, 507, api.DiskFull},
		{"disk full in the middle", disk, 1, 207, api.DiskFull},
		{"failed fsync from the start", broken, 0, 503, api.ReadOnly},
		{"failed fsync in the middle", broken, 1, 207, api.ReadOnly},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var calls atomic.Int64
			s := startServer(t, Config{DataDir: t.TempDir(), Limits: Limits{BulkStall: 30 * time.Millisecond, BulkErrors: 500}}, withApply(
				func(_ context.Context, _ []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
					if calls.Add(1) > tt.after {
						return nil, tt.err
					}
					return next()
				}))
			const docs = 3*testChunk + 5
			a := s.bulk("default", manyLines(docs)).want(tt.status)
			m := a.json()
			in := float64(tt.after * testChunk)
			if m["indexed"] != in || m["failed"] != docs-in || m["ok"] != false {
				t.Fatalf("%.300s", a.body)
			}
			// Every document that is not in is listed by its line, with the reason.
			list := m["errors"].([]any)
			if want := min(docs-int(in), 500); len(list) != want {
				t.Errorf("%d failures are listed, want %d", len(list), want)
			}
			first := list[0].(map[string]any)
			if first["line"] != in+1 || first["code"] != string(tt.code) {
				t.Errorf("first failure %v", first)
			}
			if tt.status != 207 && m["code"] != string(tt.code) {
				t.Errorf("problem %v", m["code"])
			}
			if _, total := s.ids("/search"); total != in {
				t.Errorf("%v documents are there", total)
			}
		})
	}
}

func TestConcurrentBulksInferDifferentFields(t *testing.T) {
	s := newServer(t, Config{})
	const loads, docs = 6, 300
	var wg sync.WaitGroup
	for l := range loads {
		wg.Go(func() {
			var b strings.Builder
			for i := range docs {
				fmt.Fprintf(&b, `{"id":"%d-%d","own%d":"w%d","shared":%d,"late%d":true}`+"\n", l, i, l, i%7, i, i/100)
			}
			m := s.bulk("default", b.String()).want(200).json()
			if m["indexed"] != float64(docs) {
				t.Errorf("load %d: %v", l, m)
			}
		})
	}
	wg.Wait()
	for l := range loads {
		if _, total := s.ids(fmt.Sprintf("/search?q=own%d:w3", l)); total != 43 {
			t.Errorf("own%d: %v found", l, total)
		}
		if _, total := s.ids(fmt.Sprintf("/search?q=_exists_:own%d", l)); total != docs {
			t.Errorf("own%d: %v have it", l, total)
		}
	}
	if _, total := s.ids("/search?q=shared:%5B0+TO+99%5D"); total != loads*100 {
		t.Errorf("shared: %v found", total)
	}
}

// TestDeletingAnIndexEndsItsStream deletes an index that a bulk load has made and whose sender is silent.
func TestDeletingAnIndexEndsItsStream(t *testing.T) {
	s := startServer(t, Config{DataDir: t.TempDir(), HTTPAddr: "127.0.0.1:0"}, smallChunks)
	conn, err := net.Dial("tcp", s.node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	body := manyLines(testChunk)
	if _, err := fmt.Fprintf(conn, "POST /index/bulk?index=new HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body)+100, body); err != nil {
		t.Fatal(err)
	}
	until(t, "the first chunk is in", func() bool {
		a := s.do("GET", "/search?index=new&limit=0", "", "")
		return a.status == 200 && a.json()["total"] == float64(testChunk)
	})
	s.do("DELETE", "/indexes/new", "", "").want(200)
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(status, "HTTP/1.1 207") {
		t.Fatalf("%q, %v", status, err)
	}
	s.do("GET", "/search?index=new", "", "").problem(404, api.IndexNotFound)
}

// TestConnectionOutlivesADeletedIndex deletes an index while a load of it, read to its end, is being applied: the caller hears so,
// and the connection goes on.
func TestConnectionOutlivesADeletedIndex(t *testing.T) {
	applying := make(chan struct{})
	s := startServer(t, Config{DataDir: t.TempDir(), HTTPAddr: "127.0.0.1:0"}, withApply(
		func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
			if ops[0].Doc.Key != "late" {
				return next()
			}
			close(applying)
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	s.put("gone", `{"id":"1","t":"x"}`)
	s.put("stays", `{"id":"1","t":"x"}`)
	conn, err := net.Dial("tcp", s.node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	replies := bufio.NewReader(conn)
	call := func(request string) (int, string) {
		t.Helper()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(replies, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	go func() {
		<-applying
		s.do("DELETE", "/indexes/gone", "", "").want(200)
	}()
	const doc = `{"id":"late"}`
	status, body := call(fmt.Sprintf("POST /index/bulk?index=gone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(doc), doc))
	if status != 409 || !strings.Contains(body, string(api.IndexDeleted)) {
		t.Errorf("the load of the deleted index: %d %s", status, body)
	}
	for range 3 {
		if status, body := call("GET /search?index=stays HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
			t.Errorf("a later call on the connection: %d %s", status, body)
		}
	}
}

// TestCallsLeaveNothingOnTheirIndex counts what is hooked to the life of an index.
func TestCallsLeaveNothingOnTheirIndex(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1","t":"x"}`)
	i := s.node.catalog.list()[0]
	hooked := &hooks{Context: i.ctx}
	i.ctx = hooked
	for range 3 {
		s.bulk("default", manyLines(3)).want(200)
		s.put("default", `{"id":"2"}`)
		s.do("GET", "/search?q=x", "", "").want(200)
		s.do("GET", "/doc?id=1", "", "").want(200)
		s.do("DELETE", "/index?id=2", "", "").want(200)
		s.do("PUT", "/indexes/default", "", "").want(200)
	}
	if all, left := hooked.all.Load(), hooked.left.Load(); all == 0 || left != 0 {
		t.Errorf("%d of %d hooks are left", left, all)
	}
}

// hooks counts the functions that wait for the end of a context.
type hooks struct {
	context.Context
	all, left atomic.Int64
}

// Value hides what package context knows of its own contexts, so that it asks AfterFunc.
func (h *hooks) Value(any) any { return nil }

func (h *hooks) AfterFunc(f func()) func() bool {
	h.all.Add(1)
	h.left.Add(1)
	stop := context.AfterFunc(h.Context, f)
	return func() bool {
		stopped := stop()
		if stopped {
			h.left.Add(-1)
		}
		return stopped
	}
}

// TestBulkWaitsForTheMemoryOfALongLine keeps the memory for longer than a request may wait for a place.
func TestBulkWaitsForTheMemoryOfALongLine(t *testing.T) {
	const document = 2 << 20
	limits := Limits{DocumentBytes: document, RequestBytes: bulkCharge + 2*document, QueueWait: time.Millisecond}
	body := `{"id":"1"}` + "\n" + `{"id":"2","t":"` + strings.Repeat("abcdefghi ", front.LongLine/8) + `"}` + "\n" + `{"id":"3"}` + "\n"
	for _, comes := range []bool{true, false} {
		if limits.BulkStall = time.Hour; !comes {
			limits.BulkStall = 50 * time.Millisecond
		}
		s := newServer(t, Config{Limits: limits})
		s.put("default", `{"id":"0"}`)
		taken, err := s.node.memory.Enter(t.Context(), document)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *answer)
		go func() { got <- s.bulk("default", body) }()
		if comes {
			waits := func() bool { return s.node.memory.Waiting() == 1 }
			until(t, "the load waits", waits)
			until(t, "a wait was in vain", func() bool { return !waits() })
			until(t, "the load waits again", waits)
			taken.Release()
			if m := (<-got).want(200).json(); m["indexed"] != 3.0 {
				t.Errorf("%v", m)
			}
			continue
		}
		// What came before the line is in; the line and what comes after it are not.
		m := (<-got).want(207).json()
		if d := cmp.Diff([]string{"2  request_memory_full", "3  request_memory_full"}, failures(m)); d != "" || m["indexed"] != 1.0 {
			t.Errorf("%v %s", m["indexed"], d)
		}
		taken.Release()
	}
}

// TestBulkLoadsLeaveRoomForALongLine: as many loads as there are places cannot wait for each other's memory.
func TestBulkLoadsLeaveRoomForALongLine(t *testing.T) {
	for _, requestMB := range []int64{48, 64, 100, 256, 1024} {
		s := newServer(t, Config{Limits: Limits{RequestBytes: requestMB << 20}})
		places := s.node.bulks.Limit()
		if left := requestMB<<20 - places*bulkCharge; places < 1 || places > 8 || left < longLineCharge(s.node.cfg.Limits) {
			t.Errorf("%d MiB: %d places leave %d bytes", requestMB, places, left)
		}
	}
}
