package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-search/weft/internal/cli"
)

// self is the subcommand under which this program is weft itself, with a profile of its work. Processes are started so when profiles are
// asked for; weft has no listener for profiles.
const self = "weft"

// profileEnv names the files for the CPU profiles of a process, but for their ends.
const profileEnv = "WEFT_BENCH_CPUPROFILE"

// runWeft is weft with the arguments. It returns the exit code.
func runWeft(args []string) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if file := os.Getenv(profileEnv); file != "" {
		end := profiled(file)
		defer func() {
			if err := end(); err != nil {
				fmt.Fprintln(os.Stderr, "cluster:", err)
				code = 1
			}
		}()
	}
	return cli.Run(ctx, args, cli.IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv})
}

// profiled lets SIGUSR1 begin a profile of the processor's time, and another one end it. Further profiles have numbers in their names. end
// ends one under way.
func profiled(name string) (end func() error) {
	flips := make(chan os.Signal, 1)
	signal.Notify(flips, syscall.SIGUSR1)
	var wg sync.WaitGroup
	var errs []error
	wg.Go(func() {
		var f *os.File
		finish := func() {
			pprof.StopCPUProfile()
			errs = append(errs, f.Close())
			f = nil
		}
		for n := 1; ; n++ {
			if _, ok := <-flips; !ok {
				return
			}
			var err error
			if f, err = os.Create(fmt.Sprintf("%s.%d.pprof", name, n)); err == nil {
				err = pprof.StartCPUProfile(f)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("begin a profile: %w", err))
				return
			}
			if _, ok := <-flips; !ok {
				finish()
				return
			}
			finish()
		}
	})
	return func() error {
		signal.Stop(flips)
		close(flips)
		wg.Wait()
		return errors.Join(errs...)
	}
}

// process is a server under way.
type process struct {
	name string
	cmd  *exec.Cmd
	at   map[string]string // addresses by what they serve
	log  bytes.Buffer      // what it said; whole once it has ended
	done chan error
}

// startTime is how long a process may take to listen.
const startTime = time.Minute

// start runs weft and returns once it listens on so many addresses.
func (b *bench) start(name string, listeners int, args ...string) (*process, error) {
	p := &process{name: name, done: make(chan error, 1)}
	if b.profile != "" {
		p.cmd = exec.Command(b.exe, append([]string{self}, args...)...)
		p.cmd.Env = append(os.Environ(), profileEnv+"="+filepath.Join(b.profile, name))
	} else {
		p.cmd = exec.Command(b.weft, args...)
	}
	p.cmd.Stderr = &p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	told := make(chan map[string]string, 1)
	go func() {
		at := map[string]string{}
		sc := bufio.NewScanner(stdout)
		for len(at) < listeners && sc.Scan() {
			if line, ok := strings.CutPrefix(sc.Text(), "listening "); ok {
				what, addr, _ := strings.Cut(line, " ")
				at[what] = addr
			}
		}
		told <- at
		_, err := io.Copy(io.Discard, stdout)
		p.done <- errors.Join(p.cmd.Wait(), err)
		close(p.done)
	}()
	late := time.NewTimer(startTime)
	defer late.Stop()
	select {
	case p.at = <-told:
	case <-late.C:
	}
	if len(p.at) < listeners {
		err := p.cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("%s does not listen: %w\n%s", name, <-p.done, p.log.String()), err)
	}
	return p, nil
}

// stop ends the process in good order.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	err, first := <-p.done
	switch {
	case !first:
		return fmt.Errorf("%s was ended before", p.name)
	case err != nil:
		return fmt.Errorf("%s: %w\n%s", p.name, err, p.log.String())
	}
	return nil
}

// flip begins or ends the profile of the process.
func (p *process) flip() error {
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return fmt.Errorf("profile %s: %w", p.name, err)
	}
	return nil
}

// ticks is the processor time of a process in hundredths of a second, 0 where the system does not tell.
func (p *process) ticks() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// Behind the name, which may have spaces in it, the fields begin with the third.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return user + system
}

// memory is the resident memory of a process and the most that it had, in MiB; 0 where the system does not tell.
func (p *process) memory() (now, most int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, err := strconv.Atoi(f[1])
		switch {
		case err != nil:
		case f[0] == "VmRSS:":
			now = kb / 1024
		case f[0] == "VmHWM:":
			most = kb / 1024
		}
	}
	return now, most
}
