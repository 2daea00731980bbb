package partition_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

func shards(n int) *partition.Index {
	ix := &partition.Index{Name: "i"}
	for i := range n {
		ix.Shards = append(ix.Shards, string(rune('a'+i)))
	}
	return ix
}

func all() *summapb.Query {
	return &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
}

// search runs one search over partitions that answer as they are told.
func search(t testing.TB, ix *partition.Index, r partition.Reads, req proto.Message, node callerFunc) (partition.Answer, error) {
	t.Helper()
	s, err := partition.ShapeOf(marshal(t, req))
	if err != nil {
		t.Fatal(err)
	}
	return partition.Search(t.Context(), ix, node, r, s)
}

// replies has each partition answer with its own reply.
func replies(all ...[]byte) callerFunc {
	return func(_ context.Context, part int, _ string, _ []byte) ([]byte, error) { return all[part], nil }
}

// TestSearchesMergeAsSortingDoes holds the merge against a stable sort of all hits, whatever order nodes give them in.
func TestSearchesMergeAsSortingDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 2))
	for round := range 600 {
		ix := shards(1 + r.IntN(6))
		offset, limit := r.IntN(12)*r.IntN(2), r.IntN(12)
		window := offset + cmp.Or(limit, 10)
		type node struct {
			reply *summapb.SearchResponse
			wire  []byte
			hits  [][]byte // with their tags
		}
		nodes := make([]node, len(ix.Shards))
		order := func(a, b *summapb.SearchHit) int {
			switch {
			case a.Score > b.Score:
				return -1
			case a.Score < b.Score:
				return 1
			}
			return strings.Compare(a.GetAddress().GetSegmentId(), b.GetAddress().GetSegmentId())
		}
		for i := range nodes {
			m := &summapb.SearchResponse{TotalHits: uint64(r.IntN(3)), TookMs: uint64(r.IntN(3)), Truncated: r.IntN(5) == 0, SeededDocumentPassages: r.IntN(3) > 0}
			if r.IntN(8) == 0 {
				m.TotalHits = math.MaxUint64
			}
			if r.IntN(2) == 0 {
				m.Timings = &summapb.SearchTimings{SearchUs: uint64(r.IntN(9)), LoadUs: uint64(r.IntN(9)), RerankUs: uint64(r.IntN(9)), TotalUs: uint64(r.IntN(9)), CandidateScoringUs: uint64(r.IntN(9))}
			}
			for k := range r.IntN(window + 1) {
				h := &summapb.SearchHit{Score: float32(r.IntN(5) - 1), Address: &summapb.DocAddress{SegmentId: fmt.Sprintf("%x", r.IntN(3)), DocId: uint32(i*1000 + k)}}
				switch r.IntN(30) {
				case 0:
					h.Score = float32(math.NaN())
				case 1:
					h.Score = float32(math.Copysign(0, -1))
				case 2:
					h.Address = nil
				case 3:
					h.Score = float32(math.Inf(1 - 2*r.IntN(2)))
				}
				h.Fields = map[string]*summapb.FieldValueList{"z": {}, "b": {}, "a": {}, "y": {}}
				m.Hits = append(m.Hits, h)
			}
			if round%3 > 0 {
				slices.SortStableFunc(m.Hits, order)
			}
			nodes[i].reply = m
			rest := proto.Clone(m).(*summapb.SearchResponse)
			rest.Hits = nil
			for _, h := range m.Hits {
				b := field(1, append(marshal(t, h), field(60, []byte("new"))...))
				nodes[i].hits = append(nodes[i].hits, b)
				nodes[i].wire = append(nodes[i].wire, b...)
			}
			nodes[i].wire = append(nodes[i].wire, marshal(t, rest)...)
		}

		type ranked struct {
			hit  *summapb.SearchHit
			wire []byte
		}
		var list []ranked
		want := &summapb.SearchResponse{SeededDocumentPassages: true}
		for _, n := range nodes {
			for k, h := range n.reply.Hits {
				list = append(list, ranked{h, n.hits[k]})
			}
			if want.TotalHits += n.reply.TotalHits; want.TotalHits < n.reply.TotalHits {
				want.TotalHits = math.MaxUint64
			}
			want.TookMs = max(want.TookMs, n.reply.TookMs)
			want.Truncated = want.Truncated || n.reply.Truncated
			want.SeededDocumentPassages = want.SeededDocumentPassages && n.reply.SeededDocumentPassages
			if tm := n.reply.Timings; tm != nil {
				if want.Timings == nil {
					want.Timings = &summapb.SearchTimings{}
				}
				want.Timings.SearchUs = max(want.Timings.SearchUs, tm.SearchUs)
				want.Timings.RerankUs = max(want.Timings.RerankUs, tm.RerankUs)
				want.Timings.LoadUs = max(want.Timings.LoadUs, tm.LoadUs)
				want.Timings.TotalUs = max(want.Timings.TotalUs, tm.TotalUs)
				want.Timings.CandidateScoringUs = max(want.Timings.CandidateScoringUs, tm.CandidateScoringUs)
			}
		}
		slices.SortStableFunc(list, func(a, b ranked) int { return order(a.hit, b.hit) })
		var hits []byte
		for i := offset; i < min(window, len(list)); i++ {
			hits = append(hits, list[i].wire...)
		}

		got, err := search(t, ix, partition.Reads{}, &summapb.SearchRequest{IndexName: "i", Query: all(), Offset: uint32(offset), Limit: uint32(limit)},
			func(_ context.Context, part int, _ string, req []byte) ([]byte, error) {
				if m := unmarshal[summapb.SearchRequest](t, req); m.Offset != 0 || int(m.Limit) != window {
					t.Errorf("offset %d, limit %d: a node is asked for %d from %d", offset, limit, m.Limit, m.Offset)
				}
				return nodes[part].wire, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(got.Reply, hits) {
			t.Fatalf("offset %d, limit %d: hits differ\n got %q\nwant %q", offset, limit, got.Reply, hits)
		}
		if rest := unmarshal[summapb.SearchResponse](t, got.Reply[len(hits):]); !proto.Equal(rest, want) {
			t.Fatalf("\n got %v\nwant %v", rest, want)
		}
	}
}

func hitReply(t testing.TB, addresses ...string) []byte {
	m := &summapb.SearchResponse{}
	for _, a := range addresses {
		h := &summapb.SearchHit{Score: 1, Address: &summapb.DocAddress{}}
		segment, doc, _ := strings.Cut(a, "/")
		h.Address.SegmentId = segment
		_, _ = fmt.Sscan(doc, &h.Address.DocId)
		m.Hits = append(m.Hits, h)
	}
	return marshal(t, m)
}

// TestOneAddressOnTwoShardsIsRefused is B3.
func TestOneAddressOnTwoShardsIsRefused(t *testing.T) {
	for _, c := range []struct {
		nodes [3][]string
		bad   bool
	}{
		{[3][]string{{"1/1", "1/2"}, {"2/1", "2/2"}, {"3/1"}}, false},
		{[3][]string{{"1/1", "1/2"}, {"2/1"}, {"1/2"}}, true},
		{[3][]string{{"1/1", "2/1", "1/3"}, {"3/1", "1/2", "3/2"}, {"4/1", "1/4"}}, false},
		{[3][]string{{"1/1", "2/1", "1/3"}, {"3/1", "1/2", "3/2"}, {"4/1", "1/3"}}, true},
		{[3][]string{{"1/1", "1/1"}, {"2/1"}, nil}, false}, // one shard's own affair
		{[3][]string{{"1"}, {"1"}, nil}, true},
		{[3][]string{{"/1"}, {"/1"}, nil}, false}, // no address
	} {
		node := replies(hitReply(t, c.nodes[0]...), hitReply(t, c.nodes[1]...), hitReply(t, c.nodes[2]...))
		for _, limit := range []uint32{1, 100} { // also where it would not be shown
			_, err := search(t, shards(3), partition.Reads{}, &summapb.SearchRequest{IndexName: "i", Query: all(), Limit: limit}, node)
			st := status.Convert(err)
			if c.bad && (st.Code() != codes.FailedPrecondition || st.Message() != "duplicate candidate address across shards") || !c.bad && err != nil {
				t.Errorf("%v: %v", c.nodes, err)
			}
		}
	}
}

func TestWindowsOfSearches(t *testing.T) {
	asked := false
	node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) { asked = true; return nil, nil })
	text := &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: "f", Term: "t"}}}
	for _, c := range []struct {
		offset, limit uint32
		n             int // in the refusal
	}{
		{9_999, 1, 0},
		{0, 10_000, 0},
		{9_990, 0, 0},
		{10_000, 1, 10_001},
		{9_991, 0, 10_001},
		{0, math.MaxUint32, math.MaxUint32},
		{math.MaxUint32, math.MaxUint32, math.MaxUint32},
		{math.MaxUint32, 0, math.MaxUint32},
	} {
		asked = false
		_, err := search(t, shards(1), partition.Reads{}, &summapb.SearchRequest{IndexName: "i", Query: all(), Offset: c.offset, Limit: c.limit}, node)
		if c.n == 0 {
			if err != nil {
				t.Errorf("%d, %d: %v", c.offset, c.limit, err)
			}
			continue
		}
		want := fmt.Sprintf("offset + limit = %d exceeds the 10000 window a partitioned index can merge", c.n)
		_, err = search(t, shards(1), partition.Reads{}, &summapb.SearchRequest{IndexName: "i", Query: text, Offset: c.offset, Limit: c.limit}, node)
		if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != want || asked {
			t.Errorf("%d, %d: %v; asked: %v", c.offset, c.limit, err, asked)
		}
	}
}

