//go:build unix

package frame

import (
	"errors"
	"net"
	"syscall"
)

// prober looks at the state of a connection without consuming its input.
type prober struct {
	raw  syscall.RawConn
	peek func(fd uintptr) bool // made once: a closure for each look would be an allocation
	one  [1]byte
	n    int
	err  error
}

func (p *prober) init(nc net.Conn) {
	sc, ok := unwrap(nc).(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.peek = func(fd uintptr) bool {
		for {
			p.n, _, p.err = syscall.Recvfrom(int(fd), p.one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if !errors.Is(p.err, syscall.EINTR) {
				return true // whatever it was: there is nothing to wait for
			}
		}
	}
}

// look tells the state. Under TLS, waiting may be a record that carries no data; between a reply and the next request the only usual one is the
// notice that the peer closes. It must not be called while someone reads from the connection, nor after its read deadline.
func (p *prober) look() liveness {
	if p.raw == nil {
		return unknown
	}
	if err := p.raw.Read(p.peek); err != nil {
		return dead
	}
	switch {
	case p.err == syscall.EAGAIN || p.err == syscall.EWOULDBLOCK: // bare numbers, as the system gives them
		return quiet
	case p.err != nil || p.n == 0:
		return dead
	}
	return waiting
}
