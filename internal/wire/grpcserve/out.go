package grpcserve

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/weft-search/weft/internal/wire/h2"
)

const (
	// maxQueued is how much of replies is queued for a connection before what comes waits with its call.
	maxQueued = 256 << 10
	// frameCost is about what a frame of a reply takes beside its bytes while it is queued: clients may have windows of a byte.
	frameCost = 128
	// maxBlocks is how much of headers and status is queued for a connection before no further call of its client is taken.
	maxBlocks = 1 << 20
	// quantum is how much of a reply is queued before others have their turn.
	quantum = 64 << 10
	// leastRef is the length from which on a piece is written from where it is; a shorter one is copied.
	leastRef = 1 << 10
	// maxControl is how much a client may make us write before it reads.
	maxControl = 128 << 10
	// maxTurns is how often who has something to write writes what others have queued meanwhile.
	maxTurns = 8
	// leastRate is the pace in bytes a second at which a connection has to take replies when one of them waits for longer than Stall.
	leastRate = 64 << 10
)

// segment is something that is to be written.
type segment struct {
	b    []byte
	from int        // of the arena, where b is of that
	buf  mem.Buffer // is freed when it is written; nil: b is of the arena, or of a buffer whose end comes later
	own  bool       // b is of the arena
}

// batch is what is written at a time.
type batch struct {
	segs   []segment
	arena  []byte
	vec    [][]byte
	data   int // of conn.queued
	blocks int // of conn.blocks
}

// frames appends short frames to what is queued. Called with the lock held.
func (c *conn) frames(add func(b []byte) []byte) {
	from := len(c.arena)
	c.arena = add(c.arena)
	c.queue(from)
}

// queue queues what stands in the arena from a place on.
func (c *conn) queue(from int) {
	if n := len(c.segs); n > 0 && c.segs[n-1].own {
		// It ends where this begins.
		c.segs[n-1].b = c.arena[c.segs[n-1].from:]
		return
	}
	c.segs = append(c.segs, segment{b: c.arena[from:], from: from, own: true})
}

// control queues a frame that a client has made us write.
func (c *conn) control(kind, flags byte, id uint32, payload []byte) {
	from := len(c.arena)
	c.arena = append(h2.AppendFrame(c.arena, kind, flags, id, len(payload)), payload...)
	c.queue(from)
	c.asked += len(c.arena) - from
}

func (c *conn) reset(id, code uint32) {
	from := len(c.arena)
	c.arena = h2.AppendReset(c.arena, id, code)
	c.queue(from)
	c.asked += len(c.arena) - from
}

func (c *conn) window(id uint32, n int64) {
	from := len(c.arena)
	c.arena = h2.AppendWindow(c.arena, id, n)
	c.queue(from)
}

// block queues the headers that are encoded.
func (c *conn) block(id uint32, endStream bool) {
	from := len(c.arena)
	c.arena = h2.AppendHeaders(c.arena, id, c.encoded.Bytes(), endStream, c.frame)
	c.blocks += len(c.arena) - from
	c.queue(from)
	c.encoded.Reset()
}

// list puts a stream among those that can go on.
func (c *conn) list(s *Stream) {
	if !s.listed && s.pending > 0 && s.send > 0 {
		s.listed = true
		c.ready = append(c.ready, s)
	}
}

// pump queues what windows and maxQueued allow. Called with the lock held.
func (c *conn) pump() {
	if c.err != nil {
		return
	}
	var now time.Time
	for c.first < len(c.ready) && c.queued < maxQueued {
		s := c.ready[c.first]
		if s.dead || s.pending == 0 || s.send <= 0 {
			s.listed = false
			c.drop()
			continue
		}
		n := int(min(int64(s.pending), s.send, c.room, quantum))
		if n <= 0 {
			break // until the window of the connection opens
		}
		s.listed = false
		c.drop()
		c.move(s, n)
		if s.pending > 0 {
			if s.stuck {
				if now.IsZero() {
					now = time.Now()
				}
				s.moved = now
			}
			c.list(s)
		} else if s.done {
			c.tail(s)
		}
		if s.waits && s.pending <= lowPending {
			s.waits = false
			signal(s.room)
		}
	}
}

// drop takes the first off those that can go on.
func (c *conn) drop() {
	c.ready[c.first] = nil
	if c.first++; c.first == len(c.ready) {
		c.ready, c.first = c.ready[:0], 0
	} else if c.first >= 64 && c.first > len(c.ready)/2 {
		n := copy(c.ready, c.ready[c.first:])
		clear(c.ready[n:])
		c.ready, c.first = c.ready[:n], 0
	}
}

