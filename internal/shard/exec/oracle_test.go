package exec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// tdoc is a document of the tests: tokens by field (1 title, 2 body), one number that may be absent.
type tdoc struct {
	key  string
	toks [3][]string
	num  []int64
	tag  []string
	u    []uint64  // at most one
	x    []float64 // any number, −0 among them
	date []int64   // one, in milliseconds
}

// nums are the values of a column of numbers, encoded.
func (d *tdoc) nums(f int) []uint64 {
	var out []uint64
	switch f {
	case 3:
		for _, v := range d.num {
			out = append(out, schema.EncodeI64(v))
		}
	case 5:
		out = append(out, d.u...)
	case 6:
		for _, v := range d.x {
			out = append(out, schema.EncodeF64(v))
		}
	case 7:
		for _, v := range d.date {
			out = append(out, schema.EncodeI64(v))
		}
	}
	return out
}

func isNum(f int) bool { return f == 3 || f >= 5 && f <= 7 }

func testSchema() *schema.Schema {
	return &schema.Schema{Name: "t", Fields: []schema.Field{
		{Name: "id", Type: schema.Text, Tokenizer: "raw", Indexed: true, Fast: true, Primary: true, K1: 1.2, B: 0.75},
		{Name: "title", Type: schema.Text, Tokenizer: "alnum", Indexed: true, Positions: schema.TokenPositions, K1: 1.2, B: 0.75},
		{Name: "body", Type: schema.Text, Tokenizer: "alnum", Indexed: true, Positions: schema.TokenPositions, K1: 0.9, B: 0.4},
		{Name: "n", Type: schema.I64, Fast: true},
		{Name: "tag", Type: schema.Text, Tokenizer: "raw", Fast: true},
		{Name: "u", Type: schema.U64, Fast: true},
		{Name: "x", Type: schema.F64, Fast: true, Multi: true},
		{Name: "date", Type: schema.Date, Fast: true},
		{Name: "slow", Type: schema.I64},
		{Name: "vec", Type: schema.DenseVector, Dim: 2},
	}}
}

func testAnalyzers(t testing.TB) Analyzers {
	sch := testSchema()
	as := make([]*text.Analyzer, len(sch.Fields))
	for i, f := range sch.Fields {
		if f.Type != schema.Text {
			continue
		}
		a, err := text.Lookup(f.Tokenizer)
		if err != nil {
			t.Fatal(err)
		}
		as[i] = a
	}
	return func(f int) *text.Analyzer { return as[f] }
}

// memLeaf is a leaf made of plain maps and slices, in the order of its documents.
type memLeaf struct {
	docs    []tdoc
	live    bitset.Set
	ordered bool
	lens    [3][]uint16
	stats   [3]score.FieldStats
	terms   [3]map[string]*plist
	sorted  [3][]string
	strs    *memStrs
	nums    [8]*memNums
}

type plist struct{ docs, freqs, pos []uint32 }

func newMemLeaf(docs []tdoc, dead map[int]bool, ordered bool) *memLeaf {
	docs = slices.Clone(docs)
	l := &memLeaf{docs: docs, ordered: ordered}
	if len(dead) > 0 {
		l.live = bitset.Full(len(docs))
		for d := range dead {
			l.live.Remove(uint32(d))
		}
	}
	for f := 1; f < 3; f++ {
		l.lens[f] = make([]uint16, len(docs))
		l.terms[f] = map[string]*plist{}
		for d := range docs {
			n := min(len(docs[d].toks[f]), math.MaxUint16)
			l.lens[f][d] = uint16(n)
			if !dead[d] && n > 0 {
				l.stats[f].SumLen += uint64(n)
				l.stats[f].Docs++
			}
			at := map[string][]uint32{}
			for p, tk := range docs[d].toks[f] {
				at[tk] = append(at[tk], uint32(p))
			}
			for tk, ps := range at {
				pl := l.terms[f][tk]
				if pl == nil {
					pl = &plist{}
					l.terms[f][tk] = pl
				}
				pl.docs = append(pl.docs, uint32(d))
				pl.freqs = append(pl.freqs, uint32(len(ps)))
				pl.pos = append(pl.pos, ps...)
			}
		}
		for tk := range l.terms[f] {
			l.sorted[f] = append(l.sorted[f], tk)
		}
		sort.Strings(l.sorted[f])
	}
	l.strs = newMemStrs(l)
	for f := range l.nums {
		if isNum(f) {
			l.nums[f] = newMemNums(l, f)
		}
	}
	return l
}

