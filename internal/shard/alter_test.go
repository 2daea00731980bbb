package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// found is which graph a field of vectors has in each leaf: none, or its m and ef_construction, and whether it is built.
func found(t *testing.T, s *Shard, field int) (out []string) {
	t.Helper()
	sn := s.Snapshot()
	defer sn.Release()
	for _, l := range sn.Leaves() {
		x := l.Vectors(field)
		if x == nil || l.Identity() == 0 {
			continue
		}
		p := x.Params()
		if !p.Graph {
			out = append(out, fmt.Sprintf("flat %d", x.Len()))
			continue
		}
		out = append(out, fmt.Sprintf("m %d ef %d %t %d", p.M, p.EfConstruction, x.HasGraph(), x.Len()))
	}
	slices.Sort(out)
	return out
}

func options(pairs ...string) (out []schema.Option) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, schema.Option{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// TestAlteredVectors changes how vectors are found, and back: flushes and merges go by it from then on, what is there stays until it is merged or
// rebuilt, and a restart forgets nothing.
func TestAlteredVectors(t *testing.T) {
	const dim, n = 4, vector.GraphFrom + 200
	disk := memfs.New(nil)
	cfg := graphConfig(t, disk, dim, "8")
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(6, 6))
	alter := func(pending bool, pairs ...string) {
		t.Helper()
		f := s.Schema().Fields[1]
		f.Options = options(pairs...)
		before := s.Schema()
		got, err := s.AlterVectors(t.Context(), &f)
		if err != nil || got != pending {
			t.Fatalf("%v: pending %t, %v", pairs, got, err)
		}
		after := s.Schema()
		changed := !slices.Equal(before.Fields[1].Options, after.Fields[1].Options)
		if !slices.Equal(after.Fields[1].Options, f.Options) || (after.Generation == before.Generation+1) != changed {
			t.Errorf("generation %d with %v, before %d with %v", after.Generation, after.Fields[1].Options, before.Generation, before.Fields[1].Options)
		}
	}
	are := func(when string, want ...string) {
		t.Helper()
		if got := found(t, s, 1); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	manyVectors(t, s, r, 1, dim, 0, n)
	must(s.Flush(t.Context()))
	are("as declared", fmt.Sprintf("m 16 ef 8 true %d", n))

	alter(true, "flat", "")
	are("altered", fmt.Sprintf("m 16 ef 8 true %d", n))
	manyVectors(t, s, r, 1, dim, n, 100)
	must(s.Flush(t.Context()))
	are("flushed", "flat 100", fmt.Sprintf("m 16 ef 8 true %d", n))
	must(s.Merge(t.Context(), 1))
	are("merged", fmt.Sprintf("flat %d", n+100))
	alter(false, "flat", "")

	manyVectors(t, s, r, 1, dim, n+100, 50) // in memory before the options change
	alter(true, "m", "8", "ef_construction", "16")
	must(s.Flush(t.Context()))
	are("flushed", fmt.Sprintf("flat %d", n+100), "m 8 ef 16 false 50")
	must(s.Rebuild(t.Context()))
	are("rebuilt", "m 8 ef 16 false 50", fmt.Sprintf("m 8 ef 16 true %d", n+100))
	must(s.Rebuild(t.Context())) // nothing to do
	are("rebuilt again", "m 8 ef 16 false 50", fmt.Sprintf("m 8 ef 16 true %d", n+100))

	// Options that say nothing here are kept, and leave nothing to do.
	alter(false, "ivf_tq", "", "num_clusters", "64", "m", "8", "ef_construction", "16")
	alter(true, "m", "9", "ef_construction", "16")
	// A forced merge makes even a single segment anew.
	must(s.Merge(t.Context(), 2))
	are("merged", "m 9 ef 16 false 50", fmt.Sprintf("m 9 ef 16 true %d", n+100))

	alter(true, "m", "10", "ef_construction", "16")
	want := s.Schema()
	for range 2 { // out of the log, and out of the manifest
		closeShard(t, s)
		s = open(t, cfg)
		if got := s.Schema(); got.Generation != want.Generation || !slices.Equal(got.Fields[1].Options, want.Fields[1].Options) {
			t.Errorf("generation %d with %v behind a restart", got.Generation, got.Fields[1].Options)
		}
		must(s.Flush(t.Context()))
	}
	must(s.Rebuild(t.Context()))
	are("rebuilt behind a restart", "m 10 ef 16 false 50", fmt.Sprintf("m 10 ef 16 true %d", n+100))
	if got := s.Stats().Docs; got != n+150 {
		t.Errorf("%d documents, want %d", got, n+150)
	}
	closeShard(t, s)
}

// A shard that was altered and merged is the same, to the byte of its vectors, as one that was declared so.
func TestAlteredIsAsDeclared(t *testing.T) {
	const dim, n = 3, vector.GraphFrom + 10
	records := func(alter bool) (out []string) {
		cfg := graphConfig(t, memfs.New(nil), dim, "32")
		if alter {
			cfg = graphConfig(t, memfs.New(nil), dim, "8")
		}
		s := open(t, cfg)
		defer closeShard(t, s)
		r := rand.New(rand.NewPCG(7, 7))
		manyVectors(t, s, r, 1, dim, 0, n)
		if alter {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			f := s.Schema().Fields[1]
			f.Options = options("ef_construction", "32")
			if _, err := s.AlterVectors(t.Context(), &f); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Merge(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		sn := s.Snapshot()
		defer sn.Release()
		x := sn.Leaves()[0].Vectors(1)
		q, err := vector.NewQuery(x.Params(), []float32{1, 2, 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		hits, work, err := x.Unmasked(q, vector.Options{K: 50}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return []string{fmt.Sprint(x.Params()), fmt.Sprint(hits), fmt.Sprintf("%+v", work), fmt.Sprint(x.Bytes())}
	}
	if a, b := records(true), records(false); !slices.Equal(a, b) {
		t.Errorf("altered\n%s\ndeclared\n%s", a, b)
	}
}

// What is staged shows on the next commit only; that the options changed is told at once, and kept.
func TestAlterWhileWritesAreStaged(t *testing.T) {
	cfg := staging(t, graphConfig(t, memfs.New(nil), 2, "8"))
	cfg.NoFlushOnClose = true
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(8, 8))
	manyVectors(t, s, r, 1, 2, 0, 10)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	manyVectors(t, s, r, 1, 2, 10, 5)
	f := s.Schema().Fields[1]
	f.Options = options("flat", "")
	if pending, err := s.AlterVectors(t.Context(), &f); err != nil || !pending {
		t.Fatal(pending, err)
	}
	for range 2 {
		sn := s.Snapshot()
		if n := sn.Docs(); n != 10 {
			t.Errorf("%d documents show", n)
		}
		sn.Release()
		if got := s.Schema().Fields[1].Options; !slices.Equal(got, f.Options) {
			t.Errorf("options %v", got)
		}
		closeShard(t, s)
		s = open(t, cfg)
	}
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sn := s.Snapshot()
	if n := sn.Docs(); n != 15 || !slices.Equal(sn.Schema().Fields[1].Options, f.Options) {
		t.Errorf("%d documents show with %v", n, sn.Schema().Fields[1].Options)
	}
	sn.Release()
	if err := s.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := found(t, s, 1); !slices.Equal(got, []string{"flat 10", "flat 5"}) {
		t.Errorf("%q", got)
	}
	closeShard(t, s)
}

// TestAlterUnderWritesAndMerges changes options back and forth while documents are written, flushed and merged. Nothing is lost, and in the end
// everything is as the options say.
func TestAlterUnderWritesAndMerges(t *testing.T) {
	cfg := graphConfig(t, memfs.New(nil), 2, "8")
	s := open(t, cfg)
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			var err error
			if i%3 == 2 {
				err = s.Merge(t.Context(), 2)
			} else {
				err = s.Flush(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	r := rand.New(rand.NewPCG(9, 9))
	for i := range 40 {
		manyVectors(t, s, r, 1, 2, 25*i, 25)
		f := s.Schema().Fields[1]
		f.Options = options("flat", "")
		if i%2 == 1 {
			f.Options = options("m", fmt.Sprint(4+i%7))
		}
		if _, err := s.AlterVectors(t.Context(), &f); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	work.Wait()
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := found(t, s, 1); !slices.Equal(got, []string{"m 8 ef 128 false 1000"}) {
		t.Errorf("%q", got)
	}
	closeShard(t, s)
}

func TestAltersThatAreRefused(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	defer closeShard(t, s)
	sch := s.Schema()
	for _, c := range []struct {
		name     string
		f        schema.Field
		conflict bool
	}{
		{"no such field", schema.Field{Name: "nowhere", Type: schema.DenseVector, Dim: 3, Indexed: true}, false},
		{"no vectors", schema.Field{Name: sch.Fields[0].Name, Type: schema.DenseVector, Dim: 3, Indexed: true}, false},
		{"sparse vectors", sch.Fields[fWords], false},
		{"another dimension", func() schema.Field { f := sch.Fields[fVec]; f.Dim++; return f }(), true},
		{"another element", func() schema.Field { f := sch.Fields[fVec]; f.Element = "uint8"; return f }(), true},
		{"another metric", func() schema.Field { f := sch.Fields[fVec]; f.Metric = "dot"; return f }(), true},
		{"stored only", func() schema.Field {
			f := sch.Fields[fKept]
			f.Indexed, f.Options = true, options("flat", "")
			return f
		}(), false},
		{"options that cannot be", func() schema.Field { f := sch.Fields[fVec]; f.Options = options("m", "1"); return f }(), false},
	} {
		_, err := s.AlterVectors(t.Context(), &c.f)
		_, conflict := errors.AsType[*schema.ConflictError](err)
		_, fault := errors.AsType[*schema.FieldError](err)
		if conflict != c.conflict || fault == c.conflict {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if s.Schema() != sch {
		t.Error("the schema is another")
	}
}

// A forced merge takes segments whose graphs are others than asked for, one after the other; a merge counts the memory of the graph that it will build.
func TestPlansOfAlteredVectors(t *testing.T) {
	if got := planForced([]segmentSize{{docs: 5}, {docs: 5, other: true}}, 2, 0); !slices.Equal(got, []int{1}) {
		t.Errorf("%v", got)
	}
	if got := planForced([]segmentSize{{docs: 5}, {docs: 5}}, 2, 0); got != nil {
		t.Errorf("%v", got)
	}
	f := &segmentFile{vectors: []fieldVectors{{1, 1000, vector.Params{Dim: 8, M: 16, EfConstruction: 128}}}}
	graph := func(p vector.Params) func(int, vector.Params) vector.Params {
		return func(int, vector.Params) vector.Params { return p }
	}
	if heap, other := f.graphs(graph(vector.Params{Dim: 8, M: 16, EfConstruction: 128})); heap != 0 || other {
		t.Errorf("without a graph: %d bytes, %t", heap, other)
	}
	if heap, other := f.graphs(graph(vector.Params{Dim: 8, Graph: true, M: 32, EfConstruction: 128})); heap != 1000*(2*8+17*32+54) || !other {
		t.Errorf("with one: %d bytes, %t", heap, other)
	}
}

// TestAlteredSchemaGolden keeps the record that the log has of an altered schema: logs that hold one are to be read for ever.
func TestAlteredSchemaGolden(t *testing.T) {
	sch, err := schema.ParseSDL(`index a { field id: text<raw> [primary, stored] field v: dense_vector<4> [indexed<flat>, stored] }`, checkTokenizer)
	if err != nil {
		t.Fatal(err)
	}
	f := sch.Fields[1]
	f.Options = options("ivf_tq", "", "m", "24", "ef_construction", "200", "nprobe", "8")
	altered, err := sch.AlterVectors(&f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(altered)
	if err != nil {
		t.Fatal(err)
	}
	b := appendSchema(nil, altered.Generation, string(text))
	path := filepath.Join("testdata", "record", "altered.v1")
	if os.Getenv("WEFT_REWRITE") != "" {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(want) {
		t.Errorf("encoded as %q, want %q", b, want)
	}
	rec, err := decodeRecord(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseSchema("json", rec.schemaText, rec.generation)
	if err != nil || got.Generation != sch.Generation+1 || !got.Fields[1].Equal(&altered.Fields[1]) {
		t.Errorf("%+v, %v", got, err)
	}
}
