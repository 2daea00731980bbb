package summaquery_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// TestGraphsFindTheNearest searches segments that have graphs of vectors, whole and quantized, alone and within larger queries: nearly all
// of the nearest are found, each with the score that the oracle gives it, and dead documents never.
func TestGraphsFindTheNearest(t *testing.T) {
	const docs, dim, limit, queries = 4300, 16, 20, 18
	s := newStore(t, `index g {
		field id: text<raw> [primary, stored]
		field n: u64 [indexed, fast]
		field f32: dense_vector<16> [indexed, stored]
		field f16: dense_vector<16, f16> [indexed<ef_construction: 64>, stored]
		field u8: dense_vector<16, uint8> [indexed<scann>, stored]
		field bits: binary_dense_vector<64> [indexed, stored]
	}`)
	// How much a graph finds is a statistic: about one draw in fifty has inner products whose best lie where few searches come by.
	seed := uint64(1)
	if os.Getenv("WEFT_SEED") != "" {
		seed = oracletest.Seed(t)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	// A few dozen clusters, as vectors of anything real have.
	centres := make([][]float32, 40)
	for i := range centres {
		centres[i] = normals(rng, dim, 1)
	}
	near := func() []float32 {
		v := normals(rng, dim, 0.3)
		for i, x := range centres[rng.IntN(len(centres))] {
			v[i] += x
		}
		return v
	}
	bits := func() []byte {
		b := make([]byte, 8)
		for i, x := range near()[:8] {
			b[i] = byte(int(x*40) + 128)
		}
		return b
	}
	var ops []shard.Op
	for i := range docs {
		v := &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: near()}}}
		key := fmt.Sprintf("k%05d", i)
		fields := []*summapb.FieldEntry{
			{Name: "id", Value: oracletest.Text(key)},
			{Name: "n", Value: &summapb.FieldValue{Value: &summapb.FieldValue_U64{U64: uint64(i % 10)}}},
			{Name: "bits", Value: &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: bits()}}},
		}
		for _, f := range []string{"f32", "f16", "u8"} {
			fields = append(fields, &summapb.FieldEntry{Name: f, Value: v})
		}
		ops = append(ops, s.put(key, fields))
	}
	s.apply(ops...)
	s.flush()
	for i := range 150 { // and still enough live ones for a graph
		s.apply(s.drop(fmt.Sprintf("k%05d", 20*i)))
	}
	ix, o := s.index()
	for id, f := range ix.Schema.Fields[2:] {
		if x := ix.Leaves[0].Vectors(2 + id); x == nil || !x.HasGraph() {
			t.Fatalf("field %s has no graph", f.Name)
		}
	}
	for _, field := range []string{"f32", "f16", "u8", "bits"} {
		found, wanted := 0, 0
		for i := range queries {
			q := &summapb.Query{Query: &summapb.Query_DenseVector{DenseVector: &summapb.DenseVectorQuery{Field: field, Vector: near()}}}
			if field == "bits" {
				q = &summapb.Query{Query: &summapb.Query_BinaryDenseVector{BinaryDenseVector: &summapb.BinaryDenseVectorQuery{Field: field, Vector: bits()}}}
			}
			req := &summapb.SearchRequest{IndexName: "g", Limit: limit, Query: q}
			switch i % 3 {
			case 1:
				req.Query = &summapb.Query{Query: &summapb.Query_Boost{Boost: &summapb.BoostQuery{Query: q, Boost: 2}}}
			case 2: // a vector nominates before filters are looked at
				req.CandidateLimit = 2 * limit
				n := uint64(rng.IntN(10))
				req.Query = &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{
					Should:  []*summapb.Query{q},
					MustNot: []*summapb.Query{{Query: &summapb.Query_Range{Range: &summapb.RangeQuery{Field: "n", MinU64: &n, MaxU64: &n}}}},
				}}}
			}
			got, err := search(t.Context(), ix, req)
			if err != nil {
				t.Fatal(err)
			}
			w, err := summa.Limits{}.CheckSearch(req)
			if err != nil {
				t.Fatal(err)
			}
			best, of, wrong := o.Found(req, w, got, func(segment string) int { return slices.Index(ix.Segments, segment) })
			if wrong != "" {
				t.Fatalf("%s, query %d: %s", field, i, wrong)
			}
			found, wanted = found+best, wanted+of
		}
		if recall := float64(found) / float64(wanted); recall < 0.95 {
			t.Errorf("%s: of the nearest %.3f are found", field, recall)
		} else {
			t.Logf("%s: of the nearest %.3f are found", field, recall)
		}
	}
}

func normals(rng *rand.Rand, n int, scale float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64() * scale)
	}
	return out
}
