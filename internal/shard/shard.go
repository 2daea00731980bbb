// Package shard is one partition of a collection: an append-only log, a searchable memtable, immutable segments, the snapshots
// that searches read, flushing, merging and recovery.
//
// Contract. When Apply returns without an error, every operation of the batch that has no error of its own is on stable
// storage and in every later snapshot; batches become visible in log order and never in part. A refusal (ErrOverloaded,
// ErrReadOnly, ErrClosed) has no effect at all. Statistics of a snapshot count its live documents and nothing else, so they do
// not depend on how the documents came to be there.
//
// All methods of Shard are safe for concurrent use. A Snapshot is immutable; release it exactly once.
//
// # Two moments
//
// A write is applied, then durable, then visible. Under writeMu it takes effect on the applied state: its documents enter the
// memtable, what it replaces is looked up, its log record is queued. Whoever holds the lead writes the queue to the log with one
// fsync and then, under mu, makes the queued writes visible in order. So writers never wait for each other's disk, and readers
// see only what is durable. When the log fails, what is not visible never will be.
//
// With Config.OnCommit a third moment stands between: durable writes are staged, and show when Commit is called.
//
// # Locks
//
// In this order, each may be taken while holding those before it; lead is a one-place channel:
//
//	flushMu, mergeMu   one flush, one merge at a time (neither is taken with the other)
//	manifestMu         one commit of a manifest at a time: version
//	lead               the right to append to the log and to publish
//	writeMu            the applied state
//	mu                 the visible state, the queue and the flags
//
// A memtable's own lock comes last.
package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/memtable"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vector"
)

// Shard is an open shard.
type Shard struct {
	cfg     Config
	name    store.Name
	objects store.Store
	catalog *store.Catalog
	wal     *wal.Log
	unlock  func() error
	log     *slog.Logger

	flushMu    *ctxMutex
	mergeMu    *ctxMutex
	manifestMu *ctxMutex
	version    *store.Version // guarded by manifestMu
	committed  mark           // that the version stands at; guarded by manifestMu

	lead chan struct{} // holding its one place is the right to commit

	// The applied state.
	writeMu struct {
		sync.Mutex
		active *part
		schema *schema.Schema
		lastTS uint64
		logged int64 // bytes of records since the last freeze
		// disturbed are the keys with which something was done lately, or may have been, that no segment and no memtable tells of: they were deleted, or
		// somebody looked at them. They are all keys when the shard was opened with what had been written to it before.
		disturbed disturbances
		marks     marks
	}

	mu struct {
		sync.Mutex
		queue    []*write // applied, not durable
		segments []*part  // oldest first
		frozen   *part    // memtable that is being flushed, or nil
		active   *part
		schema   *schema.Schema
		seq      uint64 // last visible log record
		ts       uint64 // commit timestamp of the last visible batch

		// The frozen memtable's log position. Until its mark was published nothing of it may be flushed.
		mark        mark
		frozenReady bool
		frozenView  exec.Leaf // the frozen memtable at the mark; nil when no document of it was alive
		flushErr    error     // of the last flush

		snapshot *Snapshot        // of the visible state; nil when that changed
		pinned   *Snapshot        // of the last Commit, while writes are staged behind it; see Config.OnCommit
		masked   []maskedSnapshot // of the visible state
		changes  uint64           // grows with each change of the visible state
		readOnly *ReadOnlyError
		healing  bool // the log may take writes again when there is room
		closed   bool
		lastErr  string
	}

	manifest  atomic.Uint64 // version.Manifest.Version
	pending   atomic.Int64  // bytes of Apply calls under way
	layout    atomic.Uint64 // grows when segments come or go; changed under writeMu and mu
	inverters sync.Pool     // of *worker

	collected             time.Time // when objects were collected last; of the merge loop
	flushC, mergeC, healC chan struct{}
	background            sync.WaitGroup
	stop                  context.CancelFunc

	stats struct {
		flushes, merges, flushFailures, mergeFailures, refused atomic.Uint64
		flushedBytes, mergedBytes                              atomic.Int64
		flushNanos, mergeNanos                                 atomic.Int64 // of all that ended well
		lastFlush                                              atomic.Int64 // nanoseconds of the last one
	}
}

// mark is the log position that a flush covers, with the schema there.
type mark struct {
	seq, ts uint64
	schema  *schema.Schema
}

// ctxMutex is a mutex whose Lock gives up with a context.
type ctxMutex struct{ c chan struct{} }

func newCtxMutex() *ctxMutex { return &ctxMutex{make(chan struct{}, 1)} }