func TestARequestThatNeedsNoChangeIsSentAsItCame(t *testing.T) {
	req := append(marshal(t, &summapb.SearchRequest{IndexName: "i", Query: all(), Limit: 3}), field(50, []byte("new"))...)
	s, err := partition.ShapeOf(req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = partition.Search(t.Context(), shards(2), callerFunc(func(_ context.Context, _ int, _ string, got []byte) ([]byte, error) {
		if !bytes.Equal(got, req) {
			t.Errorf("got %q, want %q", got, req)
		}
		return nil, nil
	}), partition.Reads{}, s)
	if err != nil {
		t.Error(err)
	}
}

func TestMoreHitsThanAnybodyAsksForAreRefused(t *testing.T) {
	reply := func(n int) []byte { return bytes.Repeat(field(1, nil), n) }
	if _, err := search(t, shards(2), partition.Reads{}, &summapb.SearchRequest{Query: all()}, replies(reply(10_000), reply(10_000))); err != nil {
		t.Error(err)
	}
	_, err := search(t, shards(2), partition.Reads{Partial: true}, &summapb.SearchRequest{Query: all()}, replies(nil, reply(10_001)))
	if st := status.Convert(err); st.Code() != codes.Internal || !strings.HasPrefix(st.Message(), "index 'i' partition on shard 'b': the reply has 10001 hits") {
		t.Error(err)
	}
}

func TestExports(t *testing.T) {
	fusion := func(method summapb.FusionMethod) *summapb.Query {
		return &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{Method: method, Queries: []*summapb.WeightedQuery{{Query: all()}}}}}
	}
	candidates := fusion(summapb.FusionMethod_FUSION_CANDIDATES)
	with := func(method string, n int, segment string) []byte {
		m := &summapb.SearchResponse{RankingMethod: method}
		for i := range n {
			m.Hits = append(m.Hits, &summapb.SearchHit{
				Address: &summapb.DocAddress{SegmentId: segment, DocId: uint32(i)}, CandidateScores: &summapb.CandidateScores{},
			})
		}
		m.FusionCandidates = []*summapb.FusionCandidateList{{}}
		return marshal(t, m)
	}
	const (
		unfit      = "feature export needs offset=0 and limit covering the complete cross-shard union (5 candidates)"
		contract   = "a shard does not support the requested candidate scoring contract; complete the Summa rollout"
		mixed      = "shards returned incompatible ranking methods; complete the Summa rollout"
		list, rows = "fusion_candidates_v1", "feature_export_v2"
	)
	for name, c := range map[string]struct {
		req    *summapb.SearchRequest
		method [2]string
		code   codes.Code
		text   string
	}{
		"whole":              {&summapb.SearchRequest{Query: candidates, Limit: 5}, [2]string{list, list}, codes.OK, ""},
		"default limit":      {&summapb.SearchRequest{Query: candidates}, [2]string{list, list}, codes.OK, ""},
		"one short":          {&summapb.SearchRequest{Query: candidates, Limit: 4}, [2]string{list, list}, codes.InvalidArgument, unfit},
		"an offset":          {&summapb.SearchRequest{Query: candidates, Limit: 5, Offset: 1}, [2]string{list, list}, codes.InvalidArgument, unfit},
		"no method":          {&summapb.SearchRequest{Query: candidates, Limit: 5}, [2]string{list, ""}, codes.FailedPrecondition, contract},
		"rows":               {&summapb.SearchRequest{Query: fusion(0), Limit: 5, ScoreExport: &summapb.ScoreExport{}}, [2]string{rows, rows}, codes.OK, ""},
		"rows, short":        {&summapb.SearchRequest{Query: fusion(0), Limit: 2, ScoreExport: &summapb.ScoreExport{}}, [2]string{rows, rows}, codes.InvalidArgument, unfit},
		"rows of candidates": {&summapb.SearchRequest{Query: candidates, Limit: 5, ScoreExport: &summapb.ScoreExport{}}, [2]string{rows, rows}, codes.OK, ""},
		"other rows":         {&summapb.SearchRequest{Query: fusion(0), Limit: 5, ScoreExport: &summapb.ScoreExport{}}, [2]string{rows, list}, codes.FailedPrecondition, contract},
		"plain":              {&summapb.SearchRequest{Query: all(), Limit: 1, Offset: 1}, [2]string{"x", "x"}, codes.OK, ""},
		"plain, mixed":       {&summapb.SearchRequest{Query: all(), Limit: 1}, [2]string{"", "x"}, codes.FailedPrecondition, mixed},
		"reranked":           {&summapb.SearchRequest{Query: fusion(1), Limit: 1, Reranker: &summapb.Reranker{}}, [2]string{"", ""}, codes.OK, ""},
		"ranked here":        {&summapb.SearchRequest{Query: fusion(1), Limit: 1}, [2]string{"", ""}, codes.Unimplemented, ""},
		"l1":                 {&summapb.SearchRequest{Query: fusion(0), Limit: 1, Reranker: &summapb.Reranker{}, L1: &summapb.L1Ranking{}}, [2]string{"", ""}, codes.Unimplemented, ""},
		"traced":             {&summapb.SearchRequest{Query: all(), Limit: 1, Tracing: true}, [2]string{"", ""}, codes.Unimplemented, ""},
		"diagnosed":          {&summapb.SearchRequest{Query: candidates, IncludeRrfScores: true}, [2]string{list, list}, codes.Unimplemented, ""},
	} {
		_, err := search(t, shards(2), partition.Reads{}, c.req, replies(with(c.method[0], 2, "1"), with(c.method[1], 3, "2")))
		if st := status.Convert(err); st.Code() != c.code || c.text != "" && st.Message() != c.text {
			t.Errorf("%s: %v, want %s %s", name, err, c.code, c.text)
		}
	}
}

