package oracletest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"strings"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vector"
)

// Oracle answers searches by looking at every value of every document for every clause. Of the engine it uses tokenizers, the schema,
// and the similarity of one dense vector, whose order of sums is the kernel's own.
//
// Where neither the contract nor the recordings say what holds, it has the rule of the code. Those are marked "open".
type Oracle struct {
	sch  *schema.Schema
	an   exec.Analyzers
	docs []*odoc // by place
	// The partition of each leaf, and the names of all of them; nil: there is one that is asked without a broker.
	part  []int
	parts []string
}

type odoc struct {
	key  string
	leaf int
	doc  uint32
	text map[int][]string
	toks map[int][][]otok
	nums map[int][]*big.Rat
	vecs map[int][]*summapb.FieldValue
}

type otok struct {
	text string
	pos  uint32 // in its value
}

// New makes an oracle without documents.
func New(sch *schema.Schema, an exec.Analyzers) *Oracle { return &Oracle{sch: sch, an: an} }

// Add adds a document, which lies in a leaf as its doc-th. Ready has to be called behind the last one.
func (o *Oracle) Add(key string, leaf int, doc uint32, fields []*summapb.FieldEntry) {
	d := &odoc{key, leaf, doc, map[int][]string{}, map[int][][]otok{}, map[int][]*big.Rat{}, map[int][]*summapb.FieldValue{}}
	var scratch text.Scratch
	var langs []string
	for _, e := range fields {
		if e.Name == "lang" {
			langs = append(langs, e.Value.GetText())
		}
	}
	for _, e := range fields {
		f, _ := o.sch.Lookup(e.Name)
		switch v := e.Value.Value.(type) {
		case *summapb.FieldValue_Text:
			d.text[f] = append(d.text[f], v.Text)
			if o.sch.Fields[f].Indexed {
				toks := []otok{}
				a := o.an(f)
				if a.HintField() != "" && len(langs) > 0 {
					a = a.WithHint(strings.Join(langs, ","))
				}
				for _, t := range a.Index(&scratch, v.Text) {
					toks = append(toks, otok{string(t.Text), t.Pos})
				}
				d.toks[f] = append(d.toks[f], toks)
			}
		case *summapb.FieldValue_U64:
			d.nums[f] = append(d.nums[f], new(big.Rat).SetUint64(v.U64))
		case *summapb.FieldValue_I64:
			d.nums[f] = append(d.nums[f], new(big.Rat).SetInt64(v.I64))
		case *summapb.FieldValue_F64:
			d.nums[f] = append(d.nums[f], new(big.Rat).SetFloat64(v.F64))
		default:
			d.vecs[f] = append(d.vecs[f], e.Value)
		}
	}
	o.docs = append(o.docs, d)
}

// Ready puts the documents in order.
func (o *Oracle) Ready() {
	slices.SortFunc(o.docs, func(a, b *odoc) int { return cmp.Or(cmp.Compare(a.leaf, b.leaf), cmp.Compare(a.doc, b.doc)) })
}

// Place is where a document lies.
type Place struct {
	Key  string
	Leaf int
	Doc  uint32
}

// Places are those of all documents, in order.
func (o *Oracle) Places() []Place {
	out := make([]Place, len(o.docs))
	for i, d := range o.docs {
		out[i] = Place{d.key, d.leaf, d.doc}
	}
	return out
}

// length is the number of tokens of values: of one position that holds several tokens, one.
func length(values ...[]otok) int {
	n := 0
	for _, toks := range values {
		at := map[uint32]bool{}
		for _, t := range toks {
			at[t.pos] = true
		}
		n += len(at)
	}
	return n
}

// places are where a word stands in a value.
func places(toks []otok, word string) (out []uint32) {
	for _, t := range toks {
		if t.text == word && (len(out) == 0 || out[len(out)-1] != t.pos) {
			out = append(out, t.pos)
		}
	}
	return out
}

// tf is how often a word stands in all values.
func tf(values [][]otok, word string) (n int) {
	for _, v := range values {
		n += len(places(v, word))
	}
	return n
}

// orow is the score of a value.
type orow struct {
	field   int
	ordinal uint32
	score   float32
}

type ohit struct {
	d     *odoc
	score float32
	rows  []orow
}

// compareOhits is the order of hits. Open: of the two zeros the negative one is the lesser, but not where every match is found.
func compareOhits(a, b ohit) int {
	if a.score == 0 && b.score == 0 {
		if x, y := math.Signbit(float64(a.score)), math.Signbit(float64(b.score)); x != y {
			if x {
				return 1
			}
			return -1
		}
	}
	return comparePlain(a, b)
}

func comparePlain(a, b ohit) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.d.leaf, b.d.leaf), cmp.Compare(a.d.doc, b.d.doc))
}

// okind is the sort of a clause.
type okind int

const (
	oNothing okind = iota
	oStops
	oFilter // scores 1
	oColumn // a word in a column without an index: scores 1
	oText
	oPassages
	oVector
	oBool
	oBoost
)

// clause is a query taken apart.
type clause struct {
	kind                okind
	field               int
	isPrefix            bool
	filter              func(d *odoc) bool
	words               []oword
	term, match, phrase bool
	slop                uint32
	most                int // words of a match that score
	weight              float32
	window              uint32

	values  func(d *odoc) []orow // oVector
	combine ocombiner
	zero    bool // a dense query without a direction

	must, should, not []*clause
	of                *clause
	factor            float32
}

type oword struct {
	text   string
	times  int
	offset uint32
}

// running is one request.
type running struct {
	*Oracle
	docs, counted []*odoc            // those that are searched, and those that statistics are of
	shards        []*running         // of each partition
	said          map[int]nomination // of each branch of a fusion; of another query by 0
	given         *summapb.TextStats
	k             int
	cache         map[*clause]map[*odoc]float32
	memo          map[string]any
	bad           error
	wrong         string // what cannot be, of a kernel that the oracle uses
}

// once computes something of a field once for a request.
func once[T any](r *running, what string, field int, word string, f func() T) T {
	key := fmt.Sprint(what, field, " ", word)
	if v, ok := r.memo[key]; ok {
		return v.(T)
	}
	v := f()
	r.memo[key] = v
	return v
}

// bm25 in binary32, each operation rounded.
func bm25(idf float32, tf, length int, avg, k1, b float32) float32 {
	f := float32(tf)
	norm := float32(k1 * float32(float32(1-b)+float32(b*float32(float32(length)/avg))))
	return float32(idf * float32(float32(f*float32(k1+1))/float32(f+norm)))
}

