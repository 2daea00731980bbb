package schema

import (
	"fmt"
	"unicode/utf8"
)

// ParseError is a fault in the text of a schema.
type ParseError struct {
	Line, Col int // from 1; Col counts characters, not bytes
	Offset    int // in bytes, from 0
	Msg       string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Col, e.Msg)
}

// FieldError is a fault in a schema that was built in code or in a field that is to be added.
type FieldError struct {
	Field string // empty for the schema as a whole
	Msg   string
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Msg
	}
	return fmt.Sprintf("field %q: %s", e.Field, e.Msg)
}

// ConflictError says that a field is declared in another way than the index has it.
type ConflictError struct {
	Field string
	Have  string // what the index has, as SDL
	Want  string // what was asked for, as SDL
	Msg   string // the rule that is broken, where the two declarations do not say it
}

func (e *ConflictError) Error() string {
	if e.Msg != "" {
		return fmt.Sprintf("field %q: %s", e.Field, e.Msg)
	}
	return fmt.Sprintf("field %q is %s in the index and cannot become %s", e.Field, e.Have, e.Want)
}

// errorAt makes a ParseError for a byte offset of src.
func errorAt(src string, off int, format string, args ...any) *ParseError {
	off = min(max(off, 0), len(src))
	line, start := 1, 0
	for i := 0; i < off; i++ {
		if src[i] == '\n' {
			line++
			start = i + 1
		}
	}
	return &ParseError{Line: line, Col: utf8.RuneCountInString(src[start:off]) + 1, Offset: off, Msg: fmt.Sprintf(format, args...)}
}
