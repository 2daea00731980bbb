package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/segment/bitpack"
	"github.com/weft-search/weft/internal/vector"
)

// WriterOptions has the zero value as default.
type WriterOptions struct {
	NoSources bool // sources are not kept; Source must not be called
	// Graph gives for a field of dense or binary vectors, of which it is told how they are kept, how they are to be found; nil: as the caller of
	// Vectors says, or the sources of a merge, which have to agree then.
	Graph func(field int, p vector.Params) vector.Params
}

// Info describes a finished segment.
type Info struct {
	Docs        uint32
	Bytes       int64
	Terms       uint64
	Postings    uint64
	Occurrences uint64
	Checksum    uint64 // of the footer, which holds the checksum of every section
}

// stage orders the parts of a segment.
type stage uint8

const (
	stageNew stage = iota
	stageKeys
	stageInverted
	stageNumbers
	stageStrings
	stagePresence
	stageVectors
	stageSparse
	stageSources
	stageDone
)

var stageNames = [...]string{"nothing", "keys", "inverted fields", "number columns", "text columns", "presence sets", "vectors", "sparse vectors", "sources", "the end"}

// Writer writes one segment to a stream. The parts must come in this order, each group ascending by field, so that the same
// documents always give the same bytes:
//
//	Begin
//	Key for each document
//	for each indexed field: BeginField, for each term (StartTerm, Add…, EndTerm), EndField
//	NumColumn for each field that has one, then StrColumn, Presence, Vectors, SparseVectors
//	Source for each document, unless WriterOptions.NoSources
//	Finish
//
// Errors are sticky: after one, calls do nothing and Finish returns it, so only Finish need be checked. Slices given to the
// writer are not kept.
//
// Memory: the term dictionary of the field being written, the bytes of the term being written (one or two for each occurrence),
// the packed commit timestamps (up to 8 bytes for each document, 1 or 2 as a rule), the index of a table (a byte for each string),
// that of the sources, for a StrColumn 12 bytes for each value, and for vectors what packages vector and vector/sparse say.
type Writer struct {
	out  output
	o    WriterOptions
	err  error
	docs int

	stage  stage
	field  int // last field of the stage, -1 for none
	fields []FieldMeta
	cur    *FieldMeta // field being written

	keys    tableBuilder
	col     colBuilder
	commit  []uint64
	sources sourceBuilder
	srcDocs int

	terms   tableBuilder
	lens    []uint16
	avg     float64
	post    uint64 // bytes of the postings section so far
	inTerm  bool
	inField bool
	list    listBuilder
	term    []byte
	scratch []byte
}

// NewWriter returns a writer to w. Nothing is written before Begin.
func NewWriter(w io.Writer, o WriterOptions) *Writer {
	return &Writer{out: output{w: w}, o: o}
}

// Err is the first error.
func (w *Writer) Err() error { return w.err }

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = fmt.Errorf("write segment: %w", err)
	}
}

// advance checks that a part of stage s may come now.
func (w *Writer) advance(s stage, field int) bool {
	if w.err == nil && w.out.err != nil {
		w.fail(w.out.err)
	}
	if w.err != nil {
		return false
	}
	if w.stage == stageNew || s < w.stage || w.inField {
		w.fail(fmt.Errorf("%s after %s: %w", stageNames[s], stageNames[w.stage], ErrOrder))
		return false
	}
	if s > w.stage {
		if w.stage == stageKeys && !w.endKeys() {
			return false
		}
		w.stage, w.field = s, -1
	}
	if s >= stageInverted && s <= stageSparse {
		i, ok := slices.BinarySearchFunc(w.fields, field, func(m FieldMeta, id int) int { return m.ID - id })
		if !ok {
			w.fail(fmt.Errorf("field %d was not given to Begin: %w", field, ErrOrder))
			return false
		}
		if field <= w.field {
			w.fail(fmt.Errorf("%s: field %d after %d: %w", stageNames[s], field, w.field, ErrOrder))
			return false
		}
		w.field, w.cur = field, &w.fields[i]
	}
	return true
}

