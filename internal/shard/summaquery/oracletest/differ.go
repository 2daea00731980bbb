package oracletest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
)

// Score prints a score with its bits. The two zeros are alike.
func Score(f float32) string {
	if f == 0 {
		f = 0 // no sign
	}
	return fmt.Sprintf("%v/%08x", f, math.Float32bits(f))
}

// Differs tells how an answer to a request that is within w differs from the oracle's: in hits, their order, scores, rows, the total, and
// what branches nominate where that is asked for. Empty: in nothing. No answer is a refusal as the fault of the client. leaf gives the
// number that the segment of an address has in Add.
func (o *Oracle) Differs(req *summapb.SearchRequest, w summa.Window, got *summapb.SearchResponse, leaf func(segment string) int) string {
	want, refused := o.search(req, w)
	if want.wrong != "" {
		return want.wrong
	}
	switch {
	case got == nil && refused == nil:
		return "is refused"
	case got == nil:
		return ""
	case refused != nil:
		return "is not refused"
	}
	keys := map[string]string{}
	for _, d := range o.docs {
		keys[fmt.Sprint(d.leaf, d.doc)] = d.key
	}
	var a, b []string
	theirs := func(at *summapb.DocAddress, score float32, rows []*summapb.OrdinalScore) string {
		line := fmt.Sprint(leaf(at.GetSegmentId()), at.GetDocId())
		line += fmt.Sprintf(" %s: %s", keys[line], Score(score))
		for _, x := range rows {
			line += fmt.Sprintf(" (%d %s)", x.Ordinal, Score(x.Score))
		}
		return line
	}
	candidate := func(c *summapb.FusionCandidate) string { return theirs(c.Address, c.Score, c.OrdinalScores) }
	ours := func(h ohit) string {
		line := fmt.Sprintf("%d %d %s: %s", h.d.leaf, h.d.doc, h.d.key, Score(h.score))
		for _, x := range h.rows {
			line += fmt.Sprintf(" (%d %s)", x.ordinal, Score(x.score))
		}
		return line
	}
	for _, h := range got.Hits {
		a = append(a, theirs(h.Address, h.Score, h.OrdinalScores))
		if h.CandidateScores != nil {
			a = append(a, exportOf(h.CandidateScores))
		}
	}
	for _, h := range want.hits {
		b = append(b, ours(h))
		if e, ok := want.exports[h.d]; ok {
			b = append(b, e.String())
		}
	}
	for _, l := range got.FusionCandidates {
		a = append(a, fmt.Sprint("branch ", l.QueryIndex))
		for _, c := range l.Candidates {
			a = append(a, candidate(c))
		}
	}
	for i, hits := range want.branches {
		b = append(b, fmt.Sprint("branch ", i))
		for _, h := range hits {
			b = append(b, ours(h))
		}
	}
	if o.parts != nil && req.IncludeRrfScores {
		a, b = append(a, votesOf(got)...), append(b, want.voted(req)...)
	}
	if o.parts != nil && req.Tracing {
		a = append(a, tracesOf(got.Trace, candidate)...)
		b = append(b, o.traced(req, w.Depth, want.traces, ours)...)
	}
	a, b = append(a, fmt.Sprint("total ", got.TotalHits)), append(b, fmt.Sprint("total ", want.total))
	if slices.Equal(a, b) {
		return ""
	}
	var out []string
	for i := range max(len(a), len(b)) {
		x, y := "-", "-"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y && len(out) < 12 {
			out = append(out, fmt.Sprintf("%d: got  %s\n   want %s", i, x, y))
		}
	}
	return strings.Join(out, "\n")
}
