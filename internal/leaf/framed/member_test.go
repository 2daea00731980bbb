package framed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/wire/frame"
)

// fakeMember is a member made of functions. A call without one fails the test by a nil dereference.
type fakeMember struct {
	*fake
	fetch     func(r *leaf.FetchRequest) (*leaf.FetchReply, error)
	indexes   func() (*leaf.IndexesReply, error)
	putIndex  func(r *leaf.PutIndexRequest) (*leaf.PutIndexReply, error)
	dropIndex func(r *leaf.DropIndexRequest) (*leaf.DropIndexReply, error)
	sums      func(r *leaf.SumsRequest) (*leaf.SumsReply, error)
	digest    func(r *leaf.DigestRequest) (*leaf.DigestReply, error)
	sync      func(r *leaf.SyncRequest) (*leaf.SyncReply, error)
	place     func(r *leaf.PlaceRequest) (*leaf.PlaceReply, error)
	placed    func() (*leaf.PlaceReply, error)
}

func (f *fakeMember) Fetch(_ context.Context, r *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return f.fetch(r)
}

func (f *fakeMember) Indexes(context.Context, *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return f.indexes()
}

func (f *fakeMember) PutIndex(_ context.Context, r *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return f.putIndex(r)
}

func (f *fakeMember) DropIndex(_ context.Context, r *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return f.dropIndex(r)
}

func (f *fakeMember) Sums(_ context.Context, r *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return f.sums(r)
}

func (f *fakeMember) Digest(_ context.Context, r *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return f.digest(r)
}

func (f *fakeMember) Sync(_ context.Context, r *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return f.sync(r)
}

func (f *fakeMember) Place(_ context.Context, r *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return f.place(r)
}
func (f *fakeMember) Placed(context.Context) (*leaf.PlaceReply, error) { return f.placed() }

// guarded is a value that a test shares with the goroutines of a server.
type guarded[T any] struct {
	mu sync.Mutex
	v  T
}

func (g *guarded[T]) set(v T) { g.do(func(have *T) { *have = v }) }

func (g *guarded[T]) get() (v T) {
	g.do(func(have *T) { v = *have })
	return v
}

func (g *guarded[T]) do(fn func(v *T)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn(&g.v)
}

func sumOf(n byte) leaf.Sum { return leaf.Sum{0: n, 15: 0xff} }

var goldenBelow = leaf.Below{
	Shards: api.Shards{
		Total: 2, OK: 1, Failed: 1, FailedAddresses: []string{"10.0.0.2:7700"},
		Outcomes: []api.ShardOutcome{{Shard: 0, Address: "10.0.0.1:7700", Outcome: api.Answered, Micros: 1500}, {Shard: 1, Address: "10.0.0.2:7700", Outcome: api.TimedOut, Micros: 30_000}},
	},
	DocsCovered: 3, DocsTotal: 5,
}

// goldenMember answers every call of a member, the same every time; what it shows of documents has white space and numbers that
// another writer of JSON would change.
func goldenMember() *fakeMember {
	m := &fakeMember{fake: goldenLeaf()}
	plain := m.fake.search
	shown := []leaf.Shown{
		{
			Source: []byte("{\"id\": \"b/1\",\t\"price\":1.50e1,\"n\":9007199254740993,\"t\":\"\\u0061/\"}"), Highlight: []byte(`{"title":["<em>wind</em>"]}`),
			Lexical: []byte(`{"kind":"term","value":1.25}`), Vector: []byte(`{"kind":"vector"}`),
		},
		{Source: []byte(`{"id":"b/2"}`)},
	}
	m.fake.search = func(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		out, err := plain(ctx, r)
		if err != nil {
			return nil, err
		}
		if r.Show != nil {
			out.Shown = shown
			if r.Show.Explain {
				out.Plan = []byte(`{"query":"title:wind","filters":[]}`)
			}
		}
		if r.LocalStats {
			out.LocalStats = &score.Stats{Docs: 3, Fields: map[string]score.FieldStats{"title": {SumLen: 14, Docs: 3}}, DF: map[score.Term]uint64{{Field: "title", Text: "wind"}: 2}}
			out.Below = &goldenBelow
		}
		return out, nil
	}
	load := m.fake.bulk
	m.fake.bulk = func(ctx context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
		out, err := load(ctx, r, body)
		if err == nil {
			out.Repeated = r.Key != ""
		}
		return out, err
	}
	m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		out := &leaf.FetchReply{Meta: goldenMeta, Notes: []string{"a note"}}
		for _, id := range r.IDs {
			switch id {
			case "b/1":
				out.Docs = append(out.Docs, shown[0])
			case "b/2":
				out.Docs = append(out.Docs, shown[1])
			case "nothing":
				out.Docs = append(out.Docs, leaf.Shown{})
			default:
				out.Docs = append(out.Docs, leaf.Shown{Missing: true})
			}
		}
		if r.Show.Explain {
			out.Plan = []byte(`{"query":"title:wind","filters":[]}`)
		}
		return out, nil
	}
	info := api.IndexInfo{Name: "books", Docs: 3, Segments: 2, Bytes: 4096, Schema: goldenSDL, State: "open"}
	m.indexes = func() (*leaf.IndexesReply, error) {
		return &leaf.IndexesReply{Meta: leaf.Meta{Timings: goldenMeta.Timings}, Indexes: []api.IndexInfo{info, {Name: "logs", Dynamic: true, State: "failed", Reason: "a segment is damaged"}}}, nil
	}
	m.putIndex = func(r *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
		return &leaf.PutIndexReply{Meta: goldenMeta, Made: r.Epoch > 0, Info: info}, nil
	}
	m.dropIndex = func(*leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
		return &leaf.DropIndexReply{Meta: leaf.Meta{Timings: goldenMeta.Timings}, Info: info}, nil
	}
	m.sums = func(r *leaf.SumsRequest) (*leaf.SumsReply, error) {
		out := &leaf.SumsReply{Meta: goldenMeta}
		if r.Fence {
			out.Fence, out.Last = 1<<63|7, r.Mark != 0
			if at := slices.Index(r.IDs, "b/2"); at > 0 {
				out.Synced = []int{0, at}
			}
		}
		if r.Range != nil {
			out.IDs, out.Sums, out.Next = []string{"b/1", "b/2"}, []leaf.Sum{sumOf(1), sumOf(2)}, "b/2"
			return out, nil
		}
		for i, id := range r.IDs {
			if strings.HasPrefix(id, "b/") {
				out.Sums = append(out.Sums, sumOf(byte(i+1)))
			} else {
				out.Sums = append(out.Sums, leaf.Sum{})
			}
		}
		return out, nil
	}
	m.digest = func(r *leaf.DigestRequest) (*leaf.DigestReply, error) {
		if r.Depth < 0 || r.Depth > 3 {
			return nil, invalid("depth", "it is 0 to 3")
		}
		out := &leaf.DigestReply{Meta: goldenMeta, Docs: make([]uint32, 1<<r.Depth), Sums: make([]leaf.Sum, 1<<r.Depth)}
		out.Docs[0], out.Sums[0] = 4294967295, sumOf(9)
		return out, nil
	}
	m.sync = func(r *leaf.SyncRequest) (*leaf.SyncReply, error) {
		out := &leaf.SyncReply{Meta: goldenMeta}
		for i, it := range r.Items {
			out.Applied = append(out.Applied, it.ID != "bad")
			out.Sums = append(out.Sums, leaf.Sum{})
			switch {
			case it.ID == "bad":
				out.Problems = make([]*api.Problem, len(r.Items))
				out.Problems[i] = &api.Problem{Code: api.TypeConflict, Field: "price", Detail: "field \"price\": not a number"}
			case it.Body != nil:
				out.Sums[i] = sumOf(byte(i + 1))
			}
		}
		return out, nil
	}
	m.place = func(r *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
		return &leaf.PlaceReply{Node: "6b9d2f3c-5a1e-4c8e-9f51-0d6f5f3a7c11", Epoch: r.Epoch, Map: r.Map}, nil
	}
	m.placed = func() (*leaf.PlaceReply, error) {
		return &leaf.PlaceReply{Node: "6b9d2f3c-5a1e-4c8e-9f51-0d6f5f3a7c11"}, nil
	}
	return m
}

