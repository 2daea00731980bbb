package ranktest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// recordedDiffers are the recorded cases that weft answers otherwise, with the line of differences.md. N6: how long a passage counts at least
// is told by all passages of the index, and not by those of each segment. Where nodes are given statistics without it, as those of the
// reference are, they know their own segment only, and each of these cases has to come out as it was recorded.
var recordedDiffers = map[string]string{
	"cluster/search/fuse-m0-c0": "N6", "cluster/search/fuse-m0-c1": "N6", "cluster/search/fuse-m0-c2": "N6", "cluster/search/fuse-m1-c1": "N6",
	"cluster/search/fuse-m1-c4": "N6", "cluster/search/l1-1-c0": "N6", "cluster/search/l1-1-c2": "N6", "cluster/search/l1-1-c4": "N6",
	"cluster/search/l1-2-c0": "N6", "cluster/search/l1-3-c0": "N6", "cluster/search/l1-4-c2": "N6", "cluster/search/l1-4-c4": "N6",
	"cluster/search/l1-5-c0": "N6", "cluster/search/l1-5-c2": "N6", "cluster/search/l1-5-c4": "N6", "cluster/search/l1-6-c2": "N6",
	"cluster/search/l1-export": "N6", "cluster/search/export": "N6",
}

// TestRecordedCluster replays what was recorded of a broker before three real nodes: codes, texts, order, scores, rows and cells.
//
// Segment ids decide the order of equal scores, and with it ranks, so the index is made anew until its segments are in the order of the
// recorded ones. Dense scores of the reference are off in their last bits (N9).
func TestRecordedCluster(t *testing.T) {
	dir := corpus.Dir(t, "summa-golden")
	cases, err := summagolden.Load(dir, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for range 3 {
		addrs = append(addrs, startNode(t).addr)
	}
	cfg := settings(t, addrs, "parts*=0,1,2")
	var source fleet.Static
	for i, addr := range addrs {
		source = append(source, fleet.Node{ID: fmt.Sprint("s", i), Address: addr, Shard: fmt.Sprint(i), Role: route.Master, Ready: true})
	}
	cfg.Source = source
	b := startBroker(t, cfg)
	// What else the recorded nodes had.
	for _, name := range []string{"empty", "mut", "nopk", "notes", "plain", "poison"} {
		if _, err := b.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: name, Schema: "index " + name + " { field id: text [indexed, stored] }"}); err != nil {
			t.Fatal(err)
		}
	}
	want := segmentsOf(t, cases)
	for try := 0; ; try++ {
		if try == 500 {
			t.Fatal("the segments of the three shards do not come in the recorded order")
		}
		for _, c := range cases[:3] { // create, load, commit
			replayRecorded(t, b, c)
		}
		if slices.Equal(b.segments(t), want) {
			break
		}
		if _, err := b.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "parts"}); err != nil {
			t.Fatal(err)
		}
	}
	replayed := map[string]bool{}
	for _, c := range cases[3:] {
		diff := replayRecorded(t, b, c)
		line, differs := recordedDiffers[c.Name]
		switch {
		case diff != "" && !differs:
			t.Errorf("%s: %s", c.Name, diff)
		case diff == "" && differs:
			t.Errorf("%s is as it was recorded, though it is listed for %s", c.Name, line)
		case differs:
			if diff := replayRecorded(t, b, withOwnFloors(t, b, c)); diff != "" {
				t.Errorf("%s, with the statistics of the reference: %s", c.Name, diff)
			}
		}
		replayed[c.Name] = true
	}
	for name := range recordedDiffers {
		if !replayed[name] {
			t.Errorf("%s was not replayed", name)
		}
	}
	t.Logf("%d cases", 3+len(replayed))
}

