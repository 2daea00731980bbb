package memtable

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"
	"sync"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

const columnBlock = exec.ColumnBlock

// View is the memtable as of one moment: the documents below a bound with their live set. It implements exec.Leaf. Safe for
// concurrent use.
type View struct {
	t      *Table
	n      uint32 // documents of the view
	all    uint32 // documents of the table when the view was taken
	live   bitset.Set
	killed []uint32
	stats  []score.FieldStats

	c      chunks
	keys   []entry
	docKey []uint32
	docTS  []uint64
	source [][]byte
	fields []fieldView
}

type fieldView struct {
	used, indexed, positions, numbers, strings bool

	lens  []uint16
	slots []uint64
	terms []entry

	nums    []uint64
	numEnds []uint32
	blocks  []blockRange
	block   blockRange

	values  []entry
	ords    []uint32
	strEnds []uint32
	sorted  *sortedValues
	strOnce sync.Once
	strs    *strColumn

	vecs    recordTab // of the documents below the bound
	vecOnce sync.Once
	vec     *vector.Index
	spr     *sparse.Index

	present     []uint32
	presentOnce sync.Once
	presentSet  bitset.Set
}

var _ exec.Leaf = (*View)(nil)

// SetStats installs the statistics of the live documents. It must be called before the view is shared.
func (v *View) SetStats(stats []score.FieldStats) { v.stats = stats }

func (v *View) field(i int) *fieldView {
	if i < 0 || i >= len(v.fields) || !v.fields[i].used {
		return nil
	}
	return &v.fields[i]
}

// Masked returns the view without the documents whose key keep does not accept, as if they were dead. It calls check with the number
// of documents looked at, whose error ends it. keep must not keep the bytes it is given.
func (v *View) Masked(check func(n int) error, keep func(key []byte) bool) (*View, error) {
	out := *v // what it holds of fields does not depend on which documents are live
	for d := range v.n {
		if err := check(1); err != nil {
			return nil, err
		}
		if len(v.killed) > 0 && !v.live.Has(d) || keep(v.keyBytes(d)) {
			continue
		}
		if len(out.killed) == len(v.killed) { // the first
			out.live, out.killed, out.stats = bitset.Full(int(v.n)), slices.Clip(v.killed), slices.Clone(v.stats)
			if len(v.killed) > 0 {
				copy(out.live, v.live)
			}
		}
		out.live.Remove(d)
		out.killed = append(out.killed, d)
		for i := range v.fields {
			if lens := v.fields[i].lens; int(d) < len(lens) && lens[d] > 0 {
				out.stats[i].SumLen -= uint64(lens[d])
				out.stats[i].Docs--
			}
		}
	}
	return &out, nil
}

// NumDocs is the bound of document numbers.
func (v *View) NumDocs() uint32 { return v.n }

// Live is the set of live documents, nil when all are.
func (v *View) Live() bitset.Set {
	if len(v.killed) == 0 {
		return nil
	}
	return v.live
}

// LiveDocs is the number of live documents.
func (v *View) LiveDocs() uint32 { return v.n - uint32(len(v.killed)) }

// Dead is the number of documents of the view that are not live.
func (v *View) Dead() int { return len(v.killed) }

// KeyOrdered is false: documents stand in order of arrival.
func (v *View) KeyOrdered() bool { return false }

// Identity is 0: the documents of a memtable have no number.
func (v *View) Identity() uint64 { return 0 }

// Err is always nil.
func (v *View) Err() error { return nil }

// FieldStats are those of the live documents.
func (v *View) FieldStats(field int) score.FieldStats {
	if field < 0 || field >= len(v.stats) {
		return score.FieldStats{}
	}
	return v.stats[field]
}

// list decodes the postings of a term in the view; see decodeCache.get.
func (v *View) list(field int, term []byte) (decoded, *cachedList, bool) {
	f := v.field(field)
	if f == nil || !f.indexed || len(term) > 1<<16-1 {
		return decoded{}, nil, false
	}
	n, ok := find(f.slots, f.terms, v.c, hashOf(term), term)
	if !ok {
		return decoded{}, nil, false
	}
	l, borrowed := v.t.cache.get(v, f, field, n)
	return l, borrowed, len(l.docs) > 0
}

// Postings returns the list of a term, live or not, below the view's bound.
func (v *View) Postings(field int, term []byte) (segment.Postings, bool) {
	l, borrowed, ok := v.list(field, term)
	l = l.own(borrowed)
	if !ok {
		return segment.Postings{}, false
	}
	return segment.ArrayPostings(l.docs, l.freqs, l.positions), true
}

// DocFreq is the number of live documents that hold the term.
func (v *View) DocFreq(field int, term []byte, check func(n int) error) (uint64, error) {
	l, borrowed, _ := v.list(field, term)
	n := v.countLive(l.docs)
	if borrowed != nil {
		scratches.Put(borrowed)
	}
	// A memtable is bounded, and its lists are short beside those of segments: one look at the end is enough.
	return uint64(n), check(len(l.docs))
}