// randomQuery makes a query of any shape.
func randomQuery(r *rand.Rand, depth int) *summapb.Query {
	list := func() (out []*summapb.Query) {
		for range r.IntN(3) {
			out = append(out, randomQuery(r, depth-1))
		}
		return out
	}
	kind := r.IntN(12)
	if depth <= 0 {
		kind = 3 + r.IntN(9)
	}
	name := fmt.Sprint(r.IntN(100))
	switch kind {
	case 0:
		return &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Must: list(), Should: list(), MustNot: list()}}}
	case 1:
		b := &summapb.BoostQuery{Boost: 2}
		if r.IntN(8) > 0 {
			b.Query = randomQuery(r, depth-1)
		}
		return &summapb.Query{Query: &summapb.Query_Boost{Boost: b}}
	case 2:
		f := &summapb.FusionQuery{Filters: list(), Method: summapb.FusionMethod_FUSION_CANDIDATES}
		for _, q := range list() {
			f.Queries = append(f.Queries, &summapb.WeightedQuery{Name: name, Query: q})
		}
		return &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}
	case 3, 4:
		return &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: "f", Term: name}}}
	case 5, 6:
		return &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "f", Text: name, MaxTerms: 3}}}
	case 7:
		return &summapb.Query{Query: &summapb.Query_Phrase{Phrase: &summapb.PhraseQuery{Field: "f", Text: name, Slop: 1}}}
	case 8:
		return &summapb.Query{Query: &summapb.Query_Prefix{Prefix: &summapb.PrefixQuery{Field: "f", Prefix: name}}}
	case 9:
		return &summapb.Query{Query: &summapb.Query_Range{Range: &summapb.RangeQuery{Field: "n"}}}
	case 10:
		return &summapb.Query{}
	}
	return all()
}

