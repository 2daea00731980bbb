package grpcmsg

import (
	"context"
	"time"
)

// Room is what one reply takes of an Outgoing before gRPC has it: what it is made of, and what its bytes will take. It belongs to its call,
// which gives back in the end what its buffers have not used.
//
// Replies that find no room wait for it in the order in which they came. What they hold meanwhile is kept to half of all the room, so that
// they do not wait for each other: one that would be beyond that is refused at once.
type Room struct {
	o    *Outgoing
	held int64
}

// Room returns one that has taken nothing.
func (o *Outgoing) Room() *Room { return &Room{o: o} }

// waiter is a reply that waits for room.
type waiter struct {
	room *Room
	n    int64
	got  chan struct{} // closed when it has it
}

// fits tells whether a reply may take n bytes more. A short one may at any time, and one that is longer than all the room when it has it to
// itself. Called with the lock held.
func (o *Outgoing) fits(r *Room, n int64) bool {
	others := o.held.Load() - r.held
	return r.held+n <= FreeReply || others+r.held+n <= o.most || others <= FreeReply
}

// grant lets those in whose turn it is. Called with the lock held.
func (o *Outgoing) grant() {
	for len(o.queue) > 0 && o.fits(o.queue[0].room, o.queue[0].n) {
		w := o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.waiting -= w.room.held
		o.held.Add(w.n)
		w.room.held += w.n
		close(w.got)
	}
}

// leave takes one off the queue that gives up; false if it has its room by now. Called with the lock held.
func (o *Outgoing) leave(w *waiter) bool {
	for i, q := range o.queue {
		if q == w {
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			o.waiting -= w.room.held
			o.grant()
			return true
		}
	}
	return false
}

// Hold counts bytes that are there already. It waits for nothing.
func (r *Room) Hold(n int64) {
	r.o.take(n)
	r.held += n
}

// Held is what was taken and not used yet.
func (r *Room) Held() int64 { return r.held }

// Take takes n bytes more, and waits for them if it has to: first it calls waits, then at most for longest. The error is ErrUnread, or the
// cause of the end of ctx.
func (r *Room) Take(ctx context.Context, n int64, longest time.Duration, waits func()) error {
	o := r.o
	o.mu.Lock()
	if (len(o.queue) == 0 || r.held+n <= FreeReply) && o.fits(r, n) {
		o.held.Add(n)
		r.held += n
		o.mu.Unlock()
		return nil
	}
	if o.waiting+r.held > o.most/2 {
		o.mu.Unlock()
		return ErrUnread
	}
	w := &waiter{r, n, make(chan struct{})}
	o.queue = append(o.queue, w)
	o.waiting += r.held
	o.mu.Unlock()
	if waits != nil {
		waits()
	}
	late := time.NewTimer(longest)
	defer late.Stop()
	var err error
	select {
	case <-w.got:
		return nil
	case <-late.C:
		err = ErrUnread
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.leave(w) {
		return nil
	}
	return err
}

// spend takes up to n bytes of what the room has, for a buffer.
func (r *Room) spend(n int64) int64 {
	n = min(n, r.held)
	r.held -= n
	return n
}

// Give gives back what is left.
func (r *Room) Give() {
	n := r.held
	r.held = 0
	r.o.give(n)
}

// BeginIn is Begin for a reply whose room was taken before: its buffers use that first. The room belongs to the reply until Encode returns.
func (c *Replies) BeginIn(room *Room) *Reply {
	r := c.Begin(room.o)
	r.room = room
	return r
}
