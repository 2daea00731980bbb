package h2

import (
	"syscall"
	"unsafe"
)

// The calls of the system here wait for nothing, since the descriptors do not block. So they do not tell the scheduler, which else takes the
// processor from who copies for longer than some 20 µs, and wakes a thread for it.

func read(fd int, b []byte) (int, error) {
	if racing {
		return syscall.Read(fd, b)
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// vector writes many slices with one call of the system.
type vector struct{ iov []syscall.Iovec }

const (
	// maxVector is how many slices a call takes, and maxCall about how many bytes.
	maxVector = 1024
	maxCall   = 256 << 10
)

func (v *vector) write(fd int, b [][]byte) (int, error) {
	v.iov = v.iov[:0]
	size := 0
	for _, p := range b[:min(len(b), maxVector)] {
		if len(p) == 0 {
			continue
		}
		if size >= maxCall {
			break
		}
		whole := len(p)
		p = p[:min(len(p), maxCall)]
		size += len(p)
		v.iov = append(v.iov, syscall.Iovec{Base: &p[0]})
		v.iov[len(v.iov)-1].SetLen(len(p))
		if len(p) < whole {
			break // the rest of it comes before what follows
		}
	}
	if racing {
		// It fails, and tells the race detector that what was done so far comes before what somebody reads of this.
		_, _ = syscall.Write(-1, nil)
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v.iov))), uintptr(len(v.iov)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// clear lets go of what was written.
func (v *vector) clear() {
	clear(v.iov)
	if cap(v.iov) > maxVector/4 {
		v.iov = nil
	}
}