func idf(n, df uint64) float32 {
	q := float32(float32(float32(n)-float32(df))+0.5) / float32(float32(df)+0.5)
	return float32(math.Log(float64(float32(q + 1))))
}

func (r *running) stats(field int) *summapb.TextFieldStats {
	for _, f := range r.given.GetFields() {
		if f.Field == r.sch.Fields[field].Name {
			return f
		}
	}
	return nil
}

func givenDF(st *summapb.TextFieldStats, word string) uint64 {
	for _, t := range st.GetTerms() {
		if string(t.Term) == word {
			return t.DocFreq
		}
	}
	return 0
}

func average(tokens, of uint64) float32 {
	if of == 0 {
		return 1
	}
	return max(float32(float64(tokens)/float64(of)), 1)
}

// fieldStats are those that a field is scored with: of live documents, or of live passages that have a token.
func (r *running) fieldStats(field int) (n uint64, avg float32) {
	st := once(r, "stats", field, "", func() (x struct {
		n   uint64
		avg float32
	},
	) {
		x.n, x.avg = r.countField(field)
		return x
	})
	return st.n, st.avg
}

func (r *running) countField(field int) (n uint64, avg float32) {
	var tokens, have, passages uint64
	for _, d := range r.counted {
		if len(d.text[field]) > 0 {
			have++
		}
		tokens += uint64(min(length(d.toks[field]...), 65535))
		for _, v := range d.toks[field] {
			if length(v) > 0 {
				passages++
			}
		}
	}
	n = uint64(len(r.counted))
	if r.sch.Fields[field].Chunked {
		n, have = passages, passages
	}
	avg = average(tokens, have)
	if st := r.stats(field); st != nil {
		n, avg = st.CorpusSize, max(st.AvgLen, 1)
		if st.GetDocsWithField() > 0 {
			avg = average(st.GetTotalTokens(), st.GetDocsWithField())
		}
	}
	return n, avg
}

// known is the document frequency that max_terms goes by: that of the statistics where they are given.
func (r *running) known(field int, word string) uint64 {
	if st := r.stats(field); st != nil {
		return givenDF(st, word)
	}
	return r.ownDF(field, word)
}

func (r *running) ownDF(field int, word string) uint64 {
	return once(r, "df", field, word, func() uint64 { return r.countDF(field, word) })
}

func (r *running) countDF(field int, word string) (df uint64) {
	for _, d := range r.counted {
		some := false
		for _, v := range d.toks[field] {
			if len(places(v, word)) > 0 {
				if some = true; r.sch.Fields[field].Chunked {
					df++
				}
			}
		}
		if some && !r.sch.Fields[field].Chunked {
			df++
		}
	}
	return df
}

// idfOf is that of a word. Open: a word that given statistics lack counts as in no passage of chunked text, but in plain text with the
// documents of this index that have it.
func (r *running) idfOf(field int, word string) float32 {
	n, _ := r.fieldStats(field)
	df := r.known(field, word)
	if r.sch.Fields[field].Chunked {
		return idf(max(n, df), df)
	}
	if df == 0 {
		df = r.ownDF(field, word)
	}
	return idf(n, min(df, n))
}

// floor is the least length of a passage: the 90th percentile of all, of those that came along where there are any.
func (r *running) floor(field int) int {
	return once(r, "floor", field, "", func() int { return r.findFloor(field) })
}