func (l *memLeaf) NumDocs() uint32  { return uint32(len(l.docs)) }
func (l *memLeaf) Live() bitset.Set { return l.live }
func (l *memLeaf) LiveDocs() uint32 {
	if l.live == nil {
		return uint32(len(l.docs))
	}
	return uint32(l.live.Count())
}
func (l *memLeaf) KeyOrdered() bool                  { return l.ordered }
func (l *memLeaf) FieldStats(f int) score.FieldStats { return l.stats[f] }
func (l *memLeaf) DocFreq(f int, tk []byte, check func(int) error) (uint64, error) {
	var n uint64
	if pl := l.terms[f][string(tk)]; pl != nil {
		for i, d := range pl.docs {
			if i%4096 == 4095 {
				if err := check(4096); err != nil {
					return 0, err
				}
			}
			if l.live == nil || l.live.Has(d) {
				n++
			}
		}
	}
	return n, nil
}

func (l *memLeaf) Postings(f int, tk []byte) (segment.Postings, bool) {
	pl := l.terms[f][string(tk)]
	if pl == nil {
		return segment.Postings{}, false
	}
	return segment.ArrayPostings(pl.docs, pl.freqs, pl.pos), true
}

func (l *memLeaf) ScanPostings(f int, prefix []byte, fn func([]byte, segment.Postings) bool) error {
	for _, tk := range l.sorted[f] {
		pl := l.terms[f][tk]
		if strings.HasPrefix(tk, string(prefix)) && !fn([]byte(tk), segment.ArrayPostings(pl.docs, pl.freqs, pl.pos)) {
			break
		}
	}
	return nil
}
func (l *memLeaf) Lengths(f int) []uint16 { return l.lens[f] }
func (l *memLeaf) Present(f int) func(uint32) bool {
	switch f {
	case 1, 2:
		return func(d uint32) bool { return len(l.docs[d].toks[f]) > 0 }
	case 4:
		return func(d uint32) bool { return len(l.docs[d].tag) > 0 }
	}
	return func(d uint32) bool { return len(l.docs[d].nums(f)) > 0 }
}

func (l *memLeaf) NumColumn(f int) NumColumn {
	if !isNum(f) {
		return nil
	}
	return l.nums[f]
}

func (l *memLeaf) StrColumn(f int) StrColumn {
	if f != 4 {
		return nil
	}
	return l.strs
}

func (l *memLeaf) Key(d uint32, dst []byte) []byte             { return append(dst, l.docs[d].key...) }
func (l *memLeaf) Source(d uint32, dst []byte) ([]byte, error) { return dst, nil }
func (l *memLeaf) Err() error                                  { return nil }
func (l *memLeaf) Identity() uint64                            { return 0 }
func (l *memLeaf) Vectors(int) *vector.Index                   { return nil }
func (l *memLeaf) SparseVectors(int) *sparse.Index             { return nil }

type memNums struct {
	values [][]uint64
	blocks [][]uint64 // least and greatest value
}

func newMemNums(l *memLeaf, f int) *memNums {
	m := &memNums{blocks: make([][]uint64, (len(l.docs)+ColumnBlock-1)/ColumnBlock)}
	for d := range l.docs {
		nums := l.docs[d].nums(f)
		m.values = append(m.values, nums)
		for _, v := range nums {
			b := &m.blocks[d/ColumnBlock]
			if *b == nil {
				*b = []uint64{v, v}
			}
			(*b)[0], (*b)[1] = min((*b)[0], v), max((*b)[1], v)
		}
	}
	return m
}

func (m *memNums) Values(d uint32, dst []uint64) []uint64 { return append(dst, m.values[d]...) }
func (m *memNums) NumBlocks() int                         { return len(m.blocks) }
func (m *memNums) BlockRange(b int) (lo, hi uint64, ok bool) {
	if m.blocks[b] == nil {
		return 0, 0, false
	}
	return m.blocks[b][0], m.blocks[b][1], true
}

type memStrs struct {
	l    *memLeaf
	dict []string
}

func newMemStrs(l *memLeaf) *memStrs {
	m := &memStrs{l: l}
	for _, d := range l.docs {
		m.dict = append(m.dict, d.tag...)
	}
	sort.Strings(m.dict)
	m.dict = slices.Compact(m.dict)
	return m
}
func (m *memStrs) NumOrds() int { return len(m.dict) }
func (m *memStrs) Seek(v []byte) (int, bool) {
	return slices.BinarySearch(m.dict, string(v))
}
func (m *memStrs) Lookup(o int, dst []byte) []byte { return append(dst, m.dict[o]...) }
func (m *memStrs) Ords(d uint32, dst []uint32) []uint32 {
	for _, v := range m.l.docs[d].tag {
		o, _ := slices.BinarySearch(m.dict, v)
		dst = append(dst, uint32(o))
	}
	return dst
}

