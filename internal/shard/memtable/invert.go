package memtable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// ValueStride separates the values of one document in a positional field: value v starts at position v·ValueStride, or at the
// next multiple if an earlier value was longer, so that no phrase reaches from one value into the next.
const ValueStride = 1 << 20

// minGap is the least distance between the last position of a value and the first of the next.
const minGap = 128

// MaxLength is where the token count of a document in a field saturates.
const MaxLength = 65535

// MaxStringBytes is the longest text value that goes into a column; a longer one is searchable only.
const MaxStringBytes = 32766

// fieldMode says what the engine keeps of a field.
type fieldMode struct {
	analyzer  *text.Analyzer // nil: not searchable text
	hintField int            // whose values name the language of the document; -1 if the analyzer asks for none
	hinted    map[string]*text.Analyzer
	positions bool
	chunked   bool // the values are scored one by one
	strings   bool // sorted column
	maxString int
	numbers   bool
	vectors   *vector.Params // dense or binary vectors that are indexed
	sparse    *sparse.Params
}

// Inverter turns documents into Batches. It does the work that needs no lock: tokenizing, grouping tokens by term, encoding
// positions. Not safe for concurrent use; reuse it to reuse its memory.
type Inverter struct {
	sch     *schema.Schema
	modes   []fieldMode
	scratch text.Scratch

	// The terms of the document and field at hand: an open-addressing table of indexes into terms; a slot counts only if its
	// epoch is the current one.
	slots []localSlot
	epoch uint32
	terms []localTerm
	which []uint32 // of each token: index into terms
	pos   []uint32 // of each token: position
	place []uint32 // positions grouped by term
}

type localSlot struct {
	epoch, hash, term uint32
}

type localTerm struct {
	hash     uint32
	off, len uint32 // into Batch.buf
	freq     uint32
	last     uint32 // position of the latest occurrence
	end      uint32 // where the next position goes in place
}

// NewInverter returns an inverter for documents typed against the schema or an earlier generation of it.
func NewInverter(sch *schema.Schema) (*Inverter, error) {
	inv := &Inverter{slots: make([]localSlot, 256)}
	if err := inv.SetSchema(sch); err != nil {
		return nil, err
	}
	return inv, nil
}

// SetSchema makes the inverter work for another schema.
func (inv *Inverter) SetSchema(sch *schema.Schema) error {
	if inv.sch == sch {
		return nil
	}
	modes := make([]fieldMode, len(sch.Fields))
	for i := range sch.Fields {
		f, m := &sch.Fields[i], &modes[i]
		m.hintField = -1
		switch f.Type {
		case schema.Text:
			if f.Indexed {
				a, err := text.Lookup(f.Tokenizer)
				if err != nil {
					return fmt.Errorf("field %q: %w", f.Name, err)
				}
				m.analyzer = a
				if id, ok := sch.Lookup(a.HintField()); ok && sch.Fields[id].Type == schema.Text {
					m.hintField = id
				}
				m.chunked = f.Chunked
				m.positions = f.Positions != schema.NoPositions || f.Chunked
			}
			m.strings = f.Fast
			m.maxString = MaxStringBytes
			if f.KeywordMax > 0 {
				m.maxString = min(f.KeywordMax, MaxStringBytes)
			}
		case schema.U64, schema.I64, schema.F64, schema.Date:
			m.numbers = f.Fast || f.Indexed
		case schema.DenseVector, schema.BinaryVector:
			if f.Indexed {
				p, err := vector.ParamsOf(f)
				if err != nil {
					return fmt.Errorf("field %q: %w", f.Name, err)
				}
				m.vectors = &p
			}
		case schema.SparseVector:
			if f.Indexed {
				p, err := sparse.ParamsOf(f)
				if err != nil {
					return fmt.Errorf("field %q: %w", f.Name, err)
				}
				m.sparse = &p
			}
		}
	}
	inv.sch, inv.modes = sch, modes
	return nil
}

// Batch holds inverted documents until they are inserted. It refers to the keys and sources of its documents.
type Batch struct {
	docs  []docPart
	parts []fieldPart
	posts []posting
	strs  []strValue
	nums  []uint64
	vecs  []record
	buf   []byte // terms, encoded postings and records of vectors
}

// Footprint is the memory in bytes that the batch keeps for the next use, so that its owner can let go of what a huge document needed.
func (b *Batch) Footprint() int {
	return cap(b.buf) + 8*cap(b.nums) + cap(b.docs)*int(unsafe.Sizeof(docPart{})) + cap(b.parts)*int(unsafe.Sizeof(fieldPart{})) +
		cap(b.posts)*int(unsafe.Sizeof(posting{})) + cap(b.strs)*int(unsafe.Sizeof(strValue{})) + cap(b.vecs)*int(unsafe.Sizeof(record{}))
}

