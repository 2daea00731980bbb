package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
)

// Defaults of Config, in bytes and bytes per second.
const (
	// DefaultMemtableBytes makes segments of some 25 MB from text, so that few tiers of merging follow.
	DefaultMemtableBytes = 64 << 20
	// DefaultMergeBytesPerSec leaves a common disk most of its bandwidth, and is above what one core can load.
	DefaultMergeBytesPerSec = 64 << 20
	// DefaultMaxSegmentBytes bounds how long one merge takes and how much space it needs meanwhile.
	DefaultMaxSegmentBytes = 5 << 30
	// DefaultMergeHeapBytes is room for the graph of about two million vectors of 128 dimensions.
	DefaultMergeHeapBytes = 1 << 30
	// DefaultPendingBytes is as much as one log record may have.
	DefaultPendingBytes = 64 << 20
)

// Upper bounds of Config: a memtable has 32-bit addresses, and what is under way may be in one memtable at most.
const (
	MaxMemtableBytes = 1 << 30
	MaxPendingBytes  = 128 << 20
)

// MaxKeyBytes is the longest document key. Over HTTP and the shard protocols keys have at most 512 bytes; over Summa they may have these.
const MaxKeyBytes = 1<<16 - 1

// Config says where a shard lives and how much it may use. The zero value of every limit means its default.
type Config struct {
	// Dir is the shard's folder: its log and, by default, its object store. It is made if absent.
	Dir string
	// FS is the file system of Dir; nil: the operating system's.
	FS vfs.FS
	// Store holds segments, manifests and heads; nil: a folder inside Dir.
	Store store.Store
	// Namespace and Collection name the shard's head in the store; "default" if empty.
	Namespace, Collection string
	// Schema is what a new shard is created with. A shard that exists has its own and ignores it.
	Schema *schema.Schema

	// MemtableBytes is the size at which a memtable is frozen and flushed. At most two memtables exist: when the second is
	// full before the first is flushed, writes are refused with ErrOverloaded.
	MemtableBytes int64
	// PendingBytes bounds the document bytes of all Apply calls that are under way.
	PendingBytes int64
	// MaxSegmentBytes is the largest segment that background merging makes.
	MaxSegmentBytes int64
	// MaxSegmentDocs bounds the live documents of a segment that merging makes of several, also where a caller asks for it; 0: it does not.
	MaxSegmentDocs int64
	// MergeHeapBytes bounds the memory in which background merging builds the graph of vectors of one segment. A field of vectors with a
	// graph then has more and smaller segments than MaxSegmentBytes alone would give. Merge, which a caller asks for, is not held to it.
	MergeHeapBytes int64
	// MergeBytesPerSec limits what background merging writes, so that searches and the log keep the disk. Negative = no limit.
	MergeBytesPerSec int64
	// Keep says how long replaced versions and their objects stay in the store. They are collected after flushes and merges.
	Keep store.GCOptions
	// NoSources leaves out the sources of documents: Get and hits then have none.
	NoSources bool
	// QuickOpen verifies only the frame of each segment on Open, not every byte. Damage then shows when it is met.
	QuickOpen bool
	// NoFlushOnClose leaves the memtable in the log.
	NoFlushOnClose bool
	// OnCommit keeps writes from readers until Commit: they are durable and count for conditions and for keys that exist at once, but
	// snapshots show the state of the last Commit, also after a restart. Their log is kept until then.
	OnCommit bool
	// Disturbed is for a shard that may take the place of another: for the time of Undisturbed none of its operations is Fresh.
	Disturbed bool
	// IdleFlush is the time without a write, or somewhat more, after which a memtable that is not small is flushed though it is not full:
	// segments are searched faster, and the log need not be read again. Zero: never.
	IdleFlush time.Duration
	// NoBackground turns off flushing and merging by themselves; Flush and Merge still work.
	NoBackground bool
	// Clock returns a candidate commit timestamp; the shard raises it above all it has used. Nil: microseconds since the epoch.
	Clock func() uint64
	// Log receives what happens in the background. Nil: nothing is logged.
	Log *slog.Logger
}

// ensureDefaults returns a copy with every zero limit replaced.
func (c Config) ensureDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.Collection == "" {
		c.Collection = "default"
	}
	if c.MemtableBytes == 0 {
		c.MemtableBytes = DefaultMemtableBytes
	}
	if c.PendingBytes == 0 {
		c.PendingBytes = DefaultPendingBytes
	}
	if c.MaxSegmentBytes == 0 {
		c.MaxSegmentBytes = DefaultMaxSegmentBytes
	}
	if c.MergeHeapBytes == 0 {
		c.MergeHeapBytes = DefaultMergeHeapBytes
	}
	if c.MergeBytesPerSec == 0 {
		c.MergeBytesPerSec = DefaultMergeBytesPerSec
	}
	if c.FS == nil {
		c.FS = vfs.OS
	}
	if c.Clock == nil {
		c.Clock = clock
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate returns every complaint about a config with its defaults set.
func (c Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("dir is empty"))
	}
	for _, l := range []struct {
		name string
		v    int64
	}{{"memtable bytes", c.MemtableBytes}, {"pending bytes", c.PendingBytes}, {"max segment bytes", c.MaxSegmentBytes}, {"max segment documents", c.MaxSegmentDocs}, {"merge heap bytes", c.MergeHeapBytes}} {
		if l.v < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", l.name, l.v))
		}
	}
	if c.MemtableBytes > MaxMemtableBytes {
		errs = append(errs, fmt.Errorf("memtable bytes: %d is above %d", c.MemtableBytes, MaxMemtableBytes))
	}
	if c.PendingBytes > MaxPendingBytes {
		errs = append(errs, fmt.Errorf("pending bytes: %d is above %d", c.PendingBytes, MaxPendingBytes))
	}
	return errors.Join(errs...)
}

// clock is a candidate commit timestamp by the calendar. Before 1970 there is none: it would be so high that none comes after it.
func clock() uint64 { return stamp(time.Now()) }

func stamp(t time.Time) uint64 { return uint64(max(0, t.UnixMicro())) }
