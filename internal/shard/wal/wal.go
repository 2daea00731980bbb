package wal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-search/weft/internal/vfs"
)

// MaxRecord is the largest payload of one record in bytes. A length above it is damage; nothing is allocated for it.
const MaxRecord = 64 << 20

// SyncMode says what Append waits for.
type SyncMode uint8

// The modes.
const (
	SyncAlways SyncMode = iota // the record is on stable storage
	SyncNone                   // the record was handed to the operating system: survives the process, not the machine; for benchmarks
)

// Options tune a log. The zero value is the default.
type Options struct {
	Sync       SyncMode
	FileBytes  int64  // a file is closed when the next group would take it above this; default 64 MiB
	MaxPending int64  // bytes of records that may wait for the disk, above it Append waits; default 64 MiB
	ProbeBytes int64  // free space that Probe asks for; default 1 MiB
	FirstSeq   uint64 // number of the first record when the folder holds no log; default 1
	Events     Events
}

// Events are called from the log's own goroutine and from Open, Close, Probe and TrimBefore, never at once, with no lock held. Nil members are skipped.
type Events struct {
	Committed func(Group)       // a group was made durable
	Failed    func(error)       // the log stopped taking records
	Recovered func()            // Probe found the log usable again
	Rotated   func(file string) // a new file was begun
	Trimmed   func(file string) // an old file was removed
	TailCut   func(Tail)        // Open cut a torn tail
}

// Group describes one commit.
type Group struct {
	Records int
	Bytes   int64
	Write   time.Duration
	Sync    time.Duration
}

// Tail is what Open cut off the end of the last file: bytes of a record that was never acknowledged.
type Tail struct {
	File   string
	Offset int64 // the file was cut to this length
	Bytes  int64 // how much was cut
	Reason string
}

// The sentinels; every error of this package that a caller must tell apart is one of them.
var (
	ErrFailed      = errors.New("log failed")
	ErrNoSpace     = errors.New("log out of space")
	ErrCorrupt     = errors.New("log corrupt")
	ErrNewerFormat = errors.New("log written by a newer version")
	ErrClosed      = errors.New("log closed")
	ErrTooLarge    = errors.New("record too large")
	ErrTrimmed     = errors.New("records no longer in the log")
)

// CorruptError is an ErrCorrupt with its place.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

// Error names file, offset and reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrCorrupt, e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Stats are totals since Open, but for the last three, which are present values.
type Stats struct {
	Records, Bytes, Groups, Syncs, Rotations uint64
	Files                                    int
	Size                                     int64
	FirstSeq, LastSeq                        uint64
}

// Log is an open log. Safe for concurrent use.
type Log struct{}

var errNotBuilt = errors.New("not built")

// Open recovers the log in dir, or begins one.
func Open(fsys vfs.FS, dir string, o Options) (*Log, error) { return nil, errNotBuilt }

// Replay calls fn for each record with a number of at least from, in order. The payload dies when fn returns.
// Call it before the first Append. An error of fn ends it and is returned as it is.
func (l *Log) Replay(from uint64, fn func(seq uint64, payload []byte) error) error {
	return errNotBuilt
}

// Append adds one record and returns its number once it is durable. The payload is copied; it must not be empty.
func (l *Log) Append(ctx context.Context, payload []byte) (uint64, error) { return 0, errNotBuilt }

// AppendBatch adds records with consecutive numbers in one group and returns the first number.
func (l *Log) AppendBatch(ctx context.Context, payloads [][]byte) (uint64, error) {
	return 0, errNotBuilt
}

// Sync makes all records appended before the call durable. With SyncAlways they are already.
func (l *Log) Sync(ctx context.Context) error { return errNotBuilt }

// Rotate begins a new file, so that TrimBefore can remove the old ones.
func (l *Log) Rotate(ctx context.Context) error { return errNotBuilt }

// TrimBefore removes the files all of whose records have numbers below seq, but never the current file.
func (l *Log) TrimBefore(seq uint64) error { return errNotBuilt }

// Probe tries to make a log usable again that refused for lack of space. It returns nil when records are taken again.
func (l *Log) Probe(ctx context.Context) error { return errNotBuilt }

// Err is nil while the log takes records, else why not.
func (l *Log) Err() error { return errNotBuilt }

// FirstSeq and LastSeq bound the records in the log; LastSeq is FirstSeq-1 when there are none.
func (l *Log) FirstSeq() uint64 { return 0 }

// LastSeq is the number of the last durable record.
func (l *Log) LastSeq() uint64 { return 0 }

// Recovery tells what Open cut off, nil when the tail was whole.
func (l *Log) Recovery() *Tail { return nil }

// Stats returns the counters.
func (l *Log) Stats() Stats { return Stats{} }

// Close commits what is pending, and releases the files.
func (l *Log) Close() error { return errNotBuilt }
