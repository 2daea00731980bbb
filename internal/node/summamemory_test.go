package node

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// GetIndexInfo tells what segments take and what of that are vectors, and how many terms the sparse ones have however they are kept.
func TestSummaIndexInfoTellsMemory(t *testing.T) {
	s := newSummaNode(t, Config{})
	s.create("m", `index m {
		field id: text<raw> [primary, stored]
		field d: dense_vector<32> [indexed<flat>]
		field b: binary_dense_vector<64> [indexed<flat>]
		field wide: sparse_vector [indexed<format: maxscore>]
		field narrow: sparse_vector<u16> [indexed<format: maxscore>]
		field few: sparse_vector [indexed<format: maxscore, quantization: uint4>]
	}`)
	info := func() *summapb.GetIndexInfoResponse {
		t.Helper()
		r, err := s.search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if m := info().MemoryStats; m.TotalBytes != 0 || m.SegmentReader.DenseIndexBytes != 0 || m.SegmentReader.SparseIndexBytes != 0 || m.IndexingBuffer != nil {
		t.Errorf("of an empty index: %v", m)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const docs, terms = 200, 5
	var list []*summapb.NamedDocument
	for i := range docs {
		dense := make([]float32, 32)
		for k := range dense {
			dense[k] = rng.Float32()
		}
		sparse := &summapb.SparseVector{}
		for k := range terms {
			sparse.Indices, sparse.Values = append(sparse.Indices, uint32(100*k+i%7)), append(sparse.Values, 1+rng.Float32())
		}
		d := &summapb.NamedDocument{Fields: []*summapb.FieldEntry{
			{Name: "id", Value: oracletest.Text(string(rune('a'+i%26)) + string(rune('a'+i/26)))},
			{Name: "d", Value: &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: dense}}}},
			{Name: "b", Value: &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: make([]byte, 8)}}},
		}}
		for _, f := range []string{"wide", "narrow", "few"} {
			d.Fields = append(d.Fields, &summapb.FieldEntry{Name: f, Value: &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: sparse}}})
		}
		list = append(list, d)
	}
	if r := s.batch("m", list...); r.IndexedCount != docs {
		t.Fatal(r)
	}
	s.commit("m")
	for _, what := range []string{"committed", "merged"} {
		r := info()
		m := r.MemoryStats.SegmentReader
		if r.MemoryStats.TotalBytes != m.TotalBytes || m.TotalBytes < m.DenseIndexBytes+m.SparseIndexBytes || r.MemoryStats.IndexingBuffer != nil {
			t.Errorf("%s: %v", what, r.MemoryStats)
		}
		if least := uint64(docs * (32*4 + 8)); m.DenseIndexBytes < least || m.DenseIndexBytes > 3*least {
			t.Errorf("%s: %d bytes of dense vectors, at least %d", what, m.DenseIndexBytes, least)
		}
		if least := uint64(docs * terms * 3 * 2); m.SparseIndexBytes < least {
			t.Errorf("%s: %d bytes of sparse vectors, at least %d", what, m.SparseIndexBytes, least)
		}
		for _, v := range r.VectorStats {
			if v.VectorType == "sparse" && v.AvgTermsPerVector != terms {
				t.Errorf("%s: field %s has %v terms a vector, want %d", what, v.FieldName, v.AvgTermsPerVector, terms)
			}
		}
		if _, err := s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "m"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatSearchesHoldIsBoundedForTheNode has other searches hold more and more: the last at which one finds room, and one byte past that. Small
// ones always do, and all of it is given back however a search ends.
func TestWhatSearchesHoldIsBoundedForTheNode(t *testing.T) {
	s := newSummaNode(t, Config{Summa: summanode.Limits{Query: summa.Limits{MaxSearchHeldBytes: 16 << 20}}})
	s.create("p", `index p { field id: text<raw> [primary, stored] field c: text<simple> [indexed<chunked>] field t: text<simple> [indexed] }`)
	var docs []*summapb.NamedDocument
	for i := range 300 {
		d := summaText("id", fmt.Sprint(i), "t", "word")
		for range 100 {
			d.Fields = append(d.Fields, &summapb.FieldEntry{Name: "c", Value: oracletest.Text("passage")})
		}
		docs = append(docs, d)
	}
	s.batch("p", docs...)
	s.commit("p")
	term := func(field, word string) *summapb.Query {
		return &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: field, Term: word}}}
	}
	all := &s.node.summaSearches.held
	ask := func(others int64, q *summapb.Query) error {
		all.Store(others)
		_, err := s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "p", Limit: 300, Query: q})
		if n := all.Swap(0); n != others {
			t.Fatalf("%d bytes are held behind a search, %d before", n, others)
		}
		return err
	}
	most := s.node.summaSearches.most
	if most != 32<<20 {
		t.Errorf("all searches may hold %d bytes", most)
	}
	branch := &summapb.WeightedQuery{Query: term("c", "passage"), Weight: 1}
	heavy := &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{Queries: []*summapb.WeightedQuery{branch, branch}}}}
	peak := int64(sort.Search(int(most), func(free int) bool { return ask(most-int64(free), heavy) == nil }))
	if peak <= leastHeld || peak > 16<<20 {
		t.Errorf("the search holds %d bytes", peak)
	}
	if err := ask(most-peak, heavy); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	wantStatus(t, ask(most-peak+1, heavy), codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	if err := ask(2*most, term("t", "word")); err != nil {
		t.Errorf("a small one: %v", err)
	}
}
