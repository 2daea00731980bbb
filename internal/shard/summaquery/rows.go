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
	"github.com/weft-search/weft/internal/shard/longsort"
	"github.com/weft-search/weft/internal/shard/memtable"
)

// queryFault tells the client's faults, which package exec finds, from others.
func queryFault(err error) error {
	if bad, ok := errors.AsType[*exec.QueryError](err); ok {
		return invalid("%s", bad.Error())
	}
	return err
}

// rows computes the scores of the values of hits: of passages, of vectors, and of the places of words where the reference has them. Its
// errors are those of runner.pressed, of the room that a search has, and damage.
type rows struct {
	r     *runner
	k     int // how many documents a vector within the query nominates; 0: as many as may be
	found map[*part][]bitset.Set

	spare []row // to sort with
	taken int   // bytes of room for what is made of the document in hand
}

func newRows(r *runner) *rows {
	return &rows{r: r, found: map[*part][]bitset.Set{}}
}

// row is a score with the field it is of: rows of one field with the same ordinal add up.
type row struct {
	score.Passage
	field int32
	at    uint32 // its place among all, while they are sorted
}

// rowBytes and passageBytes are what a row takes, and what is kept of it.
const (
	rowBytes     = 16
	passageBytes = 8
)

// of returns the rows of a document that a part matches, by ordinal. What they take is held until the search ends.
func (x *rows) of(p *part, leaf int, doc uint32) (out []score.Passage, err error) {
	if err := x.r.pressed(); err != nil {
		return nil, err
	}
	list, err := x.collect(p, leaf, doc)
	if err == nil && len(list) > 0 {
		if err = x.r.hold(passageBytes * len(list)); err == nil {
			out = passagesOf(list)
		}
	}
	x.r.release(x.taken)
	x.taken = 0
	if cap(x.spare) > lookEvery {
		x.spare = nil
	}
	return out, err
}

func passagesOf(list []row) []score.Passage {
	out := make([]score.Passage, len(list))
	for i, r := range list {
		out[i] = r.Passage
	}
	return out
}

// take takes room for n rows until of returns.
func (x *rows) take(n int) error {
	x.taken += rowBytes * n
	return x.r.hold(rowBytes * n)
}

func byOrdinalThenPlace(a, b row) int {
	return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.at, b.at))
}

