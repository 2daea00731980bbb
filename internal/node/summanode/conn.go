package summanode

import (
	"context"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weft-search/weft/internal/wire/grpcconn"
)

// perConn is how many calls of one connection run at once. Further ones wait, so that one client has no more than its share.
const perConn = 128

// conn is a connection with a place for each of its calls that runs.
type conn struct {
	*grpcconn.Conn
	running chan struct{}

	mu      sync.Mutex
	closed  bool
	replies map[*reply]struct{} // that gRPC has
}

func (s *Server) handshake() credentials.TransportCredentials {
	o := grpcconn.Options{Stall: s.cfg.Limits.Stall, Replies: true, Cut: s.metrics.Cut}
	return grpcconn.Credentials(insecure.NewCredentials(), o, func(c *grpcconn.Conn) *conn {
		return &conn{Conn: c, running: make(chan struct{}, perConn), replies: map[*reply]struct{}{}}
	})
}

// enter waits for a place among the calls of the connection. leave gives it back.
func (c *conn) enter(ctx context.Context) (leave func(), err error) {
	select {
	case c.running <- struct{}{}:
		return func() { <-c.running }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hold tells the connection of a reply that gRPC is to have.
func (c *conn) hold(r *reply) {
	c.mu.Lock()
	gone := c.closed
	if !gone {
		c.replies[r] = struct{}{}
	}
	c.mu.Unlock()
	if gone {
		r.drop()
	}
}

// forget is for a reply that gRPC does not have any more. It is called under the lock of the reply.
func (c *conn) forget(r *reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.replies, r)
}

// Close implements net.Conn. What gRPC has of replies goes with the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	c.closed = true
	replies := c.replies
	c.replies = map[*reply]struct{}{}
	c.mu.Unlock()
	for r := range replies {
		r.drop()
	}
	return err
}
