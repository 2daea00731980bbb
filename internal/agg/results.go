package agg

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
)

// Results are the answers to the aggregations of a plan.
type Results struct{ s *State }

// Finish returns the answers as of now. They are worked out when they are printed, and share the state's memory: print them
// before the state changes.
func (s *State) Finish() Results { return Results{s} }

// ErrTooLong is wrapped by the error of a printing that would be longer than it may be.
var ErrTooLong = errors.New("the answers to aggregations are too long")

// Printing bounds the printing of results. Its zero value bounds nothing.
type Printing struct {
	Limit int // bytes of the answers at most, 0 = no limit
	// Check is called every few milliseconds with the bytes of the answers so far, and those that sorting takes besides. Its error
	// ends the printing. It may be nil.
	Check func(answers, besides int) error
}

// AppendJSON appends {"name": answer, …} in the order asked. The answers are
//
//	terms                       {"buckets":[{"value":v,"count":n},…],"other":n}
//	stats                       {"count":n,"sum":x,"min":x,"max":x,"avg":x}
//	histogram, date_histogram   {"buckets":[{"key":lower bound,"count":n},…]}
//	range                       {"buckets":[{"from":a,"to":b,"count":n},…]}
//	percentiles                 {"values":{"50":x,…}}
//	cardinality                 {"value":n,"exact":true,"error":0}
//	filter                      {"count":n}
//
// Counts are of documents, but in stats of values. The buckets of terms stand by count descending, then value ascending, numbers
// as numbers and texts by bytes; other is the sum of the counts of the buckets left out. Buckets and filter have an "aggs" member
// where there are aggregations in buckets. Values of integer fields are integers, however large; dates are RFC 3339 in UTC, but
// the sum of dates is in milliseconds; the mean of dates and a percentile between two are cut to the millisecond below. What does
// not exist is null, and so is a sum beyond the greatest float64. error is the standard error, relative to value.
//
// Errors wrap ErrTooLong, or are those of o.Check.
func (r Results) AppendJSON(b []byte, o Printing) ([]byte, error) {
	p := newPrinter(b, o)
	p.answers(r.s.plan.nodes, r.s.parts)
	return p.done()
}

// AppendFacets appends {"name":[{"value":v,"count":n},…],…} for the terms aggregations of the plan. Errors are as of AppendJSON.
func (r Results) AppendFacets(b []byte, o Printing) ([]byte, error) {
	p := newPrinter(b, o)
	p.text("{")
	first := true
	for i, n := range r.s.plan.nodes {
		if n.spec.Kind != Terms {
			continue
		}
		if !first {
			p.text(",")
		}
		first = false
		p.b = appendString(p.b, n.spec.Name)
		p.text(":[")
		g, _ := r.s.parts[i].(*group)
		p.terms(n, g)
		p.text("]")
	}
	p.text("}")
	return p.done()
}

// printer appends answers. Once err is set nothing more is worked out, and what was appended is of no use.
type printer struct {
	Printing
	b       []byte
	start   int // of the answers in b
	scratch int // bytes taken besides
	steps   int // until the next check
	err     error
}

const (
	// printSteps is how many buckets or answers are printed between two checks, and sortSteps how many are sorted.
	printSteps = 256
	sortSteps  = 1 << 16
	// leastBucket is the shortest bucket of terms without its value: {"value":,"count":1} and a comma.
	leastBucket = 20
)

func newPrinter(b []byte, o Printing) *printer {
	return &printer{Printing: o, b: b, start: len(b), steps: printSteps}
}

func (p *printer) done() ([]byte, error) {
	p.check()
	return p.b, p.err
}

func (p *printer) text(s string) { p.b = append(p.b, s...) }

// step is called for each bucket and answer; false: stop.
func (p *printer) step() bool {
	if p.Limit > 0 && len(p.b)-p.start > p.Limit {
		p.tooLong()
		return false
	}
	if p.steps--; p.steps <= 0 {
		p.check()
	}
	return p.err == nil
}

func (p *printer) check() {
	p.steps = printSteps
	switch {
	case p.err != nil:
	case p.Limit > 0 && len(p.b)-p.start > p.Limit:
		p.tooLong()
	case p.Check != nil:
		p.err = p.Check(len(p.b)-p.start, p.scratch)
	}
}

