package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// MergeSource is one input of a merge.
type MergeSource struct {
	R    *Reader
	Live bitset.Set // documents to keep; nil: every document
}

// MergeOptions has the zero value as default.
type MergeOptions struct {
	WriterOptions
	// Limit is called before each write with its number of bytes, at most 256 KiB; it may wait, and its error stops the
	// merge. nil: no limit.
	Limit func(n int) error
}

// NoDoc in a remap stands for a document that was dropped.
const NoDoc = 0xFFFFFFFF

// Merge writes the live documents of the sources as one segment: the same bytes that a Writer makes of these documents. remap
// tells for each source and document the new number, NoDoc if it was dropped.
//
// No key may be live in two sources (ErrDuplicateKey). A field that has positions in only some sources loses them. Vectors of a field
// must have been written with the same parameters (ErrOrder), but for those that WriterOptions.Graph gives; their records are copied, their
// index is built anew.
//
// Memory: 4 bytes for each document of the sources, 2 for each new one, and one at a time: what a Writer takes for a field, 12
// bytes for each value and document of a column, or 8 bytes for each vector. When ctx ends, Merge returns its cause within a block of
// work.
func Merge(ctx context.Context, w io.Writer, sources []MergeSource, o MergeOptions) (Info, [][]uint32, error) {
	if o.Limit != nil {
		w = &limitedWriter{w, o.Limit}
	}
	m := &merger{ctx: ctx, w: NewWriter(w, o.WriterOptions), sources: sources}
	if err := m.run(); err != nil {
		return Info{}, nil, fmt.Errorf("merge %d segments: %w", len(sources), err)
	}
	info, err := m.w.Finish()
	if err != nil {
		return Info{}, nil, fmt.Errorf("merge %d segments: %w", len(sources), err)
	}
	return info, m.remap, nil
}

type limitedWriter struct {
	w     io.Writer
	limit func(n int) error
}

const limitedWrite = 256 << 10

func (l *limitedWriter) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		part := b[done:min(len(b), done+limitedWrite)]
		if err := l.limit(len(part)); err != nil {
			return done, err
		}
		n, err := l.w.Write(part)
		if done += n; err != nil {
			return done, err
		}
		if n < len(part) {
			return done, io.ErrShortWrite
		}
	}
	return done, nil
}

type merger struct {
	ctx     context.Context
	w       *Writer
	sources []MergeSource
	remap   [][]uint32
	from    []uint16 // source of each new document
	ticks   int

	heads []listHead
	order []*listHead // binary heap by document: heads are too big to move
	docs  []uint32    // postings gathered for the writer
	freqs []uint32
	pos   []uint32
}

// tick is called once for each small piece of work and looks at the context now and then.
func (m *merger) tick() error {
	if m.ticks++; m.ticks&255 != 0 {
		return nil
	}
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	return m.w.Err()
}

// check returns the first error of the writer or of a source.
func (m *merger) check() error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	for _, s := range m.sources {
		if err := s.R.Err(); err != nil {
			return err
		}
	}
	return m.w.Err()
}

func (m *merger) run() error {
	if len(m.sources) > 1<<16 {
		return fmt.Errorf("%d segments: %w", len(m.sources), ErrTooLarge)
	}
	fields, err := m.fields()
	if err != nil {
		return err
	}
	if err := m.keys(fields); err != nil {
		return err
	}
	for _, part := range []func(FieldMeta) error{m.inverted, m.numbers, m.strings, m.presence, m.vectors, m.sparse} {
		for _, f := range fields {
			if err := part(f); err != nil {
				return fmt.Errorf("field %d: %w", f.ID, err)
			}
			if err := m.check(); err != nil {
				return fmt.Errorf("field %d: %w", f.ID, err)
			}
		}
	}
	if !m.w.o.NoSources {
		if err := m.storedSources(); err != nil {
			return err
		}
	}
	return m.check()
}

// fields unites the fields of the sources.
func (m *merger) fields() ([]FieldMeta, error) {
	var fields []FieldMeta
	for _, s := range m.sources {
		for _, f := range s.R.Fields() {
			i, ok := slices.BinarySearchFunc(fields, f.ID, func(f FieldMeta, id int) int { return f.ID - id })
			if !ok {
				fields = slices.Insert(fields, i, FieldMeta{ID: f.ID, Name: f.Name})
			} else if fields[i].Name != f.Name {
				return nil, fmt.Errorf("field %d is %q in one segment and %q in another: %w", f.ID, fields[i].Name, f.Name, ErrOrder)
			}
		}
	}
	return fields, nil
}

func (s *MergeSource) isLive(doc uint32) bool { return s.Live == nil || s.Live.Has(doc) }

