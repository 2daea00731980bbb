package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weft-search/weft/bench/internal/peer"
	"github.com/weft-search/weft/bench/internal/workload"
)

// seed of the queries that this program makes itself.
const seed = 20261129

// work names the files of a workload.
type work struct{ corpus, docs, queries string }

// workload finds or makes documents and queries.
func (c *comparison) workload(ctx context.Context) (work, error) {
	if c.docs != "" {
		w := work{corpus: "given", docs: c.docs, queries: c.queries}
		if w.queries != "" {
			return w, nil
		}
		docs, err := peer.ReadDocs(w.docs)
		if err != nil {
			return w, err
		}
		w.queries = c.path("data", "given.queries.tsv")
		return w, c.makeQueries(w, docs)
	}
	w := work{corpus: "debian", docs: c.path("data", "debian.docs.ndjson"), queries: c.path("data", "debian.queries.tsv")}
	if c.peers != "" && filepath.Base(c.data) == "data" {
		python, err := exec.LookPath("python3")
		_, serr := os.Stat(filepath.Join(c.data, "debian-packages"))
		if err == nil && serr == nil {
			c.say("documents and queries: debian, by the maker of the peers")
			return w, c.command(ctx, "", nil, python, filepath.Join(c.peers, "make_queries.py"), filepath.Dir(c.data), "debian", c.path("data"))
		}
	}
	w.corpus = "debian-own"
	docs, err := workload.Packages(filepath.Join(c.data, "debian-packages"))
	if err != nil {
		c.note("No data sets (set WEFT_SHARED): the documents are the comments of the Go standard library.")
		w.corpus = "godoc"
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return w, fmt.Errorf("finding the standard library: %w", err)
		}
		if docs, err = workload.GoDocs(strings.TrimSpace(string(out))); err != nil {
			return w, fmt.Errorf("no documents (give some with -docs): %w", err)
		}
	}
	w.docs, w.queries = c.path("data", w.corpus+".docs.ndjson"), c.path("data", w.corpus+".queries.tsv")
	if err := peer.WriteDocs(w.docs, docs); err != nil {
		return w, err
	}
	return w, c.makeQueries(w, docs)
}

func (c *comparison) makeQueries(w work, docs []peer.Doc) error {
	c.say("queries for %d documents: %s", len(docs), w.corpus)
	var extra []peer.Query
	game := filepath.Join(c.data, "queries-benchmark-game", "queries.jsonl")
	if _, err := os.Stat(game); err == nil {
		if extra, err = workload.Game(game); err != nil {
			return err
		}
	}
	return peer.WriteQueries(w.queries, workload.Queries(workload.NewOracle(docs), extra, seed))
}
