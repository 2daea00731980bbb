package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
)

const summaNotes = `index notes { field id: text<raw> [primary, stored] field t: text [indexed, stored] }`

// all searches for every document and returns the values of a field.
func (s *summaNode) all(index, field string) []string {
	s.t.Helper()
	r, err := s.search.Search(context.Background(), &summapb.SearchRequest{
		IndexName: index, Limit: 1000, FieldsToLoad: []string{field}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	out := []string{}
	for _, h := range r.Hits {
		for _, v := range h.Fields[field].GetValues() {
			out = append(out, v.GetText())
		}
	}
	slices.Sort(out)
	return out
}

func (s *summaNode) batch(index string, docs ...*summapb.NamedDocument) *summapb.BatchIndexDocumentsResponse {
	s.t.Helper()
	r, err := s.index.BatchIndexDocuments(context.Background(), &summapb.BatchIndexDocumentsRequest{IndexName: index, Documents: docs})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// TestSummaAndHTTPShareIndexes writes and reads an index over both, whoever made it.
func TestSummaAndHTTPShareIndexes(t *testing.T) {
	s := newSummaNode(t, Config{})
	s.create("notes", summaNotes)
	want := func(index string, ids ...string) {
		t.Helper()
		if got := s.all(index, "id"); !slices.Equal(got, ids) && len(got)+len(ids) > 0 {
			t.Errorf("%s over Summa: %v, want %v", index, got, ids)
		}
		got, _ := s.ids("/search?q=*&sort=id&index=" + index)
		if !slices.Equal(got, ids) && len(got)+len(ids) > 0 {
			t.Errorf("%s over HTTP: %v, want %v", index, got, ids)
		}
	}
	s.batch("notes", summaText("id", "1", "t", "warp"))
	if m := s.put("notes", `{"id":"2","t":"weft"}`); m["staged"] != true {
		t.Errorf("a write over HTTP: %v", m)
	}
	want("notes")
	if n := s.commit("notes"); n != 2 {
		t.Errorf("%d documents", n)
	}
	want("notes", "1", "2")
	s.batch("notes", summaText("id", "3"))
	s.do("POST", "/commit?index=notes", "", "").want(200)
	want("notes", "1", "2", "3")

	s.put("loose", `{"id":"1","title":"inferred"}`)
	if r := s.batch("loose", summaText("id", "2", "title", "typed"), summaText("id", "3", "more", "x")); r.IndexedCount != 1 || len(r.Errors) != 1 {
		t.Errorf("a batch of an index that infers: %v", r)
	}
	want("loose", "1", "2")
	if n := s.commit("loose"); n != 2 {
		t.Errorf("%d documents", n)
	}
	if m := s.do("GET", "/indexes/notes", "", "").want(200).json(); m["visibility"] != "commit" {
		t.Errorf("%v", m)
	}
}

// TestSummaMakesKeys has documents without a primary field: each keeps its key through merges and restarts, and can be addressed.
func TestSummaMakesKeys(t *testing.T) {
	dir := t.TempDir()
	s := newSummaNode(t, Config{DataDir: dir})
	s.create("free", "index free { field t: text [indexed, stored] }")
	for k := range 3 {
		if r := s.batch("free", summaText("t", fmt.Sprint("a", k)), summaText("t", fmt.Sprint("b", k))); r.IndexedCount != 2 {
			t.Fatal(r)
		}
		s.commit("free")
	}
	if _, err := s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "free"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.all("free", "t"), " "); got != "a0 a1 a2 b0 b1 b2" {
		t.Errorf("after a merge: %s", got)
	}
	// Keys ascend as the documents came.
	m := s.do("GET", "/search?index=free&q=*&sort=id", "", "").want(200).json()
	var order []string
	for _, h := range m["hits"].([]any) {
		if id := h.(map[string]any)["id"].(string); len(id) != 26 {
			t.Errorf("key %q", id)
		}
		order = append(order, h.(map[string]any)["source"].(map[string]any)["t"].(string))
	}
	if got := strings.Join(order, " "); got != "a0 b0 a1 b1 a2 b2" {
		t.Errorf("in order of keys: %s", got)
	}
	r, err := s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "free", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, h := range r.Hits {
		d, err := s.search.GetDocument(t.Context(), &summapb.GetDocumentRequest{IndexName: "free", Address: h.Address})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Fields) != 1 {
			t.Errorf("%v", d)
		}
		seen[d.Fields["t"].Values[0].GetText()] = true
	}
	if len(seen) != 6 {
		t.Errorf("addresses lead to %v", seen)
	}
	// A schema over HTTP has a key, and documents over HTTP have an id.
	s.do("PUT", "/indexes/free", "text/plain", "index free { field u: text }").problem(409, api.SchemaConflict)
	s.do("POST", "/index?index=free", "application/json", `{"t":"x"}`).problem(400, api.MissingID)
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := newSummaNode(t, Config{DataDir: dir})
	again.batch("free", summaText("t", "last"))
	if n := again.commit("free"); n != 7 {
		t.Errorf("%d documents after a restart", n)
	}
}

// TestSummaStreamsTellEveryRefusal mixes good and bad documents of two indexes over several runs.
func TestSummaStreamsTellEveryRefusal(t *testing.T) {
	s := newSummaNode(t, Config{})
	s.create("a", summaNotes)
	s.create("b", summaNotes)
	st, err := s.index.IndexDocuments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint32]string{}
	good := 0
	for at := range 2500 {
		m := &summapb.IndexDocumentRequest{IndexName: "a"}
		if at/700%2 == 1 {
			m.IndexName = "b"
		}
		switch at % 7 {
		case 2:
			m.Fields = summaText("id", fmt.Sprint(at), "nofield", "x").Fields
			want[uint32(at)] = "Field 'nofield' not found in schema"
		case 4:
			m.Fields = summaText("id", fmt.Sprint(at-1)).Fields
			want[uint32(at)] = summa.DuplicateKey(fmt.Sprint(at - 1))
			if at == 700 || at == 1400 || at == 2100 { // the one before is in the other index
				delete(want, uint32(at))
				good++
			}
		default:
			m.Fields = summaText("id", fmt.Sprint(at)).Fields
			good++
		}
		if err := st.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	r, err := st.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint32]string{}
	last := -1
	for _, e := range r.Errors {
		if int(e.Index) <= last {
			t.Fatalf("error of %d behind that of %d", e.Index, last)
		}
		last = int(e.Index)
		got[e.Index] = e.Error
	}
	for at, text := range want {
		if got[at] != text {
			t.Errorf("document %d: %q, want %q", at, got[at], text)
		}
	}
	if len(got) != len(want) || int(r.IndexedCount) != good {
		t.Errorf("%d accepted and %d refused, want %d and %d", r.IndexedCount, len(got), good, len(want))
	}
	if n := s.commit("a") + s.commit("b"); int(n) != good {
		t.Errorf("%d documents, want %d", n, good)
	}
}

