// Package rpc carries the calls of a leaf over gRPC: api/shard/v1 is what stands on the wire, Server serves a leaf.Leaf, Client is one.
// docs/shard-protocols.md describes the protocol.
//
// Conversion checks bounds before it makes anything: the depth and the parts of queries, counts against the limits of package leaf, and
// columns against each other. A reply that does not fit its request is a *leaf.TransportError and never half an answer.
//
// Flow control: a stream of ids or documents is read from the node as fast as the caller takes it, apart from what the windows of the
// connection hold; a bulk load is read from the caller as fast as the node applies it. A side that keeps the other waiting for
// ServerOptions.StallTime is cut off, so that no snapshot stays pinned and no place taken for it.
//
// Memory of a server: gRPC by itself reads a message of whatever length its caller says, and a handler that has sent its reply is done
// when gRPC has put it in a queue. So a call reads its message itself, in steps that are charged as they arrive; it looks at what the
// message will take before it decodes it; and it lasts, charged for its reply, until gRPC gives back the memory of the reply. Only where
// the stream ended in between, the reply is charged for itself. What is not charged is small, for each of a bounded number of calls: the
// window of its stream, 16 KiB of its message and 16 KiB of its reply. So small calls wait for no memory.
//
// Places: a call takes one when its message is there, and gives it back when it has its reply. While it waits for its caller it takes
// part in another bound, that of the lobby, where the caller that keeps most calls waiting loses them first.
//
// Messages are not compressed: hits are few and small, and between machines of one network it takes longer than it saves.
//
// A Server and a Client are safe for concurrent use.
package rpc