// goldenMemberCalls are the requests of a member, and the others with what only they have.
func goldenMemberCalls(t *testing.T) []goldenCall {
	q, err := query.Parse(`title:wind`, query.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	view := leaf.View{
		Epoch: plainEpoch, Lenient: true,
		Owned: []placement.Share{{Spec: placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 128}, Ordinal: 2}, {Spec: placement.Spec{Rule: placement.Modulo, Shards: 2}}},
	}
	show := leaf.Show{
		Source: true, Fields: []string{"title", "price"}, Explain: true,
		Highlight: &api.Highlight{Fields: []string{"title"}, FragmentSize: 100, Fragments: 2, Pre: "<em>", Post: "</em>", Raw: true},
	}
	stats := &score.Stats{Docs: 3, Fields: map[string]score.FieldStats{"title": {SumLen: 14, Docs: 3}}, DF: map[score.Term]uint64{{Field: "title", Text: "wind"}: 2}}
	vector := api.KNN{Field: "v", Dense: []float32{0.1, -2}, K: 5, Combiner: score.Combiner{Kind: score.Max}}
	epoch := leaf.View{Epoch: 7}
	return []goldenCall{
		{"docs_view", opDocs, func(w *writer) { appendDocsRequest(w, &leaf.DocsRequest{View: view}) }},
		{"search_show", opSearch, func(w *writer) {
			appendSearchRequest(w, &leaf.SearchRequest{View: view, Query: q, Limit: 2, Stats: stats, LocalStats: true, Show: &show})
		}},
		{"search_source", opSearch, func(w *writer) {
			appendSearchRequest(w, &leaf.SearchRequest{Query: q, Limit: 2, Show: &leaf.Show{Source: true}})
		}},
		{"stats_view", opStats, func(w *writer) { appendStatsRequest(w, &leaf.StatsRequest{View: epoch, Query: q}) }},
		{"agg_view", opAgg, func(w *writer) { appendAggRequest(w, &leaf.AggregateRequest{View: epoch, Query: q}) }},
		{"knn_view", opKNN, func(w *writer) { appendKNNRequest(w, &leaf.KNNRequest{View: epoch, KNN: vector}) }},
		{"ids_view", opIDs, func(w *writer) { appendIDsRequest(w, &leaf.IDsRequest{View: epoch, Limit: 1}) }},
		{"export_view", opExport, func(w *writer) {
			appendExportRequest(w, &leaf.ExportRequest{View: epoch, IDs: []string{"b/1"}})
		}},
		{"has_view", opHas, func(w *writer) { appendHasRequest(w, &leaf.HasRequest{View: epoch, IDs: []string{"b/1"}}) }},
		{"delete_many_view", opDeleteMany, func(w *writer) { appendDeleteRequest(w, &leaf.DeleteRequest{View: epoch, IDs: []string{"b/1"}}) }},
		{"index_view", opIndex, func(w *writer) { appendIndexRequest(w, &leaf.IndexRequest{View: epoch, Body: []byte(`{"id":"b/1"}`)}) }},
		{"bulk_key", opBulk, func(w *writer) {
			appendBulkRequest(w, &leaf.BulkRequest{View: epoch, Key: "load \"1\""}, []byte("{\"id\":\"b/1\"}\n"))
		}},
		{"bulk_key_none", opBulk, func(w *writer) {
			appendBulkRequest(w, &leaf.BulkRequest{Key: "load 2"}, []byte("{\"id\":\"bad\"}\n"))
		}},
		{"index_existing", opIndex, func(w *writer) {
			appendIndexRequest(w, &leaf.IndexRequest{Body: []byte(`{"id":"b/1"}`), Existing: true})
		}},
		{"bulk_existing", opBulk, func(w *writer) {
			appendBulkRequest(w, &leaf.BulkRequest{Key: "load 3", Existing: true}, []byte("{\"id\":\"b/1\"}\n"))
		}},
		{"fetch", opFetch, func(w *writer) {
			appendFetchRequest(w, &leaf.FetchRequest{View: view, IDs: []string{"b/1", "x", "b/2", "nothing"}, Show: show, Query: q, Filters: []query.Node{q}, DefaultFields: []string{"title"}, Stats: stats, KNN: &vector})
		}},
		{"fetch_source", opFetch, func(w *writer) {
			appendFetchRequest(w, &leaf.FetchRequest{IDs: []string{"b/2"}, Show: leaf.Show{Source: true, Fields: []string{}}, Query: &query.Match{}, Stats: stats, KNN: &vector})
		}},
		{"indexes", opIndexes, func(*writer) {}},
		{"put_index", opPutIndex, func(w *writer) { appendPutIndexRequest(w, &leaf.PutIndexRequest{Epoch: 7, Schema: goldenSDL}) }},
		{"put_index_dynamic", opPutIndex, func(w *writer) { appendPutIndexRequest(w, &leaf.PutIndexRequest{}) }},
		{"drop_index", opDropIndex, func(w *writer) { appendDropIndexRequest(w, &leaf.DropIndexRequest{Epoch: 7}) }},
		{"sums", opSums, func(w *writer) { appendSumsRequest(w, &leaf.SumsRequest{View: epoch, IDs: []string{"b/1", "x"}}) }},
		{"sums_range", opSums, func(w *writer) {
			appendSumsRequest(w, &leaf.SumsRequest{View: epoch, Range: &leaf.HashRange{From: 1, To: math.MaxUint32}, After: "a", Limit: 2})
		}},
		{"sums_fence", opSums, func(w *writer) {
			appendSumsRequest(w, &leaf.SumsRequest{View: epoch, IDs: []string{"b/1", "x"}, Fence: true})
		}},
		{"sums_synced", opSums, func(w *writer) {
			appendSumsRequest(w, &leaf.SumsRequest{IDs: []string{"b/1", "x", "b/2"}, Fence: true})
		}},
		{"sums_marked", opSums, func(w *writer) {
			appendSumsRequest(w, &leaf.SumsRequest{IDs: []string{"b/1"}, Fence: true, Mark: 1<<53 + 2})
		}},
		{"digest", opDigest, func(w *writer) { appendDigestRequest(w, &leaf.DigestRequest{View: epoch, Depth: 2}) }},
		{"sync", opSync, func(w *writer) {
			appendSyncRequest(w, &leaf.SyncRequest{View: epoch, Items: []leaf.SyncItem{{ID: "b/1", Body: []byte("{\"id\": \"b/1\"}")}, {ID: "b/2", Expect: sumOf(2)}}})
		}},
		{"sync_refused", opSync, func(w *writer) {
			appendSyncRequest(w, &leaf.SyncRequest{Items: []leaf.SyncItem{{ID: "bad", Body: []byte{}}, {ID: "b/2"}}})
		}},
		{"sync_fence", opSync, func(w *writer) {
			appendSyncRequest(w, &leaf.SyncRequest{View: epoch, Items: []leaf.SyncItem{{ID: "b/2", Expect: sumOf(2)}}, Fence: math.MaxUint64})
		}},
		{"place", opPlace, func(w *writer) {
			appendPlaceRequest(w, &leaf.PlaceRequest{Epoch: math.MaxUint64, Map: []byte(`{"format":1,"epoch":"7"}`)})
		}},
		{"placed", opPlaced, func(*writer) {}},
		{"problem_epoch", opDocs, func(w *writer) { w.name(epochMember); w.b = append(w.b, "9007199254740993"...) }},
	}
}

func TestGoldenOfMembers(t *testing.T) {
	checkGolden(t, NewHandler(goldenMember(), HandlerOptions{}), goldenMemberCalls(t))
}

