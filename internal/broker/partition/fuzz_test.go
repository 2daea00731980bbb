package partition_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

func FuzzPrimaryField(f *testing.F) {
	f.Add(withKey)
	f.Add(`field "a\"b": text<lex(by: x)> [indexed<common_grams: ["p"]>, primary] # x`)
	f.Fuzz(func(t *testing.T, schema string) {
		name := partition.PrimaryField(schema)
		if name != "" && !strings.Contains(schema, "primary") {
			t.Errorf("%q of %q", name, schema)
		}
	})
}

// FuzzWrites splits any bytes. What decodes as a message is split as its documents say.
func FuzzWrites(f *testing.F) {
	f.Add(marshal(f, &summapb.BatchIndexDocumentsRequest{IndexName: "i", Documents: []*summapb.NamedDocument{
		textDocument("id", "a"),
		{},
		textDocument("x", "y", "id", "b"),
		{Fields: []*summapb.FieldEntry{{Name: "id", Value: &summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: 1.5}}}}},
	}}))
	f.Fuzz(func(t *testing.T, req []byte) {
		req = slices.Clone(req)
		before := slices.Clone(req)
		ix := threeShards(locate(1, 2, 1))
		p := knowing(t, "id", "i")
		var mu sync.Mutex
		got := map[string]int{} // documents as the nodes got them
		node := callerFunc(func(_ context.Context, _ int, _ string, b []byte) ([]byte, error) {
			m := &summapb.BatchIndexDocumentsRequest{}
			if err := proto.Unmarshal(b, m); err != nil {
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range m.Documents {
				got[string(marshal(t, d))]++
			}
			return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(len(m.Documents))})
		})
		reply, err := partition.BatchIndexDocuments(t.Context(), ix, node, p, req)
		_, _ = partition.UpsertDocuments(t.Context(), ix, node, p, req)
		_, _ = partition.DeleteDocuments(t.Context(), ix, node, req)
		stream := partition.Stream{Send: func(ctx context.Context, _ string, batch []byte) ([]byte, error) { return node(ctx, 0, "", batch) }}
		_, _ = feed(t.Context(), &stream, [][]byte{req, req})
		if !bytes.Equal(req, before) {
			t.Fatal("the request was changed")
		}
		m := &summapb.BatchIndexDocumentsRequest{}
		if proto.Unmarshal(req, m) != nil {
			return
		}
		if err != nil {
			t.Fatalf("a batch that can be decoded: %v", err)
		}
		r := unmarshal[summapb.BatchIndexDocumentsResponse](t, reply)
		if int(r.IndexedCount+r.ErrorCount) != len(m.Documents) || int(r.ErrorCount) != len(r.Errors) {
			t.Fatalf("%d documents: %v", len(m.Documents), r)
		}
	})
}

// FuzzSearches reads any bytes as a search, and runs those that are one.
func FuzzSearches(f *testing.F) {
	f.Add(marshal(f, &summapb.SearchRequest{IndexName: "i", Query: &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: "f", Term: "t"}}}, Limit: 3, Offset: 2}))
	f.Add(marshal(f, &summapb.SearchRequest{Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{Method: 2, Filters: []*summapb.Query{all()}}}}}))
	f.Fuzz(func(t *testing.T, req []byte) { checkRounds(t, req) })
}

// FuzzReplies gives any bytes as the reply of one of two partitions to every call.
func FuzzReplies(f *testing.F) {
	f.Add(hitReply(f, "1/1", "2/2"))
	f.Add(marshal(f, &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 1, Fields: []*summapb.TextFieldStats{{Field: "f", CorpusSize: 1, AvgLen: 2, ChunkLengths: []uint32{1}, ChunkCounts: []uint64{2}}}}}))
	f.Add(marshal(f, &summapb.BatchIndexDocumentsResponse{IndexedCount: 1, Errors: []*summapb.DocumentError{{Index: 1, Error: "e"}}}))
	f.Add(marshal(f, &summapb.GetIndexInfoResponse{Schema: withKey, VectorStats: []*summapb.VectorFieldStats{{FieldName: "v", TotalVectors: 1}}}))
	f.Fuzz(func(t *testing.T, reply []byte) {
		ix := shards(2)
		ix.Locate = func(key []byte) int { return len(key) % 2 }
		node := replies(reply, hitReply(t, "3/1", "1/7"))
		p := knowing(t, "id", "i")
		for method, req := range map[string]proto.Message{
			summapb.SearchService_Search_FullMethodName: &summapb.SearchRequest{Query: all(), Limit: 5},
			summapb.IndexService_BatchIndexDocuments_FullMethodName: &summapb.BatchIndexDocumentsRequest{Documents: []*summapb.NamedDocument{
				textDocument("id", "a"), textDocument("id", "bb"), textDocument("id", "cc"),
			}},
			summapb.IndexService_DeleteDocuments_FullMethodName: &summapb.DeleteDocumentsRequest{PrimaryKeys: []string{"a", "bb", "cc"}},
			summapb.SearchService_GetTextStats_FullMethodName:   &summapb.GetTextStatsRequest{},
			summapb.SearchService_GetIndexInfo_FullMethodName:   &summapb.GetIndexInfoRequest{},
			summapb.SearchService_GetDocument_FullMethodName:    &summapb.GetDocumentRequest{},
			summapb.IndexService_Commit_FullMethodName:          &summapb.CommitRequest{},
			summapb.IndexService_CreateIndex_FullMethodName:     &summapb.CreateIndexRequest{},
		} {
			got, err := play(t.Context(), ix, node, p, partition.Reads{}, method, marshal(t, req))
			if err != nil || method != summapb.SearchService_Search_FullMethodName {
				continue
			}
			// Hits are passed on whatever they hold; what is made of the rest is a message where the reply was one.
			if proto.Unmarshal(reply, &summapb.SearchResponse{}) == nil {
				unmarshal[summapb.SearchResponse](t, got)
			}
		}
	})
}
