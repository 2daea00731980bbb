package framed

import (
	"context"
	"flag"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a leaf made of functions. A call without one fails the test by a nil dereference.
type fake struct {
	leaf.Leaf
	ping   func(ctx context.Context) (*leaf.PingReply, error)
	info   func(ctx context.Context, r *leaf.InfoRequest) (*leaf.InfoReply, error)
	docs   func(ctx context.Context, r *leaf.DocsRequest) (*leaf.DocsReply, error)
	search func(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error)
	stats  func(ctx context.Context, r *leaf.StatsRequest) (*leaf.StatsReply, error)
	agg    func(ctx context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error)
	knn    func(ctx context.Context, r *leaf.KNNRequest) (*leaf.KNNReply, error)
	ids    func(ctx context.Context, r *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error)
	export func(ctx context.Context, r *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error)
	has    func(ctx context.Context, r *leaf.HasRequest) (*leaf.HasReply, error)
	delete func(ctx context.Context, r *leaf.DeleteRequest) (*leaf.DeleteReply, error)
	index  func(ctx context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error)
	bulk   func(ctx context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error)
}

func (f *fake) Ping(ctx context.Context) (*leaf.PingReply, error) { return f.ping(ctx) }
func (f *fake) Info(ctx context.Context, r *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return f.info(ctx, r)
}

func (f *fake) Docs(ctx context.Context, r *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return f.docs(ctx, r)
}

func (f *fake) Search(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return f.search(ctx, r)
}

func (f *fake) Stats(ctx context.Context, r *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return f.stats(ctx, r)
}

func (f *fake) Aggregate(ctx context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return f.agg(ctx, r)
}

func (f *fake) KNN(ctx context.Context, r *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return f.knn(ctx, r)
}

func (f *fake) IDs(ctx context.Context, r *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
	return f.ids(ctx, r, page)
}

func (f *fake) Export(ctx context.Context, r *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return f.export(ctx, r, each)
}

func (f *fake) Has(ctx context.Context, r *leaf.HasRequest) (*leaf.HasReply, error) {
	return f.has(ctx, r)
}

func (f *fake) DeleteMany(ctx context.Context, r *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return f.delete(ctx, r)
}

func (f *fake) Index(ctx context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return f.index(ctx, r)
}

func (f *fake) Bulk(ctx context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	return f.bulk(ctx, r, body)
}

// serveLeaf serves a leaf on a loopback address until the test ends.
func serveLeaf(t testing.TB, l leaf.Leaf, limits frame.Limits) (addr string) {
	t.Helper()
	h := NewHandler(l, HandlerOptions{MaxReply: limits.MaxReply})
	s := &frame.Server{Handler: h.Handle, Refuse: Refuse, Limits: limits}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return lis.Addr().String()
}

// dial returns a client for an address until the test ends.
func dial(t testing.TB, c *frame.Client) *Client {
	t.Helper()
	client := NewClient(c)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}
