package summa

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
)

const maxIndexName = 255 // bytes

// CheckIndexName says whether a name can be an index's: 1 to 255 letters, digits, dots, hyphens and underscores of ASCII, not beginning
// with a dot or a hyphen, and without two dots in a row.
func CheckIndexName(name string) error {
	switch {
	case name == "":
		return invalid("Index name must not be empty")
	case len(name) > maxIndexName:
		return invalid("Index name must not exceed 255 characters")
	case strings.ContainsAny(name, `/\`) || strings.Contains(name, ".."):
		return invalid(`Index name must not contain '/', '\', or '..'`)
	case name[0] == '.' || name[0] == '-':
		return invalid("Index name must not start with '.' or '-'")
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return invalid("Index name must contain only alphanumeric characters, hyphens, underscores, or dots")
		}
	}
	return nil
}

// NoIndex is the refusal of a call about an index that is not there.
func NoIndex(name string) *Error {
	return &Error{codes.NotFound, fmt.Sprintf("Index '%s' not found", Cut(name, maxIndexName))}
}

// IndexExists is the refusal to create an index that is there.
func IndexExists(name string) *Error {
	return &Error{codes.AlreadyExists, fmt.Sprintf("Index '%s' already exists", Cut(name, maxIndexName))}
}
