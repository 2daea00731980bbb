package relay

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// Begun is a call at a node whose reply has begun. It has to be closed.
type Begun struct {
	Node *grpcraw.Node

	s      *grpcraw.Stream
	head   grpcraw.Head
	cancel context.CancelCauseFunc
}

// Close ends the call, also at the node if that has not ended it.
func (b *Begun) Close() {
	b.s.Close()
	b.cancel(nil)
}

// Starter begins the request of a call at nodes, at several at once if need be. It is good until the handler of the call returns.
type Starter struct {
	c    *Call
	call grpcraw.Call
}

// Starter returns one for the call. The error is the answer to the client.
func (c *Call) Starter() (*Starter, error) {
	if most := c.s.cfg.Limits.BackendEncode; c.Size() > most {
		return nil, grpcmsg.TooLong("encoded", int64(c.Size()), most)
	}
	return &Starter{c, grpcraw.Call{Method: c.method.Path, Encoding: c.encoding, Accept: c.accepts(), Timeout: c.Timeout(), Message: c.data}}, nil
}

// Takes tells whether a node is not known to refuse the request for its compression. One that does is for Forward.
func (s *Starter) Takes(n *grpcraw.Node) bool { return !s.c.compressed || !n.Refuses(s.c.encoding) }

// Begin sends the request to a node and waits until its reply begins, or ctx ends, which ends the call at the node, too. What it returns goes
// on when ctx has ended, until the client's call does.
func (s *Starter) Begin(ctx context.Context, n *grpcraw.Node) (*Begun, error) {
	cctx, cancel := context.WithCancelCause(s.c.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	call := s.call
	stream, err := n.Start(cctx, &call)
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	b := &Begun{Node: n, s: stream, cancel: cancel}
	if b.head, err = stream.Head(); err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		b.Close()
		return nil, err
	}
	return b, nil
}

// Finish answers with the reply of a node that has begun. The result is for the handler to return, as that of Forward. A node that refuses the
// request for its compression is asked again without.
func (c *Call) Finish(b *Begun) (outcome Outcome, err error) {
	r := replying{c: c, s: b.s, head: b.head}
	if err := r.copy(); err != nil {
		return outcomeOf(err), err
	}
	end := b.s.End()
	if end.Code == codes.Unimplemented && c.compressed && b.head.Accepts != "" && !lists(b.head.Accepts, c.encoding) && !c.sent {
		b.Node.Refuse(c.encoding)
		return c.Forward(b.Node)
	}
	if err := r.end(end); err != nil {
		return outcomeOf(err), err
	}
	return Outcome{Code: end.Code}, c.finish(end)
}
