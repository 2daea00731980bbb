package segment

import (
	"math/bits"
)

// A column of numbers is cut into blocks of 1024 documents. A block keeps its least value and the differences to it in as few
// bits as the greatest needs; see FORMAT.md.

// block modes
const (
	colEmpty  = iota // no document has a value
	colOne           // each document has one value
	colAtMost        // each document has at most one: a bit for each document
	colMany          // each document has any number: the place of each document's first value
)

const (
	colEntry   = 32
	colTrailer = 32
	colBitmap  = ColumnBlock/8 + 2*ColumnBlock/64 // bitmap and the rank of each of its words
)

// colWidth rounds a width up to one that is read with a single load.
func colWidth(w int) int {
	if w > 56 {
		return 64
	}
	return w
}

// packedBytes is the size of n packed values.
func packedBytes(n, width int) int { return (n*width + 7) / 8 }

// appendPacked appends n values of the given width, low bits first.
func appendPacked(dst []byte, n, width int, value func(i int) uint64) []byte {
	if width == 0 {
		return dst
	}
	if width == 64 {
		for i := range n {
			dst = le.AppendUint64(dst, value(i))
		}
		return dst
	}
	var acc uint64
	have := 0
	for i := range n {
		acc |= value(i) << have
		have += width
		for have >= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
			have -= 8
		}
	}
	if have > 0 {
		dst = append(dst, byte(acc))
	}
	return dst
}

// packedAt reads value i of the given width from b, in which 8 bytes can be read wherever a value starts.
func packedAt(b []byte, i, width int) uint64 {
	if width == 64 {
		return le.Uint64(b[8*i:])
	}
	bit := i * width
	return le.Uint64(b[bit/8:]) >> (bit % 8) & (1<<width - 1)
}

// colBuilder collects a column block by block. The bytes may be taken out as they come.
type colBuilder struct {
	data    []byte
	taken   uint64
	entries []byte
	blocks  uint64
	values  uint64
	dense   bool // each document so far has one value
}

func (c *colBuilder) reset() {
	*c = colBuilder{data: c.data[:0], entries: c.entries[:0], dense: true}
}

