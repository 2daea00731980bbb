package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// maxNesting bounds how deep the messages of a message may stand. A query of 32 levels has some 70.
const maxNesting = 200

var decodeOptions = protobuf.UnmarshalOptions{RecursionLimit: maxNesting, DiscardUnknown: true}

// envelope is a message on its way through gRPC, with what went wrong when it was read or written. gRPC would turn those errors into
// texts of its own.
type envelope struct {
	message protobuf.Message
	most    int   // bytes the message may have when it is read; 0: as many as it has
	bytes   int   // it had, or has
	sized   bool  // bytes is the size of a message to write, which proto.Size has just found
	err     error // of reading or writing; errTooLarge if it had too many bytes
}

var errTooLarge = errors.New("the message is too large")

// codec reads and writes envelopes, and leaves other messages (health checks, reflection) to the codec of gRPC. It has no state.
type codec struct{ stock encoding.CodecV2 }

var theCodec = codec{encoding.GetCodecV2(proto.Name)}

// Name implements encoding.CodecV2: on the wire it is protobuf as always.
func (codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	e, ok := v.(*envelope)
	if !ok {
		return c.stock.Marshal(v)
	}
	if !e.sized {
		e.bytes = protobuf.Size(e.message)
	}
	// The message does not change meanwhile, so the sizes that were found hold.
	o := protobuf.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(e.bytes) {
		b, err := o.MarshalAppend(make([]byte, 0, e.bytes), e.message)
		if e.err = err; err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	pool := mem.DefaultBufferPool()
	b := pool.Get(e.bytes)
	if _, e.err = o.MarshalAppend((*b)[:0], e.message); e.err != nil {
		pool.Put(b)
		return nil, e.err
	}
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// Unmarshal implements encoding.CodecV2. Of an envelope it returns no error: that is in the envelope.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	e, ok := v.(*envelope)
	if !ok {
		return c.stock.Unmarshal(data, v)
	}
	e.bytes = data.Len()
	if e.most > 0 && e.bytes > e.most {
		e.err = errTooLarge
		return nil
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if err := decodeOptions.Unmarshal(buf.ReadOnlyData(), e.message); err != nil {
		e.err = fmt.Errorf("decode %T: %w", e.message, err)
	}
	return nil
}
