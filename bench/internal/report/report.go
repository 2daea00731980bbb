// Package report turns the numbers of a comparison into a page of Markdown.
package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/workload"
)

// Run holds the results of one engine.
type Run struct {
	Engine string
	Index  []peer.IndexResult  // one for each time it indexed
	Search []peer.SearchResult // one for each round
}

// Input is what a page is made of.
type Input struct {
	Corpus  string
	Docs    []peer.Doc
	Queries []peer.Query
	Runs    []Run    // weft first
	Facts   []string // about machine, tools and run, a sentence each
	Notes   []string // what is missing and why
}

// shortcut are the classes whose counts an engine can take from stored document counts without reading a list.
var shortcut = []string{"term-high", "term-mid", "term-low", "game-term", "game-must-may"}

// Verdict is one of the aims with what was measured.
type Verdict struct {
	What, Aim, Measured string
	Met                 bool
}

type page struct {
	strings.Builder
	in      Input
	classes []string
	size    map[string]int
	runs    map[string]*Run
	names   []string
	best    map[cell]float64
	worst   map[cell]float64
}

type cell struct{ class, mode, engine string }

// Write writes the page and returns the verdicts on the aims, none if bleve is not among the engines.
func Write(w io.Writer, in Input) ([]Verdict, error) {
	p := &page{in: in, size: map[string]int{}, runs: map[string]*Run{}, best: map[cell]float64{}, worst: map[cell]float64{}}
	for i := range in.Runs {
		r := &in.Runs[i]
		if len(r.Index) == 0 || len(r.Search) == 0 {
			return nil, fmt.Errorf("report: no results of %s", r.Engine)
		}
		p.runs[r.Engine] = r
		p.names = append(p.names, r.Engine)
	}
	for _, q := range in.Queries {
		if p.size[q.Class] == 0 {
			p.classes = append(p.classes, q.Class)
		}
		p.size[q.Class]++
	}
	for _, r := range in.Runs {
		for _, c := range p.classes {
			for _, m := range peer.Modes {
				var all []float64
				for _, s := range r.Search {
					all = append(all, s.Times[c+"|"+m]...)
				}
				if len(all) == 0 {
					return nil, fmt.Errorf("report: %s has no times of class %s, mode %s", r.Engine, c, m)
				}
				k := cell{c, m, r.Engine}
				p.best[k], p.worst[k] = slices.Min(all), slices.Max(all)
			}
		}
	}
	verdicts := p.write()
	if _, err := io.WriteString(w, p.String()); err != nil {
		return nil, fmt.Errorf("report: writing the page: %w", err)
	}
	return verdicts, nil
}

func (p *page) line(format string, a ...any) { fmt.Fprintf(p, format+"\n", a...) }

func (p *page) has(engine string) bool { return p.runs[engine] != nil }

func (p *page) write() []Verdict {
	oracle := workload.NewOracle(p.in.Docs)
	counts := p.compareCounts()
	lists := p.compareLists(oracle)
	verdicts := p.verdicts(counts, lists)

	p.line("# %s", title(p.names))
	p.line("")
	for _, f := range p.in.Facts {
		p.line("%s", f)
	}
	p.line("%d documents (%s), %d queries in %d classes. Versions: %s.", len(p.in.Docs), p.in.Corpus, len(p.in.Queries), len(p.classes), p.versions())
	for _, n := range p.in.Notes {
		p.line("\n%s", n)
	}
	if len(verdicts) > 0 {
		p.line("\n## Aims\n")
		p.line("| what | aim | measured | |")
		p.line("|---|---|---|---|")
		for _, v := range verdicts {
			word := "missed"
			if v.Met {
				word = "met"
			}
			p.line("| %s | %s | %s | %s |", v.What, v.Aim, v.Measured, word)
		}
	}
	p.means()
	p.indexing()
	p.times()
	p.line("\n## Agreement\n")
	counts.write(p)
	lists.write(p)
	return verdicts
}

func title(names []string) string {
	if len(names) == 1 {
		return names[0] + " alone"
	}
	return names[0] + " beside " + strings.Join(names[1:], ", ")
}

func (p *page) versions() string {
	var out []string
	for _, e := range p.names {
		if v := p.runs[e].Search[0].Version; v != "" && e != "bleve1" {
			if !strings.HasPrefix(v, e+" ") {
				v = e + " " + v
			}
			out = append(out, v)
		}
	}
	return strings.Join(out, "; ")
}

// pairs are the ratios that the tables show: time of the first over time of the second.
func (p *page) pairs() [][2]string {
	var out [][2]string
	for _, pair := range [][2]string{{"bleve", "weft"}, {"bleve", "lucene"}, {"bleve", "tantivy"}, {"bleve1", "weft"}, {"lucene", "weft"}, {"tantivy", "weft"}} {
		if p.has(pair[0]) && p.has(pair[1]) {
			out = append(out, pair)
		}
	}
	return out
}

func (p *page) ratio(class, mode string, pair [2]string) float64 {
	return p.best[cell{class, mode, pair[0]}] / p.best[cell{class, mode, pair[1]}]
}

// mean is the geometric mean of a ratio over the classes, without those in skip.
func (p *page) mean(mode string, pair [2]string, skip []string) float64 {
	sum, n := 0.0, 0
	for _, c := range p.classes {
		if !slices.Contains(skip, c) {
			sum += math.Log(p.ratio(c, mode, pair))
			n++
		}
	}
	return math.Exp(sum / float64(n))
}

