package summanode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/protoweight"
)

// notesHost has an index of notes, and tells of each run of documents.
func notesHost(t *testing.T, write func(ops []shard.Op) error) *emptyHost {
	t.Helper()
	s, err := summa.ParseSchema(`index a { field id: text<raw> [primary, stored] field t: text [indexed, stored] }`)
	if err != nil {
		t.Fatal(err)
	}
	return &emptyHost{schema: s, write: write}
}

func note(id, t string) *summapb.IndexDocumentRequest {
	text := func(name, s string) *summapb.FieldEntry {
		return &summapb.FieldEntry{Name: name, Value: &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}}
	}
	return &summapb.IndexDocumentRequest{IndexName: "a", Fields: []*summapb.FieldEntry{text("id", id), text("t", t)}}
}

func streaming(t *testing.T, conn *grpc.ClientConn) grpc.ClientStreamingClient[summapb.IndexDocumentRequest, summapb.IndexDocumentsResponse] {
	t.Helper()
	st, err := summapb.NewIndexServiceClient(conn).IndexDocuments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestDocumentsInHandAreCharged sends documents, each of which is short enough to be free, on a stream: those of a run are charged together,
// to the last that there is memory for. One more, and the run is applied before it.
func TestDocumentsInHandAreCharged(t *testing.T) {
	for _, length := range []int{1000, 5000, 15_000, 100_000} {
		text := strings.Repeat("word ", length/5)
		one := note("1000", text)
		encoded, err := proto.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		source := len(`{"id":"1000","t":""}`) + length
		size := int64(len(encoded)) + protoweight.Of(encoded, one.ProtoReflect().Descriptor(), leastNesting, 1<<30) + int64(sourceGrowth*float64(source))
		const docs = 20
		bound := docs*size - freeBytes
		for _, c := range []struct {
			limit int64
			run   int
		}{{bound, docs}, {bound - 1, docs}, {bound - int64(sourceGrowth*float64(source)), docs}, {bound - int64(sourceGrowth*float64(source)) - 1, docs - 1}} {
			var mu sync.Mutex
			var runs []int
			var h *emptyHost
			h = notesHost(t, func(ops []shard.Op) error {
				mu.Lock()
				defer mu.Unlock()
				runs = append(runs, len(ops))
				h.mu.Lock()
				defer h.mu.Unlock()
				if least := int64(len(ops))*size - freeBytes - int64(sourceGrowth*float64(source)); h.charged < least {
					t.Errorf("%d documents of %d bytes are charged with %d, want %d", len(ops), length, h.charged, least)
				}
				return nil
			})
			h.limit = c.limit
			conn := serving(t, h, Limits{})
			st := streaming(t, conn)
			for i := range 3 * docs {
				if err := st.Send(note(fmt.Sprint(1000+i), text)); err != nil && err != io.EOF {
					t.Fatal(err)
				}
			}
			r, err := st.CloseAndRecv()
			if err != nil || r.IndexedCount != 3*docs || len(r.Errors) != 0 {
				t.Fatalf("%v, %v", r, err)
			}
			mu.Lock()
			if length < freeBytes/3 && slices.Max(runs) != c.run || slices.Max(runs) > c.run {
				t.Errorf("documents of %d bytes with %d bytes of memory are applied in runs of %v, want %d", length, c.limit, runs, c.run)
			}
			mu.Unlock()
		}
	}
}

// TestManyStreamsShareTheMemory has many streams with more in hand than there is memory for: all go on, and what is charged stays within it.
func TestManyStreamsShareTheMemory(t *testing.T) {
	h := notesHost(t, func([]shard.Op) error { return nil })
	h.limit = 2 << 20
	conn := serving(t, h, Limits{})
	text := strings.Repeat("word ", 3000)
	var senders sync.WaitGroup
	for k := range 60 {
		senders.Go(func() {
			st := streaming(t, conn)
			for i := range 40 {
				if err := st.Send(note(fmt.Sprint(k, "/", i), text)); err != nil {
					break // the reply says why
				}
			}
			if r, err := st.CloseAndRecv(); err != nil || r.IndexedCount != 40 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	senders.Wait()
	if h.most > h.limit || h.most < h.limit/2 {
		t.Errorf("%d bytes were charged of %d", h.most, h.limit)
	}
}

// TestErrorsOfStreamsAreBounded refuses documents of a stream up to the memory that there is for their errors, and one more.
func TestErrorsOfStreamsAreBounded(t *testing.T) {
	h := notesHost(t, func([]shard.Op) error { return nil })
	h.limit = 4 * 2 * runStep
	conn := serving(t, h, Limits{})
	bad := note("1", "x")
	bad.Fields[1].Name = "none"
	most := (2*runStep + freeBytes) / (errorCost + len("Field 'none' not found in schema"))
	for _, n := range []int{most, most + 1} {
		st := streaming(t, conn)
		for range n {
			if err := st.Send(bad); err != nil {
				t.Fatal(err)
			}
		}
		r, err := st.CloseAndRecv()
		if n > most {
			want(t, err, codes.ResourceExhausted, errManyRefused.Text)
		} else if err != nil || len(r.Errors) != n {
			t.Errorf("%d errors, %v", len(r.GetErrors()), err)
		}
	}
}

// TestSilentStreamsKeepNoPlaceOfTheirConnection has more silent streams on a connection than it has places: its calls go on, and so does
// each of the streams.
func TestSilentStreamsKeepNoPlaceOfTheirConnection(t *testing.T) {
	var mu sync.Mutex
	got := 0
	h := notesHost(t, func(ops []shard.Op) error {
		mu.Lock()
		defer mu.Unlock()
		got += len(ops)
		return nil
	})
	conn := serving(t, h, Limits{})
	var list []grpc.ClientStreamingClient[summapb.IndexDocumentRequest, summapb.IndexDocumentsResponse]
	for k := range grpcmsg.PerConn + 20 {
		st := streaming(t, conn)
		if k%2 == 0 {
			if err := st.Send(note(fmt.Sprint(k), "x")); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, st)
	}
	if _, err := summapb.NewIndexServiceClient(conn).ListIndexes(t.Context(), &summapb.ListIndexesRequest{}); err != nil {
		t.Error(err)
	}
	for k, st := range list {
		if err := st.Send(note(fmt.Sprint(k, "/2"), "x")); err != nil {
			t.Fatal(err)
		}
		if _, err := st.CloseAndRecv(); err != nil {
			t.Error(err)
		}
	}
	if want := len(list) + len(list)/2; got != want {
		t.Errorf("%d documents came in, want %d", got, want)
	}
}

// TestSilentStreamsGiveWayToOthers has as many silent streams as there may be: the one that is silent longest ends when another wants its
// place, and what it has sent is in. One that was not silent for long stays.
func TestSilentStreamsGiveWayToOthers(t *testing.T) {
	applied := make(chan int, 10)
	h := notesHost(t, func(ops []shard.Op) error {
		applied <- len(ops)
		return nil
	})
	conn := serving(t, h, Limits{Streams: 2, Stall: 50 * time.Millisecond})
	first, second := streaming(t, conn), streaming(t, conn)
	for _, st := range []grpc.ClientStreamingClient[summapb.IndexDocumentRequest, summapb.IndexDocumentsResponse]{first, second} {
		if err := st.Send(note("1", "x")); err != nil {
			t.Fatal(err)
		}
		<-applied // after a pause
	}
	third := streaming(t, conn)
	if err := third.Send(note("3", "x")); err != nil {
		t.Fatal(err)
	}
	if r, err := third.CloseAndRecv(); err != nil || r.IndexedCount != 1 {
		t.Errorf("%v, %v", r, err)
	}
	want(t, first.RecvMsg(&summapb.IndexDocumentsResponse{}), codes.ResourceExhausted, errSilent.Text)
	if r, err := second.CloseAndRecv(); err != nil || r.IndexedCount != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestCallsWithoutAWholeMessageEndWithTheServer ends a server before callers of whom nothing has come, or a part of a message: the first end
// at once, the others when they had a moment. Those whose message is whole go on.
func TestCallsWithoutAWholeMessageEndWithTheServer(t *testing.T) {
	const batch, stream = "/summa.IndexService/BatchIndexDocuments", "/summa.IndexService/IndexDocuments"
	for _, c := range []struct {
		name string
		play func(d *deaf)
		took time.Duration
	}{
		{"no message", func(d *deaf) { d.begin(batch) }, 0},
		{"a stream without a message", func(d *deaf) { d.begin(stream) }, 0},
		{"half a header", func(d *deaf) { d.frame(0, 0, d.begin(batch), []byte{0, 0, 0}) }, 0},
		{"a header", func(d *deaf) { d.frame(0, 0, d.begin(batch), []byte{0, 0, 0, 1, 0}) }, 5 * time.Second},
		{"half a message", func(d *deaf) { d.frame(0, 0, d.begin(batch), []byte{0, 0, 0, 0, 9, 10, 1}) }, 5 * time.Second},
		{"half a long message", func(d *deaf) {
			s := d.begin(batch)
			d.frame(0, 0, s, append([]byte{0, 0, 1, 0, 0}, make([]byte, 10_000)...))
			d.frame(0, 0, s, make([]byte, 10_000))
		}, 5 * time.Second},
		{"half a message of a stream", func(d *deaf) { d.frame(0, 0, d.begin(stream), []byte{0, 0, 0, 0, 9, 10, 1}) }, 0},
		{"a call under way", func(d *deaf) { d.call("/summa.IndexService/Commit", 10, 1, 'a') }, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &emptyHost{limit: 1 << 30, use: func() { <-time.After(20 * time.Second) }}
				s := New(Config{Host: h, Limits: Limits{}.WithDefaults(2), Log: slog.New(slog.DiscardHandler), Metrics: obs.NewMetrics("test")})
				lis := bufconn.Listen(64 << 10)
				l := s.Binding("").Server(lis)
				done := make(chan error, 1)
				go func() { done <- l.Serve() }()
				d := deafDial(t, lis, 1<<16, nil)
				c.play(d)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				began := time.Now()
				if err := l.Shutdown(ctx); err != nil {
					t.Errorf("shutdown: %v", err)
				}
				// gRPC looks a second later whether a connection has learned of the end.
				if took := time.Since(began); took < c.took || took > c.took+time.Second {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if err := errors.Join(l.Close(), d.conn.Close()); err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil && !errors.Is(err, l.Closed) {
					t.Error(err)
				}
				<-d.gone
				if h.charged != 0 {
					t.Errorf("%d bytes are still charged", h.charged)
				}
			})
		})
	}
}
