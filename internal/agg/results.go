package agg

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
)

// Results are the answers to the aggregations of a plan.
type Results struct{ s *State }

// Finish returns the answers as of now. They are worked out when they are printed, and share the state's memory: print them
// before the state changes.
func (s *State) Finish() Results { return Results{s} }

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
func (r Results) AppendJSON(b []byte) []byte {
	return appendAnswers(b, r.s.plan.nodes, r.s.parts)
}

// AppendFacets appends {"name":[{"value":v,"count":n},…],…} for the terms aggregations of the plan.
func (r Results) AppendFacets(b []byte) []byte {
	b = append(b, '{')
	first := true
	for i, n := range r.s.plan.nodes {
		if n.spec.Kind != Terms {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, n.spec.Name)
		b = append(b, ":["...)
		g, _ := r.s.parts[i].(*group)
		b, _ = n.appendTerms(b, g)
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendAnswers(b []byte, nodes []*node, parts []part) []byte {
	b = append(b, '{')
	for i, n := range nodes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, n.spec.Name)
		b = append(b, ':')
		var p part
		if parts != nil {
			p = parts[i]
		}
		b = n.appendAnswer(b, p)
	}
	return append(b, '}')
}

func (n *node) appendAnswer(b []byte, p part) []byte {
	g, _ := p.(*group)
	switch n.spec.Kind {
	case Terms:
		b = append(b, `{"buckets":[`...)
		b, other := n.appendTerms(b, g)
		b = append(b, `],"other":`...)
		b = strconv.AppendUint(b, other, 10)
		return append(b, '}')
	case Histogram, DateHistogram:
		b = append(b, `{"buckets":[`...)
		if g != nil {
			for i, k := range g.nums {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(b, `{"key":`...)
				b = n.step.appendKey(b, k)
				b = n.appendCount(b, g, i)
			}
		}
		return append(b, `]}`...)
	case Range:
		b = append(b, `{"buckets":[`...)
		at := 0
		for i := range n.ranges {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"from":`...)
			b = append(b, n.ranges[i].from...)
			b = append(b, `,"to":`...)
			b = append(b, n.ranges[i].to...)
			if g != nil && at < len(g.nums) && g.nums[at] == uint64(i) {
				b = n.appendCount(b, g, at)
				at++
			} else {
				b = n.appendCount(b, nil, 0)
			}
		}
		return append(b, `]}`...)
	case Filter:
		// appendCount starts with a comma, which here stands behind nothing.
		at := len(b)
		b = n.appendCount(b, g, 0)
		b[at] = '{'
		return b
	case Percentiles:
		return n.appendPercentiles(b, g)
	case Stats:
		s, _ := p.(*stats)
		return n.appendStats(b, s)
	}
	d, _ := p.(*distinct)
	return appendDistinct(b, d)
}

// appendCount appends the count and the aggregations of bucket i, and closes it; g may be nil for an empty one.
func (n *node) appendCount(b []byte, g *group, i int) []byte {
	b = append(b, `,"count":`...)
	var subs []part
	if g == nil {
		b = append(b, '0')
	} else {
		b = strconv.AppendUint(b, g.counts[i], 10)
		if g.subs != nil {
			subs = g.subs[i]
		}
	}
	if len(n.subs) > 0 {
		b = append(b, `,"aggs":`...)
		b = appendAnswers(b, n.subs, subs)
	}
	return append(b, '}')
}

// appendTerms appends the buckets in order and returns the counts of those left out.
func (n *node) appendTerms(b []byte, g *group) (out []byte, other uint64) {
	if g == nil {
		return b, 0
	}
	other = g.total()
	for i, k := range g.top(n.spec.Size) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"value":`...)
		if g.text {
			b = appendString(b, g.strs[k])
		} else {
			b = appendNumber(b, n.typ, g.nums[k])
		}
		b = n.appendCount(b, g, k)
		other -= g.counts[k]
	}
	return b, other
}

// top returns the places of the size greatest counts, greatest first, equals by key; 0 = all.
func (g *group) top(size int) []int {
	// Keys ascend, so a lower place is a lower key.
	better := func(a, b int) int {
		if c := cmp.Compare(g.counts[b], g.counts[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	}
	if size == 0 || size >= len(g.counts) {
		all := make([]int, len(g.counts))
		for i := range all {
			all[i] = i
		}
		slices.SortFunc(all, better)
		return all
	}
	// A heap with the worst of the best in front.
	heap := make([]int, 0, size)
	for i := range g.counts {
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
		for p := 0; ; {
			c := 2*p + 1
			if c+1 < size && better(heap[c+1], heap[c]) > 0 {
				c++
			}
			if c >= size || better(heap[c], heap[p]) < 0 {
				break
			}
			heap[c], heap[p] = heap[p], heap[c]
			p = c
		}
	}
	slices.SortFunc(heap, better)
	return heap
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
	var upTo []uint64 // values up to each distinct one
	if g != nil {
		upTo = make([]uint64, len(g.counts))
		sum := uint64(0)
		for i, c := range g.counts {
			sum += c
			upTo[i] = sum
		}
	}
	b = append(b, `{"values":{`...)
	for i, text := range n.spec.Percents {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, text)
		b = append(b, ':')
		p, err := parsePercent(text)
		if g == nil || err != nil {
			b = append(b, "null"...)
			continue
		}
		hi, lo := bits.Mul64(p, upTo[len(upTo)-1]-1)
		rank, part := bits.Div64(hi, lo, 100*percentScale)
		k := sort.Search(len(upTo), func(i int) bool { return upTo[i] > rank })
		low, high := g.nums[k], g.nums[k]
		if part > 0 && upTo[k] == rank+1 {
			high = g.nums[k+1]
		}
		b = appendBetween(b, n.typ, low, high, part)
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
