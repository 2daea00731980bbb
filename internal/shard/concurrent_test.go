package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestWritersAndReaders lets writers, searchers, flushes and merges work at once. Each writer owns some keys and puts them in
// batches that bear one number: no snapshot may show two numbers of one writer, and none may be older than what that writer
// has been told is in.
func TestWritersAndReaders(t *testing.T) {
	const writers, group, rounds = 4, 6, 30
	cfg := config(t, memfs.New(nil))
	cfg.NoBackground = false
	cfg.MemtableBytes = 700 << 10
	cfg.MaxSegmentBytes = 1 << 30
	cfg.MergeBytesPerSec = -1
	s := open(t, cfg)
	pad := strings.Repeat("lorem ipsum dolor sit amet ", 150)
	key := func(w, i int) string { return fmt.Sprintf("w%d-%d", w, i) }

	var acked [writers]struct {
		sync.Mutex
		n int
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for n := 1; n <= rounds; n++ {
				ops := make([]Op, 0, group+1)
				for i := range group {
					ops = append(ops, put(&schema.Document{Key: key(w, i), Source: fmt.Appendf(nil, "%d", n), Fields: []schema.Values{
						{Field: fBody, Text: []string{fmt.Sprintf("writer%d round%d common %s", w, n, pad[:r.IntN(len(pad))])}},
						{Field: fN, Nums: []uint64{schema.EncodeI64(int64(n))}},
					}}))
				}
				ops = append(ops, Op{Delete: true, Key: key(w, group)})
				if n%3 == 0 {
					ops = append(ops, put(&schema.Document{Key: key(w, group), Source: fmt.Appendf(nil, "%d", n)}))
				}
				for {
					_, err := s.Apply(t.Context(), ops)
					if errors.Is(err, ErrOverloaded) {
						if err := s.Flush(t.Context()); err != nil {
							t.Errorf("flush: %v", err)
							return
						}
						continue
					}
					if err != nil {
						t.Errorf("apply: %v", err)
						return
					}
					break
				}
				acked[w].Lock()
				acked[w].n = n
				acked[w].Unlock()
				if n%10 == 7 {
					if err := s.Merge(t.Context(), 1); err != nil {
						t.Errorf("merge: %v", err)
					}
				}
			}
		})
	}
	for range 3 {
		reading.Go(func() {
			for ctx.Err() == nil {
				var least [writers]int
				for w := range writers {
					acked[w].Lock()
					least[w] = acked[w].n
					acked[w].Unlock()
				}
				sn := s.Snapshot()
				for w := range writers {
					checkGroup(t, sn, w, group, least[w], key)
				}
				res, err := exec.Search(t.Context(), sn.Leaves(), sn.Schema(), testAnalyzers(t, sn.Schema()), exec.Request{
					Query: &query.Match{Field: "body", Text: "common lorem"}, Limit: 5,
				})
				if err != nil {
					t.Errorf("search: %v", err)
				} else if res.Total%group != 0 {
					t.Errorf("a search saw %d documents, not whole batches", res.Total)
				}
				sn.Release()
			}
		})
	}
	writing.Wait()
	stop()
	reading.Wait()
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Flushes == 0 || st.Merges == 0 || st.LastErr != "" {
		t.Errorf("stats %+v", st)
	}
}

func checkGroup(t *testing.T, sn *Snapshot, w, group, least int, key func(w, i int) string) {
	first := ""
	for i := range group {
		src, ok, err := sn.Get(key(w, i))
		if err != nil || !ok && least > 0 {
			t.Errorf("writer %d key %d: found %v, error %v after %d batches", w, i, ok, err, least)
			return
		}
		if i == 0 {
			first = string(src)
		}
		if string(src) != first {
			t.Errorf("writer %d: a snapshot shows batch %q and batch %q", w, first, src)
		}
	}
	n := 0
	if first != "" {
		if _, err := fmt.Sscan(first, &n); err != nil {
			t.Error(err)
		}
	}
	if n < least {
		t.Errorf("writer %d: a snapshot shows batch %d, %d was acknowledged before", w, n, least)
	}
	if _, ok, _ := sn.Get(key(w, group)); ok != (n > 0 && n%3 == 0) {
		t.Errorf("writer %d: the extra key is there: %v, at batch %d", w, ok, n)
	}
}

