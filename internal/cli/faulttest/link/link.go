// Package link stands between processes and spoils their connections, for tests of what a network does: it delays, loses, and parts
// one way only. A Proxy is one address of one server. What comes in is told apart by who has dialled, so that several clients of one
// address can have different faults.
//
// A link has two connections, of the client and to the server, and packets are lost for real: the kernel drops a share of those that come
// in at the proxy, so the TCP of the client, or of the server, has to find out and to send them again, after 200 ms and more where nothing else
// tells it. The proxy reads what a connection gives in its order, so nothing is ever lost for good but with the connection.
//
// Bytes that are held back are held, not lost: they go on once the fault is over, also when whoever sent them has left, as those in the
// buffers of a network would. So a request can arrive long after its sender gave it up.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Loss is what happens to the bytes behind Way.After.
type Loss uint8

// Losses.
const (
	None  Loss = iota // nothing: all bytes pass
	Stall             // they are held; the connection stays open
	Reset             // the connection is reset
)

// Way is what is wrong with one direction of a link. The zero Way is a good one.
type Way struct {
	// Delay, and at most Jitter on top of it, is how long each piece of up to 16 KiB waits.
	Delay, Jitter time.Duration
	// Loss happens on each connection when After bytes have passed since the fault was set.
	Loss  Loss
	After int64
	// Drop is the share of the packets that are lost, 0 to 1: of the side that sends, and of its acknowledgements for the other way. New
	// connections to the server meet it from their handshake on. Linux only.
	Drop float64
}

// CanDrop tells why Way.Drop has no effect on this system; nil: it has.
func CanDrop() error { return ableToDrop() }

// Fault is what is wrong with a link. The zero Fault is none.
type Fault struct {
	There, Back Way  // to the server, from the server
	Refuse      bool // new connections are reset at once
}

// Proxy passes the connections of one address on to a server. Its methods are safe for concurrent use. Close must be called.
type Proxy struct {
	listener net.Listener
	who      func(remote, local net.Addr) string
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	onHold   func() // for tests: called when bytes begin to be held

	mu      sync.Mutex
	backend string
	links   map[string]*state
	conns   map[*conn]struct{}
}

// state is the fault of one link. gen grows with each.
type state struct {
	fault   Fault
	gen     uint64
	changed chan struct{} // closed when fault is another one
}

// Listen makes a proxy at a free port of 127.0.0.1, which passes nothing before Point was called. who says whose a connection is, by
// the two ends of it; nil: all are "".
func Listen(who func(remote, local net.Addr) string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a link: %w", err)
	}
	if who == nil {
		who = func(net.Addr, net.Addr) string { return "" }
	}
	p := &Proxy{listener: l, who: who, links: map[string]*state{}, conns: map[*conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Point says where new connections go.
func (p *Proxy) Point(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
}

// Set puts a fault in the place of the one that the link of who has. An error says that packets cannot be lost; all else of the fault is set.
func (p *Proxy) Set(who string, f Fault) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.linkLocked(who)
	close(s.changed)
	before := s.fault
	s.fault, s.changed = f, make(chan struct{})
	s.gen++
	if before.There.Drop == f.There.Drop && before.Back.Drop == f.Back.Drop {
		return nil
	}
	var errs []error
	for c := range p.conns {
		if c.who == who {
			errs = append(errs, dropOn(c.in, f.There.Drop), dropOn(c.out, f.Back.Drop))
		}
	}
	return errors.Join(errs...)
}

func (p *Proxy) linkLocked(who string) *state {
	s := p.links[who]
	if s == nil {
		s = &state{changed: make(chan struct{})}
		p.links[who] = s
	}
	return s
}

// Cut resets the connections of who. What was held is lost.
func (p *Proxy) Cut(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.who == who {
			c.cut()
		}
	}
}

// Close resets all connections and waits until they have ended.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.cut()
	}
	p.mu.Unlock()
	p.wg.Wait()
	if err != nil {
		return fmt.Errorf("close a link: %w", err)
	}
	return nil
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() == nil {
				continue
			}
			return
		}
		p.wg.Go(func() { p.serve(in.(*net.TCPConn)) })
	}
}

