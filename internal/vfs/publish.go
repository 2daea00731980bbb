package vfs

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// TempSuffix ends the name of every half-made file. Whatever bears it after a crash may be removed.
const TempSuffix = ".tmp"

// IsTemp tells whether a name is that of a half-made file.
func IsTemp(name string) bool { return strings.HasSuffix(name, TempSuffix) }

// Temp is a file in the making: written beside its place, then put there by Publish, or removed by Abort.
// It needs one owner at a time.
type Temp struct {
	fsys FS
	path string // where it will stand
	temp string
	f    File
	done bool
	err  error // first failed write
}

// NewTemp starts a file that will stand at p once published. The folder must exist. Nothing is visible at p before.
func NewTemp(fsys FS, p string) (*Temp, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("name a temporary file for %s: %w", p, err)
	}
	t := &Temp{fsys: fsys, path: p, temp: p + "." + hex.EncodeToString(b[:]) + TempSuffix}
	f, err := fsys.Create(t.temp)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p, err)
	}
	t.f = f
	return t, nil
}

// Write appends to the file.
func (t *Temp) Write(b []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	n, err := t.f.Write(b)
	if err != nil {
		t.err = fmt.Errorf("write %s: %w", t.path, err)
	}
	return n, t.err
}

// ErrUncertain marks a publication whose outcome is not known: the new file may stand in place, or appear, or vanish at a crash.
var ErrUncertain = errors.New("outcome unknown")

// Publish makes the file durable and puts it in its place, replacing what stood there: sync, rename, sync of the folder.
// check, when not nil, runs just before the rename and cancels it by an error. A published or failed Temp is done with.
// An error that is ErrUncertain came after the rename; any other leaves the place as it was.
func (t *Temp) Publish(check func() error) error {
	if t.done {
		return fmt.Errorf("publish %s: %w", t.path, fs.ErrClosed)
	}
	err := t.err
	if err == nil {
		if err = t.f.Sync(); err != nil {
			err = fmt.Errorf("sync %s: %w", t.path, err)
		}
	}
	if err == nil && check != nil {
		err = check()
	}
	if err != nil {
		return errors.Join(err, t.Abort())
	}
	t.done = true
	if err := t.f.Close(); err != nil {
		return errors.Join(fmt.Errorf("close %s: %w", t.path, err), t.fsys.Remove(t.temp))
	}
	if err := t.fsys.Rename(t.temp, t.path); err != nil {
		return errors.Join(fmt.Errorf("publish %s: %w", t.path, err), t.fsys.Remove(t.temp))
	}
	if err := t.fsys.SyncDir(path.Dir(t.path)); err != nil {
		return fmt.Errorf("publish %s: %w: %w", t.path, ErrUncertain, err)
	}
	return nil
}

// Abort removes the half-made file. It does nothing after Publish or Abort.
func (t *Temp) Abort() error {
	if t.done {
		return nil
	}
	t.done = true
	return errors.Join(t.f.Close(), t.fsys.Remove(t.temp))
}

// WriteFile publishes b at p: after it returns nil the whole file is there, whatever happens; before, the old one is.
func WriteFile(fsys FS, p string, b []byte) error {
	t, err := NewTemp(fsys, p)
	if err != nil {
		return err
	}
	if _, err := t.Write(b); err != nil {
		return errors.Join(err, t.Abort())
	}
	return t.Publish(nil)
}

// ReadFile returns the content of the file at p.
func ReadFile(fsys FS, p string) (b []byte, err error) {
	f, err := fsys.Open(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b = make([]byte, size)
	n, err := readFull(f, b)
	return b[:n], err
}

// MkdirAll makes a folder and its parents and makes each new name durable.
func MkdirAll(fsys FS, p string) error {
	p = path.Clean(p)
	st, err := fsys.Stat(p)
	if err == nil {
		if !st.Dir {
			return fmt.Errorf("make folder %s: %w", p, &fs.PathError{Op: "mkdir", Path: p, Err: fs.ErrExist})
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make folder %s: %w", p, err)
	}
	parent := path.Dir(p)
	if parent != p {
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(p); err != nil {
		return fmt.Errorf("make folder %s: %w", p, err)
	}
	if err := fsys.SyncDir(parent); err != nil {
		// Taken back, so that a later call does not find the name and believe it safe.
		return errors.Join(fmt.Errorf("make folder %s: %w", p, err), fsys.Remove(p))
	}
	return nil
}

// readFull fills b from f; a file that is shorter by now gives io.ErrUnexpectedEOF.
func readFull(f File, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return io.ReadFull(f, b)
}
