package summa_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

func parse(t testing.TB, sdl string) *schema.Schema {
	t.Helper()
	s, err := summa.ParseSchema(sdl)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lists groups entries as a reply does.
func lists(entries []*summapb.FieldEntry) map[string]*summapb.FieldValueList {
	var out map[string]*summapb.FieldValueList
	for _, e := range entries {
		if out == nil {
			out = map[string]*summapb.FieldValueList{}
		}
		if out[e.Name] == nil {
			out[e.Name] = &summapb.FieldValueList{}
		}
		out[e.Name].Values = append(out[e.Name].Values, e.Value)
	}
	return out
}

func same(a, b map[string]*summapb.FieldValueList) string {
	return cmp.Diff(&summapb.GetDocumentResponse{Fields: a}, &summapb.GetDocumentResponse{Fields: b}, protocmp.Transform())
}

// bitsEqual compares messages by their bytes, which tells −0 from +0.
func bitsEqual(t interface{ Errorf(string, ...any) }, what string, a, b map[string]*summapb.FieldValueList) {
	wire := func(m map[string]*summapb.FieldValueList) string {
		out, err := proto.MarshalOptions{Deterministic: true}.Marshal(&summapb.GetDocumentResponse{Fields: m})
		if err != nil {
			t.Errorf("%v", err)
		}
		return string(out)
	}
	if wire(a) != wire(b) {
		t.Errorf("%s: %s", what, same(a, b))
	}
}

// sameOverHTTP checks that a source, given over HTTP, makes the very same document.
func sameOverHTTP(t interface{ Errorf(string, ...any) }, s *schema.Schema, doc *schema.Document) {
	// Over HTTP a key is shorter, for those who write.
	got, inferred, derr := jsondoc.NewParser(s, jsondoc.Limits{IDBytes: 65_535}).Parse(doc.Source)
	if derr != nil {
		t.Errorf("over HTTP the source is refused: %v\n%s", derr, doc.Source)
		return
	}
	if len(inferred) > 0 {
		t.Errorf("over HTTP the source brings fields: %v", inferred)
	}
	if d := cmp.Diff(doc, got); d != "" {
		t.Errorf("over HTTP the source makes another document: %s", d)
	}
}

// TestRecordedDocuments converts the documents of the recorded indexes: they come back value for value, as searches that load fields got
// them, and HTTP sees the same documents.
func TestRecordedDocuments(t *testing.T) {
	dir := corpus.Dir(t, "summa-golden")
	back := map[string]map[string]map[string]*summapb.FieldValueList{} // index → key → fields
	for _, index := range []string{"notes", "plain", "parts"} {
		sdl, err := summagolden.Schema(dir, index)
		if err != nil {
			t.Fatal(err)
		}
		s := parse(t, sdl)
		docs, err := summagolden.Documents(dir, index)
		if err != nil {
			t.Fatal(err)
		}
		c, all := summa.NewDocuments(s, jsondoc.Limits{}), summa.StoredFields(s)
		back[index] = map[string]map[string]*summapb.FieldValueList{}
		for i, d := range docs {
			doc, dropped, err := c.Convert(d.Fields)
			if err != nil || dropped != nil {
				t.Fatalf("%s, document %d: %v %v", index, i, dropped, err)
			}
			got, err := all.Read(doc.Source, nil)
			if err != nil {
				t.Fatal(err)
			}
			bitsEqual(t, fmt.Sprintf("%s, document %d", index, i), lists(d.Fields), got)
			sameOverHTTP(t, s, doc)
			back[index][doc.Key] = got
		}
	}
	compared := 0
	for _, c := range append(cases(t, "node"), cases(t, "cluster")...) {
		if c.Code != "OK" || (c.RPC != "Search" && c.RPC != "GetDocument") {
			continue
		}
		reqs, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		reply, err := c.Reply()
		if err != nil {
			t.Fatal(err)
		}
		index := reqs[0].(interface{ GetIndexName() string }).GetIndexName()
		check := func(fields map[string]*summapb.FieldValueList, asked []string) {
			id := fields["id"].GetValues()
			if back[index] == nil || len(id) != 1 {
				return
			}
			want, ok := back[index][id[0].GetText()]
			if !ok {
				return // indexed by a later case
			}
			if asked != nil {
				some := map[string]*summapb.FieldValueList{}
				for _, n := range asked {
					if v, ok := want[n]; ok {
						some[n] = v
					}
				}
				want = some
			}
			compared++
			bitsEqual(t, c.Name, fields, want)
		}
		switch r := reply.(type) {
		case *summapb.SearchResponse:
			asked := reqs[0].(*summapb.SearchRequest).FieldsToLoad
			for _, h := range r.Hits {
				check(h.Fields, append([]string{}, asked...))
			}
		case *summapb.GetDocumentResponse:
			check(r.Fields, nil)
		}
	}
	if compared < 1000 {
		t.Errorf("only %d hits were compared", compared)
	}
}

// TestRecordedMutations replays node/mutate/batch-bad, an upsert and the documents that the reference spoils a commit with. What differs
// does so by N1 (numbers for text are kept; what would fail the commit is refused at once) and N2 (every error has its own position).
func TestRecordedMutations(t *testing.T) {
	type outcome map[int]string // position → error
	want := map[string]outcome{
		"node/mutate/batch-bad": {
			1: "Field 'nofield' not found in schema",
			// 2 is a second "a", which the index knows.
			3: "Document error: Missing primary key field", 4: "Document error: Primary key must not be empty", 5: "Document error: primary key requires exactly one text value",
			// 6 has the key 5, a number: kept as text by N1. 12 has one for t.
			7: "Field 't' has no value", 8: "Field 'v': dense vector dimension 1 does not match schema dimension 2", 9: "Field 'v': dense vector contains non-finite value NaN at index 1",
			14: "Field 't': expected string in JSON array, got 1", 15: "Invalid JSON in field 'j': unexpected end of the text",
			17: "Field 'b': binary vector byte length 2 does not match schema byte length 1", 18: "Field 's': sparse vector has 1 indices but 0 values",
			19: "Field 't': vector value does not match schema type Text", 20: "Document error: Missing primary key field",
		},
		"node/mutate/poison-0": {1: "Schema error: type mismatch for field 'n': schema expects a u64 value, got text"},
		"node/mutate/poison-1": {1: "Schema error: type mismatch for field 'n': schema expects a u64 value, got bytes"},
		"node/mutate/poison-2": {1: "Schema error: type mismatch for field 'n': schema expects a u64 value, got json"},
		"node/mutate/poison-3": {},
		"node/mutate/upsert":   {1: "Field 'nofield' not found in schema", 4: "Document error: Missing primary key field"},
	}
	schemas, kept, seen := map[string]*schema.Schema{}, map[string]map[string]*summapb.FieldValueList{}, 0
	for _, c := range cases(t, "node") {
		reqs, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		switch r := reqs0(reqs).(type) {
		case *summapb.CreateIndexRequest:
			if strings.HasPrefix(c.Name, "node/mutate/") {
				schemas[r.IndexName] = parse(t, r.Schema)
			}
		case interface {
			GetIndexName() string
			GetDocuments() []*summapb.NamedDocument
		}:
			wanted, ok := want[c.Name]
			if !ok {
				continue
			}
			seen++
			s := schemas[r.GetIndexName()]
			got := outcome{}
			for i, d := range r.GetDocuments() {
				doc, _, err := summa.NewDocuments(s, jsondoc.Limits{}).Convert(d.Fields)
				if err != nil {
					got[i] = err.Error()
					continue
				}
				fields, err := summa.StoredFields(s).Read(doc.Source, nil)
				if err != nil {
					t.Fatal(err)
				}
				if kept[doc.Key] == nil {
					kept[doc.Key] = fields
				}
			}
			if d := cmp.Diff(wanted, got); d != "" {
				t.Errorf("%s: %s", c.Name, d)
			}
		case *summapb.SearchRequest:
			if c.Name != "node/mutate/all-1" && c.Name != "node/mutate/poison-3-all" {
				continue
			}
			reply, err := c.Reply()
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range reply.(*summapb.SearchResponse).Hits {
				id := h.Fields["id"].Values[0].GetText()
				if id == "j" { // a number for text, which the reference drops and weft keeps (N1)
					h.Fields["t"] = &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: "5"}}}}
				}
				bitsEqual(t, c.Name+", document "+id, h.Fields, kept[id])
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d cases were there", seen, len(want))
	}
}

