package partition_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

// turn is how one partition answers a call.
type turn struct {
	after time.Duration
	code  codes.Code
	text  string
}

// wait plays a turn, or ends with the context.
func (u turn) wait(ctx context.Context) error {
	timer := time.NewTimer(u.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if u.code != codes.OK {
		return status.Error(u.code, u.text)
	}
	return nil
}

const forever = time.Hour

// TestReadsWithPartitionsThatFailOrAreLate runs searches, without and with statistics, in fake time.
func TestReadsWithPartitionsThatFailOrAreLate(t *testing.T) {
	partial := partition.Reads{Partial: true}
	budget := partition.Reads{Partial: true, Straggler: 300 * time.Millisecond}
	good := turn{after: time.Millisecond}
	for name, c := range map[string]struct {
		reads    partition.Reads
		missing  []int
		stats    []turn // nil: the query has no leaves
		search   []turn
		deadline time.Duration
		left     []int
		searched []int // who is asked for hits, where that is not everybody
		code     codes.Code
		text     string
		took     time.Duration
	}{
		"all good": {search: []turn{good, good, good}, took: time.Millisecond},
		"the first failure in order, once those before it are known": {
			search: []turn{{50 * time.Millisecond, codes.OK, ""}, {time.Millisecond, codes.Internal, "x"}, {forever, codes.OK, ""}},
			code:   codes.Internal, text: "index 'i' partition on shard 'b': x", took: 50 * time.Millisecond,
		},
		"an earlier one fails later": {
			search: []turn{{50 * time.Millisecond, codes.Aborted, "y"}, {time.Millisecond, codes.Internal, "x"}, good},
			code:   codes.Aborted, text: "index 'i' partition on shard 'a': y", took: 50 * time.Millisecond,
		},
		"strict, a hole":                     {missing: []int{1}, search: []turn{good, good, good}, code: codes.Unavailable, text: "index 'i' is partitioned over 3 shards but partition(s) [b] carry no healthy copy"},
		"partial, a hole":                    {reads: partial, missing: []int{1}, search: []turn{good, {}, good}, left: []int{1}, searched: []int{0, 2}, took: time.Millisecond},
		"partial, nobody can be asked":       {reads: partial, missing: []int{0, 1, 2}, search: []turn{good, good, good}, code: codes.Unavailable, text: "index 'i': none of its 3 partitions has a routable replica"},
		"partial, one unavailable":           {reads: partial, search: []turn{{2 * time.Millisecond, codes.Unavailable, "away"}, good, good}, left: []int{0}, took: 2 * time.Millisecond},
		"partial, a hole and an unavailable": {reads: partial, missing: []int{2}, search: []turn{{0, codes.Unavailable, "away"}, good, {}}, left: []int{0, 2}, searched: []int{0, 1}, took: time.Millisecond},
		"partial, all unavailable": {
			reads: partial, search: []turn{{3 * time.Millisecond, codes.Unavailable, "1"}, {2 * time.Millisecond, codes.Unavailable, "2"}, {time.Millisecond, codes.Unavailable, "3"}},
			code: codes.Unavailable, text: "index 'i' partition on shard 'c': 3", took: 3 * time.Millisecond,
		},
		"partial, another failure": {reads: partial, search: []turn{good, good, {0, codes.ResourceExhausted, "full"}}, code: codes.ResourceExhausted, text: "index 'i' partition on shard 'c': full", took: time.Millisecond},
		"B10: a partition's own deadline": {
			reads: partial, search: []turn{good, {20 * time.Millisecond, codes.DeadlineExceeded, "late"}, good}, deadline: time.Second,
			left: []int{1}, took: 20 * time.Millisecond,
		},
		"B10: the client's deadline": {
			reads: partial, search: []turn{good, {forever, codes.OK, ""}, good}, deadline: time.Second,
			code: codes.DeadlineExceeded, text: "index 'i' partition on shard 'b': context deadline exceeded", took: time.Second,
		},
		"strict, a partition's own deadline": {
			search: []turn{good, {20 * time.Millisecond, codes.DeadlineExceeded, "late"}, good}, deadline: time.Second,
			code: codes.DeadlineExceeded, text: "index 'i' partition on shard 'b': late", took: 20 * time.Millisecond,
		},
		"a straggler": {reads: budget, search: []turn{{100 * time.Millisecond, codes.OK, ""}, {400*time.Millisecond + 1, codes.OK, ""}, {399 * time.Millisecond, codes.OK, ""}}, left: []int{1}, took: 400 * time.Millisecond},
		"the budget begins with a success": {
			reads: budget, search: []turn{{time.Millisecond, codes.Unavailable, "away"}, {500 * time.Millisecond, codes.OK, ""}, {700 * time.Millisecond, codes.OK, ""}},
			left: []int{0}, took: 700 * time.Millisecond,
		},
		"a failure within the budget": {
			reads: budget, search: []turn{good, {100 * time.Millisecond, codes.Internal, "x"}, {forever, codes.OK, ""}},
			code: codes.Internal, text: "index 'i' partition on shard 'b': x", took: 100 * time.Millisecond,
		},
		"no budget without partial reads": {
			reads: partition.Reads{Straggler: time.Millisecond}, search: []turn{good, {time.Second, codes.OK, ""}, good}, took: time.Second,
		},
		"lost in the first round": {
			reads: partial, stats: []turn{good, {0, codes.Unavailable, "away"}, good}, search: []turn{good, {}, good},
			left: []int{1}, searched: []int{0, 2}, took: 2 * time.Millisecond,
		},
		"a straggler in the first round": {
			reads: budget, stats: []turn{good, good, {forever, codes.OK, ""}}, search: []turn{good, good, {}},
			left: []int{2}, searched: []int{0, 1}, took: 302 * time.Millisecond,
		},
		"lost one after the other": {
			reads: partial, stats: []turn{{0, codes.Unavailable, "1"}, good, good}, search: []turn{{}, good, {0, codes.Unavailable, "2"}},
			left: []int{0, 2}, searched: []int{1, 2}, took: 2 * time.Millisecond,
		},
		"one deadline for both rounds": {
			stats: []turn{{700 * time.Millisecond, codes.OK, ""}, good, good}, search: []turn{good, good, {forever, codes.OK, ""}}, deadline: time.Second,
			code: codes.DeadlineExceeded, text: "index 'i' partition on shard 'c': context deadline exceeded", took: time.Second,
		},
		"strict, lost in the first round": {
			stats: []turn{good, {0, codes.Unavailable, "away"}, good}, search: []turn{},
			code: codes.Unavailable, text: "index 'i' partition on shard 'b': away", took: time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				ix := shards(3)
				ix.Missing = c.missing
				searched := make(chan int, 3)
				node := callerFunc(func(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
					deadline, ok := ctx.Deadline()
					if ok != (c.deadline > 0) {
						t.Errorf("deadline %v, %v", deadline, ok)
					}
					if method == summapb.SearchService_GetTextStats_FullMethodName {
						if err := c.stats[part].wait(ctx); err != nil {
							return nil, err
						}
						return proto.Marshal(&summapb.GetTextStatsResponse{Stats: &summapb.TextStats{}})
					}
					searched <- part
					// Statistics of nothing are statistics: without them a node would take its own.
					if m := unmarshal[summapb.SearchRequest](t, req); (m.TextStats != nil) != (c.stats != nil) {
						t.Errorf("partition %d is given %v", part, m.TextStats)
					}
					if err := c.search[part].wait(ctx); err != nil {
						return nil, err
					}
					return proto.Marshal(&summapb.SearchResponse{TotalHits: 1})
				})
				req := &summapb.SearchRequest{IndexName: "i", Query: all()}
				if c.stats != nil {
					req.Query = &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: "f", Term: "t"}}}
				}
				s, err := partition.ShapeOf(marshal(t, req))
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				got, err := partition.Search(ctx, ix, node, c.reads, s)
				if took := time.Since(begin); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if st := status.Convert(err); st.Code() != c.code || st.Message() != c.text {
					t.Errorf("%v, want %s %s", err, c.code, c.text)
				}
				if err != nil {
					return
				}
				m := unmarshal[summapb.SearchResponse](t, got.Reply)
				if !slices.Equal(got.LeftOut, c.left) || int(m.MissingPartitions) != len(c.left) || int(m.TotalHits) != 3-len(c.left) {
					t.Errorf("left out %v, want %v; %v", got.LeftOut, c.left, m)
				}
				close(searched)
				var who []int
				for p := range searched {
					who = append(who, p)
				}
				slices.Sort(who)
				if c.searched != nil && !slices.Equal(who, c.searched) {
					t.Errorf("searched %v, want %v", who, c.searched)
				}
			})
		})
	}
}

func TestStatisticsGoOnWithoutStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := callerFunc(func(ctx context.Context, part int, method string, _ []byte) ([]byte, error) {
			if part == 1 {
				return nil, turn{after: forever}.wait(ctx)
			}
			return proto.Marshal(&summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 4}})
		})
		got, err := partition.GetTextStats(t.Context(), shards(2), node, partition.Reads{Partial: true, Straggler: 1500 * time.Microsecond}, nil)
		m := unmarshal[summapb.GetTextStatsResponse](t, got.Reply)
		if err != nil || m.MissingPartitions != 1 || m.Stats.TotalDocs != 4 || !slices.Equal(got.LeftOut, []int{1}) {
			t.Errorf("%v, %v, %v", m, got.LeftOut, err)
		}
	})
}

func TestErrorsOfPartitionsKeepTheirDetails(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "no").WithDetails(protoadapt.MessageV1Of(&summapb.DocAddress{DocId: 7}))
	if err != nil {
		t.Fatal(err)
	}
	node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) { return nil, st.Err() })
	_, err = partition.GetIndexInfo(t.Context(), shards(2), node, partition.Reads{}, nil)
	got := status.Convert(err)
	if got.Code() != codes.FailedPrecondition || got.Message() != "index 'i' partition on shard 'a': no" || len(got.Details()) != 1 || got.Details()[0].(*summapb.DocAddress).DocId != 7 {
		t.Errorf("%v %v", got, got.Details())
	}
	node = func(context.Context, int, string, []byte) ([]byte, error) { return nil, context.DeadlineExceeded }
	if _, err = partition.GetIndexInfo(t.Context(), shards(2), node, partition.Reads{}, nil); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
}

