package exec

import (
	"math"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
)

// noDoc is the document number after the last.
const noDoc = math.MaxUint32

// cursor walks the postings of one term, a decoded block at a time, and scores them. Its bounds are those of real arithmetic:
// callers compare them with slack (see searcher.slack), since rounding may put a score a few units above.
type cursor struct {
	cur  uint32 // current document, noDoc at the end
	last uint32 // last document of the decoded block
	i, n int    // place in the decoded block, postings in it
	blk  int    // the decoded block, −1 before the first
	nblk int

	hasFreqs bool
	boosted  bool
	shallow  int // block that bound and end are of, −1 when none
	bound    float32
	end      uint32

	node *node
	df   int
	max  float32 // bound over the whole list

	lens        []uint16
	boost       float32
	weight      score.Weight
	docs, freqs [segment.BlockSize]uint32
	post        segment.Postings
	imps        [8]segment.Impact
	scored      uint32 // document that sc is the score of
	sc          float32
}

func (c *cursor) reset(p segment.Postings, lens []uint16, fp *fieldParams, idf float32, n *node) {
	c.post = p
	c.cur, c.last, c.i, c.n, c.blk = 0, 0, 0, 0, -1
	c.nblk = p.Blocks()
	c.df = p.DocFreq()
	c.hasFreqs = false
	c.shallow = -1
	c.lens = lens
	c.weight = score.NewWeight(idf, fp.avg, fp.k1, fp.b)
	c.node = n
	c.boosted = false
	c.boost = 1
	if n != nil {
		if n.boosted {
			c.boosted, c.boost = true, n.boost
		}
		if n.rep != 1 && n.rep != 0 {
			c.boosted = true
			c.boost = float32(c.boost * n.rep)
		}
	}
	c.max = -1
	c.scored = noDoc
}

// load decodes a block and stands on its first posting.
func (c *cursor) load(b int) bool {
	if b >= c.nblk {
		c.cur, c.last, c.n, c.i = noDoc, noDoc, 0, 0
		c.blk = c.nblk
		return false
	}
	c.n = c.post.Docs(b, &c.docs)
	c.blk, c.i, c.hasFreqs = b, 0, false
	if c.n == 0 { // damage: the leaf's Err tells
		c.cur, c.last = noDoc, noDoc
		c.blk = c.nblk
		return false
	}
	c.cur = c.docs[0]
	c.last = c.docs[c.n-1]
	return true
}

// next moves to the next posting.
func (c *cursor) next() uint32 {
	if i := c.i + 1; i < c.n {
		c.i = i
		c.cur = c.docs[i&(segment.BlockSize-1)]
		return c.cur
	}
	c.load(c.blk + 1)
	return c.cur
}

// seek moves to the first posting at or after target.
func (c *cursor) seek(target uint32) uint32 {
	if c.blk < 0 || target > c.last {
		if c.blk >= c.nblk {
			return c.cur
		}
		b := c.blk + 1
		if b < c.nblk && c.post.LastDoc(b) < target {
			b = c.post.SeekBlock(b, target)
		}
		if !c.load(b) {
			return noDoc
		}
	}
	if c.cur >= target {
		return c.cur
	}
	c.i = lowerBound(&c.docs, c.i, target)
	c.cur = c.docs[c.i&(segment.BlockSize-1)]
	return c.cur
}

// lowerBound returns the first place from i on whose document is not below target; there is one.
func lowerBound(d *[segment.BlockSize]uint32, i int, target uint32) int {
	const m = segment.BlockSize - 1
	// most moves are short
	for k := 0; k < 4; k++ {
		if d[i&m] >= target {
			return i
		}
		i++
	}
	lo, hi := i, segment.BlockSize
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if d[mid&m] < target {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (c *cursor) freq() uint32 {
	if !c.hasFreqs {
		c.post.Freqs(c.blk, &c.freqs)
		c.hasFreqs = true
	}
	return c.freqs[c.i&(segment.BlockSize-1)]
}

func (c *cursor) scoreOf(tf uint32, doc uint32) float32 {
	s := c.weight.Score(tf, c.lens[doc])
	if c.boosted {
		s = float32(c.boost * s)
	}
	return s
}

// score is the term's score for the current document.
func (c *cursor) score() float32 {
	if c.scored == c.cur {
		return c.sc
	}
	c.sc = c.scoreOf(c.freq(), c.cur)
	c.scored = c.cur
	return c.sc
}

func (c *cursor) impactsBound(b int) float32 {
	var m float32
	for _, im := range c.post.Impacts(b, c.imps[:0]) {
		var s float32
		if im.Freq > 1<<24 { // saturated: the limit for a frequency without bound
			s = c.weight.Limit()
		} else {
			s = c.weight.Score(im.Freq, im.Len)
		}
		m = max(m, s)
	}
	if c.boosted {
		m = float32(c.boost * m)
	}
	return m
}

// listBound is the bound over the whole list.
func (c *cursor) listBound() float32 {
	if c.max < 0 {
		c.max = c.impactsBound(-1)
	}
	return c.max
}

// at stands the shallow place on the block that holds target: bound and end then tell the best score and the last document of
// that block. Nothing is decoded. At the end of the list the bound is 0 and the end noDoc.
func (c *cursor) at(target uint32) {
	if c.shallow >= 0 && (target <= c.end) {
		return
	}
	from := c.shallow + 1
	if c.blk > from {
		from = c.blk
	}
	b := from
	if b < c.nblk && c.post.LastDoc(b) < target {
		b = c.post.SeekBlock(b, target)
	}
	c.setShallow(b)
}

func (c *cursor) setShallow(b int) {
	if b >= c.nblk {
		c.shallow, c.bound, c.end = c.nblk, 0, noDoc
		return
	}
	c.shallow = b
	c.end = c.post.LastDoc(b)
	c.bound = c.impactsBound(b)
}

// boundTo is the best score in (lo..hi), where lo is at or after the shallow place and the shallow block holds lo. It looks at a few
// blocks and falls back to the whole list's bound.
func (c *cursor) boundTo(hi uint32) float32 {
	m := c.bound
	if c.end >= hi {
		return m
	}
	for b, k := c.shallow+1, 0; b < c.nblk; b, k = b+1, k+1 {
		if k == 3 {
			return c.listBound()
		}
		m = max(m, c.impactsBound(b))
		if c.post.LastDoc(b) >= hi {
			break
		}
	}
	return m
}
