// Command relay measures the transport of the broker beside a bare gRPC server that answers from memory: real processes on this machine, the
// same client, and all in turns within one run, so that what else the machine does falls on all alike.
//
//	go run ./relay [-sizes 100,10000,1000000] [-callers 1,16,128] [-rounds 5] [-for 1s] [-arms relay,broker,plain] [-reference program] [-profile folder]
//
// The arms are relay, which is weft's transport; broker, which is the whole program with its command line, discovery, admission and metrics;
// plain, which is a relay of grpc-go's own client and server with a codec that leaves bytes as they are; and reference, which is the program
// that -reference names, started with the same flags. Processor time is that of each process, user and system, over what was measured; the ratio is to the backend's when it is called
// directly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/weft-search/weft/bench/internal/child"
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
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

type bench struct {
	sizes, callers []int
	arms           []string
	rounds         int
	length         time.Duration
	profile        string
	servers        map[string]*server
}

func ints(s string) (out []int, err error) {
	for one := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(one)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

const (
	direct    = "direct"
	backend   = "backend"
	whole     = "broker"
	reference = "reference"
)

func run(ctx context.Context, args []string, w io.Writer) (err error) {
	b := &bench{servers: map[string]*server{}}
	fl := flag.NewFlagSet("relay", flag.ContinueOnError)
	sizes := fl.String("sizes", "100,10000,1000000", "lengths of replies in bytes")
	callers := fl.String("callers", "1,16,128", "calls at once")
	arms := fl.String("arms", "relay,broker,plain", "relays")
	program := fl.String("reference", "", "`program` of the reference's broker, which is one more arm")
	fl.IntVar(&b.rounds, "rounds", 5, "rounds; what is told is the median")
	fl.DurationVar(&b.length, "for", time.Second, "time of one measurement")
	fl.StringVar(&b.profile, "profile", "", "`folder` for CPU profiles of all processes")
	if err := fl.Parse(args); err != nil {
		return err
	}
	b.arms = strings.Split(*arms, ",")
	if b.sizes, err = ints(*sizes); err != nil {
		return err
	}
	if b.callers, err = ints(*callers); err != nil {
		return err
	}
	defer func() {
		for _, s := range b.servers {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := b.start(backend); err != nil {
		return err
	}
	for _, arm := range b.arms {
		if err := b.start(arm, b.servers[backend].addr); err != nil {
			return err
		}
	}
	if *program != "" {
		b.arms = append(b.arms, reference)
		s, err := startReference(*program, b.servers[backend].addr)
		if err != nil {
			return err
		}
		b.servers[reference] = s
	}
	for _, arm := range b.arms {
		if err := b.ready(ctx, b.servers[arm].addr); err != nil {
			return fmt.Errorf("%s: %w", arm, err)
		}
	}
	fmt.Fprintf(w, "| bytes | callers | arm | calls/s | of direct | p50 µs | p99 µs | p50 added | p99 added | backend CPU µs | relay CPU µs | relay CPU of backend's | allocations |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, size := range b.sizes {
		for _, callers := range b.callers {
			if err := b.compare(ctx, w, size, callers); err != nil {
				return err
			}
		}
	}
	return nil
}

// sample is one measurement.
type sample struct {
	rate, p50, p99, backend, relay, allocs float64
}

func (b *bench) compare(ctx context.Context, w io.Writer, size, callers int) error {
	all := append([]string{direct}, b.arms...)
	got := map[string][]sample{}
	for round := range b.rounds + 1 {
		for i := range all {
			arm := all[(i+round)%len(all)]
			s, err := b.measure(ctx, arm, size, callers, round == 0)
			if err != nil {
				return fmt.Errorf("%s, %d bytes, %d callers: %w", arm, size, callers, err)
			}
			if round > 0 {
				got[arm] = append(got[arm], s)
			}
		}
	}
	med := func(arm string, of func(s, base sample) float64) float64 {
		var v []float64
		for i, s := range got[arm] {
			v = append(v, of(s, got[direct][i]))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	for _, arm := range all {
		fmt.Fprintf(w, "| %d | %d | %s | %.0f | %.2f | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f | %.2f | %.1f |\n", size, callers, arm,
			med(arm, func(s, _ sample) float64 { return s.rate }), med(arm, func(s, d sample) float64 { return s.rate / d.rate }),
			med(arm, func(s, _ sample) float64 { return s.p50 }), med(arm, func(s, _ sample) float64 { return s.p99 }),
			med(arm, func(s, d sample) float64 { return s.p50 - d.p50 }), med(arm, func(s, d sample) float64 { return s.p99 - d.p99 }),
			med(arm, func(s, _ sample) float64 { return s.backend }), med(arm, func(s, _ sample) float64 { return s.relay }),
			med(arm, func(s, d sample) float64 { return s.relay / d.backend }), med(arm, func(s, _ sample) float64 { return s.allocs }))
	}
	return nil
}

// mostConns is how many connections the callers share.
const mostConns = 4

func (b *bench) measure(ctx context.Context, arm string, size, callers int, warm bool) (s sample, err error) {
	back, at := b.servers[backend], b.servers[backend]
	if arm != direct {
		at = b.servers[arm]
	}
	var conns []*grpc.ClientConn
	defer func() {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
	}()
	for range min(mostConns, callers) {
		c, err := dial(at.addr)
		if err != nil {
			return s, err
		}
		conns = append(conns, c)
	}
	req := request(size)
	call := func(c *grpc.ClientConn) error {
		var out mem.BufferSlice
		err := c.Invoke(ctx, method, &req, &out)
		if err == nil && out.Len() != size {
			err = fmt.Errorf("%d bytes came back", out.Len())
		}
		out.Free()
		return err
	}
	for _, c := range conns {
		if err := call(c); err != nil {
			return s, err
		}
	}
	length := b.length
	if warm {
		length /= 2
	}
	b0, err := back.use()
	if err != nil {
		return s, err
	}
	a0, err := at.use()
	if err != nil {
		return s, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	took := make([][]time.Duration, callers)
	for i := range callers {
		wg.Go(func() {
			for last := began; last.Sub(began) < length; {
				if err := call(conns[i%len(conns)]); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	if err := failed.Load(); err != nil {
		return s, *err
	}
	b1, err := back.use()
	if err != nil {
		return s, err
	}
	a1, err := at.use()
	if err != nil {
		return s, err
	}
	every := slices.Concat(took...)
	slices.Sort(every)
	n := float64(len(every))
	s = sample{
		rate: n / elapsed.Seconds(), p50: float64(every[len(every)/2]) / 1e3, p99: float64(every[len(every)*99/100]) / 1e3,
		backend: (b1.CPU - b0.CPU).Seconds() * 1e6 / n,
	}
	if arm != direct {
		s.relay, s.allocs = (a1.CPU-a0.CPU).Seconds()*1e6/n, float64(a1.Mallocs-a0.Mallocs)/n
	}
	return s, nil
}

// ready waits until an address answers searches: a broker asks its node for indexes first.
func (b *bench) ready(ctx context.Context, addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	late := time.After(20 * time.Second)
	for {
		req, out := request(b.sizes[0]), mem.BufferSlice(nil)
		if err = c.Invoke(ctx, method, &req, &out); err == nil {
			out.Free()
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30)),
		grpc.WithInitialWindowSize(2<<20), grpc.WithInitialConnWindowSize(4<<20))
}

// server is one process: a child or, with cmd, another program, which does not tell what it uses.
type server struct {
	*child.Process
	cmd  *exec.Cmd
	addr string
}

// use is what the process has used.
func (s *server) use() (u child.Use, err error) {
	if s.cmd != nil {
		u.CPU, err = cpuOf(s.cmd.Process.Pid)
		return u, err
	}
	return s.Use()
}

func (s *server) stop() error {
	if s.cmd != nil {
		return s.end()
	}
	return s.Stop()
}

func (b *bench) start(name string, args ...string) error {
	p, err := child.Start(b.profile, name, args...)
	if err != nil {
		return err
	}
	b.servers[name] = &server{Process: p, addr: p.First}
	return nil
}
