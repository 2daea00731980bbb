package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestFreshOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := bubbleConfig(t, memfs.New(nil))
		open := func(cfg Config) *Shard {
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := open(cfg)
		fresh := func(what string, want bool, ops ...Op) {
			t.Helper()
			res, err := s.Apply(t.Context(), ops)
			if err != nil {
				t.Fatal(err)
			}
			if last := res[len(res)-1]; last.Fresh != want || last.Err != nil {
				t.Errorf("%s: %+v", what, last)
			}
		}
		put := func(key string) Op {
			return put(&schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}})
		}
		fresh("the first", true, put("a"))
		fresh("another", true, put("b"))
		fresh("one that is there", false, put("a"))
		fresh("one that is there since the operation before", false, put("c"), put("c"))
		fresh("a delete of nothing", false, Op{Delete: true, Key: "d"})
		fresh("behind a delete of another", true, put("e"))
		fresh("behind its own", false, put("d"))
		fresh("a delete of what is there", false, Op{Delete: true, Key: "e"})
		fresh("a delete of what is there", false, Op{Delete: true, Key: "f"})
		<-time.After(Undisturbed - time.Second)
		fresh("some time behind it", false, put("e"))
		<-time.After(3 * time.Second)
		fresh("long behind it", true, put("f"))
		fresh("behind a delete of the same batch", false, Op{Delete: true, Key: "g"}, put("g"))
		closeShard(t, s)
		s = open(cfg)
		fresh("of a shard that was there", false, put("h"))
		<-time.After(Undisturbed + time.Second)
		fresh("long behind its opening", true, put("i"))
		closeShard(t, s)
		cfg = bubbleConfig(t, memfs.New(nil))
		cfg.Disturbed = true
		s = open(cfg)
		fresh("where another was", false, put("a"))
		closeShard(t, s)
	})
}

// TestFreshOverwrites follows what is said of writes to documents that are there.
func TestFreshOverwrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), bubbleConfig(t, memfs.New(nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { closeShard(t, s) }()
		doc := func(key string) Op {
			return put(&schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}})
		}
		fresh := func(what, key string, want bool) {
			t.Helper()
			res, err := s.Apply(t.Context(), []Op{doc(key)})
			if err != nil {
				t.Fatal(err)
			}
			if !res[0].Existed || res[0].Fresh != want {
				t.Errorf("%s: %+v", what, res[0])
			}
		}
		flush := func() {
			t.Helper()
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		look := func(keys ...string) {
			t.Helper()
			if err := discard(s.Disturb(t.Context(), keys, 0)); err != nil {
				t.Fatal(err)
			}
		}
		var ops []Op
		for i := range 100 {
			ops = append(ops, doc(strconv.Itoa(i)))
		}
		if _, err := s.Apply(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * Undisturbed)
		fresh("in a memtable", "0", false)
		flush()
		fresh("in a segment of now", "1", false)
		<-time.After(Undisturbed - time.Second)
		fresh("in a segment of a while ago", "2", false)
		look("13")
		<-time.After(2 * time.Second)
		fresh("which somebody looked at before it had rested", "13", false)
		fresh("in a segment of long ago", "3", true)
		fresh("which was written a moment ago", "3", false)
		look("4", "nosuch")
		fresh("which somebody looked at", "4", false)
		fresh("which nobody looked at", "5", true)
		fresh("behind a look at one that is not there", "6", true)
		if res, err := s.Apply(t.Context(), []Op{doc("nosuch"), doc("new")}); err != nil || res[0].Fresh || !res[1].Fresh {
			t.Errorf("one that was not there when somebody looked, and one that nobody looked for: %+v, %v", res, err)
		}
		if _, err := s.Apply(t.Context(), []Op{{Delete: true, Key: "7"}}); err != nil {
			t.Fatal(err)
		}
		flush()
		if err := s.Merge(t.Context(), 1); err != nil { // with what was written now
			t.Fatal(err)
		}
		fresh("in a segment that was merged with one of now", "8", false)
		<-time.After(Undisturbed + time.Second)
		fresh("long after it", "9", true)
		flush()
		<-time.After(Undisturbed + time.Second)
		fresh("in the one of two segments of long ago", "10", true)
		flush()
		look("11")
		<-time.After(Undisturbed + 2*time.Second)
		if err := s.Merge(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		fresh("in a segment that was merged of old ones", "12", true)
		fresh("which somebody looked at long ago", "11", true)
	})
}

