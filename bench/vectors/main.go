// Command vectors measures nearest-neighbour search over generated vectors in clusters: weft's exact scan and its graph,
// without a filter and under filters, beside the graph of another engine, which runs as a program of its own (bench/weaviatepeer).
// It prints tables of Markdown. Run it in the folder of the bench module:
//
//	go run ./vectors
//
// Each engine has one thread; passes of all ways alternate, and the median of the rounds counts, in processor time: weft's of the
// thread that searches, the other program's of all its threads, since it scores again in goroutines of their own. Recall is the
// share of the true ten best, found by brute force in another arithmetic.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-search/weft/bench/internal/clock"
	"github.com/weft-search/weft/internal/vector"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "vectors:", err)
		os.Exit(1)
	}
}

type options struct {
	n, dim, clusters, queries, k int
	spread                       float64
	seed                         uint64
	rounds                       int
	pass                         time.Duration
	efs, peerEfs                 []int
	peer                         string
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{}
	fl := flag.NewFlagSet("vectors", flag.ContinueOnError)
	fl.SetOutput(stderr)
	fl.IntVar(&o.n, "n", 100_000, "`number` of vectors")
	fl.IntVar(&o.dim, "dim", 128, "`dimensions`")
	fl.IntVar(&o.clusters, "clusters", 1000, "`number` of clusters")
	fl.IntVar(&o.queries, "queries", 1000, "`number` of queries")
	fl.IntVar(&o.k, "k", 10, "`hits` of a query")
	fl.Float64Var(&o.spread, "spread", 0.5, "`deviation` of a vector from its centre; centres have 1")
	fl.Uint64Var(&o.seed, "seed", 1, "`seed` of the generator")
	fl.IntVar(&o.rounds, "rounds", 5, "`number` of rounds")
	fl.DurationVar(&o.pass, "pass", 200*time.Millisecond, "least `time` of a pass")
	efs := fl.String("efs", "0,10,16,24,32,48,64,200", "`candidates` of weft's graph searches; 0 is its default")
	peerEfs := fl.String("peer-efs", "10,16,24,32,48,64,100,200", "`candidates` of the other graph's searches")
	fl.StringVar(&o.peer, "peer", "weaviatepeer", "`folder` of the other engine's module; empty leaves it out")
	if err := fl.Parse(args); err != nil {
		return o, err
	}
	if o.n < 1 || o.n > 10_000_000 || o.dim < 1 || o.dim > 4096 || o.clusters < 1 || o.clusters > o.n || o.queries < 1 || o.k < 1 || o.k > o.n ||
		o.rounds < 1 || o.pass <= 0 || o.pass > time.Minute || o.spread < 0 {
		return o, errors.New("a number is out of range")
	}
	var err error
	if o.efs, err = numbers(*efs, 0); err != nil {
		return o, fmt.Errorf("-efs: %w", err)
	}
	if o.peerEfs, err = numbers(*peerEfs, 1); err != nil {
		return o, fmt.Errorf("-peer-efs: %w", err)
	}
	return o, nil
}

func numbers(s string, least int) ([]int, error) {
	var out []int
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(f)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is no number of candidates", f)
		}
		out = append(out, n)
	}
	return out, nil
}

// records are the source of weft's section.
type records struct {
	b    []byte
	size int
}

func (r records) Len() int              { return len(r.b) / r.size }
func (r records) Doc(ord int) uint32    { return uint32(ord) }
func (r records) Record(ord int) []byte { return r.b[ord*r.size:][:r.size] }

// way is one way to answer the queries.
type way struct {
	engine, records, name string
	ef                    int     // candidates of a graph; 0: the default, or there is none
	share                 float64 // of documents that the filter accepts; 1 without one
	find                  func() ([][]uint32, error)
	pass                  func(least time.Duration) (seconds float64, err error) // a query's time, on average

	truth  [][]uint32
	recall float64
	times  []float64 // seconds a query, by round
}

// rate is the queries in a second: the median of the rounds.
func (w *way) rate() float64 {
	t := slices.Clone(w.times)
	slices.SortFunc(t, cmp.Compare[float64])
	return 1 / t[len(t)/2]
}

// inProcess makes a way that calls search; a pass takes the first most queries only, unless that is 0.
func inProcess(w way, queries, most int, search func(i int, dst []uint32) ([]uint32, error)) *way {
	w.find = func() ([][]uint32, error) {
		found := make([][]uint32, queries)
		for i := range found {
			var err error
			if found[i], err = search(i, nil); err != nil {
				return nil, err
			}
		}
		return found, nil
	}
	if most == 0 {
		most = queries
	}
	var dst []uint32
	w.pass = func(least time.Duration) (float64, error) {
		start, done := clock.Thread(), 0
		for done == 0 || clock.Thread()-start < least {
			for q := range min(most, queries) {
				var err error
				if dst, err = search(q, dst[:0]); err != nil {
					return 0, err
				}
				if done++; q%16 == 15 && clock.Thread()-start >= least {
					break
				}
			}
		}
		return (clock.Thread() - start).Seconds() / float64(done), nil
	}
	return &w
}

// section is weft's index over records of one element type.
type section struct {
	element string
	params  vector.Params
	x       *vector.Index
	built   float64 // seconds
	size    int     // bytes
}

