package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// Options are the settings of a Client. A zero field means its default.
type Options struct {
	// TLS secures the connection; nil: none.
	TLS *tls.Config
	// Dial makes connections to the address; nil: TCP, without a proxy.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// MaxReply is the largest reply, or message of a stream of replies, in bytes that is taken: 128 MiB.
	MaxReply int
	// ConnectTime is how long making a connection may take: 3 s.
	ConnectTime time.Duration
	// RetryTime is how long after a failure to connect the next attempt is made, at first; it grows to MaxRetryTime: 100 ms and 3 s. Calls
	// in between fail at once.
	RetryTime, MaxRetryTime time.Duration
	// PingTime is how long the connection is silent before the client asks whether the node lives, which has PingTimeout to answer: 15 s
	// and 5 s. Less than 10 s counts as that.
	PingTime, PingTimeout time.Duration
	// StreamWindow and ConnWindow are the bytes of one call and of all calls that are taken in before somebody reads them: 512 KiB and 8 MiB.
	StreamWindow, ConnWindow int32
	// Agg bounds the states of aggregations that are read.
	Agg agg.Options
}

func (o Options) withDefaults() Options {
	orDefault(&o.MaxReply, 128<<20)
	orDefault(&o.ConnectTime, 3*time.Second)
	orDefault(&o.RetryTime, 100*time.Millisecond)
	orDefault(&o.MaxRetryTime, 3*time.Second)
	orDefault(&o.PingTime, 15*time.Second)
	orDefault(&o.PingTimeout, 5*time.Second)
	orDefault(&o.StreamWindow, 512<<10)
	orDefault(&o.ConnWindow, 8<<20)
	return o
}

// maxTrailer bounds the headers and trailers of replies; a problem of 256 KiB grows by a third in them.
const maxTrailer = 1 << 20

// Client is a leaf behind a connection.
type Client struct {
	address string
	o       Options
	conn    *grpc.ClientConn
	closed  atomic.Bool
}

var _ leaf.Member = (*Client)(nil)

// Dial returns a client of the node at an address, host:port. It connects in the background: a node that is not there shows in calls.
func Dial(address string, o Options) (*Client, error) {
	o = o.withDefaults()
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithStatsHandler(watcher{}),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // who tries again, and where, is for the caller to decide
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxTrailer),
		grpc.WithStaticStreamWindowSize(o.StreamWindow),
		grpc.WithStaticConnWindowSize(o.ConnWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.PingTime, Timeout: o.PingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: o.RetryTime, Multiplier: 1.6, Jitter: 0.2, MaxDelay: o.MaxRetryTime},
			MinConnectTimeout: o.ConnectTime,
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(theCodec), grpc.MaxCallRecvMsgSize(o.MaxReply)),
	}
	if o.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(o.Dial))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, fmt.Errorf("shard address %q: %w", address, err)
	}
	conn.Connect()
	return &Client{address: address, o: o, conn: conn}, nil
}

// Close implements leaf.Leaf.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.conn.Close()
}

// attempt is what the transport says about one call. gRPC sends a call a second time, by itself, when the node has said that it never
// looked at the first one.
type attempt struct {
	sent    atomic.Bool                 // the request was given to a connection
	begun   atomic.Bool                 // headers came
	trailer atomic.Pointer[metadata.MD] // of the node, which has ended the call
	done    atomic.Bool
	ctx     context.Context // of the caller
}

type attemptKey struct{}

// watcher tells each attempt what happens to it.
type watcher struct{}

func (watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (watcher) HandleConn(context.Context, stats.ConnStats)                       {}

func (watcher) HandleRPC(ctx context.Context, s stats.RPCStats) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		if s.IsTransparentRetryAttempt {
			a.sent.Store(false)
		}
	case *stats.OutPayload:
		a.sent.Store(true)
	case *stats.InHeader:
		a.begun.Store(true)
		if !a.done.Load() {
			serve.Begun(a.ctx)
		}
	case *stats.InTrailer:
		a.trailer.Store(&s.Trailer)
	}
}

// method is a call that is under way.
type method struct {
	name   string
	writes bool
}

func (m method) path() string { return "/" + serviceDesc.ServiceName + "/" + m.name }

