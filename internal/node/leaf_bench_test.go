package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/wire/frame"
)

// BenchmarkLeafSearch is one search of one node, in process and over both protocols: the difference is what a hop costs.
func BenchmarkLeafSearch(b *testing.B) {
	s := newServer(b, Config{GRPCAddr: "127.0.0.1:0", ShardAddr: "127.0.0.1:0"})
	words := []string{"wool", "silk", "hemp", "linen", "jute"}
	var docs strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&docs, `{"id":"d%05d","title":"%s and %s and %s number %d"}`+"\n", i, words[i%5], words[i*i%5], words[i/7%5], i)
	}
	in := s.node.Leaf()
	defer in.Close()
	if r, err := in.Bulk(b.Context(), &leaf.BulkRequest{}, strings.NewReader(docs.String())); err != nil || !r.OK {
		b.Fatal(r, err)
	}
	grpc, err := rpc.Dial(s.address(GRPC), rpc.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer grpc.Close()
	frames := framed.NewClient(&frame.Client{Addr: s.address(Shard)})
	defer frames.Close()
	q, err := query.Parse("number 777", query.ParseOptions{DefaultOp: query.And})
	if err != nil {
		b.Fatal(err)
	}
	broad, err := query.Parse("wool", query.ParseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		query query.Node
		limit int
	}{{"one", q, 10}, {"ten", broad, 10}, {"200", broad, 200}} {
		for name, l := range map[string]leaf.Leaf{"process": in, "grpc": grpc, "framed": frames} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r, err := l.Search(b.Context(), &leaf.SearchRequest{Query: c.query, Limit: c.limit, Total: exec.TotalExact})
					if err != nil || len(r.Hits) == 0 {
						b.Fatal(r, err)
					}
				}
			})
		}
	}
}
