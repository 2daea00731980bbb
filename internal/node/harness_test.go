package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/obs"
)

func TestMain(m *testing.M) {
	plain := func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		b, err := io.ReadAll(body)
		return string(b), err
	}
	for _, kind := range []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"} {
		openapi3filter.RegisterBodyDecoder(kind, plain)
	}
	goleak.VerifyTestMain(m)
}

// document is the OpenAPI document, parsed once.
var document = sync.OnceValue(func() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		panic(err)
	}
	return doc
})

// server is a node under test. Every exchange is held against the OpenAPI document, or one in every, where a test sets that:
// compiling the schemas takes many times as long as the exchange.
type server struct {
	t     testing.TB
	node  *Node
	every int
	calls int // made by the test's own goroutine, counted only with every
}

// newServer starts a node in a fresh folder, without a listener.
func newServer(t testing.TB, cfg Config) *server {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	return startServer(t, cfg, nil)
}

// startServer lets before change the node between New and Start.
func startServer(t testing.TB, cfg Config, before func(n *Node)) *server {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(n)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, node: n}
	t.Cleanup(func() {
		// A drain that ran out of time is that of a test which closed the node before.
		err := n.Close(context.Background())
		if _, late := errors.AsType[*DrainError](err); err != nil && !late {
			t.Errorf("close node: %v", err)
		}
	})
	<-n.Opened()
	return s
}

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// do sends a request. A body is a string or nothing.
func (s *server) do(method, target, ctype, body string) *answer {
	s.t.Helper()
	return s.send(context.Background(), method, target, ctype, body)
}

func (s *server) send(ctx context.Context, method, target, ctype, body string) *answer {
	s.t.Helper()
	h := http.Header{}
	if ctype != "" {
		h.Set("Content-Type", ctype)
	}
	return s.exchange(ctx, method, target, h, body)
}

func (s *server) sendHeader(method, target string, h http.Header, body string) *answer {
	s.t.Helper()
	return s.exchange(context.Background(), method, target, h, body)
}

func (s *server) exchange(ctx context.Context, method, target string, h http.Header, body string) *answer {
	s.t.Helper()
	req := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	req.Header = h.Clone()
	rec := httptest.NewRecorder()
	s.node.Handler().ServeHTTP(rec, req)
	a := &answer{s.t, rec.Code, rec.Header(), rec.Body.Bytes()}
	if s.every > 0 {
		if s.calls++; s.calls%s.every != 0 {
			return a
		}
	}
	if ctx.Err() == nil {
		hold(s.t, method, target, req.Header, body, a)
	}
	return a
}

// hold checks one exchange against the OpenAPI document: the reply always, the request if it was answered well.
func hold(t testing.TB, method, target string, header http.Header, body string, a *answer) {
	t.Helper()
	if a.header.Get(obs.RequestIDHeader) == "" {
		t.Errorf("%s %.80s: the reply has no request id", method, target)
	}
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header = header
	doc := document()
	path, params := req.URL.Path, map[string]string{}
	if name, ok := strings.CutPrefix(path, "/indexes/"); ok {
		path, params["name"] = "/indexes/{name}", name
	}
	if method == http.MethodHead {
		return // the reply of GET without its body
	}
	item := doc.Paths.Find(path)
	if item == nil || item.GetOperation(method) == nil {
		if a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
			t.Errorf("%s %.80s is not in the document and was answered with %d", method, target, a.status)
		}
		return
	}
	in := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, QueryParams: req.URL.Query(),
		Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)},
	}
	if a.status/100 != 2 {
		in.Request = httptest.NewRequest(method, path, nil) // what was refused need not fit
	} else if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
		t.Errorf("%s %.80s was answered with %d but does not fit the document: %v", method, target, a.status, err)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: a.status, Header: a.header, Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	out.SetBodyBytes(a.body)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %.80s: reply %d %.300s does not fit the document: %v", method, target, a.status, a.body, err)
	}
}

// want checks the status.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %.500s", a.status, status, a.body)
	}
	return a
}

// problem checks status and code of a problem document and returns it.
func (a *answer) problem(status int, code api.Code) map[string]any {
	a.t.Helper()
	a.want(status)
	if kind := a.header.Get("Content-Type"); kind != "application/problem+json" {
		a.t.Errorf("a problem of type %q", kind)
	}
	m := a.json()
	if m["code"] != string(code) || m["status"] != float64(status) {
		a.t.Fatalf("code %v, want %s: %.500s", m["code"], code, a.body)
	}
	return m
}

func (a *answer) json() map[string]any {
	a.t.Helper()
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(a.body))
	if err := d.Decode(&m); err != nil {
		a.t.Fatalf("reply %.300q: %v", a.body, err)
	}
	return m
}

// put indexes a document that has to go in.
func (s *server) put(index, doc string) map[string]any {
	s.t.Helper()
	m := s.do(http.MethodPost, "/index?index="+index, "application/json", doc).want(http.StatusOK).json()
	if m["ok"] != true || m["members"] != 1.0 || m["members_ok"] != 1.0 || len(m["failed_addresses"].([]any)) != 0 {
		s.t.Fatalf("write reply %v", m)
	}
	return m
}

// ids searches and returns the ids of the hits and the total.
func (s *server) ids(target string) ([]string, float64) {
	s.t.Helper()
	m := s.do(http.MethodGet, target, "", "").want(http.StatusOK).json()
	ids := []string{}
	for _, h := range m["hits"].([]any) {
		ids = append(ids, h.(map[string]any)["id"].(string))
	}
	total, _ := m["total"].(float64)
	return ids, total
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
