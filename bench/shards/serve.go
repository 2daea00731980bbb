package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/bench/internal/child"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcserve"
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
	var servers []*grpcserve.Server
	for shard := range shards {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		n, err := newNode(shard)
		if err != nil {
			return err
		}
		s := grpcserve.New(grpcserve.Options{Find: n.find, Log: slog.New(slog.DiscardHandler)})
		addrs, servers = append(addrs, lis.Addr().String()), append(servers, s)
		go func() { ended <- s.Serve(lis) }()
	}
	err := child.Answer(strings.Join(addrs, " "))
	for _, s := range servers {
		s.Close()
		if e := <-ended; !errors.Is(e, grpcserve.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// node answers from memory. Its replies are encoded beforehand: eight nodes share two processors with what is measured, which eight machines do
// not, so that a node is to take as little of them as it can.
type node struct {
	found, nominated, bulk, stats, indexes []byte // with what is in front of a message
}

func newNode(shard int) (n *node, err error) {
	n = &node{}
	found := &summapb.SearchResponse{TotalHits: 1000, TookMs: 3, Timings: &summapb.SearchTimings{SearchUs: 3000}}
	for i := range hits {
		h := hit(shard, i)
		h.Score = float32(hits-i) + float32(shard)/shards
		found.Hits = append(found.Hits, h)
	}
	nominated := nomination(shard)
	pad := &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: strings.Repeat("x", shards*len(nominated))}}
	bulk := &summapb.SearchResponse{TotalHits: 1, Hits: []*summapb.SearchHit{{Fields: map[string]*summapb.FieldValueList{"body": {Values: []*summapb.FieldValue{pad}}}}}}
	stats := &summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 1000, Fields: []*summapb.TextFieldStats{{
		Field: "body", CorpusSize: 1000, AvgLen: 12, TotalTokens: 12_000, DocsWithField: 1000,
		Terms: []*summapb.TermDocFreq{{Term: []byte("loom"), DocFreq: 20}, {Term: []byte("weft"), DocFreq: 30}},
	}}}}
	indexes := &summapb.ListIndexesResponse{IndexNames: []string{nominating, bulky}}
	for ms := range 101 { // the waits that may be asked for
		indexes.IndexNames = append(indexes.IndexNames, delayed(time.Duration(ms)*time.Millisecond))
	}
	n.nominated = framed(nominated)
	for _, r := range []struct {
		to *[]byte
		m  proto.Message
	}{{&n.found, found}, {&n.bulk, bulk}, {&n.stats, stats}, {&n.indexes, indexes}} {
		b, err := proto.Marshal(r.m)
		if err != nil {
			return nil, err
		}
		*r.to = framed(b)
	}
	return n, nil
}

func framed(message []byte) []byte {
	return append(grpcmsg.Header(false, len(message)), message...)
}

func (n *node) find(path string) grpcserve.Handler {
	switch path {
	case summapb.SearchService_Search_FullMethodName:
		return n.search
	case summapb.SearchService_GetTextStats_FullMethodName:
		return func(s *grpcserve.Stream) error { return answer(s, n.stats) }
	case summapb.IndexService_ListIndexes_FullMethodName:
		return func(s *grpcserve.Stream) error { return answer(s, n.indexes) }
	}
	return func(*grpcserve.Stream) error { return status.Error(codes.Unimplemented, path) }
}

func (n *node) search(s *grpcserve.Stream) error {
	req, err := request(s)
	if err != nil {
		return err
	}
	var m summapb.SearchRequest
	if err := proto.Unmarshal(req, &m); err != nil {
		return err
	}
	switch m.IndexName {
	case nominating:
		return s.Write(mem.BufferSlice{mem.SliceBuffer(n.nominated)}, true)
	case bulky:
		return s.Write(mem.BufferSlice{mem.SliceBuffer(n.bulk)}, true)
	}
	micros, err := strconv.Atoi(strings.TrimPrefix(m.IndexName, "d"))
	if err != nil {
		return status.Error(codes.NotFound, m.IndexName)
	}
	if micros > 0 {
		after := time.NewTimer(time.Duration(micros) * time.Microsecond)
		defer after.Stop()
		select {
		case <-after.C:
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		}
	}
	return s.Write(mem.BufferSlice{mem.SliceBuffer(n.found)}, true)
}

// answer reads a request and answers it always the same.
func answer(s *grpcserve.Stream, reply []byte) error {
	if _, err := request(s); err != nil {
		return err
	}
	return s.Write(mem.BufferSlice{mem.SliceBuffer(reply)}, true)
}

func request(s *grpcserve.Stream) ([]byte, error) {
	var head [5]byte
	if err := s.ReadMessageHeader(head[:]); err != nil {
		return nil, err
	}
	data, err := s.Read(int(binary.BigEndian.Uint32(head[1:])))
	if err != nil {
		return nil, err
	}
	defer data.Free()
	return data.Materialize(), nil
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
