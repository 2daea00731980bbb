package schema

import (
	"fmt"
	"slices"
)

// KeyField is the field that is the document key where a schema declares none.
func KeyField() Field {
	return Field{Name: "id", Type: Text, Tokenizer: "raw", Indexed: true, Stored: true, Fast: true, Primary: true, K1: DefaultK1, B: DefaultB}
}

// NewDynamic returns the schema of an index that takes every field from its documents: it has the key field and nothing else.
func NewDynamic(name string) *Schema {
	return &Schema{Name: name, Fields: []Field{KeyField()}, Dynamic: true, Generation: 1}
}

// WithKey returns a schema with a primary field: s itself if it has one; else a copy in which a declared text field id has become
// primary; else a copy with KeyField as its first field. It is an error if id is declared as something that cannot be a key. To be
// called before the schema is published, since it moves field ids.
func (s *Schema) WithKey() (*Schema, error) {
	if s.PrimaryField() >= 0 {
		return s, nil
	}
	c := *s
	if id, ok := s.Lookup("id"); ok {
		c.Fields = slices.Clone(s.Fields)
		f := &c.Fields[id]
		if f.Type != Text || f.Multi {
			return nil, &FieldError{Field: "id", Msg: fmt.Sprintf("it would be the document key and has to be text with one value, got %s; declare another field primary", f.Declaration())}
		}
		f.Primary, f.Indexed, f.Fast = true, true, true
		return &c, nil
	}
	if len(s.Fields) >= MaxFields {
		return nil, &FieldError{Msg: fmt.Sprintf("an index has at most %d fields with its key", MaxFields)}
	}
	c.Fields = append([]Field{KeyField()}, s.Fields...)
	return &c, nil
}

// Equal says whether two declarations are the same. Whether a field was inferred does not matter.
func (f *Field) Equal(g *Field) bool {
	return f.comparable() == g.comparable() && slices.Equal(f.Options, g.Options)
}

// comparableField is what makes two declarations the same, apart from the options.
type comparableField struct {
	Name, Tokenizer, Element, Metric                                     string
	Type                                                                 Type
	Indexed, Stored, Multi, Fast, Primary, Chunked, ContentHash, Reorder bool
	Positions                                                            PositionMode
	K1, B                                                                float32
	Dim, KeywordMax                                                      int
}

func (f *Field) comparable() comparableField {
	return comparableField{
		Name: f.Name, Tokenizer: f.Tokenizer, Element: f.Element, Metric: f.Metric, Type: f.Type,
		Indexed: f.Indexed, Stored: f.Stored, Multi: f.Multi, Fast: f.Fast, Primary: f.Primary, Chunked: f.Chunked,
		ContentHash: f.ContentHash, Reorder: f.Reorder, Positions: f.Positions,
		K1: f.K1, B: f.B, Dim: f.Dim, KeywordMax: f.KeywordMax,
	}
}

// AddFields returns the schema with the given fields added at its end and the next generation. A field that is there already, declared
// alike, is skipped; if nothing is left, s itself is returned. Another declaration of a known field and a second primary field are a
// *ConflictError, a bad field a *FieldError; then nothing is added.
func (s *Schema) AddFields(fields []Field) (*Schema, error) {
	added, err := s.missing(fields)
	if err != nil || len(added) == 0 {
		return s, err
	}
	c := *s
	c.Fields = append(slices.Clip(slices.Clone(s.Fields)), added...)
	c.Generation++
	if err := c.Validate(); err != nil {
		return s, err
	}
	return &c, nil
}

// missing returns those of fields that s does not have, checked against those that it has.
func (s *Schema) missing(fields []Field) ([]Field, error) {
	ids := make(map[string]*Field, len(s.Fields)+len(fields))
	for i := range s.Fields {
		ids[s.Fields[i].Name] = &s.Fields[i]
	}
	var added []Field
	for i := range fields {
		f := &fields[i]
		if have, ok := ids[f.Name]; ok {
			if !have.Equal(f) {
				return nil, &ConflictError{Field: f.Name, Have: have.Declaration(), Want: f.Declaration()}
			}
			continue
		}
		if f.Primary && s.PrimaryField() >= 0 {
			return nil, &ConflictError{Field: f.Name, Msg: fmt.Sprintf("the document key of the index is %q and cannot be changed", s.Fields[s.PrimaryField()].Name)}
		}
		ids[f.Name] = f
		added = append(added, *f)
	}
	return added, nil
}