// TestSummaStreamsMayPause is silent on a stream for longer than a message may take to arrive: what came before is applied meanwhile, and
// the stream goes on.
func TestSummaStreamsMayPause(t *testing.T) {
	// A document is applied after a second of silence, which is longer. Other calls have to be in time, on a busy machine too.
	s := newSummaNode(t, Config{Summa: summanode.Limits{Stall: 800 * time.Millisecond}})
	s.create("notes", summaNotes)
	st, err := s.index.IndexDocuments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for k := range uint32(3) {
		if err := st.Send(&summapb.IndexDocumentRequest{IndexName: "notes", Fields: summaText("id", fmt.Sprint(k)).Fields}); err != nil {
			t.Fatal(err)
		}
		for s.commit("notes") != k+1 {
			if t.Context().Err() != nil {
				t.Fatal("what came on the stream is not applied")
			}
		}
	}
	r, err := st.CloseAndRecv()
	if err != nil || r.IndexedCount != 3 || len(r.Errors) != 0 {
		t.Errorf("%v, %v", r, err)
	}
	if used := s.node.summaMemory.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
}

// TestSummaStreamEndsWithTheServer has a stream that goes on for ever: it does not keep the server from ending in good order, and what was
// applied of it is published.
func TestSummaStreamEndsWithTheServer(t *testing.T) {
	dir := t.TempDir()
	var applied atomic.Int32
	s := newSummaNodeWith(t, Config{DataDir: dir}, withApply(func(_ context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		res, err := next()
		applied.Add(int32(len(ops)))
		return res, err
	}))
	s.create("notes", summaNotes)
	st, err := s.index.IndexDocuments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(k int) error {
		return st.Send(&summapb.IndexDocumentRequest{IndexName: "notes", Fields: summaText("id", fmt.Sprint(k)).Fields})
	}
	for k := range 600 { // a whole run, and a part of one
		if err := send(k); err != nil {
			t.Fatal(err)
		}
	}
	for applied.Load() < 512 {
		if t.Context().Err() != nil {
			t.Fatal("nothing was applied")
		}
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		every := time.NewTicker(time.Millisecond)
		defer every.Stop()
		for k := 600; send(k) == nil; k++ {
			<-every.C
		}
	})
	if err := s.node.Close(context.Background()); err != nil {
		t.Error(err)
	}
	sender.Wait()
	wantStatus(t, st.RecvMsg(&summapb.IndexDocumentsResponse{}), codes.Unavailable, "Summa server is shutting down")
	again := newSummaNode(t, Config{DataDir: dir})
	r, err := again.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "notes", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	if n := int64(r.GetTotalHits()); err != nil || n < 512 || n != int64(applied.Load()) {
		t.Errorf("%d documents show, %d were applied: %v", n, applied.Load(), err)
	}
}

// TestSummaIdleStreamsLeavePlacesToOthers has as many streams as there may be, of which nothing comes, and as many calls that have not begun.
func TestSummaIdleStreamsLeavePlacesToOthers(t *testing.T) {
	s := newSummaNode(t, Config{Summa: summanode.Limits{Calls: 1, Streams: 3}})
	s.create("notes", summaNotes)
	for range 3 {
		if _, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/summa.IndexService/Commit"); err != nil {
			t.Fatal(err)
		}
	}
	// Of four streams one is refused.
	ctx, leave := context.WithCancel(t.Context())
	got := make(chan error, 4)
	for range 4 {
		st, err := s.index.IndexDocuments(ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() { got <- st.RecvMsg(&summapb.IndexDocumentsResponse{}) }()
	}
	wantStatus(t, <-got, codes.ResourceExhausted, "too many calls are under way; retry later")
	s.batch("notes", summaText("id", "1"))
	if n := s.commit("notes"); n != 1 {
		t.Errorf("%d documents", n)
	}
	s.all("notes", "id")
	leave()
	for range 3 {
		if err := <-got; codeOf(err) != "CANCELED" {
			t.Error(err)
		}
	}
}