func (r *running) findFloor(field int) int {
	var all []int
	for _, d := range r.counted {
		for _, v := range d.toks[field] {
			if n := length(v); n > 0 {
				all = append(all, n)
			}
		}
	}
	if st := r.stats(field); len(st.GetChunkLengths()) > 0 {
		all = all[:0]
		for i, n := range st.GetChunkLengths() {
			for range st.GetChunkCounts()[i] {
				all = append(all, int(n))
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	sort.Ints(all)
	return all[(len(all)*9+9)/10-1]
}

// kept are the words of a match that score: the rarest, those in no document last, equals in order of the text.
func (r *running) kept(c *clause) []oword {
	if c.most == 0 || len(c.words) <= c.most {
		return c.words
	}
	at := make([]int, len(c.words))
	for i := range at {
		at[i] = i
	}
	rank := func(i int) uint64 { return r.known(c.field, c.words[i].text) - 1 }
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	at = at[:c.most]
	sort.Ints(at)
	var out []oword
	for _, i := range at {
		out = append(out, c.words[i])
	}
	return out
}

// starts counts the places of a phrase in one value.
func (c *clause) starts(v []otok) (n int) {
next:
	for _, p := range places(v, c.words[0].text) {
		for _, w := range c.words[1:] {
			want := int64(p) + int64(w.offset)
			if !slices.ContainsFunc(places(v, w.text), func(q uint32) bool { return max(int64(q)-want, want-int64(q)) <= int64(c.slop) }) {
				continue next
			}
		}
		n++
	}
	return n
}

func (r *running) text(c *clause, d *odoc) (score float32, ok bool, rows []orow) {
	f := &r.sch.Fields[c.field]
	values := d.toks[c.field]
	_, avg := r.fieldStats(c.field)
	size := min(length(values...), 65535)
	if c.phrase {
		n := 0
		for _, v := range values {
			n += c.starts(v)
		}
		var sum float32
		for _, w := range c.words {
			sum += r.idfOf(c.field, w.text)
		}
		if n == 0 {
			return 0, false, nil
		}
		return bm25(sum, n, size, avg, f.K1, f.B), true, nil
	}
	for _, w := range r.kept(c) {
		n := tf(values, w.text)
		if n == 0 {
			continue
		}
		ok = true
		s := float32(float32(w.times) * bm25(r.idfOf(c.field, w.text), n, size, avg, f.K1, f.B))
		score += s
		// Each occurrence has a share: of terms with any kind of positions, of matches with whole ones.
		if f.Positions == schema.NoPositions || !c.term && !(c.match && f.Positions == schema.FullPositions) {
			continue
		}
		for i, v := range values {
			for _, p := range places(v, w.text) {
				ordinal := uint32(i)<<20 + p
				switch f.Positions {
				case schema.TokenPositions:
					ordinal = p
				case schema.Ordinals:
					ordinal = uint32(i) << 20
				}
				rows = add(rows, orow{c.field, ordinal, float32(s / float32(n))})
			}
		}
	}
	return score, ok, rows
}

// add adds a row. Rows of one field and ordinal are one.
func add(rows []orow, x orow) []orow {
	for i := range rows {
		if rows[i].field == x.field && rows[i].ordinal == x.ordinal {
			rows[i].score += x.score
			return rows
		}
	}
	return append(rows, x)
}

// passages are the rows of chunked text.
func (r *running) passages(c *clause, d *odoc) (rows []orow) {
	f := &r.sch.Fields[c.field]
	_, avg := r.fieldStats(c.field)
	floor := r.floor(c.field)
	words := r.kept(c)
	for i, v := range d.toks[c.field] {
		size := max(length(v), floor)
		if c.phrase {
			var sum float32
			for _, w := range words {
				sum += r.idfOf(c.field, w.text)
			}
			if n := c.starts(v); n > 0 {
				rows = append(rows, orow{c.field, uint32(i), bm25(sum, n, size, avg, f.K1, f.B)})
			}
			continue
		}
		var sum float32
		some := false
		for _, w := range words {
			if n := tf([][]otok{v}, w.text); n > 0 {
				some = true
				sum += float32(float32(w.times) * bm25(r.idfOf(c.field, w.text), n, size, avg, f.K1, f.B))
			}
		}
		if some {
			rows = append(rows, orow{c.field, uint32(i), sum})
		}
	}
	return rows
}

func best(rows []orow) float32 {
	m := rows[0].score
	for _, x := range rows {
		m = max(m, x.score)
	}
	return m
}

// near is the proximity of the words of a match within one value, or, of plain text, within each of several. Open: a pair within the
// window that stands in two values is none.
func (r *running) near(c *clause, values [][]otok, size int) float32 {
	f := &r.sch.Fields[c.field]
	words := r.kept(c)
	_, avg := r.fieldStats(c.field)
	var sum float32
	for i := range len(words) - 1 {
		ordered, within := 0, 0
		for _, v := range values {
			for _, p := range places(v, words[i].text) {
				for _, q := range places(v, words[i+1].text) {
					if q == p+1 {
						ordered++
					}
					if max(int64(p)-int64(q), int64(q)-int64(p)) <= int64(c.window) {
						within++
					}
				}
			}
		}
		mean := float32(float32(r.idfOf(c.field, words[i].text)+r.idfOf(c.field, words[i+1].text)) * 0.5)
		if ordered > 0 {
			sum += bm25(mean, ordered, size, avg, f.K1, f.B)
		}
		if within > 0 {
			sum += float32(0.5 * bm25(mean, within, size, avg, f.K1, f.B))
		}
	}
	return float32(c.weight * sum)
}

// isFilter tells whether a required clause adds nothing where something else scores.
func (r *running) isFilter(c *clause) bool {
	switch c.kind {
	case oFilter, oColumn:
		return true
	case oText, oPassages:
		return c.term && r.sch.Fields[c.field].Fast
	}
	return false
}

func (r *running) onlyFilters(c *clause) bool {
	return len(c.should) == 0 && !slices.ContainsFunc(c.must, func(m *clause) bool { return !r.isFilter(m) })
}

// some are the optional clauses that take part: of more than 64 the rarest words, or the first ones.
func (r *running) some(c *clause) []*clause {
	if len(c.should) <= 64 {
		return c.should
	}
	if slices.ContainsFunc(c.should, func(s *clause) bool { return len(s.words) != 1 }) {
		return c.should[:64]
	}
	at := make([]int, len(c.should))
	for i := range at {
		at[i] = i
	}
	rank := func(i int) uint64 {
		s := c.should[i]
		df := r.known(s.field, s.words[0].text)
		if df == 0 && !r.sch.Fields[s.field].Chunked {
			df = r.ownDF(s.field, s.words[0].text)
		}
		return df - 1
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	at = at[:64]
	sort.Ints(at)
	var out []*clause
	for _, i := range at {
		out = append(out, c.should[i])
	}
	return out
}

// eval scores a document for a clause that every match of is found. Vectors within match their best k documents; k 0 is no bound.
func (r *running) eval(c *clause, d *odoc, k int) (score float32, ok bool, rows []orow) {
	switch c.kind {
	case oFilter, oColumn:
		return 1, c.filter(d), nil
	case oText:
		return r.text(c, d)
	case oPassages:
		rows = r.passages(c, d)
		if len(rows) == 0 {
			return 0, false, nil
		}
		if c.phrase || len(c.words) == 1 {
			return best(rows), true, rows
		}
		// Open: within a larger query each word of a match scores by its own best passage. The rows are those of the words together.
		for _, w := range r.kept(c) {
			if one := r.passages(&clause{kind: oPassages, field: c.field, words: []oword{w}}, d); len(one) > 0 {
				score += best(one)
			}
		}
		return score, true, rows
	case oVector:
		// Open: a vector within a Boolean matches the k nearest documents, also where it is prohibited; as a filter all.
		score, ok = r.nominated(c, k)[d]
		if !ok {
			return 0, false, nil
		}
		return score, true, c.values(d)
	case oBoost:
		score, ok, rows = r.eval(c.of, d, k)
		for i := range rows {
			rows[i].score *= c.factor
		}
		score *= c.factor
		if words := r.kept(c.of); ok && c.of.kind == oText && !c.of.phrase && len(words) == 1 && words[0].times > 1 {
			// Open: the boost of one word of plain text is multiplied with the times that the word stands in the query first.
			once := *c.of
			once.words = []oword{{words[0].text, 1, 0}}
			score, _, _ = r.eval(&once, d, k)
			score *= float32(c.factor * float32(words[0].times))
		}
		return score, ok, rows
	case oBool:
	default:
		return 0, false, nil
	}
	filters := r.onlyFilters(c)
	for _, m := range c.must {
		s, found, rs := r.eval(m, d, k)
		if !found {
			return 0, false, nil
		}
		if filters || !r.isFilter(m) {
			score += s
			for _, x := range rs {
				rows = add(rows, x)
			}
		}
	}
	for _, m := range c.not {
		if _, found, _ := r.eval(m, d, k); found {
			return 0, false, nil
		}
	}
	any := false
	for _, m := range r.some(c) {
		if s, found, rs := r.eval(m, d, k); found {
			any = true
			score += s
			for _, x := range rs {
				rows = add(rows, x)
			}
		}
	}
	if len(c.must) == 0 && len(c.should) > 0 && !any {
		return 0, false, nil
	}
	return score, true, rows
}

// nominated are the k documents nearest to a vector; k 0 is no bound.
func (r *running) nominated(c *clause, k int) map[*odoc]float32 {
	if k != r.k {
		c = &clause{values: c.values, combine: c.combine}
	}
	if m := r.cache[c]; m != nil {
		return m
	}
	m := map[*odoc]float32{}
	for _, h := range r.nearest(c, k) {
		m[h.d] = h.score
	}
	if k == r.k {
		r.cache[c] = m
	}
	return m
}

func (r *running) nearest(c *clause, k int) []ohit {
	var hits []ohit
	for _, d := range r.docs {
		if rows := c.values(d); len(rows) > 0 {
			hits = append(hits, ohit{d, c.combine.of(rows), rows})
		}
	}
	slices.SortFunc(hits, compareOhits)
	if k > 0 {
		hits = hits[:min(k, len(hits))]
	}
	return hits
}

// passing tells whether a document passes filters.
func (r *running) passing(d *odoc, filters, not []*clause) bool {
	for _, f := range filters {
		if _, ok, _ := r.eval(f, d, 0); !ok {
			return false
		}
	}
	for _, f := range not {
		if _, ok, _ := r.eval(f, d, 0); ok {
			return false
		}
	}
	return true
}

// ranking tells whether a clause finds its best documents only: passages of one field or a vector, alone or beside filters.
func (r *running) ranking(c *clause) (rank *clause, ok bool) {
	if c.kind == oPassages || c.kind == oVector {
		return c, true
	}
	if c.kind != oBool || len(c.should) == 0 || slices.ContainsFunc(c.must, func(m *clause) bool { return !r.isFilter(m) }) {
		return nil, false
	}
	if s := c.should[0]; len(c.should) == 1 && (s.kind == oPassages || s.kind == oVector) {
		return s, true
	}
	// Words of one chunked field score together.
	rank = &clause{kind: oPassages, field: c.should[0].field, match: true, most: 64}
	for _, s := range c.should {
		if s.kind != oPassages || s.phrase || s.match || s.field != rank.field {
			return nil, false
		}
		if i := slices.IndexFunc(rank.words, func(w oword) bool { return w.text == s.words[0].text }); i >= 0 {
			rank.words[i].times++
			continue
		}
		rank.words = append(rank.words, s.words[0])
	}
	return rank, true
}

// run finds the best k documents of a clause among those that filters find.
func (r *running) run(c *clause, filters []*clause, k int) (hits []ohit, total int) {
	if c.kind == oBoost && c.around() {
		// Open: what is boosted is the best by the query within, also where the factor turns their order around.
		hits, total = r.run(c.of, filters, k)
		for i := range hits {
			hits[i].score *= c.factor
			for j := range hits[i].rows {
				hits[i].rows[j].score *= c.factor
			}
		}
		slices.SortFunc(hits, compareOhits)
		return hits, total
	}
	rank, ranks := r.ranking(c)
	switch {
	case ranks:
		var must, not []*clause
		if c.kind == oBool {
			must, not = c.must, c.not
		}
		hits = r.best(rank, append(slices.Clone(must), filters...), not, k)
		return hits, len(hits)
	case c.kind == oBool && len(c.must) > 0 && len(c.should) > 1 && !slices.ContainsFunc(c.must, func(m *clause) bool { return !r.isFilter(m) }) &&
		!slices.ContainsFunc(c.should, func(s *clause) bool { return s.kind == oFilter || s.kind == oBool || s.kind == oBoost }):
		return r.eachRanks(c, filters, k)
	}
	for _, d := range r.docs {
		if s, ok, rows := r.eval(c, d, k); ok && r.passing(d, filters, nil) {
			hits = append(hits, ohit{d, s, rows})
		}
	}
	total = len(hits)
	if c.phrase && c.kind == oText {
		total = entered(hits, k)
	}
	slices.SortFunc(hits, comparePlain)
	if c.weight > 0 && c.kind == oText {
		hits = hits[:min(max(64, 4*k), len(hits))]
		for i := range hits {
			values := hits[i].d.toks[c.field]
			hits[i].score += r.near(c, values, min(length(values...), 65535))
		}
		slices.SortFunc(hits, compareOhits)
	}
	hits = hits[:min(k, len(hits))]
	if c.match && c.kind == oText || c.isPrefix {
		total = len(hits)
	}
	for i := range hits {
		slices.SortStableFunc(hits[i].rows, func(a, b orow) int { return cmp.Compare(a.ordinal, b.ordinal) })
	}
	return hits, total
}

// entered counts the documents that were among the best k when they were met. The total of a phrase is that: the reference passes over
// what cannot be among the best any more.
func entered(hits []ohit, k int) (n int) {
	var top []ohit
	for _, h := range hits {
		top = append(top, h)
		slices.SortFunc(top, comparePlain)
		if len(top) > k {
			if top = top[:k]; comparePlain(h, top[k-1]) > 0 {
				continue
			}
		}
		n++
	}
	return n
}

// eachRanks is a Boolean of filters and optional clauses that rank: each finds its best k, and their scores add. Open: what passes the
// filters and is found by no clause is not an answer here, but is one beside a single clause of plain text.
func (r *running) eachRanks(c *clause, filters []*clause, k int) ([]ohit, int) {
	var sums []ohit
	for _, s := range r.some(c) {
		hits, _ := r.run(&clause{kind: oBool, must: c.must, should: []*clause{s}, not: c.not}, filters, k)
		for _, h := range hits {
			if h.score == 0 && len(h.rows) == 0 && s.kind == oText {
				continue
			}
			i := slices.IndexFunc(sums, func(x ohit) bool { return x.d == h.d })
			if i < 0 {
				i = len(sums)
				sums = append(sums, ohit{d: h.d})
			}
			sums[i].score += h.score
			for _, x := range h.rows {
				x.field = s.field
				sums[i].rows = add(sums[i].rows, x)
			}
		}
	}
	slices.SortFunc(sums, compareOhits)
	for i := range sums {
		slices.SortStableFunc(sums[i].rows, func(a, b orow) int { return cmp.Compare(a.ordinal, b.ordinal) })
	}
	return sums[:min(k, len(sums))], len(sums)
}

// best are the best k documents of passages or of a vector. A vector is searched before the filters are looked at.
func (r *running) best(c *clause, filters, not []*clause, k int) []ohit {
	if c.kind == oVector {
		hits := r.nearest(c, k)
		if c.zero {
			hits = hits[:min(k, len(hits))]
		}
		return slices.DeleteFunc(hits, func(h ohit) bool { return !r.passing(h.d, filters, not) })
	}
	var all []ohit
	for _, d := range r.docs {
		if rows := r.passages(c, d); len(rows) > 0 && r.passing(d, filters, not) {
			all = append(all, ohit{d, best(rows), rows})
		}
	}
	if c.weight == 0 {
		return cut(all, k)
	}
	all = cut(all, max(64, 4*k))
	floor := r.floor(c.field)
	for i := range all {
		h := &all[i]
		for j := range h.rows {
			v := h.d.toks[c.field][h.rows[j].ordinal]
			h.rows[j].score += r.near(c, [][]otok{v}, max(length(v), floor))
		}
		h.score = best(h.rows)
	}
	return cut(all, k)
}

// cut keeps the best k documents, and of their passages, best first, those that are among the best 2k or no worse than the best one of
// the last document.
func cut(hits []ohit, k int) []ohit {
	type cell struct {
		d *odoc
		orow
	}
	compare := func(a, b cell) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.d.leaf, b.d.leaf), cmp.Compare(a.d.doc, b.d.doc), cmp.Compare(a.ordinal, b.ordinal))
	}
	var cells []cell
	for _, h := range hits {
		for _, x := range h.rows {
			cells = append(cells, cell{h.d, x})
		}
	}
	slices.SortFunc(cells, compare)
	slices.SortFunc(hits, compareOhits)
	hits = hits[:min(k, len(hits))]
	keep := len(cells)
	if len(hits) == k && len(cells) >= 2*k {
		keep = 2 * k
		for i, x := range cells {
			if x.d == hits[k-1].d {
				keep = max(keep, i+1)
				break
			}
		}
	}
	for i := range hits {
		hits[i].rows = nil
		for _, x := range cells[:keep] {
			if x.d == hits[i].d {
				hits[i].rows = append(hits[i].rows, x.orow)
			}
		}
	}
	return hits
}

// ocombiner makes one score of several.
type ocombiner struct {
	kind        summapb.MultiValueCombiner
	temperature float32
	topK        int
	decay       float32
}

func (c ocombiner) of(rows []orow) float32 {
	n := len(rows)
	if n == 1 {
		return rows[0].score
	}
	var sum, num, den float32
	scores := make([]float32, n)
	for i, x := range rows {
		scores[i] = x.score
		sum += x.score
	}
	switch c.kind {
	case summapb.MultiValueCombiner_COMBINER_MAX:
		return slices.Max(scores)
	case summapb.MultiValueCombiner_COMBINER_AVG:
		return sum / float32(n)
	case summapb.MultiValueCombiner_COMBINER_SUM:
		return sum
	case summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K:
		slices.Sort(scores)
		slices.Reverse(scores)
		w := float32(1)
		for _, s := range scores[:min(n, cmp.Or(c.topK, 5))] {
			num += float32(w * s)
			den += w
			w = float32(w * cmp.Or(c.decay, 0.7))
		}
		return num / den
	}
	t := c.temperature
	if t <= 0 {
		t = 1.5
	}
	for _, s := range scores {
		e := float32(math.Exp(float64(float32(t * float32(s-slices.Max(scores))))))
		num += float32(e * s)
		den += e
	}
	return num / den
}

// Taking queries apart.

func (r *running) refuse() *clause {
	r.bad = errors.New("to be refused")
	return &clause{kind: oNothing}
}

func (r *running) clause(q *summapb.Query) *clause {
	switch q := q.Query.(type) {
	case *summapb.Query_All:
		return &clause{kind: oFilter, filter: func(*odoc) bool { return true }}
	case *summapb.Query_Term:
		f, _ := r.sch.Lookup(q.Term.Field)
		toks := r.query(f, q.Term.TokenizerHint, q.Term.Term)
		if len(toks) == 0 {
			return r.refuse()
		}
		// Open: a repeated word adds its scores one after the other, where it stands first.
		first := map[string]int{}
		for i := len(toks) - 1; i >= 0; i-- {
			first[toks[i]] = i
		}
		slices.SortStableFunc(toks, func(a, b string) int { return first[a] - first[b] })
		c := &clause{kind: oBool, field: f}
		for _, t := range toks {
			c.must = append(c.must, r.word(f, t))
		}
		if len(c.must) == 1 {
			return c.must[0]
		}
		return c
	case *summapb.Query_Match:
		return r.match(q.Match)
	case *summapb.Query_Phrase:
		f, _ := r.sch.Lookup(q.Phrase.Field)
		var scratch text.Scratch
		toks := r.hinted(f, q.Phrase.TokenizerHint).Exact(&scratch, q.Phrase.Text)
		switch len(toks) {
		case 0:
			return &clause{kind: oStops}
		case 1:
			c := r.word(f, string(toks[0].Text))
			c.term = false
			return c
		}
		c := &clause{kind: oText, field: f, phrase: true, slop: q.Phrase.Slop}
		if r.sch.Fields[f].Chunked {
			c.kind = oPassages
		}
		for _, t := range toks {
			c.words = append(c.words, oword{string(t.Text), 1, t.Pos - toks[0].Pos})
		}
		return c
	case *summapb.Query_Prefix:
		f, _ := r.sch.Lookup(q.Prefix.Field)
		return r.prefix(f, q.Prefix.Prefix)
	case *summapb.Query_Range:
		return r.ranged(q.Range)
	case *summapb.Query_Boost:
		of := r.clause(q.Boost.Query)
		if of.kind == oNothing || of.kind == oStops {
			return of
		}
		return &clause{kind: oBoost, of: of, factor: q.Boost.Boost}
	case *summapb.Query_Boolean:
		c := &clause{kind: oBool}
		list := func(in []*summapb.Query) (out []*clause) {
			for _, one := range in {
				if k := r.clause(one); k.kind != oStops { // of stop words only: dropped
					out = append(out, k)
				}
			}
			return out
		}
		c.must, c.should, c.not = list(q.Boolean.Must), list(q.Boolean.Should), list(q.Boolean.MustNot)
		// One clause alone is that clause.
		switch {
		case len(c.must)+len(c.should)+len(c.not) == 0:
			return &clause{kind: oNothing}
		case len(c.must) == 1 && len(c.should)+len(c.not) == 0:
			return c.must[0]
		case len(c.should) == 1 && len(c.must)+len(c.not) == 0:
			return c.should[0]
		}
		return c
	case *summapb.Query_DenseVector:
		v := q.DenseVector
		return r.dense(v.Field, v.Vector, ocombiner{v.Combiner, v.CombinerTemperature, int(v.CombinerTopK), v.CombinerDecay})
	case *summapb.Query_BinaryDenseVector:
		v := q.BinaryDenseVector
		return r.hamming(v.Field, v.Vector, ocombiner{v.Combiner, v.CombinerTemperature, int(v.CombinerTopK), v.CombinerDecay})
	case *summapb.Query_SparseVector:
		return r.sparse(q.SparseVector)
	}
	return r.refuse()
}

// hinted is the tokenizer of a field for a query.
func (r *running) hinted(f int, hint string) *text.Analyzer {
	a := r.an(f)
	if a.HintField() != "" && hint != "" {
		a = a.WithHint(hint)
	}
	return a
}

func (r *running) query(f int, hint, s string) (out []string) {
	var scratch text.Scratch
	for _, t := range r.hinted(f, hint).Query(&scratch, s) {
		out = append(out, string(t.Text))
	}
	return out
}

// word is one token of a field.
func (r *running) word(f int, word string) *clause {
	fd := &r.sch.Fields[f]
	c := &clause{kind: oText, field: f, words: []oword{{word, 1, 0}}, term: true}
	switch {
	case fd.Indexed && fd.Chunked:
		c.kind = oPassages
	case !fd.Indexed && fd.Fast:
		c = &clause{kind: oColumn, field: f, filter: func(d *odoc) bool { return slices.Contains(d.text[f], word) }}
	case !fd.Indexed:
		c = &clause{kind: oNothing}
	}
	return c
}

func (r *running) match(q *summapb.MatchQuery) *clause {
	f, _ := r.sch.Lookup(q.Field)
	fd := &r.sch.Fields[f]
	if p, ok := strings.CutSuffix(q.Text, "*"); ok {
		if !fd.Indexed {
			return r.refuse()
		}
		return r.prefix(f, p)
	}
	c := &clause{kind: oText, field: f, match: true, most: 20}
	if fd.Chunked {
		c.kind = oPassages
	}
	for _, t := range r.query(f, q.TokenizerHint, q.Text) {
		if i := slices.IndexFunc(c.words, func(w oword) bool { return w.text == t }); i >= 0 {
			c.words[i].times++
			continue
		}
		c.words = append(c.words, oword{t, 1, 0})
	}
	if len(c.words) == 0 {
		return &clause{kind: oStops}
	}
	if !fd.Indexed {
		c = &clause{kind: oBool}
		seen := map[string]bool{}
		for _, t := range r.query(f, q.TokenizerHint, q.Text) {
			if !seen[t] {
				c.should = append(c.should, r.word(f, t))
			}
			seen[t] = true
		}
		return c
	}
	for _, o := range fd.Options {
		if o.Name == "query" && strings.Contains(o.Value, "max_terms: 3") {
			c.most = 3
		}
	}
	if q.MaxTerms > 0 {
		c.most = min(int(q.MaxTerms), 64)
	}
	if len(c.words) > 1 && fd.Positions >= schema.TokenPositions {
		c.weight, c.window = q.ProximityWeight, cmp.Or(q.ProximityWindow, 8)
	}
	return c
}

func (r *running) prefix(f int, prefix string) *clause {
	p := r.an(f).Normalize(prefix)
	return &clause{kind: oFilter, field: f, isPrefix: true, filter: func(d *odoc) bool {
		for _, v := range d.toks[f] {
			for _, t := range v {
				if strings.HasPrefix(t.text, p) {
					return true
				}
			}
		}
		return false
	}}
}

// ranged compares as numbers, exactly, the first value of a document.
func (r *running) ranged(q *summapb.RangeQuery) *clause {
	f, _ := r.sch.Lookup(q.Field)
	var lo, hi *big.Rat
	switch {
	case q.MinU64 != nil || q.MaxU64 != nil:
		if q.MinU64 != nil {
			lo = new(big.Rat).SetUint64(*q.MinU64)
		}
		if q.MaxU64 != nil {
			hi = new(big.Rat).SetUint64(*q.MaxU64)
		}
	case q.MinI64 != nil || q.MaxI64 != nil:
		if q.MinI64 != nil {
			lo = new(big.Rat).SetInt64(*q.MinI64)
		}
		if q.MaxI64 != nil {
			hi = new(big.Rat).SetInt64(*q.MaxI64)
		}
	default:
		if q.MinF64 != nil {
			lo = new(big.Rat).SetFloat64(*q.MinF64)
		}
		if q.MaxF64 != nil {
			hi = new(big.Rat).SetFloat64(*q.MaxF64)
		}
	}
	return &clause{kind: oFilter, field: f, filter: func(d *odoc) bool {
		if r.sch.Fields[f].Type == schema.Text {
			return len(d.text[f]) > 0
		}
		if len(d.nums[f]) == 0 {
			return false
		}
		v := d.nums[f][0]
		return (lo == nil || v.Cmp(lo) >= 0) && (hi == nil || v.Cmp(hi) <= 0)
	}}
}

func (r *running) dense(name string, q []float32, c ocombiner) *clause {
	f, _ := r.sch.Lookup(name)
	fd := &r.sch.Fields[f]
	zero := !slices.ContainsFunc(q, func(x float32) bool { return x != 0 })
	return &clause{kind: oVector, field: f, combine: c, zero: zero, values: func(d *odoc) (rows []orow) {
		for i, v := range d.vecs[f] {
			x := orow{field: f, ordinal: uint32(i)}
			if !zero {
				p, err := vector.ParamsOf(fd)
				if err != nil {
					r.bad = err
					return nil
				}
				query, err := vector.NewQuery(p, q, nil)
				if err != nil {
					r.bad = err
					return nil
				}
				rec := vector.Encode(p, nil, schema.AppendDense(nil, v.GetDenseVector().Values))
				x.score = vector.InMemory(p, 1, []uint32{1}, rec).Ordinals(query, 0, nil)[0]
				r.truth(fd, q, v.GetDenseVector().Values, x.score)
			}
			rows = append(rows, x)
		}
		return rows
	}}
}

// truth holds a score against the product of the numbers as they were given: what is kept of them may be less, within a bound.
func (r *running) truth(f *schema.Field, q, v []float32, got float32) {
	var product, norm, sum, length float64
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, x := range q {
		product += float64(x) * float64(v[i])
		norm += float64(x) * float64(x)
		sum += math.Abs(float64(x))
		length += float64(v[i]) * float64(v[i])
		lo, hi = min(lo, float64(v[i])), max(hi, float64(v[i]))
	}
	norm = math.Sqrt(norm)
	bound := 1e-6 * (1 + math.Sqrt(length))
	switch f.Element {
	case "f16": // a half of the last of 11 bits
		bound += math.Sqrt(length) / (1 << 11)
	case "uint8": // a half of a 255th of the range, of each component
		bound += (hi - lo) / 510 * sum / norm
	}
	if want := product / norm; math.Abs(float64(got)-want) > bound {
		r.wrong = fmt.Sprintf("field %s: %v is %v by the kernel, and %v by the numbers, further than %v", f.Name, v, got, want, bound)
	}
}

func (r *running) hamming(name string, q []byte, c ocombiner) *clause {
	f, _ := r.sch.Lookup(name)
	return &clause{kind: oVector, field: f, combine: c, values: func(d *odoc) (rows []orow) {
		for i, v := range d.vecs[f] {
			n := 0
			for j, b := range v.GetBinaryDenseVector() {
				n += bits.OnesCount8(b ^ q[j])
			}
			rows = append(rows, orow{f, uint32(i), 1 - float32(n)/float32(8*len(q))})
		}
		return rows
	}}
}

// sparse is Σ q·w over the dimensions in order; a value that shares none has no score. Open: which of several equally heavy dimensions
// are left out (the later ones), and that pruning is a share of the dimensions by number.
func (r *running) sparse(q *summapb.SparseVectorQuery) *clause {
	f, _ := r.sch.Lookup(q.Field)
	type pair struct {
		i uint32
		w float32
	}
	sum := func(indices []uint32, values []float32) (out []pair) {
		for k, i := range indices {
			if at := slices.IndexFunc(out, func(p pair) bool { return p.i == i }); at >= 0 {
				out[at].w += values[k]
				continue
			}
			out = append(out, pair{i, values[k]})
		}
		out = slices.DeleteFunc(out, func(p pair) bool { return p.w == 0 })
		slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.i, b.i) })
		return out
	}
	abs := func(x float32) float32 { return float32(math.Abs(float64(x))) }
	dims := slices.DeleteFunc(sum(q.Indices, q.Values), func(p pair) bool { return abs(p.w) < q.WeightThreshold })
	most := 64
	if q.MaxQueryDims > 0 {
		most = min(most, int(q.MaxQueryDims))
	}
	if q.Pruning > 0 && q.Pruning < 1 {
		most = min(most, max(1, int(math.Ceil(float64(q.Pruning)*float64(len(dims))))))
	}
	slices.SortStableFunc(dims, func(a, b pair) int { return cmp.Compare(abs(b.w), abs(a.w)) })
	dims = dims[:min(most, len(dims))]
	if len(dims) == 0 {
		return &clause{kind: oNothing}
	}
	c := ocombiner{q.Combiner, q.CombinerTemperature, int(q.CombinerTopK), q.CombinerDecay}
	return &clause{kind: oVector, field: f, combine: c, values: func(d *odoc) (rows []orow) {
		for i, v := range d.vecs[f] {
			var s float32
			some := false
			pairs := sum(v.GetSparseVector().Indices, v.GetSparseVector().Values)
			var ws []float32
			for _, p := range pairs {
				ws = append(ws, p.w)
			}
			ws = keptWeights(&r.sch.Fields[f], ws)
			for k, p := range pairs {
				p.w = ws[k]
				for _, x := range dims {
					if x.i == p.i {
						some = true
						s += float32(x.w * p.w)
					}
				}
			}
			if some {
				rows = append(rows, orow{f, uint32(i), s})
			}
		}
		return rows
	}}
}

