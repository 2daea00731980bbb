package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// vectorFields has one field of each kind of vectors.
func vectorFields() []modelField {
	return []modelField{
		{meta: FieldMeta{ID: 310, Name: "dense"}, kind: 'v', decl: "dense_vector<6> [indexed<metric: l2, m: 4, ef_construction: 20>]"},
		{meta: FieldMeta{ID: 311, Name: "half"}, kind: 'v', decl: "dense_vector<3, f16> [indexed<metric: cosine>]"},
		{meta: FieldMeta{ID: 312, Name: "eight"}, kind: 'v', decl: "dense_vector<5, int8> [indexed<flat, metric: dot>]"},
		{meta: FieldMeta{ID: 313, Name: "bits"}, kind: 'v', decl: "binary_dense_vector<24> [indexed]"},
		{meta: FieldMeta{ID: 314, Name: "words"}, kind: 'p', decl: "sparse_vector<u16> [indexed]"},
		{meta: FieldMeta{ID: 315, Name: "wide"}, kind: 'p', decl: "sparse_vector [indexed]"},
		{meta: FieldMeta{ID: 316, Name: "unused"}, kind: 'v', decl: "dense_vector<2> [indexed]"},
	}
}

func (f *modelField) field() *schema.Field {
	g, err := schema.ParseFieldType(f.meta.Name, f.decl, nil)
	if err != nil {
		panic(err)
	}
	return &g
}

func (f *modelField) params() vector.Params {
	p, err := vector.ParamsOf(f.field())
	if err != nil {
		panic(err)
	}
	return p
}

func (f *modelField) sparseParams() sparse.Params {
	p, err := sparse.ParamsOf(f.field())
	if err != nil {
		panic(err)
	}
	return p
}

