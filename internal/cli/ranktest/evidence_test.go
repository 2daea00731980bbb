package ranktest

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
)

// TestEvidenceThatIsIncompleteIsRefused has a node of three leave out or contradict a part of what the broker ranks by: as a program of
// another version does, or one that lies. Nothing is ranked then ("When the broker coordinates").
func TestEvidenceThatIsIncompleteIsRefused(t *testing.T) {
	b := besiege(t, nil)
	before := stand()
	type response = summapb.SearchResponse
	const notFinite = "Query error: L1 formula produced a non-finite score (domain error or overflow)"
	const inference = "shard and broker formula inference disagree"
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	list := func(m *response, i int) *summapb.FusionCandidateList { return m.FusionCandidates[i] }
	var sieges []siege
	refused := func(name, text string, change func(m *response), calls ...string) {
		for _, c := range calls {
			sieges = append(sieges, siege{name: name, call: c, lies: onlyS1(searched(change)), code: codes.FailedPrecondition, text: text})
		}
	}
	fused, formulas := []string{"rrf", "sum", "trace"}, []string{"formula", "ranks", "exported", "votes", "sums", "seeded"}
	voting := []string{"ranks", "votes"}
	all := slices.Concat(fused, formulas)

	// Of a program that does not know what it was asked for.
	refused("no method", incomplete, func(m *response) { m.RankingMethod = "" }, append(all, "rrf of one", "ranks of one")...)
	refused("another method", incomplete, func(m *response) { m.RankingMethod = "formula_v0" }, append(all, "rrf of one", "ranks of one")...)
	refused("cut off", incomplete, func(m *response) { m.Truncated = true }, append(all, "rrf of one", "ranks of one")...)
	refused("an empty answer", incomplete, func(m *response) { *m = response{} }, slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == "trace" })...)
	refused("a fusion of its own", incomplete, func(m *response) {
		m.RankingMethod, m.FusionCandidates = "", nil
		for i, h := range m.Hits {
			h.Score = 1 / float32(61+i)
		}
	}, fused...)
	for _, change := range []struct {
		name string
		make func(m *response)
	}{{"no lists", func(m *response) { m.FusionCandidates = nil }}, {"a list less", func(m *response) { m.FusionCandidates = m.FusionCandidates[:1] }}} {
		refused(change.name, "shard omitted a nomination branch", change.make, fused...)
		refused(change.name, "backend omitted RRF nomination lists; complete the Summa rollout", change.make, append(voting, "ranks of one")...)
	}
	refused("no features", "shard omitted L1 candidate features", func(m *response) {
		for _, h := range m.Hits {
			h.CandidateScores = nil
		}
	}, formulas...)
	refused("no trace", atS1("trace")+"backend omitted requested trace; complete the Summa rollout", func(m *response) { m.Trace = nil }, "trace", "traced")
	refused("an empty trace", atS1("trace")+"backend omitted requested trace; complete the Summa rollout", func(m *response) { m.Trace.Shards = nil }, "trace", "traced")
	refused("two traces", atS1("trace")+"backend must return exactly one local trace", func(m *response) { m.Trace.Shards = append(m.Trace.Shards, m.Trace.Shards[0]) }, "trace", "traced")
	refused("no passages seeded", "backend did not acknowledge document passage seeding; complete the Summa rollout", func(m *response) { m.SeededDocumentPassages = false }, "seeded")
	refused("another method", notTheSame, func(m *response) { m.RankingMethod = "mine" }, "traced")

	// Branches.
	for _, change := range []struct {
		name string
		make func(m *response)
	}{
		{"a branch twice", func(m *response) { list(m, 1).QueryIndex = 0 }},
		{"a branch that is none", func(m *response) { list(m, 1).QueryIndex = 2 }},
		{"an absurd branch", func(m *response) { list(m, 1).QueryIndex = math.MaxUint32 }},
		{"a branch besides", func(m *response) { m.FusionCandidates = append(m.FusionCandidates, list(m, 0)) }},
	} {
		refused(change.name, "invalid exported branch identity", change.make, fused...)
		refused(change.name, "invalid RRF nomination branch identity", change.make, voting...)
	}

	// Addresses.
	refused("a document twice", twice, func(m *response) { m.Hits = append(m.Hits, m.Hits[0]) }, append(all, "rrf of one", "ranks of one", "traced")...)
	double := func(m *response) { list(m, 0).Candidates = append(list(m, 0).Candidates, list(m, 0).Candidates[0]) }
	refused("a candidate twice", "duplicate candidate address within a branch", double, fused...)
	refused("a candidate twice", "duplicate RRF nomination address", double, voting...)
	for name, a := range map[string]*summapb.DocAddress{
		"no hexadecimals": {SegmentId: strings.Repeat("xy", 16)}, "nothing": {},
		"a digit more": {SegmentId: strings.Repeat("a", 33)}, "an endless segment": {SegmentId: strings.Repeat("a", 1<<20)},
	} {
		refused(name+" for the address of a hit", "candidate has an invalid segment address", func(m *response) { m.Hits[0].Address = a }, all...)
		refused(name+" for the address of a candidate", "candidate has an invalid segment address", func(m *response) { list(m, 0).Candidates[0].Address = a }, append(fused, voting...)...)
	}
	refused("no address of a hit", "candidate lacks an address", func(m *response) { m.Hits[0].Address = nil }, all...)
	refused("no address of a candidate", "candidate lacks an address", func(m *response) { list(m, 0).Candidates[0].Address = nil }, append(fused, voting...)...)
	unheard := func(m *response) {
		list(m, 0).Candidates[0].Address = &summapb.DocAddress{SegmentId: strings.Repeat("ab", 16), DocId: 3}
	}
	refused("a candidate that is no hit", "branch candidate lacks a valid hydrated union entry", unheard, fused...)
	refused("a candidate that is no hit", "RRF L1 requires the complete nominated document union", unheard, "ranks")
	fewer := func(m *response) { m.Hits = m.Hits[1:] }
	refused("a hit less", "branch candidate lacks a valid hydrated union entry", fewer, fused...)
	refused("a hit less", "RRF L1 requires the complete nominated document union", fewer, "ranks")
	for _, c := range all {
		sieges = append(sieges, siege{name: "an address of another shard", call: c, lies: [3]lie{b.claims(c), b.claims(c), nil}, code: codes.FailedPrecondition, text: twice})
	}

	// Scores.
	for name, v := range map[string]float32{"no number": nan, "endless": inf, "endless below": -inf} {
		own := func(m *response) { list(m, 1).Candidates[0].Score = v; list(m, 1).Candidates[0].OrdinalScores = nil }
		row := func(m *response) { list(m, 0).Candidates[0].OrdinalScores[0].Score = v }
		for what, change := range map[string]func(m *response){"a candidate": own, "a passage": row} {
			refused(name+" for the score of "+what, "branch candidate lacks a valid hydrated union entry", change, fused...)
			refused(name+" for the score of "+what, "non-finite RRF nomination score", change, voting...)
		}
		cell := func(m *response) {
			for _, h := range m.Hits {
				h.CandidateScores.Document["v"] = v
			}
		}
		for _, c := range formulas {
			sieges = append(sieges, siege{name: name + " for a feature", call: c, lies: onlyS1(searched(cell)), code: codes.InvalidArgument, text: notFinite})
		}
		refused(name+" for the score of a hit", inference, func(m *response) { m.Hits[0].Score = v }, "formula", "exported", "votes", "sums", "seeded")
		refused(name+" for the score of a hit", incomplete, func(m *response) { m.Hits[0].Score = v }, "traced")
	}
	refused("another score", inference, func(m *response) { m.Hits[0].Score = math.Nextafter32(m.Hits[0].Score, 100) }, "formula", "exported", "votes", "sums", "seeded")
	refused("another feature", inference, func(m *response) { m.Hits[0].CandidateScores.Document["v"] += 0.5 }, "formula", "exported", "votes", "sums", "seeded")

	// Features.
	const keys = "shard feature keys/scopes do not match the query"
	refused("a feature that is none", keys, func(m *response) { m.Hits[0].CandidateScores.Document["w"] = 1 }, formulas...)
	refused("a feature of passages for a document", keys, func(m *response) { m.Hits[0].CandidateScores.Document["chunks"] = 1 }, formulas...)
	refused("a feature of documents for a passage", keys, func(m *response) { withRows(m).Passages[0].Scores = map[string]float32{"v": 1} }, formulas...)
	refused("a passage twice", keys, func(m *response) {
		c := withRows(m)
		c.Passages = append(c.Passages, c.Passages[0])
	}, formulas...)
	const rows = "Query error: L1 document combiner needs more passage rows than were exported"
	refused("no rows", rows, func(m *response) { withRows(m).Passages = nil }, formulas...)
	refused("more passages than rows", rows, func(m *response) { withRows(m).ScoredPassages = math.MaxUint32 }, "sums", "ranks")

	// What says nothing wrong.
	for _, c := range all {
		sieges = append(sieges, siege{name: "an unknown field", call: c, lies: onlyS1(more("Search", unknown)), same: true})
		sieges = append(sieges, siege{name: "totals that overflow", call: c, lies: everybody(searched(func(m *response) { m.TotalHits = math.MaxUint64 })), then: answered(func(t testing.TB, m *response) {
			if m.TotalHits != math.MaxUint64 {
				t.Errorf("a total of %d", m.TotalHits)
			}
		})})
	}
	b.endure(t, sieges)
	before.settle(t, b)
}

// withRows are the scores of the first hit that has rows of passages.
func withRows(m *summapb.SearchResponse) *summapb.CandidateScores {
	for _, h := range m.Hits {
		if len(h.CandidateScores.GetPassages()) > 0 {
			return h.CandidateScores
		}
	}
	panic("no hit has a passage")
}

// claims has a node give its first hit, and what its branches nominate of it, an address that another one gives as well.
func (b *besieged) claims(string) lie {
	return searched(func(m *summapb.SearchResponse) {
		old := addressOf(m.Hits[0].Address)
		same := &summapb.DocAddress{SegmentId: strings.Repeat("ab", 16), DocId: 7}
		m.Hits[0].Address = same
		for _, l := range m.FusionCandidates {
			for _, c := range l.Candidates {
				if addressOf(c.Address) == old {
					c.Address = same
				}
			}
		}
	})
}
