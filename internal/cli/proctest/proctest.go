// Package proctest builds weft and runs it as a process of its own, for tests of what only a process can do: die, stop, listen.
package proctest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// builtIn are the folders that Build and BuildPlain made.
var builtIn []string

// Build makes the binary once, with the race detector, and returns its path. Main removes it.
var Build = sync.OnceValues(func() (string, error) { return build("-race") })

// BuildPlain makes the binary once as it is delivered, for tests with many processes. Main removes it.
var BuildPlain = sync.OnceValues(func() (string, error) { return build() })

// BuildWith makes a binary with flags of go build, each time. Main removes it.
func BuildWith(flags ...string) (string, error) { return build(flags...) }

func build(flags ...string) (string, error) {
	dir, err := os.MkdirTemp("", "weft-proctest-")
	if err != nil {
		return "", err
	}
	builtIn = append(builtIn, dir)
	bin := filepath.Join(dir, "weft")
	// The go command keeps in its cache what it links for go run, and not what it links for go build: so packages share one linking. It runs
	// cp instead of the program, with the program as its first argument.
	args := append(append([]string{"run"}, flags...), "-exec", "cp", "github.com/weft-search/weft/cmd/weft", bin)
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weft: %w\n%s", err, out)
	}
	return bin, nil
}

// Main is TestMain of a package that uses Build or BuildPlain, one after the other.
func Main(m *testing.M) { Leave(m.Run()) }

// Leave is the end of Main, for packages whose TestMain is another one.
func Leave(code int) {
	for _, dir := range builtIn {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Process is a server under way.
type Process struct {
	Cmd *exec.Cmd
	// Listening are its addresses by what they serve: http, grpc, shard.
	Listening map[string]string
	// Stderr holds the end of what it said.
	Stderr *Tail
	// Exited is closed when the process has ended; Err, set before, is what it ended with.
	Exited chan struct{}
	Err    error
}

// Tail keeps the last bytes written to it.
type Tail struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 256 << 10 // the stacks of a server fit
	t.b = append(t.b, p...)
	if len(t.b) > 2*most {
		t.b = append(t.b[:0], t.b[len(t.b)-most:]...)
	}
	return len(p), nil
}

// String is what was kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// startTime is how long a process may take to listen.
const startTime = 30 * time.Second

// Start runs weft with the arguments and returns once it listens on so many addresses. The process is the caller's to end.
func Start(listeners int, args ...string) (*Process, error) {
	bin, err := Build()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, args...)
	// A race ends the process at once, and with an exit code of its own.
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	return StartCommand(listeners, cmd)
}

// StartCommand is Start of a command that becomes weft.
func StartCommand(listeners int, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Stderr: &Tail{}, Exited: make(chan struct{})}
	p.Cmd.Stderr = p.Stderr
	stdout, err := p.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Cmd.Start(); err != nil {
		return nil, err
	}
	told := make(chan map[string]string, 1)
	go func() {
		defer close(p.Exited)
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
		p.Err = errors.Join(p.Cmd.Wait(), err)
	}()
	late := time.NewTimer(startTime)
	defer late.Stop()
	select {
	case p.Listening = <-told:
	case <-late.C:
	}
	if len(p.Listening) < listeners {
		kerr := p.Kill()
		return nil, errors.Join(fmt.Errorf("weft listens on %v: %w\n%s", p.Listening, p.Err, p.Stderr), kerr)
	}
	return p, nil
}

// Kill ends the process as a power cut would end it, and waits.
func (p *Process) Kill() error {
	if err := p.Cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.Exited
	return nil
}

// Stop ends the process in good order. It is an error if it does not end in one, or if it has told of a panic.
func (p *Process) Stop() error {
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.Exited
	if said := p.Stderr.String(); p.Err != nil || strings.Contains(said, "panic") {
		return fmt.Errorf("weft ended: %w\n%s", p.Err, said)
	}
	return nil
}

// Killed tells whether the process died of Kill and not of anything else, such as a data race.
func (p *Process) Killed() error {
	if exit, ok := errors.AsType[*exec.ExitError](p.Err); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return fmt.Errorf("weft ended by itself: %v\n%s", p.Err, p.Stderr)
}
