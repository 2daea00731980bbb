// Package schema describes the fields of a collection: their types, how they are indexed, and the typed documents made of them.
//
// A schema is read from SDL (the Summa schema language) or JSON, or inferred from documents. Field ids are positions in
// Schema.Fields; fields are added, never removed or renumbered, so an id means the same field for the life of a collection.
//
// A *Schema is immutable once published and safe for concurrent readers. Changes go through methods that return a new value.
package schema

// Type is the type of a field's values.
type Type uint8

// The field types. Text, numbers, bytes, json and vectors are Summa's; Date is weft's (milliseconds since the epoch, UTC).
const (
	Text Type = iota + 1
	U64
	I64
	F64
	Date
	Bytes
	JSON
	DenseVector
	SparseVector
	BinaryVector
)

// PositionMode says what is kept about where a token stood.
type PositionMode uint8

// Position modes of an indexed text field, as in SDL indexed<…>.
const (
	NoPositions    PositionMode = iota
	Ordinals                    // ordinal: which value
	TokenPositions              // token_position: place within the value
	FullPositions               // positions: both
)

// Default BM25 parameters, those of Robertson et al., "Okapi at TREC-3" (1994), as Lucene sets them.
const (
	DefaultK1 = 1.2
	DefaultB  = 0.75
)

// Option is one `name: value` or bare `name` of an indexed<…> list that has no field of its own, kept as written.
type Option struct {
	Name  string
	Value string // empty for a bare word
}

// Field is one field of a schema.
type Field struct {
	Name      string
	Type      Type
	Tokenizer string // text fields: the tokenizer's name or lex(…) expression; never empty
	Indexed   bool   // text: has an inverted index
	Stored    bool   // returned in sources
	Multi     bool   // more than one value allowed
	Fast      bool   // has a column: ranges, sorts, exact filters. Bytes, json and vectors have none, whatever it says
	Primary   bool   // the document key
	Positions PositionMode
	Chunked   bool
	K1, B     float32 // BM25 parameters
	Dim       int     // vectors: dimensions (bits for binary)
	Element   string  // vectors: element type as written (f32, f16, int8, uint8, u8; u16, u32), may be empty
	Metric    string  // dense vectors: cosine, dot, l2, or empty for Summa's rule

	ContentHash bool
	Reorder     bool
	Inferred    bool // came from a document, not from a declaration

	// KeywordMax is the longest text value in bytes that goes into the column of an inferred text field; longer values are
	// searchable but cannot be sorted or filtered on exactly. 0 = no limit.
	KeywordMax int

	Options []Option // every other indexed option, in the order written
}

// Schema is the ordered list of fields of one collection.
type Schema struct {
	Name             string
	Fields           []Field // position = field id
	DefaultFields    []string
	MaxL1PhraseTerms int
	ReorderOnMerge   *bool
	Routers          []Router

	// Dynamic says that unknown members of a JSON document become new fields (HTTP indexes without a declared schema).
	Dynamic bool
	// Generation counts published versions of the schema, from 1.
	Generation uint64
}

// Router is a query_router block of the SDL, kept for clients that read the schema back.
type Router struct {
	Pattern, Substitution, TargetField, Mode string
}

// Lookup returns the id of the named field.
func (s *Schema) Lookup(name string) (id int, ok bool) {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i, true
		}
	}
	return -1, false
}

// PrimaryField returns the id of the primary field, or -1.
func (s *Schema) PrimaryField() int {
	for i := range s.Fields {
		if s.Fields[i].Primary {
			return i
		}
	}
	return -1
}

// Document is one document as the engine takes it: checked, typed, with its key.
type Document struct {
	Key    string
	Fields []Values // ascending by Field, at most one entry for each field, none of them empty
	Source []byte   // the JSON object to give back; nil when sources are not kept
}

// Values holds the values that one document has for one field.
type Values struct {
	Field int
	Text  []string // Text: the values in order
	// Nums holds U64, I64, F64 and Date values in the order-preserving encoding of EncodeI64, EncodeF64 and plain uint64.
	Nums  []uint64
	Bytes [][]byte // Bytes, JSON and vector values, little-endian elements
}
