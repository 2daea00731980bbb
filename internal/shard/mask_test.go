package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// keepOf keeps one of n parts of the keys.
func keepOf(part, n uint64) (string, func(key []byte) bool) {
	return fmt.Sprint(part, " of ", n), func(key []byte) bool { return xxh3.Hash(key)%n == part }
}

// masked is the model of what a mask keeps.
func (m model) masked(keep func(key []byte) bool) model {
	out := model{}
	for k, v := range m {
		if keep([]byte(k)) {
			out[k] = v
		}
	}
	return out
}

func narrowed(t testing.TB, sn *Snapshot, key string, keep func(key []byte) bool) *Snapshot {
	t.Helper()
	m, err := sn.Masked(t.Context(), key, keep)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// neighbours are the keys and similarities of an exact vector search.
func neighbours(t testing.TB, sn *Snapshot, field string, q []float32) string {
	t.Helper()
	res, err := knn.Search(t.Context(), sn.Leaves(), sn.Schema(), testAnalyzers(t, sn.Schema()), knn.Request{Field: field, Dense: q, K: 20, Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, h := range res.Hits {
		fmt.Fprintf(&b, " %s=%x", h.Key, h.Score)
	}
	return b.String()
}

// TestAMaskedSnapshotHasNoTraceOfTheRest holds masked snapshots of random histories, over flushes and merges, against shards that never
// held anything but what the mask keeps.
func TestAMaskedSnapshotHasNoTraceOfTheRest(t *testing.T) {
	seeds := uint64(3)
	if long {
		seeds = 30
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 77))
		var clock testClock
		cfg := config(t, memfs.New(nil))
		cfg.Clock = clock.read
		s := open(t, cfg)
		m := model{}
		for step := range 40 {
			clock.now.Store(uint64(step + 1))
			m.apply(t, s, uint64(step+1), randomOps(r, 120)...)
			var err error
			if r.IntN(5) == 0 {
				err = s.Flush(t.Context())
			} else if r.IntN(12) == 0 {
				err = s.Merge(t.Context(), 1+r.IntN(3))
			}
			if err != nil {
				t.Fatal(err)
			}
			if step%4 != 3 {
				continue
			}
			sn := s.Snapshot()
			for n := uint64(1); n <= 3; n++ {
				name, keep := keepOf(r.Uint64N(n), n)
				part := narrowed(t, sn, name, keep)
				want := m.masked(keep)
				want.verify(t, part)
				if part.Version() != sn.Version() || part.CommitTS() != sn.CommitTS() {
					t.Fatal("a masked snapshot is of another version")
				}
				if step%8 == 7 {
					fresh := want.fresh(t)
					fsn := fresh.Snapshot()
					sameAnswers(t, part, fsn)
					q := []float32{float32(r.NormFloat64()), 1, float32(r.NormFloat64())}
					if a, b := neighbours(t, part, "vec", q), neighbours(t, fsn, "vec", q); a != b {
						t.Fatalf("neighbours %s, of a shard of its own %s", a, b)
					}
					fsn.Release()
				}
				part.Release()
			}
			none := narrowed(t, sn, "none", func([]byte) bool { return false })
			model{}.verify(t, none)
			none.Release()
			sn.Release()
		}
	}
}

// TestMasksOfOlderSnapshots masks snapshots in another order than that in which they were taken, so that a mask has seen deaths which an
// older snapshot does not show.
func TestMasksOfOlderSnapshots(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	for range 12 {
		m.apply(t, s, 0, randomOps(r, 200)...)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	type taken struct {
		sn *Snapshot
		m  model
	}
	var all []taken
	for range 10 {
		all = append(all, taken{s.Snapshot(), m.clone()})
		m.apply(t, s, 0, randomOps(r, 200)...)
	}
	name, keep := keepOf(1, 2)
	for _, i := range r.Perm(len(all)) {
		for range 2 {
			part := narrowed(t, all[i].sn, name, keep)
			all[i].m.masked(keep).verify(t, part)
			part.Release()
		}
	}
	for i := range all {
		all[i].sn.Release()
	}
}

// A masked snapshot that is remembered is given for its own state alone.
func TestAMaskedSnapshotIsOfTheStateItWasAskedOf(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	r := rand.New(rand.NewPCG(9, 9))
	apply := func() {
		for range 8 {
			m.apply(t, s, 0, randomOps(r, 60)...)
		}
	}
	name, keep := keepOf(0, 2)
	look := func(sn *Snapshot, of model) {
		t.Helper()
		part := narrowed(t, sn, name, keep)
		defer part.Release()
		if part.Version() != sn.Version() {
			t.Fatalf("version %d of a snapshot of version %d", part.Version(), sn.Version())
		}
		of.masked(keep).verify(t, part)
	}
	apply()
	before, old := s.Snapshot(), m.clone()
	defer before.Release()
	apply()
	after := s.Snapshot()
	defer after.Release()
	look(before, old) // is not kept, for the state is an earlier one
	look(after, m)    // is kept
	look(before, old)
	look(after, m)
}

// TestMasksHoldNoFiles looks at the files after everything that could hold one has gone.
func TestMasksHoldNoFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	fill := func() {
		for range 6 {
			m.apply(t, s, 0, randomOps(r, 100)...)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	fill()
	sn := s.Snapshot()
	files := append([]*segmentFile(nil), sn.files...)
	var first *Snapshot
	for part := range uint64(2 * maxMaskedSnapshots) {
		name, keep := keepOf(part, 2*maxMaskedSnapshots)
		a := narrowed(t, sn, name, keep)
		b := narrowed(t, sn, name, keep)
		if a != b {
			t.Fatal("the mask of the newest snapshot is made twice")
		}
		b.Release()
		if part == 0 {
			first = a
		} else {
			a.Release()
		}
	}
	if n := len(s.mu.masked); n != maxMaskedSnapshots {
		t.Errorf("%d masked snapshots are kept", n)
	}
	for _, f := range files {
		if n := len(f.masks); n != maxMasks {
			t.Errorf("a segment keeps %d masks", n)
		}
		if err := sn.EachSum(t.Context(), func([]byte, Sum) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	before := sumBytes.Load()
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	name, keep := keepOf(1, 3)
	narrowed(t, sn, name, keep).Release() // of an old snapshot: it is not kept
	if len(s.mu.masked) != 0 {
		t.Error("masks of a snapshot that is not the newest are kept")
	}
	sn.Release()
	if first.Docs() == 0 {
		t.Error("the mask that is still held is empty")
	}
	first.Release()
	docs := 0
	for _, f := range files {
		if n := f.refs.Load(); n != 0 {
			t.Errorf("segment %s has %d references left", f.meta.ID, n)
		}
		docs += int(f.meta.Docs)
	}
	if after := sumBytes.Load(); before-after != int64(16*docs) {
		t.Errorf("%d bytes of checksums were given back for %d documents", before-after, docs)
	}
}

// TestMaskingEndsWithItsContext cancels at each look.
func TestMaskingEndsWithItsContext(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	ops := make([]Op, 0, 3*maskCheckEvery)
	for i := range 3 * maskCheckEvery {
		ops = append(ops, put(&schema.Document{Key: fmt.Sprint(i), Source: []byte("{}")}))
	}
	for i := range 2 { // in a segment, and in memory
		if _, err := s.Apply(t.Context(), ops[i:]); err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		seen := 0
		_, err := sn.Masked(ctx, "half", func([]byte) bool {
			if seen++; seen == 10 {
				cancel(why)
			}
			return true
		})
		if !errors.Is(err, why) || seen > maskCheckEvery+1 {
			t.Errorf("after %d documents: %v", seen, err)
		}
		seen = 0
		ctx, cancel = context.WithCancelCause(t.Context())
		err = sn.EachSum(ctx, func([]byte, Sum) error {
			if seen++; seen == 10 {
				cancel(why)
			}
			return nil
		})
		if !errors.Is(err, why) || seen > maskCheckEvery+1 {
			t.Errorf("checksums: after %d documents: %v", seen, err)
		}
		cancel(nil)
		sn.Release()
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMasksAtOnce masks while writers, flushes and merges work: every masked snapshot is one of whole batches.
func TestMasksAtOnce(t *testing.T) {
	cfg := config(t, memfs.New(nil))
	cfg.NoBackground = false
	cfg.MemtableBytes = 300 << 10
	cfg.MergeBytesPerSec = -1
	s := open(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	const keys = 64
	for w := range 2 {
		writers.Go(func() {
			pad := strings.Repeat("word ", 200)
			for n := range 120 {
				var ops []Op
				for i := range keys { // a batch has all keys of one writer
					ops = append(ops, put(&schema.Document{Key: fmt.Sprint(w, "-", i), Source: fmt.Appendf(nil, "%d", n), Fields: []schema.Values{{Field: fBody, Text: []string{pad}}}}))
				}
				for {
					_, err := s.Apply(t.Context(), ops)
					if err == nil {
						break
					}
					if !errors.Is(err, ErrOverloaded) {
						t.Error(err)
						return
					}
					if err := s.Flush(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for g := range uint64(3) {
		readers.Go(func() {
			for n := g; ctx.Err() == nil; n++ {
				name, keep := keepOf(n%6, 6)
				sn := s.Snapshot()
				part, err := sn.Masked(t.Context(), name, keep)
				if err != nil {
					t.Error(err)
					return
				}
				var kept uint64
				round := map[byte]string{}
				for w := range 2 {
					for i := range keys {
						key := fmt.Sprint(w, "-", i)
						source, ok, err := part.Get(key)
						if err != nil || ok && !keep([]byte(key)) {
							t.Errorf("%s: %v, %v", key, ok, err)
						}
						if !ok {
							continue
						}
						kept++
						if have := round[key[0]]; have == "" {
							round[key[0]] = string(source)
						} else if have != string(source) {
							t.Errorf("rounds %s and %s in one snapshot", have, source)
						}
					}
				}
				if kept != part.Docs() {
					t.Errorf("%d documents, %d are counted", kept, part.Docs())
				}
				part.Release()
				sn.Release()
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
}

// TestSumsAreThoseOfTheSources compares checksums, remembered or not, with those of what Get returns, for snapshots and masked ones.
func TestSumsAreThoseOfTheSources(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	for step := range 30 {
		m.apply(t, s, 0, randomOps(r, 150)...)
		if step%7 == 3 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		sn := s.Snapshot()
		name, keep := keepOf(0, 2)
		part := narrowed(t, sn, name, keep)
		for _, c := range []struct {
			sn *Snapshot
			m  model
		}{{sn, m}, {part, m.masked(keep)}} {
			var buf []byte
			for round := range 2 {
				for k, v := range c.m {
					leaf, doc, ok := c.sn.Find(k)
					if !ok {
						t.Fatalf("%s is not there", k)
					}
					if sum, err := c.sn.Sum(leaf, doc, &buf); err != nil || sum != SumOf(v.doc.Source) {
						t.Fatalf("round %d: %s: %x, %v", round, k, sum, err)
					}
				}
				seen := 0
				err := c.sn.EachSum(t.Context(), func(key []byte, sum Sum) error {
					seen++
					if v, ok := c.m[string(key)]; !ok || sum != SumOf(v.doc.Source) {
						return fmt.Errorf("%s: %x", key, sum)
					}
					return nil
				})
				if err != nil || seen != len(c.m) {
					t.Fatalf("%d of %d: %v", seen, len(c.m), err)
				}
			}
		}
		part.Release()
		sn.Release()
	}
}

// TestSumsBeyondTheLimitAreNotRemembered fills the room first.
func TestSumsBeyondTheLimitAreNotRemembered(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	m.apply(t, s, 0, put(&schema.Document{Key: "a", Source: []byte("1")}), put(&schema.Document{Key: "b", Source: []byte("2")}))
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.apply(t, s, 0, Op{Delete: true, Key: "a"})
	taken := MaxSumBytes - sumBytes.Load() - 16
	sumBytes.Add(taken)
	defer sumBytes.Add(-taken)
	sn := s.Snapshot()
	defer sn.Release()
	var got bytes.Buffer
	for range 2 {
		if err := sn.EachSum(t.Context(), func(key []byte, sum Sum) error { fmt.Fprintf(&got, "%s %x\n", key, sum); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("b %x\nb %[1]x\n", SumOf([]byte("2"))); got.String() != want {
		t.Errorf("got %s", got.String())
	}
	if f := sn.files[0]; f.sums.Load() != nil || sumBytes.Load() != MaxSumBytes-16 {
		t.Errorf("checksums beyond the limit are remembered")
	}
}

// TestSumsNeedSources asks a shard that keeps none.
func TestSumsNeedSources(t *testing.T) {
	cfg := config(t, memfs.New(nil))
	cfg.NoSources = true
	s := open(t, cfg)
	for range 2 { // in memory, and in a segment
		if _, err := s.Apply(t.Context(), []Op{put(&schema.Document{Key: "a", Source: []byte("1")})}); err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		var buf []byte
		leaf, doc, _ := sn.Find("a")
		_, err := sn.Sum(leaf, doc, &buf)
		each := sn.EachSum(t.Context(), func([]byte, Sum) error { return nil })
		if !errors.Is(err, ErrNoSources) || !errors.Is(each, ErrNoSources) {
			t.Errorf("%v, %v", err, each)
		}
		sn.Release()
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
