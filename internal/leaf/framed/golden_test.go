package framed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

const goldenSDL = `index books {
  field id: text<raw> [indexed, stored, fast, primary]
  field title: text [indexed, stored]
  field price: f64 [fast]
  field stock: i64 [fast]
  field serial: u64 [fast]
  field day: date [fast]
  field kind: text<raw> [fast]
}`

var goldenMeta = leaf.Meta{
	Snapshot: leaf.Snapshot{Instance: 17442066374219041001, Version: 12, CommitTS: 9007199254740993},
	Timings:  []api.Timing{{Stage: "queue", Micros: 12}, {Stage: "search", Micros: 1500}},
}

// goldenLeaf answers every call, the same every time.
func goldenLeaf() *fake {
	stats := score.Stats{
		Docs: 3, Fields: map[string]score.FieldStats{"title": {SumLen: 14, Docs: 3}, "notes": {SumLen: 18446744073709551615, Docs: 1}},
		DF: map[score.Term]uint64{{Field: "title", Text: "wind"}: 2, {Field: "notes", Text: "é"}: 1},
	}
	return &fake{
		ping: func(context.Context) (*leaf.PingReply, error) {
			return &leaf.PingReply{Node: "6b9d2f3c-5a1e-4c8e-9f51-0d6f5f3a7c11"}, nil
		},
		info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
			return &leaf.InfoReply{
				Meta: goldenMeta, Node: "6b9d2f3c-5a1e-4c8e-9f51-0d6f5f3a7c11", Version: "v1.2.3",
				Index: api.IndexInfo{Name: "books", Docs: 3, Segments: 2, Bytes: 4096, Schema: goldenSDL, State: "open"},
			}, nil
		},
		docs: func(context.Context, *leaf.DocsRequest) (*leaf.DocsReply, error) {
			return &leaf.DocsReply{Meta: goldenMeta, Docs: 3}, nil
		},
		search: func(_ context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
			out := &leaf.SearchReply{
				Meta: goldenMeta, Docs: 3, Total: 2, TotalRelation: exec.Exactly,
				Hits: []leaf.Hit{{ID: "b/1", Score: 1.25}, {ID: "b/2", Score: 0.1}},
			}
			for _, k := range r.Sort {
				v := []exec.SortValue{{Kind: exec.NumberValue}, {}}
				switch {
				case k.By == exec.ByScore:
					v = []exec.SortValue{{Kind: exec.ScoreValue, Score: 1.25}, {Kind: exec.ScoreValue, Score: 0.1}}
				case k.By == exec.ByID:
					v = []exec.SortValue{{Kind: exec.TextValue, Text: "b/1"}, {Kind: exec.TextValue, Text: "b/2"}}
				case k.Field == "price":
					v[0].Number = schema.EncodeF64(12.5)
				case k.Field == "stock":
					v[0].Number = schema.EncodeI64(-9007199254740993)
				case k.Field == "serial":
					v[0].Number = 18446744073709551615
				case k.Field == "day":
					v[0].Number = schema.EncodeI64(1700000000000)
				case k.Field == "kind":
					v = []exec.SortValue{{Kind: exec.TextValue, Text: "n:"}, {}}
				}
				for i := range out.Hits {
					out.Hits[i].Sort = append(out.Hits[i].Sort, v[i])
				}
			}
			if r.KeepStats {
				out.Stats, out.Notes, out.Partial, out.Approximate = &stats, []string{"a note"}, true, []string{"time"}
			}
			if r.Total == exec.TotalNone {
				out.Total, out.TotalRelation = 0, ""
			}
			return out, nil
		},
		stats: func(context.Context, *leaf.StatsRequest) (*leaf.StatsReply, error) {
			return &leaf.StatsReply{Meta: goldenMeta, Stats: stats}, nil
		},
		agg: func(_ context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
			sch, err := schema.ParseSDL(goldenSDL, anyTokenizer)
			if err != nil {
				return nil, err
			}
			plan, err := agg.Bind(r.Specs, sch, agg.Options{})
			if err != nil {
				return nil, err
			}
			out := &leaf.AggregateReply{Meta: goldenMeta, State: plan.NewState(), Docs: 3, Matched: 2}
			for _, f := range r.Values {
				v := leaf.FieldValues{Field: f}
				switch f {
				case "stock":
					v.Type, v.Numbers = schema.I64, []uint64{schema.EncodeI64(-1), schema.EncodeI64(9007199254740993)}
				case "kind":
					v.Type, v.Texts = schema.Text, []string{"novel", "a\"b"}
				}
				out.Values = append(out.Values, v)
			}
			return out, nil
		},
		knn: func(context.Context, *leaf.KNNRequest) (*leaf.KNNReply, error) {
			m := goldenMeta
			m.Approximate = []string{leaf.ApproximateGraph}
			return &leaf.KNNReply{Meta: m, Docs: 3, Hits: []leaf.Neighbour{{ID: "b/1", Similarity: 0.9999999}, {ID: "b/2", Similarity: -0.5}}}, nil
		},
		ids: func(_ context.Context, r *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
			all := []string{"b/1", "b/2", "ü \"3\""}
			from, _ := slices.BinarySearch(all, r.After)
			if r.After != "" {
				from++
			}
			out := &leaf.IDsReply{Meta: goldenMeta}
			to := len(all)
			if r.Limit > 0 && from+r.Limit < to {
				to = from + r.Limit
				out.Next = all[to-1]
			}
			return out, page(all[from:to])
		},
		export: func(_ context.Context, r *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
			out := &leaf.ExportReply{Meta: goldenMeta}
			for _, id := range r.IDs {
				if strings.HasPrefix(id, "b/") {
					if err := each(leaf.ExportedDoc{ID: id, Source: fmt.Appendf(nil, `{"id":%q,"title":"wind"}`, id)}); err != nil {
						return nil, err
					}
				} else {
					out.Missing = append(out.Missing, id)
				}
			}
			return out, nil
		},
		has: func(context.Context, *leaf.HasRequest) (*leaf.HasReply, error) {
			return &leaf.HasReply{Meta: goldenMeta, Missing: []string{"x"}}, nil
		},
		delete: func(_ context.Context, r *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
			return &leaf.DeleteReply{Meta: goldenMeta, Deleted: uint64(len(r.IDs))}, nil
		},
		index: func(_ context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error) {
			behind := r.Mark
			if behind != 0 {
				behind = behind.Seen()
			}
			return &leaf.IndexReply{Meta: goldenMeta, Behind: behind, WriteReply: api.WriteReply{OK: true, ID: "b/1", Members: api.Members{OK: 1, Total: 1}, Inferred: []api.InferredField{{Name: "year", Type: "i64", From: "integer"}}}}, nil
		},
		bulk: func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
			b, err := io.ReadAll(body)
			if err != nil {
				return nil, err
			}
			lines := bytes.Count(b, []byte{'\n'})
			out := &leaf.BulkReply{Meta: goldenMeta, BulkReply: api.BulkReply{Indexed: uint64(lines), OK: true, Shards: 1, Members: api.Members{OK: 1, Total: 1}, TookMicros: 2500}}
			if bytes.Contains(b, []byte("bad")) {
				out.OK, out.Indexed, out.Failed = false, uint64(lines-1), 1
				out.Errors = []api.DocFailure{{Line: lines, ID: "bad", Code: "type_conflict", Reason: "field \"price\": not a number"}}
			}
			return out, nil
		},
	}
}

