package rpc

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcpeer "google.golang.org/grpc/peer"
)

// peer is the connection of a caller, as gRPC has it.
type peer struct {
	net.Conn          // as the handshake made it
	raw      net.Conn // as it was accepted
	stall    time.Duration
	watch    *time.Timer // of Write

	mu      sync.Mutex
	closed  bool
	replies map[*reply]struct{} // that gRPC has

	waiting waiter // head of the ring of those that wait for this peer, the longest first; the lobby's
	waiters int    // in it
}

// Write implements net.Conn. When the peer takes nothing for too long the connection is cut, so that what is queued behind it does not
// stay. It is no deadline of the connection, because gRPC sets those itself when the handshake is done, which may be later than this.
// Writes are not made at once.
func (p *peer) Write(b []byte) (int, error) {
	p.watch.Reset(p.stall)
	defer p.watch.Stop()
	return p.Conn.Write(b)
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

// cut ends the connection without a word, and so everything that waits for it. It does not wait itself: it may be called under locks.
func (p *peer) cut() {
	// A connection that is closed already has nothing to be said about.
	if p.raw.Close() != nil {
		return
	}
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

// handshake makes the peer of each connection, and puts it where calls find it.
type handshake struct {
	credentials.TransportCredentials
	stall time.Duration
}

type authInfo struct {
	credentials.AuthInfo
	peer *peer
}

func (h handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	p := &peer{Conn: conn, raw: raw, stall: h.stall}
	p.watch = time.AfterFunc(p.stall, p.cut)
	p.watch.Stop()
	return p, authInfo{info, p}, nil
}

func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone(), h.stall}
}

func (s *Server) handshake() credentials.TransportCredentials {
	inner := insecure.NewCredentials()
	if s.o.TLS != nil {
		inner = credentials.NewTLS(s.o.TLS)
	}
	return handshake{inner, s.o.StallTime}
}

// peerOf returns the peer of a call, nil where the server was not made by Server.GRPC.
func peerOf(ctx context.Context) *peer {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.peer
		}
	}
	return nil
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
