package schema

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a schema. They bound work on hostile input and are far above real use.
const (
	MaxSourceBytes    = 16 << 20 // text of a schema, SDL or JSON; one that is valid fits as it is printed
	MaxFields         = 10_000
	MaxFieldNameBytes = 255
	MaxDenseDims      = 65_536
	MaxBinaryBits     = 1 << 21 // 256 KiB, the largest binary query vector
	maxTokenizerBytes = 4_096
	maxListItems      = 4_096
)

// Bounds of the options of a vector graph: m, the neighbours that a vector keeps, and ef_construction, the candidates looked at to
// find them.
const (
	MinGraphM              = 4
	MaxGraphM              = 128
	MinGraphEfConstruction = 8
	MaxGraphEfConstruction = 4_096
	graphM                 = "m"
	graphEfConstruction    = "ef_construction"
)

// CheckFieldName says whether a name can be a field's: 1 to 255 bytes of UTF-8 without control characters.
func CheckFieldName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a field name must not be empty")
	case len(name) > MaxFieldNameBytes:
		return fmt.Errorf("a field name must not exceed %d bytes (got %d)", MaxFieldNameBytes, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("a field name must be valid UTF-8")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("a field name must not hold control characters")
		}
	}
	return nil
}

// Validate checks a schema that was built in code by the rules that parsing enforces, except that tokenizers are known. Errors are
// *FieldError.
func (s *Schema) Validate() error {
	if f := s.fault(); f != nil {
		return f.err(s)
	}
	return nil
}

// part names a piece of a declaration, so that a parser can point at it.
type part uint8

const (
	partName part = iota
	partType
	partParams  // between < and > after the type
	partAttrs   // the attribute list
	partPrimary // the attribute primary
	partOption  // option number fault.option
	partBody    // of the schema, not of a field
)

// fault is a broken rule and where it was broken.
type fault struct {
	field  int // -1 for the schema
	part   part
	option int
	msg    string
}

func (f *fault) err(s *Schema) error {
	e := &FieldError{Msg: f.msg}
	if f.field >= 0 && f.part != partPrimary {
		e.Field = s.Fields[f.field].Name
	}
	return e
}

