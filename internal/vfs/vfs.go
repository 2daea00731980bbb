// Package vfs is the seam between the storage code and the file system.
//
// Everything that must survive a crash goes through an FS, so that tests can fail any operation (faultfs) and cut the power at
// any moment (memfs). The rules of durability are those of POSIX: bytes of a file are safe after File.Sync, a new, renamed or
// removed name is safe after SyncDir of the folder that holds it.
//
// Errors are *fs.PathError or *os.LinkError, so errors.Is works with fs.ErrNotExist, fs.ErrExist and system call numbers.
//
// An FS is safe for concurrent use. A File is safe for ReadAt at once; its other methods need one owner at a time.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer   // at the end for Create and Append files; a short write always returns an error
	io.WriterAt // only for files from OpenRW
	io.Closer
	// Sync returns when every byte written before the call, and the length, are on stable storage. After an error nothing is known about the bytes
	// since the last success, and calling again proves nothing.
	Sync() error
	// Truncate cuts the file, or extends it with zeros.
	Truncate(size int64) error
	// Size is the present length in bytes.
	Size() (int64, error)
}

// Info describes a name.
type Info struct {
	Name     string // last element
	Size     int64  // bytes, of a file
	Dir      bool
	Modified time.Time // last change of the content
}

// FS is a file system. Paths are slash-separated and relative to the working folder unless they start with a slash.
type FS interface {
	Open(path string) (File, error)   // for reading
	OpenRW(path string) (File, error) // an existing file, for ReadAt, WriteAt, Truncate and Sync
	Create(path string) (File, error) // for writing; an existing file is emptied
	Append(path string) (File, error) // for writing at the end, whatever Truncate made of it; created when absent
	Remove(path string) error         // a file or an empty folder
	MkdirAll(path string) error
	ReadDir(path string) ([]Info, error) // ordered by name
	Stat(path string) (Info, error)
	SyncDir(path string) error
	// Rename replaces newPath. It is called by Publish only, so that no half-made file is ever put in place.
	Rename(oldPath, newPath string) error
	// Lock takes the exclusive lock of a file, creating it when absent. When anyone holds it, in this process or another, the
	// error is a *LockedError at once. Close gives the lock back; so does the end of the process.
	Lock(path string) (io.Closer, error)
}

// ErrLocked says that somebody else uses the folder.
var ErrLocked = errors.New("in use by another process")

// LockedError is an ErrLocked that names the lock file.
type LockedError struct{ Path string }

// Error names the lock file.
func (e *LockedError) Error() string { return fmt.Sprintf("lock %s: %v", e.Path, ErrLocked) }

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }
