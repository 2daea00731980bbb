package summaquery

import (
	"cmp"
	"errors"
	"slices"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/memtable"
)

// queryFault tells the client's faults, which package exec finds, from others.
func queryFault(err error) error {
	if bad, ok := errors.AsType[*exec.QueryError](err); ok {
		return invalid("%s", bad.Error())
	}
	return err
}

// rows computes the scores of the values of hits: of passages, of vectors, and of the places of words where the reference has them.
type rows struct {
	r     *runner
	k     int // how many documents a vector within the query nominates; 0: as many as may be
	found map[*part][]bitset.Set
}

func newRows(r *runner) *rows {
	return &rows{r: r, found: map[*part][]bitset.Set{}}
}

// row is a score with the field it is of: rows of one field with the same ordinal add up.
type row struct {
	field int
	score.Passage
}

// of returns the rows of a document that a part matches, by ordinal.
func (x *rows) of(p *part, leaf int, doc uint32) ([]score.Passage, error) {
	if err := x.r.left(); err != nil {
		return nil, err
	}
	list, err := x.collect(p, leaf, doc)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return byOrdinal(list), nil
}

func byOrdinal(list []row) []score.Passage {
	slices.SortStableFunc(list, func(a, b row) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	out := make([]score.Passage, len(list))
	for i, r := range list {
		out[i] = r.Passage
	}
	return out
}

func add(list []row, field int, ps ...score.Passage) []row {
	for _, p := range ps {
		if i := slices.IndexFunc(list, func(r row) bool { return r.field == field && r.Ordinal == p.Ordinal }); i >= 0 {
			list[i].Score += p.Score
			continue
		}
		list = append(list, row{field, p})
	}
	return list
}

func (x *rows) collect(p *part, leaf int, doc uint32) (list []row, err error) {
	switch p.kind {
	case kindPassages:
		ps, err := x.passages(p, leaf, doc)
		return add(nil, p.field, ps...), err
	case kindText:
		ps, err := x.places(p, leaf, doc)
		return add(nil, p.field, ps...), err
	case kindVector:
		ps, err := x.r.values(p, leaf, doc)
		return add(nil, p.field, ps...), err
	case kindBoost:
		of, err := x.collect(p.of, leaf, doc)
		if err != nil {
			return nil, err
		}
		for _, r := range of {
			r.Score = float32(p.factor * r.Score)
			list = add(list, r.field, r.Passage)
		}
	case kindBool:
		for _, kids := range [][]*part{x.r.scoring(p), x.r.someShould(p)} {
			for _, k := range kids {
				ok, err := x.finds(k, leaf, doc)
				if err != nil {
					return nil, err
				}
				if !ok {
					continue
				}
				of, err := x.collect(k, leaf, doc)
				if err != nil {
					return nil, err
				}
				for _, r := range of { // added up as the scores of documents are
					list = add(list, r.field, r.Passage)
				}
			}
		}
	}
	return list, nil
}

// finds tells whether a clause found a document. Words and phrases are not asked: without a match they have no rows.
func (x *rows) finds(p *part, leaf int, doc uint32) (bool, error) {
	switch p.kind {
	case kindBoost:
		return x.finds(p.of, leaf, doc)
	case kindVector:
		g, err := x.r.nearestList(p, x.k)
		if err != nil || leaf >= len(g) {
			return false, err
		}
		_, ok := slices.BinarySearch(g[leaf].Docs, doc)
		return ok, nil
	case kindBool:
	default:
		return true, nil
	}
	sets, ok := x.found[p]
	if !ok {
		var given []exec.Given
		whole := *x.r // the time budget is for what is scored
		whole.ctx = x.r.whole
		n, err := whole.node(p, &given, x.k)
		if err != nil {
			return false, err
		}
		m, err := exec.Match(x.r.whole, x.r.ix.Leaves, x.r.ix.Schema, x.r.ix.Analyzers, n, nil, exec.MatchOptions{Given: given, Stats: x.r.plain})
		if err != nil {
			return false, queryFault(err)
		}
		sets = make([]bitset.Set, len(m.Leaves))
		for i := range m.Leaves {
			sets[i] = m.Leaves[i].Set
		}
		x.found[p] = sets
	}
	return sets[leaf] == nil || sets[leaf].Has(doc), nil
}

// passages are those of a chunked field that match.
func (x *rows) passages(p *part, leaf int, doc uint32) ([]score.Passage, error) {
	// Hits come in the order of scores, so each is looked up anew.
	m := x.r.scorer(p).On(x.r.whole, x.r.ix.Leaves[leaf])
	if m == nil {
		return nil, nil
	}
	at, ok := m.Seek(doc)
	if err := m.Err(); err != nil || !ok || at != doc {
		return nil, err
	}
	return slices.Clone(m.Rows()), nil
}

// places are those of the words of a plain field with positions: each occurrence has an equal share of the score of its word.
func (x *rows) places(p *part, leaf int, doc uint32) ([]score.Passage, error) {
	f := &x.r.ix.Schema.Fields[p.field]
	if f.Positions == schema.NoPositions || p.phrase || !p.term && !(p.match && f.Positions == schema.FullPositions) {
		return nil, nil
	}
	l := x.r.ix.Leaves[leaf]
	var out []score.Passage
	for _, t := range x.r.keptText(p) {
		post, ok := l.Postings(p.field, []byte(t.text))
		if !ok || !post.HasPositions() {
			continue
		}
		b := post.SeekBlock(0, doc)
		if b == post.Blocks() {
			continue
		}
		var docs, freqs [segment.BlockSize]uint32
		n := post.DocsFreqs(b, &docs, &freqs)
		i, found := slices.BinarySearch(docs[:n], doc)
		if !found {
			continue
		}
		pos := post.Positions(b, i, &freqs, nil)
		if err := post.Err(); err != nil {
			return nil, err
		}
		w := x.r.weight(p.field, f, t.text)
		share := float32(float32(t.times)*w.Score(freqs[i], l.Lengths(p.field)[doc])) / float32(freqs[i])
		for _, at := range pos {
			switch f.Positions {
			case schema.TokenPositions:
				at %= memtable.ValueStride
			case schema.Ordinals:
				at -= at % memtable.ValueStride
			}
			out = append(out, score.Passage{Ordinal: at, Score: share})
		}
	}
	return out, nil
}

// keptText are the words of a part of plain text that score.
func (r *runner) keptText(p *part) []token {
	if p.maxTerms == 0 || len(p.terms) <= p.maxTerms {
		return p.terms
	}
	name := r.ix.Schema.Fields[p.field].Name
	known := r.own.DF
	if r.plain != nil {
		if _, given := r.plain.Corpus[name]; given { // every shard has to keep the same words
			known = r.plain.DF
		}
	}
	df := func(t token) uint64 { return known[score.Term{Field: name, Text: t.text}] - 1 } // those in no document last
	keep := slices.Clone(p.terms)
	slices.SortStableFunc(keep, func(a, b token) int { return cmp.Compare(df(a), df(b)) })
	keep = keep[:p.maxTerms]
	return slices.DeleteFunc(slices.Clone(p.terms), func(t token) bool { return !slices.Contains(keep, t) })
}

// weight is that of a word of a plain field.
func (r *runner) weight(field int, f *schema.Field, word string) score.Weight {
	docs := r.own.Docs
	if n, ok := r.own.Corpus[f.Name]; ok {
		docs = n
	}
	df := min(r.own.DF[score.Term{Field: f.Name, Text: word}], docs)
	return score.NewWeight(score.IDF(docs, df), score.AvgLen(r.own.Fields[f.Name]), f.K1, f.B)
}
