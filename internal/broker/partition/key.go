package partition

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// keyOf returns the key bytes of an encoded NamedDocument (section Placement and partitions): those of the first value of the primary
// field. They are empty where the document cannot be routed: it lacks the field, or the value is a vector or an empty key. Integers and
// f64 are written into buf.
func keyOf(doc []byte, primary string, buf []byte) ([]byte, error) {
	for len(doc) > 0 {
		f, rest, err := next(doc)
		if err != nil {
			return nil, err
		}
		doc = rest
		if !f.is(1, protowire.BytesType) {
			continue
		}
		name, value, err := entryOf(f.val)
		if err != nil {
			return nil, err
		}
		if string(name) == primary {
			return keyBytes(value, buf)
		}
	}
	return nil, nil
}

// entryOf takes a FieldEntry apart.
func entryOf(b []byte) (name, value []byte, err error) {
	var values joined
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return nil, nil, err
		}
		b = rest
		switch {
		case f.is(1, protowire.BytesType):
			name = f.val
		case f.is(2, protowire.BytesType):
			values.add(f.val)
		}
	}
	return name, values.val, nil
}

// keyBytes returns the key bytes of a FieldValue: text, bytes and JSON as they are, integers in decimal, f64 in its shortest decimal
// without an exponent.
func keyBytes(value, buf []byte) ([]byte, error) {
	var key []byte
	for len(value) > 0 {
		f, rest, err := next(value)
		if err != nil {
			return nil, err
		}
		value = rest
		switch { // of several members of a oneof the last counts
		case f.is(1, protowire.BytesType), f.is(5, protowire.BytesType), f.is(8, protowire.BytesType):
			key = f.val
		case f.is(2, protowire.VarintType):
			key = strconv.AppendUint(buf[:0], f.uint(), 10)
		case f.is(3, protowire.VarintType):
			key = strconv.AppendInt(buf[:0], int64(f.uint()), 10)
		case f.is(4, protowire.Fixed64Type):
			key = appendDecimal(buf[:0], math.Float64frombits(f.fixed64()))
		case f.is(6, protowire.BytesType), f.is(7, protowire.BytesType), f.is(9, protowire.BytesType):
			key = nil
		}
	}
	return key, nil
}

func appendDecimal(dst []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(dst, "inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-inf"...)
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}