type docPart struct {
	key    string
	source []byte
	parts  uint32 // end in Batch.parts
}

type fieldPart struct {
	field     int
	indexed   bool
	positions bool
	strings   bool
	numbers   bool
	vectors   *vector.Params
	sparse    *sparse.Params
	length    uint16
	posts     uint32 // ends of this part's share
	strs      uint32
	nums      uint32
	vecs      uint32
}

// record is an encoded vector in buf.
type record struct{ off, len uint32 }

// posting is one term of one document, without the document number.
type posting struct {
	hash    uint32
	term    uint32 // offset in buf
	payload uint32 // offset in buf of the frequency, left out if it is 1, and the position deltas
	size    uint32 // bytes of the payload
	length  uint16 // bytes of the term
	single  bool   // the frequency is 1
}

type strValue struct {
	hash     uint32
	off, len uint32
}

// Reset empties the batch and keeps its memory, unless a huge document left too much of it.
func (b *Batch) Reset() {
	if cap(b.buf) > 16<<20 {
		*b = Batch{}
		return
	}
	clear(b.docs)
	b.docs, b.parts, b.posts, b.strs, b.nums, b.vecs, b.buf = b.docs[:0], b.parts[:0], b.posts[:0], b.strs[:0], b.nums[:0], b.vecs[:0], b.buf[:0]
}

// Len is the number of documents.
func (b *Batch) Len() int { return len(b.docs) }

// Key returns the key of document i.
func (b *Batch) Key(i int) string { return b.docs[i].key }

// Add inverts a document, which must be valid for the inverter's schema, and appends it to the batch.
func (inv *Inverter) Add(b *Batch, d *schema.Document) {
	for i := range d.Fields {
		v := &d.Fields[i]
		m := &inv.modes[v.Field]
		p := fieldPart{field: v.Field}
		if m.analyzer != nil {
			p.indexed, p.positions, p.numbers = true, m.positions, m.chunked
			p.length = inv.text(b, m, m.analyzerOf(d), v.Text)
		}
		if m.strings {
			p.strings = true
			for _, s := range v.Text {
				if len(s) <= m.maxString {
					b.strs = append(b.strs, strValue{hash: hashString(s), off: uint32(len(b.buf)), len: uint32(len(s))})
					b.buf = append(b.buf, s...)
				}
			}
		}
		if m.numbers {
			p.numbers = true
			b.nums = append(b.nums, v.Nums...)
		}
		if m.vectors != nil || m.sparse != nil {
			p.vectors, p.sparse = m.vectors, m.sparse
			for _, value := range v.Bytes {
				off := len(b.buf)
				if m.vectors != nil {
					b.buf = vector.Encode(*m.vectors, b.buf, value)
				} else {
					b.buf = sparse.Encode(*m.sparse, b.buf, value)
				}
				b.vecs = append(b.vecs, record{uint32(off), uint32(len(b.buf) - off)})
			}
		}
		p.posts, p.strs, p.nums, p.vecs = uint32(len(b.posts)), uint32(len(b.strs)), uint32(len(b.nums)), uint32(len(b.vecs))
		b.parts = append(b.parts, p)
	}
	b.docs = append(b.docs, docPart{key: d.Key, source: d.Source, parts: uint32(len(b.parts))})
}

// maxHints bounds the hints of a field whose analyzers are remembered. Hints come from documents; beyond it the map starts over.
const maxHints = 256

// analyzerOf returns the analyzer for the field's values in d, which may depend on the value of another field of d. The values
// of a hint field that has several are one list of languages.
func (m *fieldMode) analyzerOf(d *schema.Document) *text.Analyzer {
	if m.hintField < 0 {
		return m.analyzer
	}
	i, ok := slices.BinarySearchFunc(d.Fields, m.hintField, func(v schema.Values, id int) int { return v.Field - id })
	if !ok || len(d.Fields[i].Text) == 0 {
		return m.analyzer
	}
	hint := d.Fields[i].Text[0]
	if len(d.Fields[i].Text) > 1 {
		hint = strings.Join(d.Fields[i].Text, ",")
	}
	if a := m.hinted[hint]; a != nil {
		return a
	}
	a := m.analyzer.WithHint(hint)
	if len(hint) > 64 {
		return a // no language's name: not worth the memory
	}
	if m.hinted == nil || len(m.hinted) >= maxHints {
		m.hinted = make(map[string]*text.Analyzer)
	}
	m.hinted[strings.Clone(hint)] = a
	return a
}

