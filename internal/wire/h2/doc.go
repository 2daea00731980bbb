// Package h2 has what both sides of HTTP/2 (RFC 9113) need at the level of its frames: their names, a Reader that takes a connection apart into
// them, and a Socket that reads and writes without waiting in a buffer's company.
//
// # Contract
//
// A Reader holds what it reads in chunks, of which the bytes of messages are handed out without a copy where that does not keep much more
// memory than they take. It checks what can be checked without knowing streams: lengths, padding, the order of header blocks, floods of
// frames without effect. What a peer does against the protocol is a *Broken, with which the connection has to end.
//
// A Reader belongs to one goroutine; a Socket to one that reads and one that writes.
package h2
