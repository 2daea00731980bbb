package passage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Term is a token of a Clause.
type Term struct {
	Text   string
	Boost  float32 // its score counts so many times
	Offset uint32  // its place in a phrase, from that of the first token
}

// Clause is what is looked for in one field: any of some terms, whose scores add up within a passage in their order, or a phrase.
type Clause struct {
	Field int
	K1, B float32 // BM25 parameters of the field
	Terms []Term  // the tokens of a phrase in order, a term once for each time that it stands there; else each term once

	// Phrase wants the tokens at their offsets within one passage; slop s lets every later one stand within ±s of its place. The
	// frequency is the number of places of the first token that the others fit, the score is BM25 of it with the sum of the idfs. Boosts
	// have no meaning.
	Phrase bool
	Slop   uint32
}

// Scorer scores the passages of documents for a clause with given statistics.
type Scorer struct {
	clause  Clause
	floor   uint32
	weights []score.Weight // of the terms; of a phrase one
}

// NewScorer returns the scorer of a clause.
func NewScorer(c Clause, st *Stats) *Scorer {
	s := &Scorer{clause: c, floor: st.Floor()}
	avg := st.AvgLen()
	var sum float32
	for _, t := range c.Terms {
		idf := score.IDF(max(st.Passages, st.DF[t.Text]), st.DF[t.Text])
		sum += idf
		if !c.Phrase {
			s.weights = append(s.weights, score.NewWeight(idf, avg, c.K1, c.B))
		}
	}
	if c.Phrase {
		s.weights = append(s.weights, score.NewWeight(sum, avg, c.K1, c.B))
	}
	return s
}

// Matches walks the documents of a leaf that match, dead ones too, with the scores of their passages.
type Matches struct {
	s    *Scorer
	f    *fieldOf
	w    *watch
	cs   []*cursor // of the terms, nil where the leaf lacks one; of a phrase each term once, the rarest first
	at   []uint32  // where each stands
	sums []float32 // by ordinal
	seen []bool    // by ordinal: it has a row
	rows []score.Passage
	cur  uint32
	on   bool
	err  error

	// Of the tokens of a phrase:
	which []int      // place in cs
	lists [][]uint32 // places in the document
	next  []int      // the first of those that a later start can need

	useless float32 // documents that cannot have a passage that scores as much are passed over
	prunes  bool
}

// On returns the matches on a leaf, nil if there cannot be any.
func (s *Scorer) On(ctx context.Context, l exec.Leaf) *Matches {
	m := &Matches{s: s, f: newField(l, s.clause.Field), w: &watch{ctx: ctx}}
	if s.clause.Phrase {
		if !m.tokens() {
			return nil
		}
	} else {
		some := false
		for _, t := range s.clause.Terms {
			c, ok := m.f.list(t.Text)
			some = some || ok
			m.cs = append(m.cs, c)
		}
		if !some {
			return nil
		}
	}
	m.at = make([]uint32, len(m.cs))
	for i, c := range m.cs {
		if c == nil {
			m.at[i] = noDoc
		}
	}
	return m
}

// tokens makes the cursors of a phrase; false says that the leaf lacks a token.
func (m *Matches) tokens() bool {
	terms := m.s.clause.Terms
	of := make(map[string]*cursor, len(terms))
	for _, t := range terms {
		if of[t.Text] != nil {
			continue
		}
		c, ok := m.f.list(t.Text)
		if !ok {
			return false
		}
		of[t.Text] = c
		m.cs = append(m.cs, c)
	}
	slices.SortStableFunc(m.cs, func(a, b *cursor) int { return cmp.Compare(a.p.DocFreq(), b.p.DocFreq()) })
	for _, t := range terms {
		m.which = append(m.which, slices.Index(m.cs, of[t.Text]))
	}
	m.lists, m.next = make([][]uint32, len(terms)), make([]int, len(terms))
	return true
}

// Err is why Seek ended early; nil if it did not.
func (m *Matches) Err() error { return cmp.Or(m.err, m.f.leaf.Err()) }

