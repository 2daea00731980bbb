package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/serve"
)

func code(err error) api.Code {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Code
	}
	return ""
}

func transport(t *testing.T, err error) *leaf.TransportError {
	t.Helper()
	e, ok := errors.AsType[*leaf.TransportError](err)
	if !ok {
		t.Fatalf("%v is no transport error", err)
	}
	return e
}

func TestEveryCall(t *testing.T) {
	r := start(t, &fake{}, ServerOptions{}, Options{})
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"ping":      func() error { _, err := r.Ping(ctx); return err },
		"info":      func() error { _, err := r.Info(ctx, &leaf.InfoRequest{}); return err },
		"docs":      func() error { _, err := r.Docs(ctx, &leaf.DocsRequest{}); return err },
		"search":    func() error { _, err := r.Search(ctx, &leaf.SearchRequest{Query: &query.All{}}); return err },
		"stats":     func() error { _, err := r.Stats(ctx, &leaf.StatsRequest{}); return err },
		"aggregate": func() error { _, err := r.Aggregate(ctx, &leaf.AggregateRequest{Values: []string{"a"}}); return err },
		"knn":       func() error { _, err := r.KNN(ctx, &leaf.KNNRequest{}); return err },
		"has":       func() error { _, err := r.Has(ctx, &leaf.HasRequest{IDs: []string{"a", ""}}); return err },
		"delete":    func() error { _, err := r.DeleteMany(ctx, &leaf.DeleteRequest{IDs: []string{"a"}}); return err },
		"index":     func() error { _, err := r.Index(ctx, &leaf.IndexRequest{Body: []byte("{}")}); return err },
		"ids":       func() error { _, err := r.IDs(ctx, &leaf.IDsRequest{}, nil); return err },
		"export":    func() error { _, err := r.Export(ctx, &leaf.ExportRequest{}, nil); return err },
		"bulk":      func() error { _, err := r.Bulk(ctx, &leaf.BulkRequest{}, strings.NewReader("{}\n")); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := r.server.Counters(); c.Calls != 13 || c.Refused+c.Stalled+c.Panics != 0 {
		t.Errorf("%+v", c)
	}
}

// A client made of the generated code alone, health checks and reflection work with the same server.
func TestStockClient(t *testing.T) {
	r := start(t, &fake{search: func(_ context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
		if req.Limit > 10 {
			return nil, api.NewProblem(api.InvalidParameter, "too many").On("limit").Within(10)
		}
		return &leaf.SearchReply{Hits: []leaf.Hit{{ID: "a", Score: 2}, {ID: "bc", Score: 1}}}, nil
	}}, ServerOptions{}, Options{})
	r.stop()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(r.server.leaf, ServerOptions{Reflection: true})
	g, _ := s.GRPC()
	served := make(chan error, 1)
	go func() { served <- g.Serve(listen) }()
	defer func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(listen.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stub := pb.NewShardClient(conn)
	reply, err := stub.Search(t.Context(), &pb.SearchRequest{Limit: 2})
	if err != nil || string(reply.Ids.Data) != "abc" || len(reply.Scores) != 2 {
		t.Errorf("%v, %v", reply, err)
	}
	_, err = stub.Search(t.Context(), &pb.SearchRequest{Limit: 11})
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || len(st.Details()) != 1 {
		t.Errorf("%v", err)
	}
	list, err := stub.IDs(t.Context(), &pb.IDsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := list.Recv(); err != nil || m.End == nil {
		t.Errorf("%v, %v", m, err)
	}
	if h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "weft.shard.v1.Shard"}); err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", h, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refl, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := refl.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "weft.shard.v1.Shard"}}); err != nil {
		t.Fatal(err)
	}
	if m, err := refl.Recv(); err != nil || m.GetFileDescriptorResponse() == nil {
		t.Errorf("%v, %v", m, err)
	}
}

