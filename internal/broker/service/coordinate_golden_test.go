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
	for _, file := range []string{"broker-fusion", "broker-formula"} {
		cases, err := summagolden.Load(corpus.Dir(t, "summa-golden"), file)
		if err != nil {
			t.Fatal(err)
		}
		var differing map[string]difference
		if file == "broker-formula" {
			differing = formulasDiffering(cases)
		}
		for _, v := range []variant{{"", true}, {"zstd", false}} {
			t.Run(file+","+v.String(), func(t *testing.T) { replay(t, slices.Clone(cases), v, differing) })
		}
	}
}

// formulasDiffering are the recorded formulas that weft treats otherwise.
func formulasDiffering(cases []summagolden.Case) map[string]difference {
	out := map[string]difference{
		"broker/formula/115": {"B9", "a negative zero is the node's zero", func(t *testing.T, c *summagolden.Case) {
			reply := &summapb.SearchResponse{}
			decode(t, c.Nodes[0].ResponseB64, reply)
			for _, h := range reply.Hits {
				h.CandidateScores = nil
			}
			reply.Timings = &summapb.SearchTimings{}
			c.Code, c.Message, c.ResponseB64 = "OK", "", encoded(t, reply)
		}},
		"broker/names/011":     {"B8", "a name may begin with a function's", like(cases, "broker/names/012", "max_score", 5.5)},
		"broker/names/011+rrf": {"B8", "a name may begin with a function's", like(cases, "broker/names/012+rrf", "(max_score)+0*rrf", 5.5)},
		"broker/compile/039":   {"B8", "a tab separates", like(cases, "broker/formula/001", "x+\ty", 0)},
	}
	for _, name := range []string{
		"broker/formula-signed/018", "broker/formula-signed/022", "broker/formula-signed/023", "broker/formula-unit/006", "broker/formula-big/006",
		"broker/formula-big/010", "broker/formula-big/014",
	} {
		out[name] = difference{"B7", "a formula that fails is INVALID_ARGUMENT", func(_ *testing.T, c *summagolden.Case) { c.Code = "INVALID_ARGUMENT" }}
	}
	for name, text := range grammarRefusals {
		out[name] = difference{"B8", "a proper grammar says where it is broken", func(_ *testing.T, c *summagolden.Case) {
			c.Message = "Query error: invalid l1.formula: " + text
		}}
	}
	return out
}

// like makes a case what another one is, with a formula of its own and, if it is not 0, the score that it gives.
func like(cases []summagolden.Case, name, formula string, score float32) func(*testing.T, *summagolden.Case) {
	return func(t *testing.T, c *summagolden.Case) {
		i := slices.IndexFunc(cases, func(o summagolden.Case) bool { return o.Name == name })
		if i < 0 {
			t.Fatalf("no case is %s", name)
		}
		reply := func(wire []byte) []byte {
			m := &summapb.SearchResponse{}
			decode(t, wire, m)
			for _, h := range m.Hits {
				if score != 0 && h.Score != 0 {
					h.Score = score
				}
			}
			return encoded(t, m)
		}
		c.Nodes = slices.Clone(cases[i].Nodes)
		for k := range c.Nodes {
			n := &c.Nodes[k]
			m := &summapb.SearchRequest{}
			decode(t, n.RequestB64, m)
			if m.L1.Formula != "0" {
				m.L1.Formula = formula
			}
			n.RequestB64, n.ResponseB64 = encoded(t, m), reply(n.ResponseB64)
		}
		c.Code, c.Message, c.ResponseB64 = "OK", "", reply(cases[i].ResponseB64)
	}
}

// grammarRefusals are the formulas that both refuse, with what weft says.
var grammarRefusals = map[string]string{
	"broker/formula-unit/005+rrf": "at byte 4: expected an operator or ), found \"e\"",
	"broker/formula-unit/005":     "at byte 3: expected an operator or the end, found \"e\"",
	"broker/names/003+rrf":        "at byte 4: expected ( after max, found \")\"",
	"broker/names/003":            "at byte 3: expected ( after max, found the end",
	"broker/compile/002":          "at byte 2: expected a value, found the end",
	"broker/compile/003":          "at byte 0: expected a value, found \"*\"",
	"broker/compile/004":          "at byte 1: expected a value, found the end",
	"broker/compile/007":          "at byte 1: expected an operator or the end, found \"x\"",
	"broker/compile/011":          "at byte 2: expected an operator or ), found the end",
	"broker/compile/017":          "at byte 4: expected a value, found the end",
	"broker/compile/018":          "at byte 5: expected a value, found \")\"",
	"broker/compile/021":          "at byte 4: expected a value, found \")\"",
	"broker/compile/022":          "at byte 6: expected a value, found \")\"",
	"broker/compile/023":          "at byte 4: expected a value, found \",\"",
	"broker/compile/025":          "at byte 1: expected an operator or the end, found \",\"",
	"broker/compile/027":          "at byte 2: expected a value, found \"/\"",
	"broker/compile/031":          "at byte 1: unexpected character '='",
	"broker/compile/032":          "at byte 1: unexpected character '&'",
	"broker/compile/033":          "at byte 1: expected an operator or the end, found \"e5\"",
	"broker/compile/036":          "at byte 0: \"1..2\" is not a number: digits and at most one point",
	"broker/compile/038":          "at byte 2: expected an operator or the end, found \"y\"",
	"broker/compile/040":          "at byte 1: unexpected character '\\n'",
	"broker/compile/044":          "at byte 0: the brace is not closed",
	"broker/compile/049":          "at byte 3: expected an operator or the end, found \"(\"",
	"broker/compile/051":          "at byte 1: unexpected character ';'",
	"broker/compile/052":          "at byte 0: unexpected character '\\''",
	"broker/compile/053":          "at byte 1: expected an operator or the end, found \"x10\"",
	"broker/compile/066":          "at byte 4: expected ( after min, found \"x\"",
	"broker/compile/067":          "at byte 5: expected a value, found the end",
	"broker/compile/073":          "at byte 1: expected an operator or the end, found \"(\"",
	"broker/compile/074":          "at byte 3: expected an operator or the end, found \"2\"",
}
