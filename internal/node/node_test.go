package node

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/obs/obstest"
)

func TestRoutesAndDocumentAgree(t *testing.T) {
	doc := document()
	have := map[string]bool{}
	for _, rt := range (&Node{}).routes() {
		have[rt.Method+" "+rt.Path] = true
		item := doc.Paths.Find(rt.Path)
		if item == nil || item.GetOperation(rt.Method) == nil {
			t.Errorf("%s %s is not in the document", rt.Method, rt.Path)
			continue
		}
		if rt.Params == nil {
			continue // the parameters of search are compared where they are defined
		}
		var documented []string
		for _, p := range item.GetOperation(rt.Method).Parameters {
			if p.Value.In == "query" {
				documented = append(documented, p.Value.Name)
			}
		}
		if d := cmp.Diff(slices.Sorted(slices.Values(rt.Params)), slices.Sorted(slices.Values(documented))); len(documented)+len(rt.Params) > 0 && d != "" {
			t.Errorf("%s %s: parameters in code and document: %s", rt.Method, rt.Path, d)
		}
	}
	for path, item := range doc.Paths.Map() {
		if strings.HasPrefix(path, "/_") {
			continue // of a coordinator, whose tests look at them
		}
		for method := range item.Operations() {
			if !have[method+" "+path] {
				t.Errorf("%s %s is in the document only", method, path)
			}
		}
	}
}

const bookSchema = `index books {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text<unicode_word> [indexed<positions>, stored]
  field year: i64 [fast, stored]
  field note: text<unicode_word> [indexed]
}`