// withOwnFloors is a search whose caller gives the statistics of its leaves as the reference would.
func withOwnFloors(t *testing.T, b *broker, c summagolden.Case) summagolden.Case {
	t.Helper()
	m := &summapb.SearchRequest{}
	if err := proto.Unmarshal(c.RequestB64[0], m); err != nil {
		t.Fatal(err)
	}
	should := &summapb.BooleanQuery{}
	for _, q := range m.Query.GetFusion().GetQueries() {
		if q.Query.GetMatch() != nil {
			should.Should = append(should.Should, q.Query)
		}
	}
	r, err := b.search.GetTextStats(t.Context(), &summapb.GetTextStatsRequest{IndexName: m.IndexName, Query: &summapb.Query{Query: &summapb.Query_Boolean{Boolean: should}}})
	if err != nil {
		t.Fatal(err)
	}
	m.TextStats = r.Stats
	for _, f := range m.TextStats.Fields {
		f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	c.RequestB64 = summagolden.Messages{wire}
	return c
}

// segmentsOf are the shards in the order of their recorded segments: 0 is the first by number.
func segmentsOf(t *testing.T, cases []summagolden.Case) []int {
	t.Helper()
	for _, c := range cases {
		if c.Name != "cluster/search/export" {
			continue
		}
		m := &summapb.SearchResponse{}
		if err := proto.Unmarshal(c.ResponseB64, m); err != nil {
			t.Fatal(err)
		}
		return shardOrder(t, m)
	}
	t.Fatal("no case has all documents")
	return nil
}

// segments is the order of the shards by their segments.
func (b *broker) segments(t *testing.T) []int {
	t.Helper()
	m, err := b.search.Search(t.Context(), &summapb.SearchRequest{
		IndexName: "parts", Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}, Limit: 60, FieldsToLoad: []string{"id"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return shardOrder(t, m)
}

// shardOrder is the order in which shards come by the ids of their segments.
func shardOrder(t *testing.T, m *summapb.SearchResponse) []int {
	t.Helper()
	p, err := route.NewPlacement([]string{"parts*=0,1,2"}, "single")
	if err != nil {
		t.Fatal(err)
	}
	rule := p.For("parts")
	type shard struct {
		segment string
		part    int
	}
	var all []shard
	for _, h := range m.Hits {
		s := shard{h.Address.SegmentId, rule.Partition([]byte(h.Fields["id"].Values[0].GetText()))}
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b shard) int { return strings.Compare(a.segment, b.segment) })
	var out []int
	for _, s := range all {
		out = append(out, s.part)
	}
	if len(out) != 3 {
		t.Fatalf("the documents lie in %d segments, not in one of each shard", len(out))
	}
	return out
}

// replayRecorded makes a recorded call and says how the answer differs; "" if it does not.
func replayRecorded(t *testing.T, b *broker, c summagolden.Case) string {
	t.Helper()
	m := summagolden.Method(c.RPC)
	req, err := summagolden.Decode(m.Input(), c.RequestB64[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.Reply()
	if err != nil {
		t.Fatal(err)
	}
	got, err := summagolden.Decode(m.Output(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = b.conn.Invoke(context.WithoutCancel(t.Context()), fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()), req, got)
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + c.Code + `"`)); err != nil {
		t.Fatal(err)
	}
	if st := status.Convert(err); st.Code() != code || st.Message() != c.Message {
		return fmt.Sprintf("%s %q, recorded %s %q", st.Code(), st.Message(), code, c.Message)
	}
	if err != nil {
		return ""
	}
	switch got := got.(type) {
	case *summapb.SearchResponse:
		return searchDiffers(got, want.(*summapb.SearchResponse), strings.Contains(string(c.Request), "dense_vector"))
	case *brokerpb.GetTopologyResponse:
		for _, m := range []*brokerpb.GetTopologyResponse{got, want.(*brokerpb.GetTopologyResponse)} {
			for _, p := range m.Indexes[0].Partitions {
				p.Replicas[0].Address, p.Replicas[0].IndexMapAgeMs = "", 0
			}
		}
	case *summapb.GetIndexInfoResponse:
		for _, m := range []*summapb.GetIndexInfoResponse{got, want.(*summapb.GetIndexInfoResponse)} {
			m.MemoryStats = nil
		}
	case *summapb.GetTextStatsResponse:
		for _, f := range got.Stats.GetFields() { // what the reference does not tell
			f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
		}
	}
	if !proto.Equal(got, want) {
		return fmt.Sprintf("\n got %v\nwant %v", got, want)
	}
	return ""
}

// searchDiffers compares all of a reply but segment ids and times.
func searchDiffers(got, want *summapb.SearchResponse, dense bool) string {
	if got.TotalHits != want.TotalHits || got.RankingMethod != want.RankingMethod || got.Truncated != want.Truncated || len(got.Hits) != len(want.Hits) {
		return fmt.Sprintf("%d hits of %d by %q, recorded %d of %d by %q", len(got.Hits), got.TotalHits, got.RankingMethod, len(want.Hits), want.TotalHits, want.RankingMethod)
	}
	for i := range want.Hits {
		if a, b := hitLines(got.Hits[i]), hitLines(want.Hits[i]); !slices.EqualFunc(a, b, func(a, b line) bool { return a.same(b, dense) }) {
			return fmt.Sprintf("hit %d is\n%v, recorded\n%v", i, a, b)
		}
	}
	return ""
}

// line is a number of a hit, with what it is.
type line struct {
	what string
	n    float32
}

func (a line) same(b line, dense bool) bool {
	if a.what != b.what {
		return false
	}
	if !dense {
		return a.n == b.n
	}
	return math.Abs(float64(a.n)-float64(b.n)) <= 1.2e-5*max(1, math.Abs(float64(b.n)))
}

func hitLines(h *summapb.SearchHit) []line {
	out := []line{{fmt.Sprint("document ", h.Address.DocId, " ", h.Fields["id"].GetValues()), h.Score}}
	for _, o := range h.OrdinalScores {
		out = append(out, line{fmt.Sprint("row ", o.Ordinal), o.Score})
	}
	cells := func(what string, m map[string]float32) {
		var names []string
		for n := range m {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			out = append(out, line{what + n, m[n]})
		}
	}
	if c := h.CandidateScores; c != nil {
		cells("cell ", c.Document)
		for _, q := range c.Passages {
			what := fmt.Sprint("passage ", q.Ordinal, " ")
			cells(what, q.Scores)
			out = append(out, line{fmt.Sprint(what, "scored ", q.L1Score != nil), q.GetL1Score()})
		}
		out = append(out, line{"scored", float32(c.ScoredPassages)})
	}
	return out
}
