// Package memtable is the searchable part of a shard that is not in a segment yet: an inverted index, columns, keys and sources
// in memory, of documents in order of arrival.
//
// An Inverter does the costly work for a document without any lock; Table.Insert adds the result; Table.View captures the
// documents below a bound as an exec.Leaf; View.Write writes them as a segment.
//
// Concurrency: one goroutine inserts at a time; Views may be taken and read at once with it. A view never waits for the
// writer while it reads: posting bytes, terms and column values never move or change once written, and what was captured bounds
// what is read. Nothing is allocated for a token or a posting: terms, keys and postings live in chunks, see pool.
package memtable

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// Limits of a table.
const (
	MaxDocs  = 1 << 30
	MaxBytes = 2 << 30 // of pool memory; addresses have 32 bits
)

// Table is a memtable.
type Table struct {
	mu     sync.Mutex // held for one document by Insert and for a moment by View and Find
	p      pool
	keys   dict
	heads  []uint32 // of each key: its latest document
	docKey []uint32 // of each document: number of its key
	prev   []uint32 // of each document: the one before it with the same key, or noDoc
	docTS  []uint64
	source [][]byte
	blobs  []byte // free rest of the last block of sources
	blobed int64  // bytes of all blocks
	blocks int    // of sources
	fields []fieldTab

	size  atomic.Int64
	cache decodeCache
}

// fieldTab is what the table holds of one field. Slices grow at the end only.
type fieldTab struct {
	used      bool
	indexed   bool
	positions bool
	terms     dict
	lens      []uint16 // by document, up to the last one that has the field

	numbers bool
	nums    []uint64
	numEnds []uint32 // by document: end of its values in nums
	blocks  []blockRange
	block   blockRange // of the block that is being filled

	strings bool
	values  dict
	ords    []uint32 // numbers in values
	strEnds []uint32
	sorted  *sortedValues

	vecs recordTab

	present []uint32 // documents with a value, ascending
}

type blockRange struct {
	lo, hi uint64
	ok     bool
}

// New returns an empty table.
func New() *Table {
	t := &Table{}
	t.size.Store(t.bytes())
	return t
}

// Size is the memory in bytes that the table holds on to, without caches.
func (t *Table) Size() int64 { return t.size.Load() }

const (
	perDoc    = 4 + 4 + 8 + 24 // docKey, prev, docTS, source
	firstBlob = 16 << 10
	blobBlock = 256 << 10
)

func (t *Table) bytes() int64 {
	n := t.p.bytes + t.blobed + t.keys.bytes() + int64(cap(t.heads))*4 + int64(cap(t.docKey))*perDoc
	for i := range t.fields {
		f := &t.fields[i]
		n += f.terms.bytes() + f.values.bytes() + int64(cap(f.lens))*2 + int64(cap(f.nums))*8 +
			int64(cap(f.numEnds)+cap(f.ords)+cap(f.strEnds)+cap(f.present))*4 + f.vecs.bytes() + 64
	}
	return n
}

// Len is the number of documents inserted, visible or not. For the inserting goroutine.
func (t *Table) Len() uint32 { return uint32(len(t.docKey)) }

// Insert appends document i of the batch with its commit timestamp and returns its number. The caller bounds the table: it must
// hold fewer than MaxDocs documents and less than MaxBytes.
func (t *Table) Insert(b *Batch, i int, commitTS uint64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &b.docs[i]
	doc := uint32(len(t.docKey))
	var kb [512]byte
	key := append(kb[:0], d.key...)
	k, fresh := t.keys.add(&t.p, hashOf(key), key)
	before := uint32(noDoc)
	if fresh {
		t.heads = append(t.heads, doc)
	} else {
		before, t.heads[k] = t.heads[k], doc
	}
	t.prev = append(t.prev, before)
	t.docKey = append(t.docKey, k)
	t.docTS = append(t.docTS, commitTS)
	t.source = append(t.source, t.blob(d.source))

	from, posts, strs, nums, vecs := b.start(i)
	for _, p := range b.parts[from:d.parts] {
		for p.field >= len(t.fields) {
			t.fields = append(t.fields, fieldTab{})
		}
		f := &t.fields[p.field]
		f.used = true
		f.present = append(f.present, doc)
		if p.indexed {
			f.indexed = true
			f.positions = f.positions || p.positions
			f.lens = pad(f.lens, int(doc))
			f.lens = append(f.lens, p.length)
			for j := posts; j < p.posts; j++ {
				t.post(f, doc, b.buf, &b.posts[j])
			}
		}
		if p.numbers {
			f.numbers = true
			f.addNumbers(doc, b.nums[nums:p.nums])
		}
		if p.strings {
			f.strings = true
			f.strEnds = padEnds(f.strEnds, int(doc), len(f.ords))
			for _, s := range b.strs[strs:p.strs] {
				n, _ := f.values.add(&t.p, s.hash, b.buf[s.off:s.off+s.len])
				f.ords = append(f.ords, n)
			}
			f.strEnds = append(f.strEnds, uint32(len(f.ords)))
		}
		if p.vectors != nil || p.sparse != nil {
			f.vecs.add(doc, p.vectors, p.sparse, b.buf, b.vecs[vecs:p.vecs])
		}
		posts, strs, nums, vecs = p.posts, p.strs, p.nums, p.vecs
	}
	return doc
}

