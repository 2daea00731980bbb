// Package grpcraw is the client's side of gRPC for bytes: it sends a message that is encoded already and hands out the reply's bytes as they
// come, without decoding either.
//
// # Contract
//
// A Node is one address with a few connections, made when they are needed and kept until the node is closed, which waits for all that it
// started. A Stream is one unary call on it: Head waits for the first headers, Read hands out the bytes of the reply with the five bytes in
// front of each message, and ends with io.EOF and the status that End tells, or with an *Error. A peer is not trusted: header blocks,
// frames of control, windows and times are bounded, and whoever breaks HTTP/2 loses the connection, with UNAVAILABLE for its calls. A call
// that the peer says it has not begun is sent once more, on another connection where that ends; no other call is repeated.
//
// Calls write their frames themselves, those of calls at the same time in one piece, and one goroutine for each connection reads: a short
// call wakes nobody but its caller. What has come of a reply is held until it is read: at most its window, which is FreeWindow until Expect
// raises it.
//
// Begin makes calls to several nodes at once, for which one goroutine waits: those whose connections are there and whose replies are short take no
// goroutine of their own, and wake who waits once, when the last of them is there or one fails.
//
// A Node is safe for concurrent use; a Stream belongs to one goroutine, and so do Calls.
package grpcraw
