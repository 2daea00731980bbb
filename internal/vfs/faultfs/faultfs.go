// Package faultfs wraps a file system, counts its operations, and fails those that a test chooses.
//
// The usual test runs a scenario, failing the first operation, then the second, and so on until the scenario passes unharmed:
//
//	for n := 1; ; n++ {
//		fsys := faultfs.New(memfs.New(nil))
//		fsys.Inject(faultfs.Nth(n, faultfs.Mutating, faultfs.NoSpace))
//		…
//		if !fsys.Fired() { break }
//	}
//
// An FS is safe for concurrent use; injectors are called one at a time.
package faultfs

import (
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"

	"github.com/weft-search/weft/internal/vfs"
)

// Kind is a set of operations.
type Kind uint32

// The operations.
const (
	Open Kind = 1 << iota // for reading
	OpenRW
	Create
	Append
	Remove
	Rename
	Mkdir
	ReadDir
	Stat // also File.Size
	SyncDir
	Lock
	Read    // also ReadAt
	Write   // at the end; also a WriteAt that makes the file longer
	WriteAt // in place
	Sync
	Truncate
	Close

	Any      = Close<<1 - 1
	Mutating = OpenRW | Create | Append | Remove | Rename | Mkdir | SyncDir | Lock | Write | WriteAt | Sync | Truncate // refused by a read-only file system
	Space    = Create | Append | Mkdir | Rename | Write | WriteAt                                                      // may run out of space
)

// Op is one operation about to happen. For Rename the path is the new name.
type Op struct {
	Kind Kind
	Path string
}

// Fault is how an operation fails.
type Fault struct {
	Err error
	// Half makes a failing write put the first half of its bytes down.
	Half bool
}

// The usual faults.
var (
	NoSpace  = Fault{Err: syscall.ENOSPC, Half: true}
	IOError  = Fault{Err: syscall.EIO}
	ReadOnly = Fault{Err: syscall.EROFS}
)

// Injector decides on an operation: nil lets it happen.
type Injector func(Op) *Fault

// Nth fails the n-th operation (from 1) of the given kinds, and no other.
func Nth(n int, kinds Kind, f Fault) Injector {
	return func(op Op) *Fault {
		if op.Kind&kinds == 0 {
			return nil
		}
		if n--; n == 0 {
			return &f
		}
		return nil
	}
}

// From fails the n-th operation (from 1) of the given kinds and all later ones.
func From(n int, kinds Kind, f Fault) Injector {
	return func(op Op) *Fault {
		if op.Kind&kinds == 0 {
			return nil
		}
		if n > 1 {
			n--
			return nil
		}
		return &f
	}
}

// Under asks in only for paths that contain part.
func Under(part string, in Injector) Injector {
	return func(op Op) *Fault {
		if !strings.Contains(op.Path, part) {
			return nil
		}
		return in(op)
	}
}

// First gives the answer of the first injector that has one.
func First(ins ...Injector) Injector {
	return func(op Op) *Fault {
		for _, in := range ins {
			if f := in(op); f != nil {
				return f
			}
		}
		return nil
	}
}

// FS is the wrapper.
type FS struct {
	inner vfs.FS
	mu    struct {
		sync.Mutex
		inject Injector
		before func(Op)
		counts map[Kind]int
		fired  bool
	}
}

// New wraps inner; nothing fails until Inject.
func New(inner vfs.FS) *FS {
	f := &FS{inner: inner}
	f.mu.counts = map[Kind]int{}
	return f
}

// Inject sets what fails from now on; nil stops failing.
func (f *FS) Inject(in Injector) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.inject = in
}

// Before sets a function that is called before each operation, for instance to cut the power there. It must not use the FS.
func (f *FS) Before(fn func(Op)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.before = fn
}

// Fired tells whether any operation failed by injection.
func (f *FS) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.fired
}

// Count returns how many operations of the given kinds were tried.
func (f *FS) Count(kinds Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for k, c := range f.mu.counts {
		if k&kinds != 0 {
			n += c
		}
	}
	return n
}

func (f *FS) ask(k Kind, path string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := Op{Kind: k, Path: path}
	f.mu.counts[k]++
	if f.mu.before != nil {
		f.mu.before(op)
	}
	if f.mu.inject == nil {
		return nil
	}
	fault := f.mu.inject(op)
	f.mu.fired = f.mu.fired || fault != nil
	return fault
}

