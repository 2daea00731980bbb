package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard"
)

// bulk loads a stream of documents, one on each line.
//
// The load as a whole is admitted first: a place among the bulk loads and the memory of its chunks. Then lines are read into a
// chunk and typed, and full chunks are applied in order, each durable and visible when it is done; the stream is never held as a
// whole. When memory for documents is full in the middle, the load stops reading, which slows its sender down, and goes on when
// there is room; only when nothing moves for Limits.BulkStall does it give up. When it gives up, or the index stops taking
// writes, the documents of the chunk in hand and everything after it are read and listed as failed with the reason, so that the
// sender knows line by line what is in.
func (n *Node) bulk(c *front.Call) *api.Problem {
	name, prob := c.Index()
	if prob != nil {
		return prob
	}
	if _, prob := c.Wants(front.BulkTypes...); prob != nil {
		return prob
	}
	key, prob := c.IdempotencyKey()
	if prob != nil {
		return prob
	}
	place, err := n.bulks.Enter(c.Context(), 1)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer func() { c.Leave(place) }()
	load, prob := n.load(c.Context(), loading{name: name, key: key, start: c.Start(), whole: true}, func(ctx context.Context) (io.Reader, func()) { return c.Timed(ctx) })
	if prob != nil {
		return prob
	}
	if load.repeated {
		// The sender may look for the reply only when it has sent everything.
		src, stop := c.Timed(c.Context())
		defer stop()
		if _, err := io.Copy(io.Discard, src); err != nil {
			return n.front.BodyProblem(c.Context(), err)
		}
	}
	if p := load.refused(); p != nil {
		return c.Long(p)
	}
	status := http.StatusOK
	if !load.reply.OK {
		status = http.StatusMultiStatus
	}
	return c.JSON(status, load.reply.AppendJSON(nil, load.repeated))
}

// loading says what is loaded.
type loading struct {
	name     string // of the index
	key      string // of the load; empty: it has none
	start    time.Time
	whole    bool // see bulkLoad
	existing bool // the index has to be there
}