// keptWeights are the weights of a sparse vector as its field keeps them: in 16 bits, or as lo + step·u in 8 or 4, lo the least of them
// and step a share of their range, 1 for whole numbers within it. What is made of u is in binary32.
func keptWeights(f *schema.Field, ws []float32) []float32 {
	kind := ""
	for _, o := range f.Options {
		if o.Name == "quantization" {
			kind = o.Value
		}
	}
	if len(ws) == 0 {
		return nil
	}
	out := slices.Clone(ws)
	top := 0.0
	switch kind {
	case "float16":
		for i, w := range ws {
			out[i] = half(w)
		}
		return out
	case "uint8":
		top = 255
	case "uint4":
		top = 15
	default:
		return out
	}
	lo, hi := slices.Min(ws), slices.Max(ws)
	step := float32((float64(hi) - float64(lo)) / top)
	if hi-lo <= float32(top) && !slices.ContainsFunc(ws, func(w float32) bool { return w != float32(int(w)) }) {
		step = 1
	}
	for i, w := range ws {
		u := 0.0
		if step > 0 {
			u = min(math.Round((float64(w)-float64(lo))/float64(step)), top)
		}
		out[i] = lo + float32(step*float32(u))
	}
	return out
}

// half is a number to the nearest of those of 16 bits, ties to even. The numbers of the world are in their range.
func half(w float32) float32 {
	if w == 0 {
		return w
	}
	_, e := math.Frexp(float64(w))
	unit := math.Ldexp(1, max(e-11, -24))
	return float32(math.RoundToEven(float64(w)/unit) * unit)
}

