package rpc

import (
	"context"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/weft-search/weft/internal/leaf"
)

// fake is a leaf made of functions. Methods without one answer with a zero reply.
type fake struct {
	ping   func(context.Context) (*leaf.PingReply, error)
	info   func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error)
	search func(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error)
	ids    func(context.Context, *leaf.IDsRequest, func([]string) error) (*leaf.IDsReply, error)
	export func(context.Context, *leaf.ExportRequest, func(leaf.ExportedDoc) error) (*leaf.ExportReply, error)
	index  func(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error)
	bulk   func(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error)
}

func (f *fake) Ping(ctx context.Context) (*leaf.PingReply, error) {
	if f.ping == nil {
		return &leaf.PingReply{Node: "n"}, nil
	}
	return f.ping(ctx)
}

func (f *fake) Info(ctx context.Context, r *leaf.InfoRequest) (*leaf.InfoReply, error) {
	if f.info == nil {
		return &leaf.InfoReply{}, nil
	}
	return f.info(ctx, r)
}

func (f *fake) Docs(context.Context, *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return &leaf.DocsReply{Docs: 3}, nil
}

func (f *fake) Search(ctx context.Context, r *leaf.SearchRequest) (*leaf.SearchReply, error) {
	if f.search == nil {
		return &leaf.SearchReply{}, nil
	}
	return f.search(ctx, r)
}

func (f *fake) Stats(context.Context, *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return &leaf.StatsReply{}, nil
}

func (f *fake) Aggregate(_ context.Context, r *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	reply := &leaf.AggregateReply{}
	for _, v := range r.Values {
		reply.Values = append(reply.Values, leaf.FieldValues{Field: v})
	}
	return reply, nil
}

func (f *fake) KNN(context.Context, *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return &leaf.KNNReply{}, nil
}

func (f *fake) IDs(ctx context.Context, r *leaf.IDsRequest, page func([]string) error) (*leaf.IDsReply, error) {
	if f.ids == nil {
		return &leaf.IDsReply{}, nil
	}
	return f.ids(ctx, r, page)
}

func (f *fake) Export(ctx context.Context, r *leaf.ExportRequest, each func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	if f.export == nil {
		return &leaf.ExportReply{}, nil
	}
	return f.export(ctx, r, each)
}

func (f *fake) Has(_ context.Context, r *leaf.HasRequest) (*leaf.HasReply, error) {
	return &leaf.HasReply{Missing: r.IDs}, nil
}

func (f *fake) DeleteMany(_ context.Context, r *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return &leaf.DeleteReply{Deleted: uint64(len(r.IDs))}, nil
}

func (f *fake) Index(ctx context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error) {
	if f.index == nil {
		return &leaf.IndexReply{}, nil
	}
	return f.index(ctx, r)
}

func (f *fake) Bulk(ctx context.Context, r *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	if f.bulk == nil {
		_, err := io.Copy(io.Discard, body)
		return &leaf.BulkReply{}, err
	}
	return f.bulk(ctx, r, body)
}

func (f *fake) Close() error { return nil }

// rig is a server of a fake with a client of it.
type rig struct {
	*Client
	server *Server
	listen *bufconn.Listener
	stop   func() // ends the server at once
}

func start(t testing.TB, f leaf.Leaf, so ServerOptions, co Options) *rig {
	t.Helper()
	r := &rig{server: NewServer(f, so), listen: bufconn.Listen(64 << 10)}
	g, _ := r.server.GRPC()
	served := make(chan error, 1)
	go func() { served <- g.Serve(r.listen) }()
	ended := false
	r.stop = func() {
		if ended {
			return
		}
		ended = true
		g.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	co.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return r.listen.DialContext(ctx) }
	var err error
	if r.Client, err = Dial("node:1", co); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		r.stop()
	})
	return r
}