// keys begins the segment, writes the keys and numbers the documents.
func (m *merger) keys(fields []FieldMeta) error {
	docs := 0
	for i := range m.sources {
		s := &m.sources[i]
		n := int(s.R.NumDocs())
		if s.Live != nil {
			if len(s.Live) != (n+63)/64 {
				return fmt.Errorf("%s: set of live documents has %d words for %d documents", s.R.Name(), len(s.Live), n)
			}
			if n%64 != 0 && s.Live[len(s.Live)-1]>>(n%64) != 0 {
				return fmt.Errorf("%s: set of live documents has one above %d", s.R.Name(), n)
			}
			n = s.Live.Count()
		}
		docs += n
		r := make([]uint32, s.R.NumDocs())
		for d := range r {
			r[d] = NoDoc
		}
		m.remap = append(m.remap, r)
	}
	if uint64(docs) > MaxDocs {
		return fmt.Errorf("%d documents: %w", docs, ErrTooLarge)
	}
	m.w.Begin(docs, fields)
	m.from = make([]uint16, 0, docs)

	cursors := make([]keyCursor, len(m.sources))
	var h mergeHeap
	for i := range m.sources {
		cursors[i].c.start(m.sources[i].R.keys, 0, 0)
		cursors[i].doc = -1
		if cursors[i].next(&m.sources[i]) {
			h.push(mergeItem{cursors[i].c.cur, i})
		}
	}
	for len(h) > 0 {
		if err := m.tick(); err != nil {
			return err
		}
		i := h[0].src
		c := &cursors[i]
		key := h[0].key
		if len(h) > 1 && bytes.Equal(key, h.second().key) {
			return fmt.Errorf("key %q in %s and %s: %w", clip(key), m.sources[i].R.Name(), m.sources[h.second().src].R.Name(), ErrDuplicateKey)
		}
		m.w.Key(key, m.sources[i].R.CommitTS(uint32(c.doc)))
		m.remap[i][c.doc] = uint32(len(m.from))
		m.from = append(m.from, uint16(i))
		if c.next(&m.sources[i]) {
			h[0].key = c.c.cur
			h.down(0)
		} else {
			h.pop()
		}
	}
	return m.check()
}

// keyCursor walks the keys of the live documents of a source.
type keyCursor struct {
	c   tableCursor
	doc int
}

func (k *keyCursor) next(s *MergeSource) bool {
	for {
		if k.c.i == k.c.n && !k.c.loadBlock() || !k.c.step() {
			return false
		}
		k.doc++
		if s.isLive(uint32(k.doc)) {
			return true
		}
	}
}

// each calls fn for the new documents in order with where they come from.
func (m *merger) each(fn func(src int, doc uint32) error) error {
	next := make([]uint32, len(m.sources))
	for _, src := range m.from {
		if err := m.tick(); err != nil {
			return err
		}
		d := next[src]
		for m.remap[src][d] == NoDoc {
			d++
		}
		next[src] = d + 1
		if err := fn(int(src), d); err != nil {
			return err
		}
	}
	return nil
}

// mergeItem is the least string of a source that is not merged yet.
type mergeItem struct {
	key []byte
	src int
}

// mergeHeap is a binary heap by key, then source.
type mergeHeap []mergeItem

func (h mergeHeap) less(i, j int) bool {
	if c := bytes.Compare(h[i].key, h[j].key); c != 0 {
		return c < 0
	}
	return h[i].src < h[j].src
}

func (h mergeHeap) down(i int) {
	for {
		j := 2*i + 1
		if j >= len(h) {
			return
		}
		if j+1 < len(h) && h.less(j+1, j) {
			j++
		}
		if !h.less(j, i) {
			return
		}
		h[i], h[j] = h[j], h[i]
		i = j
	}
}

func (h *mergeHeap) push(it mergeItem) {
	*h = append(*h, it)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.less(i, up) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *mergeHeap) pop() {
	s := *h
	s[0] = s[len(s)-1]
	*h = s[:len(s)-1]
	h.down(0)
}

// second is the item that would be first without the first.
func (h mergeHeap) second() *mergeItem {
	if len(h) > 2 && h.less(2, 1) {
		return &h[2]
	}
	return &h[1]
}

