package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
)

// member is a leaf.Member that remembers what it was asked for last, and answers what it was told to.
type member struct {
	*fake
	reply any // zero of what is asked for if it is something else
	err   error
	body  string // of the last load
	got   any
}

func answer[R any](m *member, req any) (*R, error) {
	m.got = req
	if m.err != nil {
		return nil, m.err
	}
	if r, ok := m.reply.(*R); ok {
		return r, nil
	}
	return new(R), nil
}

func (m *member) Docs(_ context.Context, r *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return answer[leaf.DocsReply](m, r)
}

func (m *member) Search(_ context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return answer[leaf.SearchReply](m, r)
}

func (m *member) Stats(_ context.Context, r *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return answer[leaf.StatsReply](m, r)
}

func (m *member) Aggregate(_ context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return answer[leaf.AggregateReply](m, r)
}

func (m *member) KNN(_ context.Context, r *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return answer[leaf.KNNReply](m, r)
}

func (m *member) IDs(_ context.Context, r *leaf.IDsRequest, _ func([]string) error) (*leaf.IDsReply, error) {
	return answer[leaf.IDsReply](m, r)
}

func (m *member) Export(_ context.Context, r *leaf.ExportRequest, _ func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return answer[leaf.ExportReply](m, r)
}

func (m *member) Has(_ context.Context, r *leaf.HasRequest) (*leaf.HasReply, error) {
	return answer[leaf.HasReply](m, r)
}

func (m *member) DeleteMany(_ context.Context, r *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return answer[leaf.DeleteReply](m, r)
}

func (m *member) Index(_ context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return answer[leaf.IndexReply](m, r)
}

func (m *member) Bulk(_ context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	m.body = string(b)
	return answer[leaf.BulkReply](m, r)
}

func (m *member) Fetch(_ context.Context, r *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return answer[leaf.FetchReply](m, r)
}

func (m *member) Indexes(_ context.Context, r *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return answer[leaf.IndexesReply](m, r)
}

func (m *member) PutIndex(_ context.Context, r *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return answer[leaf.PutIndexReply](m, r)
}

func (m *member) DropIndex(_ context.Context, r *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return answer[leaf.DropIndexReply](m, r)
}

func (m *member) Sums(_ context.Context, r *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return answer[leaf.SumsReply](m, r)
}

func (m *member) Digest(_ context.Context, r *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return answer[leaf.DigestReply](m, r)
}

func (m *member) Sync(_ context.Context, r *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return answer[leaf.SyncReply](m, r)
}

func (m *member) Place(_ context.Context, r *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return answer[leaf.PlaceReply](m, r)
}

func (m *member) Placed(context.Context) (*leaf.PlaceReply, error) {
	return answer[leaf.PlaceReply](m, nil)
}

// clusterCalls are the calls of a member with small requests.
func clusterCalls(r *rig) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Fetch":     func(ctx context.Context) error { _, err := r.Fetch(ctx, &leaf.FetchRequest{}); return err },
		"Indexes":   func(ctx context.Context) error { _, err := r.Indexes(ctx, &leaf.IndexesRequest{}); return err },
		"PutIndex":  func(ctx context.Context) error { _, err := r.PutIndex(ctx, &leaf.PutIndexRequest{}); return err },
		"DropIndex": func(ctx context.Context) error { _, err := r.DropIndex(ctx, &leaf.DropIndexRequest{}); return err },
		"Sums":      func(ctx context.Context) error { _, err := r.Sums(ctx, &leaf.SumsRequest{}); return err },
		"Digest":    func(ctx context.Context) error { _, err := r.Digest(ctx, &leaf.DigestRequest{}); return err },
		"Sync":      func(ctx context.Context) error { _, err := r.Sync(ctx, &leaf.SyncRequest{}); return err },
		"Place":     func(ctx context.Context) error { _, err := r.Place(ctx, &leaf.PlaceRequest{}); return err },
		"Placed":    func(ctx context.Context) error { _, err := r.Placed(ctx); return err },
	}
}

var writingCalls = map[string]bool{"PutIndex": true, "DropIndex": true, "Sync": true, "Place": true}

// A leaf that is no member refuses what only a member can do.
func TestALeafThatIsNoMember(t *testing.T) {
	r := start(t, &fake{}, ServerOptions{}, Options{})
	for name, call := range clusterCalls(r) {
		if err := call(t.Context()); code(err) != api.MethodNotAllowed || leaf.ClassOf(err) != leaf.Never {
			t.Errorf("%s: %v", name, err)
		}
	}
	allBack(t, r.server)
}

