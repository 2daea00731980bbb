package node

import (
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf/leafserve"
	"github.com/weft-search/weft/internal/node/summanode"
)

// Protocol is what a listener of a node speaks.
type Protocol = front.Protocol

// The protocols, by their names in "listening …".
const (
	HTTP  = front.HTTP
	GRPC  = leafserve.GRPC
	Shard = leafserve.Shard // framed JSON
	Summa = summanode.Protocol
)

// Listener is where a node listens, and for what.
type Listener = front.Listener

// Listeners are those of a node that was started, in the order HTTP, GRPC, Shard, Summa, Metrics.
func (n *Node) Listeners() []Listener { return n.front.Listeners() }

// Addr is the address that the node listens on for HTTP, empty if it does not.
func (n *Node) Addr() string { return n.front.Addr(HTTP) }

// address names the node in replies: where it listens, or its id.
func (n *Node) address() string {
	for _, l := range n.front.Listeners() {
		return l.Addr
	}
	return n.self.ID
}

// Done is closed when a server has ended, by Close or by a failure that Err tells. It is never closed on a node that does not listen.
func (n *Node) Done() <-chan struct{} { return n.front.Done() }

// Err is why a server ended by itself; nil before Done is closed and after Close.
func (n *Node) Err() error { return n.front.Err() }
