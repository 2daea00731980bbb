package shard

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestLostLogIsDamage: acknowledged writes may have been in a log that is gone, so the shard must not open as if there had been none.
func TestLostLogIsDamage(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		disk := memfs.New(nil)
		s, err := Open(t.Context(), config(t, disk))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		for _, key := range []string{"a", "b"} {
			if _, err := s.Apply(t.Context(), []Op{put(randomDoc(r, key))}); err != nil {
				t.Fatal(err)
			}
			if flushed {
				if err := s.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				flushed = false // b stays in the log
			}
		}
		lost := disk.CrashClone(r)
		closeShard(t, s)
		names, err := lost.ReadDir("d/" + logName)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range names {
			if err := lost.Remove("d/" + logName + "/" + f.Name); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := Open(t.Context(), config(t, lost)); !errors.Is(err, ErrDamaged) {
			if err == nil {
				closeShard(t, s)
			}
			t.Fatalf("open without its log: %v", err)
		}
	}
}

// TestConflictingFieldIsVisibleWhenItIsRefused: two writers infer one field in two ways. The one that is refused looks at Schema
// to see why, so the other's field has to be there by then, even if it was still on its way to the disk.
func TestConflictingFieldIsVisibleWhenItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		s, err := Open(t.Context(), bubbleConfig(t, fsys))
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		var slow atomic.Bool
		gate := make(chan struct{})
		fsys.Before(func(op faultfs.Op) {
			if op.Kind == faultfs.Sync && slow.Load() {
				<-gate
			}
		})
		slow.Store(true)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			first <- s.AddFields(t.Context(), []schema.Field{{Name: "fresh", Type: schema.I64, Fast: true, Stored: true}})
		}()
		synctest.Wait()
		go func() {
			second <- s.AddFields(t.Context(), []schema.Field{{Name: "fresh", Type: schema.F64, Fast: true, Stored: true}})
		}()
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("refused before the other's field was visible: %v", err)
		default:
		}
		slow.Store(false)
		close(gate)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		var conflict *schema.ConflictError
		if err := <-second; !errors.As(err, &conflict) {
			t.Fatalf("second: %v", err)
		}
		if _, ok := s.Schema().Lookup("fresh"); !ok {
			t.Fatal("the field is not visible")
		}
	})
}

// TestOpenRemovesWhatACrashLeftHalfMade: a node that is killed in its flushes again and again must not fill the disk.
func TestOpenRemovesWhatACrashLeftHalfMade(t *testing.T) {
	disk := memfs.New(nil)
	s, err := Open(t.Context(), config(t, disk))
	if err != nil {
		t.Fatal(err)
	}
	name := path.Join("d", storeName, s.name.Prefix(), "segments", "0123.seg.77"+vfs.TempSuffix)
	closeShard(t, s)
	if err := vfs.MkdirAll(disk, path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), config(t, disk)); err != nil {
		t.Fatal(err)
	}
	defer closeShard(t, s)
	if _, err := disk.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", name, err)
	}
}

// TestStampsOfACalendarBefore1970AreNotTheHighest: a shard whose clock was before 1970 for a moment must have room for the stamps that follow.
func TestStampsOfACalendarBefore1970AreNotTheHighest(t *testing.T) {
	for at, want := range map[time.Time]uint64{
		time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC): 0,
		time.Unix(-1, 999_999_000):                  0,
		time.Unix(0, 0):                             0,
		time.Unix(1, 5000):                          1_000_005,
		time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC): 10_413_792_000_000_000,
	} {
		if got := stamp(at); got != want {
			t.Errorf("%v is stamped %d, want %d", at, got, want)
		}
	}
}
