package front

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Conns is a listener that keeps count of a server's connections. Those beyond a number are closed at once, so that what a peer can make the server
// hold is bounded; and those on which a peer has not said enough yet can be closed apart from the others. Servers wait for such ones when
// they end, as if they were calls: net/http for 5 s, grpc for 10.
type Conns struct {
	net.Listener
	room  chan struct{} // nil: as many as come
	hello int64         // bytes with which a connection is in use
	log   *slog.Logger

	mu struct {
		sync.Mutex
		ending bool
		conns  map[*countedConn]struct{}
	}
}

// NewConns returns a listener that takes at most so many connections at once, 0 for as many as come. hello is the number of bytes with
// which a connection is in use.
func NewConns(lis net.Listener, most int, hello int64, log *slog.Logger) *Conns {
	l := &Conns{Listener: lis, hello: hello, log: log}
	if most > 0 {
		l.room = make(chan struct{}, most)
	}
	return l
}

// Count is the number of connections, and of those in use.
func (l *Conns) Count() (open, inUse int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.mu.conns {
		if c.heard.Load() >= l.hello {
			inUse++
		}
	}
	return len(l.mu.conns), inUse
}

// Accept implements net.Listener.
func (l *Conns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted := l.take(c); counted != nil {
			return counted, nil
		}
		// An error of this connection is none of the listener: returned, it would end the server.
		if err := c.Close(); err != nil {
			l.log.Debug("closing a connection that was not taken failed", "error", err)
		}
	}
}

// take counts a connection in; nil when there is no room for it, or when the server is ending.
func (l *Conns) take(c net.Conn) *countedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ending {
		return nil
	}
	if l.room != nil {
		select {
		case l.room <- struct{}{}:
		default:
			return nil
		}
	}
	counted := &countedConn{Conn: c, from: l}
	if l.mu.conns == nil {
		l.mu.conns = map[*countedConn]struct{}{}
	}
	l.mu.conns[counted] = struct{}{}
	return counted
}

// EndSilent takes no connection any more and closes those that are not in use yet.
func (l *Conns) EndSilent() {
	l.closeConns(func(c *countedConn) bool { return c.heard.Load() < l.hello })
}

// EndAll takes no connection any more and closes all.
func (l *Conns) EndAll() { l.closeConns(func(*countedConn) bool { return true }) }

func (l *Conns) closeConns(which func(c *countedConn) bool) {
	var list []*countedConn
	l.mu.Lock()
	l.mu.ending = true
	for c := range l.mu.conns {
		if which(c) {
			list = append(list, c)
		}
	}
	l.mu.Unlock()
	for _, c := range list {
		if err := c.Close(); err != nil {
			l.log.Debug("closing a connection failed", "error", err)
		}
	}
}

// countedConn is a connection of a Conns.
type countedConn struct {
	net.Conn
	from  *Conns
	heard atomic.Int64 // bytes read, until they are enough
	left  sync.Once
}

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.heard.Load() < c.from.hello {
		c.heard.Add(int64(n))
	}
	return n, err
}

// Heard is for who reads the connection in another way: n bytes were read.
func (c *countedConn) Heard(n int) { c.heard.Add(int64(n)) }

// SyscallConn implements syscall.Conn. Who reads by it says so with Heard.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends one direction, where that is possible: net/http does so before it closes a connection whose peer still sends.
func (c *countedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.left.Do(func() {
		l := c.from
		l.mu.Lock()
		delete(l.mu.conns, c)
		l.mu.Unlock()
		if l.room != nil {
			<-l.room
		}
	})
	return err
}
