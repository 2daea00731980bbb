package jsondoc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
)

// entry is one value of a document. Which members count depends on the field's type.
type entry struct {
	field int32  // id; new fields count on from the schema's
	pos   int32  // where the value begins
	num   uint64 // numbers in order-preserving encoding; for json, start<<32 | end in the source
	text  string // text; for a new field what was written, whatever it turns out to be
	bytes []byte // bytes and vectors
}

// members reads an object whose members belong to fields below path[:base].
func (p *Parser) members(base int) bool {
	return p.object(func(name []byte, at int) bool {
		p.path = p.path[:base]
		if p.depth > 1 {
			p.path = append(p.path, '.')
		}
		p.path = append(p.path, name...)
		ok := false
		if len(p.path) > schema.MaxFieldNameBytes {
			// No field has such a name; looking it up again for every member below it would take quadratic time.
			if p.s.Dynamic {
				return p.refuse(CodeInvalidFieldName, at, "a field name must not exceed %d bytes (got %d)", schema.MaxFieldNameBytes, len(p.path))
			}
			return p.refuse(CodeUnknownField, at, "the index has no field %s", shorten(string(p.path)))
		}
		if id, known := p.names[string(p.path)]; !known {
			ok = p.unknown(at, false)
		} else if id == p.key {
			ok = p.id()
		} else {
			ok = p.field(id, &p.s.Fields[id], false)
		}
		p.path = p.path[:base]
		return ok
	})
}

// refuse fails with the path of the value being read.
func (p *Parser) refuse(code string, pos int, format string, args ...any) bool {
	return p.failField(code, pos, string(p.path), fmt.Sprintf(format, args...))
}

// takes says what a field takes, for messages.
func takes(f *schema.Field) string {
	switch f.Type {
	case schema.Text:
		if wholeTerms(f) {
			return "a string, a number, true or false"
		}
		return "a string or a number"
	case schema.U64:
		return "a whole number from 0 to 18446744073709551615"
	case schema.I64:
		return "a whole number of 64 bits"
	case schema.F64:
		return "a number"
	case schema.Date:
		return "a date (RFC 3339, or milliseconds since 1970)"
	case schema.Bytes:
		return "a string in base64"
	case schema.DenseVector:
		return fmt.Sprintf("an array of %d numbers", f.Dim)
	case schema.SparseVector:
		return `an object {"indices": [...], "values": [...]}`
	case schema.BinaryVector:
		return fmt.Sprintf("a string of %d bytes in base64", f.Dim/8)
	}
	return "any value"
}

func (p *Parser) mismatch(f *schema.Field, found string) bool {
	return p.refuse(CodeTypeConflict, p.pos, "field %s takes %s, found %s", shorten(f.Name), takes(f), found)
}

// wholeTerms says whether a text value is one term, unchanged or only in lower case.
func wholeTerms(f *schema.Field) bool { return f.Tokenizer == "raw" || f.Tokenizer == "raw_ci" }

func (p *Parser) add(e entry) bool {
	if len(p.values) == p.lim.Values {
		return p.refuse(CodeTooManyValues, int(e.pos), "a document has at most %d values", p.lim.Values)
	}
	p.values = append(p.values, e)
	return true
}

// id reads the primary field.
func (p *Parser) id() bool {
	at := p.pos
	name := shorten(p.s.Fields[p.key].Name)
	switch c := p.peek(); {
	case c == 'n':
		return p.literal()
	case c == '-' || c >= '0' && c <= '9':
		return p.refuse(CodeInvalidID, at, "%s is the document's key and has to be a string, found a number; write it in quotes", name)
	case c != '"':
		return p.refuse(CodeInvalidID, at, "%s is the document's key and has to be a string, found %s", name, p.found())
	}
	v, ok := p.str()
	if !ok {
		return false
	}
	if len(v) == 0 || len(v) > p.lim.IDBytes {
		return p.refuse(CodeInvalidID, at, "%s is the document's key and has 1 to %d bytes, found %d", name, p.lim.IDBytes, len(v))
	}
	return p.add(entry{field: int32(p.key), pos: int32(at), text: string(v)})
}

