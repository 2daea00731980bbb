package service_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// ranked says whether a case is a search that the broker ranks: its reply has times of the broker.
func ranked(c *summagolden.Case) bool {
	if c.RPC != "Search" || len(c.RequestB64) != 1 {
		return false
	}
	m := &summapb.SearchRequest{}
	if proto.Unmarshal(c.RequestB64[0], m) != nil {
		return false
	}
	f := m.GetQuery().GetFusion()
	return m.L1 != nil || m.Tracing || m.IncludeRrfScores ||
		f != nil && f.Method != summapb.FusionMethod_FUSION_CANDIDATES && m.Reranker == nil && m.ScoreExport == nil
}

// compareRanked compares a reply that the broker made but for its times, bit for bit.
func compareRanked(t *testing.T, c *summagolden.Case, got []byte) {
	t.Helper()
	answer, want := &summapb.SearchResponse{}, &summapb.SearchResponse{}
	decode(t, got, answer)
	decode(t, c.ResponseB64, want)
	tm := answer.GetTimings()
	if tm.GetTotalUs() == 0 || tm.GetTotalUs()/1000 != answer.TookMs || tm.GetCandidateScoringUs() > tm.GetTotalUs() {
		t.Errorf("%s: times are %d ms, %v", c.Name, answer.TookMs, tm)
	}
	for _, m := range []*summapb.SearchResponse{answer, want} {
		m.TookMs, m.Timings.TotalUs, m.Timings.CandidateScoringUs = 0, 0, 0
		zeros(m)
	}
	if !proto.Equal(answer, want) {
		t.Errorf("%s:\n got %v\nwant %v", c.Name, answer, want)
		return
	}
	if a, b := encoded(t, answer), encoded(t, want); !bytes.Equal(a, b) {
		t.Errorf("%s: the bits of scores differ:\n got %x\nwant %x", c.Name, a, b)
	}
}

// zeros makes zeros positive: the sign says nothing (B9).
func zeros(m *summapb.SearchResponse) {
	for _, h := range m.Hits {
		h.Score = positive(h.Score)
		for _, o := range h.OrdinalScores {
			o.Score = positive(o.Score)
		}
		for _, q := range h.GetCandidateScores().GetPassages() {
			if q.L1Score != nil {
				*q.L1Score = positive(*q.L1Score)
			}
		}
	}
}

func positive(s float32) float32 {
	if s == 0 {
		return float32(math.Abs(float64(s)))
	}
	return s
}

// TestRecordedRankings replays the recorded searches that the broker ranks: fusions, and formulas.
func TestRecordedRankings(t *testing.T) {
	for file, differing := range map[string]map[string]difference{"broker-fusion": nil, "broker-formula": formulasDiffering} {
		cases, err := summagolden.Load(corpus.Dir(t, "summa-golden"), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []variant{{"", true}, {"zstd", false}} {
			t.Run(file+","+v.String(), func(t *testing.T) { replay(t, slices.Clone(cases), v, differing) })
		}
	}
}

// formulasDiffering are the formulas that weft treats otherwise.
var formulasDiffering = map[string]difference{}