func TestIndexLife(t *testing.T) {
	s := newServer(t, Config{})
	if got := s.do("GET", "/indexes", "", "").want(200).json(); len(got["indexes"].([]any)) != 0 {
		t.Fatalf("a fresh node has indexes: %v", got)
	}
	s.do("GET", "/indexes/books", "", "").problem(404, api.IndexNotFound)
	s.do("DELETE", "/indexes/books", "", "").problem(404, api.IndexNotFound)

	made := s.do("PUT", "/indexes/books", "text/plain", bookSchema).want(201).json()
	if made["name"] != "books" || made["docs"] != 0.0 || made["dynamic"] != false || !strings.Contains(made["schema"].(string), "field title") {
		t.Fatalf("made %v", made)
	}
	// Again: nothing changes. With more: the field is added. With less: nothing is taken away. With another type: a conflict.
	s.do("PUT", "/indexes/books", "text/plain; charset=utf-8", bookSchema).want(200)
	more := strings.Replace(bookSchema, "field note", "field price: f64 [fast, stored]\n  field note", 1)
	if got := s.do("PUT", "/indexes/books", "text/plain", more).want(200).json()["schema"].(string); !strings.Contains(got, "price") {
		t.Fatalf("schema after adding a field: %s", got)
	}
	if got := s.do("PUT", "/indexes/books", "text/plain", bookSchema).want(200).json()["schema"].(string); !strings.Contains(got, "price") {
		t.Fatalf("schema after declaring less: %s", got)
	}
	p := s.do("PUT", "/indexes/books", "text/plain", strings.Replace(bookSchema, "year: i64", "year: f64", 1)).problem(409, api.SchemaConflict)
	if p["field"] != "year" {
		t.Errorf("conflict on %v", p["field"])
	}
	if got := s.do("PUT", "/indexes/Other.9-x_y", "text/plain", bookSchema).want(201).json(); !strings.HasPrefix(got["schema"].(string), "index ") {
		t.Errorf("schema of another name: %v", got)
	}
	s.put("Other.9-x_y", `{"id":"1","title":"a book"}`)
	s.do("DELETE", "/indexes/Other.9-x_y", "", "").want(200)
	s.do("PUT", "/indexes/loose", "", "").want(201)

	s.put("books", `{"id":"1","title":"a book","year":1999,"price":2.5}`)
	got := s.do("GET", "/indexes/books", "", "").want(200).json()
	if got["docs"] != 1.0 || got["state"] != "open" {
		t.Fatalf("after a write: %v", got)
	}
	list := s.do("GET", "/indexes", "", "").want(200).json()["indexes"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["name"] != "books" || list[1].(map[string]any)["dynamic"] != true {
		t.Fatalf("list %v", list)
	}
	if gone := s.do("DELETE", "/indexes/books", "", "").want(200).json(); gone["docs"] != 1.0 || gone["state"] != "deleted" {
		t.Fatalf("deleted %v", gone)
	}
	s.do("GET", "/search?index=books", "", "").problem(404, api.IndexNotFound)
	// The name begins anew, without what was there.
	s.put("books", `{"id":"2","title":"another"}`)
	if ids, total := s.ids("/search?index=books"); total != 1 || ids[0] != "2" {
		t.Fatalf("after a new beginning: %v, %v", ids, total)
	}
}

// TestSchemaIsNamedByThePath declares schemas without a name, and with another one.
func TestSchemaIsNamedByThePath(t *testing.T) {
	s := newServer(t, Config{})
	const unnamed = `{"fields":[{"name":"title","type":"text"}]}`
	for _, want := range []int{201, 200} {
		if got := s.do("PUT", "/indexes/films", "application/json", unnamed).want(want).json(); !strings.HasPrefix(got["schema"].(string), "index films {") {
			t.Errorf("schema %v", got["schema"])
		}
	}
	s.do("PUT", "/indexes/films", "application/json", `{"name":"other","fields":[{"name":"year","type":"i64"}]}`).want(200)
	s.put("films", `{"id":"1","title":"x","year":1927}`)
}

// TestDeclaringOtherOptionsIsAConflict: what an index cannot take over is said, and nothing else of the declaration is taken over either.
func TestDeclaringOtherOptionsIsAConflict(t *testing.T) {
	s := newServer(t, Config{})
	const fields = `"fields":[{"name":"title","type":"text"},{"name":"body","type":"text"}`
	with := func(more string) string { return `{` + fields + `]` + more + `}` }
	added := func(more string) string { return `{` + fields + `,{"name":"new","type":"i64"}]` + more + `}` }
	s.do("PUT", "/indexes/a", "application/json", with(`,"default_fields":["title"]`)).want(201)
	s.do("PUT", "/indexes/b", "application/json", with("")).want(201)
	s.do("PUT", "/indexes/loose", "", "").want(201)
	for _, tt := range []struct{ index, more, field string }{
		{"a", `,"default_fields":["title","body"]`, "default_fields"},
		{"b", `,"default_fields":["title"]`, "default_fields"},
		{"a", `,"dynamic":true`, "dynamic"},
		{"a", `,"max_l1_phrase_terms":7`, "max_l1_phrase_terms"},
		{"a", `,"reorder_on_merge":true`, "reorder_on_merge"},
	} {
		p := s.do("PUT", "/indexes/"+tt.index, "application/json", added(tt.more)).problem(409, api.SchemaConflict)
		if p["field"] != tt.field || !strings.Contains(p["detail"].(string), tt.field) {
			t.Errorf("%s: field %v, detail %v", tt.more, p["field"], p["detail"])
		}
	}
	for _, index := range []string{"a", "b"} {
		if got := s.do("GET", "/indexes/"+index, "", "").json()["schema"].(string); strings.Contains(got, "new") {
			t.Errorf("a refused declaration added a field: %s", got)
		}
	}
	// The same options, or none, are no conflict; an index that infers its fields can be given declared ones.
	s.do("PUT", "/indexes/a", "application/json", added(`,"default_fields":["title"]`)).want(200)
	s.do("PUT", "/indexes/a", "application/json", with("")).want(200)
	if got := s.do("PUT", "/indexes/loose", "application/json", with("")).want(200).json(); got["dynamic"] != true {
		t.Errorf("an index that infers its fields became %v", got)
	}
}

// TestFieldsOfANestedObject names an object where its members are the fields.
func TestFieldsOfANestedObject(t *testing.T) {
	s := newServer(t, Config{})
	s.put("loose", `{"id":"1","t":"x","author":{"name":"Ada","born":1815,"nick":null,"home":{"city":"London"}},"authority":"y"}`)
	s.do("PUT", "/indexes/books", "text/plain", `index books {
  field id: text<raw> [indexed, stored, fast, primary]
  field "author.name": text<raw> [indexed, stored]
  field "author.secret": text<raw> [indexed]
  field "hidden.a": text<raw> [indexed]
}`).want(201)
	s.put("books", `{"id":"1","author":{"name":"Ada","secret":"s"},"hidden":{"a":"h"}}`)
	for _, tt := range []struct{ index, fields, want string }{
		{"loose", "author", `{"author":{"name":"Ada","born":1815,"nick":null,"home":{"city":"London"}}}`},
		{"loose", "author.home,id", `{"id":"1","author":{"home":{"city":"London"}}}`},
		{"books", "author", `{"author":{"name":"Ada"}}`},
	} {
		got := string(s.do("GET", "/search?index="+tt.index+"&fields="+tt.fields, "", "").want(200).body)
		if !strings.Contains(got, `"source":`+tt.want+`}`) {
			t.Errorf("fields=%s of %s: %s", tt.fields, tt.index, got)
		}
	}
	s.do("GET", "/search?index=books&fields=hidden", "", "").problem(400, api.InvalidField)
	s.do("GET", "/search?index=loose&fields=auth", "", "").problem(400, api.UnknownField)
}

func TestWriteAndRead(t *testing.T) {
	s := newServer(t, Config{})
	s.do("GET", "/doc?id=1", "", "").problem(404, api.IndexNotFound)
	s.do("GET", "/search?q=x", "", "").problem(404, api.IndexNotFound)
	s.do("DELETE", "/index?id=1", "", "").problem(404, api.IndexNotFound)

	first := s.do("POST", "/index", "application/json", `{"id":"1","title":"The quick brown fox","n":3,"ok":true,"at":"2026-01-02T03:04:05Z"}`).want(200).json()
	inferred := map[string]string{}
	for _, f := range first["inferred"].([]any) {
		m := f.(map[string]any)
		inferred[m["field"].(string)] = m["from"].(string)
	}
	if d := cmp.Diff(map[string]string{"title": "string", "n": "integer", "ok": "boolean", "at": "date"}, inferred); d != "" {
		t.Error("inferred:", d)
	}
	if again := s.put("default", `{"id":"2","title":"A slow fox"}`); again["inferred"] != nil {
		t.Errorf("nothing new, but inferred %v", again["inferred"])
	}
	doc := s.do("GET", "/doc?id=1", "", "").want(200)
	if want := `{"id":"1","source":{"id":"1","title":"The quick brown fox","n":3,"ok":true,"at":"2026-01-02T03:04:05Z"}}`; string(doc.body) != want {
		t.Errorf("doc %s", doc.body)
	}
	s.do("GET", "/doc?id=3", "", "").problem(404, api.DocumentNotFound)

	ids, total := s.ids("/search?q=fox")
	if total != 2 || !slices.Equal(ids, []string{"2", "1"}) {
		t.Fatalf("fox: %v, %v", ids, total)
	}
	// A document is replaced by its id, and the change shows at once.
	s.put("default", `{"id":"2","title":"A slow bear"}`)
	if ids, total = s.ids("/search?q=fox"); total != 1 || ids[0] != "1" {
		t.Fatalf("fox after the update: %v, %v", ids, total)
	}
	for want := 1.0; want >= 0; want-- {
		m := s.do("DELETE", "/index?id=1", "", "").want(200).json()
		if m["deleted"] != want || m["ok"] != true || m["members_ok"] != 1.0 {
			t.Fatalf("delete: %v", m)
		}
	}
	if _, total = s.ids("/search?q=fox"); total != 0 {
		t.Fatalf("fox after the delete: %v", total)
	}
	s.do("GET", "/doc?id=1", "", "").problem(404, api.DocumentNotFound)
	if _, total = s.ids("/search"); total != 1 {
		t.Fatalf("all: %v", total)
	}
}

func TestSearchReply(t *testing.T) {
	s := newServer(t, Config{})
	s.do("PUT", "/indexes/books", "text/plain", bookSchema).want(201)
	for i := range 30 {
		s.put("books", fmt.Sprintf(`{"id":"b%02d","title":"common %s","year":%d,"note":"hidden"}`, i, strings.Repeat("word ", i%7), 1990+i))
	}
	get := s.do("GET", "/search?index=books&q=common&limit=3&offset=2&profile=true", "", "").want(200)
	m := get.json()
	if m["total"] != 30.0 || m["total_relation"] != "eq" || len(m["hits"].([]any)) != 3 {
		t.Fatalf("%s", get.body)
	}
	want := `{"total":1,"ok":1,"failed":0,"failed_addresses":[],"outcomes":[`
	if !strings.Contains(string(get.body), want) {
		t.Errorf("%s lacks %s", get.body, want)
	}
	if want := `"coverage":{"shards":1,"docs_covered":30,"docs_total":30,"complete":true}`; !strings.Contains(string(get.body), want) {
		t.Errorf("%s lacks %s", get.body, want)
	}
	var sum float64
	for name, v := range m["timings"].(map[string]any) {
		if strings.HasSuffix(name, "_ms") {
			sum += v.(float64)
		}
	}
	if took := m["took_ms"].(float64); math.Abs(took-sum) > 1e-6 {
		t.Errorf("took %v, timings add up to %v", took, sum)
	}
	stats := m["profile"].(map[string]any)["statistics"].(map[string]any)
	if stats["docs"] != 30.0 {
		t.Errorf("statistics %v", stats)
	}
	for _, h := range m["hits"].([]any) {
		if src := h.(map[string]any)["source"].(map[string]any); src["note"] != nil || src["title"] == nil {
			t.Errorf("source %v: note is not stored", src)
		}
	}
	// The same search in a body gives the same hits, with and without installed statistics, to the last bit.
	post := s.do("POST", "/search?index=books", "application/json", `{"q":"common","limit":3,"offset":2}`).want(200)
	if a, b := hitsOf(get), hitsOf(post); a != b {
		t.Errorf("GET %s\nPOST %s", a, b)
	}

	none := s.do("GET", "/search?index=books&q=common&track_total=none&fields=year&limit=1", "", "").want(200)
	if m := none.json(); m["total"] != nil || m["total_relation"] != "none" {
		t.Errorf("no total: %s", none.body)
	}
	if !strings.Contains(string(none.body), `"source":{"year":`) {
		t.Errorf("named fields: %s", none.body)
	}
	if bare := s.do("GET", "/search?index=books&q=common&fields=", "", "").want(200); strings.Contains(string(bare.body), `"source"`) {
		t.Errorf("no source: %s", bare.body)
	}
	floor := s.do("GET", "/search?index=books&q=common&track_total=5", "", "").want(200).json()
	if rel := floor["total_relation"]; rel != "gte" && rel != "eq" || floor["total"].(float64) < 5 {
		t.Errorf("lower bound: %v %v", floor["total"], rel)
	}
	if m := s.do("GET", "/search?index=books&limit=0&dfs=true", "", "").want(200).json(); m["total"] != 30.0 || m["dfs"] != true {
		t.Errorf("count only: %v", m)
	}
	ids, _ := s.ids("/search?index=books&q=year:[1991+TO+1993}")
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"b01", "b02"}) {
		t.Errorf("range: %v", ids)
	}
	if ids, _ := s.ids("/search?index=books&q=*&limit=2&offset=29"); !slices.Equal(ids, []string{"b29"}) {
		t.Errorf("last page: %v", ids)
	}
	if m := s.do("HEAD", "/search?index=books", "", ""); m.status != 200 {
		t.Errorf("HEAD: %d", m.status)
	}
}

