package summa

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// ParseSchema reads what CreateIndex carries: SDL, or JSON as over HTTP where it begins with a brace. The schema has a primary field only
// if it says so.
func ParseSchema(src string) (*schema.Schema, error) {
	if src == "" {
		return nil, invalid("Schema is required")
	}
	if strings.HasPrefix(strings.TrimLeft(src, " \t\r\n"), "{") {
		s, err := schema.ParseJSON(src, text.Check)
		if err != nil {
			return nil, invalid("Invalid schema: %s", err)
		}
		return s, nil
	}
	s, err := schema.ParseSDL(src, text.Check)
	if err != nil {
		return nil, invalid("Invalid schema: Schema error: Failed to parse SDL: Schema error: %s", sdlError(src, err))
	}
	return s, nil
}

// ParseAlter reads what AlterVectorIndex is to make of a field. The caller finds the field, or refuses with UnknownVectorField.
func ParseAlter(req *summapb.AlterVectorIndexRequest) (schema.Field, error) {
	if req.FieldName == "" || req.FieldSchema == "" {
		return schema.Field{}, invalid("field_name and field_schema are required")
	}
	f, err := schema.ParseFieldType(req.FieldName, req.FieldSchema, text.Check)
	if err != nil {
		return schema.Field{}, invalid("Schema error: %s", sdlError(req.FieldSchema, err))
	}
	if f.Type != schema.DenseVector && f.Type != schema.BinaryVector || !f.Indexed {
		return schema.Field{}, invalid("field_schema must define a vector index")
	}
	return f, nil
}

// UnknownVectorField is the refusal to alter a field that is not there or holds no dense or binary vectors.
func UnknownVectorField() *Error { return invalid("unknown vector field") }

// plainFaults are the refusals that the reference gives without a place, because it finds them after parsing. All others are told with
// line and column.
var plainFaults = regexp.MustCompile(`^(` + strings.Join([]string{
	`Multiple index definitions found`,
	`Index '.*' has \d+ primary key fields`,
	`Primary key field '`,
	`BinaryDenseVector dimension must be a positive multiple of 8`,
	`field '[^']*': `,
	`float dense vectors do not support`,
	`binary dense vectors support only`,
	`vector index options require`,
	`target_vectors must be greater`,
	`'(target_vectors|tree_levels|routing|soar)' `,
	`ScaNN `,
	`tokenizer hint field '`,
	`query_router missing '`,
	`max_l1_phrase_terms must be a positive`,
	`(max_l1_phrase_terms|reorder_on_merge) may only be specified once`,
}, "|") + `)`)

// sdlError tells a fault in SDL as the reference does.
func sdlError(src string, err error) string {
	var p *schema.ParseError
	if !errors.As(err, &p) {
		return err.Error()
	}
	if msg := Cut(p.Msg, MaxErrorText); plainFaults.MatchString(msg) {
		return msg
	}
	line, col, msg := p.Line, p.Col, Cut(p.Msg, 2*maxQuoted)
	if rules, ok := expected(msg); ok {
		msg = "expected " + rules
	}
	if strings.HasPrefix(msg, "expected a field type (") {
		msg = "expected field_type"
		if n := typePrefix(src[min(p.Offset, len(src)):]); n > 0 {
			// The reference takes the type and finds that something else follows.
			col, msg = col+n, "expected "+itemRules+", field_def, sparse_vector_config, dense_vector_config, binary_dense_vector_config, tokenizer_spec, or attributes"
		}
	}
	number := strconv.Itoa(line)
	edge := strings.Repeat(" ", len(number)) + " |"
	quoted, under := quote(lineOf(src, line), col-1)
	return fmt.Sprintf("Parse error: %s--> %d:%d\n%s\n%s | %s\n%s %s^---\n%s\n%s = %s",
		strings.Repeat(" ", len(number)), line, col, edge, number, quoted, edge, strings.Repeat(" ", under), edge, edge[:len(number)], msg)
}

