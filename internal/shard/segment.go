package shard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// segmentFile is an open segment, shared by the shard and by snapshots. The reader is closed when the last of them lets go.
type segmentFile struct {
	meta    store.Segment
	r       *segment.Reader
	text    []int                     // fields with lengths
	vectors []fieldVectors            // dense and binary
	filter  atomic.Pointer[keyFilter] // nil until it is built
	deaths  deathCounts
	masking *ctxMutex             // one mask is made at a time
	masks   []*mask               // the one used last at the end; guarded by masking
	refs    atomic.Int32          // >= 1 while in use
	sums    atomic.Pointer[[]Sum] // of all documents; nil until they are wanted
	summing *ctxMutex
	log     *slog.Logger
	id      uint64 // of this process, never given twice
}

// segmentIDs numbers the segments that this process opened.
var segmentIDs atomic.Uint64

func newSegmentFile(meta store.Segment, r *segment.Reader, log *slog.Logger) *segmentFile {
	f := &segmentFile{meta: meta, r: r, log: log, id: segmentIDs.Add(1), masking: newCtxMutex(), summing: newCtxMutex()}
	for _, m := range r.Fields() {
		if m.Inverted {
			f.text = append(f.text, m.ID)
		}
		if x, ok := r.Vectors(m.ID); ok {
			f.vectors = append(f.vectors, fieldVectors{m.ID, x.Len(), x.Params()})
		}
	}
	f.refs.Store(1)
	return f
}

// buildFilter makes the key filter, which takes a fraction of a second for a million documents. The caller holds a reference.
func (f *segmentFile) buildFilter(ctx context.Context) {
	filter := newKeyFilter(int(f.r.NumDocs()))
	var buf []byte
	for d := range f.r.NumDocs() {
		if d%4096 == 0 && ctx.Err() != nil {
			return
		}
		buf = f.r.Key(d, buf[:0])
		filter.add(buf)
	}
	f.filter.Store(filter)
}

func (f *segmentFile) retain() {
	if n := f.refs.Add(1); invariant.Enabled && n <= 1 {
		invariant.Fail("segment %s is retained after its release", f.meta.ID)
	}
}

func (f *segmentFile) release() {
	n := f.refs.Add(-1)
	if invariant.Enabled && n < 0 {
		invariant.Fail("segment %s is released once too often", f.meta.ID)
	}
	if n == 0 {
		f.forgetSums()
		if err := f.r.Close(); err != nil {
			f.log.Warn("close segment", "segment", f.meta.ID, "err", err)
		}
	}
}

// stats returns the statistics of all documents, dead or not, by field id.
func (f *segmentFile) stats() []score.FieldStats {
	var out []score.FieldStats
	for _, id := range f.text {
		for len(out) <= id {
			out = append(out, score.FieldStats{})
		}
		out[id] = f.r.FieldStats(id)
	}
	return out
}

// find returns the document with the key, live or not.
func (f *segmentFile) find(key string) (uint32, bool) {
	if filter := f.filter.Load(); filter != nil && !filter.has(key) {
		return 0, false
	}
	return f.r.FindKey(key)
}

// segmentLeaf is a segment with a set of dead documents. It implements exec.Leaf.
type segmentLeaf struct {
	f      *segmentFile
	live   bitset.Set
	killed []uint32 // a prefix of the segment's deaths, or of its mask's, in the order they came
	stats  []score.FieldStats
	deaths *deathCounts // for deaths in that order
}

var _ exec.Leaf = (*segmentLeaf)(nil)

// NumDocs and the other methods are those of exec.Leaf.
func (l *segmentLeaf) NumDocs() uint32 { return l.f.r.NumDocs() }

func (l *segmentLeaf) Live() bitset.Set {
	if len(l.killed) == 0 {
		return nil
	}
	return l.live
}

func (l *segmentLeaf) LiveDocs() uint32 { return l.f.r.NumDocs() - uint32(len(l.killed)) }
func (l *segmentLeaf) KeyOrdered() bool { return true }

func (l *segmentLeaf) FieldStats(field int) score.FieldStats {
	if field < 0 || field >= len(l.stats) {
		return score.FieldStats{}
	}
	return l.stats[field]
}

func (l *segmentLeaf) DocFreq(field int, term []byte, check func(n int) error) (uint64, error) {
	p, ok := l.f.r.Postings(field, term)
	if !ok {
		return 0, l.f.r.Err()
	}
	df := uint64(p.DocFreq())
	if len(l.killed) == 0 {
		return df, nil
	}
	dead, err := l.deaths.count(field, term, &p, l, check)
	if err != nil {
		return 0, err
	}
	if err := p.Err(); err != nil {
		return 0, fmt.Errorf("segment %s: count dead postings: %w", l.f.meta.ID, err)
	}
	if uint64(dead) > df {
		return 0, fmt.Errorf("segment %s: %d dead postings of %d", l.f.meta.ID, dead, df)
	}
	return df - uint64(dead), nil
}

func (l *segmentLeaf) Postings(field int, term []byte) (segment.Postings, bool) {
	return l.f.r.Postings(field, term)
}

