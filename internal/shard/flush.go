package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard/memtable"
)

// Flush writes what is in memory to a segment and commits: afterwards the manifest covers everything acknowledged before
// the call. It does nothing when nothing changed since the last commit. With Config.OnCommit it frees the memory, and what is staged
// stays staged.
func (s *Shard) Flush(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	return s.flush(ctx, flushAll)
}

// extent says how much a flush writes.
type extent uint8

const (
	flushFull   extent = iota // the memtable that is frozen, if one is
	flushAll                  // also what came after it
	flushCommit               // and everything staged becomes visible
)

// flush writes memtables to segments.
func (s *Shard) flush(ctx context.Context, what extent) error {
	if err := s.flushMu.lock(ctx); err != nil {
		return err
	}
	defer s.flushMu.unlock()
	s.commitAll() // the frozen memtable's mark may still be in the queue
	err := s.flushFrozen(ctx, !s.cfg.OnCommit)
	if err == nil && what != flushFull && s.freezeChanges(what == flushCommit) {
		s.commitAll()
		err = s.flushFrozen(ctx, !s.cfg.OnCommit || what == flushCommit)
	}
	s.mu.Lock()
	switch {
	case err == nil:
		s.mu.flushErr, s.mu.lastErr = nil, ""
	case ctx.Err() == nil: // a caller who left is not a reason to refuse writes
		s.mu.flushErr = err
	}
	readOnly := s.mu.readOnly
	s.mu.Unlock()
	switch {
	case err != nil:
		s.stats.flushFailures.Add(1)
		return fmt.Errorf("flush: %w", err)
	case readOnly != nil:
		return readOnly
	}
	return nil
}

// freezeChanges freezes the active memtable if anything happened since the last mark, or, for a commit, if anything is staged. It
// returns whether a memtable is frozen.
func (s *Shard) freezeChanges(commit bool) bool {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	changed := s.mu.seq > s.mu.mark.seq || len(s.mu.queue) > 0 || commit && s.mu.pinned != nil
	readOnly, frozen := s.mu.readOnly != nil, s.mu.frozen != nil
	s.mu.Unlock()
	switch {
	case readOnly:
		return false
	case frozen: // by a write that came meanwhile: everything from before is in it
		return true
	case changed:
		s.freeze()
	}
	return changed
}

// flushFrozen writes the frozen memtable, and commits it or stages it. It needs flushMu.
func (s *Shard) flushFrozen(ctx context.Context, commit bool) (err error) {
	// A merge must not commit between the mark and the commit, for the deaths of its sources are counted up to the mark.
	if err := s.manifestMu.lock(ctx); err != nil {
		return err
	}
	defer s.manifestMu.unlock()
	s.mu.Lock()
	frozen, ready, view, m, readOnly := s.mu.frozen, s.mu.frozenReady, s.mu.frozenView, s.mu.mark, s.mu.readOnly
	s.mu.Unlock()
	if frozen == nil || !ready {
		return nil
	}
	if readOnly != nil {
		return readOnly
	}
	start := time.Now()
	rep := replacement{sources: []*part{frozen}, from: []int{0}, remaps: [][]uint32{nil}}
	release := func() error { return nil }
	if v, ok := view.(*memtable.View); ok {
		rep.from[0] = v.Dead()
		b, err := s.build(ctx, func(w io.Writer) (segment.Info, [][]uint32, error) {
			sw := segment.NewWriter(w, segment.WriterOptions{NoSources: s.cfg.NoSources, Graph: graphOf(m.schema)})
			info, remap, err := v.Write(ctx, sw, func(f int) string { return m.schema.Fields[f].Name }, !s.cfg.NoSources)
			return info, [][]uint32{remap}, err
		})
		if err != nil {
			return err
		}
		rep.file, rep.remaps, release = b.file, b.remaps, b.release
	}
	if commit {
		defer func() { err = errors.Join(err, release()) }()
		if err := s.commit(ctx, rep, m, true); err != nil {
			return errors.Join(err, s.discard(ctx, rep.file, err))
		}
	} else if s.stage(rep, release); rep.file == nil {
		err = release()
	}
	s.stats.flushes.Add(1)
	took := time.Since(start)
	s.stats.flushNanos.Add(int64(took))
	s.stats.lastFlush.Store(int64(took))
	if rep.file != nil {
		s.stats.flushedBytes.Add(rep.file.meta.Bytes)
		s.log.Debug("flushed", "collection", s.name.Collection, "segment", rep.file.meta.ID, "docs", rep.file.meta.Docs,
			"bytes", rep.file.meta.Bytes, "took", took)
	}
	if !commit {
		return err
	}
	signal(s.mergeC)
	// The commit stands; a log that cannot be trimmed is longer than need be, and the next flush tries again.
	if err := s.trim(ctx, m.seq); err != nil && ctx.Err() == nil {
		s.backgroundErr("trim the log", err)
	}
	return nil
}

