package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/api"
)

func TestHighlight(t *testing.T) {
	s := newServer(t, Config{})
	s.do("PUT", "/indexes/books", "text/plain", bookSchema).want(201)
	s.put("books", `{"id":"1","title":"Warp & weft: the loom, <b>bold</b>","year":1,"note":"loom"}`)
	s.put("books", `{"id":"2","title":"A reed","year":2,"note":"loom and weft"}`)
	marks := func(body string) []map[string][]string {
		t.Helper()
		a := s.do("POST", "/search?index=books", "application/json", body).want(200)
		var m struct {
			Hits []struct{ Highlight map[string][]string }
		}
		if err := json.Unmarshal(a.body, &m); err != nil {
			t.Fatal(err)
		}
		var out []map[string][]string
		for _, h := range m.Hits {
			out = append(out, h.Highlight)
		}
		return out
	}
	type list = []map[string][]string
	for _, tt := range []struct {
		body string
		want list
	}{
		{`{"q":"title:loom"}`, list{nil}},
		{`{"q":"title:loom","highlight":["title"]}`, list{{"title": {"Warp &amp; weft: the <em>loom</em>, &lt;b&gt;bold&lt;/b&gt;"}}}},
		{`{"q":"title:loom","highlight":"title","fields":[]}`, list{{"title": {"Warp &amp; weft: the <em>loom</em>, &lt;b&gt;bold&lt;/b&gt;"}}}},
		{`{"q":"title:(warp OR bold)","highlight":{"fields":["title"],"pre":"[","post":"]","escape":"none"}}`, list{{"title": {"[Warp] & weft: the loom, <b>[bold]</b>"}}}},
		{`{"q":"title:loom","highlight":{"fields":["title"],"pre":"*","post":"*","fragment_size":20,"fragments":1,"escape":"none"}}`, nil},
		// A field that is not given back is not shown in fragments either; of a document that another field found there are none.
		{`{"q":"loom","highlight":["*"],"sort":["id"]}`, list{{"title": {"Warp &amp; weft: the <em>loom</em>, &lt;b&gt;bold&lt;/b&gt;"}}, {}}},
		{`{"highlight":["*"],"sort":["id"],"filter":"title:loom"}`, list{{}}},
	} {
		got := marks(tt.body)
		if tt.want == nil {
			if len(got) != 1 || len(got[0]["title"]) != 1 || len(strings.ReplaceAll(got[0]["title"][0], "*", "")) > 20 || !strings.Contains(got[0]["title"][0], "*loom*") {
				t.Errorf("%s: %v", tt.body, got)
			}
			continue
		}
		if d := gocmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", tt.body, d)
		}
	}
	for _, bad := range []string{"note", "title,note"} {
		if p := s.do("GET", "/search?index=books&q=loom&highlight="+bad, "", "").problem(400, api.InvalidField); p["field"] != "note" {
			t.Errorf("highlight=%s: field %v", bad, p["field"])
		}
	}
}

// "*" may stand for any number of fields: of each hit the first 64 with something found are shown.
func TestHighlightOfEveryFieldIsBounded(t *testing.T) {
	const fields = 300
	s := newServer(t, Config{})
	var sch, doc, late strings.Builder
	sch.WriteString("index wide {\n field id: text<raw> [primary, indexed, stored]\n")
	doc.WriteString(`{"id":"1"`)
	late.WriteString(`{"id":"2"`)
	for i := range fields {
		fmt.Fprintf(&sch, " field f%03d: text [indexed, stored]\n", i)
		fmt.Fprintf(&doc, `,"f%03d":"weft"`, i)
		text := "reed"
		if i >= 200 {
			text = "weft"
		}
		fmt.Fprintf(&late, `,"f%03d":%q`, i, text)
	}
	s.do("PUT", "/indexes/wide", "text/plain", sch.String()+"}").want(201)
	s.put("wide", doc.String()+"}")
	s.put("wide", late.String()+"}")
	a := s.do("GET", "/search?index=wide&q=weft&highlight=*&sort=id", "", "").want(200)
	var m struct {
		Hits []struct{ Highlight map[string][]string }
	}
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Hits) != 2 {
		t.Fatalf("%d hits", len(m.Hits))
	}
	for i, first := range []int{0, 200} {
		got := m.Hits[i].Highlight
		if len(got) != api.MaxHighlight {
			t.Errorf("hit %d: %d fields", i, len(got))
		}
		for k := range api.MaxHighlight {
			if name := fmt.Sprintf("f%03d", first+k); len(got[name]) != 1 || got[name][0] != "<em>weft</em>" {
				t.Errorf("hit %d: %s: %q", i, name, got[name])
			}
		}
	}
}