func TestProblemsOfTheNodeArrive(t *testing.T) {
	want := api.NewProblem(api.InvalidQuery, "expected a word").On("q").At(3)
	want.Extra, want.Expected = []byte(`"a":1`), "a word"
	var failed atomic.Int32
	r := start(t, &fake{
		search: func(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) { return nil, want },
		info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
			return nil, errors.New("open /secret/path")
		},
		ping: func(context.Context) (*leaf.PingReply, error) { panic("boom") },
	}, ServerOptions{Failed: func(string, error) { failed.Add(1) }}, Options{})
	_, err := r.Search(t.Context(), &leaf.SearchRequest{})
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		t.Fatal(err)
	}
	same(t, p, want)
	_, err = r.Info(t.Context(), &leaf.InfoRequest{})
	if code(err) != api.Internal || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	_, err = r.Ping(t.Context())
	if code(err) != api.Internal || strings.Contains(err.Error(), "boom") {
		t.Error(err)
	}
	if r.server.Counters().Panics != 1 || failed.Load() != 2 {
		t.Errorf("%+v, %d failures", r.server.Counters(), failed.Load())
	}
	_, err = r.Info(t.Context(), &leaf.InfoRequest{Index: "\xff"})
	if code(err) != api.InvalidUTF8 {
		t.Error(err)
	}
}

// A caller that goes away while the reply is sent is no failure of the node.
func TestAConnectionThatEndsIsNoFailure(t *testing.T) {
	var failed int
	s := NewServer(&fake{}, ServerOptions{Failed: func(string, error) { failed++ }})
	for _, c := range []codes.Code{codes.Canceled, codes.Unavailable} {
		if err := s.status(t.Context(), "Search", status.Error(c, "transport is closing")); status.Code(err) != c {
			t.Errorf("%v became %v", c, err)
		}
	}
	if failed != 0 {
		t.Errorf("%d failures", failed)
	}
	if err := s.status(t.Context(), "Search", errors.New("anything else")); code(err) != api.Internal && status.Code(err) != codes.Internal || failed != 1 {
		t.Errorf("%v, %d failures", err, failed)
	}
}

var errStop = errors.New("another was faster")

// The end of the caller's context ends the work of the node, and the call returns the cause.
func TestContextsReachTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		begin := time.Now()
		r := start(t, &fake{search: func(ctx context.Context, _ *leaf.SearchRequest) (*leaf.SearchReply, error) {
			<-ctx.Done()
			ended <- time.Since(begin)
			return nil, context.Cause(ctx)
		}}, ServerOptions{}, Options{})
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errStop)
		defer cancel()
		if _, err := r.Search(ctx, &leaf.SearchRequest{}); err != errStop {
			t.Error(err)
		}
		if d := <-ended; d < 30*time.Second || d > 30*time.Second+10*time.Millisecond {
			t.Errorf("ended after %v", d)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errStop) })
		begin = time.Now()
		if _, err := r.Search(ctx, &leaf.SearchRequest{}); err != errStop {
			t.Error(err)
		}
		if d := <-ended; d != time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

// The caller learns that the call has begun while it is under way, and not while it waits in the queue.
func TestBegunReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{search: func(ctx context.Context, req *leaf.SearchRequest) (*leaf.SearchReply, error) {
			<-time.After(time.Second)
			if req.Limit == 1 {
				return nil, api.NewProblem(api.TooManySearches, "no place")
			}
			serve.Begun(ctx)
			serve.Begun(ctx)
			<-time.After(time.Second)
			return &leaf.SearchReply{}, nil
		}}, ServerOptions{}, Options{})
		begin := time.Now()
		begun := make(chan time.Duration, 2)
		ctx := serve.WithBegun(t.Context(), func() { begun <- time.Since(begin) })
		if _, err := r.Search(ctx, &leaf.SearchRequest{}); err != nil {
			t.Fatal(err)
		}
		if d := <-begun; d != time.Second {
			t.Errorf("begun after %v", d)
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("done after %v", d)
		}
		if _, err := r.Search(serve.WithBegun(t.Context(), func() { t.Error("a refused call has begun") }), &leaf.SearchRequest{Limit: 1}); code(err) != api.TooManySearches {
			t.Error(err)
		}
	})
}

