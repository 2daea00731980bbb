package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

// shardsOf are n nodes, each a shard of parts.
func shardsOf(n int) []*fake {
	var all []*fake
	for i := range n {
		all = append(all, &fake{id: fmt.Sprint("n", i), shard: fmt.Sprint(i), indexes: []string{"parts"}})
	}
	return all
}

// words is a fusion of two branches, each with a word.
func words(index string) *summapb.SearchRequest {
	f := &summapb.FusionQuery{}
	for _, text := range []string{"one", "two"} {
		q := &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "f", Text: text}}}
		f.Queries = append(f.Queries, &summapb.WeightedQuery{Query: q})
	}
	return &summapb.SearchRequest{IndexName: index, Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}}
}

// nominate is what a node says that has one document for both branches.
func nominate(node string) *summapb.SearchResponse {
	at := &summapb.DocAddress{SegmentId: "0" + strings.TrimPrefix(node, "n"), DocId: 1}
	m := &summapb.SearchResponse{RankingMethod: "fusion_candidates_v1", TotalHits: 2, Hits: []*summapb.SearchHit{{Address: at}}}
	for i := range 2 {
		m.FusionCandidates = append(m.FusionCandidates, &summapb.FusionCandidateList{
			QueryIndex: uint32(i), Candidates: []*summapb.FusionCandidate{{Address: at, Score: 1}},
		})
	}
	return m
}

// TestRankedSearchesAreScoredByStatisticsOfAll has a search with words: statistics first, summed, and a partition that is lost there is not searched.
func TestRankedSearchesAreScoredByStatisticsOfAll(t *testing.T) {
	all := shardsOf(3)
	var mu sync.Mutex
	asks := map[string]int{}
	nodes(t, func(a *asked) ([]byte, error) {
		mu.Lock()
		asks[a.node+a.rpc]++
		mu.Unlock()
		if !a.deadline {
			t.Errorf("%s of %s has no deadline", a.rpc, a.node)
		}
		if a.rpc == "GetTextStats" {
			m := &summapb.GetTextStatsRequest{}
			decode(t, a.request, m)
			if n := len(m.Query.GetBoolean().GetShould()); n != 2 {
				t.Errorf("statistics of %d words", n)
			}
			if a.node == "n1" {
				return nil, status.Error(codes.Unavailable, "away")
			}
			return encoded(t, &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 4}}), nil
		}
		m := &summapb.SearchRequest{}
		decode(t, a.request, m)
		if m.TextStats.GetTotalDocs() != 8 || m.Query.GetFusion().GetMethod() != summapb.FusionMethod_FUSION_CANDIDATES {
			t.Errorf("%s is asked %v", a.node, m)
		}
		return encoded(t, nominate(a.node)), nil
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1,2"), Partial: true}, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := s.call(ctx, "Search", [][]byte{encoded(t, words("parts"))})
	if err != nil {
		t.Fatal(err)
	}
	reply := &summapb.SearchResponse{}
	decode(t, got, reply)
	if len(reply.Hits) != 2 || reply.MissingPartitions != 1 || reply.TotalHits != 4 || reply.RankingMethod != "global_rrf_v1" {
		t.Errorf("%v", reply)
	}
	mu.Lock()
	defer mu.Unlock()
	if asks["n1Search"] != 0 || asks["n0Search"] != 1 || asks["n2Search"] != 1 || asks["n1GetTextStats"] != 1 {
		t.Errorf("asked: %v", asks)
	}
	if got := s.metric(t, `summa_broker_partial_reads_total{index="parts",rpc="search",shard="1"}`); got != "1" {
		t.Errorf("%q partitions are counted as left out", got)
	}
}

// TestRankedSearchesTakeNoPartWithoutLeave: without the flag a partition that is lost fails the search, in both rounds.
func TestRankedSearchesTakeNoPartWithoutLeave(t *testing.T) {
	for _, lost := range []string{"GetTextStats", "Search"} {
		all := shardsOf(2)
		nodes(t, func(a *asked) ([]byte, error) {
			switch {
			case a.rpc == lost && a.node == "n1":
				return nil, status.Error(codes.Unavailable, "away")
			case a.rpc == "GetTextStats":
				return encoded(t, &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 4}}), nil
			}
			return encoded(t, nominate(a.node)), nil
		}, all...)
		s := start(t, service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1")}, 2)
		_, err := s.call(t.Context(), "Search", [][]byte{encoded(t, words("parts"))})
		want(t, lost, err, codes.Unavailable, "index 'parts' partition on shard '1': away")
	}
}