func TestProblemsOfAMemberArrive(t *testing.T) {
	m := &member{fake: &fake{}, err: api.NewProblem(api.StaleMap, "the map has epoch 7").On("epoch").Within(7)}
	r := start(t, m, ServerOptions{}, Options{})
	for name, call := range clusterCalls(r) {
		err := call(t.Context())
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Code != api.StaleMap || p.Limit != 7 || leaf.ClassOf(err) != leaf.Never {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A member that goes away in the middle of a call that writes may have applied it.
func TestWritesOfAMemberThatDies(t *testing.T) {
	for name := range clusterCalls(nil) {
		arrived := make(chan struct{})
		r := start(t, &hanging{member: &member{fake: &fake{}}, arrived: arrived}, ServerOptions{}, Options{})
		done := make(chan error, 1)
		go func() { done <- clusterCalls(r)[name](context.Background()) }()
		<-arrived
		r.stop()
		err := <-done
		if e := transport(t, err); e.MaybeApplied != writingCalls[name] || e.Call != name {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// hanging is a member whose calls of a cluster never end by themselves.
type hanging struct {
	*member
	arrived chan struct{}
}

func (h *hanging) hang(ctx context.Context) error {
	close(h.arrived)
	<-ctx.Done()
	return context.Cause(ctx)
}

func (h *hanging) Fetch(ctx context.Context, _ *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) Indexes(ctx context.Context, _ *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) PutIndex(ctx context.Context, _ *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) DropIndex(ctx context.Context, _ *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) Sums(ctx context.Context, _ *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) Digest(ctx context.Context, _ *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) Sync(ctx context.Context, _ *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) Place(ctx context.Context, _ *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return nil, h.hang(ctx)
}

func (h *hanging) Placed(ctx context.Context) (*leaf.PlaceReply, error) { return nil, h.hang(ctx) }

var (
	sum = rapid.Custom(func(t *rapid.T) leaf.Sum {
		return leaf.Sum(rapid.SliceOfN(rapid.Byte(), sumSize, sumSize).Draw(t, "sum"))
	})
	indexInfo = rapid.Custom(func(t *rapid.T) api.IndexInfo {
		return api.IndexInfo{
			Name: text.Draw(t, "name"), Docs: rapid.Uint64().Draw(t, "docs"), Segments: rapid.Int().Draw(t, "segments"), Bytes: rapid.Int64().Draw(t, "bytes"),
			Schema: text.Draw(t, "schema"), Dynamic: rapid.Bool().Draw(t, "dynamic"), State: text.Draw(t, "state"), Reason: text.Draw(t, "reason"),
		}
	})
	problem = rapid.Custom(func(t *rapid.T) *api.Problem {
		if rapid.Bool().Draw(t, "no problem") {
			return nil
		}
		p := api.NewProblem(api.InvalidBody, text.Draw(t, "detail")).On(text.Draw(t, "field"))
		p.Line = rapid.Int().Draw(t, "line")
		return p
	})
)

func sums(t *rapid.T, n int) []leaf.Sum { return rapid.SliceOfN(sum, n, n).Draw(t, "sums") }

func fetchRequest(t *rapid.T) *leaf.FetchRequest {
	r := &leaf.FetchRequest{
		Index: name.Draw(t, "index"), View: view(t), IDs: rapid.SliceOfN(anyKey, 0, 5).Draw(t, "ids"), Query: maybe(t), Filters: filters(t),
		DefaultFields: fields(t), Stats: termStats(t),
	}
	if s := show(t); s != nil {
		r.Show = *s
	}
	if rapid.Bool().Draw(t, "knn") {
		k := vector(t)
		r.KNN = &k
	}
	return r
}

func sumsRequest(t *rapid.T) *leaf.SumsRequest {
	r := &leaf.SumsRequest{Index: name.Draw(t, "index"), View: view(t), IDs: rapid.SliceOfN(anyKey, 0, 5).Draw(t, "ids")}
	if rapid.Bool().Draw(t, "range") {
		r.IDs, r.After, r.Limit = nil, anyKey.Draw(t, "after"), rapid.IntRange(0, leaf.MaxIDs).Draw(t, "limit")
		r.Range = &leaf.HashRange{From: rapid.Uint32().Draw(t, "from"), To: rapid.Uint32().Draw(t, "to")}
	} else {
		r.Fence, r.Mark = rapid.Bool().Draw(t, "fence"), leaf.Mark(rapid.Uint64().Draw(t, "mark"))
	}
	return r
}

func syncRequest(t *rapid.T) *leaf.SyncRequest {
	return &leaf.SyncRequest{
		Index: name.Draw(t, "index"), View: view(t), Items: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) leaf.SyncItem {
			return leaf.SyncItem{ID: anyKey.Draw(t, "id"), Expect: sum.Draw(t, "expect"), Body: part.Draw(t, "body")}
		}), 0, 5).Draw(t, "items"),
	}
}

// Requests and replies are the same on both sides, with every field that they have.
func TestClusterCallsKeepEverything(t *testing.T) {
	m := &member{fake: &fake{}}
	r := start(t, m, ServerOptions{}, Options{})
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		fetch := fetchRequest(t)
		fetched := &leaf.FetchReply{Meta: meta(t), Docs: shown(t, len(fetch.IDs)), Notes: rapid.SliceOfN(text, 0, 2).Draw(t, "notes"), Plan: part.Draw(t, "plan")}
		m.reply = fetched
		gotFetched, err := r.Fetch(ctx, fetch)
		same(t, m.got, fetch)
		same(t, read(t, gotFetched, err), fetched)
		sameShown(t, gotFetched.Docs, fetched.Docs)

		indexes := &leaf.IndexesReply{Meta: meta(t), Indexes: rapid.SliceOfN(indexInfo, 0, 3).Draw(t, "indexes")}
		m.reply = indexes
		gotIndexes, err := r.Indexes(ctx, &leaf.IndexesRequest{})
		same(t, read(t, gotIndexes, err), indexes)

		put := &leaf.PutIndexRequest{Index: name.Draw(t, "index"), Epoch: rapid.Uint64().Draw(t, "epoch"), Schema: text.Draw(t, "schema")}
		made := &leaf.PutIndexReply{Meta: meta(t), Made: rapid.Bool().Draw(t, "made"), Info: indexInfo.Draw(t, "info")}
		m.reply = made
		gotMade, err := r.PutIndex(ctx, put)
		same(t, m.got, put)
		same(t, read(t, gotMade, err), made)

		drop := &leaf.DropIndexRequest{Index: name.Draw(t, "index"), Epoch: rapid.Uint64().Draw(t, "epoch")}
		dropped := &leaf.DropIndexReply{Meta: meta(t), Info: indexInfo.Draw(t, "info")}
		m.reply = dropped
		gotDropped, err := r.DropIndex(ctx, drop)
		same(t, m.got, drop)
		same(t, read(t, gotDropped, err), dropped)

		ask := sumsRequest(t)
		given := &leaf.SumsReply{Meta: meta(t), Next: anyKey.Draw(t, "next"), Last: rapid.Bool().Draw(t, "last")}
		n := len(ask.IDs)
		if ask.Range != nil {
			n = min(ask.Limit, rapid.IntRange(0, 5).Draw(t, "n"))
			given.IDs = rapid.SliceOfN(anyKey, n, n).Draw(t, "found")
		}
		for at := range n {
			if rapid.Bool().Draw(t, "synced") {
				given.Synced = append(given.Synced, at)
			}
		}
		given.Sums = sums(t, n)
		m.reply = given
		gotGiven, err := r.Sums(ctx, ask)
		same(t, m.got, ask)
		same(t, read(t, gotGiven, err), given)

		digest := &leaf.DigestRequest{Index: name.Draw(t, "index"), View: view(t), Depth: rapid.IntRange(0, 3).Draw(t, "depth")}
		ranges := 1 << digest.Depth
		digested := &leaf.DigestReply{Meta: meta(t), Docs: rapid.SliceOfN(rapid.Uint32(), ranges, ranges).Draw(t, "docs"), Sums: sums(t, ranges)}
		m.reply = digested
		gotDigested, err := r.Digest(ctx, digest)
		same(t, m.got, digest)
		same(t, read(t, gotDigested, err), digested)

		sync := syncRequest(t)
		n = len(sync.Items)
		synced := &leaf.SyncReply{Meta: meta(t), Applied: rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "applied"), Sums: sums(t, n)}
		if n > 0 && rapid.Bool().Draw(t, "problems") {
			synced.Problems = rapid.SliceOfN(problem, n, n).Draw(t, "problems")
			synced.Problems[0] = api.NewProblem(api.InvalidBody, "")
		}
		m.reply = synced
		gotSynced, err := r.Sync(ctx, sync)
		same(t, m.got, sync)
		for i, item := range m.got.(*leaf.SyncRequest).Items {
			if (item.Body == nil) != (sync.Items[i].Body == nil) {
				t.Fatalf("item %d: a document is deleted, or the other way round", i)
			}
		}
		same(t, read(t, gotSynced, err), synced)
		if (gotSynced.Problems == nil) != (synced.Problems == nil) {
			t.Fatalf("problems: %v", gotSynced.Problems)
		}

		place := &leaf.PlaceRequest{Epoch: rapid.Uint64().Draw(t, "epoch"), Map: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "map")}
		placed := &leaf.PlaceReply{Node: text.Draw(t, "node"), Epoch: rapid.Uint64().Draw(t, "epoch"), Map: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "map")}
		m.reply = placed
		gotPlaced, err := r.Place(ctx, place)
		same(t, m.got, place)
		same(t, read(t, gotPlaced, err), placed)
		gotPlaced, err = r.Placed(ctx)
		same(t, read(t, gotPlaced, err), placed)
	})
	allBack(t, r.server)
}

