package link

import (
	"errors"
	"fmt"
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ableToDrop tells why packets cannot be lost here; nil: they can.
func ableToDrop() error { return nil }

// random is where a filter of packets reads a number that the kernel draws for each (linux/filter.h: SKF_AD_OFF + SKF_AD_RANDOM).
const random = 0xffffffff - 0x1000 + 1 + 56

// drop lets a socket lose a share of the packets that come in for it, before TCP has seen them: data, acknowledgements and ends of connections alike.
// Who has sent them finds out as it does on a network, and sends them again. Zero: none.
func drop(fd uintptr, share float64) error {
	if share <= 0 {
		err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if errors.Is(err, unix.ENOENT) {
			return nil // there is no filter
		}
		return err
	}
	f := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: uint32(min(share*(1<<32), math.MaxUint32)), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32}, // all of it
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]})
}

// dropOn is drop for a connection, which may be closed already.
func dropOn(c *net.TCPConn, share float64) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("lose packets: %w", err)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = drop(fd, share) }); err != nil || serr != nil {
		if err = errors.Join(err, serr); errors.Is(err, net.ErrClosed) {
			return nil
		}
		return fmt.Errorf("lose packets: %w", err)
	}
	return nil
}

// dropBefore is drop for a connection that is about to be made, so that its handshake meets the loss as well.
func dropBefore(share float64) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) { serr = drop(fd, share) })
		return errors.Join(err, serr)
	}
}
