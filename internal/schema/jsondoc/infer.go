package jsondoc

import (
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
)

// Inference is a field that a document would add to a dynamic schema.
//
//	strings               text, tokenizer standard, token positions; values of at most 256 bytes also in a column (facets, sorts, exact filters)
//	RFC 3339 strings      date
//	whole numbers         i64; beyond its range f64
//	other numbers         f64 (a number written with a point or an exponent is one of these: 1.0)
//	true, false           text, tokenizer raw: a keyword
//
// Every inferred field takes several values, whether its first document had an array or not, so that what is accepted does not depend on
// which document came first. Within one document whole and other numbers together make f64, dates and other strings together text; other
// mixtures are a type conflict. Afterwards the type stands: a string for a number is a type conflict of that document.
// Vectors, bytes and json are never guessed: declare them.
type Inference struct {
	Field schema.Field
	From  string // what the document had: string, date, integer, number or boolean
}

// String prints the field and its reason, as in `price: f64 (from number)`.
func (i Inference) String() string {
	return fmt.Sprintf("%s: %s (from %s)", i.Field.Name, i.Field.Type, i.From)
}

// KeywordMax is the longest value in bytes of an inferred text field that goes into its column.
const KeywordMax = 256

// Merge adds inferred fields to a schema. It returns s itself if it has them all; a field that s has in another form is a
// *schema.ConflictError: the document has to be parsed again by s.
func Merge(s *schema.Schema, inferred []Inference) (*schema.Schema, error) {
	if len(inferred) == 0 {
		return s, nil
	}
	fields := make([]schema.Field, len(inferred))
	for i := range inferred {
		fields[i] = inferred[i].Field
	}
	return s.AddFields(fields)
}

// kinds is a set of what the values of a new field are.
type kinds uint8

const (
	isInteger kinds = 1 << iota
	isNumber
	isBoolean
	isDate
	isString
)

// agree says whether values of these kinds can be one field.
func (k kinds) agree() bool {
	return k&^(isInteger|isNumber) == 0 || k == isBoolean || k&^(isDate|isString) == 0
}

func (k kinds) from() string {
	switch {
	case k&isString != 0:
		return "string"
	case k&isDate != 0:
		return "date"
	case k&isBoolean != 0:
		return "boolean"
	case k&isNumber != 0:
		return "number"
	}
	return "integer"
}

// field makes the field that values of these kinds ask for.
func (k kinds) field(name string) schema.Field {
	f := schema.Field{Name: name, Indexed: true, Stored: true, Multi: true, Fast: true, Inferred: true}
	switch {
	case k&isString != 0:
		f.Type, f.Tokenizer, f.Positions, f.KeywordMax = schema.Text, "standard", schema.TokenPositions, KeywordMax
	case k&isDate != 0:
		f.Type = schema.Date
	case k&isBoolean != 0:
		f.Type, f.Tokenizer = schema.Text, "raw"
	case k&isNumber != 0:
		f.Type = schema.F64
	default:
		f.Type = schema.I64
	}
	if f.Type == schema.Text {
		f.K1, f.B = schema.DefaultK1, schema.DefaultB
	}
	return f
}

// fresh holds the new fields of one document.
type fresh struct {
	names   []string // in the order in which they appeared
	kinds   []kinds
	index   map[string]int      // name → place in names
	parents map[string]struct{} // proper dotted prefixes of names
}

func (f *fresh) reset() {
	if len(f.names) > 0 {
		f.names, f.kinds = f.names[:0], f.kinds[:0]
		clear(f.index)
		clear(f.parents)
	}
}

// unknown reads a value at a path that is no field of the schema.
func (p *Parser) unknown(at int, inArray bool) bool {
	c := p.peek()
	_, parent := p.parents[string(p.path)]
	if !p.s.Dynamic && (!parent || c != '{' && c != '[' && c != 'n') {
		return p.refuse(CodeUnknownField, at, "the index has no field %s", shorten(string(p.path)))
	}
	switch c {
	case '{':
		return p.members(len(p.path))
	case '[':
		if inArray {
			return p.refuse(CodeTypeConflict, p.pos, "an array in an array is no value of a field; declare %s as json or as a vector", shorten(string(p.path)))
		}
		return p.array(func() bool { return p.unknown(p.pos, true) })
	}
	return p.guess()
}