func TestNoNode(t *testing.T) {
	c, err := Dial("node:1", Options{Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody there") }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Index(t.Context(), &leaf.IndexRequest{})
	if e := transport(t, err); e.MaybeApplied || e.Crashed || e.Address != "node:1" || e.Call != "Index" || leaf.ClassOf(err) != leaf.Elsewhere {
		t.Errorf("%+v", e)
	}
}

// A node that goes away in the middle of a call may have applied it, and may have died of it.
func TestNodeDies(t *testing.T) {
	for _, kind := range []string{"index", "search", "bulk in its queue", "bulk"} {
		t.Run(kind, func(t *testing.T) {
			arrived := make(chan struct{})
			hang := func(ctx context.Context) error {
				close(arrived)
				<-ctx.Done()
				return context.Cause(ctx)
			}
			var conns atomic.Pointer[net.Conn]
			f := &fake{
				index:  func(ctx context.Context, _ *leaf.IndexRequest) (*leaf.IndexReply, error) { return nil, hang(ctx) },
				search: func(ctx context.Context, _ *leaf.SearchRequest) (*leaf.SearchReply, error) { return nil, hang(ctx) },
				bulk: func(ctx context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
					if kind == "bulk" {
						if _, err := body.Read(make([]byte, 1)); err != nil {
							return nil, err
						}
					}
					return nil, hang(ctx)
				},
			}
			r := start(t, f, ServerOptions{}, Options{})
			c, err := Dial("node:1", Options{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				conn, err := r.listen.DialContext(ctx)
				conns.Store(&conn)
				return conn, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				<-arrived
				if err := (*conns.Load()).Close(); err != nil {
					t.Error(err)
				}
			}()
			write := true
			switch kind {
			case "index":
				_, err = c.Index(t.Context(), &leaf.IndexRequest{})
			case "search":
				write = false
				_, err = c.Search(t.Context(), &leaf.SearchRequest{})
			case "bulk in its queue":
				write = false // nothing of the body was sent
				_, err = c.Bulk(t.Context(), &leaf.BulkRequest{}, forbidden{t})
			case "bulk":
				_, err = c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(strings.Repeat("x", 1<<20)))
			}
			if e := transport(t, err); e.MaybeApplied != write || !e.Crashed {
				t.Errorf("%+v", e)
			}
		})
	}
}

// forbidden is a body that nobody may read.
type forbidden struct{ t *testing.T }

func (f forbidden) Read([]byte) (int, error) {
	f.t.Error("the body was read")
	return 0, io.EOF
}

func TestClose(t *testing.T) {
	arrived := make(chan struct{})
	r := start(t, &fake{index: func(ctx context.Context, _ *leaf.IndexRequest) (*leaf.IndexReply, error) {
		close(arrived)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}, ServerOptions{}, Options{})
	done := make(chan error, 1)
	go func() {
		_, err := r.Index(context.Background(), &leaf.IndexRequest{})
		done <- err
	}()
	<-arrived
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	err := <-done
	if e := transport(t, err); !e.MaybeApplied || e.Crashed || !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("%+v", e)
	}
	_, err = r.Index(t.Context(), &leaf.IndexRequest{})
	if e := transport(t, err); e.MaybeApplied || !errors.Is(err, leaf.ErrClosed) {
		t.Errorf("%+v", e)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestTooManyCalls(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	r := start(t, &fake{info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
		in <- struct{}{}
		<-out
		return &leaf.InfoReply{}, nil
	}}, ServerOptions{Calls: 2}, Options{})
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := r.Info(context.Background(), &leaf.InfoRequest{})
			done <- err
		}()
		<-in
	}
	_, err := r.Ping(t.Context())
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.TooManySearches || p.Limit != 2 || p.RetryAfterMS == 0 {
		t.Error(err)
	}
	if _, err := r.Index(t.Context(), &leaf.IndexRequest{}); code(err) != api.TooManyWrites {
		t.Error(err)
	}
	close(out)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A large message waits for memory, and a small one needs none.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(chan struct{})
		r := start(t, &fake{index: func(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
			<-out
			return &leaf.IndexReply{}, nil
		}}, ServerOptions{MaxMessage: 1 << 20, MaxRequest: 1 << 20, Memory: 5 << 20}, Options{})
		done := make(chan error, 8)
		// Each message counts twice, and two leave too little for a third.
		call := func(bytes int) {
			_, err := r.Index(context.Background(), &leaf.IndexRequest{Body: make([]byte, bytes)})
			done <- err
		}
		for _, n := range []int{1, 1, 1, 1, 1 << 20, 1 << 20} {
			go call(n)
			synctest.Wait()
		}
		begin := time.Now()
		_, err := r.Index(t.Context(), &leaf.IndexRequest{Body: make([]byte, 1<<20)})
		if code(err) != api.RequestMemoryFull || time.Since(begin) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		begin = time.Now()
		if _, err := r.Ping(t.Context()); err != nil || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		close(out)
		for range 6 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if _, err := r.Index(t.Context(), &leaf.IndexRequest{Body: make([]byte, 1<<20)}); err != nil {
			t.Error(err)
		}
		allBack(t, r.server)
	})
}

