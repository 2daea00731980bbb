package wal

import (
	"errors"
	"fmt"
	"time"
)

// SyncMode says what Append waits for.
type SyncMode uint8

// The modes.
const (
	SyncAlways SyncMode = iota // the record is on stable storage
	SyncNone                   // the operating system has the record: it survives the process, not the machine. For benchmarks
)

// Options tune a log. The zero value is the default.
type Options struct {
	Sync       SyncMode
	FileBytes  int64  // a new file is begun when the next group would take the current one above this; default 64 MiB, at most 1 GiB
	MaxPending int64  // bytes of records that wait for the disk; above it Append waits. Also the limit of one batch. Default 64 MiB and room for a record's header, at most 1 GiB
	ProbeBytes int64  // free space, in bytes, that Probe asks for; default 1 MiB
	FirstSeq   uint64 // number of the first record when the folder holds no log; default 1
	Events     Events
}

const (
	defaultFileBytes  = 64 << 20
	defaultMaxPending = MaxRecord + recordSize
	defaultProbeBytes = 1 << 20
	maxSize           = 1 << 30 // keeps every offset of a file, and so back, within 32 bits
)

func (o *Options) ensureDefaults() {
	if o.FileBytes == 0 {
		o.FileBytes = defaultFileBytes
	}
	if o.MaxPending == 0 {
		o.MaxPending = defaultMaxPending
	}
	if o.ProbeBytes == 0 {
		o.ProbeBytes = defaultProbeBytes
	}
	if o.FirstSeq == 0 {
		o.FirstSeq = 1
	}
}

func (o *Options) validate() error {
	var errs []error
	if o.FileBytes < 0 || o.FileBytes > maxSize {
		errs = append(errs, fmt.Errorf("FileBytes %d is outside 1 to %d", o.FileBytes, maxSize))
	}
	if o.MaxPending < 0 || o.MaxPending > maxSize {
		errs = append(errs, fmt.Errorf("MaxPending %d is outside 1 to %d", o.MaxPending, maxSize))
	}
	if o.ProbeBytes < 0 || o.ProbeBytes > maxSize {
		errs = append(errs, fmt.Errorf("ProbeBytes %d is outside 1 to %d", o.ProbeBytes, maxSize))
	}
	if o.Sync > SyncNone {
		errs = append(errs, fmt.Errorf("unknown sync mode %d", o.Sync))
	}
	return errors.Join(errs...)
}

// Events tell what the log does. They are called with no lock held: Trimmed from TrimBefore, TailCut from Open, the others one at a time by who
// has the turn, and the log goes on when they return; they must not call it. Nil members are skipped.
type Events struct {
	Committed func(Group)       // a group is on the disk, and its writers have their answer
	Failed    func(error)       // the log stopped taking records; an *FailedError
	Recovered func()            // Probe made it take records again
	Rotated   func(file string) // a new file was begun
	Trimmed   func(file string) // an old file was removed
	TailCut   func(Tail)        // Open cut a torn tail
}

// Group describes one commit.
type Group struct {
	Records int
	Bytes   int64
	Write   time.Duration
	Sync    time.Duration // 0 with SyncNone
}

// Tail is what Open cut off the end of the last file: what was left of records that were being written at a crash.
type Tail struct {
	File   string
	Offset int64 // the file was cut to this length
	Bytes  int64 // how much was cut
	Reason string
}

// String says it for a log line.
func (t Tail) String() string {
	return fmt.Sprintf("%s: cut %d bytes at offset %d: %s", t.File, t.Bytes, t.Offset, t.Reason)
}

// Stats are totals since Open and, from Files on, present values.
type Stats struct {
	Records   uint64
	Bytes     uint64 // of records, with their headers
	Groups    uint64
	Syncs     uint64        // of commits; other syncs are not counted
	SyncTime  time.Duration // of those syncs
	Rotations uint64

	Files    int
	Size     int64 // bytes of all files
	FirstSeq uint64
	LastSeq  uint64
}
