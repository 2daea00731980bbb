package vfs

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Sync leaves out what nobody needs to read the bytes again, as the time of the last change: a file that has not become longer costs no commit of
// the file system's journal.
func (f osFile) Sync() error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			if failed = unix.Fdatasync(int(fd)); !errors.Is(failed, unix.EINTR) {
				return
			}
		}
	})
	if failed != nil {
		err = &fs.PathError{Op: "sync", Path: f.Name(), Err: failed}
	}
	return err
}
