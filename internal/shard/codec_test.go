package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/schema"
)

func encodeBatch(ts uint64, ops []Op) []byte {
	b := appendHeader(nil, recordBatch)
	b = binary.AppendUvarint(b, ts)
	b = binary.AppendUvarint(b, uint64(len(ops)))
	for _, o := range ops {
		if o.Delete {
			b = appendDelete(b, o.Key)
		} else {
			b = appendPut(b, o.Doc)
		}
	}
	return b
}

var sampleOps = []Op{
	{Delete: true, Key: "gone"},
	{Key: "empty", Doc: &schema.Document{Key: "empty"}},
	{Key: "full", Doc: &schema.Document{Key: "full", Source: []byte(`{"a":1}`), Fields: []schema.Values{
		{Field: 0, Text: []string{"one two", "", "three"}},
		{Field: 3, Nums: []uint64{0, 1 << 63, 7}},
		{Field: 200, Bytes: [][]byte{{}, {1, 2, 3}}},
	}}},
	{Key: "no source but empty", Doc: &schema.Document{Key: "no source but empty", Source: []byte{}}},
}

func TestRecordRoundTrip(t *testing.T) {
	r, err := decodeRecord(encodeBatch(1<<40, sampleOps))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleOps, r.ops); diff != "" || r.commitTS != 1<<40 || r.kind != recordBatch {
		t.Fatalf("record %+v: %s", r, diff)
	}
	r, err = decodeRecord(appendSchema(nil, 9, `{"x":1}`))
	if err != nil || r.kind != recordSchema || r.generation != 9 || r.schemaText != `{"x":1}` {
		t.Fatalf("record %+v: %v", r, err)
	}
}

// TestRecordGolden keeps the bytes of version 1: logs that hold them are to be read for ever.
func TestRecordGolden(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"batch.v1", encodeBatch(1<<40, sampleOps)},
		{"schema.v1", appendSchema(nil, 9, `{"x":1}`)},
	} {
		path := filepath.Join("testdata", "record", c.name)
		if os.Getenv("WEFT_REWRITE") != "" {
			if err := os.WriteFile(path, c.bytes, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.bytes, want) {
			t.Errorf("%s: encoded as %x, want %x", c.name, c.bytes, want)
		}
		if _, err := decodeRecord(want); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRecordOfNewerVersion(t *testing.T) {
	b := encodeBatch(1, sampleOps)
	b[0] = recordVersion + 1
	_, err := decodeRecord(b)
	var f *FormatError
	if !errors.Is(err, ErrNewerFormat) || !errors.As(err, &f) || f.Have != recordVersion+1 {
		t.Fatalf("error %v", err)
	}
}

// TestDamagedRecords cuts and changes every byte: an error or another valid record, never a panic.
func TestDamagedRecords(t *testing.T) {
	whole := encodeBatch(77, sampleOps)
	for n := range whole {
		if _, err := decodeRecord(whole[:n]); !errors.Is(err, errRecord) {
			t.Fatalf("cut at %d: error %v", n, err)
		}
	}
	for n := range whole {
		for _, x := range []byte{0x01, 0x80, 0xff} {
			b := append([]byte(nil), whole...)
			b[n] ^= x
			if _, err := decodeRecord(b); err != nil && !errors.Is(err, errRecord) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("byte %d changed: error %v", n, err)
			}
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(encodeBatch(5, sampleOps))
	f.Add(appendSchema(nil, 2, "{}"))
	f.Add([]byte{1, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil || r.kind != recordBatch {
			return
		}
		again, err := decodeRecord(encodeBatch(r.commitTS, r.ops))
		if err != nil {
			t.Fatalf("a decoded record encodes to one that does not decode: %v", err)
		}
		if diff := cmp.Diff(r.ops, again.ops); diff != "" || again.commitTS != r.commitTS {
			t.Fatal(diff)
		}
	})
}

func TestValidate(t *testing.T) {
	sch := &schema.Schema{Fields: []schema.Field{{Name: "t", Type: schema.Text}, {Name: "n", Type: schema.I64}, {Name: "b", Type: schema.Bytes}}}
	doc := func(f ...schema.Values) *schema.Document { return &schema.Document{Key: "k", Fields: f} }
	for _, c := range []struct {
		about string
		doc   *schema.Document
		field string
		want  string // part of the reason; empty = valid
	}{
		{"no fields", doc(), "", ""},
		{"all types", doc(schema.Values{Field: 0, Text: []string{""}}, schema.Values{Field: 1, Nums: []uint64{1}}, schema.Values{Field: 2, Bytes: [][]byte{nil}}), "", ""},
		{"no key", &schema.Document{}, "", "key is empty"},
		{"long key", &schema.Document{Key: strings.Repeat("x", MaxKeyBytes+1)}, "", "65536 bytes"},
		{"longest key", &schema.Document{Key: strings.Repeat("x", MaxKeyBytes)}, "", ""},
		{"unknown field", doc(schema.Values{Field: 3, Nums: []uint64{1}}), "", "not in the schema"},
		{"negative field", doc(schema.Values{Field: -1, Nums: []uint64{1}}), "", "not in the schema"},
		{"twice", doc(schema.Values{Field: 1, Nums: []uint64{1}}, schema.Values{Field: 1, Nums: []uint64{1}}), "n", "ascending"},
		{"no value", doc(schema.Values{Field: 1}), "n", "no value"},
		{"text in a number", doc(schema.Values{Field: 1, Text: []string{"1"}}), "n", "another type"},
		{"number in text", doc(schema.Values{Field: 0, Nums: []uint64{1}}), "t", "another type"},
		{"number in bytes", doc(schema.Values{Field: 2, Nums: []uint64{1}}), "b", "another type"},
		{"text and number", doc(schema.Values{Field: 0, Text: []string{"a"}, Nums: []uint64{1}}), "t", "another type"},
	} {
		err := validate(sch, c.doc, false)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.about, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Reason, c.want) || err.Field != c.field):
			t.Errorf("%s: error %v, want field %q and %q", c.about, err, c.field, c.want)
		}
	}
}
