package api

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/schema"
)

// ReadSchema reads the body of PUT /indexes/{name}: SDL or JSON. The index is called what the path says, whatever the schema says: one
// schema may serve many. An empty body asks for an index that infers its fields. check tells whether a tokenizer is known.
func ReadSchema(name string, isJSON bool, body []byte, check func(tokenizer string) error) (*schema.Schema, *Problem) {
	var sch *schema.Schema
	var err error
	switch {
	case len(body) == 0:
		sch = &schema.Schema{Name: name, Dynamic: true, Generation: 1}
	case !utf8.Valid(body):
		return nil, NewProblem(InvalidUTF8, "the schema is not valid UTF-8")
	case isJSON:
		sch, err = schema.ParseJSON(string(body), check)
	default:
		sch, err = schema.ParseSDL(string(body), check)
	}
	if err == nil {
		sch, err = sch.WithKey()
	}
	if err != nil {
		if p := SchemaProblem(err); p != nil {
			return nil, p
		}
		return nil, &Problem{Code: Internal, Detail: "the schema could not be read", Cause: fmt.Errorf("read schema of index %q: %w", name, err)}
	}
	if sch.Name != name {
		named := *sch
		named.Name = name
		sch = &named
	}
	return sch, nil
}

// SchemaProblem is the problem of an error of package schema; nil for any other.
func SchemaProblem(err error) *Problem {
	if e, ok := errors.AsType[*schema.ParseError](err); ok {
		return &Problem{Code: InvalidSchema, Line: e.Line, Column: e.Col, Detail: fmt.Sprintf("line %d, column %d: %s", e.Line, e.Col, ClipDetail(e.Msg))}
	}
	if e, ok := errors.AsType[*schema.FieldError](err); ok {
		return &Problem{Code: InvalidSchema, Field: Clip(e.Field), Detail: ClipDetail(e.Error())}
	}
	if e, ok := errors.AsType[*schema.ConflictError](err); ok {
		return &Problem{Code: SchemaConflict, Field: Clip(e.Field), Detail: ClipDetail(e.Error())}
	}
	return nil
}
