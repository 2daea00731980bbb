package grpcmsg

import (
	"context"

	"google.golang.org/grpc/credentials"

	"github.com/weft-search/weft/internal/wire/grpcconn"
)

// PerConn is how many calls of one connection run at once. Further ones wait, so that one client has no more than its share.
const PerConn = 128

// Conn is a connection with a place for each of its calls that runs.
type Conn struct {
	*grpcconn.Conn
	// Replies are those that gRPC has.
	Replies Replies
	running chan struct{}
}

// Credentials are inner with connections of this package, which ConnOf finds.
func Credentials(inner credentials.TransportCredentials, o grpcconn.Options) credentials.TransportCredentials {
	return grpcconn.Credentials(inner, o, func(c *grpcconn.Conn) *Conn { return &Conn{Conn: c, running: make(chan struct{}, PerConn)} })
}

// ConnOf returns the connection of a call; false where the server has other credentials.
func ConnOf(ctx context.Context) (*Conn, bool) { return grpcconn.Of[*Conn](ctx) }

// Enter waits for a place among the calls of the connection, which Leave gives back.
func (c *Conn) Enter(ctx context.Context) error {
	select {
	case c.running <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leave gives a place back.
func (c *Conn) Leave() { <-c.running }

// Close implements net.Conn. What gRPC has of replies goes with the connection.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.Replies.Drop()
	return err
}
