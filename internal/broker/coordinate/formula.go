package coordinate

import (
	"cmp"
	"context"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/score/formula"
)

// row is a passage of a document that the formula scores.
type row struct {
	ordinal uint32
	score   float32
	raw     []byte // its PassageScores
}

// evaluating scores documents by the formula, one after another.
type evaluating struct {
	e      *evidence
	batch  *formula.Batch
	rrf    int                    // variable of the ranks; -1: none
	votes  []*score.Fused[uint32] // by document, where there are ranks
	of     [maxBranches]int       // variables of the branches, -1: none
	cells  [maxBranches]float32   // of the document, by branch
	has    [maxBranches]bool
	rows   []row
	scores []float32
	order  []score.Passage
	room   int // rows that are charged
}

// byFormula ranks by the formula ("L1 formula").
func (e *evidence) byFormula(ctx context.Context, r *ranking) error {
	p := e.p
	r.method = methodFormula
	if p.way == byRRFFormula {
		fused, err := e.fuse(score.RRF)
		if err != nil {
			return err
		}
		r.votes = byDoc(fused, len(e.docs))
	}
	batch, err := p.program.NewBatch(p.missing)
	if err != nil {
		return formulaFault(err)
	}
	ev := &evaluating{e: e, batch: batch, rrf: slices.Index(p.variables, -1), votes: r.votes}
	for i := range ev.of {
		ev.of[i] = slices.Index(p.variables, i)
	}
	order := make([]placed, e.hits)
	matrix := 0
	for n := range order {
		if n%256 == 0 {
			if err := alive(ctx); err != nil {
				return err
			}
		}
		s, rows, err := ev.score(uint32(n))
		if err != nil {
			return e.faultOf(err, int(e.docs[n].part))
		}
		if matrix += max(len(rows), 1) * len(p.fusion.GetQueries()); matrix > maxMatrix {
			return errMatrix
		}
		// The sign of a zero says nothing (B9).
		if p.way == byFormula && s != e.docs[n].score {
			return e.faultOf(errDisagree, int(e.docs[n].part))
		}
		order[n] = placed{doc: uint32(n), score: s}
	}
	slices.SortFunc(order, func(a, b placed) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return e.docs[a.doc].at.compare(e.docs[b.doc].at)
	})
	from, to := p.pageOf(len(order))
	r.page, r.formula = order[from:to], ev
	if !p.votes {
		r.votes = nil
	}
	return nil
}

// score scores a document and its passages, which are in the order of their ordinals and valid until the next call.
func (v *evaluating) score(n uint32) (float32, []row, error) {
	scored, err := v.read(&v.e.docs[n])
	if err != nil {
		return 0, nil, err
	}
	needed := v.e.p.needed
	if needed == 0 || uint64(needed) > uint64(scored) {
		needed = int(scored)
	}
	if len(v.rows) < needed {
		return 0, nil, errRows
	}
	total := max(len(v.rows), 1)
	v.scores = slices.Grow(v.scores[:0], total)[:total]
	for from := 0; from < total; {
		got := v.batch.Start(total - from)
		for k := range got {
			if err := v.set(n, from, k); err != nil {
				return 0, nil, err
			}
		}
		if err := v.batch.Eval(v.scores[from : from+got]); err != nil {
			return 0, nil, formulaFault(err)
		}
		from += got
	}
	if len(v.rows) == 0 {
		return v.scores[0], nil, nil
	}
	for i := range v.rows {
		v.rows[i].score = v.scores[i]
	}
	s := v.e.p.combiner.Combine(v.scores)
	if !finite(s) {
		return 0, nil, formulaFault(&formula.NonFiniteError{})
	}
	return s, v.rows, nil
}

// set sets the variables of a row: the cells of a passage, else those of the document.
func (v *evaluating) set(n uint32, from, k int) error {
	passage := from+k < len(v.rows)
	for branch, q := range v.e.p.fusion.GetQueries() {
		if i := v.of[branch]; i >= 0 && v.has[branch] && !(passage && chunk(q)) {
			v.batch.Set(i, k, float64(v.cells[branch]))
		}
	}
	if v.rrf >= 0 {
		v.batch.Set(v.rrf, k, float64(v.rank(n, from+k)))
	}
	if !passage {
		return nil
	}
	c := cursor{rest: v.rows[from+k].raw}
	for f := (field{}); c.next(&f); {
		if !f.is(2, protowire.BytesType) {
			continue
		}
		branch, value, err := v.e.cell(f.val, true)
		if err != nil {
			return err
		}
		if i := v.of[branch]; i >= 0 {
			v.batch.Set(i, k, float64(value))
		}
	}
	return c.err()
}

func chunk(q *summapb.WeightedQuery) bool {
	return q.GetScope() == summapb.ScoreScope_SCORE_SCOPE_CHUNK
}

