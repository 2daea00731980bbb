package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// wordyDoc is a put that takes some 200 KB of a memtable without a source. The tests in virtual time keep no sources: the zstd
// encoders that compress them are shared with tests outside of the bubble.
func wordyDoc(n int) Op {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "word%dof%d ", i, n)
	}
	return put(&schema.Document{Key: fmt.Sprint("wordy", n), Fields: []schema.Values{{Field: fBody, Text: []string{b.String()}}}})
}

// bare is verify for a shard without sources.
func (m model) bare(t testing.TB, s *Shard) {
	t.Helper()
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	sn := s.Snapshot()
	defer sn.Release()
	for k := range m {
		if _, _, ok := sn.Find(k); !ok {
			t.Errorf("%q is not there", k)
		}
	}
	if sn.Docs() != uint64(len(m)) {
		t.Errorf("%d documents, want %d", sn.Docs(), len(m))
	}
}

// TestBackgroundFlushIsRetried fails every write to the store: the shard takes writes until its memory is full, then refuses them
// for the disk's sake and not for load, and goes on when the disk is well again.
func TestBackgroundFlushIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		cfg := bubbleConfig(t, fsys)
		cfg.NoBackground = false
		cfg.MemtableBytes = 500 << 10
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		fsys.Inject(faultfs.Under(storeName+"/", faultfs.From(1, faultfs.Space, faultfs.NoSpace)))
		m := model{}
		n := 0
		for ; n < 50; n++ {
			op := wordyDoc(n)
			res, err := s.Apply(t.Context(), []Op{op})
			synctest.Wait() // the background has met the fault
			if err != nil {
				if !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrOverloaded) {
					t.Fatalf("refusal: %v", err)
				}
				break
			}
			m.expect(t, 0, []Op{op}, res)
		}
		if st := s.Stats(); n == 50 || st.FlushFailures == 0 || st.LastErr == "" || st.Flushes != 0 || st.ReadOnly == "" || st.Refused != 1 {
			t.Fatalf("after %d documents: %+v", n, st)
		}
		if _, err := s.Apply(t.Context(), nil); !errors.Is(err, ErrReadOnly) || s.Stats().Refused != 1 {
			t.Errorf("an empty batch that asks for the reason: %v, %d refusals", err, s.Stats().Refused)
		}
		<-time.After(time.Minute)
		if st := s.Stats(); st.FlushFailures < 4 || st.FlushFailures > 20 {
			t.Errorf("%d tries in a minute", st.FlushFailures)
		}
		fsys.Inject(nil)
		<-time.After(time.Minute)
		if st := s.Stats(); st.Flushes != 1 || st.LastErr != "" || st.ReadOnly != "" {
			t.Errorf("after the disk is well: %+v", st)
		}
		m.apply(t, s, 0, wordyDoc(n))
		synctest.Wait()
		m.bare(t, s)
	})
}

// A flush that is given up at any moment, as by the deletion of its index, is no failure of the shard.
func TestFlushesThatAreGivenUp(t *testing.T) {
	for n := 0; ; n++ {
		fsys := faultfs.New(memfs.New(nil))
		cfg := config(t, fsys)
		var told bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelWarn}))
		s := open(t, cfg)
		m := model{}
		m.apply(t, s, 0, randomOps(rand.New(rand.NewPCG(1, 1)), 20)...)
		ctx, cancel := context.WithCancel(t.Context())
		left := n
		fsys.Before(func(faultfs.Op) {
			if left == 0 {
				cancel()
			}
			left--
		})
		err := s.Flush(ctx)
		fsys.Before(nil)
		over := ctx.Err() == nil
		cancel()
		if told.Len() > 0 || s.Stats().LastErr != "" {
			t.Errorf("given up before operation %d: %v, and the shard tells %s", n, err, &told)
		}
		if over {
			if n < 10 {
				t.Errorf("a flush has %d operations", n)
			}
			return
		}
	}
}

// TestLogHealsByItself fills the disk under the log and makes room again.
func TestLogHealsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		cfg := bubbleConfig(t, fsys)
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		r := rand.New(rand.NewPCG(1, 1))
		m := model{}
		m.apply(t, s, 0, randomOps(r, 20)...)
		fsys.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
		if _, err := s.Apply(t.Context(), randomOps(r, 20)); !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("write on a full disk: %v", err)
		}
		<-time.After(time.Minute)
		if s.Stats().ReadOnly == "" {
			t.Fatal("healed on a full disk")
		}
		fsys.Inject(nil)
		<-time.After(time.Minute)
		m.apply(t, s, 0, randomOps(r, 20)...)
		m.bare(t, s)
	})
}

// TestFlushGoesOnAfterAFullDisk fills the disk under a flush, and then under the log as well. With room again both go on: a flush that was
// given up because the shard took no writes is begun anew, or its memtables would stay full.
func TestFlushGoesOnAfterAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		cfg := bubbleConfig(t, fsys)
		cfg.NoBackground = false
		cfg.MemtableBytes = 500 << 10
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		fsys.Inject(faultfs.Under(storeName+"/", faultfs.From(1, faultfs.Space, faultfs.NoSpace)))
		m := model{}
		n := 0
		for ; s.Stats().FlushFailures == 0; n++ {
			if n == 50 {
				t.Fatal("nothing was flushed")
			}
			m.apply(t, s, 0, wordyDoc(n))
			synctest.Wait()
		}
		fsys.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
		if _, err := s.Apply(t.Context(), []Op{wordyDoc(n)}); !errors.Is(err, ErrReadOnly) {
			t.Fatalf("write on a full disk: %v", err)
		}
		<-time.After(time.Minute)
		fsys.Inject(nil)
		<-time.After(time.Minute)
		if st := s.Stats(); st.Flushes != 1 || st.ReadOnly != "" {
			t.Errorf("with room again: %+v", st)
		}
		for range 50 {
			m.apply(t, s, 0, wordyDoc(n))
			synctest.Wait()
			n++
		}
		m.bare(t, s)
	})
}