func TestMessageSizes(t *testing.T) {
	r := start(t, &fake{info: func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
		return &leaf.InfoReply{Version: strings.Repeat("x", 3<<10)}, nil
	}}, ServerOptions{MaxMessage: 256 << 10, MaxRequest: 64 << 10, MaxReply: 2 << 10}, Options{})
	big := make([]byte, 256<<10)
	if _, err := r.Index(t.Context(), &leaf.IndexRequest{Body: big}); err != nil {
		t.Error(err)
	}
	for _, n := range []int{321 << 10, 4 << 20} {
		if _, err := r.Index(t.Context(), &leaf.IndexRequest{Body: make([]byte, n)}); code(err) != api.BodyTooLarge {
			t.Error(err)
		}
	}
	if _, err := r.Has(t.Context(), &leaf.HasRequest{IDs: []string{string(big[:65<<10])}}); code(err) != api.BodyTooLarge {
		t.Error(err)
	}
	if _, err := r.Info(t.Context(), &leaf.InfoRequest{}); code(err) != api.ReplyTooLarge {
		t.Error(err)
	}
	small := start(t, &fake{info: r.server.leaf.(*fake).info}, ServerOptions{}, Options{MaxReply: 1 << 10})
	_, err := small.Info(t.Context(), &leaf.InfoRequest{})
	transport(t, err)
}

