package agg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/schema"
)

// benchColumn is a column of one value for each document.
type benchColumn struct {
	vals   []uint64
	ranges [][2]uint64
	dict   []string
}

func newBenchColumn(vals []uint64) *benchColumn {
	c := &benchColumn{vals: vals}
	for i := 0; i < len(vals); i += ColumnBlock {
		lo, hi := vals[i], vals[i]
		for _, v := range vals[i:min(i+ColumnBlock, len(vals))] {
			lo, hi = min(lo, v), max(hi, v)
		}
		c.ranges = append(c.ranges, [2]uint64{lo, hi})
	}
	return c
}

func (c *benchColumn) NumBlocks() int { return len(c.ranges) }
func (c *benchColumn) BlockRange(b int) (lo, hi uint64, ok bool) {
	return c.ranges[b][0], c.ranges[b][1], true
}

func (c *benchColumn) ReadBlock(b int, dst *[ColumnBlock]uint64) (int, bool) {
	return copy(dst[:], c.vals[b*ColumnBlock:min((b+1)*ColumnBlock, len(c.vals))]), true
}
func (c *benchColumn) Values(d uint32, dst []uint64) []uint64 { return append(dst, c.vals[d]) }
func (c *benchColumn) NumOrds() int                           { return len(c.dict) }
func (c *benchColumn) Lookup(o int, dst []byte) []byte        { return append(dst, c.dict[o]...) }
func (c *benchColumn) Ords(d uint32, dst []uint32) []uint32   { return append(dst, uint32(c.vals[d])) }

type benchLeaf struct {
	n    int
	cols [5]*benchColumn
}

func (l *benchLeaf) NumDocs() uint32             { return uint32(l.n) }
func (l *benchLeaf) NumColumn(f int) NumColumn   { return l.cols[f] }
func (l *benchLeaf) StrColumn(f int) StrColumn   { return l.cols[f] }
func (l *benchLeaf) Filter(int) ([]uint64, bool) { return nil, true }

func newBenchLeaf(n int) *benchLeaf {
	r := rand.New(rand.NewPCG(1, 2))
	l := &benchLeaf{n: n}
	make1 := func(f func() uint64) *benchColumn {
		vals := make([]uint64, n)
		for i := range vals {
			vals[i] = f()
		}
		return newBenchColumn(vals)
	}
	l.cols[fU] = make1(func() uint64 { return r.Uint64N(1_000_000) })
	l.cols[fI] = make1(func() uint64 { return schema.EncodeI64(r.Int64N(2_000) - 1_000) })
	l.cols[fF] = make1(func() uint64 { return schema.EncodeF64(r.NormFloat64() * 1_000) })
	l.cols[fD] = make1(func() uint64 { return schema.EncodeI64(1_500_000_000_000 + r.Int64N(200_000_000_000)) })
	l.cols[fT] = make1(func() uint64 { return r.Uint64N(1_000) })
	for i := range 1_000 {
		l.cols[fT].dict = append(l.cols[fT].dict, fmt.Sprintf("value-%04d", i))
	}
	return l
}

func BenchmarkCollect(b *testing.B) {
	const n = 1_000_000
	leaf := newBenchLeaf(n)
	half := make([]uint64, n/64+1)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range half {
		half[i] = r.Uint64()
	}
	for _, c := range []struct{ name, spec string }{
		{"terms-1k", "a:terms(t,10)"},
		{"terms-i64", "a:terms(i,10)"},
		{"terms-f64", "a:terms(f.x,10)"},
		{"stats-i64", "a:stats(i)"},
		{"stats-f64", "a:stats(f.x)"},
		{"histogram-u64", "a:histogram(u,1000)"},
		{"histogram-f64", "a:histogram(f.x,10)"},
		{"date-month", "a:date_histogram(d,1M)"},
		{"date-hour", "a:date_histogram(d,1h)"},
		{"range-5", "a:range(i,..-500,-500..0,0..100,100..500,500..)"},
		{"percentiles-i64", "a:percentiles(i)"},
		{"percentiles-f64", "a:percentiles(f.x)"},
		{"cardinality-t", "a:cardinality(t)"},
		{"cardinality-u64", "a:cardinality(u)"},
		{"cardinality-f64", "a:cardinality(f.x)"},
	} {
		specs, err := Parse(c.spec)
		if err != nil {
			b.Fatal(err)
		}
		benchSpecs(b, c.name, specs, leaf, half)
	}
	for _, c := range []struct{ name, spec string }{
		{"terms>stats", `{"a":{"kind":"terms","field":"t","aggs":{"s":{"kind":"stats","field":"f.x"}}}}`},
		{"terms>terms", `{"a":{"kind":"terms","field":"t","aggs":{"s":{"kind":"terms","field":"i"}}}}`},
		{"month>percentiles", `{"a":{"kind":"date_histogram","field":"d","interval":"1M","aggs":{"s":{"kind":"percentiles","field":"f.x"}}}}`},
		{"terms>cardinality", `{"a":{"kind":"terms","field":"t","aggs":{"s":{"kind":"cardinality","field":"u"}}}}`},
	} {
		specs, err := ParseJSON([]byte(c.spec))
		if err != nil {
			b.Fatal(err)
		}
		benchSpecs(b, c.name, specs, leaf, half)
	}
}

func benchSpecs(b *testing.B, name string, specs []Spec, leaf Leaf, half []uint64) {
	p, err := Bind(specs, testSchema(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, all := range []bool{true, false} {
		which := "/half"
		if all {
			which = "/all"
		}
		b.Run(name+which, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := p.NewState()
				if err := s.Collect(context.Background(), leaf, half, all); err != nil {
					b.Fatal(err)
				}
				answerOf(s)
			}
		})
	}
}
