package partition_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/schema/jsondoc"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// engine is a node of weft without a wire: a shard, and what a search of it sees.
type engine struct {
	t    testing.TB
	s    *shard.Shard
	conv *summa.Documents
	sdl  string
	name int // of its segments
	ix   *summaquery.Index
	keys map[string]string // of documents, by their addresses
}

func newEngine(t testing.TB, sdl string, name int) *engine {
	t.Helper()
	sch, err := summa.ParseSchema(sdl)
	if err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(t.Context(), shard.Config{Dir: "d", FS: memfs.New(nil), Schema: sch, NoBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &engine{t: t, s: s, conv: summa.NewDocuments(sch, jsondoc.Limits{}), sdl: summa.SDL(sch), name: name}
}

// open makes searches see what was written. keys are those of all documents, of which the engine has some.
func (e *engine) open(keys []string) {
	sn := e.s.Snapshot()
	e.t.Cleanup(sn.Release)
	an, err := exec.NewAnalyzers(sn.Schema())
	if err != nil {
		e.t.Fatal(err)
	}
	e.ix = &summaquery.Index{Schema: sn.Schema(), Analyzers: an, Leaves: sn.Leaves()}
	for i := range e.ix.Leaves {
		e.ix.Segments = append(e.ix.Segments, fmt.Sprintf("%016x%016x", e.name, i+1))
	}
	e.keys = map[string]string{}
	for _, k := range keys {
		if leaf, doc, ok := sn.Find(k); ok {
			e.keys[fmt.Sprintf("%s/%d", e.ix.Segments[leaf], doc)] = k
		}
	}
}

func addressOf(h *summapb.SearchHit) string {
	return fmt.Sprintf("%s/%d", h.GetAddress().GetSegmentId(), h.GetAddress().GetDocId())
}

func (e *engine) answer(ctx context.Context, method string, req []byte) (proto.Message, error) {
	switch method {
	case summapb.SearchService_GetIndexInfo_FullMethodName:
		return &summapb.GetIndexInfoResponse{Schema: e.sdl}, nil
	case summapb.IndexService_BatchIndexDocuments_FullMethodName:
		m := &summapb.BatchIndexDocumentsRequest{}
		if err := proto.Unmarshal(req, m); err != nil {
			return nil, err
		}
		for i, d := range m.Documents {
			doc, _, err := e.conv.Convert(d.Fields)
			if err != nil {
				return nil, err
			}
			if _, err := e.s.Apply(ctx, []shard.Op{{Doc: doc}}); err != nil {
				return nil, err
			}
			if i%9 == 8 {
				if err := e.s.Flush(ctx); err != nil {
					return nil, err
				}
			}
		}
		return &summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(len(m.Documents))}, nil
	case summapb.SearchService_GetTextStats_FullMethodName:
		m := &summapb.GetTextStatsRequest{}
		if err := proto.Unmarshal(req, m); err != nil {
			return nil, err
		}
		if err := (summa.Limits{}).CheckTextStats(m); err != nil {
			return nil, err
		}
		st, err := summaquery.TextStats(ctx, e.ix, m.Query, summa.Limits{})
		return &summapb.GetTextStatsResponse{Stats: st}, err
	case summapb.SearchService_Search_FullMethodName:
		m := &summapb.SearchRequest{}
		if err := proto.Unmarshal(req, m); err != nil {
			return nil, err
		}
		w, err := summa.Limits{}.CheckSearch(m)
		if err != nil {
			return nil, err
		}
		return summaquery.Search(ctx, e.ix, m, w, summa.Limits{})
	}
	return nil, status.Error(codes.Unimplemented, method)
}

// engines are the nodes of an index.
type engines []*engine

func (e engines) Call(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
	m, err := e[part].answer(ctx, method, req)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

// found lists hits in an order in which equals stand by their keys.
func (e engines) found(m *summapb.SearchResponse) []string {
	keys := map[string]string{}
	for _, x := range e {
		for a, k := range x.keys {
			keys[a] = k
		}
	}
	type one struct {
		score float32
		text  string
	}
	var list []one
	for _, h := range m.Hits {
		var rows []string
		for _, x := range h.OrdinalScores {
			rows = append(rows, fmt.Sprintf("%d:%08x", x.Ordinal, math.Float32bits(x.Score)))
		}
		slices.Sort(rows)
		list = append(list, one{h.Score, fmt.Sprintf("%08x %s %s", math.Float32bits(h.Score), keys[addressOf(h)], strings.Join(rows, " "))})
	}
	if !slices.IsSortedFunc(list, func(a, b one) int { return cmp.Compare(b.score, a.score) }) {
		return []string{"not in order"}
	}
	slices.SortStableFunc(list, func(a, b one) int { return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.text, b.text)) })
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = o.text
	}
	return out
}

