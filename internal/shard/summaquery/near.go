package summaquery

import (
	"slices"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/memtable"
	"github.com/weft-search/weft/internal/shard/passage"
)

// The proximity of a MatchQuery adds, to the score of the words, for each two that follow one another in the query text,
//
//	weight · (BM25(places where they stand so) + ½ · BM25(pairs of places at most the window apart))
//
// with the mean of their idfs, after the sequential dependence model (Metzler and Croft, SIGIR 2005). It is computed for the best by
// words alone, four times as many as are wanted, and 64 at least.

// nearWanted is how many documents proximity is computed for.
func nearWanted(k int) int { return max(64, 4*k) }

// addNear adds the proximity of plain text to hits.
func (r *runner) addNear(p *part, hits []hit) error {
	f := &r.ix.Schema.Fields[p.field]
	toks := r.keptText(p)
	for i := range hits {
		if err := r.left(); err != nil {
			return err
		}
		h := &hits[i]
		l := r.ix.Leaves[h.leaf]
		pos, err := positionsOf(l, p.field, toks, h.doc)
		if err != nil {
			return err
		}
		length := l.Lengths(p.field)[h.doc]
		h.score += r.near(p.near, len(toks), pos, func(a, b int, tf uint32) float32 {
			wa, wb := r.idf(f.Name, toks[a].text), r.idf(f.Name, toks[b].text)
			w := score.NewWeight(float32(float32(wa+wb)*0.5), score.AvgLen(r.own.Fields[f.Name]), f.K1, f.B)
			return w.Score(tf, length)
		})
	}
	return nil
}

func (r *runner) idf(field, word string) float32 {
	docs := r.own.Docs
	if n, ok := r.own.Corpus[field]; ok {
		docs = n
	}
	return score.IDF(docs, min(r.own.DF[score.Term{Field: field, Text: word}], docs))
}

// near is the proximity of some words at their positions; bm25 scores a number of places of two of them.
func (r *runner) near(n *proximity, words int, pos [][]uint32, bm25 func(a, b int, tf uint32) float32) float32 {
	window := min(n.window, memtable.ValueStride/2) // values stand further apart
	var sum float32
	for i := range words - 1 {
		ordered, within := uint32(0), uint32(0)
		for _, at := range pos[i] {
			if _, ok := slices.BinarySearch(pos[i+1], at+1); ok {
				ordered++
			}
			from, _ := slices.BinarySearch(pos[i+1], at-min(at, window))
			to, _ := slices.BinarySearch(pos[i+1], at+window+1)
			within += uint32(to - from)
		}
		if ordered > 0 {
			sum += bm25(i, i+1, ordered)
		}
		if within > 0 {
			sum += float32(0.5 * bm25(i, i+1, within))
		}
	}
	return float32(n.weight * sum)
}

// positionsOf are those of each word in a document.
func positionsOf(l exec.Leaf, field int, toks []token, doc uint32) ([][]uint32, error) {
	out := make([][]uint32, len(toks))
	for i, t := range toks {
		post, ok := l.Postings(field, []byte(t.text))
		if !ok || !post.HasPositions() {
			continue
		}
		b := post.SeekBlock(0, doc)
		if b == post.Blocks() {
			continue
		}
		var docs, freqs [segment.BlockSize]uint32
		n := post.DocsFreqs(b, &docs, &freqs)
		if at, ok := slices.BinarySearch(docs[:n], doc); ok {
			out[i] = post.Positions(b, at, &freqs, nil)
		}
		if err := post.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nearPassages is Top with the proximity of words within their passages.
func (r *runner) nearPassages(p *part, accept []bitset.Set, k int) ([]hit, error) {
	top, err := r.scorer(p).Top(r.ctx, r.ix.Leaves, accept, nearWanted(k), nil)
	if err = r.inBudget(err); err != nil {
		return nil, err
	}
	for i := range top {
		h := &top[i]
		if err := r.addNearRows(p, h.Leaf, h.Doc, h.Rows); err != nil {
			return nil, err
		}
		h.Score = bestRow(h.Rows)
	}
	return passageHits(passage.Best(top, k)), nil
}

// addNearRows adds the proximity of words within their passages to those of a document.
func (r *runner) addNearRows(p *part, leaf int, doc uint32, rows []score.Passage) error {
	if err := r.left(); err != nil {
		return err
	}
	f := &r.ix.Schema.Fields[p.field]
	st := r.passages[p.field]
	toks := r.keptTerms(p)
	floor := st.Floor()
	l := r.ix.Leaves[leaf]
	pos, err := positionsOf(l, p.field, toks, doc)
	if err != nil {
		return err
	}
	lengths, of := passage.Split(l, p.field, doc, pos)
	for j := range rows {
		row := &rows[j]
		length := max(lengths[row.Ordinal], floor)
		row.Score += r.near(p.near, len(toks), of[row.Ordinal], func(a, b int, tf uint32) float32 {
			ia, ib := score.IDF(st.Passages, st.DF[toks[a].text]), score.IDF(st.Passages, st.DF[toks[b].text])
			w := score.NewWeight(float32(float32(ia+ib)*0.5), st.AvgLen(), f.K1, f.B)
			return w.Score(tf, uint16(length))
		})
	}
	return nil
}

// bestRow is the score of the best of some rows; 0 of none.
func bestRow(rows []score.Passage) (best float32) {
	for j, row := range rows {
		if j == 0 || row.Score > best {
			best = row.Score
		}
	}
	return best
}
