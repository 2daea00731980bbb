package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// randomVectors makes values for the vector fields of testSchema.
func randomVectors(r *rand.Rand) []schema.Values {
	var out []schema.Values
	add := func(field, n int, value func() []byte) {
		v := schema.Values{Field: field}
		for range n {
			v.Bytes = append(v.Bytes, value())
		}
		if n > 0 {
			out = append(out, v)
		}
	}
	dense := func(dim int) func() []byte {
		return func() []byte {
			v := make([]float32, dim)
			for i := range v {
				v[i] = float32(r.NormFloat64()) + 1e-3
			}
			return schema.AppendDense(nil, v)
		}
	}
	add(fVec, r.IntN(4), dense(3))
	add(fBits, r.IntN(2), func() []byte { return []byte{byte(r.Uint32()), byte(r.Uint32())} })
	add(fWords, r.IntN(3), func() []byte {
		var b []byte
		at := r.IntN(20)
		for range 1 + r.IntN(6) {
			b = schema.AppendSparse(b, uint32(at), float32(1+r.IntN(50))/16)
			at += 1 + r.IntN(300)
		}
		return b
	})
	add(fKept, r.IntN(2), dense(2))
	return out
}

// vectorsOf returns the encoded values that a document has for a field.
func vectorsOf(t testing.TB, sch *schema.Schema, doc *schema.Document, field int) [][]byte {
	t.Helper()
	f := &sch.Fields[field]
	if !f.Indexed {
		return nil
	}
	var out [][]byte
	for i := range doc.Fields {
		if doc.Fields[i].Field != field {
			continue
		}
		for _, b := range doc.Fields[i].Bytes {
			if f.Type == schema.SparseVector {
				p, err := sparse.ParamsOf(f)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, sparse.Encode(p, nil, b))
				continue
			}
			p, err := vector.ParamsOf(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, vector.Encode(p, nil, b))
		}
	}
	return out
}

// leafVectors returns the records that a leaf has for a document.
func leafVectors(l exec.Leaf, sch *schema.Schema, field int, doc uint32) [][]byte {
	var x interface {
		Range(doc uint32) (from, to int)
		Doc(ord int) uint32
		Record(ord int) []byte
	}
	if sch.Fields[field].Type == schema.SparseVector {
		if y := l.SparseVectors(field); y != nil {
			x = y
		}
	} else if y := l.Vectors(field); y != nil {
		x = y
	}
	if x == nil {
		return nil
	}
	var out [][]byte
	for from, to := x.Range(doc); from < to; from++ {
		if x.Doc(from) != doc {
			return [][]byte{[]byte("a vector of another document")}
		}
		out = append(out, slices.Clone(x.Record(from)))
	}
	return out
}

// sameVectors tells whether the leaves have exactly the vectors of the model, encoded as a memtable and a segment alike encode them.
func (m model) sameVectors(t testing.TB, sn *Snapshot) bool {
	t.Helper()
	var key []byte
	for _, l := range sn.Leaves() {
		live := l.Live()
		for d := range l.NumDocs() {
			if live != nil && !live.Has(d) {
				continue
			}
			key = l.Key(d, key[:0])
			v, ok := m[string(key)]
			if !ok {
				return false
			}
			for field := fVec; field <= fKept; field++ {
				got, want := leafVectors(l, sn.Schema(), field, d), vectorsOf(t, sn.Schema(), v.doc, field)
				if !slices.EqualFunc(got, want, bytes.Equal) {
					t.Logf("document %q field %d: vectors %x, want %x", key, field, got, want)
					return false
				}
			}
		}
	}
	return true
}