// Begin starts a segment of docs documents. Of fields, ascending by id, only ID and Name are used; a field of which no part with
// content is written leaves no trace.
func (w *Writer) Begin(docs int, fields []FieldMeta) {
	if w.err != nil {
		return
	}
	if w.stage != stageNew {
		w.fail(fmt.Errorf("second Begin: %w", ErrOrder))
		return
	}
	if docs < 0 || uint64(docs) > MaxDocs {
		w.fail(fmt.Errorf("%d documents: %w", docs, ErrTooLarge))
		return
	}
	w.docs = docs
	prev := -1
	for _, f := range fields {
		if f.ID <= prev || f.ID > MaxField {
			w.fail(fmt.Errorf("field %d after %d: %w", f.ID, prev, ErrOrder))
			return
		}
		prev = f.ID
		w.fields = append(w.fields, FieldMeta{ID: f.ID, Name: f.Name})
	}
	w.stage = stageKeys
	w.out.write([]byte(magicHead))
	w.out.begin(tagKeys, 0)
	w.keys.reset(false)
	w.col.reset()
	w.commit = make([]uint64, 0, min(docs, ColumnBlock))
}

// Key gives the next document's primary key, greater than the one before, and its commit timestamp.
func (w *Writer) Key(key []byte, commitTS uint64) {
	if w.err != nil {
		return
	}
	if w.stage != stageKeys || w.keys.n == uint64(w.docs) {
		w.fail(fmt.Errorf("key of document %d of %d after %s: %w", w.keys.n, w.docs, stageNames[w.stage], ErrOrder))
		return
	}
	if err := w.keys.add(key, 0); err != nil {
		w.fail(fmt.Errorf("key of document %d: %w", w.keys.n, err))
		return
	}
	if len(w.keys.blocks) >= drainAt {
		w.out.write(w.keys.drain())
	}
	w.commit = append(w.commit, commitTS)
	if len(w.commit) == ColumnBlock {
		w.col.block(ColumnBlock, nil, w.commit)
		w.commit = w.commit[:0]
	}
}

const drainAt = 64 << 10

func (w *Writer) endKeys() bool {
	if w.keys.n != uint64(w.docs) {
		w.fail(fmt.Errorf("%d keys for %d documents: %w", w.keys.n, w.docs, ErrOrder))
		return false
	}
	w.out.write(w.keys.finish())
	w.out.end()
	if len(w.commit) > 0 {
		w.col.block(len(w.commit), nil, w.commit)
	}
	w.section(tagCommit, 0, w.col.finish())
	return true
}

// section writes a whole section.
func (w *Writer) section(t tag, field int, b []byte) {
	w.out.begin(t, field)
	w.out.write(b)
	w.out.end()
}

// BeginField starts the inverted index of a field. lens holds the number of tokens of each document, up to 65,535; it must not
// change before EndField.
func (w *Writer) BeginField(field int, positions bool, lens []uint16) {
	if !w.advance(stageInverted, field) {
		return
	}
	if len(lens) != w.docs {
		w.fail(fmt.Errorf("%d lengths of field %d for %d documents: %w", len(lens), field, w.docs, ErrOrder))
		return
	}
	m := w.cur
	m.Positions = positions
	for _, l := range lens {
		m.SumLen += uint64(l)
		if l > 0 {
			m.DocsWithLen++
		}
	}
	w.avg = 1
	if m.DocsWithLen > 0 {
		w.avg = max(1, float64(m.SumLen)/float64(m.DocsWithLen))
	}
	w.lens, w.post, w.inField = lens, 0, true
	w.terms.reset(true)
	if m.SumLen > 0 {
		w.beginInverted()
	}
}

// beginInverted writes the lengths and opens the postings section.
func (w *Writer) beginInverted() {
	w.cur.Inverted = true
	b := w.scratch[:0]
	w.out.begin(tagLengths, w.cur.ID)
	for i, l := range w.lens {
		b = le.AppendUint16(b, l)
		if i%4096 == 4095 {
			w.out.write(b)
			b = b[:0]
		}
	}
	w.out.write(b)
	w.out.end()
	w.scratch = b[:0]
	w.out.begin(tagPostings, w.cur.ID)
}

