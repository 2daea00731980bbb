// Command shards measures what a Summa broker costs over eight shards: how much later an answer comes than one shard's, and what ranking over
// all shards costs the processor. Nodes, broker and client are three processes on this machine; what is compared is asked for in turns within
// one run, so that what else the machine does falls on all alike.
//
//	go run ./shards [-waits 2ms,3ms,5ms,10ms] [-calls 2000] [-rounds 15] [-profile folder]
//
// A node answers from memory, after a stated time. Eight shards on eight machines work at the same time; eight that search on two cores do
// not, and would measure the cores. The time stands for that of a search.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/bench/internal/child"
	"github.com/weft-search/weft/bench/internal/clock"
)

// shards is how many there are, candidates what each of them nominates for each of two branches.
const (
	shards     = 8
	candidates = 1000
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if role, args, ok := child.Role(); ok {
		err = child.Profiled(func() error { return serve(ctx, role, args) })
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, w io.Writer) (err error) {
	fl := flag.NewFlagSet("shards", flag.ContinueOnError)
	waits := fl.String("waits", "2ms,3ms,5ms,10ms", "times after which a node answers")
	calls := fl.Int("calls", 2000, "searches of each kind for a wait")
	rounds := fl.Int("rounds", 15, "rounds of the ranking; what is told is the median")
	profile := fl.String("profile", "", "`folder` for a CPU profile of the broker")
	if err := fl.Parse(args); err != nil {
		return err
	}
	nodes, err := child.Start("", "nodes")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.Stop()) }()
	addrs := strings.Fields(nodes.First)
	broker, err := child.Start(*profile, "broker", addrs...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Stop()) }()
	b := &bench{process: broker}
	for _, addr := range addrs {
		one, err := dial(addr)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, one.Close()) }()
		b.nodes = append(b.nodes, summapb.NewSearchServiceClient(one))
	}
	all, err := dial(broker.First)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	b.broker = summapb.NewSearchServiceClient(all)
	if err := b.ready(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "| a node answers after | search | one shard p50, p90, p99 µs | one round trip µs | all shards p50, p90, p99 µs | p50 of 1.1 × one shard + a round trip |\n|--:|---|--:|--:|--:|--:|\n")
	for text := range strings.SplitSeq(*waits, ",") {
		wait, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		if err := b.latencies(ctx, w, wait, *calls); err != nil {
			return err
		}
	}
	return b.ranking(ctx, w, *rounds)
}

type bench struct {
	nodes   []summapb.SearchServiceClient
	broker  summapb.SearchServiceClient
	process *child.Process
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)),
		grpc.WithInitialWindowSize(2<<20), grpc.WithInitialConnWindowSize(4<<20))
}

// ready waits until the broker has found all nodes.
func (b *bench) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		_, err := b.broker.Search(ctx, everything(delayed(0)))
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func everything(index string) *summapb.SearchRequest {
	return &summapb.SearchRequest{IndexName: index, Limit: hits, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}}
}

// words takes a broker two rounds, the first for statistics.
func words(index string) *summapb.SearchRequest {
	r := everything(index)
	r.Query = &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "body", Text: "loom and weft"}}}
	return r
}

// latencies measures searches that are merged by score, one at a time.
func (b *bench) latencies(ctx context.Context, w io.Writer, wait time.Duration, calls int) error {
	type arm struct {
		at   []summapb.SearchServiceClient // who is asked at once
		req  *summapb.SearchRequest
		took []time.Duration
	}
	first, broker := b.nodes[:1], []summapb.SearchServiceClient{b.broker}
	oneShard, trip := &arm{at: first, req: everything(delayed(wait))}, &arm{at: first, req: everything(delayed(0))}
	plain, two := &arm{at: broker, req: oneShard.req}, &arm{at: broker, req: words(delayed(wait))}
	alone := &arm{at: b.nodes, req: oneShard.req}
	arms := []*arm{oneShard, trip, plain, two, alone}
	for i := range calls + 100 {
		for k := range arms {
			a := arms[(i+k)%len(arms)]
			began := time.Now()
			errs := make([]error, len(a.at))
			var wg sync.WaitGroup
			for j := range a.at {
				ask := func() {
					r, err := a.at[j].Search(ctx, a.req)
					if err == nil && len(r.Hits) != hits {
						err = fmt.Errorf("%d hits", len(r.Hits))
					}
					errs[j] = err
				}
				if len(a.at) == 1 {
					ask()
					break
				}
				wg.Go(ask)
			}
			wg.Wait()
			took := time.Since(began)
			if err := errors.Join(errs...); err != nil {
				return err
			}
			if i >= 100 { // warm
				a.took = append(a.took, took)
			}
		}
	}
	at := func(a *arm, percent int) float64 { return float64(a.took[(len(a.took)-1)*percent/100]) / 1e3 }
	for _, a := range arms {
		slices.Sort(a.took)
	}
	for _, c := range []struct {
		name string
		arm  *arm
	}{{"everything", plain}, {"words: statistics first", two}, {"everything, of all nodes by the client itself", alone}} {
		fmt.Fprintf(w, "| %s | %s | %.0f, %.0f, %.0f | %.0f | %.0f, %.0f, %.0f | %.2f |\n", wait, c.name, at(oneShard, 50), at(oneShard, 90), at(oneShard, 99), at(trip, 50),
			at(c.arm, 50), at(c.arm, 90), at(c.arm, 99), at(c.arm, 50)/(1.1*at(oneShard, 50)+at(trip, 50)))
	}
	return nil
}

