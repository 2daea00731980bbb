package summanode

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/summa"
)

// outgoing is the pool that gRPC takes its buffers from, and so knows what replies take until their callers have read them: gRPC takes a
// reply at once and keeps it as long as it must. Messages that arrive are in it too, as far as their windows go.
type outgoing struct {
	inner mem.BufferPool
	most  int64
	held  atomic.Int64

	mu   sync.Mutex
	room chan struct{} // closed when some was given back while somebody waited; nil when nobody does
}

func newOutgoing(most int64) *outgoing {
	return &outgoing{inner: mem.DefaultBufferPool(), most: most}
}

// Get implements mem.BufferPool.
func (o *outgoing) Get(n int) *[]byte {
	b := o.inner.Get(n)
	o.held.Add(int64(cap(*b)))
	return b
}

// Put implements mem.BufferPool.
func (o *outgoing) Put(b *[]byte) {
	o.held.Add(-int64(cap(*b)))
	o.inner.Put(b)
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

// codec is gRPC's own for protobuf, but for where the bytes of replies are.
type codec struct {
	encoding.CodecV2
	pool *outgoing
}

func newCodec(pool *outgoing) codec { return codec{encoding.GetCodecV2(protocodec.Name), pool} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	n := proto.Size(m)
	if mem.IsBelowBufferPoolingThreshold(n) {
		return c.CodecV2.Marshal(v)
	}
	b := c.pool.Get(n)
	if _, err := (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*b)[:0], m); err != nil {
		c.pool.Put(b)
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	*b = (*b)[:n]
	return mem.BufferSlice{mem.NewBuffer(b, c.pool)}, nil
}
