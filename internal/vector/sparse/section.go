package sparse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"unsafe"
)

// ErrTooLarge means that there is more than a section can hold.
var ErrTooLarge = errors.New("exceeds the sparse vector section format")

// MaxVectors is the most vectors that a section can hold.
const MaxVectors = 1<<30 - 1

const (
	version     = 1
	trailerSize = 64
	blockEntry  = 32
	magic       = "wsparse\n"

	flagEach = 1 // every document has exactly one vector
)

// output counts what is written and keeps the first error.
type output struct {
	w   io.Writer
	b   []byte
	n   uint64
	err error
}

func (o *output) write(b []byte) {
	o.n += uint64(len(b))
	if o.b = append(o.b, b...); len(o.b) >= 1<<16 {
		o.flush()
	}
}

func (o *output) pad() {
	for o.n%8 != 0 {
		o.write([]byte{0})
	}
}

func (o *output) flush() {
	if o.err == nil && len(o.b) > 0 {
		_, o.err = o.w.Write(o.b)
	}
	o.b = o.b[:0]
}

// span is a run of vectors that becomes a block.
type span struct {
	first, n int
	weights  uint64
}

// listed says that a block is small enough for lists.
func (l limits) listed(s span) bool { return s.n <= l.vectors && s.weights <= uint64(l.weights) }

// cutter cuts vectors into blocks: a block takes documents as long as it stays within the limits, at least one.
type cutter struct {
	limits
	spans []span
	open  span // the block at hand
	doc   span // the document at hand, behind open
	last  uint32
}

func (c *cutter) add(ord int, doc uint32, weights int) {
	if ord > 0 && doc != c.last {
		c.close()
	}
	if c.doc.n == 0 {
		c.doc.first = ord
	}
	c.doc.n++
	c.doc.weights += uint64(weights)
	c.last = doc
}

// close moves the document at hand into a block.
func (c *cutter) close() {
	if c.doc.n == 0 {
		return
	}
	both := span{c.open.first, c.open.n + c.doc.n, c.open.weights + c.doc.weights}
	switch {
	case c.open.n == 0:
		c.open = c.doc
	case c.listed(both):
		c.open = both
	default:
		c.spans = append(c.spans, c.open)
		c.open = c.doc
	}
	c.doc = span{}
}

func (c *cutter) finish() []span {
	c.close()
	if c.open.n > 0 {
		c.spans = append(c.spans, c.open)
	}
	return c.spans
}

// Write writes the section of one field, set out in FORMAT.md, its length a multiple of 8. It depends on numDocs and the records
// alone, so a section made of the records of others equals one written afresh. Besides 12 bytes for each vector, it needs memory for
// the lists of one block, about 60 MB for a block of the greatest size.
//
// Documents and records have to be such as Encode makes, below numDocs and in order; else Write fails. ErrTooLarge says that there are
// more than MaxVectors.
func Write(ctx context.Context, w io.Writer, p Params, numDocs uint32, src Source) error {
	return write(ctx, w, p, numDocs, src, standard)
}

