// Command vectors measures nearest-neighbour search over generated vectors in clusters: weft's exact scan and its graph,
// without a filter and under filters, and a graph of another Go package. It prints tables of Markdown. Run it in the folder
// of the bench module:
//
//	go run ./vectors
//
// Everything runs in one process on one thread; passes alternate between the engines, and the median of the rounds counts,
// in time of the thread. Recall is the share of the true ten best, found by brute force in another arithmetic.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/hnsw"

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
	element                      string
	efs, peerEfs                 []int
	peerN                        int
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
	fl.StringVar(&o.element, "element", "f32", "element `type` of weft's records: f32, f16 or int8")
	efs := fl.String("efs", "0,32,64,200", "`candidates` of weft's graph searches; 0 is its default")
	peerEfs := fl.String("peer-efs", "20,100,400", "`candidates` of the other graph's searches; empty leaves it out")
	fl.IntVar(&o.peerN, "peer-n", 0, "`number` of vectors for the other graph, whose building is slow; 0 is all")
	if err := fl.Parse(args); err != nil {
		return o, err
	}
	if o.n < 1 || o.n > 10_000_000 || o.dim < 1 || o.dim > 4096 || o.clusters < 1 || o.clusters > o.n || o.queries < 1 || o.k < 1 || o.k > o.n ||
		o.rounds < 1 || o.pass <= 0 || o.spread < 0 || o.peerN < 0 || o.peerN > o.n {
		return o, fmt.Errorf("a number is out of range")
	}
	if o.peerN == 0 {
		o.peerN = o.n
	}
	var err error
	if o.efs, err = numbers(*efs); err != nil {
		return o, fmt.Errorf("-efs: %w", err)
	}
	if o.peerEfs, err = numbers(*peerEfs); err != nil {
		return o, fmt.Errorf("-peer-efs: %w", err)
	}
	return o, nil
}

func numbers(s string) ([]int, error) {
	var out []int
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
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
	engine, name string
	share        float64 // of documents that the filter accepts; 1 without one
	search       func(i int, dst []uint32) ([]uint32, error)
	most         int // queries of a pass at most

	truth  [][]uint32
	recall float64
	times  []float64 // seconds a query, by round
}

func (w *way) rate() float64 {
	t := slices.Clone(w.times)
	slices.SortFunc(t, cmp.Compare[float64])
	return 1 / t[len(t)/2]
}

func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	say := func(f string, a ...any) { fmt.Fprintf(stderr, f+"\n", a...) }
	say("generating %d vectors and %d queries", o.n, o.queries)
	d := generate(o.seed, o.n, o.dim, o.clusters, o.queries, o.spread)

	p := vector.Params{Dim: o.dim, Metric: vector.Cosine, Graph: true, M: vector.DefaultM, EfConstruction: vector.DefaultEfConstruction}
	switch o.element {
	case "f32":
	case "f16":
		p.Element = vector.F16
	case "int8":
		p.Element = vector.Int8
	default:
		return fmt.Errorf("-element: %q is none of f32, f16, int8", o.element)
	}
	index, built, size, err := build(p, &d)
	if err != nil {
		return err
	}
	say("weft's section: %d bytes, %.1f s", size, built)
	ways, err := weftWays(o, p, index, &d)
	if err != nil {
		return err
	}
	all := d.truth(nil, o.k)
	for _, w := range ways {
		if w.share == 1 {
			w.truth = all
		}
	}
	var peerBuilt float64
	if len(o.peerEfs) > 0 {
		var peer []*way
		peer, peerBuilt = peerWays(o, &d, all, say)
		ways = append(ways, peer...)
	}
	for _, w := range ways {
		found := make([][]uint32, o.queries)
		for i := range found {
			if found[i], err = w.search(i, nil); err != nil {
				return err
			}
		}
		w.recall = recall(w.truth, found)
		say("%s, %s: recall %.4f", w.engine, w.name, w.recall)
	}
	if err := measure(o, ways); err != nil {
		return err
	}
	report(stdout, o, ways, built, peerBuilt, size)
	return nil
}

func build(p vector.Params, d *data) (index *vector.Index, seconds float64, size int, err error) {
	src := records{size: p.RecordSize()}
	values := d.bytes()
	for i := range d.vectors {
		src.b = vector.Encode(p, src.b, values[4*d.dim*i:][:4*d.dim])
	}
	var b bytes.Buffer
	start := time.Now()
	if err := vector.Write(context.Background(), &b, p, uint32(len(d.vectors)), src); err != nil {
		return nil, 0, 0, err
	}
	seconds = time.Since(start).Seconds()
	index, err = vector.Open(b.Bytes(), uint32(len(d.vectors)))
	return index, seconds, b.Len(), err
}

