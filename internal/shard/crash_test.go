package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestPowerCuts runs one writer with flushes and merges in the background, cuts the power at random file operations and opens
// what is left each time: it must be the state after some number of batches that is at least the number acknowledged and at
// most the number begun.
func TestPowerCuts(t *testing.T) {
	runs, cuts := 2, 12
	if long {
		runs, cuts = 30, 25
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { powerCuts(t, seed, cuts) })
	}
}

type cut struct {
	disk         *memfs.FS
	acked, begun int64
}

func powerCuts(t *testing.T, seed uint64, cuts int) {
	r := rand.New(rand.NewPCG(seed, 2))
	chance := rand.New(rand.NewPCG(seed, 3))
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	cfg := config(t, fsys)
	cfg.NoBackground = false
	cfg.MemtableBytes = 600 << 10 // flushes come often
	s := open(t, cfg)

	var acked, begun atomic.Int64
	var taken []cut
	fsys.Before(func(faultfs.Op) {
		if len(taken) < cuts && chance.IntN(30) == 0 {
			a := acked.Load()
			taken = append(taken, cut{disk.CrashClone(chance), a, begun.Load()})
		}
	})
	m := model{}
	states := []model{m.clone()}
	bySeq := map[uint64]model{0: m.clone()} // by number of the last log record
	for i := range 250 {
		ops := randomOps(r, 80)
		if i%9 == 0 { // large documents fill the memtable
			big := randomDoc(r, fmt.Sprint("big", r.IntN(6)))
			big.Source = append(big.Source, make([]byte, 100<<10)...)
			ops = append(ops, put(big))
		}
		begun.Add(1)
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
		acked.Add(1)
		states = append(states, m.clone())
		bySeq[s.Stats().LastSeq] = states[len(states)-1]
		if i%40 == 20 {
			f := s.Schema().Fields[fVec]
			f.Options = options("m", fmt.Sprint(4+i/40))
			if _, err := s.AlterVectors(t.Context(), &f); err != nil {
				t.Fatal(err)
			}
			bySeq[s.Stats().LastSeq] = states[len(states)-1]
		}
		if i%80 == 40 {
			if err := s.Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
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
		onlyStore(t, i, c.disk.CrashClone(chance), bySeq)
		cfg := config(t, c.disk)
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatalf("cut %d at batch %d: %v", i, c.acked, err)
		}
		sn := s.Snapshot()
		found := int64(-1)
		for k := c.begun; k >= c.acked; k-- {
			if sameDocs(t, sn, states[k]) {
				found = k
				break
			}
		}
		if found < 0 {
			t.Errorf("cut %d: the shard holds no state from batch %d to %d", i, c.acked, c.begun)
		} else if i%5 == 0 {
			states[found].verify(t, sn)
		}
		sn.Release()
		// It goes on from there.
		m := states[max(found, 0)].clone()
		if found >= 0 {
			m.apply(t, s, 0, randomOps(r, 80)...)
			if err := s.Flush(t.Context()); err != nil {
				t.Fatalf("cut %d: flush afterwards: %v", i, err)
			}
			sn = s.Snapshot()
			if !sameDocs(t, sn, m) {
				t.Errorf("cut %d: a write afterwards did not come out right", i)
			}
			sn.Release()
		}
		closeShard(t, s)
	}
}

// onlyStore opens a disk without its log: what is left is exactly the state at the log record that the manifest names, with no
// later death in it.
func onlyStore(t *testing.T, i int, disk *memfs.FS, bySeq map[uint64]model) {
	names, err := disk.ReadDir("d/" + logName)
	if errors.Is(err, fs.ErrNotExist) {
		return // power was cut before the shard was made
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names {
		if err := disk.Remove("d/" + logName + "/" + f.Name); err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Remove("d/" + LogBegun); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), config(t, disk))
	if err != nil {
		t.Fatalf("cut %d: open without a log: %v", i, err)
	}
	defer closeShard(t, s)
	sn := s.Snapshot()
	defer sn.Release()
	m, ok := bySeq[sn.seq]
	if !ok || !sameDocs(t, sn, m) {
		t.Errorf("cut %d: the manifest at log record %d (%v) is another state", i, sn.seq, ok)
	}
}

