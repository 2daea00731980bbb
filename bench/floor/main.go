// Command floor measures what a scattered search cannot take less than on a machine: bare processes that exchange frames of the size of
// requests and replies and spend a given time of a processor, without a search, HTTP or JSON. A process that does all of the work is held
// against one that has three others do a third of it each, and does nothing itself but write three requests and read three replies.
//
//	go run ./floor [-shards 3] [-work 0,150,300,600,1200,2400,4800] [-rounds 20] [-calls 50]
//
// The ratio is what a coordinator over that many shards could reach at best beside a node whose search takes that long.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-search/weft/bench/internal/child"
)

func main() {
	if role, args, ok := child.Role(); ok {
		if err := serve(role, args); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", role+":", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// Roles of processes. Both kinds of coordinators take the addresses of the workers for arguments.
const (
	roleWorker = "worker"
	roleOne    = "one"  // one goroutine writes all requests, then reads all replies
	roleEach   = "each" // a goroutine for each worker
)

// Bytes of a request and of a reply, as they are for a page of ten hits. A request begins with the nanoseconds of work that it asks for.
const (
	requestBytes = 400
	replyBytes   = 4_000
)

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var works string
	var shards, rounds, calls int
	fl := flag.NewFlagSet("floor", flag.ContinueOnError)
	fl.IntVar(&shards, "shards", 3, "workers behind a coordinator")
	fl.StringVar(&works, "work", "0,150,300,600,1200,2400,4800", "comma `list` of what a request takes one worker, microseconds")
	fl.IntVar(&rounds, "rounds", 20, "rounds; in each every arm is called so often in turn")
	fl.IntVar(&calls, "calls", 50, "calls of an arm in a round")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if shards < 1 || rounds < 1 || calls < 1 || fl.NArg() > 0 {
		return errors.New("numbers of workers, rounds and calls are at least 1, and there are no arguments")
	}
	var work []time.Duration
	for s := range strings.SplitSeq(works, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("-work: %q is not a number from 0", s)
		}
		work = append(work, time.Duration(n)*time.Microsecond)
	}
	var started []*child.Process
	defer func() {
		for _, p := range slices.Backward(started) {
			err = errors.Join(err, p.Stop())
		}
	}()
	start := func(role string, args ...string) (string, error) {
		p, err := child.Start("", role, args...)
		if err != nil {
			return "", err
		}
		started = append(started, p)
		return p.First, nil
	}
	var workers []string
	for range shards {
		addr, err := start(roleWorker)
		if err != nil {
			return err
		}
		workers = append(workers, addr)
	}
	arms := []*arm{{name: "direct", addr: workers[0]}, {name: roleOne}, {name: roleEach}}
	for _, a := range arms {
		if a.addr == "" {
			if a.addr, err = start(a.name, workers...); err != nil {
				return err
			}
		}
		if a.conn, err = net.Dial("tcp", a.addr); err != nil {
			return err
		}
		defer a.conn.Close()
	}
	fmt.Fprintf(out, "%d workers, %d cores, %s; p50 / p99 of %d calls, one at a time, microseconds.\n\n", shards, runtime.NumCPU(), runtime.Version(), rounds*calls)
	fmt.Fprintf(out, "| work | one process | coordinator, one goroutine | over one process | coordinator, a goroutine for each | over one process |\n|--:|--:|--:|--:|--:|--:|\n")
	for _, w := range work {
		for range rounds {
			for _, a := range arms {
				for range calls {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					if err := a.call(w); err != nil {
						return fmt.Errorf("%s: %w", a.name, err)
					}
				}
			}
		}
		fmt.Fprintf(out, "| %d | ", w.Microseconds())
		var base float64
		for i, a := range arms {
			p50, p99 := a.took()
			fmt.Fprintf(out, "%.0f / %.0f | ", p50, p99)
			if i == 0 {
				base = p50
			} else {
				fmt.Fprintf(out, "%.2f | ", p50/base)
			}
		}
		fmt.Fprintln(out)
	}
	return nil
}

// arm is one process that is called.
type arm struct {
	name, addr string
	conn       net.Conn
	request    [requestBytes]byte
	reply      [replyBytes]byte
	times      []time.Duration
}

func (a *arm) call(work time.Duration) error {
	binary.BigEndian.PutUint64(a.request[:], uint64(work))
	began := time.Now()
	if _, err := a.conn.Write(a.request[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(a.conn, a.reply[:]); err != nil {
		return err
	}
	a.times = append(a.times, time.Since(began))
	return nil
}

// took is the median and the 99th percentile of the calls since the last time, microseconds.
func (a *arm) took() (p50, p99 float64) {
	slices.Sort(a.times)
	at := func(per int) float64 { return float64(a.times[(len(a.times)-1)*per/100].Nanoseconds()) / 1e3 }
	p50, p99 = at(50), at(99)
	a.times = a.times[:0]
	return p50, p99
}

// serve is one process: it prints its address and serves until its input ends.
func serve(role string, workers []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				if err := answer(c, role, workers); err != nil {
					fmt.Fprintln(os.Stderr, "floor:", role+":", err)
				}
			})
		}
	})
	err = child.Answer(l.Addr().String())
	return errors.Join(err, l.Close()) // connections end with the process
}

// answer serves one connection.
func answer(c net.Conn, role string, workers []string) error {
	defer c.Close()
	conns := make([]net.Conn, len(workers))
	replies := make([][replyBytes]byte, len(workers))
	for i, addr := range workers {
		var err error
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	ask := func(i int, request []byte) error { _, err := conns[i].Write(request); return err }
	read := func(i int) error { _, err := io.ReadFull(conns[i], replies[i][:]); return err }
	var request [requestBytes]byte
	var reply [replyBytes]byte
	for {
		if _, err := io.ReadFull(c, request[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		work := binary.BigEndian.Uint64(request[:])
		if len(conns) > 0 {
			binary.BigEndian.PutUint64(request[:], work/uint64(len(conns)))
		}
		var errs []error
		switch role {
		case roleWorker:
			for began := time.Now(); time.Since(began) < time.Duration(work); {
			}
		case roleOne:
			for _, do := range []func(int) error{func(i int) error { return ask(i, request[:]) }, read} {
				for i := range conns {
					errs = append(errs, do(i))
				}
			}
		case roleEach:
			errs = make([]error, len(conns))
			var wg sync.WaitGroup
			for i := range conns {
				wg.Go(func() { errs[i] = errors.Join(ask(i, request[:]), read(i)) })
			}
			wg.Wait()
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if _, err := c.Write(reply[:]); err != nil {
			return err
		}
	}
}
