package summanode

import (
	"context"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weft-search/weft/internal/wire/grpcconn"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

// perConn is how many calls of one connection run at once. Further ones wait, so that one client has no more than its share.
const perConn = 128

// conn is a connection with a place for each of its calls that runs.
type conn struct {
	*grpcconn.Conn
	running chan struct{}
	replies grpcmsg.Replies // that gRPC has
}

func (s *Server) handshake() credentials.TransportCredentials {
	o := grpcconn.Options{Stall: s.cfg.Limits.Stall, Replies: true, Cut: s.metrics.Cut}
	return grpcconn.Credentials(insecure.NewCredentials(), o, func(c *grpcconn.Conn) *conn {
		return &conn{Conn: c, running: make(chan struct{}, perConn)}
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

// Close implements net.Conn. What gRPC has of replies goes with the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.replies.Drop()
	return err
}
