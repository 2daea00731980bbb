package segment

import (
	"bytes"
	"context"
	"math/bits"

	"github.com/weft-search/weft/internal/segment/bitpack"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// DeepVerify compares every checksum as Verify does and then reads all there is and compares what the format says twice or in a
// certain order: strings of tables ascend and the indexes of tables lead to them; documents of lists ascend; lists, frequencies,
// positions and lengths sum up to what the fields section counts; impacts bound every posting; ranges of column blocks are those of
// their values; sets of documents agree with the columns and vectors beside them; indexes of vectors are whole; the blocks of sources
// hold each document once. It finds
// what a fault in memory or in a program leaves under true checksums.
//
// It returns the first damage as a *CorruptError, or the error of ctx. It takes about as long as a merge of the segment and little
// memory: a block, the positions of 128 postings, a bit for each distinct value of a column of text.
func (r *Reader) DeepVerify(ctx context.Context) error {
	v := verifier{ctx: ctx, r: r, pending: verifyStep}
	for i := range r.sections {
		if err := v.work(len(r.sections[i].data)); err != nil {
			return err
		}
		if err := r.sections[i].verify(); err != nil {
			return err
		}
	}
	if err := v.table(r.keys); err != nil {
		return err
	}
	if err := v.column(r.commit, nil, nil); err != nil {
		return err
	}
	for i := range r.fields {
		if err := v.field(&r.fields[i], r.parts(r.fields[i].ID)); err != nil {
			return err
		}
	}
	if r.sources != nil {
		return v.sources(r.sources)
	}
	return nil
}

// verifier is one DeepVerify.
type verifier struct {
	ctx     context.Context
	r       *Reader
	pending int // work since ctx was asked
	pos     []uint32
}

// verifyStep is how much work, in bytes or so, is done between two looks at the context.
const verifyStep = 64 << 10

// work counts work and returns the error of the context.
func (v *verifier) work(n int) error {
	if v.pending += n; v.pending < verifyStep {
		return nil
	}
	v.pending = 0
	return v.ctx.Err()
}

// tableVerifier checks the strings of a table as a cursor meets them.
type tableVerifier struct {
	t    *table
	n    uint64
	prev []byte
}

func (tv *tableVerifier) see(c *tableCursor) error {
	t := tv.t
	if tv.n > 0 && bytes.Compare(tv.prev, c.cur) >= 0 {
		return t.sec.damaged("string %d, %q, does not follow %q", tv.n, clip(c.cur), clip(tv.prev))
	}
	if len(c.cur) > MaxStringLen || !bytes.HasPrefix(c.cur, t.common) {
		return t.sec.damaged("string %d, %q, lacks the prefix of all or is too long", tv.n, clip(c.cur))
	}
	if c.i == 1 && t.prefix[c.b] != bigPrefix(c.cur[len(t.common):]) {
		return t.sec.damaged("index does not lead to block %d", c.b)
	}
	if c.i == c.n && c.at != len(c.strs) {
		return t.sec.damaged("strings of block %d end before it does", c.b)
	}
	tv.prev = append(tv.prev[:0], c.cur...)
	tv.n++
	return nil
}

func (tv *tableVerifier) end() error {
	t := tv.t
	if tv.n != t.n {
		return t.sec.damaged("%d strings instead of %d", tv.n, t.n)
	}
	if t.off[0] != 0 || t.off[len(t.off)-1] != uint64(len(t.blocks)) {
		return t.sec.damaged("blocks do not fill the table")
	}
	if t.n == 0 {
		return nil
	}
	if first, ok := t.firstOf(0); !ok || commonPrefix(first, tv.prev) != len(t.common) {
		return t.sec.damaged("prefix of all strings")
	}
	return nil
}

func (v *verifier) table(t *table) error {
	var c tableCursor
	c.start(t, 0, 0)
	tv := tableVerifier{t: t}
	for tv.n < t.n {
		if c.i == c.n && !c.loadBlock() || !c.step() {
			break
		}
		if err := tv.see(&c); err != nil {
			return err
		}
		if err := v.work(len(c.cur)); err != nil {
			return err
		}
	}
	if c.bad {
		return v.r.Err()
	}
	return tv.end()
}

// field checks all parts of a field.
func (v *verifier) field(m *FieldMeta, p *fieldParts) error {
	if p.set != nil {
		if err := v.presence(v.r.find(tagPresence, uint32(m.ID)), p.set); err != nil {
			return err
		}
	}
	// present tells what the set must say of a document that has n values. A text too long for the column, or one without tokens,
	// is in the set all the same.
	present := func(s *section, exact bool) func(doc uint32, n int) error {
		if p.set == nil {
			return nil
		}
		return func(doc uint32, n int) error {
			if has := p.set.Has(doc); n > 0 && !has || exact && n == 0 && has {
				return s.damaged("document %d has %d values; in the set of documents with one: %v", doc, n, has)
			}
			return nil
		}
	}
	if p.inv != nil {
		s := v.r.find(tagLengths, uint32(m.ID))
		if err := v.lengths(s, p.inv, present(s, false)); err != nil {
			return err
		}
		if err := v.inverted(p.inv); err != nil {
			return err
		}
	}
	if p.num != nil {
		if err := v.column(p.num, present(p.num.sec, true), nil); err != nil {
			return err
		}
	}
	if p.vec != nil {
		s := v.r.find(tagVectors, uint32(m.ID))
		if err := v.vectors(s, p.vec, p.set); err != nil {
			return err
		}
	}
	if p.spr != nil {
		s := v.r.find(tagSparse, uint32(m.ID))
		if err := v.vectors(s, p.spr, p.set); err != nil {
			return err
		}
	}
	if p.str == nil {
		return nil
	}
	if err := v.table(p.str.dict); err != nil {
		return err
	}
	used := bitset.New(int(p.str.dict.n))
	err := v.column(p.str.ords, present(p.str.ords.sec, false), func(doc uint32, ord uint64) error {
		if ord >= p.str.dict.n {
			return p.str.ords.sec.damaged("document %d has value %d of %d", doc, ord, p.str.dict.n)
		}
		used.Add(uint32(ord))
		return nil
	})
	if err != nil {
		return err
	}
	if n := used.Count(); uint64(n) != p.str.dict.n {
		return p.str.ords.sec.damaged("%d values are used, there are %d", n, p.str.dict.n)
	}
	return nil
}

func (v *verifier) lengths(s *section, f *invField, each func(doc uint32, n int) error) error {
	var sum, docs uint64
	for d, l := range f.lens {
		sum += uint64(l)
		if l > 0 {
			docs++
		}
		if each != nil {
			if err := each(uint32(d), int(l)); err != nil {
				return err
			}
		}
		if err := v.work(4); err != nil {
			return err
		}
	}
	if sum != f.meta.SumLen || docs != f.meta.DocsWithLen {
		return s.damaged("lengths sum up to %d in %d documents, the fields section says %d in %d", sum, docs, f.meta.SumLen, f.meta.DocsWithLen)
	}
	return nil
}

// inverted checks the terms of a field with their lists.
func (v *verifier) inverted(f *invField) error {
	var tc termCursor
	tc.seek(f, nil)
	tv := tableVerifier{t: f.terms}
	var p Postings
	var postings, occurrences, end uint64
	for tc.next() {
		if err := tv.see(&tc.c); err != nil {
			return err
		}
		if tc.c.i == 1 && f.terms.base[tc.c.b] != end {
			return f.terms.sec.damaged("lists of block %d begin at %d, those before it end at %d", tc.c.b, f.terms.base[tc.c.b], end)
		}
		if tc.c.i == tc.c.n && tc.at != len(tc.c.pay) {
			return f.terms.sec.damaged("payload of block %d", tc.c.b)
		}
		end = tc.off
		if !tc.postings(&p) {
			return p.err
		}
		n, err := v.list(&p, tc.term())
		if err != nil {
			return err
		}
		postings += uint64(p.df)
		occurrences += n
		if err := v.work(len(tc.term())); err != nil {
			return err
		}
	}
	if tc.c.bad {
		return v.r.Err()
	}
	if err := tv.end(); err != nil {
		return err
	}
	if (end+7)&^7 != uint64(len(f.post.data)) {
		return f.post.damaged("lists end at %d of %d bytes", end, len(f.post.data))
	}
	if postings != f.meta.Postings || occurrences != f.meta.Occurrences {
		return f.post.damaged("%d postings with %d occurrences, the fields section says %d with %d", postings, occurrences, f.meta.Postings, f.meta.Occurrences)
	}
	return nil
}

// list checks a list and returns the sum of its frequencies.
func (v *verifier) list(p *Postings, term []byte) (occurrences uint64, err error) {
	s := p.f.post
	var whole, block []Impact
	var wholeBuf [listImpacts]Impact
	var blockBuf [blockImpacts]Impact
	whole = p.Impacts(-1, wholeBuf[:0])
	var docs, freqs [BlockSize]uint32
	var walk positionWalk
	if p.hasPos {
		at, _, packed := p.positionsAt(0)
		if p.kind == listBlocks {
			at = p.docEnd
		}
		walk = positionWalk{at: at, packed: packed}
	}
	prev := int64(-1)
	place := 0 // of a packed list: documents
	for b := range p.Blocks() {
		if err := v.work(8 * BlockSize); err != nil {
			return 0, err
		}
		n := p.DocsFreqs(b, &docs, &freqs)
		if p.err != nil {
			return 0, p.err
		}
		if n != p.blockLen(b) || docs[n-1] != p.LastDoc(b) {
			return 0, s.damaged("term %q: documents of block %d", clip(term), b)
		}
		block = p.Impacts(b, blockBuf[:0])
		for i, d := range docs[:n] {
			if int64(d) <= prev || d >= p.f.docs {
				return 0, s.damaged("term %q: document %d follows %d", clip(term), d, prev)
			}
			prev = int64(d)
			if freqs[i] == 0 {
				return 0, s.damaged("term %q: frequency 0 in document %d", clip(term), d)
			}
			occurrences += uint64(freqs[i])
			if l := p.f.lens[d]; !bounded(block, freqs[i], l) || !bounded(whole, freqs[i], l) {
				return 0, s.damaged("term %q: impacts do not bound document %d with frequency %d and length %d", clip(term), d, freqs[i], l)
			}
		}
		if p.kind == listBlocks {
			e := p.entry(b)
			if int(le.Uint32(e)) != place {
				return 0, s.damaged("term %q: place of block %d", clip(term), b)
			}
			place += bitpack.Size(e[9]) + bitpack.Size(e[10])
			at, skip := 0, 0
			if p.hasPos {
				at, skip = walk.at-p.docEnd, walk.skip
			}
			if int(le.Uint32(e[4:])) != at || int(e[8]) != skip {
				return 0, s.damaged("term %q: place of the positions of block %d", clip(term), b)
			}
		}
		if p.hasPos {
			if err := v.positions(p, b, &freqs, &walk, term); err != nil {
				return 0, err
			}
		}
	}
	if p.err != nil {
		return 0, p.err
	}
	if p.hasPos && !walk.atEnd(p.data) {
		return 0, s.damaged("term %q: positions do not end where the list does", clip(term))
	}
	return occurrences, nil
}

// bounded tells whether an impact covers a posting.
func bounded(impacts []Impact, freq uint32, length uint16) bool {
	for _, im := range impacts {
		if im.Freq >= freq && im.Len <= length {
			return true
		}
	}
	return false
}

// positions checks those of a block's postings, one posting at a time, and moves the walk behind them.
func (v *verifier) positions(p *Postings, b int, freqs *[BlockSize]uint32, walk *positionWalk, term []byte) error {
	for i, f := range freqs[:p.blockLen(b)] {
		v.pos = p.Positions(b, i, freqs, v.pos[:0])
		if p.err != nil {
			return p.err
		}
		if len(v.pos) != int(f) {
			return p.f.post.damaged("term %q: %d positions for frequency %d", clip(term), len(v.pos), f)
		}
		for j := 1; j < len(v.pos); j++ {
			if v.pos[j] < v.pos[j-1] {
				return p.f.post.damaged("term %q: position %d follows %d", clip(term), v.pos[j], v.pos[j-1])
			}
		}
		if err := v.work(4 * len(v.pos)); err != nil {
			return err
		}
		walk.advance(p.data, int(f))
	}
	return nil
}

// positionWalk is the place in a stream of positions that the positions of the postings before it lead to.
type positionWalk struct {
	at     int  // of the position block, or of the varints
	skip   int  // positions before the place in there
	packed bool // a position block or the mark of the varints is at at
}

func (w *positionWalk) advance(data []byte, n int) {
	w.skip += n
	for w.packed && w.skip >= BlockSize && w.at < len(data) && data[w.at] <= 32 {
		w.at += 1 + bitpack.Size(data[w.at])
		w.skip -= BlockSize
	}
}

// atEnd tells whether the stream ends at the place.
func (w *positionWalk) atEnd(data []byte) bool {
	at := w.at
	if w.packed && w.skip > 0 {
		if at >= len(data) || data[at] != tailMark {
			return false
		}
		at++
	}
	return skipVarints(data, at, w.skip) == len(data)
}

// column checks a column block by block. each is called with the number of values of every document, value with every value; both
// may be nil.
func (v *verifier) column(c *NumColumn, each func(doc uint32, n int) error, value func(doc uint32, x uint64) error) error {
	s := c.sec
	for b := range c.NumBlocks() {
		e := c.entry(b)
		docs := c.blockDocs(b)
		if e.mode == colAtMost && !ranksAgree(c.data[e.off:e.off+colBitmap], docs, e.count) {
			return s.damaged("bitmap of block %d", b)
		}
		lo, hi := ^uint64(0), uint64(0)
		next := 0 // value that the next document begins with
		for d := range docs {
			doc := uint32(b*ColumnBlock + d)
			first, n, at := c.span(&e, b, d)
			if n > 0 && first != next {
				return s.damaged("values of document %d", doc)
			}
			next += n
			if each != nil {
				if err := each(doc, n); err != nil {
					return err
				}
			}
			if e.width == 0 {
				n = min(n, 1) // all are the same
			}
			for i := first; i < first+n; i++ {
				d := packedAt(c.data[at:], i, e.width)
				if d > e.hi-e.lo {
					return s.damaged("document %d has a value above the greatest of block %d", doc, b)
				}
				x := e.lo + d
				lo, hi = min(lo, x), max(hi, x)
				if value != nil {
					if err := value(doc, x); err != nil {
						return err
					}
				}
			}
			if err := v.work(8 * (n + 1)); err != nil {
				return err
			}
		}
		if err := v.r.Err(); err != nil { // span met damage
			return err
		}
		if next != e.count {
			return s.damaged("documents of block %d have %d values, it counts %d", b, next, e.count)
		}
		if e.count == 0 {
			lo, hi = 0, 0
		}
		if lo != e.lo || hi != e.hi {
			return s.damaged("values of block %d go from %d to %d, its index says %d to %d", b, lo, hi, e.lo, e.hi)
		}
	}
	return nil
}

// ranksAgree checks the bitmap of a block: its ranks, its bits behind the documents, and their number.
func ranksAgree(bm []byte, docs, count int) bool {
	rank := 0
	for w := range ColumnBlock / 64 {
		x := le.Uint64(bm[8*w:])
		if int(le.Uint16(bm[ColumnBlock/8+2*w:])) != rank || docs < 64*(w+1) && x>>max(0, docs-64*w) != 0 {
			return false
		}
		rank += bits.OnesCount64(x)
	}
	return rank == count
}

// presence checks the chunks of a set.
func (v *verifier) presence(s *section, p *Presence) error {
	for c := range len(p.index) / 2 {
		off, n, size := p.index[2*c], int(p.index[2*c+1]), p.chunkSize(c)
		switch {
		case n == 0 || n == size:
		case n <= chunkArray:
			a := viewU16(p.data[off : off+2*uint64(n)])
			for i, d := range a {
				if i > 0 && d <= a[i-1] || int(d) >= size {
					return s.damaged("chunk %d: member %d is %d", c, i, d)
				}
			}
		default:
			count := 0
			for w, x := range viewU64(p.data[off : off+uint64((size+63)/64*8)]) {
				if size < 64*(w+1) && x>>(size-64*w) != 0 {
					return s.damaged("chunk %d: members behind its documents", c)
				}
				count += bits.OnesCount64(x)
			}
			if count != n {
				return s.damaged("chunk %d: %d members, the index says %d", c, count, n)
			}
		}
		if err := v.work(chunkDocs / 8); err != nil {
			return err
		}
	}
	return nil
}

// sources decompresses every block.
func (v *verifier) sources(r *sourceReader) error {
	var d sourceBlockData
	next, place := uint64(0), uint64(0)
	for b := range r.blocks {
		off, end, raw, first, n := r.entry(b)
		if uint64(first) != next || n == 0 || off != place {
			return r.sec.damaged("block %d begins with document %d at %d instead of %d at %d", b, first, off, next, place)
		}
		next, place = next+uint64(n), end
		if err := r.load(b, &d); err != nil {
			return err
		}
		if err := v.work(int(raw)); err != nil {
			return err
		}
	}
	if next != uint64(v.r.docs) {
		return r.sec.damaged("sources of %d documents instead of %d", next, v.r.docs)
	}
	return nil
}