func TestRefusals(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	cfg := config(t, memfs.New(nil))
	cfg.MemtableBytes = 300 << 10
	cfg.PendingBytes = 1 << 20
	s := open(t, cfg)
	m := model{}
	big := func(n int) Op {
		d := randomDoc(r, fmt.Sprint("big", n))
		d.Source = make([]byte, 200<<10)
		return put(d)
	}
	var full *OverloadError
	for n := range 20 {
		op := big(n)
		res, err := s.Apply(t.Context(), []Op{op})
		if err != nil {
			if !errors.Is(err, ErrOverloaded) || !errors.As(err, &full) || full.Limit != "memtable_bytes" || full.RetryAfter <= 0 || full.Used < full.Max {
				t.Fatalf("error %v", err)
			}
			break
		}
		m.expect(t, 0, []Op{op}, res)
	}
	if full == nil {
		t.Fatal("the memtable never filled")
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.apply(t, s, 0, big(100))

	if _, err := s.Apply(t.Context(), []Op{big(0), big(1), big(2), big(3), big(4), big(5)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch larger than all room: %v", err)
	}
	s.pending.Add(cfg.PendingBytes)
	if _, err := s.Apply(t.Context(), []Op{big(0)}); !errors.Is(err, ErrOverloaded) {
		t.Errorf("too much under way: %v", err)
	}
	s.pending.Add(-cfg.PendingBytes)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for about, err := range map[string]error{
		"apply":  func() error { _, err := s.Apply(ctx, []Op{big(0)}); return err }(),
		"fields": s.AddFields(ctx, []schema.Field{{Name: "x", Type: schema.I64}}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", about, err)
		}
	}
	sn := s.Snapshot()
	m.verify(t, sn)
	sn.Release()
	if st := s.Stats(); st.Refused != 2 || st.PendingBytes != 0 {
		t.Errorf("stats %+v", st)
	}

	closeShard(t, s)
	for about, err := range map[string]error{
		"apply":  func() error { _, err := s.Apply(t.Context(), []Op{big(0)}); return err }(),
		"fields": s.AddFields(t.Context(), []schema.Field{{Name: "x", Type: schema.I64}}),
		"flush":  s.Flush(t.Context()),
		"merge":  s.Merge(t.Context(), 1),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s on a closed shard: %v", about, err)
		}
	}
}

// TestHotPathsDoNotAllocate holds what a search does for each query and term outside of exec.
func TestHotPathsDoNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	for i := range 30 {
		m.apply(t, s, 0, randomOps(r, 200)...)
		if i == 20 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	sn := s.Snapshot()
	defer sn.Release()
	seg, mem := sn.Leaves()[0].(*segmentLeaf), sn.Leaves()[1]
	if len(seg.killed) == 0 {
		t.Fatal("no document of the segment died")
	}
	term := []byte("w0")
	for about, c := range map[string]struct {
		most float64
		fn   func()
	}{
		"snapshot":                     {0, func() { s.Snapshot().Release() }},
		"segment document frequency":   {0, func() { _, _ = seg.DocFreq(fBody, term, noCheck) }},
		"segment postings":             {0, func() { seg.Postings(fBody, term) }},
		"memtable document frequency":  {0, func() { _, _ = mem.DocFreq(fBody, term, noCheck) }},
		"memtable postings":            {1, func() { mem.Postings(fBody, term) }},
		"find a key that is not there": {0, func() { sn.Find("absent") }},
		"find a key":                   {0, func() { sn.Find("k7") }},
		"statistics":                   {0, func() { seg.FieldStats(fBody); mem.FieldStats(fBody) }},
	} {
		c.fn()
		if n := testing.AllocsPerRun(100, c.fn); n > c.most && !raceEnabled {
			t.Errorf("%s: %v allocations, at most %v are due", about, n, c.most)
		}
	}
}

func benchOps(n int) []Op {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 4, 100_000)
	ops := make([]Op, n)
	for i := range ops {
		var b strings.Builder
		for range 100 {
			fmt.Fprintf(&b, "word%d ", z.Uint64())
		}
		key := fmt.Sprintf("doc-%08d", i)
		ops[i] = put(&schema.Document{Key: key, Source: []byte(b.String()), Fields: []schema.Values{
			{Field: fID, Text: []string{key}}, {Field: fBody, Text: []string{b.String()}}, {Field: fN, Nums: []uint64{uint64(i)}},
		}})
	}
	return ops
}

