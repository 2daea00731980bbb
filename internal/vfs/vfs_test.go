package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestAcceptance holds every file system to the same behaviour.
func TestAcceptance(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (vfs.FS, string){
		"os":    func(t *testing.T) (vfs.FS, string) { return vfs.OS, filepath.ToSlash(t.TempDir()) },
		"mem":   func(*testing.T) (vfs.FS, string) { return memfs.New(nil), "" },
		"fault": func(*testing.T) (vfs.FS, string) { return faultfs.New(memfs.New(nil)), "" },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, root := open(t)
			accept(t, fsys, root+"/d")
		})
	}
}

func accept(t *testing.T, fsys vfs.FS, d string) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	holds := func(p, want string) {
		t.Helper()
		b, err := vfs.ReadFile(fsys, p)
		if err != nil || string(b) != want {
			t.Fatalf("%s holds %q, %v; want %q", p, b, err, want)
		}
	}
	_, err := fsys.Create(d + "/f")
	is(err, fs.ErrNotExist)
	ok(vfs.MkdirAll(fsys, d+"/sub/deep"))
	ok(vfs.MkdirAll(fsys, d+"/sub/deep"))

	f, err := fsys.Create(d + "/f")
	ok(err)
	_, err = f.Write([]byte("hello "))
	ok(err)
	_, err = f.Write([]byte("world"))
	ok(err)
	ok(f.Sync())
	size, err := f.Size()
	ok(err)
	if size != 11 {
		t.Fatalf("size %d", size)
	}
	ok(f.Close())
	is(f.Close(), fs.ErrClosed)
	holds(d+"/f", "hello world")

	f, err = fsys.Append(d + "/f")
	ok(err)
	ok(f.Truncate(5))
	_, err = f.Write([]byte("!"))
	ok(err)
	ok(f.Close())
	holds(d+"/f", "hello!")

	f, err = fsys.OpenRW(d + "/f")
	ok(err)
	_, err = f.WriteAt([]byte("EL"), 1)
	ok(err)
	ok(f.Truncate(8))
	b := make([]byte, 10)
	n, err := f.ReadAt(b, 2)
	if err != io.EOF || string(b[:n]) != "Llo!\x00\x00" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	ok(f.Close())
	_, err = fsys.OpenRW(d + "/none")
	is(err, fs.ErrNotExist)

	f, err = fsys.Open(d + "/f")
	ok(err)
	if _, err := f.Write([]byte("x")); err == nil {
		t.Fatal("wrote to a file opened for reading")
	}
	ok(fsys.Remove(d + "/f"))
	all, err := io.ReadAll(f)
	ok(err)
	if string(all) != "hELlo!\x00\x00" {
		t.Fatalf("a removed file reads %q", all)
	}
	ok(f.Close())
	is(fsys.Remove(d+"/f"), fs.ErrNotExist)
	_, err = fsys.Stat(d + "/f")
	is(err, fs.ErrNotExist)
	if err := fsys.Remove(d + "/sub"); err == nil {
		t.Fatal("removed a folder that is not empty")
	}

	ok(vfs.WriteFile(fsys, d+"/b", []byte("1")))
	ok(vfs.WriteFile(fsys, d+"/a", []byte("22")))
	ok(vfs.WriteFile(fsys, d+"/b", []byte("333")))
	holds(d+"/b", "333")
	entries, err := fsys.ReadDir(d)
	ok(err)
	var names []string
	for _, in := range entries {
		names = append(names, in.Name)
		if in.Dir != (in.Name == "sub") || in.Name == "b" && in.Size != 3 || !in.Dir && in.Modified.IsZero() {
			t.Fatalf("%+v", in)
		}
	}
	if got := strings.Join(names, " "); got != "a b sub" {
		t.Fatalf("listed %s", got)
	}
	_, err = fsys.ReadDir(d + "/none")
	is(err, fs.ErrNotExist)
	_, err = fsys.Open(d + "/a/below")
	if err == nil {
		t.Fatal("opened something below a file")
	}
	is(vfs.MkdirAll(fsys, d+"/a"), fs.ErrExist)
	ok(fsys.SyncDir(d))

	l, err := fsys.Lock(d + "/lock")
	ok(err)
	_, err = fsys.Lock(d + "/lock")
	is(err, vfs.ErrLocked)
	if !strings.Contains(err.Error(), d+"/lock") {
		t.Fatalf("%v does not name the file", err)
	}
	ok(l.Close())
	l, err = fsys.Lock(d + "/lock")
	ok(err)
	ok(l.Close())

	tmp, err := vfs.NewTemp(fsys, d+"/c")
	ok(err)
	_, err = tmp.Write([]byte("x"))
	ok(err)
	refuse := errors.New("refused")
	is(tmp.Publish(func() error { return refuse }), refuse)
	is(tmp.Publish(nil), fs.ErrClosed)
	ok(tmp.Abort())
	entries, err = fsys.ReadDir(d)
	ok(err)
	if len(entries) != 4 {
		t.Fatalf("a refused publication left %+v", entries)
	}
}

