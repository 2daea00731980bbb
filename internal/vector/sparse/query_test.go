package sparse

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestQueriesThatCannotBeUsed(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	many := make([]uint32, MaxQueryDims+1)
	ones := make([]float32, MaxQueryDims+1)
	for i := range many {
		many[i], ones[i] = uint32(i), 1
	}
	for _, c := range []struct {
		name    string
		p       Params
		indices []uint32
		weights []float32
		says    string
		limit   int
	}{
		{"lengths", Params{}, []uint32{1, 2}, []float32{1}, "got 1 and 2", 0},
		{"too many", Params{}, many, ones, "at most 4096 weights, got 4097", MaxQueryDims},
		{"infinite", Params{}, []uint32{1, 2}, []float32{1, inf}, "weight 1 is +Inf", 0},
		{"not a number", Params{}, []uint32{1}, []float32{nan}, "weight 0 is NaN", 0},
		{"above u16", Params{U16: true}, []uint32{1, 65536}, []float32{1, 1}, "up to 65535, index 1 of the query is 65536", 65535},
		{"sum", Params{}, []uint32{5, 5}, []float32{math.MaxFloat32, math.MaxFloat32}, "index 5 add up to +Inf", 0},
		{"empty", Params{}, nil, nil, "at least one weight that is not 0", 0},
		{"zero", Params{}, []uint32{1, 2}, []float32{0, 0}, "at least one weight that is not 0", 0},
		{"nothing left", Params{}, []uint32{1, 1}, []float32{3, -3}, "at least one weight that is not 0", 0},
		{"length", Params{}, []uint32{1, 2}, []float32{2e19, 1}, "a length below 1e+19", 0},
	} {
		_, err := NewQuery(c.p, c.indices, c.weights)
		var qe *QueryError
		if !errors.As(err, &qe) || !strings.Contains(qe.Reason, c.says) || qe.Limit != c.limit {
			t.Errorf("%s: %v, want one that says %q with the limit %d", c.name, err, c.says, c.limit)
		}
	}
	if q, err := NewQuery(Params{U16: true}, many[:MaxQueryDims], ones[:MaxQueryDims]); err != nil || len(q.dims) != MaxQueryDims {
		t.Errorf("a query of as many weights as are allowed: %v", err)
	}
}

func TestEqualIndicesAddUp(t *testing.T) {
	q := query(t, Params{}, []pair{{9, 1}, {2, 0.5}, {9, 2}, {3, 4}, {3, -4}, {2, 0.25}})
	if len(q.dims) != 2 || q.dims[0] != 2 || q.dims[1] != 9 || q.weights[0] != 0.75 || q.weights[1] != 3 {
		t.Errorf("dims %v, weights %v", q.dims, q.weights)
	}
}

func TestDimensionsOfEqualLowBits(t *testing.T) {
	rec := Encode(Params{}, nil, valueOf([]pair{{5, 1}, {65536 + 5, 2}, {131072 + 5, 4}}))
	for _, c := range []struct {
		q    []pair
		want float32
		ok   bool
	}{
		{[]pair{{5, 1}}, 1, true},
		{[]pair{{65541, 1}}, 2, true},
		{[]pair{{5, 1}, {131077, 1}}, 5, true},
		{[]pair{{196613, 1}}, 0, false},
		{[]pair{{6, 1}}, 0, false},
	} {
		if got, ok := query(t, Params{}, c.q).score(rec); got != c.want || ok != c.ok {
			t.Errorf("query %v: %v, %v, want %v, %v", c.q, got, ok, c.want, c.ok)
		}
	}
}
