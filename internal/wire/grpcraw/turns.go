package grpcraw

import (
	"slices"
	"time"
)

const (
	// turnBytes is how much of long replies a connection lets come at once, but for the first of them. One reply after the other is whole sooner
	// than all together, and what is read of it is still near when it is handed on.
	turnBytes = 2 << 20
	// patience is how long nothing of those may come before others have their turn as well.
	patience = 20 * time.Millisecond
)

// turns has the long replies of a connection that wait until others have come. It is under the lock of the connection.
type turns struct {
	ahead   int64     // bytes that were let come beyond the first windows, and have not
	queue   []*stream // that want more
	came    bool      // some of them, since the timer was set
	timer   *time.Timer
	running bool
}

// let lets n bytes more of a reply come, now or when it is its turn. Called with the lock held.
func (c *conn) let(s *stream, n int64) {
	t := &c.turns
	// Who comes later waits behind those that wait, also where it has room: they would never have all of it to themselves.
	if len(t.queue) > 0 || t.ahead > 0 && t.ahead+n > turnBytes {
		if s.wants == 0 {
			t.queue = append(t.queue, s)
		}
		s.wants += n
		c.wait()
		return
	}
	c.pass(s, n)
}

func (c *conn) pass(s *stream, n int64) {
	c.window(s.id, n)
	if n > turnBytes {
		n = turnBytes / 2 // a very long one is not waited for to its end
	}
	s.ahead += n
	c.turns.ahead += n
}

// advance lets those come whose turn it is. Called with the lock held.
func (c *conn) advance() {
	t := &c.turns
	k := 0
	for ; k < len(t.queue); k++ {
		s := t.queue[k]
		if t.ahead > 0 && t.ahead+s.wants > turnBytes {
			break
		}
		n := s.wants
		s.wants = 0
		c.pass(s, n)
	}
	t.queue = slices.Delete(t.queue, 0, k)
}

// arrived is for n bytes of a reply. Called with the lock held.
func (c *conn) arrived(s *stream, n int64) {
	t := &c.turns
	if n = min(n, s.ahead); n > 0 {
		t.came = true
		s.ahead -= n
		t.ahead -= n
		c.advance()
	}
}

// remove takes a call off. Called with the lock held.
func (c *conn) remove(s *stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	t := &c.turns
	t.ahead -= s.ahead
	s.ahead = 0
	if s.wants > 0 {
		s.wants = 0
		if i := slices.Index(t.queue, s); i >= 0 {
			t.queue = slices.Delete(t.queue, i, i+1)
		}
	}
	if len(t.queue) > 0 && c.err == nil {
		c.advance()
	}
}

// wait lets the timer run. Called with the lock held.
func (c *conn) wait() {
	t := &c.turns
	if t.running || c.err != nil {
		return
	}
	t.running, t.came = true, false
	if t.timer == nil {
		t.timer = time.AfterFunc(patience, c.stall)
		return
	}
	t.timer.Reset(patience)
}

// stall is for replies that were let come and do not: others do not wait for them any longer.
func (c *conn) stall() {
	c.mu.Lock()
	t := &c.turns
	t.running = false
	if len(t.queue) > 0 && c.err == nil {
		if !t.came {
			for _, s := range c.streams {
				s.ahead = 0
			}
			t.ahead = 0
			c.advance()
		}
		if len(t.queue) > 0 {
			c.wait()
		}
	}
	c.mu.Unlock()
	c.flush()
}

func (t *turns) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.queue = nil
}
