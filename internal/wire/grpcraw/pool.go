package grpcraw

import "sync"

// Pool has the nodes of a fleet by their addresses. It is safe for concurrent use.
type Pool struct {
	o    Options
	wg   sync.WaitGroup
	stop chan struct{} // closed by Close

	mu     sync.RWMutex
	nodes  map[string]*Node
	closed bool
}

// NewPool returns a pool without nodes.
func NewPool(o Options) *Pool {
	return &Pool{o: o, stop: make(chan struct{}), nodes: map[string]*Node{}}
}

// Node returns the node of an address, and makes it if there is none. After Close all calls on it fail.
func (p *Pool) Node(addr string) *Node {
	p.mu.RLock()
	n := p.nodes[addr]
	p.mu.RUnlock()
	if n != nil {
		return n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = p.nodes[addr]; n == nil {
		n = NewNode(addr, p.o)
		if p.closed {
			n.Close()
			return n
		}
		p.nodes[addr] = n
	}
	return n
}

// Keep lets go of all nodes but those of the addresses: they take no calls any more, and are closed when those under way have ended.
func (p *Pool) Keep(addrs map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for addr, n := range p.nodes {
		if _, ok := addrs[addr]; ok {
			continue
		}
		delete(p.nodes, addr)
		idle := n.leave()
		p.wg.Go(func() {
			select {
			case <-idle:
			case <-p.stop:
			}
			n.Close()
		})
	}
}

// Close closes all nodes, also those that were let go, with the calls under way, and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	nodes := p.nodes
	p.nodes = map[string]*Node{}
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	p.mu.Unlock()
	for _, n := range nodes {
		n.Close()
	}
	p.wg.Wait()
}
