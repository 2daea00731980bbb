package summa

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
)

// DocumentError says why one document was refused; it stands in a reply's errors and concerns no other document.
type DocumentError struct{ Text string }

// Error implements error.
func (e *DocumentError) Error() string { return e.Text }

func refuse(format string, args ...any) *DocumentError {
	return &DocumentError{Cut(fmt.Sprintf(format, args...), MaxErrorText)}
}

// Tags mark, in the source of a document, a value that is of another kind than its field: {"$text": "x"} in a field of bytes. A json
// field has $json around values that would be mistaken for one of these, or for none (null); $values around several of a field that
// takes one.
const (
	tagText   = "$text"
	tagBytes  = "$bytes"
	tagJSON   = "$json"
	tagValues = "$values"
)

// Documents turns documents of the wire into those of the engine, for one schema.
//
// Values take their field's type as the reference has them do:
//
//   - A number for u64, i64 or f64 is cast: integers wrap around, a fraction is cut off, what is out of range becomes the nearest; for
//     f64 the nearest float64, which has to be finite. A number for text is kept as its decimal text; for bytes, json and vectors it is
//     left out.
//   - Text for text; a JSON string, or array of strings, for text is its strings. Bytes for a vector of bits are one.
//   - Text, bytes and JSON for another of these three are kept as they are, and come back so, but nothing finds them. For numbers and
//     vectors they refuse the document.
//   - A vector has its field's length, finite components, and is for no other type. Equal indices of a sparse vector add up.
//   - A date (weft's own type) is a whole number of milliseconds, or text as over HTTP.
//
// A field may have several values whether its schema says multi or not. The source, which HTTP shows, is an object with one member for
// each field in order of first use.
//
// Without a primary field the key is left empty, for the caller to set.
type Documents struct {
	s   *schema.Schema
	ids map[string]int
	key int
	lim jsondoc.Limits
}

