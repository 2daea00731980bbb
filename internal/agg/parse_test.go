package agg

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	cases := []struct {
		text string
		want []Spec
	}{
		{"a:terms(f)", []Spec{{Name: "a", Kind: Terms, Field: "f", Size: 10}}},
		{" a : terms( x.y , 0 ) , b:stats(f)", []Spec{{Name: "a", Kind: Terms, Field: "x.y"}, {Name: "b", Kind: Stats, Field: "f"}}},
		{"h:histogram(p,2.5),d:date_histogram(d,1M)", []Spec{{Name: "h", Kind: Histogram, Field: "p", Interval: "2.5"}, {Name: "d", Kind: DateHistogram, Field: "d", Interval: "1M"}}},
		{"r:range(p,1..2.5, ..3,4..)", []Spec{{Name: "r", Kind: Range, Field: "p", Ranges: []Span{{"1", "2.5"}, {"", "3"}, {"4", ""}}}}},
		{"r:range(d,2020-01-01T00:00:00.5Z..2021-01-01)", []Spec{{Name: "r", Kind: Range, Field: "d", Ranges: []Span{{"2020-01-01T00:00:00.5Z", "2021-01-01"}}}}},
		{"p:percentiles(f)", []Spec{{Name: "p", Kind: Percentiles, Field: "f", Percents: []string{"50", "90", "99"}}}},
		{"p:percentiles(f,50.0,1e1,99.90)", []Spec{{Name: "p", Kind: Percentiles, Field: "f", Percents: []string{"50", "10", "99.9"}}}},
		{"c:cardinality(f)", []Spec{{Name: "c", Kind: Cardinality, Field: "f"}}},
		{`x:filter(a:(b OR c, d) AND "\")" AND e\) ),y:stats(f)`, []Spec{{Name: "x", Kind: Filter, Filter: &Expr{Text: `a:(b OR c, d) AND "\")" AND e\)`}}, {Name: "y", Kind: Stats, Field: "f"}}},
	}
	for _, c := range cases {
		got, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Spec{})); d != "" {
			t.Errorf("%s: %s", c.text, d)
		}
	}
}

func TestParseJSON(t *testing.T) {
	got, err := ParseJSON([]byte(` {"a": {"kind":"terms","field":"f","filter":"x:1","aggs":{
		"h":{"kind":"histogram","field":"p","interval":0.5},
		"p":{"kind":"percentiles","field":"p","percents":[1,"2.50"]},
		"n":{"kind":"filter","filter":{"term":{"f":"x"}}}}},
		"r":{"kind":"range","field":"p","ranges":["1..2",{"from":3},{"to":"2020-01-01","from":null}]},
		"s":{"kind":"terms","field":"f","size":0}} `))
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{Name: "a", Kind: Terms, Field: "f", Size: 10, Filter: &Expr{Text: "x:1"}, Aggs: []Spec{
			{Name: "h", Kind: Histogram, Field: "p", Interval: "0.5"},
			{Name: "p", Kind: Percentiles, Field: "p", Percents: []string{"1", "2.5"}},
			{Name: "n", Kind: Filter, Filter: &Expr{Text: `{"term":{"f":"x"}}`, JSON: true}},
		}},
		{Name: "r", Kind: Range, Field: "p", Ranges: []Span{{"1", "2"}, {"3", ""}, {"", "2020-01-01"}}},
		{Name: "s", Kind: Terms, Field: "f"},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Spec{})); d != "" {
		t.Error(d)
	}
}

func manyAggs(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("a%d:stats(i)", i))
	}
	return strings.Join(list, ",")
}

