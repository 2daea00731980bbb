package summa

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema/jsondoc"
)

// TestErrorTextsAreBounded asks for errors about texts of a mebibyte.
func TestErrorTextsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 1<<19)
	schema, err := ParseSchema(`index t { field id: text<raw> [primary, stored] field n: u64 [stored] field t: text [stored] }`)
	if err != nil {
		t.Fatal(err)
	}
	document := func(name string, v *summapb.FieldValue) error {
		_, _, err := NewDocuments(schema, jsondoc.Limits{}).Convert([]*summapb.FieldEntry{{Name: name, Value: v}})
		return err
	}
	sdl := func(src string) error {
		_, err := ParseSchema(src)
		return err
	}
	for name, err := range map[string]error{
		"a type in one line":        sdl("index t { field f: " + long + " }"),
		"one behind a long comment": sdl("index t { field f: text # " + long + "\n field g: nothing }"),
		"the end of a long line":    sdl("index t { field " + strings.Repeat("f: text field ", 1<<16) + "}"),
		"no index":                  sdl(long),
		"JSON":                      sdl(`{"fields":"` + long + `"}`),
		"names of JSON":             sdl(`{"` + long + `":1}`),
		"a tokenizer":               sdl("index t { field f: text<" + strings.Repeat("x", 1<<20) + "> }"),
		"an option":                 sdl("index t { field f: text [indexed<" + strings.Repeat("x", 1<<20) + ": 3>] }"),
		"a hint":                    sdl("index t { field f: text<lex(by: " + strings.Repeat("x", 1<<20) + ")> }"),
		"an altered field": func() error {
			_, err := ParseAlter(&summapb.AlterVectorIndexRequest{FieldName: "f", FieldSchema: long})
			return err
		}(),
		"an address": func() error {
			_, _, err := CheckAddress(&summapb.DocAddress{SegmentId: long})
			return err
		}(),
		"an index that is not there": NoIndex(long),
		"an index that is there":     IndexExists(long),
		"a field":                    document(long, &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: "x"}}),
		"a value":                    document("n", &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: long}}),
		"JSON of a document":         document("t", &summapb.FieldValue{Value: &summapb.FieldValue_JsonValue{JsonValue: `{"x":"` + long + `"}`}}),
		"a name twice":               document("t", &summapb.FieldValue{Value: &summapb.FieldValue_JsonValue{JsonValue: `{"` + long + `":1,"` + long + `":2}`}}),
		"a key":                      &DocumentError{DuplicateKey(long)},
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if text := err.Error(); len(text) > MaxErrorText+len("InvalidArgument: ") || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes, UTF-8 %t", name, len(text), utf8.ValidString(text))
		}
	}
	if got := status.Convert(&Error{codes.NotFound, long}).Message(); len(got) > MaxErrorText || !strings.HasSuffix(got, "ä…") {
		t.Errorf("the status of a call has %d bytes", len(got))
	}
}

// TestLongLinesAreQuotedAroundTheFault has faults at the beginning, in the middle and at the end of a line too long to be told.
func TestLongLinesAreQuotedAroundTheFault(t *testing.T) {
	filler := func(from, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `field a%d: text [indexed<common_grams: ["ä"]>] `, from+i)
		}
		return b.String()
	}
	for _, c := range []struct{ before, after int }{{0, 1000}, {1000, 1000}, {1000, 0}, {3, 1000}} {
		_, err := ParseSchema("index t {\n" + filler(0, c.before) + "field f: nothing " + filler(c.before, c.after) + "\n}")
		if err == nil {
			t.Fatal("no error")
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) < 4 {
			t.Fatalf("%d and %d: %v", c.before, c.after, err)
		}
		quoted, under := []rune(lines[2]), []rune(lines[3])
		at := len(under) - len("^---")
		if n := len(lines[2]); n > maxQuoted+20 {
			t.Errorf("%d and %d: a line of %d bytes is quoted", c.before, c.after, n)
		}
		if at < 0 || at+7 > len(quoted) || string(quoted[at:at+7]) != "nothing" {
			t.Errorf("%d and %d: the mark is not below the fault:\n%s\n%s", c.before, c.after, lines[2], lines[3])
		}
	}
}
