package grpcmsg

import (
	"context"
	"encoding/binary"
	"errors"
	"reflect"
	"sync"

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
	v := reflect.ValueOf(stream)
	m := methodOf(v.Type())
	if m.index < 0 {
		return ErrNotBound
	}
	got := v.Method(m.index).Call([]reflect.Value{reflect.ValueOf(header), reflect.ValueOf(data), m.options})
	if err, ok := got[0].Interface().(error); ok {
		return err
	}
	return nil
}

type writeMethod struct {
	index   int // -1: there is none of the kind
	options reflect.Value
}

// methods has the methods of the types of streams that were seen: one or two.
var methods sync.Map

func methodOf(t reflect.Type) writeMethod {
	if m, ok := methods.Load(t); ok {
		return m.(writeMethod)
	}
	w := writeMethod{index: -1}
	// The first argument of the method of a type is its receiver.
	if m, ok := t.MethodByName("Write"); ok {
		f := m.Type
		if f.NumIn() == 4 && f.In(1) == reflect.TypeFor[[]byte]() && f.In(2) == reflect.TypeFor[mem.BufferSlice]() && f.In(3).Kind() == reflect.Pointer &&
			f.NumOut() == 1 && f.Out(0) == reflect.TypeFor[error]() {
			w = writeMethod{m.Index, reflect.Zero(f.In(3))}
		}
	}
	methods.Store(t, w)
	return w
}
