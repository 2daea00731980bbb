package s3_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/store/s3"
	"github.com/weft-search/weft/internal/store/s3/s3test"
	"github.com/weft-search/weft/internal/store/storetest"
)

func TestAccept(t *testing.T) {
	storetest.Accept(t, func(t *testing.T) store.Store {
		o := s3test.Options(s3test.New(t))
		o.TempDir = t.TempDir()
		return s3test.Open(t, o)
	})
	t.Run("WithoutPrefix", func(t *testing.T) {
		storetest.Accept(t, func(t *testing.T) store.Store {
			o := s3test.Options(s3test.New(t))
			o.Prefix = ""
			return s3test.Open(t, o)
		})
	})
}

// step answers one request, perhaps with what the server behind would.
type step func(w http.ResponseWriter, r *http.Request, server http.Handler)

// script stands before a server: requests of a method take its steps one after the other, then go through.
type script struct {
	server http.Handler
	mu     sync.Mutex
	steps  map[string][]step
	seen   []*http.Request
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Clone(context.WithoutCancel(r.Context())))
	do := pass
	if rest := s.steps[r.Method]; len(rest) > 0 {
		do, s.steps[r.Method] = rest[0], rest[1:]
	}
	s.mu.Unlock()
	do(w, r, s.server)
}

// set replaces the steps of a method and forgets what was seen.
func (s *script) set(method string, steps ...step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = map[string][]step{method: steps}
	s.seen = nil
}

func (s *script) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func pass(w http.ResponseWriter, r *http.Request, server http.Handler) { server.ServeHTTP(w, r) }

// answer refuses a request. The text has in it what a server should not say.
func answer(status int, code string) step {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead && code != "" {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>key %s, secret %s</Message></Error>", code, s3test.AccessKey, s3test.SecretKey)
		}
	}
}

// after lets a request take place and then answers otherwise.
func after(then step) step {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		server.ServeHTTP(httptest.NewRecorder(), r)
		then(w, r, server)
	}
}

