package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A table is a sorted list of distinct strings, front-coded in blocks of 16. An index holds, for each block, the first 8 bytes
// of its first string after the prefix that all strings of the table share, so that a search touches one array and one
// block. The table of terms has a payload for each string behind the strings of a block; see FORMAT.md.

// tableBuilder collects a table. Blocks may be taken out of it as they come (drain).
type tableBuilder struct {
	payload bool
	n       uint64
	inBlock int
	first   []byte
	prev    []byte
	common  int
	prefix  []uint64
	off     []uint64
	base    []uint64 // with a payload: of the block's first list in the postings section

	strs   []byte
	pay    []byte // of the current block; the owner appends to it after add
	blocks []byte
	taken  uint64 // bytes of blocks that were drained
}

func (t *tableBuilder) reset(payload bool) {
	*t = tableBuilder{
		payload: payload, first: t.first[:0], prev: t.prev[:0], prefix: t.prefix[:0], off: t.off[:0],
		base: t.base[:0], strs: t.strs[:0], pay: t.pay[:0], blocks: t.blocks[:0],
	}
}

// add appends s, which must be greater than the string before. base is remembered if s starts a block.
func (t *tableBuilder) add(s []byte, base uint64) error {
	if len(s) > MaxStringLen {
		return fmt.Errorf("string of %d bytes: %w", len(s), ErrTooLarge)
	}
	if t.n == 0 {
		t.first = append(t.first[:0], s...)
		t.common = len(s)
	}
	shared := commonPrefix(t.prev, s)
	if t.n > 0 && (shared == len(s) || shared < len(t.prev) && s[shared] < t.prev[shared]) {
		return fmt.Errorf("%q after %q: %w", clip(s), clip(t.prev), ErrOrder)
	}
	if t.inBlock == tableBlock {
		t.endBlock()
	}
	if t.inBlock == 0 {
		if c := commonPrefix(t.first[:t.common], s); c < t.common {
			t.shorten(c)
		}
		t.prefix = append(t.prefix, bigPrefix(s[t.common:]))
		t.off = append(t.off, t.taken+uint64(len(t.blocks)))
		if t.payload {
			t.base = append(t.base, base)
		}
		t.strs = binary.AppendUvarint(t.strs, uint64(len(s)))
		t.strs = append(t.strs, s...)
	} else {
		suffix := len(s) - shared
		t.strs = append(t.strs, byte(min(shared, 15)<<4|min(suffix, 15)))
		if shared >= 15 {
			t.strs = binary.AppendUvarint(t.strs, uint64(shared-15))
		}
		if suffix >= 15 {
			t.strs = binary.AppendUvarint(t.strs, uint64(suffix-15))
		}
		t.strs = append(t.strs, s[shared:]...)
	}
	t.inBlock++
	t.n++
	t.prev = append(t.prev[:shared], s[shared:]...)
	return nil
}

// shorten makes the first c bytes the prefix that all strings share and adapts the index, whose strings all begin with the
// longer prefix used so far.
func (t *tableBuilder) shorten(c int) {
	lost := t.first[c:t.common]
	head := bigPrefix(lost)
	for i := range t.prefix {
		if len(lost) >= 8 {
			t.prefix[i] = head
		} else {
			t.prefix[i] = head | t.prefix[i]>>(8*len(lost))
		}
	}
	t.common = c
}

func (t *tableBuilder) endBlock() {
	if t.inBlock == 0 {
		return
	}
	if t.payload {
		t.blocks = binary.AppendUvarint(t.blocks, uint64(len(t.strs)))
	}
	t.blocks = append(t.blocks, t.strs...)
	t.blocks = append(t.blocks, t.pay...)
	t.strs, t.pay, t.inBlock = t.strs[:0], t.pay[:0], 0
}

// drain returns the bytes of the table that are final and forgets them.
func (t *tableBuilder) drain() []byte {
	b := t.blocks
	t.taken += uint64(len(b))
	t.blocks = t.blocks[:0]
	return b
}

