package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/weft-search/weft/bench/internal/peer"
)

var few = []peer.Doc{
	{ID: "a", Body: "The quick brown fox; the lazy dog."},
	{ID: "b", Body: "quick quick FOX"},
	{ID: "c", Body: "nothing of the kind"},
	{ID: "d", Body: "Straße ÄÖÜ 42 fox-trot"},
}

func TestCounts(t *testing.T) {
	o := NewOracle(few)
	for _, c := range []struct {
		op    string
		words []string
		want  uint64
	}{
		{"term", []string{"fox"}, 3},
		{"term", []string{"absent"}, 0},
		{"and", []string{"quick", "the"}, 1},
		{"or", []string{"quick", "the"}, 3},
		{"phrase", []string{"the", "lazy"}, 1},
		{"phrase", []string{"lazy", "the"}, 0},
		{"phrase", []string{"quick", "quick", "fox"}, 1},
		{"prefix", []string{"fo"}, 3},
		{"prefix", []string{"straß"}, 1},
		{"bool", []string{"+fox", "quick"}, 3},
		{"bool", []string{"+fox", "-quick"}, 1},
		{"bool", []string{"quick", "-brown"}, 1},
	} {
		q := peer.Query{Op: c.op, Words: c.words}
		if got := o.Count(q); got != c.want {
			t.Errorf("%v: %d matches, want %d", q, got, c.want)
		}
	}
}

func TestScores(t *testing.T) {
	o := NewOracle(few)
	got := o.Matches(peer.Query{Op: "or", Words: []string{"quick", "kind"}}, nil)
	// N 4, average 4.75; quick: df 2, idf ln 2; kind: df 1, idf ln(3.5/1.5+1)
	want := []string{"c 1.287", "b 1.063", "a 0.581"}
	var have []string
	for _, s := range got {
		have = append(have, fmt.Sprintf("%s %.3f", o.ID(s.Doc), s.Score))
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("got %v, want %v", have, want)
	}
}

func TestRoundLength(t *testing.T) {
	for n, want := range map[int]int{0: 0, 23: 23, 24: 24, 39: 39, 40: 40, 41: 40, 42: 42, 57: 56, 63: 60, 100: 96, 65535: 61464} {
		if got := RoundLength(n); got != want {
			t.Errorf("%d becomes %d, want %d", n, got, want)
		}
	}
	last := 0
	for n := range 70000 {
		r := RoundLength(n)
		if r > n || r < last || RoundLength(r) != r {
			t.Fatalf("%d becomes %d after %d", n, r, last)
		}
		last = r
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"plain":          "plain",
		"e\u0301t\u00e9": "été",
		"a\u2019b":       "a b",
		"\u0130x":        "Ix",
		"½ ४":            "  ४",
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestGameQuery(t *testing.T) {
	for _, c := range []struct {
		text, tag string
		want      string // empty: left out
	}{
		{`"the who"`, "phrase", "game-phrase phrase the who"},
		{"the the", "union", "game-or term the"},
		{"+the +who", "intersection", "game-and and the who"},
		{"+griffith -observatory", "negated", "game-not bool +griffith -observatory"},
		{"+a b", "intersection_union", "game-must-may bool +a b"},
		{"+a-b c", "intersection_union", ""},
		{"!", "term", ""},
		{"x", "range", ""},
	} {
		q, ok := gameQuery(c.text, []string{c.tag})
		got := ""
		if ok {
			got = q.Class + " " + q.String()
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestQueries(t *testing.T) {
	var docs []peer.Doc
	for i := range 1500 {
		body := "every document"
		for j := range 8 {
			body += fmt.Sprintf(" word%c%d", 'a'+j%3, i*(j+3)%(50*(j+1)))
		}
		docs = append(docs, peer.Doc{ID: fmt.Sprint(i), Body: body + fmt.Sprintf(" only%d sometimes", i)})
	}
	o := NewOracle(docs)
	extra := []peer.Query{{Class: "x", Op: "term", Words: []string{"absent"}}, {Class: "x", Op: "bool", Words: []string{"+every", "-only7"}}}
	qs := Queries(o, extra, 1)
	if again := Queries(o, extra, 1); !reflect.DeepEqual(qs, again) {
		t.Error("the same seed gives other queries")
	}
	n := map[string]int{}
	for _, q := range qs {
		n[q.Class]++
		if q.Count == 0 || q.Count != o.Count(q) {
			t.Errorf("%v: count %d", q, q.Count)
		}
	}
	for _, c := range []string{"term-low", "and-2", "and-3", "or-2", "or-3", "or-6", "phrase-2", "phrase-3"} {
		if n[c] != perClass {
			t.Errorf("class %s has %d queries", c, n[c])
		}
	}
	if n["x"] != 1 {
		t.Errorf("%d further queries taken, want 1", n["x"])
	}
	path := filepath.Join(t.TempDir(), "q.tsv")
	if err := peer.WriteQueries(path, qs); err != nil {
		t.Fatal(err)
	}
	back, err := peer.ReadQueries(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(qs, back) {
		t.Error("queries are read back otherwise than written")
	}
}

func TestGoDocs(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "src", "p")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	src := "// Package p is small.\npackage p\n\n// F does it.\nfunc F() {}\n\n// T is a thing.\ntype T int // a number\n\nvar bare int\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	docs, err := GoDocs(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []peer.Doc{
		{ID: "p.package", Body: "package\nPackage p is small.\n"},
		{ID: "p.F", Body: "F\nF does it.\n"},
		{ID: "p.type", Body: "type\nT is a thing.\n"},
		{ID: "p.T", Body: "T\na number\n"},
	}
	if !reflect.DeepEqual(docs, want) {
		t.Errorf("got %+v", docs)
	}
}