// unary makes a call with one message each way.
func (c *Client) unary(ctx context.Context, m method, req, reply proto.Message) error {
	a := &attempt{ctx: ctx}
	defer a.done.Store(true)
	out, in := envelope{message: req}, envelope{message: reply}
	err := c.conn.Invoke(context.WithValue(ctx, attemptKey{}, a), m.path(), &out, &in)
	if out.err != nil {
		return notUTF8(out.err)
	}
	if err == nil {
		err = in.err
	}
	if err != nil {
		return c.failed(ctx, m, a, err)
	}
	return nil
}

// notUTF8 is the problem of a request that cannot be encoded, for which there is no other reason.
func notUTF8(err error) error {
	p := api.NewProblem(api.InvalidUTF8, "a text of the request is not UTF-8")
	p.Cause = err
	return p
}

// failed says what became of a call.
func (c *Client) failed(ctx context.Context, m method, a *attempt, err error) error {
	e := &leaf.TransportError{Address: c.address, Call: m.name, MaybeApplied: m.writes && a.sent.Load(), Cause: err}
	if ctx.Err() != nil {
		if !e.MaybeApplied {
			return context.Cause(ctx)
		}
		e.Cause = context.Cause(ctx)
		return e
	}
	st, ok := status.FromError(err)
	if ok {
		if p := unpackProblem(st); p != nil {
			return p
		}
	}
	if trailer := a.trailer.Load(); trailer != nil {
		if p := trailedProblem(*trailer); p != nil {
			return p
		}
	}
	switch {
	case c.closed.Load():
		e.Cause = leaf.ErrClosed
	case !ok:
	case st.Code() == codes.DeadlineExceeded:
		// The clock of the node or the transport was ahead of that of the context.
		e.Cause = context.DeadlineExceeded
	case st.Code() == codes.Unavailable:
		e.Crashed = a.sent.Load()
	}
	return e
}

// whole is the end of a call whose reply has come: r, or the error of a reply that makes no sense.
func whole[R any](c *Client, m method, r *R, err error) (*R, error) {
	if err != nil {
		return nil, c.unreadable(m, err)
	}
	return r, nil
}

// unreadable is the error of a reply that came and makes no sense.
func (c *Client) unreadable(m method, err error) error {
	if err == nil {
		return nil
	}
	return &leaf.TransportError{Address: c.address, Call: m.name, MaybeApplied: m.writes, Cause: err}
}

// Ping implements leaf.Leaf.
func (c *Client) Ping(ctx context.Context) (*leaf.PingReply, error) {
	var reply pb.PingReply
	if err := c.unary(ctx, method{name: "Ping"}, &pb.PingRequest{}, &reply); err != nil {
		return nil, err
	}
	return &leaf.PingReply{Node: reply.Node}, nil
}

// Info implements leaf.Leaf.
func (c *Client) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	m := method{name: "Info"}
	var reply pb.InfoReply
	if err := c.unary(ctx, m, &pb.InfoRequest{Index: req.Index}, &reply); err != nil {
		return nil, err
	}
	r, err := unpackInfo(&reply)
	return whole(c, m, r, err)
}

// Docs implements leaf.Leaf.
func (c *Client) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	m := method{name: "Docs"}
	out, err := packDocs(req)
	if err != nil {
		return nil, err
	}
	var reply pb.DocsReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackDocsReply(&reply)
	return whole(c, m, r, err)
}

// Search implements leaf.Leaf.
func (c *Client) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	m := method{name: "Search"}
	out, err := packSearch(req)
	if err != nil {
		return nil, err
	}
	var reply pb.SearchReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackSearchReply(&reply, len(req.Sort), req.Limit)
	if err == nil && req.Show != nil && len(r.Shown) != len(r.Hits) {
		err = malformed("shown", "there are %d for %d hits", len(r.Shown), len(r.Hits))
	}
	return whole(c, m, r, err)
}

// Stats implements leaf.Leaf.
func (c *Client) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	m := method{name: "Stats"}
	out, err := packStatsRequest(req)
	if err != nil {
		return nil, err
	}
	var reply pb.StatsReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackStatsReply(&reply)
	return whole(c, m, r, err)
}