func reqs0(reqs []proto.Message) proto.Message {
	if len(reqs) == 0 {
		return nil
	}
	return reqs[0]
}

const everyType = `index _ {
	field id: text<raw> [primary, stored]
	field t: text [indexed<token_position>, stored<multi>] field k: text<raw> [indexed, stored, fast] field hidden: text [indexed]
	field u: u64 [stored<multi>, fast] field i: i64 [stored<multi>, fast] field f: f64 [stored<multi>, fast] field d: date [stored<multi>, fast]
	field b: bytes [stored<multi>] field j: json [stored] field jm: json [stored<multi>]
	field v: dense_vector<3> [indexed<flat>, stored<multi>] field s: sparse_vector [indexed, stored<multi>] field h: binary_dense_vector<16> [indexed, stored<multi>]
	field "a.b": text [indexed, stored<multi>] field "quote\"d": text [stored]
}`

func text(s string) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}
}

func u64(n uint64) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_U64{U64: n}}
}

func i64(n int64) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_I64{I64: n}}
}

func f64(n float64) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: n}}
}

func blob(b ...byte) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_BytesValue{BytesValue: append([]byte{}, b...)}}
}

func jsonOf(s string) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_JsonValue{JsonValue: s}}
}

func vec(v ...float32) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: v}}}
}

