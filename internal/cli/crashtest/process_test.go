package crashtest

import (
	"bufio"
	"context"
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

	"github.com/weft-search/weft/internal/client"
)

// builtIn is the folder that build made; empty before.
var builtIn string

// build makes the binary once, with the race detector.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weft-crashtest-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	bin := filepath.Join(dir, "weft")
	out, err := exec.Command("go", "build", "-race", "-o", bin, "github.com/weft-search/weft/cmd/weft").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build weft: %w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		if err := os.RemoveAll(builtIn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// process is a running weft node.
type process struct {
	cmd    *exec.Cmd
	client *client.Client
	stderr *tail
	exited chan struct{} // closed when the process has ended; err is set before
	err    error
}

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 16 << 10
	t.b = append(t.b, p...)
	if len(t.b) > 2*most {
		t.b = append(t.b[:0], t.b[len(t.b)-most:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// start starts a node and returns once it listens.
func start(dir string, flags ...string) (*process, error) {
	bin, err := build()
	if err != nil {
		return nil, err
	}
	args := append([]string{"node", "--http", "127.0.0.1:0", "--data-dir", dir, "--log-level", "warn"}, flags...)
	p := &process{cmd: exec.Command(bin, args...), stderr: &tail{}, exited: make(chan struct{})}
	p.cmd.Stderr = p.stderr
	// A race ends the process at once, and with an exit code of its own.
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line := make(chan string, 1)
	go func() {
		sc := bufio.NewScanner(stdout)
		if sc.Scan() {
			line <- sc.Text()
		}
		close(line)
		_, err := io.Copy(io.Discard, stdout)
		p.err = errors.Join(p.cmd.Wait(), err)
		close(p.exited)
	}()
	select {
	case l := <-line:
		addr, ok := strings.CutPrefix(l, "listening http ")
		if !ok {
			p.kill()
			return nil, fmt.Errorf("node printed %q\n%s", l, p.stderr)
		}
		p.client, err = client.New("http://"+addr, client.Options{})
		return p, err
	case <-time.After(30 * time.Second):
		p.kill()
		return nil, fmt.Errorf("node does not listen\n%s", p.stderr)
	}
}

// ready waits until the node serves its indexes.
func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.client.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("node ended: %w\n%s", p.err, p.stderr)
		case <-ctx.Done():
			return fmt.Errorf("node is not ready: %w\n%s", err, p.stderr)
		}
	}
}

// kill ends the process as a power cut would end it, and waits.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err)
	}
	<-p.exited
	if p.client != nil {
		p.client.CloseIdle()
	}
}

// stop ends the process in good order.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.exited
	p.client.CloseIdle()
	if p.err != nil {
		return fmt.Errorf("node ended: %w\n%s", p.err, p.stderr)
	}
	return nil
}

// killed tells whether the process died of kill and not of anything else, such as a data race.
func (p *process) killed() error {
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return fmt.Errorf("node ended by itself: %v\n%s", p.err, p.stderr)
}

// doctor runs weft doctor on the folder.
func doctor(dir string) error {
	bin, err := build()
	if err != nil {
		return err
	}
	out, err := exec.Command(bin, "doctor", "--data-dir", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("doctor: %w\n%s", err, out)
	}
	return nil
}