// NewDocuments returns the converter for a schema. The limits are those of documents over HTTP, so that either front can read what the
// other wrote; zero means the defaults of package jsondoc.
func NewDocuments(s *schema.Schema, l jsondoc.Limits) *Documents {
	c := &Documents{s: s, ids: make(map[string]int, len(s.Fields)), key: s.PrimaryField(), lim: l}
	for i := range s.Fields {
		c.ids[s.Fields[i].Name] = i
	}
	for _, d := range []struct {
		v   *int
		def int
	}{{&c.lim.DocumentBytes, 16 << 20}, {&c.lim.TextBytes, 8 << 20}, {&c.lim.KeywordBytes, 32_766}, {&c.lim.IDBytes, 65_535}, {&c.lim.Depth, 32}, {&c.lim.Values, 65_536}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return c
}

// kind is what a value is, whatever its field.
type kind uint8

const (
	isText kind = iota
	isNumber
	isBytes
	isJSON
	isDense
	isSparse
)

// value is one value of a document on its way.
type value struct {
	field  int
	kind   kind
	text   string // text, JSON without white space, or a number as it stands in the source
	num    uint64 // numbers, in the order-preserving encoding
	bytes  []byte // bytes and vectors of bits as given, other vectors as the engine takes them
	dense  []float32
	sparse *summapb.SparseVector
}

// Convert makes the engine's document of the fields of one. dropped are the names of fields that were given a number and take none.
// Errors are *DocumentError.
func (c *Documents) Convert(fields []*summapb.FieldEntry) (doc *schema.Document, dropped []string, err error) {
	if len(fields) > c.lim.Values {
		return nil, nil, c.tooMany()
	}
	size := 0
	for _, e := range fields {
		if size += entrySize(e); size > c.lim.DocumentBytes {
			return nil, nil, refuse("Document error: a document must not exceed %d bytes", c.lim.DocumentBytes)
		}
	}
	values := make([]value, 0, len(fields))
	for _, e := range fields {
		if e.GetValue() == nil {
			return nil, nil, refuse("Field '%s' has no value", e.GetName())
		}
		id, ok := c.ids[e.Name]
		if !ok {
			return nil, nil, refuse("Field '%s' not found in schema", e.Name)
		}
		n := len(values)
		if values, err = c.add(values, id, e.Value); err != nil {
			return nil, nil, err
		}
		if len(values) == n && isNumeric(e.Value) {
			dropped = append(dropped, e.Name)
		}
	}
	doc = &schema.Document{}
	if doc.Key, err = c.keyOf(values); err != nil {
		return nil, nil, err
	}
	return doc, dropped, c.fill(doc, values)
}

func (c *Documents) tooMany() error {
	return refuse("Document error: a document has at most %d values", c.lim.Values)
}

// Reread makes the engine's document of a stored source again. Unlike package jsondoc it takes what only Summa writes: several values of
// a field that is declared for one, and values of another kind than their field.
func (c *Documents) Reread(source []byte) (*schema.Document, error) {
	f := allFields(c.s)
	for i := range f.wanted {
		f.wanted[i], f.any = true, true
	}
	lists, err := f.Read(source, nil)
	if err != nil {
		return nil, err
	}
	var entries []*summapb.FieldEntry
	for i := range c.s.Fields { // in order, so that the same source makes the same document
		name := c.s.Fields[i].Name
		for _, v := range lists[name].GetValues() {
			entries = append(entries, &summapb.FieldEntry{Name: name, Value: v})
		}
	}
	doc, _, err := c.Convert(entries)
	if err != nil {
		return nil, err
	}
	doc.Source = bytes.Clone(source)
	return doc, nil
}

// entrySize is about what an entry takes at least in a source.
func entrySize(e *summapb.FieldEntry) int {
	v := e.GetValue()
	return len(v.GetText()) + len(v.GetBytesValue()) + len(v.GetJsonValue()) + len(v.GetBinaryDenseVector()) +
		2*len(v.GetDenseVector().GetValues()) + 4*len(v.GetSparseVector().GetIndices())
}

func isNumeric(v *summapb.FieldValue) bool {
	switch v.Value.(type) {
	case *summapb.FieldValue_U64, *summapb.FieldValue_I64, *summapb.FieldValue_F64:
		return true
	}
	return false
}

// keyOf returns the document's key, which its primary field has to have.
func (c *Documents) keyOf(values []value) (string, error) {
	if c.key < 0 {
		return "", nil
	}
	key, n := "", 0
	for i := range values {
		if values[i].field != c.key {
			continue
		}
		if n++; values[i].kind != isText {
			return "", refuse("Document error: Primary key must be text")
		}
		key = values[i].text
	}
	switch {
	case n == 0:
		return "", refuse("Document error: Missing primary key field")
	case n > 1:
		return "", refuse("Document error: primary key requires exactly one text value")
	case key == "":
		return "", refuse("Document error: Primary key must not be empty")
	case len(key) > c.lim.IDBytes:
		return "", refuse("Document error: primary key must contain 1..=%d bytes", c.lim.IDBytes)
	}
	return key, nil
}

// typeName is the reference's word for a type.
func typeName(t schema.Type) string {
	switch t {
	case schema.Text:
		return "Text"
	case schema.U64:
		return "U64"
	case schema.I64:
		return "I64"
	case schema.F64:
		return "F64"
	case schema.Date:
		return "Date"
	case schema.Bytes:
		return "Bytes"
	case schema.JSON:
		return "Json"
	case schema.DenseVector:
		return "DenseVector"
	case schema.SparseVector:
		return "SparseVector"
	case schema.BinaryVector:
		return "BinaryDenseVector"
	}
	return t.String()
}

// add converts one value of the wire, which can be several or none.
func (c *Documents) add(values []value, id int, in *summapb.FieldValue) ([]value, error) {
	f := &c.s.Fields[id]
	one := value{field: id}
	switch in := in.Value.(type) {
	case nil:
		return nil, refuse("Field '%s' has no value", f.Name)
	case *summapb.FieldValue_U64:
		return c.number(values, one, f, castU64(f.Type, in.U64), strconv.FormatUint(in.U64, 10))
	case *summapb.FieldValue_I64:
		return c.number(values, one, f, castI64(f.Type, in.I64), strconv.FormatInt(in.I64, 10))
	case *summapb.FieldValue_F64:
		if f.Type == schema.F64 && (math.IsNaN(in.F64) || math.IsInf(in.F64, 0)) {
			return nil, refuse("Field '%s': f64 value %s is not finite", f.Name, number(in.F64, 64))
		}
		return c.number(values, one, f, castF64(f.Type, in.F64), number(in.F64, 64))
	case *summapb.FieldValue_Text:
		if !utf8.ValidString(in.Text) {
			return nil, refuse("Field '%s': text is not UTF-8", f.Name)
		}
		if f.Type == schema.Date {
			ms, ok := schema.ParseDate(in.Text)
			if !ok {
				return nil, mismatch(f, "text")
			}
			return c.number(values, one, f, castI64(schema.Date, ms), "")
		}
		one.text = in.Text
		return c.plain(values, one, f)
	case *summapb.FieldValue_BytesValue:
		one.kind, one.bytes = isBytes, in.BytesValue
		if f.Type == schema.BinaryVector {
			return c.bits(values, one, f)
		}
		return c.plain(values, one, f)
	case *summapb.FieldValue_BinaryDenseVector:
		if f.Type != schema.BinaryVector {
			return nil, notAVector(f)
		}
		one.kind, one.bytes = isBytes, in.BinaryDenseVector
		return c.bits(values, one, f)
	case *summapb.FieldValue_JsonValue:
		return c.json(values, one, f, in.JsonValue)
	case *summapb.FieldValue_DenseVector:
		if f.Type != schema.DenseVector {
			return nil, notAVector(f)
		}
		return c.dense(values, one, f, in.DenseVector.GetValues())
	case *summapb.FieldValue_SparseVector:
		if f.Type != schema.SparseVector {
			return nil, notAVector(f)
		}
		return c.sparse(values, one, f, in.SparseVector)
	}
	return nil, refuse("Field '%s' has no value", f.Name)
}

func notAVector(f *schema.Field) error {
	return refuse("Field '%s': vector value does not match schema type %s", f.Name, typeName(f.Type))
}

// mismatch refuses a value that would be kept and never found.
func mismatch(f *schema.Field, got string) error {
	return refuse("Schema error: type mismatch for field '%s': schema expects a %s value, got %s", f.Name, f.Type, got)
}

// cast is a number in the type of a field: in the order-preserving encoding, and as it stands in a source.
type cast struct {
	num  uint64
	text string
}

func castU64(t schema.Type, v uint64) cast {
	switch t {
	case schema.U64:
		return cast{v, strconv.FormatUint(v, 10)}
	case schema.F64:
		return castF64(t, float64(v))
	}
	return castI64(t, int64(v))
}

func castI64(t schema.Type, v int64) cast {
	switch t {
	case schema.U64:
		return castU64(t, uint64(v))
	case schema.F64:
		return castF64(t, float64(v))
	}
	return cast{schema.EncodeI64(v), strconv.FormatInt(v, 10)}
}

func castF64(t schema.Type, v float64) cast {
	switch t {
	case schema.F64:
		return cast{schema.EncodeF64(v), strconv.FormatFloat(v, 'g', -1, 64)}
	case schema.U64:
		switch {
		case !(v > 0):
			return castU64(t, 0)
		case v >= 1<<64:
			return castU64(t, math.MaxUint64)
		}
		return castU64(t, uint64(v))
	}
	switch {
	case math.IsNaN(v):
		return castI64(t, 0)
	case v >= 1<<63:
		return castI64(t, math.MaxInt64)
	case v < -1<<63:
		return castI64(t, math.MinInt64)
	}
	return castI64(t, int64(v))
}

// number adds a number in its field's type; decimal is what a text field keeps of it.
func (c *Documents) number(values []value, v value, f *schema.Field, n cast, decimal string) ([]value, error) {
	switch f.Type {
	case schema.U64, schema.I64, schema.F64, schema.Date:
		v.kind, v.num, v.text = isNumber, n.num, n.text
		return append(values, v), nil
	case schema.Text:
		v.text = decimal
		return c.plain(values, v, f)
	}
	return values, nil
}

// plain adds text or bytes as they are.
func (c *Documents) plain(values []value, v value, f *schema.Field) ([]value, error) {
	switch f.Type {
	case schema.Text, schema.Bytes, schema.JSON:
	default:
		got := "text"
		if v.kind == isBytes {
			got = "bytes"
		}
		return nil, mismatch(f, got)
	}
	most := c.lim.TextBytes
	whole := f.Indexed && (f.Tokenizer == "raw" || f.Tokenizer == "raw_ci") || f.Fast && f.KeywordMax == 0
	if f.Type == schema.Text && v.kind == isText && whole && v.field != c.key {
		most = min(most, c.lim.KeywordBytes)
	}
	if n := len(v.text) + len(v.bytes); n > most {
		return nil, refuse("Field '%s': a value must not exceed %d bytes (got %d)", f.Name, most, n)
	}
	if len(values) >= c.lim.Values { // a JSON array is many
		return nil, c.tooMany()
	}
	return append(values, v), nil
}

func (c *Documents) bits(values []value, v value, f *schema.Field) ([]value, error) {
	if len(v.bytes) != f.Dim/8 {
		return nil, refuse("Field '%s': binary vector byte length %d does not match schema byte length %d", f.Name, len(v.bytes), f.Dim/8)
	}
	return append(values, v), nil
}

func (c *Documents) dense(values []value, v value, f *schema.Field, given []float32) ([]value, error) {
	if len(given) != f.Dim {
		return nil, refuse("Field '%s': dense vector dimension %d does not match schema dimension %d", f.Name, len(given), f.Dim)
	}
	if i := notFinite(given); i >= 0 {
		return nil, refuse("Field '%s': dense vector contains non-finite value %s at index %d", f.Name, number(float64(given[i]), 32), i)
	}
	v.kind, v.dense = isDense, given
	v.bytes = schema.AppendDense(make([]byte, 0, 4*len(given)), given)
	if fault := f.VectorFault(v.bytes); fault != "" {
		return nil, refuse("Field '%s': %s", f.Name, fault)
	}
	return append(values, v), nil
}

func notFinite(v []float32) int {
	return slices.IndexFunc(v, func(x float32) bool { return x-x != 0 })
}

func (c *Documents) sparse(values []value, v value, f *schema.Field, given *summapb.SparseVector) ([]value, error) {
	indices, weights := given.GetIndices(), given.GetValues()
	if len(indices) != len(weights) {
		return nil, refuse("Field '%s': sparse vector has %d indices but %d values", f.Name, len(indices), len(weights))
	}
	if i := notFinite(weights); i >= 0 {
		return nil, refuse("Field '%s': sparse vector contains non-finite value %s at index %d", f.Name, number(float64(weights[i]), 32), i)
	}
	v.kind, v.sparse = isSparse, given
	if len(indices) == 0 {
		return append(values, v), nil
	}
	order := make([]int, len(indices))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(indices[a], indices[b]) })
	sum := &summapb.SparseVector{}
	for _, i := range order {
		if last := len(sum.Indices) - 1; last >= 0 && sum.Indices[last] == indices[i] {
			sum.Values[last] += weights[i]
			continue
		}
		sum.Indices, sum.Values = append(sum.Indices, indices[i]), append(sum.Values, weights[i])
	}
	if len(sum.Indices) < len(indices) {
		v.sparse = sum
	}
	for k, i := range sum.Indices {
		v.bytes = schema.AppendSparse(v.bytes, i, sum.Values[k])
	}
	if fault := f.VectorFault(v.bytes); fault != "" {
		return nil, refuse("Field '%s': %s", f.Name, fault)
	}
	return append(values, v), nil
}

