package agg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/weft-search/weft/internal/schema"
)

// Fields of the test schema.
const (
	fU = iota
	fI
	fF
	fD
	fT
	fPlain
	fVec
)

func testSchema() *schema.Schema {
	return &schema.Schema{Fields: []schema.Field{
		{Name: "u", Type: schema.U64, Fast: true, Multi: true},
		{Name: "i", Type: schema.I64, Fast: true, Multi: true},
		{Name: "f.x", Type: schema.F64, Fast: true, Multi: true},
		{Name: "d", Type: schema.Date, Fast: true, Multi: true},
		{Name: "t", Type: schema.Text, Fast: true, Multi: true, Tokenizer: "raw"},
		{Name: "plain", Type: schema.Text, Indexed: true, Tokenizer: "default"},
		{Name: "vec", Type: schema.DenseVector, Dim: 2},
		{Name: "slow", Type: schema.I64},
	}}
}

// doc is one document: encoded values by field, and texts.
type doc struct {
	id   int
	nums [4][]uint64
	text []string
}

// memLeaf is a leaf in memory.
type memLeaf struct {
	docs   []doc
	dict   []string
	fast   bool
	filter []func(d *doc) bool
}

func newLeaf(docs []doc, fast bool, p *Plan) *memLeaf {
	l := &memLeaf{docs: docs, fast: fast}
	for i := range docs {
		l.dict = append(l.dict, docs[i].text...)
	}
	slices.Sort(l.dict)
	l.dict = slices.Compact(l.dict)
	if p != nil {
		for _, e := range p.Filters() {
			l.filter = append(l.filter, filterFunc(e.Text))
		}
	}
	return l
}

// filterFunc reads "mod N": documents whose id is a multiple of N; "mod 0" takes none.
func filterFunc(text string) func(d *doc) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(text, "mod "))
	if err != nil {
		panic(err)
	}
	return func(d *doc) bool { return n > 0 && d.id%n == 0 }
}

func (l *memLeaf) NumDocs() uint32 { return uint32(len(l.docs)) }

func (l *memLeaf) Filter(i int) ([]uint64, bool) {
	set := make([]uint64, (len(l.docs)+63)/64)
	all := true
	for d := range l.docs {
		if l.filter[i](&l.docs[d]) {
			set[d/64] |= 1 << (d % 64)
		} else {
			all = false
		}
	}
	return set, all
}

func (l *memLeaf) NumColumn(field int) NumColumn {
	some := false
	for i := range l.docs {
		some = some || len(l.docs[i].nums[field]) > 0
	}
	switch {
	case !some:
		return nil
	case l.fast:
		return fastNums{memNums{l, field}}
	}
	return memNums{l, field}
}

func (l *memLeaf) StrColumn(int) StrColumn {
	switch {
	case len(l.dict) == 0:
		return nil
	case l.fast:
		return fastStrs{memStrs{l}}
	}
	return memStrs{l}
}

type memNums struct {
	l     *memLeaf
	field int
}

