package text

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
)

// goldenDoc is a document of the reference's answers: the text values of its fields, in order.
type goldenDoc map[string][]string

type goldenQuery struct{ Field, Term, Text string }

type goldenCase struct {
	Name    string
	Rpc     string
	Request struct {
		IndexName string `json:"index_name"`
		Limit     int
		Query     struct{ Term, Match, Phrase *goldenQuery }
	}
	Code     string
	Message  string
	Response struct {
		Hits []struct {
			Fields map[string]struct{ Values []struct{ Text string } }
			Rows   []struct{ Ordinal int } `json:"ordinal_scores"`
		}
		TotalHits string `json:"total_hits"`
	}
}

// readGolden returns the documents and tokenizers of an index of the reference.
func readGolden(t *testing.T, index string) ([]goldenDoc, map[string]string) {
	dir := corpus.Dir(t, "summa-golden")
	f, err := os.Open(filepath.Join(dir, "documents-"+index+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var docs []goldenDoc
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var d struct {
			Fields []struct {
				Name  string
				Value struct{ Text string }
			}
		}
		if err := json.Unmarshal(sc.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		doc := make(goldenDoc)
		for _, f := range d.Fields {
			doc[f.Name] = append(doc[f.Name], f.Value.Text)
		}
		docs = append(docs, doc)
	}
	sdl, err := os.ReadFile(filepath.Join(dir, "schema-"+index+".sdl"))
	if err != nil {
		t.Fatal(err)
	}
	specs := make(map[string]string)
	for _, m := range regexp.MustCompile(`field (\w+): text(?:<(.*?)>)? \[`).FindAllStringSubmatch(string(sdl), -1) {
		specs[m[1]] = m[2]
		if m[2] == "" {
			specs[m[1]] = "simple"
		}
	}
	return docs, specs
}

// matches reports whether a value holds the tokens: in their order and at their distances (phrase), or all of them, or any.
func matches(value, query []Token, kind string) bool {
	has := func(term string, pos uint32, at bool) bool {
		for _, v := range value {
			if string(v.Text) == term && (!at || v.Pos == pos) {
				return true
			}
		}
		return false
	}
	if kind == "phrase" {
		for start := uint32(0); start < 1000; start++ {
			all := true
			for _, q := range query {
				all = all && has(string(q.Text), start+q.Pos-query[0].Pos, true)
			}
			if all {
				return true
			}
		}
		return false
	}
	n := 0
	for _, q := range query {
		if has(string(q.Text), 0, false) {
			n++
		}
	}
	if kind == "term" {
		return n == len(query)
	}
	return n > 0
}

// TestGolden searches the reference's documents by brute force with weft's tokens and compares with the reference's answers.
func TestGolden(t *testing.T) {
	f, err := os.Open(filepath.Join(corpus.Dir(t, "summa-golden"), "node.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 1<<26)
	ran := 0
	for sc.Scan() {
		if !strings.Contains(sc.Text()[:min(200, len(sc.Text()))], `"node/query/`) {
			continue
		}
		var c goldenCase
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			continue // a case of another shape
		}
		index := c.Request.IndexName
		if c.Rpc != "Search" || index != "plain" && index != "notes" {
			continue
		}
		q, kind := c.Request.Query.Term, "term"
		if q == nil {
			q, kind = c.Request.Query.Match, "match"
		}
		if q == nil {
			q, kind = c.Request.Query.Phrase, "phrase"
		}
		if q == nil || strings.Contains(sc.Text(), `"slop"`) || strings.Contains(sc.Text(), `"reranker"`) ||
			!strings.Contains(sc.Text(), `"fields_to_load": ["id"`) || strings.HasSuffix(q.Text, "*") {
			continue
		}
		docs, specs := readGolden(t, index)
		spec := specs[q.Field]
		if spec == "" || q.Field == "only_fast" || c.Code != "OK" && !strings.Contains(c.Message, "No tokens") {
			continue
		}
		ran++
		a := lookup(t, spec)
		var s, sq Scratch
		var query []Token
		switch kind {
		case "term":
			query = a.Exact(&sq, q.Term)
		case "match":
			query = a.Query(&sq, q.Text)
		default:
			query = a.Exact(&sq, q.Text)
		}
		if kind != "phrase" { // the reference lower-cases once more
			for i := range query {
				query[i].Text = []byte(lowerString(string(query[i].Text)))
			}
		}
		if c.Code != "OK" {
			if len(query) > 0 {
				t.Errorf("%s: %s, but weft has tokens: %s", c.Name, c.Message, show(query))
			}
			continue
		}
		want := make(map[string]bool)
		if len(query) > 0 {
			for _, d := range docs {
				for _, v := range d[q.Field] {
					if matches(a.Index(&s, v), query, kind) {
						want[d["id"][0]] = true
					}
				}
			}
		}
		if len(want) < len(c.Response.Hits) || len(want) > len(c.Response.Hits) && len(c.Response.Hits) < c.Request.Limit {
			t.Errorf("%s: %s %s %q: %d hits, weft has %d", c.Name, kind, q.Field, q.Term+q.Text, len(c.Response.Hits), len(want))
		}
		for _, h := range c.Response.Hits {
			if id := h.Fields["id"].Values[0].Text; !want[id] {
				t.Errorf("%s: %s %s %q: weft does not find %s", c.Name, kind, q.Field, q.Term+q.Text, id)
			}
		}
	}
	if ran < 20 {
		t.Errorf("only %d cases", ran)
	}
	t.Logf("%d answers of the reference", ran)
}

// TestGoldenLengths checks the lengths that the reference's BM25 scores imply: with N documents of known text and one hit of tf 1, the score
// s = idf·2.2/(1 + 1.2·(0.25 + 0.75·len/avg)) gives len/avg. For the field lex: 0.8940224 (df 34), 1.1742486 and 1.294383 (df 33)
// give 7, 4 and 3 over 4.69; for uni 0.6099695 (df 50) gives 4 over 3.
func TestGoldenLengths(t *testing.T) {
	var s Scratch
	for _, tt := range []struct {
		spec, in string
		want     int
	}{
		{"lex(default: en)", "The keeper's lights, state-of-the-art", 7},
		{"lex(default: en)", "U.S.A. ships 1,000 boats", 4},
		{"lex(default: en)", "naïve café runners", 3},
		{"unicode_word", "co-op 3.14 don't", 4},
		{"unicode_word", "harbour's light", 2},
	} {
		if got := Length(lookup(t, tt.spec).Index(&s, tt.in)); got != tt.want {
			t.Errorf("%s: %q: length %d, want %d", tt.spec, tt.in, got, tt.want)
		}
	}
}