// load runs a load that has its place. open gives the stream, whose reads have to fail when their context ends, and what is to be
// called when it is not read any more. A load with a key that the index remembers is not read at all: what comes back is what came of
// the first.
func (n *Node) load(ctx context.Context, what loading, open func(ctx context.Context) (io.Reader, func())) (*bulkLoad, *api.Problem) {
	name, key := what.name, what.key
	if key != "" {
		end, prob := n.underWay.begin(name, key)
		if prob != nil {
			return nil, prob
		}
		defer end()
		load, err := n.taken(ctx, name, key)
		if err != nil {
			return nil, n.problem(ctx, err)
		}
		if load != nil {
			return load, nil
		}
	}
	held, err := n.memory.Enter(ctx, bulkCharge)
	if err != nil {
		return nil, n.problem(ctx, err)
	}
	defer held.Release()
	if err := n.memtables.admit(); err != nil {
		return nil, n.problem(ctx, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unhook := func() bool { return true }
	w := &writer{node: n, name: name, existing: what.existing, took: func(l lease) {
		// A deleted index ends the stream at once, also while it waits for its sender.
		unhook = context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	}}
	defer w.release()
	defer func() { unhook() }() // the index outlives the call, and would keep the call with it
	if err := w.find(ctx); err != nil {
		return nil, n.problem(ctx, err)
	}
	src, stop := open(ctx)
	defer stop()
	load := &bulkLoad{node: n, writer: w, start: what.start, whole: what.whole, lines: front.NewLineReader(src, int(n.cfg.Limits.DocumentBytes)), ids: front.NewIDSet(n.cfg.Limits.BulkIDs)}
	load.run(ctx)
	load.finish()
	if key != "" && load.definite() && w.has {
		w.lease.keys.remember(key, &load.reply)
	}
	return load, nil
}

// taken is the load with the key that the index remembers, nil if there is none.
func (n *Node) taken(ctx context.Context, name, key string) (*bulkLoad, error) {
	l, err := n.catalog.use(ctx, name)
	if errors.Is(err, errNoIndex) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.release()
	reply, err := l.keys.find(key)
	if err != nil {
		return nil, &unavailableError{name: name, cause: err}
	}
	if reply == nil {
		return nil, nil
	}
	reply.Staged = l.entry.onCommit() // when it was sent first; it may have been committed since
	return &bulkLoad{node: n, applied: true, repeated: true, reply: *reply, after: l.state()}, nil
}

// definite tells whether a load is over once for all: it was read to its end, and each of its documents was applied or refused for itself.
// One that broke off, or gave up for want of room, or of which nothing was applied, is loaded anew when it is sent again. But an empty
// one of a coordinator is remembered: that is how it keeps a key where no document belongs.
func (b *bulkLoad) definite() bool {
	return (b.applied || !b.whole && b.reply.Failed == 0) && b.broken == nil && b.stopped == nil
}

// bulkLoad is one load under way.
type bulkLoad struct {
	node   *Node
	writer *writer
	start  time.Time
	lines  *front.LineReader
	ids    *front.IDSet

	// whole: when the stream breaks off, what was read whole of it is applied, so that the reply can tell one line from which on
	// nothing is in, also when the context has ended with the stream. Else the end of the context is the end of all work.
	whole bool

	chunk   batch
	long    *admit.Place // memory of a long line in the chunk
	applied bool         // something was applied
	// repeated: the load was taken before, by its key, and reply is what came of it then.
	repeated bool
	stopped  *api.Problem // why nothing more is applied
	broken   *api.Problem // why the stream could not be read to its end
	reply    api.BulkReply
	after    leaf.Snapshot // the index when the load was over, if it was there
}

// run reads to the end of the stream.
func (b *bulkLoad) run(ctx context.Context) {
	defer func() { b.long.Release() }()
	for {
		line, err := b.lines.Next(func() error { return b.chargeLong(ctx) })
		switch {
		case errors.Is(err, io.EOF):
			b.flush(ctx)
			return
		case errors.Is(err, front.ErrLineTooLong):
			limit := b.node.cfg.Limits.DocumentBytes
			b.reject(line, api.NewProblem(api.DocumentTooLarge, fmt.Sprintf("the line is longer than %d bytes", limit)).Within(limit))
		case err != nil:
			if errors.Is(err, errStopped) {
				b.reject(line, b.stopped)
				break
			}
			if p, ok := errors.AsType[*admit.Refusal](err); ok {
				b.flush(ctx) // what came before the line is whole
				if b.stopped == nil {
					b.stopped = front.RefusalProblem(p)
				}
				b.reject(line, b.stopped)
				break
			}
			b.broken = b.node.front.BodyProblem(ctx, err)
			b.broken.Line = line.Number
			if b.whole {
				ctx = context.WithoutCancel(ctx)
			}
			b.flush(ctx)
			return
		case b.stopped != nil:
			b.reject(line, b.stopped)
		default:
			from := len(b.chunk.raws)
			b.chunk.raws = append(b.chunk.raws, line.Bytes...)
			b.writer.parse(&b.chunk, line.Number, b.chunk.raws[from:len(b.chunk.raws):len(b.chunk.raws)])
		}
		if len(b.chunk.raws) >= bulkChunkBytes || len(b.chunk.items) >= b.node.chunkDocs || b.long != nil {
			b.flush(ctx)
		}
	}
}

// chargeLong charges memory for a line that is longer than the chunk's charge allows for. Waiting for it waits for other loads
// and not for this one, which holds nothing that they wait for longer than a chunk takes. It waits as long as for room in the
// memtables: a load that has begun is slowed down, not refused.
func (b *bulkLoad) chargeLong(ctx context.Context) error {
	switch {
	case b.stopped != nil:
		return errStopped // a line that is not tried needs no memory
	case b.long != nil:
		return nil
	}
	return b.patiently(ctx, func() (err error) {
		b.long, err = b.node.memory.Enter(ctx, longLineCharge(b.node.cfg.Limits))
		return err
	})
}

// patiently tries until there is room, or nothing has moved for Limits.BulkStall.
func (b *bulkLoad) patiently(ctx context.Context, try func() error) error {
	giveUp := time.Now().Add(b.node.cfg.Limits.BulkStall)
	for {
		err := try()
		wait, full := roomIn(err)
		if !full {
			return err
		}
		if time.Now().Add(wait).After(giveUp) {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}

// reject adds a document that is not even tried.
func (b *bulkLoad) reject(line front.Line, why *api.Problem) {
	b.chunk.items = append(b.chunk.items, item{line: line.Number, fail: why})
}

// flush applies the chunk and counts what became of its documents.
func (b *bulkLoad) flush(ctx context.Context) {
	if err := b.apply(ctx); err != nil {
		b.stopped = b.node.problem(ctx, err)
		for i := range b.chunk.items {
			if it := &b.chunk.items[i]; it.fail == nil {
				it.fail = b.stopped
			}
		}
	}
	for i := range b.chunk.items {
		it := &b.chunk.items[i]
		if it.fail == nil {
			b.applied = true
			b.reply.Indexed++
			if seen := b.ids.Add(it.key); seen {
				b.reply.Duplicates++
			}
			continue
		}
		b.reply.Failed++
		if len(b.reply.Errors) < b.node.cfg.Limits.BulkErrors {
			b.reply.Errors = append(b.reply.Errors, api.DocFailure{Line: it.line, ID: api.Clip(it.key), Code: string(it.fail.Code), Reason: it.fail.Detail})
		} else {
			b.reply.ErrorsOmitted++
		}
	}
	b.chunk.reset()
	if b.long != nil {
		b.chunk.raws = nil // the memory goes with its charge
		b.long.Release()
		b.long = nil
	}
}

// apply commits the chunk, waiting for room in the memtables where that is what is missing.
func (b *bulkLoad) apply(ctx context.Context) error {
	if b.chunk.valid == 0 {
		return nil
	}
	return b.patiently(ctx, func() error { return b.commit(ctx) })
}

func (b *bulkLoad) commit(ctx context.Context) error {
	if err := b.node.memtables.admit(); err != nil {
		return err
	}
	if b.long != nil {
		room, err := b.node.enterAnalysis(ctx, len(b.chunk.raws))
		if err != nil {
			return err
		}
		defer room.leave()
		if err := b.node.memtables.admit(); err != nil {
			return err
		}
	}
	place, err := b.node.writes.Enter(ctx, 1)
	if err != nil {
		return err
	}
	defer place.Release()
	return b.writer.commit(ctx, &b.chunk)
}

// roomIn tells whether an error is want of room that will pass, and how long to wait before the next try.
func roomIn(err error) (wait time.Duration, full bool) {
	const least, most = 5 * time.Millisecond, time.Second
	if e, ok := errors.AsType[*shard.OverloadError](err); ok {
		wait, full = e.RetryAfter, true
	} else if e, ok := errors.AsType[*memoryError](err); ok {
		wait, full = e.retry, true
	} else if e, ok := errors.AsType[*admit.Refusal](err); ok {
		wait, full = e.RetryAfter, true
	}
	return min(max(wait, least), most), full
}

// finish fills the reply.
func (b *bulkLoad) finish() {
	n, r := b.node, &b.reply
	n.documents.indexed.Add(r.Indexed)
	n.documents.rejected.Add(r.Failed)
	if b.applied {
		r.Shards, r.Members = 1, oneMember()
	}
	r.DuplicatesAtLeast = b.ids.Forgot()
	r.Inferred = b.writer.inferred
	r.OK = r.Failed == 0 && b.broken == nil
	r.TookMicros = api.Micros(time.Since(b.start))
	if b.broken != nil && b.applied {
		// The stream broke off after documents had gone in: the line it broke at is listed with the reason.
		r.Errors = append(r.Errors, api.DocFailure{Line: b.broken.Line, Code: string(b.broken.Code), Reason: b.broken.Detail})
	}
	if b.writer.has {
		b.after = b.writer.lease.state()
		r.Staged = b.applied && b.writer.lease.entry.onCommit()
	}
}

// refused is the problem of a load of which nothing was applied, nil for one whose reply is the answer.
func (b *bulkLoad) refused() *api.Problem {
	r := &b.reply
	if b.applied || r.OK {
		return nil
	}
	p := &api.Problem{Code: api.NothingApplied, Detail: fmt.Sprintf("none of the %d documents was applied; see errors", r.Failed)}
	if b.stopped != nil {
		stopped := *b.stopped
		p = &stopped
		p.Line = 0
	} else if b.broken != nil && r.Failed == 0 {
		return b.broken
	}
	p.Extra = r.AppendMembers(nil)
	return p
}

// errStopped is a long line after a load has stopped.
var errStopped = errors.New("the load has stopped")
