// Package peer is the frame of a program that takes part in the engine comparison: it reads documents and queries, keeps
// the measuring rules, and writes the two results.
//
// The rules. The program runs with one thread (GOMAXPROCS 1, the collector included). Indexing starts with the documents
// in memory and ends when everything is committed and merged. A pass over a class of queries and a mode repeats the
// class until the given time is over; two passes over everything warm up and five are kept. Query objects are made
// before.
package peer

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// Mode is what a search is asked for.
type Mode int

// The modes.
const (
	Top10      Mode = iota // the ten best, no total
	Count                  // the exact number of matches only
	Top10Count             // both
)

// Modes are the names of the modes in results.
var Modes = []string{"top10", "count", "top10+count"}

// Rules of measuring.
const (
	warmPasses = 2
	keptPasses = 5
)

// Engine is what a program adds to the frame.
type Engine interface {
	// Index puts the documents into a new index at dir and returns when it is committed, merged and closed. It may set
	// other members of the result than those that the frame measures (times, bytes and memory).
	Index(docs []Doc, dir string) (IndexResult, error)
	// Open opens the index for searching and makes the query objects.
	Open(dir string, queries []Query) (Searcher, error)
}

// Searcher runs the queries it was opened with, by their number in that list.
type Searcher interface {
	// Search does the work of one measured search and returns the number of matches (for Top10, of hits).
	Search(q int, m Mode) (uint64, error)
	// Hits returns the ten best.
	Hits(q int) ([]Hit, error)
	// Segments is the number of segments of the index.
	Segments() int
	// Version names the engine's version.
	Version() string
	Close() error
}

// IndexResult is the first result: what indexing cost.
type IndexResult struct {
	Seconds  float64 `json:"index_s"`
	Bytes    int64   `json:"bytes"`  // of all files
	RSS      int     `json:"rss_kb"` // greatest resident set, documents included
	Docs     int     `json:"docs"`
	Segments int     `json:"segments,omitempty"`
	Merge    float64 `json:"merge_s,omitempty"`
}

// SearchResult is the second result: times, counts and hits.
type SearchResult struct {
	Engine   string               `json:"engine"`
	Version  string               `json:"version"`
	Segments int                  `json:"segments"`
	RSS      int                  `json:"rss_kb"`
	Times    map[string][]float64 `json:"times"` // "class|mode" to microseconds a query, one number a pass
	Counts   map[string]uint64    `json:"counts"`
	Both     map[string]uint64    `json:"counts_with_top"`
	Hits     map[string][]Hit     `json:"hits"`
	IDs      float64              `json:"ids_us,omitempty"` // reading ten ids, where that is not in the times
}

// Hit is one hit; in JSON the pair [id, score].
type Hit struct {
	ID    string
	Score float64
}

// MarshalJSON writes the pair.
func (h Hit) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.ID, h.Score}) }

// UnmarshalJSON reads the pair.
func (h *Hit) UnmarshalJSON(b []byte) error {
	pair := []any{&h.ID, &h.Score}
	if err := json.Unmarshal(b, &pair); err != nil {
		return fmt.Errorf("reading a hit: %w", err)
	}
	return nil
}

