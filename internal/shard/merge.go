package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// Merge flushes, then merges until at most maxSegments segments are left and none of them holds documents that were dead when
// Merge began; more, where Config.MaxSegmentDocs lets no two of them be one. It does not wait for the rate limit of background merging.
func (s *Shard) Merge(ctx context.Context, maxSegments int) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	if err := s.mergeMu.lock(ctx); err != nil {
		return err
	}
	defer s.mergeMu.unlock()
	// Deaths that come meanwhile would keep a busy shard merging for ever: each segment is rewritten for its deaths once.
	fresh := map[*part]bool{}
	for {
		parts, sizes := s.sizes()
		for i, p := range parts {
			if fresh[p] {
				sizes[i].dead, sizes[i].other = 0, false
			}
		}
		task := planForced(sizes, maxSegments, s.cfg.MaxSegmentDocs)
		if task == nil {
			return nil
		}
		p, err := s.mergeParts(ctx, pick(parts, task), nil)
		if errors.Is(err, errReplan) {
			continue
		}
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		fresh[p] = true
	}
}

// sizes lists the segments of the manifest for the planner, with the deaths that the manifest has.
func (s *Shard) sizes() ([]*part, []segmentSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []*part
	var sizes []segmentSize
	graph := graphOf(s.mu.schema)
	for _, p := range s.mu.segments {
		if p.staged != nil {
			continue
		}
		heap, other := p.seg.graphs(graph)
		parts = append(parts, p)
		sizes = append(sizes, segmentSize{bytes: p.seg.meta.Bytes, docs: p.docs, dead: uint32(p.committed), heap: heap, other: other})
	}
	return parts, sizes
}

func pick(parts []*part, task []int) []*part {
	out := make([]*part, len(task))
	for i, n := range task {
		out[i] = parts[n]
	}
	return out
}

// errReplan says that a flush dropped a segment between planning and merging.
var errReplan = errors.New("segment is gone")

// mergeParts merges segments into one and commits. It leaves out what is dead in the manifest, no more: a manifest holds only
// what its log position says. It returns the new part, nil if no document was left. It needs mergeMu.
func (s *Shard) mergeParts(ctx context.Context, parts []*part, limit func(n int) error) (_ *part, err error) {
	rep := replacement{sources: parts}
	var sources []segment.MergeSource
	s.mu.Lock()
	for _, p := range parts {
		if !slices.Contains(s.mu.segments, p) {
			s.mu.Unlock()
			return nil, errReplan
		}
	}
	for _, p := range parts {
		rep.from = append(rep.from, p.committed)
		src := segment.MergeSource{R: p.seg.r}
		if p.committed > 0 {
			src.Live = bitset.Full(int(p.docs))
			for _, d := range p.killed[:p.committed] {
				src.Live.Remove(d)
			}
		}
		sources = append(sources, src)
		p.seg.retain()
	}
	graph := graphOf(s.mu.schema)
	s.mu.Unlock()
	defer func() {
		for _, p := range parts {
			p.seg.release()
		}
	}()
	start := time.Now()
	b, err := s.build(ctx, func(w io.Writer) (segment.Info, [][]uint32, error) {
		return segment.Merge(ctx, w, sources, segment.MergeOptions{WriterOptions: segment.WriterOptions{NoSources: s.cfg.NoSources, Graph: graph}, Limit: limit})
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.release()) }()
	rep.file, rep.remaps = b.file, b.remaps
	if err := s.commitMerge(ctx, rep); err != nil {
		return nil, errors.Join(err, s.discard(ctx, rep.file, err))
	}
	took := time.Since(start)
	s.stats.merges.Add(1)
	s.stats.mergeNanos.Add(int64(took))
	if rep.file == nil {
		return nil, nil
	}
	s.stats.mergedBytes.Add(rep.file.meta.Bytes)
	s.log.Debug("merged", "collection", s.name.Collection, "segments", len(parts), "into", rep.file.meta.ID,
		"docs", rep.file.meta.Docs, "bytes", rep.file.meta.Bytes, "took", took)
	return parts[0].next, nil
}

func (s *Shard) commitMerge(ctx context.Context, rep replacement) error {
	if err := s.manifestMu.lock(ctx); err != nil {
		return err
	}
	defer s.manifestMu.unlock()
	s.mu.Lock()
	readOnly := s.mu.readOnly
	s.mu.Unlock()
	if readOnly != nil {
		return readOnly
	}
	return s.commit(ctx, rep, s.committed, false)
}

// mergeLoop merges what the planner proposes, one task at a time, until ctx ends.
func (s *Shard) mergeLoop(ctx context.Context) {
	policy := defaultMergePolicy(s.cfg.MaxSegmentBytes, s.cfg.MergeHeapBytes)
	policy.maxDocs = s.cfg.MaxSegmentDocs
	var b backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.mergeC:
		}
		s.collect(ctx)
		for ctx.Err() == nil {
			again, err := s.mergeOnce(ctx, policy)
			if err != nil && ctx.Err() == nil {
				s.stats.mergeFailures.Add(1)
				s.backgroundErr("merge", err)
				if errors.Is(err, ErrReadOnly) || errors.Is(err, segment.ErrCorrupt) {
					break // trying again cannot help; a later flush asks again
				}
				b.wait(ctx)
				continue
			}
			b = backoff{}
			if !again {
				break
			}
		}
	}
}

// collectEvery spaces collections: each lists the store.
const collectEvery = time.Minute

// collect removes objects that nothing names any more. A failure costs space only and is tried again.
func (s *Shard) collect(ctx context.Context) {
	if time.Since(s.collected) < collectEvery {
		return
	}
	s.collected = time.Now()
	if _, err := s.catalog.Collect(ctx, s.name, s.cfg.Keep); err != nil && ctx.Err() == nil {
		s.backgroundErr("collect garbage", err)
	}
}

// mergeOnce runs the first task of the plan, at the configured rate.
func (s *Shard) mergeOnce(ctx context.Context, policy mergePolicy) (again bool, err error) {
	if err := s.mergeMu.lock(ctx); err != nil {
		return false, err
	}
	defer s.mergeMu.unlock()
	parts, sizes := s.sizes()
	plan := planMerges(sizes, policy)
	if len(plan) == 0 {
		return false, nil
	}
	pace := pacer{ctx: ctx, rate: s.cfg.MergeBytesPerSec, start: time.Now()}
	if _, err = s.mergeParts(ctx, pick(parts, plan[0]), pace.wait); errors.Is(err, errReplan) {
		err = nil
	}
	return true, err
}

// pacer holds a writer to a rate in bytes per second, with a burst of a quarter of a second.
type pacer struct {
	ctx   context.Context
	rate  int64
	start time.Time
	done  int64
}

func (p *pacer) wait(n int) error {
	if p.rate <= 0 {
		return p.ctx.Err()
	}
	p.done += int64(n)
	due := time.Duration(float64(p.done) / float64(p.rate) * float64(time.Second))
	ahead := due - time.Since(p.start)
	if ahead < 250*time.Millisecond {
		return p.ctx.Err()
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}
