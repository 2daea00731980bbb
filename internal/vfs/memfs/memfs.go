// Package memfs is a file system in memory that can lose power.
//
// It keeps apart what programs see and what is on the disk. CrashClone returns the file system as a machine may find it after
// a power cut: all that was synced, and of the rest a random part, with torn writes. A file that was synced but whose name was not
// (SyncDir of its folder) may be gone. The original goes on unharmed, so a test can cut the power after each of its steps.
//
// An FS is safe for concurrent use.
package memfs

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-search/weft/internal/vfs"
)

// Sector is the unit, in bytes, that a disk writes whole or not at all.
const Sector = 512

// FS implements vfs.FS in memory.
type FS struct {
	mu    sync.Mutex
	root  *node
	locks map[*node]bool
	now   func() time.Time
}

// node is a file or a folder.
//
// Invariant: applying unsynced to durable gives data; applying changes to synced gives entries.
type node struct {
	dir      bool
	modified time.Time

	data     []byte // what programs see
	durable  []byte // what the disk holds for certain
	unsynced []change

	entries map[string]*node
	synced  map[string]*node
	changes []rename
}

// change is a write, or a cut when data is nil.
type change struct {
	off  int64
	data []byte
}

// rename is one changed name of a folder; a nil node means removed.
type rename struct {
	name string
	node *node
}

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, synced: map[string]*node{}}
}

// New returns an empty file system with a root folder. Times of change come from now, or time.Now if it is nil.
func New(now func() time.Time) *FS {
	if now == nil {
		now = time.Now
	}
	return &FS{root: newDir(), locks: map[*node]bool{}, now: now}
}

// CrashClone returns what a machine may find after a power cut at this moment. The same rng state gives the same result for the
// same history. Locks are gone.
func (f *FS) CrashClone(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &FS{root: crash(f.root, rng, map[*node]*node{}), locks: map[*node]bool{}, now: f.now}
}

// crash copies what is left of n.
func crash(n *node, rng *rand.Rand, seen map[*node]*node) *node {
	if c, ok := seen[n]; ok {
		return c
	}
	if !n.dir {
		c := &node{modified: n.modified, data: crashData(n, rng)}
		c.durable = append([]byte(nil), c.data...)
		seen[n] = c
		return c
	}
	c := newDir()
	seen[n] = c
	left := make(map[string]*node, len(n.synced))
	for name, child := range n.synced {
		left[name] = child
	}
	for _, ch := range n.changes[:prefix(rng, len(n.changes))] {
		if ch.node == nil {
			delete(left, ch.name)
		} else {
			left[ch.name] = ch.node
		}
	}
	names := make([]string, 0, len(left))
	for name := range left {
		names = append(names, name)
	}
	sort.Strings(names) // the order of random draws must not depend on the map
	for _, name := range names {
		child := crash(left[name], rng, seen)
		c.entries[name], c.synced[name] = child, child
	}
	return c
}

// prefix draws how many of n ordered changes reached the disk: none and all are likely.
func prefix(rng *rand.Rand, n int) int {
	switch rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return n
	default:
		return rng.IntN(n + 1)
	}
}

func crashData(n *node, rng *rand.Rand) []byte {
	data := append([]byte(nil), n.durable...)
	k := prefix(rng, len(n.unsynced))
	for _, ch := range n.unsynced[:k] {
		data = apply(data, ch)
	}
	if k < len(n.unsynced) && n.unsynced[k].data != nil && rng.IntN(2) == 0 {
		torn := n.unsynced[k]
		torn.data = torn.data[:rng.IntN(len(torn.data)+1)]
		data = apply(data, torn)
	}
	if k > 0 && rng.IntN(4) == 0 {
		// The disk wrote out of order: one sector of an unsynced write still holds what it held before, or zeros.
		if ch := n.unsynced[rng.IntN(k)]; len(ch.data) > 0 {
			at := ch.off + rng.Int64N(int64(len(ch.data)))
			lo, hi := at/Sector*Sector, at/Sector*Sector+Sector
			lo, hi = max(lo, ch.off), min(hi, ch.off+int64(len(ch.data)), int64(len(data)))
			for i := lo; i < hi; i++ {
				data[i] = 0
				if i < int64(len(n.durable)) {
					data[i] = n.durable[i]
				}
			}
		}
	}
	return data
}