func (m *ctxMutex) lock(ctx context.Context) error {
	select {
	case m.c <- struct{}{}:
		return nil
	default:
	}
	select {
	case m.c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *ctxMutex) unlock() { <-m.c }

// Schema returns the current schema.
func (s *Shard) Schema() *schema.Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.schema
}

// signal wakes a background worker.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// writable returns why no write is taken, or nil.
func (s *Shard) writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writableLocked()
}

func (s *Shard) writableLocked() error {
	if s.mu.closed {
		return ErrClosed
	}
	if s.mu.readOnly != nil {
		return s.mu.readOnly
	}
	return nil
}

// failLocked makes the shard read-only. The first cause stays. It needs mu.
func (s *Shard) failLocked(cause error, healing bool) *ReadOnlyError {
	if s.mu.readOnly == nil {
		s.mu.readOnly = &ReadOnlyError{Cause: cause}
		s.mu.healing = healing
		s.mu.lastErr = cause.Error()
		s.log.Error("shard is read-only from now on", "collection", s.name.Collection, "cause", cause)
	}
	return s.mu.readOnly
}

// changedLocked drops the cached snapshots. It needs mu.
func (s *Shard) changedLocked() {
	s.mu.changes++
	if s.mu.snapshot != nil {
		s.mu.snapshot.release()
		s.mu.snapshot = nil
	}
	for _, m := range s.mu.masked {
		m.sn.release()
	}
	s.mu.masked = nil
}

// backgroundErr records a failure of background work.
func (s *Shard) backgroundErr(what string, err error) {
	s.log.Warn(what, "collection", s.name.Collection, "err", err)
	s.mu.Lock()
	s.mu.lastErr = what + ": " + err.Error()
	s.mu.Unlock()
}

// Stats describes a shard at one moment. Byte counts are of memory for memtables and of files for the rest.
type Stats struct {
	Docs          uint64 // live documents that readers see
	Staged        uint64 // log records that wait for Commit; see Config.OnCommit
	Segments      int
	SegmentBytes  int64
	SegmentDocs   uint64 // documents in segments, dead ones too
	MemtableDocs  uint64 // live
	MemtableBytes int64  // of both memtables
	PendingBytes  int64  // of Apply calls under way
	LogBytes      int64

	// Since Open. A group of records is appended with one sync, so LogRecords/LogSyncs tells how well writers share them.
	LogRecords  uint64
	LogSyncs    uint64
	LogSyncTime time.Duration // of those syncs

	Generation   uint64 // of the schema
	Manifest     uint64 // version of the committed manifest
	LastSeq      uint64 // last log record that is visible
	HighWater    uint64 // last log record that the newest flush covers
	LastCommitTS uint64

	Flushes, Merges           uint64
	FlushFailures             uint64
	MergeFailures             uint64
	Refused                   uint64 // Apply calls refused for want of room
	MergedBytes, FlushedBytes int64
	MergeTime, FlushTime      time.Duration // of the merges and flushes counted, waits for the merge rate included

	ReadOnly string // why the shard takes no writes, as the cause of a ReadOnlyError; empty if it does, and while it is only busy
	LastErr  string // last background failure, empty after a success
}

// Stats returns counters and sizes.
func (s *Shard) Stats() Stats {
	st := Stats{
		PendingBytes: s.pending.Load(),
		Flushes:      s.stats.flushes.Load(), Merges: s.stats.merges.Load(),
		FlushFailures: s.stats.flushFailures.Load(), MergeFailures: s.stats.mergeFailures.Load(),
		Refused: s.stats.refused.Load(), MergedBytes: s.stats.mergedBytes.Load(), FlushedBytes: s.stats.flushedBytes.Load(),
		MergeTime: time.Duration(s.stats.mergeNanos.Load()), FlushTime: time.Duration(s.stats.flushNanos.Load()), Manifest: s.manifest.Load(),
	}
	log := s.wal.Stats()
	st.LogBytes, st.LogRecords, st.LogSyncs, st.LogSyncTime = log.Size, log.Records, log.Syncs, log.SyncTime
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.segments {
		st.Segments++
		st.SegmentBytes += p.seg.meta.Bytes
		st.SegmentDocs += uint64(p.docs)
		st.Docs += uint64(p.aliveLocked())
	}
	for _, p := range s.memtablesLocked() {
		st.MemtableDocs += uint64(p.aliveLocked())
		st.MemtableBytes += p.mem.Size()
	}
	st.Docs += st.MemtableDocs
	if s.mu.pinned != nil {
		st.Docs, st.Staged = s.mu.pinned.docs, s.mu.seq-s.mu.pinned.seq
	}
	st.Generation = s.mu.schema.Generation
	st.LastSeq, st.LastCommitTS, st.HighWater = s.mu.seq, s.mu.ts, s.mu.mark.seq
	if s.mu.readOnly != nil {
		st.ReadOnly = s.mu.readOnly.Cause.Error()
	} else if e, ok := errors.AsType[*ReadOnlyError](s.roomLocked()); ok {
		st.ReadOnly = e.Cause.Error()
	}
	st.LastErr = s.mu.lastErr
	return st
}

