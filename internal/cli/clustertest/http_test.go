package clustertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/topology/placement"
)

// step is one call of the script that a node and clusters are given. Their answers have to be the same.
type step struct {
	name    string
	method  string
	target  string
	ctype   string
	body    string
	headers map[string]string
	// length is announced instead of that of the body; -1: none is. The body breaks off behind its end if breaks is set.
	length *int64
	breaks bool
	// ignore are members of the answer that need not be the same, by path; differs says why.
	ignore  []string
	differs string
	// status is that of a node, so that no step agrees by both doing nothing.
	status int
}

// answered is what came back.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// brokenBody gives its text and then fails, as a connection that ends early.
type brokenBody struct{ r io.Reader }

func (b *brokenBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (s *step) run(f *front) answered {
	f.t.Helper()
	var body io.Reader = strings.NewReader(s.body)
	if s.breaks {
		body = &brokenBody{body}
	}
	r := httptest.NewRequestWithContext(f.t.Context(), s.method, s.target, body)
	r.ContentLength = int64(len(s.body))
	if s.length != nil {
		r.ContentLength = *s.length
	}
	if s.ctype != "" {
		r.Header.Set("Content-Type", s.ctype)
	}
	for k, v := range s.headers {
		r.Header.Set(k, v)
	}
	r.Header.Set("X-Request-Id", "step")
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return answered{w.Code, w.Header(), w.Body.Bytes()}
}

// comparedHeaders are the headers of which both sides have to say the same.
var comparedHeaders = []string{"Content-Type", "Allow", "X-Content-Type-Options", "X-Request-Id", "Connection", "Retry-After"}

// strip takes out of an answer what speaks of who gave it and how long that took, at any depth.
func strip(t testing.TB, v any) {
	switch x := v.(type) {
	case map[string]any:
		for _, name := range []string{"took_ms", "timings", "slowest_shard", "bytes", "segments"} {
			delete(x, name)
		}
		if s, ok := x["shards"].(map[string]any); ok && fmt.Sprint(s["total"]) != fmt.Sprint(s["ok"]) {
			t.Errorf("a shard is missing: %v", s)
		}
		delete(x, "shards")
		if m, ok := x["members"].(map[string]any); ok && fmt.Sprint(m["total"]) != fmt.Sprint(m["ok"]) {
			t.Errorf("a member is missing: %v", m)
		}
		delete(x, "members")
		delete(x, "members_ok")
		delete(x, "members_total")
		for _, e := range x {
			strip(t, e)
		}
	case []any:
		for _, e := range x {
			strip(t, e)
		}
	}
}

func (a answered) object(t testing.TB) any {
	t.Helper()
	if len(a.body) == 0 || !strings.Contains(a.header.Get("Content-Type"), "json") {
		return string(a.body)
	}
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	strip(t, v)
	return v
}

// without removes members by path: names with dots between them.
func without(v any, path string) {
	name, rest, deep := strings.Cut(path, ".")
	switch x := v.(type) {
	case map[string]any:
		if !deep {
			delete(x, name)
			return
		}
		without(x[name], rest)
	case []any:
		for _, e := range x {
			without(e, path)
		}
	}
}

func length(n int64) *int64 { return &n }

// call makes a step.
func call(status int, method, target string) step {
	return step{method: method, target: target, status: status}
}

func (s step) with(ctype, body string) step {
	s.ctype, s.body = ctype, body
	return s
}

func (s step) header(name, value string) step {
	h := map[string]string{name: value}
	for k, v := range s.headers {
		h[k] = v
	}
	s.headers = h
	return s
}

func (s step) broken() step {
	s.breaks, s.length = true, length(-1)
	return s
}

func (s step) short(by int64) step {
	s.breaks, s.length = true, length(int64(len(s.body))+by)
	return s
}

func (s step) chunked() step {
	s.length = length(-1)
	return s
}

// but says what need not be the same, and why.
func (s step) but(why string, ignore ...string) step {
	s.differs, s.ignore = why, ignore
	return s
}

const (
	asJSON  = "application/json"
	asText  = "text/plain"
	notSaid = ""
)

const booksSDL = `index books {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text<standard> [indexed<positions>, stored]
  field year: i64 [stored, fast]
}`

func script() []step {
	long := strings.Repeat("x", 600)
	huge := strings.Repeat("x", 1<<20+10)
	var bulk strings.Builder
	for i := range 60 {
		fmt.Fprintf(&bulk, `{"id":"b%02d","title":"loom number %d","year":%d}`+"\n", i, i, 1900+i%7)
	}
	steps := []step{
		// What is there at first, and calls of an index that is not.
		call(200, "GET", "/indexes"),
		call(404, "GET", "/indexes/books"),
		call(404, "DELETE", "/indexes/books"),
		call(404, "GET", "/search?q=a&index=books"),
		call(404, "GET", "/search?index=books"),
		call(404, "POST", "/search?index=books").with(asJSON, `{"q":"a"}`),
		call(404, "GET", "/doc?index=books&id=1"),
		call(404, "DELETE", "/index?index=books&id=1"),
		call(404, "GET", "/knn_recall?index=books&field=v"),
		call(404, "GET", "/search?index=books&knn=v:1,2"),
		call(404, "GET", "/search?index=books&facets=year"),
		call(404, "GET", "/search?index=books&dfs=true&q=x"),
		// Paths and methods.
		call(404, "GET", "/"),
		call(404, "GET", "/nowhere"),
		call(404, "GET", "/indexes/"),
		call(404, "GET", "//search"),
		call(404, "GET", "/a/../search"),
		call(405, "PATCH", "/search"),
		call(405, "GET", "/index"),
		call(405, "PUT", "/index/bulk"),
		call(405, "POST", "/doc"),
		call(405, "POST", "/indexes"),
		call(405, "POST", "/indexes/books"),
		call(405, "POST", "/healthz"),
		call(405, "DELETE", "/search"),
		call(404, "HEAD", "/indexes/books"),
		call(200, "HEAD", "/indexes"),
		call(405, "HEAD", "/index/bulk"),
		// Parameters.
		call(400, "GET", "/indexes?x=1"),
		call(400, "GET", "/indexes/books?index=a"),
		call(400, "GET", "/search?nope=1"),
		call(400, "GET", "/search?q=a&q=b"),
		call(400, "GET", "/search?q=a;b"),
		call(400, "GET", "/search?q=%ff"),
		call(400, "GET", "/search?q=a&limit=-1"),
		call(400, "GET", "/search?q=a&limit=1e3"),
		call(400, "GET", "/search?q=a&limit=10001"),
		call(400, "GET", "/search?q=a&offset=9999999"),
		call(404, "GET", "/search?q=a&sort=year:up"),
		call(400, "GET", "/search?q=(a"),
		call(400, "GET", "/search?q=a&filter=(b"),
		call(400, "GET", "/search?q=a&dfs=maybe"),
		call(400, "GET", "/search?q=a&timeout_ms=0"),
		call(400, "GET", "/search?q=a&timeout_ms=99999999"),
		call(400, "GET", "/search?q=a&min_coverage=2"),
		call(400, "GET", "/search?q=a&allow_partial=x"),
		call(404, "GET", "/search?q=a&after=zzz"),
		call(400, "GET", "/search?q=a&track_total=some"),
		call(400, "GET", "/search?q=a&pool=0"),
		call(400, "GET", "/search?q=a&fusion=none"),
		call(400, "GET", "/search?q=a&knn=v"),
		call(400, "GET", "/search?q=a&aggs=x"),
		call(404, "GET", "/search?q=a&facets="),
		call(404, "GET", "/search?index=UPPER&q=a"),
		call(400, "GET", "/search?index=a%2Fb&q=a"),
		call(400, "GET", "/search?index=&q=a"),
		call(400, "GET", "/doc"),
		call(400, "GET", "/doc?id="),
		call(400, "GET", "/doc?id="+long),
		call(400, "GET", "/doc?id=1&x=2"),
		call(400, "GET", "/doc?id=1&id=2"),
		call(400, "GET", "/doc?index=..&id=1"),
		call(400, "DELETE", "/index"),
		call(400, "DELETE", "/index?id="),
		call(400, "DELETE", "/index?id="+long),
		call(400, "DELETE", "/index?index=.a&id=1"),
		call(400, "POST", "/index?id=1").with(asJSON, `{"id":"1"}`),
		call(400, "POST", "/index?index=a%2Fb").with(asJSON, `{"id":"1"}`),
		call(400, "POST", "/index/bulk?index=a%2Fb").with(ndjson, `{"id":"1"}`),
		call(400, "POST", "/index/bulk?id=1").with(ndjson, `{"id":"1"}`),
		call(400, "GET", "/knn_recall"),
		call(400, "GET", "/knn_recall?field=v&k=0"),
		call(400, "GET", "/knn_recall?field=v&k=1001"),
		call(400, "GET", "/knn_recall?field=v&samples=x"),
		call(400, "GET", "/knn_recall?field=v&ef=-1"),
		call(400, "GET", "/knn_recall?field=v&timeout_ms=x"),
		call(400, "GET", "/knn_recall?index=..&field=v"),
		call(414, "GET", "/search?q="+strings.Repeat("a", 66<<10)),
		call(431, "GET", "/search?q=a").header("X-Long", strings.Repeat("a", 66<<10)),
		// Content types and encodings.
		call(415, "PUT", "/indexes/books").with("application/xml", booksSDL),
		call(415, "PUT", "/indexes/books").with("application/x-www-form-urlencoded", booksSDL),
		call(415, "PUT", "/indexes/books").with("text/plain; charset=latin1", booksSDL),
		call(415, "PUT", "/indexes/books").with(asText, booksSDL).header("Content-Encoding", "gzip"),
		call(415, "POST", "/index").with(asText, `{"id":"1"}`),
		call(415, "POST", "/index").with(asJSON, `{"id":"1"}`).header("Content-Encoding", "gzip"),
		call(415, "POST", "/index/bulk").with(asText, `{"id":"1"}`),
		call(415, "POST", "/index/bulk").with(ndjson, `{"id":"1"}`).header("Content-Encoding", "zstd"),
		call(415, "POST", "/search").with(asText, `{"q":"a"}`),
		call(415, "POST", "/index").with(";;", `{"id":"1"}`),
		// Declaring.
		call(400, "PUT", "/indexes/.hidden").with(asText, booksSDL),
		call(400, "PUT", "/indexes/books").with(asText, "index books {"),
		call(201, "PUT", "/indexes/named").with(asText, "index other {\n  field id: text<raw> [indexed, primary]\n}"),
		call(400, "PUT", "/indexes/books").with(asText, "index books {\n  field id: nothing [indexed, primary]\n}"),
		call(400, "PUT", "/indexes/books").with(asText, "index books {\n  field t: text<klingon> [indexed]\n}"),
		call(400, "PUT", "/indexes/books").with(asJSON, "{"),
		call(400, "PUT", "/indexes/books").with(asJSON, "[]"),
		call(400, "PUT", "/indexes/books").with(asText, booksSDL).short(5),
		call(413, "PUT", "/indexes/books").with(asText, huge),
		call(413, "PUT", "/indexes/books").with(asText, huge).chunked(),
		call(404, "GET", "/indexes/books"),
		call(201, "PUT", "/indexes/books").with(asText, booksSDL),
		call(200, "PUT", "/indexes/books").with(asText, booksSDL),
		call(200, "PUT", "/indexes/books"),
		call(200, "PUT", "/indexes/books").with("text/plain; charset=UTF-8", ""),
		call(200, "PUT", "/indexes/books").with(asText, "index books {\n  field pages: i64 [stored, fast]\n}"),
		call(200, "PUT", "/indexes/books").with(asText, "index books {\n  field id: text<raw> [indexed, stored, fast, primary]\n  field extra: text<raw> [stored, fast]\n}").chunked(),
		call(409, "PUT", "/indexes/books").with(asText, "index books {\n  field year: text<standard> [indexed]\n}"),
		call(409, "PUT", "/indexes/books").with(asText, "index books {\n  field isbn: text<raw> [indexed, primary]\n}"),
		call(409, "PUT", "/indexes/books").with(asText, "index books {\n  dynamic: true\n}"),
		call(409, "PUT", "/indexes/books").with(asText, "index books {\n  field title: text<standard> [indexed<positions>, stored]\n  default_fields: [title]\n}"),
		call(201, "PUT", "/indexes/loose"),
		call(200, "PUT", "/indexes/loose"),
		call(201, "PUT", "/indexes/typed").with(asJSON, `{"name":"typed","fields":[{"name":"id","type":"text","tokenizer":"raw","indexed":true,"primary":true}]}`),
		call(201, "PUT", "/indexes/vectors").with(asText, "index vectors {\n  field id: text<raw> [indexed, stored, primary]\n  field v: dense_vector<2> [indexed<metric: l2>, stored]\n  field t: text<standard> [indexed, stored]\n}"),
		call(200, "GET", "/indexes"),
		call(200, "GET", "/indexes/books"),
		call(200, "HEAD", "/indexes/books"),
		// Single writes.
		call(200, "POST", "/index?index=books").with(asJSON, `{"id":"1","title":"the loom","year":1999}`),
		call(200, "POST", "/index?index=books").with(notSaid, `{"id":"2","title":"the weft and the loom"}`),
		call(200, "POST", "/index?index=books").with("application/json; charset=utf-8", "{\n\"id\":\"3\",\n\"title\":\"warp\"\n}"),
		call(200, "POST", "/index?index=books").with(asJSON, `{"id":"1","title":"the loom again","year":2000}`).chunked(),
		call(400, "POST", "/index?index=books").with(asJSON, ""),
		call(400, "POST", "/index?index=books").with(asJSON, "{"),
		call(400, "POST", "/index?index=books").with(asJSON, "[]"),
		call(400, "POST", "/index?index=books").with(asJSON, "{\"id\":\"1\",\n\n\"title\" \"x\"}"),
		call(400, "POST", "/index?index=books").with(asJSON, `{"title":"no id"}`),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":""}`),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":7}`),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"`+long+`"}`),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"1","id":"2"}`),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"1","nope":"x"}`),
		call(400, "POST", "/index?index=books").with(asJSON, "{\"id\":\"1\",\n\"year\":\"soon\"}"),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"1","year":99999999999999999999}`),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"1"} {"id":"2"}`),
		call(400, "POST", "/index?index=books").with(asJSON, "{\"id\":\"1\",\"title\":\"\xff\"}"),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"1","title":`).short(20),
		call(400, "POST", "/index?index=books").with(asJSON, `{"id":"1","title":`).broken(),
		call(413, "POST", "/index?index=books").with(asJSON, `{"id":"1"}`).announce(17 << 20),
		call(200, "POST", "/index?index=loose").with(asJSON, `{"id":"1","title":"inferred words here","n":1,"f":1.5,"b":true,"when":"2024-01-02T03:04:05Z","tags":["a","b"]}`),
		call(400, "POST", "/index?index=loose").with(asJSON, `{"id":"2","n":"not a number"}`),
		call(200, "POST", "/index?index=loose").with(asJSON, `{"id":"3","later":"brought later"}`),
		call(200, "POST", "/index").with(asJSON, `{"id":"1","in":"the default index"}`),
		call(200, "POST", "/index?index=fresh").with(asJSON, `{"id":"1","made":"by a write"}`),
		call(400, "POST", "/index?index=never").with(asJSON, `{"id":`),
		call(404, "GET", "/indexes/never"),
		call(200, "GET", "/indexes/loose"),
		call(200, "GET", "/indexes/fresh"),
		// Reading and deleting one.
		call(200, "GET", "/doc?index=books&id=1"),
		call(200, "HEAD", "/doc?index=books&id=1"),
		call(200, "GET", "/doc?index=loose&id=1"),
		call(404, "GET", "/doc?index=books&id=nobody"),
		call(404, "HEAD", "/doc?index=books&id=nobody"),
		call(200, "DELETE", "/index?index=books&id=3"),
		call(200, "DELETE", "/index?index=books&id=3"),
		call(404, "GET", "/doc?index=books&id=3"),
		// Loads.
		call(200, "POST", "/index/bulk?index=books").with(ndjson, bulk.String()),
		call(200, "POST", "/index/bulk?index=books").with(asJSON, bulk.String()).chunked(),
		call(200, "POST", "/index/bulk?index=books").with(ndjson, ""),
		call(200, "POST", "/index/bulk?index=absent").with(ndjson, ""),
		call(200, "POST", "/index/bulk?index=absent").with(ndjson, "\n \n\r\n"),
		call(404, "GET", "/indexes/absent"),
		call(400, "POST", "/index/bulk?index=absent").with(ndjson, "{\n[]\nno\n"),
		call(404, "GET", "/indexes/absent"),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "{\n[]\n{\"id\":\"x\",\"year\":\"y\"}\n{\"title\":\"no id\"}\n"),
		call(207, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"m1\",\"title\":\"one loom\"}\nbroken\n\n{\"id\":\"m2\",\"year\":\"x\"}\n{\"id\":\"m3\",\"title\":\"two\"}\r\n{\"id\":\"m1\",\"title\":\"one\"}\n"),
		call(207, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"k1\",\"title\":\"kept\"}\n{\"id\":\"k2\",\"ti").broken(),
		call(207, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"k1\",\"title\":\"kept\"}\n{\"id\":\"k2\",\"ti").short(50),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"k3\",\"ti").broken(),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "bad\n{\"id\":\"k3\",\"ti").broken(),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "").short(10),
		call(200, "GET", "/doc?index=books&id=k1"),
		call(404, "GET", "/doc?index=books&id=k3"),
		call(200, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i1\",\"title\":\"once\"}\n").header("Idempotency-Key", "load-1"),
		call(200, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i1\",\"title\":\"once\"}\n").header("Idempotency-Key", "load-1"),
		call(207, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i2\",\"title\":\"twice\"}\nbad\n").header("Idempotency-Key", "load-2"),
		call(207, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i2\",\"title\":\"twice\"}\nbad\n").header("Idempotency-Key", "load-2"),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i3\"}\n").header("Idempotency-Key", strings.Repeat("k", 300)),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i3\"}\n").header("Idempotency-Key", ""),
		call(400, "POST", "/index/bulk?index=books").with(ndjson, "{\"id\":\"i3\"}\n").header("Idempotency-Key", "ké"),
		call(200, "POST", "/index/bulk?index=more").with(ndjson, "{\"id\":\"1\",\"a\":\"x\"}\n{\"id\":\"2\",\"b\":2}\n{\"id\":\"3\",\"c\":true}\n"),
		call(207, "POST", "/index/bulk?index=more").with(ndjson, "{\"id\":\"4\",\"d\":1}\n{\"id\":\"5\",\"d\":\"words\"}\n"),
		call(200, "POST", "/index/bulk?index=vectors").with(ndjson, "{\"id\":\"1\",\"v\":[0,1],\"t\":\"a\"}\n{\"id\":\"2\",\"v\":[1,0],\"t\":\"a b\"}\n{\"id\":\"3\",\"v\":[1,1],\"t\":\"b\"}\n"),
		call(207, "POST", "/index/bulk?index=vectors").with(ndjson, "{\"id\":\"4\",\"v\":[2,2]}\n{\"id\":\"5\",\"v\":[0]}\n"),
		call(200, "GET", "/indexes/more"),
		call(200, "GET", "/indexes"),
		// Searches.
		call(200, "GET", "/search?index=books&dfs=true&q=loom"),
		call(200, "HEAD", "/search?index=books&dfs=true&q=loom"),
		call(200, "GET", "/search?index=books&dfs=true&sort=id&q=loom&fields=id,title"),
		call(200, "GET", "/search?index=books&sort=year:desc,id&facets=year&limit=3"),
		call(200, "GET", "/search?index=books&limit=0"),
		call(200, "GET", "/search?index=books&limit=0&aggs=y:stats(year)"),
		call(200, "GET", "/search?index=books&dfs=true&sort=id&q=loom&track_total=none"),
		call(200, "GET", "/search?index=books&dfs=true&sort=id&q=loom&highlight=title&limit=2"),
		call(200, "GET", "/search?index=loose"),
		call(200, "GET", "/search?index=fresh&dfs=true&q=write"),
		call(200, "GET", "/search?dfs=true&q=default"),
		call(200, "GET", "/search?index=vectors&knn=v:1,1&limit=2"),
		call(200, "GET", "/search?index=vectors&q=b&knn=v:1,1"),
		call(200, "GET", "/search?index=vectors&q=b&knn=v:1,1&pool=2"),
		call(200, "GET", "/knn_recall?index=vectors&field=v&k=2&samples=3"),
		call(400, "GET", "/knn_recall?index=vectors&field=t"),
		call(400, "GET", "/knn_recall?index=vectors&field=nope"),
		call(400, "GET", "/search?index=books&q=nope:x"),
		call(400, "GET", "/search?index=books&q=a&default_fields=nope"),
		call(400, "GET", "/search?index=books&q=a&fields=nope"),
		call(400, "GET", "/search?index=books&q=a&sort=title"),
		call(400, "GET", "/search?index=books&q=a&sort=nope"),
		call(400, "GET", "/search?index=books&q=a&facets=title"),
		call(400, "GET", "/search?index=books&q=a&facets=nope"),
		call(400, "GET", "/search?index=books&q=a&highlight=nope"),
		call(400, "GET", "/search?index=books&q=a&filter=year:[x+TO+y]"),
		call(400, "GET", "/search?index=books&q=a&aggs=z:histogram(title,1)"),
		call(400, "GET", "/search?index=books&q=a&knn=title:1"),
		call(400, "GET", "/search?index=vectors&knn=v:1"),
		call(400, "GET", "/search?index=vectors&knn=v:1,2,3"),
		call(400, "GET", "/search?index=books&q=year:soon"),
		call(400, "GET", "/search?index=books&q=(((("),
		call(400, "GET", "/search?index=books&q=a&explain=true&limit=1000"),
		call(200, "POST", "/search?index=books").with(asJSON, `{"q":"loom","sort":"id","limit":2,"dfs":true}`),
		call(200, "POST", "/search").with(asJSON, `{"index":"books","q":"loom","sort":"id","limit":2,"dfs":true}`),
		call(200, "POST", "/search?index=books").with(notSaid, `{"limit":0}`),
		call(400, "POST", "/search?index=books").with(asJSON, `{"index":"other","q":"loom"}`),
		call(400, "POST", "/search?index=books").with(asJSON, `{"q":1}`),
		call(400, "POST", "/search?index=books").with(asJSON, `{"nope":1}`),
		call(400, "POST", "/search?index=books").with(asJSON, `{`),
		call(400, "POST", "/search?index=books").with(asJSON, ``),
		call(400, "POST", "/search?q=a").with(asJSON, `{}`),
		call(400, "POST", "/search?index=books").with(asJSON, `{"q":"loom"`).short(3),
		call(413, "POST", "/search?index=books").with(asJSON, `{"q":"`+huge+`"}`),
		call(413, "POST", "/search?index=books").with(asJSON, `{"q":"`+huge+`"}`).chunked(),
		// Deleting indexes.
		call(200, "DELETE", "/indexes/fresh"),
		call(404, "DELETE", "/indexes/fresh"),
		call(404, "GET", "/search?index=fresh&dfs=true&q=write"),
		call(404, "GET", "/doc?index=fresh&id=1"),
		call(200, "POST", "/index?index=fresh").with(asJSON, `{"id":"1","made":7}`),
		call(200, "GET", "/indexes/fresh"),
		call(200, "GET", "/search?index=fresh&q=made:7"),
		call(400, "DELETE", "/indexes/.hidden"),
		call(400, "DELETE", "/indexes/fresh?x=1"),
		call(200, "GET", "/indexes"),
		// About the server.
		call(200, "GET", "/healthz").but("each process has an id", "id"),
		call(200, "HEAD", "/healthz").but("as the one before", "id"),
		call(400, "GET", "/healthz?x=1"),
		call(200, "GET", "/readyz").but("a node tells of its indexes, a coordinator of the shard map", "indexes", "epoch", "groups"),
		call(200, "GET", "/openapi.json"),
		call(200, "GET", "/metrics").but("a node counts other things than a coordinator", bodyPath),
		call(400, "GET", "/metrics?x=1"),
	}
	for i := range steps {
		s := &steps[i]
		s.name = fmt.Sprintf("%d %s %.80s %.60q", i, s.method, s.target, s.body)
	}
	return steps
}

func (s step) announce(n int64) step {
	s.length = &n
	return s
}

// bodyPath stands for the whole body in step.ignore.
const bodyPath = "*"

// TestHTTPIsThatOfANode gives a node and clusters one script of calls, good and bad, and compares what they answer.
func TestHTTPIsThatOfANode(t *testing.T) {
	steps := script()
	if len(steps) < 150 {
		t.Fatalf("only %d steps", len(steps))
	}
	want := make([]answered, len(steps))
	n := single(t)
	for i := range steps {
		want[i] = steps[i].run(n)
		if want[i].status != steps[i].status {
			t.Errorf("%s: a node answers %d, and not %d: %s", steps[i].name, want[i].status, steps[i].status, brief(string(want[i].body)))
		}
	}
	for _, size := range []struct{ shards, replicas int }{{1, 1}, {2, 1}, {3, 2}} {
		t.Run(fmt.Sprintf("%dx%d", size.shards, size.replicas), func(t *testing.T) {
			c := open(t, size.shards, size.replicas, placement.Ring)
			for i := range steps {
				compare(t, &steps[i], want[i], steps[i].run(c.front))
			}
		})
	}
}

func compare(t *testing.T, s *step, want, got answered) {
	t.Helper()
	var diff []string
	if want.status != got.status {
		diff = append(diff, fmt.Sprintf("status: node %d, cluster %d", want.status, got.status))
	}
	for _, h := range comparedHeaders {
		if a, b := want.header.Get(h), got.header.Get(h); a != b {
			diff = append(diff, fmt.Sprintf("%s: node %q, cluster %q", h, a, b))
		}
	}
	a, b := want.object(t), got.object(t)
	whole := true
	for _, path := range s.ignore {
		if path == bodyPath {
			whole = false
			continue
		}
		without(a, path)
		without(b, path)
	}
	if whole {
		differences("", a, b, &diff)
	}
	if len(diff) > 0 {
		t.Errorf("%s\n\t%s", s.name, strings.Join(diff, "\n\t"))
	}
}
