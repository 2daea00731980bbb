package agg

import (
	"context"
	"errors"
	"fmt"
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
		p := bindTest(t, []Spec{{Name: "a", Kind: Terms, Field: wideField(), Aggs: []Spec{sub}}}, Options{StateBytes: 4 << 20})
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
	p := bindTest(t, []Spec{{Name: "a", Kind: Terms, Field: wideField(), Aggs: []Spec{{Name: "s", Kind: Stats, Field: wideField()}}}}, Options{})
	looks := 20 // of the 12,000 or so that the whole would take
	if err := p.NewState().Collect(endingContext{context.Background(), &looks}, leaf, nil, true); err == nil {
		t.Fatal("the collection went on to its end")
	}
}
