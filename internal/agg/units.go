package agg

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/weft-search/weft/internal/schema"
)

// A step turns values of a column into the numbers of their buckets, in an encoding whose unsigned order is the order of the
// buckets. Every step is monotone: a greater value has the same or a greater bucket.
type step interface {
	// apply replaces each value by its bucket. false: some bucket has no number, since the interval is too small for the value.
	apply(vals []uint64) bool
	// appendKey appends the lower bound of a bucket as JSON.
	appendKey(dst []byte, bucket uint64) []byte
}

// divider divides by a fixed number with a multiplication.
type divider struct{ d, magic uint64 }

func newDivider(d uint64) divider { return divider{d, math.MaxUint64 / d} }

// div returns x/d: the high half of x·⌊(2^64−1)/d⌋ is at most two below it.
func (v divider) div(x uint64) uint64 {
	q, _ := bits.Mul64(x, v.magic)
	for r := x - q*v.d; r >= v.d; r -= v.d {
		q++
	}
	return q
}

// uintStep cuts unsigned integers: bucket i holds i·d ≤ v < (i+1)·d. Buckets are plain.
type uintStep struct{ divider }

func (s uintStep) apply(vals []uint64) bool {
	for i, v := range vals {
		vals[i] = s.div(v)
	}
	return true
}

func (s uintStep) appendKey(dst []byte, bucket uint64) []byte {
	return strconv.AppendUint(dst, bucket*s.d, 10)
}

const signBit = 1 << 63

// intStep cuts signed integers in the encoding of schema.EncodeI64; buckets are in the same encoding.
type intStep struct{ divider }

// floor returns ⌊v/d⌋ for an encoded v, encoded.
func (s intStep) floor(x uint64) uint64 {
	if x >= signBit {
		return s.div(x-signBit) + signBit
	}
	// v = −m with 1 ≤ m ≤ 2^63, and ⌊−m/d⌋ = −(⌊(m−1)/d⌋ + 1).
	return signBit - 1 - s.div(signBit-1-x)
}

func (s intStep) apply(vals []uint64) bool {
	for i, v := range vals {
		vals[i] = s.floor(v)
	}
	return true
}

func (s intStep) appendKey(dst []byte, bucket uint64) []byte {
	if bucket >= signBit {
		return appendWide(dst, false, bucket-signBit, s.d)
	}
	return appendWide(dst, true, signBit-bucket, s.d)
}

// appendWide appends a·b, negated if neg is set, without overflow.
func appendWide(dst []byte, neg bool, a, b uint64) []byte {
	hi, lo := bits.Mul64(a, b)
	if neg && hi|lo != 0 {
		dst = append(dst, '-')
	}
	return appendUint128(dst, hi, lo)
}

// appendUint128 appends hi·2^64 + lo in decimal.
func appendUint128(dst []byte, hi, lo uint64) []byte {
	if hi == 0 {
		return strconv.AppendUint(dst, lo, 10)
	}
	const unit = 1_000_000_000_000_000_000 // 10^18
	qhi, r := hi/unit, hi%unit
	qlo, rem := bits.Div64(r, lo, unit)
	dst = appendUint128(dst, qhi, qlo)
	start := len(dst)
	dst = append(dst, "000000000000000000"...)
	for i := len(dst) - 1; i >= start; i-- {
		dst[i] += byte(rem % 10)
		rem /= 10
	}
	return dst
}

// floatStep cuts numbers by a float64: bucket i holds the values with ⌊v/w⌋ = i, and its lower bound is i·w, all in float64 as
// IEEE 754 rounds. Buckets are signed integers in the encoding of schema.EncodeI64.
type floatStep struct {
	w float64
	t schema.Type
}

// maxFloatBucket is how far whole numbers are exact in a float64.
const maxFloatBucket = 1 << 53

func (s floatStep) bucket(v float64) (uint64, bool) {
	q := math.Floor(v / s.w)
	if !(math.Abs(q) <= maxFloatBucket) {
		return 0, false
	}
	if q == 0 && v < 0 {
		q = -1 // the quotient went under the smallest float64
	}
	return schema.EncodeI64(int64(q)), true
}

func (s floatStep) apply(vals []uint64) bool {
	ok := true
	if s.t == schema.F64 {
		w := s.w
		for i, v := range vals {
			f := schema.DecodeF64(v)
			q := math.Floor(f / w)
			if q == 0 && f < 0 {
				q = -1
			}
			ok = ok && math.Abs(q) <= maxFloatBucket
			vals[i] = schema.EncodeI64(int64(q))
		}
		return ok
	}
	for i, v := range vals {
		b, fine := s.bucket(numberOf(s.t, v))
		vals[i] = b
		ok = ok && fine
	}
	return ok
}

