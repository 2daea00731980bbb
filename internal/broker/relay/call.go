package relay

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
	"github.com/weft-search/weft/internal/wire/grpcserve"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

// Call is a call of a client.
type Call struct {
	s        *Server
	method   *Method
	ctx      context.Context
	ss       *grpcserve.Stream
	conn     *grpcmsg.Share
	in       grpcmsg.Incoming
	deadline time.Duration // that the client gave, as it was when the call came; 0: none
	offers   []string      // encodings of replies that the client takes
	decode   int           // longest message that is taken
	encode   int           // and sent

	data       mem.BufferSlice // the message with its prefix
	compressed bool
	encoding   string
	index      string
	sent       bool // a reply was begun

	place *place // among those that wait
	runs  bool   // it has one of the places of its connection

	charged int64
	give    []func()
	ahead   bool // the call is the one that goes on without room
}

// Method is the method that is called.
func (c *Call) Method() *Method { return c.method }

// Context ends with the call of the client.
func (c *Call) Context() context.Context { return c.ctx }

// Index is the name of the index in the request, as it is there; empty if there is none. A stream has none before its messages.
func (c *Call) Index() string { return c.index }

// Size is the length of the message in bytes, as it came.
func (c *Call) Size() int { return max(c.data.Len()-grpcraw.PrefixBytes, 0) }

// What of a client's time a node does not get, and the least that it gets in any case.
const (
	timeoutMargin = 50 * time.Millisecond
	leastTimeout  = 10 * time.Millisecond
)

// Timeout is the time that a node gets: what the client gave when it called, less 50 ms, and 10 ms at least. 0 means that the client set no
// limit. It is for calls that are made at once; see Left for others.
func (c *Call) Timeout() time.Duration {
	if c.deadline <= 0 {
		return 0
	}
	return max(c.deadline-timeoutMargin, leastTimeout)
}

// Left is like Timeout for a call to a node that is made now, after others.
func (c *Call) Left() time.Duration {
	end, ok := c.ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(end)-timeoutMargin, leastTimeout)
}

// arrived is the time that a client gave.
func arrived(ss *grpcserve.Stream) time.Duration {
	d, ok := ss.Timeout()
	if !ok {
		return 0
	}
	return max(d, time.Nanosecond)
}

// Need sees to it that so many bytes are charged for the call, until it ends. What is below 16 KiB is free.
//
// Calls that have a part of what they need and find no more could wait for each other. So one of them at a time goes on without: it will
// end and give back what it has. That is at most one message beyond all that may be charged.
func (c *Call) Need(bytes int64) error {
	more := bytes - grpcmsg.FreeBytes - c.charged
	if more <= 0 || c.s.cfg.Charge == nil {
		return nil
	}
	if c.ahead {
		c.charge(more)
		return nil
	}
	for tries := 1; ; tries++ {
		given, release, err := c.s.cfg.Charge(c.ctx, c.charged, more)
		switch {
		case err == nil:
			c.give = append(c.give, release)
			c.charge(given)
			return nil
		case c.ctx.Err() != nil:
			return err
		case tries < mostYields && (c.s.streams.yield() || c.s.arriving.yield()):
			continue // what a silent call had is given back when its handler returns
		case c.charged == 0 || !c.goAhead():
			return err
		}
		c.charge(more)
		return nil
	}
}

// mostYields is how many silent calls are ended at most for one that needs memory.
const mostYields = 4

// charge notes what is charged.
func (c *Call) charge(bytes int64) {
	c.charged += bytes
	if c.place != nil {
		c.place.holds.Store(c.charged)
	}
}

// goAhead waits until the call may go on without room.
func (c *Call) goAhead() bool {
	late := time.NewTimer(c.s.cfg.Limits.Stall)
	defer late.Stop()
	select {
	case c.s.ahead <- struct{}{}:
		c.ahead = true
		c.give = append(c.give, func() { <-c.s.ahead })
		return true
	case <-late.C:
	case <-c.ctx.Done():
	}
	return false
}

func (c *Call) unload() {
	for _, release := range c.give {
		release()
	}
	c.give, c.charged, c.ahead = nil, 0, false
	c.drop()
}

func (c *Call) drop() {
	c.data.Free()
	c.data = nil
}