// answered is what a request is answered with.
type answered struct {
	hits     []ohit
	total    int
	branches [][]ohit // what each branch of a fusion nominated, where that is asked for
	exports  map[*odoc]exported
	wrong    string

	// Of several partitions: what the branches of a fusion nominated at all of them, and at each.
	organic []nomination
	traces  []map[int]nomination
}

// search answers a request; bad says that it has to be refused.
func (o *Oracle) search(req *summapb.SearchRequest, w summa.Window) (out answered, bad error) {
	if o.parts != nil {
		return o.sharded(req, w)
	}
	r := o.running(req, w, o.docs)
	out = r.answer(req, w)
	return out, r.bad
}

// running begins a request to some of the documents.
func (o *Oracle) running(req *summapb.SearchRequest, w summa.Window, docs []*odoc) *running {
	return &running{Oracle: o, docs: docs, counted: docs, given: req.TextStats, k: w.Candidates, cache: map[*clause]map[*odoc]float32{}, memo: map[string]any{}, said: map[int]nomination{}}
}

// answer answers a request.
func (r *running) answer(req *summapb.SearchRequest, w summa.Window) (out answered) {
	var rerank *clause
	if q := req.Reranker; q != nil {
		c := ocombiner{q.Combiner, q.CombinerTemperature, int(q.CombinerTopK), q.CombinerDecay}
		if q.Combiner == 0 && q.CombinerTemperature == 0 {
			c = ocombiner{kind: summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K, topK: cmp.Or(c.topK, 3), decay: cmp.Or(c.decay, 0.7)}
		}
		if q.Field == "bits" {
			rerank = r.hamming(q.Field, q.BinaryVector, c)
		} else {
			rerank = r.dense(q.Field, q.Vector, c)
		}
	}
	if f := req.Query.GetFusion(); f != nil && (req.L1 != nil || req.ScoreExport != nil) {
		r.k = w.Depth
		out.hits, out.total, out.exports = r.scored(req, w)
	} else if f != nil {
		r.k = w.Depth
		var branches [][]ohit
		branches, out.total = r.branches(f, w)
		if f.Method == summapb.FusionMethod_FUSION_CANDIDATES {
			out.branches = branches
			if out.hits = union(branches); len(out.hits) > w.Limit {
				r.refuse() // a part of them is of no use to who fuses
			}
		} else {
			out.hits = r.fuse(f, branches, w)
		}
	} else if c := r.clause(req.Query); c.kind != oNothing && c.kind != oStops {
		out.hits, out.total = r.run(c, nil, w.Candidates)
		r.said[0] = nomination{slices.Clone(out.hits), out.total}
	}
	if rerank != nil {
		out.hits = r.rerank(rerank, req.Reranker.RrfK, out.hits)
	}
	out.hits = out.hits[min(w.Offset, len(out.hits)):]
	out.hits = out.hits[:min(w.Limit, len(out.hits))]
	out.wrong = r.wrong
	return out
}

