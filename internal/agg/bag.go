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
	m     *meter
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
	queued   int      // keys that room was taken for
	most     int      // pending
	groups   []*group // by slot, may be nil
	kept     int      // keys in groups
	sketches []*hyperloglog.Sketch
	blurred  int // sketches made
	scratch  []uint64
}

// bagSlotBytes is what the lists of a bag take for each slot.
const bagSlotBytes = 24 + 8 + 8

// newBag returns a bag for about docs documents of the reader's leaf, one of share that work at the same time.
func newBag(m *meter, n *node, r *reader, slots int, docs uint64, share int) (*bag, error) {
	table := uint64(max(1, n.opts.table/share))
	if err := m.take(slots * bagSlotBytes); err != nil {
		return nil, err
	}
	b := &bag{m: m, n: n, str: r.str, slots: slots, most: max(1, n.opts.pending/share), pend: make([][]uint64, slots), groups: make([]*group, slots)}
	lo, hi, ok := r.span()
	b.key = newKeyer(n, lo, hi, ok, docs)
	if lo, hi, ok = b.key.span(lo, hi, ok); ok && hi-lo < table {
		b.lo, b.span = lo, hi-lo+1
		if size := uint64(slots) * b.span; size <= table && size <= max(tableFew, docs*tableSparse) {
			if err := m.take(4 * int(size)); err != nil {
				return nil, err
			}
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
		if err := b.queue(int(min(docs, uint64(b.most)))); err != nil {
			return nil, err
		}
		b.pend[0] = make([]uint64, 0, min(docs, uint64(b.most))+ColumnBlock)
	}
	return b, nil
}

// queueBytes is what a key in a queue takes until it is counted: in the queue, beside it while it is sorted, and in its group.
const queueBytes = 8 + 8 + keyBytes

// queue takes room for a number of keys that wait.
func (b *bag) queue(keys int) error {
	if keys <= b.queued {
		return nil
	}
	more := keys - b.queued
	b.queued = keys
	return b.m.take(queueBytes * more)
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
	if p != nil {
		if err := p.count(r); err != nil {
			return err
		}
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
			vals := r.vals[r.starts[d]:r.starts[d+1]]
			for _, v := range vals {
				b.put(p.slots[i], v)
			}
			// A document with many values in many buckets makes their product.
			if err := b.paid(len(vals)); err != nil {
				return err
			}
		}
	}
	return b.paid(len(r.vals))
}