// segLeaf is a real segment with its live documents.
type segLeaf struct {
	*segment.Reader
	m  *memLeaf // for what segments leave to their owner: live statistics
	id uint64
}

var segLeafIDs atomic.Uint64

func newSegLeaf(t testing.TB, docs []tdoc, dead map[int]bool) *segLeaf {
	docs = slices.Clone(docs)
	// the dead are named by place before sorting
	type pair struct {
		d    tdoc
		dead bool
	}
	ps := make([]pair, len(docs))
	for i := range docs {
		ps[i] = pair{docs[i], dead[i]}
	}
	sort.Slice(ps, func(i, j int) bool { return ps[i].d.key < ps[j].d.key })
	nd := map[int]bool{}
	for i := range ps {
		docs[i] = ps[i].d
		if ps[i].dead {
			nd[i] = true
		}
	}
	m := newMemLeaf(docs, nd, true)
	var buf bytes.Buffer
	w := segment.NewWriter(&buf, segment.WriterOptions{NoSources: true})
	w.Begin(len(docs), []segment.FieldMeta{{ID: 1, Name: "title"}, {ID: 2, Name: "body"}, {ID: 3, Name: "n"}, {ID: 4, Name: "tag"}, {ID: 5, Name: "u"}, {ID: 6, Name: "x"}, {ID: 7, Name: "date"}})
	for i := range docs {
		w.Key([]byte(docs[i].key), uint64(i))
	}
	for f := 1; f < 3; f++ {
		w.BeginField(f, true, m.lens[f])
		for _, tk := range m.sorted[f] {
			pl := m.terms[f][tk]
			w.StartTerm([]byte(tk))
			w.Add(pl.docs, pl.freqs, pl.pos)
			w.EndTerm()
		}
		w.EndField()
	}
	column := func(f int) {
		starts := []uint32{0}
		var nums []uint64
		for i := range docs {
			nums = append(nums, docs[i].nums(f)...)
			starts = append(starts, uint32(len(nums)))
		}
		w.NumColumn(f, starts, nums)
	}
	for _, f := range []int{3, 5, 6, 7} {
		column(f)
	}
	starts := []uint32{0}
	var strs [][]byte
	for i := range docs {
		for _, v := range docs[i].tag {
			strs = append(strs, []byte(v))
		}
		starts = append(starts, uint32(len(strs)))
	}
	w.StrColumn(4, starts, strs)
	for f := 1; f < 8; f++ {
		var have []uint32
		for i := range docs {
			if m.Present(f)(uint32(i)) {
				have = append(have, uint32(i))
			}
		}
		w.Presence(f, have)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := segment.FromBytes("test", buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &segLeaf{r, m, segLeafIDs.Add(1)}
}

func (l *segLeaf) Live() bitset.Set                  { return l.m.live }
func (l *segLeaf) LiveDocs() uint32                  { return l.m.LiveDocs() }
func (l *segLeaf) KeyOrdered() bool                  { return true }
func (l *segLeaf) Identity() uint64                  { return l.id }
func (l *segLeaf) Vectors(int) *vector.Index         { return nil }
func (l *segLeaf) SparseVectors(int) *sparse.Index   { return nil }
func (l *segLeaf) FieldStats(f int) score.FieldStats { return l.m.FieldStats(f) }
func (l *segLeaf) DocFreq(f int, tk []byte, check func(int) error) (uint64, error) {
	return l.m.DocFreq(f, tk, check)
}

func (l *segLeaf) Present(f int) func(uint32) bool { p := l.Reader.Present(f); return p.Has }

func (l *segLeaf) NumColumn(f int) NumColumn {
	if c, ok := l.Reader.NumColumn(f); ok {
		return c
	}
	return nil
}

func (l *segLeaf) StrColumn(f int) StrColumn {
	if c, ok := l.Reader.StrColumn(f); ok {
		return c
	}
	return nil
}

// oracle answers queries by looking at every document.
type oracle struct {
	docs  []tdoc // live
	stats [3]score.FieldStats
	sch   *schema.Schema
}

func newOracle(docs []tdoc) *oracle {
	o := &oracle{docs: docs, sch: testSchema()}
	for _, d := range docs {
		for f := 1; f < 3; f++ {
			if n := min(len(d.toks[f]), math.MaxUint16); n > 0 {
				o.stats[f].SumLen += uint64(n)
				o.stats[f].Docs++
			}
		}
	}
	return o
}

func (o *oracle) df(f int, tk string) uint64 {
	var n uint64
	for i := range o.docs {
		if slices.Contains(o.docs[i].toks[f], tk) {
			n++
		}
	}
	return n
}

func (o *oracle) bm25(f int, idf float32, tf int, d *tdoc) float32 {
	fd := &o.sch.Fields[f]
	norm := score.Norm(uint32(min(len(d.toks[f]), math.MaxUint16)), score.AvgLen(o.stats[f]), fd.K1, fd.B)
	return score.TF(idf, float32(tf), fd.K1, norm)
}

func (o *oracle) idf(f int, tk string) float32 {
	return score.IDF(uint64(len(o.docs)), o.df(f, tk))
}

func count(list []string, tk string) int {
	n := 0
	for _, x := range list {
		if x == tk {
			n++
		}
	}
	return n
}

func (o *oracle) fields(name string) []int {
	if name == "" {
		return []int{1, 2}
	}
	f, _ := o.sch.Lookup(name)
	return []int{f}
}

func (o *oracle) sum(name string, one func(f int) (bool, float32)) (bool, float32) {
	var s float32
	hit := false
	for _, f := range o.fields(name) {
		if ok, v := one(f); ok {
			hit = true
			s += v
		}
	}
	return hit, s
}

func (o *oracle) eval(q query.Node, d *tdoc, idfs map[string]float32) (bool, float32) {
	idf := func(f int, tk string) float32 {
		k := fmt.Sprint(f, "/", tk)
		v, ok := idfs[k]
		if !ok {
			v = o.idf(f, tk)
			idfs[k] = v
		}
		return v
	}
	switch q := q.(type) {
	case *query.All:
		return true, 1
	case *query.Boost:
		ok, s := o.eval(q.Query, d, idfs)
		return ok, float32(q.Factor * s)
	case *query.Term:
		return o.sum(q.Field, func(f int) (bool, float32) {
			tf := count(d.toks[f], q.Text)
			if tf == 0 {
				return false, 0
			}
			return true, o.bm25(f, idf(f, q.Text), tf, d)
		})
	case *query.Match:
		return o.sum(q.Field, func(f int) (bool, float32) {
			var s float32
			hit, all := false, true
			var order []string
			reps := map[string]float32{}
			for _, tk := range strings.Fields(q.Text) {
				if reps[tk] == 0 {
					order = append(order, tk)
				}
				reps[tk]++
			}
			if !q.All && q.MaxTerms > 0 && len(order) > q.MaxTerms {
				rank := func(tk string) float32 {
					k := fmt.Sprint("df/", f, "/", tk)
					if _, ok := idfs[k]; !ok {
						if idfs[k] = float32(o.df(f, tk)); idfs[k] == 0 {
							idfs[k] = math.MaxFloat32 // absent ones go last
						}
					}
					return idfs[k]
				}
				rarest := slices.Clone(order)
				slices.SortStableFunc(rarest, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
				order = slices.DeleteFunc(order, func(tk string) bool { return !slices.Contains(rarest[:q.MaxTerms], tk) })
			}
			for _, tk := range order {
				tf := count(d.toks[f], tk)
				if tf == 0 {
					all = false
					continue
				}
				hit = true
				v := o.bm25(f, idf(f, tk), tf, d)
				if !q.All && reps[tk] > 1 {
					v = float32(reps[tk] * v)
				}
				s += v
			}
			if q.All {
				hit = all
			}
			return hit, s
		})
	case *query.Phrase:
		return o.sum(q.Field, func(f int) (bool, float32) {
			words := strings.Fields(q.Text)
			var sum float32
			for _, w := range words {
				sum += idf(f, w)
			}
			tf := 0
			for p := range d.toks[f] {
				if d.toks[f][p] != words[0] {
					continue
				}
				ok := true
				for j := 1; j < len(words) && ok; j++ {
					ok = false
					for x := p + j - int(q.Slop); x <= p+j+int(q.Slop); x++ {
						if x >= 0 && x < len(d.toks[f]) && d.toks[f][x] == words[j] {
							ok = true
						}
					}
				}
				if ok {
					tf++
				}
			}
			if tf == 0 {
				return false, 0
			}
			return true, o.bm25(f, sum, tf, d)
		})
	case *query.Prefix:
		return o.sum(q.Field, func(f int) (bool, float32) {
			seen := map[string]bool{}
			for _, tk := range d.toks[f] {
				if strings.HasPrefix(tk, q.Text) {
					seen[tk] = true
				}
			}
			var words []string
			for w := range seen {
				words = append(words, w)
			}
			sort.Strings(words)
			var s float32
			for _, w := range words {
				s += o.bm25(f, idf(f, w), count(d.toks[f], w), d)
			}
			return len(words) > 0, s
		})
	case *query.Exists:
		f, _ := o.sch.Lookup(q.Field)
		if f >= 3 {
			return f == 4 && len(d.tag) > 0 || len(d.nums(f)) > 0, 1
		}
		return len(d.toks[f]) > 0, 1
	case *query.Terms:
		for _, v := range q.Values {
			if slices.Contains(d.strings(q.Field), v) {
				return true, 1
			}
		}
		return false, 0
	case *query.Range:
		if q.Field == "tag" {
			for _, v := range d.tag {
				if in(q, func(b string) int { return strings.Compare(v, b) }) {
					return true, 1
				}
			}
			return false, 0
		}
		for _, v := range d.strings(q.Field) {
			if in(q, func(b string) int { return number(v).Cmp(number(b)) }) {
				return true, 1
			}
		}
		return false, 0
	case *query.Bool:
		var s float32
		for _, c := range q.Must {
			ok, v := o.eval(c, d, idfs)
			if !ok {
				return false, 0
			}
			s += v
		}
		for _, c := range q.Filter {
			if ok, _ := o.eval(c, d, idfs); !ok {
				return false, 0
			}
		}
		for _, c := range q.MustNot {
			if ok, _ := o.eval(c, d, idfs); ok {
				return false, 0
			}
		}
		any := false
		for _, c := range q.Should {
			if ok, v := o.eval(c, d, idfs); ok {
				any = true
				s += v
			}
		}
		if len(q.Must)+len(q.Filter) > 0 {
			return true, s
		}
		if len(q.Should) > 0 {
			return any, s
		}
		return len(q.MustNot) > 0, 0
	}
	panic(fmt.Sprintf("%T", q))
}

// strings are the values of a document as text.
func (d *tdoc) strings(field string) []string {
	var out []string
	switch field {
	case "tag":
		return d.tag
	case "n":
		for _, v := range d.num {
			out = append(out, fmt.Sprint(v))
		}
	case "u":
		for _, v := range d.u {
			out = append(out, fmt.Sprint(v))
		}
	case "x":
		for _, v := range d.x {
			out = append(out, fmt.Sprint(v+0)) // −0 is 0
		}
	case "date":
		for _, v := range d.date {
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}

func number(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	return r
}

func in(q *query.Range, cmp func(b string) int) bool {
	if q.Min != nil {
		if c := cmp(q.Min.Value); c < 0 || (c == 0 && q.Min.Exclusive) {
			return false
		}
	}
	if q.Max != nil {
		if c := cmp(q.Max.Value); c > 0 || (c == 0 && q.Max.Exclusive) {
			return false
		}
	}
	return true
}

type ohit struct {
	key   string
	score float32
}

func (o *oracle) search(q query.Node) []ohit {
	var out []ohit
	idfs := map[string]float32{}
	for i := range o.docs {
		if ok, s := o.eval(q, &o.docs[i], idfs); ok {
			out = append(out, ohit{o.docs[i].key, s})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].score != out[j].score {
			return out[i].score > out[j].score
		}
		return out[i].key < out[j].key
	})
	return out
}

// words of the tests: few and skewed, so that lists are long and scores tie.
func word(r *rand.Rand) string {
	n := int(math.Pow(r.Float64(), 3) * 40)
	return fmt.Sprintf("w%c%d", 'a'+n%4, n)
}

func randomDocs(r *rand.Rand, n int) []tdoc {
	docs := make([]tdoc, n)
	for i := range docs {
		d := &docs[i]
		d.key = fmt.Sprintf("k%05d", (i*7919)%100003)
		for f, k := range map[int]int{1: r.IntN(6), 2: r.IntN(40)} {
			for range k {
				d.toks[f] = append(d.toks[f], word(r))
			}
		}
		for range r.IntN(3) {
			d.num = append(d.num, int64(r.IntN(50)-25))
		}
		for range r.IntN(3) {
			d.tag = append(d.tag, string(rune('a'+r.IntN(8))))
		}
		if r.IntN(4) > 0 {
			d.u = []uint64{[]uint64{0, 1, 2, 7, 1 << 63, 1<<63 + 1, math.MaxUint64}[r.IntN(7)]}
		}
		for range r.IntN(4) {
			d.x = append(d.x, []float64{0, math.Copysign(0, -1), 1.5, -1.5, 1e300, -1e300, 5e-324, 0.1}[r.IntN(8)])
		}
		d.date = []int64{day * (int64(i/700) + int64(r.IntN(5)))} // blocks differ
	}
	return docs
}

const day = 86_400_000

// value is the text of a value that documents may have in a column.
func value(r *rand.Rand, field string) string {
	switch field {
	case "tag":
		return string(rune('a' + r.IntN(9)))
	case "u":
		return []string{"0", "1", "2", "3", "9223372036854775808", "9223372036854775809", "18446744073709551615"}[r.IntN(7)]
	case "x":
		return []string{"0", "1.5", "-1.5", "1e+300", "5e-324", "0.1", "2"}[r.IntN(7)]
	case "date":
		return fmt.Sprint(day * int64(r.IntN(8)))
	}
	return fmt.Sprint(r.IntN(60) - 30)
}

var columns = []string{"n", "n", "tag", "u", "x", "date"}

func randomQuery(r *rand.Rand, depth int) query.Node {
	field := []string{"", "title", "body", "body"}[r.IntN(4)]
	n := 10
	if depth > 0 {
		n = 18
	}
	switch r.IntN(n) {
	default:
		return &query.Term{Field: field, Text: word(r)}
	case 4:
		var ws []string
		for range 2 + r.IntN(3) {
			ws = append(ws, word(r))
		}
		return &query.Match{Field: field, Text: strings.Join(ws, " "), All: r.IntN(2) == 0, MaxTerms: max(0, r.IntN(6)-2)}
	case 5, 6:
		ws := []string{word(r), word(r)}
		if r.IntN(3) == 0 {
			ws = append(ws, word(r))
		}
		return &query.Phrase{Field: field, Text: strings.Join(ws, " "), Slop: uint32(r.IntN(3))}
	case 7:
		return &query.Prefix{Field: field, Text: word(r)[:1+r.IntN(2)]}
	case 8:
		field := columns[r.IntN(len(columns))]
		if r.IntN(3) == 0 {
			q := &query.Terms{Field: field}
			for range r.IntN(4) {
				q.Values = append(q.Values, value(r, field))
			}
			return q
		}
		q := &query.Range{Field: field}
		if r.IntN(3) > 0 {
			q.Min = &query.Bound{Value: value(r, field), Exclusive: r.IntN(2) == 0}
		}
		if r.IntN(3) > 0 {
			q.Max = &query.Bound{Value: value(r, field), Exclusive: r.IntN(2) == 0}
		}
		return q
	case 9:
		if r.IntN(3) == 0 {
			return &query.All{}
		}
		return &query.Exists{Field: []string{"n", "tag", "title", "body", "u", "x", "date"}[r.IntN(7)]}
	case 10:
		return &query.Boost{Query: randomQuery(r, depth-1), Factor: []float32{2, 0.5, 3.7, 0, -1}[r.IntN(5)]}
	case 11, 12: // flat disjunction
		b := &query.Bool{}
		for range 1 + r.IntN(5) {
			b.Should = append(b.Should, &query.Term{Field: field, Text: word(r)})
		}
		return b
	case 13, 14: // flat conjunction with options
		b := &query.Bool{}
		for range 1 + r.IntN(3) {
			b.Must = append(b.Must, &query.Term{Field: "body", Text: word(r)})
		}
		for range r.IntN(3) {
			b.Should = append(b.Should, &query.Term{Field: field, Text: word(r)})
		}
		for range r.IntN(2) {
			b.MustNot = append(b.MustNot, &query.Term{Field: "body", Text: word(r)})
		}
		for range r.IntN(2) {
			b.Filter = append(b.Filter, &query.Term{Field: "body", Text: word(r)})
		}
		return b
	case 15: // negations of negations
		n := randomQuery(r, depth-1)
		for range 1 + r.IntN(3) {
			b := &query.Bool{MustNot: []query.Node{n}}
			if r.IntN(3) == 0 {
				b.Must = []query.Node{randomQuery(r, depth-2)}
			}
			n = b
		}
		return n
	case 16, 17:
		b := &query.Bool{}
		for _, p := range []*[]query.Node{&b.Must, &b.Should, &b.Should, &b.MustNot, &b.Filter} {
			if r.IntN(2) == 0 {
				continue
			}
			*p = append(*p, randomQuery(r, depth-1))
		}
		return b
	}
}

// layouts makes the same live documents into leaves in several ways.
func layouts(t testing.TB, r *rand.Rand, docs []tdoc) (live []tdoc, out [][]Leaf) {
	dead := map[int]bool{}
	for i := range docs {
		if r.IntN(5) == 0 {
			dead[i] = true
		} else {
			live = append(live, docs[i])
		}
	}
	out = append(out, []Leaf{newSegLeaf(t, live, nil)})
	out = append(out, []Leaf{newMemLeaf(live, nil, false)})
	parts := 2 + r.IntN(3)
	var ls []Leaf
	for p := range parts {
		var ds []tdoc
		dd := map[int]bool{}
		for i := range docs {
			if i%parts == p {
				if dead[i] {
					dd[len(ds)] = true
				}
				ds = append(ds, docs[i])
			}
		}
		if p == parts-1 {
			ls = append(ls, newMemLeaf(ds, dd, false))
		} else {
			ls = append(ls, newSegLeaf(t, ds, dd))
		}
	}
	return live, append(out, ls)
}

func TestSearchEqualsBruteForce(t *testing.T) {
	seeds := 6
	queries := 150
	if testing.Short() {
		seeds = 2
	}
	if raceEnabled { // what the detector looks for does not depend on the query
		queries = 25
	}
	sch, an := testSchema(), testAnalyzers(t)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		docs := randomDocs(r, []int{3, 40, 700, 1500, 2500, 900}[seed%6])
		live, ls := layouts(t, r, docs)
		o := newOracle(live)
		for qi := range queries {
			q := randomQuery(r, 1+qi%3)
			want := o.search(q)
			for li, leaves := range ls {
				for _, k := range []int{1, 10, 3000} {
					req := Request{Query: q, Limit: k, Total: []TotalMode{TotalExact, TotalNone}[r.IntN(2)], Exhaustive: r.IntN(4) == 0}
					if k == 10 {
						req.Offset = r.IntN(5)
					}
					res, err := Search(context.Background(), leaves, sch, an, req)
					if err != nil {
						t.Fatal(err)
					}
					name := fmt.Sprintf("seed %d query %d layout %d k %d: %s", seed, qi, li, k, show(q))
					if req.Total == TotalExact && res.Total != uint64(len(want)) {
						t.Fatalf("%s: total %d, want %d", name, res.Total, len(want))
					}
					w := want[min(req.Offset, len(want)):]
					w = w[:min(k, len(w))]
					if len(res.Hits) != len(w) {
						t.Fatalf("%s: %d hits, want %d", name, len(res.Hits), len(w))
					}
					for i, h := range res.Hits {
						if h.Key != w[i].key || math.Float32bits(h.Score) != math.Float32bits(w[i].score) {
							t.Fatalf("%s: hit %d is %s %v, want %s %v", name, i, h.Key, h.Score, w[i].key, w[i].score)
						}
					}
				}
				res, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Total: TotalExact})
				if err != nil || res.Total != uint64(len(want)) {
					t.Fatalf("count of %s: %d %v, want %d", show(q), res.Total, err, len(want))
				}
				floor := uint64(r.IntN(20))
				res, err = Search(context.Background(), leaves, sch, an, Request{Query: q, Limit: 3, Total: TotalAtLeast, TotalFloor: floor})
				if err != nil || res.Total > uint64(len(want)) || (res.TotalRelation == Exactly && res.Total != uint64(len(want))) ||
					(res.TotalRelation == AtLeast && res.Total < floor) {
					t.Fatalf("count of %s from %d on: %d %s %v, want %d", show(q), floor, res.Total, res.TotalRelation, err, len(want))
				}
			}
		}
	}
}

func show(q query.Node) string {
	switch q := q.(type) {
	case *query.Boost:
		return fmt.Sprintf("(%s)^%v", show(q.Query), q.Factor)
	case *query.Bool:
		s := "{"
		for i, l := range [][]query.Node{q.Must, q.Should, q.MustNot, q.Filter} {
			for _, c := range l {
				s += " " + []string{"+", "", "-", "#"}[i] + show(c)
			}
		}
		return s + " }"
	}
	return fmt.Sprintf("%T%+v", q, q)
}

// TestShardsWithSummedStatisticsEqualOne splits documents over shards, sums their statistics, and merges their answers.
func TestShardsWithSummedStatisticsEqualOne(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	r := rand.New(rand.NewPCG(5, 5))
	docs := randomDocs(r, 900)
	live, ls := layouts(t, r, docs)
	o := newOracle(live)
	shards := ls[2]
	for range 100 {
		q := randomQuery(r, 2)
		sum := &score.Stats{Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
		for _, l := range shards {
			st, err := Statistics(context.Background(), []Leaf{l}, sch, an, Request{Query: q})
			if err != nil {
				t.Fatal(err)
			}
			sum.Docs += st.Docs
			for k, v := range st.Fields {
				f := sum.Fields[k]
				f.Add(v)
				sum.Fields[k] = f
			}
			for k, v := range st.DF {
				sum.DF[k] += v
			}
		}
		var got []ohit
		var total uint64
		for _, l := range shards {
			res, err := Search(context.Background(), []Leaf{l}, sch, an, Request{Query: q, Limit: 20, Stats: sum})
			if err != nil {
				t.Fatal(err)
			}
			total += res.Total
			for _, h := range res.Hits {
				got = append(got, ohit{h.Key, h.Score})
			}
		}
		sort.Slice(got, func(i, j int) bool {
			if got[i].score != got[j].score {
				return got[i].score > got[j].score
			}
			return got[i].key < got[j].key
		})
		want := o.search(q)
		if total != uint64(len(want)) {
			t.Fatalf("%s: total %d, want %d", show(q), total, len(want))
		}
		got, want = got[:min(20, len(got))], want[:min(20, len(want))]
		if !slices.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", show(q), got, want)
		}
	}
}

// TestPrefixScoresItsMostFrequentTerms gives a prefix more terms than may score.
func TestPrefixScoresItsMostFrequentTerms(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	const n = MaxPrefixTerms + 200
	docs := make([]tdoc, n)
	for i := range n {
		docs[i].key = fmt.Sprintf("k%05d", i)
		docs[i].toks[2] = []string{fmt.Sprintf("p%05d", n-i)}
		if i%2 == 0 { // the even ones' terms are in two documents
			docs = append(docs, tdoc{key: fmt.Sprintf("m%05d", i), toks: docs[i].toks})
		}
	}
	for _, leaves := range [][]Leaf{
		{newSegLeaf(t, docs, nil)},
		{newSegLeaf(t, docs[:500], nil), newMemLeaf(docs[500:], nil, false)},
	} {
		res, err := Search(context.Background(), leaves, sch, an, Request{Query: &query.Prefix{Field: "body", Text: "p"}, Limit: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if int(res.Total) != len(docs) || len(res.Notes) != 1 {
			t.Fatalf("total %d of %d, notes %v", res.Total, len(docs), res.Notes)
		}
		scored := 0
		for _, h := range res.Hits {
			if h.Score > 0 {
				scored++
			}
		}
		// 612 terms in two documents, then the first 412 in byte order of those in one
		if want := 612*2 + 412; scored != want {
			t.Fatalf("%d documents score, want %d", scored, want)
		}
	}
}

// TestQueryOfVeryManyParts: the memory of a search is kept for the next up to a bound, which a large query passes.
func TestQueryOfVeryManyParts(t *testing.T) {
	sch, an := testSchema(), testAnalyzers(t)
	leaves := []Leaf{newMemLeaf(randomDocs(rand.New(rand.NewPCG(1, 1)), 50), nil, false)}
	q := &query.Bool{}
	for range 5000 {
		q.Should = append(q.Should, &query.Range{Field: "n", Min: &query.Bound{Value: "0"}})
	}
	for range 3 {
		if _, err := Search(context.Background(), leaves, sch, an, Request{Query: q, Limit: 5}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTokensAreCountedOnceForAllFields: how many default fields an index has does not use up the words of a query.
func TestTokensAreCountedOnceForAllFields(t *testing.T) {
	sch := &schema.Schema{}
	for i := range 1100 {
		sch.Fields = append(sch.Fields, schema.Field{Name: fmt.Sprintf("f%d", i), Type: schema.Text, Tokenizer: "alnum", Indexed: true, K1: 1.2, B: 0.75})
	}
	a, err := text.Lookup("alnum")
	if err != nil {
		t.Fatal(err)
	}
	try := func(n int) string {
		_, err := Search(context.Background(), nil, sch, func(int) *text.Analyzer { return a },
			Request{Query: &query.Match{Text: strings.Repeat("word ", n)}, Limit: 5})
		var q *QueryError
		if errors.As(err, &q) {
			return q.Code
		}
		return fmt.Sprint(err)
	}
	if got := try(1); got != "<nil>" {
		t.Errorf("one word over 1,100 fields: %s", got)
	}
	for _, n := range []int{16, MaxTokens + 1} { // too many lists, too many tokens
		if got := try(n); got != "too_many_tokens" {
			t.Errorf("%d words over 1,100 fields: %s", n, got)
		}
	}
}
