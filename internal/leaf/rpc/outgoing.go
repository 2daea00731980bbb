package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/api"
)

const (
	// freeReply is how much of a message to the caller is not charged.
	freeReply = 16 << 10
	// replyPiece is the size of the pieces that an encoded message is handed to gRPC in, which tell how it gets on.
	replyPiece = 256 << 10
	// minReplyRate is the least pace, in bytes for a second, at which a reply of several pieces has to be taken after StallTime.
	minReplyRate = 64 << 10
	// minBuffer is the least size of a buffer: gRPC tells nothing about those of at most 1 KiB.
	minBuffer = 4 << 10
	// maxPooled is the largest buffer that is kept for the next message.
	maxPooled = 1 << 20
)

// buffers holds memory for encoded messages, in powers of two so that what is charged for one is what it takes.
var buffers = func() mem.BufferPool {
	p, err := mem.NewBinaryTieredBufferPool(12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil { // the powers are in range
		panic(err)
	}
	return p
}()

// takeBuffer returns a buffer of a length, and with no more room than the next power of two.
func takeBuffer(n int) *[]byte {
	if n > maxPooled {
		b := make([]byte, n)
		return &b
	}
	b := buffers.Get(max(n, minBuffer))
	*b = (*b)[:n]
	return b
}

func giveBuffer(b *[]byte) {
	if cap(*b) <= maxPooled {
		buffers.Put(b)
	}
}

// bufferSize is how much memory takeBuffer takes at most.
func bufferSize(n int) int64 {
	size := int64(minBuffer)
	for size < int64(n) && size < maxPooled {
		size *= 2
	}
	return max(size, int64(n))
}

// reply is an encoded message to the caller, from its encoding until gRPC has written it out or dropped it: as long as that it is
// charged. gRPC says so by giving back the memory, because reply is the pool that it came from; its methods may be called at once.
type reply struct {
	s       *Server
	peer    *peer
	charged int64
	moved   chan struct{} // has an item when something has changed

	mu     sync.Mutex
	data   *[]byte
	pieces int // that gRPC has
	taken  int // bytes that it has given back
	done   bool
	alone  bool        // its call has ended
	waiter waiter      // of a reply that is alone
	timer  *time.Timer // likewise
}

// split makes the pieces of the message that was encoded into r.data.
func (r *reply) split() mem.BufferSlice {
	b := *r.data
	var list mem.BufferSlice
	for len(b) > 0 || len(list) == 0 {
		n := len(b)
		if n > 2*replyPiece {
			n = replyPiece // and the last one has at least as much
		}
		piece := b[:n]
		list = append(list, mem.NewBuffer(&piece, r))
		b = b[n:]
	}
	r.pieces = len(list)
	return list
}

// Get implements mem.BufferPool. Nobody takes memory from a reply.
func (r *reply) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool: gRPC is done with a piece.
func (r *reply) Put(piece *[]byte) {
	r.mu.Lock()
	r.pieces--
	r.taken += len(*piece)
	last := r.pieces == 0
	var data *[]byte
	if last {
		data, r.data = r.data, nil
	}
	r.mu.Unlock()
	if last {
		giveBuffer(data)
		r.finish()
	} else {
		r.tell()
	}
}

func (r *reply) tell() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// finish gives back what is charged for the reply. gRPC has no use for it any more.
func (r *reply) finish() {
	r.mu.Lock()
	if r.done {
		r.mu.Unlock()
		return
	}
	r.done = true
	alone, timer := r.alone, r.timer
	r.mu.Unlock()
	if alone {
		timer.Stop()
		r.s.lobby.leave(&r.waiter)
	}
	r.peer.forget(r)
	r.s.memory.Release(r.charged)
	r.tell()
}

// state tells how many bytes were taken, and whether that is all.
func (r *reply) state() (taken int, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken, r.done
}

// leave is for a reply whose call has ended. Where the stream has ended too, gRPC drops the reply as soon as it comes to it. Otherwise
// the end of the call stands behind it, and a peer that does not take it after yet another StallTime has its connection closed: there
// is no other way to make gRPC let go of it.
func (r *reply) leave(streamEnded, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	if atOnce {
		r.peer.Cut()
	}
	r.alone = true
	r.waiter = waiter{peer: r.peer, evict: r.peer.Cut}
	r.s.lobby.enter(&r.waiter)
	late := r.peer.Cut
	if streamEnded {
		late = r.finish
	}
	r.timer = time.AfterFunc(r.s.o.StallTime, late)
}

// send hands a message of the reply to gRPC, when it has written out the one before.
func (c *call) send(m proto.Message) error {
	if err := c.settle(); err != nil {
		return err
	}
	// A message that cannot be encoded would end the call with a status of gRPC's own, so its size is looked at before.
	n := proto.Size(m)
	if limit := c.s.o.MaxReply; n > limit {
		return api.NewProblem(api.ReplyTooLarge, fmt.Sprintf("the reply has %d bytes; at most %d are sent", n, limit)).Within(int64(limit))
	}
	r := &reply{s: c.s, peer: c.peer, charged: min(max(0, bufferSize(n)-freeReply), c.s.o.Memory), moved: make(chan struct{}, 1)}
	wait := time.Duration(0)
	if c.lists {
		wait = c.s.o.MemoryWait
	}
	if c.kind != reads {
		// What was written has to be told. Such replies are short, and as many as there are calls.
		if !c.s.memory.TryAcquire(r.charged) {
			r.charged = 0
		}
	} else if err := c.s.charge(c.ctx, r.charged, wait); err != nil {
		return err
	}
	c.peer.hold(r)
	out := envelope{message: m, bytes: n, sized: true, reply: r}
	err := c.wait(c.s.o.StallTime, errReaderStalled, func() error { return c.ss.SendMsg(&out) })
	if out.reply != nil { // it was not even encoded
		r.finish()
		return err
	}
	c.sent = r
	return err
}

// settle waits until gRPC has written out what was sent last.
func (c *call) settle() error {
	r := c.sent
	if r == nil {
		return nil
	}
	if _, done := r.state(); done {
		c.sent = nil
		return nil
	}
	began := time.Now()
	limit := c.s.o.StallTime
	return c.wait(limit, errReaderStalled, func() error {
		for {
			select {
			case <-r.moved:
				taken, done := r.state()
				if done {
					c.sent = nil
					return nil
				}
				if time.Since(began) > limit+pace(taken, minReplyRate) {
					return c.end(errReaderStalled, &c.s.stalled)
				}
				c.watch.Reset(limit)
			case <-c.ctx.Done():
				if errors.Is(c.ctx.Err(), context.DeadlineExceeded) {
					c.afterDeadline()
				}
				return context.Cause(c.ctx)
			}
		}
	})
}

// afterDeadline waits for gRPC to end the stream whose deadline has passed, which it does at the same time. If the call ended first,
// the end would wait behind its reply.
func (c *call) afterDeadline() {
	t := time.NewTimer(deadlineGrace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.sent.moved:
	}
}

const deadlineGrace = 20 * time.Millisecond

// pace is the time for n bytes at a rate in bytes for a second.
func pace(n, rate int) time.Duration { return time.Duration(n) * time.Second / time.Duration(rate) }
