// Package grpcconn keeps hold of the connections of a gRPC server, so that a peer that takes nothing does not keep what it asked for.
//
// # Contract
//
// gRPC has two gaps. A write to a peer that takes no byte waits as long as the system does. And a reply that the peer gives no window for
// stays, with its stream, after its handler has returned: nothing of gRPC's own ends it as long as the peer answers pings. The connections
// here end a write that waits longer than a limit, and, where Options.Replies asks for it, a connection with a reply on which nothing
// moves for so long: they follow the frames of HTTP/2 in both directions, of which they look at the nine bytes of their headers. To let go
// of a single reply there is no way, so it is the connection that goes.
//
// Credentials makes the connections and puts them where calls find them; Tap and EndCall end a call from outside; OtherStreams is for the
// streams of health and reflection, which wait for their callers as long as those like, but for a server that drains. Everything here is
// safe for concurrent use.
package grpcconn