// A leaf that is no member answers what it did, and says of the rest that it is not for it.
func TestOperationsOfMembersOnALeaf(t *testing.T) {
	h := NewHandler(goldenLeaf(), HandlerOptions{})
	for _, op := range []string{opFetch, opIndexes, opPutIndex, opDropIndex, opSums, opDigest, opSync, opPlace, opPlaced} {
		got := string(h.Handle(t.Context(), fmt.Appendf(nil, `{"op":%q}`, op), nil).Body)
		if want := fmt.Sprintf(`{"ok":false,"code":"method_not_allowed","error":"op: %s is for members of a cluster, and this is none","status":405,"field":"op"}`, op); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := string(h.Handle(t.Context(), []byte(`{"op":"docs","epoch":3}`), nil).Body); !strings.HasPrefix(got, `{"ok":true`) {
		t.Error(got)
	}
}

// What is wrong with a request is told by the name of the member.
func TestFaultsOfRequestsToAMember(t *testing.T) {
	h := NewHandler(goldenMember(), HandlerOptions{})
	share := `{"rule":"ring","shards":2,"shard":0}`
	for _, c := range []struct{ request, code, in string }{
		{`{"op":"docs","epoch":9007199254740993}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","epoch":"18446744073709551616"}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","epoch":""}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","epoch":-1}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","epoch":1e3}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","epoch":"\u0031"}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","epoch":null}`, "invalid_parameter", `"field":"epoch"`},
		{`{"op":"docs","lenient":1}`, "invalid_parameter", `"field":"lenient"`},
		{`{"op":"docs","owned":{}}`, "invalid_parameter", `"field":"owned"`},
		{`{"op":"docs","owned":[1]}`, "invalid_parameter", `"field":"owned"`},
		{`{"op":"docs","owned":[{"rule":"ring","shards":2}]}`, "invalid_parameter", `"field":"owned"`},
		{`{"op":"docs","owned":[{"rule":"ring","shards":2.5,"shard":0}]}`, "invalid_parameter", `"field":"owned"`},
		{`{"op":"docs","owned":[{"rule":"ring","shards":2,"shard":0,"x":1}]}`, "unknown_parameter", `owned: there is no member \"x\"`},
		{`{"op":"docs","owned":[{"rule":"ring","shards":2,"shards":2,"shard":0}]}`, "repeated_parameter", `"field":"shards"`},
		{`{"op":"docs","owned":[{"rule":"` + strings.Repeat("r", 100) + `","shards":2,"shard":0}]}`, "invalid_parameter", `"field":"owned"`},
		{`{"op":"docs","owned":[` + strings.Repeat(share+",", 8) + share + `]}`, "invalid_parameter", `9 are given, 8 are allowed`},
		{`{"op":"info","epoch":1}`, "unknown_parameter", `"field":"epoch"`},
		{`{"op":"bulk","body":"","owned":[]}`, "unknown_parameter", `"field":"owned"`},
		{`{"op":"bulk","body":"","key":"` + strings.Repeat("k", 129) + `"}`, "invalid_parameter", `key: it has 129 bytes, 128 are allowed`},
		{`{"op":"bulk","body":"","key":"` + strings.Repeat("k", 9999) + `"}`, "invalid_parameter", `key: it has 9999 bytes, 128 are allowed`},
		{`{"op":"bulk","body":"","key":7}`, "invalid_parameter", `"field":"key"`},
		{`{"op":"search","show":true}`, "invalid_parameter", `"field":"show"`},
		{`{"op":"search","show":{"x":1}}`, "unknown_parameter", `show: there is no member \"x\"`},
		{`{"op":"search","show":{"op":1}}`, "unknown_parameter", `show: there is no member \"op\"`},
		{`{"op":"search","show":{"source":true,"source":true}}`, "repeated_parameter", `"field":"source"`},
		{`{"op":"search","show":{"source":1}}`, "invalid_parameter", `"field":"source"`},
		{`{"op":"search","show":{"fields":"title"}}`, "invalid_parameter", `"field":"fields"`},
		{`{"op":"search","show":{"highlight":{"fields":["a"],"x":1}}}`, "unknown_parameter", `"field":"highlight"`},
		{`{"op":"search","show":{"highlight":{"fields":["a"],"fields":["a"]}}}`, "repeated_parameter", `"field":"fields"`},
		{`{"op":"search","show":{"highlight":["a"]}}`, "invalid_parameter", `"field":"highlight"`},
		{`{"op":"search","show":{"highlight":{}}}`, "missing_parameter", `"field":"highlight"`},
		{`{"op":"search","show":{"highlight":{"fields":["a"],"fragment_size":1.5}}}`, "invalid_parameter", `"error":"highlight: fragment_size: `},
		{`{"op":"search","show":{"highlight":{"fields":["a"],"pre":"` + strings.Repeat("p", 9999) + `"}}}`, "invalid_parameter", `"field":"highlight","limit":256`},
		{`{"op":"search","show":{"highlight":{"fields":["a"],"escape":"no"}}}`, "invalid_parameter", `"field":"highlight"`},
		{`{"op":"search","show":{"highlight":{"fields":[` + strings.Repeat(`"a",`, 64) + `"a"]}}}`, "invalid_parameter", `"field":"highlight","limit":64`},
		{`{"op":"search","local_stats":"yes"}`, "invalid_parameter", `"field":"local_stats"`},
		{`{"op":"fetch","show":{}}`, "missing_parameter", `"field":"ids"`},
		{`{"op":"fetch","ids":[]}`, "missing_parameter", `"field":"show"`},
		{`{"op":"fetch","ids":[],"show":{},"knn":{}}`, "missing_parameter", `"field":"field"`},
		{`{"op":"fetch","ids":[],"show":{},"knn":{"field":"v","vector":[1],"filters":[]}}`, "unknown_parameter", `knn: there is no member \"filters\"`},
		{`{"op":"fetch","ids":[],"show":{},"knn":{"field":"v","vector":["a"]}}`, "invalid_parameter", ``},
		{`{"op":"fetch","show":{},"ids":[` + strings.Repeat(`"",`, leaf.MaxFetch) + `""]}`, "invalid_parameter", `10001 are given, 10000 are allowed`},
		{`{"op":"indexes","epoch":1}`, "unknown_parameter", `"field":"epoch"`},
		{`{"op":"put_index","schema":1}`, "invalid_parameter", `"field":"schema"`},
		{`{"op":"put_index","index":"-"}`, "invalid_index_name", ``},
		{`{"op":"drop_index","schema":""}`, "unknown_parameter", `"field":"schema"`},
		{`{"op":"sums"}`, "missing_parameter", `"field":"ids"`},
		{`{"op":"sums","ids":[],"limit":1}`, "invalid_parameter", `"field":"limit"`},
		{`{"op":"sums","ids":[],"after":"a"}`, "invalid_parameter", `"field":"after"`},
		{`{"op":"sums","ids":[],"fence":1}`, "invalid_parameter", `"field":"fence"`},
		{`{"op":"sums","ids":[],"fence":true,"mark":2}`, "invalid_parameter", `"field":"mark"`},
		{`{"op":"sums","range":{"from":0,"to":1},"mark":"2"}`, "invalid_parameter", `"field":"mark"`},
		{`{"op":"index","body":"{}","mark":"-2"}`, "invalid_parameter", `"field":"mark"`},
		{`{"op":"sums","range":{"from":0,"to":1},"fence":true}`, "invalid_parameter", `"field":"fence"`},
		{`{"op":"sync","items":[],"fence":7}`, "invalid_parameter", `"field":"fence"`},
		{`{"op":"sync","items":[],"fence":"0"}`, "invalid_parameter", `"field":"fence"`},
		{`{"op":"sync","items":[],"fence":"18446744073709551616"}`, "invalid_parameter", `"field":"fence"`},
		{`{"op":"sums","range":[0,1]}`, "invalid_parameter", `"field":"range"`},
		{`{"op":"sums","range":{"from":0}}`, "missing_parameter", `"field":"to"`},
		{`{"op":"sums","range":{"from":0,"to":4294967296}}`, "invalid_parameter", `"field":"to"`},
		{`{"op":"sums","range":{"from":-1,"to":1}}`, "invalid_parameter", `"field":"from"`},
		{`{"op":"digest"}`, "missing_parameter", `"field":"depth"`},
		{`{"op":"digest","depth":17}`, "invalid_parameter", `"field":"depth"`},
		{`{"op":"sync"}`, "missing_parameter", `"field":"items"`},
		{`{"op":"sync","items":[{"id":"a"}]}`, "invalid_parameter", `"field":"items"`},
		{`{"op":"sync","items":[{"expect":null}]}`, "invalid_parameter", `"field":"items"`},
		{`{"op":"sync","items":[{"id":"a","expect":"00"}]}`, "invalid_parameter", `"field":"items"`},
		{`{"op":"sync","items":[{"id":"a","expect":"` + strings.Repeat("g", 32) + `"}]}`, "invalid_parameter", `"field":"items"`},
		{`{"op":"sync","items":[{"id":"a","expect":null,"body":{}}]}`, "invalid_parameter", `"field":"items"`},
		{`{"op":"sync","items":[{"id":"a","expect":null,"x":1}]}`, "unknown_parameter", `items: there is no member \"x\"`},
		{`{"op":"sync","items":[{"id":"a","id":"a","expect":null}]}`, "repeated_parameter", `"field":"id"`},
		{`{"op":"sync","items":[],"owned":[]}`, "unknown_parameter", `"field":"owned"`},
		{`{"op":"sync","items":[` + strings.Repeat(`{"id":"a","expect":null},`, leaf.MaxSync) + `{}]}`, "invalid_parameter", `1001 are given, 1000 are allowed`},
		{`{"op":"place","epoch":1}`, "missing_parameter", `"field":"map"`},
		{`{"op":"place","epoch":1,"map":"e"}`, "invalid_parameter", `"field":"map"`},
		{`{"op":"place","epoch":1,"map":{}}`, "invalid_parameter", `"field":"map"`},
		{`{"op":"place","epoch":1,"map":"` + strings.Repeat("AAAA", leaf.MaxMap/3+1) + `"}`, "invalid_parameter", `map: it has 1048578 bytes, 1048576 are allowed`},
		{`{"op":"placed","epoch":1}`, "unknown_parameter", `"field":"epoch"`},
	} {
		r := h.Handle(t.Context(), []byte(c.request), nil)
		if got := string(r.Body); !strings.HasPrefix(got, `{"ok":false,"code":"`+c.code+`","error":"`) || !strings.Contains(got, c.in) || r.Close {
			t.Errorf("%.200s\n got %s\nwant %s with %s", c.request, got, c.code, c.in)
		}
	}
	for _, request := range []string{
		`{"op":"docs","owned":[],"lenient":false,"epoch":0}`, `{"op":"docs","epoch":9007199254740992}`, `{"op":"docs","epoch":"1"}`,
		`{"op":"search","show":{"highlight":{"fields":["title"],"escape":"html"}}}`, `{"op":"search","show":{}}`, `{"op":"sums","range":{"from":0,"to":4294967295}}`,
		`{"op":"sync","items":[{"id":"a","expect":"000000000000000000000000000000FF","body":null}]}`,
		`{"op":"place","epoch":1,"map":"` + strings.Repeat("AAAA", leaf.MaxMap/3) + `AA=="}`,
	} {
		if got := string(h.Handle(t.Context(), []byte(request), nil).Body); !strings.HasPrefix(got, `{"ok":true`) {
			t.Errorf("%.200s: %.200s", request, got)
		}
	}
}

// Random requests and replies of every kind.
var (
	shares = rapid.Custom(func(t *rapid.T) placement.Share {
		n := rapid.IntRange(-mostWhole, mostWhole)
		return placement.Share{
			Spec:    placement.Spec{Rule: placement.Rule(rapid.SampledFrom([]string{"ring", "modulo", "rendezvous", "", "é\""}).Draw(t, "rule")), Shards: n.Draw(t, "shards"), VNodes: n.Draw(t, "vnodes")},
			Ordinal: n.Draw(t, "shard"),
		}
	})
	epochs = rapid.OneOf(u64, rapid.SampledFrom([]uint64{plainEpoch, plainEpoch + 1}))
	views  = rapid.Custom(func(t *rapid.T) leaf.View {
		return leaf.View{Epoch: epochs.Draw(t, "epoch"), Owned: rapid.SliceOfN(shares, 0, 3).Draw(t, "owned"), Lenient: rapid.Bool().Draw(t, "lenient")}
	})
	sums = rapid.OneOf(rapid.Just(leaf.Sum{}), rapid.Custom(func(t *rapid.T) leaf.Sum {
		return leaf.Sum(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "sum"))
	}))
	objects = rapid.SampledFrom([][]byte{
		nil, []byte(`{}`), []byte(`{ }`), []byte(`{"id":"1"}`), []byte("{\n \"a\" :\t[ 1.50e+1, 9007199254740993 , \"\\u0061\\/é\" ] }"), []byte(`{"a":1,"a":2}`),
	})
	shownDocs = rapid.Custom(func(t *rapid.T) leaf.Shown {
		return leaf.Shown{
			Missing: rapid.Bool().Draw(t, "missing"), Source: objects.Draw(t, "source"), Highlight: objects.Draw(t, "highlight"),
			Lexical: objects.Draw(t, "lexical"), Vector: objects.Draw(t, "vector"),
		}
	})
	name       = rapid.SampledFrom([]string{"title", "f:g", "über feld", "*", "a,b"})
	highlights = rapid.Custom(func(t *rapid.T) *api.Highlight {
		mark := rapid.SampledFrom([]string{"", "<em>", "é\"\\"})
		number := rapid.OneOf(rapid.IntRange(-3, 100), rapid.SampledFrom([]int{0, mostWhole}))
		return &api.Highlight{
			Fields: rapid.SliceOfN(name, 0, 3).Draw(t, "fields"), FragmentSize: number.Draw(t, "size"), Fragments: number.Draw(t, "fragments"),
			Pre: mark.Draw(t, "pre"), Post: mark.Draw(t, "post"), Raw: rapid.Bool().Draw(t, "raw"),
		}
	})
	shows = rapid.Custom(func(t *rapid.T) leaf.Show {
		return leaf.Show{
			Source: rapid.Bool().Draw(t, "source"), Fields: maybe(t, "fields", list), Highlight: maybe(t, "highlight", highlights), Explain: rapid.Bool().Draw(t, "explain"),
		}
	})
	belows = rapid.Custom(func(t *rapid.T) *leaf.Below {
		out := &leaf.Below{DocsCovered: u64.Draw(t, "covered"), DocsTotal: u64.Draw(t, "total"), Unsized: rapid.Bool().Draw(t, "unsized")}
		for i := range rapid.IntRange(0, 4).Draw(t, "shards") {
			out.Shards.Count(api.ShardOutcome{Shard: i, Address: anyStr.Draw(t, "address"), Outcome: rapid.SampledFrom([]api.Outcome{api.Answered, api.Skipped, api.TimedOut, api.Failed}).Draw(t, "outcome"), Micros: micros.Draw(t, "micros")})
		}
		return out
	})
	infos = rapid.Custom(func(t *rapid.T) api.IndexInfo {
		return api.IndexInfo{
			Name: anyStr.Draw(t, "name"), Docs: u64.Draw(t, "docs"), Segments: rapid.IntRange(0, 1<<40).Draw(t, "segments"), Bytes: rapid.Int64Range(0, 1<<40).Draw(t, "bytes"),
			Schema: anyStr.Draw(t, "schema"), Dynamic: rapid.Bool().Draw(t, "dynamic"), State: anyStr.Draw(t, "state"), Reason: anyStr.Draw(t, "reason"),
		}
	})
	vectors = rapid.Custom(func(t *rapid.T) *api.KNN {
		return &api.KNN{
			Field: text.Draw(t, "field"), Dense: rapid.SliceOfN(f32, 1, 4).Draw(t, "dense"), K: rapid.IntRange(0, 100).Draw(t, "k"), GivenK: true,
			Exact: rapid.Bool().Draw(t, "exact"), Ef: rapid.IntRange(0, 100).Draw(t, "ef"), Combiner: score.Combiner{Kind: score.CombinerKind(rapid.IntRange(0, 4).Draw(t, "combiner"))},
		}
	})
	faults = rapid.Custom(func(t *rapid.T) *api.Problem {
		p := &api.Problem{Code: rapid.SampledFrom([]api.Code{api.TypeConflict, api.StaleMap, "a_new_code"}).Draw(t, "code"), Detail: anyStr.Draw(t, "detail"), Field: anyStr.Draw(t, "field")}
		if p.Code == "a_new_code" {
			p.Status = 418
		}
		return p
	})
)

