package partition_test

import (
	"context"
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

// nodes is a transport to masters that take whatever they get.
type nodes struct{}

func (nodes) Call(_ context.Context, _ int, method string, req []byte) ([]byte, error) {
	if method == summapb.SearchService_GetIndexInfo_FullMethodName {
		return proto.Marshal(&summapb.GetIndexInfoResponse{Schema: "index _ {\n    field id: text<raw> [stored, primary]\n}"})
	}
	m := &summapb.BatchIndexDocumentsRequest{}
	if err := proto.Unmarshal(req, m); err != nil {
		return nil, err
	}
	return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(len(m.Documents))})
}

func Example() {
	ix := &partition.Index{
		Name: "documents", Shards: []string{"2", "3", "4"},
		Locate: func(key []byte) int {
			h := fnv.New64a()
			_, _ = h.Write(key)
			return int(h.Sum64() % 3)
		},
	}
	req, err := proto.Marshal(&summapb.BatchIndexDocumentsRequest{IndexName: "documents", Documents: []*summapb.NamedDocument{
		textDocument("id", "a"), textDocument("title", "no key"), textDocument("id", "b"),
	}})
	if err != nil {
		panic(err)
	}
	var primaries partition.Primaries // kept as long as the broker
	reply, err := partition.BatchIndexDocuments(context.Background(), ix, nodes{}, &primaries, req)
	if err != nil {
		panic(err)
	}
	m := &summapb.BatchIndexDocumentsResponse{}
	if err := proto.Unmarshal(reply, m); err != nil {
		panic(err)
	}
	fmt.Println(m.IndexedCount, "indexed, document", m.Errors[0].Index, "refused:", m.Errors[0].Error)
	// Output: 2 indexed, document 1 refused: document has no 'id' primary key value; a partitioned index cannot route it
}