func (l *segmentLeaf) ScanTerms(field int, prefix []byte, fn func(term []byte, df uint32) bool) error {
	return l.f.r.ScanTerms(field, prefix, fn)
}

// ScanPostings is ScanTerms with the list of each term; see segment.Reader.
func (l *segmentLeaf) ScanPostings(field int, prefix []byte, fn func(term []byte, p segment.Postings) bool) error {
	return l.f.r.ScanPostings(field, prefix, fn)
}

func (l *segmentLeaf) Lengths(field int) []uint16 { return l.f.r.Lengths(field) }

func (l *segmentLeaf) Present(field int) func(doc uint32) bool {
	p := l.f.r.Present(field)
	if p.Count() == 0 {
		return nil
	}
	return p.Has
}

func (l *segmentLeaf) NumColumn(field int) exec.NumColumn {
	if c, ok := l.f.r.NumColumn(field); ok {
		return c
	}
	return nil
}

func (l *segmentLeaf) StrColumn(field int) exec.StrColumn {
	if c, ok := l.f.r.StrColumn(field); ok {
		return c
	}
	return nil
}

func (l *segmentLeaf) Vectors(field int) *vector.Index {
	x, _ := l.f.r.Vectors(field)
	return x
}

func (l *segmentLeaf) SparseVectors(field int) *sparse.Index {
	x, _ := l.f.r.SparseVectors(field)
	return x
}

func (l *segmentLeaf) Identity() uint64 { return l.f.id }

func (l *segmentLeaf) Key(doc uint32, dst []byte) []byte { return l.f.r.Key(doc, dst) }

func (l *segmentLeaf) Source(doc uint32, dst []byte) ([]byte, error) {
	b, err := l.f.r.Source(doc, dst)
	if err != nil {
		return nil, fmt.Errorf("segment %s: source of document %d: %w", l.f.meta.ID, doc, err)
	}
	return b, nil
}

func (l *segmentLeaf) Err() error { return l.f.r.Err() }

func (l *segmentLeaf) find(key string) (uint32, bool) {
	d, ok := l.f.find(key)
	return d, ok && (len(l.killed) == 0 || l.live.Has(d))
}

// deathCounts remembers for terms how many of their postings are dead. The deaths of a segment have an order, and a leaf sees
// a prefix of it; so a count made for the first k deaths serves a leaf with more of them by looking at the rest only. Bounded: when
// it is full it starts over, which costs time only. Safe for concurrent use.
type deathCounts struct {
	mu sync.Mutex
	m  map[deathKey]deathCount
}

type deathKey struct {
	field int
	term  string
}

type deathCount struct{ dead, upTo uint32 }

// maxDeathCounts bounds the terms remembered for one segment.
const maxDeathCounts = 1 << 14

func (c *deathCounts) count(field int, term []byte, p *segment.Postings, l *segmentLeaf, check func(n int) error) (uint32, error) {
	k := uint32(len(l.killed))
	c.mu.Lock()
	have := c.m[deathKey{field, string(term)}] // does not allocate
	c.mu.Unlock()
	switch {
	case have.upTo == k:
		return have.dead, nil
	case have.upTo > k:
		return countDead(p, l, l.killed, check) // an older snapshot
	}
	n, err := countDead(p, l, l.killed[have.upTo:], check)
	if n += have.dead; err != nil || p.Err() != nil {
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxDeathCounts {
		c.m = make(map[deathKey]deathCount)
	}
	if c.m[deathKey{field, string(term)}].upTo < k {
		c.m[deathKey{field, string(term)}] = deathCount{n, k}
	}
	return n, nil
}

// countDead counts the postings whose document is in docs.
func countDead(p *segment.Postings, l *segmentLeaf, docs []uint32, check func(n int) error) (uint32, error) {
	var buf [segment.BlockSize]uint32
	n := uint32(0)
	if len(docs) < p.DocFreq()/64 {
		docs = slices.Clone(docs)
		slices.Sort(docs)
		block, have := 0, -1
		var size int
		for i, d := range docs {
			if i%1024 == 1023 {
				if err := check(1024 * 16); err != nil {
					return 0, err
				}
			}
			if block = p.SeekBlock(block, d); block >= p.Blocks() {
				break
			}
			if have != block {
				size = p.Docs(block, &buf)
				have = block
			}
			if _, ok := slices.BinarySearch(buf[:size], d); ok {
				n++
			}
		}
		return n, nil
	}
	has := l.live.Has
	dead := false // membership that counts
	if len(docs) != len(l.killed) {
		set := bitset.New(int(l.NumDocs()))
		for _, d := range docs {
			set.Add(d)
		}
		has, dead = set.Has, true
	}
	for b := range p.Blocks() {
		if b%32 == 31 {
			if err := check(32 * segment.BlockSize); err != nil {
				return 0, err
			}
		}
		for _, d := range buf[:p.Docs(b, &buf)] {
			if d < l.NumDocs() && has(d) == dead {
				n++
			}
		}
	}
	return n, nil
}