// Seek returns the first matching document at or after target; ok is false if there is none. Targets never go down.
func (m *Matches) Seek(target uint32) (doc uint32, ok bool) {
	if m.on && target <= m.cur {
		return m.cur, m.cur != noDoc
	}
	for {
		if m.err = m.w.did(4); m.err != nil {
			m.cur = noDoc
		} else {
			m.cur = m.meet(target)
		}
		m.on = true
		if m.cur == noDoc {
			return noDoc, false
		}
		if m.prunes && m.bound() < m.useless {
			target = m.cur + 1
			continue
		}
		if m.err = m.score(); m.err != nil { // what was scored until then is not the whole
			m.cur = noDoc
			return noDoc, false
		}
		if len(m.rows) > 0 {
			return m.cur, true
		}
		target = m.cur + 1
	}
}

// boundSlack is above what rounding can put a score over its bound.
const boundSlack = 1 + 1e-5

// bound is at least what any passage of the document scores: none holds a word more often than the document does, nor counts as shorter
// than the floor.
func (m *Matches) bound() float32 {
	var sum float32
	if m.s.clause.Phrase {
		least := m.cs[m.which[0]].freq() // starts are places of the first token
		if m.s.clause.Slop == 0 {        // and each has a place of its own of every other one
			for _, c := range m.cs {
				least = min(least, c.freq())
			}
		}
		return float32(boundSlack * m.s.weights[0].Score(least, uint16(m.s.floor)))
	}
	for i, c := range m.cs {
		if m.at[i] != m.cur {
			continue
		}
		if boost := m.s.clause.Terms[i].Boost; boost > 0 {
			sum += float32(boost * m.s.weights[i].Score(c.freq(), uint16(m.s.floor)))
		}
	}
	return float32(boundSlack * sum)
}

// meet returns the first document at or after target that may match: it has one of the terms, or all tokens of a phrase.
func (m *Matches) meet(target uint32) uint32 {
	if !m.s.clause.Phrase {
		best := uint32(noDoc)
		for i, c := range m.cs {
			if c != nil && (!m.on || m.at[i] < target) {
				m.at[i] = c.seek(target)
			}
			best = min(best, m.at[i])
		}
		return best
	}
again:
	for i, c := range m.cs {
		if !m.on || m.at[i] < target {
			m.at[i] = c.seek(target)
		}
		if m.at[i] == noDoc {
			return noDoc
		}
		if m.at[i] > target {
			if target = m.at[i]; i > 0 {
				m.on = true
				goto again
			}
		}
	}
	return target
}

