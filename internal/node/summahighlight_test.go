package node

import (
	"strings"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/summa"
)

// TestDocumentsOfSummaAreHighlighted searches over HTTP a document that only Summa takes: a field with one value by its schema has two,
// and one of bytes has text.
func TestDocumentsOfSummaAreHighlighted(t *testing.T) {
	s := newServer(t, Config{})
	s.do("PUT", "/indexes/notes", "text/plain", `index notes { field id: text<raw> [primary, stored] field title: text [indexed<token_position>, stored] field blob: bytes [stored] }`).want(201)
	i, err := s.node.catalog.use(t.Context(), "notes")
	if err != nil {
		t.Fatal(err)
	}
	defer i.release()
	text := func(name, v string) *summapb.FieldEntry {
		return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: v}}}
	}
	doc, _, err := summa.NewDocuments(i.eng.Schema(), jsondoc.Limits{}).Convert([]*summapb.FieldEntry{
		text("id", "1"), text("title", "a lamp"), text("title", "the harbour"), text("blob", "no bytes"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.eng.Apply(t.Context(), []shard.Op{{Doc: doc}}); err != nil {
		t.Fatal(err)
	}
	a := s.do("POST", "/search?index=notes", "application/json", `{"q":"title:harbour","highlight":["title"]}`).want(200)
	if !strings.Contains(string(a.body), "the <em>harbour</em>") {
		t.Errorf("the answer is %s", a.body)
	}
}