func TestGetDocumentTakesTheFirstInOrder(t *testing.T) {
	const away = "index 'i': document not found on the reachable partitions; partition(s) [b] are unavailable"
	found, slow := turn{}, turn{after: 10 * time.Millisecond}
	none := turn{code: codes.NotFound, text: "Document not found"}
	for name, c := range map[string]struct {
		turns   []turn
		missing []int
		partial bool
		from    int
		code    codes.Code
		text    string
		took    time.Duration
	}{
		"the first":                   {turns: []turn{slow, found, found}, from: 0, took: 10 * time.Millisecond},
		"nobody behind is waited for": {turns: []turn{none, found, {after: forever}}, from: 1},
		"found beside a failure":      {turns: []turn{{code: codes.Internal, text: "x"}, none, found}, from: 2},
		"a failure":                   {turns: []turn{none, {code: codes.Internal, text: "x"}, {code: codes.Aborted, text: "y"}}, code: codes.Internal, text: "index 'i' partition on shard 'b': x"},
		"nowhere":                     {turns: []turn{{code: codes.NotFound, text: "1"}, none, none}, code: codes.NotFound, text: "1"},
		"nowhere, but one is away":    {turns: []turn{none, {}, none}, missing: []int{1}, partial: true, code: codes.Unavailable, text: away},
		"a failure, and one is away":  {turns: []turn{none, {}, {code: codes.Unavailable, text: "z"}}, missing: []int{1}, partial: true, code: codes.Unavailable, text: "index 'i' partition on shard 'c': z"},
		"found though one is away":    {turns: []turn{none, {}, found}, missing: []int{1}, partial: true, from: 2},
		"strict, one is away":         {turns: []turn{found, {}, found}, missing: []int{1}, code: codes.Unavailable, text: "index 'i' is partitioned over 3 shards but partition(s) [b] carry no healthy copy"},
		"everybody is away":           {missing: []int{0, 1, 2}, partial: true, code: codes.Unavailable, text: "index 'i': none of its 3 partitions has a routable replica"},
		"unavailable is not left out": {turns: []turn{{code: codes.Unavailable, text: "z"}, none, none}, partial: true, code: codes.Unavailable, text: "index 'i' partition on shard 'a': z"},
		"found late behind a failure": {turns: []turn{{code: codes.Internal, text: "x"}, slow, none}, from: 1, took: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ix := shards(3)
				ix.Missing = c.missing
				begin := time.Now()
				got, err := partition.GetDocument(t.Context(), ix, callerFunc(func(ctx context.Context, part int, _ string, _ []byte) ([]byte, error) {
					return []byte{byte('0' + part)}, c.turns[part].wait(ctx)
				}), partition.Reads{Partial: c.partial}, nil)
				if st := status.Convert(err); st.Code() != c.code || st.Message() != c.text {
					t.Errorf("%v, want %s %s", err, c.code, c.text)
				}
				if err == nil && string(got.Reply) != string(rune('0'+c.from)) {
					t.Errorf("the answer of %s", got.Reply)
				}
				if took := time.Since(begin); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
			})
		})
	}
}

