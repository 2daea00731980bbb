package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/cli/doctor"
	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/wal"
)

// marksFor are the marks of a query text as found in any field by words, or with a schema by its tokenizers.
func marksFor(s *schema.Schema, list ...wanted) *marks {
	return &marks{schema: s, wanted: list, fields: map[string]*fieldMarks{}}
}

func TestSnippetShowsThePartThatFits(t *testing.T) {
	long := strings.Repeat("nothing of interest here ", 40)
	source := jsontext.Value(`{"id":"brown fox","n":1,"tags":["a","fox"],"body":"` + long + `the quick brown fox jumps ` + long + `","other":"brown"}`)
	p := printer{marks: marksFor(nil, wanted{text: "Brown FOX"}), color: true}
	got := p.snippet(source)
	for _, want := range []string{"body: … ", "quick \x1b[1;33mbrown\x1b[0m \x1b[1;33mfox\x1b[0m jumps", " …"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if n := utf8.RuneCountInString(got); n > snippetRunes+60 {
		t.Errorf("%d characters", n)
	}
	// Without a mark the first text is shown.
	p = printer{marks: marksFor(nil)}
	if got := p.snippet(jsontext.Value(`{"id":"x","title":"A title","body":"text"}`)); got != "title: A title" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{``, `[]`, `{"id":"x"}`, `{"a":`, `{"a":1,"b":[1]}`} {
		if got := p.snippet(jsontext.Value(bad)); got != "" {
			t.Errorf("%s: got %q", bad, got)
		}
	}
}

func TestMarksFollowTheTokenizer(t *testing.T) {
	s := &schema.Schema{Fields: []schema.Field{
		{Name: "plain", Type: schema.Text, Tokenizer: "simple", Indexed: true}, {Name: "stemmed", Type: schema.Text, Tokenizer: "en_stem", Indexed: true},
	}}
	m := marksFor(s, wanted{text: "connection"}, wanted{field: "plain", text: "abc", prefix: true})
	text := "Connections connected, connection abcdef"
	show := func(field string) string {
		var b strings.Builder
		for _, sp := range m.find(field, text) {
			b.WriteString(text[sp.start:sp.end] + "|")
		}
		return b.String()
	}
	if got := show("plain"); got != "connection|abcdef|" {
		t.Errorf("plain: %q", got)
	}
	if got := show("stemmed"); got != "Connections|connected|connection|" && got != "Connections|connected,|connection|" {
		t.Errorf("stemmed: %q", got)
	}
}

func TestCleanTakesOutControl(t *testing.T) {
	if got := clean("a\n\t b\x1b[31m\x00c\u202e é"); got != "a b\uFFFD[31m\uFFFDc\uFFFD é" {
		t.Errorf("got %q", got)
	}
}

func TestHarmlessKeepsLines(t *testing.T) {
	if got := harmless("a\n  b\tc\x1b[31m\x9b\u009b"); got != "a\n  b c\uFFFD[31m\uFFFD\uFFFD" {
		t.Errorf("got %q", got)
	}
}

func TestScoreText(t *testing.T) {
	for s, want := range map[float32]string{0: "0.000", 1.5: "1.500", 0.0012345: "0.001", 0.00001234: "1.2e-05", -0.0005: "-0.0005"} {
		if got := scoreText(s); got != want {
			t.Errorf("%v: got %s, want %s", s, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	p := printer{w: &b, offset: 9, marks: marksFor(nil)}
	res := &client.SearchResult{
		Total: 12345, TotalRelation: "gte", TookMS: 1.25, Notes: []string{"a note"},
		Hits: []client.Hit{{ID: "one", Score: 12.34567, Source: jsontext.Value(`{"t":"text"}`)}, {ID: "two", Score: 0.5}},
	}
	res.Coverage.DocsTotal, res.Coverage.DocsCovered = 20, 10
	p.print(res)
	want := `   #   SCORE  ID
  10  12.346  one
              t: text
  11   0.500  two

2 of at least 12,345 hits in 1.25 ms
INCOMPLETE: 10 of 20 documents were searched; there may be better hits
note: a note
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestSuggester(t *testing.T) {
	var s suggester
	if got := s.queries(); len(got) != 3 {
		t.Errorf("of nothing: %q", got)
	}
	for range 300 {
		s.add("Clock.WindUp", "Wind keeps the clock going for another day of work")
	}
	for _, q := range s.queries() {
		if q == "" || strings.ContainsAny(q, `"().`) {
			t.Errorf("query %q", q)
		}
	}
	if len(s.names) > suggesterKeeps {
		t.Errorf("keeps %d", len(s.names))
	}
}

func TestDialable(t *testing.T) {
	for addr, want := range map[string]string{"[::]:80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "10.0.0.1:80": "10.0.0.1:80", "[::1]:80": "[::1]:80", "bad": "bad"} {
		if got := dialable(addr); got != want {
			t.Errorf("dialable(%q) = %q, want %q", addr, got, want)
		}
	}
}

func TestDescribeIndex(t *testing.T) {
	log := wal.Report{Files: 1, Size: 32, FirstSeq: 5, LastSeq: 4}
	for want, i := range map[string]doctor.Index{
		"named by the catalog and not made yet; a start makes it, empty":                                       {},
		"no version can be read; log of 32 bytes in 1 file, no records, the next is 5":                         {Made: true, Log: log, LogRead: true},
		"no version can be read; log of 32 bytes in 1 file, not readable to its end":                           {Made: true, Log: log},
		"version 3, 1 document in 1 segment, 1,200 bytes in 4 objects; no log":                                 {Made: true, Version: 3, Docs: 1, Segments: 1, Bytes: 1200, Objects: 4, LogRead: true},
		"version 1, 0 documents in 0 segments, 1 byte in 1 object; log of 99 bytes in 2 files, records 1 to 6": {Made: true, Version: 1, Bytes: 1, Objects: 1, Log: wal.Report{Files: 2, Size: 99, FirstSeq: 1, LastSeq: 6}, LogRead: true},
		"version 1, 2 documents in 2 segments, 2 bytes in 2 objects; log of 99 bytes in 2 files, record 7":     {Made: true, Version: 1, Docs: 2, Segments: 2, Bytes: 2, Objects: 2, Log: wal.Report{Files: 2, Size: 99, FirstSeq: 7, LastSeq: 7}, LogRead: true},
	} {
		if got := describe(i); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestTableSaysWhatItLeavesOut(t *testing.T) {
	for _, tc := range []struct {
		relation       string
		total          uint64
		complete       bool
		covered, whole uint64
		want           string
	}{
		{"eq", 7, true, 5, 5, "0 of 7 hits in 1 ms\n"},
		{"gte", 1000, true, 5, 5, "0 of at least 1,000 hits in 1 ms\nThe total is a lower bound; --track-total exact counts every hit.\n"},
		{"gte", 0, false, 3, 5, "0 of at least 0 hits in 1 ms\nINCOMPLETE: 3 of 5 documents were searched; there may be better hits\n"},
		{"eq", 0, false, 0, 0, "0 of 0 hits in 1 ms\nINCOMPLETE: not all documents were searched; there may be better hits\n"},
	} {
		var b bytes.Buffer
		res := &client.SearchResult{Total: tc.total, TotalRelation: tc.relation, TookMS: 1}
		res.Coverage.Complete, res.Coverage.DocsCovered, res.Coverage.DocsTotal = tc.complete, tc.covered, tc.whole
		p := printer{w: &b, marks: marksFor(nil)}
		p.print(res)
		if b.String() != tc.want {
			t.Errorf("got %q, want %q", b.String(), tc.want)
		}
	}
}
