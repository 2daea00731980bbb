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
// Memory: a call is admitted before its message is read. gRPC reads a message whole before anyone sees how long it is, so each call in
// the course of reading is charged the longest message there may be, and what it really has afterwards. Before admission a call costs
// no more than the window of its stream.
//
// Messages are not compressed: hits are few and small, and between machines of one network it takes longer than it saves.
//
// A Server and a Client are safe for concurrent use.
package rpc