func TestInfosAddUp(t *testing.T) {
	a := &summapb.GetIndexInfoResponse{
		IndexName: "i", NumDocs: 5, NumSegments: 2, Schema: "S0", PhysicalNumDocs: 8, NumDeletedDocs: 1, DeletedRatio: 0.9, CandidateScoringVersion: 4, BinaryRetrievalVersion: 1,
		TextFields: []*summapb.TextFieldInfo{{Field: "body", Chunked: true}}, UnpreparedCandidateFields: []string{"c", "a"},
		MemoryStats: &summapb.MemoryStats{TotalBytes: 10, SegmentReader: &summapb.SegmentReaderStats{TotalBytes: 3, TermDictCacheBytes: 1, NumSegmentsLoaded: 2}},
		VectorStats: []*summapb.VectorFieldStats{
			{FieldName: "v", VectorType: "dense", Dimension: 8},
			{FieldName: "s", VectorType: "sparse", TotalVectors: 5, Dimension: 100, AvgTermsPerVector: 2},
		},
	}
	b := &summapb.GetIndexInfoResponse{
		IndexName: "i", NumDocs: 7, NumSegments: 1, Schema: "S1", PhysicalNumDocs: 8, NumDeletedDocs: 3, CandidateScoringVersion: 2, TextFields: []*summapb.TextFieldInfo{{Field: "x"}},
		UnpreparedCandidateFields: []string{"b", "a"},
		MemoryStats: &summapb.MemoryStats{
			TotalBytes: 1, IndexingBuffer: &summapb.IndexingBufferStats{TotalBytes: 1, PendingDocs: 4},
			SegmentReader: &summapb.SegmentReaderStats{TotalBytes: 4, StoreCacheBytes: 5, NumSegmentsLoaded: 1},
		},
		VectorStats: []*summapb.VectorFieldStats{
			{FieldName: "s", VectorType: "sparse", TotalVectors: 7, Dimension: 102, AvgTermsPerVector: 4},
			{FieldName: "v", VectorType: "dense", TotalVectors: 20, Dimension: 8},
		},
	}
	want := &summapb.GetIndexInfoResponse{
		IndexName: "i", NumDocs: 12, NumSegments: 3, Schema: "S0", PhysicalNumDocs: 16, NumDeletedDocs: 4, DeletedRatio: 0.25, CandidateScoringVersion: 2,
		TextFields: []*summapb.TextFieldInfo{{Field: "body", Chunked: true}}, UnpreparedCandidateFields: []string{"a", "b", "c"},
		MemoryStats: &summapb.MemoryStats{
			TotalBytes: 11, IndexingBuffer: &summapb.IndexingBufferStats{TotalBytes: 1, PendingDocs: 4},
			SegmentReader: &summapb.SegmentReaderStats{TotalBytes: 7, TermDictCacheBytes: 1, StoreCacheBytes: 5, NumSegmentsLoaded: 3},
		},
		VectorStats: []*summapb.VectorFieldStats{
			{FieldName: "s", VectorType: "sparse", TotalVectors: 12, Dimension: 102, AvgTermsPerVector: float32(38.0 / 12)},
			{FieldName: "v", VectorType: "dense", TotalVectors: 20, Dimension: 8},
		},
	}
	got, err := partition.GetIndexInfo(t.Context(), shards(2), replies(marshal(t, a), marshal(t, b)), partition.Reads{}, nil)
	if m := unmarshal[summapb.GetIndexInfoResponse](t, got); err != nil || !proto.Equal(m, want) {
		t.Errorf("%v\n got %v\nwant %v", err, m, want)
	}
	full := &summapb.GetIndexInfoResponse{MemoryStats: &summapb.MemoryStats{
		TotalBytes:     1,
		IndexingBuffer: &summapb.IndexingBufferStats{TotalBytes: 2, PostingsBytes: 3, SparseVectorsBytes: 4, DenseVectorsBytes: 5, InternerBytes: 6, PositionIndexBytes: 7, PendingDocs: 8, UniqueTerms: 9},
		SegmentReader:  &summapb.SegmentReaderStats{TotalBytes: 10, TermDictCacheBytes: 11, StoreCacheBytes: 12, SparseIndexBytes: 13, DenseIndexBytes: 14, NumSegmentsLoaded: 15},
	}}
	twice := &summapb.GetIndexInfoResponse{MemoryStats: &summapb.MemoryStats{
		TotalBytes:     2,
		IndexingBuffer: &summapb.IndexingBufferStats{TotalBytes: 4, PostingsBytes: 6, SparseVectorsBytes: 8, DenseVectorsBytes: 10, InternerBytes: 12, PositionIndexBytes: 14, PendingDocs: 16, UniqueTerms: 18},
		SegmentReader:  &summapb.SegmentReaderStats{TotalBytes: 20, TermDictCacheBytes: 22, StoreCacheBytes: 24, SparseIndexBytes: 26, DenseIndexBytes: 28, NumSegmentsLoaded: 30},
	}}
	got, err = partition.GetIndexInfo(t.Context(), shards(2), replies(marshal(t, full), marshal(t, full)), partition.Reads{}, nil)
	if m := unmarshal[summapb.GetIndexInfoResponse](t, got); err != nil || !proto.Equal(m, twice) {
		t.Errorf("%v\n got %v\nwant %v", err, m, twice)
	}
	got, err = partition.GetIndexInfo(t.Context(), shards(2), replies(nil, marshal(t, b)), partition.Reads{}, nil)
	if m := unmarshal[summapb.GetIndexInfoResponse](t, got); err != nil || m.NumDocs != 7 || m.MemoryStats.IndexingBuffer.PendingDocs != 4 {
		t.Errorf("%v: %v", err, m)
	}
}

