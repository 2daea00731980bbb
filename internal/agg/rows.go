package agg

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

// selection is the documents of one block that count.
type selection struct {
	base uint32   // number of the block's first document
	n    int      // how many there are
	full bool     // base to base+n−1
	docs []uint16 // otherwise: each one's place in the block, ascending
	buf  [ColumnBlock]uint16
}

func (s *selection) doc(i int) uint32 {
	if s.full {
		return s.base + uint32(i)
	}
	return s.base + uint32(s.docs[i])
}

// pick selects the documents of block b among numDocs.
func (s *selection) pick(b int, numDocs uint32, docs []uint64, all bool) {
	s.base = uint32(b) * ColumnBlock
	size := min(ColumnBlock, int(numDocs-s.base))
	if s.n, s.full = size, all; all {
		return
	}
	from := min(b*ColumnBlock/64, len(docs))
	words := docs[from:min(from+(size+63)/64, len(docs))]
	s.n = 0
	for i, w := range words {
		if rest := size - 64*i; rest < 64 {
			w &= 1<<rest - 1
		}
		for ; w != 0; w &= w - 1 {
			s.buf[s.n] = uint16(64*i + bits.TrailingZeros64(w))
			s.n++
		}
	}
	s.docs = s.buf[:s.n]
	s.full = s.n == size
}

// drop leaves out the first documents.
func (s *selection) drop(n int) {
	if s.full {
		for i := n; i < s.n; i++ {
			s.buf[i-n] = uint16(i)
		}
	} else {
		copy(s.buf[:], s.docs[n:])
	}
	s.n -= n
	s.full, s.docs = false, s.buf[:s.n]
}

// copy makes s a selection of its own of the documents of o.
func (s *selection) copy(o *selection) {
	s.base, s.n, s.full = o.base, o.n, o.full
	s.docs = s.buf[:copy(s.buf[:], o.docs)]
}

// rows are the values, or keys, of selected documents.
type rows struct {
	vals []uint64
	// starts is nil when each document has one value; otherwise those of document i are vals[starts[i]:starts[i+1]].
	starts []uint32
	// lo and hi enclose the values if ranged is set.
	lo, hi uint64
	ranged bool
	// same is not nil when each document has exactly these keys; vals may be missing then.
	same []uint64
}

// of returns the values of document i.
func (r *rows) of(i int) []uint64 {
	if r.starts == nil {
		return r.vals[i : i+1]
	}
	return r.vals[r.starts[i]:r.starts[i+1]]
}

// reader reads a column block by block. What it returns lives until the next call, and may be changed.
type reader struct {
	num    NumColumn
	str    StrColumn
	blocks BlockReader // may be nil
	buf    [ColumnBlock]uint64
	vals   []uint64
	starts []uint32
	ords   []uint32
	most   int // values read at once
}

// newReader returns the reader of the node's column; nil if the leaf has no values.
func newReader(leaf Leaf, n *node) *reader {
	r := &reader{most: n.opts.read}
	switch {
	case n.spec.Kind == Filter:
		return r
	case n.field < 0 || n.typ == 0:
		return nil
	case n.isText():
		if r.str = leaf.StrColumn(n.field); r.str == nil {
			return nil
		}
		r.blocks, _ = r.str.(BlockReader)
	default:
		if r.num = leaf.NumColumn(n.field); r.num == nil {
			return nil
		}
		r.blocks, _ = r.num.(BlockReader)
	}
	return r
}

// readMost bounds the values that are read at once, but for those of one document.
const readMost = 1 << 17

// blockWorth is the number of documents from which a block is read as a whole.
const blockWorth = 48

