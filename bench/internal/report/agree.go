package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/workload"
)

const shown = 40 // disagreements written out

type countAgreement struct {
	queries, bad int
	engines      []string
	lines        []string
}

// compareCounts holds both counts of each engine against that of the maker of the queries.
func (p *page) compareCounts() countAgreement {
	out := countAgreement{queries: len(p.in.Queries), engines: p.names}
	for _, q := range p.in.Queries {
		var wrong []string
		for _, e := range p.names {
			for _, s := range p.runs[e].Search {
				for _, c := range []struct {
					mode peer.Mode
					of   map[string]uint64
				}{{peer.Count, s.Counts}, {peer.Top10Count, s.Both}} {
					n, ok := c.of[q.ID]
					if w := fmt.Sprintf("%s in mode %s %d", e, peer.Modes[c.mode], n); (!ok || n != q.Count) && !slices.Contains(wrong, w) {
						wrong = append(wrong, w)
					}
				}
			}
		}
		if len(wrong) > 0 {
			out.bad++
			out.lines = append(out.lines, fmt.Sprintf("- %v (%s): expected %d, %s", q, q.Class, q.Count, strings.Join(wrong, ", ")))
		}
	}
	return out
}

func (a countAgreement) write(p *page) {
	p.line("Exact counts: %d queries, in both counting modes of %s, against the counts of the maker of the queries; %d differ.", a.queries, strings.Join(a.engines, ", "), a.bad)
	p.lines(a.lines)
}

func (p *page) lines(l []string) {
	if len(l) == 0 {
		return
	}
	p.line("")
	for _, s := range l[:min(len(l), shown)] {
		p.line("%s", s)
	}
	if len(l) > shown {
		p.line("- and %d more", len(l)-shown)
	}
	p.line("")
}

// place is what became of one place of two top-10 lists.
type place int

const (
	same     place = iota // the same document
	tie                   // two documents of equal score
	rounding              // each list is right by its own lengths: exact in weft, rounded in the other engine
	unexplained
)

type pairAgreement struct {
	other   string
	queries int
	overlap float64 // sum over the queries
	places  [4]int
}

type listAgreement struct {
	pairs []pairAgreement
	lines []string

	checked, wrong int // places of weft's lists, all classes, against the brute-force scores
	wrongLines     []string
}

func (a listAgreement) places() (n int) {
	for _, p := range a.pairs {
		for _, k := range p.places {
			n += k
		}
	}
	return n
}

func (a listAgreement) unexplained() (n int) {
	for _, p := range a.pairs {
		n += p.places[unexplained]
	}
	return n
}

// near tells scores apart only if more than the rounding of binary32 sums lies between them.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(math.Abs(a), math.Abs(b)) }

// ranking is the full brute-force answer to a query under one rule for lengths.
type ranking struct {
	list  []workload.Scored
	score map[int]float64
}

func rank(o *workload.Oracle, q peer.Query, length func(int) int) ranking {
	r := ranking{list: o.Matches(q, length), score: map[int]float64{}}
	for _, s := range r.list {
		r.score[s.Doc] = s.Score
	}
	return r
}

// right says whether a document may stand at a place: its score is the one that belongs there.
func (r ranking) right(at, doc int) bool {
	s, ok := r.score[doc]
	return ok && at < len(r.list) && near(s, r.list[at].Score)
}

