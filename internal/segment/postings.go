package segment

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-search/weft/internal/segment/bitpack"
)

// how a list is kept
const (
	listArray  = iota // plain arrays of a memtable
	listOne           // one posting, in the dictionary
	listShort         // fewer than a block, varints
	listBlocks        // packed blocks with skip entries
)

const noDoc = math.MaxUint32

// Postings is the list of one term in one segment or memtable. It is a plain value: obtaining and reading it allocates nothing.
// It is not safe to use at once; a copy may be used elsewhere. The zero value is an empty list.
//
// Postings come in blocks of BlockSize, of which only the last may be short. Blocks may be read in any order.
type Postings struct {
	kind   uint8
	hasPos bool
	packed bool // short list: the positions begin with a packed block
	nImp   uint8
	df     uint32
	f      *invField // nil for arrays

	a     []uint32 // arrays: docs. Blocks: last document of each block
	freqs []uint32 // arrays
	pos   []uint32 // arrays: positions of all postings
	cur   positionCursor

	// data is the list's bytes: of a singleton its positions; of a short list documents from docOff and the rest from docEnd;
	// of blocks everything.
	data           []byte
	entOff, docOff int
	docEnd         int

	doc, freq uint32 // singleton; for a short list doc is its last document once known
	known     bool

	err error
}

// ArrayPostings returns the list of a memtable's term: docs ascend, freqs[i] is the frequency in docs[i], positions holds
// freqs[i] ascending positions for each posting one after the other (nil: none kept). The slices must not change while the
// list is in use. Reading positions in ascending order of blocks is linear; going back starts over.
func ArrayPostings(docs, freqs, positions []uint32) Postings {
	return Postings{kind: listArray, df: uint32(len(docs)), a: docs, freqs: freqs, pos: positions, hasPos: positions != nil}
}

// DocFreq is the number of postings, of dead documents too.
func (p *Postings) DocFreq() int { return int(p.df) }

// Blocks is the number of blocks: ceil(DocFreq/BlockSize).
func (p *Postings) Blocks() int { return int((p.df + BlockSize - 1) / BlockSize) }

// HasPositions tells whether Positions can be asked.
func (p *Postings) HasPositions() bool { return p.hasPos }

// Err is the first damage met while reading the list. After damage Docs returns 0.
func (p *Postings) Err() error { return p.err }

// blockLen is the number of postings of a block.
func (p *Postings) blockLen(b int) int { return min(BlockSize, int(p.df)-b*BlockSize) }

// LastDoc is the last document of block b.
func (p *Postings) LastDoc(b int) uint32 {
	if p.kind == listBlocks {
		return p.a[b]
	}
	return p.lastDoc(b)
}

func (p *Postings) lastDoc(b int) uint32 {
	if p.kind == listArray {
		return p.a[b*BlockSize+p.blockLen(b)-1]
	}
	if p.kind == listShort && !p.known {
		var docs [BlockSize]uint32
		p.Docs(0, &docs)
	}
	return p.doc
}

