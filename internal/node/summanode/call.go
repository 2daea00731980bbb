package summanode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/wire/grpcconn"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

const (
	// freeBytes is how much of a message is not charged.
	freeBytes = grpcmsg.FreeBytes
	// maxGrowth is how many times the longest message a message may take beyond its bytes when it is decoded, and leastGrowth what it may
	// take in any case: room for the statistics of some hundred thousand terms.
	maxGrowth   = 2
	leastGrowth = 128 << 20
	// leastNesting is how deep the messages of a message may stand in any case. Each level of a query has two, and its request and a fusion a few
	// more: a query that is too deep is told so as long as it is not far deeper.
	leastNesting  = 200
	levelNesting  = 2
	aroundNesting = 10
)

// nesting is how deep the messages of a message may stand where queries have so many levels.
func nesting(levels int) int { return max(leastNesting, levelNesting*levels+aroundNesting) }

// call is one call under way. It belongs to its handler.
type call struct {
	s       *Server
	conn    *grpcmsg.Conn
	ss      grpc.ServerStream
	in      grpcmsg.Stream
	ctx     context.Context
	cancel  context.CancelCauseFunc
	decode  int // longest message that is taken
	encode  int
	stream  bool          // the caller may be as late with its messages as it likes
	arrives func() error  // called when a message begins to arrive
	yield   func()        // gives up memory that others may have; may be nil
	memory  claim         // of the message that arrives or is worked on
	size    int64         // what that takes when it is whole: what memory has, and what of it is not charged
	room    *grpcmsg.Room // of the reply
	made    int64         // how much of it hydrate was told of
}

type callKey struct{}

// callOf is the call that a context of handle belongs to.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// message is a pointer to a generated message M.
type message[M any] interface {
	*M
	proto.Message
}

func unary[M any, P message[M], R proto.Message](service, name string, serve func(*Server, context.Context, P) (R, error)) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, Handler: func(srv any, ss grpc.ServerStream) error {
		s := srv.(*Server)
		return s.handle(service, name, ss, func(c *call) error {
			m := P(new(M))
			closing := c.closing()
			if err := closing.ends(c.receive(m)); err != nil {
				if err == io.EOF {
					return errNoMessage
				}
				return err
			}
			reply, err := serve(s, c.ctx, m)
			if err != nil {
				return err
			}
			c.unload()
			return c.send(reply)
		})
	}}
}

func handleIndexDocuments(srv any, ss grpc.ServerStream) error {
	s := srv.(*Server)
	return s.handle(indexService, "IndexDocuments", ss, s.indexDocuments)
}

// What callers have done wrong below the services. They are no *summa.Error, so that nobody is told of them as of a failure of the node.
var (
	errNoMessage = status.Error(codes.Internal, "Missing request message.")
	errUndecoded = status.Error(codes.Internal, "failed to decode Protobuf message")
)

// errTooMany is the refusal of a call that is one too many.
var errTooMany = &summa.Error{Code: codes.ResourceExhausted, Text: "too many calls are under way; retry later"}

// errClosing is the refusal of a node that ends.
var errClosing = &summa.Error{Code: codes.Unavailable, Text: "Summa server is shutting down"}

