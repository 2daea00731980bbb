// Package child runs parts of a benchmark as processes of their own, of the same program, so that what each of them uses can be told apart. A
// child prints one line when it serves, and then answers each line that it reads with what it has used. It ends with its input.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/weft-search/weft/internal/cli"
)

const (
	// roleFlag is the first argument of a child, profileEnv names the file for its profile.
	roleFlag   = "-serve"
	profileEnv = "WEFT_BENCH_CPUPROFILE"
)

// Role is what this process is, and what it was given, if it is a child.
func Role() (role string, args []string, ok bool) {
	if len(os.Args) > 2 && os.Args[1] == roleFlag {
		return os.Args[2], os.Args[3:], true
	}
	return "", nil, false
}

// Process is a child under way.
type Process struct {
	// First is the line that it printed when it served.
	First string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// Use is what a process has used since it began.
type Use struct {
	CPU     time.Duration // user and system
	Mallocs uint64
	Bytes   uint64 // allocated
}

// Start starts a child and waits until it serves. With a folder for profiles its CPU profile is role.pprof there.
func Start(profile, role string, args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(exe, append([]string{roleFlag, role}, args...)...)}
	p.cmd.Stderr = os.Stderr
	if profile != "" {
		p.cmd.Env = append(os.Environ(), profileEnv+"="+filepath.Join(profile, role+".pprof"))
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		return nil, fmt.Errorf("%s did not start: %w", role, errors.Join(p.out.Err(), p.Stop(), io.ErrUnexpectedEOF))
	}
	p.First = p.out.Text()
	return p, nil
}

// Stop ends the child.
func (p *Process) Stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// Use asks the child what it has used.
func (p *Process) Use() (u Use, err error) {
	if _, err := fmt.Fprintln(p.in, "use"); err != nil {
		return u, err
	}
	if !p.out.Scan() {
		return u, fmt.Errorf("a process ended: %w", errors.Join(p.out.Err(), io.ErrUnexpectedEOF))
	}
	var nanos int64
	if _, err := fmt.Sscan(p.out.Text(), &nanos, &u.Mallocs, &u.Bytes); err != nil {
		return u, fmt.Errorf("understand %q: %w", p.out.Text(), err)
	}
	u.CPU = time.Duration(nanos)
	return u, nil
}

// Profiled runs a child with the CPU profile that was asked for.
func Profiled(serve func() error) error {
	file := os.Getenv(profileEnv)
	if file == "" {
		return serve()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = serve()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// Answer prints the first line, where the child serves, and answers those that are read until the input ends.
func Answer(first string) error {
	fmt.Println(first)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			return err
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(use.Utime.Nano()+use.Stime.Nano(), m.Mallocs, m.TotalAlloc)
	}
	return in.Err()
}

// Broker serves as the program summa-broker, with all that it does: the command line, discovery, admission and metrics. It adds the flags for
// addresses; the first line is where it serves.
func Broker(ctx context.Context, flags ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := cli.Run(ctx, append([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}, flags...),
			cli.IO{Stdout: in, Stderr: os.Stderr, LookupEnv: func(name string) (string, bool) {
				return map[string]string{"RUST_LOG": "warn"}[name], name == "RUST_LOG"
			}, Program: "summa-broker"})
		in.Close()
		ended <- code
	}()
	err := errors.New("the broker does not say where it listens")
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening summa "); ok {
			go io.Copy(io.Discard, out) // to the end of the program
			err = Answer(addr)
			break
		}
	}
	cancel()
	if code := <-ended; code != 0 {
		err = errors.Join(err, fmt.Errorf("the broker ended with code %d", code))
	}
	return err
}