func (r *running) rerank(c *clause, k float32, hits []ohit) (out []ohit) {
	first := map[*odoc]int{}
	for i, h := range hits {
		if rows := c.values(h.d); len(rows) > 0 {
			first[h.d] = i + 1
			h.score = c.combine.of(rows)
			slices.SortStableFunc(rows, func(a, b orow) int { return cmp.Compare(b.score, a.score) })
			h.rows = rows
			out = append(out, h)
		}
	}
	slices.SortFunc(out, compareOhits)
	if k > 0 {
		for i := range out {
			out[i].score = 1/float32(k+float32(first[out[i].d])) + 1/float32(k+float32(i+1))
		}
		slices.SortFunc(out, compareOhits)
	}
	return out
}

// branches are the hits of each branch of a fusion.
func (r *running) branches(f *summapb.FusionQuery, w summa.Window) (out [][]ohit, total int) {
	var filters []*clause
	var branches []*clause
	for _, q := range f.Queries {
		branches = append(branches, r.clause(q.Query))
	}
	for _, q := range f.Filters {
		filters = append(filters, r.clause(q))
	}
	for i, c := range branches {
		var hits []ohit
		if c.kind != oNothing && c.kind != oStops {
			var n int
			hits, n = r.nominate(i, c, filters, w.Depth)
			total += n
		}
		out = append(out, hits)
	}
	return out, total
}

