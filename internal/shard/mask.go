package shard

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/memtable"
)

// Limits of what is remembered of masks. More of them cost time only.
const (
	maxMasks           = 4 // of one segment: 4 bytes for each document left out, and a bit for each document
	maxMaskedSnapshots = 4 // of the newest snapshot
	maskCheckEvery     = 4096
)

// Masked returns the snapshot narrowed to the documents whose key keep accepts, as if the others had been deleted: leaves, statistics
// and counts have no trace of them. key names keep, which has to decide the same for the same key whenever it is called; it must not
// keep the bytes it is given. The masked snapshot has the Version of sn; it is released on its own, once, and cannot be masked again.
//
// The first call for a segment and a key looks at every document; what it found is kept with the segment. Errors are the context's, and
// those of damage.
func (sn *Snapshot) Masked(ctx context.Context, key string, keep func(key []byte) bool) (*Snapshot, error) {
	if sn.owner == nil {
		invariant.Fail("a masked snapshot is masked again")
	}
	if m := sn.owner.maskedSnapshot(sn, key); m != nil {
		return m, nil
	}
	m := &Snapshot{schema: sn.schema, seq: sn.seq, changes: sn.changes, commitTS: sn.commitTS, bytes: sn.bytes}
	for _, l := range sn.leaves {
		var masked exec.Leaf
		var err error
		switch l := l.(type) {
		case *memtable.View:
			masked, err = l.Masked(maskChecker(ctx), keep)
		case *segmentLeaf:
			var k *mask
			if k, err = l.f.mask(ctx, key, keep); err == nil {
				masked = k.leaf(l)
			}
		}
		if err != nil {
			return nil, err
		}
		if n := masked.LiveDocs(); n > 0 {
			m.docs += uint64(n)
			m.leaves = append(m.leaves, masked)
		}
	}
	for _, f := range sn.files {
		f.retain()
		m.files = append(m.files, f)
	}
	m.refs.Store(1)
	sn.owner.keepMasked(key, m)
	return m, nil
}

// maskChecker looks at the context when enough documents were looked at, and lets others have the processor.
func maskChecker(ctx context.Context) func(n int) error {
	work := 0
	return func(n int) error {
		if work += n; work < maskCheckEvery {
			return nil
		}
		work = 0
		runtime.Gosched()
		return context.Cause(ctx)
	}
}

// maskedSnapshot is a masked snapshot of the visible state with the key. A snapshot of an earlier state is not kept masked.
type maskedSnapshot struct {
	key string
	sn  *Snapshot
}

// maskedSnapshot returns the remembered one, nil if there is none.
func (s *Shard) maskedSnapshot(sn *Snapshot, key string) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sn.changes != s.mu.changes {
		return nil
	}
	for _, m := range s.mu.masked {
		if m.key == key {
			m.sn.refs.Add(1)
			return m.sn
		}
	}
	return nil
}

// keepMasked remembers a masked snapshot until the visible state changes.
func (s *Shard) keepMasked(key string, sn *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sn.changes != s.mu.changes || slices.ContainsFunc(s.mu.masked, func(m maskedSnapshot) bool { return m.key == key }) {
		return
	}
	if len(s.mu.masked) == maxMaskedSnapshots {
		s.mu.masked[0].sn.release()
		s.mu.masked = slices.Delete(s.mu.masked, 0, 1)
	}
	sn.refs.Add(1)
	s.mu.masked = append(s.mu.masked, maskedSnapshot{key, sn})
}

// mask is what one key keeps of the documents of a segment, dead or not. The documents left out stand as the first deaths of the
// segment, before those that came since; so whatever subtracts the dead subtracts them too.
type mask struct {
	key  string
	kept bitset.Set
	left []uint32           // documents left out, ascending
	all  []score.FieldStats // of the kept, dead or not

	// deaths counts in the order of killed, which is not that of the segment.
	deaths deathCounts

	mu struct {
		sync.Mutex
		killed []uint32 // left, then those of the segment's deaths that were kept; grows at the end only
		taken  int      // deaths of the segment that are in it
		stats  []score.FieldStats
	}
}

// mask returns the mask of a key, made once.
func (f *segmentFile) mask(ctx context.Context, key string, keep func(key []byte) bool) (*mask, error) {
	if err := f.masking.lock(ctx); err != nil {
		return nil, context.Cause(ctx)
	}
	defer f.masking.unlock()
	for i, m := range f.masks {
		if m.key == key {
			f.masks = append(slices.Delete(f.masks, i, i+1), m) // the last is the one used last
			return m, nil
		}
	}
	m, err := f.newMask(ctx, key, keep)
	if err != nil {
		return nil, err
	}
	if len(f.masks) == maxMasks {
		f.masks = slices.Delete(f.masks, 0, 1)
	}
	f.masks = append(f.masks, m)
	return m, nil
}

func (f *segmentFile) newMask(ctx context.Context, key string, keep func(key []byte) bool) (*mask, error) {
	n := f.r.NumDocs()
	m := &mask{key: key, kept: bitset.New(int(n)), all: f.stats()}
	check := maskChecker(ctx)
	err := f.r.EachKey(0, func(d uint32, key []byte) error {
		if keep(key) {
			m.kept.Add(d)
		} else {
			m.left = append(m.left, d)
		}
		return check(1)
	})
	if err != nil {
		return nil, err
	}
	for _, d := range m.left {
		if err := check(1); err != nil {
			return nil, err
		}
		f.subtract(m.all, d)
	}
	m.left = slices.Clip(m.left)
	m.mu.killed, m.mu.stats = m.left, slices.Clone(m.all)
	return m, nil
}

// subtract takes a document out of statistics by field.
func (f *segmentFile) subtract(stats []score.FieldStats, doc uint32) {
	for _, field := range f.text {
		if lens := f.r.Lengths(field); int(doc) < len(lens) && lens[doc] > 0 { // else the segment is damaged and says so
			stats[field].SumLen -= uint64(lens[doc])
			stats[field].Docs--
		}
	}
}

// leaf narrows a leaf of the segment.
func (m *mask) leaf(l *segmentLeaf) *segmentLeaf {
	if len(m.left) == 0 {
		return l
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := &segmentLeaf{f: l.f, deaths: &m.deaths, live: m.kept}
	if len(l.killed) >= m.mu.taken {
		for _, d := range l.killed[m.mu.taken:] {
			if m.kept.Has(d) {
				m.mu.killed = append(m.mu.killed, d)
				l.f.subtract(m.mu.stats, d)
			}
		}
		m.mu.taken = len(l.killed)
		out.killed, out.stats = slices.Clip(m.mu.killed), slices.Clone(m.mu.stats)
	} else {
		// An older snapshot: its deaths are a prefix of those that were taken.
		out.stats = slices.Clone(m.all)
		n := len(m.left)
		for _, d := range l.killed {
			if m.kept.Has(d) {
				l.f.subtract(out.stats, d)
				n++
			}
		}
		out.killed = m.mu.killed[:n:n]
	}
	if len(l.killed) > 0 {
		out.live = m.kept.Clone()
		for i, w := range l.live {
			out.live[i] &= w
		}
	}
	return out
}
