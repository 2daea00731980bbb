package relay

import (
	"io"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

// maxName is the longest name of an index that is read, in bytes: far more than one may have.
const maxName = 4 << 10

// maxGroups is how deep unknown groups may stand in one another.
const maxGroups = 64

var (
	errNotProto = status.Error(codes.Internal, "failed to decode Protobuf message")
	errLongName = status.Error(codes.InvalidArgument, "index_name must contain 1..=255 bytes")
)

// nameReader reads field 1 off the bytes of a message, in whatever pieces they come: the last one counts. It is a message for it if it is
// one of Protocol Buffers on its outermost level.
type nameReader struct {
	name   []byte
	state  readerState
	varint uint64
	shift  uint
	left   uint64 // of a value that is skipped or taken
	groups []uint64
}

type readerState byte

const (
	atTag    readerState = iota
	inVarint             // a value that is skipped
	inLength
	inName // a length, and then the name
	inSkip
	inTake
)

// feed takes the next piece.
func (r *nameReader) feed(b []byte) error {
	for len(b) > 0 {
		switch r.state {
		case inSkip, inTake:
			n := min(r.left, uint64(len(b)))
			if r.state == inTake {
				r.name = append(r.name, b[:n]...)
			}
			b = b[n:]
			if r.left -= n; r.left == 0 {
				r.state = atTag
			}
		default:
			c := b[0]
			b = b[1:]
			if r.shift == 63 && c > 1 || r.shift > 63 {
				return errNotProto
			}
			r.varint |= uint64(c&0x7f) << r.shift
			if r.shift += 7; c&0x80 != 0 {
				continue
			}
			v := r.varint
			r.varint, r.shift = 0, 0
			if err := r.value(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// value takes a varint.
func (r *nameReader) value(v uint64) error {
	switch r.state {
	case inVarint:
		r.state = atTag
	case inLength:
		r.skip(v)
	case inName:
		if v > maxName {
			return errLongName
		}
		r.name = r.name[:0]
		r.skip(v)
		if v > 0 {
			r.state = inTake
		}
	default:
		return r.tag(v)
	}
	return nil
}

func (r *nameReader) skip(n uint64) {
	r.left, r.state = n, inSkip
	if n == 0 {
		r.state = atTag
	}
}

// Types on the wire.
const (
	varintType = 0
	fixed64    = 1
	lengthType = 2
	groupBegin = 3
	groupEnd   = 4
	fixed32    = 5
)

func (r *nameReader) tag(v uint64) error {
	field := v >> 3
	if field == 0 || field > 1<<29-1 {
		return errNotProto
	}
	switch v & 7 {
	case varintType:
		r.state = inVarint
	case fixed64:
		r.skip(8)
	case fixed32:
		r.skip(4)
	case lengthType:
		r.state = inLength
		if field == 1 && len(r.groups) == 0 {
			r.state = inName
		}
	case groupBegin:
		if len(r.groups) == maxGroups {
			return errNotProto
		}
		r.groups = append(r.groups, field)
	case groupEnd:
		if len(r.groups) == 0 || r.groups[len(r.groups)-1] != field {
			return errNotProto
		}
		r.groups = r.groups[:len(r.groups)-1]
	default:
		return errNotProto
	}
	return nil
}

// end returns the name, empty if there is none.
func (r *nameReader) end() (string, error) {
	if r.state != atTag || r.shift != 0 || len(r.groups) > 0 || !utf8.Valid(r.name) {
		return "", errNotProto
	}
	return string(r.name), nil
}

// indexName reads the name of the index off a message.
func indexName(data mem.BufferSlice) (string, error) {
	var r nameReader
	for _, b := range data {
		if err := r.feed(b.ReadOnlyData()); err != nil {
			return "", err
		}
	}
	return r.end()
}

// compressedIndexName does for a message that is compressed, of at most most bytes.
func compressedIndexName(data mem.BufferSlice, encoding string, most int) (string, error) {
	in := data.Reader()
	defer in.Close()
	z, done, err := grpcmsg.Decompressor(encoding, in)
	if err != nil {
		return "", err
	}
	defer done()
	piece := mem.DefaultBufferPool().Get(pieceBytes)
	defer mem.DefaultBufferPool().Put(piece)
	var r nameReader
	for total := 0; ; {
		n, err := z.Read((*piece)[:pieceBytes])
		if total += n; total > most {
			return "", grpcmsg.TooLongInside(most)
		}
		if bad := r.feed((*piece)[:n]); bad != nil {
			return "", bad
		}
		if err == io.EOF {
			return r.end()
		}
		if err != nil {
			return "", grpcmsg.ErrDamaged
		}
	}
}

// pieceBytes is how much is decompressed at a time.
const pieceBytes = 16 << 10
