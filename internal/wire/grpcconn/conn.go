package grpcconn

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Options say how patient a connection is.
type Options struct {
	// Stall is the longest time that a peer may take nothing at all of what is written. With Replies it is also the longest in which
	// nothing of a reply moves.
	Stall time.Duration
	// Replies ends connections with a reply that nobody takes. It is for servers whose own calls send their one message when they are done.
	Replies bool
	// Cut is told of each connection that was ended for that; it may be nil. It may be called at once from many connections.
	Cut func()
}

// Conn is a connection of a server, as gRPC has it.
type Conn struct {
	net.Conn          // as the handshake made it
	raw      net.Conn // as it was accepted
	o        Options
	watch    *time.Timer // of Write
	replies  *replies    // nil: not followed
}

func newConn(conn, raw net.Conn, o Options) *Conn {
	c := &Conn{Conn: conn, raw: raw, o: o}
	c.watch = stopped(o.Stall, c.Cut)
	if o.Replies {
		c.replies = newReplies(o.Stall, func() {
			if o.Cut != nil {
				o.Cut()
			}
			c.Cut()
		})
	}
	return c
}

// stopped is a timer that does not run yet.
func stopped(d time.Duration, f func()) *time.Timer {
	t := time.AfterFunc(d, f)
	t.Stop()
	return t
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.replies != nil {
		c.replies.read(b[:n])
	}
	return n, err
}

// Write implements net.Conn. When the peer takes nothing for too long the connection is cut, so that what is queued behind it does not
// stay. It is no deadline of the connection, because gRPC sets those itself when the handshake is done, which may be later than this.
// Writes are not made at once.
func (c *Conn) Write(b []byte) (int, error) {
	if c.replies != nil {
		c.replies.written(b)
	}
	c.watch.Reset(c.o.Stall)
	defer c.watch.Stop()
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	if c.replies != nil {
		c.replies.end()
	}
	return c.Conn.Close()
}

// Cut ends the connection without a word, and so everything that waits for it. It does not wait itself: it may be called under locks.
func (c *Conn) Cut() {
	// A connection that is closed already has nothing to be said about.
	if c.raw.Close() != nil {
		return
	}
}

// handshake makes the connections of a server.
type handshake struct {
	credentials.TransportCredentials
	o    Options
	made func(c *Conn) net.Conn
}

type authInfo struct {
	credentials.AuthInfo
	conn *Conn
	own  net.Conn
}

// Credentials are inner, with the connections of a server made by this package, and then by made, which puts what a server knows of a
// connection around it. Of finds that.
func Credentials[C net.Conn](inner credentials.TransportCredentials, o Options, made func(c *Conn) C) credentials.TransportCredentials {
	return handshake{inner, o, func(c *Conn) net.Conn { return made(c) }}
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	c := newConn(conn, raw, h.o)
	own := h.made(c)
	return own, authInfo{info, c, own}, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone(), h.o, h.made}
}

// Of returns the connection of a call as Credentials was told to make it; false where the server has other credentials.
func Of[C net.Conn](ctx context.Context) (C, bool) {
	info, ok := infoOf(ctx)
	own, is := info.own.(C)
	return own, ok && is
}

func infoOf(ctx context.Context) (authInfo, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return authInfo{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info, ok
}
