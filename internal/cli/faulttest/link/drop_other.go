//go:build !linux

package link

import (
	"errors"
	"net"
	"syscall"
)

var errNoDrop = errors.New("packets are lost by filters of sockets, which Linux alone has")

// ableToDrop tells why packets cannot be lost here; nil: they can.
func ableToDrop() error { return errNoDrop }

func dropOn(_ *net.TCPConn, share float64) error {
	if share <= 0 {
		return nil
	}
	return errNoDrop
}

func dropBefore(float64) func(network, address string, c syscall.RawConn) error { return nil }
