package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

const stagedSchema = `{"visibility":"commit","dynamic":true,"fields":[{"name":"id","type":"text","primary":true},{"name":"title","type":"text"}]}`

// TestWritesShowOnCommit goes through every write over HTTP: nothing shows before the commit, everything after it, also over a restart.
func TestWritesShowOnCommit(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	made := s.do("PUT", "/indexes/notes", "application/json", stagedSchema).want(201).json()
	if made["visibility"] != "commit" {
		t.Fatalf("made %v", made)
	}
	shown := func(s *server, want string) {
		t.Helper()
		ids, _ := s.ids("/search?index=notes&q=*&sort=id")
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("shown %q, want %q", got, want)
		}
	}
	commit := func(docs float64) {
		t.Helper()
		m := s.do("POST", "/commit?index=notes", "", "").want(200).json()
		if m["visibility"] != "commit" || m["docs"] != docs {
			t.Errorf("commit: %v, want %v documents", m, docs)
		}
	}
	if m := s.put("notes", `{"id":"1","title":"warp","more":1}`); m["staged"] != true {
		t.Errorf("a write: %v", m)
	}
	m := s.do("POST", "/index/bulk?index=notes", "application/x-ndjson", "{\"id\":\"2\",\"title\":\"weft\"}\n{\"id\":\"3\",\"title\":\"loom\"}\n").want(200).json()
	if m["staged"] != true || m["indexed"] != 2.0 {
		t.Errorf("a load: %v", m)
	}
	shown(s, "")
	s.do("GET", "/doc?index=notes&id=1", "", "").problem(404, api.DocumentNotFound)
	if m := s.do("GET", "/indexes/notes", "", "").want(200).json(); m["staged"] != 3.0 || m["docs"] != 0.0 { // two batches and the fields
		t.Errorf("the index: %v", m)
	}
	commit(3)
	shown(s, "1 2 3")
	if m := s.do("DELETE", "/index?index=notes&id=2", "", "").want(200).json(); m["staged"] != true || m["deleted"] != 1.0 {
		t.Errorf("a deletion: %v", m)
	}
	s.put("notes", `{"id":"4","title":"shuttle"}`)
	shown(s, "1 2 3")
	page := string(s.do("GET", "/metrics", "", "").want(200).body)
	if !strings.Contains(page, `weft_index_staged_records{index="notes"} 2`) {
		t.Error("the metrics do not tell of staged records")
	}
	// A repeated load says that it is staged as the first did.
	key := http.Header{"Content-Type": {"application/x-ndjson"}, "Idempotency-Key": {"k"}}
	for range 2 {
		if m := s.sendHeader("POST", "/index/bulk?index=notes", key, "{\"id\":\"5\"}\n").want(200).json(); m["staged"] != true {
			t.Errorf("a load with a key: %v", m)
		}
	}
	// The end of the node commits.
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = newServer(t, Config{DataDir: dir})
	shown(s, "1 3 4 5")
	s.put("notes", `{"id":"6"}`)
	shown(s, "1 3 4 5")
	commit(5)
	commit(5)
	shown(s, "1 3 4 5 6")
}

func TestVisibilityIsOfTheIndex(t *testing.T) {
	s := newServer(t, Config{})
	s.do("PUT", "/indexes/a", "application/json", stagedSchema).want(201)
	// The same again, and without a word about it.
	s.do("PUT", "/indexes/a", "application/json", stagedSchema).want(200)
	s.do("PUT", "/indexes/a", "text/plain", "").want(200)
	s.do("PUT", "/indexes/a", "application/json", strings.Replace(stagedSchema, "commit", "at_once", 1)).problem(409, api.SchemaConflict)
	s.do("PUT", "/indexes/b", "application/json", strings.Replace(stagedSchema, "commit", "at_once", 1)).want(201)
	s.do("PUT", "/indexes/b", "application/json", stagedSchema).problem(409, api.SchemaConflict)
	s.do("PUT", "/indexes/c", "application/json", `{"visibility":"later"}`).problem(400, api.InvalidSchema)
	s.do("PUT", "/indexes/c", "application/json", `{"visibility":"commit","fields":[],"visibility":"commit"}`).problem(400, api.InvalidSchema)
	if m := s.put("b", `{"id":"1"}`); m["staged"] != nil {
		t.Errorf("staged: %v", m)
	}
	if m := s.do("POST", "/commit?index=b", "", "").want(200).json(); m["visibility"] != "at_once" || m["docs"] != 1.0 {
		t.Errorf("commit of an index that shows writes at once: %v", m)
	}
	s.do("POST", "/commit?index=none", "", "").problem(404, api.IndexNotFound)
}