func hitsOf(a *answer) string {
	var m struct{ Hits json.RawMessage }
	if err := json.Unmarshal(a.body, &m); err != nil {
		a.t.Fatal(err)
	}
	return string(m.Hits)
}

func TestHealth(t *testing.T) {
	s := newServer(t, Config{Version: "v9"})
	if m := s.do("GET", "/healthz", "", "").want(200).json(); m["id"] != s.node.ID() || m["version"] != "v9" {
		t.Errorf("health %v", m)
	}
	if m := s.do("GET", "/readyz", "", "").want(200).json(); m["ready"] != true {
		t.Errorf("ready %v", m)
	}
	s.put("books", `{"id":"1","title":"x"}`)
	s.ids("/search?index=books&q=x")
	s.do("GET", "/search?index=unknown_name", "", "").problem(404, api.IndexNotFound)
	page := string(s.do("GET", "/metrics", "", "").want(200).body)
	for _, want := range []string{
		`weft_http_requests_total{code="200",route="search"} 1`, `weft_http_requests_total{code="404",route="search"} 1`,
		`weft_index_docs{index="books"} 1`, `weft_documents_total{result="indexed"} 1`, `weft_search_stage_seconds_count{stage="search"} 1`,
		`weft_build_info{version="v9"} 1`, `weft_refused_total{cause="too_many_searches"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(page, "unknown_name") {
		t.Error("the name of an index that does not exist became a label")
	}
	if got := s.do("GET", "/openapi.json", "", "").want(200); string(got.body) != string(api.OpenAPI) {
		t.Error("the document is not the one of the package")
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	s.do("PUT", "/indexes/books", "text/plain", bookSchema).want(201)
	s.put("books", `{"id":"1","title":"declared"}`)
	s.put("loose", `{"id":"1","title":"inferred","n":1}`)
	before := hitsOf(s.do("GET", "/search?index=loose&q=inferred", "", "").want(200))
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := newServer(t, Config{DataDir: dir})
	if again.node.ID() != s.node.ID() {
		t.Error("the node has another id after a restart")
	}
	if after := hitsOf(again.do("GET", "/search?index=loose&q=inferred", "", "").want(200)); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	// The dynamic index goes on inferring, the declared one does not begin to.
	if m := again.put("loose", `{"id":"2","more":"x"}`); m["inferred"] == nil {
		t.Errorf("nothing inferred after a restart: %v", m)
	}
	again.do("POST", "/index?index=books", "application/json", `{"id":"2","more":"x"}`).problem(400, api.UnknownField)
}

// TestMetricsAreDocumented compares the names in docs/operating.md with those of /metrics, both ways.
func TestMetricsAreDocumented(t *testing.T) {
	s := newServer(t, Config{GRPCAddr: "127.0.0.1:0", ShardAddr: "127.0.0.1:0", SummaAddr: "127.0.0.1:0"})
	s.put("default", `{"id":"1"}`)
	s.ids("/search")
	if _, err := s.node.Leaf().Docs(t.Context(), &leaf.DocsRequest{}); err != nil {
		t.Fatal(err)
	}
	// What a coordinator has is in a section of its own.
	_, page := obstest.Cut(t, obstest.Page(t, filepath.Join("..", ".."), "operating.md"), "## Running a cluster")
	obstest.Compare(t, obstest.Served(string(s.do("GET", "/metrics", "", "").want(200).body)), page)
}
