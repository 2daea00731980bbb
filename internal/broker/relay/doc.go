// Package relay is the transport of the broker: it takes the calls of Summa's services, hands each to the service with its bytes as they
// came, and lets the service answer with a node's bytes, or with its own.
//
// # Contract
//
// A request is read whole and not decoded: only the name of its index is read off the bytes, of a compressed request too. Forward sends the
// bytes to a node as they are and hands on the reply as it comes: bytes, code, text, details, headers and trailers are the node's. Of a
// reply no more is held than its window, whatever its length. It is decompressed on the way only where the node compressed it in a way that
// the client did not offer, and a request where the node says that it does not take its compression.
//
// Of the request's headers nothing goes on but its deadline, less what the broker keeps for itself. Who leaves, or has no time left, ends the
// call at the node. A message past its limit is refused by the length in front of it. Memory for what is longer than a few KiB is asked for
// before it is taken.
//
// A Server is made for one listener, and safe for concurrent use; a Call belongs to its handler.
package relay
