package agg

import (
	"math"
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
	// pendingSketch is the same where values that are too many need not be kept, unless the slots can hold more.
	pendingSketch = 1 << 16
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

	segs     []uint64   // documents with one value, by the segment of a range aggregation it is in; slot 0
	pend     [][]uint64 // by slot
	pending  int
	most     int      // pending
	groups   []*group // by slot, may be nil
	kept     int      // keys in groups
	sketches []*hyperloglog.Sketch
	blurred  int // sketches made
	scratch  []uint64
}

// newBag returns a bag for about docs documents of the reader's leaf, one of share that work at the same time.
func newBag(n *node, r *reader, slots int, docs uint64, share int) *bag {
	table := uint64(max(1, n.opts.table/share))
	b := &bag{n: n, str: r.str, slots: slots, most: max(1, n.opts.pending/share), pend: make([][]uint64, slots), groups: make([]*group, slots)}
	lo, hi, ok := r.span()
	b.key = newKeyer(n, lo, hi, ok, docs)
	if lo, hi, ok = b.key.span(lo, hi, ok); ok && hi-lo < table {
		b.lo, b.span = lo, hi-lo+1
		if size := uint64(slots) * b.span; size <= table && size <= max(tableFew, docs*tableSparse) {
			b.table = make([]uint32, size)
		}
	}
	switch n.spec.Kind {
	case Cardinality:
		values, _ := n.exact()
		b.sketches, b.most = make([]*hyperloglog.Sketch, slots), min(max(slots*values, pendingSketch), b.most)
	case Range:
		b.segs = make([]uint64, len(n.segs.in))
	}
	if slots == 1 && b.table == nil {
		b.pend[0] = make([]uint64, 0, min(docs, uint64(b.most))+ColumnBlock)
	}
	return b
}

func (b *bag) add(r *rows, p *pairs) error {
	docs := len(r.vals)
	if b.segs != nil && p == nil && r.starts == nil {
		b.n.segs.count(b.segs, r)
		return nil
	}
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
	case b.table == nil && p == nil && b.sketches == nil:
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
	if b.pending >= b.most {
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
	if b.sketches != nil && b.str == nil && b.sketches[slot] != nil {
		b.sketches[slot].InsertHash(hashNum(v))
		return
	}
	b.pend[slot] = append(b.pend[slot], v)
	b.pending++
}

// empty moves the counters of the table into groups.
func (b *bag) empty() error {
	b.inTable = 0
	if err := b.emptySegs(); err != nil || b.table == nil {
		return err
	}
	if b.sketches != nil && b.str == nil {
		return b.emptySet()
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

// emptySegs moves the counters of segments into the ranges that hold them.
func (b *bag) emptySegs() error {
	if b.segs == nil {
		return nil
	}
	byRange := make([]uint64, len(b.n.ranges))
	for s, c := range b.segs {
		for _, r := range b.n.segs.in[s] {
			byRange[r] += c
		}
	}
	clear(b.segs)
	g := &group{}
	for i, c := range byRange {
		if c > 0 {
			g.nums, g.counts = append(g.nums, uint64(i)), append(g.counts, c)
		}
	}
	if len(g.nums) == 0 {
		return nil
	}
	return b.keep(0, g)
}

// emptySet is empty for a cardinality of numbers: what is too much to be kept goes straight into the sketch.
func (b *bag) emptySet() error {
	values, _ := b.n.exact()
	for s := range b.slots {
		row := b.table[uint64(s)*b.span : uint64(s+1)*b.span]
		some := 0
		for _, c := range row {
			if c != 0 {
				some++
			}
		}
		if some == 0 {
			continue
		}
		g := &group{}
		if some > values {
			if err := b.sketch(s); err != nil {
				return err
			}
			for x, c := range row {
				if c != 0 {
					b.sketches[s].InsertHash(hashNum(b.lo + uint64(x)))
				}
			}
			continue
		}
		for x, c := range row {
			if c != 0 {
				g.nums, g.counts = append(g.nums, b.lo+uint64(x)), append(g.counts, uint64(c))
			}
		}
		if err := b.keep(s, g); err != nil {
			return err
		}
	}
	clear(b.table)
	return nil
}

// sketch makes the sketch of a slot and moves its values into it.
func (b *bag) sketch(s int) error {
	if b.sketches[s] == nil {
		if b.blurred++; b.blurred > b.n.opts.StateBytes>>sketchPrecision {
			return b.n.tooLarge()
		}
		b.sketches[s] = newSketch()
	}
	if b.groups[s] != nil {
		b.blur(s)
	}
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
			return b.sketch(s)
		}
	}
	if b.kept > b.n.opts.StateBytes/keyBytes {
		return b.n.tooLarge()
	}
	return nil
}

// blur moves the values of a slot into its sketch.
func (b *bag) blur(s int) {
	g := b.groups[s]
	b.groups[s] = nil
	b.kept -= len(g.nums)
	var buf []byte
	for _, v := range g.nums {
		switch {
		case b.str == nil:
			b.sketches[s].InsertHash(hashNum(v))
		case v < uint64(b.str.NumOrds()):
			buf = b.str.Lookup(int(v), buf[:0])
			b.sketches[s].InsertHash(hashText(buf))
		}
	}
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
	many, _ := str.(manyLookup)
	for from := 0; from < len(ords); {
		to := from + 1
		if many != nil {
			to = min(from+1024, len(ords))
			arena = many.LookupAscending(ords[from:to], arena, ends[from:to])
		} else {
			arena = str.Lookup(int(ords[from]), arena)
			ends[from] = len(arena)
		}
		if from = to; len(arena)+from*(keyBytes+textBytes) > n.opts.StateBytes {
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

// Keys are sorted by digits of 11 bits: 6 passes at most, and the counters of a pass stay in the first-level cache.
const (
	digitBits = 11
	digits    = 6
)

// sortKeys sorts by digits from the least significant up, leaving out those in which all keys agree. It returns scratch memory
// for the next call.
func sortKeys(keys, scratch []uint64) []uint64 {
	if len(keys) < 2_048 || uint64(len(keys)) > math.MaxUint32 {
		slices.Sort(keys)
		return scratch
	}
	if cap(scratch) < len(keys) {
		scratch = make([]uint64, len(keys))
	}
	var at [digits][1 << digitBits]uint32
	for _, k := range keys {
		at[0][k&(1<<digitBits-1)]++
		at[1][k>>digitBits&(1<<digitBits-1)]++
		at[2][k>>(2*digitBits)&(1<<digitBits-1)]++
		at[3][k>>(3*digitBits)&(1<<digitBits-1)]++
		at[4][k>>(4*digitBits)&(1<<digitBits-1)]++
		at[5][k>>(5*digitBits)]++
	}
	from, to := keys, scratch[:len(keys)]
	for d := range at {
		shift := uint(d * digitBits)
		place := &at[d]
		if place[keys[0]>>shift&(1<<digitBits-1)] == uint32(len(keys)) {
			continue
		}
		sum := uint32(0)
		for i, c := range place {
			place[i], sum = sum, sum+c
		}
		for _, k := range from {
			p := &place[k>>shift&(1<<digitBits-1)]
			to[*p] = k
			*p++
		}
		from, to = to, from
	}
	if &from[0] != &keys[0] {
		copy(keys, from)
	}
	return scratch
}
