package grpcmsg

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Outgoing knows what replies take until their callers have read them: gRPC takes a reply at once and keeps it as long as it must.
type Outgoing struct {
	most int64
	held atomic.Int64

	mu      sync.Mutex
	room    chan struct{} // closed when some was given back while somebody waited; nil when nobody does
	queue   []*waiter     // the first of them comes next
	waiting int64         // what they hold
}

// NewOutgoing returns one with room for most bytes.
func NewOutgoing(most int64) *Outgoing { return &Outgoing{most: most} }

// Held is what replies take now, in bytes.
func (o *Outgoing) Held() int64 { return o.held.Load() }

func (o *Outgoing) take(bytes int64) { o.held.Add(bytes) }

func (o *Outgoing) give(bytes int64) {
	o.held.Add(-bytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	o.grant()
}

// FreeReply is the length up to which a reply does not wait for those of others.
const FreeReply = 64 << 10

// ErrUnread is the status of a reply that found no room in time.
var ErrUnread = status.Error(codes.ResourceExhausted, "too many replies wait to be read; retry later")

// Wait waits until a reply of n bytes has room beside those that are not read yet. One that is longer than all the room has it to itself.
func (o *Outgoing) Wait(ctx context.Context, n int, longest time.Duration) error {
	if n <= FreeReply {
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
		if held := o.held.Load(); held+int64(n) <= o.most || held <= FreeReply {
			return nil
		}
		select {
		case <-room:
		case <-late.C:
			return ErrUnread
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Reply is an encoded reply, from its encoding until gRPC has written it out or dropped it, or its connection is gone: gRPC drops what it
// has for a connection that ends without a word. It is the pool that its buffers come from, and so knows when gRPC is done with them.
type Reply struct {
	o    *Outgoing
	conn *Replies
	room *Room // whose bytes the buffers use first; nil: there is none

	mu     sync.Mutex
	bytes  int64 // of buffers that are out
	whole  bool  // no more will be taken
	closed bool  // the connection is gone, and bytes are given back
}

// leastBuffer is the least size of a buffer: gRPC tells nothing about those of at most 1 KiB.
const leastBuffer = 4 << 10

// LeastCounted is the length up to which a reply that was made elsewhere is not counted: there is little of it, and much to do for that.
const LeastCounted = 4 << 10

var buffers = mem.DefaultBufferPool()

// Get implements mem.BufferPool.
func (r *Reply) Get(n int) *[]byte {
	b := buffers.Get(max(n, leastBuffer))
	*b = (*b)[:n]
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		n := int64(cap(*b))
		r.bytes += n
		if r.room != nil {
			n -= r.room.spend(n)
		}
		r.o.take(n)
	}
	return b
}

// Put implements mem.BufferPool.
func (r *Reply) Put(b *[]byte) {
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
func (r *Reply) settle() {
	if r.whole && r.bytes == 0 && !r.closed {
		r.closed = true
		r.conn.forget(r)
	}
}

// drop gives back what a reply takes whose connection has gone.
func (r *Reply) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.o.give(r.bytes)
	r.bytes = 0
}

// Seal says that the reply is with gRPC, or will never be.
func (r *Reply) Seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = true
	r.settle()
}

// Encode makes the bytes of a message of a length, compressed if that is said, in buffers of the reply.
func (r *Reply) Encode(m proto.Message, n int, compressor encoding.Compressor) (out mem.BufferSlice, err error) {
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

// last is the piece of a reply after which all of it is written, as a pool for the bytes that are in it.
type last struct {
	r     *Reply
	piece mem.Buffer
	bytes int64
}

// Get implements mem.BufferPool. It is not asked for.
func (l *last) Get(n int) *[]byte { return buffers.Get(n) }

// Put implements mem.BufferPool.
func (l *last) Put(*[]byte) {
	l.piece.Free()
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.closed {
		return
	}
	l.r.bytes -= l.bytes
	l.r.o.give(l.bytes)
	l.r.settle()
}

// Last is for the last piece of a reply that was made elsewhere: what it returns in its place, when it is written, gives back what gRPC may
// hold of the reply by then, which is bytes. A short piece is copied for that.
func (r *Reply) Last(piece mem.Buffer, bytes int64) mem.Buffer {
	data := piece.ReadOnlyData()
	if mem.IsBelowBufferPoolingThreshold(cap(data)) {
		b := buffers.Get(leastBuffer)
		data = (*b)[:copy(*b, data)]
		piece.Free()
		piece = mem.NewBuffer(b, buffers)
	}
	r.mu.Lock()
	if !r.closed {
		r.bytes += bytes
		r.o.take(bytes)
	}
	r.mu.Unlock()
	return mem.NewBuffer(&data, &last{r, piece, bytes})
}

// Replies are those of one connection that gRPC has. The zero value is ready.
type Replies struct {
	mu     sync.Mutex
	closed bool
	held   map[*Reply]struct{}
}

// Begin is for a reply that gRPC is to have.
func (c *Replies) Begin(o *Outgoing) *Reply {
	r := &Reply{o: o, conn: c}
	c.mu.Lock()
	gone := c.closed
	if !gone {
		if c.held == nil {
			c.held = map[*Reply]struct{}{}
		}
		c.held[r] = struct{}{}
	}
	c.mu.Unlock()
	if gone {
		r.drop()
	}
	return r
}

// forget is for a reply that gRPC does not have any more. It is called under the lock of the reply.
func (c *Replies) forget(r *Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, r)
}

// Drop is for a connection that has ended: what gRPC has of its replies goes with it.
func (c *Replies) Drop() {
	c.mu.Lock()
	c.closed = true
	held := c.held
	c.held = nil
	c.mu.Unlock()
	for r := range held {
		r.drop()
	}
}
