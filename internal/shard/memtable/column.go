package memtable

import (
	"bytes"
	"sort"
	"sync"

	"github.com/weft-search/weft/internal/shard/exec"
)

// NumColumn returns the field's column of numbers, nil when there is none.
func (v *View) NumColumn(field int) exec.NumColumn {
	f := v.field(field)
	if f == nil || !f.numbers || len(v.presentDocs(f)) == 0 {
		return nil
	}
	return numColumn{f, v.n}
}

type numColumn struct {
	f *fieldView
	n uint32
}

// span returns the range of a document's values given the ends by document.
func span(ends []uint32, doc uint32) (from, to uint32) {
	if int(doc) >= len(ends) {
		return 0, 0
	}
	if doc > 0 {
		from = ends[doc-1]
	}
	return from, ends[doc]
}

func (c numColumn) Values(doc uint32, dst []uint64) []uint64 {
	from, to := span(c.f.numEnds, doc)
	return append(dst, c.f.nums[from:to]...)
}

func (c numColumn) NumBlocks() int { return int((c.n + columnBlock - 1) / columnBlock) }

func (c numColumn) BlockRange(b int) (lo, hi uint64, ok bool) {
	switch {
	case b < len(c.f.blocks):
		r := c.f.blocks[b]
		return r.lo, r.hi, r.ok
	case b == len(c.f.blocks):
		return c.f.block.lo, c.f.block.hi, c.f.block.ok
	}
	return 0, 0, false
}

// sortedValues remembers the order of a column's values between views: numbers of entries, ascending by their bytes.
type sortedValues struct {
	mu    sync.Mutex
	order []uint32 // of the entries below its length
}

// upTo returns the sorted numbers below n.
func (s *sortedValues) upTo(v *View, entries []entry) []uint32 {
	n := len(entries)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) >= n {
		if len(s.order) == n {
			return s.order
		}
		out := make([]uint32, 0, n)
		for _, x := range s.order {
			if int(x) < n {
				out = append(out, x)
			}
		}
		return out
	}
	fresh := make([]uint32, 0, n-len(s.order))
	for i := len(s.order); i < n; i++ {
		fresh = append(fresh, uint32(i))
	}
	sortEntries(v.c, entries, fresh)
	out := make([]uint32, 0, n)
	old := s.order
	for _, x := range fresh {
		b := v.c.bytes(entries[x].term, uint32(entries[x].size))
		k := sort.Search(len(old), func(i int) bool {
			e := &entries[old[i]]
			return bytes.Compare(v.c.bytes(e.term, uint32(e.size)), b) > 0
		})
		out = append(out, old[:k]...)
		out = append(out, x)
		old = old[k:]
	}
	s.order = append(out, old...)
	return s.order
}

// StrColumn returns the field's column of text values, nil when there is none.
func (v *View) StrColumn(field int) exec.StrColumn {
	f := v.field(field)
	if f == nil || !f.strings || len(v.presentDocs(f)) == 0 {
		return nil
	}
	f.strOnce.Do(func() {
		c := &strColumn{v: v, f: f, order: f.sorted.upTo(v, f.values)}
		c.rank = make([]uint32, len(f.values))
		for r, n := range c.order {
			c.rank[n] = uint32(r)
		}
		f.strs = c
	})
	return f.strs
}

type strColumn struct {
	v     *View
	f     *fieldView
	order []uint32 // number in values of each ordinal
	rank  []uint32 // the inverse
}

func (c *strColumn) value(ord int) []byte {
	e := &c.f.values[c.order[ord]]
	return c.v.c.bytes(e.term, uint32(e.size))
}

func (c *strColumn) NumOrds() int { return len(c.order) }

func (c *strColumn) Seek(value []byte) (int, bool) {
	return sort.Find(len(c.order), func(i int) int { return bytes.Compare(value, c.value(i)) })
}

func (c *strColumn) Lookup(ord int, dst []byte) []byte { return append(dst, c.value(ord)...) }

func (c *strColumn) Ords(doc uint32, dst []uint32) []uint32 {
	from, to := span(c.f.strEnds, doc)
	for _, n := range c.f.ords[from:to] {
		dst = append(dst, c.rank[n])
	}
	return dst
}