// finish returns the rest of the section after the bytes drained so far.
func (t *tableBuilder) finish() []byte {
	if t.n > 0 {
		// The last string may share less with the first than the first string of its block does.
		if c := commonPrefix(t.first[:t.common], t.prev); c < t.common {
			t.shorten(c)
		}
	}
	t.endBlock()
	end := t.taken + uint64(len(t.blocks))
	b := t.blocks
	for n := end; n%8 != 0; n++ {
		b = append(b, 0)
	}
	for _, v := range t.prefix {
		b = le.AppendUint64(b, v)
	}
	for _, v := range t.off {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, end)
	for _, v := range t.base {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, t.n)
	b = le.AppendUint64(b, uint64(t.common))
	b = le.AppendUint64(b, end)
	t.blocks = b[:0]
	return b
}

// clip shortens a string for a message.
func clip(s []byte) []byte {
	if len(s) > 40 {
		return s[:40]
	}
	return s
}

// table reads what tableBuilder built.
type table struct {
	sec     *section
	payload bool
	n       uint64
	blocks  []byte
	common  []byte // the prefix that all strings share
	prefix  []uint64
	off     []uint64
	base    []uint64
}

const tableTrailer = 24

// openTable checks the frame of a table; blocks are checked when they are read.
func openTable(s *section, payload bool) (*table, error) {
	b := s.data
	if len(b) < tableTrailer+8 || len(b)%8 != 0 {
		return nil, s.corrupt("table is shorter than its frame")
	}
	tr := b[len(b)-tableTrailer:]
	n, common, end := le.Uint64(tr), le.Uint64(tr[8:]), le.Uint64(tr[16:])
	room := uint64(len(b) - tableTrailer)
	arrays := uint64(2)
	if payload {
		arrays = 3
	}
	if n > room { // each string takes at least a byte
		return nil, s.corrupt("table counts more strings than it has bytes")
	}
	nb := (n + tableBlock - 1) / tableBlock
	if end > room || (end+7)&^7+arrays*8*nb+8 != room {
		return nil, s.corrupt("table's blocks and index do not fill it")
	}
	t := &table{sec: s, payload: payload, n: n, blocks: b[:end]}
	at := (end + 7) &^ 7
	t.prefix = viewU64(b[at : at+8*nb])
	at += 8 * nb
	t.off = viewU64(b[at : at+8*nb+8])
	at += 8*nb + 8
	if payload {
		t.base = viewU64(b[at : at+8*nb])
	}
	if nb > 0 {
		first, ok := t.firstOf(0)
		if !ok || common > uint64(len(first)) {
			return nil, s.corrupt("table's first string is damaged")
		}
		t.common = first[:common]
	} else if common != 0 {
		return nil, s.corrupt("empty table has a prefix")
	}
	return t, nil
}

// block returns the bytes of a block: its strings and its payload.
func (t *table) block(b int) (strs, pay []byte, ok bool) {
	lo, hi := t.off[b], t.off[b+1]
	if lo > hi || hi > uint64(len(t.blocks)) {
		return nil, nil, false
	}
	strs = t.blocks[lo:hi]
	if t.payload {
		n, at := uvarint(strs, 0)
		if at < 0 || n > uint64(len(strs)-at) {
			return nil, nil, false
		}
		pay = strs[at+int(n):]
		strs = strs[at : at+int(n)]
	}
	return strs, pay, true
}

// entries is the number of strings of a block.
func (t *table) entries(b int) int {
	if b+1 == len(t.prefix) {
		return int(t.n-1)%tableBlock + 1
	}
	return tableBlock
}

// headString reads the string that starts a block.
func headString(strs []byte) (s []byte, next int) {
	n, at := uvarint(strs, 0)
	if at < 0 || n > uint64(len(strs)-at) {
		return nil, -1
	}
	return strs[at : at+int(n)], at + int(n)
}

