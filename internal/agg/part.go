package agg

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/axiomhq/hyperloglog"
	"github.com/weft-search/weft/internal/schema"
	"github.com/zeebo/xxh3"
)

// part is the state of one aggregation over some documents. nil is that of none.
type part interface {
	// bytes is the reckoned size, see FORMAT.md. It depends on what the state knows, not on how it came to know it, and never
	// shrinks by a merge.
	bytes(n *node) int
}

// What the parts of a state are reckoned at.
const (
	keyBytes   = 16 // a bucket, or a distinct value
	textBytes  = 32 // besides, with the text itself, for text
	statsBytes = 160
	slotBytes  = 48 // the place of an aggregation in a bucket, and what it takes to fill it
)

// group is the state of terms, histograms, ranges, filters and percentiles: how many documents (or, for percentiles, values) have
// each key. Keys are ascending: values or buckets in the encoding of the column, texts, places in the list of ranges, or 0 for a
// filter.
type group struct {
	nums   []uint64 // the keys, unless they are texts
	strs   []string
	text   bool
	counts []uint64 // none is 0
	subs   [][]part // by key and aggregation, nil if there are none
}

func (g *group) bytes(n *node) int {
	size := keyBytes * len(g.counts)
	for _, s := range g.strs {
		size += textBytes + len(s)
	}
	for _, subs := range g.subs {
		size += slotBytes * len(subs)
		for i, p := range subs {
			if p != nil {
				size += p.bytes(n.subs[i])
			}
		}
	}
	return size
}

// total is the sum of the counts.
func (g *group) total() uint64 {
	n := uint64(0)
	for _, c := range g.counts {
		n += c
	}
	return n
}

// checkSpan refuses a histogram with too many buckets, those without documents included.
func (n *node) checkSpan(first, last uint64) error {
	if n.step == nil || last-first < uint64(n.opts.Buckets) {
		return nil
	}
	made := fmt.Sprintf("%d buckets", last-first+1)
	if last-first == 1<<64-1 {
		made = "too many buckets"
	}
	return n.fault("interval", CodeLimit, int64(n.opts.Buckets), fmt.Sprintf("the interval %s makes %s from the first to the last; at most %d are allowed", n.spec.Interval, made, n.opts.Buckets))
}

func (n *node) tooLarge() error {
	return n.fault("", CodeLimit, int64(n.opts.StateBytes), fmt.Sprintf("the aggregations need more than %d bytes of state; narrow the query or aggregate over fewer distinct values", n.opts.StateBytes))
}

// merge adds b to a; neither is to be used again.
func (n *node) merge(m *meter, a, b part) (part, error) {
	switch {
	case a == nil:
		return b, nil
	case b == nil:
		return a, nil
	}
	switch a := a.(type) {
	case *group:
		return n.mergeGroups(m, a, b.(*group))
	case *stats:
		a.merge(b.(*stats))
		return a, nil
	case *distinct:
		return n.mergeDistinct(m, a, b.(*distinct))
	}
	return nil, fmt.Errorf("aggregation %q: unknown state %T", n.path, a)
}

func (n *node) mergeSubs(m *meter, a, b []part) error {
	for i, sub := range n.subs {
		p, err := sub.merge(m, a[i], b[i])
		if err != nil {
			return err
		}
		a[i] = p
	}
	return nil
}

func (n *node) mergeGroups(m *meter, a, b *group) (*group, error) {
	if a.text {
		return mergeKeys(n, m, a, b, a.strs, b.strs, func(g *group, k []string) { g.strs = k })
	}
	if len(a.nums) > 0 && len(b.nums) > 0 {
		first, last := min(a.nums[0], b.nums[0]), max(a.nums[len(a.nums)-1], b.nums[len(b.nums)-1])
		if err := n.checkSpan(first, last); err != nil {
			return nil, err
		}
	}
	return mergeKeys(n, m, a, b, a.nums, b.nums, func(g *group, k []uint64) { g.nums = k })
}

func mergeKeys[K cmp.Ordered](n *node, m *meter, a, b *group, ak, bk []K, set func(*group, []K)) (*group, error) {
	switch {
	case len(ak) == 0:
		return b, nil
	case len(bk) == 0:
		return a, nil
	case slices.Equal(ak, bk):
		for i, c := range b.counts {
			a.counts[i] += c
			if a.subs != nil {
				if err := m.tick(len(n.subs)); err != nil {
					return nil, err
				}
				if err := n.mergeSubs(m, a.subs[i], b.subs[i]); err != nil {
					return nil, err
				}
			}
		}
		return a, nil
	}
	keys := make([]K, 0, len(ak)+len(bk))
	out := &group{text: a.text, counts: make([]uint64, 0, len(ak)+len(bk))}
	if a.subs != nil {
		out.subs = make([][]part, 0, len(ak)+len(bk))
	}
	take := func(g *group, k []K, from, to int) {
		keys = append(keys, k[from:to]...)
		out.counts = append(out.counts, g.counts[from:to]...)
		if out.subs != nil {
			out.subs = append(out.subs, g.subs[from:to]...)
		}
	}
	i, j := 0, 0
	for i < len(ak) && j < len(bk) {
		if err := m.tick(1); err != nil {
			return nil, err
		}
		switch c := cmp.Compare(ak[i], bk[j]); {
		case c < 0:
			take(a, ak, i, i+1)
			i++
		case c > 0:
			take(b, bk, j, j+1)
			j++
		default:
			take(a, ak, i, i+1)
			out.counts[len(out.counts)-1] += b.counts[j]
			if out.subs != nil {
				if err := n.mergeSubs(m, a.subs[i], b.subs[j]); err != nil {
					return nil, err
				}
			}
			i++
			j++
		}
	}
	take(a, ak, i, len(ak))
	take(b, bk, j, len(bk))
	set(out, keys)
	return out, nil
}

