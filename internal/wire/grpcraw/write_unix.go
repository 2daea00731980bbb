//go:build unix

package grpcraw

import (
	"errors"
	"net"
	"syscall"
)

// socket reads and writes a connection of the system without waiting in a buffer's company.
type socket struct {
	raw syscall.RawConn

	// Of the write and the read under way. Each is one at a time.
	out    []byte
	wrote  int
	outErr error
	write  func(fd uintptr) bool

	fill   func() []byte
	unfill func()
	got    int
	inErr  error
	read   func(fd uintptr) bool
}

// socketOf returns nil for a connection that is not one of the system.
func socketOf(nc net.Conn) *socket {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.write = func(fd uintptr) bool {
		for s.wrote < len(s.out) {
			n, err := syscall.Write(int(fd), s.out[s.wrote:])
			if n > 0 {
				s.wrote += n
				continue
			}
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if !errors.Is(err, syscall.EAGAIN) {
				s.outErr = err
			}
			return true
		}
		return true
	}
	s.read = func(fd uintptr) bool {
		b := s.fill()
		for {
			n, err := syscall.Read(int(fd), b)
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
	return s
}

// writeSome writes what the connection takes now.
func (s *socket) writeSome(b []byte) (int, error) {
	s.out, s.wrote, s.outErr = b, 0, nil
	err := s.raw.Write(s.write)
	s.out = nil
	return s.wrote, errors.Join(err, s.outErr)
}

// readInto waits until there is something and reads it into what fill returns. unfill takes back what fill returned while it waits. n is 0 at
// the end of the connection.
func (s *socket) readInto(fill func() []byte, unfill func()) (n int, err error) {
	s.fill, s.unfill, s.got, s.inErr = fill, unfill, 0, nil
	if err := s.raw.Read(s.read); err != nil {
		return 0, err
	}
	return s.got, s.inErr
}
