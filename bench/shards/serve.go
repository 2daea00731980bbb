package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/bench/internal/child"
)

const (
	// Names of indexes: an index that is called d and a number is answered after so many microseconds.
	nominating = "nominating"
	bulky      = "bulky"
	hits       = 10 // of a search
)

func delayed(wait time.Duration) string { return fmt.Sprint("d", wait.Microseconds()) }

// serve is a child.
func serve(ctx context.Context, role string, args []string) error {
	switch role {
	case "nodes":
		return serveNodes(ctx)
	case "broker":
		return serveBroker(ctx, args)
	}
	return fmt.Errorf("no role %q", role)
}

// serveBroker is the broker before all nodes.
func serveBroker(ctx context.Context, nodes []string) error {
	var names []string
	flags := []string{"--discovery", "static"}
	for i, addr := range nodes {
		names = append(names, fmt.Sprint(i))
		flags = append(flags, "--backend", fmt.Sprintf("id=n%d,addr=%s,shard=%d", i, addr, i))
	}
	return child.Broker(ctx, append(flags, "--placement", bulky+"=0", "--placement", "*="+strings.Join(names, ","))...)
}

// serveNodes are all nodes, each with an address of its own.
func serveNodes(context.Context) error {
	var addrs []string
	ended := make(chan error, shards)
	var servers []*grpc.Server
	for shard := range shards {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s, err := newNode(shard)
		if err != nil {
			return err
		}
		addrs, servers = append(addrs, lis.Addr().String()), append(servers, s)
		go func() { ended <- s.Serve(lis) }()
	}
	err := child.Answer(strings.Join(addrs, " "))
	for _, s := range servers {
		s.Stop()
		err = errors.Join(err, <-ended)
	}
	return err
}

// node answers searches from memory.
type node struct {
	summapb.UnimplementedSearchServiceServer
	summapb.UnimplementedIndexServiceServer
	found, nominated, bulk *summapb.SearchResponse
	stats                  *summapb.GetTextStatsResponse
}

func newNode(shard int) (*grpc.Server, error) {
	n := &node{nominated: &summapb.SearchResponse{}, bulk: &summapb.SearchResponse{TotalHits: 1}}
	n.found = &summapb.SearchResponse{TotalHits: 1000, TookMs: 3, Timings: &summapb.SearchTimings{SearchUs: 3000}}
	for i := range hits {
		h := hit(shard, i)
		h.Score = float32(hits-i) + float32(shard)/shards
		n.found.Hits = append(n.found.Hits, h)
	}
	b := nomination(shard)
	if err := proto.Unmarshal(b, n.nominated); err != nil {
		return nil, err
	}
	pad := &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: strings.Repeat("x", shards*len(b))}}
	n.bulk.Hits = []*summapb.SearchHit{{Fields: map[string]*summapb.FieldValueList{"body": {Values: []*summapb.FieldValue{pad}}}}}
	n.stats = &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 1000, Fields: []*summapb.TextFieldStats{{
		Field: "body", CorpusSize: 1000, AvgLen: 12, TotalTokens: 12_000, DocsWithField: 1000,
		Terms: []*summapb.TermDocFreq{{Term: []byte("loom"), DocFreq: 20}, {Term: []byte("weft"), DocFreq: 30}},
	}}}}
	g := grpc.NewServer(grpc.InitialWindowSize(2<<20), grpc.InitialConnWindowSize(4<<20), grpc.MaxRecvMsgSize(256<<20))
	summapb.RegisterSearchServiceServer(g, n)
	summapb.RegisterIndexServiceServer(g, n)
	return g, nil
}

// Search implements summapb.SearchServiceServer.
func (n *node) Search(ctx context.Context, req *summapb.SearchRequest) (*summapb.SearchResponse, error) {
	switch req.IndexName {
	case nominating:
		return n.nominated, nil
	case bulky:
		return n.bulk, nil
	}
	var wait int64
	if _, err := fmt.Sscanf(req.IndexName, "d%d", &wait); err != nil {
		return nil, status.Error(codes.NotFound, req.IndexName)
	}
	if wait > 0 {
		after := time.NewTimer(time.Duration(wait) * time.Microsecond)
		defer after.Stop()
		select {
		case <-after.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return n.found, nil
}

// GetTextStats implements summapb.SearchServiceServer.
func (n *node) GetTextStats(context.Context, *summapb.GetTextStatsRequest) (*summapb.GetTextStatsResponse, error) {
	return n.stats, nil
}

// ListIndexes implements summapb.IndexServiceServer.
func (n *node) ListIndexes(context.Context, *summapb.ListIndexesRequest) (*summapb.ListIndexesResponse, error) {
	names := []string{nominating, bulky}
	for ms := range 101 { // the waits that may be asked for
		names = append(names, delayed(time.Duration(ms)*time.Millisecond))
	}
	return &summapb.ListIndexesResponse{IndexNames: names}, nil
}

func hit(shard, doc int) *summapb.SearchHit {
	text := func(s string) *summapb.FieldValueList {
		return &summapb.FieldValueList{Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: s}}}}
	}
	return &summapb.SearchHit{
		Address: &summapb.DocAddress{SegmentId: fmt.Sprintf("%032x", shard+1), DocId: uint32(doc)},
		Fields:  map[string]*summapb.FieldValueList{"id": text(fmt.Sprint("doc/", shard, "/", doc)), "title": text("the title of a document")},
	}
}

// nomination is what a shard nominates: the same documents for both branches, each in an order of its own.
func nomination(shard int) []byte {
	r := rand.New(rand.NewPCG(9, uint64(shard)))
	m := &summapb.SearchResponse{RankingMethod: "fusion_candidates_v1", TotalHits: 2 * candidates}
	for doc := range candidates {
		m.Hits = append(m.Hits, hit(shard, doc))
	}
	for branch := range 2 {
		l := &summapb.FusionCandidateList{QueryIndex: uint32(branch)}
		for rank, doc := range r.Perm(candidates) {
			l.Candidates = append(l.Candidates, &summapb.FusionCandidate{Address: m.Hits[doc].Address, Score: float32(candidates-rank) + r.Float32()})
		}
		m.FusionCandidates = append(m.FusionCandidates, l)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // of our own making
	}
	return b
}