// leavesOf is the model of which leaves of a query have statistics.
func leavesOf(q *summapb.Query) (out []*summapb.Query) {
	switch v := q.GetQuery().(type) {
	case *summapb.Query_Term, *summapb.Query_Match, *summapb.Query_Phrase:
		return []*summapb.Query{q}
	case *summapb.Query_Boost:
		return leavesOf(v.Boost.GetQuery())
	case *summapb.Query_Boolean:
		for _, k := range slices.Concat(v.Boolean.Must, v.Boolean.Should, v.Boolean.MustNot) {
			out = append(out, leavesOf(k)...)
		}
	case *summapb.Query_Fusion:
		for _, k := range v.Fusion.Filters {
			out = append(out, leavesOf(k)...)
		}
		for _, k := range v.Fusion.Queries {
			out = append(out, leavesOf(k.GetQuery())...)
		}
	}
	return out
}

// checkRounds runs a search given as bytes, and says whether both rounds asked what the model says. The bytes may be any message.
func checkRounds(t testing.TB, wire []byte) {
	t.Helper()
	s, err := partition.ShapeOf(wire)
	req := &summapb.SearchRequest{}
	if bad := proto.Unmarshal(wire, req); bad != nil {
		return // what is no text in UTF-8 is for the node to refuse
	}
	if err != nil {
		t.Fatalf("a request that can be decoded is refused: %v", err)
	}
	if s.Coordinated() || int64(req.Offset)+int64(cmp.Or(req.Limit, 10)) > 10_000 {
		return
	}
	leaves := leavesOf(req.Query)
	stats := &summapb.TextStats{TotalDocs: 5}
	var mu sync.Mutex
	var asked []string
	node := callerFunc(func(_ context.Context, part int, method string, got []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, method)
		if method == summapb.SearchService_GetTextStats_FullMethodName {
			want := &summapb.GetTextStatsRequest{IndexName: "i", Query: &summapb.Query{}}
			if len(leaves) == 1 {
				want.Query = leaves[0]
			} else {
				want.Query.Query = &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Should: leaves}}
			}
			m := &summapb.GetTextStatsRequest{}
			if err := proto.Unmarshal(got, m); err != nil || !proto.Equal(m, want) {
				t.Errorf("%v: statistics of\n %v\nwant\n %v", err, m, want)
			}
			return proto.Marshal(&summapb.GetTextStatsResponse{Stats: &summapb.TextStats{TotalDocs: 2 + uint64(part)}})
		}
		want := proto.Clone(req).(*summapb.SearchRequest)
		want.Limit, want.Offset = req.Offset+cmp.Or(req.Limit, 10), 0
		if want.TextStats == nil && len(leaves) > 0 {
			want.TextStats = stats
		}
		m := &summapb.SearchRequest{}
		if err := proto.Unmarshal(got, m); err != nil || !proto.Equal(m, want) {
			t.Errorf("%v: search of\n %v\nwant\n %v", err, m, want)
		}
		return proto.Marshal(&summapb.SearchResponse{RankingMethod: s.Method()})
	})
	if _, err := partition.Search(t.Context(), shards(2), node, partition.Reads{}, s); err != nil {
		if status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.Internal { // an export, or a query too deep or too wide
			return
		}
		t.Fatal(err)
	}
	rounds := 2
	if req.TextStats == nil && len(leaves) > 0 {
		rounds = 4
	}
	if len(asked) != rounds {
		t.Errorf("asked %v", asked)
	}
}

