package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// gathering asks the nodes of one call of a client: it is the partition.Caller of that call.
type gathering struct {
	b    *Broker
	c    *relay.Call
	ix   *partition.Index
	to   []route.Target
	at   []*backend // those that are entered; nil where there is no node
	most int        // bytes of a reply
	held holding    // memory for replies
}

// gather begins to ask the nodes that a call was routed to. end must be called once, when nothing of the replies is needed.
func (b *Broker) gather(c *relay.Call, p *picture, index string, r *route.Route) *gathering {
	g := &gathering{b: b, c: c, to: r.Parts, at: make([]*backend, len(r.Parts)), most: b.cfg.Limits.BackendDecode, held: holding{gate: b.memory}}
	g.ix = &partition.Index{Name: index, Shards: make([]string, len(r.Parts)), Missing: r.Missing()}
	g.ix.Blame = g.blame
	if r.Rule != nil {
		g.ix.Locate = r.Rule.Partition
	}
	for i := range r.Parts {
		g.ix.Shards[i] = r.Parts[i].Shard
		if n := r.Parts[i].Node; n != nil {
			if k := p.backends[n.Address]; k != nil && k.enter() {
				g.at[i] = k
			}
		}
	}
	return g
}

// end lets go of the nodes and of the memory of their replies.
func (g *gathering) end() {
	for _, k := range g.at {
		if k != nil {
			k.leave()
		}
	}
	g.held.free()
}

// keptBack is what the broker keeps of a client's time for itself, and leastTime what a node gets at least ("Routing": grpc-timeout).
const (
	keptBack  = 50 * time.Millisecond
	leastTime = 10 * time.Millisecond
)

// timedOut is what a node of the reference says, as CANCELLED, when the time that it was given is over.
const timedOut = "Timeout expired"

// Call implements partition.Caller.
func (g *gathering) Call(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
	out, _, err := g.ask(ctx, part, method, req)
	return out, err
}

// ask is Call with the whole of the node's reply but its message; nil where there is none.
func (g *gathering) ask(ctx context.Context, part int, method string, req []byte) (out []byte, reply *grpcraw.Reply, err error) {
	// It runs on goroutines that nobody else guards, and a fault of ours with one reply is not to end all calls.
	defer func() {
		if v := recover(); v != nil {
			g.b.cfg.Metrics.Panics.Inc()
			g.b.cfg.Log.Error("call failed", "call", method, "error", fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
			out, reply, err = nil, nil, errInternal
		}
	}()
	k := g.at[part]
	if k == nil {
		return nil, nil, errGone
	}
	if len(req) > g.b.cfg.Limits.BackendEncode {
		return nil, nil, grpcraw.TooLong("encoded", len(req), g.b.cfg.Limits.BackendEncode)
	}
	began := time.Now()
	var timeout time.Duration
	if at, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(at)-keptBack, leastTime)
	}
	reply, err = k.node.Do(ctx, &grpcraw.Call{Method: method, Accept: grpcraw.Accepted, Timeout: timeout, Message: framed(req)}, g.most, g.held.room(ctx))
	if err == nil {
		if err = reply.End.Err(); err == nil {
			out, err = g.message(ctx, reply)
		}
	}
	if ctx.Err() != nil && err != nil && status.Code(err) != codes.DeadlineExceeded {
		if _, ok := status.FromError(err); !ok {
			err = status.FromContextError(ctx.Err()).Err()
		}
	}
	if timeout > 0 && status.Code(err) == codes.Canceled && ctx.Err() == nil && (status.Convert(err).Message() == timedOut || time.Since(began) >= timeout) {
		// The node gave up, and not the client (B14).
		err = status.Error(codes.DeadlineExceeded, timedOut)
	}
	k.calls.Called(rpcs[path.Base(method)], codeName(err), time.Since(began))
	if e, ok := errors.AsType[*grpcraw.Error](err); ok && e.Transport {
		g.b.fleet.Failed(g.to[part].Node.ID)
	}
	if err != nil {
		return nil, reply, err
	}
	return out, reply, nil
}

// message is the message of a reply. Decompressing takes memory of its own, so no more are at it at once than the processors do.
func (g *gathering) message(ctx context.Context, reply *grpcraw.Reply) ([]byte, error) {
	if reply.Compressed {
		select {
		case g.b.inflating <- struct{}{}:
		case <-ctx.Done():
			reply.Data.Free()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		defer func() { <-g.b.inflating }()
	}
	return reply.Message(g.most, g.held.room(ctx))
}

// bytesOf is a message of bytes that are encoded already.
func bytesOf(b []byte) proto.Message {
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(b)
	return m
}

// framed is a message with the bytes in front of it that gRPC has.
func framed(b []byte) mem.BufferSlice {
	prefix := make([]byte, grpcraw.PrefixBytes)
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(b)))
	return mem.BufferSlice{mem.SliceBuffer(prefix), mem.SliceBuffer(b)}
}