// compareLists compares weft's top 10 with brute force and with those of Lucene and tantivy. Both keep lengths in one byte,
// so a difference is explained if the document of weft has the score that belongs at its place by exact lengths, and the
// document of the other engine the score that belongs there by rounded ones.
func (p *page) compareLists(o *workload.Oracle) listAgreement {
	var out listAgreement
	if !p.has("weft") {
		return out
	}
	for _, e := range []string{"lucene", "tantivy"} {
		if p.has(e) {
			out.pairs = append(out.pairs, pairAgreement{other: e})
		}
	}
	number := o.Numbers()
	numbers := func(hits []peer.Hit) []int {
		var docs []int
		for _, h := range hits {
			n, ok := number[h.ID]
			if !ok {
				n = -1
			}
			docs = append(docs, n)
		}
		return docs
	}
	for _, q := range p.in.Queries {
		exact := rank(o, q, nil)
		hits := p.runs["weft"].Search[0].Hits[q.ID]
		ours := numbers(hits)
		for at := range min(10, max(len(exact.list), len(ours))) {
			out.checked++
			if at < len(ours) && exact.right(at, ours[at]) && near(hits[at].Score, exact.list[at].Score) {
				continue
			}
			out.wrong++
			if at < len(ours) && at < len(exact.list) {
				out.wrongLines = append(out.wrongLines, fmt.Sprintf("- %v (%s), place %d: %s with %.7g, should score %.7g",
					q, q.Class, at+1, hits[at].ID, hits[at].Score, exact.list[at].Score))
				continue
			}
			out.wrongLines = append(out.wrongLines, fmt.Sprintf("- %v (%s): %d hits of %d matches", q, q.Class, len(ours), len(exact.list)))
		}
		if q.Op == "prefix" || len(out.pairs) == 0 { // the others score a constant
			continue
		}
		rounded := rank(o, q, workload.RoundLength)
		for i := range out.pairs {
			pa := &out.pairs[i]
			theirs := numbers(p.runs[pa.other].Search[0].Hits[q.ID])
			pa.add(ours, theirs, exact, rounded, func(at int, name func([]int) string) {
				out.lines = append(out.lines, fmt.Sprintf("- %v (%s), place %d: weft %s, %s %s", q, q.Class, at+1, name(ours), pa.other, name(theirs)))
			}, o)
		}
	}
	return out
}

func (pa *pairAgreement) add(ours, theirs []int, exact, rounded ranking, tell func(at int, name func([]int) string), o *workload.Oracle) {
	pa.queries++
	n := max(len(ours), len(theirs))
	common := 0
	for _, d := range ours {
		if slices.Contains(theirs, d) {
			common++
		}
	}
	if n > 0 {
		pa.overlap += float64(common) / float64(n)
	} else {
		pa.overlap++
	}
	for at := range n {
		kind := unexplained
		if at < len(ours) && at < len(theirs) {
			a, b := ours[at], theirs[at]
			switch {
			case a == b:
				kind = same
			case !exact.right(at, a) || !rounded.right(at, b):
			case near(exact.score[a], exact.score[b]) && near(rounded.score[a], rounded.score[b]):
				kind = tie
			default:
				kind = rounding
			}
		}
		pa.places[kind]++
		if kind == unexplained {
			tell(at, func(list []int) string {
				if at >= len(list) || list[at] < 0 {
					return "nothing known"
				}
				return fmt.Sprintf("%s (%.7g by exact lengths, %.7g by rounded)", o.ID(list[at]), exact.score[list[at]], rounded.score[list[at]])
			})
		}
	}
}

func (a listAgreement) write(p *page) {
	if a.checked > 0 {
		p.line("\nweft's top 10 against BM25 by brute force in binary64, every class: %d places, %d wrong.", a.checked, a.wrong)
		p.lines(a.wrongLines)
	}
	if len(a.pairs) == 0 {
		return
	}
	p.line("\nweft's top 10 against the others', all classes but prefix (they score it by a constant). weft scores by exact lengths, the others by lengths " +
		"rounded to a byte. A place is explained by a tie if the two documents score the same, by rounding if each document has the very score that belongs at the place by " +
		"its engine's lengths, computed by brute force.\n")
	p.line("| against | queries | overlap of the sets | same place | tie | rounding | explained in all | unexplained places |")
	p.line("|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, pa := range a.pairs {
		total := 0
		for _, k := range pa.places {
			total += k
		}
		share := func(n int) string { return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(max(total, 1))) }
		p.line("| %s | %d | %.4f | %s | %s | %s | %s | %d |", pa.other, pa.queries, pa.overlap/float64(max(pa.queries, 1)),
			share(pa.places[same]), share(pa.places[tie]), share(pa.places[rounding]), share(total-pa.places[unexplained]), pa.places[unexplained])
	}
	p.lines(a.lines)
}