// union are the documents of all branches by place, without a score.
func union(branches [][]ohit) (out []ohit) {
	seen := map[*odoc]bool{}
	for _, hits := range branches {
		for _, h := range hits {
			if !seen[h.d] {
				seen[h.d] = true
				out = append(out, ohit{d: h.d})
			}
		}
	}
	slices.SortFunc(out, compareOhits)
	return out
}

// fuse ranks the passages of each branch, and adds up what the branches give them.
func (r *running) fuse(f *summapb.FusionQuery, branches [][]ohit, w summa.Window) (out []ohit) {
	type vote struct {
		d       *odoc
		ordinal uint32
		score   float32
	}
	var sums []vote
	for i, hits := range branches {
		var list []vote
		add := func(v vote) {
			if i := slices.IndexFunc(list, func(x vote) bool { return x.d == v.d && x.ordinal == v.ordinal }); i >= 0 {
				list[i].score = max(list[i].score, v.score)
				return
			}
			list = append(list, v)
		}
		for _, h := range hits {
			if len(h.rows) == 0 {
				add(vote{h.d, 0, h.score})
			}
			for _, x := range h.rows {
				add(vote{h.d, x.ordinal, x.score})
			}
		}
		slices.SortFunc(list, func(a, b vote) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.d.leaf, b.d.leaf), cmp.Compare(a.d.doc, b.d.doc), cmp.Compare(a.ordinal, b.ordinal))
		})
		weight := cmp.Or(f.Queries[i].Weight, 1)
		for rank, v := range list {
			top, least := list[0].score, list[len(list)-1].score
			var s float32
			switch {
			case f.Method == summapb.FusionMethod_FUSION_RRF:
				s = float32(weight * (1 / float32(cmp.Or(f.RrfK, 60)+float32(rank+1))))
			case top == least:
				s = weight
			default:
				s = float32(float32(weight*float32(v.score-least)) * (1 / float32(top-least)))
			}
			at := slices.IndexFunc(sums, func(x vote) bool { return x.d == v.d && x.ordinal == v.ordinal })
			if at < 0 {
				at = len(sums)
				sums = append(sums, vote{d: v.d, ordinal: v.ordinal})
			}
			sums[at].score += s
		}
	}
	for _, d := range r.docs {
		var rows []orow
		for _, v := range sums {
			if v.d == d {
				rows = append(rows, orow{0, v.ordinal, v.score})
			}
		}
		if len(rows) == 0 {
			continue
		}
		slices.SortFunc(rows, func(a, b orow) int { return cmp.Compare(a.ordinal, b.ordinal) })
		c := ocombiner{kind: f.Combiner}
		if c.kind == 0 || c.kind > summapb.MultiValueCombiner_COMBINER_WEIGHTED_TOP_K {
			c.kind = summapb.MultiValueCombiner_COMBINER_MAX
		}
		out = append(out, ohit{d, c.of(rows), rows})
	}
	out = r.ranked(out, func(of []ohit) int { return len(of) })
	return out[:min(w.Candidates, len(out))]
}
