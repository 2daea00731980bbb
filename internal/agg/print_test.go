package agg

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawSpecs draws aggregations as the two parsers return them.
func drawSpecs(t *rapid.T, level int) []Spec {
	text := rapid.StringMatching(`[^\x00-\x1f\x7f]{1,12}`)
	number := rapid.OneOf(
		rapid.Map(rapid.Float64Range(1e-300, 1e300), func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }),
		rapid.Map(rapid.Uint64Min(1), func(n uint64) string { return strconv.FormatUint(n, 10) }),
		rapid.SampledFrom([]string{"1e3", "0.50", "1E+2", strconv.FormatUint(math.MaxUint64, 10)}),
	)
	specs := make([]Spec, rapid.IntRange(1, 4).Draw(t, "specs"))
	for i := range specs {
		s := &specs[i]
		s.Name = fmt.Sprint(i, text.Draw(t, "name"))
		s.Kind = Kind(rapid.IntRange(int(Terms), int(Filter)).Draw(t, "kind"))
		if s.Kind != Filter {
			s.Field = text.Draw(t, "field")
		}
		switch s.Kind {
		case Terms:
			s.Size = rapid.SampledFrom([]int{0, 1, DefaultSize, MaxSize}).Draw(t, "size")
		case Histogram:
			s.Interval = number.Draw(t, "interval")
		case DateHistogram:
			s.Interval = rapid.SampledFrom([]string{"1m", "1h", "1d", "1w", "1M", "1q", "1y"}).Draw(t, "interval")
		case Range:
			end := rapid.OneOf(number, text, rapid.Just(""), rapid.SampledFrom([]string{"2020-01-01T00:00:00Z", "-5"}))
			s.Ranges = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Span {
				return Span{From: end.Draw(t, "from"), To: end.Draw(t, "to")}
			}), 1, 5).Draw(t, "ranges")
		case Percentiles:
			s.Percents = rapid.SliceOfNDistinct(rapid.Map(rapid.OneOf(rapid.Float64Range(0.001, 100), rapid.SampledFrom([]float64{0, 50, 100})), func(f float64) string {
				return plainPercent(strconv.FormatFloat(f, 'f', 9, 64))
			}), 1, 5, rapid.ID[string]).Draw(t, "percents")
		}
		if s.Kind == Filter || rapid.IntRange(0, 2).Draw(t, "filtered") == 0 {
			if rapid.Bool().Draw(t, "json") {
				s.Filter = &Expr{JSON: true, Text: rapid.SampledFrom([]string{`{"term": {"f":"é\u0041\""}}`, `[{"range":{"n":{"gte":1e3}}},{}]`, `null`, `17`, `{ "a" : [ ] }`}).Draw(t, "filter")}
			} else {
				s.Filter = &Expr{Text: rapid.OneOf(rapid.StringMatching(`[a-z"\\]{1,8}[\x00-\x20𝄞]?`), rapid.SampledFrom([]string{"{\"a\":1}", "f:\"q \\\" 𝄞\"", "a\u2028b"})).Draw(t, "filter")}
			}
		}
		if level < MaxDepth && s.Kind.buckets() && rapid.Bool().Draw(t, "nested") {
			s.Aggs = drawSpecs(t, level+1)
		}
	}
	return specs
}

// What AppendSpecs prints reads back as what it was, also for states on the wire.
func TestAppendSpecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawSpecs(t, 1)
		text := AppendSpecs([]byte("x"), want)[1:]
		got, err := ParseJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Spec{})); d != "" {
			t.Fatalf("%s: %s", text, d)
		}
		for i := range want {
			if fingerprint(&want[i]) != fingerprint(&got[i]) {
				t.Fatalf("%s: aggregation %d is another on the wire", text, i)
			}
		}
	})
}

func TestAppendSpecsOfLists(t *testing.T) {
	fromURL, err := Parse("a:terms(f),b:terms(f,0),h:histogram(p,2.50),d:date_histogram(d,1M),r:range(p, ..3,4..,1..2),p:percentiles(f),q:percentiles(f,1e1,99.90),c:cardinality(f),x:filter(a:(b OR \"c)\"))")
	if err != nil {
		t.Fatal(err)
	}
	facets, err := Facets([]string{"f", "é \""})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]Spec{fromURL, facets, nil} {
		text := AppendSpecs(nil, want)
		got, err := ParseJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Spec{})); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

func TestUnplaced(t *testing.T) {
	specs, err := ParseJSON([]byte(`{"a":{"kind":"terms","field":"t","aggs":{"b":{"kind":"stats","field":"t"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]Spec{specs, Unplaced(specs)} {
		_, err := Bind(list, testSchema(), Options{})
		e, ok := errors.AsType[*SpecError](err)
		if !ok || (e.Position >= 0) != (&list[0] == &specs[0]) {
			t.Errorf("%+v", e)
		}
	}
}
