package shard

import (
	"time"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/memtable"
	"github.com/weft-search/weft/internal/store"
)

// part is a segment or a memtable with the documents that are alive in it, at two moments: applied (what the log will say; the
// writer decides by it) and visible (what is durable; snapshots show it).
//
// 0 <= committed <= marked <= len(killed): deaths are kept in log order, so that a prefix of them is the state at a log position.
type part struct {
	seg *segmentFile    // one of the two
	mem *memtable.Table //
	tag uint64          // of a memtable, not given twice by this process

	// Guarded by Shard.writeMu.
	applied bitset.Set // documents that no applied operation killed
	since   time.Time  // of a segment: no document of it was written later; does not change

	// Guarded by Shard.mu.
	docs      uint32     // visible documents, dead ones too; grows in a memtable
	live      bitset.Set // visible and alive
	killed    []uint32   // in log order; the prefix that a leaf captured does not change
	marked    int        // deaths up to the log position of the running flush
	committed int        // deaths in the manifest
	deletes   store.DeleteRef
	staged    func() error // ends the protection of a segment that no manifest names yet, see Config.OnCommit; nil of any other part
	stats     []score.FieldStats
	leaf      exec.Leaf // of the latest snapshot; nil when the part changed since

	// Where the documents went when a flush or merge replaced the part. Guarded by both locks for writing, either for reading.
	next  *part
	remap []uint32
	gone  bool // replaced by nothing: every document was dead
}

func newSegmentPart(f *segmentFile, since time.Time) *part {
	n := int(f.r.NumDocs())
	return &part{seg: f, since: since, docs: uint32(n), live: bitset.Full(n), applied: bitset.Full(n), stats: f.stats()}
}

// rested tells whether every document of the part was written longer than Undisturbed ago.
func (p *part) rested(now time.Time) bool { return p.seg != nil && now.Sub(p.since) > Undisturbed }

func newMemPart() *part { return &part{mem: memtable.New(), tag: segmentIDs.Add(1)} }

// current follows replacements: the part and number that the document has now. ok is false if it was dropped as dead.
func current(p *part, doc uint32) (_ *part, _ uint32, ok bool) {
	for p.next != nil || p.gone {
		if p.gone {
			return nil, 0, false
		}
		if doc = p.remap[doc]; doc == segment.NoDoc {
			return nil, 0, false
		}
		p = p.next
	}
	return p, doc, true
}

// grow extends a set to n members without moving it more often than needed.
func grow(s bitset.Set, n int) bitset.Set {
	for len(s) < (n+63)/64 {
		s = append(s, 0)
	}
	return s
}

// showLocked makes the documents from first to end of a memtable visible. Numbers between the last visible one and first belong
// to writes that failed; they are dead from the start. It needs Shard.mu.
func (p *part) showLocked(first, end uint32) {
	p.live = grow(p.live, int(end))
	for d := p.docs; d < first; d++ {
		p.killed = append(p.killed, d)
	}
	for d := first; d < end; d++ {
		p.live.Add(d)
	}
	p.mem.AppendLengths(first, end, func(field int, _ uint32, length uint16) {
		for len(p.stats) <= field {
			p.stats = append(p.stats, score.FieldStats{})
		}
		p.stats[field].Add(score.FieldStats{SumLen: uint64(length), Docs: 1})
	})
	p.docs = end
	p.leaf = nil
}

// killLocked makes a visible document dead. It needs Shard.mu.
func (p *part) killLocked(doc uint32) {
	if !p.live.Has(doc) {
		return
	}
	p.live.Remove(doc)
	p.killed = append(p.killed, doc)
	p.leaf = nil
	if p.mem != nil {
		p.mem.AppendLengths(doc, doc+1, func(field int, _ uint32, length uint16) {
			p.stats[field].SumLen -= uint64(length) // zeros are left out
			p.stats[field].Docs--
		})
		return
	}
	p.seg.subtract(p.stats, doc)
}

// leafLocked returns the part as a leaf, made anew only if the part changed. It needs Shard.mu.
func (p *part) leafLocked() exec.Leaf {
	if p.leaf != nil {
		return p.leaf
	}
	killed := p.killed[:len(p.killed):len(p.killed)]
	var live bitset.Set
	if len(killed) > 0 {
		live = p.live.Clone()
	}
	stats := append([]score.FieldStats(nil), p.stats...)
	if p.mem != nil {
		v := p.mem.View(p.docs, live, killed)
		v.SetStats(stats)
		p.leaf = v
	} else {
		p.leaf = &segmentLeaf{f: p.seg, live: live, killed: killed, stats: stats, deaths: &p.seg.deaths}
	}
	return p.leaf
}

// committedLeafLocked returns a segment as the manifest has it, nil if no document is alive there. It needs Shard.mu.
func (p *part) committedLeafLocked() exec.Leaf {
	if p.committed == len(p.killed) {
		if p.aliveLocked() == 0 {
			return nil
		}
		return p.leafLocked()
	}
	killed := p.killed[:p.committed:p.committed]
	if len(killed) == int(p.docs) {
		return nil
	}
	live, stats := bitset.Full(int(p.docs)), append([]score.FieldStats(nil), p.seg.stats()...)
	for _, d := range killed {
		live.Remove(d)
		p.seg.subtract(stats, d)
	}
	if len(killed) == 0 {
		live = nil
	}
	return &segmentLeaf{f: p.seg, live: live, killed: killed, stats: stats, deaths: &p.seg.deaths}
}

// verifyLocked fails unless the part keeps what its type promises. It needs Shard.mu.
func (p *part) verifyLocked() {
	if n := p.live.Count(); n != int(p.aliveLocked()) {
		invariant.Fail("%d documents are live, %d of %d were killed", n, len(p.killed), p.docs)
	}
	if p.committed < 0 || p.committed > p.marked || p.marked > len(p.killed) {
		invariant.Fail("%d deaths are committed, %d marked, there are %d", p.committed, p.marked, len(p.killed))
	}
	if p.next != nil || p.gone {
		invariant.Fail("a part that was replaced is in use")
	}
	if l := p.leaf; l != nil && (l.LiveDocs() != p.aliveLocked() || l.NumDocs() != p.docs) {
		invariant.Fail("the leaf of an unchanged part has %d of %d documents live, the part %d of %d", l.LiveDocs(), l.NumDocs(), p.aliveLocked(), p.docs)
	}
}

// aliveLocked is the number of visible live documents. It needs Shard.mu.
func (p *part) aliveLocked() uint32 { return p.docs - uint32(len(p.killed)) }

// deadSetLocked returns the first k deaths as a set. It needs Shard.mu.
func (p *part) deadSetLocked(k int) bitset.Set {
	s := bitset.New(int(p.docs))
	for _, d := range p.killed[:k] {
		s.Add(d)
	}
	return s
}

// findApplied returns the document with the key that is alive after all applied operations. It needs Shard.writeMu.
func (p *part) findApplied(key string) (uint32, bool) {
	var d uint32
	var ok bool
	if p.mem != nil {
		d, ok = p.mem.Latest(key)
	} else {
		d, ok = p.seg.find(key)
	}
	return d, ok && p.applied.Has(d)
}
