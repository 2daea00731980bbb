package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Aims for 100,000 vectors of 128 dimensions in clusters.
const (
	aimTimes          = 20   // the graph, times the exact scan, where its recall is at least
	aimRecall         = 0.99 // without a filter
	aimFilteredRecall = 0.95
)

// floors are the recalls at which engines are compared.
var floors = []float64{0.9, 0.95, 0.99, 0.999}

// result is what a run found.
type result struct {
	o             options
	ways          []*way
	sections      []section
	peers         []*peer
	absent        string // why there is none
	before, after string // load of the machine; empty where it is not known
}

// fastest is the fastest graph search of an engine for 32-bit floats that reaches a recall; nil if none does.
func (r *result) fastest(engine string, floor float64) *way {
	var best *way
	for _, w := range r.ways {
		if w.engine == engine && w.name == "graph" && w.records == "f32" && w.share == 1 && w.recall >= floor && (best == nil || w.rate() > best.rate()) {
			best = w
		}
	}
	return best
}

func (w *way) candidates() string {
	switch {
	case w.name != "graph":
		return ""
	case w.ef == 0:
		return "default"
	}
	return strconv.Itoa(w.ef)
}

func report(out io.Writer, r result) {
	p := func(f string, a ...any) { fmt.Fprintf(out, f, a...) }
	o := r.o
	p("%s, %d cores, %s; one thread for each engine; %d rounds of passes of %v or more, medians.\n", processor(), runtime.NumCPU(), runtime.Version(), o.rounds, o.pass)
	if r.before != "" && r.after != "" {
		p("Load of the machine before the run %s, after it %s: other work slows every engine.\n", r.before, r.after)
	}
	p("%d vectors of %d dimensions, %d clusters, spread %v, seed %d; %d queries, k = %d, cosine.\n", o.n, o.dim, o.clusters, o.spread, o.seed, o.queries, o.k)
	for _, s := range r.sections {
		p("weft, %s: %.1f MB with the graph, built in %.1f s.\n", s.element, float64(s.size)/1e6, s.built)
	}
	for _, e := range r.peers {
		p("%s: graph built in %.1f s of processor time.\n", e.Engine, e.Built)
	}
	if len(r.peers) == 0 {
		p("The other engine was left out: %s.\n", r.absent)
	}

	exact := r.ways[0]
	p("\n| engine | vectors | way | candidates | recall@%d | queries/s | times weft's exact scan |\n|---|---|---|--:|--:|--:|--:|\n", o.k)
	for _, w := range r.ways {
		if w.share == 1 {
			p("| %s | %s | %s | %s | %.4f | %.0f | %.1f |\n", w.engine, w.records, w.name, w.candidates(), w.recall, w.rate(), w.rate()/exact.rate())
		}
	}
	for _, e := range r.peers {
		p("\nThe fastest graph search of f32 that reaches a recall:\n\n| recall@%d ≥ | weft: candidates | queries/s | %s: candidates | queries/s | weft ÷ peer |\n|--:|--:|--:|--:|--:|--:|\n", o.k, e.Engine)
		for _, floor := range floors {
			ours, theirs := r.fastest("weft", floor), r.fastest(e.Engine, floor)
			p("| %g |", floor)
			for _, w := range []*way{ours, theirs} {
				if w == nil {
					p(" none | |")
				} else {
					p(" %s | %.0f |", w.candidates(), w.rate())
				}
			}
			if ours != nil && theirs != nil {
				p(" %.2f |\n", ours.rate()/theirs.rate())
			} else {
				p(" |\n")
			}
		}
	}
	p("\nUnder a filter that accepts documents at random; f32, default candidates:\n\n| accepted | way | recall@%d | queries/s |\n|--:|---|--:|--:|\n", o.k)
	least := 1.0
	for _, w := range r.ways {
		if w.share < 1 {
			p("| %.0f %% | %s | %.4f | %.0f |\n", 100*w.share, w.name, w.recall, w.rate())
			least = min(least, w.recall)
		}
	}
	p("\n| what | aim | measured | |\n|---|---|---|---|\n")
	for _, w := range r.ways {
		if w.engine == "weft" && w.records == "f32" && w.name == "graph" && w.ef == 0 {
			times := w.rate() / exact.rate()
			p("| graph with its default, times the exact scan, at recall ≥ %v | ≥ %d | %.1f at %.4f | %s |\n", aimRecall, aimTimes, times, w.recall, verdict(times >= aimTimes && w.recall >= aimRecall))
		}
	}
	if w := r.fastest("weft", aimRecall); w != nil {
		times := w.rate() / exact.rate()
		p("| the fastest with recall ≥ %v (candidates: %s), times the exact scan | ≥ %d | %.1f at %.4f | %s |\n", aimRecall, w.candidates(), aimTimes, times, w.recall, verdict(times >= aimTimes))
	}
	p("| least recall under a filter, any way | ≥ %v | %.4f | %s |\n", aimFilteredRecall, least, verdict(least >= aimFilteredRecall))
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "not met"
}

// load is the number of runnable tasks over the last minute; empty where the system does not tell.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// processor is the processor's name, where the system tells it.
func processor() string {
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(b)) {
			if name, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return runtime.GOARCH
}
