package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/vfs"
)

// lockName is the file that a Folder open for writing holds locked. It begins with a dot, so it is no key.
const lockName = ".store.lock"

// etagLimit is the size in bytes up to which Get and Stat read an object for its etag.
const etagLimit = 1 << 20

// Folder is a Store in a local folder: an object is a file, its key the path. Its etag is the 128-bit xxh3 of its content in hex, so the
// same content written again has the same etag. No key may be a folder of another.
//
// Conditions are checked and files put in place under one mutex, and one process at a time has the folder open for writing, or takes
// its lock for each write where it is shared, so a condition still holds when the object appears. Safe for concurrent use.
type Folder struct {
	fsys vfs.FS
	root string
	lock io.Closer // nil when read-only or shared
	// shared says that other processes write too: each write takes the lock.
	shared bool
	mu     struct {
		sync.Mutex // held from the check of a condition until the name is durable
		// sure holds the folders whose names are durable. In any other, what is seen may vanish at a crash: its last sync failed, perhaps that
		// of a process before this one.
		sure map[string]bool
	}
}

// FolderOptions tune a folder. The zero value is the default.
type FolderOptions struct {
	FS       vfs.FS // nil: the operating system's
	ReadOnly bool   // takes no lock and changes nothing: for looking at a folder that is in use
	// Shared lets several processes have the folder open for writing. Each write takes the lock of the folder for as long as it
	// puts its file in place, so conditions hold between them as well; that is for few and small objects. A file system over a network has
	// to have working locks.
	Shared bool
}

// OpenFolder opens the store in root, which is made if absent. A second process that opens it for writing gets vfs.ErrLocked.
func OpenFolder(root string, o FolderOptions) (*Folder, error) {
	f := &Folder{fsys: o.FS, root: root}
	if f.fsys == nil {
		f.fsys = vfs.OS
	}
	if o.ReadOnly {
		if _, err := f.fsys.Stat(root); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		return f, nil
	}
	if err := vfs.MkdirAll(f.fsys, root); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if o.Shared {
		f.shared = true
		return f, nil
	}
	lock, err := f.fsys.Lock(path.Join(root, lockName))
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", root, err)
	}
	f.lock = lock
	f.mu.sure = map[string]bool{}
	return f, nil
}

// Close gives the lock back. Open objects stay usable; writes in progress must have ended.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

// LocalPath implements Local.
func (f *Folder) LocalPath(key string) (string, error) {
	if err := ValidKey(key); err != nil {
		return "", err
	}
	return path.Join(f.root, key), nil
}

// wrap gives a file system's error the object's name and, where the file is absent, its kind.
func wrap(what, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) {
		return fmt.Errorf("%s %s: %w", what, key, ErrNotFound)
	}
	return fmt.Errorf("%s %s: %w", what, key, err)
}

func (f *Folder) writable(ctx context.Context, what, key string) (p string, err error) {
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("%s %s: %w", what, key, err)
	}
	if f.readOnly() {
		return "", fmt.Errorf("%s %s: %w", what, key, ErrReadOnly)
	}
	return f.LocalPath(key)
}

func (f *Folder) readOnly() bool { return f.lock == nil && !f.shared }

// lockWait is how long a write of a shared folder waits before it asks for the lock again.
const lockWait = 2 * time.Millisecond