// inverted merges the inverted index of a field.
func (m *merger) inverted(meta FieldMeta) error {
	var idx []*invField
	var src []int
	positions := true
	for i, s := range m.sources {
		if f := s.R.parts(meta.ID).inv; f != nil {
			idx, src = append(idx, f), append(src, i)
			positions = positions && f.meta.Positions
		}
	}
	if len(idx) == 0 {
		return nil
	}
	lens := make([]uint16, len(m.from))
	for i, f := range idx {
		for d, n := range m.remap[src[i]] {
			if n != NoDoc {
				lens[n] = f.lens[d]
			}
		}
	}
	m.w.BeginField(meta.ID, positions, lens)
	cursors := make([]termCursor, len(idx))
	m.heads = slices.Grow(m.heads[:0], len(idx))[:len(idx)]
	var h mergeHeap
	for i, f := range idx {
		cursors[i].seek(f, nil)
		if cursors[i].next() {
			h.push(mergeItem{cursors[i].term(), i})
		}
	}
	var term []byte
	for len(h) > 0 {
		if err := m.tick(); err != nil {
			return err
		}
		term = append(term[:0], h[0].key...)
		m.w.StartTerm(term)
		n := 0
		for len(h) > 0 && n < len(m.heads) && bytes.Equal(h[0].key, term) {
			i := h[0].src
			c := &cursors[i]
			hd := &m.heads[n]
			n++
			if !c.postings(&hd.p) {
				return m.sources[src[i]].R.Err()
			}
			hd.remap = m.remap[src[i]]
			if c.next() {
				h[0].key = c.term()
				h.down(0)
			} else {
				h.pop()
			}
		}
		if err := m.lists(m.heads[:n], positions); err != nil {
			return err
		}
		m.w.EndTerm()
	}
	m.w.EndField()
	return nil
}

// listHead walks the live postings of a source's list.
type listHead struct {
	p           Postings
	remap       []uint32
	b, i, n     int    // block, place and length of the block; b is the next block to read
	doc         uint32 // new number of the current posting's document
	docs, freqs [BlockSize]uint32
	pos         []uint32
	at          int // of the current posting's positions
}

// next moves to the next live posting.
func (l *listHead) next(positions bool) bool {
	for {
		if l.i++; l.i >= l.n {
			if l.b == l.p.Blocks() {
				return false
			}
			l.n = l.p.DocsFreqs(l.b, &l.docs, &l.freqs)
			if positions {
				l.pos = l.p.BlockPositions(l.b, &l.freqs, l.pos[:0])
			}
			if l.p.Err() != nil {
				return false
			}
			l.b++
			l.i, l.at = 0, 0
		} else if positions {
			l.at += int(l.freqs[l.i-1])
		}
		if l.doc = l.remap[l.docs[l.i]]; l.doc != NoDoc {
			return true
		}
	}
}

// lists writes the postings of the heads as one list.
func (m *merger) lists(heads []listHead, positions bool) error {
	h := m.order[:0]
	for i := range heads {
		l := &heads[i]
		l.b, l.i, l.n = 0, -1, 0
		if l.next(positions) {
			h = append(h, l)
		}
		if err := l.p.Err(); err != nil {
			return err
		}
	}
	m.order = h
	for i := len(h)/2 - 1; i >= 0; i-- {
		listDown(h, i)
	}
	for len(h) > 0 {
		l := h[0]
		m.docs = append(m.docs, l.doc)
		f := l.freqs[l.i]
		m.freqs = append(m.freqs, f)
		if positions {
			if f == 1 { // most are, and a call to copy 4 bytes shows
				m.pos = append(m.pos, l.pos[l.at])
			} else {
				m.pos = append(m.pos, l.pos[l.at:l.at+int(f)]...)
			}
		}
		if len(m.docs) == 8*BlockSize {
			if err := m.flush(); err != nil {
				return err
			}
		}
		if l.next(positions) {
			listDown(h, 0)
			continue
		}
		if err := l.p.Err(); err != nil {
			return err
		}
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		listDown(h, 0)
	}
	return m.flush()
}

func listDown(h []*listHead, i int) {
	for {
		j := 2*i + 1
		if j >= len(h) {
			return
		}
		if j+1 < len(h) && h[j+1].doc < h[j].doc {
			j++
		}
		if h[j].doc >= h[i].doc {
			return
		}
		h[i], h[j] = h[j], h[i]
		i = j
	}
}

// flush gives the gathered postings to the writer.
func (m *merger) flush() error {
	m.w.Add(m.docs, m.freqs, m.pos)
	m.docs, m.freqs, m.pos = m.docs[:0], m.freqs[:0], m.pos[:0]
	return m.tick()
}

// numbers merges a column of numbers.
func (m *merger) numbers(meta FieldMeta) error {
	cols := make([]*NumColumn, len(m.sources))
	values := uint64(0)
	for i, s := range m.sources {
		if cols[i] = s.R.parts(meta.ID).num; cols[i] != nil {
			values += cols[i].values
		}
	}
	if values == 0 {
		return nil
	}
	starts, vals, err := m.column(cols, values)
	if err != nil {
		return err
	}
	m.w.NumColumn(meta.ID, starts, vals)
	return nil
}

// column gathers the values of the new documents; a column may be nil.
func (m *merger) column(cols []*NumColumn, values uint64) ([]uint32, []uint64, error) {
	starts := make([]uint32, 1, len(m.from)+1)
	vals := make([]uint64, 0, values)
	err := m.each(func(src int, doc uint32) error {
		if cols[src] != nil {
			vals = cols[src].Values(doc, vals)
		}
		if uint64(len(vals)) > 1<<32-1 {
			return fmt.Errorf("%d values: %w", len(vals), ErrTooLarge)
		}
		starts = append(starts, uint32(len(vals)))
		return nil
	})
	return starts, vals, err
}

