// Package grpcserve is the server's side of gRPC for bytes: it hands out the calls of clients with their messages as they come, and sends
// replies as they are, without a copy of its own.
//
// # Contract
//
// A Server has one listener. A call is a Stream, served by a Handler on a goroutine of its own; its reply goes out in pieces that Write takes
// over, and ends with the error that the handler returns, as package status has it. Services are those that are registered as with a
// grpc.Server; their messages are short, and they have no interceptors.
//
// A client is not trusted. What it may send before anybody asks for it is FirstWindow for each call; Read asks for more, so that who reads has
// charged for it. Header blocks, streams at once, handlers under way, frames of control and frames without effect are bounded; whoever breaks
// HTTP/2 or asks without reading loses the connection. So does who takes nothing of a reply for Options.Stall. A time that is no time of
// gRPC is none; so says the contract of Summa.
//
// Who has something to write writes it, with what others have queued in the same moment; only what the peer does not take at once is left to
// a goroutine. Of replies no more is queued for a connection than maxQueued beside what each call holds itself. When a reply is written, or
// its call or connection has ended, its buffers are freed.
//
// # Memory
//
// An idle connection takes 13 KB with both sockets. What a client can make the server hold of its requests before somebody reads and charges
// them is, for each of Options.Streams, FirstWindow, of which the pieces take up to twice as much, and Options.HeaderList; besides, for the
// connection, a header block of 64 KiB, a chunk of 128 KiB that is read into, and twice 128 KiB of answers to frames of control. Of replies it is
// maxQueued, maxBlocks of headers and status, and for each call 64 KiB, what the handler wrote last, and its status. Handlers are at most
// twice as many as streams: those of calls that were given up, and the others.
//
// A Server is safe for concurrent use; a Stream belongs to its handler, but for Cancel.
package grpcserve
