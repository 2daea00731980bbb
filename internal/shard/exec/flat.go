package exec

import (
	"slices"

	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// below tells whether nothing with this bound can enter the answer.
func (s *searcher) below(bound float32) bool { return float32(bound*s.slack) < s.top.thr }

// topTerm walks the blocks of one list and decodes those that can hold a document of the answer.
func (s *searcher) topTerm(l Leaf, li int, c *cursor) error {
	live := s.live
	for b := 0; b < c.nblk; b++ {
		if len(s.top.heap) == s.top.k && s.below(c.impactsBound(b)) {
			continue
		}
		if err := s.check(segment.BlockSize); err != nil {
			return err
		}
		if !c.load(b) {
			return nil
		}
		c.post.Freqs(b, &c.freqs)
		thr := s.top.thr
		for i := 0; i < c.n; i++ {
			doc := c.docs[i&(segment.BlockSize-1)]
			sc := c.weight.Score(c.freqs[i&(segment.BlockSize-1)], c.lens[doc])
			if c.boosted {
				sc = float32(c.boost * sc)
			}
			if sc < thr || (live != nil && !live.Has(doc)) {
				continue
			}
			s.top.add(li, doc, sc)
			thr = s.top.thr
		}
	}
	return nil
}

// topAny is MaxScore over windows of blocks: Turtle and Flood, "Query evaluation: strategies and optimizations" (1995), with the
// block bounds of Ding and Suel, "Faster top-k document retrieval using block-max indexes" (SIGIR 2011). In each window the
// lists that together cannot lift a document into the answer are looked up only for documents that the others propose.
func (s *searcher) topAny(l Leaf, li int, sh *shape) error {
	live := s.live
	cs := append(s.order[:0], s.opt...)
	defer func() { s.order = cs[:0] }()
	var ub [64]float32  // bounds in the window by place in cs; more lists than that have no window bounds
	var pre [65]float32 // pre[i] sums the first i of them
	simple := sh.root.kind == kindBool && depthOne(sh.root)
	for lo := uint32(0); ; {
		if err := s.check(64); err != nil {
			return err
		}
		// window: up to the first end of a block among the lists that matter by their whole bounds
		full := len(s.top.heap) == s.top.k
		hi := uint32(noDoc)
		alive := false
		var rest float32
		if full && len(cs) <= len(ub) {
			slices.SortFunc(cs, func(a, b *cursor) int {
				switch x, y := a.listBound(), b.listBound(); {
				case x < y:
					return -1
				case x > y:
					return 1
				}
				return 0
			})
			first := 0
			for first < len(cs) && s.below(rest+cs[first].listBound()) {
				rest += cs[first].listBound()
				first++
			}
			if first == len(cs) {
				return nil
			}
			for _, c := range cs[first:] {
				c.at(lo)
				hi = min(hi, c.end)
				alive = alive || c.shallow < c.nblk
			}
			if !alive {
				return nil
			}
			var total float32
			for i, c := range cs {
				if i < first {
					c.at(lo)
				}
				ub[i] = c.boundTo(hi)
				total += ub[i]
			}
			if s.below(total) {
				if hi == noDoc {
					return nil
				}
				lo = hi + 1
				continue
			}
			// order by the bounds of the window
			for i := 1; i < len(cs); i++ {
				for j := i; j > 0 && ub[j] < ub[j-1]; j-- {
					ub[j], ub[j-1] = ub[j-1], ub[j]
					cs[j], cs[j-1] = cs[j-1], cs[j]
				}
			}
		} else {
			for _, c := range cs {
				c.seek(lo)
				if c.cur != noDoc {
					hi = min(hi, c.last)
					alive = true
				}
			}
			if !alive {
				return nil
			}
		}
		ess, nonEss := cs, float32(0)
		if full && len(cs) <= len(ub) {
			i := 0
			for i < len(cs)-1 && s.below(pre[i]+ub[i]) {
				pre[i+1] = pre[i] + ub[i]
				i++
			}
			ess, nonEss = cs[i:], pre[i]
		}
		non := cs[:len(cs)-len(ess)]
		for _, c := range ess {
			c.seek(lo)
		}
		for {
			// the next document that an essential list proposes
			doc := uint32(noDoc)
			if len(ess) == 1 {
				doc = ess[0].cur
			} else {
				for _, c := range ess {
					doc = min(doc, c.cur)
				}
			}
			if doc > hi || doc == noDoc {
				break
			}
			if err := s.check(1); err != nil {
				return err
			}
			var sum float32
			for _, c := range ess {
				if c.cur == doc {
					sum += c.score()
				}
			}
			if !s.below(sum+nonEss) && (live == nil || live.Has(doc)) && !s.prohibited(doc) {
				ok := true
				for i := len(non) - 1; i >= 0; i-- {
					c := non[i]
					if c.seek(doc) == doc {
						sum += c.score()
					}
					if s.below(sum + pre[i]) {
						ok = false
						break
					}
				}
				if ok {
					if !simple {
						sum, _ = s.eval(sh.root, doc)
					} else {
						sum = 0
						for _, n := range sh.opt {
							if c := s.slotCur[n.slot]; c != nil && c.cur == doc {
								sum += c.score()
							}
						}
					}
					if sum >= s.top.thr {
						s.top.add(li, doc, sum)
					}
				}
			}
			for _, c := range ess {
				if c.cur == doc {
					c.next()
				}
			}
		}
		if hi == noDoc {
			return nil
		}
		lo = hi + 1
	}
}

func depthOne(n *node) bool {
	for _, k := range n.should {
		if k.kind != kindTerm {
			return false
		}
	}
	return true
}

func (s *searcher) prohibited(doc uint32) bool {
	for _, c := range s.not {
		if c.seek(doc) == doc {
			return true
		}
	}
	return false
}

// topAll leapfrogs over the required lists, the rarest leading, and skips windows and documents whose bound is too low.
// An optional list without which nothing can enter any more becomes required. With counting it visits every match to count it,
// and uses the bounds only to leave scores uncomputed.
func (s *searcher) topAll(l Leaf, li int, sh *shape, counting bool) (n uint64, err error) {
	live := s.live
	cs := append(s.order[:0], s.req_...)
	defer func() { s.order = cs[:0] }()
	rarest := func() {
		slices.SortFunc(cs, func(a, b *cursor) int { return a.df - b.df })
	}
	rarest()
	opt := s.opt
	doc := cs[0].seek(0)
	hi := uint32(0) // last document of the window
	fresh := false  // a window is known
	idle := false   // nothing in the window can enter
	var others float32
	for doc != noDoc {
		if err := s.check(4); err != nil {
			return n, err
		}
		lead := cs[0]
		bounded := false // the window's bounds hold for the document
		if len(s.top.heap) == s.top.k {
			if !fresh || doc > hi {
				if len(opt) > 0 && !counting {
					if kept := s.promote(&cs, opt); len(kept) < len(opt) {
						opt = kept
						rarest()
						doc = cs[0].seek(doc)
						fresh = false
						continue
					}
				}
				lead.at(doc)
				hi, fresh = lead.end, true
				others = 0
				for _, c := range cs[1:] {
					c.at(doc)
					others += c.boundTo(hi)
				}
				for _, c := range opt {
					c.at(doc)
					others += c.boundTo(hi)
				}
				idle = s.below(lead.bound + others)
				if idle && !counting {
					if hi == noDoc {
						return n, nil
					}
					doc = lead.seek(hi + 1)
					continue
				}
			}
			if !counting && s.below(lead.score()+others) {
				doc = lead.next()
				continue
			}
			bounded = true
		}
		next := doc
		for _, c := range cs[1:] {
			if next = c.seek(doc); next != doc {
				break
			}
		}
		if next != doc {
			doc = lead.seek(next)
			continue
		}
		if (live == nil || live.Has(doc)) && !s.prohibited(doc) {
			n++
			if !bounded || (!idle && !s.below(lead.score()+others)) {
				for _, c := range opt {
					c.seek(doc)
				}
				sum, _ := s.eval(sh.root, doc)
				if sum >= s.top.thr {
					s.top.add(li, doc, sum)
				}
			}
		}
		doc = lead.next()
	}
	return n, nil
}

// promote moves optional lists into the required ones when all the rest cannot reach the answer without them.
func (s *searcher) promote(cs *[]*cursor, opt []*cursor) []*cursor {
	var all float32
	for _, c := range *cs {
		all += c.listBound()
	}
	for _, c := range opt {
		all += c.listBound()
	}
	kept := opt[:0:0]
	for _, c := range opt {
		if rest := all - c.listBound() + all*0x1p-18; s.below(rest) {
			*cs = append(*cs, c)
		} else {
			kept = append(kept, c)
		}
	}
	return kept
}

// countFlat counts the live matches of a flat query, whole unless it reached limit before the end.
func (s *searcher) countFlat(l Leaf, li int, sh *shape, limit uint64) (n uint64, whole bool, err error) {
	live := s.live
	s.req_, s.not = s.req_[:0], s.not[:0]
	for _, list := range [][]*node{sh.req, sh.fil} {
		for _, nd := range list {
			if !s.terms[nd.term].posts[li].ok {
				return 0, true, nil
			}
			if len(sh.req)+len(sh.fil) > 1 || len(sh.not) > 0 {
				s.req_ = append(s.req_, s.termCursor(l, li, nd))
			}
		}
	}
	for _, nd := range sh.not {
		if c := s.termCursor(l, li, nd); c != nil {
			s.not = append(s.not, c)
		}
	}
	if len(sh.req)+len(sh.fil) == 0 {
		return s.countAny(l, li, sh)
	}
	if len(sh.req)+len(sh.fil) == 1 && len(s.not) == 0 {
		n, err = s.countList(l, li, append(sh.req, sh.fil...)[0].term)
		return n, true, err
	}
	cs := append(s.order[:0], s.req_...)
	defer func() { s.order = cs[:0] }()
	slices.SortFunc(cs, func(a, b *cursor) int { return a.df - b.df })
	lead := cs[0]
	for doc := lead.seek(0); doc != noDoc; {
		if err := s.check(4); err != nil {
			return n, false, err
		}
		next := doc
		for _, c := range cs[1:] {
			if next = c.seek(doc); next != doc {
				break
			}
		}
		if next != doc {
			doc = lead.seek(next)
			continue
		}
		if (live == nil || live.Has(doc)) && !s.prohibited(doc) {
			if n++; n >= limit {
				return n, false, nil
			}
		}
		doc = lead.next()
	}
	return n, true, nil
}

// countAny counts the union of lists. The longest list is not read where the others are few: |A ∪ B| = |A| + |B| − |A ∩ B|.
func (s *searcher) countAny(l Leaf, li int, sh *shape) (uint64, bool, error) {
	var longest *node
	var total, most int
	for _, nd := range sh.opt {
		t := &s.terms[nd.term]
		if !t.posts[li].ok {
			continue
		}
		df := t.posts[li].p.DocFreq()
		total += df
		if df > most {
			longest, most = nd, df
		}
	}
	if longest == nil {
		return 0, true, nil
	}
	live := s.live
	var base uint64
	apart := len(s.not) == 0 && (total-most)*8 < most
	if apart {
		n, err := s.countList(l, li, longest.term)
		if err != nil {
			return 0, false, err
		}
		if total == most {
			return n, true, nil
		}
		base = n
	}
	bits := s.emptyBits(int(l.NumDocs()))
	for _, nd := range sh.opt {
		t := &s.terms[nd.term]
		if !t.posts[li].ok || (apart && nd == longest) || (apart && nd.term == longest.term) {
			continue
		}
		if err := s.addBits(bits, &t.posts[li].p); err != nil {
			return 0, false, err
		}
	}
	if live != nil {
		for i := range bits {
			bits[i] &= live[i]
		}
	}
	if apart {
		c := s.termCursor(l, li, longest)
		n := base
		err := forEach(bits, func(doc uint32) error {
			if err := s.check(4); err != nil {
				return err
			}
			if c.seek(doc) != doc {
				n++
			}
			return nil
		})
		return n, true, err
	}
	for _, c := range s.not {
		if err := s.takeBits(bits, &c.post); err != nil {
			return 0, false, err
		}
	}
	return uint64(bits.Count()), true, nil
}

func (s *searcher) emptyBits(n int) bitset.Set {
	w := (n + 63) / 64
	if cap(s.bits) < w {
		s.bits = make(bitset.Set, w)
	}
	s.bits = s.bits[:w]
	clear(s.bits)
	return s.bits
}

func (s *searcher) addBits(bits bitset.Set, p *segment.Postings) error {
	post := *p
	for b, nb := 0, post.Blocks(); b < nb; b++ {
		if err := s.check(segment.BlockSize); err != nil {
			return err
		}
		n := post.Docs(b, &s.docsScr)
		for _, d := range s.docsScr[:n] {
			bits[d>>6] |= 1 << (d & 63)
		}
	}
	return post.Err()
}

func (s *searcher) takeBits(bits bitset.Set, p *segment.Postings) error {
	post := *p
	for b, nb := 0, post.Blocks(); b < nb; b++ {
		if err := s.check(segment.BlockSize); err != nil {
			return err
		}
		n := post.Docs(b, &s.docsScr)
		for _, d := range s.docsScr[:n] {
			bits[d>>6] &^= 1 << (d & 63)
		}
	}
	return post.Err()
}
