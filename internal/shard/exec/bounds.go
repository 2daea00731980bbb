package exec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
		lo, hi, some, err := NumBounds(fd, q)
		switch {
		case err != nil:
			return nil, err
		case !some:
			return s.node(node{kind: kindNone}), nil
		}
		return s.node(node{kind: kindNumRange, field: f, lo: lo, hi: hi}), nil
	}
	return nil, &QueryError{Code: "field_not_fast", Field: fd.Name, Reason: describe(fd) + " takes no range"}
}

// NumBounds returns the least and the greatest value of a range over a field of numbers or dates, in the order-preserving encoding of
// package schema; some is false if no value lies between. Errors are *QueryError.
func NumBounds(fd *schema.Field, q *query.Range) (lo, hi uint64, some bool, err error) {
	hi = math.MaxUint64
	empty := false
	if q.Min != nil {
		v, state, err := encodeBound(fd, q.Min.Value, true)
		if err != nil {
			return 0, 0, false, err
		}
		lo = v
		if q.Min.Exclusive && state == boundExact {
			empty = v == math.MaxUint64
			lo++
		}
		empty = empty || state == boundAbove
	}
	if q.Max != nil {
		v, state, err := encodeBound(fd, q.Max.Value, false)
		if err != nil {
			return 0, 0, false, err
		}
		hi = v
		if q.Max.Exclusive && state == boundExact {
			empty = empty || v == 0
			hi--
		}
		empty = empty || state == boundBelow
	}
	return lo, hi, !empty && lo <= hi, nil
}

// termsNode converts exact values to the field's type. Those that no document can have, such as 1.5 in a field of whole numbers,
// match nothing.
func (s *searcher) termsNode(q *query.Terms) (*node, error) {
	f, err := s.lookup(q.Field)
	if err != nil {
		return nil, err
	}
	fd := &s.schema.Fields[f]
	if !fd.Fast {
		return nil, &QueryError{Code: "field_not_fast", Field: fd.Name, Reason: "exact values need a column; declare the field as fast"}
	}
	n := node{field: f}
	switch fd.Type {
	case schema.Text:
		n.kind = kindStrTerms
		n.strs = make([][]byte, len(q.Values))
		for i, v := range q.Values {
			n.strs[i] = []byte(v)
		}
		slices.SortFunc(n.strs, bytes.Compare)
		n.strs = slices.CompactFunc(n.strs, bytes.Equal)
	case schema.U64, schema.I64, schema.F64, schema.Date:
		n.kind = kindNumTerms
		for _, text := range q.Values {
			if err := s.check(1); err != nil {
				return nil, err
			}
			v, state, err := encodeBound(fd, text, true)
			if err != nil {
				return nil, err
			}
			if state == boundExact {
				n.nums = append(n.nums, v)
			}
		}
		slices.Sort(n.nums)
		n.nums = slices.Compact(n.nums)
	default:
		return nil, &QueryError{Code: "field_not_fast", Field: fd.Name, Reason: describe(fd) + " takes no exact values"}
	}
	if len(n.nums)+len(n.strs) == 0 {
		return s.node(node{kind: kindNone}), nil
	}
	return s.node(n), nil
}

type boundState uint8

const (
	boundExact   boundState = iota // the bound is a value of the type
	boundRounded                   // rounded inward to the next value of the type
	boundBelow                     // below every value of the type
	boundAbove                     // above every value of the type
)

// encodeBound converts a bound to the column's encoding. Decimals of an f64 field and instants of a date field round as those of
// documents do, so that a value is found by the text it came as. A bound of an integer field that is no integer is rounded inward
// (up for a lower bound, down for an upper), so that the set of values between the bounds is exact.
func encodeBound(fd *schema.Field, text string, lower bool) (uint64, boundState, error) {
	bad := func(want string) error {
		return &QueryError{Code: "invalid_bound", Field: fd.Name, Reason: fmt.Sprintf("%q is not %s", clip(text), want)}
	}
	if len(text) > 400 {
		return 0, 0, bad("a value of the field")
	}
	if fd.Type == schema.Date {
		v, err := schema.EncodeText(schema.Date, text)
		if err != nil {
			return 0, 0, bad("an RFC 3339 date, a day as 2006-01-02, or epoch milliseconds")
		}
		return v, boundExact, nil
	}
	f, err := schema.ParseF64(text)
	switch {
	case errors.Is(err, schema.ErrRange) && fd.Type == schema.F64:
		if strings.HasPrefix(text, "-") {
			return schema.EncodeF64(-math.MaxFloat64), pick(lower, boundRounded, boundBelow), nil
		}
		return schema.EncodeF64(math.MaxFloat64), pick(lower, boundAbove, boundRounded), nil
	case err != nil && !errors.Is(err, schema.ErrRange):
		return 0, 0, bad("a number; use * for an open end")
	case fd.Type == schema.F64:
		return schema.EncodeF64(f), boundExact, nil
	}
	if hugeExponent(text) {
		return 0, 0, bad("a number within range")
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
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

func pick(c bool, a, b boundState) boundState {
	if c {
		return a
	}
	return b
}

func clip(s string) string { return clipTo(s, 60) }

// clipTo cuts a text to at most so many bytes, between characters.
func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
