package summa

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
)

// Room is how much more a reply may hold. It belongs to one call.
type Room struct {
	left   int
	lim    Limits
	shared func(bytes int) error
}

// Room returns the room of one reply.
func (l Limits) Room() *Room {
	l = l.WithDefaults()
	return &Room{left: l.MaxSearchResponseBytes, lim: l}
}

// Shared lets what the room is charged be charged to something else as well, which many calls may share. It may be nil, and is called by
// whoever calls Take.
func (r *Room) Shared(charge func(bytes int) error) *Room {
	r.shared = charge
	return r
}

// What parts of a reply take in memory beside the texts in them, in bytes: their structures and their places in lists and maps. Encoded
// they are shorter.
const (
	HitCost          = 320 // a hit, with its address
	CandidateCost    = 160 // one of a list of candidates, with its address
	OrdinalCost      = 64  // the score of one value
	ContributionCost = 128 // a vote of reciprocal ranks, beside the name of its branch
	PassageCost      = 384 // the scores of a passage, or of a document
	CellCost         = 48  // one of those, beside its name
)

// Take charges n bytes before they are made. An error is that of Limits.CheckResponse, or of what Shared named. A nil room has no bound.
func (r *Room) Take(n int) error {
	if r == nil {
		return nil
	}
	if r.left -= n; r.left < 0 {
		return r.lim.CheckResponse(math.MaxInt)
	}
	if r.shared == nil {
		return nil
	}
	return r.shared(n)
}

// valueCost is what one value takes in memory beside what it holds, and listCost that of a field's list beside its name.
const (
	valueCost = 96
	listCost  = 96
)

// Fields reads stored values out of sources, for a reply.
//
// A document that came over Summa comes back value for value: kinds, order within a field, bits of floats. Of one that came over HTTP
// each value has its field's type: numbers, text (also of numbers, true and false), bytes and vectors of bits out of base64, JSON as
// written without white space, dates as i64 milliseconds. What does not fit its field is left out.
type Fields struct {
	s       *schema.Schema
	ids     map[string]int
	wanted  []bool
	parents map[string]bool // every proper dotted prefix of a field's name
	any     bool
}

// SelectFields reads the named fields; names that are no stored field are passed over.
func SelectFields(s *schema.Schema, names []string) *Fields {
	f := allFields(s)
	for _, n := range names {
		if id, ok := f.ids[n]; ok && s.Fields[id].Stored {
			f.wanted[id], f.any = true, true
		}
	}
	return f
}

// StoredFields reads every stored field.
func StoredFields(s *schema.Schema) *Fields {
	f := allFields(s)
	for i := range s.Fields {
		f.wanted[i] = s.Fields[i].Stored
		f.any = f.any || s.Fields[i].Stored
	}
	return f
}

func allFields(s *schema.Schema) *Fields {
	f := &Fields{s: s, ids: make(map[string]int, len(s.Fields)), wanted: make([]bool, len(s.Fields)), parents: map[string]bool{}}
	for i := range s.Fields {
		name := s.Fields[i].Name
		f.ids[name] = i
		for k := range len(name) {
			if name[k] == '.' {
				f.parents[name[:k]] = true
			}
		}
	}
	return f
}

// Nothing says that no field would be read, so that sources need not be either.
func (f *Fields) Nothing() bool { return !f.any }