// stats is the state of stats. count is above 0.
type stats struct {
	count    uint64
	min, max uint64 // encoded
	// hi and lo are the sum of the encoded values of integers and dates, in 128 bits; sum is that of floats.
	hi, lo uint64
	sum    *exactSum
}

func (s *stats) bytes(*node) int { return statsBytes }

func (s *stats) merge(o *stats) {
	s.count += o.count
	s.min, s.max = min(s.min, o.min), max(s.max, o.max)
	var c uint64
	s.lo, c = bits.Add64(s.lo, o.lo, 0)
	s.hi += o.hi + c
	if s.sum != nil {
		s.sum.merge(o.sum)
	}
}

// distinct is the state of cardinality: the values themselves, ascending, or a sketch of them when they are too many.
type distinct struct {
	nums   []uint64
	strs   []string
	size   int // reckoned, of nums and strs
	sketch *hyperloglog.Sketch
}

// sketchPrecision is the number of bits of a hash that choose a register: the sketch has 16,384, each of one byte, and a
// standard error of 1.04/√16384 (Flajolet et al., "HyperLogLog", 2007).
const sketchPrecision = 14

const sketchError = 1.04 / 128

// exactBytes bounds the values of an exact cardinality, by the reckoning of bytes. A sketch is reckoned at as much, so that the
// reckoning never shrinks.
const exactBytes, exactBytesInBucket = 2 << 20, 1 << sketchPrecision

// exact gives the number and reckoned size of values that are kept as they are.
func (n *node) exact() (values, size int) {
	if n.inBucket {
		return ExactValuesInBucket, exactBytesInBucket
	}
	return ExactValues, exactBytes
}

func (d *distinct) bytes(n *node) int {
	if d.sketch != nil {
		_, size := n.exact()
		return size
	}
	return d.size
}

func (d *distinct) reckon() {
	d.size = keyBytes * len(d.nums)
	for _, s := range d.strs {
		d.size += keyBytes + textBytes + len(s)
	}
}

func hashNum(v uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return xxh3.Hash(b[:])
}

func newSketch() *hyperloglog.Sketch { return hyperloglog.NewNoSparse() }

// settle turns exact values that are too many into a sketch. The decision is one of the set of values alone, and stays the same
// for every greater set.
func (n *node) settle(d *distinct) {
	values, size := n.exact()
	d.reckon()
	if len(d.nums)+len(d.strs) > values || d.size > size {
		d.blur()
	}
}

// blur replaces the values by their sketch.
func (d *distinct) blur() {
	if d.sketch == nil {
		d.sketch = newSketch()
	}
	for _, v := range d.nums {
		d.sketch.InsertHash(hashNum(v))
	}
	for _, s := range d.strs {
		d.sketch.InsertHash(hashText([]byte(s)))
	}
	d.nums, d.strs, d.size = nil, nil, 0
}

func (n *node) mergeDistinct(m *meter, a, b *distinct) (*distinct, error) {
	if a.sketch == nil && b.sketch == nil {
		if err := m.tick(len(a.nums) + len(a.strs) + len(b.nums) + len(b.strs)); err != nil {
			return nil, err
		}
		a.nums, a.strs = union(a.nums, b.nums), union(a.strs, b.strs)
		n.settle(a)
		return a, nil
	}
	// A sketch has 16,384 registers.
	if err := m.tick(1 << (sketchPrecision - 6)); err != nil {
		return nil, err
	}
	a.blur()
	b.blur()
	if err := a.sketch.Merge(b.sketch); err != nil {
		return nil, fmt.Errorf("aggregation %q: merge sketches: %w", n.path, err)
	}
	return a, nil
}

// union merges ascending lists without duplicates.
func union[K cmp.Ordered](a, b []K) []K {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]K, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case a[0] > b[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	out = append(out, a...)
	return append(out, b...)
}

// Encodings of the least and greatest float64 that is a number.
var (
	minFloat = schema.EncodeF64(-math.MaxFloat64)
	maxFloat = schema.EncodeF64(math.MaxFloat64)
)

// valid tells whether v is the encoding of a value of the type.
func valid(t schema.Type, v uint64) bool {
	return t != schema.F64 || v >= minFloat && v <= maxFloat
}

func hashText(b []byte) uint64 { return xxh3.Hash(b) }
