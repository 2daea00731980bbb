package oracletest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/summa"
)

// Scored makes a request for a ranking by a formula, for an export of scores, or for both, which Request makes none of.
func (w World) Scored(docs int) *summapb.SearchRequest {
	f := &summapb.FusionQuery{Combiner: summapb.MultiValueCombiner(w.IntN(6))}
	req := &summapb.SearchRequest{IndexName: "o", Limit: uint32(1 + w.IntN(2*docs)), Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}}
	chunks := false
	for i := range 1 + w.IntN(4) {
		b := w.scoringBranch()
		b.Name = []string{"b0", "t-1", "max_score", "B"}[i]
		b.ScoreOnly = i > 0 && w.IntN(4) == 0
		chunks = chunks || b.Scope == summapb.ScoreScope_SCORE_SCOPE_CHUNK
		f.Queries = append(f.Queries, b)
	}
	for range max(0, w.IntN(4)-2) {
		f.Filters = append(f.Filters, w.query(1))
	}
	if w.IntN(2) == 0 {
		f.CandidateDepth = 1 + uint32(w.IntN(int(req.Limit)))
	}
	if w.IntN(3) == 0 {
		req.TextStats = w.textStats()
	}
	how := w.IntN(3)
	if how > 0 {
		req.L1 = &summapb.L1Ranking{Formula: w.formula(f.Queries, 4)}
		if w.IntN(2) == 0 {
			req.L1.Backfill = ptr(w.IntN(2) == 0)
		}
		for _, q := range f.Queries {
			if w.IntN(3) == 0 && strings.Contains(req.L1.Formula, "{"+q.Name+"}") {
				if req.L1.MissingValues == nil {
					req.L1.MissingValues = map[string]float64{}
				}
				req.L1.MissingValues[q.Name] = float64(w.float())
			}
		}
		if w.IntN(4) == 0 {
			req.Offset = uint32(w.IntN(5))
		}
		if w.IntN(8) == 0 {
			c, t, k, d := w.combiner()
			req.Reranker = &summapb.Reranker{Field: "denses", Vector: w.vector(12), Combiner: c, CombinerTemperature: t, CombinerTopK: k, CombinerDecay: d}
		}
	}
	if how != 1 {
		req.ScoreExport = &summapb.ScoreExport{AllPassages: w.IntN(4) == 0}
		if req.L1 != nil && req.L1.Backfill != nil && !*req.L1.Backfill {
			req.ScoreExport.AllPassages = false
		} else {
			req.ScoreExport.SeedDocumentPassages = chunks && w.IntN(3) == 0
		}
		if w.IntN(2) == 0 {
			req.ScoreExport.PassagesPerDocument = uint32(1 + w.IntN(6))
		}
		if req.L1 == nil {
			req.Limit += uint32(4 * docs)
		}
	}
	return req
}

// scoringBranch is one of a single field.
func (w World) scoringBranch() *summapb.WeightedQuery {
	b := &summapb.WeightedQuery{Scope: summapb.ScoreScope_SCORE_SCOPE_DOCUMENT}
	var f string
	plain := false
	leaf := func() *summapb.Query {
		switch w.IntN(4) {
		case 0:
			return &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: f, Term: w.word()}}}
		case 1:
			if f == "token" || f == "pos" || f == "chunk" || f == "chunkfast" {
				return &summapb.Query{Query: &summapb.Query_Phrase{Phrase: &summapb.PhraseQuery{Field: f, Text: w.words(2) + " run", Slop: uint32(w.IntN(3))}}}
			}
		case 2:
			q := &summapb.MatchQuery{Field: f, Text: w.words(5) + " car", ProximityWeight: []float32{0, 0, 1}[w.IntN(3)], MaxTerms: []uint32{0, 0, 2}[w.IntN(3)]}
			return &summapb.Query{Query: &summapb.Query_Match{Match: q}}
		}
		return &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: f, Text: w.words(3) + " sea"}}}
	}
	switch w.IntN(4) {
	case 0:
		b.Query = w.vectorQuery()
	case 1:
		f, plain = w.One(plainFields), true
		b.Query = leaf()
	default:
		f = w.One(chunkedFields)
		b.Query = leaf()
	}
	if f != "" && w.IntN(4) == 0 {
		or := &summapb.BooleanQuery{Should: []*summapb.Query{b.Query}}
		for range w.IntN(3) {
			or.Should = append(or.Should, leaf())
		}
		b.Query = &summapb.Query{Query: &summapb.Query_Boolean{Boolean: or}}
	}
	if w.IntN(5) == 0 {
		b.Query = &summapb.Query{Query: &summapb.Query_Boost{Boost: &summapb.BoostQuery{Query: b.Query, Boost: []float32{0.5, 2, -1, 1.3}[w.IntN(4)]}}}
	}
	if !plain && w.IntN(2) == 0 {
		b.Scope = summapb.ScoreScope_SCORE_SCOPE_CHUNK
	}
	return b
}