// StartTerm starts the next term, greater than the one before. A term without postings leaves no trace.
func (w *Writer) StartTerm(term []byte) {
	if w.err != nil {
		return
	}
	if !w.inField || w.inTerm {
		w.fail(fmt.Errorf("term %q outside a field or inside a term: %w", clip(term), ErrOrder))
		return
	}
	w.inTerm = true
	w.term = append(w.term[:0], term...)
	w.list.reset(w.cur.Positions, w.lens, w.avg)
}

// Add gives the next postings of the term: documents in ascending order, the frequency of each, and, if the field has
// positions, the ascending positions of one after those of the other.
func (w *Writer) Add(docs, freqs, positions []uint32) {
	if w.err != nil {
		return
	}
	if !w.inTerm {
		w.fail(fmt.Errorf("postings outside a term: %w", ErrOrder))
		return
	}
	if err := w.list.add(docs, freqs, positions); err != nil {
		w.fail(fmt.Errorf("term %q: %w", clip(w.term), err))
	}
}

// EndTerm ends a term.
func (w *Writer) EndTerm() {
	if w.err != nil {
		return
	}
	if !w.inTerm {
		w.fail(fmt.Errorf("end of a term outside one: %w", ErrOrder))
		return
	}
	w.inTerm = false
	l := &w.list
	if l.df == 0 {
		return
	}
	m := w.cur
	if !m.Inverted {
		w.beginInverted()
	}
	// A list in blocks begins at a multiple of 4 so that its index can be read in place.
	gap := 0
	base := w.post
	if err := w.terms.add(w.term, base); err != nil {
		w.fail(fmt.Errorf("term of field %d: %w", m.ID, err))
		return
	}
	n := 0
	switch {
	case l.df == 1:
		w.terms.pay = appendSingle(w.terms.pay, l.docs[0], l.freqs[0])
		if m.Positions {
			b := l.singlePositions()
			if l.freqs[0] <= inlinePositions {
				w.terms.pay = append(w.terms.pay, b...)
			} else {
				w.terms.pay = binary.AppendUvarint(w.terms.pay, uint64(len(b)))
				w.out.write(b)
				n = len(b)
			}
		}
	case l.df < BlockSize:
		b := l.short()
		w.out.write(b)
		n = len(b)
		w.terms.pay = appendMeta(w.terms.pay, l.df, n)
	default:
		gap = align(int(w.post%4), 4) - int(w.post%4)
		w.out.write(zeros[:gap])
		head, err := l.finish()
		if err != nil {
			w.fail(fmt.Errorf("term %q: %w", clip(w.term), err))
			return
		}
		for _, b := range [][]byte{head, l.docBuf, l.posBuf} {
			w.out.write(b)
			n += len(b)
		}
		w.terms.pay = appendMeta(w.terms.pay, l.df, n)
	}
	w.post += uint64(gap + n)
	m.Terms++
	m.Postings += uint64(l.df)
	m.Occurrences += l.occurrences
	if w.out.err != nil {
		w.fail(w.out.err)
	}
}

var zeros [8]byte

// EndField ends a field.
func (w *Writer) EndField() {
	if w.err != nil {
		return
	}
	if !w.inField || w.inTerm {
		w.fail(fmt.Errorf("end of a field outside one or inside a term: %w", ErrOrder))
		return
	}
	w.inField = false
	if w.cur.Inverted {
		w.out.end()
		w.section(tagTerms, w.cur.ID, w.terms.finish())
	} else {
		w.cur.Positions = false
	}
	w.lens = nil
}

// checkStarts checks the starts of a column with n values.
func (w *Writer) checkStarts(field int, starts []uint32, n int) bool {
	switch {
	case starts == nil && n == w.docs:
		return true
	case starts != nil && len(starts) == w.docs+1 && slices.IsSorted(starts) && starts[0] == 0 && uint64(starts[w.docs]) == uint64(n):
		return true
	}
	w.fail(fmt.Errorf("column of field %d: %d values and %d starts for %d documents: %w", field, n, len(starts), w.docs, ErrOrder))
	return false
}

// NumColumn writes a column of numbers in the order-preserving encoding of package schema. The values of document d are
// values[starts[d]:starts[d+1]], in the order to be given back; without starts each document has exactly one.
func (w *Writer) NumColumn(field int, starts []uint32, values []uint64) {
	if !w.advance(stageNumbers, field) || !w.checkStarts(field, starts, len(values)) || len(values) == 0 {
		return
	}
	w.cur.Numbers = true
	w.column(tagNumbers, field, starts, values)
}