// What the calls of every leaf carry for a cluster: a view, the accounting of what is below, what is shown of hits, the key of a load.
func TestCallsOfEveryLeafCarryTheCluster(t *testing.T) {
	m := &member{fake: &fake{}}
	r := start(t, m, ServerOptions{}, Options{})
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		v, about := view(t), meta(t)
		check := func(req, want any, reply func() (any, error)) {
			t.Helper()
			m.reply = want
			got, err := reply()
			if err != nil {
				t.Fatal(err)
			}
			same(t, m.got, req)
			same(t, got, want)
		}
		docs := &leaf.DocsRequest{View: v}
		check(docs, &leaf.DocsReply{Meta: about}, func() (any, error) { return r.Docs(ctx, docs) })
		stats := &leaf.StatsRequest{View: v}
		check(stats, &leaf.StatsReply{Meta: about}, func() (any, error) { return r.Stats(ctx, stats) })
		aggregate := &leaf.AggregateRequest{View: v}
		check(aggregate, &leaf.AggregateReply{Meta: about}, func() (any, error) { return r.Aggregate(ctx, aggregate) })
		knn := &leaf.KNNRequest{View: v}
		check(knn, &leaf.KNNReply{Meta: about}, func() (any, error) { return r.KNN(ctx, knn) })
		ids := &leaf.IDsRequest{View: v}
		check(ids, &leaf.IDsReply{Meta: about}, func() (any, error) { return r.IDs(ctx, ids, nil) })
		export := &leaf.ExportRequest{View: v}
		check(export, &leaf.ExportReply{Meta: about}, func() (any, error) { return r.Export(ctx, export, nil) })
		has := &leaf.HasRequest{View: v}
		check(has, &leaf.HasReply{Meta: about}, func() (any, error) { return r.Has(ctx, has) })
		del := &leaf.DeleteRequest{View: v}
		check(del, &leaf.DeleteReply{Meta: about}, func() (any, error) { return r.DeleteMany(ctx, del) })
		index := &leaf.IndexRequest{View: v, Body: []byte("{}"), Mark: leaf.Mark(rapid.Uint64().Draw(t, "mark")), Existing: rapid.Bool().Draw(t, "existing")}
		check(index, &leaf.IndexReply{Meta: about, Behind: leaf.Mark(rapid.Uint64().Draw(t, "behind"))}, func() (any, error) { return r.Index(ctx, index) })

		bulk := &leaf.BulkRequest{Index: name.Draw(t, "index"), View: v, Key: anyKey.Draw(t, "key"), Existing: rapid.Bool().Draw(t, "existing")}
		body := text.Draw(t, "body")
		check(bulk, &leaf.BulkReply{Meta: about, Repeated: rapid.Bool().Draw(t, "repeated")}, func() (any, error) { return r.Bulk(ctx, bulk, strings.NewReader(body)) })
		if m.body != body {
			t.Fatalf("the body is %q, and not %q", m.body, body)
		}

		n := rapid.IntRange(0, 4).Draw(t, "hits")
		search := &leaf.SearchRequest{View: v, Limit: n, Show: show(t), LocalStats: rapid.Bool().Draw(t, "local")}
		found := &leaf.SearchReply{Meta: about, Hits: make([]leaf.Hit, n), LocalStats: termStats(t), Plan: part.Draw(t, "plan")}
		if search.Show != nil {
			found.Shown = shown(t, n)
		}
		check(search, found, func() (any, error) { return r.Search(ctx, search) })
	})
	allBack(t, r.server)
}

// shares makes a view with so many shares.
func shares(n int) leaf.View {
	var v leaf.View
	for range n {
		v.Owned = append(v.Owned, placement.Share{Spec: placement.Spec{Rule: placement.Modulo, Shards: 2}, Ordinal: 1})
	}
	return v
}

// wireShares is shares as a message.
func wireShares(n int) *pb.View {
	o := &pb.Shares{}
	for range n {
		o.Rules, o.Shards = append(o.Rules, byte(pb.PlacementRule_PLACEMENT_MODULO)), append(o.Shards, 2)
		o.Vnodes, o.Ordinals = append(o.Vnodes, 0), append(o.Ordinals, 1)
	}
	return &pb.View{Owned: o}
}

