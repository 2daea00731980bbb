package vector

import (
	"errors"
	"fmt"
)

// ErrCorrupt is what every *CorruptError is: bytes that no writer wrote.
var ErrCorrupt = errors.New("vector section is damaged")

// CorruptError says how damage of a section showed.
type CorruptError struct {
	Part   string // of the section, as FORMAT.md names it
	Reason string
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrCorrupt, e.Part, e.Reason)
}

// Is makes a CorruptError match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func corrupt(part, format string, args ...any) error {
	return &CorruptError{Part: part, Reason: fmt.Sprintf(format, args...)}
}