// field reads a value of a known field.
func (p *Parser) field(id int, f *schema.Field, inArray bool) bool {
	at := p.pos
	c := p.peek()
	if c == 'n' {
		return p.literal()
	}
	switch f.Type {
	case schema.JSON:
		if c == '[' && f.Multi && !inArray {
			return p.array(func() bool { return p.field(id, f, true) })
		}
		from := p.offset()
		if !p.skip() {
			return false
		}
		return p.add(entry{field: int32(id), pos: int32(at), num: uint64(from)<<32 | uint64(p.offset())})
	case schema.DenseVector:
		if c != '[' {
			return p.scalarMismatch(f)
		}
		return p.dense(id, f)
	case schema.SparseVector:
		if c == '{' {
			return p.sparse(id, f)
		}
	}
	switch c {
	case '{':
		if _, ok := p.parents[string(p.path)]; ok {
			return p.members(len(p.path))
		}
		return p.mismatch(f, "an object")
	case '[':
		if inArray {
			return p.mismatch(f, "an array in an array")
		}
		return p.array(func() bool { return p.field(id, f, true) })
	case '"':
		return p.fromString(id, f)
	case 't', 'f':
		if !p.literal() {
			return false
		}
		if f.Type != schema.Text || !wholeTerms(f) {
			p.pos = at
			return p.mismatch(f, "true or false")
		}
		return p.add(entry{field: int32(id), pos: int32(at), text: strconv.FormatBool(c == 't')})
	}
	number, ok := p.number()
	if !ok {
		return false
	}
	return p.fromNumber(id, f, number, at)
}

// scalarMismatch refuses a value that may not even be JSON.
func (p *Parser) scalarMismatch(f *schema.Field) bool {
	at := p.pos
	found := p.found()
	if !p.skip() {
		return false
	}
	p.pos = at
	return p.mismatch(f, found)
}

func (p *Parser) fromString(id int, f *schema.Field) bool {
	at := p.pos
	v, ok := p.str()
	if !ok {
		return false
	}
	e := entry{field: int32(id), pos: int32(at)}
	switch f.Type {
	case schema.Text:
		if !p.textFits(f, len(v), at) {
			return false
		}
		e.text = string(v)
	case schema.Date:
		ms, ok := schema.ParseDate(v)
		if !ok {
			p.pos = at
			return p.mismatch(f, "another string")
		}
		e.num = schema.EncodeI64(ms)
	case schema.Bytes, schema.BinaryVector:
		if e.bytes, ok = decodeBase64(v); !ok {
			p.pos = at
			return p.mismatch(f, "another string")
		}
		if len(e.bytes) > p.lim.TextBytes {
			return p.refuse(CodeValueTooLong, at, "a value of field %s must not exceed %d bytes (got %d)", shorten(f.Name), p.lim.TextBytes, len(e.bytes))
		}
		if f.Type == schema.BinaryVector && len(e.bytes) != f.Dim/8 {
			p.pos = at
			return p.mismatch(f, fmt.Sprintf("%d bytes", len(e.bytes)))
		}
	default:
		p.pos = at
		return p.mismatch(f, "a string")
	}
	return p.add(e)
}

func (p *Parser) textFits(f *schema.Field, n, at int) bool {
	limit := p.lim.TextBytes
	if f.Indexed && wholeTerms(f) || f.Fast && f.KeywordMax == 0 {
		limit = min(limit, p.lim.KeywordBytes)
	}
	if n > limit {
		return p.refuse(CodeValueTooLong, at, "a value of field %s must not exceed %d bytes (got %d)", shorten(f.Name), limit, n)
	}
	return true
}

func decodeBase64(v []byte) ([]byte, bool) {
	enc := base64.RawStdEncoding
	if len(v)%4 == 0 {
		enc = base64.StdEncoding
	}
	if slices.Contains(v, '\n') || slices.Contains(v, '\r') { // the decoder would pass over them
		return nil, false
	}
	out, err := enc.Strict().DecodeString(string(v))
	return out, err == nil
}