// TestStatisticsAddUp also has the extension fields of differences.md.
func TestStatisticsAddUp(t *testing.T) {
	terms := func(list ...any) (out []*summapb.TermDocFreq) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, &summapb.TermDocFreq{Term: []byte(list[i].(string)), DocFreq: uint64(list[i+1].(int))})
		}
		return out
	}
	type fs = summapb.TextFieldStats
	for name, c := range map[string]struct{ of, want []*fs }{
		"a reference's": {
			[]*fs{{Field: "f", CorpusSize: 100, AvgLen: 10, Terms: terms("b", 3, "a", 2)}, {Field: "f", CorpusSize: 300, AvgLen: 20, Terms: terms("a", 5)}, nil},
			[]*fs{{Field: "f", CorpusSize: 400, AvgLen: 17.5, Terms: terms("a", 7, "b", 3)}},
		},
		"fields are sorted": {
			[]*fs{{Field: "g", CorpusSize: 1, AvgLen: 2}, {Field: "f", CorpusSize: 1, AvgLen: 3}},
			[]*fs{{Field: "f", CorpusSize: 1, AvgLen: 3}, {Field: "g", CorpusSize: 1, AvgLen: 2}},
		},
		"exact": {
			[]*fs{{Field: "f", CorpusSize: 100, AvgLen: 20, TotalTokens: 200, DocsWithField: 10, Terms: terms("a", 2)}, {Field: "f", CorpusSize: 10, AvgLen: 10, TotalTokens: 50, DocsWithField: 5}},
			[]*fs{{Field: "f", CorpusSize: 110, AvgLen: float32(250.0 / 15), TotalTokens: 250, DocsWithField: 15, Terms: terms("a", 2)}},
		},
		"exact, one partition lacks the field": {
			[]*fs{{Field: "f", CorpusSize: 100, AvgLen: 20, TotalTokens: 200, DocsWithField: 10, Terms: terms("a", 2)}, {Field: "f", CorpusSize: 10, AvgLen: 1}, {Field: "f"}},
			[]*fs{{Field: "f", CorpusSize: 110, AvgLen: 20, TotalTokens: 200, DocsWithField: 10, Terms: terms("a", 2)}},
		},
		"one does not count": {
			[]*fs{{Field: "f", CorpusSize: 100, AvgLen: 20, TotalTokens: 200, DocsWithField: 10}, {Field: "f", CorpusSize: 300, AvgLen: 40}},
			[]*fs{{Field: "f", CorpusSize: 400, AvgLen: 35}},
		},
		"chunks": {
			[]*fs{
				{Field: "f", CorpusSize: 3, AvgLen: 4, TotalTokens: 12, DocsWithField: 3, ChunkLengths: []uint32{2, 5}, ChunkCounts: []uint64{1, 2}},
				{Field: "f", CorpusSize: 2, AvgLen: 5, TotalTokens: 10, DocsWithField: 2, ChunkLengths: []uint32{1, 5, 9}, ChunkCounts: []uint64{1, 1, 4}},
				{Field: "f"},
			},
			[]*fs{{Field: "f", CorpusSize: 5, AvgLen: 4.4, TotalTokens: 22, DocsWithField: 5, ChunkLengths: []uint32{1, 2, 5, 9}, ChunkCounts: []uint64{1, 1, 3, 4}}},
		},
		"chunks of some": {
			[]*fs{
				{Field: "f", CorpusSize: 3, AvgLen: 4, TotalTokens: 12, DocsWithField: 3, ChunkLengths: []uint32{2, 5}, ChunkCounts: []uint64{1, 2}},
				{Field: "f", CorpusSize: 1, AvgLen: 8},
			},
			[]*fs{{Field: "f", CorpusSize: 4, AvgLen: 5}},
		},
		"chunks that do not fit": {
			[]*fs{{Field: "f", CorpusSize: 3, AvgLen: 4, ChunkLengths: []uint32{2, 5}, ChunkCounts: []uint64{1}}},
			[]*fs{{Field: "f", CorpusSize: 3, AvgLen: 4}},
		},
		"sums stay at the largest number": {
			[]*fs{{Field: "f", CorpusSize: 1<<64 - 1, AvgLen: 2, Terms: terms("a", 1)}, {Field: "f", CorpusSize: 1, AvgLen: 2}},
			[]*fs{{Field: "f", CorpusSize: 1<<64 - 1, AvgLen: 2, Terms: terms("a", 1)}},
		},
		"no documents": {[]*fs{{Field: "f", AvgLen: 3}}, []*fs{{Field: "f"}}},
	} {
		ix := shards(len(c.of))
		node := make([][]byte, len(c.of))
		for i, f := range c.of {
			m := &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: uint64(1 + i)}}
			if f != nil {
				m.Stats.Fields = []*fs{f}
			}
			node[i] = marshal(t, m)
		}
		got, err := partition.GetTextStats(t.Context(), ix, replies(node...), partition.Reads{}, nil)
		n := uint64(len(c.of))
		want := &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: n * (n + 1) / 2, Fields: c.want}}
		if m := unmarshal[summapb.GetTextStatsResponse](t, got.Reply); err != nil || !proto.Equal(m, want) {
			t.Errorf("%s: %v\n got %v\nwant %v", name, err, m, want)
		}
	}
}

