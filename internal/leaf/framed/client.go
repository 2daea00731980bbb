package framed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
)

// Client is a leaf.Member that asks one address over framed JSON.
//
// Reads are repeated once on a fresh connection when a socket that was used before turns out dead; writes only where the node cannot
// have had the request. The deadline of a context travels with each request. What one frame cannot hold is asked for in parts: IDs,
// Export, Fetch, Sums, Sync and Bulk may speak of several snapshots then, and their replies name the last.
type Client struct {
	frames  *frame.Client
	addr    string
	most    int       // bytes of a request
	buffers sync.Pool // *[]byte
}

// NewClient returns a leaf that sends its requests with c and closes it in the end. The fields of c have to be set.
func NewClient(c *frame.Client) *Client {
	most := c.MaxRequest
	if most <= 0 {
		most = frame.DefaultMaxFrame
	}
	return &Client{frames: c, addr: c.Addr, most: most}
}

// Close implements leaf.Leaf.
func (c *Client) Close() error { return c.frames.Close() }

// keptBuffer is the longest buffer that is kept for the next request or reply.
const keptBuffer = 1 << 20

func (c *Client) buffer() *[]byte {
	if b, ok := c.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (c *Client) keep(b *[]byte, used []byte) {
	if cap(used) <= keptBuffer {
		*b = used[:0]
		c.buffers.Put(b)
	}
}

// asking is one request.
type asking struct {
	call  string // method of leaf.Leaf
	op    string
	index string
	write bool // what it does may not be done twice
	// partial says that the node takes the end of its time for a reason to answer with less, so that the answer comes at the last moment.
	partial bool
}

// How much earlier than the caller a node is told to end a search that may be partial, so that its answer is back in time; and how
// long after the end the answer may still come.
const (
	reserveLeast = time.Millisecond
	reserveMost  = 25 * time.Millisecond
	grace        = 25 * time.Millisecond
)

// ask sends a request and reads the reply, both of which are memory of the client's.
func ask[R any](c *Client, ctx context.Context, a asking, write func(w *writer), read func(b []byte) (R, *api.Problem, error)) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	var timeout time.Duration
	sendCtx := ctx
	if end, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(end), time.Microsecond)
		if a.partial {
			var done func()
			sendCtx, done = late(ctx, end.Add(grace))
			defer done()
			timeout = max(timeout-min(max(timeout/10, reserveLeast), reserveMost), time.Microsecond)
		}
	}
	request, reply := c.buffer(), c.buffer()
	w := begin((*request)[:0], a.op, a.index, timeout)
	if write != nil {
		write(w)
	}
	b, prob := w.end()
	defer func() { c.keep(request, b) }()
	if prob == nil && len(b) > c.most {
		prob = api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the request has %d bytes, a frame may have %d", len(b), c.most)).Within(int64(c.most))
	}
	if prob == nil && len(b) > MaxRequest && !carries(a.op) {
		prob = api.NewProblem(api.BodyTooLarge, fmt.Sprintf("the request has %d bytes, %d are allowed for %s", len(b), MaxRequest, a.op)).Within(MaxRequest)
	}
	if prob != nil {
		c.keep(reply, *reply)
		return none, prob
	}
	o := frame.Options{Safe: !a.write, Buf: *reply}
	if take := leaf.ArrivalOf(ctx); take != nil {
		in := &arriving{take: take}
		defer in.release()
		o.Room = in
	}
	body, err := c.frames.Do(sendCtx, b, o)
	if err != nil {
		return none, c.failed(ctx, a, err)
	}
	defer func() { c.keep(reply, body) }()
	r, prob, err := read(body)
	switch {
	case err != nil:
		return none, &leaf.TransportError{Address: c.addr, Call: a.call, MaybeApplied: a.write, Cause: err}
	case prob == nil:
		return r, nil
	case a.write && bytes.Contains(prob.Extra, maybeApplied):
		t := &leaf.TransportError{Address: c.addr, Call: a.call, MaybeApplied: true, Cause: prob}
		if ctx.Err() != nil {
			t.Cause = context.Cause(ctx)
		}
		return none, t
	case prob.Code == api.Timeout && ctx.Err() != nil:
		return none, context.Cause(ctx)
	}
	return none, prob
}