// Identities are those of segments: the same in every snapshot, never given again, and 0 in memory.
func TestIdentityOfLeaves(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	r := rand.New(rand.NewPCG(9, 9))
	m := model{}
	seen := map[uint64]string{}
	check := func(when string) {
		t.Helper()
		a, b := s.Snapshot(), s.Snapshot()
		defer a.Release()
		defer b.Release()
		for i, l := range a.Leaves() {
			id := l.Identity()
			if l.KeyOrdered() != (id != 0) || id != b.Leaves()[i].Identity() {
				t.Fatalf("%s: leaf %d has identity %d", when, i, id)
			}
			docs := fmt.Sprint(l.NumDocs(), string(l.Key(0, nil)))
			if was, ok := seen[id]; ok && id != 0 && was != docs {
				t.Fatalf("%s: identity %d was given to another segment", when, id)
			}
			seen[id] = docs
		}
	}
	for i := range 12 {
		m.apply(t, s, 0, randomOps(r, 60)...)
		check("after a write")
		var err error
		switch {
		case i%6 == 5:
			err = s.Merge(t.Context(), 1)
		case i%2 == 1:
			err = s.Flush(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		check("after a flush or merge")
	}
}

// A vector that the schema does not take is refused with its document, by name; the rest of the batch goes on.
func TestVectorsAreChecked(t *testing.T) {
	s := open(t, config(t, memfs.New(nil)))
	nan := schema.AppendDense(nil, []float32{1, 2, 3})
	copy(nan[4:], []byte{0, 0, 0xc0, 0x7f})
	for _, c := range []struct {
		field  int
		value  []byte
		reason string
	}{
		{fVec, make([]byte, 11), "found 11 bytes"},
		{fVec, schema.AppendDense(nil, []float32{1, 2}), "3 components"},
		{fVec, schema.AppendDense(nil, []float32{0, 0, 0}), "cosine"},
		{fVec, schema.AppendDense(nil, []float32{1, 70000, 0}), "16-bit"},
		{fVec, nan, "finite"},
		{fBits, []byte{1}, "found 1"},
		{fWords, nil, "at least one"},
		{fWords, schema.AppendSparse(schema.AppendSparse(nil, 5, 1), 5, 1), "ascend"},
		{fWords, schema.AppendSparse(nil, 65536, 1), "65535"},
		{fKept, schema.AppendDense(nil, []float32{1}), "2 components"},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		bad := &schema.Document{Key: "bad", Fields: []schema.Values{{Field: c.field, Bytes: [][]byte{c.value}}}}
		res, err := s.Apply(t.Context(), []Op{put(bad), put(randomDoc(r, "good"))})
		if err != nil || res[1].Err != nil {
			t.Fatal(err, res)
		}
		ie, ok := errors.AsType[*InvalidError](res[0].Err)
		if !ok || ie.Field != s.Schema().Fields[c.field].Name || !strings.Contains(ie.Reason, c.reason) {
			t.Errorf("field %d, % x: %v", c.field, c.value, res[0].Err)
		}
	}
	if n := s.Stats().Docs; n != 1 {
		t.Errorf("%d documents", n)
	}
}

// manyVectors puts documents with one vector each.
func manyVectors(t testing.TB, s *Shard, r *rand.Rand, field, dim, from, n int) {
	t.Helper()
	v := make([]float32, dim)
	for at := from; at < from+n; {
		var ops []Op
		for ; at < from+n && len(ops) < 500; at++ {
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			key := fmt.Sprintf("k%07d", at)
			ops = append(ops, put(&schema.Document{Key: key, Fields: []schema.Values{{Field: field, Bytes: [][]byte{schema.AppendDense(nil, v)}}}}))
		}
		res, err := s.Apply(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		for i := range res {
			if res[i].Err != nil {
				t.Fatal(res[i].Err)
			}
		}
	}
}

// A memtable is charged with its vectors, so that it is bounded by bytes and not by documents.
func TestVectorsAreCharged(t *testing.T) {
	sch, err := schema.NewDynamic("t").AddFields([]schema.Field{{Name: "v", Type: schema.DenseVector, Dim: 256, Indexed: true}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, memfs.New(nil))
	cfg.Schema = sch
	s := open(t, cfg)
	const n = 2000
	manyVectors(t, s, rand.New(rand.NewPCG(3, 3)), 1, 256, 0, n)
	if got := s.Stats().MemtableBytes; got < n*256*4 || got > 2*n*256*4 {
		t.Errorf("%d vectors of 1 KiB are charged with %d bytes", n, got)
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats().MemtableBytes; got > 64<<10 {
		t.Errorf("an empty memtable is charged with %d bytes", got)
	}
}

// graphConfig is that of a shard with one field of vectors that gets a graph.
func graphConfig(t testing.TB, fsys vfs.FS, dim int, ef string) Config {
	t.Helper()
	sch, err := schema.NewDynamic("t").AddFields([]schema.Field{{
		Name: "v", Type: schema.DenseVector, Dim: dim, Metric: "l2", Indexed: true, Options: []schema.Option{{Name: "ef_construction", Value: ef}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, fsys)
	cfg.Schema = sch
	return cfg
}

// closesWithin bounds how long Close may take while a graph is being built.
const closesWithin = 2 * time.Second

// Close does not wait for the graph of a flush or merge under way, and builds none of its own; nothing is lost.
func TestCloseWhileAGraphIsBuilt(t *testing.T) {
	const dim, n = 64, 14_000
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	cfg := graphConfig(t, fsys, dim, "400")
	cfg.NoBackground, cfg.MemtableBytes = false, 4<<20
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Writes go on while the graph of the first memtable is built, since nothing else takes long after its file was made.
	building := make(chan struct{}, 1)
	fsys.Before(func(op faultfs.Op) {
		if op.Kind == faultfs.Create && strings.Contains(op.Path, "segments") {
			signal(building)
		}
	})
	manyVectors(t, s, rand.New(rand.NewPCG(4, 4)), 1, dim, 0, n)
	<-building
	start := time.Now()
	closeShard(t, s)
	if took := time.Since(start); took > closesWithin {
		t.Errorf("Close took %v", took)
	}
	fsys.Before(nil)

	cfg = graphConfig(t, disk, dim, "400")
	s = open(t, cfg)
	if got := s.Stats().Docs; got != n {
		t.Fatalf("%d documents of %d", got, n)
	}
	start = time.Now()
	closeShard(t, s)
	if took := time.Since(start); took > closesWithin {
		t.Errorf("Close without background work took %v", took)
	}
}

// A flush and a merge end with the context of their caller, and can be done again.
func TestGraphBuildsEndWithTheirContext(t *testing.T) {
	const dim, n = 4, 4500
	fsys := faultfs.New(memfs.New(nil))
	s := open(t, graphConfig(t, fsys, dim, "8"))
	r := rand.New(rand.NewPCG(5, 5))
	for round, work := range []func(context.Context) error{
		s.Flush,
		func(ctx context.Context) error { return s.Merge(ctx, 1) },
	} {
		manyVectors(t, s, r, 1, dim, round*n, n)
		if round == 1 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		fsys.Before(func(op faultfs.Op) {
			if op.Kind == faultfs.Create && strings.Contains(op.Path, "segments") {
				cancel()
			}
		})
		if err := work(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("round %d: %v", round, err)
		}
		cancel()
		fsys.Before(nil)
		if err := work(t.Context()); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	sn := s.Snapshot()
	defer sn.Release()
	if sn.Segments() != 1 || sn.Docs() != 2*n || !sn.Leaves()[0].Vectors(1).HasGraph() {
		t.Errorf("%d segments with %d documents, graph %v", sn.Segments(), sn.Docs(), sn.Leaves()[0].Vectors(1).HasGraph())
	}
}
