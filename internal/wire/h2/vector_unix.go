//go:build unix && !linux

package h2

import "syscall"

func read(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// vector writes many slices, one after the other.
type vector struct{}

func (vector) write(fd int, b [][]byte) (int, error) { return syscall.Write(fd, b[0]) }

func (vector) clear() {}