func run(args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	before := load()
	say := func(f string, a ...any) { fmt.Fprintf(stderr, f+"\n", a...) }
	say("generating %d vectors and %d queries", o.n, o.queries)
	d := generate(o.seed, o.n, o.dim, o.clusters, o.queries, o.spread)
	all := d.truth(nil, o.k)

	var sections []section
	for _, s := range []section{{element: "f32"}, {element: "f16"}, {element: "int8"}} {
		s.params = vector.Params{Dim: o.dim, Metric: vector.Cosine, Graph: true, M: vector.DefaultM, EfConstruction: vector.DefaultEfConstruction}
		switch s.element {
		case "f16":
			s.params.Element = vector.F16
		case "int8":
			s.params.Element = vector.Int8
		}
		if err := s.build(&d); err != nil {
			return err
		}
		say("weft, %s: section of %d bytes built in %.1f s", s.element, s.size, s.built)
		sections = append(sections, s)
	}
	ways, err := weftWays(o, sections, &d, all)
	if err != nil {
		return err
	}
	var peers []*peer
	absent := "not asked for"
	defer func() {
		for _, p := range peers {
			err = errors.Join(err, p.stop())
		}
	}()
	if o.peer != "" && len(o.peerEfs) > 0 {
		dir, err := os.MkdirTemp("", "weft-vectors-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		say("building %s", o.peer)
		if bin, berr := buildPeer(o.peer, dir); berr != nil {
			absent = berr.Error()
			say("the other engine is left out: %s", absent)
		} else {
			file := filepath.Join(dir, "set")
			if err := d.writeSet(file); err != nil {
				return err
			}
			for _, codes := range []bool{false, true} {
				p, err := startPeer(bin, file, codes, stderr)
				if err != nil {
					return err
				}
				peers = append(peers, p)
				say("%s: graph built in %.1f s", p.Engine, p.Built)
				ways = append(ways, p.ways(o, all)...)
			}
		}
	}
	for _, w := range ways {
		found, err := w.find()
		if err != nil {
			return err
		}
		w.recall = recall(w.truth, found)
		say("%s, %s, %s, %d candidates, %.0f %% accepted: recall %.4f", w.engine, w.records, w.name, w.ef, 100*w.share, w.recall)
	}
	if err := measure(o, ways); err != nil {
		return err
	}
	report(stdout, result{o: o, ways: ways, sections: sections, peers: peers, absent: absent, before: before, after: load()})
	return nil
}

func (s *section) build(d *data) error {
	src := records{size: s.params.RecordSize()}
	values := d.bytes()
	for i := range d.vectors {
		src.b = vector.Encode(s.params, src.b, values[4*d.dim*i:][:4*d.dim])
	}
	var b bytes.Buffer
	start := time.Now()
	if err := vector.Write(context.Background(), &b, s.params, uint32(len(d.vectors)), src); err != nil {
		return err
	}
	s.built, s.size = time.Since(start).Seconds(), b.Len()
	var err error
	s.x, err = vector.Open(b.Bytes(), uint32(len(d.vectors)))
	return err
}

// Passes of scans take the first few queries, which are enough to fill the time.
const (
	scanned         = 100
	scannedFiltered = 200
)

func weftWays(o options, sections []section, d *data, all [][]uint32) ([]*way, error) {
	var ways []*way
	var hits []vector.Hit
	type finder func(*vector.Query, vector.Options, []vector.Hit) ([]vector.Hit, vector.Work, error)
	for i, s := range sections {
		queries := make([]*vector.Query, o.queries)
		for i, q := range d.queries {
			var err error
			if queries[i], err = vector.NewQuery(s.params, q, nil); err != nil {
				return nil, err
			}
		}
		add := func(w way, most int, f finder, vo vector.Options) {
			vo.K = o.k
			w.engine, w.records, w.ef = "weft", s.element, vo.Ef
			ways = append(ways, inProcess(w, o.queries, most, func(i int, dst []uint32) ([]uint32, error) {
				var err error
				if hits, _, err = f(queries[i], vo, hits[:0]); err != nil {
					return nil, err
				}
				for _, h := range hits {
					dst = append(dst, h.Doc)
				}
				return dst, nil
			}))
		}
		add(way{name: "exact scan", share: 1, truth: all}, scanned, s.x.Exact, vector.Options{})
		efs := o.efs
		if i > 0 {
			efs = []int{0} // the records of other element types are only read to rescore
		}
		for _, ef := range efs {
			add(way{name: "graph", share: 1, truth: all}, 0, s.x.Unmasked, vector.Options{Ef: ef})
		}
		if i > 0 {
			continue
		}
		for _, share := range []float64{0.01, 0.1, 0.5} {
			set := filter(o.seed, o.n, share)
			w := way{share: share, truth: d.truth(set, o.k)}
			for _, v := range []struct {
				name string
				most int
				f    finder
			}{{"exact over the accepted", scannedFiltered, s.x.Exact}, {"masked", 0, s.x.Masked}, {"unmasked", 0, s.x.Unmasked}} {
				w.name = v.name
				add(w, v.most, v.f, vector.Options{Accept: set})
			}
			search, path, err := planned(s.x, d, set, o.k)
			if err != nil {
				return nil, err
			}
			w.engine, w.records, w.name = "weft", s.element, fmt.Sprintf("as planned: %s", path)
			ways = append(ways, inProcess(w, o.queries, 0, search))
		}
	}
	return ways, nil
}

// measure takes the passes, in another order in each round; the first round warms up.
func measure(o options, ways []*way) error {
	for round := range o.rounds + 1 {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			seconds, err := w.pass(o.pass)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.engine, w.name, err)
			}
			if round > 0 {
				w.times = append(w.times, seconds)
			}
		}
	}
	return nil
}