// Read returns the values in a source; fields without one are absent. room is charged first; nil is without bound. An error is that of
// Limits.CheckResponse, or tells that the source is damaged.
func (f *Fields) Read(source []byte, room *Room) (map[string]*summapb.FieldValueList, error) {
	r := reading{Fields: f, room: room}
	if f.any && len(source) > 0 {
		if err := r.members(source, 0); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

type reading struct {
	*Fields
	room *Room
	path []byte
	buf  []byte // a text on its way into a value
	out  map[string]*summapb.FieldValueList
}

const maxSourceDepth = 128 // objects in objects; documents have fewer

// members reads an object whose members belong to fields below path.
func (r *reading) members(object []byte, depth int) error {
	if depth > maxSourceDepth {
		return errSource
	}
	base := len(r.path)
	return eachMember(object, func(name, v []byte) error {
		r.path = r.path[:base]
		if depth > 0 {
			r.path = append(r.path, '.')
		}
		var err error
		if r.path, err = unquote(r.path, name); err != nil {
			return err
		}
		id, known := r.ids[string(r.path)]
		var f *schema.Field // to read
		if known && r.wanted[id] {
			f = &r.s.Fields[id]
		}
		switch {
		case r.parents[string(r.path)] && (!known || takesMembers(r.s.Fields[id].Type)):
			err = eachElement(v, true, func(item []byte) error {
				if item[0] == '{' {
					return r.members(item, depth+1)
				}
				if f == nil {
					return nil
				}
				return r.value(f, item)
			})
		case f != nil:
			err = r.values(f, v)
		}
		r.path = r.path[:base]
		return err
	})
}

// takesMembers says whether the members of an object at a field's name can belong to other fields.
func takesMembers(t schema.Type) bool {
	return t != schema.JSON && t != schema.SparseVector && t != schema.DenseVector
}

// values reads what a member holds for a field.
func (r *reading) values(f *schema.Field, v []byte) error {
	switch f.Type {
	case schema.JSON:
		if tag, inner := tagOf(v); tag == tagValues {
			v = inner
		} else if !f.Multi {
			return r.value(f, v)
		}
	case schema.DenseVector:
		if len(v) < 2 || v[1] != '[' {
			return r.value(f, v)
		}
	}
	return eachElement(v, true, func(item []byte) error { return r.value(f, item) })
}

// tagOf returns the tag of a value that has one, and what it stands around.
func tagOf(v []byte) (tag string, inner []byte) {
	if len(v) < 3 || v[0] != '{' || v[2] != '$' {
		return "", nil
	}
	members := 0
	err := eachMember(v, func(name, value []byte) error {
		members++
		tag, inner = string(name[1:len(name)-1]), value
		return nil
	})
	if err != nil || members != 1 {
		return "", nil
	}
	return tag, inner
}

func (r *reading) add(f *schema.Field, v *summapb.FieldValue) error {
	if r.out == nil {
		r.out = map[string]*summapb.FieldValueList{}
	}
	list := r.out[f.Name]
	if list == nil {
		list = &summapb.FieldValueList{}
		r.out[f.Name] = list
	}
	list.Values = append(list.Values, v)
	return nil
}

// value reads one value. It takes no more room than twice its bytes in the source: a component of a vector has at least two there. A field's name
// is charged with its first value: on the wire each document has it.
func (r *reading) value(f *schema.Field, v []byte) error {
	if v[0] == 'n' {
		return nil
	}
	cost := valueCost + len(v)
	if f.Type == schema.DenseVector || f.Type == schema.SparseVector {
		cost += len(v)
	}
	if r.out[f.Name] == nil {
		cost += listCost + len(f.Name)
	}
	if err := r.room.Take(cost); err != nil {
		return err
	}
	switch tag, inner := tagOf(v); {
	case tag == tagText && (f.Type == schema.Bytes || f.Type == schema.JSON):
		return r.text(f, inner)
	case tag == tagBytes && (f.Type == schema.Text || f.Type == schema.JSON):
		return r.bytes(f, inner)
	case tag == tagJSON && (f.Type == schema.Bytes || f.Type == schema.JSON):
		v = inner
		return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_JsonValue{JsonValue: string(v)}})
	}
	switch f.Type {
	case schema.JSON:
		return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_JsonValue{JsonValue: string(v)}})
	case schema.Text:
		return r.text(f, v)
	case schema.Bytes, schema.BinaryVector:
		return r.bytes(f, v)
	case schema.DenseVector:
		floats, ok := readFloats(v)
		if !ok || len(floats) != f.Dim {
			return nil
		}
		return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: floats}}})
	case schema.SparseVector:
		return r.sparse(f, v)
	}
	return r.number(f, v)
}

func (r *reading) text(f *schema.Field, v []byte) error {
	text := v
	switch v[0] {
	case '"':
		var err error
		if text, err = unquote(r.buf[:0], v); err != nil {
			return err
		}
		r.buf = text
	case '{', '[':
		return nil
	}
	return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: string(text)}})
}

func (r *reading) bytes(f *schema.Field, v []byte) error {
	if v[0] != '"' {
		return nil
	}
	text, err := unquote(r.buf[:0], v)
	if err != nil {
		return err
	}
	r.buf = text
	enc := base64.RawStdEncoding
	if len(text)%4 == 0 {
		enc = base64.StdEncoding
	}
	b, err := enc.AppendDecode(make([]byte, 0, enc.DecodedLen(len(text))), text)
	if err != nil {
		return nil
	}
	if f.Type == schema.BinaryVector {
		if len(b) != f.Dim/8 {
			return nil
		}
		return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: b}})
	}
	return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_BytesValue{BytesValue: b}})
}

func (r *reading) number(f *schema.Field, v []byte) error {
	out := &summapb.FieldValue{}
	switch f.Type {
	case schema.U64:
		n, err := schema.ParseU64(v)
		if err != nil {
			return nil
		}
		out.Value = &summapb.FieldValue_U64{U64: n}
	case schema.F64:
		n, err := schema.ParseF64(v)
		if err != nil {
			return nil
		}
		out.Value = &summapb.FieldValue_F64{F64: n}
	default:
		n, err := schema.ParseI64(v)
		if f.Type == schema.Date && v[0] == '"' && len(v) > 1 {
			ok := false
			if n, ok = schema.ParseDate(v[1 : len(v)-1]); !ok {
				return nil
			}
			err = nil
		}
		if err != nil {
			return nil
		}
		out.Value = &summapb.FieldValue_I64{I64: n}
	}
	return r.add(f, out)
}

func (r *reading) sparse(f *schema.Field, v []byte) error {
	if v[0] != '{' {
		return nil
	}
	out := &summapb.SparseVector{}
	good := true
	err := eachMember(v, func(name, v []byte) error {
		switch string(name) {
		case `"indices"`:
			return eachElement(v, false, func(item []byte) error {
				n, err := schema.ParseU64(item)
				good = good && err == nil && n <= math.MaxUint32
				out.Indices = append(out.Indices, uint32(n))
				return nil
			})
		case `"values"`:
			var ok bool
			out.Values, ok = readFloats(v)
			good = good && ok
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !good || len(out.Indices) != len(out.Values) {
		return nil
	}
	return r.add(f, &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: out}})
}

func readFloats(v []byte) ([]float32, bool) {
	if len(v) == 0 || v[0] != '[' {
		return nil, false
	}
	n := 1
	for _, c := range v {
		if c == ',' {
			n++
		}
	}
	out, good := make([]float32, 0, n), true
	err := eachElement(v, false, func(item []byte) error {
		x, err := strconv.ParseFloat(string(item), 32)
		good = good && err == nil
		out = append(out, float32(x))
		return nil
	})
	return slices.Clip(out), good && err == nil
}
