//go:build !unix

package grpcraw

import (
	"errors"
	"net"
)

// socket is for systems whose connections can be asked what they take now.
type socket struct{}

func socketOf(net.Conn) *socket { return nil }

func (*socket) writeSome([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (*socket) readInto(func() []byte, func()) (int, error) { return 0, errors.ErrUnsupported }