// maxQuoted bounds what an error quotes of what it is about, in bytes.
const maxQuoted = 200

// quote returns a line, of a long one what stands around one of its characters, and where in it that is, in characters.
func quote(line string, at int) (quoted string, under int) {
	if len(line) <= maxQuoted {
		return line, at
	}
	from := 0 // in bytes
	for range at {
		_, n := utf8.DecodeRuneInString(line[from:])
		from += n
	}
	start, cut := from, ""
	for start > 0 && (from-start < maxQuoted/2 || !utf8.RuneStart(line[start])) {
		start--
	}
	if start > 0 {
		cut = "…"
	}
	quoted = Cut(line[start:min(len(line), start+2*maxQuoted)], maxQuoted)
	return cut + quoted, utf8.RuneCountInString(cut) + utf8.RuneCountInString(line[start:from])
}

const itemRules = "max_l1_phrase_terms_def, reorder_on_merge_def, default_fields_def, query_router_def"

// expected names what the reference would expect where the parser says what it would: rules of Summa's grammar, by the names that its
// messages give them.
func expected(msg string) (rules string, ok bool) {
	for _, r := range [...]struct{ prefix, rules string }{
		{`expected "index"`, "index_def"},
		{"expected an index name", "identifier"},
		{"expected a field name", "identifier"},
		{`expected "field", `, itemRules + ", or field_def"},
		{`expected a field, an index option or "}"`, itemRules + ", or field_def"},
		{`expected "indexed", `, "attribute"},
		{"expected an index option", "index_config_param"},
		{"expected a query option", "query_config_param"},
	} {
		if strings.HasPrefix(msg, r.prefix) {
			return r.rules, true
		}
	}
	return "", false
}

// lineOf returns a line of the text, counted from 1.
func lineOf(src string, line int) string {
	for ; line > 1; line-- {
		_, rest, ok := strings.Cut(src, "\n")
		if !ok {
			return ""
		}
		src = rest
	}
	first, _, _ := strings.Cut(src, "\n")
	return strings.TrimSuffix(first, "\r")
}

// typePrefix returns the length of the longest type that a text begins with.
func typePrefix(s string) int {
	longest := 0
	for _, t := range []string{
		"text", "string", "str", "u64", "uint", "unsigned", "i64", "int", "integer", "f64", "float", "double", "bytes", "binary", "blob",
		"json", "sparse_vector", "dense_vector", "vector", "binary_dense_vector", "binary_vector",
	} {
		if len(t) > longest && strings.HasPrefix(s, t) {
			longest = len(t)
		}
	}
	return longest
}

// SDL prints a schema as GetIndexInfo gives it: the index is named _, limits are said with their defaults, and options of vectors are
// written out. Default fields and query routers, which Summa keeps elsewhere, are left out; what only weft has is added where a schema
// uses it. ParseSchema reads it back to a schema that prints alike.
func SDL(s *schema.Schema) string {
	var b strings.Builder
	most := s.MaxL1PhraseTerms
	if most == 0 {
		most = 64
	}
	fmt.Fprintf(&b, "index _ {\n    max_l1_phrase_terms: %d\n", most)
	if s.ReorderOnMerge != nil && *s.ReorderOnMerge {
		b.WriteString("    reorder_on_merge: true\n")
	}
	if s.Dynamic {
		b.WriteString("    dynamic: true\n")
	}
	for i := range s.Fields {
		f := canonical(s.Fields[i])
		// The name is quoted as SDL wants it, which only a schema knows how to do.
		b.WriteString("    " + fieldLine(&f) + "\n")
	}
	b.WriteString("}")
	return b.String()
}

// fieldLine prints `field NAME: TYPE [ATTRS]`.
func fieldLine(f *schema.Field) string {
	one := schema.Schema{Name: "_", Fields: []schema.Field{*f}}
	_, line, _ := strings.Cut(one.SDL(), "\n")
	return strings.TrimSpace(strings.TrimSuffix(line, "}\n"))
}
