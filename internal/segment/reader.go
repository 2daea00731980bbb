package segment

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// VerifyMode says which checksums Open verifies.
type VerifyMode uint8

// Verify modes.
const (
	VerifyAll   VerifyMode = iota // of every section
	VerifySmall                   // of the footer and of sections up to 64 KiB
)

const smallSection = 64 << 10

// OpenOptions has the zero value as default.
type OpenOptions struct{ Verify VerifyMode }

// FieldMeta describes a field of a segment. A writer is given ID and Name; the rest is filled in.
type FieldMeta struct {
	ID   int
	Name string

	Inverted  bool // has a term dictionary and lengths
	Positions bool // its postings have positions
	Numbers   bool // has a NumColumn
	Strings   bool // has a StrColumn
	Presence  bool // has a set of documents with a value
	Vectors   bool // has dense or binary vectors
	Sparse    bool // has sparse vectors

	Terms       uint64 // distinct terms
	Postings    uint64 // sum of document frequencies
	Occurrences uint64 // sum of term frequencies
	SumLen      uint64 // sum of lengths
	DocsWithLen uint64 // documents with a length above 0
}

// section is one section of an open file.
type section struct {
	r     *Reader
	tag   tag
	field uint32
	off   int64
	data  []byte
	sum   uint64
}

func (s *section) name() string {
	if s.tag.ofField() {
		return fmt.Sprintf("%v(%d)", s.tag, s.field)
	}
	return s.tag.String()
}

func (s *section) corrupt(reason string) error {
	return &CorruptError{File: s.r.name, Section: s.name(), Offset: s.off, Reason: reason}
}

// damaged records that the section was found damaged and returns the error.
func (s *section) damaged(format string, args ...any) error {
	e := &CorruptError{File: s.r.name, Section: s.name(), Offset: s.off, Reason: "damaged: " + fmt.Sprintf(format, args...)}
	s.r.err.CompareAndSwap(nil, e)
	return e
}

// verify compares the section's checksum.
func (s *section) verify() error {
	if xxh3.Hash(s.data) != s.sum {
		return s.corrupt("checksum does not match")
	}
	return nil
}

// Reader is an open segment, safe to use at once. Whatever it lends dies at Close.
type Reader struct {
	name      string
	data      []byte
	unmap     func() error
	docs      uint32
	version   fileVersion
	sections  []section
	bySection map[uint64]*section // by kind and field
	fields    []FieldMeta
	byID      []fieldParts
	keys      *table
	commit    *NumColumn
	sources   *sourceReader // nil: not kept
	err       atomic.Pointer[CorruptError]
}

type fileVersion struct {
	format, minReader uint16
	writer            uint32
}

// fieldParts are the parts of the field with that id.
type fieldParts struct {
	inv *invField
	num *NumColumn
	str *StrColumn
	set *Presence
	vec *vector.Index
	spr *sparse.Index
}

// Open maps a segment file. The error is a *CorruptError, wraps ErrNewerFormat, or comes from the system. The file must not be
// changed while it is open.
func Open(path string, o OpenOptions) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	if st.Size() < int64(len(magicHead)+trailerSize) {
		return nil, &CorruptError{File: path, Section: "footer", Reason: fmt.Sprintf("file has only %d bytes", st.Size())}
	}
	if st.Size() != int64(int(st.Size())) {
		return nil, fmt.Errorf("open segment %s: %w", path, ErrTooLarge)
	}
	data, unmap, err := mapFile(f, int(st.Size()))
	if err != nil {
		return nil, fmt.Errorf("open segment %s: %w", path, err)
	}
	r := &Reader{name: path, data: data, unmap: unmap}
	if err := r.load(o); err != nil {
		if uerr := unmap(); uerr != nil {
			return nil, fmt.Errorf("%w (and %v)", err, uerr)
		}
		return nil, err
	}
	return r, nil
}

// FromBytes opens a segment in memory, verifying every checksum. b must not be changed while it is open; name is for errors.
func FromBytes(name string, b []byte) (*Reader, error) { return fromBytes(name, b, OpenOptions{}) }

