package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/report"
)

// engine is a program that is ready to run. from names the engine whose finished index it starts from, if it does not index itself.
type engine struct {
	name    string
	command []string
	from    string
}

// build builds every program, weft's first. An engine whose tools are not there is left out with a note.
func (c *comparison) build(ctx context.Context) ([]engine, error) {
	var out []engine
	want := func(name string) bool {
		return c.engines == "" || slices.Contains(strings.Split(c.engines, ","), name)
	}
	tools := func(engine string, names ...string) bool {
		for _, n := range names {
			if _, err := exec.LookPath(n); err != nil {
				c.note("%s is not here: its program needs %s.", engine, n)
				return false
			}
		}
		return true
	}
	goBuild := func(dir, pkg, bin string) (string, error) {
		bin = c.path("bin", bin)
		return bin, c.command(ctx, dir, nil, "go", "build", "-buildvcs=auto", "-o", bin, pkg)
	}
	bench := filepath.Join(c.root, "bench")
	if want("weft") {
		c.say("build weft")
		bin, err := goBuild(bench, "./weftpeer", "weftpeer")
		if err != nil {
			return nil, err
		}
		out = append(out, engine{name: "weft", command: []string{bin}})
	}
	if c.peers != "" && want("lucene") && tools("Lucene", "mvn", "java") {
		c.say("build lucene")
		jars := c.path("lucene", "jars")
		err := c.command(ctx, filepath.Join(c.peers, "lucene"), nil, "mvn", "-q", "-B", "-Dout="+c.path("lucene"), "compile",
			"dependency:copy-dependencies", "-DoutputDirectory="+jars)
		if err != nil {
			return nil, err
		}
		out = append(out, engine{name: "lucene", command: []string{
			"java", "-XX:+UseSerialGC", "-Xmx1g",
			"-cp", c.path("lucene", "classes") + string(filepath.ListSeparator) + filepath.Join(jars, "*"), "PeerLucene",
		}})
	}
	if c.peers != "" && want("tantivy") && tools("tantivy", "cargo") {
		c.say("build tantivy")
		err := c.command(ctx, filepath.Join(c.peers, "tantivy"), []string{"CARGO_TARGET_DIR=" + c.path("cargo")}, "cargo", "build", "--release", "--locked", "-q")
		if err != nil {
			return nil, err
		}
		out = append(out, engine{name: "tantivy", command: []string{c.path("cargo", "release", "peer-tantivy")}})
	}
	if want("bleve") || want("bleve1") {
		c.say("build bleve")
		dir, pkg := bench, "./blevepeer"
		if c.peers != "" {
			dir, pkg = filepath.Join(c.peers, "bleve"), "."
		}
		bin, err := goBuild(dir, pkg, "blevepeer")
		if err != nil {
			return nil, err
		}
		if want("bleve") {
			out = append(out, engine{name: "bleve", command: []string{bin}})
		}
		if c.peers != "" && want("bleve") && want("bleve1") { // only that program can merge by force
			out = append(out, engine{name: "bleve1", command: []string{bin}, from: "bleve"})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no engine of %q is here", c.engines)
	}
	return out, nil
}

// command runs a program; its output is part of the error.
func (c *comparison) command(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return nil
}

func (c *comparison) run1(ctx context.Context, e engine, args ...string) error {
	return c.command(ctx, "", nil, slices.Concat(e.command, args)...)
}

func (c *comparison) indexDir(e string, w work) string { return c.path("ix", e+"-"+w.corpus) }

func (c *comparison) index(ctx context.Context, e engine, w work, round int, run *report.Run) error {
	dir := c.indexDir(e.name, w)
	result := c.path("num", fmt.Sprintf("%s.%s.index%d.json", w.corpus, e.name, round))
	if c.reuse {
		r, err := readResult[peer.IndexResult](result)
		if _, serr := os.Stat(dir); err == nil && serr == nil {
			run.Index = append(run.Index, r)
			return nil
		}
	}
	c.say("round %d: %s indexes", round, e.name)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the old index: %w", err)
	}
	var err error
	if e.from != "" {
		if err := os.CopyFS(dir, os.DirFS(c.indexDir(e.from, w))); err != nil {
			return fmt.Errorf("copying the index of %s: %w", e.from, err)
		}
		err = c.run1(ctx, e, "merge", dir, result)
	} else {
		err = c.run1(ctx, e, "index", w.docs, dir, result)
	}
	if err != nil {
		return err
	}
	r, err := readResult[peer.IndexResult](result)
	run.Index = append(run.Index, r)
	return err
}

func (c *comparison) search(ctx context.Context, e engine, w work, round int, run *report.Run) error {
	c.say("round %d: %s searches", round, e.name)
	result := c.path("num", fmt.Sprintf("%s.%s.search%d.json", w.corpus, e.name, round))
	if err := c.run1(ctx, e, "search", c.indexDir(e.name, w), w.queries, result, fmt.Sprint(c.passMS)); err != nil {
		return err
	}
	r, err := readResult[peer.SearchResult](result)
	run.Search = append(run.Search, r)
	return err
}

func readResult[T any](path string) (r T, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("reading a result: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// load is the number of runnable tasks over the last minute; empty where the system does not tell.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Fields(string(b))[0]
}

func (c *comparison) facts(before, after string) []string {
	cpu := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(b)) {
			if name, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(v)
				break
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		c.note("The processor's name could not be read: %v.", err)
	}
	out := []string{fmt.Sprintf("%s, %d cores, %s; one thread for each engine; %d rounds, in each two passes to warm up and five measured, of %g ms or more for a class and mode.",
		cpu, runtime.NumCPU(), runtime.Version(), c.rounds, c.passMS)}
	if before != "" && after != "" {
		out = append(out, fmt.Sprintf("Load of the machine before the runs %s, after them %s: other work slows every engine.", before, after))
	}
	return out
}
