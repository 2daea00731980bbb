package summaquery_test

import (
	"fmt"
	"strings"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// wide is an index with more documents than any window: number i has the vector (i, −i), the sparse vector {1: i}, and a word.
func wide(t *testing.T, n int) *summaquery.Index {
	s := newStore(t, `index s { field id: text<raw> [primary, stored] field v: dense_vector<2> [indexed<flat>] field sp: sparse_vector [indexed<format: maxscore>] field c: text }`)
	var ops []shard.Op
	for i := range n {
		x := float32(i)
		ops = append(ops, s.put(fmt.Sprintf("%06d", i), []*summapb.FieldEntry{
			{Name: "id", Value: oracletest.Text(fmt.Sprintf("%06d", i))},
			{Name: "v", Value: &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: []float32{x, -x}}}}},
			{Name: "sp", Value: &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: &summapb.SparseVector{Indices: []uint32{1}, Values: []float32{1 + x}}}}},
			{Name: "c", Value: oracletest.Text("c" + strings.Repeat(" more", i%7))},
		}))
		if len(ops) == 1000 || i == n-1 {
			s.apply(ops...)
			ops = ops[:0]
		}
	}
	s.flush()
	ix, _ := s.index()
	return ix
}

// The last window that the limits allow has its hits, whatever finds them; and each of many candidates has all its scores.
func TestTheLastWindowHasItsHits(t *testing.T) {
	const n, most = 51_000, 50_000
	ix := wide(t, n)
	for name, q := range map[string]string{
		"a dense vector":          `dense_vector {field: "v" vector: [1, 0]}`,
		"a sparse vector":         `sparse_vector {field: "sp" indices: 1 values: 1}`,
		"a vector in a Boolean":   `boolean {should {dense_vector {field: "v" vector: [1, 0]}} should {boost {query {dense_vector {field: "v" vector: [1, 0]}} boost: 2}}}`,
		"the vectors of a fusion": `fusion {queries {query {dense_vector {field: "v" vector: [1, 0]}}} queries {query {sparse_vector {field: "sp" indices: 1 values: 1}}}}`,
	} {
		_, got := ask(t, ix, `limit: 10000 offset: 40000 query {`+q+`}`)
		if len(got.Hits) != 10_000 {
			t.Errorf("%s: %d hits", name, len(got.Hits))
			continue
		}
		for k, h := range got.Hits {
			if want := uint32(n - 1 - 40_000 - k); h.Address.DocId != want {
				t.Errorf("%s: hit %d is document %d, want %d", name, k, h.Address.DocId, want)
				break
			}
		}
		if total := got.TotalHits; total != most && total != 2*most && total != n {
			t.Errorf("%s: %d in all", name, total)
		}
	}
	// The two branches nominate 51,000 documents together; 0/c is no number where c has no score.
	_, got := ask(t, ix, `limit: 10000 offset: 15000 query {fusion {candidate_depth: 50000
		queries {name: "up" scope: SCORE_SCOPE_DOCUMENT query {dense_vector {field: "v" vector: [1, 0]}}}
		queries {name: "down" scope: SCORE_SCOPE_DOCUMENT query {dense_vector {field: "v" vector: [0, 1]}}}
		queries {name: "c" scope: SCORE_SCOPE_DOCUMENT score_only: true query {term {field: "c" term: "c"}}}}}
		l1 {formula: "up + 0/c"}`)
	if len(got.Hits) != 10_000 || got.Hits[0].Address.DocId != n-1-15_000 {
		t.Errorf("%d hits, the first is document %v", len(got.Hits), got.Hits[0].Address)
	}

	// Flags may ask for more.
	lim := summa.Limits{MaxSearchWindow: n, MaxCandidateLimit: 2 * n}
	for name, q := range map[string]string{"a dense vector": `dense_vector {field: "v" vector: [1, 0]}`, "a term": `term {field: "c" term: "c"}`, "all": `all {}`} {
		req := request(t, `limit: 1000 offset: 50000 query {`+q+`}`)
		w, err := lim.CheckSearch(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := summaquery.Search(t.Context(), ix, req, w, lim); err != nil || len(got.Hits) != 1000 {
			t.Errorf("%s in a wider window: %d hits, %v", name, len(got.GetHits()), err)
		}
	}
}