// TestSummaBackpressure has no room for documents from the second run on: every document has its own error.
func TestSummaBackpressure(t *testing.T) {
	var calls atomic.Int32
	full := withApply(func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		if calls.Add(1) > 1 {
			return nil, &shard.OverloadError{Limit: "memtable_bytes", RetryAfter: time.Hour}
		}
		return next()
	})
	s := newSummaNodeWith(t, Config{Limits: Limits{QueueWait: 10 * time.Millisecond}}, full)
	s.create("notes", summaNotes)
	var docs []*summapb.NamedDocument
	for k := range 1100 {
		docs = append(docs, summaText("id", fmt.Sprint(k)))
	}
	r := s.batch("notes", docs...)
	if r.IndexedCount != 512 || r.ErrorCount != 588 || len(r.Errors) != 588 {
		t.Fatalf("%d accepted, %d refused", r.IndexedCount, r.ErrorCount)
	}
	for k, e := range r.Errors {
		text := "Indexing backpressure (Indexing queue full — apply backpressure)"
		if k == 0 {
			text += " — 587 remaining documents skipped"
		}
		if int(e.Index) != 512+k || e.Error != text {
			t.Fatalf("error %d: %v", k, e)
		}
	}
	if n := s.commit("notes"); n != 512 {
		t.Errorf("%d documents", n)
	}
}

// TestSummaBatchThatFailsHalfWay meets a disk that fails: the caller is told which documents are in.
func TestSummaBatchThatFailsHalfWay(t *testing.T) {
	var calls, good atomic.Int32
	s := newSummaNodeWith(t, Config{}, withApply(func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		if calls.Add(1) > good.Load() {
			return nil, &shard.ReadOnlyError{Cause: errors.New("a secret")}
		}
		return next()
	}))
	s.create("notes", summaNotes)
	var docs []*summapb.NamedDocument
	for k := range 600 {
		docs = append(docs, summaText("id", fmt.Sprint(k)))
	}
	_, err := s.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{IndexName: "notes", Documents: docs})
	if codeOf(err) != "UNAVAILABLE" {
		t.Errorf("nothing is in: %v", err)
	}
	good.Store(calls.Load() + 1)
	r := s.batch("notes", docs...)
	if r.IndexedCount != 512 || r.ErrorCount != 88 || r.Errors[0].Index != 512 || strings.Contains(r.Errors[0].Error, "secret") {
		t.Errorf("%d accepted, %d refused, the first is %v", r.IndexedCount, r.ErrorCount, r.Errors[0])
	}
}

// blocking makes Apply wait until release is closed, and counts those that wait.
func blocking(release chan struct{}, waiting *sync.WaitGroup) func(*Node) {
	return withApply(func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		waiting.Done()
		<-release
		return next()
	})
}

func TestSummaFourMutationsAtOnce(t *testing.T) {
	release := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(4)
	s := newSummaNodeWith(t, Config{}, blocking(release, &waiting))
	s.create("notes", summaNotes)
	var calls sync.WaitGroup
	for k := range 4 {
		calls.Go(func() {
			r, err := s.index.DeleteDocuments(context.Background(), &summapb.DeleteDocumentsRequest{IndexName: "notes", PrimaryKeys: []string{fmt.Sprint(k)}})
			if err != nil || r.AcceptedCount != 1 {
				t.Error(r, err)
			}
		})
	}
	waiting.Wait()
	_, err := s.index.UpsertDocuments(t.Context(), &summapb.UpsertDocumentsRequest{IndexName: "notes", Documents: []*summapb.NamedDocument{summaText("id", "1")}})
	wantStatus(t, err, codes.ResourceExhausted, "document mutation capacity exhausted; retry later")
	close(release)
	calls.Wait()
}

