// Package passage scores chunked text: fields whose values are passages that count on their own, where other fields count all values
// of a document as one text.
//
// A passage is scored by BM25 as a document would be. N, document frequencies and average length count the passages of live documents;
// the length of a passage is its tokens, but at least the floor, the 90th percentile of the lengths of all passages of the index, so
// that very short passages do not win by being short. The score of a document is that of its best passage.
//
// Nothing is kept between calls but what a Cache holds; leaves must not change while a call runs. All functions are safe for
// concurrent use. Errors are those of the context, and damage of a leaf.
package passage

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Stats are the statistics of one chunked field: integers over the passages of live documents, so that sums over shards are exact.
type Stats struct {
	Passages uint64            // with at least one token
	SumLen   uint64            // their tokens
	Lengths  map[uint32]uint64 // how many have each length
	DF       map[string]uint64 // passages that hold the term; absent: none

	// FloorOf is how many passages Lengths speaks of, where that are not Passages; 0: it is.
	FloorOf uint64
	// Avg is the average length where SumLen does not tell it, as in statistics that came over a wire without sums; 0: it does.
	Avg float32
}

// Add adds o, the statistics of other documents.
func (s *Stats) Add(o *Stats) {
	s.Passages += o.Passages
	s.SumLen += o.SumLen
	if s.Lengths == nil {
		s.Lengths = map[uint32]uint64{}
	}
	for l, n := range o.Lengths {
		s.Lengths[l] += n
	}
	if s.DF == nil {
		s.DF = map[string]uint64{}
	}
	for t, n := range o.DF {
		s.DF[t] += n
	}
}

// AvgLen is the average length of a passage, at least 1.
func (s *Stats) AvgLen() float32 {
	if s.Avg > 0 {
		return max(s.Avg, 1)
	}
	return score.AvgLen(score.FieldStats{SumLen: s.SumLen, Docs: s.Passages})
}

// Floor is the least length that a passage counts with: the 90th percentile of all by nearest rank, which is the least length that nine
// tenths of the passages do not exceed. It is 0 without passages.
func (s *Stats) Floor() uint32 {
	n := cmp.Or(s.FloorOf, s.Passages)
	at := n - n/10 - 1 // n − ⌊n/10⌋ is ⌈9n/10⌉
	if n == 0 {
		return 0
	}
	for _, l := range slices.Sorted(maps.Keys(s.Lengths)) {
		n := s.Lengths[l]
		if at < n {
			return l
		}
		at -= n
	}
	return 0
}

// Cache remembers the lengths of the passages of segments and how many hold a word, which never change. The zero value is ready for use.
type Cache struct {
	mu sync.Mutex
	m  map[cacheKey]map[uint32]uint64
	df map[dfKey]uint64
}

type dfKey struct {
	cacheKey
	term string
}

// mostWords bounds the words of segments that a Cache remembers, and longWord the bytes of each.
const (
	mostWords = 1 << 16
	longWord  = 64
)

