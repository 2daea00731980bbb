package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errSilent is told to a call that gave its place up.
var errSilent = status.Error(codes.ResourceExhausted, "no message came for long and other calls wait for the place; retry later")

// places are those of calls that wait for their clients: streams, and calls whose message has not come. A client may be silent for as long as
// it likes while there are places; where there are none, the call that has been silent the longest gives its own up, so that silent clients
// keep nobody out for good; nor does what they hold of the memory.
type places struct {
	most    int
	silence time.Duration // for which a call keeps its place in any case
	base    time.Time

	mu   sync.Mutex
	held map[*place]struct{}
}

// place is one of them, and belongs to one call.
type place struct {
	of  *places
	end context.CancelCauseFunc // of the call

	since atomic.Int64 // when the wait for the message began, since the base; below 0: it does not wait
	came  atomic.Int64 // bytes of the message that have come
	holds atomic.Int64 // bytes that are charged for the call
}

// worthOfTime is how many bytes of a message are worth a second: who sends so fast is not silent, however long the message is.
const worthOfTime = 64 * kib

func newPlaces(most int, silence time.Duration) *places {
	return &places{most: most, silence: silence, base: time.Now(), held: map[*place]struct{}{}}
}

// enter takes a place for a call that waits for its first message; end ends that call from outside.
func (p *places) enter(end context.CancelCauseFunc) (*place, error) {
	one := &place{of: p, end: end}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) >= p.most && !p.vacate(0) {
		return nil, errCalls
	}
	one.waits()
	p.held[one] = struct{}{}
	return one, nil
}

// yield is vacate for who needs memory: it ends a call that holds some.
func (p *places) yield() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vacate(1)
}

// vacate ends the call that has been silent the longest, of those that hold so many bytes; false: none has been for long. Called with the lock
// held.
func (p *places) vacate(holding int64) bool {
	var longest *place
	most := p.silence
	now := int64(time.Since(p.base))
	for one := range p.held {
		since := one.since.Load()
		if since < 0 || one.holds.Load() < holding {
			continue
		}
		silent := time.Duration(now-since) - time.Duration(one.came.Load())*time.Second/worthOfTime
		if silent >= most {
			longest, most = one, silent
		}
	}
	if longest == nil {
		return false
	}
	delete(p.held, longest)
	longest.end(errSilent)
	return true
}

// leave gives a place back, if it was not given up.
func (one *place) leave() {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	delete(one.of.held, one)
}

// waits says that the call waits for a message.
func (one *place) waits() {
	one.came.Store(0)
	one.since.Store(int64(time.Since(one.of.base)))
}

// works says that the message is there.
func (one *place) works() { one.since.Store(-1) }

// waited says that it was the broker that kept the client waiting for so long.
func (one *place) waited(d time.Duration) { one.since.Add(int64(d)) }
