package h2

import (
	"syscall"
	"unsafe"
)

// vector writes many slices with one call of the system.
type vector struct{ iov []syscall.Iovec }

// maxVector is how many slices a call takes.
const maxVector = 1024

func (v *vector) write(fd int, b [][]byte) (int, error) {
	if len(b) == 1 {
		return syscall.Write(fd, b[0])
	}
	v.iov = v.iov[:0]
	for _, p := range b[:min(len(b), maxVector)] {
		if len(p) == 0 {
			continue
		}
		v.iov = append(v.iov, syscall.Iovec{Base: &p[0]})
		v.iov[len(v.iov)-1].SetLen(len(p))
	}
	n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v.iov))), uintptr(len(v.iov)))
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