func bin(b ...byte) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: append([]byte{}, b...)}}
}

func sparseOf(i []uint32, v []float32) *summapb.FieldValue {
	return &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: &summapb.SparseVector{Indices: i, Values: v}}}
}

func entry(name string, v *summapb.FieldValue) *summapb.FieldEntry {
	return &summapb.FieldEntry{Name: name, Value: v}
}

// TestValues has each kind of value for each type: what comes back, as text, or the refusal.
func TestValues(t *testing.T) {
	s := parse(t, everyType)
	c, all := summa.NewDocuments(s, jsondoc.Limits{}), summa.StoredFields(s)
	inf, nan := math.Inf(1), math.NaN()
	for _, x := range []struct {
		field string
		give  []*summapb.FieldValue
		back  []*summapb.FieldValue // nil: as given
		err   string
	}{
		{field: "t", give: []*summapb.FieldValue{text("b"), text(""), text("a\n\"ü\u2028𝄞\x00")}},
		{field: "t", give: []*summapb.FieldValue{u64(math.MaxUint64), i64(-5), f64(2.5), f64(1e21), f64(inf)}, back: []*summapb.FieldValue{text("18446744073709551615"), text("-5"), text("2.5"), text("1000000000000000000000"), text("inf")}},
		{field: "t", give: []*summapb.FieldValue{jsonOf(` ["a", "\u0062"] `), jsonOf(`"c"`), jsonOf(`[]`)}, back: []*summapb.FieldValue{text("a"), text("b"), text("c")}},
		{field: "t", give: []*summapb.FieldValue{jsonOf(`{"a": 1}`)}, err: `Field 't': expected JSON string array for text field, got {"a":1}`},
		{field: "t", give: []*summapb.FieldValue{jsonOf(`["a",["b"]]`)}, err: `Field 't': expected string in JSON array, got ["b"]`},
		{field: "t", give: []*summapb.FieldValue{blob(0, 255), text("a")}},
		{field: "t", give: []*summapb.FieldValue{vec(1, 2, 3)}, err: "Field 't': vector value does not match schema type Text"},
		{field: "k", give: []*summapb.FieldValue{text("one"), text("two")}}, // several values of a field with one
		{field: "u", give: []*summapb.FieldValue{u64(0), u64(math.MaxUint64), i64(-1), f64(2.9), f64(-3), f64(1e30), f64(nan)}, back: []*summapb.FieldValue{u64(0), u64(math.MaxUint64), u64(math.MaxUint64), u64(2), u64(0), u64(math.MaxUint64), u64(0)}},
		{field: "i", give: []*summapb.FieldValue{i64(math.MinInt64), i64(math.MaxInt64), u64(math.MaxUint64), f64(-2.9), f64(1e30), f64(-1e30), f64(nan)}, back: []*summapb.FieldValue{i64(math.MinInt64), i64(math.MaxInt64), i64(-1), i64(-2), i64(math.MaxInt64), i64(math.MinInt64), i64(0)}},
		{field: "f", give: []*summapb.FieldValue{f64(math.Copysign(0, -1)), f64(5e-324), f64(math.MaxFloat64), f64(0.1), u64(math.MaxUint64), i64(-7)}, back: []*summapb.FieldValue{f64(math.Copysign(0, -1)), f64(5e-324), f64(math.MaxFloat64), f64(0.1), f64(math.MaxUint64), f64(-7)}},
		{field: "f", give: []*summapb.FieldValue{f64(nan)}, err: "Field 'f': f64 value NaN is not finite"},
		{field: "f", give: []*summapb.FieldValue{f64(-inf)}, err: "Field 'f': f64 value -inf is not finite"},
		{field: "d", give: []*summapb.FieldValue{i64(-1), u64(5), f64(7.9), text("1970-01-01T00:00:01Z")}, back: []*summapb.FieldValue{i64(-1), i64(5), i64(7), i64(1000)}},
		{field: "d", give: []*summapb.FieldValue{text("soon")}, err: "Schema error: type mismatch for field 'd': schema expects a date value, got text"},
		{field: "b", give: []*summapb.FieldValue{blob(), blob(1), blob(1, 2, 3), text("AQ=="), jsonOf("[1]"), jsonOf("null")}},
		{field: "b", give: []*summapb.FieldValue{u64(5)}, back: []*summapb.FieldValue{}}, // dropped, as the reference does
		{field: "j", give: []*summapb.FieldValue{jsonOf(`{"b": [1, 2.50, "x"], "a": null}`)}, back: []*summapb.FieldValue{jsonOf(`{"b":[1,2.50,"x"],"a":null}`)}},
		{field: "j", give: []*summapb.FieldValue{jsonOf("[1]"), jsonOf("[]"), jsonOf("null"), jsonOf(`{"$text":"x"}`), text("x"), blob(7), jsonOf("3"), jsonOf(`"s"`), jsonOf("true")}},
		{field: "j", give: []*summapb.FieldValue{jsonOf("null")}},
		{field: "j", give: []*summapb.FieldValue{jsonOf(`[1,2]`)}},
		{field: "j", give: []*summapb.FieldValue{jsonOf(`{"$values":[1]}`)}},
		{field: "jm", give: []*summapb.FieldValue{jsonOf("[1]"), jsonOf("null"), jsonOf(`{"$values":[1]}`), text("x")}},
		{field: "jm", give: []*summapb.FieldValue{jsonOf("[1,2]")}},
		{field: "j", give: []*summapb.FieldValue{jsonOf(`{"a":1,"a":2}`)}, err: `Invalid JSON in field 'j': duplicate object member name "a"`},
		{field: "j", give: []*summapb.FieldValue{jsonOf("1e999")}, err: "Invalid JSON in field 'j': number out of range at byte 5"},
		{field: "j", give: []*summapb.FieldValue{jsonOf("")}, err: "Invalid JSON in field 'j': unexpected end of the text"},
		{field: "j", give: []*summapb.FieldValue{jsonOf(strings.Repeat("[", 29) + strings.Repeat("]", 29))}},
		{field: "j", give: []*summapb.FieldValue{jsonOf(strings.Repeat("[", 30) + strings.Repeat("]", 30))}, err: "Invalid JSON in field 'j': nested more than 29 deep at byte 30"},
		{field: "v", give: []*summapb.FieldValue{vec(1, float32(math.Copysign(0, -1)), 1e-45), vec(0.1, 3.4e18, -2)}},
		{field: "v", give: []*summapb.FieldValue{vec(1, 2, 3)}},
		{field: "v", give: []*summapb.FieldValue{vec(1, 2)}, err: "Field 'v': dense vector dimension 2 does not match schema dimension 3"},
		{field: "v", give: []*summapb.FieldValue{vec(1, float32(inf), 3)}, err: "Field 'v': dense vector contains non-finite value inf at index 1"},
		{field: "v", give: []*summapb.FieldValue{vec(1e19, 1e19, 3)}, err: "Field 'v': the length of an indexed vector must be below 1e+19"},
		{field: "v", give: []*summapb.FieldValue{jsonOf("[1,2,3]")}, err: "Schema error: type mismatch for field 'v': schema expects a dense_vector value, got json"},
		{field: "v", give: []*summapb.FieldValue{i64(1)}, back: []*summapb.FieldValue{}},
		{field: "s", give: []*summapb.FieldValue{sparseOf([]uint32{9, 1, math.MaxUint32}, []float32{0.5, -1, 0}), sparseOf(nil, nil)}},
		{field: "s", give: []*summapb.FieldValue{sparseOf([]uint32{9, 1, 9}, []float32{0.5, -1, 0.25})}, back: []*summapb.FieldValue{sparseOf([]uint32{1, 9}, []float32{-1, 0.75})}},
		{field: "s", give: []*summapb.FieldValue{sparseOf([]uint32{1}, []float32{float32(nan)})}, err: "Field 's': sparse vector contains non-finite value NaN at index 0"},
		{field: "h", give: []*summapb.FieldValue{bin(1, 2), blob(3, 4)}, back: []*summapb.FieldValue{bin(1, 2), bin(3, 4)}},
		{field: "h", give: []*summapb.FieldValue{blob(3)}, err: "Field 'h': binary vector byte length 1 does not match schema byte length 2"},
		{field: "h", give: []*summapb.FieldValue{text("ab")}, err: "Schema error: type mismatch for field 'h': schema expects a binary_dense_vector value, got text"},
		{field: "u", give: []*summapb.FieldValue{bin(1)}, err: "Field 'u': vector value does not match schema type U64"},
		{field: "a.b", give: []*summapb.FieldValue{text("dotted")}},
		{field: `quote"d`, give: []*summapb.FieldValue{text("name")}},
		{field: "hidden", give: []*summapb.FieldValue{text("not stored")}, back: []*summapb.FieldValue{}},
		{field: "t", give: []*summapb.FieldValue{{}}, err: "Field 't' has no value"},
		{field: "t", give: []*summapb.FieldValue{nil}, err: "Field 't' has no value"},
		{field: "nofield", give: []*summapb.FieldValue{text("x")}, err: "Field 'nofield' not found in schema"},
		{field: "nofield", give: []*summapb.FieldValue{nil}, err: "Field 'nofield' has no value"},
		{field: "k", give: []*summapb.FieldValue{text(strings.Repeat("x", 32_767))}, err: "Field 'k': a value must not exceed 32766 bytes (got 32767)"},
	} {
		name := fmt.Sprintf("%s %.100v", x.field, x.give)
		entries := []*summapb.FieldEntry{entry("id", text("key"))}
		for _, v := range x.give {
			entries = append(entries, entry(x.field, v))
		}
		doc, dropped, err := c.Convert(entries)
		if x.err != "" {
			var e *summa.DocumentError
			if !errors.As(err, &e) || e.Text != x.err {
				t.Errorf("%s:\n got %v\nwant %s", name, err, x.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := all.Read(doc.Source, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		back := x.back
		if back == nil {
			back = x.give
		}
		want := map[string]*summapb.FieldValueList{"id": {Values: []*summapb.FieldValue{text("key")}}}
		if len(back) > 0 {
			want[x.field] = &summapb.FieldValueList{Values: back}
		}
		bitsEqual(t, name+": "+string(doc.Source), want, got)
		if lost := len(x.give) == 1 && len(back) == 0 && x.field != "hidden"; lost != (len(dropped) > 0) {
			t.Errorf("%s: dropped %v", name, dropped)
		}
	}
}

func TestPrimaryKeys(t *testing.T) {
	s := parse(t, everyType)
	for _, x := range []struct {
		give []*summapb.FieldValue
		key  string
		err  string
	}{
		{give: []*summapb.FieldValue{text("A b")}, key: "A b"},
		{give: []*summapb.FieldValue{u64(5)}, key: "5"},
		{give: []*summapb.FieldValue{f64(-0.5)}, key: "-0.5"},
		{give: []*summapb.FieldValue{jsonOf(`"j"`)}, key: "j"},
		{give: []*summapb.FieldValue{text(strings.Repeat("k", 65_535))}, key: strings.Repeat("k", 65_535)},
		{err: "Document error: Missing primary key field"},
		{give: []*summapb.FieldValue{text("")}, err: "Document error: Primary key must not be empty"},
		{give: []*summapb.FieldValue{text("a"), text("b")}, err: "Document error: primary key requires exactly one text value"},
		{give: []*summapb.FieldValue{blob(1)}, err: "Document error: Primary key must be text"},
		{give: []*summapb.FieldValue{text(strings.Repeat("k", 65_536))}, err: "Document error: primary key must contain 1..=65535 bytes"},
	} {
		var entries []*summapb.FieldEntry
		for _, v := range x.give {
			entries = append(entries, entry("id", v))
		}
		doc, _, err := summa.NewDocuments(s, jsondoc.Limits{}).Convert(entries)
		switch {
		case x.err != "":
			if err == nil || err.Error() != x.err {
				t.Errorf("%v: got %v, want %s", x.give, err, x.err)
			}
		case err != nil || doc.Key != x.key:
			t.Errorf("%v: %v %v", x.give, doc, err)
		default:
			sameOverHTTP(t, s, doc)
		}
	}
	doc, _, err := summa.NewDocuments(parse(t, "index a { field t: text }"), jsondoc.Limits{}).Convert([]*summapb.FieldEntry{entry("t", text("x"))})
	if err != nil || doc.Key != "" || len(doc.Fields) != 1 {
		t.Errorf("without a primary field: %v %v", doc, err)
	}
}

func TestDocumentBounds(t *testing.T) {
	s := parse(t, everyType)
	c := summa.NewDocuments(s, jsondoc.Limits{DocumentBytes: 1000, Values: 10, TextBytes: 600})
	many := func(n int) []*summapb.FieldEntry {
		return append([]*summapb.FieldEntry{entry("id", text("k"))}, slices.Repeat([]*summapb.FieldEntry{entry("t", text("x"))}, n-1)...)
	}
	if _, _, err := c.Convert(many(10)); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Convert(many(11)); err == nil || err.Error() != "Document error: a document has at most 10 values" {
		t.Error(err)
	}
	hostile := slices.Repeat([]*summapb.FieldEntry{{}}, 1_000_000)
	if n := testing.AllocsPerRun(1, func() { _, _, _ = c.Convert(hostile) }); n > 8 {
		t.Errorf("a document of a million empty entries costs %v allocations", n)
	}
	array := func(n int) []*summapb.FieldEntry {
		return []*summapb.FieldEntry{entry("id", text("k")), entry("t", jsonOf("["+strings.Repeat(`"",`, n-1)+`""]`))}
	}
	if _, _, err := c.Convert(array(9)); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Convert(array(10)); err == nil || err.Error() != "Document error: a document has at most 10 values" {
		t.Error(err)
	}
	large := func(n int, of string) []*summapb.FieldEntry {
		return []*summapb.FieldEntry{entry("id", text("k")), entry("t", text(strings.Repeat(of, n)))}
	}
	doc, _, err := c.Convert(large(600, "x"))
	if err != nil || len(doc.Source) != len(`{"id":"k","t":""}`)+600 {
		t.Error(err)
	}
	if _, _, err := c.Convert(large(601, "x")); err == nil || err.Error() != "Field 't': a value must not exceed 600 bytes (got 601)" {
		t.Error(err)
	}
	if _, _, err := c.Convert(large(500, "\x01")); err == nil || err.Error() != "Document error: a document must not exceed 1000 bytes" {
		t.Error(err)
	}
	if _, _, err := c.Convert(slices.Repeat(large(400, "x"), 3)); err == nil || err.Error() != "Document error: a document must not exceed 1000 bytes" {
		t.Error(err)
	}
}

// Fields of documents that came over HTTP have the types of their fields.
func TestFieldsOfHTTPDocuments(t *testing.T) {
	s := parse(t, everyType)
	for src, want := range map[string][]*summapb.FieldEntry{
		`{"id":"k","t":["a",5,1e3,"b"],"u":1e3,"i":-7,"f":[1,2.5],"d":["1970-01-01T00:00:01.5Z",7]}`: {
			entry("id", text("k")), entry("t", text("a")), entry("t", text("5")), entry("t", text("1e3")), entry("t", text("b")),
			entry("u", u64(1000)), entry("i", i64(-7)), entry("f", f64(1)), entry("f", f64(2.5)), entry("d", i64(1500)), entry("d", i64(7)),
		},
		`{"id":"k","k":true,"b":"AQI","h":"AQI=","j":[1,null],"jm":[[1],{"x":2}],"t":null,"u":[]}`: {
			entry("id", text("k")), entry("k", text("true")), entry("b", blob(1, 2)), entry("h", bin(1, 2)), entry("j", jsonOf("[1,null]")), entry("jm", jsonOf("[1]")), entry("jm", jsonOf(`{"x":2}`)),
		},
		`{"id":"k","v":[[1,2,3],[0.1,-0,1e-7]],"s":{"values":[0.5],"indices":[7]},"unknown":{"x":[1]}}`: {
			entry("id", text("k")), entry("v", vec(1, 2, 3)), entry("v", vec(0.1, float32(math.Copysign(0, -1)), 1e-7)), entry("s", sparseOf([]uint32{7}, []float32{0.5})),
		},
		`{"id":"k","v":[1,2,3],"a":[{"b":"x"},{"b":["y","z"]},7],"a.b":"w"}`: {
			entry("id", text("k")), entry("v", vec(1, 2, 3)), entry("a.b", text("x")), entry("a.b", text("y")), entry("a.b", text("z")), entry("a.b", text("w")),
		},
	} {
		got, err := summa.StoredFields(s).Read([]byte(src), nil)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		bitsEqual(t, src, lists(want), got)
		parsed, _, derr := jsondoc.NewParser(s, jsondoc.Limits{}).Parse([]byte(src))
		if derr != nil {
			continue // has a member that is no field
		}
		again, err := summa.NewDocuments(s, jsondoc.Limits{}).Reread([]byte(src))
		if err != nil {
			t.Errorf("%s: %v", src, err)
		} else if d := cmp.Diff(parsed, again); d != "" {
			t.Errorf("%s read again: %s", src, d)
		}
	}
	if f := summa.SelectFields(s, []string{"nofield", "hidden"}); !f.Nothing() {
		t.Error("fields that are not stored are to be read")
	}
	got, err := summa.SelectFields(s, []string{"u", "nofield", "u"}).Read([]byte(`{"id":"k","t":"a","u":7}`), nil)
	if err != nil {
		t.Error(err)
	}
	bitsEqual(t, "one field", lists([]*summapb.FieldEntry{entry("u", u64(7))}), got)
}

// A reply's room is charged before values are copied.
func TestRoom(t *testing.T) {
	s := parse(t, everyType)
	src := []byte(`{"id":"k","t":"` + strings.Repeat("x", 1000) + `"}`)
	room := summa.Limits{MaxSearchResponseBytes: 3000}.Room()
	for range 2 {
		if _, err := summa.StoredFields(s).Read(src, room); err != nil {
			t.Fatal(err)
		}
	}
	_, err := summa.StoredFields(s).Read(src, room)
	var e *summa.Error
	if !errors.As(err, &e) || e.Text != "Search response exceeds the 3000-byte hydration budget; request fewer hits or fields" {
		t.Error(err)
	}
}

// Names of fields are charged too: on the wire each document has them.
func TestRoomCountsNames(t *testing.T) {
	var sdl, src strings.Builder
	for i := range 60 {
		name := strings.Repeat("n", 250) + fmt.Sprint(1000+i)
		fmt.Fprintf(&sdl, " field %s: u64 [stored]", name)
		fmt.Fprintf(&src, ",%q:1", name)
	}
	s := parse(t, "index a {"+sdl.String()+" }")
	charged := 0
	room := summa.Limits{}.Room().Shared(func(n int) error { charged += n; return nil })
	fields, err := summa.StoredFields(s).Read([]byte("{"+src.String()[1:]+"}"), room)
	if err != nil || len(fields) != 60 {
		t.Fatal(len(fields), err)
	}
	if n := proto.Size(&summapb.GetDocumentResponse{Fields: fields}); charged < n {
		t.Errorf("%d bytes are charged for %d", charged, n)
	}
}

// drawValue makes a value of a field's own type.
func drawValue(t *rapid.T, f *schema.Field) *summapb.FieldValue {
	f32 := rapid.OneOf(rapid.Float32Range(-1e3, 1e3), rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e18, 0.1}))
	switch f.Type {
	case schema.Text:
		return text(rapid.String().Draw(t, "text"))
	case schema.U64:
		return u64(rapid.Uint64().Draw(t, "u64"))
	case schema.I64, schema.Date:
		return i64(rapid.Int64().Draw(t, "i64"))
	case schema.F64:
		return f64(rapid.Float64().Draw(t, "f64"))
	case schema.Bytes:
		return blob(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
	case schema.JSON:
		return jsonOf(rapid.SampledFrom([]string{"1", "-0.5e3", "null", "[]", "[1,[2]]", `{"a":{"b":[]}}`, `"x"`, "false", `{"$text":"x"}`, `{"$json":null}`, `{"$values":[]}`}).Draw(t, "json"))
	case schema.DenseVector:
		return vec(rapid.SliceOfN(f32, f.Dim, f.Dim).Draw(t, "dense")...)
	case schema.BinaryVector:
		return bin(rapid.SliceOfN(rapid.Byte(), f.Dim/8, f.Dim/8).Draw(t, "bits")...)
	}
	i := rapid.SliceOfDistinct(rapid.Uint32(), rapid.ID[uint32]).Draw(t, "indices")
	if len(i) == 0 {
		return sparseOf(nil, nil)
	}
	return sparseOf(i, rapid.SliceOfN(f32, len(i), len(i)).Draw(t, "values"))
}

// Documents of every type come back bit for bit, whatever order their fields stand in; where no field has more values than its schema
// says, HTTP sees the same document.
func TestDocumentsComeBack(t *testing.T) {
	s := parse(t, everyType)
	c, all := summa.NewDocuments(s, jsondoc.Limits{}), summa.StoredFields(s)
	rapid.Check(t, func(t *rapid.T) {
		entries := []*summapb.FieldEntry{entry("id", text(rapid.StringN(1, 20, 100).Draw(t, "key")))}
		used, plain := map[int]int{}, true
		for range rapid.IntRange(0, 12).Draw(t, "values") {
			id := rapid.IntRange(1, len(s.Fields)-1).Draw(t, "field")
			used[id]++
			v := drawValue(t, &s.Fields[id])
			plain = plain && (used[id] == 1 || s.Fields[id].Multi)
			entries = append(entries, entry(s.Fields[id].Name, v))
		}
		entries = rapid.Permutation(entries).Draw(t, "order")
		doc, dropped, err := c.Convert(entries)
		if err != nil || dropped != nil {
			t.Fatalf("%v %v", dropped, err)
		}
		got, err := all.Read(doc.Source, nil)
		if err != nil {
			t.Fatal(err)
		}
		stored := slices.DeleteFunc(slices.Clone(entries), func(e *summapb.FieldEntry) bool { return e.Name == "hidden" })
		bitsEqual(t, string(doc.Source), lists(stored), got)
		if plain {
			sameOverHTTP(t, s, doc)
		}
		again, err := c.Reread(doc.Source)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(doc, again); d != "" {
			t.Errorf("read again: %s\n%s", d, doc.Source)
		}
	})
}

// Whatever a client sends, a document is refused with a text, or its source is good JSON that reads back to what it makes.
func FuzzDocument(f *testing.F) {
	s := parse(f, everyType)
	c, all := summa.NewDocuments(s, jsondoc.Limits{}), summa.StoredFields(s)
	for _, d := range []*summapb.NamedDocument{
		{Fields: []*summapb.FieldEntry{entry("id", text("k")), entry("j", jsonOf(`{"$text":[]}`)), entry("j", jsonOf("null")), entry("b", text("\x00\u2028"))}},
		{Fields: []*summapb.FieldEntry{entry("id", f64(1e300)), entry("s", sparseOf([]uint32{3, 3, 1}, []float32{1, 2, 3})), entry("t", jsonOf(`["a","\ud800"]`))}},
		{Fields: []*summapb.FieldEntry{entry("id", text("k")), entry("t", blob(1)), entry("v", vec(1, 2, 3)), entry("h", blob(1, 2)), entry("f", f64(math.Copysign(0, -1)))}},
	} {
		wire, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var d summapb.NamedDocument
		if proto.Unmarshal(wire, &d) != nil {
			return
		}
		doc, _, err := c.Convert(d.Fields)
		if err != nil {
			if err.Error() == "" {
				t.Error("refused without a text")
			}
			return
		}
		got, err := all.Read(doc.Source, nil)
		if err != nil {
			t.Fatalf("%v: %s", err, doc.Source)
		}
		again := make([]*summapb.FieldEntry, 0, len(got))
		for name, list := range got {
			for _, v := range list.Values {
				again = append(again, entry(name, v))
			}
		}
		second, _, err := c.Convert(again)
		if err != nil {
			t.Fatalf("what came back is refused: %v\n%s", err, doc.Source)
		}
		back, err := all.Read(second.Source, nil)
		if err != nil {
			t.Fatal(err)
		}
		bitsEqual(t, string(doc.Source), got, back)
		if _, err := c.Reread(doc.Source); err != nil {
			t.Fatalf("%v: %s", err, doc.Source)
		}
		for _, v := range doc.Fields {
			for _, b := range v.Bytes {
				if fault := s.Fields[v.Field].VectorFault(b); fault != "" {
					t.Error(fault)
				}
			}
		}
	})
}

// Reading a source never reads past it, whatever its bytes.
func FuzzFields(f *testing.F) {
	s := parse(f, everyType)
	for _, src := range []string{`{"id":"k","t":["a",5],"v":[[1,2,3]],"s":{"indices":[1],"values":[2]},"a":{"b":"x"}}`, `{"t":"\`, `{"t":[`, `{"j":{"$json":null}}`, `{`, `{"v":[,`, `{"s":{"indices":1}}`} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if _, err := summa.StoredFields(s).Read(src, summa.Limits{}.Room()); err != nil && err.Error() == "" {
			t.Error("no text")
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	s := parse(b, everyType)
	c, all := summa.NewDocuments(s, jsondoc.Limits{}), summa.StoredFields(s)
	entries := []*summapb.FieldEntry{entry("id", text("key")), entry("t", text(strings.Repeat("some words ", 100))), entry("u", u64(7)), entry("v", vec(0.1, 0.2, 0.3))}
	b.Run("in", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := c.Convert(entries); err != nil {
				b.Fatal(err)
			}
		}
	})
	doc, _, err := c.Convert(entries)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("out", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := all.Read(doc.Source, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
