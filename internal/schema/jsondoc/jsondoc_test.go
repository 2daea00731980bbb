package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/schema"
)

const testSDL = `index t {
    field id: text<raw> [primary, stored]
    field title: text<en_stem> [indexed<token_position>, stored]
    field tags: text<raw> [indexed, stored<multi>, fast]
    field n: u64 [stored, fast]
    field i: i64 [stored, fast]
    field f: f64 [stored, fast]
    field fs: f64 [stored<multi>, fast]
    field day: date [stored, fast]
    field blob: bytes [stored]
    field meta: json [stored]
    field metas: json [stored<multi>]
    field v: dense_vector<2> [indexed<flat>, stored]
    field vs: dense_vector<2> [indexed<flat>, stored<multi>]
    field s: sparse_vector<u16> [indexed, stored]
    field b: binary_dense_vector<16> [indexed, stored]
    field cos: dense_vector<2> [indexed<metric: cosine>, stored<multi>]
    field half: dense_vector<2, f16> [indexed<metric: cosine>, stored]
    field kept: dense_vector<2> [stored]
    field wide: sparse_vector [indexed, stored<multi>]
    field bs: binary_dense_vector<16> [indexed, stored<multi>]
    field "author.name": text [indexed, stored<multi>]
}`

func testSchema(t testing.TB) *schema.Schema {
	t.Helper()
	s, err := schema.ParseSDL(testSDL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// describe prints a document as text.
func describe(s *schema.Schema, d *schema.Document, inferred []Inference) string {
	var b strings.Builder
	full, err := Merge(s, inferred)
	if err != nil {
		return err.Error() + "\n"
	}
	fmt.Fprintf(&b, "key %s\n", d.Key)
	for _, v := range d.Fields {
		f := &full.Fields[v.Field]
		fmt.Fprintf(&b, "%s:", f.Name)
		for _, t := range v.Text {
			fmt.Fprintf(&b, " %q", t)
		}
		for _, n := range v.Nums {
			switch f.Type {
			case schema.U64:
				fmt.Fprintf(&b, " %d", n)
			case schema.I64:
				fmt.Fprintf(&b, " %d", schema.DecodeI64(n))
			case schema.F64:
				fmt.Fprintf(&b, " %v", schema.DecodeF64(n))
			case schema.Date:
				fmt.Fprintf(&b, " %s", schema.FormatDate(schema.DecodeI64(n)))
			}
		}
		for _, v := range v.Bytes {
			switch f.Type {
			case schema.DenseVector:
				fmt.Fprintf(&b, " %v", schema.Dense(nil, v))
			case schema.SparseVector:
				for i := range schema.SparseLen(v) {
					index, weight := schema.SparseAt(v, i)
					fmt.Fprintf(&b, " %d=%v", index, weight)
				}
			case schema.JSON:
				fmt.Fprintf(&b, " %s", v)
			default:
				fmt.Fprintf(&b, " %x", v)
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "source %s\n", d.Source)
	for _, i := range inferred {
		fmt.Fprintf(&b, "inferred %s\n", i)
	}
	return b.String()
}

func check(t interface{ Fatalf(string, ...any) }, doc []byte, err *DocError) {
	if err.Position < 0 || err.Position > len(doc) {
		t.Fatalf("position %d outside of %d bytes", err.Position, len(doc))
	}
	if err.Code == "" || err.Reason == "" || len(err.Field) > 260 || len(err.Reason) > 1000 {
		t.Fatalf("poor error: %+v", err)
	}
}

// TestDocuments runs testdata/documents: each line of an input is one document, declared or inferred fields.
func TestDocuments(t *testing.T) {
	datadriven.RunTest(t, "testdata/documents", func(t *testing.T, d *datadriven.TestData) string {
		s := testSchema(t)
		if d.Cmd == "dynamic" {
			s = schema.NewDynamic("t")
		}
		p := NewParser(s, Limits{TextBytes: 64, KeywordBytes: 20, IDBytes: 16, Depth: 6, Values: 12, InferredFields: 5})
		var out strings.Builder
		for line := range strings.SplitSeq(d.Input, "\n") {
			doc, inferred, err := p.Parse([]byte(line))
			if err != nil {
				check(t, []byte(line), err)
				fmt.Fprintf(&out, "%s [%s]\n", err, err.Field)
				continue
			}
			out.WriteString(describe(p.Schema(), doc, inferred))
			next, merr := Merge(p.Schema(), inferred)
			if merr != nil {
				t.Fatal(merr)
			}
			p.SetSchema(next)
		}
		return out.String()
	})
}

func TestInvalidBytes(t *testing.T) {
	p := NewParser(testSchema(t), Limits{})
	for _, c := range []struct {
		doc  string
		code string
		pos  int
	}{
		{"{\"id\":\"a\xff\"}", CodeInvalidUTF8, 8},
		{"{\"id\":\"a\xed\xa0\x80\"}", CodeInvalidUTF8, 8},
		{"{\"id\":\"a\xc0\x80\"}", CodeInvalidUTF8, 8},
		{"{\"id\":\"a\xe2\x82", CodeInvalidUTF8, 8},
		{"{\"id\":\"a\x00\"}", CodeInvalidJSON, 8},
		{"{\"id\":\"0123456789abcdef\x1f\"}", CodeInvalidJSON, 23},
		{"{\"title\":\"\\n\xff\"}", CodeInvalidUTF8, 12},
		{"\xef\xbb\xbf{\"id\":\"a\"}", CodeInvalidJSON, 0},
		{"", CodeInvalidJSON, 0},
		{"{\"\xff\":1}", CodeInvalidUTF8, 2},
	} {
		_, _, err := p.Parse([]byte(c.doc))
		if err == nil || err.Code != c.code || err.Position != c.pos {
			t.Errorf("%q: %v", c.doc, err)
		}
	}
	if _, _, err := p.Parse([]byte("{\"id\":\"a\",\"title\":\"ok \u2028 é 日本 \U0001F600\"}")); err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	p := NewParser(schema.NewDynamic("t"), Limits{})
	field := func(v string) []byte { return []byte(`{"id":"a","x":` + v + `}`) }
	for _, c := range []struct {
		name string
		doc  []byte
		code string
	}{
		{"document", append(field("1"), bytes.Repeat([]byte(" "), 16<<20)...), CodeDocumentTooLarge},
		{"id", []byte(`{"id":"` + strings.Repeat("x", 5<<20) + `"}`), CodeInvalidID},
		{"text", field(`"` + strings.Repeat("x", 8<<20+1) + `"`), CodeValueTooLong},
		{"depth", field(strings.Repeat("[", 1<<20)), CodeTypeConflict},
		{"objects", field(strings.Repeat(`{"a":`, 1<<20)), CodeTooDeep},
		{"values", field("[" + strings.Repeat("1,", 70_000) + "1]"), CodeTooManyValues},
		{"name", []byte(`{"id":"a","` + strings.Repeat("x", 256) + `":1}`), CodeInvalidFieldName},
		{"long path", []byte(`{"id":"a","` + strings.Repeat("x", 1<<20) + `":{` + strings.Repeat(`"y":null,`, 100_000) + `"z":1}}`), CodeInvalidFieldName},
		{"huge", field("1" + strings.Repeat("0", 400)), CodeNumberOutOfRange},
	} {
		_, _, err := p.Parse(c.doc)
		if err == nil || err.Code != c.code {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		check(t, c.doc, err)
	}
	if _, _, err := p.Parse(field("1" + strings.Repeat("0", 305))); err != nil {
		t.Errorf("large number: %v", err)
	}
	var many strings.Builder
	many.WriteString(`{"id":"a"`)
	for i := range 1001 {
		fmt.Fprintf(&many, `,"f%d":1`, i)
	}
	if _, _, err := p.Parse([]byte(many.String() + "}")); err == nil || err.Code != CodeTooManyFields || err.Field != "f1000" {
		t.Errorf("fields: %v", err)
	}
	many.WriteString(`,"f7":2}`)
	s := schema.NewDynamic("t")
	if _, _, err := NewParser(s, Limits{InferredFields: 2000}).Parse([]byte(many.String())); err == nil || err.Code != CodeDuplicateMember {
		t.Errorf("duplicate among many: %v", err)
	}
}

func TestNoKey(t *testing.T) {
	s, err := schema.ParseSDL("index a { field x: text }", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := NewParser(s, Limits{}).Parse([]byte(`{"x":"y"}`)); err == nil || err.Code != CodeMissingID {
		t.Fatalf("a document without a key: %v", err)
	}
}

// TestIndependent checks that a document lives on when the input and the parser are used again.
func TestIndependent(t *testing.T) {
	p := NewParser(schema.NewDynamic("t"), Limits{})
	line := []byte(`{"id":"one","a":"text\u0041","b":[1,2],"c":{"d":"e"}}`)
	d, inferred, err := p.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	before := describe(p.Schema(), d, inferred)
	for i := range line {
		line[i] = 'x'
	}
	if _, _, err := p.Parse([]byte(`{"id":"two","a":"other\u0042","z":[3,4],"c":{"d":"f"}}`)); err != nil {
		t.Fatal(err)
	}
	if after := describe(p.Schema(), d, inferred); after != before {
		t.Fatal(cmp.Diff(before, after))
	}
	// A part of a shared allocation must not grow into the next.
	d.Fields[2].Nums = append(d.Fields[2].Nums, 9)
	if after := describe(p.Schema(), d, inferred); !strings.Contains(after, `"e"`) {
		t.Fatal(after)
	}
}

// TestMergeConflict: two documents read by the same schema may not agree; the second one is found out when it is merged.
func TestMergeConflict(t *testing.T) {
	s := schema.NewDynamic("t")
	p := NewParser(s, Limits{})
	_, one, err := p.Parse([]byte(`{"id":"a","x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	_, two, err := p.Parse([]byte(`{"id":"b","x":"s"}`))
	if err != nil {
		t.Fatal(err)
	}
	next, merr := Merge(s, one)
	if merr != nil {
		t.Fatal(merr)
	}
	var ce *schema.ConflictError
	if _, merr = Merge(next, two); !errors.As(merr, &ce) || ce.Field != "x" {
		t.Fatalf("got %v", merr)
	}
	if again, merr := Merge(next, one); merr != nil || again != next {
		t.Fatalf("merging twice: %v", merr)
	}
}

func TestID(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":"a"}`: "a", `{"x":[1,{"id":"no"}],"id":"b","y":` + "\xff": "b", `{"id":7}`: "7", `{"id":"a`: "", `{"x":}`: "", `[]`: "", ``: "",
		`{"id":{"a":1}}`: "", `{"id":"` + strings.Repeat("é", 600) + `"}`: strings.Repeat("é", 256) + "…",
	} {
		if got := ID([]byte(in), "id"); got != want {
			t.Errorf("%.40q: %q", in, got)
		}
	}
}

func FuzzDocument(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","title":"x","tags":["a",null,true],"n":1.0,"i":-1e2,"f":0.1,"day":"2024-01-01T00:00:00Z","author":{"name":["x"]}}`,
		` { "id" : "a\u00e9\ud83d\ude00\n" , "v" : [ 1 , 2.5 ] , "vs":[[1,2],[3,4]], "s":{"indices":[3,1],"values":[1,2]}, "b":"AAA=", "blob":"AAA"} `,
		`{"id":"a","meta":{"a":[1,{"b":null}]},"metas":[1,"x",[]]}`,
		`{"id":"a","x":1,"y":[1,2.5],"z":{"a":{"b":"2024-01-01T00:00:00Z"}},"x.y":1}`,
		`{"id":"a","id":"b"}`, `{"id":"\ud800"}`, `{"id":"a","f":1e400}`, `{"id":"a","f":-0,"i":01}`,
	} {
		f.Add([]byte(s))
	}
	declared, dynamic := testSchema(f), schema.NewDynamic("t")
	syntax := map[string]bool{CodeInvalidJSON: true, CodeInvalidUTF8: true, CodeDuplicateMember: true}
	f.Fuzz(func(t *testing.T, doc []byte) {
		// A deep document is refused before the rest of it is looked at, so what follows may be anything.
		valid := jsontext.Value(doc).IsValid()
		for _, s := range []*schema.Schema{declared, dynamic} {
			p := NewParser(s, Limits{})
			d, inferred, err := p.Parse(doc)
			if err != nil {
				check(t, doc, err)
				if valid && syntax[err.Code] && jsontext.Value(doc).Kind() == '{' {
					t.Fatalf("refused valid JSON: %v", err)
				}
				continue
			}
			if !valid {
				t.Fatalf("accepted invalid JSON")
			}
			compact := jsontext.Value(bytes.Clone(doc))
			if err := compact.Compact(jsontext.PreserveRawStrings(true)); err != nil || !bytes.Equal(compact, d.Source) {
				t.Fatalf("source %q, compact %q, %v", d.Source, compact, err)
			}
			if !json.Valid(d.Source) || d.Key == "" {
				t.Fatalf("bad document %+v", d)
			}
			for i, v := range d.Fields {
				if i > 0 && d.Fields[i-1].Field >= v.Field || len(v.Text)+len(v.Nums)+len(v.Bytes) == 0 {
					t.Fatalf("bad fields %+v", d.Fields)
				}
			}
			// The same document again, and what is kept of it, give the same values.
			want := describe(s, d, inferred)
			full, merr := Merge(s, inferred)
			if merr != nil {
				t.Fatal(merr)
			}
			if err := full.Validate(); err != nil {
				t.Fatal(err)
			}
			for _, next := range []*schema.Schema{s, full} {
				p.SetSchema(next)
				again, newer, err := p.Parse(d.Source)
				if err != nil {
					t.Fatalf("%v in %s", err, d.Source)
				}
				if next == full && len(newer) > 0 {
					t.Fatalf("inferred again: %v", newer)
				}
				if got := describe(full, again, nil); got != strings.Split(want, "inferred ")[0] && next == full {
					t.Fatalf("%s\n%s", got, want)
				}
			}
			if got := ID(doc, "id"); len(d.Key) <= 512 && got != d.Key {
				t.Fatalf("ID %q, key %q", got, d.Key)
			}
		}
	})
}
