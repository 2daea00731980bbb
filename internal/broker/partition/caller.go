package partition

import (
	"context"
	"sync"
	"time"
)

// Caller asks one partition, which is the node that stands for it: a replica for reads, the master for writes.
type Caller interface {
	// Call sends the bytes of a request and returns those of the reply. part counts the shards of the Index; method is the full name, as
	// in /summa.SearchService/Search. The deadline of ctx is the client's, of which the Caller sends on what the contract says (section
	// Routing); a context without one means that no deadline is sent. err carries a gRPC status, DEADLINE_EXCEEDED for every way in which a
	// node tells that it missed the deadline (B14). req must not be changed, and several calls may share it; the reply has to stay as it is.
	Call(ctx context.Context, part int, method string, req []byte) (reply []byte, err error)
}

// Ask is a request to one partition.
type Ask struct {
	Part    int
	Request []byte
}

// Calls are calls to partitions under way. They belong to one goroutine.
type Calls interface {
	// Next waits until a call has ended and returns each once: its place among those that were begun, and what Call returns. ok is false where over
	// came first; what had ended by then is returned before. It is called only while there is a call that it has not returned.
	Next(over <-chan time.Time) (i int, reply []byte, err error, ok bool)
	// Cancel cuts a call short: it ends soon, unless it has.
	Cancel(i int)
	// Close cuts short what is under way and waits for it.
	Close()
}

// Fan is a Caller that asks several partitions at once for less than as many times Call.
type Fan interface {
	Caller
	// Begin makes the calls of one method to several partitions. Without early, Next may return those that end well when all have.
	Begin(ctx context.Context, method string, asks []Ask, early bool) Calls
}

// begin makes calls, each on a goroutine where the Caller has nothing better.
func begin(ctx context.Context, c Caller, method string, asks []Ask, early bool) Calls {
	if f, ok := c.(Fan); ok {
		return f.Begin(ctx, method, asks, early)
	}
	cs := &calls{ended: make(chan ended, len(asks)), cancels: make([]context.CancelFunc, len(asks))} // room for all: no call waits for us
	for i, a := range asks {
		own, cancel := context.WithCancel(ctx)
		cs.cancels[i] = cancel
		cs.wg.Go(func() {
			reply, err := c.Call(own, a.Part, method, a.Request)
			cs.ended <- ended{i, reply, err}
		})
	}
	return cs
}

// calls are Calls with a goroutine each.
type calls struct {
	ended   chan ended
	cancels []context.CancelFunc
	wg      sync.WaitGroup
}

type ended struct {
	i     int
	reply []byte
	err   error
}

func (cs *calls) Next(over <-chan time.Time) (i int, reply []byte, err error, ok bool) {
	select {
	case e := <-cs.ended:
		return e.i, e.reply, e.err, true
	default:
	}
	select {
	case e := <-cs.ended:
		return e.i, e.reply, e.err, true
	case <-over:
		return 0, nil, nil, false
	}
}

func (cs *calls) Cancel(i int) { cs.cancels[i]() }

func (cs *calls) Close() {
	for _, cancel := range cs.cancels {
		cancel()
	}
	cs.wg.Wait()
}