// receive takes a message and reads the name of its index. io.EOF means that the client has closed its side.
func (c *Call) receive() error {
	c.drop()
	header, data, err := c.in.Receive()
	if err != nil {
		return err
	}
	c.data = append(mem.BufferSlice{mem.SliceBuffer(header[:])}, data...)
	if c.compressed = header[0] == 1; !c.compressed {
		c.encoding = ""
		c.index, err = indexName(data)
		return err
	}
	c.encoding = c.in.Stream.RecvCompress()
	// Decompressing takes memory of its own, so no more are at it at once than the processors do.
	select {
	case c.s.inflating <- struct{}{}:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	defer func() { <-c.s.inflating }()
	c.index, err = compressedIndexName(data, c.encoding, c.decode)
	return err
}

// arrives is Need for a message that comes.
func (c *Call) arrives(bytes int64) error {
	c.place.came.Store(bytes)
	began := time.Now()
	defer func() { c.place.waited(time.Since(began)) }()
	return c.Need(bytes)
}

// enter waits for a place among the running calls of the connection.
func (c *Call) enter() error {
	if err := c.conn.Enter(c.ctx); err != nil {
		return err
	}
	c.runs = true
	return nil
}

// leave gives it back.
func (c *Call) leave() {
	if c.runs {
		c.runs = false
		c.conn.Leave()
	}
}

// Next takes the next message of a stream; io.EOF at its end. The one before is gone then. While the stream waits it is not among the running
// calls of its connection, and may lose its place to others if it waits for long.
func (c *Call) Next() error {
	c.leave()
	c.place.waits()
	err := c.receive()
	c.place.works()
	if err != nil && err != io.EOF {
		return err
	}
	if full := c.enter(); full != nil {
		return full
	}
	return err
}

// Decode decodes the message, which the call keeps. What it takes is charged.
func (c *Call) Decode(m proto.Message) error {
	whole, err := c.Plain()
	if err != nil {
		return err
	}
	most := max(maxGrowth*int64(c.decode), leastGrowth)
	growth := protoweight.Of(whole, m.ProtoReflect().Descriptor(), maxNesting, most)
	if growth > most {
		return status.Error(codes.ResourceExhausted, "the message has too many parts for its length")
	}
	if err := c.Need(int64(c.data.Len()+len(whole)) + growth); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxNesting}).Unmarshal(whole, m); err != nil {
		return errNotProto
	}
	return nil
}

// Bounds of decoded messages: how many times the longest message one may take, what it may take in any case, and how deep it may be.
const (
	maxGrowth   = 2
	leastGrowth = 128 << 20
	maxNesting  = 200
)

// Plain is the message without its prefix, decompressed.
func (c *Call) Plain() ([]byte, error) {
	if len(c.data) == 0 {
		return nil, errNotProto
	}
	data := c.data[1:]
	n := int64(data.Len())
	if !c.compressed {
		if err := c.Need(2 * n); err != nil {
			return nil, err
		}
		return data.Materialize(), nil
	}
	in := data.Reader()
	defer in.Close()
	return grpcmsg.Inflate(c.encoding, in, c.decode, func(bytes int64) error { return c.Need(n + bytes) })
}

// accepts are the encodings that a node may answer in, as grpc-accept-encoding has them: those that the client takes and weft knows.
func (c *Call) accepts() string {
	z, g := slices.Contains(c.offers, grpcmsg.Zstd), slices.Contains(c.offers, grpcmsg.Gzip)
	switch {
	case z && g:
		return grpcmsg.Zstd + "," + grpcmsg.Gzip
	case z:
		return grpcmsg.Zstd
	case g:
		return grpcmsg.Gzip
	}
	return ""
}

// Outcome is how a call to a node ended.
type Outcome struct {
	Code codes.Code
	// Transport says that the node was not reached, or was lost.
	Transport bool
}

