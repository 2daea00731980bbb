package agg

import (
	"slices"

	"github.com/axiomhq/hyperloglog"
)

// collector adds up the selected documents of one leaf, in slots.
type collector interface {
	add(r *rows, p *pairs) error
	// finish returns the state of each slot.
	finish() ([]part, error)
}

const (
	// tableMost bounds the counters of a dense table, 4 bytes each.
	tableMost = 1 << 22
	// tableFew is how many counters are always worth a table; beyond, it takes 1/tableSparse as many documents.
	tableFew    = 1 << 16
	tableSparse = 16
	// pendingMost is how many keys wait before they are sorted and counted.
	pendingMost = 1 << 20
	// tableWraps is when a table is emptied, so that no counter wraps.
	tableWraps = 1 << 31
)

// bag counts keys by slot: in a dense table where the keys of the leaf lie close together, by sorting otherwise.
type bag struct {
	n     *node
	key   *keyer
	str   StrColumn // of keys that are ordinals
	slots int

	lo, span uint64
	table    []uint32 // slots × span, may be nil
	inTable  uint64

	pend     [][]uint64 // by slot
	pending  int
	groups   []*group // by slot, may be nil
	kept     int      // keys in groups
	sketches []*hyperloglog.Sketch
	blurred  int // sketches made
	scratch  []uint64
}

// newBag returns a bag for about docs documents of the reader's leaf.
func newBag(n *node, r *reader, slots int, docs uint64) *bag {
	b := &bag{n: n, str: r.str, slots: slots, pend: make([][]uint64, slots), groups: make([]*group, slots)}
	lo, hi, ok := r.span()
	b.key = newKeyer(n, lo, hi, ok, docs)
	if lo, hi, ok = b.key.span(lo, hi, ok); ok && hi-lo < tableMost {
		b.lo, b.span = lo, hi-lo+1
		if size := uint64(slots) * b.span; size <= tableMost && size <= max(tableFew, docs*tableSparse) {
			b.table = make([]uint32, size)
		}
	}
	if n.spec.Kind == Cardinality {
		b.sketches = make([]*hyperloglog.Sketch, slots)
	}
	return b
}

func (b *bag) add(r *rows, p *pairs) error {
	docs := len(r.vals)
	if err := b.key.keys(r, p != nil || b.table == nil); err != nil {
		return err
	}
	// A counter grows by one for each value at most, since a document is in a slot once.
	if b.inTable += uint64(max(docs, len(r.vals))); b.inTable >= tableWraps {
		if err := b.empty(); err != nil {
			return err
		}
	}
	switch {
	case b.table == nil && p == nil:
		b.pend[0] = append(b.pend[0], r.vals...)
		b.pending += len(r.vals)
	case p == nil && r.same != nil:
		for _, k := range r.same {
			if x := k - b.lo; x < b.span {
				b.table[x] += uint32(docs)
			} else {
				for range docs {
					b.wait(0, k)
				}
			}
		}
	case p == nil:
		lo, table := b.lo, b.table
		for _, v := range r.vals {
			if x := v - lo; x < uint64(len(table)) {
				table[x]++
			} else {
				b.wait(0, v)
			}
		}
	case r.starts == nil:
		for i, d := range p.idx {
			b.put(p.slots[i], r.vals[d])
		}
	default:
		for i, d := range p.idx {
			for _, v := range r.vals[r.starts[d]:r.starts[d+1]] {
				b.put(p.slots[i], v)
			}
		}
	}
	if b.pending >= pendingMost {
		return b.compact()
	}
	return nil
}

func (b *bag) put(slot uint32, v uint64) {
	if x := v - b.lo; x < b.span && b.table != nil {
		b.table[uint64(slot)*b.span+x]++
		return
	}
	b.wait(slot, v)
}

func (b *bag) wait(slot uint32, v uint64) {
	b.pend[slot] = append(b.pend[slot], v)
	b.pending++
}

// empty moves the counters of the table into groups.
func (b *bag) empty() error {
	b.inTable = 0
	if b.table == nil {
		return nil
	}
	some := 0
	for _, c := range b.table {
		if c != 0 {
			some++
		}
	}
	nums, counts := make([]uint64, 0, some), make([]uint64, 0, some)
	for s := range b.slots {
		from := len(nums)
		row := b.table[uint64(s)*b.span : uint64(s+1)*b.span]
		for x, c := range row {
			if c != 0 {
				nums, counts = append(nums, b.lo+uint64(x)), append(counts, uint64(c))
			}
		}
		if len(nums) > from {
			if err := b.keep(s, &group{nums: nums[from:len(nums):len(nums)], counts: counts[from:len(counts):len(counts)]}); err != nil {
				return err
			}
		}
	}
	clear(b.table)
	return nil
}

// compact counts the keys that wait.
func (b *bag) compact() error {
	for s, keys := range b.pend {
		if len(keys) == 0 {
			continue
		}
		if b.sketches != nil && b.sketches[s] != nil && b.str == nil {
			for _, v := range keys {
				b.sketches[s].InsertHash(hashNum(v))
			}
		} else {
			b.scratch = sortKeys(keys, b.scratch)
			if err := b.keep(s, countRuns(keys)); err != nil {
				return err
			}
		}
		b.pend[s] = keys[:0]
		if b.slots > 1 {
			b.pend[s] = nil
		}
	}
	b.pending = 0
	return nil
}

