package exec

import (
	"slices"
)

// phraseIter finds documents where the tokens of a phrase stand at their distances. The frequency is the number of places of the
// first token from which every later one stands within ±slop of its own; the score is BM25 of that frequency with the sum of
// the terms' idfs (docs/query.md, Scores).
type phraseIter struct {
	s     *searcher
	cs    []*cursor // distinct terms, rarest first
	which []int     // token of the phrase → place in cs
	offs  []uint32
	slop  uint32
	pos   [][]uint32
	at    []int
	lead  *cursor // scores: holds the summed idf
	freq  uint32
	cur   uint32
	on    bool
	floor float32 // a score below it is of no use; 0 when all matches are wanted
	exact bool    // the frequency is wanted, not only whether there is one
}

func (s *searcher) phraseIter(l Leaf, li int, n *node) (iterator, error) {
	p := &phraseIter{s: s, slop: n.slop, offs: n.offs, exact: s.top.k > 0 || s.exact}
	var idf float32
	for _, ti := range n.list {
		idf += s.terms[ti].idf
	}
	seen := map[int]*cursor{}
	for _, ti := range n.list {
		t := &s.terms[ti]
		if !t.posts[li].ok {
			return nil, nil
		}
		if seen[ti] == nil {
			c := s.newCursor(l, li, nil, t, idf)
			if !c.post.HasPositions() {
				return nil, nil
			}
			seen[ti] = c
			p.cs = append(p.cs, c)
		}
	}
	slices.SortFunc(p.cs, func(a, b *cursor) int { return a.df - b.df })
	for _, ti := range n.list {
		p.which = append(p.which, slices.Index(p.cs, seen[ti]))
	}
	p.pos = make([][]uint32, len(p.cs))
	p.at = make([]int, len(n.list))
	p.lead = p.cs[0]
	return p, nil
}

func (p *phraseIter) seek(target uint32) uint32 {
	if p.on && target <= p.cur {
		return p.cur
	}
	p.on = true
	lead := p.lead
	doc := lead.seek(target)
next:
	for doc != noDoc {
		if err := p.s.check(8); err != nil {
			p.s.failed = err
			doc = noDoc
			break
		}
		if p.floor > 0 && p.slop == 0 { // an exact phrase is no more frequent than any of its terms
			lead.at(doc)
			if p.s.below(lead.bound) {
				if lead.end == noDoc {
					doc = noDoc
					break
				}
				doc = lead.seek(lead.end + 1)
				continue
			}
			if p.s.below(lead.score()) {
				doc = lead.next()
				continue
			}
		}
		for _, c := range p.cs[1:] {
			if d := c.seek(doc); d != doc {
				doc = lead.seek(d)
				continue next
			}
		}
		if p.floor > 0 {
			least := p.cs[p.which[0]].freq() // starts are places of the first token
			if p.slop == 0 {
				for _, c := range p.cs {
					least = min(least, c.freq())
				}
			}
			if p.s.below(lead.weight.Score(least, lead.lens[doc])) {
				doc = lead.next()
				continue
			}
		}
		if p.freq = p.match(); p.freq > 0 {
			break
		}
		if p.s.failed != nil {
			doc = noDoc
			break
		}
		doc = lead.next()
	}
	p.cur = doc
	return doc
}

func (p *phraseIter) score() float32 {
	return p.lead.weight.Score(p.freq, p.lead.lens[p.cur])
}

func (p *phraseIter) cost() int { return p.lead.df }

// placesPerPosting is how many places of a phrase's tokens are compared in the time that a posting takes.
const placesPerPosting = 8

// match counts the starts of the phrase in the current document. One long document is as much work as many short ones, so it looks at
// the context by the places that it compares: when that has ended it sets failed and finds nothing.
func (p *phraseIter) match() uint32 {
	places := 0 // since the last look
	for i, c := range p.cs {
		c.freq()
		p.pos[i] = c.post.Positions(c.blk, c.i, &c.freqs, p.pos[i][:0])
		places += len(p.pos[i])
	}
	if p.look(&places) {
		return 0
	}
	if len(p.which) == 2 && p.slop == 0 && p.which[0] != p.which[1] {
		return p.pair(p.pos[p.which[0]], p.pos[p.which[1]], p.offs[1])
	}
	clear(p.at)
	var n uint32
starts:
	for _, start := range p.pos[p.which[0]] {
		for j := 1; j < len(p.which); j++ {
			list := p.pos[p.which[j]]
			want := start + p.offs[j]
			lo := want - min(p.slop, want)
			i := p.at[j]
			for i < len(list) && list[i] < lo {
				i++
			}
			if places += 1 + i - p.at[j]; places >= checkEvery && p.look(&places) {
				return 0
			}
			p.at[j] = i
			if i == len(list) {
				break starts
			}
			if list[i] > want && list[i]-want > p.slop {
				continue starts
			}
		}
		if n++; !p.exact {
			break
		}
	}
	if p.look(&places) {
		return 0
	}
	return n
}

// look counts the places that were compared as work, and tells whether the search has to end.
func (p *phraseIter) look(places *int) bool {
	err := p.s.check(*places / placesPerPosting)
	*places %= placesPerPosting
	if err != nil {
		p.s.failed = err
	}
	return err != nil
}

func (p *phraseIter) pair(a, b []uint32, off uint32) uint32 {
	var n uint32
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch want := a[i] + off; {
		case b[j] < want:
			j++
		case b[j] > want:
			i++
		default:
			n++
			if !p.exact {
				return n
			}
			i++
			j++
		}
	}
	return n
}