// handle runs a call from its arrival to its end.
func (s *Server) handle(service, name string, ss grpc.ServerStream, run func(*call) error) (err error) {
	seen := s.metrics.Begin(name)
	ctx := ss.Context()
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Metrics.Panics.Inc()
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		err = s.status(ctx, name, err)
		seen.End(codeName(status.Code(err)))
	}()
	if !s.cfg.Host.Enter() {
		return errClosing
	}
	defer s.cfg.Host.Leave()
	conn, bound := grpcmsg.ConnOf(ctx)
	if !bound {
		return grpcmsg.ErrNotBound
	}
	// Who has sent nothing yet, and a stream that may be silent for hours, take no place of those who have. A stream has one of the places of
	// its connection only while it is at work.
	stream := name == "IndexDocuments"
	var place *admit.Place
	if stream {
		place, err = s.enterStream(ctx)
	} else {
		if err := conn.Enter(ctx); err != nil {
			return err
		}
		defer conn.Leave()
		place, err = s.arriving.TryEnter(1)
	}
	if err != nil {
		return errTooMany
	}
	defer place.Release()
	end, guarded := grpcconn.EndCall(ctx)
	in, reads := grpcmsg.StreamOf(ctx)
	if !guarded || !reads {
		return grpcmsg.ErrNotBound
	}
	c := &call{s: s, conn: conn, ss: ss, in: in, cancel: end, decode: s.cfg.Limits.SearchDecode, encode: s.cfg.Limits.SearchEncode, room: s.replies.Room()}
	c.ctx = context.WithValue(ctx, callKey{}, c)
	c.stream = stream
	var calling *admit.Place
	defer func() { calling.Release() }()
	c.arrives = func() (err error) {
		place.Release()
		if calling, err = s.calls.TryEnter(1); err != nil {
			return errTooMany
		}
		return nil
	}
	if service == indexService {
		c.decode, c.encode = s.cfg.Limits.IndexDecode, s.cfg.Limits.IndexEncode
	}
	defer c.unload()
	defer c.room.Give()
	return run(c)
}

// status is what the caller is told.
func (s *Server) status(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*summa.Error](err)
	if !ok {
		if cause := context.Cause(ctx); cause != nil {
			if e, ok = errors.AsType[*summa.Error](cause); !ok && ctx.Err() != nil {
				if st, of := status.FromError(cause); of {
					return st.Err()
				}
				return status.FromContextError(ctx.Err()).Err()
			}
		}
	}
	if !ok {
		if st, of := status.FromError(err); of && st.Code() != codes.Unknown {
			return st.Err()
		}
		e = s.cfg.Host.Refusal(ctx, err)
	}
	if e.Code == codes.Internal {
		if dropped, ok := s.failures.Allow(); ok {
			s.cfg.Log.Error("summa call failed", "call", name, "error", err, "dropped_lines", dropped)
		}
	}
	return e.GRPCStatus().Err()
}

// codeName is the name of a code in metrics.
func codeName(c codes.Code) string {
	var b strings.Builder
	for i, r := range c.String() {
		if r >= 'A' && r <= 'Z' && c != codes.OK {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// closing ends a call whose message is not whole when the server ends: at once as long as nothing of it has come, else a while later.
// Nothing was done for it, and its caller may never send the rest.
type closing struct {
	c     *call
	begun atomic.Bool // the message has
	stop  func() bool

	mu    sync.Mutex
	over  bool
	late  *time.Timer
	ended bool // the call was
}

func (c *call) closing() *closing {
	e := &closing{c: c}
	arrives := c.arrives
	c.arrives = func() error {
		e.begun.Store(true)
		return arrives()
	}
	e.stop = context.AfterFunc(c.s.draining, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case e.over:
		case e.begun.Load():
			e.late = time.AfterFunc(c.s.cfg.Limits.Wait, e.end)
		default:
			e.endLocked()
		}
	})
	return e
}

func (e *closing) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endLocked()
}

func (e *closing) endLocked() {
	if !e.over {
		e.ended = true
		e.c.cancel(errClosing)
	}
}

// ends says that the message was received, with an error or not, and returns what became of it. From then on the call goes to its end.
func (e *closing) ends(err error) error {
	e.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.late != nil {
		e.late.Stop()
	}
	if e.ended {
		return errClosing
	}
	return err
}

// need sees to it that so many bytes are charged for the message of the call.
func (c *call) need(bytes int64) error {
	more := bytes - freeBytes - c.memory.held
	if more <= 0 || c.yield != nil && c.s.memory.try(c.ctx, &c.memory, more) {
		return nil
	}
	if c.yield != nil {
		c.yield()
	}
	return c.s.memory.take(c.ctx, &c.memory, more, c.s.cfg.Limits.Wait, c.s.cfg.Limits.Stall)
}

// unload gives back what need has taken.
func (c *call) unload() { c.s.memory.shrink(&c.memory, 0, 0) }

