package grpcmsg

import (
	"context"

	"google.golang.org/grpc/credentials"

	"github.com/weft-search/weft/internal/wire/grpcconn"
)

// PerConn is how many calls of one connection run at once. Further ones wait, so that one client has no more than its share.
const PerConn = 128

// Share is what the calls of one connection have together: a place for each that runs.
type Share struct {
	// Replies are those that gRPC has.
	Replies Replies
	running chan struct{}
}

// NewShare returns that of a new connection.
func NewShare() *Share { return &Share{running: make(chan struct{}, PerConn)} }

// Enter waits for a place among the calls of the connection, which Leave gives back.
func (c *Share) Enter(ctx context.Context) error {
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
func (c *Share) Leave() { <-c.running }

// Conn is a connection with its Share.
type Conn struct {
	*grpcconn.Conn
	*Share
}

// Credentials are inner with connections of this package, which ConnOf finds.
func Credentials(inner credentials.TransportCredentials, o grpcconn.Options) credentials.TransportCredentials {
	return grpcconn.Credentials(inner, o, func(c *grpcconn.Conn) *Conn { return &Conn{c, NewShare()} })
}

// ConnOf returns the connection of a call; false where the server has other credentials.
func ConnOf(ctx context.Context) (*Conn, bool) { return grpcconn.Of[*Conn](ctx) }

// Close implements net.Conn. What gRPC has of replies goes with the connection.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.Replies.Drop()
	return err
}