func (w *Writer) column(t tag, field int, starts []uint32, values []uint64) {
	w.col.reset()
	w.out.begin(t, field)
	for d := 0; d < w.docs; d += ColumnBlock {
		n := min(ColumnBlock, w.docs-d)
		if starts == nil {
			w.col.block(n, nil, values[d:d+n])
		} else {
			w.col.block(n, starts[d:d+n+1], values[starts[d]:starts[d+n]])
		}
		if len(w.col.data) >= drainAt {
			w.out.write(w.col.drain())
		}
	}
	w.out.write(w.col.finish())
	w.out.end()
}

// StrColumn writes a column of text. The values of document d are values[starts[d]:starts[d+1]]; without starts each document
// has exactly one.
func (w *Writer) StrColumn(field int, starts []uint32, values [][]byte) {
	if !w.advance(stageStrings, field) || !w.checkStarts(field, starts, len(values)) || len(values) == 0 {
		return
	}
	order := make([]uint32, len(values))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return bytes.Compare(values[a], values[b]) })
	ords := make([]uint64, len(values))
	i := 0
	w.strDict(field, func() ([]byte, bool) {
		if i == len(order) {
			return nil, false
		}
		return values[order[i]], true
	}, func(ord uint64) {
		v := values[order[i]]
		for ; i < len(order) && bytes.Equal(values[order[i]], v); i++ {
			ords[order[i]] = ord
		}
	})
	if w.err == nil {
		w.column(tagOrdinals, field, starts, ords)
	}
}

// strDict writes the dictionary of a column of text; the column of ordinals must follow. value returns the least value that has
// no ordinal yet, false when all have; ordinal tells which it got.
func (w *Writer) strDict(field int, value func() ([]byte, bool), ordinal func(uint64)) {
	w.cur.Strings = true
	w.out.begin(tagStrings, field)
	w.terms.reset(false)
	for v, ok := value(); ok; v, ok = value() {
		if err := w.terms.add(v, 0); err != nil {
			w.fail(fmt.Errorf("column of field %d: %w", field, err))
			return
		}
		ordinal(w.terms.n - 1)
		if len(w.terms.blocks) >= drainAt {
			w.out.write(w.terms.drain())
		}
	}
	w.out.write(w.terms.finish())
	w.out.end()
}

// Presence writes the set of documents, ascending, that have a value for the field.
func (w *Writer) Presence(field int, docs []uint32) {
	if !w.advance(stagePresence, field) || len(docs) == 0 {
		return
	}
	for i, d := range docs {
		if i > 0 && d <= docs[i-1] || int64(d) >= int64(w.docs) {
			w.fail(fmt.Errorf("presence of field %d: document %d: %w", field, d, ErrOrder))
			return
		}
	}
	w.cur.Presence = true
	w.scratch = encodePresence(w.scratch, uint32(w.docs), docs)
	w.section(tagPresence, field, w.scratch)
}

// Source gives the next document's source.
func (w *Writer) Source(b []byte) {
	if !w.advance(stageSources, -1) {
		return
	}
	switch {
	case w.o.NoSources:
		w.fail(errors.New("source given to a segment without sources"))
		return
	case len(b) > MaxSourceLen:
		w.fail(fmt.Errorf("source of document %d has %d bytes: %w", w.srcDocs, len(b), ErrTooLarge))
		return
	case w.srcDocs == w.docs:
		w.fail(fmt.Errorf("source %d of %d: %w", w.srcDocs+1, w.docs, ErrOrder))
		return
	}
	if w.srcDocs == 0 {
		w.out.begin(tagSources, 0)
	}
	w.srcDocs++
	w.sources.add(b)
	if len(w.sources.out) >= drainAt {
		w.out.write(w.sources.drain())
	}
}