// score makes the rows of the document that the terms stand on. After an error they are of no use.
func (m *Matches) score() error {
	m.rows = m.rows[:0]
	m.f.at(m.cur)
	if m.s.clause.Phrase {
		return m.phrase()
	}
	if cap(m.sums) < len(m.f.vals) {
		m.sums, m.seen = make([]float32, len(m.f.vals)), make([]bool, len(m.f.vals))
	}
	m.sums, m.seen = m.sums[:len(m.f.vals)], m.seen[:len(m.f.vals)]
	clear(m.sums)
	clear(m.seen)
	for i, c := range m.cs {
		if m.at[i] != m.cur {
			continue
		}
		t := &m.s.clause.Terms[i]
		m.f.occurrences(c, func(ordinal int, tf uint32) {
			sc := m.s.weights[i].Score(tf, m.length(ordinal))
			if t.Boost != 1 {
				sc = float32(t.Boost * sc)
			}
			if !m.seen[ordinal] {
				m.seen[ordinal] = true
				m.rows = append(m.rows, score.Passage{Ordinal: uint32(ordinal)})
			}
			m.sums[ordinal] += sc
		})
		if err := m.w.did(len(c.pos)); err != nil {
			return err
		}
	}
	for i := range m.rows {
		m.rows[i].Score = m.sums[m.rows[i].Ordinal]
	}
	slices.SortFunc(m.rows, func(a, b score.Passage) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return nil
}

// length is what a passage of the document counts with.
func (m *Matches) length(ordinal int) uint16 { return uint16(max(m.f.length(ordinal), m.s.floor)) }

// phrase makes the rows of a phrase. Starts ascend, and so do the places that the other tokens may stand at, so each list is walked once.
// One document can be as much work as many: it looks at the context by the places that it compares.
func (m *Matches) phrase() (err error) {
	for _, c := range m.cs {
		c.positions()
		if err := m.w.did(len(c.pos)); err != nil {
			return err
		}
	}
	terms, slop := m.s.clause.Terms, m.s.clause.Slop
	for j, k := range m.which {
		m.lists[j], m.next[j] = m.cs[k].pos, 0
	}
	compared := 0 // since the last look
	m.f.places(m.lists[0], func(ordinal int, base, end uint32, starts []uint32) bool {
		var n uint32
		over := false // a token has no places any more
	starts:
		for _, start := range starts {
			for j := 1; j < len(terms); j++ {
				list, i := m.lists[j], m.next[j]
				want := start + terms[j].Offset
				least := max(want-min(slop, want), base)
				for i < len(list) && list[i] < least {
					i++
				}
				if compared += 1 + i - m.next[j]; compared >= checkEvery {
					if err = m.w.did(compared); err != nil {
						return false
					}
					compared = 0
				}
				m.next[j] = i
				if i == len(list) {
					over = true
					break starts
				}
				if at := list[i]; at >= end || at > want && at-want > slop {
					continue starts
				}
			}
			n++
		}
		if n > 0 {
			m.rows = append(m.rows, score.Passage{Ordinal: uint32(ordinal), Score: m.s.weights[0].Score(n, m.length(ordinal))})
		}
		return !over
	})
	if err != nil {
		return err
	}
	return m.w.did(compared)
}

// Rows are the passages of the document that match, by ordinal. They hold until the next Seek.
func (m *Matches) Rows() []score.Passage { return m.rows }

// Best is the score of the best passage.
func (m *Matches) Best() float32 {
	best := m.rows[0].Score
	for _, r := range m.rows[1:] {
		best = max(best, r.Score)
	}
	return best
}

// Hit is a document with its passages, best first; equal ones stand by ordinal.
type Hit struct {
	Leaf  int
	Doc   uint32
	Score float32
	Rows  []score.Passage
}

// Top returns the k documents whose best passage scores highest; equals stand by leaf and document. Of each it has those passages that
// are among the best 2k of all, or no further behind than the best one of the k-th document, in this order of passages. accept has the
// documents of each leaf that may be found, nil: the live ones. Where the context ends meanwhile, what was found until then comes with
// its error.
//
// hold is told how many passages more are kept, before they are, and with a negative number how many fewer; its error ends the search and
// comes back as it is. nil: nobody asks.
func (s *Scorer) Top(ctx context.Context, leaves []exec.Leaf, accept []bitset.Set, k int, hold func(passages int) error) ([]Hit, error) {
	if k <= 0 {
		return nil, nil
	}
	b := keeper{k: k, hold: hold}
	var cells []cell
	var worst float32 // of the best 2k passages, once they are known
	known, next := false, 2*k
	var ended error
	for li, l := range leaves {
		if ctx.Err() != nil {
			ended = endOf(ctx)
			break
		}
		m := s.On(ctx, l)
		if m == nil {
			continue
		}
		bound := func() {
			// The best 2k passages can be those of fewer than k documents.
			if m.prunes = known && b.cut != nil; m.prunes {
				m.useless = min(worst, b.cut.Score)
				b.least, b.drops = m.useless, true
			}
		}
		bound()
		ok := l.Live()
		if accept != nil {
			ok = accept[li]
		}
		for doc, more := m.Seek(0); more; doc, more = m.Seek(doc + 1) {
			if ok != nil && !ok.Has(doc) {
				continue
			}
			for _, r := range m.Rows() {
				cells = append(cells, cell{r.Score, li, doc, r.Ordinal})
			}
			if len(cells) >= next {
				// Of documents that are found, only passages that score as much as the worst of these are counted before one that is kept.
				cells = bestCells(cells, 2*k)
				worst, known, next = cells[len(cells)-1].score, true, 3*k+16
			}
			bound()
			if err := b.add(Hit{Leaf: li, Doc: doc, Score: m.Best()}, m.Rows()); err != nil {
				return nil, err
			}
		}
		if err := m.Err(); err != nil {
			if ended = err; ctx.Err() == nil {
				return nil, err
			}
			break
		}
	}
	return cutHits(b.best, cells, k), ended
}

// keeper keeps the best documents of those that it is given, and some more.
type keeper struct {
	k    int
	hold func(passages int) error
	best []Hit
	cut  *Hit // the worst of the k best of those before

	drops bool // passages that score less than least cannot be among those of the answer
	least float32
}

func (b *keeper) useless(r score.Passage) bool { return b.drops && r.Score < b.least }

// tell tells how many passages more are kept.
func (b *keeper) tell(n int) error {
	if b.hold == nil || n == 0 {
		return nil
	}
	return b.hold(n)
}

// add takes a document, and of its rows a copy.
func (b *keeper) add(h Hit, rows []score.Passage) error {
	if b.cut != nil && compareHits(h, *b.cut) > 0 {
		return nil
	}
	n := len(rows)
	for _, r := range rows {
		if b.useless(r) {
			n--
		}
	}
	if err := b.tell(n); err != nil {
		return err
	}
	h.Rows = make([]score.Passage, 0, n)
	for _, r := range rows {
		if !b.useless(r) {
			h.Rows = append(h.Rows, r)
		}
	}
	if b.best = append(b.best, h); len(b.best) < 2*b.k+16 {
		return nil
	}
	slices.SortFunc(b.best, compareHits)
	gone := 0
	for i := range b.best[b.k:] {
		gone += len(b.best[b.k+i].Rows)
	}
	clear(b.best[b.k:])
	b.best = b.best[:b.k]
	last := b.best[b.k-1]
	last.Rows = nil
	b.cut = &last
	return b.tell(-gone)
}

// endOf is the error of a context that ended, with its cause.
func endOf(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("search passages: %w: %w", err, cause)
	}
	return fmt.Errorf("search passages: %w", err)
}

