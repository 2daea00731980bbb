// Command weft is a search engine in one binary: servers, clients and tools by subcommand.
//
// Exit codes: 0 done, 1 failed, 2 bad usage. The first SIGINT or SIGTERM ends a command in good order, the second at once.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-search/weft/internal/cli"
)

// version is set by the linker: -X main.version=v1.2.3.
var version string

// sameWish is the time in which a second signal counts as the first.
const sameWish = 300 * time.Millisecond

func main() {
	os.Exit(run())
}

// stopped is the cause of a context that a signal ended.
type stopped struct{ by os.Signal }

func (s stopped) Error() string {
	if s.by == os.Interrupt {
		return "interrupted"
	}
	return "asked to terminate"
}

// Is makes it a context.Canceled.
func (stopped) Is(target error) bool { return target == context.Canceled }

func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		s := <-signals
		first := time.Now()
		cancel(stopped{s})
		for s = range signals {
			// timeout(1) and shells send the same signal to a process and then to its group: that is one wish.
			if time.Since(first) > sameWish {
				break
			}
		}
		fmt.Fprintf(os.Stderr, "weft: %v again: ending at once\n", s)
		os.Exit(1)
	}()
	return cli.Run(ctx, os.Args[1:], cli.IO{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, Version: version, Program: os.Args[0],
	})
}
