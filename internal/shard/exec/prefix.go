package exec

import (
	"fmt"
	"math/bits"

	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// prefixIter adds the lists of a prefix up term by term, in byte order, so that every document's score is summed in that order
// without holding a cursor for each of what may be thousands of terms. What it keeps is a bit for each document of the leaf and
// four bytes for each that matches.
func (s *searcher) prefixIter(l Leaf, li int, n *node) (iterator, error) {
	if s.setsOf != l {
		s.setsOf, s.prefixBytes = l, 0
		clear(s.leafSets)
	}
	key := termKey{n.field, n.text}
	if had, ok := s.leafSets[key]; ok { // the prefix stands in the query several times
		if had == nil {
			return nil, nil
		}
		again := *had
		again.cur = 0
		return &again, nil
	}
	set, err := s.scoredPrefix(l, li, n)
	if err != nil {
		return nil, err
	}
	if len(s.prefixes) > 1 {
		if s.leafSets == nil {
			s.leafSets = make(map[termKey]*scoredSet, len(s.prefixes))
		}
		s.leafSets[key] = set
	}
	if set == nil {
		return nil, nil
	}
	return set, nil
}

// scoredPrefix makes the set of a prefix; nil when no document matches.
func (s *searcher) scoredPrefix(l Leaf, li int, n *node) (*scoredSet, error) {
	num := int(l.NumDocs())
	if cap(s.sums) < num {
		s.sums = make([]float32, num)
	}
	set := &scoredSet{docs: bitset.New(num)}
	if err := s.addPrefix(l, li, n, set.docs, s.sums[:num]); err != nil {
		s.sums = nil // half added up
		return nil, err
	}
	if set.n = set.docs.Count(); set.n == 0 {
		return nil, nil
	}
	if s.prefixBytes += 4*set.n + 8*len(set.docs); s.prefixBytes > MaxPrefixBytes {
		s.sums = nil
		return nil, &QueryError{
			Code: "prefix_too_broad", Field: s.schema.Fields[n.field].Name, Limit: MaxPrefixBytes,
			Reason: fmt.Sprintf("the prefixes of the query match so many documents that their scores take more than %d MiB; write more of the words, or filter by them", MaxPrefixBytes>>20),
		}
	}
	set.sc, set.rank = make([]float32, 0, set.n), make([]uint32, (len(set.docs)+rankWords-1)/rankWords)
	for w, x := range set.docs {
		if w%rankWords == 0 {
			set.rank[w/rankWords] = uint32(len(set.sc))
		}
		for ; x != 0; x &= x - 1 {
			d := w<<6 + bits.TrailingZeros64(x)
			set.sc = append(set.sc, s.sums[d])
			s.sums[d] = 0
		}
	}
	return set, nil
}

// addPrefix adds the documents of a prefix to docs and their scores to sums.
func (s *searcher) addPrefix(l Leaf, li int, n *node, docs bitset.Set, sums []float32) error {
	lens := l.Lengths(n.field)
	for _, ti := range n.list {
		t := &s.terms[ti]
		if !t.posts[li].ok {
			continue
		}
		c := s.newCursor(l, li, nil, t, t.idf)
		for b := 0; b < c.nblk; b++ {
			if err := s.check(segment.BlockSize); err != nil {
				return err
			}
			k := c.post.DocsFreqs(b, &s.docsScr, &s.freqsScr)
			for i := 0; i < k; i++ {
				d := s.docsScr[i]
				docs[d>>6] |= 1 << (d & 63)
				sums[d] += c.weight.Score(s.freqsScr[i], lens[d])
			}
		}
		if err := c.post.Err(); err != nil {
			return err
		}
		s.free = append(s.free, c)
		s.used = s.used[:len(s.used)-1]
	}
	return s.addRest(docs, l, n)
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
