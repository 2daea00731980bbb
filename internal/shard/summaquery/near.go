package summaquery

import (
	"cmp"
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

// addNear adds the proximity of plain text to hits. Where the time is over meanwhile the others are left out.
func (r *runner) addNear(p *part, hits []hit) ([]hit, error) {
	for i := range hits {
		more, err := r.nearOf(p, &hits[i])
		if err != nil {
			return hits[:i], r.inBudget(err)
		}
		hits[i].score += more
	}
	return hits, nil
}

// nearOf is the proximity of plain text of a hit.
func (r *runner) nearOf(p *part, h *hit) (float32, error) {
	if err := r.pressed(); err != nil {
		return 0, err
	}
	f := &r.ix.Schema.Fields[p.field]
	toks := r.keptText(p)
	l := r.ix.Leaves[h.leaf]
	pos, err := r.positionsOf(l, p.field, toks, h.doc)
	if err != nil {
		return 0, err
	}
	length := l.Lengths(p.field)[h.doc]
	return r.near(p.near, len(toks), pos, func(a, b int, tf uint32) float32 {
		wa, wb := r.idf(f.Name, toks[a].text), r.idf(f.Name, toks[b].text)
		w := score.NewWeight(float32(float32(wa+wb)*0.5), score.AvgLen(r.own.Fields[f.Name]), f.K1, f.B)
		return w.Score(tf, length)
	})
}

func (r *runner) idf(field, word string) float32 {
	docs := r.own.Docs
	if n, ok := r.own.Corpus[field]; ok {
		docs = n
	}
	return score.IDF(docs, min(r.own.DF[score.Term{Field: field, Text: word}], docs))
}

// near is the proximity of some words at their positions; bm25 scores a number of places of two of them.
func (r *runner) near(n *proximity, words int, pos [][]uint32, bm25 func(a, b int, tf uint32) float32) (float32, error) {
	window := uint64(min(n.window, memtable.ValueStride/2)) // values stand further apart
	var sum float32
	for i := range words - 1 {
		if err := r.did(len(pos[i]) + len(pos[i+1])); err != nil {
			return 0, err
		}
		ordered, within := uint32(0), uint32(0)
		list := pos[i+1]
		next, from, to := 0, 0, 0 // the first places of the second word behind the first, within the window, and beyond it
		for _, at := range pos[i] {
			at := uint64(at)
			for next < len(list) && uint64(list[next]) <= at {
				next++
			}
			for from < len(list) && uint64(list[from])+window < at {
				from++
			}
			for to < len(list) && uint64(list[to]) <= at+window {
				to++
			}
			if next < len(list) && uint64(list[next]) == at+1 {
				ordered++
			}
			within += uint32(to - from)
		}
		if ordered > 0 {
			sum += bm25(i, i+1, ordered)
		}
		if within > 0 {
			sum += float32(0.5 * bm25(i, i+1, within))
		}
	}
	return float32(n.weight * sum), nil
}

// positionsOf are those of each word in a document.
func (r *runner) positionsOf(l exec.Leaf, field int, toks []token, doc uint32) ([][]uint32, error) {
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
		if err := cmp.Or(post.Err(), r.did(len(out[i]))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nearPassages is Top with the proximity of words within their passages.
func (r *runner) nearPassages(p *part, accept []bitset.Set, k int) ([]hit, error) {
	top, err := r.scorer(p).Top(r.ctx, r.ix.Leaves, accept, nearWanted(k), r.holdPassages)
	if err = r.inBudget(err); err != nil {
		return nil, err
	}
	for i := range top {
		h := &top[i]
		if err := r.addNearRows(p, h.Leaf, h.Doc, h.Rows); err != nil {
			if err := r.inBudget(err); err != nil {
				return nil, err
			}
			top = top[:i] // the others have not their whole score
			break
		}
		h.Score = bestRow(h.Rows)
	}
	return passageHits(passage.Best(top, k)), nil
}

// addNearRows adds the proximity of words within their passages to those of a document.
func (r *runner) addNearRows(p *part, leaf int, doc uint32, rows []score.Passage) error {
	if err := r.pressed(); err != nil {
		return err
	}
	f := &r.ix.Schema.Fields[p.field]
	st := r.passages[p.field]
	toks := r.keptTerms(p)
	floor := st.Floor()
	l := r.ix.Leaves[leaf]
	pos, err := r.positionsOf(l, p.field, toks, doc)
	if err != nil {
		return err
	}
	lengths, of := passage.Split(l, p.field, doc, pos)
	for j := range rows {
		row := &rows[j]
		length := max(lengths[row.Ordinal], floor)
		more, err := r.near(p.near, len(toks), of[row.Ordinal], func(a, b int, tf uint32) float32 {
			ia, ib := score.IDF(st.Passages, st.DF[toks[a].text]), score.IDF(st.Passages, st.DF[toks[b].text])
			w := score.NewWeight(float32(float32(ia+ib)*0.5), st.AvgLen(), f.K1, f.B)
			return w.Score(tf, uint16(length))
		})
		if err != nil {
			return err
		}
		row.Score += more
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
