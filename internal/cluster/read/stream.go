package read

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// errStopped ends streams of which nothing more is wanted.
var errStopped = errors.New("the stream is not read any more")

// streams are those of one call, a goroutine for each group that takes part.
type streams[T any] struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
	began  time.Time
	all    []*stream[T] // by group; nil where none takes part
}

// stream is that of one group. What is below over is to be read when it is.
type stream[T any] struct {
	items chan T
	over  bool // the reader has seen its end

	from *members.Member
	meta leaf.Meta
	took time.Duration
	err  error
}

func newStreams[T any](ctx context.Context, groups int) *streams[T] {
	s := &streams[T]{began: time.Now(), all: make([]*stream[T], groups)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// giver runs a stream at a member: it calls heard with everything that the member gives, and gives items to send, which waits until one is
// taken. Where it fails it may be run again at another member, and is to go on where it was; it never runs twice at once.
type giver[T any] func(ctx context.Context, m leaf.Member, heard func(func() error) error, send func(T) error) (leaf.Meta, error)

// start lets run give the items of group i to its stream. A member that gives nothing for Options.StreamIdle is left for another one; the time that
// items wait to be taken is none of the member's.
func (s *streams[T]) start(r *Reader, i int, g *group, run giver[T]) {
	idle := r.o.StreamIdle
	st := &stream[T]{items: make(chan T)}
	s.all[i] = st
	if st.err = g.lost(r.o.Standing); st.err != nil {
		close(st.items)
		return
	}
	var lost error // of a member that did not say it lacks the index
	t := streamTask(func(ctx context.Context, m leaf.Member) (leaf.Meta, error) {
		w, ctx := watch(ctx, idle)
		defer w.end()
		meta, err := run(ctx, m, w.heard, func(item T) error {
			select {
			case st.items <- item:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil && w.stalled() {
			err = &StalledError{Idle: idle}
		}
		if err != nil && !hasCode(err, api.IndexNotFound) {
			lost = err
		}
		return meta, err
	})
	s.wait.Go(func() {
		defer close(st.items)
		defer func() {
			st.took = time.Since(s.began)
			if v := recover(); v != nil {
				st.err = &serve.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		got, err := g.streams.Call(s.ctx, t)
		if err != nil && lost != nil && hasCode(err, api.IndexNotFound) {
			// It has missed that the index was made: what the other one held, or the rest of it, is missing.
			err = &leaf.TransportError{Address: g.joined, Call: classNames[classStream], Cause: lost}
		}
		if err != nil {
			st.err = err
			return
		}
		st.from, st.meta = got.from, got.value.(leaf.Meta)
	})
}

// next takes the next item; false at the end.
func (st *stream[T]) next() (item T, ok bool) {
	if st.over {
		return item, false
	}
	item, ok = <-st.items
	st.over = !ok
	return item, ok
}

// failed tells whether the stream has ended before its time. A group without the index has no items.
func (st *stream[T]) failed() bool {
	return st.over && st.err != nil && !hasCode(st.err, api.IndexNotFound)
}

// stop ends the streams and waits for them. Those that had not ended by themselves have no error.
func (s *streams[T]) stop() {
	s.cancel(errStopped)
	s.wait.Wait()
	for _, st := range s.all {
		if st != nil && !st.over {
			st.over, st.err = true, nil
		}
	}
}

// settle ends the streams and says what came of them. It fails if one of them did.
func (s *streams[T]) settle(r *Reader, c *running, p *plan, index string) (*gathered[leaf.Meta], error) {
	took := time.Since(s.began)
	s.stop()
	g := &gathered[leaf.Meta]{plan: p, index: index, parts: make([]part[leaf.Meta], len(p.groups)), began: s.began, took: took}
	for i, st := range s.all {
		of := &g.parts[i]
		if st == nil {
			of.outcome = serve.Skipped
			continue
		}
		of.from, of.took, of.err, of.outcome = st.from, st.took, st.err, serve.OutcomeOf(st.err)
		if st.err == nil {
			of.reply = &st.meta
		}
	}
	return g, settle(r, c, opStream, g, &round{p: p, each: make([]task, len(p.groups))})
}

// StalledError says that a member has given nothing of a stream for too long. Its address is that of the leaf.TransportError around it.
type StalledError struct{ Idle time.Duration }

// Error says for how long.
func (e *StalledError) Error() string {
	return fmt.Sprintf("nothing of the stream came for %v", e.Idle)
}

// watcher ends a context when nothing was heard of a member for some time.
type watcher struct {
	idle   time.Duration
	timer  *time.Timer
	cancel context.CancelFunc
	ctx    context.Context // that of the member's call
	parent context.Context
}

func watch(parent context.Context, idle time.Duration) (*watcher, context.Context) {
	ctx, cancel := context.WithCancel(parent)
	w := &watcher{idle: idle, cancel: cancel, ctx: ctx, parent: parent}
	w.timer = time.AfterFunc(idle, cancel)
	return w, ctx
}

// heard runs fn on what a member has given; the time that it takes does not count. Nothing is taken any more of a member that was given up,
// so that what another one gives in its place follows what was taken.
func (w *watcher) heard(fn func() error) error {
	if !w.timer.Stop() {
		return context.Canceled
	}
	defer w.timer.Reset(w.idle)
	return fn()
}

// stalled tells whether it was the watcher that has ended the context.
func (w *watcher) stalled() bool { return w.ctx.Err() != nil && w.parent.Err() == nil }

func (w *watcher) end() {
	w.timer.Stop()
	w.cancel()
}

// streamTask is a stream as a task.
type streamTask func(ctx context.Context, m leaf.Member) (leaf.Meta, error)

func (streamTask) class() class { return classStream }

// said tells nothing: what a stream gives is taken before it ends.
func (streamTask) said(any) (string, *leaf.Meta) { return "", nil }

func (t streamTask) run(ctx context.Context, m leaf.Member) (any, error) { return t(ctx, m) }
