package grpcraw

import (
	"context"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// Ask is one of several calls that are made at once.
type Ask struct {
	Node *Node
	// Message is the request, as that of a Call. Most and Room are as in Do.
	Message mem.BufferSlice
	Most    int
	Room    Room
	// Err, if not nil, is how the call has ended already: nothing is sent.
	Err error
}

// Gather says what becomes of calls that are made at once.
type Gather struct {
	// Early says that Next returns each call as soon as it has ended. Otherwise those that have ended well may wait for the others.
	Early bool
	// Take makes of a reply, or of the error of Do, what Next returns. It has to be set. It runs on the goroutine of who calls Next, Cancel or Close,
	// or, for replies that are long or compressed and for calls that had to wait for a connection, on another one: then several run at once.
	Take func(i int, r *Reply, err error) ([]byte, error)
	// Fault is the error of a call whose Take panicked, or that did on a goroutine of its own. It has to be set.
	Fault func(panicked any) error
}

// Calls are calls to several nodes at once that one goroutine makes and waits for, each as Do does. Short replies wake it once, when all are there,
// and take no goroutine of their own. They have to be closed.
type Calls struct {
	ctx    context.Context
	o      Gather
	until  time.Time   // of all; zero: none
	late   *time.Timer // nil: there is none, or it has run out
	list   []calling
	wg     sync.WaitGroup
	signal chan struct{} // has one when something is new
	quick  int           // under way that have no goroutine
	done   []int         // that have ended, to be returned

	mu    sync.Mutex
	ready []int // with something new
	going int   // that have not ended well
}

// calling is one of them.
type calling struct {
	call  Call
	u     unary
	apart context.CancelFunc // it has a goroutine; nil: it has none
	ended bool
	out   []byte
	err   error

	// Under the lock of the calls.
	noted    bool // it is ready
	well     bool
	finished bool // its goroutine has
}

// sendAtOnce is how many requests a goroutine sends: more are sent by several where there are processors for that.
const sendAtOnce = 8

// Begin makes a call to several nodes at once; call is what all of them have in common.
func Begin(ctx context.Context, call Call, asks []Ask, o Gather) *Calls {
	c := &Calls{ctx: ctx, o: o, list: make([]calling, len(asks)), signal: make(chan struct{}, 1), going: len(asks)}
	if call.Timeout > 0 {
		c.until = time.Now().Add(call.Timeout)
		c.late = time.NewTimer(call.Timeout)
	}
	for i := range asks {
		a, k := &asks[i], &c.list[i]
		k.call = call
		k.call.Message = a.Message
		k.err = a.Err
		k.u = unary{s: &Stream{n: a.Node, ctx: ctx, call: &k.call, until: c.until, calls: c, place: i}, most: a.Most, room: a.Room, quick: true}
	}
	var sending sync.WaitGroup
	each := max(sendAtOnce, (len(asks)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := each; from < len(asks); from += each {
		sending.Go(func() { c.send(from, min(from+each, len(asks))) })
	}
	c.send(0, min(each, len(asks)))
	sending.Wait()
	for i := range c.list {
		switch k := &c.list[i]; {
		case k.err != nil:
			c.end(i)
		case k.u.s.s == nil:
			c.leave(i)
		default:
			c.quick++
		}
	}
	return c
}

// send begins calls of which the connections are there.
func (c *Calls) send(from, to int) {
	for i := from; i < to; i++ {
		k := &c.list[i]
		if k.err != nil {
			continue
		}
		for k.u.s.tries < maxTries {
			// A failure is found again by who waits for a connection.
			on, err := k.u.s.n.pickNow()
			if on == nil || err != nil || k.u.s.on(on) {
				break
			}
		}
	}
}

// note says that there is something new of a call; well that this is its good end.
func (c *Calls) note(i int, well bool) {
	c.mu.Lock()
	k := &c.list[i]
	if well && !k.well {
		k.well = true
		c.going--
	}
	if !k.noted {
		k.noted = true
		c.ready = append(c.ready, i)
	}
	tell := !well || c.o.Early || c.going == 0
	c.mu.Unlock()
	if tell {
		select {
		case c.signal <- struct{}{}:
		default:
		}
	}
}

// Next waits until a call has ended, and returns each once: which one it is, and what Take made of it. ok is false where over came first; what has
// ended by then is returned before. It is called only while there is a call that it has not returned.
func (c *Calls) Next(over <-chan time.Time) (i int, out []byte, err error, ok bool) {
	for {
		c.look()
		if len(c.done) > 0 {
			i, c.done = c.done[0], c.done[1:]
			return i, c.list[i].out, c.list[i].err, true
		}
		var stop <-chan struct{}
		var late <-chan time.Time
		if c.quick > 0 { // others see to that themselves
			stop = c.ctx.Done()
			if c.late != nil {
				late = c.late.C
			}
		}
		select {
		case <-c.signal:
		case <-stop:
			c.fail(ended(c.ctx))
		case <-late:
			c.late = nil
			c.fail(errLate)
		case <-over:
			return 0, nil, nil, false
		}
	}
}

// look takes what is new.
func (c *Calls) look() {
	for {
		c.mu.Lock()
		if len(c.ready) == 0 {
			c.mu.Unlock()
			return
		}
		i := c.ready[0]
		c.ready = c.ready[1:]
		k := &c.list[i]
		k.noted = false
		finished := k.finished
		c.mu.Unlock()
		switch {
		case k.ended:
		case finished:
			c.end(i)
		case k.apart == nil:
			c.step(i)
		}
	}
}

// step goes on with a call that has no goroutine.
func (c *Calls) step(i int) {
	k := &c.list[i]
	done, err := k.u.step()
	switch {
	case err == errWaits:
		c.quick--
		c.leave(i)
	case err != nil:
		c.cut(i, err)
	case done && k.u.r.Compressed:
		c.quick--
		k.u.s.Close()
		c.own(i, func(context.Context) (*Reply, error) { return k.u.r, nil })
	case done:
		c.quick--
		k.u.s.Close()
		c.take(i, k.u.r, nil)
		c.end(i)
	}
}

// take makes of a reply or an error what Next returns.
func (c *Calls) take(i int, r *Reply, err error) {
	k := &c.list[i]
	defer func() {
		if v := recover(); v != nil {
			k.out, k.err = nil, c.o.Fault(v)
		}
	}()
	k.out, k.err = c.o.Take(i, r, err)
}

// cut ends a call that has no goroutine with an error.
func (c *Calls) cut(i int, err error) {
	k := &c.list[i]
	c.quick--
	k.u.free()
	k.u.s.Close()
	c.take(i, nil, err)
	c.end(i)
}

// fail ends all that have no goroutine.
func (c *Calls) fail(err error) {
	for i := range c.list {
		if k := &c.list[i]; !k.ended && k.apart == nil {
			c.cut(i, err)
		}
	}
}

// end is for a call whose outcome is there.
func (c *Calls) end(i int) {
	k := &c.list[i]
	k.ended = true
	c.done = append(c.done, i)
	c.mu.Lock()
	if !k.well {
		k.well = true
		c.going--
	}
	c.mu.Unlock()
}

// leave gives a call that has to wait for something else than its node a goroutine.
func (c *Calls) leave(i int) {
	k := &c.list[i]
	s := k.u.s
	s.calls = nil
	if s.s != nil {
		s.s.mu.Lock()
		s.s.calls, s.s.signal = nil, make(chan struct{}, 1)
		s.s.mu.Unlock()
	}
	k.u.quick = false
	c.own(i, func(ctx context.Context) (*Reply, error) {
		defer s.Close()
		s.ctx = ctx
		if !c.until.IsZero() {
			s.late = time.NewTimer(time.Until(c.until))
		}
		if s.s == nil {
			if err := s.begin(); err != nil {
				return nil, err
			}
		}
		return k.u.whole()
	})
}

// own runs the rest of a call on a goroutine.
func (c *Calls) own(i int, rest func(ctx context.Context) (*Reply, error)) {
	k := &c.list[i]
	ctx, cancel := context.WithCancel(c.ctx)
	k.apart = cancel
	c.wg.Go(func() {
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				k.out, k.err = nil, c.o.Fault(v)
			}
			c.mu.Lock()
			k.finished = true
			c.mu.Unlock()
			c.note(i, k.err == nil)
		}()
		r, err := rest(ctx)
		c.take(i, r, err)
	})
}

// Cancel cuts a call short, if it has not ended. Next returns it as others.
func (c *Calls) Cancel(i int) {
	switch k := &c.list[i]; {
	case k.ended:
	case k.apart != nil:
		k.apart()
	default:
		c.cut(i, &Error{Code: codes.Canceled, Text: "the call was canceled", Cause: context.Canceled})
	}
}

// Close cuts short what is under way, and waits for it.
func (c *Calls) Close() {
	for i := range c.list {
		c.Cancel(i)
	}
	if c.late != nil {
		c.late.Stop()
	}
	c.wg.Wait()
}