func (p *printer) tooLong() {
	if p.err == nil {
		p.err = fmt.Errorf("%w: more than %d bytes", ErrTooLong, p.Limit)
	}
}

func (p *printer) answers(nodes []*node, parts []part) {
	p.text("{")
	for i, n := range nodes {
		if i > 0 {
			p.text(",")
		}
		p.b = appendString(p.b, n.spec.Name)
		p.text(":")
		var one part
		if parts != nil {
			one = parts[i]
		}
		if p.answer(n, one); !p.step() {
			return
		}
	}
	p.text("}")
}

func (p *printer) answer(n *node, one part) {
	g, _ := one.(*group)
	switch n.spec.Kind {
	case Terms:
		p.text(`{"buckets":[`)
		other := p.terms(n, g)
		p.text(`],"other":`)
		p.b = strconv.AppendUint(p.b, other, 10)
		p.text("}")
	case Histogram, DateHistogram:
		p.text(`{"buckets":[`)
		if g != nil {
			for i, k := range g.nums {
				if i > 0 {
					p.text(",")
				}
				p.text(`{"key":`)
				p.b = n.step.appendKey(p.b, k)
				if p.count(n, g, i); !p.step() {
					return
				}
			}
		}
		p.text(`]}`)
	case Range:
		p.text(`{"buckets":[`)
		at := 0
		for i := range n.ranges {
			if i > 0 {
				p.text(",")
			}
			p.text(`{"from":`)
			p.b = append(p.b, n.ranges[i].from...)
			p.text(`,"to":`)
			p.b = append(p.b, n.ranges[i].to...)
			if g != nil && at < len(g.nums) && g.nums[at] == uint64(i) {
				p.count(n, g, at)
				at++
			} else {
				p.count(n, nil, 0)
			}
			if !p.step() {
				return
			}
		}
		p.text(`]}`)
	case Filter:
		// count starts with a comma, which here stands behind nothing.
		at := len(p.b)
		p.count(n, g, 0)
		p.b[at] = '{'
	case Percentiles:
		p.b = n.appendPercentiles(p.b, g)
	case Stats:
		s, _ := one.(*stats)
		p.b = n.appendStats(p.b, s)
	case Cardinality:
		d, _ := one.(*distinct)
		p.b = appendDistinct(p.b, d)
	}
}

// count appends the count and the aggregations of bucket i, and closes it; g may be nil for an empty one.
func (p *printer) count(n *node, g *group, i int) {
	p.text(`,"count":`)
	var subs []part
	if g == nil {
		p.text("0")
	} else {
		p.b = strconv.AppendUint(p.b, g.counts[i], 10)
		if g.subs != nil {
			subs = g.subs[i]
		}
	}
	if len(n.subs) > 0 {
		p.text(`,"aggs":`)
		p.answers(n.subs, subs)
	}
	p.text("}")
}

// terms appends the buckets in order and returns the counts of those left out.
func (p *printer) terms(n *node, g *group) (other uint64) {
	if g == nil {
		return 0
	}
	size := len(g.counts)
	if n.spec.Size > 0 {
		size = min(size, n.spec.Size)
	}
	// What cannot fit is not sorted first.
	if p.Limit > 0 && size > (p.Limit-(len(p.b)-p.start))/leastBucket {
		p.tooLong()
		return 0
	}
	other = g.total()
	order, held := p.top(g, size)
	for i, k := range order {
		if i > 0 {
			p.text(",")
		}
		p.text(`{"value":`)
		if g.text {
			p.b = appendString(p.b, g.strs[k])
		} else {
			p.b = appendNumber(p.b, n.typ, g.nums[k])
		}
		if p.count(n, g, int(k)); !p.step() {
			break
		}
		other -= g.counts[k]
	}
	p.scratch -= held
	return other
}

// fewBuckets is how many buckets are kept in order by comparing; more are sorted by the digits of their counts.
const fewBuckets = 2_048