// sum adds up the rows of one field with the same ordinal, in the order in which they stand. What it returns, in the place of the list,
// stands by ordinal, fields by the place of their first row.
func (x *rows) sum(list []row) ([]row, error) {
	if err := x.r.did(len(list)); err != nil {
		return nil, err
	}
	if !slices.IsSortedFunc(list, func(a, b row) int { return cmp.Compare(a.Ordinal, b.Ordinal) }) {
		if len(list) > cap(x.spare) {
			if err := x.take(len(list)); err != nil {
				return nil, err
			}
		}
		for i := range list {
			list[i].at = uint32(i)
		}
		var err error
		if list, x.spare, err = longsort.Sort(list, x.spare, byOrdinalThenPlace, x.r.pressed); err != nil {
			return nil, err
		}
	}
	out := list[:0]
	same := 0 // where the rows of the last ordinal begin
	for i, r := range list {
		if i%lookEvery == lookEvery-1 {
			if err := x.r.pressed(); err != nil {
				return nil, err
			}
		}
		if len(out) == 0 || out[len(out)-1].Ordinal != r.Ordinal {
			same, out = len(out), append(out, r)
			continue
		}
		if k := slices.IndexFunc(out[same:], func(o row) bool { return o.field == r.field }); k >= 0 {
			out[same+k].Score += r.Score
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// appendRows appends scores of values of a field.
func appendRows(list []row, field int, ps []score.Passage) []row {
	list = slices.Grow(list, len(ps))
	for _, p := range ps {
		list = append(list, row{Passage: p, field: int32(field)})
	}
	return list
}

// collect returns the rows of a document, as sum does.
func (x *rows) collect(p *part, leaf int, doc uint32) (list []row, err error) {
	switch p.kind {
	case kindPassages, kindVector:
		values := x.passages
		if p.kind == kindVector {
			values = x.r.values
		}
		ps, err := values(p, leaf, doc)
		if err == nil {
			err = x.take(len(ps))
		}
		if err != nil {
			return nil, err
		}
		return x.sum(appendRows(nil, p.field, ps))
	case kindText:
		if list, err = x.places(p, leaf, doc); err != nil {
			return nil, err
		}
		return x.sum(list)
	case kindBoost:
		if list, err = x.collect(p.of, leaf, doc); err != nil {
			return nil, err
		}
		for i := range list {
			list[i].Score = float32(p.factor * list[i].Score)
		}
		return list, nil
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
				if err == nil {
					err = x.take(len(of))
				}
				if err != nil {
					return nil, err
				}
				list = append(list, of...)
			}
		}
		return x.sum(list) // added up as the scores of documents are
	}
	return nil, nil
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
		rest := *x.r // it goes on for a while when no more documents are scored
		rest.ctx = x.r.rest
		given := lists{r: x.r}
		defer given.free()
		n, err := rest.node(p, &given, x.k)
		if err != nil {
			return false, err
		}
		m, err := exec.Match(x.r.rest, x.r.ix.Leaves, x.r.ix.Schema, x.r.ix.Analyzers, n, nil, exec.MatchOptions{Given: given.given, Stats: x.r.plain})
		if err != nil {
			return false, queryFault(err)
		}
		sets = make([]bitset.Set, len(m.Leaves))
		for i := range m.Leaves {
			if sets[i] = m.Leaves[i].Set; sets[i] == nil {
				continue
			}
			if err := x.r.hold(int(x.r.ix.Leaves[i].NumDocs()) / 8); err != nil {
				return false, err
			}
		}
		x.found[p] = sets
	}
	return sets[leaf] == nil || sets[leaf].Has(doc), nil
}

// passages are those of a chunked field that match.
func (x *rows) passages(p *part, leaf int, doc uint32) ([]score.Passage, error) {
	// Hits come in the order of scores, so each is looked up anew.
	m := x.r.scorer(p).On(x.r.rest, x.r.ix.Leaves[leaf])
	if m == nil {
		return nil, nil
	}
	at, ok := m.Seek(doc)
	if err := m.Err(); err != nil || !ok || at != doc {
		return nil, err
	}
	return m.Rows(), nil
}

// places are those of the words of a plain field with positions: each occurrence has an equal share of the score of its word.
func (x *rows) places(p *part, leaf int, doc uint32) ([]row, error) {
	f := &x.r.ix.Schema.Fields[p.field]
	if f.Positions == schema.NoPositions || p.phrase || !p.term && !(p.match && f.Positions == schema.FullPositions) {
		return nil, nil
	}
	l := x.r.ix.Leaves[leaf]
	var out []row
	var pos []uint32
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
		// Twice as much, for the places and for the list that grows.
		if err := x.take(2 * int(freqs[i])); err != nil {
			return nil, err
		}
		pos = post.Positions(b, i, &freqs, pos[:0])
		if err := post.Err(); err != nil {
			return nil, err
		}
		w := x.r.weight(p.field, f, t.text)
		if err := x.r.did(len(pos)); err != nil {
			return nil, err
		}
		out = slices.Grow(out, len(pos))
		share := float32(float32(t.times)*w.Score(freqs[i], l.Lengths(p.field)[doc])) / float32(freqs[i])
		for _, at := range pos {
			switch f.Positions {
			case schema.TokenPositions:
				at %= memtable.ValueStride
			case schema.Ordinals:
				at -= at % memtable.ValueStride
			}
			out = append(out, row{Passage: score.Passage{Ordinal: at, Score: share}, field: int32(p.field)})
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
