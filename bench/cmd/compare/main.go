// Command compare puts weft beside bleve, Lucene and tantivy on the same documents and queries and writes a page of
// Markdown. Run it in the folder of the bench module:
//
//	go run ./cmd/compare
//
// The programs of the other engines are in a folder of peers (flag -peers, environment WEFT_PEERS, or shared/peers beside the
// checkout). Without one, bleve alone stands beside weft, by the program of this module. Documents and queries come from
// the maker of that folder, else from the data sets (WEFT_SHARED, or shared/data beside the checkout), else from the
// comments of the Go standard library.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type options struct {
	out, peers, data string
	docs, queries    string
	report           string
	engines          string
	passMS           float64
	rounds           int
	reuse, strict    bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root, err := checkout()
	if err != nil {
		return err
	}
	var o options
	fl := flag.NewFlagSet("compare", flag.ContinueOnError)
	fl.SetOutput(stderr)
	fl.StringVar(&o.out, "out", filepath.Join(os.TempDir(), "peers"), "`folder` for builds, documents, indexes and numbers")
	fl.StringVar(&o.peers, "peers", env("WEFT_PEERS", filepath.Join(root, "..", "shared", "peers")), "`folder` of the other engines' programs")
	fl.StringVar(&o.data, "data", env("WEFT_SHARED", filepath.Join(root, "..", "shared", "data")), "`folder` of the data sets")
	fl.StringVar(&o.docs, "docs", "", "documents to use instead, a `file` of {\"id\",\"body\"} lines")
	fl.StringVar(&o.queries, "queries", "", "queries for -docs, a `file` of number, class, op, words, count lines; made if absent")
	fl.StringVar(&o.report, "report", "", "`file` for the page (default RESULTS-weft.md in -out)")
	fl.StringVar(&o.engines, "engines", "", "comma list of engines to run (default all there are)")
	fl.Float64Var(&o.passMS, "pass-ms", 40, "least milliseconds that a pass spends on a class and mode")
	fl.IntVar(&o.rounds, "rounds", 2, "rounds; in each every engine indexes and searches once")
	fl.BoolVar(&o.reuse, "reuse", false, "use indexes and indexing results of the run before where they are there")
	fl.BoolVar(&o.strict, "strict", false, "fail if an aim is missed")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if fl.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fl.Arg(0))
	}
	if o.rounds < 1 || o.passMS < 0 {
		return fmt.Errorf("rounds %d and pass-ms %g: at least 1 and 0", o.rounds, o.passMS)
	}
	if o.report == "" {
		o.report = filepath.Join(o.out, "RESULTS-weft.md")
	}
	start := time.Now()
	c := &comparison{options: o, root: root, say: func(f string, a ...any) {
		fmt.Fprintf(stderr, "[%3.0f s] %s\n", time.Since(start).Seconds(), fmt.Sprintf(f, a...))
	}}
	for _, d := range []string{"data", "ix", "num", "bin"} {
		if err := os.MkdirAll(filepath.Join(o.out, d), 0o755); err != nil {
			return fmt.Errorf("making the output folder: %w", err)
		}
	}
	in, err := c.run(ctx)
	if err != nil {
		return err
	}
	in.Facts = append(in.Facts, fmt.Sprintf("%s; the whole took %.0f s.", time.Now().UTC().Format(time.DateOnly), time.Since(start).Seconds()))
	f, err := os.Create(o.report)
	if err != nil {
		return fmt.Errorf("creating the page: %w", err)
	}
	verdicts, err := report.Write(io.MultiWriter(f, stdout), in)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("closing the page: %w", cerr)
	}
	if err != nil {
		return err
	}
	c.say("wrote %s", o.report)
	var missed []string
	for _, v := range verdicts {
		if !v.Met {
			missed = append(missed, fmt.Sprintf("%s: %s, aim %s", v.What, v.Measured, v.Aim))
		}
	}
	if o.strict && len(missed) > 0 {
		return fmt.Errorf("aims missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// checkout is the folder of the product's module.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/weft-search/weft/bench\n") {
			return filepath.Dir(dir), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("finding the checkout: run this in the folder of the bench module")
		}
		dir = up
	}
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// comparison is one run of the command.
type comparison struct {
	options
	root  string
	say   func(format string, a ...any)
	notes []string
}

func (c *comparison) path(parts ...string) string {
	return filepath.Join(append([]string{c.out}, parts...)...)
}

// note keeps a sentence for the page and tells it at once.
func (c *comparison) note(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	c.notes = append(c.notes, s)
	c.say("%s", s)
}

func (c *comparison) run(ctx context.Context) (report.Input, error) {
	var in report.Input
	if _, err := os.Stat(filepath.Join(c.peers, "make_queries.py")); err != nil {
		c.note("No folder of peers (set WEFT_PEERS): Lucene and tantivy are not here, and bleve runs by the program of this module.")
		c.peers = ""
	}
	engines, err := c.build(ctx)
	if err != nil {
		return in, err
	}
	work, err := c.workload(ctx)
	if err != nil {
		return in, err
	}
	in.Corpus = work.corpus
	if in.Docs, err = peer.ReadDocs(work.docs); err != nil {
		return in, err
	}
	if in.Queries, err = peer.ReadQueries(work.queries); err != nil {
		return in, err
	}
	before := load()
	in.Runs = make([]report.Run, len(engines))
	for round := 1; round <= c.rounds; round++ {
		for i, e := range engines {
			in.Runs[i].Engine = e.name
			if err := c.index(ctx, e, work, round, &in.Runs[i]); err != nil {
				return in, err
			}
		}
		for i, e := range engines {
			if err := c.search(ctx, e, work, round, &in.Runs[i]); err != nil {
				return in, err
			}
		}
	}
	in.Facts = c.facts(before, load())
	in.Notes = c.notes
	return in, nil
}
