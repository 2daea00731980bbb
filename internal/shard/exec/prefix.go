package exec

import (
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// prefixIter adds the lists of a prefix up term by term, in byte order, so that every document's score is summed in that order
// without holding a cursor for each of what may be thousands of terms. It takes five bytes for each document of the leaf.
func (s *searcher) prefixIter(l Leaf, li int, n *node) (iterator, error) {
	num := int(l.NumDocs())
	set := &scoredSet{docs: bitset.New(num), sc: make([]float32, num)}
	lens := l.Lengths(n.field)
	for _, ti := range n.list {
		t := &s.terms[ti]
		if !t.posts[li].ok {
			continue
		}
		c := s.newCursor(l, li, nil, t, t.idf)
		for b := 0; b < c.nblk; b++ {
			if err := s.check(segment.BlockSize); err != nil {
				return nil, err
			}
			k := c.post.DocsFreqs(b, &s.docsScr, &s.freqsScr)
			for i := 0; i < k; i++ {
				d := s.docsScr[i]
				set.docs[d>>6] |= 1 << (d & 63)
				set.sc[d] += c.weight.Score(s.freqsScr[i], lens[d])
			}
		}
		if err := c.post.Err(); err != nil {
			return nil, err
		}
		s.free = append(s.free, c)
		s.used = s.used[:len(s.used)-1]
	}
	if err := s.addRest(set.docs, l, n); err != nil {
		return nil, err
	}
	set.n = set.docs.Count()
	if set.n == 0 {
		return nil, nil
	}
	return set, nil
}

// countPrefix counts the live documents that hold any of a prefix's terms.
func (s *searcher) countPrefix(l Leaf, li int, n *node, res *Result) error {
	set := s.emptyBits(int(l.NumDocs()))
	for _, ti := range n.list {
		t := &s.terms[ti]
		if !t.posts[li].ok {
			continue
		}
		if err := s.addBits(set, &t.posts[li].p); err != nil {
			return err
		}
	}
	if err := s.addRest(set, l, n); err != nil {
		return err
	}
	if live := s.live; live != nil {
		for i := range set {
			set[i] &= live[i]
		}
	}
	res.Total += uint64(set.Count())
	return nil
}

// addRest adds the documents of the terms that match without a score.
func (s *searcher) addRest(set bitset.Set, l Leaf, n *node) error {
	for _, w := range n.rest {
		if err := s.check(16); err != nil {
			return err
		}
		if p, ok := l.Postings(n.field, w); ok {
			if err := s.addBits(set, &p); err != nil {
				return err
			}
		}
	}
	return nil
}