// read sets out to the values of the first documents of the selection and returns how many documents those are: all of them,
// unless they have very many values.
func (r *reader) read(b int, sel *selection, out *rows) int {
	*out = rows{}
	if r.num == nil && r.str == nil {
		clear(r.buf[:sel.n])
		out.vals, out.ranged = r.buf[:sel.n], true
		return sel.n
	}
	if r.num != nil && b < r.num.NumBlocks() {
		out.lo, out.hi, out.ranged = r.num.BlockRange(b)
	}
	if r.blocks != nil && (sel.full || sel.n >= blockWorth) {
		if n, ok := r.blocks.ReadBlock(b, &r.buf); ok {
			switch {
			case sel.full && n >= sel.n:
				out.vals = r.buf[:sel.n]
				return sel.n
			case !sel.full && n > int(sel.docs[sel.n-1]):
				// Places ascend, so none is overwritten before it is read.
				for i, d := range sel.docs {
					r.buf[i] = r.buf[d&(ColumnBlock-1)]
				}
				out.vals = r.buf[:sel.n]
				return sel.n
			}
		}
	}
	r.vals, r.starts = r.vals[:0], append(r.starts[:0], 0)
	one := true
	for i := range sel.n {
		before := len(r.vals)
		if r.num != nil {
			r.vals = r.num.Values(sel.doc(i), r.vals)
		} else {
			r.ords = r.str.Ords(sel.doc(i), r.ords[:0])
			for _, o := range r.ords {
				r.vals = append(r.vals, uint64(o))
			}
		}
		one = one && len(r.vals) == before+1
		r.starts = append(r.starts, uint32(len(r.vals)))
		if len(r.vals) >= r.most {
			break
		}
	}
	if out.vals = r.vals; !one {
		out.starts = r.starts
	}
	return len(r.starts) - 1
}

// span encloses all values of the column.
func (r *reader) span() (lo, hi uint64, ok bool) {
	switch {
	case r.str != nil:
		n := r.str.NumOrds()
		return 0, uint64(max(n, 1) - 1), n > 0
	case r.num == nil:
		return 0, 0, true
	}
	for b := range r.num.NumBlocks() {
		if l, h, some := r.num.BlockRange(b); some && ok {
			lo, hi = min(lo, l), max(hi, h)
		} else if some {
			lo, hi, ok = l, h, true
		}
	}
	return lo, hi, ok
}

// keyer turns values into the keys by which a node counts.
type keyer struct {
	n      *node
	step   step // the node's, or a faster one for this leaf
	two    [2]uint64
	vals   []uint64
	starts []uint32
	marks  []uint64 // of ranges, one bit each; clear between documents
	seen   []uint64 // of segments, likewise
}

// newKeyer returns a keyer for values from lo to hi, of which about docs are to come.
func newKeyer(n *node, lo, hi uint64, ok bool, docs uint64) *keyer {
	k := &keyer{n: n, step: n.step}
	if d, is := n.step.(dateStep); is && ok {
		if t, fits := newDayTable(d, lo, hi, int(min(docs, 1<<18))); fits {
			k.step = t
		}
	}
	return k
}

// span turns the ends of the values into those of the keys.
func (k *keyer) span(lo, hi uint64, ok bool) (uint64, uint64, bool) {
	switch {
	case k.n.spec.Kind == Range:
		return 0, uint64(len(k.n.ranges) - 1), true
	case !ok:
		return 0, 0, false
	case k.step == nil:
		return lo, hi, true
	}
	k.two = [2]uint64{lo, hi}
	if !k.step.apply(k.two[:]) {
		return 0, 0, false
	}
	return k.two[0], k.two[1], true
}

// keys replaces the values of r. Each key of a document stands once, but for percentiles, which count values. The keys may be
// told by same alone unless fill is set.
func (k *keyer) keys(r *rows, fill bool) error {
	kind := k.n.spec.Kind
	if r.starts == nil && r.ranged && kind != Percentiles {
		if kind == Range {
			if s := k.n.segs.of(r.lo); s == k.n.segs.of(r.hi) {
				if r.same = k.n.segs.in[s]; r.same == nil {
					r.same = []uint64{}
				}
			}
		} else if lo, hi, ok := k.span(r.lo, r.hi, true); ok && lo == hi {
			k.two[0] = lo
			r.same = k.two[:1]
		}
		if r.same != nil && !fill {
			return nil
		}
	}
	r.ranged = false
	switch {
	case kind == Range:
		k.ranges(r)
		return nil
	case k.step != nil:
		if !k.step.apply(r.vals) {
			return k.n.fault("interval", CodeLimit, int64(k.n.opts.Buckets), "the interval "+k.n.spec.Interval+" is too small for the values of the field")
		}
	}
	if r.starts != nil && kind != Percentiles {
		dedupe(r)
	}
	return nil
}

// dedupe leaves each key of a document once.
func dedupe(r *rows) {
	to := uint32(0)
	from := r.starts[0]
	for i := 1; i < len(r.starts); i++ {
		end := r.starts[i]
		v := r.vals[from:end]
		if len(v) > 1 {
			slices.Sort(v)
			v = slices.Compact(v)
		}
		to += uint32(copy(r.vals[to:], v))
		from = end
		r.starts[i] = to
	}
	r.vals = r.vals[:to]
}

