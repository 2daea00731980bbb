package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard"
)

// bulkTypes are the content types of a bulk load; each holds one JSON object on a line.
var bulkTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", typeJSON}

// bulk loads a stream of documents, one on each line.
//
// The load as a whole is admitted first: a place among the bulk loads and the memory of its chunks. Then lines are read into a
// chunk and typed, and full chunks are applied in order, each durable and visible when it is done; the stream is never held as a
// whole. When memory for documents is full in the middle, the load stops reading, which slows its sender down, and goes on when
// there is room; only when nothing moves for Limits.BulkStall does it give up. When it gives up, or the index stops taking
// writes, the documents of the chunk in hand and everything after it are read and listed as failed with the reason, so that the
// sender knows line by line what is in.
func (n *Node) bulk(c *call) *api.Problem {
	name, prob := c.index()
	if prob != nil {
		return prob
	}
	if _, prob := c.wants(bulkTypes...); prob != nil {
		return prob
	}
	place, err := n.bulks.Enter(c.ctx, 1)
	if err != nil {
		return n.problem(c.ctx, err)
	}
	defer func() { c.leave(n, place) }()
	load, prob := n.load(c.ctx, name, c.start, true, func(ctx context.Context) (io.Reader, func()) { return c.timed(n, ctx) })
	if prob != nil {
		return prob
	}
	if p := load.refused(); p != nil {
		c.size = len(p.Extra)
		return p
	}
	status := http.StatusOK
	if !load.reply.OK {
		status = http.StatusMultiStatus
	}
	return c.json(n, status, load.reply.AppendJSON(nil))
}