// What a message is thought to need in all, in multiples of its length on the wire, until that is known: its bytes, those of the whole
// message and its parts.
const (
	plainNeed      = 3
	compressedNeed = 4
)

// receive reads a message. io.EOF means that the caller has closed its side.
func (c *call) receive(m proto.Message) error {
	in := grpcmsg.Incoming{
		Stream: c.in, Cancel: c.cancel, Stall: c.s.cfg.Limits.Stall, Most: c.decode, Patient: c.stream,
		Need: c.need,
		Expect: func(bytes int, compressed bool) error {
			if c.arrives != nil {
				if err := c.arrives(); err != nil {
					return err
				}
			}
			times := int64(plainNeed)
			if compressed {
				times = compressedNeed
			}
			c.memory.most = times * int64(bytes)
			return nil
		},
	}
	header, data, err := in.Receive()
	if err != nil {
		return err
	}
	n := data.Len()
	var whole []byte
	if header[0] == 0 {
		if err = c.need(2 * int64(n)); err == nil {
			whole = data.Materialize()
		}
	} else {
		whole, err = c.decompress(data, int64(n))
	}
	data.Free()
	if err != nil {
		return err
	}
	most := max(maxGrowth*int64(c.decode), leastGrowth)
	deep := nesting(c.s.cfg.Limits.Query.MaxQueryDepth)
	growth := protoweight.Of(whole, m.ProtoReflect().Descriptor(), deep, most)
	if growth > most {
		return &summa.Error{Code: codes.ResourceExhausted, Text: "the message has too many parts for its length"}
	}
	if err := c.need(int64(n) + int64(len(whole)) + growth); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: deep, DiscardUnknown: true}).Unmarshal(whole, m); err != nil {
		return errUndecoded
	}
	// The bytes are in its parts now.
	c.size = int64(len(whole)) + growth
	c.s.memory.shrink(&c.memory, c.size-freeBytes, c.size)
	return nil
}

// counting is how much of a compressed message is read at a time to know its length.
const counting = 64 << 10

// decompress makes the message of its compressed bytes. have is what is charged already. One that is not short is read twice: first to know
// its length, which its sender does not say or may say wrongly, and then into memory that is charged for just that. So one that becomes too
// long takes none.
func (c *call) decompress(data mem.BufferSlice, have int64) ([]byte, error) {
	out := make([]byte, freeBytes)
	n, whole, err := c.inflate(data, func(r io.Reader) (int, bool, error) {
		n, err := io.ReadFull(r, out)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
		more, err := c.count(r, c.decode-n)
		return n + more, false, err
	})
	switch {
	case err != nil:
		return nil, err
	case n > c.decode:
		return nil, grpcmsg.TooLongInside(c.decode)
	case whole:
		return out[:n], nil
	}
	if err := c.need(have + int64(n)); err != nil {
		return nil, err
	}
	out = make([]byte, n)
	_, _, err = c.inflate(data, func(r io.Reader) (int, bool, error) {
		n, err := io.ReadFull(r, out)
		return n, true, err
	})
	return out, err
}

// count reads to the end, or past most.
func (c *call) count(r io.Reader, most int) (n int, err error) {
	buf := make([]byte, counting)
	for n <= most {
		k, err := r.Read(buf)
		n += k
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if c.ctx.Err() != nil {
			return n, context.Cause(c.ctx)
		}
	}
	return n, nil
}

// inflate lets read have the decompressed bytes of a message.
func (c *call) inflate(data mem.BufferSlice, read func(io.Reader) (n int, whole bool, err error)) (n int, whole bool, err error) {
	in := data.Reader()
	defer func() { errors.Join(in.Close()) }() // of buffers in memory
	r, done, err := grpcmsg.Decompressor(c.in.RecvCompress(), in)
	if err != nil {
		return 0, false, err
	}
	defer done()
	if n, whole, err = read(r); err != nil && c.ctx.Err() == nil {
		err = grpcmsg.ErrDamaged
	}
	return n, whole, err
}