func write(ctx context.Context, w io.Writer, p Params, numDocs uint32, src Source, lim limits) error {
	n := src.Len()
	if n > MaxVectors {
		return fmt.Errorf("%w: %d vectors, at most %d", ErrTooLarge, n, MaxVectors)
	}
	out := &output{w: w}
	cut := cutter{limits: lim}
	offs := make([]byte, 0, 8*n)
	docs := make([]byte, 0, 4*n)
	having, nonzeros, each := uint32(0), uint64(0), n == int(numDocs)
	last := int64(-1)
	for ord := range n {
		if ord%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		doc, rec := src.Doc(ord), src.Record(ord)
		if int64(doc) < last || doc >= numDocs {
			return fmt.Errorf("sparse vector %d is of document %d of %d, the one before of %d", ord, doc, numDocs, last)
		}
		if why := fault(rec); why != "" {
			return fmt.Errorf("the record of sparse vector %d is damaged: %s", ord, why)
		}
		v, _ := parse(rec)
		if int64(doc) != last {
			having++
		}
		last = int64(doc)
		each = each && int(doc) == ord
		nonzeros += uint64(v.n)
		cut.add(ord, doc, v.n)
		out.write(rec)
		offs = le.AppendUint64(offs, out.n)
		docs = le.AppendUint32(docs, doc)
	}
	records := out.n
	out.pad()

	spans := cut.finish()
	lists := blockWriter{limits: lim}
	var entries []byte
	for _, s := range spans {
		place, dims := out.n, 0
		if lim.listed(s) {
			b, d, err := lists.lists(s.n, func(i int) []byte { return src.Record(s.first + i) }, ctx.Err)
			if err != nil {
				return err
			}
			dims = d
			out.write(b)
		}
		entries = le.AppendUint64(entries, place)
		entries = le.AppendUint64(entries, out.n-place)
		entries = le.AppendUint32(entries, uint32(s.first))
		entries = le.AppendUint32(entries, uint32(s.n))
		entries = le.AppendUint32(entries, uint32(dims))
		entries = le.AppendUint32(entries, 0)
	}
	flags := uint32(flagEach)
	if !each {
		flags = 0
		out.write(docs)
		out.pad()
	}
	out.write(offs)
	out.write(entries)
	t := make([]byte, 0, trailerSize)
	t = le.AppendUint64(t, records)
	t = le.AppendUint64(t, nonzeros)
	t = le.AppendUint32(t, numDocs)
	t = le.AppendUint32(t, uint32(n))
	t = le.AppendUint32(t, having)
	t = le.AppendUint32(t, uint32(len(spans)))
	t = le.AppendUint32(t, flags)
	t = le.AppendUint32(t, uint32(p.code()))
	t = append(t, make([]byte, trailerSize-len(t)-12)...)
	t = le.AppendUint32(t, version)
	t = append(t, magic...)
	out.write(t)
	out.flush()
	if out.err != nil {
		return fmt.Errorf("write sparse vectors: %w", out.err)
	}
	return nil
}

// code is what a section keeps of the parameters: how its records came to be, for information.
func (p Params) code() int {
	c := int(p.Weights) << 1
	if p.U16 {
		c |= 1
	}
	return c
}

// Open reads a section that Write made, in memory that begins at a multiple of 8 and lives as long as the Index. It checks every count
// and place that a search relies on; Verify looks at all the rest. The error is a *CorruptError.
func Open(b []byte, numDocs uint32) (*Index, error) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		// Only sections that are not mapped can lie so.
		b = append(make([]byte, 0, align8(len(b))), b...)
	}
	if len(b) < trailerSize || len(b)%8 != 0 || string(b[len(b)-len(magic):]) != magic {
		return nil, damaged("trailer", "it is not there")
	}
	t := b[len(b)-trailerSize:]
	if v := le.Uint32(t[52:]); v != version {
		return nil, damaged("trailer", fmt.Sprintf("version %d, this program reads %d", v, version))
	}
	records, nonzeros := le.Uint64(t), le.Uint64(t[8:])
	docs, n, having, blocks := le.Uint32(t[16:]), le.Uint32(t[20:]), le.Uint32(t[24:]), le.Uint32(t[28:])
	flags, code := le.Uint32(t[32:]), le.Uint32(t[36:])
	if !zero(t[40:52]) {
		return nil, damaged("trailer", "a number is out of range")
	}
	room := uint64(len(b) - trailerSize)
	switch {
	case docs != numDocs:
		return nil, damaged("trailer", fmt.Sprintf("it is of %d documents, not %d", docs, numDocs))
	case n > MaxVectors || 8*uint64(n) > room || having > n || having > docs || blocks > n || flags > flagEach || code>>1 > uint32(Uint4):
		return nil, damaged("trailer", "a number is out of range")
	case flags == flagEach && (n != docs || having != n):
		return nil, damaged("trailer", "not every document can have one vector")
	}
	x := &Index{p: Params{U16: code&1 != 0, Weights: Weights(code >> 1)}, numDocs: docs, n: int(n), having: int(having), nonzeros: nonzeros, raw: b}
	tail := 8*uint64(n) + blockEntry*uint64(blocks)
	if flags != flagEach {
		tail += uint64(align8(4 * int(n)))
	}
	if records > room || tail > room-records || tail > room-uint64(align8(int(records))) {
		return nil, damaged("trailer", "the parts do not fit")
	}
	x.records = b[:records:records]
	if !zero(b[records:align8(int(records))]) {
		return nil, damaged("records", "what follows them is not zero")
	}
	end := room - tail // of the lists
	at := end
	if flags != flagEach {
		x.docs = viewU32(b[at : at+4*uint64(n)])
		if !zero(b[at+4*uint64(n) : at+uint64(align8(4*int(n)))]) {
			return nil, damaged("documents", "what follows them is not zero")
		}
		at += uint64(align8(4 * int(n)))
	}
	x.offs = viewU64(b[at : at+8*uint64(n)])
	at += 8 * uint64(n)
	if err := x.checkVectors(); err != nil {
		return nil, err
	}
	return x, x.openBlocks(b[at:at+blockEntry*uint64(blocks)], uint64(align8(int(records))), end)
}

