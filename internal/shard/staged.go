package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/shard/exec"
)

// With Config.OnCommit the applied and the durable state run ahead of what readers see. The manifest always stands at the last Commit,
// and the log is kept from there on, so that an Open finds both: the segments of the manifest are what readers see, the log is
// what is staged. A memtable that fills up meanwhile is written to a segment that is in use for writers and in no manifest; Commit
// publishes all of them at once, with the deaths that belong to them. Deaths are kept in log order, and so what a segment was at the
// last Commit is a prefix of them.

// Commit makes everything that was applied before the call visible, at once and durably. Without Config.OnCommit writes are visible
// already, and it is Flush. When it fails nothing more is visible than before; what is staged stays.
func (s *Shard) Commit(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.flush(ctx, flushCommit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// pinLocked keeps what readers see now, if a write is about to be staged. It needs mu.
func (s *Shard) pinLocked() {
	if !s.cfg.OnCommit || s.mu.pinned != nil {
		return
	}
	s.mu.pinned = s.currentLocked()
	s.mu.pinned.refs.Add(1)
}

// unpinLocked lets readers see the state of a Commit that ended at the mark: all there is, or, where more was staged meanwhile, what
// the manifest has. It needs mu.
func (s *Shard) unpinLocked(m mark) {
	if s.mu.pinned == nil {
		return
	}
	s.mu.pinned.release()
	s.mu.pinned = nil
	if s.mu.seq == m.seq {
		return
	}
	sn := &Snapshot{owner: s, schema: m.schema, seq: m.seq, changes: s.mu.changes, commitTS: m.ts}
	for _, p := range s.mu.segments {
		if p.staged != nil {
			continue
		}
		leaf := p.committedLeafLocked()
		if leaf == nil {
			continue
		}
		sn.add(leaf, p)
		p.seg.retain()
		sn.files = append(sn.files, p.seg)
		sn.bytes += p.seg.meta.Bytes
	}
	sn.refs.Store(1)
	s.mu.pinned = sn
}

func (sn *Snapshot) add(l exec.Leaf, p *part) {
	sn.docs += uint64(l.LiveDocs())
	sn.leaves = append(sn.leaves, l)
	sn.parts = append(sn.parts, p)
}

// stage puts the segment of a frozen memtable in its place without a manifest that names it. It needs flushMu and manifestMu.
func (s *Shard) stage(rep replacement, release func() error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	src := rep.sources[0]
	if rep.file != nil {
		p := newSegmentPart(rep.file, rep.since())
		p.staged = release
		s.carryOver(rep, p)
		s.mu.segments = append(s.mu.segments[:len(s.mu.segments):len(s.mu.segments)], p)
		src.next, src.remap = p, rep.remaps[0]
	} else {
		src.gone = true
	}
	s.mu.frozen, s.mu.frozenReady, s.mu.frozenView = nil, false, nil
	s.layout.Add(1)
	s.changedLocked()
}

// dropStaged ends the protection of segments that no manifest names. What they hold is in the log.
func (s *Shard) dropStaged() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range s.mu.segments {
		if p.staged != nil {
			errs = append(errs, p.staged())
			p.staged = nil
		}
	}
	return errors.Join(errs...)
}
