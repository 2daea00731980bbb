package partition_test

import (
	"context"
	"fmt"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

// BenchmarkSearchMerge merges the hits of 8 partitions, and BenchmarkWriteSplit splits 1000 documents for 8.
func BenchmarkSearchMerge(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			wire := make([][]byte, 8)
			for i := range wire {
				m := &summapb.SearchResponse{TotalHits: 100, Timings: &summapb.SearchTimings{SearchUs: 3}}
				for k := range n {
					m.Hits = append(m.Hits, &summapb.SearchHit{
						Score:   float32(n-k) + float32(i)/8,
						Address: &summapb.DocAddress{SegmentId: fmt.Sprintf("%032x", i*7+k%3), DocId: uint32(k)},
						Fields:  map[string]*summapb.FieldValueList{"title": {Values: []*summapb.FieldValue{textEntry("t", "some words of a title").Value}}},
					})
				}
				wire[i] = marshal(b, m)
			}
			s, err := partition.ShapeOf(marshal(b, &summapb.SearchRequest{IndexName: "i", Query: all(), Limit: uint32(n)}))
			if err != nil {
				b.Fatal(err)
			}
			ix := shards(8)
			node := callerFunc(func(_ context.Context, part int, _ string, _ []byte) ([]byte, error) { return wire[part], nil })
			b.ReportAllocs()
			for b.Loop() {
				if _, err := partition.Search(b.Context(), ix, node, partition.Reads{}, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteSplit(b *testing.B) {
	m := &summapb.BatchIndexDocumentsRequest{IndexName: "i"}
	for i := range 1000 {
		m.Documents = append(m.Documents, textDocument("id", fmt.Sprint("document-", i), "body", "some words of a body that are not looked at by anybody here"))
	}
	req := marshal(b, m)
	ix := shards(8)
	ix.Locate = locate(1, 1, 1, 1, 1, 1, 1, 1)
	p := knowing(b, "id", "i")
	node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) { return nil, nil })
	b.SetBytes(int64(len(req)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := partition.BatchIndexDocuments(b.Context(), ix, node, p, req); err != nil {
			b.Fatal(err)
		}
	}
}