// What a client may get wrong is refused with the parameter, the limit and the place.
func TestRefused(t *testing.T) {
	cases := []struct {
		text     string
		code     Code
		field    string
		param    string
		limit    int64
		position int
		reason   string
	}{
		{"", CodeInvalid, "", "", 0, 0, "expected name:kind(arguments)"},
		{"a", CodeInvalid, "", "", 0, 0, "expected name:kind"},
		{"a:terms", CodeInvalid, "", "", 0, 2, "expected name:kind"},
		{"a:nope(f)", CodeInvalid, "", "", 0, 2, `unknown kind "nope"`},
		{"a:terms(f", CodeInvalid, "", "", 0, 7, "not closed"},
		{"a:terms(f) b:terms(g)", CodeInvalid, "", "", 0, 11, "expected a comma"},
		{"a:terms()", CodeInvalid, "", "field", 0, 0, "the field is missing"},
		{":terms(t)", CodeInvalid, "t", "", 0, 0, "needs a name"},
		{"a:stats(i),a:stats(i)", CodeInvalid, "i", "", 0, 11, "given twice"},
		{"a:stats(i,5)", CodeInvalid, "i", "", 0, 10, "at most 0 more"},
		{"a:terms(t,-1)", CodeInvalid, "t", "size", 0, 10, "whole number"},
		{"a:terms(t,1000001)", CodeLimit, "t", "size", MaxSize, 0, "1000000"},
		{"a:histogram(i,0)", CodeInvalid, "i", "interval", 0, 0, "above 0"},
		{"a:histogram(i,-2)", CodeInvalid, "i", "interval", 0, 0, "above 0"},
		{"a:histogram(i,NaN)", CodeInvalid, "i", "interval", 0, 0, "not a number"},
		{"a:histogram(i,inf)", CodeInvalid, "i", "interval", 0, 0, "not a number"},
		{"a:histogram(i)", CodeInvalid, "i", "interval", 0, 0, "missing"},
		{"a:date_histogram(d,2d)", CodeInvalid, "d", "interval", 0, 0, "none of"},
		{"a:date_histogram(i,1d)", CodeFieldType, "i", "field", 0, 0, "needs a date"},
		{"a:histogram(d,5)", CodeFieldType, "d", "field", 0, 0, "date_histogram"},
		{"a:percentiles(i,101)", CodeInvalid, "i", "percents", 100, 0, "from 0 to 100 (got 101)"},
		{"a:percentiles(i,-1)", CodeInvalid, "i", "percents", 100, 0, "from 0 to 100"},
		{"a:percentiles(i,NaN)", CodeInvalid, "i", "percents", 100, 0, "from 0 to 100"},
		{"a:percentiles(i,5,5.0)", CodeInvalid, "i", "percents", 0, 0, "given twice"},
		{"a:percentiles(i" + strings.Repeat(",1", 101) + ")", CodeLimit, "i", "percents", MaxPercents, 0, "at most 100"},
		{"a:range(i)", CodeInvalid, "i", "ranges", 0, 0, "missing"},
		{"a:range(i,5)", CodeInvalid, "i", "ranges", 0, 10, "not a range"},
		{"a:range(i,5..1)", CodeInvalid, "i", "ranges", 0, 0, "ends before it starts"},
		{"a:range(i,x..1)", CodeInvalid, "i", "ranges", 0, 0, "not a finite number"},
		{"a:range(d,1.5..)", CodeInvalid, "d", "ranges", 0, 0, "not an RFC 3339 date"},
		{"a:range(i" + strings.Repeat(",1..2", 1001) + ")", CodeLimit, "i", "ranges", MaxRanges, 0, "at most 1000"},
		{"a:terms(plain)", CodeNoColumn, "plain", "field", 0, 0, "aggregation on a text field"},
		{"a:stats(t)", CodeFieldType, "t", "field", 0, 0, "aggregation on a text field: stats needs numbers or dates"},
		{"a:histogram(t,5)", CodeFieldType, "t", "field", 0, 0, "aggregation on a text field: histogram needs numbers"},
		{"a:date_histogram(t,1d)", CodeFieldType, "t", "field", 0, 0, "aggregation on a text field: date_histogram needs dates"},
		{"a:terms(vec)", CodeFieldType, "vec", "field", 0, 0, "dense_vector"},
		{"a:terms(slow)", CodeNoColumn, "slow", "field", 0, 0, "column"},
		{"a:terms(no.such)", CodeUnknownField, "no.such", "field", 0, 0, "no such field"},
		{"a:filter( )", CodeInvalid, "", "filter", 0, 0, "empty"},
		{manyAggs(65), CodeLimit, "", "", MaxAggregations, 822, "at most 64"},
		{strings.Repeat("n", 129) + ":stats(i)", CodeLimit, "i", "", MaxNameBytes, 0, "128"},
		{"a\x01:stats(i)", CodeInvalid, "i", "", 0, 0, "control"},
		{"\xff:stats(i)", CodeInvalid, "", "", 0, 0, "UTF-8"},
		{`{"a":{"kind":"terms","field":"t","aggs":{"b":{"kind":"terms","field":"t","aggs":{"c":{"kind":"stats","field":"i"}}}}}}`, CodeLimit, "", "aggs", MaxDepth, 80, "at most 2 deep"},
		{`{"a":{"kind":"stats","field":"i","aggs":{"c":{"kind":"stats","field":"i"}}}}`, CodeInvalid, "i", "aggs", 0, 1, "no buckets"},
		{`{"a":{"kind":"stats","field":"i","size":4}}`, CodeInvalid, "", "size", 0, 42, "takes no size"},
		{`{"a":{"kind":"stats","field":"i","what":4}}`, CodeInvalid, "", "what", 0, 40, "unknown member"},
		{`{"a":{"terms":{"field":"t"}}}`, CodeInvalid, "", "terms", 0, 14, `unknown member "terms"; an aggregation is {"kind":"terms","field":…}`},
		{`{"a":{"kind":"stats","kind":"stats"}}`, CodeInvalid, "", "", 0, 21, "given twice"},
		{`{"a":{"field":"i"}}`, CodeInvalid, "", "kind", 0, 18, "missing"},
		{`{"a":{"kind":"histogram","field":"i","interval":NaN}}`, CodeInvalid, "", "", 0, 48, "not valid JSON"},
		{`{"a":{"kind":"histogram","field":"i","interval":0}}`, CodeInvalid, "i", "interval", 0, 1, "above 0"},
		{`{"a":{"kind":"terms","field":5}}`, CodeInvalid, "", "field", 0, 30, "expected a string"},
		{`{"a":{"kind":"terms","field":"t"}} x`, CodeInvalid, "", "", 0, 35, "end of the text"},
		{`[1]`, CodeInvalid, "", "aggs", 0, 3, "expected an object"},
		{`{"a":{"kind":"terms","field":"t","aggs":{"b":{"kind":"terms","field":"nope"}}}}`, CodeUnknownField, "nope", "field", 0, 41, "no such field"},
	}
	for _, c := range cases {
		var specs []Spec
		var err error
		if strings.HasPrefix(c.text, "{") || strings.HasPrefix(c.text, "[") {
			specs, err = ParseJSON([]byte(c.text))
		} else {
			specs, err = Parse(c.text)
		}
		if err == nil {
			_, err = Bind(specs, testSchema(), Options{})
		}
		var e *SpecError
		if !errors.As(err, &e) {
			t.Errorf("%.60s: got %v", c.text, err)
			continue
		}
		if e.Code != c.code || e.Field != c.field || e.Param != c.param || e.Limit != c.limit || e.Position != c.position || !strings.Contains(e.Error(), c.reason) {
			t.Errorf("%.60s: got %+v", c.text, *e)
		}
	}
}

