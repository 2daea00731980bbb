package memtable

import (
	"encoding/binary"
	"sort"
	"sync"
)

// decoded is a posting list in arrays. The arrays grow at the end only; a holder sees what was there when it got them.
type decoded struct {
	docs, freqs []uint32
	positions   []uint32 // of all postings, one after the other; nil if none are kept
}

// decodeCache keeps lists decoded, so that a search after a write decodes only what the write added. Bounded in memory; when it is
// full it starts over, which costs time only.
type decodeCache struct {
	mu    sync.Mutex
	lists map[listID]*cachedList
	bytes int64
}

type listID struct {
	field int
	term  uint32
}

// maxDecoded bounds the arrays that a table's cache holds, in bytes.
const maxDecoded = 32 << 20

// minCached is the document frequency from which a list is worth keeping.
const minCached = 64

type cachedList struct {
	mu   sync.Mutex
	l    decoded
	next uint32 // address that decoding goes on from
	link uint32 // link of the slab it lies in
	buf  []byte
}

// scratches hold lists that are too short to be kept.
var scratches = sync.Pool{New: func() any { return new(cachedList) }}

// get returns the postings of a term below the view's bound. If borrowed is not nil the list lies in it and dies when it
// goes back to scratches.
func (c *decodeCache) get(v *View, f *fieldView, field int, term uint32) (l decoded, borrowed *cachedList) {
	e := &f.terms[term]
	df, end := e.load() // may be ahead of the view; below cuts what it does not have
	ch := v.t.p.published()
	if df < minCached {
		cl := scratches.Get().(*cachedList)
		cl.reset()
		cl.advance(ch, e, df, end, f.positions)
		return cl.l.below(v.n), cl
	}
	id := listID{field, term}
	c.mu.Lock()
	cl := c.lists[id]
	if cl == nil {
		if c.lists == nil || c.bytes > maxDecoded {
			c.lists = make(map[listID]*cachedList)
			c.bytes = 0
		}
		cl = &cachedList{}
		c.lists[id] = cl
	}
	c.mu.Unlock()

	cl.mu.Lock()
	defer cl.mu.Unlock()
	before := cl.l.size()
	cl.advance(ch, e, df, end, f.positions)
	if grown := cl.l.size() - before; grown > 0 {
		c.mu.Lock()
		c.bytes += grown
		c.mu.Unlock()
	}
	return cl.l.below(v.n), nil
}

// own returns the list in memory of its own, and gives borrowed memory back.
func (l decoded) own(borrowed *cachedList) decoded {
	if borrowed == nil {
		return l
	}
	n := len(l.docs)
	all := make([]uint32, 0, 2*n+len(l.positions))
	all = append(append(append(all, l.docs...), l.freqs...), l.positions...)
	out := decoded{docs: all[:n:n], freqs: all[n : 2*n : 2*n]}
	if l.positions != nil {
		out.positions = all[2*n:]
	}
	scratches.Put(borrowed)
	return out
}

func (cl *cachedList) reset() {
	cl.l.docs, cl.l.freqs, cl.l.positions = cl.l.docs[:0], cl.l.freqs[:0], cl.l.positions[:0]
}

func (l *decoded) size() int64 {
	return 4 * int64(cap(l.docs)+cap(l.freqs)+cap(l.positions))
}

// below cuts the list to documents below n.
func (l decoded) below(n uint32) decoded {
	k := len(l.docs)
	if k == 0 || l.docs[k-1] < n {
		return l
	}
	k = sort.Search(k, func(i int) bool { return l.docs[i] >= n })
	if l.positions != nil {
		p := len(l.positions)
		for _, x := range l.freqs[k:] {
			p -= int(x)
		}
		l.positions = l.positions[:p:p]
	}
	l.docs, l.freqs = l.docs[:k:k], l.freqs[:k:k]
	return l
}

// advance decodes the postings of e that are not decoded yet up to end, which lies after df postings.
func (cl *cachedList) advance(c chunks, e *entry, df, end uint32, positions bool) {
	l := &cl.l
	if uint32(len(l.docs)) >= df {
		return
	}
	if len(l.docs) == 0 {
		cl.next = e.head
		_, cl.link = c.slabAt(e.head - 1)
	}
	cl.buf, cl.link = c.gather(cl.buf[:0], cl.next, cl.link, end)
	cl.next = end
	b := cl.buf
	last := uint32(0)
	if k := len(l.docs); k > 0 {
		last = l.docs[k-1]
	}
	if need := int(df); cap(l.docs) < need {
		grow := need
		if len(l.docs) > 0 {
			grow += need / 4
		}
		l.docs = append(make([]uint32, 0, grow), l.docs...)
		l.freqs = append(make([]uint32, 0, grow), l.freqs...)
	}
	switch {
	case !positions:
		l.positions = nil
	case l.positions == nil:
		l.positions = make([]uint32, 0, int(df)+int(df)/2)
	}
	i := 0
	uvarint := func() uint64 {
		if x := b[i]; x < 0x80 {
			i++
			return uint64(x)
		}
		x, w := binary.Uvarint(b[i:])
		i += w
		return x
	}
	for i < len(b) {
		x := uvarint()
		last += uint32(x >> 1)
		freq := uint32(1)
		if x&1 == 0 {
			freq = uint32(uvarint())
		}
		l.docs = append(l.docs, last)
		l.freqs = append(l.freqs, freq)
		if positions {
			pos := uint32(0)
			for range freq {
				pos += uint32(uvarint())
				l.positions = append(l.positions, pos)
			}
		}
	}
}