// load runs a load that has its place. open gives the stream, whose reads have to fail when their context ends, and what is to be
// called when it is not read any more. For whole see bulkLoad.
func (n *Node) load(ctx context.Context, name string, start time.Time, whole bool, open func(ctx context.Context) (io.Reader, func())) (*bulkLoad, *api.Problem) {
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
	w := &writer{node: n, name: name, took: func(l lease) {
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
	load := &bulkLoad{node: n, writer: w, start: start, whole: whole, lines: newLineReader(src, int(n.cfg.Limits.DocumentBytes)), ids: newIDSet(n.cfg.Limits.BulkIDs)}
	load.run(ctx)
	load.finish()
	return load, nil
}

// bulkLoad is one load under way.
type bulkLoad struct {
	node   *Node
	writer *writer
	start  time.Time
	lines  *lineReader
	ids    *idSet

	// whole: when the stream breaks off, what was read whole of it is applied, so that the reply can tell one line from which on
	// nothing is in, also when the context has ended with the stream. Else the end of the context is the end of all work.
	whole bool

	chunk   batch
	long    *admit.Place // memory of a long line in the chunk
	applied bool         // something was applied
	stopped *api.Problem // why nothing more is applied
	broken  *api.Problem // why the stream could not be read to its end
	reply   api.BulkReply
	after   leaf.Snapshot // the index when the load was over, if it was there
}

// run reads to the end of the stream.
func (b *bulkLoad) run(ctx context.Context) {
	defer func() { b.long.Release() }()
	for {
		line, err := b.lines.next(func() error { return b.chargeLong(ctx) })
		switch {
		case errors.Is(err, io.EOF):
			b.flush(ctx)
			return
		case errors.Is(err, errLineTooLong):
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
					b.stopped = refusalProblem(p)
				}
				b.reject(line, b.stopped)
				break
			}
			b.broken = b.node.bodyProblem(ctx, err)
			b.broken.Line = line.number
			if b.whole {
				ctx = context.WithoutCancel(ctx)
			}
			b.flush(ctx)
			return
		case b.stopped != nil:
			b.reject(line, b.stopped)
		default:
			from := len(b.chunk.raws)
			b.chunk.raws = append(b.chunk.raws, line.bytes...)
			b.writer.parse(&b.chunk, line.number, b.chunk.raws[from:len(b.chunk.raws):len(b.chunk.raws)])
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
func (b *bulkLoad) reject(line line, why *api.Problem) {
	b.chunk.items = append(b.chunk.items, item{line: line.number, fail: why})
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
			if seen := b.ids.add(it.key); seen {
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
	r.DuplicatesAtLeast = b.ids.forgot
	r.Inferred = b.writer.inferred
	r.OK = r.Failed == 0 && b.broken == nil
	r.TookMicros = api.Micros(time.Since(b.start))
	if b.broken != nil && b.applied {
		// The stream broke off after documents had gone in: the line it broke at is listed with the reason.
		r.Errors = append(r.Errors, api.DocFailure{Line: b.broken.Line, Code: string(b.broken.Code), Reason: b.broken.Detail})
	}
	if b.writer.has {
		b.after = b.writer.lease.state()
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

// line is one line of a stream, without its end.
type line struct {
	number int // from 1
	bytes  []byte
}

// errStopped is a long line after a load has stopped.
var errStopped = errors.New("the load has stopped")

// errLineTooLong is a line over the limit. It was read to its end.
var errLineTooLong = errors.New("line is too long")

// lineReader cuts a stream into lines of bounded length. Lines of white space only are passed over. A byte order mark at the
// start of the stream is, too.
type lineReader struct {
	r      *bufio.Reader
	most   int
	number int
	buf    []byte
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 256<<10), most: most}
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// next returns the next line; its bytes die at the next call. charge is called before a line takes more than longLine bytes; its
// error is returned when the line has been read to its end. A last line without an end counts only if the stream ended well.
func (l *lineReader) next(charge func() error) (line, error) {
	for {
		l.number++
		b, err := l.read(charge)
		if l.number == 1 {
			b = bytes.TrimPrefix(b, byteOrderMark)
		}
		b = bytes.TrimSpace(b)
		at := line{l.number, b}
		switch {
		case errors.Is(err, io.EOF) && len(b) > 0:
			return at, nil // the next call finds the end again
		case err != nil:
			return at, err
		case len(b) > 0:
			return at, nil
		}
	}
}

func (l *lineReader) read(charge func() error) ([]byte, error) {
	b, err := l.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return b, err
	}
	if cap(l.buf) > longLine {
		l.buf = nil
	}
	l.buf = append(l.buf[:0], b...)
	var refused error
	for {
		b, err = l.r.ReadSlice('\n')
		switch {
		case refused != nil:
		case len(l.buf)+len(b) > l.most:
			refused, l.buf = errLineTooLong, l.buf[:0]
		default:
			if len(l.buf)+len(b) > longLine {
				if refused = charge(); refused != nil {
					l.buf = l.buf[:0]
					break
				}
			}
			l.buf = append(l.buf, b...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if refused != nil && (err == nil || errors.Is(err, io.EOF)) {
			return nil, refused
		}
		return l.buf, err
	}
}

// idSet remembers ids by a 64-bit hash, up to a number: 8 to 16 bytes for each. Two ids with one hash would be counted as a
// duplicate, which among eight million ids happens once in half a million loads.
type idSet struct {
	table  []uint64 // open addressing; 0 is free
	n      int
	most   int
	forgot bool // ids came after most were remembered
}

func newIDSet(most int) *idSet { return &idSet{most: most} }

// add remembers id and tells whether it was there.
func (s *idSet) add(id string) bool {
	h := xxh3.HashString(id)
	if h == 0 {
		h = 1
	}
	if len(s.table) > 0 {
		mask := uint64(len(s.table) - 1)
		for i := h & mask; s.table[i] != 0; i = (i + 1) & mask {
			if s.table[i] == h {
				return true
			}
		}
	}
	if s.n >= s.most {
		s.forgot = true
		return false
	}
	if s.n*2 >= len(s.table) {
		s.grow()
	}
	s.insert(h)
	s.n++
	return false
}

func (s *idSet) insert(h uint64) {
	mask := uint64(len(s.table) - 1)
	i := h & mask
	for s.table[i] != 0 {
		i = (i + 1) & mask
	}
	s.table[i] = h
}

func (s *idSet) grow() {
	old := s.table
	s.table = make([]uint64, max(1024, 2*len(old)))
	for _, h := range old {
		if h != 0 {
			s.insert(h)
		}
	}
}