// checkVectors checks the documents and the places of the records.
func (x *Index) checkVectors() error {
	having, last := 0, int64(-1)
	for i, doc := range x.docs {
		if int64(doc) < last || doc >= x.numDocs {
			return damaged("documents", fmt.Sprintf("vector %d is out of order", i))
		}
		if int64(doc) != last {
			having++
		}
		last = int64(doc)
	}
	if x.docs != nil && having != x.having {
		return damaged("documents", "their number is wrong")
	}
	at := uint64(0)
	for i, o := range x.offs {
		if o < at || o > uint64(len(x.records)) {
			return damaged("places", fmt.Sprintf("record %d is out of order", i))
		}
		at = o
	}
	if at != uint64(len(x.records)) {
		return damaged("places", "the records do not fill their part")
	}
	return nil
}

// openBlocks reads the entries of the blocks, whose lists stand from one place to another.
func (x *Index) openBlocks(entries []byte, from, to uint64) error {
	x.blocks = make([]block, 0, len(entries)/blockEntry)
	next := 0
	for ; len(entries) > 0; entries = entries[blockEntry:] {
		place, length := le.Uint64(entries), le.Uint64(entries[8:])
		first, n, dims := int(le.Uint32(entries[16:])), int(le.Uint32(entries[20:])), uint64(le.Uint32(entries[24:]))
		bad := func(reason string) error {
			return damaged("blocks", fmt.Sprintf("block %d: %s", len(x.blocks), reason))
		}
		if le.Uint32(entries[28:]) != 0 {
			return bad("a number is out of range")
		}
		if place != from || length > to-from || length%8 != 0 || first != next || n < 1 || n > x.n-next {
			return bad("it does not follow the one before")
		}
		b := block{first: first, n: n}
		// A block ends where a document does.
		if end := first + n; end < x.n && x.Doc(end-1) == x.Doc(end) {
			return bad("it ends within a document")
		}
		switch {
		case length == 0:
			// Too large for lists, which only one document can be.
			if dims != 0 || x.Doc(first) != x.Doc(first+n-1) {
				return bad("it has no lists")
			}
		default:
			heads := uint64(align8(4*int(dims)) + align8(4*int(dims)+4))
			if n > blockVectors || heads > length || length-heads > math.MaxUint32 {
				return bad("its heads do not fit")
			}
			p := x.raw[place : place+length]
			b.listed = true
			b.dims = viewU32(p[:4*dims])
			b.places = viewU32(p[align8(4*int(dims)):][:4*dims+4])
			b.lists = p[heads:]
			if err := b.check(); err != "" {
				return bad(err)
			}
		}
		x.blocks = append(x.blocks, b)
		from, next = from+length, next+n
	}
	if from != to || next != x.n {
		return damaged("blocks", "they do not hold all vectors")
	}
	return nil
}

// check says what is wrong with the heads of a block.
func (b *block) check() string {
	last := int64(-1)
	for _, d := range b.dims {
		if int64(d) <= last {
			return "its dimensions do not ascend"
		}
		last = int64(d)
	}
	if b.places[0] != 0 {
		return "its lists do not begin"
	}
	at := uint32(0)
	for _, p := range b.places {
		if p < at || p%4 != 0 {
			return "its lists are out of order"
		}
		at = p
	}
	if align8(int(at)) != len(b.lists) {
		return "its lists do not fill it"
	}
	return ""
}

// zero says whether all bytes are.
func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
