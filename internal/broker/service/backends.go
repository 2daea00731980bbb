package service

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// backend is the connections to one address, and what is in flight there.
type backend struct {
	id       string // of the node that had the address first
	node     *grpcraw.Node
	searches *admit.Gate
	calls    *obs.SummaBackend
	blamed   atomic.Pointer[time.Time] // when the log named it last; nil: never

	users atomic.Int64  // twice as many as use it, and one more once it is retired
	idle  chan struct{} // closed when retired and nobody uses it
}

// enter counts a call in; false: the address is not in the fleet any more.
func (k *backend) enter() bool {
	for {
		n := k.users.Load()
		if n&1 != 0 {
			return false
		}
		if k.users.CompareAndSwap(n, n+2) {
			return true
		}
	}
}

func (k *backend) leave() {
	if k.users.Add(-2) == 1 { // nobody comes any more
		close(k.idle)
	}
}

// retire lets nobody in any more.
func (k *backend) retire() {
	if k.users.Or(1) == 0 {
		close(k.idle)
	}
}

// backends are the connections to all addresses of the fleet.
type backends struct {
	b *Broker

	mu      sync.Mutex
	by      map[string]*backend
	closed  bool
	ending  sync.WaitGroup
	closing chan struct{} // closed by close; made with the first backend
}

// of is the backend of an address, which is made if it is not there.
func (s *backends) of(id, addr string) (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ofLocked(id, addr)
}

func (s *backends) ofLocked(id, addr string) (*backend, error) {
	if s.closed {
		return nil, errClosed
	}
	if k := s.by[addr]; k != nil {
		return k, nil
	}
	if s.by == nil {
		s.by, s.closing = map[string]*backend{}, make(chan struct{})
	}
	k := &backend{
		id: id, node: grpcraw.NewNode(addr, s.b.cfg.Nodes), searches: admit.New("backend_searches", int64(s.b.cfg.BackendSearches), 0, 0),
		calls: s.b.metrics.Backend(id), idle: make(chan struct{}),
	}
	s.by[addr] = k
	return k, nil
}

// keep returns the backends of nodes, and lets go of those of addresses that no node has.
func (s *backends) keep(nodes []*route.Node) map[string]*backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]*backend, len(nodes))
	for _, n := range nodes {
		k, err := s.ofLocked(n.ID, n.Address)
		if err != nil {
			return out
		}
		out[n.Address] = k
	}
	for addr, k := range s.by {
		if out[addr] == nil {
			delete(s.by, addr)
			s.endLocked(k)
		}
	}
	return out
}

// endLocked closes a backend once nobody uses it: calls go on at an address that discovery does not know any more, as long as they take. A pod
// may lose its label while it merges for hours, and one that is gone is found out by the connection.
func (s *backends) endLocked(k *backend) {
	k.retire()
	s.ending.Go(func() {
		select {
		case <-k.idle:
		case <-s.closing:
		}
		k.node.Close()
		s.forget(k)
	})
}

// forget drops what is counted of a node, unless it is there again at another address: its counts go on.
func (s *backends) forget(k *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.by {
		if other.id == k.id {
			k.calls.Retire()
			return
		}
	}
	k.calls.Forget()
}

// close ends all connections. No call is under way then that would be worth anything.
func (s *backends) close() {
	s.mu.Lock()
	if !s.closed && s.closing != nil {
		close(s.closing)
	}
	s.closed = true
	for _, k := range s.by {
		s.endLocked(k)
	}
	s.by = nil
	s.mu.Unlock()
	s.ending.Wait()
}

// Bounds of the replies to ListIndexes: package fleet takes 100,000 names of 255 bytes at most, and one more tells that there are too many. All that
// are under way share pollBytes; those that fit a window of the connection, as most do, are not among them.
const (
	listBytes = 26 << 20
	listNames = 100_001
	pollBytes = 256 << 20
)

// list is how the fleet asks a node for its indexes.
func (b *Broker) list(ctx context.Context, n fleet.Node) (names []string, err error) {
	k, err := b.backends.of(n.ID, n.Address)
	if err != nil {
		return nil, err
	}
	if !k.enter() {
		return nil, status.Error(codes.Unavailable, "the node is gone")
	}
	defer k.leave()
	err = b.ask(ctx, k, "/summa.IndexService/ListIndexes", b.cfg.ListTimeout, &summapb.ListIndexesRequest{}, listBytes, b.polls, func(m []byte) (err error) {
		names, err = indexNames(m, listNames)
		return err
	})
	k.calls.Polled(codeName(err))
	if err != nil {
		return nil, fmt.Errorf("list the indexes of %s: %w", n.ID, err)
	}
	return names, nil
}
