package summatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
	return connected(t, p)
}

// startPlain is start of the binary as it is delivered, whose memory is its own and not that of the race detector.
func startPlain(t *testing.T, dir string, flags ...string) *started {
	t.Helper()
	bin, err := proctest.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, append([]string{"node", "--summa", "127.0.0.1:0", "--data-dir", dir}, flags...)...)
	cmd.Env = append(os.Environ(), "GOGC=50") // garbage says little of what is held
	p, err := proctest.StartCommand(1, cmd)
	if err != nil {
		t.Fatal(err)
	}
	return connected(t, p)
}

func connected(t *testing.T, p *proctest.Process) *started {
	t.Helper()
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

// TestRepliesThatManyCallersDoNotReadAreBounded has many callers who ask for much and read nothing, by searches and by addresses: each is
// sent what there is room for or is refused, the process stays small, and others are answered meanwhile.
func TestRepliesThatManyCallersDoNotReadAreBounded(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the system does not tell the memory of a process")
	}
	dir, flags := t.TempDir(), []string{"--summa-search-max-encode-mb", "32", "--summa-index-max-encode-mb", "32", "--summa-max-concurrent-searches", "4"}
	s := startPlain(t, dir, flags...)
	s.make(t)
	letters := make([]byte, 4<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range letters {
		letters[i] = 'a' + byte(rng.IntN(26))
		if i%8 == 7 {
			letters[i] = ' '
		}
	}
	for i := range 6 {
		s.batch(t, i, i+1, string(letters[i:])) // 24 MiB in all
	}
	s.commit(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = startPlain(t, dir, flags...)
	search := &summapb.SearchRequest{IndexName: "notes", Limit: 6, FieldsToLoad: []string{"body"}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}}
	first, err := s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "notes", Query: search.Query})
	if err != nil || len(first.GetHits()) != 6 {
		t.Fatalf("%v, %v", first, err)
	}
	before := memory(t, s.Cmd.Process.Pid)
	var most atomic.Int64
	watching, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			most.Store(max(most.Load(), memory(t, s.Cmd.Process.Pid)))
			select {
			case <-tick.C:
			case <-watching:
				return
			}
		}
	}()
	var sent, refused, full atomic.Int32
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var callers sync.WaitGroup
	for range 4 {
		conn, err := grpc.NewClient(s.Listening["summa"], grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		for k := range 32 {
			method, req := "/summa.SearchService/Search", proto.Message(search)
			if k%2 == 1 {
				method, req = "/summa.SearchService/GetDocument", &summapb.GetDocumentRequest{IndexName: "notes", Address: first.Hits[k%6].Address}
			}
			callers.Go(func() {
				for ctx.Err() == nil {
					st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
					if err != nil || st.SendMsg(req) != nil || st.CloseSend() != nil {
						return
					}
					// The headers come with a reply, and a refusal has none.
					if h, err := st.Header(); err == nil && h != nil {
						sent.Add(1)
						return
					}
					switch err := st.RecvMsg(&summapb.SearchResponse{}); {
					case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "too many replies wait to be read"):
						refused.Add(1)
						return
					case status.Code(err) == codes.ResourceExhausted:
						full.Add(1) // no place to search: once more
					case ctx.Err() == nil:
						t.Error(err)
						return
					}
				}
			})
		}
	}
	callers.Wait()
	// Others are answered, but for a place to search that somebody has just taken.
	for tries := 0; ; tries++ {
		if _, err := s.search.Search(t.Context(), &summapb.SearchRequest{IndexName: "notes", Query: search.Query, FieldsToLoad: []string{"id"}}); err == nil {
			break
		} else if tries > 1000 {
			t.Fatal(err)
		}
	}
	close(watching)
	<-watched
	t.Logf("%d sent, %d refused, %d times no place; %d MiB before, %d MiB at most", sent.Load(), refused.Load(), full.Load(), before>>20, most.Load()>>20)
	if sent.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d were sent a reply, %d were refused", sent.Load(), refused.Load())
	}
	// Replies have room for 64 MiB. Beside them are four searches and eight documents at once, and garbage.
	if grown := most.Load() - before; grown > 1<<30 {
		t.Errorf("the process grew by %d MiB", grown>>20)
	}
	leave()
	if err := s.Kill(); err != nil {
		t.Error(err)
	}
}

// memory is what a process takes, in bytes.
func memory(t *testing.T, pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		var kb int64
		if n, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 && err == nil {
			return kb << 10
		}
	}
	return 0
}
