package summanode

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/obs"
)

// memory shares what messages may take among the calls, so that each that has begun can end.
//
// A call takes memory as its message arrives, so that nobody keeps much by a promise. But when several have a part each and nothing is left,
// all of them wait for each other. So a call says beforehand what it is going to need, and is given more only while there is an order in
// which all that hold something can have what they said, one behind the other.
type memory struct {
	limit int64
	// charge counts what is given out; it has room for it.
	charge func(ctx context.Context, have, more int64) (given int64, release func(), err error)

	mu    sync.Mutex
	held  int64
	holds map[*claim]struct{} // of calls that hold something
	queue []*memoryWaiter     // as they came
	moves uint64              // how often some was taken or given back
}

// claim is what one call has, and what it says that it will need in all.
type claim struct {
	held, most int64
	pieces     []memoryPiece // in the order in which they were taken
}

type memoryPiece struct {
	bytes   int64
	release func()
}

type memoryWaiter struct {
	c    *claim
	more int64
	got  chan struct{} // closed when it has it
}

func newMemory(h Host) *memory {
	return &memory{limit: h.MemoryLimit(), charge: h.Charge, holds: map[*claim]struct{}{}}
}

// watch makes the metrics that gates have.
func (m *memory) watch(metrics *obs.Metrics) {
	metrics.GaugeFunc("weft_admitted_summa_bytes", "What the messages of calls, and what they become, are charged with.", func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(m.held)
	})
	metrics.GaugeFunc("weft_waiting_for_summa_bytes", "Calls that wait for memory for their messages.", func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(len(m.queue))
	})
}

// safe tells whether all that hold something can have what they said if c takes more. Called with the lock held.
func (m *memory) safe(c *claim, more int64) bool {
	free := m.limit - m.held - more
	if free < 0 {
		return false
	}
	// An eighth is left out, so that one who says that it needs everything, and sends little, does not keep others from beginning.
	need := func(o *claim, held int64) int64 { return max(0, min(o.most, m.limit-m.limit/8)-held) }
	most := need(c, c.held+more)
	for o := range m.holds {
		if o != c {
			most = max(most, need(o, o.held))
		}
	}
	if most <= free {
		return true // any order
	}
	type left struct{ held, need int64 }
	list := make([]left, 0, len(m.holds)+1)
	add := func(o *claim, held int64) { list = append(list, left{held, need(o, held)}) }
	for o := range m.holds {
		if o != c {
			add(o, o.held)
		}
	}
	add(c, c.held+more)
	slices.SortFunc(list, func(a, b left) int { return int(min(max(a.need-b.need, -1), 1)) })
	for _, l := range list {
		if l.need > free {
			return false
		}
		free += l.held
	}
	return true
}

// give lets c have more. Called with the lock held.
func (m *memory) give(c *claim, more int64) {
	m.moves++
	m.held += more
	c.held += more
	m.holds[c] = struct{}{}
}

// grant looks who can go on. Calls that hold something pass those that have yet to begin, whose order is kept. Called with the lock held.
func (m *memory) grant() {
	stopped := false
	m.queue = slices.DeleteFunc(m.queue, func(w *memoryWaiter) bool {
		if w.c.held == 0 && stopped || !m.safe(w.c, w.more) {
			stopped = stopped || w.c.held == 0
			return false
		}
		m.give(w.c, w.more)
		close(w.got)
		return true
	})
}

// take takes more for a call. It waits as long as others go on, but no longer than longest, and gives up when none takes or gives back
// anything for idle. The error is an *admit.Refusal, or the cause of the end of ctx. A call that wants more than there is in all has it to itself.
func (m *memory) take(ctx context.Context, c *claim, more int64, idle, longest time.Duration) error {
	m.mu.Lock()
	if more = min(more, m.limit-c.held); more <= 0 {
		m.mu.Unlock()
		return nil
	}
	c.most = max(c.most, c.held+more)
	if (c.held > 0 || !slices.ContainsFunc(m.queue, func(w *memoryWaiter) bool { return w.c.held == 0 })) && m.safe(c, more) {
		m.give(c, more)
		m.mu.Unlock()
		return m.counted(ctx, c, more)
	}
	w := &memoryWaiter{c, more, make(chan struct{})}
	m.queue = append(m.queue, w)
	seen := m.moves
	m.mu.Unlock()
	end := time.Now().Add(longest)
	watch := time.NewTimer(min(idle, longest))
	defer watch.Stop()
	for {
		var err error
		select {
		case <-w.got:
			return m.counted(ctx, c, more)
		case <-watch.C:
			err = &admit.Refusal{Gate: front.GateMemory, Limit: m.limit, RetryAfter: idle, Waited: true}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		m.mu.Lock()
		select {
		case <-w.got:
			m.mu.Unlock()
			return m.counted(ctx, c, more)
		default:
		}
		if left := time.Until(end); ctx.Err() == nil && m.moves != seen && left > 0 {
			seen = m.moves
			m.mu.Unlock()
			watch.Reset(min(idle, left))
			continue
		}
		m.queue = slices.DeleteFunc(m.queue, func(q *memoryWaiter) bool { return q == w })
		m.grant()
		m.mu.Unlock()
		return err
	}
}

// try takes more for a call if it is there at once.
func (m *memory) try(ctx context.Context, c *claim, more int64) bool {
	m.mu.Lock()
	most := c.most
	c.most = max(c.most, c.held+more)
	if slices.ContainsFunc(m.queue, func(w *memoryWaiter) bool { return w.c.held == 0 }) || !m.safe(c, more) {
		c.most = most
		m.mu.Unlock()
		return false
	}
	m.give(c, more)
	m.mu.Unlock()
	return m.counted(ctx, c, more) == nil
}

// move gives all that one claim has to another, which will need no more than it has then.
func (m *memory) move(from, to *claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	to.pieces = append(to.pieces, from.pieces...)
	if to.held += from.held; to.held > 0 {
		m.holds[to] = struct{}{}
	}
	delete(m.holds, from)
	*from = claim{}
	to.most = to.held
	m.grant()
}

// counted counts what a call was given.
func (m *memory) counted(ctx context.Context, c *claim, more int64) error {
	_, release, err := m.charge(ctx, c.held-more, more)
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.back(c, more)
		return err
	}
	c.pieces = append(c.pieces, memoryPiece{more, release})
	return nil
}

// back takes bytes from a call. Called with the lock held.
func (m *memory) back(c *claim, bytes int64) {
	if bytes == 0 {
		return
	}
	m.held -= bytes
	if c.held -= bytes; c.held == 0 {
		delete(m.holds, c)
	}
	m.moves++
	m.grant()
}

// shrink gives back of what a call has all but so much, and a little more where pieces are large; most is what it will need from then on.
func (m *memory) shrink(c *claim, to, most int64) {
	n := int64(0)
	for len(c.pieces) > 0 && c.held-n-c.pieces[0].bytes >= to {
		n += c.pieces[0].bytes
		c.pieces[0].release()
		c.pieces = c.pieces[1:]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c.most = max(most, c.held-n)
	m.back(c, n)
}
