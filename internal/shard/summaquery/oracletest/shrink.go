package oracletest

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	summapb "github.com/weft-search/weft/api/summa"
)

// Shrink makes a request smaller as long as it still fails.
func Shrink(req *summapb.SearchRequest, fails func(*summapb.SearchRequest) bool) *summapb.SearchRequest {
	for n := 0; n < 500; n++ {
		smaller := false
		for i := 0; ; i++ {
			next := proto.CloneOf(req)
			left := i
			if !cutOne(next.ProtoReflect(), &left) {
				break
			}
			if fails(next) {
				req, smaller = next, true
				break
			}
		}
		if !smaller {
			break
		}
	}
	return req
}

// cutOne does the n-th of the cuts that a message allows; it counts n down. It tells whether there was one.
func cutOne(m protoreflect.Message, n *int) (done bool) {
	take := func() bool { *n--; return *n < 0 }
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	for _, f := range fields {
		v := m.Get(f)
		switch {
		case f.IsList():
			list := v.List()
			for i := range list.Len() {
				if f.Kind() != protoreflect.MessageKind {
					break
				}
				if take() {
					for j := i; j+1 < list.Len(); j++ {
						list.Set(j, list.Get(j+1))
					}
					list.Truncate(list.Len() - 1)
					return true
				}
				if cutOne(list.Get(i).Message(), n) {
					return true
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			if q, ok := m.Interface().(*summapb.Query); ok {
				for _, kid := range kids(q) {
					if take() {
						q.Query = kid.Query
						return true
					}
				}
			} else if f.Name() != "query" && take() {
				m.Clear(f)
				return true
			}
			if cutOne(v.Message(), n) {
				return true
			}
		case f.Kind() == protoreflect.StringKind && (f.Name() == "text" || f.Name() == "term"):
			words := strings.Fields(v.String())
			for i := range words {
				if len(words) > 1 && take() {
					m.Set(f, protoreflect.ValueOfString(strings.Join(append(append([]string{}, words[:i]...), words[i+1:]...), " ")))
					return true
				}
			}
		case f.Kind() == protoreflect.EnumKind || f.Name() == "offset" || f.Name() == "candidate_limit" || strings.HasPrefix(string(f.Name()), "combiner") ||
			strings.HasPrefix(string(f.Name()), "max_") || f.Name() == "boost" || f.Name() == "slop":
			if take() {
				m.Clear(f)
				return true
			}
		}
	}
	return false
}

func kids(q *summapb.Query) (out []*summapb.Query) {
	switch q := q.Query.(type) {
	case *summapb.Query_Boost:
		out = append(out, q.Boost.Query)
	case *summapb.Query_Boolean:
		out = append(append(append(out, q.Boolean.Must...), q.Boolean.Should...), q.Boolean.MustNot...)
	case *summapb.Query_Fusion:
		for _, b := range q.Fusion.Queries {
			out = append(out, b.Query)
		}
	}
	return out
}
