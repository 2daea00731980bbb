package rpc

import (
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weft-search/weft/internal/wire/grpcconn"
)

// peer is the connection of a caller, as gRPC has it.
type peer struct {
	*grpcconn.Conn

	mu      sync.Mutex
	closed  bool
	replies map[*reply]struct{} // that gRPC has

	waiting waiter // head of the ring of those that wait for this peer, the longest first; the lobby's
	waiters int    // in it
}

// Close implements net.Conn. What gRPC has of replies goes with the connection.
func (p *peer) Close() error {
	err := p.Conn.Close()
	p.mu.Lock()
	p.closed = true
	replies := p.replies
	p.replies = nil
	p.mu.Unlock()
	for r := range replies {
		r.finish()
	}
	return err
}

// hold tells the peer of a reply that gRPC has.
func (p *peer) hold(r *reply) {
	p.mu.Lock()
	gone := p.closed
	if !gone {
		if p.replies == nil {
			p.replies = make(map[*reply]struct{})
		}
		p.replies[r] = struct{}{}
	}
	p.mu.Unlock()
	if gone {
		r.finish()
	}
}

func (p *peer) forget(r *reply) {
	p.mu.Lock()
	delete(p.replies, r)
	p.mu.Unlock()
}

func (s *Server) handshake() credentials.TransportCredentials {
	inner := insecure.NewCredentials()
	if s.o.TLS != nil {
		inner = credentials.NewTLS(s.o.TLS)
	}
	// What is late of a reply is seen by the reply itself: there are lists, which have many.
	return grpcconn.Credentials(inner, grpcconn.Options{Stall: s.o.StallTime}, func(c *grpcconn.Conn) *peer { return &peer{Conn: c} })
}

// waiter is something that waits for a peer.
type waiter struct {
	peer       *peer
	evict      func() // ends the wait; called under the lock of the lobby, once at most, and not after leave
	prev, next *waiter
}

// lobby bounds how many things wait for peers. When there are too many, it is not the new one that has to go but the one that has
// waited longest for the peer that most wait for: a peer that keeps others waiting takes the places of its own calls, and one with few
// calls keeps them. Taking from the longest queue is how fair queueing drops packets (Demers, Keshav and Shenker, SIGCOMM 1989).
type lobby struct {
	most int

	mu    sync.Mutex
	n     int
	peers map[*peer]struct{} // that something waits for
}

// enter adds a waiter that is not in.
func (l *lobby) enter(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.n >= l.most {
		var longest *peer
		for p := range l.peers {
			if longest == nil || p.waiters > longest.waiters {
				longest = p
			}
		}
		out := longest.waiting.next
		l.remove(out)
		out.evict()
	}
	p := w.peer
	head := &p.waiting
	if p.waiters == 0 {
		head.prev, head.next = head, head
		l.peers[p] = struct{}{}
	}
	w.prev, w.next = head.prev, head
	w.prev.next, w.next.prev = w, w
	p.waiters++
	l.n++
}

// leave takes a waiter out if it is in.
func (l *lobby) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.next != nil {
		l.remove(w)
	}
}

func (l *lobby) remove(w *waiter) {
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
	l.n--
	if w.peer.waiters--; w.peer.waiters == 0 {
		delete(l.peers, w.peer)
	}
}

// waits is how many things wait.
func (l *lobby) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