// Charge updates Size after a series of Inserts.
func (t *Table) Charge() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.bytes()
	t.size.Store(n)
	return n
}

// start returns where document i begins in parts, posts, strs, nums and vecs.
func (b *Batch) start(i int) (part, posts, strs, nums, vecs uint32) {
	if i == 0 {
		return 0, 0, 0, 0, 0
	}
	part = b.docs[i-1].parts
	if part > 0 {
		p := &b.parts[part-1]
		posts, strs, nums, vecs = p.posts, p.strs, p.nums, p.vecs
	}
	return part, posts, strs, nums, vecs
}

// pad extends s with zeros to n elements.
func pad(s []uint16, n int) []uint16 {
	if n <= len(s) {
		return s
	}
	if n <= cap(s) {
		s2 := s[:n]
		clear(s2[len(s):])
		return s2
	}
	return append(s, make([]uint16, n-len(s))...)
}

// padEnds extends s to n elements with the last end.
func padEnds(s []uint32, n, end int) []uint32 {
	for len(s) < n {
		s = append(s, uint32(end))
	}
	return s
}

// blob copies a source into a block.
func (t *Table) blob(b []byte) []byte {
	if b == nil {
		return nil
	}
	if len(b) > len(t.blobs) {
		if len(b) > blobBlock/4 && len(t.blobs) > firstBlob/2 { // a big one alone, so that the rest of the block stays in use
			t.blobed += int64(len(b))
			return append([]byte(nil), b...)
		}
		t.blobs = make([]byte, grown(firstBlob, t.blocks, len(b), blobBlock))
		t.blobed += int64(len(t.blobs))
		t.blocks++
	}
	n := copy(t.blobs, b)
	out := t.blobs[:n:n]
	t.blobs = t.blobs[n:]
	return out
}

// addNumbers appends the values of a document, keeping the range of each block of columnBlock documents.
func (f *fieldTab) addNumbers(doc uint32, vals []uint64) {
	f.closeBlocks(doc)
	f.numEnds = padEnds(f.numEnds, int(doc), len(f.nums))
	f.nums = append(f.nums, vals...)
	f.numEnds = append(f.numEnds, uint32(len(f.nums)))
	for _, v := range vals {
		f.block.add(v)
	}
}

func (r *blockRange) add(v uint64) {
	if !r.ok {
		*r = blockRange{v, v, true}
		return
	}
	r.lo, r.hi = min(r.lo, v), max(r.hi, v)
}

// closeBlocks files the blocks that end before the document.
func (f *fieldTab) closeBlocks(doc uint32) {
	for uint32(len(f.blocks)) < doc/columnBlock {
		f.blocks = append(f.blocks, f.block)
		f.block = blockRange{}
	}
}

// post appends one posting to the list of its term: document delta<<1 | frequency is 1, then the payload as inverted.
func (t *Table) post(f *fieldTab, doc uint32, buf []byte, p *posting) {
	n, fresh := f.terms.add(&t.p, p.hash, buf[p.term:p.term+uint32(p.length)])
	e := &f.terms.entries[n]
	payload := buf[p.payload : p.payload+p.size]
	var tmp [binary.MaxVarintLen32]byte
	v := uint64(doc-e.last) << 1
	if p.single {
		v |= 1
	}
	k := 1
	if v < 0x80 {
		tmp[0] = byte(v)
	} else {
		k = binary.PutUvarint(tmp[:], v)
	}
	df, cur := uint32(e.state>>32), uint32(e.state) // the writer reads its own value
	if fresh {
		e.level, cur, e.link = t.p.newSlab(0, k+len(payload))
		e.head = cur
	}
	cur = t.write(e, cur, tmp[:k])
	cur = t.write(e, cur, payload)
	e.last = doc
	atomic.StoreUint64(&e.state, uint64(df+1)<<32|uint64(cur))
}

