package summanode

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// perConn is how many calls of one connection run at once. Further ones wait, so that one client has no more than its share.
const perConn = 128

// running has a place for each call of a connection that runs.
type running chan struct{}

// handshake gives each connection its places, and puts them where calls find them.
type handshake struct {
	credentials.TransportCredentials
}

type authInfo struct {
	credentials.AuthInfo
	running running
}

func newHandshake() credentials.TransportCredentials { return handshake{insecure.NewCredentials()} }

// ServerHandshake implements credentials.TransportCredentials.
func (h handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	return conn, authInfo{info, make(running, perConn)}, err
}

// Clone implements credentials.TransportCredentials.
func (h handshake) Clone() credentials.TransportCredentials {
	return handshake{h.TransportCredentials.Clone()}
}

// enterConn waits for a place among the calls of the connection. leave gives it back.
func enterConn(ctx context.Context) (leave func(), err error) {
	var places running
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			places = info.running
		}
	}
	if places == nil {
		return func() {}, nil
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