func (s floatStep) appendKey(dst []byte, bucket uint64) []byte {
	k := float64(schema.DecodeI64(bucket)) * s.w
	return appendFloat(dst, min(max(k, -math.MaxFloat64), math.MaxFloat64))
}

// numberOf decodes a value of a numeric type to the nearest float64.
func numberOf(t schema.Type, v uint64) float64 {
	switch t {
	case schema.F64:
		return schema.DecodeF64(v)
	case schema.U64:
		return float64(v)
	}
	return float64(schema.DecodeI64(v))
}

// units are the intervals of date histograms. All are UTC; weeks start on Monday, months, quarters and years are those of the
// Gregorian calendar, extended to all times.
var units = map[string]step{
	"1m": dateStep{fixed: newIntStep(60_000)},
	"1h": dateStep{fixed: newIntStep(3_600_000)},
	"1d": dateStep{fixed: newIntStep(dayMillis)},
	"1w": dateStep{fixed: newIntStep(dayMillis), cal: weekly},
	"1M": dateStep{fixed: newIntStep(dayMillis), cal: monthly},
	"1q": dateStep{fixed: newIntStep(dayMillis), cal: quarterly},
	"1y": dateStep{fixed: newIntStep(dayMillis), cal: yearly},
}

const dayMillis = 86_400_000

func newIntStep(d uint64) *intStep { return &intStep{newDivider(d)} }

type calendar uint8

const (
	none calendar = iota
	weekly
	monthly
	quarterly
	yearly
)

// dateStep cuts milliseconds since the epoch by a fixed step, and days further by the calendar.
type dateStep struct {
	fixed *intStep
	cal   calendar
}

func (s dateStep) apply(vals []uint64) bool {
	s.fixed.apply(vals)
	if s.cal == none {
		return true
	}
	last, bucket := uint64(0), uint64(0) // no day is −2^63
	for i, d := range vals {
		if d != last {
			last, bucket = d, schema.EncodeI64(s.cal.of(schema.DecodeI64(d)))
		}
		vals[i] = bucket
	}
	return true
}

// of returns the bucket of a day since the epoch.
func (c calendar) of(day int64) int64 {
	if c == weekly {
		return floorDiv(day+3, 7) // 1970-01-01 was a Thursday
	}
	// Days since 0000-03-01: with the year starting in March a leap day is its last day, and 400 years have 146097 days.
	z := day + 719_468
	era := floorDiv(z, 146_097)
	doe := uint64(z - era*146_097)
	yoe := (doe - doe/1_460 + doe/36_524 - doe/146_096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	month := int64((5*doy+2)/153) + 2 // from 0 = January; 12 and 13 are those of the next year
	months := (int64(yoe)+era*400)*12 + month
	switch c {
	case quarterly:
		return floorDiv(months, 3)
	case yearly:
		return floorDiv(months, 12)
	}
	return months
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func (s dateStep) appendKey(dst []byte, bucket uint64) []byte {
	i := schema.DecodeI64(bucket)
	var t time.Time
	switch s.cal {
	case weekly:
		t = time.Unix((i*7-3)*86_400, 0)
	case monthly:
		t = time.Date(int(floorDiv(i, 12)), time.Month(i-floorDiv(i, 12)*12+1), 1, 0, 0, 0, 0, time.UTC)
	case quarterly:
		t = time.Date(int(floorDiv(i, 4)), time.Month((i-floorDiv(i, 4)*4)*3+1), 1, 0, 0, 0, 0, time.UTC)
	case yearly:
		t = time.Date(int(i), 1, 1, 0, 0, 0, 0, time.UTC)
	default:
		t = time.Unix(i*int64(s.fixed.d/1000), 0)
	}
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, time.RFC3339Nano)
	return append(dst, '"')
}

// dayTable is a dateStep with the buckets of a stretch of days looked up once.
type dayTable struct {
	dateStep
	first   uint64 // encoded day of buckets[0]
	buckets []uint64
}

// newDayTable makes the table of the days from lo to hi, encoded milliseconds; ok is false if they are more than most.
func newDayTable(s dateStep, lo, hi uint64, most int) (t *dayTable, ok bool) {
	first, last := s.fixed.floor(lo), s.fixed.floor(hi)
	if s.cal == none || last-first >= uint64(most) {
		return nil, false
	}
	t = &dayTable{dateStep: s, first: first, buckets: make([]uint64, last-first+1)}
	for i := range t.buckets {
		t.buckets[i] = schema.EncodeI64(s.cal.of(schema.DecodeI64(first + uint64(i))))
	}
	return t, true
}

func (t *dayTable) apply(vals []uint64) bool {
	for i, v := range vals {
		d := t.fixed.floor(v) - t.first
		if d < uint64(len(t.buckets)) {
			vals[i] = t.buckets[d]
		} else {
			t.dateStep.apply(vals[i : i+1])
		}
	}
	return true
}