// Finish writes the rest and the footer. The stream is complete when it returns without error; syncing and closing it is the
// caller's.
func (w *Writer) Finish() (Info, error) {
	if w.stage == stageDone {
		w.fail(fmt.Errorf("second Finish: %w", ErrOrder))
	}
	if !w.advance(stageDone, -1) {
		return Info{}, w.err
	}
	if !w.o.NoSources {
		if w.srcDocs != w.docs {
			w.fail(fmt.Errorf("%d sources for %d documents: %w", w.srcDocs, w.docs, ErrOrder))
			return Info{}, w.err
		}
		if w.docs == 0 {
			w.out.begin(tagSources, 0)
		}
		w.out.write(w.sources.finish())
		w.out.end()
	}
	info := Info{Docs: uint32(w.docs)}
	b := le.AppendUint64(w.scratch[:0], 0)
	n := uint64(0)
	for i := range w.fields {
		m := &w.fields[i]
		if !m.Inverted && !m.Numbers && !m.Strings && !m.Presence && !m.Vectors && !m.Sparse {
			continue
		}
		n++
		b = appendField(b, m)
		info.Terms += m.Terms
		info.Postings += m.Postings
		info.Occurrences += m.Occurrences
	}
	le.PutUint64(b, n)
	w.section(tagFields, 0, pad(b, 8))
	info.Checksum = w.out.footer(uint32(w.docs))
	info.Bytes = w.out.off
	if w.out.err != nil {
		w.fail(w.out.err)
		return Info{}, w.err
	}
	return info, nil
}

// output writes sections to a stream through a buffer and keeps the table of them.
type output struct {
	w      io.Writer
	buf    []byte
	hashed int // of buf
	open   bool
	hash   xxh3.Hasher
	start  int64
	off    int64
	table  []byte
	tag    tag
	field  uint32
	err    error
}

const outputBuffer = 128 << 10

func (o *output) write(b []byte) {
	if len(b) >= outputBuffer {
		o.flush()
		if o.err != nil {
			return
		}
		o.off += int64(len(b))
		if o.open {
			o.digest(b)
		}
		o.send(b)
		return
	}
	if len(o.buf)+len(b) > outputBuffer {
		o.flush()
	}
	if o.buf == nil {
		o.buf = make([]byte, 0, outputBuffer)
	}
	o.off += int64(len(b))
	o.buf = append(o.buf, b...)
}

func (o *output) send(b []byte) {
	if o.err != nil || len(b) == 0 {
		return
	}
	n, err := o.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	o.err = err
}

func (o *output) digest(b []byte) {
	// The hasher never fails; the check keeps that true if it changes.
	if _, err := o.hash.Write(b); err != nil && o.err == nil {
		o.err = err
	}
}

func (o *output) flush() {
	if o.open {
		o.digest(o.buf[o.hashed:])
	}
	o.hashed = 0
	o.send(o.buf)
	o.buf = o.buf[:0]
}

func (o *output) begin(t tag, field int) {
	o.hash.Reset()
	o.open, o.hashed, o.start, o.tag, o.field = true, len(o.buf), o.off, t, uint32(field)
}

func (o *output) end() {
	if r := o.off % 8; r != 0 {
		o.write(zeros[:8-r])
	}
	o.digest(o.buf[o.hashed:])
	o.open = false
	o.table = le.AppendUint16(o.table, uint16(o.tag))
	o.table = le.AppendUint16(o.table, 0)
	o.table = le.AppendUint32(o.table, o.field)
	o.table = le.AppendUint64(o.table, uint64(o.start))
	o.table = le.AppendUint64(o.table, uint64(o.off-o.start))
	o.table = le.AppendUint64(o.table, o.hash.Sum64())
}

// footer ends the file and returns the footer's checksum.
func (o *output) footer(docs uint32) uint64 {
	b := o.table
	n := len(b) / tableEntrySize
	b = le.AppendUint64(b, uint64(o.off))
	b = le.AppendUint32(b, uint32(n))
	b = le.AppendUint32(b, docs)
	b = le.AppendUint16(b, FormatVersion)
	b = le.AppendUint16(b, MinReaderVersion)
	b = le.AppendUint32(b, WriterVersion)
	b = le.AppendUint64(b, 0)
	sum := xxh3.Hash(b)
	b = le.AppendUint64(b, sum)
	b = append(b, magicTail...)
	o.write(b)
	o.flush()
	return sum
}

