package summatest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	summapb "github.com/weft-search/weft/api/summa"
)

// TestDocumentsOfManyStreamsAreBounded has hundreds of streams with hundreds of documents each in hand, every one of which is short: what they
// take is within the memory for messages, and all of them come in.
func TestDocumentsOfManyStreamsAreBounded(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the system does not tell the memory of a process")
	}
	const streams, docs, length, megabytes = 99, 260, 15_000, 64
	s := startPlain(t, t.TempDir(), "--request-mb", fmt.Sprint(megabytes), "--memtable-mb", "16")
	if _, err := s.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{
		IndexName: "notes", Schema: `index notes { field id: text<raw> [primary, stored] field body: text [stored] }`,
	}); err != nil {
		t.Fatal(err)
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
	body := strings.Repeat("word ", length/5)
	var senders sync.WaitGroup
	for c := range 3 {
		conn, err := grpc.NewClient(s.Listening["summa"], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		for k := range streams / 3 {
			senders.Go(func() {
				st, err := summapb.NewIndexServiceClient(conn).IndexDocuments(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for i := range docs {
					d := document(fmt.Sprint(c, "/", k, "/", i), body)
					if err := st.Send(&summapb.IndexDocumentRequest{IndexName: "notes", Fields: d.Fields}); err != nil {
						break // the reply says why
					}
				}
				if r, err := st.CloseAndRecv(); err != nil || r.GetIndexedCount() != docs || len(r.GetErrors()) != 0 {
					t.Errorf("%d are in, %d refused, %v", r.GetIndexedCount(), len(r.GetErrors()), err)
				}
			})
		}
	}
	senders.Wait()
	close(watching)
	<-watched
	t.Logf("%d MB came in; %d MiB before, %d MiB at most", streams*docs*length/1_000_000, before>>20, most.Load()>>20)
	// Beside the messages there are memtables, garbage, and what the transport has of streams that wait.
	if grown := (most.Load() - before) >> 20; grown > 10*megabytes {
		t.Errorf("the process grew by %d MiB", grown)
	}
	if err := s.Kill(); err != nil {
		t.Error(err)
	}
}
