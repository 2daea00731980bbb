package shardv1

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// testdata/v1.binpb describes the protocol as nodes speak it. Fields, messages, calls and values may be added to it; nothing that it has
// may change its number, its type or its way of being packed. After an addition write it anew, in the root of the repository:
//
//	go tool -modfile=tools/buf/go.mod buf build api --exclude-source-info -o api/shard/v1/testdata/v1.binpb
const golden = "testdata/v1.binpb"

func TestWireDoesNotChange(t *testing.T) {
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	old, err := files.FindFileByPath(File_shard_v1_shard_proto.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes(old, File_shard_v1_shard_proto) {
		t.Errorf("%s", change)
	}
	if t.Failed() {
		return
	}
	for _, addition := range changes(File_shard_v1_shard_proto, old) {
		t.Errorf("%s: not in %s yet", addition, golden)
	}
}

// The comparison sees what it has to.
func TestChangesAreSeen(t *testing.T) {
	for name, change := range map[string]func(f *descriptorpb.FileDescriptorProto){
		"number": func(f *descriptorpb.FileDescriptorProto) { f.MessageType[0].Field[0].Number = proto.Int32(77) },
		"type": func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType[0].Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_UINT64.Enum()
		},
		"list": func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType[0].Field[0].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		},
		"message": func(f *descriptorpb.FileDescriptorProto) { f.MessageType[0].Name = proto.String("Other") },
		"call":    func(f *descriptorpb.FileDescriptorProto) { f.Service[0].Method[0].Name = proto.String("Pong") },
		"stream":  func(f *descriptorpb.FileDescriptorProto) { f.Service[0].Method[0].ServerStreaming = proto.Bool(true) },
		"value":   func(f *descriptorpb.FileDescriptorProto) { f.EnumType[0].Value[1].Number = proto.Int32(77) },
		"nested": func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType[2].NestedType[0].Field[0].Number = proto.Int32(77)
		},
	} {
		p := protodesc.ToFileDescriptorProto(File_shard_v1_shard_proto)
		change(p)
		f, err := protodesc.FileOptions{AllowUnresolvable: true}.New(p, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		if len(changes(File_shard_v1_shard_proto, f)) == 0 {
			t.Errorf("a change of a %s is not seen", name)
		}
	}
}

// changes lists what of old is not in now, or not the same on the wire.
func changes(old, now protoreflect.FileDescriptor) []string {
	var c comparison
	c.messages(old.Messages(), now.Messages())
	c.enums(old.Enums(), now.Enums())
	for i := range old.Services().Len() {
		a := old.Services().Get(i)
		b := now.Services().ByName(a.Name())
		if b == nil {
			c.add(a.FullName(), "is gone")
			continue
		}
		for j := range a.Methods().Len() {
			m := a.Methods().Get(j)
			n := b.Methods().ByName(m.Name())
			switch {
			case n == nil:
				c.add(m.FullName(), "is gone")
			case m.Input().FullName() != n.Input().FullName(), m.Output().FullName() != n.Output().FullName(),
				m.IsStreamingClient() != n.IsStreamingClient(), m.IsStreamingServer() != n.IsStreamingServer():
				c.add(m.FullName(), "has other messages")
			}
		}
	}
	return c.list
}

type comparison struct{ list []string }

func (c *comparison) add(name protoreflect.FullName, what string) {
	c.list = append(c.list, string(name)+" "+what)
}

func (c *comparison) messages(old, now protoreflect.MessageDescriptors) {
	for i := range old.Len() {
		a := old.Get(i)
		b := now.ByName(a.Name())
		if b == nil {
			c.add(a.FullName(), "is gone")
			continue
		}
		for j := range a.Fields().Len() {
			f := a.Fields().Get(j)
			g := b.Fields().ByNumber(f.Number())
			switch {
			case g == nil:
				c.add(f.FullName(), "is gone")
			case f.Name() != g.Name(), f.Kind() != g.Kind(), f.Cardinality() != g.Cardinality(), f.IsPacked() != g.IsPacked(), f.HasPresence() != g.HasPresence(),
				f.Message() != nil && f.Message().FullName() != g.Message().FullName(), f.Enum() != nil && f.Enum().FullName() != g.Enum().FullName():
				c.add(f.FullName(), "is another")
			}
		}
		c.messages(a.Messages(), b.Messages())
		c.enums(a.Enums(), b.Enums())
	}
}

func (c *comparison) enums(old, now protoreflect.EnumDescriptors) {
	for i := range old.Len() {
		a := old.Get(i)
		b := now.ByName(a.Name())
		if b == nil {
			c.add(a.FullName(), "is gone")
			continue
		}
		for j := range a.Values().Len() {
			v := a.Values().Get(j)
			if w := b.Values().ByNumber(v.Number()); w == nil || w.Name() != v.Name() {
				c.add(v.FullName(), "is another")
			}
		}
	}
}
