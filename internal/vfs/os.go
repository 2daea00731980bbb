package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func open(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Open(path string) (File, error)   { return open(path, os.O_RDONLY) }
func (osFS) OpenRW(path string) (File, error) { return open(path, os.O_RDWR) }
func (osFS) Create(path string) (File, error) {
	return open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) Append(path string) (File, error) {
	return open(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
}
func (osFS) Remove(path string) error             { return os.Remove(path) }
func (osFS) Rename(oldPath, newPath string) error { return os.Rename(oldPath, newPath) }
func (osFS) MkdirAll(path string) error           { return os.MkdirAll(path, 0o755) }

func (osFS) ReadDir(path string) ([]Info, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(entries))
	for _, e := range entries {
		st, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since the folder was read
		}
		if err != nil {
			return nil, err
		}
		out = append(out, infoOf(st))
	}
	return out, nil
}

func (osFS) Stat(path string) (Info, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Info{}, err
	}
	return infoOf(st), nil
}

func infoOf(st os.FileInfo) Info {
	return Info{Name: st.Name(), Size: st.Size(), Dir: st.IsDir(), Modified: st.ModTime()}
}

func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = &LockedError{Path: path}
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}
