package partition

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

// undoTime is how long the masters have to delete an index again that was not created everywhere.
const undoTime = 10 * time.Second

// everyMaster says how the replies of a call to all masters become one.
var everyMaster = map[string]func(ix *Index, outs []outcome) ([]byte, error){
	summapb.IndexService_Commit_FullMethodName: merging(func(sum, m *summapb.CommitResponse) {
		sum.Success, sum.NumDocs = sum.Success && m.Success, add32(sum.NumDocs, m.NumDocs)
	}),
	summapb.IndexService_ForceMerge_FullMethodName: merging(func(sum, m *summapb.ForceMergeResponse) {
		sum.Success, sum.NumSegments = sum.Success && m.Success, add32(sum.NumSegments, m.NumSegments)
	}),
	summapb.IndexService_Reorder_FullMethodName: merging(func(sum, m *summapb.ReorderResponse) {
		sum.Success, sum.NumSegments = sum.Success && m.Success, add32(sum.NumSegments, m.NumSegments)
	}),
	summapb.IndexService_DeleteIndex_FullMethodName: merging(func(sum, m *summapb.DeleteIndexResponse) {
		sum.Success = sum.Success && m.Success
	}),
	summapb.IndexService_RetrainVectorIndex_FullMethodName: merging(func(sum, m *summapb.RetrainVectorIndexResponse) {
		sum.Success = sum.Success && m.Success
	}),
	summapb.IndexService_AlterVectorIndex_FullMethodName: merging(func(sum, m *summapb.AlterVectorIndexResponse) {
		sum.PublicationGeneration = max(sum.PublicationGeneration, m.PublicationGeneration)
	}),
}

// merging adds each later reply to the first.
func merging[M any, P interface {
	*M
	proto.Message
}](add func(sum, m P)) func(*Index, []outcome) ([]byte, error) {
	return func(ix *Index, outs []outcome) ([]byte, error) {
		var sum P
		for _, o := range outs {
			m := P(new(M))
			if err := decode(o.reply, m); err != nil {
				return nil, ix.Fault(o.part, err)
			}
			if sum == nil {
				sum = m
				continue
			}
			add(sum, m)
		}
		return encode(sum)
	}
}

// ToMasters sends one request to all masters at once and merges the replies (section Writes): Commit, ForceMerge, Reorder, DeleteIndex,
// RetrainVectorIndex and AlterVectorIndex. success is theirs together, counts are summed, the generation is the highest, the state the
// first. It is not atomic: when one fails, the others have done what they were asked. After DeleteIndex, also one that failed,
// Primaries.Forget is to be called.
func ToMasters(ctx context.Context, ix *Index, c Caller, method string, req []byte) ([]byte, error) {
	merge := everyMaster[method]
	if merge == nil {
		return nil, status.Errorf(codes.Unimplemented, "%s does not go to every master", method)
	}
	if err := ix.Whole(); err != nil {
		return nil, err
	}
	outs := together(ctx, c, ix.present(), method, func(int) []byte { return req })
	if err := ix.failed(outs); err != nil {
		return nil, err
	}
	return merge(ix, outs)
}

// CreateIndex asks the masters one after another (section Routing). When one fails, the index is deleted again from those that this call
// created it on, and the error names the shards where that failed (B2). That goes on for some seconds after ctx has ended.
func CreateIndex(ctx context.Context, ix *Index, c Caller, req []byte) ([]byte, error) {
	if err := ix.Whole(); err != nil {
		return nil, err
	}
	sum := &summapb.CreateIndexResponse{Success: true}
	var created []int
	for part := range ix.Shards {
		reply, err := c.Call(ctx, part, summapb.IndexService_CreateIndex_FullMethodName, req)
		m := &summapb.CreateIndexResponse{}
		if err == nil {
			if err = decode(reply, m); err != nil {
				created = append(created, part) // it said yes, if not how
			}
		}
		if err != nil {
			return nil, ix.undo(ctx, c, created, ix.Fault(part, err))
		}
		if m.Success {
			created = append(created, part)
		}
		sum.Success = sum.Success && m.Success
	}
	return encode(sum)
}

// undo deletes the index from the masters that have it by the call that failed, and returns its error.
func (ix *Index) undo(ctx context.Context, c Caller, created []int, failure error) error {
	if len(created) == 0 {
		return failure
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	req := appendBytes(nil, 1, []byte(ix.Name))
	var kept []string
	outs := together(own, c, created, summapb.IndexService_DeleteIndex_FullMethodName, func(int) []byte { return req })
	for _, o := range outs {
		m := &summapb.DeleteIndexResponse{}
		if o.err != nil || decode(o.reply, m) != nil || !m.Success {
			kept = append(kept, "'"+ix.Shards[o.part]+"'")
		}
	}
	if len(kept) == 0 {
		return failure
	}
	st := statusOf(failure).Proto()
	st.Message = fmt.Sprintf("%s; created on shard(s) %s and could not be deleted there again", st.Message, strings.Join(kept, ", "))
	return status.ErrorProto(st)
}