// json adds a JSON value: of a text field its strings.
func (c *Documents) json(values []value, v value, f *schema.Field, src string) ([]value, error) {
	switch f.Type {
	case schema.Text, schema.Bytes, schema.JSON:
	default:
		return nil, mismatch(f, "json")
	}
	if len(src) > c.lim.TextBytes {
		return nil, refuse("Field '%s': a value must not exceed %d bytes (got %d)", f.Name, c.lim.TextBytes, len(src))
	}
	// A tag and a list can stand around the value in the source, and the document itself.
	compact, err := compactJSON(src, c.lim.Depth-3)
	if err != nil {
		return nil, refuse("Invalid JSON in field '%s': %v", f.Name, err)
	}
	if f.Type != schema.Text {
		v.kind, v.text = isJSON, string(compact)
		return append(values, v), nil
	}
	if compact[0] != '"' && compact[0] != '[' {
		return nil, refuse("Field '%s': expected JSON string array for text field, got %s", f.Name, shorten(compact))
	}
	err = eachElement(compact, true, func(item []byte) error {
		if item[0] != '"' {
			return refuse("Field '%s': expected string in JSON array, got %s", f.Name, shorten(item))
		}
		text, err := jsontext.AppendUnquote(nil, item)
		if err != nil {
			return refuse("Invalid JSON in field '%s': %v", f.Name, err)
		}
		next := v
		next.text = string(text)
		values, err = c.plain(values, next, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// shorten cuts a value for a message.
func shorten(b []byte) string { return Cut(string(b[:min(len(b), 2*maxQuoted)]), maxQuoted) }

// fill writes the source and the typed fields.
func (c *Documents) fill(doc *schema.Document, values []value) error {
	order := make([]int, len(values)) // by first use of the field, then in order
	first := make(map[int]int, len(c.ids))
	for i := range values {
		order[i] = i
		if _, ok := first[values[i].field]; !ok {
			first[values[i].field] = i
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first[values[a].field], first[values[b].field]) })

	type part struct{ from, to int } // where a value stands in the source
	parts := make([]part, len(values))
	src := []byte{'{'}
	for k := 0; k < len(order); {
		id := values[order[k]].field
		f := &c.s.Fields[id]
		end := k
		for end < len(order) && values[order[end]].field == id {
			end++
		}
		if len(src) > 1 {
			src = append(src, ',')
		}
		src = appendText(src, f.Name)
		src = append(src, ':')
		// A list is one value of a json field; only where the field takes several is it several.
		several := end-k > 1 || f.Type == schema.JSON && f.Multi
		tagged := several && f.Type == schema.JSON && !f.Multi
		if tagged {
			src = append(src, `{"`+tagValues+`":`...)
		}
		if several {
			src = append(src, '[')
		}
		for i := k; i < end; i++ {
			if i > k {
				src = append(src, ',')
			}
			from := len(src)
			src = appendValue(src, f, &values[order[i]])
			parts[order[i]] = part{from, len(src)}
			if len(src) > c.lim.DocumentBytes {
				return refuse("Document error: a document must not exceed %d bytes", c.lim.DocumentBytes)
			}
		}
		if several {
			src = append(src, ']')
		}
		if tagged {
			src = append(src, '}')
		}
		k = end
	}
	src = append(src, '}')
	if len(src) > c.lim.DocumentBytes {
		return refuse("Document error: a document must not exceed %d bytes", c.lim.DocumentBytes)
	}
	doc.Source = slices.Clip(src)

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a].field, values[b].field) })
	for _, i := range order {
		v := &values[i]
		f := &c.s.Fields[v.field]
		if f.Type == schema.Text && v.kind != isText || v.kind == isSparse && v.bytes == nil {
			continue // kept in the source, and not found by anything
		}
		if n := len(doc.Fields); n == 0 || doc.Fields[n-1].Field != v.field {
			doc.Fields = append(doc.Fields, schema.Values{Field: v.field})
		}
		out := &doc.Fields[len(doc.Fields)-1]
		switch f.Type {
		case schema.Text:
			out.Text = append(out.Text, v.text)
		case schema.U64, schema.I64, schema.F64, schema.Date:
			out.Nums = append(out.Nums, v.num)
		case schema.JSON:
			out.Bytes = append(out.Bytes, doc.Source[parts[i].from:parts[i].to:parts[i].to])
		case schema.Bytes:
			if v.kind == isBytes {
				out.Bytes = append(out.Bytes, bytes.Clone(v.bytes))
			} else {
				out.Bytes = append(out.Bytes, []byte(v.text))
			}
		case schema.BinaryVector:
			out.Bytes = append(out.Bytes, bytes.Clone(v.bytes))
		default:
			out.Bytes = append(out.Bytes, v.bytes)
		}
	}
	return nil
}

