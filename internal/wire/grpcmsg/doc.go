// Package grpcmsg has the messages of gRPC as bytes, on the side of a server: how a handler takes one off its call step by step, how it
// sends one that is encoded already, and what those take that gRPC has not written out yet.
//
// # Contract
//
// gRPC reads a message of any length the caller says before a handler sees it, compresses replies into buffers of which nobody knows whose
// they are, and keeps a reply as long as it must. StreamOf and Write go below that: the length of a message is seen before its bytes, and
// the bytes of a reply reach the wire as they are. An Outgoing knows what replies take until they are written or their connection is gone.
//
// Importing the package registers the compressors zstd and gzip. Everything is safe for concurrent use but a Stream, which belongs to its
// handler.
package grpcmsg
