package score

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatsAdd(t *testing.T) {
	a := &Stats{Docs: 3, Fields: map[string]FieldStats{"t": {SumLen: 10, Docs: 3}}, DF: map[Term]uint64{{"t", "x"}: 2}}
	b := &Stats{
		Docs: 4, Fields: map[string]FieldStats{"t": {SumLen: 5, Docs: 1}, "u": {SumLen: 1, Docs: 1}},
		DF: map[Term]uint64{{"t", "x"}: 1, {"t", "y"}: 1},
	}
	want := &Stats{
		Docs: 7, Fields: map[string]FieldStats{"t": {SumLen: 15, Docs: 4}, "u": {SumLen: 1, Docs: 1}},
		DF: map[Term]uint64{{"t", "x"}: 3, {"t", "y"}: 1},
	}
	for _, order := range [][]*Stats{{a, b}, {b, a}, {a, b, {}}} {
		var sum Stats
		for _, s := range order {
			sum.Add(s)
		}
		if diff := cmp.Diff(want, &sum); diff != "" {
			t.Errorf("sum (-want +got):\n%s", diff)
		}
	}
	if a.DF[Term{"t", "x"}] != 2 || b.Fields["t"].SumLen != 5 {
		t.Error("adding changed what was added")
	}
}