// nextString reads the frame of a string that is not the first of its block.
func nextString(strs []byte, at int) (shared, suffix, next int) {
	if uint(at) >= uint(len(strs)) {
		return 0, 0, -1
	}
	c := strs[at]
	at++
	shared, suffix = int(c>>4), int(c&15)
	if shared == 15 || suffix == 15 {
		var v uint64
		if shared == 15 {
			v, at = uvarint(strs, at)
			if v > MaxStringLen {
				return 0, 0, -1
			}
			shared += int(v)
		}
		if suffix == 15 {
			v, at = uvarint(strs, at)
			if v > MaxStringLen {
				return 0, 0, -1
			}
			suffix += int(v)
		}
	}
	if at < 0 || suffix > len(strs)-at {
		return 0, 0, -1
	}
	return shared, suffix, at
}

func (t *table) firstOf(b int) ([]byte, bool) {
	strs, _, ok := t.block(b)
	if !ok {
		return nil, false
	}
	s, next := headString(strs)
	return s, next >= 0
}

// locate returns the last block whose first string is not above target, -1 if there is none.
func (t *table) locate(target []byte) int {
	if t.n == 0 {
		return -1
	}
	c := len(t.common)
	if c > 0 && (len(target) < c || string(target[:c]) != string(t.common)) {
		if bytes.Compare(target, t.common) < 0 {
			return -1
		}
		return len(t.prefix) - 1
	}
	p := bigPrefix(target[c:])
	b := lastNotAbove(t.prefix, p)
	if b < 0 || t.prefix[b] != p {
		return b
	}
	// Several blocks may have the prefix: those below are sure to be lower, among them the strings decide.
	lo, hi := -1, b+1
	if p > 0 {
		lo = lastNotAbove(t.prefix[:b], p-1)
	}
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		first, ok := t.firstOf(mid)
		if !ok {
			t.sec.damaged("block %d of a table", mid)
			return -1
		}
		if bytes.Compare(first, target) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// lastNotAbove returns the index of the last element of the ascending a that is not above v, or -1.
func lastNotAbove(a []uint64, v uint64) int {
	base, n := 0, len(a)
	if n == 0 || a[0] > v {
		return -1
	}
	// a[base] <= v holds throughout; the answer is within n elements from base.
	for n > 1 {
		half := n >> 1
		if a[base+half] <= v {
			base += half
		}
		n -= half
	}
	return base
}

// findIn looks for target among the n strings of a block. It returns the place of the first string that is not below it (n if
// there is none) and whether that is equal; a negative place means damage.
func findIn(strs []byte, n int, target []byte) (i int, exact bool) {
	first, at := headString(strs)
	if at < 0 {
		return -1, false
	}
	m := commonPrefix(first, target) // bytes that target shares with the string before, which is below it
	if m == len(target) {
		return 0, m == len(first)
	}
	if m < len(first) && first[m] > target[m] {
		return 0, false
	}
	for i = 1; i < n; i++ {
		shared, suffix, next := nextString(strs, at)
		if next < 0 {
			return -1, false
		}
		at = next + suffix
		if shared > m {
			continue // differs from target where the string before does
		}
		if shared < m {
			return i, false
		}
		k := commonPrefix(strs[next:at], target[m:])
		switch {
		case m+k == len(target):
			return i, k == suffix
		case k < suffix && strs[next+k] > target[m+k]:
			return i, false
		}
		m += k
	}
	return n, false
}

// find returns the block and place of target.
func (t *table) find(target []byte) (block, i int, ok bool) {
	b := t.locate(target)
	if b < 0 {
		return 0, 0, false
	}
	strs, _, ok := t.block(b)
	if !ok {
		t.sec.damaged("block %d of a table", b)
		return 0, 0, false
	}
	i, exact := findIn(strs, t.entries(b), target)
	if i < 0 {
		t.sec.damaged("strings of block %d", b)
	}
	return b, i, exact
}

// seek returns the ordinal of the first string that is not below target, and whether it is equal.
func (t *table) seek(target []byte) (ord uint64, exact bool) {
	b := t.locate(target)
	if b < 0 {
		return 0, false
	}
	strs, _, ok := t.block(b)
	if !ok {
		t.sec.damaged("block %d of a table", b)
		return 0, false
	}
	i, exact := findIn(strs, t.entries(b), target)
	if i < 0 {
		t.sec.damaged("strings of block %d", b)
		return 0, false
	}
	return uint64(b)*tableBlock + uint64(i), exact
}

// getAscending is get for many ascending ordinals; ends[i] is set to the length of dst behind string i.
func (t *table) getAscending(ords []uint64, dst []byte, ends []int) []byte {
	var cur []byte // string number in of block
	var strs []byte
	block, in, at := -1, 0, -1
	for i, ord := range ords {
		b, want := int(ord/tableBlock), int(ord%tableBlock)
		if b != block || want < in {
			var ok bool
			block, in, at = b, 0, -1
			if strs, _, ok = t.block(b); ok {
				var head []byte
				head, at = headString(strs)
				cur = append(cur[:0], head...)
			}
		}
		for ; at >= 0 && in < want; in++ {
			shared, suffix, next := nextString(strs, at)
			if next < 0 || shared > len(cur) {
				at = -1
				break
			}
			at = next + suffix
			cur = append(cur[:shared], strs[next:at]...)
		}
		if at < 0 {
			t.sec.damaged("strings of block %d", b)
			block = -1
			ends[i] = len(dst)
			continue
		}
		dst = append(dst, cur...)
		ends[i] = len(dst)
	}
	return dst
}

// get appends string ord, which must be below t.n, to dst.
func (t *table) get(ord uint64, dst []byte) []byte {
	b := int(ord / tableBlock)
	strs, _, ok := t.block(b)
	at := -1
	var head []byte
	if ok {
		head, at = headString(strs)
	}
	if at < 0 {
		t.sec.damaged("block %d of a table", b)
		return dst
	}
	start := len(dst)
	dst = append(dst, head...)
	for i := int(ord % tableBlock); i > 0; i-- {
		shared, suffix, next := nextString(strs, at)
		if next < 0 || shared > len(dst)-start {
			t.sec.damaged("strings of block %d", b)
			return dst[:start]
		}
		at = next + suffix
		dst = append(dst[:start+shared], strs[next:at]...)
	}
	return dst
}

// tableCursor walks a table in order.
type tableCursor struct {
	t    *table
	b    int // current block
	i, n int // next place in the block, strings of the block
	strs []byte
	pay  []byte
	at   int
	cur  []byte // current string; dies at the next move
	bad  bool
}

// start puts the cursor before place i of block b; i may be the number of strings of the block.
func (c *tableCursor) start(t *table, b, i int) {
	*c = tableCursor{t: t, b: b - 1, cur: c.cur[:0]}
	if c.loadBlock() {
		for c.i < i && c.step() {
		}
	}
}

// loadBlock goes to the next block.
func (c *tableCursor) loadBlock() bool {
	if c.bad || c.b+1 >= len(c.t.prefix) {
		return false
	}
	c.b++
	var ok bool
	c.strs, c.pay, ok = c.t.block(c.b)
	if !ok {
		return c.damage()
	}
	c.i, c.n, c.at = 0, c.t.entries(c.b), 0
	return true
}

// step reads the next string of the block.
func (c *tableCursor) step() bool {
	if c.i == 0 {
		head, at := headString(c.strs)
		if at < 0 {
			return c.damage()
		}
		c.cur, c.at = append(c.cur[:0], head...), at
	} else {
		shared, suffix, next := nextString(c.strs, c.at)
		if next < 0 || shared > len(c.cur) {
			return c.damage()
		}
		c.at = next + suffix
		c.cur = append(c.cur[:shared], c.strs[next:c.at]...)
	}
	c.i++
	return true
}

func (c *tableCursor) damage() bool {
	c.bad = true
	c.i, c.n = 0, 0
	c.t.sec.damaged("block %d of a table", c.b)
	return false
}