func TestBuiltSpecsAreChecked(t *testing.T) {
	for _, s := range []Spec{
		{Name: "a", Kind: 99, Field: "i"},
		{Name: "a", Field: "i"},
		{Name: "a", Kind: Filter},
		{Name: "a", Kind: Filter, Field: "i", Filter: &Expr{Text: "x"}},
		{Name: "a", Kind: Stats, Field: "i", Interval: "1"},
		{Name: "a", Kind: Stats, Field: "i", Ranges: []Span{}},
		{Name: "a", Kind: Stats, Field: "i", Percents: []string{}},
		{Name: "a", Kind: Percentiles, Field: "i"},
		{Name: "a", Kind: Percentiles, Field: "i", Percents: []string{"1e1"}},
		{Name: "a", Kind: Percentiles, Field: "i", Percents: []string{"0.0000000000001"}},
		{Name: "a", Kind: Terms, Field: "i", Size: -1},
		{Name: "a", Kind: Terms, Field: strings.Repeat("f", MaxFieldBytes+1)},
	} {
		if _, err := Bind([]Spec{s}, testSchema(), Options{}); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if _, err := Bind([]Spec{{Name: "a", Kind: Terms, Field: "no"}}, testSchema(), Options{AllowUnknown: true}); err != nil {
		t.Error(err)
	}
	if _, err := Facets(make([]string, 65)); err == nil {
		t.Error("65 facets were taken")
	}
	if _, err := Facets([]string{"t", "t"}); err == nil {
		t.Error("a facet was taken twice")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`a:terms(f,3),b:filter(x:"(" AND (y)),r:range(d,1..2,..3)`)
	f.Add("p:percentiles(i,1,99.9),h:histogram(i,5)")
	f.Fuzz(func(t *testing.T, text string) {
		specs, err := Parse(text)
		checkParsed(t, specs, err, len(text))
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add(`{"a":{"kind":"terms","field":"t","size":3,"filter":{"a":[1]},"aggs":{"b":{"kind":"percentiles","field":"i","percents":[5,"6"]}}}}`)
	f.Add(`{"r":{"kind":"range","field":"d","ranges":["1..2",{"from":1,"to":null}]},"h":{"kind":"histogram","field":"u","interval":"1e3"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		specs, err := ParseJSON([]byte(text))
		checkParsed(t, specs, err, len(text))
	})
}

func checkParsed(t *testing.T, specs []Spec, err error, size int) {
	if err != nil {
		var e *SpecError
		if !errors.As(err, &e) || e.Position < 0 || e.Position > size || e.Reason == "" {
			t.Fatalf("%#v", err)
		}
		return
	}
	p, err := Bind(specs, testSchema(), Options{})
	if err != nil {
		var e *SpecError
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		return
	}
	s := p.NewState()
	again, err := Decode(specs, Options{}, s.AppendBinary(nil))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := answerOf(s), answerOf(again); !reflect.DeepEqual(parseAnswer(t, a), parseAnswer(t, b)) {
		t.Fatalf("%s and %s", a, b)
	}
}

// TestFacetErrorsNameTheField: a facet has no name but that of its field, which is told once.
func TestFacetErrorsNameTheField(t *testing.T) {
	specs, err := Facets([]string{"plain"})
	if err == nil {
		_, err = Bind(specs, testSchema(), Options{})
	}
	if want := `field "plain": it has no column; declare a keyword field`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
