package grpcmsg

import (
	"context"
	"encoding/binary"
	"errors"
	"reflect"
	"sync"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// ErrNotBound says that a call did not come from a server of gRPC.
var ErrNotBound = errors.New("the call has no stream of gRPC below it")

// Stream is the stream below a grpc.ServerStream. RecvMsg takes a message of any length the caller says, and tells nothing before it has
// all of it; here the length is seen first, and memory taken as the message arrives.
type Stream interface {
	// ReadMessageHeader reads the five bytes before a message; io.EOF means that the caller has closed its side.
	ReadMessageHeader(header []byte) error
	// Read reads exactly n bytes of the message.
	Read(n int) (mem.BufferSlice, error)
	// RecvCompress is the encoding of messages that say that they are compressed.
	RecvCompress() string
}

// StreamOf returns the stream of a call; false where it has none below it.
func StreamOf(ctx context.Context) (Stream, bool) {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(Stream)
	return s, ok
}

// Header is the five bytes before a message of n bytes.
func Header(compressed bool, n int) []byte {
	header := make([]byte, 5)
	if compressed {
		header[0] = 1
	}
	binary.BigEndian.PutUint32(header[1:], uint32(n))
	return header
}

// Write hands bytes to gRPC for the stream of a call: header as it is, then data, which gRPC takes references of. A message may come in as
// many writes as one likes; Write waits while gRPC has much of the stream unwritten. grpc.ServerStream.SendMsg would compress data into
// buffers of the server, of which nobody knows whose they are. The method is the one that SendMsg uses; the type of its last argument has
// no name outside gRPC.
func Write(ctx context.Context, header []byte, data mem.BufferSlice) error {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil {
		return ErrNotBound
	}
	write := writeOf(reflect.TypeOf(stream))
	if write == nil {
		return ErrNotBound
	}
	// An interface is its type and, of a pointer, that.
	return write((*[2]unsafe.Pointer)(unsafe.Pointer(&stream))[1], header, data, nil)
}

// write is the method Write of a type of streams, with its receiver and its options as the pointers that they are.
type write func(stream unsafe.Pointer, header []byte, data mem.BufferSlice, options unsafe.Pointer) error

// writes has the methods of the types of streams that were seen: one or two.
var writes sync.Map

// writeOf returns nil for a type without a method of the kind. To call it by reflection takes seven allocations, and as long as the rest of
// what a short reply takes here.
func writeOf(t reflect.Type) write {
	if w, ok := writes.Load(t); ok {
		return w.(write)
	}
	var w write
	// The first argument of the method of a type is its receiver.
	if m, ok := t.MethodByName("Write"); ok && t.Kind() == reflect.Pointer {
		f := m.Type
		if f.NumIn() == 4 && !f.IsVariadic() && f.In(0) == t && f.In(1) == reflect.TypeFor[[]byte]() && f.In(2) == reflect.TypeFor[mem.BufferSlice]() &&
			f.In(3).Kind() == reflect.Pointer && f.NumOut() == 1 && f.Out(0) == reflect.TypeFor[error]() {
			// The same function but for the names of two pointers.
			method := m.Func.Interface()
			function := (*[2]unsafe.Pointer)(unsafe.Pointer(&method))[1]
			w = *(*write)(unsafe.Pointer(&function))
		}
	}
	writes.Store(t, w)
	return w
}
