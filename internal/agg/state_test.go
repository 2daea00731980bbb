package agg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/schema"
)

func specsOf(t testing.TB, text string) []Spec {
	t.Helper()
	specs, err := Parse(text)
	if strings.HasPrefix(text, "{") {
		specs, err = ParseJSON([]byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return specs
}

func run1(t testing.TB, text string, docs []doc, o Options) (*State, error) {
	t.Helper()
	p := bindTest(t, specsOf(t, text), o)
	s := p.NewState()
	return s, s.Collect(context.Background(), newLeaf(docs, true, p), nil, true)
}

func ints(vals ...int64) []doc {
	docs := make([]doc, len(vals))
	for i, v := range vals {
		docs[i] = doc{id: i, text: []string{fmt.Sprint("v", v)}}
		docs[i].nums[fI] = []uint64{schema.EncodeI64(v)}
		docs[i].nums[fF] = []uint64{schema.EncodeF64(float64(v))}
		docs[i].nums[fU] = []uint64{uint64(v)}
		docs[i].nums[fD] = []uint64{schema.EncodeI64(v)}
	}
	return docs
}

func TestAnswers(t *testing.T) {
	docs := ints(3, 5, 5, 8)
	docs[3].nums[fF] = nil
	for _, c := range []struct{ spec, want string }{
		{"a:terms(t,1)", `{"a":{"buckets":[{"value":"v5","count":2}],"other":2}}`},
		{"a:terms(i)", `{"a":{"buckets":[{"value":5,"count":2},{"value":3,"count":1},{"value":8,"count":1}],"other":0}}`},
		{"a:terms(d,1)", `{"a":{"buckets":[{"value":"1970-01-01T00:00:00.005Z","count":2}],"other":2}}`},
		{"a:stats(i)", `{"a":{"count":4,"sum":21,"min":3,"max":8,"avg":5.25}}`},
		{"a:stats(f.x)", `{"a":{"count":3,"sum":13,"min":3,"max":5,"avg":4.333333333333333}}`},
		{"a:stats(d)", `{"a":{"count":4,"sum":21,"min":"1970-01-01T00:00:00.003Z","max":"1970-01-01T00:00:00.008Z","avg":"1970-01-01T00:00:00.005Z"}}`},
		{"a:histogram(i,4)", `{"a":{"buckets":[{"key":0,"count":1},{"key":4,"count":2},{"key":8,"count":1}]}}`},
		{"a:histogram(f.x,2.5)", `{"a":{"buckets":[{"key":2.5,"count":1},{"key":5,"count":2}]}}`},
		{"a:date_histogram(d,1M)", `{"a":{"buckets":[{"key":"1970-01-01T00:00:00Z","count":4}]}}`},
		{"a:range(i,..4,4.5..,20..30)", `{"a":{"buckets":[{"from":null,"to":4,"count":1},{"from":4.5,"to":null,"count":3},{"from":20,"to":30,"count":0}]}}`},
		{"a:range(d,1970-01-01..1970-01-01T00:00:00.005Z)", `{"a":{"buckets":[{"from":"1970-01-01T00:00:00Z","to":"1970-01-01T00:00:00.005Z","count":1}]}}`},
		{"a:percentiles(i,50,100,25)", `{"a":{"values":{"50":5,"100":8,"25":4.5}}}`},
		{"a:cardinality(t)", `{"a":{"value":3,"exact":true,"error":0}}`},
		{"a:filter(mod 2),b:filter(mod 0)", `{"a":{"count":2},"b":{"count":0}}`},
		{
			`{"a":{"kind":"filter","filter":"mod 2","aggs":{"s":{"kind":"cardinality","field":"t"}}}}`,
			`{"a":{"count":2,"aggs":{"s":{"value":2,"exact":true,"error":0}}}}`,
		},
		{
			`{"a":{"kind":"range","field":"i","ranges":["0..1","1..6"],"aggs":{"s":{"kind":"stats","field":"u"},"p":{"kind":"percentiles","field":"u","percents":[50]},"t":{"kind":"terms","field":"t"}}}}`,
			`{"a":{"buckets":[{"from":0,"to":1,"count":0,"aggs":{"s":{"count":0,"sum":null,"min":null,"max":null,"avg":null},"p":{"values":{"50":null}},"t":{"buckets":[],"other":0}}},` +
				`{"from":1,"to":6,"count":3,"aggs":{"s":{"count":3,"sum":13,"min":3,"max":5,"avg":4.333333333333333},"p":{"values":{"50":5}},"t":{"buckets":[{"value":"v5","count":2},{"value":"v3","count":1}],"other":0}}}]}}`,
		},
	} {
		s, err := run1(t, c.spec, docs, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if got := string(answerOf(s)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.spec, got, c.want)
		}
	}
}

func TestFacets(t *testing.T) {
	specs, err := Facets([]string{"t", "i"})
	if err != nil {
		t.Fatal(err)
	}
	p := bindTest(t, specs, Options{})
	s := p.NewState()
	if got := string(facetsOf(s)); got != `{"t":[],"i":[]}` {
		t.Error(got)
	}
	if err := s.Collect(context.Background(), newLeaf(ints(1, 2, 2), false, p), nil, true); err != nil {
		t.Fatal(err)
	}
	if got := string(facetsOf(s)); got != `{"t":[{"value":"v2","count":2},{"value":"v1","count":1}],"i":[{"value":2,"count":2},{"value":1,"count":1}]}` {
		t.Error(got)
	}
}

func TestExtremeNumbersAreExact(t *testing.T) {
	docs := ints(0, 0)
	docs[0].nums[fU] = []uint64{math.MaxUint64, math.MaxUint64, 1<<53 + 1}
	docs[1].nums[fI] = []uint64{schema.EncodeI64(math.MinInt64), schema.EncodeI64(math.MinInt64)}
	docs[0].nums[fF] = []uint64{schema.EncodeF64(math.MaxFloat64), schema.EncodeF64(math.MaxFloat64)}
	for _, c := range []struct{ spec, want string }{
		{"a:stats(u)", `{"a":{"count":4,"sum":36902495346673844223,"min":0,"max":18446744073709551615,"avg":9225623836668461000}}`},
		{"a:stats(i)", `{"a":{"count":3,"sum":-18446744073709551616,"min":-9223372036854775808,"max":0,"avg":-6148914691236517000}}`},
		{"a:stats(f.x)", `{"a":{"count":3,"sum":null,"min":0,"max":1.7976931348623157e+308,"avg":1.1984620899082105e+308}}`},
		{"a:terms(u,1)", `{"a":{"buckets":[{"value":0,"count":1}],"other":2}}`},
		{"a:percentiles(u,100,99)", `{"a":{"values":{"100":18446744073709551615,"99":18446744073709551615}}}`},
		{"a:histogram(i,9223372036854775809)", `{"a":{"buckets":[{"key":-9223372036854775809,"count":1},{"key":0,"count":1}]}}`},
		{"a:histogram(u,1e19)", `{"a":{"buckets":[{"key":0,"count":2},{"key":10000000000000000000,"count":1}]}}`},
		{"a:range(u,-5..18446744073709551615,18446744073709551615..,1e30..)", `{"a":{"buckets":[{"from":-5,"to":18446744073709551615,"count":2},{"from":18446744073709551615,"to":null,"count":1},{"from":1000000000000000000000000000000,"to":null,"count":0}]}}`},
	} {
		s, err := run1(t, c.spec, docs, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if got := string(answerOf(s)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.spec, got, c.want)
		}
	}
}

// A histogram in buckets is not refused for values that it does not count: those of documents without a bucket, or that its filter
// leaves out.
func TestStepsAreHeldAgainstCountedValuesOnly(t *testing.T) {
	for _, bad := range []func(d *doc){
		func(d *doc) { d.text = nil },          // no bucket
		func(d *doc) { d.id, d.text = 3, nil }, // no bucket, and left out by the filter
		func(d *doc) { d.id = 3 },
	} {
		for _, values := range [][]float64{{math.MaxFloat64}, {-math.MaxFloat64, math.MaxFloat64}} {
			docs := ints(1, 2, 3)
			for i := range docs {
				docs[i].id, docs[i].text, docs[i].nums[fF] = 2*i, []string{"x"}, []uint64{schema.EncodeF64(float64(i))}
			}
			bad(&docs[1])
			docs[1].nums[fF] = nil
			for _, v := range values {
				docs[1].nums[fF] = append(docs[1].nums[fF], schema.EncodeF64(v))
			}
			s, err := run1(t, `{"a":{"kind":"terms","field":"t","aggs":{"h":{"kind":"histogram","field":"f.x","interval":2,"filter":"mod 2"}}}}`, docs, Options{})
			if err != nil {
				t.Errorf("%+v: %v", docs[1], err)
				continue
			}
			if got := string(answerOf(s)); !strings.Contains(got, `{"h":{"buckets":[{"key":0,"count":1},{"key":2,"count":1}]}}`) {
				t.Errorf("%+v: %s", docs[1], got)
			}
		}
	}
}

func TestDatesBeforeAndAfterTheCalendar(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for unit, st := range units {
		for range 2_000 {
			ms := []int64{math.MinInt64, math.MaxInt64, randomD(r, shape{extreme: true, wide: true})}[r.IntN(3)]
			v := []uint64{schema.EncodeI64(ms)}
			st.apply(v)
			_, want := bucketOf(&Spec{Kind: DateHistogram, Interval: unit}, schema.Date, schema.EncodeI64(ms))
			if got := string(st.appendKey(nil, v[0])); got != fmt.Sprintf("%q", want) {
				t.Fatalf("%d by %s: got %s, want %v", ms, unit, got, want)
			}
			if d, ok := st.(dateStep); ok {
				if table, ok := newDayTable(d, schema.EncodeI64(ms), schema.EncodeI64(ms), 10); ok {
					w := []uint64{schema.EncodeI64(ms), schema.EncodeI64(0)}
					table.apply(w)
					if w[0] != v[0] {
						t.Fatalf("%d by %s: table has %d instead of %d", ms, unit, w[0], v[0])
					}
				}
			}
		}
	}
}

func TestDivider(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 200_000 {
		d := r.Uint64()>>r.IntN(64) | 1>>r.IntN(2)
		if d == 0 {
			d = 1
		}
		x := r.Uint64() >> r.IntN(64)
		switch r.IntN(4) {
		case 0:
			x = x / d * d
		case 1:
			x = x/d*d - 1
		}
		if got := newDivider(d).div(x); got != x/d {
			t.Fatalf("%d/%d: got %d", x, d, got)
		}
	}
}

func TestSortKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	var scratch []uint64
	for _, n := range []int{0, 1, 100, 3_000, 10_000} {
		for shift := 0; shift < 64; shift += 9 {
			keys := make([]uint64, n)
			sum := uint64(0)
			for i := range keys {
				keys[i] = r.Uint64()>>shift | 1<<63>>(shift/2)
				sum += keys[i]
			}
			scratch = sortKeys(keys, scratch)
			for i, k := range keys {
				if sum -= k; i > 0 && keys[i-1] > k {
					t.Fatalf("%d keys are not sorted", n)
				}
			}
			if sum != 0 {
				t.Fatalf("%d keys are not those that were there", n)
			}
		}
	}
}

// The sum is that of exact rationals, rounded once, whatever the order and grouping.
func TestExactSum(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 60 {
		var one exactSum
		many := make([]exactSum, 1+r.IntN(5))
		want := new(big.Rat)
		for range r.IntN(1_500) {
			v := math.Float64frombits(r.Uint64())
			switch r.IntN(3) {
			case 0:
				v = randomF(r, shape{extreme: true})
			case 1:
				v = math.Ldexp(r.NormFloat64(), r.IntN(8))
			}
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			one.add(v)
			many[r.IntN(len(many))].add(v)
			want.Add(want, new(big.Rat).SetFloat64(v))
		}
		for i := range many[1:] {
			many[0].merge(&many[1+i])
		}
		wantF, _ := want.Float64()
		for _, s := range []*exactSum{&one, &many[0]} {
			if got := quotient(s.big(), -1074, 1); got != wantF {
				t.Fatalf("got %v, want %v", got, wantF)
			}
			neg, shift, mag := s.magnitude()
			var back exactSum
			back.setMagnitude(neg, shift, bytes.Clone(mag))
			if back.big().Cmp(s.big()) != 0 {
				t.Fatal("the sum does not survive its own form")
			}
			s.trim()
			if got := quotient(s.big(), -1074, 1); got != wantF {
				t.Fatalf("trimmed: got %v, want %v", got, wantF)
			}
		}
		n := uint64(1 + r.IntN(1_000_000))
		mean, _ := new(big.Rat).Quo(want, new(big.Rat).SetInt64(int64(n))).Float64()
		if got := quotient(one.big(), -1074, n); got != mean {
			t.Fatalf("mean: got %v, want %v", got, mean)
		}
	}
}

func TestLimitsOfStates(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	wide := randomDocs(r, 3_000, shape{wide: true})
	sparse := ints(0, 1_000_000)
	for _, c := range []struct {
		spec   string
		docs   []doc
		o      Options
		param  string
		limit  int64
		reason string
	}{
		{"a:histogram(i,1)", sparse, Options{}, "interval", DefaultBuckets, "1000001 buckets"},
		{"a:histogram(u,1)", sparse, Options{}, "interval", DefaultBuckets, "1000001 buckets"},
		{"a:histogram(f.x,1)", sparse, Options{}, "interval", DefaultBuckets, "1000001 buckets"},
		{"a:histogram(f.x,0.001)", wide, Options{}, "interval", DefaultBuckets, ""},
		{"a:histogram(f.x,1e-300)", sparse, Options{}, "interval", DefaultBuckets, "too small"},
		{"a:histogram(i,100)", sparse, Options{Buckets: 10_000}, "interval", 10_000, "10001 buckets"},
		{"a:date_histogram(d,1m)", wide, Options{}, "interval", DefaultBuckets, "buckets"},
		{"a:terms(t)", wide, Options{StateBytes: 50_000}, "", 50_000, "50000 bytes"},
		{"a:terms(f.x)", wide, Options{StateBytes: 40_000}, "", 40_000, "40000 bytes"},
		{"a:percentiles(f.x)", wide, Options{StateBytes: 40_000}, "", 40_000, "40000 bytes"},
		{`{"a":{"kind":"terms","field":"f.x","aggs":{"s":{"kind":"stats","field":"i"}}}}`, wide, Options{StateBytes: 500_000}, "", 500_000, "500000 bytes"},
		{`{"a":{"kind":"terms","field":"t","aggs":{"s":{"kind":"percentiles","field":"f.x"}}}}`, wide, Options{StateBytes: 200_000}, "", 200_000, "200000 bytes"},
		{`{"a":{"kind":"terms","field":"t","aggs":{"s":{"kind":"histogram","field":"i","interval":1}}}}`, append(ints(0), doc{nums: [4][]uint64{fI: {schema.EncodeI64(0), schema.EncodeI64(1_000_000)}}, text: []string{"x"}}), Options{}, "interval", DefaultBuckets, "1000001 buckets"},
	} {
		_, err := run1(t, c.spec, c.docs, c.o)
		var e *SpecError
		if !errors.As(err, &e) || e.Code != CodeLimit || e.Limit != c.limit || e.Param != c.param || e.Field == "" || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%s: got %+v", c.spec, err)
		}
	}
	// A span that only the merged state has.
	p := bindTest(t, specsOf(t, "a:histogram(i,1)"), Options{})
	a, b := p.NewState(), p.NewState()
	for i, s := range []*State{a, b} {
		if err := s.Collect(context.Background(), newLeaf(sparse[i:i+1], true, p), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	var e *SpecError
	if err := a.Merge(context.Background(), b); !errors.As(err, &e) || e.Limit != DefaultBuckets {
		t.Error(err)
	}
	// And one at the limit is fine.
	if _, err := run1(t, "a:histogram(i,1)", ints(0, DefaultBuckets-1), Options{}); err != nil {
		t.Error(err)
	}
}

func TestCollectStopsWithItsContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	p := bindTest(t, specsOf(t, "a:terms(t)"), Options{})
	if err := p.NewState().Collect(ctx, newLeaf(ints(1), true, p), nil, true); !errors.Is(err, why) {
		t.Error(err)
	}
}

// Cardinality is exact up to a number of values, and beyond the same estimate however the values were split.
func TestCardinalitySwitchesWithTheValuesAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, field := range []string{"u", "f.x", "t"} {
		for _, n := range []int{ExactValues - 1, ExactValues, ExactValues + 1, 20_000} {
			docs := make([]doc, n)
			for i := range docs {
				docs[i].nums[fU] = []uint64{uint64(i) * 3}
				docs[i].nums[fF] = []uint64{schema.EncodeF64(1 / float64(i+1))}
				docs[i].text = []string{fmt.Sprintf("text %d", i)}
			}
			specs := specsOf(t, "a:cardinality("+field+")")
			p := bindTest(t, specs, Options{})
			states := make([]*State, 1+r.IntN(4))
			for i := range states {
				states[i] = p.NewState()
			}
			whole := p.NewState()
			if err := whole.Collect(context.Background(), newLeaf(docs, true, p), nil, true); err != nil {
				t.Fatal(err)
			}
			parts := make([][]doc, len(states))
			for _, d := range append(docs, docs[:n/2]...) {
				k := r.IntN(len(parts))
				parts[k] = append(parts[k], d)
			}
			for i, s := range states {
				if err := s.Collect(context.Background(), newLeaf(parts[i], false, p), nil, true); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range states[1:] {
				if err := states[0].Merge(context.Background(), resend(t, specs, s, r)); err != nil {
					t.Fatal(err)
				}
			}
			a, b := whole.AppendBinary(nil), states[0].AppendBinary(nil)
			if !bytes.Equal(a, b) {
				t.Errorf("%s, %d values: the states differ", field, n)
			}
			var got struct {
				A struct {
					Value float64
					Exact bool
					Error float64
				}
			}
			if err := json.Unmarshal(answerOf(whole), &got); err != nil {
				t.Fatal(err)
			}
			if got.A.Exact != (n <= ExactValues) || math.Abs(got.A.Value-float64(n)) > 5*got.A.Error*float64(n) {
				t.Errorf("%s, %d values: got %+v", field, n, got.A)
			}
		}
	}
}

func TestStatesOfOtherAggregationsDoNotMerge(t *testing.T) {
	a := bindTest(t, specsOf(t, "a:terms(t)"), Options{}).NewState()
	b := bindTest(t, specsOf(t, "a:terms(t,5)"), Options{}).NewState()
	if err := a.Merge(context.Background(), b); err == nil {
		t.Error("states of different aggregations were merged")
	}
	if _, err := Decode(specsOf(t, "a:terms(t,5)"), Options{}, a.AppendBinary(nil)); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// A shard that does not know the field yet has nothing to add, in whichever order; one that knows it with another type is told of.
func TestFieldsThatSomeShardsLack(t *testing.T) {
	for _, text := range []string{"a:terms(i)", "a:histogram(i,5)", "a:range(i,2.5..)", `{"a":{"kind":"filter","filter":"mod 1","aggs":{"x":{"kind":"histogram","field":"i","interval":5}}}}`} {
		specs := specsOf(t, text)
		without := &schema.Schema{}
		for _, f := range testSchema().Fields {
			if f.Name != "i" {
				without.Fields = append(without.Fields, f)
			}
		}
		var answers []string
		for order := range 2 {
			empty, err := Bind(specs, without, Options{AllowUnknown: true})
			if err != nil {
				t.Fatal(err)
			}
			p := bindTest(t, specs, Options{})
			a, b := empty.NewState(), p.NewState()
			if err := a.Collect(context.Background(), newLeaf(ints(7), true, empty), nil, true); err != nil {
				t.Fatal(err)
			}
			if err := b.Collect(context.Background(), newLeaf(ints(1, 3), true, p), nil, true); err != nil {
				t.Fatal(err)
			}
			if a, err = Decode(specs, Options{}, a.AppendBinary(nil)); err != nil {
				t.Fatal(err)
			}
			if order == 1 {
				a, b = b, a
			}
			if err := a.Merge(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, string(answerOf(a)))
		}
		if answers[0] != answers[1] || strings.Contains(answers[0], `"buckets":[]`) {
			t.Errorf("%s: got %s and %s", text, answers[0], answers[1])
		}
	}
	other := testSchema()
	other.Fields[fI].Type = schema.F64
	specs := specsOf(t, "a:terms(i)")
	p, err := Bind(specs, other, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var e *SpecError
	if err := p.NewState().Merge(context.Background(), bindTest(t, specs, Options{}).NewState()); !errors.As(err, &e) || e.Code != CodeMismatch || e.Field != "i" {
		t.Error(err)
	}
}

// Ordinals that the dictionary lacks are damage that the column reports; they are left out.
func TestDamagedOrdinals(t *testing.T) {
	leaf := newBenchLeaf(4_000)
	leaf.cols[fT].vals[7] = 1 << 40
	for _, text := range []string{"a:terms(t,0)", "a:cardinality(t)", `{"a":{"kind":"terms","field":"i","aggs":{"b":{"kind":"terms","field":"t"}}}}`, `{"a":{"kind":"terms","field":"t","aggs":{"b":{"kind":"stats","field":"i"}}}}`} {
		s := bindTest(t, specsOf(t, text), Options{}).NewState()
		if err := s.Collect(context.Background(), leaf, nil, true); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		parseAnswer(t, answerOf(s))
	}
}

// goldenState has every kind, every type and every form of a part.
func goldenState(t testing.TB) ([]Spec, *State) {
	specs := specsOf(t, `{
		"t":{"kind":"terms","field":"t","aggs":{"s":{"kind":"stats","field":"f.x"},"i":{"kind":"stats","field":"i"},"c":{"kind":"cardinality","field":"t"},"n":{"kind":"terms","field":"u","filter":"mod 3"}}},
		"h":{"kind":"histogram","field":"f.x","interval":2.5,"filter":"mod 3"},
		"d":{"kind":"date_histogram","field":"d","interval":"1M"},
		"r":{"kind":"range","field":"i","ranges":["..0","0..10"]},
		"p":{"kind":"percentiles","field":"f.x","percents":[50,99.9]},
		"few":{"kind":"cardinality","field":"i"},
		"f":{"kind":"filter","filter":"mod 2","aggs":{"c":{"kind":"cardinality","field":"u"}}},
		"none":{"kind":"stats","field":"i","filter":"mod 0"}}`)
	p := bindTest(t, specs, Options{})
	docs := ints(-3, 0, 7, 7, 12, 1_234_567, -3)
	docs[3].text = []string{"v7", "v70", "ü"}
	docs[4].nums[fF] = []uint64{schema.EncodeF64(0.1), schema.EncodeF64(-1e300)}
	for i := range 2_100 {
		docs[0].nums[fU] = append(docs[0].nums[fU], uint64(i)*1_000_003)
	}
	s := p.NewState()
	if err := s.Collect(context.Background(), newLeaf(docs, true, p), nil, true); err != nil {
		t.Fatal(err)
	}
	return specs, s
}

// States of version 1 are read for as long as there is a version 1.
func TestGolden(t *testing.T) {
	specs, s := goldenState(t)
	for name, got := range map[string][]byte{"state-v1.bin": s.AppendBinary(nil), "state-v1.json": append(s.AppendPartials(nil), '\n'), "answer.json": append(answerOf(s), '\n')} {
		path := filepath.Join("testdata", name)
		if os.Getenv("WEFT_REWRITE") != "" {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs", name)
		}
		switch name {
		case "state-v1.bin":
			s, err = Decode(specs, Options{}, want)
		case "state-v1.json":
			s, err = DecodePartials(specs, Options{}, want)
		default:
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if a := s.AppendBinary(nil); name == "state-v1.bin" && !bytes.Equal(a, want) {
			t.Error("the state is not written as it was read")
		}
	}
}

func TestDecodeRefusesDamage(t *testing.T) {
	specs, s := goldenState(t)
	b := s.AppendBinary(nil)
	for i := range b {
		if i > 800 && i%499 != 0 {
			continue
		}
		if _, err := Decode(specs, Options{}, b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		for _, x := range []byte{1, 0x80, 0xff} {
			c := bytes.Clone(b)
			c[i] ^= x
			checkDecoded(t, specs, c)
		}
	}
	var e *SpecError
	if _, err := Decode(specs, Options{StateBytes: 100}, b); !errors.As(err, &e) || e.Limit != 100 {
		t.Error(err)
	}
	for _, text := range []string{``, `[]`, `{"t":1}`, `{"x":""}`, `{"t":"AA=="}`, `{"t":"?"}`, string(s.AppendPartials(nil)) + "x"} {
		if _, err := DecodePartials(specs, Options{}, []byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

// checkDecoded checks that what was decoded can be merged with itself, printed and sent on.
func checkDecoded(t *testing.T, specs []Spec, b []byte) {
	t.Helper()
	s, err := Decode(specs, Options{}, b)
	if err != nil {
		var e *SpecError
		if !errors.Is(err, ErrCorrupt) && !errors.As(err, &e) {
			t.Fatal(err)
		}
		return
	}
	parseAnswer(t, answerOf(s))
	again := s.AppendBinary(nil)
	o, err := Decode(specs, Options{}, again)
	if err != nil {
		t.Fatalf("a state that was read cannot be read again: %v", err)
	}
	if !bytes.Equal(o.AppendBinary(nil), again) {
		t.Fatal("a state that was read again differs")
	}
	if err := s.Merge(context.Background(), o); err != nil {
		var e *SpecError
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		return
	}
	parseAnswer(t, answerOf(s))
}

func FuzzDecode(f *testing.F) {
	specs, s := goldenState(f)
	f.Add(s.AppendBinary(nil))
	// The parts alone, so that the fuzzer need not find fingerprints.
	head := make([][]byte, len(specs))
	for i, n := range s.plan.nodes {
		one := appendState(nil, n, s.parts[i])
		head[i] = one[:10+len(n.subs)]
		f.Add(one[10+len(n.subs):])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkDecoded(t, specs, b)
		for i := range specs {
			one := append(bytes.Clone(head[i]), b...)
			w := append([]byte{FormatVersion, 1}, appendUvarint(nil, len(one))...)
			checkDecoded(t, specs[i:i+1], append(w, one...))
		}
	})
}

func appendUvarint(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// The example of FORMAT.md.
func TestFormatExample(t *testing.T) {
	docs := ints(1, 2, 3)
	for i, s := range []string{"net", "net", "new"} {
		docs[i].text = []string{s}
	}
	s, err := run1(t, "n:terms(t)", docs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := appendState(nil, s.plan.nodes[0], s.parts[0])
	if got := fmt.Sprintf("% x", append(b[:1:1], b[9:]...)); got != "01 01 01 02 00 03 6e 65 74 01 02 01 77 00" {
		t.Error(got)
	}
}

// However many aggregations stand in a bucket, together they get no more room for counters than one would.
func TestCollectorsShareTheirRoom(t *testing.T) {
	p := bindTest(t, specsOf(t, "a:terms(t)"), Options{})
	dict := make([]string, 1_000_000)
	for i := range dict {
		dict[i] = fmt.Sprintf("%07d", i)
	}
	rd := newReader(&memLeaf{docs: ints(1), dict: dict}, p.nodes[0])
	for _, share := range []int{1, 4, 5, 63} {
		b, err := newBag(newMeter(context.Background()), p.nodes[0], rd, 1, 1<<40, share)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.table)*share > tableMost || (share <= 4) != (b.table != nil) || cap(b.pend[0])*share > pendingMost+share*ColumnBlock {
			t.Errorf("one of %d has %d counters and room for %d keys", share, len(b.table), cap(b.pend[0]))
		}
	}
}

// Printing ends as soon as the answer cannot fit or the caller has enough, and counts what it sorts in.
func TestPrintingIsBounded(t *testing.T) {
	const keys = 60_000
	p := bindTest(t, specsOf(t, "a:terms(u,0),b:terms(u,20000)"), Options{})
	docs := make([]doc, keys/1_000)
	for i := range docs {
		for k := range 1_000 {
			docs[i].nums[fU] = append(docs[i].nums[fU], uint64(1_000*i+k))
		}
	}
	docs = append(docs, docs[7], docs[7], docs[3])
	s := p.NewState()
	if err := s.Collect(context.Background(), newLeaf(docs, true, p), nil, true); err != nil {
		t.Fatal(err)
	}
	whole := answerOf(s)
	answer := parseAnswer(t, whole).(map[string]any)["a"].(map[string]any)["buckets"].([]any)
	for i, want := range map[int]string{0: "7000", 999: "7999", 1_000: "3000", 2_000: "0", keys - 1: "59999"} {
		if got := answer[i].(map[string]any)["value"].(json.Number).String(); got != want {
			t.Errorf("bucket %d is %s, want %s", i, got, want)
		}
	}
	calls, most, besides := 0, 0, 0
	watch := func(err error, after int) Printing {
		calls, most, besides = 0, 0, 0
		return Printing{Check: func(a, b int) error {
			calls++
			most, besides = max(most, a), max(besides, b)
			if calls > after {
				return err
			}
			return nil
		}}
	}
	o := watch(nil, 0)
	if got, err := s.Finish().AppendJSON([]byte("x"), o); err != nil || string(got[1:]) != string(whole) || most != len(whole) || besides != 8*keys {
		t.Errorf("%d bytes of %d, %d for sorting, %v", most, len(whole), besides, err)
	}
	o = watch(nil, 0)
	o.Limit = len(whole) - 1
	if _, err := s.Finish().AppendJSON(nil, o); !errors.Is(err, ErrTooLong) {
		t.Errorf("one byte too long: %v", err)
	}
	o.Limit = len(whole)
	if _, err := s.Finish().AppendJSON(nil, o); err != nil {
		t.Errorf("just not too long: %v", err)
	}
	o = watch(nil, 0)
	o.Limit = 1 << 19
	if _, err := s.Finish().AppendFacets(nil, o); !errors.Is(err, ErrTooLong) || most > 1_000 || besides > 0 {
		t.Errorf("an answer that cannot fit: %d bytes, %d for sorting, %v", most, besides, err)
	}
	enough := errors.New("enough")
	for after := range 40 {
		o = watch(enough, after)
		if _, err := s.Finish().AppendJSON(nil, o); err != enough || calls != after+1 {
			t.Errorf("told to end after %d calls: %d, %v", after, calls, err)
		}
	}
}

// Whatever a collection or a merge is at, it ends within so many values of the end of its context.
func TestLongCollectionsAndMergesEndWithTheirTime(t *testing.T) {
	const keys = 100_000
	specs := specsOf(t, "a:terms(u,0)")
	p := bindTest(t, specs, Options{})
	docs := make([]doc, 200)
	for i := range docs {
		for k := range keys / 100 {
			docs[i].nums[fU] = append(docs[i].nums[fU], uint64(i+k*1_000_003))
		}
	}
	why := errors.New("over")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s := p.NewState()
	grown := 0
	s.Charge(func(_ context.Context, bytes int) error {
		if grown = bytes; bytes > 4<<20 {
			cancel(why)
		}
		return nil
	})
	if err := s.Collect(ctx, newLeaf(docs, false, p), nil, true); err != why {
		t.Errorf("a collection of %d bytes after its end: %v", grown, err)
	}
	a, b := p.NewState(), p.NewState()
	for i, s := range []*State{a, b} {
		if err := s.Collect(context.Background(), newLeaf(docs[100*i:100*i+100], false, p), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Merge(ctx, b); err != why {
		t.Errorf("a merge after its end: %v", err)
	}
}

// What a collection takes is asked for before it is taken, and a refusal comes back from where it was met.
func TestCollectionsAreCharged(t *testing.T) {
	docs := randomDocs(rand.New(rand.NewPCG(5, 6)), 3_000, shape{long: true})
	for _, text := range []string{
		`{"a":{"kind":"terms","field":"t","size":0}}`,
		`{"a":{"kind":"terms","field":"f.x","aggs":{"c":{"kind":"cardinality","field":"t"},"s":{"kind":"stats","field":"f.x"}}}}`,
		`{"a":{"kind":"percentiles","field":"f.x"},"b":{"kind":"cardinality","field":"t"}}`,
	} {
		specs, err := ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p := bindTest(t, specs, Options{})
		full := errors.New("full")
		s, most := p.NewState(), 0
		s.Charge(func(_ context.Context, bytes int) error { most = max(most, bytes); return nil })
		if err := s.Collect(context.Background(), newLeaf(docs, true, p), nil, true); err != nil {
			t.Fatal(err)
		}
		if most < s.size {
			t.Errorf("%s: asked for %d bytes, the state is reckoned at %d", text, most, s.size)
		}
		for part := range 8 {
			s := p.NewState()
			s.Charge(func(_ context.Context, bytes int) error {
				if bytes > most*part/8 {
					return full
				}
				return nil
			})
			if err := s.Collect(context.Background(), newLeaf(docs, true, p), nil, true); err != full {
				t.Errorf("%s: refused at %d/8 of %d bytes: %v", text, part, most, err)
			}
		}
	}
}

// TestListsThatTravelTogetherComeApart: two lists in one state under other names are answered like each alone.
func TestListsThatTravelTogetherComeApart(t *testing.T) {
	docs := ints(3, 5, 5, 8)
	lists := []string{"top:terms(t,1),s:stats(i)", `{"h":{"kind":"histogram","field":"f.x","interval":2,"aggs":{"x":{"kind":"stats","field":"i"}}}}`}
	var together []Spec
	for i, text := range lists {
		for k, s := range specsOf(t, text) {
			s.Name = fmt.Sprint("n", i, k)
			together = append(together, s)
		}
	}
	p := bindTest(t, together, Options{})
	sum := p.NewState()
	if err := sum.Collect(context.Background(), newLeaf(docs, true, p), nil, true); err != nil {
		t.Fatal(err)
	}
	from := 0
	for _, text := range lists {
		own := bindTest(t, specsOf(t, text), Options{})
		got, err := own.Adopt(sum, from)
		if err != nil {
			t.Fatal(err)
		}
		want, err := run1(t, text, docs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if string(answerOf(got)) != string(answerOf(want)) || got.Bytes() == 0 || got.Bytes() != want.Bytes() {
			t.Errorf("%s: %s with %d bytes, alone %s with %d", text, answerOf(got), got.Bytes(), answerOf(want), want.Bytes())
		}
		if _, err := own.Adopt(sum, from+1); err == nil {
			t.Errorf("%s: taken from place %d", text, from+1)
		}
		var e *SpecError
		if _, err := bindTest(t, specsOf(t, text), Options{StateBytes: 1}).Adopt(sum, from); !errors.As(err, &e) || e.Code != CodeLimit {
			t.Errorf("%s: beyond its limit: %v", text, err)
		}
		from += len(own.nodes)
	}
	other := testSchema()
	other.Fields[fI].Type = schema.F64
	wrong, err := Bind(specsOf(t, "s:stats(i)"), other, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var e *SpecError
	if _, err := wrong.Adopt(sum, 1); !errors.As(err, &e) || e.Code != CodeMismatch {
		t.Errorf("of another type: %v", err)
	}
}
