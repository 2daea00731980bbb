package agg

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/weft-search/weft/internal/schema"
)

// appendFloat appends a finite number as the shortest JSON that reads back to the same float64.
func appendFloat(b []byte, f float64) []byte {
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, f+0, 'f', -1, 64)
}

// appendDate appends milliseconds since the epoch as a JSON string, RFC 3339 in UTC.
func appendDate(b []byte, ms int64) []byte {
	b = append(b, '"')
	b = append(b, schema.FormatDate(ms)...)
	return append(b, '"')
}

// appendNumber appends an encoded value of a numeric type.
func appendNumber(b []byte, t schema.Type, v uint64) []byte {
	switch t {
	case schema.U64:
		return strconv.AppendUint(b, v, 10)
	case schema.I64:
		return strconv.AppendInt(b, schema.DecodeI64(v), 10)
	case schema.F64:
		return appendFloat(b, schema.DecodeF64(v))
	}
	return appendDate(b, schema.DecodeI64(v))
}

// appendString appends a JSON string; what is not UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	out, err := jsontext.AppendQuote(b, s)
	if err != nil {
		// The only error is invalid UTF-8, and the replaced text was appended.
		return out
	}
	return out
}