func TestSummaDeletionKeys(t *testing.T) {
	s := newSummaNode(t, Config{})
	s.create("notes", summaNotes)
	s.batch("notes", summaText("id", "a"), summaText("id", "b"))
	r, err := s.index.DeleteDocuments(t.Context(), &summapb.DeleteDocumentsRequest{
		IndexName: "notes", PrimaryKeys: []string{"a", "", strings.Repeat("k", 513), strings.Repeat("k", 65536), strings.Repeat("k", 65537), "a"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.AcceptedCount != 4 || len(r.Errors) != 2 || r.Errors[0].Index != 1 || r.Errors[1].Index != 4 {
		t.Errorf("%v", r)
	}
	if n := s.commit("notes"); n != 1 {
		t.Errorf("%d documents", n)
	}
	_, err = s.index.DeleteDocuments(t.Context(), &summapb.DeleteDocumentsRequest{IndexName: "absent", PrimaryKeys: make([]string, 100_001)})
	wantStatus(t, err, codes.ResourceExhausted, "deletion request exceeds 100000 keys or 8 MiB of key bytes")
}

// slowSnapshot is an engine whose snapshots wait.
type slowSnapshot struct {
	engine
	wait func()
}

func (e *slowSnapshot) Snapshot() *shard.Snapshot {
	e.wait()
	return e.engine.Snapshot()
}

func TestSummaSearchCapacity(t *testing.T) {
	release, inside := make(chan struct{}), make(chan struct{}, 1)
	var slow atomic.Bool
	s := newSummaNodeWith(t, Config{Summa: summanode.Limits{Searches: 1}}, func(n *Node) {
		open := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			eng, err := open(ctx, cfg)
			return &slowSnapshot{eng, func() {
				if slow.Load() {
					inside <- struct{}{}
					<-release
				}
			}}, err
		}
	})
	s.create("notes", summaNotes)
	slow.Store(true)
	req := &summapb.SearchRequest{IndexName: "notes", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}}
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := s.search.Search(context.Background(), req); err != nil {
			t.Error(err)
		}
	})
	<-inside
	_, err := s.search.Search(t.Context(), req)
	wantStatus(t, err, codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	_, err = s.search.GetTextStats(t.Context(), &summapb.GetTextStatsRequest{IndexName: "notes", Query: req.Query})
	wantStatus(t, err, codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	// What is wrong with a request is told before that, and that there is no such index is not.
	_, err = s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "none"})
	wantStatus(t, err, codes.InvalidArgument, "Query is required")
	_, err = s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "none", Query: req.Query})
	wantStatus(t, err, codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	slow.Store(false)
	close(release)
	first.Wait()
}

// slowCommit is an engine whose commits wait.
type slowCommit struct {
	engine
	inside, release chan struct{}
	ended           chan error
}

func (e *slowCommit) Commit(ctx context.Context) error {
	e.inside <- struct{}{}
	<-e.release
	err := e.engine.Commit(ctx)
	e.ended <- err
	return err
}

// TestSummaCommitGoesOn leaves a commit, and asks the node to end meanwhile: it goes on, and the node waits for it.
func TestSummaCommitGoesOn(t *testing.T) {
	dir := t.TempDir()
	inside, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s := newSummaNodeWith(t, Config{DataDir: dir}, func(n *Node) {
		open := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			eng, err := open(ctx, cfg)
			return &slowCommit{eng, inside, release, ended}, err
		}
	})
	s.create("notes", summaNotes)
	s.batch("notes", summaText("id", "1"))
	ctx, leave := context.WithCancel(t.Context())
	var call sync.WaitGroup
	call.Go(func() {
		if _, err := s.index.Commit(ctx, &summapb.CommitRequest{IndexName: "notes"}); codeOf(err) != "CANCELED" && codeOf(err) != "CANCELLED" {
			t.Error(err)
		}
	})
	<-inside
	leave()
	call.Wait()
	closed := make(chan error, 1)
	go func() { closed <- s.node.Close(context.Background()) }()
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("commit: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestSummaDeletedIndex deletes an index under a batch that is being applied: the batch ends, and the index is gone.
func TestSummaDeletedIndex(t *testing.T) {
	inside := make(chan struct{}, 1)
	s := newSummaNodeWith(t, Config{}, withApply(func(ctx context.Context, ops []shard.Op, next func() ([]shard.OpResult, error)) ([]shard.OpResult, error) {
		inside <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	s.create("notes", summaNotes)
	var call sync.WaitGroup
	call.Go(func() {
		_, err := s.index.BatchIndexDocuments(context.Background(), &summapb.BatchIndexDocumentsRequest{IndexName: "notes", Documents: []*summapb.NamedDocument{summaText("id", "1")}})
		if codeOf(err) != "NOT_FOUND" {
			t.Error(err)
		}
	})
	<-inside
	if _, err := s.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "notes"}); err != nil {
		t.Error(err)
	}
	call.Wait()
	_, err := s.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "notes"})
	wantStatus(t, err, codes.NotFound, "Index 'notes' not found")
}