func (p *Parser) fromNumber(id int, f *schema.Field, number []byte, at int) bool {
	e := entry{field: int32(id), pos: int32(at)}
	var err error
	switch f.Type {
	case schema.Text:
		if !p.finite(number) || !p.textFits(f, len(number), at) {
			return false
		}
		e.text = string(number)
	case schema.U64:
		e.num, err = schema.ParseU64(number)
	case schema.I64, schema.Date:
		var v int64
		v, err = schema.ParseI64(number)
		e.num = schema.EncodeI64(v)
	case schema.F64:
		var v float64
		v, err = schema.ParseF64(number)
		e.num = schema.EncodeF64(v)
	default:
		p.pos = at
		return p.mismatch(f, "a number")
	}
	switch {
	case errors.Is(err, schema.ErrFraction):
		p.pos = at
		if f.Inferred {
			return p.mismatch(f, "a number with a fraction; the type was inferred from an earlier document, declare the field as f64 in a new index to keep fractions")
		}
		return p.mismatch(f, "a number with a fraction")
	case err != nil:
		return p.refuse(CodeNumberOutOfRange, at, "field %s takes %s, found a number out of its range", shorten(f.Name), takes(f))
	}
	return p.add(e)
}

// dense reads one vector or an array of vectors.
func (p *Parser) dense(id int, f *schema.Field) bool {
	at := p.pos
	vectors := 0
	p.floats = p.floats[:0]
	ok := p.array(func() bool {
		if p.peek() == '[' && len(p.floats) == 0 {
			vectors++
			inner := p.pos
			p.floats = p.floats[:0]
			if !p.array(func() bool { return p.component(f) }) || !p.addDense(id, f, inner) {
				return false
			}
			p.floats = p.floats[:0]
			return true
		}
		if vectors > 0 {
			return p.scalarMismatch(f)
		}
		return p.component(f)
	})
	if !ok || vectors > 0 || len(p.floats) == 0 {
		return ok
	}
	return p.addDense(id, f, at)
}

func (p *Parser) addDense(id int, f *schema.Field, at int) bool {
	if len(p.floats) != f.Dim {
		p.pos = at
		return p.mismatch(f, fmt.Sprintf("an array of %d", len(p.floats)))
	}
	return p.addVector(id, f, at, schema.AppendDense(make([]byte, 0, 4*f.Dim), p.floats))
}

// component reads one number of a vector into floats.
func (p *Parser) component(f *schema.Field) bool {
	at := p.pos
	if c := p.peek(); c != '-' && (c < '0' || c > '9') {
		return p.scalarMismatch(f)
	}
	number, ok := p.number()
	if !ok {
		return false
	}
	v, err := strconv.ParseFloat(string(number), 32)
	if err != nil || math.IsInf(v, 0) {
		return p.refuse(CodeNumberOutOfRange, at, "a component of a vector has to be finite as a 32-bit float")
	}
	if f.Type == schema.DenseVector && len(p.floats) == f.Dim {
		return p.refuse(CodeTypeConflict, at, "field %s takes %s, found more", shorten(f.Name), takes(f))
	}
	p.floats = append(p.floats, float32(v))
	return true
}

// sparse reads one sparse vector.
func (p *Parser) sparse(id int, f *schema.Field) bool {
	at := p.pos
	top := uint64(f.MaxSparseIndex())
	p.floats, p.indices = p.floats[:0], p.indices[:0]
	ok := p.object(func(name []byte, nameAt int) bool {
		if p.peek() != '[' {
			return p.scalarMismatch(f)
		}
		switch string(name) {
		case "indices":
			return p.array(func() bool {
				at := p.pos
				if c := p.peek(); c != '-' && (c < '0' || c > '9') {
					return p.scalarMismatch(f)
				}
				number, ok := p.number()
				if !ok {
					return false
				}
				i, err := schema.ParseU64(number)
				if err != nil || i > top {
					return p.refuse(CodeNumberOutOfRange, at, "an index of field %s is a whole number from 0 to %d", shorten(f.Name), top)
				}
				p.indices = append(p.indices, uint32(i))
				return true
			})
		case "values":
			return p.array(func() bool { return p.component(f) })
		}
		return p.refuse(CodeTypeConflict, nameAt, "field %s takes %s, found member %s", shorten(f.Name), takes(f), shorten(string(name)))
	})
	switch {
	case !ok:
		return false
	case len(p.indices) != len(p.floats):
		return p.refuse(CodeTypeConflict, at, "field %s has as many values as indices, found %d and %d", shorten(f.Name), len(p.floats), len(p.indices))
	case len(p.indices) == 0:
		return true
	}
	order := make([]int, len(p.indices))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(int64(p.indices[a]) - int64(p.indices[b])) })
	out := make([]byte, 0, 8*len(order))
	for k, i := range order {
		if k > 0 && p.indices[order[k-1]] == p.indices[i] {
			return p.refuse(CodeTypeConflict, at, "field %s has index %d twice", shorten(f.Name), p.indices[i])
		}
		out = schema.AppendSparse(out, p.indices[i], p.floats[i])
	}
	return p.addVector(id, f, at, out)
}

