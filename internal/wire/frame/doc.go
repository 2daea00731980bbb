// Package frame carries requests and replies over a stream socket: each is a frame of a 4-byte little-endian length and that many
// bytes, one reply for each request, in order, on a connection that is used again. It is the transport of the shard protocol and
// knows nothing of what is in a frame.
//
// A Server answers the frames of many connections through a Handler. Each thing that a peer can make it hold has a bound that is
// charged before the work: connections, the length of a frame, the memory of frames that are under way, and the time that a
// connection may be idle, stall in the middle of a frame or leave a reply unread. A request whose peer resets the connection has its
// context cancelled within a millisecond or so; a peer that has only shut down its own sending side still gets its reply.
//
// A Client sends requests to one address over sockets that it keeps, and a Pool holds a Client for each of many addresses. A socket
// that was used before and is found dead is replaced once; a failure on a fresh socket is reported. A request that is not safe to
// repeat is sent again only when the server cannot have had all of it.
//
// An empty frame is legal here; what it means is for the handler to say. Server, Client and Pool are safe for concurrent use once
// their fields are set; the functions are safe for concurrent use on different readers and writers.
package frame
