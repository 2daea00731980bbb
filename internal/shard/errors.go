package shard

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels that a caller branches on with errors.Is. The typed errors below carry the details.
var (
	// ErrOverloaded says that a write was refused before any effect because a limit was reached. See *OverloadError.
	ErrOverloaded = errors.New("shard is overloaded")
	// ErrReadOnly says that the shard takes no more writes; searches go on. See *ReadOnlyError.
	ErrReadOnly = errors.New("shard is read-only")
	// ErrClosed says that the shard was closed.
	ErrClosed = errors.New("shard is closed")
	// ErrExists is the error of a Create whose key is already there.
	ErrExists = errors.New("document exists")
	// ErrChanged is the error of an operation whose Condition does not hold any more.
	ErrChanged = errors.New("document has changed")
	// ErrInvalid is the error of an operation that does not fit the schema or the limits. See *InvalidError.
	ErrInvalid = errors.New("operation is not valid")
	// ErrFenced says that another process committed to the shard's head: this one no longer owns it.
	ErrFenced = errors.New("another owner committed to the shard")
	// ErrNoSchema says that a shard that does not exist yet was opened without a schema to create it with.
	ErrNoSchema = errors.New("shard does not exist and no schema was given to create it")
	// ErrNewerFormat says that something on disk was written by a later version of weft. See *FormatError.
	ErrNewerFormat = errors.New("written in a newer format")
	// ErrTooLarge is the error of a batch that is larger than the shard could ever take.
	ErrTooLarge = errors.New("batch is too large")
	// ErrDamaged says that what is on disk cannot be what a shard wrote. See also wal.ErrCorrupt and segment.ErrCorrupt.
	ErrDamaged = errors.New("shard is damaged")
	// ErrMissingObject says that the manifest names an object that the store does not have.
	ErrMissingObject = errors.New("object named by the manifest is missing")
)

// OverloadError is the refusal of a write for want of room. It matches ErrOverloaded.
type OverloadError struct {
	Limit      string        // which limit: "memtable_bytes" or "pending_bytes"
	Used, Max  int64         // bytes in use and the limit
	RetryAfter time.Duration // when room is likely
}

func (e *OverloadError) Error() string {
	return fmt.Sprintf("shard is overloaded: %s: %d bytes of %d in use, retry after %v", e.Limit, e.Used, e.Max, e.RetryAfter)
}

// Is reports that the error is an ErrOverloaded.
func (e *OverloadError) Is(target error) bool { return target == ErrOverloaded }

// ReadOnlyError is the refusal of a write by a shard that stopped writing. It matches ErrReadOnly and, through Cause, what
// stopped it.
type ReadOnlyError struct {
	Cause error
	// Uncertain says that the write met the failure itself: its record was handed to the log, and what the disk kept of it is not known
	// before a restart reads it. Without it the write had no effect and never will have.
	Uncertain bool
}

func (e *ReadOnlyError) Error() string { return "shard is read-only: " + e.Cause.Error() }

// Is reports that the error is an ErrReadOnly.
func (e *ReadOnlyError) Is(target error) bool { return target == ErrReadOnly }

// Unwrap returns the cause.
func (e *ReadOnlyError) Unwrap() error { return e.Cause }

// InvalidError says why one operation cannot be applied. It matches ErrInvalid.
type InvalidError struct {
	Key    string
	Field  string // name of the field, empty if the whole operation is meant
	Reason string
}

func (e *InvalidError) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("document %q: field %q: %s", e.Key, e.Field, e.Reason)
	}
	return fmt.Sprintf("document %q: %s", e.Key, e.Reason)
}

// Is reports that the error is an ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// FormatError names a thing of a newer format. It matches ErrNewerFormat.
type FormatError struct {
	What      string // the file or record
	Have, Max uint64 // its version, and the latest that this program reads
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s has format version %d, this program reads up to %d", e.What, e.Have, e.Max)
}

// Is reports that the error is an ErrNewerFormat.
func (e *FormatError) Is(target error) bool { return target == ErrNewerFormat }
