package shard

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// segmentBytes returns the file of the only segment of a snapshot.
func segmentBytes(t testing.TB, s *Shard) []byte {
	t.Helper()
	sn := s.Snapshot()
	defer sn.Release()
	if len(sn.files) != 1 || len(sn.leaves) != 1 {
		t.Fatalf("%d segments, %d leaves; want one", len(sn.files), len(sn.leaves))
	}
	b, err := s.readObject(t.Context(), sn.files[0].meta.Object, sn.files[0].meta.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHistoriesAreForgotten brings the same live documents about in several ways: statistics, answers and the bytes of the
// merged segment are those of an index that never held anything else.
func TestHistoriesAreForgotten(t *testing.T) {
	seeds := uint64(2)
	if long {
		seeds = 20
	}
	for seed := range seeds {
		ops := rand.New(rand.NewPCG(seed, 5))
		var batches [][]Op
		for range 60 {
			batches = append(batches, randomOps(ops, 120))
		}
		var want []byte
		for layout := range 4 {
			t.Run(fmt.Sprintf("%d/%d", seed, layout), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(layout)))
				var clock testClock
				cfg := config(t, memfs.New(nil))
				cfg.Clock = clock.read
				s := open(t, cfg)
				m := model{}
				for i, b := range batches {
					clock.now.Store(uint64(i + 1))
					m.apply(t, s, uint64(i+1), b...)
					var err error
					switch {
					case layout == 1 && i%4 == 0, layout == 2 && r.IntN(3) == 0, layout == 3:
						err = s.Flush(t.Context())
					}
					if err == nil && (layout == 2 && r.IntN(8) == 0 || layout == 3 && i%10 == 9) {
						err = s.Merge(t.Context(), 1+r.IntN(3))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				fresh := m.fresh(t)
				sn, fsn := s.Snapshot(), fresh.Snapshot()
				sameAnswers(t, sn, fsn)
				sn.Release()
				fsn.Release()

				if err := s.Merge(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				if err := fresh.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				got, plain := segmentBytes(t, s), segmentBytes(t, fresh)
				if !bytes.Equal(got, plain) {
					t.Fatalf("segment of %d bytes differs from the fresh one of %d bytes", len(got), len(plain))
				}
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Fatal("segment differs from that of another layout")
				}
			})
		}
	}
}

// TestSnapshotsStandStill holds a snapshot while everything under it is replaced.
func TestSnapshotsStandStill(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := open(t, config(t, memfs.New(nil)))
	m := model{}
	fill := func() {
		for range 10 {
			m.apply(t, s, 0, randomOps(r, 60)...)
		}
	}
	fill()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill()
	sn, then := s.Snapshot(), m.clone()
	again := s.Snapshot()
	if again != sn {
		t.Fatal("a second snapshot without a write between is another one")
	}
	again.Release()
	fill()
	for _, step := range []func() error{
		func() error { return s.Flush(t.Context()) },
		func() error { fill(); return s.Merge(t.Context(), 1) },
		func() error { return s.Close(context.Background()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		then.verify(t, sn)
	}
	sn.Release()
	empty := s.Snapshot()
	if empty.Docs() != 0 || len(empty.Leaves()) != 0 {
		t.Fatalf("snapshot of a closed shard has %d documents", empty.Docs())
	}
	empty.Release()
}

// TestFieldsAreAdded adds fields to a live shard: durable, in order with the documents that use them, harmless when repeated.
func TestFieldsAreAdded(t *testing.T) {
	fsys := memfs.New(nil)
	cfg := config(t, fsys)
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	field := schema.Field{Name: "extra", Type: schema.Text, Tokenizer: "simple", Indexed: true, K1: schema.DefaultK1, B: schema.DefaultB}
	doc := &schema.Document{Key: "a", Fields: []schema.Values{{Field: numFields, Text: []string{"hello world"}}}}
	res, err := s.Apply(t.Context(), []Op{put(doc)})
	if err != nil || res[0].Err == nil {
		t.Fatalf("put with an unknown field: %v, %v", res, err)
	}
	gen := s.Schema().Generation
	for range 2 {
		if err := s.AddFields(t.Context(), []schema.Field{field}); err != nil {
			t.Fatal(err)
		}
	}
	if g := s.Schema().Generation; g != gen+1 {
		t.Fatalf("generation %d after adding to %d", g, gen)
	}
	other := field
	other.Tokenizer = "raw"
	if err := s.AddFields(t.Context(), []schema.Field{other}); err == nil {
		t.Fatal("another definition was taken")
	}
	res, err = s.Apply(t.Context(), []Op{put(doc)})
	if err != nil || res[0].Err != nil {
		t.Fatalf("put: %v, %v", res, err)
	}
	for _, flush := range []bool{false, true} {
		if flush {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		closeShard(t, s)
		s = open(t, cfg)
		sn := s.Snapshot()
		if g := sn.Schema().Generation; g != gen+1 || len(sn.Schema().Fields) != numFields+1 {
			t.Fatalf("generation %d with %d fields after opening again", g, len(sn.Schema().Fields))
		}
		if a := answer(t, sn, &query.Term{Field: "extra", Text: "world"}); a[:4] != "1 eq" {
			t.Fatalf("answer %s", a)
		}
		sn.Release()
	}
}

// TestCreateAndDelete walks through the results of single operations.
func TestCreateAndDelete(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	r := rand.New(rand.NewPCG(1, 1))
	m := model{}
	a, b := randomDoc(r, "a"), randomDoc(r, "a")
	m.apply(t, s, 0, Op{Create: true, Doc: a}, Op{Create: true, Doc: b}, Op{Delete: true, Key: "a"}, Op{Delete: true, Key: "a"}, Op{Create: true, Doc: b})
	sn := s.Snapshot()
	m.verify(t, sn)
	sn.Release()
	for _, c := range []struct {
		about string
		op    Op
	}{
		{"empty key", Op{Delete: true}},
		{"no document", Op{Key: "x"}},
		{"empty document key", put(&schema.Document{})},
		{"wrong type", put(&schema.Document{Key: "x", Fields: []schema.Values{{Field: fN, Text: []string{"1"}}}})},
	} {
		good := randomDoc(r, "good")
		ops := []Op{put(good), c.op}
		res, err := s.Apply(t.Context(), ops)
		if err != nil || res[0].Err != nil {
			t.Fatalf("%s: the good operation failed: %v, %v", c.about, res, err)
		}
		if bad, ok := res[1].Err.(*InvalidError); !ok || bad.Reason == "" {
			t.Errorf("%s: error %v", c.about, res[1].Err)
		}
		m["good"] = stored{doc: good}
	}
	sn = s.Snapshot()
	defer sn.Release()
	m.verify(t, sn)
}

// tinyDoc makes a document that often lacks fields or has values without a token, or too long for a column.
func tinyDoc(r *rand.Rand, key string) *schema.Document {
	d := &schema.Document{Key: key, Source: fmt.Appendf(nil, "%d", r.Uint32())}
	text := func() string { return []string{"", "a", "b a", "...", "longer than eight", "a a"}[r.IntN(6)] }
	for f := fBody; f <= numFields+1; f++ {
		if r.IntN(3) > 0 {
			continue
		}
		if f >= fVec && f <= fKept {
			if f == fVec {
				d.Fields = append(d.Fields, randomVectors(r)...)
			}
			continue
		}
		v := schema.Values{Field: f}
		for range 1 + r.IntN(2) {
			if f == fN || f == numFields+1 {
				v.Nums = append(v.Nums, r.Uint64N(3))
			} else {
				v.Text = append(v.Text, text())
			}
		}
		d.Fields = append(d.Fields, v)
	}
	return d
}

// TestTinyHistories is TestHistoriesAreForgotten for the edges: fields, terms and columns that appear and vanish altogether.
func TestTinyHistories(t *testing.T) {
	seeds := uint64(150)
	if long {
		seeds = 5000
	}
	sch, err := testSchema(t).AddFields([]schema.Field{
		{Name: "kw", Type: schema.Text, Tokenizer: "simple", Indexed: true, Fast: true, Multi: true, KeywordMax: 8, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "m", Type: schema.U64, Fast: true, Multi: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 8))
		var clock testClock
		cfg := config(t, memfs.New(nil))
		cfg.Schema, cfg.Clock, cfg.NoSources = sch, clock.read, r.IntN(4) == 0
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		m := model{}
		for i := range 2 + r.IntN(8) {
			ops := make([]Op, 1+r.IntN(3))
			for j := range ops {
				if key := fmt.Sprint(r.IntN(5)); r.IntN(4) == 0 {
					ops[j] = Op{Delete: true, Key: key}
				} else {
					ops[j] = put(tinyDoc(r, key))
				}
			}
			clock.now.Store(uint64(i + 1))
			m.apply(t, s, uint64(i+1), ops...)
			if r.IntN(2) == 0 {
				if err := s.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Merge(t.Context(), 1); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(m) > 0 {
			cfg.FS = memfs.New(nil)
			fresh := m.freshIn(t, cfg, &clock)
			if err := fresh.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(segmentBytes(t, s), segmentBytes(t, fresh)) {
				t.Errorf("seed %d: the segment of %d documents differs from a fresh one", seed, len(m))
			}
			closeShard(t, fresh)
		} else if sn := s.Snapshot(); sn.Segments() != 0 {
			t.Errorf("seed %d: %d segments without a document", seed, sn.Segments())
		} else {
			sn.Release()
		}
		closeShard(t, s)
	}
}