// TestGarbageFromAPartitionIsToldByItsShard: what cannot be read fails a read also where it may be partial.
func TestGarbageFromAPartitionIsToldByItsShard(t *testing.T) {
	garbage := replies([]byte{0xff}, []byte{0xff})
	for method := range map[string]bool{
		summapb.SearchService_Search_FullMethodName:       true,
		summapb.SearchService_GetTextStats_FullMethodName: true,
		summapb.SearchService_GetIndexInfo_FullMethodName: true,
		summapb.IndexService_Commit_FullMethodName:        true,
		summapb.IndexService_CreateIndex_FullMethodName:   true,
	} {
		_, err := play(t.Context(), shards(2), garbage, nil, partition.Reads{Partial: true}, method, nil)
		if st := status.Convert(err); st.Code() != codes.Internal || !strings.Contains(st.Message(), "index 'i' partition on shard 'a': failed to decode Protobuf message") {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// A reply of a few bytes for each part would take many times as much memory when it is decoded; it is refused before.
func TestRepliesThatGrowInMemoryAreRefused(t *testing.T) {
	terms := field(1, field(2, bytes.Repeat(field(4, nil), 1<<20)))
	_, err := partition.GetTextStats(t.Context(), shards(2), replies(terms, nil), partition.Reads{Partial: true}, nil)
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || !strings.HasPrefix(st.Message(), "index 'i' partition on shard 'a': the message takes more than") {
		t.Error(err)
	}
}

// TestOddMessagesCostNoMoreThanReading: messages in a great many pieces, which would take hours if each piece copied those before it.
func TestOddMessagesCostNoMoreThanReading(t *testing.T) {
	const pieces = 1 << 18
	term := field(1, field(1, []byte("f")))
	s, err := partition.ShapeOf(bytes.Repeat(field(2, term), pieces)) // of a query
	if err != nil {
		t.Fatal(err)
	}
	node := callerFunc(func(_ context.Context, _ int, method string, _ []byte) ([]byte, error) {
		if method == summapb.SearchService_GetTextStats_FullMethodName {
			return field(1, nil), nil
		}
		return nil, nil
	})
	if _, err := partition.Search(t.Context(), shards(1), node, partition.Reads{}, s); err != nil {
		t.Error(err)
	}
	ix := shards(1)
	ix.Locate = func([]byte) int { return 0 }
	entry := slices.Concat(field(1, []byte("id")), bytes.Repeat(field(2, field(1, []byte("k"))), pieces)) // of a value
	reply := field(2, bytes.Repeat([]byte{0x12, 1, 'e', 0x08, 0}, pieces))                                // of an error
	got, err := partition.UpsertDocuments(t.Context(), ix, replies(reply), knowing(t, "id", "i"), field(2, field(1, entry)))
	if m := unmarshal[summapb.DocumentMutationResponse](t, got); err != nil || len(m.Errors) != 1 {
		t.Error(err)
	}
}

// TestRequestsThatAreCutOffAskNobody cuts requests within each of the messages that are read.
func TestRequestsThatAreCutOffAskNobody(t *testing.T) {
	nobody := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
		t.Error("a partition was asked")
		return nil, nil
	})
	bad := []byte{0x0a, 5, 'x'} // a field that is longer than what there is
	ix := shards(2)
	ix.Locate = func([]byte) int { return 1 }
	p := knowing(t, "id", "i")
	value := func(v []byte) []byte { // in a request that writes
		return field(2, field(1, slices.Concat(field(1, []byte("id")), field(2, v))))
	}
	for name, c := range map[string]struct {
		method string
		req    []byte
	}{
		"a batch":       {summapb.IndexService_BatchIndexDocuments_FullMethodName, bad},
		"its document":  {summapb.IndexService_BatchIndexDocuments_FullMethodName, field(2, bad)},
		"its entry":     {summapb.IndexService_BatchIndexDocuments_FullMethodName, field(2, field(1, bad))},
		"its key":       {summapb.IndexService_BatchIndexDocuments_FullMethodName, value(bad)},
		"an upsert":     {summapb.IndexService_UpsertDocuments_FullMethodName, bad},
		"its value":     {summapb.IndexService_UpsertDocuments_FullMethodName, value(bad)},
		"a deletion":    {summapb.IndexService_DeleteDocuments_FullMethodName, bad},
		"a search":      {summapb.SearchService_Search_FullMethodName, bad},
		"its query":     {summapb.SearchService_Search_FullMethodName, field(2, bad)},
		"a boost":       {summapb.SearchService_Search_FullMethodName, field(2, field(3, bad))},
		"in a boost":    {summapb.SearchService_Search_FullMethodName, field(2, field(3, field(1, bad)))},
		"a Boolean":     {summapb.SearchService_Search_FullMethodName, field(2, field(2, bad))},
		"in a Boolean":  {summapb.SearchService_Search_FullMethodName, field(2, field(2, field(3, bad)))},
		"a fusion":      {summapb.SearchService_Search_FullMethodName, field(2, field(11, bad))},
		"a filter":      {summapb.SearchService_Search_FullMethodName, field(2, slices.Concat(field(11, slices.Concat([]byte{0x10, 2}, field(6, bad)))))},
		"a branch":      {summapb.SearchService_Search_FullMethodName, field(2, slices.Concat(field(11, slices.Concat([]byte{0x10, 2}, field(1, bad)))))},
		"a branch's":    {summapb.SearchService_Search_FullMethodName, field(2, slices.Concat(field(11, slices.Concat([]byte{0x10, 2}, field(1, field(1, bad))))))},
		"no tag at all": {summapb.IndexService_BatchIndexDocuments_FullMethodName, []byte{0x80}},
	} {
		if _, err := play(t.Context(), ix, nobody, p, partition.Reads{}, c.method, c.req); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := partition.Stream{Send: func(context.Context, string, []byte) ([]byte, error) { return bad, nil }}
	if err := s.Add(t.Context(), bad); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	if err := s.Add(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := s.Close(t.Context()); status.Code(err) != codes.Internal {
		t.Error(err)
	}
}
