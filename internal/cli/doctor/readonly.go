package doctor

import (
	"errors"
	"io"
	"io/fs"
	"syscall"

	"github.com/weft-search/weft/internal/vfs"
)

// readOnlyFS is a file system that refuses to change anything, so that an examination leaves a folder as it was whatever the
// code it calls would like to do.
type readOnlyFS struct{ vfs.FS }

func refuse(op, path string) error {
	return &fs.PathError{Op: op, Path: path, Err: syscall.EROFS}
}

func (readOnlyFS) OpenRW(p string) (vfs.File, error)    { return nil, refuse("open for writing", p) }
func (readOnlyFS) Create(p string) (vfs.File, error)    { return nil, refuse("create", p) }
func (readOnlyFS) Append(p string) (vfs.File, error)    { return nil, refuse("append to", p) }
func (readOnlyFS) Remove(p string) error                { return refuse("remove", p) }
func (readOnlyFS) Rename(oldPath, newPath string) error { return refuse("rename", oldPath) }
func (readOnlyFS) SyncDir(string) error                 { return nil }

// MkdirAll accepts folders that are there.
func (r readOnlyFS) MkdirAll(p string) error {
	st, err := r.Stat(p)
	if err != nil {
		return refuse("make folder", p)
	}
	if !st.Dir {
		return &fs.PathError{Op: "make folder", Path: p, Err: syscall.ENOTDIR}
	}
	return nil
}

// Lock takes the lock of a file that is there. Where there is none, or it may not be written to, nobody who could write uses the folder.
func (r readOnlyFS) Lock(p string) (io.Closer, error) {
	if _, err := r.Stat(p); errors.Is(err, fs.ErrNotExist) {
		return nothing{}, nil
	}
	c, err := r.FS.Lock(p)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nothing{}, nil
	}
	return c, err
}

// nothing is a lock that is not held.
type nothing struct{}

func (nothing) Close() error { return nil }