func (v *View) countLive(docs []uint32) int {
	n := len(docs)
	if 8*len(v.killed) < n {
		for _, d := range v.killed {
			if _, ok := slices.BinarySearch(docs, d); ok {
				n--
			}
		}
		return n
	}
	if len(v.killed) == 0 {
		return n
	}
	n = 0
	for _, d := range docs {
		if v.live.Has(d) {
			n++
		}
	}
	return n
}

// first is the first document of a term, read from the list's head, which lies whole in the first slab.
func (v *View) first(e *entry) uint32 {
	c := v.c[e.head>>chunkBits][e.head&chunkMask:]
	d, _ := binary.Uvarint(c)
	return uint32(d >> 1)
}

// ScanTerms calls fn for each term with the prefix, ascending, with its physical document frequency.
func (v *View) ScanTerms(field int, prefix []byte, fn func(term []byte, df uint32) bool) error {
	fn = invariant.Lend(fn)
	f := v.field(field)
	for _, i := range v.termsWith(f, prefix) {
		e := &f.terms[i]
		df, _ := e.load()
		if v.all != v.n || df > 1 {
			l, borrowed := v.t.cache.get(v, f, field, i)
			df = uint32(len(l.docs))
			if borrowed != nil {
				scratches.Put(borrowed)
			}
		}
		if !fn(v.c.bytes(e.term, uint32(e.size)), df) {
			break
		}
	}
	return nil
}

// ScanPostings is ScanTerms with the list of each term, which is fn's to keep, at no search for it.
func (v *View) ScanPostings(field int, prefix []byte, fn func(term []byte, p segment.Postings) bool) error {
	fn = invariant.Lend(fn)
	f := v.field(field)
	for _, i := range v.termsWith(f, prefix) {
		l, borrowed := v.t.cache.get(v, f, field, i)
		l = l.own(borrowed)
		e := &f.terms[i]
		if !fn(v.c.bytes(e.term, uint32(e.size)), segment.ArrayPostings(l.docs, l.freqs, l.positions)) {
			break
		}
	}
	return nil
}

// termsWith returns the numbers of the view's terms with the prefix, in the order of the terms.
func (v *View) termsWith(f *fieldView, prefix []byte) []uint32 {
	if f == nil || !f.indexed {
		return nil
	}
	// A scan over all terms costs a few nanoseconds each; only what it finds is sorted.
	var found []uint32
	for i := range f.terms {
		e := &f.terms[i]
		if int(e.size) >= len(prefix) && bytes.HasPrefix(v.c.bytes(e.term, uint32(e.size)), prefix) && v.first(e) < v.n {
			found = append(found, uint32(i))
		}
	}
	sortEntries(v.c, f.terms, found)
	return found
}

// Lengths holds the tokens of each document in the field.
func (v *View) Lengths(field int) []uint16 {
	f := v.field(field)
	if f == nil || !f.indexed {
		return nil
	}
	return f.lens
}

// Present returns a test for documents that have a value for the field.
func (v *View) Present(field int) func(doc uint32) bool {
	f := v.field(field)
	if f == nil {
		return nil
	}
	docs := v.presentDocs(f)
	switch {
	case len(docs) == 0:
		return nil
	case len(docs) == int(v.n):
		return func(uint32) bool { return true }
	}
	f.presentOnce.Do(func() {
		f.presentSet = bitset.New(int(v.n))
		for _, d := range docs {
			f.presentSet.Add(d)
		}
	})
	return f.presentSet.Has
}

// presentDocs are the documents of the view that have a value for the field.
func (v *View) presentDocs(f *fieldView) []uint32 {
	n := len(f.present)
	if n > 0 && f.present[n-1] >= v.n {
		n = sort.Search(n, func(i int) bool { return f.present[i] >= v.n })
	}
	return f.present[:n]
}

// Key appends the primary key of a document.
func (v *View) Key(doc uint32, dst []byte) []byte {
	e := &v.keys[v.docKey[doc]]
	return append(dst, v.c.bytes(e.term, uint32(e.size))...)
}

func (v *View) keyBytes(doc uint32) []byte {
	e := &v.keys[v.docKey[doc]]
	return v.c.bytes(e.term, uint32(e.size))
}

// Source appends the stored source of a document; nil if none is kept.
func (v *View) Source(doc uint32, dst []byte) ([]byte, error) {
	if v.source[doc] == nil {
		return nil, nil
	}
	return append(dst, v.source[doc]...), nil
}

// CommitTS is the commit timestamp of a document.
func (v *View) CommitTS(doc uint32) uint64 { return v.docTS[doc] }

// Find returns the live document with the key.
func (v *View) Find(key string) (doc uint32, ok bool) {
	v.t.mu.Lock()
	d, ok := v.t.latest(key, v.n)
	v.t.mu.Unlock()
	return d, ok && (len(v.killed) == 0 || v.live.Has(d))
}