// Best is Top over documents whose passages have been given other scores.
func Best(hits []Hit, k int) []Hit {
	var cells []cell
	for _, h := range hits {
		for _, r := range h.Rows {
			cells = append(cells, cell{r.Score, h.Leaf, h.Doc, r.Ordinal})
		}
	}
	return cutHits(hits, cells, k)
}

// cutHits returns the best k documents with the passages that Top gives them. cells has at least the best 2k passages.
func cutHits(best []Hit, cells []cell, k int) []Hit {
	slices.SortFunc(best, compareHits)
	best = best[:min(k, len(best))]
	var last cell // the last passage that is kept
	bounded := len(best) == k
	if bounded {
		h := &best[k-1]
		last = cell{h.Score, h.Leaf, h.Doc, h.Rows[0].Ordinal}
		for _, r := range h.Rows {
			if r.Score == h.Score {
				last.ordinal = r.Ordinal
				break
			}
		}
		if cells = bestCells(cells, 2*k); len(cells) < 2*k {
			bounded = false
		} else if c := cells[2*k-1]; c.compare(last) > 0 {
			last = c
		}
	}
	for i := range best {
		h := &best[i]
		slices.SortStableFunc(h.Rows, func(a, b score.Passage) int { return cmp.Compare(b.Score, a.Score) })
		if bounded {
			h.Rows = slices.DeleteFunc(h.Rows, func(r score.Passage) bool {
				return cell{r.Score, h.Leaf, h.Doc, r.Ordinal}.compare(last) > 0
			})
		}
	}
	return best
}

func compareHits(a, b Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Leaf, b.Leaf), cmp.Compare(a.Doc, b.Doc))
}

// cell is a passage with its score.
type cell struct {
	score   float32
	leaf    int
	doc     uint32
	ordinal uint32
}

func (a cell) compare(b cell) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc), cmp.Compare(a.ordinal, b.ordinal))
}

func bestCells(cells []cell, n int) []cell {
	slices.SortFunc(cells, cell.compare)
	return cells[:min(n, len(cells))]
}
