package summa_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// loaded keeps the recordings from one test to the next; tests do not change them.
var loaded = map[string][]summagolden.Case{}

func cases(t testing.TB, file string) []summagolden.Case {
	t.Helper()
	dir := corpus.Dir(t, "summa-golden")
	if all, ok := loaded[file]; ok {
		return slices.Clone(all)
	}
	all, err := summagolden.Load(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	loaded[file] = slices.Clone(all)
	if len(all) == 0 {
		t.Fatalf("%s holds no case", file)
	}
	return all
}

// codeName is the name of a code as recorded.
func codeName(c codes.Code) string {
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && r >= 'A' && r <= 'Z' && c != codes.OK {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// Every recorded message decodes without unknown fields, says the same as its JSON, and comes back equal.
func TestRecordedMessagesDecode(t *testing.T) {
	messages := 0
	check := func(name string, m protoreflect.MessageDescriptor, wire []byte, text []byte) {
		t.Helper()
		messages++
		got, err := summagolden.Decode(m, wire)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		eachMessage(got.ProtoReflect(), func(m protoreflect.Message) {
			if u := m.GetUnknown(); len(u) > 0 {
				t.Errorf("%s: %s has unknown fields %x", name, m.Descriptor().FullName(), []byte(u))
			}
		})
		again, err := proto.Marshal(got)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		back, err := summagolden.Decode(m, again)
		if err != nil || !proto.Equal(got, back) {
			t.Errorf("%s: does not come back: %v", name, err)
		}
		if len(text) == 0 || string(text) == "null" {
			return
		}
		want := got.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal(text, want); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !proto.Equal(got, want) {
			t.Errorf("%s: the bytes say\n%v\nbut the JSON\n%v", name, got, want)
		}
	}
	for _, file := range summagolden.Files {
		for _, c := range cases(t, file) {
			m := summagolden.Method(c.RPC)
			if m == nil {
				t.Errorf("%s: no call %s", c.Name, c.RPC)
				continue
			}
			for _, wire := range c.RequestB64 {
				text := []byte(c.Request)
				if m.IsStreamingClient() {
					text = nil
				}
				check(c.Name+" request", m.Input(), wire, text)
			}
			if c.ResponseB64 != nil {
				check(c.Name+" response", m.Output(), c.ResponseB64, c.Response)
			}
			for _, n := range c.Nodes {
				m := summagolden.Method(n.RPC)
				check(c.Name+" request to "+n.Node, m.Input(), n.RequestB64, n.Request)
				if n.ResponseB64 != nil {
					check(c.Name+" response of "+n.Node, m.Output(), n.ResponseB64, n.Response)
				}
			}
		}
	}
	t.Logf("%d messages", messages)
}

func eachMessage(m protoreflect.Message, do func(protoreflect.Message)) {
	do(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					eachMessage(v.Message(), do)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				eachMessage(v.List().Get(i).Message(), do)
			}
		default:
			eachMessage(v.Message(), do)
		}
		return true
	})
}