// conn is one connection with both its halves.
type conn struct {
	p       *Proxy
	who     string
	in, out *net.TCPConn
	ctx     context.Context // ends when it is cut
	cancel  context.CancelFunc
}

// cut resets both halves.
func (c *conn) cut() {
	c.cancel()
	reset(c.in)
	reset(c.out)
}

// reset closes so that the other side sees an error and not an end. It may be closed already.
func reset(c *net.TCPConn) {
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		return // the other side has closed it before
	}
}

func (p *Proxy) serve(in *net.TCPConn) {
	who := p.who(in.RemoteAddr(), in.LocalAddr())
	p.mu.Lock()
	backend, fault := p.backend, p.linkLocked(who).fault
	p.mu.Unlock()
	if fault.Refuse || backend == "" {
		reset(in)
		return
	}
	d := net.Dialer{}
	if fault.Back.Drop > 0 {
		d.Control = dropBefore(fault.Back.Drop)
	}
	to, err := d.DialContext(p.ctx, "tcp", backend)
	if err != nil {
		reset(in)
		return
	}
	c := &conn{p: p, who: who, in: in, out: to.(*net.TCPConn)}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		c.cut()
		return
	}
	p.conns[c] = struct{}{}
	now := p.linkLocked(who).fault // it may have changed while the server was dialled
	err = errors.Join(dropOn(c.in, now.There.Drop), dropOn(c.out, now.Back.Drop))
	p.mu.Unlock()
	if err != nil {
		c.cut() // it is no link that the fault says
	}
	var both sync.WaitGroup
	both.Go(func() { c.pump(c.out, c.in, func(f *Fault) *Way { return &f.There }) })
	both.Go(func() { c.pump(c.in, c.out, func(f *Fault) *Way { return &f.Back }) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.cut()
}

// pump passes bytes one way until their source ends, which ends the way and not the other one. A source that resets ends both.
func (c *conn) pump(to, from *net.TCPConn, way func(*Fault) *Way) {
	buf := make([]byte, 16<<10)
	var passed int64 // since the fault was set
	var gen uint64
	held := false // the last bytes were
	for {
		n, err := from.Read(buf)
		if n > 0 {
			held = false
		}
		for rest := buf[:n]; len(rest) > 0; {
			c.p.mu.Lock()
			s := c.p.linkLocked(c.who)
			w, changed := *way(&s.fault), s.changed
			if s.gen != gen {
				gen, passed = s.gen, 0
			}
			c.p.mu.Unlock()
			part := rest
			if w.Loss != None {
				part = rest[:min(int64(len(rest)), max(w.After-passed, 0))]
			}
			if len(part) == 0 {
				if w.Loss == Reset {
					c.cut()
					return
				}
				held = true
				if c.p.onHold != nil {
					c.p.onHold()
				}
				if !c.wait(changed, -1) {
					return
				}
				continue
			}
			if w.Delay+w.Jitter > 0 && !c.wait(changed, w.Delay+time.Duration(rand.Int64N(int64(w.Jitter)+1))) {
				return
			}
			if _, err := to.Write(part); err != nil {
				if to == c.out {
					c.cut()
				} else if _, err := io.Copy(io.Discard, from); err != nil {
					c.cut() // the client has left, and its server ends it
				}
				return
			}
			passed += int64(len(part))
			rest = rest[len(part):]
		}
		if err == nil {
			continue
		}
		// A reset would overtake what was held.
		if cerr := to.CloseWrite(); cerr != nil || !errors.Is(err, io.EOF) && !held {
			c.cut()
		}
		return
	}
}

// wait waits for a change of the fault, at most for d if that is not negative. It returns false when the connection is cut.
func (c *conn) wait(changed <-chan struct{}, d time.Duration) bool {
	var late <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-changed:
	case <-late:
	case <-c.ctx.Done():
		return false
	}
	return true
}