// move queues n bytes of a reply.
func (c *conn) move(s *Stream, n int) {
	s.send -= int64(n)
	c.room -= int64(n)
	c.sent += int64(n)
	c.queued += n
	s.pending -= n
	for n > 0 {
		// Whole pieces, as far as they go into a frame: they come as frames of the node.
		most, size, k := min(n, c.frame), -s.off, 0
		for s.at+k < len(s.pend) && size+s.pend[s.at+k].Len() <= most {
			size += s.pend[s.at+k].Len()
			k++
		}
		part := k == 0
		if part {
			size = most
		}
		from := len(c.arena)
		c.arena = h2.AppendFrame(c.arena, h2.Data, 0, s.id, size)
		c.queue(from)
		c.queued += frameCost
		if part {
			b := s.pend[s.at].ReadOnlyData()[s.off : s.off+size]
			c.segs = append(c.segs, segment{b: b})
			s.off += size
		}
		for range k {
			piece := s.pend[s.at]
			b := piece.ReadOnlyData()[s.off:]
			if len(b) < leastRef && s.off == 0 {
				from := len(c.arena)
				c.arena = append(c.arena, b...)
				c.queue(from)
				piece.Free()
			} else {
				c.segs = append(c.segs, segment{b: b, buf: piece})
			}
			s.pend[s.at], s.off = nil, 0
			s.at++
		}
		n -= size
	}
	if s.pending == 0 {
		c.free = append(c.free, s.pend[s.at:]...) // empty ones
		s.pend, s.at = s.pend[:0], 0
		c.pends(s)
	}
}

// dropPending lets go of what is pending of a reply. A piece that is queued in part stays until that is written, and counts as queued. Called
// with the lock held.
func (c *conn) dropPending(s *Stream) {
	if s.off > 0 {
		c.queued += s.pend[s.at].Len() - s.off + frameCost
		c.segs = append(c.segs, segment{buf: s.pend[s.at]})
		s.off = 0
		s.at++
	}
	c.free = append(c.free, s.pend[s.at:]...)
	s.pend, s.at, s.pending = nil, 0, 0
	c.pends(s)
}

// head queues the headers of a reply. Called with the lock held.
func (c *conn) head(s *Stream) {
	if s.headed {
		return
	}
	s.headed = true
	c.listed = 0
	c.put(":status", "200")
	c.put("content-type", s.contentType)
	if s.compression != "" {
		c.put("grpc-encoding", s.compression)
	}
	c.putMeta(s.header)
	c.send(s, false)
}

// tail queues the status of a reply of which nothing is pending. Called with the lock held.
func (c *conn) tail(s *Stream) {
	if !s.headed && len(s.header) > 0 {
		c.head(s)
		if s.dead {
			return
		}
	}
	c.listed = 0
	if !s.headed {
		s.headed = true
		c.put(":status", "200")
		c.put("content-type", s.contentType)
		if accepts := c.srv.o.Accepts; accepts != "" && s.encoding != "" && s.status.Code() == codes.Unimplemented && !slices.Contains(lists(accepts), s.encoding) {
			c.put("grpc-accept-encoding", accepts)
		}
	}
	c.putStatus(s.status, s.trailer)
	c.send(s, true)
}

// send queues the headers that are encoded, and ends the stream where it ends with them. What is longer than a client takes ends it as well.
func (c *conn) send(s *Stream, endStream bool) {
	if c.listed > c.mostListed {
		// The table of the connection has them already.
		c.block(s.id, false)
		c.reset(s.id, h2.CodeInternal)
		c.over(s)
		return
	}
	c.block(s.id, endStream)
	if !endStream {
		return
	}
	if !s.ended {
		// The rest of the request is of no use.
		c.reset(s.id, h2.CodeNone)
	}
	c.over(s)
}