// formula makes one in which every operation stands in parentheses: which of them goes before which is for the tests of formulas.
func (w World) formula(branches []*summapb.WeightedQuery, depth int) string {
	if depth == 0 || w.IntN(5) == 0 {
		switch w.IntN(6) {
		case 0:
			return []string{"0.5", "2", "10", "0", "1.25"}[w.IntN(5)]
		case 1:
			return "rrf"
		}
		return "{" + branches[w.IntN(len(branches))].Name + "}"
	}
	a := w.formula(branches, depth-1)
	switch w.IntN(6) {
	case 0:
		return []string{"abs", "signum", "sqrt", "floor"}[w.IntN(4)] + "(" + a + ")"
	case 1: // what is given to the second argument has no call of two in it
		return []string{"min", "max"}[w.IntN(2)] + "(" + a + ", " + w.formula(branches, 0) + ")"
	}
	return "(" + a + " " + []string{"+", "-", "*", "/"}[w.IntN(4)] + " " + w.formula(branches, min(1, depth-1)) + ")"
}

// expression evaluates what formula makes.
type expression struct{ rest string }

func (e *expression) take(s string) bool {
	rest, ok := strings.CutPrefix(e.rest, s)
	e.rest = rest
	return ok
}

func (e *expression) value(at func(name string) float64) float64 {
	switch {
	case e.take("{"):
		name, rest, _ := strings.Cut(e.rest, "}")
		e.rest = rest
		return at(name)
	case e.take("rrf"):
		return at("rrf")
	case e.take("abs("):
		return e.unary(at, math.Abs)
	case e.take("sqrt("):
		return e.unary(at, math.Sqrt)
	case e.take("floor("):
		return e.unary(at, math.Floor)
	case e.take("signum("):
		return e.unary(at, func(x float64) float64 {
			if x != x {
				return x
			}
			return math.Copysign(1, x)
		})
	case e.take("min("), e.take("max("):
		panic("read by call")
	case e.take("("):
		a := e.inner(at)
		op := e.rest[1]
		e.rest = e.rest[3:]
		b := e.inner(at)
		e.take(")")
		switch op {
		case '+':
			return a + b
		case '-':
			return a - b
		case '*':
			return a * b
		}
		return a / b
	}
	n := strings.IndexFunc(e.rest, func(r rune) bool { return !strings.ContainsRune("0123456789.", r) })
	if n < 0 {
		n = len(e.rest)
	}
	var v float64
	if _, err := fmt.Sscan(e.rest[:n], &v); err != nil {
		panic(err)
	}
	e.rest = e.rest[n:]
	return v
}

func (e *expression) unary(at func(string) float64, f func(float64) float64) float64 {
	a := e.inner(at)
	e.take(")")
	return f(a)
}

// inner is value, with the calls of two.
func (e *expression) inner(at func(string) float64) float64 {
	least := strings.HasPrefix(e.rest, "min(")
	if !least && !strings.HasPrefix(e.rest, "max(") {
		return e.value(at)
	}
	e.rest = e.rest[len("min("):]
	a := e.inner(at)
	e.take(", ")
	b := e.inner(at)
	e.take(")")
	// A value that is no number loses against one; of the zeros the negative one is the lesser.
	switch {
	case a != a:
		return b
	case b != b:
		return a
	case least:
		return math.Min(a, b)
	}
	return math.Max(a, b)
}

// candidate is a document that some branch nominated, with the scores of all branches. Nil: it has no value that the branch could score.
type candidate struct {
	d        *odoc
	document []*float32
	passages map[uint32][]*float32
	organic  []orow
	rows     []uint32 // ordinals, ascending
	score    map[uint32]float32
}

// exported is what is sent of a candidate.
type exported struct {
	document map[string]float32
	passages []exportedPassage
	scored   int
}

type exportedPassage struct {
	ordinal uint32
	scores  map[string]float32
	l1      *float32
}