// metasBelow are metas of a coordinator or a node. What is approximate stands once, as it does in the reply to a call that goes in parts.
var metasBelow = rapid.Custom(func(t *rapid.T) leaf.Meta {
	m := metas.Draw(t, "meta")
	m.Approximate = slices.Compact(slices.Sorted(slices.Values(m.Approximate)))
	m.Below = maybe(t, "below", belows)
	return m
})

// exactTrees are queries as a parser returns them, to the last list of one.
var exactTrees = rapid.Custom(func(t *rapid.T) query.Node {
	back, err := query.Parse(trees.Draw(t, "tree").String(), query.ParseOptions{Limits: queryLimits})
	if err != nil {
		t.Fatal(err)
	}
	return back
})

// everything compares all that requests and replies are made of, errors included, but not what lies behind those.
var everything = cmp.Options{exact, meaning, cmpopts.IgnoreFields(api.Problem{}, "Cause")}

// Every request of a random kind reaches a member as it was sent, and every reply comes back as it was given, over a socket.
func TestMembersAreAskedAndAnswer(t *testing.T) {
	var got, reply guarded[any]
	member := &fakeMember{fake: &fake{}}
	member.fake.docs = func(_ context.Context, r *leaf.DocsRequest) (*leaf.DocsReply, error) {
		got.set(r)
		return reply.get().(*leaf.DocsReply), nil
	}
	member.fake.search = func(_ context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
		got.set(r)
		return reply.get().(*leaf.SearchReply), nil
	}
	member.fake.stats = func(_ context.Context, r *leaf.StatsRequest) (*leaf.StatsReply, error) {
		got.set(r)
		return reply.get().(*leaf.StatsReply), nil
	}
	member.fake.agg = func(_ context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
		got.set(r)
		return reply.get().(*leaf.AggregateReply), nil
	}
	member.fake.knn = func(_ context.Context, r *leaf.KNNRequest) (*leaf.KNNReply, error) {
		got.set(r)
		return reply.get().(*leaf.KNNReply), nil
	}
	member.fake.ids = func(_ context.Context, r *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
		got.set(r)
		return reply.get().(*leaf.IDsReply), page([]string{"a"})
	}
	member.fake.export = func(_ context.Context, r *leaf.ExportRequest, _ func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
		got.set(r)
		return reply.get().(*leaf.ExportReply), nil
	}
	member.fake.has = func(_ context.Context, r *leaf.HasRequest) (*leaf.HasReply, error) {
		got.set(r)
		return reply.get().(*leaf.HasReply), nil
	}
	member.fake.delete = func(_ context.Context, r *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
		got.set(r)
		return reply.get().(*leaf.DeleteReply), nil
	}
	member.fake.index = func(_ context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error) {
		got.set(r)
		return reply.get().(*leaf.IndexReply), nil
	}
	member.fake.bulk = func(_ context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
		got.set(r)
		_, err := io.Copy(io.Discard, body)
		return reply.get().(*leaf.BulkReply), err
	}
	member.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		got.set(r)
		return reply.get().(*leaf.FetchReply), nil
	}
	member.indexes = func() (*leaf.IndexesReply, error) { return reply.get().(*leaf.IndexesReply), nil }
	member.putIndex = func(r *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
		got.set(r)
		return reply.get().(*leaf.PutIndexReply), nil
	}
	member.dropIndex = func(r *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
		got.set(r)
		return reply.get().(*leaf.DropIndexReply), nil
	}
	member.sums = func(r *leaf.SumsRequest) (*leaf.SumsReply, error) {
		got.set(r)
		return reply.get().(*leaf.SumsReply), nil
	}
	member.digest = func(r *leaf.DigestRequest) (*leaf.DigestReply, error) {
		got.set(r)
		return reply.get().(*leaf.DigestReply), nil
	}
	member.sync = func(r *leaf.SyncRequest) (*leaf.SyncReply, error) {
		got.set(r)
		return reply.get().(*leaf.SyncReply), nil
	}
	member.place = func(r *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
		got.set(r)
		return reply.get().(*leaf.PlaceReply), nil
	}
	member.placed = func() (*leaf.PlaceReply, error) { return reply.get().(*leaf.PlaceReply), nil }
	c := dial(t, &frame.Client{Addr: serveLeaf(t, member, frame.Limits{})})
	ctx := t.Context()

	calls := map[string]func(t *rapid.T) (request, answer any, err error){
		"Docs": func(t *rapid.T) (any, any, error) {
			req := &leaf.DocsRequest{Index: index.Draw(t, "index"), View: views.Draw(t, "view")}
			reply.set(&leaf.DocsReply{Meta: metasBelow.Draw(t, "meta"), Docs: u64.Draw(t, "docs")})
			r, err := c.Docs(ctx, req)
			return req, r, err
		},
		"Search": func(t *rapid.T) (any, any, error) {
			req := &leaf.SearchRequest{
				Index: index.Draw(t, "index"), View: views.Draw(t, "view"), Query: maybe(t, "query", exactTrees), Limit: rapid.IntRange(0, 4).Draw(t, "limit"),
				LocalStats: rapid.Bool().Draw(t, "local"),
			}
			out := &leaf.SearchReply{Meta: metasBelow.Draw(t, "meta"), Notes: list.Draw(t, "notes"), Stats: maybe(t, "stats", statistics), LocalStats: maybe(t, "local stats", statistics)}
			for range rapid.IntRange(0, req.Limit).Draw(t, "hits") {
				out.Hits = append(out.Hits, leaf.Hit{ID: text.Draw(t, "id"), Score: f32.Draw(t, "score")})
			}
			if rapid.Bool().Draw(t, "show") {
				show := shows.Draw(t, "show")
				req.Show, out.Plan = &show, objects.Draw(t, "plan")
				out.Shown = rapid.SliceOfN(shownDocs, len(out.Hits), len(out.Hits)).Draw(t, "shown")
			}
			reply.set(out)
			r, err := c.Search(ctx, req)
			return req, r, err
		},
		"Stats": func(t *rapid.T) (any, any, error) {
			req := &leaf.StatsRequest{View: views.Draw(t, "view"), Query: trees.Draw(t, "query")}
			reply.set(&leaf.StatsReply{Meta: metasBelow.Draw(t, "meta"), Stats: *statistics.Draw(t, "stats")})
			r, err := c.Stats(ctx, req)
			return req, r, err
		},
		"Aggregate": func(t *rapid.T) (any, any, error) {
			req := &leaf.AggregateRequest{View: views.Draw(t, "view")}
			reply.set(&leaf.AggregateReply{Meta: metasBelow.Draw(t, "meta")})
			r, err := c.Aggregate(ctx, req)
			if err == nil {
				r.State = nil // of no aggregation
			}
			return req, r, err
		},
		"KNN": func(t *rapid.T) (any, any, error) {
			req := &leaf.KNNRequest{View: views.Draw(t, "view"), KNN: *vectors.Draw(t, "vector")}
			reply.set(&leaf.KNNReply{Meta: metasBelow.Draw(t, "meta"), Docs: u64.Draw(t, "docs")})
			r, err := c.KNN(ctx, req)
			return req, r, err
		},
		"IDs": func(t *rapid.T) (any, any, error) {
			req := &leaf.IDsRequest{View: views.Draw(t, "view"), Limit: 1}
			reply.set(&leaf.IDsReply{Meta: metasBelow.Draw(t, "meta"), Next: anyStr.Draw(t, "next")})
			r, err := c.IDs(ctx, req, func([]string) error { return nil })
			return req, r, err
		},
		"Export": func(t *rapid.T) (any, any, error) {
			req := &leaf.ExportRequest{View: views.Draw(t, "view"), IDs: ids.Draw(t, "ids")}
			reply.set(&leaf.ExportReply{Meta: metasBelow.Draw(t, "meta"), Missing: req.IDs})
			r, err := c.Export(ctx, req, func(leaf.ExportedDoc) error { return nil })
			return req, r, err
		},
		"Has": func(t *rapid.T) (any, any, error) {
			req := &leaf.HasRequest{View: views.Draw(t, "view"), IDs: ids.Draw(t, "ids")}
			reply.set(&leaf.HasReply{Meta: metasBelow.Draw(t, "meta")})
			r, err := c.Has(ctx, req)
			return req, r, err
		},
		"DeleteMany": func(t *rapid.T) (any, any, error) {
			req := &leaf.DeleteRequest{View: views.Draw(t, "view"), IDs: ids.Draw(t, "ids")}
			reply.set(&leaf.DeleteReply{Meta: metasBelow.Draw(t, "meta"), Deleted: u64.Draw(t, "deleted")})
			r, err := c.DeleteMany(ctx, req)
			return req, r, err
		},
		"Index": func(t *rapid.T) (any, any, error) {
			req := &leaf.IndexRequest{View: views.Draw(t, "view"), Body: []byte(anyStr.Draw(t, "body")), Mark: leaf.Mark(rapid.Uint64().Draw(t, "mark")), Existing: rapid.Bool().Draw(t, "existing")}
			reply.set(&leaf.IndexReply{Meta: metasBelow.Draw(t, "meta"), Behind: leaf.Mark(rapid.Uint64().Draw(t, "behind")), WriteReply: api.WriteReply{OK: true, ID: text.Draw(t, "id")}})
			r, err := c.Index(ctx, req)
			return req, r, err
		},
		"Bulk": func(t *rapid.T) (any, any, error) {
			req := &leaf.BulkRequest{Index: index.Draw(t, "index"), View: leaf.View{Epoch: epochs.Draw(t, "epoch")}, Key: anyStr.Draw(t, "key"), Existing: rapid.Bool().Draw(t, "existing")}
			indexed := rapid.Uint64Range(0, 1).Draw(t, "indexed")
			out := &leaf.BulkReply{Meta: metasBelow.Draw(t, "meta"), Repeated: rapid.Bool().Draw(t, "repeated"), BulkReply: api.BulkReply{Indexed: indexed, Failed: 1 - indexed, OK: indexed == 1}}
			reply.set(out)
			r, err := c.Bulk(ctx, req, strings.NewReader("{}\n"))
			if err == nil {
				r.TookMicros = 0
			}
			return req, r, err
		},
		"Fetch": func(t *rapid.T) (any, any, error) {
			req := &leaf.FetchRequest{Index: index.Draw(t, "index"), View: views.Draw(t, "view"), IDs: ids.Draw(t, "ids"), Show: shows.Draw(t, "show")}
			if req.Show.Explain || req.Show.Highlight != nil {
				req.Query, req.Filters, req.DefaultFields = maybe(t, "query", exactTrees), rapid.SliceOfN(trees, 0, 2).Draw(t, "filters"), maybe(t, "default fields", ids)
			}
			req.Stats, req.KNN = maybe(t, "stats", statistics), maybe(t, "knn", vectors)
			// Notes stand once, too.
			out := &leaf.FetchReply{
				Meta: metasBelow.Draw(t, "meta"), Plan: objects.Draw(t, "plan"), Notes: rapid.SliceOfNDistinct(anyStr, 0, 4, rapid.ID[string]).Draw(t, "notes"),
				Docs: rapid.SliceOfN(shownDocs, len(req.IDs), len(req.IDs)).Draw(t, "shown"),
			}
			reply.set(out)
			r, err := c.Fetch(ctx, req)
			return req, r, err
		},
		"Indexes": func(t *rapid.T) (any, any, error) {
			got.set(nil)
			reply.set(&leaf.IndexesReply{Meta: metasBelow.Draw(t, "meta"), Indexes: rapid.SliceOfN(infos, 0, 4).Draw(t, "indexes")})
			r, err := c.Indexes(ctx, &leaf.IndexesRequest{})
			return nil, r, err
		},
		"PutIndex": func(t *rapid.T) (any, any, error) {
			req := &leaf.PutIndexRequest{Index: index.Draw(t, "index"), Epoch: epochs.Draw(t, "epoch"), Schema: anyStr.Draw(t, "schema")}
			reply.set(&leaf.PutIndexReply{Meta: metasBelow.Draw(t, "meta"), Made: rapid.Bool().Draw(t, "made"), Info: infos.Draw(t, "info")})
			r, err := c.PutIndex(ctx, req)
			return req, r, err
		},
		"DropIndex": func(t *rapid.T) (any, any, error) {
			req := &leaf.DropIndexRequest{Index: index.Draw(t, "index"), Epoch: epochs.Draw(t, "epoch")}
			reply.set(&leaf.DropIndexReply{Meta: metasBelow.Draw(t, "meta"), Info: infos.Draw(t, "info")})
			r, err := c.DropIndex(ctx, req)
			return req, r, err
		},
		"Sums": func(t *rapid.T) (any, any, error) {
			req := &leaf.SumsRequest{Index: index.Draw(t, "index"), View: views.Draw(t, "view")}
			out := &leaf.SumsReply{Meta: metasBelow.Draw(t, "meta")}
			n := 0
			if rapid.Bool().Draw(t, "ranged") {
				req.IDs = ids.Draw(t, "ids that are given too")
				req.Range, req.After, req.Limit = &leaf.HashRange{From: rapid.Uint32().Draw(t, "from"), To: rapid.Uint32().Draw(t, "to")}, anyStr.Draw(t, "after"), rapid.IntRange(5, leaf.MaxIDs).Draw(t, "limit")
				out.IDs, out.Next = ids.Draw(t, "ids"), anyStr.Draw(t, "next")
				n = len(out.IDs)
			} else {
				req.IDs = ids.Draw(t, "ids")
				n = len(req.IDs)
				if req.Fence = rapid.Bool().Draw(t, "fence"); req.Fence {
					out.Fence, out.Last = rapid.Uint64Min(1).Draw(t, "made"), rapid.Bool().Draw(t, "last")
					req.Mark = leaf.Mark(rapid.Uint64().Draw(t, "mark"))
					for at := range n {
						if rapid.Bool().Draw(t, "synced") {
							out.Synced = append(out.Synced, at)
						}
					}
				}
			}
			out.Sums = rapid.SliceOfN(sums, n, n).Draw(t, "sums")
			reply.set(out)
			r, err := c.Sums(ctx, req)
			return req, r, err
		},
		"Digest": func(t *rapid.T) (any, any, error) {
			req := &leaf.DigestRequest{Index: index.Draw(t, "index"), View: views.Draw(t, "view"), Depth: rapid.IntRange(0, 4).Draw(t, "depth")}
			n := 1 << req.Depth
			reply.set(&leaf.DigestReply{Meta: metasBelow.Draw(t, "meta"), Docs: rapid.SliceOfN(rapid.Uint32(), n, n).Draw(t, "docs"), Sums: rapid.SliceOfN(sums, n, n).Draw(t, "sums")})
			r, err := c.Digest(ctx, req)
			return req, r, err
		},
		"Sync": func(t *rapid.T) (any, any, error) {
			req := &leaf.SyncRequest{Index: index.Draw(t, "index"), View: leaf.View{Epoch: epochs.Draw(t, "epoch")}}
			out := &leaf.SyncReply{Meta: metasBelow.Draw(t, "meta")}
			refused := rapid.Bool().Draw(t, "refused")
			for range rapid.IntRange(0, 4).Draw(t, "items") {
				it := leaf.SyncItem{ID: anyStr.Draw(t, "id"), Expect: sums.Draw(t, "expect")}
				if rapid.Bool().Draw(t, "put") {
					it.Body = []byte(anyStr.Draw(t, "body"))
				}
				req.Items = append(req.Items, it)
				out.Applied = append(out.Applied, rapid.Bool().Draw(t, "applied"))
				out.Sums = append(out.Sums, sums.Draw(t, "sum"))
				if refused {
					out.Problems = append(out.Problems, maybe(t, "problem", faults))
				}
			}
			reply.set(out)
			r, err := c.Sync(ctx, req)
			return req, r, err
		},
		"Place": func(t *rapid.T) (any, any, error) {
			req := &leaf.PlaceRequest{Epoch: epochs.Draw(t, "epoch"), Map: rapid.SliceOf(rapid.Byte()).Draw(t, "map")}
			reply.set(&leaf.PlaceReply{Node: anyStr.Draw(t, "node"), Epoch: u64.Draw(t, "epoch of the reply"), Map: req.Map})
			r, err := c.Place(ctx, req)
			return req, r, err
		},
		"Placed": func(t *rapid.T) (any, any, error) {
			got.set(nil)
			reply.set(&leaf.PlaceReply{Node: anyStr.Draw(t, "node"), Epoch: u64.Draw(t, "epoch"), Map: rapid.SliceOf(rapid.Byte()).Draw(t, "map")})
			r, err := c.Placed(ctx)
			return nil, r, err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				sent, answer, err := call(t)
				if err != nil {
					t.Fatalf("%+v: %v", sent, err)
				}
				if d := cmp.Diff(sent, got.get(), everything); d != "" {
					t.Errorf("−asked +read\n%s", d)
				}
				if d := cmp.Diff(reply.get(), answer, everything); d != "" {
					t.Errorf("−given +read\n%s", d)
				}
				// A body that is there but empty is no deletion.
				if s, ok := sent.(*leaf.SyncRequest); ok {
					for i, it := range got.get().(*leaf.SyncRequest).Items {
						if (it.Body == nil) != (s.Items[i].Body == nil) {
							t.Errorf("item %d: %v became %v", i, s.Items[i].Body, it.Body)
						}
					}
				}
				if s, ok := sent.(*leaf.FetchRequest); ok && (s.Show.Fields == nil) != (got.get().(*leaf.FetchRequest).Show.Fields == nil) {
					t.Errorf("fields %v became %v", s.Show.Fields, got.get().(*leaf.FetchRequest).Show.Fields)
				}
			})
		})
	}
}

