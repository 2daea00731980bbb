package summanode

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/summa"
)

// outgoing knows what replies take until their callers have read them: gRPC takes a reply at once and keeps it as long as it must.
type outgoing struct {
	most int64
	held atomic.Int64

	mu   sync.Mutex
	room chan struct{} // closed when some was given back while somebody waited; nil when nobody does
}

func newOutgoing(most int64) *outgoing { return &outgoing{most: most} }

func (o *outgoing) take(bytes int64) { o.held.Add(bytes) }

func (o *outgoing) give(bytes int64) {
	o.held.Add(-bytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// freeReply is the length up to which a reply does not wait for those of others.
const freeReply = 64 << 10

var errUnread = &summa.Error{Code: codes.ResourceExhausted, Text: "too many replies wait to be read; retry later"}

// wait waits until a reply of n bytes has room beside those that are not read yet. One that is longer than all the room has it to itself.
func (o *outgoing) wait(ctx context.Context, n int, longest time.Duration) error {
	if n <= freeReply {
		return nil
	}
	late := time.NewTimer(longest)
	defer late.Stop()
	for {
		o.mu.Lock()
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		// Looked at with the channel in hand, so that nothing that is given back meanwhile is missed.
		if held := o.held.Load(); held+int64(n) <= o.most || held <= freeReply {
			return nil
		}
		select {
		case <-room:
		case <-late.C:
			return errUnread
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reply is an encoded reply, from its encoding until gRPC has written it out or dropped it, or its connection is gone: gRPC drops what it
// has for a connection that ends without a word. It is the pool that its buffers come from, and so knows when gRPC is done with them.
type reply struct {
	o    *outgoing
	conn *conn

	mu     sync.Mutex
	bytes  int64 // of buffers that are out
	whole  bool  // no more will be taken
	closed bool  // the connection is gone, and bytes are given back
}

// leastBuffer is the least size of a buffer: gRPC tells nothing about those of at most 1 KiB.
const leastBuffer = 4 << 10

var buffers = mem.DefaultBufferPool()

// Get implements mem.BufferPool.
func (r *reply) Get(n int) *[]byte {
	b := buffers.Get(max(n, leastBuffer))
	*b = (*b)[:n]
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.bytes += int64(cap(*b))
		r.o.take(int64(cap(*b)))
	}
	return b
}

// Put implements mem.BufferPool.
func (r *reply) Put(b *[]byte) {
	size := int64(cap(*b))
	buffers.Put(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.bytes -= size
	r.o.give(size)
	r.settle()
}

// settle takes a reply that has gone out off its connection. Called with the lock held.
func (r *reply) settle() {
	if r.whole && r.bytes == 0 && !r.closed {
		r.closed = true
		r.conn.forget(r)
	}
}

// drop gives back what a reply takes whose connection has gone.
func (r *reply) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.o.give(r.bytes)
	r.bytes = 0
}

// seal says that the reply is with gRPC, or will never be.
func (r *reply) seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = true
	r.settle()
}

// encode makes the bytes of a message of a length, compressed if that is said, in buffers of the reply.
func (r *reply) encode(m proto.Message, n int, compressor encoding.Compressor) (out mem.BufferSlice, err error) {
	b := r.Get(n)
	if _, err := (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*b)[:0], m); err != nil {
		r.Put(b)
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	plain := mem.NewBuffer(b, r)
	if compressor == nil {
		return mem.BufferSlice{plain}, nil
	}
	defer plain.Free()
	var z io.WriteCloser
	if z, err = compressor.Compress(mem.NewWriter(&out, r)); err == nil {
		if _, err = z.Write(plain.ReadOnlyData()); err == nil {
			err = z.Close()
		}
	}
	if err != nil {
		out.Free()
		return nil, fmt.Errorf("compress %T: %w", m, err)
	}
	return out, nil
}

// writeReply hands a message to gRPC for the stream of a call. grpc.ServerStream.SendMsg would compress it into buffers of the server,
// of which nobody knows whose they are. The method is the one that SendMsg uses; the type of its last argument has no name outside gRPC.
func writeReply(ctx context.Context, compressed bool, data mem.BufferSlice) error {
	header := make([]byte, 5)
	if compressed {
		header[0] = 1
	}
	binary.BigEndian.PutUint32(header[1:], uint32(data.Len()))
	write, err := writeMethod(grpc.ServerTransportStreamFromContext(ctx))
	if err != nil {
		return err
	}
	got := write.Call([]reflect.Value{reflect.ValueOf(header), reflect.ValueOf(data), reflect.Zero(write.Type().In(2))})
	if err, ok := got[0].Interface().(error); ok {
		return err
	}
	return nil
}

func writeMethod(stream grpc.ServerTransportStream) (reflect.Value, error) {
	if stream == nil {
		return reflect.Value{}, errNotBound
	}
	write := reflect.ValueOf(stream).MethodByName("Write")
	if !write.IsValid() {
		return reflect.Value{}, errNotBound
	}
	t := write.Type()
	if t.NumIn() != 3 || t.In(0) != reflect.TypeFor[[]byte]() || t.In(1) != reflect.TypeFor[mem.BufferSlice]() || t.In(2).Kind() != reflect.Pointer ||
		t.NumOut() != 1 || t.Out(0) != reflect.TypeFor[error]() {
		return reflect.Value{}, errNotBound
	}
	return write, nil
}

// send sends the reply, compressed as the caller likes best.
func (c *call) send(m proto.Message) error {
	n := proto.Size(m)
	if n > c.encode {
		return tooLong("encoded", n, c.encode)
	}
	var compressor encoding.Compressor
	name := bestCompressor(c.ctx)
	if name == "" || n < leastCompressed {
		name = encoding.Identity
	} else {
		compressor = encoding.GetCompressor(name)
	}
	if err := grpc.SetSendCompressor(c.ctx, name); err != nil {
		return err
	}
	if err := c.s.replies.wait(c.ctx, n, c.s.cfg.Limits.Wait); err != nil {
		return err
	}
	r := &reply{o: c.s.replies, conn: c.conn}
	c.conn.hold(r)
	defer r.seal()
	data, err := r.encode(m, n, compressor)
	if err != nil {
		return err
	}
	defer data.Free()
	return writeReply(c.ctx, compressor != nil, data)
}
