// Command blevepeer is bleve in the engine comparison, for checkouts without the folder of peers.
//
//	blevepeer index DOCS DIR RESULT
//	blevepeer search DIR QUERIES RESULT PASS_MS
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"
	"unicode"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/custom"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/character"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/registry"
	"github.com/blevesearch/bleve/v2/search/query"
	index "github.com/blevesearch/bleve_index_api"

	"github.com/weft-search/weft/bench/internal/peer"
)

const (
	field    = "body"
	analyzer = "words"
	batch    = 1000
	quiet    = time.Second      // without a change for so long, persister and merger are idle
	patience = 20 * time.Second // without a change for so long they are stuck
)

func main() {
	if err := peer.Main("bleve", engine{}, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "blevepeer:", err)
		os.Exit(1)
	}
}

type engine struct{}

func newMapping() (mapping.IndexMapping, error) {
	wordChar := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	err := registry.RegisterTokenizer(analyzer, func(map[string]any, *registry.Cache) (analysis.Tokenizer, error) {
		return character.NewCharacterTokenizer(wordChar), nil
	})
	if err != nil {
		return nil, err
	}
	m := bleve.NewIndexMapping()
	err = m.AddCustomAnalyzer(analyzer, map[string]any{
		"type": custom.Name, "tokenizer": analyzer, "token_filters": []string{lowercase.Name},
	})
	if err != nil {
		return nil, err
	}
	text := bleve.NewTextFieldMapping()
	text.Analyzer = analyzer
	text.IncludeTermVectors = true // where positions are kept
	text.Store, text.IncludeInAll, text.DocValues = false, false, false
	doc := bleve.NewDocumentStaticMapping()
	doc.AddFieldMappingsAt(field, text)
	m.DefaultMapping = doc
	m.DefaultAnalyzer = analyzer
	m.ScoringModel = index.BM25Scoring
	return m, nil
}

// Index adds batches of 1,000 without waiting for the disk, then waits until bleve's own merging has come to rest.
func (engine) Index(docs []peer.Doc, dir string) (r peer.IndexResult, err error) {
	start := time.Now()
	m, err := newMapping()
	if err != nil {
		return r, fmt.Errorf("making the mapping: %w", err)
	}
	ix, err := bleve.NewUsing(dir, m, scorch.Name, bleve.Config.DefaultKVStore, map[string]any{"unsafe_batch": true})
	if err != nil {
		return r, fmt.Errorf("making the index: %w", err)
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	b := ix.NewBatch()
	for i, d := range docs {
		if err := b.Index(d.ID, map[string]any{field: d.Body}); err != nil {
			return r, fmt.Errorf("adding %s: %w", d.ID, err)
		}
		if b.Size() < batch && i < len(docs)-1 {
			continue
		}
		if err := ix.Batch(b); err != nil {
			return r, fmt.Errorf("applying a batch: %w", err)
		}
		b.Reset()
	}
	rest, err := settle(ix)
	if err != nil {
		return r, err
	}
	r.Seconds = rest.Sub(start).Seconds()
	r.Segments, err = segments(ix)
	return r, err
}

// settle waits until persister and merger have nothing to do and returns when they finished.
func settle(ix bleve.Index) (time.Time, error) {
	adv, err := ix.Advanced()
	if err != nil {
		return time.Time{}, fmt.Errorf("reaching the index: %w", err)
	}
	s := adv.(*scorch.Scorch)
	var last [5]uint64
	since := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		stats := s.StatsMap()
		var now [5]uint64
		for i, k := range []string{"CurRootEpoch", "LastPersistedEpoch", "LastMergedEpoch", "TotFileMergePlanTasks", "TotFileMergePlanTasksDone"} {
			now[i], _ = stats[k].(uint64)
		}
		if now != last {
			last, since = now, time.Now()
		}
		idle := now[0] == now[1] && now[1] == now[2] && now[3] == now[4]
		if idle && time.Since(since) > quiet {
			break
		}
		if time.Since(since) > patience {
			return time.Time{}, fmt.Errorf("waiting for bleve to come to rest: no change for %v, epochs and tasks %v", patience, now)
		}
	}
	return since, nil
}

func segments(ix bleve.Index) (n int, err error) {
	adv, err := ix.Advanced()
	if err != nil {
		return 0, fmt.Errorf("reaching the index: %w", err)
	}
	r, err := adv.Reader()
	if err != nil {
		return 0, fmt.Errorf("reading the index: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	snap, ok := r.(*scorch.IndexSnapshot)
	if !ok {
		return 0, fmt.Errorf("counting segments of a %T", r)
	}
	return len(snap.Segments()), nil
}

type searcher struct {
	ix      bleve.Index
	queries []query.Query
	n       int
}

// Open opens the index read-only.
func (engine) Open(dir string, queries []peer.Query) (peer.Searcher, error) {
	if _, err := newMapping(); err != nil { // registers the tokenizer that the index names
		return nil, err
	}
	ix, err := bleve.OpenUsing(dir, map[string]any{"read_only": true})
	if err != nil {
		return nil, err
	}
	s := &searcher{ix: ix}
	for _, q := range queries {
		s.queries = append(s.queries, build(q))
	}
	if s.n, err = segments(ix); err != nil {
		return nil, errors.Join(err, ix.Close())
	}
	return s, nil
}

func build(q peer.Query) query.Query {
	switch q.Op {
	case "prefix":
		p := bleve.NewPrefixQuery(q.Words[0])
		p.SetField(field)
		return p
	case "phrase":
		return query.NewPhraseQuery(q.Words, field)
	}
	terms := func(words []string) (out []query.Query) {
		for _, w := range words {
			t := bleve.NewTermQuery(w)
			t.SetField(field)
			out = append(out, t)
		}
		return out
	}
	must, should, not := q.Clauses()
	switch {
	case q.Op == "term":
		return terms(should)[0]
	case q.Op == "and":
		return bleve.NewConjunctionQuery(terms(must)...)
	case q.Op == "or":
		return bleve.NewDisjunctionQuery(terms(should)...)
	}
	b := bleve.NewBooleanQuery()
	// an empty list would be a clause that matches nothing
	for _, t := range terms(must) {
		b.AddMust(t)
	}
	for _, t := range terms(should) {
		b.AddShould(t)
	}
	for _, t := range terms(not) {
		b.AddMustNot(t)
	}
	return b
}

func (s *searcher) do(q int, m peer.Mode) (*bleve.SearchResult, error) {
	size := 10
	if m == peer.Count {
		size = 0
	}
	req := bleve.NewSearchRequestOptions(s.queries[q], size, 0, false)
	if m == peer.Count {
		req.Score = "none"
	}
	return s.ix.Search(req)
}

// Search runs a query. bleve has no ten best without the total.
func (s *searcher) Search(q int, m peer.Mode) (uint64, error) {
	r, err := s.do(q, m)
	if err != nil {
		return 0, err
	}
	return r.Total, nil
}

// Hits returns the ten best.
func (s *searcher) Hits(q int) ([]peer.Hit, error) {
	r, err := s.do(q, peer.Top10)
	if err != nil {
		return nil, err
	}
	hits := []peer.Hit{}
	for _, h := range r.Hits {
		hits = append(hits, peer.Hit{ID: h.ID, Score: h.Score})
	}
	return hits, nil
}

func (s *searcher) Segments() int { return s.n }
func (s *searcher) Close() error  { return s.ix.Close() }

func (s *searcher) Version() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, d := range bi.Deps {
			if d.Path == "github.com/blevesearch/bleve/v2" {
				return d.Version
			}
		}
	}
	return "unknown"
}