// What is refused before it is sent is refused by the server too, with the same words; what is at the bound is not.
func TestBoundsOfClusterRequests(t *testing.T) {
	items := func(n int) []leaf.SyncItem { return make([]leaf.SyncItem, n) }
	texts := func(n int) *pb.Texts { return &pb.Texts{Lengths: make([]uint32, n)} }
	sync := func(n int) error {
		_, err := unpackSync(&pb.SyncRequest{Ids: texts(n), Ops: make([]byte, n), Expect: make([]byte, sumSize*n)})
		return err
	}
	fetch := func(n int) error {
		_, err := unpackFetch(&pb.FetchRequest{Ids: texts(n)}, query.Limits{})
		return err
	}
	place := func(n int) error { _, err := unpackPlace(&pb.PlaceRequest{Map: make([]byte, n)}); return err }
	key := func(n int) error { _, err := unpackBulk(&pb.BulkRequest{Key: make([]byte, n)}); return err }
	depth := func(n uint32) error { _, err := unpackDigestRequest(&pb.DigestRequest{Depth: n}); return err }
	limit := func(n uint32) error { _, err := unpackSumsRequest(&pb.SumsRequest{Limit: n}); return err }
	asked := func(n int) error { _, err := unpackSumsRequest(&pb.SumsRequest{Ids: texts(n)}); return err }
	viewed := func(v leaf.View, m *pb.View) [2]error {
		_, packErr := packView(&v)
		_, unpackErr := unpackView(m)
		return [2]error{packErr, unpackErr}
	}
	other := func(change func(*placement.Share), wire func(*pb.Shares)) [2]error {
		v, m := shares(1), wireShares(1)
		change(&v.Owned[0])
		wire(m.Owned)
		return viewed(v, m)
	}
	for _, c := range []struct {
		name  string
		field string // of the problem; empty: there is none
		limit int64  // 0: there is none
		errs  [2]error
	}{
		{"10,000 ids", "", 0, [2]error{err2(packFetch(&leaf.FetchRequest{IDs: make([]string, leaf.MaxFetch)})), fetch(leaf.MaxFetch)}},
		{"10,001 ids", "ids", leaf.MaxFetch, [2]error{err2(packFetch(&leaf.FetchRequest{IDs: make([]string, leaf.MaxFetch+1)})), fetch(leaf.MaxFetch + 1)}},
		{"1,000 items", "", 0, [2]error{err2(packSync(&leaf.SyncRequest{Items: items(leaf.MaxSync)})), sync(leaf.MaxSync)}},
		{"1,001 items", "items", leaf.MaxSync, [2]error{err2(packSync(&leaf.SyncRequest{Items: items(leaf.MaxSync + 1)})), sync(leaf.MaxSync + 1)}},
		{"depth 16", "", 0, [2]error{err2(packDigestRequest(&leaf.DigestRequest{Depth: leaf.MaxDepth})), depth(leaf.MaxDepth)}},
		{"depth 17", "depth", leaf.MaxDepth, [2]error{err2(packDigestRequest(&leaf.DigestRequest{Depth: leaf.MaxDepth + 1})), depth(leaf.MaxDepth + 1)}},
		{"depth -1", "depth", leaf.MaxDepth, [2]error{err2(packDigestRequest(&leaf.DigestRequest{Depth: -1})), depth(math.MaxUint32)}},
		{"10,000 sums", "", 0, [2]error{err2(packSumsRequest(&leaf.SumsRequest{IDs: make([]string, leaf.MaxIDs)})), asked(leaf.MaxIDs)}},
		{"10,001 sums", "ids", leaf.MaxIDs, [2]error{err2(packSumsRequest(&leaf.SumsRequest{IDs: make([]string, leaf.MaxIDs+1)})), asked(leaf.MaxIDs + 1)}},
		{"limit 10,000", "", 0, [2]error{err2(packSumsRequest(&leaf.SumsRequest{Limit: leaf.MaxIDs})), limit(leaf.MaxIDs)}},
		{"limit 10,001", "limit", leaf.MaxIDs, [2]error{err2(packSumsRequest(&leaf.SumsRequest{Limit: leaf.MaxIDs + 1})), limit(leaf.MaxIDs + 1)}},
		{"limit -1", "limit", leaf.MaxIDs, [2]error{err2(packSumsRequest(&leaf.SumsRequest{Limit: -1})), limit(math.MaxUint32)}},
		{"a map of 1 MiB", "", 0, [2]error{err2(packPlace(&leaf.PlaceRequest{Map: make([]byte, leaf.MaxMap)})), place(leaf.MaxMap)}},
		{"a longer map", "map", leaf.MaxMap, [2]error{err2(packPlace(&leaf.PlaceRequest{Map: make([]byte, leaf.MaxMap+1)})), place(leaf.MaxMap + 1)}},
		{"a key of 128 bytes", "", 0, [2]error{err2(packBulk(&leaf.BulkRequest{Key: strings.Repeat("k", leaf.MaxBulkKey)})), key(leaf.MaxBulkKey)}},
		{"a longer key", "key", leaf.MaxBulkKey, [2]error{err2(packBulk(&leaf.BulkRequest{Key: strings.Repeat("k", leaf.MaxBulkKey+1)})), key(leaf.MaxBulkKey + 1)}},
		{"8 shares", "", 0, viewed(shares(leaf.MaxShares), wireShares(leaf.MaxShares))},
		{"9 shares", "owned", leaf.MaxShares, viewed(shares(leaf.MaxShares+1), wireShares(leaf.MaxShares+1))},
		{"no rule", "owned", 0, other(func(s *placement.Share) { s.Rule = "" }, func(m *pb.Shares) { m.Rules[0] = 0 })},
		{"the last shard of most", "", 0, other(func(s *placement.Share) { s.Shards, s.Ordinal = placement.MaxShards, placement.MaxShards-1 },
			func(m *pb.Shares) { m.Shards[0], m.Ordinals[0] = placement.MaxShards, placement.MaxShards-1 })},
		{"too many shards", "owned", 0, other(func(s *placement.Share) { s.Shards = placement.MaxShards + 1 },
			func(m *pb.Shares) { m.Shards[0] = placement.MaxShards + 1 })},
		{"no shards", "owned", 0, other(func(s *placement.Share) { s.Shards = 0 }, func(m *pb.Shares) { m.Shards[0] = 0 })},
		{"a shard too far", "owned", 0, other(func(s *placement.Share) { s.Ordinal = 2 }, func(m *pb.Shares) { m.Ordinals[0] = 2 })},
		{"too many virtual nodes", "owned", 0, other(func(s *placement.Share) { s.VNodes = placement.MaxVNodes + 1 },
			func(m *pb.Shares) { m.Vnodes[0] = placement.MaxVNodes + 1 })},
		{"huge fragments", "highlight", maxCount, [2]error{
			err2(packShow(&leaf.Show{Highlight: &api.Highlight{Fragments: -1}})),
			err2(unpackShow(&pb.Show{Highlight: &pb.Highlight{Fragments: math.MaxUint32}})),
		}},
	} {
		for i, err := range c.errs {
			if c.field == "" {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			p, ok := errors.AsType[*api.Problem](err)
			if !ok || p.Code != api.InvalidParameter || p.Field != c.field || p.Limit != c.limit {
				t.Errorf("%s, %d: %v", c.name, i, err)
			}
		}
		if c.field != "" && c.errs[0] != nil && c.errs[1] != nil && c.errs[0].Error() != c.errs[1].Error() {
			t.Errorf("%s: %v before it is sent, %v behind", c.name, c.errs[0], c.errs[1])
		}
	}
	unknown := wireShares(1)
	unknown.Owned.Rules[0] = 200
	short := wireShares(2)
	short.Owned.Ordinals = short.Owned.Ordinals[:1]
	for name, err := range map[string]error{
		"an unknown rule":     err2(unpackView(unknown)),
		"columns":             err2(unpackView(short)),
		"an operation":        err2(unpackSync(&pb.SyncRequest{Ids: texts(1), Ops: []byte{7}, Expect: make([]byte, sumSize)})),
		"no checksum":         err2(unpackSync(&pb.SyncRequest{Ids: texts(1), Ops: []byte{0}})),
		"no document":         err2(unpackSync(&pb.SyncRequest{Ids: texts(1), Ops: []byte{1}, Expect: make([]byte, sumSize)})),
		"no operation":        err2(unpackSync(&pb.SyncRequest{Ids: texts(1), Expect: make([]byte, sumSize)})),
		"lengths of a put":    err2(unpackSync(&pb.SyncRequest{Ids: texts(1), Ops: []byte{1}, Expect: make([]byte, sumSize), Bodies: &pb.Texts{Lengths: []uint32{4}}})),
		"lengths of ids":      err2(unpackSync(&pb.SyncRequest{Ids: &pb.Texts{Lengths: []uint32{4}}, Ops: []byte{0}, Expect: make([]byte, sumSize)})),
		"lengths in a fetch":  err2(unpackFetch(&pb.FetchRequest{Ids: &pb.Texts{Lengths: []uint32{4}}}, query.Limits{})),
		"a vector in a fetch": err2(unpackFetch(&pb.FetchRequest{Knn: &pb.KNNRequest{K: math.MaxUint32}}, query.Limits{})),
		"filters of a fetch":  err2(unpackFetch(&pb.FetchRequest{Filters: make([]*pb.Query, api.MaxFilters+1)}, query.Limits{})),
		"stats of a fetch":    err2(unpackFetch(&pb.FetchRequest{Stats: &pb.TermStats{Df: make([]uint64, leaf.MaxStatsTerms+1)}}, query.Limits{})),
	} {
		if _, ok := errors.AsType[*api.Problem](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func err2[T any](_ T, err error) error { return err }

// Every request that has a view is refused with a bad one, by the client and by the server.
func TestEveryViewIsChecked(t *testing.T) {
	r := start(t, &member{fake: &fake{}}, ServerOptions{}, Options{})
	ctx, v, m := t.Context(), shares(leaf.MaxShares+1), wireShares(leaf.MaxShares+1)
	for name, err := range map[string]error{
		"docs":      err2(r.Docs(ctx, &leaf.DocsRequest{View: v})),
		"search":    err2(r.Search(ctx, &leaf.SearchRequest{View: v})),
		"stats":     err2(r.Stats(ctx, &leaf.StatsRequest{View: v})),
		"aggregate": err2(r.Aggregate(ctx, &leaf.AggregateRequest{View: v})),
		"knn":       err2(r.KNN(ctx, &leaf.KNNRequest{View: v})),
		"ids":       err2(r.IDs(ctx, &leaf.IDsRequest{View: v}, nil)),
		"export":    err2(r.Export(ctx, &leaf.ExportRequest{View: v}, nil)),
		"has":       err2(r.Has(ctx, &leaf.HasRequest{View: v})),
		"delete":    err2(r.DeleteMany(ctx, &leaf.DeleteRequest{View: v})),
		"index":     err2(r.Index(ctx, &leaf.IndexRequest{View: v})),
		"bulk":      err2(r.Bulk(ctx, &leaf.BulkRequest{View: v}, forbidden{t})),
		"fetch":     err2(r.Fetch(ctx, &leaf.FetchRequest{View: v})),
		"sums":      err2(r.Sums(ctx, &leaf.SumsRequest{View: v})),
		"digest":    err2(r.Digest(ctx, &leaf.DigestRequest{View: v})),
		"sync":      err2(r.Sync(ctx, &leaf.SyncRequest{View: v})),
	} {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Field != "owned" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := r.server.Counters(); c.Calls != 0 {
		t.Errorf("the client sent %d calls", c.Calls)
	}
	none := query.Limits{}
	for name, err := range map[string]error{
		"docs":      err2(unpackDocs(&pb.DocsRequest{View: m})),
		"search":    err2(unpackSearch(&pb.SearchRequest{View: m}, none)),
		"stats":     err2(unpackStatsRequest(&pb.StatsRequest{View: m}, none)),
		"aggregate": err2(unpackAggregate(&pb.AggregateRequest{View: m}, none)),
		"knn":       err2(unpackKNN(&pb.KNNRequest{View: m}, none)),
		"ids":       err2(unpackIDsRequest(&pb.IDsRequest{View: m})),
		"export":    err2(unpackExport(&pb.ExportRequest{View: m})),
		"has":       err2(unpackHas(&pb.HasRequest{View: m})),
		"delete":    err2(unpackDelete(&pb.DeleteManyRequest{View: m})),
		"index":     err2(unpackIndex(&pb.IndexRequest{View: m})),
		"bulk":      err2(unpackBulk(&pb.BulkRequest{View: m})),
		"fetch":     err2(unpackFetch(&pb.FetchRequest{View: m}, none)),
		"sums":      err2(unpackSumsRequest(&pb.SumsRequest{View: m})),
		"digest":    err2(unpackDigestRequest(&pb.DigestRequest{View: m})),
		"sync":      err2(unpackSync(&pb.SyncRequest{View: m})),
	} {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Field != "owned" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Replies that do not fit their requests are refused, and those at the bound are not.
func TestBoundsOfClusterReplies(t *testing.T) {
	local := func(n int) *pb.SearchReply {
		s := &score.Stats{DF: map[score.Term]uint64{}}
		for i := range n {
			s.DF[score.Term{Field: "f", Text: fmt.Sprint(i)}] = 1
		}
		return &pb.SearchReply{LocalStats: packStats(s)}
	}
	bad := &pb.Meta{Below: &pb.Below{Outcomes: []byte{1}}}
	one, two := packTexts([]string{"a"}), packTexts([]string{"a", "b"})
	byRange := &leaf.SumsRequest{Range: &leaf.HashRange{}, Limit: 1}
	byID := &leaf.SumsRequest{IDs: []string{"a"}}
	search := func(m *pb.SearchReply) error { return err2(unpackSearchReply(m, 0, 2)) }
	shown := func(m *pb.Shown) error { return err2(unpackShown(m, 1)) }
	synced := func(applied, refused []byte, problems int) error {
		m := &pb.SyncReply{Applied: applied, Sums: make([]byte, 2*sumSize), Problems: repeat(problems, func() *pb.Problem { return &pb.Problem{} })}
		for _, r := range refused {
			m.Refused = append(m.Refused, uint32(r))
		}
		return err2(unpackSyncReply(m, 2))
	}
	for name, c := range map[string]struct {
		err error
		ok  bool
	}{
		"4,096 local terms":    {search(local(leaf.MaxLocalStats)), true},
		"4,097 local terms":    {search(local(leaf.MaxLocalStats + 1)), false},
		"shown for no hits":    {search(&pb.SearchReply{Shown: &pb.Shown{Parts: []byte{0}}}), false},
		"nothing shown":        {search(&pb.SearchReply{Shown: &pb.Shown{}}), true},
		"one shown, two hits":  {search(&pb.SearchReply{Ids: two, Scores: []float32{1, 2}, Shown: &pb.Shown{Parts: []byte{0}}}), false},
		"a part":               {shown(&pb.Shown{Parts: []byte{2}, Sources: one}), true},
		"missing":              {shown(&pb.Shown{Parts: []byte{1}}), true},
		"all parts":            {shown(&pb.Shown{Parts: []byte{31}, Sources: one, Highlights: one, Lexical: one, Vectors: one}), true},
		"an unknown part":      {shown(&pb.Shown{Parts: []byte{32}}), false},
		"no source":            {shown(&pb.Shown{Parts: []byte{2}}), false},
		"two sources":          {shown(&pb.Shown{Parts: []byte{2}, Sources: two}), false},
		"a source for nothing": {shown(&pb.Shown{Parts: []byte{4}, Sources: one}), false},
		"short sources":        {shown(&pb.Shown{Parts: []byte{2}, Sources: &pb.Texts{Lengths: []uint32{1}}}), false},
		"a sum by id":          {err2(unpackSumsReply(&pb.SumsReply{Sums: make([]byte, sumSize)}, byID)), true},
		"ids that were known":  {err2(unpackSumsReply(&pb.SumsReply{Ids: one, Sums: make([]byte, sumSize)}, byID)), false},
		"too few sums":         {err2(unpackSumsReply(&pb.SumsReply{}, byID)), false},
		"half a sum":           {err2(unpackSumsReply(&pb.SumsReply{Sums: make([]byte, 8)}, byID)), false},
		"a sum by range":       {err2(unpackSumsReply(&pb.SumsReply{Ids: one, Sums: make([]byte, sumSize)}, byRange)), true},
		"more than the limit":  {err2(unpackSumsReply(&pb.SumsReply{Ids: two, Sums: make([]byte, 2*sumSize)}, byRange)), false},
		"places":               {err2(unpackSumsReply(&pb.SumsReply{Sums: make([]byte, sumSize), Synced: []uint32{0}}, byID)), true},
		"a place beyond":       {err2(unpackSumsReply(&pb.SumsReply{Sums: make([]byte, sumSize), Synced: []uint32{1}}, byID)), false},
		"a place again":        {err2(unpackSumsReply(&pb.SumsReply{Sums: make([]byte, sumSize), Synced: []uint32{0, 0}}, byID)), false},
		"sums without ids":     {err2(unpackSumsReply(&pb.SumsReply{Sums: make([]byte, sumSize)}, byRange)), false},
		"two ranges":           {err2(unpackDigestReply(&pb.DigestReply{Docs: []uint32{1, 2}, Sums: make([]byte, 2*sumSize)}, 1)), true},
		"one range":            {err2(unpackDigestReply(&pb.DigestReply{Docs: []uint32{1}, Sums: make([]byte, 2*sumSize)}, 1)), false},
		"one digest":           {err2(unpackDigestReply(&pb.DigestReply{Docs: []uint32{1, 2}, Sums: make([]byte, sumSize)}, 1)), false},
		"synced":               {synced([]byte{0, 1}, []byte{0, 1}, 2), true},
		"applied to one":       {synced([]byte{0}, nil, 0), false},
		"neither":              {synced([]byte{0, 2}, nil, 0), false},
		"problems of none":     {synced([]byte{0, 1}, nil, 1), false},
		"place too far":        {synced([]byte{0, 1}, []byte{2}, 1), false},
		"places that go back":  {synced([]byte{0, 1}, []byte{1, 0}, 2), false},
		"a place twice":        {synced([]byte{0, 1}, []byte{1, 1}, 2), false},
		"a map of 1 MiB":       {err2(unpackPlaceReply(&pb.PlaceReply{Map: make([]byte, leaf.MaxMap)})), true},
		"a longer map":         {err2(unpackPlaceReply(&pb.PlaceReply{Map: make([]byte, leaf.MaxMap+1)})), false},
		"below: columns":       {err2(unpackMeta(bad)), false},
		"below: a place":       {err2(unpackMeta(&pb.Meta{Below: &pb.Below{Outcomes: []byte{1}, Shards: []uint32{1 << 31}, Addresses: one, Micros: []int64{0}}})), false},
		"below: an address":    {err2(unpackMeta(&pb.Meta{Below: &pb.Below{Outcomes: []byte{1}, Shards: []uint32{1}, Addresses: &pb.Texts{Lengths: []uint32{1}}, Micros: []int64{0}}})), false},
		"docs, below":          {err2(unpackDocsReply(&pb.DocsReply{Meta: bad})), false},
		"info, below":          {err2(unpackInfo(&pb.InfoReply{Meta: bad})), false},
		"search, below":        {search(&pb.SearchReply{Meta: bad}), false},
		"stats, below":         {err2(unpackStatsReply(&pb.StatsReply{Meta: bad})), false},
		"aggregate, below":     {err2(unpackAggregateReply(&pb.AggregateReply{Meta: bad}, &leaf.AggregateRequest{}, Options{}.Agg)), false},
		"knn, below":           {err2(unpackKNNReply(&pb.KNNReply{Meta: bad}, 1)), false},
		"has, below":           {err2(unpackHasReply(&pb.HasReply{Meta: bad}, 1)), false},
		"delete, below":        {err2(unpackDeleteReply(&pb.DeleteManyReply{Meta: bad})), false},
		"index, below":         {err2(unpackIndexReply(&pb.IndexReply{Meta: bad})), false},
		"bulk, below":          {err2(unpackBulkReply(&pb.BulkReply{Meta: bad})), false},
		"indexes, below":       {err2(unpackIndexes(&pb.IndexesReply{Meta: bad})), false},
		"put, below":           {err2(unpackPutIndexReply(&pb.PutIndexReply{Meta: bad})), false},
		"drop, below":          {err2(unpackDropIndexReply(&pb.DropIndexReply{Meta: bad})), false},
		"sums, below":          {err2(unpackSumsReply(&pb.SumsReply{Meta: bad}, &leaf.SumsRequest{})), false},
		"digest, below":        {err2(unpackDigestReply(&pb.DigestReply{Meta: bad, Docs: []uint32{1}, Sums: make([]byte, sumSize)}, 0)), false},
		"sync, below":          {err2(unpackSyncReply(&pb.SyncReply{Meta: bad}, 0)), false},
	} {
		if (c.err == nil) != c.ok {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	// An outcome that is not known is never taken for one that covers a shard.
	b, err := unpackBelow(&pb.Below{Outcomes: []byte{0, 1, 200}, Shards: []uint32{0, 1, 2}, Addresses: packTexts([]string{"a", "b", "c"}), Micros: []int64{1, 2, 3}})
	if err != nil || b.Shards.OK != 1 || b.Shards.Failed != 2 || b.Shards.Outcomes[2].Outcome != api.Failed {
		t.Errorf("%+v, %v", b, err)
	}
	strange := packBelow(&leaf.Below{Shards: api.Shards{Outcomes: []api.ShardOutcome{{Shard: -1, Outcome: "strange"}}}})
	if pb.ShardOutcome(strange.Outcomes[0]) != pb.ShardOutcome_OUTCOME_FAILED || strange.Shards[0] != 0 {
		t.Errorf("%+v", strange)
	}
}

// The largest replies of the calls that have bounds of their own arrive.
func TestLargestClusterReplies(t *testing.T) {
	const n = 1 << leaf.MaxDepth
	id := strings.Repeat("i", 512)
	digest := &leaf.DigestReply{Docs: make([]uint32, n), Sums: make([]leaf.Sum, n)}
	found := &leaf.SumsReply{IDs: make([]string, leaf.MaxIDs), Sums: make([]leaf.Sum, leaf.MaxIDs)}
	for i := range n {
		digest.Docs[i], digest.Sums[i][3] = math.MaxUint32, byte(i)
	}
	for i := range found.IDs {
		found.IDs[i], found.Sums[i][5] = id, byte(i)
	}
	m := &member{fake: &fake{}, reply: digest}
	r := start(t, m, ServerOptions{}, Options{})
	gotDigest, err := r.Digest(t.Context(), &leaf.DigestRequest{Depth: leaf.MaxDepth})
	if err != nil {
		t.Fatal(err)
	}
	alike(t, *gotDigest, *digest)
	m.reply = found
	gotSums, err := r.Sums(t.Context(), &leaf.SumsRequest{Range: &leaf.HashRange{To: math.MaxUint32}, Limit: leaf.MaxIDs})
	if err != nil {
		t.Fatal(err)
	}
	alike(t, *gotSums, *found)

	// Each document of a Sync is refused with all that a problem may say.
	synced := &leaf.SyncReply{Applied: make([]bool, leaf.MaxSync), Sums: make([]leaf.Sum, leaf.MaxSync), Problems: make([]*api.Problem, leaf.MaxSync)}
	items := make([]leaf.SyncItem, leaf.MaxSync)
	long := strings.Repeat("x", maxProblem)
	for i := range synced.Problems {
		p := api.NewProblem(api.InvalidBody, long).On(long)
		p.Expected, p.Extra = long, []byte(long)
		synced.Problems[i] = p
	}
	m.reply = synced
	gotSynced, err := r.Sync(t.Context(), &leaf.SyncRequest{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range gotSynced.Problems {
		if p.Code != api.InvalidBody || p.Detail != long[:maxSyncProblem/4] || p.Extra != nil {
			t.Fatalf("problem %d: %v", i, p.Code)
		}
	}
	allBack(t, r.server)
}

// alike is same for what is too large to be shown.
func alike[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%T is another", got)
	}
}

// sized makes documents of such sizes.
func sized(sizes ...int) []leaf.Shown {
	docs := make([]leaf.Shown, len(sizes))
	for i, n := range sizes {
		docs[i].Source = bytes.Repeat([]byte{byte('a' + i%26)}, n)
	}
	return docs
}

// Fetch comes in messages that are bounded by documents and by bytes, and a large document comes alone.
func TestFetchPages(t *testing.T) {
	sizes := make([]int, 2500)
	for i := range sizes {
		sizes[i] = 10
	}
	sizes = append(sizes, 1<<20, 0, 100<<10, 100<<10, 100<<10)
	docs := sized(sizes...)
	for i := range 2000 {
		docs[i] = leaf.Shown{Missing: i%3 == 0, Highlight: []byte("h"), Lexical: []byte("l"), Vector: []byte("v"), Source: docs[i].Source}
	}
	r := start(t, &member{fake: &fake{}, reply: &leaf.FetchReply{Docs: docs, Plan: []byte("{}")}}, ServerOptions{}, Options{})
	got, err := r.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, len(docs))})
	if err != nil {
		t.Fatal(err)
	}
	alike(t, got.Docs, docs)
	if docs[0].Lexical == nil {
		t.Error("the reply of the leaf was changed")
	}
	s := rawCall(t, r, "Fetch", grpc.StreamDesc{ServerStreams: true})
	if err := s.SendMsg(&envelope{message: &pb.FetchRequest{}}); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var counts []int
	for {
		var m pb.FetchReply
		if err := s.RecvMsg(&envelope{message: &m}); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n := len(m.Docs.GetParts())
		if size := proto.Size(&m); n > 1 && size > maxPageBytes {
			t.Errorf("a message of %d documents has %d bytes", n, size)
		}
		counts = append(counts, n)
	}
	same(t, counts, []int{1000, 1000, 500, 1, 3, 1, 0})
	_, err = r.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, len(docs)-1)})
	transport(t, err) // more than were asked for
	_, err = r.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, len(docs)+1)})
	transport(t, err) // fewer
	allBack(t, r.server)
}

// What is shown has the bound of one reply, whether it comes in one message or in many, on both sides.
func TestWhatIsShownHasABound(t *testing.T) {
	const most = 1 << 20
	m := &member{fake: &fake{}}
	r := start(t, m, ServerOptions{MaxReply: most}, Options{})
	ids := make([]string, 10)
	fits := sized(most-9*1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000)
	fits[3].Lexical, fits[3].Source = fits[3].Source, nil
	m.reply = &leaf.FetchReply{Docs: fits}
	got, err := r.Fetch(t.Context(), &leaf.FetchRequest{IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	alike(t, got.Docs, fits)
	over := append([]leaf.Shown(nil), fits...)
	over[9].Vector = []byte("1")
	m.reply = &leaf.FetchReply{Docs: over}
	if _, err := r.Fetch(t.Context(), &leaf.FetchRequest{IDs: ids}); code(err) != api.ReplyTooLarge {
		t.Error(err)
	}
	search := &leaf.SearchRequest{Limit: 10, Show: &leaf.Show{Source: true}}
	m.reply = &leaf.SearchReply{Hits: make([]leaf.Hit, 10), Shown: over}
	if _, err := r.Search(t.Context(), search); code(err) != api.ReplyTooLarge {
		t.Error(err)
	}
	m.reply = &leaf.SearchReply{Hits: make([]leaf.Hit, 10), Shown: fits}
	if _, err := r.Search(t.Context(), search); code(err) != api.ReplyTooLarge { // with the hits around them
		t.Error(err)
	}
	fits[0].Source = fits[0].Source[:most-9*1000-200]
	if reply, err := r.Search(t.Context(), search); err != nil || len(reply.Shown) != 10 {
		t.Error(err)
	}
	m.reply = &leaf.SearchReply{Hits: make([]leaf.Hit, 10)}
	_, err = r.Search(t.Context(), search)
	transport(t, err) // nothing is shown

	m.reply = &leaf.FetchReply{Docs: sized(1000, 1000)}
	small := start(t, m, ServerOptions{}, Options{MaxReply: 2000})
	if _, err := small.Fetch(t.Context(), &leaf.FetchRequest{IDs: ids[:2]}); err != nil {
		if e := transport(t, err); !strings.Contains(e.Error(), "2000") {
			t.Error(err)
		}
	}
	pages := sized(200<<10, 200<<10, 200<<10)
	m.reply = &leaf.FetchReply{Docs: pages}
	for bound, ok := range map[int]bool{600 << 10: true, 600<<10 - 1: false} {
		few := start(t, m, ServerOptions{}, Options{MaxReply: bound})
		_, err := few.Fetch(t.Context(), &leaf.FetchRequest{IDs: ids[:3]})
		if ok && err != nil {
			t.Errorf("%d bytes: %v", bound, err)
		} else if !ok {
			transport(t, err)
		}
	}
	allBack(t, r.server)
}

// What is shown and not sent yet is charged, until a caller who takes nothing of it is cut off.
func TestShownDocumentsAreChargedUntilTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 20 << 20
		sizes := make([]int, 1000)
		for i := range sizes {
			sizes[i] = size / 1000
		}
		r := start(t, &member{fake: &fake{}, reply: &leaf.FetchReply{Docs: sized(sizes...)}}, ServerOptions{Memory: 66 << 20}, Options{})
		p := rawDial(t, r, 1000)
		for range 5 {
			p.call("Fetch", &pb.FetchRequest{})
			synctest.Wait()
		}
		// The memory holds 3.
		if c := r.server.Counters(); c.Running != 3 || c.Refused != 2 {
			t.Errorf("%+v", c)
		}
		if n := r.server.o.Memory - free(r.server); n < 3*(size-1<<20) || n > 3*(size+1<<20) {
			t.Errorf("%d bytes are charged for 3 replies of %d", n, size)
		}
		if n := r.server.working.Load(); n != 0 {
			t.Errorf("%d calls are worked on, and all wait", n)
		}
		timer := time.NewTimer(61 * time.Second)
		<-timer.C
		if c := r.server.Counters(); c.Running != 0 || c.Stalled != 3 {
			t.Errorf("%+v", c)
		}
		<-p.gone
		synctest.Wait()
		allBack(t, r.server)
		p.close()

		// The caller that leaves in the middle, and the one that takes all.
		p = rawDial(t, r, 1000)
		defer p.close()
		id := p.call("Fetch", &pb.FetchRequest{})
		synctest.Wait()
		p.reset(id)
		synctest.Wait()
		allBack(t, r.server)
		for range 3 {
			if _, err := r.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, 1000)}); err != nil {
				t.Error(err)
			}
		}
		allBack(t, r.server)
	})
}