// What cannot travel is told before anything is sent: what is over a limit, and an explanation of a tree that would come to the node as
// another one with the same meaning.
func TestWhatAMemberCannotBeAsked(t *testing.T) {
	c := dial(t, &frame.Client{Addr: "127.0.0.1:1"})
	a := &query.Term{Field: "f", Text: "a"}
	nested := &query.Bool{Must: []query.Node{&query.Bool{Should: []query.Node{a}}, &query.Term{Field: "f", Text: "b"}}}
	for name, call := range map[string]struct {
		code api.Code
		do   func() error
	}{
		"a long map": {api.InvalidParameter, func() error {
			_, err := c.Place(t.Context(), &leaf.PlaceRequest{Epoch: 1, Map: make([]byte, leaf.MaxMap+1)})
			return err
		}},
		"too many shares": {api.InvalidParameter, func() error {
			_, err := c.Docs(t.Context(), &leaf.DocsRequest{View: leaf.View{Owned: make([]placement.Share, leaf.MaxShares+1)}})
			return err
		}},
		"too many ids": {api.InvalidParameter, func() error {
			_, err := c.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, leaf.MaxFetch+1)})
			return err
		}},
		"too many ids for sums": {api.InvalidParameter, func() error {
			_, err := c.Sums(t.Context(), &leaf.SumsRequest{IDs: make([]string, leaf.MaxIDs+1)})
			return err
		}},
		"too many items": {api.InvalidParameter, func() error {
			_, err := c.Sync(t.Context(), &leaf.SyncRequest{Items: make([]leaf.SyncItem, leaf.MaxSync+1)})
			return err
		}},
		"a long key": {api.InvalidParameter, func() error {
			_, err := c.Bulk(t.Context(), &leaf.BulkRequest{Key: strings.Repeat("k", leaf.MaxBulkKey+1)}, strings.NewReader("{}"))
			return err
		}},
		"a document that is not UTF-8": {api.InvalidUTF8, func() error {
			_, err := c.Sync(t.Context(), &leaf.SyncRequest{Items: []leaf.SyncItem{{ID: "a", Body: []byte("{\"a\":\"\xff\"}")}}})
			return err
		}},
		"a match": {api.InvalidQuery, func() error {
			_, err := c.Fetch(t.Context(), &leaf.FetchRequest{Show: leaf.Show{Highlight: &api.Highlight{}}, Query: &query.Match{Field: "f", Text: "a b"}})
			return err
		}},
		"a tree to explain": {api.InvalidQuery, func() error {
			_, err := c.Fetch(t.Context(), &leaf.FetchRequest{Show: leaf.Show{Explain: true}, Query: nested})
			return err
		}},
		"a tree to search and explain": {api.InvalidQuery, func() error {
			_, err := c.Search(t.Context(), &leaf.SearchRequest{Show: &leaf.Show{Explain: true}, Query: nested})
			return err
		}},
	} {
		if p, ok := errors.AsType[*api.Problem](call.do()); !ok || p.Code != call.code {
			t.Errorf("%s: %v", name, call.do())
		}
	}
	for name, show := range map[string]*leaf.Show{"nothing": nil, "marked": {Highlight: &api.Highlight{Fields: []string{"f"}}}} {
		w := begin(nil, opSearch, "", 0)
		if appendSearchRequest(w, &leaf.SearchRequest{Show: show, Query: nested}); w.prob != nil {
			t.Errorf("%s: %v", name, w.prob)
		}
	}
}