// freeArrival is how much of a reply arrives without asking for memory.
const freeArrival = 64 << 10

// arriving is the memory of a reply that is on its way.
type arriving struct {
	take leaf.Arrival
	have int64
	held []func()
}

// Grow implements frame.Room.
func (a *arriving) Grow(bytes int) error {
	more := int64(bytes) - freeArrival - a.have
	if more <= 0 {
		return nil
	}
	release, err := a.take(more)
	if err != nil {
		return err
	}
	a.have += more
	a.held = append(a.held, release)
	return nil
}

func (a *arriving) release() {
	for _, f := range a.held {
		f()
	}
}

// late returns a context that ends when ctx is cancelled, and when its deadline passes only at end.
func late(ctx context.Context, end time.Time) (context.Context, func()) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	out, stop := context.WithDeadline(out, end)
	unhook := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})
	return out, func() {
		unhook()
		stop()
		cancel(nil)
	}
}

// failed is the error of a request that got no reply.
func (c *Client) failed(ctx context.Context, a asking, err error) error {
	t := &leaf.TransportError{Address: c.addr, Call: a.call, Cause: err}
	e, ok := errors.AsType[*frame.Error](err)
	if ok {
		t.Cause = e.Cause
		t.MaybeApplied = e.MaybeApplied && a.write
	}
	if ctx.Err() != nil {
		if t.MaybeApplied {
			t.Cause = context.Cause(ctx)
			return t
		}
		return context.Cause(ctx)
	}
	switch {
	case errors.Is(err, frame.ErrClientClosed):
		t.Cause = leaf.ErrClosed
	case !ok:
	default:
		_, long := errors.AsType[*frame.TooLongError](e.Cause)
		t.Crashed = e.MaybeApplied && !long
	}
	return t
}

// Ping implements leaf.Leaf.
func (c *Client) Ping(ctx context.Context) (*leaf.PingReply, error) {
	return ask(c, ctx, asking{call: "Ping", op: opPing}, nil, readPingReply)
}

// Info implements leaf.Leaf.
func (c *Client) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return ask(c, ctx, asking{call: "Info", op: opInfo, index: req.Index}, nil, readInfoReply)
}

// Docs implements leaf.Leaf.
func (c *Client) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return ask(c, ctx, asking{call: "Docs", op: opDocs, index: req.Index}, func(w *writer) { appendDocsRequest(w, req) }, readDocsReply)
}

// Search implements leaf.Leaf.
func (c *Client) Search(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return ask(c, ctx, asking{call: "Search", op: opSearch, index: req.Index, partial: req.AllowPartial},
		func(w *writer) { appendSearchRequest(w, req) },
		func(b []byte) (*leaf.SearchReply, *api.Problem, error) { return readSearchReply(b, req) })
}

// Stats implements leaf.Leaf.
func (c *Client) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return ask(c, ctx, asking{call: "Stats", op: opStats, index: req.Index}, func(w *writer) { appendStatsRequest(w, req) }, readStatsReply)
}

// Aggregate implements leaf.Leaf.
func (c *Client) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return ask(c, ctx, asking{call: "Aggregate", op: opAgg, index: req.Index},
		func(w *writer) { appendAggRequest(w, req) },
		func(b []byte) (*leaf.AggregateReply, *api.Problem, error) { return readAggReply(b, req, agg.Options{}) })
}

// KNN implements leaf.Leaf.
func (c *Client) KNN(ctx context.Context, req *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return ask(c, ctx, asking{call: "KNN", op: opKNN, index: req.Index, partial: req.AllowPartial},
		func(w *writer) { appendKNNRequest(w, req) },
		func(b []byte) (*leaf.KNNReply, *api.Problem, error) { return readKNNReply(b, req) })
}

// idsAtOnce is how many ids one request asks for.
const idsAtOnce = 10 * leaf.MaxIDPage

