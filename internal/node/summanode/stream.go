package summanode

import (
	"container/list"
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/summa"
)

const (
	// pause is how long a document of a stream is in hand at most before it is applied, if its writer can be.
	pause = time.Second
	// runStep is how much memory for the documents of a run is taken at a time.
	runStep = 64 << 10
	// sourceGrowth is more than a source takes for each of its bytes while it is made.
	sourceGrowth = 1.5
)

var (
	errManyRefused = &summa.Error{Code: codes.ResourceExhausted, Text: "too many documents of the stream were refused; the documents so far are in"}
	errSilent      = &summa.Error{Code: codes.ResourceExhausted, Text: "the stream was silent for long while others waited for its place; the documents so far are in"}
)

// indexing is a stream of documents. Documents of one index that follow one another are a run: they are converted as they come, and applied
// when there are many, when others of the stream have to have the memory, or after a moment. So what is in hand is never waited for.
type indexing struct {
	c *call
	// ctx is that of writing. A writer that was admitted applies what it has, whatever becomes of its caller.
	ctx  context.Context
	idle *time.Timer

	mu sync.Mutex // of what follows; not held while a message is waited for
	w  *writer    // of the run; nil when there is none
	n  int        // messages of the run
	// bytes are those of the messages, size is what all of the run takes, memory what is charged of that.
	bytes  int
	size   int64
	memory claim

	out     *summapb.IndexDocumentsResponse
	refused refused // the errors in out
	late    error   // of a run that was applied while the next message was waited for
}

// refused is memory for the errors of a stream, which are kept to its end.
type refused struct {
	gate   *admit.Gate
	bytes  int
	places []*admit.Place
	held   int
}

// add charges more; false if there is no room.
func (r *refused) add(bytes int) bool {
	r.bytes += bytes
	for r.bytes-freeBytes > r.held {
		place, err := r.gate.TryEnter(runStep)
		if err != nil {
			return false
		}
		r.places = append(r.places, place)
		r.held += runStep
	}
	return true
}

func (r *refused) release() {
	for _, p := range r.places {
		p.Release()
	}
}

// indexDocuments takes a stream.
func (s *Server) indexDocuments(c *call) error {
	x := &indexing{c: c, ctx: context.WithoutCancel(c.ctx), out: &summapb.IndexDocumentsResponse{}, refused: refused{gate: s.refused}}
	unhook := context.AfterFunc(s.draining, func() { c.cancel(errClosing) })
	defer unhook()
	x.idle = time.AfterFunc(pause, x.pause)
	x.idle.Stop()
	c.yield = x.pause
	defer x.end()
	for at := 0; ; at++ {
		m := &summapb.IndexDocumentRequest{}
		err := x.receive(m)
		if err == io.EOF {
			return c.send(x.out)
		}
		if err == nil {
			err = x.take(at, m)
		}
		if err != nil {
			return err
		}
	}
}

// receive waits for the next message. When it has come the stream has a place of its connection. After an error, io.EOF too, what came
// before is applied.
func (x *indexing) receive(m *summapb.IndexDocumentRequest) error {
	c, placed := x.c, false
	quiet := c.s.quiet.add(c.cancel)
	c.arrives = func() error {
		c.s.quiet.remove(quiet)
		if err := c.conn.Enter(c.ctx); err != nil {
			return err
		}
		placed = true
		return nil
	}
	err := c.receive(m)
	c.s.quiet.remove(quiet)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.late != nil {
		err = x.late
	} else if err != nil {
		if end := x.finish(); end != nil {
			err = end
		}
	}
	if err != nil && placed {
		c.conn.Leave()
	}
	return err
}

// take converts a document and puts it into the run. It gives the place back.
func (x *indexing) take(at int, m *summapb.IndexDocumentRequest) error {
	defer x.c.conn.Leave()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.c
	if x.late != nil {
		return x.late
	}
	if x.w != nil && (x.w.index.Name != m.IndexName || !x.room(c.size, c.memory.held)) {
		if err := x.finish(); err != nil {
			return err
		}
	}
	if x.w == nil {
		i, err := c.s.use(x.ctx, m.IndexName)
		if err != nil {
			return err
		}
		x.w = c.s.writer(x.ctx, i, false)
		x.idle.Reset(pause)
	}
	x.size += c.size
	c.s.memory.move(&c.memory, &x.memory)
	n := proto.Size(m)
	before := x.w.bytes
	if err := x.w.add(at, m.Fields); err != nil {
		return err
	}
	x.n++
	x.bytes += n
	source := int64(sourceGrowth * float64(max(0, x.w.bytes-before)))
	if x.n >= runDocs || x.bytes >= runBytes || !x.room(source, 0) {
		return x.finish()
	}
	x.size += source
	return nil
}

// room tells whether the run may take so much more, of which some is charged already. What is missing is charged.
func (x *indexing) room(bytes, charged int64) bool {
	more := x.size + bytes - freeBytes - x.memory.held - charged
	if more <= 0 {
		return true
	}
	m := x.c.s.memory
	return m.try(x.ctx, &x.memory, max(more, runStep)) || more < runStep && m.try(x.ctx, &x.memory, more)
}

// finish applies the run and gives its memory back. Called with the lock held.
func (x *indexing) finish() error {
	w := x.w
	if w == nil {
		return nil
	}
	x.idle.Stop()
	err := w.flush(0)
	w.count()
	w.index.Release()
	x.out.IndexedCount += uint32(w.accepted)
	x.out.Errors = append(x.out.Errors, w.sorted()...)
	x.w = nil
	x.drop()
	if room := x.refused.add(w.errorBytes); err == nil && (!room || x.refused.bytes > x.c.encode) {
		err = errManyRefused
	}
	return err
}

// drop gives back what the run has.
func (x *indexing) drop() {
	x.n, x.bytes, x.size = 0, 0, 0
	x.c.s.memory.shrink(&x.memory, 0, 0)
}

// pause applies what is in hand while the next message is waited for, or memory for it.
func (x *indexing) pause() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.late == nil {
		x.late = x.finish()
	}
}

// end gives up what there is. It does nothing after finish.
func (x *indexing) end() {
	x.idle.Stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.w != nil {
		x.w.index.Release()
		x.w = nil // pause may run once more
		x.drop()
	}
	x.refused.release()
}

// quiet are the streams that wait for a message, the one first that waits longest.
type quiet struct {
	mu   sync.Mutex
	list list.List // of *quietStream
}

type quietStream struct {
	since  time.Time
	cancel context.CancelCauseFunc
	at     *list.Element // nil when it does not wait any more
}

func (q *quiet) add(cancel context.CancelCauseFunc) *quietStream {
	s := &quietStream{since: time.Now(), cancel: cancel}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.at = q.list.PushBack(s)
	return s
}

func (q *quiet) remove(s *quietStream) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.at != nil {
		q.list.Remove(s.at)
		s.at = nil
	}
}

// end ends the stream that waits longest, if that is at least so long; false if there is none.
func (q *quiet) end(after time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.list.Front()
	if e == nil {
		return false
	}
	s := e.Value.(*quietStream)
	if time.Since(s.since) < after {
		return false
	}
	q.list.Remove(e)
	s.at = nil
	s.cancel(errSilent)
	return true
}

// enterStream takes a place among the streams. Where there is none the one that was silent longest makes room, if that is long.
func (s *Server) enterStream(ctx context.Context) (*admit.Place, error) {
	place, err := s.streams.TryEnter(1)
	if err == nil || !s.quiet.end(s.cfg.Limits.Stall) {
		return place, err
	}
	return s.streams.Enter(ctx, 1)
}
