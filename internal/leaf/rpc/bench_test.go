package rpc

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
	"github.com/weft-search/weft/internal/shard/exec"
)

// hits makes a reply with n hits and so many sort values each.
func hits(n, keys int) *leaf.SearchReply {
	r := &leaf.SearchReply{
		Docs: 1_000_000, Total: 12_345, TotalRelation: exec.Exactly,
		Meta: leaf.Meta{Snapshot: leaf.Snapshot{Instance: 1 << 60, Version: 17, CommitTS: 123_456}, Timings: []api.Timing{{Stage: "queue", Micros: 3}, {Stage: "search", Micros: 456}}},
	}
	for i := range n {
		h := leaf.Hit{ID: fmt.Sprintf("document-%06d", i*37), Score: 30 / float32(i+1)}
		for k := range keys {
			if k%2 == 0 {
				h.Sort = append(h.Sort, exec.SortValue{Kind: exec.NumberValue, Number: uint64(i)<<40 | 1<<63})
			} else {
				h.Sort = append(h.Sort, exec.SortValue{Kind: exec.TextValue, Text: fmt.Sprintf("value %d", i)})
			}
		}
		r.Hits = append(r.Hits, h)
	}
	return r
}

func BenchmarkHits(b *testing.B) {
	for _, keys := range []int{0, 2} {
		r := hits(200, keys)
		wire, err := proto.Marshal(packSearchReply(r, keys))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("encode/keys=%d", keys), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(wire)))
			for b.Loop() {
				if _, err := proto.Marshal(packSearchReply(r, keys)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("decode/keys=%d", keys), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(wire)))
			for b.Loop() {
				var m pb.SearchReply
				if err := decodeOptions.Unmarshal(wire, &m); err != nil {
					b.Fatal(err)
				}
				if _, err := unpackSearchReply(&m, keys, 200); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The number of allocations of a decoded reply does not grow with its hits.
func TestAllocHits(t *testing.T) {
	count := func(n int) float64 {
		wire, err := proto.Marshal(packSearchReply(hits(n, 2), 2))
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(100, func() {
			var m pb.SearchReply
			if err := decodeOptions.Unmarshal(wire, &m); err != nil {
				t.Fatal(err)
			}
			if _, err := unpackSearchReply(&m, 2, n); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := count(10), count(2000); many > few+16 { // packed numbers grow by doubling
		t.Errorf("%v allocations for 10 hits, %v for 2,000", few, many)
	}
}

// loopback serves a leaf on a port.
func loopback(b *testing.B, f *fake) *Client {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g, _ := NewServer(f, ServerOptions{}).GRPC()
	served := make(chan error, 1)
	go func() { served <- g.Serve(listen) }()
	c, err := Dial(listen.Addr().String(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
		g.Stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return c
}

func BenchmarkPing(b *testing.B) {
	for name, f := range map[string]*fake{
		"plain": {},
		"begun": {ping: func(ctx context.Context) (*leaf.PingReply, error) {
			serve.Begun(ctx)
			return &leaf.PingReply{Node: "n"}, nil
		}},
	} {
		b.Run(name, func(b *testing.B) {
			c := loopback(b, f)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Ping(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStockPing is what the same call costs with nothing but generated code on both sides.
func BenchmarkStockPing(b *testing.B) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterShardServer(g, ponger{})
	served := make(chan error, 1)
	go func() { served <- g.Serve(listen) }()
	conn, err := grpc.NewClient(listen.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			b.Error(err)
		}
		g.Stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	stub := pb.NewShardClient(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stub.Ping(b.Context(), &pb.PingRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}

type ponger struct{ pb.UnimplementedShardServer }

func (ponger) Ping(context.Context, *pb.PingRequest) (*pb.PingReply, error) {
	return &pb.PingReply{Node: "n"}, nil
}

func BenchmarkSearch(b *testing.B) {
	r := hits(200, 0)
	c := loopback(b, &fake{search: func(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) { return r, nil }})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Search(b.Context(), &leaf.SearchRequest{Limit: 200}); err != nil {
			b.Fatal(err)
		}
	}
}
