package segment

import (
	"errors"
	"fmt"
)

// Errors that callers decide on.
var (
	// ErrCorrupt is what every *CorruptError is: bytes that no writer wrote.
	ErrCorrupt = errors.New("segment is damaged")
	// ErrNewerFormat means that the file needs a newer program.
	ErrNewerFormat = errors.New("segment has a newer format")
	// ErrOrder means that the parts of a segment, or the values inside one, were given to the writer in a wrong order.
	ErrOrder = errors.New("segment parts are out of order")
	// ErrDuplicateKey means that two live documents of a merge have the same key.
	ErrDuplicateKey = errors.New("two live documents have the same key")
	// ErrTooLarge means that something exceeds what the format can hold.
	ErrTooLarge = errors.New("exceeds the segment format")
)

// CorruptError says where a segment is damaged and how that showed.
type CorruptError struct {
	File    string // as given to Open or FromBytes
	Section string // such as "terms(3)"; "footer" for the frame of the file
	Offset  int64  // of the section within the file, or of the damage where it is known
	Reason  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %v: section %s at byte %d: %s", e.File, ErrCorrupt, e.Section, e.Offset, e.Reason)
}

// Is makes a CorruptError match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