// A reply that alone is larger than the memory still gets out, piece by piece.
func TestShownDocumentsThatFillTheMemory(t *testing.T) {
	docs := sized(300<<10, 300<<10, 300<<10, 300<<10, 300<<10, 300<<10)
	r := start(t, &member{fake: &fake{}, reply: &leaf.FetchReply{Docs: docs}}, ServerOptions{MaxMessage: 512 << 10, MaxRequest: 512 << 10, Memory: 1}, Options{})
	got, err := r.Fetch(t.Context(), &leaf.FetchRequest{IDs: make([]string, len(docs))})
	if err != nil {
		t.Fatal(err)
	}
	alike(t, got.Docs, docs)
	allBack(t, r.server)
}

// A load that was taken before is answered without a look at its body, however long that is.
func TestLoadsThatWereTakenBefore(t *testing.T) {
	f := &fake{bulk: func(_ context.Context, req *leaf.BulkRequest, _ io.Reader) (*leaf.BulkReply, error) {
		if req.Key != "k" {
			return nil, api.NewProblem(api.LoadUnderWay, "the load is under way")
		}
		return &leaf.BulkReply{Repeated: true, BulkReply: api.BulkReply{Indexed: 7}}, nil
	}}
	r := start(t, f, ServerOptions{}, Options{})
	for range 50 {
		reply, err := r.Bulk(t.Context(), &leaf.BulkRequest{Key: "k"}, strings.NewReader(strings.Repeat("{}\n", 1<<20)))
		if err != nil || !reply.Repeated || reply.Indexed != 7 {
			t.Fatalf("%+v, %v", reply, err)
		}
		if _, err := r.Bulk(t.Context(), &leaf.BulkRequest{Key: "other"}, strings.NewReader("{}\n")); code(err) != api.LoadUnderWay {
			t.Fatal(err)
		}
	}
	allBack(t, r.server)
}

