package summagolden

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	summapb "github.com/weft-search/weft/api/summa"
)

// ReferenceError is what the dense scores of the reference are off by themselves, to one of 1.
const ReferenceError = 6e-6

// Dense tells whether a similarity of dense vectors takes part in the scores of a search.
func Dense(req *summapb.SearchRequest) bool {
	var dense func(q *summapb.Query) bool
	any := func(lists ...[]*summapb.Query) bool {
		return slices.ContainsFunc(lists, func(list []*summapb.Query) bool { return slices.ContainsFunc(list, dense) })
	}
	dense = func(q *summapb.Query) bool {
		switch q := q.GetQuery().(type) {
		case *summapb.Query_DenseVector:
			return true
		case *summapb.Query_Boost:
			return dense(q.Boost.GetQuery())
		case *summapb.Query_Boolean:
			return any(q.Boolean.GetMust(), q.Boolean.GetShould(), q.Boolean.GetMustNot())
		case *summapb.Query_Fusion:
			return slices.ContainsFunc(q.Fusion.GetQueries(), func(b *summapb.WeightedQuery) bool { return dense(b.GetQuery()) }) || any(q.Fusion.GetFilters())
		}
		return false
	}
	return len(req.GetReranker().GetVector()) > 0 || dense(req.GetQuery())
}

// DiffSearch tells where the reply to a search is another than the recorded one, or "". Everything is compared to the bit but times, which vary,
// and the ids of segments, which each server makes; where a similarity of dense vectors takes part, scores may be off by ReferenceError.
func DiffSearch(got, recorded *summapb.SearchResponse, dense bool) string {
	a, b := show(got), show(recorded)
	if slices.EqualFunc(a, b, func(a, b string) bool { return sameLine(a, b, dense) }) {
		return ""
	}
	return fmt.Sprintf("\n%s\nrecorded\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
}

// A score stands in a line behind a mark of its own, so that no other number is compared loosely.
var scores = regexp.MustCompile(`~[^ ,;\]})]+`)

// sameLine compares lines of show.
func sameLine(a, b string, dense bool) bool {
	if a == b || !dense {
		return a == b
	}
	if scores.ReplaceAllString(a, "~") != scores.ReplaceAllString(b, "~") {
		return false
	}
	xs, ys := scores.FindAllString(a, -1), scores.FindAllString(b, -1)
	for i := range xs {
		x, errX := strconv.ParseFloat(xs[i][1:], 64)
		y, errY := strconv.ParseFloat(ys[i][1:], 64)
		if errX != nil || errY != nil || math.Abs(x-y) > ReferenceError*max(1, math.Abs(x)) {
			return false
		}
	}
	return true
}

// num prints a score so that equal texts are equal bits.
func num(f float32) string { return "~" + strconv.FormatFloat(float64(f), 'g', -1, 32) }

// show prints what has to be the same, a line for each hit and list.
func show(r *summapb.SearchResponse) []string {
	out := []string{fmt.Sprintf("total %d, truncated %t, method %q, seeded %t, missing %d", r.GetTotalHits(), r.GetTruncated(), r.GetRankingMethod(),
		r.GetSeededDocumentPassages(), r.GetMissingPartitions())}
	for _, h := range r.GetHits() {
		line := fmt.Sprint(h.GetAddress().GetDocId(), " ", num(h.GetScore()), ordinals(h.GetOrdinalScores()))
		if c := h.GetCandidateScores(); c != nil {
			line += fmt.Sprint(" scored ", c.GetScoredPassages(), cells(c.GetDocument()))
			for _, p := range c.GetPassages() {
				line += fmt.Sprint(" [", p.GetOrdinal(), cells(p.GetScores()), " ", p.L1Score != nil, " ", num(p.GetL1Score()), "]")
			}
		}
		if h.RrfScore != nil {
			line += fmt.Sprint(" rrf ", num(h.GetRrfScore()))
		}
		for _, c := range h.GetRrfContributions() {
			line += fmt.Sprint(" {", c.GetQueryIndex(), " ", c.GetQueryName(), " ", c.GetRank(), " ", num(c.GetScore()), " ", c.Ordinal != nil, " ", c.GetOrdinal(), "}")
		}
		names := []string{}
		for name, list := range h.GetFields() {
			b, err := protojson.Marshal(list)
			names = append(names, fmt.Sprint(name, "=", strings.ReplaceAll(string(b), " ", ""), err))
		}
		slices.Sort(names)
		out = append(out, line+" "+strings.Join(names, " "))
	}
	for _, l := range r.GetFusionCandidates() {
		out = append(out, fmt.Sprint("candidates ", l.GetQueryIndex(), candidates(l.GetCandidates())))
	}
	for _, sh := range r.GetTrace().GetShards() {
		for _, q := range sh.GetQueries() {
			out = append(out, fmt.Sprint("trace ", q.GetQueryIndex(), q.GetQueryName(), q.GetQuery(), q.GetScope(), q.GetScoreOnly(), " ", q.GetCandidateDepth(), " ", q.GetTotalSeen(), candidates(q.GetCandidates())))
		}
		out = append(out, fmt.Sprint("selected ", sh.GetIndexName(), sh.GetShardId(), sh.GetBackendId(), sh.GetRankingMethod(), sh.GetTruncated(), sh.GetFilters(), candidates(sh.GetSelected())))
	}
	return out
}

func ordinals(rows []*summapb.OrdinalScore) string {
	var b strings.Builder
	for _, o := range rows {
		fmt.Fprintf(&b, " (%d %s)", o.GetOrdinal(), num(o.GetScore()))
	}
	return b.String()
}

func cells(m map[string]float32) string {
	var out []string
	for name, v := range m {
		out = append(out, name+"="+num(v))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func candidates(list []*summapb.FusionCandidate) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, " %d %s%s;", c.GetAddress().GetDocId(), num(c.GetScore()), ordinals(c.GetOrdinalScores()))
	}
	return b.String()
}