func weftWays(o options, p vector.Params, x *vector.Index, d *data) ([]*way, error) {
	queries := make([]*vector.Query, o.queries)
	for i, q := range d.queries {
		var err error
		if queries[i], err = vector.NewQuery(p, q, nil); err != nil {
			return nil, err
		}
	}
	var hits []vector.Hit
	search := func(f func(*vector.Query, vector.Options, []vector.Hit) ([]vector.Hit, vector.Work, error), vo vector.Options) func(int, []uint32) ([]uint32, error) {
		vo.K = o.k
		return func(i int, dst []uint32) ([]uint32, error) {
			var err error
			if hits, _, err = f(queries[i], vo, hits[:0]); err != nil {
				return nil, err
			}
			for _, h := range hits {
				dst = append(dst, h.Doc)
			}
			return dst, nil
		}
	}
	ways := []*way{{engine: "weft", name: "exact scan", share: 1, search: search(x.Exact, vector.Options{}), most: 100}}
	for _, ef := range o.efs {
		name := fmt.Sprintf("graph, %d candidates", ef)
		if ef == 0 {
			name = "graph"
		}
		ways = append(ways, &way{engine: "weft", name: name, share: 1, search: search(x.Unmasked, vector.Options{Ef: ef})})
	}
	for _, share := range []float64{0.01, 0.1, 0.5} {
		set := filter(o.seed, o.n, share)
		truth := d.truth(set, o.k)
		ways = append(
			ways,
			&way{engine: "weft", name: "exact over the accepted", share: share, truth: truth, search: search(x.Exact, vector.Options{Accept: set}), most: 200},
			&way{engine: "weft", name: "masked", share: share, truth: truth, search: search(x.Masked, vector.Options{Accept: set})},
			&way{engine: "weft", name: "unmasked", share: share, truth: truth, search: search(x.Unmasked, vector.Options{Accept: set})},
		)
	}
	return ways, nil
}

// peerWays builds the graph of github.com/coder/hnsw with as many neighbours as weft's lowest level has, and as many
// candidates while building.
func peerWays(o options, d *data, all [][]uint32, say func(string, ...any)) ([]*way, float64) {
	g := hnsw.NewGraph[uint32]()
	g.M = 2 * vector.DefaultM
	g.EfSearch = vector.DefaultEfConstruction
	g.Rng = rand.New(rand.NewSource(int64(o.seed)))
	start := time.Now()
	for i, v := range d.vectors[:o.peerN] {
		g.Add(hnsw.MakeNode(uint32(i), v))
		if (i+1)%20_000 == 0 {
			say("coder/hnsw: %d vectors, %.1f s", i+1, time.Since(start).Seconds())
		}
	}
	built := time.Since(start).Seconds()
	truth := all
	if o.peerN < o.n {
		part := *d
		part.vectors = d.vectors[:o.peerN]
		truth = part.truth(nil, o.k)
	}
	var ways []*way
	for _, ef := range o.peerEfs {
		ways = append(ways, &way{
			engine: "coder/hnsw", name: fmt.Sprintf("graph, %d candidates", ef), share: 1, truth: truth,
			search: func(i int, dst []uint32) ([]uint32, error) {
				g.EfSearch = ef
				for _, n := range g.Search(d.queries[i], o.k) {
					dst = append(dst, n.Key)
				}
				return dst, nil
			},
		})
	}
	return ways, built
}

// measure takes the passes, in another order in each round; the first round warms up.
func measure(o options, ways []*way) error {
	var dst []uint32
	for round := range o.rounds + 1 {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			n := o.queries
			if w.most > 0 {
				n = min(n, w.most)
			}
			start, done := clock.Thread(), 0
			for done == 0 || clock.Thread()-start < o.pass {
				for q := range n {
					var err error
					if dst, err = w.search(q, dst[:0]); err != nil {
						return err
					}
					if done++; q%16 == 15 && clock.Thread()-start >= o.pass {
						break
					}
				}
			}
			if round > 0 {
				w.times = append(w.times, (clock.Thread()-start).Seconds()/float64(done))
			}
		}
	}
	return nil
}

func report(w io.Writer, o options, ways []*way, built, peerBuilt float64, size int) {
	exact := ways[0]
	fmt.Fprintf(w, "%d vectors of %d dimensions, %d clusters, spread %v, seed %d; %d queries, k = %d, cosine; records of %s.\n",
		o.n, o.dim, o.clusters, o.spread, o.seed, o.queries, o.k, o.element)
	fmt.Fprintf(w, "%s, %s/%s; %d rounds, medians, one thread. weft's section with its graph: %.1f MB, built in %.1f s.", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		o.rounds, float64(size)/1e6, built)
	if peerBuilt > 0 {
		fmt.Fprintf(w, " coder/hnsw: %d vectors, built in %.1f s.", o.peerN, peerBuilt)
	}
	fmt.Fprintf(w, "\n\n| engine | way | queries/s | times the exact scan | recall@%d |\n|---|---|--:|--:|--:|\n", o.k)
	for _, y := range ways {
		if y.share == 1 {
			fmt.Fprintf(w, "| %s | %s | %.0f | %.1f | %.4f |\n", y.engine, y.name, y.rate(), y.rate()/exact.rate(), y.recall)
		}
	}
	fmt.Fprintf(w, "\nUnder a filter that accepts documents at random:\n\n| accepted | way | queries/s | recall@%d |\n|--:|---|--:|--:|\n", o.k)
	for _, y := range ways {
		if y.share < 1 {
			fmt.Fprintf(w, "| %.0f %% | %s | %.0f | %.4f |\n", 100*y.share, y.name, y.rate(), y.recall)
		}
	}
	for _, y := range ways {
		if y.engine == "weft" && y.name == "graph" {
			times := y.rate() / exact.rate()
			verdict := "met"
			if times < 20 || y.recall < 0.99 {
				verdict = "not met"
			}
			fmt.Fprintf(w, "\nAim: 20 times the exact scan at a recall of 0.99: %.1f times at %.4f, %s.\n", times, y.recall, verdict)
		}
	}
}
