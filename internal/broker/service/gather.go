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
			out, reply, err = nil, nil, g.fault(method, v)
		}
	}()
	k, err := g.askable(part, req)
	if err != nil {
		return nil, nil, err
	}
	a := g.asked(ctx, method)
	reply, err = k.node.Do(ctx, &grpcraw.Call{Method: method, Accept: grpcraw.Accepted, Timeout: a.timeout, Message: framed(req)}, g.most, g.held.room(ctx))
	out, err = a.take(ctx, part, reply, err)
	return out, reply, err
}

// Begin implements partition.Fan.
func (g *gathering) Begin(ctx context.Context, method string, asks []partition.Ask, early bool) partition.Calls {
	a := g.asked(ctx, method)
	room := g.held.room(ctx)
	list := make([]grpcraw.Ask, len(asks))
	for i, q := range asks {
		k, err := g.askable(q.Part, q.Request)
		if list[i] = (grpcraw.Ask{Most: g.most, Room: room, Err: err}); err == nil {
			list[i].Node, list[i].Message = k.node, framed(q.Request)
		}
	}
	return grpcraw.Begin(ctx, grpcraw.Call{Method: method, Accept: grpcraw.Accepted, Timeout: a.timeout}, list, grpcraw.Gather{
		Early: early,
		Take:  func(i int, r *grpcraw.Reply, err error) ([]byte, error) { return a.take(ctx, asks[i].Part, r, err) },
		Fault: func(v any) error { return g.fault(method, v) },
	})
}

// fault is the error of a call that panicked.
func (g *gathering) fault(method string, v any) error {
	g.b.cfg.Metrics.Panics.Inc()
	g.b.cfg.Log.Error("call failed", "call", method, "error", fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
	return errInternal
}

// askable is the node of a partition, if that can be asked so much.
func (g *gathering) askable(part int, req []byte) (*backend, error) {
	if g.at[part] == nil {
		return nil, errGone
	}
	if len(req) > g.b.cfg.Limits.BackendEncode {
		return nil, grpcraw.TooLong("encoded", len(req), g.b.cfg.Limits.BackendEncode)
	}
	return g.at[part], nil
}

// asked is a call to nodes.
type asked struct {
	*gathering
	method, rpc string
	began       time.Time
	timeout     time.Duration // 0: none
}

func (g *gathering) asked(ctx context.Context, method string) *asked {
	a := &asked{gathering: g, method: method, rpc: rpcs[path.Base(method)], began: time.Now()}
	if at, ok := ctx.Deadline(); ok {
		a.timeout = max(time.Until(at)-keptBack, leastTime)
	}
	return a
}

// take is the message of a reply, or the error of a call, and counts it.
func (a *asked) take(ctx context.Context, part int, reply *grpcraw.Reply, err error) (out []byte, _ error) {
	if err == nil {
		if err = reply.End.Err(); err == nil {
			out, err = a.message(ctx, reply)
		}
	}
	if ctx.Err() != nil && err != nil && status.Code(err) != codes.DeadlineExceeded {
		if _, ok := status.FromError(err); !ok {
			err = status.FromContextError(ctx.Err()).Err()
		}
	}
	if a.timeout > 0 && status.Code(err) == codes.Canceled && ctx.Err() == nil && (status.Convert(err).Message() == timedOut || time.Since(a.began) >= a.timeout) {
		// The node gave up, and not the client (B14).
		err = status.Error(codes.DeadlineExceeded, timedOut)
	}
	k := a.at[part]
	k.calls.Called(a.rpc, codeName(err), time.Since(a.began))
	if e, ok := errors.AsType[*grpcraw.Error](err); ok && e.Transport {
		a.b.fleet.Failed(a.to[part].Node.ID)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
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
