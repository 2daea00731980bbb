package agg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/schema"
)

// A document with very many values in very many overlapping ranges takes the memory of the ranges, not of the product.
func TestRangesOfADocumentTakeTheMemoryOfTheRanges(t *testing.T) {
	sch := &schema.Schema{Fields: []schema.Field{{Name: "m", Type: schema.I64, Fast: true, Multi: true}}}
	spec := Spec{Name: "a", Kind: Range, Field: "m"}
	for i := range MaxRanges {
		spec.Ranges = append(spec.Ranges, Span{From: fmt.Sprint(i)})
	}
	p, err := Bind([]Spec{spec}, sch, Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := newKeyer(p.nodes[0], 0, 0, false, 1)
	r := rows{starts: []uint32{0}}
	for i := range 60_000 {
		r.vals = append(r.vals, schema.EncodeI64(int64(i)))
	}
	r.starts = append(r.starts, uint32(len(r.vals)))
	k.ranges(&r)
	if len(r.vals) != MaxRanges || !slices.IsSorted(r.vals) || cap(k.vals) > 4*MaxRanges {
		t.Fatalf("%d keys in memory for %d", len(r.vals), cap(k.vals))
	}
}

func TestRangesOfARequestAreBoundedTogether(t *testing.T) {
	sch := &schema.Schema{Fields: []schema.Field{{Name: "m", Type: schema.I64, Fast: true}}}
	var specs []Spec
	for i := range 5 {
		s := Spec{Name: fmt.Sprint("a", i), Kind: Range, Field: "m"}
		for k := range MaxRanges - 100 {
			s.Ranges = append(s.Ranges, Span{From: fmt.Sprint(k)})
		}
		specs = append(specs, s)
	}
	if _, err := Bind(specs[:4], sch, Options{}); err != nil {
		t.Fatal(err)
	}
	_, err := Bind(specs, sch, Options{})
	if bad, ok := errors.AsType[*SpecError](err); !ok || bad.Code != CodeLimit || bad.Limit != MaxRangesInAll || bad.Field != "m" {
		t.Fatalf("error is %v", err)
	}
}

// wideDoc has every number below n in its second field.
func wideDoc(n int) []doc {
	d := doc{}
	for i := range n {
		d.nums[1] = append(d.nums[1], schema.EncodeI64(int64(i)))
	}
	return []doc{d}
}

func wideField() string { return testSchema().Fields[1].Name }

// Sub-aggregations of a document with very many values in the field of both levels make the product of the two: the limit of the
// state is met on the way, not behind it.
func TestOneWideDocumentMeetsTheLimitOfTheState(t *testing.T) {
	leaf := newLeaf(wideDoc(14_000), false, nil)
	for _, kind := range []Kind{Cardinality, Terms, Percentiles} {
		sub := Spec{Name: "s", Kind: kind, Field: wideField()}
		if kind == Percentiles {
			sub.Percents = []string{"50"}
		}
		p := bindTest(t, []Spec{{Name: "a", Kind: Terms, Field: wideField(), Aggs: []Spec{sub}}}, Options{StateBytes: 4 << 20, pairs: 1 << 40})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := p.NewState().Collect(context.Background(), leaf, nil, true)
		runtime.ReadMemStats(&after)
		if bad, ok := errors.AsType[*SpecError](err); !ok || bad.Code != CodeLimit {
			t.Errorf("%v: error is %v", kind, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 700<<20 { // the product is 1.6 GB
			t.Errorf("%v: %d MiB were allocated", kind, got>>20)
		}
	}
}

// endingContext ends after a number of looks at it.
type endingContext struct {
	context.Context
	looks *int
}

var errOver = errors.New("the time is over")

func (c endingContext) Err() error {
	if *c.looks--; *c.looks < 0 {
		return errOver
	}
	return nil
}

func TestOneWideDocumentHeedsTheTime(t *testing.T) {
	leaf := newLeaf(wideDoc(20_000), false, nil)
	p := bindTest(t, []Spec{{Name: "a", Kind: Terms, Field: wideField(), Aggs: []Spec{{Name: "s", Kind: Stats, Field: wideField()}}}}, Options{pairs: 1 << 40})
	looks := 20 // of the 12,000 or so that the whole would take
	if err := p.NewState().Collect(endingContext{context.Background(), &looks}, leaf, nil, true); err == nil {
		t.Fatal("the collection went on to its end")
	}
}

// A document with 60,000 values makes 3.6e9 pairs with the buckets of its own values: it is refused before they are gone through.
func TestPairsOfOneDocumentAreBounded(t *testing.T) {
	sch := testSchema()
	for _, c := range []struct {
		n      int
		sub    Kind
		field  int
		pass   bool
		filter string
	}{
		{60_000, Stats, fI, false, ""},
		{60_000, Cardinality, fI, false, ""},
		{60_000, Terms, fI, false, ""},
		{2_001, Stats, fI, false, ""},
		{2_000, Stats, fI, true, ""},
		{60_000, Stats, fU, true, ""}, // of which it has one value
		{60_000, Stats, fI, true, "mod 0"},
	} {
		docs := wideDoc(c.n)
		docs[0].nums[fU] = []uint64{1}
		sub := Spec{Name: "s", Kind: c.sub, Field: sch.Fields[c.field].Name}
		if c.filter != "" {
			sub.Filter = &Expr{Text: c.filter}
		}
		p := bindTest(t, []Spec{{Name: "a", Kind: Terms, Field: wideField(), Aggs: []Spec{sub}}}, Options{})
		looks := 500 // that would be 16 million steps
		err := p.NewState().Collect(endingContext{context.Background(), &looks}, newLeaf(docs, false, p), nil, true)
		bad, refused := errors.AsType[*SpecError](err)
		if c.pass && err != nil || !c.pass && (!refused || bad.Code != CodeLimit || bad.Limit != MaxPairs || bad.Field != wideField() || bad.Name != "a") {
			t.Errorf("%d values, %v of %s: %v", c.n, c.sub, sub.Field, err)
		}
	}
}

// Which documents are refused for their pairs depends on the documents, not on the leaves they are in nor on how those are read. The
// aggregations in the buckets count together; no number of documents adds up to the limit.
func TestRefusalForPairsDependsOnTheDocumentsOnly(t *testing.T) {
	specs := specsOf(t, `{"a":{"kind":"terms","field":"i","aggs":{"s":{"kind":"stats","field":"i"},"c":{"kind":"cardinality","field":"t","filter":"mod 2"},"r":{"kind":"range","field":"u","ranges":["0..","1..","5.."]}}}}`)
	refusals := 0
	for round := range 5 {
		r := rand.New(rand.NewPCG(11, uint64(round)))
		docs := randomDocs(r, 100+r.IntN(1_500), shape{multi: true, missing: true})
		for range 3 {
			d := &docs[r.IntN(len(docs))]
			for v := range r.IntN(12) {
				d.nums[fI] = append(d.nums[fI], schema.EncodeI64(int64(100+v)))
			}
		}
		// The pairs by hand.
		most := 0
		for i := range docs {
			d := &docs[i]
			distinct := func(v []uint64) int {
				v = slices.Clone(v)
				slices.Sort(v)
				return len(slices.Compact(v))
			}
			ranges, greatest := 0, uint64(0)
			for _, v := range d.nums[fU] {
				greatest = max(greatest, v)
				ranges = 1
			}
			if greatest >= 1 {
				ranges++
			}
			if greatest >= 5 {
				ranges++
			}
			texts := slices.Clone(d.text)
			slices.Sort(texts)
			n := len(d.nums[fI]) + ranges
			if d.id%2 == 0 {
				n += len(slices.Compact(texts))
			}
			most = max(most, distinct(d.nums[fI])*n)
		}
		for _, limit := range []int{most - 1, most} {
			for leaves := 1; leaves <= 10; leaves++ {
				p := bindTest(t, specs, Options{pairs: limit, read: []int{0, 3}[r.IntN(2)], table: []int{0, 50}[r.IntN(2)]})
				s := p.NewState()
				var err error
				for k := range leaves {
					part := docs[len(docs)*k/leaves : len(docs)*(k+1)/leaves]
					if err == nil {
						err = s.Collect(context.Background(), newLeaf(part, r.IntN(2) == 0, p), nil, true)
					}
				}
				bad, refused := errors.AsType[*SpecError](err)
				if refused != (limit < most) || refused && (bad.Limit != int64(limit) || bad.Name != "a" || bad.Field != "i") || err != nil && !refused {
					t.Fatalf("round %d, %d leaves, limit %d of %d: %v", round, leaves, limit, most, err)
				}
				if refused {
					refusals++
				}
			}
		}
	}
	if refusals != 50 {
		t.Errorf("%d refusals", refusals)
	}
}