func (c *Cache) word(k dfKey) (uint64, bool) {
	if c == nil || k.leaf == 0 || len(k.term) > longWord {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.df[k]
	return n, ok
}

func (c *Cache) putWord(k dfKey, n uint64) {
	if c == nil || k.leaf == 0 || len(k.term) > longWord {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.df == nil || len(c.df) >= mostWords {
		c.df = map[dfKey]uint64{}
	}
	c.df[k] = n
}

type cacheKey struct {
	leaf  uint64
	field int
}

// mostCached bounds the segments and fields that a Cache remembers. Each takes 16 bytes for each length that occurs.
const mostCached = 1024

func (c *Cache) get(k cacheKey) map[uint32]uint64 {
	if c == nil || k.leaf == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[k]
}

func (c *Cache) put(k cacheKey, v map[uint32]uint64) {
	if c == nil || k.leaf == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= mostCached {
		c.m = map[cacheKey]map[uint32]uint64{}
	}
	c.m[k] = v
}

// checkEvery is the work, in passages and places of tokens, between two looks at the context.
const checkEvery = 1 << 15

// watch looks at a context now and then.
type watch struct {
	ctx  context.Context
	work int
	err  error
}

// did counts work. When the context has ended every call says so: some look at the error of the last one only.
func (w *watch) did(n int) error {
	if w.work += n; w.work < checkEvery {
		return w.err
	}
	w.work = 0
	if w.err == nil && w.ctx.Err() != nil {
		w.err = endOf(w.ctx)
	}
	return w.err
}

// Statistics returns those of a field over the live documents of the leaves, with the frequencies of the terms.
func Statistics(ctx context.Context, leaves []exec.Leaf, field int, terms []string, cache *Cache) (*Stats, error) {
	st := &Stats{Lengths: map[uint32]uint64{}, DF: map[string]uint64{}}
	w := &watch{ctx: ctx}
	for _, l := range leaves {
		if err := lengths(w, st, l, field, cache); err != nil {
			return nil, err
		}
		for _, t := range terms {
			n, err := frequency(w, l, field, t, cache)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				st.DF[t] += n
			}
		}
		if err := l.Err(); err != nil {
			return nil, err
		}
	}
	for l, n := range st.Lengths {
		if n == 0 {
			delete(st.Lengths, l)
			continue
		}
		st.Passages += n
		st.SumLen += n * uint64(l)
	}
	return st, nil
}

// lengths adds the lengths of the passages of a leaf: those of all documents, which are remembered, less those of the dead.
func lengths(w *watch, st *Stats, l exec.Leaf, field int, cache *Cache) error {
	col := l.NumColumn(field)
	if col == nil {
		return nil
	}
	var vals []uint64
	count := func(doc uint32, to map[uint32]uint64, by uint64) error {
		vals = col.Values(doc, vals[:0])
		for _, v := range vals {
			if n, _ := segment.DecodeChunk(v); n > 0 {
				to[n] += by
			}
		}
		return w.did(1 + len(vals))
	}
	live := l.Live()
	k := cacheKey{l.Identity(), field}
	all := cache.get(k)
	if all == nil {
		all = map[uint32]uint64{}
		for d := range l.NumDocs() {
			if err := count(d, all, 1); err != nil {
				return err
			}
		}
		cache.put(k, all)
	}
	for n, c := range all {
		st.Lengths[n] += c
	}
	if live == nil {
		return nil
	}
	for d := range l.NumDocs() {
		if !live.Has(d) {
			if err := count(d, st.Lengths, math.MaxUint64); err != nil { // less one
				return err
			}
		}
	}
	return nil
}

// frequency counts the passages of live documents of a leaf that hold a term: those of all documents, which are remembered, less those
// of the dead.
func frequency(w *watch, l exec.Leaf, field int, term string, cache *Cache) (uint64, error) {
	k := dfKey{cacheKey{l.Identity(), field}, term}
	all, known := cache.word(k)
	if !known {
		var err error
		if all, err = count(w, l, field, term, nil); err != nil {
			return 0, err
		}
		cache.putWord(k, all)
	}
	live := l.Live()
	if live == nil || all == 0 {
		return all, nil
	}
	dead, err := count(w, l, field, term, live)
	return all - dead, err
}

// count counts the passages of a leaf that hold a term, but for those of the documents in without.
func count(w *watch, l exec.Leaf, field int, term string, without bitset.Set) (n uint64, err error) {
	f := newField(l, field)
	c, ok := f.list(term)
	if !ok {
		return 0, nil
	}
	for doc := c.next(); doc != noDoc; doc = c.next() {
		work := 1
		if without == nil || !without.Has(doc) {
			f.at(doc)
			f.occurrences(c, func(int, uint32) { n++ })
			work += len(c.pos)
		}
		if err := w.did(work); err != nil {
			return 0, err
		}
	}
	return n, nil
}

const noDoc = math.MaxUint32

// fieldOf reads the passages of the documents of one leaf.
type fieldOf struct {
	leaf  exec.Leaf
	id    int
	col   exec.NumColumn
	vals  []uint64
	plain bool // every passage of the document takes one stride
	doc   uint32
}

func newField(l exec.Leaf, id int) *fieldOf {
	return &fieldOf{leaf: l, id: id, col: l.NumColumn(id), doc: noDoc}
}

// list returns the cursor of a term. A segment of before passages were kept has none.
func (f *fieldOf) list(term string) (*cursor, bool) {
	if f.col == nil {
		return nil, false
	}
	p, ok := f.leaf.Postings(f.id, []byte(term))
	if !ok || !p.HasPositions() {
		return nil, false
	}
	return &cursor{p: p, blk: -1}, true
}

// at reads the lengths of the passages of a document.
func (f *fieldOf) at(doc uint32) {
	if f.doc == doc {
		return
	}
	f.doc, f.plain = doc, true
	f.vals = f.col.Values(doc, f.vals[:0])
	for _, v := range f.vals {
		if _, more := segment.DecodeChunk(v); more > 0 {
			f.plain = false
		}
	}
}

// length is the tokens of a passage of the document.
func (f *fieldOf) length(ordinal int) uint32 {
	n, _ := segment.DecodeChunk(f.vals[ordinal])
	return n
}

// places calls fn with each passage of the document that some of the positions, ascending, stand in, until it says false: with the first
// position of the passage, that of the next one, as a slop may be wider than the gap between two, and the positions.
func (f *fieldOf) places(pos []uint32, fn func(ordinal int, base, end uint32, in []uint32) bool) {
	ordinal, base := 0, uint32(0) // of the passage that the next position is looked for in
	for i := 0; i < len(pos); {
		end := uint32(0)
		if f.plain {
			ordinal = int(pos[i] / segment.ChunkStride)
			base, end = uint32(ordinal)*segment.ChunkStride, uint32(ordinal+1)*segment.ChunkStride
		} else {
			for ordinal < len(f.vals) {
				_, more := segment.DecodeChunk(f.vals[ordinal])
				if end = base + (more+1)*segment.ChunkStride; pos[i] < end {
					break
				}
				base = end
				ordinal++
			}
		}
		if ordinal >= len(f.vals) {
			return // damage, which the checks of a segment find
		}
		from := i
		for i < len(pos) && pos[i] < end {
			i++
		}
		if !fn(ordinal, base, end, pos[from:i]) {
			return
		}
	}
}

// occurrences calls fn with each passage of the document that holds the term of c, which stands there, and its frequency.
func (f *fieldOf) occurrences(c *cursor, fn func(ordinal int, tf uint32)) {
	c.positions()
	f.places(c.pos, func(ordinal int, _, _ uint32, in []uint32) bool {
		fn(ordinal, uint32(len(in)))
		return true
	})
}

// cursor walks the postings of a term.
type cursor struct {
	p           segment.Postings
	blk, i, n   int
	hasFreqs    bool
	docs, freqs [segment.BlockSize]uint32
	pos         []uint32
}

func (c *cursor) load(b int) uint32 {
	c.blk, c.i, c.hasFreqs = b, 0, false
	if b >= c.p.Blocks() {
		c.n = 0
		return noDoc
	}
	if c.n = c.p.Docs(b, &c.docs); c.n == 0 {
		return noDoc
	}
	return c.docs[0]
}

// next moves to the next document, the first at first.
func (c *cursor) next() uint32 {
	if c.blk >= 0 && c.i+1 < c.n {
		c.i++
		return c.docs[c.i]
	}
	if c.blk >= 0 && c.n == 0 {
		return noDoc
	}
	return c.load(c.blk + 1)
}

// seek moves to the first document at or after target, which never goes down.
func (c *cursor) seek(target uint32) uint32 {
	if c.blk >= 0 && c.n == 0 {
		return noDoc
	}
	if c.blk < 0 || c.docs[c.n-1] < target {
		b := c.p.SeekBlock(c.blk+1, target)
		if c.load(b) == noDoc {
			return noDoc
		}
	}
	i, _ := slices.BinarySearch(c.docs[c.i:c.n], target)
	c.i += i
	return c.docs[c.i]
}

// freq is how often the document that the cursor stands on has the term.
func (c *cursor) freq() uint32 {
	if !c.hasFreqs {
		c.p.Freqs(c.blk, &c.freqs)
		c.hasFreqs = true
	}
	return c.freqs[c.i]
}

// positions reads those of the document that the cursor stands on into pos.
func (c *cursor) positions() {
	c.freq()
	c.pos = c.p.Positions(c.blk, c.i, &c.freqs, c.pos[:0])
}

// Split tells in which passages of a document positions stand: the length of each passage, and for each passage the positions of every
// list that stand there.
func Split(l exec.Leaf, field int, doc uint32, lists [][]uint32) (lengths []uint32, of [][][]uint32) {
	f := newField(l, field)
	if f.col == nil {
		return nil, nil
	}
	f.at(doc)
	lengths, of = make([]uint32, len(f.vals)), make([][][]uint32, len(f.vals))
	for i := range f.vals {
		lengths[i], of[i] = f.length(i), make([][]uint32, len(lists))
	}
	for k, pos := range lists {
		f.places(pos, func(ordinal int, _, _ uint32, in []uint32) bool {
			of[ordinal][k] = in
			return true
		})
	}
	return lengths, of
}