// scored answers a request with a formula or an export.
func (r *running) scored(req *summapb.SearchRequest, w summa.Window) (hits []ohit, total int, exports map[*odoc]exported) {
	f := req.Query.GetFusion()
	l1, export := req.L1, req.ScoreExport
	chunk := func(i int) bool { return f.Queries[i].Scope == summapb.ScoreScope_SCORE_SCOPE_CHUNK }
	var clauses, filters []*clause
	for _, q := range f.Queries {
		clauses = append(clauses, r.clause(q.Query))
	}
	for _, q := range f.Filters {
		filters = append(filters, r.clause(q))
	}
	branches := make([][]ohit, len(clauses))
	for i, c := range clauses {
		if f.Queries[i].ScoreOnly || c.kind == oNothing || c.kind == oStops {
			continue
		}
		var n int
		branches[i], n = r.nominate(i, c, filters, w.Depth)
		total += n
	}
	at := map[*odoc]*candidate{}
	var cands []*candidate
	for i, hits := range branches {
		for _, h := range hits {
			c := at[h.d]
			if c == nil {
				c = &candidate{d: h.d, document: make([]*float32, len(clauses)), passages: map[uint32][]*float32{}, score: map[uint32]float32{}}
				at[h.d] = c
				cands = append(cands, c)
			}
			c.organic = append(c.organic, h.rows...)
			if !chunk(i) {
				c.document[i] = ptr(h.score)
			} else {
				for _, x := range h.rows {
					c.passage(x.ordinal, len(clauses))[i] = ptr(x.score)
				}
			}
		}
	}
	slices.SortFunc(cands, func(a, b *candidate) int {
		return comparePlain(ohit{d: a.d}, ohit{d: b.d})
	})
	for _, c := range cands {
		if export.GetAllPassages() || export.GetSeedDocumentPassages() && len(c.passages) == 0 {
			for i, k := range clauses {
				if chunk(i) {
					for _, o := range r.stored(k, c.d) {
						c.passage(o, len(clauses))
					}
				}
			}
		}
		if l1 == nil || l1.Backfill == nil || *l1.Backfill {
			for i, k := range clauses {
				r.at(c.d).backfill(c, i, k, chunk(i))
			}
		}
		c.rows = slices.Sorted(maps.Keys(c.passages))
	}
	if l1 != nil {
		hits = r.formula(f, l1, export, branches, cands, chunk, w.Hits())
	} else {
		for _, c := range cands {
			rows := slices.Clone(c.organic)
			slices.SortStableFunc(rows, func(a, b orow) int { return cmp.Compare(b.score, a.score) })
			hits = append(hits, ohit{d: c.d, rows: rows[:min(8, len(rows))]})
		}
		if w.Limit < len(cands) {
			r.refuse()
		}
	}
	if export != nil {
		exports = map[*odoc]exported{}
		most := int(cmp.Or(export.PassagesPerDocument, 65536))
		for _, c := range cands {
			if exports[c.d] = c.export(f, most, l1 != nil, chunk); l1 == nil && len(c.rows) > most {
				r.refuse()
			}
		}
	}
	return hits, total, exports
}

func (c *candidate) passage(ordinal uint32, branches int) []*float32 {
	if c.passages[ordinal] == nil {
		c.passages[ordinal] = make([]*float32, branches)
	}
	return c.passages[ordinal]
}

// field is that of a clause, −1 where it has none: words that the tokenizer leaves nothing of.
func (c *clause) scores() int {
	switch c.kind {
	case oNothing, oStops:
		return -1
	case oBoost:
		return c.of.scores()
	case oBool:
		for _, k := range append(slices.Clone(c.must), c.should...) {
			if f := k.scores(); f >= 0 {
				return f
			}
		}
		return -1
	}
	return c.field
}

// stored are the ordinals of the values that a document has of the field of a branch.
func (r *running) stored(c *clause, d *odoc) (out []uint32) {
	f := c.scores()
	if f < 0 {
		return nil
	}
	if r.sch.Fields[f].Chunked {
		for i, v := range d.toks[f] {
			if length(v) > 0 {
				out = append(out, uint32(i))
			}
		}
		return out
	}
	for i := range d.vecs[f] {
		out = append(out, uint32(i))
	}
	return out
}