func fromBytes(name string, b []byte, o OpenOptions) (*Reader, error) {
	if len(b) < len(magicHead)+trailerSize {
		return nil, &CorruptError{File: name, Section: "footer", Reason: fmt.Sprintf("file has only %d bytes", len(b))}
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		c := alignedBytes(len(b))
		copy(c, b)
		b = c
	}
	r := &Reader{name: name, data: b, unmap: func() error { return nil }}
	if err := r.load(o); err != nil {
		return nil, err
	}
	return r, nil
}

// alignedBytes returns n bytes that begin at a multiple of 8.
func alignedBytes(n int) []byte {
	w := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)[:n]
}

func (r *Reader) frame(off int64, reason string) error {
	return &CorruptError{File: r.name, Section: "footer", Offset: off, Reason: reason}
}

// load reads the footer and opens the sections.
func (r *Reader) load(o OpenOptions) error {
	b := r.data
	if string(b[:len(magicHead)]) != magicHead {
		return r.frame(0, "file does not begin as a segment does")
	}
	at := len(b) - trailerSize
	tr := b[at:]
	if string(tr[40:]) != magicTail {
		return r.frame(int64(at+40), "file does not end as a segment does")
	}
	tableOff, n := le.Uint64(tr), uint64(le.Uint32(tr[8:]))
	if len(b)%8 != 0 || tableOff > uint64(at) || n*tableEntrySize != uint64(at)-tableOff {
		return r.frame(int64(at), "section table does not end where the trailer begins")
	}
	if xxh3.Hash(b[tableOff:at+32]) != le.Uint64(tr[32:]) {
		return r.frame(int64(tableOff), "checksum does not match")
	}
	r.version = fileVersion{le.Uint16(tr[16:]), le.Uint16(tr[18:]), le.Uint32(tr[20:])}
	if r.version.minReader > FormatVersion {
		return fmt.Errorf("%s: %w: format %d needs a reader of format %d, this one reads up to %d", r.name, ErrNewerFormat,
			r.version.format, r.version.minReader, FormatVersion)
	}
	r.docs = le.Uint32(tr[12:])
	if r.docs > MaxDocs {
		return r.frame(int64(at+12), "too many documents")
	}
	r.sections = make([]section, n)
	end := uint64(len(magicHead))
	for i := range r.sections {
		e := b[tableOff+uint64(i)*tableEntrySize:]
		off, size := le.Uint64(e[8:]), le.Uint64(e[16:])
		if off != end || size > tableOff-off || size%8 != 0 {
			return r.frame(int64(tableOff)+int64(i)*tableEntrySize, "section does not begin where the one before ends")
		}
		end = off + size
		r.sections[i] = section{r: r, tag: tag(le.Uint16(e)), field: le.Uint32(e[4:]), off: int64(off), data: b[off:end:end], sum: le.Uint64(e[24:])}
	}
	if end != tableOff {
		return r.frame(int64(tableOff), "sections do not reach the section table")
	}
	for i := range r.sections {
		s := &r.sections[i]
		if o.Verify == VerifyAll || len(s.data) <= smallSection {
			if err := s.verify(); err != nil {
				return err
			}
		}
	}
	return r.openSections()
}

// find returns the section of a kind and field, nil if there is none.
func (r *Reader) find(t tag, field uint32) *section { return r.bySection[uint64(t)<<32|uint64(field)] }

// need is find for a section that must be there.
func (r *Reader) need(t tag, field int) (*section, error) {
	if s := r.find(t, uint32(field)); s != nil {
		return s, nil
	}
	s := section{r: r, tag: t, field: uint32(field)}
	return nil, s.corrupt("section is missing")
}

