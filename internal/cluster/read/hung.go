package read

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-search/weft/internal/leaf"
)

// run makes the call of the member, and ends it where the member does not even answer pings.
func (l memberLeaf) run(ctx context.Context, t task) (any, error) {
	switch t.(type) {
	case streamTask, pingTask: // those have bounds of their own
		return t.run(ctx, l.m.Leaf)
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &pinging{m: l.m.Leaf, ctx: watched, cancel: cancel, after: l.hung, silent: &l.m.Silent}
	first := l.hung
	if l.m.Silent.Load() {
		first = 0
	}
	w.timer = time.AfterFunc(first, w.look)
	defer w.end()
	v, err := t.run(watched, l.m.Leaf)
	if err == nil && l.m.Silent.Load() {
		l.m.Silent.Store(false)
	}
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(watched), errHung) {
		err = &leaf.TransportError{Address: l.m.Addr, Call: classNames[t.class()], Cause: errHung}
	}
	return v, err
}

// errHung is why a call was ended whose member does not answer pings.
var errHung = errors.New("it does not answer, not even to pings")

// pings is how many have to be unanswered, one after the other.
const pings = 2

// pinging pings the member of a call that takes long.
type pinging struct {
	m      leaf.Member
	ctx    context.Context // of the call
	cancel context.CancelCauseFunc
	after  time.Duration
	silent *atomic.Bool // it did not answer pings when it was last pinged: one more, at once and soon over, is enough
	missed int          // pings

	timer *time.Timer
	mu    sync.Mutex
	over  bool
	looks sync.WaitGroup
}

// look pings once, and sets the timer again. It runs on the goroutine of the timer.
func (w *pinging) look() {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	w.looks.Add(1)
	w.mu.Unlock()
	defer w.looks.Done()
	patience, most := w.after/2, pings
	if w.silent.Load() {
		patience, most = w.after/8, 1
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	_, err := w.m.Ping(ctx)
	cancel()
	if w.ctx.Err() != nil {
		return
	}
	next := w.after / 2
	if _, silent := leaf.Silent(err); err == nil || !silent {
		w.missed = 0
		w.silent.Store(false)
	} else {
		if w.missed++; w.missed >= most {
			w.silent.Store(true)
			w.cancel(errHung)
			return
		}
		next = 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.timer.Reset(next)
	}
}

// end waits for a look under way, which ends with the call.
func (w *pinging) end() {
	w.mu.Lock()
	w.over = true
	w.timer.Stop()
	w.mu.Unlock()
	w.cancel(nil)
	w.looks.Wait()
}