// guess reads a scalar of a new field.
func (p *Parser) guess() bool {
	at := p.pos
	e := entry{pos: int32(at)}
	var kind kinds
	switch c := p.peek(); c {
	case 'n':
		return p.literal()
	case 't', 'f':
		if !p.literal() {
			return false
		}
		kind, e.text = isBoolean, strconv.FormatBool(c == 't')
	case '"':
		v, ok := p.str()
		if !ok {
			return false
		}
		if len(v) > p.lim.TextBytes {
			return p.refuse(CodeValueTooLong, at, "a value of field %s must not exceed %d bytes (got %d)", shorten(string(p.path)), p.lim.TextBytes, len(v))
		}
		kind, e.text = isString, string(v)
		if _, ok := schema.ParseTime(v); ok {
			kind = isDate
		}
	default:
		number, ok := p.number()
		if !ok || !p.finite(number) {
			return false
		}
		kind, e.text = isNumber, string(number)
		if wholeAsWritten(number) {
			if _, err := schema.ParseI64(number); err == nil {
				kind = isInteger
			}
		}
	}
	i, ok := p.fresh.index[string(p.path)]
	if !ok {
		if i, ok = p.newField(at); !ok {
			return false
		}
	}
	if all := p.fresh.kinds[i] | kind; all.agree() {
		p.fresh.kinds[i] = all
	} else {
		return p.refuse(CodeTypeConflict, at, "the new field %s has values of different types: %s after %s", shorten(string(p.path)), kind.from(), p.fresh.kinds[i].from())
	}
	e.field = int32(len(p.s.Fields) + i)
	return p.add(e)
}

func wholeAsWritten(number []byte) bool {
	for _, c := range number {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// newField enters the path as a new field.
func (p *Parser) newField(at int) (int, bool) {
	f := &p.fresh
	if err := schema.CheckFieldName(string(p.path)); err != nil {
		return 0, p.refuse(CodeInvalidFieldName, at, "%s", err)
	}
	if p.inferred+len(f.names) >= p.lim.InferredFields {
		return 0, p.refuse(CodeTooManyFields, at, "the new field %s would exceed the %d fields that an index takes from documents; declare it", shorten(string(p.path)), p.lim.InferredFields)
	}
	if len(p.s.Fields)+len(f.names) >= schema.MaxFields {
		return 0, p.refuse(CodeTooManyFields, at, "the new field %s would exceed the %d fields of an index", shorten(string(p.path)), schema.MaxFields)
	}
	if f.index == nil {
		f.index, f.parents = map[string]int{}, map[string]struct{}{}
	}
	// A name is either a field or a parent of fields, else one document's {"a": 1} and another's {"a": {"b": 1}} would both stand.
	_, parent := p.parents[string(p.path)]
	if _, freshParent := f.parents[string(p.path)]; parent || freshParent {
		return 0, p.refuse(CodeTypeConflict, at, "%s holds objects in this index and takes no other value", shorten(string(p.path)))
	}
	for k, c := range p.path {
		if c != '.' {
			continue
		}
		_, known := p.names[string(p.path[:k])]
		if _, isNew := f.index[string(p.path[:k])]; known || isNew {
			return 0, p.refuse(CodeTypeConflict, at, "%s is a field of this index and holds no objects", shorten(string(p.path[:k])))
		}
	}
	name := string(p.path)
	for k := range len(name) {
		if name[k] == '.' {
			f.parents[name[:k]] = struct{}{}
		}
	}
	f.index[name] = len(f.names)
	f.names = append(f.names, name)
	f.kinds = append(f.kinds, 0)
	return len(f.names) - 1, true
}

// infer decides the types of the new fields and converts their values.
func (p *Parser) infer() []Inference {
	if len(p.fresh.names) == 0 {
		return nil
	}
	out := make([]Inference, len(p.fresh.names))
	for i, name := range p.fresh.names {
		k := p.fresh.kinds[i]
		out[i] = Inference{Field: k.field(name), From: k.from()}
	}
	first := int32(len(p.s.Fields))
	for i := range p.values {
		e := &p.values[i]
		if e.field < first {
			continue
		}
		switch t := out[e.field-first].Field.Type; t {
		case schema.I64, schema.F64, schema.Date:
			// The text was checked when its kind was found, so it converts.
			if v, err := schema.EncodeText(t, e.text); err == nil {
				e.num = v
			}
		}
	}
	return out
}
