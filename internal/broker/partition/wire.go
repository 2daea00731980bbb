package partition

import (
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/protoweight"
)

// errWire refuses bytes that are no message.
var errWire = status.Error(codes.Internal, "failed to decode Protobuf message")

// field is one field of a message on the wire.
type field struct {
	num protowire.Number
	typ protowire.Type
	raw []byte // with its tag
	val []byte // what a text, bytes or a message holds; else the number as it is encoded
}

// next takes the first field off a message.
func next(b []byte) (f field, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, errWire
	}
	m := protowire.ConsumeFieldValue(num, typ, b[n:])
	if m < 0 {
		return f, nil, errWire
	}
	f = field{num: num, typ: typ, raw: b[:n+m], val: b[n : n+m]}
	if typ == protowire.BytesType {
		f.val, _ = protowire.ConsumeBytes(f.val)
	}
	return f, b[n+m:], nil
}

// is says whether a field is the numbered one with the type that this has.
func (f *field) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// uint is the number of a varint.
func (f *field) uint() uint64 {
	v, _ := protowire.ConsumeVarint(f.val)
	return v
}

func (f *field) fixed32() uint32 {
	v, _ := protowire.ConsumeFixed32(f.val)
	return v
}

func (f *field) fixed64() uint64 {
	v, _ := protowire.ConsumeFixed64(f.val)
	return v
}

// appendBytes appends a text, bytes or message, appendUint a number that is not 0.
func appendBytes(dst []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

func appendUint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

func appendBool(dst []byte, num protowire.Number, v bool) []byte {
	if !v {
		return dst
	}
	return appendUint(dst, num, 1)
}

// joined is what the occurrences of one message mean together: their bytes one after another. One alone is not copied.
type joined struct {
	val  []byte
	some bool
	own  bool // val is a copy that grows
}

func (j *joined) add(v []byte) {
	switch {
	case !j.some:
		j.val, j.some = v, true
	case !j.own:
		j.val, j.own = append(j.val[:len(j.val):len(j.val)], v...), true
	default:
		j.val = append(j.val, v...)
	}
}

// maxDecoded bounds what a reply may take in memory where it is decoded: statistics, infos, counts. Nodes that mean well need little of it.
const maxDecoded = 64 << 20

// decode reads a message that should be small.
func decode(b []byte, m proto.Message) error {
	if protoweight.Of(b, m.ProtoReflect().Descriptor(), maxNesting, maxDecoded) > maxDecoded {
		return status.Errorf(codes.ResourceExhausted, "the message takes more than %d bytes in memory", maxDecoded)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return errWire
	}
	return nil
}

// encode writes a message that this package made.
func encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to encode Protobuf message: %s", err)
	}
	return b, nil
}

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