// share takes the lock of a shared folder for one write; release gives it back. f.mu is held.
func (f *Folder) share(ctx context.Context) (release func() error, err error) {
	if !f.shared {
		return func() error { return nil }, nil
	}
	for {
		l, err := f.fsys.Lock(path.Join(f.root, lockName))
		if err == nil {
			return l.Close, nil
		}
		if !errors.Is(err, vfs.ErrLocked) {
			return nil, err
		}
		t := time.NewTimer(lockWait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// Put implements Store.
func (f *Folder) Put(ctx context.Context, key string, r io.Reader, size int64, c Condition) (string, error) {
	return putThrough(ctx, f, key, r, size, c)
}

// NewWriter implements Store.
func (f *Folder) NewWriter(ctx context.Context, key string) (Writer, error) {
	p, err := f.writable(ctx, "put", key)
	if err != nil {
		return nil, err
	}
	if err := vfs.MkdirAll(f.fsys, path.Dir(p)); err != nil {
		return nil, fmt.Errorf("put %s: %w", key, err)
	}
	t, err := vfs.NewTemp(f.fsys, p)
	if err != nil {
		return nil, fmt.Errorf("put %s: %w", key, err)
	}
	return &folderWriter{f: f, key: key, path: p, t: t, h: xxh3.New()}, nil
}

type folderWriter struct {
	f    *Folder
	key  string
	path string
	t    *vfs.Temp
	h    *xxh3.Hasher
}

func (w *folderWriter) Write(b []byte) (int, error) {
	n, err := w.t.Write(b)
	if _, hashErr := w.h.Write(b[:n]); hashErr != nil {
		return n, errors.Join(err, hashErr)
	}
	return n, err
}

func (w *folderWriter) Commit(ctx context.Context, c Condition) (string, error) {
	if err := errors.Join(c.Validate(), context.Cause(ctx)); err != nil {
		return "", errors.Join(fmt.Errorf("put %s: %w", w.key, err), w.t.Abort())
	}
	locked := false
	release := func() error { return nil }
	err := w.t.Publish(func() (err error) {
		w.f.mu.Lock()
		locked = true
		r, err := w.f.share(ctx)
		if err != nil {
			return err
		}
		release = r
		return w.f.check(w.path, c)
	})
	if locked {
		// A lock that is not given back keeps others waiting and changes nothing of what was written.
		if rerr := release(); rerr != nil && err == nil {
			err = fmt.Errorf("%w: give back the lock: %w", ErrUncertain, rerr)
		}
		if errors.Is(err, ErrUncertain) {
			delete(w.f.mu.sure, path.Dir(w.path))
		}
		w.f.mu.Unlock()
	}
	if err != nil {
		return "", fmt.Errorf("put %s: %w", w.key, err)
	}
	return etag(w.h), nil
}

func (w *folderWriter) Abort() error { return w.t.Abort() }

func etag(h *xxh3.Hasher) string {
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

// settle makes sure that the names seen in a folder are durable, so that nobody builds on one that is not. f.mu is held.
func (f *Folder) settle(dir string) error {
	if f.readOnly() || f.mu.sure[dir] {
		return nil
	}
	err := f.fsys.SyncDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // there is nothing to see
	}
	if err != nil {
		return fmt.Errorf("%w: an earlier write: %w", ErrUncertain, err)
	}
	if !f.shared { // another process may leave a name that is not durable at any time
		f.mu.sure[dir] = true
	}
	return nil
}

// check tells whether a condition holds for the file at p. f.mu is held.
func (f *Folder) check(p string, c Condition) error {
	if c == (Condition{}) {
		return nil
	}
	have, err := f.hash(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if c.IfMatch != "" {
			return fmt.Errorf("%w: it is gone", ErrPrecondition)
		}
		return nil
	case err != nil:
		return fmt.Errorf("check condition: %w", err)
	case c.IfNoneMatch != "":
		return fmt.Errorf("%w: it exists", ErrPrecondition)
	case have != c.IfMatch:
		return ErrPrecondition
	}
	return nil
}

// hash returns the etag of the file at p.
func (f *Folder) hash(p string) (tag string, err error) {
	r, err := f.fsys.Open(p)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	h := xxh3.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return etag(h), nil
}

// open opens an object and describes it; the etag only if wanted.
func (f *Folder) open(ctx context.Context, key string, tag bool) (_ vfs.File, in Info, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, in, fmt.Errorf("get %s: %w", key, err)
	}
	p, err := f.LocalPath(key)
	if err != nil {
		return nil, in, err
	}
	f.mu.Lock()
	err = f.settle(path.Dir(p))
	f.mu.Unlock()
	if err != nil {
		return nil, in, fmt.Errorf("get %s: %w", key, err)
	}
	r, err := f.fsys.Open(p)
	if err != nil {
		return nil, in, wrap("get", key, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	st, err := f.fsys.Stat(p) // may be of a successor; only its time is used
	if err != nil {
		return nil, in, wrap("get", key, err)
	}
	if st.Dir {
		return nil, in, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	in = Info{Key: key, Modified: st.Modified}
	if in.Size, err = r.Size(); err != nil {
		return nil, in, wrap("get", key, err)
	}
	if tag && in.Size <= etagLimit {
		h := xxh3.New()
		if _, err = io.Copy(h, io.NewSectionReader(r, 0, in.Size)); err != nil {
			return nil, in, wrap("get", key, err)
		}
		in.ETag = etag(h)
	}
	return r, in, nil
}

// Get implements Store.
func (f *Folder) Get(ctx context.Context, key string) (io.ReadCloser, Info, error) {
	r, in, err := f.open(ctx, key, true)
	if err != nil {
		return nil, in, err
	}
	return r, in, nil
}

// section is a part of a file.
type section struct {
	io.Reader
	io.Closer
}

// GetRange implements Store.
func (f *Folder) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, Info, error) {
	r, in, err := f.open(ctx, key, false)
	if err != nil {
		return nil, in, err
	}
	if err := checkRange(key, off, n, in.Size); err != nil {
		return nil, in, errors.Join(err, r.Close())
	}
	return section{io.NewSectionReader(r, off, min(n, in.Size-off)), r}, in, nil
}

func checkRange(key string, off, n, size int64) error {
	if off < 0 || n < 0 || off > size {
		return fmt.Errorf("get %s: %w: range of %d bytes at %d in %d", key, ErrInvalid, n, off, size)
	}
	return nil
}

// Stat implements Store.
func (f *Folder) Stat(ctx context.Context, key string) (Info, error) {
	r, in, err := f.open(ctx, key, true)
	if err != nil {
		return in, err
	}
	return in, r.Close()
}

// Delete implements Store.
func (f *Folder) Delete(ctx context.Context, key string) (err error) {
	p, err := f.writable(ctx, "delete", key)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	release, err := f.share(ctx)
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := f.fsys.Remove(p); err != nil {
		if err = wrap("delete", key, err); errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	if err := f.fsys.SyncDir(path.Dir(p)); err != nil {
		delete(f.mu.sure, path.Dir(p))
		return fmt.Errorf("delete %s: %w: %w", key, ErrUncertain, err)
	}
	return nil
}

// List implements Store.
func (f *Folder) List(ctx context.Context, prefix string, fn func(Info) error) error {
	dir := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i+1]
		if err := ValidKey(prefix[:i]); err != nil {
			return err
		}
	}
	return f.walk(ctx, dir, func(key string, in vfs.Info) error {
		if vfs.IsTemp(in.Name) || !strings.HasPrefix(key, prefix) {
			return nil
		}
		return fn(Info{Key: key, Size: in.Size, Modified: in.Modified})
	}, prefix)
}

// walk calls fn for the files under dir ("" or ending in a slash) in key order, entering only folders that may hold keys with the prefix.
func (f *Folder) walk(ctx context.Context, dir string, fn func(key string, in vfs.Info) error, prefix string) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	entries, err := f.fsys.ReadDir(path.Join(f.root, dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	keys := make([]string, len(entries))
	byKey := make(map[string]vfs.Info, len(entries))
	for i, in := range entries {
		keys[i] = dir + in.Name
		if in.Dir {
			keys[i] += "/" // sorts as the keys below it do
		}
		byKey[keys[i]] = in
	}
	sort.Strings(keys)
	for _, key := range keys {
		in := byKey[key]
		switch {
		case strings.HasPrefix(in.Name, "."):
		case !in.Dir:
			if err := fn(key, in); err != nil {
				return err
			}
		case strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key):
			if err := f.walk(ctx, key, fn, prefix); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sweep removes half-made files under prefix that nobody has touched since before. A crash leaves them. A nil fn removes, another is told instead.
func (f *Folder) Sweep(ctx context.Context, prefix string, before time.Time, fn func(key string)) error {
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	return f.walk(ctx, dir, func(key string, in vfs.Info) error {
		if !vfs.IsTemp(in.Name) || !strings.HasPrefix(key, prefix) || !in.Modified.Before(before) {
			return nil
		}
		if fn != nil {
			fn(key)
			return nil
		}
		if f.readOnly() {
			return fmt.Errorf("sweep %s: %w", key, ErrReadOnly)
		}
		if err := f.fsys.Remove(path.Join(f.root, key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep %s: %w", key, err)
		}
		return nil
	}, prefix)
}