// countRuns counts sorted keys.
func countRuns(keys []uint64) *group {
	distinct := 1
	for i := 1; i < len(keys); i++ {
		if keys[i] != keys[i-1] {
			distinct++
		}
	}
	g := &group{nums: make([]uint64, 0, distinct), counts: make([]uint64, 0, distinct)}
	for i := 0; i < len(keys); {
		j := i + 1
		for j < len(keys) && keys[j] == keys[i] {
			j++
		}
		g.nums, g.counts = append(g.nums, keys[i]), append(g.counts, uint64(j-i))
		i = j
	}
	return g
}

// keep adds counted keys to a slot.
func (b *bag) keep(s int, g *group) error {
	old := 0
	if b.groups[s] != nil {
		old = len(b.groups[s].nums)
		var err error
		if g, err = b.n.mergeGroups(b.groups[s], g); err != nil {
			return err
		}
	}
	if err := b.n.checkSpan(g.nums[0], g.nums[len(g.nums)-1]); err != nil {
		return err
	}
	b.groups[s] = g
	b.kept += len(g.nums) - old
	if b.sketches != nil {
		if values, _ := b.n.exact(); b.sketches[s] != nil || len(g.nums) > values {
			return b.blur(s)
		}
	}
	if b.kept > b.n.opts.StateBytes/keyBytes {
		return b.n.tooLarge()
	}
	return nil
}

// blur moves the values of a slot into its sketch.
func (b *bag) blur(s int) error {
	g := b.groups[s]
	d := &distinct{nums: g.nums, sketch: b.sketches[s]}
	if d.sketch == nil {
		if b.blurred++; b.blurred > b.n.opts.StateBytes>>sketchPrecision {
			return b.n.tooLarge()
		}
	}
	if b.str != nil {
		var buf []byte
		d.sketch, d.nums = b.sketches[s], nil
		if d.sketch == nil {
			d.sketch = newSketch()
		}
		for _, ord := range g.nums {
			if ord < uint64(b.str.NumOrds()) {
				buf = b.str.Lookup(int(ord), buf[:0])
				d.sketch.InsertHash(hashText(buf))
			}
		}
	}
	d.blur()
	b.sketches[s], b.groups[s] = d.sketch, nil
	b.kept -= len(g.nums)
	return nil
}

// counted returns the groups by slot, with ordinals for texts; nil for slots without keys.
func (b *bag) counted() ([]*group, error) {
	if err := b.compact(); err != nil {
		return nil, err
	}
	if err := b.empty(); err != nil {
		return nil, err
	}
	return b.groups, nil
}

func (b *bag) finish() ([]part, error) {
	groups, err := b.counted()
	if err != nil {
		return nil, err
	}
	if b.str != nil {
		if err := b.n.name(b.str, groups); err != nil {
			return nil, err
		}
	}
	parts := make([]part, b.slots)
	for s, g := range groups {
		switch {
		case b.sketches != nil && b.sketches[s] != nil:
			parts[s] = &distinct{sketch: b.sketches[s]}
		case g == nil:
		case b.sketches != nil:
			d := &distinct{nums: g.nums, strs: g.strs}
			b.n.settle(d)
			parts[s] = d
		default:
			parts[s] = g
		}
	}
	return parts, nil
}

// name turns the ordinals of groups into their texts. The texts of one ordinal share memory.
func (n *node) name(str StrColumn, groups []*group) error {
	most := uint64(str.NumOrds())
	var ords []uint64
	for _, g := range groups {
		if g != nil {
			// An ordinal that is not in the dictionary is damage, which the column reports by itself.
			for k := len(g.nums); k > 0 && g.nums[k-1] >= most; k-- {
				g.nums, g.counts = g.nums[:k-1], g.counts[:k-1]
				if g.subs != nil {
					g.subs = g.subs[:k-1]
				}
			}
			ords = append(ords, g.nums...)
		}
	}
	if len(groups) > 1 {
		sortKeys(ords, nil)
		ords = slices.Compact(ords)
	}
	var arena []byte
	ends := make([]int, len(ords))
	for i, o := range ords {
		arena = str.Lookup(int(o), arena)
		ends[i] = len(arena)
		if len(arena)+i*(keyBytes+textBytes) > n.opts.StateBytes {
			return n.tooLarge()
		}
	}
	text := string(arena)
	strs := make([]string, len(ords))
	from := 0
	for i, end := range ends {
		strs[i] = text[from:end]
		from = end
	}
	if len(groups) == 1 {
		if g := groups[0]; g != nil {
			g.nums, g.strs, g.text = nil, strs, true
		}
		return nil
	}
	for _, g := range groups {
		if g == nil {
			continue
		}
		g.strs, g.text = make([]string, len(g.nums)), true
		at := 0
		for i, o := range g.nums {
			k, _ := slices.BinarySearch(ords[at:], o)
			at += k
			g.strs[i] = strs[at]
		}
		g.nums = nil
	}
	return nil
}

// sortKeys sorts by bytes from the least significant up, leaving out those in which all keys agree. It returns scratch memory.
func sortKeys(keys, scratch []uint64) []uint64 {
	if len(keys) < 2_048 {
		slices.Sort(keys)
		return scratch
	}
	differ := uint64(0)
	for _, k := range keys {
		differ |= k ^ keys[0]
	}
	if cap(scratch) < len(keys) {
		scratch = make([]uint64, len(keys))
	}
	from, to := keys, scratch[:len(keys)]
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var at [256]int
		for _, k := range from {
			at[k>>shift&0xff]++
		}
		sum := 0
		for i, c := range at {
			at[i], sum = sum, sum+c
		}
		for _, k := range from {
			d := k >> shift & 0xff
			to[at[d]] = k
			at[d]++
		}
		from, to = to, from
	}
	if &from[0] != &keys[0] {
		copy(keys, from)
	}
	return scratch
}