// text tokenizes the values with a, appends one posting for each distinct term and returns the length.
func (inv *Inverter) text(b *Batch, m *fieldMode, a *text.Analyzer, values []string) uint16 {
	inv.epoch++
	if inv.epoch == 0 {
		clear(inv.slots)
		inv.epoch = 1
	}
	inv.terms, inv.which, inv.pos = inv.terms[:0], inv.which[:0], inv.pos[:0]
	next := nextBase
	if m.chunked {
		next = nextChunk
	}
	var length, base uint64
	for _, v := range values {
		toks := a.Index(&inv.scratch, v)
		for i := range toks {
			if len(toks[i].Text) > text.MaxTokenBytes {
				continue
			}
			pos := uint32(min(base+uint64(toks[i].Pos), 1<<32-1))
			n := inv.term(b, toks[i].Text)
			t := &inv.terms[n]
			if t.freq > 0 && t.last == pos {
				continue // an analyzer may give one term twice at a position, which is one occurrence
			}
			t.freq++
			t.last = pos
			if m.positions {
				inv.which = append(inv.which, n)
				inv.pos = append(inv.pos, pos)
			}
		}
		last, n := base, 0
		if len(toks) > 0 {
			n = text.Length(toks)
			length += uint64(n)
			last += uint64(toks[len(toks)-1].Pos)
		}
		from := base
		base = next(last)
		if m.chunked {
			b.nums = append(b.nums, segment.EncodeChunk(uint32(min(n, segment.MaxChunkLength)), uint32((base-from)/segment.ChunkStride-1)))
		}
	}
	if m.positions {
		inv.groupPositions()
	}
	for i := range inv.terms {
		inv.post(b, &inv.terms[i], m.positions)
	}
	return uint16(min(length, MaxLength))
}

// nextBase returns where a value starts after one whose last position is last.
func nextBase(last uint64) uint64 {
	const closely = 1<<32 - 1<<28 // after thousands of values what is left of the range is shared out closely
	if next := (last + minGap + ValueStride - 1) &^ (ValueStride - 1); next < closely {
		return next
	}
	return last + minGap
}

// nextChunk returns where a passage starts after one whose last position is last.
func nextChunk(last uint64) uint64 {
	return (last + segment.ChunkGap + segment.ChunkStride - 1) &^ (segment.ChunkStride - 1)
}

// term returns the index of the token's term among those of the document and field.
func (inv *Inverter) term(b *Batch, tok []byte) uint32 {
	if 2*len(inv.terms) >= len(inv.slots) {
		inv.grow()
	}
	h := hashOf(tok)
	mask := uint32(len(inv.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &inv.slots[i]
		if s.epoch != inv.epoch {
			n := uint32(len(inv.terms))
			*s = localSlot{epoch: inv.epoch, hash: h, term: n}
			inv.terms = append(inv.terms, localTerm{hash: h, off: uint32(len(b.buf)), len: uint32(len(tok))})
			b.buf = append(b.buf, tok...)
			return n
		}
		if s.hash == h {
			t := &inv.terms[s.term]
			if int(t.len) == len(tok) && bytes.Equal(b.buf[t.off:t.off+t.len], tok) {
				return s.term
			}
		}
	}
}

func (inv *Inverter) grow() {
	inv.slots = make([]localSlot, 2*len(inv.slots))
	mask := uint32(len(inv.slots) - 1)
	for n := range inv.terms {
		i := inv.terms[n].hash & mask
		for inv.slots[i].epoch == inv.epoch {
			i = (i + 1) & mask
		}
		inv.slots[i] = localSlot{epoch: inv.epoch, hash: inv.terms[n].hash, term: uint32(n)}
	}
}

// groupPositions sorts the positions by term, keeping their order: a counting sort.
func (inv *Inverter) groupPositions() {
	var sum uint32
	for i := range inv.terms {
		t := &inv.terms[i]
		t.end = sum
		sum += t.freq
	}
	if cap(inv.place) < len(inv.pos) {
		inv.place = make([]uint32, len(inv.pos)+len(inv.pos)/2)
	}
	inv.place = inv.place[:len(inv.pos)]
	for i, w := range inv.which {
		t := &inv.terms[w]
		inv.place[t.end] = inv.pos[i]
		t.end++
	}
}

// post encodes one posting.
func (inv *Inverter) post(b *Batch, t *localTerm, positions bool) {
	p := posting{hash: t.hash, term: t.off, length: uint16(t.len), payload: uint32(len(b.buf)), single: t.freq == 1}
	if !p.single {
		b.buf = binary.AppendUvarint(b.buf, uint64(t.freq))
	}
	if positions {
		prev := uint32(0)
		for _, x := range inv.place[t.end-t.freq : t.end] {
			if d := x - prev; d < 0x80 {
				b.buf = append(b.buf, byte(d))
			} else {
				b.buf = binary.AppendUvarint(b.buf, uint64(d))
			}
			prev = x
		}
	}
	p.size = uint32(len(b.buf)) - p.payload
	b.posts = append(b.posts, p)
}