// goldenCall is a request as the client writes it.
type goldenCall struct {
	name, op string
	write    func(w *writer)
}

func goldenCalls(t *testing.T) []goldenCall {
	specs, err := agg.Parse("kinds:terms(kind,5),prices:histogram(price,2.5),cheap:filter(price:<10)")
	if err != nil {
		t.Fatal(err)
	}
	q, err := query.Parse(`+title:wind "night sky"~2 -kind:="a \"b" price:[1 TO 2.5}`, query.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	filter, err := query.Parse("price:>=10", query.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	none := func(*writer) {}
	stats := &score.Stats{Docs: 3, Fields: map[string]score.FieldStats{"title": {SumLen: 14, Docs: 3}}, DF: map[score.Term]uint64{{Field: "title", Text: "wind"}: 2}}
	order := []exec.SortKey{{By: exec.ByField, Field: "price", Desc: true, MissingFirst: true, Mode: exec.Least}, {By: exec.ByScore, Desc: true}, {By: exec.ByID}}
	after := &exec.After{Key: "b/1", Values: []exec.SortValue{{Kind: exec.NumberValue, Number: schema.EncodeF64(12.5)}, {Kind: exec.ScoreValue, Score: 1.25}, {Kind: exec.TextValue, Text: "b/1"}}}
	search := func(r leaf.SearchRequest) func(*writer) { return func(w *writer) { appendSearchRequest(w, &r) } }
	knn := func(k api.KNN) func(*writer) {
		return func(w *writer) {
			appendKNNRequest(w, &leaf.KNNRequest{KNN: k, Filters: []query.Node{filter}, AllowPartial: k.Ef > 0})
		}
	}
	return []goldenCall{
		{"ping", opPing, none},
		{"docs", opDocs, none},
		{"info", opInfo, none},
		{"ids", opIDs, func(w *writer) { appendIDsRequest(w, &leaf.IDsRequest{After: "b/1", Limit: 1}) }},
		{"ids_all", opIDs, func(w *writer) { appendIDsRequest(w, &leaf.IDsRequest{}) }},
		{"search", opSearch, search(leaf.SearchRequest{Query: q, Limit: 10})},
		{"search_sorted", opSearch, search(leaf.SearchRequest{Query: q, Filters: []query.Node{filter, &query.Bool{Filter: []query.Node{filter}}}, Limit: 10, Sort: order, After: after, Total: exec.TotalAtLeast, TotalFloor: 1000})},
		{"search_keep_stats", opSearch, search(leaf.SearchRequest{Limit: 2, DefaultFields: []string{"title"}, Stats: stats, KeepStats: true, AllowPartial: true, Total: exec.TotalNone, After: &exec.After{Key: "b/0", Values: []exec.SortValue{{Kind: exec.ScoreValue, Score: 0.1}}}})},
		{"stats", opStats, func(w *writer) {
			appendStatsRequest(w, &leaf.StatsRequest{Terms: []score.Term{{Field: "title", Text: "wind"}, {Field: "notes", Text: "é"}}, Query: q})
		}},
		{"agg", opAgg, func(w *writer) {
			appendAggRequest(w, &leaf.AggregateRequest{Query: q, Filters: []query.Node{filter}, DefaultOp: query.And, Specs: specs, Values: []string{"stock", "kind", "none"}})
		}},
		{"knn", opKNN, knn(api.KNN{Field: "v", Dense: []float32{0.1, -2, 16777216}, K: 5, Exact: true, Combiner: score.Combiner{Kind: score.Max}})},
		{"knn_sparse", opKNN, knn(api.KNN{Field: "v", Indices: []uint32{1, 4294967295}, Weights: []float32{0.5, 2}, K: 5, Ef: 100, Combiner: score.Combiner{Kind: score.WeightedTopK, TopK: 3, Decay: 0.5}})},
		{"knn_binary", opKNN, knn(api.KNN{Field: "v", Bits: []byte{0xa5, 0xff}, K: 5, Combiner: score.Combiner{Kind: score.LogSumExp, Temperature: 2}})},
		{"export", opExport, func(w *writer) { appendExportRequest(w, &leaf.ExportRequest{IDs: []string{"b/1", "x", "b/2"}}) }},
		{"has", opHas, func(w *writer) { appendHasRequest(w, &leaf.HasRequest{IDs: []string{"b/1", "x"}}) }},
		{"delete_many", opDeleteMany, func(w *writer) { appendDeleteRequest(w, &leaf.DeleteRequest{IDs: []string{"b/1", "b/2"}}) }},
		{"index", opIndex, func(w *writer) { appendBody(w, []byte(`{"id":"b/1","title":"a \"b\" ü"}`)) }},
		{"index_marked", opIndex, func(w *writer) {
			appendIndexRequest(w, &leaf.IndexRequest{Existing: true, Mark: math.MaxUint64 - 1, Body: []byte(`{"id":"b/1"}`)})
		}},
		{"bulk", opBulk, func(w *writer) { appendBody(w, []byte("{\"id\":\"b/1\"}\n{\"id\":\"b/2\"}\n")) }},
		{"bulk_some", opBulk, func(w *writer) { appendBody(w, []byte("{\"id\":\"b/1\"}\n{\"id\":\"bad\"}\n")) }},
		{"bulk_none", opBulk, func(w *writer) { appendBody(w, []byte("{\"id\":\"bad\"}\n")) }},
		{"problem", opHas, func(w *writer) { w.name("id"); w.b = append(w.b, '7') }},
	}
}

// The bytes of every request and reply are pinned: they are a public format.
func TestGolden(t *testing.T) {
	checkGolden(t, NewHandler(goldenLeaf(), HandlerOptions{}), goldenCalls(t))
}

func checkGolden(t *testing.T, h *Handler, calls []goldenCall) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			w := begin(nil, c.op, "books", 1500*time.Microsecond)
			c.write(w)
			request, prob := w.end()
			if prob != nil {
				t.Fatal(prob)
			}
			r := h.Handle(t.Context(), request, nil)
			if r.Close {
				t.Errorf("the connection ends")
			}
			got := fmt.Sprintf("request: %s\nreply: %s\n", request, r.Body)
			name := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("−golden +now\n%s", d)
			}
		})
	}
}