// memtablesLocked returns the memtables, oldest first. It needs mu.
func (s *Shard) memtablesLocked() []*part {
	if s.mu.frozen != nil {
		return []*part{s.mu.frozen, s.mu.active}
	}
	return []*part{s.mu.active}
}

// worker is what an Apply call needs to prepare its batch; pooled.
type worker struct {
	inv    *memtable.Inverter
	batch  memtable.Batch
	record []byte // encoded operations, one after the other
	ends   []int  // of each operation in record
	found  []candidate
}

func (s *Shard) worker(sch *schema.Schema) (*worker, error) {
	if w, ok := s.inverters.Get().(*worker); ok {
		if err := w.inv.SetSchema(sch); err != nil {
			return nil, err
		}
		return w, nil
	}
	inv, err := memtable.NewInverter(sch)
	if err != nil {
		return nil, err
	}
	return &worker{inv: inv}, nil
}

// maxPooled bounds the memory that a pooled worker keeps, in bytes of records.
const maxPooled = 8 << 20

func (s *Shard) giveBack(w *worker) {
	if cap(w.record) > maxPooled || w.batch.Footprint() > maxPooled {
		return
	}
	w.batch.Reset()
	w.record, w.ends, w.found = w.record[:0], w.ends[:0], w.found[:0]
	s.inverters.Put(w)
}

// retryAfter estimates when a running flush makes room.
func (s *Shard) retryAfter() time.Duration {
	return min(max(time.Duration(s.stats.lastFlush.Load())/2, 50*time.Millisecond), 10*time.Second)
}

// buildsGraph tells whether a flush would build a graph of vectors.
func (s *Shard) buildsGraph() (builds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	graph := graphOf(s.mu.schema)
	for _, p := range s.memtablesLocked() {
		p.mem.ManyVectors(func(field int, p vector.Params) { builds = builds || graph(field, p).Graph })
	}
	return builds
}

// Close stops background work, flushes unless the shard is read-only or ctx has ended, and waits. What was acknowledged is
// safe without the flush; it only shortens the next Open. What is staged (Config.OnCommit) is committed, unless ctx ended. Documents whose flush would build a graph of vectors, which takes longer
// than to read them back from the log, stay in the log. Snapshots that are still held stay readable; Snapshot returns an empty
// one from now on. A second Close does nothing.
func (s *Shard) Close(ctx context.Context) error {
	s.writeMu.Lock() // so that no write is being applied while the flag changes
	s.mu.Lock()
	closed, readOnly := s.mu.closed, s.mu.readOnly != nil
	s.mu.closed = true
	s.mu.Unlock()
	s.writeMu.Unlock()
	if closed {
		return nil
	}
	s.stop()
	s.background.Wait()

	var errs []error
	if !readOnly && ctx.Err() == nil && !s.cfg.NoFlushOnClose && (s.cfg.OnCommit || !s.buildsGraph()) {
		if err := s.flush(ctx, flushCommit); err != nil {
			errs = append(errs, fmt.Errorf("flush while closing: %w", err))
		}
	}
	// Merges and flushes of callers end first; writes applied before the flag was set are still owed their outcome.
	background := context.WithoutCancel(ctx)
	for _, m := range []*ctxMutex{s.flushMu, s.mergeMu, s.manifestMu} {
		errs = append(errs, m.lock(background))
		defer m.unlock()
	}
	s.commitAll()
	errs = append(errs, s.wal.Close(), s.dropStaged())

	s.mu.Lock()
	s.changedLocked()
	if s.mu.pinned != nil {
		s.mu.pinned.release()
		s.mu.pinned = nil
	}
	for _, p := range s.mu.segments {
		p.seg.release()
	}
	s.mu.segments, s.mu.frozen, s.mu.active = nil, nil, newMemPart()
	s.mu.Unlock()
	errs = append(errs, s.unlock())
	return errors.Join(errs...)
}