// over takes a stream off the connection. Called with the lock held.
func (c *conn) over(s *Stream) {
	if s.dead {
		return
	}
	s.dead = true
	delete(c.streams, s.id)
	if s.listed {
		// Those that are in front of it may wait for long.
		s.listed = false
		at := c.first + slices.Index(c.ready[c.first:], s)
		c.ready = slices.Delete(c.ready, at, at+1)
	}
	c.dropPending(s)
	c.free = append(c.free, s.recv...)
	s.recv, s.tail, s.have, s.open = nil, nil, 0, false
	signal(s.got)
	signal(s.room)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// swap makes a batch of what is queued. Called with the lock held.
func (c *conn) swap() {
	b := &c.now
	b.segs, c.segs = c.segs, b.segs[:0]
	b.arena, c.arena = c.arena, b.arena[:0]
	b.data, b.blocks = c.queued, c.blocks
	c.asked = 0
	for i := range b.segs {
		if len(b.segs[i].b) > 0 {
			b.vec = append(b.vec, b.segs[i].b)
		}
	}
}

// wrote lets go of a batch. It is not called with the lock held: who writes has it.
func (b *batch) wrote() {
	for i := range b.segs {
		if b.segs[i].buf != nil {
			b.segs[i].buf.Free()
		}
	}
	clear(b.segs)
	clear(b.vec)
	b.segs, b.vec, b.arena = b.segs[:0], b.vec[:0], b.arena[:0]
	if cap(b.arena) > 2*maxQueued {
		b.arena = nil
	}
	if cap(b.segs) > 256 {
		b.segs = nil
	}
	if cap(b.vec) > 256 {
		b.vec = nil
	}
}

// flush writes what is queued, or leaves it to who writes already. It does not wait for the client: what that does not take goes on in a
// goroutine of its own.
func (c *conn) flush() {
	c.mu.Lock()
	if c.flushing || len(c.segs) == 0 || c.err != nil {
		c.unlock()
		return
	}
	c.flushing = true
	if c.running > 1 {
		// Others are about to add theirs.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for turns := 1; len(c.segs) > 0 && c.err == nil; turns++ {
		c.swap()
		c.mu.Unlock()
		rest := c.now.vec
		if c.sock != nil && turns <= maxTurns {
			var err error
			if rest, err = c.sock.WriteSome(rest); err != nil {
				c.end(err)
			}
		}
		if len(rest) == 0 {
			c.now.wrote()
		}
		c.mu.Lock()
		if len(rest) > 0 && c.err == nil {
			c.rest = rest
			c.srv.wg.Go(c.writeOn)
			c.unlock()
			return
		}
		c.goOn()
	}
	c.stop()
}

// goOn is after a batch was written. Called with the lock held.
func (c *conn) goOn() {
	c.queued -= c.now.data
	c.blocks -= c.now.blocks
	c.pump()
}

// stop is the end of writing. Called with the lock held, which it gives back.
func (c *conn) stop() {
	c.flushing = false
	if c.err != nil {
		c.letGo()
	}
	c.unlock()
}

// unlock gives the lock back, and frees what was waiting for that.
func (c *conn) unlock() {
	free := c.free
	c.free = nil
	last := c.leaving == left && len(c.streams) == 0 && len(c.segs) == 0 && !c.flushing && c.err == nil && !c.half
	if last {
		c.half = true
	}
	c.mu.Unlock()
	for i, b := range free {
		b.Free()
		free[i] = nil
	}
	if last {
		c.closeWrite()
	}
}

// writeOn writes what the client did not take at once, and what comes meanwhile.
func (c *conn) writeOn() {
	rest := c.rest
	for {
		err := c.nc.SetWriteDeadline(time.Now().Add(c.srv.o.Stall))
		if err == nil {
			rest, err = c.writeWait(rest)
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.cut(err)
			}
			c.end(err)
		}
		if err == nil && len(rest) > 0 {
			continue
		}
		// A deadline would end the next write that does not wait.
		if err == nil {
			if err = c.nc.SetWriteDeadline(time.Time{}); err != nil {
				c.end(err)
			}
		}
		c.now.wrote()
		c.mu.Lock()
		c.rest = nil
		c.goOn()
		if len(c.segs) == 0 || c.err != nil {
			c.stop()
			return
		}
		c.swap()
		rest = c.now.vec
		c.unlock()
	}
}

func (c *conn) writeWait(b [][]byte) ([][]byte, error) {
	if len(b) == 0 {
		return nil, nil // the batch is only of what is let go
	}
	if c.sock != nil {
		return c.sock.WriteWait(b)
	}
	_, err := c.nc.Write(b[0])
	return b[1:], err
}

// letGo frees what will not be written. Called with the lock held, when nobody writes.
func (c *conn) letGo() {
	c.now.wrote()
	for i := range c.segs {
		if b := c.segs[i].buf; b != nil {
			c.free = append(c.free, b)
		}
	}
	c.segs, c.arena, c.queued, c.blocks = nil, nil, 0, 0
}

// pends is after something of a reply may have become pending, or not. Called with the lock held.
func (c *conn) pends(s *Stream) {
	if is := s.pending > 0; is != s.stuck {
		s.stuck = is
		if !is {
			c.stuck--
			return
		}
		c.stuck++
		s.since, s.sentSince = time.Now(), c.sent
		s.moved = s.since
		c.watch(c.srv.o.Stall)
	}
}

// watch lets the timer run, if it does not. Called with the lock held.
func (c *conn) watch(d time.Duration) {
	switch {
	case c.watching || c.err != nil:
	case c.timer == nil:
		c.watching = true
		c.timer = time.AfterFunc(d, c.look)
	default:
		c.watching = true
		c.timer.Reset(d)
	}
}

// look cuts the connection of a client that takes nothing of a reply, or as good as nothing.
func (c *conn) look() {
	limit := c.srv.o.Stall
	late, next := false, limit
	c.mu.Lock()
	now := time.Now()
	for _, s := range c.streams {
		if !s.stuck {
			continue
		}
		if d := now.Sub(s.moved); d < limit {
			next = min(next, limit-d)
		} else {
			late = true
		}
		late = late || now.Sub(s.since) > limit+time.Duration(c.sent-s.sentSince)*time.Second/leastRate
	}
	c.watching = false
	if !late && c.stuck > 0 {
		c.watch(max(next, limit/16))
	}
	c.mu.Unlock()
	if late {
		c.cut(errStalled)
	}
}

var errStalled = errors.New("the client takes nothing of a reply")