func benchShard(b *testing.B) *Shard {
	cfg := config(b, vfs.OS)
	cfg.Dir = b.TempDir()
	cfg.NoBackground = false
	return open(b, cfg)
}

// BenchmarkIndex loads documents of 100 tokens in batches, flushes and merges included.
func BenchmarkIndex(b *testing.B) {
	ops := benchOps(20_000)
	for b.Loop() {
		s := benchShard(b)
		for i := 0; i < len(ops); i += 500 {
			for {
				_, err := s.Apply(b.Context(), ops[i:i+500])
				if errors.Is(err, ErrOverloaded) {
					err = s.Flush(b.Context())
					if err == nil {
						continue
					}
				}
				if err != nil {
					b.Fatal(err)
				}
				break
			}
		}
		if err := s.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(ops))/b.Elapsed().Seconds(), "docs/s")
}

// BenchmarkApply measures single documents: one caller, and many that share fsyncs.
func BenchmarkApply(b *testing.B) {
	ops := benchOps(2000)
	b.Run("one", func(b *testing.B) {
		s := benchShard(b)
		i := 0
		for b.Loop() {
			if _, err := s.Apply(b.Context(), ops[i%len(ops):i%len(ops)+1]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("many", func(b *testing.B) {
		s := benchShard(b)
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			r := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for pb.Next() {
				i := r.IntN(len(ops))
				if _, err := s.Apply(b.Context(), ops[i:i+1]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkSnapshot measures a snapshot after each write, with a memtable of 20,000 documents.
func BenchmarkSnapshot(b *testing.B) {
	s := open(b, config(b, memfs.New(nil)))
	ops := benchOps(20_000)
	for i := 0; i < len(ops); i += 500 {
		if _, err := s.Apply(b.Context(), ops[i:i+500]); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	for b.Loop() {
		if _, err := s.Apply(b.Context(), ops[i%len(ops):i%len(ops)+1]); err != nil {
			b.Fatal(err)
		}
		s.Snapshot().Release()
		i++
	}
}

// TestCloseDuringWrites closes under writers: each write is either acknowledged, and there after opening again, or refused
// because the shard is closed.
func TestCloseDuringWrites(t *testing.T) {
	for round := range 6 {
		cfg := config(t, memfs.New(nil))
		cfg.NoBackground = round%2 == 0
		cfg.NoFlushOnClose = round%3 == 0
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		const writers = 4
		var acked [writers]int
		var wg sync.WaitGroup
		started := make(chan struct{}, writers)
		for w := range writers {
			wg.Go(func() {
				for n := 0; ; n++ {
					_, err := s.Apply(t.Context(), []Op{put(&schema.Document{Key: fmt.Sprintf("%d-%d", w, n), Source: []byte("x")})})
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("write: %v", err)
						}
						return
					}
					acked[w] = n + 1
					if n == 3 {
						started <- struct{}{}
					}
				}
			})
		}
		for range writers {
			<-started
		}
		wg.Go(func() {
			if err := s.Flush(t.Context()); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("flush: %v", err)
			}
		})
		closeShard(t, s)
		wg.Wait()
		s = open(t, cfg)
		sn := s.Snapshot()
		for w, n := range acked {
			for i := range n + 2 {
				if _, ok, err := sn.Get(fmt.Sprintf("%d-%d", w, i)); ok != (i < n) || err != nil {
					t.Errorf("round %d writer %d: write %d of %d is there: %v (%v)", round, w, i, n, ok, err)
				}
			}
		}
		sn.Release()
		closeShard(t, s)
	}
}
