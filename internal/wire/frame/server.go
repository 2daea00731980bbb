package frame

import (
	"context"
	"errors"
	"net"
	"time"
)

var (
	// ErrServerClosed is returned by Serve after Shutdown or Close, and is the cause of the contexts that Close cancels.
	ErrServerClosed = errors.New("frame server closed")
	// ErrPeerGone is matched by the cause of a handler's context after the peer has reset the connection.
	ErrPeerGone = errors.New("peer is gone")
)

// Verdict is what a handler says about the connection, apart from the reply.
type Verdict uint8

const (
	// Keep leaves the connection open for the next request.
	Keep Verdict = iota
	// Close sends the reply and then ends the connection: for a frame that shows that the peer cannot be trusted to speak the protocol.
	Close
)

// Handler answers one request. It appends the reply to reply, which is empty and may have room, and returns the result as append does.
//
// Both slices are the server's: request is valid until Handler returns; the returned slice is the server's from then on and may be
// overwritten after it is sent, so it must not be memory that anyone else keeps. The context belongs to the connection: it ends when
// the peer resets it (cause matching ErrPeerGone) or the server is cut off (cause ErrServerClosed), and not when Handler returns; it
// has no deadline. Handler must return soon after its context ends. It is called from many goroutines, never twice at once for one
// connection.
type Handler func(ctx context.Context, request, reply []byte) ([]byte, Verdict)

// Reason says why the server itself answers.
type Reason uint8

// The reasons, and what happens to the connection after the reply.
const (
	TooManyConnections Reason = iota + 1 // over Limits.MaxConns; closed
	FrameTooLong                         // over Limits.MaxFrame; closed
	NoMemory                             // Admit refused; open if the body is at most Limits.Discard bytes, else closed
	ReplyTooLong                         // the handler's reply is over Limits.MaxReply; open
	Panicked                             // the handler panicked; closed
)

// Refusal is what the server knows when it answers in place of the handler.
type Refusal struct {
	Reason Reason
	Limit  int64 // connections or bytes; 0 for NoMemory and Panicked
	Length int64 // the length of the frame or of the reply; 0 for TooManyConnections and Panicked
	Err    error // Admit's error, for NoMemory
	Close  bool  // the connection ends after this reply
}

// Limits are the bounds of a Server. The zero value of a field is its default.
type Limits struct {
	MaxConns    int           // connections at once; 1024
	MaxRefusing int           // connections over MaxConns that are being told so; those over this too are closed unanswered; 32
	MaxFrame    int           // bytes of a request's body; DefaultMaxFrame
	MaxReply    int           // bytes of a reply's body; DefaultMaxFrame
	Small       int           // a body of more bytes than this is charged to Admit before it is read; 64 KiB
	Discard     int           // a refused body of at most this many bytes is read and thrown away to keep the connection; 1 MiB
	Idle        time.Duration // between a reply and the first byte of the next request; 5 min
	Stall       time.Duration // without one more byte of a frame; 10 s
	MinRate     int           // bytes a second: a frame of n bytes must be through after Stall + n/MinRate, both ways; 64 KiB
	DrainBytes  int           // how much input is thrown away after a last reply so that the peer can read it; MaxFrame
	DrainTime   time.Duration // and for how long; 2 s
}

// Server answers frames. Its fields are set before the first call of Serve and not changed after it.
type Server struct {
	// Handler answers the requests; required.
	Handler Handler
	// Refuse appends the reply that the server gives in place of the handler to dst; nil closes the connection without a reply.
	Refuse func(dst []byte, r Refusal) []byte
	// Admit is asked before a body of length bytes is read, if that is over Limits.Small. It returns what gives the memory back, which
	// is called once when the reply is sent, or an error. It should answer at once: a refusal is what keeps the memory bounded. nil
	// admits everything.
	Admit func(ctx context.Context, length int) (release func(), err error)
	// Panic is told the value and the stack of a handler's panic, if it is set.
	Panic func(value any, stack []byte)
	// Limits bound what peers can take.
	Limits Limits
}

// Serve accepts connections from l until Shutdown or Close, which close l, and then returns ErrServerClosed. It may be called for
// several listeners at once.
func (s *Server) Serve(l net.Listener) error { return ErrServerClosed }

// Shutdown ends the server in good order: listeners and idle connections are closed at once, requests under way are finished and
// answered, and their connections closed after that. When ctx ends first, what is left is cut as by Close and the cause of ctx is
// returned. All goroutines of the server have ended when Shutdown returns.
func (s *Server) Shutdown(ctx context.Context) error { return nil }

// Close ends the server at once: the contexts of handlers are cancelled and connections reset. All goroutines of the server have
// ended when Close returns.
func (s *Server) Close() error { return nil }

// ServerStats counts what a server did.
type ServerStats struct {
	Open      int64  // connections now, without those that are being refused
	Accepted  uint64 // connections
	Refused   uint64 // connections over MaxConns
	Requests  uint64 // frames given to the handler
	TooLong   uint64 // frames over MaxFrame
	NoMemory  uint64 // frames that Admit refused
	Cut       uint64 // connections cut off for a stalled or slow peer
	PeersGone uint64 // requests whose peer reset the connection
	Panics    uint64
}

// Stats returns the counts so far.
func (s *Server) Stats() ServerStats { return ServerStats{} }