// fault returns the first broken rule, or nil.
func (s *Schema) fault() *fault {
	whole := func(format string, args ...any) *fault {
		return &fault{field: -1, part: partBody, msg: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(s.Fields) == 0 && !s.Dynamic:
		return whole("expected at least one field")
	case len(s.Fields) > MaxFields:
		return whole("an index has at most %d fields (got %d)", MaxFields, len(s.Fields))
	case !utf8.ValidString(s.Name) || len(s.Name) > MaxFieldNameBytes:
		return whole("an index name is UTF-8 of at most %d bytes", MaxFieldNameBytes)
	case s.MaxL1PhraseTerms < 0 || uint64(s.MaxL1PhraseTerms) > 1<<32-1:
		return whole("max_l1_phrase_terms must be a positive 32-bit integer")
	}
	if n := s.printed(); n > MaxSourceBytes {
		return whole("the names, tokenizers and options of a schema must not exceed %d bytes as they are printed (they may take %d)", MaxSourceBytes, n)
	}
	ids := make(map[string]int, len(s.Fields))
	var primary []int
	for i := range s.Fields {
		f := &s.Fields[i]
		if flt := f.fault(); flt != nil {
			flt.field = i
			return flt
		}
		if j, ok := ids[f.Name]; ok {
			return &fault{field: i, part: partName, msg: fmt.Sprintf("field '%s' is declared twice, first as field number %d", f.Name, j+1)}
		}
		ids[f.Name] = i
		if f.Primary {
			primary = append(primary, i)
		}
	}
	if len(primary) > 1 {
		return &fault{field: primary[1], part: partPrimary, msg: fmt.Sprintf("Index '%s' has %d primary key fields, but at most one is allowed", s.Name, len(primary))}
	}
	for i := range s.Fields {
		by := hintField(s.Fields[i].Tokenizer)
		if by == "" {
			continue
		}
		j, ok := ids[by]
		switch {
		case !ok:
			return &fault{field: i, part: partParams, msg: fmt.Sprintf("tokenizer hint field '%s' does not exist", by)}
		case s.Fields[j].Type != Text:
			return &fault{field: i, part: partParams, msg: fmt.Sprintf("tokenizer hint field '%s' must be a text field, got %s", by, s.Fields[j].Type)}
		}
	}
	for _, r := range s.Routers {
		switch {
		case r.Pattern == "":
			return whole("query_router missing 'pattern'")
		case r.Substitution == "":
			return whole("query_router missing 'substitution'")
		case r.TargetField == "":
			return whole("query_router missing 'target_field'")
		case r.Mode != "additional" && r.Mode != "exclusive":
			return whole("query_router mode must be exclusive or additional")
		}
	}
	return nil
}

// printed bounds the bytes of the schema in either form: what a schema is kept as, and sent to other nodes as, must be read again.
func (s *Schema) printed() int {
	const (
		fixed   = 512 // of the schema itself, of a field and of a router, without their texts
		escaped = 6   // bytes of one that is escaped
	)
	n := fixed + escaped*len(s.Name)
	for i := range s.Fields {
		f := &s.Fields[i]
		n += fixed + 2*len(f.Name) + escaped*len(f.Tokenizer) // a name has no control characters
		for _, o := range f.Options {
			n += escaped * (len(o.Name) + len(o.Value) + len(`"": ,`))
		}
	}
	for _, name := range s.DefaultFields {
		n += escaped*len(name) + len(`"", `)
	}
	for _, r := range s.Routers {
		n += fixed + escaped*(len(r.Pattern)+len(r.Substitution)+len(r.TargetField))
	}
	return n
}

// fault checks one field alone; the caller fills in fault.field.
func (f *Field) fault() *fault {
	at := func(p part, format string, args ...any) *fault {
		return &fault{part: p, msg: fmt.Sprintf(format, args...)}
	}
	if err := CheckFieldName(f.Name); err != nil {
		return at(partName, "%s", err)
	}
	if f.Type < Text || f.Type > BinaryVector {
		return at(partType, "unknown field type")
	}
	switch {
	case f.Type == Text && f.Tokenizer == "":
		return at(partParams, "a text field has a tokenizer")
	case f.Type != Text && f.Tokenizer != "":
		return at(partParams, "a tokenizer requires a text field, got %s", f.Type)
	case len(f.Tokenizer) > maxTokenizerBytes:
		return at(partParams, "a tokenizer expression must not exceed %d bytes", maxTokenizerBytes)
	}
	switch f.Type {
	case DenseVector:
		if f.Dim < 1 || f.Dim > MaxDenseDims {
			return at(partParams, "dense_vector dimension must be between 1 and %d, got %d", MaxDenseDims, f.Dim)
		}
	case BinaryVector:
		if f.Dim < 8 || f.Dim%8 != 0 || f.Dim > MaxBinaryBits {
			if f.Dim > MaxBinaryBits {
				return at(partParams, "binary_dense_vector dimension must not exceed %d, got %d", MaxBinaryBits, f.Dim)
			}
			return at(partParams, "BinaryDenseVector dimension must be a positive multiple of 8, got %d", f.Dim)
		}
	default:
		if f.Dim != 0 {
			return at(partParams, "a dimension requires a dense or binary dense vector field, got %s", f.Type)
		}
	}
	if f.Element != "" && !knownElement(f.Type, f.Element) {
		return at(partParams, "unknown element type %q of %s", f.Element, f.Type)
	}
	if f.Primary {
		switch {
		case f.Type != Text:
			return at(partPrimary, "Primary key field '%s' must be of type text, got %s", f.Name, summaTypeName(f.Type))
		case f.Multi:
			return at(partPrimary, "Primary key field '%s' cannot be multi-valued", f.Name)
		case !f.Indexed || !f.Fast:
			return at(partPrimary, "primary implies fast and indexed")
		}
	}
	if !f.Indexed && (f.Positions != NoPositions || f.Chunked || f.Metric != "" || len(f.Options) > 0) {
		return at(partAttrs, "index options require the attribute indexed")
	}
	if !f.Indexed && !f.Stored && !f.Fast && !f.ContentHash && !f.Reorder {
		return at(partAttrs, "a field must be indexed, stored or fast")
	}
	if f.Type == Text {
		if !(f.K1 >= 0 && f.K1 <= 1e6) || !(f.B >= 0 && f.B <= 1) {
			return at(partAttrs, "`k1` must be between 0 and 1000000 and `b` between 0 and 1")
		}
	} else if f.K1 != 0 || f.B != 0 {
		return at(partAttrs, "BM25 `k1`/`b` require a text field, got %s", f.Type)
	}
	if f.Positions > FullPositions {
		return at(partAttrs, "unknown position mode")
	}
	if f.Chunked {
		switch {
		case f.Type != Text:
			return at(partAttrs, "`chunked` requires a text field, got %s", f.Type)
		case f.Positions == Ordinals || f.Positions == FullPositions:
			return at(partAttrs, "a chunked text field may only declare `token_position`; `%s` is not allowed", positionNames[f.Positions])
		case !f.Multi:
			return at(partAttrs, "a chunked text field is multi-valued")
		}
	}
	if f.Metric != "" {
		if f.Type != DenseVector {
			return at(partAttrs, "`metric` requires a dense_vector field, got %s", f.Type)
		}
		if f.Metric != "cosine" && f.Metric != "dot" && f.Metric != "l2" {
			return at(partAttrs, "metric must be cosine, dot or l2")
		}
	}
	if f.KeywordMax < 0 || f.KeywordMax > math.MaxInt32 || f.KeywordMax > 0 && (f.Type != Text || !f.Fast) {
		return at(partAttrs, "`keyword_max` is a positive number of bytes of a fast text field")
	}
	return f.optionFault()
}

func knownElement(t Type, e string) bool {
	switch t {
	case DenseVector:
		return e == "f32" || e == "f16" || e == "int8" || e == "uint8" || e == "u8"
	case SparseVector:
		return e == "u16" || e == "u32"
	}
	return false
}

// optionFault checks the options that have no field of their own: the rules are those of the reference's schema checks.
func (f *Field) optionFault() *fault {
	if len(f.Options) == 0 {
		return nil
	}
	at := func(name, format string, args ...any) *fault {
		for i := range f.Options {
			if f.Options[i].Name == name {
				return &fault{part: partOption, option: i, msg: fmt.Sprintf(format, args...)}
			}
		}
		return &fault{part: partAttrs, msg: fmt.Sprintf(format, args...)}
	}
	set := make(map[string]string, len(f.Options))
	kind, kindOption := "", ""
	for i, o := range f.Options {
		bad := func(format string, args ...any) *fault {
			return &fault{part: partOption, option: i, msg: fmt.Sprintf(format, args...)}
		}
		if _, ok := set[o.Name]; ok {
			return bad("option '%s' is given twice", o.Name)
		}
		set[o.Name] = o.Value
		k := ""
		if o.Name == "index" {
			k = o.Value
		} else if o.Value == "" && indexKinds[o.Name] {
			k = o.Name
		} else if _, ok := optionSyntax[o.Name]; !ok || o.Value == "" {
			return bad("unknown index option '%s'", o.Name)
		}
		if k != "" {
			if kind != "" {
				return bad("index type '%s' follows index type '%s'", k, kind)
			}
			kind, kindOption = k, o.Name
		}
	}
	for _, g := range []struct {
		name        string
		least, most uint64
	}{{graphM, MinGraphM, MaxGraphM}, {graphEfConstruction, MinGraphEfConstruction, MaxGraphEfConstruction}} {
		v, ok := set[g.name]
		if !ok {
			continue
		}
		if f.Type != DenseVector && f.Type != BinaryVector {
			return at(g.name, "'%s' requires a dense or binary dense vector field, not a %s", g.name, f.Type)
		}
		if kind == "flat" {
			return at(g.name, "'%s' is an option of a vector graph, and a flat index has none", g.name)
		}
		if n, err := strconv.ParseUint(v, 10, 64); err != nil || n < g.least || n > g.most {
			return at(g.name, "'%s' must be between %d and %d, got %s", g.name, g.least, g.most, v)
		}
	}
	_, levels := set["tree_levels"]
	target, hasTarget := set["target_vectors"]
	if f.Type != DenseVector && f.Type != BinaryVector {
		if kind == "scann" || levels || hasTarget {
			name := "target_vectors"
			if levels {
				name = "tree_levels"
			}
			if kind == "scann" {
				name = kindOption
			}
			return at(name, "vector index options require a dense or binary dense vector field, not a %s", f.Type)
		}
		return nil
	}
	if hasTarget && isZero(target) {
		return at("target_vectors", "target_vectors must be greater than zero")
	}
	what := "dense vector"
	if f.Type == BinaryVector {
		what = "binary dense vector"
		if kind == "tq" || kind == "ivf_tq" || kind == "ivf_pq" {
			return at(kindOption, "binary dense vectors support only 'flat', 'ivf', or 'scann' index types")
		}
		if hasTarget && kind == "flat" {
			return at("target_vectors", "'target_vectors' is only valid for binary IVF or ScaNN automatic topology")
		}
	} else {
		if kind == "ivf" {
			return at(kindOption, "float dense vectors do not support the binary-only 'ivf' index type; use 'ivf_tq' or 'scann'")
		}
		if hasTarget && (kind == "flat" || kind == "tq") {
			return at("target_vectors", "'target_vectors' is only valid for IVF-TQ or ScaNN automatic topology")
		}
	}
	if kind != "scann" {
		if levels {
			return at("tree_levels", "'tree_levels' is only valid for a ScaNN %s index", what)
		}
	} else if flt := scannFault(set, what, at); flt != nil {
		return flt
	}
	if soar, ok := set["soar"]; ok && soar != "off" {
		if f.Type == BinaryVector && kind != "scann" {
			return at("soar", "'soar' on a binary dense vector requires the ScaNN index")
		}
		if kind == "flat" || kind == "tq" || kind == "ivf_pq" {
			return at("soar", "'soar' requires the IVF-TQ index and is not implemented for %s", kind)
		}
	}
	return nil
}

func scannFault(set map[string]string, what string, at func(name, format string, args ...any) *fault) *fault {
	if _, ok := set["routing"]; ok {
		return at("routing", "'routing' is not configurable for ScaNN %s indexes; ScaNN owns its hierarchical routing", what)
	}
	if v, ok := set["tree_levels"]; ok {
		if n, err := strconv.ParseUint(v, 10, 8); err != nil || n < 1 || n > 3 {
			return at("tree_levels", "ScaNN tree_levels must be in 1..=3, got %s", v)
		}
	}
	probe := uint64(64)
	if v, ok := set["nprobe"]; ok {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n == 0 {
			return at("nprobe", "ScaNN nprobe must be positive")
		}
		probe = n
	}
	if v, ok := set["num_clusters"]; ok {
		n, err := strconv.ParseUint(v, 10, 64)
		switch {
		case err != nil || n > 30_000_000:
			return at("num_clusters", "ScaNN num_clusters cannot exceed 30000000, got %s", v)
		case n < 2:
			return at("num_clusters", "ScaNN num_clusters (terminal leaf count) must be at least 2")
		case probe > n:
			return at("num_clusters", "ScaNN nprobe (%d) cannot exceed explicit num_clusters (%d)", probe, n)
		}
	}
	return nil
}

func isZero(digits string) bool { return strings.Trim(digits, "0") == "" }

// hintField returns the field that a lex(by: …) tokenizer takes the language from, or "".
func hintField(tokenizer string) string {
	params, ok := strings.CutPrefix(tokenizer, "lex(")
	if !ok {
		return ""
	}
	for p := range strings.SplitSeq(strings.TrimSuffix(params, ")"), ", ") {
		if by, ok := strings.CutPrefix(p, "by: "); ok {
			return by
		}
	}
	return ""
}
