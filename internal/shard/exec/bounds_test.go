package exec

import (
	"errors"
	"math"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
)

func TestRangeBounds(t *testing.T) {
	sch := &schema.Schema{Fields: []schema.Field{
		{Name: "i", Type: schema.I64, Fast: true},
		{Name: "u", Type: schema.U64, Fast: true},
		{Name: "f", Type: schema.F64, Fast: true},
		{Name: "d", Type: schema.Date, Fast: true},
		{Name: "s", Type: schema.I64},
	}}
	i64, f64 := schema.EncodeI64, schema.EncodeF64
	b := func(v string) *query.Bound { return &query.Bound{Value: v} }
	x := func(v string) *query.Bound { return &query.Bound{Value: v, Exclusive: true} }
	for _, c := range []struct {
		field  string
		lo, hi *query.Bound
		want   [2]uint64
		code   string
		none   bool
	}{
		{field: "i", lo: b("3"), hi: b("5"), want: [2]uint64{i64(3), i64(5)}},
		{field: "i", lo: x("3"), hi: x("5"), want: [2]uint64{i64(4), i64(4)}},
		{field: "i", lo: b("2.5"), hi: b("4.5"), want: [2]uint64{i64(3), i64(4)}},
		{field: "i", lo: x("2.5"), hi: x("4.5"), want: [2]uint64{i64(3), i64(4)}},
		{field: "i", lo: b("-2.5"), hi: b("-0.5"), want: [2]uint64{i64(-2), i64(-1)}},
		{field: "i", lo: b("1e2"), hi: nil, want: [2]uint64{i64(100), math.MaxUint64}},
		{field: "i", lo: b("99999999999999999999"), none: true},
		{field: "i", hi: b("99999999999999999999"), want: [2]uint64{0, math.MaxUint64}},
		{field: "i", hi: b("-99999999999999999999"), none: true},
		{field: "i", lo: x("9223372036854775807"), none: true},
		{field: "u", lo: b("-1"), hi: b("7"), want: [2]uint64{0, 7}},
		{field: "u", hi: b("-1"), none: true},
		{field: "u", hi: x("0"), none: true},
		{field: "u", lo: b("18446744073709551615"), want: [2]uint64{math.MaxUint64, math.MaxUint64}},
		{field: "u", lo: b("18446744073709551616"), none: true},
		// the float a document's 4.2 became, on either side
		{field: "f", lo: b("4.2"), hi: b("4.2"), want: [2]uint64{f64(4.2), f64(4.2)}},
		{field: "f", lo: b("-0"), hi: b("0"), want: [2]uint64{f64(0), f64(0)}},
		{field: "f", lo: b("1e999"), none: true},
		{field: "f", lo: b("-1e999"), hi: b("1e999"), want: [2]uint64{f64(-math.MaxFloat64), f64(math.MaxFloat64)}},
		{field: "d", lo: b("2024-05-17"), hi: b("2024-05-17T00:00:01Z"), want: [2]uint64{i64(1715904000000), i64(1715904001000)}},
		{field: "d", lo: b("1715904000000"), want: [2]uint64{i64(1715904000000), math.MaxUint64}},
		{field: "i", lo: b("x"), code: "invalid_bound"},
		{field: "i", lo: b("0x10"), code: "invalid_bound"},
		{field: "i", lo: b("1_000"), code: "invalid_bound"},
		{field: "i", lo: b("1e999999999"), code: "invalid_bound"},
		{field: "f", lo: b("nan"), code: "invalid_bound"},
		{field: "f", lo: b("inf"), code: "invalid_bound"},
		{field: "f", lo: b("0x1p-4"), code: "invalid_bound"},
		{field: "d", lo: b("2024-13-01"), code: "invalid_bound"},
		{field: "s", lo: b("1"), code: "field_not_fast"},
		{field: "absent", lo: b("1"), code: "unknown_field"},
	} {
		s := &searcher{schema: sch, req: &Request{}}
		n, err := s.rangeNode(&query.Range{Field: c.field, Min: c.lo, Max: c.hi})
		if c.code != "" {
			var q *QueryError
			if !errors.As(err, &q) || q.Code != c.code {
				t.Errorf("%s %v..%v: error %v, want %s", c.field, c.lo, c.hi, err, c.code)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %v..%v: %v", c.field, c.lo, c.hi, err)
			continue
		}
		if c.none != (n.kind == kindNone) || (!c.none && [2]uint64{n.lo, n.hi} != c.want) {
			t.Errorf("%s %v..%v: kind %d, %d..%d, want %v", c.field, c.lo, c.hi, n.kind, n.lo, n.hi, c.want)
		}
	}
}
