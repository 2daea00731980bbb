package schema

import (
	"strconv"
	"strings"
)

// SDL prints the schema in canonical form: defaults left out, one space after commas and colons, names quoted only where they have to be.
// ParseSDL reads it back to an equal value, except Generation, which the language does not carry. A schema without a name prints as _.
func (s *Schema) SDL() string {
	var b strings.Builder
	name := s.Name
	if name == "" {
		name = "_"
	}
	b.WriteString("index " + sdlName(name) + " {\n")
	if s.MaxL1PhraseTerms != 0 {
		b.WriteString("    max_l1_phrase_terms: " + strconv.Itoa(s.MaxL1PhraseTerms) + "\n")
	}
	if s.ReorderOnMerge != nil {
		b.WriteString("    reorder_on_merge: " + strconv.FormatBool(*s.ReorderOnMerge) + "\n")
	}
	if s.Dynamic {
		b.WriteString("    dynamic: true\n")
	}
	if len(s.DefaultFields) > 0 {
		names := make([]string, len(s.DefaultFields))
		for i, n := range s.DefaultFields {
			names[i] = sdlName(n)
		}
		b.WriteString("    default_fields: [" + strings.Join(names, ", ") + "]\n")
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		b.WriteString("    field " + sdlName(f.Name) + ": " + f.Declaration() + "\n")
	}
	for _, r := range s.Routers {
		b.WriteString("    query_router {\n")
		pattern := quote(r.Pattern)
		if !strings.Contains(r.Pattern, `"`) {
			pattern = `r"` + r.Pattern + `"`
		}
		b.WriteString("        pattern: " + pattern + "\n")
		b.WriteString("        substitution: " + quote(r.Substitution) + "\n")
		b.WriteString("        target_field: " + sdlName(r.TargetField) + "\n")
		b.WriteString("        mode: " + r.Mode + "\n    }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func sdlName(n string) string {
	if isWord(n) {
		return n
	}
	return quote(n)
}

// Declaration prints what stands behind the field's name in SDL: TYPE<PARAMS> [ATTRS].
func (f *Field) Declaration() string {
	var b strings.Builder
	b.WriteString(f.Type.String())
	switch f.Type {
	case Text:
		b.WriteString("<" + f.Tokenizer + ">")
	case DenseVector, BinaryVector:
		b.WriteString("<" + strconv.Itoa(f.Dim))
		if f.Element != "" {
			b.WriteString(", " + f.Element)
		}
		b.WriteString(">")
	case SparseVector:
		if f.Element != "" {
			b.WriteString("<" + f.Element + ">")
		}
	}
	var attrs []string
	if f.Indexed {
		attrs = append(attrs, "indexed"+bracket(f.indexOptions()))
	}
	switch {
	case f.Stored && f.Multi && !f.Chunked:
		attrs = append(attrs, "stored<multi>")
	case f.Stored:
		attrs = append(attrs, "stored")
	case f.Multi && !f.Chunked:
		attrs = append(attrs, "multi")
	}
	if f.Fast {
		if f.KeywordMax > 0 {
			attrs = append(attrs, "fast<keyword_max: "+strconv.Itoa(f.KeywordMax)+">")
		} else {
			attrs = append(attrs, "fast")
		}
	}
	if f.ContentHash {
		attrs = append(attrs, "content_hash")
	}
	if f.Primary {
		attrs = append(attrs, "primary")
	}
	if f.Reorder {
		attrs = append(attrs, "reorder")
	}
	if f.Inferred {
		attrs = append(attrs, "inferred")
	}
	b.WriteString(" [" + strings.Join(attrs, ", ") + "]")
	return b.String()
}

func bracket(items []string) string {
	if len(items) == 0 {
		return ""
	}
	return "<" + strings.Join(items, ", ") + ">"
}

func (f *Field) indexOptions() []string {
	var o []string
	if f.Chunked {
		o = append(o, "chunked")
	}
	if f.Type == Text && f.K1 != DefaultK1 {
		o = append(o, "k1: "+decimal(f.K1))
	}
	if f.Type == Text && f.B != DefaultB {
		o = append(o, "b: "+decimal(f.B))
	}
	if f.Positions != NoPositions && int(f.Positions) < len(positionNames) {
		o = append(o, positionNames[f.Positions])
	}
	if f.Metric != "" {
		o = append(o, "metric: "+f.Metric)
	}
	for _, opt := range f.Options {
		o = append(o, opt.String())
	}
	return o
}

// String prints the option as it stands in indexed<…>.
func (o Option) String() string {
	switch {
	case o.Value == "":
		return o.Name
	case strings.HasPrefix(o.Value, "<"):
		return o.Name + o.Value
	}
	return o.Name + ": " + o.Value
}

// decimal prints f without an exponent, so that it reads back to the same bits.
func decimal(f float32) string {
	return strconv.FormatFloat(float64(f+0), 'f', -1, 32) // −0 + 0 = +0, and −0 could not be read
}