// TestSummaMessageCaps sends messages at their bound and one byte past it, plain and compressed.
func TestSummaMessageCaps(t *testing.T) {
	const most = 32 << 10
	s := newSummaNode(t, Config{Summa: summanode.Limits{SearchDecode: most, IndexDecode: most, IndexEncode: 4 << 10}})
	s.create("notes", summaNotes)
	sized := func(n int) *summapb.GetIndexInfoRequest {
		m := &summapb.GetIndexInfoRequest{IndexName: strings.Repeat("x", n-8)}
		m.IndexName += strings.Repeat("x", n-proto.Size(m))
		if got := proto.Size(m); got != n {
			t.Fatalf("%d bytes, want %d", got, n)
		}
		return m
	}
	for _, name := range []string{"", "gzip", "zstd"} {
		var opts []grpc.CallOption
		if name != "" {
			opts = append(opts, grpc.UseCompressor(name))
		}
		_, err := s.search.GetIndexInfo(t.Context(), sized(most), opts...)
		wantStatus(t, err, codes.InvalidArgument, "Index name must not exceed 255 characters")
		_, err = s.search.GetIndexInfo(t.Context(), sized(most+1), opts...)
		if name == "" {
			wantStatus(t, err, codes.OutOfRange, "Error, decoded message length too large: found 32769 bytes, the limit is: 32768 bytes")
		} else {
			wantStatus(t, err, codes.ResourceExhausted, "Error decompressing: size limit, of `32768` bytes, exceeded while decompressing compressed message")
		}
		// A small message that becomes a large one, and not so large that its sender needs long to make it.
		_, err = s.search.GetIndexInfo(t.Context(), sized(4<<20), opts...)
		if name == "" {
			wantStatus(t, err, codes.OutOfRange, "Error, decoded message length too large: found 4194304 bytes, the limit is: 32768 bytes")
		} else {
			wantStatus(t, err, codes.ResourceExhausted, "Error decompressing: size limit, of `32768` bytes, exceeded while decompressing compressed message")
		}
	}
	var bad []*summapb.NamedDocument
	for range 200 {
		bad = append(bad, summaText("nofield", "x"))
	}
	// What is in is told, if in short words; a batch that cannot be answered at all is refused whole.
	bad[7] = summaText("id", "good")
	r, err := s.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{IndexName: "notes", Documents: bad})
	if err != nil || r.IndexedCount != 1 || r.ErrorCount != 199 || len(r.Errors) != 199 || r.Errors[0].Error != "Field 'nofield' not found in schema" || r.Errors[198].Error != "refused" {
		t.Errorf("%v, %v", r, err)
	}
	for k, e := range r.GetErrors() {
		if at := k + min(k/7, 1); int(e.Index) != at {
			t.Fatalf("error %d is of document %d", k, e.Index)
		}
	}
	bad = append(bad, bad[:50]...)
	_, err = s.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{IndexName: "notes", Documents: bad})
	wantStatus(t, err, codes.ResourceExhausted, "a batch of 250 documents cannot be answered in 4096 bytes")
	if used := s.node.summaMemory.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
	// Replies at their bound and one byte past it.
	names := &summapb.ListIndexesResponse{IndexNames: []string{"notes"}}
	for n := 0; proto.Size(names) < 4<<10; n++ {
		name := fmt.Sprintf("%03d%s", n, strings.Repeat("n", min(252, 4<<10-proto.Size(names)-6)))
		names.IndexNames = append(names.IndexNames, name)
		s.create(name, summaNotes)
	}
	if n := proto.Size(names); n != 4<<10 {
		t.Fatalf("names of %d bytes", n)
	}
	if r, err := s.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil || len(r.IndexNames) != len(names.IndexNames) {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "notes"}); err != nil {
		t.Fatal(err)
	}
	s.create("notes1", summaNotes)
	_, err = s.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{})
	wantStatus(t, err, codes.OutOfRange, "Error, encoded message length too large: found 4097 bytes, the limit is: 4096 bytes")
}

// encodings notes what replies are compressed with.
type encodings struct {
	mu   sync.Mutex
	seen []string
}

func (e *encodings) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context { return ctx }

func (e *encodings) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context {
	return ctx
}
func (e *encodings) HandleConn(context.Context, grpcstats.ConnStats) {}
func (e *encodings) HandleRPC(_ context.Context, st grpcstats.RPCStats) {
	if h, ok := st.(*grpcstats.InHeader); ok {
		e.mu.Lock()
		e.seen = append(e.seen, h.Compression)
		e.mu.Unlock()
	}
}

func TestSummaCompression(t *testing.T) {
	s := newSummaNode(t, Config{})
	s.create("notes", summaNotes)
	e := &encodings{}
	conn, err := grpc.NewClient(s.node.front.Addr(Summa), plaintext, grpc.WithStatsHandler(e))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []grpc.CallOption{grpc.UseCompressor("identity"), grpc.UseCompressor("gzip"), grpc.UseCompressor("zstd")} {
		r, err := summapb.NewSearchServiceClient(conn).GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "notes"}, c)
		if err != nil || !strings.Contains(r.Schema, "field t: text<simple>") {
			t.Error(r, err)
		}
		// A short reply is not worth it.
		if _, err := summapb.NewIndexServiceClient(conn).Commit(t.Context(), &summapb.CommitRequest{IndexName: "notes"}, c); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(e.seen, ","); got != "zstd,identity,zstd,identity,zstd,identity" && got != "zstd,,zstd,,zstd," {
		t.Errorf("replies were sent as %s", got)
	}
}

