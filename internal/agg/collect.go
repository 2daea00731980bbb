package agg

import (
	"context"
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/schema"
)

// Collect adds documents of a leaf: those in docs (bit d of word d/64), or every document below NumDocs if all is set. Errors are
// *SpecError for a limit that the documents break, or the cause of ctx's end; the state is of no use then.
func (s *State) Collect(ctx context.Context, leaf Leaf, docs []uint64, all bool) error {
	m := s.meter(ctx)
	for i, n := range s.plan.nodes {
		r := run{m: m, leaf: leaf, numDocs: leaf.NumDocs()}
		r.docs, r.all = narrow(leaf, n, docs, all)
		p, err := r.node(n)
		if err != nil {
			return err
		}
		if err := s.add(m, i, p); err != nil {
			return err
		}
	}
	return nil
}

// narrow leaves the documents that the node's filter takes.
func narrow(leaf Leaf, n *node, docs []uint64, all bool) ([]uint64, bool) {
	if n.filter < 0 {
		return docs, all
	}
	match, every := leaf.Filter(n.filter)
	switch {
	case every:
		return docs, all
	case all:
		return match, false
	}
	out := slices.Clone(docs[:min(len(docs), len(match))])
	for i := range out {
		out[i] &= match[i]
	}
	return out, false
}

// run is the collection of one aggregation over one leaf.
type run struct {
	m       *meter
	leaf    Leaf
	numDocs uint32
	docs    []uint64
	all     bool
	sel     selection
}

func (r *run) count() uint64 {
	if r.all {
		return uint64(r.numDocs)
	}
	n := 0
	for _, w := range r.docs {
		n += bits.OnesCount64(w)
	}
	return uint64(n)
}

// blocks calls fn for the selected documents of each block until it has taken them all; fn returns how many it took, at least one.
func (r *run) blocks(fn func(b int) (int, error)) error {
	if err := r.m.look(); err != nil {
		return err
	}
	for b := range int((uint64(r.numDocs) + ColumnBlock - 1) / ColumnBlock) {
		for r.sel.pick(b, r.numDocs, r.docs, r.all); r.sel.n > 0; {
			n, err := fn(b)
			if err == nil {
				err = r.m.tick(n)
			}
			if err != nil {
				return err
			}
			if n >= r.sel.n {
				break
			}
			r.sel.drop(n)
		}
	}
	return nil
}

// newCollector returns a collector for about docs documents. share is the number of collectors at work at the same time, which
// share what one may take.
func newCollector(m *meter, n *node, rd *reader, slots int, docs uint64, share int) (collector, error) {
	if n.spec.Kind == Stats {
		return newSums(m, n, slots)
	}
	return newBag(m, n, rd, slots, docs, share)
}

func (r *run) node(n *node) (part, error) {
	rd := newReader(r.leaf, n)
	docs := r.count()
	if rd == nil || docs == 0 {
		return nil, nil
	}
	c, err := newCollector(r.m, n, rd, 1, docs, 1)
	if err != nil {
		return nil, err
	}
	var in rows
	err = r.blocks(func(b int) (int, error) {
		n := rd.read(b, &r.sel, &in)
		return n, c.add(&in, nil)
	})
	if err != nil {
		return nil, err
	}
	if len(n.subs) == 0 {
		parts, err := c.finish()
		if err != nil {
			return nil, err
		}
		return parts[0], nil
	}
	bag := c.(*bag)
	groups, err := bag.counted()
	if err != nil || groups[0] == nil {
		return nil, err
	}
	if err := r.subs(n, rd, bag.key, groups[0]); err != nil {
		return nil, err
	}
	parts, err := bag.finish()
	if err != nil {
		return nil, err
	}
	return parts[0], nil
}

// subs runs over the documents once more and collects the aggregations in the buckets of g.
func (r *run) subs(n *node, rd *reader, key *keyer, g *group) error {
	slots := len(g.nums)
	if slots > n.opts.StateBytes/(keyBytes+slotBytes*len(n.subs)) {
		return n.tooLarge()
	}
	type child struct {
		rd  *reader
		c   collector
		set []uint64 // documents of its filter, nil = all
	}
	children := make([]child, len(n.subs))
	for i, sub := range n.subs {
		if rd := newReader(r.leaf, sub); rd != nil {
			c, err := newCollector(r.m, sub, rd, slots, g.total(), len(n.subs))
			if err != nil {
				return err
			}
			children[i] = child{rd: rd, c: c}
			if set, all := narrow(r.leaf, sub, nil, true); !all {
				if children[i].set = set; set == nil {
					children[i].set = []uint64{}
				}
			}
		}
	}
	find := newSlotFinder(g.nums, n.opts.table)
	// Besides the finder, the parts of the buckets.
	if err := r.m.take(4*len(find.table) + slots*slotBytes*len(n.subs)); err != nil {
		return err
	}
	var outer, inner rows
	made := &product{n: n}
	p, q := pairs{made: made}, pairs{made: made}
	var some pairs
	var left selection
	err := r.blocks(func(b int) (int, error) {
		docs := rd.read(b, &r.sel, &outer)
		if err := key.keys(&outer, true); err != nil {
			return 0, err
		}
		p.reset()
		clear(made.docs[:docs])
		if outer.starts == nil {
			for i, v := range outer.vals {
				if s, ok := find.slot(v); ok {
					p.add(uint16(i), s)
				}
			}
		} else {
			for i := range docs {
				for _, v := range outer.of(i) {
					if s, ok := find.slot(v); ok {
						p.add(uint16(i), s)
					}
				}
			}
		}
		for k, c := range children {
			if c.rd == nil {
				continue
			}
			use := &p
			if c.set != nil {
				q.reset()
				for i, at := range p.idx {
					if d := r.sel.doc(int(at)); int(d/64) < len(c.set) && c.set[d/64]>>(d%64)&1 != 0 {
						q.add(at, p.slots[i])
					}
				}
				use = &q
			}
			sel := &r.sel
			for from := 0; from < docs && len(use.idx) > 0; {
				// The documents are those of outer; inner may take several steps for them.
				took := c.rd.read(b, sel, &inner)
				part := use
				if from > 0 || took < docs {
					part = use.between(from, from+took, &some)
				}
				if n.subs[k].step == nil || spare(&inner, part) {
					if err := c.c.add(&inner, part); err != nil {
						return 0, err
					}
				}
				if from += took; from < docs {
					if sel != &left {
						left.copy(sel)
						sel = &left
					}
					left.drop(took)
				}
			}
		}
		return docs, nil
	})
	if err != nil {
		return err
	}
	g.subs = make([][]part, slots)
	flat := make([]part, slots*len(n.subs))
	for s := range g.subs {
		g.subs[s] = flat[s*len(n.subs) : (s+1)*len(n.subs) : (s+1)*len(n.subs)]
	}
	for i, c := range children {
		if c.rd == nil {
			continue
		}
		parts, err := c.c.finish()
		if err != nil {
			return err
		}
		for s, p := range parts {
			g.subs[s][i] = p
		}
	}
	return nil
}