func appendText(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // not UTF-8, which decoding and the schema keep out
		return append(dst, `""`...)
	}
	return out
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

func appendFloats(dst []byte, v []float32) []byte {
	dst = append(dst, '[')
	for i, x := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendFloat(dst, float64(x), 'g', -1, 32)
	}
	return append(dst, ']')
}

// appendValue writes a value as it stands in a source.
func appendValue(dst []byte, f *schema.Field, v *value) []byte {
	tag, own := "", schema.Text
	switch v.kind {
	case isText:
		tag = tagText
	case isBytes:
		tag, own = tagBytes, schema.Bytes
		if f.Type == schema.BinaryVector {
			own = schema.BinaryVector
		}
	case isJSON:
		tag, own = tagJSON, schema.JSON
	}
	tagged := tag != "" && f.Type != own || v.kind == isJSON && mistakable(v.text)
	if tagged {
		dst = append(dst, `{"`+tag+`":`...)
	}
	switch v.kind {
	case isText:
		dst = appendText(dst, v.text)
	case isNumber, isJSON:
		dst = append(dst, v.text...)
	case isBytes:
		dst = appendBase64(dst, v.bytes)
	case isDense:
		dst = appendFloats(dst, v.dense)
	case isSparse:
		dst = append(dst, `{"indices":[`...)
		for i, x := range v.sparse.GetIndices() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(x), 10)
		}
		dst = append(dst, `],"values":`...)
		dst = append(appendFloats(dst, v.sparse.GetValues()), '}')
	}
	if tagged {
		dst = append(dst, '}')
	}
	return dst
}

// mistakable says whether a JSON value would be read as something else: null is no value, and a tag is a tag.
func mistakable(compact string) bool {
	return compact == "null" || len(compact) > 2 && compact[:3] == `{"$`
}