// cut closes the connection.
func cut(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// hold answers nothing until the caller has gone.
func hold(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	<-r.Context().Done()
}

// truncate announces the whole object and sends the half of it, then closes the connection.
func truncate(w http.ResponseWriter, r *http.Request, server http.Handler) {
	half(w, r, server)
	panic(http.ErrAbortHandler)
}

// stall sends the half of an object and then nothing.
func stall(w http.ResponseWriter, r *http.Request, server http.Handler) {
	half(w, r, server)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func half(w http.ResponseWriter, r *http.Request, server http.Handler) {
	rec := httptest.NewRecorder()
	server.ServeHTTP(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	w.WriteHeader(rec.Code)
	if _, err := w.Write(rec.Body.Bytes()[:rec.Body.Len()/2]); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.(http.Flusher).Flush()
}

// open returns a store and the script before its server.
func open(t *testing.T, change func(o *s3.Options)) (*s3.Store, *script) {
	t.Helper()
	sc := &script{server: s3test.Handler(t)}
	o := s3test.Options(s3test.Serve(t, sc))
	if change != nil {
		change(&o)
	}
	return s3test.Open(t, o), sc
}

func put(s store.Store, key, content string, c store.Condition) (string, error) {
	return s.Put(context.Background(), key, strings.NewReader(content), int64(len(content)), c)
}

func mustPut(t *testing.T, s store.Store, key, content string) string {
	t.Helper()
	tag, err := put(s, key, content, store.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

func read(s store.Store, key string) (string, error) {
	b, _, err := store.ReadAll(context.Background(), s, key, 16<<20)
	return string(b), err
}

// quiet fails if an error says what it should not.
func quiet(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), s3test.AccessKey) || strings.Contains(err.Error(), s3test.SecretKey)) {
		t.Errorf("credentials in %v", err)
	}
}

var kinds = []error{store.ErrNotFound, store.ErrPrecondition, store.ErrUncertain, store.ErrInvalid, store.ErrKey, context.Canceled, context.DeadlineExceeded}

// isKind checks that an error is of one kind and of no other; want nil: of none.
func isKind(t *testing.T, err, want error) {
	t.Helper()
	quiet(t, err)
	for _, kind := range kinds {
		if errors.Is(err, kind) != (kind == want) {
			t.Errorf("error %v: is %v: %v", err, kind, errors.Is(err, kind))
		}
	}
}

var errOther = errors.New("an error of no kind")

func TestWhatBecomesOfWrites(t *testing.T) {
	repeat := func(s step) []step { return []step{s, s, s, s} }
	const unconditional, ifMatch, ifAbsent = 0, 1, 2
	for _, tc := range []struct {
		name     string
		cond     int
		steps    []step
		want     error
		written  bool
		requests int
	}{
		{"through", ifMatch, nil, nil, true, 1},
		{"409 once", ifMatch, []step{answer(409, "ConditionalRequestConflict")}, nil, true, 2},
		{"409 once, absent", ifAbsent, []step{answer(409, "ConditionalRequestConflict")}, nil, true, 2},
		{"409 always", ifMatch, repeat(answer(409, "ConditionalRequestConflict")), store.ErrPrecondition, false, 4},
		{"409 always, unconditional", unconditional, repeat(answer(409, "OperationAborted")), errOther, false, 4},
		{"412", ifMatch, []step{answer(412, "PreconditionFailed")}, store.ErrPrecondition, false, 1},
		{"412 without a body", ifAbsent, []step{answer(412, "")}, store.ErrPrecondition, false, 1},
		{"404 for a condition", ifMatch, []step{answer(404, "NoSuchKey")}, store.ErrPrecondition, false, 1},
		{"404 of the bucket", ifMatch, []step{answer(404, "NoSuchBucket")}, errOther, false, 1},
		{"404 of the bucket, unconditional", unconditional, []step{answer(404, "NoSuchBucket")}, errOther, false, 1},
		{"403", ifMatch, []step{answer(403, "AccessDenied")}, errOther, false, 1},
		{"501", ifMatch, []step{answer(501, "NotImplemented")}, errOther, false, 1},
		{"429 once", ifMatch, []step{answer(429, "SlowDown")}, nil, true, 2},
		{"429 always", ifMatch, repeat(answer(429, "SlowDown")), errOther, false, 4},
		{"400 for a slow body", ifMatch, []step{answer(400, "RequestTimeout")}, nil, true, 2},
		{"503 once", ifMatch, []step{answer(503, "SlowDown")}, nil, true, 2},
		{"500 always", ifMatch, repeat(answer(500, "InternalError")), store.ErrUncertain, false, 4},
		{"500 without a body", unconditional, repeat(answer(500, "")), store.ErrUncertain, false, 4},
		{"500 after the write", ifMatch, []step{after(answer(500, "InternalError"))}, store.ErrUncertain, true, 2},
		{"500 after the write, absent", ifAbsent, []step{after(answer(500, "InternalError"))}, store.ErrUncertain, true, 2},
		{"500 after the write, unconditional", unconditional, []step{after(answer(500, "InternalError"))}, nil, true, 2},
		{"500 after the write, then 409", ifMatch, append(repeat(answer(409, "ConditionalRequestConflict"))[1:], after(answer(500, "InternalError"))), store.ErrUncertain, true, 4},
		{"500 after the write, then 403", ifMatch, []step{after(answer(500, "InternalError")), answer(403, "AccessDenied")}, store.ErrUncertain, true, 2},
		{"500, then 404", ifMatch, []step{answer(500, "InternalError"), answer(404, "NoSuchKey")}, store.ErrUncertain, false, 2},
		{"cut once", ifMatch, []step{cut}, nil, true, 2},
		{"cut always", ifMatch, repeat(cut), store.ErrUncertain, false, 4},
		{"cut after the write", ifAbsent, []step{after(cut)}, store.ErrUncertain, true, 2},
		{"no etag", ifMatch, []step{after(answer(200, ""))}, store.ErrUncertain, true, 1},
		{"204", ifMatch, []step{after(answer(204, "")), cut}, store.ErrUncertain, true, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, sc := open(t, nil)
			before := ""
			cond := store.Absent
			if tc.cond != ifAbsent {
				before = "before"
				tag := mustPut(t, s, "k", before)
				cond = store.Condition{}
				if tc.cond == ifMatch {
					cond.IfMatch = tag
				}
			}
			sc.set(http.MethodPut, tc.steps...)
			tag, err := put(s, "k", "after", cond)
			switch {
			case tc.want == nil && err != nil:
				t.Errorf("error %v", err)
			case tc.want == errOther && err == nil:
				t.Error("no error")
			case tc.want == errOther:
				isKind(t, err, nil)
			case tc.want != nil:
				isKind(t, err, tc.want)
			}
			if n := len(sc.requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			got, rerr := read(s, "k")
			want := before
			if tc.written {
				want = "after"
			}
			if got != want || rerr != nil && (want != "" || !errors.Is(rerr, store.ErrNotFound)) {
				t.Errorf("%q is there, want %q: %v", got, want, rerr)
			}
			if err == nil {
				if _, err := put(s, "k", "next", store.Condition{IfMatch: tag}); err != nil {
					t.Errorf("write over what was written: %v", err)
				}
			}
		})
	}
}

// Each object is one PUT that carries its condition, however large: an upload in parts would drop it.
func TestOnePut(t *testing.T) {
	dir := t.TempDir()
	s, sc := open(t, func(o *s3.Options) { o.TempDir = dir })
	content := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
	sc.set(http.MethodPut, answer(503, "SlowDown")) // a body in a file can be sent again
	w, err := s.NewWriter(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	tag, err := w.Commit(t.Context(), store.Absent)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range sc.requests() {
		if r.Method != http.MethodPut || r.URL.RawQuery != "" || r.Header.Get("If-None-Match") != "*" || r.ContentLength != int64(len(content)) {
			t.Errorf("%s %s, %d bytes, %v", r.Method, r.URL, r.ContentLength, r.Header)
		}
		if sum := r.Header.Get("X-Amz-Content-Sha256"); len(sum) != 64 {
			t.Errorf("sum %q", sum)
		}
	}
	if n := len(sc.requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	r, in, err := s.Get(t.Context(), "large")
	if err != nil || in.ETag != tag || in.Size != int64(len(content)) {
		t.Fatalf("%+v, %v", in, err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestNothingIsSentOfWhatCannotBe(t *testing.T) {
	s, sc := open(t, nil)
	broken := errors.New("broken")
	for _, tc := range []struct {
		name string
		r    io.Reader
		size int64
		c    store.Condition
		want error
	}{
		{"too long", strings.NewReader("x"), 5<<30 + 1, store.Condition{}, store.ErrInvalid},
		{"negative", strings.NewReader(""), -1, store.Condition{}, store.ErrInvalid},
		{"shorter", strings.NewReader("x"), 2, store.Condition{}, store.ErrInvalid},
		{"longer", strings.NewReader("xyz"), 2, store.Condition{}, store.ErrInvalid},
		{"broken", io.MultiReader(strings.NewReader("x"), errReader{broken}), 2, store.Condition{}, broken},
		{"any etag", strings.NewReader("x"), 1, store.Condition{IfMatch: "*"}, store.ErrPrecondition},
		{"no etag", strings.NewReader("x"), 1, store.Condition{IfMatch: "a\r\nb"}, store.ErrPrecondition},
		{"no etag either", strings.NewReader("x"), 1, store.Condition{IfMatch: `a"`}, store.ErrPrecondition},
	} {
		if _, err := s.Put(t.Context(), "k", tc.r, tc.size, tc.c); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if n := len(sc.requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestWhatBecomesOfReads(t *testing.T) {
	repeat := func(s step) []step { return []step{s, s, s, s} }
	stat := func(s *s3.Store) error { _, err := s.Stat(context.Background(), "k"); return err }
	get := func(s *s3.Store) error {
		got, err := read(s, "k")
		if err == nil && got != "0123456789" {
			return fmt.Errorf("read %q", got)
		}
		return err
	}
	part := func(s *s3.Store) error {
		r, _, err := s.GetRange(context.Background(), "k", 2, 4)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err == nil && string(b) != "2345" {
			err = fmt.Errorf("read %q", b)
		}
		return errors.Join(err, r.Close())
	}
	remove := func(s *s3.Store) error { return s.Delete(context.Background(), "k") }
	list := func(s *s3.Store) error {
		return s.List(context.Background(), "", func(store.Info) error { return nil })
	}
	without := func(header string) step {
		return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			rec := httptest.NewRecorder()
			server.ServeHTTP(rec, r)
			for k, v := range rec.Header() {
				if !strings.EqualFold(k, header) {
					w.Header()[k] = v
				}
			}
			w.WriteHeader(rec.Code)
			if _, err := w.Write(rec.Body.Bytes()); err != nil {
				panic(http.ErrAbortHandler)
			}
			if strings.EqualFold(header, "Content-Length") {
				w.(http.Flusher).Flush()
			}
		}
	}
	whole := func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		r.Header.Del("Range")
		server.ServeHTTP(w, r)
	}
	for _, tc := range []struct {
		name     string
		call     func(s *s3.Store) error
		method   string
		steps    []step
		want     error
		requests int
	}{
		{"get 404", get, "GET", []step{answer(404, "NoSuchKey")}, store.ErrNotFound, 1},
		{"get 404 of the bucket", get, "GET", []step{answer(404, "NoSuchBucket")}, errOther, 1},
		{"get 403", get, "GET", []step{answer(403, "AccessDenied")}, errOther, 1},
		{"get 500 once", get, "GET", []step{answer(500, "InternalError")}, nil, 2},
		{"get 500 always", get, "GET", repeat(answer(500, "InternalError")), errOther, 4},
		{"get cut once", get, "GET", []step{cut}, nil, 2},
		{"get truncated once", get, "GET", []step{truncate}, nil, 2},
		{"get truncated always", get, "GET", repeat(truncate), io.ErrUnexpectedEOF, 4},
		{"get without a length", get, "GET", []step{without("Content-Length")}, errOther, 1},
		{"get without an etag", get, "GET", []step{without("ETag")}, errOther, 1},
		{"get without a time", get, "GET", repeat(without("Last-Modified")), errOther, 4},
		{"range truncated once", part, "GET", []step{truncate}, nil, 2},
		{"range ignored", part, "GET", []step{whole}, errOther, 1},
		{"range 416", part, "GET", []step{answer(416, "InvalidRange")}, store.ErrInvalid, 2}, // it was shorter, and has grown since
		{"stat 404", stat, "HEAD", []step{answer(404, "")}, store.ErrNotFound, 1},
		{"stat 503 once", stat, "HEAD", []step{answer(503, "")}, nil, 2},
		{"stat 403", stat, "HEAD", []step{answer(403, "")}, errOther, 1},
		{"stat without an etag", stat, "HEAD", []step{without("ETag")}, errOther, 1},
		{"delete 500 once", remove, "DELETE", []step{answer(500, "InternalError")}, nil, 2},
		{"delete 500 after it", remove, "DELETE", []step{after(answer(500, "InternalError"))}, nil, 2},
		{"delete 500 always", remove, "DELETE", repeat(after(answer(500, "InternalError"))), store.ErrUncertain, 4},
		{"delete 404", remove, "DELETE", []step{answer(404, "NoSuchKey")}, nil, 1},
		{"delete 200", remove, "DELETE", []step{answer(200, "")}, nil, 1},
		{"delete 404 of the bucket", remove, "DELETE", []step{answer(404, "NoSuchBucket")}, errOther, 1},
		{"delete 403", remove, "DELETE", []step{answer(403, "AccessDenied")}, errOther, 1},
		{"list 500 once", list, "GET", []step{answer(500, "InternalError")}, nil, 2},
		{"list truncated once", list, "GET", []step{truncate}, nil, 2},
		{"list 403", list, "GET", []step{answer(403, "AccessDenied")}, errOther, 1},
		{"list 404 of the bucket", list, "GET", []step{answer(404, "NoSuchBucket")}, errOther, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, sc := open(t, nil)
			mustPut(t, s, "k", "0123456789")
			sc.set(tc.method, tc.steps...)
			err := tc.call(s)
			switch {
			case tc.want == nil && err != nil:
				t.Errorf("error %v", err)
			case tc.want == errOther && err == nil:
				t.Error("no error")
			case tc.want == errOther:
				isKind(t, err, nil)
			case tc.want == io.ErrUnexpectedEOF:
				if isKind(t, err, nil); !errors.Is(err, tc.want) {
					t.Errorf("error %v", err)
				}
			case tc.want != nil:
				isKind(t, err, tc.want)
			}
			if n := len(sc.requests()); n != tc.requests {
				t.Errorf("%d requests, want %d: %v", n, tc.requests, err)
			}
		})
	}
}

// A large object that breaks off, or stands still, is an error of the reader.
func TestLargeObjectsBreakOff(t *testing.T) {
	for _, tc := range []struct {
		name string
		how  step
		ends func(cancel func()) // what happens after the first byte
		want func(err error) bool
	}{
		{"cut", truncate, nil, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"still", stall, nil, func(err error) bool { return strings.Contains(err.Error(), "stood still for 1s") }},
		{"cancelled", stall, func(cancel func()) { cancel() }, func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, sc := open(t, func(o *s3.Options) {
				if tc.name == "still" {
					o.Timeout = time.Second
				}
			})
			mustPut(t, s, "k", strings.Repeat("x", 2<<20))
			sc.set(http.MethodGet, tc.how)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, _, err := s.Get(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if tc.ends != nil {
				tc.ends(cancel)
			}
			if n, err := io.Copy(io.Discard, r); err == nil || !tc.want(err) {
				t.Errorf("%d more bytes, %v", n, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A body that comes slowly is waited for as long as it comes, also when that takes longer than a connection may stand still.
func TestSlowBodies(t *testing.T) {
	const timeout = 2 * time.Second
	trickle := func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		rec := httptest.NewRecorder()
		server.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		tick := time.NewTicker(timeout / 15)
		defer tick.Stop()
		for b := rec.Body.Bytes(); len(b) > 0; {
			n := min(len(b), rec.Body.Len()/18+1)
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
			w.(http.Flusher).Flush()
			<-tick.C
		}
	}
	for _, size := range []int{100, 2 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			s, sc := open(t, func(o *s3.Options) { o.Timeout = timeout })
			want := strings.Repeat("x", size)
			mustPut(t, s, "k", want)
			sc.set(http.MethodGet, trickle)
			if got, err := read(s, "k"); err != nil || got != want {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// A connection that stands still ends after a while; a read is then tried again, and a write may have taken place.
func TestStandstill(t *testing.T) {
	t.Parallel()
	s, sc := open(t, func(o *s3.Options) { o.Timeout, o.Attempts = time.Second, 2 })
	mustPut(t, s, "k", "0123456789")
	sc.set(http.MethodGet, stall)
	if got, err := read(s, "k"); err != nil || got != "0123456789" {
		t.Errorf("%q, %v", got, err)
	}
	sc.set(http.MethodPut, hold, hold)
	_, err := put(s, "k", "x", store.Condition{})
	if isKind(t, err, store.ErrUncertain); !strings.Contains(err.Error(), "stood still") {
		t.Errorf("error %v", err)
	}
	if n := len(sc.requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	sc.set(http.MethodHead, hold, hold)
	if _, err := s.Stat(t.Context(), "k"); err == nil {
		t.Error("no error")
	} else {
		isKind(t, err, nil)
	}
}

// The end of a context ends a call at once; a write that was under way is uncertain.
func TestContexts(t *testing.T) {
	t.Run("under way", func(t *testing.T) {
		s, sc := open(t, nil)
		why := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		sc.set(http.MethodPut, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			cancel(why)
			hold(w, r, server)
		})
		_, err := s.Put(ctx, "k", strings.NewReader("x"), 1, store.Condition{})
		if !errors.Is(err, store.ErrUncertain) || !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		if n := len(sc.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		s, sc := open(t, nil)
		sc.set(http.MethodGet, hold)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, _, err := s.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUncertain) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("listing", func(t *testing.T) {
		s, _ := open(t, nil)
		mustPut(t, s, "a", "x")
		mustPut(t, s, "b", "x")
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := s.List(ctx, "", func(store.Info) error { n++; cancel(); return nil })
		if !errors.Is(err, context.Canceled) || n != 1 {
			t.Errorf("%d objects, %v", n, err)
		}
	})
}

// Nobody listens: nothing was sent, so nothing was written.
func TestNobodyListens(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	addr := srv.Listener.Addr().String()
	srv.Close()
	s := s3test.Open(t, s3test.Options(addr))
	_, err := put(s, "k", "x", store.Absent)
	if err == nil {
		t.Fatal("written to nobody")
	}
	isKind(t, err, nil)
	if !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}

// Over TLS, with an authority of one's own; a server of another is not written to.
func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(s3test.Handler(t))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	o := s3test.Options(srv.Listener.Addr().String())
	o.Insecure, o.Attempts = false, 2
	_, err := put(s3test.Open(t, o), "k", "x", store.Absent)
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("error %v", err)
	}
	isKind(t, err, nil)

	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", authority)
	s := s3test.Open(t, o)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 2<<20)
	mustPut(t, s, "k", large)
	if got, err := read(s, "k"); err != nil || got != large {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Listings of several pages, one of which fails at first, with objects between that are no keys.
func TestPages(t *testing.T) {
	s, sc := open(t, nil)
	var want []string
	for i := range 2300 {
		want = append(want, fmt.Sprintf("d/%04d", i))
	}
	for _, name := range append([]string{"some/prefix/d/0500/", "some/prefix/d/.hidden", "some/prefixes/d/1"}, want...) {
		if strings.HasPrefix(name, "d/") {
			name = "some/prefix/" + name
		}
		r := httptest.NewRequest(http.MethodPut, "/"+s3test.Bucket+"/"+name, strings.NewReader("x"))
		r.Header.Set("Content-Length", "1")
		rec := httptest.NewRecorder()
		if sc.server.ServeHTTP(rec, r); rec.Code != http.StatusOK {
			t.Fatal(rec.Code, rec.Body)
		}
	}
	sc.set(http.MethodGet, pass, answer(503, "SlowDown"), truncate)
	var got []string
	if err := s.List(t.Context(), "d/", func(in store.Info) error { got = append(got, in.Key); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if n := len(sc.requests()); n != 5 {
		t.Errorf("%d requests, want three pages and two failures", n)
	}
}

func TestListingOutOfOrder(t *testing.T) {
	s, sc := open(t, nil)
	sc.set(http.MethodGet, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
		for _, key := range []string{"b", "a"} {
			fmt.Fprintf(w, `<Contents><Key>some/prefix/%s</Key><Size>1</Size><LastModified>2030-01-02T03:04:05Z</LastModified></Contents>`, key)
		}
		fmt.Fprint(w, `</ListBucketResult>`)
	})
	if err := s.List(t.Context(), "", func(store.Info) error { return nil }); err == nil || !strings.Contains(err.Error(), "order") {
		t.Errorf("error %v", err)
	}
}

// Whatever is done, a store in a bucket holds and lists what one in memory does.
func TestLikeMemory(t *testing.T) {
	addr := s3test.New(t)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		o := s3test.Options(addr)
		o.Prefix = fmt.Sprintf("round-%d", round)
		s, err := s3.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		m := store.NewMemory(nil)
		ctx := context.Background()
		key := rapid.StringMatching(`[ab+%=@](/?[ab.+%=@-][ab+=]){0,3}`).Filter(func(k string) bool { return store.ValidKey(k) == nil })
		content := rapid.StringMatching(`[xy]{0,2}`)
		tags := map[string]string{"": "", "none": "none"} // of the bucket, by those of memory
		known := []string{"", "none"}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			k := key.Draw(t, "key")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				tag := rapid.SampledFrom(known).Draw(t, "etag")
				cm, cs := store.Condition{IfMatch: tag}, store.Condition{IfMatch: tags[tag]}
				if tag == "" && rapid.Bool().Draw(t, "absent") {
					cm, cs = store.Absent, store.Absent
				}
				c := content.Draw(t, "content")
				tm, em := put(m, k, c, cm)
				ts, es := put(s, k, c, cs)
				if (em == nil) != (es == nil) || errors.Is(em, store.ErrPrecondition) != errors.Is(es, store.ErrPrecondition) {
					t.Fatalf("put %s: %v in memory, %v in the bucket", k, em, es)
				}
				if em == nil {
					tags[tm] = ts
					known = append(known, tm)
				}
			case 2:
				if err := errors.Join(m.Delete(ctx, k), s.Delete(ctx, k)); err != nil {
					t.Fatal(err)
				}
			case 3:
				gm, em := read(m, k)
				gs, es := read(s, k)
				if gm != gs || errors.Is(em, store.ErrNotFound) != errors.Is(es, store.ErrNotFound) {
					t.Fatalf("get %s: %q, %v in memory, %q, %v in the bucket", k, gm, em, gs, es)
				}
			case 4:
				prefix := k[:rapid.IntRange(0, len(k)).Draw(t, "prefix")]
				if prefix == "" || store.ValidKey(strings.TrimSuffix(prefix, "/")) != nil {
					prefix = ""
				}
				if gm, gs := keys(t, m, prefix), keys(t, s, prefix); !slices.Equal(gm, gs) {
					t.Fatalf("list %q: %q in memory, %q in the bucket", prefix, gm, gs)
				}
			}
		}
	})
}

func keys(t *rapid.T, s store.Store, prefix string) []string {
	var got []string
	if err := s.List(context.Background(), prefix, func(in store.Info) error { got = append(got, in.Key); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCheck(t *testing.T) {
	drop := func(header string) step {
		return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			r.Header.Del(header)
			server.ServeHTTP(w, r)
		}
	}
	for _, tc := range []struct {
		name string
		step step
		want string // part of the error
	}{
		{"heeds them", pass, ""},
		{"no If-None-Match", drop("If-None-Match"), "does not heed"},
		{"no If-Match", drop("If-Match"), "does not heed"},
		{"no such bucket", answer(404, "NoSuchBucket"), "NoSuchBucket"},
		{"bad credentials", answer(403, "SignatureDoesNotMatch"), "SignatureDoesNotMatch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, sc := open(t, nil)
			sc.set(http.MethodPut, slices.Repeat([]step{tc.step}, 20)...)
			for range 2 { // also where the object is there already
				err := s.Check(t.Context())
				if quiet(t, err); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}