func TestSummaHealth(t *testing.T) {
	s := newSummaNode(t, Config{})
	for _, name := range []string{"", "summa.SearchService", "summa.IndexService"} {
		r, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, r, err)
		}
	}
	// A watcher learns of the end, and does not hold it up.
	w, err := healthpb.NewHealthClient(s.conn).Watch(context.Background(), &healthpb.HealthCheckRequest{Service: "summa.IndexService"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	if err := s.node.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for {
		r, err := w.Recv()
		if err != nil {
			break
		}
		if r.Status == healthpb.HealthCheckResponse_SERVING {
			t.Error("still serving")
		}
	}
}

// TestSummaUnreadReplies has a caller that reads nothing of its replies: they have a bound, and end with it.
func TestSummaUnreadReplies(t *testing.T) {
	s := newSummaNode(t, Config{Summa: summanode.Limits{SearchEncode: 8 << 20, IndexEncode: 8 << 20, Wait: 50 * time.Millisecond}})
	s.create("notes", "index notes { field id: text<raw> [primary, stored] field t: text [stored] }")
	long := make([]byte, 7<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range long {
		long[i] = byte(' ' + r.IntN(95))
	}
	s.batch("notes", summaText("id", "1", "t", string(long)))
	s.commit("notes")
	found, err := s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "notes", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	if err != nil {
		t.Fatal(err)
	}
	req := &summapb.GetDocumentRequest{IndexName: "notes", Address: found.Hits[0].Address}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	refused := 0
	for range 16 {
		st, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/summa.SearchService/GetDocument")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(st.SendMsg(req), st.CloseSend()); err != nil {
			t.Fatal(err)
		}
		// The headers come with the reply, and with a refusal.
		if h, err := st.Header(); err != nil || h == nil {
			refused++
			wantStatus(t, st.RecvMsg(&summapb.GetDocumentResponse{}), codes.ResourceExhausted, "too many replies wait to be read; retry later")
		}
	}
	if refused == 0 || refused == 16 {
		t.Errorf("%d of 16 were refused", refused)
	}
	leave()
	// Their room comes back with their end.
	for {
		if _, err := s.search.GetDocument(t.Context(), req); err == nil {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("there is no room for a reply")
		}
	}
}

// TestSummaAlter changes how vectors are found: what is told of it is so, the schema says it at once and behind a restart, and Retrain and ForceMerge
// make what is there as it says.
func TestSummaAlter(t *testing.T) {
	dir := t.TempDir()
	s := newSummaNode(t, Config{DataDir: dir})
	s.create("v", `index v { field id: text<raw> [primary, stored] field g: dense_vector<2> [indexed<ivf_tq>, stored] field f: dense_vector<2> [indexed<flat>, stored<multi>]
		field b: binary_dense_vector<8> [indexed<flat>] field k: dense_vector<2> [stored] field t: text }`)
	doc := func(id string) *summapb.NamedDocument {
		vec := func(name string) *summapb.FieldEntry {
			return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: []float32{1, 0}}}}}
		}
		d := summaText("id", id)
		d.Fields = append(d.Fields, vec("g"), vec("f"), &summapb.FieldEntry{Name: "b", Value: &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: []byte{1}}}})
		return d
	}
	alter := func(field, schema string) (*summapb.AlterVectorIndexResponse, error) {
		return s.index.AlterVectorIndex(t.Context(), &summapb.AlterVectorIndexRequest{IndexName: "v", FieldName: field, FieldSchema: schema})
	}
	_, err := alter("f", "dense_vector<2> [indexed<ivf_tq>]")
	wantStatus(t, err, codes.InvalidArgument, "Schema error: cannot train vector centroids: no committed vectors for field(s) [2]")
	s.batch("v", doc("1"))
	s.commit("v")
	s.batch("v", doc("2")) // staged, and stays so
	// graphs are what the segments of a field were written for, and the line of the schema.
	graphs := func(field string) (list []string, line string) {
		t.Helper()
		l, err := s.node.catalog.use(t.Context(), "v")
		if err != nil {
			t.Fatal(err)
		}
		defer l.release()
		snap := l.eng.Snapshot()
		defer snap.Release()
		id, _ := snap.Schema().Lookup(field)
		for _, leaf := range snap.Leaves() {
			if x := leaf.Vectors(id); x != nil {
				p := x.Params()
				if !p.Graph {
					p.M, p.EfConstruction = 0, 0
				}
				list = append(list, fmt.Sprint(p.Graph, p.M, p.EfConstruction))
			}
		}
		slices.Sort(list)
		info, err := s.search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "v"})
		if err != nil {
			t.Fatal(err)
		}
		back, err := summa.ParseSchema(info.Schema)
		if err != nil || summa.SDL(back) != info.Schema {
			t.Errorf("the schema reads back as %v, %v", back, err)
		}
		for l := range strings.SplitSeq(info.Schema, "\n") {
			if strings.Contains(l, "field "+field+":") {
				line = strings.TrimSpace(l)
			}
		}
		return list, line
	}
	const (
		deferred   = summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_DEFERRED_FLAT
		parameters = summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_PARAMETERS_ONLY
	)
	for _, c := range []struct {
		field, schema string
		state         summapb.VectorIndexAlterState
		code          codes.Code
		graph, line   string
	}{
		{"g", "dense_vector<2> [indexed<ivf_tq, nprobe: 8>]", parameters, codes.OK, "true 16 128", "field g: dense_vector<2> [indexed<ivf_tq, nprobe: 8, soar: selective>, stored]"},
		{"f", "dense_vector<2> [indexed<flat>]", parameters, codes.OK, "false 0 0", "field f: dense_vector<2> [indexed<flat>, stored<multi>]"},
		{"f", "dense_vector<2> [indexed<ivf_tq>]", deferred, codes.OK, "false 0 0", "field f: dense_vector<2> [indexed<ivf_tq, soar: selective>, stored<multi>]"},
		{"f", "dense_vector<2> [indexed<ivf_tq, m: 24>]", deferred, codes.OK, "false 0 0", "field f: dense_vector<2> [indexed<ivf_tq, soar: selective, m: 24>, stored<multi>]"},
		{"g", "dense_vector<2> [indexed<ivf_tq, m: 8, ef_construction: 60>]", parameters, codes.OK, "true 16 128", "field g: dense_vector<2> [indexed<ivf_tq, soar: selective, m: 8, ef_construction: 60>, stored]"},
		{"b", "binary_dense_vector<8> [indexed<ivf>]", deferred, codes.OK, "false 0 0", "field b: binary_dense_vector<8> [indexed<ivf>]"},
		{"g", "dense_vector<4> [indexed<ivf_tq>]", 0, codes.InvalidArgument, "true 16 128", ""},
		{"g", "dense_vector<2, f16> [indexed<ivf_tq>]", 0, codes.InvalidArgument, "true 16 128", ""},
		{"g", "dense_vector<2> [indexed<ivf_tq, m: 1>]", 0, codes.InvalidArgument, "true 16 128", ""},
		{"g", "dense_vector<2> [stored]", 0, codes.InvalidArgument, "true 16 128", "field g: dense_vector<2> [indexed<ivf_tq, soar: selective, m: 8, ef_construction: 60>, stored]"},
		{"k", "dense_vector<2> [indexed<flat>]", 0, codes.FailedPrecondition, "", ""},
		{"t", "dense_vector<2>", 0, codes.InvalidArgument, "", ""},
	} {
		r, err := alter(c.field, c.schema)
		if got := codeOf(err); r.GetState() != c.state || got != codeOf(statusOf(c.code)) {
			t.Errorf("%s as %s: %v, %v", c.field, c.schema, r, err)
		}
		list, line := graphs(c.field)
		if c.graph != "" && !slices.Equal(list, []string{c.graph}) || c.line != "" && line != c.line {
			t.Errorf("%s as %s: graphs %q, %s", c.field, c.schema, list, line)
		}
	}
	if got := s.all("v", "id"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%v show", got)
	}
	if err := s.node.Close(t.Context()); err != nil { // which commits
		t.Fatal(err)
	}
	s = newSummaNode(t, Config{DataDir: dir})
	for field, want := range map[string][2]string{"g": {"true 16 128 true 8 60", "[indexed<ivf_tq, soar: selective, m: 8, ef_construction: 60>, stored]"}, "f": {"false 0 0 true 24 128", "[indexed<ivf_tq, soar: selective, m: 24>, stored<multi>]"}} {
		if list, line := graphs(field); strings.Join(list, " ") != want[0] || !strings.HasSuffix(line, want[1]) {
			t.Errorf("%s behind a restart: graphs %q, %s", field, list, line)
		}
	}
	if _, err := s.index.RetrainVectorIndex(t.Context(), &summapb.RetrainVectorIndexRequest{IndexName: "v"}); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{"g": "true 8 60", "f": "true 24 128", "b": "true 16 128"} {
		if list, _ := graphs(field); !slices.Equal(list, []string{want, want}) {
			t.Errorf("%s retrained: %q", field, list)
		}
	}
	if r, err := alter("g", "dense_vector<2> [indexed<flat>]"); err != nil || r.State != parameters {
		t.Errorf("%v, %v", r, err)
	}
	for range 2 { // the second has one segment, which is as it has to be
		if r, err := s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "v"}); err != nil || r.NumSegments != 1 {
			t.Fatal(r, err)
		}
		if list, _ := graphs("g"); !slices.Equal(list, []string{"false 0 0"}) {
			t.Errorf("merged: %q", list)
		}
	}
	info, err := s.search.GetIndexInfo(t.Context(), &summapb.GetIndexInfoRequest{IndexName: "v"})
	if err != nil || len(info.VectorStats) != 3 || info.VectorStats[1].FieldName != "f" || info.VectorStats[1].TotalVectors != 2 {
		t.Errorf("%v, %v", info, err)
	}
}