// A mark that is given alone has the usual one at its other end.
func TestMarks(t *testing.T) {
	for marks, want := range map[string][2]string{``: {}, `,"pre":"["`: {"[", "</em>"}, `,"post":"]"`: {"<em>", "]"}, `,"pre":"","post":""`: {}} {
		m, prob, _ := parseMessage([]byte(`{"op":"search","show":{"highlight":{"fields":["a"]` + marks + `}}}`))
		if prob != nil {
			t.Fatal(prob)
		}
		if s := m.show(); m.prob != nil || s.Highlight.Pre != want[0] || s.Highlight.Post != want[1] {
			t.Errorf("%s: %+v, %v", marks, s, m.prob)
		}
	}
}

// largeMember holds n documents of so many bytes each, and counts what it is asked for.
func largeMember(n, size int) (m *fakeMember, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	m = goldenMember()
	source := func(id string) []byte {
		return fmt.Appendf(nil, `{"id":%q,"x":%q}`, id, strings.Repeat("x", size))
	}
	m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
		asked.Add(int64(len(r.IDs)))
		out := &leaf.FetchReply{Meta: goldenMeta}
		for _, id := range r.IDs {
			out.Docs = append(out.Docs, leaf.Shown{Source: source(id)})
		}
		return out, nil
	}
	id := func(i int) string { return fmt.Sprintf("%s/%06d", strings.Repeat("i", 500), i) }
	m.sums = func(r *leaf.SumsRequest) (*leaf.SumsReply, error) {
		asked.Add(1)
		out := &leaf.SumsReply{Meta: goldenMeta}
		if r.Range == nil {
			for i := range r.IDs {
				out.Sums = append(out.Sums, sumOf(byte(len(r.IDs[i]))))
			}
			return out, nil
		}
		for i := range n {
			if id := id(i); id > r.After && len(out.IDs) < r.Limit {
				out.IDs, out.Sums = append(out.IDs, id), append(out.Sums, sumOf(byte(i)))
			}
		}
		if last := id(n - 1); len(out.IDs) > 0 && out.IDs[len(out.IDs)-1] < last {
			out.Next = out.IDs[len(out.IDs)-1]
		}
		return out, nil
	}
	return m, asked
}