// strings merges a column of text.
func (m *merger) strings(meta FieldMeta) error {
	cols := make([]*StrColumn, len(m.sources))
	nums := make([]*NumColumn, len(m.sources))
	newOrd := make([][]uint32, len(m.sources))
	values, used := uint64(0), false
	var ords []uint32
	for i := range m.sources {
		c := m.sources[i].R.parts(meta.ID).str
		if c == nil {
			continue
		}
		cols[i], nums[i] = c, c.ords
		values += c.ords.values
		// Ordinals that a live document has are 1 first; the others fall out of the dictionary.
		newOrd[i] = make([]uint32, c.NumOrds())
		for d, n := range m.remap[i] {
			if n == NoDoc {
				continue
			}
			if err := m.tick(); err != nil {
				return err
			}
			ords = c.Ords(uint32(d), ords[:0])
			for _, o := range ords {
				newOrd[i][o] = 1
				used = true
			}
		}
	}
	if !used {
		return nil
	}
	starts, vals, err := m.column(nums, values)
	if err != nil {
		return err
	}
	if !m.w.advance(stageStrings, meta.ID) {
		return m.w.Err()
	}
	cursors := make([]ordCursor, len(m.sources))
	var h mergeHeap
	for i, c := range cols {
		if c == nil {
			continue
		}
		cursors[i] = ordCursor{used: newOrd[i], ord: -1}
		cursors[i].c.start(c.dict, 0, 0)
		if cursors[i].next() {
			h.push(mergeItem{cursors[i].c.cur, i})
		}
	}
	var value []byte
	var stop error
	m.w.strDict(meta.ID, func() ([]byte, bool) {
		if stop = m.tick(); stop != nil || len(h) == 0 {
			return nil, false
		}
		value = append(value[:0], h[0].key...)
		return value, true
	}, func(ord uint64) {
		for len(h) > 0 && bytes.Equal(h[0].key, value) {
			i := h[0].src
			c := &cursors[i]
			newOrd[i][c.ord] = uint32(ord)
			if c.next() {
				h[0].key = c.c.cur
				h.down(0)
			} else {
				h.pop()
			}
		}
	})
	if stop != nil {
		return stop
	}
	if err := m.check(); err != nil {
		return err
	}
	i := 0
	for n, src := range m.from {
		for ; i < int(starts[n+1]); i++ {
			o := vals[i]
			if o >= uint64(len(newOrd[src])) {
				return cols[src].ords.sec.damaged("ordinal %d of %d", o, len(newOrd[src]))
			}
			vals[i] = uint64(newOrd[src][o])
		}
	}
	m.w.column(tagOrdinals, meta.ID, starts, vals)
	return nil
}

// ordCursor walks the used values of a dictionary.
type ordCursor struct {
	c    tableCursor
	used []uint32 // 0: not used. Places behind the cursor hold new ordinals.
	ord  int
}

func (o *ordCursor) next() bool {
	for {
		if o.c.i == o.c.n && !o.c.loadBlock() || !o.c.step() {
			return false
		}
		if o.ord++; o.used[o.ord] != 0 {
			return true
		}
	}
}

// presence merges the sets of documents with a value.
func (m *merger) presence(meta FieldMeta) error {
	set := bitset.New(len(m.from))
	n := 0
	for i := range m.sources {
		p := m.sources[i].R.Present(meta.ID)
		for d, ok := p.NextSet(0); ok; d, ok = p.NextSet(d + 1) {
			if nd := m.remap[i][d]; nd != NoDoc {
				set.Add(nd)
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	docs := make([]uint32, 0, n)
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			docs = append(docs, uint32(i*64+bits.TrailingZeros64(w)))
		}
	}
	m.w.Presence(meta.ID, docs)
	return nil
}

// storedSources copies the sources. Blocks are made anew: only so do the bytes depend on the documents alone.
func (m *merger) storedSources() error {
	cache := make([]sourceBlockData, len(m.sources))
	for i := range cache {
		cache[i].b = -1
		if m.sources[i].R.sources == nil && m.sources[i].R.docs > 0 {
			return fmt.Errorf("%s: %w", m.sources[i].R.Name(), errNoSources)
		}
	}
	var b []byte
	return m.each(func(src int, doc uint32) error {
		var err error
		if b, err = m.sources[src].R.sources.get(doc, b[:0], &cache[src]); err != nil {
			return err
		}
		m.w.Source(b)
		return nil
	})
}

var errNoSources = errors.New("segment keeps no sources and cannot be merged into one that does")