func TestCutVisibility(t *testing.T) {
	for _, c := range []struct{ in, out, visibility string }{
		{`{"visibility":"commit"}`, `{}`, "commit"},
		{`{"visibility": "commit" , "fields":[]}`, `{"fields":[]}`, "commit"},
		{`{"fields":[],"visibility":"at_once"}`, `{"fields":[]}`, "at_once"},
		{"{\"fields\":[\n],\n\"visibility\":\n\"commit\",\"dynamic\":true}", "{\"fields\":[\n],\"dynamic\":true}", "commit"},
		{`{"fields":[{"visibility":"commit"}]}`, `{"fields":[{"visibility":"commit"}]}`, ""},
		{`{"a":,}`, `{"a":,}`, ""},
		{`[]`, `[]`, ""},
		{``, ``, ""},
	} {
		out, v, prob := cutVisibility([]byte(c.in))
		if prob != nil || v != c.visibility {
			t.Errorf("%s: %q, %v", c.in, v, prob)
		}
		if len(out) != len(c.in) || bytes.Count(out, []byte("\n")) != strings.Count(c.in, "\n") {
			t.Errorf("%q: places moved in %q", c.in, out)
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if squeeze(string(out)) != squeeze(c.out) {
			t.Errorf("%q: left %q, want %q", c.in, out, c.out)
		}
	}
}

// TestShardProtocolsDoNotStage writes over the leaf, as a coordinator does.
func TestShardProtocolsDoNotStage(t *testing.T) {
	s := newServer(t, Config{})
	s.do("PUT", "/indexes/notes", "application/json", stagedSchema).want(201)
	s.put("notes", `{"id":"1"}`)
	s.do("POST", "/commit?index=notes", "", "").want(200)
	l := s.node.Leaf()
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"Index": func() error {
			_, err := l.Index(ctx, &leaf.IndexRequest{Index: "notes", Body: []byte(`{"id":"2"}`)})
			return err
		},
		"DeleteMany": func() error {
			_, err := l.DeleteMany(ctx, &leaf.DeleteRequest{Index: "notes", IDs: []string{"1"}})
			return err
		},
		"Bulk": func() error {
			_, err := l.Bulk(ctx, &leaf.BulkRequest{Index: "notes"}, strings.NewReader("{\"id\":\"3\"}\n"))
			return err
		},
		"PutIndex": func() error {
			_, err := l.PutIndex(ctx, &leaf.PutIndexRequest{Index: "notes", Schema: "index notes { field x: text }"})
			return err
		},
	} {
		p, ok := errors.AsType[*api.Problem](call())
		if !ok || p.Code != api.CommitNeeded {
			t.Errorf("%s: %v", name, p)
		}
	}
	if r, err := l.Docs(ctx, &leaf.DocsRequest{Index: "notes"}); err != nil || r.Docs != 1 {
		t.Errorf("documents: %v, %v", r, err)
	}
	if _, err := l.DropIndex(ctx, &leaf.DropIndexRequest{Index: "notes"}); err != nil {
		t.Errorf("drop: %v", err)
	}
}

// TestCatalogFormats opens catalogs as they were written by every version, and holds what is written now against them.
func TestCatalogFormats(t *testing.T) {
	for _, format := range []string{"1", "2"} {
		golden, err := os.ReadFile(filepath.Join("testdata", "catalog-"+format+".json"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := newServer(t, Config{DataDir: dir}).node.Close(t.Context()); err != nil { // for its node.json
			t.Fatal(err)
		}
		path := filepath.Join(dir, catalogFile)
		if err := os.WriteFile(path, golden, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newServer(t, Config{DataDir: dir})
		var got []string
		for _, i := range s.node.catalog.list() {
			got = append(got, fmt.Sprintf("%s %q", i.entry.Name, i.entry.Visibility))
		}
		want := `books ""`
		if format == "2" {
			want = `books "",notes "commit"`
		}
		if strings.Join(got, ",") != want {
			t.Errorf("format %s holds %v, want %s", format, got, want)
		}
		// Any change of the catalog writes it anew.
		s.do("PUT", "/indexes/more", "", "").want(201)
		s.do("DELETE", "/indexes/more", "", "").want(200)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, golden) {
			t.Errorf("format %s is written as\n%s\nnot as\n%s", format, now, golden)
		}
	}
}
