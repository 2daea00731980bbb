// Package protoweight estimates what messages of Protocol Buffers take in memory before they are decoded, so that a server can charge them first:
// a few bytes on the wire may be many empty parts.
package protoweight

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What parts of a message take in memory, in bytes, beyond their bytes on the wire: lists grow by doubling, and what is unpacked of them
// is counted too.
const (
	Message = 192 // the structure, its place in a list, and the oneof around it
	Text    = 48  // of a list of texts
	Number  = 32  // of a list of numbers: the number, and the text whose length it may be
)

// Of estimates what an encoded message will take in memory when it is decoded and unpacked, in bytes beyond those on the wire. It stops above
// most, and where the message cannot be decoded by a reader that follows messages in messages up to nesting deep, as decoding does.
func Of(b []byte, d protoreflect.MessageDescriptor, nesting int, most int64) int64 {
	w := weigher{nesting: nesting, most: most}
	w.message(b, d, 0)
	return w.sum
}

type weigher struct {
	nesting   int
	sum, most int64
}

// message returns false when weighing has ended.
func (w *weigher) message(b []byte, d protoreflect.MessageDescriptor, depth int) bool {
	if w.sum += Message; w.sum > w.most || depth > w.nesting {
		return false
	}
	fields := d.Fields()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return false
		}
		value := b[:n]
		b = b[n:]
		f := fields.ByNumber(num)
		if f == nil {
			continue // it is thrown away
		}
		switch {
		case f.Message() != nil:
			if v, n := protowire.ConsumeBytes(value); typ == protowire.BytesType && n >= 0 && !w.message(v, f.Message(), depth+1) {
				return false
			}
		case !f.IsList():
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			w.sum += Text
		case typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			w.sum += Number * numbers(v, f.Kind())
		default:
			w.sum += Number
		}
		if w.sum > w.most {
			return false
		}
	}
	return true
}

// numbers counts the elements of a packed list.
func numbers(b []byte, k protoreflect.Kind) int64 {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return int64(len(b) / 4)
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return int64(len(b) / 8)
	}
	n := int64(0)
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}