// What no frame can hold at once comes in parts, all of it and in order.
func TestFetchGoesInParts(t *testing.T) {
	for _, c := range []struct {
		name        string
		docs, bytes int
		limits      frame.Limits
	}{
		{"many", 2500, 10, frame.Limits{}},
		{"long", 20, 1 << 20, frame.Limits{}},
		{"longer than a part", 2, 9 << 20, frame.Limits{}},
		{"small frames", 300, 2000, frame.Limits{MaxReply: 64 << 10}},
		{"none", 0, 10, frame.Limits{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, asked := largeMember(0, c.bytes)
			client := dial(t, &frame.Client{Addr: serveLeaf(t, m, c.limits)})
			var all []string
			for i := range c.docs {
				all = append(all, fmt.Sprint("doc ", i))
			}
			r, err := client.Fetch(t.Context(), &leaf.FetchRequest{IDs: all, Show: leaf.Show{Source: true}})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Docs) != c.docs {
				t.Fatalf("%d documents of %d", len(r.Docs), c.docs)
			}
			for i, d := range r.Docs {
				if want := fmt.Sprintf(`{"id":"doc %d","x":"`, i); !strings.HasPrefix(string(d.Source), want) || len(d.Source) != len(want)+c.bytes+2 {
					t.Fatalf("document %d: %.60s", i, d.Source)
				}
			}
			if n := asked.Load(); n > int64(3*c.docs) {
				t.Errorf("%d documents were made for %d", n, c.docs)
			}
		})
	}
	t.Run("a member that refuses long replies", func(t *testing.T) {
		m, _ := largeMember(0, 10)
		whole := m.fetch
		var most atomic.Int64 // ids of a request
		most.Store(7)
		m.fetch = func(r *leaf.FetchRequest) (*leaf.FetchReply, error) {
			if int64(len(r.IDs)) > most.Load() {
				return nil, api.NewProblem(api.ReplyTooLarge, "too much")
			}
			return whole(r)
		}
		client := dial(t, &frame.Client{Addr: serveLeaf(t, m, frame.Limits{})})
		r, err := client.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, 100), Show: leaf.Show{Source: true}})
		if err != nil || len(r.Docs) != 100 {
			t.Fatal(r, err)
		}
		most.Store(0)
		if _, err := client.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, 100), Show: leaf.Show{Source: true}}); err == nil || !strings.Contains(err.Error(), "too much") {
			t.Error(err)
		}
	})
	t.Run("a document that no frame holds", func(t *testing.T) {
		m, _ := largeMember(0, 100<<10)
		client := dial(t, &frame.Client{Addr: serveLeaf(t, m, frame.Limits{MaxReply: 64 << 10})})
		_, err := client.Fetch(t.Context(), &leaf.FetchRequest{IDs: []string{"a"}, Show: leaf.Show{Source: true}})
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.ReplyTooLarge {
			t.Error(err)
		}
		if _, err = client.Search(t.Context(), &leaf.SearchRequest{Limit: 2, Show: &leaf.Show{Source: true}}); err != nil {
			t.Error(err)
		}
	})
}

