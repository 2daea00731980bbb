package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// staging returns the config of a shard whose writes show on Commit.
func staging(t testing.TB, cfg Config) Config {
	t.Helper()
	cfg.OnCommit = true
	return cfg
}

// TestNothingShowsBeforeCommit goes through writes, flushes, merges, commits and restarts at random: readers see what the last Commit
// published and nothing else, writers decide by all that was applied, and a snapshot taken at any time stands still.
func TestNothingShowsBeforeCommit(t *testing.T) {
	seeds := uint64(6)
	if long {
		seeds = 80
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runStaged(t, seed) })
	}
}

func runStaged(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 23))
	var clock testClock
	cfg := staging(t, config(t, memfs.New(nil)))
	cfg.Clock = clock.read
	cfg.MemtableBytes = 1 << 20
	s := open(t, cfg)
	m, shown := model{}, model{} // applied; what readers see
	type held struct {
		sn *Snapshot
		m  model
	}
	var snaps []held
	keys := 20 + r.IntN(150)
	look := func() {
		t.Helper()
		sn := s.Snapshot()
		defer sn.Release()
		shown.verify(t, sn)
		if got := s.Stats().Docs; got != uint64(len(shown)) {
			t.Fatalf("%d documents counted, want %d", got, len(shown))
		}
		if v, ts := s.Version(); v != sn.Version() || ts != sn.CommitTS() {
			t.Fatalf("version %d at %d, the snapshot is %d at %d", v, ts, sn.Version(), sn.CommitTS())
		}
	}
	for step := range 150 {
		var err error
		switch x := r.IntN(100); {
		case x < 70:
			clock.now.Add(1)
			m.apply(t, s, clock.now.Load(), randomOps(r, keys)...)
		case x < 78:
			err = s.Flush(t.Context())
		case x < 81:
			err = s.Merge(t.Context(), 1+r.IntN(3))
		case x < 88:
			if err = s.Commit(t.Context()); err == nil {
				shown = m.clone()
				if n := s.Stats().Staged; n != 0 {
					t.Fatalf("%d records are staged after a commit", n)
				}
			}
		case x < 94:
			snaps = append(snaps, held{s.Snapshot(), shown.clone()})
		default:
			for _, h := range snaps {
				h.m.verify(t, h.sn)
				h.sn.Release()
			}
			snaps = nil
			s.cfg.NoFlushOnClose = r.IntN(2) == 0
			if !s.cfg.NoFlushOnClose {
				shown = m.clone() // a stop commits
			}
			closeShard(t, s)
			s = open(t, cfg)
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if step%10 == 9 {
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			look()
		}
	}
	for _, h := range snaps {
		h.m.verify(t, h.sn)
		h.sn.Release()
	}
	look()
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	shown = m.clone()
	look()
	other := m.fresh(t)
	sn, osn := s.Snapshot(), other.Snapshot()
	sameAnswers(t, sn, osn)
	sn.Release()
	osn.Release()
}

// TestCommitUnderWrites commits while others write and flush: each snapshot is some prefix of the batches, they never go back, and
// what was acknowledged before a Commit began is in the first snapshot after it.
func TestCommitUnderWrites(t *testing.T) {
	cfg := staging(t, config(t, memfs.New(nil)))
	cfg.NoBackground = false
	cfg.MemtableBytes = 200 << 10 // memtables are frozen all the time, also between two steps of a commit
	s := open(t, cfg)
	const batches = 600
	var acked atomic.Int64
	done := make(chan error, 1)
	go func() {
		r := rand.New(rand.NewPCG(1, 29))
		done <- func() error {
			for i := range batches {
				// Each batch puts its own document and replaces a common one, so that a snapshot tells which batches it has.
				ops := []Op{put(randomDoc(r, fmt.Sprintf("own-%04d", i))), put(randomDoc(r, "common"))}
				ops[0].Doc.Source = append(ops[0].Doc.Source, make([]byte, 40<<10)...)
				for {
					_, err := s.Apply(context.Background(), ops)
					if errors.Is(err, ErrOverloaded) {
						err = s.Flush(context.Background())
						if err == nil {
							continue
						}
					}
					if err != nil {
						return err
					}
					break
				}
				acked.Store(int64(i + 1))
			}
			return nil
		}()
	}()
	seen := uint64(0)
	for last := false; !last; {
		last = acked.Load() == batches
		before := uint64(acked.Load())
		if err := s.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		own := uint64(0)
		if n := sn.Docs(); n > 0 {
			own = n - 1
		}
		if own < before || own < seen {
			t.Fatalf("%d batches show, %d were acknowledged before the commit and %d seen", own, before, seen)
		}
		for i := range own {
			if _, _, ok := sn.Find(fmt.Sprintf("own-%04d", i)); !ok {
				t.Fatalf("of %d batches number %d is not there", own, i)
			}
		}
		if err := sn.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen = own
		sn.Release()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if seen != batches {
		t.Fatalf("%d of %d batches show at the end", seen, batches)
	}
}

// TestStagedSurvivesPowerCuts cuts the power at random file operations: what is left shows a state that was committed, at least the
// last one that Commit acknowledged, and a Commit then shows at least all batches that were acknowledged.
func TestStagedSurvivesPowerCuts(t *testing.T) {
	runs, cuts := 2, 10
	if long {
		runs, cuts = 30, 25
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stagedCuts(t, seed, cuts) })
	}
}