func header(first []string, pairs [][2]string) (head, rule string) {
	head, rule = "|", "|"
	for _, f := range first {
		head += " " + f + " |"
		rule += "---|"
	}
	for _, pr := range pairs {
		head += " " + pr[0] + "/" + pr[1] + " |"
		rule += "--:|"
	}
	return head, rule
}

func (p *page) means() {
	pairs := p.pairs()
	if len(pairs) == 0 {
		return
	}
	p.line("\n## Speed: geometric means over the classes\n")
	p.line("Time of the first engine over time of the second. Classes with a shortcut are those whose count stands with the term: %s.\n", strings.Join(shortcut, ", "))
	head, rule := header([]string{"mode", "classes"}, pairs)
	p.line("%s\n%s", head, rule)
	row := func(mode, classes string, skip []string) {
		s := "| " + mode + " | " + classes + " |"
		for _, pr := range pairs {
			s += " " + num(p.mean(mode, pr, skip)) + " |"
		}
		p.line("%s", s)
	}
	for _, m := range peer.Modes {
		row(m, "all", nil)
		if m == peer.Modes[peer.Count] {
			row(m, "without shortcuts", shortcut)
		}
	}
}

func (p *page) indexing() {
	p.line("\n## Indexing, size and memory\n")
	p.line("| engine | index s | index MB | segments | memory indexing MB | memory searching MB |")
	p.line("|---|--:|--:|--:|--:|--:|")
	for _, e := range p.names {
		ix := p.fastest(e)
		secs := fmt.Sprintf("%.2f", ix.Seconds)
		if e == "bleve1" {
			secs = fmt.Sprintf("+%.2f", ix.Merge)
		}
		s := p.runs[e].Search[0]
		for _, o := range p.runs[e].Search {
			s.RSS = max(s.RSS, o.RSS)
		}
		p.line("| %s | %s | %.2f | %d | %d | %d |", e, secs, float64(ix.Bytes)/1e6, s.Segments, ix.RSS/1024, s.RSS/1024)
	}
	if p.has("bleve") && p.has("weft") {
		bl, we := p.fastest("bleve"), p.fastest("weft")
		p.line("\nIndexing time, bleve/weft: %s. Size, weft/bleve: %s.", num(bl.Seconds/we.Seconds), num(float64(we.Bytes)/float64(bl.Bytes)))
	}
}

func (p *page) fastest(engine string) peer.IndexResult {
	return slices.MinFunc(p.runs[engine].Index, func(a, b peer.IndexResult) int {
		if a.Seconds+a.Merge < b.Seconds+b.Merge {
			return -1
		}
		return 1
	})
}

func (p *page) times() {
	p.line("\n## Times\n")
	p.line("µs a query: mean over the class in the best pass, in brackets the slowest pass over the best.\n")
	first := append([]string{"class", "n", "mode"}, p.names...)
	head, rule := header(first, p.pairs())
	p.line("%s\n%s", head, rule)
	for _, c := range p.classes {
		for _, m := range peer.Modes {
			s := fmt.Sprintf("| %s | %d | %s |", c, p.size[c], m)
			for _, e := range p.names {
				k := cell{c, m, e}
				s += fmt.Sprintf(" %s (%.1f) |", num(p.best[k]), p.worst[k]/p.best[k])
			}
			for _, pr := range p.pairs() {
				s += " " + num(p.ratio(c, m, pr)) + " |"
			}
			p.line("%s", s)
		}
	}
}

// verdicts holds the measurements against the aims of the project.
func (p *page) verdicts(counts countAgreement, lists listAgreement) []Verdict {
	if !p.has("bleve") || !p.has("weft") {
		return nil
	}
	pair := [2]string{"bleve", "weft"}
	slowest, at := math.Inf(1), ""
	for _, c := range p.classes {
		if r := p.ratio(c, peer.Modes[peer.Top10], pair); r < slowest {
			slowest, at = r, c
		}
	}
	least := func(what string, aim, got float64, more string) Verdict {
		return Verdict{what, fmt.Sprintf("≥ %g", aim), num(got) + more, got >= aim}
	}
	bl, we := p.fastest("bleve"), p.fastest("weft")
	size := float64(we.Bytes) / float64(bl.Bytes)
	return []Verdict{
		least("top 10, times bleve's speed, mean", 8, p.mean("top10", pair, nil), ""),
		least("top 10, times bleve's speed, worst class", 3, slowest, " ("+at+")"),
		least("exact counts without shortcut classes, mean", 5, p.mean("count", pair, shortcut), ""),
		least("top 10 with exact count, mean", 5, p.mean("top10+count", pair, nil), ""),
		least("indexing, times bleve's speed", 3, bl.Seconds/we.Seconds, ""),
		{"size, share of bleve's", "≤ 0.5", num(size), size <= 0.5},
		{"exact counts that differ, of " + fmt.Sprint(counts.queries), "0", fmt.Sprint(counts.bad), counts.bad == 0},
		{"places in top 10 not explained, of " + fmt.Sprint(lists.places()), "0", fmt.Sprint(lists.unexplained()), lists.unexplained() == 0},
	}
}

func num(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