func TestStatisticsAreAskedOfTheLeavesThatHaveThem(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 3))
	for range 1500 {
		req := &summapb.SearchRequest{IndexName: "i", Query: randomQuery(r, 4), Limit: uint32(r.IntN(20)), Offset: uint32(r.IntN(2) * r.IntN(20)), FieldsToLoad: []string{"a"}, CandidateLimit: 40}
		if r.IntN(4) == 0 {
			req.TextStats = &summapb.TextStats{}
		}
		wire := marshal(t, req)
		if r.IntN(3) == 0 { // two messages in a row are one message
			wire = append(wire, marshal(t, &summapb.SearchRequest{Query: randomQuery(r, 2), Limit: uint32(r.IntN(20))})...)
		}
		checkRounds(t, wire)
	}
}

func TestQueriesThatAreTooDeepOrTooWideAreRefused(t *testing.T) {
	nobody := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
		t.Error("a partition was asked")
		return nil, nil
	})
	deep := all()
	for range 101 {
		deep = &summapb.Query{Query: &summapb.Query_Boost{Boost: &summapb.BoostQuery{Query: deep}}}
	}
	if _, err := search(t, shards(1), partition.Reads{}, &summapb.SearchRequest{Query: deep}, nobody); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	term := &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{}}}
	wide := &summapb.Query{Query: &summapb.Query_Boolean{Boolean: &summapb.BooleanQuery{Should: slices.Repeat([]*summapb.Query{term}, 65_537)}}}
	if _, err := search(t, shards(1), partition.Reads{}, &summapb.SearchRequest{Query: wide}, nobody); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// TestListsOfBranchesAreMerged: an export of candidates has what every shard nominated.