// Columns are counted before anything is made of them.
func TestClusterColumnsAreCountedBeforeTheyAreUnpacked(t *testing.T) {
	const n = 4 << 20
	texts := &pb.Texts{Lengths: make([]uint32, n)}
	numbers, column := make([]uint32, n), make([]byte, n)
	for name, unpack := range map[string]func() error{
		"ids of a fetch": func() error { return err2(unpackFetch(&pb.FetchRequest{Ids: texts}, query.Limits{})) },
		"ids of sums":    func() error { return err2(unpackSumsRequest(&pb.SumsRequest{Ids: texts})) },
		"items":          func() error { return err2(unpackSync(&pb.SyncRequest{Ids: texts})) },
		"operations":     func() error { return err2(unpackSync(&pb.SyncRequest{Ops: column})) },
		"documents":      func() error { return err2(unpackSync(&pb.SyncRequest{Bodies: texts})) },
		"shares":         func() error { return err2(unpackView(&pb.View{Owned: &pb.Shares{Rules: column}})) },
		"numbers":        func() error { return err2(unpackView(&pb.View{Owned: &pb.Shares{Ordinals: numbers}})) },
		"sums":           func() error { return err2(unpackSumsReply(&pb.SumsReply{Ids: texts}, &leaf.SumsRequest{})) },
		"bytes of sums":  func() error { return err2(unpackSumsReply(&pb.SumsReply{Sums: column}, &leaf.SumsRequest{})) },
		"digests":        func() error { return err2(unpackDigestReply(&pb.DigestReply{Docs: numbers}, 0)) },
		"applied":        func() error { return err2(unpackSyncReply(&pb.SyncReply{Applied: column}, 1)) },
		"shown":          func() error { return err2(unpackShown(&pb.Shown{Parts: column}, 1)) },
		"sources":        func() error { return err2(unpackShown(&pb.Shown{Parts: []byte{0}, Sources: texts}, 1)) },
		"outcomes":       func() error { return err2(unpackBelow(&pb.Below{Outcomes: column})) },
		"local stats": func() error {
			return err2(unpackSearchReply(&pb.SearchReply{LocalStats: &pb.TermStats{Df: make([]uint64, 0, 1), Terms: &pb.TermList{Field: numbers}}}, 0, 1))
		},
		"local documents": func() error {
			return err2(unpackSearchReply(&pb.SearchReply{LocalStats: &pb.TermStats{Df: make([]uint64, leaf.MaxLocalStats+1)}}, 0, 1))
		},
	} {
		var err error
		if d := allocated(func() { err = unpack() }); d > 1<<20 || err == nil {
			t.Errorf("%s: %d bytes were allocated before %v", name, d, err)
		}
	}
}

// A search without a view, without documents and local statistics costs no more than it did before there were such.
func TestAllocPlainSearch(t *testing.T) {
	req := &leaf.SearchRequest{Limit: 200, Sort: []exec.SortKey{{By: exec.ByField, Field: "n"}}}
	out, err := packSearch(req)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := proto.Marshal(packSearchReply(hits(200, 0), 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		most float64
		what func() error
	}{
		"the request":      {3, func() error { return err2(packSearch(req)) }},
		"the request read": {2, func() error { return err2(unpackSearch(out, query.Limits{})) }},
		"the reply": {9, func() error {
			packSearchReply(hits200, 0)
			return nil
		}},
		"the reply read": {17, func() error {
			var m pb.SearchReply
			if err := decodeOptions.Unmarshal(reply, &m); err != nil {
				return err
			}
			return err2(unpackSearchReply(&m, 0, 200))
		}},
	} {
		got := testing.AllocsPerRun(100, func() {
			if err := c.what(); err != nil {
				t.Fatal(err)
			}
		})
		if got > c.most {
			t.Errorf("%s: %v allocations, and %v before", name, got, c.most)
		}
	}
}

var hits200 = hits(200, 0)
