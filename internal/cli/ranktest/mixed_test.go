package ranktest

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

// logged is what a broker has said.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) lines(with string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			out = append(out, line)
		}
	}
	return out
}

// TestANodeThatDoesNotHonourWhatItIsAskedIsNamed: in the middle of a rollout one node of three is of a version that does not know a part of what
// it is asked. The search is refused with the contract's text, and the log names the node, once for a minute.
func TestANodeThatDoesNotHonourWhatItIsAskedIsNamed(t *testing.T) {
	type response = summapb.SearchResponse
	unknown := func(m *response) { m.RankingMethod = "" }
	for _, c := range []struct {
		asked, call, text string
		lie               lie
	}{
		{"statistics", "text", "a shard omitted requested BM25 statistics", counted(func(m *summapb.GetTextStatsResponse) { m.Stats = nil })},
		{"statistics of a fusion", "rrf", "a shard omitted requested BM25 statistics", counted(func(m *summapb.GetTextStatsResponse) { m.Stats = nil })},
		{"candidates", "rrf", incomplete, searched(unknown)},
		{"branches", "sum", "shard omitted a nomination branch", searched(func(m *response) { m.FusionCandidates = m.FusionCandidates[:1] })},
		{"an export of candidates", "candidates", "a shard does not support the requested candidate scoring contract; complete the Summa rollout", searched(unknown)},
		{"branches of an export", "candidates", "shard omitted a nomination branch", searched(func(m *response) { m.FusionCandidates = nil })},
		{"an export of features", "export", "a shard does not support the requested candidate scoring contract; complete the Summa rollout", searched(unknown)},
		{"features of an export", "export", "shard omitted L1 candidate features", searched(func(m *response) { m.Hits[0].CandidateScores = nil })},
		{"a formula", "formula", incomplete, searched(unknown)},
		{"the formula's arithmetic", "formula", "shard and broker formula inference disagree", searched(func(m *response) {
			m.Hits[0].Score = math.Nextafter32(m.Hits[0].Score, 100)
		})},
		{"features of a formula", "exported", "shard omitted L1 candidate features", searched(func(m *response) { m.Hits[0].CandidateScores = nil })},
		{"rows of a formula", "sums", "Query error: L1 document combiner needs more passage rows than were exported", searched(func(m *response) {
			withRows(m).ScoredPassages = math.MaxUint32
		})},
		{"ranks of a formula", "ranks", "backend omitted RRF nomination lists; complete the Summa rollout", searched(func(m *response) { m.FusionCandidates = nil })},
		{"votes", "votes", "backend omitted RRF nomination lists; complete the Summa rollout", searched(func(m *response) { m.FusionCandidates = nil })},
		{"passages for all documents", "seeded", "backend did not acknowledge document passage seeding; complete the Summa rollout", searched(func(m *response) {
			m.SeededDocumentPassages = false
		})},
		{"a trace", "traced", atS1("traced") + "backend omitted requested trace; complete the Summa rollout", searched(func(m *response) { m.Trace = nil })},
		{"a candidate export on one shard", "candidates of one", "backend lacks requested candidate scoring contract", searched(unknown)},
		{"a fusion on one shard", "rrf of one", incomplete, searched(unknown)},
		{"an account of mutations", "upsert", "backend mutation response does not account for every input", edited("UpsertDocuments", func(m *summapb.DocumentMutationResponse) {
			m.AcceptedCount--
		})},
	} {
		t.Run(c.asked, func(t *testing.T) {
			said := &logged{}
			b := besiege(t, func(cfg *service.Config) { cfg.Log = slog.New(slog.NewTextHandler(said, nil)) })
			b.liars[1].tell(c.lie)
			for range 2 {
				_, err := b.calls[c.call](t.Context(), b.broker.server)
				if st := status.Convert(err); st.Message() != c.text || st.Code() != codes.FailedPrecondition && st.Code() != codes.DataLoss {
					t.Errorf("%v, want %q", err, c.text)
				}
			}
			lines := said.lines("does not honour")
			if len(lines) != 1 || !strings.Contains(lines[0], "node=b shard=s1 ") || !strings.Contains(lines[0], strings.TrimPrefix(c.text, atS1(""))) {
				t.Errorf("the log names %q", lines)
			}
		})
	}
}

// TestExactStatisticsOfSomeNodesAreNotThoseOfAll: one node of three does not count exactly, as a program without the extension fields. What the
// others count would stand for all, so nobody's is used: the answer is that of three such nodes.
func TestExactStatisticsOfSomeNodesAreNotThoseOfAll(t *testing.T) {
	b := besiege(t, nil)
	bare := counted(func(m *summapb.GetTextStatsResponse) {
		for _, f := range m.Stats.Fields {
			f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
		}
	})
	for _, call := range []string{"text", "passages", "rrf", "formula", "statistics"} {
		answer := func(lies [3]lie) string {
			t.Helper()
			for i, l := range lies {
				b.liars[i].tell(l)
			}
			got, err := b.ask(call)
			if err != nil {
				t.Fatalf("%s: %v", call, err)
			}
			return got
		}
		want := answer(everybody(bare))
		if call == "statistics" && want == b.truth[call] {
			t.Error("nodes that do not count exactly are not told apart")
		}
		for i := range b.liars {
			var lies [3]lie
			lies[i] = bare
			if got := answer(lies); got != want {
				t.Errorf("%s, without node %d: %s\nwant %s", call, i, clip(got), clip(want))
			}
		}
		if got := answer([3]lie{}); got != b.truth[call] {
			t.Errorf("%s: the truth afterwards: %s", call, clip(got))
		}
	}
}
