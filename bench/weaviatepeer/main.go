// Command weaviatepeer answers nearest-neighbour queries with the graph of github.com/weaviate/weaviate, for bench/vectors,
// which builds and runs it. It is a module of its own, since that package brings about a hundred others.
//
//	weaviatepeer [-m 16] [-ef-construction 128] [-rq] FILE
//
// FILE holds vectors and queries, see readSet. The graph is built by one goroutine in the order of the file, without a log on
// disk, over vectors in memory, by cosine; with -rq over codes of 8 bits (rotational quantisation), whose 20 best are scored again
// from the vectors in memory. Then a line of JSON, a greeting, is written, and each request, a line of JSON on standard input, is
// answered by a line, until the input ends. Times are processor time of the whole program, which runs on one thread at a time:
// codes are scored again in goroutines of their own, so the time of one thread would miss them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/weaviate/weaviate/adapters/repos/db/lsmkv"
	"github.com/weaviate/weaviate/adapters/repos/db/vector/common"
	"github.com/weaviate/weaviate/adapters/repos/db/vector/hnsw"
	"github.com/weaviate/weaviate/adapters/repos/db/vector/hnsw/distancer"
	"github.com/weaviate/weaviate/entities/cyclemanager"
	ent "github.com/weaviate/weaviate/entities/vectorindex/hnsw"
	"github.com/weaviate/weaviate/usecases/memwatch"
)

// greeting is the first line of the output.
type greeting struct {
	Engine string  // name and version
	Built  float64 // seconds that building the graph took
}

// request asks for a pass over the queries.
type request struct {
	Ef, K int
	// Least is the time that a pass lasts at least, in seconds; with 0 every query is answered once and its hits are returned.
	Least float64
}

// limits of a request.
const (
	maxEf    = 100_000
	maxLeast = 600
)

// answer is the reply to a request.
type answer struct {
	Seconds float64    // of a query, on average; without Least it says nothing
	Hits    [][]uint64 `json:",omitempty"` // by query, best first: numbers of vectors in the file
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "weaviatepeer:", err)
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	fl := flag.NewFlagSet("weaviatepeer", flag.ContinueOnError)
	fl.SetOutput(stderr)
	m := fl.Int("m", 16, "`neighbours` of a vector, twice as many in the lowest level")
	efConstruction := fl.Int("ef-construction", 128, "`candidates` while building")
	rq := fl.Bool("rq", false, "search codes of 8 bits")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if fl.NArg() != 1 || *m < ent.MinmumMaxConnections || *m > ent.MaximumMaxConnections || *efConstruction < ent.MinmumEFConstruction || *efConstruction > maxEf {
		return errors.New("usage: weaviatepeer [-m 16] [-ef-construction 128] [-rq] FILE")
	}
	runtime.GOMAXPROCS(1)
	s, err := readSet(fl.Arg(0))
	if err != nil {
		return err
	}
	ctx := context.Background()
	c := ent.NewDefaultUserConfig()
	c.MaxConnections, c.EFConstruction = *m, *efConstruction
	c.VectorCacheMaxObjects = 2 * len(s.vectors) // all vectors stay in memory
	name := "weaviate " + version()
	var store *lsmkv.Store // codes are written here and read from memory
	if *rq {
		name += ", 8-bit codes"
		c.RQ.Enabled, c.RQ.Bits = true, 8
		var dir string
		if dir, err = os.MkdirTemp("", "weaviatepeer-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		none := cyclemanager.NewCallbackGroupNoop()
		if store, err = lsmkv.New(dir, dir, quiet(), nil, none, none, none); err != nil {
			return fmt.Errorf("the store of codes: %w", err)
		}
		defer func() { err = errors.Join(err, store.Shutdown(ctx)) }()
	}
	start := spent()
	g, err := build(ctx, s.vectors, c, store)
	if err != nil {
		return fmt.Errorf("building the graph: %w", err)
	}
	out := json.NewEncoder(stdout)
	if err := out.Encode(greeting{Engine: name, Built: (spent() - start).Seconds()}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(stdin); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		a, err := g.serve(ctx, s.queries, r)
		if err != nil {
			return err
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// version is that of the weaviate module in this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/weaviate/weaviate" {
				return d.Version
			}
		}
	}
	return "of unknown version"
}

// graph is weaviate's index and how it was configured.
type graph struct {
	index  *hnsw.HNSW
	config ent.UserConfig
}

// quiet is a logger that writes nothing.
func quiet() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

func build(ctx context.Context, vectors [][]float32, c ent.UserConfig, store *lsmkv.Store) (*graph, error) {
	vector := func(_ context.Context, id uint64) ([]float32, error) {
		if id >= uint64(len(vectors)) {
			return nil, fmt.Errorf("there is no vector %d", id)
		}
		return vectors[id], nil
	}
	index, err := hnsw.New(hnsw.Config{
		RootPath:              "none: nothing is written",
		ID:                    "peer",
		Logger:                quiet(),
		MakeCommitLoggerThunk: hnsw.MakeNoopCommitLogger,
		MakeBucketOptions:     lsmkv.MakeNoopBucketOptions,
		DistanceProvider:      distancer.NewCosineDistanceProvider(),
		AllocChecker:          memwatch.NewDummyMonitor(),
		VectorForIDThunk:      vector,
		TempVectorForIDThunk: func(ctx context.Context, id uint64, _ *common.VectorSlice) ([]float32, error) {
			return vector(ctx, id)
		},
	}, c, cyclemanager.NewCallbackGroupNoop(), store)
	if err != nil {
		return nil, err
	}
	for i, v := range vectors {
		if err := index.Add(ctx, uint64(i), v); err != nil {
			return nil, fmt.Errorf("vector %d: %w", i, err)
		}
	}
	return &graph{index: index, config: c}, nil
}

func (g *graph) serve(ctx context.Context, queries [][]float32, r request) (answer, error) {
	if r.K < 1 || r.K > maxEf || r.Ef < 1 || r.Ef > maxEf || r.Least < 0 || r.Least > maxLeast {
		return answer{}, fmt.Errorf("request: k and ef are from 1 to %d, the least time is at most %d s", maxEf, maxLeast)
	}
	g.config.EF = r.Ef
	if err := g.index.UpdateUserConfig(g.config, func() {}); err != nil {
		return answer{}, fmt.Errorf("setting ef: %w", err)
	}
	var a answer
	if r.Least == 0 {
		for _, q := range queries {
			ids, _, err := g.index.SearchByVector(ctx, q, r.K, nil)
			if err != nil {
				return a, err
			}
			a.Hits = append(a.Hits, ids)
		}
		return a, nil
	}
	least := time.Duration(r.Least * float64(time.Second))
	start, done := spent(), 0
	for done == 0 || spent()-start < least {
		for i, q := range queries {
			if _, _, err := g.index.SearchByVector(ctx, q, r.K, nil); err != nil {
				return a, err
			}
			if done++; i%16 == 15 && spent()-start >= least {
				break
			}
		}
	}
	a.Seconds = (spent() - start).Seconds() / float64(done)
	return a, nil
}