// sameDocs tells whether the snapshot holds exactly the documents of the model.
func sameDocs(t testing.TB, sn *Snapshot, m model) bool {
	t.Helper()
	if sn.Docs() != uint64(len(m)) {
		return false
	}
	for k, v := range m {
		src, ok, err := sn.Get(k)
		if err != nil {
			t.Fatal(err)
		}
		if !ok || string(src) != string(v.doc.Source) {
			return false
		}
	}
	return m.sameVectors(t, sn)
}

// script is a short life of a shard in which every kind of file operation happens. It stops at the first error that is not of
// one operation. It returns the state that was acknowledged and, if the last batch failed, the state with it; graphs is told likewise of the options
// of the field vec.
func script(t *testing.T, s *Shard, graphs *alteredTo) (acked, maybe model, err error) {
	r := rand.New(rand.NewPCG(4, 4))
	m := model{}
	batch := func() error {
		ops := randomOps(r, 30)
		res, err := s.Apply(context.Background(), ops)
		if err != nil {
			maybe = m.clone()
			maybe.imagine(ops)
			return err
		}
		m.expect(t, 0, ops, res)
		return nil
	}
	alter := func(m string) func() error {
		return func() error {
			f := s.Schema().Fields[fVec]
			f.Options = options("m", m)
			_, err := s.AlterVectors(context.Background(), &f)
			if graphs.maybe = f.Options; err == nil {
				graphs.acked = f.Options
			}
			return err
		}
	}
	steps := []func() error{
		batch, batch, batch,
		func() error { return s.Flush(context.Background()) },
		batch, batch,
		func() error {
			return s.AddFields(context.Background(), []schema.Field{{Name: "more", Type: schema.I64, Fast: true}})
		},
		batch, alter("8"),
		func() error { return s.Flush(context.Background()) },
		batch, batch,
		func() error { return s.Merge(context.Background(), 1) },
		batch, alter("9"), batch,
		func() error { return s.Rebuild(context.Background()) },
		batch,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return m, maybe, err
		}
	}
	return m, nil, nil
}

// alteredTo are options that a field was given: the last that were acknowledged, and the last that were asked for.
type alteredTo struct{ acked, maybe []schema.Option }

// imagine applies operations as a shard would.
func (m model) imagine(ops []Op) {
	for _, op := range ops {
		_, had := m[op.key()]
		switch {
		case op.Delete:
			delete(m, op.Key)
		case !op.Create || !had:
			m[op.key()] = stored{doc: op.Doc}
		}
	}
}

