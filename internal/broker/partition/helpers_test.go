package partition_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unmarshal[M any, P interface {
	*M
	proto.Message
}](t testing.TB, b []byte) P {
	t.Helper()
	m := P(new(M))
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// field is an encoded field of bytes.
func field(num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), v)
}

func textEntry(name, text string) *summapb.FieldEntry {
	return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: text}}}
}

func textDocument(entries ...string) *summapb.NamedDocument {
	d := &summapb.NamedDocument{}
	for i := 0; i+1 < len(entries); i += 2 {
		d.Fields = append(d.Fields, textEntry(entries[i], entries[i+1]))
	}
	return d
}