// Main runs the program with its arguments:
//
//	index DOCS DIR RESULT
//	search DIR QUERIES RESULT PASS_MS
//
// Flags before the command narrow or profile a search.
func Main(name string, e Engine, args []string) error {
	runtime.GOMAXPROCS(1)
	fl := flag.NewFlagSet(name, flag.ContinueOnError)
	profile := fl.String("cpuprofile", "", "write a CPU profile of the measured part to this `file`")
	classes := fl.String("classes", "", "search only classes that match this `expression`")
	modes := fl.String("modes", "", "measure only modes that match this `expression`")
	fl.Usage = func() {
		fmt.Fprintf(fl.Output(), "%s [flags] index DOCS DIR RESULT\n%s [flags] search DIR QUERIES RESULT PASS_MS\n", name, name)
		fl.PrintDefaults()
	}
	if err := fl.Parse(args); err != nil {
		return err
	}
	start := func() (stop func() error, err error) {
		if *profile == "" {
			return func() error { return nil }, nil
		}
		f, err := os.Create(*profile)
		if err != nil {
			return nil, fmt.Errorf("creating the profile: %w", err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, errors.Join(fmt.Errorf("starting the profile: %w", err), f.Close())
		}
		return func() error {
			pprof.StopCPUProfile()
			return f.Close()
		}, nil
	}
	switch a := fl.Args(); {
	case len(a) == 4 && a[0] == "index":
		return index(e, a[1], a[2], a[3], start)
	case len(a) == 5 && a[0] == "search":
		ms, err := strconv.ParseFloat(a[4], 64)
		if err != nil {
			return fmt.Errorf("reading PASS_MS: %w", err)
		}
		s := searchRun{pass: time.Duration(ms * float64(time.Millisecond)), start: start}
		if s.classes, err = regexp.Compile(*classes); err != nil {
			return fmt.Errorf("reading -classes: %w", err)
		}
		if s.modes, err = regexp.Compile(*modes); err != nil {
			return fmt.Errorf("reading -modes: %w", err)
		}
		return s.run(name, e, a[1], a[2], a[3])
	}
	fl.Usage()
	return errors.New("wrong arguments")
}

type starter func() (stop func() error, err error)

func index(e Engine, docsFile, dir, result string, start starter) error {
	docs, err := ReadDocs(docsFile)
	if err != nil {
		return err
	}
	runtime.GC()
	stop, err := start()
	if err != nil {
		return err
	}
	t0 := time.Now()
	r, err := e.Index(docs, dir)
	secs := time.Since(t0).Seconds()
	if err := errors.Join(err, stop()); err != nil {
		return fmt.Errorf("indexing: %w", err)
	}
	if r.Seconds == 0 { // an engine that has to wait for its own quiet gives its own time
		r.Seconds = secs
	}
	if r.Bytes, err = dirBytes(dir); err != nil {
		return err
	}
	if r.RSS, err = rss(); err != nil {
		return err
	}
	r.Docs = len(docs)
	return writeJSON(result, r)
}

type searchRun struct {
	pass           time.Duration
	classes, modes *regexp.Regexp
	start          starter
}

func (r *searchRun) run(name string, e Engine, dir, queriesFile, result string) (err error) {
	all, err := ReadQueries(queriesFile)
	if err != nil {
		return err
	}
	var queries []Query
	for _, q := range all {
		if r.classes.MatchString(q.Class) {
			queries = append(queries, q)
		}
	}
	s, err := e.Open(dir, queries)
	if err != nil {
		return fmt.Errorf("opening %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	stop, err := r.start()
	if err != nil {
		return err
	}
	times, err := r.measure(s, queries)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	out := SearchResult{
		Engine: name, Version: s.Version(), Segments: s.Segments(), Times: times,
		Counts: map[string]uint64{}, Both: map[string]uint64{}, Hits: map[string][]Hit{},
	}
	for i, q := range queries {
		if out.Counts[q.ID], err = s.Search(i, Count); err != nil {
			return fmt.Errorf("counting query %s: %w", q.ID, err)
		}
		if out.Both[q.ID], err = s.Search(i, Top10Count); err != nil {
			return fmt.Errorf("searching query %s: %w", q.ID, err)
		}
		if out.Hits[q.ID], err = s.Hits(i); err != nil {
			return fmt.Errorf("searching query %s: %w", q.ID, err)
		}
	}
	if out.RSS, err = rss(); err != nil {
		return err
	}
	return writeJSON(result, out)
}

func (r *searchRun) measure(s Searcher, queries []Query) (map[string][]float64, error) {
	var order []string
	classes := map[string][]int{}
	for i, q := range queries {
		if classes[q.Class] == nil {
			order = append(order, q.Class)
		}
		classes[q.Class] = append(classes[q.Class], i)
	}
	times := map[string][]float64{}
	for pass := range warmPasses + keptPasses {
		for _, c := range order {
			for m, mode := range Modes {
				if !r.modes.MatchString(mode) {
					continue
				}
				n := 0
				var spent time.Duration
				for t0 := time.Now(); spent < r.pass || n == 0; spent = time.Since(t0) {
					for _, q := range classes[c] {
						if _, err := s.Search(q, Mode(m)); err != nil {
							return nil, fmt.Errorf("query %s, %s: %w", queries[q].ID, mode, err)
						}
					}
					n += len(classes[c])
				}
				if pass >= warmPasses {
					key := c + "|" + mode
					times[key] = append(times[key], float64(spent.Nanoseconds())/1e3/float64(n))
				}
			}
		}
	}
	return times, nil
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

func dirBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			n += fi.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("adding up the files of the index: %w", err)
	}
	return n, nil
}

// rss is the greatest resident set so far in KB; 0 where the system does not tell.
func rss() (int, error) {
	b, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the memory in use: %w", err)
	}
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) >= 2 && f[0] == "VmHWM:" {
			return strconv.Atoi(f[1])
		}
	}
	return 0, nil
}
