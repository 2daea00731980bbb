package exec

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
)

// rangeNode converts the bounds of a range to the field's type, exactly.
func (s *searcher) rangeNode(q *query.Range) (*node, error) {
	f, err := s.lookup(q.Field)
	if err != nil {
		return nil, err
	}
	fd := &s.schema.Fields[f]
	if !fd.Fast {
		return nil, &QueryError{Code: "field_not_fast", Field: fd.Name, Reason: "a range needs a column; declare the field as fast"}
	}
	if q.Min == nil && q.Max == nil {
		return s.node(node{kind: kindExists, field: f}), nil
	}
	switch fd.Type {
	case schema.Text:
		n := s.node(node{kind: kindStrRange, field: f})
		if q.Min != nil {
			n.strLo, n.loExcl = []byte(q.Min.Value), q.Min.Exclusive
		}
		if q.Max != nil {
			n.strHi, n.hiExcl = []byte(q.Max.Value), q.Max.Exclusive
		}
		return n, nil
	case schema.U64, schema.I64, schema.F64, schema.Date:
		n := s.node(node{kind: kindNumRange, field: f, hi: math.MaxUint64})
		empty := false
		if q.Min != nil {
			v, state, err := encodeBound(fd, q.Min.Value, true)
			if err != nil {
				return nil, err
			}
			n.lo = v
			if q.Min.Exclusive && state == boundExact {
				if v == math.MaxUint64 {
					empty = true
				}
				n.lo++
			}
			empty = empty || state == boundAbove
		}
		if q.Max != nil {
			v, state, err := encodeBound(fd, q.Max.Value, false)
			if err != nil {
				return nil, err
			}
			n.hi = v
			if q.Max.Exclusive && state == boundExact {
				if v == 0 {
					empty = true
				}
				n.hi--
			}
			empty = empty || state == boundBelow
		}
		if empty || n.lo > n.hi {
			return s.node(node{kind: kindNone}), nil
		}
		return n, nil
	}
	return nil, &QueryError{Code: "field_not_fast", Field: fd.Name, Reason: describe(fd) + " takes no range"}
}

type boundState uint8

const (
	boundExact   boundState = iota // the bound is a value of the type
	boundRounded                   // rounded inward to the next value of the type
	boundBelow                     // below every value of the type
	boundAbove                     // above every value of the type
)

// encodeBound converts a bound to the column's encoding. A bound that is no value of the type is rounded inward (up for a lower
// bound, down for an upper), so that the set of values between the bounds is exact.
func encodeBound(fd *schema.Field, text string, lower bool) (uint64, boundState, error) {
	bad := func(want string) error {
		return &QueryError{Code: "invalid_bound", Field: fd.Name, Reason: fmt.Sprintf("range bound %q is not %s", clip(text), want)}
	}
	if fd.Type == schema.Date {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			return schema.EncodeI64(ms), boundExact, nil
		}
		t, err := parseTime(text)
		if err != nil {
			return 0, 0, bad("an RFC 3339 date or epoch milliseconds")
		}
		ms := t.UnixMilli()
		if t.Nanosecond()%1e6 == 0 {
			return schema.EncodeI64(ms), boundExact, nil
		}
		if lower {
			ms++
		}
		return schema.EncodeI64(ms), boundRounded, nil
	}
	if len(text) > 400 {
		return 0, 0, bad("a number")
	}
	if fd.Type == schema.F64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) {
			if math.IsInf(v, 1) {
				return schema.EncodeF64(math.MaxFloat64), pick(lower, boundAbove, boundRounded), nil
			}
			if math.IsInf(v, -1) {
				return schema.EncodeF64(-math.MaxFloat64), pick(lower, boundRounded, boundBelow), nil
			}
			return 0, 0, bad("a number")
		}
		if math.IsInf(v, 0) {
			return 0, 0, bad("a finite number; use * for an open end")
		}
		// the decimal text may lie beside the float it rounds to
		if exact, ok := new(big.Rat).SetString(text); ok && !hugeExponent(text) {
			switch c := new(big.Rat).SetFloat64(v).Cmp(exact); {
			case c < 0 && lower:
				return schema.EncodeF64(math.Nextafter(v, math.Inf(1))), boundRounded, nil
			case c > 0 && !lower:
				return schema.EncodeF64(math.Nextafter(v, math.Inf(-1))), boundRounded, nil
			case c != 0:
				return schema.EncodeF64(v), boundRounded, nil
			}
		}
		return schema.EncodeF64(v), boundExact, nil
	}
	// integers: exact for any decimal text
	if hugeExponent(text) {
		return 0, 0, bad("a number within range")
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || strings.ContainsAny(text, "/_xXoObBpP") {
		return 0, 0, bad("a number")
	}
	num := new(big.Int)
	rem := new(big.Int)
	num.DivMod(r.Num(), r.Denom(), rem) // floor, since the denominator is positive
	state := boundExact
	if rem.Sign() != 0 {
		state = boundRounded
		if lower {
			num.Add(num, big.NewInt(1))
		}
	}
	if fd.Type == schema.U64 {
		switch {
		case num.Sign() < 0:
			return 0, pick(lower, boundRounded, boundBelow), nil
		case !num.IsUint64():
			return math.MaxUint64, pick(lower, boundAbove, boundRounded), nil
		}
		return num.Uint64(), state, nil
	}
	if !num.IsInt64() {
		if num.Sign() < 0 {
			return schema.EncodeI64(math.MinInt64), pick(lower, boundRounded, boundBelow), nil
		}
		return schema.EncodeI64(math.MaxInt64), pick(lower, boundAbove, boundRounded), nil
	}
	return schema.EncodeI64(num.Int64()), state, nil
}

// hugeExponent tells numbers whose exact value would take more work than any bound is worth.
func hugeExponent(text string) bool {
	i := strings.LastIndexAny(text, "eE")
	if i < 0 {
		return false
	}
	e, err := strconv.Atoi(text[i+1:])
	return err != nil || e > 400 || e < -400
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("not a date")
}

func pick(c bool, a, b boundState) boundState {
	if c {
		return a
	}
	return b
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