// A segment of several has no more documents than it may, also where ForceMerge asks for one.
func TestSummaMergesWithinTheBound(t *testing.T) {
	s := newSummaNode(t, Config{Engine: Engine{MaxSegmentDocs: 5}})
	s.create("notes", summaNotes)
	for i := range 6 { // 1, 2, 3, 4, 5 and 6 documents
		var docs []*summapb.NamedDocument
		for k := range i + 1 {
			docs = append(docs, summaText("id", fmt.Sprintf("%d-%d", i, k), "t", "warp"))
		}
		s.batch("notes", docs...)
		s.commit("notes")
	}
	for _, compact := range []bool{false, true} {
		r, err := s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "notes", Compact: compact})
		if err != nil || !r.Success || r.NumSegments != 4 { // 6, 5, 4 with 1, 3 with 2
			t.Errorf("%v, %v", r, err)
		}
	}
	if got := s.all("notes", "id"); len(got) != 21 {
		t.Errorf("%d documents", len(got))
	}
}

// An index that shows writes at once keeps its options: it may be part of a cluster, whose members have one schema.
func TestSummaAlterOfAnIndexOfHTTP(t *testing.T) {
	s := newSummaNode(t, Config{})
	s.do("PUT", "/indexes/h", "text/plain", "index h { field v: dense_vector<2> [indexed<flat>, stored] }").want(201)
	s.put("h", `{"id":"1","v":[1,0]}`)
	r, err := s.index.AlterVectorIndex(t.Context(), &summapb.AlterVectorIndexRequest{IndexName: "h", FieldName: "v", FieldSchema: "dense_vector<2> [indexed<flat>]"})
	if err != nil || r.State != summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_PARAMETERS_ONLY {
		t.Errorf("%v, %v", r, err)
	}
	_, err = s.index.AlterVectorIndex(t.Context(), &summapb.AlterVectorIndexRequest{IndexName: "h", FieldName: "v", FieldSchema: "dense_vector<2> [indexed<ivf_tq>]"})
	wantStatus(t, err, codes.FailedPrecondition, "index 'h' shows writes at once and may be part of a cluster, whose members have one schema; make a new index")
}

