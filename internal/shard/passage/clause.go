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
	cs   []*cursor // of the terms; nil where the leaf lacks one
	at   []uint32  // where each stands
	sums []float32 // by ordinal
	seen []bool    // by ordinal: it has a row
	rows []score.Passage
	cur  uint32
	on   bool
	err  error

	useless float32 // documents that cannot have a passage that scores as much are passed over
	prunes  bool
}

// On returns the matches on a leaf, nil if there cannot be any.
func (s *Scorer) On(ctx context.Context, l exec.Leaf) *Matches {
	m := &Matches{s: s, f: newField(l, s.clause.Field), w: &watch{ctx: ctx}}
	some := false
	for _, t := range s.clause.Terms {
		c, ok := m.f.list(t.Text)
		if !ok && s.clause.Phrase {
			return nil
		}
		some = some || ok
		m.cs = append(m.cs, c)
	}
	if !some {
		return nil
	}
	m.at = make([]uint32, len(m.cs))
	for i, c := range m.cs {
		if c == nil {
			m.at[i] = noDoc
		}
	}
	return m
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
		m.score()
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
		least := m.cs[0].freq()
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

// score makes the rows of the document that the terms stand on.
func (m *Matches) score() {
	m.rows = m.rows[:0]
	m.f.at(m.cur)
	if m.s.clause.Phrase {
		m.phrase()
		return
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
		m.err = m.w.did(len(c.pos))
	}
	for i := range m.rows {
		m.rows[i].Score = m.sums[m.rows[i].Ordinal]
	}
	slices.SortFunc(m.rows, func(a, b score.Passage) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
}

// length is what a passage of the document counts with.
func (m *Matches) length(ordinal int) uint16 { return uint16(max(m.f.length(ordinal), m.s.floor)) }

// phrase makes the rows of a phrase.
func (m *Matches) phrase() {
	for _, c := range m.cs {
		c.positions()
		m.err = m.w.did(len(c.pos))
	}
	terms := m.s.clause.Terms
	m.f.places(m.cs[0].pos, func(ordinal int, starts []uint32) {
		var n uint32
		base, end := m.f.bounds(ordinal)
	next:
		for _, start := range starts {
			for j := 1; j < len(terms); j++ {
				if !m.near(m.cs[j].pos, start+terms[j].Offset, base, end) {
					continue next
				}
			}
			n++
		}
		if n > 0 {
			m.rows = append(m.rows, score.Passage{Ordinal: uint32(ordinal), Score: m.s.weights[0].Score(n, m.length(ordinal))})
		}
	})
}

// near tells whether a position within the slop of want, from base to before end, is in the list.
func (m *Matches) near(list []uint32, want, base, end uint32) bool {
	slop := m.s.clause.Slop
	i, _ := slices.BinarySearch(list, max(want-min(slop, want), base))
	return i < len(list) && list[i] < end && (list[i] <= want || list[i]-want <= slop)
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
func (s *Scorer) Top(ctx context.Context, leaves []exec.Leaf, accept []bitset.Set, k int) ([]Hit, error) {
	if k <= 0 {
		return nil, nil
	}
	var best []Hit
	var cut *Hit // the worst of the k best of those before
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
			if m.prunes = known && cut != nil; m.prunes {
				m.useless = min(worst, cut.Score)
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
			h := Hit{Leaf: li, Doc: doc, Score: m.Best()}
			if cut != nil && compareHits(h, *cut) > 0 {
				continue
			}
			h.Rows = slices.Clone(m.Rows())
			if best = append(best, h); len(best) >= 2*k+16 {
				slices.SortFunc(best, compareHits)
				best = best[:k]
				last := best[k-1]
				cut = &last
			}
		}
		if err := m.Err(); err != nil {
			if ended = err; ctx.Err() == nil {
				return nil, err
			}
			break
		}
	}
	return cutHits(best, cells, k), ended
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