// backfill scores what a branch did not nominate: 0 where a value does not match, nothing where there is none.
func (r *running) backfill(c *candidate, i int, k *clause, chunk bool) {
	f := k.scores()
	if f < 0 {
		return
	}
	if chunk {
		rows := r.valueRows(k, c.d, true)
		for _, o := range r.stored(k, c.d) {
			cells := c.passages[o]
			if cells == nil || cells[i] != nil {
				continue
			}
			cells[i] = ptr(float32(0))
			for _, x := range rows {
				if x.ordinal == o {
					cells[i] = ptr(x.score)
				}
			}
		}
		return
	}
	if c.document[i] != nil {
		return
	}
	has := len(c.d.text[f]) > 0
	if r.sch.Fields[f].Type != schema.Text {
		has = len(c.d.vecs[f]) > 0
	}
	if has {
		s, ok := r.whole(k, c.d)
		if !ok {
			s = 0 // no sign
		}
		c.document[i] = &s
	}
}

// whole is the score of a document by a branch, as it would nominate it.
func (r *running) whole(c *clause, d *odoc) (s float32, ok bool) {
	switch c.kind {
	case oBoost:
		if !c.around() {
			s, ok, _ = r.eval(c, d, 0)
			return s, ok
		}
		s, ok = r.whole(c.of, d)
		return s * c.factor, ok
	case oVector:
		rows := c.values(d)
		if len(rows) == 0 {
			return 0, false
		}
		return c.combine.of(rows), true
	case oPassages:
		rows := r.valueRows(c, d, true)
		if len(rows) == 0 {
			return 0, false
		}
		return best(rows), true
	case oText:
		s, ok, _ = r.text(c, d)
		if ok && c.weight > 0 {
			values := d.toks[c.field]
			s += r.near(c, values, min(length(values...), 65535))
		}
		return s, ok
	}
	if rank, ranks := r.ranking(c); ranks && rank != c {
		return r.whole(rank, d)
	}
	s, ok, _ = r.eval(c, d, 0)
	return s, ok
}

// around tells whether what a boost stands around scores as it does alone: see run.
func (c *clause) around() bool {
	of := c
	for of.kind == oBoost {
		of = of.of
	}
	return of.kind == oPassages && of.match || of.kind == oVector || of.weight > 0
}

// valueRows are the scores of the values of a document by a branch. Open: proximity adds nothing within a larger query.
func (r *running) valueRows(c *clause, d *odoc, whole bool) (rows []orow) {
	switch c.kind {
	case oBoost:
		rows = r.valueRows(c.of, d, whole && c.around())
		for i := range rows {
			rows[i].score *= c.factor
		}
	case oVector:
		rows = c.values(d)
	case oPassages:
		rows = r.passages(c, d)
		if whole && c.weight > 0 {
			floor := r.floor(c.field)
			for j := range rows {
				v := d.toks[c.field][rows[j].ordinal]
				rows[j].score += r.near(c, [][]otok{v}, max(length(v), floor))
			}
		}
	case oBool:
		if rank, ranks := r.ranking(c); whole && ranks && rank != c {
			return r.valueRows(rank, d, whole)
		}
		for _, k := range append(slices.Clone(c.must), r.some(c)...) {
			for _, x := range r.valueRows(k, d, false) {
				rows = add(rows, x)
			}
		}
	}
	return rows
}