// rawCall opens a stream without the client's own behaviour.
func rawCall(t *testing.T, r *rig, name string, desc grpc.StreamDesc) grpc.ClientStream {
	t.Helper()
	s, err := r.conn.NewStream(t.Context(), &desc, method{name: name}.path())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A caller that opens a call and sends no message, or no more of a bulk load, is cut off.
func TestSlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		r := start(t, &fake{bulk: func(ctx context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
			_, err := io.Copy(io.Discard, body)
			ended <- err
			return nil, err
		}}, ServerOptions{}, Options{})
		begin := time.Now()
		s := rawCall(t, r, "Search", grpc.StreamDesc{ClientStreams: true})
		err := s.RecvMsg(&envelope{message: &pb.SearchReply{}})
		if p := trailedProblem(s.Trailer()); p == nil || p.Code != api.BodyTimeout || time.Since(begin) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		allBack(t, r.server)

		begin = time.Now()
		s = rawCall(t, r, "Bulk", grpc.StreamDesc{ClientStreams: true})
		if err := s.SendMsg(&envelope{message: &pb.BulkRequest{Data: []byte("{}\n")}}); err != nil {
			t.Fatal(err)
		}
		err = s.RecvMsg(&envelope{message: &pb.BulkReply{}})
		if p := trailedProblem(s.Trailer()); p == nil || p.Code != api.BodyTimeout || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if err := <-ended; code(err) != api.BodyTimeout {
			t.Errorf("the node saw %v", err)
		}
		if c := r.server.Counters(); c.Stalled != 2 || c.Running != 0 || c.Bulks != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// A reader that is slow holds the node back; one that takes nothing ends the call.
func TestSlowReader(t *testing.T) {
	for _, kind := range []string{"ids", "export"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int64 // bytes the node has given out
				ended := make(chan error, 1)
				id := strings.Repeat("i", 500)
				f := &fake{
					ids: func(ctx context.Context, _ *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
						for i := range 1000 {
							ids := make([]string, 1000)
							for j := range ids {
								ids[j] = fmt.Sprintf("%s%06d", id, i*1000+j)
							}
							if err := page(ids); err != nil {
								ended <- err
								return nil, err
							}
							sent.Add(500_000)
						}
						return &leaf.IDsReply{}, nil
					},
					export: func(ctx context.Context, _ *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
						doc := bytes.Repeat([]byte("d"), 100_000)
						for range 10_000 {
							if err := each(leaf.ExportedDoc{ID: "a", Source: doc}); err != nil {
								ended <- err
								return nil, err
							}
							sent.Add(int64(len(doc)))
						}
						return &leaf.ExportReply{}, nil
					},
				}
				r := start(t, f, ServerOptions{}, Options{})
				// What is on its way: the window of the client, the quota of gRPC with one message over it, one page in the making.
				const most = 512<<10 + 64<<10 + 3*600<<10
				taken := int64(0)
				slow := make(chan struct{})
				take := func(n int) error {
					synctest.Wait() // the node has sent what it can
					if ahead := sent.Load() - taken; ahead > most {
						t.Errorf("%d bytes are on their way", ahead)
					}
					if taken += int64(n); taken > 3_000_000 {
						<-slow
					}
					return nil
				}
				done := make(chan error, 1)
				begin := time.Now()
				go func() {
					var err error
					if kind == "ids" {
						_, err = r.IDs(context.Background(), &leaf.IDsRequest{}, func(ids []string) error { return take(500 * len(ids)) })
					} else {
						_, err = r.Export(context.Background(), &leaf.ExportRequest{IDs: make([]string, leaf.MaxIDs)}, func(d leaf.ExportedDoc) error { return take(len(d.Source)) })
					}
					done <- err
				}()
				err := <-ended
				if code(err) != api.Timeout || time.Since(begin) != time.Minute {
					t.Errorf("the node saw %v after %v", err, time.Since(begin))
				}
				close(slow)
				if err := <-done; code(err) != api.Timeout {
					t.Errorf("the caller saw %v", err)
				}
				if c := r.server.Counters(); c.Stalled != 1 || c.Running != 0 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// A page of an export is bounded by documents and by bytes, and a large document comes alone.
func TestExportPages(t *testing.T) {
	var docs []leaf.ExportedDoc
	add := func(n, size int) {
		for range n {
			docs = append(docs, leaf.ExportedDoc{ID: fmt.Sprint("d", len(docs)), Source: bytes.Repeat([]byte{byte(len(docs))}, size)})
		}
	}
	add(2500, 10)
	add(1, 1<<20)
	add(1, 0)
	add(5, 100<<10)
	r := start(t, &fake{export: func(_ context.Context, _ *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
		for _, d := range docs {
			if err := each(d); err != nil {
				return nil, err
			}
		}
		return &leaf.ExportReply{Missing: []string{"gone"}}, nil
	}}, ServerOptions{}, Options{})
	var got []leaf.ExportedDoc
	reply, err := r.Export(t.Context(), &leaf.ExportRequest{IDs: make([]string, len(docs))}, func(d leaf.ExportedDoc) error {
		got = append(got, d)
		return nil
	})
	if err != nil || len(reply.Missing) != 1 {
		t.Fatal(reply, err)
	}
	if !slices.EqualFunc(got, docs, func(a, b leaf.ExportedDoc) bool { return a.ID == b.ID && bytes.Equal(a.Source, b.Source) }) {
		t.Errorf("%d documents came, of %d, or other ones", len(got), len(docs))
	}

	s := rawCall(t, r, "Export", grpc.StreamDesc{ServerStreams: true})
	if err := s.SendMsg(&envelope{message: &pb.ExportRequest{}}); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for {
		var m pb.ExportReply
		if err := s.RecvMsg(&envelope{message: &m}); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(m.Ids.GetLengths()))
	}
	same(t, sizes, []int{1000, 1000, 500, 1, 3, 2, 1, 0})
	// The large document is one message, the empty one is with the next two of 100 KiB.

	wrong := errors.New("enough")
	if _, err := r.Export(t.Context(), &leaf.ExportRequest{IDs: make([]string, len(docs))}, func(leaf.ExportedDoc) error { return wrong }); err != wrong {
		t.Error(err)
	}
	_, err = r.Export(t.Context(), &leaf.ExportRequest{IDs: []string{"a"}}, func(leaf.ExportedDoc) error { return nil })
	transport(t, err) // more than were asked for
}

// Nothing is given to a caller whose context has ended.
func TestListsEndWithTheContext(t *testing.T) {
	r := start(t, &fake{
		ids: func(_ context.Context, _ *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
			for range 100 {
				if err := page([]string{"a"}); err != nil {
					return nil, err
				}
			}
			return &leaf.IDsReply{}, nil
		},
		export: func(_ context.Context, _ *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
			for range 100 {
				if err := each(leaf.ExportedDoc{}); err != nil {
					return nil, err
				}
			}
			return &leaf.ExportReply{}, nil
		},
	}, ServerOptions{}, Options{})
	try := func(call func(ctx context.Context, once func() error) error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		err := call(ctx, func() error {
			if ctx.Err() != nil {
				t.Error("given more after the end")
			}
			cancel(errStop)
			return nil
		})
		if err != errStop {
			t.Error(err)
		}
	}
	for range 20 {
		try(func(ctx context.Context, once func() error) error {
			_, err := r.IDs(ctx, &leaf.IDsRequest{}, func([]string) error { return once() })
			return err
		})
		try(func(ctx context.Context, once func() error) error {
			_, err := r.Export(ctx, &leaf.ExportRequest{IDs: make([]string, 100)}, func(leaf.ExportedDoc) error { return once() })
			return err
		})
	}
}

// The sender of a bulk load waits for the node, and the node is told of a body that breaks off.
func TestBulk(t *testing.T) {
	t.Run("pace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			step := make(chan struct{})
			var taken atomic.Int64
			r := start(t, &fake{bulk: func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
				b := make([]byte, 64<<10)
				for {
					<-step
					n, err := body.Read(b)
					taken.Add(int64(n))
					if err == io.EOF {
						return &leaf.BulkReply{BulkReply: api.BulkReply{Indexed: 7}}, nil
					}
					if err != nil {
						return nil, err
					}
				}
			}}, ServerOptions{}, Options{})
			read := atomic.Int64{}
			const size = 8 << 20
			body := &counting{Reader: io.LimitReader(zeros{}, size), n: &read}
			done := make(chan error, 1)
			go func() {
				reply, err := r.Bulk(context.Background(), &leaf.BulkRequest{}, body)
				if err == nil && reply.Indexed != 7 {
					err = fmt.Errorf("%+v", reply)
				}
				done <- err
			}()
			synctest.Wait()
			if read.Load() != 0 {
				t.Errorf("%d bytes were read before the load began", read.Load())
			}
			for running := true; running; {
				select {
				case step <- struct{}{}:
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
					running = false
				}
				synctest.Wait()
				// The window of the server, the quota of gRPC with one piece over it, and one piece in hand.
				if ahead := read.Load() - taken.Load(); ahead > 256<<10+64<<10+3*bulkPiece {
					t.Fatalf("the sender is %d bytes ahead", ahead)
				}
			}
			if taken.Load() != size {
				t.Errorf("%d bytes", taken.Load())
			}
		})
	})
	t.Run("broken body", func(t *testing.T) {
		r := start(t, &fake{bulk: func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
			b, err := io.ReadAll(body)
			if string(b) != "{}\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q, %v", b, err)
			}
			return nil, api.NewProblem(api.InvalidBody, "it breaks off")
		}}, ServerOptions{}, Options{})
		_, err := r.Bulk(t.Context(), &leaf.BulkRequest{}, io.MultiReader(strings.NewReader("{}\n"), broken{}))
		if code(err) != api.InvalidBody || !errors.Is(err, errStop) {
			t.Error(err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		r := start(t, &fake{bulk: func(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error) {
			return nil, api.NewProblem(api.TooManyBulks, "no place")
		}}, ServerOptions{}, Options{})
		if _, err := r.Bulk(t.Context(), &leaf.BulkRequest{}, forbidden{t}); code(err) != api.TooManyBulks {
			t.Error(err)
		}
	})
	t.Run("refused in the middle", func(t *testing.T) {
		r := start(t, &fake{bulk: func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
			if _, err := body.Read(make([]byte, 10)); err != nil {
				return nil, err
			}
			return nil, api.NewProblem(api.DiskFull, "no room")
		}}, ServerOptions{}, Options{})
		if _, err := r.Bulk(t.Context(), &leaf.BulkRequest{}, zeros{}); code(err) != api.DiskFull {
			t.Error(err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		r := start(t, &fake{bulk: func(ctx context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
			if _, err := body.Read(make([]byte, 10)); err != nil {
				return nil, err
			}
			cancel(errStop)
			_, err := io.Copy(io.Discard, body)
			ended <- err
			return nil, err
		}}, ServerOptions{}, Options{})
		_, err := r.Bulk(ctx, &leaf.BulkRequest{}, zeros{})
		if e := transport(t, err); !e.MaybeApplied || !errors.Is(err, errStop) {
			t.Errorf("%+v", e)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the node saw %v", err)
		}
	})
	t.Run("too many", func(t *testing.T) {
		in, out := make(chan struct{}), make(chan struct{})
		r := start(t, &fake{bulk: func(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error) {
			in <- struct{}{}
			<-out
			return &leaf.BulkReply{}, nil
		}}, ServerOptions{Memory: 1}, Options{})
		done := make(chan error, 1)
		go func() {
			_, err := r.Bulk(context.Background(), &leaf.BulkRequest{}, strings.NewReader(""))
			done <- err
		}()
		<-in
		if _, err := r.Bulk(t.Context(), &leaf.BulkRequest{}, forbidden{t}); code(err) != api.TooManyBulks {
			t.Error(err)
		}
		close(out)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errStop }

type counting struct {
	io.Reader
	n *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// A list without its end, or with something behind it, is not whole.
func TestUnfinishedLists(t *testing.T) {
	for name, messages := range map[string][]*pb.IDsReply{
		"no end":     {{Ids: packTexts([]string{"a"})}},
		"two ends":   {{End: &pb.IDsEnd{}}, {End: &pb.IDsEnd{}}},
		"misfits":    {{Ids: &pb.Texts{Lengths: []uint32{9}}}},
		"large page": {{Ids: &pb.Texts{Lengths: make([]uint32, leaf.MaxIDPage+1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := grpc.NewServer()
			pb.RegisterShardServer(g, liar{messages: messages})
			listen, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- g.Serve(listen) }()
			defer func() {
				g.Stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			c, err := Dial(listen.Addr().String(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.IDs(t.Context(), &leaf.IDsRequest{}, func([]string) error { return nil })
			transport(t, err)
			_, err = c.Search(t.Context(), &leaf.SearchRequest{Limit: 1})
			transport(t, err)
			_, err = c.Index(t.Context(), &leaf.IndexRequest{})
			if e := transport(t, err); !e.MaybeApplied || e.Crashed {
				t.Errorf("%+v", e)
			}
		})
	}
}

// liar is a server whose replies do not fit.
type liar struct {
	pb.UnimplementedShardServer
	messages []*pb.IDsReply
}

func (l liar) IDs(_ *pb.IDsRequest, s grpc.ServerStreamingServer[pb.IDsReply]) error {
	for _, m := range l.messages {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (liar) Search(context.Context, *pb.SearchRequest) (*pb.SearchReply, error) {
	return &pb.SearchReply{Ids: packTexts([]string{"a", "b"}), Scores: []float32{1, 2}}, nil
}