// Aggregate implements leaf.Leaf.
func (c *Client) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	m := method{name: "Aggregate"}
	out, err := packAggregate(req)
	if err != nil {
		return nil, err
	}
	var reply pb.AggregateReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackAggregateReply(&reply, req, c.o.Agg)
	return whole(c, m, r, err)
}

// KNN implements leaf.Leaf.
func (c *Client) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	m := method{name: "KNN"}
	out, err := packKNN(req)
	if err != nil {
		return nil, err
	}
	var reply pb.KNNReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackKNNReply(&reply, req.KNN.K)
	return whole(c, m, r, err)
}

// Has implements leaf.Leaf.
func (c *Client) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	m := method{name: "Has"}
	out, err := packHas(req)
	if err != nil {
		return nil, err
	}
	var reply pb.HasReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackHasReply(&reply, len(req.IDs))
	return whole(c, m, r, err)
}

// DeleteMany implements leaf.Leaf.
func (c *Client) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	m := method{"DeleteMany", true}
	out, err := packDelete(req)
	if err != nil {
		return nil, err
	}
	var reply pb.DeleteManyReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackDeleteReply(&reply)
	return whole(c, m, r, err)
}

// Index implements leaf.Leaf.
func (c *Client) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	m := method{"Index", true}
	out, err := packIndex(req)
	if err != nil {
		return nil, err
	}
	var reply pb.IndexReply
	if err := c.unary(ctx, m, out, &reply); err != nil {
		return nil, err
	}
	r, err := unpackIndexReply(&reply)
	return whole(c, m, r, err)
}

// streamCall is a call with a stream of messages.
type streamCall struct {
	c      *Client
	m      method
	caller context.Context
	a      attempt
	stream grpc.ClientStream
	cancel context.CancelFunc
}

// open begins a stream. close ends it, whatever has become of it.
func (c *Client) open(ctx context.Context, m method, desc *grpc.StreamDesc) (*streamCall, error) {
	s := &streamCall{c: c, m: m, caller: ctx}
	s.a.ctx = ctx
	ctx, s.cancel = context.WithCancel(context.WithValue(ctx, attemptKey{}, &s.a))
	var err error
	if s.stream, err = c.conn.NewStream(ctx, desc, m.path()); err != nil {
		s.cancel()
		return nil, s.failed(err)
	}
	return s, nil
}

func (s *streamCall) close() {
	s.a.done.Store(true)
	s.cancel()
}

func (s *streamCall) failed(err error) error { return s.c.failed(s.caller, s.m, &s.a, err) }

// send sends a message. io.EOF says that the node has ended the call.
func (s *streamCall) send(m proto.Message) error {
	out := envelope{message: m}
	err := s.stream.SendMsg(&out)
	if out.err != nil {
		return notUTF8(out.err)
	}
	return err
}

// receive reads a message. io.EOF is the good end of a stream.
func (s *streamCall) receive(m proto.Message) error {
	in := envelope{message: m}
	err := s.stream.RecvMsg(&in)
	switch {
	case err == nil && in.err != nil:
		return s.c.unreadable(s.m, in.err)
	case err == nil || err == io.EOF:
		return err
	}
	return s.failed(err)
}

// list makes a call with one message to the node and many back, until each says that one was the last.
func (c *Client) list(ctx context.Context, m method, req proto.Message, reply proto.Message, each func() (last bool, err error)) error {
	s, err := c.open(ctx, m, &grpc.StreamDesc{ServerStreams: true})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.send(req); err != nil && err != io.EOF {
		return err
	}
	if err := s.stream.CloseSend(); err != nil {
		return s.failed(err)
	}
	for last := false; ; {
		proto.Reset(reply)
		switch err := s.receive(reply); {
		case err == io.EOF && last:
			return nil
		case err == io.EOF:
			return c.unreadable(m, fmt.Errorf("the list ends before its end: %w", io.ErrUnexpectedEOF))
		case err != nil:
			return err
		case last:
			return c.unreadable(m, malformed("list", "something stands behind its end"))
		}
		// What was on its way when the context ended is not for the caller any more.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if last, err = each(); err != nil {
			return err
		}
	}
}