// slotFinder finds the place of a key in a sorted list.
type slotFinder struct {
	keys  []uint64
	lo    uint64
	table []uint32 // place + 1 by key − lo; nil when the keys lie far apart
}

func newSlotFinder(keys []uint64, most int) slotFinder {
	f := slotFinder{keys: keys, lo: keys[0]}
	if span := keys[len(keys)-1] - f.lo; span < uint64(most) {
		f.table = make([]uint32, span+1)
		for i, k := range keys {
			f.table[k-f.lo] = uint32(i) + 1
		}
	}
	return f
}

func (f *slotFinder) slot(key uint64) (uint32, bool) {
	if f.table != nil {
		if x := key - f.lo; x < uint64(len(f.table)) {
			s := f.table[x]
			return s - 1, s != 0
		}
		return 0, false
	}
	i, ok := slices.BinarySearch(f.keys, key)
	return uint32(i), ok
}

// sums collects stats. Slots without values take the least: they are not reckoned as stats either.
type sums struct {
	m     *meter
	n     *node
	taken int // parts that were counted
	float bool
	at    []uint32 // by slot: place in parts, plus 1
	parts []stats
	exact []exactSum // of floats, beside parts
}

func newSums(m *meter, n *node, slots int) (*sums, error) {
	if err := m.take(4 * slots); err != nil {
		return nil, err
	}
	s := &sums{m: m, n: n, float: n.typ == schema.F64, at: make([]uint32, slots)}
	if slots == 1 {
		s.open(0)
		if s.float {
			s.exact[0].reach(0, sumChunks-1)
		}
	}
	return s, nil
}

// open makes room for a slot with values.
func (s *sums) open(slot uint32) uint32 {
	s.parts = append(s.parts, stats{min: 1<<64 - 1})
	if s.float {
		s.exact = append(s.exact, exactSum{})
	}
	s.at[slot] = uint32(len(s.parts))
	return s.at[slot]
}

func (s *sums) add(r *rows, p *pairs) error {
	if p != nil {
		if err := p.count(r); err != nil {
			return err
		}
	}
	switch {
	case p == nil:
		s.all(r.vals)
	case r.starts == nil:
		for i, d := range p.idx {
			s.one(p.slots[i], r.vals[d])
		}
	default:
		for i, d := range p.idx {
			vals := r.vals[r.starts[d]:r.starts[d+1]]
			for _, v := range vals {
				s.one(p.slots[i], v)
			}
			if err := s.m.tick(len(vals)); err != nil {
				return err
			}
		}
	}
	if len(s.parts) > 1 && len(s.parts) > s.n.opts.StateBytes/statsBytes {
		return s.n.tooLarge()
	}
	if more := len(s.parts) - s.taken; more > 0 {
		s.taken = len(s.parts)
		if err := s.m.take(statsBytes * more); err != nil {
			return err
		}
	}
	return s.m.tick(len(r.vals))
}

func (s *sums) all(vals []uint64) {
	t := &s.parts[0]
	least, most, hi, lo := t.min, t.max, t.hi, t.lo
	t.count += uint64(len(vals))
	for _, v := range vals {
		least, most = min(least, v), max(most, v)
	}
	t.min, t.max = least, most
	if s.float {
		s.exact[0].addAll(vals)
		return
	}
	for _, v := range vals {
		var c uint64
		lo, c = bits.Add64(lo, v, 0)
		hi += c
	}
	t.hi, t.lo = hi, lo
}

func (s *sums) one(slot uint32, v uint64) {
	at := s.at[slot]
	if at == 0 {
		at = s.open(slot)
	}
	t := &s.parts[at-1]
	t.count++
	t.min, t.max = min(t.min, v), max(t.max, v)
	if s.float {
		s.exact[at-1].add(schema.DecodeF64(v))
		return
	}
	var c uint64
	t.lo, c = bits.Add64(t.lo, v, 0)
	t.hi += c
}

func (s *sums) finish() ([]part, error) {
	parts := make([]part, len(s.at))
	for slot, at := range s.at {
		if at == 0 || s.parts[at-1].count == 0 {
			continue
		}
		t := &s.parts[at-1]
		if s.float {
			t.sum = &s.exact[at-1]
			t.sum.trim()
		}
		parts[slot] = t
	}
	return parts, nil
}