// ranges replaces values by the ranges that hold them, ascending.
func (k *keyer) ranges(r *rows) {
	k.vals, k.starts = k.vals[:0], append(k.starts[:0], 0)
	docs := len(r.vals)
	if r.starts != nil {
		docs = len(r.starts) - 1
	}
	segs := &k.n.segs
	for i := range docs {
		vals := r.of(i)
		if len(vals) == 1 {
			k.vals = append(k.vals, segs.in[segs.of(vals[0])]...)
		} else if len(vals) > 1 {
			k.union(vals)
		}
		k.starts = append(k.starts, uint32(len(k.vals)))
	}
	r.vals, r.starts = k.vals, k.starts
}

// union appends the ranges that hold any of the values. Each segment is looked at once, so that a document costs its values and
// the ranges of the segments they lie in, not the product of the two.
func (k *keyer) union(vals []uint64) {
	segs := &k.n.segs
	if k.marks == nil {
		k.marks, k.seen = make([]uint64, (len(k.n.ranges)+63)/64), make([]uint64, (len(segs.in)+63)/64)
	}
	for _, v := range vals {
		s := segs.of(v)
		if bit := uint64(1) << (s % 64); k.seen[s/64]&bit == 0 {
			k.seen[s/64] |= bit
			for _, r := range segs.in[s] {
				k.marks[r/64] |= 1 << (r % 64)
			}
		}
	}
	for i, w := range k.marks {
		for ; w != 0; w &= w - 1 {
			k.vals = append(k.vals, uint64(64*i+bits.TrailingZeros64(w)))
		}
	}
	clear(k.marks)
	clear(k.seen)
}

// pairs say which documents go into which bucket: document idx[i] of the selection into slot slots[i]. nil means every document
// into slot 0.
type pairs struct {
	idx   []uint16
	slots []uint32
	made  *product
	first int // document 0 among those of made
}

func (p *pairs) reset() { p.idx, p.slots = p.idx[:0], p.slots[:0] }

func (p *pairs) add(doc uint16, slot uint32) {
	p.idx, p.slots = append(p.idx, doc), append(p.slots, slot)
}

// between sets to to the pairs of documents from up to, not including, end, which it numbers from 0. Documents ascend in p.
func (p *pairs) between(from, end int, to *pairs) *pairs {
	lo := sort.Search(len(p.idx), func(i int) bool { return int(p.idx[i]) >= from })
	hi := lo + sort.Search(len(p.idx)-lo, func(i int) bool { return int(p.idx[lo+i]) >= end })
	to.reset()
	to.made, to.first = p.made, p.first+from
	for i := lo; i < hi; i++ {
		to.add(p.idx[i]-uint16(from), p.slots[i])
	}
	return to
}

// spare puts a value that counts in the place of those of the documents that p leaves out, so that no step is found too small for a
// value that is not counted. It returns false when no value counts.
func spare(r *rows, p *pairs) bool {
	at := slices.IndexFunc(p.idx, func(d uint16) bool { return len(r.of(int(d))) > 0 })
	if at < 0 {
		return false
	}
	good := r.of(int(p.idx[at]))[0]
	docs := len(r.vals)
	if r.starts != nil {
		docs = len(r.starts) - 1
	}
	next := 0
	for d := range docs {
		for next < len(p.idx) && int(p.idx[next]) < d {
			next++
		}
		if next < len(p.idx) && int(p.idx[next]) == d {
			continue
		}
		vals := r.of(d)
		for i := range vals {
			vals[i] = good
		}
	}
	return true
}

// product counts the pairs of a bucket and a key that each document makes for the aggregations in the buckets of n. A document with
// many values in many buckets makes their product, which neither its size nor that of the state bounds. Documents are counted one by
// one, so that whether the limit is met does not depend on what else is in their leaf.
type product struct {
	n    *node
	docs [ColumnBlock]uint64
}

// count adds the pairs of r, the keys of one aggregation, before they are gone through.
func (p *pairs) count(r *rows) error {
	docs, most := &p.made.docs, uint64(p.made.n.opts.pairs)
	for _, d := range p.idx {
		keys := uint64(1)
		if r.starts != nil {
			keys = uint64(r.starts[d+1] - r.starts[d])
		}
		at := &docs[p.first+int(d)]
		if *at += keys; *at > most {
			return p.made.n.fault("aggs", CodeLimit, int64(most),
				fmt.Sprintf("one document makes more than %d pairs of a bucket and a value for the aggregations in the buckets; use fewer buckets, or a field with fewer values for each document", most))
		}
	}
	return nil
}
