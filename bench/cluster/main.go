// Command cluster measures a cluster beside a single node: real processes on this machine, the same documents, the same client, and
// all of them in turns within one run, so that what else the machine does falls on all alike.
//
//	go run ./cluster [-parts search,bulk,writes] [-corpora go,generated,small] [-docs 1000000] [-rounds 15] [-strict]
//	go run ./cluster -large [-large-docs 10000000] [-large-shards 8]
//
// Searches go over HTTP on connections that are kept, one at a time and then by several clients. Before anything is measured the answers
// of the brokers are held against those of the node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == self {
		os.Exit(runWeft(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// bench is one run of the command.
type bench struct {
	out     string        // folder of the data
	weft    string        // program
	exe     string        // this program
	rest    time.Duration // between single writes of new ids and of the same
	profile string        // folder of profiles; empty: none

	docs, rounds, writes      int
	clients                   []int
	parts, corpora, arms      []string
	classes                   []string
	strict, large             bool
	largeDocs, largeShards    int
	bulkDocs, bulkLines, seen int

	w     io.Writer
	say   func(format string, a ...any)
	marks []mark
}

// mark is something that is aimed at.
type mark struct {
	what     string
	most     float64
	measured float64
	spread   string
}

func (m *mark) met() bool { return m.measured <= m.most }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	b := &bench{w: stdout}
	var clients, parts, corpora, arms, classes string
	fl := flag.NewFlagSet("cluster", flag.ContinueOnError)
	fl.SetOutput(stderr)
	fl.StringVar(&b.out, "out", "", "`folder` for data; a temporary one by default. Its folder data is emptied before and after")
	fl.StringVar(&b.weft, "weft", "", "weft `program`; built from the checkout by default")
	fl.DurationVar(&b.rest, "rest", 0, "`time` between single writes of new ids and of the same again; behind ten minutes members are not compared for these")
	fl.StringVar(&b.profile, "profile", "", "`folder` for CPU profiles of all processes over what is measured")
	fl.IntVar(&b.docs, "docs", 1_000_000, "documents of a generated corpus")
	fl.IntVar(&b.rounds, "rounds", 15, "rounds of searches; in each every query is sent once to every arm")
	fl.IntVar(&b.writes, "writes", 1000, "single documents that are written in a round")
	fl.IntVar(&b.bulkDocs, "bulk-docs", 100_000, "documents of a bulk load")
	fl.IntVar(&b.bulkLines, "bulk-lines", 5_000, "documents in one request of a bulk load")
	fl.StringVar(&clients, "clients", "1,4", "clients that search at once, a comma `list`")
	fl.StringVar(&parts, "parts", "search,bulk,writes", "comma `list` of what to measure")
	fl.StringVar(&corpora, "corpora", "go,generated", "comma `list` of the corpora of searches: go, generated, and small, generated with short texts and without vectors")
	fl.StringVar(&arms, "arms", strings.Join([]string{framed, overGRPC}, ","), "comma `list` of the brokers beside the node")
	fl.StringVar(&classes, "classes", "", "comma `list` of classes of searches; all by default")
	fl.BoolVar(&b.strict, "strict", false, "a missed mark is an error")
	fl.BoolVar(&b.large, "large", false, "instead: many small documents over many shards, their memory and latencies")
	fl.IntVar(&b.largeDocs, "large-docs", 10_000_000, "documents of -large")
	fl.IntVar(&b.largeShards, "large-shards", 8, "shards of -large")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if fl.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fl.Arg(0))
	}
	if b.rounds < 1 || b.docs < 1 || b.writes < 1 || b.bulkDocs < 1 || b.bulkLines < 1 || b.largeDocs < 1 || b.largeShards < 1 {
		return errors.New("numbers of documents, rounds and shards are at least 1")
	}
	for c := range strings.SplitSeq(clients, ",") {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients: %q is not a number from 1", c)
		}
		b.clients = append(b.clients, n)
	}
	b.parts, b.corpora, b.arms = strings.Split(parts, ","), strings.Split(corpora, ","), strings.Split(arms, ",")
	if classes != "" {
		b.classes = strings.Split(classes, ",")
	}
	start := time.Now()
	b.say = func(f string, a ...any) {
		fmt.Fprintf(stderr, "[%3.0f s] %s\n", time.Since(start).Seconds(), fmt.Sprintf(f, a...))
	}
	if b.out == "" {
		if b.out, err = os.MkdirTemp("", "weft-cluster-bench-"); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.out)) }()
	}
	for _, dir := range []string{b.out, b.profile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
	}
	if b.exe, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if b.weft == "" {
		b.weft = filepath.Join(b.out, "weft")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.weft, "./cmd/weft")
		if cmd.Dir, err = checkout(); err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build weft: %w\n%s", err, out)
		}
	}
	b.print("Load of the machine before the run %s. %d cores, %s, %s.\n", load(), runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.print("\nLoad of the machine after the run %s; the whole took %.0f s.\n", load(), time.Since(start).Seconds())
	return b.verdict()
}

// measure makes all parts that were asked for.
func (b *bench) measure(ctx context.Context) error {
	if b.large {
		return b.emptied(func() error { return b.many(ctx) })
	}
	if slices.Contains(b.parts, "search") {
		for _, name := range b.corpora {
			c, err := b.corpus(ctx, name)
			if err != nil {
				return err
			}
			if err := b.emptied(func() error { return b.searches(ctx, c) }); err != nil {
				return err
			}
		}
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"bulk", b.bulks}, {"writes", b.singles}} {
		if slices.Contains(b.parts, part.name) {
			if err := b.emptied(func() error { return part.run(ctx) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// corpus makes the corpus of a name.
func (b *bench) corpus(ctx context.Context, name string) (*corpus, error) {
	docs, err := goDocs(ctx)
	switch {
	case err != nil:
		return nil, err
	case name == "go":
		return docs, nil
	case name == "generated":
		return generated(docs, b.docs, 3, true), nil
	case name == "small":
		return generated(docs, b.docs, 1, false), nil
	}
	return nil, fmt.Errorf("-corpora: there is no %q; there are go, generated and small", name)
}

// emptied runs a part with an empty folder and empties it behind it.
func (b *bench) emptied(part func() error) error {
	if err := b.clear(); err != nil {
		return err
	}
	return errors.Join(part(), b.clear())
}

func (b *bench) print(format string, a ...any) { fmt.Fprintf(b.w, format, a...) }

// verdict prints the marks.
func (b *bench) verdict() error {
	if len(b.marks) == 0 {
		return nil
	}
	b.print("\n| what | mark | measured | |\n|---|--:|--:|---|\n")
	var missed []string
	for _, m := range b.marks {
		met := "met"
		if !m.met() {
			met = "missed"
			missed = append(missed, m.what)
		}
		b.print("| %s | ≤ %.1f | %.2f%s | %s |\n", m.what, m.most, m.measured, m.spread, met)
	}
	if b.strict && len(missed) > 0 {
		return fmt.Errorf("marks missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// load is what the system says of its work over a minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// checkout is the folder of the product's module.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/weft-search/weft/bench\n") {
			return filepath.Dir(dir), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("find the checkout: run this in the folder of the bench module")
		}
		dir = up
	}
}

// quantile is the value that a share of the sorted ones does not exceed.
func quantile[T any](sorted []T, q float64) T {
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// geomean is the geometric mean of positive numbers.
func geomean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(list)))
}

// spread shows the least and the largest of several measurements.
func spread(list []float64) string {
	return fmt.Sprintf(" (%.2f to %.2f)", slices.Min(list), slices.Max(list))
}
