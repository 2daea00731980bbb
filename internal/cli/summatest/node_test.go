package summatest

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/cli/proctest"
)

// started is a node with a connection to it.
type started struct {
	*proctest.Process
	search summapb.SearchServiceClient
	index  summapb.IndexServiceClient
}

func start(t *testing.T, dir string, flags ...string) *started {
	t.Helper()
	p, err := proctest.Start(1, append([]string{"node", "--summa", "127.0.0.1:0", "--data-dir", dir}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(p.Listening["summa"], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &started{p, summapb.NewSearchServiceClient(conn), summapb.NewIndexServiceClient(conn)}
}

func (s *started) make(t *testing.T) {
	t.Helper()
	_, err := s.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{
		IndexName: "notes", Schema: `index notes { field id: text<raw> [primary, stored] field body: text [indexed, stored] }`,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func document(id, body string) *summapb.NamedDocument {
	text := func(name, s string) *summapb.FieldEntry {
		return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}}
	}
	return &summapb.NamedDocument{Fields: []*summapb.FieldEntry{text("id", id), text("body", body)}}
}

func (s *started) batch(t *testing.T, from, to int, body string) {
	t.Helper()
	req := &summapb.BatchIndexDocumentsRequest{IndexName: "notes"}
	for i := from; i < to; i++ {
		req.Documents = append(req.Documents, document(fmt.Sprint("n/", i), body))
	}
	reply, err := s.index.BatchIndexDocuments(t.Context(), req)
	if err != nil || reply.GetIndexedCount() != uint32(to-from) {
		t.Fatalf("%v, %v", reply, err)
	}
}

func (s *started) commit(t *testing.T) {
	t.Helper()
	if _, err := s.index.Commit(t.Context(), &summapb.CommitRequest{IndexName: "notes"}); err != nil {
		t.Fatal(err)
	}
}

func (s *started) total(t *testing.T) uint64 {
	t.Helper()
	reply, err := s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "notes", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})
	if err != nil {
		t.Fatal(err)
	}
	return uint64(reply.GetTotalHits())
}

// TestStagedWritesOutliveAKill kills a node that has acknowledged documents, deletes and upserts and was not told to commit them: they are
// staged yet, and a commit shows all of them.
func TestStagedWritesOutliveAKill(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	s.make(t)
	s.batch(t, 0, 100, "committed")
	s.commit(t)
	s.batch(t, 100, 400, "staged")
	keys := make([]string, 50)
	for i := range keys {
		keys[i] = fmt.Sprint("n/", i)
	}
	if _, err := s.index.DeleteDocuments(t.Context(), &summapb.DeleteDocumentsRequest{IndexName: "notes", PrimaryKeys: keys}); err != nil {
		t.Fatal(err)
	}
	if got := s.total(t); got != 100 {
		t.Fatalf("%d documents show before the commit, want 100", got)
	}
	for range 2 {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		s = start(t, dir)
		if got := s.total(t); got != 100 {
			t.Fatalf("%d documents show after the kill, want 100", got)
		}
	}
	again := &summapb.BatchIndexDocumentsRequest{IndexName: "notes", Documents: []*summapb.NamedDocument{document("n/399", "twice"), document("n/0", "anew")}}
	reply, err := s.index.BatchIndexDocuments(t.Context(), again)
	if err != nil || reply.GetIndexedCount() != 1 || len(reply.GetErrors()) != 1 || !strings.Contains(reply.GetErrors()[0].GetError(), "Duplicate primary key") {
		t.Fatalf("a key that is staged, and one whose delete is: %v, %v", reply, err)
	}
	s.commit(t)
	if got := s.total(t); got != 351 {
		t.Errorf("%d documents show after the commit, want 351", got)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// TestAReplyHasNoMoreThanItMay asks for more stored values than one reply may have, and is refused.
func TestAReplyHasNoMoreThanItMay(t *testing.T) {
	s := start(t, t.TempDir(), "--summa-max-search-response-mb", "1")
	s.make(t)
	body := strings.Repeat("word ", 20_000) // 100 kB
	for i := range 3 {
		s.batch(t, 10*i, 10*i+10, body)
	}
	s.commit(t)
	ask := func(limit uint32) (*summapb.SearchResponse, error) {
		return s.search.Search(t.Context(), &summapb.SearchRequest{
			IndexName: "notes", Limit: limit, FieldsToLoad: []string{"body"}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}},
		})
	}
	if reply, err := ask(10); err != nil || len(reply.GetHits()) != 10 {
		t.Errorf("ten hits of 100 kB: %v", err)
	}
	for range 50 {
		if _, err := ask(30); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "hydration budget") {
			t.Fatalf("thirty hits of 100 kB: %v", err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
