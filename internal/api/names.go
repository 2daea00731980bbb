package api

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxIndexName is the longest name of an index in bytes, MaxID the longest id of a document.
const (
	MaxIndexName = 255
	MaxID        = 512
)

// CheckIndexName returns the problem of a name that no index can have: names are 1 to 255 ASCII letters, digits, '_', '-' and
// '.', and begin with a letter, a digit or '_'.
func CheckIndexName(name string) *Problem {
	bad := func(detail string) *Problem {
		return &Problem{Code: InvalidIndexName, Field: "index", Detail: detail}
	}
	if name == "" {
		return bad("the name of the index is empty")
	}
	if len(name) > MaxIndexName {
		return bad(fmt.Sprintf("the name of the index is %d bytes long, %d are allowed", len(name), MaxIndexName)).Within(MaxIndexName)
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !letter && (i == 0 || c != '-' && c != '.') {
			return bad("a name of an index is made of ASCII letters, digits, '_', '-' and '.', and begins with a letter, a digit or '_'").At(i)
		}
	}
	return nil
}

// CheckID returns the problem of an id that no document can have.
func CheckID(id string) *Problem {
	bad := func(detail string) *Problem { return &Problem{Code: InvalidID, Field: "id", Detail: detail} }
	switch {
	case id == "":
		return bad("the id is empty")
	case len(id) > MaxID:
		return bad(fmt.Sprintf("the id is %d bytes long, %d are allowed", len(id), MaxID)).Within(MaxID)
	case !utf8.ValidString(id):
		return &Problem{Code: InvalidUTF8, Field: "id", Detail: "the id is not valid UTF-8"}
	}
	return nil
}

func isUnexpectedEnd(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