// addVector adds a vector of the right shape if its numbers can be indexed.
func (p *Parser) addVector(id int, f *schema.Field, at int, b []byte) bool {
	if reason := f.VectorFault(b); reason != "" {
		return p.refuse(CodeNumberOutOfRange, at, "field %s: %s", shorten(f.Name), reason)
	}
	return p.add(entry{field: int32(id), pos: int32(at), bytes: b})
}

// finish makes the document of the values found.
func (p *Parser) finish() (*schema.Document, []Inference, bool) {
	inferred := p.infer()
	if !slices.IsSortedFunc(p.values, byField) {
		slices.SortStableFunc(p.values, byField)
	}
	field := func(id int) *schema.Field {
		if id < len(p.s.Fields) {
			return &p.s.Fields[id]
		}
		return &inferred[id-len(p.s.Fields)].Field
	}
	d := &schema.Document{}
	groups, texts, nums, blobs := 0, 0, 0, 0
	for i, e := range p.values {
		again := i > 0 && p.values[i-1].field == e.field
		if !again {
			groups++
		}
		f := field(int(e.field))
		if again && !f.Multi {
			if int(e.field) == p.key {
				return nil, nil, p.failField(CodeInvalidID, int(e.pos), f.Name, "a document has one key")
			}
			return nil, nil, p.failField(CodeTypeConflict, int(e.pos), f.Name,
				fmt.Sprintf("field %s takes one value, found more; declare it as multi-valued to keep several", shorten(f.Name)))
		}
		switch columnOf(f.Type) {
		case inText:
			texts++
		case inNums:
			nums++
		default:
			blobs++
		}
		if int(e.field) == p.key {
			d.Key = e.text
		}
	}
	if p.key < 0 {
		return nil, nil, p.fail(CodeMissingID, 0, "the schema of the index has no primary field")
	}
	if d.Key == "" {
		name := p.s.Fields[p.key].Name
		return nil, nil, p.failField(CodeMissingID, 0, name, fmt.Sprintf("the document has no %s, which is its key", shorten(name)))
	}
	d.Source = p.source()
	// One allocation for all values of a kind; each field gets its part, with no room to grow into the next.
	d.Fields = make([]schema.Values, 0, groups)
	text, num, blob := make([]string, 0, texts), make([]uint64, 0, nums), make([][]byte, 0, blobs)
	for i := 0; i < len(p.values); {
		id := p.values[i].field
		f := field(int(id))
		v := schema.Values{Field: int(id)}
		t0, n0, b0 := len(text), len(num), len(blob)
		for ; i < len(p.values) && p.values[i].field == id; i++ {
			e := &p.values[i]
			switch columnOf(f.Type) {
			case inText:
				text = append(text, e.text)
			case inNums:
				num = append(num, e.num)
			default:
				if f.Type == schema.JSON {
					from, to := int(e.num>>32), int(uint32(e.num))
					e.bytes = d.Source[from:to:to]
				}
				blob = append(blob, e.bytes)
			}
		}
		switch columnOf(f.Type) {
		case inText:
			v.Text = text[t0:len(text):len(text)]
		case inNums:
			v.Nums = num[n0:len(num):len(num)]
		default:
			v.Bytes = blob[b0:len(blob):len(blob)]
		}
		d.Fields = append(d.Fields, v)
	}
	return d, inferred, true
}

func byField(a, b entry) int { return int(a.field) - int(b.field) }

type column uint8

const (
	inText column = iota
	inNums
	inBytes
)

func columnOf(t schema.Type) column {
	switch t {
	case schema.Text:
		return inText
	case schema.U64, schema.I64, schema.F64, schema.Date:
		return inNums
	}
	return inBytes
}