// listBuilder encodes the postings of one term.
type listBuilder struct {
	positions   bool
	lens        []uint16
	avg         float64
	df          uint32
	occurrences uint64
	last        uint32 // document before
	blockBase   uint32 // last document of the block before

	n           int // postings of the current block
	docs, freqs [BlockSize]uint32
	blockPos    uint32 // where the positions of the current block begin: bytes and number
	blockPosIdx uint8

	pos    [BlockSize]uint32 // differences of positions not yet packed
	nPos   int
	posBuf []byte

	docBuf  []byte
	lasts   []uint32
	entries []byte
	head    []byte
	block   front
	whole   front
	tooLong bool
}

func (l *listBuilder) reset(positions bool, lens []uint16, avg float64) {
	l.positions, l.lens, l.avg = positions, lens, avg
	l.df, l.occurrences, l.last, l.blockBase = 0, 0, 0, 0
	l.n, l.nPos, l.blockPos, l.blockPosIdx = 0, 0, 0, 0
	l.posBuf, l.docBuf, l.lasts, l.entries = l.posBuf[:0], l.docBuf[:0], l.lasts[:0], l.entries[:0]
	l.block, l.whole = l.block[:0], l.whole[:0]
	l.tooLong = false
}

func (l *listBuilder) add(docs, freqs, positions []uint32) error {
	if len(freqs) != len(docs) {
		return fmt.Errorf("%d frequencies for %d documents: %w", len(freqs), len(docs), ErrOrder)
	}
	for i, d := range docs {
		f := freqs[i]
		if d <= l.last && l.df > 0 || int64(d) >= int64(len(l.lens)) || f == 0 {
			return fmt.Errorf("document %d with frequency %d after document %d: %w", d, f, l.last, ErrOrder)
		}
		if l.n == BlockSize {
			l.endBlock()
		}
		l.docs[l.n], l.freqs[l.n] = d, f
		l.n++
		l.df++
		l.last = d
		l.occurrences += uint64(f)
		if !l.positions {
			continue
		}
		if uint64(f) > uint64(len(positions)) {
			return fmt.Errorf("document %d: %d positions for frequency %d: %w", d, len(positions), f, ErrOrder)
		}
		prev := uint32(0)
		for _, p := range positions[:f] {
			if p < prev {
				return fmt.Errorf("document %d: position %d after %d: %w", d, p, prev, ErrOrder)
			}
			l.pos[l.nPos] = p - prev
			prev = p
			if l.nPos++; l.nPos == BlockSize {
				l.packPositions()
			}
		}
		positions = positions[f:]
	}
	if l.positions && len(positions) > 0 {
		return fmt.Errorf("%d positions too many: %w", len(positions), ErrOrder)
	}
	return nil
}

func (l *listBuilder) packPositions() {
	width := bitpack.MaxBits(&l.pos)
	l.posBuf = append(l.posBuf, width)
	l.posBuf = bitpack.Pack(l.posBuf, &l.pos, width)
	l.nPos = 0
}

// endPositions writes the positions left over; packed tells whether there was a packed block.
func (l *listBuilder) endPositions() {
	if l.nPos > 0 && len(l.posBuf) > 0 {
		l.posBuf = append(l.posBuf, tailMark)
	}
	for _, p := range l.pos[:l.nPos] {
		l.posBuf = binary.AppendUvarint(l.posBuf, uint64(p))
	}
	l.nPos = 0
}

// endBlock packs a full block.
func (l *listBuilder) endBlock() {
	off := len(l.docBuf)
	l.impacts()
	last := l.docs[BlockSize-1]
	var v [BlockSize]uint32
	prev := l.blockBase
	for i, d := range l.docs {
		v[i] = d - prev
		prev = d
	}
	docBits := bitpack.MaxBits(&v)
	l.docBuf = bitpack.Pack(l.docBuf, &v, docBits)
	for i, f := range l.freqs {
		v[i] = f - 1
	}
	freqBits := bitpack.MaxBits(&v)
	l.docBuf = bitpack.Pack(l.docBuf, &v, freqBits)
	l.entry(off, docBits, freqBits)
	l.lasts = append(l.lasts, last)
	l.nextBlock(last)
}