func (r *Reader) openSections() error {
	r.bySection = make(map[uint64]*section, len(r.sections))
	for i := range r.sections {
		s := &r.sections[i]
		k := uint64(s.tag)<<32 | uint64(s.field)
		if r.bySection[k] != nil {
			return s.corrupt("section is there twice")
		}
		r.bySection[k] = s
	}
	s, err := r.need(tagKeys, 0)
	if err != nil {
		return err
	}
	if r.keys, err = openTable(s, false); err != nil {
		return err
	}
	if r.keys.n != uint64(r.docs) {
		return s.corrupt("there are not as many keys as documents")
	}
	if s, err = r.need(tagCommit, 0); err != nil {
		return err
	}
	if r.commit, err = openNumColumn(s, r.docs); err != nil {
		return err
	}
	if !r.commit.dense {
		return s.corrupt("not every document has a commit timestamp")
	}
	if s = r.find(tagSources, 0); s != nil {
		if r.sources, err = openSources(s, r.docs); err != nil {
			return err
		}
	}
	if s, err = r.need(tagFields, 0); err != nil {
		return err
	}
	if r.fields, err = readFields(s); err != nil {
		return err
	}
	if len(r.fields) > 0 {
		r.byID = make([]fieldParts, r.fields[len(r.fields)-1].ID+1)
	}
	for _, m := range r.fields {
		if err := r.openField(m, &r.byID[m.ID]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) openField(m FieldMeta, p *fieldParts) error {
	var s *section
	var err error
	if m.Inverted {
		f := &invField{meta: m, docs: r.docs}
		if s, err = r.need(tagLengths, m.ID); err != nil {
			return err
		}
		if uint64(len(s.data)) != (2*uint64(r.docs)+7)&^7 {
			return s.corrupt("there are not as many lengths as documents")
		}
		f.lens = viewU16(s.data)[:r.docs:r.docs]
		if f.post, err = r.need(tagPostings, m.ID); err != nil {
			return err
		}
		if s, err = r.need(tagTerms, m.ID); err != nil {
			return err
		}
		if f.terms, err = openTable(s, true); err != nil {
			return err
		}
		if f.terms.n != m.Terms {
			return s.corrupt("number of terms differs from the fields section")
		}
		p.inv = f
	}
	if m.Numbers {
		if s, err = r.need(tagNumbers, m.ID); err != nil {
			return err
		}
		if p.num, err = openNumColumn(s, r.docs); err != nil {
			return err
		}
	}
	if m.Strings {
		c := &StrColumn{}
		if s, err = r.need(tagStrings, m.ID); err != nil {
			return err
		}
		if c.dict, err = openTable(s, false); err != nil {
			return err
		}
		if s, err = r.need(tagOrdinals, m.ID); err != nil {
			return err
		}
		if c.ords, err = openNumColumn(s, r.docs); err != nil {
			return err
		}
		p.str = c
	}
	if m.Presence {
		if s, err = r.need(tagPresence, m.ID); err != nil {
			return err
		}
		set, err := openPresence(s, r.docs)
		if err != nil {
			return err
		}
		p.set = &set
	}
	if m.Vectors {
		if s, err = r.need(tagVectors, m.ID); err != nil {
			return err
		}
		if p.vec, err = vector.Open(s.data, r.docs); err != nil {
			return s.vectorError(err)
		}
	}
	if m.Sparse {
		if s, err = r.need(tagSparse, m.ID); err != nil {
			return err
		}
		if p.spr, err = sparse.Open(s.data, r.docs); err != nil {
			return s.vectorError(err)
		}
	}
	return nil
}

const fieldFixed = 52 // bytes of a field's record without its name

func appendField(b []byte, m *FieldMeta) []byte {
	b = le.AppendUint32(b, uint32(m.ID))
	flags := uint32(0)
	for i, f := range []bool{m.Inverted, m.Positions, m.Numbers, m.Strings, m.Presence, m.Vectors, m.Sparse} {
		if f {
			flags |= 1 << i
		}
	}
	b = le.AppendUint32(b, flags)
	for _, v := range []uint64{m.Terms, m.Postings, m.Occurrences, m.SumLen, m.DocsWithLen} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, uint32(len(m.Name)))
	return append(b, m.Name...)
}

func readFields(s *section) ([]FieldMeta, error) {
	b := s.data
	if len(b) < 8 {
		return nil, s.corrupt("no count of fields")
	}
	n := le.Uint64(b)
	b = b[8:]
	if n > uint64(len(b)/fieldFixed) {
		return nil, s.corrupt("more fields than bytes")
	}
	fields := make([]FieldMeta, n)
	prev := -1
	for i := range fields {
		if len(b) < fieldFixed {
			return nil, s.corrupt("record of a field ends early")
		}
		id, flags, name := le.Uint32(b), le.Uint32(b[4:]), uint64(le.Uint32(b[48:]))
		if id > MaxField || int(id) <= prev || name > uint64(len(b)-fieldFixed) {
			return nil, s.corrupt("record of a field is damaged")
		}
		prev = int(id)
		fields[i] = FieldMeta{
			ID: int(id), Name: string(b[fieldFixed : fieldFixed+name]),
			Inverted: flags&flagInverted != 0, Positions: flags&flagPositions != 0, Numbers: flags&flagNumbers != 0,
			Strings: flags&flagStrings != 0, Presence: flags&flagPresence != 0,
			Vectors: flags&flagVectors != 0, Sparse: flags&flagSparse != 0,
			Terms: le.Uint64(b[8:]), Postings: le.Uint64(b[16:]), Occurrences: le.Uint64(b[24:]), SumLen: le.Uint64(b[32:]),
			DocsWithLen: le.Uint64(b[40:]),
		}
		b = b[fieldFixed+name:]
	}
	return fields, nil
}

// Close unmaps the file. Nothing that the reader lent may be used after it.
func (r *Reader) Close() error {
	if err := r.unmap(); err != nil {
		return fmt.Errorf("close segment %s: %w", r.name, err)
	}
	return nil
}

// Name is the name given to Open or FromBytes.
func (r *Reader) Name() string { return r.name }

// NumDocs is the number of documents, dead or not.
func (r *Reader) NumDocs() uint32 { return r.docs }

// Size is the length of the file in bytes.
func (r *Reader) Size() int64 { return int64(len(r.data)) }

// Fields describes the fields that have any part in the segment, ascending by id. The slice must not be changed.
func (r *Reader) Fields() []FieldMeta { return r.fields }

// Err is the first damage that any use of the reader met.
func (r *Reader) Err() error {
	if e := r.err.Load(); e != nil {
		return e
	}
	return nil
}

// parts returns the parts of a field, which are empty for one that the segment does not know.
func (r *Reader) parts(field int) *fieldParts {
	if uint(field) >= uint(len(r.byID)) {
		return &noParts
	}
	return &r.byID[field]
}

var (
	noParts fieldParts
	noSet   Presence
)

// Key appends the primary key of a document to dst.
func (r *Reader) Key(doc uint32, dst []byte) []byte {
	if doc >= r.docs {
		return dst
	}
	return r.keys.get(uint64(doc), dst)
}

// EachKey calls fn with the key of every document from from on, in order, until it returns an error, which EachKey returns. The bytes die
// when fn returns. It costs a fraction of as many calls of Key.
func (r *Reader) EachKey(from uint32, fn func(doc uint32, key []byte) error) error {
	if from >= r.docs {
		return nil
	}
	var c tableCursor
	c.start(r.keys, int(from/tableBlock), int(from%tableBlock))
	for doc := from; doc < r.docs; doc++ {
		if c.i == c.n && !c.loadBlock() || !c.step() {
			return r.Err()
		}
		if err := fn(doc, c.cur); err != nil {
			return err
		}
	}
	return nil
}

// FindKey returns the document with the key.
func (r *Reader) FindKey(key string) (doc uint32, ok bool) {
	b, i, ok := r.keys.find(stringBytes(key))
	if !ok {
		return 0, false
	}
	return uint32(b*tableBlock + i), true
}

// CommitTS is the commit timestamp of a document.
func (r *Reader) CommitTS(doc uint32) uint64 {
	v, _ := r.commit.First(doc)
	return v
}

// MaxCommitTS is the greatest commit timestamp of the segment, 0 if it has no documents.
func (r *Reader) MaxCommitTS() uint64 {
	m := uint64(0)
	for b := range r.commit.NumBlocks() {
		if _, hi, ok := r.commit.BlockRange(b); ok {
			m = max(m, hi)
		}
	}
	return m
}

// Postings finds the list of a term. ok is false if there is none, or if the bytes are damaged, which Err tells.
func (r *Reader) Postings(field int, term []byte) (p Postings, ok bool) {
	f := r.parts(field).inv
	if f == nil {
		return Postings{}, false
	}
	return f.lookup(term)
}

// ScanTerms calls fn for each term of the field that begins with prefix, ascending, with its document frequency, until fn
// returns false. The bytes of the term die when fn returns.
func (r *Reader) ScanTerms(field int, prefix []byte, fn func(term []byte, df uint32) bool) error {
	f := r.parts(field).inv
	if f == nil {
		return nil
	}
	return f.scan(prefix, fn)
}

// ScanPostings is ScanTerms with the list of each term, at no search for it. A list lives as long as the reader, the term's
// bytes only until fn returns.
func (r *Reader) ScanPostings(field int, prefix []byte, fn func(term []byte, p Postings) bool) error {
	f := r.parts(field).inv
	if f == nil {
		return nil
	}
	return f.scanPostings(prefix, fn)
}

// Lengths holds the number of tokens of each document in the field; nil if the field has no inverted index.
func (r *Reader) Lengths(field int) []uint16 {
	f := r.parts(field).inv
	if f == nil {
		return nil
	}
	return f.lens
}

// FieldStats counts all documents of the segment, dead or not.
func (r *Reader) FieldStats(field int) score.FieldStats {
	f := r.parts(field).inv
	if f == nil {
		return score.FieldStats{}
	}
	return score.FieldStats{SumLen: f.meta.SumLen, Docs: f.meta.DocsWithLen}
}

// Present is the set of documents that have a value for the field; never nil.
func (r *Reader) Present(field int) *Presence {
	if s := r.parts(field).set; s != nil {
		return s
	}
	return &noSet
}

// NumColumn returns the field's column of numbers.
func (r *Reader) NumColumn(field int) (*NumColumn, bool) {
	c := r.parts(field).num
	return c, c != nil
}

// StrColumn returns the field's column of text.
func (r *Reader) StrColumn(field int) (*StrColumn, bool) {
	c := r.parts(field).str
	return c, c != nil
}

// Vectors returns the field's dense or binary vectors. They lie in the mapped file.
func (r *Reader) Vectors(field int) (*vector.Index, bool) {
	x := r.parts(field).vec
	return x, x != nil
}

// SparseVectors returns the field's sparse vectors. They lie in the mapped file.
func (r *Reader) SparseVectors(field int) (*sparse.Index, bool) {
	x := r.parts(field).spr
	return x, x != nil
}

// Source appends the stored source of a document to dst; it returns nil if sources are not kept.
func (r *Reader) Source(doc uint32, dst []byte) ([]byte, error) {
	if r.sources == nil || doc >= r.docs {
		return nil, nil
	}
	d := sourceScratch.Get().(*sourceBlockData)
	d.b = -1
	dst, err := r.sources.get(doc, dst, d)
	if cap(d.raw) <= 4*mostSourceBlock { // huge blocks are not worth keeping
		sourceScratch.Put(d)
	}
	return dst, err
}

// HasSources tells whether sources are kept.
func (r *Reader) HasSources() bool { return r.sources != nil }

// EachSource calls fn with the source of every document, in order, until it returns an error, which EachSource returns. The bytes die
// when fn returns. It takes every block apart once, where Source does so for each document. Without sources it does nothing.
func (r *Reader) EachSource(fn func(doc uint32, source []byte) error) error {
	if r.sources == nil {
		return nil
	}
	d := sourceScratch.Get().(*sourceBlockData)
	d.b = -1
	err := r.sources.each(r.docs, d, fn)
	if cap(d.raw) <= 4*mostSourceBlock {
		sourceScratch.Put(d)
	}
	return err
}

// Verify compares the checksum of every section and returns the first damage.
func (r *Reader) Verify() error {
	for i := range r.sections {
		if err := r.sections[i].verify(); err != nil {
			return err
		}
	}
	return nil
}
