//go:build unix

package h2

import (
	"errors"
	"net"
	"syscall"
)

// Socket reads and writes a connection of the system.
type Socket struct {
	raw syscall.RawConn

	// Of the write and the read under way. Each is one at a time.
	out    [][]byte
	wait   bool // until something is written
	outErr error
	write  func(fd uintptr) bool
	vec    vector

	fill   func() []byte
	unfill func()
	got    int
	inErr  error
	read   func(fd uintptr) bool
}

// SocketOf returns nil for a connection that is not one of the system.
func SocketOf(nc net.Conn) *Socket {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{raw: raw}
	s.write = s.writeTo
	s.read = s.readFrom
	return s
}

func (s *Socket) writeTo(fd uintptr) bool {
	for {
		n, err := s.vec.write(int(fd), s.out)
		switch {
		case n > 0:
			if s.out = after(s.out, n); len(s.out) > 0 && !s.wait {
				continue
			}
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return !s.wait
		case err != nil:
			s.outErr = err
		}
		return true
	}
}

// after is what is left of b without its first n bytes. It changes the slices of b.
func after(b [][]byte, n int) [][]byte {
	for len(b) > 0 && n >= len(b[0]) {
		n -= len(b[0])
		b = b[1:]
	}
	if n > 0 {
		b[0] = b[0][n:]
	}
	return b
}

func (s *Socket) readFrom(fd uintptr) bool {
	b := s.fill()
	for {
		n, err := read(int(fd), b)
		switch {
		case n > 0:
			s.got = n
			return true
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			s.unfill()
			return false
		}
		s.got, s.inErr = 0, err
		return true
	}
}

// WriteSome writes what the connection takes now. rest is what is left of b, whose slices are not as they were.
func (s *Socket) WriteSome(b [][]byte) (rest [][]byte, err error) { return s.writeOut(b, false) }

// WriteWait is like WriteSome, but waits until the connection takes something, or its deadline for writes.
func (s *Socket) WriteWait(b [][]byte) (rest [][]byte, err error) { return s.writeOut(b, true) }

func (s *Socket) writeOut(b [][]byte, wait bool) (rest [][]byte, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	s.out, s.wait, s.outErr = b, wait, nil
	err = s.raw.Write(s.write)
	rest, s.out = s.out, nil
	s.vec.clear()
	return rest, errors.Join(err, s.outErr)
}

// ReadInto waits until there is something and reads it into what fill returns. unfill takes back what fill returned while it waits. n is 0 at
// the end of the connection.
func (s *Socket) ReadInto(fill func() []byte, unfill func()) (n int, err error) {
	s.fill, s.unfill, s.got, s.inErr = fill, unfill, 0, nil
	if err := s.raw.Read(s.read); err != nil {
		return 0, err
	}
	return s.got, s.inErr
}