// IDs implements leaf.Leaf.
func (c *Client) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	m := method{name: "IDs"}
	out, err := packIDsRequest(req)
	if err != nil {
		return nil, err
	}
	var reply pb.IDsReply
	r := &leaf.IDsReply{}
	err = c.list(ctx, m, out, &reply, func() (bool, error) {
		if err := fits("ids", len(reply.Ids.GetLengths()), leaf.MaxIDPage); err != nil {
			return false, c.unreadable(m, err)
		}
		ids, err := unpackTexts("ids", reply.Ids)
		if err != nil {
			return false, c.unreadable(m, err)
		}
		if len(ids) > 0 {
			if err := page(ids); err != nil {
				return false, err
			}
		}
		if reply.End == nil {
			return false, nil
		}
		r.Next = string(reply.End.Next)
		r.Meta, err = unpackMeta(reply.End.Meta)
		return true, c.unreadable(m, err)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Export implements leaf.Leaf.
func (c *Client) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	m := method{name: "Export"}
	out, err := packExport(req)
	if err != nil {
		return nil, err
	}
	var reply pb.ExportReply
	r := &leaf.ExportReply{}
	got := 0
	err = c.list(ctx, m, out, &reply, func() (bool, error) {
		if got += len(reply.Ids.GetLengths()); got > len(req.IDs) {
			return false, c.unreadable(m, fits("documents", got, len(req.IDs)))
		}
		ids, err := openTexts("ids", reply.Ids)
		if err != nil {
			return false, c.unreadable(m, err)
		}
		data, lengths := reply.Sources.GetData(), reply.Sources.GetLengths()
		var sum uint64
		for _, n := range lengths {
			sum += uint64(n)
		}
		if len(lengths) != ids.len() || sum != uint64(len(data)) {
			return false, c.unreadable(m, malformed("sources", "they do not fit the ids"))
		}
		for _, n := range lengths {
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			// Reset lets go of the bytes, so the documents of a message keep them, each only its own part.
			if err := each(leaf.ExportedDoc{ID: ids.next(), Source: data[:n:n]}); err != nil {
				return false, err
			}
			data = data[n:]
		}
		if reply.End == nil {
			return false, nil
		}
		if r.Meta, err = unpackMeta(reply.End.Meta); err != nil {
			return true, c.unreadable(m, err)
		}
		r.Missing, err = unpackMissing(reply.End.Missing, len(req.IDs))
		return true, c.unreadable(m, err)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Bulk implements leaf.Leaf. It reads nothing of the body before the node has a place for it, so that a refused body can go to another
// member whole. While the body gives nothing, the end of the context is seen only when it gives something.
func (c *Client) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	m := method{"Bulk", true}
	first, err := packBulk(req)
	if err != nil {
		return nil, err
	}
	s, err := c.open(ctx, m, &grpc.StreamDesc{ClientStreams: true})
	if err != nil {
		return nil, err
	}
	defer s.close()
	var bodyErr error
	err = s.send(first)
	if err == nil {
		if header, _ := s.stream.Header(); header != nil { // the error comes from RecvMsg too, and better
			bodyErr, err = s.sendBody(body)
		} else {
			s.m.writes = false // the node has nothing of the body that it could have applied
		}
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	var reply pb.BulkReply
	err = s.receive(&reply)
	if err == io.EOF {
		err = c.unreadable(m, io.ErrUnexpectedEOF)
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && bodyErr != nil {
		p.Cause = bodyErr
	}
	if err != nil {
		return nil, err
	}
	if bodyErr != nil {
		return nil, &leaf.TransportError{Address: c.address, Call: m.name, MaybeApplied: true, Cause: fmt.Errorf("read the body: %w", bodyErr)}
	}
	r, err := unpackBulkReply(&reply)
	return whole(c, m, r, err)
}

// sendBody sends the body and closes the caller's side. bodyErr is the error of the body, which the node is told of; err is one of the
// stream, io.EOF if the node has ended the call.
func (s *streamCall) sendBody(body io.Reader) (bodyErr, err error) {
	piece := make([]byte, bulkPiece)
	for {
		n, err := body.Read(piece)
		m := &pb.BulkRequest{Data: piece[:n]}
		if err != nil && err != io.EOF {
			bodyErr, m.Broken = err, true
		}
		if n > 0 || m.Broken {
			if err := s.send(m); err != nil {
				return bodyErr, err
			}
		}
		if err != nil {
			return bodyErr, s.stream.CloseSend()
		}
	}
}