// SeekBlock returns the first block from `from` on whose last document is not below doc, Blocks() if there is none.
func (p *Postings) SeekBlock(from int, doc uint32) int {
	n := p.Blocks()
	if from >= n || p.LastDoc(from) >= doc {
		return min(from, n)
	}
	// LastDoc(lo) < doc. Gallop until a block reaches doc or the list ends, then halve.
	lo, step := from, 1
	for lo+step < n && p.LastDoc(lo+step) < doc {
		lo += step
		step *= 2
	}
	hi := min(lo+step, n)
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		if p.LastDoc(mid) < doc {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// fail records damage.
func (p *Postings) fail(format string, args ...any) int {
	if p.err == nil {
		if p.f == nil {
			p.err = fmt.Errorf(format, args...)
		} else {
			p.err = p.f.post.damaged(format, args...)
		}
	}
	return 0
}

// entry returns the skip entry of block b.
func (p *Postings) entry(b int) []byte {
	at := p.entOff + b*entrySize
	return p.data[at : at+entrySize : at+entrySize]
}

// Docs sets dst to the documents of block b, ascending, fills what is behind them with 0xFFFFFFFF and returns how many there are;
// 0 after damage.
func (p *Postings) Docs(b int, dst *[BlockSize]uint32) int {
	if p.kind == listBlocks && (b+1)*BlockSize <= int(p.df) {
		if p.err != nil {
			return fill(dst, 0)
		}
		e := p.entry(b)
		width := e[9]
		at := p.docOff + int(le.Uint32(e))
		if width > 32 || at+bitpack.Size(width) > p.docEnd {
			p.fail("documents of block %d", b)
			return fill(dst, 0)
		}
		base := uint32(0)
		if b > 0 {
			base = p.a[b-1]
		}
		last := p.a[b]
		bitpack.UnpackDeltas(dst, p.data[at:p.docEnd], width, base)
		// Differences of 24 bits cannot overflow in sum. So if the last document comes out as the index has it and that is not
		// below the base, all are in order and below it.
		if dst[BlockSize-1] != last || base > last || last >= p.f.docs || width > 24 && !slices.IsSorted(dst[:]) {
			p.fail("documents of block %d", b)
			return fill(dst, 0)
		}
		return BlockSize
	}
	return p.docsFreqs(b, dst, nil)
}

// Freqs sets dst to the frequencies of block b; what is behind them is undefined.
func (p *Postings) Freqs(b int, dst *[BlockSize]uint32) {
	if p.kind == listBlocks && (b+1)*BlockSize <= int(p.df) {
		e := p.entry(b)
		width := e[10]
		at := p.docOff + int(le.Uint32(e)) + bitpack.Size(e[9])
		if width > 32 || at+bitpack.Size(width) > p.docEnd {
			p.fail("frequencies of block %d", b)
			for i := range dst {
				dst[i] = 1
			}
			return
		}
		bitpack.UnpackAdd(dst, p.data[at:p.docEnd], width, 1)
		return
	}
	p.docsFreqs(b, nil, dst)
}

// DocsFreqs is Docs and Freqs in one pass.
func (p *Postings) DocsFreqs(b int, docs, freqs *[BlockSize]uint32) int {
	if p.kind == listBlocks && (b+1)*BlockSize <= int(p.df) {
		n := p.Docs(b, docs)
		p.Freqs(b, freqs)
		return n
	}
	return p.docsFreqs(b, docs, freqs)
}

// fill sets dst[n:] to 0xFFFFFFFF and returns n.
func fill(dst *[BlockSize]uint32, n int) int {
	copy(dst[n:], noDocs[n:])
	return n
}

var noDocs = func() (a [BlockSize]uint32) {
	for i := range a {
		a[i] = noDoc
	}
	return a
}()

// docsFreqs reads every block that is not packed; either destination may be nil.
func (p *Postings) docsFreqs(b int, docs, freqs *[BlockSize]uint32) int {
	n := 0
	switch p.kind {
	case listArray:
		n = p.blockLen(b)
		if docs != nil {
			copy(docs[:], p.a[b*BlockSize:b*BlockSize+n])
		}
		if freqs != nil {
			copy(freqs[:], p.freqs[b*BlockSize:b*BlockSize+n])
		}
	case listOne:
		n = 1
		if docs != nil {
			docs[0] = p.doc
		}
		if freqs != nil {
			freqs[0] = p.freq
		}
	case listShort:
		n = p.varints(p.docOff, b, docs, freqs)
	case listBlocks:
		n = p.varints(p.docOff+int(le.Uint32(p.entry(b))), b, docs, freqs)
	}
	if p.err != nil {
		n = 0
	}
	if docs != nil {
		fill(docs, n)
	}
	return n
}

// varints reads a block of fewer than BlockSize postings: for each the difference to the document before, doubled, plus one if
// the frequency is 1; otherwise the frequency follows.
func (p *Postings) varints(at, b int, docs, freqs *[BlockSize]uint32) int {
	n := p.blockLen(b)
	doc := uint64(0)
	if b > 0 {
		doc = uint64(p.a[b-1])
	}
	if at > p.docEnd {
		return p.damagedTail(b, freqs)
	}
	src := p.data[:p.docEnd]
	var v uint64
	for i := range n {
		if uint(at) < uint(len(src)) && src[at] < 0x80 { // spelled out: this is the inner loop of short lists
			v = uint64(src[at])
			at++
		} else {
			v, at = uvarintLong(src, at)
		}
		d := v >> 1
		if d == 0 && (i > 0 || b > 0) {
			return p.damagedTail(b, freqs)
		}
		doc += d
		f := uint64(1)
		if v&1 == 0 {
			if uint(at) < uint(len(src)) && src[at] < 0x80 {
				f = uint64(src[at])
				at++
			} else {
				f, at = uvarintLong(src, at)
			}
		}
		if at < 0 || doc >= uint64(p.f.docs) || f > math.MaxUint32 {
			return p.damagedTail(b, freqs)
		}
		if docs != nil {
			docs[i] = uint32(doc)
		}
		if freqs != nil {
			freqs[i] = uint32(f)
		}
	}
	if p.kind == listShort {
		p.doc, p.known = uint32(doc), true
	}
	return n
}

func (p *Postings) damagedTail(b int, freqs *[BlockSize]uint32) int {
	p.fail("postings of block %d", b)
	p.known = true
	if freqs != nil {
		for i := range freqs {
			freqs[i] = 1
		}
	}
	return 0
}

// Impacts appends the impacts of block b: at most 4, or of the whole list if b is −1: at most 8. For a memtable's list they are
// computed from the frequencies alone, at a cost linear in what they bound.
func (p *Postings) Impacts(b int, dst []Impact) []Impact {
	switch p.kind {
	case listOne:
		return append(dst, Impact{p.freq, p.f.lens[p.doc]})
	case listShort:
		d, _ := p.shortImpacts(dst)
		return d
	case listBlocks:
		at, n := headerSize, int(p.nImp)
		if b >= 0 {
			at = p.entOff + b*entrySize + 12
			n = min(int(p.data[at-1]), blockImpacts)
		}
		for ; n > 0; n-- {
			f := uint32(le.Uint16(p.data[at:]))
			if f == math.MaxUint16 {
				f = math.MaxUint32 // it was too great to be kept
			}
			dst = append(dst, Impact{f, le.Uint16(p.data[at+2:])})
			at += 4
		}
		return dst
	}
	// A document is at least as long as any of its terms is frequent.
	freqs := p.freqs
	if b >= 0 {
		freqs = freqs[b*BlockSize : b*BlockSize+p.blockLen(b)]
	}
	if len(freqs) == 0 {
		return dst
	}
	hi, lo := freqs[0], freqs[0]
	for _, f := range freqs[1:] {
		hi, lo = max(hi, f), min(lo, f)
	}
	return append(dst, Impact{hi, uint16(min(lo, math.MaxUint16))})
}

// shortImpacts reads the impacts of a short list and returns the place after them.
func (p *Postings) shortImpacts(dst []Impact) ([]Impact, int) {
	at, n := p.docEnd, uint64(1)
	if p.df >= shortImpacts {
		n, at = uvarint(p.data, at)
	}
	if at < 0 || n > blockImpacts {
		p.fail("impacts of a short list")
		return append(dst, Impact{math.MaxUint32, 0}), -1
	}
	var f, l uint64
	for range n {
		f, at = uvarint(p.data, at)
		l, at = uvarint(p.data, at)
		if at < 0 || f > math.MaxUint32 || l > math.MaxUint16 {
			p.fail("impacts of a short list")
			return append(dst, Impact{math.MaxUint32, 0}), -1
		}
		dst = append(dst, Impact{uint32(f), uint16(l)})
	}
	return dst, at
}

// positionCursor remembers where the positions of a posting begin, so that reading them in ascending order is linear.
type positionCursor struct {
	known  bool
	packed bool // a packed block, or the mark of the varints, is at data[at]
	b, i   int  // block and posting
	at     int  // place in data; arrays: positions before the block
	skip   int  // positions between data[at], or the start of the array, and the posting's
}

// Positions appends the token positions of posting i of block b, ascending. freqs are as Freqs(b) gave them. Reading in ascending
// order is fastest.
func (p *Postings) Positions(b, i int, freqs *[BlockSize]uint32, dst []uint32) []uint32 {
	if !p.hasPos || p.err != nil {
		return dst
	}
	c := &p.cur
	if !c.known || c.b != b || i < c.i {
		if !p.startPositions(b) {
			return dst
		}
	}
	for _, f := range freqs[c.i:i] {
		c.skip += int(f)
	}
	c.i = i
	n := int(freqs[i])
	if p.kind == listArray {
		if c.skip+n > len(p.pos) {
			p.fail("positions of block %d are missing", b)
			return dst
		}
		return append(dst, p.pos[c.skip:c.skip+n]...)
	}
	for c.packed && c.skip >= BlockSize {
		if uint(c.at) >= uint(len(p.data)) {
			return p.badPositions(dst)
		}
		width := p.data[c.at]
		if width > 32 {
			break // of the mark; unpackPositions tells it from damage
		}
		c.at += 1 + bitpack.Size(width)
		c.skip -= BlockSize
	}
	start := len(dst)
	dst = p.unpackPositions(c.at, c.skip, n, c.packed, dst)
	sum := uint32(0)
	for j, d := range dst[start:] {
		sum += d
		dst[start+j] = sum
	}
	return dst
}

// startPositions puts the cursor on the first posting of block b.
func (p *Postings) startPositions(b int) bool {
	c := &p.cur
	if p.kind != listArray {
		at, skip, packed := p.positionsAt(b)
		*c = positionCursor{known: at >= 0, packed: packed, b: b, at: at, skip: skip}
		return c.known
	}
	if !c.known || c.b > b {
		*c = positionCursor{known: true}
	}
	for _, f := range p.freqs[c.b*BlockSize : b*BlockSize] {
		c.at += int(f)
	}
	c.b, c.i, c.skip = b, 0, c.at
	return true
}

// BlockPositions appends the positions of all postings of block b, one after the other. freqs are as Freqs(b) gave them.
func (p *Postings) BlockPositions(b int, freqs *[BlockSize]uint32, dst []uint32) []uint32 {
	if !p.hasPos || p.err != nil {
		return dst
	}
	n := 0
	for _, f := range freqs[:p.blockLen(b)] {
		n += int(f)
	}
	if p.kind == listArray {
		p.startPositions(b)
		if p.cur.skip+n > len(p.pos) {
			p.fail("positions of block %d are missing", b)
			return dst
		}
		return append(dst, p.pos[p.cur.skip:p.cur.skip+n]...)
	}
	at, skip, packed := p.positionsAt(b)
	if at < 0 {
		return dst
	}
	start := len(dst)
	dst = p.unpackPositions(at, skip, n, packed, dst)
	if p.err != nil {
		return dst
	}
	rest := dst[start:]
	for _, f := range freqs[:p.blockLen(b)] {
		sum := uint32(0)
		for j, d := range rest[:f] {
			sum += d
			rest[j] = sum
		}
		rest = rest[f:]
	}
	return dst
}

// positionsAt returns where in data the position block begins that holds the first position of block b, how many positions
// stand before that in it, and whether packed blocks come before the varints. A negative place means damage.
func (p *Postings) positionsAt(b int) (at, skip int, packed bool) {
	switch p.kind {
	case listBlocks:
		e := p.entry(b)
		return p.docEnd + int(le.Uint32(e[4:])), int(e[8]), true
	case listShort:
		var imp [blockImpacts]Impact
		_, at = p.shortImpacts(imp[:0])
		return at, 0, p.packed
	}
	return 0, 0, p.freq >= BlockSize
}

// unpackPositions appends n differences of positions after skipping some, from position blocks that begin at data[at]; packed
// tells whether packed blocks come before the varints.
func (p *Postings) unpackPositions(at, skip, n int, packed bool, dst []uint32) []uint32 {
	src := p.data
	start := len(dst)
	for packed {
		if uint(at) >= uint(len(src)) {
			return p.badPositions(dst[:start])
		}
		width := src[at]
		if width == tailMark {
			at++
			break
		}
		end := at + 1 + bitpack.Size(width)
		if width > 32 || end > len(src) {
			return p.badPositions(dst[:start])
		}
		if skip < BlockSize {
			m := min(n, BlockSize-skip)
			dst = appendUnpacked(dst, src[at+1:end], width, skip, m)
			if n -= m; n == 0 {
				return dst
			}
			skip = BlockSize
		}
		skip -= BlockSize
		at = end
	}
	if at > len(src) || n > len(src)-at || skip > len(src)-at {
		return p.badPositions(dst[:start])
	}
	at = skipVarints(src, at, skip)
	var v uint64
	for range n {
		v, at = uvarint(src, at)
		dst = append(dst, uint32(v))
	}
	if at < 0 {
		return p.badPositions(dst[:start])
	}
	return dst
}

func (p *Postings) badPositions(dst []uint32) []uint32 {
	p.fail("positions")
	return dst
}

// fewUnpacked is the number of values up to which picking them one by one beats unpacking their block.
const fewUnpacked = 8

// appendUnpacked appends values [from, from+n) of a packed block.
func appendUnpacked(dst []uint32, src []byte, width uint8, from, n int) []uint32 {
	if n > fewUnpacked {
		return appendMany(dst, src, width, from, n)
	}
	for i := from; i < from+n; i++ {
		dst = append(dst, packedValue(src, int(width), i))
	}
	return dst
}

func appendMany(dst []uint32, src []byte, width uint8, from, n int) []uint32 {
	var v [BlockSize]uint32
	bitpack.Unpack(&v, src, width)
	return append(dst, v[from:from+n]...)
}

// packedValue reads one value of a block in the layout of package bitpack.
func packedValue(src []byte, width, i int) uint32 {
	lane, bit := i%8, i/8*width
	word, shift := bit/32, bit%32
	v := laneWord(src, width, lane, word) >> shift
	if shift+width > 32 {
		v |= laneWord(src, width, lane, word+1) << (32 - shift)
	}
	return v & (1<<width - 1)
}

// laneWord reads a 32-bit word of a lane; the last of an odd width has 16 bits.
func laneWord(src []byte, width, lane, word int) uint32 {
	if word < width/2 {
		return le.Uint32(src[(word*8+lane)*4:])
	}
	if width == 0 {
		return 0
	}
	return uint32(le.Uint16(src[width/2*32+lane*2:]))
}

// openList makes p the list of df postings, two or more, in data.
func (p *Postings) openList(f *invField, df uint32, data []byte) bool {
	p.f, p.df, p.hasPos, p.data = f, df, f.meta.Positions, data
	if df < BlockSize {
		p.kind = listShort
		n, at := uvarint(data, 0)
		p.packed = n&1 != 0
		n >>= 1
		if at < 0 || n > uint64(len(data)-at) {
			p.fail("short list")
			return false
		}
		p.docOff, p.docEnd = at, at+int(n)
		return true
	}
	p.kind = listBlocks
	nb := p.Blocks()
	if len(data) < headerSize {
		p.fail("list is shorter than its header")
		return false
	}
	docBytes := int(le.Uint32(data))
	p.nImp = data[4]
	lastOff := headerSize + 4*int(p.nImp)
	p.entOff = lastOff + 4*nb
	p.docOff = p.entOff + entrySize*nb
	p.docEnd = p.docOff + docBytes
	if p.nImp > listImpacts || p.docEnd > len(data) {
		p.fail("list is shorter than its index")
		return false
	}
	p.a = viewU32(data[lastOff:p.entOff])
	return true
}