// Forward sends the request to a node as it is, and answers with what comes back. The result is for the handler to return; it is the node's
// status, or one of the broker's own where there is none. outcome tells of the node alone.
func (c *Call) Forward(n *grpcraw.Node) (outcome Outcome, err error) {
	if most := c.s.cfg.Limits.BackendEncode; c.Size() > most {
		return Outcome{Code: codes.OutOfRange}, grpcmsg.TooLong("encoded", int64(c.Size()), most)
	}
	call := grpcraw.Call{Method: c.method.Path, Encoding: c.encoding, Accept: c.accepts(), Timeout: c.Timeout(), Message: c.data}
	if c.compressed && n.Refuses(c.encoding) {
		if err := c.inflate(&call); err != nil {
			return Outcome{}, err
		}
	}
	began := time.Now()
	for {
		end, again, err := c.attempt(n, &call)
		if again {
			n.Refuse(c.encoding)
			if err := c.inflate(&call); err != nil {
				return Outcome{Code: codes.Unimplemented}, err
			}
			continue
		}
		if err != nil {
			e, _ := errors.AsType[*grpcraw.Error](err)
			if e != nil && e.Code == codes.Canceled && call.Timeout > 0 && time.Since(began) >= call.Timeout {
				// The node gave up, and not the client.
				err = status.Error(codes.DeadlineExceeded, timedOut)
			}
			return Outcome{Code: status.Code(err), Transport: e != nil && e.Transport}, err
		}
		return Outcome{Code: end.Code}, c.finish(end)
	}
}

// inflate makes a plain message of a compressed one for a node that does not take it.
func (c *Call) inflate(call *grpcraw.Call) error {
	whole, err := c.Plain()
	if err != nil {
		return err
	}
	call.Encoding = ""
	call.Message = mem.BufferSlice{mem.SliceBuffer(grpcmsg.Header(false, len(whole))), mem.SliceBuffer(whole)}
	return nil
}

// timedOut is what a node of the reference says when the time that it was given is over.
const timedOut = "Timeout expired"

// finish answers with the end of a node's call.
func (c *Call) finish(end *grpcraw.End) error {
	if len(end.Meta) > 0 {
		c.ss.SetTrailer(end.Meta)
	}
	if end.Code == codes.OK {
		return nil
	}
	if end.Code == codes.Canceled && end.Message == timedOut && c.deadline > 0 {
		return status.Error(codes.DeadlineExceeded, timedOut)
	}
	if end.Details != "" {
		// As it came: the server writes it where the status that it is given has no details of its own.
		c.ss.SetTrailer(map[string][]string{"grpc-status-details-bin": {end.Details}})
	}
	return status.Error(end.Code, end.Message)
}

// attempt makes the call once. again says that the node refused it for its compression, before it did anything.
func (c *Call) attempt(n *grpcraw.Node, call *grpcraw.Call) (end *grpcraw.End, again bool, err error) {
	s, err := n.Start(c.ctx, call)
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	head, err := s.Head()
	if err != nil {
		return nil, false, err
	}
	r := replying{c: c, s: s, head: head}
	if err := r.copy(); err != nil {
		return nil, false, err
	}
	end = s.End()
	if end.Code == codes.Unimplemented && call.Encoding != "" && head.Accepts != "" && !lists(head.Accepts, call.Encoding) && !c.sent {
		return end, true, nil
	}
	return end, false, r.end(end)
}

// lists tells whether a list with commas has a name.
func lists(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(one), name) {
			return true
		}
	}
	return false
}

// Beside passes on headers and trailers of a node whose reply the service has looked at. It is to be called before Reply.
func (c *Call) Beside(head, trailer metadata.MD) {
	if len(head) > 0 {
		c.ss.SetHeader(head)
	}
	if len(trailer) > 0 {
		c.ss.SetTrailer(trailer)
	}
}

// Reply answers with a message of the broker's own.
func (c *Call) Reply(m proto.Message) error {
	n := proto.Size(m)
	if n > c.encode {
		return grpcmsg.TooLong("encoded", int64(n), c.encode)
	}
	var compressor encoding.Compressor
	if name := grpcmsg.Best(c.offers); name != "" && n >= grpcmsg.LeastCompressed {
		compressor = encoding.GetCompressor(name)
		c.ss.SetSendCompress(name)
	}
	if err := c.s.replies.Wait(c.ctx, n, c.s.cfg.Limits.Wait); err != nil {
		return err
	}
	r := c.conn.Replies.Begin(c.s.replies)
	defer r.Seal()
	data, err := r.Encode(m, n, compressor)
	if err != nil {
		return err
	}
	c.sent = true
	return c.ss.Write(append(mem.BufferSlice{mem.SliceBuffer(grpcmsg.Header(compressor != nil, data.Len()))}, data...), true)
}