// apply returns data with the change made.
func apply(data []byte, ch change) []byte {
	if ch.data == nil {
		return resize(data, ch.off)
	}
	if end := ch.off + int64(len(ch.data)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[ch.off:], ch.data)
	return data
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size]
	}
	old := len(data)
	for int64(cap(data)) < size {
		data = append(data[:cap(data)], 0)
	}
	data = data[:size]
	clear(data[old:])
	return data
}

func pathError(op, p string, err error) error { return &fs.PathError{Op: op, Path: p, Err: err} }

// find returns the node at p, or nil. f.mu is held.
func (f *FS) find(p string) *node {
	n := f.root
	for _, part := range strings.Split(strings.Trim(path.Clean("/"+p), "/"), "/") {
		if part == "" {
			continue
		}
		if n = n.entries[part]; n == nil { // a file has a nil map
			return nil
		}
	}
	return n
}

// parent returns the folder that holds p and the name in it. f.mu is held.
func (f *FS) parent(op, p string) (*node, string, error) {
	clean := path.Clean("/" + p)
	n := f.find(path.Dir(clean))
	if n == nil {
		return nil, "", pathError(op, p, fs.ErrNotExist)
	}
	if !n.dir {
		return nil, "", pathError(op, p, syscall.ENOTDIR)
	}
	return n, path.Base(clean), nil
}

func (n *node) set(name string, child *node) {
	if child == nil {
		delete(n.entries, name)
	} else {
		n.entries[name] = child
	}
	n.changes = append(n.changes, rename{name, child})
}

type openMode struct{ write, at, create, cut bool }

func (f *FS) open(op, p string, m openMode) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, name, err := f.parent(op, p)
	if err != nil {
		return nil, err
	}
	n := dir.entries[name]
	switch {
	case n == nil && !m.create:
		return nil, pathError(op, p, fs.ErrNotExist)
	case n == nil:
		n = &node{modified: f.now()}
		dir.set(name, n)
	case n.dir:
		return nil, pathError(op, p, syscall.EISDIR)
	case m.cut && len(n.data) > 0:
		f.change(n, change{off: 0})
	}
	return &file{fs: f, n: n, path: p, mode: m}, nil
}

func (f *FS) change(n *node, ch change) {
	n.data = apply(n.data, ch)
	n.unsynced = append(n.unsynced, ch)
	n.modified = f.now()
}

// Open opens for reading.
func (f *FS) Open(p string) (vfs.File, error) { return f.open("open", p, openMode{}) }

// OpenRW opens for reading and writing in place.
func (f *FS) OpenRW(p string) (vfs.File, error) {
	return f.open("open", p, openMode{write: true, at: true})
}

// Create opens for writing an emptied or new file.
func (f *FS) Create(p string) (vfs.File, error) {
	return f.open("create", p, openMode{write: true, create: true, cut: true})
}

// Append opens for writing at the end.
func (f *FS) Append(p string) (vfs.File, error) {
	return f.open("append", p, openMode{write: true, create: true})
}