// IDs implements leaf.Leaf.
func (c *Client) IDs(ctx context.Context, req *leaf.IDsRequest, page func(ids []string) error) (*leaf.IDsReply, error) {
	out := &leaf.IDsReply{}
	after, left := req.After, req.Limit
	for {
		part := &leaf.IDsRequest{Index: req.Index, View: req.View, After: after, Limit: idsAtOnce}
		if req.Limit != 0 {
			part.Limit = min(left, idsAtOnce)
		}
		a := asking{call: "IDs", op: opIDs, index: req.Index}
		got, err := ask(c, ctx, a, func(w *writer) { appendIDsRequest(w, part) },
			func(b []byte) (*idsPage, *api.Problem, error) { return readIDsReply(b, part.Limit) })
		if err != nil {
			return nil, err
		}
		addMeta(&out.Meta, &got.Meta)
		for ids := range slices.Chunk(got.ids, leaf.MaxIDPage) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err := page(ids); err != nil {
				return nil, err
			}
		}
		left -= len(got.ids)
		switch {
		case got.Next == "":
			return out, nil
		case req.Limit != 0 && left <= 0:
			out.Next = got.Next
			return out, nil
		case len(got.ids) == 0, strings.Compare(got.Next, after) <= 0:
			return nil, c.malformed(a, "the ids do not go on")
		}
		after = got.Next
	}
}

// malformed is the error of a reply that cannot be.
func (c *Client) malformed(a asking, reason string) error {
	return &leaf.TransportError{Address: c.addr, Call: a.call, MaybeApplied: a.write, Cause: fmt.Errorf("%w: %s", errMalformed, reason)}
}

// exportAtOnce is how many documents one request asks for.
const exportAtOnce = 1_000

// Export implements leaf.Leaf.
func (c *Client) Export(ctx context.Context, req *leaf.ExportRequest, each func(doc leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	if len(req.IDs) > leaf.MaxIDs {
		return nil, tooMany("ids", len(req.IDs), leaf.MaxIDs)
	}
	out := &leaf.ExportReply{}
	left := req.IDs
	for {
		part := &leaf.ExportRequest{Index: req.Index, View: req.View, IDs: left[:min(len(left), exportAtOnce)]}
		a := asking{call: "Export", op: opExport, index: req.Index}
		got, err := ask(c, ctx, a, func(w *writer) { appendExportRequest(w, part) },
			func(b []byte) (*exportPage, *api.Problem, error) { return readExportReply(b, len(part.IDs)) })
		if err != nil {
			return nil, err
		}
		done := len(part.IDs) - len(got.rest)
		if done < 0 || done == 0 && len(part.IDs) > 0 || !slices.Equal(part.IDs[done:], got.rest) {
			return nil, c.malformed(a, "the rest of the ids is not their end")
		}
		addMeta(&out.Meta, &got.Meta)
		out.Missing = append(out.Missing, got.Missing...)
		for _, doc := range got.docs {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err := each(doc); err != nil {
				return nil, err
			}
		}
		if left = left[done:]; len(left) == 0 {
			return out, nil
		}
	}
}

// Has implements leaf.Leaf.
func (c *Client) Has(ctx context.Context, req *leaf.HasRequest) (*leaf.HasReply, error) {
	return ask(c, ctx, asking{call: "Has", op: opHas, index: req.Index},
		func(w *writer) { appendHasRequest(w, req) },
		func(b []byte) (*leaf.HasReply, *api.Problem, error) { return readHasReply(b, len(req.IDs)) })
}

// DeleteMany implements leaf.Leaf.
func (c *Client) DeleteMany(ctx context.Context, req *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return ask(c, ctx, asking{call: "DeleteMany", op: opDeleteMany, index: req.Index, write: true},
		func(w *writer) { appendDeleteRequest(w, req) }, readDeleteReply)
}

// Index implements leaf.Leaf.
func (c *Client) Index(ctx context.Context, req *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return ask(c, ctx, asking{call: "Index", op: opIndex, index: req.Index, write: true},
		func(w *writer) { appendIndexRequest(w, req) }, readIndexReply)
}