// rank is the reciprocal rank score of a row: the votes for its passage and those for the document.
func (v *evaluating) rank(n uint32, at int) float32 {
	f := v.votes[n]
	if f == nil {
		return 0
	}
	if at < len(v.rows) {
		i, ok := slices.BinarySearchFunc(f.Passages, v.rows[at].ordinal, func(q score.Passage, o uint32) int { return cmp.Compare(q.Ordinal, o) })
		if ok {
			return f.Passages[i].Score
		}
	}
	var whole float32
	for i := 0; i < len(f.Votes) && f.Votes[i].Whole; i++ { // they come first
		whole += f.Votes[i].Score
	}
	return whole
}

// read takes the candidate scores of a hit, and tells how many passages the node scored.
func (v *evaluating) read(d *doc) (scored uint32, err error) {
	if !d.cells {
		return 0, errNoCells
	}
	v.rows = v.rows[:0]
	clear(v.has[:])
	sorted := true
	c := cursor{rest: d.hit}
	for f := (field{}); c.next(&f); {
		if !f.is(5, protowire.BytesType) {
			continue
		}
		cells := cursor{rest: f.val}
		for f := (field{}); cells.next(&f); {
			switch {
			case f.is(1, protowire.BytesType):
				branch, value, err := v.e.cell(f.val, false)
				if err != nil {
					return 0, err
				}
				v.cells[branch], v.has[branch] = value, true
			case f.is(2, protowire.BytesType):
				q := row{raw: f.val}
				if q.ordinal, err = ordinalOf(f.val); err != nil {
					return 0, err
				}
				if n := len(v.rows); n > 0 && v.rows[n-1].ordinal >= q.ordinal {
					sorted = false
				}
				if len(v.rows) == v.room {
					v.room += roomStep
					if err := v.e.budget.take(roomStep * rowBytes); err != nil {
						return 0, err
					}
				}
				v.rows = append(v.rows, q)
			case f.is(3, protowire.VarintType):
				scored = uint32(f.n)
			}
		}
		if cells.bad {
			return 0, errWire
		}
	}
	if c.bad || sorted {
		return scored, c.err()
	}
	slices.SortFunc(v.rows, func(a, b row) int { return cmp.Compare(a.ordinal, b.ordinal) })
	for i := 1; i < len(v.rows); i++ {
		if v.rows[i].ordinal == v.rows[i-1].ordinal {
			return 0, errCells
		}
	}
	return scored, nil
}

// rowBytes is what a row of the largest document takes, roomStep how many are charged at a time.
const (
	rowBytes = 96
	roomStep = 1024
)

// ordinalOf is that of a PassageScores.
func ordinalOf(message []byte) (ordinal uint32, err error) {
	c := cursor{rest: message}
	for f := (field{}); c.next(&f); {
		if f.is(1, protowire.VarintType) {
			ordinal = uint32(f.n)
		}
	}
	return ordinal, c.err()
}

// cell reads an entry of a map of scores by branch, which has to be one of the scope.
func (e *evidence) cell(entry []byte, passage bool) (branch int, value float32, err error) {
	var name []byte
	c := cursor{rest: entry}
	for f := (field{}); c.next(&f); {
		switch {
		case f.is(1, protowire.BytesType):
			name = f.val
		case f.is(2, protowire.Fixed32Type):
			value = f.float()
		}
	}
	if c.bad {
		return 0, 0, errWire
	}
	branch, ok := e.p.names[string(name)]
	if !ok || chunk(e.p.fusion.GetQueries()[branch]) != passage {
		return 0, 0, errCells
	}
	if !finite(value) {
		return 0, 0, formulaFault(&formula.NonFiniteError{})
	}
	return branch, value, nil
}

// best are the best rows of a document that the answer tells: by score, then ordinal.
func (v *evaluating) best(rows []row) []score.Passage {
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.score, a.score) })
	v.order = v.order[:0]
	for _, q := range rows[:min(len(rows), v.e.p.exported)] {
		v.order = append(v.order, score.Passage{Ordinal: q.ordinal, Score: q.score})
	}
	return v.order
}

// appendCells exports the scores of a document: its own, and those of its best passages, which rows begins with.
func (e *evidence) appendCells(out []byte, d *doc, rows []row) ([]byte, error) {
	var cells, one []byte
	var scored uint32
	err := each(d.hit, func(f *field) error {
		if f.num != 5 {
			return nil
		}
		return each(f.val, func(f *field) error {
			switch {
			case f.is(3, protowire.VarintType):
				scored = uint32(f.n)
			case f.num != 2 && f.num != 3:
				cells = append(cells, f.raw...)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for i := range rows[:min(len(rows), e.p.exported)] {
		q := &rows[i]
		one = one[:0]
		err := each(q.raw, func(f *field) error {
			if f.num != 3 {
				one = append(one, f.raw...)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		one = protowire.AppendFixed32(protowire.AppendTag(one, 3, protowire.Fixed32Type), math.Float32bits(q.score))
		cells = appendBytes(cells, 2, one)
	}
	return appendBytes(out, 5, appendUint(cells, 3, uint64(scored))), nil
}
