package agg

import (
	"errors"
	"fmt"
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