// TestAPartitionedIndexAnswersAsOneNode writes documents through the split to 1, 2, 3, 5 and 8 shards and to one node, and asks both the
// same: hits, order and bits of scores are one node's, whatever page is asked for. Only equals may stand in another order.
func TestAPartitionedIndexAnswersAsOneNode(t *testing.T) {
	seed := oracletest.Seed(t)
	counts := []int{1, 2, 3, 5, 8}
	compared, refused := 0, 0
	for round := range oracletest.Rounds(len(counts), 1000) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		sdl := oracletest.SDL(w.One([]string{"", ", query<max_terms: 3>"}))
		n := 10 + w.IntN(50)
		weights := make([]uint64, counts[round%len(counts)])
		for i := range weights {
			weights[i] = uint64(1 + w.IntN(3))
		}
		ix := shards(len(weights))
		ix.Locate = locate(weights...)
		whole, parts := engines{newEngine(t, sdl, 0)}, engines{}
		for i := range weights {
			parts = append(parts, newEngine(t, sdl, 1+i))
		}
		batch := &summapb.BatchIndexDocumentsRequest{IndexName: "i"}
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("k%03d", i))
			batch.Documents = append(batch.Documents, &summapb.NamedDocument{Fields: w.Document(keys[i])})
		}
		req := marshal(t, batch)
		if _, err := whole.Call(t.Context(), 0, summapb.IndexService_BatchIndexDocuments_FullMethodName, req); err != nil {
			t.Fatal(err)
		}
		var primaries partition.Primaries
		reply, err := partition.BatchIndexDocuments(t.Context(), ix, parts, &primaries, req)
		if err != nil || int(unmarshal[summapb.BatchIndexDocumentsResponse](t, reply).IndexedCount) != n {
			t.Fatalf("%v: %d documents", err, n)
		}
		for _, e := range slices.Concat(whole, parts) {
			e.open(keys)
		}
		for range 60 {
			req := w.Request(n, true)
			req.IndexName, req.TextStats, req.Reranker = "i", nil, nil
			if req.Query.GetFusion() != nil {
				continue
			}
			differ := func(req *summapb.SearchRequest) string {
				one, err := whole.Call(t.Context(), 0, summapb.SearchService_Search_FullMethodName, marshal(t, req))
				s, err2 := partition.ShapeOf(marshal(t, req))
				if err2 != nil {
					return err2.Error()
				}
				got, err2 := partition.Search(t.Context(), ix, parts, partition.Reads{}, s)
				if err != nil {
					refused++
					if st := status.Convert(err2); st.Code() != status.Code(err) || !strings.HasSuffix(st.Message(), ": "+status.Convert(err).Message()) {
						return fmt.Sprintf("refused with %v, by one node with %v", err2, err)
					}
					return ""
				}
				if err2 != nil {
					return err2.Error()
				}
				compared++
				a, b := parts.found(unmarshal[summapb.SearchResponse](t, got.Reply)), whole.found(unmarshal[summapb.SearchResponse](t, one))
				for k := range max(len(a), len(b)) {
					if k >= len(a) || k >= len(b) || a[k] != b[k] {
						return fmt.Sprintf("%d hits, of one node %d; hit %d:\n%s\n%s", len(a), len(b), k, strings.Join(a[k:min(k+1, len(a))], ""), strings.Join(b[k:min(k+1, len(b))], ""))
					}
				}
				return ""
			}
			// Of a page equals may be others, but not their scores. Within a query clauses may nominate no more documents than the page has, of
			// each shard, so that more shards look at more.
			if page := proto.CloneOf(req); alone(req.Query) {
				page.Limit, page.Offset, page.CandidateLimit = uint32(w.IntN(n/2)), uint32(w.IntN(n/2)), 0
				if diff := differentScores(t, ix, whole, parts, page); diff != "" {
					t.Fatalf("round %d, %d shards:\n%s\n%s", round, len(parts), prototext.Format(page), diff)
				}
			}
			if differ(req) != "" {
				req = oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return differ(r) != "" })
				t.Fatalf("round %d, %d shards:\n%s\n%s", round, len(parts), prototext.Format(req), differ(req))
			}
		}
	}
	t.Logf("%d searches compared, %d refused", compared, refused)
	if compared < 100 {
		t.Error("too few searches were answered")
	}
}

// alone says whether a query has no clauses.
func alone(q *summapb.Query) bool {
	return q.GetBoolean() == nil && q.GetBoost() == nil && q.GetFusion() == nil
}

// differentScores compares the scores of a page, rank by rank.
func differentScores(t *testing.T, ix *partition.Index, whole, parts engines, req *summapb.SearchRequest) string {
	t.Helper()
	one, err := whole.Call(t.Context(), 0, summapb.SearchService_Search_FullMethodName, marshal(t, req))
	if err != nil {
		return ""
	}
	got, err := search(t, ix, partition.Reads{}, req, parts.Call)
	if err != nil {
		return err.Error()
	}
	scores := func(b []byte) (out []uint32) {
		for _, h := range unmarshal[summapb.SearchResponse](t, b).Hits {
			out = append(out, math.Float32bits(h.Score+0)) // of two zeros either
		}
		return out
	}
	if a, b := scores(got.Reply), scores(one); !slices.Equal(a, b) {
		return fmt.Sprintf("scores %08x, of one node %08x", a, b)
	}
	return ""
}