func TestPublishFailsAtEveryOperation(t *testing.T) {
	for _, fault := range []faultfs.Fault{faultfs.NoSpace, faultfs.IOError, faultfs.ReadOnly} {
		for n := 1; ; n++ {
			disk := memfs.New(nil)
			if err := vfs.WriteFile(disk, "f", []byte("old")); err != nil {
				t.Fatal(err)
			}
			fsys := faultfs.New(disk)
			fsys.Inject(faultfs.Nth(n, faultfs.Any, fault))
			err := vfs.WriteFile(fsys, "f", []byte("new"))
			b, readErr := vfs.ReadFile(disk, "f")
			if readErr != nil {
				t.Fatal(readErr)
			}
			want := "old"
			if err == nil || errors.Is(err, vfs.ErrUncertain) {
				want = "new"
			}
			if string(b) != want || err != nil && !errors.Is(err, fault.Err) {
				t.Fatalf("operation %d: %q after %v", n, b, err)
			}
			if !fsys.Fired() {
				if n < 5 {
					t.Fatalf("only %d operations", n)
				}
				break
			}
		}
	}
}

func TestInjectors(t *testing.T) {
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	fsys.Inject(faultfs.First(
		faultfs.Under("bad", faultfs.From(2, faultfs.Create, faultfs.NoSpace)),
		faultfs.Nth(3, faultfs.Write, faultfs.NoSpace),
	))
	for i, want := range []bool{true, false, false} {
		f, err := fsys.Create("bad")
		if (err == nil) != want || err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("create %d: %v", i+1, err)
		}
		if f != nil {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := fsys.Create("good")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{4, 4, 2, 4} {
		n, err := f.Write([]byte("1234"))
		if n != want || (err == nil) != (want == 4) {
			t.Fatalf("write %d: %d, %v", i+1, n, err)
		}
	}
	if n := fsys.Count(faultfs.Write); n != 4 || !fsys.Fired() {
		t.Fatalf("%d writes counted", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCrashClone checks the promises of memfs: synced stays, unsynced stays in part, and both extremes happen.
func TestCrashClone(t *testing.T) {
	disk := memfs.New(nil)
	if err := vfs.MkdirAll(disk, "d"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(disk, "d/safe", []byte("safe")); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Append("d/safe")
	if err != nil {
		t.Fatal(err)
	}
	tail := bytes.Repeat([]byte("x"), 2000)
	for i := range 4 {
		if _, err := f.Write(tail[i*500 : i*500+500]); err != nil {
			t.Fatal(err)
		}
	}
	g, err := disk.Create("d/unnamed")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write([]byte("named?")); err != nil {
		t.Fatal(err)
	}
	if err := g.Sync(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	lengths, gone, there, holes := map[int]bool{}, 0, 0, 0
	for range 300 {
		c := disk.CrashClone(rng)
		b, err := vfs.ReadFile(c, "d/safe")
		if err != nil || !bytes.HasPrefix(b, []byte("safe")) {
			t.Fatalf("%q, %v", b, err)
		}
		lengths[len(b)] = true
		if bytes.IndexByte(b, 0) >= 0 {
			holes++
		}
		switch b, err := vfs.ReadFile(c, "d/unnamed"); {
		case errors.Is(err, fs.ErrNotExist):
			gone++
		case err != nil || string(b) != "named?":
			t.Fatalf("%q, %v", b, err)
		default:
			there++
		}
		if l, err := c.Lock("d/lock"); err != nil {
			t.Fatal(err)
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !lengths[4] || !lengths[2004] || len(lengths) < 20 || gone == 0 || there == 0 || holes == 0 {
		t.Fatalf("%d lengths, %d gone, %d there, %d holes", len(lengths), gone, there, holes)
	}
	one, two := disk.CrashClone(rand.New(rand.NewPCG(9, 9))), disk.CrashClone(rand.New(rand.NewPCG(9, 9)))
	a, err1 := vfs.ReadFile(one, "d/safe")
	b, err2 := vfs.ReadFile(two, "d/safe")
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Fatal("the same seed gives different disks")
	}
	if err := errors.Join(f.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
}