// write appends b to the list of e, whose end is cur, and returns the new end.
func (t *Table) write(e *entry, cur uint32, b []byte) uint32 {
	for {
		room := int(e.link - cur)
		o := cur & chunkMask
		c := t.p.chunks[cur>>chunkBits]
		if len(b) <= room {
			if len(b) == 1 {
				c[o] = b[0]
			} else {
				copy(c[o:], b)
			}
			return cur + uint32(len(b))
		}
		copy(c[o:], b[:room])
		b = b[room:]
		level := e.level
		if int(level) < len(slabSizes)-1 {
			level++
		}
		level, data, link := t.p.newSlab(level, len(b))
		t.p.setLink(e.link, data-1)
		e.level, e.link, cur = level, link, data
	}
}

// noDoc ends a chain of versions.
const noDoc = 1<<32 - 1

// Latest returns the latest document with the key, visible or not. For the inserting goroutine.
func (t *Table) Latest(key string) (doc uint32, ok bool) { return t.latest(key, noDoc) }

// latest returns the latest document below n with the key.
func (t *Table) latest(key string, n uint32) (uint32, bool) {
	var kb [512]byte
	b := append(kb[:0], key...)
	k, ok := find(t.keys.slots, t.keys.entries, t.p.chunks, hashOf(b), b)
	if !ok {
		return 0, false
	}
	d := t.heads[k]
	for d != noDoc && d >= n {
		d = t.prev[d]
	}
	return d, d != noDoc
}

// Rollback takes the documents from n on out of Latest. Their numbers are not given again; no view may ever hold them as live.
func (t *Table) Rollback(n uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := uint32(len(t.docKey)); d > n; d-- {
		t.heads[t.docKey[d-1]] = t.prev[d-1]
	}
}

// CommitTS returns the commit timestamp of a document. For the inserting goroutine.
func (t *Table) CommitTS(doc uint32) uint64 { return t.docTS[doc] }

// AppendLengths calls fn with the length of every document from..to-1 in every searchable field, zeros left out. For statistics;
// it holds the table's lock.
func (t *Table) AppendLengths(from, to uint32, fn func(field int, doc uint32, length uint16)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.fields {
		lens := t.fields[i].lens
		for d := from; d < to && int(d) < len(lens); d++ {
			if lens[d] != 0 {
				fn(i, d, lens[d])
			}
		}
	}
}

// View captures the documents below n, of which live are live (nil: all). killed lists the dead ones among them in any order; it
// and live must not change afterwards.
func (t *Table) View(n uint32, live bitset.Set, killed []uint32) *View {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > uint32(len(t.docKey)) {
		panic(fmt.Sprintf("memtable: view of %d documents, there are %d", n, len(t.docKey)))
	}
	v := &View{
		t: t, n: n, all: uint32(len(t.docKey)), live: live, killed: killed,
		c: t.p.chunks, keys: t.keys.entries, docKey: t.docKey[:n], docTS: t.docTS[:n], source: t.source[:n],
		fields: make([]fieldView, len(t.fields)),
	}
	for i := range t.fields {
		f := &t.fields[i]
		if !f.used {
			continue
		}
		fv := &v.fields[i]
		fv.used, fv.positions = true, f.positions
		fv.present = f.present
		if f.indexed {
			f.lens = pad(f.lens, len(t.docKey))
			fv.indexed = true
			fv.lens = f.lens[:n]
			fv.slots, fv.terms = f.terms.slots, f.terms.entries
		}
		if f.numbers {
			f.closeBlocks(uint32(max(len(t.docKey), 1) - 1))
			fv.numbers = true
			fv.nums, fv.numEnds = f.nums, f.numEnds
			fv.blocks, fv.block = f.blocks, f.block
		}
		if f.strings {
			if f.sorted == nil {
				f.sorted = &sortedValues{}
			}
			fv.strings = true
			fv.values, fv.ords, fv.strEnds, fv.sorted = f.values.entries, f.ords, f.strEnds, f.sorted
		}
		if f.vecs.used() {
			fv.vecs = f.vecs.upTo(n)
		}
	}
	return v
}
