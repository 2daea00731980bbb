package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

func TestRepliesOfMastersMerge(t *testing.T) {
	built, deferred := summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_BUILT, summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_DEFERRED_FLAT
	for method, c := range map[string]struct{ a, b, want proto.Message }{
		summapb.IndexService_Commit_FullMethodName:             {&summapb.CommitResponse{Success: true, NumDocs: 3}, &summapb.CommitResponse{Success: true, NumDocs: 4}, &summapb.CommitResponse{Success: true, NumDocs: 7}},
		summapb.IndexService_ForceMerge_FullMethodName:         {&summapb.ForceMergeResponse{Success: true, NumSegments: 1}, &summapb.ForceMergeResponse{NumSegments: 1<<32 - 1}, &summapb.ForceMergeResponse{NumSegments: 1<<32 - 1}},
		summapb.IndexService_Reorder_FullMethodName:            {&summapb.ReorderResponse{NumSegments: 1}, &summapb.ReorderResponse{Success: true, NumSegments: 2}, &summapb.ReorderResponse{NumSegments: 3}},
		summapb.IndexService_DeleteIndex_FullMethodName:        {&summapb.DeleteIndexResponse{Success: true}, &summapb.DeleteIndexResponse{Success: true}, &summapb.DeleteIndexResponse{Success: true}},
		summapb.IndexService_RetrainVectorIndex_FullMethodName: {&summapb.RetrainVectorIndexResponse{Success: true}, &summapb.RetrainVectorIndexResponse{}, &summapb.RetrainVectorIndexResponse{}},
		summapb.IndexService_AlterVectorIndex_FullMethodName: {
			&summapb.AlterVectorIndexResponse{PublicationGeneration: 4, State: built}, &summapb.AlterVectorIndexResponse{PublicationGeneration: 9, State: deferred},
			&summapb.AlterVectorIndexResponse{PublicationGeneration: 9, State: built},
		},
	} {
		got, err := partition.ToMasters(t.Context(), shards(2), replies(marshal(t, c.a), marshal(t, c.b)), method, []byte("req"))
		m := c.want.ProtoReflect().New().Interface()
		if err := errors.Join(err, proto.Unmarshal(got, m)); err != nil || !proto.Equal(m, c.want) {
			t.Errorf("%s: %v\n got %v\nwant %v", method, err, m, c.want)
		}
	}
	if _, err := partition.ToMasters(t.Context(), shards(1), nil, summapb.SearchService_Search_FullMethodName, nil); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// masters create and delete as they are told, and write down what they are asked.
type masters struct {
	mu      sync.Mutex
	asked   []string
	create  map[int]error
	refused map[int]bool // CreateIndex answers that it did nothing
	delete  map[int]error
	onFail  func()
}

func (m *masters) Call(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rpc := method[strings.LastIndexByte(method, '/')+1:]
	m.asked = append(m.asked, fmt.Sprintf("%s %d", rpc, part))
	if rpc == "CreateIndex" {
		if err := m.create[part]; err != nil {
			if m.onFail != nil {
				m.onFail()
			}
			return nil, err
		}
		return proto.Marshal(&summapb.CreateIndexResponse{Success: !m.refused[part]})
	}
	if _, ok := ctx.Deadline(); !ok || ctx.Err() != nil {
		return nil, status.Error(codes.Internal, "an undo ends by itself, and not with the call")
	}
	d := &summapb.DeleteIndexRequest{}
	if err := proto.Unmarshal(req, d); err != nil || d.IndexName != "i" {
		return nil, status.Error(codes.Internal, "not the index")
	}
	if err := m.delete[part]; err != nil {
		return nil, err
	}
	return proto.Marshal(&summapb.DeleteIndexResponse{Success: true})
}

// TestAPartlyCreatedIndexIsDeletedAgain is B2.
func TestAPartlyCreatedIndexIsDeletedAgain(t *testing.T) {
	away := status.Error(codes.Unavailable, "away")
	exists := status.Error(codes.AlreadyExists, "Index 'i' already exists")
	for name, c := range map[string]struct {
		m     *masters
		code  codes.Code
		text  string
		asked []string
	}{
		"everywhere": {&masters{}, codes.OK, "", []string{"CreateIndex 0", "CreateIndex 1", "CreateIndex 2"}},
		"the first fails": {
			&masters{create: map[int]error{0: away}}, codes.Unavailable, "index 'i' partition on shard 'a': away", []string{"CreateIndex 0"},
		},
		"the last fails": {
			&masters{create: map[int]error{2: away}}, codes.Unavailable, "index 'i' partition on shard 'c': away",
			[]string{"CreateIndex 0", "CreateIndex 1", "CreateIndex 2", "DeleteIndex 0", "DeleteIndex 1"},
		},
		"what was there stays": {
			&masters{create: map[int]error{1: exists}}, codes.AlreadyExists, "index 'i' partition on shard 'b': Index 'i' already exists",
			[]string{"CreateIndex 0", "CreateIndex 1", "DeleteIndex 0"},
		},
		"what another has not created stays": {
			&masters{create: map[int]error{2: away}, refused: map[int]bool{0: true}}, codes.Unavailable, "index 'i' partition on shard 'c': away",
			[]string{"CreateIndex 0", "CreateIndex 1", "CreateIndex 2", "DeleteIndex 1"},
		},
		"one keeps it": {
			&masters{create: map[int]error{2: away}, delete: map[int]error{1: away}}, codes.Unavailable,
			"index 'i' partition on shard 'c': away; created on shard(s) 'b' and could not be deleted there again",
			[]string{"CreateIndex 0", "CreateIndex 1", "CreateIndex 2", "DeleteIndex 0", "DeleteIndex 1"},
		},
		"all keep it": {
			&masters{create: map[int]error{2: away}, delete: map[int]error{0: away, 1: exists}}, codes.Unavailable,
			"index 'i' partition on shard 'c': away; created on shard(s) 'a', 'b' and could not be deleted there again",
			[]string{"CreateIndex 0", "CreateIndex 1", "CreateIndex 2", "DeleteIndex 0", "DeleteIndex 1"},
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c.m.onFail = cancel // the client goes away meanwhile
		got, err := partition.CreateIndex(ctx, shards(3), c.m, marshal(t, &summapb.CreateIndexRequest{IndexName: "i", Schema: "s"}))
		cancel()
		if st := status.Convert(err); st.Code() != c.code || st.Message() != c.text {
			t.Errorf("%s: %v, want %s %s", name, err, c.code, c.text)
		}
		if err == nil && !unmarshal[summapb.CreateIndexResponse](t, got).Success {
			t.Errorf("%s: no success", name)
		}
		slices.Sort(c.m.asked)
		if !slices.Equal(c.m.asked, c.asked) {
			t.Errorf("%s: asked %v, want %v", name, c.m.asked, c.asked)
		}
	}
}
