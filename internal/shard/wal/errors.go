package wal

import (
	"errors"
	"fmt"
)

// The kinds of error that callers tell apart with errors.Is.
var (
	// ErrFailed: the log takes no more records, see the package comment. Open it again, or for ErrNoSpace call Probe.
	ErrFailed = errors.New("log failed")
	// ErrNoSpace goes with ErrFailed when the disk is full and nothing else is wrong: Probe may end the state.
	ErrNoSpace = errors.New("log out of space")
	// ErrUnknown: the caller's context ended while its records were on their way. They may be, or become, part of the log.
	ErrUnknown = errors.New("outcome of the append unknown")
	// ErrCorrupt marks every *CorruptError.
	ErrCorrupt = errors.New("log corrupt")
	// ErrNewerFormat: a file needs a newer reader.
	ErrNewerFormat = errors.New("log written by a newer version")
	// ErrTrimmed: Replay was asked for records that TrimBefore removed.
	ErrTrimmed = errors.New("records no longer in the log")
	// ErrRecord: an empty record, one above MaxRecord, or a batch above Options.MaxPending; nothing was appended.
	ErrRecord = errors.New("bad record")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("log closed")
)

// CorruptError is an ErrCorrupt with its place.
type CorruptError struct {
	File   string // path
	Offset int64  // of the first byte that does not make sense
	Reason string
}

// Error names file, offset and reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrCorrupt, e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// FailedError is an ErrFailed with its cause. errors.Is sees the system call's number, and ErrNoSpace when the state is the mild one.
type FailedError struct {
	Op      string // what failed
	File    string // path
	Err     error
	NoSpace bool // out of space, cut back cleanly: Probe may help
}

// Error names the operation, the file and the cause.
func (e *FailedError) Error() string {
	kind := ErrFailed
	if e.NoSpace {
		kind = ErrNoSpace
	}
	return fmt.Sprintf("%v: %s %s: %v", kind, e.Op, e.File, e.Err)
}

// Is matches ErrFailed and, when out of space, ErrNoSpace.
func (e *FailedError) Is(target error) bool {
	return target == ErrFailed || e.NoSpace && target == ErrNoSpace
}

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Err }