func (l *listBuilder) nextBlock(last uint32) {
	l.blockBase = last
	l.n = 0
	if uint64(len(l.posBuf)) > 1<<32-1 || uint64(len(l.docBuf)) > 1<<32-1 {
		l.tooLong = true
	}
	l.blockPos, l.blockPosIdx = uint32(len(l.posBuf)), uint8(l.nPos)
}

// impacts makes the fronts of the current block and takes it into that of the list.
func (l *listBuilder) impacts() {
	l.block = l.block[:0]
	for i, f := range l.freqs[:l.n] {
		l.block.add(f, l.lens[l.docs[i]])
	}
	for _, im := range l.block {
		l.whole.add(im.Freq, im.Len)
	}
	if len(l.whole) > 8*listImpacts {
		l.whole.reduce(4*listImpacts, l.avg)
	}
	l.block.reduce(blockImpacts, l.avg)
}

func (l *listBuilder) entry(off int, docBits, freqBits uint8) {
	e := le.AppendUint32(l.entries, uint32(off))
	e = le.AppendUint32(e, l.blockPos)
	e = append(e, l.blockPosIdx, docBits, freqBits, byte(len(l.block)))
	for i := range blockImpacts {
		if i < len(l.block) {
			e = appendImpact(e, l.block[i])
		} else {
			e = append(e, 0, 0, 0, 0)
		}
	}
	l.entries = e
}

// appendImpact appends an impact in 4 bytes. A frequency of 65,535 stands for every one that is not smaller.
func appendImpact(b []byte, im Impact) []byte {
	b = le.AppendUint16(b, uint16(min(im.Freq, 1<<16-1)))
	return le.AppendUint16(b, im.Len)
}

// tail writes the current block as varints.
func (l *listBuilder) tail() {
	prev := l.blockBase
	for i, d := range l.docs[:l.n] {
		v := uint64(d-prev) << 1
		prev = d
		if f := l.freqs[i]; f == 1 {
			l.docBuf = binary.AppendUvarint(l.docBuf, v|1)
		} else {
			l.docBuf = binary.AppendUvarint(l.docBuf, v)
			l.docBuf = binary.AppendUvarint(l.docBuf, uint64(f))
		}
	}
}

// singlePositions returns the positions of a singleton.
func (l *listBuilder) singlePositions() []byte {
	l.endPositions()
	return l.posBuf
}

// short returns the bytes of a list of fewer than BlockSize postings.
func (l *listBuilder) short() []byte {
	l.impacts()
	l.tail()
	packed := uint64(0)
	if len(l.posBuf) > 0 {
		packed = 1
	}
	b := binary.AppendUvarint(l.head[:0], uint64(len(l.docBuf))<<1|packed)
	b = append(b, l.docBuf...)
	if l.df >= shortImpacts {
		b = append(b, byte(len(l.block)))
	} else {
		l.block.reduce(1, l.avg)
	}
	for _, im := range l.block {
		b = binary.AppendUvarint(b, uint64(im.Freq))
		b = binary.AppendUvarint(b, uint64(im.Len))
	}
	l.endPositions()
	b = append(b, l.posBuf...)
	l.head = b
	return b
}

// finish ends a list of at least BlockSize postings and returns its header and index, before docBuf and posBuf.
func (l *listBuilder) finish() ([]byte, error) {
	if l.n == BlockSize {
		l.endBlock()
	} else if l.n > 0 {
		off := len(l.docBuf)
		l.impacts()
		l.tail()
		l.entry(off, 0, 0)
		l.lasts = append(l.lasts, l.docs[l.n-1])
		l.nextBlock(l.last)
	}
	l.endPositions()
	if l.tooLong || uint64(len(l.docBuf)) > 1<<32-1 {
		return nil, fmt.Errorf("list of %d postings: %w", l.df, ErrTooLarge)
	}
	l.whole.reduce(listImpacts, l.avg)
	b := le.AppendUint32(l.head[:0], uint32(len(l.docBuf)))
	b = append(b, byte(len(l.whole)), 0, 0, 0)
	for _, im := range l.whole {
		b = appendImpact(b, im)
	}
	for _, d := range l.lasts {
		b = le.AppendUint32(b, d)
	}
	b = append(b, l.entries...)
	l.head = b
	return b, nil
}