// trim removes log files that the manifest covers.
func (s *Shard) trim(ctx context.Context, seq uint64) error {
	if err := s.wal.Rotate(ctx); err != nil {
		return err
	}
	return s.wal.TrimBefore(seq + 1)
}

// flushLoop flushes frozen memtables until ctx ends.
func (s *Shard) flushLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.flushC:
		}
		var b backoff
		for ctx.Err() == nil {
			err := s.flush(ctx, flushFull)
			if err == nil || errors.Is(err, ErrReadOnly) || ctx.Err() != nil {
				break
			}
			s.backgroundErr("flush", err)
			b.wait(ctx)
		}
	}
}

// leastIdle is the memory of a memtable from which idleLoop flushes it. A segment for a few documents more is not worth its files.
const leastIdle = 1 << 20

// idleLoop flushes the memtable where nothing was written from one look to the next, until ctx ends.
func (s *Shard) idleLoop(ctx context.Context) {
	look := time.NewTicker(s.cfg.IdleFlush)
	defer look.Stop()
	seen := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		s.mu.Lock()
		seq, flushed, size, readOnly := s.mu.seq, s.mu.mark.seq, s.mu.active.mem.Size(), s.mu.readOnly != nil
		s.mu.Unlock()
		idle := seq == seen
		seen = seq
		if !idle || seq == flushed || size < leastIdle || readOnly {
			continue
		}
		if err := s.flush(ctx, flushAll); err != nil && ctx.Err() == nil {
			s.backgroundErr("flush an idle memtable", err) // the next look tries again
		}
	}
}

// healLoop probes a log that is out of space until it takes records again.
func (s *Shard) healLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.healC:
		}
		var b backoff
		for ctx.Err() == nil && s.canHeal() {
			b.wait(ctx)
			if ctx.Err() != nil {
				return
			}
			err := s.wal.Probe(ctx)
			if err == nil {
				s.heal()
				break
			}
			s.backgroundErr("probe the log", err)
		}
	}
}

func (s *Shard) canHeal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.readOnly != nil && s.mu.healing && !s.mu.closed
}

// heal takes back what was applied and never became durable, and takes writes again.
func (s *Shard) heal() {
	s.lead <- struct{}{}
	defer func() { <-s.lead }()
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.commitQueue() // fails what is left in it
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.segments {
		p.applied = p.live.Clone()
	}
	for _, p := range s.memtablesLocked() {
		p.mem.Rollback(p.docs)
		p.applied = grow(p.live.Clone(), int(p.mem.Len()))
	}
	s.writeMu.schema = s.mu.schema
	if f := s.mu.frozen; f != nil {
		if !s.mu.frozenReady {
			// Its mark was lost with the writes before it.
			s.mu.queue = append(s.mu.queue, &write{mem: f, freeze: s.mu.active, done: make(chan struct{})})
		}
		signal(s.flushC) // a flush that met the shard as it took no writes was given up
	}
	s.mu.readOnly, s.mu.healing, s.mu.lastErr = nil, false, ""
	s.log.Info("shard takes writes again", "collection", s.name.Collection)
}