// TestDisturbWaitsForWrites looks at a document that is applied and not visible yet.
func TestDisturbWaitsForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		s, err := Open(t.Context(), bubbleConfig(t, fsys))
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		doc := func(key string) Op {
			return put(&schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}})
		}
		if _, err := s.Apply(t.Context(), []Op{doc("a"), doc("b")}); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(Undisturbed + time.Second)
		_, before := s.Version()
		held, gate := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fsys.Before(func(op faultfs.Op) {
			if op.Kind == faultfs.Sync {
				once.Do(func() {
					close(held)
					<-gate
				})
			}
		})
		var wg sync.WaitGroup
		var res []OpResult
		wg.Go(func() {
			var err error
			if res, err = s.Apply(t.Context(), []Op{doc("a")}); err != nil {
				t.Error(err)
			}
		})
		<-held
		// Of another document nothing is under way.
		if err := discard(s.Disturb(t.Context(), []string{"b", "nosuch"}, 0)); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := discard(s.Disturb(gone, []string{"a"}, 0)); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		looked := false
		wg.Go(func() {
			if err := discard(s.Disturb(t.Context(), []string{"a"}, 0)); err != nil {
				t.Error(err)
			}
			looked = true
			sn := s.Snapshot()
			defer sn.Release()
			if ts := sn.CommitTS(); ts <= before {
				t.Errorf("the look shows the shard as of %d, before the write", ts)
			}
		})
		synctest.Wait()
		if looked {
			t.Error("the look did not wait for the write")
		}
		close(gate)
		wg.Wait()
		if !res[0].Fresh {
			t.Error("the write came before the look and is not fresh")
		}
		if res, err = s.Apply(t.Context(), []Op{doc("b")}); err != nil || res[0].Fresh {
			t.Errorf("behind the look: %+v, %v", res, err)
		}
	})
}

// TestDisturbancesOfKeys holds what is kept of deletions against all of them.
func TestDepartedKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var d disturbances
	now := time.Now()
	if d.lately("a", now) {
		t.Error("nothing was deleted")
	}
	at := map[string]time.Time{}
	asked, wrong := 0, 0
	for range 20_000 {
		now = now.Add(time.Duration(r.Int64N(int64(time.Second))))
		key := strconv.Itoa(r.IntN(3000))
		if r.IntN(3) == 0 {
			d.add(key, now)
			at[key] = now
			continue
		}
		gone, ok := at[key]
		is := ok && now.Sub(gone) <= Undisturbed
		switch got := d.lately(key, now); {
		case is && !got:
			t.Fatalf("%s was deleted %v ago", key, now.Sub(gone))
		case !is:
			asked++
			if got {
				wrong++
			}
		}
	}
	if asked < 1000 || wrong*10 > asked {
		t.Errorf("of %d keys that were not deleted lately %d seem so", asked, wrong)
	}
	d.all(now)
	if !d.lately("never", now.Add(Undisturbed-time.Second)) || d.lately("never", now.Add(Undisturbed)) {
		t.Error("all keys may have been deleted, for Undisturbed")
	}
}

// TestALookAtWhatComesToNothing looks at a document whose latest write fails on a full disk. What the look has shown is the one before, and nothing is
// Fresh behind it.
func TestALookAtWhatComesToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		s, err := Open(t.Context(), bubbleConfig(t, fsys))
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		doc := func(key string) Op {
			return put(&schema.Document{Key: key, Fields: []schema.Values{{Field: fID, Text: []string{key}}}})
		}
		if _, err := s.Apply(t.Context(), []Op{doc("a"), doc("b")}); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(Undisturbed + time.Second)
		held, gate := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fsys.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
		fsys.Before(func(faultfs.Op) {
			once.Do(func() {
				close(held)
				<-gate
			})
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Apply(t.Context(), []Op{doc("a")}); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a write on a full disk: %v", err)
			}
		})
		<-held
		wg.Go(func() {
			if err := discard(s.Disturb(t.Context(), []string{"a"}, 0)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(gate)
		wg.Wait()
		fsys.Inject(nil)
		<-time.After(time.Minute) // there is room again
		for key, want := range map[string]bool{"a": false, "b": true} {
			if res, err := s.Apply(t.Context(), []Op{doc(key)}); err != nil || res[0].Fresh != want {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
		}
	})
}

// discard is the error of a look.
func discard(_ bool, err error) error { return err }