// TestSummaNames makes an index with the longest name that Summa allows, and finds it again after a restart.
func TestSummaNames(t *testing.T) {
	dir := t.TempDir()
	s := newSummaNode(t, Config{DataDir: dir})
	long := strings.Repeat("n", 255)
	s.create(long, summaNotes)
	s.batch(long, summaText("id", "1"))
	s.commit(long)
	if ids, _ := s.ids("/search?q=*&index=" + long); !slices.Equal(ids, []string{"1"}) {
		t.Errorf("over HTTP: %v", ids)
	}
	_, err := s.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: long + "n", Schema: summaNotes})
	wantStatus(t, err, codes.InvalidArgument, "Index name must not exceed 255 characters")
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = newSummaNode(t, Config{DataDir: dir})
	if got := s.all(long, "id"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%v", got)
	}
	if _, err := s.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: long}); err != nil {
		t.Fatal(err)
	}
	r, err := s.index.ListIndexes(t.Context(), &summapb.ListIndexesRequest{})
	if err != nil || len(r.IndexNames) != 0 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "absent"}); err != nil {
		t.Error(err)
	}
}

// TestSummaErrors turns errors of the node into codes and texts of Summa.
func TestSummaErrors(t *testing.T) {
	s := newServer(t, Config{})
	h := summaHost{s.node}
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{&noIndexError{"x"}, codes.NotFound, "Index 'x' not found"},
		{shard.ErrClosed, codes.Unavailable, "Summa server is shutting down"},
		{errors.New("a secret"), codes.Internal, "Internal error: "},
		{errDropped, codes.NotFound, ""},
		{errIndexFull, codes.ResourceExhausted, ""},
		{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
		{&shard.ReadOnlyError{Cause: errors.New("a secret")}, codes.Unavailable, ""},
	} {
		got := h.Refusal(t.Context(), c.err)
		if got.Code != c.code || !strings.HasPrefix(got.Text, c.text) || strings.Contains(got.Text, "secret") {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestSummaOnAFullDisk fills the disk under a commit and under a merge: each error says what is so, which is not that of a write, and a retry does
// what could not be done.
func TestSummaOnAFullDisk(t *testing.T) {
	disk := faultfs.New(vfs.OS)
	s := newSummaNode(t, Config{FS: disk})
	s.create("notes", summaNotes)
	s.batch("notes", summaText("id", "1", "t", "x"))
	s.commit("notes")
	s.batch("notes", summaText("id", "2", "t", "x"))
	disk.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
	const full = "the disk is full; searches go on, and writes do by themselves when there is room again; "
	_, err := s.index.BatchIndexDocuments(t.Context(), &summapb.BatchIndexDocumentsRequest{IndexName: "notes", Documents: []*summapb.NamedDocument{summaText("id", "3")}})
	wantStatus(t, err, codes.ResourceExhausted, full+"nothing of this was written")
	const staged = "nothing more shows than before, and what is staged stays so until the next commit"
	_, err = s.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "notes"})
	wantStatus(t, err, codes.ResourceExhausted, full+staged)
	_, err = s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "notes"})
	wantStatus(t, err, codes.ResourceExhausted, full+staged)
	if p := s.do("POST", "/commit?index=notes", "", "").problem(507, api.DiskFull); p["detail"] != full+staged {
		t.Errorf("over HTTP: %v", p["detail"])
	}
	if ids := s.all("notes", "id"); !slices.Equal(ids, []string{"1"}) {
		t.Errorf("%v show", ids)
	}
	disk.Inject(nil)
	for { // the log looks now and then whether there is room
		if _, err := s.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "notes"}); err == nil {
			break
		} else if codeOf(err) != "RESOURCE_EXHAUSTED" {
			t.Fatal(err)
		}
	}
	if ids := s.all("notes", "id"); !slices.Equal(ids, []string{"1", "2"}) {
		t.Errorf("%v show behind the commit", ids)
	}
	// Two segments and nothing staged: only the merge wants room.
	disk.Inject(faultfs.From(1, faultfs.Space, faultfs.NoSpace))
	_, err = s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "notes"})
	wantStatus(t, err, codes.ResourceExhausted, full+"what shows is as it was, in more segments than were asked for")
	disk.Inject(nil)
	if ids := s.all("notes", "id"); !slices.Equal(ids, []string{"1", "2"}) {
		t.Errorf("%v show behind the merge", ids)
	}
	r, err := s.index.ForceMerge(t.Context(), &summapb.ForceMergeRequest{IndexName: "notes"})
	if err != nil || r.NumSegments != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
