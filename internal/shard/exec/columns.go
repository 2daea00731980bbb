package exec

import (
	"bytes"
	"math"
	"slices"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// BlockReader is what a NumColumn, and a StrColumn for its ordinals, may have besides: it sets dst to the values of the documents of
// block b if each has exactly one, and returns how many there are; ok is false if some document has none or several.
type BlockReader interface {
	ReadBlock(b int, dst *[ColumnBlock]uint64) (n int, ok bool)
}

// ordBlocks is what a StrColumn may have besides: the blocks of its ordinals.
type ordBlocks interface {
	NumBlocks() int
	BlockRange(b int) (lo, hi uint32, ok bool)
}

// columnTest tells which documents have a value that a node of a range or of exact values names: of a text column its ordinals
// are the values.
type columnTest struct {
	nums   NumColumn // one of the two
	strs   StrColumn
	blocks int // 0 when the column has no blocks

	lo, hi uint64   // the values lie in here
	list   []uint64 // and, where not nil, are one of these, ascending
	vals   []uint64
	ords   []uint32
	open   int // the block known to hold values within the bounds
}

// newColumnTest returns the test of a node on a leaf; nil when nothing matches.
func newColumnTest(l Leaf, n *node) *columnTest {
	c := &columnTest{open: -1, lo: n.lo, hi: n.hi}
	switch n.kind {
	case kindNumRange, kindNumTerms:
		if c.nums = l.NumColumn(n.field); c.nums == nil {
			return nil
		}
		c.blocks = c.nums.NumBlocks()
		if n.kind == kindNumTerms {
			c.list = n.nums
		}
	default:
		if c.strs = l.StrColumn(n.field); c.strs == nil {
			return nil
		}
		if b, ok := c.strs.(ordBlocks); ok {
			c.blocks = b.NumBlocks()
		}
		if n.kind == kindStrTerms {
			c.list = ordinals(c.strs, n.strs)
			break
		}
		lo, hi := 0, c.strs.NumOrds()
		if n.strLo != nil {
			o, exact := c.strs.Seek(n.strLo)
			if lo = o; exact && n.loExcl {
				lo++
			}
		}
		if n.strHi != nil {
			o, exact := c.strs.Seek(n.strHi)
			if hi = o; exact && !n.hiExcl {
				hi++
			}
		}
		if lo >= hi {
			return nil
		}
		c.lo, c.hi = uint64(lo), uint64(hi-1)
	}
	if n.kind == kindNumTerms || n.kind == kindStrTerms {
		if len(c.list) == 0 {
			return nil
		}
		c.lo, c.hi = c.list[0], c.list[len(c.list)-1]
		if uint64(len(c.list)-1) == c.hi-c.lo { // without gaps it is a range
			c.list = nil
		}
	}
	return c
}

// ordinals looks values up, which ascend; so do the ordinals.
func ordinals(col StrColumn, values [][]byte) []uint64 {
	out := make([]uint64, 0, len(values))
	if n := col.NumOrds(); len(values) > n/4 { // reading the dictionary once costs less than looking for each
		var word []byte
		for ord, i := 0, 0; ord < n && i < len(values); ord++ {
			word = col.Lookup(ord, word[:0])
			for i < len(values) && bytes.Compare(values[i], word) < 0 {
				i++
			}
			if i < len(values) && bytes.Equal(values[i], word) {
				out = append(out, uint64(ord))
			}
		}
		return out
	}
	for _, v := range values {
		if ord, exact := col.Seek(v); exact {
			out = append(out, uint64(ord))
		}
	}
	return out
}

// fits tells whether a value is one of those looked for.
func (c *columnTest) fits(v uint64) bool {
	if v-c.lo > c.hi-c.lo {
		return false
	}
	if c.list == nil {
		return true
	}
	if len(c.list) <= 8 {
		for _, x := range c.list {
			if x == v {
				return true
			}
		}
		return false
	}
	_, ok := slices.BinarySearch(c.list, v)
	return ok
}

// has tests a document.
func (c *columnTest) has(doc uint32) bool {
	if c.nums == nil {
		c.ords = c.strs.Ords(doc, c.ords[:0])
		for _, o := range c.ords {
			if c.fits(uint64(o)) {
				return true
			}
		}
		return false
	}
	c.vals = c.nums.Values(doc, c.vals[:0])
	for _, v := range c.vals {
		if c.fits(v) {
			return true
		}
	}
	return false
}

// blockRange gives the least and greatest value of a block; ok is false when it has none.
func (c *columnTest) blockRange(b int) (lo, hi uint64, ok bool) {
	if c.nums != nil {
		return c.nums.BlockRange(b)
	}
	l, h, ok := c.strs.(ordBlocks).BlockRange(b)
	return uint64(l), uint64(h), ok
}

// may tells whether a block can hold a match, and whether every value in it is one.
func (c *columnTest) may(b int) (some, every bool) {
	if c.blocks == 0 {
		return true, false
	}
	lo, hi, ok := c.blockRange(b)
	if !ok || lo > c.hi || hi < c.lo {
		return false, false
	}
	if c.list == nil {
		return true, c.lo <= lo && hi <= c.hi
	}
	i, _ := slices.BinarySearch(c.list, lo)
	return i < len(c.list) && c.list[i] <= hi, false
}

// skip returns the first document at or after doc in a block that can hold a match.
func (c *columnTest) skip(doc uint32) uint32 {
	if c.blocks == 0 {
		return doc
	}
	for b := int(doc / ColumnBlock); b < c.blocks; b++ {
		if b == c.open {
			return doc
		}
		if some, _ := c.may(b); some {
			c.open = b
			return max(doc, uint32(b*ColumnBlock))
		}
	}
	return noDoc
}

// addColumn adds the documents that a node of a range or of exact values finds.
func (s *searcher) addColumn(set bitset.Set, l Leaf, n *node) error {
	c := newColumnTest(l, n)
	if c == nil {
		return nil
	}
	var reader BlockReader
	if c.nums != nil {
		reader, _ = c.nums.(BlockReader)
	} else {
		reader, _ = c.strs.(BlockReader)
	}
	if reader != nil && s.block == nil {
		s.block = new([ColumnBlock]uint64)
	}
	num := int(l.NumDocs())
	for b := 0; b*ColumnBlock < num; b++ {
		if err := s.check(ColumnBlock); err != nil {
			return err
		}
		some, every := c.may(b)
		if !some {
			continue
		}
		first, end := b*ColumnBlock, min((b+1)*ColumnBlock, num)
		if reader != nil {
			if k, ok := reader.ReadBlock(b, s.block); ok {
				c.addBlock(set[first/64:], s.block[:min(k, end-first)], every)
				continue
			}
		}
		for w := first / 64; w*64 < end; w++ {
			var word uint64
			for d := w * 64; d < min(w*64+64, end); d++ {
				if c.has(uint32(d)) {
					word |= 1 << (d & 63)
				}
			}
			set[w] |= word
		}
	}
	return nil
}

// addBlock adds the documents of a block where each has one value; set begins with the block's first.
func (c *columnTest) addBlock(set bitset.Set, values []uint64, every bool) {
	span := c.hi - c.lo
	for w := 0; w*64 < len(values); w++ {
		part := values[w*64 : min(w*64+64, len(values))]
		word := uint64(math.MaxUint64) >> (64 - len(part))
		if !every {
			word = 0
			if c.list == nil {
				for i, v := range part {
					var in uint64
					if v-c.lo <= span {
						in = 1
					}
					word |= in << (i & 63)
				}
			} else {
				for i, v := range part {
					if c.fits(v) {
						word |= 1 << (i & 63)
					}
				}
			}
		}
		set[w] |= word
	}
}

// addPresent adds the documents that have a value for a field.
func (s *searcher) addPresent(set bitset.Set, l Leaf, field int) error {
	has := l.Present(field)
	if has == nil {
		return nil
	}
	num := l.NumDocs()
	for w := range set {
		if err := s.check(64); err != nil {
			return err
		}
		var word uint64
		for d := uint32(w * 64); d < min(uint32(w*64+64), num); d++ {
			if has(d) {
				word |= 1 << (d & 63)
			}
		}
		set[w] |= word
	}
	return nil
}
