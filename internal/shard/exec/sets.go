package exec

import (
	"math/bits"
	"slices"

	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// docSet is a set of documents of one leaf, dead ones included. The zero value is empty.
type docSet struct {
	all    bool       // every document; bits is nil
	bits   bitset.Set // nil: none
	shared bool       // bits belong to somebody else and must not be written to
}

func (d *docSet) empty() bool { return !d.all && d.bits == nil }

func (d *docSet) count(l Leaf) uint32 {
	if d.all {
		return l.NumDocs()
	}
	return uint32(d.bits.Count())
}

// emptySet returns an empty set with room for the documents of a leaf.
func (s *searcher) emptySet(l Leaf) bitset.Set {
	words := (int(l.NumDocs()) + 63) / 64
	if k := len(s.spare) - 1; k >= 0 {
		b := s.spare[k]
		s.spare = s.spare[:k]
		if cap(b) >= words {
			b = b[:words]
			clear(b)
			return b
		}
	}
	return make(bitset.Set, words)
}

// maxSpareSets and maxSpareWords bound the sets that a pooled searcher keeps: 4 of up to 8 million documents.
const (
	maxSpareSets  = 4
	maxSpareWords = 1 << 17
)

// drop gives the memory of a set back.
func (s *searcher) drop(d docSet) {
	if d.bits != nil && !d.shared && len(s.spare) < maxSpareSets && cap(d.bits) <= maxSpareWords {
		s.spare = append(s.spare, d.bits)
	}
}

// own returns a set that may be written to, with the same members.
func (s *searcher) own(l Leaf, d docSet) docSet {
	if !d.shared {
		return d
	}
	b := s.emptySet(l)
	copy(b, d.bits)
	return docSet{bits: b}
}

// find returns the documents of a leaf, dead ones included, that a node matches.
func (s *searcher) find(l Leaf, li int, n *node) (docSet, error) {
	switch n.kind {
	case kindNone:
		return docSet{}, nil
	case kindAll:
		return docSet{all: true}, nil
	case kindBool:
		return s.findBool(l, li, n)
	case kindTerm:
		p, ok := s.list(l, li, n.term)
		switch {
		case !ok:
			return docSet{}, nil
		case p.DocFreq() == int(l.NumDocs()):
			return docSet{all: true}, nil
		}
	}
	out := docSet{bits: s.emptySet(l)}
	err := s.addFound(out.bits, l, li, n)
	return out, err
}

// addFound adds what a node finds that is neither a Bool nor one that finds all or nothing.
func (s *searcher) addFound(set bitset.Set, l Leaf, li int, n *node) error {
	switch n.kind {
	case kindTerm:
		if p, ok := s.list(l, li, n.term); ok {
			return s.addBits(set, p)
		}
		return nil
	case kindPrefix:
		var failed error
		err := l.ScanPostings(n.field, []byte(n.text), func(_ []byte, p segment.Postings) bool {
			if failed = s.check(16); failed == nil {
				failed = s.addBits(set, &p)
			}
			return failed == nil
		})
		if err == nil {
			err = failed
		}
		return err
	case kindExists:
		return s.addPresent(set, l, n.field)
	case kindNumRange, kindStrRange, kindNumTerms, kindStrTerms:
		return s.addColumn(set, l, n)
	}
	s.listsOf(l, li, n)
	it, err := s.bare(l, li, n)
	if err != nil || it == nil {
		return err
	}
	for doc := it.seek(0); doc != noDoc; doc = it.seek(doc + 1) {
		set.Add(doc)
	}
	return s.failed
}

// listsOf looks up the lists of a phrase, which its iterator expects.
func (s *searcher) listsOf(l Leaf, li int, n *node) {
	for _, ti := range n.list {
		s.list(l, li, ti)
	}
}

func (s *searcher) findBool(l Leaf, li int, n *node) (docSet, error) {
	out := docSet{all: true}
	var err error
	switch {
	case len(n.must)+len(n.filter) > 0:
		type part struct {
			n    *node
			cost int
		}
		var room [8]part
		parts := room[:0]
		for _, list := range [][]*node{n.must, n.filter} {
			for _, k := range list {
				parts = append(parts, part{k, s.findCost(l, li, k)})
			}
		}
		slices.SortStableFunc(parts, func(a, b part) int { return a.cost - b.cost })
		for _, p := range parts {
			if out, err = s.intersect(l, li, out, p.n, p.cost, true); err != nil || out.empty() {
				return out, err
			}
		}
	case len(n.should) > 0:
		out = docSet{}
		for _, k := range n.should {
			if out, err = s.unite(l, li, out, k); err != nil || out.all {
				break
			}
		}
	case len(n.not) == 0:
		return docSet{}, nil
	}
	for _, k := range n.not {
		if err != nil || out.empty() {
			return out, err
		}
		out, err = s.intersect(l, li, out, k, s.findCost(l, li, k), false)
	}
	return out, err
}

// unite adds the documents that a node finds to a set.
func (s *searcher) unite(l Leaf, li int, have docSet, n *node) (docSet, error) {
	if have.bits != nil && !have.shared && n.kind != kindBool && n.kind != kindAll && n.kind != kindNone {
		return have, s.addFound(have.bits, l, li, n)
	}
	more, err := s.find(l, li, n)
	switch {
	case err != nil || more.empty():
		s.drop(more)
		return have, err
	case have.empty() || more.all:
		s.drop(have)
		return more, nil
	}
	have = s.own(l, have)
	for i, w := range more.bits {
		have.bits[i] |= w
	}
	s.drop(more)
	return have, nil
}

// fewTimes is how much dearer it is to look a document up in a list or column than to read one more of it.
const fewTimes = 16

// intersect keeps the members that a node finds, or those that it does not find.
func (s *searcher) intersect(l Leaf, li int, have docSet, n *node, cost int, found bool) (docSet, error) {
	if have.empty() {
		return have, nil
	}
	if !have.all {
		switch n.kind {
		case kindTerm, kindPhrase, kindExists, kindNumRange, kindStrRange, kindNumTerms, kindStrTerms:
			if have.bits.Count()*fewTimes < cost {
				have = s.own(l, have)
				return have, s.narrow(l, li, have.bits, n, found)
			}
		}
	}
	part, err := s.find(l, li, n)
	if err != nil {
		s.drop(have)
		return part, err
	}
	return s.combine(l, have, part, found), nil
}

// combine is have ∩ part, or have without part. It takes both.
func (s *searcher) combine(l Leaf, have, part docSet, found bool) docSet {
	switch {
	case have.empty():
		s.drop(part)
		return have
	case part.all == found && (part.all || part.empty()): // ∩ all, or without nothing
		s.drop(part)
		return have
	case part.all || part.empty():
		s.drop(have)
		return docSet{}
	case have.all && found:
		return part
	case have.all:
		part = s.own(l, part)
		for i := range part.bits {
			part.bits[i] = ^part.bits[i]
		}
		if r := l.NumDocs() % 64; r != 0 {
			part.bits[len(part.bits)-1] &= 1<<r - 1
		}
		return part
	}
	have = s.own(l, have)
	if found {
		for i, w := range part.bits {
			have.bits[i] &= w
		}
	} else {
		for i, w := range part.bits {
			have.bits[i] &^= w
		}
	}
	s.drop(part)
	return have
}

// narrow looks the members up, one by one, and keeps those that the node finds, or those that it does not.
func (s *searcher) narrow(l Leaf, li int, set bitset.Set, n *node, found bool) error {
	var has func(doc uint32) bool
	switch n.kind {
	case kindExists:
		has = l.Present(n.field)
	case kindTerm, kindPhrase:
		s.listsOf(l, li, n)
		if n.kind == kindTerm {
			s.list(l, li, n.term)
		}
		it, err := s.bare(l, li, n)
		if err != nil {
			return err
		}
		if it != nil {
			has = func(doc uint32) bool { return it.seek(doc) == doc }
		}
	default:
		if c := newColumnTest(l, n); c != nil {
			has = c.has
		}
	}
	if has == nil {
		if found {
			clear(set)
		}
		return nil
	}
	for w, x := range set {
		for ; x != 0; x &= x - 1 {
			if err := s.check(8); err != nil {
				return err
			}
			doc := uint32(w<<6 + bits.TrailingZeros64(x))
			if has(doc) != found {
				set[w] &^= x & -x
			}
			if s.failed != nil { // a phrase was being looked up
				return s.failed
			}
		}
	}
	return nil
}

// findCost is about the number of postings or documents that find would read.
func (s *searcher) findCost(l Leaf, li int, n *node) int {
	num := int(l.NumDocs())
	switch n.kind {
	case kindNone, kindAll:
		return 0
	case kindTerm:
		if p, ok := s.list(l, li, n.term); ok {
			return p.DocFreq()
		}
		return 0
	case kindPhrase:
		least := num
		for _, ti := range n.list {
			p, ok := s.list(l, li, ti)
			if !ok {
				return 0
			}
			least = min(least, p.DocFreq())
		}
		return fewTimes * least
	case kindBool:
		if len(n.must)+len(n.filter) == 0 {
			sum := 0
			for _, k := range n.should {
				sum += s.findCost(l, li, k)
			}
			return sum
		}
		least := num
		for _, list := range [][]*node{n.must, n.filter} {
			for _, k := range list {
				least = min(least, s.findCost(l, li, k))
			}
		}
		return least
	}
	return num
}
