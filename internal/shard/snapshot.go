package shard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/memtable"
)

// Snapshot is a consistent, immutable view of a shard. Safe for concurrent use until it is released.
type Snapshot struct {
	owner    *Shard // nil of a masked one
	leaves   []exec.Leaf
	parts    []*part // of each leaf; nil of a masked one
	files    []*segmentFile
	schema   *schema.Schema
	docs     uint64
	seq      uint64 // last log record that the snapshot shows
	changes  uint64
	commitTS uint64
	bytes    int64
	refs     atomic.Int32
}

// Snapshot returns a view of everything acknowledged so far or, with Config.OnCommit, before the last Commit. It never fails, also on a read-only shard; on a closed shard it
// is empty. Between writes it is the same one, given out again.
func (s *Shard) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	sn := s.mu.pinned
	if sn == nil {
		sn = s.currentLocked()
	}
	sn.refs.Add(1)
	return sn
}

// currentLocked is the snapshot of the visible state, which is kept until that changes. It needs mu.
func (s *Shard) currentLocked() *Snapshot {
	if s.mu.snapshot == nil {
		s.mu.snapshot = s.snapshotLocked()
		s.mu.snapshot.refs.Store(1) // the cache's
	}
	return s.mu.snapshot
}

func (s *Shard) snapshotLocked() *Snapshot {
	sn := &Snapshot{owner: s, schema: s.mu.schema, seq: s.mu.seq, changes: s.mu.changes, commitTS: s.mu.ts}
	add := func(p *part) {
		if invariant.Enabled {
			p.verifyLocked()
		}
		if p.aliveLocked() > 0 {
			sn.add(p.leafLocked(), p)
		}
	}
	for _, p := range s.mu.segments {
		add(p)
		p.seg.retain()
		sn.files = append(sn.files, p.seg)
		sn.bytes += p.seg.meta.Bytes
	}
	for _, p := range s.memtablesLocked() {
		add(p)
		sn.bytes += p.mem.Size()
	}
	return sn
}

// Release gives the snapshot back. It must be called once; the snapshot and its leaves must not be used afterwards.
func (sn *Snapshot) Release() { sn.release() }

func (sn *Snapshot) release() {
	n := sn.refs.Add(-1)
	if invariant.Enabled && n < 0 {
		invariant.Fail("snapshot of log record %d is released once too often", sn.seq)
	}
	if n != 0 {
		return
	}
	for _, f := range sn.files {
		f.release()
	}
	sn.leaves, sn.parts, sn.files = nil, nil, nil
}

// Leaves returns the searchable parts, for exec.Search. The slice must not be changed.
func (sn *Snapshot) Leaves() []exec.Leaf { return sn.leaves }

// Schema is the schema that the snapshot's documents are typed against.
func (sn *Snapshot) Schema() *schema.Schema { return sn.schema }

// Docs is the number of live documents.
func (sn *Snapshot) Docs() uint64 { return sn.docs }

// Version grows with every change of what snapshots hold, a flush or merge included: leaf numbers and document numbers of two
// snapshots of one process mean the same only if their versions are equal.
func (sn *Snapshot) Version() uint64 { return sn.changes }

// Version returns those of the snapshot that Snapshot would return, its Version and CommitTS, without making one.
func (s *Shard) Version() (version, commitTS uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.pinned != nil {
		return s.mu.pinned.changes, s.mu.pinned.commitTS
	}
	return s.mu.changes, s.mu.ts
}

// CommitTS is the highest commit timestamp that the snapshot shows.
func (sn *Snapshot) CommitTS() uint64 { return sn.commitTS }

// Segments is the number of segments.
func (sn *Snapshot) Segments() int { return len(sn.files) }

// Bytes is the size of the segment files and of the memtables in memory.
func (sn *Snapshot) Bytes() int64 { return sn.bytes }

// memtableNames keeps the names of memtables of this process apart from those of others.
var memtableNames = rand.Uint64()

// SegmentID names a leaf by 32 lower-case hexadecimal digits: for a segment its id, for a memtable a number that is given once. A name and a
// document number mean the same document in every snapshot of the shard that has the name; flushes and merges end names. The name of a
// leaf of a masked snapshot is empty.
func (sn *Snapshot) SegmentID(leaf int) string {
	if sn.parts == nil || sn.parts[leaf] == nil {
		return ""
	}
	if p := sn.parts[leaf]; p.mem != nil {
		return fmt.Sprintf("%016x%016x", memtableNames, p.tag)
	}
	return strings.ReplaceAll(sn.parts[leaf].seg.meta.ID, "-", "")
}

// Find returns the place of the live document with the key.
func (sn *Snapshot) Find(key string) (leaf int, doc uint32, ok bool) {
	if badKey(key) != "" {
		return 0, 0, false
	}
	for i := len(sn.leaves) - 1; i >= 0; i-- {
		switch l := sn.leaves[i].(type) {
		case *memtable.View:
			doc, ok = l.Find(key)
		case *segmentLeaf:
			doc, ok = l.find(key)
		}
		if ok {
			return i, doc, true
		}
	}
	return 0, 0, false
}

// Get returns the stored source of the live document with the key; ok is false if there is none. The source is nil if sources
// are not kept.
func (sn *Snapshot) Get(key string) (source []byte, ok bool, err error) {
	leaf, doc, ok := sn.Find(key)
	if !ok {
		return nil, false, nil
	}
	source, err = sn.leaves[leaf].Source(doc, nil)
	return source, err == nil, err
}