// ranking measures a fusion by reciprocal ranks over all shards beside a reply of as many bytes as all nominations have that is passed on, and
// beside decoding them.
func (b *bench) ranking(ctx context.Context, w io.Writer, rounds int) error {
	request := func(index string) *summapb.SearchRequest {
		r := everything(index)
		branch := func() *summapb.WeightedQuery { return &summapb.WeightedQuery{Query: everything("").Query} }
		r.Query = &summapb.Query{Query: &summapb.Query_Fusion{Fusion: &summapb.FusionQuery{
			Queries: []*summapb.WeightedQuery{branch(), branch()}, CandidateDepth: candidates,
		}}}
		r.Limit = candidates / 2
		return r
	}
	type sample struct{ cpu, wall, mallocs, bytes float64 }
	fused := func() error {
		r, err := b.broker.Search(ctx, request(nominating))
		if err == nil && (r.RankingMethod != "global_rrf_v1" || len(r.Hits) != candidates/2) {
			err = fmt.Errorf("%d hits by %q", len(r.Hits), r.RankingMethod)
		}
		return err
	}
	passed := func() error {
		_, err := b.broker.Search(ctx, everything(bulky))
		return err
	}
	measure := func(call func() error) (s sample, err error) {
		const n = 20
		before, err := b.process.Use()
		if err != nil {
			return s, err
		}
		began := time.Now()
		for range n {
			if err := call(); err != nil {
				return s, err
			}
		}
		s.wall = time.Since(began).Seconds() * 1e3 / n
		after, err := b.process.Use()
		if err != nil {
			return s, err
		}
		s.cpu = float64(after.CPU-before.CPU) / 1e6 / n
		s.mallocs, s.bytes = float64(after.Mallocs-before.Mallocs)/n, float64(after.Bytes-before.Bytes)/n
		return s, nil
	}
	var replies [][]byte
	size := 0
	for shard := range shards {
		replies = append(replies, nomination(shard))
		size += len(replies[shard])
	}
	decode := func() (ms float64, err error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const n = 20
		before := clock.Thread()
		for range n {
			for _, r := range replies {
				if err := proto.Unmarshal(r, &summapb.SearchResponse{}); err != nil {
					return 0, err
				}
			}
		}
		return float64(clock.Thread()-before) / 1e6 / n, nil
	}
	var ranked, relayed []sample
	var decoded []float64
	for round := range rounds + 1 {
		f, err := measure(fused)
		if err != nil {
			return err
		}
		p, err := measure(passed)
		if err != nil {
			return err
		}
		d, err := decode()
		if err != nil {
			return err
		}
		if round > 0 { // warm
			ranked, relayed, decoded = append(ranked, f), append(relayed, p), append(decoded, d)
		}
	}
	median := func(of func(i int) float64) float64 {
		var v []float64
		for i := range ranked {
			v = append(v, of(i))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	fmt.Fprintf(w, "\nReciprocal ranks over %d shards × %d candidates of each of two branches, %d bytes of replies, a page of %d:\n\n", shards, candidates, size, candidates/2)
	fmt.Fprintf(w, "| of the broker, for a search | ranked | as many bytes passed on | ratio |\n|---|--:|--:|--:|\n")
	for _, r := range []struct {
		name string
		of   func(s sample) float64
	}{
		{"CPU ms", func(s sample) float64 { return s.cpu }},
		{"allocations", func(s sample) float64 { return s.mallocs }},
		{"bytes allocated", func(s sample) float64 { return s.bytes }},
		{"answer after ms", func(s sample) float64 { return s.wall }},
	} {
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.2f |\n", r.name, median(func(i int) float64 { return r.of(ranked[i]) }), median(func(i int) float64 { return r.of(relayed[i]) }),
			median(func(i int) float64 { return r.of(ranked[i]) / r.of(relayed[i]) }))
	}
	fmt.Fprintf(w, "\nDecoding the replies as messages takes %.2f ms of CPU: the broker takes %.2f of it in all.\n",
		median(func(i int) float64 { return decoded[i] }), median(func(i int) float64 { return ranked[i].cpu / decoded[i] }))
	return nil
}
