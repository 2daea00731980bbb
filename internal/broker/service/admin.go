package service

import (
	"context"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/route"
)

// admin is the service for operators ("Diagnostics and control").
type admin struct {
	brokerpb.UnimplementedBrokerServiceServer
	b *Broker
}

// infoTimeout is how long GetTopology waits for one node, infoBytes bounds what it takes of it, and infosAtOnce how many are asked at once by one
// call. A call may ask each node about each of its indexes, so only topologiesAtOnce run at once, and a node that does not answer is not asked again
// in the same one. copyBytes is what a copy of an index takes of memory in the reply and while it is asked for, about.
const (
	infoTimeout      = 3 * time.Second
	infoBytes        = 64 << 20
	infosAtOnce      = 64
	topologiesAtOnce = 4
	copyBytes        = 400
)

var (
	errShutdown = status.Error(codes.Unavailable, "Summa broker is shutting down")
	errAdmin    = status.Error(codes.ResourceExhausted, "too many calls are under way; retry later")
)

// enter counts a call in.
func (a *admin) enter() (leave func(), err error) {
	d := a.b.front.Drain()
	if !d.Enter() {
		return nil, errShutdown
	}
	return d.Leave, nil
}

// endOf is what a call is told whose context has ended: why, where that is known.
func endOf(ctx context.Context) error {
	if st, ok := status.FromError(context.Cause(ctx)); ok {
		return st.Err()
	}
	return status.FromContextError(ctx.Err()).Err()
}

// GetTopology implements brokerpb.BrokerServiceServer.
func (a *admin) GetTopology(ctx context.Context, req *brokerpb.GetTopologyRequest) (*brokerpb.GetTopologyResponse, error) {
	leave, err := a.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	place, err := a.b.topology.Enter(ctx, 1)
	if err != nil {
		if ctx.Err() != nil {
			return nil, endOf(ctx)
		}
		return nil, errAdmin
	}
	defer place.Release()
	p, now := a.b.picture.Load(), time.Now()
	topology := p.Topology(req.IndexName)
	copies := 0
	for i := range topology {
		for j := range topology[i].Shards {
			copies += len(topology[i].Shards[j].Nodes)
		}
	}
	_, release, err := a.b.charge(ctx, 0, int64(copies)*copyBytes)
	if err != nil {
		if ctx.Err() != nil {
			return nil, endOf(ctx)
		}
		return nil, err
	}
	defer release()
	out := &brokerpb.GetTopologyResponse{}
	var ask sync.WaitGroup
	places := make(chan struct{}, infosAtOnce)
	var silent sync.Map // nodes that did not answer, and are not asked any more
	for _, t := range topology {
		index := &brokerpb.IndexTopology{
			IndexName: t.Index, MergePolicy: t.MergePolicy(), Ambiguous: t.Ambiguous, PrimaryKeyField: a.b.primaries.Known(t.Index),
		}
		out.Indexes = append(out.Indexes, index)
		for _, s := range t.Shards {
			part := &brokerpb.Partition{ShardId: s.Shard, Weight: s.Weight}
			index.Partitions = append(index.Partitions, part)
			for _, n := range s.Nodes {
				r := &brokerpb.ReplicaState{
					BackendId: n.ID, Address: n.Address, Role: p.Acts(n).String(), Health: n.Health.String(), IndexMapAgeMs: n.MapAge(now),
				}
				part.Replicas = append(part.Replicas, r)
				if !n.Routable() {
					continue
				}
				places <- struct{}{}
				ask.Go(func() {
					defer func() { <-places }()
					if _, is := silent.Load(n); is {
						return
					}
					switch status.Code(a.count(ctx, p, n, t.Index, r)) {
					case codes.DeadlineExceeded, codes.Unavailable:
						silent.Store(n, true)
					}
				})
			}
		}
	}
	ask.Wait()
	if ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	return out, nil
}

// count fills in how many documents and segments a node has of an index, if it tells in time.
func (a *admin) count(ctx context.Context, p *picture, n *route.Node, index string, into *brokerpb.ReplicaState) error {
	k := p.backends[n.Address]
	if k == nil || !k.enter() {
		return errGone
	}
	defer k.leave()
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	req := &summapb.GetIndexInfoRequest{IndexName: index}
	return a.b.ask(ctx, k, "/summa.SearchService/GetIndexInfo", infoTimeout, req, infoBytes, a.b.memory, func(m []byte) (err error) {
		into.NumDocs, into.NumSegments, err = counts(m)
		return err
	})
}

// GetBackends implements brokerpb.BrokerServiceServer.
func (a *admin) GetBackends(context.Context, *brokerpb.GetBackendsRequest) (*brokerpb.GetBackendsResponse, error) {
	leave, err := a.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	p, now := a.b.picture.Load(), time.Now()
	out := &brokerpb.GetBackendsResponse{}
	for _, n := range p.Backends() {
		out.Backends = append(out.Backends, &brokerpb.BackendState{
			BackendId: n.ID, Address: n.Address, ShardId: n.Shard, Role: p.Acts(n).String(), Health: n.Health.String(), Indexes: n.Indexes,
			IndexMapAgeMs: n.MapAge(now), ConsecutiveFailures: n.Failures, Ready: n.Ready,
		})
	}
	return out, nil
}

// RefreshTopology implements brokerpb.BrokerServiceServer.
func (a *admin) RefreshTopology(context.Context, *brokerpb.RefreshTopologyRequest) (*brokerpb.RefreshTopologyResponse, error) {
	leave, err := a.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return &brokerpb.RefreshTopologyResponse{BackendsPolled: uint32(min(a.b.fleet.Refresh(), math.MaxUint32))}, nil
}