// Change is what declaring a schema again would do to an index.
type Change struct {
	Added   []Field  // declared now, not in the index
	Kept    []string // in the index, not declared now; fields are never removed
	Options bool     // default fields, routers or other options of the index differ
}

// Empty says whether the declaration changes nothing.
func (c *Change) Empty() bool { return len(c.Added) == 0 && !c.Options }

// Diff compares a declaration with the schema of an index. Conflicts are reported as by AddFields.
func (s *Schema) Diff(want *Schema) (*Change, error) {
	added, err := s.missing(want.Fields)
	if err != nil {
		return nil, err
	}
	c := &Change{Added: added}
	declared := make(map[string]bool, len(want.Fields))
	for i := range want.Fields {
		declared[want.Fields[i].Name] = true
	}
	for i := range s.Fields {
		if name := s.Fields[i].Name; !declared[name] {
			c.Kept = append(c.Kept, name)
		}
	}
	c.Options = s.Dynamic != want.Dynamic || s.MaxL1PhraseTerms != want.MaxL1PhraseTerms ||
		!slices.Equal(s.DefaultFields, want.DefaultFields) || !slices.Equal(s.Routers, want.Routers) || !equalFlag(s.ReorderOnMerge, want.ReorderOnMerge)
	return c, nil
}

func equalFlag(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }

// Redeclare returns the schema of an index after want was declared for it: new fields are added, options are want's, nothing is
// removed. It returns s itself if nothing changes.
func (s *Schema) Redeclare(want *Schema) (*Schema, *Change, error) {
	change, err := s.Diff(want)
	if err != nil {
		return s, nil, err
	}
	if change.Empty() {
		return s, change, nil
	}
	c := *s
	c.Fields = append(slices.Clip(slices.Clone(s.Fields)), change.Added...)
	c.Dynamic, c.MaxL1PhraseTerms = want.Dynamic, want.MaxL1PhraseTerms
	c.DefaultFields, c.Routers, c.ReorderOnMerge = want.DefaultFields, want.Routers, want.ReorderOnMerge
	c.Generation++
	if err := c.Validate(); err != nil {
		return s, nil, err
	}
	return &c, change, nil
}

// AlterVectors returns the schema in which a dense or binary vector field has the options of f, which say how its vectors are found and not how
// they are kept, and the next generation; s itself if they are those that it has. What else f says has to be what the field is: its type, dimension,
// element and metric. Errors are *ConflictError and, of options that cannot be, *FieldError; a field that is not there or has no such vectors,
// or none that are indexed, is a *FieldError too.
func (s *Schema) AlterVectors(f *Field) (*Schema, error) {
	id, ok := s.Lookup(f.Name)
	if !ok {
		return s, &FieldError{Field: f.Name, Msg: "the index has no such field"}
	}
	have := &s.Fields[id]
	switch {
	case have.Type != DenseVector && have.Type != BinaryVector:
		return s, &FieldError{Field: f.Name, Msg: fmt.Sprintf("it is a %s field, not one of dense or binary vectors", have.Type)}
	case f.Type != have.Type || f.Dim != have.Dim || f.element() != have.element() || f.Metric != have.Metric:
		return s, &ConflictError{Field: f.Name, Have: have.Declaration(), Want: f.Declaration()}
	case !have.Indexed:
		return s, &FieldError{Field: f.Name, Msg: "its vectors are stored and not indexed"}
	case slices.Equal(have.Options, f.Options):
		return s, nil
	}
	c := *s
	c.Fields = slices.Clone(s.Fields)
	c.Fields[id].Options = slices.Clone(f.Options)
	c.Generation++
	if err := c.Validate(); err != nil {
		return s, err
	}
	return &c, nil
}

// element is the element type of a vector field, which dense vectors need not say.
func (f *Field) element() string {
	if f.Element == "" && f.Type == DenseVector {
		return "f32"
	}
	return f.Element
}
