// Command weftpeer is weft in the engine comparison.
//
//	weftpeer index DOCS DIR RESULT
//	weftpeer search DIR QUERIES RESULT PASS_MS
//
// Documents go through a shard as they do in a server: log, memtable, flush, merge. Searches run on a snapshot, like
// those of a server but for HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vfs"

	"github.com/weft-search/weft/bench/internal/peer"
)

const (
	field         = "body"
	bodyID        = 1 // of the field in the schema below
	tokenizer     = "alnum"
	batch         = 1000
	memtableBytes = 256 << 20 // Lucene and tantivy have as much
)

func main() {
	if err := peer.Main("weft", engine{}, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "weftpeer:", err)
		os.Exit(1)
	}
}

type engine struct{}

// unsyncedLog is the file system of the operating system, but for the log, which is not waited for: the records of a
// batch are handed to the system, as by the other engines, which make documents safe only when they commit. Segments and
// the manifest are synced.
type unsyncedLog struct{ vfs.FS }

// Append opens a file of the log: nothing else is appended to.
func (u unsyncedLog) Append(path string) (vfs.File, error) {
	f, err := u.FS.Append(path)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func config(dir string) shard.Config {
	return shard.Config{
		Dir: dir,
		FS:  unsyncedLog{vfs.OS},
		Schema: &schema.Schema{
			Name: "bench",
			Fields: []schema.Field{
				{Name: "id", Type: schema.Text, Tokenizer: "raw", Primary: true, Fast: true, Indexed: true, K1: schema.DefaultK1, B: schema.DefaultB},
				bodyID: {
					Name: field, Type: schema.Text, Tokenizer: tokenizer, Indexed: true,
					Positions: schema.TokenPositions, K1: schema.DefaultK1, B: schema.DefaultB,
				},
			},
			DefaultFields: []string{field},
			Generation:    1,
		},
		MemtableBytes:    memtableBytes,
		MergeBytesPerSec: -1,
		NoBackground:     true, // one thread does it all, in order
	}
}

// Index applies batches of 1,000, then flushes and merges to one segment.
func (engine) Index(docs []peer.Doc, dir string) (r peer.IndexResult, err error) {
	ctx := context.Background()
	s, err := shard.Open(ctx, config(dir))
	if err != nil {
		return r, fmt.Errorf("making the shard: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	ops := make([]shard.Op, 0, batch)
	apply := func() error {
		results, err := s.Apply(ctx, ops)
		if err != nil {
			return fmt.Errorf("applying a batch: %w", err)
		}
		for i, r := range results {
			if r.Err != nil {
				return fmt.Errorf("adding %s: %w", ops[i].Doc.Key, r.Err)
			}
		}
		ops = ops[:0]
		return nil
	}
	for _, d := range docs {
		ops = append(ops, shard.Op{Doc: &schema.Document{
			Key:    d.ID,
			Fields: []schema.Values{{Field: bodyID, Text: []string{d.Body}}},
		}})
		if len(ops) < batch {
			continue
		}
		err := apply()
		if errors.Is(err, shard.ErrOverloaded) { // the memtable is full
			if err = s.Flush(ctx); err == nil {
				err = apply()
			}
		}
		if err != nil {
			return r, err
		}
	}
	if err := apply(); err != nil {
		return r, err
	}
	if err := s.Merge(ctx, 1); err != nil {
		return r, fmt.Errorf("merging: %w", err)
	}
	r.Segments = s.Stats().Segments
	return r, nil
}

type searcher struct {
	shard   *shard.Shard
	snap    *shard.Snapshot
	leaves  []exec.Leaf
	schema  *schema.Schema
	words   *text.Analyzer
	queries []query.Node
}

// Open opens the shard and takes a snapshot.
func (engine) Open(dir string, queries []peer.Query) (peer.Searcher, error) {
	words, err := text.Lookup(tokenizer)
	if err != nil {
		return nil, err
	}
	sh, err := shard.Open(context.Background(), config(dir))
	if err != nil {
		return nil, err
	}
	snap := sh.Snapshot()
	s := &searcher{shard: sh, snap: snap, leaves: snap.Leaves(), schema: snap.Schema(), words: words}
	for _, q := range queries {
		s.queries = append(s.queries, build(q))
	}
	return s, nil
}

func build(q peer.Query) query.Node {
	switch q.Op {
	case "prefix":
		return &query.Prefix{Field: field, Text: q.Words[0]}
	case "phrase":
		p := &query.Phrase{Field: field, Text: q.Words[0]}
		for _, w := range q.Words[1:] {
			p.Text += " " + w
		}
		return p
	}
	terms := func(words []string) (out []query.Node) {
		for _, w := range words {
			out = append(out, &query.Term{Field: field, Text: w})
		}
		return out
	}
	must, should, not := q.Clauses()
	if q.Op == "term" {
		return terms(should)[0]
	}
	return &query.Bool{Must: terms(must), Should: terms(should), MustNot: terms(not)}
}

func (s *searcher) do(q int, req exec.Request) (*exec.Result, error) {
	req.Query = s.queries[q]
	return exec.Search(context.Background(), s.leaves, s.schema, func(int) *text.Analyzer { return s.words }, req)
}

// Search runs a query; the keys of hits are read too.
func (s *searcher) Search(q int, m peer.Mode) (uint64, error) {
	req := exec.Request{Limit: 10}
	switch m {
	case peer.Top10:
		req.Total = exec.TotalNone
	case peer.Count:
		req.Limit = 0
	}
	r, err := s.do(q, req)
	if err != nil {
		return 0, err
	}
	if m == peer.Top10 {
		return uint64(len(r.Hits)), nil
	}
	return r.Total, nil
}

// Hits returns the ten best.
func (s *searcher) Hits(q int) ([]peer.Hit, error) {
	r, err := s.do(q, exec.Request{Limit: 10, Total: exec.TotalNone})
	if err != nil {
		return nil, err
	}
	hits := []peer.Hit{}
	for _, h := range r.Hits {
		hits = append(hits, peer.Hit{ID: h.Key, Score: float64(h.Score)})
	}
	return hits, nil
}

func (s *searcher) Segments() int { return s.snap.Segments() }

func (s *searcher) Close() error {
	s.snap.Release()
	return s.shard.Close(context.Background())
}

// Version is the commit that the program was built from.
func (s *searcher) Version() string {
	commit, dirty := "unknown", ""
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, b := range bi.Settings {
			switch {
			case b.Key == "vcs.revision":
				commit = b.Value[:min(12, len(b.Value))]
			case b.Key == "vcs.modified" && b.Value == "true":
				dirty = " with changes"
			}
		}
	}
	return "at commit " + commit + dirty
}
