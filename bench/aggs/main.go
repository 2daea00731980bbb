// Command aggs measures aggregations of weft beside bleve's facets: the same generated documents and questions, both engines in
// this process with one thread, in turns.
//
//	go run ./aggs [-docs 1000000] [-out FOLDER] [-strict]
//
// weft is asked through its HTTP handler, request parsing and JSON reply included; bleve through its Go calls. Counts of both
// are compared before anything is measured. What bleve has no facet for is shown without a ratio.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// aim is the least ratio of bleve's time to weft's, as a geometric mean.
const aim = 5

// question is one row of the table.
type question struct {
	name string
	word string // of the documents that are aggregated; empty: all
	aggs string // as weft's parameter
	// facet makes the same for bleve; nil when it has none.
	facet *facet
}

// facet is a bleve facet: terms with a size, or ranges over numbers or dates.
type facet struct {
	field string
	size  int
	nums  []numRange
	dates []dateRange
}

type numRange struct {
	name   string
	lo, hi *float64
}

type dateRange struct {
	name   string
	lo, hi time.Time
}

func f64(v float64) *float64 { return &v }

// bars are ranges of equal width, which bleve can do, so that a histogram has something to be compared with.
func bars(n int, width float64) (out []numRange) {
	for i := range n {
		out = append(out, numRange{fmt.Sprint(i), f64(float64(i) * width), f64(float64(i+1) * width)})
	}
	return out
}

func months(n int) (out []dateRange) {
	for i := range n {
		lo := epoch.AddDate(0, i, 0)
		out = append(out, dateRange{lo.Format("2006-01"), lo, lo.AddDate(0, 1, 0)})
	}
	return out
}

func questions() []question {
	ranges := []numRange{{"low", nil, f64(10)}, {"mid", f64(10), f64(50)}, {"high", f64(50), nil}}
	qs := []question{
		{"terms, 200 values", "", "a:terms(country,10)", &facet{field: "country", size: 10}},
		{"terms, 20,000 values", "", "a:terms(sku,10)", &facet{field: "sku", size: 10}},
		{"3 ranges of a number", "", "a:range(price,..10,10..50,50..)", &facet{field: "price", nums: ranges}},
		{"histogram, 10 bars", "", "a:histogram(stock,100)", &facet{field: "stock", nums: bars(10, 100)}},
		{"date histogram, 60 months", "", "a:date_histogram(created,1M)", &facet{field: "created", dates: months(60)}},
	}
	n := len(qs)
	for _, w := range []string{"half", "tenth", "hundredth"} {
		for _, q := range qs[:n] {
			q.name, q.word = q.name+", documents with \""+w+"\"", w
			qs = append(qs, q)
		}
	}
	return append(qs,
		question{"stats", "", "a:stats(price)", nil},
		question{"percentiles", "", "a:percentiles(price,50,90,99)", nil},
		question{"cardinality, 20,000 values", "", "a:cardinality(sku)", nil},
	)
}

// engine answers questions. counts are those of the buckets in a fixed order, without empty ones.
type engine interface {
	add(docs []doc) error
	settle() error
	counts(q question) ([]int, error)
	run(q question) error
	close() error
}

func main() {
	docs := flag.Int("docs", 1_000_000, "documents")
	out := flag.String("out", "", "folder for the indexes; a temporary one that is removed when empty")
	strict := flag.Bool("strict", false, "a missed aim is an error")
	least := flag.Duration("time", 300*time.Millisecond, "least time for each question, engine and round")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	mean, err := compare(*docs, *out, *least)
	if err == nil && *strict && mean < aim {
		err = fmt.Errorf("the mean ratio is %.1f, the aim %d", mean, aim)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "aggs:", err)
		os.Exit(1)
	}
}

func compare(n int, out string, least time.Duration) (mean float64, err error) {
	if out == "" {
		if out, err = os.MkdirTemp("", "aggs"); err != nil {
			return 0, fmt.Errorf("making a folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	}
	w, err := newWeft(filepath.Join(out, "weft"))
	if err != nil {
		return 0, fmt.Errorf("starting weft: %w", err)
	}
	defer func() { err = errors.Join(err, w.close()) }()
	b, err := newBleve(filepath.Join(out, "bleve"))
	if err != nil {
		return 0, fmt.Errorf("starting bleve: %w", err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	engines := []engine{w, b}
	names := []string{"weft", "bleve"}
	for i, e := range engines {
		start := time.Now()
		if err := load(e, n); err != nil {
			return 0, fmt.Errorf("loading %s: %w", names[i], err)
		}
		fmt.Printf("%s: %d documents in %.1f s\n", names[i], n, time.Since(start).Seconds())
	}
	fmt.Printf("\n| question, %d documents | weft ms | bleve ms | ratio |\n|---|---:|---:|---:|\n", n)
	var logs []float64
	for _, q := range questions() {
		if q.facet != nil {
			if err := same(q, w, b); err != nil {
				return 0, err
			}
		}
		times := [2]float64{math.Inf(1), math.Inf(1)}
		for range 5 {
			for i, e := range engines {
				if i == 1 && q.facet == nil {
					continue
				}
				t, err := measure(e, q, least)
				if err != nil {
					return 0, fmt.Errorf("%s: %s: %w", q.name, names[i], err)
				}
				times[i] = min(times[i], t)
			}
		}
		if q.facet == nil {
			fmt.Printf("| %s | %.3f | – | – |\n", q.name, times[0])
			continue
		}
		logs = append(logs, math.Log(times[1]/times[0]))
		fmt.Printf("| %s | %.3f | %.3f | %.1f |\n", q.name, times[0], times[1], times[1]/times[0])
	}
	sum := 0.0
	for _, l := range logs {
		sum += l
	}
	mean = math.Exp(sum / float64(len(logs)))
	fmt.Printf("\nGeometric mean of bleve's time over weft's: %.1f (worst %.1f)\n", mean, math.Exp(slices.Min(logs)))
	return mean, nil
}

func load(e engine, n int) error {
	g := newGenerator(1)
	for n > 0 {
		batch := make([]doc, min(n, 10_000))
		for i := range batch {
			batch[i] = g.next()
		}
		if err := e.add(batch); err != nil {
			return err
		}
		n -= len(batch)
	}
	return e.settle()
}

// same fails when the engines disagree.
func same(q question, w, b engine) error {
	x, err := w.counts(q)
	if err != nil {
		return fmt.Errorf("%s: weft: %w", q.name, err)
	}
	y, err := b.counts(q)
	if err != nil {
		return fmt.Errorf("%s: bleve: %w", q.name, err)
	}
	slices.Sort(x)
	slices.Sort(y)
	if !slices.Equal(x, y) {
		return fmt.Errorf("%s: weft counts %v, bleve %v", q.name, x, y)
	}
	return nil
}

// measure returns the least time of one call in milliseconds, calling for at least the given time.
func measure(e engine, q question, least time.Duration) (float64, error) {
	best := math.Inf(1)
	for start := time.Now(); time.Since(start) < least; {
		at := time.Now()
		if err := e.run(q); err != nil {
			return 0, err
		}
		best = min(best, float64(time.Since(at).Nanoseconds())/1e6)
	}
	return best, nil
}

var background = context.Background()