// top returns the places of the size greatest counts, greatest first, equals by key, and what is counted in scratch for it.
func (p *printer) top(g *group, size int) (order []uint32, held int) {
	// Keys ascend, so a lower place is a lower key.
	better := func(a, b uint32) int {
		if c := cmp.Compare(g.counts[b], g.counts[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	}
	if size > fewBuckets {
		return p.byDigits(g.counts, size)
	}
	order = make([]uint32, 0, size)
	if size == len(g.counts) {
		for i := range g.counts {
			order = append(order, uint32(i))
		}
		slices.SortFunc(order, better)
		return order, 0
	}
	// A heap with the worst of the best in front.
	heap := order
	for i := range uint32(len(g.counts)) {
		if i%sortSteps == sortSteps-1 {
			if p.check(); p.err != nil {
				return nil, 0
			}
		}
		if len(heap) < size {
			heap = append(heap, i)
			for c := len(heap) - 1; c > 0 && better(heap[c], heap[(c-1)/2]) > 0; c = (c - 1) / 2 {
				heap[c], heap[(c-1)/2] = heap[(c-1)/2], heap[c]
			}
			continue
		}
		if better(i, heap[0]) > 0 {
			continue
		}
		heap[0] = i
		for at := 0; ; {
			c := 2*at + 1
			if c+1 < size && better(heap[c+1], heap[c]) > 0 {
				c++
			}
			if c >= size || better(heap[c], heap[at]) < 0 {
				break
			}
			heap[c], heap[at] = heap[at], heap[c]
			at = c
		}
	}
	slices.SortFunc(heap, better)
	return heap, 0
}

// byDigits is top for many buckets: it sorts the places by the digits of their counts from the least significant up, which leaves
// equals in order. Its memory is counted, and it looks at the time.
func (p *printer) byDigits(counts []uint64, size int) (order []uint32, held int) {
	stop := func() ([]uint32, int) {
		p.scratch -= held
		return nil, 0
	}
	held = 2 * 4 * len(counts)
	p.scratch += held
	if p.check(); p.err != nil {
		return stop()
	}
	from, to := make([]uint32, len(counts)), make([]uint32, len(counts))
	all := uint64(0)
	for i, c := range counts {
		from[i] = uint32(i)
		all |= c
	}
	for shift := 0; all>>shift != 0; shift += digitBits {
		var at [1 << digitBits]uint32
		for _, c := range counts {
			at[c>>shift&(1<<digitBits-1)]++
		}
		sum := uint32(0)
		for d := len(at) - 1; d >= 0; d-- { // the greatest first
			at[d], sum = sum, sum+at[d]
		}
		for i, k := range from {
			if i%sortSteps == sortSteps-1 {
				if p.check(); p.err != nil {
					return stop()
				}
			}
			place := &at[counts[k]>>shift&(1<<digitBits-1)]
			to[*place] = k
			*place++
		}
		from, to = to, from
	}
	return from[:size], held
}

func (n *node) appendStats(b []byte, s *stats) []byte {
	if s == nil {
		return append(b, `{"count":0,"sum":null,"min":null,"max":null,"avg":null}`...)
	}
	b = append(b, `{"count":`...)
	b = strconv.AppendUint(b, s.count, 10)
	b = append(b, `,"sum":`...)
	var avg []byte
	if s.sum != nil {
		total := s.sum.big()
		if v := quotient(total, -1074, 1); math.IsInf(v, 0) {
			b = append(b, "null"...)
		} else {
			b = appendFloat(b, v)
		}
		// The mean lies between the extremes; only a state from outside could say otherwise.
		mean := quotient(total, -1074, s.count)
		avg = appendFloat(nil, min(max(mean, schema.DecodeF64(s.min)), schema.DecodeF64(s.max)))
	} else {
		neg, hi, lo := s.whole(n.typ)
		if neg {
			b = append(b, '-')
		}
		b = appendUint128(b, hi, lo)
		total := new(big.Int).SetUint64(hi)
		total.Lsh(total, 64).Or(total, new(big.Int).SetUint64(lo))
		if neg {
			total.Neg(total)
		}
		if n.typ == schema.Date {
			total.Div(total, new(big.Int).SetUint64(s.count)) // floor, since the divisor is positive
			avg = appendDate(nil, total.Int64())
		} else {
			avg = appendFloat(nil, quotient(total, 0, s.count))
		}
	}
	b = append(b, `,"min":`...)
	b = appendNumber(b, n.typ, s.min)
	b = append(b, `,"max":`...)
	b = appendNumber(b, n.typ, s.max)
	b = append(b, `,"avg":`...)
	b = append(b, avg...)
	return append(b, '}')
}

// whole returns sign and magnitude of the sum of integers.
func (s *stats) whole(t schema.Type) (neg bool, hi, lo uint64) {
	hi, lo = s.hi, s.lo
	if t == schema.U64 {
		return false, hi, lo
	}
	// Each signed value was encoded as itself + 2^63.
	var borrow uint64
	lo, borrow = bits.Sub64(lo, s.count<<63, 0)
	hi, _ = bits.Sub64(hi, s.count>>1, borrow)
	if neg = hi>>63 != 0; neg {
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	return neg, hi, lo
}

// appendPercentiles appends the values at the ranks p/100·(n−1) of the n sorted values, linear between the closest ranks, worked
// out exactly and rounded once.
func (n *node) appendPercentiles(b []byte, g *group) []byte {
	type wanted struct {
		rank, part uint64
		low, high  uint64
	}
	var at []wanted
	var order []int // by rank
	if g != nil {
		last := g.total() - 1
		at, order = make([]wanted, len(n.spec.Percents)), make([]int, len(n.spec.Percents))
		for i, text := range n.spec.Percents {
			p, err := parsePercent(text)
			if err != nil {
				continue // Bind lets none through
			}
			hi, lo := bits.Mul64(p, last)
			at[i].rank, at[i].part = bits.Div64(hi, lo, 100*percentScale)
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(at[a].rank, at[b].rank) })
		k, upTo := 0, g.counts[0] // upTo: values up to key k
		for _, i := range order {
			w := &at[i]
			for upTo <= w.rank {
				k++
				upTo += g.counts[k]
			}
			w.low, w.high = g.nums[k], g.nums[k]
			if w.part > 0 && upTo == w.rank+1 {
				w.high = g.nums[k+1]
			}
		}
	}
	b = append(b, `{"values":{`...)
	for i, text := range n.spec.Percents {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, text)
		b = append(b, ':')
		if g == nil {
			b = append(b, "null"...)
			continue
		}
		b = appendBetween(b, n.typ, at[i].low, at[i].high, at[i].part)
	}
	return append(b, `}}`...)
}

// appendBetween appends low + (high−low)·part/(100·percentScale).
func appendBetween(b []byte, t schema.Type, low, high, part uint64) []byte {
	const unit = 100 * percentScale
	if low == high || part == 0 {
		return appendNumber(b, t, low)
	}
	if t == schema.F64 {
		x := floatUnits(low)
		x.Mul(x, new(big.Int).SetUint64(unit-part))
		y := floatUnits(high)
		y.Mul(y, new(big.Int).SetUint64(part))
		return appendFloat(b, quotient(x.Add(x, y), -1074, unit))
	}
	hi, lo := bits.Mul64(high-low, part)
	step, rest := bits.Div64(hi, lo, unit)
	if rest == 0 || t == schema.Date {
		return appendNumber(b, t, low+step)
	}
	x := new(big.Int).SetUint64(low)
	if t == schema.I64 {
		x.SetInt64(schema.DecodeI64(low))
	}
	x.Mul(x, new(big.Int).SetUint64(unit))
	y := new(big.Int).SetUint64(high - low)
	x.Add(x, y.Mul(y, new(big.Int).SetUint64(part)))
	return appendFloat(b, quotient(x, 0, unit))
}

// floatUnits returns an encoded float64 in units of 2^-1074.
func floatUnits(v uint64) *big.Int {
	var s exactSum
	s.add(schema.DecodeF64(v))
	return s.big()
}

func appendDistinct(b []byte, d *distinct) []byte {
	b = append(b, `{"value":`...)
	switch {
	case d == nil:
		b = append(b, '0')
	case d.sketch == nil:
		b = strconv.AppendInt(b, int64(len(d.nums)+len(d.strs)), 10)
	default:
		b = strconv.AppendUint(b, d.sketch.Estimate(), 10)
		b = append(b, `,"exact":false,"error":`...)
		b = appendFloat(b, sketchError)
		return append(b, '}')
	}
	return append(b, `,"exact":true,"error":0}`...)
}