func (c memNums) Values(d uint32, dst []uint64) []uint64 {
	return append(dst, c.l.docs[d].nums[c.field]...)
}
func (c memNums) NumBlocks() int { return (len(c.l.docs) + ColumnBlock - 1) / ColumnBlock }
func (c memNums) BlockRange(b int) (lo, hi uint64, ok bool) {
	for _, d := range c.l.docs[b*ColumnBlock : min((b+1)*ColumnBlock, len(c.l.docs))] {
		for _, v := range d.nums[c.field] {
			if !ok {
				lo, hi, ok = v, v, true
			}
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	return lo, hi, ok
}

type fastNums struct{ memNums }

func (c fastNums) ReadBlock(b int, dst *[ColumnBlock]uint64) (n int, ok bool) {
	for i, d := range c.l.docs[b*ColumnBlock : min((b+1)*ColumnBlock, len(c.l.docs))] {
		v := d.nums[c.field]
		if len(v) != 1 {
			return 0, false
		}
		dst[i] = v[0]
		n++
	}
	return n, true
}

type memStrs struct{ l *memLeaf }

func (c memStrs) NumOrds() int                      { return len(c.l.dict) }
func (c memStrs) Lookup(ord int, dst []byte) []byte { return append(dst, c.l.dict[ord]...) }
func (c memStrs) Ords(d uint32, dst []uint32) []uint32 {
	for _, s := range c.l.docs[d].text {
		k, _ := slices.BinarySearch(c.l.dict, s)
		dst = append(dst, uint32(k))
	}
	return dst
}

type fastStrs struct{ memStrs }

func (c fastStrs) ReadBlock(b int, dst *[ColumnBlock]uint64) (n int, ok bool) {
	for i := b * ColumnBlock; i < min((b+1)*ColumnBlock, len(c.l.docs)); i++ {
		o := c.Ords(uint32(i), nil)
		if len(o) != 1 {
			return 0, false
		}
		dst[n] = uint64(o[0])
		n++
	}
	return n, true
}

// shape says how the values of a run of documents look.
type shape struct {
	multi, missing bool
	extreme        bool
	wide           bool // integers far apart
	long           bool // texts of up to 600 bytes, most of them different
}

func randomDocs(r *rand.Rand, n int, s shape) []doc {
	docs := make([]doc, n)
	for i := range docs {
		d := &docs[i]
		d.id = i
		howMany := func() int {
			switch {
			case s.missing && r.IntN(4) == 0:
				return 0
			case s.multi && r.IntN(3) == 0:
				return 2 + r.IntN(3)
			}
			return 1
		}
		for range howMany() {
			d.nums[fU] = append(d.nums[fU], randomU(r, s))
		}
		for range howMany() {
			d.nums[fI] = append(d.nums[fI], schema.EncodeI64(randomI(r, s)))
		}
		for range howMany() {
			d.nums[fF] = append(d.nums[fF], schema.EncodeF64(randomF(r, s)))
		}
		for range howMany() {
			d.nums[fD] = append(d.nums[fD], schema.EncodeI64(randomD(r, s)))
		}
		for range howMany() {
			d.text = append(d.text, randomT(r, s))
		}
	}
	return docs
}

func randomU(r *rand.Rand, s shape) uint64 {
	switch {
	case s.extreme && r.IntN(3) == 0:
		return []uint64{0, 1, 1 << 53, 1<<53 + 1, math.MaxUint64, math.MaxUint64 - 1, 1 << 63}[r.IntN(7)]
	case s.wide:
		return r.Uint64() >> r.IntN(64)
	}
	return r.Uint64N(40)
}

func randomI(r *rand.Rand, s shape) int64 {
	switch {
	case s.extreme && r.IntN(3) == 0:
		return []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64, -1 << 53, 1<<53 + 1}[r.IntN(8)]
	case s.wide:
		return int64(r.Uint64()) >> r.IntN(64)
	}
	return r.Int64N(60) - 30
}

func randomF(r *rand.Rand, s shape) float64 {
	switch {
	case s.extreme && r.IntN(3) == 0:
		return []float64{0, math.Copysign(0, -1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64, 1e16, 1, -1e16, 0x1p-1022}[r.IntN(10)]
	case s.wide:
		return math.Ldexp(r.NormFloat64(), r.IntN(200)-100)
	}
	return float64(r.IntN(200)-100) / 8
}

func randomD(r *rand.Rand, s shape) int64 {
	switch {
	case s.extreme && r.IntN(3) == 0:
		return []int64{math.MinInt64, math.MaxInt64, 0, -1, -62_135_596_800_000, 253_402_300_799_999, 951_782_400_000}[r.IntN(7)]
	case s.wide:
		return r.Int64N(4_000_000_000_000) - 2_000_000_000_000
	}
	return 1_700_000_000_000 + r.Int64N(40*86_400_000)
}

func randomT(r *rand.Rand, s shape) string {
	if s.extreme && r.IntN(4) == 0 {
		return []string{"", "\x00", "ä\"\\", "ab", "abc", strings.Repeat("z", 3_000), "🧵"}[r.IntN(7)]
	}
	if s.long {
		return fmt.Sprintf("%05d", r.IntN(20_000)) + strings.Repeat("x", r.IntN(600))
	}
	if s.wide {
		return fmt.Sprintf("w%07d", r.IntN(1_000_000))
	}
	return string(rune('a' + r.IntN(12)))
}

// randomSpecs makes aggregations whose limits the documents of the shape do not break.
func randomSpecs(r *rand.Rand, s shape, sub bool) []Spec {
	var specs []Spec
	for k := range 1 + r.IntN(4) {
		sp := Spec{Name: fmt.Sprintf("a%d", k), Kind: Kind(1 + r.IntN(8))}
		numeric := []string{"u", "i", "f.x", "d"}
		sp.Field = numeric[r.IntN(4)]
		switch sp.Kind {
		case Terms, Cardinality:
			sp.Field = append(numeric, "t", "t")[r.IntN(6)]
			if sp.Kind == Terms {
				sp.Size = []int{0, 1, 3, 10, 1000}[r.IntN(5)]
			}
		case Histogram:
			sp.Field = numeric[r.IntN(3)]
			sp.Interval = []string{"1", "7", "2.5", "10", "1e1"}[r.IntN(5)]
			if sp.Field == "f.x" {
				sp.Interval = []string{"0.1", "1", "3.7", "0.125"}[r.IntN(4)]
			}
			if s.wide || s.extreme {
				sp.Interval = []string{"9007199254740993000", "12345678901234567890", "1e18"}[r.IntN(3)]
				if sp.Field == "f.x" {
					sp.Interval = []string{"1e307", "3e305"}[r.IntN(2)]
				}
			}
		case DateHistogram:
			sp.Field = "d"
			sp.Interval = []string{"1m", "1h", "1d", "1w", "1M", "1q", "1y"}[r.IntN(7)]
			if s.wide {
				sp.Interval = []string{"1d", "1w", "1M", "1q", "1y"}[r.IntN(5)]
			}
			if s.extreme {
				sp.Kind, sp.Interval = Stats, ""
			}
		case Range:
			for range 1 + r.IntN(5) {
				sp.Ranges = append(sp.Ranges, randomSpan(r, sp.Field, s))
			}
			if r.IntN(10) == 0 {
				for k := range 40 {
					sp.Ranges = append(sp.Ranges, Span{From: strconv.Itoa(k), To: strconv.Itoa(2 * k)})
				}
			}
		case Percentiles:
			sp.Percents = [][]string{{"50"}, {"0", "100"}, {"50", "90", "99"}, {"33.3", "0.001", "66.666666666667"}}[r.IntN(4)]
		case Filter:
			sp.Field = ""
			sp.Filter = &Expr{Text: fmt.Sprintf("mod %d", r.IntN(5))}
		}
		if sp.Kind != Filter && r.IntN(5) == 0 {
			sp.Filter = &Expr{Text: fmt.Sprintf("mod %d", r.IntN(4))}
		}
		if !sub && sp.Kind.buckets() && r.IntN(2) == 0 {
			sp.Aggs = randomSpecs(r, s, true)
		}
		specs = append(specs, sp)
	}
	return specs
}

func randomSpan(r *rand.Rand, field string, s shape) Span {
	end := func() (float64, string) {
		if field == "d" {
			ms := randomD(r, shape{wide: s.wide})
			if r.IntN(2) == 0 {
				return float64(ms), strconv.FormatInt(ms, 10)
			}
			return float64(ms), schema.FormatDate(ms)
		}
		texts := []string{"-1e30", "-5", "-0.5", "0", "1.5", "3", "7", "12.000", "1e1", "20", "9007199254740993", "1e25"}
		t := texts[r.IntN(len(texts))]
		v, err := strconv.ParseFloat(t, 64)
		if err != nil {
			panic(err)
		}
		return v, t
	}
	a, at := end()
	b, bt := end()
	if a > b {
		at, bt = bt, at
	}
	switch r.IntN(6) {
	case 0:
		at = ""
	case 1:
		bt = ""
	}
	return Span{From: at, To: bt}
}

func sortedKeys[K interface{ ~string | ~uint64 }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	return keys
}
