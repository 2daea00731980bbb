//go:build !unix

package h2

import (
	"errors"
	"net"
)

// Socket is for systems whose connections can be asked what they take now.
type Socket struct{}

// SocketOf returns nil.
func SocketOf(net.Conn) *Socket { return nil }

// WriteSome is not called.
func (*Socket) WriteSome([][]byte) ([][]byte, error) { return nil, errors.ErrUnsupported }

// WriteWait is not called.
func (*Socket) WriteWait([][]byte) ([][]byte, error) { return nil, errors.ErrUnsupported }

// ReadInto is not called.
func (*Socket) ReadInto(func() []byte, func()) (int, error) { return 0, errors.ErrUnsupported }