func TestListsOfBranchesAreMerged(t *testing.T) {
	at := func(segment string, doc uint32) *summapb.FusionCandidate {
		return &summapb.FusionCandidate{Address: &summapb.DocAddress{SegmentId: segment, DocId: doc}, Score: 1}
	}
	list := func(branch uint32, all ...*summapb.FusionCandidate) *summapb.FusionCandidateList {
		return &summapb.FusionCandidateList{QueryIndex: branch, Candidates: all}
	}
	reply := func(all ...*summapb.FusionCandidateList) []byte {
		return marshal(t, &summapb.SearchResponse{RankingMethod: "fusion_candidates_v1", FusionCandidates: all})
	}
	f := &summapb.FusionQuery{Method: summapb.FusionMethod_FUSION_CANDIDATES, Queries: []*summapb.WeightedQuery{{Query: all()}, {Query: all()}}}
	req := &summapb.SearchRequest{Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}}
	got, err := search(t, shards(3), partition.Reads{}, req, replies(
		reply(list(1, at("a", 1)), list(0, at("a", 2))), reply(), reply(list(0, at("c", 3), at("c", 1)), list(1)),
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []*summapb.FusionCandidateList{list(0, at("a", 2), at("c", 3), at("c", 1)), list(1, at("a", 1))}
	m := unmarshal[summapb.SearchResponse](t, got.Reply)
	if !slices.EqualFunc(m.FusionCandidates, want, func(a, b *summapb.FusionCandidateList) bool { return proto.Equal(a, b) }) {
		t.Errorf("lists %v, want %v", m.FusionCandidates, want)
	}
}

// TestExportsThatAreIncompleteAreRefused: a node that has the method and leaves a part of the export out is of another version.
func TestExportsThatAreIncompleteAreRefused(t *testing.T) {
	branch := &summapb.WeightedQuery{Query: all()}
	candidates := &summapb.SearchRequest{Limit: 9, Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{
		Method: summapb.FusionMethod_FUSION_CANDIDATES, Queries: []*summapb.WeightedQuery{branch, branch},
	}}}}
	rows := proto.CloneOf(candidates)
	rows.ScoreExport = &summapb.ScoreExport{}
	good := func(segment string) *summapb.SearchResponse {
		return &summapb.SearchResponse{
			Hits:             []*summapb.SearchHit{{Address: &summapb.DocAddress{SegmentId: segment}, CandidateScores: &summapb.CandidateScores{}}},
			FusionCandidates: []*summapb.FusionCandidateList{{QueryIndex: 1}, {}},
		}
	}
	for name, c := range map[string]struct {
		req    *summapb.SearchRequest
		change func(m *summapb.SearchResponse)
		text   string
	}{
		"features":                {rows, func(*summapb.SearchResponse) {}, ""},
		"features and no lists":   {rows, func(m *summapb.SearchResponse) { m.FusionCandidates = nil }, ""},
		"no features":             {rows, func(m *summapb.SearchResponse) { m.Hits[0].CandidateScores = nil }, "shard omitted L1 candidate features"},
		"lists":                   {candidates, func(m *summapb.SearchResponse) { m.Hits[0].CandidateScores = nil }, ""},
		"nothing found, no lists": {candidates, func(m *summapb.SearchResponse) { m.Hits, m.FusionCandidates = nil, nil }, ""},
		"no lists":                {candidates, func(m *summapb.SearchResponse) { m.FusionCandidates = nil }, "shard omitted a nomination branch"},
		"one list":                {candidates, func(m *summapb.SearchResponse) { m.Hits, m.FusionCandidates = nil, m.FusionCandidates[1:] }, "shard omitted a nomination branch"},
		"the same branch":         {candidates, func(m *summapb.SearchResponse) { m.FusionCandidates[0].QueryIndex = 0 }, "invalid exported branch identity"},
		"no such branch":          {candidates, func(m *summapb.SearchResponse) { m.FusionCandidates[0].QueryIndex = 2 }, "invalid exported branch identity"},
		"the largest branch":      {candidates, func(m *summapb.SearchResponse) { m.FusionCandidates[0].QueryIndex = math.MaxUint32 }, "invalid exported branch identity"},
	} {
		own, other := good("1"), good("2")
		c.change(other)
		for _, m := range []*summapb.SearchResponse{own, other} {
			if m.RankingMethod = "fusion_candidates_v1"; c.req == rows {
				m.RankingMethod = "feature_export_v2"
			}
		}
		_, err := search(t, shards(2), partition.Reads{}, c.req, replies(marshal(t, own), marshal(t, other)))
		if st := status.Convert(err); c.text == "" && err != nil || c.text != "" && (st.Code() != codes.FailedPrecondition || st.Message() != c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
}
