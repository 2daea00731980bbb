package peer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// memory is an engine whose every document matches every query.
type memory struct{ dir string }

func (m *memory) Index(docs []Doc, dir string) (IndexResult, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return IndexResult{}, err
	}
	return IndexResult{Segments: 3}, os.WriteFile(filepath.Join(dir, "ids"), []byte(docs[0].ID), 0o644)
}

func (m *memory) Open(dir string, queries []Query) (Searcher, error) {
	if len(queries) == 0 {
		return nil, errors.New("no queries")
	}
	m.dir = dir
	return m, nil
}

func (m *memory) Search(_ int, mode Mode) (uint64, error) { return uint64(mode) + 1, nil }
func (m *memory) Segments() int                           { return 3 }
func (m *memory) Version() string                         { return "1" }
func (m *memory) Close() error                            { return nil }

func (m *memory) Hits(int) ([]Hit, error) {
	b, err := os.ReadFile(filepath.Join(m.dir, "ids"))
	return []Hit{{string(b), 1.5}}, err
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(in(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("docs", `{"id":"seven","body":"x"}`+"\n")
	write("queries", "0\tone\tterm\ta\t1\n1\tone\tbool\t+a -b c\t1\n2\ttwo\tphrase\ta b\t1\n")
	if err := Main("memory", &memory{}, []string{"index", in("docs"), in("ix"), in("i.json")}); err != nil {
		t.Fatal(err)
	}
	var ir IndexResult
	read(t, in("i.json"), &ir)
	if ir.Docs != 1 || ir.Bytes != 5 || ir.Segments != 3 || ir.Seconds <= 0 {
		t.Errorf("index result %+v", ir)
	}
	if err := Main("memory", &memory{}, []string{"-classes", "one", "search", in("ix"), in("queries"), in("s.json"), "0"}); err != nil {
		t.Fatal(err)
	}
	var sr SearchResult
	read(t, in("s.json"), &sr)
	for _, m := range Modes {
		if n := len(sr.Times["one|"+m]); n != keptPasses {
			t.Errorf("%d passes of mode %s kept", n, m)
		}
	}
	if len(sr.Times) != len(Modes) || len(sr.Counts) != 2 || sr.Counts["1"] != 2 || sr.Both["1"] != 3 {
		t.Errorf("search result %+v", sr)
	}
	if want := []Hit{{"seven", 1.5}}; !reflect.DeepEqual(sr.Hits["0"], want) {
		t.Errorf("hits %v", sr.Hits)
	}
	raw, err := os.ReadFile(in("s.json"))
	if err != nil || !strings.Contains(string(raw), `["seven",1.5]`) {
		t.Errorf("a hit is not a pair: %s, %v", raw, err)
	}
}

func read(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func TestReadQueriesRefuses(t *testing.T) {
	for _, line := range []string{"", "0\tc\tterm\ta", "0\tc\tterm\ta b\t1", "0\tc\tterm\t\t1", "0\tc\tnear\ta\t1", "0\tc\tbool\t+\t1", "0\tc\tterm\ta\t-1"} {
		path := filepath.Join(t.TempDir(), "q")
		if err := os.WriteFile(path, []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadQueries(path); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestClauses(t *testing.T) {
	q := Query{Op: "bool", Words: []string{"+a", "-b", "c"}}
	must, should, not := q.Clauses()
	if !reflect.DeepEqual([][]string{must, should, not}, [][]string{{"a"}, {"c"}, {"b"}}) {
		t.Errorf("bool: %v %v %v", must, should, not)
	}
	if must, _, _ = (Query{Op: "and", Words: []string{"a", "b"}}).Clauses(); len(must) != 2 {
		t.Errorf("and: %v", must)
	}
}
