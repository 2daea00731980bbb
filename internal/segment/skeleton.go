package segment

import (
	"context"
	"io"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// ArrayPostings returns the list of a memtable's term: docs ascend, freqs[i] is the frequency in docs[i], positions holds
// freqs[i] ascending positions for each posting one after the other (nil: none kept). The slices must not change while the
// list is in use. Reading positions in ascending order of postings is linear; going back starts over.
func ArrayPostings(docs, freqs, positions []uint32) Postings { return Postings{} }

// DocsFreqs is Docs and Freqs in one pass.
func (p *Postings) DocsFreqs(b int, docs, freqs *[128]uint32) int { return 0 }

// VerifyMode says which checksums Open verifies.
type VerifyMode uint8

// Verify modes.
const (
	VerifyAll   VerifyMode = iota // every section
	VerifySmall                   // the footer and sections up to 64 KiB
)

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

	Terms       uint64 // distinct terms
	Postings    uint64 // sum of document frequencies
	Occurrences uint64 // sum of term frequencies
	SumLen      uint64 // sum of lengths
	DocsWithLen uint64 // documents with a length above 0
}

// Reader is an open segment.
type Reader struct{}

func Open(path string, o OpenOptions) (*Reader, error)             { return nil, ErrCorrupt }
func FromBytes(name string, b []byte) (*Reader, error)             { return nil, ErrCorrupt }
func (r *Reader) Close() error                                     { return nil }
func (r *Reader) NumDocs() uint32                                  { return 0 }
func (r *Reader) Size() int64                                      { return 0 }
func (r *Reader) Verify() error                                    { return nil }
func (r *Reader) Fields() []FieldMeta                              { return nil }
func (r *Reader) Key(doc uint32, dst []byte) []byte                { return dst }
func (r *Reader) FindKey(key string) (doc uint32, ok bool)         { return 0, false }
func (r *Reader) CommitTS(doc uint32) uint64                       { return 0 }
func (r *Reader) Lengths(field int) []uint16                       { return nil }
func (r *Reader) FieldStats(field int) score.FieldStats            { return score.FieldStats{} }
func (r *Reader) Present(field int) Presence                       { return Presence{} }
func (r *Reader) NumColumn(field int) (*NumColumn, bool)           { return nil, false }
func (r *Reader) StrColumn(field int) (*StrColumn, bool)           { return nil, false }
func (r *Reader) Source(doc uint32, dst []byte) ([]byte, error)    { return nil, nil }
func (r *Reader) Err() error                                       { return nil }
func (r *Reader) Postings(field int, term []byte) (Postings, bool) { return Postings{}, false }
func (r *Reader) ScanTerms(field int, prefix []byte, fn func(term []byte, df uint32) bool) error {
	return nil
}

// Presence is the set of documents that have a value for a field. The zero value is empty.
type Presence struct{}

func (p Presence) Count() int                                { return 0 }
func (p Presence) Has(doc uint32) bool                       { return false }
func (p Presence) NextSet(doc uint32) (next uint32, ok bool) { return 0, false }

// ColumnBlock is the number of documents in a block of a column.
const ColumnBlock = 1024

// NumColumn holds numbers in the order-preserving encoding of package schema.
type NumColumn struct{}

func (c *NumColumn) Values(doc uint32, dst []uint64) []uint64  { return dst }
func (c *NumColumn) First(doc uint32) (v uint64, ok bool)      { return 0, false }
func (c *NumColumn) NumBlocks() int                            { return 0 }
func (c *NumColumn) BlockRange(b int) (lo, hi uint64, ok bool) { return 0, 0, false }

// StrColumn holds text values as ordinals of a sorted dictionary.
type StrColumn struct{}

func (c *StrColumn) NumOrds() int                            { return 0 }
func (c *StrColumn) Seek(value []byte) (ord int, exact bool) { return 0, false }
func (c *StrColumn) Lookup(ord int, dst []byte) []byte       { return dst }
func (c *StrColumn) Ords(doc uint32, dst []uint32) []uint32  { return dst }

// WriterOptions has the zero value as default.
type WriterOptions struct {
	NoSources bool // sources are not kept; Source must not be called
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

// Writer writes one segment to a stream. The parts must come in this order, each at most once, each group ascending by field:
// Begin, Key for every document, the inverted fields, NumColumns, StrColumns, Presences, Source for every document (unless
// NoSources), Finish. Errors are sticky: only Finish need be checked.
type Writer struct{}

func NewWriter(w io.Writer, o WriterOptions) *Writer                    { return &Writer{} }
func (w *Writer) Begin(docs int, fields []FieldMeta)                    {}
func (w *Writer) Key(key []byte, commitTS uint64)                       {}
func (w *Writer) BeginField(field int, positions bool, lens []uint16)   {}
func (w *Writer) StartTerm(term []byte)                                 {}
func (w *Writer) Add(docs, freqs, positions []uint32)                   {}
func (w *Writer) EndTerm()                                              {}
func (w *Writer) EndField()                                             {}
func (w *Writer) NumColumn(field int, starts []uint32, values []uint64) {}

// StrColumn takes the values of document d as values[starts[d]:starts[d+1]]; nil starts: one for each document.
func (w *Writer) StrColumn(field int, starts []uint32, values [][]byte) {}
func (w *Writer) Presence(field int, docs []uint32)                     {}
func (w *Writer) Source(b []byte)                                       {}
func (w *Writer) Err() error                                            { return nil }
func (w *Writer) Finish() (Info, error)                                 { return Info{}, w.Err() }

// MergeSource is one input of a merge.
type MergeSource struct {
	R    *Reader
	Live bitset.Set // nil: every document
}

// MergeOptions has the zero value as default.
type MergeOptions struct {
	WriterOptions
	Limit func(n int) error // called with each number of bytes written; may wait; its error stops the merge
}

// NoDoc in a remap stands for a document that was dropped.
const NoDoc = 0xFFFFFFFF

// Merge writes the live documents of the sources as one segment. remap[i][d] is the new number of document d of source i.
func Merge(ctx context.Context, w io.Writer, sources []MergeSource, o MergeOptions) (Info, [][]uint32, error) {
	return Info{}, nil, ctx.Err()
}

// Describe prints what a segment consists of.
func Describe(w io.Writer, r *Reader) error { return nil }