func TestSumsGoInParts(t *testing.T) {
	m, asked := largeMember(9_000, 0)
	client := dial(t, &frame.Client{Addr: serveLeaf(t, m, frame.Limits{})})
	all := make([]string, leaf.MaxIDs)
	for i := range all {
		all[i] = strings.Repeat("\x01", i%512)
	}
	r, err := client.Sums(t.Context(), &leaf.SumsRequest{IDs: all})
	if err != nil || len(r.Sums) != len(all) || asked.Load() < 2 {
		t.Fatalf("%d sums in %d parts, %v", len(r.Sums), asked.Load(), err)
	}
	for i, s := range r.Sums {
		if s != sumOf(byte(i%512)) {
			t.Fatalf("sum %d is %x", i, s)
		}
	}

	// A range gives what a frame holds, and says how to go on.
	for _, limits := range []frame.Limits{{}, {MaxReply: 1 << 20}} {
		client := dial(t, &frame.Client{Addr: serveLeaf(t, m, limits)})
		n, replies := 0, 0
		req := &leaf.SumsRequest{Range: &leaf.HashRange{To: math.MaxUint32}, Limit: leaf.MaxIDs}
		for {
			r, err := client.Sums(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.IDs {
				if !strings.HasSuffix(r.IDs[i], fmt.Sprintf("/%06d", n)) || r.Sums[i] != sumOf(byte(n)) {
					t.Fatalf("document %d: %s %x", n, r.IDs[i], r.Sums[i])
				}
				n++
			}
			replies++
			if req.After = r.Next; r.Next == "" {
				break
			}
		}
		if n != 9_000 || (replies > 1) != (limits.MaxReply > 0) {
			t.Errorf("%d documents in %d replies", n, replies)
		}
	}
}

// Documents go in frames of bounded length, each applied before the next; a load that breaks off says that a part of it may be in.
func TestSyncGoesInParts(t *testing.T) {
	m := goldenMember()
	var parts guarded[[]int]
	m.sync = func(r *leaf.SyncRequest) (*leaf.SyncReply, error) {
		parts.do(func(list *[]int) { *list = append(*list, len(r.Items)) })
		out := &leaf.SyncReply{Meta: goldenMeta}
		for i, it := range r.Items {
			out.Applied, out.Sums = append(out.Applied, true), append(out.Sums, sumOf(it.Body[0]))
			if it.ID == "doc 7" {
				out.Problems = make([]*api.Problem, len(r.Items))
				out.Problems[i] = &api.Problem{Code: api.TypeConflict}
			}
		}
		return out, nil
	}
	client := dial(t, &frame.Client{Addr: serveLeaf(t, m, frame.Limits{})})
	var items []leaf.SyncItem
	for i := range 10 {
		items = append(items, leaf.SyncItem{ID: fmt.Sprint("doc ", i), Body: []byte(strings.Repeat(string(rune('0'+i)), 600<<10))})
	}
	items[4].Body = []byte(strings.Repeat("4", 20<<20)) // more than any request without documents may have
	r, err := client.Sync(t.Context(), &leaf.SyncRequest{View: leaf.View{Epoch: 3}, Items: items})
	if err != nil {
		t.Fatal(err)
	}
	if sizes := parts.get(); !slices.Equal(sizes, []int{3, 1, 1, 3, 2}) {
		t.Errorf("parts of %v", sizes)
	}
	for i := range items {
		if p := r.Problems[i]; !r.Applied[i] || r.Sums[i] != sumOf(byte('0'+i)) || (p != nil) != (i == 7) {
			t.Errorf("item %d: %v %x %v", i, r.Applied[i], r.Sums[i], p)
		}
	}

	apply := m.sync
	for _, c := range []struct {
		name    string
		applied bool
	}{{"nothing is in", false}, {"a part is in", true}} {
		var calls atomic.Int64
		again := goldenMember()
		again.sync = func(r *leaf.SyncRequest) (*leaf.SyncReply, error) {
			if calls.Add(1) == 2 {
				return nil, api.NewProblem(api.StaleMap, "read the map anew")
			}
			out, err := apply(r)
			for i := range out.Applied {
				out.Applied[i] = c.applied
			}
			return out, err
		}
		client := dial(t, &frame.Client{Addr: serveLeaf(t, again, frame.Limits{})})
		_, err := client.Sync(t.Context(), &leaf.SyncRequest{Items: items})
		e, ok := errors.AsType[*leaf.TransportError](err)
		if ok != c.applied || ok && !e.MaybeApplied {
			t.Errorf("%s: %v", c.name, err)
		}
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.StaleMap {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A load with a key that fits into one frame goes by that key; the frames of a longer one have keys of their own, the same every time.
func TestKeysOfFrames(t *testing.T) {
	m := goldenMember()
	type state struct {
		taken map[string]bool
		keys  []string // of the frames of the load that was sent last
	}
	seen := guarded[state]{v: state{taken: map[string]bool{}}}
	load := m.fake.bulk
	m.fake.bulk = func(ctx context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
		if r.Epoch != 5 {
			t.Errorf("epoch %d", r.Epoch)
		}
		out, err := load(ctx, r, body)
		if err == nil {
			seen.do(func(s *state) {
				s.keys = append(s.keys, r.Key)
				out.Repeated, s.taken[r.Key] = s.taken[r.Key], true
			})
		}
		return out, err
	}
	client := dial(t, &frame.Client{Addr: serveLeaf(t, m, frame.Limits{}), MaxRequest: 256 << 10})
	var keys []string
	send := func(key string, lines int) *leaf.BulkReply {
		t.Helper()
		seen.do(func(s *state) { s.keys = nil })
		r, err := client.Bulk(t.Context(), &leaf.BulkRequest{View: leaf.View{Epoch: 5}, Key: key}, strings.NewReader(strings.Repeat(fmt.Sprintf("{\"x\":%q}\n", strings.Repeat("x", 20<<10)), lines)))
		if err != nil {
			t.Fatal(err)
		}
		keys = seen.get().keys
		return r
	}
	if r := send("one", 1); r.Repeated || !slices.Equal(keys, []string{"one"}) {
		t.Errorf("%v, keys %q", r.Repeated, keys)
	}
	if r := send("one", 1); !r.Repeated {
		t.Errorf("not repeated")
	}
	if r := send("", 4); r.Repeated || slices.ContainsFunc(keys, func(k string) bool { return k != "" }) {
		t.Errorf("%v, keys %q", r.Repeated, keys)
	}
	first := send("one", 4)
	was := keys
	if first.Repeated || len(was) < 3 || slices.Contains(was, "one") || len(slices.Compact(slices.Sorted(slices.Values(was)))) != len(was) || slices.ContainsFunc(was, func(k string) bool { return len(k) > leaf.MaxBulkKey }) {
		t.Errorf("%v, keys %q", first.Repeated, was)
	}
	seen.do(func(s *state) { delete(s.taken, was[1]) }) // as if the load had broken off
	if r := send("one", 4); r.Repeated || !slices.Equal(keys, was) {
		t.Errorf("%v, keys %q, before %q", r.Repeated, keys, was)
	}
	if r := send("one", 4); !r.Repeated {
		t.Error("not repeated")
	}
	if send("two", 4); slices.Equal(keys, was) {
		t.Error("the keys of another load are the same")
	}
}

// Parts of one call make one accounting: a shard that failed one of them has failed the call.
func TestBelowOfParts(t *testing.T) {
	of := func(docs uint64, list ...api.ShardOutcome) *leaf.Below {
		b := &leaf.Below{DocsCovered: docs, DocsTotal: docs + 1}
		for _, o := range list {
			b.Shards.Count(o)
		}
		return b
	}
	fine := func(n int) api.ShardOutcome {
		return api.ShardOutcome{Shard: n, Address: fmt.Sprint("a", n), Outcome: api.Answered, Micros: 10}
	}
	late := func(n int) api.ShardOutcome {
		return api.ShardOutcome{Shard: n, Address: fmt.Sprint("b", n), Outcome: api.TimedOut, Micros: 5}
	}
	with := func(o api.ShardOutcome, micros int64) api.ShardOutcome { o.Micros = micros; return o }
	for _, c := range []struct {
		name string
		a, b *leaf.Below
		want *leaf.Below
	}{
		{"none", nil, nil, nil},
		{"the first", of(1, fine(0)), nil, of(1, fine(0))},
		{"the second", nil, of(1, late(0)), of(1, late(0))},
		{"both fine", of(1, fine(0), fine(1)), of(1, fine(0), fine(1)), of(1, with(fine(0), 20), with(fine(1), 20))},
		{"one failed the first", of(1, late(0), fine(1)), of(3, fine(0), fine(1)), &leaf.Below{DocsCovered: 1, DocsTotal: 4, Shards: of(0, with(late(0), 15), with(fine(1), 20)).Shards}},
		{"one failed the second", of(3, fine(0)), of(1, late(0)), &leaf.Below{DocsCovered: 1, DocsTotal: 4, Shards: of(0, with(late(0), 15)).Shards}},
		{"one more", of(1, fine(0)), of(1, fine(0), late(1)), of(1, with(fine(0), 20), late(1))},
	} {
		var m leaf.Meta
		addMeta(&m, &leaf.Meta{Below: c.a})
		addMeta(&m, &leaf.Meta{Below: c.b})
		if d := cmp.Diff(c.want, m.Below); d != "" {
			t.Errorf("%s: −want +got\n%s", c.name, d)
		}
	}
}

// A reply to a write that finds no room says what was done, or at least that something may have been.
func TestRepliesOfAMemberWithoutRoom(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	m := goldenMember()
	info := api.IndexInfo{Name: "books", Docs: 3, Schema: long}
	m.putIndex = func(*leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
		return &leaf.PutIndexReply{Made: true, Info: info}, nil
	}
	m.dropIndex = func(*leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
		return &leaf.DropIndexReply{Info: info}, nil
	}
	m.sync = func(*leaf.SyncRequest) (*leaf.SyncReply, error) {
		return &leaf.SyncReply{Applied: []bool{true, false}, Sums: make([]leaf.Sum, 2), Problems: []*api.Problem{nil, {Code: api.TypeConflict, Detail: long}}}, nil
	}
	m.place = func(r *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
		return &leaf.PlaceReply{Epoch: r.Epoch, Map: []byte(long)}, nil
	}
	m.indexes = func() (*leaf.IndexesReply, error) { return &leaf.IndexesReply{Indexes: []api.IndexInfo{info}}, nil }
	full := func(context.Context, int) (func(), error) {
		return nil, &api.Problem{Code: api.RequestMemoryFull, Detail: "full", RetryAfterMS: retryMS}
	}
	for name, o := range map[string]HandlerOptions{"sent": {Send: full}, "too long": {MaxReply: 64 << 10}} {
		h := NewHandler(m, o)
		code := `{"ok":false,"code":"request_memory_full"`
		if name == "too long" {
			code = `{"ok":false,"code":"reply_too_large"`
		}
		for request, want := range map[string][]string{
			`{"op":"indexes"}`:                  {code},
			`{"op":"put_index"}`:                {code, `"maybe_applied":true`},
			`{"op":"place","epoch":1,"map":""}`: {code, `"maybe_applied":true`},
			`{"op":"drop_index"}`:               {`{"ok":true`, `"docs":3`, `"schema":""`},
			`{"op":"sync","items":[{"id":"a","expect":null},{"id":"b","expect":null}]}`: {`{"ok":true,"applied":[true,false]`, `"problems":[null,{"code":"type_conflict"`},
		} {
			got := string(h.Handle(t.Context(), []byte(request), nil).Body)
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("%s, %s: %.200s, want %s", name, request, got, w)
				}
			}
			if strings.Contains(request, "indexes") && strings.Contains(got, "maybe_applied") {
				t.Errorf("%s, %s: %.200s", name, request, got)
			}
		}
	}
	// The client takes it for a write that may be in.
	m.place = func(r *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
		return &leaf.PlaceReply{Epoch: r.Epoch, Map: []byte(strings.Repeat(long, 8))}, nil
	}
	c := dial(t, &frame.Client{Addr: serveLeaf(t, m, frame.Limits{MaxReply: 64 << 10})})
	if e, ok := errors.AsType[*leaf.TransportError](func() error { _, err := c.Place(t.Context(), &leaf.PlaceRequest{Epoch: 1}); return err }()); !ok || !e.MaybeApplied {
		t.Errorf("%v", e)
	}
}

// A member that answers for another number of documents than it was asked for is not believed, on either side.
func TestAnswersForOtherDocuments(t *testing.T) {
	m := goldenMember()
	m.fetch = func(*leaf.FetchRequest) (*leaf.FetchReply, error) {
		return &leaf.FetchReply{Docs: make([]leaf.Shown, 2)}, nil
	}
	m.sums = func(*leaf.SumsRequest) (*leaf.SumsReply, error) {
		return &leaf.SumsReply{Sums: make([]leaf.Sum, 2)}, nil
	}
	m.fake.search = func(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) {
		return &leaf.SearchReply{Hits: make([]leaf.Hit, 2)}, nil
	}
	h := NewHandler(m, HandlerOptions{})
	for _, request := range []string{
		`{"op":"fetch","ids":["a"],"show":{}}`, `{"op":"sums","ids":["a"]}`, `{"op":"sums","range":{"from":0,"to":1}}`, `{"op":"search","show":{}}`,
	} {
		if got := string(h.Handle(t.Context(), []byte(request), nil).Body); !strings.HasPrefix(got, `{"ok":false,"code":"internal"`) {
			t.Errorf("%s: %s", request, got)
		}
	}
	ranged := func(b []byte) error { _, _, err := readSumsReply(b, 3, true); return err }
	for name, err := range map[string]error{
		"search": func() error {
			_, _, err := readSearchReply([]byte(`{"ok":true,"hits":[["a",1,null]],"total_relation":"none"}`), &leaf.SearchRequest{Limit: 2, Show: &leaf.Show{}})
			return err
		}(),
		"fetch":       func() error { _, _, err := readFetchReply([]byte(`{"ok":true,"shown":[{}]}`), 2); return err }(),
		"fetch, more": func() error { _, _, err := readFetchReply([]byte(`{"ok":true,"shown":[{},{}]}`), 1); return err }(),
		"fetch, no object": func() error {
			_, _, err := readFetchReply([]byte(`{"ok":true,"shown":[{"source":[]}]}`), 1)
			return err
		}(),
		"sums":        func() error { _, _, err := readSumsReply([]byte(`{"ok":true,"sums":[null]}`), 2, false); return err }(),
		"sums, short": func() error { _, _, err := readSumsReply([]byte(`{"ok":true,"sums":["00"]}`), 1, false); return err }(),
		"range":       ranged([]byte(`{"ok":true,"ids":["a"],"sums":[]}`)),
		"range, more": ranged([]byte(`{"ok":true,"ids":["a","b","c","d"],"sums":[null,null,null,null]}`)),
		"digest": func() error {
			_, _, err := readDigestReply([]byte(`{"ok":true,"docs":[0],"sums":[null]}`), 1)
			return err
		}(),
		"digest, much": func() error {
			_, _, err := readDigestReply([]byte(`{"ok":true,"docs":[4294967296],"sums":[null]}`), 0)
			return err
		}(),
		"sync": func() error {
			_, _, err := readSyncReply([]byte(`{"ok":true,"applied":[true],"sums":[]}`), 1)
			return err
		}(),
		"sync, problems": func() error {
			_, _, err := readSyncReply([]byte(`{"ok":true,"applied":[true],"sums":[null],"problems":[]}`), 1)
			return err
		}(),
		"sync, no problem": func() error {
			_, _, err := readSyncReply([]byte(`{"ok":true,"applied":[true],"sums":[null],"problems":[{}]}`), 1)
			return err
		}(),
		"place": func() error { _, _, err := readPlaceReply([]byte(`{"ok":true,"map":"e"}`)); return err }(),
	} {
		if !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a client does not know is passed over.
	r, prob, err := readFetchReply([]byte(`{"ok":true,"shown":[{"source":{},"new":[1]}],"more":{},"below":{"x":1,"shards":{"y":[],"total":1,"failed":1,"outcomes":[{"z":0}]}}}`), 1)
	if prob != nil || err != nil || len(r.Docs) != 1 || len(r.Below.Shards.Outcomes) != 1 {
		t.Errorf("%+v, %v, %v", r, prob, err)
	}
}
