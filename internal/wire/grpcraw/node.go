package grpcraw

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// userAgent is what we call ourselves.
const userAgent = "grpc-weft"

// Options bound what a node may take. A zero field means its default.
type Options struct {
	// Conns is the number of connections at most: 8. PerConn is how many calls run on one before another is made: 64.
	Conns, PerConn int
	// Connect is the longest time until a connection is there: 10 s. A peer that says nothing for Ping is asked whether it is there, and has
	// Pong to answer: 30 s and 10 s. Stall is the longest time in which it may take nothing of what is written: 30 s.
	Connect, Ping, Pong, Stall time.Duration
	// Backoff is the time after a failed connection in which calls fail without another try. It doubles up to MaxBackoff: 50 ms and 1 s.
	Backoff, MaxBackoff time.Duration
	// Dial makes a connection; TCP with a keepalive of 60 s by default.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	set := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if o.Conns <= 0 {
		o.Conns = 8
	}
	if o.PerConn <= 0 {
		o.PerConn = 64
	}
	set(&o.Connect, 10*time.Second)
	set(&o.Ping, 30*time.Second)
	set(&o.Pong, 10*time.Second)
	set(&o.Stall, 30*time.Second)
	set(&o.Backoff, 50*time.Millisecond)
	set(&o.MaxBackoff, time.Second)
	if o.Dial == nil {
		d := &net.Dialer{KeepAlive: time.Minute}
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return o
}

// Node is one address and the connections to it.
type Node struct {
	addr   string
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	conns    []*conn            // that take calls
	all      map[*conn]struct{} // that have not ended
	dialing  chan struct{}      // closed when the try under way has ended; nil: none is
	freed    chan struct{}      // closed when there may be a place; nil: nobody waits for one
	active   int                // calls
	failed   *Error             // of the last try; nil if that did not fail
	pause    time.Duration
	earliest time.Time // of the next try
	closed   bool
	idle     chan struct{} // closed when the last call has ended; nil: the node takes calls
	refused  []string      // encodings that the node does not take
}

// NewNode returns a node without connections.
func NewNode(addr string, o Options) *Node {
	n := &Node{addr: addr, o: o.withDefaults(), all: map[*conn]struct{}{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Addr is the address.
func (n *Node) Addr() string { return n.addr }

// Counts are the connections and the calls under way.
func (n *Node) Counts() (conns, calls int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all), n.active
}

// place is a connection with a place for a call, which the call has then; nil: there is none now. One more is made where it is of use; the error is
// that of the last try, where there is none and it is too early for another, or tried says that it was made for this call. Called with the lock held.
func (n *Node) place(tried bool) (*conn, error) {
	if n.closed || n.idle != nil {
		return nil, unreachable("the node has left", ErrClosed)
	}
	var best *conn
	for _, c := range n.conns {
		if c.active < int(c.most.Load()) && (best == nil || c.active < best.active) {
			best = c
		}
	}
	if (best == nil || best.active >= n.o.PerConn) && len(n.conns) < n.o.Conns && n.dialing == nil {
		switch {
		case best == nil && tried && n.failed != nil, best == nil && n.failed != nil && time.Now().Before(n.earliest):
			return nil, n.failed
		case n.failed == nil || !time.Now().Before(n.earliest):
			n.dial()
		}
	}
	if best != nil {
		best.active++
		n.active++
	}
	return best, nil
}

// pickNow is pick without waiting; nil: there is no connection with a place now.
func (n *Node) pickNow() (*conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.place(false)
}

// pick waits for a connection with a place for a call.
func (n *Node) pick(ctx context.Context, late *time.Timer) (*conn, error) {
	var expired <-chan time.Time
	if late != nil {
		expired = late.C
	}
	for tried := false; ; {
		n.mu.Lock()
		c, err := n.place(tried)
		if c != nil || err != nil {
			n.mu.Unlock()
			return c, err
		}
		dialing := n.dialing
		if n.freed == nil {
			n.freed = make(chan struct{})
		}
		freed := n.freed
		n.mu.Unlock()
		select {
		case <-dialing: // never, when it is nil
			tried = true
		case <-freed:
		case <-ctx.Done():
			return nil, ended(ctx)
		case <-expired:
			late.Reset(0)
			return nil, errLate
		}
	}
}

// give gives a place on a connection back.
func (n *Node) give(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.active--
	if n.active--; n.active == 0 && n.idle != nil {
		close(n.idle)
	}
	n.free()
}

// leave ends the taking of calls. What it returns is closed when there is none any more. It is called once.
func (n *Node) leave() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.idle = make(chan struct{})
	if n.active == 0 {
		close(n.idle)
	}
	n.free()
	return n.idle
}

// free wakes those who wait for a place. Called with the lock held.
func (n *Node) free() {
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}

// drop takes a connection out of those that take calls.
func (n *Node) drop(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.conns, c); i >= 0 {
		n.conns = slices.Delete(n.conns, i, i+1)
	}
	n.free()
}

// dial makes one more connection. Called with the lock held.
func (n *Node) dial() {
	done := make(chan struct{})
	n.dialing = done
	n.wg.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, n.o.Connect)
		defer cancel()
		c, err := n.connect(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dialing = nil
		close(done)
		if err != nil {
			n.failed = unreachable("the node cannot be reached", err)
			n.pause = min(max(2*n.pause, n.o.Backoff), n.o.MaxBackoff)
			n.earliest = time.Now().Add(n.pause)
			return
		}
		n.failed, n.pause = nil, 0
		if c.alive() {
			n.conns = append(n.conns, c)
		}
		n.free()
	})
}

func (n *Node) connect(ctx context.Context) (*conn, error) {
	nc, err := n.o.Dial(ctx, n.addr)
	if err != nil {
		return nil, err
	}
	c := newConn(n, nc)
	n.mu.Lock()
	n.all[c] = struct{}{}
	closed := n.closed
	n.mu.Unlock()
	n.wg.Go(func() {
		c.run()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.all, c)
		n.free()
	})
	if closed {
		c.end(unreachable("the node has left", ErrClosed))
		return nil, ErrClosed
	}
	c.flush()
	if err := c.ready(ctx); err != nil {
		c.end(unreachable("the node cannot be reached", err))
		return nil, err
	}
	return c, nil
}

// Close ends the calls under way and the connections, and waits for all that the node started.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	all := make([]*conn, 0, len(n.all))
	for c := range n.all {
		all = append(all, c)
	}
	n.free()
	n.mu.Unlock()
	n.cancel()
	for _, c := range all {
		c.end(unreachable("the node has left", ErrClosed))
	}
	n.wg.Wait()
}

// Refuses tells whether the node is known not to take requests of an encoding.
func (n *Node) Refuses(encoding string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.refused, encoding)
}

// Refuse says that the node refused a request of an encoding for that.
func (n *Node) Refuse(encoding string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.refused, encoding) && len(n.refused) < maxRefused {
		n.refused = append(n.refused, encoding)
	}
}

// maxRefused is more than there are encodings.
const maxRefused = 8
