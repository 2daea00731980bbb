package rpc

import (
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
	bytes   int    // the size of a message to write
	sized   bool   // proto.Size has just found it
	reply   *reply // takes the bytes of a message to write, and is taken out when it has them; may be nil
	err     error  // of reading or writing
}

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
	if e.reply == nil && mem.IsBelowBufferPoolingThreshold(e.bytes) {
		b, err := o.MarshalAppend(make([]byte, 0, e.bytes), e.message)
		if e.err = err; err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	b := takeBuffer(e.bytes)
	if _, e.err = o.MarshalAppend((*b)[:0], e.message); e.err != nil {
		giveBuffer(b)
		return nil, e.err
	}
	e.message = nil // it is not kept while its bytes wait
	if r := e.reply; r != nil {
		e.reply, r.data = nil, b
		return r.split(), nil
	}
	return mem.BufferSlice{mem.NewBuffer(b, sent{})}, nil
}

// sent is the pool that buffers of messages go back to that nobody waits for.
type sent struct{}

func (sent) Get(n int) *[]byte { return takeBuffer(n) }
func (sent) Put(b *[]byte)     { giveBuffer(b) }

// Unmarshal implements encoding.CodecV2. Of an envelope it returns no error: that is in the envelope.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	e, ok := v.(*envelope)
	if !ok {
		return c.stock.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if err := decodeOptions.Unmarshal(buf.ReadOnlyData(), e.message); err != nil {
		e.err = fmt.Errorf("decode %T: %w", e.message, err)
	}
	return nil
}