// randomVectors gives a document values in the fields of vectorFields.
func randomVectors(rng *rand.Rand) map[int][][]byte {
	out := map[int][][]byte{}
	dense := func(id, dim, n int) {
		for range n {
			v := make([]float32, dim)
			for i := range v {
				v[i] = float32(rng.IntN(2000)-1000)/250 + 1e-3
			}
			out[id] = append(out[id], schema.AppendDense(nil, v))
		}
	}
	dense(310, 6, 1)
	dense(311, 3, rng.IntN(4))
	if rng.IntN(3) == 0 {
		dense(312, 5, 2)
	}
	for range rng.IntN(2) {
		out[313] = append(out[313], []byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
	}
	pairs := func(id, n, top int) {
		var b []byte
		at := 0
		for range n {
			at += 1 + rng.IntN(top)
			b = schema.AppendSparse(b, uint32(at), float32(1+rng.IntN(100))/64)
		}
		out[id] = append(out[id], b)
	}
	for range rng.IntN(3) {
		pairs(314, 1+rng.IntN(12), 40)
	}
	if rng.IntN(50) == 0 {
		pairs(315, 1+rng.IntN(3), 1<<29)
	}
	return out
}

// recordSlice is a source of records in memory.
type recordSlice struct {
	docs []uint32
	recs [][]byte
}

func (s *recordSlice) Len() int              { return len(s.docs) }
func (s *recordSlice) Doc(ord int) uint32    { return s.docs[ord] }
func (s *recordSlice) Record(ord int) []byte { return s.recs[ord] }

// records encodes the values of a field.
func (m *model) records(f modelField) *recordSlice {
	var encode func(v []byte) []byte
	if f.kind == 'p' {
		p := f.sparseParams()
		encode = func(v []byte) []byte { return sparse.Encode(p, nil, v) }
	} else {
		p := f.params()
		encode = func(v []byte) []byte { return vector.Encode(p, nil, v) }
	}
	s := &recordSlice{}
	for i := range m.docs {
		for _, v := range m.docs[i].vecs[f.meta.ID] {
			s.docs = append(s.docs, uint32(i))
			s.recs = append(s.recs, encode(v))
		}
	}
	return s
}

func (m *model) checkVectors(t testing.TB, r *Reader, f modelField) {
	t.Helper()
	want := m.records(f)
	var x interface {
		vectorIndex
		Docs() int
		Range(doc uint32) (from, to int)
	}
	var ok bool
	if f.kind == 'p' {
		var y *sparse.Index
		if y, ok = r.SparseVectors(f.meta.ID); ok && (y.Params().U16 != f.sparseParams().U16 || y.Params().Weights != f.sparseParams().Weights) {
			t.Fatalf("field %d: parameters %+v", f.meta.ID, y.Params())
		}
		x = y
	} else {
		var y *vector.Index
		if y, ok = r.Vectors(f.meta.ID); ok && y.Params() != f.params() {
			t.Fatalf("field %d: parameters %+v", f.meta.ID, y.Params())
		}
		x = y
	}
	if ok != (want.Len() > 0) {
		t.Fatalf("field %d: vectors are there: %v", f.meta.ID, ok)
	}
	if !ok {
		return
	}
	if x.Len() != want.Len() {
		t.Fatalf("field %d: %d vectors, want %d", f.meta.ID, x.Len(), want.Len())
	}
	for i := range want.docs {
		if x.Doc(i) != want.docs[i] || !bytes.Equal(x.Record(i), want.recs[i]) {
			t.Fatalf("field %d: record %d is of document %d: % x, want document %d: % x", f.meta.ID, i, x.Doc(i), x.Record(i), want.docs[i], want.recs[i])
		}
	}
	docs := 0
	for d := range m.docs {
		from, to := x.Range(uint32(d))
		n := len(m.docs[d].vecs[f.meta.ID])
		if to-from != n || n > 0 && want.docs[from] != uint32(d) {
			t.Fatalf("field %d: document %d has vectors %d to %d, want %d", f.meta.ID, d, from, to, n)
		}
		if n > 0 {
			docs++
		}
	}
	if x.Docs() != docs {
		t.Fatalf("field %d: %d documents with a vector, want %d", f.meta.ID, x.Docs(), docs)
	}
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
}

// A source may be slow to end; the writer stops with the context and says so.
func TestVectorsStopWithTheContext(t *testing.T) {
	m := randomModel(rand.New(rand.NewPCG(31, 1)), 300)
	f := vectorFields()[0]
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	w := NewWriter(io.Discard, WriterOptions{NoSources: true})
	w.Begin(len(m.docs), []FieldMeta{f.meta})
	for _, d := range m.docs {
		w.Key([]byte(d.key), d.ts)
	}
	w.Vectors(ctx, f.meta.ID, f.params(), m.records(f))
	if _, err := w.Finish(); !errors.Is(err, context.Canceled) && !errors.Is(err, why) {
		t.Errorf("Finish = %v", err)
	}
}

// A field whose vectors were written with two sets of parameters cannot be merged.
func TestMergeRefusesOtherVectors(t *testing.T) {
	var sources []MergeSource
	for i, dim := range []int{2, 3} {
		f := modelField{meta: FieldMeta{ID: 1, Name: "v"}, kind: 'v', decl: fmt.Sprintf("dense_vector<%d> [indexed]", dim)}
		m := &model{fields: []modelField{f}, docs: []modelDoc{{key: fmt.Sprint(i), vecs: map[int][][]byte{1: {make([]byte, 4*dim)}}}}}
		r, err := FromBytes("part", m.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, MergeSource{R: r})
	}
	if _, _, err := Merge(t.Context(), io.Discard, sources, MergeOptions{}); !errors.Is(err, ErrOrder) {
		t.Errorf("Merge = %v", err)
	}
}

// A merge with a graph, under deaths, gives the bytes that the live documents give at once.
func TestMergeOfGraphIsFresh(t *testing.T) {
	const n = 4100
	rng := rand.New(rand.NewPCG(32, 1))
	f := modelField{meta: FieldMeta{ID: 1, Name: "v"}, kind: 'v', decl: "dense_vector<4> [indexed<m: 4, ef_construction: 8>]"}
	m := &model{fields: []modelField{f}}
	for i := range n {
		v := make([]float32, 4)
		for j := range v {
			v[j] = float32(rng.NormFloat64())
		}
		m.docs = append(m.docs, modelDoc{key: fmt.Sprintf("%06d", i), vecs: map[int][][]byte{1: {schema.AppendDense(nil, v)}}})
	}
	// A third of the documents was written before, with another vector, and is dead there.
	parts := make([]*model, 3)
	live := make([]bitset.Set, 3)
	for i := range parts {
		parts[i] = &model{fields: m.fields}
	}
	add := func(part int, d modelDoc, alive bool) {
		p := parts[part]
		live[part] = append(live[part], 0)[:len(p.docs)/64+1]
		if alive {
			live[part].Add(uint32(len(p.docs)))
		}
		p.docs = append(p.docs, d)
	}
	for i, d := range m.docs {
		part := rng.IntN(3)
		add(part, d, true)
		if i%3 == 0 {
			add((part+1)%3, modelDoc{key: d.key, vecs: m.docs[rng.IntN(n)].vecs}, false)
		}
	}
	var sources []MergeSource
	for i, p := range parts {
		r, err := FromBytes(fmt.Sprint("part", i), p.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, MergeSource{R: r, Live: live[i]})
	}
	var buf bytes.Buffer
	if _, _, err := Merge(t.Context(), &buf, sources, MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), m.bytes(t)) {
		t.Error("merged and fresh segment differ")
	}
	r, err := FromBytes("merged", buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, r)
	if x, ok := r.Vectors(1); !ok || !x.HasGraph() {
		t.Error("there is no graph")
	}
	if err := r.DeepVerify(t.Context()); err != nil {
		t.Error(err)
	}
}

// The section lies at a multiple of 8, so that its arrays are read in place.
func TestVectorsAreAligned(t *testing.T) {
	r, err := FromBytes("good", randomModel(rand.New(rand.NewPCG(33, 1)), 200).bytes(t))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range r.sections {
		if s := &r.sections[i]; s.tag == tagVectors || s.tag == tagSparse {
			n++
			if s.off%8 != 0 || len(s.data)%8 != 0 {
				t.Errorf("%s is at %d, %d bytes", s.name(), s.off, len(s.data))
			}
		}
	}
	if n < 5 {
		t.Errorf("%d sections of vectors", n)
	}
}

// A merge that cannot write a record says which segment it came from.
func TestMergeOfADamagedRecord(t *testing.T) {
	f := modelField{meta: FieldMeta{ID: 1, Name: "p"}, kind: 'p', decl: "sparse_vector [indexed]"}
	m := &model{fields: []modelField{f}}
	for i := range 3 {
		m.docs = append(m.docs, modelDoc{key: fmt.Sprint(i), vecs: map[int][][]byte{1: {schema.AppendSparse(nil, uint32(i), 1)}}})
	}
	b := m.bytes(t)
	s := inSection(t, b, tagSparse, 1)
	s[0] ^= 0xf0 // the length of the first record
	reseal(b)
	r, err := FromBytes("damaged", b)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = Merge(t.Context(), io.Discard, []MergeSource{{R: r}}, MergeOptions{})
	ce, ok := errors.AsType[*CorruptError](err)
	if !ok || ce.File != "damaged" || ce.Section != "sparse(1)" {
		t.Errorf("Merge = %v", err)
	}
}