// block adds the next docs documents, ColumnBlock of them in every block but the last. Document d has the values
// values[starts[d]-starts[0]:starts[d+1]-starts[0]]; without starts each document has one.
func (c *colBuilder) block(docs int, starts []uint32, values []uint64) {
	off := c.taken + uint64(len(c.data))
	mode := colOne
	if starts != nil {
		one, many := true, false
		for d := range docs {
			k := starts[d+1] - starts[d]
			one = one && k == 1
			many = many || k > 1
		}
		switch {
		case many:
			mode = colMany
		case len(values) == 0:
			mode = colEmpty
		case !one:
			mode = colAtMost
		}
	}
	c.dense = c.dense && mode == colOne
	var lo, hi uint64
	if len(values) > 0 {
		lo, hi = values[0], values[0]
		for _, v := range values[1:] {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	switch mode {
	case colAtMost:
		var bm [ColumnBlock / 64]uint64
		for d := range docs {
			if starts[d+1] > starts[d] {
				bm[d/64] |= 1 << (d % 64)
			}
		}
		for _, w := range bm {
			c.data = le.AppendUint64(c.data, w)
		}
		rank := 0
		for _, w := range bm {
			c.data = le.AppendUint16(c.data, uint16(rank))
			rank += bits.OnesCount64(w)
		}
	case colMany:
		c.data = appendPacked(c.data, docs+1, bits.Len(uint(len(values))), func(i int) uint64 { return uint64(starts[i] - starts[0]) })
	}
	width := colWidth(bits.Len64(hi - lo))
	c.data = appendPacked(c.data, len(values), width, func(i int) uint64 { return values[i] - lo })
	c.entries = le.AppendUint64(c.entries, lo)
	c.entries = le.AppendUint64(c.entries, hi)
	c.entries = le.AppendUint64(c.entries, off)
	c.entries = le.AppendUint32(c.entries, uint32(len(values)))
	c.entries = append(c.entries, byte(mode), byte(width), 0, 0)
	c.blocks++
	c.values += uint64(len(values))
}

func (c *colBuilder) drain() []byte {
	b := c.data
	c.taken += uint64(len(b))
	c.data = c.data[:0]
	return b
}

// finish returns the rest of the section after the bytes drained so far.
func (c *colBuilder) finish() []byte {
	end := c.taken + uint64(len(c.data))
	b := c.data
	for n := end; n%8 != 0; n++ {
		b = append(b, 0)
	}
	b = append(b, c.entries...)
	b = le.AppendUint64(b, c.values)
	b = le.AppendUint64(b, c.blocks)
	b = le.AppendUint64(b, end)
	flags := uint64(0)
	if c.dense {
		flags = 1
	}
	b = le.AppendUint64(b, flags)
	c.data = b[:0]
	return b
}

// NumColumn holds numbers in the order-preserving encoding of package schema, none, one or several for each document. It is safe
// to use at once and reading allocates nothing but a longer dst.
type NumColumn struct {
	sec     *section
	data    []byte // the section: places of values count from its start, and loads of 8 bytes may reach into the index
	entries []byte
	docs    uint32
	blocks  int
	values  uint64
	dense   bool
}

// colBlock is the decoded index entry of a block.
type colBlock struct {
	lo, hi uint64
	off    int
	count  int
	mode   uint8
	width  int
}

func openNumColumn(s *section, docs uint32) (*NumColumn, error) {
	b := s.data
	if len(b) < colTrailer || len(b)%8 != 0 {
		return nil, s.corrupt("column is shorter than its frame")
	}
	tr := b[len(b)-colTrailer:]
	values, blocks, end, flags := le.Uint64(tr), le.Uint64(tr[8:]), le.Uint64(tr[16:]), le.Uint64(tr[24:])
	want := (uint64(docs) + ColumnBlock - 1) / ColumnBlock
	room := uint64(len(b) - colTrailer)
	if blocks != want || end > room || (end+7)&^7+blocks*colEntry != room {
		return nil, s.corrupt("column's blocks and index do not fill it")
	}
	c := &NumColumn{sec: s, data: b, entries: b[room-blocks*colEntry : room], docs: docs, blocks: int(blocks), values: values, dense: flags&1 != 0}
	sum := uint64(0)
	for i := range c.blocks {
		raw := c.entries[i*colEntry:]
		e := c.entry(i)
		n := c.blockDocs(i)
		if le.Uint64(raw[16:]) > end || e.width > 64 || e.width > 56 && e.width != 64 || e.lo > e.hi {
			return nil, s.corrupt("column's block index is damaged")
		}
		if colWidth(bits.Len64(e.hi-e.lo)) != e.width {
			return nil, s.corrupt("column's block has a wrong width")
		}
		need := uint64(0)
		switch e.mode {
		case colEmpty:
			if e.count != 0 {
				return nil, s.corrupt("empty block of a column has values")
			}
		case colOne:
			if e.count != n {
				return nil, s.corrupt("full block of a column lacks values")
			}
		case colAtMost:
			if e.count > n {
				return nil, s.corrupt("block of a column has too many values")
			}
			need = colBitmap
		case colMany:
			need = uint64(packedBytes(n+1, bits.Len(uint(e.count))))
		default:
			return nil, s.corrupt("column's block has an unknown mode")
		}
		if c.dense && e.mode != colOne {
			return nil, s.corrupt("dense column has a block that is not")
		}
		need += (uint64(e.count)*uint64(e.width) + 7) / 8
		if uint64(e.off)+need > end {
			return nil, s.corrupt("column's block ends behind the data")
		}
		sum += uint64(e.count)
	}
	if sum != values {
		return nil, s.corrupt("column's blocks do not sum up to its values")
	}
	return c, nil
}

func (c *NumColumn) entry(b int) colBlock {
	e := c.entries[b*colEntry : b*colEntry+colEntry : len(c.entries)]
	return colBlock{lo: le.Uint64(e), hi: le.Uint64(e[8:]), off: int(le.Uint64(e[16:])), count: int(le.Uint32(e[24:])), mode: e[28], width: int(e[29])}
}

func (c *NumColumn) blockDocs(b int) int { return min(ColumnBlock, int(c.docs)-b*ColumnBlock) }

// span returns the first value of a document within its block, how many it has, and where the packed values start.
func (c *NumColumn) span(e *colBlock, b, d int) (first, n, at int) {
	switch e.mode {
	case colOne:
		return d, 1, e.off
	case colAtMost:
		bm := c.data[e.off : e.off+colBitmap]
		w := le.Uint64(bm[d/64*8:])
		if w>>(d%64)&1 == 0 {
			return 0, 0, 0
		}
		first = int(le.Uint16(bm[ColumnBlock/8+d/64*2:])) + bits.OnesCount64(w&(1<<(d%64)-1))
		if first >= e.count {
			c.sec.damaged("ranks of block %d", b)
			return 0, 0, 0
		}
		return first, 1, e.off + colBitmap
	case colMany:
		width := bits.Len(uint(e.count))
		s, t := packedAt(c.data[e.off:], d, width), packedAt(c.data[e.off:], d+1, width)
		if s > t || t > uint64(e.count) {
			c.sec.damaged("starts of block %d", b)
			return 0, 0, 0
		}
		return int(s), int(t - s), e.off + packedBytes(c.blockDocs(b)+1, width)
	}
	return 0, 0, 0
}

// Values appends the values of a document in the order they were given.
func (c *NumColumn) Values(doc uint32, dst []uint64) []uint64 {
	if doc >= c.docs {
		return dst
	}
	b := int(doc / ColumnBlock)
	if raw := c.entries[b*colEntry : b*colEntry+colEntry]; raw[28] == colOne {
		return append(dst, c.only(raw, doc))
	}
	e := c.entry(b)
	first, n, at := c.span(&e, b, int(doc%ColumnBlock))
	for i := first; i < first+n; i++ {
		dst = append(dst, e.lo+packedAt(c.data[at:], i, e.width))
	}
	return dst
}

// only reads the value of a document in a block where each has one.
func (c *NumColumn) only(raw []byte, doc uint32) uint64 {
	return le.Uint64(raw) + packedAt(c.data[le.Uint64(raw[16:]):], int(doc%ColumnBlock), int(raw[29]))
}

// First returns the first value of a document; ok is false when it has none.
func (c *NumColumn) First(doc uint32) (v uint64, ok bool) {
	if doc >= c.docs {
		return 0, false
	}
	b := int(doc / ColumnBlock)
	if raw := c.entries[b*colEntry : b*colEntry+colEntry]; raw[28] == colOne {
		return c.only(raw, doc), true
	}
	e := c.entry(b)
	first, n, at := c.span(&e, b, int(doc%ColumnBlock))
	if n == 0 {
		return 0, false
	}
	return e.lo + packedAt(c.data[at:], first, e.width), true
}

// NumBlocks is the number of blocks of ColumnBlock documents.
func (c *NumColumn) NumBlocks() int { return c.blocks }

// BlockRange gives the least and greatest value of a block; ok is false when it has none.
func (c *NumColumn) BlockRange(b int) (lo, hi uint64, ok bool) {
	e := c.entry(b)
	return e.lo, e.hi, e.count > 0
}

// ReadBlock sets dst to the values of the documents of block b if each has exactly one, and returns how many there are; ok is
// false if some document has none or several.
func (c *NumColumn) ReadBlock(b int, dst *[ColumnBlock]uint64) (n int, ok bool) {
	e := c.entry(b)
	if e.mode != colOne {
		return 0, false
	}
	src := c.data[e.off:]
	if e.width == 0 {
		for i := range e.count {
			dst[i] = e.lo
		}
		return e.count, true
	}
	unpack(dst[:e.count], src, e.width, e.lo)
	return e.count, true
}

// unpack sets dst to the first values of a packed array, each plus base: packedAt for all of them, without a multiplication and
// with one check of bounds for each.
func unpack(dst []uint64, src []byte, width int, base uint64) {
	if width == 64 {
		for i := range dst {
			dst[i] = base + le.Uint64(src[8*i:])
		}
		return
	}
	mask := uint64(1)<<width - 1
	bit := 0
	for i := range dst {
		at := src[bit>>3:]
		dst[i] = base + le.Uint64(at)>>(bit&7)&mask
		bit += width
	}
}

// StrColumn holds text values as ordinals of a sorted dictionary. It is safe to use at once and reading allocates nothing but a
// longer dst.
type StrColumn struct {
	dict *table
	ords *NumColumn
}

// NumOrds is the number of distinct values.
func (c *StrColumn) NumOrds() int { return int(c.dict.n) }

// Seek returns the first ordinal whose value is not below value, and whether it is equal.
func (c *StrColumn) Seek(value []byte) (ord int, exact bool) {
	o, exact := c.dict.seek(value)
	return int(o), exact
}

// Lookup appends the value of an ordinal, which must be below NumOrds.
func (c *StrColumn) Lookup(ord int, dst []byte) []byte { return c.dict.get(uint64(ord), dst) }

// LookupAscending appends the values of ordinals, which must ascend and be below NumOrds, and sets ends[i] to where value i ends.
// It reads on within a block, so that many values cost a fraction of as many calls of Lookup.
func (c *StrColumn) LookupAscending(ords []uint64, dst []byte, ends []int) []byte {
	return c.dict.getAscending(ords, dst, ends)
}

// Ords appends the ordinals of a document's values, in the order they were given.
func (c *StrColumn) Ords(doc uint32, dst []uint32) []uint32 {
	if doc >= c.ords.docs {
		return dst
	}
	b := int(doc / ColumnBlock)
	e := c.ords.entry(b)
	if e.hi >= c.dict.n {
		if e.count > 0 {
			c.ords.sec.damaged("ordinals of block %d", b)
		}
		return dst
	}
	first, n, at := c.ords.span(&e, b, int(doc%ColumnBlock))
	for i := first; i < first+n; i++ {
		dst = append(dst, uint32(min(e.lo+packedAt(c.ords.data[at:], i, e.width), c.dict.n-1)))
	}
	return dst
}

// First returns the ordinal of a document's first value; ok is false when it has none.
func (c *StrColumn) First(doc uint32) (ord uint32, ok bool) {
	v, ok := c.ords.First(doc)
	if ok && v >= c.dict.n {
		c.ords.sec.damaged("ordinals of block %d", doc/ColumnBlock)
		return 0, false
	}
	return uint32(v), ok
}

// ReadBlock is that of NumColumn for ordinals.
func (c *StrColumn) ReadBlock(b int, dst *[ColumnBlock]uint64) (n int, ok bool) {
	if c.ords.entry(b).hi >= c.dict.n {
		return 0, false // empty or damaged: Ords tells which
	}
	n, ok = c.ords.ReadBlock(b, dst)
	for i, o := range dst[:n] {
		dst[i] = min(o, c.dict.n-1)
	}
	return n, ok
}

// NumBlocks is the number of blocks of ColumnBlock documents.
func (c *StrColumn) NumBlocks() int { return c.ords.blocks }

// BlockRange gives the least and greatest ordinal of a block; ok is false when it has none.
func (c *StrColumn) BlockRange(b int) (lo, hi uint32, ok bool) {
	l, h, ok := c.ords.BlockRange(b)
	return uint32(l), uint32(h), ok
}
