package agg

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-search/weft/internal/schema"
	"github.com/zeebo/xxh3"
)

// Plan is a list of aggregations bound to the fields of a schema.
type Plan struct {
	opts    Options
	nodes   []*node
	filters []Expr
}

// node is one aggregation of a plan.
type node struct {
	spec     *Spec
	path     string
	inBucket bool
	field    int         // id in the schema; −1: no field, or one that the schema lacks
	typ      schema.Type // of the field; 0: unknown, so that there are no values
	filter   int         // index in Plan.filters, −1 = none
	subs     []*node
	opts     Options

	step   step // histograms, when typ is known
	ranges []bounds
	segs   segments
}

// bounds is a compiled range. Values are compared in their encoding.
type bounds struct {
	lo, hi   uint64 // lo ≤ v < hi
	open     bool   // no upper end
	empty    bool   // holds no value of the type
	from, to []byte // as JSON
}

func (r *bounds) has(v uint64) bool { return !r.empty && v >= r.lo && (r.open || v < r.hi) }

// segments cut the values at every end of a range: segment i holds the values v with exactly i of cuts ≤ v.
type segments struct {
	cuts []uint64
	in   [][]uint64 // ranges that hold each segment, ascending
}

// Bind checks the aggregations against a schema. Errors are *SpecError. The specs must not change afterwards.
func Bind(specs []Spec, sch *schema.Schema, o Options) (*Plan, error) {
	p := &Plan{opts: o.withDefaults()}
	err := p.build(specs, func(n *node) error {
		id, ok := sch.Lookup(n.spec.Field)
		switch {
		case ok:
			n.field = id
			return n.bindField(&sch.Fields[id])
		case o.AllowUnknown:
			return nil
		}
		return n.fault("field", CodeUnknownField, 0, "the index has no such field")
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// build makes the nodes; bind sets field and type of those that have a field.
func (p *Plan) build(specs []Spec, bind func(n *node) error) error {
	if err := checkAll(specs); err != nil {
		return err
	}
	ranges := 0
	var level func(specs []Spec, outer string, inBucket bool) ([]*node, error)
	level = func(specs []Spec, outer string, inBucket bool) ([]*node, error) {
		nodes := make([]*node, len(specs))
		for i := range specs {
			n := &node{spec: &specs[i], path: specs[i].Name, inBucket: inBucket, field: -1, filter: -1, opts: p.opts}
			if inBucket {
				n.path = outer + ">" + n.path
			}
			if n.spec.Filter != nil {
				n.filter = len(p.filters)
				p.filters = append(p.filters, *n.spec.Filter)
			}
			if n.spec.Kind != Filter {
				if err := bind(n); err != nil {
					return nil, err
				}
			}
			if ranges += len(n.spec.Ranges); ranges > MaxRangesInAll {
				return nil, n.fault("ranges", CodeLimit, MaxRangesInAll, fmt.Sprintf("the aggregations of a request have at most %d ranges together", MaxRangesInAll))
			}
			if err := n.compile(); err != nil {
				return nil, err
			}
			var err error
			if n.subs, err = level(n.spec.Aggs, n.path, true); err != nil {
				return nil, err
			}
			nodes[i] = n
		}
		return nodes, nil
	}
	var err error
	p.nodes, err = level(specs, "", false)
	return err
}

// Filters lists the filters of the plan; Leaf.Filter is asked for them by position.
func (p *Plan) Filters() []Expr { return p.filters }

func (n *node) fault(param string, code Code, limit int64, reason string) error {
	return n.spec.fault(n.path, param, code, limit, reason)
}

func (n *node) isText() bool { return n.typ == schema.Text }

func (n *node) bindField(f *schema.Field) error {
	if err := n.setType(f.Type); err != nil {
		return err
	}
	switch {
	case f.Fast:
		return nil
	case f.Type == schema.Text:
		reason := "aggregation on a text field: it has no column; declare a keyword field"
		if n.spec.facet {
			reason = "it has no column; declare a keyword field"
		}
		return n.fault("field", CodeNoColumn, 0, reason)
	}
	return n.fault("field", CodeNoColumn, 0, "an aggregation needs a column; declare the field as fast")
}

// setType tells the node the type of its field.
func (n *node) setType(t schema.Type) error {
	bad := func(reason string) error { return n.fault("field", CodeFieldType, 0, reason) }
	k := n.spec.Kind
	switch t {
	case schema.U64, schema.I64, schema.F64, schema.Date:
	case schema.Text:
		if k != Terms && k != Cardinality {
			return bad(fmt.Sprintf("aggregation on a text field: %s needs %s", k, k.needs()))
		}
	default:
		return bad(fmt.Sprintf("%s is not computed over a field of type %s", k, t))
	}
	switch {
	case k == DateHistogram && t != schema.Date:
		return bad(fmt.Sprintf("date_histogram needs a date field; the field is %s", t))
	case k == Histogram && t == schema.Date:
		return bad("histogram needs a field of numbers; use date_histogram for dates")
	}
	n.typ = t
	return nil
}

// needs names the values that a kind is computed over, where it takes no text.
func (k Kind) needs() string {
	switch k {
	case Histogram:
		return "numbers"
	case DateHistogram:
		return "dates"
	}
	return "numbers or dates"
}

// compile works out what depends on the type of the field.
func (n *node) compile() error {
	switch n.spec.Kind {
	case Histogram:
		w, err := schema.ParseF64(n.spec.Interval)
		if err != nil {
			return n.fault("interval", CodeInvalid, 0, err.Error())
		}
		whole, err := schema.ParseU64(n.spec.Interval)
		switch {
		case n.typ == schema.U64 && err == nil:
			n.step = uintStep{newDivider(whole)}
		case n.typ == schema.I64 && err == nil:
			n.step = newIntStep(whole)
		case n.typ != 0:
			n.step = floatStep{w: w, t: n.typ}
		}
	case DateHistogram:
		n.step = units[n.spec.Interval]
	case Range:
		n.ranges = make([]bounds, len(n.spec.Ranges))
		for i, r := range n.spec.Ranges {
			b, err := n.bounds(r)
			if err != nil {
				return err
			}
			n.ranges[i] = b
		}
		n.segs = cut(n.ranges)
	}
	return nil
}

// bounds compiles a range. An end that is no value of an integer type stands for the next greater one, so that from and to mean
// what they say.
func (n *node) bounds(r Span) (bounds, error) {
	b := bounds{open: r.To == "", from: []byte("null"), to: []byte("null")}
	var above bool
	var err error
	if r.From != "" {
		if b.lo, above, b.from, err = n.bound(r.From); err != nil {
			return b, err
		}
		b.empty = above
	}
	if r.To != "" {
		if b.hi, above, b.to, err = n.bound(r.To); err != nil {
			return b, err
		}
		if b.open = above; !above && (b.empty || r.From != "" && b.lo > b.hi) {
			return b, n.fault("ranges", CodeInvalid, 0, fmt.Sprintf("range %s..%s ends before it starts", clip(r.From), clip(r.To)))
		}
		b.empty = b.empty || !b.open && b.lo >= b.hi
	}
	return b, nil
}

// bound returns the least encoded value that is not below what text says; above says that there is none.
func (n *node) bound(text string) (v uint64, above bool, json []byte, err error) {
	bad := func(want string) error {
		return n.fault("ranges", CodeInvalid, 0, fmt.Sprintf("%q is not %s", clip(text), want))
	}
	if len(text) > 400 {
		return 0, false, nil, bad("a value of the field")
	}
	f, numErr := schema.ParseF64(text)
	if n.typ == schema.Date || n.typ == 0 && numErr != nil {
		if v, err = schema.EncodeText(schema.Date, text); err != nil {
			return 0, false, nil, bad("an RFC 3339 date, a day as 2006-01-02, or epoch milliseconds")
		}
		return v, false, appendDate(nil, schema.DecodeI64(v)), nil
	}
	if numErr != nil {
		return 0, false, nil, bad("a finite number")
	}
	json = appendFloat(nil, f)
	if n.typ == schema.F64 || n.typ == 0 {
		return schema.EncodeF64(f), false, json, nil
	}
	// A float64 has no exponent that makes the exact value long.
	whole, ok := new(big.Int).SetString(text, 10)
	if ok {
		json = whole.Append(nil, 10)
	} else if r, ok := exactDecimal(text); !ok {
		// The exponent is out of proportion: only the nearest float64 counts, and that a number next to zero is not zero.
		if f == 0 && text[0] != '-' && strings.ContainsAny(text[:strings.LastIndexAny(text, "eE")], "123456789") {
			f = 1
		}
		whole, _ = big.NewFloat(math.Ceil(f)).Int(nil)
	} else {
		rem := new(big.Int)
		whole, _ = new(big.Int).DivMod(r.Num(), r.Denom(), rem)
		if rem.Sign() != 0 {
			whole.Add(whole, big.NewInt(1))
		} else {
			json = whole.Append(nil, 10)
		}
	}
	switch {
	case n.typ == schema.U64 && whole.Sign() < 0:
		return 0, false, json, nil
	case n.typ == schema.U64 && whole.IsUint64():
		return whole.Uint64(), false, json, nil
	case n.typ == schema.U64:
		return math.MaxUint64, true, json, nil
	case whole.IsInt64():
		return schema.EncodeI64(whole.Int64()), false, json, nil
	case whole.Sign() < 0:
		return 0, false, json, nil
	}
	return math.MaxUint64, true, json, nil
}

// exactDecimal reads a decimal number whose exponent is not beyond any float64.
func exactDecimal(text string) (*big.Rat, bool) {
	if i := strings.LastIndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e > 400 || e < -400 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}

func cut(ranges []bounds) segments {
	var s segments
	for i := range ranges {
		if r := &ranges[i]; !r.empty {
			if r.lo > 0 {
				s.cuts = append(s.cuts, r.lo)
			}
			if !r.open {
				s.cuts = append(s.cuts, r.hi)
			}
		}
	}
	slices.Sort(s.cuts)
	s.cuts = slices.Compact(s.cuts)
	s.in = make([][]uint64, len(s.cuts)+1)
	for i := range ranges {
		for k := range s.in {
			first := uint64(0)
			if k > 0 {
				first = s.cuts[k-1]
			}
			if ranges[i].has(first) {
				s.in[k] = append(s.in[k], uint64(i))
			}
		}
	}
	return s
}

// of returns the segment of a value.
func (s *segments) of(v uint64) int {
	if len(s.cuts) <= 16 {
		n := 0
		for _, c := range s.cuts {
			if c <= v {
				n++
			}
		}
		return n
	}
	lo, n := 0, len(s.cuts)
	for n > 0 {
		half := n >> 1
		if s.cuts[lo+half] <= v {
			lo += half + 1
			n -= half + 1
		} else {
			n = half
		}
	}
	return lo
}

// count adds the values of r to counters by segment.
func (s *segments) count(counts []uint64, r *rows) {
	if r.ranged {
		if k := s.of(r.lo); k == s.of(r.hi) {
			counts[k] += uint64(len(r.vals))
			return
		}
	}
	if len(s.cuts) > 8 {
		for _, v := range r.vals {
			counts[s.of(v)]++
		}
		return
	}
	// Few cuts: how many values reach each of them tells how many lie between, and needs no jumps.
	before := uint64(len(r.vals))
	for i, c := range s.cuts {
		reach := uint64(0)
		for _, v := range r.vals {
			if v >= c {
				reach++
			}
		}
		counts[i] += before - reach
		before = reach
	}
	counts[len(s.cuts)] += before
}

// fingerprint tells aggregations apart on the wire, whatever the types of their fields.
func fingerprint(s *Spec) uint64 { return xxh3.Hash(appendSpec(nil, s)) }

func appendSpec(b []byte, s *Spec) []byte {
	text := func(t string) {
		b = strconv.AppendInt(b, int64(len(t)), 10)
		b = append(b, ':')
		b = append(b, t...)
	}
	text(s.Name)
	text(s.Kind.String())
	text(s.Field)
	text(strconv.Itoa(s.Size))
	text(s.Interval)
	text(strconv.Itoa(len(s.Ranges)))
	for _, r := range s.Ranges {
		text(r.From)
		text(r.To)
	}
	text(strconv.Itoa(len(s.Percents)))
	for _, p := range s.Percents {
		text(p)
	}
	if s.Filter != nil {
		text("filter " + strconv.FormatBool(s.Filter.JSON))
		text(s.Filter.Text)
	}
	text(strconv.Itoa(len(s.Aggs)))
	for i := range s.Aggs {
		b = appendSpec(b, &s.Aggs[i])
	}
	return b
}