// formula ranks candidates.
func (r *running) formula(f *summapb.FusionQuery, l1 *summapb.L1Ranking, export *summapb.ScoreExport, branches [][]ohit, cands []*candidate, chunk func(int) bool, hitsOf int) (hits []ohit) {
	documents, passages := r.votes(f, branches, chunk)
	comb := ocombiner{kind: f.Combiner}
	if comb.kind == 0 || comb.kind > summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K {
		comb.kind = summapb.MultiValueCombiner_COMBINER_MAX
	}
	for _, c := range cands {
		eval := func(rrf float32, cell func(i int) *float32) float32 {
			e := expression{l1.Formula}
			v := e.inner(func(name string) float64 {
				if name == "rrf" {
					return float64(rrf)
				}
				i := slices.IndexFunc(f.Queries, func(q *summapb.WeightedQuery) bool { return q.Name == name })
				if x := cell(i); x != nil {
					return float64(*x)
				}
				return l1.MissingValues[name]
			})
			if e.rest != "" {
				panic("formula not read to its end: " + e.rest)
			}
			s := float32(v)
			if s-s != 0 {
				r.bad = errors.New("not finite")
			}
			return s
		}
		h := ohit{d: c.d}
		if len(c.rows) == 0 {
			h.score = eval(documents[c.d], func(i int) *float32 { return c.document[i] })
			hits = append(hits, h)
			continue
		}
		for _, o := range c.rows {
			s := eval(float32(passages[c.d][o]+documents[c.d]), func(i int) *float32 {
				if chunk(i) {
					return c.passages[o][i]
				}
				return c.document[i]
			})
			c.score[o] = s
			h.rows = append(h.rows, orow{0, o, s})
		}
		h.score = comb.of(h.rows)
		if h.score == 0 && comb.kind != summapb.MultiValueCombiner_COMBINER_MAX {
			// Negative zeros alone make one, but for the weighted ones.
			h.score = 0
			if comb.kind != summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K && !slices.ContainsFunc(h.rows, func(x orow) bool { return x.score != 0 || !math.Signbit(float64(x.score)) }) {
				h.score = float32(math.Copysign(0, -1))
			}
		}
		slices.SortStableFunc(h.rows, func(a, b orow) int { return cmp.Compare(b.score, a.score) })
		most := len(h.rows)
		switch comb.kind {
		case summapb.MultiValueCombiner_COMBINER_MAX: // and equals
			for most = 1; most < len(h.rows) && h.rows[most].score == h.rows[0].score; most++ {
			}
		case summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K:
			most = 5
		}
		if export != nil {
			most = max(most, int(cmp.Or(export.PassagesPerDocument, 65536)))
		}
		if len(r.shards) > 0 { // a broker asks nodes for what the score needs, and tells what it is asked for
			most = 8
			if export != nil {
				most = int(cmp.Or(export.PassagesPerDocument, 65536))
			}
		}
		h.rows = h.rows[:min(most, len(h.rows))]
		hits = append(hits, h)
	}
	return r.ranked(hits, func(of []ohit) int {
		if strings.Contains(l1.Formula, "rrf") { // nodes give all that they nominate
			return len(of)
		}
		return min(len(of), hitsOf)
	})
}

// votes are those of reciprocal ranks, for documents and for passages.
func (r *running) votes(f *summapb.FusionQuery, branches [][]ohit, chunk func(int) bool) (documents map[*odoc]float32, passages map[*odoc]map[uint32]float32) {
	documents, passages = map[*odoc]float32{}, map[*odoc]map[uint32]float32{}
	for i, hits := range branches {
		if !chunk(i) {
			for n, h := range hits {
				documents[h.d] += 1 / float32(60+n+1)
			}
			continue
		}
		var list []ohit
		for _, h := range hits {
			for _, x := range h.rows {
				list = append(list, ohit{h.d, x.score, []orow{x}})
			}
		}
		slices.SortFunc(list, func(a, b ohit) int {
			return cmp.Or(comparePlain(a, b), cmp.Compare(a.rows[0].ordinal, b.rows[0].ordinal))
		})
		for n, h := range list {
			if passages[h.d] == nil {
				passages[h.d] = map[uint32]float32{}
			}
			passages[h.d][h.rows[0].ordinal] += 1 / float32(60+n+1)
		}
	}
	return documents, passages
}

func (c *candidate) export(f *summapb.FusionQuery, most int, ranked bool, chunk func(int) bool) exported {
	out := exported{document: map[string]float32{}, scored: len(c.rows)}
	for i, x := range c.document {
		if x != nil && !chunk(i) {
			out.document[f.Queries[i].Name] = *x
		}
	}
	rows := slices.Clone(c.rows) // by ordinal
	if ranked {
		slices.SortStableFunc(rows, func(a, b uint32) int { return cmp.Compare(c.score[b], c.score[a]) })
	}
	for _, o := range rows[:min(most, len(rows))] {
		p := exportedPassage{ordinal: o, scores: map[string]float32{}}
		for i, x := range c.passages[o] {
			if x != nil {
				p.scores[f.Queries[i].Name] = *x
			}
		}
		if ranked {
			p.l1 = ptr(c.score[o])
		}
		out.passages = append(out.passages, p)
	}
	return out
}

func (e exported) String() string {
	s := fmt.Sprint("exported", scoreMap(e.document), " of ", e.scored)
	for _, p := range e.passages {
		s += fmt.Sprint(" (", p.ordinal, scoreMap(p.scores))
		if p.l1 != nil {
			s += " = " + Score(*p.l1)
		}
		s += ")"
	}
	return s
}

func exportOf(m *summapb.CandidateScores) string {
	e := exported{document: m.Document, scored: int(m.ScoredPassages)}
	for _, p := range m.Passages {
		e.passages = append(e.passages, exportedPassage{p.Ordinal, p.Scores, p.L1Score})
	}
	return e.String()
}

func scoreMap(m map[string]float32) (s string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s += " " + k + " " + Score(m[k])
	}
	return s
}