// TestRepliesOfARankedSearchShareTheTransferAllowance: each node may answer with its share, also where the reply is compressed.
func TestRepliesOfARankedSearchShareTheTransferAllowance(t *testing.T) {
	const transfer = 9000
	all := shardsOf(3)
	var size int
	var compressed bool
	var mu sync.Mutex
	set := func(n int, z bool) {
		mu.Lock()
		defer mu.Unlock()
		size, compressed = n, z
	}
	nodes(t, func(a *asked) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if compressed {
			if err := grpc.SetSendCompressor(a.ctx, "gzip"); err != nil {
				t.Error(err)
			}
		}
		m := nominate(a.node)
		if a.node == "n1" {
			value := func(n int) {
				m.Hits[0].Fields = map[string]*summapb.FieldValueList{"f": {Values: []*summapb.FieldValue{{Value: &summapb.FieldValue_Text{Text: strings.Repeat("x", n)}}}}}
			}
			for n := size - 200; proto.Size(m) < size; n++ {
				value(n)
			}
			if proto.Size(m) != size {
				t.Errorf("the reply has %d bytes", proto.Size(m))
			}
		}
		return encoded(t, m), nil
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1,2"), Transfer: transfer}, 3)
	req := words("parts")
	for _, q := range req.Query.GetFusion().Queries {
		q.Query = &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
	}
	for _, c := range []struct {
		size       int
		compressed bool
		want       string
	}{
		{3000, false, ""},
		{3000, true, ""},
		{3001, false, "Error, decoded message length too large: found 3001 bytes, the limit is: 3000 bytes"},
		{3001, true, "Error decompressing: size limit, of `3000` bytes, exceeded while decompressing compressed message"},
	} {
		set(c.size, c.compressed)
		_, err := s.call(t.Context(), "Search", [][]byte{encoded(t, req)})
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		want(t, fmt.Sprint(c), err, codes.ResourceExhausted, "index 'parts' partition on shard '1': "+c.want)
	}
}

// TestARankedSearchOnOneShardIsThatNodes: refusals, details, headers and trailers pass, no statistics are asked for, and adaptive reads do not
// change that.
func TestARankedSearchOnOneShardIsThatNodes(t *testing.T) {
	for _, adaptive := range []bool{false, true} {
		n := &fake{id: "n0", shard: "0", indexes: []string{"parts"}}
		detailed, err := status.New(codes.InvalidArgument, "not so").WithDetails(&summapb.AllQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var refusal error
		nodes(t, func(a *asked) ([]byte, error) {
			if a.rpc != "Search" {
				t.Errorf("%s is asked", a.rpc)
			}
			if err := grpc.SetHeader(a.ctx, metadata.Pairs("x-head", "1")); err != nil {
				t.Error(err)
			}
			return encoded(t, nominate(a.node)), refusal
		}, n)
		s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single"), Adaptive: adaptive}, 1)
		var head metadata.MD
		got, err := s.call(t.Context(), "Search", [][]byte{encoded(t, words("parts"))}, grpc.Header(&head))
		if err != nil {
			t.Fatal(err)
		}
		reply := &summapb.SearchResponse{}
		decode(t, got, reply)
		if reply.RankingMethod != "global_rrf_v1" || len(reply.Hits) != 1 || !slices.Equal(head.Get("x-head"), []string{"1"}) {
			t.Errorf("%v, headers %v", reply, head)
		}
		refusal = detailed.Err()
		_, err = s.call(t.Context(), "Search", [][]byte{encoded(t, words("parts"))})
		want(t, "a refusal", err, codes.InvalidArgument, "not so")
		if len(status.Convert(err).Details()) != 1 {
			t.Errorf("%v has no details", err)
		}
	}
}

// TestPlacesOfRankedSearchesComeBack: as many run at a node as may, also where callers leave, and however searches end.
func TestPlacesOfRankedSearchesComeBack(t *testing.T) {
	all := shardsOf(2)
	begun, let := make(chan struct{}, 8), make(chan struct{})
	nodes(t, func(a *asked) ([]byte, error) {
		begun <- struct{}{}
		select {
		case <-let:
		case <-a.ctx.Done():
			return nil, status.FromContextError(a.ctx.Err()).Err()
		}
		return encoded(t, nominate(a.node)), nil
	}, all...)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1"), BackendSearches: 1}, 2)
	req := words("parts")
	req.TextStats = &summapb.TextStats{}
	wire := [][]byte{encoded(t, req)}
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, "Search", wire)
		first <- err
	}()
	<-begun
	<-begun
	_, err := s.call(t.Context(), "Search", wire)
	want(t, "a second search", err, codes.ResourceExhausted, "Search capacity is full; retry with backoff")
	leave()
	if err := <-first; status.Code(err) != codes.Canceled {
		t.Errorf("the caller that left is told %v", err)
	}
	close(let)
	soon(t, "a place is free", func() bool {
		_, err := s.call(t.Context(), "Search", wire)
		return err == nil
	})
	bad := words("parts")
	bad.Limit = 10_001
	_, err = s.call(t.Context(), "Search", [][]byte{encoded(t, bad)})
	want(t, "a refused search", err, codes.InvalidArgument, "coordinator result window exceeds 10000")
	if _, err := s.call(t.Context(), "Search", wire); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	if got := s.metric(t, `summa_broker_search_requests_total{index="parts",status="invalid_argument"}`); got != "1" {
		t.Errorf("%q refused searches are counted", got)
	}
}
