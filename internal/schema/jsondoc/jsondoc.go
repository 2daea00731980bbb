// Package jsondoc turns JSON documents into the typed documents of package schema.
//
// # Contract
//
// A document is one JSON object. One pass over its bytes checks the JSON (strictly: RFC 8259 and no repeated names, lone surrogates,
// invalid UTF-8 or numbers beyond float64), converts each member to its field's type, and copies the source without white space. What
// is wrong with a document is a *DocError with a stable code, the field's path and the byte position; it says nothing about other
// documents. The result depends on the document and the schema only.
//
// How members become values:
//
//   - The primary field holds a string of 1 to 512 bytes.
//   - null and an empty array are no value. An array is several values; a field with one value takes an array of one.
//   - Members of nested objects, also of objects in arrays, belong to fields named by the path with dots: {"a": {"b": 1}} and {"a.b": 1}
//     are the same. A json field takes the object whole.
//   - text: a string, or a number, which is kept as it is written. Fields with the tokenizer raw or raw_ci also take true and false.
//   - u64, i64: a number without a fraction (1.0 and 1e3 have none), in range. f64: a number, rounded to the nearest float64.
//   - date: a string (RFC 3339, or a calendar day) or a whole number of milliseconds since the epoch.
//   - bytes and binary_dense_vector: a string in base64 (standard alphabet, padding optional); a binary vector has exactly its bytes.
//   - json: any value, kept as compact JSON. An array given to a multi-valued json field is several values.
//   - dense_vector: an array of its dimension's length; several vectors are an array of arrays. Components have to be finite as float32.
//     What schema.Field.VectorFault says of a vector is refused, such as one of length 0 where similarity is the cosine.
//   - sparse_vector: {"indices": [...], "values": [...]}; several are an array of such objects. The pairs are sorted by index.
//
// In a dynamic schema (Schema.Dynamic) a member that no field takes becomes a new field; see Inference.
//
// A Parser is not safe for use at once: each goroutine has its own. Documents returned do not share memory with the input or the parser.
package jsondoc

import (
	"fmt"

	"github.com/weft-search/weft/internal/schema"
)

// Codes of DocError. They are part of the HTTP contract and do not change.
const (
	CodeInvalidJSON      = "invalid_json"
	CodeInvalidUTF8      = "invalid_utf8"     // also a lone surrogate
	CodeDuplicateMember  = "duplicate_member" // a name twice in one object
	CodeMissingID        = "missing_id"       // the primary field is absent or null
	CodeInvalidID        = "invalid_id"       // not a string, empty or too long
	CodeUnknownField     = "unknown_field"    // no such field, and the schema is not dynamic
	CodeTypeConflict     = "type_conflict"    // a value that the field's type does not take
	CodeNumberOutOfRange = "number_out_of_range"
	CodeValueTooLong     = "value_too_long"
	CodeTooManyValues    = "too_many_values"
	CodeTooManyFields    = "too_many_fields"
	CodeInvalidFieldName = "invalid_field_name"
	CodeTooDeep          = "too_deep"
	CodeDocumentTooLarge = "document_too_large"
)

// DocError says why one document was refused.
type DocError struct {
	Code     string // one of the Code constants
	Field    string // path of the member with dots, empty if it is not about one; at most 255 bytes and an ellipsis
	Reason   string // for people; holds no values of the document
	Position int    // byte offset into the document
}

func (e *DocError) Error() string {
	return fmt.Sprintf("%s at byte %d: %s", e.Code, e.Position, e.Reason)
}

// Limits bound one document. A zero field means its default.
type Limits struct {
	DocumentBytes  int // 16 MiB
	TextBytes      int // 8 MiB, one value of an analysed text field
	KeywordBytes   int // 32766, one value that is a term or a column entry as a whole
	IDBytes        int // 512
	Depth          int // 32 levels of objects and arrays, the document itself is the first
	Values         int // 65536 values of all fields together; a vector is one
	InferredFields int // 1000 fields in the schema that came from documents
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		v    *int
		deft int
	}{{&l.DocumentBytes, 16 << 20}, {&l.TextBytes, 8 << 20}, {&l.KeywordBytes, 32_766}, {&l.IDBytes, 512}, {&l.Depth, 32}, {&l.Values, 65_536}, {&l.InferredFields, 1_000}} {
		if *d.v <= 0 {
			*d.v = d.deft
		}
	}
	return l
}

// Parser turns documents of one schema into typed ones and keeps its scratch memory from one to the next.
type Parser struct {
	lim      Limits
	s        *schema.Schema
	key      int                 // id of the primary field, -1 if there is none
	names    map[string]int      // field name → id
	parents  map[string]struct{} // every proper dotted prefix of a field name
	inferred int                 // fields of the schema that came from documents

	scanner
	path   []byte  // path of the value being read
	values []entry // values found, in the order of the document
	fresh  fresh   // new fields of this document

	floats  []float32 // components of the vector being read
	indices []uint32
}

// NewParser returns a parser for documents of s. Without a primary field (see schema.WithKey) every document lacks its id.
func NewParser(s *schema.Schema, l Limits) *Parser {
	p := &Parser{lim: l.withDefaults()}
	p.SetSchema(s)
	return p
}

// Schema returns the schema that documents are read by.
func (p *Parser) Schema() *schema.Schema { return p.s }

// SetSchema makes later documents follow s.
func (p *Parser) SetSchema(s *schema.Schema) {
	p.s, p.key, p.inferred = s, s.PrimaryField(), 0
	p.names = make(map[string]int, len(s.Fields))
	p.parents = map[string]struct{}{}
	for i := range s.Fields {
		name := s.Fields[i].Name
		p.names[name] = i
		for k := range len(name) {
			if name[k] == '.' {
				p.parents[name[:k]] = struct{}{}
			}
		}
		if s.Fields[i].Inferred {
			p.inferred++
		}
	}
}

// Parse reads one document. The values of a new field carry the id that the field gets when Merge adds the inferences to the parser's
// schema; a caller whose schema has moved on in the meantime sets the new schema and parses again.
func (p *Parser) Parse(doc []byte) (*schema.Document, []Inference, *DocError) {
	p.scanner.reset(doc, p.lim.Depth)
	p.path = p.path[:0]
	clear(p.values)
	p.values = p.values[:0]
	p.fresh.reset()
	if len(doc) > p.lim.DocumentBytes {
		return nil, nil, &DocError{
			Code: CodeDocumentTooLarge, Position: p.lim.DocumentBytes,
			Reason: fmt.Sprintf("a document must not exceed %d bytes (got %d)", p.lim.DocumentBytes, len(doc)),
		}
	}
	d, inf, ok := p.document()
	if !ok {
		err := p.err
		p.in = nil
		return nil, nil, err
	}
	p.in = nil
	return d, inf, nil
}

func (p *Parser) document() (*schema.Document, []Inference, bool) {
	p.space()
	if p.peek() != '{' {
		if p.pos == len(p.in) {
			return nil, nil, p.fail(CodeInvalidJSON, p.pos, "a document is a JSON object, found no text")
		}
		return nil, nil, p.fail(CodeInvalidJSON, p.pos, "a document is a JSON object, found "+p.found())
	}
	if !p.members(0) {
		return nil, nil, false
	}
	p.space()
	if p.pos != len(p.in) {
		return nil, nil, p.fail(CodeInvalidJSON, p.pos, "expected the end of the document, found "+p.found())
	}
	return p.finish()
}
