package coordinate

import (
	"encoding/binary"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// errWire refuses bytes that are no message.
var errWire = status.Error(codes.Internal, "failed to decode Protobuf message")

// field is one field of a message on the wire.
type field struct {
	num protowire.Number
	typ protowire.Type
	raw []byte // with its tag
	val []byte // of a text, bytes or a message
	n   uint64 // of a number, as it is encoded
}

// cursor reads the fields of a message one after another; bad tells that it is none.
type cursor struct {
	rest []byte
	bad  bool
}

// next takes the first field off; false at the end.
func (c *cursor) next(f *field) bool {
	if len(c.rest) == 0 || c.bad {
		return false
	}
	b := c.rest
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		c.bad = true
		return false
	}
	f.num, f.typ, f.val = num, typ, nil
	m := 0
	switch typ {
	case protowire.VarintType:
		f.n, m = protowire.ConsumeVarint(b[n:])
	case protowire.Fixed32Type:
		if m = 4; len(b) < n+4 {
			m = -1
			break
		}
		f.n = uint64(binary.LittleEndian.Uint32(b[n:]))
	case protowire.BytesType:
		f.val, m = protowire.ConsumeBytes(b[n:])
	default:
		m = protowire.ConsumeFieldValue(num, typ, b[n:])
	}
	if m < 0 {
		c.bad = true
		return false
	}
	f.raw, c.rest = b[:n+m], b[n+m:]
	return true
}

// err refuses what has turned out to be no message.
func (c *cursor) err() error {
	if c.bad {
		return errWire
	}
	return nil
}

// is says whether a field is the numbered one with the type that this has.
func (f *field) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

func (f *field) float() float32 { return math.Float32frombits(uint32(f.n)) }

// each visits the fields of a message.
func each(b []byte, visit func(f *field) error) error {
	c := cursor{rest: b}
	var f field
	for c.next(&f) {
		if err := visit(&f); err != nil {
			return err
		}
	}
	return c.err()
}

func appendBytes(dst []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

func appendText(dst []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

// appendUint appends a number that is not 0, appendFloat one that is not +0.
func appendUint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

func appendFloat(dst []byte, num protowire.Number, v float32) []byte {
	if math.Float32bits(v) == 0 {
		return dst
	}
	return protowire.AppendFixed32(protowire.AppendTag(dst, num, protowire.Fixed32Type), math.Float32bits(v))
}

func finite(v float32) bool { return v-v == 0 }

// add and add32 are sums that stay at the largest number.
func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func add32(a, b uint32) uint32 {
	if a > math.MaxUint32-b {
		return math.MaxUint32
	}
	return a + b
}