// Remove takes a file or an empty folder away.
func (f *FS) Remove(p string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, name, err := f.parent("remove", p)
	if err != nil {
		return err
	}
	n := dir.entries[name]
	if n == nil {
		return pathError("remove", p, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return pathError("remove", p, syscall.ENOTEMPTY)
	}
	dir.set(name, nil)
	return nil
}

// Rename moves a name.
func (f *FS) Rename(oldPath, newPath string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, oldName, err := f.parent("rename", oldPath)
	if err != nil {
		return err
	}
	to, newName, err := f.parent("rename", newPath)
	if err != nil {
		return err
	}
	n := from.entries[oldName]
	if n == nil {
		return pathError("rename", oldPath, fs.ErrNotExist)
	}
	if there := to.entries[newName]; there != nil && there.dir {
		return pathError("rename", newPath, fs.ErrExist)
	}
	to.set(newName, n) // first: a crash between the two leaves both names rather than none
	from.set(oldName, nil)
	return nil
}

// MkdirAll makes a folder and its parents.
func (f *FS) MkdirAll(p string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.root
	for _, part := range strings.Split(strings.Trim(path.Clean("/"+p), "/"), "/") {
		if part == "" {
			continue
		}
		child := n.entries[part]
		if child == nil {
			child = newDir()
			n.set(part, child)
		}
		if !child.dir {
			return pathError("mkdir", p, syscall.ENOTDIR)
		}
		n = child
	}
	return nil
}

func (n *node) info(name string) vfs.Info {
	return vfs.Info{Name: name, Size: int64(len(n.data)), Dir: n.dir, Modified: n.modified}
}

// ReadDir lists a folder by name.
func (f *FS) ReadDir(p string) ([]vfs.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(p)
	if n == nil {
		return nil, pathError("readdir", p, fs.ErrNotExist)
	}
	if !n.dir {
		return nil, pathError("readdir", p, syscall.ENOTDIR)
	}
	out := make([]vfs.Info, 0, len(n.entries))
	for name, child := range n.entries {
		out = append(out, child.info(name))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Stat describes a name.
func (f *FS) Stat(p string) (vfs.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(p)
	if n == nil {
		return vfs.Info{}, pathError("stat", p, fs.ErrNotExist)
	}
	return n.info(path.Base(path.Clean("/" + p))), nil
}

// SyncDir makes the names in a folder durable.
func (f *FS) SyncDir(p string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(p)
	if n == nil {
		return pathError("syncdir", p, fs.ErrNotExist)
	}
	if !n.dir {
		return pathError("syncdir", p, syscall.ENOTDIR)
	}
	n.synced = make(map[string]*node, len(n.entries))
	for name, child := range n.entries {
		n.synced[name] = child
	}
	n.changes = nil
	return nil
}

// Lock takes the lock of a file.
func (f *FS) Lock(p string) (io.Closer, error) {
	h, err := f.Append(p)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := h.(*file).n
	if f.locks[n] {
		return nil, &vfs.LockedError{Path: p}
	}
	f.locks[n] = true
	return &lock{fs: f, n: n, path: p}, nil
}

type lock struct {
	fs   *FS
	n    *node
	path string
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.n == nil {
		return pathError("close", l.path, fs.ErrClosed)
	}
	delete(l.fs.locks, l.n)
	l.n = nil
	return nil
}

// file is an open file.
type file struct {
	fs     *FS
	n      *node
	path   string
	mode   openMode
	pos    int64 // of Read
	closed bool
}

// check is called with the lock held.
func (h *file) check(op string, write bool) error {
	if h.closed {
		return pathError(op, h.path, fs.ErrClosed)
	}
	if write && !h.mode.write {
		return pathError(op, h.path, fs.ErrPermission)
	}
	return nil
}

func (h *file) readLocked(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("read", h.path, fs.ErrInvalid)
	}
	if off >= int64(len(h.n.data)) {
		return 0, io.EOF
	}
	return copy(b, h.n.data[off:]), nil
}

func (h *file) Read(b []byte) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("read", false); err != nil {
		return 0, err
	}
	n, err := h.readLocked(b, h.pos)
	h.pos += int64(n)
	return n, err
}

func (h *file) ReadAt(b []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("read", false); err != nil {
		return 0, err
	}
	n, err := h.readLocked(b, off)
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

func (h *file) Write(b []byte) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.writeLocked(b, int64(len(h.n.data)))
}

func (h *file) WriteAt(b []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if !h.mode.at {
		return 0, pathError("writeat", h.path, fs.ErrPermission)
	}
	return h.writeLocked(b, off)
}

func (h *file) writeLocked(b []byte, off int64) (int, error) {
	if err := h.check("write", true); err != nil {
		return 0, err
	}
	if len(b) > 0 {
		h.fs.change(h.n, change{off: off, data: append([]byte(nil), b...)})
	}
	return len(b), nil
}

func (h *file) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("truncate", true); err != nil {
		return err
	}
	h.fs.change(h.n, change{off: size})
	return nil
}

func (h *file) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("sync", false); err != nil {
		return err
	}
	for _, ch := range h.n.unsynced {
		h.n.durable = apply(h.n.durable, ch)
	}
	h.n.unsynced = nil
	return nil
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("stat", false); err != nil {
		return 0, err
	}
	return int64(len(h.n.data)), nil
}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("close", false); err != nil {
		return err
	}
	h.closed = true
	return nil
}