// paid counts work, and counts the keys that wait when they are many.
func (b *bag) paid(values int) error {
	if err := b.m.tick(values); err != nil {
		return err
	}
	if b.pending > b.queued {
		if err := b.queue(min(2*b.pending, max(b.most, b.pending))); err != nil {
			return err
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
		if err := b.newSketch(s); err != nil {
			return err
		}
	}
	if b.groups[s] != nil {
		b.blur(s)
	}
	return nil
}

// newSketch makes an empty sketch for a slot. It is reckoned at as much as it takes, at least.
func (b *bag) newSketch(s int) error {
	if b.blurred++; b.blurred > b.n.opts.StateBytes>>sketchPrecision {
		return b.n.tooLarge()
	}
	b.sketches[s] = newSketch()
	return b.m.take(1 << sketchPrecision)
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
		if g, err = b.n.mergeGroups(b.m, b.groups[s], g); err != nil {
			return err
		}
	}
	if err := b.n.checkSpan(g.nums[0], g.nums[len(g.nums)-1]); err != nil {
		return err
	}
	b.groups[s] = g
	b.kept += len(g.nums) - old
	if err := b.m.take(keyBytes * (len(g.nums) - old)); err != nil {
		return err
	}
	if err := b.m.tick(len(g.nums)); err != nil {
		return err
	}
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
		if err := b.name(); err != nil {
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

// name turns the ordinals of the groups into their texts, and those that are too long for an exact cardinality into sketches. The
// texts of one ordinal share memory.
func (b *bag) name() error {
	// A text is at most as often there as it is in the state, with its string, its place, its length and its hash.
	if err := b.m.take(b.kept * (8 + 16 + 8 + 4 + 8)); err != nil {
		return err
	}
	ords := b.places()
	var used []bool // by place in ords, nil = all
	if b.sketches != nil {
		var err error
		if used, err = b.sketchLong(ords); err != nil {
			return err
		}
	}
	strs, err := b.texts(ords, used)
	if err != nil {
		return err
	}
	for _, g := range b.groups {
		if g == nil {
			continue
		}
		g.text = true
		if b.slots == 1 {
			g.strs = strs
		} else {
			g.strs = make([]string, len(g.nums))
			for i, place := range g.nums {
				g.strs[i] = strs[place]
			}
		}
		g.nums = nil
	}
	return nil
}

// places returns the distinct ordinals of all groups, ascending, and replaces each ordinal in them by its place there.
func (b *bag) places() []uint64 {
	most := uint64(b.str.NumOrds())
	var ords []uint64
	for _, g := range b.groups {
		if g == nil {
			continue
		}
		// An ordinal that is not in the dictionary is damage, which the column reports by itself.
		for k := len(g.nums); k > 0 && g.nums[k-1] >= most; k-- {
			g.nums, g.counts = g.nums[:k-1], g.counts[:k-1]
			if g.subs != nil {
				g.subs = g.subs[:k-1]
			}
		}
		ords = append(ords, g.nums...)
	}
	if b.slots > 1 {
		sortKeys(ords, nil)
		ords = slices.Compact(ords)
	}
	for _, g := range b.groups {
		if g == nil {
			continue
		}
		at := 0
		for i, o := range g.nums {
			if at >= len(ords) || ords[at] != o {
				k, _ := slices.BinarySearch(ords[at:], o)
				at += k
			}
			g.nums[i] = uint64(at)
			at++
		}
	}
	return ords
}

// textsAtOnce is how many texts are read at once. They have up to 64 KiB each.
const textsAtOnce = 256

// eachText reads the texts of ascending ordinals, some at a time.
func eachText(str StrColumn, ords []uint64, fn func(i int, text []byte) error) error {
	many, _ := str.(manyLookup)
	var buf []byte
	var ends [textsAtOnce]int
	for from := 0; from < len(ords); from += textsAtOnce {
		some := ords[from:min(from+textsAtOnce, len(ords))]
		if buf = buf[:0]; many != nil {
			buf = many.LookupAscending(some, buf, ends[:len(some)])
		} else {
			for i, o := range some {
				buf = str.Lookup(int(o), buf)
				ends[i] = len(buf)
			}
		}
		start := 0
		for i, end := range ends[:len(some)] {
			if err := fn(from+i, buf[start:end]); err != nil {
				return err
			}
			start = end
		}
	}
	return nil
}

// sketchLong makes sketches of the slots whose texts together are too long to be kept, before any text is kept: what a leaf takes on
// the way must not be a reason to refuse what other leaves would not. It returns which places are still used, nil if all are.
func (b *bag) sketchLong(ords []uint64) ([]bool, error) {
	_, most := b.n.exact()
	lens, hashes := make([]uint32, len(ords)), make([]uint64, len(ords))
	err := eachText(b.str, ords, func(i int, text []byte) error {
		lens[i], hashes[i] = uint32(len(text)), hashText(text)
		return b.m.tick(1)
	})
	if err != nil {
		return nil, err
	}
	before := b.blurred
	for s, g := range b.groups {
		if g == nil {
			continue
		}
		size := 0
		for _, place := range g.nums {
			size += keyBytes + textBytes + int(lens[place])
		}
		if size <= most {
			continue
		}
		if err := b.newSketch(s); err != nil {
			return nil, err
		}
		for _, place := range g.nums {
			b.sketches[s].InsertHash(hashes[place])
		}
		b.kept -= len(g.nums)
		b.groups[s] = nil
	}
	if b.blurred == before {
		return nil, nil
	}
	used := make([]bool, len(ords))
	for _, g := range b.groups {
		if g != nil {
			for _, place := range g.nums {
				used[place] = true
			}
		}
	}
	return used, nil
}

// arenaStep is the step in which memory for texts is taken.
const arenaStep = 64 << 10

// texts returns the texts of the ordinals that are used.
func (b *bag) texts(ords []uint64, used []bool) ([]string, error) {
	want := ords
	if used != nil {
		want = nil
		for i, o := range ords {
			if used[i] {
				want = append(want, o)
			}
		}
	}
	var arena []byte
	taken := 0
	ends := make([]int, len(want))
	err := eachText(b.str, want, func(i int, text []byte) error {
		if err := b.m.tick(1); err != nil {
			return err
		}
		arena = append(arena, text...)
		ends[i] = len(arena)
		if len(arena) > taken {
			if err := b.m.take(arenaStep); err != nil {
				return err
			}
			taken += arenaStep
		}
		// Each of them is in the state at least once.
		if len(arena)+(i+1)*(keyBytes+textBytes) > b.n.opts.StateBytes {
			return b.n.tooLarge()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := string(arena)
	strs := make([]string, len(ords))
	next, from := 0, 0
	for i := range strs {
		if used == nil || used[i] {
			strs[i] = all[from:ends[next]]
			from = ends[next]
			next++
		}
	}
	return strs, nil
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
