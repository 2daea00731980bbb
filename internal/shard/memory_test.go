package shard

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vfs"
)

// The resident heap of an open shard whose documents are in segments: so many bytes for each million documents, and so many for the
// shard and its segments themselves. docs/operating.md states both.
const (
	heapPerMillion = 3 << 20
	heapFixed      = 1 << 20
)

// liveHeap is the memory of everything that is still referred to.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a pool or a finalizer held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHeapOfAnOpenShard opens a shard of many small documents with texts, columns and vectors, in several segments, uses it and measures
// what it keeps on the heap: everything else is read from mapped files.
func TestHeapOfAnOpenShard(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has a heap of its own")
	}
	const docs, segments = 200_000, 5
	sch, err := schema.NewDynamic("t").AddFields([]schema.Field{
		{Name: "body", Type: schema.Text, Tokenizer: "simple", Indexed: true, Positions: schema.TokenPositions, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "tag", Type: schema.Text, Tokenizer: "raw", Indexed: true, Fast: true, K1: schema.DefaultK1, B: schema.DefaultB},
		{Name: "n", Type: schema.I64, Fast: true},
		{Name: "vec", Type: schema.DenseVector, Dim: 16, Element: "int8", Indexed: true, Options: []schema.Option{{Name: "flat"}}},
		{Name: "graph", Type: schema.DenseVector, Dim: 4, Indexed: true, Options: []schema.Option{{Name: "m", Value: "4"}, {Name: "ef_construction", Value: "8"}}},
		{Name: "words", Type: schema.SparseVector, Indexed: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, vfs.OS)
	cfg.Schema, cfg.Dir, cfg.MemtableBytes = sch, filepath.ToSlash(t.TempDir()), 512<<20
	s := open(t, cfg)
	r := rand.New(rand.NewPCG(1, 1))
	for from := 0; from < docs; from += 1000 {
		ops := make([]Op, 1000)
		for i := range ops {
			// One segment has a graph, which takes long to build.
			ops[i] = put(smallDoc(r, fmt.Sprintf("document-%08d", from+i), from < 5000))
		}
		if _, err := s.Apply(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
		if (from+1000)%(docs/segments) == 0 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range docs / 100 {
		if _, err := s.Apply(t.Context(), []Op{{Delete: true, Key: fmt.Sprintf("document-%08d", i*100)}}); err != nil {
			t.Fatal(err)
		}
	}
	closeShard(t, s)
	s = nil
	before := liveHeap()

	cfg.Schema = nil
	s = open(t, cfg)
	s.buildFilters(t.Context()) // what a goroutine does after Open
	sn := s.Snapshot()
	if sn.Segments() != segments || sn.Docs() != docs-docs/100 {
		t.Fatalf("%d segments with %d documents", sn.Segments(), sn.Docs())
	}
	for _, q := range []query.Node{&query.Match{Field: "body", Text: "w3 w17"}, &query.Exists{Field: "n"}, &query.Term{Field: "tag", Text: "t5"}} {
		answer(t, sn, q)
	}
	for _, l := range sn.Leaves() {
		if l.SparseVectors(6) == nil || l.Vectors(4) == nil {
			t.Fatal("vectors are missing")
		}
	}
	graph := sn.Leaves()[0].Vectors(5)
	q, err := vector.NewQuery(graph.Params(), []float32{1, 2, 3, 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if hits, _, err := graph.Unmasked(q, vector.Options{K: 10}, nil); err != nil || len(hits) != 10 || !graph.HasGraph() {
		t.Fatalf("%d hits, graph %v: %v", len(hits), graph.HasGraph(), err)
	}
	sn.Release()
	got := liveHeap() - before
	runtime.KeepAlive(s)
	limit := int64(heapFixed + heapPerMillion*docs/1_000_000)
	t.Logf("%d documents in %d segments, %d bytes: %d bytes on the heap, %.2f for each document; at most %d", docs, segments, s.Stats().SegmentBytes,
		got, float64(got)/docs, limit)
	if got > limit {
		t.Errorf("an open shard of %d documents keeps %d bytes on the heap, at most %d", docs, got, limit)
	}
}

// smallDoc makes a document with a value for each field; not all need one in the field with a graph.
func smallDoc(r *rand.Rand, key string, graph bool) *schema.Document {
	dense := func(dim int) []byte {
		v := make([]float32, dim)
		for i := range v {
			v[i] = float32(r.IntN(200) - 100)
		}
		return schema.AppendDense(nil, v)
	}
	d := &schema.Document{Key: key, Source: fmt.Appendf(nil, `{"id":%q}`, key), Fields: []schema.Values{
		{Field: 0, Text: []string{key}},
		{Field: 1, Text: []string{fmt.Sprintf("w%d w%d w%d", r.IntN(5000), r.IntN(50), r.IntN(5))}},
		{Field: 2, Text: []string{fmt.Sprint("t", r.IntN(100))}},
		{Field: 3, Nums: []uint64{schema.EncodeI64(r.Int64N(1e6))}},
		{Field: 4, Bytes: [][]byte{dense(16)}},
	}}
	if graph {
		d.Fields = append(d.Fields, schema.Values{Field: 5, Bytes: [][]byte{dense(4)}})
	}
	d.Fields = append(d.Fields, schema.Values{Field: 6, Bytes: [][]byte{
		schema.AppendSparse(schema.AppendSparse(nil, uint32(r.IntN(1000)), 1), 1000+uint32(r.IntN(1000)), 0.5),
	}})
	return d
}
