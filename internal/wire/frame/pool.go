package frame

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Pool keeps a Client for each address that is in use. Its fields are set before the first request and not changed after it.
type Pool struct {
	// New makes the client of an address; &Client{Addr: addr} by default.
	New func(addr string) *Client
	// Unused is how long a client without requests is kept; 5 min by default.
	Unused time.Duration

	once  sync.Once
	sweep alarm

	mu struct {
		sync.Mutex
		closed  bool
		clients map[string]*pooled
		gone    ClientStats // of the clients that were closed
	}
}

type pooled struct {
	*Client
	requests int // under way
	used     time.Time
}

func (p *Pool) init() {
	if p.New == nil {
		p.New = func(addr string) *Client { return &Client{Addr: addr} }
	}
	p.Unused = cmp.Or(p.Unused, 5*time.Minute)
	p.mu.clients = map[string]*pooled{}
	p.sweep.call = p.closeUnused
}

// Do sends a request to addr as Client.Do does.
func (p *Pool) Do(ctx context.Context, addr string, request []byte, o Options) ([]byte, error) {
	p.once.Do(p.init)
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return nil, &Error{Addr: addr, Op: OpWait, Cause: ErrClientClosed}
	}
	c := p.mu.clients[addr]
	if c == nil {
		c = &pooled{Client: p.New(addr)}
		p.mu.clients[addr] = c
		p.sweep.set(p.Unused)
	}
	c.requests++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		c.requests--
		c.used = time.Now()
		p.mu.Unlock()
	}()
	return c.Client.Do(ctx, request, o)
}

// closeUnused closes the clients that have had no request for long. It runs as long as there are clients.
func (p *Pool) closeUnused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep.fired()
	next := p.Unused
	for addr, c := range p.mu.clients {
		if c.requests > 0 {
			continue
		}
		if left := p.Unused - time.Since(c.used); left > 0 {
			next = min(next, left)
			continue
		}
		delete(p.mu.clients, addr)
		p.drop(c)
	}
	if len(p.mu.clients) > 0 && !p.mu.closed {
		p.sweep.set(next)
	}
}

// drop closes a client that has no request and keeps its counts. mu is held.
func (p *Pool) drop(c *pooled) {
	c.Close()
	p.mu.gone.add(c.Client.Stats())
}

// Close closes the clients as Client.Close does. Requests fail from then on. Its error is always nil.
func (p *Pool) Close() error {
	p.once.Do(p.init)
	p.mu.Lock()
	p.mu.closed = true
	p.sweep.stop()
	clients := p.mu.clients
	p.mu.clients = nil
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { c.Close() })
	}
	all.Wait()
	p.mu.Lock()
	for _, c := range clients {
		p.mu.gone.add(c.Client.Stats())
	}
	p.mu.Unlock()
	p.sweep.wait()
	return nil
}

// Stats adds up the counts of the clients, those that were closed since included.
func (p *Pool) Stats() ClientStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.mu.gone
	for _, c := range p.mu.clients {
		sum.add(c.Client.Stats())
	}
	return sum
}
