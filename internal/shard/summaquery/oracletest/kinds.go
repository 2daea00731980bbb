package oracletest

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	summapb "github.com/weft-search/weft/api/summa"
)

// Kinds counts what requests were made of: every type of query, and of every combiner and fusion method each place where one can stand.
type Kinds map[string]int

// Add counts what a request is made of.
func (k Kinds) Add(req *summapb.SearchRequest) { k.message(req.ProtoReflect()) }

func (k Kinds) message(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case choice(f):
			if v := f.Enum().Values().ByNumber(m.Get(f).Enum()); v != nil { // not one that nobody knows
				k[chosen(f, v)]++
			}
		case f.Kind() != protoreflect.MessageKind || f.IsMap() || !m.Has(f):
		case f.IsList():
			for j := range m.Get(f).List().Len() {
				k.message(m.Get(f).List().Get(j).Message())
			}
		default:
			if query(f) {
				k[string(f.FullName())]++
			}
			k.message(m.Get(f).Message())
		}
	}
}

// Missing are the kinds that there are and that were never counted.
func (k Kinds) Missing() (out []string) {
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if choice(f) {
				for j := range f.Enum().Values().Len() {
					if name := chosen(f, f.Enum().Values().Get(j)); k[name] == 0 {
						out = append(out, name)
					}
				}
			}
			if query(f) && k[string(f.FullName())] == 0 {
				out = append(out, string(f.FullName()))
			}
			if f.Kind() == protoreflect.MessageKind && !f.IsMap() {
				walk(f.Message())
			}
		}
	}
	walk((&summapb.SearchRequest{}).ProtoReflect().Descriptor())
	slices.Sort(out)
	return out
}

// query tells whether a field is a type of query.
func query(f protoreflect.FieldDescriptor) bool {
	return f.ContainingOneof() != nil && f.ContainingOneof().FullName() == "summa.Query.query"
}

// choice tells whether a field is a combiner or a fusion method.
func choice(f protoreflect.FieldDescriptor) bool {
	if f.Kind() != protoreflect.EnumKind {
		return false
	}
	switch f.Enum().FullName() {
	case summapb.MultiValueCombiner(0).Descriptor().FullName(), summapb.FusionMethod(0).Descriptor().FullName():
		return true
	}
	return false
}

func chosen(f protoreflect.FieldDescriptor, v protoreflect.EnumValueDescriptor) string {
	return fmt.Sprint(f.FullName(), " ", v.Name())
}