// TestEveryOperationFails fails the n-th file operation for every n, once for each kind of fault, with all later ones failing
// too or not. Errors surface, what was acknowledged is there at once and after opening again, and nothing else is.
func TestEveryOperationFails(t *testing.T) {
	step := 1
	if raceEnabled && !long {
		step = 9
	}
	for _, c := range []struct {
		about string
		make  func(n int) faultfs.Injector
	}{
		{"one error", func(n int) faultfs.Injector { return faultfs.Nth(n, faultfs.Mutating, faultfs.IOError) }},
		{"broken disk", func(n int) faultfs.Injector { return faultfs.From(n, faultfs.Mutating, faultfs.IOError) }},
		{"full disk", func(n int) faultfs.Injector { return faultfs.From(n, faultfs.Space, faultfs.NoSpace) }},
		{"failing sync", func(n int) faultfs.Injector { return faultfs.Nth(n, faultfs.Sync|faultfs.SyncDir, faultfs.IOError) }},
		{"failing read", func(n int) faultfs.Injector {
			return faultfs.Nth(n, faultfs.Read|faultfs.Open|faultfs.Stat, faultfs.IOError)
		}},
	} {
		t.Run(c.about, func(t *testing.T) {
			for n := 1; ; n += step {
				if !failAt(t, n, c.make(n)) {
					if n < 5 {
						t.Fatalf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

// failAt runs the script with an injector and tells whether it fired.
func failAt(t *testing.T, n int, in faultfs.Injector) bool {
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	cfg := config(t, fsys)
	cfg.NoFlushOnClose = true
	fsys.Inject(in)
	s, err := Open(context.Background(), cfg)
	if err != nil {
		if !fsys.Fired() {
			t.Fatalf("operation %d: open: %v", n, err)
		}
		return true
	}
	var graphs alteredTo
	m, maybe, err := script(t, s, &graphs)
	if err != nil && !fsys.Fired() {
		t.Fatalf("operation %d: %v", n, err)
	}
	sn := s.Snapshot()
	if !sameDocs(t, sn, m) {
		t.Errorf("operation %d failed (%v): a search sees something else than what was acknowledged", n, err)
	}
	sn.Release()
	if err != nil && errors.Is(err, ErrReadOnly) {
		if _, err := s.Apply(context.Background(), []Op{{Delete: true, Key: "x"}}); !errors.Is(err, ErrReadOnly) {
			t.Errorf("operation %d: a read-only shard took a write: %v", n, err)
		}
	}
	fired := fsys.Fired()
	fsys.Inject(nil)
	if err := s.Close(context.Background()); err != nil && !fired {
		t.Errorf("operation %d: close: %v", n, err)
	}
	for i, left := range []vfs.FS{disk, disk.CrashClone(rand.New(rand.NewPCG(uint64(n), 1)))} {
		cfg.FS = left
		s, err := Open(context.Background(), cfg)
		if err != nil {
			t.Errorf("operation %d: open again (%d): %v", n, i, err)
			continue
		}
		sn := s.Snapshot()
		// A write that failed may be on the disk after all: then the whole batch is.
		if !sameDocs(t, sn, m) && (maybe == nil || !sameDocs(t, sn, maybe)) {
			t.Errorf("operation %d: after opening again (%d) the shard holds something else", n, i)
		}
		if got := s.Schema().Fields[fVec].Options; !slices.Equal(got, graphs.acked) && !slices.Equal(got, graphs.maybe) {
			t.Errorf("operation %d: after opening again (%d) the vectors have the options %v, which nobody asked for last: %+v", n, i, got, graphs)
		}
		if err := s.Check(context.Background()); err != nil {
			t.Errorf("operation %d: %v", n, err)
		}
		sn.Release()
		closeShard(t, s)
	}
	return fired
}

// TestTheWriteThatMetTheFailureIsUncertain fails the log under a write: of that one nobody knows what the disk kept, of every later
// one that it had no effect.
func TestTheWriteThatMetTheFailureIsUncertain(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.Sync, faultfs.Write | faultfs.WriteAt} {
		fsys := faultfs.New(memfs.New(nil))
		cfg := config(t, fsys)
		cfg.NoFlushOnClose = true
		s := open(t, cfg)
		fsys.Inject(faultfs.From(1, kind, faultfs.IOError))
		for i, uncertain := range []bool{true, false, false} {
			_, err := s.Apply(t.Context(), randomOps(rand.New(rand.NewPCG(uint64(i), 3)), 3))
			var ro *ReadOnlyError
			if !errors.As(err, &ro) || ro.Uncertain != uncertain {
				t.Errorf("write %d after a failure of %v: %v, want it uncertain: %t", i, kind, err, uncertain)
			}
		}
		fsys.Inject(nil)
		closeShard(t, s)
	}
}

// TestFullDiskHeals fills the disk under writers, makes room again, and expects writes to go on with nothing lost and nothing
// invented.
func TestFullDiskHeals(t *testing.T) {
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	cfg := config(t, fsys)
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(1, 2))
	m := model{}
	for range 5 {
		m.apply(t, s, 0, randomOps(r, 40)...)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		m.apply(t, s, 0, randomOps(r, 40)...)
	}
	fsys.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
	var wg sync.WaitGroup
	for i := range 4 {
		ops := randomOps(rand.New(rand.NewPCG(uint64(i), 9)), 40)
		wg.Go(func() {
			_, err := s.Apply(t.Context(), ops)
			var ro *ReadOnlyError
			if !errors.As(err, &ro) || !errors.Is(err, syscall.ENOSPC) || ro.Uncertain {
				t.Errorf("write on a full disk: %v", err)
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.ReadOnly == "" {
		t.Error("the shard does not say that it is read-only")
	}
	sn := s.Snapshot()
	m.verify(t, sn)
	sn.Release()

	fsys.Inject(nil)
	if err := s.wal.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.heal()
	for round := range 3 {
		for range 5 {
			m.apply(t, s, 0, randomOps(r, 40)...)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		m.verify(t, sn)
		sn.Release()
		switch round {
		case 0:
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 1:
			closeShard(t, s)
			s = open(t, cfg)
		}
	}
}

// TestLostFreezeHeals loses the mark of a frozen memtable together with the write before it.
func TestLostFreezeHeals(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	s := open(t, config(t, fsys))
	r := rand.New(rand.NewPCG(1, 2))
	m := model{}
	for range 5 {
		m.apply(t, s, 0, randomOps(r, 40)...)
	}
	lost := &write{payload: appendDelete(nil, "x"), mem: s.writeMu.active, done: make(chan struct{})}
	s.writeMu.Lock()
	s.enqueue(lost)
	s.freeze()
	s.writeMu.Unlock()
	fsys.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
	if err := s.await(lost); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("write on a full disk: %v", err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("flush on a full disk: %v", err)
	}
	fsys.Inject(nil)
	if err := s.wal.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.heal()
	for range 3 {
		m.apply(t, s, 0, randomOps(r, 40)...)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		m.verify(t, sn)
		sn.Release()
	}
}

// TestSecondOwner opens a shard twice, and lets another process move its head.
func TestSecondOwner(t *testing.T) {
	fsys := memfs.New(nil)
	cfg := config(t, fsys)
	s := open(t, cfg)
	if _, err := Open(t.Context(), cfg); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	m := model{}
	m.apply(t, s, 0, randomOps(r, 30)...)
	v, err := s.catalog.Open(t.Context(), s.name)
	if err != nil {
		t.Fatal(err)
	}
	theirs := *v.Manifest
	if _, err := s.catalog.Publish(t.Context(), v, &theirs); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, ErrFenced) || !errors.Is(err, ErrReadOnly) {
		t.Fatalf("flush after losing the head: %v", err)
	}
	if _, err := s.Apply(t.Context(), randomOps(r, 30)); !errors.Is(err, ErrFenced) {
		t.Fatalf("write after losing the head: %v", err)
	}
	sn := s.Snapshot()
	defer sn.Release()
	m.verify(t, sn)
}

// TestDamageIsNamed takes or damages one file after the other: opening fails with the thing and its place.
func TestDamageIsNamed(t *testing.T) {
	disk := memfs.New(nil)
	cfg := config(t, disk)
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(1, 1))
	m := model{}
	m.apply(t, s, 0, randomOps(r, 30)...)
	m.apply(t, s, 0, put(randomDoc(r, "k1")))
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.apply(t, s, 0, Op{Delete: true, Key: "k1"})
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.apply(t, s, 0, randomOps(r, 30)...)
	segment, deletes := s.mu.segments[0].seg.meta.Object, s.mu.segments[0].deletes.Object
	if deletes == "" {
		t.Fatal("no delete set")
	}
	closeShard(t, s)

	sub := func(p string) string { return "d/" + storeName + "/" + p }
	for _, c := range []struct {
		about string
		path  string
		harm  func(b []byte) []byte // nil: remove
		want  error                 // nil: any error
	}{
		{"missing segment", sub(segment), nil, ErrMissingObject},
		{"missing delete set", sub(deletes), nil, ErrMissingObject},
		{"short segment", sub(segment), func(b []byte) []byte { return b[:len(b)-1] }, nil},
		{"flipped segment", sub(segment), func(b []byte) []byte { b[len(b)/2] ^= 4; return b }, nil},
		{"flipped delete set", sub(deletes), func(b []byte) []byte { b[len(b)/2] ^= 4; return b }, nil},
		{"empty segment", sub(segment), func([]byte) []byte { return nil }, nil},
	} {
		copied := disk.CrashClone(r)
		if c.harm == nil {
			if err := copied.Remove(c.path); err != nil {
				t.Fatal(err)
			}
		} else {
			b, err := vfs.ReadFile(copied, c.path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := copied.Create(c.path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(c.harm(b)); err != nil && err != io.ErrShortWrite {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		cfg.FS = copied
		_, err := Open(t.Context(), cfg)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.about, err, c.want)
		}
	}
	if err := disk.Remove("d/" + storeName); err == nil {
		t.Fatal("removed a folder that is not empty")
	}
}

// TestSchemaIsNeeded opens nothing with nothing.
func TestSchemaIsNeeded(t *testing.T) {
	cfg := config(t, memfs.New(nil))
	cfg.Schema = nil
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrNoSchema) {
		t.Fatalf("error %v", err)
	}
	cfg.Dir, cfg.MemtableBytes = "", -1
	if _, err := Open(t.Context(), cfg); err == nil {
		t.Fatal("a bad config was taken")
	}
}

// TestLogDoesNotFit puts records into the log that this program cannot have written there.
func TestLogDoesNotFit(t *testing.T) {
	disk := memfs.New(nil)
	cfg := config(t, disk)
	s := open(t, cfg)
	m := model{}
	m.apply(t, s, 0, put(randomDoc(rand.New(rand.NewPCG(1, 1)), "a")))
	closeShard(t, s) // flushes: the manifest stands at record 1
	newer := encodeBatch(1, nil)
	newer[0] = recordVersion + 1
	unknownField := encodeBatch(1, []Op{put(&schema.Document{Key: "x", Fields: []schema.Values{{Field: 99, Nums: []uint64{1}}}})})
	for _, c := range []struct {
		about   string
		payload []byte
		first   uint64 // begin the log anew at this record; 0 = go on
		want    error
		says    string
	}{
		{"newer record", newer, 0, ErrNewerFormat, "log record 2"},
		{"garbage", []byte("hello"), 0, ErrNewerFormat, "log record 2"},
		{"damaged record", []byte{1, 1, 0x80}, 0, ErrDamaged, "log record 2"},
		{"field that is not in the schema", unknownField, 0, ErrDamaged, "field id 99"},
		{"gap", encodeBatch(9, nil), 7, ErrDamaged, "records 7 to 7, the manifest ends at 1"},
	} {
		disk := disk.CrashClone(rand.New(rand.NewPCG(1, 1)))
		dir := "d/" + logName
		if c.first > 0 {
			names, err := disk.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range names {
				if err := disk.Remove(dir + "/" + f.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		l, err := wal.Open(disk, dir, wal.Options{FirstSeq: c.first})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(t.Context(), c.payload); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.FS = disk
		_, err = Open(t.Context(), cfg)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v", c.about, err)
		}
	}
	if err := disk.Remove("d/" + storeName + "/" + s.name.HeadKey()); err != nil {
		t.Fatal(err)
	}
	cfg.FS = disk
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("head is gone: error %v", err)
	}
}

// TestOpensOnAFullDisk opens a shard when nothing can be written: searches work, writes are refused for the disk's sake, and
// both work when there is room.
func TestOpensOnAFullDisk(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	cfg := config(t, fsys)
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(3, 3))
	m := model{}
	m.apply(t, s, 0, randomOps(r, 30)...)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.apply(t, s, 0, randomOps(r, 30)...)
	closeShard(t, s)
	// Writing over what is there needs no room.
	fsys.Inject(faultfs.From(1, faultfs.Create|faultfs.Mkdir|faultfs.Write, faultfs.NoSpace))
	s = open(t, cfg)
	sn := s.Snapshot()
	m.verify(t, sn)
	sn.Release()
	if _, err := s.Apply(t.Context(), randomOps(r, 30)); !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("write on a full disk: %v", err)
	}
	fsys.Inject(nil)
	if err := s.wal.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.heal()
	m.apply(t, s, 0, randomOps(r, 30)...)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}
