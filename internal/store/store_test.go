package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/store/storetest"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func openFolder(t testing.TB, root string, o store.FolderOptions) *store.Folder {
	t.Helper()
	f, err := store.OpenFolder(root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestAcceptance(t *testing.T) {
	t.Run("Folder", func(t *testing.T) {
		storetest.Accept(t, func(t *testing.T) store.Store { return openFolder(t, t.TempDir()+"/store", store.FolderOptions{}) })
	})
	t.Run("SharedFolder", func(t *testing.T) {
		storetest.Accept(t, func(t *testing.T) store.Store {
			return openFolder(t, t.TempDir()+"/store", store.FolderOptions{Shared: true})
		})
	})
	t.Run("FolderInMemory", func(t *testing.T) {
		storetest.Accept(t, func(t *testing.T) store.Store {
			return openFolder(t, "store", store.FolderOptions{FS: memfs.New(nil)})
		})
	})
	t.Run("Memory", func(t *testing.T) {
		storetest.Accept(t, func(*testing.T) store.Store { return store.NewMemory(nil) })
	})
}

func TestFolderIsLocked(t *testing.T) {
	dir := t.TempDir()
	first, err := store.OpenFolder(dir, store.FolderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenFolder(dir, store.FolderOptions{}); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("second opening: %v", err)
	}
	looker := openFolder(t, dir, store.FolderOptions{ReadOnly: true})
	if _, err := looker.Put(t.Context(), "k", strings.NewReader(""), 0, store.Condition{}); !errors.Is(err, store.ErrReadOnly) {
		t.Fatalf("put: %v", err)
	}
	if err := looker.Delete(t.Context(), "k"); !errors.Is(err, store.ErrReadOnly) {
		t.Fatalf("delete: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	openFolder(t, dir, store.FolderOptions{})
	if _, err := store.OpenFolder(dir+"/absent", store.FolderOptions{ReadOnly: true}); err == nil {
		t.Fatal("an absent folder was opened for reading")
	}
}

func TestFolderLargeObject(t *testing.T) {
	f := openFolder(t, t.TempDir(), store.FolderOptions{})
	const size = 3 << 20
	tag, err := f.Put(t.Context(), "big", io.LimitReader(zeros{}, size), size, store.Absent)
	if err != nil {
		t.Fatal(err)
	}
	if in, err := f.Stat(t.Context(), "big"); err != nil || in.Size != size || in.ETag != "" {
		t.Fatalf("%+v, %v", in, err)
	}
	if _, err := f.Put(t.Context(), "big", strings.NewReader("x"), 1, store.Condition{IfMatch: tag}); err != nil {
		t.Fatalf("condition on a large object: %v", err)
	}
	p, err := f.LocalPath("big")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := vfs.ReadFile(vfs.OS, p); err != nil || string(b) != "x" {
		t.Fatalf("%q, %v", b, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestFolderSweep(t *testing.T) {
	now := time.Unix(1e9, 0)
	fsys := memfs.New(func() time.Time { return now })
	f := openFolder(t, "s", store.FolderOptions{FS: fsys})
	w, err := f.NewWriter(t.Context(), "a/k")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	tell := func(key string) { told = append(told, key) }
	for _, before := range []time.Time{now, now.Add(1)} {
		if err := f.Sweep(t.Context(), "a/", before, tell); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || !vfs.IsTemp(told[0]) {
		t.Fatalf("%q", told)
	}
	if err := f.Sweep(t.Context(), "a/", now.Add(1), nil); err != nil {
		t.Fatal(err)
	}
	if entries, err := fsys.ReadDir("s/a"); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v", entries, err)
	}
	if _, err := w.Commit(t.Context(), store.Condition{}); err == nil {
		t.Fatal("committed a swept object")
	}
}

// A put that fails leaves the old content or, if the error says so, perhaps the new; never anything else.
func TestFolderFailAtEveryOperation(t *testing.T) {
	for _, fault := range []faultfs.Fault{faultfs.NoSpace, faultfs.IOError, faultfs.ReadOnly} {
		for n := 1; ; n++ {
			disk := memfs.New(nil)
			fsys := faultfs.New(disk)
			f := openFolder(t, "s", store.FolderOptions{FS: fsys})
			old, err := f.Put(t.Context(), "d/k", strings.NewReader("old"), 3, store.Absent)
			if err != nil {
				t.Fatal(err)
			}
			fsys.Inject(faultfs.Nth(n, faultfs.Any, fault))
			_, err = f.Put(t.Context(), "d/k", strings.NewReader("fresh"), 5, store.Condition{IfMatch: old})
			fired := fsys.Fired()
			fsys.Inject(nil)
			b, _, readErr := store.ReadAll(t.Context(), f, "d/k", 10)
			if readErr != nil {
				t.Fatal(readErr)
			}
			switch {
			case !fired && err != nil:
				t.Fatal(err)
			case errors.Is(err, store.ErrUncertain) || err == nil:
				if string(b) != "fresh" {
					t.Fatalf("operation %d: %q after %v", n, b, err)
				}
			case string(b) != "old" || !errors.Is(err, fault.Err):
				t.Fatalf("operation %d: %q after %v", n, b, err)
			}
			if !fired {
				break
			}
		}
	}
}

// After a name could not be made durable nobody may rely on what is seen, until it is.
func TestUncertainStaysUncertain(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	f := openFolder(t, "s", store.FolderOptions{FS: fsys})
	put := func(content string) error {
		_, err := f.Put(t.Context(), "k", strings.NewReader(content), int64(len(content)), store.Condition{})
		return err
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
	fsys.Inject(faultfs.From(1, faultfs.SyncDir, faultfs.IOError))
	if err := put("two"); !errors.Is(err, store.ErrUncertain) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	if _, _, err := f.Get(t.Context(), "k"); !errors.Is(err, store.ErrUncertain) {
		t.Fatalf("%v", err)
	}
	fsys.Inject(nil)
	if b, _, err := store.ReadAll(t.Context(), f, "k", 10); err != nil || string(b) != "two" {
		t.Fatalf("%q, %v", b, err)
	}
}

func ExampleFolder() {
	fmt.Println(store.Name{Namespace: "acme", Collection: "Ä.b"}.HeadKey())
	// Output: catalog/82/acme/%C3%84.b/manifest_committed_head.json
}

// Several that share a folder, as processes do, lose no update: each change is made of the one before it.
func TestSharedFoldersSwapOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for range writers {
		f, err := store.OpenFolder(dir, store.FolderOptions{Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}()
		wg.Go(func() {
			for done := 0; done < each; {
				c, n := store.Absent, 0
				r, in, err := f.Get(t.Context(), "n")
				switch {
				case err == nil:
					b, rerr := io.ReadAll(r)
					if n, err = strconv.Atoi(string(b)); errors.Join(rerr, err, r.Close()) != nil {
						t.Error(rerr, err)
						return
					}
					c = store.Condition{IfMatch: in.ETag}
				case !errors.Is(err, store.ErrNotFound):
					t.Error(err)
					return
				}
				next := strconv.Itoa(n + 1)
				_, err = f.Put(t.Context(), "n", strings.NewReader(next), int64(len(next)), c)
				switch {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrPrecondition):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(filepath.Join(dir, "n"))
	if err != nil || string(b) != strconv.Itoa(writers*each) {
		t.Errorf("%s after %d changes: %v", b, writers*each, err)
	}
	// One that has it for itself is not let in while another writes, and the other way round.
	alone, err := store.OpenFolder(dir, store.FolderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := store.OpenFolder(dir, store.FolderOptions{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := shared.Put(ctx, "n", strings.NewReader("0"), 1, store.Condition{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write while another has the folder: %v", err)
	}
	if err := errors.Join(alone.Close(), shared.Close()); err != nil {
		t.Error(err)
	}
}