func stagedCuts(t *testing.T, seed uint64, cuts int) {
	r := rand.New(rand.NewPCG(seed, 31))
	chance := rand.New(rand.NewPCG(seed, 37))
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	cfg := staging(t, config(t, fsys))
	cfg.NoBackground = false
	cfg.MemtableBytes = 600 << 10
	s := open(t, cfg)
	type cut struct {
		disk                                *memfs.FS
		acked, begun, committed, committing int64
	}
	var acked, begun, committed, committing atomic.Int64 // batches
	var taken []cut
	fsys.Before(func(faultfs.Op) {
		if len(taken) < cuts && chance.IntN(25) == 0 {
			done, a := committed.Load(), acked.Load()
			taken = append(taken, cut{disk.CrashClone(chance), a, begun.Load(), done, committing.Load()})
		}
	})
	m := model{}
	states := []model{m.clone()}
	commits := map[int64]bool{0: true}
	for i := range int64(220) {
		ops := randomOps(r, 80)
		if i%9 == 0 {
			big := randomDoc(r, fmt.Sprint("big", r.IntN(6)))
			big.Source = append(big.Source, make([]byte, 100<<10)...)
			ops = append(ops, put(big))
		}
		begun.Store(i + 1)
		for {
			res, err := s.Apply(t.Context(), ops)
			if errors.Is(err, ErrOverloaded) {
				if err := s.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			m.expect(t, 0, ops, res)
			break
		}
		acked.Store(i + 1)
		states = append(states, m.clone())
		if i%23 == 20 {
			commits[i+1] = true
			committing.Store(i + 1)
			if err := s.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			committed.Store(i + 1)
		}
		if i%100 == 60 {
			if err := s.Merge(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
		}
	}
	fsys.Before(nil)
	closeShard(t, s)
	if len(taken) < cuts/2 {
		t.Fatalf("only %d power cuts in the run", len(taken))
	}
	for i, c := range taken {
		s, err := Open(t.Context(), staging(t, config(t, c.disk)))
		if err != nil {
			t.Fatalf("cut %d at batch %d: %v", i, c.acked, err)
		}
		sn := s.Snapshot()
		if !sameDocs(t, sn, states[c.committed]) && !sameDocs(t, sn, states[c.committing]) {
			t.Errorf("cut %d: not what was committed at batch %d or %d shows", i, c.committed, c.committing)
		}
		sn.Release()
		if err := s.Commit(t.Context()); err != nil {
			t.Fatalf("cut %d: %v", i, err)
		}
		sn = s.Snapshot()
		found := false
		for k := c.begun; k >= c.acked && !found; k-- {
			found = sameDocs(t, sn, states[k])
		}
		if !found {
			t.Errorf("cut %d: after a commit the shard shows no state from batch %d to %d", i, c.acked, c.begun)
		}
		sn.Release()
		closeShard(t, s)
	}
}

// TestLongStagedLogIsReadInBoundedMemory stages many memtables of documents and opens the shard again: what is read back goes to
// segments as it did at first.
func TestLongStagedLogIsReadInBoundedMemory(t *testing.T) {
	cfg := staging(t, config(t, memfs.New(nil)))
	cfg.MemtableBytes = 256 << 10
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(3, 41))
	m := model{}
	for i := range 400 {
		op := put(randomDoc(r, fmt.Sprintf("k%03d", i%300)))
		op.Doc.Source = append(op.Doc.Source, make([]byte, 10<<10)...)
		m.apply(t, s, 0, op)
		if i%20 == 19 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeShard(t, s)
	s = open(t, cfg)
	if n := s.Stats().MemtableBytes; n > 2*cfg.MemtableBytes {
		t.Errorf("%d bytes are in memtables, one has %d", n, cfg.MemtableBytes)
	}
	sn := s.Snapshot()
	model{}.verify(t, sn)
	sn.Release()
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sn = s.Snapshot()
	m.verify(t, sn)
	sn.Release()
	if got, log := s.Stats().Staged, s.wal.Stats(); got != 0 || log.Size > 1<<20 {
		t.Errorf("%d records are staged and %d bytes of log are left after a commit", got, log.Size)
	}
}

// TestFailedCommitShowsNothing lets the publication fail: readers see what they saw, and the next Commit has everything.
func TestFailedCommitShowsNothing(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	s := open(t, staging(t, config(t, fsys)))
	m := model{}
	doc := func(key string) Op { return put(&schema.Document{Key: key, Source: []byte(`{"id":"` + key + `"}`)}) }
	m.apply(t, s, 0, doc("a"))
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	shown := m.clone()
	m.apply(t, s, 0, doc("b"), Op{Delete: true, Key: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("commit of a caller that left: %v", err)
	}
	sn := s.Snapshot()
	shown.verify(t, sn)
	sn.Release()
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sn = s.Snapshot()
	m.verify(t, sn)
	sn.Release()
}
