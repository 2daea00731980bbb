package summaquery

import (
	"cmp"
	"errors"
	"slices"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/score/formula"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/longsort"
)

// Rankings of the contract ("L1 formula", "Export").
const (
	methodFormula    = "formula_v1"
	methodExport     = "feature_export_v2"
	methodCandidates = "fusion_candidates_v1"
)

const (
	stdExportRows = 65536 // passages of a document in an export where nobody says
	bareRows      = 8     // ordinal_scores of a hit that was not ranked
	topKRows      = 5     // ordinal_scores of a formula with the combiner of the best k
)

// cell is the score of a branch for a document or passage; absent where the document has no value that the branch could score.
type cell struct {
	value   float32
	present bool
}

// candidate is a document of the union with its cells, by branch.
type candidate struct {
	place
	document []cell
	passages []passageRow // by ordinal
	organic  []score.Passage
}

type passageRow struct {
	ordinal uint32
	cells   []cell
	score   float32
}

// candidateBytes, passageRowBytes and cellBytes are what a candidate takes, one of its passages, and a score of either.
const (
	candidateBytes  = 128
	passageRowBytes = 40
	cellBytes       = 8
)

// admit makes rows of the ordinals, which ascend, where there are none.
func (f *fusion) admit(c *candidate, ordinals []uint32) error {
	fresh, k := 0, 0
	for _, o := range ordinals {
		for k < len(c.passages) && c.passages[k].ordinal < o {
			k++
		}
		if k == len(c.passages) || c.passages[k].ordinal != o {
			fresh++
		}
	}
	if fresh == 0 {
		return nil
	}
	if err := f.r.hold(fresh * (passageRowBytes + cellBytes*len(f.parts))); err != nil {
		return err
	}
	old, all := c.passages, make([]passageRow, 0, len(c.passages)+fresh)
	cells := make([]cell, fresh*len(f.parts))
	for _, o := range ordinals {
		for len(old) > 0 && old[0].ordinal < o {
			all, old = append(all, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].ordinal == o {
			continue
		}
		all = append(all, passageRow{ordinal: o, cells: cells[:len(f.parts):len(f.parts)]})
		cells = cells[len(f.parts):]
	}
	c.passages = append(all, old...)
	return nil
}

// passage returns the row of an ordinal that was admitted.
func (c *candidate) passage(ordinal uint32) *passageRow {
	i, _ := slices.BinarySearchFunc(c.passages, ordinal, func(p passageRow, o uint32) int { return cmp.Compare(p.ordinal, o) })
	return &c.passages[i]
}

// scoringBranch checks that a branch scores one field, in a way that a document can be scored by afterwards.
func (f *fusion) scoringBranch(i int) error {
	name := f.req.GetQueries()[i].GetName()
	field := -1
	var walk func(p *part) error
	walk = func(p *part) error {
		switch p.kind {
		case kindFilter, kindExact:
			return failed("query cannot be backfilled as an L1 score; use it as a filter")
		case kindBoost:
			return walk(p.of)
		case kindBool:
			if len(p.must) > 0 && !sameField(p.must) || len(p.not) > 0 {
				return failed("L1 scoring branches support SHOULD composition; express requirements as filters")
			}
			for _, k := range append(slices.Clone(p.must), p.should...) {
				if err := walk(k); err != nil {
					return err
				}
			}
			return nil
		case kindNothing, kindStops:
			return nil
		}
		if field >= 0 && field != p.field {
			return failed("L1 scoring branch must use one field; name separate branches for separate fields")
		}
		field = p.field
		return nil
	}
	if err := walk(f.parts[i]); err != nil {
		return err
	}
	if field >= 0 && f.chunk(i) {
		if fd := &f.r.ix.Schema.Fields[field]; fd.Type == schema.Text && !fd.Chunked {
			return failed("L1 chunk branch '%s' needs chunked text; plain text is document scope", name)
		}
	}
	f.fields[i] = field
	return nil
}

// sameField tells whether all parts are words of one field: a TermQuery of several words is made of such.
func sameField(parts []*part) bool {
	for _, p := range parts {
		if (p.kind != kindText && p.kind != kindPassages) || p.field != parts[0].field {
			return false
		}
	}
	return true
}

func (f *fusion) chunk(i int) bool {
	return f.req.GetQueries()[i].GetScope() == summapb.ScoreScope_SCORE_SCOPE_CHUNK
}

// candidates gathers the union of the nominations with all cells.
func (f *fusion) candidates(backfill, allPassages, seed bool) ([]candidate, error) {
	at := map[place]int{}
	var out []candidate
	var ordinals []uint32
	for i, hits := range f.hits {
		for _, h := range hits {
			if err := f.r.did(1 + len(h.rows)); err != nil {
				return nil, err
			}
			pl := place{int32(h.leaf), h.doc}
			n, ok := at[pl]
			if !ok {
				if err := f.r.hold(candidateBytes + cellBytes*len(f.parts)); err != nil {
					return nil, err
				}
				n = len(out)
				at[pl] = n
				out = append(out, candidate{place: pl, document: make([]cell, len(f.parts))})
			}
			c := &out[n]
			if err := f.r.hold(passageBytes * len(h.rows)); err != nil {
				return nil, err
			}
			c.organic = append(c.organic, h.rows...)
			if !f.chunk(i) {
				c.document[i] = cell{h.score, true}
				continue
			}
			ordinals = ordinals[:0]
			for _, r := range h.rows {
				ordinals = append(ordinals, r.Ordinal)
			}
			slices.Sort(ordinals)
			if err := f.admit(c, slices.Compact(ordinals)); err != nil {
				return nil, err
			}
			for _, r := range h.rows {
				c.passage(r.Ordinal).cells[i] = cell{r.Score, true}
			}
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc)) })
	if allPassages || seed {
		for i := range out {
			if seed && !allPassages && len(out[i].passages) > 0 {
				continue
			}
			if err := f.everyOrdinal(&out[i]); err != nil {
				return nil, err
			}
		}
	}
	if !backfill {
		return out, nil
	}
	for i := range f.parts {
		if err := f.backfill(out, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// everyOrdinal makes a row for each stored passage of the fields that chunk branches score.
func (f *fusion) everyOrdinal(c *candidate) error {
	var vals []uint64
	var ordinals []uint32
	for i := range f.parts {
		if !f.chunk(i) || f.fields[i] < 0 {
			continue
		}
		l := f.r.ix.Leaves[c.leaf]
		ordinals = ordinals[:0]
		switch fd := &f.r.ix.Schema.Fields[f.fields[i]]; {
		case fd.Chunked:
			if col := l.NumColumn(f.fields[i]); col != nil {
				vals = col.Values(c.doc, vals[:0])
				for o, v := range vals {
					if length, _ := segment.DecodeChunk(v); length > 0 {
						ordinals = append(ordinals, uint32(o))
					}
				}
			}
		case fd.Type != schema.Text:
			for o := range f.values(f.fields[i], c) {
				ordinals = append(ordinals, uint32(o))
			}
		}
		if err := f.r.did(1 + len(ordinals)); err != nil {
			return err
		}
		if err := f.admit(c, ordinals); err != nil {
			return err
		}
	}
	return nil
}

// backfill computes the cells that branch i did not nominate: of the document, or of the passages that any branch nominated.
func (f *fusion) backfill(cands []candidate, i int) error {
	p, field := f.parts[i], f.fields[i]
	if field < 0 {
		return nil
	}
	if f.chunk(i) {
		rows := f.rowsOf(p)
		for n := range cands {
			c := &cands[n]
			if len(c.passages) == 0 {
				continue
			}
			got, err := rows(int(c.leaf), c.doc)
			if err != nil {
				return err
			}
			made := len(got)
			has := f.hasOrdinal(field, c)
			for k := range c.passages { // both stand by ordinal
				row := &c.passages[k]
				for len(got) > 0 && got[0].Ordinal < row.ordinal {
					got = got[1:]
				}
				if row.cells[i].present || !has(row.ordinal) {
					continue
				}
				row.cells[i].present = true
				if len(got) > 0 && got[0].Ordinal == row.ordinal {
					if row.cells[i].value = got[0].Score; !finiteScore(got[0].Score) {
						return errNotFinite()
					}
				}
			}
			f.r.release(passageBytes * made)
		}
		return nil
	}
	want := make([]int, 0, len(cands))
	for n := range cands {
		if !cands[n].document[i].present && f.hasValue(field, &cands[n]) {
			want = append(want, n)
		}
	}
	scores, err := f.scoresOf(p, cands, want)
	if err != nil {
		return err
	}
	for _, n := range want {
		s := scores[cands[n].place]
		if !finiteScore(s) {
			return errNotFinite()
		}
		cands[n].document[i] = cell{s, true}
	}
	return nil
}

// hasValue tells whether the document has an indexed value of the field.
func (f *fusion) hasValue(field int, c *candidate) bool {
	if f.r.ix.Schema.Fields[field].Type != schema.Text {
		return f.values(field, c) > 0
	}
	has := f.r.ix.Leaves[c.leaf].Present(field)
	return has != nil && has(c.doc)
}

// values is how many vectors the document has in the field.
func (f *fusion) values(field int, c *candidate) int {
	l := f.r.ix.Leaves[c.leaf]
	from, to := 0, 0
	if f.r.ix.Schema.Fields[field].Type == schema.SparseVector {
		if x := l.SparseVectors(field); x != nil {
			from, to = x.Range(c.doc)
		}
	} else if x := l.Vectors(field); x != nil {
		from, to = x.Range(c.doc)
	}
	return to - from
}

// hasOrdinal tells whether the document has a value of the field with an ordinal.
func (f *fusion) hasOrdinal(field int, c *candidate) func(ordinal uint32) bool {
	l := f.r.ix.Leaves[c.leaf]
	fd := &f.r.ix.Schema.Fields[field]
	switch {
	case fd.Chunked:
		col := l.NumColumn(field)
		if col == nil {
			return func(uint32) bool { return false }
		}
		vals := col.Values(c.doc, nil)
		return func(o uint32) bool {
			if int(o) >= len(vals) {
				return false
			}
			n, _ := segment.DecodeChunk(vals[o])
			return n > 0
		}
	case fd.Type != schema.Text:
		n := f.values(field, c)
		return func(o uint32) bool { return int(o) < n }
	}
	return func(uint32) bool { return false } // plain text has no passages
}

// rowsOf scores the values of documents by a part, as it does those that it nominates.
func (f *fusion) rowsOf(p *part) func(leaf int, doc uint32) ([]score.Passage, error) {
	if p.kind == kindBoost && p.of.whole() {
		of := f.rowsOf(p.of)
		return func(leaf int, doc uint32) ([]score.Passage, error) {
			rows, err := of(leaf, doc)
			for i := range rows {
				rows[i].Score = float32(p.factor * rows[i].Score)
			}
			return rows, err
		}
	}
	if n, ok := f.r.nominates(p); ok {
		p = n.rank // words together
	}
	x := newRows(f.r)
	return func(leaf int, doc uint32) ([]score.Passage, error) {
		rows, err := x.of(p, leaf, doc)
		if err == nil && p.kind == kindPassages && p.near != nil && len(rows) > 0 {
			err = f.r.addNearRows(p, leaf, doc, rows)
		}
		return rows, err
	}
}

// scoresOf scores some of the candidates by a part; those that do not match are left out.
func (f *fusion) scoresOf(p *part, cands []candidate, want []int) (map[place]float32, error) {
	out := make(map[place]float32, len(want))
	if len(want) == 0 {
		return out, nil
	}
	if p.kind == kindBoost && p.of.whole() {
		out, err := f.scoresOf(p.of, cands, want)
		for at, s := range out {
			out[at] = float32(p.factor * s)
		}
		return out, err
	}
	if n, ok := f.r.nominates(p); ok && n.rank.kind == kindPassages {
		rows := f.rowsOf(p)
		for _, n := range want {
			c := &cands[n]
			got, err := rows(int(c.leaf), c.doc)
			if err != nil {
				return nil, err
			}
			if len(got) > 0 {
				out[c.place] = bestRow(got)
			}
			f.r.release(passageBytes * len(got))
		}
		return out, nil
	}
	if p.kind == kindVector {
		var sims []float32
		for _, n := range want {
			c := &cands[n]
			rows, err := f.r.values(p, int(c.leaf), c.doc)
			if err != nil {
				return nil, err
			}
			sims = sims[:0]
			for _, r := range rows {
				sims = append(sims, r.Score)
			}
			if len(sims) > 0 {
				out[c.place] = p.vector.Combiner.Combine(sims)
			}
		}
		return out, nil
	}
	if err := f.r.checkReach(p, 0); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(want, exec.MaxWindow) {
		if err := f.scoreSome(p, cands, some, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scoreSome scores no more candidates than a search returns.
func (f *fusion) scoreSome(p *part, cands []candidate, want []int, out map[place]float32) error {
	only := make(exec.Given, len(f.r.ix.Leaves))
	for _, n := range want { // candidates stand by place
		c := &cands[n]
		only[c.leaf].Docs, only[c.leaf].Scores = append(only[c.leaf].Docs, c.doc), append(only[c.leaf].Scores, 1)
	}
	given := lists{r: f.r, given: []exec.Given{only}}
	defer given.free()
	node, err := f.r.node(p, &given, 0)
	if err != nil {
		return err
	}
	res, err := exec.Search(f.r.ctx, f.r.ix.Leaves, f.r.ix.Schema, f.r.ix.Analyzers, exec.Request{
		Query: &query.Bool{Must: []query.Node{node}, Filter: []query.Node{&query.Given{List: 0}}},
		Limit: len(want), Stats: f.r.plain, Given: given.given, ByPlace: true, NoKeys: true, Total: exec.TotalNone,
	})
	if err != nil {
		return queryFault(err)
	}
	hits := make([]hit, len(res.Hits))
	for i, h := range res.Hits {
		hits[i] = hit{leaf: h.Leaf, doc: h.Doc, score: h.Score}
	}
	if p.near != nil {
		if hits, err = f.r.addNear(p, hits); err != nil {
			return err
		}
	}
	for _, h := range hits {
		out[place{int32(h.leaf), h.doc}] = h.score
	}
	return nil
}

// rank scores the candidates by the formula and orders them.
func (f *fusion) rank(l1 *summapb.L1Ranking, prog *formula.Program, cands []candidate, exported int) ([]hit, error) {
	names := make([]string, len(f.parts))
	for i, q := range f.req.GetQueries() {
		names[i] = q.GetName()
	}
	vars, err := prog.Bind(names)
	if err != nil {
		return nil, l1Fault(err)
	}
	batch, err := prog.NewBatch(l1.GetMissingValues())
	if err != nil {
		return nil, l1Fault(err)
	}
	var votes map[place]*votesOf
	if prog.UsesRRF() {
		if votes, err = f.votes(); err != nil {
			return nil, err
		}
	}
	comb := score.Combiner{Kind: score.CombinerKind(f.req.GetCombiner())}
	if comb.Kind == score.LogSumExp || comb.Kind > score.WeightedTopK {
		comb.Kind = score.Max
	}
	hits := make([]hit, len(cands))
	var scores []float32
	for n := range cands {
		c := &cands[n]
		hits[n] = hit{leaf: int(c.leaf), doc: c.doc}
		vote := votes[c.place]
		rows := max(len(c.passages), 1)
		if err := f.r.did(rows * max(len(vars), 1)); err != nil {
			return nil, err
		}
		if err := f.r.hold(passageBytes * len(c.passages)); err != nil {
			return nil, err
		}
		scores = slices.Grow(scores[:0], rows)[:rows]
		for from := 0; from < rows; {
			got := batch.Start(rows - from)
			for k := range got {
				for v, branch := range vars {
					if branch < 0 {
						batch.Set(v, k, float64(vote.at(c, from+k)))
						continue
					}
					one := c.document[branch]
					if len(c.passages) > 0 && f.chunk(branch) {
						one = c.passages[from+k].cells[branch]
					}
					if one.present {
						batch.Set(v, k, float64(one.value))
					}
				}
			}
			if err := batch.Eval(scores[from : from+got]); err != nil {
				return nil, l1Fault(err)
			}
			from += got
		}
		if len(c.passages) == 0 {
			hits[n].score = scores[0]
			continue
		}
		for k := range c.passages {
			c.passages[k].score = scores[k]
			hits[n].rows = append(hits[n].rows, score.Passage{Ordinal: c.passages[k].ordinal, Score: scores[k]})
		}
		hits[n].score = comb.Combine(scores)
		slices.SortStableFunc(hits[n].rows, func(a, b score.Passage) int { return cmp.Compare(b.Score, a.Score) })
		most := len(hits[n].rows)
		switch comb.Kind {
		case score.Max: // and what equals it
			for most = 1; most < len(hits[n].rows) && hits[n].rows[most].Score == hits[n].rows[0].Score; most++ {
			}
		case score.WeightedTopK:
			most = topKRows
		}
		hits[n].rows = hits[n].rows[:min(max(most, exported), len(hits[n].rows))]
	}
	slices.SortFunc(hits, order)
	return hits, nil
}

// l1Fault is the refusal of a formula.
func l1Fault(err error) error {
	if _, ok := errors.AsType[*formula.NonFiniteError](err); ok {
		return failed("L1 formula produced a non-finite score (domain error or overflow)")
	}
	if bad, ok := errors.AsType[*formula.Error](err); ok {
		return failed("%s", bad.Msg)
	}
	return err
}

// votesOf are the votes of reciprocal ranks for a document.
type votesOf struct {
	document float32
	passages map[uint32]float32
}

// at is the rrf of a row of a candidate: the votes for its passage, and those for the document.
func (v *votesOf) at(c *candidate, row int) float32 {
	if v == nil {
		return 0
	}
	if len(c.passages) == 0 {
		sum := v.document
		return sum
	}
	return float32(v.passages[c.passages[row].ordinal] + v.document)
}

// voteBytes is what the vote of a passage takes while it is ranked, and afterwards.
const voteBytes = 80

// votes ranks the organic lists as a fusion by reciprocal ranks does, with its usual constant and weights of 1.
func (f *fusion) votes() (map[place]*votesOf, error) {
	out := map[place]*votesOf{}
	of := func(pl place) *votesOf {
		if out[pl] == nil {
			out[pl] = &votesOf{passages: map[uint32]float32{}}
		}
		return out[pl]
	}
	for i, hits := range f.hits {
		if f.req.GetQueries()[i].GetScoreOnly() {
			continue
		}
		if !f.chunk(i) {
			for n, h := range hits {
				of(place{int32(h.leaf), h.doc}).document += 1 / float32(score.DefaultRankConstant+float32(n+1))
			}
			continue
		}
		type spot struct {
			place
			score.Passage
		}
		var list []spot
		total := 0
		for _, h := range hits {
			total += len(h.rows)
		}
		if err := f.r.hold(voteBytes * total); err != nil {
			return nil, err
		}
		for _, h := range hits {
			for _, r := range h.rows {
				list = append(list, spot{place{int32(h.leaf), h.doc}, r})
			}
		}
		list, _, err := longsort.Sort(list, nil, func(a, b spot) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc), cmp.Compare(a.Ordinal, b.Ordinal))
		}, f.r.pressed)
		if err != nil {
			return nil, err
		}
		for n, s := range list {
			of(s.place).passages[s.Ordinal] += 1 / float32(score.DefaultRankConstant+float32(n+1))
		}
	}
	return out, nil
}

// export makes the scores of a candidate as they are sent: the best passages by their formula's score, or all by ordinal, and the document.
func (f *fusion) export(c *candidate, most int, ranked bool) (*summapb.CandidateScores, int) {
	out := &summapb.CandidateScores{Document: map[string]float32{}, ScoredPassages: uint32(len(c.passages))}
	qs := f.req.GetQueries()
	for i, one := range c.document {
		if one.present && !f.chunk(i) {
			out.Document[qs[i].GetName()] = one.value
		}
	}
	rows := slices.Clone(c.passages)
	if ranked {
		slices.SortStableFunc(rows, func(a, b passageRow) int { return cmp.Compare(b.score, a.score) })
	}
	omitted := len(rows) - min(most, len(rows))
	for _, p := range rows[:min(most, len(rows))] {
		ps := &summapb.PassageScores{Ordinal: p.ordinal, Scores: map[string]float32{}}
		for i, one := range p.cells {
			if one.present {
				ps.Scores[qs[i].GetName()] = one.value
			}
		}
		if ranked {
			ps.L1Score = &p.score
		}
		out.Passages = append(out.Passages, ps)
	}
	return out, omitted
}
