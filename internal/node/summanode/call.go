package summanode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/wire/grpcconn"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

const (
	// freeBytes is how much of a message is not charged, and maxStep the most of it that is asked for at a time.
	freeBytes = grpcmsg.FreeBytes
	maxStep   = grpcmsg.MaxStep
	// maxGrowth is how many times the longest message a message may take beyond its bytes when it is decoded, and leastGrowth what it may
	// take in any case: room for the statistics of some hundred thousand terms.
	maxGrowth   = 2
	leastGrowth = 128 << 20
	// maxNesting bounds how deep the messages of a message may stand. A query of 32 levels has some 100.
	maxNesting = 200
)

var decodeOptions = proto.UnmarshalOptions{RecursionLimit: maxNesting, DiscardUnknown: true}

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
	charged int64
	give    []func()
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
			if err := c.receive(m); err != nil {
				if err == io.EOF {
					return &summa.Error{Code: codes.Internal, Text: "Missing request message."}
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
	if err := conn.Enter(ctx); err != nil {
		return err
	}
	defer conn.Leave()
	place, err := s.calls.TryEnter(1)
	if err != nil {
		return &summa.Error{Code: codes.ResourceExhausted, Text: "too many calls are under way; retry later"}
	}
	defer place.Release()
	end, guarded := grpcconn.EndCall(ctx)
	in, reads := grpcmsg.StreamOf(ctx)
	if !guarded || !reads {
		return grpcmsg.ErrNotBound
	}
	c := &call{s: s, conn: conn, ss: ss, in: in, cancel: end, decode: s.cfg.Limits.SearchDecode, encode: s.cfg.Limits.SearchEncode, room: s.replies.Room()}
	c.ctx = context.WithValue(ctx, callKey{}, c)
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

// need sees to it that so many bytes are charged for the messages of the call.
func (c *call) need(bytes int64) error {
	more := bytes - freeBytes - c.charged
	if more <= 0 {
		return nil
	}
	given, release, err := c.s.cfg.Host.Charge(c.ctx, c.charged, more)
	if err != nil {
		return err
	}
	c.charged += given
	c.give = append(c.give, release)
	return nil
}

// unload gives back what need has taken.
func (c *call) unload() {
	for _, release := range c.give {
		release()
	}
	c.give, c.charged = nil, 0
}

// receive reads a message. io.EOF means that the caller has closed its side.
func (c *call) receive(m proto.Message) error {
	before := c.charged
	in := grpcmsg.Incoming{
		Stream: c.in, Cancel: c.cancel, Stall: c.s.cfg.Limits.Stall, Most: c.decode,
		Need: func(bytes int64) error { return c.need(before + bytes) },
	}
	header, data, err := in.Receive()
	if err != nil {
		return err
	}
	defer data.Free()
	n := data.Len()
	var whole []byte
	if header[0] == 0 {
		if err = c.need(before + 2*int64(n)); err == nil {
			whole = data.Materialize()
		}
	} else {
		whole, err = c.decompress(data, before+int64(n))
	}
	if err != nil {
		return err
	}
	most := max(maxGrowth*int64(c.decode), leastGrowth)
	growth := protoweight.Of(whole, m.ProtoReflect().Descriptor(), maxNesting, most)
	if growth > most {
		return &summa.Error{Code: codes.ResourceExhausted, Text: "the message has too many parts for its length"}
	}
	if err := c.need(before + int64(n) + int64(len(whole)) + growth); err != nil {
		return err
	}
	if err := decodeOptions.Unmarshal(whole, m); err != nil {
		return &summa.Error{Code: codes.Internal, Text: "failed to decode Protobuf message"}
	}
	return nil
}

// decompress makes the message of its compressed bytes, charged as it grows. have is what is charged already.
func (c *call) decompress(data mem.BufferSlice, have int64) ([]byte, error) {
	in := data.Reader()
	defer func() { errors.Join(in.Close()) }() // of buffers in memory
	r, done, err := grpcmsg.Decompressor(c.in.RecvCompress(), in)
	if err != nil {
		return nil, err
	}
	defer done()
	out := make([]byte, 0, freeBytes)
	for {
		if len(out) == cap(out) {
			more := min(maxStep, cap(out))
			// Growing copies: the old and the new stand side by side.
			if err := c.need(have + int64(2*len(out)+more)); err != nil {
				return nil, err
			}
			out = append(make([]byte, 0, len(out)+more), out...)
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if len(out) > c.decode {
			return nil, grpcmsg.TooLongInside(c.decode)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, grpcmsg.ErrDamaged
		}
	}
}
