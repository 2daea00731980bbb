package schema

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Errors of the number parsers.
var (
	ErrNotNumber = errors.New("not a number")
	ErrFraction  = errors.New("has a fraction")
	ErrRange     = errors.New("is out of range")
)

// ParseI64 reads a JSON number as an integer, exactly: 12, -0, 1.0 and 1e3 are integers, 1.5 is ErrFraction.
func ParseI64[T ~string | ~[]byte](s T) (int64, error) {
	neg, mag, err := integer(s)
	switch {
	case err != nil:
		return 0, err
	case neg && mag <= 1<<63:
		return int64(-mag), nil
	case neg || mag > math.MaxInt64:
		return 0, ErrRange
	}
	return int64(mag), nil
}

// ParseU64 is ParseI64 for unsigned integers.
func ParseU64[T ~string | ~[]byte](s T) (uint64, error) {
	neg, mag, err := integer(s)
	if err == nil && neg && mag != 0 {
		return 0, ErrRange
	}
	return mag, err
}

// ParseF64 reads a JSON number as the nearest float64; overflow is ErrRange, underflow is zero.
func ParseF64[T ~string | ~[]byte](s T) (float64, error) {
	// Up to 15 digits are exact in a float64, so small integers need no conversion of the text.
	if n := len(s); n > 0 && n <= 15 {
		v, i := uint64(0), 0
		for ; i < n && isDigit(s[i]); i++ {
			v = v*10 + uint64(s[i]-'0')
		}
		if i == n {
			return float64(v), nil
		}
	}
	if !numberShape(s) {
		return 0, ErrNotNumber
	}
	v, err := strconv.ParseFloat(string(s), 64)
	if math.IsInf(v, 0) {
		return 0, ErrRange
	}
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, ErrNotNumber
	}
	return v, nil
}

// numberShape says whether s is made of the characters of decimal numbers; it keeps out what strconv takes beyond them (inf, hex, _).
func numberShape[T ~string | ~[]byte](s T) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case isDigit(c), c == '.', c == '-', c == '+', c == 'e', c == 'E':
		default:
			return false
		}
	}
	return len(s) > 0
}

// integer reads sign and magnitude of a decimal number that is a whole one.
func integer[T ~string | ~[]byte](s T) (neg bool, mag uint64, err error) {
	i, n := 0, len(s)
	if i < n && s[i] == '-' {
		neg = true
		i++
	}
	start := i
	for i < n && isDigit(s[i]) {
		d := uint64(s[i] - '0')
		if mag > (math.MaxUint64-d)/10 {
			return wholeSlow(s, neg)
		}
		mag = mag*10 + d
		i++
	}
	if i == n && i > start {
		return neg, mag, nil
	}
	return wholeSlow(s, neg)
}

// wholeSlow is integer for numbers with a point, an exponent or many digits.
func wholeSlow[T ~string | ~[]byte](s T, neg bool) (bool, uint64, error) {
	i, n := 0, len(s)
	if neg {
		i++
	}
	var digits []byte // without leading zeros
	any := false
	exp := int64(0) // the number is digits × 10^exp
	take := func(shift int64) {
		for i < n && isDigit(s[i]) {
			any = true
			if s[i] != '0' || len(digits) > 0 {
				digits = append(digits, s[i])
			}
			exp += shift
			i++
		}
	}
	take(0)
	if i < n && s[i] == '.' {
		i++
		take(-1)
	}
	if !any {
		return neg, 0, ErrNotNumber
	}
	if i < n && (s[i] == 'e' || s[i] == 'E') {
		i++
		sign := int64(1)
		if i < n && (s[i] == '+' || s[i] == '-') {
			if s[i] == '-' {
				sign = -1
			}
			i++
		}
		e, first := int64(0), i
		for ; i < n && isDigit(s[i]); i++ {
			e = min(e*10+int64(s[i]-'0'), 1<<40) // longer than any text of digits can make up for
		}
		if i == first {
			return neg, 0, ErrNotNumber
		}
		exp += sign * e
	}
	if i != n {
		return neg, 0, ErrNotNumber
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		exp++
	}
	switch {
	case len(digits) == 0:
		return neg, 0, nil
	case exp < 0:
		return neg, 0, ErrFraction
	case int64(len(digits))+exp > 20:
		return neg, 0, ErrRange
	}
	var mag uint64
	for k := range len(digits) + int(exp) {
		d := uint64(0)
		if k < len(digits) {
			d = uint64(digits[k] - '0')
		}
		if mag > (math.MaxUint64-d)/10 {
			return neg, 0, ErrRange
		}
		mag = mag*10 + d
	}
	return neg, mag, nil
}

// EncodeText reads a value that was written as text (a bound of a range, say) and returns it in the order-preserving encoding of
// Values.Nums. t is U64, I64, F64 or Date; a date is RFC 3339, a calendar day, or milliseconds since the epoch.
func EncodeText(t Type, text string) (uint64, error) {
	switch t {
	case U64:
		return ParseU64(text)
	case I64:
		v, err := ParseI64(text)
		return EncodeI64(v), err
	case F64:
		v, err := ParseF64(text)
		return EncodeF64(v), err
	case Date:
		if ms, ok := ParseDate(text); ok {
			return EncodeI64(ms), nil
		}
		v, err := ParseI64(text)
		return EncodeI64(v), err
	}
	return 0, fmt.Errorf("encode a value of type %s: not a column of numbers", t)
}