// TestBrokenLogStaysReadOnly: after a failed sync nothing is known about the disk; only opening again helps.
func TestBrokenLogStaysReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New(memfs.New(nil))
		cfg := bubbleConfig(t, fsys)
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		fsys.Inject(faultfs.Nth(1, faultfs.Sync, faultfs.IOError))
		op := put(randomDoc(rand.New(rand.NewPCG(1, 1)), "a"))
		for range 2 {
			if _, err := s.Apply(t.Context(), []Op{op}); !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("write: %v", err)
			}
			<-time.After(time.Hour)
		}
		if err := s.Flush(t.Context()); !errors.Is(err, ErrReadOnly) {
			t.Fatalf("flush: %v", err)
		}
	})
}

// TestDeletesAloneAreFlushed deletes so much that the log would outgrow the memtable by far.
func TestDeletesAloneAreFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := bubbleConfig(t, memfs.New(nil))
		cfg.NoBackground = false
		cfg.MemtableBytes = 1 << 20
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		m := model{}
		key := func(i int) string { return fmt.Sprintf("%d/%s", i, strings.Repeat("k", 480)) }
		var puts, deletes []Op
		for i := range 6000 {
			puts = append(puts, put(&schema.Document{Key: key(i)}))
			deletes = append(deletes, Op{Delete: true, Key: key(i)})
		}
		for i := 0; i < len(puts); i += 1000 {
			m.apply(t, s, 0, puts[i:i+1000]...)
			synctest.Wait()
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := s.Stats().Flushes
		for i := 0; i < len(deletes); i += 1000 {
			m.apply(t, s, 0, deletes[i:i+1000]...)
			synctest.Wait()
		}
		st := s.Stats()
		if st.Flushes == before || st.LogBytes > 2*logFactor*cfg.MemtableBytes {
			t.Errorf("%d flushes, %d before the deletes, %d bytes of log", st.Flushes, before, st.LogBytes)
		}
		m.bare(t, s)
	})
}

// TestIdleMemtableIsFlushed: a memtable that nobody writes to becomes a segment, unless it is small or is written to yet.
func TestIdleMemtableIsFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := bubbleConfig(t, memfs.New(nil))
		cfg.NoBackground, cfg.IdleFlush = false, 30*time.Second
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer closeShard(t, s)
		m := model{}
		n := 0
		write := func() {
			m.apply(t, s, 0, wordyDoc(n))
			n++
		}
		flushes := func(what string, want uint64) {
			t.Helper()
			synctest.Wait()
			if st := s.Stats(); st.Flushes != want {
				t.Errorf("%s: %d flushes of %d bytes, want %d", what, st.Flushes, st.MemtableBytes, want)
			}
		}
		write()
		if size := s.Stats().MemtableBytes; size >= leastIdle {
			t.Fatalf("one document takes %d bytes", size)
		}
		<-time.After(time.Hour)
		flushes("a small memtable", 0)
		for s.Stats().MemtableBytes < leastIdle {
			write()
		}
		for range 20 {
			<-time.After(cfg.IdleFlush - time.Second)
			write()
		}
		flushes("writes go on", 0)
		<-time.After(2*cfg.IdleFlush + time.Second)
		flushes("idle", 1)
		<-time.After(time.Hour)
		flushes("nothing to be flushed", 1)
		m.bare(t, s)
	})
}

// TestFailedFlushAndMergeLeaveNothing fails one operation on the store after the other in a flush and a merge, tries again, and
// looks for objects that no manifest names.
func TestFailedFlushAndMergeLeaveNothing(t *testing.T) {
	for n := 1; ; n++ {
		disk := memfs.New(nil)
		fsys := faultfs.New(disk)
		s, err := Open(t.Context(), config(t, fsys))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(2, 2))
		m := model{}
		m.apply(t, s, 0, randomOps(r, 30)...)
		fsys.Inject(faultfs.Under(storeName+"/", faultfs.Nth(n, faultfs.Space|faultfs.Sync, faultfs.IOError)))
		step := func(fn func() error) {
			err := fn()
			if err != nil && (!errors.Is(err, syscall.EIO) || !fsys.Fired()) {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err != nil {
				err = fn()
			}
			if err != nil {
				t.Fatalf("operation %d: second try: %v", n, err)
			}
		}
		step(func() error { return s.Flush(t.Context()) })
		m.apply(t, s, 0, randomOps(r, 30)...)
		step(func() error { return s.Merge(t.Context(), 1) })
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("operation %d: %v", n, err)
		}
		sn := s.Snapshot()
		m.verify(t, sn)
		sn.Release()
		rep, err := s.catalog.Verify(t.Context(), s.name, store.VerifyOptions{Deep: true})
		if err != nil || len(rep.Problems) > 0 {
			t.Errorf("operation %d: %v %v", n, err, rep.Problems)
		}
		for _, o := range rep.Unreferenced {
			if strings.Contains(o.Key, "/"+store.KindSegment+"/") {
				t.Errorf("operation %d: %s is left", n, o.Key)
			}
		}
		fired := fsys.Fired()
		closeShard(t, s)
		if !fired {
			if n < 8 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
	}
}

func TestPacerKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{ctx: t.Context(), rate: 1 << 20, start: time.Now()}
		for range 64 {
			if err := p.wait(256 << 10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(p.start); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("16 MiB at 1 MiB/s took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.ctx = ctx
		if err := p.wait(1 << 20); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}
