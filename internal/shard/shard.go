// Package shard is one partition of a collection: an append-only log, a searchable memtable, immutable segments, the snapshots
// that searches read, flushing, merging and recovery.
//
// Contract. When Apply returns without an error, every operation of the batch that has no error of its own is on stable
// storage and in every later snapshot; batches become visible in log order and never in part. A refusal (ErrOverloaded,
// ErrReadOnly, ErrClosed) has no effect at all. Statistics of a snapshot count its live documents and nothing else, so they do
// not depend on how the documents came to be there.
//
// All methods of Shard are safe for concurrent use. A Snapshot is immutable; release it exactly once.
package shard

import (
	"context"
	"errors"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Op is one change of a batch.
type Op struct {
	// Delete removes the document of Key; else Doc is put, replacing the document of its key.
	Delete bool
	Key    string           // of a Delete
	Doc    *schema.Document // of a put; it must not change until Apply returns
	Create bool             // the put fails with ErrExists if the key is there
}

// OpResult is what became of one operation.
type OpResult struct {
	Existed bool  // a live document had the key before
	Err     error // nil, ErrExists or an *InvalidError: the operation had no effect
}

// Shard is an open shard.
type Shard struct{}

// Snapshot is a consistent, immutable view of a shard.
type Snapshot struct{}

// Stats describes a shard at one moment. Byte counts are of memory for memtables and of files for the rest.
type Stats struct {
	Docs          uint64 // live documents
	Segments      int
	SegmentBytes  int64
	SegmentDocs   uint64 // documents in segments, dead ones too
	MemtableDocs  uint64
	MemtableBytes int64 // of both memtables
	PendingBytes  int64 // of Apply calls under way
	LogBytes      int64

	Generation   uint64 // of the schema
	Manifest     uint64 // version of the committed manifest
	LastSeq      uint64 // last log record that is visible
	HighWater    uint64 // last log record that the manifest covers
	LastCommitTS uint64

	Flushes, Merges           uint64
	FlushFailures             uint64
	MergeFailures             uint64
	Refused                   uint64 // Apply calls refused for want of room
	MergedBytes, FlushedBytes int64

	ReadOnly string // why the shard takes no writes; empty if it does
	LastErr  string // last background failure, empty after a success
}

var errUnfinished = errors.New("not built")

// Open opens the shard of cfg.Dir, recovering what its log holds, or creates it with cfg.Schema.
func Open(ctx context.Context, cfg Config) (*Shard, error) { return nil, errUnfinished }

// Schema returns the current schema.
func (s *Shard) Schema() *schema.Schema { return nil }

// AddFields makes the fields part of the schema, durably, as a new generation. Fields that are there already with the same
// definition are left out; if nothing remains it does nothing. A field that is there with another definition is an *InvalidError.
func (s *Shard) AddFields(ctx context.Context, fields []schema.Field) error { return errUnfinished }

// Apply applies the operations in order as one batch: durable and visible when it returns. Documents are typed against the
// current schema or an earlier generation. The results are in the order of ops. When ctx ends before the batch is logged, nothing
// happens; after that Apply returns the outcome regardless of ctx.
func (s *Shard) Apply(ctx context.Context, ops []Op) ([]OpResult, error) { return nil, errUnfinished }

// Snapshot returns a view of everything acknowledged so far. It never fails, also on a read-only or closed shard.
func (s *Shard) Snapshot() *Snapshot { return nil }

// Flush writes the memtable to a segment and commits.
func (s *Shard) Flush(ctx context.Context) error { return errUnfinished }

// Merge flushes, then merges until at most maxSegments segments are left and none of them holds dead documents.
func (s *Shard) Merge(ctx context.Context, maxSegments int) error { return errUnfinished }

// Check verifies the invariants of the shard: every live key exactly once, live counts, statistics equal to a recount, every
// checksum. It returns all violations joined.
func (s *Shard) Check(ctx context.Context) error { return errUnfinished }

// Stats returns counters and sizes.
func (s *Shard) Stats() Stats { return Stats{} }

// Close stops background work, flushes unless the shard is read-only or ctx has ended, and waits. What was acknowledged is
// safe without the flush; it only shortens the next Open. Snapshots that are still held stay readable.
func (s *Shard) Close(ctx context.Context) error { return errUnfinished }

// Release gives the snapshot back. It must be called once; the snapshot and its leaves must not be used afterwards.
func (sn *Snapshot) Release() {}

// Leaves returns the searchable parts, for exec.Search. The slice must not be changed.
func (sn *Snapshot) Leaves() []exec.Leaf { return nil }

// Schema is the schema that the snapshot's documents are typed against.
func (sn *Snapshot) Schema() *schema.Schema { return nil }

// Docs is the number of live documents.
func (sn *Snapshot) Docs() uint64 { return 0 }

// Seq is the log position the snapshot stands at: it is higher in a later snapshot that differs.
func (sn *Snapshot) Seq() uint64 { return 0 }

// Get returns the stored source of the live document with the key; ok is false if there is none. The source is nil if sources
// are not kept.
func (sn *Snapshot) Get(key string) (source []byte, ok bool, err error) { return nil, false, nil }

// Segments is the number of segments, Bytes their size in files and the memory of the memtables.
func (sn *Snapshot) Segments() int { return 0 }

// Bytes is the size of the segment files and of the memtables in memory.
func (sn *Snapshot) Bytes() int64 { return 0 }
