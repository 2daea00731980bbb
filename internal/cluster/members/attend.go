package members

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/leaf"
)

// ErrHung is why a call was ended, or not made, whose member does not answer pings.
var ErrHung = errors.New("it does not answer, not even to pings")

// DefaultHung is after how long the member of a call is pinged, where nothing else is said.
const DefaultHung = 4 * time.Second

// unansweredPings is how many have to be unanswered, one after the other.
const unansweredPings = 2

// Attention watches over one call of a member: where it takes long, the member is pinged, and where it answers no pings the call is ended. So a
// member whose process is stopped, or whose machine is gone without a word, is not waited for as one that works is.
type Attention struct {
	m      *Member
	ctx    context.Context // of the call
	cancel context.CancelCauseFunc
	after  time.Duration
	missed int // pings

	timer *time.Timer
	mu    sync.Mutex
	over  bool
	looks sync.WaitGroup
}

// Attend begins to watch over a call. The first ping is sent after the time that is given, and each is waited for half as long; at a member that
// is Silent the first is sent at once, and it alone counts, an eighth of that time. End has to be called.
func (m *Member) Attend(ctx context.Context, after time.Duration) *Attention {
	a := &Attention{m: m, after: after}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	first := after
	if m.Silent.Load() {
		first = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(first, a.look)
	return a
}

// Context is that of the call. Its cause is ErrHung where the member answers no pings.
func (a *Attention) Context() context.Context { return a.ctx }

// look pings once, and sets the timer again. It runs on the goroutine of the timer.
func (a *Attention) look() {
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return
	}
	a.looks.Add(1)
	a.mu.Unlock()
	defer a.looks.Done()
	patience, most := a.after/2, unansweredPings
	if a.m.Silent.Load() {
		patience, most = a.after/8, 1
	}
	answered := a.m.answers(a.ctx, patience)
	if a.ctx.Err() != nil {
		return
	}
	next := a.after / 2
	if answered {
		a.missed = 0
		a.m.Silent.Store(false)
	} else {
		if a.missed++; a.missed >= most {
			a.m.Silent.Store(true)
			a.cancel(ErrHung)
			return
		}
		next = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.timer.Reset(next)
	}
}

// End ends the watch behind the call, of which err is the error, and waits for a ping under way. hung tells whether the call has failed because the
// member answered no pings.
func (a *Attention) End(err error) (hung bool) {
	hung = err != nil && errors.Is(context.Cause(a.ctx), ErrHung)
	a.mu.Lock()
	a.over = true
	a.timer.Stop()
	a.mu.Unlock()
	a.cancel(nil)
	a.looks.Wait()
	if err == nil && a.m.Silent.Load() {
		a.m.Silent.Store(false)
	}
	return hung
}

// answers tells whether a member answers a ping in time. A refusal is an answer, and so is any other failure that has been heard of it; the end of ctx
// is none.
func (m *Member) answers(ctx context.Context, patience time.Duration) bool {
	own, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := m.Leaf.Ping(own)
	if err == nil {
		return true
	}
	_, silent := leaf.Silent(err)
	return !silent && own.Err() == nil
}

// Gone tells whether a member that was Silent still is, before a call is made that would wait for nothing, and that it may take up long after. It is
// pinged at most once in an eighth of the time that is given, and waited for no longer; who comes meanwhile is told what was known. A member that
// was not Silent is not.
func (m *Member) Gone(ctx context.Context, after time.Duration) bool {
	if !m.Silent.Load() {
		return false
	}
	now, last := time.Now(), m.pinged.Load()
	if last != nil && now.Sub(*last) < after/8 || !m.pinged.CompareAndSwap(last, &now) {
		return true
	}
	if ctx.Err() == nil && m.answers(ctx, after/8) {
		m.Silent.Store(false)
		return false
	}
	end := time.Now()
	m.pinged.Store(&end)
	return true
}
