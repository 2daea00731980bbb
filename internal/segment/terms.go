package segment

import (
	"bytes"
	"encoding/binary"

	"github.com/weft-search/weft/internal/invariant"
)

// invField is the inverted index of one field.
type invField struct {
	meta  FieldMeta
	docs  uint32 // of the segment
	lens  []uint16
	terms *table
	post  *section
}

// termMeta is what the dictionary says of a term.
type termMeta struct {
	df        uint32
	doc, freq uint32 // of a singleton
	inline    bool   // a singleton's positions are pay[from:to], otherwise the list is post[from:to]
	from, to  int
}

// readMeta reads the payload of a term at pay[at:], where off is the place in the postings section behind the term before. It
// returns both for the next term; a negative at means damage.
func (f *invField) readMeta(pay []byte, at int, off uint64, m *termMeta) (int, uint64) {
	v, at := uvarint(pay, at)
	if at < 0 {
		return -1, 0
	}
	m.inline = false
	if v&1 == 0 {
		var n uint64
		n, at = uvarint(pay, at)
		df := v >> 1
		if df >= BlockSize {
			off = (off + 3) &^ 3
		}
		if at < 0 || df < 2 || df > uint64(f.docs) || off > uint64(len(f.post.data)) || n > uint64(len(f.post.data))-off {
			return -1, 0
		}
		m.df, m.from, m.to = uint32(df), int(off), int(off+n)
		return at, off + n
	}
	m.df = 1
	freq := uint64(1)
	if v&2 == 0 {
		freq, at = uvarint(pay, at)
	}
	if at < 0 || v>>2 >= uint64(f.docs) || freq > 1<<32-1 {
		return -1, 0
	}
	m.doc, m.freq = uint32(v>>2), uint32(freq)
	switch {
	case !f.meta.Positions:
		m.inline, m.from, m.to = true, at, at
	case freq <= inlinePositions:
		m.inline, m.from = true, at
		for range freq {
			_, at = uvarint(pay, at)
		}
		m.to = at
	default:
		var n uint64
		n, at = uvarint(pay, at)
		if at < 0 || off > uint64(len(f.post.data)) || n > uint64(len(f.post.data))-off {
			return -1, 0
		}
		m.from, m.to = int(off), int(off+n)
		off += n
	}
	return at, off
}

// open makes p the list that m describes; pay is the payload of its block.
func (f *invField) open(p *Postings, m *termMeta, pay []byte) bool {
	if m.df > 1 {
		return p.openList(f, m.df, f.post.data[m.from:m.to])
	}
	p.kind, p.f, p.df, p.hasPos = listOne, f, 1, f.meta.Positions
	p.doc, p.freq, p.known = m.doc, m.freq, true
	if m.inline {
		p.data = pay[m.from:m.to]
	} else {
		p.data = f.post.data[m.from:m.to]
	}
	return true
}

// lookup finds a term.
func (f *invField) lookup(term []byte) (p Postings, ok bool) {
	b, i, ok := f.terms.find(term)
	if !ok {
		return Postings{}, false
	}
	_, pay, _ := f.terms.block(b)
	var m termMeta
	at, off := 0, f.terms.base[b]
	for range i + 1 {
		if at, off = f.readMeta(pay, at, off, &m); at < 0 {
			f.terms.sec.damaged("payload of block %d", b)
			return Postings{}, false
		}
	}
	if !f.open(&p, &m, pay) {
		return Postings{}, false
	}
	return p, true
}

// termCursor walks the terms of a field in order.
type termCursor struct {
	f   *invField
	c   tableCursor
	at  int
	off uint64
	m   termMeta
}

// seek puts the cursor before the first term that is not below from.
func (tc *termCursor) seek(f *invField, from []byte) {
	tc.f = f
	b, i := 0, 0
	if len(from) > 0 {
		if ord, _ := f.terms.seek(from); ord < f.terms.n {
			b, i = int(ord/tableBlock), int(ord%tableBlock)
		} else {
			b = len(f.terms.prefix)
		}
	}
	tc.at, tc.off = 0, 0
	tc.c.start(f.terms, b, 0)
	if b < len(f.terms.prefix) {
		tc.off = f.terms.base[b]
	}
	for range i {
		if !tc.next() {
			return
		}
	}
}

// next moves to the next term; false at the end or after damage, which bad tells apart.
func (tc *termCursor) next() bool {
	if tc.c.i == tc.c.n {
		if !tc.c.loadBlock() {
			return false
		}
		tc.at, tc.off = 0, tc.f.terms.base[tc.c.b]
	}
	if !tc.c.step() {
		return false
	}
	if tc.at, tc.off = tc.f.readMeta(tc.c.pay, tc.at, tc.off, &tc.m); tc.at < 0 {
		return tc.c.damage()
	}
	return true
}

func (tc *termCursor) term() []byte { return tc.c.cur }

func (tc *termCursor) postings(p *Postings) bool {
	*p = Postings{}
	return tc.f.open(p, &tc.m, tc.c.pay)
}

// scan calls fn for the terms that begin with prefix.
func (f *invField) scan(prefix []byte, fn func(term []byte, df uint32) bool) error {
	fn = invariant.Lend(fn)
	var tc termCursor
	tc.seek(f, prefix)
	for tc.next() {
		if !bytes.HasPrefix(tc.term(), prefix) || !fn(tc.term(), tc.m.df) {
			return nil
		}
	}
	if tc.c.bad {
		return f.terms.sec.r.Err()
	}
	return nil
}

// scanPostings is scan with the list of each term.
func (f *invField) scanPostings(prefix []byte, fn func(term []byte, p Postings) bool) error {
	fn = invariant.Lend(fn)
	var tc termCursor
	var p Postings
	tc.seek(f, prefix)
	for tc.next() {
		if !bytes.HasPrefix(tc.term(), prefix) {
			return nil
		}
		if !tc.postings(&p) {
			return p.err
		}
		if !fn(tc.term(), p) {
			return nil
		}
	}
	if tc.c.bad {
		return f.terms.sec.r.Err()
	}
	return nil
}

// appendMeta appends the payload of a term with a list of n bytes.
func appendMeta(pay []byte, df uint32, n int) []byte {
	pay = binary.AppendUvarint(pay, uint64(df)<<1)
	return binary.AppendUvarint(pay, uint64(n))
}

// appendSingle appends the start of a singleton's payload.
func appendSingle(pay []byte, doc, freq uint32) []byte {
	if freq == 1 {
		return binary.AppendUvarint(pay, uint64(doc)<<2|3)
	}
	pay = binary.AppendUvarint(pay, uint64(doc)<<2|1)
	return binary.AppendUvarint(pay, uint64(freq))
}