// try returns the injected error of an operation, if any.
func (f *FS) try(k Kind, name, path string) error {
	if fault := f.ask(k, path); fault != nil {
		return &fs.PathError{Op: name, Path: path, Err: fault.Err}
	}
	return nil
}

func (f *FS) open(k Kind, path string, fn func(string) (vfs.File, error)) (vfs.File, error) {
	if err := f.try(k, "open", path); err != nil {
		return nil, err
	}
	h, err := fn(path)
	if err != nil {
		return nil, err
	}
	return &file{File: h, fs: f, path: path}, nil
}

// Open implements vfs.FS.
func (f *FS) Open(path string) (vfs.File, error) { return f.open(Open, path, f.inner.Open) }

// OpenRW implements vfs.FS.
func (f *FS) OpenRW(path string) (vfs.File, error) { return f.open(OpenRW, path, f.inner.OpenRW) }

// Create implements vfs.FS.
func (f *FS) Create(path string) (vfs.File, error) { return f.open(Create, path, f.inner.Create) }

// Append implements vfs.FS.
func (f *FS) Append(path string) (vfs.File, error) { return f.open(Append, path, f.inner.Append) }

// Remove implements vfs.FS.
func (f *FS) Remove(path string) error {
	if err := f.try(Remove, "remove", path); err != nil {
		return err
	}
	return f.inner.Remove(path)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldPath, newPath string) error {
	if err := f.try(Rename, "rename", newPath); err != nil {
		return err
	}
	return f.inner.Rename(oldPath, newPath)
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(path string) error {
	if err := f.try(Mkdir, "mkdir", path); err != nil {
		return err
	}
	return f.inner.MkdirAll(path)
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(path string) ([]vfs.Info, error) {
	if err := f.try(ReadDir, "readdir", path); err != nil {
		return nil, err
	}
	return f.inner.ReadDir(path)
}

// Stat implements vfs.FS.
func (f *FS) Stat(path string) (vfs.Info, error) {
	if err := f.try(Stat, "stat", path); err != nil {
		return vfs.Info{}, err
	}
	return f.inner.Stat(path)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(path string) error {
	if err := f.try(SyncDir, "syncdir", path); err != nil {
		return err
	}
	return f.inner.SyncDir(path)
}

// Lock implements vfs.FS.
func (f *FS) Lock(path string) (io.Closer, error) {
	if err := f.try(Lock, "lock", path); err != nil {
		return nil, err
	}
	return f.inner.Lock(path)
}

type file struct {
	vfs.File
	fs   *FS
	path string
}

func (h *file) Read(b []byte) (int, error) {
	if err := h.fs.try(Read, "read", h.path); err != nil {
		return 0, err
	}
	return h.File.Read(b)
}

func (h *file) ReadAt(b []byte, off int64) (int, error) {
	if err := h.fs.try(Read, "read", h.path); err != nil {
		return 0, err
	}
	return h.File.ReadAt(b, off)
}

func (h *file) Write(b []byte) (int, error) {
	return h.write(Write, b, h.File.Write)
}

func (h *file) WriteAt(b []byte, off int64) (int, error) {
	kind := WriteAt
	if size, err := h.File.Size(); err == nil && off+int64(len(b)) > size {
		kind = Write
	}
	return h.write(kind, b, func(b []byte) (int, error) { return h.File.WriteAt(b, off) })
}

func (h *file) write(k Kind, b []byte, fn func([]byte) (int, error)) (int, error) {
	fault := h.fs.ask(k, h.path)
	if fault == nil {
		return fn(b)
	}
	n := 0
	if fault.Half {
		var err error
		if n, err = fn(b[:len(b)/2]); err != nil {
			return n, err
		}
	}
	return n, &fs.PathError{Op: "write", Path: h.path, Err: fault.Err}
}

func (h *file) Sync() error {
	if err := h.fs.try(Sync, "sync", h.path); err != nil {
		return err
	}
	return h.File.Sync()
}

func (h *file) Truncate(size int64) error {
	if err := h.fs.try(Truncate, "truncate", h.path); err != nil {
		return err
	}
	return h.File.Truncate(size)
}

func (h *file) Size() (int64, error) {
	if err := h.fs.try(Stat, "stat", h.path); err != nil {
		return 0, err
	}
	return h.File.Size()
}

func (h *file) Close() error {
	if err := h.fs.try(Close, "close", h.path); err != nil {
		if inner := h.File.Close(); inner != nil {
			return inner
		}
		return err
	}
	return h.File.Close()
}
