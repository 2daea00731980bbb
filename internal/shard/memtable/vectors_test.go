package memtable

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector"
	"github.com/weft-search/weft/internal/vector/sparse"
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
	add(4, r.IntN(3), dense(3))
	add(5, r.IntN(2), func() []byte { return []byte{byte(r.Uint32()), byte(r.Uint32())} })
	add(6, r.IntN(3), func() []byte {
		var b []byte
		at := 0
		for range 1 + r.IntN(5) {
			at += 1 + r.IntN(50)
			b = schema.AppendSparse(b, uint32(at), r.Float32()+0.5)
		}
		return b
	})
	add(7, r.IntN(2), dense(2))
	return out
}

// encode returns the record of a value.
func encode(t testing.TB, field int, value []byte) []byte {
	t.Helper()
	f := &testSchema.Fields[field]
	if f.Type == schema.SparseVector {
		p, err := sparse.ParamsOf(f)
		if err != nil {
			t.Fatal(err)
		}
		return sparse.Encode(p, nil, value)
	}
	p, err := vector.ParamsOf(f)
	if err != nil {
		t.Fatal(err)
	}
	return vector.Encode(p, nil, value)
}

// vectorView is what both kinds of indexes answer.
type vectorView interface {
	Len() int
	Range(doc uint32) (from, to int)
	Doc(ord int) uint32
	Record(ord int) []byte
}

func checkVectors(t testing.TB, v *View, docs []*schema.Document) {
	t.Helper()
	if v.Identity() != 0 || v.Vectors(7) != nil || v.Vectors(0) != nil || v.SparseVectors(4) != nil || v.Vectors(6) != nil {
		t.Fatal("vectors where there are none")
	}
	for _, field := range []int{4, 5, 6} {
		var x vectorView
		if field == 6 {
			if y := v.SparseVectors(field); y != nil {
				x = y
			}
		} else if y := v.Vectors(field); y != nil {
			x = y
		}
		n := 0
		for d, doc := range docs {
			want := values(doc, field).Bytes
			n += len(want)
			if len(want) == 0 {
				if x != nil {
					if from, to := x.Range(uint32(d)); from != to {
						t.Fatalf("document %d field %d: vectors %d to %d", d, field, from, to)
					}
				}
				continue
			}
			if x == nil {
				t.Fatalf("field %d has no vectors", field)
			}
			from, to := x.Range(uint32(d))
			if to-from != len(want) {
				t.Fatalf("document %d field %d: %d vectors, want %d", d, field, to-from, len(want))
			}
			for i, w := range want {
				if got := x.Record(from + i); x.Doc(from+i) != uint32(d) || !bytes.Equal(got, encode(t, field, w)) {
					t.Fatalf("document %d field %d vector %d: % x of document %d", d, field, i, got, x.Doc(from+i))
				}
			}
		}
		if x != nil && x.Len() != n || x == nil && n > 0 {
			t.Fatalf("field %d: another number of vectors than %d", field, n)
		}
	}
}
